/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/object/ep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/status.h"
#include "core/liveness/flow.h"
#include "core/liveness/monitor.h"
#include "core/object/accept_queue.h"
#include "core/object/completion.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/match.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/object/set.h"
#include "core/object/stats.h"
#include "core/object/usdt.h"

enum { INDEX_BITS = 16 };
/* No back end has shorter frames (backend.h, am_max), and private data must fit one. */
enum { FRAME_MIN = 2048 };
/* AddressSanitizer keeps freed memory back as well, and reports its use. */
#ifdef XPI_POOL_POISON
enum { RETIRES = false };
#else
enum { RETIRES = true };
#endif

/* ---- making ---- */

static int ep_slot_find(struct xport *x, uint32_t *slot)
{
	uint32_t size = x->nslots;
	struct xpi_slot *bigger;

	for (uint32_t i = 0; i < size; i++) {
		if (x->slots[i].ep == NULL) {
			*slot = i;
			return XPORT_OK;
		}
	}
	if (size >= 1u << INDEX_BITS)
		return XPORT_ERR_NO_MEMORY;
	bigger = realloc(x->slots, (size ? size * 2 : 16) * sizeof(*bigger));
	if (bigger == NULL)
		return XPORT_ERR_NO_MEMORY;
	x->slots = bigger;
	x->nslots = size ? size * 2 : 16;
	memset(bigger + size, 0, (x->nslots - size) * sizeof(*bigger));
	*slot = size;
	return XPORT_OK;
}

/*
 * Keeps the memory of an endpoint whose handle the application had, and frees that of an older one instead. So a stale
 * handle is not soon equal to the one of a new endpoint.
 */
static void ep_retire(struct xport_ep *ep)
{
	struct xpi_retired *retired = &ep->x->retired;
	struct xport_ep **place = &retired->ep[retired->n % XPI_RETIRED];

	if (!ep->retires || !RETIRES) {
		free(ep);
		return;
	}
	retired->n++;
	free(*place);
	*place = ep;
}

void xpi_ep_retired_free(struct xport *x)
{
	for (unsigned i = 0; i < XPI_RETIRED; i++)
		free(x->retired.ep[i]);
}

static void ep_free(struct xport_ep *ep)
{
	xpi_event_unroom(ep->x, &ep->up_room);
	xpi_event_unroom(ep->x, &ep->gone_room);
	xpi_event_unroom(ep->x, &ep->end.buffer);
	free(ep->peer.private_data);
	free(ep->accept.data);
	free(ep->reply.ahead_refused);
	free(ep->passed_over);
	free(ep->latency);
	xpi_ep_unuse(ep);
	ep_retire(ep);
}

/* Bytes for the back end's state: of any transport that may still be agreed. */
static size_t state_size(const struct xport *x, const struct xpi_transport *tp)
{
	return xpi_several(x) ? XPI_EP_BE_MAX : tp->caps.ep_size;
}

struct xport_ep *xpi_ep_new(struct xport *x, struct xpi_transport *tp, void *context)
{
	size_t fixed = (sizeof(struct xport_ep) + 15) & ~(size_t)15;
	size_t size = (fixed + state_size(x, tp) + 63) & ~(size_t)63;
	struct xport_ep *ep;
	uint32_t slot;

	xpi_assert_locked(x);
	if (ep_slot_find(x, &slot) != XPORT_OK)
		return NULL;
	ep = aligned_alloc(64, size);
	if (ep == NULL)
		return NULL;
	memset(ep, 0, size);
	ep->x = x;
	ep->up_room = xpi_event_room(x);
	ep->end.buffer = xpi_event_room(x);
	/* Nothing else may stand in for it: who can guess it writes in the peer's name. */
	if (ep->up_room == NULL || ep->end.buffer == NULL ||
	    getrandom(&ep->session, sizeof(ep->session), 0) != sizeof(ep->session)) {
		ep_free(ep);
		return NULL;
	}
	ep->context = context;
	ep->state = XPI_EP_CONNECTING;
	ep->id = (++x->ep_serial << INDEX_BITS) | slot;
	ep->tx.epoch = x->epoch - 1;
	ep->tx.burst_seq = UINT32_MAX - 2; /* no burst so far */
	ep->msg.window = xpi_window(x);
	ep->chan.fd = ep->chan.pidfd = -1;
	ep->end.bye_patience = 4;
	xpi_list_init(&ep->rma.q);
	xpi_list_init(&ep->msg.q);
	xpi_list_init(&ep->reply.q);
	xpi_list_init(&ep->reply.q_nak);
	xpi_list_init(&ep->unacked);
	xpi_list_init(&ep->placing);
	xpi_list_init(&ep->requests);
	xpi_list_init(&ep->native);
	xpi_list_init(&ep->receives);
	xpi_list_init(&ep->keys.rkeys);
	xpi_list_init(&ep->keys.holds);
	xpi_list_init(&ep->part_holds);
	xpi_list_init(&ep->tx.held);
	xpi_list_init(&ep->early);
	x->slots[slot].ep = ep;
	xpi_list_push(&x->eps, &ep->link);
	if (tp != NULL)
		xpi_ep_use(ep, tp);
	return ep;
}

void xpi_ep_use(struct xport_ep *ep, struct xpi_transport *tp)
{
	ep->tp = tp;
	ep->rx.credits = tp->caps.am_credits;
	memset(xpi_ep_be(ep), 0, tp->caps.ep_size);
	xpi_transport_join(tp);
}

void xpi_ep_unuse(struct xport_ep *ep)
{
	if (ep->tp != NULL && ep->state != XPI_EP_DRAINED)
		xpi_transport_quit(ep->tp);
	ep->tp = NULL;
	ep->end.broken = false;
	ep->end.broken_by = 0;
	ep->end.native_why[0] = '\0';
}

void xpi_ep_unindex(struct xport_ep *ep)
{
	struct xpi_slot *slot = &ep->x->slots[ep->id & ((1u << INDEX_BITS) - 1)];

	slot->ep = NULL;
	slot->ended = ep->rx.discard ? ~ep->session : ep->session;
}

/* ---- refusing ---- */

int xpi_ep_refused(struct xport_ep *ep, int status)
{
	snprintf(ep->x->err.peer, sizeof(ep->x->err.peer), "%s", ep->peer.name);
	return status;
}

int xpi_ep_refuse(struct xport_ep *ep, const char *operation)
{
	struct xport *x = ep->x;
	int r;

	if (ep->closed || ep->state == XPI_EP_CLOSING)
		r = xpi_refuse(x, XPORT_ERR_CLOSED, operation, "the endpoint was closed here");
	else if (ep->state == XPI_EP_CONNECTING)
		r = xpi_refuse(x, XPORT_ERR_INVALID, operation, "the endpoint is not connected yet");
	else
		r = xpi_refuse(x, ep->end.reason, operation, "the endpoint has ended: %s", ep->end.why);
	return xpi_ep_refused(ep, r);
}

uint32_t xpi_window(const struct xport *x)
{
	return x->settings.flight > XPI_WINDOW ? x->settings.flight : XPI_WINDOW;
}

void xpi_ep_set_limits(struct xport_ep *ep, const struct xpi_hello *h)
{
	xpi_assert_locked(ep->x);
	ep->tx.frame_max = xpi_clamp(h->frame_max, FRAME_MIN, (uint32_t)ep->tp->caps.am_max);
	ep->tx.pack_max = ep->tx.frame_max < XPI_PACKED_MAX ? ep->tx.frame_max : XPI_PACKED_MAX;
	ep->tx.credits = xpi_clamp(h->credits, 2, 1u << 16);
	ep->msg.window = xpi_clamp(h->window, 1u << 16, xpi_window(ep->x));
	ep->rma.requests_max = xpi_clamp(h->requests, 1, XPI_REQUESTS);
}

/* ---- failing ---- */

void xpi_ep_broken(struct xport_ep *ep)
{
	xpi_assert_locked(ep->x);
	if (ep->end.broken || ep->state >= XPI_EP_FAILING)
		return;
	ep->end.broken = true;
	ep->fast_left = 0;
	ep->end.broken_ms = xpi_now_ms();
	xpi_request_attention(ep->x);
}

void xpi_ep_broken_by(struct xport_ep *ep, int reason)
{
	ep->end.broken_by = reason;
	xpi_ep_broken(ep);
}

/* The application does not know it yet: xport_connect itself reports that it failed, and a listener's was never announced. */
static bool is_nobodys(const struct xport_ep *ep)
{
	return ep->state == XPI_EP_CONNECTING && !ep->announce;
}

void xpi_ep_fail(struct xport_ep *ep, int reason, int event)
{
	struct xport *x = ep->x;
	bool nobodys = is_nobodys(ep);

	xpi_assert_locked(ep->x);
	if (ep->state >= XPI_EP_FAILING)
		return;
	ep->state = XPI_EP_FAILING;
	ep->fast_left = 0;
	ep->end.reason = reason;
	ep->end.event = (uint8_t)(nobodys ? 0 : event);
	if (ep->end.why[0] == '\0')
		snprintf(ep->end.why, sizeof(ep->end.why), "%s", xpi_status_text(reason));
	xpi_log(x->log, XPORT_LOG_INFO, "0002", "%s: %s: %s", ep->peer.name, xpi_status_name(reason), ep->end.why);
	if (!xpi_ep_is_proper(ep))
		XPI_PROBE_LOST(ep, ep->peer.name, reason, ep->end.why);
	/* Now, since the peer may notice the quiescing, and would take it for a failure if it knew nothing else. */
	if (xpi_ep_is_proper(ep) && ep->chan.fd >= 0)
		xpi_chan_bye(x->live, &ep->chan, xpi_tx_ack(ep));
	if (xpi_list_linked(&ep->work))
		xpi_list_del(&ep->work);
	xpi_list_push(&x->ending.eps, &ep->work);
	x->ending.since_ms = xpi_now_ms();
	xpi_request_attention(x);
	if (nobodys && ep->accepted)
		xpi_ep_discard(ep);
}

void xpi_ep_tell_end(struct xport_ep *ep)
{
	bool own = ep->end.event == XPORT_EVENT_CLOSED && ep->end.close != XPI_CLOSE_NONE;

	xpi_event(ep->x, &ep->end.buffer, ep->end.event, own ? ep->end.told : ep->end.reason, ep, ep->context);
}

bool xpi_ep_named(const struct xport_ep *ep)
{
	return ep->n.posted[XPORT_OP_RECV] > 0 || ep->n.notified > 0;
}

/* ---- what the control channel found ---- */

/* The first operation of a queue is the only one of it of which the back end may hold a part. */
static bool first_is_held(const struct xpi_list *queue)
{
	return !xpi_list_empty(queue) && xpi_container(queue->next, struct xpi_op, link)->pending > 0;
}

/* Whether the network works on a put or get of ours, which frames of either side may wait behind. */
static bool network_works(const struct xport_ep *ep)
{
	if (ep->rma.drain_running || !xpi_list_empty(&ep->native) || first_is_held(&ep->rma.q) ||
	    first_is_held(&ep->msg.q))
		return true;
	xpi_list_for(l, &ep->placing)
		if (xpi_container(l, struct xpi_op, link)->pending > 0)
			return true;
	return false;
}

bool xpi_ep_answer(struct xport_ep *ep, bool idle)
{
	if (!ep->chan.started || !xpi_flow_asked(&ep->chan.flow))
		return true;
	if (!idle)
		return false;
	xpi_flow_answer(&ep->chan.flow, !network_works(ep));
	return true;
}

/* ---- closing ---- */

void xpi_ep_destroy(struct xport_ep *ep)
{
	ep->retires = true;
	xpi_ep_discard(ep);
}

void xpi_ep_discard(struct xport_ep *ep)
{
	xpi_assert_locked(ep->x);
	if (ep->destroyed)
		return;
	xpi_listener_forget(ep);
	if (ep->state < XPI_EP_FAILING)
		xpi_ep_fail(ep, XPORT_ERR_CLOSED, 0);
	ep->closed = ep->destroyed = true;
	ep->end.event = 0;
	if (xpi_list_linked(&ep->closing))
		xpi_list_del(&ep->closing);
	ep->fast_left = 0;
	xpi_match_forget(ep->x->match, ep, false, xpi_msg_drop);
	ep->x->todo |= XPI_TODO_RELEASE; /* until the next poll it may be looked at */
}

int xpi_ep_destroy_start(struct xport_ep *ep)
{
	struct xport *x = ep->x;
	struct xpi_op *room = xpi_event_room(x);

	xpi_assert_locked(x);
	if (room == NULL)
		return xpi_op_no_memory(ep, "xport_ep_destroy_start");
	ep->gone_room = room;
	xpi_ep_destroy(ep);
	xpi_request_attention(x);
	return XPORT_OK;
}

/* Everything was reaped.  The event holds the endpoint, so its handle does not come again before the event is reaped. */
static void ep_tell_destroyed(struct xport_ep *ep)
{
	if (ep->gone_room == NULL || ep->held || ep->state != XPI_EP_DRAINED || ep->refs > 0)
		return;
	if (xpi_cq_names(&ep->x->cq, ep))
		ep->x->todo |= XPI_TODO_RELEASE;
	else
		xpi_event(ep->x, &ep->gone_room, XPORT_EVENT_DESTROYED, XPORT_OK, ep, ep->context);
}

void xpi_ep_tell_destroyed(struct xport *x)
{
	xpi_assert_locked(x);
	xpi_list_for(l, &x->eps)
		ep_tell_destroyed(xpi_container(l, struct xport_ep, link));
}

/* `named`: also one that the application may look up yet, by what it has reaped. */
static void ep_release(struct xport_ep *ep, bool named)
{
	if (ep->destroyed && xpi_cq_names(&ep->x->cq, ep)) {
		ep->x->todo |= XPI_TODO_RELEASE;
		return;
	}
	ep_tell_destroyed(ep);
	if (!ep->destroyed || ep->held || ep->state != XPI_EP_DRAINED || ep->refs > 0 ||
	    !xpi_list_empty(&ep->keys.rkeys))
		return;
	if (!named && xpi_ep_named(ep)) {
		ep->x->todo |= XPI_TODO_RELEASE;
		return;
	}
	xpi_stats_add(&ep->x->past, ep);
	if (xpi_list_linked(&ep->work))
		xpi_list_del(&ep->work);
	xpi_list_del(&ep->link);
	ep_free(ep);
}

void xpi_ep_release(struct xport_ep *ep)
{
	xpi_assert_locked(ep->x);
	ep_release(ep, false);
}

void xpi_ep_release_all(struct xport *x)
{
	x->todo &= ~(unsigned)XPI_TODO_RELEASE;
	xpi_list_for_safe(l, &x->eps)
		ep_release(xpi_container(l, struct xport_ep, link), true);
}
