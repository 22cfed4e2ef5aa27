/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/node.h"

#include <errno.h>
#include <numa.h>
#include <numaif.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "services/last_error.h"

/* Pages that are looked at to say where a slab lies. */
enum { SAMPLES = 64 };

int svc_node_resolve(int asked, int *node, const char *operation)
{
	unsigned cpu, local = 0;
	long long room;
	int n = asked - 1;

	if (numa_available() < 0)
		return svc_fail(XPORT_ERR_NOT_SUPPORTED, operation, "leave xport_pool_attr.node at 0",
		                "this kernel cannot place memory on NUMA nodes (get_mempolicy: %s)", strerror(errno));
	if (asked == XPORT_POOL_NODE_LOCAL)
		n = getcpu(&cpu, &local) == 0 ? (int)local : 0;
	room = n < 0 || n >= SVC_NODES ? -1 : numa_node_size64(n, NULL);
	/* Beside a node without memory the system takes the nearest that has some. */
	if (room < 0 || (room == 0 && asked != XPORT_POOL_NODE_LOCAL))
		return svc_fail(XPORT_ERR_NOT_SUPPORTED, operation, "numactl --hardware lists the nodes",
		                "there is no NUMA node %d with memory; the highest is %d", n, numa_max_node());
	*node = n;
	return XPORT_OK;
}

int svc_node_prefer(int node, struct svc_policy *saved)
{
	unsigned long nodes[SVC_NODE_WORDS] = {0};

	if (get_mempolicy(&saved->mode, saved->nodes, SVC_NODES, NULL, 0) != 0)
		return XPORT_ERR_SYSTEM;
	nodes[(size_t)node / (8 * sizeof(nodes[0]))] = 1ul << ((size_t)node % (8 * sizeof(nodes[0])));
	/* Not MPOL_BIND: where the node is full, that ends in the kernel killing somebody. */
	return set_mempolicy(MPOL_PREFERRED, nodes, SVC_NODES) == 0 ? XPORT_OK : XPORT_ERR_SYSTEM;
}

void svc_node_restore(const struct svc_policy *saved)
{
	bool none = true;

	for (size_t i = 0; i < SVC_NODE_WORDS; i++)
		none = none && saved->nodes[i] == 0;
	set_mempolicy(saved->mode, none ? NULL : saved->nodes, none ? 0 : SVC_NODES);
}

void svc_node_tell(void *base, size_t length, int node, char *text, size_t room)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), step = length / SAMPLES & ~(page - 1), n = 0, there = 0;
	int status[SAMPLES];
	void *pages[SAMPLES];

	if (step == 0)
		step = page;
	for (size_t at = 0; n < SAMPLES && at < length; at += step)
		pages[n++] = (char *)base + at;
	if (move_pages(0, n, pages, NULL, status, 0) != 0) {
		snprintf(text, room, "unknown (move_pages: %s)", strerror(errno));
		return;
	}
	for (size_t i = 0; i < n; i++)
		there += status[i] == node;
	snprintf(text, room, "%zu of %zu sampled pages are on node %d", there, n, node);
}
