/* SPDX-License-Identifier: BSD-3-Clause */
/* conn_io.c - the bytes of a handshake: sent and read without waiting, and what is waited for meanwhile. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/error.h"
#include "core/conn_impl.h"

/* What does not wait (MSG_DONTWAIT) is not interrupted either: there is no EINTR here. */
enum { NATIVE_MS = 10 }; /* how often ep_connect under way is asked */

/* 1: all is sent; 0: the socket is full. */
static int send_rest(struct xpi_conn *conn, const uint8_t *buf, size_t len, size_t *done)
{
	while (*done < len) {
		ssize_t n = send(conn->fd, buf + *done, len - *done, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN)
			return 0;
		/* Why it broke, the peer may have said: reading tells. */
		if (n < 0)
			return 1;
		*done += (size_t)n;
	}
	return 1;
}

/* The HELLO as it goes out, sealed once and no sooner: it may be made anew before. */
static void seal_hello(struct xpi_conn *conn)
{
	size_t len = conn->out_len;

	if (conn->session == NULL || conn->hello_sealed || len == 0)
		return;
	xpi_session_seal(conn->session, XPI_SEAL_HANDSHAKE, conn->out, len, conn->out + len);
	xpi_session_note(conn->session, conn->out, len);
	conn->out_len += XPI_SEAL_LEN;
	conn->hello_sealed = true;
}

int xpi_conn_flush(struct xpi_conn *conn)
{
	int rc = send_rest(conn, conn->word, conn->word_len, &conn->word_done);

	if (rc != 1 || conn->step < XPI_CONN_HELLO)
		return rc;
	seal_hello(conn);
	return send_rest(conn, conn->out, conn->out_len, &conn->out_done);
}

static int peer_went(struct xpi_conn *conn, int error)
{
	const char *when = conn->step <= XPI_CONN_HELLO ? "without an answer" : "while the connection was being made";

	if (error == 0)
		return xpi_fail(&conn->x->err, XPORT_ERR_REFUSED, 0, NULL, NULL, "%s went away %s", conn->remote, when);
	errno = error;
	return xpi_fail_errno(&conn->x->err, XPORT_ERR_REFUSED, NULL, "%s went away %s", conn->remote, when);
}

int xpi_conn_fill(struct xpi_conn *conn, size_t want)
{
	while (conn->in_len < want) {
		ssize_t n = recv(conn->fd, conn->in + conn->in_len, want - conn->in_len, MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n <= 0)
			return peer_went(conn, n == 0 ? 0 : errno);
		conn->in_len += (size_t)n;
	}
	return 1;
}

int xpi_conn_watch_fd(struct xport *x, struct xpi_watch *w, int fd, uint32_t events, int64_t deadline_ms)
{
	int rc;

	if (w->added) {
		rc = xpi_watch_arm(x->live, w, events, deadline_ms);
	} else {
		w->fd = fd;
		w->bell = x->bell;
		w->events = events;
		w->deadline_ms = deadline_ms;
		rc = xpi_watch_add(x->live, w);
	}
	if (rc != XPORT_OK) /* LCOV_EXCL_BR_LINE: by fault alone, where epoll has no room left */
		return xpi_fail_errno(&x->err, rc, NULL, "cannot watch a socket");
	return rc;
}

int xpi_conn_watch(struct xpi_conn *conn)
{
	int64_t deadline_ms = conn->deadline_ms, ask_ms = xpi_now_ms() + NATIVE_MS;
	uint32_t events = conn->step == XPI_CONN_TCP || conn->step == XPI_CONN_REFUSING ? EPOLLOUT : EPOLLIN;

	if (conn->word_done < conn->word_len || (conn->step >= XPI_CONN_HELLO && conn->out_done < conn->out_len))
		events |= EPOLLOUT;
	if (conn->step == XPI_CONN_TCP && conn->addr_deadline_ms < deadline_ms)
		deadline_ms = conn->addr_deadline_ms;
	if (conn->step == XPI_CONN_NATIVE && ask_ms < deadline_ms)
		deadline_ms = ask_ms;
	return xpi_conn_watch_fd(conn->x, &conn->watch, conn->fd, events, deadline_ms);
}
