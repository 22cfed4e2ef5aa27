/* SPDX-License-Identifier: BSD-3-Clause */
/* poll_all.c - one poll over several transports. */
#include "base/clock.h"
#include "core/object/instance.h"
#include "core/object/set.h"

/* So many polls in a row that find something go by without a look at the clock. */
enum { BUSY_TURNS = 32 };

/* An application that polls at such distances, in XPI_TICKS_SHORT, does not mind the time that polling all takes. */
enum { SELDOM = 8 };

/* So many polls in a row go to the only transport in use. */
enum { ALONE = 64 };

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

/* Lets the next polls go to the only one in use, if they follow so fast that the others do not wait for it. */
static void grant(struct xpi_set *s)
{
	struct xpi_transport *only = find_only(s);
	uint64_t now = xpi_ticks(), since = now - s->granted_at;
	bool fast = since < XPI_TICKS_SHORT / ALONE * (s->granted + 1u);

	s->granted_at = now;
	s->granted = only != NULL && fast ? ALONE : 0;
	s->alone = s->granted;
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

static __attribute__((noinline)) int poll_set(struct xpi_set *s)
{
	uint32_t polled = 0;
	int n = 0;

	for (unsigned i = 0; i < s->nopen; i++) {
		struct xpi_transport *tp = s->open[i];

		if (tp->hot == 0)
			continue;
		polled |= 1u << i;
		n += transport_poll(tp);
	}
	if (n == 0 || (++s->turns & (BUSY_TURNS - 1)) == 0) {
		uint64_t now = xpi_ticks(), since = now - s->looked;

		if (since >= XPI_TICKS_SHORT) {
			s->looked = now;
			n += transports_poll_idle(s, polled, since >= SELDOM * XPI_TICKS_SHORT);
		}
	}
	grant(s);
	return n;
}

int xpi_poll_all(struct xpi_be *set)
{
	struct xpi_set *s = (struct xpi_set *)set;

	if (s->alone == 0)
		return poll_set(s);
	s->alone--;
	return s->only_poll(s->only_be);
}
