/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_close_start.c - P1, exactly once: xport_ep_close_start ends in one event, behind all completions. */
#include "harness.h"

enum { LEN = 200000, MESSAGES = 100, CLIENTS = 3 };

/* ---- in good order ---- */

static void start_after_work(struct h *h)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	struct xport_completion c;
	struct h_op *op[MESSAGES + 1];
	struct h_mem l;
	struct h_rkey r;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	h_fill(l.p, LEN, 1);
	r = h_import(h, 0);
	h_put(h, h->ep[0], H_AT(l, 0, LEN), &r, 0, 0);
	op[0] = h_send(h, h->ep[0], l.p, LEN, 1);
	for (int i = 1; i <= MESSAGES; i++)
		op[i] = h_send(h, h->ep[0], l.p, 64, 2);
	H_OK(xport_ep_close_start(h->ep[0], h_ms(h->limit_ms)));
	H_STATUS(XPORT_ERR_CLOSED, xport_ep_close_start(h->ep[0], 0));
	H_STATUS(XPORT_ERR_CLOSED, xport_ep_close(h->ep[0], 0));
	H_STATUS(XPORT_ERR_CLOSED, xport_send(h->ep[0], l.p, 8, 1, NULL));
	H_OK(xport_ep_query(h->ep[0], &info));
	H_EQ(XPORT_EP_CLOSED, info.state);
	c = H_EVENT(XPORT_EVENT_CLOSED);
	H_EQ(XPORT_OK, c.status);
	H_TRUE(c.ep == h->ep[0]);
	for (int i = 0; i <= MESSAGES; i++) {
		H_CHECK(op[i]->done, "send %d had not completed when CLOSED came", i);
		H_EQ(XPORT_OK, op[i]->c.status);
	}
	H_OK(xport_ep_query(h->ep[0], &info));
	H_EQ(XPORT_ERR_CLOSED, info.reason);
	H_STATUS(XPORT_ERR_CLOSED, xport_ep_close_start(h->ep[0], 0));
	h_run_for(h, 20);
	H_EQ(0, h->nqueue);
	h_sync(h);
}

static void work_arrives(struct h *h)
{
	uint8_t *buf = h_buf(h, LEN);
	struct h_op *op[MESSAGES + 1];
	struct xport_completion c;
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	for (int i = 0; i <= MESSAGES; i++)
		op[i] = h_recv(h, h->ep[1], i ? buf + 64 * i : buf, i ? 64 : LEN, i ? 2 : 1, UINT64_MAX);
	h_share(h, 1, &m);
	while (!h_event_now(h, XPORT_EVENT_CLOSED, &c))
		h_breathe(h);
	H_EQ(XPORT_ERR_PEER_CLOSED, c.status);
	for (int i = 0; i <= MESSAGES; i++)
		H_CHECK(op[i]->done && op[i]->c.status == XPORT_OK, "receive %d had not completed when CLOSED came", i);
	H_FILLED(m.p, LEN, 1);
	H_STATUS(XPORT_ERR_PEER_CLOSED, xport_ep_close_start(h->ep[1], 1000));
	h_sync(h);
}

/* ---- several at once ---- */

/* The messages of each client wait for a receive that comes late: closing one after the other would wait three times. */
static void start_several(struct h *h)
{
	uint8_t *buf = h_buf(h, LEN);
	bool ended[H_ROLES] = {false};

	h_mesh(h, NULL);
	h_fill(buf, LEN, 7);
	for (int i = 1; i <= CLIENTS; i++)
		h_send(h, h->ep[i], buf, LEN, 1);
	for (int i = 1; i <= CLIENTS; i++)
		H_OK(xport_ep_close_start(h->ep[i], -1));
	h_sync(h); /* now they post their receives */
	for (int n = 0; n < CLIENTS; n++) {
		struct xport_completion c = H_EVENT(XPORT_EVENT_CLOSED);

		H_EQ(XPORT_OK, c.status);
		for (int i = 1; i <= CLIENTS; i++)
			if (c.ep == h->ep[i]) {
				H_CHECK(!ended[i], "a second event of one endpoint");
				ended[i] = true;
			}
	}
	H_TRUE(ended[1] && ended[2] && ended[3]);
	h_settle(h);
	h_sync(h);
}

static void takes_late(struct h *h)
{
	uint8_t *buf = h_buf(h, LEN);

	h_mesh(h, NULL);
	h_sync(h);
	H_DONE(h_recv(h, h->ep[0], buf, LEN, 1, UINT64_MAX));
	H_FILLED(buf, LEN, 7);
	while (true) { /* other clients close their endpoints to this one as well */
		struct xport_completion c = H_EVENT(XPORT_EVENT_CLOSED);

		H_EQ(XPORT_ERR_PEER_CLOSED, c.status);
		if (c.ep == h->ep[0])
			break;
	}
	h_sync(h);
}

/* ---- both ends at once ---- */

static void both_start(struct h *h)
{
	static const uint8_t buf[1100];
	struct xport_completion c;
	int peer = !h->role;

	for (int i = 0; i < 10; i++) {
		if (!h->x)
			h_open(h, NULL);
		h_pair(h, peer);
		h_sync(h);
		for (int k = 0; k < 30 * i; k++)
			h_send(h, h->ep[peer], buf, sizeof(buf), 1);
		h->idle = true;
		h_sync(h);
		H_OK(xport_ep_close_start(h->ep[peer], h_ms(h->limit_ms)));
		h->idle = false;
		c = H_EVENT(XPORT_EVENT_CLOSED);
		H_TRUE(c.ep == h->ep[peer]);
		H_CHECK(c.status == XPORT_OK || (i > 0 && c.status == XPORT_ERR_PEER_CLOSED), "%s",
		        xport_status_name(c.status));
		xport_ep_destroy(h->ep[peer]);
		h_settle(h);
		h_sync(h);
		H_EQ(0, h->nqueue);
	}
}

/* ---- without success ---- */

/* The peer takes nothing: the time limit ends it, also of who sleeps on the descriptor. 0 as a limit does so at once. */
static void start_in_vain(struct h *h)
{
	uint8_t *buf = h_buf(h, 1 << 20);
	struct xport_completion c;
	struct h_op *op;
	int64_t t;

	h_mesh(h, NULL);
	op = h_send(h, h->ep[0], buf, 1 << 20, 1);
	h_sync(h);
	t = h_now_us();
	H_OK(xport_ep_close_start(h->ep[0], (int)h->param));
	c = H_EVENT(XPORT_EVENT_CLOSED);
	t = h_now_us() - t;
	H_EQ(h->param ? XPORT_ERR_TIMEOUT : XPORT_OK, c.status);
	H_CHECK(t >= (int64_t)h->param * 1000 - 10000, "took %" PRId64 " us", t);
	H_CHECK(op->done, "CLOSED came before the completion of the send");
	H_EQ(XPORT_ERR_CLOSED, op->c.status);
	h_sync(h);
}

static void takes_nothing(struct h *h)
{
	h_mesh(h, NULL);
	h_sync(h);
	H_EQ(XPORT_ERR_PEER_CLOSED, H_EVENT(XPORT_EVENT_CLOSED).status);
	h_sync(h);
}

/* The application has no patience: no event comes. */
static void start_and_destroy(struct h *h)
{
	uint8_t *buf = h_buf(h, 1 << 20);
	struct h_op *op;

	h_mesh(h, NULL);
	op = h_send(h, h->ep[0], buf, 1 << 20, 1);
	h_sync(h);
	H_OK(xport_ep_close_start(h->ep[0], -1));
	xport_ep_destroy(h->ep[0]);
	H_DONE_AS(XPORT_ERR_CLOSED, op);
	h_run_for(h, 20);
	H_EQ(0, h->nqueue);
	h_sync(h);
}

/* The peer dies in the middle of it. */
static void start_and_lose(struct h *h)
{
	uint8_t *buf = h_buf(h, 1 << 20);
	struct xport_completion c;
	struct h_op *op;

	h_mesh(h, NULL);
	op = h_send(h, h->ep[0], buf, 1 << 20, 1);
	H_OK(xport_ep_close_start(h->ep[0], -1));
	h_sync_with(h, 0);
	h_kill(h, 0, SIGKILL);
	c = H_EVENT(XPORT_EVENT_LOST);
	H_TRUE(c.ep == h->ep[0]);
	H_EQ(XPORT_ERR_PEER_LOST, c.status);
	H_TRUE(op->done);
	h_run_for(h, 20);
	H_EQ(0, h->nqueue);
}

static void is_killed(struct h *h)
{
	h_mesh(h, NULL);
	h_sync_with(h, 1);
	for (;;)
		h_breathe(h);
}

/* ---- bad input ---- */

static void start_wrongly(struct h *h)
{
	xport_ep *ep = NULL;

	h_mesh(h, NULL);
	H_STATUS(XPORT_ERR_INVALID, xport_ep_close_start(NULL, 0));
	H_STATUS(XPORT_ERR_INVALID, xport_ep_close_start(h->ep[0], -2));
	h_listen(h);
	H_OK(xport_connect(h->x, h->address, NULL, 0, &ep));
	H_STATUS(XPORT_ERR_INVALID, xport_ep_close_start(ep, 0));
	xport_ep_destroy(ep);
	H_OK(xport_ep_close_start(h->ep[0], h_ms(h->limit_ms)));
	H_EQ(XPORT_OK, H_EVENT(XPORT_EVENT_CLOSED).status);
	h_sync(h);
}

static void sees_one_close(struct h *h)
{
	h_mesh(h, NULL);
	H_EQ(XPORT_ERR_PEER_CLOSED, H_EVENT(XPORT_EVENT_CLOSED).status);
	h_sync(h);
}

static const struct h_param limits[] = {{"soon", 300}, {"at_once", 0}, {NULL, 0}};

const struct h_scenario cases_close_start[] = {
	{.name = "P1_close_start_delivers_all", .role = {work_arrives, start_after_work}, .flags = H_TARGET},
	{.name = "P1_close_start_of_several", .role = {start_several, takes_late, takes_late, takes_late}},
	{.name = "P1_close_start_at_both_ends", .role = {both_start, both_start}},
	{.name = "P1_close_start_in_vain", .role = {takes_nothing, start_in_vain}, .params = limits},
	{.name = "P1_close_start_cut_short", .role = {takes_nothing, start_and_destroy}},
	{.name = "P1_close_start_of_a_lost_peer", .role = {is_killed, start_and_lose}, .flags = H_KILLS},
	{.name = "P1_close_start_wrongly", .role = {sees_one_close, start_wrongly}, .flags = H_ONCE},
	{.name = NULL},
};
