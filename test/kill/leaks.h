/* SPDX-License-Identifier: BSD-3-Clause */
/* leaks.h - what a survivor holds at a moment when nothing of a dead victim should be left. */
#ifndef TEST_KILL_LEAKS_H
#define TEST_KILL_LEAKS_H

#include "actor.h"

struct leaks {
	int fds;    /* of this process */
	int files;  /* in /dev/shm */
	long heap;  /* bytes that malloc has handed out in small blocks, what a leak is made of */
	long large; /* and in blocks that it maps: pools of a stack below, which grow by a chunk when a moment asks for one more */
	long rss;   /* KiB */
};

/* Before the first memory of the process: has malloc tell the two kinds apart. */
void leaks_begin(void);

struct leaks leaks_now(void);
/* Waits a moment until there are not more descriptors than at first, and nothing is in flight; fails if that stays so. */
void leaks_check(struct actor *a, const struct leaks *first);

#endif
