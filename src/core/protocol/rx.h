/* SPDX-License-Identifier: BSD-3-Clause */
/* rx.h - received frames: check them, cut them into records, and handle these. Every byte may be hostile. */
#ifndef XPI_CORE_PROTOCOL_RX_H
#define XPI_CORE_PROTOCOL_RX_H

#include "core/object/instance.h"

/* xpi_rx_frame - struct xpi_core_ops.am_recv, see backend.h. */
void xpi_rx_frame(struct xpi_core *core, struct xpi_core_ep *from, const void *hdr, size_t hlen, const void *data,
                  size_t dlen);

/* xpi_rx_early - process the frames that arrived before the endpoint was OPEN. It must be OPEN now. */
void xpi_rx_early(struct xport_ep *ep);

#endif
