/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * table.h - from an address to the span that it lies in.  Many threads look things up without a lock, while one at a
 * time (the pool's lock is its) enters and removes.
 *
 * ASSUMPTION: whoever looks up an address owns a block there, so that its span does not go away meanwhile.  A slot's
 * key therefore never changes once it is set; of another slot than the one looked for, the key alone is read.
 */
#ifndef SVC_TABLE_H
#define SVC_TABLE_H

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

struct svc_table {
	unsigned shift; /* 64 less the bits of the number of slots */
	size_t mask;
	size_t used, live;       /* slots with a key, and with a span */
	struct svc_table *older; /* what some thread may still be reading; freed with the pool */
	struct svc_slot slot[];
};

static inline struct svc_span *svc_table_find(struct svc_table *t, const void *address)
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
struct svc_table *svc_table_new(void);
/* Makes room for `n` more.  NULL: out of memory, and the old one is as it was; else the table to use from now on. */
struct svc_table *svc_table_room(struct svc_table *t, size_t n);
/* Enters; there is room. */
void svc_table_enter(struct svc_table *t, uintptr_t base, struct svc_span *span);
void svc_table_remove(struct svc_table *t, uintptr_t base);
void svc_table_free(struct svc_table *t);

#endif
