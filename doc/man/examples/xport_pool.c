/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
	struct xport_pool_attr attr = {.size = sizeof(attr),
	                               .rights = XPORT_REMOTE_WRITE,
	                               .max_bytes = 64 << 20};
	struct xport_pool_info info = {.size = sizeof(info)};
	struct xport_block a, b, c;
	char key[2048];
	size_t len = sizeof(key);
	xport_mr *mine;
	xport_pool *pool;
	xport *x;

	if (xport_open(NULL, &x) != XPORT_OK)
		return 1;
	must(xport_pool_create(x, &attr, &pool));
	must(xport_pool_reserve(pool, 1 << 20));
	must(xport_pool_alloc(pool, 1000, 0, &a));
	must(xport_pool_alloc(pool, 1000, 4096, &b));
	/* One key leads to both of them, if they are in one slab. */
	if (xport_rkey_pack(a.mr, key, &len) != XPORT_OK)
		return 1;
	printf("%zu bytes of key, blocks at %llu and %llu\n", len,
	       (unsigned long long)a.offset, (unsigned long long)b.offset);

	must(xport_pool_hold(pool, a.address)); /* before an operation */
	must(xport_pool_free(pool, a.address)); /* in quarantine */
	must(xport_pool_query(pool, &info));
	printf("%llu block waits for its operation\n",
	       (unsigned long long)info.quarantined);
	must(xport_pool_release(pool, a.address)); /* at its completion */

	must(xport_pool_find(pool, (char *)b.address + 10, &c));
	must(xport_pool_free(pool, c.address)); /* which is b */
	if (xport_mr_alloc(x, 1 << 20, XPORT_REMOTE_WRITE, &mine) != XPORT_OK)
		return 1;
	must(xport_pool_add(pool, mine));
	printf("%d slabs were not needed\n", xport_pool_trim(pool));
	must(xport_pool_destroy(pool));
	xport_close(x);
	return 0;
}
