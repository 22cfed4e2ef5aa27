/* SPDX-License-Identifier: BSD-3-Clause */
/* post_msg.c - the beginning of sends, of one buffer and of a list. */
#include <string.h>

#include "core/object/deadline.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/object/pieces.h"
#include "core/object/usdt.h"
#include "core/post/fastpath.h"
#include "core/post/post.h"
#include "core/protocol/msg_step.h"
#include "core/protocol/tx.h"

static int send_timed(struct xport_ep *ep, const void *buf, size_t len, uint64_t tag, const struct xport_opt *opt);

int xpi_send(struct xport_ep *ep, const void *buf, size_t len, uint64_t tag, const struct xport_opt *opt)
{
	struct xpi_op *op;

	xpi_assert_locked(ep->x);
	if (__builtin_expect(!xpi_opt_fits(ep->x, buf, len, opt, 0, false), 0))
		return send_timed(ep, buf, len, tag, opt);
	if (!xpi_tx_alone(ep)) {
		if (xpi_fast_send_may_coalesce(ep, buf, len, opt))
			return xpi_fast_send_coalesce(ep, buf, len, tag, opt);
	} else if (xpi_fast_again(ep) && xpi_fast_send_may(ep, buf, len, opt)) {
		return xpi_fast_send(ep, buf, len, tag, opt);
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
	op->after = ep->rma.fence;
	if (opt != NULL) {
		op->context = opt->context;
		op->mr = opt->mr;
		if (op->mr != NULL)
			op->mr->busy++;
	}
	ep->refs++;
	ep->fast_left = 0; /* it counts in the depth, and takes of the window */
	ep->n.posted[XPORT_OP_SEND]++;
	ep->n.bytes_out += len;
	XPI_PROBE_OP_POSTED(ep, XPORT_OP_SEND, len, op->context);
	xpi_msg_start_inline(ep, op);
	return XPORT_OK;
}

/* Counts a send that was accepted. */
static inline __attribute__((always_inline)) void accept_list(struct xport_ep *ep, struct xpi_op *op)
{
	ep->refs++;
	ep->fast_left = 0; /* it counts in the depth, and takes of the window */
	ep->n.posted[XPORT_OP_SEND]++;
	ep->n.bytes_out += op->len;
	XPI_PROBE_OP_POSTED(ep, XPORT_OP_SEND, op->len, op->context);
}

/* It cannot leave now, or is long: the list is kept. */
static inline __attribute__((always_inline)) int list_queue(struct xport_ep *ep, const char *operation,
                                                            struct xpi_op *op, const struct xport_iov *list,
                                                            size_t count, const struct xport_opt *opt, bool copied)
{
	struct xpi_pieces *p = xpi_pieces_new(list, count, opt, op->len);

	if (p == NULL)
		return xpi_op_no_memory(ep, operation);
	p->copied = copied;
	op->kind = XPI_OP_LIST | XPORT_OP_SEND;
	op->buf = (uint8_t *)p;
	accept_list(ep, op);
	if (xpi_list_empty(&ep->msg.q) && xpi_msg_step(ep, op) == XPORT_OK)
		return XPORT_OK;
	xpi_list_push(&ep->msg.q, &op->link);
	xpi_work(ep);
	return XPORT_OK;
}

/* *id: of the operation, before its first step. NULL: nothing asks for it. It is then lent to the network and the peer. */
static inline __attribute__((always_inline)) int list_post(struct xport_ep *ep, const char *operation,
                                                           const struct xport_iov *list, size_t count, uint64_t total,
                                                           uint64_t tag, const struct xport_opt *opt, uint64_t *id)
{
	struct xpi_op *op;
	int r;

	if (xpi_full(ep))
		return xpi_full_refuse(ep, operation);
	op = xpi_op_get(ep->x, ep, XPORT_OP_SEND);
	if (op == NULL)
		return xpi_op_no_memory(ep, operation);
	op->len = total;
	op->tag = tag;
	op->offset = 0;
	op->stamp = ep->x->tick;
	op->context = opt != NULL ? opt->context : NULL;
	op->after = ep->rma.fence;
	op->after_native = UINT64_MAX;
	op->waits = XPI_WAIT_SENT;
	if (id != NULL) {
		op->region = 0;
		op->mask = UINT64_MAX; /* no receive has matched it */
		*id = xpi_op_id(ep->x, op);
	}
	if (total <= xpi_msg_eager_max(ep) && xpi_list_empty(&ep->msg.q) &&
	    xpi_msg_send_gathered(ep, op, list, count) == XPORT_OK) {
		accept_list(ep, op);
		return XPORT_OK;
	}
	r = list_queue(ep, operation, op, list, count, opt, id != NULL);
	if (r != XPORT_OK)
		xpi_op_free(ep, op);
	return r;
}

/* A list that can be withdrawn. */
static int list_post_timed(struct xport_ep *ep, const char *operation, const struct xport_iov *list, size_t count,
                           uint64_t total, uint64_t tag, const struct xport_opt *opt)
{
	const struct xport_opt plain = xpi_opt_plain(opt, XPORT_CANCELABLE);
	struct xpi_op *op;
	int64_t at_ms;
	uint64_t id = 0;
	int r = xpi_deadline_begin(ep->x, operation, opt, &at_ms);

	if (r != XPORT_OK)
		return xpi_ep_refused(ep, r);
	r = list_post(ep, operation, list, count, total, tag, &plain, &id);
	if (r != XPORT_OK)
		return r;
	xpi_deadline_add(ep->x, id, at_ms);
	if (opt->id != NULL && (opt->flags & XPORT_CANCELABLE) != 0) {
		op = xpi_op_find(ep->x, id);
		*opt->id = op != NULL && !xpi_op_ended(op) ? id : 0;
	}
	return XPORT_OK;
}

static __attribute__((noinline, cold)) int sendv_timed(struct xport_ep *ep, const struct xport_iov *list, size_t count,
                                                       uint64_t tag, const struct xport_opt *opt)
{
	const struct xport_opt plain = xpi_opt_plain(opt, XPORT_CANCELABLE);
	uint64_t total;
	int r = xpi_pieces_valid(ep->x, "xport_sendv", list, count, &plain, 0, false, &total);

	return r == XPORT_OK ? list_post_timed(ep, "xport_sendv", list, count, total, tag, opt) : xpi_ep_refused(ep, r);
}

/* It is complete at once, or is posted as a list of one piece. */
static __attribute__((noinline, cold)) int send_timed(struct xport_ep *ep, const void *buf, size_t len, uint64_t tag,
                                                      const struct xport_opt *opt)
{
	const struct xport_iov piece = {.addr = (void *)(uintptr_t)buf, .len = len};
	const struct xport_opt plain = opt != NULL ? xpi_opt_plain(opt, XPORT_CANCELABLE) : (struct xport_opt){0};
	int64_t at_ms;
	int r;

	if (!xpi_opt_fits(ep->x, buf, len, &plain, 0, false))
		return xpi_ep_refused(ep, xpi_opt_refuse(ep->x, "xport_send", buf, len, &plain, 0));
	r = xpi_deadline_begin(ep->x, "xport_send", opt, &at_ms);
	if (r != XPORT_OK)
		return xpi_ep_refused(ep, r);
	if (opt->id != NULL && (opt->flags & XPORT_CANCELABLE) != 0)
		*opt->id = 0;
	if (xpi_tx_alone(ep) ? xpi_fast_again(ep) && xpi_fast_send_may(ep, buf, len, &plain)
	                     : xpi_fast_send_may_coalesce(ep, buf, len, &plain))
		return xpi_send(ep, buf, len, tag, &plain);
	return list_post_timed(ep, "xport_send", &piece, 1, len, tag, opt);
}

int xpi_sendv(struct xport_ep *ep, const struct xport_iov *list, size_t count, uint64_t tag,
              const struct xport_opt *opt)
{
	uint64_t total;
	int r = xpi_pieces_valid(ep->x, "xport_sendv", list, count, opt, 0, false, &total);

	xpi_assert_locked(ep->x);
	if (r != XPORT_OK)
		return r == XPI_PIECES_TIMED ? sendv_timed(ep, list, count, tag, opt) : xpi_ep_refused(ep, r);
	return list_post(ep, "xport_sendv", list, count, total, tag, opt, NULL);
}
