/* SPDX-License-Identifier: BSD-3-Clause */
/* dump.c - looking at what is in flight: for people, and for XPORT_OP_TIMEOUT. */
#include "core/progress/dump.h"

#include <stdio.h>

#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/op.h"
#include "core/object/rkey.h"
#include "core/object/set.h"
#include "core/object/stats.h"
#include "core/progress/open.h"

/* The queues of an endpoint in which operations of the application wait. */
static struct xpi_list *queue(struct xport_ep *ep, unsigned i, const char **name)
{
	const struct {
		const char *name;
		struct xpi_list *list;
	} q[] = {
		{"waiting to be sent", &ep->rma.q},
		{"message waiting to be sent", &ep->msg.q},
		{"reply waiting to be sent", &ep->reply.q},
		{"waiting for an acknowledgement", &ep->unacked},
		{"waiting for proof of placement", &ep->placing},
		{"waiting for a reply", &ep->requests},
		{"posted to the back end", &ep->native},
	};

	if (i >= sizeof(q) / sizeof(q[0]))
		return NULL;
	*name = q[i].name;
	return q[i].list;
}

static const char *kind_name(unsigned kind)
{
	static const char *const names[] = {
		[XPORT_OP_PUT] = "put",       [XPORT_OP_GET] = "get",   [XPORT_OP_PUT_NOTIFY] = "put_notify",
		[XPORT_OP_ATOMIC] = "atomic", [XPORT_OP_SEND] = "send", [XPORT_OP_RECV] = "recv",
		[XPORT_OP_FLUSH] = "flush",
	};

	return kind < sizeof(names) / sizeof(names[0]) && names[kind] != NULL ? names[kind] : "internal";
}

/* The path of an operation's data, as far as it is decided; empty for receives and flushes. */
static const char *op_path_name(const struct xpi_op *op)
{
	if (xpi_op_what(op) > XPORT_OP_SEND)
		return "";
	if (op->rkey == NULL)
		return op->offer != 0 && op->offer != XPI_OFFER_NEVER ? ", by CMA" : ", by message";
	return op->rkey->direct != NULL ? ", by copy" : ", by the network";
}

static void dump_ep(struct xport *x, struct xport_ep *ep)
{
	static const char *const states[] = {[XPI_EP_CONNECTING] = "connecting",
	                                     [XPI_EP_OPEN] = "open",
	                                     [XPI_EP_CLOSING] = "closing",
	                                     [XPI_EP_FAILING] = "failing",
	                                     [XPI_EP_DRAINED] = "dead"};
	const char *name;
	struct xpi_list *q;

	xpi_log(x->log, XPORT_LOG_ERROR, "0020",
	        "endpoint %s: %s; frames sent %u, acknowledged %u, credits %u; received %u; window %u of %u used; %u "
	        "operations not reaped%s",
	        ep->peer.name, states[ep->state], ep->tx.seq, ep->tx.acked, ep->tx.credits, ep->rx.state.ack,
	        ep->msg.used - ep->msg.freed, ep->msg.window, ep->refs, ep->end.broken ? "; broken" : "");
	xpi_stats_log(ep, XPORT_LOG_ERROR, "0024");
	for (unsigned i = 0; (q = queue(ep, i, &name)) != NULL; i++) {
		unsigned n = 0;

		xpi_list_for(l, q) {
			struct xpi_op *op = xpi_container(l, struct xpi_op, link);

			if (n++ < 16)
				xpi_log(x->log, XPORT_LOG_ERROR, "0021",
				        "  %s (%u) of %llu bytes%s, %llu done, %u with the back end: %s",
				        kind_name(xpi_op_what(op)), op->kind, (unsigned long long)op->len,
				        op_path_name(op), (unsigned long long)op->done, op->pending, name);
		}
		if (n > 16)
			xpi_log(x->log, XPORT_LOG_ERROR, "0022", "  and %u more: %s", n - 16, name);
	}
}

static void dump_transports(struct xport *x)
{
	xpi_list_for(l, &x->transports) {
		const struct xpi_transport *tp = xpi_container(l, struct xpi_transport, link);

		xpi_log(x->log, XPORT_LOG_ERROR, "0029", "  %s:%s: %u endpoints%s", tp->ops->name, tp->caps.provider,
		        tp->neps, tp->broke != XPORT_OK ? ", broken" : "");
	}
}

void xpi_dump(struct xport *x)
{
	xpi_assert_locked(x);
	xpi_log(x->log, XPORT_LOG_ERROR, "0023",
	        "instance of %s:%s: %u receives posted, attention %u, descriptor state %d", x->tp->ops->name,
	        x->tp->caps.provider, x->nreceives, atomic_load(&x->attention), (int)x->fd_state);
	if (xpi_several(x))
		dump_transports(x);
	xpi_list_for(l, &x->eps)
		dump_ep(x, xpi_container(l, struct xport_ep, link));
}

/* ---- XPORT_OP_TIMEOUT ---- */

/*
 * Operations carry the tick of their posting, the number of the last look before it: no clock is read on the data path.  Their
 * age is taken from the first look after it, so that they never seem older than they are, and younger by a look at most.
 */
static bool too_old(struct xport *x, struct xport_ep *ep, int64_t now)
{
	const char *name;
	struct xpi_list *q;

	for (unsigned i = 0; (q = queue(ep, i, &name)) != NULL; i++) {
		xpi_list_for(l, q) {
			struct xpi_op *op = xpi_container(l, struct xpi_op, link);
			uint32_t looks = x->tick - op->stamp; /* since it was posted, this one counted */

			if (xpi_op_what(op) > XPORT_OP_FLUSH || looks == 0)
				continue;
			if (looks > XPI_LOOKS ||
			    now - x->look_ms[(op->stamp + 1) % XPI_LOOKS] > x->settings.op_timeout_ms)
				return true;
		}
	}
	return false;
}

void xpi_op_timeouts(struct xport *x)
{
	int64_t now = xpi_now_ms();

	xpi_assert_locked(x);
	/* At least a millisecond apart, or a limit of some would be over after XPI_LOOKS of them. */
	if (now - x->look_ms[x->tick % XPI_LOOKS] <= x->settings.op_timeout_ms / 4)
		return;
	x->look_ms[++x->tick % XPI_LOOKS] = now;
	xpi_list_for_safe(l, &x->eps) {
		struct xport_ep *ep = xpi_container(l, struct xport_ep, link);

		if ((ep->state == XPI_EP_OPEN || ep->state == XPI_EP_CLOSING) && too_old(x, ep, now)) {
			snprintf(ep->end.why, sizeof(ep->end.why), "an operation took longer than %d ms",
			         x->settings.op_timeout_ms);
			xpi_ep_fail(ep, XPORT_ERR_TIMEOUT, XPORT_EVENT_LOST);
		}
	}
}
