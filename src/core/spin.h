/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * spin.h - how long a thread polls in vain before it sleeps.
 *
 * To sleep and be woken costs some ten microseconds, and the same again in latency; to poll costs a core.  So it polls for as
 * long as things lie apart, if that is short, and hardly at all if it is long: twice the last distance that cost a sleep and
 * need not have; half as long after each that was worth it.  Where nothing wakes a sleeper but the clock, distances that are
 * slept through say nothing: there it polls for as long as it may.  Times are in nanoseconds, of a clock that does not go back.
 */
#ifndef XPI_CORE_SPIN_H
#define XPI_CORE_SPIN_H

#include <stdbool.h>
#include <stdint.h>

enum { XPI_SPIN_LEAST = 5000, XPI_SPIN_MOST = 200000 };

struct xpi_spin {
	int64_t last;   /* when something was done */
	int64_t budget; /* how long after that it polls, if that is more than the least */
	int64_t least;
};

static inline void xpi_spin_init(struct xpi_spin *s, bool is_woken)
{
	s->last = s->budget = 0;
	s->least = is_woken ? XPI_SPIN_LEAST : XPI_SPIN_MOST;
}

/* Something was done. */
static inline void xpi_spin_done(struct xpi_spin *s, int64_t now)
{
	s->last = now;
}

/* Nothing was: whether it should sleep. */
static inline bool xpi_spin_over(const struct xpi_spin *s, int64_t now)
{
	return now - s->last >= (s->budget > s->least ? s->budget : s->least);
}

/* It has slept, and was woken. */
static inline void xpi_spin_woke(struct xpi_spin *s, int64_t now)
{
	int64_t apart = now - s->last;

	s->budget = apart <= XPI_SPIN_MOST ? 2 * apart : s->budget / 2;
	if (s->budget > XPI_SPIN_MOST)
		s->budget = XPI_SPIN_MOST;
	s->last = now;
}

#endif
