/* SPDX-License-Identifier: BSD-3-Clause */
/* pump.h - the transmit scheduler. */
#ifndef XPI_CORE_PROTOCOL_PUMP_H
#define XPI_CORE_PROTOCOL_PUMP_H

#include "core/object/ep.h"

/* xpi_ep_pump - send what waits: reply.q, then rma.q and msg.q, then acknowledgements and failures. In pump.c. */
void xpi_ep_pump(struct xport_ep *ep);

#endif
