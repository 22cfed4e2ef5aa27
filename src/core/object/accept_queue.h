/* SPDX-License-Identifier: BSD-3-Clause */
/* accept_queue.h - listeners, and their endpoints that wait for xport_accept. */
#ifndef XPI_CORE_OBJECT_ACCEPT_QUEUE_H
#define XPI_CORE_OBJECT_ACCEPT_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/object/ep.h"
#include "core/object/instance.h"

/*
 * xpi_listener_forget - remove an endpoint from those that wait for xport_accept.
 *
 * For an endpoint whose events reached the application first, and which the application has destroyed.
 */
void xpi_listener_forget(struct xport_ep *ep);

/* An endpoint that waits for xport_accept. */
struct xpi_ready {
	struct xpi_list link;
	struct xport_listener *listener;
	struct xport_ep *ep;
	struct xpi_op *room; /* for XPORT_EVENT_INCOMING */
};

struct xport_listener {
	struct xpi_list link; /* in x->cm.listeners */
	struct xport *x;
	int fd;
	struct xpi_watch watch;
	char name[64];
	void *context;
	uint8_t *private_data;
	uint16_t private_len;
	int backlog, nready;
	uint32_t forbidden; /* candidates that its connections may not use, bits */
	uint8_t traffic;    /* enum xport_traffic that it asks for */
	struct xpi_list ready;
	bool full;   /* stopped accepting until a handshake ends */
	bool closed; /* while threads wait in xport_accept; the last frees it */
	unsigned waiters;
	int64_t log_ms; /* strangers must not fill the log: lines since then */
	unsigned log_lines;
	unsigned failed; /* handshakes since xport_accept last told, and why the last one did */
	char last_failure[200];
	unsigned silent; /* closed since then because they said nothing */
};

/* xpi_accept_take - take an endpoint that waits for xport_accept, and free its entry. */
struct xport_ep *xpi_accept_take(struct xport_listener *l, struct xpi_ready *ready);

/* xpi_listener_may_log - true if the listener may write another line in this second. */
bool xpi_listener_may_log(struct xport_listener *l);

/*
 * xpi_listener_room - allocate the entry of an endpoint that becomes ready, with the memory for its event.
 * xpi_listener_unroom frees it if it was not used. xpi_listener_ready adds the endpoint to the listener's queue.
 *
 * Returns NULL if out of memory.
 */
struct xpi_ready *xpi_listener_room(struct xport *x);
void xpi_listener_unroom(struct xport *x, struct xpi_ready *ready);
void xpi_listener_ready(struct xport_listener *listener, struct xpi_ready *ready, struct xport_ep *ep);
/* xpi_listener_log - log that a handshake failed. The number of lines per second is limited. */
void xpi_listener_log(struct xport_listener *listener, const char *remote, const char *text);

#endif
