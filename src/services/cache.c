/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The entries that can be found are in an array, sorted by their start. No entry contains another one, so they are
 * sorted by their end, too. The last entry that starts at or before an address thus reaches farthest, and a lookup
 * checks only that one. An entry is `found` (in the array) or dropped. A found entry without users is in the list of
 * those that may be evicted.
 *
 * The caller holds a number, not a pointer. The number finds its entry without reading it, because the entry may have
 * been freed long ago. The lower half of the number is the place of the entry, which never changes. The upper half
 * counts the entries that have had this place.
 *
 * Locks: `lock` protects all of it, also while memory is registered: on an instance without a lock there is one thread
 * only.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "services/grow.h"
#include "services/last_error.h"

enum { ENTRIES = 1024, RIGHTS = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC | XPORT_REMOTE_RECV };

enum { PLACE_BITS = sizeof(uintptr_t) * 4 };
static const uintptr_t USED_AGAIN = (uintptr_t)1 << PLACE_BITS;

struct entry {
	uintptr_t id; /* never 0 while it is used */
	uintptr_t base, end;
	xport_mr *mr;
	uint64_t users;
	bool found;
	struct entry *next,
		*prev; /* idle: the one used longer ago is next; or in the list of forgotten or spare ones: next */
};

struct xport_cache {
	pthread_mutex_t lock;
	xport *x;
	uint32_t rights, max_entries;
	size_t max_bytes;
	uintptr_t page; /* what is rounded to */
	struct entry **list;
	size_t n;
	struct entry idle;       /* head of the ring */
	struct entry *forgotten; /* with users, or which could not be deregistered yet */
	struct entry **place;    /* all that were ever made */
	size_t places, room;
	struct entry *spare;
	struct xport_cache_info info;
};

/* ---- the ring of those without users ---- */

static void idle_in(struct xport_cache *c, struct entry *e)
{
	e->next = c->idle.next;
	e->prev = &c->idle;
	e->next->prev = e;
	c->idle.next = e;
}

static void idle_out(struct entry *e)
{
	e->prev->next = e->next;
	e->next->prev = e->prev;
	e->next = e->prev = NULL;
}

/* ---- the array ---- */

/* How many begin at or before the address. */
static size_t begin_by(const struct xport_cache *c, uintptr_t address)
{
	size_t low = 0, high = c->n, mid;

	while (low < high) {
		mid = low + (high - low) / 2;
		if (c->list[mid]->base <= address)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static struct entry *covering(const struct xport_cache *c, uintptr_t base, uintptr_t end)
{
	size_t i = begin_by(c, base);

	return i > 0 && c->list[i - 1]->end >= end ? c->list[i - 1] : NULL;
}

static void array_out(struct xport_cache *c, struct entry *e)
{
	/* Two that begin at the same place would lie in one another: the place is this one's alone. */
	size_t i = begin_by(c, e->base) - 1;

	memmove(&c->list[i], &c->list[i + 1], (c->n - i - 1) * sizeof(c->list[0]));
	c->n--;
	e->found = false;
}

static void array_in(struct xport_cache *c, struct entry *e)
{
	size_t i = begin_by(c, e->base);

	memmove(&c->list[i + 1], &c->list[i], (c->n - i) * sizeof(c->list[0]));
	c->list[i] = e;
	c->n++;
	e->found = true;
}

/* ---- places ---- */

static bool more_room(struct xport_cache *c)
{
	size_t room = c->room == 0 ? 16 : c->room * 2;
	struct entry **place = realloc(c->place, room * sizeof(place[0]));

	if (place == NULL)
		return false;
	c->place = place;
	c->room = room;
	return true;
}

static struct entry *take_entry(struct xport_cache *c)
{
	struct entry *e = c->spare;

	if (e != NULL) {
		c->spare = e->next;
	} else {
		if (c->places >> PLACE_BITS != 0 || (c->places == c->room && !more_room(c)) ||
		    (e = malloc(sizeof(*e))) == NULL)
			return NULL;
		e->id = c->places;
		c->place[c->places++] = e;
	}
	e->id += USED_AGAIN;
	if (e->id < USED_AGAIN) /* the count began anew */
		e->id += USED_AGAIN;
	*e = (struct entry){.id = e->id};
	return e;
}

static void spare_entry(struct xport_cache *c, struct entry *e)
{
	e->users = 0;
	e->next = c->spare;
	c->spare = e;
}

/* NULL: there is none any more. */
static struct entry *entry_of(const struct xport_cache *c, const struct xport_cached *cached)
{
	uintptr_t id = (uintptr_t)cached->entry;
	size_t i = id & (USED_AGAIN - 1);

	return i < c->places && c->place[i]->id == id ? c->place[i] : NULL;
}

/* ---- entries ---- */

/* Deregisters one that is neither found nor has users; BUSY: it is still there, forgotten. */
static int end_entry(struct xport_cache *c, struct entry *e)
{
	int r = xport_mr_dereg(e->mr);

	if (r == XPORT_ERR_BUSY) {
		e->next = c->forgotten;
		c->forgotten = e;
		return r;
	}
	c->info.entries--;
	c->info.bytes -= e->end - e->base;
	spare_entry(c, e);
	return XPORT_OK;
}

/* Nobody finds it any more.  Without users it ends, or is BUSY; with users it stays until the last one is gone. */
static int cache_forget(struct xport_cache *c, struct entry *e)
{
	array_out(c, e);
	if (e->users == 0) {
		idle_out(e);
		return end_entry(c, e);
	}
	e->next = c->forgotten;
	c->forgotten = e;
	return XPORT_OK;
}

/* Of those that were forgotten, ends the ones without users.  BUSY: not all. */
static int sweep(struct xport_cache *c)
{
	struct entry *e, *all = c->forgotten;
	int r = XPORT_OK;

	c->forgotten = NULL;
	while ((e = all) != NULL) {
		all = e->next;
		if (e->users == 0) {
			if (end_entry(c, e) == XPORT_ERR_BUSY)
				r = XPORT_ERR_BUSY;
			continue;
		}
		e->next = c->forgotten;
		c->forgotten = e;
	}
	return r;
}

/* Those wholly inside are of no use beside a new one that covers them. */
static void forget_inside(struct xport_cache *c, uintptr_t base, uintptr_t end)
{
	size_t i = begin_by(c, base);

	while (i > 0 && c->list[i - 1]->base >= base)
		i--;
	while (i < c->n && c->list[i]->base < end) {
		if (c->list[i]->end <= end)
			(void)cache_forget(c, c->list[i]);
		else
			i++;
	}
}

static bool cache_fits(const struct xport_cache *c, size_t length)
{
	return c->info.entries < c->max_entries &&
	       (c->max_bytes == 0 || (c->info.bytes <= c->max_bytes && length <= c->max_bytes - c->info.bytes));
}

/* The one used longest ago of those without users makes room; false: there is none. */
static bool evict(struct xport_cache *c)
{
	if (c->idle.prev == &c->idle)
		return false;
	(void)cache_forget(c, c->idle.prev);
	c->info.evictions++;
	return true;
}

static int make_room(struct xport_cache *c, size_t length)
{
	while (!cache_fits(c, length)) {
		if (!evict(c))
			return svc_fail(XPORT_ERR_AGAIN, "xport_cache_get",
			                "call xport_cache_put for unused registrations, or raise "
			                "xport_cache_attr.max_entries and max_bytes",
			                "the cache is full: cannot add %zu bytes to %" PRIu64
			                " registrations of %" PRIu64 " bytes, %" PRIu64
			                " of them in use; the limits are %u registrations and %zu bytes",
			                length, c->info.entries, c->info.bytes, c->info.in_use,
			                (unsigned)c->max_entries, c->max_bytes);
	}
	return XPORT_OK;
}

static int new_entry(struct xport_cache *c, uintptr_t base, uintptr_t end, struct entry **entry)
{
	struct entry *e;
	int r;

	/* Page by page up to the last one: an end beyond the address space was refused before. */
	base &= ~(c->page - 1);
	end = (end + c->page - 1) & ~(c->page - 1);
	if (c->max_bytes != 0 && end - base > c->max_bytes)
		return svc_fail(XPORT_ERR_INVALID, "xport_cache_get", "raise xport_cache_attr.max_bytes",
		                "%zu bytes are above the limit of %zu", (size_t)(end - base), c->max_bytes);
	(void)sweep(c);
	r = make_room(c, end - base);
	if (r != XPORT_OK)
		return r;
	e = take_entry(c);
	if (e == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_cache_get", NULL, "out of memory");
	do
		r = xport_mr_reg(c->x, (void *)base, end - base, c->rights, &e->mr);
	while (r == XPORT_ERR_NO_MEMORY && evict(c));
	if (r != XPORT_OK) {
		spare_entry(c, e);
		return svc_pass(c->x, r, "xport_cache_get");
	}
	e->base = base;
	e->end = end;
	forget_inside(c, base, end);
	array_in(c, e);
	idle_in(c, e);
	c->info.entries++;
	c->info.bytes += end - base;
	*entry = e;
	return XPORT_OK;
}

/* ---- public ---- */

int xport_cache_create(xport *x, const struct xport_cache_attr *attr, xport_cache **cache)
{
	struct xport_cache_attr own;
	const struct xport_cache_attr *a = &own;
	struct xport_cache *c;
	int r = svc_grow_in(&own, sizeof(own), SVC_FIRST_CACHE_ATTR, attr, "xport_cache_create", "xport_cache_attr");

	if (r != XPORT_OK)
		return r;
	if (x == NULL || cache == NULL || (a->rights & ~(uint32_t)RIGHTS) != 0)
		return svc_fail(
			XPORT_ERR_INVALID, "xport_cache_create", NULL, "%s",
			x == NULL || cache == NULL ? "an argument is NULL"
			: (a->rights & XPORT_ATOMIC_NIC) != 0
				? "XPORT_ATOMIC_NIC is not allowed: the cache may register overlapping buffers twice"
				: "xport_cache_attr.rights has unknown bits");
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_cache_create", NULL, "out of memory");
	c->x = x;
	c->rights = a->rights;
	c->max_entries = a->max_entries == 0 ? ENTRIES : a->max_entries;
	c->max_bytes = a->max_bytes;
	/* With rights, peers would reach what lies beside the buffer. */
	c->page = a->rights == 0 ? (uintptr_t)sysconf(_SC_PAGESIZE) : 1;
	c->idle.next = c->idle.prev = &c->idle;
	c->list = calloc(c->max_entries, sizeof(c->list[0]));
	if (c->list == NULL) {
		free(c);
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_cache_create", NULL, "out of memory");
	}
	pthread_mutex_init(&c->lock, NULL);
	*cache = c;
	return XPORT_OK;
}

int xport_cache_destroy(xport_cache *c)
{
	int r;

	if (c == NULL)
		return XPORT_OK;
	while (c->n > 0)
		(void)cache_forget(c, c->list[c->n - 1]);
	for (struct entry *e = c->forgotten; e != NULL; e = e->next)
		e->users = 0;
	r = sweep(c);
	if (r != XPORT_OK)
		return svc_pass(c->x, r, "xport_cache_destroy");
	pthread_mutex_destroy(&c->lock);
	for (size_t i = 0; i < c->places; i++)
		free(c->place[i]);
	free(c->place);
	free(c->list);
	free(c);
	return XPORT_OK;
}

int xport_cache_get(xport_cache *c, void *address, size_t length, struct xport_cached *cached)
{
	uintptr_t base = (uintptr_t)address, end = base + length;
	struct entry *e;
	int r = XPORT_OK;

	if (address == NULL || length == 0 || end < base || end > UINTPTR_MAX - c->page || cached == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_cache_get", NULL,
		                "%zu bytes at %p are not a valid buffer, or an argument is NULL", length, address);
	pthread_mutex_lock(&c->lock);
	e = covering(c, base, end);
	if (e != NULL) {
		c->info.hits++;
	} else {
		c->info.misses++;
		r = new_entry(c, base, end, &e);
	}
	if (r == XPORT_OK) {
		if (e->users++ == 0) {
			idle_out(e);
			c->info.in_use++;
		}
		*cached = (struct xport_cached){.mr = e->mr, .offset = base - e->base, .entry = (void *)e->id};
	}
	pthread_mutex_unlock(&c->lock);
	return r;
}

int xport_cache_put(xport_cache *c, const struct xport_cached *cached)
{
	struct entry *e;
	int r = XPORT_OK;

	if (cached == NULL || cached->entry == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_cache_put", NULL,
		                "the registration does not come from xport_cache_get");
	pthread_mutex_lock(&c->lock);
	e = entry_of(c, cached);
	if (e == NULL || e->users == 0) {
		r = svc_fail(XPORT_ERR_INVALID, "xport_cache_put", "call xport_cache_put once for each xport_cache_get",
		             "the registration is not in use");
	} else if (--e->users == 0) {
		c->info.in_use--;
		if (e->found)
			idle_in(c, e);
		else
			(void)sweep(c);
	}
	pthread_mutex_unlock(&c->lock);
	return r;
}

int xport_cache_invalidate(xport_cache *c, const void *address, size_t length)
{
	uintptr_t base = (uintptr_t)address, end = base + length;
	int busy = 0, r = XPORT_OK;
	size_t i;

	if (length == 0)
		return 0;
	if (end < base)
		return svc_fail(XPORT_ERR_INVALID, "xport_cache_invalidate", NULL,
		                "%zu bytes at %p are not a valid buffer, or an argument is NULL", length, address);
	pthread_mutex_lock(&c->lock);
	/* They begin and end in the same order: those that reach into the range stand side by side, before this one. */
	i = begin_by(c, end - 1);
	while (i > 0 && c->list[i - 1]->end > base) {
		c->info.invalidations++;
		(void)cache_forget(c, c->list[--i]);
	}
	(void)sweep(c);
	for (struct entry *e = c->forgotten; e != NULL; e = e->next) {
		if (e->base >= end || e->end <= base)
			continue;
		busy += e->users > 0;
		if (e->users == 0)
			r = XPORT_ERR_BUSY;
	}
	if (r != XPORT_OK)
		svc_pass(c->x, r, "xport_cache_invalidate");
	pthread_mutex_unlock(&c->lock);
	return r == XPORT_OK ? busy : r;
}

int xport_cache_query(xport_cache *c, struct xport_cache_info *info)
{
	struct xport_cache_info i;

	if (info == NULL || !svc_grow_size(info->size, SVC_FIRST_CACHE_INFO))
		return svc_fail(XPORT_ERR_INVALID, "xport_cache_query", NULL,
		                "xport_cache_info.size is not the size of the struct");
	pthread_mutex_lock(&c->lock);
	i = c->info;
	pthread_mutex_unlock(&c->lock);
	svc_grow_out(info, &i, sizeof(i));
	return XPORT_OK;
}
