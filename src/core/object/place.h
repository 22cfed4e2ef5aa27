/* SPDX-License-Identifier: BSD-3-Clause */
/* place.h - the processors on which the progress thread runs. */
#ifndef XPI_CORE_OBJECT_PLACE_H
#define XPI_CORE_OBJECT_PLACE_H

#include <stddef.h>

struct xport;

enum { XPI_PLACE_ROOM = 1024 };

/* Where sysfs is mounted; tests set another folder. */
extern const char *xpi_place_sysfs;

/*
 * xpi_place_find - find the processors near devices, "lo, mlx5_0:1".
 *
 * Returns their NUMA node, and writes its list of processors to `line`, of XPI_PLACE_ROOM bytes. Without a node it returns
 * -1, and writes the reason to `line`.
 */
int xpi_place_find(const char *devices, char *line);

/* Binds the progress thread, which has just begun, as XPORT_PROGRESS says. */
void xpi_place_thread(struct xport *x);

/* Another transport has opened: moves the thread if all devices together have another node, or none. */
void xpi_place_again(struct xport *x);

#endif
