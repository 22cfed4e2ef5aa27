/* SPDX-License-Identifier: BSD-3-Clause */
#include "soak/meter.h"

#include <dirent.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What a connection may keep, and of how many that can be said. */
enum { KEEPS = 40, CONNECTIONS = 40 };

double soak_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	uint64_t n = 0;

	if (d == NULL)
		return 0;
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n - 3; /* ., .., and the directory itself */
}

/* The sum of the lines of a file in /proc that begin with one of the names, in KiB. */
static uint64_t sum_of(const char *path, const char *first, const char *second)
{
	FILE *f = fopen(path, "r");
	uint64_t sum = 0, n;
	char line[256];

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if ((strncmp(line, first, strlen(first)) == 0 || strncmp(line, second, strlen(second)) == 0) &&
		    sscanf(strchr(line, ':') + 1, "%" SCNu64, &n) == 1)
			sum += n;
	if (f != NULL)
		fclose(f);
	return sum;
}

static uint64_t shared_kib(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	uint64_t from, to, sum = 0;
	char line[512], mode[8];

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s", &from, &to, mode) == 3 && mode[3] == 's')
			sum += (to - from) >> 10;
	if (f != NULL)
		fclose(f);
	return sum;
}

static void take(struct soak_sample *s)
{
	struct mallinfo2 m = mallinfo2();

	s->heap = m.uordblks + m.hblkhd;
	s->private_kib = sum_of("/proc/self/status", "RssAnon:", "RssFile:");
	s->pss_kib = sum_of("/proc/self/smaps_rollup", "Pss:", "Pss:");
	s->shared_kib = shared_kib();
	s->fds = count_fds();
}

static void write_line(const struct soak_meter *m, const struct soak_now *now, const char *what)
{
	const struct soak_sample *s = &m->last;
	double seconds = soak_seconds() - m->began;

	printf("{\"what\":\"%s\",\"backend\":\"%s\",\"side\":\"%s\",\"seconds\":%.1f,\"seed\":%" PRIu64
	       ",\"round\":%" PRIu64 ",\"operations\":%" PRIu64
	       ",\"per_second\":%.0f,\"mismatches\":0,\"connections\":%" PRIu64 ",\"retries\":%" PRIu64
	       ",\"private_kib\":%" PRIu64 ",\"shared_kib\":%" PRIu64 ",\"pss_kib\":%" PRIu64 ",\"heap_bytes\":%" PRIu64
	       ",\"fds\":%" PRIu64 ",\"in_flight\":%" PRIu64 ",\"unmatched\":%" PRIu64 "}\n",
	       what, now->backend, now->side, seconds, now->seed, now->round, now->ops,
	       seconds > 0 ? (double)now->ops / seconds : 0, now->connections, now->retries, s->private_kib,
	       s->shared_kib, s->pss_kib, s->heap, s->fds, now->in_flight, now->unmatched);
	fflush(stdout);
}

void soak_meter_begin(struct soak_meter *m)
{
	memset(m, 0, sizeof(*m));
	m->began = soak_seconds();
}

static void note_heap(struct soak_meter *m)
{
	struct mallinfo2 info = mallinfo2();
	uint64_t heap = info.uordblks + info.hblkhd;

	if (m->heap_before != 0)
		m->step[m->nsteps++ % SOAK_STEPS_KEPT] = (int64_t)(heap - m->heap_before);
	m->heap_before = heap;
}

/* Pools grow until they have met their worst moment: over ofi:tcp a megabyte more at an eighth of 10^8, and none after it. */
static bool warm(const struct soak_now *now)
{
	return now->ops >= now->all / 4;
}

bool soak_meter_warms(const struct soak_meter *m, const struct soak_now *now)
{
	return warm(now) && !m->warmed;
}

void soak_meter_watch(struct soak_meter *m, bool begin)
{
	uint64_t n = count_fds();

	if (begin || n < m->fds_least)
		m->fds_least = n;
	if (begin || n > m->fds_most)
		m->fds_most = n;
}

void soak_meter_look(struct soak_meter *m, const struct soak_now *now, bool fresh)
{
	if (fresh && warm(now))
		note_heap(m);
	if (fresh && soak_meter_warms(m, now)) {
		m->warmed = true;
		take(&m->warm);
		m->warm.fds = m->fds_most;
		m->warm_connections = now->connections;
		m->last = m->warm;
		write_line(m, now, "warm");
	} else if (soak_seconds() >= m->next) {
		take(&m->last);
		write_line(m, now, "sample");
	} else {
		return;
	}
	m->next = soak_seconds() + now->interval_s;
}

static int by_size(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Bytes that each connection keeps: the median, as pools grow by leaps now and then.  0, too, if there were too few to say. */
static int64_t kept(struct soak_meter *m)
{
	uint64_t n = m->nsteps < SOAK_STEPS_KEPT ? m->nsteps : SOAK_STEPS_KEPT;

	if (n < CONNECTIONS)
		return 0;
	qsort(m->step, n, sizeof(m->step[0]), by_size);
	return m->step[n / 2];
}

bool soak_meter_settled(const struct soak_meter *m)
{
	return !m->warmed || m->fds_least <= m->warm.fds;
}

bool soak_meter_end(struct soak_meter *m, const struct soak_now *now, uint64_t limit_kib, char *why, int len)
{
	int64_t private, shared, fds, keeps = kept(m);

	take(&m->last);
	m->last.fds = m->fds_least;
	write_line(m, now, "end");
	if (!m->warmed) {
		snprintf(why, (size_t)len, "no connection was made anew after the warm-up: nothing to compare with");
		return true;
	}
	private = (int64_t)(m->last.private_kib - m->warm.private_kib);
	shared = (int64_t)(m->last.shared_kib - m->warm.shared_kib);
	fds = (int64_t)(m->last.fds - m->warm.fds);
	snprintf(why, (size_t)len,
	         "since the warm-up: memory %+" PRId64 " KiB, shared %+" PRId64 " KiB, descriptors %+" PRId64
	         ", %" PRIu64 " connections, of which each keeps %" PRId64 " bytes",
	         private, shared, fds, now->connections - m->warm_connections, keeps);
	return private < (int64_t)limit_kib && shared < (int64_t)limit_kib && fds <= 0 && keeps < KEEPS;
}
