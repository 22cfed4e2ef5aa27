/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * group_sum.c - the processes of a job: each gives its rank, and all get the sum.
 *
 *	mpiexec.hydra -n 8 group_sum
 *	XPORT_GROUP=root:127.0.0.1:7000 XPORT_GROUP_SIZE=2 XPORT_GROUP_RANK=0 group_sum &
 *	XPORT_GROUP=root:127.0.0.1:7000 XPORT_GROUP_SIZE=2 XPORT_GROUP_RANK=1 group_sum
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xport_services.h>

enum { LIMIT_MS = 30000 };

static xport_group *group;

static void check(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_services_last_error(&e);
	fprintf(stderr, "group_sum: %s: %s\n", xport_strerror(status), e.status == status ? e.text : "");
	if (e.status == status && e.hint[0] != '\0')
		fprintf(stderr, "group_sum: hint: %s\n", e.hint);
	if (xport_group_failed(group) >= 0)
		fprintf(stderr, "group_sum: rank %d failed\n", xport_group_failed(group));
	exit(1);
}

int main(void)
{
	struct xport_group_info info = {.size = sizeof(info)};
	char name[64] = "", key[32];
	size_t len = sizeof(name);
	int64_t sum;
	xport *x;

	check(xport_open(NULL, &x));
	check(xport_group_create(x, NULL, LIMIT_MS, &group));
	check(xport_group_query(group, &info));

	/* Every member gets what every other one has put. */
	snprintf(key, sizeof(key), "address of %d", info.rank);
	check(xport_group_put(group, key, info.address, strlen(info.address)));
	check(xport_group_fence(group, LIMIT_MS));
	snprintf(key, sizeof(key), "address of %d", info.members - 1);
	check(xport_group_get(group, key, name, &len));

	sum = info.rank;
	check(xport_group_allreduce(group, &sum, &sum, 1, XPORT_GROUP_INT64, XPORT_GROUP_SUM, LIMIT_MS));
	if (info.rank == 0)
		printf("%d members by %s: the sum of their ranks is %lld; the last one is at %.*s\n", info.members,
		       info.source, (long long)sum, (int)len, name);

	check(xport_group_barrier(group, LIMIT_MS));
	check(xport_group_destroy(group, 1000));
	xport_close(x);
	return 0;
}
