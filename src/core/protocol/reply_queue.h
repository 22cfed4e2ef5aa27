/* SPDX-License-Identifier: BSD-3-Clause */
/* reply_queue.h - replies that wait to be sent to a peer. */
#ifndef XPI_CORE_PROTOCOL_REPLY_QUEUE_H
#define XPI_CORE_PROTOCOL_REPLY_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/object/op_life.h"

/*
 * xpi_reply_new - allocate a reply, which the caller queues.
 *
 * Returns NULL if out of memory, or if the peer does not drain its replies. The endpoint is failed then.
 */
struct xpi_op *xpi_reply_new(struct xport_ep *ep, unsigned kind);
/*
 * xpi_reply_refuse - queue the failure of the peer's operation `name`.
 *
 * The failure is sent before the frame with the request is acknowledged.
 */
void xpi_reply_refuse(struct xport_ep *ep, uint32_t name, int status);

/* xpi_tell_key - queue an XPI_OP_CLAIM, GRANT, ADOPT, REVOKE, GONE, REVOKED or CMA_ANSWER. */
void xpi_tell_key(struct xport_ep *ep, unsigned kind, uint64_t region);

/* xpi_lend_key - queue the native key of a local region. False: out of memory. */
bool xpi_lend_key(struct xport_ep *ep, uint64_t region);

#endif
