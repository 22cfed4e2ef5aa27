/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1024 };

/* One write, so that lines of several threads and processes do not mix; what does not go out at once is lost. */
static void write_line(int fd, const char *line, size_t len)
{
	const struct timespec no_wait = {0, 0};
	sigset_t pipe_only, before, pending;
	ssize_t n;

	/* A reader of the log that went away must not kill the application. */
	sigemptyset(&pipe_only);
	sigaddset(&pipe_only, SIGPIPE);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
	do
		n = write(fd, line, len);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE))
		sigtimedwait(&pipe_only, NULL, &no_wait);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void xpi_log(const struct xpi_log *log, int level, const char *id, const char *fmt, ...)
{
	static const char letters[] = "?EWID";
	char letter = level >= XPORT_LOG_ERROR && level <= XPORT_LOG_DEBUG ? letters[level] : '?';
	int saved = errno, head, n;
	char line[LINE_MAX_BYTES], full_id[16];
	va_list args;
	size_t len;

	if (!xpi_log_on(log, level))
		return;
	snprintf(full_id, sizeof(full_id), "XP-%s", id);
	head = snprintf(line, sizeof(line), "xport %c %s: ", letter, full_id);
	va_start(args, fmt);
	n = vsnprintf(line + head, sizeof(line) - 1 - (size_t)head, fmt, args);
	va_end(args);
	line[head] = n < 0 ? '\0' : line[head];
	len = strlen(line);
	/* The text may hold what a peer or the environment said: one line stays one line. */
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			line[i] = ' ';
	if (log->fn != NULL) {
		log->fn(log->arg, level, full_id, line + head);
	} else {
		line[len] = '\n';
		write_line(log->fd, line, len + 1);
	}
	errno = saved;
}
