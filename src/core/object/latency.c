/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/object/latency.h"

#include <stdlib.h>
#include <time.h>

#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/op.h"

enum { NEXT = 4, FIRST_NS = 256, STAMPS = 1024 };

/* When an operation was posted. */
struct stamp {
	int64_t at_ns; /* 0: unknown */
	uint32_t gen;  /* of the object */
};

struct xpi_latency {
	int64_t entered_ns;               /* the last call */
	struct xpi_pool_head *next[NEXT]; /* what the pool gave out next, then */
	int nnext;
	struct stamp *stamps;
	uint32_t nstamps;
	const struct xpi_op *seen; /* the newest that was looked at; it may be another operation by now */
	uint32_t seen_gen;
};

_Static_assert(sizeof(((struct xport_counters *)NULL)->latency) == sizeof(((struct xpi_latency_counts *)NULL)->bucket),
               "as reported");

static int64_t latency_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int xpi_latency_open(struct xport *x)
{
	x->latency = calloc(1, sizeof(*x->latency));
	if (x->latency == NULL)
		return XPORT_ERR_NO_MEMORY;
	x->slow |= XPI_SLOW_TIMED;
	x->todo |= XPI_TODO_TIMED;
	return XPORT_OK;
}

void xpi_latency_close(struct xport *x)
{
	if (x->latency != NULL)
		free(x->latency->stamps);
	free(x->latency);
	x->latency = NULL;
}

/* The stamp of an object; NULL: out of memory. */
static struct stamp *stamp_of(struct xpi_latency *l, uint32_t index)
{
	struct stamp *more;
	uint32_t n = l->nstamps == 0 ? STAMPS : l->nstamps;

	if (index < l->nstamps)
		return &l->stamps[index];
	while (n <= index)
		n *= 2;
	more = realloc(l->stamps, n * sizeof(*more));
	if (more == NULL)
		return NULL;
	for (uint32_t i = l->nstamps; i < n; i++)
		more[i].at_ns = 0;
	l->stamps = more;
	l->nstamps = n;
	return &more[index];
}

/* The operation was posted by the call that was entered last. */
static void latency_begin(struct xpi_latency *l, const struct xpi_op *op, uint32_t index)
{
	unsigned what = xpi_op_what(op);
	struct stamp *s;

	/* A run of a list is a part of another operation. */
	if (what > XPORT_OP_FLUSH || what == 0 || what == XPORT_OP_RECV ||
	    (op->kind > XPI_OP_LIST && what < XPORT_OP_SEND))
		return;
	s = stamp_of(l, index);
	if (s == NULL)
		return;
	s->at_ns = l->entered_ns;
	s->gen = op->gen;
}

static void latency_end(struct xpi_latency *l, struct xpi_op *op, uint32_t index, int64_t now)
{
	struct stamp *s = index < l->nstamps ? &l->stamps[index] : NULL;
	unsigned what = xpi_op_what(op), bucket = 0;
	struct xpi_latency_counts *n;
	uint64_t ns;

	if (s == NULL || s->at_ns == 0 || s->gen != op->gen || op->ep == NULL || what >= XPI_LATENCY_KINDS)
		return;
	ns = (uint64_t)(now - s->at_ns);
	s->at_ns = 0;
	if (op->status != XPORT_OK)
		return;
	if (op->ep->latency == NULL)
		op->ep->latency = calloc(1, sizeof(*op->ep->latency));
	n = op->ep->latency;
	if (n == NULL)
		return;
	while (bucket < XPI_LATENCY_BUCKETS - 1 && ns > (uint64_t)FIRST_NS << bucket)
		bucket++;
	n->bucket[what][bucket]++;
	n->sum_ns[what] += ns;
}

/* Which of the objects that the pool had next were taken since. */
static void latency_adopt(struct xport *x)
{
	struct xpi_latency *l = x->latency;

	for (int i = 0; i < l->nnext && l->next[i]->used; i++)
		latency_begin(l, (const struct xpi_op *)(l->next[i] + 1), l->next[i]->index);
	l->nnext = 0;
}

void xpi_latency_look(struct xport *x)
{
	struct xpi_latency *l = x->latency;
	struct xpi_list *overflow = &x->cq.overflow;
	int64_t now;

	latency_adopt(x);
	if (xpi_list_empty(overflow))
		return;
	now = latency_now();
	/* From the newest on, to one that was looked at before. */
	for (struct xpi_list *at = overflow->prev; at != overflow; at = at->prev) {
		struct xpi_op *op = xpi_container(at, struct xpi_op, link);

		if (op == l->seen && op->gen == l->seen_gen)
			break;
		latency_end(l, op, xpi_pool_index(&x->op_pool, op), now);
	}
	l->seen = xpi_container(overflow->prev, struct xpi_op, link);
	l->seen_gen = l->seen->gen;
}

void xpi_latency_entered(struct xport *x)
{
	struct xpi_latency *l = x->latency;

	xpi_latency_look(x);
	for (struct xpi_pool_head *h = x->op_pool.free; h != NULL && l->nnext < NEXT; h = h->next)
		l->next[l->nnext++] = h;
	l->entered_ns = latency_now();
}

void xpi_latency_add(struct xport_counters *to, const struct xport_ep *ep)
{
	const struct xpi_latency_counts *n = ep->latency;

	for (int k = 0; n != NULL && k < XPI_LATENCY_KINDS; k++) {
		for (int i = 0; i < XPI_LATENCY_BUCKETS; i++)
			to->latency[k][i] += n->bucket[k][i];
		to->latency_ns[k] += n->sum_ns[k];
	}
}
