/* SPDX-License-Identifier: BSD-3-Clause */
/* rkey.h - a remote key: a region of a peer, and how this process reaches it. */
#ifndef XPI_CORE_OBJECT_RKEY_H
#define XPI_CORE_OBJECT_RKEY_H

#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/wire/rkey_format.h"

enum xpi_route { XPI_ROUTE_AM, XPI_ROUTE_NATIVE, XPI_ROUTE_MAPPED };

struct xport_rkey {
	struct xport_ep *ep;
	uint64_t length;
	uint64_t region;
	uint64_t start;    /* of a part: where it begins in its region, for the native key */
	uint64_t base_low; /* of the region's address: whether an offset is aligned */
	uint8_t *direct;   /* where it is mapped here, for XPI_ROUTE_MAPPED */
	uint32_t rights;
	uint8_t put, get, atomic; /* enum xpi_route; atomics BY_NETWORK are the owner's adapter's alone */
	uint8_t *native_key;      /* memory for it, from the CLAIM until it is in use; or NULL */
	size_t native_len;        /* 0: the owner has not granted it yet */
	bool stale;   /* revoked by its owner, or its endpoint ended */
	bool inexact; /* a part, which the network may not check */
	bool native;  /* the back end knows it; be state follows */
	bool settled; /* nothing is to come any more of its owner about a native key */
	bool lent;    /* for the bodies of messages, by its owner: the application does not know of it */
	bool destroyed;
	uint32_t busy;        /* native operations that use it */
	struct xpi_list link; /* in ep->rkeys */
};

static inline void *xpi_rkey_be(const struct xport_rkey *k)
{
	return (char *)k + ((sizeof(*k) + 15) & ~(size_t)15);
}

/* xpi_rkey_fits - true if the key grants this access. */
static inline bool xpi_rkey_fits(const struct xport_rkey *k, const struct xport_ep *ep, uint64_t offset, uint64_t len,
                                 uint32_t right)
{
	return k->ep == ep && !k->stale && (k->rights & right) != 0 && len <= k->length && offset <= k->length - len;
}

/* xpi_rkey_new - allocate a key of this endpoint, zeroed and in no list. Returns NULL if out of memory. */
struct xport_rkey *xpi_rkey_new(struct xport_ep *ep);
/* xpi_rkey_free - unlink and free a key that no operation uses. */
void xpi_rkey_free(struct xport_rkey *k);
/* xpi_rkey_native_end - have the back end destroy the native key, if there is one. */
void xpi_rkey_native_end(struct xport_rkey *k);
/* xpi_rkey_find_lent - the key of this region that the peer granted for message bodies. NULL: not found. */
struct xport_rkey *xpi_rkey_find_lent(struct xport_ep *ep, uint64_t region);
/* xpi_rkey_destroy - the body of xport_rkey_destroy: frees the key when no operation uses it any more. */
void xpi_rkey_destroy(struct xport_rkey *k);
/* xpi_rkey_idle - count the end of a native operation that used the key. May free the key. */
void xpi_rkey_idle(struct xport_rkey *k);
/* xpi_rkey_in_flight - count the operations with this key that have not ended. Looks at all operations of the instance. */
uint64_t xpi_rkey_in_flight(const struct xport_rkey *k);
/*
 * xpi_rkey_borrow - the key of xpi_rkey_find_lent, held busy.
 *
 * Returns NULL if there is none, if it is revoked, or if it does not grant the access: the body then goes in frames.
 */
struct xport_rkey *xpi_rkey_borrow(struct xport_ep *ep, uint64_t region, uint64_t offset, uint64_t len);
/* xpi_rkey_orphan - disable all keys of an endpoint that is quiesced. */
void xpi_rkey_orphan(struct xport_ep *ep);

#endif
