/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cq.h - what waits to be reaped: completions of operations that were complete when they were posted, and behind them
 * operations and events that completed later.
 *
 * The first need no operation: they stand in an array, from `first` to `next`.  It is filled from its beginning to its
 * end, and begun again only when all is reaped.  It is closed, `end` equal to `next`, while anything stands behind them
 * (so that the order of completion is kept), and while calls must go the slow way (so that who finds it open need not
 * look at that).
 */
#ifndef XPI_CORE_CQ_H
#define XPI_CORE_CQ_H

#include "base/list.h"
#include "core/op.h"
#include "xport.h"

enum { XPI_CQ_NOW = 64 };

struct xpi_cq {
	struct xport_completion *next; /* where the next one goes, if it is not `end` */
	struct xport_completion *end;
	struct xport_completion *first; /* the first that was not reaped */
	struct xpi_list later;          /* struct xpi_op, by link */
	unsigned size;                  /* how much of the array is used */
	struct xport_completion now[XPI_CQ_NOW]; /* offset, mr and reserved stay 0 */
};

static inline bool xpi_cq_empty(const struct xpi_cq *q)
{
	return q->first == q->next && xpi_list_empty(&q->later);
}

/* How many stand in the array. */
static inline unsigned xpi_cq_now(const struct xpi_cq *q)
{
	return (unsigned)(q->next - q->first);
}

static inline void xpi_cq_close(struct xpi_cq *q)
{
	if (q->end != q->next) /* with a lock it always is, and then posts may look without having it */
		q->end = q->next;
}

/* Begins again, if all is reaped. */
static inline void xpi_cq_open(struct xpi_cq *q)
{
	if (!xpi_cq_empty(q))
		return;
	q->first = q->next = q->now;
	q->end = q->now + q->size;
}

/* An operation or event that is complete. */
static inline void xpi_cq_push(struct xpi_cq *q, struct xpi_op *op)
{
	xpi_cq_close(q);
	xpi_list_push(&q->later, &op->link);
}

/* Whether a completion in the array names this endpoint. */
static inline bool xpi_cq_names(const struct xpi_cq *q, const struct xport_ep *ep)
{
	for (const struct xport_completion *c = q->first; c != q->next; c++)
		if (c->ep == ep)
			return true;
	return false;
}

#endif
