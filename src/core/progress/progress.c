/* SPDX-License-Identifier: BSD-3-Clause */
/* progress.c - one turn of the instance: back end, control channels, endpoints with work. */
#include "core/progress/progress.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "core/cm/cm.h"
#include "core/cm/handshake.h"
#include "core/config/select.h"
#include "core/liveness/monitor.h"
#include "core/object/accept_queue.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/latency.h"
#include "core/object/locked.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/object/set.h"
#include "core/object/wakeup.h"
#include "core/progress/close.h"
#include "core/progress/dump.h"
#include "core/progress/expire.h"
#include "core/protocol/msg.h"
#include "core/protocol/pump.h"
#include "core/protocol/rma.h"
#include "core/protocol/rx.h"
#include "core/protocol/tx.h"

/* What arrived before its endpoint was open, behind XPORT_EVENT_INCOMING or _CONNECTED. */
static void take_early(struct xport *x)
{
	if (x->nearly == 0) /* there may be many endpoints, and this is done at each step of each handshake */
		return;
	xpi_list_for_safe(pos, &x->eps) {
		struct xport_ep *ep = xpi_container(pos, struct xport_ep, link);

		if (ep->state == XPI_EP_OPEN && !xpi_list_empty(&ep->early))
			xpi_rx_early(ep);
	}
}

void xpi_conn_progress(struct xport *x)
{
	bool soon;
	int came = 0;

	xpi_assert_locked(x);
	if (x->cm.busy)
		return;
	x->cm.busy = true;
	soon = xpi_conn_walk(x);
	xpi_list_for(pos, &x->cm.listeners)
		came += xpi_listener_progress(xpi_container(pos, struct xport_listener, link));
	if (came > 0)
		soon = xpi_conn_walk(x);
	x->cm.busy = false;
	take_early(x);
	xpi_msg_peers_gone(x);
	if (soon)
		atomic_fetch_or(&x->attention, XPI_ATTEND_CONNS);
}

static void progress_on_done(struct xpi_core *core, struct xpi_req *req, int status)
{
	struct xpi_wait *w = (struct xpi_wait *)req;

	(void)core;
	switch (w->kind) {
	case XPI_WAIT_TX:
		xpi_tx_done((struct xpi_tx *)w, status);
		break;
	case XPI_WAIT_OP: {
		struct xpi_op *op = (struct xpi_op *)w;

		if (status == XPORT_OK)
			xpi_op_done(op);
		else /* it completes as its endpoint ends: why, the control channel knows better */
			xpi_ep_broken(op->ep);
		break;
	}
	default:
		xpi_drained(xpi_container(w, struct xport_ep, rma.drain), status);
	}
}

static void on_ep_failed(struct xpi_core *core, struct xpi_core_ep *core_ep, int64_t code, const char *why)
{
	struct xport_ep *ep = (struct xport_ep *)core_ep;

	(void)core;
	if (ep->end.broken || ep->state >= XPI_EP_FAILING)
		return;
	snprintf(ep->end.native_why, sizeof(ep->end.native_why), "the network reports: %s (%lld)", why,
	         (long long)code);
	xpi_log(ep->x->log, XPORT_LOG_DEBUG, "0003", "%s: %s", ep->peer.name, ep->end.native_why);
	xpi_ep_broken(ep);
}

const struct xpi_core_ops xpi_up = {
	.am_recv = xpi_rx_frame,
	.done = progress_on_done,
	.ep_failed = on_ep_failed,
	.back_end = xpi_select_back_end,
	.same_user = xpi_conn_same_user,
};

/*
 * A network that ends by being polled is asked at every poll.  A queue pair may take many seconds to let go of its buffers: who
 * waits for that looks again by the clock.
 */
static bool rings_at(struct xport *x, int64_t ms)
{
	struct xpi_watch *w = &x->ending.again;

	if (w->added)
		return !atomic_load(&w->rang) || xpi_watch_arm(x->live, w, 0, ms) == XPORT_OK;
	w->deadline_ms = ms;
	return xpi_watch_add(x->live, w) == XPORT_OK;
}

static void fail_again(struct xport *x)
{
	enum { AT_ONCE_MS = 1000, LATER_MS = 20 };
	int64_t now = xpi_now_ms();

	if (now - x->ending.since_ms < AT_ONCE_MS || !rings_at(x, now + LATER_MS))
		xpi_request_attention(x);
}

static void fail_steps(struct xport *x)
{
	xpi_list_for_safe(l, &x->ending.eps) {
		struct xport_ep *ep = xpi_container(l, struct xport_ep, work);

		if (xpi_ep_fail_step(ep))
			xpi_ep_release(ep);
	}
	if (!xpi_list_empty(&x->ending.eps))
		fail_again(x);
}

/*
 * The poll before found `n` things to do.  An instance that always finds some is asked again a number of times, not at every
 * poll: then time goes on, and the next heartbeat asks.
 */
static void answer_helper(struct xport *x, int n)
{
	enum { ASK_POLLS = 256 };
	bool answered = true;

	xpi_list_for(l, &x->eps)
		answered = xpi_ep_answer(xpi_container(l, struct xport_ep, link), n == 0) && answered;
	x->asked_polls = answered || x->asked_polls >= ASK_POLLS ? 0 : x->asked_polls + 1;
	if (x->asked_polls > 0)
		xpi_request_attention(x);
}

static __attribute__((cold)) void attend(struct xport *x, int n)
{
	unsigned what = atomic_exchange_explicit(&x->attention, 0, memory_order_acquire);

	xpi_fd_rung(x);
	x->sleepers.stirred = true;
	/* Endpoints over transports that are polled seldom are asked, too. */
	n += xpi_poll_others(x);
	if (what & XPI_ATTEND_ALL) {
		answer_helper(x, n);
		xpi_list_for_safe(l, &x->eps)
			xpi_ep_attend(xpi_container(l, struct xport_ep, link));
	}
	if (!xpi_list_empty(&x->cm.conns) || !xpi_list_empty(&x->cm.listeners))
		xpi_conn_progress(x);
	if (x->deadlines.n > 0)
		xpi_expire(x);
	fail_steps(x);
	xpi_msg_peers_gone(x);
	if (x->todo & XPI_TODO_RELEASE)
		xpi_ep_tell_destroyed(x);
}

/* Whether the coarse clock has moved since it was looked at: who polls seldom has no 256 polls to a heartbeat. */
static bool clock_moved(struct xport *x)
{
	struct timespec t;
	bool moved;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	moved = t.tv_nsec != x->polled_ns || t.tv_sec != x->polled_s;
	x->polled_ns = t.tv_nsec;
	x->polled_s = t.tv_sec;
	return moved;
}

/* What needs a clock: old operations every 256th poll, and when the timer has expired; heartbeats without a thread as soon as
 * the clock has moved. */
static __attribute__((noinline)) void occasional(struct xport *x)
{
	bool tick = (x->epoch & 255) == 0 || (x->todo & XPI_TODO_TICK) != 0;

	if (!x->settings.liveness_thread && (tick || clock_moved(x)))
		xpi_live_step(x->live);
	if (!tick)
		return;
	x->todo &= ~(unsigned)XPI_TODO_TICK;
	if (x->settings.op_timeout_ms > 0)
		xpi_op_timeouts(x);
}

/* Those that are there now; who has work again afterwards waits for the next poll. */
static void pump(struct xport *x)
{
	struct xpi_list now = x->work;

	x->todo &= ~(unsigned)XPI_TODO_WORK;
	if (xpi_list_empty(&x->work)) /* who had it failed meanwhile */
		return;
	now.next->prev = now.prev->next = &now;
	xpi_list_init(&x->work);
	while (!xpi_list_empty(&now))
		xpi_ep_pump(xpi_container(xpi_list_pop(&now), struct xport_ep, work));
}

/* Ends the endpoints over a transport that broke; NULL: all of them. A handshake goes on with another transport. */
static void end_over(struct xport *x, const struct xpi_transport *tp, const char *why)
{
	xpi_list_for_safe(l, &x->eps) {
		struct xport_ep *ep = xpi_container(l, struct xport_ep, link);

		if (ep->state >= XPI_EP_FAILING || (tp != NULL && ep->tp != tp))
			continue;
		if (tp != NULL && ep->state == XPI_EP_CONNECTING) {
			snprintf(ep->end.native_why, sizeof(ep->end.native_why), "%s", why);
			xpi_ep_broken(ep);
			continue;
		}
		snprintf(ep->end.why, sizeof(ep->end.why), "%s", why);
		xpi_ep_fail(ep, XPORT_ERR_PEER_LOST, XPORT_EVENT_LOST);
	}
}

/* Nothing comes from below any more: every endpoint ends, and with it what was posted on it.  That comes first, the error
 * once none is left. */
static __attribute__((cold)) int broke(struct xport *x, int n)
{
	char why[sizeof(((struct xport_ep *)NULL)->end.why)];

	snprintf(why, sizeof(why), "the back end failed%s%.120s", x->err.status == n ? ": " : "",
	         x->err.status == n ? x->err.text : "");
	end_over(x, NULL, why);
	fail_steps(x);
	return xpi_list_empty(&x->ending.eps) ? xpi_refuse(x, n, "xport_poll", "%s", why) : 0;
}

/* Whether one can still be used, or opened. */
static bool candidates_left(const struct xpi_candidates *c)
{
	for (int i = 0; i < c->n; i++)
		if (c->list[i].state != XPI_CANDIDATE_FAILED)
			return true;
	return false;
}

/* One of several transports broke: the others go on. If none is left, every poll says so. */
static __attribute__((cold)) int one_broke(struct xport *x)
{
	const struct xpi_candidates *c = &x->set->candidates;
	char why[sizeof(((struct xport_ep *)NULL)->end.why)];

	xpi_list_for(l, &x->transports) {
		struct xpi_transport *tp = xpi_container(l, struct xpi_transport, link);

		if (tp->broke == XPORT_OK || tp->broke_told)
			continue;
		tp->broke_told = true;
		snprintf(why, sizeof(why), "%s:%s failed%s%.100s", tp->ops->name, tp->caps.provider,
		         x->err.status == tp->broke ? ": " : "", x->err.status == tp->broke ? x->err.text : "");
		xpi_candidate_failed(&x->set->candidates.list[tp->index], tp->broke, why);
		if (candidates_left(c))
			xpi_log(x->log, XPORT_LOG_ERROR, "0028",
			        "%s: its endpoints end, those over other transports go on", why);
		end_over(x, tp, why);
		if (tp->neps == 0)
			xpi_fd_remove(x, tp);
	}
	fail_steps(x);
	if (candidates_left(c)) {
		x->todo &= ~(unsigned)XPI_TODO_BROKE;
		return 0;
	}
	if (!xpi_list_empty(&x->ending.eps))
		return 0;
	return xpi_refuse(x, x->tp->broke != XPORT_OK ? x->tp->broke : XPORT_ERR_SYSTEM, "xport_poll",
	                  "none of %d transports is left: %s", c->n, c->list[x->tp->index].reason);
}

int xpi_progress_rest(struct xport *x, int n)
{
	xpi_assert_locked(x);
	if (n < 0) {
		if (!xpi_transport_broke(xpi_polled_alone(x), n))
			return broke(x, n);
		n = 0;
	}
	if (__builtin_expect((x->todo & XPI_TODO_BROKE) != 0, 0)) {
		int r = one_broke(x);

		if (r < 0)
			return r;
	}
	if (__builtin_expect(atomic_load_explicit(&x->attention, memory_order_acquire) != 0, 0))
		attend(x, n);
	if (__builtin_expect((x->todo & XPI_TODO_CLOCK) != 0, 0))
		occasional(x);
	if (x->todo & XPI_TODO_WORK) {
		pump(x);
		x->sleepers.stirred = true;
	}
	/* Last: what was pumped may have been what they wait for. */
	if (__builtin_expect((x->todo & XPI_TODO_CLOSING) != 0, 0))
		xpi_closing_walk(x);
	/* Later than all that completes operations: they may be reaped next. */
	if (__builtin_expect((x->todo & XPI_TODO_TIMED) != 0, 0))
		xpi_latency_look(x);
	return n;
}

int xpi_progress(struct xport *x)
{
	int n = xpi_progress_be(x);

	xpi_assert_locked(x);
	x->sleepers.stirred = x->sleepers.stirred || n != 0;
	return xpi_progress_more(x, n) ? xpi_progress_rest(x, n) : n;
}
