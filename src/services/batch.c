/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Quiet operations, and a flush: all that a batch adds is that what is wrong with it is found before anything is posted, and
 * that what is left of it can be given again.  The network sees operations that follow one another without a poll between
 * them, which share frames, or a doorbell.
 */
#include "services/fault.h"

static const char NAME[] = "xport_batch";

static const char *wrong(const struct xport_batch_op *op)
{
	switch (op->type) {
	case XPORT_OP_PUT:
	case XPORT_OP_GET:
	case XPORT_OP_PUT_NOTIFY:
		return op->atomic != NULL ? "has `atomic` set, but is none" : NULL;
	case XPORT_OP_ATOMIC:
		if (op->atomic == NULL)
			return "is an atomic without `atomic`";
		return op->atomic->result != NULL ? "is an atomic with a result, which has a completion of its own"
		                                  : NULL;
	default:
		return "is of a type that no batch has";
	}
}

static int post(xport_ep *ep, const struct xport_batch_op *op)
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

int xport_batch(xport_ep *ep, const struct xport_batch_op *ops, size_t count, void *context, size_t *posted)
{
	struct xport_opt flush = {.size = sizeof(flush), .context = context};
	int r;

	if (ep == NULL || posted == NULL || (ops == NULL && count > 0))
		return svc_fail(XPORT_ERR_INVALID, NAME, NULL, "%s is NULL",
		                ep == NULL       ? "ep"
		                : posted == NULL ? "posted"
		                                 : "ops");
	*posted = 0;
	for (size_t i = 0; i < count; i++)
		if (wrong(&ops[i]) != NULL)
			return svc_fail(XPORT_ERR_INVALID, NAME, NULL, "operation %zu of %zu %s; none was posted", i,
			                count, wrong(&ops[i]));
	while (*posted < count) {
		r = post(ep, &ops[*posted]);
		if (r != XPORT_OK)
			return svc_fail(r, NAME,
			                r == XPORT_ERR_AGAIN ? "reap completions, then give it those that are left"
			                                     : "xport_last_error tells why",
			                "operation %zu of %zu was refused: %s", *posted, count, xport_strerror(r));
		++*posted;
	}
	r = xport_flush(ep, &flush);
	if (r != XPORT_OK)
		return svc_fail(r, NAME, "reap completions, then call it again without operations",
		                "the flush behind %zu operations was refused: %s", count, xport_strerror(r));
	return XPORT_OK;
}
