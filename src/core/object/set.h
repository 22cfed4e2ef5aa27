/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * set.h - the transports that an instance has, or may open, and how they are polled.
 *
 * Most instances have one candidate: then the turn polls its back end directly. With several, the turn calls
 * xpi_poll_all as soon as a second transport is open.
 */
#ifndef XPI_CORE_OBJECT_SET_H
#define XPI_CORE_OBJECT_SET_H

#include "core/config/candidates.h"
#include "core/object/instance.h"
#include "core/object/transport.h"

struct xpi_set {
	struct xport *x;
	struct xpi_candidates candidates;
	struct xpi_transport *of[XPI_CANDIDATES_MAX]; /* by candidate; NULL: not open */
	const struct xpi_core_ops *up;
	size_t frame_head;
	/* polling */
	unsigned nopen, next;
	struct xpi_transport *open[XPI_CANDIDATES_MAX];
	uint64_t looked; /* xpi_ticks when all were polled */
	/*
	 * Polls until the next look at the others, plus 1: until then only one transport is polled, because no other is in use,
	 * and polling it costs no system call. 1: look at the clock. 0: look at all.
	 */
	uint32_t alone, renewals;
	uint64_t granted_at; /* xpi_ticks */
	int (*only_poll)(struct xpi_be *be);
	struct xpi_be *only_be;
	struct xpi_transport *only;
};

/* Back end's state of an endpoint that may go over one of several transports. */
enum { XPI_EP_BE_MAX = 2048 };

/* xpi_several - true if the instance may open more than one transport. */
static inline bool xpi_several(const struct xport *x)
{
	return x->set->candidates.n > 1;
}

/* xpi_set_stir - let the next poll look at all transports. */
static inline void xpi_set_stir(struct xpi_set *s)
{
	s->alone = 0;
}

/*
 * xpi_poll_all - poll the transports of a set; in place of a back end's poll.
 *
 * Those that are in use are polled each time. When XPI_TICKS_SHORT have passed, the next of the others is: it may need a
 * system call, during which those in use wait. A single one in use that costs no system call is polled alone for a few dozen polls,
 * if they follow each other fast. One that breaks is marked, see XPI_TODO_BROKE.
 *
 * Returns the number of events, or the error of xpi_polled_alone.
 */
int xpi_poll_all(struct xpi_be *set);

/* xpi_poll_others - poll all transports now, where there are several. Returns the number of events. */
int xpi_poll_others(struct xport *x);

/* xpi_polled_alone - the transport whose error x->poll returned. */
static inline struct xpi_transport *xpi_polled_alone(const struct xport *x)
{
	return x->poll == xpi_poll_all ? x->set->only : x->tp;
}

#endif
