/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/object/mr_part.h"

#include <inttypes.h>
#include <stdlib.h>

#include "core/object/instance.h"

static const char NAME[] = "xport_rkey_pack_range";

/* The entry in the table, and what the part is. Each key that is packed has one of its own: so it ends alone. */
struct part {
	struct xport_mr mr; /* rights 0: see mr_part.h */
	uint32_t rights;
	struct xpi_list link;    /* in the parts of its region */
	struct xpi_list holders; /* see xpi_part_holders */
};

static struct part *part_of(struct xport_mr *mr)
{
	return xpi_container(mr, struct part, mr);
}

/* Makes a part, and enters it into the table. */
static int part_new(struct xport_mr *mr, uint64_t start, uint64_t length, uint32_t rights, struct part **out)
{
	struct part *p = calloc(1, sizeof(*p));
	int r;

	if (p == NULL)
		return xpi_refuse(mr->x, XPORT_ERR_NO_MEMORY, NAME, "no memory for a part of the region");
	p->mr.x = mr->x;
	p->mr.base = mr->base + start;
	p->mr.length = length;
	p->mr.whole = mr;
	p->rights = rights;
	xpi_list_init(&p->holders);
	r = xpi_mr_enter(mr->x, &p->mr, NAME);
	if (r != XPORT_OK) {
		free(p);
		return r;
	}
	xpi_list_push(&mr->parts, &p->link);
	*out = p;
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
		r = part_new(mr, offset, length, granted, &p);
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

struct xport_mr *xpi_part_find(struct xport *x, uint64_t id)
{
	struct xport_mr *mr = xpi_mr_at(x, id);

	return mr != NULL && mr->whole != NULL && !mr->dying ? mr : NULL;
}

struct xpi_list *xpi_part_holders(struct xport_mr *mr)
{
	return &part_of(mr)->holders;
}

void xpi_part_drop(struct xport_mr *mr)
{
	struct part *p = part_of(mr);

	/* At the end of the instance some may be left. They go with their endpoint. */
	while (xpi_list_pop(&p->holders) != NULL)
		;
	xpi_list_del(&p->link);
	xpi_mr_leave(mr);
	free(p);
}

void xpi_part_answered(struct xport *x, uint64_t id)
{
	struct xport_mr *mr = xpi_mr_at(x, id);

	if (mr != NULL && mr->whole != NULL && mr->revoking > 0 && --mr->revoking == 0)
		xpi_part_drop(mr);
}

void xpi_parts_end(struct xport_mr *mr)
{
	xpi_list_for(l, &mr->parts)
		xpi_container(l, struct part, link)->mr.dying = true;
}

void xpi_parts_free(struct xport_mr *mr)
{
	xpi_list_for_safe(l, &mr->parts)
		xpi_part_drop(&xpi_container(l, struct part, link)->mr);
}
