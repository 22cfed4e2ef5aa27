/* SPDX-License-Identifier: BSD-3-Clause */
#include "ledger.h"

void ledger_begin(struct h *h, struct ledger *l)
{
	H_EQ(0, l->pending);
	l->life++;
	l->used = l->pending = l->lost = 0;
}

bool ledger_has_room(const struct ledger *l, int side)
{
	return l->used < (side == 0 ? LEDGER_ROOM / 2 : LEDGER_ROOM);
}

struct ledger_entry *ledger_new(struct ledger *l, int type, int slot, void **context)
{
	struct ledger_entry *e = &l->entry[l->used];

	memset(e, 0, sizeof(*e));
	e->type = (uint8_t)type;
	e->slot = (int8_t)slot;
	*context = (void *)((uintptr_t)l->life << 32 | (l->used + 1));
	l->used++;
	l->pending++;
	return e;
}

void ledger_drop(struct ledger *l)
{
	l->used--;
	l->pending--;
}

struct ledger_entry *ledger_take(struct h *h, struct ledger *l, const struct xport_completion *c)
{
	uint64_t context = (uintptr_t)c->context;
	uint32_t n = (uint32_t)context, life = (uint32_t)(context >> 32);
	struct ledger_entry *e;

	H_CHECK(life == l->life, "a completion (type %u, %s) of operation %u of life %u came in life %u", c->type,
	        xport_status_name(c->status), n, life, l->life);
	H_CHECK(n >= 1 && n <= l->used, "a completion (type %u, %s) has the context %#" PRIx64 ", which is nobody's",
	        c->type, xport_status_name(c->status), context);
	e = &l->entry[n - 1];
	H_CHECK(!e->done, "operation %u of type %u completed twice: %s, and now %s", n, e->type,
	        xport_status_name(e->status), xport_status_name(c->status));
	H_CHECK(c->type == e->type, "operation %u was posted as type %u, and completed as %u", n, e->type, c->type);
	e->done = 1;
	e->status = c->status;
	l->pending--;
	l->lost += c->status == XPORT_ERR_PEER_LOST;
	return e;
}
