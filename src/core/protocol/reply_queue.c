/* SPDX-License-Identifier: BSD-3-Clause */
/* reply_queue.c - what is owed to a peer: replies and failures, queued and counted. */
#include "core/protocol/reply_queue.h"

#include <string.h>

#include "base/status.h"
#include "core/object/ep.h"
#include "core/object/locked.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/wire/frame.h"

/* What a peer that takes its answers, packs its frames as we do, and keeps to its credits, can be owed several times over. */
static uint32_t owed_max(const struct xport_ep *ep)
{
	size_t packed = ep->tp->caps.am_max < XPI_PACKED_MAX ? ep->tp->caps.am_max : XPI_PACKED_MAX;

	return 4 * ep->tp->credits * (uint32_t)(packed / sizeof(struct xpi_rec_key));
}

/* An answer to be sent.  Out of memory, or more owed than a peer may ask for, ends the endpoint: NULL. */
struct xpi_op *xpi_reply_new(struct xport_ep *ep, unsigned kind)
{
	struct xpi_op *op;

	xpi_assert_locked(ep->x);
	if (xpi_op_owed(kind) && ep->reply.owed >= owed_max(ep)) {
		xpi_log(ep->x->log, XPORT_LOG_WARN, "0015", "%s: the peer does not read its replies: %u are queued",
		        ep->peer.name, (unsigned)ep->reply.owed);
		xpi_ep_fail(ep, XPORT_ERR_PROTOCOL, XPORT_EVENT_LOST);
		return NULL;
	}
	op = xpi_op_get(ep->x, ep, kind);
	if (op == NULL) {
		xpi_ep_fail(ep, XPORT_ERR_NO_MEMORY, XPORT_EVENT_LOST);
		return NULL;
	}
	ep->reply.owed += xpi_op_owed(kind);
	xpi_work(ep);
	return op;
}

/* Tells the peer, before the frame that asked is acknowledged. */
void xpi_reply_refuse(struct xport_ep *ep, uint32_t name, int status)
{
	struct xpi_op *op = xpi_reply_new(ep, XPI_OP_NAK);

	if (op == NULL)
		return;
	xpi_log(ep->x->log, XPORT_LOG_INFO, "0013", "%s: refused an access: %s", ep->peer.name,
	        xpi_status_name(status));
	if (!ep->rx.nak_hold) {
		ep->rx.nak_hold = true;
		ep->fast_left = 0;
		ep->reply.nak_seq = ep->rx.state.ack - 1;
	}
	op->region = name;
	op->status = status;
	xpi_list_push(&ep->reply.q_nak, &op->link);
}

void xpi_tell_key(struct xport_ep *ep, unsigned kind, uint64_t region)
{
	struct xpi_op *op = xpi_reply_new(ep, kind);

	if (op == NULL)
		return;
	op->region = region;
	op->after_native = UINT64_MAX;
	xpi_list_push(&ep->reply.q, &op->link);
}

bool xpi_lend_key(struct xport_ep *ep, uint64_t region)
{
	struct xpi_op *op = xpi_op_get(ep->x, ep, XPI_OP_LEND);

	if (op == NULL)
		return false;
	op->region = region;
	xpi_list_push(&ep->reply.q, &op->link);
	xpi_work(ep);
	return true;
}
