/* SPDX-License-Identifier: BSD-3-Clause */
#include "side.h"

enum { CHECKED = 4096, ATOMICS = SIDE_SLOTS * SIDE_LEN };

static void fill(uint8_t *p)
{
	for (int i = 0; i < SIDE_SLOTS; i++)
		h_fill(p + i * SIDE_LEN, SIDE_LEN, (uint64_t)(SIDE_SEED + i));
}

void side_begin(struct side *s, struct h *h, struct kl_board *board, struct ledger *l, struct h_mem *local,
                bool survivor)
{
	memset(s, 0, sizeof(*s));
	s->h = h;
	s->board = board;
	s->ledger = l;
	s->order = board->order;
	s->local = local;
	s->survivor = survivor;
	s->poster = (s->order.part == KL_TARGET) == survivor;
	fill(local->p);
}

/* ---- keys ---- */

void side_offer(struct side *s)
{
	struct h_key key;

	s->h->kind = s->order.seed & 1 ? H_ALLOC : H_REG;
	s->mem = h_mem_target(s->h, SIDE_MEM, 0, H_ALL);
	fill(s->mem.p);
	key = h_key_pack(s->h, &s->mem);
	atomic_fetch_add(&s->board->keys, 1);
	memcpy(s->board->key, &key, sizeof(key));
	atomic_fetch_add(&s->board->keys, 1);
}

/* False: nothing new is there, or the endpoint takes no keys any more. */
static bool take_key(struct side *s)
{
	unsigned n = atomic_load(&s->board->keys);
	struct h *h = s->h;
	struct h_key key;
	int status;

	if (n % 2 || (n == s->key_seen && s->order.step != KL_KEY))
		return false;
	memcpy(&key, s->board->key, sizeof(key));
	if (atomic_load(&s->board->keys) != n)
		return false;
	xport_rkey_destroy(s->key.k);
	s->key = (struct h_rkey){.offset = key.offset, .length = key.length};
	status = xport_rkey_unpack(s->ep, key.bytes, key.len, &s->key.k);
	H_CHECK(status == XPORT_OK || status == XPORT_ERR_PEER_LOST || status == XPORT_ERR_PEER_CLOSED,
	        "xport_rkey_unpack: %s", xport_status_name(status));
	s->key_seen = n;
	s->key_stale = false;
	return status == XPORT_OK;
}

void side_take_key(struct side *s)
{
	struct h *h = s->h;

	H_TRUE(take_key(s));
}

/* ---- the poster ---- */

static int free_slot(const struct side *s)
{
	for (int i = 0; i < SIDE_SLOTS; i++)
		if (!s->busy[i])
			return i;
	return -1;
}

static size_t length(const struct side *s)
{
	static const size_t lengths[] = {8, 1000, 8192, SIDE_LEN};

	if (s->order.step == KL_EAGER)
		return 100;
	if (s->order.step == KL_RENDEZVOUS || s->order.step == KL_RECEIVE)
		return SIDE_LEN;
	return lengths[(s->order.seed >> 8 ^ s->posted) % 4];
}

static int type_of(const struct side *s)
{
	switch (s->order.step) {
	case KL_GET:
		return XPORT_OP_GET;
	case KL_NOTIFY:
		return XPORT_OP_PUT_NOTIFY;
	case KL_EAGER:
	case KL_RENDEZVOUS:
	case KL_RECEIVE: /* each of its sides sends or receives as it is the server or the poster */
		return s->poster == (s->order.step != KL_RECEIVE) ? XPORT_OP_SEND : XPORT_OP_RECV;
	case KL_FLUSH:
		return XPORT_OP_FLUSH;
	case KL_ATOMIC:
		return XPORT_OP_ATOMIC;
	case KL_DEREG:
		return s->posted % 2 ? XPORT_OP_GET : XPORT_OP_PUT;
	default:
		return XPORT_OP_PUT;
	}
}

static int atomic_add(struct side *s, int slot, struct xport_opt *o)
{
	struct xport_atomic_args a = {.size = sizeof(a), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1};

	a.result = &s->old[slot];
	return xport_atomic(s->ep, &a, s->key.k, s->key.offset + ATOMICS + 8 * (unsigned)slot, o);
}

static int flushed_put(struct side *s, int slot, size_t len, struct xport_opt *o)
{
	struct xport_opt quiet = {.size = sizeof(quiet), .flags = XPORT_QUIET, .mr = s->local->mr};
	size_t at = (size_t)slot * SIDE_LEN;
	int status = xport_put(s->ep, s->local->p + at, len, s->key.k, s->key.offset + at, &quiet);

	o->mr = NULL;
	return status == XPORT_OK ? xport_flush(s->ep, o) : status;
}

static int post(struct side *s, int type, int slot, size_t len, struct xport_opt *o)
{
	size_t at = (size_t)slot * SIDE_LEN;
	uint8_t *buf = s->local->p + at;

	switch (type) {
	case XPORT_OP_PUT:
		return xport_put(s->ep, buf, len, s->key.k, s->key.offset + at, o);
	case XPORT_OP_GET:
		return xport_get(s->ep, buf, len, s->key.k, s->key.offset + at, o);
	case XPORT_OP_PUT_NOTIFY:
		o->value = 1;
		return xport_put_notify(s->ep, buf, len, s->key.k, s->key.offset + at, o);
	case XPORT_OP_SEND:
		return xport_send(s->ep, buf, len, (uint64_t)slot, o);
	case XPORT_OP_RECV:
		o->source = s->ep;
		return xport_recv(s->h->x, buf, SIDE_LEN, 0, 0, o);
	case XPORT_OP_FLUSH:
		return flushed_put(s, slot, len, o);
	default:
		o->mr = NULL;
		return atomic_add(s, slot, o);
	}
}

/* False: enough for now. */
static bool post_one(struct side *s)
{
	struct xport_opt o = {.size = sizeof(o), .mr = s->local->mr};
	int slot = free_slot(s), type = type_of(s), status;
	struct ledger_entry *e;
	struct h *h = s->h;

	if (slot < 0 || !ledger_has_room(s->ledger, s->number))
		return false;
	e = ledger_new(s->ledger, type, slot, &o.context);
	e->side = (int8_t)s->number;
	e->len = (uint32_t)length(s);
	status = post(s, type, slot, e->len, &o);
	if (status == XPORT_OK) {
		s->busy[slot] = true;
		s->posted++;
		return true;
	}
	ledger_drop(s->ledger);
	if (status == XPORT_ERR_STALE_KEY && s->order.step == KL_DEREG)
		s->key_stale = true;
	else
		H_CHECK(status == XPORT_ERR_AGAIN || status == XPORT_ERR_PEER_LOST || status == XPORT_ERR_PEER_CLOSED,
		        "posting an operation of type %d: %s", type, xport_status_name(status));
	return false;
}

static void post_some(struct side *s)
{
	if (s->order.step == KL_KEY && free_slot(s) >= 0)
		take_key(s);
	if (s->key_stale && !take_key(s))
		return;
	while (post_one(s) && s->order.step != KL_KEY)
		;
}

/* ---- the server ---- */

/* Takes the region away from under the poster, and offers another. */
static void replace(struct side *s)
{
	unsigned moved = atomic_load(&s->board->moved);

	if (moved - s->replaced < 4 && s->turns % 64)
		return;
	s->replaced = moved;
	h_mem_free(s->h, &s->mem);
	side_offer(s);
}

static void serve(struct side *s)
{
	switch (s->order.step) {
	case KL_EAGER:
	case KL_RENDEZVOUS:
	case KL_RECEIVE:
		while (post_one(s))
			;
		break;
	case KL_DEREG:
		replace(s);
		break;
	default:
		break;
	}
}

void side_work(struct side *s)
{
	s->turns++;
	if (s->ep == NULL || !s->connected || s->lost || s->order.step < KL_PUT || s->order.step >= KL_STEPS)
		return;
	if (s->poster)
		post_some(s);
	else
		serve(s);
}

/* ---- what comes back ---- */

/* An end that lives on may be told by its peer before it notices itself. */
static bool allowed(const struct side *s, int status)
{
	return status == XPORT_OK || status == XPORT_ERR_PEER_LOST ||
	       (status == XPORT_ERR_STALE_KEY && s->order.step == KL_DEREG) ||
	       (status == XPORT_ERR_PEER_CLOSED && !s->survivor);
}

void side_ended(struct side *s, const struct ledger_entry *e, const struct xport_completion *c)
{
	size_t len = e->len < CHECKED ? e->len : CHECKED;
	struct h *h = s->h;
	int slot = e->slot;

	/* What had arrived before the end may be received after it, as well. */
	H_CHECK(!s->lost || (e->type == XPORT_OP_RECV && c->status == XPORT_OK),
	        "an operation of type %u completed with %s after the event of the loss", e->type,
	        xport_status_name(c->status));
	H_CHECK(allowed(s, c->status), "an operation of type %u ended with %s", e->type, xport_status_name(c->status));
	s->busy[slot] = false;
	if (c->status == XPORT_ERR_STALE_KEY)
		s->key_stale = true;
	if (c->status != XPORT_OK)
		return;
	s->well++;
	atomic_fetch_add(&s->board->moved, 1);
	if (e->type == XPORT_OP_GET)
		H_FILLED(s->local->p + slot * SIDE_LEN, len, (uint64_t)(SIDE_SEED + slot));
	if (e->type == XPORT_OP_RECV)
		H_FILLED(s->local->p + slot * SIDE_LEN, len, SIDE_SEED + c->tag);
}

void side_event(struct side *s, const struct xport_completion *c)
{
	struct h *h = s->h;

	if (c->type == XPORT_EVENT_NOTIFY)
		return;
	H_CHECK(!s->lost, "an event of type %u (%s) after the loss", c->type, xport_status_name(c->status));
	if (c->type == XPORT_EVENT_CONNECTED) {
		s->connected = true;
		return;
	}
	H_CHECK(c->type == XPORT_EVENT_LOST || (c->type == XPORT_EVENT_CLOSED && !s->survivor),
	        "an event of type %u (%s) instead of the loss", c->type, xport_status_name(c->status));
	H_CHECK(!s->connected || c->type == XPORT_EVENT_CLOSED || c->status == XPORT_ERR_PEER_LOST, "lost by %s",
	        xport_status_name(c->status));
	s->lost = true;
	s->lost_status = c->status;
	s->lost_us = h_now_us();
}

/* ---- the end ---- */

void side_is_lost(struct side *s)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	struct xport_opt o = {.size = sizeof(o)};
	struct h *h = s->h;

	H_OK(xport_ep_query(s->ep, &info));
	H_EQ(XPORT_EP_LOST, info.state);
	H_EQ(0, info.in_flight);
	if (!s->connected)
		return;
	H_EQ(XPORT_ERR_PEER_LOST, info.reason);
	H_STATUS(XPORT_ERR_PEER_LOST, xport_send(s->ep, s->local->p, 8, 1, &o));
	H_STATUS(XPORT_ERR_PEER_LOST, xport_flush(s->ep, &o));
	if (s->key.k)
		H_STATUS(XPORT_ERR_PEER_LOST, xport_put(s->ep, s->local->p, 8, s->key.k, s->key.offset, &o));
}

void side_end(struct side *s)
{
	xport_rkey_destroy(s->key.k);
	s->key.k = NULL;
	xport_ep_destroy(s->ep);
	s->ep = NULL;
	if (s->mem.raw)
		h_mem_free(s->h, &s->mem);
}
