/* SPDX-License-Identifier: BSD-3-Clause */
/* pieces.h - lists of pieces of local memory. */
#ifndef XPI_CORE_OBJECT_PIECES_H
#define XPI_CORE_OBJECT_PIECES_H

#include <stdbool.h>

#include "core/object/instance.h"
#include "core/object/op.h"

/* xpi_piece_mr - the region of a piece. NULL: it is not registered. */
static inline struct xport_mr *xpi_piece_mr(const struct xport_iov *piece, const struct xport_opt *opt)
{
	return piece->mr != NULL ? piece->mr : opt != NULL ? opt->mr : NULL;
}

/*
 * The list of a send or receive that outlives the call: in xpi_op.buf of an operation of kind XPI_OP_LIST. It has no empty
 * pieces, and keeps the regions of its pieces busy.
 */
struct xpi_pieces {
	uint64_t total;  /* bytes of all */
	uint64_t passed; /* bytes of the pieces before piece `at`: the last one that was looked for */
	uint32_t n, at;
	bool copied;     /* the pieces are neither offered to the peer nor lent to the network */
	bool posted;     /* the list of a receive that waits for a message: the regions know that, too */
	struct xport_iov piece[];
};

static inline struct xpi_pieces *xpi_pieces_of(const struct xpi_op *op)
{
	return (struct xpi_pieces *)(void *)op->buf;
}

/* xpi_pieces_new - copy a valid list of `total` bytes. Returns NULL if out of memory. */
struct xpi_pieces *xpi_pieces_new(const struct xport_iov *list, size_t count, const struct xport_opt *opt,
                                  uint64_t total);
/* xpi_pieces_posted, xpi_pieces_matched - count the regions as used by a posted receive, and no longer. */
void xpi_pieces_posted(struct xpi_pieces *p);
void xpi_pieces_matched(struct xpi_pieces *p);
/* xpi_pieces_free - release the regions, and free the list. NULL is allowed. */
void xpi_pieces_free(struct xpi_pieces *p);
/* xpi_pieces_at - the address of byte `at`, which the list has. *n is set to the bytes from there to the end of its piece. */
uint8_t *xpi_pieces_at(struct xpi_pieces *p, uint64_t at, uint64_t *n);
/* xpi_pieces_out, xpi_pieces_in - copy `len` bytes from byte `at` on, which the list has, from it or into it. */
void xpi_pieces_out(struct xpi_pieces *p, uint64_t at, uint8_t *to, uint64_t len);
void xpi_pieces_in(struct xpi_pieces *p, uint64_t at, const uint8_t *from, uint64_t len);

/* xpi_pieces_count_valid - check a list and its count. `which` is "local " or "remote ", or "" if there is one list. */
int xpi_pieces_count_valid(struct xport *x, const char *operation, const char *which, const void *list, size_t count);

enum { XPI_PIECES_TIMED = 1 };

/*
 * xpi_pieces_valid - check a list of local pieces.
 *
 * flags   the flags that the operation takes
 * writes  the operation writes to the pieces
 * *total  set to the sum of their lengths
 *
 * Returns XPORT_OK; XPI_PIECES_TIMED, if the options have a deadline or XPORT_CANCELABLE, and were not checked; or, described,
 *   XPORT_ERR_FAULT    a piece is not writable
 *   XPORT_ERR_INVALID  everything else
 */
int xpi_pieces_valid(struct xport *x, const char *operation, const struct xport_iov *list, size_t count,
                     const struct xport_opt *opt, uint64_t flags, bool writes, uint64_t *total);

#endif
