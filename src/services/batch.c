/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A batch is a sequence of quiet operations and a flush. In addition, a wrong type is found before anything is posted,
 * and the rest of a batch can be passed again. The operations are posted without a poll in between, so they share
 * frames, or a doorbell.
 */
#include "services/last_error.h"

static const char NAME[] = "xport_batch";

/* A newer program's entries may be longer. */
static const struct xport_batch_op *nth(const struct xport_batch_op *ops, size_t entry_size, size_t n)
{
	return (const void *)((const char *)ops + n * entry_size);
}

static const char *wrong(const struct xport_batch_op *op)
{
	switch (op->type) {
	case XPORT_OP_PUT:
	case XPORT_OP_GET:
	case XPORT_OP_PUT_NOTIFY:
		return op->atomic != NULL ? "sets `atomic`, but its type is not XPORT_OP_ATOMIC" : NULL;
	case XPORT_OP_ATOMIC:
		if (op->atomic == NULL)
			return "is an atomic, and `atomic` is NULL";
		if (op->atomic->op < XPORT_ATOMIC_ADD || op->atomic->op > XPORT_ATOMIC_CAS ||
		    (op->atomic->width != 4 && op->atomic->width != 8))
			return "is an atomic with an invalid op or width";
		return op->atomic->result != NULL ? "is an atomic with a result, which a batch does not support" : NULL;
	default:
		return "has a type that a batch does not support";
	}
}

/* Whether it sets what is behind the members that are known here. */
static int batch_unknown(const struct xport_batch_op *op, size_t entry_size)
{
	for (size_t i = sizeof(*op); i < entry_size; i++)
		if (((const char *)op)[i] != 0)
			return 1;
	return 0;
}

static int batch_check(const struct xport_batch_op *ops, size_t entry_size, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct xport_batch_op *op = nth(ops, entry_size, i);

		if (wrong(op) != NULL)
			return svc_fail(XPORT_ERR_INVALID, NAME, NULL, "operation %zu of %zu %s; none was posted", i,
			                count, wrong(op));
		if (batch_unknown(op, entry_size))
			return svc_fail(XPORT_ERR_NOT_SUPPORTED, NAME, NULL,
			                "operation %zu of %zu sets a field unknown to this version; none was posted", i,
			                count);
	}
	return XPORT_OK;
}

static int batch_post(xport_ep *ep, const struct xport_batch_op *op)
{
	struct xport_opt o = {.size = sizeof(o), .flags = XPORT_QUIET, .mr = op->mr, .value = op->value};

	switch (op->type) {
	case XPORT_OP_PUT:
		return xport_put(ep, op->buf, op->length, op->rkey, op->offset, &o);
	case XPORT_OP_GET:
		return xport_get(ep, op->buf, op->length, op->rkey, op->offset, &o);
	case XPORT_OP_PUT_NOTIFY:
		return xport_put_notify(ep, op->buf, op->length, op->rkey, op->offset, &o);
	default:
		return xport_atomic(ep, op->atomic, op->rkey, op->offset, &o);
	}
}

int xport_batch(xport_ep *ep, const struct xport_batch_op *ops, size_t entry_size, size_t count, void *context,
                size_t *posted)
{
	struct xport_opt flush = {.size = sizeof(flush), .context = context};
	int r;

	if (posted != NULL)
		*posted = 0;
	if (ep == NULL || posted == NULL || (ops == NULL && count > 0) || entry_size < sizeof(*ops))
		return svc_fail(XPORT_ERR_INVALID, NAME, NULL, "%s",
		                ep == NULL                  ? "ep is NULL"
		                : posted == NULL            ? "posted is NULL"
		                : entry_size < sizeof(*ops) ? "entry_size is smaller than the struct"
		                                            : "ops is NULL");
	r = batch_check(ops, entry_size, count);
	if (r != XPORT_OK)
		return r;
	while (*posted < count) {
		r = batch_post(ep, nth(ops, entry_size, *posted));
		if (r != XPORT_OK)
			return svc_fail(r, NAME,
			                r == XPORT_ERR_AGAIN ? "reap completions, then post the remaining operations"
			                                     : "call xport_last_error for the cause",
			                "posting operation %zu of %zu failed: %s", *posted, count, xport_strerror(r));
		++*posted;
	}
	r = xport_flush(ep, &flush);
	if (r != XPORT_OK)
		return svc_fail(r, NAME, "reap completions, then call xport_batch with count 0",
		                "posting the flush after %zu operations failed: %s", count, xport_strerror(r));
	return XPORT_OK;
}
