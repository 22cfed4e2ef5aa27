/* SPDX-License-Identifier: BSD-3-Clause */
/* msg_step.h - handing over a send or notification; inline, for the posting function and for the pump. */
#ifndef XPI_CORE_PROTOCOL_MSG_STEP_H
#define XPI_CORE_PROTOCOL_MSG_STEP_H

#include "core/protocol/msg.h"
#include "core/protocol/rma.h"
#include "core/protocol/tx.h"

/* xpi_msg_window_takes - true if the window has space for `charge` bytes. */
static inline bool xpi_msg_window_takes(const struct xport_ep *ep, uint32_t charge)
{
	return ep->msg.used - ep->msg.freed + charge <= ep->msg.window;
}

static inline size_t xpi_msg_eager_max_inline(const struct xport_ep *ep)
{
	return xpi_tx_room(ep, sizeof(struct xpi_rec_send));
}

/* xpi_msg_send_step - hand over a send, eager or as a rendezvous. XPORT_ERR_AGAIN: not possible now. */
static inline int xpi_msg_send_step(struct xport_ep *ep, struct xpi_op *op)
{
	uint32_t charge = xpi_charge(op->len);
	struct xpi_rec_send *rec = NULL;

	if (op->len > xpi_msg_eager_max_inline(ep))
		return xpi_msg_rts_step(ep, op);
	if (xpi_msg_window_takes(ep, charge))
		rec = xpi_tx_begin(ep, sizeof(*rec), op->len);
	if (rec == NULL)
		return XPORT_ERR_AGAIN;
	*rec = (struct xpi_rec_send){.r = {.type = XPI_REC_SEND, .len = htole32((uint32_t)op->len)},
	                             .tag = htole64(op->tag)};
	if (xpi_tx_end(ep, op, sizeof(*rec), op->buf, op->len, 0) < 0)
		return XPORT_ERR_AGAIN;
	ep->msg.used += charge;
	xpi_tx_own(ep);
	ep->n.slow_messages++;
	op->waits = 0;
	if (__builtin_expect(op->pending == 0 && !xpi_list_linked(&op->link), 1))
		xpi_op_complete_new(ep->x, op);
	else
		xpi_op_settle(op);
	return XPORT_OK;
}

/* xpi_msg_predecessors_gone - true if everything that must arrive before the message was handed over. */
static inline bool xpi_msg_predecessors_gone(struct xport_ep *ep, struct xpi_op *op)
{
	if (ep->rma.q_sent < op->after)
		return false;
	if (op->after_native == UINT64_MAX)
		op->after_native = op->after == 0 ? 0 : ep->rma.native_posted;
	return ep->rma.native_flushed >= op->after_native || xpi_native_ready(ep, op->after_native);
}

static inline __attribute__((always_inline)) int xpi_msg_step_inline(struct xport_ep *ep, struct xpi_op *op)
{
	if (!xpi_msg_predecessors_gone(ep, op))
		return XPORT_ERR_AGAIN;
	if (ep->keys.direct) /* copies into the peer's memory come before the message */
		atomic_thread_fence(memory_order_release);
	return op->kind == XPORT_OP_SEND ? xpi_msg_send_step(ep, op) : xpi_msg_notify_step(ep, op);
}

static inline __attribute__((always_inline)) void xpi_msg_start_inline(struct xport_ep *ep, struct xpi_op *op)
{
	op->waits = XPI_WAIT_SENT;
	op->after_native = UINT64_MAX;
	if (xpi_list_empty(&ep->msg.q) && xpi_msg_step_inline(ep, op) == XPORT_OK)
		return;
	xpi_list_push(&ep->msg.q, &op->link);
	ep->fast_left = 0;
	xpi_work(ep);
}

#endif
