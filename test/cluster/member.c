/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * member.c - a member of a group, for test/cluster/run:   member LIMIT_MS [TIMES]
 *
 * Joins TIMES times one after the other, with a barrier each.  Prints "rank R of N by SOURCE", or the error.
 */
#include <stdio.h>
#include <stdlib.h>

#include "services/xport_services.h"

static int wrong(const char *what, int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (xport_services_last_error(&e) != XPORT_OK || e.status != status)
		e.text[0] = e.hint[0] = '\0';
	printf("%s: %s: %s|%s\n", what, xport_status_name(status), e.text, e.hint);
	return 1;
}

int main(int argc, char **argv)
{
	int limit = argc > 1 ? atoi(argv[1]) : 10000, times = argc > 2 ? atoi(argv[2]) : 1, r;
	struct xport_group_info info = {.size = sizeof(info)};
	xport_group *g;
	xport *x;

	r = xport_open(NULL, &x);
	if (r != XPORT_OK)
		return wrong("open", r);
	for (int i = 0; i < times; i++) {
		r = xport_group_create(x, NULL, limit, &g);
		if (r != XPORT_OK) {
			xport_close(x);
			return wrong("create", r);
		}
		r = xport_group_barrier(g, limit);
		if (r == XPORT_OK)
			r = xport_group_query(g, &info);
		if (r != XPORT_OK)
			return wrong("barrier", r);
		printf("rank %d of %d by %s\n", info.rank, info.members, info.source);
		fflush(stdout);
		(void)xport_group_destroy(g, 1000);
	}
	xport_close(x);
	return 0;
}
