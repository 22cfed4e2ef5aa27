/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * completion.h - the completion queue of an instance: completions that wait to be reaped.
 *
 * Operations that are complete when they are posted need no operation object. Their completions are in an array, from
 * `first` to `next`. Operations and events that complete later follow in a list.
 *
 * The array is filled from its beginning to its end, and is reused only when all completions are reaped. It is closed
 * (`end` equal to `next`)
 *   - while the list is not empty, to keep the order of completion
 *   - while calls must take the slow path. So code that finds the array open need not check for that.
 */
#ifndef XPI_CORE_OBJECT_COMPLETION_H
#define XPI_CORE_OBJECT_COMPLETION_H

#include "base/list.h"
#include "core/object/op.h"
#include "xport.h"

enum { XPI_CQ_RING = 64 };

struct xpi_cq {
	struct xport_completion *next; /* where the next one goes, if it is not `end` */
	struct xport_completion *end;
	struct xport_completion *first;            /* the first that was not reaped */
	struct xpi_list overflow;                  /* struct xpi_op, by link */
	unsigned size;                             /* how much of the array is used */
	struct xport_completion ring[XPI_CQ_RING]; /* offset, mr and peer stay 0 */
};

static inline bool xpi_cq_empty(const struct xpi_cq *q)
{
	return q->first == q->next && xpi_list_empty(&q->overflow);
}

/* xpi_cq_ready - the number of completions in the array that are not reaped. */
static inline unsigned xpi_cq_ready(const struct xpi_cq *q)
{
	return (unsigned)(q->next - q->first);
}

/* xpi_cq_close - close the array. */
static inline void xpi_cq_close(struct xpi_cq *q)
{
	if (q->end != q->next) /* with a lock it always is, and then posts may look without having it */
		q->end = q->next;
}

/* xpi_cq_open - reuse the array from its beginning, if all completions are reaped. */
static inline __attribute__((always_inline)) void xpi_cq_open(struct xpi_cq *q)
{
	if (!xpi_cq_empty(q))
		return;
	q->first = q->next = q->ring;
	q->end = q->ring + q->size;
}

/* xpi_cq_push - append a complete operation or event to the list. */
static inline void xpi_cq_push(struct xpi_cq *q, struct xpi_op *op)
{
	xpi_cq_close(q);
	xpi_list_push(&q->overflow, &op->link);
}

/* xpi_cq_names - true if a completion in the array names this endpoint. */
static inline bool xpi_cq_names(const struct xpi_cq *q, const struct xport_ep *ep)
{
	for (const struct xport_completion *c = q->first; c != q->next; c++)
		if (c->ep == ep)
			return true;
	return false;
}

#endif
