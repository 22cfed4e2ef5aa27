/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * near.c - opens an instance as the environment says, and a pool near its device. Prints a line: the device, what
 * xport_pool_query says of the memory, and the node of each of its pages. Then it waits until its input ends.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "services/xport_services.h"

enum { BYTES = 1 << 20, PAGE = 4096, PAGES = BYTES / PAGE };

static int bad(const char *what, int status)
{
	fprintf(stderr, "near: %s: %s\n", what, xport_strerror(status));
	return 1;
}

/* The node of all pages, -1 if they are on several or unknown. */
static int node_of(char *base)
{
	static void *pages[PAGES];
	static int nodes[PAGES];

	for (int i = 0; i < PAGES; i++) {
		pages[i] = base + (size_t)i * PAGE;
		base[(size_t)i * PAGE] = 1;
	}
	if (syscall(SYS_move_pages, 0, (unsigned long)PAGES, pages, NULL, nodes, 0) != 0)
		return -1;
	for (int i = 1; i < PAGES; i++)
		if (nodes[i] != nodes[0])
			return -1;
	return nodes[0];
}

int main(void)
{
	struct xport_attr x_attr = {.size = sizeof(x_attr)};
	struct xport_pool_attr attr = {.size = sizeof(attr),
	                               .rights = XPORT_REMOTE_READ,
	                               .node = XPORT_POOL_NODE_DEVICE,
	                               .slab_bytes = 4 * BYTES};
	struct xport_pool_info pool = {.size = sizeof(pool)};
	struct xport_info info = {.size = sizeof(info)};
	struct xport_block block;
	xport_pool *p;
	xport *x;
	int r;

	if ((r = xport_open(&x_attr, &x)) != XPORT_OK)
		return bad("xport_open", r);
	if ((r = xport_query(x, &info)) != XPORT_OK || (r = xport_pool_create(x, &attr, &p)) != XPORT_OK ||
	    (r = xport_pool_alloc(p, BYTES, 0, &block)) != XPORT_OK || (r = xport_pool_query(p, &pool)) != XPORT_OK)
		return bad("the pool", r);
	printf("device %s; pool %s; pages %d\n", info.device, pool.placement, node_of(block.address));
	fflush(stdout);
	while (getchar() != EOF)
		;
	r = xport_pool_destroy(p);
	xport_close(x);
	return r == XPORT_OK ? 0 : bad("xport_pool_destroy", r);
}
