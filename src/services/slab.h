/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slab.h - a registered region, cut into spans of 64 KiB. A span is free, or is cut into blocks of one size, or is part
 * of a block of several spans. The bookkeeping is outside of the registered memory, which peers may write.
 *
 * Locks: the pool's lock protects all of it except the blocks' states.
 *
 * A block's state is one word:
 *
 *	0                  in the pool, or in a thread's cache
 *	USED | holds       handed out
 *	USED | FREED | n   in quarantine: freed, and still held n times
 */
#ifndef SVC_SLAB_H
#define SVC_SLAB_H

#include <stdbool.h>

#include "services/addr_map.h"
#include "services/xport_services.h"

/* What we map ourselves is a multiple of 2 MiB. */
enum { SVC_BLOCK_MIN = 64, SVC_SPAN_BLOCKS = SVC_SPAN / SVC_BLOCK_MIN, SVC_HUGE_SPANS = 32 };

#define SVC_USED (UINT32_C(1) << 31)
#define SVC_FREED (UINT32_C(1) << 30)
#define SVC_HOLDS (SVC_FREED - 1)

struct svc_slab;

struct svc_span {
	uintptr_t base;
	size_t block;    /* bytes of a block; 0: free */
	uint32_t magic;  /* 2^32 / block, rounded up; 0: one block */
	uint32_t nblocks;
	uint32_t nfree;
	unsigned class;
	_Atomic uint32_t *state; /* of each block */
	size_t *asked;           /* debug: bytes asked for; SIZE_MAX: filled when it was freed */
	bool filled;             /* debug: as it was freed with, and not in use since; of each span of a block */
	struct svc_span *head;   /* of a block of several spans: the first; else itself */
	struct svc_slab *slab;
	struct svc_span *next, *prev; /* in the pool's list of those of this class that have free blocks */
	uint64_t free[SVC_SPAN_BLOCKS / 64];
};

struct svc_slab {
	struct svc_slab *next;
	xport_mr *mr;
	uintptr_t region;  /* where mr begins */
	size_t length;     /* of mr */
	bool foreign;      /* the user's region */
	void *map;         /* what we mapped, if we did */
	size_t map_length;
	bool huge;
	size_t nspans, nfree;
	struct svc_span span[];
};

/* How the pool gets memory, decided when it is made. */
struct svc_source {
	xport *x;
	uint32_t rights;
	uint32_t flags;
	int node;          /* -1: anywhere */
	bool own;          /* we map and register; else the back end allocates, which peers may reach faster */
	bool memlock;      /* registering locks */
	char huge[160];
	char placement[160];
};

/* Gets, places and registers memory for at least `spans` spans. */
int svc_slab_new(struct svc_source *source, size_t spans, const char *operation, struct svc_slab **slab);
/* Around a region of the user's. */
int svc_slab_around(xport_mr *mr, uint32_t rights, const char *operation, struct svc_slab **slab);
/* Deregisters, and gives back.  BUSY: nothing was done. */
int svc_slab_end(struct svc_slab *slab);

/* The first of `n` free spans in a row; NULL: none. */
struct svc_span *svc_slab_find(struct svc_slab *slab, size_t n);
/* Cuts a free span into blocks.  False: out of memory. */
bool svc_span_cut(struct svc_span *span, size_t block, unsigned class, bool debug);
/* Makes `n` free spans one block. */
bool svc_span_join(struct svc_span *span, size_t n, bool debug);
/* Free again, with what was joined to it. */
void svc_span_uncut(struct svc_span *span);

/* Which block of the span an address is in. */
static inline uint32_t svc_span_index(const struct svc_span *span, const void *address)
{
	return (uint32_t)((uint64_t)((uintptr_t)address - span->base) * span->magic >> 32);
}

static inline void *svc_span_address(const struct svc_span *span, uint32_t index)
{
	return (void *)(span->base + index * span->block);
}

#endif
