/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/tx.h"

#include <string.h>

#include "core/opq.h"

static bool has_credit(const struct xport_ep *ep)
{
	return ep->tx_seq - ep->tx_acked < ep->credits;
}

/* An acknowledgement must not run ahead of the failures that belong to its frames. */
static uint32_t ack_value(const struct xport_ep *ep)
{
	return ep->nak_hold ? ep->nak_seq : ep->rx_seq;
}

static void put_head(struct xport_ep *ep, struct xpi_tx *tx, uint32_t seq)
{
	struct xpi_frame_head h = {
		.dst = htole32(ep->peer_id),
		.session = htole32(ep->peer_session),
		.seq = htole32(seq),
		.ack = htole32(ack_value(ep)),
		.freed = htole32(ep->rx_consumed),
		.flags = htole16((uint16_t)tx->flags),
	};

	memcpy(tx->buf, &h, sizeof(h));
}

static void tx_free(struct xport *x, struct xpi_tx *tx)
{
	xpi_pool_put(tx->packed ? &x->frame_pool : &x->head_pool, tx);
}

static __attribute__((cold)) int tx_refused(struct xport_ep *ep, int status)
{
	/* Memory may come back; anything else will not. */
	if (status != XPORT_ERR_AGAIN && status != XPORT_ERR_NO_MEMORY)
		xpi_ep_broken(ep);
	xpi_work(ep);
	return XPORT_ERR_AGAIN;
}

/* Sends head and data; on success the endpoint's counters have moved on. */
static inline __attribute__((always_inline)) int emit(struct xport_ep *ep, struct xpi_tx *tx, size_t hlen,
                                                      const void *data, size_t dlen)
{
	struct xport *x = ep->x;
	uint32_t acked = ack_value(ep);
	bool ctrl = (tx->flags & XPI_FRAME_CTRL) != 0;
	int r;

	if (ep->broken)
		return XPORT_ERR_AGAIN;
	tx->wait.kind = XPI_WAIT_TX;
	tx->ep = ep;
	put_head(ep, tx, ctrl ? ep->tx_seq : ep->tx_seq + 1);
	r = x->ops->am_send(x->be, xpi_ep_be(ep), tx->buf, hlen, data, dlen, &tx->wait.req);
	if (__builtin_expect(r < 0, 0))
		return tx_refused(ep, r);
	if (!ctrl)
		ep->tx_seq++;
	ep->rx_acked = acked;
	ep->rx_told = ep->rx_consumed;
	ep->ack_now = false;
	if (r == XPORT_OK)
		tx_free(x, tx);
	else
		xpi_list_push(&ep->txs, &tx->link);
	return r;
}

int xpi_tx_flush(struct xport_ep *ep)
{
	struct xpi_tx *tx = ep->open;
	int r;

	if (tx == NULL)
		return XPORT_OK;
	if (!has_credit(ep))
		return XPORT_ERR_AGAIN;
	r = emit(ep, tx, sizeof(struct xpi_frame_head), tx->buf + sizeof(struct xpi_frame_head),
	         tx->len - sizeof(struct xpi_frame_head));
	if (r < 0)
		return r;
	ep->open = NULL;
	return XPORT_OK;
}

static void append(struct xpi_tx *tx, const struct xpi_rec *rec, size_t rlen, const void *data, size_t dlen,
                   unsigned flags)
{
	memcpy(tx->buf + tx->len, rec, rlen);
	if (dlen > 0)
		memcpy(tx->buf + tx->len + rlen, data, dlen);
	tx->len += (uint32_t)(rlen + dlen);
	tx->flags |= flags;
}

static struct xpi_tx *open_frame(struct xport_ep *ep)
{
	struct xpi_tx *tx = xpi_pool_get(&ep->x->frame_pool);

	if (tx == NULL)
		return NULL;
	tx->packed = true;
	tx->op = NULL;
	tx->flags = 0;
	tx->len = sizeof(struct xpi_frame_head);
	ep->open = tx;
	xpi_work(ep);
	return tx;
}

static int send_alone(struct xport_ep *ep, struct xpi_op *op, const struct xpi_rec *rec, size_t rlen, const void *data,
                      unsigned flags)
{
	struct xport *x = ep->x;
	struct xpi_tx *tx = xpi_pool_get(&x->head_pool);
	int r;

	if (__builtin_expect(tx == NULL, 0)) {
		xpi_work(ep);
		return XPORT_ERR_AGAIN;
	}
	tx->packed = false;
	tx->op = op;
	tx->flags = flags;
	memcpy(tx->buf + sizeof(struct xpi_frame_head), rec, rlen);
	r = emit(ep, tx, sizeof(struct xpi_frame_head) + rlen, data, rec->len);
	if (__builtin_expect(r < 0, 0)) {
		tx_free(x, tx);
		return r;
	}
	ep->epoch = x->epoch;
	if (r == XPI_PENDING && op != NULL)
		op->pending++;
	return r;
}

int xpi_tx_record(struct xport_ep *ep, struct xpi_op *op, const struct xpi_rec *rec, size_t rlen, const void *data,
                  unsigned flags)
{
	size_t dlen = rec->len;
	bool small = dlen <= XPI_PACK_MAX;
	struct xpi_tx *tx = ep->open;

	if (tx != NULL) {
		if (small && tx->len + rlen + dlen <= ep->pack_max) {
			append(tx, rec, rlen, data, dlen, flags);
			return XPORT_OK;
		}
		if (xpi_tx_flush(ep) != XPORT_OK)
			return XPORT_ERR_AGAIN;
	}
	if (!has_credit(ep))
		return XPORT_ERR_AGAIN;
	if (small && ep->epoch == ep->x->epoch) {
		tx = open_frame(ep);
		if (tx != NULL) {
			append(tx, rec, rlen, data, dlen, flags);
			return XPORT_OK;
		}
	}
	return send_alone(ep, op, rec, rlen, data, flags);
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
		append(tx, &rec.r, sizeof(rec), NULL, 0, 0);
		xpi_list_del(&op->link);
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

		if (tx == NULL) {
			xpi_work(ep);
			return XPORT_ERR_AGAIN;
		}
		if (ep->nak_tx == NULL) {
			tx->packed = true;
			tx->op = NULL;
			tx->flags = XPI_FRAME_CTRL;
			tx->len = sizeof(struct xpi_frame_head);
		}
		/* The frame that tells the last failure may acknowledge again. */
		if (append_naks(ep, tx))
			ep->nak_hold = false;
		ep->nak_tx = tx;
		r = emit(ep, tx, sizeof(struct xpi_frame_head), tx->buf + sizeof(struct xpi_frame_head),
		         tx->len - sizeof(struct xpi_frame_head));
		if (r < 0) {
			if (tx->len > sizeof(struct xpi_frame_head) && !ep->nak_hold) {
				ep->nak_hold = true;
			}
			return r;
		}
		ep->nak_tx = NULL;
	} while (!xpi_list_empty(&ep->q_nak));
	return XPORT_OK;
}

void xpi_tx_done(struct xport *x, struct xpi_tx *tx, int status)
{
	struct xport_ep *ep = tx->ep;
	struct xpi_op *op = tx->op;

	if (status != XPORT_OK)
		tx_refused(ep, status);
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
	ep->open = ep->nak_tx = NULL;
	while (!xpi_list_empty(&ep->txs))
		tx_free(ep->x, xpi_container(xpi_list_pop(&ep->txs), struct xpi_tx, link));
}
