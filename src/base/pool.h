/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pool.h - objects of one size, taken and put back in a few instructions, and found by a 32-bit index.
 *
 * Memory is allocated in slabs, and freed only by xpi_pool_fini. So a pool that has grown to the number in use
 * allocates nothing more. An object that was never used is zeroed; a used one comes back as it was put. The pool does
 * not write to a free object, and nobody may read it: under AddressSanitizer it is poisoned. It has no lock; the
 * owner's lock protects it.
 */
#ifndef XPI_BASE_POOL_H
#define XPI_BASE_POOL_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__)
#define XPI_POOL_POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define XPI_POOL_POISON 1
#endif
#endif
#ifdef XPI_POOL_POISON
#include <sanitizer/asan_interface.h>
#endif

/* Stands right before each object. */
struct xpi_pool_head {
	struct xpi_pool_head *next; /* of the free ones */
	uint32_t index;
	uint32_t used;
};

struct xpi_pool {
	struct xpi_pool_head *free; /* last put, first taken */
	size_t size, align, stride;
	unsigned shift; /* a slab holds 1 << shift objects */
	uint32_t nslabs, slabs_max;
	char **slabs; /* where the first object of each lies */
};

/* `size` of one object; `align` 16 or 64.  Allocates nothing. */
void xpi_pool_init(struct xpi_pool *p, size_t size, size_t align);

/* Frees all objects, also those that were not put back.  A zeroed pool is allowed. */
void xpi_pool_fini(struct xpi_pool *p);

/* Adds a slab; false: out of memory, and the pool is as before. */
bool xpi_pool_grow(struct xpi_pool *p) __attribute__((cold));

static inline struct xpi_pool_head *xpi_pool_head_of(const void *obj)
{
	return (struct xpi_pool_head *)obj - 1;
}

/* NULL: out of memory. */
static inline __attribute__((always_inline)) void *xpi_pool_get(struct xpi_pool *p)
{
	struct xpi_pool_head *h;

	if (__builtin_expect(p->free == NULL, 0) && !xpi_pool_grow(p))
		return NULL;
	h = p->free;
	p->free = h->next;
	h->used = 1;
#ifdef XPI_POOL_POISON
	ASAN_UNPOISON_MEMORY_REGION(h + 1, p->size);
#endif
	return h + 1;
}

static inline void xpi_pool_put(struct xpi_pool *p, void *obj)
{
	struct xpi_pool_head *h = xpi_pool_head_of(obj);

#ifdef XPI_POOL_POISON
	assert(h->used);
	ASAN_POISON_MEMORY_REGION(obj, p->size);
#endif
	h->used = 0;
	h->next = p->free;
	p->free = h;
}

static inline uint32_t xpi_pool_index(const struct xpi_pool *p, const void *obj)
{
	(void)p;
	return xpi_pool_head_of(obj)->index;
}

/* The object of that index if it is in use, else NULL: any 32 bits are allowed. */
static inline void *xpi_pool_at(const struct xpi_pool *p, uint32_t index)
{
	uint32_t slab = index >> p->shift;
	char *obj;

	if (slab >= p->nslabs)
		return NULL;
	obj = p->slabs[slab] + (index & ((1u << p->shift) - 1)) * p->stride;
	return xpi_pool_head_of(obj)->used ? obj : NULL;
}

#endif
