/* SPDX-License-Identifier: BSD-3-Clause */
/* handshake.c - the steps of a handshake, the same on both sides; see cm.h. */
#include "core/cm/handshake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/signals.h"
#include "base/traffic.h"
#include "core/auth/auth.h"
#include "core/cm/addr.h"
#include "core/cm/cm.h"
#include "core/cm/negotiate.h"
#include "core/liveness/monitor.h"
#include "core/object/accept_queue.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/wire/hello.h"

enum { READY = 'R', FAILED = XPI_HANDSHAKE_FAILED };

/* ep_connect under way is asked again at every poll, without sleep, for so long; then as often as
 * xpi_conn_watch says. */
enum { NATIVE_BUSY_MS = 20 };

struct xpi_conn *xpi_conn_new(struct xport *x, const struct xpi_conn_role *role)
{
	struct xpi_conn *conn = calloc(1, sizeof(*conn));

	if (conn == NULL) {
		xpi_fail(&x->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for a handshake");
		return NULL;
	}
	conn->x = x;
	conn->role = role;
	conn->fd = -1;
	conn->began_ms = xpi_now_ms();
	xpi_list_push(&x->cm.conns, &conn->link);
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
	xpi_lookup_drop(conn->lookup);
	conn->lookup = NULL;
	xpi_session_free(conn->session);
	conn->session = NULL;
	if (conn->ep != NULL)
		conn->ep->conn = NULL;
	conn->ep = NULL;
	conn->wait = NULL;
	conn->dead = true;
	if (!x->cm.busy)
		xpi_conn_free(conn);
}

void xpi_conn_free(struct xpi_conn *conn)
{
	xpi_list_del(&conn->link);
	free(conn);
}

void xpi_conn_fail(struct xpi_conn *conn, int status)
{
	struct xpi_conn_wait *wait = conn->wait;
	struct xport *x = conn->x;
	struct xport_ep *ep = conn->ep;
	struct xport_error err;
	bool server = conn->listener != NULL;

	xpi_assert_locked(conn->x);
	if (conn->dead)
		return;
	x->err.status = status;
	if (!server) {
		snprintf(x->err.operation, sizeof(x->err.operation), "xport_connect");
		snprintf(x->err.peer, sizeof(x->err.peer), "%s", conn->remote);
	}
	err = x->err;
	xpi_conn_send_failed(conn, status, err.text);
	if (server)
		xpi_listener_log(conn->listener, conn->remote, err.text);
	if (wait != NULL) {
		wait->failed = true;
		wait->err = err;
	}
	xpi_conn_discard(conn);
	if (ep != NULL) {
		snprintf(ep->end.why, sizeof(ep->end.why), "%.150s", err.text);
		xpi_ep_fail(ep, status, XPORT_EVENT_LOST);
	}
	x->err = err;
}

void xpi_conn_drop(struct xport_ep *ep)
{
	xpi_assert_locked(ep->x);
	if (ep->conn == NULL)
		return;
	xpi_conn_send_failed(ep->conn, XPORT_ERR_REFUSED, "the other side gave up");
	xpi_conn_discard(ep->conn);
}

int xpi_conn_timeout(struct xpi_conn *conn)
{
	static const char *const where[] = {
		[XPI_CONN_LOOKUP] = "its name is not looked up yet",
		[XPI_CONN_TCP] = "the host does not answer",
		[XPI_CONN_START] = "something listens there, but it does not begin to prove that it has the key",
		[XPI_CONN_PROOF] = "something listens there, but it does not prove that it has the key",
		[XPI_CONN_HELLO] = "something listens there, but it sent no HELLO",
		[XPI_CONN_QUEUED] = "the backlog is full",
		[XPI_CONN_TAKE] = "the HELLOs were exchanged, but the peer did not say over which transport it goes on",
		[XPI_CONN_LEAVING] = "a transport did not connect, and its stack does not let go of it",
		[XPI_CONN_NATIVE] = "the HELLOs were exchanged, but the network did not connect",
		[XPI_CONN_READY] = "the network connected, but the peer did not become ready",
		[XPI_CONN_REFUSING] = "it does not take its refusal",
	};
	static const char *const hints[] = {
		[XPI_CONN_LOOKUP] = "check the name server, or give a numeric address",
		[XPI_CONN_TCP] = "check the address, and firewalls",
		[XPI_CONN_START] = "check that it is a listener of this library, and that its program polls",
		[XPI_CONN_PROOF] = "check that it is a listener of this library, and that its program polls",
		[XPI_CONN_HELLO] = "check that it is a listener of this library, and that its program polls",
		[XPI_CONN_QUEUED] = NULL,
		[XPI_CONN_TAKE] = "check that the peer's program polls",
		[XPI_CONN_LEAVING] = NULL,
		[XPI_CONN_NATIVE] = "check that both programs poll, and that the network lets them reach each other",
		[XPI_CONN_READY] = "check that the peer's program polls",
		[XPI_CONN_REFUSING] = NULL,
	};

	return xpi_fail(&conn->x->err, XPORT_ERR_TIMEOUT, 0, NULL, hints[conn->step],
	                "no connection with %s after %lld ms: %s", conn->remote,
	                (long long)(xpi_now_ms() - conn->began_ms), where[conn->step]);
}

/* ---- HELLO ---- */

int xpi_conn_address(struct xpi_conn *conn, uint8_t *buf, size_t *len)
{
	struct xport_ep *ep = conn->ep;
	sigset_t mask;
	int rc;

	xpi_fd_fill();
	xpi_signals_hold(&mask);
	rc = ep->tp->ops->address(ep->tp->be, xpi_ep_be(ep), (struct xpi_core_ep *)ep, buf, len);
	xpi_signals_release(&mask);
	if (rc == XPORT_OK && conn->ep != NULL)
		conn->ep->prepared = true;
	return rc;
}

int xpi_conn_hello(struct xpi_conn *conn, const void *private_data, size_t private_len, int verdict, const char *text)
{
	struct xport *x = conn->x;
	struct xpi_hello h;
	size_t len = XPI_ADDRESS_MAX;
	int rc;

	xpi_conn_identity(x, conn->ep != NULL ? conn->ep->tp : NULL, conn->forbidden, &h);
	memcpy(conn->said, h.offers, sizeof(conn->said));
	conn->nsaid = h.noffers;
	h.traffic_class = conn->traffic;
	h.verdict = verdict;
	snprintf(h.verdict_text, sizeof(h.verdict_text), "%s", text != NULL ? text : "");
	if (conn->ep != NULL) {
		h.ep_id = conn->ep->id;
		h.session = conn->ep->session;
		h.private_len = (uint16_t)private_len;
		if (private_len > 0)
			memcpy(h.private_data, private_data, private_len);
	}
	if (h.offer != XPI_OFFER_NONE) {
		h.theirs = conn->listener != NULL ? conn->theirs : XPI_OFFER_NONE;
		rc = xpi_conn_address(conn, h.address, &len);
		if (rc != XPORT_OK)
			return rc;
		h.address_len = (uint16_t)len;
	}
	conn->out_done = 0;
	conn->out_len = xpi_hello_encode(&h, conn->out, XPI_HELLO_MAX);
	if (conn->out_len == 0)
		return xpi_fail(&x->err, XPORT_ERR_SYSTEM, 0, NULL, NULL, "the HELLO does not fit its longest form");
	return XPORT_OK;
}

int xpi_conn_take_peer(struct xpi_conn *conn)
{
	const struct xpi_hello *peer = &conn->peer;
	struct xport *x = conn->x;

	/* What the contract promises of every back end; less would let the protocol stall. */
	if (peer->frame_max < 4096 || peer->credits == 0 || peer->window == 0 || peer->requests == 0 ||
	    peer->peer_timeout_ms < 200 || peer->peer_timeout_ms > 3600000 || !xpi_traffic_valid(peer->traffic_class))
		return xpi_fail(&x->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL, "the HELLO of %s has impossible limits",
		                conn->remote);
	if (conn->peer_known)
		xpi_ep_set_limits(conn->ep, peer);
	else if (!xpi_ep_set_peer(conn->ep, peer))
		return xpi_fail(&x->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for the peer's description");
	conn->peer_known = true;
	conn->step = XPI_CONN_NATIVE;
	conn->native_ms = xpi_now_ms();
	conn->mark = XPI_MARK_FIRST;
	return XPORT_OK;
}

/* How long the peer's HELLO is; 0: not yet known; else a status. */
static int hello_length(struct xpi_conn *conn)
{
	int rc = xpi_conn_fill(conn, 8);
	size_t length;

	if (rc != 1)
		return rc;
	if (xpi_auth_exchange_meant(conn))
		return xpi_auth_exchange_refuse(conn);
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
	rc = xpi_conn_check_seal(conn, XPI_SEAL_HANDSHAKE, (size_t)length);
	if (rc != XPORT_OK)
		return rc;
	if (!xpi_hello_decode(conn->in, (size_t)length, &conn->peer))
		return xpi_fail(&x->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL, "the HELLO of %s is damaged", conn->remote);
	if (conn->session != NULL)
		xpi_session_note(conn->session, conn->in, (size_t)length);
	conn->in_len = 0;
	rc = conn->role->hello(conn);
	return rc == XPORT_OK ? 1 : rc == XPI_CONN_LATER ? 0 : rc;
}

/* Its HELLO is here, and nothing else is to come before ours. */
static int step_queued(struct xpi_conn *conn)
{
	int rc = conn->rang ? xpi_conn_fill(conn, 1) : 0;

	if (rc == 1 && conn->in[0] == FAILED)
		return xpi_conn_read_failed(conn);
	if (rc == 1)
		return xpi_fail(&conn->x->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL, "%s did not wait for the HELLO",
		                conn->remote);
	if (rc < 0)
		return rc;
	rc = conn->role->hello(conn);
	return rc == XPORT_OK ? 1 : rc == XPI_CONN_LATER ? 0 : rc;
}

/* ---- After the HELLO ---- */

/* The peer's READY, of which one byte is here. */
static int hear_ready(struct xpi_conn *conn)
{
	int rc = conn->session != NULL ? xpi_conn_fill(conn, 1 + XPI_SEAL_LEN) : 1;

	if (rc != 1)
		return rc;
	rc = xpi_conn_check_seal(conn, XPI_SEAL_HANDSHAKE, 1);
	if (rc != XPORT_OK)
		return rc;
	conn->in_len = 0;
	/* Otherwise it is of an attempt that was given up. */
	if (conn->step != XPI_CONN_TAKE)
		conn->peer_ready = true;
	else if (++conn->stale > XPI_PAIRS_MAX)
		return xpi_fail(&conn->x->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL, "%s is ready too often",
		                conn->remote);
	return 1;
}

/*
 * Looks for the peer's READY, word or failure, one after the other and not a byte further: behind its READY, once it has
 * ours, come the frames of the control channel.  1: the step has changed; 0: nothing more is here.
 */
static int read_words(struct xpi_conn *conn)
{
	enum xpi_conn_step step = conn->step;
	int rc = 1;

	while (rc == 1 && conn->step == step && (!conn->peer_ready || step != XPI_CONN_READY)) {
		rc = xpi_conn_fill(conn, 1);
		if (rc != 1)
			return rc;
		if (conn->in[0] == FAILED)
			return xpi_conn_read_failed(conn);
		if (conn->in[0] == 'T' || conn->in[0] == 'N')
			rc = xpi_negotiate_word(conn);
		else if (conn->in[0] == READY && !conn->peer_ready)
			rc = hear_ready(conn);
		else
			return xpi_fail(&conn->x->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL,
			                "%s sent something else than that it is ready", conn->remote);
	}
	return rc < 0 ? rc : conn->step != step;
}

static int say_ready(struct xpi_conn *conn)
{
	static const uint8_t ready = READY;

	return xpi_conn_say(conn, &ready, 1);
}

static int native_broke(struct xpi_conn *conn)
{
	return xpi_fail(&conn->x->err, XPORT_ERR_UNREACHABLE, 0, NULL, NULL, "the network did not connect: %s",
	                conn->ep->end.native_why);
}

static int step_native(struct xpi_conn *conn)
{
	struct xpi_transport *tp = conn->ep->tp;
	enum xpi_role role = conn->listener != NULL ? XPI_PASSIVE : XPI_ACTIVE;
	sigset_t mask;
	int rc = conn->rang ? read_words(conn) : 0;

	if (rc != 0)
		return rc;
	if (conn->ep->end.broken)
		return xpi_negotiate_failed(conn, native_broke(conn));
	rc = xpi_conn_traffic_begin(conn);
	if (rc != XPORT_OK)
		return xpi_negotiate_failed(conn, rc);
	xpi_fd_fill();
	xpi_signals_hold(&mask);
	rc = tp->ops->ep_connect(tp->be, xpi_ep_be(conn->ep), role, conn->peer.address, conn->peer.address_len);
	xpi_signals_release(&mask);
	/* It may have called back, and the core have failed the endpoint. */
	if (conn->dead || rc == XPORT_ERR_AGAIN)
		return 0;
	if (rc == XPORT_OK)
		rc = xpi_conn_traffic_end(conn);
	if (rc != XPORT_OK)
		return xpi_negotiate_failed(conn, rc);
	rc = say_ready(conn);
	conn->step = XPI_CONN_READY;
	return rc == XPORT_OK ? 1 : rc;
}

/* Our HELLO has read x->self. */
static bool same_host(const struct xport *x, const struct xpi_hello *peer)
{
	return x->self.boot_id[0] != '\0' && strcmp(x->self.boot_id, peer->boot_id) == 0 && x->self.pid_ns != 0 &&
	       x->self.pid_ns == peer->pid_ns;
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
	xpi_negotiate_passed(conn);
	ep->chan.session = conn->session;
	rc = xpi_ep_established(ep, fd, same_host(x, &conn->peer), &conn->peer);
	if (rc != XPORT_OK) {
		ep->chan.session = NULL;
		ep->conn = conn;
		xpi_listener_unroom(x, ready);
		return rc;
	}
	conn->fd = -1;
	conn->session = NULL;
	conn->ep = NULL;
	if (ep->end.broken)
		xpi_request_attention(x); /* nobody attended to it while it connected */
	if (conn->wait != NULL)
		conn->wait->established = true;
	if (ready != NULL)
		xpi_listener_ready(conn->listener, ready, ep);
	xpi_conn_discard(conn);
	return 0;
}

static bool may_have_closed(struct xpi_conn *conn)
{
	if (xpi_now_ms() - conn->ep->end.broken_ms > XPI_BROKEN_MS)
		return false;
	xpi_request_attention(conn->x);
	return true;
}

/* A peer may have been ready, said all it had to say and closed before we look: its READY is on the way then. */
static int step_ready(struct xpi_conn *conn)
{
	int rc = read_words(conn);

	if (rc != 0)
		return rc;
	if (!conn->peer_ready && conn->ep->end.broken && !may_have_closed(conn))
		return native_broke(conn);
	if (!conn->peer_ready || conn->out_done < conn->out_len)
		return 0;
	return establish(conn);
}

/* Until the peer says over which transport it goes on. */
static int step_take(struct xpi_conn *conn)
{
	int rc = read_words(conn);

	if (rc == 0 && conn->ep->end.broken && conn->ep->prepared)
		return xpi_negotiate_failed(conn, native_broke(conn));
	return rc;
}

/* 1: there may be more to do at once; 0: wait; else a status. */
static int take_step(struct xpi_conn *conn)
{
	int rc;

	if (conn->step <= XPI_CONN_TCP)
		return conn->role->tcp(conn);
	if (conn->ep != NULL && conn->ep->end.broken && conn->step <= XPI_CONN_QUEUED)
		return native_broke(conn);
	rc = xpi_conn_flush(conn);
	if (rc < 0)
		return rc;
	if (conn->out_done > 0)
		conn->hello_sent = true;
	switch (conn->step) {
	case XPI_CONN_START:
	case XPI_CONN_PROOF:
		return xpi_auth_exchange_step(conn);
	case XPI_CONN_HELLO:
		return step_hello(conn);
	case XPI_CONN_QUEUED:
		return step_queued(conn);
	case XPI_CONN_TAKE:
		return step_take(conn);
	case XPI_CONN_LEAVING:
		return xpi_negotiate_leave(conn);
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

/* Whether the step is tried again without a word from the peer. */
static bool asks(const struct xpi_conn *conn)
{
	return conn->step == XPI_CONN_NATIVE || conn->step == XPI_CONN_LEAVING || conn->step == XPI_CONN_QUEUED ||
	       conn->step == XPI_CONN_LOOKUP;
}

static void handshake_step(struct xpi_conn *conn)
{
	struct xport *x = conn->x;
	struct xport_error before = x->err;
	bool quiet = conn->listener != NULL || conn->wait != NULL;
	enum xpi_conn_step asked = conn->step;
	int rc;

	conn->rang = atomic_load(&conn->watch.rang);
	/* It was closed meanwhile, and fails at the end of this poll. */
	if (conn->ep != NULL && conn->ep->state != XPI_EP_CONNECTING) {
		xpi_conn_drop(conn->ep);
		return;
	}
	do {
		rc = take_step(conn);
		if (rc == 0 && !conn->dead && xpi_negotiate_late(conn))
			rc = xpi_negotiate_failed(conn, xpi_conn_timeout(conn));
	} while (rc == 1 && !conn->dead);
	if (rc == 0 && !conn->dead && xpi_now_ms() >= conn->deadline_ms)
		rc = xpi_conn_timeout(conn);
	/* What is asked again at every poll costs no system call. */
	if (rc == 0 && !conn->dead && (conn->rang || conn->step != asked || !asks(conn)))
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
	return asks(conn) || atomic_load(&conn->watch.rang) || (conn->ep != NULL && conn->ep->end.broken);
}

bool xpi_conn_walk(struct xport *x)
{
	bool soon = false;

	xpi_assert_locked(x);
	xpi_list_for_safe(pos, &x->cm.conns) {
		struct xpi_conn *conn = xpi_container(pos, struct xpi_conn, link);

		if (!conn->dead && is_due(conn))
			handshake_step(conn);
		if (conn->dead)
			xpi_conn_free(conn);
		else if (conn->step == XPI_CONN_NATIVE || conn->step == XPI_CONN_LEAVING)
			soon = soon || xpi_now_ms() - conn->native_ms < NATIVE_BUSY_MS;
	}
	return soon;
}

void xpi_conn_names(struct xpi_conn *conn)
{
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof(sa);

	if (getsockname(conn->fd, (struct sockaddr *)&sa, &len) == 0)
		xpi_addr_format((struct sockaddr *)&sa, conn->ep->local, sizeof(conn->ep->local));
	len = sizeof(sa);
	if (getpeername(conn->fd, (struct sockaddr *)&sa, &len) == 0)
		xpi_addr_format((struct sockaddr *)&sa, conn->ep->peer.name, sizeof(conn->ep->peer.name));
}
