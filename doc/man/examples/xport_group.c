/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xport_services.h>

enum { MEMBERS = 3, LIMIT_MS = 20000 };

static void must(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_services_last_error(&e);
	fprintf(stderr, "%s: %s\n", e.operation, e.text);
	exit(1);
}

/* A message around the ring, in the application's own loop. */
static void ring(xport *x, xport_group *group, const struct xport_group_info *i)
{
	struct xport_opt opt = {.size = sizeof(opt)};
	struct xport_completion c;
	int left = 2, in = -1;
	xport_ep *next;

	must(xport_group_ep(group, (i->rank + 1) % MEMBERS, LIMIT_MS, &next));
	must(xport_group_ep(group, (i->rank + MEMBERS - 1) % MEMBERS, LIMIT_MS,
	                    &opt.source));
	must(xport_recv(x, &in, sizeof(in), 1, UINT64_MAX, &opt));
	must(xport_send(next, &i->rank, sizeof(i->rank), 1, NULL));
	while (left > 0)
		if (xport_wait(x, &c, 1, LIMIT_MS) == 1 &&
		    xport_group_step(group, &c) == 0)
			left--;
	if (in != (i->rank + MEMBERS - 1) % MEMBERS)
		exit(1);
}

static int member(const char *source, int rank)
{
	struct xport_group_attr attr = {.size = sizeof(attr),
	                                .source = source,
	                                .members = MEMBERS,
	                                .rank = rank};
	struct xport_group_info info = {.size = sizeof(info)};
	char key[32], value[32] = "";
	double sum = rank, all[MEMBERS];
	size_t len = sizeof(value);
	xport_group *group;
	xport *x;

	if (xport_open(NULL, &x))
		return 1;
	must(xport_group_create(x, &attr, LIMIT_MS, &group));
	must(xport_group_query(group, &info));

	/* Values of all members, by name. */
	snprintf(key, sizeof(key), "pid of %d", rank);
	must(xport_group_put(
		group, key, value,
		(size_t)snprintf(value, sizeof(value), "%d", (int)getpid())));
	must(xport_group_fence(group, LIMIT_MS));
	must(xport_group_get(group, "pid of 0", value, &len));

	/* Numbers of all members. */
	must(xport_group_allgather(group, &sum, sizeof(sum), all, LIMIT_MS));
	must(xport_group_allreduce(group, &sum, &sum, 1, XPORT_GROUP_DOUBLE,
	                           XPORT_GROUP_SUM, LIMIT_MS));
	must(xport_group_broadcast(group, all, sizeof(all), 0, LIMIT_MS));
	ring(x, group, &info);
	printf("rank %d of %d: the sum is %g, rank 0 is process %.*s\n",
	       info.rank, info.members, sum, (int)len, value);

	/* -1: no member has failed. */
	if (xport_group_failed(group) != -1)
		return 1;
	must(xport_group_barrier(group, LIMIT_MS));
	must(xport_group_destroy(group, 1000));
	xport_close(x);
	return sum != MEMBERS * (MEMBERS - 1) / 2;
}

int main(void)
{
	int status, wrong = 0;
	char source[64];

	snprintf(source, sizeof(source), "root:127.0.0.1:%d",
	         20000 + (int)getpid() % 10000);
	for (int rank = 0; rank < MEMBERS; rank++)
		if (fork() == 0)
			exit(member(source, rank));
	/* This process has the address ready for the members. */
	if (xport_group_serve(source + 5, MEMBERS, NULL, LIMIT_MS))
		fprintf(stderr, "rank 0 serves itself\n");
	while (wait(&status) > 0)
		wrong |= status;
	return wrong != 0;
}
