/* SPDX-License-Identifier: BSD-3-Clause */
/* launch.h - how an accepted put, get, atomic or flush takes its first step, or queues. */
#ifndef XPI_CORE_POST_LAUNCH_H
#define XPI_CORE_POST_LAUNCH_H

#include "core/object/op_life.h"
#include "core/object/rkey.h"
#include "core/protocol/rma.h"

/* Takes the first step now if nothing is before it, else queues. */
static inline __attribute__((always_inline)) void xpi_start(struct xport_ep *ep, struct xpi_op *op)
{
	op->waits = XPI_WAIT_SENT;
	if (!ep->rma.busy && xpi_rma_step(ep, op) == XPORT_OK)
		return;
	xpi_list_push(&ep->rma.q, &op->link);
	ep->rma.busy = true;
	ep->fast_left = 0;
	xpi_work(ep);
}

/* Counts a remote change of an operation that is counted by itself. */
static inline void xpi_touch(struct xport_ep *ep)
{
	ep->rma.n_posted++;
	ep->n.changes++;
}

/* Sends it the way that was chosen at key import. */
static inline __attribute__((always_inline)) int xpi_launch(struct xport_ep *ep, struct xpi_op *op,
                                                            struct xport_rkey *k, unsigned path)
{
	op->region = k->region;
	if (path != XPI_ROUTE_AM) {
		op->rkey = k;
		k->busy++;
	}
	ep->rma.q_posted++;
	xpi_touch(ep);
	xpi_start(ep, op);
	return XPORT_OK;
}

#endif
