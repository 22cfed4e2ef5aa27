/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * negotiate.h - agreeing on a transport within a handshake, and trying the next one.
 *
 *   client                                server
 *   HELLO with offers -->
 *                                         agrees, opens its transport
 *                                         <-- HELLO with offers: the chosen pair, limits, address
 *   opens its transport
 *   'T' with limits and address -->
 *   both connect natively, then READY each way, as in cm.h
 *
 * A client with a single transport sends its address with the HELLO, and no 'T'.
 *
 * If the transport does not connect, an attempt ends:
 *   - The client says 'N' with its reason.
 *   - The server answers that, or its own failure, by 'T' with the next pair. The client answers by 'T' or 'N' again.
 *   - Both stop the endpoint in the back end before they go on. If no pair is left, the server fails the handshake.
 *   - A side that has said READY does not end the attempt by itself: the peer may have the endpoint open.
 *   - Words carry the number of the attempt. One of an earlier attempt is ignored.
 */
#ifndef XPI_CORE_CM_NEGOTIATE_H
#define XPI_CORE_CM_NEGOTIATE_H

#include "core/cm/handshake.h"

/* xpi_offers_fill - write the transports of the instance into our HELLO; `forbidden` ones as not usable. */
void xpi_offers_fill(const struct xport *x, uint32_t forbidden, struct xpi_hello *h);

/*
 * xpi_negotiate_agree - server: compute what both sides have in common. The client's HELLO is in conn->peer.
 *
 * Returns XPORT_OK, or, with a sentence in `text`, the status by which the client is refused.
 */
int xpi_negotiate_agree(struct xpi_conn *conn, char *text, size_t len);

/*
 * xpi_negotiate_choose - server: open the transport of the next pair that can be opened.
 *
 * Returns NULL if none is left; x->err says why.
 */
struct xpi_transport *xpi_negotiate_choose(struct xpi_conn *conn);

/*
 * xpi_negotiate_other - server: no address could be had of the chosen transport, with `status`, before the HELLO was sent.
 *
 * Returns 1 if the endpoint goes over the next pair now, else the status by which the handshake fails.
 */
int xpi_negotiate_other(struct xpi_conn *conn, int status);

/* xpi_negotiate_chosen - client: the server's HELLO is in conn->peer. Goes on as a step does. */
int xpi_negotiate_chosen(struct xpi_conn *conn);

/* xpi_negotiate_word - read a word whose first byte is in conn->in, and act. 1: done, 0: not yet whole, else a status. */
int xpi_negotiate_word(struct xpi_conn *conn);

/*
 * xpi_negotiate_failed - the attempt failed here with `status`, described in x->err.
 *
 * Returns 1 if the next pair will be tried, else `status`: the handshake fails.
 */
int xpi_negotiate_failed(struct xpi_conn *conn, int status);

/* xpi_negotiate_late - true if the time of the attempt is over, and another one is left. */
bool xpi_negotiate_late(const struct xpi_conn *conn);

/* xpi_negotiate_leave - the step LEAVING: stop the endpoint in its back end, and go on with the next attempt. */
int xpi_negotiate_leave(struct xpi_conn *conn);

/* xpi_negotiate_passed - the endpoint is connected: note why better transports are not used. */
void xpi_negotiate_passed(struct xpi_conn *conn);

#endif
