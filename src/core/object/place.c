/* SPDX-License-Identifier: BSD-3-Clause */
/* place.c - binds the progress thread to processors. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* cpu_set_t */
#endif
#include "core/object/place.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/node.h"
#include "core/object/instance.h"
#include "core/object/set.h"
#include "core/object/transport.h"

const char *xpi_place_sysfs = "/sys";

_Static_assert(sizeof(((struct xport *)NULL)->place.before) == sizeof(cpu_set_t), "a set of processors");
_Static_assert((int)XPI_PLACE_ROOM == (int)XPI_NODE_LINE, "a line of sysfs");

int xpi_place_find(const char *devices, char *line)
{
	struct xpi_node_tree tree = {xpi_place_sysfs, xpi_fd_up};
	int node = xpi_node_of(devices, xpi_node_file, &tree);
	cpu_set_t set;

	if (node >= 0 && xpi_node_cores(node, xpi_node_file, &tree, line, &set))
		return node;
	if (node >= 0)
		snprintf(line, XPI_PLACE_ROOM, "NUMA node %d of %.200s has no processors", node, devices);
	else if (node == XPI_NODE_SEVERAL)
		snprintf(line, XPI_PLACE_ROOM, "the devices %.200s are on several NUMA nodes", devices);
	else
		snprintf(line, XPI_PLACE_ROOM, "the device %.200s has no NUMA node",
		         devices[0] != '\0' ? devices : "(not named by its stack)");
	return -1;
}

/* The devices of all transports that are open. */
static void list_devices(const struct xport *x, char *devices, size_t len)
{
	size_t at = 0;

	devices[0] = '\0';
	xpi_list_for(l, &x->transports) {
		const char *device = xpi_container(l, struct xpi_transport, link)->caps.device;

		if (at + strlen(device) + 3 > len)
			break;
		at += (size_t)snprintf(devices + at, len - at, "%s%s", at > 0 ? ", " : "", device);
	}
}

static bool bind_thread(struct xport *x, const char *cores)
{
	cpu_set_t set;
	int e;

	if (!xpi_node_list(cores, &set)) /* LCOV_EXCL_BR_LINE: it was read before */
		return false;
	e = pthread_setaffinity_np(x->thread, sizeof(set), &set);
	if (e != 0)
		xpi_log(x->log, XPORT_LOG_WARN, "0006",
		        "cannot bind the progress thread to processors %.200s: error %d", cores, e);
	return e == 0;
}

/* Moves the thread to the processors of the node. Its first place is where it goes back to if there is no node later. */
static void move_near(struct xport *x, int node, const char *cores, const char *devices)
{
	cpu_set_t before;

	if (!x->place.moved) {
		if (pthread_getaffinity_np(x->thread, sizeof(before), &before) != 0)
			memset(&before, 0xff, sizeof(before)); /* the kernel takes those that are allowed */
		memcpy(x->place.before, &before, sizeof(before));
	}
	if (!bind_thread(x, cores))
		return;
	x->place.moved = true;
	xpi_log(x->log, XPORT_LOG_INFO, "0031",
	        "the progress thread runs on processors %.200s, of NUMA node %d, near %.200s", cores, node, devices);
}

/* Moves the thread back, and logs why there are no processors near the device. */
static void move_back(struct xport *x, const char *why)
{
	cpu_set_t before;

	memcpy(&before, x->place.before, sizeof(before));
	if (x->place.moved)
		x->place.moved = pthread_setaffinity_np(x->thread, sizeof(before), &before) != 0;
	/* Of several transports, another one may still open. */
	xpi_log(x->log, xpi_several(x) ? XPORT_LOG_INFO : XPORT_LOG_WARN, "0030",
	        "XPORT_PROGRESS=thread@device: %.300s; the progress thread %s; to choose, set thread@CORES", why,
	        x->place.moved ? "stays where it is" : "runs on any processor");
}

static int bind_near(struct xport *x, bool again)
{
	char devices[512], line[XPI_PLACE_ROOM];
	int node;

	list_devices(x, devices, sizeof(devices));
	node = xpi_place_find(devices, line);
	if (again && node == x->place.node)
		return node;
	if (node >= 0)
		move_near(x, node, line, devices);
	else
		move_back(x, line);
	return node;
}

void xpi_place_thread(struct xport *x)
{
	const char *cores = x->settings.progress_cores;

	if (!x->thread_running || cores[0] == '\0')
		return;
	if (strcmp(cores, "device") == 0)
		x->place.node = bind_near(x, false);
	else
		(void)bind_thread(x, cores);
}

void xpi_place_again(struct xport *x)
{
	if (x->thread_running && strcmp(x->settings.progress_cores, "device") == 0)
		x->place.node = bind_near(x, true);
}
