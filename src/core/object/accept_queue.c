/* SPDX-License-Identifier: BSD-3-Clause */
/* accept_queue.c - endpoints that wait for xport_accept, and the log of refused connections. */
#include "core/object/accept_queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/op_life.h"

enum { LOG_MAX = 10 }; /* lines a second about strangers */

bool xpi_listener_may_log(struct xport_listener *l)
{
	int64_t now = xpi_now_ms();

	if (now - l->log_ms >= 1000) {
		if (l->log_lines > LOG_MAX)
			xpi_log(l->x->log, XPORT_LOG_INFO, "0113", "%s: %u more refused connections", l->name,
			        l->log_lines - LOG_MAX);
		if (l->silent > 0)
			xpi_log(l->x->log, XPORT_LOG_INFO, "0115",
			        "%s: closed %u silent connections to make room for others", l->name, l->silent);
		l->silent = 0;
		l->log_ms = now;
		l->log_lines = 0;
	}
	return l->log_lines++ < LOG_MAX;
}

void xpi_listener_log(struct xport_listener *l, const char *remote, const char *text)
{
	l->failed++;
	snprintf(l->last_failure, sizeof(l->last_failure), "%s: %s", remote, text);
	if (xpi_listener_may_log(l))
		xpi_log(l->x->log, XPORT_LOG_INFO, "0112", "%s: no connection with %s: %s", l->name, remote, text);
}

struct xpi_ready *xpi_listener_room(struct xport *x)
{
	struct xpi_ready *ready = calloc(1, sizeof(*ready));

	if (ready == NULL)
		return NULL;
	ready->room = xpi_event_room(x);
	if (ready->room == NULL) {
		free(ready);
		return NULL;
	}
	return ready;
}

void xpi_listener_unroom(struct xport *x, struct xpi_ready *ready)
{
	if (ready == NULL)
		return;
	xpi_event_unroom(x, &ready->room);
	free(ready);
}

void xpi_listener_ready(struct xport_listener *l, struct xpi_ready *ready, struct xport_ep *ep)
{
	ready->listener = l;
	ready->ep = ep;
	ep->ready = ready;
	xpi_list_push(&l->ready, &ready->link);
	l->nready++;
	xpi_event(l->x, &ready->room, XPORT_EVENT_INCOMING, XPORT_OK, NULL, l);
}

struct xport_ep *xpi_accept_take(struct xport_listener *l, struct xpi_ready *ready)
{
	struct xport_ep *ep = ready->ep;

	xpi_assert_locked(l->x);
	xpi_list_del(&ready->link);
	l->nready--;
	ep->ready = NULL;
	free(ready);
	xpi_request_attention(l->x); /* a handshake may wait for the place */
	return ep;
}

void xpi_listener_forget(struct xport_ep *ep)
{
	if (ep->ready != NULL)
		xpi_accept_take(ep->ready->listener, ep->ready);
}
