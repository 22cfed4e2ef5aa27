/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/tcache.h"

#include <stdlib.h>
#include <string.h>

enum { KEEP_MIN = 4 };

struct svc_tcache *svc_tcache_new(struct xport_pool *pool, size_t bytes)
{
	struct svc_tcache *t = aligned_alloc(64, (sizeof(*t) + 63) & ~(size_t)63);
	size_t n;

	if (t == NULL)
		return NULL;
	memset(t, 0, sizeof(*t));
	t->pool = pool;
	for (int i = 0; i < SVC_CLASSES; i++) {
		n = bytes / svc_class_size[i];
		t->keep[i].room = n < KEEP_MIN ? KEEP_MIN : n > SVC_KEEP_MAX ? SVC_KEEP_MAX : (uint32_t)n;
	}
	return t;
}

int svc_tcache_fill(struct svc_tcache *t, struct svc_pool_core *d, unsigned class, const char *operation)
{
	struct svc_keep *k = &t->keep[class];
	int n = svc_pool_core_take(d, class, k->piece, (int)k->room / 2, operation);

	svc_count(&t->refills);
	if (n < 0)
		return n;
	atomic_store_explicit(&k->n, (uint32_t)n, memory_order_relaxed);
	return XPORT_OK;
}

void svc_tcache_drain(struct svc_tcache *t, struct svc_pool_core *d, unsigned class)
{
	struct svc_keep *k = &t->keep[class];
	uint32_t n = atomic_load_explicit(&k->n, memory_order_relaxed), half = n / 2;

	svc_count(&t->refills);
	svc_pool_core_give(d, k->piece, (int)half);
	memmove(k->piece, k->piece + half, (n - half) * sizeof(k->piece[0]));
	atomic_store_explicit(&k->n, n - half, memory_order_relaxed);
}

void svc_tcache_empty(struct svc_tcache *t, struct svc_pool_core *d)
{
	for (int i = 0; i < SVC_CLASSES; i++) {
		svc_pool_core_give(d, t->keep[i].piece, (int)atomic_load_explicit(&t->keep[i].n, memory_order_relaxed));
		atomic_store_explicit(&t->keep[i].n, 0, memory_order_relaxed);
	}
}
