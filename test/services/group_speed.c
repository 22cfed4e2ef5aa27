/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * group_speed.c - how long a group takes to start, and an allreduce; for test/figures/group, which runs it beside MPI.
 *
 *	mpiexec.hydra -n N group_speed SECONDS		rank 0 prints: WHAT NANOSECONDS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "services/xport_services.h"

enum { LIMIT_MS = 60000, ROUNDS = 101 };

static xport_group *group;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void check(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_services_last_error(&e);
	fprintf(stderr, "group_speed: %s: %s\n", xport_strerror(status), e.status == status ? e.text : "");
	exit(1);
}

/* The best of the rounds, in seconds an allreduce: a busy machine interrupts the others. All members do the same number. */
static double allreduce(size_t count, int calls, double *from, double *to)
{
	double best = 1e9;

	for (int i = 0; i < ROUNDS; i++) {
		double begin, each;

		check(xport_group_barrier(group, LIMIT_MS));
		begin = now();
		for (int k = 0; k < calls; k++)
			check(xport_group_allreduce(group, from, to, count, XPORT_GROUP_DOUBLE, XPORT_GROUP_SUM,
			                            LIMIT_MS));
		each = (now() - begin) / calls;
		best = each < best ? each : best;
	}
	return best;
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = {8, 65536, 1 << 20};
	struct xport_group_info info = {.size = sizeof(info)};
	double begin = now(), seconds = argc > 1 ? atof(argv[1]) : 0.1, start;
	double *from = calloc(1, 1 << 20), *to = calloc(1, 1 << 20);
	xport *x;

	if (from == NULL || to == NULL)
		return 1;
	check(xport_open(NULL, &x));
	check(xport_group_create(x, NULL, LIMIT_MS, &group));
	check(xport_group_barrier(group, LIMIT_MS));
	start = now() - begin;
	check(xport_group_query(group, &info));
	if (info.rank == 0)
		printf("start %.0f\n", start * 1e9);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		double each = allreduce(sizes[i] / 8, 3, from, to);
		int calls = (int)(seconds / ROUNDS / each);

		check(xport_group_broadcast(group, &calls, sizeof(calls), 0, LIMIT_MS));
		each = allreduce(sizes[i] / 8, calls < 1 ? 1 : calls, from, to);
		if (info.rank == 0)
			printf("%zu %.0f\n", sizes[i], each * 1e9);
	}
	check(xport_group_barrier(group, LIMIT_MS));
	check(xport_group_destroy(group, 1000));
	xport_close(x);
	free(from);
	free(to);
	return 0;
}
