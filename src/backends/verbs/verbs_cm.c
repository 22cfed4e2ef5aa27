/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs_cm.c - rdma_cm: the listening id of an instance, and events.
 *
 * An event only leaves a note in its endpoint. ep_connect acts on it, since it can report what went wrong. A
 * connection request must carry the cookie that the core's control channel gave to the peer alone. All others are
 * rejected.
 *
 *   private data of a request: u32 magic, the passive side's cookie
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dup3 */
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "verbs.h"

enum { BACKLOG = 64, EVENTS_MAX = 32 };

/*
 * Listens on a free port. rdma_cm chooses a port without TCP, which may then refuse it to iWARP because another
 * socket has it. So rdma_cm chooses again.
 */
static int listen_somewhere(struct xpi_be *be, struct rdma_cm_id **listener)
{
	union vrb_ip any = be->ip;

	any.in.sin_port = 0;
	for (int i = 1;; i++) {
		if (rdma_create_id(be->cm, listener, be, RDMA_PS_TCP) != 0) {
			*listener = NULL;
			return XPORT_ERR_SYSTEM;
		}
		if (rdma_bind_addr(*listener, &any.sa) == 0 && rdma_listen(*listener, BACKLOG) == 0)
			return XPORT_OK;
		if (errno != EADDRINUSE || i == VRB_PORTS)
			return XPORT_ERR_NO_BACKEND;
		rdma_destroy_id(*listener);
	}
}

/* Whether the kernel closed the listener: then a socket can bind to its port. */
static bool listener_is_dead(const struct xpi_be *be)
{
	socklen_t len = be->ip.sa.sa_family == AF_INET ? sizeof(be->ip.in) : sizeof(be->ip.in6);
	int fd = xpi_fd_up(socket(be->ip.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
	const int on = 1;
	bool got;

	if (fd < 0)
		return false;
	got = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 && bind(fd, &be->ip.sa, len) == 0;
	close(fd);
	return got;
}

/*
 * The remains of a listener that the kernel closed are destroyed as late as possible: destroying them may crash the
 * kernel.
 */
void vrb_cm_hear(struct xpi_be *be)
{
	struct rdma_cm_id *again;
	int was = ntohs(be->ip.in.sin_port);

	if (!listener_is_dead(be))
		return;
	if (be->ndead_listeners == VRB_DEAD_LISTENERS) {
		xpi_log(be->log, XPORT_LOG_WARN, "2007",
		        "verbs: %s: the kernel closed the listener at port %d, the last of %d: peers can no longer "
		        "connect",
		        be->name, was, VRB_DEAD_LISTENERS + 1);
		return;
	}
	if (listen_somewhere(be, &again) != XPORT_OK) {
		xpi_log(be->log, XPORT_LOG_WARN, "2008",
		        "verbs: %s: the kernel closed the listener at port %d, and a new one cannot be opened: %m",
		        be->name, was);
		if (again != NULL)
			rdma_destroy_id(again);
		return;
	}
	be->dead_listeners[be->ndead_listeners++] = be->listener;
	be->listener = again;
	be->ip.in.sin_port = rdma_get_src_port(again);
	xpi_log(be->log, XPORT_LOG_WARN, "2009",
	        "verbs: %s: the kernel closed the listener at port %d: opened a new one at port %d", be->name, was,
	        ntohs(be->ip.in.sin_port));
}

int vrb_cm_open(struct xpi_be *be)
{
	char what[96], ip[INET6_ADDRSTRLEN];
	int flags, rc;

	be->cm = rdma_create_event_channel();
	if (be->cm == NULL)
		return vrb_fail(be, XPORT_ERR_NO_BACKEND, errno,
		                "load rdma_ucm, and give the user read and write access to /dev/infiniband/rdma_cm",
		                "opening /dev/infiniband/rdma_cm");
	flags = fcntl(be->cm->fd, F_GETFL);
	if (flags < 0 || fcntl(be->cm->fd, F_SETFL, flags | O_NONBLOCK) != 0)
		return vrb_fail(be, XPORT_ERR_SYSTEM, errno, NULL, "making the event channel non-blocking");
	snprintf(what, sizeof(what), "listening at %s", vrb_ip_text(&be->ip, ip, sizeof(ip)));
	rc = listen_somewhere(be, &be->listener);
	if (rc != XPORT_OK)
		return vrb_fail(be, rc, errno,
		                rc == XPORT_ERR_NO_BACKEND ? "check that the device still has this address" : NULL,
		                what);
	be->ip.in.sin_port = rdma_get_src_port(be->listener); /* at the same offset in both families */
	return XPORT_OK;
}

void vrb_cm_close(struct xpi_be *be)
{
	while (be->ndead_listeners > 0)
		rdma_destroy_id(be->dead_listeners[--be->ndead_listeners]);
	if (be->listener != NULL)
		rdma_destroy_id(be->listener);
	if (be->cm != NULL)
		rdma_destroy_event_channel(be->cm);
}

/* ---- events ---- */

static struct vrb_ep *ep_of_call(struct xpi_be *be, const uint8_t *data, size_t len)
{
	if (data == NULL || len < 4 + VRB_COOKIE || memcmp(data, VRB_MAGIC, 4) != 0)
		return NULL;
	xpi_list_for(l, &be->eps) {
		struct vrb_ep *ep = xpi_container(l, struct vrb_ep, link);

		if (ep->state == VRB_NEW && ep->id == NULL && memcmp(ep->cookie, data + 4, VRB_COOKIE) == 0)
			return ep;
	}
	return NULL;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
	return b != 0 && b < a ? b : a;
}

static void called(struct xpi_be *be, struct rdma_cm_id *id, const struct rdma_conn_param *param, const uint8_t *data)
{
	struct vrb_ep *ep = ep_of_call(be, data, param->private_data_len);

	if (ep == NULL) {
		if (xpi_now_ms() - be->stranger_ms >= 1000) { /* frequent requests must not fill the log */
			be->stranger_ms = xpi_now_ms();
			xpi_log(be->log, XPORT_LOG_INFO, "2001",
			        "verbs: %s: rejected a connection that no endpoint expects", be->name);
		}
		rdma_reject(id, NULL, 0);
		rdma_destroy_id(id);
		return;
	}
	id->context = ep;
	ep->id = id;
	ep->gets_max = smaller(be->reads_max, param->initiator_depth);
	ep->event = RDMA_CM_EVENT_CONNECT_REQUEST;
	ep->event_new = true;
}

/*
 * The descriptors of a removed device report an error for ever, and nobody could wait on them. The stopped timer
 * replaces them.
 */
static void silence(struct xpi_be *be)
{
	const struct itimerspec never = {{0, 0}, {0, 0}};

	timerfd_settime(be->port_timer, 0, &never, NULL);
	(void)dup3(be->port_timer, be->comp->fd, O_CLOEXEC);
	(void)dup3(be->port_timer, be->ctx->async_fd, O_CLOEXEC);
}

static void device_gone(struct xpi_be *be)
{
	if (!be->gone) {
		xpi_log(be->log, XPORT_LOG_INFO, "2002", "verbs: %s was removed", be->name);
		silence(be);
	}
	be->gone = true;
	vrb_all_broke(be, 0, "the device was removed");
}

void vrb_cm_overtaken(struct vrb_ep *ep)
{
	if (ep->state == VRB_ACCEPTING && ep->be->kind != VRB_IWARP && ep->event != RDMA_CM_EVENT_ESTABLISHED)
		(void)rdma_notify(ep->id, IBV_EVENT_COMM_EST);
}

static void cm_tell_ep(struct xpi_be *be, struct vrb_ep *ep, const struct rdma_cm_event *e)
{
	char why[sizeof(ep->failure)];

	ep->awaited = false;
	switch (e->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
	case RDMA_CM_EVENT_ESTABLISHED:
		ep->event = e->event;
		ep->event_new = true;
		if (ep->active && e->event >= RDMA_CM_EVENT_CONNECT_RESPONSE)
			ep->gets_max = smaller(be->reads_max, e->param.conn.initiator_depth);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		vrb_broke(ep, e->status, "the peer closed the connection");
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		device_gone(be);
		break;
	case RDMA_CM_EVENT_ROUTE_ERROR:
		/* The subnet manager of InfiniBand is busy if all connect at once. */
		if (e->status == -ETIMEDOUT && ep->state == VRB_ROUTE && ep->routes < VRB_ROUTES) {
			ep->event = e->event;
			ep->event_new = true;
			break;
		} /* fall through */
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		snprintf(why, sizeof(why), "%s, %d", rdma_event_str(e->event), e->status);
		vrb_broke(ep, e->status, why);
		break;
	default: /* an address moved, or a timeout of another kind: ignored */
		break;
	}
}

/* Takes one event. False: there is none. */
static bool cm_take_event(struct xpi_be *be)
{
	struct rdma_cm_event *e, copy;
	uint8_t data[4 + VRB_COOKIE];

	if (rdma_get_cm_event(be->cm, &e) != 0)
		return false;
	copy = *e;
	if (copy.event == RDMA_CM_EVENT_CONNECT_REQUEST && copy.param.conn.private_data_len >= sizeof(data))
		memcpy(data, copy.param.conn.private_data, sizeof(data));
	else
		memset(data, 0, sizeof(data));
	rdma_ack_cm_event(e); /* at once: rdma_destroy_id waits for unacknowledged events */
	if (copy.event == RDMA_CM_EVENT_CONNECT_REQUEST)
		called(be, copy.id, &copy.param.conn, data);
	else if (copy.id->context == be) { /* a listener */
		if (copy.event == RDMA_CM_EVENT_DEVICE_REMOVAL)
			device_gone(be);
	} else {
		cm_tell_ep(be, copy.id->context, &copy);
	}
	return true;
}

int vrb_cm_poll(struct xpi_be *be)
{
	int n = 0;

	while (n < EVENTS_MAX && cm_take_event(be))
		n++;
	return n;
}
