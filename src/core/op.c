/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/cma.h"
#include "core/opq.h"
#include "core/rkey.h"
#include "core/rma.h"
#include "core/tx.h"

int xpi_opt_refuse(struct xport *x, const char *operation, const void *buf, size_t len, const struct xport_opt *opt,
                   uint64_t flags)
{
	if (buf == NULL && len > 0)
		return xpi_refuse(x, XPORT_ERR_INVALID, operation, "the buffer is NULL");
	if ((opt->flags & ~flags) != 0)
		return xpi_refuse(x, XPORT_ERR_INVALID, operation, "flags %#llx do not apply here",
		                  (unsigned long long)(opt->flags & ~flags));
	return xpi_refuse(x, XPORT_ERR_INVALID, operation, "the buffer does not lie in opt->mr");
}

bool xpi_full_at(struct xport_ep *ep, uint32_t in_flight)
{
	/* That counts the completions of all endpoints that need no operation. */
	if (in_flight >= ep->x->settings.queue_depth)
		in_flight = (uint32_t)xpi_stats_in_flight(ep);
	if (in_flight >= ep->x->settings.queue_depth)
		return true;
	xpi_stats_high(ep, in_flight + 1);
	xpi_found_space(ep->x, ep);
	return false;
}

int xpi_full_refuse(struct xport_ep *ep, const char *operation)
{
	struct xport *x = ep->x;

	ep->n.again++;
	ep->quick = ep->limit = 0; /* the next one that is accepted comes by xpi_quick_renew or xpi_full_at */
	xpi_want_space(x, ep);
	xpi_work(ep);
	return xpi_ep_refused(ep, xpi_refuse(x, XPORT_ERR_AGAIN, operation, "%u operations are in flight or not reaped",
	                                     (unsigned)xpi_stats_in_flight(ep)));
}

/* Flushes that tell of it, since they may be behind what failed; whether one is behind all that was posted. */
static bool told_among(const struct xpi_list *list, uint64_t touched, int status)
{
	bool told = false;

	xpi_list_for(l, list) {
		struct xpi_op *op = xpi_container(l, struct xpi_op, link);

		if (op->kind != XPORT_OP_FLUSH)
			continue;
		if (op->status == XPORT_OK)
			op->status = status;
		told = told || op->done >= touched;
	}
	return told;
}

static bool told_by_flushes(struct xport_ep *ep, int status)
{
	const struct xpi_list *const all[] = {&ep->q_rma, &ep->unacked, &ep->proving, &ep->native};
	bool told = false;

	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]) && ep->nflushes > 0; i++)
		told = told_among(all[i], ep->touched, status) || told;
	return told;
}

/* Each flush in flight tells of it, and if none of them was posted later than that, the next one. */
void xpi_quiet_failed(struct xport_ep *ep, int status)
{
	if (ep->quiet_error == XPORT_OK)
		ep->quiet_error = status;
	ep->quiet_error_at = ep->touched;
	if (told_by_flushes(ep, ep->quiet_error))
		ep->quiet_error = XPORT_OK;
}

static bool quiet_among(const struct xpi_list *list, uint64_t before)
{
	xpi_list_for(l, list) {
		const struct xpi_op *op = xpi_container(l, struct xpi_op, link);

		if ((op->flags & XPORT_QUIET) != 0 && op->order <= before)
			return true;
	}
	return false;
}

/* Whether the buffer of a quiet operation before this flush is still in use: those after it are not waited for. */
static bool quiet_before(const struct xport_ep *ep, const struct xpi_op *flush)
{
	return quiet_among(&ep->native, flush->done) || quiet_among(&ep->requests, flush->done);
}

/* Flushes that wait only for buffers of quiet operations. */
static __attribute__((cold)) void finish_flushes(struct xport_ep *ep)
{
	ep->flush_waits = false;
	xpi_list_for_safe(l, &ep->native) {
		struct xpi_op *op = xpi_container(l, struct xpi_op, link);

		if (op->kind != XPORT_OP_FLUSH)
			continue;
		if (quiet_before(ep, op))
			ep->flush_waits = true;
		else
			xpi_op_complete(op, op->status);
	}
}

static void quiet_end(struct xpi_op *op, int status)
{
	struct xport_ep *ep = op->ep;

	if (status != XPORT_OK) {
		xpi_stats_error(ep, status);
		xpi_quiet_failed(ep, status);
	}
	ep->refs--;
	xpi_op_free(ep, op);
	ep->quiet_pending--;
	if (ep->flush_waits)
		finish_flushes(ep);
	if (ep->x->want_space)
		xpi_signal(ep->x);
}

/* To be rid of a failure takes a flush that was posted later. */
static void flush_end(struct xpi_op *op)
{
	struct xport_ep *ep = op->ep;

	ep->nflushes--;
	if (op->status == XPORT_OK && ep->quiet_error != XPORT_OK) {
		op->status = ep->quiet_error;
		if (op->done >= ep->quiet_error_at)
			ep->quiet_error = XPORT_OK;
	} else if (op->status == XPORT_OK) {
		ep->proven = op->done;
	}
}

void xpi_op_complete(struct xpi_op *op, int status)
{
	struct xport_ep *ep = op->ep;

	if (xpi_list_linked(&op->link))
		xpi_list_del(&op->link);
	if (op->offer != 0)
		xpi_cma_withdraw(op);
	if (op->mr != NULL && op->kind == XPI_OP_REPLY)
		op->mr->serving--;
	else if (op->mr != NULL && op->kind < XPORT_EVENT_NOTIFY)
		xpi_mr_idle(op->mr);
	if (op->rkey != NULL)
		xpi_rkey_idle(op->rkey);
	op->mr = NULL;
	op->rkey = NULL;
	op->status = status;
	if (op->kind == XPORT_OP_GET && op->len > 0)
		ep->ngets--;
	if (op->kind >= XPI_OP_FENCE) {
		ep->owed -= xpi_op_owed(op->kind);
		xpi_op_free(ep, op);
		return;
	}
	if (op->flags & XPORT_QUIET) {
		quiet_end(op, status);
		return;
	}
	if (op->kind == XPORT_OP_FLUSH)
		flush_end(op);
	if (op->status != XPORT_OK)
		xpi_stats_error(ep, op->status);
	xpi_cq_push(&ep->x->cq, op);
}

void xpi_op_settle(struct xpi_op *op)
{
	struct xport_ep *ep = op->ep;

	if (op->waits == 0 && op->pending == 0) {
		if (op->kind != XPORT_OP_FLUSH || ep->quiet_pending == 0 || !quiet_before(ep, op)) {
			xpi_op_complete(op, op->status);
			return;
		}
		ep->flush_waits = true;
	}
	if (xpi_list_linked(&op->link))
		xpi_list_del(&op->link);
	if (op->waits & XPI_WAIT_PROOF)
		xpi_list_push(&ep->proving, &op->link);
	else if (op->waits & XPI_WAIT_ACK)
		xpi_list_push(&ep->unacked, &op->link);
	else if (op->waits & XPI_WAIT_REPLY)
		xpi_list_push(&ep->requests, &op->link);
	else
		xpi_list_push(&ep->native, &op->link);
}

void xpi_op_sent(struct xpi_op *op)
{
	struct xport_ep *ep = op->ep;

	op->pending--;
	if (op->pending == 0 && op->waits == 0)
		xpi_op_complete(op, op->status);
	if (ep->q_busy)
		xpi_work(ep);
}

void xpi_op_done(struct xpi_op *op)
{
	if (op->waits & (XPI_WAIT_PROOF | XPI_WAIT_SENT))
		xpi_work(op->ep);
	xpi_op_sent(op);
}
