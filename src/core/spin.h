/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * spin.h - how long a thread polls in vain before it sleeps.
 *
 * To sleep and be woken costs some ten microseconds, and the same again in latency; to poll costs a core.  So it polls for as
 * long as things lie apart, if that is short, and hardly at all if it is long: twice the last distance that cost a sleep and
 * need not have; half as long after each that was worth it.  Where nothing wakes a sleeper but the clock, distances that are
 * slept through say nothing: there it polls for as long as it may, once, and then only when the clock has woken it.
 *
 * What is learned may be shared by threads that take turns; when something was last done each keeps for itself.  Times are in
 * nanoseconds, of a clock that does not go back.
 */
#ifndef XPI_CORE_SPIN_H
#define XPI_CORE_SPIN_H

#include <stdbool.h>
#include <stdint.h>

enum { XPI_SPIN_LEAST = 5000, XPI_SPIN_MOST = 200000 };

struct xpi_spin {
	int64_t budget; /* how long after something was done it polls */
	bool by_clock;  /* nothing else wakes a sleeper */
};

static inline void xpi_spin_init(struct xpi_spin *s, bool by_clock)
{
	s->budget = by_clock ? XPI_SPIN_MOST : XPI_SPIN_LEAST;
	s->by_clock = by_clock;
}

/* `last` is when something was done; nothing was since: whether to sleep. */
static inline bool xpi_spin_over(const struct xpi_spin *s, int64_t last, int64_t now)
{
	return now - last >= s->budget;
}

/* It has slept, and was woken.  Returns `last` from here on. */
static inline int64_t xpi_spin_woke(struct xpi_spin *s, int64_t last, int64_t now)
{
	int64_t apart = now - last;

	if (s->by_clock)
		return last;
	s->budget = apart <= XPI_SPIN_MOST ? 2 * apart : s->budget / 2;
	if (s->budget > XPI_SPIN_MOST)
		s->budget = XPI_SPIN_MOST;
	if (s->budget < XPI_SPIN_LEAST)
		s->budget = XPI_SPIN_LEAST;
	return now;
}

#endif
