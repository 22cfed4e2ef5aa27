/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/tx.h"

#include <stdio.h>
#include <string.h>

#include "core/opq.h"

/* Refusals for want of memory, with nothing sent between them, that are more than bad luck. */
enum { HUNGRY = 64 };

static bool has_credit(const struct xport_ep *ep)
{
	return ep->tx_seq - ep->tx_acked < ep->credits;
}

static __attribute__((cold)) int no_room(struct xport_ep *ep)
{
	ep->short_of_room = true;
	return XPORT_ERR_AGAIN;
}

/* What is the same in every frame of the endpoint; the flags are for emit(). */
static void put_head(struct xport_ep *ep, struct xpi_tx *tx)
{
	struct xpi_frame_head h = {.dst = htole32(ep->peer_id), .session = htole32(ep->peer_session)};

	memcpy(tx->buf, &h, sizeof(h));
	tx->wait.kind = XPI_WAIT_TX;
	tx->ep = ep;
	tx->op = NULL;
	tx->own = 0;
	tx->flags = 0;
	tx->len = sizeof(h);
}

static void tx_free(struct xport *x, struct xpi_tx *tx)
{
	xpi_pool_put(tx->packed ? &x->frame_pool : &x->lone_pool, tx);
}

bool xpi_tx_lone(struct xport_ep *ep)
{
	if (ep->lone != NULL)
		return true;
	ep->lone = xpi_pool_get(&ep->x->lone_pool);
	if (ep->lone == NULL)
		return false;
	ep->lone->packed = false;
	put_head(ep, ep->lone);
	return true;
}

/* Memory may come back; but nothing waits for it longer than for a silent peer. */
static __attribute__((cold)) void starve(struct xport_ep *ep)
{
	uint64_t moved = ep->tx_seq + ep->n.emitted + ep->rma_sent + ep->native_drained;
	int64_t now = xpi_now_ms();
	int limit = ep->x->settings.peer_timeout_ms;

	if (ep->hunger.times == 0 || ep->hunger.moved != moved) {
		ep->hunger.times = 0;
		ep->hunger.moved = moved;
		ep->hunger.since_ms = now;
	}
	if (++ep->hunger.times < HUNGRY || now - ep->hunger.since_ms <= limit || ep->state == XPI_EP_CONNECTING)
		return;
	snprintf(ep->native_why, sizeof(ep->native_why), "no memory to send anything for %d ms", limit);
	ep->broken_by = XPORT_ERR_NO_MEMORY;
	xpi_ep_broken(ep);
}

void xpi_refused(struct xport_ep *ep, int status)
{
	if (status == XPORT_ERR_NO_MEMORY)
		starve(ep);
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
	xpi_list_push(&ep->txs, &ep->lone->link);
	ep->lone = NULL;
	xpi_tx_lone(ep);
}

/* Sends what is in the frame's buffer, `hlen` bytes, and data; on success the endpoint's counters have moved on. */
static inline __attribute__((always_inline)) int emit(struct xport_ep *ep, struct xpi_tx *tx, size_t hlen,
                                                      const void *data, size_t dlen, unsigned flags)
{
	struct xport *x = ep->x;
	struct xpi_seen told, seen = {xpi_tx_ack(ep), ep->seen.freed};
	uint32_t seq = (flags & XPI_FRAME_CTRL) ? ep->tx_seq : ep->tx_seq + 1;
	int r;

	if (ep->broken)
		return XPORT_ERR_AGAIN;
	xpi_tx_head(tx)->seq = htole32(seq);
	xpi_tx_head(tx)->flags = htole16((uint16_t)flags);
	told = ep->told;
	xpi_seen_tell(&xpi_tx_head(tx)->seen, &ep->told, &seen);
	r = dlen == 0 ? x->am_send(x->be, xpi_ep_be(ep), tx->buf, hlen, &tx->wait.req)
	              : x->ops->am_send_two(x->be, xpi_ep_be(ep), tx->buf, hlen, data, dlen, &tx->wait.req);
	if (__builtin_expect(r < 0, 0)) {
		ep->told = told;
		return xpi_tx_refused(ep, r);
	}
	ep->tx_seq = seq;
	ep->n.emitted++;
	return r;
}

/* Sends a frame that was packed; it is no longer the caller's, unless that failed. */
static int emit_packed(struct xport_ep *ep, struct xpi_tx *tx)
{
	int r = emit(ep, tx, tx->len, NULL, 0, tx->flags);

	if (r == XPI_PENDING)
		xpi_list_push(&ep->txs, &tx->link);
	else if (r == XPORT_OK)
		tx_free(ep->x, tx);
	return r;
}

/*
 * Two records or more before one poll are a burst.  After one of many another one is expected, until a record comes alone; where a
 * frame costs much, after the second one in a row as well.
 */
enum { MANY = 8, AHEAD = 1 << 30 };

static void expect(struct xport_ep *ep, unsigned own)
{
	uint32_t polls = ep->x->epoch - ep->epoch; /* since one left alone */
	bool expected = (int32_t)polls < 0;

	if (expected) {
		if (own == 1)
			ep->epoch = ep->x->epoch - 1;
	} else if (own > 0 && own + (polls <= 1) >= 2) {
		/* In a row: there was a frame between them at most, of the one that left alone. */
		if (own >= MANY || (ep->tx_seq - ep->burst_seq <= 2 && !ep->x->caps.am_cheap))
			ep->epoch = ep->x->epoch + AHEAD;
		ep->burst_seq = ep->tx_seq;
	}
}

int xpi_tx_flush(struct xport_ep *ep)
{
	unsigned own;
	int r;

	if (ep->open == NULL)
		return XPORT_OK;
	ep->quick = 0; /* that counts on it, and not on credits */
	if (!has_credit(ep))
		return no_room(ep);
	own = ep->open->own;
	r = emit_packed(ep, ep->open);
	if (r < 0)
		return r;
	ep->open = NULL;
	expect(ep, own);
	return XPORT_OK;
}

static struct xpi_tx *open_frame(struct xport_ep *ep)
{
	struct xpi_tx *tx = xpi_pool_get(&ep->x->frame_pool);

	if (tx == NULL)
		return NULL;
	tx->packed = true;
	put_head(ep, tx);
	ep->open = tx;
	ep->quick = 0;
	xpi_work(ep);
	return tx;
}

bool xpi_tx_open(struct xport_ep *ep, size_t n)
{
	if (ep->open != NULL && !xpi_tx_fits(ep, n) && xpi_tx_flush(ep) != XPORT_OK)
		return false;
	return ep->open != NULL || (has_credit(ep) && open_frame(ep) != NULL);
}

bool xpi_tx_repack(struct xport_ep *ep, size_t rlen)
{
	const size_t head = sizeof(struct xpi_frame_head);
	struct xpi_tx *tx = open_frame(ep);

	if (tx == NULL)
		return false;
	memcpy(tx->buf + head, ep->lone->buf + head, rlen);
	tx->len = (uint32_t)(head + rlen);
	tx->own = 1;
	return true;
}

void *xpi_tx_place(struct xport_ep *ep, size_t rlen, size_t dlen)
{
	bool small = dlen <= XPI_PACK_MAX;

	if (ep->open != NULL) {
		if (small && xpi_tx_fits(ep, rlen + dlen))
			return xpi_tx_next(ep->open);
		if (xpi_tx_flush(ep) != XPORT_OK)
			return NULL;
	}
	if (!has_credit(ep)) {
		no_room(ep);
		return NULL;
	}
	if (small && !xpi_tx_alone(ep) && open_frame(ep) != NULL)
		return xpi_tx_next(ep->open);
	if (__builtin_expect(!xpi_tx_lone(ep), 0)) {
		xpi_tx_refused(ep, XPORT_ERR_NO_MEMORY);
		return NULL;
	}
	return xpi_tx_first(ep->lone);
}

int xpi_tx_leave(struct xport_ep *ep, struct xpi_op *op, size_t rlen, const void *data, size_t dlen, unsigned flags)
{
	const size_t head = sizeof(struct xpi_frame_head);
	struct xpi_tx *tx = ep->lone;
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
	ep->quick = 0;
	ep->epoch = ep->x->epoch;
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
	while (!xpi_list_empty(&ep->q_nak)) {
		struct xpi_op *op = xpi_container(ep->q_nak.next, struct xpi_op, link);
		struct xpi_rec_failed rec = {
			.r = {.type = XPI_REC_FAILED},
			.op = htole32((uint32_t)op->region),
			.status = htole32((uint32_t)-op->status),
		};

		if (tx->len + sizeof(rec) > ep->frame_max)
			return false;
		memcpy(xpi_tx_next(tx), &rec, sizeof(rec));
		xpi_tx_append(tx, sizeof(rec), NULL, 0, 0);
		xpi_list_del(&op->link);
		ep->owed--;
		xpi_op_free(ep, op);
	}
	return true;
}

int xpi_tx_control(struct xport_ep *ep)
{
	struct xport *x = ep->x;

	if (ep->broken)
		return XPORT_ERR_AGAIN;
	do {
		struct xpi_tx *tx = ep->nak_tx != NULL ? ep->nak_tx : xpi_pool_get(&x->frame_pool);
		int r;

		if (tx == NULL)
			return xpi_tx_refused(ep, XPORT_ERR_NO_MEMORY);
		if (ep->nak_tx == NULL) {
			tx->packed = true;
			put_head(ep, tx);
			tx->flags = XPI_FRAME_CTRL;
		}
		/* The frame that tells the last failure may acknowledge again. */
		if (append_naks(ep, tx))
			ep->nak_hold = false;
		ep->nak_tx = tx;
		r = emit_packed(ep, tx);
		if (r < 0) {
			if (tx->len > sizeof(struct xpi_frame_head)) {
				ep->nak_hold = true;
				ep->quick = 0;
			}
			return r;
		}
		ep->nak_tx = NULL;
		ep->n.control_out++;
	} while (!xpi_list_empty(&ep->q_nak));
	return XPORT_OK;
}

void xpi_tx_done(struct xport *x, struct xpi_tx *tx, int status)
{
	struct xport_ep *ep = tx->ep;
	struct xpi_op *op = tx->op;

	if (status != XPORT_OK) /* it is lost, also for want of memory */
		xpi_ep_broken(ep);
	xpi_list_del(&tx->link);
	tx_free(x, tx);
	if (op != NULL)
		xpi_op_sent(op);
}

void xpi_tx_drop(struct xport_ep *ep)
{
	if (ep->open != NULL)
		tx_free(ep->x, ep->open);
	if (ep->nak_tx != NULL)
		tx_free(ep->x, ep->nak_tx);
	if (ep->lone != NULL)
		tx_free(ep->x, ep->lone);
	ep->open = ep->nak_tx = ep->lone = NULL;
	ep->quick = 0;
	while (!xpi_list_empty(&ep->txs))
		tx_free(ep->x, xpi_container(xpi_list_pop(&ep->txs), struct xpi_tx, link));
}
