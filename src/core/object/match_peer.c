/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/object/match_peer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "core/liveness/monitor.h"
#include "core/object/ep.h"
#include "core/object/locked.h"
#include "core/object/op.h"

struct xpi_peer {
	struct xpi_list link, doubt; /* in `all`; in `doubt`, if it may be gone */
	struct xpi_list receives;    /* struct xpi_op, by link, in the order posted */
	struct xport *x;
	uint64_t incarnation;
	unsigned open;            /* endpoints to it that are connected: their `waited` leads here */
	struct xpi_watch process; /* rings when its process ends; fd -1: unknown */
	bool replaced;            /* another instance was found at its address since */
	char name[64];            /* where it was reached last; "": nowhere */
};

static void peer_free(struct xpi_peer *p)
{
	xpi_list_del(&p->link);
	if (xpi_list_linked(&p->doubt))
		xpi_list_del(&p->doubt);
	xpi_watch_close(p->x->live, &p->process);
	free(p);
}

/* Nothing waits for it, and no endpoint leads to it. */
static void peer_release(struct xpi_peer *p)
{
	if (p->open == 0 && xpi_list_empty(&p->receives))
		peer_free(p);
}

void xpi_peers_init(struct xpi_peers *peers)
{
	xpi_list_init(&peers->all);
	xpi_list_init(&peers->doubt);
}

void xpi_peers_close(struct xpi_peers *peers, void (*close)(const struct xpi_list *receives))
{
	xpi_list_for_safe(l, &peers->all) {
		struct xpi_peer *p = xpi_container(l, struct xpi_peer, link);

		close(&p->receives);
		peer_free(p);
	}
}

static void peer_attach(struct xpi_peer *p, struct xport_ep *ep)
{
	ep->waited = p;
	p->open++;
	p->replaced = false;
	if (!ep->accepted)
		memcpy(p->name, ep->peer.name, sizeof(p->name));
}

static struct xpi_peer *peer_new(struct xpi_peers *peers, const struct xport_ep *source)
{
	struct xpi_peer *p = calloc(1, sizeof(*p));

	if (p == NULL)
		return NULL;
	p->x = source->x;
	p->incarnation = source->peer.incarnation;
	p->process.fd = -1;
	xpi_list_init(&p->receives);
	xpi_list_push(&peers->all, &p->link);
	xpi_list_for(l, &p->x->eps) {
		struct xport_ep *ep = xpi_container(l, struct xport_ep, link);

		if (ep->chan.started && ep->peer.incarnation == p->incarnation)
			peer_attach(p, ep);
	}
	return p;
}

bool xpi_peers_post(struct xpi_peers *peers, struct xpi_op *op, const struct xport_ep *ep)
{
	struct xpi_peer *p = ep->waited;

	xpi_assert_locked(ep->x);
	if (p == NULL)
		p = peer_new(peers, ep);
	if (p == NULL)
		return false;
	op->from = p;
	xpi_list_push(&p->receives, &op->link);
	return true;
}

struct xpi_op *xpi_peers_first(const struct xport_ep *ep, uint64_t tag)
{
	const struct xpi_peer *p = ep->waited;

	if (p == NULL)
		return NULL;
	xpi_list_for(l, &p->receives) {
		struct xpi_op *op = xpi_container(l, struct xpi_op, link);

		if (((tag ^ op->tag) & op->mask) == 0)
			return op;
	}
	return NULL;
}

void xpi_peers_remove(struct xpi_op *op)
{
	struct xpi_peer *p = op->from;

	op->peer = p->incarnation;
	peer_release(p);
}

static void peer_doubt(struct xpi_peers *peers, struct xpi_peer *p)
{
	if (!xpi_list_linked(&p->doubt))
		xpi_list_push(&peers->doubt, &p->doubt);
}

/* Learns from the endpoint's channel when the process ends. */
static void peer_watch(struct xpi_peers *peers, struct xpi_peer *p, struct xport_ep *ep)
{
	p->process = (struct xpi_watch){.wake_flag = ep->x->wake_flag,
	                                .fd = xpi_chan_take_process(ep->x->live, &ep->chan),
	                                .events = EPOLLIN,
	                                .deadline_ms = -1};
	if (p->process.fd < 0)
		return;
	if (xpi_watch_add(ep->x->live, &p->process) == XPORT_OK)
		peer_doubt(peers, p);
	else
		xpi_watch_close(ep->x->live, &p->process); /* it goes without */
}

void xpi_peers_left(struct xpi_peers *peers, struct xport_ep *ep)
{
	struct xpi_peer *p = ep->waited;

	xpi_assert_locked(ep->x);
	if (p == NULL)
		return;
	ep->waited = NULL;
	p->open--;
	if (p->process.fd < 0 && !xpi_list_empty(&p->receives))
		peer_watch(peers, p, ep);
	peer_release(p);
}

void xpi_peers_reached(struct xpi_peers *peers, struct xport_ep *ep)
{
	xpi_assert_locked(ep->x);
	xpi_list_for(l, &peers->all) {
		struct xpi_peer *p = xpi_container(l, struct xpi_peer, link);

		if (p->incarnation == ep->peer.incarnation) {
			peer_attach(p, ep);
		} else if (!ep->accepted && strcmp(p->name, ep->peer.name) == 0) {
			p->replaced = true;
			p->name[0] = '\0';
			peer_doubt(peers, p);
		}
	}
}

/* While an endpoint is open its messages come: whatever else is known, the peer is not gone. */
static bool peer_is_gone(const struct xpi_peer *p)
{
	return p->open == 0 && (p->replaced || atomic_load(&p->process.rang));
}

struct xpi_op *xpi_peers_gone(struct xpi_peers *peers)
{
	xpi_list_for(l, &peers->doubt) {
		struct xpi_peer *p = xpi_container(l, struct xpi_peer, doubt);

		if (!peer_is_gone(p))
			continue;
		/* All its receives end, one call each: let the next call find it at once. */
		xpi_list_del(&p->doubt);
		xpi_list_push_front(&peers->doubt, &p->doubt);
		return xpi_container(p->receives.next, struct xpi_op, link);
	}
	return NULL;
}
