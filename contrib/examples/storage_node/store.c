/* SPDX-License-Identifier: BSD-3-Clause */
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GIVE_UP_MS = 30000, MOMENT_MS = 5, TRIES = 100000 };

const char *ss_text(enum ss_status status)
{
	static const char *const text[SS_STATUSES] = {
		"done",
		"there is no such key",
		"no room for such a key",
		"both nodes that had this key have died",
		"the store does not answer",
		"a key has 1 to 64 bytes, a value at most 928",
	};

	return status < SS_STATUSES ? text[status] : "?";
}

/* ---- messages ---- */

static void forget_node(struct ss_node *n)
{
	xport_rkey_destroy(n->rkey);
	*n = (struct ss_node){.peer = NULL};
}

static void take_map(struct ss_store *s, const struct sw_message *m)
{
	static struct sw_map map;

	if (!sw_get_map(m, &map) || map.epoch <= s->map.epoch)
		return;
	s->map = map;
	for (uint32_t i = 0; i < SW_NODES; i++) {
		struct ss_node *n = &s->node[i];

		if (n->peer != NULL && n->life != map.node[i].life) {
			n->peer->bad = true; /* closed in the next round of the loop */
			forget_node(n);
		}
	}
}

static void message(void *arg, struct sh_peer *peer, const struct sw_message *m)
{
	struct ss_store *s = arg;

	if (m->type == SW_MAP && peer == s->keeper) {
		take_map(s, m);
	} else if (m->type == SW_ANSWER && m->number == s->number) {
		s->answered = true;
		s->status = m->status;
	}
}

static void lost(void *arg, struct sh_peer *peer)
{
	struct ss_store *s = arg;

	if (peer == s->keeper)
		s->keeper = NULL;
	for (int i = 0; i < SW_NODES; i++)
		if (s->node[i].peer == peer)
			forget_node(&s->node[i]);
}

/* ---- nodes ---- */

/* NULL: there is no way to it now. */
static struct ss_node *way_to(struct ss_store *s, uint32_t node)
{
	struct ss_node *n = &s->node[node];
	const struct sw_member *m = &s->map.node[node];

	if (n->peer != NULL)
		return n;
	n->life = m->life;
	n->peer = sh_connect(s->hub, m->address);
	if (n->peer == NULL)
		return NULL;
	if (xport_rkey_unpack(n->peer->ep, m->rkey, m->rkey_len, &n->rkey) == XPORT_OK)
		return n;
	n->peer->bad = true;
	*n = (struct ss_node){.peer = NULL};
	return NULL;
}

/* False: enough time has passed, or there is no keeper any more. */
static bool later(struct ss_store *s, int64_t until)
{
	s->again++;
	sh_hub_poll(s->hub, MOMENT_MS);
	return s->keeper != NULL && sh_now_ms() < until;
}

/* ---- reading ---- */

enum looked { FOUND, ABSENT, NO_WAY };

/* One slot, whole. */
static bool read_slot(struct ss_store *s, uint32_t node, uint32_t range, uint32_t slot, struct sr_record *r)
{
	for (int tries = 0; tries < TRIES; tries++) {
		struct ss_node *n = way_to(s, node);

		if (n == NULL || !sh_get(n->peer, s->slot, SR_SLOT, n->rkey, sr_offset(range, slot), s->mr))
			return false;
		if (s->plain ? sr_read_torn(r, s->slot) : sr_read(r, s->slot))
			return true;
		s->torn++;
	}
	return false;
}

static enum looked look_for(struct ss_store *s, uint32_t node, uint32_t range, uint32_t home, const void *key,
                            size_t len, struct sr_record *r)
{
	for (uint32_t i = 0; i < SR_PROBE; i++) {
		if (!read_slot(s, node, range, sr_probe(home, i), r))
			return NO_WAY;
		if (r->state == SR_NEVER)
			return ABSENT;
		if (sr_has_key(r, key, len))
			return r->state == SR_HELD ? FOUND : ABSENT;
	}
	return ABSENT;
}

static bool epoch_is(struct ss_store *s, uint64_t epoch)
{
	uint64_t now = 0;
	int r = XPORT_ERR_CLOSED;

	if (s->keeper != NULL)
		r = xport_versioned_peer_read(s->epoch, &now);
	if (r == XPORT_OK)
		r = xport_versioned_peer_wait(s->epoch, sh_hub_take, s->hub, -1);
	return r == XPORT_OK && now == epoch;
}

static bool fits(size_t key_len, size_t value_len)
{
	return key_len > 0 && key_len <= SR_KEY && value_len <= SR_VALUE;
}

enum ss_status ss_get(struct ss_store *s, const void *key, size_t key_len, struct sr_record *r)
{
	int64_t until = sh_now_ms() + GIVE_UP_MS;
	uint32_t range, home;

	if (!fits(key_len, 0))
		return SS_INVALID;
	sr_place(key, key_len, &range, &home);
	do {
		uint64_t epoch = s->map.epoch;
		uint32_t node = s->map.range[range].primary;
		enum looked l;

		if (node == SW_NONE)
			return SS_LOST;
		l = look_for(s, node, range, home, key, key_len, r);
		if (l != NO_WAY && epoch_is(s, epoch))
			return l == FOUND ? SS_OK : SS_NOT_FOUND;
	} while (later(s, until));
	return SS_TIMEOUT;
}

static bool list_range(struct ss_store *s, uint32_t range, void (*each)(void *arg, const struct sr_record *r),
                       void *arg)
{
	static struct sr_record r[SR_SLOTS];
	uint64_t epoch = s->map.epoch;

	for (uint32_t i = 0; i < SR_SLOTS; i++)
		if (s->map.range[range].primary == SW_NONE ||
		    !read_slot(s, s->map.range[range].primary, range, i, &r[i]))
			return false;
	if (!epoch_is(s, epoch))
		return false;
	for (int i = 0; i < SR_SLOTS; i++)
		if (r[i].state == SR_HELD)
			each(arg, &r[i]);
	return true;
}

enum ss_status ss_list(struct ss_store *s, void (*each)(void *arg, const struct sr_record *record), void *arg)
{
	int64_t until = sh_now_ms() + GIVE_UP_MS;

	for (uint32_t i = 0; i < SR_RANGES; i++) {
		while (!list_range(s, i, each, arg)) {
			if (s->map.range[i].primary == SW_NONE)
				return SS_LOST;
			if (!later(s, until))
				return SS_TIMEOUT;
		}
	}
	return SS_OK;
}

/* ---- writing ---- */

/* Sends it, and waits for the answer as long as its node is there. */
static bool ask(struct ss_store *s, uint32_t node, const struct sw_message *m, int64_t until)
{
	struct ss_node *n = way_to(s, node);
	struct sh_peer *peer;

	if (n == NULL)
		return false;
	peer = n->peer;
	s->answered = false;
	sh_send(peer, m);
	while (!s->answered && n->peer == peer && sh_now_ms() < until)
		sh_hub_poll(s->hub, 1000);
	return s->answered;
}

static enum ss_status write_record(struct ss_store *s, enum sw_type type, const struct sr_record *r)
{
	int64_t until = sh_now_ms() + GIVE_UP_MS;
	struct sw_message m = {.type = type, .number = ++s->number, .body_len = SR_SLOT};
	uint32_t range, home;

	sr_place(r->key, r->key_len, &range, &home);
	sr_write(r, m.body);
	do {
		uint32_t node = s->map.range[range].primary;

		if (node == SW_NONE)
			return SS_LOST;
		if (ask(s, node, &m, until) && s->status != SW_NOT_PRIMARY)
			return s->status == SW_OK ? SS_OK : s->status == SW_NOT_FOUND ? SS_NOT_FOUND : SS_FULL;
	} while (later(s, until));
	return SS_TIMEOUT;
}

enum ss_status ss_put(struct ss_store *s, const void *key, size_t key_len, const void *value, size_t value_len)
{
	struct sr_record r = {.state = SR_HELD, .key_len = (uint32_t)key_len, .value_len = (uint32_t)value_len};

	if (!fits(key_len, value_len))
		return SS_INVALID;
	memcpy(r.key, key, key_len);
	memcpy(r.value, value, value_len);
	return write_record(s, SW_PUT, &r);
}

void ss_put_unheard(struct ss_store *s, const void *key, size_t key_len, int times)
{
	struct sr_record r = {.state = SR_HELD, .key_len = (uint32_t)key_len};
	struct sw_message m = {.type = SW_PUT, .body_len = SR_SLOT};
	uint32_t range, home;
	struct ss_node *n;

	memcpy(r.key, key, key_len);
	sr_place(r.key, r.key_len, &range, &home);
	sr_write(&r, m.body);
	n = way_to(s, s->map.range[range].primary);
	for (int i = 0; n != NULL && i < times; i++)
		sh_send(n->peer, &m);
}

enum ss_status ss_delete(struct ss_store *s, const void *key, size_t key_len)
{
	struct sr_record r = {.state = SR_DELETED, .key_len = (uint32_t)key_len};

	if (!fits(key_len, 0))
		return SS_INVALID;
	memcpy(r.key, key, key_len);
	return write_record(s, SW_DELETE, &r);
}

/* ---- life ---- */

static bool open_epoch(struct ss_store *s)
{
	struct xport_versioned_attr a = {.size = sizeof(a), .form = XPORT_VERSIONED_SUMMED, .length = 8};
	const struct sw_member *k = &s->map.keeper;

	return xport_rkey_unpack(s->keeper->ep, k->rkey, k->rkey_len, &s->keeper_rkey) == XPORT_OK &&
	       xport_versioned_peer_create(s->hub->x, s->keeper->ep, s->keeper_rkey, 0, &a, &s->epoch) == XPORT_OK;
}

static bool join(struct ss_store *s, const char *keeper)
{
	struct xport_mr_info info = {.size = sizeof(info)};
	struct sw_message m = {.type = SW_WATCH};
	int64_t until = sh_now_ms() + GIVE_UP_MS;

	if (xport_mr_alloc(s->hub->x, SR_SLOT, 0, &s->mr) != XPORT_OK || xport_mr_query(s->mr, &info) != XPORT_OK)
		return false;
	s->slot = info.base;
	s->keeper = sh_connect(s->hub, keeper);
	if (s->keeper == NULL)
		return false;
	sh_send(s->keeper, &m);
	while (s->map.epoch == 0)
		if (!later(s, until))
			return false;
	return open_epoch(s);
}

struct ss_store *ss_open(const char *name, const char *keeper)
{
	static const struct sh_calls calls = {message, lost};
	struct ss_store *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	s->hub = sh_hub_open(name, NULL, &calls, s);
	if (s->hub != NULL && join(s, keeper))
		return s;
	if (s->hub != NULL)
		sh_complain(s->hub, "the store");
	ss_close(s);
	return NULL;
}

void ss_close(struct ss_store *s)
{
	if (s == NULL)
		return;
	xport_versioned_peer_destroy(s->epoch);
	for (int i = 0; i < SW_NODES; i++)
		forget_node(&s->node[i]);
	xport_rkey_destroy(s->keeper_rkey);
	sh_hub_close(s->hub);
	free(s);
}
