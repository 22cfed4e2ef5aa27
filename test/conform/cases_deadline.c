/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cases_deadline.c - P3, hands off, for xport_opt.deadline_ms: an operation ends when its time is over, its buffer is free
 * then, and what the library carries itself does not end the endpoint.
 */
#include <poll.h>

#include "cases_deadline.h"

/* ---- receives ---- */

static void receive_in_vain(struct h *h)
{
	uint8_t *buf = h_buf(h, LONG);
	struct xport_iov list[2] = {{.addr = buf, .len = 100}, {.addr = buf + 200, .len = 100}};
	struct h_op *op[5];
	struct xport_opt o;
	int64_t since;

	h_mesh(h, NULL);
	since = h_now_us();
	op[0] = recv_timed(h, NULL, buf, 64, 1, UINT64_MAX, 2 * SHORT_MS);
	op[1] = recv_timed(h, h->ep[1], buf, 64, 2, UINT64_MAX, SHORT_MS);
	op[2] = recv_timed(h, NULL, buf, 64, 3, 0xff, 3 * SHORT_MS);
	op[3] = h_op(h, XPORT_OP_RECV);
	o = timed(op[3], SHORT_MS);
	H_OK(xport_recvv(h->x, list, 2, 4, UINT64_MAX, &o));
	op[4] = recv_timed(h, NULL, buf, 64, 5, UINT64_MAX, 60000); /* has a message in time */
	expires(h, op[1], since, SHORT_MS);
	expires(h, op[3], since, SHORT_MS);
	expires(h, op[0], since, 2 * SHORT_MS);
	expires(h, op[2], since, 3 * SHORT_MS);
	for (int i = 0; i < 4; i++)
		H_STATUS(XPORT_ERR_INVALID, xport_cancel(h->x, op[i]->id));
	memset(buf, 0x77, LONG);
	h_tell_u64(h, 1, 1);
	H_DONE(op[4]);
	h_sync(h); /* all were sent */
	h_run_for(h, 20);
	H_BYTES(buf + 64, LONG - 64, 0x77);
	for (uint64_t tag = 1; tag <= 4; tag++) { /* none was taken by a receive that had ended */
		H_DONE(h_recv(h, NULL, buf, 200, tag, UINT64_MAX));
		H_FILLED(buf, 64, tag);
	}
	alive(h);
}

static void sends_too_late(struct h *h)
{
	uint8_t *buf = h_buf(h, 64);

	h_mesh(h, NULL);
	h_hear_u64(h, 0);
	for (uint64_t tag = 1; tag <= 5; tag++) {
		h_fill(buf, 64, tag);
		H_DONE(h_send(h, h->ep[0], buf, 64, tag));
	}
	h_sync(h);
	alive(h);
}

/* A long message matches, and its sender does not poll: the receive ends, and what comes later is dropped. */
static void body_is_late(struct h *h)
{
	uint8_t *buf = h_buf(h, LONG);
	struct h_op *op;
	int64_t since;

	h_mesh(h, NULL);
	for (int i = 0; i < 3; i++) {
		h_hear_u64(h, 1);
		h_run_for(h, 10); /* its RTS is here */
		since = h_now_us();
		op = recv_timed(h, NULL, buf, LONG, 1, UINT64_MAX, SHORT_MS);
		H_ENDED(op);
		if (op->c.status == XPORT_OK) { /* it was sent from where it lies, by the network */
			H_FILLED(buf, LONG, 1);
		} else {
			expires(h, op, since, SHORT_MS);
			H_EQ(LONG, op->c.length);
			H_TRUE(op->c.ep == h->ep[1]);
		}
		memset(buf, 0x77, LONG);
		h_tell_u64(h, 1, 1);
		h_hear_u64(h, 1);
		h_run_for(h, 10);
		H_BYTES(buf, LONG, 0x77);
	}
	alive(h);
}

static void sends_body_late(struct h *h)
{
	uint8_t *buf = h_buf(h, LONG);

	h_mesh(h, NULL);
	h_fill(buf, LONG, 1);
	for (int i = 0; i < 3; i++) {
		struct h_op *op = h_send(h, h->ep[0], buf, LONG, 1);

		h_run_for(h, 10);
		h->idle = true;
		h_tell_u64(h, 0, 1);
		h_hear_u64(h, 0);
		h->idle = false;
		H_DONE(op);
		h_tell_u64(h, 0, 1);
	}
	alive(h);
}

/* ---- sends ---- */

/* Long sends that nobody receives: withdrawn, by deadline and by cancel.  The next with the same tag matches. */
static void send_in_vain(struct h *h)
{
	uint8_t *buf = h_buf(h, LONG), *other = h_buf(h, LONG);
	struct h_op *op[4];
	int64_t since;

	h_mesh(h, NULL);
	h_fill(other, LONG, 2);
	memset(buf, 0xee, LONG);
	since = h_now_us();
	op[0] = send_timed(h, buf, LONG, 7, SHORT_MS, 0);
	op[1] = send_timed(h, buf, LONG, 7, 0, XPORT_CANCELABLE);
	op[2] = send_timed(h, buf, LONG, 7, 60000, XPORT_CANCELABLE);
	op[3] = send_timed(h, other, LONG, 7, 60000, 0);
	H_OK(xport_cancel(h->x, op[1]->id)); /* as a rule before its RTS has left */
	expires(h, op[0], since, SHORT_MS);
	H_DONE_AS(XPORT_ERR_CANCELED, op[1]);
	H_STATUS(XPORT_ERR_INVALID, xport_cancel(h->x, op[1]->id));
	H_OK(xport_cancel(h->x, op[2]->id)); /* long after */
	H_DONE_AS(XPORT_ERR_CANCELED, op[2]);
	memset(buf, 0xdd, LONG);
	h_run_for(h, 10);
	h_tell_u64(h, 0, 1);
	H_DONE(op[3]);
	alive(h);
}

static void receives_the_last(struct h *h)
{
	struct xport_counters n = {.size = sizeof(n)};
	uint8_t *buf = h_buf(h, LONG);

	h_mesh(h, NULL);
	h_hear_u64(h, 1);
	h_run_for(h, 10);
	H_OK(xport_stats(h->x, h->ep[1], &n));
	H_EQ(1, n.unmatched);
	H_DONE(h_recv(h, NULL, buf, LONG, 7, UINT64_MAX));
	H_FILLED(buf, LONG, 2);
	alive(h);
}

/* The receive matches, and the answer is under way when the sender withdraws: the receive is cancelled. */
static void withdraw_matched(struct h *h)
{
	uint8_t *buf = h_buf(h, LONG);
	struct h_op *op;

	h_mesh(h, NULL);
	memset(buf, 0xee, LONG);
	op = send_timed(h, buf, LONG, 7, 0, XPORT_CANCELABLE);
	h_run_for(h, 10);
	h->idle = true;
	h_tell_u64(h, 0, 1);
	h_hear_u64(h, 0); /* its answer waits to be polled */
	h->idle = false;
	H_OK(xport_cancel(h->x, op->id));
	H_DONE_AS(XPORT_ERR_CANCELED, op);
	memset(buf, 0xdd, LONG);
	h_tell_u64(h, 0, 1);
	alive(h);
}

static void matched_in_vain(struct h *h)
{
	uint8_t *buf = h_buf(h, LONG);
	struct h_op *op;

	h_mesh(h, NULL);
	h_hear_u64(h, 1);
	h_run_for(h, 10);
	op = h_recv(h, NULL, buf, LONG, 7, UINT64_MAX);
	h_run_for(h, 10);
	h_tell_u64(h, 1, 1);
	H_DONE_AS(XPORT_ERR_CANCELED, op);
	H_EQ(LONG, op->c.length);
	h_hear_u64(h, 1);
	alive(h);
}

enum { HUGE_LEN = 16 << 20 };

/* A part of the message is on its way when its time is over, and the receiver does not poll. */
static void send_partly(struct h *h)
{
	uint8_t *buf = h_buf(h, HUGE_LEN);
	struct h_op *op;

	h_mesh(h, NULL);
	memset(buf, 0x11, HUGE_LEN);
	h_hear_u64(h, 0);
	op = send_timed(h, buf, HUGE_LEN, 7, 4 * SHORT_MS, 0);
	h_run_for(h, 10);
	h_tell_u64(h, 0, 1);
	h_hear_u64(h, 0); /* it has matched, and does not poll any more */
	H_DONE_AS(XPORT_ERR_TIMEOUT, op);
	memset(buf, 0xee, HUGE_LEN);
	h_tell_u64(h, 0, 1);
	alive(h);
}

static void receive_partly(struct h *h)
{
	uint8_t *buf = h_buf(h, HUGE_LEN);
	struct h_op *op;

	h_mesh(h, NULL);
	h_tell_u64(h, 1, 1);
	h->idle = true;
	h_hear_u64(h, 1);
	op = h_recv(h, NULL, buf, HUGE_LEN, 7, UINT64_MAX);
	h_progress(h);
	h_progress(h);
	h_tell_u64(h, 1, 1);
	h_hear_u64(h, 1);
	h->idle = false;
	H_DONE_AS(XPORT_ERR_CANCELED, op);
	for (size_t i = 0; i < HUGE_LEN; i++)
		H_CHECK(buf[i] == 0 || buf[i] == 0x11, "byte %zu is 0x%02x", i, buf[i]);
	memset(buf, 0x77, HUGE_LEN);
	alive(h);
	h_run_for(h, 10);
	H_BYTES(buf, HUGE_LEN, 0x77);
}

/* More than the window takes: the rest waits at the sender, where it ends.  What remains arrives in order. */
static void queue_expires(struct h *h)
{
	enum { SIZE = 1000, MANY = 3000 };
	uint8_t *buf = h_buf(h, SIZE);
	struct h_op **op = h_buf(h, MANY * sizeof(struct h_op *));
	uint64_t expired = 0;

	h_mesh(h, NULL);
	for (unsigned i = 0; i < MANY; i++) {
		h_fill(buf, SIZE, i);
		op[i] = send_timed(h, buf, SIZE, 1, SHORT_MS, 0);
		if (!op[i]->done)
			h_progress(h);
		if (!op[i]->done)
			buf = h_buf(h, SIZE);
	}
	for (unsigned i = 0; i < MANY; i++) {
		H_ENDED(op[i]);
		H_TRUE(op[i]->c.status == XPORT_OK || op[i]->c.status == XPORT_ERR_TIMEOUT);
		expired += op[i]->c.status != XPORT_OK;
	}
	H_TRUE(expired > 100);
	H_TRUE(op[0]->c.status == XPORT_OK);
	for (unsigned i = 0; i < MANY; i++)
		h_tell_u64(h, 0, op[i]->c.status == XPORT_OK);
	h_record(h, "expired", expired);
	alive(h);
}

static void takes_the_rest(struct h *h)
{
	enum { SIZE = 1000, MANY = 3000 };
	uint8_t *buf = h_buf(h, SIZE);

	h_mesh(h, NULL);
	for (unsigned i = 0; i < MANY; i++) {
		if (h_hear_u64(h, 1) == 0)
			continue;
		H_DONE(h_recv(h, NULL, buf, SIZE, 1, UINT64_MAX));
		H_FILLED(buf, SIZE, i);
	}
	alive(h);
}

/* ---- closing ---- */

/* The close waits for what has a deadline, and no longer. */
static void close_with_deadlines(struct h *h)
{
	uint8_t *buf = h_buf(h, LONG);
	struct xport_completion c;
	struct h_op *op[2];
	int64_t since;

	h_mesh(h, NULL);
	since = h_now_us();
	op[0] = send_timed(h, buf, LONG, 1, SHORT_MS, 0);
	op[1] = send_timed(h, buf, LONG, 1, 2 * SHORT_MS, 0);
	if (h->param != 0) {
		H_OK(xport_ep_close_start(h->ep[0], h_ms(20000)));
		c = H_EVENT(XPORT_EVENT_CLOSED);
		H_EQ(XPORT_OK, c.status);
	} else {
		H_OK(xport_ep_close(h->ep[0], h_ms(20000)));
	}
	expires(h, op[1], since, 2 * SHORT_MS);
	H_DONE_AS(XPORT_ERR_TIMEOUT, op[0]);
	h_sync(h);
}

/* Deadlines that are never reached end with the endpoint; those of an endpoint that is gone do nothing. */
static void close_before_deadlines(struct h *h)
{
	uint8_t *buf = h_buf(h, LONG);
	struct h_op *op[2];

	h_mesh(h, NULL);
	op[0] = send_timed(h, buf, LONG, 1, SHORT_MS, 0);
	op[1] = recv_timed(h, h->ep[0], buf, LONG, 1, UINT64_MAX, SHORT_MS);
	H_OK(xport_ep_close(h->ep[0], 0));
	H_DONE_AS(XPORT_ERR_CLOSED, op[0]);
	H_DONE_AS(XPORT_ERR_CLOSED, op[1]);
	xport_ep_destroy(h->ep[0]);
	h_run_for(h, 3 * SHORT_MS);
	H_EQ(0, h->pending);
	h_sync(h);
}

static void sees_close(struct h *h)
{
	h_mesh(h, NULL);
	H_EVENT(XPORT_EVENT_CLOSED);
	h_sync(h);
}

static const struct h_param ways[] = {{"call", 0}, {"start", 1}, {NULL, 0}};

/* ---- waiting ---- */

/* xport_wait and the descriptor report what has ended by its deadline. */
static void wakes(struct h *h)
{
	struct xport_completion c[4];
	struct pollfd p = {.events = POLLIN};
	struct xport_opt o = {.size = sizeof(o), .deadline_ms = SHORT_MS};
	uint8_t buf[8];
	int64_t since;
	int n = 0;

	h_mesh(h, NULL);
	h_run_for(h, 10);
	since = h_now_us();
	H_OK(xport_recv(h->x, buf, 8, 1, UINT64_MAX, &o));
	while (n == 0)
		n = xport_wait(h->x, c, 4, -1);
	H_EQ(1, n);
	H_EQ(XPORT_ERR_TIMEOUT, c[0].status);
	H_TRUE((h_now_us() - since) / 1000 <= h_ms(SHORT_MS + SLACK_MS));
	p.fd = xport_fd(h->x);
	since = h_now_us();
	H_OK(xport_recv(h->x, buf, 8, 1, UINT64_MAX, &o));
	while ((n = xport_poll(h->x, c, 4)) == 0)
		H_EQ(1, poll(&p, 1, h_ms(10000)));
	H_EQ(1, n);
	H_EQ(XPORT_ERR_TIMEOUT, c[0].status);
	H_TRUE((h_now_us() - since) / 1000 <= h_ms(SHORT_MS + SLACK_MS));
	h_sync(h);
}

static void refused(struct h *h)
{
	struct xport_error e = {.size = sizeof(e)};
	struct xport_opt o = {.size = sizeof(o), .deadline_ms = UINT32_C(1) << 31};
	struct xport_iov one = {.addr = &e, .len = 8};
	uint64_t word = 0;

	h_mesh(h, NULL);
	H_STATUS(XPORT_ERR_INVALID, xport_send(h->ep[0], &word, 8, 1, &o));
	H_OK(xport_last_error(h->x, &e));
	H_TRUE(strstr(e.text, "2147483647") != NULL);
	H_STATUS(XPORT_ERR_INVALID, xport_recv(h->x, &word, 8, 1, 1, &o));
	H_STATUS(XPORT_ERR_INVALID, xport_sendv(h->ep[0], &one, 1, 1, &o));
	H_STATUS(XPORT_ERR_INVALID, xport_recvv(h->x, &one, 1, 1, 1, &o));
	H_STATUS(XPORT_ERR_INVALID, xport_flush(h->ep[0], &o));
	o.deadline_ms = INT32_MAX;
	H_DONE(send_timed(h, &word, 8, 1, INT32_MAX, 0));
	o.flags = XPORT_CANCELABLE; /* of sends alone */
	H_STATUS(XPORT_ERR_INVALID, xport_recv(h->x, &word, 8, 1, 1, &o));
	H_STATUS(XPORT_ERR_INVALID, xport_recvv(h->x, &one, 1, 1, 1, &o));
	H_STATUS(XPORT_ERR_INVALID, xport_flush(h->ep[0], &o));
	h_sync(h);
}

static void only_meets(struct h *h)
{
	h_mesh(h, NULL);
	h_sync(h);
}

const struct h_scenario cases_deadline[] = {
	{"P3_deadline_receive", {receive_in_vain, sends_too_late}, NULL, 0, 0},
	{"P3_deadline_body", {body_is_late, sends_body_late}, NULL, 0, 0},
	{"P3_deadline_send", {receives_the_last, send_in_vain}, NULL, 0, 0},
	{"P3_deadline_matched", {matched_in_vain, withdraw_matched}, NULL, 0, 0},
	{"P3_deadline_partly", {receive_partly, send_partly}, NULL, 0, 0},
	{"P3_deadline_queue", {takes_the_rest, queue_expires}, NULL, 0, 60},
	{"P3_deadline_close", {sees_close, close_with_deadlines}, ways, 0, 0},
	{"P3_deadline_close_first", {sees_close, close_before_deadlines}, NULL, 0, 0},
	{"P3_deadline_wait", {only_meets, wakes}, NULL, 0, 0},
	{"P3_deadline_invalid", {only_meets, refused}, NULL, H_ONCE, 0},
	{NULL, {NULL}, NULL, 0, 0},
};
