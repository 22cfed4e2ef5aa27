/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/object/multi.h"

#include <stdlib.h>

#include "core/object/completion.h"
#include "core/object/ep.h"
#include "core/object/locked.h"
#include "core/object/mr.h"
#include "core/object/stats.h"

static void multi_complete(struct xport *x, struct xpi_op *op)
{
	struct xpi_multi *m = xpi_multi_of(op);

	op->kind = XPORT_OP_RECV_END;
	op->flags = 0;
	op->tag = op->offset = 0;
	op->len = m->used;
	op->buf = NULL;
	free(m);
	if (op->mr != NULL)
		xpi_mr_idle(op->mr);
	op->mr = NULL;
	if (op->status != XPORT_OK && op->ep != NULL)
		xpi_stats_error(op->ep, op->status);
	else if (op->status != XPORT_OK)
		x->past.errors[-op->status]++;
	xpi_cq_push(&x->cq, op);
}

void xpi_multi_end(struct xport *x, struct xpi_op *op, int status)
{
	struct xpi_multi *m = xpi_multi_of(op);

	xpi_assert_locked(x);
	x->nreceives--;
	if (op->ep != NULL) {
		op->ep->refs++;
		op->peer = op->ep->peer.incarnation;
	}
	op->status = status;
	m->ended = true;
	if (m->fetching == 0)
		multi_complete(x, op);
}

void xpi_multi_fetched(struct xpi_op *part)
{
	struct xpi_multi *m = part->multi;
	struct xport *x = part->ep->x;

	xpi_assert_locked(x);
	part->peer = part->ep->peer.incarnation;
	part->flags = 0;
	xpi_cq_push(&x->cq, part);
	if (--m->fetching == 0 && m->ended)
		multi_complete(x, m->op);
}
