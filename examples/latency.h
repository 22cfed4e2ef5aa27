/* SPDX-License-Identifier: BSD-3-Clause */
/* latency.h - for latency.c: errors, the clock, the table, processors. */
#ifndef LATENCY_H
#define LATENCY_H

#include <err.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <xport_services.h>

static xport *x;

static void check(int r)
{
	struct xport_error e = {.size = sizeof(e)};

	if (r < 0) {
		xport_last_error(x, &e);
		errx(1, "%s: %s", e.operation, e.text);
	}
}

/* The same for a function of libxport_services. */
static void check_service(int r)
{
	struct xport_error e = {.size = sizeof(e)};

	if (r < 0) {
		xport_services_last_error(&e);
		errx(1, "%s: %s", e.operation, e.text);
	}
}

static size_t number(const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (text[0] < '0' || text[0] > '9' || *end != '\0' || n < 1 || n > 100000000)
		errx(1, "ROUNDS is a number from 1 to 100000000, not \"%s\"", text);
	return n;
}

static double *samples(size_t n)
{
	double *us = calloc(n, sizeof(*us));

	if (us == NULL)
		err(1, "%zu samples", n);
	return us;
}

/* How many processors this process may use. */
static int processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* Uses the first or the last of them alone. Two pollers on one processor would wait for each other. */
static void pin(bool last)
{
	cpu_set_t set;
	int i = last ? CPU_SETSIZE - 1 : 0;

	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		err(1, "sched_getaffinity");
	while (!CPU_ISSET((size_t)i, &set))
		i += last ? -1 : 1;
	CPU_ZERO(&set);
	CPU_SET((size_t)i, &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0)
		warn("cannot run on processor %d", i);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* Prints the percentiles of the n samples, and how much less each is than in the line before. */
static void print_line(uint64_t step, double *us, size_t n)
{
	static const char *const steps[] = {"xport_wait, ordinary memory", "+ registered memory on huge pages",
	                                    "+ a processor of its own", "+ busy polling"};
	static const double part[] = {.5, .99, .999, .9999};
	static double before[4];

	if (before[0] == 0)
		printf("%-35s%20s%20s%20s%20s\n", "us per round trip (and gained)", "median", "99 %", "99.9 %",
		       "99.99 %");
	printf("%-35s", steps[step]);
	qsort(us, n, sizeof(*us), by_size);
	for (int i = 0; i < 4; i++) {
		double now = us[(size_t)((double)(n - 1) * part[i])];

		printf(" %9.1f (%+7.1f)", now, before[0] == 0 || before[i] == 0 ? 0 : before[i] - now);
		before[i] = now;
	}
	printf("\n");
}

#endif
