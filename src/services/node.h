/* SPDX-License-Identifier: BSD-3-Clause */
/* node.h - places new memory on a NUMA node. node.c uses libnuma; node_none.c is for builds without it. */
#ifndef SVC_NODE_H
#define SVC_NODE_H

#include <stdbool.h>

#include "services/xport_services.h"

enum { SVC_NODES = 1024, SVC_NODE_WORDS = SVC_NODES / (8 * sizeof(unsigned long)) };

/* The calling thread's policy, put aside. */
struct svc_policy {
	int mode;
	unsigned long nodes[SVC_NODE_WORDS];
};

/* *node, as in xport_pool_attr, becomes the number of a node that has memory.  NOT_SUPPORTED: none such here. */
int svc_node_resolve(int asked, int *node, const char *operation);
/* What the calling thread touches first from now on comes from this node, while it has room. */
int svc_node_prefer(int node, struct svc_policy *saved);
void svc_node_restore(const struct svc_policy *saved);
/* Says where these pages lie. */
void svc_node_tell(void *base, size_t length, int node, char *text, size_t room);

/* ---- node_device.c ---- */

/* Where sysfs is mounted; tests set another folder. */
extern const char *svc_node_sysfs;
/* The node of the devices, "mlx5_0:1", "rxe0 port 1" or "lo, eth0". Returns false if they have none: `text` then says why. */
bool svc_node_device(const char *devices, int *node, char *text, size_t room);

#endif
