/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_identity.c - P1: what tells which endpoint, and which peer, a completion belongs to, and the last one of an endpoint. */
#include <poll.h>

#include "harness.h"

enum { LEN = 100000, MESSAGES = 100, TAG = 3 };

/* ---- the last event ---- */

/* Completions of all kinds wait to be reaped when the endpoint is destroyed. They are reaped one at a time. */
static void destroy_with_work(struct h *h)
{
	struct xport_counters n = {.size = sizeof(n)};
	struct xport_completion c = {0};
	uint8_t *buf = h_buf(h, LEN);
	uint64_t peer;
	int reaped = 0;

	h_mesh(h, NULL);
	peer = xport_ep_peer(h->ep[1]);
	H_OK(xport_ep_set_context(h->ep[1], buf));
	for (int i = 0; i < MESSAGES; i++)
		H_OK(xport_recv(h->x, buf, 8, TAG, UINT64_MAX, NULL));
	for (int i = 0; i < MESSAGES; i++)
		H_OK(xport_send(h->ep[1], buf, 8, TAG, NULL));
	H_OK(xport_send(h->ep[1], buf, LEN, TAG, NULL)); /* nobody receives it */
	h_tell_u64(h, 1, 1);
	while (n.receives < MESSAGES) {
		H_EQ(0, xport_poll(h->x, NULL, 0));
		H_OK(xport_stats(h->x, h->ep[1], &n));
	}
	H_OK(xport_ep_destroy_start(h->ep[1]));
	do {
		int got = xport_wait(h->x, &c, 1, h_ms(h->limit_ms));

		H_CHECK(got == 1, "xport_wait gave %d after %d completions", got, reaped);
		H_EQ(peer, c.peer);
		reaped++;
	} while (c.type != XPORT_EVENT_DESTROYED);
	H_EQ(2 * MESSAGES + 2, reaped);
	H_TRUE(c.ep == h->ep[1] && c.context == buf && c.status == XPORT_OK);
	h->ep[1] = NULL;
	h_run_for(h, 20);
	H_EQ(0, h->nqueue);
	h_sync(h);
}

static void sends_some(struct h *h)
{
	uint8_t *buf = h_buf(h, 8);

	h_mesh(h, NULL);
	h_hear_u64(h, 0);
	for (int i = 0; i < MESSAGES; i++)
		H_DONE(h_send(h, h->ep[0], buf, 8, TAG));
	H_EVENT(XPORT_EVENT_CLOSED);
	h_sync(h);
}

/* Nothing waits any more: the event wakes who sleeps, in the call and on the descriptor. */
static void destroy_idle(struct h *h)
{
	struct pollfd p = {.events = POLLIN};
	struct xport_completion c;
	int got = 0;

	h_mesh(h, NULL);
	if (h->param == 1)
		H_OK(xport_ep_close(h->ep[1], h_ms(h->limit_ms)));
	if (h->param == 2) {
		h_tell_u64(h, 1, 1);
		H_EQ(XPORT_ERR_PEER_CLOSED, H_EVENT(XPORT_EVENT_CLOSED).status);
	}
	p.fd = xport_fd(h->x);
	for (int i = 0; i < 2 && h->param == 1; i++)
		H_EQ(0, xport_poll(h->x, &c, 1));
	H_OK(xport_ep_destroy_start(h->ep[1]));
	while (h->param == 1 && got == 0) {
		H_CHECK(poll(&p, 1, h_ms(h->limit_ms)) == 1, "the descriptor did not become readable");
		got = xport_poll(h->x, &c, 1);
	}
	if (got == 0)
		got = xport_wait(h->x, &c, 1, h_ms(h->limit_ms));
	H_EQ(1, got);
	H_TRUE(c.type == XPORT_EVENT_DESTROYED && c.ep == h->ep[1] && c.status == XPORT_OK);
	h->ep[1] = NULL;
	h_run_for(h, 20);
	H_EQ(0, h->nqueue);
	h_sync(h);
}

static void is_closed(struct h *h)
{
	h_mesh(h, NULL);
	if (h->param == 2) {
		h_hear_u64(h, 0);
		H_OK(xport_ep_close(h->ep[0], h_ms(h->limit_ms)));
	} else {
		H_EQ(XPORT_ERR_PEER_CLOSED, H_EVENT(XPORT_EVENT_CLOSED).status);
	}
	h_sync(h);
}

/* The end of a close is queued; and a connection that was begun and never came about. */
static void destroy_early(struct h *h)
{
	struct xport_completion c = {0};
	char address[80];
	xport_ep *ep = NULL;

	H_STATUS(XPORT_ERR_INVALID, xport_ep_destroy_start(NULL));
	h_open(h, NULL);
	h_hear(h, 1, address, sizeof(address));
	H_EQ(0, xport_ep_peer(NULL));
	H_OK(xport_connect(h->x, address, NULL, 0, &ep));
	H_EQ(0, xport_ep_peer(ep));
	H_OK(xport_ep_destroy_start(ep));
	H_TRUE(H_EVENT(XPORT_EVENT_DESTROYED).ep == ep);
	ep = h_connect(h, address);
	H_OK(xport_ep_close_start(ep, h_ms(h->limit_ms)));
	while (c.type != XPORT_EVENT_CLOSED)
		H_CHECK(xport_wait(h->x, &c, 1, h_ms(h->limit_ms)) == 1, "no CLOSED");
	H_OK(xport_ep_destroy_start(ep));
	H_TRUE(H_EVENT(XPORT_EVENT_DESTROYED).ep == ep);
	H_EQ(0, h->nqueue);
	h_tell_u64(h, 1, 1);
	h_sync(h);
}

static void listens(struct h *h)
{
	h_open(h, NULL);
	h_listen(h);
	h_tell(h, 0, h->address, sizeof(h->address));
	h_hear_u64(h, 0);
	h_sync(h);
}

/* A key on the endpoint does not delay the event, and is freed after it. */
static void destroy_with_key(struct h *h)
{
	struct h_rkey key;

	h_mesh(h, NULL);
	key = h_import(h, 1);
	H_OK(xport_ep_destroy_start(h->ep[1]));
	H_TRUE(H_EVENT(XPORT_EVENT_DESTROYED).ep == h->ep[1]);
	h->ep[1] = NULL;
	h_run_for(h, 20);
	xport_rkey_destroy(key.k);
	H_EQ(0, h->nqueue);
	h_sync(h);
}

static void gives_key(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 0, &m);
	H_EVENT(XPORT_EVENT_CLOSED);
	h_sync(h);
	h_mem_free(h, &m);
}

static void *close_in_thread(void *ep)
{
	return (void *)(intptr_t)xport_ep_close(ep, -1);
}

/* A thread waits in xport_ep_close for a peer that does not answer. */
static void destroy_while_closing(struct h *h)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	struct xport_attr a = h_attr(h);
	uint8_t *buf = h_buf(h, LEN);
	struct xport_completion c;
	pthread_t thread;
	void *status;

	a.thread_mode = XPORT_THREAD_MULTIPLE;
	h_mesh(h, &a);
	h_sync(h);
	H_OK(xport_send(h->ep[1], buf, LEN, TAG, NULL));
	H_TRUE(pthread_create(&thread, NULL, close_in_thread, h->ep[1]) == 0);
	do
		H_OK(xport_ep_query(h->ep[1], &info));
	while (info.state == XPORT_EP_OPEN);
	H_OK(xport_ep_destroy_start(h->ep[1]));
	do
		H_EQ(1, xport_wait(h->x, &c, 1, h_ms(h->limit_ms)));
	while (c.type != XPORT_EVENT_DESTROYED);
	H_TRUE(c.ep == h->ep[1]);
	h->ep[1] = NULL;
	H_TRUE(pthread_join(thread, &status) == 0);
	H_CHECK(status != NULL, "the close succeeded");
	h_tell_u64(h, 1, 1);
	h_sync(h);
}

static void does_not_answer(struct h *h)
{
	h_mesh(h, NULL);
	h_sync(h);
	h->idle = true;
	h_hear_u64(h, 0);
	h->idle = false;
	h_sync(h);
}

/* ---- the peer ---- */

/* Every event has the peer; of the operations of this side, the endpoint tells. */
static void peers_are_told(struct h *h)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	uint8_t *buf = h_buf(h, LEN);
	struct xport_completion c;
	char address[80];
	struct h_op *op;
	uint64_t peer;

	h_open(h, NULL);
	h_hear(h, 1, address, sizeof(address));
	H_OK(xport_connect(h->x, address, NULL, 0, &h->ep[1]));
	c = H_EVENT(XPORT_EVENT_CONNECTED);
	H_OK(xport_ep_query(h->ep[1], &info));
	peer = info.peer_incarnation;
	H_EQ(peer, c.peer);
	H_EQ(peer, xport_ep_peer(h->ep[1]));
	h_tell_u64(h, 1, h->info.incarnation);
	H_EQ(peer, h_hear_u64(h, 1));
	for (int i = 0; i < 2; i++) {
		op = h_send(h, h->ep[1], buf, i ? LEN : 8, TAG);
		H_DONE(op);
		H_EQ(0, op->c.peer);
	}
	op = h_recv(h, h->ep[1], buf, 8, TAG, UINT64_MAX);
	h_tell_u64(h, 1, 1);
	H_DONE_AS(XPORT_ERR_PEER_CLOSED, op);
	H_EQ(peer, op->c.peer);
	H_EQ(peer, H_EVENT(XPORT_EVENT_CLOSED).peer);
	h_sync(h);
}

static void tells_itself(struct h *h)
{
	uint8_t *buf = h_buf(h, LEN);
	struct h_op *op;
	uint64_t peer;

	h_open(h, NULL);
	h_listen(h);
	h_tell(h, 0, h->address, sizeof(h->address));
	h->ep[0] = h_accept(h);
	peer = h_hear_u64(h, 0);
	H_EQ(peer, xport_ep_peer(h->ep[0]));
	h_tell_u64(h, 0, h->info.incarnation);
	for (int i = 0; i < 2; i++) {
		op = h_recv(h, NULL, buf, LEN, TAG, UINT64_MAX);
		H_DONE(op);
		H_EQ(peer, op->c.peer);
	}
	h_hear_u64(h, 0);
	H_OK(xport_ep_close(h->ep[0], h_ms(h->limit_ms)));
	h_sync(h);
}

static const struct h_param idle_ways[] = {{"_open", 0}, {"_closed_here", 1}, {"_closed_there", 2}, {NULL, 0}};

const struct h_scenario cases_identity[] = {
	{.name = "P1_destroyed_is_the_last_event", .role = {destroy_with_work, sends_some}},
	{.name = "P1_destroyed_wakes", .role = {destroy_idle, is_closed}, .params = idle_ways, .flags = H_ONCE},
	{.name = "P1_destroyed_early", .role = {destroy_early, listens}, .flags = H_ONCE},
	{.name = "P1_destroyed_with_key", .role = {destroy_with_key, gives_key}},
	{.name = "P1_destroyed_while_closing", .role = {destroy_while_closing, does_not_answer}, .flags = H_ONCE},
	{.name = "P1_peer_in_completions", .role = {peers_are_told, tells_itself}},
	{.name = NULL},
};
