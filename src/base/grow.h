/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * grow.h - structs of xport.h that begin with `size`, from an older or newer program than this library.
 *
 * A program passes the struct that it was compiled with. A struct shorter than this library's, but not shorter than the
 * first version, lacks members: they count as zero, or are not written. A longer struct has members that this library
 * does not know: they must be zero, or are zeroed. doc/abi.md has the rules for a new member.
 */
#ifndef XPI_BASE_GROW_H
#define XPI_BASE_GROW_H

#include <stdbool.h>
#include <stddef.h>

#include "xport.h"

enum { XPI_GROW_MAX = 4096 }; /* more than any of them will ever have: what is beyond it is no size */

/*
 * The size of a struct whose last member was `last`, without what was padded behind: that may change with the alignment of
 * what is added.
 */
#define XPI_SIZE_UP_TO(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

enum {
	XPI_FIRST_ERROR = XPI_SIZE_UP_TO(struct xport_error, hint),
	XPI_FIRST_ATTR = XPI_SIZE_UP_TO(struct xport_attr, log_level),
	XPI_FIRST_INFO = XPI_SIZE_UP_TO(struct xport_info, private_max),
	XPI_FIRST_CANDIDATE = XPI_SIZE_UP_TO(struct xport_candidate, hint),
	XPI_FIRST_VARIABLE = XPI_SIZE_UP_TO(struct xport_variable, problem),
	XPI_FIRST_CONN_ATTR = XPI_SIZE_UP_TO(struct xport_conn_attr, backlog),
	XPI_FIRST_EP_INFO = XPI_SIZE_UP_TO(struct xport_ep_info, in_flight),
	XPI_FIRST_COUNTERS = XPI_SIZE_UP_TO(struct xport_counters, errors),
	XPI_FIRST_MR_INFO = XPI_SIZE_UP_TO(struct xport_mr_info, allocated),
	XPI_FIRST_RKEY_INFO = XPI_SIZE_UP_TO(struct xport_rkey_info, direct),
	XPI_FIRST_OPT = XPI_SIZE_UP_TO(struct xport_opt, id),
	XPI_FIRST_ATOMIC_ARGS = XPI_SIZE_UP_TO(struct xport_atomic_args, result)
};

/* Whether a struct of a program may have this size. */
static inline bool xpi_grow_size(size_t size, size_t first)
{
	return size >= first && size <= XPI_GROW_MAX;
}

/*
 * Reads the program's struct into one of this library's, of `known` bytes, whose size it sets.  INVALID: it has a wrong
 * size; NOT_SUPPORTED: it asks for what this library does not know.
 */
int xpi_grow_in(void *to, size_t known, size_t first, const void *from);

/* Writes one of this library's into the program's, of `size` bytes, as much as goes in. */
void xpi_grow_out(void *to, size_t size, const void *from, size_t known);

#endif
