/* SPDX-License-Identifier: BSD-3-Clause */
/* backpressure.c - threads that got XPORT_ERR_AGAIN, and who must be notified that space was freed. */
#include "base/clock.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/wakeup.h"

/* The last XPORT_ERR_AGAIN of this thread: where, how often space had been freed by then, and whether it was notified since. */
static _Thread_local struct {
	const struct xport *x;
	const struct xport_ep *ep; /* NULL: a receive */
	uint32_t freed_times;
	bool notified;
} last_again;

/* This thread needs no notification any more. */
static void again_notified(struct xport *x)
{
	last_again.notified = true;
	if (x->backpressure.waiting > 0)
		x->backpressure.waiting--;
	if (x->backpressure.waiting == 0)
		x->backpressure.freed = false;
}

void xpi_again_begin(struct xport *x, const struct xport_ep *ep)
{
	x->backpressure.wanted = true;
	if (ep == NULL)
		x->backpressure.receive_wanted = true;
	if (last_again.x != x || last_again.notified)
		x->backpressure.waiting++;
	last_again.x = x;
	last_again.ep = ep;
	last_again.freed_times = x->backpressure.freed_times;
	last_again.notified = false;
}

void xpi_again_end(struct xport *x, const struct xport_ep *ep)
{
	if (ep == NULL)
		x->backpressure.receive_wanted = false;
	if (last_again.x != x || last_again.ep != ep)
		return;
	if (!last_again.notified)
		again_notified(x);
	last_again.x = NULL;
}

void xpi_again_notified_all(struct xport *x)
{
	x->backpressure.freed = false;
}

void xpi_again_retry(struct xport *x)
{
	xpi_assert_locked(x);
	if (x->backpressure.notified_ms != 0 && last_again.x == x && !last_again.notified)
		again_notified(x);
}

bool xpi_again_tell(struct xport *x)
{
	if (!x->backpressure.freed || last_again.x != x || last_again.notified)
		return false;
	if (x->backpressure.notified_ms == 0)
		x->backpressure.notified_ms = xpi_now_ms();
	again_notified(x);
	return true;
}

/*
 * True if the descriptor must stay readable because space was freed.
 *
 * It stays readable until every waiting thread has retried. A thread that sleeps on the descriptor could otherwise lose the
 * notification to another one that polls first. A thread that has not retried within 1 s is not expected to.
 */
bool xpi_again_to_notify(struct xport *x)
{
	enum { RETRY_MS = 1000 };

	if (!x->backpressure.freed)
		return false;
	if (x->backpressure.notified_ms == 0) {
		x->backpressure.notified_ms = xpi_now_ms();
		return true;
	}
	xpi_again_retry(x);
	if ((x->slow & XPI_SLOW_LOCK) == 0 || xpi_now_ms() - x->backpressure.notified_ms >= RETRY_MS)
		x->backpressure.waiting = 0;
	if (x->backpressure.waiting == 0)
		x->backpressure.freed = false;
	return x->backpressure.freed;
}

/* The value of freed_times since which a retry of this thread can succeed. Notifications of other threads do not count. */
uint32_t xpi_again_tried_at(struct xport *x)
{
	if (last_again.x != x)
		return x->backpressure.freed_times - (x->backpressure.freed && x->backpressure.notified_ms == 0);
	if (!last_again.notified)
		again_notified(x);
	last_again.x = NULL;
	return last_again.freed_times;
}
