/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/object/mr_part.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/object/instance.h"

static const char NAME[] = "xport_rkey_pack_range";

/* The entry in the table, and what the part is. */
struct part {
	struct xport_mr mr; /* rights 0: see mr_part.h */
	uint64_t start;
	uint32_t rights;
};

/* In the order of part_compare: packing the same part again finds it. */
struct xpi_parts {
	uint32_t n, room;
	struct part **part;
};

static struct part *part_of(struct xport_mr *mr)
{
	return xpi_container(mr, struct part, mr);
}

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int part_compare(const struct part *p, uint64_t start, uint64_t length, uint32_t rights)
{
	int c = compare(p->start, start);

	if (c == 0)
		c = compare(p->mr.length, length);
	return c != 0 ? c : compare(p->rights, rights);
}

/* Where the part is, or belongs. */
static uint32_t part_find(const struct xpi_parts *parts, uint64_t start, uint64_t length, uint32_t rights)
{
	uint32_t lo = 0, hi = parts->n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (part_compare(parts->part[mid], start, length, rights) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool parts_grow(struct xpi_parts *parts)
{
	uint32_t room = parts->room > 0 ? 2 * parts->room : 8;
	struct part **bigger;

	if (parts->n < parts->room)
		return true;
	bigger = realloc(parts->part, room * sizeof(struct part *));
	if (bigger == NULL)
		return false;
	parts->part = bigger;
	parts->room = room;
	return true;
}

/* The list of the region's parts, with space for one more. NULL: out of memory. */
static struct xpi_parts *parts_ready(struct xport_mr *mr)
{
	if (mr->parts == NULL)
		mr->parts = calloc(1, sizeof(*mr->parts));
	return mr->parts != NULL && parts_grow(mr->parts) ? mr->parts : NULL;
}

static int no_memory(struct xport_mr *mr)
{
	return xpi_refuse(mr->x, XPORT_ERR_NO_MEMORY, NAME, "no memory for a part of the region");
}

/* The part in the table, an old one or a new one. */
static int part_get(struct xport_mr *mr, uint64_t start, uint64_t length, uint32_t rights, struct part **out)
{
	struct xpi_parts *parts = parts_ready(mr);
	struct part *p = NULL;
	uint32_t at;
	int r;

	if (parts == NULL)
		return no_memory(mr);
	at = part_find(parts, start, length, rights);
	if (at < parts->n && part_compare(parts->part[at], start, length, rights) == 0) {
		*out = parts->part[at];
		return XPORT_OK;
	}
	p = calloc(1, sizeof(*p));
	if (p == NULL)
		return no_memory(mr);
	p->mr.x = mr->x;
	p->mr.base = mr->base + start;
	p->mr.length = length;
	p->mr.whole = mr;
	p->start = start;
	p->rights = rights;
	r = xpi_mr_enter(mr->x, &p->mr, NAME);
	if (r != XPORT_OK) {
		free(p);
		return r;
	}
	memmove(&parts->part[at + 1], &parts->part[at], (parts->n - at) * sizeof(struct part *));
	parts->part[at] = *out = p;
	parts->n++;
	return XPORT_OK;
}

static int part_valid(struct xport_mr *mr, uint64_t offset, uint64_t length, uint32_t rights)
{
	struct xport *x = mr->x;

	if (mr->dying)
		return xpi_refuse(x, XPORT_ERR_INVALID, NAME, "the region is being deregistered by another thread");
	if (length == 0)
		return xpi_refuse(x, XPORT_ERR_INVALID, NAME, "the length is 0");
	if (length > mr->length || offset > mr->length - length)
		return xpi_refuse(x, XPORT_ERR_BOUNDS, NAME,
		                  "%" PRIu64 " bytes at offset %" PRIu64 " of a region of %" PRIu64 " bytes", length,
		                  offset, mr->length);
	if (offset > XPI_KEY_START_MAX)
		return xpi_refuse(x, XPORT_ERR_BOUNDS, NAME, "a part begins at most %" PRIu64 " bytes into its region",
		                  XPI_KEY_START_MAX);
	if ((rights & ~mr->rights) != 0)
		return xpi_refuse(x, XPORT_ERR_INVALID, NAME, "the region does not grant the rights %#x",
		                  rights & ~mr->rights);
	if ((rights & XPORT_ATOMIC_NIC) != 0 && (rights & XPORT_REMOTE_ATOMIC) == 0)
		return xpi_refuse(x, XPORT_ERR_INVALID, NAME, "XPORT_ATOMIC_NIC goes with XPORT_REMOTE_ATOMIC");
	return XPORT_OK;
}

/* What the key grants: atomics on a region of the adapter's are the adapter's, too. */
static uint32_t part_rights(const struct xport_mr *mr, uint32_t rights)
{
	if (rights == 0)
		return mr->rights;
	return (rights & XPORT_REMOTE_ATOMIC) != 0 ? rights | (mr->rights & XPORT_ATOMIC_NIC) : rights;
}

int xpi_part_pack(struct xport_mr *mr, uint64_t offset, uint64_t length, uint32_t rights, void *buf, size_t *len)
{
	uint32_t granted = part_rights(mr, rights);
	struct part *p = NULL;
	int r = part_valid(mr, offset, length, granted);

	if (r == XPORT_OK)
		r = xpi_mr_pack_room(mr->x, NAME, buf, len);
	if (r == XPORT_OK)
		r = part_get(mr, offset, length, granted, &p);
	if (r != XPORT_OK)
		return r;
	xpi_mr_key_write(&p->mr, ((uintptr_t)p->mr.base & XPI_KEY_BASE_MASK) | offset << XPI_KEY_BASE_BITS,
	                 xpi_mr_key_rights(mr, granted) | XPI_KEY_PART, buf);
	return XPORT_OK;
}

int xpi_part_check(struct xport_mr *mr, uint64_t offset, uint64_t len, uint32_t right, struct xport_mr **mrp,
                   uint8_t **at)
{
	const struct part *p;

	if (mr->whole == NULL)
		return XPORT_ERR_ACCESS;
	p = part_of(mr);
	*mrp = mr->whole;
	if ((p->rights & right) == 0)
		return XPORT_ERR_ACCESS;
	if (len > mr->length || offset > mr->length - len)
		return XPORT_ERR_BOUNDS;
	*at = mr->base + offset;
	return XPORT_OK;
}

void xpi_parts_end(struct xport_mr *mr)
{
	for (uint32_t i = 0; mr->parts != NULL && i < mr->parts->n; i++)
		mr->parts->part[i]->mr.dying = true;
}

void xpi_parts_free(struct xport_mr *mr)
{
	struct xpi_parts *parts = mr->parts;

	for (uint32_t i = 0; parts != NULL && i < parts->n; i++) {
		xpi_mr_leave(&parts->part[i]->mr);
		free(parts->part[i]);
	}
	if (parts != NULL)
		free(parts->part);
	free(parts);
	mr->parts = NULL;
}
