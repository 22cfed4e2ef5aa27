/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mr_part.h - parts of regions that have a key of their own (xport_rkey_pack_range).
 *
 * A part is an entry in the table of regions. It has no rights itself: so the check of an access to it takes the branch
 * of a refusal, which then looks at the part, and an access to a whole region costs nothing more. A part ends with its
 * key, or with its region.
 */
#ifndef XPI_CORE_OBJECT_MR_PART_H
#define XPI_CORE_OBJECT_MR_PART_H

#include "core/object/mr.h"

/* xpi_part_pack - the body of xport_rkey_pack_range. */
int xpi_part_pack(struct xport_mr *mr, uint64_t offset, uint64_t length, uint32_t rights, void *buf, size_t *len);
/*
 * xpi_part_check - check an access that the rights of `mr` do not allow: it is refused, unless `mr` is a part.
 *
 * Sets *mrp to the region, and returns what xpi_mr_check returns.
 */
int xpi_part_check(struct xport_mr *mr, uint64_t offset, uint64_t len, uint32_t right, struct xport_mr **mrp,
                   uint8_t **at) __attribute__((cold));
/* xpi_part_find - the part with this id, if its key is valid. NULL: not found. */
struct xport_mr *xpi_part_find(struct xport *x, uint64_t id);
/* xpi_part_holders - the peers that may use the native key of a part, see keys.c. */
struct xpi_list *xpi_part_holders(struct xport_mr *part);
/* xpi_part_drop - free a part that was revoked, and that no peer holds any more. */
void xpi_part_drop(struct xport_mr *part);
/* xpi_part_answered - count the answer of a holder of a part that was revoked. The last one frees the part. */
void xpi_part_answered(struct xport *x, uint64_t id);
/* xpi_parts_end - refuse further accesses by message to the parts of a region: it is being deregistered. */
void xpi_parts_end(struct xport_mr *mr);
/* xpi_parts_free - free the parts of a region, and their places in the table. */
void xpi_parts_free(struct xport_mr *mr);

#endif
