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

/* ---- what comes ---- */

static void forget_node(struct ss_node *n)
{
	xport_rkey_destroy(n->rkey);
	*n = (struct ss_node){.ep = NULL};
}

static void forget_old(struct ss_store *s)
{
	for (uint32_t i = 0; i < SW_NODES; i++) {
		struct ss_node *n = &s->node[i];

		if (n->ep != NULL && n->life != s->watch.map.node[i].life) {
			sh_close(s->hub, n->ep);
			forget_node(n);
		}
	}
}

static void done(void *arg, const struct xport_rpc_event *e)
{
	struct ss_store *s = arg;

	if (e->id == s->write) {
		s->write = 0;
		s->answered = e->status == XPORT_OK && e->len == sizeof(s->answer);
	} else if (sm_done(&s->watch, e)) {
		forget_old(s);
	}
}

static void lost(void *arg, xport_ep *ep)
{
	struct ss_store *s = arg;

	if (ep == s->watch.keeper)
		s->watch.keeper = NULL;
	for (int i = 0; i < SW_NODES; i++)
		if (s->node[i].ep == ep)
			forget_node(&s->node[i]);
}

/* ---- nodes ---- */

/* NULL: there is no way to it now. */
static struct ss_node *way_to(struct ss_store *s, uint32_t node)
{
	struct ss_node *n = &s->node[node];
	const struct sw_member *m = &s->watch.map.node[node];

	if (n->ep != NULL)
		return n;
	n->life = m->life;
	n->ep = sh_connect(s->hub, m->address);
	if (n->ep == NULL)
		return NULL;
	if (xport_rkey_unpack(n->ep, m->rkey, m->rkey_len, &n->rkey) == XPORT_OK)
		return n;
	sh_close(s->hub, n->ep);
	*n = (struct ss_node){.ep = NULL};
	return NULL;
}

/* False: enough time has passed, or there is no keeper any more. */
static bool later(struct ss_store *s, int64_t until)
{
	s->again++;
	(void)sm_ask(&s->watch);
	sh_hub_poll(s->hub, MOMENT_MS);
	return s->watch.keeper != NULL && sh_now_ms() < until;
}

/* ---- reading ---- */

enum looked { FOUND, ABSENT, NO_WAY };

/* One slot, whole. */
static bool read_slot(struct ss_store *s, uint32_t node, uint32_t range, uint32_t slot, struct sr_record *r)
{
	for (int tries = 0; tries < TRIES; tries++) {
		struct ss_node *n = way_to(s, node);

		if (n == NULL || !sh_get(s->hub, n->ep, s->slot, SR_SLOT, n->rkey, sr_offset(range, slot), s->mr))
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

	if (s->watch.keeper != NULL)
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
		uint64_t epoch = s->watch.map.epoch;
		uint32_t node = s->watch.map.range[range].primary;
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
	uint64_t epoch = s->watch.map.epoch;

	for (uint32_t i = 0; i < SR_SLOTS; i++)
		if (s->watch.map.range[range].primary == SW_NONE ||
		    !read_slot(s, s->watch.map.range[range].primary, range, i, &r[i]))
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
			if (s->watch.map.range[i].primary == SW_NONE)
				return SS_LOST;
			if (!later(s, until))
				return SS_TIMEOUT;
		}
	}
	return SS_OK;
}

/* ---- writing ---- */

/* Waits for the answer as long as the node is there. */
static bool ask(struct ss_store *s, uint32_t node, const char *method, const uint8_t *slot, int64_t until)
{
	struct xport_rpc_args args = {.payload = slot,
	                              .len = SR_SLOT,
	                              .reply = &s->answer,
	                              .reply_max = sizeof(s->answer),
	                              .deadline_ms = (uint32_t)(until - sh_now_ms())};
	struct ss_node *n = way_to(s, node);

	s->answered = false;
	s->write = n == NULL ? 0 : sh_call(s->hub, n->ep, method, args);
	while (s->write != 0)
		sh_hub_poll(s->hub, sm_ask(&s->watch) ? SH_SOON_MS : 1000);
	return s->answered;
}

static enum ss_status write_record(struct ss_store *s, const char *method, const struct sr_record *r)
{
	int64_t until = sh_now_ms() + GIVE_UP_MS;
	uint8_t slot[SR_SLOT] = {0};
	uint32_t range, home;

	sr_place(r->key, r->key_len, &range, &home);
	sr_write(r, slot);
	do {
		uint32_t node = s->watch.map.range[range].primary;

		if (node == SW_NONE)
			return SS_LOST;
		if (ask(s, node, method, slot, until) && s->answer != SW_NOT_PRIMARY)
			return s->answer == SW_OK ? SS_OK : s->answer == SW_NOT_FOUND ? SS_NOT_FOUND : SS_FULL;
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
	return write_record(s, "store.put", &r);
}

enum ss_status ss_delete(struct ss_store *s, const void *key, size_t key_len)
{
	struct sr_record r = {.state = SR_DELETED, .key_len = (uint32_t)key_len};

	if (!fits(key_len, 0))
		return SS_INVALID;
	memcpy(r.key, key, key_len);
	return write_record(s, "store.delete", &r);
}

/* ---- life ---- */

static bool open_epoch(struct ss_store *s)
{
	struct xport_versioned_attr a = {.size = sizeof(a), .form = XPORT_VERSIONED_SUMMED, .length = 8};
	const struct sw_member *k = &s->watch.map.keeper;

	return xport_rkey_unpack(s->watch.keeper, k->rkey, k->rkey_len, &s->keeper_rkey) == XPORT_OK &&
	       xport_versioned_peer_create(s->hub->x, s->watch.keeper, s->keeper_rkey, 0, &a, &s->epoch) == XPORT_OK;
}

static bool join(struct ss_store *s, const char *keeper)
{
	struct xport_mr_info info = {.size = sizeof(info)};
	int64_t until = sh_now_ms() + GIVE_UP_MS;

	if (xport_mr_alloc(s->hub->x, SR_SLOT, 0, &s->mr) != XPORT_OK || xport_mr_query(s->mr, &info) != XPORT_OK)
		return false;
	s->slot = info.base;
	s->watch.hub = s->hub;
	s->watch.keeper = sh_connect(s->hub, keeper);
	if (s->watch.keeper == NULL)
		return false;
	while (s->watch.map.epoch == 0)
		if (!later(s, until))
			return false;
	return open_epoch(s);
}

struct ss_store *ss_open(const char *name, const char *keeper)
{
	static struct sh_use use = {NULL, NULL, done, lost};
	struct ss_store *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	use.program = name;
	s->hub = sh_hub_open(&use, s, NULL);
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
