/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/slab.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "services/last_error.h"
#include "services/memlock.h"
#include "services/node.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static const size_t HUGE = (size_t)SVC_HUGE_SPANS * SVC_SPAN;
/* That of the machine's own choice may be 1 GiB. */
enum { MAP_HUGE_OURS = MAP_HUGETLB | 21 << MAP_HUGE_SHIFT };

/* ---- spans ---- */

struct svc_span *svc_slab_find(struct svc_slab *slab, size_t n)
{
	size_t row = 0;

	if (slab->nfree < n)
		return NULL;
	for (size_t i = 0; i < slab->nspans; i++) {
		row = slab->span[i].block == 0 ? row + 1 : 0;
		if (row == n)
			return &slab->span[i + 1 - n];
	}
	return NULL;
}

static bool give_states(struct svc_span *span, uint32_t nblocks, bool debug)
{
	span->state = calloc(nblocks, sizeof(*span->state));
	span->asked = debug ? calloc(nblocks, sizeof(*span->asked)) : NULL;
	if (span->state != NULL && (span->asked != NULL || !debug))
		return true;
	free((void *)span->state);
	free(span->asked);
	span->state = NULL;
	span->asked = NULL;
	return false;
}

bool svc_span_cut(struct svc_span *span, size_t block, unsigned class, bool debug)
{
	uint32_t n = (uint32_t)(SVC_SPAN / block);

	if (!give_states(span, n, debug))
		return false;
	span->block = block;
	span->magic = n == 1 ? 0 : (uint32_t)(((UINT64_C(1) << 32) + block - 1) / block);
	span->class = class;
	span->nblocks = span->nfree = n;
	/* What it was filled with as one block its pieces are looked at for. */
	for (uint32_t i = 0; debug && span->filled && i < n; i++)
		span->asked[i] = SIZE_MAX;
	span->filled = false;
	memset(span->free, 0, sizeof(span->free));
	for (uint32_t i = 0; i < n; i++)
		span->free[i / 64] |= UINT64_C(1) << i % 64;
	span->slab->nfree--;
	return true;
}

bool svc_span_join(struct svc_span *span, size_t n, bool debug)
{
	if (!give_states(span, 1, debug))
		return false;
	for (size_t i = 0; i < n; i++) {
		span[i].head = span;
		span[i].block = n * SVC_SPAN;
	}
	span->magic = 0;
	span->nblocks = 1;
	span->nfree = 0;
	span->class = UINT32_MAX;
	span->slab->nfree -= n;
	return true;
}

void svc_span_uncut(struct svc_span *span)
{
	size_t n = (span->block + SVC_SPAN - 1) / SVC_SPAN;
	bool filled = span->asked != NULL && span->nblocks == 1 && span->asked[0] == SIZE_MAX;

	free((void *)span->state);
	free(span->asked);
	span->state = NULL;
	span->asked = NULL;
	for (size_t i = 0; i < n; i++) {
		span[i].block = 0;
		span[i].head = &span[i];
		span[i].filled = filled;
	}
	span->slab->nfree += n;
}

/* ---- memory ---- */

/* The slab over mr, whose spans are what is aligned in it. */
static struct svc_slab *around(xport_mr *mr, void *base, size_t length)
{
	uintptr_t first = ((uintptr_t)base + SVC_SPAN - 1) & ~(uintptr_t)(SVC_SPAN - 1);
	size_t n = (uintptr_t)base + length < first ? 0 : ((uintptr_t)base + length - first) / SVC_SPAN;
	struct svc_slab *slab = calloc(1, sizeof(*slab) + n * sizeof(slab->span[0]));

	if (slab == NULL)
		return NULL;
	slab->mr = mr;
	slab->region = (uintptr_t)base;
	slab->length = length;
	slab->nspans = slab->nfree = n;
	for (size_t i = 0; i < n; i++) {
		slab->span[i].base = first + i * SVC_SPAN;
		slab->span[i].head = &slab->span[i];
		slab->span[i].slab = slab;
	}
	return slab;
}

/* NULL, and why there are none. */
static void *map_reserved(size_t length, const char **reason)
{
	void *base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGE_OURS, -1, 0);

	if (base == MAP_FAILED) {
		*reason = strerror(errno);
		return NULL;
	}
	/*
	 * Where a control group may have fewer than are free they can be mapped, and to touch them is the end.  A kernel
	 * before 5.14 cannot say so: EINVAL.
	 */
	if (madvise(base, length, MADV_POPULATE_WRITE) == 0 || errno == EINVAL)
		return base;
	*reason = errno == EFAULT ? "the control group's limit" : strerror(errno);
	munmap(base, length);
	return NULL;
}

/* Huge pages, or ordinary ones, and says which. */
static void *map_huge(size_t *length, char *text, size_t room)
{
	const char *reason = "";
	uintptr_t at;
	char *base;

	*length = (*length + HUGE - 1) & ~(HUGE - 1);
	base = map_reserved(*length, &reason);
	if (base != NULL) {
		snprintf(text, room, "reserved huge pages");
		return base;
	}
	/* More than is wanted, for what is aligned in it. */
	base = mmap(NULL, *length + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		return NULL;
	at = ((uintptr_t)base + HUGE - 1) & ~(uintptr_t)(HUGE - 1);
	if (at != (uintptr_t)base)
		munmap(base, at - (uintptr_t)base);
	munmap((char *)at + *length, HUGE - (at - (uintptr_t)base));
	if (madvise((void *)at, *length, MADV_HUGEPAGE) == 0)
		snprintf(text, room,
		         "no reserved huge pages (%s; see vm.nr_hugepages): transparent ones, if the kernel has them",
		         reason);
	else
		snprintf(text, room,
		         "ordinary pages: no reserved huge pages (%s; see vm.nr_hugepages), no transparent ones (%s)",
		         reason, strerror(errno));
	return (void *)at;
}

static int register_own(struct svc_source *source, size_t length, const char *operation, struct svc_slab **slab)
{
	size_t map_length = length;
	void *base = map_huge(&map_length, source->huge, sizeof(source->huge));
	xport_mr *mr;
	int r;

	if (base == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "cannot map %zu bytes: %s", map_length,
		                strerror(errno));
	/* The pages are created here, on the requested node. */
	memset(base, 0, map_length);
	r = xport_mr_reg(source->x, base, map_length, source->rights, &mr);
	if (r != XPORT_OK) {
		munmap(base, map_length);
		return svc_pass(source->x, r, operation);
	}
	*slab = around(mr, base, map_length);
	if (*slab == NULL) {
		(void)xport_mr_dereg(mr);
		munmap(base, map_length);
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	}
	(*slab)->map = base;
	(*slab)->map_length = map_length;
	(*slab)->huge = strncmp(source->huge, "reserved", 8) == 0;
	return XPORT_OK;
}

static int register_theirs(struct svc_source *source, size_t length, const char *operation, struct svc_slab **slab)
{
	struct xport_mr_info info = {.size = sizeof(info)};
	xport_mr *mr;
	int r = xport_mr_alloc(source->x, length, source->rights, &mr);

	if (r == XPORT_OK && (r = xport_mr_query(mr, &info)) != XPORT_OK)
		(void)xport_mr_dereg(mr);
	if (r != XPORT_OK)
		return svc_pass(source->x, r, operation);
	if (source->node >= 0)
		memset(info.base, 0, info.length);
	*slab = around(mr, info.base, info.length);
	if (*slab != NULL)
		return XPORT_OK;
	(void)xport_mr_dereg(mr);
	return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
}

static int lock_slab(struct svc_slab *slab, const char *operation)
{
	if (mlock((void *)slab->region, slab->length) == 0)
		return XPORT_OK;
	return svc_fail(XPORT_ERR_NO_MEMORY, operation, "omit XPORT_POOL_LOCK, or raise the limit: ulimit -l",
	                "cannot lock %zu bytes: %s", slab->length, strerror(errno));
}

int svc_slab_new(struct svc_source *source, size_t spans, const char *operation, struct svc_slab **slab)
{
	/* What is allocated begins at a page, not at a span. */
	size_t length = (spans + (source->own ? 0 : 1)) * SVC_SPAN;
	struct svc_policy saved;
	struct svc_memlock now;
	bool placed;
	int r;

	if (source->memlock || (source->flags & XPORT_POOL_LOCK) != 0) {
		svc_memlock_now(&now);
		r = svc_memlock_check(&now, length, operation);
		if (r != XPORT_OK)
			return r;
	}
	placed = source->node >= 0 && svc_node_prefer(source->node, &saved) == XPORT_OK;
	r = source->own ? register_own(source, length, operation, slab)
	                : register_theirs(source, length, operation, slab);
	if (placed)
		svc_node_restore(&saved);
	if (r != XPORT_OK)
		return r;
	if (source->node >= 0)
		svc_node_tell((void *)(*slab)->region, (*slab)->length, source->node, source->placement,
		              sizeof(source->placement));
	if ((source->flags & XPORT_POOL_LOCK) == 0)
		return XPORT_OK;
	r = lock_slab(*slab, operation);
	if (r != XPORT_OK)
		(void)svc_slab_end(*slab);
	return r;
}

int svc_slab_around(xport_mr *mr, uint32_t rights, const char *operation, struct svc_slab **slab)
{
	struct xport_mr_info info = {.size = sizeof(info)};
	int r = mr == NULL ? XPORT_ERR_INVALID : xport_mr_query(mr, &info);

	if (r != XPORT_OK)
		return svc_fail(r, operation, NULL, "not a region: %s", xport_strerror(r));
	if (info.rights != rights)
		return svc_fail(XPORT_ERR_INVALID, operation, "register it with the rights of the pool",
		                "the region has rights %#x, and the pool has %#x", (unsigned)info.rights,
		                (unsigned)rights);
	if (info.length < 2 * (size_t)SVC_SPAN)
		return svc_fail(XPORT_ERR_INVALID, operation, NULL,
		                "the region has %zu bytes, and a slab needs at least %d", info.length, 2 * SVC_SPAN);
	*slab = around(mr, info.base, info.length);
	if (*slab == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	(*slab)->foreign = true;
	return XPORT_OK;
}

int svc_slab_end(struct svc_slab *slab)
{
	int r;

	if (!slab->foreign) {
		r = xport_mr_dereg(slab->mr);
		if (r == XPORT_ERR_BUSY)
			return r;
	}
	if (slab->map != NULL)
		munmap(slab->map, slab->map_length);
	for (size_t i = 0; i < slab->nspans; i++) {
		if (slab->span[i].block != 0)
			svc_span_uncut(slab->span[i].head);
	}
	free(slab);
	return XPORT_OK;
}
