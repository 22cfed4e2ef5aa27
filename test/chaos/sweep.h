/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sweep.h - two sides that use every operation, again and again, whatever happens to their connection.
 *
 * Each side connects, posts puts, gets, atomics, notifications, messages and flushes in rounds, and continues with a
 * new connection when one has ended. It checks what always holds: each accepted operation completes once, with a
 * permitted status; afterwards nothing accesses its buffer; an endpoint ends with one event; the instance stays usable.
 */
#ifndef SWEEP_H
#define SWEEP_H

#include "conform/scenario.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the second side may be: its parameter. */
enum { SWEEP_BOTH_LIVE = 0, SWEEP_MAY_DIE = 1 };

/* Rounds of a connection that nothing disturbs. */
enum { SWEEP_ROUNDS = 6 };

/*
 * Connects to `address` several times, and more often if connections break, until one after that has a whole round. use() uses
 * the endpoint, destroys it, and returns the number of whole rounds.
 */
void sweep_connect(struct h *h, const char *address, int (*use)(void *arg, xport_ep *ep), void *arg);

extern const struct h_scenario sweep_scenario;
/* bulks.c: transfers of memory in pieces. */
extern const struct h_scenario bulks_scenario;
/* still.c: a data path that stands still is reported. */
extern const struct h_scenario still_scenario;
/* XPORT_CHAOS of the side that may die; of the other that of the environment. */
extern const char *sweep_mortal;

#ifdef __cplusplus
}
#endif

#endif
