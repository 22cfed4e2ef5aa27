/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/protocol/rx.h"

#include <stdlib.h>
#include <string.h>

#include "core/liveness/flow.h"
#include "core/object/early.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/object/rkey.h"
#include "core/protocol/accepted.h"
#include "core/protocol/cma.h"
#include "core/protocol/keys.h"
#include "core/protocol/msg.h"
#include "core/protocol/target.h"
#include "core/protocol/tx.h"
#include "core/protocol/withdraw.h"
#include "core/wire/frame.h"

/* The rest of a frame, in one or two pieces. */
struct cursor {
	const uint8_t *p;
	size_t left;
	const uint8_t *next;
	size_t next_left;
};

/*
 * The next `n` bytes, or NULL. The second piece is the data of one record. The peer may still change it, so no record is
 * looked for there.
 */
static inline const uint8_t *rx_take(struct cursor *c, size_t n)
{
	const uint8_t *p;

	if (c->left == 0) {
		if (n != c->next_left)
			return NULL;
		c->next_left = 0;
		return c->next;
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

	*p = len > 0 ? rx_take(c, len) : &none;
	return *p != NULL;
}

/* Data that the handler interprets: never what the peer may still change. */
static inline bool data_own(struct cursor *c, uint32_t len, const uint8_t **p)
{
	return (c->left > 0 || len < XPI_SECOND_CHANGES) && data(c, len, p);
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

static bool on_put_ahead(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const struct xpi_rec_put *rec = header(c, sizeof(*rec));
	const uint8_t *p;

	if (rec == NULL || !data(c, r.len, &p) || r.b == 0)
		return false;
	xpi_serve_put_ahead(ep, rec, p, r.len, le16toh(r.b));
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
	n.ahead = le16toh(r.b);
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

static bool rx_on_failed(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
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

	if ((r.len != 0 && r.len != sizeof(place)) || rec == NULL || !data_own(c, r.len, &p))
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

	return rec != NULL && data_own(c, r.len, &p) &&
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

static bool on_grant(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const struct xpi_rec_key *rec = header(c, sizeof(*rec));
	const uint8_t *p;

	return rec != NULL && data_own(c, r.len, &p) && xpi_rkey_granted(ep, le64toh(rec->region), p, r.len);
}

static bool on_cma_ask(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const uint8_t *p;

	return data_own(c, r.len, &p) && xpi_cma_asked(ep, p, r.len);
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

static bool on_withdraw(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const struct xpi_rec_withdraw *rec = header(c, sizeof(*rec));

	return r.len == 0 && rec != NULL && xpi_withdrawn(ep, le64toh(rec->tag), le32toh(rec->op), le32toh(rec->into));
}

static bool on_accepted(struct xport_ep *ep, struct cursor *c, struct xpi_rec r)
{
	const uint8_t *p;

	return data(c, r.len, &p) && xpi_accepted_came(ep, p, r.len);
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
	ep->rx.bye = true;
	xpi_request_attention(ep->x);
	return r.len == 0;
}

static bool (*const handlers[])(struct xport_ep *, struct cursor *, struct xpi_rec) = {
	[XPI_REC_PUT] = on_put,
	[XPI_REC_GET] = on_get,
	[XPI_REC_GETDATA] = on_getdata,
	[XPI_REC_ATOMIC] = on_atomic,
	[XPI_REC_VALUE] = on_value,
	[XPI_REC_FAILED] = rx_on_failed,
	[XPI_REC_SEND] = on_send,
	[XPI_REC_RTS] = on_rts,
	[XPI_REC_CTS] = on_cts,
	[XPI_REC_DATA] = on_data,
	[XPI_REC_NOTIFY] = on_notify,
	[XPI_REC_FLUSH] = on_flush,
	[XPI_REC_BYE] = on_bye,
	[XPI_REC_CLAIM] = on_key,
	[XPI_REC_GRANT] = on_grant,
	[XPI_REC_REVOKE] = on_key,
	[XPI_REC_REVOKED] = on_key,
	[XPI_REC_CMA_ASK] = on_cma_ask,
	[XPI_REC_CMA] = on_cma,
	[XPI_REC_CMA_ANSWER] = on_cma_answer,
	[XPI_REC_LEND] = on_lend,
	[XPI_REC_PLACED] = on_placed,
	[XPI_REC_PUT_AHEAD] = on_put_ahead,
	[XPI_REC_WITHDRAW] = on_withdraw,
	[XPI_REC_ACCEPTED] = on_accepted,
};

/* ---- frames ---- */

/* The records of a frame, in one or two pieces; false: it is damaged. */
static __attribute__((noinline)) bool records(struct xport_ep *ep, const uint8_t *first, size_t left, const void *rest,
                                              size_t rlen, bool ctrl)
{
	struct cursor c = {first, left, rest, rlen};

	while (c.left > 0) {
		const uint8_t *p = rx_take(&c, sizeof(struct xpi_rec));
		struct xpi_rec r;

		if (p == NULL)
			return false;
		memcpy(&r, p, sizeof(r));
		r.len = le32toh(r.len);
		if (r.type == 0 || r.type >= sizeof(handlers) / sizeof(handlers[0]) ||
		    (ctrl && r.type != XPI_REC_FAILED))
			return false;
		if (!handlers[r.type](ep, &c, r))
			return ep->state >= XPI_EP_FAILING || ep->rx.discard;
		if (ep->state >= XPI_EP_FAILING)
			return true;
	}
	return c.next_left == 0;
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
	bool more = ack != ep->tx.acked || freed != ep->msg.freed;

	if (!xpi_seq_reached(ep->tx.seq, ack) || !xpi_seq_reached(ep->msg.used, freed))
		return false;
	if (!more)
		return true;
	if (xpi_seq_reached(ack, ep->tx.acked)) {
		ep->n.acked += ack - ep->tx.acked;
		ep->tx.acked = ack;
	}
	if (xpi_seq_reached(freed, ep->msg.freed))
		ep->msg.freed = freed;
	while (!xpi_list_empty(&ep->unacked)) {
		struct xpi_op *op = xpi_container(ep->unacked.next, struct xpi_op, link);

		if (!xpi_seq_reached(ep->tx.acked, op->seq))
			break;
		op->waits = 0;
		xpi_op_settle(op);
	}
	if (ep->rma.busy || ep->tx.open != NULL || !xpi_list_empty(&ep->msg.q) || !xpi_list_empty(&ep->reply.q) ||
	    !xpi_list_empty(&ep->placing))
		xpi_work(ep);
	return true;
}

static __attribute__((cold)) void broke_protocol(struct xport_ep *ep, const char *what)
{
	xpi_log(ep->x->log, XPORT_LOG_WARN, "0010", "%s: the peer broke the protocol: %s", ep->peer.name, what);
	xpi_ep_fail(ep, XPORT_ERR_PROTOCOL, XPORT_EVENT_LOST);
}

static inline const struct xpi_slot *slot_of(const struct xport *x, uint16_t n)
{
	static const struct xpi_slot none;

	return __builtin_expect(n < x->nslots, 1) ? &x->slots[n] : &none;
}

/* A frame that fits no endpoint, from an unknown sender: it is counted.  The log tells of the first few, and of each
 * doubling. */
static void stray(struct xport *x, size_t len)
{
	enum { FEW = 64 };

	xpi_log(x->log, XPORT_LOG_DEBUG, "0011",
	        "dropped a frame of %zu bytes: no endpoint of this instance matches it", len);
	x->strays++;
	if (x->strays >= FEW && (x->strays & (x->strays - 1)) == 0)
		xpi_log(x->log, XPORT_LOG_WARN, "0025",
		        "dropped %llu frames that match no endpoint of this instance: another process may be guessing "
		        "its sessions",
		        (unsigned long long)x->strays);
}

/*
 * The frame's session is not that of a living endpoint: of the one on whose channel it came, if that is known.  Then nobody
 * but the peer there can have sent it.  Else it may be late, or anybody's.
 */
static void misfit(struct xport *x, struct xport_ep *from, const struct xpi_frame_head *h, size_t len)
{
	const struct xpi_slot *slot = slot_of(x, le16toh(h->slot));
	uint64_t session = le64toh(h->session);

	if (from != NULL) {
		if (from->state < XPI_EP_FAILING && !from->rx.discard)
			broke_protocol(from, "a frame for another endpoint");
	} else if ((slot->ep != NULL && (slot->ep->session == session || slot->ep->rx.discard)) ||
	           slot->ended == session) {
		xpi_log(x->log, XPORT_LOG_DEBUG, "0012", "dropped a frame for an endpoint that has ended");
	} else {
		stray(x, len);
	}
}

static __attribute__((cold, noinline)) void runt(struct xport *x, struct xport_ep *from, size_t len)
{
	if (from == NULL)
		stray(x, len);
	else if (from->state < XPI_EP_FAILING)
		broke_protocol(from, "a frame shorter than a frame header");
}

/* A frame for an endpoint that is not OPEN, or for none. */
static __attribute__((cold, noinline)) void frame_aside(struct xport *x, struct xport_ep *from, const uint8_t *p,
                                                        size_t len, const void *rest, size_t rlen)
{
	struct xpi_frame_head h;
	struct xport_ep *ep;
	int r;

	memcpy(&h, p, sizeof(h));
	ep = from != NULL ? from : slot_of(x, le16toh(h.slot))->ep;
	if (ep == NULL || ep->session != le64toh(h.session) || ep->state != XPI_EP_CONNECTING) {
		misfit(x, from, &h, len + rlen);
		return;
	}
	r = xpi_early_keep(ep, p, len, rest, rlen);
	if (r == XPORT_ERR_PROTOCOL)
		broke_protocol(ep, "more frames than it has credits for");
	else if (r != XPORT_OK)
		xpi_ep_fail(ep, r, XPORT_EVENT_LOST);
}

void xpi_rx_early(struct xport_ep *ep)
{
	struct xpi_early *f;

	while ((f = xpi_early_take(ep)) != NULL) {
		xpi_rx_frame((struct xpi_core *)ep->tp, (struct xpi_core_ep *)ep, f->bytes, f->len, NULL, 0);
		free(f);
	}
}

void xpi_rx_frame(struct xpi_core *core, struct xpi_core_ep *from, const void *hdr, size_t hlen, const void *rest,
                  size_t rlen)
{
	struct xport *x = xpi_transport_of(core)->x;
	struct xport_ep *ep = (struct xport_ep *)from;
	const uint8_t *p = hdr;
	struct xpi_frame_head h;
	unsigned flags;
	bool intact;

	if (hlen == 0) {
		p = rest;
		hlen = rlen;
		rlen = 0;
	}
	if (__builtin_expect(hlen < sizeof(h), 0)) {
		runt(x, ep, hlen + rlen);
		return;
	}
	memcpy(&h, p, sizeof(h));
	if (ep == NULL)
		ep = slot_of(x, le16toh(h.slot))->ep;
	if (__builtin_expect(ep == NULL || ep->session != le64toh(h.session) || ep->state >= XPI_EP_CONNECTING, 0)) {
		frame_aside(x, (struct xport_ep *)from, p, hlen, rest, rlen);
		return;
	}
	p += sizeof(h);
	hlen -= sizeof(h);
	flags = le16toh(h.flags);
	if (!(flags & XPI_FRAME_CTRL)) {
		if (le32toh(h.seq) != ep->rx.state.ack + 1) {
			broke_protocol(ep, "frames are missing or out of order");
			return;
		}
		xpi_flow_count(&ep->rx.state.ack, ep->rx.state.ack + 1);
		ep->n.received++;
	} else {
		xpi_flow_count_control(&ep->n.control_in);
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
		broke_protocol(ep, "an acknowledgement of frames that were never sent");
		return;
	}
	if ((flags & XPI_FRAME_ACK_NOW) != 0) {
		ep->rx.ack_now = true;
		xpi_work(ep);
	} else if (ep->rx.state.ack - ep->rx.acked.ack >= ep->rx.credits / 2) {
		xpi_work(ep);
	}
}
