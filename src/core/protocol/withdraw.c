/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/protocol/withdraw.h"

#include "core/object/completion.h"
#include "core/object/deadline.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/match.h"
#include "core/object/op.h"
#include "core/object/pieces.h"
#include "core/object/wakeup.h"
#include "core/protocol/msg.h"
#include "core/protocol/reply_queue.h"
#include "core/protocol/tx.h"
#include "core/wire/frame.h"

/* ---- ghosts ---- */

/* In a ghost `tag` is the kind of the operation, and `offset` the id of what the application sees of it. */
static struct xpi_op *ghost_named(struct xport_ep *ep, uint32_t name, unsigned what)
{
	struct xpi_op *op = xpi_op_named(ep, name);

	return op != NULL && op->kind == XPI_OP_GHOST && op->tag == what && op->waits == XPI_WAIT_REPLY ? op : NULL;
}

static void ghost_end(struct xport_ep *ep, struct xpi_op *op)
{
	if (op->tag == XPORT_OP_GET || op->tag == XPORT_OP_ATOMIC)
		ep->rma.nrequests--;
	xpi_op_complete(op, XPORT_OK);
	if (ep->rma.busy)
		xpi_work(ep);
}

bool xpi_ghost_data(struct xport_ep *ep, uint32_t name, unsigned what, uint64_t at, uint64_t len)
{
	struct xpi_op *op = ghost_named(ep, name, what);
	uint64_t all;

	if (op == NULL)
		return false;
	all = what == XPORT_OP_GET ? op->len : op->mask;
	if (at != op->done || len > all - op->done)
		return false;
	op->done += len;
	if (op->done == all)
		ghost_end(ep, op);
	return true;
}

bool xpi_ghost_value(struct xport_ep *ep, uint32_t name)
{
	struct xpi_op *op = ghost_named(ep, name, XPORT_OP_ATOMIC);

	if (op != NULL)
		ghost_end(ep, op);
	return op != NULL;
}

bool xpi_ghost_failed(struct xport_ep *ep, uint32_t name)
{
	struct xpi_op *op = xpi_op_named(ep, name);

	if (op != NULL && op->kind == XPI_OP_FENCE && op->done == XPI_FENCE_PARTLY)
		return true;
	if (op == NULL || op->kind != XPI_OP_GHOST || op->tag == XPORT_OP_SEND || op->tag == XPORT_OP_RECV)
		return false;
	if (op->waits == XPI_WAIT_REPLY)
		ghost_end(ep, op);
	return true;
}

/* The XPI_OP_WITHDRAW of the send with this name, if it has not left. */
static struct xpi_op *withdraw_waiting(struct xport_ep *ep, uint32_t name)
{
	xpi_list_for(l, &ep->reply.q) {
		struct xpi_op *told = xpi_container(l, struct xpi_op, link);

		if (told->kind == XPI_OP_WITHDRAW && told->region == name)
			return told;
	}
	return NULL;
}

bool xpi_ghost_cts(struct xport_ep *ep, uint32_t name, uint32_t into)
{
	struct xpi_op *op = ghost_named(ep, name, XPORT_OP_SEND), *told;

	if (op == NULL)
		return false;
	/* Once the ghost is gone its name is free, and no record that still waits may say it. */
	told = withdraw_waiting(ep, name);
	if (told != NULL && into != 0) {
		told->tag = told->region = 0;
		told->offset = into;
	} else if (told != NULL) {
		xpi_list_del(&told->link);
		xpi_op_free(ep, told);
	} else if (into != 0) {
		told = xpi_reply_new(ep, XPI_OP_WITHDRAW);
		if (told == NULL)
			return true;
		told->tag = told->region = 0;
		told->offset = into;
		xpi_list_push(&ep->reply.q, &told->link);
	}
	ghost_end(ep, op);
	return true;
}

/* ---- withdrawing ---- */

/* What the application sees of an operation, in an object of its own, which completes. Nothing of it is left in the old one. */
static void part(struct xpi_op *op, struct xpi_op *seen, int status)
{
	seen->kind = op->kind;
	seen->flags = op->flags;
	seen->context = op->context;
	seen->tag = op->tag;
	seen->len = op->len;
	seen->offset = op->offset;
	seen->buf = op->buf;
	seen->mr = op->mr;
	seen->rkey = op->rkey;
	seen->order = op->order;
	op->order = 0;
	op->flags = 0;
	op->offer = 0;
	op->mr = NULL;
	op->rkey = NULL;
	op->buf = NULL;
	xpi_op_complete(seen, status);
}

/* The operation stays where it is as a ghost. */
static int leave_ghost(struct xpi_op *op, int status)
{
	struct xpi_op *seen = xpi_op_get(op->ep->x, op->ep, op->kind);
	unsigned what = xpi_op_what(op);
	uint64_t id;

	if (seen == NULL)
		return XPORT_ERR_NO_MEMORY;
	id = xpi_op_id(op->ep->x, seen); /* a quiet one is freed as it completes */
	part(op, seen, status);
	op->kind = XPI_OP_GHOST;
	op->tag = what;
	op->offset = id;
	return XPORT_OK;
}

/* The operation that keeps the place of this one beside it in rma.q, too. NULL: none does. */
static struct xpi_op *place_beside(struct xpi_op *op)
{
	struct xpi_list *const beside[] = {op->link.prev, op->link.next};

	for (unsigned i = 0; i < 2; i++) {
		struct xpi_op *place = xpi_container(beside[i], struct xpi_op, link);

		if (beside[i] != &op->ep->rma.q && place->kind == XPI_OP_FENCE && place->done == XPI_FENCE_NOTHING)
			return place;
	}
	return NULL;
}

/* A part of it has been handed over, and may still change the memory of the peer: what follows has to know. */
static void part_follows(struct xpi_op *op)
{
	struct xport_ep *ep = op->ep;

	if (op->rkey == NULL)
		ep->tx.change_seq = xpi_tx_seq(ep);
	else if (xpi_op_what(op) != XPORT_OP_GET)
		ep->rma.native_posted++;
}

/* It waits in rma.q: what is counted there is counted in order, so something keeps its place, and its name if that is in use. */
static int leave_place(struct xpi_op *op, int status)
{
	struct xport_ep *ep = op->ep;
	bool named = op->done > 0 && op->rkey == NULL && (op->flags & (XPORT_LOCAL | XPORT_QUIET)) == 0;
	struct xpi_op *place = named ? NULL : place_beside(op), *seen;
	unsigned what = xpi_op_what(op);

	if (place != NULL) {
		if (op->done > 0)
			part_follows(op);
		place->len++;
		op->waits = 0;
		xpi_op_complete(op, status);
		return XPORT_OK;
	}
	seen = xpi_op_get(ep->x, ep, op->kind);
	if (seen == NULL)
		return XPORT_ERR_NO_MEMORY;
	if (op->done > 0)
		part_follows(op);
	part(op, seen, status);
	op->kind = XPI_OP_FENCE;
	op->done = named ? XPI_FENCE_PARTLY : XPI_FENCE_NOTHING;
	op->tag = what;
	op->len = 1;
	op->waits = 0;
	xpi_work(ep);
	return XPORT_OK;
}

/* The notification of a put that is withdrawn, if it has not left. */
static void withdraw_told(struct xport_ep *ep, uint64_t ahead)
{
	xpi_list_for(l, &ep->msg.q) {
		struct xpi_op *told = xpi_container(l, struct xpi_op, link);

		if (told->kind != XPI_OP_TOLD || told->mask != ahead)
			continue;
		xpi_list_del(&told->link);
		xpi_op_free(ep, told);
		ep->rma.ntold--;
		if (ep->x->backpressure.wanted)
			xpi_signal(ep->x);
		return;
	}
}

/* A put, get or atomic that stands in a queue. */
static int withdraw_rma(struct xpi_op *op, int status)
{
	struct xport_ep *ep = op->ep;
	/* mask is its number only if its data went ahead */
	uint64_t ahead = op->kind == XPORT_OP_PUT_NOTIFY && op->waits != XPI_WAIT_ACK ? op->mask : 0;
	int r = XPORT_OK;

	if (op->pending > 0)
		return XPORT_ERR_BUSY;
	if (op->waits & XPI_WAIT_SENT) {
		r = leave_place(op, status);
	} else if (op->rkey == NULL) {
		r = leave_ghost(op, status);
	} else { /* native, and not named in any frame */
		op->waits = 0;
		xpi_op_complete(op, status);
	}
	if (r == XPORT_OK && ahead != 0)
		withdraw_told(ep, ahead);
	return r;
}

/* The runs of a list end one by one; the last one ends the operation. */
static int withdraw_runs(struct xpi_op *op, int status)
{
	struct xport_ep *ep = op->ep;
	struct xpi_list *const all[] = {&ep->rma.q, &ep->unacked, &ep->placing, &ep->requests, &ep->native};

	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		xpi_list_for_safe(l, all[i]) {
			struct xpi_op *run = xpi_container(l, struct xpi_op, link);
			int r;

			if (run->kind < XPI_OP_LIST || xpi_op_what(run) > XPORT_OP_GET || run->context != op)
				continue;
			r = withdraw_rma(run, status);
			if (r != XPORT_OK)
				return r;
		}
	}
	return XPORT_OK;
}

/* A send: a list that is copied. Its pieces go with what the application sees. */
static int withdraw_send(struct xpi_op *op, int status)
{
	bool asked = op->waits == XPI_WAIT_REPLY, body = !asked && op->region != 0;
	struct xport_ep *ep = op->ep;
	struct xpi_op *told = NULL;
	int r = XPORT_OK;

	if (op->pending > 0)
		return XPORT_ERR_BUSY;
	if (asked || body) {
		told = xpi_op_get(ep->x, ep, XPI_OP_WITHDRAW);
		if (told == NULL)
			return XPORT_ERR_NO_MEMORY;
		told->tag = op->tag;
		told->region = asked ? xpi_op_name(ep->x, op) : 0;
		told->offset = asked ? 0 : op->region;
	}
	if (asked) {
		r = leave_ghost(op, status);
	} else {
		op->waits = 0;
		xpi_op_complete(op, status);
	}
	if (r != XPORT_OK) {
		xpi_op_free(ep, told);
		return r;
	}
	if (told != NULL)
		xpi_list_push(&ep->reply.q, &told->link);
	xpi_work(ep);
	return XPORT_OK;
}

static int withdraw_receive(struct xport *x, struct xpi_op *op, int status)
{
	if (!op->posted)
		return leave_ghost(op, status);
	xpi_match_remove(x->match, op);
	xpi_recv_end(x, op, status);
	return XPORT_OK;
}

int xpi_withdraw(struct xport *x, struct xpi_op *op, int status)
{
	xpi_assert_locked(x);
	switch (xpi_op_what(op)) {
	case XPORT_OP_RECV:
		return withdraw_receive(x, op, status);
	case XPORT_OP_SEND:
		return withdraw_send(op, status);
	case XPORT_OP_FLUSH: /* its record has no name */
		op->waits = 0;
		if (op->status != XPORT_OK && op->ep->rma.quiet_error == XPORT_OK) /* the next one has to tell */
			op->ep->rma.quiet_error = op->status;
		xpi_op_complete(op, status);
		return XPORT_OK;
	default:
		return xpi_list_linked(&op->link) ? withdraw_rma(op, status) : withdraw_runs(op, status);
	}
}

/* ---- for the application and the peer ---- */

int xpi_cancel(struct xport *x, uint64_t id)
{
	struct xpi_op *op = xpi_op_find(x, id);
	unsigned what = op != NULL ? xpi_op_what(op) : 0;
	int r;

	xpi_assert_locked(x);
	if (op != NULL && op->kind == XPI_OP_GHOST && (op->tag == XPORT_OP_SEND || op->tag == XPORT_OP_RECV) &&
	    xpi_op_find(x, op->offset) != NULL)
		return xpi_refuse(x, XPORT_ERR_BUSY, "xport_cancel",
		                  "the operation has ended by its deadline, or was cancelled: reap its completion");
	if (what != XPORT_OP_RECV && what != XPORT_OP_SEND && what != XPORT_OP_RECV_END)
		return xpi_refuse(x, XPORT_ERR_INVALID, "xport_cancel", "no posted receive or send has this id");
	if (what == XPORT_OP_RECV_END)
		return xpi_refuse(x, XPORT_ERR_BUSY, "xport_cancel", "the receive has ended: reap its completion");
	if (what == XPORT_OP_RECV && !op->posted)
		return xpi_refuse(
			x, XPORT_ERR_BUSY, "xport_cancel",
			op->kind < XPI_OP_MULTI
				? "the receive was matched already"
				: "the receive takes no more messages: it ends once those being fetched are here");
	if (what == XPORT_OP_SEND && !xpi_op_ended(op) && (op->kind < XPI_OP_LIST || !xpi_pieces_of(op)->copied))
		return xpi_refuse(x, XPORT_ERR_INVALID, "xport_cancel", "the send was posted without XPORT_CANCELABLE");
	if (what == XPORT_OP_SEND && (xpi_op_ended(op) || op->mask != UINT64_MAX || op->ep->state > XPI_EP_CLOSING))
		return xpi_refuse(x, XPORT_ERR_BUSY, "xport_cancel",
		                  "a receive has matched the message already, or the send has ended");
	r = xpi_withdraw(x, op, XPORT_ERR_CANCELED);
	return r == XPORT_OK ? XPORT_OK : xpi_refuse(x, r, "xport_cancel", "no memory for another operation");
}

bool xpi_withdrawn(struct xport_ep *ep, uint64_t tag, uint32_t rts, uint32_t into)
{
	struct xport *x = ep->x;
	struct xpi_op *op = into != 0 ? xpi_op_named(ep, into) : NULL;
	struct xpi_unexpected *u;

	xpi_assert_locked(x);
	if (op != NULL && xpi_op_what(op) == XPORT_OP_RECV && op->waits == XPI_WAIT_REPLY) {
		op->waits = 0;
		xpi_op_complete(op, XPORT_ERR_CANCELED);
		return true;
	}
	if (into != 0) {
		op = ghost_named(ep, into, XPORT_OP_RECV);
		if (op != NULL)
			ghost_end(ep, op);
		return op != NULL;
	}
	u = rts != 0 ? xpi_match_withdrawn(x->match, ep, tag, rts) : NULL;
	if (u == NULL)
		return rts != 0; /* it has matched, and the CTS says so */
	xpi_msg_drop(x, u);
	op = xpi_op_get(x, ep, XPI_OP_CTS);
	if (op == NULL) {
		xpi_ep_fail(ep, XPORT_ERR_NO_MEMORY, XPORT_EVENT_LOST);
		return true;
	}
	op->region = rts;
	op->tag = op->offset = op->len = 0;
	xpi_list_push(&ep->reply.q, &op->link);
	xpi_work(ep);
	return true;
}
