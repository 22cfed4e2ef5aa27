/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * withdraw.h - ending one operation whose endpoint goes on: its deadline is over, or the application cancels it.
 *
 * The application gets its completion at once, by an operation object of its own. The old object may be named in frames
 * that the peer has, or that are under way, so it stays as a ghost (XPI_OP_GHOST) until the peer has answered:
 *   a put, atomic or notified put    until its frame is acknowledged
 *   a get, an atomic with a result   until all of the answer has come, which is dropped
 *   a long send without a receive    until the peer has answered XPI_REC_WITHDRAW; if it has matched the message, its
 *                                    receive ends with XPORT_ERR_CANCELED
 *   a receive that has matched       until all of the message has come, which is dropped, or its sender withdraws it
 * What still waits in rma.q leaves an XPI_OP_FENCE that orders nothing, because the queue is counted in order.
 *
 * Only an operation whose data is copied into frames can be withdrawn: one with XPI_OFFER_NEVER, or a list that is `copied`.
 * What the back end holds (`pending`) cannot.
 */
#ifndef XPI_CORE_PROTOCOL_WITHDRAW_H
#define XPI_CORE_PROTOCOL_WITHDRAW_H

#include "core/object/op_life.h"

/*
 * xpi_withdraw - end an operation of the application that is not complete, with `status`.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BUSY       the back end holds it: only the end of its endpoint ends it
 *   XPORT_ERR_NO_MEMORY  out of memory: the operation, or a part of it, goes on
 */
int xpi_withdraw(struct xport *x, struct xpi_op *op, int status);

/* xpi_cancel - the body of xport_cancel. */
int xpi_cancel(struct xport *x, uint64_t id);

/* xpi_withdrawn - handle XPI_REC_WITHDRAW. False: the peer broke the protocol. */
bool xpi_withdrawn(struct xport_ep *ep, uint64_t tag, uint32_t rts, uint32_t into);

/*
 * What comes for an operation that is not there as it should be: it belongs to a ghost, or the peer broke the protocol
 * (false).
 *
 * xpi_ghost_data    `len` bytes of a get (XPORT_OP_GET) or a receive (XPORT_OP_RECV)
 * xpi_ghost_value   the old value of an atomic
 * xpi_ghost_failed  the failure of any operation
 * xpi_ghost_cts     the answer to the RTS of a send: the receive `into` matched it; 0: none did
 */
bool xpi_ghost_data(struct xport_ep *ep, uint32_t name, unsigned what, uint64_t at, uint64_t len);
bool xpi_ghost_value(struct xport_ep *ep, uint32_t name);
bool xpi_ghost_failed(struct xport_ep *ep, uint32_t name);
bool xpi_ghost_cts(struct xport_ep *ep, uint32_t name, uint32_t into);

#endif
