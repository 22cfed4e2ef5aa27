/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * opq.h - the steps of an operation's life: taken from the pool, settled in the queue where it waits, completed.
 *
 * Application operations and events count in ep->refs until they are reaped; the core's own do not, they are gone when
 * the endpoint is DEAD.
 */
#ifndef XPI_CORE_OPQ_H
#define XPI_CORE_OPQ_H

#include "core/ep.h"
#include "core/instance.h"
#include "core/mr.h"

/* An operation with nothing to wait for and no queue.  NULL: out of memory.  Does not count in ep->refs. */
static inline struct xpi_op *xpi_op_get(struct xport *x, struct xport_ep *ep, unsigned kind)
{
	struct xpi_op *op = xpi_pool_get(&x->op_pool);

	if (__builtin_expect(op == NULL, 0))
		return NULL;
	op->wait.kind = XPI_WAIT_OP;
	op->kind = kind;
	op->flags = 0;
	op->waits = 0;
	op->alive = true;
	op->status = XPORT_OK;
	op->link.next = NULL;
	op->ep = ep;
	op->mr = NULL;
	op->rkey = NULL;
	op->charge = 0;
	op->pending = 0;
	op->done = 0;
	return op;
}

/* Answers that a peer can ask for without end if it does not take them: so they are counted, and have a limit. */
static inline bool xpi_op_owed(unsigned kind)
{
	return kind == XPI_OP_VALUE || kind == XPI_OP_NAK || kind == XPI_OP_GRANT || kind == XPI_OP_ADOPT ||
	       kind == XPI_OP_GONE || kind == XPI_OP_REVOKED || kind == XPI_OP_CMA_ANSWER;
}

/* Back to the pool; not for what still counts in ep->refs. */
static inline void xpi_op_put(struct xport *x, struct xpi_op *op)
{
	op->alive = false;
	op->gen++;
	op->reserved = 0;
	xpi_pool_put(&x->op_pool, op);
}

static inline void xpi_op_free(struct xport_ep *ep, struct xpi_op *op)
{
	xpi_op_put(ep->x, op);
}

/* Too much is in flight or not reaped, so that a post is answered AGAIN.  Completions that need no operation count here
 * alone.  Below ep->limit there is nothing to note either. */
bool xpi_full_at(struct xport_ep *ep, uint32_t in_flight);

static inline bool xpi_full(struct xport_ep *ep)
{
	uint32_t in_flight = ep->refs + xpi_cq_now(&ep->x->cq);

	return __builtin_expect(in_flight >= ep->limit, 0) && xpi_full_at(ep, in_flight);
}

/* Says so. */
int xpi_full_refuse(struct xport_ep *ep, const char *operation) __attribute__((cold));

/* How the peer names it in its answers. */
static inline uint32_t xpi_op_name(struct xport *x, struct xpi_op *op)
{
	return xpi_pool_index(&x->op_pool, op) + 1;
}

/* Whether the options are well-formed for an operation that takes `flags`, and opt->mr, if given, holds the buffer. */
static inline bool xpi_opt_fits(const struct xport *x, const void *buf, size_t len, const struct xport_opt *opt,
                                uint64_t flags)
{
	const struct xport_mr *mr;

	if (buf == NULL && len > 0)
		return false;
	if (opt == NULL)
		return true;
	if ((opt->flags & ~flags) != 0)
		return false;
	mr = opt->mr;
	return mr == NULL || (mr->x == x && !mr->dying && len <= mr->length && (const uint8_t *)buf >= mr->base &&
	                      (const uint8_t *)buf - mr->base <= (ptrdiff_t)(mr->length - len));
}

/* Says in xport_last_error which of it is wrong; returns XPORT_ERR_INVALID. */
int xpi_opt_refuse(struct xport *x, const char *operation, const void *buf, size_t len, const struct xport_opt *opt,
                   uint64_t flags) __attribute__((cold));

/* The operation of this endpoint that the peer names so; NULL if there is none. */
static inline struct xpi_op *xpi_op_named(struct xport_ep *ep, uint32_t name)
{
	struct xpi_op *op;

	if (name == 0 || name == XPI_OP_NOBODY)
		return NULL;
	op = xpi_pool_at(&ep->x->op_pool, name - 1);
	return op != NULL && op->alive && op->ep == ep ? op : NULL;
}

/* Completes: queues it for reaping, or gives it back if nobody wants to know.  Takes it out of its queue. */
void xpi_op_complete(struct xpi_op *op, int status);

/* Whether it holds nothing busy, and is wanted to complete. */
static inline bool xpi_op_plain(const struct xpi_op *op)
{
	return op->mr == NULL && op->rkey == NULL && op->offer == 0 && (op->flags & XPORT_QUIET) == 0;
}

/* The same, with success, for one of the application's that never stood in a queue and has no key. */
static inline void xpi_op_complete_new(struct xport *x, struct xpi_op *op)
{
	if (__builtin_expect(op->mr != NULL || (op->flags & XPORT_QUIET) != 0, 0))
		xpi_op_complete(op, XPORT_OK);
	else
		xpi_cq_push(&x->cq, op);
}

/* An operation without a completion failed: the next flush tells. */
void xpi_quiet_failed(struct xport_ep *ep, int status);

/* Puts it where it waits, or completes it if it waits for nothing. */
void xpi_op_settle(struct xpi_op *op);

/* One piece of it left the back end's hands. */
void xpi_op_sent(struct xpi_op *op);

/* The back end is done with the request. */
void xpi_op_done(struct xpi_op *op);

#endif
