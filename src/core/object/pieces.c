/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/object/pieces.h"

#include <stdlib.h>
#include <string.h>

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

/* Where pieces need no further look: in a region that may be used and written, or, without one, anywhere but at NULL. */
struct span {
	uintptr_t lo, hi;
};

static inline struct span span_of(const struct xport *x, const struct xport_mr *mr)
{
	if (mr == NULL)
		return (struct span){1, UINTPTR_MAX};
	if (mr->x != x || mr->dying || mr->readonly)
		return (struct span){1, 0};
	return (struct span){(uintptr_t)mr->base, (uintptr_t)mr->base + mr->length};
}

static inline bool span_holds(const struct span *span, const struct xport_iov *piece)
{
	uintptr_t at = (uintptr_t)piece->addr;

	return at >= span->lo && at <= span->hi && piece->len <= span->hi - at;
}

int xpi_pieces_valid(struct xport *x, const char *operation, const struct xport_iov *list, size_t count,
                     const struct xport_opt *opt, uint64_t flags, bool writes, uint64_t *total)
{
	int r = xpi_pieces_count_valid(x, operation, "local ", list, count);
	const struct xport_mr *mr = NULL; /* of the piece before: mostly it is that of the next one, too */
	struct span span = span_of(x, NULL);
	uint64_t sum = 0;

	if (r == XPORT_OK && opt != NULL && (xpi_opt_bits(opt) & ~flags) != 0)
		return xpi_opt_timed(opt) || (opt->flags & XPORT_CANCELABLE) != 0
		               ? XPI_PIECES_TIMED
		               : xpi_opt_refuse(x, operation, NULL, 0, opt, flags);
	for (size_t i = 0; i < count && r == XPORT_OK; i++) {
		if (list[i].len == 0)
			continue;
		if (list[i].len > (uint64_t)INT64_MAX - sum)
			return xpi_refuse(x, XPORT_ERR_INVALID, operation,
			                  "the local list is longer than xport_info.message_max: local piece %zu has "
			                  "%zu bytes",
			                  i, list[i].len);
		sum += list[i].len;
		if (xpi_piece_mr(&list[i], opt) != mr) {
			mr = xpi_piece_mr(&list[i], opt);
			span = span_of(x, mr);
		}
		if (!span_holds(&span, &list[i]))
			r = piece_valid(x, operation, &list[i], (unsigned)i, opt, writes);
	}
	*total = sum;
	return r;
}

/* ---- lists that are kept ---- */

struct xpi_pieces *xpi_pieces_new(const struct xport_iov *list, size_t count, const struct xport_opt *opt,
                                  uint64_t total)
{
	struct xpi_pieces *p = malloc(sizeof(*p) + count * sizeof(p->piece[0]));

	if (p == NULL)
		return NULL;
	*p = (struct xpi_pieces){.total = total};
	for (size_t i = 0; i < count; i++) {
		if (list[i].len == 0)
			continue;
		p->piece[p->n] = list[i];
		p->piece[p->n].mr = xpi_piece_mr(&list[i], opt);
		if (p->piece[p->n].mr != NULL)
			p->piece[p->n].mr->busy++;
		p->n++;
	}
	return p;
}

void xpi_pieces_posted(struct xpi_pieces *p)
{
	p->posted = true;
	for (uint32_t i = 0; i < p->n; i++)
		if (p->piece[i].mr != NULL)
			p->piece[i].mr->posted++;
}

void xpi_pieces_matched(struct xpi_pieces *p)
{
	if (!p->posted)
		return;
	p->posted = false;
	for (uint32_t i = 0; i < p->n; i++)
		if (p->piece[i].mr != NULL)
			p->piece[i].mr->posted--;
}

void xpi_pieces_free(struct xpi_pieces *p)
{
	if (p == NULL)
		return;
	xpi_pieces_matched(p);
	for (uint32_t i = 0; i < p->n; i++)
		if (p->piece[i].mr != NULL)
			xpi_mr_idle(p->piece[i].mr);
	free(p);
}

uint8_t *xpi_pieces_at(struct xpi_pieces *p, uint64_t at, uint64_t *n)
{
	if (at < p->passed)
		p->passed = p->at = 0;
	for (; at - p->passed >= p->piece[p->at].len; p->at++)
		p->passed += p->piece[p->at].len;
	*n = p->piece[p->at].len - (at - p->passed);
	return (uint8_t *)p->piece[p->at].addr + (at - p->passed);
}

void xpi_pieces_out(struct xpi_pieces *p, uint64_t at, uint8_t *to, uint64_t len)
{
	uint64_t n;

	for (; len > 0; len -= n, at += n, to += n) {
		const uint8_t *from = xpi_pieces_at(p, at, &n);

		n = n < len ? n : len;
		memcpy(to, from, n);
	}
}

void xpi_pieces_in(struct xpi_pieces *p, uint64_t at, const uint8_t *from, uint64_t len)
{
	uint64_t n;

	for (; len > 0; len -= n, at += n, from += n) {
		uint8_t *to = xpi_pieces_at(p, at, &n);

		n = n < len ? n : len;
		memcpy(to, from, n);
	}
}
