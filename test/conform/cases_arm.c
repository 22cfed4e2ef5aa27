/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_arm.c - P10 for event loops that call xport_arm: no wake-up is lost, and none comes without end. */
#include <poll.h>

#include "harness.h"

enum { PING = 1, PONG = 2, ROUNDS = 200, LEN = 64 };

/* The three steps, until a receive has completed. Returns how often it slept. */
static unsigned loop_until(struct h *h, const struct h_op *op)
{
	struct pollfd p = {.fd = xport_fd(h->x), .events = POLLIN};
	unsigned slept = 0;

	while (!op->done) {
		int r;

		h_progress(h);
		r = op->done ? XPORT_ERR_AGAIN : xport_arm(h->x);
		if (r == XPORT_ERR_AGAIN)
			continue;
		H_STATUS(XPORT_OK, r);
		H_CHECK(poll(&p, 1, h_ms(h->limit_ms)) == 1, "slept through what woke it, after %u sleeps", slept);
		slept++;
	}
	return slept;
}

static struct xport_attr attr_of(struct h *h)
{
	struct xport_attr a = h_attr(h);

	a.thread_mode = h->param == 1 ? XPORT_THREAD_MULTIPLE : XPORT_THREAD_DEFAULT;
	a.progress = h->param == 2 ? "thread" : NULL;
	return a;
}

/* Long ones and short ones; the peer answers at once, or so late that this side sleeps. */
static void arm_pings(struct h *h)
{
	struct xport_attr a = attr_of(h);
	unsigned slept = 0;
	struct h_op *op;
	uint8_t *buf;
	size_t longest;

	h_mesh(h, &a);
	longest = 2 * h->info.eager_max;
	buf = h_buf(h, longest);
	for (unsigned i = 0; i < ROUNDS; i++) {
		op = h_recv(h, NULL, buf, LEN, PONG, UINT64_MAX);
		h_send(h, h->ep[1], buf, i % 10 == 9 ? longest : LEN, PING);
		slept += loop_until(h, op);
	}
	h_settle(h);
	H_CHECK(slept < 20 * ROUNDS, "woken %u times for %d messages", slept, ROUNDS);
	h_sync(h);
}

static void arm_pongs(struct h *h)
{
	struct xport_attr a = attr_of(h);
	struct h_op *op;
	uint8_t *buf;

	h_mesh(h, &a);
	buf = h_buf(h, 2 * h->info.eager_max);
	for (unsigned i = 0; i < ROUNDS; i++) {
		op = h_recv(h, NULL, buf, 2 * h->info.eager_max, PING, UINT64_MAX);
		loop_until(h, op);
		if (i % 16 == 0)
			usleep(2000);
		h_send(h, h->ep[0], buf, LEN, PONG);
	}
	h_settle(h);
	h_sync(h);
}

/* ---- what happens while it is armed ---- */

static bool readable(struct h *h, int ms)
{
	struct pollfd p = {.fd = xport_fd(h->x), .events = POLLIN};

	return poll(&p, 1, ms) == 1;
}

static void arm_now(struct h *h)
{
	int r;

	while ((r = xport_arm(h->x)) == XPORT_ERR_AGAIN)
		h_progress(h);
	H_STATUS(XPORT_OK, r);
}

static void armed(struct h *h)
{
	struct xport_error e = {.size = sizeof(e)};
	uint8_t *buf = h_buf(h, LEN);
	struct xport_completion c;
	struct h_op *op;

	H_STATUS(XPORT_ERR_INVALID, xport_arm(NULL));
	h_mesh(h, NULL);
	arm_now(h);
	H_OK(xport_arm(h->x)); /* it still is */
	/* A post by this thread: its own completion waits. */
	op = h_send(h, h->ep[1], buf, LEN, PING);
	H_CHECK(readable(h, h_ms(h->limit_ms)), "not readable, though something was posted");
	while (!op->done) {
		int r = xport_arm(h->x);

		H_CHECK(r == XPORT_OK || r == XPORT_ERR_AGAIN, "status %d", r);
		h_progress(h);
	}
	/* A completion that is not reaped. */
	h_tell_u64(h, 1, 1);
	op = h_recv(h, NULL, buf, LEN, PONG, UINT64_MAX);
	H_STATUS(XPORT_ERR_INVALID, xport_wait(h->x, NULL, 0, -2)); /* it is not overwritten */
	while (!op->done) {
		H_OK(xport_poll(h->x, NULL, 0));
		if (xport_arm(h->x) == XPORT_ERR_AGAIN) {
			H_OK(xport_last_error(h->x, &e));
			H_CHECK(!strcmp(e.operation, "xport_wait"), "the error before was overwritten: '%s'", e.text);
			H_STATUS(XPORT_ERR_AGAIN, xport_arm(h->x));
			h_progress(h);
		}
	}
	/* The loss of a peer that was silent. */
	arm_now(h);
	h_kill(h, 1, SIGKILL);
	while (!h_event_now(h, XPORT_EVENT_LOST, &c)) {
		arm_now(h);
		if (h->nqueue == 0)
			H_CHECK(readable(h, h_ms(h->limit_ms)), "slept through the loss of its peer");
		h_progress(h);
	}
	H_TRUE(c.ep == h->ep[1]);
}

static void armed_peer(struct h *h)
{
	uint8_t *buf = h_buf(h, LEN);

	h_mesh(h, NULL);
	H_DONE(h_recv(h, NULL, buf, LEN, PING, UINT64_MAX));
	h_hear_u64(h, 0);
	usleep(2000);
	H_DONE(h_send(h, h->ep[0], buf, LEN, PONG));
	for (;;)
		h_breathe(h);
}

static const struct h_param modes[] = {{"alone", 0}, {"lock", 1}, {"thread", 2}, {NULL, 0}};

const struct h_scenario cases_arm[] = {
	{.name = "P10_arm_loses_no_wake_up", .role = {arm_pings, arm_pongs}, .params = modes},
	{.name = "P10_arm_and_what_follows", .role = {armed, armed_peer}, .flags = H_KILLS},
	{.name = NULL},
};
