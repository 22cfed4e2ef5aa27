/* SPDX-License-Identifier: BSD-3-Clause */
/* poll_all.c - one poll over several transports. */
#include "base/clock.h"
#include "core/object/instance.h"
#include "core/object/set.h"

/* An application that polls at such distances, in XPI_TICKS_SHORT, does not mind the time that polling all takes. */
enum { SELDOM = 8 };

/* So many polls in a row go to the only transport in use: first without a look at the clock, then again so many times. */
enum { ALONE = 16, RENEWALS = 3 };

static inline int transport_poll(struct xpi_transport *tp)
{
	int n = tp->ops->poll(tp->be);

	if (n == 0) {
		tp->hot -= tp->cools;
	} else if (n > 0) {
		tp->hot = XPI_TRANSPORT_HOT;
	} else {
		xpi_transport_broke(tp, n);
		return 0;
	}
	return n;
}

/* The next of those that were not polled in this turn; all of them if the last time is long ago. */
static __attribute__((noinline)) int transports_poll_idle(struct xpi_set *s, uint32_t polled, bool all)
{
	int n = 0;

	for (unsigned i = 0; i < s->nopen; i++) {
		unsigned at = s->next++ % s->nopen;
		struct xpi_transport *tp = s->open[at];

		if ((polled & 1u << at) != 0 || (tp->broke != XPORT_OK && tp->neps == 0))
			continue;
		tp->hot += tp->hot == 0;
		n += transport_poll(tp);
		if (!all)
			break;
	}
	return n;
}

/* The only one in use, if polling it costs no system call; else NULL. */
static struct xpi_transport *find_only(const struct xpi_set *s)
{
	struct xpi_transport *only = NULL;

	for (unsigned i = 0; i < s->nopen; i++) {
		if (s->open[i]->hot == 0)
			continue;
		if (only != NULL)
			return NULL;
		only = s->open[i];
	}
	return only != NULL && only->cools == 0 && only->broke == XPORT_OK ? only : NULL;
}

static bool fast(struct xpi_set *s, uint64_t now)
{
	/* 1: the last grant was used up. 0: it was ended, and it is not known after how many polls. */
	uint64_t polls = s->alone == 1 ? ALONE + 1 : 1, since = now - s->granted_at;

	s->granted_at = now;
	return since < XPI_TICKS_SHORT / (8 * ALONE) * polls;
}

/* Polls only this transport for the next ALONE polls, if recent polls were fast. */
static void grant(struct xpi_set *s, uint64_t now)
{
	struct xpi_transport *only = find_only(s);
	bool granted = fast(s, now) && only != NULL;

	s->alone = granted ? ALONE + 1 : 0;
	s->renewals = granted ? RENEWALS : 0;
	if (only == s->only)
		return;
	if (s->only != NULL)
		s->only->stir = &s->alone;
	s->only = only;
	if (only == NULL)
		return;
	only->stir = &only->aside;
	s->only_poll = only->ops->poll;
	s->only_be = only->be;
}

static __attribute__((noinline)) int poll_set(struct xpi_set *s, uint64_t now)
{
	uint64_t since = now - s->looked;
	uint32_t polled = 0;
	int n = 0;

	for (unsigned i = 0; i < s->nopen; i++) {
		struct xpi_transport *tp = s->open[i];

		if (tp->hot == 0)
			continue;
		polled |= 1u << i;
		n += transport_poll(tp);
	}
	if (since >= XPI_TICKS_SHORT) {
		s->looked = now;
		n += transports_poll_idle(s, polled, since >= SELDOM * XPI_TICKS_SHORT);
	}
	grant(s, now);
	return n;
}

/* The grant is over: renewed a few times, if the polls go on as fast. */
static __attribute__((noinline)) int look(struct xpi_set *s)
{
	uint64_t now = xpi_ticks();

	if (s->renewals == 0 || s->alone == 0 || !fast(s, now))
		return poll_set(s, now);
	s->renewals--;
	s->alone = ALONE + 1;
	return s->only_poll(s->only_be);
}

int xpi_poll_all(struct xpi_be *set)
{
	struct xpi_set *s = (struct xpi_set *)set;

	if (s->alone < 2)
		return look(s);
	s->alone--;
	return s->only_poll(s->only_be);
}

int xpi_poll_others(struct xport *x)
{
	struct xpi_set *s = x->set;

	if (x->poll != xpi_poll_all)
		return 0;
	s->alone = 0;
	s->looked = xpi_ticks();
	return transports_poll_idle(s, 0, true);
}
