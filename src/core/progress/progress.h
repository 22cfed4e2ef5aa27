/* SPDX-License-Identifier: BSD-3-Clause */
/* progress.h - one turn of the instance, its sleepers, and the end of an endpoint. */
#ifndef XPI_CORE_PROGRESS_PROGRESS_H
#define XPI_CORE_PROGRESS_PROGRESS_H

#include <stdbool.h>

#include "core/object/ep.h"
#include "core/object/instance.h"

/* Takes whatever steps are possible for all listeners and handshakes of the instance. */
void xpi_conn_progress(struct xport *x);

/* Goes on with failing; true once DEAD. */
bool xpi_ep_fail_step(struct xport_ep *ep);

/* Acts on what the helper thread found, and on a peer that closes. */
void xpi_ep_attend(struct xport_ep *ep);

/* Makes progress once: back end, control channels if the wake flag is raised, endpoints with work.  Returns how much happened or
 * a status.  The caller holds the lock. */
int xpi_progress(struct xport *x);

/* The first part of it: the back end. */
static inline int xpi_progress_be(struct xport *x)
{
	x->epoch++;
	return x->poll(x->be);
}

/* Whether there is a second part; and that, given what the first returned. */
static inline bool xpi_progress_more(struct xport *x, int n)
{
	return n < 0 || (x->todo | atomic_load_explicit(&x->attention, memory_order_acquire)) != 0;
}

int xpi_progress_rest(struct xport *x, int n);

/* What a back end calls. */
extern const struct xpi_core_ops xpi_up;

/* Blocks until something may have happened, at most `timeout_ms` (-1: for ever); releases the lock meanwhile, or lets in who
 * waits for it.  False: a signal handler ran. */
bool xpi_idle(struct xport *x, int timeout_ms);

/* Makes progress until something waits to be reaped, space was freed for what was answered AGAIN, a signal handler ran,
 * or the time is over. */
int xpi_wait(struct xport *x, int timeout_ms);

int xpi_thread_start(struct xport *x);
void xpi_thread_stop(struct xport *x);

#endif
