/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/msg.h"

#include <string.h>

#include "core/cma.h"
#include "core/match.h"
#include "core/mr.h"
#include "core/quick.h"
#include "core/rkey.h"
#include "core/rma.h"
#include "core/select.h"
#include "core/tx.h"

size_t xpi_msg_notify_max(const struct xport_ep *ep)
{
	return xpi_tx_room(ep, sizeof(struct xpi_rec_notify));
}

size_t xpi_msg_eager_max(const struct xport_ep *ep)
{
	return xpi_tx_room(ep, sizeof(struct xpi_rec_send));
}

static inline bool window_takes(const struct xport_ep *ep, uint32_t charge)
{
	return ep->win_used - ep->win_freed + charge <= ep->window;
}

bool xpi_msg_open(const struct xport_ep *ep)
{
	return xpi_list_empty(&ep->q_msg) && window_takes(ep, xpi_charge(0));
}

/* ---- handing over ---- */

static __attribute__((noinline)) int notify_step(struct xport_ep *ep, struct xpi_op *op)
{
	bool told = op->kind == XPI_OP_TOLD;
	bool tracked = !told && (op->flags & (XPORT_LOCAL | XPORT_QUIET)) == 0;
	uint32_t len = told ? 0 : (uint32_t)op->len;
	struct xpi_rec_notify *rec = NULL;

	if (window_takes(ep, xpi_charge(0)))
		rec = xpi_tx_begin(ep, sizeof(*rec), len);
	if (rec == NULL)
		return XPORT_ERR_AGAIN;
	*rec = (struct xpi_rec_notify){
		.r = {.type = XPI_REC_NOTIFY, .len = htole32(len)},
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
	ep->win_used += xpi_charge(0);
	ep->change_seq = xpi_tx_seq(ep);
	xpi_tx_own(ep);
	op->waits = 0;
	if (tracked) {
		op->waits = XPI_WAIT_ACK;
		op->seq = ep->change_seq;
	}
	if (told) {
		ep->ntold--;
		if (ep->x->want_space)
			xpi_signal(ep->x);
	}
	xpi_op_settle(op);
	return XPORT_OK;
}

static __attribute__((noinline)) int rts_step(struct xport_ep *ep, struct xpi_op *op)
{
	struct xpi_rec_rts rec = {
		.r = {.type = XPI_REC_RTS},
		.tag = htole64(op->tag),
		.length = htole64(op->len),
		.op = htole32(xpi_op_name(ep->x, op)),
	};

	if (!window_takes(ep, xpi_charge(0)) || xpi_tx_record(ep, NULL, &rec.r, sizeof(rec), NULL, 0) < 0)
		return XPORT_ERR_AGAIN;
	ep->win_used += xpi_charge(0);
	op->waits = XPI_WAIT_REPLY;
	xpi_op_settle(op);
	return XPORT_OK;
}

static inline int send_step(struct xport_ep *ep, struct xpi_op *op)
{
	uint32_t charge = xpi_charge(op->len);
	struct xpi_rec_send *rec = NULL;

	if (op->len > xpi_msg_eager_max(ep))
		return rts_step(ep, op);
	if (window_takes(ep, charge))
		rec = xpi_tx_begin(ep, sizeof(*rec), op->len);
	if (rec == NULL)
		return XPORT_ERR_AGAIN;
	*rec = (struct xpi_rec_send){.r = {.type = XPI_REC_SEND, .len = htole32((uint32_t)op->len)},
	                             .tag = htole64(op->tag)};
	if (xpi_tx_end(ep, op, sizeof(*rec), op->buf, op->len, 0) < 0)
		return XPORT_ERR_AGAIN;
	ep->win_used += charge;
	xpi_tx_own(ep);
	op->waits = 0;
	if (__builtin_expect(op->pending == 0 && !xpi_list_linked(&op->link), 1))
		xpi_op_complete_new(ep->x, op);
	else
		xpi_op_settle(op);
	return XPORT_OK;
}

/* Whether everything that must arrive before it was handed over. */
static inline bool predecessors_gone(struct xport_ep *ep, struct xpi_op *op)
{
	if (ep->rma_sent < op->after)
		return false;
	if (op->after_native == UINT64_MAX)
		op->after_native = op->after == 0 ? 0 : ep->native_handed;
	return ep->native_drained >= op->after_native || xpi_native_ready(ep, op->after_native);
}

static inline __attribute__((always_inline)) int step(struct xport_ep *ep, struct xpi_op *op)
{
	if (!predecessors_gone(ep, op))
		return XPORT_ERR_AGAIN;
	if (ep->direct) /* copies into the peer's memory come before the message */
		atomic_thread_fence(memory_order_release);
	return op->kind == XPORT_OP_SEND ? send_step(ep, op) : notify_step(ep, op);
}

int xpi_msg_step(struct xport_ep *ep, struct xpi_op *op)
{
	return step(ep, op);
}

static inline __attribute__((always_inline)) void start(struct xport_ep *ep, struct xpi_op *op)
{
	op->waits = XPI_WAIT_SENT;
	op->after_native = UINT64_MAX;
	if (xpi_list_empty(&ep->q_msg) && step(ep, op) == XPORT_OK)
		return;
	xpi_list_push(&ep->q_msg, &op->link);
	ep->quick = 0;
	xpi_work(ep);
}

void xpi_msg_start(struct xport_ep *ep, struct xpi_op *op)
{
	start(ep, op);
}

void xpi_msg_pump(struct xport_ep *ep)
{
	while (!xpi_list_empty(&ep->q_msg))
		if (xpi_msg_step(ep, xpi_container(ep->q_msg.next, struct xpi_op, link)) != XPORT_OK)
			return;
}

static int body_cma_step(struct xport_ep *ep, struct xpi_op *op)
{
	struct xpi_rec_cma rec = {.r = {.a = XPI_REC_DATA}, .op = htole32((uint32_t)op->region)};
	int r = xpi_cma_step(ep, op, &rec, op->mask);

	if (r == XPORT_OK)
		xpi_op_settle(op);
	return r;
}

/* By the network, to where it belongs; that it is there goes in a frame. */
static int body_put_step(struct xport_ep *ep, struct xpi_op *op)
{
	struct xpi_rec_placed rec = {
		.r = {.type = XPI_REC_PLACED}, .length = htole64(op->mask), .into = htole32((uint32_t)op->region)};
	int r;

	if (!op->rkey->native || op->rkey->put != XPI_BY_NETWORK)
		return XPORT_ERR_NOT_SUPPORTED;
	if (op->after_native == UINT64_MAX) {
		r = xpi_native_pieces(ep, op, op->after, op->mask);
		if (r != XPORT_OK) /* others need not wait for a piece that is under way */
			return r == XPORT_ERR_AGAIN && op->pending > 0 ? XPORT_ERR_BUSY : r;
		op->after_native = ++ep->native_handed;
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
		op->waits = 0;
		xpi_op_settle(op);
	}
	return XPORT_OK;
}

/* ---- posting ---- */

int xpi_send(struct xport_ep *ep, const void *buf, size_t len, uint64_t tag, const struct xport_opt *opt)
{
	struct xpi_op *op;

	if (__builtin_expect(!xpi_opt_fits(ep->x, buf, len, opt, 0), 0))
		return xpi_ep_refused(ep, xpi_opt_refuse(ep->x, "xport_send", buf, len, opt, 0));
	if (!xpi_tx_alone(ep)) {
		if (xpi_quick_send_joins(ep, buf, len, opt))
			return xpi_quick_send_join(ep, buf, len, tag, opt);
	} else if (xpi_quick_again(ep) && xpi_quick_send_may(ep, buf, len, opt)) {
		return xpi_quick_send(ep, buf, len, tag, opt);
	}
	if (__builtin_expect(xpi_full(ep), 0))
		return xpi_full_refuse(ep, "xport_send");
	op = xpi_op_get(ep->x, ep, XPORT_OP_SEND);
	if (__builtin_expect(op == NULL, 0))
		return xpi_ep_refused(
			ep, xpi_refuse(ep->x, XPORT_ERR_NO_MEMORY, "xport_send", "no memory for another operation"));
	op->buf = (uint8_t *)(uintptr_t)buf;
	op->len = len;
	op->tag = tag;
	op->offset = 0;
	op->stamp = ep->x->tick;
	op->context = NULL;
	op->after = ep->fence_rma;
	if (opt != NULL) {
		op->context = opt->context;
		op->mr = opt->mr;
		if (op->mr != NULL)
			op->mr->busy++;
	}
	ep->refs++;
	ep->quick = 0; /* it counts in the depth, and takes of the window */
	ep->n.posted[XPORT_OP_SEND]++;
	ep->n.bytes_out += len;
	XPI_PROBE_OP_POSTED(ep, XPORT_OP_SEND, len, op->context);
	start(ep, op);
	return XPORT_OK;
}

void xpi_msg_drop(struct xport *x, struct xpi_unexpected *u)
{
	(void)x;
	xpi_pool_put(u->pool, u);
}

static inline void consumed(struct xport_ep *ep, uint32_t charge)
{
	ep->seen.freed += charge;
	if (ep->state < XPI_EP_FAILING && ep->seen.freed - ep->told.freed >= ep->window / 4)
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

static inline __attribute__((always_inline)) void deliver(struct xpi_op *op, struct xport_ep *ep, uint64_t tag,
                                                          const uint8_t *data, uint64_t length)
{
	uint64_t n = length < op->len ? length : op->len;

	bind(ep->x, op, ep);
	ep->n.posted[XPORT_OP_RECV]++;
	ep->n.bytes_in += n;
	xpi_copy(op->buf, data, n);
	op->tag = tag;
	op->status = XPORT_OK;
	if (__builtin_expect(length > op->len, 0)) {
		op->status = XPORT_ERR_TRUNCATED;
		xpi_stats_error(ep, op->status);
	}
	op->len = length;
	if (op->mr != NULL)
		xpi_mr_idle(op->mr);
	op->mr = NULL;
	xpi_cq_push(&ep->x->cq, op);
}

/* Whether the network may put what is received to where it belongs. */
static bool lendable(const struct xport *x, const struct xpi_op *op)
{
	return op->mr != NULL && op->mr->native && (op->mr->rights & XPORT_REMOTE_RECV) != 0 &&
	       xpi_choice_lend(&x->settings, &x->caps);
}

/* Answers a rendezvous, which is consumed when the answer has left: its answers cost memory, too. */
static void accept_body(struct xpi_op *op, struct xpi_op *cts, struct xport_ep *ep, uint64_t tag, uint64_t length,
                        uint32_t rts)
{
	struct xport *x = ep->x;
	uint64_t accept = (op->flags & XPORT_EAGER) != 0 ? 0 : length < op->len ? length : op->len;

	bind(x, op, ep);
	if (x->want_space)
		xpi_signal(x); /* the place of a posted receive, long before the body is here */
	ep->n.posted[XPORT_OP_RECV]++;
	ep->n.bytes_in += accept;
	op->tag = tag;
	op->status = length > accept ? XPORT_ERR_TRUNCATED : XPORT_OK;
	op->mask = accept;
	op->len = length;
	op->done = 0;
	op->stamp = x->tick; /* from here on it can be too old */
	cts->region = rts;
	cts->tag = accept;
	cts->offset = accept > 0 ? xpi_op_name(x, op) : 0;
	cts->len = 0;
	if (accept > 0 && lendable(x, op) && xpi_mr_lend(ep, op->mr)) {
		/* Numbers: the receive, and the region, may end before this leaves. */
		cts->len = sizeof(struct xpi_cts_place);
		cts->after = op->mr->id;
		cts->after_native = (uint64_t)(op->buf - op->mr->base);
	}
	xpi_list_push(&ep->q_reply, &cts->link);
	xpi_work(ep);
	if (accept > 0) {
		op->waits = XPI_WAIT_REPLY;
		xpi_list_push(&ep->requests, &op->link);
	} else {
		xpi_op_complete(op, op->status);
	}
}

static int receive_valid(struct xport *x, const void *buf, size_t len, const struct xport_opt *opt)
{
	if (!xpi_opt_fits(x, buf, len, opt, XPORT_EAGER))
		return xpi_opt_refuse(x, "xport_recv", buf, len, opt, XPORT_EAGER);
	if (opt != NULL && opt->source != NULL && opt->source->x != x)
		return xpi_refuse(x, XPORT_ERR_INVALID, "xport_recv", "the source belongs to another instance");
	if (x->nreceives >= x->settings.queue_depth) {
		xpi_want_space(x, NULL);
		x->receive_refused = true;
		x->past.again++;
		return xpi_refuse(x, XPORT_ERR_AGAIN, "xport_recv", "%u receives are posted", x->nreceives);
	}
	if (__builtin_expect(x->receive_refused, 0)) {
		x->receive_refused = false;
		xpi_found_space(x, NULL);
	}
	return XPORT_OK;
}

int xpi_recv(struct xport *x, void *buf, size_t len, uint64_t tag, uint64_t mask, const struct xport_opt *opt)
{
	struct xport_ep *source = opt != NULL ? opt->source : NULL;
	struct xpi_unexpected *u;
	struct xpi_op *op, *cts;
	int r = receive_valid(x, buf, len, opt);

	if (r != XPORT_OK)
		return r;
	op = xpi_op_get(x, source, XPORT_OP_RECV);
	if (op == NULL)
		return xpi_refuse(x, XPORT_ERR_NO_MEMORY, "xport_recv", "no memory for another operation");
	/* What had arrived before the end may still be received; nothing else will come. */
	u = xpi_match_message(x->match, source, tag, mask);
	if (u == NULL && source != NULL && source->state != XPI_EP_OPEN) {
		xpi_op_put(x, op);
		return xpi_ep_refuse(source, "xport_recv");
	}
	op->buf = buf;
	op->len = len;
	op->tag = tag;
	op->mask = mask;
	op->offset = 0;
	op->flags = opt != NULL ? (uint8_t)opt->flags : 0;
	op->context = opt != NULL ? opt->context : NULL;
	op->mr = opt != NULL ? opt->mr : NULL;
	if (op->mr != NULL)
		op->mr->busy++;
	op->stamp = 0;
	x->nreceives++;
	XPI_PROBE_OP_POSTED(source, XPORT_OP_RECV, len, op->context);
	if (opt != NULL && opt->id != NULL)
		*opt->id = (uint64_t)op->gen << 32 | xpi_op_name(x, op);
	if (u == NULL) {
		xpi_match_post(x->match, op);
		return XPORT_OK;
	}
	if (u->rts == 0) {
		consumed(u->ep, u->charge);
		deliver(op, u->ep, u->tag, u->data, u->length);
	} else if ((cts = xpi_op_get(x, u->ep, XPI_OP_CTS)) != NULL) {
		accept_body(op, cts, u->ep, u->tag, u->length, u->rts);
	} else {
		xpi_recv_end(x, op, XPORT_ERR_NO_MEMORY);
		xpi_ep_fail(u->ep, XPORT_ERR_NO_MEMORY, XPORT_EVENT_LOST);
	}
	xpi_msg_drop(x, u);
	return XPORT_OK;
}

int xpi_cancel(struct xport *x, uint64_t id)
{
	uint32_t name = (uint32_t)id;
	struct xpi_op *op = name != 0 ? xpi_pool_at(&x->op_pool, name - 1) : NULL;

	if (op == NULL || !op->alive || op->gen != (uint32_t)(id >> 32) || op->kind != XPORT_OP_RECV)
		return xpi_refuse(x, XPORT_ERR_INVALID, "xport_cancel", "no receive has this id (any more)");
	if (!op->posted)
		return xpi_refuse(x, XPORT_ERR_BUSY, "xport_cancel", "the receive was matched already");
	xpi_match_remove(x->match, op);
	xpi_recv_end(x, op, XPORT_ERR_CANCELED);
	return XPORT_OK;
}

void xpi_recv_end(struct xport *x, struct xpi_op *op, int status)
{
	op->len = 0;
	if (op->ep != NULL) {
		bind(x, op, op->ep);
		xpi_op_complete(op, status);
		return;
	}
	x->nreceives--;
	if (op->mr != NULL)
		xpi_mr_idle(op->mr);
	op->mr = NULL;
	op->status = status;
	if (status < 0 && -status < XPI_STATUSES)
		x->past.errors[-status]++;
	xpi_cq_push(&x->cq, op);
}

/* ---- arriving ---- */

/* Counts what the peer charged itself; false if it ignores the window. */
static bool charge_in(struct xport_ep *ep, uint32_t charge)
{
	ep->rx_charged += charge;
	return ep->rx_charged - ep->seen.freed <= ep->window;
}

static struct xpi_pool *room_for(struct xport *x, uint32_t len)
{
	for (unsigned i = 0; i < XPI_UNEXPECTED_CLASSES; i++)
		if (len <= xpi_unexpected_room(i))
			return &x->unexpected_pools[i];
	return &x->frame_pool;
}

static bool store(struct xport_ep *ep, uint64_t tag, const uint8_t *data, uint64_t length, uint32_t rts)
{
	struct xport *x = ep->x;
	uint32_t here = rts != 0 ? 0 : (uint32_t)length;
	struct xpi_pool *pool = room_for(x, here);
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

	if (rts == 0 || !charge_in(ep, xpi_charge(0)))
		return false;
	cts = xpi_op_get(x, ep, XPI_OP_CTS); /* before: a receive that is matched cannot go back to its place */
	op = cts != NULL ? xpi_match_receive(x->match, ep, tag) : NULL;
	if (op != NULL) {
		accept_body(op, cts, ep, tag, length, rts);
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

	if (op == NULL || op->kind != XPORT_OP_SEND || op->waits != XPI_WAIT_REPLY || accept > op->len)
		return false;
	op->mask = accept;
	op->region = le32toh(rec->into);
	op->done = 0;
	op->waits = XPI_WAIT_SENT;
	if (place != NULL) {
		op->after = le64toh(place->offset);
		op->after_native = UINT64_MAX;
		op->rkey = xpi_rkey_borrow(ep, le64toh(place->region), op->after, accept);
	}
	xpi_list_del(&op->link);
	xpi_list_push(&ep->q_reply, &op->link);
	xpi_work(ep);
	return true;
}

/* The receive of that name, if it goes on there and takes so much; else NULL. */
static struct xpi_op *receive_named(struct xport_ep *ep, uint32_t into, uint64_t at, uint64_t len)
{
	struct xpi_op *op = xpi_op_named(ep, into);

	return op != NULL && op->kind == XPORT_OP_RECV && op->waits == XPI_WAIT_REPLY && at == op->done &&
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
		return false;
	memcpy(op->buf + at, data, len);
	receive_goes_on(op, len);
	return true;
}

bool xpi_msg_placed(struct xport_ep *ep, uint32_t into, uint64_t len)
{
	struct xpi_op *op = receive_named(ep, into, 0, len);

	if (op == NULL || len != op->mask || op->mr == NULL || !lendable(ep->x, op))
		return false;
	receive_goes_on(op, len);
	return true;
}

bool xpi_msg_body_cma(struct xport_ep *ep, const struct xpi_rec_cma *rec)
{
	struct xpi_op *op = receive_named(ep, le32toh(rec->op), le64toh(rec->at), le64toh(rec->length));

	if (op == NULL || !xpi_cma_read(ep, rec, op->buf + op->done))
		return false;
	receive_goes_on(op, le64toh(rec->length));
	return true;
}
