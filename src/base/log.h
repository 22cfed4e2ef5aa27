/* SPDX-License-Identifier: BSD-3-Clause */
/* log.h - log lines with a level and a stable id, to the application's sink, a file, or standard error. */
#ifndef XPI_BASE_LOG_H
#define XPI_BASE_LOG_H

#include <stdbool.h>

#include "xport.h"

struct xpi_log {
	int level;       /* enum xport_log_level: what is more talkative is dropped */
	xport_log_fn fn; /* NULL: write to fd */
	void *arg;
	int fd;
};

/*
 * Writes one line.  `id` is four digits, unique to the place in the code ("0123"), never reused for another meaning.
 * Preserves errno.  Ranges: 00xx core, 01xx control channel, 02xx configuration and loading, 1xxx ucx, 2xxx verbs,
 * 3xxx ofi, 9xxx tests.
 */
void xpi_log(const struct xpi_log *log, int level, const char *id, const char *fmt, ...)
	__attribute__((format(printf, 4, 5), cold));

static inline bool xpi_log_on(const struct xpi_log *log, int level)
{
	return level <= log->level;
}

#endif
