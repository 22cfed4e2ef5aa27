/* SPDX-License-Identifier: BSD-3-Clause */
/* close.h - closing an endpoint in good order, in a call that waits or in the turns of the instance. */
#ifndef XPI_CORE_PROGRESS_CLOSE_H
#define XPI_CORE_PROGRESS_CLOSE_H

#include "core/object/ep.h"

/* xpi_ep_close - the body of xport_ep_close. Makes progress while it waits; the caller holds the lock. */
int xpi_ep_close(struct xport_ep *ep, int timeout_ms);

/* xpi_ep_close_start - the body of xport_ep_close_start. xpi_closing_walk goes on with it. */
int xpi_ep_close_start(struct xport_ep *ep, int timeout_ms);

/* xpi_closing_walk - go on with the closes that xpi_ep_close_start began; see XPI_TODO_CLOSING. */
void xpi_closing_walk(struct xport *x);

#endif
