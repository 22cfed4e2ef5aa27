/* SPDX-License-Identifier: BSD-3-Clause */
/* pieces.h - lists of pieces of local memory. */
#ifndef XPI_CORE_OBJECT_PIECES_H
#define XPI_CORE_OBJECT_PIECES_H

#include <stdbool.h>

#include "core/object/instance.h"

/* xpi_piece_mr - the region of a piece. NULL: it is not registered. */
static inline struct xport_mr *xpi_piece_mr(const struct xport_iov *piece, const struct xport_opt *opt)
{
	return piece->mr != NULL ? piece->mr : opt != NULL ? opt->mr : NULL;
}

/* xpi_pieces_count_valid - check a list and its count. `which` is "local " or "remote ", or "" if there is one list. */
int xpi_pieces_count_valid(struct xport *x, const char *operation, const char *which, const void *list, size_t count);

/*
 * xpi_pieces_valid - check a list of local pieces.
 *
 * flags   the flags that the operation takes
 * writes  the operation writes to the pieces
 * *total  set to the sum of their lengths
 *
 * Returns XPORT_OK, or, described,
 *   XPORT_ERR_FAULT    a piece is not writable
 *   XPORT_ERR_INVALID  everything else
 */
int xpi_pieces_valid(struct xport *x, const char *operation, const struct xport_iov *list, size_t count,
                     const struct xport_opt *opt, uint64_t flags, bool writes, uint64_t *total);

#endif
