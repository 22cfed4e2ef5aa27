/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * admit.c - which connections of strangers are kept while their handshake is not complete.
 *
 * A client speaks first, with and without a key, so that a connection that has said nothing is judged apart: it takes
 * no place from those that have.  When a place is needed the oldest goes.
 */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "core/cm/cm.h"
#include "core/cm/handshake.h"
#include "core/object/accept_queue.h"
#include "core/object/instance.h"

enum {
	SILENT_MAX = 1024, /* connections that have said nothing */
	/* One that began to speak and has not gone on for so long makes room for another. */
	STALLED_MS = 250,
	/* From so many of the places on, an address makes room for its own connections. */
	ADDRESS_SHARE = XPI_HALF_OPEN_MAX * 3 / 4
};

static bool is_silent(const struct xpi_conn *conn)
{
	return conn->step <= XPI_CONN_HELLO && conn->session == NULL && conn->in_len == 0 &&
	       !atomic_load(&conn->watch.rang);
}

/* A peer that has proved the key does not make room for those that have not. */
static bool is_stalled(const struct xpi_conn *conn)
{
	return conn->step <= XPI_CONN_HELLO && !xpi_auth_exchange_done(conn) && !atomic_load(&conn->watch.rang) &&
	       xpi_now_ms() - conn->began_ms >= STALLED_MS;
}

static bool admit_same_address(const struct xpi_conn *a, const struct xpi_conn *b)
{
	size_t n = (size_t)(strrchr(a->remote, ':') - a->remote) + 1;

	return strncmp(a->remote, b->remote, n) == 0;
}

struct census {
	int silent, spoken;
	struct xpi_conn *oldest_silent, *oldest_stalled;
};

/* Counts the handshakes of all listeners; with `like`, those of its address alone. */
static struct census admit_count(struct xport *x, const struct xpi_conn *like)
{
	struct census c = {0};

	xpi_list_for(pos, &x->cm.conns) {
		struct xpi_conn *conn = xpi_container(pos, struct xpi_conn, link);

		if (conn->listener == NULL || conn->dead || conn == like ||
		    (like != NULL && !admit_same_address(like, conn)))
			continue;
		if (is_silent(conn)) {
			c.silent++;
			c.oldest_silent = c.oldest_silent != NULL ? c.oldest_silent : conn;
			continue;
		}
		c.spoken++;
		if (c.oldest_stalled == NULL && is_stalled(conn))
			c.oldest_stalled = conn;
	}
	return c;
}

static bool give_up(struct xpi_conn *conn)
{
	if (conn == NULL)
		return false;
	if (is_silent(conn))
		conn->listener->silent++;
	else
		xpi_listener_log(conn->listener, conn->remote, "it did not go on, and its place is needed");
	xpi_conn_discard(conn);
	return true;
}

bool xpi_admit_drop_silent(struct xport *x)
{
	return give_up(admit_count(x, NULL).oldest_silent);
}

bool xpi_admit_room(struct xport *x)
{
	struct census c = admit_count(x, NULL);

	if (c.silent >= SILENT_MAX)
		give_up(c.oldest_silent);
	return c.spoken < XPI_HALF_OPEN_MAX || give_up(c.oldest_stalled);
}

/* Whether more than three quarters of the descriptors are in use: the lowest free one is always taken. */
static bool few_descriptors(int fd)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) == 0 && (rlim_t)fd >= limit.rlim_cur / 4 * 3;
}

void xpi_admit(struct xpi_conn *conn)
{
	struct census c;

	if (few_descriptors(conn->fd))
		xpi_admit_drop_silent(conn->x);
	c = admit_count(conn->x, conn);
	if (c.spoken >= ADDRESS_SHARE)
		give_up(c.oldest_stalled);
}
