/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * flood.h - for tests: one client with many endpoints, and more calls in flight than a node or the keeper takes by default.
 *
 * It stops itself when its endpoints are there, so that a test can stop the nodes meanwhile.  When it is continued it makes
 * the calls, and prints "flooded".
 */
#ifndef STORAGE_FLOOD_H
#define STORAGE_FLOOD_H

enum sf_how {
	SF_NONE,
	SF_STAY,  /* puts to two nodes that copy to each other; waits for all, and repeats those that were refused */
	SF_LEAVE, /* the same, and leaves without an answer */
	SF_WATCH  /* waits at the keeper for maps, and stops itself again */
};

/* Returns SF_NONE if it is no name of one. */
enum sf_how sf_how(const char *name);

/* Returns the exit status. */
int sf_run(const char *keeper, enum sf_how how);

#endif
