/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/addr_map.h"

#include <stdlib.h>

enum { BITS_MIN = 8 };

static struct svc_addr_map *map_make(unsigned bits)
{
	struct svc_addr_map *t = calloc(1, sizeof(*t) + (sizeof(t->slot[0]) << bits));

	if (t == NULL)
		return NULL;
	t->shift = 64 - bits;
	t->mask = ((size_t)1 << bits) - 1;
	return t;
}

struct svc_addr_map *svc_addr_map_new(void)
{
	return map_make(BITS_MIN);
}

/* The slot of the key, or the free one where it belongs. */
static struct svc_slot *map_place(struct svc_addr_map *t, uintptr_t key)
{
	size_t i = (size_t)((uint64_t)key * 0x9e3779b97f4a7c15u >> t->shift);
	uintptr_t found;

	while ((found = atomic_load_explicit(&t->slot[i].key, memory_order_relaxed)) != 0 && found != key)
		i = (i + 1) & t->mask;
	return &t->slot[i];
}

static void map_enter(struct svc_addr_map *t, uintptr_t key, struct svc_span *span)
{
	struct svc_slot *s = map_place(t, key);

	if (atomic_load_explicit(&s->key, memory_order_relaxed) == 0)
		t->used++;
	t->live += atomic_load_explicit(&s->span, memory_order_relaxed) == NULL;
	atomic_store_explicit(&s->span, span, memory_order_release);
	atomic_store_explicit(&s->key, key, memory_order_release);
}

struct svc_addr_map *svc_addr_map_room(struct svc_addr_map *t, size_t n)
{
	unsigned bits = 64 - t->shift;
	struct svc_addr_map *larger;
	struct svc_span *span;

	if ((t->used + n) * 2 <= t->mask)
		return t;
	while ((t->live + n) * 4 > (size_t)1 << bits)
		bits++;
	larger = map_make(bits);
	if (larger == NULL)
		return NULL;
	for (size_t i = 0; i <= t->mask; i++) {
		span = atomic_load_explicit(&t->slot[i].span, memory_order_relaxed);
		if (span != NULL)
			map_enter(larger, atomic_load_explicit(&t->slot[i].key, memory_order_relaxed), span);
	}
	larger->older = t;
	return larger;
}

void svc_addr_map_enter(struct svc_addr_map *t, uintptr_t base, struct svc_span *span)
{
	map_enter(t, base >> SVC_SPAN_BITS, span);
}

void svc_addr_map_remove(struct svc_addr_map *t, uintptr_t base)
{
	atomic_store_explicit(&map_place(t, base >> SVC_SPAN_BITS)->span, NULL, memory_order_release);
	t->live--;
}

void svc_addr_map_free(struct svc_addr_map *t)
{
	struct svc_addr_map *older;

	for (; t != NULL; t = older) {
		older = t->older;
		free(t);
	}
}
