/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * signals.h - what a stack does to the process's signals, undone.
 *
 * Some libraries set handlers when they are loaded or opened, for their own debugging.  The application's are its own.
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

#endif
