/* SPDX-License-Identifier: BSD-3-Clause */
/* scenarios_near.c - see scenarios.h: a progress thread near the device (XPORT_PROGRESS=thread@device). */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/object/place.h"
#include "scene.h"

/* A sysfs in which "memory", the device of loop, is on node 0, and processor 0 as well. */
static char sysfs[] = "/tmp/xport-near-XXXXXX";
static const char *const folders[] = {"class",   "class/net",      "class/net/memory",    "class/net/memory/device",
                                      "devices", "devices/system", "devices/system/node", "devices/system/node/node0"};
enum { FOLDERS = sizeof(folders) / sizeof(folders[0]) };
static const char device_node[] = "class/net/memory/device/numa_node";
static const char node_cores[] = "devices/system/node/node0/cpulist";

static const char *path_of(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", sysfs, name);
	return path;
}

static void make(struct scene *s, const char *name)
{
	FILE *f = fopen(path_of(name), "w");

	if (f == NULL || fputs("0\n", f) < 0 || fclose(f) != 0)
		scene_bad(s, "cannot write %s", path_of(name));
}

void make_sysfs(struct scene *s);
void near_device(struct scene *s);

void make_sysfs(struct scene *s)
{
	snprintf(sysfs + sizeof(sysfs) - 7, 7, "XXXXXX");
	if (mkdtemp(sysfs) == NULL)
		scene_bad(s, "no folder below /tmp");
	for (int i = 0; i < FOLDERS; i++)
		(void)mkdir(path_of(folders[i]), 0700);
	make(s, device_node);
	make(s, node_cores);
	xpi_place_sysfs = sysfs;
}

/* The server's thread is near its device. The client makes it open a second transport, and then there is no node. */
void near_device(struct scene *s)
{
	const char *backend = s->backend;
	bool opened;

	s->backend = "loop:rdma+loop:native";
	s->progress = "thread@device";
	opened = sc_open_side(s, 0);
	(void)unlink(path_of(device_node));
	s->backend = "loop:native";
	s->progress = NULL;
	if (opened && sc_open_side(s, 1) && sc_query(s, 0) && sc_query(s, 1))
		sc_connect_both(s);
	sc_close_all(s);
	s->backend = backend;
	xpi_place_sysfs = "/sys";
	(void)unlink(path_of(node_cores));
	for (int i = FOLDERS - 1; i >= 0; i--)
		(void)rmdir(path_of(folders[i]));
	(void)rmdir(sysfs);
}
