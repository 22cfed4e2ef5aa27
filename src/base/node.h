/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node.h - the NUMA node of a network device, and lists of processors as sysfs has them. The functions are all inline, so
 * the services and the tools use them, too. The caller passes a function that reads files: of sysfs, or of a tree for tests.
 * xpi_node_file is such a function.
 */
#ifndef XPI_BASE_NODE_H
#define XPI_BASE_NODE_H

#ifndef _GNU_SOURCE
#error "define _GNU_SOURCE before the first include: cpu_set_t"
#endif
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { XPI_NODES = 1024, XPI_NODE_NONE = -1, XPI_NODE_SEVERAL = -2, XPI_NODE_LINE = 1024 };

/* Reads the beginning of a file as a string; false: it cannot be read. `path` is relative to /sys. */
typedef bool (*xpi_node_read)(void *arg, const char *path, char *text, size_t room);

/* Where sysfs is mounted, and what moves a new descriptor above 2: each library has such a function. */
struct xpi_node_tree {
	const char *root;
	int (*up)(int fd);
};

/* An xpi_node_read: `arg` is a struct xpi_node_tree. */
static inline bool xpi_node_file(void *arg, const char *path, char *text, size_t room)
{
	const struct xpi_node_tree *tree = arg;
	char whole[256];
	ssize_t n;
	int fd;

	snprintf(whole, sizeof(whole), "%s/%s", tree->root, path);
	fd = tree->up(open(whole, O_RDONLY | O_CLOEXEC));
	if (fd < 0)
		return false;
	n = read(fd, text, room - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	return true;
}

/* The node that a file has, "3\n"; NONE: it has none, or cannot be read. */
static inline int xpi_node_in(const char *path, xpi_node_read read, void *arg)
{
	char text[16] = "", *end;
	long node;

	if (!read(arg, path, text, sizeof(text)))
		return XPI_NODE_NONE;
	node = strtol(text, &end, 10);
	return end != text && node >= 0 && node < XPI_NODES ? (int)node : XPI_NODE_NONE;
}

/* The node of class/CLASS/NAME. A device of virtio is the child of the device on the bus that has the node. */
static inline int xpi_node_of_class(const char *class_name, const char *name, size_t len, xpi_node_read read, void *arg)
{
	static const char *const files[] = {"device/numa_node", "device/../numa_node"};
	int node = XPI_NODE_NONE;

	for (int i = 0; i < 2 && node < 0; i++) {
		char path[160];

		snprintf(path, sizeof(path), "class/%s/%.*s/%s", class_name, (int)len, name, files[i]);
		node = xpi_node_in(path, read, arg);
	}
	return node;
}

/* A name from a peer or a stack is no path. */
static inline bool xpi_node_name(const char *name, size_t len)
{
	return len > 0 && len <= 64 && name[0] != '.' && memchr(name, '/', len) == NULL;
}

/* The node of one device, NONE if sysfs has none. An rxe device is on the node of the network device that it names. */
static inline int xpi_node_of_one(const char *device, size_t len, xpi_node_read read, void *arg)
{
	char path[160], name[80] = "";
	int node;

	if (!xpi_node_name(device, len))
		return XPI_NODE_NONE;
	node = xpi_node_of_class("infiniband", device, len, read, arg);
	if (node < 0)
		node = xpi_node_of_class("net", device, len, read, arg);
	if (node >= 0)
		return node;
	snprintf(path, sizeof(path), "class/infiniband/%.*s/parent", (int)len, device);
	if (!read(arg, path, name, sizeof(name)) || !xpi_node_name(name, strcspn(name, "\n")))
		return XPI_NODE_NONE;
	return xpi_node_of_class("net", name, strcspn(name, "\n"), read, arg);
}

/*
 * The node of the devices; NONE, or SEVERAL if they are on different nodes. Stacks name them "mlx5_0:1", "rxe0 port 1" or
 * "lo, eth0": a name ends at a colon, a space or a comma, and a space may follow the comma.
 */
static inline int xpi_node_of(const char *devices, xpi_node_read read, void *arg)
{
	int found = XPI_NODE_NONE;

	for (const char *at = devices; *at != '\0';) {
		size_t all = strcspn(at, ","), skip = strspn(at, " ");
		int n = xpi_node_of_one(at + skip, strcspn(at + skip, " :,"), read, arg);

		if (n >= 0 && found >= 0 && n != found)
			return XPI_NODE_SEVERAL;
		found = n >= 0 ? n : found;
		at += all + (at[all] == ',');
	}
	return found;
}

/* Reads "0-3,8"; false: it is no such list, or names processor CPU_SETSIZE (1024) or a later one. */
static inline bool xpi_node_list(const char *text, cpu_set_t *set)
{
	CPU_ZERO(set);
	for (;;) {
		unsigned long first, last;
		char *end;

		if (*text < '0' || *text > '9')
			return false;
		first = last = strtoul(text, &end, 10);
		if (*end == '-' && end[1] >= '0' && end[1] <= '9')
			last = strtoul(end + 1, &end, 10);
		if (last < first || last >= CPU_SETSIZE)
			return false;
		while (first <= last)
			CPU_SET(first++, set);
		if (*end == '\0')
			return true;
		if (*end != ',')
			return false;
		text = end + 1;
	}
}

/* The processors of a node, as a line of at most XPI_NODE_LINE bytes, and as a set; false: it has none, or is unknown. */
static inline bool xpi_node_cores(int node, xpi_node_read read, void *arg, char *line, cpu_set_t *set)
{
	char path[64];

	snprintf(path, sizeof(path), "devices/system/node/node%d/cpulist", node);
	if (!read(arg, path, line, XPI_NODE_LINE))
		return false;
	line[strcspn(line, "\n")] = '\0';
	return xpi_node_list(line, set);
}

#endif
