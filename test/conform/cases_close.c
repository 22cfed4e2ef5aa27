/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_close.c - P1, exactly once: closing in good order, at both ends at once, in vain. */
#include "harness.h"

enum { BOTH_LEN = 1100 };

/* All that was posted before a graceful close arrives; the peer sees CLOSED after it, once. */
static void close_after_work(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	static const size_t len = 200000;

	h_mesh(h, NULL);
	l = h_mem_local(h, len, 0);
	h_fill(l.p, len, 1);
	r = h_import(h, 0);
	for (size_t i = 0; i < 20; i++)
		h_put(h, h->ep[0], H_AT(l, i * 10000, 10000), &r, i * 10000, 0);
	h_send(h, h->ep[0], l.p, len, 1);
	for (int i = 0; i < 100; i++)
		h_send(h, h->ep[0], l.p, 64, 2);
	H_OK(xport_ep_close(h->ep[0], h_ms(10000)));
	h_settle(h);
	H_STATUS(XPORT_ERR_CLOSED, xport_ep_close(h->ep[0], 0));
	H_STATUS(XPORT_ERR_CLOSED, xport_ep_close(h->ep[0], 1000));
	h_sync(h);
}

static void work_then_closed(struct h *h)
{
	struct h_mem m;
	struct xport_completion c;
	uint8_t *buf = h_buf(h, 200000);
	struct h_op *op[101];

	h_mesh(h, NULL);
	m = h_mem_target(h, 200000, 0, H_ALL);
	for (int i = 0; i < 101; i++)
		op[i] = h_recv(h, h->ep[1], i ? buf + 64 * i : buf, i ? 64 : 200000, i ? 2 : 1, UINT64_MAX);
	h_share(h, 1, &m);
	while (!h_event_now(h, XPORT_EVENT_CLOSED, &c))
		h_breathe(h);
	H_EQ(XPORT_ERR_PEER_CLOSED, c.status);
	for (int i = 0; i < 101; i++) {
		H_CHECK(op[i]->done, "receive %d had not completed when CLOSED came", i);
		H_EQ(XPORT_OK, op[i]->c.status);
	}
	H_FILLED(m.p, 200000, 1);
	H_STATUS(XPORT_ERR_PEER_CLOSED, xport_ep_close(h->ep[1], 1000));
	h_sync(h);
}

/* After closing: every call says CLOSED; at the other end PEER_CLOSED. */
static void calls_after_close(struct h *h)
{
	struct h_mem m, l;
	struct h_rkey r;
	struct h_key key;
	struct xport_opt o = {.size = sizeof(o)};
	struct xport_atomic_args a = {.size = sizeof(a), .width = 8};
	struct xport_ep_info info = {.size = sizeof(info)};
	int peer = !h->role, want = h->role ? XPORT_ERR_CLOSED : XPORT_ERR_PEER_CLOSED;
	xport_rkey *k = NULL;
	xport_ep *ep;

	h_mesh(h, NULL);
	ep = h->ep[peer];
	m = h_mem_target(h, 4096, 0, H_ALL);
	l = h_mem_local(h, 4096, 0);
	key = h_key_pack(h, &m);
	h_tell(h, peer, &key, sizeof(key));
	h_hear(h, peer, &key, sizeof(key));
	r = h_unpack(h, ep, &key);
	h_sync(h);
	if (h->role == 1)
		H_OK(xport_ep_close(ep, h_ms(h->limit_ms)));
	else
		H_TRUE(H_EVENT(XPORT_EVENT_CLOSED).ep == ep);
	H_STATUS(want, xport_put(ep, l.p, 8, r.k, r.offset, &o));
	H_STATUS(want, xport_get(ep, l.p, 8, r.k, r.offset, &o));
	H_STATUS(want, xport_put_notify(ep, l.p, 8, r.k, r.offset, &o));
	H_STATUS(want, xport_atomic(ep, &a, r.k, r.offset, &o));
	H_STATUS(want, xport_send(ep, l.p, 8, 1, &o));
	H_STATUS(want, xport_flush(ep, &o));
	H_STATUS(want, xport_fence(ep));
	H_STATUS(want, xport_rkey_unpack(ep, key.bytes, key.len, &k));
	o.source = ep;
	H_STATUS(want, xport_recv(h->x, l.p, 8, 1, 0, &o));
	H_OK(xport_ep_query(ep, &info));
	H_EQ(XPORT_EP_CLOSED, info.state);
	H_EQ(want, info.reason);
	h_run_for(h, 20);
	H_EQ(0, h->nqueue);
	h_sync(h);
}

/* How many messages are there to be received. */
static int arrived(struct h *h)
{
	static uint8_t buf[BOTH_LEN];
	struct h_op *op;
	int n = -1;

	do {
		op = h_recv(h, NULL, buf, sizeof(buf), 1, UINT64_MAX);
		while (h_progress(h) > 0)
			;
		n++;
	} while (op->done);
	H_OK(xport_cancel(h->x, op->id));
	H_DONE_AS(XPORT_ERR_CANCELED, op);
	return n;
}

/*
 * Both close at once, with something on its way to the other, sometimes more than it takes before it has acknowledged some.  Whose
 * close is XPORT_OK knows that all has been taken.
 */
static void both_close(struct h *h)
{
	static const uint8_t buf[BOTH_LEN];
	int peer = !h->role, n, s, theirs;

	for (int i = 0; i < 20; i++) {
		n = i % 10 == 0 ? 0 : i < 10 ? i : 240 + 2 * i;
		if (!h->x)
			h_open(h, NULL);
		h_pair(h, peer);
		h_sync(h);
		for (int k = 0; k < n; k++)
			h_send(h, h->ep[peer], buf, sizeof(buf), 1);
		h->idle = true; /* else it may end by what the other, closing already, says */
		h_sync(h);
		s = xport_ep_close(h->ep[peer], h_ms(h->limit_ms));
		H_CHECK(s == XPORT_OK || (n > 0 && s == XPORT_ERR_PEER_CLOSED), "%s", xport_status_name(s));
		h_tell_u64(h, peer, (uint64_t)s);
		theirs = (int)h_hear_u64(h, peer);
		H_CHECK(theirs != XPORT_OK || arrived(h) == n, "the peer was told that all %d had been taken", n);
		xport_ep_destroy(h->ep[peer]);
		xport_ep_destroy(NULL);
		h->idle = false;
		h_sync(h);
		h_settle(h);
		h->nqueue = 0;
	}
}

/* The peer closes at once: whether it had taken what was sent, and had completed, is what closing returns. */
static void close_at_once(struct h *h)
{
	uint64_t word[10];

	h_mesh(h, NULL);
	h->idle = true;
	h_sync(h);
	if (h->param)
		for (int i = 0; i < 10; i++)
			H_DONE(h_recv(h, h->ep[1], word + i, sizeof(*word), 1, UINT64_MAX));
	h_sync(h);
	h_sync(h);
	H_OK(xport_ep_close(h->ep[1], 0));
	h_sync(h);
	h_sync(h);
}

static void close_behind(struct h *h)
{
	uint64_t word = 1;

	h_mesh(h, NULL);
	h_sync(h);
	for (int i = 0; i < 10; i++)
		h_send(h, h->ep[0], &word, sizeof(word), 1);
	h_settle(h);
	h_sync(h);
	h->idle = true; /* closing is to find it out by itself */
	h_sync(h);
	h_sync(h);
	H_STATUS(h->param ? XPORT_OK : XPORT_ERR_PEER_CLOSED, xport_ep_close(h->ep[0], h_ms(h->limit_ms)));
	h_sync(h);
}

static const struct h_param taken_or_not[] = {{"taken", 1}, {"unread", 0}, {NULL, 0}};

/* A close whose work cannot end gives up in time: TIMEOUT, the operations CLOSED, the endpoint closed all the same. */
static void close_in_vain(struct h *h)
{
	struct h_op *op;
	uint8_t *buf = h_buf(h, 1 << 20);
	int64_t t, starved;

	h_mesh(h, NULL);
	op = h_send(h, h->ep[0], buf, 1 << 20, 1);
	h_sync(h);
	starved = h_starved_us();
	t = h_now_us();
	H_STATUS(XPORT_ERR_TIMEOUT, xport_ep_close(h->ep[0], 300));
	t = h_now_us() - t;
	starved = h_starved_us() - starved;
	H_CHECK(t > 290000 && t - starved < 300000 + (int64_t)h_ms(700) * 1000, "took %" PRId64 " us", t);
	H_DONE_AS(XPORT_ERR_CLOSED, op);
	H_STATUS(XPORT_ERR_CLOSED, xport_ep_close(h->ep[0], 300));
	h_sync(h);
}

static void never_receives(struct h *h)
{
	h_mesh(h, NULL);
	h_sync(h);
	H_EQ(XPORT_ERR_PEER_CLOSED, H_EVENT(XPORT_EVENT_CLOSED).status);
	h_sync(h);
}

/* What nobody reaped, small sends that were complete at once, is dropped and does not keep the instance. */
static void close_unreaped(struct h *h)
{
	uint64_t word = 1;

	h_mesh(h, NULL);
	h_sync(h);
	for (uint64_t i = 0; i < 40; i++)
		H_OK(xport_send(h->ep[0], &word, sizeof(word), i, NULL));
	xport_close(h->x);
	h_forget(h);
}

static void sees_it_close(struct h *h)
{
	h_mesh(h, NULL);
	h_sync(h);
	H_EQ(XPORT_ERR_PEER_CLOSED, H_EVENT(XPORT_EVENT_CLOSED).status);
}

const struct h_scenario cases_close[] = {
	{.name = "P1_graceful_close_delivers_all", .role = {work_then_closed, close_after_work}, .flags = H_TARGET},
	{.name = "P1_calls_after_close", .role = {calls_after_close, calls_after_close}, .flags = H_TARGET},
	{.name = "P1_both_close", .role = {both_close, both_close}},
	{.name = "P1_close_behind_the_peer", .role = {close_at_once, close_behind}, .params = taken_or_not},
	{.name = "P1_close_unreaped", .role = {sees_it_close, close_unreaped}},
	{.name = "P1_close_in_vain", .role = {never_receives, close_in_vain}},
	{.name = NULL},
};
