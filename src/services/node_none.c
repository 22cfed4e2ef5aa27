/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/node.h"

#include <stdio.h>

#include "services/last_error.h"

int svc_node_resolve(int asked, int *node, const char *operation)
{
	(void)asked;
	(void)node;
	return svc_fail(XPORT_ERR_NOT_SUPPORTED, operation,
	                "build libxport with libnuma (Debian: libnuma-dev), or leave xport_pool_attr.node at 0",
	                "this build cannot place memory on NUMA nodes: it was configured without libnuma");
}

int svc_node_prefer(int node, struct svc_policy *saved)
{
	(void)node;
	(void)saved;
	return XPORT_ERR_NOT_SUPPORTED;
}

void svc_node_restore(const struct svc_policy *saved)
{
	(void)saved;
}

void svc_node_tell(void *base, size_t length, int node, char *text, size_t room)
{
	(void)base;
	(void)length;
	(void)node;
	snprintf(text, room, "unknown");
}
