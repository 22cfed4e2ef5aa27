/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * early.h - frames that arrive before their endpoint is OPEN.
 *
 * The peer may send as soon as it has our READY. Its frames can overtake its own READY, which travels by TCP. They are
 * copied, and processed when the endpoint is OPEN (rx.c). So no completion names an endpoint that cannot be used yet.
 */
#ifndef XPI_CORE_OBJECT_EARLY_H
#define XPI_CORE_OBJECT_EARLY_H

#include "core/object/ep.h"

struct xpi_early {
	struct xpi_list link; /* in ep->early, oldest first */
	size_t len;
	uint8_t bytes[];
};

/*
 * xpi_early_keep - copy a frame of one or two pieces to the queue.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_PROTOCOL   the peer sent more frames than it has credits for
 *   XPORT_ERR_NO_MEMORY  out of memory
 */
int xpi_early_keep(struct xport_ep *ep, const void *p, size_t len, const void *rest, size_t rlen);

/* xpi_early_take - remove the oldest frame from the queue. The caller frees it. Returns NULL if the queue is empty. */
struct xpi_early *xpi_early_take(struct xport_ep *ep);

#endif
