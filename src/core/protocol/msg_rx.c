/* SPDX-License-Identifier: BSD-3-Clause */
/* msg_rx.c - receives, and messages as they arrive. */
#include <string.h>
#include <sys/uio.h>

#include "base/copy.h"
#include "base/grow.h"
#include "core/config/select.h"
#include "core/object/completion.h"
#include "core/object/deadline.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/match.h"
#include "core/object/mr.h"
#include "core/object/multi.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/object/pieces.h"
#include "core/object/rkey.h"
#include "core/object/stats.h"
#include "core/object/usdt.h"
#include "core/object/wakeup.h"
#include "core/protocol/cma.h"
#include "core/protocol/keys.h"
#include "core/protocol/msg.h"
#include "core/protocol/withdraw.h"
#include "core/wire/frame.h"

static inline __attribute__((always_inline)) void consumed(struct xport_ep *ep, uint32_t charge)
{
	ep->rx.state.freed += charge;
	if (ep->state < XPI_EP_FAILING && ep->rx.state.freed - ep->rx.acked.freed >= ep->msg.window / 4)
		xpi_work(ep); /* one that failed is in another list, and may be freed out of this one */
}

void xpi_msg_consumed(struct xport_ep *ep, uint32_t charge)
{
	consumed(ep, charge);
}

/* From here on the receive belongs to the endpoint. */
static void bind(struct xport *x, struct xpi_op *op, struct xport_ep *ep)
{
	op->ep = ep;
	ep->refs++;
	x->nreceives--;
}

/*
 * Read as a signed number, op->len is negative for a list, and for a buffer longer than any message. So one comparison finds
 * both, and truncation.
 */
static const uint64_t list_len = UINT64_MAX;

static inline bool longer(uint64_t length, uint64_t len)
{
	return (int64_t)length > (int64_t)len;
}

/* The space of a posted receive. */
static inline uint64_t receive_room(const struct xpi_op *op)
{
	return op->kind >= XPI_OP_LIST ? xpi_pieces_of(op)->total : op->len;
}

static inline void delivered(struct xpi_op *op, struct xport_ep *ep, uint64_t tag, uint64_t length)
{
	bind(ep->x, op, ep);
	ep->n.posted[XPORT_OP_RECV]++;
	op->tag = tag;
	op->len = length;
	op->peer = ep->peer.incarnation;
	if (op->mr != NULL)
		xpi_mr_idle(op->mr);
	op->mr = NULL;
	xpi_cq_push(&ep->x->cq, op);
}

/* A message that fills more than its buffer, or goes to a list or a receive that takes many. */
static __attribute__((noinline)) void deliver_unusual(struct xpi_op *op, struct xport_ep *ep, uint64_t tag,
                                                      const uint8_t *data, uint64_t length)
{
	uint64_t room, n;

	if (op->kind >= XPI_OP_MULTI) {
		xpi_msg_multi_eager(op, ep, tag, data, length);
		return;
	}
	room = receive_room(op);
	n = length < room ? length : room;
	op->status = XPORT_OK;
	if (op->kind >= XPI_OP_LIST) {
		xpi_pieces_in(xpi_pieces_of(op), 0, data, n);
		xpi_op_list_end(op);
	} else {
		xpi_copy(op->buf, data, n);
	}
	ep->n.bytes_in += n;
	if (length > room) {
		op->status = XPORT_ERR_TRUNCATED;
		xpi_stats_error(ep, op->status);
	}
	delivered(op, ep, tag, length);
}

static inline __attribute__((always_inline)) void deliver(struct xpi_op *op, struct xport_ep *ep, uint64_t tag,
                                                          const uint8_t *data, uint64_t length)
{
	if (__builtin_expect(longer(length, op->len), 0)) {
		deliver_unusual(op, ep, tag, data, length);
		return;
	}
	op->status = XPORT_OK;
	ep->n.bytes_in += length;
	xpi_copy(op->buf, data, length);
	delivered(op, ep, tag, length);
}

/* Whether the network may put what is received to where it belongs. */
static bool lendable(const struct xport_ep *ep, const struct xpi_op *op)
{
	return op->mr != NULL && xpi_mr_on(op->mr, ep->tp) != NULL && (op->mr->rights & XPORT_REMOTE_RECV) != 0 &&
	       (op->flags & XPI_OP_TIMED) == 0 && xpi_choice_lend(&ep->x->settings, &ep->tp->caps);
}

/* Answers a rendezvous, which is consumed when the answer has left: its answers cost memory, too. */
void xpi_msg_accept_body(struct xpi_op *op, struct xpi_op *cts, struct xport_ep *ep, uint64_t tag, uint64_t length,
                         uint32_t rts)
{
	struct xport *x = ep->x;
	uint64_t room = receive_room(op), accept = (op->flags & XPORT_EAGER) != 0 ? 0 : length < room ? length : room;

	bind(x, op, ep);
	if (op->kind >= XPI_OP_LIST)
		xpi_pieces_matched(xpi_pieces_of(op));
	if (x->backpressure.wanted)
		xpi_signal(x); /* the place of a posted receive, long before the body is here */
	ep->n.posted[XPORT_OP_RECV]++;
	ep->n.bytes_in += accept;
	op->tag = tag;
	op->status = length > accept ? XPORT_ERR_TRUNCATED : XPORT_OK;
	op->mask = accept;
	op->len = length;
	op->done = 0;
	op->stamp = x->tick; /* from here on it can be too old */
	if ((op->flags & XPI_OP_PART) == 0)
		op->peer = ep->peer.incarnation;
	cts->region = rts;
	cts->tag = accept;
	cts->offset = accept > 0 ? xpi_op_name(x, op) : 0;
	cts->len = 0;
	if (accept > 0 && lendable(ep, op) && xpi_mr_lend(ep, op->mr)) {
		/* Numbers: the receive, and the region, may end before this leaves. */
		cts->len = sizeof(struct xpi_cts_place);
		cts->after = op->mr->id;
		cts->after_native = (uint64_t)(op->buf - op->mr->base);
	}
	xpi_list_push(&ep->reply.q, &cts->link);
	xpi_work(ep);
	if (accept > 0) {
		op->waits = XPI_WAIT_REPLY;
		xpi_list_push(&ep->requests, &op->link);
	} else {
		xpi_op_complete(op, op->status);
	}
}

int xpi_msg_receive_may(struct xport *x, const char *operation, const struct xport_opt *opt)
{
	if (opt != NULL && opt->source != NULL && opt->source->x != x)
		return xpi_refuse(x, XPORT_ERR_INVALID, operation, "the source belongs to another instance");
	if (x->nreceives >= x->settings.queue_depth) {
		xpi_again_begin(x, NULL);
		x->past.again++;
		return xpi_refuse(x, XPORT_ERR_AGAIN, operation, "%u receives are posted", x->nreceives);
	}
	if (__builtin_expect(x->backpressure.receive_wanted, 0))
		xpi_again_end(x, NULL);
	return XPORT_OK;
}

/* A receive for which a message has come already; it was removed from its list. */
static inline __attribute__((always_inline)) void take_waiting(struct xport *x, struct xpi_op *op,
                                                               struct xpi_unexpected *u)
{
	struct xpi_op *cts;

	if (u->rts == 0) {
		consumed(u->ep, u->charge);
		deliver(op, u->ep, u->tag, u->data, u->length);
	} else if ((cts = xpi_op_get(x, u->ep, XPI_OP_CTS)) != NULL) {
		xpi_msg_accept_body(op, cts, u->ep, u->tag, u->length, u->rts);
	} else {
		op->peer = u->ep->peer.incarnation;
		xpi_recv_end(x, op, XPORT_ERR_NO_MEMORY);
		xpi_ep_fail(u->ep, XPORT_ERR_NO_MEMORY, XPORT_EVENT_LOST);
	}
	xpi_msg_drop(x, u);
}

void xpi_msg_take_waiting(struct xport *x, struct xpi_op *op, struct xpi_unexpected *u)
{
	take_waiting(x, op, u);
}

/* A receive of `len` bytes for the application, into `buf`: posted, or matched at once. */
static inline __attribute__((always_inline)) int receive_post(struct xport *x, unsigned kind, const char *operation,
                                                              void *buf, uint64_t len, uint64_t tag, uint64_t mask,
                                                              const struct xport_opt *opt)
{
	struct xport_ep *source = opt != NULL ? opt->source : NULL;
	struct xpi_unexpected *u;
	struct xpi_op *op;

	op = xpi_op_get(x, source, kind);
	if (op == NULL)
		return xpi_refuse(x, XPORT_ERR_NO_MEMORY, operation, "no memory for another operation");
	/* What had arrived before the end may still be received; nothing else will come. */
	u = xpi_match_message(x->match, source, tag, mask);
	if (u == NULL && source != NULL && source->state != XPI_EP_OPEN) {
		xpi_op_put(x, op);
		return xpi_ep_refuse(source, operation);
	}
	op->buf = buf;
	op->len = kind == XPORT_OP_RECV ? len : list_len;
	op->tag = tag;
	op->mask = mask;
	op->offset = 0;
	op->flags = opt != NULL ? (uint8_t)opt->flags : 0;
	op->context = opt != NULL ? opt->context : NULL;
	op->mr = opt != NULL && kind == XPORT_OP_RECV ? opt->mr : NULL;
	if (op->mr != NULL)
		op->mr->busy++;
	op->stamp = 0;
	x->nreceives++;
	XPI_PROBE_OP_POSTED(source, XPORT_OP_RECV, len, op->context);
	if (opt != NULL && opt->id != NULL)
		*opt->id = xpi_op_id(x, op);
	if (u == NULL) {
		xpi_match_post(x->match, op);
		if (kind != XPORT_OP_RECV)
			xpi_pieces_posted(xpi_pieces_of(op));
		return XPORT_OK;
	}
	take_waiting(x, op, u);
	return XPORT_OK;
}

/* The options of a receive with a deadline, whose id the caller needs as well as the application. */
static struct xport_opt timed_options(const struct xport_opt *opt, uint64_t *id)
{
	struct xport_opt timed = xpi_opt_plain(opt, 0);

	timed.flags |= XPI_OP_TIMED;
	timed.id = id;
	return timed;
}

/* It was posted: with `id`, and a deadline. */
static int receive_timed(struct xport *x, const struct xport_opt *opt, uint64_t id, int64_t at_ms)
{
	if (opt->id != NULL)
		*opt->id = id;
	xpi_deadline_add(x, id, at_ms);
	return XPORT_OK;
}

static __attribute__((noinline, cold)) int recv_timed(struct xport *x, void *buf, size_t len, uint64_t tag,
                                                      uint64_t mask, const struct xport_opt *opt)
{
	const struct xport_opt plain = xpi_opt_plain(opt, 0);
	struct xport_opt timed;
	int64_t at_ms;
	uint64_t id = 0;
	int r;

	if (!xpi_opt_fits(x, buf, len, &plain, XPORT_EAGER, true))
		return xpi_opt_refuse(x, "xport_recv", buf, len, &plain, XPORT_EAGER);
	r = xpi_msg_receive_may(x, "xport_recv", opt);
	if (r == XPORT_OK)
		r = xpi_deadline_begin(x, "xport_recv", opt, &at_ms);
	if (r != XPORT_OK)
		return r;
	timed = timed_options(opt, &id);
	r = receive_post(x, XPORT_OP_RECV, "xport_recv", buf, len, tag, mask, &timed);
	return r == XPORT_OK ? receive_timed(x, opt, id, at_ms) : r;
}

int xpi_recv(struct xport *x, void *buf, size_t len, uint64_t tag, uint64_t mask, const struct xport_opt *opt)
{
	int r = XPORT_OK;

	xpi_assert_locked(x);
	if (!xpi_opt_fits(x, buf, len, opt, XPORT_EAGER, true)) {
		if (opt != NULL && (opt->flags & XPORT_MULTI) != 0)
			return xpi_msg_recv_multi(x, buf, len, tag, mask, opt);
		if (opt != NULL && (opt->flags & XPORT_PEER) != 0)
			return xpi_msg_recv_peer(x, buf, len, tag, mask, opt);
		if (xpi_opt_timed(opt))
			return recv_timed(x, buf, len, tag, mask, opt);
		r = xpi_opt_refuse(x, "xport_recv", buf, len, opt, XPORT_EAGER);
	}
	if (r == XPORT_OK)
		r = xpi_msg_receive_may(x, "xport_recv", opt);
	if (r != XPORT_OK)
		return r;
	return receive_post(x, XPORT_OP_RECV, "xport_recv", buf, len, tag, mask, opt);
}

static inline __attribute__((always_inline)) int recvv_post(struct xport *x, const struct xport_iov *list, size_t count,
                                                            uint64_t total, uint64_t tag, uint64_t mask,
                                                            const struct xport_opt *opt)
{
	struct xpi_pieces *p = xpi_pieces_new(list, count, opt, total);
	int r;

	if (p == NULL)
		return xpi_refuse(x, XPORT_ERR_NO_MEMORY, "xport_recvv", "no memory for the list");
	r = receive_post(x, XPI_OP_LIST | XPORT_OP_RECV, "xport_recvv", p, total, tag, mask, opt);
	if (r != XPORT_OK)
		xpi_pieces_free(p);
	return r;
}

static __attribute__((noinline, cold)) int recvv_timed(struct xport *x, const struct xport_iov *list, size_t count,
                                                       uint64_t tag, uint64_t mask, const struct xport_opt *opt)
{
	const struct xport_opt plain = xpi_opt_plain(opt, 0);
	struct xport_opt timed;
	uint64_t total, id = 0;
	int64_t at_ms;
	int r = xpi_pieces_valid(x, "xport_recvv", list, count, &plain, XPORT_EAGER, true, &total);

	if (r == XPI_PIECES_TIMED)
		r = xpi_opt_refuse(x, "xport_recvv", NULL, 0, &plain, XPORT_EAGER);
	if (r == XPORT_OK)
		r = xpi_msg_receive_may(x, "xport_recvv", opt);
	if (r == XPORT_OK)
		r = xpi_deadline_begin(x, "xport_recvv", opt, &at_ms);
	if (r != XPORT_OK)
		return r;
	timed = timed_options(opt, &id);
	r = recvv_post(x, list, count, total, tag, mask, &timed);
	return r == XPORT_OK ? receive_timed(x, opt, id, at_ms) : r;
}

int xpi_recvv(struct xport *x, const struct xport_iov *list, size_t count, uint64_t tag, uint64_t mask,
              const struct xport_opt *opt)
{
	uint64_t total;
	int r;

	xpi_assert_locked(x);
	if (__builtin_expect(opt != NULL && (opt->flags & XPORT_PEER) != 0, 0))
		return xpi_msg_recvv_peer(x, list, count, tag, mask, opt);
	r = xpi_pieces_valid(x, "xport_recvv", list, count, opt, XPORT_EAGER, true, &total);
	if (r == XPI_PIECES_TIMED)
		return recvv_timed(x, list, count, tag, mask, opt);
	if (r == XPORT_OK)
		r = xpi_msg_receive_may(x, "xport_recvv", opt);
	return r == XPORT_OK ? recvv_post(x, list, count, total, tag, mask, opt) : r;
}

void xpi_recv_end(struct xport *x, struct xpi_op *op, int status)
{
	xpi_assert_locked(x);
	if (op->kind >= XPI_OP_MULTI) {
		xpi_multi_end(x, op, status);
		return;
	}
	op->len = 0;
	if (op->ep != NULL) {
		bind(x, op, op->ep);
		op->peer = op->ep->peer.incarnation;
		xpi_op_complete(op, status);
		return;
	}
	x->nreceives--;
	if (op->kind >= XPI_OP_LIST)
		xpi_op_list_end(op);
	if (op->mr != NULL)
		xpi_mr_idle(op->mr);
	op->mr = NULL;
	op->status = status;
	if (status < 0 && -status < XPI_STATUSES)
		x->past.errors[-status]++;
	xpi_cq_push(&x->cq, op);
}

/* Counts what the peer charged itself; false if it ignores the window. */
static bool charge_in(struct xport_ep *ep, uint32_t charge)
{
	ep->msg.charged += charge;
	return ep->msg.charged - ep->rx.state.freed <= ep->msg.window;
}

static struct xpi_pool *room_for(struct xport_ep *ep, uint32_t len)
{
	for (unsigned i = 0; i < XPI_UNEXPECTED_CLASSES; i++)
		if (len <= xpi_unexpected_room(i))
			return &ep->x->unexpected_pools[i];
	return &ep->tp->frame_pool;
}

static bool store(struct xport_ep *ep, uint64_t tag, const uint8_t *data, uint64_t length, uint32_t rts)
{
	struct xport *x = ep->x;
	uint32_t here = rts != 0 ? 0 : (uint32_t)length;
	struct xpi_pool *pool = room_for(ep, here);
	struct xpi_unexpected *u = xpi_pool_get(pool);

	if (u == NULL)
		return false;
	u->ep = ep;
	u->tag = tag;
	u->length = length;
	u->rts = rts;
	u->charge = xpi_charge(here);
	u->pool = pool;
	if (here > 0)
		memcpy(u->data, data, here);
	xpi_match_add(x->match, u);
	return true;
}

bool xpi_msg_arrived(struct xport_ep *ep, uint64_t tag, const uint8_t *data, uint32_t len)
{
	struct xpi_op *op;

	xpi_assert_locked(ep->x);
	if (!charge_in(ep, xpi_charge(len)))
		return false;
	op = xpi_match_receive(ep->x->match, ep, tag);
	if (op != NULL) {
		consumed(ep, xpi_charge(len));
		deliver(op, ep, tag, data, len);
	} else if (!store(ep, tag, data, len, 0)) {
		xpi_ep_fail(ep, XPORT_ERR_NO_MEMORY, XPORT_EVENT_LOST);
	}
	return true;
}

bool xpi_msg_rts(struct xport_ep *ep, uint64_t tag, uint64_t length, uint32_t rts)
{
	struct xport *x = ep->x;
	struct xpi_op *op, *cts;

	xpi_assert_locked(ep->x);
	if (rts == 0 || !charge_in(ep, xpi_charge(0)))
		return false;
	cts = xpi_op_get(x, ep, XPI_OP_CTS); /* before: a receive that is matched cannot go back to its place */
	op = cts != NULL ? xpi_match_receive(x->match, ep, tag) : NULL;
	if (op != NULL) {
		if (op->kind >= XPI_OP_MULTI)
			xpi_msg_multi_long(op, cts, ep, tag, length, rts);
		else
			xpi_msg_accept_body(op, cts, ep, tag, length, rts);
		return true;
	}
	if (cts == NULL || !store(ep, tag, NULL, length, rts))
		xpi_ep_fail(ep, XPORT_ERR_NO_MEMORY, XPORT_EVENT_LOST);
	if (cts != NULL)
		xpi_op_put(x, cts);
	return true;
}

bool xpi_msg_cts(struct xport_ep *ep, const struct xpi_rec_cts *rec, const struct xpi_cts_place *place)
{
	struct xpi_op *op = xpi_op_named(ep, le32toh(rec->op));
	uint64_t accept = le64toh(rec->accept);

	if (op == NULL || xpi_op_what(op) != XPORT_OP_SEND || op->waits != XPI_WAIT_REPLY || accept > op->len)
		return xpi_ghost_cts(ep, le32toh(rec->op), le32toh(rec->into));
	op->mask = accept;
	op->region = le32toh(rec->into);
	op->done = 0;
	op->waits = XPI_WAIT_SENT;
	if (place != NULL && op->kind == XPORT_OP_SEND) { /* a list goes in frames */
		op->after = le64toh(place->offset);
		op->after_native = UINT64_MAX;
		op->rkey = xpi_rkey_borrow(ep, le64toh(place->region), op->after, accept);
	}
	xpi_list_del(&op->link);
	xpi_list_push(&ep->reply.q, &op->link);
	xpi_work(ep);
	return true;
}

/* The receive of that name, if it goes on there and takes so much; else NULL. */
static struct xpi_op *receive_named(struct xport_ep *ep, uint32_t into, uint64_t at, uint64_t len)
{
	struct xpi_op *op = xpi_op_named(ep, into);

	return op != NULL && xpi_op_what(op) == XPORT_OP_RECV && op->waits == XPI_WAIT_REPLY && at == op->done &&
	                       len <= op->mask - op->done
	               ? op
	               : NULL;
}

static void receive_goes_on(struct xpi_op *op, uint64_t len)
{
	op->done += len;
	if (op->done == op->mask) {
		op->waits = 0;
		xpi_op_complete(op, op->status);
	}
}

bool xpi_msg_body(struct xport_ep *ep, uint32_t into, uint64_t at, const uint8_t *data, uint32_t len)
{
	struct xpi_op *op = receive_named(ep, into, at, len);

	if (op == NULL)
		return xpi_ghost_data(ep, into, XPORT_OP_RECV, at, len);
	if (op->kind >= XPI_OP_LIST)
		xpi_pieces_in(xpi_pieces_of(op), at, data, len);
	else
		memcpy(op->buf + at, data, len);
	receive_goes_on(op, len);
	return true;
}

bool xpi_msg_placed(struct xport_ep *ep, uint32_t into, uint64_t len)
{
	struct xpi_op *op = receive_named(ep, into, 0, len);

	if (op == NULL || len != op->mask || op->mr == NULL || !lendable(ep, op))
		return false;
	receive_goes_on(op, len);
	return true;
}

/* To the pieces from op->done on. */
static bool read_list(struct xport_ep *ep, const struct xpi_rec_cma *rec, struct xpi_op *op)
{
	struct iovec to[XPI_IOV_MAX];
	unsigned n = 0;
	uint64_t len;

	for (uint64_t at = op->done, left = le64toh(rec->length); left > 0; at += len, left -= len) {
		to[n].iov_base = xpi_pieces_at(xpi_pieces_of(op), at, &len);
		len = len < left ? len : left;
		to[n++].iov_len = len;
	}
	return xpi_cma_read_list(ep, rec, to, n);
}

bool xpi_msg_body_cma(struct xport_ep *ep, const struct xpi_rec_cma *rec)
{
	struct xpi_op *op = receive_named(ep, le32toh(rec->op), le64toh(rec->at), le64toh(rec->length));

	if (op == NULL)
		return xpi_ghost_data(ep, le32toh(rec->op), XPORT_OP_RECV, le64toh(rec->at), le64toh(rec->length));
	if (!(op->kind >= XPI_OP_LIST ? read_list(ep, rec, op) : xpi_cma_read(ep, rec, op->buf + op->done)))
		return false;
	receive_goes_on(op, le64toh(rec->length));
	return true;
}
