/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/progress/expire.h"

#include <stdio.h>

#include "base/clock.h"
#include "core/object/deadline.h"
#include "core/object/ep.h"
#include "core/object/locked.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/protocol/withdraw.h"

/* Memory may come back: a withdrawal that found none is tried again then. */
enum { AGAIN_MS = 10 };

/* The network writes to its buffer, or reads it, and cannot be asked to stop. */
static void end_with(struct xport_ep *ep)
{
	snprintf(ep->end.why, sizeof(ep->end.why),
	         "the deadline of an operation was over while the network held its buffer");
	xpi_ep_fail(ep, XPORT_ERR_TIMEOUT, XPORT_EVENT_LOST);
}

void xpi_expire(struct xport *x)
{
	int64_t now = xpi_now_ms();
	struct xpi_op *op;

	xpi_assert_locked(x);
	while ((op = xpi_deadline_next(x, now)) != NULL) {
		int r = xpi_withdraw(x, op, XPORT_ERR_TIMEOUT);

		if (r == XPORT_ERR_BUSY)
			end_with(op->ep);
		else if (r != XPORT_OK) /* the place of the entry that was just removed is free */
			xpi_deadline_add(x, xpi_op_id(x, op), now + AGAIN_MS);
	}
	xpi_deadline_ring(x);
}
