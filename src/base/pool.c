/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/pool.h"

#include <stdlib.h>
#include <string.h>

enum { SLAB_BYTES = 64 * 1024, SLAB_MIN_SHIFT = 4, HEAD = sizeof(struct xpi_pool_head) };

_Static_assert(HEAD == 16, "the head must keep the object behind it aligned to 16");

static size_t round_up(size_t n, size_t align)
{
	return (n + align - 1) & ~(align - 1);
}

void xpi_pool_init(struct xpi_pool *p, size_t size, size_t align)
{
	assert(align == 16 || align == 64);
	memset(p, 0, sizeof(*p));
	p->size = size;
	p->align = align;
	p->stride = round_up(size + HEAD, align);
	p->shift = SLAB_MIN_SHIFT;
	while (p->stride << (p->shift + 1) <= SLAB_BYTES)
		p->shift++;
}

/* The first object lies `align` into its slab, behind its head. */
static char *slab_memory(const struct xpi_pool *p, uint32_t slab)
{
	return p->slabs[slab] - p->align;
}

static size_t slab_bytes(const struct xpi_pool *p)
{
	return p->align + (p->stride << p->shift);
}

/* With what lies between it and the next one's head, which stays so. */
static void poison(const struct xpi_pool *p, void *obj)
{
#ifdef XPI_POOL_POISON
	ASAN_POISON_MEMORY_REGION(obj, p->stride - HEAD);
#else
	(void)p, (void)obj;
#endif
}

static bool reserve(struct xpi_pool *p)
{
	uint32_t max = p->slabs_max > 0 ? 2 * p->slabs_max : 8;
	char **slabs;

	if (p->nslabs < p->slabs_max)
		return true;
	slabs = (char **)realloc(p->slabs, max * sizeof(*slabs));
	if (slabs == NULL)
		return false;
	p->slabs = slabs;
	p->slabs_max = max;
	return true;
}

bool xpi_pool_grow(struct xpi_pool *p)
{
	uint32_t per_slab = 1u << p->shift, first;
	char *memory;

	if (p->nslabs > UINT32_MAX >> p->shift || !reserve(p))
		return false;
	memory = (char *)aligned_alloc(64, round_up(slab_bytes(p), 64));
	if (memory == NULL)
		return false;
	memset(memory, 0, slab_bytes(p));
	first = p->nslabs << p->shift;
	p->slabs[p->nslabs++] = memory + p->align;
	for (uint32_t i = per_slab; i-- > 0;) {
		char *obj = memory + p->align + i * p->stride;
		struct xpi_pool_head *h = xpi_pool_head_of(obj);

		h->index = first + i;
		h->next = p->free;
		p->free = h;
		poison(p, obj);
	}
	return true;
}

void xpi_pool_fini(struct xpi_pool *p)
{
	for (uint32_t i = 0; i < p->nslabs; i++) {
		char *memory = slab_memory(p, i);

#ifdef XPI_POOL_POISON
		ASAN_UNPOISON_MEMORY_REGION(memory, slab_bytes(p));
#endif
		free(memory);
	}
	free(p->slabs);
	memset(p, 0, sizeof(*p));
}
