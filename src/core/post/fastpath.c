/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/post/fastpath.h"

#include "core/liveness/flow.h"
#include "core/object/completion.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/rkey.h"
#include "core/object/stats.h"
#include "core/object/usdt.h"
#include "core/object/wakeup.h"
#include "core/post/post.h"
#include "core/protocol/rma.h"
#include "core/protocol/tx.h"
#include "core/wire/frame.h"

/* Nothing stands before a new operation, and nothing forbids it. */
static bool clear(struct xport_ep *ep)
{
	return ep->state == XPI_EP_OPEN && !ep->closed && !ep->end.broken && !ep->rx.nak_hold && !ep->rma.busy &&
	       xpi_list_empty(&ep->msg.q) && xpi_tx_lone(ep) &&
	       (ep->tp->caps.am_after_put || ep->rma.native_flushed == ep->rma.native_posted);
}

static uint32_t fast_least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

bool xpi_fast_renew(struct xport_ep *ep)
{
	struct xport *x = ep->x;
	/* What is packed takes one credit together, when the frame leaves. */
	uint32_t credits = ep->tx.open != NULL ? UINT32_MAX : ep->tx.credits - (ep->tx.seq - ep->tx.acked);
	uint32_t window = (ep->msg.window - (ep->msg.used - ep->msg.freed)) / XPI_CHARGE_SMALL;
	uint32_t used = ep->refs + xpi_cq_ready(&x->cq);
	uint32_t depth;

	if (used >= x->settings.queue_depth)
		used = (uint32_t)xpi_stats_in_flight(ep);
	depth = x->settings.queue_depth > used ? x->settings.queue_depth - used : 0;
	xpi_stats_high(ep, used);
	if (x->slow == 0)
		xpi_cq_open(&x->cq);
	/* Receives that are matched meanwhile may make it a few more than the depth. */
	ep->fast_left = clear(ep) ? fast_least(fast_least(credits, window), depth) : 0;
	if (ep->fast_left == 0)
		return false;
	xpi_again_end(x, ep);
	return true;
}

bool xpi_fast_pack_again(struct xport_ep *ep, size_t n)
{
	const struct xpi_cq *q = &ep->x->cq;

	/* Behind completions of the slow path there is none of the short. */
	if (ep->x->slow != 0 || (q->next == q->end && !xpi_cq_empty(q)) || !xpi_fast_renew(ep))
		return false;
	return xpi_tx_fits(ep, n) || (xpi_tx_open(ep, n) && xpi_fast_renew(ep));
}

int xpi_fast_put_network(struct xport_ep *ep, const void *buf, size_t len, struct xport_rkey *k, uint64_t offset,
                         const struct xport_opt *opt)
{
	struct xport *x = ep->x;
	struct xpi_transport *tp = ep->tp;

	xpi_transport_used(tp);
	if (tp->ops->put(tp->be, xpi_ep_be(ep), buf, len, NULL, xpi_rkey_be(k), offset, NULL) != XPORT_OK)
		return xpi_put_long(ep, buf, len, k, offset, opt);
	XPI_PROBE_OP_POSTED(ep, XPORT_OP_PUT, len, opt->context);
	ep->rma.native_posted++;
	ep->rma.n_posted++;
	ep->n.bytes_out += len;
	if ((opt->flags & XPORT_QUIET) != 0)
		return XPORT_OK;
	xpi_fast_completion(ep, XPORT_OP_PUT, opt->context, 0, len);
	x->cq.next++;
	return XPORT_OK;
}

int xpi_fast_unusual(struct xport_ep *ep, int status)
{
	const struct xpi_rec *rec;
	size_t rlen;

	if (status == XPI_PENDING) {
		xpi_flow_count(&ep->tx.seq, ep->tx.seq + 1);
		ep->fast_left--;
		xpi_tx_lone_kept(ep);
		if (ep->tx.lone == NULL)
			ep->fast_left = 0;
		return XPORT_OK;
	}
	xpi_tx_refused(ep, status);
	rec = xpi_tx_first(ep->tx.lone);
	rlen = rec->type == XPI_REC_SEND ? sizeof(struct xpi_rec_send) : sizeof(struct xpi_rec_put);
	if (xpi_tx_repack(ep, rlen + le32toh(rec->len))) {
		ep->n.repacked++;
		return XPORT_OK;
	}
	ep->n.bytes_out -= le32toh(rec->len);
	/* What this frame was to tell the peer, which may wait for it. */
	ep->rx.acked.ack = ep->rx.state.ack - 1;
	ep->rx.ack_now = true;
	return xpi_ep_refused(
		ep, xpi_refuse(ep->x, XPORT_ERR_NO_MEMORY, "xport_put or xport_send", "no memory for another frame"));
}
