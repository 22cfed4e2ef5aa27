/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/protocol/tx.h"

#include <stdio.h>
#include <string.h>

#include "core/liveness/flow.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/wire/frame.h"

/* So many refusals because memory is out, with nothing sent between them, are more than bad luck. */
enum { NOMEM_TRIES = 64 };

static bool has_credit(const struct xport_ep *ep)
{
	return ep->tx.seq - ep->tx.acked < ep->tx.credits;
}

static __attribute__((cold)) int no_room(struct xport_ep *ep)
{
	ep->tx.blocked = true;
	return XPORT_ERR_AGAIN;
}

/* What is the same in every frame of the endpoint; the flags are for emit(). */
static void put_head(struct xport_ep *ep, struct xpi_tx *tx)
{
	struct xpi_frame_head h = {.session = htole64(ep->peer.session), .slot = htole16((uint16_t)ep->peer.id)};

	memcpy(tx->buf, &h, sizeof(h));
	tx->wait.kind = XPI_WAIT_TX;
	tx->ep = ep;
	tx->op = NULL;
	tx->flags = 0;
	tx->len = sizeof(h);
}

static void tx_free(struct xpi_transport *tp, struct xpi_tx *tx)
{
	xpi_pool_put(tx->packed ? &tp->frame_pool : &tp->x->lone_pool, tx);
}

bool xpi_tx_lone(struct xport_ep *ep)
{
	if (ep->tx.lone != NULL)
		return true;
	ep->tx.lone = xpi_pool_get(&ep->x->lone_pool);
	if (ep->tx.lone == NULL)
		return false;
	ep->tx.lone->packed = false;
	put_head(ep, ep->tx.lone);
	return true;
}

/* Memory may come back; but nothing waits for it longer than for a silent peer. */
static __attribute__((cold)) void nomem_check(struct xport_ep *ep)
{
	uint64_t moved = ep->tx.seq + ep->n.emitted + ep->rma.q_sent + ep->rma.native_flushed;
	int64_t now = xpi_now_ms();
	int limit = ep->x->settings.peer_timeout_ms;

	if (ep->tx.nomem.times == 0 || ep->tx.nomem.moved != moved) {
		ep->tx.nomem.times = 0;
		ep->tx.nomem.moved = moved;
		ep->tx.nomem.since_ms = now;
	}
	if (++ep->tx.nomem.times < NOMEM_TRIES || now - ep->tx.nomem.since_ms <= limit ||
	    ep->state == XPI_EP_CONNECTING)
		return;
	snprintf(ep->end.native_why, sizeof(ep->end.native_why), "no memory to send anything for %d ms", limit);
	xpi_ep_broken_by(ep, XPORT_ERR_NO_MEMORY);
}

void xpi_refused(struct xport_ep *ep, int status)
{
	if (status == XPORT_ERR_NO_MEMORY)
		nomem_check(ep);
	else if (status != XPORT_ERR_AGAIN)
		xpi_ep_broken(ep);
	xpi_work(ep);
}

int xpi_tx_refused(struct xport_ep *ep, int status)
{
	xpi_refused(ep, status);
	return no_room(ep);
}

void xpi_tx_lone_kept(struct xport_ep *ep)
{
	xpi_list_push(&ep->tx.held, &ep->tx.lone->link);
	ep->tx.lone = NULL;
	xpi_tx_lone(ep);
}

/* Sends what is in the frame's buffer, `hlen` bytes, and data; on success the endpoint's counters have moved on. */
static inline __attribute__((always_inline)) int emit(struct xport_ep *ep, struct xpi_tx *tx, size_t hlen,
                                                      const void *data, size_t dlen, unsigned flags)
{
	struct xpi_transport *tp = ep->tp;
	struct xpi_seen told, seen = {xpi_tx_ack(ep), ep->rx.state.freed};
	uint32_t seq = (flags & XPI_FRAME_CTRL) ? ep->tx.seq : ep->tx.seq + 1;
	int r;

	if (ep->end.broken)
		return XPORT_ERR_AGAIN;
	xpi_tx_head(tx)->seq = htole32(seq);
	xpi_tx_head(tx)->flags = htole16((uint16_t)flags);
	told = ep->rx.acked;
	xpi_transport_used(tp);
	xpi_seen_tell(&xpi_tx_head(tx)->seen, &ep->rx.acked, &seen);
	r = dlen == 0 ? tp->am_send(tp->be, xpi_ep_be(ep), tx->buf, hlen, &tx->wait.req)
	              : tp->ops->am_send_two(tp->be, xpi_ep_be(ep), tx->buf, hlen, data, dlen, &tx->wait.req);
	if (__builtin_expect(r < 0, 0)) {
		ep->rx.acked = told;
		return xpi_tx_refused(ep, r);
	}
	xpi_flow_count(&ep->tx.seq, seq);
	ep->n.emitted++;
	return r;
}

/* Sends a frame that was packed; it is no longer the caller's, unless that failed. */
static int emit_packed(struct xport_ep *ep, struct xpi_tx *tx)
{
	int r = emit(ep, tx, tx->len, NULL, 0, tx->flags);

	if (r == XPI_PENDING)
		xpi_list_push(&ep->tx.held, &tx->link);
	else if (r == XPORT_OK)
		tx_free(ep->tp, tx);
	return r;
}

/*
 * Two records or more before one poll are a burst.  After one of many another one is expected, until a record comes alone; where a
 * frame costs much, after the second one in a row as well.
 */
enum { MANY = 8, AHEAD = 1 << 30 };

static void expect(struct xport_ep *ep, unsigned own)
{
	uint32_t polls = ep->x->epoch - ep->tx.epoch; /* since one left alone */
	bool expected = (int32_t)polls < 0;

	if (expected) {
		if (own == 1)
			ep->tx.epoch = ep->x->epoch - 1;
	} else if (own > 0 && own + (polls <= 1) >= 2) {
		/* In a row: there was a frame between them at most, of the one that left alone. */
		if (own >= MANY || (ep->tx.seq - ep->tx.burst_seq <= 2 && !ep->tp->caps.am_cheap))
			ep->tx.epoch = ep->x->epoch + AHEAD;
		ep->tx.burst_seq = ep->tx.seq;
	}
}

/* The records of operations in the packed frame that left. */
static unsigned count_packed(struct xport_ep *ep)
{
	struct xpi_counts *n = &ep->n;
	uint64_t packed = n->joined + n->packed, own = packed - n->packed_before;
	uint64_t operations = own - (n->packed_extra - n->packed_extra_before);

	if (operations > 1)
		n->coalesced += operations;
	n->packed_before = packed;
	n->packed_extra_before = n->packed_extra;
	return (unsigned)own;
}

int xpi_tx_flush(struct xport_ep *ep)
{
	int r;

	if (ep->tx.open == NULL)
		return XPORT_OK;
	ep->fast_left = 0; /* that counts on it, and not on credits */
	if (!has_credit(ep))
		return no_room(ep);
	r = emit_packed(ep, ep->tx.open);
	if (r < 0)
		return r;
	ep->tx.open = NULL;
	expect(ep, count_packed(ep));
	return XPORT_OK;
}

static struct xpi_tx *open_frame(struct xport_ep *ep)
{
	struct xpi_tx *tx = xpi_pool_get(&ep->tp->frame_pool);

	if (tx == NULL)
		return NULL;
	tx->packed = true;
	put_head(ep, tx);
	ep->tx.open = tx;
	ep->fast_left = 0;
	xpi_work(ep);
	return tx;
}

bool xpi_tx_open(struct xport_ep *ep, size_t n)
{
	return xpi_tx_reserve(ep, n) && (ep->tx.open != NULL || open_frame(ep) != NULL);
}

bool xpi_tx_reserve(struct xport_ep *ep, size_t n)
{
	if (ep->tx.open != NULL && !xpi_tx_fits(ep, n) && xpi_tx_flush(ep) != XPORT_OK)
		return false;
	return ep->tx.open != NULL || has_credit(ep);
}

bool xpi_tx_open_packed(struct xport_ep *ep, size_t n)
{
	if (xpi_tx_open(ep, n))
		return true;
	if (ep->tx.open == NULL && has_credit(ep))
		xpi_tx_refused(ep, XPORT_ERR_NO_MEMORY);
	else
		no_room(ep);
	return false;
}

bool xpi_tx_open_long(struct xport_ep *ep, size_t n)
{
	if (ep->tx.open != NULL && ep->tx.open->len + n > ep->tx.frame_max && xpi_tx_flush(ep) != XPORT_OK)
		return false;
	if (ep->tx.open != NULL)
		return true;
	if (!has_credit(ep)) {
		no_room(ep);
		return false;
	}
	if (open_frame(ep) != NULL)
		return true;
	xpi_tx_refused(ep, XPORT_ERR_NO_MEMORY);
	return false;
}

void xpi_tx_gathered(struct xport_ep *ep)
{
	/* No short record can join a long frame: it need not wait for the poll. */
	if (ep->tx.open != NULL && ep->tx.open->len > ep->tx.pack_max)
		(void)xpi_tx_flush(ep); /* if it fails, the pump sends it */
	else
		xpi_tx_own(ep);
}

bool xpi_tx_repack(struct xport_ep *ep, size_t rlen)
{
	const size_t head = sizeof(struct xpi_frame_head);
	struct xpi_tx *tx = open_frame(ep);

	if (tx == NULL)
		return false;
	memcpy(tx->buf + head, ep->tx.lone->buf + head, rlen);
	tx->len = (uint32_t)(head + rlen);
	ep->n.packed++;
	return true;
}

void *xpi_tx_place(struct xport_ep *ep, size_t rlen, size_t dlen)
{
	bool small = dlen <= XPI_PACK_MAX;

	if (ep->tx.open != NULL) {
		if (small && xpi_tx_fits(ep, rlen + dlen))
			return xpi_tx_next(ep->tx.open);
		if (xpi_tx_flush(ep) != XPORT_OK)
			return NULL;
	}
	if (!has_credit(ep)) {
		no_room(ep);
		return NULL;
	}
	if (small && !xpi_tx_alone(ep) && open_frame(ep) != NULL)
		return xpi_tx_next(ep->tx.open);
	if (__builtin_expect(!xpi_tx_lone(ep), 0)) {
		xpi_tx_refused(ep, XPORT_ERR_NO_MEMORY);
		return NULL;
	}
	return xpi_tx_first(ep->tx.lone);
}

int xpi_tx_leave(struct xport_ep *ep, struct xpi_op *op, size_t rlen, const void *data, size_t dlen, unsigned flags)
{
	const size_t head = sizeof(struct xpi_frame_head);
	struct xpi_tx *tx = ep->tx.lone;
	int r;

	if (dlen <= XPI_LONE_DATA) {
		xpi_copy(tx->buf + head + rlen, data, dlen);
		r = emit(ep, tx, head + rlen + dlen, NULL, 0, flags);
		op = NULL;
	} else {
		r = emit(ep, tx, head + rlen, data, dlen, flags);
	}
	if (r != XPI_PENDING)
		xpi_tx_head(tx)->flags = 0;
	if (r < 0)
		return r;
	ep->fast_left = 0;
	ep->tx.epoch = ep->x->epoch;
	if (r == XPORT_OK)
		return XPORT_OK;
	tx->op = op;
	xpi_tx_lone_kept(ep);
	if (op == NULL)
		return XPORT_OK;
	op->pending++;
	return XPI_PENDING;
}

int xpi_tx_record(struct xport_ep *ep, struct xpi_op *op, const struct xpi_rec *rec, size_t rlen, const void *data,
                  unsigned flags)
{
	size_t dlen = le32toh(rec->len);
	void *at = xpi_tx_begin(ep, rlen, dlen);

	if (at == NULL)
		return XPORT_ERR_AGAIN;
	memcpy(at, rec, rlen);
	return xpi_tx_end(ep, op, rlen, data, dlen, flags);
}

/* Appends what fits of the failures to be told; returns whether all did. */
static bool append_naks(struct xport_ep *ep, struct xpi_tx *tx)
{
	while (!xpi_list_empty(&ep->reply.q_nak)) {
		struct xpi_op *op = xpi_container(ep->reply.q_nak.next, struct xpi_op, link);
		struct xpi_rec_failed rec = {
			.r = {.type = XPI_REC_FAILED},
			.op = htole32((uint32_t)op->region),
			.status = htole32((uint32_t)-op->status),
		};

		if (tx->len + sizeof(rec) > XPI_CONTROL_MAX)
			return false;
		memcpy(xpi_tx_next(tx), &rec, sizeof(rec));
		xpi_tx_append(tx, sizeof(rec), NULL, 0, 0);
		xpi_list_del(&op->link);
		ep->reply.owed--;
		xpi_op_free(ep, op);
	}
	return true;
}

int xpi_tx_control(struct xport_ep *ep)
{
	if (ep->end.broken)
		return XPORT_ERR_AGAIN;
	do {
		struct xpi_tx *tx = ep->tx.nak != NULL ? ep->tx.nak : xpi_pool_get(&ep->tp->frame_pool);
		int r;

		if (tx == NULL)
			return xpi_tx_refused(ep, XPORT_ERR_NO_MEMORY);
		if (ep->tx.nak == NULL) {
			tx->packed = true;
			put_head(ep, tx);
			tx->flags = XPI_FRAME_CTRL;
		}
		/* The frame that tells the last failure may acknowledge again. */
		if (append_naks(ep, tx))
			ep->rx.nak_hold = false;
		ep->tx.nak = tx;
		r = emit_packed(ep, tx);
		if (r < 0) {
			if (tx->len > sizeof(struct xpi_frame_head)) {
				ep->rx.nak_hold = true;
				ep->fast_left = 0;
			}
			return r;
		}
		ep->tx.nak = NULL;
		xpi_flow_count_control(&ep->n.control_out);
	} while (!xpi_list_empty(&ep->reply.q_nak));
	return XPORT_OK;
}

void xpi_tx_done(struct xpi_tx *tx, int status)
{
	struct xport_ep *ep = tx->ep;
	struct xpi_op *op = tx->op;

	if (status != XPORT_OK) /* it is lost, also if memory is out */
		xpi_ep_broken(ep);
	xpi_list_del(&tx->link);
	tx_free(ep->tp, tx);
	if (op != NULL)
		xpi_op_sent(op);
}

void xpi_tx_drop(struct xport_ep *ep)
{
	if (ep->tx.open != NULL)
		tx_free(ep->tp, ep->tx.open);
	if (ep->tx.nak != NULL)
		tx_free(ep->tp, ep->tx.nak);
	if (ep->tx.lone != NULL)
		tx_free(ep->tp, ep->tx.lone);
	ep->tx.open = ep->tx.nak = ep->tx.lone = NULL;
	ep->fast_left = 0;
	while (!xpi_list_empty(&ep->tx.held))
		tx_free(ep->tp, xpi_container(xpi_list_pop(&ep->tx.held), struct xpi_tx, link));
}
