/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rma.h - put, get, atomics, fence and flush: by copy, by the network, or by message.
 *
 * xpi_fence is the body of xport_fence. The caller has checked the endpoint and its state, and holds the lock.
 *
 * A `step` hands over as much of an operation as is possible now. It returns XPORT_OK if the operation is settled, or
 * XPORT_ERR_AGAIN if it stays at the head of q_rma.
 */
#ifndef XPI_CORE_PROTOCOL_RMA_H
#define XPI_CORE_PROTOCOL_RMA_H

#include "core/object/op_life.h"
#include "core/object/rkey.h"

/* One part of a put or get with lists: one piece of memory at both ends. */
struct xpi_run {
	uint8_t *addr;
	uint64_t len, offset;
	struct xport_mr *mr;
};

int xpi_fence(struct xport_ep *ep);

/* xpi_runs_gather_any - whether xpi_runs_gather would take one of them. */
bool xpi_runs_gather_any(const struct xport_ep *ep, const struct xpi_run *run, unsigned n);
/*
 * xpi_runs_fit - true if xpi_runs_gather will take all of these runs.
 *
 * It makes space in the open frame for that. Nothing may be sent on the endpoint in between.
 */
bool xpi_runs_fit(struct xport_ep *ep, const struct xpi_run *run, unsigned n);
/*
 * xpi_runs_gather - copy runs of a put into long frames, as far as possible now.
 *
 * op  the operation that stands for all of them: it waits for their acknowledgement, or is complete
 *
 * Returns the number of runs that are left. These are the first in `run`, and must be sent by themselves.
 */
unsigned xpi_runs_gather(struct xport_ep *ep, struct xpi_op *op, struct xpi_run *run, unsigned n);

/* xpi_put_copy_step - the step of a put by message whose memory must not be lent: its data is copied into frames. */
int xpi_put_copy_step(struct xport_ep *ep, struct xpi_op *op, uint16_t ahead, bool tracked);

int xpi_rma_step(struct xport_ep *ep, struct xpi_op *op);
/* xpi_rma_pump - hand over the operations of q_rma, from its head, as far as possible. */
void xpi_rma_pump(struct xport_ep *ep);

/*
 * xpi_native_pieces - hand the rest of an operation's `len` bytes to the network. Does not count a put.
 *
 * place  where the data starts in the region of op->rkey
 *
 * Returns XPORT_OK if all of it was handed over, or
 *   XPORT_ERR_AGAIN          try again later
 *   XPORT_ERR_NOT_SUPPORTED  the operation must go by message
 */
int xpi_native_pieces(struct xport_ep *ep, struct xpi_op *op, uint64_t place, uint64_t len);
/* xpi_native_ready - true if a frame sent now arrives after the first `posted` native puts. Else it starts a drain. */
bool xpi_native_ready(struct xport_ep *ep, uint64_t posted);
/* xpi_rma_in_hands - true if the back end holds operations that change or read the peer's memory (not messages). */
bool xpi_rma_in_hands(const struct xport_ep *ep);
/* xpi_drained - handle the end of a drain, with `status`. */
void xpi_drained(struct xport_ep *ep, int status);
/* xpi_confirm_placed - request the proof that native puts are placed. */
void xpi_confirm_placed(struct xport_ep *ep);

#endif
