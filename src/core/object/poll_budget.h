/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * poll_budget.h - how long a thread polls without result before it sleeps.
 *
 * To sleep and be woken costs about ten microseconds, and adds as much latency. To poll occupies a core. So the budget
 * follows the distance between events:
 *   - Events at short distances: the thread polls for twice the last distance that cost an unnecessary sleep.
 *   - If it then slept all the same, polling may be what the event waits for: the peer may need this core. The budget is
 *     halved, down to the least, until polling has found something. Now and then it tries again.
 *   - Events at long distances: the budget is halved after each sleep that was worth it.
 *   - If only the clock wakes a sleeper (by_clock), distances during a sleep mean nothing. The thread then polls for
 *     the maximum, once, and after that only when the clock has woken it.
 *
 * Threads that take turns may share the budget. Each thread keeps its own time of the last event. Times are in
 * nanoseconds, of a monotonic clock.
 */
#ifndef XPI_CORE_OBJECT_POLL_BUDGET_H
#define XPI_CORE_OBJECT_POLL_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

enum { XPI_SPIN_LEAST = 5000, XPI_SPIN_MOST = 200000 };
enum { XPI_SPIN_TRUST = 64 }; /* of so many sleeps in a row, one is believed */

struct xpi_spin {
	int64_t budget; /* how long after something was done it polls */
	unsigned sleeps; /* since polling on found something */
	bool by_clock;  /* nothing else wakes a sleeper */
};

static inline void xpi_spin_init(struct xpi_spin *s, bool by_clock)
{
	s->budget = by_clock ? XPI_SPIN_MOST : XPI_SPIN_LEAST;
	s->sleeps = 0;
	s->by_clock = by_clock;
}

/* xpi_spin_over - true if the thread should sleep now. `last` is the time of the last event. */
static inline bool xpi_spin_over(const struct xpi_spin *s, int64_t last, int64_t now)
{
	return now - last >= s->budget;
}

/* xpi_spin_found - something was found by polling on. */
static inline void xpi_spin_found(struct xpi_spin *s)
{
	s->sleeps = 0;
}

/* xpi_spin_woke - adapt the budget after a sleep. Returns the new `last`. */
static inline int64_t xpi_spin_woke(struct xpi_spin *s, int64_t last, int64_t now)
{
	int64_t apart = now - last;

	if (s->by_clock)
		return last;
	s->budget = apart <= XPI_SPIN_MOST && s->sleeps++ % XPI_SPIN_TRUST == 0 ? 2 * apart : s->budget / 2;
	if (s->budget > XPI_SPIN_MOST)
		s->budget = XPI_SPIN_MOST;
	if (s->budget < XPI_SPIN_LEAST)
		s->budget = XPI_SPIN_LEAST;
	return now;
}

#endif
