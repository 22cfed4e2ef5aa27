/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/object/stats.h"

#include <string.h>

#include "base/grow.h"
#include "core/object/completion.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/latency.h"
#include "core/object/match.h"

_Static_assert(XPI_STATUSES <= sizeof(((struct xport_counters *)NULL)->errors) / sizeof(uint64_t),
               "xport_counters.errors has room for each status");

void xpi_stats_error(struct xport_ep *ep, int status)
{
	if (status < 0 && -status < XPI_STATUSES)
		ep->n.errors[-status]++;
}

void xpi_stats_high(struct xport_ep *ep, uint32_t in_flight)
{
	uint32_t depth = ep->x->settings.queue_depth;

	if (in_flight > ep->n.high)
		ep->n.high = in_flight;
	ep->limit = ep->n.high < depth ? (uint32_t)ep->n.high : depth;
}

uint64_t xpi_stats_in_flight(const struct xport_ep *ep)
{
	const struct xpi_cq *q = &ep->x->cq;
	uint64_t n = ep->refs;

	for (const struct xport_completion *c = q->first; c != q->next; c++)
		n += c->ep == ep;
	return n;
}

static uint64_t frames_out(const struct xport_ep *ep)
{
	return ep->n.acked + (ep->tx.seq - ep->tx.acked);
}

/* All operations that went the fast path by message, each alone in its frame or repacked. */
static uint64_t fast_messages(const struct xport_ep *ep)
{
	return frames_out(ep) - (ep->n.emitted - ep->n.control_out) + ep->n.repacked;
}

static void add_paths(struct xport_counters *to, const struct xport_ep *ep)
{
	const struct xpi_counts *n = &ep->n;
	uint64_t joined_puts = n->joined - n->joined_sends;
	uint64_t fast_puts = ep->rma.n_posted - n->changes;
	uint64_t fast_native = ep->rma.native_posted - n->slow_native;

	to->by_copy += n->slow_copies + n->fast_gets + n->fast_atomics +
	               (fast_puts - n->fast_puts - joined_puts - fast_native);
	to->by_network += ep->rma.native_posted + n->native_gets;
	to->by_message += n->slow_messages + fast_messages(ep) + n->joined;
	to->by_cma += n->cma;
	to->coalesced += n->coalesced;
}

void xpi_stats_add(struct xport_counters *to, const struct xport_ep *ep)
{
	const struct xpi_counts *n = &ep->n;
	uint64_t now = xpi_stats_in_flight(ep);
	uint64_t high = n->high > now ? n->high : now;

	to->puts += n->posted[XPORT_OP_PUT] + (ep->rma.n_posted - n->changes);
	to->gets += n->posted[XPORT_OP_GET] + n->fast_gets;
	to->put_notifies += n->posted[XPORT_OP_PUT_NOTIFY];
	to->atomics += n->posted[XPORT_OP_ATOMIC] + n->fast_atomics;
	to->sends += n->posted[XPORT_OP_SEND] + n->joined_sends + (fast_messages(ep) - n->fast_puts);
	to->flushes += n->posted[XPORT_OP_FLUSH];
	to->receives += n->posted[XPORT_OP_RECV];
	to->notifications += n->notified;
	to->bytes_out += n->bytes_out;
	to->bytes_in += n->bytes_in;
	to->again += n->again;
	to->in_flight += now;
	to->frames_out += frames_out(ep);
	to->frames_in += n->received;
	to->frames_acked += n->acked;
	to->acks_out += n->control_out;
	to->acks_in += n->control_in;
	for (int i = 1; i < XPI_STATUSES; i++)
		to->errors[i] += n->errors[i];
	add_paths(to, ep);
	xpi_latency_add(to, ep);
	/* One at a time, complete at once and reaped, is seen by nobody. */
	if (high == 0 && (ep->rma.n_posted != 0 || frames_out(ep) != 0 || n->fast_gets != 0))
		high = 1;
	if (to->in_flight_max < high)
		to->in_flight_max = high;
}

void xpi_stats(const struct xport *x, const struct xport_ep *ep, struct xport_counters *out)
{
	size_t size = out->size;
	struct xport_counters all = {0};

	if (ep != NULL) {
		xpi_stats_add(&all, ep);
		xpi_list_for(l, &ep->receives)
			all.posted_receives++;
	} else {
		all = x->past;
		xpi_list_for(l, &x->eps)
			xpi_stats_add(&all, xpi_container(l, struct xport_ep, link));
		all.posted_receives = x->nreceives;
	}
	all.unmatched = xpi_match_waiting(x->match, ep);
	all.size = size;
	xpi_grow_out(out, size, &all, sizeof(all));
}

void xpi_stats_log(const struct xport_ep *ep, int level, const char *id)
{
	struct xport_counters c = {0};
	unsigned long long failed = 0;

	if (!xpi_log_on(ep->x->log, level))
		return;
	xpi_stats_add(&c, ep);
	for (int i = 1; i < XPI_STATUSES; i++)
		failed += c.errors[i];
	xpi_log(ep->x->log, level, id,
	        "%s: %llu puts, %llu gets, %llu put_notifies, %llu atomics, %llu sends, %llu flushes; %llu by copy, "
	        "%llu by the network, %llu by message (%llu coalesced), %llu by CMA; %llu messages and %llu "
	        "notifications received; %llu bytes out, %llu in; %llu failed, %llu times AGAIN, at most %llu in "
	        "flight; frames %llu out, %llu in",
	        ep->peer.name, (unsigned long long)c.puts, (unsigned long long)c.gets,
	        (unsigned long long)c.put_notifies, (unsigned long long)c.atomics, (unsigned long long)c.sends,
	        (unsigned long long)c.flushes, (unsigned long long)c.by_copy, (unsigned long long)c.by_network,
	        (unsigned long long)c.by_message, (unsigned long long)c.coalesced, (unsigned long long)c.by_cma,
	        (unsigned long long)c.receives, (unsigned long long)c.notifications, (unsigned long long)c.bytes_out,
	        (unsigned long long)c.bytes_in, failed, (unsigned long long)c.again,
	        (unsigned long long)c.in_flight_max, (unsigned long long)c.frames_out, (unsigned long long)c.frames_in);
}
