/* SPDX-License-Identifier: BSD-3-Clause */
/* post_msg.c - the beginning of a send. */
#include <string.h>

#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/object/usdt.h"
#include "core/post/fastpath.h"
#include "core/post/post.h"
#include "core/protocol/msg_step.h"
#include "core/protocol/tx.h"

int xpi_send(struct xport_ep *ep, const void *buf, size_t len, uint64_t tag, const struct xport_opt *opt)
{
	struct xpi_op *op;

	xpi_assert_locked(ep->x);
	if (__builtin_expect(!xpi_opt_fits(ep->x, buf, len, opt, 0, false), 0))
		return xpi_ep_refused(ep, xpi_opt_refuse(ep->x, "xport_send", buf, len, opt, 0));
	if (!xpi_tx_alone(ep)) {
		if (xpi_fast_send_may_coalesce(ep, buf, len, opt))
			return xpi_fast_send_coalesce(ep, buf, len, tag, opt);
	} else if (xpi_fast_again(ep) && xpi_fast_send_may(ep, buf, len, opt)) {
		return xpi_fast_send(ep, buf, len, tag, opt);
	}
	if (__builtin_expect(xpi_full(ep), 0))
		return xpi_full_refuse(ep, "xport_send");
	op = xpi_op_get(ep->x, ep, XPORT_OP_SEND);
	if (__builtin_expect(op == NULL, 0))
		return xpi_ep_refused(
			ep, xpi_refuse(ep->x, XPORT_ERR_NO_MEMORY, "xport_send", "no memory for another operation"));
	op->buf = (uint8_t *)(uintptr_t)buf;
	op->len = len;
	op->tag = tag;
	op->offset = 0;
	op->stamp = ep->x->tick;
	op->context = NULL;
	op->after = ep->rma.fence;
	if (opt != NULL) {
		op->context = opt->context;
		op->mr = opt->mr;
		if (op->mr != NULL)
			op->mr->busy++;
	}
	ep->refs++;
	ep->fast_left = 0; /* it counts in the depth, and takes of the window */
	ep->n.posted[XPORT_OP_SEND]++;
	ep->n.bytes_out += len;
	XPI_PROBE_OP_POSTED(ep, XPORT_OP_SEND, len, op->context);
	xpi_msg_start_inline(ep, op);
	return XPORT_OK;
}
