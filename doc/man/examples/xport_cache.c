/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <xport_services.h>

static void must(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_services_last_error(&e);
	fprintf(stderr, "%s: %s\n", e.operation, e.text);
	exit(1);
}

int main(void)
{
	struct xport_cache_attr attr = {.size = sizeof(attr),
	                                .max_entries = 100};
	struct xport_cache_info info = {.size = sizeof(info)};
	struct xport_cached got;
	xport_cache *cache;
	char *buffer;
	xport *x;

	if (xport_open(NULL, &x) != XPORT_OK)
		return 1;
	must(xport_cache_create(x, &attr, &cache));
	buffer = malloc(100000);
	for (int i = 0; i < 10; i++) {
		must(xport_cache_get(cache, buffer, 100000, &got));
		/* operations with got.mr as xport_opt.mr, and their completions */
		must(xport_cache_put(cache, &got));
	}
	must(xport_cache_query(cache, &info));
	printf("%llu hits, %llu miss\n", (unsigned long long)info.hits,
	       (unsigned long long)info.misses);
	must(xport_cache_invalidate(cache, buffer, 100000));
	free(buffer); /* not before */
	must(xport_cache_destroy(cache));
	xport_close(x);
	return 0;
}
