/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tcache.h - the blocks that one thread keeps, so that it takes and gives them without a lock. Only its own thread
 * writes it. Other threads read the counters.
 */
#ifndef SVC_TCACHE_H
#define SVC_TCACHE_H

#include "services/pool_core.h"

enum { SVC_KEEP_MAX = 64 };

/* Blocks of one class, the last one given first. */
struct svc_keep {
	_Atomic uint32_t n;
	uint32_t room;
	struct svc_piece piece[SVC_KEEP_MAX];
};

struct svc_tcache {
	struct xport_pool *pool;
	struct svc_tcache *next, *prev;
	_Atomic uint64_t allocations, frees, refills;
	struct svc_keep keep[SVC_CLASSES];
};

/* One writer: no locked instruction is needed. */
static inline void svc_count(_Atomic uint64_t *counter)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* False: there is none. */
static inline bool svc_keep_take(struct svc_keep *k, struct svc_piece *piece)
{
	uint32_t n = atomic_load_explicit(&k->n, memory_order_relaxed);

	if (__builtin_expect(n == 0, 0))
		return false;
	*piece = k->piece[n - 1];
	atomic_store_explicit(&k->n, n - 1, memory_order_relaxed);
	return true;
}

/* False: it is full. */
static inline bool svc_keep_give(struct svc_keep *k, void *address, struct svc_span *span)
{
	uint32_t n = atomic_load_explicit(&k->n, memory_order_relaxed);

	if (__builtin_expect(n >= k->room, 0))
		return false;
	k->piece[n].address = address;
	k->piece[n].span = span;
	atomic_store_explicit(&k->n, n + 1, memory_order_relaxed);
	return true;
}

/* An empty one, which keeps up to `bytes` of each class, but a few blocks at least; NULL: out of memory. */
struct svc_tcache *svc_tcache_new(struct xport_pool *pool, size_t bytes);
/* Fills half of the room of an empty one.  XPORT_OK: at least one is there. */
int svc_tcache_fill(struct svc_tcache *t, struct svc_pool_core *d, unsigned class, const char *operation);
/* Gives half of what is kept to the core, those that were given first. */
void svc_tcache_drain(struct svc_tcache *t, struct svc_pool_core *d, unsigned class);
/* Gives all. */
void svc_tcache_empty(struct svc_tcache *t, struct svc_pool_core *d);

#endif
