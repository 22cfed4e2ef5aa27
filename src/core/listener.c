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

#include "core/conn_impl.h"

enum {
	BACKLOG = 64,    /* connections ready and not accepted, unless the application says otherwise */
	ACCEPT_MAX = 16, /* taken in at once, so that one poll stays short */
	BACK_OFF_MS = 100,
	/* A new client takes the place of one that has sent nothing for so long, when all places are taken. */
	SILENT_MS = 250,
	LOG_MAX = 10 /* lines a second about strangers */
};

/* False: enough for this second. */
static bool may_log(struct xport_listener *l)
{
	int64_t now = xpi_now_ms();

	if (now - l->log_ms >= 1000) {
		if (l->log_lines > LOG_MAX)
			xpi_log(l->x->log, XPORT_LOG_INFO, "0113", "%s: %u more refused connections", l->name,
			        l->log_lines - LOG_MAX);
		l->log_ms = now;
		l->log_lines = 0;
	}
	return l->log_lines++ < LOG_MAX;
}

void xpi_listener_log(struct xport_listener *l, const char *remote, const char *text)
{
	if (may_log(l))
		xpi_log(l->x->log, XPORT_LOG_INFO, "0112", "%s: no connection with %s: %s", l->name, remote, text);
}

/* ---- Ready endpoints ---- */

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

static struct xport_ep *take(struct xport_listener *l, struct xpi_ready *ready)
{
	struct xport_ep *ep = ready->ep;

	xpi_list_del(&ready->link);
	l->nready--;
	ep->ready = NULL;
	free(ready);
	return ep;
}

void xpi_listener_forget(struct xport_ep *ep)
{
	if (ep->ready != NULL)
		take(ep->ready->listener, ep->ready);
}

/*
 * Those that were lost before anybody accepted them are not handed out any more.  Of whom the application has heard by a
 * message or notification it hears that it was lost, too, and then it is the application's.  Not those that the peer closed:
 * what it sent is to be received.
 */
static void drop_ended(struct xport_listener *l)
{
	xpi_list_for_safe(pos, &l->ready) {
		struct xpi_ready *ready = xpi_container(pos, struct xpi_ready, link);
		struct xport_ep *ep = ready->ep;

		if (ep->state == XPI_EP_OPEN || ep->reason == XPORT_ERR_PEER_CLOSED)
			continue;
		take(l, ready);
		if (!xpi_ep_named(ep))
			xpi_ep_destroy(ep);
	}
}

/* ---- Handshakes ---- */

static int refuse(struct xpi_conn *conn, int status, const char *text)
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

	drop_ended(l);
	n = l->nready;
	xpi_list_for(pos, &l->x->conns) {
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

		count += ep->accepted && ep->state < XPI_EP_FAILING && strncmp(ep->peer, conn->remote, n) == 0;
	}
	return count;
}

static int make_endpoint(struct xpi_conn *conn)
{
	struct xport_listener *l = conn->listener;
	struct xport *x = conn->x;
	int rc;

	conn->ep = xpi_ep_new(x, l->context);
	if (conn->ep == NULL)
		return xpi_fail(&x->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for an endpoint");
	conn->ep->conn = conn;
	conn->ep->accepted = true;
	xpi_conn_names(conn);
	rc = xpi_conn_hello(conn, l->private_data, l->private_len, XPORT_OK, NULL);
	return rc == XPORT_OK && !conn->dead ? xpi_conn_take_peer(conn) : rc;
}

int xpi_listener_hello(struct xpi_conn *conn)
{
	struct xport_listener *l = conn->listener;
	struct xport *x = conn->x;
	struct xport_ep *ep;
	struct xpi_hello ours;
	char text[512];
	int rc;

	xpi_conn_identity(x, &ours);
	rc = xpi_hello_compatible(&ours, &conn->peer, text, sizeof(text));
	if (rc != XPORT_OK)
		return refuse(conn, rc, text);
	if (waiting(l) >= l->backlog) {
		snprintf(text, sizeof(text), "the server's backlog of %d is full", l->backlog);
		return refuse(conn, XPORT_ERR_REFUSED, text);
	}
	if (of_same_address(conn) >= x->settings.peer_connections) {
		snprintf(text, sizeof(text),
		         "this address has %u connections already, as many as the server allows "
		         "(XPORT_PEER_CONNECTIONS)",
		         (unsigned)x->settings.peer_connections);
		return refuse(conn, XPORT_ERR_REFUSED, text);
	}
	rc = make_endpoint(conn);
	if (rc == XPORT_OK || conn->dead)
		return XPORT_OK;
	/* The endpoint goes, the client is told. */
	ep = conn->ep;
	conn->ep = NULL;
	snprintf(text, sizeof(text), "%s", x->err.text);
	if (ep != NULL) {
		ep->conn = NULL;
		snprintf(ep->why, sizeof(ep->why), "%.150s", text);
		xpi_ep_fail(ep, rc, 0);
	}
	return refuse(conn, rc, text);
}

/* ---- Taking in ---- */

/* Whether there is room for one more handshake; makes some at the expense of those who say nothing. */
static bool make_room(struct xport_listener *l)
{
	struct xpi_conn *silent = NULL;
	int n = 0;

	xpi_list_for(pos, &l->x->conns) {
		struct xpi_conn *conn = xpi_container(pos, struct xpi_conn, link);

		if (conn->listener == NULL || conn->dead)
			continue;
		n++;
		/* Who has proved the key does not make place for those who have not. */
		if (silent == NULL && conn->step <= XPI_CONN_HELLO && !xpi_prove_done(conn) &&
		    !atomic_load(&conn->watch.rang) && xpi_now_ms() - conn->began_ms >= SILENT_MS)
			silent = conn;
	}
	if (n < XPI_HALF_OPEN_MAX)
		return true;
	if (silent == NULL)
		return false;
	xpi_listener_log(silent->listener, silent->remote, "it said nothing, and its place is needed");
	xpi_conn_discard(silent);
	return true;
}

static int begin(struct xport_listener *l, int fd, const struct sockaddr *sa)
{
	struct xpi_conn *conn = xpi_conn_new(l->x);
	int one = 1, rc;

	if (conn == NULL) {
		close(fd);
		return XPORT_ERR_NO_MEMORY;
	}
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	conn->fd = fd;
	conn->listener = l;
	conn->step = l->x->settings.secret != NULL ? XPI_CONN_START : XPI_CONN_HELLO;
	conn->deadline_ms = conn->began_ms + XPI_HALF_OPEN_MS;
	xpi_addr_format(sa, conn->remote, sizeof(conn->remote));
	rc = xpi_conn_watch(conn);
	if (rc != XPORT_OK) {
		xpi_conn_fail(conn, rc);
		return rc;
	}
	/* Its HELLO may be here already. */
	atomic_store(&conn->watch.rang, true);
	return XPORT_OK;
}

/* Takes in one.  1: done; 0: there is none; -1: not now. */
static int take_in(struct xport_listener *l)
{
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof(sa);
	int fd = accept4(l->fd, (struct sockaddr *)&sa, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd >= 0)
		return begin(l, fd, (struct sockaddr *)&sa) == XPORT_OK ? 1 : -1;
	if (errno == EAGAIN || errno == EWOULDBLOCK)
		return 0;
	if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
		if (may_log(l))
			xpi_log(l->x->log, XPORT_LOG_WARN, "0111", "%s: cannot take in a connection: %s", l->name,
			        strerrordesc_np(errno));
		return -1;
	}
	/* What ended the connection before it was taken in is told here (accept(2)); the next may be fine. */
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
		l->full = !make_room(l);
		if (l->full)
			break;
		rc = take_in(l);
		n += rc == 1;
	}
	if (listener_watch(l, l->full || rc < 0) != XPORT_OK && may_log(l))
		xpi_log(l->x->log, XPORT_LOG_ERROR, "0114", "%s: cannot watch the socket", l->name);
	l->x->err = before;
	return n;
}

/* ---- xport_listen and its like ---- */

/* Binds and listens at one address.  Minus an errno. */
static int bind_one(struct xport_listener *l, const struct sockaddr *sa, socklen_t len, bool both_families)
{
	int one = 1, v6only = !both_families;

	l->fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (l->fd < 0)
		return -errno;
	(void)setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (sa->sa_family == AF_INET6)
		(void)setsockopt(l->fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, sizeof(v6only));
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
	int rc = xpi_conn_resolve(x, address, true, &addrs);

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
	if (errno == EADDRINUSE || errno == EADDRNOTAVAIL || errno == EACCES || errno == EAFNOSUPPORT)
		return xpi_fail_errno(&x->err, XPORT_ERR_ADDRESS,
		                      "choose an address of this host and a free port (0: any)", "cannot listen at %s",
		                      address);
	return xpi_fail_errno(&x->err, XPORT_ERR_SYSTEM, NULL, "cannot listen at %s", address);
}

static void listener_free(struct xport_listener *l)
{
	if (l->fd >= 0)
		close(l->fd);
	free(l->private_data);
	free(l);
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
	if (attr->private_len > 0) {
		l->private_data = malloc(attr->private_len);
		if (l->private_data == NULL) {
			free(l);
			return NULL;
		}
		memcpy(l->private_data, attr->private_data, attr->private_len);
		l->private_len = (uint16_t)attr->private_len;
	}
	return l;
}

int xpi_listener_open(struct xport *x, const char *address, const struct xport_conn_attr *attr,
                      struct xport_listener **listener)
{
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof(sa);
	struct xport_listener *l;
	int rc = xpi_conn_attr_check(x, attr);

	if (rc != XPORT_OK)
		return rc;
	if (address == NULL)
		return xpi_fail(&x->err, XPORT_ERR_INVALID, 0, NULL, NULL, "no address");
	l = listener_new(x, attr);
	if (l == NULL)
		return xpi_fail(&x->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for a listener");
	rc = bind_any(l, address);
	if (rc == XPORT_OK && getsockname(l->fd, (struct sockaddr *)&sa, &len) != 0)
		rc = xpi_fail_errno(&x->err, XPORT_ERR_SYSTEM, NULL, "cannot ask for the listener's name");
	if (rc == XPORT_OK) {
		xpi_addr_format((struct sockaddr *)&sa, l->name, sizeof(l->name));
		rc = listener_watch(l, false);
	}
	if (rc != XPORT_OK) {
		listener_free(l);
		return rc;
	}
	xpi_list_push(&x->listeners, &l->link);
	xpi_log(x->log, XPORT_LOG_INFO, "0110", "listening at %s", l->name);
	*listener = l;
	return XPORT_OK;
}

int xpi_listener_name(const struct xport_listener *l, char *buf, size_t len)
{
	size_t need = strlen(l->name) + 1;

	if (len < need)
		return XPORT_ERR_BOUNDS;
	memcpy(buf, l->name, need);
	return XPORT_OK;
}

struct xport *xpi_listener_instance(const struct xport_listener *l)
{
	return l->x;
}

struct xport_listener *xpi_listener_first(struct xport *x)
{
	if (xpi_list_empty(&x->listeners))
		return NULL;
	return xpi_container(x->listeners.next, struct xport_listener, link);
}

static struct xport_ep *take_open(struct xport_listener *l)
{
	drop_ended(l);
	if (xpi_list_empty(&l->ready))
		return NULL;
	return take(l, xpi_container(l->ready.next, struct xpi_ready, link));
}

int xpi_listener_accept(struct xport_listener *l, int timeout_ms, struct xport_ep **ep)
{
	int64_t deadline = timeout_ms >= 0 ? xpi_now_ms() + timeout_ms : INT64_MAX, left;
	struct xport_ep *taken = NULL;
	struct xport *x = l->x;
	int rc = XPORT_OK;

	l->waiters++;
	while (!l->closed && (taken = take_open(l)) == NULL) {
		rc = xpi_progress(x);
		if (rc < 0 || l->closed || (taken = take_open(l)) != NULL)
			break;
		left = deadline - xpi_now_ms();
		if (left <= 0) {
			rc = xpi_fail(&x->err, XPORT_ERR_TIMEOUT, 0, NULL, NULL,
			              "no connection came to %s within %d ms", l->name, timeout_ms);
			break;
		}
		xpi_idle(x, timeout_ms < 0 ? -1 : (int)left);
	}
	l->waiters--;
	if (taken != NULL)
		*ep = taken;
	if (rc >= 0)
		xpi_event_forget(x, XPORT_EVENT_INCOMING, l, (unsigned)l->nready); /* this call is its answer */
	if (!l->closed)
		return rc < 0 ? rc : XPORT_OK;
	if (l->waiters == 0)
		listener_free(l);
	return xpi_fail(&x->err, XPORT_ERR_CLOSED, 0, NULL, NULL, "the listener was closed while this call waited");
}

void xpi_listener_close(struct xport_listener *l)
{
	struct xport *x = l->x;
	struct xport_error before = x->err;

	if (l->closed)
		return;
	xpi_watch_remove(x->live, &l->watch);
	close(l->fd);
	l->fd = -1;
	xpi_list_del(&l->link);
	x->conn_busy = true;
	xpi_list_for_safe(pos, &x->conns) {
		struct xpi_conn *conn = xpi_container(pos, struct xpi_conn, link);

		if (conn->listener == l && !conn->dead) {
			xpi_fail(&x->err, XPORT_ERR_REFUSED, 0, NULL, NULL, "the listener was closed");
			xpi_conn_fail(conn, XPORT_ERR_REFUSED);
		}
		if (conn->dead)
			xpi_conn_free(conn);
	}
	x->conn_busy = false;
	while (!xpi_list_empty(&l->ready)) {
		struct xport_ep *ep = take(l, xpi_container(l->ready.next, struct xpi_ready, link));

		/* By a completion, or as the peer closed it, the application has heard of it. */
		if (xpi_ep_named(ep) || ep->end_room == NULL)
			xpi_ep_fail(ep, XPORT_ERR_CLOSED, XPORT_EVENT_LOST);
		else
			xpi_ep_destroy(ep);
	}
	while (xpi_event_forget(x, XPORT_EVENT_INCOMING, l, 0)) /* what they name is no more */
		;
	x->err = before;
	if (l->waiters == 0) {
		listener_free(l);
		return;
	}
	l->closed = true;
	xpi_signal(x);
}
