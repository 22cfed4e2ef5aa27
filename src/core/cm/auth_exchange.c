/* SPDX-License-Identifier: BSD-3-Clause */
/* auth_exchange.c - the steps of a handshake before the HELLO, where there is a key: START and PROOF each way; see auth.h. */
#include <string.h>

#include "base/error.h"
#include "core/auth/auth.h"
#include "core/cm/handshake.h"
#include "core/wire/hello.h"

/* Both sides read these sentences, so they name no side but by what it has. */
static const char other_key[] = "the two sides have different keys (XPORT_AUTH_KEY_FILE)";
static const char one_key[] = "one side has a key (XPORT_AUTH_KEY_FILE) and the other has none";

static int auth_refuse(struct xpi_conn *conn, const char *text)
{
	conn->tell = conn->listener != NULL;
	return xpi_fail(&conn->x->err, XPORT_ERR_AUTH, 0, NULL, xpi_auth_hint, "%s", text);
}

static int no_word(struct xpi_conn *conn)
{
	return xpi_fail(&conn->x->err, XPORT_ERR_PROTOCOL, 0, NULL, "check that it is a listener of this library",
	                "%s does not speak this protocol", conn->remote);
}

static void auth_log(struct xpi_conn *conn, size_t len)
{
	conn->word_len = len;
	conn->word_done = 0;
}

static int begin_session(struct xpi_conn *conn)
{
	conn->session = xpi_session_new(conn->listener == NULL);
	if (conn->session == NULL)
		return xpi_fail(&conn->x->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for a handshake");
	return XPORT_OK;
}

static void say_start(struct xpi_conn *conn)
{
	memcpy(conn->word, xpi_session_start(conn->session), XPI_START_LEN);
	auth_log(conn, XPI_START_LEN);
}

static void say_proof(struct xpi_conn *conn)
{
	xpi_session_prove(conn->session, conn->word);
	auth_log(conn, XPI_PROOF_LEN);
}

int xpi_auth_exchange_begin(struct xpi_conn *conn)
{
	int rc = begin_session(conn);

	if (rc != XPORT_OK)
		return rc;
	say_start(conn);
	conn->step = XPI_CONN_START;
	return 1;
}

/* A HELLO in place of a START is of one who has no key.  It is read whole, so that closing does not destroy the answer. */
static int no_start(struct xpi_conn *conn)
{
	size_t length = xpi_hello_length(conn->in);
	int rc;

	if (length == 0 || conn->listener == NULL)
		return no_word(conn);
	rc = xpi_conn_fill(conn, length);
	return rc == 1 ? auth_refuse(conn, one_key) : rc;
}

/* The server answers a START by its own, the client by its PROOF. */
static int step_start(struct xpi_conn *conn)
{
	int rc = xpi_conn_fill(conn, 8);

	if (rc != 1)
		return rc;
	rc = conn->session == NULL ? begin_session(conn) : XPORT_OK;
	if (rc != XPORT_OK)
		return rc;
	if (!xpi_session_is_start(conn->session, conn->in))
		return no_start(conn);
	rc = xpi_conn_fill(conn, XPI_START_LEN);
	if (rc != 1)
		return rc;
	xpi_session_derive(conn->session, conn->x->settings.secret, conn->in);
	conn->in_len = 0;
	if (conn->listener != NULL)
		say_start(conn);
	else
		say_proof(conn);
	conn->step = XPI_CONN_PROOF;
	return 1;
}

/* The client has proved first, and hears the server's proof; neither has said anything else so far. */
static int step_proof(struct xpi_conn *conn)
{
	int rc = xpi_conn_fill(conn, XPI_PROOF_LEN);

	if (rc != 1)
		return rc;
	if (!xpi_session_proven(conn->session, conn->in))
		return auth_refuse(conn, other_key);
	conn->in_len = 0;
	if (conn->listener != NULL)
		say_proof(conn);
	conn->step = XPI_CONN_HELLO;
	return 1;
}

int xpi_auth_exchange_step(struct xpi_conn *conn)
{
	int rc = xpi_conn_fill(conn, 1);

	if (rc != 1)
		return rc;
	if (conn->listener == NULL && conn->in[0] == 'F')
		return xpi_conn_read_failed(conn);
	return conn->step == XPI_CONN_START ? step_start(conn) : step_proof(conn);
}

bool xpi_auth_exchange_meant(const struct xpi_conn *conn)
{
	static const uint8_t start[] = {'X', 'P', 'K', 'Y'};

	return conn->session == NULL && conn->listener != NULL && memcmp(conn->in, start, sizeof(start)) == 0;
}

int xpi_auth_exchange_refuse(struct xpi_conn *conn)
{
	int rc = xpi_conn_fill(conn, XPI_START_LEN);

	return rc == 1 ? auth_refuse(conn, one_key) : rc;
}
