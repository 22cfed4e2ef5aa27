/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * match_peer.h - receives that wait for a peer, over whatever endpoint its messages come (XPORT_PEER).
 *
 * A peer is an incarnation. It is kept while receives wait for it or, once they did, while an endpoint to it is connected.
 * It is gone when no endpoint to it is connected, and either its process on this host has ended or another instance was
 * found at its address.
 */
#ifndef XPI_CORE_OBJECT_MATCH_PEER_H
#define XPI_CORE_OBJECT_MATCH_PEER_H

#include "core/object/instance.h"

struct xpi_peers {
	struct xpi_list all, doubt; /* doubt: those that may be gone */
};

void xpi_peers_init(struct xpi_peers *peers);
/* xpi_peers_close - forget all, when the instance ends. `close` gets each list of receives before. */
void xpi_peers_close(struct xpi_peers *peers, void (*close)(const struct xpi_list *receives));
/* xpi_peers_post - add a receive for the peer of this open endpoint; op->ep is NULL. Returns false if out of memory. */
bool xpi_peers_post(struct xpi_peers *peers, struct xpi_op *op, const struct xport_ep *ep);
/* xpi_peers_first - the oldest receive for a message of this endpoint; it stays posted. Returns NULL without one. */
struct xpi_op *xpi_peers_first(const struct xport_ep *ep, uint64_t tag);
/* xpi_peers_remove - forget a receive whose `link` was removed; op->peer is set. */
void xpi_peers_remove(struct xpi_op *op);
/* xpi_peers_left - a connected endpoint ends. If receives wait for its peer, learn when the peer's process ends. */
void xpi_peers_left(struct xpi_peers *peers, struct xport_ep *ep);
/* xpi_peers_reached - an endpoint was connected. Another instance that was reached at its address before was replaced. */
void xpi_peers_reached(struct xpi_peers *peers, struct xport_ep *ep);
/* xpi_peers_gone - a posted receive for a peer that is gone, or NULL. */
struct xpi_op *xpi_peers_gone(struct xpi_peers *peers);

#endif
