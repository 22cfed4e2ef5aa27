/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sweep.h - two sides that use everything, again and again, whatever becomes of their connection.
 *
 * Each side connects, posts puts, gets, atomics, notifications, messages and flushes in rounds, and goes on with a new
 * connection when one ended.  What is looked at is what holds in any case: each operation that was accepted completes once,
 * with a status that there may be; afterwards nobody touches its buffer; an endpoint ends with one event; the instance
 * goes on to work.
 */
#ifndef SWEEP_H
#define SWEEP_H

#include "conform/scenario.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the second side may be: its parameter. */
enum { SWEEP_BOTH_LIVE = 0, SWEEP_MAY_DIE = 1 };

extern const struct h_scenario sweep_scenario;
/* XPORT_CHAOS of the side that may die; of the other that of the environment. */
extern const char *sweep_mortal;

#ifdef __cplusplus
}
#endif

#endif
