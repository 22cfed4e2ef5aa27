/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/rx.h"

#include <string.h>

#include "core/cma.h"
#include "core/msg.h"
#include "core/rkey.h"
#include "core/serve.h"
#include "core/tx.h"

/* The rest of a frame, in one or two pieces. */
struct cursor {
	const uint8_t *p;
	size_t left;
	const uint8_t *next;
	size_t next_left;
};

/* The next `n` bytes, or NULL.  A field or data never lies across the pieces. */
static inline const uint8_t *take(struct cursor *c, size_t n)
{
	const uint8_t *p;

	if (c->left == 0) {
		c->p = c->next;
		c->left = c->next_left;
		c->next_left = 0;
	}
	if (n > c->left)
		return NULL;
	p = c->p;
	c->p += n;
	c->left -= n;
	return p;
}

/* The whole header, of `size` bytes, of a record whose common part was taken; NULL: it is cut off.  Each field may be read once:
 * over shared memory the peer can change it. */
static inline const void *header(struct cursor *c, size_t size)
{
	const uint8_t *p = c->p - sizeof(struct xpi_rec);

	size -= sizeof(struct xpi_rec);
	if (size > c->left)
		return NULL;
	c->p += size;
	c->left -= size;
	return p;
}

static inline bool data(struct cursor *c, uint32_t len, const uint8_t **p)
{
	static const uint8_t none;

	*p = len > 0 ? take(c, len) : &none;
	return *p != NULL;
}

/* ---- requests ---- */

static bool on_put(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const struct xpi_rec_put *rec = header(c, sizeof(*rec));
	const uint8_t *p;

	if (rec == NULL || !data(c, r.len, &p))
		return false;
	xpi_serve_put(ep, le64toh(rec->region), le64toh(rec->offset), p, r.len, le32toh(rec->op));
	return true;
}

static bool on_get(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const struct xpi_rec_get *rec = header(c, sizeof(*rec));

	if (r.len != 0 || rec == NULL)
		return false;
	return xpi_serve_get(ep, le64toh(rec->region), le64toh(rec->offset), le64toh(rec->length), le32toh(rec->op));
}

static bool on_atomic(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const struct xpi_rec_atomic *rec = header(c, sizeof(*rec));
	struct xpi_atomic_request a;
	unsigned b = le16toh(r.b);

	if (r.len != 0 || rec == NULL)
		return false;
	a.region = le64toh(rec->region);
	a.offset = le64toh(rec->offset);
	a.operand = le64toh(rec->operand);
	a.compare = le64toh(rec->compare);
	a.op = le32toh(rec->op);
	a.code = r.a;
	a.width = b & 0xff;
	a.fetch = (b & XPI_ATOMIC_FETCH) != 0;
	/* The old value goes to an operation that has a name. */
	if (a.code > XPORT_ATOMIC_CAS || (a.width != 4 && a.width != 8) || (a.fetch && a.op == 0))
		return false;
	return xpi_serve_atomic(ep, &a);
}

static bool on_notify(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const struct xpi_rec_notify *rec = header(c, sizeof(*rec));
	struct xpi_notify_request n;

	if (rec == NULL || !data(c, r.len, &n.data))
		return false;
	n.region = le64toh(rec->region);
	n.offset = le64toh(rec->offset);
	n.length = le64toh(rec->length);
	n.value = le64toh(rec->value);
	n.op = le32toh(rec->op);
	n.data_len = r.len;
	return (r.len == 0 || r.len == n.length) && xpi_serve_notify(ep, &n);
}

/* ---- answers ---- */

static bool on_getdata(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const struct xpi_rec_getdata *rec = header(c, sizeof(*rec));
	const uint8_t *p;

	return rec != NULL && data(c, r.len, &p) && xpi_answer_data(ep, le32toh(rec->op), le64toh(rec->at), p, r.len);
}

static bool on_value(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const struct xpi_rec_value *rec = header(c, sizeof(*rec));

	return r.len == 0 && rec != NULL && xpi_answer_value(ep, le32toh(rec->op), le64toh(rec->value));
}

static bool on_failed(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const struct xpi_rec_failed *rec = header(c, sizeof(*rec));

	return r.len == 0 && rec != NULL && xpi_answer_failed(ep, le32toh(rec->op), le32toh(rec->status));
}

/* ---- messages ---- */

static bool on_send(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const struct xpi_rec_send *rec = header(c, sizeof(*rec));
	const uint8_t *p;

	return rec != NULL && data(c, r.len, &p) && r.len <= xpi_unexpected_max(ep) &&
	       xpi_msg_arrived(ep, le64toh(rec->tag), p, r.len);
}

static bool on_rts(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const struct xpi_rec_rts *rec = header(c, sizeof(*rec));

	return r.len == 0 && rec != NULL && xpi_msg_rts(ep, le64toh(rec->tag), le64toh(rec->length), le32toh(rec->op));
}

static bool on_cts(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const struct xpi_rec_cts *rec = header(c, sizeof(*rec));
	struct xpi_cts_place place;
	struct xpi_rec_cts own;
	const uint8_t *p;

	if ((r.len != 0 && r.len != sizeof(place)) || rec == NULL || !data(c, r.len, &p))
		return false;
	own = *rec;
	memcpy(&place, p, r.len);
	return xpi_msg_cts(ep, &own, r.len != 0 ? &place : NULL);
}

static bool on_data(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const struct xpi_rec_data *rec = header(c, sizeof(*rec));
	const uint8_t *p;

	return rec != NULL && data(c, r.len, &p) && xpi_msg_body(ep, le32toh(rec->into), le64toh(rec->at), p, r.len);
}

static bool on_lend(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const struct xpi_rec_lend *rec = header(c, sizeof(*rec));
	const uint8_t *p;

	return rec != NULL && data(c, r.len, &p) &&
	       xpi_rkey_lent(ep, le64toh(rec->region), le64toh(rec->length), p, r.len);
}

static bool on_placed(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const struct xpi_rec_placed *rec = header(c, sizeof(*rec));

	return r.len == 0 && rec != NULL && xpi_msg_placed(ep, le32toh(rec->into), le64toh(rec->length));
}

static bool on_key(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const struct xpi_rec_key *rec = header(c, sizeof(*rec));

	if (r.len != 0 || rec == NULL)
		return false;
	xpi_serve_key(ep, r.type, le64toh(rec->region));
	return true;
}

static bool on_cma_ask(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const uint8_t *p;

	return data(c, r.len, &p) && xpi_cma_asked(ep, p, r.len);
}

static bool on_cma_answer(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const struct xpi_rec_key *rec = header(c, sizeof(*rec));

	return r.len == 0 && rec != NULL && xpi_cma_answered(ep, le64toh(rec->region) != 0);
}

static bool on_cma(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const struct xpi_rec_cma *rec = header(c, sizeof(*rec));
	struct xpi_rec_cma own;

	if (r.len != 0 || rec == NULL)
		return false;
	own = *rec;
	own.r = r;
	switch (r.a) {
	case XPI_REC_PUT:
		return xpi_serve_put_cma(ep, &own);
	case XPI_REC_GETDATA:
		return xpi_answer_data_cma(ep, &own);
	case XPI_REC_DATA:
		return xpi_msg_body_cma(ep, &own);
	default:
		return false;
	}
}

static bool on_flush(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	(void)ep;
	(void)c;
	return r.len == 0;
}

static bool on_bye(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	(void)c;
	ep->bye_received = true;
	xpi_bell_ring(ep->x);
	return r.len == 0;
}

static bool (*const handlers[])(struct xport_ep *, struct cursor *, struct xpi_rec) = {
	[XPI_REC_PUT] = on_put,         [XPI_REC_GET] = on_get,
	[XPI_REC_GETDATA] = on_getdata, [XPI_REC_ATOMIC] = on_atomic,
	[XPI_REC_VALUE] = on_value,     [XPI_REC_FAILED] = on_failed,
	[XPI_REC_SEND] = on_send,       [XPI_REC_RTS] = on_rts,
	[XPI_REC_CTS] = on_cts,         [XPI_REC_DATA] = on_data,
	[XPI_REC_NOTIFY] = on_notify,   [XPI_REC_FLUSH] = on_flush,
	[XPI_REC_BYE] = on_bye,         [XPI_REC_CLAIM] = on_key,
	[XPI_REC_GRANT] = on_key,       [XPI_REC_REVOKE] = on_key,
	[XPI_REC_REVOKED] = on_key,     [XPI_REC_CMA_ASK] = on_cma_ask,
	[XPI_REC_CMA] = on_cma,         [XPI_REC_CMA_ANSWER] = on_cma_answer,
	[XPI_REC_LEND] = on_lend,       [XPI_REC_PLACED] = on_placed,
};

/* ---- frames ---- */

/* The records of a frame, in one or two pieces; false: it is damaged. */
static __attribute__((noinline)) bool records(struct xport_ep *ep, const uint8_t *first, size_t left, const void *rest,
                                              size_t rlen, bool ctrl)
{
	struct cursor c = {first, left, rest, rlen};

	while (c.left + c.next_left > 0) {
		const uint8_t *p = take(&c, sizeof(struct xpi_rec));
		struct xpi_rec r;

		if (p == NULL)
			return false;
		memcpy(&r, p, sizeof(r));
		r.len = le32toh(r.len);
		if (r.type == 0 || r.type >= sizeof(handlers) / sizeof(handlers[0]) ||
		    (ctrl && r.type != XPI_REC_FAILED))
			return false;
		if (!handlers[r.type](ep, &c, r))
			return ep->state >= XPI_EP_FAILING || ep->deaf;
		if (ep->state >= XPI_EP_FAILING)
			return true;
	}
	return true;
}

/* The usual frame: one small message in one piece.  False: it is another. */
static inline bool one_message(struct xport_ep *ep, const uint8_t *p, size_t left, bool *intact)
{
	struct xpi_rec_send rec;

	if (left < sizeof(rec))
		return false;
	memcpy(&rec, p, sizeof(rec));
	if (rec.r.type != XPI_REC_SEND || le32toh(rec.r.len) != left - sizeof(rec) || left > XPI_SMALL_MESSAGE)
		return false;
	*intact = xpi_msg_arrived(ep, le64toh(rec.tag), p + sizeof(rec), le32toh(rec.r.len));
	return true;
}

/* Frees credits and completes what waited for it; false: acknowledges what was never sent. */
static bool acknowledged(struct xport_ep *ep, uint32_t ack, uint32_t freed)
{
	bool more = ack != ep->tx_acked || freed != ep->win_freed;

	if (!xpi_seq_reached(ep->tx_seq, ack) || !xpi_seq_reached(ep->win_used, freed))
		return false;
	if (!more)
		return true;
	if (xpi_seq_reached(ack, ep->tx_acked)) {
		ep->n.acked += ack - ep->tx_acked;
		ep->tx_acked = ack;
	}
	if (xpi_seq_reached(freed, ep->win_freed))
		ep->win_freed = freed;
	while (!xpi_list_empty(&ep->unacked)) {
		struct xpi_op *op = xpi_container(ep->unacked.next, struct xpi_op, link);

		if (!xpi_seq_reached(ep->tx_acked, op->seq))
			break;
		op->waits = 0;
		xpi_op_settle(op);
	}
	if (ep->q_busy || ep->open != NULL || !xpi_list_empty(&ep->q_msg) || !xpi_list_empty(&ep->q_reply) ||
	    !xpi_list_empty(&ep->proving))
		xpi_work(ep);
	return true;
}

static __attribute__((cold)) void broke_protocol(struct xport_ep *ep, const char *what)
{
	xpi_log(ep->x->log, XPORT_LOG_WARN, "0010", "%s: the peer broke the protocol: %s", ep->peer, what);
	xpi_ep_fail(ep, XPORT_ERR_PROTOCOL, XPORT_EVENT_LOST);
}

void xpi_rx_frame(struct xpi_core *core, const void *hdr, size_t hlen, const void *rest, size_t rlen)
{
	struct xport *x = xpi_of(core);
	const uint8_t *p = hdr;
	struct xpi_frame_head h;
	struct xport_ep *ep;
	unsigned flags;
	bool intact;

	if (hlen == 0) {
		p = rest;
		hlen = rlen;
		rlen = 0;
	}
	if (hlen < sizeof(h)) {
		xpi_log(x->log, XPORT_LOG_INFO, "0011", "a frame of %zu bytes is none: dropped", hlen + rlen);
		return;
	}
	memcpy(&h, p, sizeof(h));
	p += sizeof(h);
	hlen -= sizeof(h);
	ep = xpi_ep_find(x, le32toh(h.dst), le32toh(h.session));
	if (ep == NULL || ep->state >= XPI_EP_FAILING) {
		xpi_log(x->log, XPORT_LOG_DEBUG, "0012", "a frame for no endpoint of ours: dropped");
		return;
	}
	flags = le16toh(h.flags);
	if (!(flags & XPI_FRAME_CTRL)) {
		if (le32toh(h.seq) != ep->seen.ack + 1) {
			broke_protocol(ep, "frames are missing or out of order");
			return;
		}
		ep->seen.ack++;
		ep->n.received++;
	} else {
		ep->n.control_in++;
	}
	if (flags != 0 || rlen != 0 || !one_message(ep, p, hlen, &intact))
		intact = records(ep, p, hlen, rest, rlen, (flags & XPI_FRAME_CTRL) != 0);
	if (!intact) {
		broke_protocol(ep, "a damaged frame");
		return;
	}
	if (ep->state >= XPI_EP_FAILING)
		return;
	if (!acknowledged(ep, le32toh(h.seen.ack), le32toh(h.seen.freed))) {
		broke_protocol(ep, "an acknowledgement of what was never sent");
		return;
	}
	if ((flags & XPI_FRAME_ACK_NOW) != 0) {
		ep->ack_now = true;
		xpi_work(ep);
	} else if (ep->seen.ack - ep->told.ack >= ep->rx_credits / 2) {
		xpi_work(ep);
	}
}
