/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conn.h - listeners and handshakes: from "host:port" to an endpoint that is OPEN at both ends.
 *
 *   client                              server
 *   (START -->  <-- START  PROOF -->  <-- PROOF, where there is a key: auth.h; then all below is sealed)
 *   HELLO (with its native address) -->
 *                                   <-- HELLO (with its own, and the verdict on the client)
 *   both: back end's ep_connect with the peer's address, repeated until it is done
 *   READY -->                       <-- READY      (one byte, 'R', each way)
 *   OPEN once the peer's READY came and the own was sent
 *
 * A side whose own step fails after its HELLO sends 'F', a status (32 bits big-endian), a 16-bit length and a sentence,
 * then closes; the other reports it.  A server that finds that one side has the key and the other has not, or another
 * one, says so by an 'F', too, and says nothing else.  Nothing here blocks; sockets are watched by the helper thread, which rings the
 * instance's bell; xpi_conn_progress then takes the steps.
 */
#ifndef XPI_CORE_CONN_H
#define XPI_CORE_CONN_H

#include "core/instance.h"

struct xport_ep;

/* Connections half made, an instance; and how long each may take on the server's side. */
enum { XPI_HALF_OPEN_MAX = 64, XPI_HALF_OPEN_MS = 5000, XPI_CONNECT_MS = 30000 };

/* Told in the HELLO: unmatched message bytes that a peer may have sent, and its requests being answered at a time. */
enum { XPI_WINDOW = 1 << 20, XPI_REQUESTS = 256 };

int xpi_listener_open(struct xport *x, const char *address, const struct xport_conn_attr *attr,
                      struct xport_listener **listener);
int xpi_listener_name(const struct xport_listener *listener, char *buf, size_t len);
/* Caller holds the lock; progress is made while waiting. */
int xpi_listener_accept(struct xport_listener *listener, int timeout_ms, struct xport_ep **ep);
void xpi_listener_close(struct xport_listener *listener);
struct xport *xpi_listener_instance(const struct xport_listener *listener);
/* The endpoint is not to be accepted any more: its events came first, and the application gave it back. */
void xpi_listener_forget(struct xport_ep *ep);
/* Any one of the instance's, or NULL. */
struct xport_listener *xpi_listener_first(struct xport *x);

int xpi_connect(struct xport *x, const char *address, const struct xport_conn_attr *attr, int timeout_ms,
                struct xport_ep **ep);

/* Takes whatever steps are possible for all listeners and handshakes of the instance. */
void xpi_conn_progress(struct xport *x);

/* Gives up the handshake of an endpoint that is being failed (ep->conn becomes NULL). */
void xpi_conn_drop(struct xport_ep *ep);

#endif
