/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * signals.h - undoes what a stack does to the process's signals.
 *
 * Some libraries install handlers for their own debugging when they are loaded or opened. Handlers are up to the
 * application only.
 */
#ifndef XPI_BASE_SIGNALS_H
#define XPI_BASE_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

#include "base/log.h"

struct xpi_signals {
	struct sigaction action[_NSIG];
	bool known[_NSIG]; /* libc keeps a few to itself */
};

void xpi_signals_save(struct xpi_signals *s);
/* Takes back what changed since, and nothing else: another thread of the application may be setting up its own.
 * `culprit` stands in the log. */
void xpi_signals_restore(const struct xpi_signals *s, const struct xpi_log *log, const char *culprit);

/*
 * Blocks the signals of this thread, except those that a fault of its own raises.  Around calls of a stack that wait: one that
 * is interrupted by a handler without SA_RESTART may fail.
 */
void xpi_signals_hold(sigset_t *before);
/* Lets them in again, except a SIGXFSZ: the kernel sent that to this thread because a stack made a file too long. */
void xpi_signals_release(const sigset_t *before);

#endif
