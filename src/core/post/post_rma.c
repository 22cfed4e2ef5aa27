/* SPDX-License-Identifier: BSD-3-Clause */
/* post_rma.c - the beginning of puts, gets and atomics: checked, accepted, and, if nothing is before them, under way. */
#include <stdio.h>
#include <string.h>

#include "base/copy.h"
#include "base/word.h"
#include "core/object/completion.h"
#include "core/object/deadline.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/mr.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/object/rkey.h"
#include "core/object/usdt.h"
#include "core/post/accept.h"
#include "core/post/fastpath.h"
#include "core/post/launch.h"
#include "core/post/post.h"
#include "core/protocol/msg.h"
#include "core/protocol/rma.h"
#include "core/protocol/tx.h"
#include "core/wire/frame.h"

#define unlikely(c) __builtin_expect(!!(c), 0)

/* ---- checks ---- */

/* "XPORT_REMOTE_READ and XPORT_REMOTE_WRITE" */
static const char *name_rights(uint32_t rights, char *buf, size_t size)
{
	static const struct {
		uint32_t right;
		const char *name;
	} names[] = {{XPORT_REMOTE_READ, "XPORT_REMOTE_READ"},
	             {XPORT_REMOTE_WRITE, "XPORT_REMOTE_WRITE"},
	             {XPORT_REMOTE_ATOMIC, "XPORT_REMOTE_ATOMIC"}};
	size_t n = 0;

	snprintf(buf, size, "no right");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if ((rights & names[i].right) != 0 && n < size)
			n += (size_t)snprintf(buf + n, size - n, "%s%s", n > 0 ? " and " : "", names[i].name);
	return buf;
}

static __attribute__((cold)) int say_key(struct xport_ep *ep, const char *operation, struct xport_rkey *k,
                                         uint64_t offset, uint64_t len, uint32_t right)
{
	char has[80], needs[32];
	struct xport *x = ep->x;

	if (k == NULL || k->ep != ep)
		return xpi_refuse(x, XPORT_ERR_INVALID, operation,
		                  k == NULL ? "the key is NULL" : "the key belongs to another endpoint");
	if (k->stale)
		return xpi_refuse(x, XPORT_ERR_STALE_KEY, operation, "the peer deregistered this region");
	if ((k->rights & right) == 0)
		return xpi_refuse(x, XPORT_ERR_ACCESS, operation, "the operation needs %s, and the region grants %s",
		                  name_rights(right, needs, sizeof(needs)), name_rights(k->rights, has, sizeof(has)));
	return xpi_refuse(x, XPORT_ERR_BOUNDS, operation, "%llu bytes at offset %llu of a region of %llu bytes",
	                  (unsigned long long)len, (unsigned long long)offset, (unsigned long long)k->length);
}

int xpi_key_refuse(struct xport_ep *ep, const char *operation, struct xport_rkey *k, uint64_t offset, uint64_t len,
                   uint32_t right)
{
	return xpi_ep_refused(ep, say_key(ep, operation, k, offset, len, right));
}

/* ---- done at once ---- */

/* Counts a put or get that is done by a copy at once. */
static inline __attribute__((always_inline)) void copied(struct xport_ep *ep, unsigned kind, uint64_t len,
                                                         void *context)
{
	XPI_PROBE_OP_POSTED(ep, kind, len, context);
	if (kind == XPORT_OP_PUT) {
		ep->rma.n_posted++;
		ep->n.bytes_out += len;
	} else {
		ep->n.fast_gets++;
		ep->n.bytes_in += len;
	}
}

/* The completion of what is done in this very call, if others stand before it. */
static int behind(struct xport_ep *ep, const char *operation, unsigned kind, uint64_t len, void *context)
{
	struct xpi_op *op;

	if (xpi_full(ep))
		return xpi_full_refuse(ep, operation);
	op = xpi_op_get(ep->x, ep, kind);
	if (op == NULL)
		return xpi_op_no_memory(ep, operation);
	op->context = context;
	op->tag = op->offset = 0;
	op->len = len;
	ep->refs++;
	xpi_cq_push(&ep->x->cq, op);
	return XPORT_OK;
}

static inline void range_copy(unsigned kind, void *to, const void *from, uint64_t len)
{
	if (kind == XPORT_OP_PUT)
		xpi_copy_out(to, from, len);
	else
		xpi_copy_in(to, from, len);
}

static __attribute__((noinline)) int copy_behind(struct xport_ep *ep, unsigned kind, void *to, const void *from,
                                                 uint64_t len, void *context)
{
	int r = behind(ep, kind == XPORT_OP_PUT ? "xport_put" : "xport_get", kind, len, context);

	if (r != XPORT_OK)
		return r;
	range_copy(kind, to, from, len);
	copied(ep, kind, len, context);
	return XPORT_OK;
}

/* A put or get that is done by a copy at once.  All that is left of it is its completion. */
static inline __attribute__((always_inline)) int by_copy(struct xport_ep *ep, unsigned kind, void *to, const void *from,
                                                         uint64_t len, const struct xport_opt *opt)
{
	struct xpi_cq *q = &ep->x->cq;
	void *context = NULL;

	if (opt != NULL) {
		if (opt->flags & XPORT_QUIET) {
			range_copy(kind, to, from, len);
			copied(ep, kind, len, opt->context);
			return XPORT_OK;
		}
		context = opt->context;
	}
	if (unlikely(q->next == q->end)) {
		if (ep->x->slow == 0)
			xpi_cq_open(q);
		if (q->next == q->end)
			return copy_behind(ep, kind, to, from, len, context);
	}
	range_copy(kind, to, from, len);
	copied(ep, kind, len, context);
	xpi_fast_completion(ep, kind, context, 0, len);
	q->next++;
	return XPORT_OK;
}

/* An atomic on memory that is mapped here. */
static void change(struct xport_ep *ep, const struct xport_atomic_args *a, void *word, void *context)
{
	uint64_t old;

	XPI_PROBE_OP_POSTED(ep, XPORT_OP_ATOMIC, (uint64_t)a->width, context);
	old = xpi_word_change(word, (unsigned)a->width, (unsigned)a->op, a->operand, a->compare);
	if (a->result != NULL)
		xpi_word_give(a->result, (unsigned)a->width, old);
	ep->n.fast_atomics++;
	xpi_touch(ep);
}

static __attribute__((noinline)) int change_behind(struct xport_ep *ep, const struct xport_atomic_args *a, void *word,
                                                   void *context)
{
	int r = behind(ep, "xport_atomic", XPORT_OP_ATOMIC, (uint64_t)a->width, context);

	if (r == XPORT_OK)
		change(ep, a, word, context);
	return r;
}

static inline __attribute__((always_inline)) int by_instruction(struct xport_ep *ep, const struct xport_atomic_args *a,
                                                                void *word, const struct xport_opt *opt)
{
	struct xpi_cq *q = &ep->x->cq;
	void *context = opt != NULL ? opt->context : NULL;

	if (opt != NULL && (opt->flags & XPORT_QUIET)) {
		change(ep, a, word, context);
		return XPORT_OK;
	}
	if (unlikely(q->next == q->end)) {
		if (ep->x->slow == 0)
			xpi_cq_open(q);
		if (q->next == q->end)
			return change_behind(ep, a, word, context);
	}
	change(ep, a, word, context);
	xpi_fast_completion(ep, XPORT_OP_ATOMIC, context, 0, (uint64_t)a->width);
	q->next++;
	return XPORT_OK;
}

/* ---- deadlines ---- */

/*
 * Options that do not fit, and those with a deadline, go to a function NAME_unfit. It refuses them, or admits the operation
 * with its plain options, and then shares the body of the usual one. There at_ms is a constant 0 for operations without a deadline: the
 * compiler leaves out what is not for them.
 */

/* Checks what has a deadline: XPORT_OK, or the refusal. */
static int admit_timed(struct xport_ep *ep, const char *operation, const void *buf, uint64_t len, struct xport_rkey *k,
                       uint64_t offset, uint32_t right, const struct xport_opt *opt, struct xport_opt *plain,
                       int64_t *at_ms)
{
	int r;

	if (!xpi_opt_timed(opt))
		return xpi_ep_refused(ep, xpi_opt_refuse(ep->x, operation, buf, len, opt, xpi_post_flags(right)));
	*plain = xpi_opt_plain(opt, 0);
	if (xpi_post_admit(ep, operation, buf, len, k, offset, right, plain) == XPI_POST_UNFIT)
		return xpi_ep_refused(ep, xpi_opt_refuse(ep->x, operation, buf, len, plain, xpi_post_flags(right)));
	r = xpi_deadline_begin(ep->x, operation, opt, at_ms);
	return r == XPORT_OK ? XPORT_OK : xpi_ep_refused(ep, r);
}

/* Sends it the way that was chosen at key import; it can be withdrawn as long as the network does not hold it. */
static int launch_timed(struct xport_ep *ep, struct xpi_op *op, struct xport_rkey *k, unsigned path, int64_t at_ms)
{
	uint64_t id = xpi_op_id(ep->x, op);

	if (op->kind == XPORT_OP_PUT)
		op->offer = XPI_OFFER_NEVER;
	xpi_launch(ep, op, k, path);
	xpi_deadline_add(ep->x, id, at_ms);
	return XPORT_OK;
}

/* ---- puts, gets, atomics, flushes ---- */

static inline __attribute__((always_inline)) int put_long(struct xport_ep *ep, const void *buf, size_t len,
                                                          struct xport_rkey *k, uint64_t offset,
                                                          const struct xport_opt *opt, int64_t at_ms)
{
	struct xpi_op *op;

	xpi_assert_locked(ep->x);
	if (unlikely(xpi_full(ep)))
		return xpi_full_refuse(ep, "xport_put");
	op = xpi_post_new(ep, XPORT_OP_PUT, buf, len, offset, opt);
	if (unlikely(op == NULL))
		return xpi_op_no_memory(ep, "xport_put");
	ep->n.bytes_out += len;
	if (len == 0) {
		xpi_op_complete_new(ep->x, op);
		return XPORT_OK;
	}
	return at_ms == 0 ? xpi_launch(ep, op, k, k->put) : launch_timed(ep, op, k, k->put, at_ms);
}

int xpi_put_long(struct xport_ep *ep, const void *buf, size_t len, struct xport_rkey *k, uint64_t offset,
                 const struct xport_opt *opt)
{
	return put_long(ep, buf, len, k, offset, opt, 0);
}

/* Whether a put by message takes the fast path. */
static bool put_ends(struct xport_ep *ep, const void *buf, size_t len, struct xport_rkey *k, uint64_t offset,
                     const struct xport_opt *opt)
{
	return xpi_tx_alone(ep) ? xpi_fast_again(ep) && xpi_fast_put_may(ep, buf, len, k, offset, opt)
	                        : xpi_fast_put_may_coalesce(ep, buf, len, k, opt);
}

static __attribute__((noinline, cold)) int put_unfit(struct xport_ep *ep, const void *buf, size_t len,
                                                     struct xport_rkey *k, uint64_t offset, const struct xport_opt *opt)
{
	struct xport_opt plain;
	int64_t at_ms;
	int r = admit_timed(ep, "xport_put", buf, len, k, offset, XPORT_REMOTE_WRITE, opt, &plain, &at_ms);

	if (r != XPORT_OK)
		return r;
	/* Those that are complete when the call returns. */
	if (k->put == XPI_ROUTE_MAPPED ? !ep->rma.busy
	                               : k->put == XPI_ROUTE_AM && put_ends(ep, buf, len, k, offset, &plain))
		return xpi_put(ep, buf, len, k, offset, &plain);
	return put_long(ep, buf, len, k, offset, &plain, at_ms);
}

int xpi_put(struct xport_ep *ep, const void *buf, size_t len, struct xport_rkey *k, uint64_t offset,
            const struct xport_opt *opt)
{
	int r = xpi_post_admit(ep, "xport_put", buf, len, k, offset, XPORT_REMOTE_WRITE, opt);

	xpi_assert_locked(ep->x);
	if (unlikely(r != XPORT_OK))
		return r == XPI_POST_UNFIT ? put_unfit(ep, buf, len, k, offset, opt) : r;
	if (k->put != XPI_ROUTE_MAPPED && !xpi_tx_alone(ep)) {
		if (xpi_fast_put_may_coalesce(ep, buf, len, k, opt))
			return xpi_fast_put_coalesce(ep, buf, len, k, offset, opt);
	} else if (xpi_fast_again(ep) && xpi_fast_put_may(ep, buf, len, k, offset, opt)) {
		return xpi_fast_put(ep, buf, len, k, offset, opt);
	}
	if (k->put == XPI_ROUTE_MAPPED && !ep->rma.busy)
		return by_copy(ep, XPORT_OP_PUT, k->direct + offset, buf, len, opt);
	return xpi_put_long(ep, buf, len, k, offset, opt);
}

static inline __attribute__((always_inline)) int get_long(struct xport_ep *ep, void *buf, size_t len,
                                                          struct xport_rkey *k, uint64_t offset,
                                                          const struct xport_opt *opt, int64_t at_ms)
{
	struct xpi_op *op;

	if (at_ms == 0 && k->get == XPI_ROUTE_MAPPED && !ep->rma.busy)
		return by_copy(ep, XPORT_OP_GET, buf, k->direct + offset, len, opt);
	if (unlikely(xpi_full(ep)))
		return xpi_full_refuse(ep, "xport_get");
	op = xpi_post_new(ep, XPORT_OP_GET, buf, len, offset, opt);
	if (unlikely(op == NULL))
		return xpi_op_no_memory(ep, "xport_get");
	ep->n.bytes_in += len;
	if (len > 0) {
		ep->rma.ngets++;
		return at_ms == 0 ? xpi_launch(ep, op, k, k->get) : launch_timed(ep, op, k, k->get, at_ms);
	}
	xpi_op_complete_new(ep->x, op);
	return XPORT_OK;
}

static __attribute__((noinline, cold)) int get_unfit(struct xport_ep *ep, void *buf, size_t len, struct xport_rkey *k,
                                                     uint64_t offset, const struct xport_opt *opt)
{
	struct xport_opt plain;
	int64_t at_ms;
	int r = admit_timed(ep, "xport_get", buf, len, k, offset, XPORT_REMOTE_READ, opt, &plain, &at_ms);

	if (r != XPORT_OK)
		return r;
	if (k->get == XPI_ROUTE_MAPPED && !ep->rma.busy)
		return xpi_get(ep, buf, len, k, offset, &plain);
	return get_long(ep, buf, len, k, offset, &plain, at_ms);
}

int xpi_get(struct xport_ep *ep, void *buf, size_t len, struct xport_rkey *k, uint64_t offset,
            const struct xport_opt *opt)
{
	int r = xpi_post_admit(ep, "xport_get", buf, len, k, offset, XPORT_REMOTE_READ, opt);

	xpi_assert_locked(ep->x);
	if (unlikely(r != XPORT_OK))
		return r == XPI_POST_UNFIT ? get_unfit(ep, buf, len, k, offset, opt) : r;
	return get_long(ep, buf, len, k, offset, opt, 0);
}

/* Data first, by whatever way, the notification after it: for what does not fit into one record, or must not wait for
 * the window because a flush may wait for it. */
static inline __attribute__((always_inline)) int put_then_tell(struct xport_ep *ep, struct xpi_op *op,
                                                               struct xport_rkey *k, uint64_t value)
{
	struct xpi_op *told = xpi_op_get(ep->x, ep, XPI_OP_TOLD);

	if (unlikely(told == NULL)) {
		ep->refs--;
		ep->n.posted[XPORT_OP_PUT_NOTIFY]--;
		ep->n.bytes_out -= op->len;
		if (op->flags & XPORT_QUIET)
			ep->rma.quiet_pending--;
		if (op->mr != NULL)
			xpi_mr_idle(op->mr);
		xpi_op_free(ep, op);
		return xpi_op_no_memory(ep, "xport_put_notify");
	}
	ep->rma.ahead += ep->rma.ahead == UINT16_MAX ? 2 : 1;
	op->mask = told->mask = ep->rma.ahead;
	told->tag = value;
	told->region = k->region;
	told->offset = op->offset;
	told->len = op->len;
	ep->rma.ntold++;
	if (op->len == 0) {
		xpi_launch(ep, op, k, XPI_ROUTE_AM); /* it places nothing, but is checked there like any other */
	} else if (k->put == XPI_ROUTE_MAPPED && !ep->rma.busy) {
		xpi_touch(ep);
		ep->n.slow_copies++;
		xpi_copy_out(k->direct + op->offset, op->buf, op->len);
		xpi_op_complete(op, XPORT_OK);
	} else {
		xpi_launch(ep, op, k, k->put);
	}
	told->after = ep->rma.q_posted;
	xpi_msg_start(ep, told);
	return XPORT_OK;
}

/* A deadline: data that is sent from where it lies goes ahead, in frames of its own, since it could not be withdrawn. */
static inline bool notify_alone(struct xport_ep *ep, size_t len, int64_t at_ms)
{
	return len <= xpi_msg_notify_max(ep) && (at_ms == 0 || len <= XPI_LONE_DATA);
}

static inline __attribute__((always_inline)) int notify_long(struct xport_ep *ep, const void *buf, size_t len,
                                                             struct xport_rkey *k, uint64_t offset,
                                                             const struct xport_opt *opt, int64_t at_ms)
{
	struct xpi_op *op;
	uint64_t value, id;
	int r;

	if (unlikely(xpi_full(ep) || ep->rma.ntold >= ep->x->settings.queue_depth || ep->rma.ntold >= XPI_AHEAD_MAX))
		return xpi_full_refuse(ep, "xport_put_notify");
	op = xpi_post_new(ep, XPORT_OP_PUT_NOTIFY, buf, len, offset, opt);
	if (unlikely(op == NULL))
		return xpi_op_no_memory(ep, "xport_put_notify");
	ep->n.bytes_out += len;
	value = opt != NULL ? opt->value : 0;
	id = at_ms != 0 ? xpi_op_id(ep->x, op) : 0;
	if (k->put == XPI_ROUTE_AM && !ep->rma.busy && notify_alone(ep, len, at_ms) && xpi_msg_open(ep)) {
		op->tag = value;
		op->region = k->region;
		op->after = ep->rma.q_posted;
		op->after_native = UINT64_MAX;
		op->waits = XPI_WAIT_SENT;
		xpi_touch(ep);
		if (xpi_msg_step(ep, op) == XPORT_OK) {
			if (at_ms != 0)
				xpi_deadline_add(ep->x, id, at_ms);
			return XPORT_OK;
		}
	}
	if (at_ms == 0)
		return put_then_tell(ep, op, k, value);
	if (len > 0)
		op->offer = XPI_OFFER_NEVER;
	r = put_then_tell(ep, op, k, value);
	if (r == XPORT_OK)
		xpi_deadline_add(ep->x, id, at_ms);
	return r;
}

static __attribute__((noinline, cold)) int notify_unfit(struct xport_ep *ep, const void *buf, size_t len,
                                                        struct xport_rkey *k, uint64_t offset,
                                                        const struct xport_opt *opt)
{
	struct xport_opt plain;
	int64_t at_ms;
	int r = admit_timed(ep, "xport_put_notify", buf, len, k, offset, XPORT_REMOTE_WRITE, opt, &plain, &at_ms);

	return r == XPORT_OK ? notify_long(ep, buf, len, k, offset, &plain, at_ms) : r;
}

int xpi_put_notify(struct xport_ep *ep, const void *buf, size_t len, struct xport_rkey *k, uint64_t offset,
                   const struct xport_opt *opt)
{
	int r = xpi_post_admit(ep, "xport_put_notify", buf, len, k, offset, XPORT_REMOTE_WRITE, opt);

	xpi_assert_locked(ep->x);
	if (unlikely(r != XPORT_OK))
		return r == XPI_POST_UNFIT ? notify_unfit(ep, buf, len, k, offset, opt) : r;
	return notify_long(ep, buf, len, k, offset, opt, 0);
}

static bool atomic_valid(const struct xport_atomic_args *a)
{
	return a != NULL && a->op >= XPORT_ATOMIC_ADD && a->op <= XPORT_ATOMIC_CAS && (a->width == 4 || a->width == 8);
}

/* Of a region whose atomics an adapter may carry: what every adapter can. */
static bool nic_valid(const struct xport_atomic_args *a)
{
	return a->width == 8 && (a->op == XPORT_ATOMIC_ADD || a->op == XPORT_ATOMIC_CAS);
}

static __attribute__((noinline, cold)) int atomic_unfit(struct xport_ep *ep, const struct xport_atomic_args *a,
                                                        struct xport_rkey *k, uint64_t offset,
                                                        const struct xport_opt *opt);

static inline __attribute__((always_inline)) int atomic_post(struct xport_ep *ep, const struct xport_atomic_args *a,
                                                             struct xport_rkey *k, uint64_t offset,
                                                             const struct xport_opt *opt, int64_t at_ms)
{
	struct xport_opt local;
	struct xpi_op *op;
	int r;

	xpi_assert_locked(ep->x);
	if (unlikely(!atomic_valid(a)))
		return xpi_ep_refused(ep, xpi_refuse(ep->x, XPORT_ERR_INVALID, "xport_atomic",
		                                     "args is NULL, or args->op or args->width is invalid"));
	/* No network writes to the result itself: opt->mr, if given, only tells whether it is writable. */
	if (opt != NULL) {
		if (unlikely(opt->mr != NULL && opt->mr->readonly && a->result != NULL &&
		             !xpi_mr_writable(opt->mr, a->result, (size_t)a->width)))
			return xpi_ep_refused(ep, xpi_opt_refuse(ep->x, "xport_atomic", a->result, (size_t)a->width,
			                                         opt, XPORT_LOCAL | XPORT_QUIET));
		local = *opt;
		local.mr = NULL;
		opt = &local;
	}
	r = xpi_post_admit(ep, "xport_atomic", a, (uint64_t)a->width, k, offset, XPORT_REMOTE_ATOMIC, opt);
	if (unlikely(r != XPORT_OK))
		return r == XPI_POST_UNFIT ? atomic_unfit(ep, a, k, offset, opt) : r;
	if (unlikely(((k->base_low + offset) & (uint64_t)(a->width - 1)) != 0))
		return xpi_ep_refused(ep, xpi_refuse(ep->x, XPORT_ERR_INVALID, "xport_atomic",
		                                     "the word at offset %llu is not aligned to %d bytes",
		                                     (unsigned long long)offset, a->width));
	if (unlikely((k->rights & XPORT_ATOMIC_NIC) != 0 && !nic_valid(a)))
		return xpi_ep_refused(ep, xpi_refuse(ep->x, XPORT_ERR_NOT_SUPPORTED, "xport_atomic",
		                                     "the region has XPORT_ATOMIC_NIC: only XPORT_ATOMIC_ADD and "
		                                     "XPORT_ATOMIC_CAS of 8 bytes are supported"));
	if (unlikely(opt != NULL && (opt->flags & XPORT_QUIET) && a->result != NULL))
		return xpi_ep_refused(ep, xpi_refuse(ep->x, XPORT_ERR_INVALID, "xport_atomic",
		                                     "an atomic with a result cannot be quiet"));
	if (k->atomic == XPI_ROUTE_MAPPED && !ep->rma.busy)
		return at_ms == 0 ? by_instruction(ep, a, k->direct + offset, opt) : xpi_atomic(ep, a, k, offset, opt);
	if (unlikely(xpi_full(ep)))
		return xpi_full_refuse(ep, "xport_atomic");
	op = xpi_post_new(ep, XPORT_OP_ATOMIC, a->result, (uint64_t)a->width, offset, opt);
	if (unlikely(op == NULL))
		return xpi_op_no_memory(ep, "xport_atomic");
	if (a->result != NULL)
		op->flags &= (uint8_t)~XPORT_LOCAL;
	op->aop = (uint8_t)a->op;
	op->width = (uint8_t)a->width;
	op->tag = a->operand;
	op->mask = a->compare;
	return at_ms == 0 ? xpi_launch(ep, op, k, k->atomic) : launch_timed(ep, op, k, k->atomic, at_ms);
}

static int atomic_unfit(struct xport_ep *ep, const struct xport_atomic_args *a, struct xport_rkey *k, uint64_t offset,
                        const struct xport_opt *opt)
{
	struct xport_opt plain;
	int64_t at_ms;
	int r = admit_timed(ep, "xport_atomic", a, (uint64_t)a->width, k, offset, XPORT_REMOTE_ATOMIC, opt, &plain,
	                    &at_ms);

	return r == XPORT_OK ? atomic_post(ep, a, k, offset, &plain, at_ms) : r;
}

int xpi_atomic(struct xport_ep *ep, const struct xport_atomic_args *a, struct xport_rkey *k, uint64_t offset,
               const struct xport_opt *opt)
{
	return atomic_post(ep, a, k, offset, opt, 0);
}

static inline __attribute__((always_inline)) int flush_long(struct xport_ep *ep, const struct xport_opt *opt,
                                                            int64_t at_ms)
{
	struct xpi_op *op;
	uint64_t id;

	if (xpi_full(ep))
		return xpi_full_refuse(ep, "xport_flush");
	op = xpi_post_new(ep, XPORT_OP_FLUSH, NULL, 0, 0, NULL); /* of the options only the context counts */
	if (op == NULL)
		return xpi_op_no_memory(ep, "xport_flush");
	op->context = opt != NULL ? opt->context : NULL;
	ep->rma.nflushes++;
	op->done = ep->rma.n_posted; /* what it proves, also if there is nothing to do for it */
	if (ep->rma.n_posted == ep->rma.n_placed) {
		xpi_op_complete(op, XPORT_OK);
		return XPORT_OK;
	}
	id = at_ms != 0 ? xpi_op_id(ep->x, op) : 0;
	xpi_start(ep, op);
	if (at_ms != 0)
		xpi_deadline_add(ep->x, id, at_ms);
	return XPORT_OK;
}

static __attribute__((noinline, cold)) int flush_timed(struct xport_ep *ep, const struct xport_opt *opt)
{
	int64_t at_ms;
	int r;

	if (opt->flags != 0)
		return xpi_ep_refused(ep, xpi_refuse(ep->x, XPORT_ERR_INVALID, "xport_flush", "opt->flags must be 0"));
	r = xpi_deadline_begin(ep->x, "xport_flush", opt, &at_ms);
	return r == XPORT_OK ? flush_long(ep, opt, at_ms) : xpi_ep_refused(ep, r);
}

int xpi_flush(struct xport_ep *ep, const struct xport_opt *opt)
{
	xpi_assert_locked(ep->x);
	if (opt != NULL && xpi_opt_bits(opt) != 0)
		return flush_timed(ep, opt);
	return flush_long(ep, opt, 0);
}
