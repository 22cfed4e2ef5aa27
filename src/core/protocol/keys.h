/* SPDX-License-Identifier: BSD-3-Clause */
/* keys.h - exchange and revocation of native keys. The caller holds the lock in all functions. */
#ifndef XPI_CORE_PROTOCOL_KEYS_H
#define XPI_CORE_PROTOCOL_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/object/mr.h"
#include "core/object/rkey.h"

/* xpi_mr_claim - record that the peer of the endpoint wants to use the native key of a region. False: it cannot. */
bool xpi_mr_claim(struct xport_ep *ep, uint64_t region);
/*
 * xpi_mr_lend - let the peer put received messages into the region.
 *
 * Queues the native key for the peer, before everything that is queued after this call. False: the peer cannot use it.
 */
bool xpi_mr_lend(struct xport_ep *ep, struct xport_mr *mr);
/* xpi_mr_revoke_all - ask all peers that may use the native key to stop. mr->revoking counts the missing answers. */
void xpi_mr_revoke_all(struct xport_mr *mr);
/* xpi_key_revoke - the body of xport_rkey_revoke. */
int xpi_key_revoke(struct xport *x, const void *buf, size_t len);
/* xpi_mr_revoked - record that the peer has stopped using the native key. */
void xpi_mr_revoked(struct xport_ep *ep, uint64_t region);
/* xpi_mr_peer_gone - drop all claims of an endpoint that has ended. Its peer does not answer any more. */
void xpi_mr_peer_gone(struct xport_ep *ep);

/* xpi_rkey_unpack - the body of xport_rkey_unpack. */
int xpi_rkey_unpack(struct xport_ep *ep, const void *buf, size_t len, struct xport_rkey **rkey);

/* xpi_rkey_adopt - start using the native key of a region, if its owner has granted one. */
void xpi_rkey_adopt(struct xport_ep *ep, uint64_t region);
/* xpi_rkey_revoke - mark the keys of a region that its owner revokes. True: no native operation uses them any more. */
bool xpi_rkey_revoke(struct xport_ep *ep, uint64_t region);
/* xpi_rkey_lent - take the native key of a region into which the peer receives. False: the peer broke the protocol. */
bool xpi_rkey_lent(struct xport_ep *ep, uint64_t region, uint64_t length, const uint8_t *native, size_t len);

/*
 * xpi_mr_granted - write the native key that a GRANT to this peer carries.
 *
 * *len  in: XPI_NATIVE_KEY_MAX. Out: its length; 0: the peer has no claim, or there is no native key
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_AGAIN  not now
 */
int xpi_mr_granted(struct xport_ep *ep, uint64_t region, uint8_t *native, size_t *len);
/*
 * xpi_rkey_granted - take the native key of a region that its owner grants, or with no bytes, that it has none.
 *
 * Returns false if the peer broke the protocol.
 */
bool xpi_rkey_granted(struct xport_ep *ep, uint64_t region, const uint8_t *native, size_t len);

/* xpi_serve_key - handle a CLAIM, REVOKE or REVOKED record. */
void xpi_serve_key(struct xport_ep *ep, unsigned record, uint64_t region);

#endif
