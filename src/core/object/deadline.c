/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/object/deadline.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "core/liveness/monitor.h"
#include "core/object/locked.h"
#include "core/object/op_life.h"

enum { FIRST_DEADLINES = 64 };

struct xpi_deadline {
	int64_t at_ms;
	uint64_t id; /* of the operation, xpi_op_id */
};

bool xpi_op_ended(const struct xpi_op *op)
{
	return op->waits == 0 && (xpi_op_what(op) == XPORT_OP_RECV ? !op->posted : op->pending == 0);
}

/* The operation of an entry, if it still needs its deadline. Those of an endpoint that ends are completed by that. */
static struct xpi_op *deadline_op(struct xport *x, const struct xpi_deadline *d)
{
	struct xpi_op *op = xpi_op_find(x, d->id);

	if (op == NULL || xpi_op_what(op) > XPORT_OP_FLUSH || xpi_op_ended(op))
		return NULL;
	return op->ep == NULL || op->ep->state <= XPI_EP_CLOSING ? op : NULL;
}

/* ---- the heap ---- */

static void heap_up(struct xpi_deadline *heap, uint32_t i)
{
	struct xpi_deadline d = heap[i];

	for (; i > 0 && heap[(i - 1) / 2].at_ms > d.at_ms; i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = d;
}

static void heap_down(struct xpi_deadline *heap, uint32_t n, uint32_t i)
{
	struct xpi_deadline d = heap[i];

	for (uint32_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
		if (child + 1 < n && heap[child + 1].at_ms < heap[child].at_ms)
			child++;
		if (heap[child].at_ms >= d.at_ms)
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = d;
}

static void heap_pop(struct xpi_deadlines *all)
{
	all->heap[0] = all->heap[--all->n];
	if (all->n > 0)
		heap_down(all->heap, all->n, 0);
}

/* Drops what is left over. It is then at most half full, so that the next sweep has as much to drop; or it grows. */
static bool heap_sweep(struct xport *x)
{
	struct xpi_deadlines *all = &x->deadlines;
	struct xpi_deadline *bigger;
	uint32_t n = 0;

	for (uint32_t i = 0; i < all->n; i++)
		if (deadline_op(x, &all->heap[i]) != NULL)
			all->heap[n++] = all->heap[i];
	all->n = n;
	for (uint32_t i = n / 2; i > 0; i--)
		heap_down(all->heap, n, i - 1);
	if (n < all->size / 2)
		return true;
	bigger = realloc(all->heap, (all->size > 0 ? 2 * all->size : FIRST_DEADLINES) * sizeof(*bigger));
	if (bigger == NULL)
		return n < all->size;
	all->heap = bigger;
	all->size = all->size > 0 ? 2 * all->size : FIRST_DEADLINES;
	return true;
}

/* ---- deadlines ---- */

bool xpi_deadline_space(struct xport *x)
{
	return x->deadlines.n < x->deadlines.size || heap_sweep(x);
}

int xpi_deadline_begin(struct xport *x, const char *operation, const struct xport_opt *opt, int64_t *at_ms)
{
	*at_ms = INT64_MAX;
	if (opt == NULL || opt->deadline_ms == 0)
		return XPORT_OK;
	if (opt->deadline_ms > INT32_MAX)
		return xpi_refuse(x, XPORT_ERR_INVALID, operation,
		                  "opt->deadline_ms is %u, and at most 2147483647 is allowed; 0 means no deadline",
		                  (unsigned)opt->deadline_ms);
	if (!xpi_deadline_space(x))
		return xpi_refuse(x, XPORT_ERR_NO_MEMORY, operation, "no memory for another deadline");
	*at_ms = xpi_now_ms() + 1 + opt->deadline_ms; /* that clock rounds down */
	return XPORT_OK;
}

void xpi_deadline_add(struct xport *x, uint64_t id, int64_t at_ms)
{
	struct xpi_deadlines *all = &x->deadlines;
	struct xpi_deadline d = {.at_ms = at_ms, .id = id};

	xpi_assert_locked(x);
	if (at_ms == INT64_MAX || deadline_op(x, &d) == NULL)
		return;
	assert(all->n < all->size);
	all->heap[all->n] = d;
	heap_up(all->heap, all->n++);
	xpi_deadline_ring(x);
}

struct xpi_op *xpi_deadline_next(struct xport *x, int64_t now)
{
	struct xpi_deadlines *all = &x->deadlines;

	xpi_assert_locked(x);
	while (all->n > 0) {
		struct xpi_op *op = deadline_op(x, &all->heap[0]);

		if (op != NULL && now < all->heap[0].at_ms)
			return NULL;
		heap_pop(all);
		if (op != NULL)
			return op;
	}
	return NULL;
}

void xpi_deadline_ring(struct xport *x)
{
	struct xpi_deadlines *all = &x->deadlines;
	struct xpi_watch *w = &all->watch;
	int64_t ms;

	if (all->n == 0)
		return;
	ms = all->heap[0].at_ms;
	if (w->added && !atomic_load(&w->rang) && all->rings_ms <= ms)
		return;
	all->rings_ms = ms;
	if (w->added) {
		(void)xpi_watch_arm(x->live, w, 0, ms); /* without a descriptor it cannot fail */
		return;
	}
	w->deadline_ms = ms;
	(void)xpi_watch_add(x->live, w);
}

void xpi_deadline_close(struct xport *x)
{
	free(x->deadlines.heap);
	x->deadlines.heap = NULL;
	x->deadlines.n = x->deadlines.size = 0;
}
