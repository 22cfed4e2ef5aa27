/* SPDX-License-Identifier: BSD-3-Clause */
/* accepted.h - the connecting side learns that the application has accepted its connection, with private data. */
#ifndef XPI_CORE_PROTOCOL_ACCEPTED_H
#define XPI_CORE_PROTOCOL_ACCEPTED_H

#include "core/object/ep.h"
#include "core/object/op.h"

/*
 * xpi_accepted_tell - send XPI_REC_ACCEPTED, before all messages that are posted later.
 *
 * op    a new operation of kind XPI_OP_ACCEPTED; it belongs to the endpoint from here on
 * data  of malloc, at most XPI_PRIVATE_MAX bytes; NULL if len is 0; it belongs to the endpoint from here on
 */
void xpi_accepted_tell(struct xport_ep *ep, struct xpi_op *op, uint8_t *data, size_t len);
/* xpi_accepted_step - hand it over. XPORT_ERR_AGAIN: not possible now. */
int xpi_accepted_step(struct xport_ep *ep, struct xpi_op *op);
/* xpi_accepted_came - handle XPI_REC_ACCEPTED. False: the peer broke the protocol. */
bool xpi_accepted_came(struct xport_ep *ep, const uint8_t *data, uint32_t len);

#endif
