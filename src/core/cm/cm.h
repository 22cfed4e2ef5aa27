/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cm.h - listeners and handshakes: from "host:port" to an endpoint that is OPEN at both ends.
 *
 *   client                              server
 *   (START -->  <-- START  PROOF -->  <-- PROOF, where there is a key: auth.h; then all below is sealed)
 *   HELLO (with its native address) -->
 *                                   <-- HELLO (with its own, and the verdict on the client)
 *   both: back end's ep_connect with the peer's address, repeated until it is done
 *   READY -->                       <-- READY      (one byte, 'R', each way)
 *   with several transports more words pass before that: negotiate.h
 *   OPEN once the peer's READY came and the own was sent
 *
 * A side whose own step fails after its HELLO sends 'F', a status (32 bits big-endian), a 16-bit length and a sentence,
 * then closes; the other reports it.  A server that finds a key on one side only, or two
 * different keys, answers by an 'F', too, and sends nothing more.  Nothing here blocks; sockets are watched by the helper thread, which rings the
 * instance's wake flag; xpi_conn_progress then takes the steps.
 */
#ifndef XPI_CORE_CM_CM_H
#define XPI_CORE_CM_CM_H

#include "core/object/instance.h"

struct xport_ep;

/* Handshakes in progress whose peer has sent something, for each instance; and how long each may take on the server's side. */
enum { XPI_HALF_OPEN_MAX = 128, XPI_HALF_OPEN_MS = 5000, XPI_CONNECT_MS = 30000 };

int xpi_listener_open(struct xport *x, const char *address, const struct xport_conn_attr *attr,
                      struct xport_listener **listener);
/* xpi_listener_set_private - the body of xport_listener_set_private_data. */
int xpi_listener_set_private(struct xport_listener *listener, const void *data, size_t len);
int xpi_listener_name(const struct xport_listener *listener, char *buf, size_t len);

void xpi_listener_close(struct xport_listener *listener);
struct xport *xpi_listener_instance(const struct xport_listener *listener);

/* Any one of the instance's, or NULL. */
struct xport_listener *xpi_listener_first(struct xport *x);

/* struct xpi_core_ops.same_user */
int xpi_conn_same_user(struct xpi_core *core, struct xpi_core_ep *ep);

/* Gives up the handshake of an endpoint that is being failed (ep->conn becomes NULL). */
void xpi_conn_drop(struct xport_ep *ep);

#endif
