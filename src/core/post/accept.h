/* SPDX-License-Identifier: BSD-3-Clause */
/* accept.h - the checks of a put, get or atomic, and the operation object of an accepted one. */
#ifndef XPI_CORE_POST_ACCEPT_H
#define XPI_CORE_POST_ACCEPT_H

#include "core/object/op_life.h"
#include "core/object/rkey.h"
#include "core/object/usdt.h"
#include "core/post/post.h"

/* xpi_post_new - allocate an accepted operation, and count it. Returns NULL if out of memory. */
static inline struct xpi_op *xpi_post_new(struct xport_ep *ep, unsigned kind, const void *buf, uint64_t len,
                                          uint64_t offset, const struct xport_opt *opt)
{
	struct xpi_op *op = xpi_op_get(ep->x, ep, kind);

	if (__builtin_expect(op == NULL, 0))
		return NULL;
	op->buf = (uint8_t *)(uintptr_t)buf;
	op->len = len;
	op->offset = offset;
	op->tag = 0;
	op->stamp = ep->x->tick;
	op->context = NULL;
	ep->refs++;
	ep->fast_left = 0; /* it counts in the depth, and may take of the window */
	ep->n.posted[kind]++;
	if (opt != NULL) {
		op->flags = (uint8_t)opt->flags;
		op->context = opt->context;
		op->mr = opt->mr;
		if (op->mr != NULL)
			op->mr->busy++;
		if (op->flags & XPORT_QUIET) {
			ep->rma.quiet_pending++;
			op->order = ep->rma.n_posted + 1;
		}
	}
	XPI_PROBE_OP_POSTED(ep, kind, len, op->context);
	return op;
}

enum { XPI_POST_UNFIT = 1 };

/* A refusal, which is never XPI_POST_UNFIT: so the compiler need not keep the arguments of the call beyond it. */
static inline int xpi_post_refused(int status)
{
	if (status >= 0)
		__builtin_unreachable();
	return status;
}

/* xpi_post_flags - the flags that a put, get or atomic takes, by the right that it needs. */
static inline uint64_t xpi_post_flags(uint32_t right)
{
	return right == XPORT_REMOTE_READ ? XPORT_QUIET : XPORT_LOCAL | XPORT_QUIET;
}

/*
 * xpi_post_admit - check a put, get or atomic.
 *
 * Returns XPORT_OK, or
 *   XPI_POST_UNFIT  the options have a deadline, or do not fit: the caller leaves the rest to its NAME_unfit
 *   an error        the refusal, described
 */
static inline __attribute__((always_inline)) int xpi_post_admit(struct xport_ep *ep, const char *operation,
                                                                const void *buf, uint64_t len, struct xport_rkey *k,
                                                                uint64_t offset, uint32_t right,
                                                                const struct xport_opt *opt)
{
	uint64_t flags = xpi_post_flags(right);

	if (__builtin_expect(k == NULL || !xpi_rkey_fits(k, ep, offset, len, right), 0))
		return xpi_post_refused(xpi_key_refuse(ep, operation, k, offset, len, right));
	if (__builtin_expect(!xpi_opt_fits(ep->x, buf, len, opt, flags, right == XPORT_REMOTE_READ), 0))
		return XPI_POST_UNFIT;
	return XPORT_OK;
}

#endif
