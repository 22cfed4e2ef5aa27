/* SPDX-License-Identifier: BSD-3-Clause */
/* conn_io.c - the bytes of a handshake: sent and read without waiting, and what is waited for meanwhile. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/printable.h"
#include "core/auth/auth.h"
#include "core/cm/handshake.h"
#include "core/liveness/monitor.h"
#include "core/object/instance.h"

/* What does not wait (MSG_DONTWAIT) is not interrupted either: there is no EINTR here. */
enum {
	NATIVE_MS = 10, /* how often ep_connect under way is asked */
	QUEUED_MS = 100 /* how often a place in the backlog is looked for; xport_accept rings as well */
};

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

int xpi_conn_say(struct xpi_conn *conn, const void *bytes, size_t len)
{
	size_t seal = conn->session != NULL ? XPI_SEAL_LEN : 0;

	/* The space of what has left is free. */
	memmove(conn->out, conn->out + conn->out_done, conn->out_len - conn->out_done);
	conn->out_len -= conn->out_done;
	conn->out_done = 0;
	if (conn->out_len + len + seal > sizeof(conn->out))
		return xpi_fail(&conn->x->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL, "%s does not read what it is sent",
		                conn->remote);
	memcpy(conn->out + conn->out_len, bytes, len);
	if (seal > 0)
		xpi_session_seal(conn->session, XPI_SEAL_HANDSHAKE, bytes, len, conn->out + conn->out_len + len);
	conn->out_len += len + seal;
	return XPORT_OK;
}

static int peer_went(struct xpi_conn *conn, int error)
{
	const char *when = conn->step <= XPI_CONN_HELLO ? "without an answer" : "while the connection was being made";

	if (error == 0)
		return xpi_fail(&conn->x->err, XPORT_ERR_REFUSED, 0, NULL,
		                "see what the program that listens there says", "%s went away %s", conn->remote, when);
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
		w->wake_flag = x->wake_flag;
		w->wake_flag.conns = true;
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
	int64_t deadline_ms = conn->deadline_ms;
	bool native = conn->step == XPI_CONN_NATIVE || conn->step == XPI_CONN_LEAVING;
	bool lookup = conn->step == XPI_CONN_LOOKUP;
	int64_t now = xpi_now_ms();
	/* Most names are looked up at once, and some take seconds. */
	int64_t ask_ms = now + (native ? NATIVE_MS : lookup ? 1 + (now - conn->began_ms) / 8 : QUEUED_MS);
	bool reads = conn->step > XPI_CONN_TCP && conn->step != XPI_CONN_REFUSING && conn->step != XPI_CONN_LEAVING;
	uint32_t events = reads ? EPOLLIN : lookup || conn->step == XPI_CONN_LEAVING ? 0 : EPOLLOUT;

	if (conn->word_done < conn->word_len || (conn->step >= XPI_CONN_HELLO && conn->out_done < conn->out_len))
		events |= EPOLLOUT;
	if (conn->step == XPI_CONN_TCP && conn->addr_deadline_ms < deadline_ms)
		deadline_ms = conn->addr_deadline_ms;
	if ((native || lookup || conn->step == XPI_CONN_QUEUED) && ask_ms < deadline_ms)
		deadline_ms = ask_ms;
	return xpi_conn_watch_fd(conn->x, &conn->watch, conn->fd, events, deadline_ms);
}

enum { FAILED_HEAD = 7, FAILED_TEXT = 255 };

void xpi_conn_send_failed(struct xpi_conn *conn, int status, const char *text)
{
	uint8_t buf[FAILED_HEAD + FAILED_TEXT + XPI_SEAL_LEN] = {XPI_HANDSHAKE_FAILED};
	size_t n = strnlen(text, FAILED_TEXT), len = FAILED_HEAD + n;

	if (!conn->tell && (!conn->hello_sent || conn->out_done < conn->out_len))
		return;
	for (int i = 0; i < 4; i++)
		buf[1 + i] = (uint8_t)((uint32_t)status >> (24 - 8 * i));
	buf[5] = (uint8_t)(n >> 8);
	buf[6] = (uint8_t)n;
	memcpy(buf + FAILED_HEAD, text, n);
	if (xpi_auth_exchange_done(conn)) {
		xpi_session_seal(conn->session, XPI_SEAL_LATER, buf, len, buf + len);
		len += XPI_SEAL_LEN;
	}
	(void)send(conn->fd, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int xpi_conn_peer_status(int32_t status)
{
	return status == XPORT_ERR_INCOMPATIBLE || status == XPORT_ERR_AUTH ? status : XPORT_ERR_REFUSED;
}

/* The peer's seal stands behind what it said. */
int xpi_conn_check_seal(struct xpi_conn *conn, enum xpi_seal_kind kind, size_t len)
{
	if (conn->session == NULL || xpi_session_open(conn->session, kind, conn->in, len, conn->in + len))
		return XPORT_OK;
	return xpi_fail(&conn->x->err, XPORT_ERR_AUTH, 0, NULL, "a third party changed the data between the two hosts",
	                "a message from %s is not authenticated with the key of this connection", conn->remote);
}

int xpi_conn_read_failed(struct xpi_conn *conn)
{
	size_t seal = xpi_auth_exchange_done(conn) ? XPI_SEAL_LEN : 0;
	char text[FAILED_TEXT + 1];
	uint32_t status = 0;
	size_t n;
	int rc = xpi_conn_fill(conn, FAILED_HEAD);

	if (rc != 1)
		return rc;
	for (int i = 0; i < 4; i++)
		status = status << 8 | conn->in[1 + i];
	n = (size_t)conn->in[5] << 8 | conn->in[6];
	if (n > FAILED_TEXT)
		return xpi_fail(&conn->x->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL, "%s failed without a proper reason",
		                conn->remote);
	rc = xpi_conn_fill(conn, FAILED_HEAD + n + seal);
	if (rc != 1)
		return rc;
	rc = seal > 0 ? xpi_conn_check_seal(conn, XPI_SEAL_LATER, FAILED_HEAD + n) : XPORT_OK;
	if (rc != XPORT_OK)
		return rc;
	memcpy(text, conn->in + FAILED_HEAD, n);
	text[n] = '\0';
	xpi_text_clean(text, '?');
	return xpi_fail(&conn->x->err, xpi_conn_peer_status((int32_t)status), 0, NULL, NULL, "%s gave up: %s",
	                conn->remote, text);
}
