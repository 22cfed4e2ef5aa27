/* SPDX-License-Identifier: BSD-3-Clause */
/* rx.h - frames that arrive: checked, cut into records, acted upon.  Every byte is hostile. */
#ifndef XPI_CORE_RX_H
#define XPI_CORE_RX_H

#include "core/instance.h"

/* struct xpi_core_ops.am_recv */
void xpi_rx_frame(struct xpi_core *core, const void *hdr, size_t hlen, const void *data, size_t dlen);

#endif
