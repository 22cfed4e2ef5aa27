/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * addr_map.h - a map from an address to the span that contains it. Many threads look addresses up without a lock. One
 * at a time, under the pool's lock, inserts and removes.
 *
 * ASSUMPTION: the caller of a lookup owns a block at the address, so its span does not go away meanwhile. So the key of
 * a slot never changes once it is set. Of other slots a lookup reads the key only.
 */
#ifndef SVC_ADDR_MAP_H
#define SVC_ADDR_MAP_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Spans are this large, and aligned to it. */
enum { SVC_SPAN_BITS = 16, SVC_SPAN = 1 << SVC_SPAN_BITS };

struct svc_span;

struct svc_slot {
	_Atomic uintptr_t key; /* the address by SVC_SPAN; 0: free */
	struct svc_span *_Atomic span; /* NULL: removed */
};

struct svc_addr_map {
	unsigned shift; /* 64 less the bits of the number of slots */
	size_t mask;
	size_t used, live;       /* slots with a key, and with a span */
	struct svc_addr_map *older; /* what some thread may still be reading; freed with the pool */
	struct svc_slot slot[];
};

static inline struct svc_span *svc_addr_map_find(struct svc_addr_map *t, const void *address)
{
	uintptr_t key = (uintptr_t)address >> SVC_SPAN_BITS, found;
	size_t i = (size_t)((uint64_t)key * 0x9e3779b97f4a7c15u >> t->shift);

	for (;; i = (i + 1) & t->mask) {
		found = atomic_load_explicit(&t->slot[i].key, memory_order_acquire);
		if (found == key && key != 0)
			return atomic_load_explicit(&t->slot[i].span, memory_order_acquire);
		if (found == 0)
			return NULL;
	}
}

/* An empty one; NULL: out of memory. */
struct svc_addr_map *svc_addr_map_new(void);
/* Makes room for `n` more.  NULL: out of memory, and the old one is as it was; else the table to use from now on. */
struct svc_addr_map *svc_addr_map_room(struct svc_addr_map *t, size_t n);
/* Enters; there is room. */
void svc_addr_map_enter(struct svc_addr_map *t, uintptr_t base, struct svc_span *span);
void svc_addr_map_remove(struct svc_addr_map *t, uintptr_t base);
void svc_addr_map_free(struct svc_addr_map *t);

#endif
