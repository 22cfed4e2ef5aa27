/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_deadline.h - operations with deadlines, posted by hand. */
#ifndef CONFORM_CASES_DEADLINE_H
#define CONFORM_CASES_DEADLINE_H

#include "harness.h"

enum { LONG = 300000, SHORT_MS = 40, SLACK_MS = 1000 };

/* Options of an operation that is posted by hand. */
static inline struct xport_opt timed(struct h_op *op, uint32_t ms)
{
	struct xport_opt o = {.size = sizeof(o), .context = op, .deadline_ms = ms, .id = &op->id};

	return o;
}

/* It ends with TIMEOUT, not before its deadline and not long after it. */
static inline void expires(struct h *h, struct h_op *op, int64_t since_us, int ms)
{
	int64_t took;

	H_DONE_AS(XPORT_ERR_TIMEOUT, op);
	took = (h_now_us() - since_us) / 1000;
	H_CHECK(took >= ms, "ended after %" PRId64 " ms, deadline %d", took, ms);
	H_CHECK(took <= h_ms(ms + SLACK_MS), "ended after %" PRId64 " ms, deadline %d", took, ms);
}

static inline struct h_op *recv_timed(struct h *h, xport_ep *source, void *buf, size_t len, uint64_t tag, uint64_t mask,
                                      uint32_t ms)
{
	struct h_op *op = h_op(h, XPORT_OP_RECV);
	struct xport_opt o = timed(op, ms);

	o.source = source;
	H_OK(xport_recv(h->x, buf, len, tag, mask, &o));
	return op;
}

static inline struct h_op *send_timed(struct h *h, const void *buf, size_t len, uint64_t tag, uint32_t ms,
                                      uint32_t flags)
{
	struct h_op *op = h_op(h, XPORT_OP_SEND);
	struct xport_opt o = timed(op, ms);

	o.flags = flags;
	H_OK(xport_send(h->ep[0], buf, len, tag, &o));
	return op;
}

/* The endpoint works: a message each way. */
static inline void alive(struct h *h)
{
	int peer = !h->role;
	uint8_t in[8] = {0}, out[8] = {9, 9, 9, 9, 9, 9, 9, 9};
	struct h_op *op = h_recv(h, h->ep[peer], in, 8, 999, UINT64_MAX);

	H_DONE(h_send(h, h->ep[peer], out, 8, 999));
	H_DONE(op);
	H_BYTES(in, 8, 9);
	h_sync(h);
}

#endif
