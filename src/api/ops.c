/* SPDX-License-Identifier: BSD-3-Clause */
/* ops.c - the public functions that post operations and reap completions: the hot path begins and ends here. */
#include "api/enter.h"
#include "base/grow.h"
#include "core/object/completion.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/object/stats.h"
#include "core/object/usdt.h"
#include "core/object/wakeup.h"
#include "core/post/fastpath.h"
#include "core/post/post.h"
#include "core/progress/progress.h"
#include "core/protocol/msg.h"
#include "core/protocol/rma.h"
#include "core/protocol/withdraw.h"

/* ---- posting ---- */

/*
 * The way into an operation.  Usually there is nothing to do on it, and nothing after: the call is the last thing.  Else
 * the fork rule, the lock, a sleeping descriptor, or an endpoint that takes no operations.
 */
static inline bool ready(const struct xport_ep *ep)
{
	/* In this order: with a lock, nothing else may be looked at before it is held. */
	return ep != NULL && ep->x->slow == 0 && ((unsigned)(ep->state ^ XPI_EP_OPEN) | ep->closed) == 0;
}

/* Options of another size are an older or a newer program's. */
static inline bool poll_usual(const struct xport_opt *opt)
{
	return opt == NULL || opt->size == sizeof(*opt);
}

/* Those options as this library has them, kept by the instance, which has been entered; NULL: it says why not. */
static __attribute__((noinline, cold)) const struct xport_opt *known(struct xport *x, const char *operation,
                                                                     const struct xport_opt *opt)
{
	int r = xpi_grow_in(&x->own_opt, sizeof(x->own_opt), XPI_FIRST_OPT, opt);

	if (r == XPORT_OK)
		return &x->own_opt;
	xpi_refuse(x, r, operation,
	           r == XPORT_ERR_INVALID ? "opt->size is wrong"
	                                  : "opt sets a field unknown to this version of the library");
	return NULL;
}

/*
 * A function NAME that does the same where the endpoint is not ready, or the options are not usual.  It is one of its own so
 * that the usual way keeps nothing for it.
 */
#define SLOW(name, operation, parameters, call) \
	static __attribute__((noinline)) int name parameters \
	{ \
		int r_; \
		if (ep == NULL) \
			return XPORT_ERR_INVALID; \
		r_ = xpi_enter(ep->x); \
		if (r_ != XPORT_OK) \
			return r_; \
		if (ep->state != XPI_EP_OPEN || ep->closed) \
			return leave(ep->x, xpi_ep_refuse(ep, operation)); \
		if (!poll_usual(opt)) { \
			opt = known(ep->x, operation, opt); \
			if (opt == NULL) \
				return leave(ep->x, xpi_ep_refused(ep, ep->x->err.status)); \
		} \
		r_ = (call); \
		return leave(ep->x, r_); \
	}

SLOW(put_slow, "xport_put",
     (xport_ep * ep, const void *buf, size_t len, xport_rkey *rkey, uint64_t offset, const struct xport_opt *opt),
     xpi_put(ep, buf, len, rkey, offset, opt))

static __attribute__((noinline)) int put_long(xport_ep *ep, const void *buf, size_t len, xport_rkey *rkey,
                                              uint64_t offset, const struct xport_opt *opt)
{
	if (likely(ready(ep)) && likely(poll_usual(opt)))
		return xpi_put(ep, buf, len, rkey, offset, opt);
	return put_slow(ep, buf, len, rkey, offset, opt);
}

int xport_put(xport_ep *ep, const void *buf, size_t len, xport_rkey *rkey, uint64_t offset, const struct xport_opt *opt)
{
	if (unlikely(ep == NULL) || unlikely(!xpi_fast_put_may(ep, buf, len, rkey, offset, opt)))
		return put_long(ep, buf, len, rkey, offset, opt);
	return xpi_fast_put(ep, buf, len, rkey, offset, opt);
}

SLOW(get_slow, "xport_get",
     (xport_ep * ep, void *buf, size_t len, xport_rkey *rkey, uint64_t offset, const struct xport_opt *opt),
     xpi_get(ep, buf, len, rkey, offset, opt))

int xport_get(xport_ep *ep, void *buf, size_t len, xport_rkey *rkey, uint64_t offset, const struct xport_opt *opt)
{
	if (likely(ready(ep)) && likely(poll_usual(opt)))
		return xpi_get(ep, buf, len, rkey, offset, opt);
	return get_slow(ep, buf, len, rkey, offset, opt);
}

SLOW(put_notify_slow, "xport_put_notify",
     (xport_ep * ep, const void *buf, size_t len, xport_rkey *rkey, uint64_t offset, const struct xport_opt *opt),
     xpi_put_notify(ep, buf, len, rkey, offset, opt))

int xport_put_notify(xport_ep *ep, const void *buf, size_t len, xport_rkey *rkey, uint64_t offset,
                     const struct xport_opt *opt)
{
	if (likely(ready(ep)) && likely(poll_usual(opt)))
		return xpi_put_notify(ep, buf, len, rkey, offset, opt);
	return put_notify_slow(ep, buf, len, rkey, offset, opt);
}

SLOW(atomic_slow, "xport_atomic",
     (xport_ep * ep, const struct xport_atomic_args *args, xport_rkey *rkey, uint64_t offset,
      const struct xport_opt *opt),
     xpi_atomic(ep, args, rkey, offset, opt))

static __attribute__((noinline, cold)) int atomic_known(xport_ep *ep, const struct xport_atomic_args *args,
                                                        xport_rkey *rkey, uint64_t offset, const struct xport_opt *opt)
{
	struct xport_atomic_args own;
	int r, entered;

	if (ep == NULL)
		return XPORT_ERR_INVALID;
	r = xpi_grow_in(&own, sizeof(own), XPI_FIRST_ATOMIC_ARGS, args);
	if (r == XPORT_OK)
		return xport_atomic(ep, &own, rkey, offset, opt);
	entered = xpi_enter(ep->x);
	if (entered != XPORT_OK)
		return entered;
	r = xpi_refuse(ep->x, r, "xport_atomic",
	               r == XPORT_ERR_INVALID ? "args->size is wrong"
	                                      : "args sets a field unknown to this version of the library");
	return leave(ep->x, xpi_ep_refused(ep, r));
}

int xport_atomic(xport_ep *ep, const struct xport_atomic_args *args, xport_rkey *rkey, uint64_t offset,
                 const struct xport_opt *opt)
{
	if (unlikely(args != NULL && args->size != sizeof(*args)))
		return atomic_known(ep, args, rkey, offset, opt);
	if (likely(ready(ep)) && likely(poll_usual(opt)))
		return xpi_atomic(ep, args, rkey, offset, opt);
	return atomic_slow(ep, args, rkey, offset, opt);
}

SLOW(putv_slow, "xport_putv",
     (xport_ep * ep, const struct xport_iov *local, size_t nlocal, xport_rkey *rkey, const struct xport_riov *remote,
      size_t nremote, const struct xport_opt *opt),
     xpi_putv(ep, local, nlocal, rkey, remote, nremote, opt))

int xport_putv(xport_ep *ep, const struct xport_iov *local, size_t nlocal, xport_rkey *rkey,
               const struct xport_riov *remote, size_t nremote, const struct xport_opt *opt)
{
	if (likely(ready(ep)) && likely(poll_usual(opt)))
		return xpi_putv(ep, local, nlocal, rkey, remote, nremote, opt);
	return putv_slow(ep, local, nlocal, rkey, remote, nremote, opt);
}

SLOW(getv_slow, "xport_getv",
     (xport_ep * ep, const struct xport_iov *local, size_t nlocal, xport_rkey *rkey, const struct xport_riov *remote,
      size_t nremote, const struct xport_opt *opt),
     xpi_getv(ep, local, nlocal, rkey, remote, nremote, opt))

int xport_getv(xport_ep *ep, const struct xport_iov *local, size_t nlocal, xport_rkey *rkey,
               const struct xport_riov *remote, size_t nremote, const struct xport_opt *opt)
{
	if (likely(ready(ep)) && likely(poll_usual(opt)))
		return xpi_getv(ep, local, nlocal, rkey, remote, nremote, opt);
	return getv_slow(ep, local, nlocal, rkey, remote, nremote, opt);
}

SLOW(send_slow, "xport_send", (xport_ep * ep, const void *buf, size_t len, uint64_t tag, const struct xport_opt *opt),
     xpi_send(ep, buf, len, tag, opt))

static __attribute__((noinline)) int send_long(xport_ep *ep, const void *buf, size_t len, uint64_t tag,
                                               const struct xport_opt *opt)
{
	if (likely(ready(ep)) && likely(poll_usual(opt)))
		return xpi_send(ep, buf, len, tag, opt);
	return send_slow(ep, buf, len, tag, opt);
}

int xport_send(xport_ep *ep, const void *buf, size_t len, uint64_t tag, const struct xport_opt *opt)
{
	if (unlikely(ep == NULL) || unlikely(!xpi_fast_send_may(ep, buf, len, opt)))
		return send_long(ep, buf, len, tag, opt);
	return xpi_fast_send(ep, buf, len, tag, opt);
}

SLOW(sendv_slow, "xport_sendv",
     (xport_ep * ep, const struct xport_iov *list, size_t count, uint64_t tag, const struct xport_opt *opt),
     xpi_sendv(ep, list, count, tag, opt))

int xport_sendv(xport_ep *ep, const struct xport_iov *list, size_t count, uint64_t tag, const struct xport_opt *opt)
{
	if (likely(ready(ep)) && likely(poll_usual(opt)))
		return xpi_sendv(ep, list, count, tag, opt);
	return sendv_slow(ep, list, count, tag, opt);
}

int xport_fence(xport_ep *ep)
{
	int r;

	if (likely(ready(ep)))
		return xpi_fence(ep);
	if (ep == NULL)
		return XPORT_ERR_INVALID;
	r = xpi_enter(ep->x);
	if (r != XPORT_OK)
		return r;
	r = ep->state != XPI_EP_OPEN || ep->closed ? xpi_ep_refuse(ep, "xport_fence") : xpi_fence(ep);
	return leave(ep->x, r);
}

SLOW(flush_slow, "xport_flush", (xport_ep * ep, const struct xport_opt *opt), xpi_flush(ep, opt))

int xport_flush(xport_ep *ep, const struct xport_opt *opt)
{
	if (likely(ready(ep)) && likely(poll_usual(opt)))
		return xpi_flush(ep, opt);
	return flush_slow(ep, opt);
}

static __attribute__((noinline, cold)) int recv_known(xport *x, void *buf, size_t len, uint64_t tag, uint64_t mask,
                                                      const struct xport_opt *opt)
{
	opt = known(x, "xport_recv", opt);
	return leave(x, opt != NULL ? xpi_recv(x, buf, len, tag, mask, opt) : x->err.status);
}

int xport_recv(xport *x, void *buf, size_t len, uint64_t tag, uint64_t mask, const struct xport_opt *opt)
{
	int r;

	if (unlikely(x == NULL))
		return XPORT_ERR_INVALID;
	r = xpi_enter(x);
	if (unlikely(r != XPORT_OK))
		return r;
	if (unlikely(!poll_usual(opt)))
		return recv_known(x, buf, len, tag, mask, opt);
	return leave(x, xpi_recv(x, buf, len, tag, mask, opt));
}

int xport_recvv(xport *x, const struct xport_iov *list, size_t count, uint64_t tag, uint64_t mask,
                const struct xport_opt *opt)
{
	int r;

	if (unlikely(x == NULL))
		return XPORT_ERR_INVALID;
	r = xpi_enter(x);
	if (unlikely(r != XPORT_OK))
		return r;
	if (unlikely(!poll_usual(opt))) {
		opt = known(x, "xport_recvv", opt);
		if (opt == NULL)
			return leave(x, x->err.status);
	}
	return leave(x, xpi_recvv(x, list, count, tag, mask, opt));
}

int xport_cancel(xport *x, uint64_t id)
{
	int r;

	if (x == NULL)
		return XPORT_ERR_INVALID;
	r = enter(x, "xport_cancel");
	if (r != XPORT_OK)
		return r;
	return leave(x, xpi_cancel(x, id));
}

/* ---- reaping ---- */

/*
 * Of an endpoint that was destroyed.  Messages, notifications and XPORT_EVENT_ACCEPTED no longer name the endpoint.  Every
 * completion names the peer.
 */
static __attribute__((noinline, cold)) void reap_late(struct xport_ep *ep, struct xport_completion *c)
{
	if (c->type == XPORT_OP_RECV || c->type == XPORT_EVENT_NOTIFY || c->type == XPORT_EVENT_ACCEPTED)
		c->ep = NULL;
	c->peer = ep->peer.incarnation;
	xpi_ep_release(ep);
}

/* What an operation leaves behind besides its completion. */
static inline void poll_reap(struct xport *x, struct xpi_op *op, struct xport_completion *c)
{
	struct xport_ep *ep = op->ep;

	if (ep != NULL) {
		ep->refs--;
		if (unlikely(op->charge != 0))
			xpi_msg_consumed(ep, op->charge);
		if (unlikely(ep->destroyed))
			reap_late(ep, c);
	}
	xpi_op_put(x, op);
}

_Static_assert(offsetof(struct xpi_op, peer) - offsetof(struct xpi_op, status) ==
                       offsetof(struct xport_completion, peer),
               "the operation holds its completion");

/* Those that were complete at once, of which there are some; returns how many. */
static __attribute__((noinline)) int reap_now(struct xport *x, struct xport_completion *list, int max)
{
	struct xpi_cq *q = &x->cq;
	const struct xport_completion *c = q->first, *end = q->next;
	int n = 0;

	xpi_stats_high(end[-1].ep, end[-1].ep->refs + xpi_cq_ready(q));
	while (c != end && n < max) {
		list[n++] = *c++;
		XPI_PROBE_OP_DONE(c - 1);
	}
	q->first += n;
	return n;
}

/* The same for those that were complete at once. Their endpoints are not freed yet. */
static __attribute__((noinline, cold)) void reaped_late(struct xport_completion *list, int n)
{
	for (int i = 0; i < n; i++)
		if (list[i].ep->destroyed)
			list[i].peer = list[i].ep->peer.incarnation;
}

/* All, in the order of their completion. */
static int reap_all(struct xport *x, struct xport_completion *list, int max)
{
	struct xpi_cq *q = &x->cq;
	int n = q->first != q->next ? reap_now(x, list, max) : 0;

	if (unlikely(x->todo & XPI_TODO_RELEASE))
		reaped_late(list, n);
	while (n < max && !xpi_list_empty(&q->overflow)) {
		struct xpi_op *op = xpi_container(q->overflow.next, struct xpi_op, link);
		struct xport_completion *c = &list[n++];

		xpi_list_del(&op->link);
		memcpy(c, &op->status, sizeof(*c));
		if (unlikely(c->type == XPORT_OP_ATOMIC))
			c->tag = 0;
		XPI_PROBE_OP_DONE(c);
		poll_reap(x, op, c);
	}
	if (x->slow == 0)
		xpi_cq_open(q);
	return n;
}

static __attribute__((noinline, cold)) int reap_refuse(struct xport *x, const char *operation)
{
	return xpi_refuse(x, XPORT_ERR_INVALID, operation, "list is NULL, or max is below 0");
}

/* A poll from after the back end's on, which returned r. */
static int poll_rest(struct xport *x, struct xport_completion *list, int max, int r)
{
	int n;

	if (xpi_progress_more(x, r))
		r = xpi_progress_rest(x, r);
	if (unlikely(max > 0 && list == NULL))
		return reap_refuse(x, "xport_poll");
	n = reap_all(x, list, max);
	if (unlikely(x->backpressure.wanted) && n > 0 && (x->slow & XPI_SLOW_LOCK) != 0)
		xpi_signal(x); /* another thread may wait for the room that they took */
	if (unlikely(x->todo & XPI_TODO_RELEASE))
		xpi_ep_release_all(x);
	if (unlikely(r < 0) && n == 0)
		return r;
	if (unlikely(x->todo & XPI_TODO_SETTLE)) {
		x->reaped = n > 0;
		xpi_fd_settle(x);
	}
	return n;
}

static int poll_enter(struct xport *x, const char *operation, const struct xport_completion *list, int max)
{
	int r;

	if (x == NULL)
		return XPORT_ERR_INVALID;
	if (x->slow == XPI_SLOW_REAP) /* never with a lock, which is not held yet */
		x->slow = 0;
	/* Without a lock, nobody else sleeps on the descriptor that xport_arm has armed. */
	if (x->slow == XPI_SLOW_ARMED && x->fd.by_arm)
		xpi_fd_disarm(x);
	r = xpi_enter(x);
	if (r != XPORT_OK)
		return r;
	if (unlikely(max < 0 || (max > 0 && list == NULL)))
		return leave(x, reap_refuse(x, operation));
	return XPORT_OK;
}

/* After xport_arm has found completions. */
static int poll_reaps(struct xport *x, struct xport_completion *list, int max)
{
	int n;

	x->slow = 0;
	n = reap_all(x, list, max);
	if (unlikely(x->todo & XPI_TODO_RELEASE))
		xpi_ep_release_all(x);
	return n;
}

static __attribute__((noinline)) int poll_slowly(struct xport *x, struct xport_completion *list, int max)
{
	int r;

	if (x != NULL && x->slow == XPI_SLOW_REAP && list != NULL && max > 0)
		return poll_reaps(x, list, max);
	r = poll_enter(x, "xport_poll", list, max);
	if (r != XPORT_OK)
		return r;
	return leave(x, poll_rest(x, list, max, xpi_progress_be(x)));
}

int xport_poll(xport *x, struct xport_completion *list, int max)
{
	struct xport_completion *c;
	int r;

	if (unlikely(x == NULL || x->slow != 0))
		return poll_slowly(x, list, max);
	if (unlikely(max <= 0))
		return poll_slowly(x, list, max);
	r = xpi_progress_be(x);
	if (unlikely(xpi_progress_more(x, r)))
		return poll_rest(x, list, max, r);
	if (unlikely(list == NULL))
		return reap_refuse(x, "xport_poll");
	c = x->cq.first;
	if (c == x->cq.next)
		return xpi_list_empty(&x->cq.overflow) ? 0 : reap_all(x, list, max);
	if (unlikely(c + 1 != x->cq.next))
		return reap_now(x, list, max);
	XPI_PROBE_OP_DONE(c);
	list[0] = *c++;
	x->cq.first = c;
	return 1;
}

int xport_wait(xport *x, struct xport_completion *list, int max, int timeout_ms)
{
	int r = poll_enter(x, "xport_wait", list, max);

	if (r != XPORT_OK)
		return r;
	if (timeout_ms < -1)
		return leave(x, xpi_time_refuse(x, "xport_wait", timeout_ms));
	r = xpi_wait(x, timeout_ms);
	if (r >= 0)
		r = poll_rest(x, list, max, xpi_progress_be(x));
	if (unlikely(r < 0)) /* what broke the back end named the poll */
		snprintf(x->err.operation, sizeof(x->err.operation), "xport_wait");
	return leave(x, r);
}

int xport_fd(xport *x)
{
	int r;

	if (x == NULL)
		return XPORT_ERR_INVALID;
	r = enter_to_look(x, "xport_fd");
	if (r != XPORT_OK)
		return r;
	return leave(x, xpi_fd_ask(x));
}

int xport_arm(xport *x)
{
	int r;

	if (x == NULL)
		return XPORT_ERR_INVALID;
	r = xpi_enter_to_look(x);
	if (r != XPORT_OK)
		return r;
	return leave(x, xpi_fd_arm_now(x));
}
