/* SPDX-License-Identifier: BSD-3-Clause */
/* node_device.c - finds the NUMA node of a network device in sysfs. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* base/node.h */
#endif
#include <stdio.h>

#include "base/node.h"
#include "services/group_fd.h"
#include "services/node.h"

const char *svc_node_sysfs = "/sys";

bool svc_node_device(const char *devices, int *node, char *text, size_t room)
{
	struct xpi_node_tree tree = {svc_node_sysfs, svc_fd_up};

	*node = xpi_node_of(devices, xpi_node_file, &tree);
	if (*node == XPI_NODE_SEVERAL)
		snprintf(text, room, "the system chooses: the devices %.80s are on several NUMA nodes", devices);
	else if (*node < 0)
		snprintf(text, room, "the system chooses: the device %.80s has no NUMA node",
		         devices[0] != 0 ? devices : "(not named by its stack)");
	return *node >= 0;
}
