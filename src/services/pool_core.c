/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/pool_core.h"

#include <string.h>

#include "services/last_error.h"

/* At most a third is lost by rounding up; each is a multiple of 64, and the powers of 2 are among them. */
const uint32_t svc_class_size[SVC_CLASSES] = {64,   128,  192,  256,  384,   512,   768,   1024,  1536, 2048,
                                              3072, 4096, 6144, 8192, 10880, 16384, 21824, 32768, 65536};

/* Of the calling thread.  A pthread_t may come again when its thread has ended; this is no other one's, ever. */
static uint64_t thread_id(void)
{
	static _Atomic uint64_t last;
	static _Thread_local uint64_t id;

	if (id == 0)
		id = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
	return id;
}

int svc_pool_core_init(struct svc_pool_core *d, const char *operation)
{
	struct svc_addr_map *table = svc_addr_map_new();

	if (table == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	atomic_store_explicit(&d->addr_map, table, memory_order_relaxed);
	pthread_mutex_init(&d->lock, NULL);
	pthread_mutex_init(&d->grow, NULL);
	d->owner = thread_id();
	return XPORT_OK;
}

/* ---- lists of spans; the lock is held ---- */

static void list_in(struct svc_pool_core *d, struct svc_span *span)
{
	struct svc_span **head = &d->partial[span->class];

	span->prev = NULL;
	span->next = *head;
	if (*head != NULL)
		(*head)->prev = span;
	*head = span;
}

static void list_out(struct svc_pool_core *d, struct svc_span *span)
{
	if (span->prev != NULL)
		span->prev->next = span->next;
	else
		d->partial[span->class] = span->next;
	if (span->next != NULL)
		span->next->prev = span->prev;
}

static struct svc_span *free_spans(struct svc_pool_core *d, size_t n)
{
	struct svc_span *span;

	for (struct svc_slab *s = d->slabs; s != NULL; s = s->next) {
		span = svc_slab_find(s, n);
		if (span != NULL)
			return span;
	}
	return NULL;
}

static void *take_first(struct svc_span *span)
{
	uint32_t word = 0;
	int bit;

	while (span->free[word] == 0)
		word++;
	bit = __builtin_ctzll(span->free[word]);
	span->free[word] &= span->free[word] - 1;
	span->nfree--;
	return svc_span_address(span, word * 64 + (uint32_t)bit);
}

/* How many it found. */
static int take_some(struct svc_pool_core *d, unsigned class, struct svc_piece *list, int n)
{
	struct svc_span *span;
	int got = 0;

	while (got < n) {
		span = d->partial[class];
		if (span == NULL) {
			/* Some are enough: a span is not cut for the rest. */
			span = got > 0 ? NULL : free_spans(d, 1);
			if (span == NULL || !svc_span_cut(span, svc_class_size[class], class, d->debug))
				break;
			list_in(d, span);
		}
		list[got++] = (struct svc_piece){take_first(span), span};
		if (span->nfree == 0)
			list_out(d, span);
	}
	d->out += (uint64_t)got * svc_class_size[class];
	return got;
}

static void give_one(struct svc_pool_core *d, const struct svc_piece *piece)
{
	struct svc_span *span = piece->span;
	uint32_t i = svc_span_index(span, piece->address);

	d->out -= span->block;
	if (span->class >= SVC_CLASSES) {
		svc_span_uncut(span);
		return;
	}
	span->free[i / 64] |= UINT64_C(1) << i % 64;
	if (span->nfree++ == 0)
		list_in(d, span);
	/*
	 * One that is wholly free stays cut if it is the last of its class: otherwise it would be cut again at once.  In debug
	 * mode it stays, since its blocks remember what they were filled with.
	 */
	if (span->nfree == span->nblocks && (span->prev != NULL || span->next != NULL) && !d->debug) {
		list_out(d, span);
		svc_span_uncut(span);
	}
}

void svc_pool_core_give(struct svc_pool_core *d, const struct svc_piece *list, int n)
{
	pthread_mutex_lock(&d->lock);
	for (int i = 0; i < n; i++)
		give_one(d, &list[i]);
	pthread_mutex_unlock(&d->lock);
}

/* ---- growing ---- */

/* The table has room for it. */
static void core_enter(struct svc_pool_core *d, struct svc_addr_map *t, struct svc_slab *slab)
{
	for (size_t i = 0; i < slab->nspans; i++)
		svc_addr_map_enter(t, slab->span[i].base, &slab->span[i]);
	slab->next = d->slabs;
	d->slabs = slab;
	d->nslabs++;
	d->registered += slab->length;
	d->huge_bytes += slab->huge ? slab->length : 0;
}

static int insert(struct svc_pool_core *d, struct svc_slab *slab, const char *operation)
{
	struct svc_addr_map *t =
		svc_addr_map_room(atomic_load_explicit(&d->addr_map, memory_order_relaxed), slab->nspans);

	if (t == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	core_enter(d, t, slab);
	atomic_store_explicit(&d->addr_map, t, memory_order_release);
	d->registrations += !slab->foreign;
	return XPORT_OK;
}

/* `grow` is held. */
static int insert_or_end(struct svc_pool_core *d, struct svc_slab *slab, const char *operation)
{
	int r;

	pthread_mutex_lock(&d->lock);
	r = insert(d, slab, operation);
	pthread_mutex_unlock(&d->lock);
	if (r != XPORT_OK)
		(void)svc_slab_end(slab);
	return r;
}

/* The spans of the next slab, which must have `need`; 0: the limit. */
static size_t next_size(struct svc_pool_core *d, size_t need)
{
	size_t n = d->slab_bytes / SVC_SPAN, left, spare = d->source.own ? 0 : 1,
	       unit = d->source.own ? SVC_HUGE_SPANS : 1;

	need = (need + unit - 1) / unit * unit;
	if (need > n)
		n = need;
	if (d->max_bytes == 0)
		return n;
	left = d->max_bytes > d->registered ? (d->max_bytes - (size_t)d->registered) / SVC_SPAN : 0;
	left -= left % unit;
	if (left < need + spare)
		return 0;
	return n < left - spare ? n : left - spare;
}

/* `grow` is held.  The calling thread may call the instance. */
static int core_grow(struct svc_pool_core *d, size_t need, const char *operation)
{
	struct svc_slab *slab;
	size_t n, registered;
	int r;

	pthread_mutex_lock(&d->lock);
	n = next_size(d, need);
	registered = (size_t)d->registered;
	pthread_mutex_unlock(&d->lock);
	if (n == 0)
		return svc_fail(
			XPORT_ERR_NO_MEMORY, operation, "raise xport_pool_attr.max_bytes, or free blocks",
			"%zu KiB more exceed the limit of the pool: %zu KiB are registered, max_bytes is %zu KiB",
			need * SVC_SPAN >> 10, registered >> 10, d->max_bytes >> 10);
	r = svc_slab_new(&d->source, n, operation, &slab);
	return r == XPORT_OK ? insert_or_end(d, slab, operation) : r;
}

/* For a block, which threads take that the instance does not know of. */
static int grow_here(struct svc_pool_core *d, size_t need, const char *operation)
{
	if (!d->any_grows && thread_id() != d->owner)
		return svc_fail(XPORT_ERR_NO_MEMORY, operation,
		                "open the instance with XPORT_THREAD_MULTIPLE, or call xport_pool_reserve ahead",
		                "the pool has no memory left, and only the thread that created it may register more: "
		                "the instance has no lock");
	return core_grow(d, need, operation);
}

int svc_pool_core_take(struct svc_pool_core *d, unsigned class, struct svc_piece *list, int n, const char *operation)
{
	int got, r = XPORT_OK;

	pthread_mutex_lock(&d->lock);
	got = take_some(d, class, list, n);
	pthread_mutex_unlock(&d->lock);
	if (got > 0)
		return got;
	pthread_mutex_lock(&d->grow);
	while (r == XPORT_OK) {
		pthread_mutex_lock(&d->lock);
		got = take_some(d, class, list, n);
		r = got == 0 && free_spans(d, 1) != NULL
		            ? svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory")
		            : r;
		pthread_mutex_unlock(&d->lock);
		if (got > 0 || r != XPORT_OK)
			break;
		r = grow_here(d, 1, operation);
	}
	pthread_mutex_unlock(&d->grow);
	return got > 0 ? got : r;
}

static bool take_row(struct svc_pool_core *d, size_t n, struct svc_piece *piece)
{
	struct svc_span *span;

	pthread_mutex_lock(&d->lock);
	span = free_spans(d, n);
	if (span != NULL && !svc_span_join(span, n, d->debug))
		span = NULL;
	if (span != NULL)
		d->out += span->block;
	pthread_mutex_unlock(&d->lock);
	if (span == NULL)
		return false;
	*piece = (struct svc_piece){(void *)span->base, span};
	return true;
}

int svc_pool_core_take_large(struct svc_pool_core *d, size_t spans, struct svc_piece *piece, const char *operation)
{
	int r = XPORT_OK;

	if (take_row(d, spans, piece))
		return XPORT_OK;
	pthread_mutex_lock(&d->grow);
	if (!take_row(d, spans, piece)) {
		r = grow_here(d, spans, operation);
		/* Another thread may have taken a part of it. */
		while (r == XPORT_OK && !take_row(d, spans, piece))
			r = grow_here(d, spans, operation);
	}
	pthread_mutex_unlock(&d->grow);
	return r;
}

static size_t free_bytes(struct svc_pool_core *d)
{
	size_t n = 0;

	pthread_mutex_lock(&d->lock);
	for (struct svc_slab *s = d->slabs; s != NULL; s = s->next)
		n += s->nspans * SVC_SPAN;
	n -= (size_t)d->out;
	pthread_mutex_unlock(&d->lock);
	return n;
}

int svc_pool_core_reserve(struct svc_pool_core *d, size_t bytes, const char *operation)
{
	int r = XPORT_OK;

	pthread_mutex_lock(&d->grow);
	while (r == XPORT_OK && free_bytes(d) < bytes)
		r = core_grow(d, 1, operation);
	pthread_mutex_unlock(&d->grow);
	return r;
}

/* Whether some of its memory is in the pool already; `grow` is held. */
static bool is_here(struct svc_pool_core *d, const struct svc_slab *slab)
{
	for (size_t i = 0; i < slab->nspans; i++) {
		if (svc_pool_core_span(d, (void *)slab->span[i].base) != NULL)
			return true;
	}
	return false;
}

int svc_pool_core_add(struct svc_pool_core *d, xport_mr *mr, const char *operation)
{
	struct svc_slab *slab;
	int r = svc_slab_around(mr, d->source.rights, operation, &slab);

	if (r != XPORT_OK)
		return r;
	pthread_mutex_lock(&d->grow);
	if (is_here(d, slab)) {
		(void)svc_slab_end(slab);
		r = svc_fail(XPORT_ERR_INVALID, operation, "add each region only once",
		             "the region's memory is already in the pool");
	} else {
		r = insert_or_end(d, slab, operation);
	}
	pthread_mutex_unlock(&d->grow);
	return r;
}

/* ---- shrinking ---- */

/* Spans that are cut, but wholly free, become free. */
static void tidy(struct svc_pool_core *d, struct svc_slab *slab)
{
	for (size_t i = 0; i < slab->nspans; i++) {
		struct svc_span *span = &slab->span[i];

		if (span->block != 0 && span->head == span && span->nfree == span->nblocks) {
			list_out(d, span);
			svc_span_uncut(span);
		}
	}
}

static bool wholly_free(const struct svc_slab *slab)
{
	for (size_t i = 0; i < slab->nspans; i++) {
		const struct svc_span *head = slab->span[i].head;

		if (head->block != 0 && head->nfree != head->nblocks)
			return false;
	}
	return true;
}

/* Takes a slab that is wholly free out of everything; NULL: none. */
static struct svc_slab *detach(struct svc_pool_core *d)
{
	struct svc_addr_map *t = atomic_load_explicit(&d->addr_map, memory_order_relaxed);

	for (struct svc_slab **at = &d->slabs, *s; (s = *at) != NULL; at = &s->next) {
		/* In debug mode what stays keeps its blocks, which remember what they were filled with. */
		if (s->foreign || (d->debug && !wholly_free(s)))
			continue;
		tidy(d, s);
		if (s->nfree < s->nspans)
			continue;
		*at = s->next;
		for (size_t i = 0; i < s->nspans; i++)
			svc_addr_map_remove(t, s->span[i].base);
		d->nslabs--;
		d->registered -= s->length;
		d->huge_bytes -= s->huge ? s->length : 0;
		return s;
	}
	return NULL;
}

/* 1: one was ended; 0: there is none. */
static int trim_one(struct svc_pool_core *d)
{
	struct svc_slab *slab;

	pthread_mutex_lock(&d->lock);
	slab = detach(d);
	pthread_mutex_unlock(&d->lock);
	if (slab == NULL)
		return 0;
	if (svc_slab_end(slab) != XPORT_ERR_BUSY)
		return 1;
	pthread_mutex_lock(&d->lock);
	/* Its keys are still in the table: nobody has grown it meanwhile. */
	core_enter(d, atomic_load_explicit(&d->addr_map, memory_order_relaxed), slab);
	pthread_mutex_unlock(&d->lock);
	return XPORT_ERR_BUSY;
}

int svc_pool_core_trim(struct svc_pool_core *d)
{
	int r, n = 0;

	pthread_mutex_lock(&d->grow);
	while ((r = trim_one(d)) == 1)
		n++;
	pthread_mutex_unlock(&d->grow);
	return r < 0 ? r : n;
}

int svc_pool_core_fini(struct svc_pool_core *d)
{
	struct svc_slab *next;

	for (; d->slabs != NULL; d->slabs = next) {
		next = d->slabs->next;
		if (svc_slab_end(d->slabs) == XPORT_ERR_BUSY)
			return XPORT_ERR_BUSY;
	}
	svc_addr_map_free(atomic_load_explicit(&d->addr_map, memory_order_relaxed));
	pthread_mutex_destroy(&d->lock);
	pthread_mutex_destroy(&d->grow);
	return XPORT_OK;
}
