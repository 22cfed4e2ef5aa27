/* SPDX-License-Identifier: BSD-3-Clause */
#include "table.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { SLOW_US = 200 };

bool st_table_open(struct st_table *t, struct sh_hub *hub)
{
	struct xport_mr_info info = {.size = sizeof(info)};
	const struct sr_record never = {.state = SR_NEVER};

	if (xport_mr_alloc(hub->x, SR_TABLE, XPORT_REMOTE_READ, &t->mr) != XPORT_OK ||
	    xport_mr_query(t->mr, &info) != XPORT_OK) {
		sh_complain(hub, "memory for the table");
		return false;
	}
	t->slots = info.base;
	for (uint32_t range = 0; range < SR_RANGES; range++)
		for (uint32_t slot = 0; slot < SR_SLOTS; slot++)
			sr_write(&never, t->slots + sr_offset(range, slot));
	return true;
}

void st_table_close(struct st_table *t)
{
	(void)xport_mr_dereg(t->mr);
}

void st_table_read(const struct st_table *t, uint32_t range, uint32_t slot, struct sr_record *r)
{
	if (!sr_read(r, t->slots + sr_offset(range, slot)))
		*r = (struct sr_record){.state = SR_NEVER}; /* nobody else writes: not to be seen */
}

/* In whatever order its bytes are seen: the sum tells. */
void st_table_write(struct st_table *t, uint32_t range, uint32_t slot, const struct sr_record *r)
{
	uint8_t bytes[SR_SLOT], *to = t->slots + sr_offset(range, slot);
	size_t n = SR_HEAD + SR_KEY + r->value_len, half = t->slow ? SR_HEAD + SR_KEY + r->value_len / 2 : n;

	sr_write(r, bytes);
	memcpy(to, bytes, half);
	if (t->slow)
		usleep(SLOW_US);
	memcpy(to + half, bytes + half, n - half);
	atomic_thread_fence(memory_order_release);
}

bool st_table_find(const struct st_table *t, const struct sr_record *key, bool room, uint32_t *slot,
                   struct sr_record *now)
{
	uint32_t range, home, at;
	struct sr_record r;
	bool any = false;

	sr_place(key->key, key->key_len, &range, &home);
	for (uint32_t i = 0; i < SR_PROBE; i++) {
		at = sr_probe(home, i);
		st_table_read(t, range, at, &r);
		if (sr_has_key(&r, key->key, key->key_len) || (room && !any && r.state != SR_HELD)) {
			*slot = at;
			*now = r;
			any = true;
		}
		if (r.state == SR_NEVER || sr_has_key(&r, key->key, key->key_len))
			break;
	}
	return any;
}
