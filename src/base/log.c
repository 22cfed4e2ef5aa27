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

#include "base/printable.h"

enum { LINE_MAX_BYTES = 1024 };

/* One write, so that lines of several threads and processes do not mix; what does not go out at once is lost. */
static void write_line(int fd, const char *line, size_t len)
{
	const struct timespec no_wait = {0, 0};
	sigset_t raised, before, pending;
	ssize_t n;

	/* A reader that went away, or a file as long as `ulimit -f` allows, must not kill the application. */
	sigemptyset(&raised);
	sigaddset(&raised, SIGPIPE);
	sigaddset(&raised, SIGXFSZ);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &raised, &before);
	do
		n = write(fd, line, len);
	while (n < 0 && errno == EINTR);
	if (n < 0 && (errno == EPIPE || errno == EFBIG)) {
		sigdelset(&raised, errno == EPIPE ? SIGXFSZ : SIGPIPE);
		if (!sigismember(&pending, errno == EPIPE ? SIGPIPE : SIGXFSZ))
			sigtimedwait(&raised, NULL, &no_wait);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void write_log(const struct xpi_log *log, int level, const char *id, const char *fmt, va_list args)
{
	static const char letters[] = "?EWID";
	char letter = level >= XPORT_LOG_ERROR && level <= XPORT_LOG_DEBUG ? letters[level] : '?';
	int saved = errno, head, n;
	char line[LINE_MAX_BYTES], full_id[16];
	size_t len;

	snprintf(full_id, sizeof(full_id), "XP-%s", id);
	head = snprintf(line, sizeof(line), "xport %c %s: ", letter, full_id);
	n = vsnprintf(line + head, sizeof(line) - 1 - (size_t)head, fmt, args);
	line[head] = n < 0 ? '\0' : line[head];
	len = strlen(line);
	/* The text may hold what a peer or the environment said: one line stays one line. */
	xpi_text_clean(line, ' ');
	if (log->fn != NULL) {
		log->fn(log->arg, level, full_id, line + head);
	} else if (xpi_fd_is(log->fd, &log->file)) {
		line[len] = '\n';
		write_line(log->fd, line, len + 1);
	}
	errno = saved;
}

static void say(const struct xpi_log *log, int level, const char *id, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	write_log(log, level, id, fmt, args);
	va_end(args);
}

/* ---- the rate ---- */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int find(struct xpi_log_rate *rate, const char *id)
{
	int i = 0;

	while (i < XPI_LOG_IDS && rate->of[i].id[0] != '\0' && strcmp(rate->of[i].id, id) != 0)
		i++;
	return i;
}

/* Whether a line of this id may go out now; *left_out: how many could not since the last one that did. */
static bool may(const struct xpi_log *log, int level, const char *id, uint32_t *left_out)
{
	struct xpi_log_rate *rate = log->rate;
	bool go = true;
	int64_t now;
	int i;

	*left_out = 0;
	if (rate == NULL || (level != XPORT_LOG_WARN && level != XPORT_LOG_INFO))
		return true;
	now = now_ms();
	pthread_mutex_lock(&rate->lock);
	i = find(rate, id);
	if (i < XPI_LOG_IDS) {
		snprintf(rate->of[i].id, sizeof(rate->of[i].id), "%s", id);
		rate->of[i].level = (uint8_t)level;
		if (rate->of[i].said == 0 || now - rate->of[i].since_ms >= 1000) {
			rate->of[i].since_ms = now;
			rate->of[i].said = 0;
			*left_out = rate->of[i].left_out;
			rate->of[i].left_out = 0;
		}
		go = rate->of[i].said < XPI_LOG_BURST;
		rate->of[i].said += go;
		rate->of[i].left_out += !go;
	}
	pthread_mutex_unlock(&rate->lock);
	return go;
}

static const char left_out_text[] = "left out %u lines with this id: more than %d in a second";

void xpi_log_to(struct xpi_log *log, int fd)
{
	log->fd = fd;
	log->file = xpi_fd_identify(fd);
}

void xpi_log_rate_init(struct xpi_log *log, struct xpi_log_rate *rate)
{
	memset(rate, 0, sizeof(*rate));
	pthread_mutex_init(&rate->lock, NULL);
	log->rate = rate;
}

void xpi_log_rate_end(struct xpi_log *log)
{
	struct xpi_log_rate *rate = log->rate;

	if (rate == NULL)
		return;
	log->rate = NULL;
	for (int i = 0; i < XPI_LOG_IDS && rate->of[i].id[0] != '\0'; i++)
		if (rate->of[i].left_out > 0)
			say(log, rate->of[i].level, rate->of[i].id, left_out_text, rate->of[i].left_out, XPI_LOG_BURST);
	pthread_mutex_destroy(&rate->lock);
}

void xpi_log(const struct xpi_log *log, int level, const char *id, const char *fmt, ...)
{
	int saved = errno;
	uint32_t left_out;
	va_list args;

	if (!xpi_log_on(log, level) || !may(log, level, id, &left_out))
		return;
	if (left_out > 0)
		say(log, level, id, left_out_text, left_out, XPI_LOG_BURST);
	errno = saved; /* the line may want it */
	va_start(args, fmt);
	write_log(log, level, id, fmt, args);
	va_end(args);
}
