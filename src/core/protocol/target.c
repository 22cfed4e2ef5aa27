/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/protocol/target.h"

#include <stdlib.h>
#include <string.h>

#include "base/copy.h"
#include "base/word.h"
#include "core/object/completion.h"
#include "core/object/ep.h"
#include "core/object/mr.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/protocol/cma.h"
#include "core/protocol/msg.h"
#include "core/protocol/reply_queue.h"
#include "core/protocol/tx.h"
#include "core/protocol/withdraw.h"
#include "core/wire/frame.h"

/* ---- requests ---- */

/* Where a put belongs; NULL: it was refused. */
static inline uint8_t *put_place(struct xport_ep *ep, uint64_t region, uint64_t offset, uint64_t len, uint32_t name)
{
	struct xport_mr *mr;
	uint8_t *at;
	int r = xpi_mr_check(ep->x, region, offset, len, XPORT_REMOTE_WRITE, &mr, &at);

	if (__builtin_expect(r == XPORT_OK, 1))
		return at;
	xpi_reply_refuse(ep, name, r);
	return NULL;
}

void xpi_serve_put(struct xport_ep *ep, uint64_t region, uint64_t offset, const uint8_t *data, uint32_t len,
                   uint32_t name)
{
	uint8_t *at = put_place(ep, region, offset, len, name);

	if (at == NULL)
		return;
	xpi_copy_out(at, data, len);
}

/* Remembers of the data of a notification whether they were refused: by then their region may be gone, or not yet. */
static void note_ahead(struct xport_ep *ep, uint16_t number, bool placed)
{
	enum { NUMBERS = UINT16_MAX + 1 };

	uint8_t bit = (uint8_t)(1u << number % 8);

	if (placed) {
		ep->reply.wrote = true;
		if (ep->reply.ahead_refused != NULL) /* of a put that was withdrawn, with its notification */
			ep->reply.ahead_refused[number / 8] &= (uint8_t)~bit;
		return;
	}
	if (ep->reply.ahead_refused == NULL)
		ep->reply.ahead_refused = calloc(NUMBERS / 8, 1);
	if (ep->reply.ahead_refused != NULL)
		ep->reply.ahead_refused[number / 8] |= bit;
	else
		xpi_ep_fail(ep, XPORT_ERR_NO_MEMORY, XPORT_EVENT_LOST);
}

/*
 * Whether the data of a notification are where they belong although their region is gone.  What was refused by message is
 * known; what the network carried, or a copy, was placed before the region could end.  A peer that never could write has
 * placed nothing.
 */
static bool is_placed(struct xport_ep *ep, const struct xpi_notify_request *n)
{
	uint8_t bit = (uint8_t)(1u << n->ahead % 8);

	if (n->ahead == 0 || n->data_len > 0 || !ep->reply.wrote)
		return false;
	if (ep->reply.ahead_refused == NULL || (ep->reply.ahead_refused[n->ahead / 8] & bit) == 0)
		return true;
	ep->reply.ahead_refused[n->ahead / 8] &= (uint8_t)~bit;
	return false;
}

void xpi_serve_put_ahead(struct xport_ep *ep, const struct xpi_rec_put *rec, const uint8_t *data, uint32_t len,
                         uint16_t number)
{
	uint8_t *at = put_place(ep, le64toh(rec->region), le64toh(rec->offset), len, le32toh(rec->op));

	note_ahead(ep, number, at != NULL);
	if (at != NULL)
		xpi_copy_out(at, data, len);
}

bool xpi_serve_put_cma(struct xport_ep *ep, const struct xpi_rec_cma *rec)
{
	uint8_t *at = put_place(ep, le64toh(rec->region), le64toh(rec->offset), le64toh(rec->length), le32toh(rec->op));

	if (rec->r.b != 0)
		note_ahead(ep, le16toh(rec->r.b), at != NULL);
	atomic_thread_fence(memory_order_release); /* as xpi_copy_out */
	return at == NULL || xpi_cma_read(ep, rec, at);
}

/* A short one is answered as it is read. */
static bool get_at_once(struct xport_ep *ep, const uint8_t *at, uint64_t length, uint32_t name)
{
	struct xpi_rec_getdata *rec = NULL;

	if (length <= XPI_COPY_MAX)
		rec = xpi_tx_aside(ep, sizeof(*rec) + length);
	if (rec == NULL)
		return false;
	*rec = (struct xpi_rec_getdata){.r = {.type = XPI_REC_GETDATA, .len = htole32((uint32_t)length)},
	                                .op = htole32(name)};
	xpi_tx_append(ep->tx.open, sizeof(*rec), at, length, 0);
	return true;
}

bool xpi_serve_get(struct xport_ep *ep, uint64_t region, uint64_t offset, uint64_t length, uint32_t name)
{
	struct xport_mr *mr;
	struct xpi_op *op;
	uint8_t *at;
	int r;

	if (name == 0 || length == 0 || ep->reply.nserving >= XPI_REQUESTS)
		return false;
	r = xpi_mr_check(ep->x, region, offset, length, XPORT_REMOTE_READ, &mr, &at);
	if (r != XPORT_OK) {
		xpi_reply_refuse(ep, name, r);
		return true;
	}
	if (get_at_once(ep, at, length, name))
		return true;
	op = xpi_reply_new(ep, XPI_OP_REPLY);
	if (op == NULL)
		return true;
	op->region = name;
	op->buf = at;
	op->len = length;
	op->offset = 0;
	op->mr = mr;
	op->waits = XPI_WAIT_SENT;
	mr->serving++;
	ep->reply.nserving++;
	xpi_list_push(&ep->reply.q, &op->link);
	return true;
}

bool xpi_serve_atomic(struct xport_ep *ep, const struct xpi_atomic_request *a)
{
	struct xpi_rec_value *rec = NULL;
	struct xpi_op *op = NULL;
	struct xport_mr *mr;
	uint8_t *at;
	uint64_t old;
	int r = xpi_mr_check(ep->x, a->region, a->offset, a->width, XPORT_REMOTE_ATOMIC, &mr, &at);

	if (r == XPORT_OK && ((uintptr_t)at & (a->width - 1)) != 0)
		r = XPORT_ERR_INVALID;
	if (r == XPORT_OK && mr->by_adapter)
		r = XPORT_ERR_NOT_SUPPORTED; /* what the adapter does is not atomic to what we do */
	if (r != XPORT_OK) {
		xpi_reply_refuse(ep, a->op, r);
		return true;
	}
	/* Room for the answer first: what was applied must be answered. */
	if (a->fetch) {
		rec = xpi_tx_aside(ep, sizeof(*rec));
		op = rec == NULL ? xpi_reply_new(ep, XPI_OP_VALUE) : NULL;
		if (rec == NULL && op == NULL)
			return true;
	}
	old = xpi_word_change(at, a->width, a->code, a->operand, a->compare);
	if (rec != NULL) {
		xpi_value_write(rec, a->op, old);
		xpi_tx_append(ep->tx.open, sizeof(*rec), NULL, 0, 0);
	} else if (op != NULL) {
		op->region = a->op;
		op->tag = old;
		xpi_list_push(&ep->reply.q, &op->link);
	}
	return true;
}

bool xpi_serve_notify(struct xport_ep *ep, const struct xpi_notify_request *n)
{
	struct xport_mr *mr;
	struct xpi_op *op;
	uint8_t *at;
	int r = xpi_mr_check(ep->x, n->region, n->offset, n->length, XPORT_REMOTE_WRITE, &mr, &at);

	ep->msg.charged += xpi_charge(0);
	if (ep->msg.charged - ep->rx.state.freed > ep->msg.window)
		return false;
	if (r != XPORT_OK && (r != XPORT_ERR_STALE_KEY || !is_placed(ep, n))) {
		xpi_msg_consumed(ep, xpi_charge(0));
		if (n->op != XPI_OP_NOBODY)
			xpi_reply_refuse(ep, n->op, r);
		return true;
	}
	op = xpi_op_get(ep->x, ep, XPORT_EVENT_NOTIFY);
	if (op == NULL) {
		xpi_ep_fail(ep, XPORT_ERR_NO_MEMORY, XPORT_EVENT_LOST);
		return true;
	}
	if (n->data_len > 0)
		xpi_copy_out(at, n->data, n->data_len);
	op->context = ep->context;
	op->tag = n->value;
	op->len = n->length;
	op->mr = n->length > 0 ? mr : NULL;
	op->offset = mr != NULL ? (uint64_t)(at - mr->base) : n->offset; /* also of a part, in its region */
	op->charge = xpi_charge(0);
	op->peer = ep->peer.incarnation;
	ep->n.notified++;
	ep->refs++;
	xpi_cq_push(&ep->x->cq, op);
	return true;
}

/* ---- answers ---- */

static void request_end(struct xport_ep *ep, struct xpi_op *op, int status)
{
	ep->rma.nrequests--;
	op->waits = 0;
	if (__builtin_expect(xpi_op_plain(op) && status == XPORT_OK, 1)) {
		xpi_list_del(&op->link);
		ep->rma.ngets -= op->kind == XPORT_OP_GET; /* runs are quiet */
		op->status = status;
		xpi_cq_push(&ep->x->cq, op);
	} else {
		xpi_op_complete(op, status);
	}
	if (ep->rma.busy)
		xpi_work(ep);
}

/* The get of that name, if it goes on there and has room for so much; else NULL. */
static struct xpi_op *get_named(struct xport_ep *ep, uint32_t name, uint64_t at, uint64_t len)
{
	struct xpi_op *op = xpi_op_named(ep, name);

	return op != NULL && xpi_op_what(op) == XPORT_OP_GET && op->waits == XPI_WAIT_REPLY && at == op->done &&
	                       len <= op->len - op->done
	               ? op
	               : NULL;
}

static void get_goes_on(struct xport_ep *ep, struct xpi_op *op, uint64_t len)
{
	op->done += len;
	if (op->done == op->len)
		request_end(ep, op, XPORT_OK);
}

bool xpi_answer_data(struct xport_ep *ep, uint32_t name, uint64_t at, const uint8_t *data, uint32_t len)
{
	struct xpi_op *op = get_named(ep, name, at, len);

	if (op == NULL)
		return xpi_ghost_data(ep, name, XPORT_OP_GET, at, len);
	memcpy(op->buf + at, data, len);
	get_goes_on(ep, op, len);
	return true;
}

bool xpi_answer_data_cma(struct xport_ep *ep, const struct xpi_rec_cma *rec)
{
	struct xpi_op *op = get_named(ep, le32toh(rec->op), le64toh(rec->at), le64toh(rec->length));

	if (op == NULL)
		return xpi_ghost_data(ep, le32toh(rec->op), XPORT_OP_GET, le64toh(rec->at), le64toh(rec->length));
	if (!xpi_cma_read(ep, rec, op->buf + op->done))
		return false;
	if (op->len - op->done == le64toh(rec->length)) { /* the request went by message, the data do not */
		ep->n.slow_messages--;
		ep->n.cma++;
	}
	get_goes_on(ep, op, le64toh(rec->length));
	return true;
}

bool xpi_answer_value(struct xport_ep *ep, uint32_t name, uint64_t value)
{
	struct xpi_op *op = xpi_op_named(ep, name);

	if (op == NULL || op->kind != XPORT_OP_ATOMIC || op->waits != XPI_WAIT_REPLY)
		return xpi_ghost_value(ep, name);
	xpi_word_give(op->buf, op->width, value);
	request_end(ep, op, XPORT_OK);
	return true;
}

bool xpi_answer_failed(struct xport_ep *ep, uint32_t name, uint32_t negated)
{
	int status = negated > 0 && negated <= 64 ? -(int)negated : XPORT_ERR_PROTOCOL;
	struct xpi_op *op;

	if (name == XPI_OP_NOBODY)
		return true;
	if (name == 0) {
		xpi_quiet_failed(ep, status);
		return true;
	}
	op = xpi_op_named(ep, name);
	if (op == NULL || (xpi_op_what(op) != XPORT_OP_PUT && xpi_op_what(op) != XPORT_OP_GET &&
	                   op->kind != XPORT_OP_ATOMIC && op->kind != XPORT_OP_PUT_NOTIFY))
		return xpi_ghost_failed(ep, name);
	if (op->waits == XPI_WAIT_REPLY)
		request_end(ep, op, status);
	else if (op->status == XPORT_OK)
		op->status = status;
	return true;
}

uint32_t xpi_unexpected_max(const struct xport_ep *ep)
{
	return (uint32_t)ep->tp->caps.am_max;
}
