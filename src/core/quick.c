/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/quick.h"

#include "core/rma.h"

/* Nothing stands before a new operation, and nothing forbids it. */
static bool clear(struct xport_ep *ep)
{
	return ep->state == XPI_EP_OPEN && !ep->closed && !ep->broken && !ep->nak_hold && !ep->q_busy &&
	       xpi_list_empty(&ep->q_msg) && xpi_tx_lone(ep) &&
	       (ep->x->caps.am_after_put || ep->native_drained == ep->native_handed);
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

bool xpi_quick_renew(struct xport_ep *ep)
{
	struct xport *x = ep->x;
	/* What is packed takes one credit together, when the frame leaves. */
	uint32_t credits = ep->open != NULL ? UINT32_MAX : ep->credits - (ep->tx_seq - ep->tx_acked);
	uint32_t window = (ep->window - (ep->win_used - ep->win_freed)) / XPI_CHARGE_SMALL;
	uint32_t used = ep->refs + xpi_cq_now(&x->cq);
	uint32_t depth;

	if (used >= x->settings.queue_depth)
		used = (uint32_t)xpi_stats_in_flight(ep);
	depth = x->settings.queue_depth > used ? x->settings.queue_depth - used : 0;
	xpi_stats_high(ep, used);
	if (x->slow == 0)
		xpi_cq_open(&x->cq);
	/* Receives that are matched meanwhile may make it a few more than the depth. */
	ep->quick = clear(ep) ? least(least(credits, window), depth) : 0;
	if (ep->quick == 0)
		return false;
	xpi_found_space(x, ep);
	return true;
}

bool xpi_quick_pack_again(struct xport_ep *ep, size_t n)
{
	const struct xpi_cq *q = &ep->x->cq;

	/* Behind completions of the long way there is none of the short. */
	if (ep->x->slow != 0 || (q->next == q->end && !xpi_cq_empty(q)) || !xpi_quick_renew(ep))
		return false;
	return xpi_tx_fits(ep, n) || (xpi_tx_open(ep, n) && xpi_quick_renew(ep));
}

int xpi_quick_put_network(struct xport_ep *ep, const void *buf, size_t len, struct xport_rkey *k, uint64_t offset,
                          const struct xport_opt *opt)
{
	struct xport *x = ep->x;

	if (x->ops->put(x->be, xpi_ep_be(ep), buf, len, NULL, xpi_rkey_be(k), offset, NULL) != XPORT_OK)
		return xpi_put_long(ep, buf, len, k, offset, opt);
	XPI_PROBE_OP_POSTED(ep, XPORT_OP_PUT, len, opt->context);
	ep->native_handed++;
	ep->touched++;
	ep->n.bytes_out += len;
	if ((opt->flags & XPORT_QUIET) != 0)
		return XPORT_OK;
	xpi_quick_completion(ep, XPORT_OP_PUT, opt->context, 0, len);
	x->cq.next++;
	return XPORT_OK;
}

int xpi_quick_unusual(struct xport_ep *ep, int status)
{
	const struct xpi_rec *rec;
	size_t rlen;

	if (status == XPI_PENDING) {
		ep->tx_seq++;
		ep->quick--;
		xpi_tx_lone_kept(ep);
		if (ep->lone == NULL)
			ep->quick = 0;
		return XPORT_OK;
	}
	xpi_tx_refused(ep, status);
	rec = xpi_tx_first(ep->lone);
	rlen = rec->type == XPI_REC_SEND ? sizeof(struct xpi_rec_send) : sizeof(struct xpi_rec_put);
	if (xpi_tx_repack(ep, rlen + le32toh(rec->len))) {
		ep->n.repacked++;
		return XPORT_OK;
	}
	ep->n.bytes_out -= le32toh(rec->len);
	/* What this frame was to tell the peer, which may wait for it. */
	ep->told.ack = ep->seen.ack - 1;
	ep->ack_now = true;
	return xpi_ep_refused(
		ep, xpi_refuse(ep->x, XPORT_ERR_NO_MEMORY, "xport_put or xport_send", "no memory for another frame"));
}
