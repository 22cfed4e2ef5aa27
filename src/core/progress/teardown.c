/* SPDX-License-Identifier: BSD-3-Clause */
/* teardown.c - ending an endpoint: quiesced, then every operation completed, then the event. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/cm/cm.h"
#include "core/liveness/monitor.h"
#include "core/object/early.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/match.h"
#include "core/object/match_peer.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/object/rkey.h"
#include "core/object/stats.h"
#include "core/progress/progress.h"
#include "core/protocol/cma.h"
#include "core/protocol/keys.h"
#include "core/protocol/msg.h"
#include "core/protocol/pump.h"
#include "core/protocol/tx.h"

static void complete_all(struct xport_ep *ep, struct xpi_list *list)
{
	while (!xpi_list_empty(list))
		xpi_op_complete(xpi_container(list->next, struct xpi_op, link), ep->end.reason);
}

/* The network touches nothing any more: everything is completed. */
static void complete_operations(struct xport_ep *ep)
{
	struct xport *x = ep->x;
	struct xpi_early *f;

	while ((f = xpi_early_take(ep)) != NULL)
		free(f);

	xpi_mr_peer_gone(ep);
	xpi_tx_drop(ep);
	complete_all(ep, &ep->reply.q);
	complete_all(ep, &ep->reply.q_nak);
	complete_all(ep, &ep->native);
	complete_all(ep, &ep->unacked);
	complete_all(ep, &ep->placing);
	complete_all(ep, &ep->requests);
	complete_all(ep, &ep->rma.q);
	complete_all(ep, &ep->msg.q);
	while (!xpi_list_empty(&ep->receives)) {
		struct xpi_op *op = xpi_container(ep->receives.next, struct xpi_op, all);

		xpi_match_remove(x->match, op);
		xpi_recv_end(x, op, ep->end.reason);
	}
	xpi_match_forget(x->match, ep, true, xpi_msg_drop);
	xpi_cma_forget(ep);
}

bool xpi_ep_fail_step(struct xport_ep *ep)
{
	struct xport *x = ep->x;

	if (ep->state == XPI_EP_DRAINED)
		return true;
	if (ep->conn != NULL)
		xpi_conn_drop(ep);
	if (ep->prepared && ep->tp->ops->ep_quiesce(ep->tp->be, xpi_ep_be(ep)) != XPORT_OK)
		return false;
	xpi_rkey_orphan(ep);
	if (ep->prepared)
		ep->tp->ops->ep_destroy(ep->tp->be, xpi_ep_be(ep));
	ep->prepared = false;
	complete_operations(ep);
	xpi_peers_left(xpi_match_peers(x->match), ep);
	if (ep->chan.fd >= 0) {
		if (!xpi_ep_is_proper(ep))
			xpi_chan_gone(x->live, &ep->chan);
		xpi_chan_stop(x->live, &ep->chan);
	}
	xpi_stats_log(ep, XPORT_LOG_INFO, "0007");
	ep->state = XPI_EP_DRAINED;
	if (ep->tp != NULL)
		xpi_transport_quit(ep->tp);
	xpi_ep_unindex(ep);
	if (xpi_list_linked(&ep->work))
		xpi_list_del(&ep->work);
	if (ep->ready != NULL && ep->end.event == XPORT_EVENT_LOST && !xpi_ep_named(ep))
		xpi_match_forget(x->match, ep, false, xpi_msg_drop); /* nobody has heard of it, nor will */
	else if (ep->end.event != 0)
		xpi_ep_tell_end(ep);
	return true;
}

static void ep_lost(struct xport_ep *ep, int reason, const char *why)
{
	snprintf(ep->end.why, sizeof(ep->end.why), "%s", why);
	snprintf(ep->x->err.peer, sizeof(ep->x->err.peer), "%s", ep->peer.name);
	xpi_fail(&ep->x->err, reason, 0, NULL, NULL, "%s", why);
	xpi_ep_fail(ep, reason, XPORT_EVENT_LOST);
}

/* The peer closed: once its bye came by the data path, everything before it has; else what is under way gets a few
 * polls more. */
static void peer_closes(struct xport_ep *ep)
{
	if (!ep->rx.bye && !ep->end.broken && ep->end.bye_patience > 0) {
		ep->end.bye_patience--;
		xpi_request_attention(ep->x);
		return;
	}
	ep->end.bye_patience = 0;
	if (ep->state == XPI_EP_CLOSING)
		return;  /* close.c ends it */
	xpi_ep_pump(ep); /* the acknowledgement of its bye */
	snprintf(ep->end.why, sizeof(ep->end.why), "the peer closed the endpoint");
	xpi_ep_fail(ep, XPORT_ERR_PEER_CLOSED, XPORT_EVENT_CLOSED);
}

void xpi_ep_attend(struct xport_ep *ep)
{
	bool broken_long = ep->end.broken && xpi_now_ms() - ep->end.broken_ms > XPI_BROKEN_MS;
	unsigned found = xpi_ep_found(ep);

	xpi_assert_locked(ep->x);
	if (ep->state >= XPI_EP_FAILING || ep->state == XPI_EP_CONNECTING)
		return;
	if (!xpi_list_empty(&ep->reply.q)) /* a back end may not have been able to pack a key */
		xpi_work(ep);
	/* The thread that reads it may have been kept from running as long: that the peer closed may wait there. */
	if (broken_long && found == 0 && ep->chan.started) {
		(void)xpi_live_step(ep->x->live);
		found = xpi_ep_found(ep);
	}
	/* Who closes as well needs to know what the peer has taken: that it is gone is said by the channel alone. */
	if ((found & XPI_CHAN_BYE) || (ep->rx.bye && ep->state != XPI_EP_CLOSING))
		peer_closes(ep);
	else if (found & XPI_CHAN_LOST)
		ep_lost(ep, XPORT_ERR_PEER_LOST, ep->chan.why);
	else if (broken_long)
		ep_lost(ep, ep->end.broken_by != 0 ? ep->end.broken_by : XPORT_ERR_PEER_LOST,
		        ep->end.native_why[0] != '\0' ? ep->end.native_why
		                                      : "the network reports that the connection is broken");
	else if (ep->end.broken)
		xpi_request_attention(ep->x);
}
