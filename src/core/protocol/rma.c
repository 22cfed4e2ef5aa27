/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/protocol/rma.h"

#include <string.h>

#include "base/copy.h"
#include "base/word.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/mr.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/object/rkey.h"
#include "core/protocol/cma.h"
#include "core/protocol/tx.h"
#include "core/wire/frame.h"

enum { REST_MIN = 64 };

/* ---- by message ---- */

static inline bool tracked(const struct xpi_op *op)
{
	return (op->flags & (XPORT_LOCAL | XPORT_QUIET)) == 0;
}

/* All of it was handed over: it now waits for the acknowledgement, if anybody wants to know. */
static inline int handed(struct xport_ep *ep, struct xpi_op *op)
{
	ep->rma.q_sent++;
	ep->tx.change_seq = xpi_tx_seq(ep);
	xpi_tx_own(ep);
	ep->n.slow_messages++;
	op->waits = 0;
	if (tracked(op)) {
		op->waits = XPI_WAIT_ACK;
		op->seq = ep->tx.change_seq;
	} else if (op->pending == 0 && !xpi_list_linked(&op->link)) {
		xpi_op_complete_new(ep->x, op);
		return XPORT_OK;
	}
	xpi_op_settle(op);
	return XPORT_OK;
}

/* The number of a put whose notification follows; 0: none does. */
static inline uint16_t native_ahead(const struct xpi_op *op)
{
	return op->kind == XPORT_OP_PUT_NOTIFY ? (uint16_t)op->mask : 0;
}

static int put_cma_step(struct xport_ep *ep, struct xpi_op *op)
{
	struct xpi_rec_cma rec = {
		.r = {.a = XPI_REC_PUT, .b = htole16(native_ahead(op))},
		.region = htole64(op->region),
		.op = htole32(tracked(op) ? xpi_op_name(ep->x, op) : 0),
	};
	int r;

	if (op->offer == XPI_OFFER_NEVER)
		return xpi_put_copy_step(ep, op, native_ahead(op), tracked(op));
	r = xpi_cma_step(ep, op, &rec, op->len);
	if (r != XPORT_OK)
		return r;
	ep->rma.q_sent++;
	ep->n.cma++;
	ep->tx.change_seq = op->seq;
	xpi_op_settle(op);
	return XPORT_OK;
}

static __attribute__((noinline)) int put_step(struct xport_ep *ep, struct xpi_op *op)
{
	size_t room = xpi_tx_room(ep, sizeof(struct xpi_rec_put));
	int r;

	r = xpi_cma_may(ep, op, op->len);
	if (r != XPORT_ERR_NOT_SUPPORTED)
		return r == XPORT_OK ? put_cma_step(ep, op) : r;
	do {
		uint64_t left = op->len - op->done;
		uint32_t n = (uint32_t)(left < room ? left : room);
		struct xpi_rec_put *rec = xpi_tx_begin(ep, sizeof(*rec), n);

		if (rec == NULL)
			return XPORT_ERR_AGAIN;
		*rec = (struct xpi_rec_put){
			.r = {.type = native_ahead(op) != 0 ? XPI_REC_PUT_AHEAD : XPI_REC_PUT,
		              .b = htole16(native_ahead(op)),
		              .len = htole32(n)},
			.region = htole64(op->region),
			.offset = htole64(op->offset + op->done),
			.op = htole32(tracked(op) ? xpi_op_name(ep->x, op) : 0),
		};
		r = xpi_tx_end(ep, op, sizeof(*rec), op->buf + op->done, n,
		               n == left && tracked(op) ? XPI_FRAME_ACK_NOW : 0);
		if (r < 0)
			return r;
		op->done += n;
	} while (op->done < op->len);
	return handed(ep, op);
}

/* It was asked for: it now waits for the answer. */
static inline int request_queued(struct xport_ep *ep, struct xpi_op *op)
{
	ep->rma.q_sent++;
	ep->tx.change_seq = xpi_tx_seq(ep);
	xpi_tx_own(ep);
	ep->rma.nrequests++;
	ep->n.slow_messages++;
	op->waits = XPI_WAIT_REPLY;
	if (xpi_list_linked(&op->link))
		xpi_list_del(&op->link);
	xpi_list_push(&ep->requests, &op->link);
	return XPORT_OK;
}

static __attribute__((noinline)) int get_step(struct xport_ep *ep, struct xpi_op *op)
{
	struct xpi_rec_get *rec = NULL;

	if (ep->rma.nrequests < ep->rma.requests_max)
		rec = xpi_tx_begin(ep, sizeof(*rec), 0);
	if (rec == NULL)
		return XPORT_ERR_AGAIN;
	*rec = (struct xpi_rec_get){
		.r = {.type = XPI_REC_GET},
		.region = htole64(op->region),
		.offset = htole64(op->offset),
		.length = htole64(op->len),
		.op = htole32(xpi_op_name(ep->x, op)),
	};
	if (xpi_tx_end(ep, NULL, sizeof(*rec), NULL, 0, 0) < 0)
		return XPORT_ERR_AGAIN;
	return request_queued(ep, op);
}

static __attribute__((noinline)) int atomic_step(struct xport_ep *ep, struct xpi_op *op)
{
	struct xpi_rec_atomic *rec = NULL;
	bool fetch = op->buf != NULL;

	if (!fetch || ep->rma.nrequests < ep->rma.requests_max)
		rec = xpi_tx_begin(ep, sizeof(*rec), 0);
	if (rec == NULL)
		return XPORT_ERR_AGAIN;
	*rec = (struct xpi_rec_atomic){
		.r = {.type = XPI_REC_ATOMIC,
	              .a = op->aop,
	              .b = htole16((uint16_t)(op->width | (fetch ? XPI_ATOMIC_FETCH : 0)))},
		.region = htole64(op->region),
		.offset = htole64(op->offset),
		.operand = htole64(op->tag),
		.compare = htole64(op->mask),
		.op = htole32(fetch || tracked(op) ? xpi_op_name(ep->x, op) : 0),
	};
	if (xpi_tx_end(ep, NULL, sizeof(*rec), NULL, 0, tracked(op) && !fetch ? XPI_FRAME_ACK_NOW : 0) < 0)
		return XPORT_ERR_AGAIN;
	return fetch ? request_queued(ep, op) : handed(ep, op);
}

/* ---- by the network ---- */

int xpi_native_pieces(struct xport_ep *ep, struct xpi_op *op, uint64_t place, uint64_t len)
{
	struct xpi_transport *tp = ep->tp;
	bool get = xpi_op_what(op) == XPORT_OP_GET;

	xpi_transport_used(tp);
	while (op->done < len) {
		uint64_t n = len - op->done;
		void *mr = op->mr != NULL ? xpi_mr_on(op->mr, tp) : NULL;
		uint8_t *buf = op->buf + op->done;
		uint64_t at = place + op->done;
		int r;

		if (op->pending > 0) /* it has one request: one piece at a time */
			return XPORT_ERR_AGAIN;
		if (tp->caps.rma_max != 0 &&
		    n > tp->caps.rma_max) /* and no short rest, which a back end may not take */
			n = n - tp->caps.rma_max < REST_MIN ? tp->caps.rma_max - REST_MIN : tp->caps.rma_max;
		r = get ? tp->ops->get(tp->be, xpi_ep_be(ep), buf, n, mr, xpi_rkey_be(op->rkey), at, &op->wait.req)
		        : tp->ops->put(tp->be, xpi_ep_be(ep), buf, n, mr, xpi_rkey_be(op->rkey), at, &op->wait.req);
		if (r == XPORT_ERR_NOT_SUPPORTED && op->done == 0)
			return r;
		if (r < 0) {
			xpi_refused(ep, r);
			return XPORT_ERR_AGAIN;
		}
		op->done += n;
		op->pending += r == XPI_PENDING;
	}
	return XPORT_OK;
}

/* Returns XPORT_ERR_NOT_SUPPORTED if this one must go by message. */
static int native_step(struct xport_ep *ep, struct xpi_op *op)
{
	int r = xpi_native_pieces(ep, op, op->offset, op->len);

	if (r != XPORT_OK)
		return r;
	op->waits = 0;
	ep->rma.q_sent++;
	if (xpi_op_what(op) == XPORT_OP_GET) {
		ep->n.native_gets++;
	} else {
		ep->n.slow_native++;
		op->after_native = ++ep->rma.native_posted;
		if (tracked(op) && !ep->tp->caps.put_placed) {
			op->waits = XPI_WAIT_PROOF;
			xpi_work(ep);
		}
	}
	xpi_op_settle(op);
	return XPORT_OK;
}

/* Ended without having been tried. */
static int untried(struct xpi_op *op, int status)
{
	op->waits = 0;
	op->ep->rma.q_sent++;
	op->status = status;
	xpi_op_settle(op);
	return XPORT_OK;
}

/* Never by message: the two are not mixed on one region. */
static int adapter_step(struct xport_ep *ep, struct xpi_op *op)
{
	struct xport_atomic_args a = {
		.size = sizeof(a),
		.op = op->aop,
		.width = op->width,
		.operand = op->tag,
		.compare = op->mask,
		.result = op->buf,
	};
	struct xport_rkey *k = op->rkey;
	struct xpi_transport *tp = ep->tp;
	int r;

	if (k->stale)
		return untried(op, XPORT_ERR_STALE_KEY);
	if (!k->native)
		return k->settled ? untried(op, XPORT_ERR_NOT_SUPPORTED) : XPORT_ERR_AGAIN;
	xpi_transport_used(tp);
	r = tp->ops->atomic(tp->be, xpi_ep_be(ep), &a, xpi_rkey_be(k), op->offset, &op->wait.req);
	if (r == XPORT_ERR_NOT_SUPPORTED)
		return untried(op, r);
	if (r < 0) {
		xpi_refused(ep, r);
		return XPORT_ERR_AGAIN;
	}
	op->pending += r == XPI_PENDING;
	op->after_native = ++ep->rma.native_posted;
	ep->n.slow_native++;
	op->waits = 0;
	ep->rma.q_sent++;
	xpi_op_settle(op);
	return XPORT_OK;
}

static void change_word(struct xpi_op *op, void *word)
{
	uint64_t old = xpi_word_change(word, op->width, op->aop, op->tag, op->mask);

	if (op->buf != NULL)
		xpi_word_give(op->buf, op->width, old);
}

/* It goes by message: the peer is to see it, or says why it refuses it. */
static int message_step(struct xport_ep *ep, struct xpi_op *op)
{
	xpi_rkey_idle(op->rkey);
	op->rkey = NULL;
	return xpi_rma_step(ep, op);
}

/* A put, get or atomic on memory that is mapped here, which had to wait behind a fence. */
static int copy_step(struct xpi_op *op)
{
	struct xport_rkey *k = op->rkey;

	if (k->stale && op->kind == XPORT_OP_PUT_NOTIFY) /* its notification follows, and must not be delivered */
		return message_step(op->ep, op);
	op->waits = 0;
	op->ep->rma.q_sent++;
	op->ep->n.slow_copies += !k->stale;
	if (k->stale)
		op->status = XPORT_ERR_STALE_KEY;
	else if (op->kind == XPORT_OP_ATOMIC)
		change_word(op, k->direct + op->offset);
	else if (xpi_op_what(op) == XPORT_OP_GET)
		xpi_copy_in(op->buf, k->direct + op->offset, op->len);
	else
		xpi_copy_out(k->direct + op->offset, op->buf, op->len);
	xpi_op_settle(op);
	return XPORT_OK;
}

/* Whether so many native puts are drained; sees to it that they will be. */
static bool native_drain_end(struct xport_ep *ep, uint64_t posted)
{
	struct xpi_transport *tp = ep->tp;
	int r;

	if (ep->rma.native_flushed >= posted)
		return true;
	if (ep->rma.drain_running)
		return false;
	ep->rma.drain_running = true;
	ep->rma.drain_to = ep->rma.native_posted;
	ep->rma.drain.kind = XPI_WAIT_DRAIN;
	xpi_transport_used(tp);
	r = tp->ops->drain(tp->be, xpi_ep_be(ep), &ep->rma.drain.req);
	if (r == XPI_PENDING)
		return false;
	if (r < 0) {
		ep->rma.drain_running = false;
		xpi_refused(ep, r);
		return false;
	}
	xpi_drained(ep, XPORT_OK);
	return true;
}

bool xpi_native_ready(struct xport_ep *ep, uint64_t posted)
{
	return ep->tp->caps.am_after_put || native_drain_end(ep, posted);
}

void xpi_drained(struct xport_ep *ep, int status)
{
	xpi_assert_locked(ep->x);
	ep->rma.drain_running = false;
	if (status == XPORT_OK) {
		ep->rma.native_flushed = ep->rma.drain_to;
	} else {
		xpi_quiet_failed(ep, status);
		xpi_ep_broken(ep);
	}
	xpi_work(ep);
}

/* Sends what the peer acknowledges once everything before it is placed. */
static int send_flush(struct xport_ep *ep)
{
	struct xpi_rec rec = {.type = XPI_REC_FLUSH};

	return xpi_tx_record(ep, NULL, &rec, sizeof(rec), NULL, XPI_FRAME_ACK_NOW) < 0 ? XPORT_ERR_AGAIN : XPORT_OK;
}

/* By the network itself: the peer need not call anything. */
static void confirm_by_drain(struct xport_ep *ep)
{
	while (!xpi_list_empty(&ep->placing)) {
		struct xpi_op *op = xpi_container(ep->placing.next, struct xpi_op, link);

		if (!native_drain_end(ep, op->after_native))
			return;
		op->waits = 0;
		xpi_op_settle(op);
	}
}

void xpi_confirm_placed(struct xport_ep *ep)
{
	struct xpi_op *first = xpi_container(ep->placing.next, struct xpi_op, link);

	xpi_assert_locked(ep->x);
	if (ep->tp->caps.drain_places) {
		confirm_by_drain(ep);
		return;
	}
	if (!xpi_native_ready(ep, first->after_native) || send_flush(ep) != XPORT_OK)
		return;
	while (!xpi_list_empty(&ep->placing)) {
		struct xpi_op *op = xpi_container(ep->placing.next, struct xpi_op, link);

		if (!ep->tp->caps.am_after_put && op->after_native > ep->rma.native_flushed)
			break;
		op->waits = XPI_WAIT_ACK;
		op->seq = xpi_tx_seq(ep);
		xpi_op_settle(op);
	}
	xpi_work(ep);
}

/* ---- order ---- */

/* Copies that waited with it are made in one go, so that nothing but this keeps the processor to their order. */
static int fence_end(struct xport_ep *ep, struct xpi_op *op)
{
	if (ep->keys.direct)
		atomic_thread_fence(memory_order_seq_cst);
	ep->rma.q_sent += op->len;
	xpi_op_complete(op, XPORT_OK);
	return XPORT_OK;
}

bool xpi_rma_in_hands(const struct xport_ep *ep)
{
	xpi_list_for(l, &ep->native)
		if (xpi_op_what(xpi_container(l, struct xpi_op, link)) <= XPORT_OP_ATOMIC)
			return true;
	return false;
}

/* In the place of a put that was withdrawn. If a part of it has left, its name is in use up to the acknowledgement of this. */
static __attribute__((cold)) int place_step(struct xport_ep *ep, struct xpi_op *op)
{
	if (op->done == XPI_FENCE_NOTHING)
		return fence_end(ep, op);
	if (send_flush(ep) != XPORT_OK)
		return XPORT_ERR_AGAIN;
	ep->rma.q_sent += op->len;
	op->kind = XPI_OP_GHOST;
	op->seq = xpi_tx_seq(ep);
	op->waits = XPI_WAIT_ACK;
	xpi_op_settle(op);
	return XPORT_OK;
}

static __attribute__((noinline)) int fence_step(struct xport_ep *ep, struct xpi_op *op)
{
	if (op->done >= XPI_FENCE_PARTLY)
		return place_step(ep, op);
	if (ep->rma.nrequests > 0)
		return XPORT_ERR_AGAIN;
	if (!ep->keys.direct)
		return fence_end(ep, op);
	/* What follows may overtake messages: everything before must be known to be there. */
	if (xpi_rma_in_hands(ep) || !xpi_native_ready(ep, ep->rma.native_posted))
		return XPORT_ERR_AGAIN;
	if (xpi_tx_changed(ep))
		return fence_end(ep, op);
	if (op->done == 0) {
		if (send_flush(ep) != XPORT_OK)
			return XPORT_ERR_AGAIN;
		op->seq = xpi_tx_seq(ep);
		op->done = 1;
	}
	return xpi_seq_reached(ep->tx.acked, op->seq) ? fence_end(ep, op) : XPORT_ERR_AGAIN;
}

static __attribute__((noinline)) int flush_step(struct xport_ep *ep, struct xpi_op *op)
{
	/* What went by message is placed; copies are, and of the rest the network knows. */
	if (xpi_tx_changed(ep) && (ep->tp->caps.drain_places || ep->rma.native_posted == 0)) {
		ep->tx.change_seq = ep->tx.acked;
		op->after_native = ep->rma.native_posted;
		op->waits = ep->rma.native_posted > 0 ? XPI_WAIT_PROOF : 0;
		xpi_op_settle(op);
		if (ep->rma.native_posted > 0)
			confirm_by_drain(ep);
		return XPORT_OK;
	}
	if (!xpi_native_ready(ep, ep->rma.native_posted) || send_flush(ep) != XPORT_OK)
		return XPORT_ERR_AGAIN;
	xpi_tx_own_extra(ep);
	op->waits = XPI_WAIT_ACK;
	op->seq = xpi_tx_seq(ep);
	xpi_op_settle(op);
	return XPORT_OK;
}

/* Of an operation with a key: by the network, or by a copy. */
static __attribute__((noinline)) int keyed_step(struct xport_ep *ep, struct xpi_op *op)
{
	int r;

	if (op->kind == XPORT_OP_ATOMIC)
		return op->rkey->atomic == XPI_ROUTE_NATIVE ? adapter_step(ep, op) : copy_step(op);
	if (op->rkey->direct != NULL)
		return copy_step(op);
	r = native_step(ep, op);
	return r == XPORT_ERR_NOT_SUPPORTED ? message_step(ep, op) : r;
}

int xpi_rma_step(struct xport_ep *ep, struct xpi_op *op)
{
	xpi_assert_locked(ep->x);
	if (op->rkey != NULL)
		return keyed_step(ep, op);
	switch (xpi_op_what(op)) {
	case XPORT_OP_GET:
		return get_step(ep, op);
	case XPORT_OP_ATOMIC:
		return atomic_step(ep, op);
	case XPI_OP_FENCE:
		return fence_step(ep, op);
	case XPORT_OP_FLUSH:
		return flush_step(ep, op);
	default:
		return put_step(ep, op);
	}
}

void xpi_rma_pump(struct xport_ep *ep)
{
	xpi_assert_locked(ep->x);
	while (!xpi_list_empty(&ep->rma.q))
		if (xpi_rma_step(ep, xpi_container(ep->rma.q.next, struct xpi_op, link)) != XPORT_OK)
			return;
	ep->rma.busy = false;
}

int xpi_fence(struct xport_ep *ep)
{
	struct xpi_op *op;

	xpi_assert_locked(ep->x);
	ep->fast_left = 0;
	ep->rma.fence = ep->rma.q_posted;
	if (ep->keys.direct)
		atomic_thread_fence(memory_order_seq_cst);
	if (!ep->rma.busy && ep->rma.nrequests == 0 && !xpi_rma_in_hands(ep) &&
	    (!ep->keys.direct || (xpi_tx_changed(ep) && xpi_native_ready(ep, ep->rma.native_posted))))
		return XPORT_OK;
	op = xpi_op_get(ep->x, ep, XPI_OP_FENCE);
	if (op == NULL)
		return xpi_op_no_memory(ep, "xport_fence");
	/* A message cannot overtake puts and atomics that left before it, but gets that still read: so it waits for this. */
	op->len = ep->rma.ngets > 0;
	ep->rma.q_posted += op->len;
	ep->rma.fence = ep->rma.q_posted;
	xpi_list_push(&ep->rma.q, &op->link);
	ep->rma.busy = true;
	xpi_work(ep);
	return XPORT_OK;
}
