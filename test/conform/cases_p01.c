/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_p01.c - P1, exactly once: every accepted operation has one completion, a refused one has none. */
#include "harness.h"

enum { LEN = 4096, MANY = 100 };

/* The target of all cases here that need no more of it. */
static void target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
	H_GUARDS(m);
}

/* Nothing more comes, and what was counted stays. */
static void quiet_after(struct h *h)
{
	h_run_for(h, 50);
	H_EQ(0, h->nqueue);
	H_EQ(0, h->pending);
}

static void every_kind(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	uint64_t old;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	for (int i = 0; i < MANY; i++) {
		h_put(h, h->ep[0], H_AT(l, 0, 64), &r, 0, 0);
		h_put(h, h->ep[0], H_AT(l, 0, 64), &r, 0, XPORT_LOCAL);
		h_get(h, h->ep[0], H_AT(l, 64, 64), &r, 64);
		h_notify(h, h->ep[0], H_AT(l, 0, 8), &r, 128, 1, 0);
		h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 1, 0, i & 1 ? &old : NULL, &r, 256);
		h_send(h, h->ep[0], l.p, 16, 7);
		h_flush(h, h->ep[0]);
	}
	h_settle(h);
	quiet_after(h);
	h_sync(h);
}

static void receive_all(struct h *h)
{
	struct h_mem m;
	char buf[16];

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	for (int i = 0; i < MANY; i++)
		H_DONE(h_recv(h, NULL, buf, sizeof(buf), 7, UINT64_MAX));
	for (int i = 0; i < MANY; i++)
		H_EVENT(XPORT_EVENT_NOTIFY);
	quiet_after(h);
	h_sync(h);
}

static void quiet_none(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	struct xport_opt o = {.size = sizeof(o), .flags = XPORT_QUIET};
	struct xport_atomic_args a = {.size = sizeof(a), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1};

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	for (int i = 0; i < MANY; i++) {
		h_put(h, h->ep[0], H_AT(l, 0, 100), &r, 0, XPORT_QUIET);
		h_notify(h, h->ep[0], H_AT(l, 0, 0), &r, 0, 5, XPORT_QUIET);
		while (xport_atomic(h->ep[0], &a, r.k, r.offset + 512, &o) == XPORT_ERR_AGAIN)
			h_breathe(h);
		h_get_quiet(h, h->ep[0], H_AT(l, 128, 100), &r, 0);
	}
	H_DONE(h_flush(h, h->ep[0]));
	quiet_after(h);
	h_sync(h);
}

static void quiet_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
	H_EQ(MANY, *(uint64_t *)(m.p + 512));
	for (int i = 0; i < MANY; i++)
		H_EVENT(XPORT_EVENT_NOTIFY);
	H_EQ(0, h->nqueue);
}

static void refused_none(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	struct xport_opt o = {.size = sizeof(o), .context = h};

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	o.mr = l.mr;
	for (int i = 0; i < MANY; i++) {
		H_STATUS(XPORT_ERR_BOUNDS, xport_put(h->ep[0], l.p, 2, r.k, r.length - 1, &o));
		H_STATUS(XPORT_ERR_BOUNDS, xport_get(h->ep[0], l.p, 2, r.k, r.length - 1, &o));
		H_STATUS(XPORT_ERR_BOUNDS, xport_put_notify(h->ep[0], l.p, 2, r.k, r.length - 1, &o));
	}
	quiet_after(h);
	h_sync(h);
}

/* What a completion says about its operation. */
static void expect(struct h *h, const struct xport_completion *c, uint32_t type, void *context, uint64_t length)
{
	H_EQ(XPORT_OK, c->status);
	H_EQ(type, c->type);
	H_TRUE(c->context == context);
	H_TRUE(c->ep == h->ep[0]);
	if (type != XPORT_OP_ATOMIC && type != XPORT_OP_FLUSH)
		H_EQ(length, c->length);
	H_EQ(0, c->peer);
}

static struct xport_completion one(struct h *h)
{
	struct xport_completion c;

	memset(&c, 0x5a, sizeof(c));
	H_EQ(1, xport_wait(h->x, &c, 1, h_ms(10000)));
	return c;
}

static void says_what(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	int mark[6];
	struct xport_opt o = {.size = sizeof(o), .value = 9};
	struct xport_atomic_args a = {.size = sizeof(a), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1};
	struct xport_completion c;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	o.mr = l.mr;
	o.context = &mark[0];
	H_OK(xport_put(h->ep[0], l.p, 33, r.k, r.offset, &o));
	c = one(h);
	expect(h, &c, XPORT_OP_PUT, &mark[0], 33);
	o.context = &mark[1];
	H_OK(xport_get(h->ep[0], l.p, 34, r.k, r.offset, &o));
	c = one(h);
	expect(h, &c, XPORT_OP_GET, &mark[1], 34);
	o.context = &mark[2];
	H_OK(xport_put_notify(h->ep[0], l.p, 35, r.k, r.offset, &o));
	c = one(h);
	expect(h, &c, XPORT_OP_PUT_NOTIFY, &mark[2], 35);
	o.context = &mark[3];
	o.mr = NULL;
	H_OK(xport_atomic(h->ep[0], &a, r.k, r.offset, &o));
	c = one(h);
	expect(h, &c, XPORT_OP_ATOMIC, &mark[3], 8);
	o.context = &mark[4];
	o.mr = l.mr;
	H_OK(xport_send(h->ep[0], l.p, 36, 3, &o));
	c = one(h);
	expect(h, &c, XPORT_OP_SEND, &mark[4], 36);
	o.context = &mark[5];
	o.mr = NULL;
	H_OK(xport_flush(h->ep[0], &o));
	c = one(h);
	expect(h, &c, XPORT_OP_FLUSH, &mark[5], 0);
	h_sync(h);
}

static void says_what_target(struct h *h)
{
	struct h_mem m;
	struct xport_completion c;
	struct h_op *op;
	char buf[64];

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	op = h_recv(h, NULL, buf, sizeof(buf), 0, 0);
	h_share(h, 1, &m);
	c = H_EVENT(XPORT_EVENT_NOTIFY);
	H_EQ(XPORT_OK, c.status);
	H_EQ(9, c.tag);
	H_EQ(35, c.length);
	H_EQ(m.offset, c.offset);
	H_TRUE(c.mr == m.mr && c.ep == h->ep[1]);
	H_DONE(op);
	H_EQ(36, op->c.length);
	H_EQ(3, op->c.tag);
	H_TRUE(op->c.ep == h->ep[1]);
	h_sync(h);
}

/* Reaping one at a time, or asking for none, loses nothing. */
static void reap_slowly(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	struct xport_completion c;
	struct xport_opt o = {.size = sizeof(o)};
	int seen[MANY] = {0};

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	o.mr = l.mr;
	for (int i = 0; i < MANY; i++) {
		o.context = &seen[i];
		H_OK(xport_put(h->ep[0], l.p, 32, r.k, r.offset, &o));
	}
	for (int i = 0; i < 200; i++)
		H_EQ(0, xport_poll(h->x, NULL, 0));
	for (int i = 0; i < MANY; i++) {
		H_EQ(1, xport_wait(h->x, &c, 1, h_ms(10000)));
		H_EQ(XPORT_OP_PUT, c.type);
		++*(int *)c.context;
	}
	for (int i = 0; i < MANY; i++)
		H_EQ(1, seen[i]);
	quiet_after(h);
	h_sync(h);
}

/* Posts some of everything that a target which makes no progress leaves outstanding. */
enum { KINDS = 8, ALL = 10 * KINDS };

static void post_all(struct h *h, struct h_mem *l, struct h_rkey *r, void *big, size_t len, uint64_t *word,
                     struct h_op **op)
{
	for (int i = 0; i < 10; i++, op += KINDS) {
		op[0] = h_put(h, h->ep[0], H_AT(*l, 0, LEN), r, 0, 0);
		op[1] = h_get(h, h->ep[0], H_AT(*l, 0, LEN), r, 0);
		op[2] = h_notify(h, h->ep[0], H_AT(*l, 0, 8), r, 0, 1, 0);
		op[3] = h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 1, 0, word, r, 0);
		op[4] = h_send(h, h->ep[0], l->p, 8, 1);
		op[5] = h_send(h, h->ep[0], big, len, 1);
		op[6] = h_recv(h, h->ep[0], word, 8, 77, UINT64_MAX);
		op[7] = h_flush(h, h->ep[0]);
	}
}

/* What the target must do itself is not done while it makes no progress. */
static bool not_done(const struct xport_rkey_info *info, int type)
{
	if (type == XPORT_OP_GET)
		return info->get == XPORT_EMULATED;
	return type == XPORT_OP_RECV || (type != XPORT_OP_SEND && info->put == XPORT_EMULATED);
}

/* `info`: the target made no progress; NULL: it did. */
static void ended_as(struct h *h, const struct xport_rkey_info *info, struct h_op *const *op, int status)
{
	for (int i = 0; i < ALL; i++) {
		bool well = op[i]->c.status == XPORT_OK && !(info && not_done(info, op[i]->type));

		H_CHECK(well || op[i]->c.status == status, "operation %d of type %d ended as %s, not %s", i,
		        op[i]->type, xport_status_name(op[i]->c.status), xport_status_name(status));
	}
}

/* This side closes at once while all is in flight: each completes, with CLOSED unless it was done before. */
static void close_in_flight(struct h *h)
{
	struct xport_rkey_info info = {.size = sizeof(info)};
	struct h_op *op[ALL];
	struct h_mem l;
	struct h_rkey r;
	uint64_t word;
	size_t len;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	len = h->info.eager_max + 100000;
	h_sync(h);
	post_all(h, &l, &r, h_buf(h, len), len, &word, op);
	H_OK(xport_rkey_query(r.k, &info));
	if (h->param)
		xport_ep_destroy(h->ep[0]);
	else
		xport_ep_close(h->ep[0], 0);
	h->ep[0] = h->param ? NULL : h->ep[0];
	h_settle(h);
	ended_as(h, &info, op, XPORT_ERR_CLOSED);
	H_EQ(0, h->nqueue);
	h_run_for(h, 100);
	h_tell_u64(h, 0, 1);
}

static void idle_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h->idle = true; /* from here on: nothing is served while it waits */
	h_sync(h);
	h_hear_u64(h, 1);
	h->idle = false;
	H_EQ(XPORT_ERR_PEER_CLOSED, H_EVENT(XPORT_EVENT_CLOSED).status);
}

/* The peer closes at once: PEER_CLOSED for what is in flight, and one event. */
static void closed_by_peer(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	struct h_op *op, *all[ALL];
	struct xport_completion c;
	uint64_t word;
	size_t len;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	len = h->info.eager_max + 100000;
	op = h_recv(h, h->ep[0], &word, 8, 78, UINT64_MAX);
	post_all(h, &l, &r, h_buf(h, len), len, &word, all);
	h_sync(h);
	H_DONE_AS(XPORT_ERR_PEER_CLOSED, op);
	h_settle(h);
	ended_as(h, NULL, all, XPORT_ERR_PEER_CLOSED);
	c = H_EVENT(XPORT_EVENT_CLOSED);
	H_TRUE(c.ep == h->ep[0]);
	h_run_for(h, 100);
	H_EQ(0, h->nqueue);
	h_sync(h);
}

static void closing_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h->idle = true;
	h_sync(h);
	xport_ep_close(h->ep[1], 0);
	h->idle = false;
	h_sync(h);
}

/* An instance that is closed with all in flight and unreaped takes everything along. */
static void close_instance(struct h *h)
{
	struct h_op *all[ALL];
	struct h_mem l;
	struct h_rkey r;
	uint64_t word;
	size_t len;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	len = h->info.eager_max + 100000;
	h_sync(h);
	post_all(h, &l, &r, h_buf(h, len), len, &word, all);
	xport_close(h->x);
	h_forget(h);
	h_tell_u64(h, 0, 1);
}

/* The next completion.  After AGAIN was answered one wait may come back without any, to say that there is room. */
static void reap_one(struct h *h, int *again)
{
	struct xport_completion c;
	int n = xport_wait(h->x, &c, 1, h_ms(10000));

	if (n == 0 && *again > 0) {
		*again = 0;
		n = xport_wait(h->x, &c, 1, h_ms(10000));
	}
	H_EQ(1, n);
}

/* Unreaped completions count: the queue is full until they are taken, then room is there again. */
static void unreaped_count(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct h_mem l;
	struct h_rkey r;
	struct xport_opt o = {.size = sizeof(o)};
	int posted = 0, again = 0, s;

	a.queue_depth = 64;
	h_mesh(h, &a);
	H_EQ(64, h->info.queue_depth);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	o.mr = l.mr;
	for (int round = 0; round < 1000; round++) {
		s = xport_put(h->ep[0], l.p, 8, r.k, r.offset, &o);
		posted += s == XPORT_OK;
		again += s != XPORT_OK;
		if (s != XPORT_OK)
			H_STATUS(XPORT_ERR_AGAIN, s);
		H_EQ(0, xport_poll(h->x, NULL, 0));
	}
	H_CHECK(posted >= 1 && posted <= 64, "%d accepted with a queue of 64 and none reaped", posted);
	for (int taken = 0; taken < posted; taken++)
		reap_one(h, &again);
	H_OK(xport_put(h->ep[0], l.p, 8, r.k, r.offset, &o));
	reap_one(h, &again);
	h_sync(h);
}

/* The proof of a put waits for the last credit to come back: with nothing else that waits for one. */
enum { CREDITS_TRIED = 40 };

static void asleep_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	for (int n = 1; n <= CREDITS_TRIED; n++) {
		h_sync(h);
		h->idle = true;
		h_hear_u64(h, 1);
		h->idle = false;
	}
	h_sync(h);
}

static void proof_without_credit(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	for (int i = 0; i < MANY; i++)
		h_put(h, h->ep[0], H_AT(l, 0, 8), &r, 0, 0);
	h_settle(h);
	for (int n = 1; n <= CREDITS_TRIED; n++) {
		struct h_op *op;

		h_sync(h);
		for (int i = 0; i < n; i++) {
			h_send(h, h->ep[0], l.p, 8, 1);
			h_progress(h); /* what follows goes into a frame of its own */
		}
		op = h_put(h, h->ep[0], H_AT(l, 0, 8), &r, 0, 0);
		for (int i = 0; i < 10; i++)
			h_progress(h);
		h_tell_u64(h, 0, 1);
		H_DONE(op);
	}
	h_settle(h);
	h_sync(h);
}

static const struct h_param close_or_destroy[] = {{"close", 0}, {"destroy", 1}, {NULL, 0}};

const struct h_scenario cases_p01[] = {
	{.name = "P1_every_kind_once", .role = {receive_all, every_kind}, .flags = H_KINDS},
	{.name = "P1_quiet_has_none", .role = {quiet_target, quiet_none}},
	{.name = "P1_refused_has_none", .role = {target, refused_none}},
	{.name = "P1_completion_says_what", .role = {says_what_target, says_what}, .flags = H_TARGET},
	{.name = "P1_reap_one_at_a_time", .role = {target, reap_slowly}},
	{.name = "P1_in_flight_at_own",
         .role = {idle_target, close_in_flight},
         .params = close_or_destroy,
         .flags = H_TARGET},
	{.name = "P1_in_flight_at_peers_close", .role = {closing_target, closed_by_peer}, .flags = H_TARGET},
	{.name = "P1_in_flight_at_instance_close", .role = {idle_target, close_instance}, .flags = H_TARGET},
	{.name = "P1_unreaped_count_as_in_flight", .role = {target, unreaped_count}},
	{.name = "P1_proof_without_credit", .role = {asleep_target, proof_without_credit}},
	{.name = NULL},
};
