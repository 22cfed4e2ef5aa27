/* SPDX-License-Identifier: BSD-3-Clause */
/* blocking.c - the calls that wait: connect, accept, deregister; close.c has the fourth. */
#include "core/progress/blocking.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/cm/cm.h"
#include "core/cm/handshake.h"
#include "core/object/accept_queue.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/mr.h"
#include "core/object/mr_part.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/progress/progress.h"
#include "core/protocol/accepted.h"
#include "core/protocol/keys.h"

/* Polls until the handshake has ended one way or the other. */
static int connect_wait(struct xport *x, struct xport_ep *ep, int64_t deadline_ms, struct xpi_conn_wait *wait)
{
	while (!wait->established && !wait->failed) {
		int64_t left = deadline_ms - xpi_now_ms();
		int rc = xpi_progress(x);

		if (wait->established || wait->failed)
			break;
		if (rc < 0)
			return rc;
		if (ep->conn == NULL)
			return xpi_fail(&x->err, ep->end.reason != XPORT_OK ? ep->end.reason : XPORT_ERR_REFUSED, 0,
			                NULL, NULL, "the endpoint failed while it was being connected");
		if (left <= 0)
			xpi_conn_fail(ep->conn, xpi_conn_timeout(ep->conn));
		else
			xpi_idle(x, (int)left);
	}
	if (wait->established)
		return XPORT_OK;
	x->err = wait->err;
	return wait->err.status;
}

int xpi_connect(struct xport *x, const char *address, const struct xport_conn_attr *attr, int timeout_ms,
                struct xport_ep **out)
{
	int later_ms = timeout_ms == 0 && attr != NULL && attr->connect_ms > 0 ? attr->connect_ms : XPI_CONNECT_MS;
	int64_t deadline_ms = xpi_now_ms() + (timeout_ms > 0 ? timeout_ms : later_ms);
	struct xpi_conn_wait wait = {0};
	struct xport_ep *ep;
	int rc = xpi_connect_begin(x, address, attr, timeout_ms, deadline_ms, &ep);

	xpi_assert_locked(x);
	if (rc != XPORT_OK)
		return rc;
	if (timeout_ms == 0) {
		ep->announce = true;
		*out = ep;
		return XPORT_OK;
	}
	ep->conn->wait = &wait;
	ep->held = true;
	rc = connect_wait(x, ep, deadline_ms, &wait);
	ep->held = false;
	if (ep->destroyed) { /* by a thread that has reaped its end, or a message, before this one ran */
		if (ep->conn != NULL)
			ep->conn->wait = NULL;
		x->todo |= XPI_TODO_RELEASE;
		xpi_request_attention(x);
		return rc != XPORT_OK
		               ? rc
		               : xpi_fail(&x->err, ep->end.reason, 0, NULL, NULL,
		                          "the endpoint was connected, then ended, and another thread destroyed it");
	}
	if (rc != XPORT_OK)
		return xpi_connect_undo(x, ep, rc);
	*out = ep;
	return XPORT_OK;
}

static bool has_open(struct xport_listener *l)
{
	xpi_listener_drop_ended(l);
	return !xpi_list_empty(&l->ready);
}

static int accept_timeout(struct xport_listener *l, int timeout_ms)
{
	struct xport_error *err = &l->x->err;
	unsigned failed = l->failed;

	l->failed = 0;
	if (failed == 0)
		return xpi_fail(err, XPORT_ERR_TIMEOUT, 0, NULL, NULL, "no connection came to %s within %d ms", l->name,
		                timeout_ms);
	return xpi_fail(err, XPORT_ERR_TIMEOUT, 0, NULL, NULL,
	                "no connection was made with %s within %d ms; %u failed, the last one with %s", l->name,
	                timeout_ms, failed, l->last_failure);
}

/* What xport_accept_with sends, made before it takes the connection, which cannot go back. */
struct answer {
	struct xpi_op *op;
	uint8_t *data;
	size_t len;
};

static void answer_free(struct xport *x, struct answer *a)
{
	if (a->op != NULL)
		xpi_op_put(x, a->op);
	free(a->data);
}

static int answer_make(struct xport *x, const struct xport_conn_attr *attr, struct answer *a)
{
	*a = (struct answer){.len = attr != NULL ? attr->private_len : 0};
	if (attr == NULL)
		return XPORT_OK;
	a->op = xpi_op_get(x, NULL, XPI_OP_ACCEPTED);
	if (a->len > 0)
		a->data = malloc(a->len);
	if (a->op == NULL || (a->len > 0 && a->data == NULL)) {
		answer_free(x, a);
		return xpi_fail(&x->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for private data");
	}
	if (a->len > 0)
		memcpy(a->data, attr->private_data, a->len);
	return XPORT_OK;
}

/* A peer that has closed gets no answer. */
static void answer_send(struct xport_ep *ep, struct answer *a, void *context)
{
	if (a->op == NULL)
		return;
	if (context != NULL)
		ep->context = context;
	if (ep->state != XPI_EP_OPEN) {
		answer_free(ep->x, a);
		return;
	}
	a->op->ep = ep;
	xpi_accepted_tell(ep, a->op, a->data, a->len);
}

static int accept_attr_check(struct xport *x, const struct xport_conn_attr *attr)
{
	uint32_t forbidden;

	if (attr != NULL && (attr->backlog != 0 || attr->connect_ms != 0 || attr->transports != NULL ||
	                     attr->traffic_class != XPORT_TRAFFIC_DEFAULT))
		return xpi_fail(
			&x->err, XPORT_ERR_INVALID, 0, NULL, "set them in the attr of xport_listen",
			"backlog, connect_ms, transports and traffic_class do not apply to an accepted connection");
	return xpi_conn_attr_check(x, attr, &forbidden);
}

/* Waits until a connection is ready. XPORT_OK, with l->closed or without. */
static int accept_wait(struct xport_listener *l, int timeout_ms)
{
	int64_t deadline = timeout_ms >= 0 ? xpi_now_ms() + timeout_ms : INT64_MAX, left;
	struct xport *x = l->x;
	int rc = XPORT_OK;

	l->waiters++;
	while (!l->closed && !has_open(l)) {
		rc = xpi_progress(x);
		if (rc < 0 || l->closed || has_open(l))
			break;
		left = deadline - xpi_now_ms();
		if (left <= 0) {
			rc = accept_timeout(l, timeout_ms);
			break;
		}
		xpi_idle(x, timeout_ms < 0 ? -1 : (int)left);
	}
	l->waiters--;
	return rc < 0 ? rc : XPORT_OK;
}

static int accept_take(struct xport_listener *l, const struct xport_conn_attr *attr, struct xport_ep **ep)
{
	struct xport *x = l->x;
	struct answer answer;
	int rc = answer_make(x, attr, &answer);

	if (rc != XPORT_OK)
		return rc;
	*ep = xpi_accept_take(l, xpi_container(l->ready.next, struct xpi_ready, link));
	xpi_event_forget(x, XPORT_EVENT_INCOMING, l, (unsigned)l->nready); /* this call is its answer */
	answer_send(*ep, &answer, attr != NULL ? attr->context : NULL);
	return XPORT_OK;
}

int xpi_listener_accept(struct xport_listener *l, const struct xport_conn_attr *attr, int timeout_ms,
                        struct xport_ep **ep)
{
	struct xport *x = l->x;
	int rc = accept_attr_check(x, attr);

	xpi_assert_locked(x);
	if (rc != XPORT_OK)
		return rc;
	rc = accept_wait(l, timeout_ms);
	if (!l->closed)
		return rc == XPORT_OK ? accept_take(l, attr, ep) : rc;
	if (l->waiters == 0)
		xpi_listener_free(l);
	return xpi_fail(&x->err, XPORT_ERR_CLOSED, 0, NULL, NULL, "the listener was closed while this call waited");
}

/* Notifications not reaped yet must not show a region that is gone. */
static void forget_in_queue(struct xport *x, struct xport_mr *mr)
{
	xpi_list_for(l, &x->cq.overflow) {
		struct xpi_op *op = xpi_container(l, struct xpi_op, link);

		if (op->kind == XPORT_EVENT_NOTIFY && op->mr == mr)
			op->mr = NULL;
	}
}

int xpi_mr_dereg(struct xport_mr *mr)
{
	struct xport *x = mr->x;

	xpi_assert_locked(mr->x);
	if (mr->dying)
		return xpi_refuse(x, XPORT_ERR_INVALID, "xport_mr_dereg",
		                  "the region is being deregistered by another thread");
	if (mr->posted > 0)
		return xpi_refuse(x, XPORT_ERR_BUSY, "xport_mr_dereg",
		                  "posted receives use the region: cancel them, or let them be matched");
	mr->dying = true; /* from here on what comes by message is refused */
	xpi_parts_end(mr);
	xpi_mr_revoke_all(mr);
	while (mr->revoking > 0 || mr->serving > 0 || mr->busy > 0) {
		xpi_progress(x);
		if (mr->revoking > 0 || mr->serving > 0 || mr->busy > 0)
			xpi_idle(x, 100);
	}
	xpi_progress(x); /* lets those hear of it that need not answer */
	forget_in_queue(x, mr);
	xpi_mr_drop(mr);
	return XPORT_OK;
}
