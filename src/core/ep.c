/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/ep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/cma.h"
#include "core/conn.h"
#include "core/match.h"
#include "core/msg.h"
#include "core/opq.h"
#include "core/probe.h"
#include "core/rkey.h"
#include "core/rma.h"
#include "core/serve.h"
#include "core/tx.h"

enum { INDEX_BITS = 16 };

/* ---- making ---- */

static int slot_find(struct xport *x, uint32_t *slot)
{
	uint32_t size = x->ep_table_size;
	struct xport_ep **bigger;

	for (uint32_t i = 0; i < size; i++) {
		if (x->ep_table[i] == NULL) {
			*slot = i;
			return XPORT_OK;
		}
	}
	if (size >= 1u << INDEX_BITS)
		return XPORT_ERR_NO_MEMORY;
	bigger = realloc(x->ep_table, (size ? size * 2 : 16) * sizeof(*bigger));
	if (bigger == NULL)
		return XPORT_ERR_NO_MEMORY;
	x->ep_table = bigger;
	x->ep_table_size = size ? size * 2 : 16;
	memset(bigger + size, 0, (x->ep_table_size - size) * sizeof(*bigger));
	*slot = size;
	return XPORT_OK;
}

static void ep_free(struct xport_ep *ep)
{
	xpi_event_unroom(ep->x, &ep->up_room);
	xpi_event_unroom(ep->x, &ep->end_room);
	free(ep->peer_private);
	free(ep);
}

struct xport_ep *xpi_ep_new(struct xport *x, void *context)
{
	size_t fixed = (sizeof(struct xport_ep) + 15) & ~(size_t)15;
	size_t size = (fixed + x->caps.ep_size + 63) & ~(size_t)63;
	struct xport_ep *ep;
	uint32_t slot;

	if (slot_find(x, &slot) != XPORT_OK)
		return NULL;
	ep = aligned_alloc(64, size);
	if (ep == NULL)
		return NULL;
	memset(ep, 0, size);
	ep->x = x;
	ep->up_room = xpi_event_room(x);
	ep->end_room = xpi_event_room(x);
	if (ep->up_room == NULL || ep->end_room == NULL) {
		ep_free(ep);
		return NULL;
	}
	ep->context = context;
	ep->state = XPI_EP_CONNECTING;
	ep->id = (++x->ep_serial << INDEX_BITS) | slot;
	if (getrandom(&ep->session, sizeof(ep->session), 0) != sizeof(ep->session))
		ep->session = (uint32_t)x->incarnation ^ ep->id;
	ep->epoch = x->epoch - 1;
	ep->burst_seq = UINT32_MAX - 2; /* no burst so far */
	ep->window = XPI_WINDOW;
	ep->rx_credits = x->caps.am_credits;
	ep->chan.fd = ep->chan.pidfd = -1;
	ep->bye_patience = 4;
	xpi_list_init(&ep->q_rma);
	xpi_list_init(&ep->q_msg);
	xpi_list_init(&ep->q_reply);
	xpi_list_init(&ep->q_nak);
	xpi_list_init(&ep->unacked);
	xpi_list_init(&ep->proving);
	xpi_list_init(&ep->requests);
	xpi_list_init(&ep->native);
	xpi_list_init(&ep->receives);
	xpi_list_init(&ep->rkeys);
	xpi_list_init(&ep->holds);
	xpi_list_init(&ep->txs);
	x->ep_table[slot] = ep;
	xpi_list_push(&x->eps, &ep->link);
	return ep;
}

struct xport_ep *xpi_ep_find(struct xport *x, uint32_t id, uint32_t session)
{
	uint32_t slot = id & ((1u << INDEX_BITS) - 1);
	struct xport_ep *ep = slot < x->ep_table_size ? x->ep_table[slot] : NULL;

	return ep != NULL && ep->id == id && ep->session == session ? ep : NULL;
}

static uint32_t clamp(uint32_t v, uint32_t lo, uint32_t hi)
{
	return v < lo ? lo : v > hi ? hi : v;
}

bool xpi_ep_set_peer(struct xport_ep *ep, const struct xpi_hello *h)
{
	size_t max = ep->x->caps.am_max;

	if (h->private_len > 0) {
		ep->peer_private = malloc(h->private_len);
		if (ep->peer_private == NULL)
			return false;
		memcpy(ep->peer_private, h->private_data, h->private_len);
		ep->peer_private_len = h->private_len;
	}
	ep->peer_id = h->ep_id;
	ep->peer_session = h->session;
	ep->peer_incarnation = h->incarnation;
	ep->peer_pid = h->pid;
	memcpy(ep->peer_host, h->host, sizeof(ep->peer_host));
	ep->frame_max = clamp(h->frame_max, 1024, (uint32_t)max);
	ep->pack_max = ep->frame_max < XPI_PACKED_MAX ? ep->frame_max : XPI_PACKED_MAX;
	ep->credits = clamp(h->credits, 2, 1u << 16);
	ep->window = clamp(h->window, 1u << 16, XPI_WINDOW);
	ep->requests_max = clamp(h->requests, 1, XPI_REQUESTS);
	return true;
}

int xpi_ep_established(struct xport_ep *ep, int fd, bool same_host, const struct xpi_hello *peer)
{
	struct xport *x = ep->x;
	uint32_t theirs = clamp(peer->peer_timeout_ms, 200, 3600000);
	uint32_t ours = (uint32_t)x->settings.peer_timeout_ms;
	int r;

	ep->chan.bell = x->bell;
	ep->chan.fd = fd;
	ep->chan.timeout_ms = (int)ours;
	ep->chan.beat_ms = (int)(theirs < ours ? theirs : ours) / 4;
	r = xpi_chan_start(x->live, &ep->chan, same_host ? peer->pid : 0, peer->start_time);
	if (r != XPORT_OK) { /* LCOV_EXCL_BR_LINE: by fault alone, as a watch */
		ep->chan.fd = -1;
		return xpi_fail_errno(&x->err, r, NULL, "cannot watch the control socket");
	}
	ep->state = XPI_EP_OPEN;
	XPI_PROBE_CONNECT(ep, ep->peer, ep->peer_pid);
	xpi_log(x->log, XPORT_LOG_INFO, "0001", "%s: connected to process %lld on %s by %s:%s", ep->peer,
	        (long long)ep->peer_pid, ep->peer_host, x->ops->name, x->caps.provider);
	if (ep->announce)
		xpi_event(x, &ep->up_room, XPORT_EVENT_CONNECTED, XPORT_OK, ep, ep->context);
	return XPORT_OK;
}

/* ---- refusing ---- */

int xpi_ep_refused(struct xport_ep *ep, int status)
{
	snprintf(ep->x->err.peer, sizeof(ep->x->err.peer), "%s", ep->peer);
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
		r = xpi_refuse(x, ep->reason, operation, "the endpoint has ended: %s", ep->why);
	return xpi_ep_refused(ep, r);
}

/* ---- failing ---- */

void xpi_ep_broken(struct xport_ep *ep)
{
	if (ep->broken || ep->state >= XPI_EP_FAILING)
		return;
	ep->broken = true;
	ep->quick = 0;
	ep->broken_ms = xpi_now_ms();
	xpi_bell_ring(ep->x);
}

/* Whether somebody closed, rather than that something went wrong. */
static bool is_proper(const struct xport_ep *ep)
{
	return ep->reason == XPORT_ERR_CLOSED || ep->reason == XPORT_ERR_PEER_CLOSED;
}

/*
 * Nobody's yet: xport_connect itself says that it failed, and of a listener's the application has not heard, unless a
 * message or notification has named it.
 */
static bool is_nobodys(const struct xport_ep *ep)
{
	return ep->state == XPI_EP_CONNECTING && !ep->announce && (!ep->accepted || !xpi_ep_named(ep));
}

void xpi_ep_fail(struct xport_ep *ep, int reason, int event)
{
	struct xport *x = ep->x;
	bool nobodys = is_nobodys(ep);

	if (ep->state >= XPI_EP_FAILING)
		return;
	ep->state = XPI_EP_FAILING;
	ep->quick = 0;
	ep->reason = reason;
	ep->end_event = (uint8_t)(nobodys ? 0 : event);
	if (ep->why[0] == '\0')
		snprintf(ep->why, sizeof(ep->why), "%s", xport_strerror(reason));
	xpi_log(x->log, XPORT_LOG_INFO, "0002", "%s: %s: %s", ep->peer, xport_status_name(reason), ep->why);
	if (!is_proper(ep))
		XPI_PROBE_LOST(ep, ep->peer, reason, ep->why);
	/* Now, since the peer may notice the quiescing, and would take it for a failure if it knew nothing else. */
	if (is_proper(ep) && ep->chan.fd >= 0)
		xpi_chan_bye(x->live, &ep->chan, xpi_tx_ack(ep));
	if (xpi_list_linked(&ep->work))
		xpi_list_del(&ep->work);
	xpi_list_push(&x->failing, &ep->work);
	x->failing_ms = xpi_now_ms();
	xpi_bell_ring(x);
	if (nobodys && ep->accepted)
		xpi_ep_destroy(ep);
}

static void complete_all(struct xport_ep *ep, struct xpi_list *list)
{
	while (!xpi_list_empty(list))
		xpi_op_complete(xpi_container(list->next, struct xpi_op, link), ep->reason);
}

/* The network touches nothing any more: everything is completed. */
static void complete_operations(struct xport_ep *ep)
{
	struct xport *x = ep->x;

	xpi_mr_peer_gone(ep);
	xpi_tx_drop(ep);
	complete_all(ep, &ep->q_reply);
	complete_all(ep, &ep->q_nak);
	complete_all(ep, &ep->native);
	complete_all(ep, &ep->unacked);
	complete_all(ep, &ep->proving);
	complete_all(ep, &ep->requests);
	complete_all(ep, &ep->q_rma);
	complete_all(ep, &ep->q_msg);
	while (!xpi_list_empty(&ep->receives)) {
		struct xpi_op *op = xpi_container(ep->receives.next, struct xpi_op, all);

		xpi_match_remove(x->match, op);
		xpi_recv_end(x, op, ep->reason);
	}
	xpi_match_forget(x->match, ep, true, xpi_msg_drop);
	xpi_cma_forget(ep);
}

static void tell_end(struct xport_ep *ep)
{
	xpi_event(ep->x, &ep->end_room, ep->end_event, ep->reason, ep, ep->context);
}

bool xpi_ep_fail_step(struct xport_ep *ep)
{
	struct xport *x = ep->x;

	if (ep->state == XPI_EP_DEAD)
		return true;
	if (ep->conn != NULL)
		xpi_conn_drop(ep);
	if (ep->prepared && x->ops->ep_quiesce(x->be, xpi_ep_be(ep)) != XPORT_OK)
		return false;
	xpi_rkey_orphan(ep);
	if (ep->prepared)
		x->ops->ep_destroy(x->be, xpi_ep_be(ep));
	ep->prepared = false;
	complete_operations(ep);
	if (ep->chan.fd >= 0) {
		if (!is_proper(ep))
			xpi_chan_gone(x->live, &ep->chan);
		xpi_chan_stop(x->live, &ep->chan);
	}
	xpi_stats_log(ep, XPORT_LOG_INFO, "0007");
	ep->state = XPI_EP_DEAD;
	x->ep_table[ep->id & ((1u << INDEX_BITS) - 1)] = NULL;
	if (xpi_list_linked(&ep->work))
		xpi_list_del(&ep->work);
	if (ep->ready != NULL && ep->end_event == XPORT_EVENT_LOST && !xpi_ep_named(ep))
		xpi_match_forget(x->match, ep, false, xpi_msg_drop); /* nobody has heard of it, nor will */
	else if (ep->end_event != 0)
		tell_end(ep);
	return true;
}

bool xpi_ep_named(const struct xport_ep *ep)
{
	return ep->n.posted[XPORT_OP_RECV] > 0 || ep->n.notified > 0;
}

/* ---- what the control channel found ---- */

static void lost(struct xport_ep *ep, int reason, const char *why)
{
	snprintf(ep->why, sizeof(ep->why), "%s", why);
	snprintf(ep->x->err.peer, sizeof(ep->x->err.peer), "%s", ep->peer);
	xpi_fail(&ep->x->err, reason, 0, NULL, NULL, "%s", why);
	xpi_ep_fail(ep, reason, XPORT_EVENT_LOST);
}

/* The peer closed: once its bye came by the data path, everything before it has; else what is under way gets a few
 * polls more. */
static void peer_closes(struct xport_ep *ep)
{
	if (!ep->bye_received && !ep->broken && ep->bye_patience > 0) {
		ep->bye_patience--;
		xpi_bell_ring(ep->x);
		return;
	}
	ep->bye_patience = 0;
	if (ep->state == XPI_EP_CLOSING)
		return; /* xpi_ep_close sees to it */
	xpi_ep_pump(ep); /* the acknowledgement of its bye */
	snprintf(ep->why, sizeof(ep->why), "the peer closed the endpoint");
	xpi_ep_fail(ep, XPORT_ERR_PEER_CLOSED, XPORT_EVENT_CLOSED);
}

/* What the control channel has told so far. */
static unsigned found_by_channel(const struct xport_ep *ep)
{
	return ep->chan.started ? atomic_load_explicit(&ep->chan.found, memory_order_acquire) : 0;
}

void xpi_ep_attend(struct xport_ep *ep)
{
	bool broken_long = ep->broken && xpi_now_ms() - ep->broken_ms > XPI_BROKEN_MS;
	unsigned found = found_by_channel(ep);

	if (ep->state >= XPI_EP_FAILING || ep->state == XPI_EP_CONNECTING)
		return;
	/* The thread that reads it may have been kept from running as long: that the peer closed may wait there. */
	if (broken_long && found == 0 && ep->chan.started) {
		(void)xpi_live_step(ep->x->live);
		found = found_by_channel(ep);
	}
	/* Who closes as well needs to know what the peer has taken: that it is gone is said by the channel alone. */
	if ((found & XPI_CHAN_BYE) || (ep->bye_received && ep->state != XPI_EP_CLOSING))
		peer_closes(ep);
	else if (found & XPI_CHAN_LOST)
		lost(ep, XPORT_ERR_PEER_LOST, ep->chan.why);
	else if (broken_long)
		lost(ep, ep->broken_by != 0 ? ep->broken_by : XPORT_ERR_PEER_LOST,
		     ep->native_why[0] != '\0' ? ep->native_why : "the network reports that the connection is broken");
	else if (ep->broken)
		xpi_bell_ring(ep->x);
}

/* ---- closing ---- */

/* Whether all that was posted has ended. */
static bool ended(const struct xport_ep *ep)
{
	return xpi_list_empty(&ep->q_rma) && xpi_list_empty(&ep->q_msg) && xpi_list_empty(&ep->unacked) &&
	       xpi_list_empty(&ep->proving) && xpi_list_empty(&ep->native) && xpi_list_empty(&ep->requests);
}

/* And what the peer asked for has left. */
static bool settled(const struct xport_ep *ep)
{
	return ended(ep) && ep->open == NULL && xpi_list_empty(&ep->q_reply);
}

/* Polls until `done` or the deadline; false at the deadline. */
static bool wait_for(struct xport_ep *ep, bool (*done)(const struct xport_ep *), int64_t deadline)
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

static bool may_say_bye(const struct xport_ep *ep)
{
	return ep->state >= XPI_EP_FAILING || ep->bye_patience == 0 || settled(ep);
}

/* Whether the peer has taken all that was posted; `left`: it closed, and told what it had taken. */
static bool has_all(const struct xport_ep *ep, bool left)
{
	uint32_t ack = ep->tx_acked;

	if (left)
		ack = xpi_chan_bye_ack(&ep->chan, ack);
	return ended(ep) && xpi_seq_reached(ack, ep->last_seq) && xpi_seq_reached(ep->tx_seq, ack);
}

/* A peer that is lost has heard nothing: the next poll ends the endpoint by that. */
static bool bye_arrived(const struct xport_ep *ep)
{
	return ep->state >= XPI_EP_FAILING || (found_by_channel(ep) & XPI_CHAN_BYE) ||
	       (ep->bye_received && has_all(ep, false)) ||
	       (ep->bye_sent && xpi_seq_reached(ep->tx_acked, ep->bye_seq) && ep->open == NULL);
}

static bool is_dead(const struct xport_ep *ep)
{
	return ep->state == XPI_EP_DEAD;
}

/* Lets everything posted finish, then tells the peer that nothing follows; false if that did not end in time. */
static bool say_goodbye(struct xport_ep *ep, int64_t deadline)
{
	struct xpi_op *bye;
	bool in_time;

	ep->state = XPI_EP_CLOSING;
	ep->quick = 0;
	in_time = wait_for(ep, may_say_bye, deadline);
	ep->last_seq = xpi_tx_seq(ep);
	if (!settled(ep) || ep->state >= XPI_EP_FAILING)
		return in_time;
	bye = xpi_op_get(ep->x, ep, XPI_OP_BYE);
	if (bye == NULL)
		return false;
	bye->after_native = UINT64_MAX;
	xpi_list_push(&ep->q_reply, &bye->link);
	xpi_work(ep);
	return wait_for(ep, bye_arrived, deadline);
}

static int ep_close(struct xport_ep *ep, int timeout_ms)
{
	int64_t deadline = timeout_ms < 0 ? -1 : xpi_now_ms() + timeout_ms;
	bool in_time = true, left;
	int r;

	ep->closed = true;
	ep->quick = 0;
	if (ep->state == XPI_EP_OPEN && timeout_ms != 0)
		in_time = say_goodbye(ep, deadline);
	r = ep->state >= XPI_EP_FAILING ? ep->reason : in_time ? XPORT_OK : XPORT_ERR_TIMEOUT;
	left = (found_by_channel(ep) & XPI_CHAN_BYE) != 0;
	if (ep->state == XPI_EP_CLOSING && (left || ep->bye_received) && !has_all(ep, left))
		r = XPORT_ERR_PEER_CLOSED;
	if (ep->state < XPI_EP_FAILING)
		snprintf(ep->why, sizeof(ep->why), "%s",
		         r == XPORT_ERR_PEER_CLOSED
		                 ? "the peer closed the endpoint before it had taken all that was posted"
		                 : "closed here");
	xpi_ep_fail(ep, r == XPORT_ERR_PEER_CLOSED ? r : XPORT_ERR_CLOSED, 0);
	wait_for(ep, is_dead, -1);
	if (r != XPORT_OK)
		return xpi_ep_refused(ep, xpi_refuse(ep->x, r, "xport_ep_close", "%s",
		                                     r == XPORT_ERR_TIMEOUT
		                                             ? "not everything posted ended within the time limit"
		                                             : ep->why));
	return XPORT_OK;
}

int xpi_ep_close(struct xport_ep *ep, int timeout_ms)
{
	int r;

	if (ep->closed)
		return xpi_ep_refuse(ep, "xport_ep_close");
	ep->held = true;
	r = ep_close(ep, timeout_ms);
	ep->held = false;
	if (ep->destroyed) /* by a thread that has reaped its end meanwhile */
		ep->x->todo |= XPI_TODO_RELEASE;
	return r;
}

void xpi_ep_destroy(struct xport_ep *ep)
{
	if (ep->destroyed)
		return;
	xpi_listener_forget(ep);
	if (ep->state < XPI_EP_FAILING)
		xpi_ep_fail(ep, XPORT_ERR_CLOSED, 0);
	ep->closed = ep->destroyed = true;
	ep->end_event = 0;
	ep->quick = 0;
	xpi_match_forget(ep->x->match, ep, false, xpi_msg_drop);
	ep->x->todo |= XPI_TODO_RELEASE; /* until the next poll it may be looked at */
}

void xpi_ep_hand_over(struct xport_ep *ep, int reason)
{
	xpi_list_for(l, &ep->x->cq.later) {
		struct xpi_op *op = xpi_container(l, struct xpi_op, link);

		if (op->kind == XPORT_EVENT_NOTIFY && op->ep == ep)
			op->context = NULL;
	}
	ep->context = NULL;
	xpi_ep_fail(ep, reason, 0);
	ep->end_event = XPORT_EVENT_LOST;
	if (ep->state != XPI_EP_DEAD)
		return;
	tell_end(ep);
	xpi_signal(ep->x);
}

/* `named`: also one that the application may look up yet, by what it has reaped. */
static void release(struct xport_ep *ep, bool named)
{
	if (!ep->destroyed || ep->held || ep->state != XPI_EP_DEAD || ep->refs > 0 || !xpi_list_empty(&ep->rkeys))
		return;
	if ((!named && xpi_ep_named(ep)) || xpi_cq_names(&ep->x->cq, ep)) {
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
	release(ep, false);
}

void xpi_ep_release_all(struct xport *x)
{
	x->todo &= ~(unsigned)XPI_TODO_RELEASE;
	xpi_list_for_safe(l, &x->eps)
		release(xpi_container(l, struct xport_ep, link), true);
}
