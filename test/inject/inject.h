/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inject.h - the injector: stands between the library and the functions that it calls, counts the calls, and makes one
 * of them fail.
 *
 * The linker redirects the library's calls to it (inject.mk). Nothing happens before inject_arm.
 */
#ifndef TEST_INJECT_INJECT_H
#define TEST_INJECT_INJECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { INJECT_SHORT = -9999, INJECT_SITES = 4096, INJECT_STEPS = 2, INJECT_ERRORS = 16, INJECT_BLOCKS = 32 };

/* The calls that are counted together. */
enum inject_kind { INJECT_MEMORY, INJECT_SYSTEM, INJECT_SODIUM, INJECT_UCX, INJECT_FABRIC, INJECT_RDMA };

/* A call of calls.h. */
struct inject_call {
	const char *name;
	enum inject_kind kind;
	bool after; /* it is done all the same */
	int nerrors, errors[INJECT_ERRORS];
};

extern const struct inject_call inject_calls[];
extern const int inject_ncalls;

/* One failure.  With a site, the nth call from there; else the nth call of the kind, wherever from. */
struct inject_step {
	bool active;
	uintptr_t site; /* where the call returns to, from the program's beginning; 0: none */
	enum inject_kind kind;
	unsigned nth; /* from 1 */
	int error;
	bool persistent; /* and all later ones of the same function (site), or of the kind */
};

/* A place in the library from which one of the calls is made. */
struct inject_site {
	_Atomic uintptr_t at;
	int call; /* index in inject_calls */
	_Atomic unsigned made, failed;
};

/* What a run leaves behind, in memory that outlives it. */
struct inject_run {
	struct inject_step steps[INJECT_STEPS];
	_Atomic bool struck[INJECT_STEPS]; /* the failure took place */
	_Atomic unsigned counts[8];        /* calls by kind */
	struct inject_site sites[INJECT_SITES];
	/* what is left when it has ended */
	int nblocks;
	struct {
		uintptr_t site;
		size_t size;
	} blocks[INJECT_BLOCKS];
};

/* From now on calls are counted, and fail as run->steps say. */
void inject_arm(struct inject_run *run);
/* From now on no more than one allocation fails. */
void inject_relent(void);
/* No more; what memory the library has allocated since and not given back stands in run->blocks. */
void inject_disarm(void);

/* rdma.c, which is there if the back end verbs is. */
void inject_keep_devices(void) __attribute__((weak));

#endif
