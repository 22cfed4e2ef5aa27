/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cases_deadline_load.c - P3 for xport_opt.deadline_ms under load: operations of all kinds with short, random deadlines, at
 * a peer that often does not poll. Each buffer is overwritten as soon as its operation has ended, and nothing of that
 * arrives anywhere.
 */
#include "lists.h"

enum { SLOTS = 32, PUT_LEN = 3000, LONGEST = 200000, SCRIBBLE = 0xee, PEER = 0, SELF = 1 };

/* An operation of the initiator, and its memory. */
struct slot {
	struct h_op *op;
	uint8_t *buf, *old;
	size_t len;
	bool reads;
};

struct load {
	struct h *h;
	struct h_rkey r;
	struct slot slot[SLOTS];
	uint64_t seed, posted, expired, added_ok, added_unknown;
};

/* Messages carry their length twice and a pattern of it: a piece of another one, or of a scribble, shows. */
static void compose(uint8_t *buf, size_t len)
{
	uint64_t n = len;

	memcpy(buf, &n, 8);
	h_fill(buf + 8, len - 8, len);
}

static void whole(struct h *h, const uint8_t *buf, size_t len)
{
	uint64_t n;

	memcpy(&n, buf, 8);
	H_EQ(len, n);
	H_FILLED(buf + 8, len - 8, len);
}

/* Nothing was written to the buffer since its operation ended. */
static void untouched(struct h *h, const uint8_t *buf)
{
	H_CHECK(buf[0] == SCRIBBLE && memcmp(buf, buf + 1, LONGEST - 1) == 0, "written to after its operation ended");
}

static struct xport_opt short_time(struct load *l, struct h_op *op)
{
	uint64_t r = h_rnd(&l->seed, 8);
	struct xport_opt o = {.size = sizeof(o), .context = op};

	o.deadline_ms = r == 0 ? 0 : r == 1 ? 10000 : (uint32_t)(1 + h_rnd(&l->seed, 4));
	return o;
}

static bool withdrawn_alone(const struct h *h, int type)
{
	return (h->info.deadline_ends & 1u << type) == 0;
}

static int post_message(struct load *l, struct slot *s)
{
	struct h *h = l->h;
	struct xport_iov half[2];
	struct xport_opt o;

	s->op = h_op(h, XPORT_OP_SEND);
	o = short_time(l, s->op);
	s->len = (size_t)(16 + h_rnd(&l->seed, h_rnd(&l->seed, 2) == 0 ? 400 : LONGEST - 16));
	compose(s->buf, s->len);
	if (h_rnd(&l->seed, 4) > 0)
		return xport_send(h->ep[PEER], s->buf, s->len, 1, &o);
	half[0] = (struct xport_iov){.addr = s->buf, .len = s->len / 2};
	half[1] = (struct xport_iov){.addr = s->buf + s->len / 2, .len = s->len - s->len / 2};
	return xport_sendv(h->ep[PEER], half, 2, 1, &o);
}

/* Each slot writes its own part of the region, always the same bytes. */
static int post_put(struct load *l, struct slot *s, unsigned i, bool notify)
{
	struct h *h = l->h;
	uint64_t at = l->r.offset + 64 + (uint64_t)i * PUT_LEN;
	struct xport_opt o;

	s->op = h_op(h, notify ? XPORT_OP_PUT_NOTIFY : XPORT_OP_PUT);
	o = short_time(l, s->op);
	s->len = (size_t)(1 + h_rnd(&l->seed, PUT_LEN));
	memset(s->buf, 0x11, s->len);
	if (notify)
		return xport_put_notify(h->ep[PEER], s->buf, s->len, l->r.k, at, &o);
	if (h_rnd(&l->seed, 2) == 0)
		o.flags = XPORT_LOCAL;
	if (h_rnd(&l->seed, 3) > 0)
		return xport_put(h->ep[PEER], s->buf, s->len, l->r.k, at, &o);
	return xport_putv(h->ep[PEER], &(struct xport_iov){s->buf, s->len, NULL}, 1, l->r.k,
	                  (struct xport_riov[]){{at, s->len / 2}, {at + s->len / 2, s->len - s->len / 2}}, 2, &o);
}

static int post_read(struct load *l, struct slot *s, unsigned i)
{
	struct xport_atomic_args a = {
		.size = sizeof(a), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1, .result = s->buf};
	struct h *h = l->h;
	struct xport_opt o;
	bool get = h_rnd(&l->seed, 2) == 0;

	s->op = h_op(h, get ? XPORT_OP_GET : XPORT_OP_ATOMIC);
	o = short_time(l, s->op);
	s->reads = true;
	s->len = get ? (size_t)(1 + h_rnd(&l->seed, PUT_LEN)) : 8;
	memset(s->buf, 0x11, LONGEST);
	if (get)
		return xport_get(h->ep[PEER], s->buf, s->len, l->r.k, l->r.offset + 64 + (uint64_t)i * PUT_LEN, &o);
	return xport_atomic(h->ep[PEER], &a, l->r.k, l->r.offset, &o);
}

static int post_one(struct load *l, struct slot *s, unsigned i)
{
	struct h *h = l->h;

	s->reads = false;
	switch (h_rnd(&l->seed, 4)) {
	case 0:
		if (withdrawn_alone(h, XPORT_OP_PUT))
			return post_put(l, s, i, h_rnd(&l->seed, 4) == 0);
		break;
	case 1:
		if (withdrawn_alone(h, XPORT_OP_GET) && withdrawn_alone(h, XPORT_OP_ATOMIC))
			return post_read(l, s, i);
		break;
	default:
		break;
	}
	return post_message(l, s);
}

/* It ended: its memory is the application's from here on. */
static void take_back(struct load *l, struct slot *s)
{
	struct h *h = l->h;
	int status = s->op->c.status;
	bool add = s->op->type == XPORT_OP_ATOMIC;

	H_CHECK(status == XPORT_OK || status == XPORT_ERR_TIMEOUT, "operation of type %d: %s", s->op->type,
	        xport_status_name(status));
	l->expired += status != XPORT_OK;
	l->added_ok += add && status == XPORT_OK;
	l->added_unknown += add && status != XPORT_OK;
	for (size_t i = 0; s->op->type == XPORT_OP_GET && status == XPORT_OK && i < s->len; i++)
		H_CHECK(s->buf[i] == 0 || s->buf[i] == 0x11, "byte %zu of a get is 0x%02x", i, s->buf[i]);
	memset(s->buf, SCRIBBLE, LONGEST);
	s->op = NULL;
}

static void initiate(struct h *h)
{
	struct load l = {.h = h, .seed = 88172645463325252u + h->param};
	uint64_t limit = h->param;

	h_mesh(h, NULL);
	l.r = h_import(h, PEER);
	h_run_for(h, 20);
	for (unsigned i = 0; i < SLOTS; i++) {
		l.slot[i].buf = h_buf(h, LONGEST);
		memset(l.slot[i].buf, SCRIBBLE, LONGEST);
	}
	while (l.expired < limit) {
		for (unsigned i = 0; i < SLOTS; i++) {
			struct slot *s = &l.slot[i];
			int r;

			if (s->op != NULL && s->op->done)
				take_back(&l, s);
			if (s->op != NULL)
				continue;
			untouched(h, s->buf);
			r = post_one(&l, s, i);
			if (r != XPORT_OK) {
				H_EQ(XPORT_ERR_AGAIN, r);
				h_op_drop(h, s->op);
				memset(s->buf, SCRIBBLE, LONGEST);
				s->op = NULL;
			}
			l.posted += r == XPORT_OK;
		}
		h_breathe(h);
	}
	h_settle(h);
	for (unsigned i = 0; i < SLOTS; i++)
		if (l.slot[i].op != NULL)
			take_back(&l, &l.slot[i]);
	h_record(h, "operations", l.posted);
	h_record(h, "expired", l.expired);
	h_tell_u64(h, PEER, 1);
	H_DONE(h_flush(h, h->ep[PEER]));
	h_tell_u64(h, PEER, l.added_ok);
	h_tell_u64(h, PEER, l.added_ok + l.added_unknown);
	h_sync(h);
}

/* Receives with deadlines of their own; every now and then it does not poll for a few milliseconds. */
static void take_all(struct h *h, struct load *l)
{
	while (!h_heard(h, SELF) || l->slot[0].op != NULL) {
		struct xport_completion c;

		for (unsigned i = 0; i < 4; i++) {
			struct slot *s = &l->slot[i];

			if (s->op != NULL && s->op->done) {
				int status = s->op->c.status;

				H_CHECK(status == XPORT_OK || status == XPORT_ERR_TIMEOUT ||
				                status == XPORT_ERR_CANCELED,
				        "a receive ended with %s", xport_status_name(status));
				if (status == XPORT_OK)
					whole(h, s->buf, s->op->c.length);
				l->expired += status == XPORT_ERR_TIMEOUT;
				l->posted += status == XPORT_ERR_CANCELED;
				memset(s->buf, SCRIBBLE, LONGEST);
				s->op = NULL;
			}
			if (s->op == NULL && !h_heard(h, SELF)) {
				struct xport_opt o;

				untouched(h, s->buf);
				s->op = h_op(h, XPORT_OP_RECV);
				o = (struct xport_opt){.size = sizeof(o), .context = s->op};
				o.deadline_ms = (uint32_t)(1 + h_rnd(&l->seed, 6));
				H_OK(xport_recv(h->x, s->buf, LONGEST, 1, UINT64_MAX, &o));
			}
		}
		if (h_rnd(&l->seed, 6) == 0)
			usleep((useconds_t)(500 + h_rnd(&l->seed, 5000)));
		for (int i = 0; i < 3; i++)
			h_breathe(h);
		while (h_event_now(h, XPORT_EVENT_NOTIFY, &c))
			H_EQ(0, c.tag);
	}
	h_settle(h);
}

static void endure(struct h *h)
{
	struct load l = {.h = h, .seed = 362436069 + h->param};
	struct h_mem m;
	uint64_t added, least, most;

	h_mesh(h, NULL);
	m = h_mem_target(h, 64 + SLOTS * PUT_LEN, 0, H_ALL);
	h_share(h, SELF, &m);
	for (unsigned i = 0; i < 4; i++) {
		l.slot[i].buf = h_buf(h, LONGEST);
		memset(l.slot[i].buf, SCRIBBLE, LONGEST);
	}
	take_all(h, &l);
	h_hear_u64(h, SELF);
	least = h_hear_u64(h, SELF);
	most = h_hear_u64(h, SELF);
	memcpy(&added, m.p, 8);
	H_CHECK(added >= least && added <= most, "%" PRIu64 " additions, expected %" PRIu64 " to %" PRIu64, added,
	        least, most);
	for (size_t i = 64; i < m.len; i++)
		H_CHECK(m.p[i] == 0 || m.p[i] == 0x11, "byte %zu of the region is 0x%02x", i, m.p[i]);
	h_record(h, "receives expired", l.expired);
	h_record(h, "receives cancelled", l.posted);
	h_sync(h);
	h_mem_free(h, &m);
}

static const struct h_param few[] = {{"2000", 2000}, {NULL, 0}}, many[] = {{"100000", 100000}, {NULL, 0}};

const struct h_scenario cases_deadline_load[] = {
	{"P3_deadline_load", {endure, initiate}, few, 0, 120},
	{"P3_deadline_load", {endure, initiate}, many, H_SLOW, 1200},
	{NULL, {NULL}, NULL, 0, 0},
};
