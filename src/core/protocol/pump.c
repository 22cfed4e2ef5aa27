/* SPDX-License-Identifier: BSD-3-Clause */
/* pump.c - sending what an endpoint owes: answers to the peer in turns, then operations, then the acknowledgement. */
#include "core/protocol/pump.h"

#include <string.h>

#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/mr.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/object/rkey.h"
#include "core/protocol/cma.h"
#include "core/protocol/keys.h"
#include "core/protocol/msg.h"
#include "core/protocol/rma.h"
#include "core/protocol/target.h"
#include "core/protocol/tx.h"
#include "core/wire/frame.h"

/* Pieces of one reply before the next has its turn. */
enum { REPLY_BURST = 8 };

static int get_reply_cma_step(struct xport_ep *ep, struct xpi_op *op)
{
	struct xpi_rec_cma rec = {.r = {.a = XPI_REC_GETDATA}, .op = htole32((uint32_t)op->region)};
	int r = xpi_cma_step(ep, op, &rec, op->len);

	if (r != XPORT_OK)
		return r;
	ep->reply.nserving--;
	xpi_op_settle(op);
	return XPORT_OK;
}

static int get_reply_step(struct xport_ep *ep, struct xpi_op *op)
{
	size_t room = xpi_tx_room(ep, sizeof(struct xpi_rec_getdata));
	uint64_t left = op->len - op->done;
	uint32_t n = (uint32_t)(left < room ? left : room);
	struct xpi_rec_getdata *rec;
	int r;

	r = xpi_cma_may(ep, op, op->len);
	if (r != XPORT_ERR_NOT_SUPPORTED)
		return r == XPORT_OK ? get_reply_cma_step(ep, op) : r;
	rec = xpi_tx_begin(ep, sizeof(*rec), n);
	if (rec == NULL)
		return XPORT_ERR_AGAIN;
	*rec = (struct xpi_rec_getdata){
		.r = {.type = XPI_REC_GETDATA, .len = htole32(n)},
		.at = htole64(op->done),
		.op = htole32((uint32_t)op->region),
	};
	if (xpi_tx_end(ep, op, sizeof(*rec), op->buf + op->done, n, 0) < 0)
		return XPORT_ERR_AGAIN;
	op->done += n;
	if (op->done == op->len) {
		ep->reply.nserving--;
		op->waits = 0;
		xpi_op_settle(op);
	}
	return XPORT_OK;
}

static int value_step(struct xport_ep *ep, struct xpi_op *op)
{
	struct xpi_rec_value *rec = xpi_tx_begin(ep, sizeof(*rec), 0);

	if (rec == NULL)
		return XPORT_ERR_AGAIN;
	xpi_value_write(rec, (uint32_t)op->region, op->tag);
	if (xpi_tx_end(ep, NULL, sizeof(*rec), NULL, 0, 0) < 0)
		return XPORT_ERR_AGAIN;
	xpi_op_complete(op, XPORT_OK);
	return XPORT_OK;
}

/* Whether it would arrive after all native puts that were there when this was asked first. */
static bool follows_puts(struct xport_ep *ep, struct xpi_op *op)
{
	if (op->after_native == UINT64_MAX)
		op->after_native = ep->rma.native_posted;
	return xpi_native_ready(ep, op->after_native);
}

/* A region that ends, or has no key, is not lent after all: what is received into it comes in frames. */
static int lend_step(struct xport_ep *ep, struct xpi_op *op)
{
	struct xpi_rec_lend rec = {.r = {.type = XPI_REC_LEND}, .region = htole64(op->region)};
	uint8_t native[XPI_NATIVE_KEY_MAX], *at;
	size_t len = sizeof(native);
	int rc = XPORT_ERR_NOT_SUPPORTED;
	struct xport_mr *mr;

	xpi_mr_check(ep->x, op->region, 0, 0, UINT32_MAX, &mr, &at);
	if (mr != NULL)
		rc = xpi_mr_native_key(mr, ep->tp, ep, native, &len);
	if (rc == XPORT_ERR_AGAIN)
		return rc;
	if (rc == XPORT_OK && len > 0) {
		rec.r.len = htole32((uint32_t)len);
		rec.length = htole64(mr->length);
		if (xpi_tx_record(ep, NULL, &rec.r, sizeof(rec), native, 0) < 0)
			return XPORT_ERR_AGAIN;
	}
	xpi_op_complete(op, XPORT_OK);
	return XPORT_OK;
}

/*
 * A key that does not fit the peer's frames is not sent. It is packed, or the back end might read it after this returned. First
 * there is space for it: the back end may send something before each key. If it cannot yet, the other answers come first,
 * and xpi_ep_attend or the next acknowledgement tries again.
 */
static int grant_step(struct xport_ep *ep, struct xpi_op *op)
{
	struct xpi_rec_key rec = {.r = {.type = XPI_REC_GRANT}, .region = htole64(op->region)};
	uint8_t native[XPI_NATIVE_KEY_MAX];
	size_t len = sizeof(native);
	/* Of many the peer takes some first, and says so. */
	unsigned flags = op->link.next != &ep->reply.q ? XPI_FRAME_ACK_NOW : 0;

	if (ep->tx.bye_sent) {
		xpi_op_complete(op, XPORT_OK);
		return XPORT_OK;
	}
	if (!xpi_tx_reserve(ep, sizeof(rec) + ep->tp->caps.rkey_native_max))
		return XPORT_ERR_AGAIN;
	if (xpi_mr_granted(ep, op->region, native, &len) == XPORT_ERR_AGAIN)
		return XPORT_ERR_BUSY;
	if (sizeof(struct xpi_frame_head) + sizeof(rec) + len > ep->tx.pack_max)
		len = 0;
	if (len > XPI_LONE_DATA && !xpi_tx_open_packed(ep, sizeof(rec) + len))
		return XPORT_ERR_AGAIN;
	rec.r.len = htole32((uint32_t)len);
	if (xpi_tx_record(ep, NULL, &rec.r, sizeof(rec), native, flags) < 0)
		return XPORT_ERR_AGAIN;
	xpi_op_complete(op, XPORT_OK);
	return XPORT_OK;
}

static int short_reply_step(struct xport_ep *ep, struct xpi_op *op)
{
	struct xpi_rec_cts cts = {.r = {.type = XPI_REC_CTS},
	                          .accept = htole64(op->tag),
	                          .op = htole32((uint32_t)op->region),
	                          .into = htole32((uint32_t)op->offset)};
	struct xpi_rec_key key = {.r = {.type = XPI_REC_REVOKED}, .region = htole64(op->region)};
	struct xpi_rec_key answer = {.r = {.type = XPI_REC_CMA_ANSWER}, .region = htole64(op->region)};
	struct xpi_rec_withdraw withdraw = {.r = {.type = XPI_REC_WITHDRAW},
	                                    .tag = htole64(op->tag),
	                                    .op = htole32((uint32_t)op->region),
	                                    .into = htole32((uint32_t)op->offset)};
	struct xpi_cts_place place;
	struct xpi_rec bye = {.type = XPI_REC_BYE};
	const void *data = NULL;
	unsigned flags = 0;
	struct xpi_rec *rec = &bye;
	size_t len = sizeof(bye);

	switch (op->kind) {
	case XPI_OP_CTS:
		if (op->len > 0) {
			place = (struct xpi_cts_place){htole64(op->after), htole64(op->after_native)};
			cts.r.len = htole32(sizeof(place));
			data = &place;
		}
		rec = &cts.r;
		len = sizeof(cts);
		break;
	case XPI_OP_REVOKED:
		/* Later: while native operations use it, or what they have put may not be there yet.  xpi_rkey_idle and
		 * xpi_drained see to it. */
		if (!xpi_rkey_revoke(ep, op->region) || !follows_puts(ep, op))
			return XPORT_ERR_BUSY;
		rec = &key.r;
		len = sizeof(key);
		break;
	case XPI_OP_CLAIM:
	case XPI_OP_REVOKE:
	case XPI_OP_GONE:
		key.r.type = op->kind == XPI_OP_CLAIM ? XPI_REC_CLAIM : XPI_REC_REVOKE;
		rec = &key.r;
		len = sizeof(key);
		break;
	case XPI_OP_WITHDRAW:
		rec = &withdraw.r;
		len = sizeof(withdraw);
		break;
	case XPI_OP_CMA_ANSWER:
		rec = &answer.r;
		len = sizeof(answer);
		break;
	case XPI_OP_ADOPT:
		xpi_rkey_adopt(ep, op->region);
		xpi_op_complete(op, XPORT_OK);
		return XPORT_OK;
	default:
		if (!follows_puts(ep, op))
			return XPORT_ERR_BUSY;
		flags = XPI_FRAME_ACK_NOW;
	}
	if (xpi_tx_record(ep, NULL, rec, len, data, flags) < 0)
		return XPORT_ERR_AGAIN;
	if (op->kind == XPI_OP_BYE) {
		ep->tx.bye_seq = xpi_tx_seq(ep);
		ep->tx.bye_sent = true;
	}
	if (op->kind == XPI_OP_CTS)
		xpi_msg_consumed(ep, xpi_charge(0));
	xpi_op_complete(op, XPORT_OK);
	return XPORT_OK;
}

static int reply_step(struct xport_ep *ep, struct xpi_op *op)
{
	if (op->kind == XPI_OP_REPLY)
		return get_reply_step(ep, op);
	if (op->kind == XPORT_OP_SEND)
		return xpi_msg_body_step(ep, op);
	if (op->kind == XPI_OP_VALUE)
		return value_step(ep, op);
	if (op->kind == XPI_OP_LEND)
		return lend_step(ep, op);
	if (op->kind == XPI_OP_GRANT)
		return grant_step(ep, op);
	if (op->kind >= XPI_OP_LIST)
		return xpi_msg_list_body_step(ep, op);
	return short_reply_step(ep, op);
}

static void to_the_end(struct xpi_list *queue, struct xpi_op *op)
{
	xpi_list_del(&op->link);
	xpi_list_push(queue, &op->link);
}

/*
 * Each has its turn for a few pieces, so that a long one does not hold up the others.  One that waits for operations of
 * ours, BUSY, lets the others by: what those operations wait for may be the peer's to send once it has its answers.  So does one
 * whose data the peer has not read yet; if it had a part of it read, the others come before it the next time.
 */
static void reply_pump(struct xport_ep *ep)
{
	struct xpi_list wait, had;
	int r = XPORT_OK;

	xpi_list_init(&wait);
	xpi_list_init(&had);
	while (!xpi_list_empty(&ep->reply.q) && (r == XPORT_OK || r == XPORT_ERR_BUSY)) {
		struct xpi_op *op = xpi_container(ep->reply.q.next, struct xpi_op, link);
		uint64_t done = op->done;
		int i = 0;

		do
			r = reply_step(ep, op);
		while (r == XPORT_OK && ep->reply.q.next == &op->link && ++i < REPLY_BURST);
		if (r == XPORT_ERR_BUSY)
			to_the_end(op->done == done ? &wait : &had, op);
		else if (r == XPORT_OK && ep->reply.q.next == &op->link)
			to_the_end(&ep->reply.q, op);
	}
	while (!xpi_list_empty(&wait))
		to_the_end(&ep->reply.q, xpi_container(wait.next, struct xpi_op, link));
	while (!xpi_list_empty(&had))
		to_the_end(&ep->reply.q, xpi_container(had.next, struct xpi_op, link));
}

static void placing_pump(struct xport_ep *ep)
{
	if (!xpi_list_empty(&ep->placing))
		xpi_confirm_placed(ep);
}

/*
 * Not all that waits could be sent: a queue that is never empty, as that of replies to a peer that goes on reading, would
 * take whatever room there is.  So each is the first in its turn, which passes on behind the first that sent something.
 */
static __attribute__((cold)) void pump_in_turn(struct xport_ep *ep)
{
	static void (*const pumps[])(struct xport_ep *) = {reply_pump, placing_pump, xpi_rma_pump, xpi_msg_pump};
	const unsigned n = sizeof(pumps) / sizeof(pumps[0]), first = ep->reply.turn;
	bool sent = false;

	for (unsigned i = 0; i < n; i++) {
		unsigned at = (first + i) % n;
		uint64_t before = ep->rma.q_sent + xpi_tx_seq(ep);

		pumps[at](ep);
		if (!sent && ep->rma.q_sent + xpi_tx_seq(ep) != before) {
			ep->reply.turn = (uint8_t)((at + 1) % n);
			sent = true;
		}
	}
	if (sent && !ep->tx.blocked) /* what was asked first may have waited for that */
		xpi_work(ep);
}

void xpi_ep_pump(struct xport_ep *ep)
{
	xpi_assert_locked(ep->x);
	if (ep->state >= XPI_EP_FAILING) /* LCOV_EXCL_BR_LINE: it left the list of work as it failed */
		return;
	/* Of several answers, or operations, none leaves before the others. */
	if (xpi_tx_alone(ep) && (ep->reply.q.next->next != &ep->reply.q || ep->rma.busy || !xpi_list_empty(&ep->msg.q)))
		ep->tx.epoch = ep->x->epoch;
	if (__builtin_expect(ep->tx.blocked, 0)) {
		ep->tx.blocked = false;
		pump_in_turn(ep);
	} else {
		reply_pump(ep);
		placing_pump(ep);
		if (ep->rma.busy)
			xpi_rma_pump(ep);
		if (!xpi_list_empty(&ep->msg.q))
			xpi_msg_pump(ep);
	}
	xpi_tx_flush(ep);
	if ((ep->rx.ack_now && ep->rx.acked.ack != ep->rx.state.ack) || !xpi_list_empty(&ep->reply.q_nak) ||
	    ep->tx.nak != NULL || ep->rx.state.ack - ep->rx.acked.ack >= ep->rx.credits / 2 ||
	    ep->rx.state.freed - ep->rx.acked.freed >= ep->msg.window / 4)
		xpi_tx_control(ep);
	if (ep->rx.acked.ack == ep->rx.state.ack)
		ep->rx.ack_now = false;
}
