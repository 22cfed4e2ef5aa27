/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_p14.c - P14, isolation: trouble with one peer does not affect another. */
#include "harness.h"

enum { LEN = 65536 };

enum trouble { KILLED, STOPPED, DEAF, CLOSING, FULL };

/* Role 0 talks to a healthy peer (1) and to one in trouble (2), and the healthy one must not notice. */
static void healthy(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 0, &m);
	while (!h_heard(h, 0))
		h_breathe(h);
	h_hear_u64(h, 0);
	H_GUARDS(m);
	H_TRUE(!h_count_log(h, "lost") || h->param == KILLED || h->param == STOPPED);
}

static void troubled(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 0, &m);
	h_sync_with(h, 0);
	if (h->param == CLOSING)
		xport_ep_close(h->ep[0], 0);
	h->idle = true;
	h_hear_u64(h, 0);
	h->idle = false;
}

/* Work with the healthy one for `ms`; returns the longest that one round took. */
static int64_t work(struct h *h, struct h_mem *l, struct h_rkey *r, int ms, int *rounds)
{
	int64_t end = h_now_us() + ms * 1000, t, worst = 0;
	struct h_op *op[3];
	uint64_t old;

	do {
		t = h_now_us();
		op[0] = h_put(h, h->ep[1], H_AT(*l, 0, 4096), r, 0, 0);
		op[1] = h_get(h, h->ep[1], H_AT(*l, 8192, 4096), r, 0);
		op[2] = h_atomic(h, h->ep[1], XPORT_ATOMIC_ADD, 8, 1, 0, &old, r, 16384);
		for (int i = 0; i < 3; i++)
			H_DONE(op[i]);
		H_DONE(h_flush(h, h->ep[1]));
		t = h_now_us() - t;
		worst = t > worst ? t : worst;
		++*rounds;
	} while (h_now_us() < end);
	return worst;
}

/* Leaves a heap of operations with the one in trouble. */
static void burden(struct h *h, struct h_mem *l, struct h_rkey *r)
{
	struct xport_opt o = {.size = sizeof(o)};
	int s, n = h->param == FULL ? 100000 : 30;

	for (int i = 0; i < n; i++) {
		o.context = h_op(h, i % 3 ? XPORT_OP_PUT : XPORT_OP_SEND);
		s = i % 3 ? xport_put(h->ep[2], l->p, 4096, r->k, r->offset, &o)
		          : xport_send(h->ep[2], l->p, LEN, 1, &o);
		if (s == XPORT_OK)
			continue;
		h_op_drop(h, o.context);
		H_STATUS(XPORT_ERR_AGAIN, s);
		if (h->param == FULL)
			break;
	}
}

static void between(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct h_mem l;
	struct h_rkey good, bad;
	int before = 0, after = 0;
	int64_t worst;

	a.peer_timeout_ms = h_ms(2000); /* who wedges with the stopped one does so until then */
	h_mesh(h, &a);
	l = h_mem_local(h, LEN, 0);
	good = h_import(h, 1);
	bad = h_import(h, 2);
	h_sync_with(h, 2);
	work(h, &l, &good, 150, &before);
	if (h->param != CLOSING)
		burden(h, &l, &bad);
	if (h->param == KILLED)
		h_kill(h, 2, SIGKILL);
	else if (h->param == STOPPED)
		h_stop(h, 2);
	worst = work(h, &l, &good, h->param == STOPPED ? h_ms(3000) : 300, &after);
	h_record(h, "rounds_before", (uint64_t)before);
	h_record(h, "rounds_after", (uint64_t)after);
	h_record(h, "worst_us", (uint64_t)worst);
	H_CHECK(worst < (int64_t)h_ms(1000) * 1000, "a round with the healthy peer took %" PRId64 " us", worst);
	if (h->param == STOPPED)
		h_cont(h, 2);
	if (h->param == KILLED || h->param == STOPPED)
		H_TRUE(H_EVENT(XPORT_EVENT_LOST).ep == h->ep[2]);
	h_tell_u64(h, 1, 1);
	if (h->param != KILLED)
		h_tell_u64(h, 2, 1);
	if (h->param != CLOSING)
		xport_ep_destroy(h->ep[2]);
	h_settle(h);
}

static const struct h_param troubles[] = {{"killed", KILLED},   {"stopped", STOPPED}, {"deaf", DEAF},
                                          {"closing", CLOSING}, {"full", FULL},       {NULL, 0}};

/* One instance closed with everything in flight does not disturb another in the same process. */
static void two_instances(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	xport *second = NULL;
	xport_ep *ep = NULL;
	struct xport_attr a = h_attr(h);
	char address[80];

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	h_hear(h, 0, address, sizeof(address));
	for (int i = 0; i < 5; i++) {
		struct xport_opt o = {.size = sizeof(o)};

		H_OK(xport_open(&a, &second));
		H_OK(xport_connect(second, address, NULL, h_ms(h->limit_ms), &ep));
		for (int k = 0; k < 10; k++) {
			H_OK(xport_send(ep, l.p, LEN, 1, &o));
			h_put(h, h->ep[0], H_AT(l, 0, LEN), &r, 0, 0);
		}
		xport_close(second);
		h_settle(h);
		H_DONE(h_flush(h, h->ep[0]));
	}
	h_tell_u64(h, 0, 1);
}

static void two_target(struct h *h)
{
	struct h_mem m;
	xport_ep *ep;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_tell(h, 1, h->address, sizeof(h->address));
	while (!h_heard(h, 1))
		if (xport_accept(h->listener, 5, &ep) != XPORT_OK)
			h_progress(h);
	h_hear_u64(h, 1);
	H_GUARDS(m);
}

const struct h_scenario cases_p14[] = {
	{.name = "P14_one_in_trouble",
         .role = {between, healthy, troubled},
         .params = troubles,
         .flags = H_TARGET | H_KILLS},
	{.name = "P14_two_instances", .role = {two_target, two_instances}, .flags = H_TARGET},
	{.name = NULL},
};
