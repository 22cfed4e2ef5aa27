/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * close.c - closing an endpoint in good order.
 *
 * First everything posted completes, and what the peer asked for leaves. Then a BYE follows on the data path, and its
 * acknowledgement says that the peer has received all. A close whose time is over ends where it is.
 */
#include "core/progress/close.h"

#include <stdio.h>

#include "base/clock.h"
#include "core/liveness/monitor.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/progress/progress.h"
#include "core/protocol/tx.h"
#include "core/wire/frame.h"

/* ---- the steps ---- */

/* Whether all that was posted has ended. */
static bool ep_ended(const struct xport_ep *ep)
{
	return xpi_list_empty(&ep->rma.q) && xpi_list_empty(&ep->msg.q) && xpi_list_empty(&ep->unacked) &&
	       xpi_list_empty(&ep->placing) && xpi_list_empty(&ep->native) && xpi_list_empty(&ep->requests);
}

/* And what the peer asked for has left. */
static bool ep_settled(const struct xport_ep *ep)
{
	return ep_ended(ep) && ep->tx.open == NULL && xpi_list_empty(&ep->reply.q);
}

static bool may_say_bye(const struct xport_ep *ep)
{
	return ep->end.bye_patience == 0 || ep_settled(ep);
}

/* Whether the peer has taken all that was posted; `left`: it closed, and told what it had taken. */
static bool has_all(const struct xport_ep *ep, bool left)
{
	uint32_t ack = ep->tx.acked;

	if (left)
		ack = xpi_chan_bye_ack(&ep->chan, ack);
	return ep_ended(ep) && xpi_seq_reached(ack, ep->end.last_seq) && xpi_seq_reached(ep->tx.seq, ack);
}

/* A peer that is lost has heard nothing: the next poll ends the endpoint by that. */
static bool bye_arrived(const struct xport_ep *ep)
{
	return (xpi_ep_found(ep) & XPI_CHAN_BYE) || (ep->rx.bye && has_all(ep, false)) ||
	       (ep->tx.bye_sent && xpi_seq_reached(ep->tx.acked, ep->tx.bye_seq) && ep->tx.open == NULL);
}

static void close_begin(struct xport_ep *ep)
{
	ep->state = XPI_EP_CLOSING;
	ep->end.close = XPI_CLOSE_SETTLING;
}

/* Tells the peer that nothing follows. If the peer has closed too, operations may be left that never complete: then no BYE is sent. */
static void say_bye(struct xport_ep *ep)
{
	struct xpi_op *bye;

	ep->end.last_seq = xpi_tx_seq(ep);
	ep->end.close = XPI_CLOSE_OVER;
	if (!ep_settled(ep))
		return;
	bye = xpi_op_get(ep->x, ep, XPI_OP_BYE);
	if (bye == NULL) {
		ep->end.close = XPI_CLOSE_CUT;
		return;
	}
	bye->after_native = UINT64_MAX;
	xpi_list_push(&ep->reply.q, &bye->link);
	xpi_work(ep);
	ep->end.close = XPI_CLOSE_BYE;
}

/* Goes on, as far as that is possible now. True: it is over. */
static bool close_step(struct xport_ep *ep)
{
	if (ep->state >= XPI_EP_FAILING)
		return true;
	if (ep->end.close == XPI_CLOSE_SETTLING && may_say_bye(ep))
		say_bye(ep);
	if (ep->end.close == XPI_CLOSE_BYE && bye_arrived(ep))
		ep->end.close = XPI_CLOSE_OVER;
	return ep->end.close >= XPI_CLOSE_OVER;
}

/* No time is left. */
static void close_cut(struct xport_ep *ep)
{
	if (ep->end.close == XPI_CLOSE_SETTLING)
		ep->end.last_seq = xpi_tx_seq(ep);
	ep->end.close = XPI_CLOSE_CUT;
}

/* How it ended: a status of xport_ep_close. */
static int close_result(struct xport_ep *ep)
{
	bool left = (xpi_ep_found(ep) & XPI_CHAN_BYE) != 0;

	if (ep->state >= XPI_EP_FAILING)
		return ep->end.reason;
	if (ep->state == XPI_EP_CLOSING && (left || ep->rx.bye) && !has_all(ep, left))
		return XPORT_ERR_PEER_CLOSED;
	return ep->end.close == XPI_CLOSE_CUT ? XPORT_ERR_TIMEOUT : XPORT_OK;
}

static const char *why_of(int result)
{
	switch (result) {
	case XPORT_ERR_PEER_CLOSED:
		return "the peer closed the endpoint before it had received everything posted";
	case XPORT_ERR_TIMEOUT:
		return "the time limit expired before everything posted had completed";
	default:
		return "closed by this side";
	}
}

static void close_end(struct xport_ep *ep, int result, int event)
{
	if (ep->state < XPI_EP_FAILING)
		snprintf(ep->end.why, sizeof(ep->end.why), "%s", why_of(result));
	xpi_ep_fail(ep, result == XPORT_ERR_PEER_CLOSED ? result : XPORT_ERR_CLOSED, event);
}

/* ---- the call that waits ---- */

static bool is_dead(struct xport_ep *ep)
{
	return ep->state == XPI_EP_DRAINED;
}

/* Polls until `done` or the deadline; false at the deadline. */
static bool wait_for(struct xport_ep *ep, bool (*done)(struct xport_ep *), int64_t deadline)
{
	struct xport *x = ep->x;

	for (unsigned i = 0; !done(ep); i++) {
		int64_t left = deadline < 0 ? 1000 : deadline - xpi_now_ms();

		if (left <= 0)
			return false;
		if (xpi_progress(x) == 0 && i >= 64 && !done(ep))
			xpi_idle(x, left < 1000 ? (int)left : 1000);
		else
			xpi_let_in(x);
	}
	return true;
}

static int ep_close(struct xport_ep *ep, int timeout_ms)
{
	int r;

	ep->closed = true;
	ep->fast_left = 0;
	if (ep->state == XPI_EP_OPEN && timeout_ms != 0) {
		close_begin(ep);
		if (!wait_for(ep, close_step, timeout_ms < 0 ? -1 : xpi_now_ms() + timeout_ms))
			close_cut(ep);
	}
	r = close_result(ep);
	close_end(ep, r, 0);
	wait_for(ep, is_dead, -1);
	if (r == XPORT_OK)
		return XPORT_OK;
	xpi_refuse(ep->x, r, "xport_ep_close", "%s", ep->end.why);
	return xpi_ep_refused(ep, r);
}

int xpi_ep_close(struct xport_ep *ep, int timeout_ms)
{
	int r;

	xpi_assert_locked(ep->x);
	if (ep->closed)
		return xpi_ep_refuse(ep, "xport_ep_close");
	ep->held = true;
	r = ep_close(ep, timeout_ms);
	ep->held = false;
	if (ep->destroyed) { /* by a thread that has reaped its end meanwhile */
		ep->x->todo |= XPI_TODO_RELEASE;
		xpi_request_attention(ep->x);
	}
	return r;
}

/* ---- the call that does not ---- */

/* Has the instance look at its closes again at that time at the latest; -1: never. */
static void closing_ring(struct xport *x, int64_t ms)
{
	struct xpi_watch *w = &x->ending.late;

	if (ms < 0 || (w->added && !atomic_load(&w->rang) && x->ending.late_ms <= ms))
		return;
	x->ending.late_ms = ms;
	if (w->added) {
		(void)xpi_watch_arm(x->live, w, 0, ms); /* without a descriptor it cannot fail */
		return;
	}
	w->deadline_ms = ms;
	(void)xpi_watch_add(x->live, w);
}

int xpi_ep_close_start(struct xport_ep *ep, int timeout_ms)
{
	struct xport *x = ep->x;

	xpi_assert_locked(x);
	if (ep->closed || ep->state >= XPI_EP_FAILING)
		return xpi_ep_refuse(ep, "xport_ep_close_start");
	if (ep->state == XPI_EP_CONNECTING)
		return xpi_ep_refused(ep, xpi_refuse(x, XPORT_ERR_INVALID, "xport_ep_close_start",
		                                     "the endpoint is not connected yet: destroy it instead"));
	ep->closed = true;
	ep->fast_left = 0;
	close_begin(ep);
	if (timeout_ms == 0)
		ep->end.close = XPI_CLOSE_OVER;
	ep->end.deadline_ms = timeout_ms < 0 ? -1 : xpi_now_ms() + timeout_ms;
	xpi_list_push(&x->ending.closing, &ep->closing);
	x->todo |= XPI_TODO_CLOSING;
	closing_ring(x, ep->end.deadline_ms);
	xpi_request_attention(x);
	return XPORT_OK;
}

void xpi_closing_walk(struct xport *x)
{
	bool rang = x->ending.late.added && atomic_load(&x->ending.late.rang);
	int64_t now = xpi_now_ms(), next = -1;

	xpi_list_for_safe(l, &x->ending.closing) {
		struct xport_ep *ep = xpi_container(l, struct xport_ep, closing);
		int64_t deadline = ep->end.deadline_ms;

		if (!close_step(ep)) {
			if (deadline < 0 || now < deadline) {
				next = deadline >= 0 && (next < 0 || deadline < next) ? deadline : next;
				continue;
			}
			close_cut(ep);
		}
		xpi_list_del(&ep->closing);
		if (ep->state < XPI_EP_FAILING) {
			ep->end.told = close_result(ep);
			close_end(ep, ep->end.told, XPORT_EVENT_CLOSED);
		}
	}
	if (xpi_list_empty(&x->ending.closing))
		x->todo &= ~(unsigned)XPI_TODO_CLOSING;
	else if (rang)
		closing_ring(x, next);
}
