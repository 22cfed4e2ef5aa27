/* SPDX-License-Identifier: BSD-3-Clause */
/* connect.c - xport_connect: from "host:port" to a connected socket; handshake.c goes on from there. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "core/cm/addr.h"
#include "core/cm/agree.h"
#include "core/cm/handshake.h"
#include "core/cm/negotiate.h"
#include "core/liveness/monitor.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/set.h"
#include "core/wire/hello.h"

/* ---- TCP ---- */

/* The failure to be told in the end: of several addresses that of one where there is a host. */
static void note_errno(struct xpi_conn *conn, int error)
{
	if (conn->tcp_errno != ECONNREFUSED)
		conn->tcp_errno = error;
}

static int tcp_failed(struct xpi_conn *conn)
{
	struct xport_error *err = &conn->x->err;

	errno = conn->tcp_errno;
	switch (conn->tcp_errno) {
	case ECONNREFUSED:
		return xpi_fail_errno(err, XPORT_ERR_REFUSED, "start the listener first, or check the port",
		                      "nobody listens at %s", conn->remote);
	case ECONNRESET: /* it was connected to, and ended before it took the connection */
	case EPIPE:
		return xpi_fail_errno(err, XPORT_ERR_REFUSED, "see what the program that listens there says",
		                      "%s went away without an answer", conn->remote);
	case ETIMEDOUT:
		return xpi_conn_timeout(conn);
	case EHOSTUNREACH:
	case ENETUNREACH:
	case EADDRNOTAVAIL:
	case EAFNOSUPPORT:
	case ENETDOWN:
	case EHOSTDOWN:
	case EACCES:
	case EPERM:
		return xpi_fail_errno(err, XPORT_ERR_UNREACHABLE, "check the address, the routes, and firewalls",
		                      "cannot reach %s", conn->remote);
	default:
		return xpi_fail_errno(err, XPORT_ERR_SYSTEM, NULL, "cannot connect to %s", conn->remote);
	}
}

static void close_socket(struct xpi_conn *conn)
{
	xpi_watch_remove(conn->x->live, &conn->watch);
	if (conn->fd >= 0)
		close(conn->fd);
	conn->fd = -1;
}

/* Begins with the next address that lets itself be begun with. */
static int next_address(struct xpi_conn *conn)
{
	int64_t now = xpi_now_ms();
	int one = 1;

	close_socket(conn);
	while (conn->naddr < conn->addrs.n) {
		int left = conn->addrs.n - conn->naddr, i = conn->naddr++;
		const struct sockaddr *sa = (const struct sockaddr *)&conn->addrs.a[i].sa;

		/* One silent address must not use up the time of the others. */
		conn->addr_deadline_ms = now + (conn->deadline_ms - now) / left;
		conn->fd = xpi_fd_up(socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
		if (conn->fd >= 0) {
			(void)setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
			xpi_conn_traffic_socket(conn->x, conn->fd, conn->traffic);
			if (connect(conn->fd, sa, conn->addrs.a[i].len) == 0 || errno == EINPROGRESS)
				return XPORT_OK;
		}
		note_errno(conn, errno);
		close_socket(conn);
	}
	return tcp_failed(conn);
}

/* TCP connects a socket to itself where the system picks, as the own port, the very one that is called. */
static bool self_connected(int fd)
{
	struct sockaddr_storage a = {0}, b = {0};
	socklen_t alen = sizeof(a), blen = sizeof(b);

	return getsockname(fd, (struct sockaddr *)&a, &alen) == 0 &&
	       getpeername(fd, (struct sockaddr *)&b, &blen) == 0 && alen == blen && memcmp(&a, &b, alen) == 0;
}

/* 1: yes; 0: not yet; else minus an errno. */
static int connected(struct xpi_conn *conn)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(int);
	int error = 0;

	if (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
		error = errno;
	if (error != 0)
		return -error;
	len = sizeof(sa);
	if (getpeername(conn->fd, (struct sockaddr *)&sa, &len) == 0)
		return self_connected(conn->fd) ? -ECONNREFUSED : 1;
	if (errno != ENOTCONN)
		return -errno;
	return xpi_now_ms() >= conn->addr_deadline_ms ? -ETIMEDOUT : 0;
}

static int check_addresses(struct xpi_conn *conn)
{
	struct xport *x = conn->x;

	if (x->settings.secret != NULL || x->settings.auth_none)
		return XPORT_OK;
	for (int i = 0; i < conn->addrs.n; i++)
		if (!xpi_addr_loopback((const struct sockaddr *)&conn->addrs.a[i].sa))
			return xpi_fail(&x->err, XPORT_ERR_AUTH, 0, NULL, xpi_auth_hint,
			                "%s is not on this host, and there is no key to authenticate it by",
			                conn->remote);
	return XPORT_OK;
}

static int lookup_begin(struct xpi_conn *conn, const struct xpi_name *name)
{
	struct xport *x = conn->x;

	xpi_fd_fill(); /* the resolver opens descriptors, too */
	conn->lookup = xpi_lookup_start(name, &x->err);
	if (conn->lookup == NULL)
		return x->err.status;
	conn->step = XPI_CONN_LOOKUP;
	return XPORT_OK;
}

/* 1: the addresses are there. */
static int look_up(struct xpi_conn *conn)
{
	int rc = xpi_lookup_poll(conn->lookup, &conn->addrs, &conn->x->err);

	if (rc == 0)
		return 0;
	xpi_lookup_drop(conn->lookup);
	conn->lookup = NULL;
	if (rc == 1)
		rc = check_addresses(conn);
	if (rc != XPORT_OK)
		return rc;
	conn->step = XPI_CONN_TCP;
	return 1;
}

/* Begins, or goes on, to connect the socket, and tries the next address where one failed.  1: connected. */
static int connect_tcp(struct xpi_conn *conn)
{
	int rc;

	if (conn->step == XPI_CONN_LOOKUP)
		return look_up(conn);
	rc = conn->fd < 0 ? next_address(conn) : XPORT_OK;
	while (rc == XPORT_OK) {
		int is = connected(conn);

		if (is == 0)
			return 0;
		if (is == 1) {
			xpi_conn_names(conn);
			if (conn->x->settings.secret != NULL)
				return xpi_auth_exchange_begin(conn);
			conn->step = XPI_CONN_HELLO;
			return 1;
		}
		note_errno(conn, -is);
		rc = next_address(conn);
	}
	return rc;
}

/* ---- HELLO ---- */

/* Where nothing is common, this side computes the same, and says more. */
static int connect_refused(struct xpi_conn *conn, const struct xpi_hello *ours)
{
	const struct xpi_hello *peer = &conn->peer;
	struct xport *x = conn->x;
	struct xpi_agreement both;
	const char *hint;
	char text[600];
	int rc;

	xpi_agree(ours, peer, &both);
	if (both.n == 0 && (peer->verdict == XPORT_ERR_INCOMPATIBLE || peer->verdict == XPORT_ERR_UNREACHABLE)) {
		rc = xpi_agree_none(ours, peer, text, sizeof(text), &hint);
		return xpi_fail(&x->err, rc, 0, NULL, hint, "%s", text);
	}
	return xpi_fail(&x->err, xpi_conn_peer_status(peer->verdict), 0, NULL, NULL, "%s refused: %s", conn->remote,
	                peer->verdict_text);
}

static int connect_hello(struct xpi_conn *conn)
{
	const struct xpi_hello *peer = &conn->peer;
	struct xport *x = conn->x;
	struct xpi_hello ours;
	char text[600];

	xpi_conn_identity(x, conn->ep->tp, conn->forbidden, &ours);
	if (xpi_hello_compatible(&ours, peer, text, sizeof(text)) != XPORT_OK)
		return xpi_fail(&x->err, XPORT_ERR_INCOMPATIBLE, 0, NULL, xpi_hello_advice(&ours, peer), "%s", text);
	if (peer->verdict != XPORT_OK)
		return connect_refused(conn, &ours);
	return xpi_negotiate_chosen(conn);
}

const struct xpi_conn_role xpi_conn_client = {.tcp = connect_tcp, .hello = connect_hello};

/* ---- xport_connect ---- */

static int connect_begin(struct xpi_conn *conn, const struct xport_conn_attr *attr)
{
	struct xport *x = conn->x;
	int rc;

	xpi_transports_forgive(x);
	/* Of several the server chooses one. */
	conn->ep = xpi_ep_new(x, xpi_several(x) ? NULL : x->tp, attr != NULL ? attr->context : NULL);
	if (conn->ep == NULL)
		return xpi_fail(&x->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for an endpoint");
	conn->ep->conn = conn;
	snprintf(conn->ep->peer.name, sizeof(conn->ep->peer.name), "%s", conn->remote);
	rc = xpi_conn_hello(conn, attr != NULL ? attr->private_data : NULL, attr != NULL ? attr->private_len : 0,
	                    XPORT_OK, NULL);
	if (rc == XPORT_OK && conn->dead)
		rc = xpi_fail(&x->err, XPORT_ERR_REFUSED, 0, NULL, NULL, "the endpoint failed before it was connected");
	if (rc == XPORT_OK)
		rc = connect_tcp(conn);
	if (rc >= 0)
		rc = xpi_conn_watch(conn);
	return rc;
}

int xpi_connect_undo(struct xport *x, struct xport_ep *ep, int status)
{
	struct xport_error err = x->err;

	xpi_assert_locked(x);
	if (ep != NULL && ep->conn != NULL)
		ep->conn->wait = NULL;
	if (ep != NULL)
		xpi_ep_discard(ep);
	x->err = err;
	return status;
}

int xpi_connect_begin(struct xport *x, const char *address, const struct xport_conn_attr *attr, int timeout_ms,
                      int64_t deadline_ms, struct xport_ep **out)
{
	struct xpi_addrs addrs;
	struct xpi_conn *conn;
	struct xpi_name name;
	struct xport_ep *ep;
	uint32_t forbidden;
	int rc = xpi_conn_attr_check(x, attr, &forbidden);

	xpi_assert_locked(x);
	if (rc != XPORT_OK)
		return rc;
	if (timeout_ms < -1)
		return xpi_time_refuse(x, "xport_connect", timeout_ms);
	snprintf(x->err.peer, sizeof(x->err.peer), "%s", address);
	rc = xpi_addr_parse(address, false, &addrs, &name, &x->err);
	if (rc != XPORT_OK)
		return rc;
	conn = xpi_conn_new(x, &xpi_conn_client);
	if (conn == NULL)
		return XPORT_ERR_NO_MEMORY;
	snprintf(conn->remote, sizeof(conn->remote), "%s", address);
	conn->addrs = addrs;
	conn->forbidden = forbidden;
	conn->traffic = (uint8_t)xpi_conn_traffic_wish(x, attr);
	conn->deadline_ms = deadline_ms;
	conn->step = XPI_CONN_TCP;
	rc = check_addresses(conn);
	if (rc == XPORT_OK && name.host[0] != '\0')
		rc = lookup_begin(conn, &name);
	/* What the back end calls back meanwhile must not free it. */
	x->cm.busy = true;
	if (rc == XPORT_OK)
		rc = connect_begin(conn, attr);
	x->cm.busy = false;
	ep = conn->ep;
	if (conn->dead) {
		xpi_conn_free(conn);
		return rc < 0 ? rc : XPORT_ERR_REFUSED;
	}
	if (rc != XPORT_OK) {
		xpi_conn_discard(conn);
		return xpi_connect_undo(x, ep, rc);
	}
	*out = ep;
	return XPORT_OK;
}
