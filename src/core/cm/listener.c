/* SPDX-License-Identifier: BSD-3-Clause */
/* listener.c - listening sockets: what comes in, what is refused, and what waits for xport_accept. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "core/cm/addr.h"
#include "core/cm/cm.h"
#include "core/cm/handshake.h"
#include "core/cm/negotiate.h"
#include "core/liveness/monitor.h"
#include "core/object/accept_queue.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/op_life.h"
#include "core/object/wakeup.h"
#include "core/wire/hello.h"

enum {
	BACKLOG = 64,    /* connections ready and not accepted, unless the application says otherwise */
	ACCEPT_MAX = 64, /* taken in at once, so that one poll stays short */
	BACK_OFF_MS = 20,
	DEFER_S = 5 /* the system keeps a connection back that has said nothing for about so long */
};

/* ---- Ready endpoints ---- */

/*
 * Endpoints that were lost before they were accepted are no longer handed out.  If a message or a notification has named
 * such an endpoint to the application, the application also gets its loss, and owns it from then on.  An endpoint that the
 * peer closed stays: the application may still receive what the peer sent.
 */
void xpi_listener_drop_ended(struct xport_listener *l)
{
	xpi_list_for_safe(pos, &l->ready) {
		struct xpi_ready *ready = xpi_container(pos, struct xpi_ready, link);
		struct xport_ep *ep = ready->ep;

		if (ep->state == XPI_EP_OPEN || ep->end.reason == XPORT_ERR_PEER_CLOSED)
			continue;
		xpi_accept_take(l, ready);
		if (!xpi_ep_named(ep))
			xpi_ep_discard(ep);
	}
}

/* ---- Handshakes ---- */

static int listener_refuse(struct xpi_conn *conn, int status, const char *text)
{
	int rc = xpi_conn_hello(conn, NULL, 0, status, text);

	if (rc != XPORT_OK)
		return rc;
	xpi_listener_log(conn->listener, conn->remote, text);
	conn->step = XPI_CONN_REFUSING;
	return XPORT_OK;
}

/* Of this listener: ready, or certain to become so if nothing fails. */
static int waiting(struct xport_listener *l)
{
	int n;

	xpi_listener_drop_ended(l);
	n = l->nready;
	xpi_list_for(pos, &l->x->cm.conns) {
		const struct xpi_conn *conn = xpi_container(pos, struct xpi_conn, link);

		n += conn->listener == l && conn->ep != NULL;
	}
	return n;
}

/* Endpoints that this address has already to any listener of the instance. */
static uint32_t of_same_address(const struct xpi_conn *conn)
{
	size_t n = (size_t)(strrchr(conn->remote, ':') - conn->remote) + 1;
	uint32_t count = 0;

	xpi_list_for(pos, &conn->x->eps) {
		const struct xport_ep *ep = xpi_container(pos, struct xport_ep, link);

		count += ep->accepted && ep->state < XPI_EP_FAILING && strncmp(ep->peer.name, conn->remote, n) == 0;
	}
	return count;
}

static int make_endpoint(struct xpi_conn *conn)
{
	struct xport_listener *l = conn->listener;
	struct xport *x = conn->x;
	struct xpi_transport *tp = xpi_negotiate_choose(conn);
	int rc;

	if (tp == NULL)
		return x->err.status;
	conn->ep = xpi_ep_new(x, tp, l->context);
	if (conn->ep == NULL)
		return xpi_fail(&x->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for an endpoint");
	conn->ep->conn = conn;
	conn->ep->accepted = true;
	xpi_conn_names(conn);
	do {
		rc = xpi_conn_hello(conn, l->private_data, l->private_len, XPORT_OK, NULL);
		if (rc != XPORT_OK && !conn->dead)
			rc = xpi_negotiate_other(conn, rc);
	} while (rc == 1);
	if (rc != XPORT_OK || conn->dead)
		return rc;
	/* A client with several transports says its address when it knows which one. */
	if (conn->peer.offer == conn->theirs)
		return xpi_conn_take_peer(conn);
	conn->step = XPI_CONN_TAKE;
	return XPORT_OK;
}

/* Makes the endpoint, or refuses, or waits for the backlog.  A failure: nothing was sent. */
static int listener_hello(struct xpi_conn *conn)
{
	struct xport_listener *l = conn->listener;
	struct xport *x = conn->x;
	struct xport_ep *ep;
	struct xpi_hello ours;
	char text[600];
	int rc;

	xpi_transports_forgive(x);
	xpi_conn_identity(x, NULL, conn->forbidden, &ours);
	rc = xpi_hello_compatible(&ours, &conn->peer, text, sizeof(text));
	if (rc == XPORT_OK)
		rc = xpi_negotiate_agree(conn, text, sizeof(text));
	if (rc != XPORT_OK)
		return listener_refuse(conn, rc, text);
	if (waiting(l) >= l->backlog) {
		if (xpi_now_ms() < conn->deadline_ms) {
			conn->step = XPI_CONN_QUEUED;
			return XPI_CONN_LATER;
		}
		snprintf(text, sizeof(text), "the server's backlog of %d is full", l->backlog);
		return listener_refuse(conn, XPORT_ERR_REFUSED, text);
	}
	if (of_same_address(conn) >= x->settings.peer_connections) {
		snprintf(text, sizeof(text),
		         "this address has %u connections already, as many as the server allows "
		         "(XPORT_PEER_CONNECTIONS)",
		         (unsigned)x->settings.peer_connections);
		return listener_refuse(conn, XPORT_ERR_REFUSED, text);
	}
	rc = make_endpoint(conn);
	if (rc == XPORT_OK || conn->dead)
		return XPORT_OK;
	/* The endpoint goes, and the client learns why. */
	ep = conn->ep;
	conn->ep = NULL;
	snprintf(text, sizeof(text), "%s", x->err.text);
	if (ep != NULL) {
		ep->conn = NULL;
		snprintf(ep->end.why, sizeof(ep->end.why), "%.150s", text);
		xpi_ep_fail(ep, rc, 0);
	}
	return listener_refuse(conn, rc, text);
}

const struct xpi_conn_role xpi_conn_server = {.hello = listener_hello};

/* ---- Taking in ---- */

static int accept_begin(struct xport_listener *l, int fd, const struct sockaddr *sa)
{
	struct xpi_conn *conn = xpi_conn_new(l->x, &xpi_conn_server);
	int one = 1, rc;
	char first;

	if (conn == NULL) {
		close(fd);
		return XPORT_ERR_NO_MEMORY;
	}
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	conn->fd = fd;
	conn->listener = l;
	conn->forbidden = l->forbidden;
	conn->traffic = l->traffic;
	xpi_conn_traffic_socket(l->x, fd, l->traffic); /* the priority within the host is not inherited */
	conn->step = l->x->settings.secret != NULL ? XPI_CONN_START : XPI_CONN_HELLO;
	conn->deadline_ms = conn->began_ms + XPI_HALF_OPEN_MS;
	xpi_addr_format(sa, conn->remote, sizeof(conn->remote));
	rc = xpi_conn_watch(conn);
	if (rc != XPORT_OK) {
		xpi_conn_fail(conn, rc);
		return rc;
	}
	/* Its first words may be here already; one that says nothing is to count as such from the start. */
	atomic_store(&conn->watch.rang, recv(fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) >= 0);
	xpi_admit(conn);
	return XPORT_OK;
}

/* Takes in one.  1: done; 0: there is none; -1: not now. */
static int listener_take_in(struct xport_listener *l)
{
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof(sa);
	int fd = xpi_fd_up(accept4(l->fd, (struct sockaddr *)&sa, &len, SOCK_NONBLOCK | SOCK_CLOEXEC));

	if (fd >= 0)
		return accept_begin(l, fd, (struct sockaddr *)&sa) == XPORT_OK ? 1 : -1;
	if (errno == EAGAIN || errno == EWOULDBLOCK)
		return 0;
	if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
		int error = errno;

		if (xpi_admit_drop_silent(l->x))
			return 1;
		errno = error;
		if (xpi_listener_may_log(l))
			xpi_log(l->x->log, XPORT_LOG_WARN, "0111", "%s: cannot take in a connection: %s", l->name,
			        strerrordesc_np(errno));
		return -1;
	}
	/* accept(2) reports here why a connection ended before it was accepted; the next may be fine. */
	return 1;
}

static int listener_watch(struct xport_listener *l, bool back_off)
{
	return xpi_conn_watch_fd(l->x, &l->watch, l->fd, back_off ? 0 : EPOLLIN,
	                         back_off ? xpi_now_ms() + BACK_OFF_MS : -1);
}

int xpi_listener_progress(struct xport_listener *l)
{
	struct xport_error before = l->x->err;
	int n = 0, rc = 1;

	if (!l->full && !atomic_load(&l->watch.rang))
		return 0;
	l->full = false;
	while (rc == 1 && n < ACCEPT_MAX) {
		l->full = !xpi_admit_room(l->x);
		if (l->full)
			break;
		rc = listener_take_in(l);
		n += rc == 1;
	}
	if (listener_watch(l, l->full || rc < 0) != XPORT_OK && xpi_listener_may_log(l))
		xpi_log(l->x->log, XPORT_LOG_ERROR, "0114", "%s: cannot watch the socket", l->name);
	l->x->err = before;
	return n;
}

/* ---- xport_listen, xport_listener_name, xport_listener_close ---- */

/* Binds and listens at one address.  Minus an errno. */
static int bind_one(struct xport_listener *l, const struct sockaddr *sa, socklen_t len, bool both_families)
{
	int one = 1, v6only = !both_families, defer_s = DEFER_S;

	l->fd = xpi_fd_up(socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	if (l->fd < 0)
		return -errno;
	(void)setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (sa->sa_family == AF_INET6)
		(void)setsockopt(l->fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, sizeof(v6only));
	/* The client speaks first: what says nothing stays in the system's queue. */
	(void)setsockopt(l->fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &defer_s, sizeof(defer_s));
	xpi_conn_traffic_socket(l->x, l->fd, l->traffic); /* for the SYN-ACK */
	if (bind(l->fd, sa, len) != 0 || listen(l->fd, SOMAXCONN) != 0) {
		int error = errno;

		close(l->fd);
		l->fd = -1;
		return -error;
	}
	return 0;
}

static int bind_any(struct xport_listener *l, const char *address)
{
	struct xport *x = l->x;
	struct xpi_addrs addrs;
	int rc = xpi_conn_resolve(x, address, &addrs);

	if (rc != XPORT_OK)
		return rc;
	for (int i = 0; i < addrs.n && x->settings.secret == NULL && !x->settings.auth_none; i++)
		if (!xpi_addr_loopback((struct sockaddr *)&addrs.a[i].sa))
			return xpi_fail(
				&x->err, XPORT_ERR_AUTH, 0, NULL, xpi_auth_hint,
				"%s can be reached from other hosts, and there is no key to authenticate them by",
				address);
	for (int i = 0; i < addrs.n; i++) {
		rc = bind_one(l, (struct sockaddr *)&addrs.a[i].sa, addrs.a[i].len, address[0] == '*');
		/* Another family will do where one is missing, but not where the port is taken. */
		if (rc == 0 || rc == -EADDRINUSE || rc == -EACCES)
			break;
	}
	if (rc == 0)
		return XPORT_OK;
	errno = -rc;
	if (errno == EADDRINUSE || errno == EADDRNOTAVAIL)
		return xpi_fail_errno(&x->err, XPORT_ERR_ADDRESS,
		                      "choose an address of this host and a free port (0: any)", "cannot listen at %s",
		                      address);
	if (errno == EACCES || errno == EAFNOSUPPORT)
		return xpi_fail_errno(&x->err, XPORT_ERR_ADDRESS,
		                      errno == EACCES ? "choose a port that this user may listen at, from 1024 on"
		                                      : "choose an address of a family that this host has",
		                      "cannot listen at %s", address);
	return xpi_fail_errno(&x->err, XPORT_ERR_SYSTEM, NULL, "cannot listen at %s", address);
}

void xpi_listener_free(struct xport_listener *l)
{
	if (l->fd >= 0)
		close(l->fd);
	free(l->private_data);
	free(l);
}

/* False: no memory, and nothing is changed. */
static bool set_private(struct xport_listener *l, const void *data, size_t len)
{
	uint8_t *copy = len > 0 ? malloc(len) : NULL;

	if (len > 0 && copy == NULL)
		return false;
	if (len > 0)
		memcpy(copy, data, len);
	free(l->private_data);
	l->private_data = copy;
	l->private_len = (uint16_t)len;
	return true;
}

static struct xport_listener *listener_new(struct xport *x, const struct xport_conn_attr *attr)
{
	struct xport_listener *l = calloc(1, sizeof(*l));

	if (l == NULL)
		return NULL;
	l->x = x;
	l->fd = -1;
	l->backlog = BACKLOG;
	l->log_ms = xpi_now_ms();
	xpi_list_init(&l->ready);
	if (attr == NULL)
		return l;
	l->context = attr->context;
	if (attr->backlog > 0)
		l->backlog = attr->backlog;
	if (!set_private(l, attr->private_data, attr->private_len)) {
		free(l);
		return NULL;
	}
	return l;
}

int xpi_listener_set_private(struct xport_listener *l, const void *data, size_t len)
{
	const struct xport_conn_attr attr = {.private_data = data, .private_len = len};
	uint32_t forbidden;
	int rc = xpi_conn_attr_check(l->x, &attr, &forbidden);

	xpi_assert_locked(l->x);
	if (rc == XPORT_OK && !set_private(l, data, len))
		rc = xpi_fail(&l->x->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for private data");
	return rc;
}

int xpi_listener_open(struct xport *x, const char *address, const struct xport_conn_attr *attr,
                      struct xport_listener **listener)
{
	xpi_assert_locked(x);
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof(sa);
	struct xport_listener *l;
	uint32_t forbidden;
	int rc = xpi_conn_attr_check(x, attr, &forbidden);

	if (rc != XPORT_OK)
		return rc;
	if (address == NULL)
		return xpi_fail(&x->err, XPORT_ERR_INVALID, 0, NULL, NULL, "no address");
	l = listener_new(x, attr);
	if (l == NULL)
		return xpi_fail(&x->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for a listener");
	l->forbidden = forbidden;
	l->traffic = (uint8_t)xpi_conn_traffic_wish(x, attr);
	rc = bind_any(l, address);
	if (rc == XPORT_OK && getsockname(l->fd, (struct sockaddr *)&sa, &len) != 0)
		rc = xpi_fail_errno(&x->err, XPORT_ERR_SYSTEM, NULL, "cannot ask for the listener's name");
	if (rc == XPORT_OK) {
		xpi_addr_name((struct sockaddr *)&sa, address[0] == '*', l->name, sizeof(l->name));
		rc = listener_watch(l, false);
	}
	if (rc != XPORT_OK) {
		xpi_listener_free(l);
		return rc;
	}
	xpi_list_push(&x->cm.listeners, &l->link);
	xpi_log(x->log, XPORT_LOG_INFO, "0110", "listening at %s", l->name);
	*listener = l;
	return XPORT_OK;
}

int xpi_listener_name(const struct xport_listener *l, char *buf, size_t len)
{
	size_t need = strlen(l->name) + 1;

	if (len < need)
		return xpi_refuse(l->x, XPORT_ERR_BOUNDS, "xport_listener_name",
		                  "the name takes %zu bytes, there is room for %zu", need, len);
	memcpy(buf, l->name, need);
	return XPORT_OK;
}

struct xport *xpi_listener_instance(const struct xport_listener *l)
{
	return l->x;
}

struct xport_listener *xpi_listener_first(struct xport *x)
{
	if (xpi_list_empty(&x->cm.listeners))
		return NULL;
	return xpi_container(x->cm.listeners.next, struct xport_listener, link);
}

void xpi_listener_close(struct xport_listener *l)
{
	struct xport *x = l->x;
	struct xport_error before = x->err;

	xpi_assert_locked(l->x);
	if (l->closed)
		return;
	xpi_watch_remove(x->live, &l->watch);
	close(l->fd);
	l->fd = -1;
	xpi_list_del(&l->link);
	x->cm.busy = true;
	xpi_list_for_safe(pos, &x->cm.conns) {
		struct xpi_conn *conn = xpi_container(pos, struct xpi_conn, link);

		if (conn->listener == l && !conn->dead) {
			xpi_fail(&x->err, XPORT_ERR_REFUSED, 0, NULL, NULL, "the listener was closed");
			xpi_conn_fail(conn, XPORT_ERR_REFUSED);
		}
		if (conn->dead)
			xpi_conn_free(conn);
	}
	x->cm.busy = false;
	while (!xpi_list_empty(&l->ready)) {
		struct xport_ep *ep = xpi_accept_take(l, xpi_container(l->ready.next, struct xpi_ready, link));

		/* By a completion, or as the peer closed it, the application has heard of it. */
		if (xpi_ep_named(ep) || ep->end.buffer == NULL)
			xpi_ep_fail(ep, XPORT_ERR_CLOSED, XPORT_EVENT_LOST);
		else
			xpi_ep_discard(ep);
	}
	while (xpi_event_forget(x, XPORT_EVENT_INCOMING, l, 0)) /* what they name is no more */
		;
	x->err = before;
	if (l->waiters == 0) {
		xpi_listener_free(l);
		return;
	}
	l->closed = true;
	xpi_signal(x);
}
