/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rma.h - put, get, atomics, fence and flush: by copy, by the network, or by message.
 *
 * Each xpi_* here is the body of the public function of that name; endpoint, state and lock are dealt with before.
 * A `step` hands over as much of an operation as is possible now: XPORT_OK, it is settled; XPORT_ERR_AGAIN, it stays
 * at the head of q_rma.
 */
#ifndef XPI_CORE_RMA_H
#define XPI_CORE_RMA_H

#include "core/opq.h"
#include "core/rkey.h"

int xpi_put(struct xport_ep *ep, const void *buf, size_t len, struct xport_rkey *k, uint64_t offset,
            const struct xport_opt *opt);
/* The same, past its checks and the short way. */
int xpi_put_long(struct xport_ep *ep, const void *buf, size_t len, struct xport_rkey *k, uint64_t offset,
                 const struct xport_opt *opt);
int xpi_get(struct xport_ep *ep, void *buf, size_t len, struct xport_rkey *k, uint64_t offset,
            const struct xport_opt *opt);
int xpi_put_notify(struct xport_ep *ep, const void *buf, size_t len, struct xport_rkey *k, uint64_t offset,
                   const struct xport_opt *opt);
int xpi_atomic(struct xport_ep *ep, const struct xport_atomic_args *args, struct xport_rkey *k, uint64_t offset,
               const struct xport_opt *opt);
int xpi_fence(struct xport_ep *ep);
int xpi_flush(struct xport_ep *ep, const struct xport_opt *opt);

int xpi_rma_step(struct xport_ep *ep, struct xpi_op *op);
/* Works off q_rma from its head. */
void xpi_rma_pump(struct xport_ep *ep);

/* Hands what is left of the operation's `len` bytes, which belong at `place` of op->rkey's region, to the network; counts no
 * put.  XPORT_OK: all of it.  AGAIN: later.  NOT_SUPPORTED: it must go by message. */
int xpi_native_pieces(struct xport_ep *ep, struct xpi_op *op, uint64_t place, uint64_t len);
/* Whether what is sent now arrives after the first `posted` native puts; if not, a drain was started. */
bool xpi_native_ready(struct xport_ep *ep, uint64_t posted);
/* Whether the back end has operations that change or read the peer's memory; what it has of messages is nobody's who waits. */
bool xpi_rma_in_hands(const struct xport_ep *ep);
/* The back end ended a drain. */
void xpi_drained(struct xport_ep *ep, int status);
/* Asks for the proof that native puts are placed. */
void xpi_prove(struct xport_ep *ep);

#endif
