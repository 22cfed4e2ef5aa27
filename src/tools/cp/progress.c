/* SPDX-License-Identifier: BSD-3-Clause */
/* progress.c - the line on the terminal. */
#include "tools/cp/progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { DRAW_NS = 200000000, COLUMNS = 80 };

static uint64_t progress_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

double cp_progress_seconds(const struct cp_progress *p)
{
	return (double)(progress_now_ns() - p->began_ns) * 1e-9;
}

const char *cp_size(uint64_t bytes, char to[32])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double v = (double)bytes;
	unsigned u = 0;

	while (v >= 1024 && u + 1 < sizeof(units) / sizeof(units[0])) {
		v /= 1024;
		u++;
	}
	snprintf(to, 32, u == 0 ? "%.0f %s" : "%.1f %s", v, units[u]);
	return to;
}

void cp_progress_clear(struct cp_progress *p)
{
	if (p->standing)
		fputs("\r\033[K", stderr);
	p->standing = false;
}

/* The rate of the last while, so that one that changes is seen. */
static void progress_measure(struct cp_progress *p, uint64_t now)
{
	double seconds = (double)(now - p->then_ns) * 1e-9;
	double rate = seconds > 0 ? (double)(p->done - p->then_done) / seconds : 0;

	p->rate = p->rate == 0 ? rate : 0.7 * p->rate + 0.3 * rate;
	p->then_ns = now;
	p->then_done = p->done;
}

static void progress_left(const struct cp_progress *p, uint64_t done, uint64_t total, char to[32])
{
	uint64_t s;

	to[0] = '\0';
	if (p->rate <= 0 || total < done)
		return;
	s = (uint64_t)((double)(total - done) / p->rate);
	if (s < 100 * 3600)
		snprintf(to, 32, "%u:%02u:%02u left", (unsigned)(s / 3600), (unsigned)(s / 60 % 60),
		         (unsigned)(s % 60));
}

static void draw(struct cp_progress *p, uint64_t now)
{
	uint64_t total = p->total != 0 ? p->total : p->file_size, done = p->total != 0 ? p->done : p->file_done;
	struct winsize size = {.ws_col = 0};
	char a[32], b[32], c[32], time[32], line[512];
	unsigned columns = COLUMNS;
	int n;

	progress_measure(p, now);
	progress_left(p, done, total, time);
	n = snprintf(line, sizeof(line), "%3u%%  %s of %s  %s/s  %s  %s",
	             (unsigned)(total > 0 ? (done < total ? 100.0 * (double)done / (double)total : 100) : 0),
	             cp_size(done, a), cp_size(total, b), cp_size((uint64_t)p->rate, c), time, p->name);
	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
		columns = size.ws_col;
	if (n > 0)
		fprintf(stderr, "\r%.*s\033[K", (int)columns - 1, line);
	p->standing = true;
	p->drawn_ns = now;
}

static void progress_note(void *arg, const char *text)
{
	struct cp_progress *p = arg;

	cp_progress_clear(p);
	fprintf(stderr, "xport_cp: %s\n", text);
}

static void began(void *arg, const char *path, uint64_t size)
{
	struct cp_progress *p = arg;

	cp_show(path, p->name, sizeof(p->name));
	p->file_size = size;
	p->file_done = 0;
}

static void progress_moved(void *arg, uint64_t bytes)
{
	struct cp_progress *p = arg;
	uint64_t now;

	p->done += bytes;
	p->file_done += bytes;
	if (!p->shown)
		return;
	now = progress_now_ns();
	if (now - p->drawn_ns >= DRAW_NS)
		draw(p, now);
}

void cp_progress_init(struct cp_progress *p, bool shown)
{
	*p = (struct cp_progress){.see = {progress_note, began, progress_moved, p}, .shown = shown};
	p->began_ns = p->then_ns = progress_now_ns();
}
