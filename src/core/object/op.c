/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "base/grow.h"
#include "core/object/cma_window.h"
#include "core/object/completion.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/mr.h"
#include "core/object/multi.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/object/pieces.h"
#include "core/object/rkey.h"
#include "core/object/stats.h"
#include "core/object/wakeup.h"

int xpi_opt_refuse(struct xport *x, const char *operation, const void *buf, size_t len, const struct xport_opt *opt,
                   uint64_t flags)
{
	if (buf == NULL && len > 0)
		return xpi_refuse(x, XPORT_ERR_INVALID, operation, "the buffer is NULL");
	if ((opt->flags & ~flags) != 0)
		return xpi_refuse(x, XPORT_ERR_INVALID, operation, "flags %#llx are not allowed in this call",
		                  (unsigned long long)(opt->flags & ~flags));
	if (!xpi_mr_holds(opt->mr, x, buf, len))
		return xpi_refuse(x, XPORT_ERR_INVALID, operation,
		                  "the buffer is not inside opt->mr, or opt->mr belongs to another instance");
	return xpi_refuse(x, XPORT_ERR_FAULT, operation, "the buffer at %p is in read-only memory", buf);
}

bool xpi_full_at(struct xport_ep *ep, uint32_t in_flight)
{
	/* That counts the completions of all endpoints that need no operation. */
	if (in_flight >= ep->x->settings.queue_depth)
		in_flight = (uint32_t)xpi_stats_in_flight(ep);
	if (in_flight >= ep->x->settings.queue_depth)
		return true;
	xpi_stats_high(ep, in_flight + 1);
	xpi_again_end(ep->x, ep);
	return false;
}

int xpi_full_refuse(struct xport_ep *ep, const char *operation)
{
	struct xport *x = ep->x;

	ep->n.again++;
	ep->fast_left = ep->limit = 0; /* the next one that is accepted comes by xpi_fast_renew or xpi_full_at */
	xpi_again_begin(x, ep);
	xpi_work(ep);
	return xpi_ep_refused(ep, xpi_refuse(x, XPORT_ERR_AGAIN, operation, "%u operations are in flight or not reaped",
	                                     (unsigned)xpi_stats_in_flight(ep)));
}

int xpi_op_no_memory(struct xport_ep *ep, const char *operation)
{
	return xpi_ep_refused(ep, xpi_refuse(ep->x, XPORT_ERR_NO_MEMORY, operation, "no memory for another operation"));
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
	const struct xpi_list *const all[] = {&ep->rma.q, &ep->unacked, &ep->placing, &ep->native};
	bool told = false;

	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]) && ep->rma.nflushes > 0; i++)
		told = told_among(all[i], ep->rma.n_posted, status) || told;
	return told;
}

/* Each flush in flight tells of it, and if none of them was posted later than that, the next one. */
void xpi_quiet_failed(struct xport_ep *ep, int status)
{
	if (ep->rma.quiet_error == XPORT_OK)
		ep->rma.quiet_error = status;
	ep->rma.quiet_error_at = ep->rma.n_posted;
	if (told_by_flushes(ep, ep->rma.quiet_error))
		ep->rma.quiet_error = XPORT_OK;
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
	ep->rma.flush_waits = false;
	xpi_list_for_safe(l, &ep->native) {
		struct xpi_op *op = xpi_container(l, struct xpi_op, link);

		if (op->kind != XPORT_OP_FLUSH)
			continue;
		if (quiet_before(ep, op)) {
			ep->rma.flush_waits = true;
		} else {
			op->waits = 0;
			xpi_op_complete(op, op->status);
		}
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
	ep->rma.quiet_pending--;
	if (ep->rma.flush_waits)
		finish_flushes(ep);
	if (ep->x->backpressure.wanted)
		xpi_signal(ep->x);
}

/* To be rid of a failure takes a flush that was posted later. */
static void flush_end(struct xpi_op *op)
{
	struct xport_ep *ep = op->ep;

	ep->rma.nflushes--;
	if (op->status == XPORT_OK && ep->rma.quiet_error != XPORT_OK) {
		op->status = ep->rma.quiet_error;
		if (op->done >= ep->rma.quiet_error_at)
			ep->rma.quiet_error = XPORT_OK;
	} else if (op->status == XPORT_OK) {
		ep->rma.n_placed = op->done;
	}
}

void xpi_run_ended(struct xpi_op *op, int status)
{
	if (op->status == XPORT_OK)
		op->status = status;
	if (--op->pending == 0)
		xpi_op_complete(op, op->status);
}

static void run_end(struct xpi_op *run, int status)
{
	struct xpi_op *op = run->context;

	xpi_op_free(run->ep, run);
	xpi_run_ended(op, status);
}

void xpi_op_list_end(struct xpi_op *op)
{
	xpi_pieces_free(xpi_pieces_of(op));
	op->kind = xpi_op_what(op);
}

/* Ends an internal operation. False: it is a send or receive; its list is freed, and it completes as usual. */
static bool internal_end(struct xpi_op *op, int status)
{
	if (op->kind < XPI_OP_LIST) {
		op->ep->reply.owed -= xpi_op_owed(op->kind);
		xpi_op_free(op->ep, op);
		return true;
	}
	if (xpi_op_what(op) <= XPORT_OP_GET) {
		run_end(op, status);
		return true;
	}
	xpi_op_list_end(op);
	return false;
}

/* A quiet operation, or a message of a receive that takes many. */
static void unlike_others_end(struct xpi_op *op, int status)
{
	if ((op->flags & XPORT_QUIET) != 0) {
		quiet_end(op, status);
		return;
	}
	if (status != XPORT_OK)
		xpi_stats_error(op->ep, status);
	xpi_multi_fetched(op);
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
	else if (op->mr != NULL && xpi_op_what(op) < XPORT_EVENT_NOTIFY)
		xpi_mr_idle(op->mr);
	if (op->rkey != NULL)
		xpi_rkey_idle(op->rkey);
	op->mr = NULL;
	op->rkey = NULL;
	op->status = status;
	if (xpi_op_what(op) == XPORT_OP_GET && op->len > 0)
		ep->rma.ngets--;
	if (op->kind >= XPI_OP_FENCE && internal_end(op, status))
		return;
	if (op->flags & (XPORT_QUIET | XPI_OP_PART)) {
		unlike_others_end(op, status);
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
		if (op->kind != XPORT_OP_FLUSH || ep->rma.quiet_pending == 0 || !quiet_before(ep, op)) {
			xpi_op_complete(op, op->status);
			return;
		}
		ep->rma.flush_waits = true;
		op->waits = XPI_WAIT_QUIET;
	}
	if (xpi_list_linked(&op->link))
		xpi_list_del(&op->link);
	if (op->waits & XPI_WAIT_PROOF)
		xpi_list_push(&ep->placing, &op->link);
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
	if (ep->rma.busy)
		xpi_work(ep);
}

void xpi_op_done(struct xpi_op *op)
{
	if (op->waits & (XPI_WAIT_PROOF | XPI_WAIT_SENT))
		xpi_work(op->ep);
	xpi_op_sent(op);
}

struct xpi_op *xpi_event_room(struct xport *x)
{
	return xpi_op_get(x, NULL, 0);
}

void xpi_event_unroom(struct xport *x, struct xpi_op **room)
{
	if (*room != NULL)
		xpi_op_put(x, *room);
	*room = NULL;
}

void xpi_event(struct xport *x, struct xpi_op **room, int type, int status, struct xport_ep *ep, void *context)
{
	struct xpi_op *op = *room;

	*room = NULL;
	op->kind = (uint32_t)type;
	op->ep = ep;
	op->status = status;
	op->context = context;
	op->tag = op->len = op->offset = 0;
	if (ep != NULL) {
		ep->refs++;
		op->peer = ep->peer.incarnation;
	}
	xpi_cq_push(&x->cq, op);
}

bool xpi_event_forget(struct xport *x, int type, const void *context, unsigned keep)
{
	struct xpi_op *oldest = NULL;
	unsigned n = 0;

	xpi_list_for(l, &x->cq.overflow) {
		struct xpi_op *op = xpi_container(l, struct xpi_op, link);

		if (op->kind != (uint32_t)type || op->ep != NULL || op->context != context)
			continue;
		oldest = oldest != NULL ? oldest : op;
		n++;
	}
	if (n <= keep)
		return false;
	xpi_list_del(&oldest->link);
	xpi_op_put(x, oldest);
	return true;
}
