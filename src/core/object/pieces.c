/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/object/pieces.h"

#include "core/object/instance.h"
#include "core/object/mr.h"
#include "core/object/op.h"
#include "core/object/op_life.h"

/* ---- checks ---- */

int xpi_pieces_count_valid(struct xport *x, const char *operation, const char *which, const void *list, size_t count)
{
	if (list == NULL)
		return xpi_refuse(x, XPORT_ERR_INVALID, operation, "the %slist is NULL", which);
	if (count == 0)
		return xpi_refuse(x, XPORT_ERR_INVALID, operation,
		                  "the %slist has no pieces: give it at least one, which may be of 0 bytes", which);
	if (count > XPI_IOV_MAX)
		return xpi_refuse(
			x, XPORT_ERR_INVALID, operation,
			"the %slist has %zu pieces, and at most %d are allowed (xport_info.iov_max): split it", which,
			count, XPI_IOV_MAX);
	return XPORT_OK;
}

static __attribute__((cold)) int piece_valid(struct xport *x, const char *operation, const struct xport_iov *piece,
                                             unsigned i, const struct xport_opt *opt, bool writes)
{
	const struct xport_mr *mr = xpi_piece_mr(piece, opt);

	if (piece->addr == NULL)
		return xpi_refuse(x, XPORT_ERR_INVALID, operation, "local piece %u has %zu bytes at address NULL", i,
		                  piece->len);
	if (mr == NULL)
		return XPORT_OK;
	if (!xpi_mr_holds(mr, x, piece->addr, piece->len))
		return xpi_refuse(x, XPORT_ERR_INVALID, operation,
		                  "local piece %u, %zu bytes at %p, is not inside its region, or the region belongs to "
		                  "another instance",
		                  i, piece->len, piece->addr);
	if (writes && mr->readonly && !xpi_mr_writable(mr, piece->addr, piece->len))
		return xpi_refuse(x, XPORT_ERR_FAULT, operation, "local piece %u at %p is in read-only memory", i,
		                  piece->addr);
	return XPORT_OK;
}

/* What is usual: nothing has to be looked up. */
static inline bool piece_plain(const struct xport *x, const struct xport_iov *piece, const struct xport_mr *mr)
{
	return piece->addr != NULL && (mr == NULL || (xpi_mr_holds(mr, x, piece->addr, piece->len) && !mr->readonly));
}

int xpi_pieces_valid(struct xport *x, const char *operation, const struct xport_iov *list, size_t count,
                     const struct xport_opt *opt, uint64_t flags, bool writes, uint64_t *total)
{
	int r = xpi_pieces_count_valid(x, operation, "local ", list, count);
	uint64_t sum = 0;

	if (r == XPORT_OK && opt != NULL && (opt->flags & ~flags) != 0)
		r = xpi_opt_refuse(x, operation, NULL, 0, opt, flags);
	for (size_t i = 0; i < count && r == XPORT_OK; i++) {
		if (list[i].len == 0)
			continue;
		if (list[i].len > (uint64_t)INT64_MAX - sum)
			return xpi_refuse(x, XPORT_ERR_INVALID, operation,
			                  "the local list is longer than xport_info.message_max: local piece %zu has "
			                  "%zu bytes",
			                  i, list[i].len);
		sum += list[i].len;
		if (!piece_plain(x, &list[i], xpi_piece_mr(&list[i], opt)))
			r = piece_valid(x, operation, &list[i], (unsigned)i, opt, writes);
	}
	*total = sum;
	return r;
}
