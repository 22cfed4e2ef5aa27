/* SPDX-License-Identifier: BSD-3-Clause */
/* msg_tx.c - sends and notifications on their way out. */
#include <string.h>

#include "core/object/ep.h"
#include "core/object/locked.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/object/rkey.h"
#include "core/object/wakeup.h"
#include "core/protocol/accepted.h"
#include "core/protocol/cma.h"
#include "core/protocol/msg.h"
#include "core/protocol/msg_step.h"
#include "core/protocol/rma.h"
#include "core/protocol/tx.h"
#include "core/wire/frame.h"

size_t xpi_msg_notify_max(const struct xport_ep *ep)
{
	return xpi_tx_room(ep, sizeof(struct xpi_rec_notify));
}

size_t xpi_msg_eager_max(const struct xport_ep *ep)
{
	return xpi_msg_eager_max_inline(ep);
}

bool xpi_msg_open(const struct xport_ep *ep)
{
	return xpi_list_empty(&ep->msg.q) && xpi_msg_window_takes(ep, xpi_charge(0));
}

/* ---- handing over ---- */

int xpi_msg_notify_step(struct xport_ep *ep, struct xpi_op *op)
{
	bool told = op->kind == XPI_OP_TOLD;
	bool tracked = !told && (op->flags & (XPORT_LOCAL | XPORT_QUIET)) == 0;
	uint32_t len = told ? 0 : (uint32_t)op->len;
	struct xpi_rec_notify *rec = NULL;

	if (xpi_msg_window_takes(ep, xpi_charge(0)))
		rec = xpi_tx_begin(ep, sizeof(*rec), len);
	if (rec == NULL)
		return XPORT_ERR_AGAIN;
	*rec = (struct xpi_rec_notify){
		.r = {.type = XPI_REC_NOTIFY, .b = htole16(told ? (uint16_t)op->mask : 0), .len = htole32(len)},
		.region = htole64(op->region),
		.offset = htole64(op->offset),
		.length = htole64(op->len),
		.value = htole64(op->tag),
		.op = htole32(told      ? XPI_OP_NOBODY
	                      : tracked ? xpi_op_name(ep->x, op)
	                                : 0),
	};
	if (xpi_tx_end(ep, op, sizeof(*rec), op->buf, len, tracked ? XPI_FRAME_ACK_NOW : 0) < 0)
		return XPORT_ERR_AGAIN;
	ep->msg.used += xpi_charge(0);
	ep->tx.change_seq = xpi_tx_seq(ep);
	op->waits = 0;
	if (tracked) {
		op->waits = XPI_WAIT_ACK;
		op->seq = ep->tx.change_seq;
	}
	if (!told) {
		xpi_tx_own(ep);
		ep->n.slow_messages++;
	} else {
		xpi_tx_own_extra(ep);
		ep->rma.ntold--;
		if (ep->x->backpressure.wanted)
			xpi_signal(ep->x);
	}
	xpi_op_settle(op);
	return XPORT_OK;
}

int xpi_msg_rts_step(struct xport_ep *ep, struct xpi_op *op)
{
	struct xpi_rec_rts rec = {
		.r = {.type = XPI_REC_RTS},
		.tag = htole64(op->tag),
		.length = htole64(op->len),
		.op = htole32(xpi_op_name(ep->x, op)),
	};

	if (!xpi_msg_window_takes(ep, xpi_charge(0)) || xpi_tx_record(ep, NULL, &rec.r, sizeof(rec), NULL, 0) < 0)
		return XPORT_ERR_AGAIN;
	ep->msg.used += xpi_charge(0);
	op->waits = XPI_WAIT_REPLY;
	xpi_op_settle(op);
	return XPORT_OK;
}

/* All operations except sends and notifications of one buffer. */
static __attribute__((noinline)) int unusual_step(struct xport_ep *ep, struct xpi_op *op)
{
	if (op->kind >= XPI_OP_LIST)
		return xpi_msg_list_step(ep, op);
	return op->kind == XPI_OP_ACCEPTED ? xpi_accepted_step(ep, op) : xpi_msg_step_inline(ep, op);
}

int xpi_msg_step(struct xport_ep *ep, struct xpi_op *op)
{
	return op->kind >= XPI_OP_FENCE ? unusual_step(ep, op) : xpi_msg_step_inline(ep, op);
}

void xpi_msg_start(struct xport_ep *ep, struct xpi_op *op)
{
	xpi_assert_locked(ep->x);
	xpi_msg_start_inline(ep, op);
}

void xpi_msg_pump(struct xport_ep *ep)
{
	xpi_assert_locked(ep->x);
	while (!xpi_list_empty(&ep->msg.q))
		if (xpi_msg_step(ep, xpi_container(ep->msg.q.next, struct xpi_op, link)) != XPORT_OK)
			return;
}

static int body_cma_step(struct xport_ep *ep, struct xpi_op *op)
{
	struct xpi_rec_cma rec = {.r = {.a = XPI_REC_DATA}, .op = htole32((uint32_t)op->region)};
	int r = xpi_cma_step(ep, op, &rec, op->mask);

	if (r != XPORT_OK)
		return r;
	ep->n.cma++;
	xpi_op_settle(op);
	return XPORT_OK;
}

/* By the network, to where it belongs; that it is there goes in a frame. */
static int body_put_step(struct xport_ep *ep, struct xpi_op *op)
{
	struct xpi_rec_placed rec = {
		.r = {.type = XPI_REC_PLACED}, .length = htole64(op->mask), .into = htole32((uint32_t)op->region)};
	int r;

	if (!op->rkey->native || op->rkey->put != XPI_ROUTE_NATIVE)
		return XPORT_ERR_NOT_SUPPORTED;
	if (op->after_native == UINT64_MAX) {
		r = xpi_native_pieces(ep, op, op->after, op->mask);
		if (r != XPORT_OK) /* others need not wait for a piece that is under way */
			return r == XPORT_ERR_AGAIN && op->pending > 0 ? XPORT_ERR_BUSY : r;
		op->after_native = ++ep->rma.native_posted;
		ep->n.slow_native++;
	}
	if (!xpi_native_ready(ep, op->after_native))
		return XPORT_ERR_BUSY;
	if (xpi_tx_record(ep, NULL, &rec.r, sizeof(rec), NULL, 0) < 0)
		return XPORT_ERR_AGAIN;
	op->waits = 0;
	xpi_op_settle(op);
	return XPORT_OK;
}

int xpi_msg_body_step(struct xport_ep *ep, struct xpi_op *op)
{
	struct xpi_rec_data rec = {.r = {.type = XPI_REC_DATA}, .into = htole32((uint32_t)op->region)};
	size_t room = xpi_tx_room(ep, sizeof(rec));
	uint64_t left = op->mask - op->done;
	int r;

	if (op->rkey != NULL) {
		r = body_put_step(ep, op);
		if (r != XPORT_ERR_NOT_SUPPORTED)
			return r;
		xpi_rkey_idle(op->rkey);
		op->rkey = NULL;
	}
	r = xpi_cma_may(ep, op, op->mask);
	if (r != XPORT_ERR_NOT_SUPPORTED)
		return r == XPORT_OK ? body_cma_step(ep, op) : r;
	if (left > 0) {
		uint32_t n = (uint32_t)(left < room ? left : room);

		rec.r.len = htole32(n);
		rec.at = htole64(op->done);
		if (xpi_tx_record(ep, op, &rec.r, sizeof(rec), op->buf + op->done, 0) < 0)
			return XPORT_ERR_AGAIN;
		op->done += n;
	}
	if (op->done == op->mask) {
		ep->n.slow_messages++;
		op->waits = 0;
		xpi_op_settle(op);
	}
	return XPORT_OK;
}
