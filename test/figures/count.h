/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * count.h - counts the calls of a thread to malloc, to mutexes and to the kernel, and who made them.
 *
 * count.c replaces libc's functions of these names for the whole process, including UCX. The owner of the return
 * address is the caller. "Ours" is the program itself, which has the core linked into it, and the back end's module.
 * Calls that libc makes on behalf of others are "libc".
 */
#ifndef FIGURES_COUNT_H
#define FIGURES_COUNT_H

enum count_what { COUNT_ALLOC, COUNT_LOCK, COUNT_SYSTEM, COUNT_WHATS };
enum count_whose { COUNT_OURS, COUNT_LIBC, COUNT_UCX, COUNT_WHOSES };

struct count {
	unsigned long n[COUNT_WHATS][COUNT_WHOSES];
	const char *first[COUNT_WHATS]; /* the first function that we called ourselves */
	void *first_from[COUNT_WHATS];
};

/* Finds out who lives where; after the module was loaded. */
void count_init(void);
/* Counts calls of the calling thread into `c`; NULL: no more. */
void count_into(struct count *c);

#endif
