/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/serve.h"

#include <string.h>

#include "base/copy.h"
#include "base/word.h"
#include "core/cma.h"
#include "core/conn.h"
#include "core/msg.h"
#include "core/rkey.h"
#include "core/rma.h"
#include "core/tx.h"

/* ---- requests ---- */

/* What a peer that takes its answers, packs its frames as we do, and keeps to its credits, can be owed several times over. */
static uint32_t owed_max(const struct xport_ep *ep)
{
	size_t packed = ep->x->caps.am_max < XPI_PACKED_MAX ? ep->x->caps.am_max : XPI_PACKED_MAX;

	return 4 * ep->rx_credits * (uint32_t)(packed / sizeof(struct xpi_rec_key));
}

/* An answer to be sent.  Out of memory, or more owed than a peer may ask for, ends the endpoint: NULL. */
static struct xpi_op *reply_new(struct xport_ep *ep, unsigned kind)
{
	struct xpi_op *op;

	if (xpi_op_owed(kind) && ep->owed >= owed_max(ep)) {
		xpi_log(ep->x->log, XPORT_LOG_WARN, "0015",
		        "%s: the peer asks and does not take the answers: %u are owed", ep->peer, (unsigned)ep->owed);
		xpi_ep_fail(ep, XPORT_ERR_PROTOCOL, XPORT_EVENT_LOST);
		return NULL;
	}
	op = xpi_op_get(ep->x, ep, kind);
	if (op == NULL) {
		xpi_ep_fail(ep, XPORT_ERR_NO_MEMORY, XPORT_EVENT_LOST);
		return NULL;
	}
	ep->owed += xpi_op_owed(kind);
	xpi_work(ep);
	return op;
}

/* Tells the peer, before the frame that asked is acknowledged. */
static void refuse(struct xport_ep *ep, uint32_t name, int status)
{
	struct xpi_op *op = reply_new(ep, XPI_OP_NAK);

	if (op == NULL)
		return;
	xpi_log(ep->x->log, XPORT_LOG_INFO, "0013", "%s: refused an access: %s", ep->peer, xport_status_name(status));
	if (!ep->nak_hold) {
		ep->nak_hold = true;
		ep->quick = 0;
		ep->nak_seq = ep->seen.ack - 1;
	}
	op->region = name;
	op->status = status;
	xpi_list_push(&ep->q_nak, &op->link);
}

/* Where a put belongs; NULL: it was refused. */
static inline uint8_t *put_place(struct xport_ep *ep, uint64_t region, uint64_t offset, uint64_t len, uint32_t name)
{
	struct xport_mr *mr;
	uint8_t *at;
	int r = xpi_mr_check(ep->x, region, offset, len, XPORT_REMOTE_WRITE, &mr, &at);

	if (__builtin_expect(r == XPORT_OK, 1))
		return at;
	refuse(ep, name, r);
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

bool xpi_serve_put_cma(struct xport_ep *ep, const struct xpi_rec_cma *rec)
{
	uint8_t *at = put_place(ep, le64toh(rec->region), le64toh(rec->offset), le64toh(rec->length), le32toh(rec->op));

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
	xpi_tx_append(ep->open, sizeof(*rec), at, length, 0);
	return true;
}

bool xpi_serve_get(struct xport_ep *ep, uint64_t region, uint64_t offset, uint64_t length, uint32_t name)
{
	struct xport_mr *mr;
	struct xpi_op *op;
	uint8_t *at;
	int r;

	if (name == 0 || length == 0 || ep->nserving >= XPI_REQUESTS)
		return false;
	r = xpi_mr_check(ep->x, region, offset, length, XPORT_REMOTE_READ, &mr, &at);
	if (r != XPORT_OK) {
		refuse(ep, name, r);
		return true;
	}
	if (get_at_once(ep, at, length, name))
		return true;
	op = reply_new(ep, XPI_OP_REPLY);
	if (op == NULL)
		return true;
	op->region = name;
	op->buf = at;
	op->len = length;
	op->offset = 0;
	op->mr = mr;
	op->waits = XPI_WAIT_SENT;
	mr->serving++;
	ep->nserving++;
	xpi_list_push(&ep->q_reply, &op->link);
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
		refuse(ep, a->op, r);
		return true;
	}
	/* Room for the answer first: what was applied must be answered. */
	if (a->fetch) {
		rec = xpi_tx_aside(ep, sizeof(*rec));
		op = rec == NULL ? reply_new(ep, XPI_OP_VALUE) : NULL;
		if (rec == NULL && op == NULL)
			return true;
	}
	old = xpi_word_change(at, a->width, a->code, a->operand, a->compare);
	if (rec != NULL) {
		xpi_value_write(rec, a->op, old);
		xpi_tx_append(ep->open, sizeof(*rec), NULL, 0, 0);
	} else if (op != NULL) {
		op->region = a->op;
		op->tag = old;
		xpi_list_push(&ep->q_reply, &op->link);
	}
	return true;
}

bool xpi_serve_notify(struct xport_ep *ep, const struct xpi_notify_request *n)
{
	struct xport_mr *mr;
	struct xpi_op *op;
	uint8_t *at;
	int r = xpi_mr_check(ep->x, n->region, n->offset, n->length, XPORT_REMOTE_WRITE, &mr, &at);

	ep->rx_charged += xpi_charge(0);
	if (ep->rx_charged - ep->seen.freed > ep->window)
		return false;
	if (r != XPORT_OK) {
		xpi_msg_consumed(ep, xpi_charge(0));
		if (n->op != XPI_OP_NOBODY)
			refuse(ep, n->op, r);
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
	op->offset = n->offset;
	op->mr = n->length > 0 ? mr : NULL;
	op->charge = xpi_charge(0);
	ep->n.notified++;
	ep->refs++;
	xpi_cq_push(&ep->x->cq, op);
	return true;
}

void xpi_tell_key(struct xport_ep *ep, unsigned kind, uint64_t region)
{
	struct xpi_op *op = reply_new(ep, kind);

	if (op == NULL)
		return;
	op->region = region;
	op->after_native = UINT64_MAX;
	xpi_list_push(&ep->q_reply, &op->link);
}

bool xpi_lend_key(struct xport_ep *ep, uint64_t region)
{
	struct xpi_op *op = xpi_op_get(ep->x, ep, XPI_OP_LEND);

	if (op == NULL)
		return false;
	op->region = region;
	xpi_list_push(&ep->q_reply, &op->link);
	xpi_work(ep);
	return true;
}

/* What is not granted goes on by message, which is checked each time; but not what the adapter carries, which waits. */
static void on_claim(struct xport_ep *ep, uint64_t region)
{
	struct xport_mr *mr;
	uint8_t *at;

	if (xpi_mr_claim(ep, region)) {
		xpi_tell_key(ep, XPI_OP_GRANT, region);
		return;
	}
	xpi_mr_check(ep->x, region, 0, 0, UINT32_MAX, &mr, &at);
	if (mr == NULL)
		xpi_tell_key(ep, XPI_OP_GONE, region);
	else if (mr->by_adapter)
		xpi_ep_fail(ep, XPORT_ERR_NO_MEMORY, XPORT_EVENT_LOST);
}

void xpi_serve_key(struct xport_ep *ep, unsigned record, uint64_t region)
{
	switch (record) {
	case XPI_REC_CLAIM:
		on_claim(ep, region);
		break;
	case XPI_REC_GRANT: /* the back end is not to be called from here */
		xpi_tell_key(ep, XPI_OP_ADOPT, region);
		break;
	case XPI_REC_REVOKE:
		xpi_rkey_revoke(ep, region);
		xpi_tell_key(ep, XPI_OP_REVOKED, region);
		break;
	default:
		xpi_mr_revoked(ep, region);
	}
}

/* ---- answers ---- */

static void request_end(struct xport_ep *ep, struct xpi_op *op, int status)
{
	ep->nrequests--;
	op->waits = 0;
	if (__builtin_expect(xpi_op_plain(op) && status == XPORT_OK, 1)) {
		xpi_list_del(&op->link);
		ep->ngets -= op->kind == XPORT_OP_GET;
		op->status = status;
		xpi_cq_push(&ep->x->cq, op);
	} else {
		xpi_op_complete(op, status);
	}
	if (ep->q_busy)
		xpi_work(ep);
}

/* The get of that name, if it goes on there and has room for so much; else NULL. */
static struct xpi_op *get_named(struct xport_ep *ep, uint32_t name, uint64_t at, uint64_t len)
{
	struct xpi_op *op = xpi_op_named(ep, name);

	return op != NULL && op->kind == XPORT_OP_GET && op->waits == XPI_WAIT_REPLY && at == op->done &&
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
		return false;
	memcpy(op->buf + at, data, len);
	get_goes_on(ep, op, len);
	return true;
}

bool xpi_answer_data_cma(struct xport_ep *ep, const struct xpi_rec_cma *rec)
{
	struct xpi_op *op = get_named(ep, le32toh(rec->op), le64toh(rec->at), le64toh(rec->length));

	if (op == NULL || !xpi_cma_read(ep, rec, op->buf + op->done))
		return false;
	get_goes_on(ep, op, le64toh(rec->length));
	return true;
}

bool xpi_answer_value(struct xport_ep *ep, uint32_t name, uint64_t value)
{
	struct xpi_op *op = xpi_op_named(ep, name);

	if (op == NULL || op->kind != XPORT_OP_ATOMIC || op->waits != XPI_WAIT_REPLY)
		return false;
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
	if (op == NULL || (op->kind != XPORT_OP_PUT && op->kind != XPORT_OP_GET && op->kind != XPORT_OP_ATOMIC &&
	                   op->kind != XPORT_OP_PUT_NOTIFY))
		return false;
	if (op->waits == XPI_WAIT_REPLY)
		request_end(ep, op, status);
	else if (op->status == XPORT_OK)
		op->status = status;
	return true;
}

uint32_t xpi_unexpected_max(const struct xport_ep *ep)
{
	return (uint32_t)ep->x->caps.am_max;
}
