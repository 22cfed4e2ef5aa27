/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shm_poll.c - receiving, and waiting.
 *
 * A poll checks the SHM_HOT most recently used endpoints, and SHM_COLD of the others in rotation.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>

#include "shm.h"

enum { BATCH = SHM_CREDITS + 4, POLL_MAX = 64, EVENTS = 16 };

/* Where an endpoint that is no longer read finds nothing. */
static const struct shm_slot nothing;

/* ---- the endpoints ---- */

static void eps_place(struct xpi_be *be, struct shm_ep *ep, uint32_t index)
{
	be->eps[index] = ep;
	ep->index = index;
}

static void eps_swap(struct xpi_be *be, uint32_t a, uint32_t b)
{
	struct shm_ep *was = be->eps[a];

	eps_place(be, be->eps[b], a);
	eps_place(be, was, b);
}

/* Makes it one of those that every poll checks. */
static void ep_warm(struct xpi_be *be, struct shm_ep *ep)
{
	if (ep->index < be->nhot)
		return;
	if (be->nhot < SHM_HOT) {
		eps_swap(be, ep->index, be->nhot++);
		return;
	}
	be->coolest = (be->coolest + 1) % SHM_HOT;
	eps_swap(be, ep->index, be->coolest);
}

void shm_poll_add(struct xpi_be *be, struct shm_ep *ep)
{
	eps_place(be, ep, be->neps++);
	ep_warm(be, ep);
}

void shm_poll_remove(struct xpi_be *be, struct shm_ep *ep)
{
	if (ep->index == UINT32_MAX)
		return;
	if (ep->index < be->nhot)
		eps_swap(be, ep->index, --be->nhot);
	eps_swap(be, ep->index, --be->neps);
	ep->index = UINT32_MAX;
	if (ep->bell_due)
		be->bells_due--;
	ep->bell_due = false;
}

/* ---- receiving ---- */

void shm_break(struct shm_ep *ep, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(ep->why, sizeof(ep->why), fmt, args);
	va_end(args);
	ep->broken = true;
	ep->rx.next = &nothing;
}

/* Its bells cannot wake us any more. */
static void ep_failed(struct xpi_be *be, struct shm_ep *ep)
{
	(void)epoll_ctl(be->epoll, EPOLL_CTL_DEL, ep->sock, NULL);
	ep->watched = false;
	be->up->ep_failed(be->core, ep->core_ep, EPROTO, ep->why);
}

void shm_poll_wake(struct shm_ep *ep)
{
	uint32_t *sleep = &ep->tx.own->sleep;

	if ((*sleep & 1) != 0)
		__atomic_store_n(sleep, *sleep + 1, __ATOMIC_RELAXED);
}

static __attribute__((noinline)) int ep_receive(struct xpi_be *be, struct shm_ep *ep)
{
	int n = 0, len = 0;
	struct shm_frame f;

	shm_poll_wake(ep);
	while (n < BATCH && (len = shm_ring_peek(&ep->rx, be->frame, &f)) > 0) {
		n++;
		be->up->am_recv(be->core, ep->core_ep, be->frame, f.hlen, f.data, f.dlen);
		if (!ep->broken) /* by a send of the core's meanwhile */
			shm_ring_pop(&ep->rx, &f);
	}
	if (len == SHM_RING_BROKEN) {
		shm_break(ep, "the peer wrote an invalid record (%" PRIu32 " bytes, slot %td) into shared memory",
		          shm_rx_head(ep->rx.next), ep->rx.next - ep->rx.peer->ring);
		ep_failed(be, ep);
	}
	ep_warm(be, ep);
	return n;
}

static inline bool ep_has_frame(const struct shm_ep *ep)
{
	return shm_rx_head(ep->rx.next) != 0;
}

static void bells_ring(struct xpi_be *be)
{
	for (uint32_t i = 0; i < be->neps; i++) {
		struct shm_ep *ep = be->eps[i];

		if (!ep->bell_due)
			continue;
		ep->bell_due = false;
		be->bells_due--;
		shm_bell_ring(be, ep, ep->rung);
	}
}

int shm_poll(struct xpi_be *be)
{
	uint32_t nhot = be->nhot;
	int n = 0;

	/* The next poll goes on where this one stops. */
	for (uint32_t i = 0; i < nhot && n < POLL_MAX; i++) {
		be->turn = be->turn + 1 < nhot ? be->turn + 1 : 0;
		if (ep_has_frame(be->eps[be->turn]))
			n += ep_receive(be, be->eps[be->turn]);
	}
	for (uint32_t i = nhot, left = SHM_COLD; i < be->neps && left > 0; i++, left--) {
		be->cold = be->cold + 1 < be->neps && be->cold + 1 >= nhot ? be->cold + 1 : nhot;
		if (ep_has_frame(be->eps[be->cold]))
			n += ep_receive(be, be->eps[be->cold]);
	}
	if (__builtin_expect(be->bells_due > 0, 0))
		bells_ring(be);
	return n;
}

/* ---- waiting ---- */

int shm_fds(struct xpi_be *be, int *fds, int max)
{
	if (max < 1)
		return 0;
	fds[0] = be->epoll;
	return 1;
}

/*
 * The flag of an endpoint whose bell rang changes: the peer rings once for each of its values. False: an endpoint that is
 * being connected has something to receive, one failed, or there may be more.
 */
static bool bells_take(struct xpi_be *be)
{
	struct epoll_event events[EVENTS];
	int n = epoll_wait(be->epoll, events, EVENTS, 0);
	bool all = n < EVENTS;

	for (int i = 0; i < n; i++) {
		struct shm_ep *ep = events[i].data.ptr;

		if (!ep->ready) {
			all = false;
			continue;
		}
		shm_poll_wake(ep);
		ep_warm(be, ep);
		if (shm_bell_take(be, ep, NULL, NULL) || ep->broken)
			continue;
		shm_break(ep, "the peer sent too many bells, or other data, to the socket of shared memory");
		ep_failed(be, ep);
		all = false;
	}
	return all && n >= 0;
}

/* First the flags, then the rings: a peer looks at the flag after it has written. */
int shm_arm(struct xpi_be *be)
{
	if (!bells_take(be) || be->bells_due > 0)
		return XPORT_ERR_AGAIN;
	for (uint32_t i = 0; i < be->neps; i++) {
		uint32_t *sleep = &be->eps[i]->tx.own->sleep;

		if ((*sleep & 1) == 0)
			__atomic_store_n(sleep, *sleep + 1, __ATOMIC_RELAXED);
	}
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i < be->neps; i++)
		if (ep_has_frame(be->eps[i])) {
			ep_warm(be, be->eps[i]);
			return XPORT_ERR_AGAIN;
		}
	return XPORT_OK;
}
