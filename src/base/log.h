/* SPDX-License-Identifier: BSD-3-Clause */
/* log.h - log lines with a level and a stable id, to the application's sink, a file, or standard error. */
#ifndef XPI_BASE_LOG_H
#define XPI_BASE_LOG_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/fd.h"
#include "xport.h"

/* At most so many warnings or information lines of one id go out within a second. One line of the same id then says how
 * many were left out, before the next one that goes out, or at the end. */
enum { XPI_LOG_BURST = 200, XPI_LOG_IDS = 64 };
struct xpi_log_rate {
	pthread_mutex_t lock;
	struct {
		char id[5];
		uint8_t level;
		uint32_t said, left_out;
		int64_t since_ms;
	} of[XPI_LOG_IDS]; /* more ids than that are not limited */
};

struct xpi_log {
	int level;       /* enum xport_log_level: what is more talkative is dropped */
	xport_log_fn fn; /* NULL: write to fd */
	void *arg;
	int fd;
	struct xpi_log_rate *rate; /* NULL: no limit */
	struct xpi_fd_id file;     /* what fd stood for in xpi_log_to */
};

/*
 * Writes to this descriptor as long as it stands for the file that it stands for now.  The application may close it, and its
 * number then passes to something else: from then on lines are dropped.
 */
void xpi_log_to(struct xpi_log *log, int fd);

/*
 * Writes one line.  `id` is four digits, unique to the place in the code ("0123"), never reused for another meaning.
 * Preserves errno.  Ranges: 00xx core, 01xx control channel, 02xx configuration and loading, 1xxx ucx, 2xxx verbs,
 * 3xxx ofi, 4xxx chaos, 5xxx shm, 9xxx tests.
 */
void xpi_log(const struct xpi_log *log, int level, const char *id, const char *fmt, ...)
	__attribute__((format(printf, 4, 5), cold));

void xpi_log_rate_init(struct xpi_log *log, struct xpi_log_rate *rate);
/* Tells what was left out and not told yet; from then on there is no limit. */
void xpi_log_rate_end(struct xpi_log *log);

static inline bool xpi_log_on(const struct xpi_log *log, int level)
{
	return level <= log->level;
}

#endif
