/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport_batch.h - many operations with one completion.  Included by xport_services.h.
 */
#ifndef XPORT_BATCH_H
#define XPORT_BATCH_H

#ifndef XPORT_SERVICES_H
#error include xport_services.h
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * One operation of a batch.  `type` selects the function of xport.h, whose rules apply.  Set fields that the function does
 * not need to zero.
 */
struct xport_batch_op {
	int type;  /* XPORT_OP_PUT, XPORT_OP_GET, XPORT_OP_PUT_NOTIFY or XPORT_OP_ATOMIC */
	void *buf; /* put: the source, which is only read; get: the destination */
	size_t length;
	xport_rkey *rkey;
	uint64_t offset;                        /* in the remote region */
	xport_mr *mr;                           /* the local region that holds buf; NULL: not registered */
	uint64_t value;                         /* put_notify: the value that arrives */
	const struct xport_atomic_args *atomic; /* atomic: the operation, without a result */
};

/*
 * xport_batch - post operations in their order, with one completion for all of them.
 *
 * `entry_size` is sizeof(struct xport_batch_op).  The completion has the type XPORT_OP_FLUSH and `context`.  If its status
 * is XPORT_OK, all puts and atomics are placed and the bytes of all gets have arrived.  Otherwise an operation of
 * this batch, or a quiet one before it, failed.  The buffers belong to the library until the completion.  The operations
 * are ordered as single ones are.  They share frames if they travel as messages, and a doorbell with verbs.
 *
 * *posted is the number of operations that were accepted, even if the call fails:
 * - After XPORT_ERR_AGAIN poll, then call again with what is left: ops + *posted, count - *posted.  That may be no
 *   operation at all.
 * - After another error no completion follows.  The accepted operations are quiet: the next xport_flush covers them.
 *
 * Thread rule.  That of the instance.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_AGAIN          the queue is full
 *   XPORT_ERR_INVALID        an argument is NULL; entry_size is too small; an operation has a wrong `type` or `atomic` (no
 *                            operation was posted then)
 *   XPORT_ERR_NOT_SUPPORTED  an operation sets a field that this version does not know (none was posted then)
 *   another error of xport_put, xport_get, xport_put_notify, xport_atomic or xport_flush, for operation *posted
 */
int xport_batch(xport_ep *ep, const struct xport_batch_op *ops, size_t entry_size, size_t count, void *context,
                size_t *posted) XPORT_CHECK;

#ifdef __cplusplus
}
#endif

#endif
