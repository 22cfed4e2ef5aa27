/* SPDX-License-Identifier: BSD-3-Clause */
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/grow.h"
#include "services/last_error.h"
#include "services/memlock.h"
#include "services/node.h"
#include "services/redzone.h"
#include "services/tcache.h"

#define likely(c) __builtin_expect(!!(c), 1)
#define unlikely(c) __builtin_expect(!!(c), 0)

static const size_t MIB = (size_t)1 << 20;
enum {
	FLAGS = XPORT_POOL_HUGE | XPORT_POOL_LOCK | XPORT_POOL_DEBUG,
	RIGHTS = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC | XPORT_ATOMIC_NIC | XPORT_REMOTE_RECV
};

struct xport_pool {
	uint8_t class[SVC_SMALL_MAX / SVC_BLOCK_MIN]; /* of (length - 1) / 64 */
	pthread_key_t key;
	bool debug; /* no thread's caches: each block is looked at */
	bool ending;
	size_t cache_bytes;
	struct svc_pool_core core;
	/* of core.lock */
	struct svc_tcache *caches;
	uint64_t nthreads;
	uint64_t ended_allocations, ended_frees, ended_refills; /* of threads that ended */
	/* what goes past the caches */
	_Atomic uint64_t allocations, frees, refills, quarantined;
};

/* ---- threads ---- */

static void thread_ends(void *arg)
{
	struct svc_tcache *t = arg;
	struct xport_pool *p = t->pool;

	svc_tcache_empty(t, &p->core);
	pthread_mutex_lock(&p->core.lock);
	if (t->prev != NULL)
		t->prev->next = t->next;
	else
		p->caches = t->next;
	if (t->next != NULL)
		t->next->prev = t->prev;
	p->nthreads--;
	p->ended_allocations += atomic_load_explicit(&t->allocations, memory_order_relaxed);
	p->ended_frees += atomic_load_explicit(&t->frees, memory_order_relaxed);
	p->ended_refills += atomic_load_explicit(&t->refills, memory_order_relaxed);
	pthread_mutex_unlock(&p->core.lock);
	free(t);
}

/* The calling thread's cache; NULL: it goes without one. */
static struct svc_tcache *begin_thread(struct xport_pool *p)
{
	struct svc_tcache *t = svc_tcache_new(p, p->cache_bytes);

	if (t == NULL || pthread_setspecific(p->key, t) != 0) {
		free(t);
		return NULL;
	}
	pthread_mutex_lock(&p->core.lock);
	t->next = p->caches;
	if (t->next != NULL)
		t->next->prev = t;
	p->caches = t;
	p->nthreads++;
	pthread_mutex_unlock(&p->core.lock);
	return t;
}

static struct svc_tcache *this_thread(struct xport_pool *p)
{
	struct svc_tcache *t = pthread_getspecific(p->key);

	return t != NULL || p->debug ? t : begin_thread(p);
}

/* ---- life ---- */

static int pool_check_attr(const struct xport_pool_attr *a, const char *operation)
{
	if ((a->flags & ~(uint32_t)FLAGS) != 0)
		return svc_fail(XPORT_ERR_INVALID, operation, NULL, "xport_pool_attr.flags has unknown bits: %#x",
		                (unsigned)a->flags);
	if ((a->rights & ~(uint32_t)RIGHTS) != 0)
		return svc_fail(XPORT_ERR_INVALID, operation, NULL, "xport_pool_attr.rights has unknown bits: %#x",
		                (unsigned)a->rights);
	if (a->slab_bytes != 0 && a->slab_bytes < MIB)
		return svc_fail(XPORT_ERR_INVALID, operation, NULL,
		                "xport_pool_attr.slab_bytes is %zu, below the minimum of %zu", a->slab_bytes, MIB);
	if (a->slab_bytes > SIZE_MAX / 2 || a->node < XPORT_POOL_NODE_DEVICE)
		return svc_fail(XPORT_ERR_INVALID, operation, NULL, "xport_pool_attr.%s",
		                a->node < XPORT_POOL_NODE_DEVICE ? "node is negative" : "slab_bytes is too large");
	return XPORT_OK;
}

/*
 * Ordinary memory that is registered may be reached by a slower path than what the back end allocates: on shared memory
 * by messages in place of a copy.  Huge pages do not make up for that.
 */
static void choose_source(struct svc_source *s, const struct xport_info *info)
{
	bool slower = info->put > info->put_reg || info->get > info->get_reg;

	s->memlock = svc_memlock_network(info);
	s->own = (s->flags & XPORT_POOL_HUGE) != 0 && !slower;
	if ((s->flags & XPORT_POOL_HUGE) == 0)
		snprintf(s->huge, sizeof(s->huge), "not requested");
	else if (slower)
		snprintf(s->huge, sizeof(s->huge),
		         "no: %.15s:%.47s is faster on memory that it allocates itself, and that has no huge pages",
		         info->backend, info->provider);
}

static int fill_source(struct svc_pool_core *d, xport *x, const struct xport_pool_attr *a, const char *operation)
{
	struct xport_info info = {.size = sizeof(info)};
	int r = xport_query(x, &info), node = 0;

	if (r != XPORT_OK)
		return svc_pass(x, r, operation);
	d->source.x = x;
	d->source.rights = a->rights;
	d->source.flags = a->flags;
	d->source.node = -1;
	d->any_grows = info.thread_mode == XPORT_THREAD_MULTIPLE;
	choose_source(&d->source, &info);
	if (a->node == XPORT_POOL_NODE_ANY)
		return XPORT_OK;
	if (a->node == XPORT_POOL_NODE_DEVICE &&
	    !svc_node_device(info.device, &node, d->source.placement, sizeof(d->source.placement)))
		return XPORT_OK;
	return svc_node_resolve(a->node == XPORT_POOL_NODE_DEVICE ? node + 1 : a->node, &d->source.node, operation);
}

static void fill_classes(struct xport_pool *p)
{
	unsigned class = 0;

	for (size_t i = 0; i < sizeof(p->class); i++) {
		while (svc_class_size[class] < (i + 1) * SVC_BLOCK_MIN)
			class ++;
		p->class[i] = (uint8_t) class;
	}
}

int xport_pool_create(xport *x, const struct xport_pool_attr *attr, xport_pool **pool)
{
	struct xport_pool_attr own;
	const struct xport_pool_attr *a = &own;
	struct xport_pool *p;
	int r = svc_grow_in(&own, sizeof(own), SVC_FIRST_POOL_ATTR, attr, "xport_pool_create", "xport_pool_attr");

	if (r == XPORT_OK)
		r = pool_check_attr(a, "xport_pool_create");
	if (r != XPORT_OK)
		return r;
	if (x == NULL || pool == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_pool_create", NULL, "%s is NULL", x == NULL ? "x" : "pool");
	p = calloc(1, sizeof(*p));
	if (p == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_pool_create", NULL, "out of memory");
	p->debug = p->core.debug = (a->flags & XPORT_POOL_DEBUG) != 0;
	p->cache_bytes = a->cache_bytes == 0 ? MIB / 4 : a->cache_bytes;
	p->core.max_bytes = a->max_bytes;
	p->core.slab_bytes = a->slab_bytes == 0 ? 4 * MIB : a->slab_bytes;
	if ((a->flags & XPORT_POOL_HUGE) != 0)
		p->core.slab_bytes = (p->core.slab_bytes + 2 * MIB - 1) & ~(2 * MIB - 1);
	fill_classes(p);
	r = fill_source(&p->core, x, a, "xport_pool_create");
	if (r == XPORT_OK)
		r = svc_pool_core_init(&p->core, "xport_pool_create");
	if (r != XPORT_OK)
		goto err_free;
	if (pthread_key_create(&p->key, thread_ends) != 0) {
		r = svc_fail(XPORT_ERR_NO_MEMORY, "xport_pool_create", "destroy unused pools",
		             "all %d thread-specific keys of the process are in use", PTHREAD_KEYS_MAX);
		goto err_core;
	}
	*pool = p;
	return XPORT_OK;
err_core:
	(void)svc_pool_core_fini(&p->core);
err_free:
	free(p);
	return r;
}

int xport_pool_destroy(xport_pool *p)
{
	struct svc_tcache *t;

	if (p == NULL)
		return XPORT_OK;
	if (!p->ending)
		pthread_key_delete(p->key);
	p->ending = true;
	while ((t = p->caches) != NULL) {
		p->caches = t->next;
		free(t);
	}
	if (svc_pool_core_fini(&p->core) == XPORT_ERR_BUSY)
		return svc_pass(p->core.source.x, XPORT_ERR_BUSY, "xport_pool_destroy");
	free(p);
	return XPORT_OK;
}

/* ---- taking ---- */

static inline void pool_describe(const struct svc_piece *piece, struct xport_block *b)
{
	const struct svc_span *span = piece->span;

	b->address = piece->address;
	b->mr = span->slab->mr;
	b->offset = (uintptr_t)piece->address - span->slab->region;
	b->length = span->block;
}

static inline _Atomic uint32_t *state_of(const struct svc_piece *piece)
{
	return &piece->span->state[svc_span_index(piece->span, piece->address)];
}

static inline void hand_out(const struct svc_piece *piece, struct xport_block *b)
{
	/* No other thread may know the block yet. How one gets to know it is up to the program. */
	atomic_store_explicit(state_of(piece), SVC_USED, memory_order_relaxed);
	pool_describe(piece, b);
}

/* The class, or SVC_LARGE. */
static unsigned class_for(const struct xport_pool *p, size_t length, size_t align)
{
	unsigned class;

	if (length < align)
		length = align;
	if (length > SVC_SMALL_MAX)
		return SVC_LARGE;
	class = p->class[(length - 1) / SVC_BLOCK_MIN];
	while (align > SVC_BLOCK_MIN && svc_class_size[class] % align != 0)
		class ++;
	return class;
}

static int pool_take(struct xport_pool *p, unsigned class, size_t length, struct svc_piece *piece)
{
	struct svc_tcache *t;
	int r;

	if (class == SVC_LARGE) {
		atomic_fetch_add_explicit(&p->refills, 1, memory_order_relaxed);
		return svc_pool_core_take_large(&p->core, (length + SVC_SPAN - 1) / SVC_SPAN, piece,
		                                "xport_pool_alloc");
	}
	t = this_thread(p);
	if (t == NULL) {
		atomic_fetch_add_explicit(&p->refills, 1, memory_order_relaxed);
		r = svc_pool_core_take(&p->core, class, piece, 1, "xport_pool_alloc");
		return r < 0 ? r : XPORT_OK;
	}
	if (svc_keep_take(&t->keep[class], piece))
		return XPORT_OK;
	r = svc_tcache_fill(t, &p->core, class, "xport_pool_alloc");
	if (r == XPORT_OK)
		(void)svc_keep_take(&t->keep[class], piece);
	return r;
}

/* False: *at is the first byte that was written to since it was freed. */
static bool as_freed(const struct svc_piece *piece, size_t asked, size_t *at)
{
	struct svc_span *span = piece->span;

	if (span->class < SVC_CLASSES)
		return asked != SIZE_MAX || svc_redzone_freed_whole(piece->address, span->block, at);
	/* Its spans may have been parts of several blocks, or of none yet. */
	for (size_t i = 0; i < span->block / SVC_SPAN; i++) {
		if (span[i].filled && !svc_redzone_freed_whole((void *)span[i].base, SVC_SPAN, at)) {
			*at += i * SVC_SPAN;
			return false;
		}
		span[i].filled = false;
	}
	return true;
}

/* Whether nobody wrote to the block since it was freed; one that was written to is not handed out again. */
static int pool_look_at(const struct svc_piece *piece, size_t length)
{
	const struct svc_span *span = piece->span;
	size_t *asked = &span->asked[svc_span_index(span, piece->address)], at = 0;
	bool whole = as_freed(piece, *asked, &at);

	*asked = length;
	svc_redzone_end(piece->address, length, span->block);
	if (whole)
		return XPORT_OK;
	return svc_fail(XPORT_ERR_INVALID, "xport_pool_alloc",
	                "look for a write after xport_pool_free, or for an operation that had not completed; call "
	                "again for another block",
	                "byte %zu of the block of %zu bytes at %p was written to after it was freed", at, span->block,
	                piece->address);
}

static int __attribute__((noinline))
alloc_slowly(struct xport_pool *p, size_t length, size_t align, struct xport_block *b)
{
	struct svc_piece piece = {0};
	size_t redzone = p->debug ? SVC_REDZONE : 0;
	int r;

	if (b == NULL || length == 0 || length > SIZE_MAX / 2 || (align & (align - 1)) != 0 || align > SVC_SPAN)
		return svc_fail(XPORT_ERR_INVALID, "xport_pool_alloc", NULL,
		                "invalid request for %zu bytes aligned to %zu: the length must be 1 or more, the "
		                "alignment a power of 2 up to %d",
		                length, align, SVC_SPAN);
	if (align < SVC_BLOCK_MIN)
		align = SVC_BLOCK_MIN;
	r = pool_take(p, class_for(p, length + redzone, align), length + redzone, &piece);
	if (r == XPORT_OK && p->debug)
		r = pool_look_at(&piece, length);
	if (r != XPORT_OK)
		return r;
	atomic_fetch_add_explicit(&p->allocations, 1, memory_order_relaxed);
	hand_out(&piece, b);
	if (p->debug)
		b->length = length;
	return XPORT_OK;
}

int xport_pool_alloc(xport_pool *p, size_t length, size_t align, struct xport_block *b)
{
	struct svc_tcache *t;
	struct svc_piece piece;

	if (likely(length - 1 < SVC_SMALL_MAX && align <= SVC_BLOCK_MIN && (align & (align - 1)) == 0 && b != NULL)) {
		t = pthread_getspecific(p->key);
		if (likely(t != NULL) && svc_keep_take(&t->keep[p->class[(length - 1) / SVC_BLOCK_MIN]], &piece)) {
			svc_count(&t->allocations);
			hand_out(&piece, b);
			return XPORT_OK;
		}
	}
	return alloc_slowly(p, length, align, b);
}

/* ---- giving back ---- */

static void pool_give(struct xport_pool *p, const struct svc_piece *piece)
{
	struct svc_tcache *t = piece->span->class < SVC_CLASSES ? this_thread(p) : NULL;

	if (p->debug) {
		svc_redzone_freed(piece->address, piece->span->block);
		piece->span->asked[svc_span_index(piece->span, piece->address)] = SIZE_MAX;
	}
	if (t == NULL) {
		atomic_fetch_add_explicit(&p->refills, 1, memory_order_relaxed);
		svc_pool_core_give(&p->core, piece, 1);
		return;
	}
	if (svc_keep_give(&t->keep[piece->span->class], piece->address, piece->span))
		return;
	svc_tcache_drain(t, &p->core, piece->span->class);
	(void)svc_keep_give(&t->keep[piece->span->class], piece->address, piece->span);
}

/* The block that the address is in; false: none of this pool's. */
static bool pool_locate(struct xport_pool *p, const void *address, struct svc_piece *piece)
{
	struct svc_span *span = svc_pool_core_span(&p->core, address);
	uint32_t i;

	if (span == NULL || span->head->state == NULL)
		return false;
	span = span->head;
	i = svc_span_index(span, address);
	if (i >= span->nblocks)
		return false;
	*piece = (struct svc_piece){svc_span_address(span, i), span};
	return true;
}

static int pool_unknown(const char *operation, const void *address)
{
	return svc_fail(XPORT_ERR_INVALID, operation, "pass each address that xport_pool_alloc returned once",
	                "%p is not in a block in use of this pool", address);
}

static int freed_twice(const struct svc_piece *piece)
{
	return svc_fail(XPORT_ERR_INVALID, "xport_pool_free", "free each block only once",
	                "the block of %zu bytes at %p was already freed", piece->span->block, piece->address);
}

/* Whether its end is as it was; it is given back in any case. */
static int look_at_end(const struct svc_piece *piece)
{
	const struct svc_span *span = piece->span;
	size_t asked = span->asked[svc_span_index(span, piece->address)], at = 0;

	if (svc_redzone_end_whole(piece->address, asked, span->block, &at))
		return XPORT_OK;
	return svc_fail(XPORT_ERR_INVALID, "xport_pool_free", "look for a write past the end",
	                "the block of %zu bytes at %p was written to at byte %zu, past its end", asked, piece->address,
	                at);
}

static int __attribute__((noinline)) free_slowly(struct xport_pool *p, void *address)
{
	struct svc_piece piece;
	uint32_t old, now;
	int r = XPORT_OK;

	if (!pool_locate(p, address, &piece))
		return pool_unknown("xport_pool_free", address);
	if (piece.address != address)
		return svc_fail(XPORT_ERR_INVALID, "xport_pool_free", "pass the address that xport_pool_alloc returned",
		                "%p is inside the block of %zu bytes at %p", address, piece.span->block, piece.address);
	old = atomic_load_explicit(state_of(&piece), memory_order_acquire);
	do {
		if ((old & SVC_USED) == 0 || (old & SVC_FREED) != 0)
			return freed_twice(&piece);
		now = (old & SVC_HOLDS) == 0 ? 0 : old | SVC_FREED;
		/* Before the state says so, since then another thread's release may give it back. */
		if (now != 0)
			atomic_fetch_add_explicit(&p->quarantined, 1, memory_order_relaxed);
		if (p->debug && r == XPORT_OK)
			r = look_at_end(&piece);
		if (atomic_compare_exchange_strong_explicit(state_of(&piece), &old, now, memory_order_acq_rel,
		                                            memory_order_acquire))
			break;
		if (now != 0)
			atomic_fetch_sub_explicit(&p->quarantined, 1, memory_order_relaxed);
	} while (true);
	atomic_fetch_add_explicit(&p->frees, 1, memory_order_relaxed);
	if (now == 0)
		pool_give(p, &piece);
	return r;
}

int xport_pool_free(xport_pool *p, void *address)
{
	struct svc_tcache *t = pthread_getspecific(p->key);
	struct svc_span *span = svc_pool_core_span(&p->core, address);
	_Atomic uint32_t *state;
	uint32_t i;

	if (likely(t != NULL && span != NULL && span->state != NULL && span->class < SVC_CLASSES)) {
		i = svc_span_index(span, address);
		state = &span->state[i];
		/* Acquire: the thread that released it last is done with it. */
		if (likely(i < span->nblocks && address == svc_span_address(span, i) &&
		           atomic_load_explicit(state, memory_order_acquire) == SVC_USED) &&
		    svc_keep_give(&t->keep[span->class], address, span)) {
			atomic_store_explicit(state, 0, memory_order_relaxed);
			svc_count(&t->frees);
			return XPORT_OK;
		}
	}
	return address == NULL ? XPORT_OK : free_slowly(p, address);
}

/* ---- holding ---- */

int xport_pool_hold(xport_pool *p, const void *address)
{
	struct svc_piece piece;
	uint32_t old;

	if (!pool_locate(p, address, &piece))
		return pool_unknown("xport_pool_hold", address);
	old = atomic_load_explicit(state_of(&piece), memory_order_relaxed);
	do {
		if ((old & SVC_USED) == 0 || ((old & SVC_FREED) != 0 && (old & SVC_HOLDS) == 0))
			return pool_unknown("xport_pool_hold", address);
		if ((old & SVC_HOLDS) == SVC_HOLDS)
			return svc_fail(XPORT_ERR_INVALID, "xport_pool_hold", NULL,
			                "the block at %p is already held %u times, the maximum", piece.address,
			                (unsigned)SVC_HOLDS);
	} while (!atomic_compare_exchange_weak_explicit(state_of(&piece), &old, old + 1, memory_order_relaxed,
	                                                memory_order_relaxed));
	return XPORT_OK;
}

int xport_pool_release(xport_pool *p, const void *address)
{
	struct svc_piece piece;
	uint32_t old, now;

	if (!pool_locate(p, address, &piece))
		return pool_unknown("xport_pool_release", address);
	old = atomic_load_explicit(state_of(&piece), memory_order_relaxed);
	do {
		if ((old & SVC_USED) == 0 || (old & SVC_HOLDS) == 0)
			return svc_fail(XPORT_ERR_INVALID, "xport_pool_release",
			                "call xport_pool_release once for each xport_pool_hold",
			                "the block at %p is not held", piece.address);
		now = old - 1 == (SVC_USED | SVC_FREED) ? 0 : old - 1;
	} while (!atomic_compare_exchange_weak_explicit(state_of(&piece), &old, now, memory_order_acq_rel,
	                                                memory_order_relaxed));
	if (now != 0)
		return XPORT_OK;
	atomic_fetch_sub_explicit(&p->quarantined, 1, memory_order_relaxed);
	pool_give(p, &piece);
	return XPORT_OK;
}

int xport_pool_find(xport_pool *p, const void *address, struct xport_block *b)
{
	struct svc_piece piece;

	if (b == NULL || !pool_locate(p, address, &piece) ||
	    (atomic_load_explicit(state_of(&piece), memory_order_relaxed) & SVC_USED) == 0)
		return pool_unknown("xport_pool_find", address);
	pool_describe(&piece, b);
	if (p->debug)
		b->length = piece.span->asked[svc_span_index(piece.span, piece.address)];
	return XPORT_OK;
}

/* ---- the whole ---- */

int xport_pool_reserve(xport_pool *p, size_t bytes)
{
	return svc_pool_core_reserve(&p->core, bytes, "xport_pool_reserve");
}

int xport_pool_add(xport_pool *p, xport_mr *mr)
{
	return svc_pool_core_add(&p->core, mr, "xport_pool_add");
}

int xport_pool_trim(xport_pool *p)
{
	struct svc_tcache *t = pthread_getspecific(p->key);
	int r;

	if (t != NULL)
		svc_tcache_empty(t, &p->core);
	r = svc_pool_core_trim(&p->core);
	return r == XPORT_ERR_BUSY ? svc_pass(p->core.source.x, r, "xport_pool_trim") : r;
}

/* What the threads' caches add; the lock is held. */
static void add_threads(const struct xport_pool *p, struct xport_pool_info *i)
{
	for (const struct svc_tcache *t = p->caches; t != NULL; t = t->next) {
		i->allocations += atomic_load_explicit(&t->allocations, memory_order_relaxed);
		i->frees += atomic_load_explicit(&t->frees, memory_order_relaxed);
		i->refills += atomic_load_explicit(&t->refills, memory_order_relaxed);
		for (int k = 0; k < SVC_CLASSES; k++)
			i->cached +=
				(uint64_t)atomic_load_explicit(&t->keep[k].n, memory_order_relaxed) * svc_class_size[k];
	}
}

int xport_pool_query(xport_pool *p, struct xport_pool_info *info)
{
	struct svc_pool_core *d = &p->core;
	struct xport_pool_info i = {.size = sizeof(i)};

	if (info == NULL || !svc_grow_size(info->size, SVC_FIRST_POOL_INFO))
		return svc_fail(XPORT_ERR_INVALID, "xport_pool_query", NULL,
		                "xport_pool_info.size is not the size of the struct");
	i.allocations = atomic_load_explicit(&p->allocations, memory_order_relaxed);
	i.frees = atomic_load_explicit(&p->frees, memory_order_relaxed);
	i.refills = atomic_load_explicit(&p->refills, memory_order_relaxed);
	i.quarantined = atomic_load_explicit(&p->quarantined, memory_order_relaxed);
	pthread_mutex_lock(&d->grow);
	pthread_mutex_lock(&d->lock);
	i.allocations += p->ended_allocations;
	i.frees += p->ended_frees;
	i.refills += p->ended_refills;
	add_threads(p, &i);
	i.in_use = d->out > i.cached ? d->out - i.cached : 0;
	i.slabs = d->nslabs;
	i.registered = d->registered;
	i.registrations = d->registrations;
	i.threads = p->nthreads;
	i.huge_bytes = d->huge_bytes;
	memcpy(i.huge, d->source.huge, sizeof(i.huge));
	memcpy(i.placement, d->source.placement, sizeof(i.placement));
	pthread_mutex_unlock(&d->lock);
	pthread_mutex_unlock(&d->grow);
	svc_grow_out(info, &i, sizeof(i));
	return XPORT_OK;
}
