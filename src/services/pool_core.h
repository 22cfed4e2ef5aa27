/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pool_core.h - the part of a pool that its threads share: its slabs, and the blocks that are in no thread's cache.
 *
 * Locks: `lock` protects all of it except the reading side of the table; it is held briefly. `grow` is held while
 * memory is registered, so that one thread at a time does that and the others continue; it is taken before `lock`.
 */
#ifndef SVC_POOL_CORE_H
#define SVC_POOL_CORE_H

#include <pthread.h>

#include "services/slab.h"

enum { SVC_CLASSES = 19, SVC_SMALL_MAX = SVC_SPAN, SVC_LARGE = SVC_CLASSES };

struct svc_piece {
	void *address;
	struct svc_span *span;
};

struct svc_pool_core {
	pthread_mutex_t lock, grow;
	struct svc_addr_map *_Atomic addr_map;
	struct svc_source source;
	struct svc_slab *slabs;
	struct svc_span *partial[SVC_CLASSES]; /* spans of this class that have free blocks */
	size_t slab_bytes, max_bytes;
	uint64_t owner;    /* the thread that made the pool */
	bool any_grows;    /* the instance locks: any thread may register */
	bool debug;
	uint64_t nslabs, registered, registrations, huge_bytes;
	uint64_t out;      /* bytes of blocks that are not here */
};

extern const uint32_t svc_class_size[SVC_CLASSES];

/* Memory of its own: its fields are the caller's to set before. */
int svc_pool_core_init(struct svc_pool_core *d, const char *operation);
/* BUSY: some slabs are left, and the call may come again. */
int svc_pool_core_fini(struct svc_pool_core *d);

/* Takes up to `n` blocks of the class, growing if there is none.  Returns how many, at least 1, or an error. */
int svc_pool_core_take(struct svc_pool_core *d, unsigned class, struct svc_piece *list, int n, const char *operation);
/* Takes `spans` spans as one block. */
int svc_pool_core_take_large(struct svc_pool_core *d, size_t spans, struct svc_piece *piece, const char *operation);
void svc_pool_core_give(struct svc_pool_core *d, const struct svc_piece *list, int n);

int svc_pool_core_reserve(struct svc_pool_core *d, size_t bytes, const char *operation);
int svc_pool_core_add(struct svc_pool_core *d, xport_mr *mr, const char *operation);
/* Ends the slabs that are wholly free; how many, or BUSY. */
int svc_pool_core_trim(struct svc_pool_core *d);

static inline struct svc_span *svc_pool_core_span(struct svc_pool_core *d, const void *address)
{
	return svc_addr_map_find(atomic_load_explicit(&d->addr_map, memory_order_acquire), address);
}

#endif
