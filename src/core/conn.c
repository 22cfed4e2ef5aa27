/* SPDX-License-Identifier: BSD-3-Clause */
/* conn.c - the steps of a handshake, the same on both sides; see conn.h. */
#include "core/conn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "core/conn_impl.h"

enum { READY = 'R', FAILED = XPI_HANDSHAKE_FAILED, FAILED_HEAD = 7, FAILED_TEXT = 255 };

/* ep_connect under way is asked again at every poll, without sleep, for so long; then as often as
 * xpi_conn_watch says. */
enum { NATIVE_BUSY_MS = 20 };

struct xpi_conn *xpi_conn_new(struct xport *x)
{
	struct xpi_conn *conn = calloc(1, sizeof(*conn));

	if (conn == NULL) {
		xpi_fail(&x->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for a handshake");
		return NULL;
	}
	conn->x = x;
	conn->fd = -1;
	conn->began_ms = xpi_now_ms();
	xpi_list_push(&x->conns, &conn->link);
	return conn;
}

void xpi_conn_discard(struct xpi_conn *conn)
{
	struct xport *x = conn->x;

	if (conn->dead)
		return;
	xpi_watch_remove(x->live, &conn->watch);
	if (conn->fd >= 0)
		close(conn->fd);
	conn->fd = -1;
	xpi_session_free(conn->session);
	conn->session = NULL;
	if (conn->ep != NULL)
		conn->ep->conn = NULL;
	conn->ep = NULL;
	conn->wait = NULL;
	conn->dead = true;
	if (!x->conn_busy)
		xpi_conn_free(conn);
}

void xpi_conn_free(struct xpi_conn *conn)
{
	xpi_list_del(&conn->link);
	free(conn);
}

/* The peer's sentence, or ours, on its way to a log or terminal. */
static void clean(char *s)
{
	for (; *s != '\0'; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			*s = '?';
}

/* Tells the peer why its handshake ends.  What does not fit into the socket now is not worth waiting for. */
static void send_failed(struct xpi_conn *conn, int status, const char *text)
{
	uint8_t buf[FAILED_HEAD + FAILED_TEXT + XPI_SEAL_LEN] = {FAILED};
	size_t n = strnlen(text, FAILED_TEXT), len = FAILED_HEAD + n;

	if (!conn->tell && (!conn->hello_sent || conn->out_done < conn->out_len))
		return;
	for (int i = 0; i < 4; i++)
		buf[1 + i] = (uint8_t)((uint32_t)status >> (24 - 8 * i));
	buf[5] = (uint8_t)(n >> 8);
	buf[6] = (uint8_t)n;
	memcpy(buf + FAILED_HEAD, text, n);
	if (xpi_prove_done(conn)) {
		xpi_session_seal(conn->session, XPI_SEAL_LATER, buf, len, buf + len);
		len += XPI_SEAL_LEN;
	}
	(void)send(conn->fd, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void xpi_conn_fail(struct xpi_conn *conn, int status)
{
	struct xpi_conn_wait *wait = conn->wait;
	struct xport *x = conn->x;
	struct xport_ep *ep = conn->ep;
	struct xport_error err;
	bool server = conn->listener != NULL;

	if (conn->dead)
		return;
	x->err.status = status;
	if (!server) {
		snprintf(x->err.operation, sizeof(x->err.operation), "xport_connect");
		snprintf(x->err.peer, sizeof(x->err.peer), "%s", conn->remote);
	}
	err = x->err;
	send_failed(conn, status, err.text);
	if (server)
		xpi_listener_log(conn->listener, conn->remote, err.text);
	if (wait != NULL) {
		wait->failed = true;
		wait->err = err;
	}
	xpi_conn_discard(conn);
	if (ep != NULL) {
		snprintf(ep->why, sizeof(ep->why), "%.150s", err.text);
		xpi_ep_fail(ep, status, XPORT_EVENT_LOST);
	}
	x->err = err;
}

void xpi_conn_drop(struct xport_ep *ep)
{
	if (ep->conn == NULL)
		return;
	send_failed(ep->conn, XPORT_ERR_REFUSED, "the other side gave up");
	xpi_conn_discard(ep->conn);
}

int xpi_conn_timeout(struct xpi_conn *conn)
{
	static const char *const where[] = {
		[XPI_CONN_TCP] = "the host does not answer",
		[XPI_CONN_START] = "something listens there, but it does not begin to prove that it has the key",
		[XPI_CONN_PROOF] = "something listens there, but it does not prove that it has the key",
		[XPI_CONN_HELLO] = "something listens there, but it sent no HELLO",
		[XPI_CONN_NATIVE] = "the HELLOs were exchanged, but the network did not connect",
		[XPI_CONN_READY] = "the network connected, but the peer did not become ready",
		[XPI_CONN_REFUSING] = "it does not take its refusal",
	};
	static const char *const hints[] = {
		[XPI_CONN_TCP] = "check the address, and firewalls",
		[XPI_CONN_START] = "check that it is a listener of this library, and that its program polls",
		[XPI_CONN_PROOF] = "check that it is a listener of this library, and that its program polls",
		[XPI_CONN_HELLO] = "check that it is a listener of this library, and that its program polls",
		[XPI_CONN_NATIVE] = "check that both programs poll, and that the network lets them reach each other",
		[XPI_CONN_READY] = "check that the peer's program polls",
		[XPI_CONN_REFUSING] = NULL,
	};

	return xpi_fail(&conn->x->err, XPORT_ERR_TIMEOUT, 0, NULL, hints[conn->step],
	                "no connection with %s after %lld ms: %s", conn->remote,
	                (long long)(xpi_now_ms() - conn->began_ms), where[conn->step]);
}

/* ---- HELLO ---- */

static bool big_endian(void)
{
	const uint16_t one = 1;

	return *(const uint8_t *)&one == 0;
}

void xpi_conn_identity(struct xport *x, struct xpi_hello *h)
{
	memset(h, 0, sizeof(*h));
	h->wire_version = XPI_WIRE_VERSION;
	snprintf(h->library, sizeof(h->library), "%s", xport_version());
	snprintf(h->backend, sizeof(h->backend), "%s", x->ops->name);
	snprintf(h->provider, sizeof(h->provider), "%s", x->caps.provider);
	h->any_provider = x->caps.local_provider;
	snprintf(h->protocol, sizeof(h->protocol), "%s", x->caps.protocol);
	snprintf(h->stack, sizeof(h->stack), "%s", x->caps.stack);
	h->pointer_size = sizeof(void *);
	h->big_endian = big_endian();
	xpi_hello_process(h);
	h->incarnation = x->incarnation;
	h->frame_max = (uint32_t)x->caps.am_max;
	h->credits = x->caps.am_credits;
	h->window = XPI_WINDOW;
	h->requests = XPI_REQUESTS;
	h->peer_timeout_ms = (uint32_t)x->settings.peer_timeout_ms;
}

int xpi_conn_hello(struct xpi_conn *conn, const void *private_data, size_t private_len, int verdict, const char *text)
{
	struct xport *x = conn->x;
	struct xpi_hello h;
	size_t len = XPI_ADDRESS_MAX;
	int rc;

	xpi_conn_identity(x, &h);
	h.verdict = verdict;
	snprintf(h.verdict_text, sizeof(h.verdict_text), "%s", text != NULL ? text : "");
	if (conn->ep != NULL) {
		h.ep_id = conn->ep->id;
		h.session = conn->ep->session;
		rc = x->ops->address(x->be, xpi_ep_be(conn->ep), (struct xpi_core_ep *)conn->ep, h.address, &len);
		if (rc != XPORT_OK)
			return rc;
		if (conn->ep != NULL)
			conn->ep->prepared = true;
		h.address_len = (uint16_t)len;
		h.private_len = (uint16_t)private_len;
		if (private_len > 0)
			memcpy(h.private_data, private_data, private_len);
	}
	conn->out_done = 0;
	conn->out_len = xpi_hello_encode(&h, conn->out, XPI_HELLO_MAX);
	if (conn->out_len == 0)
		return xpi_fail(&x->err, XPORT_ERR_SYSTEM, 0, NULL, NULL, "the HELLO does not fit its longest form");
	return XPORT_OK;
}

int xpi_conn_peer_status(int32_t status)
{
	return status == XPORT_ERR_INCOMPATIBLE || status == XPORT_ERR_AUTH ? status : XPORT_ERR_REFUSED;
}

int xpi_conn_take_peer(struct xpi_conn *conn)
{
	const struct xpi_hello *peer = &conn->peer;
	struct xport *x = conn->x;

	/* What the contract promises of every back end; less would let the protocol stall. */
	if (peer->frame_max < 4096 || peer->credits == 0 || peer->window == 0 || peer->requests == 0 ||
	    peer->peer_timeout_ms < 200 || peer->peer_timeout_ms > 3600000)
		return xpi_fail(&x->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL, "the HELLO of %s has impossible limits",
		                conn->remote);
	if (!xpi_ep_set_peer(conn->ep, peer))
		return xpi_fail(&x->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for the peer's description");
	conn->step = XPI_CONN_NATIVE;
	conn->native_ms = xpi_now_ms();
	return XPORT_OK;
}

/* The peer's seal stands behind what it said. */
static int check_seal(struct xpi_conn *conn, enum xpi_seal_kind kind, size_t len)
{
	if (conn->session == NULL || xpi_session_open(conn->session, kind, conn->in, len, conn->in + len))
		return XPORT_OK;
	return xpi_fail(&conn->x->err, XPORT_ERR_AUTH, 0, NULL, "somebody between the two hosts changes what they say",
	                "what came from %s is not sealed with the key of this connection", conn->remote);
}

/* How long the peer's HELLO is; 0: not yet known; else a status. */
static int hello_length(struct xpi_conn *conn)
{
	int rc = xpi_conn_fill(conn, 8);
	size_t length;

	if (rc != 1)
		return rc;
	if (xpi_prove_meant(conn))
		return xpi_prove_refuse(conn);
	length = xpi_hello_length(conn->in);
	if (length == 0)
		return xpi_fail(&conn->x->err, XPORT_ERR_PROTOCOL, 0, NULL,
		                "check that it is a listener of this library", "%s does not speak this protocol",
		                conn->remote);
	return (int)length;
}

/* 1: the peer's HELLO has been dealt with. */
static int step_hello(struct xpi_conn *conn)
{
	size_t seal = conn->session != NULL ? XPI_SEAL_LEN : 0;
	struct xport *x = conn->x;
	int length, rc = xpi_conn_fill(conn, 1);

	if (rc != 1)
		return rc;
	/* Who has no key, and did not ask for one, hears in the clear of those who have. */
	if (conn->session == NULL && conn->listener == NULL && conn->in[0] == FAILED)
		return xpi_conn_read_failed(conn);
	length = hello_length(conn);
	if (length <= 0)
		return length;
	rc = xpi_conn_fill(conn, (size_t)length + seal);
	if (rc != 1)
		return rc;
	rc = check_seal(conn, XPI_SEAL_HANDSHAKE, (size_t)length);
	if (rc != XPORT_OK)
		return rc;
	if (!xpi_hello_decode(conn->in, (size_t)length, &conn->peer))
		return xpi_fail(&x->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL, "the HELLO of %s is damaged", conn->remote);
	if (conn->session != NULL)
		xpi_session_note(conn->session, conn->in, (size_t)length);
	conn->in_len = 0;
	rc = conn->listener != NULL ? xpi_listener_hello(conn) : xpi_connect_hello(conn);
	return rc == XPORT_OK ? 1 : rc;
}

/* ---- After the HELLO ---- */

int xpi_conn_read_failed(struct xpi_conn *conn)
{
	size_t seal = xpi_prove_done(conn) ? XPI_SEAL_LEN : 0;
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
	rc = seal > 0 ? check_seal(conn, XPI_SEAL_LATER, FAILED_HEAD + n) : XPORT_OK;
	if (rc != XPORT_OK)
		return rc;
	memcpy(text, conn->in + FAILED_HEAD, n);
	text[n] = '\0';
	clean(text);
	return xpi_fail(&conn->x->err, xpi_conn_peer_status((int32_t)status), 0, NULL, NULL, "%s gave up: %s",
	                conn->remote, text);
}

/*
 * Looks for the peer's READY or failure, byte by byte: behind its READY, once it has ours, come the frames of the
 * control channel.
 */
static int read_ready(struct xpi_conn *conn)
{
	bool ours_sent = conn->step == XPI_CONN_READY;
	int rc;

	while (!conn->peer_ready || !ours_sent) {
		rc = xpi_conn_fill(conn, 1);
		if (rc != 1)
			return rc;
		if (conn->in[0] == FAILED)
			return xpi_conn_read_failed(conn);
		if (conn->in[0] != READY || conn->peer_ready)
			return xpi_fail(&conn->x->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL,
			                "%s sent something else than that it is ready", conn->remote);
		rc = conn->session != NULL ? xpi_conn_fill(conn, 1 + XPI_SEAL_LEN) : 1;
		if (rc != 1)
			return rc;
		rc = check_seal(conn, XPI_SEAL_HANDSHAKE, 1);
		if (rc != XPORT_OK)
			return rc;
		conn->in_len = 0;
		conn->peer_ready = true;
	}
	return 0;
}

static void say_ready(struct xpi_conn *conn)
{
	uint8_t *p = conn->out + conn->out_len;

	*p = READY;
	conn->out_len++;
	if (conn->session == NULL)
		return;
	xpi_session_seal(conn->session, XPI_SEAL_HANDSHAKE, p, 1, p + 1);
	conn->out_len += XPI_SEAL_LEN;
}

static int step_native(struct xpi_conn *conn)
{
	struct xport *x = conn->x;
	enum xpi_role role = conn->listener != NULL ? XPI_PASSIVE : XPI_ACTIVE;
	int rc = conn->rang ? read_ready(conn) : 0;

	if (rc < 0)
		return rc;
	rc = x->ops->ep_connect(x->be, xpi_ep_be(conn->ep), role, conn->peer.address, conn->peer.address_len);
	/* It may have called back, and the core have failed the endpoint. */
	if (conn->dead || rc == XPORT_ERR_AGAIN)
		return 0;
	if (rc != XPORT_OK)
		return rc;
	say_ready(conn);
	conn->step = XPI_CONN_READY;
	return 1;
}

static bool same_host(const struct xpi_hello *peer)
{
	struct xpi_hello ours;

	xpi_hello_process(&ours);
	return ours.boot_id[0] != '\0' && strcmp(ours.boot_id, peer->boot_id) == 0 && ours.pid_ns != 0 &&
	       ours.pid_ns == peer->pid_ns;
}

/* Both are ready: the socket passes to the endpoint, and the handshake is over. */
static int establish(struct xpi_conn *conn)
{
	struct xport *x = conn->x;
	struct xport_ep *ep = conn->ep;
	struct xpi_ready *ready = NULL;
	int rc, fd = conn->fd;

	if (conn->listener != NULL) {
		ready = xpi_listener_room(x);
		if (ready == NULL)
			return xpi_fail(&x->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for a connection");
	}
	xpi_watch_remove(x->live, &conn->watch);
	ep->conn = NULL;
	ep->chan.session = conn->session;
	rc = xpi_ep_established(ep, fd, same_host(&conn->peer), &conn->peer);
	if (rc != XPORT_OK) {
		ep->chan.session = NULL;
		ep->conn = conn;
		xpi_listener_unroom(x, ready);
		return rc;
	}
	conn->fd = -1;
	conn->session = NULL;
	conn->ep = NULL;
	if (ep->broken)
		xpi_bell_ring(x); /* nobody attended to it while it connected */
	if (conn->wait != NULL)
		conn->wait->established = true;
	if (ready != NULL)
		xpi_listener_ready(conn->listener, ready, ep);
	xpi_conn_discard(conn);
	return 0;
}

static int native_broke(struct xpi_conn *conn)
{
	return xpi_fail(&conn->x->err, XPORT_ERR_UNREACHABLE, 0, NULL, NULL, "the network did not connect: %s",
	                conn->ep->native_why);
}

static bool may_have_closed(struct xpi_conn *conn)
{
	if (xpi_now_ms() - conn->ep->broken_ms > XPI_BROKEN_MS)
		return false;
	xpi_bell_ring(conn->x);
	return true;
}

/* A peer may have been ready, said all it had to say and closed before we look: its READY is on the way then. */
static int step_ready(struct xpi_conn *conn)
{
	int rc = read_ready(conn);

	if (rc < 0)
		return rc;
	if (!conn->peer_ready && conn->ep->broken && !may_have_closed(conn))
		return native_broke(conn);
	if (!conn->peer_ready || conn->out_done < conn->out_len)
		return 0;
	return establish(conn);
}

/* 1: there may be more to do at once; 0: wait; else a status. */
static int take_step(struct xpi_conn *conn)
{
	int rc;

	if (conn->step == XPI_CONN_TCP)
		return xpi_conn_tcp(conn);
	if (conn->ep != NULL && conn->ep->broken && conn->step != XPI_CONN_READY)
		return native_broke(conn);
	rc = xpi_conn_flush(conn);
	if (rc < 0)
		return rc;
	if (conn->out_done > 0)
		conn->hello_sent = true;
	switch (conn->step) {
	case XPI_CONN_START:
	case XPI_CONN_PROOF:
		return xpi_prove_step(conn);
	case XPI_CONN_HELLO:
		return step_hello(conn);
	case XPI_CONN_NATIVE:
		return step_native(conn);
	case XPI_CONN_READY:
		return step_ready(conn);
	default:
		if (rc == 1)
			xpi_conn_discard(conn);
		return 0;
	}
}

static void step(struct xpi_conn *conn)
{
	struct xport *x = conn->x;
	struct xport_error before = x->err;
	bool quiet = conn->listener != NULL || conn->wait != NULL, asked = conn->step == XPI_CONN_NATIVE;
	int rc;

	conn->rang = atomic_load(&conn->watch.rang);
	/* It was closed meanwhile, and fails at the end of this poll. */
	if (conn->ep != NULL && conn->ep->state != XPI_EP_CONNECTING) {
		xpi_conn_drop(conn->ep);
		return;
	}
	do
		rc = take_step(conn);
	while (rc == 1 && !conn->dead);
	if (rc == 0 && !conn->dead && xpi_now_ms() >= conn->deadline_ms)
		rc = xpi_conn_timeout(conn);
	/* ep_connect that is asked again at every poll costs no system call. */
	if (rc == 0 && !conn->dead && (conn->rang || !asked || conn->step != XPI_CONN_NATIVE))
		rc = xpi_conn_watch(conn);
	if (rc < 0)
		xpi_conn_fail(conn, rc);
	/* Only of an asynchronous xport_connect is the application to find the reason here. */
	if (quiet || rc >= 0)
		x->err = before;
}

/* One whose network broke is looked at although its socket is silent: it waits no longer than XPI_BROKEN_MS. */
static bool is_due(struct xpi_conn *conn)
{
	return conn->step == XPI_CONN_NATIVE || atomic_load(&conn->watch.rang) ||
	       (conn->ep != NULL && conn->ep->broken);
}

/* Takes the steps that are due; whether one of them is to be taken again soon. */
static bool walk(struct xport *x)
{
	bool soon = false;

	xpi_list_for_safe(pos, &x->conns) {
		struct xpi_conn *conn = xpi_container(pos, struct xpi_conn, link);

		if (!conn->dead && is_due(conn))
			step(conn);
		if (conn->dead)
			xpi_conn_free(conn);
		else if (conn->step == XPI_CONN_NATIVE)
			soon = soon || xpi_now_ms() - conn->native_ms < NATIVE_BUSY_MS;
	}
	return soon;
}

void xpi_conn_progress(struct xport *x)
{
	bool soon;
	int came = 0;

	if (x->conn_busy)
		return;
	x->conn_busy = true;
	soon = walk(x);
	xpi_list_for(pos, &x->listeners)
		came += xpi_listener_progress(xpi_container(pos, struct xport_listener, link));
	if (came > 0)
		soon = walk(x);
	x->conn_busy = false;
	if (soon)
		atomic_store(&x->attention, 1);
}

void xpi_conn_names(struct xpi_conn *conn)
{
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof(sa);

	if (getsockname(conn->fd, (struct sockaddr *)&sa, &len) == 0)
		xpi_addr_format((struct sockaddr *)&sa, conn->ep->local, sizeof(conn->ep->local));
	len = sizeof(sa);
	if (getpeername(conn->fd, (struct sockaddr *)&sa, &len) == 0)
		xpi_addr_format((struct sockaddr *)&sa, conn->ep->peer, sizeof(conn->ep->peer));
}
