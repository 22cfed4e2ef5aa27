/* SPDX-License-Identifier: BSD-3-Clause */
/* rkey.h - a peer's region as seen from here, and how it is reached. */
#ifndef XPI_CORE_RKEY_H
#define XPI_CORE_RKEY_H

#include "core/ep.h"
#include "core/instance.h"

enum xpi_path { XPI_BY_MESSAGE, XPI_BY_NETWORK, XPI_BY_COPY };

struct xport_rkey {
	struct xport_ep *ep;
	uint64_t length;
	uint64_t region;
	uint64_t base_low;   /* of the region's address: whether an offset is aligned */
	uint8_t *direct;     /* where it is mapped here, for XPI_BY_COPY */
	uint32_t rights;
	uint8_t put, get, atomic; /* enum xpi_path; atomics BY_NETWORK are the owner's adapter's alone */
	uint8_t *native_key; /* until the owner granted it */
	size_t native_len;
	bool stale;          /* revoked by its owner, or its endpoint ended */
	bool native;         /* the back end knows it; be state follows */
	bool settled;        /* nothing is to come any more of its owner about a native key */
	bool lent;           /* for the bodies of messages, by its owner: the application does not know of it */
	bool destroyed;
	uint32_t busy;       /* native operations that use it */
	struct xpi_list link; /* in ep->rkeys */
};

static inline void *xpi_rkey_be(const struct xport_rkey *k)
{
	return (char *)k + ((sizeof(*k) + 15) & ~(size_t)15);
}

/* Whether an access lies within what the key grants. */
static inline bool xpi_rkey_fits(const struct xport_rkey *k, const struct xport_ep *ep, uint64_t offset, uint64_t len,
                                 uint32_t right)
{
	return k->ep == ep && !k->stale && (k->rights & right) != 0 && len <= k->length && offset <= k->length - len;
}

int xpi_rkey_unpack(struct xport_ep *ep, const void *buf, size_t len, struct xport_rkey **rkey);
void xpi_rkey_destroy(struct xport_rkey *k);
/* One native operation less uses it. */
void xpi_rkey_idle(struct xport_rkey *k);
/* The owner granted the use of the region's native key. */
void xpi_rkey_adopt(struct xport_ep *ep, uint64_t region);
/* The owner revoked the region: marks its keys.  Returns true when no native operation uses them any more. */
bool xpi_rkey_revoke(struct xport_ep *ep, uint64_t region);
/* The owner told the native key of a region that it receives into.  False: it broke the protocol. */
bool xpi_rkey_lent(struct xport_ep *ep, uint64_t region, uint64_t length, const uint8_t *native, size_t len);
/* That key, if it is not revoked and goes on so far, held busy; else NULL: the body goes in frames. */
struct xport_rkey *xpi_rkey_borrow(struct xport_ep *ep, uint64_t region, uint64_t offset, uint64_t len);
/* The endpoint is quiesced: nothing is reached through its keys any more. */
void xpi_rkey_orphan(struct xport_ep *ep);

/* In the rights of a packed key, beside enum xport_rights. */
#define XPI_KEY_BY_ADAPTER (UINT32_C(1) << 31)

/* The decoded form of a packed key. */
struct xpi_key {
	uint64_t incarnation, region, base, length;
	uint32_t rights;
	char backend[16];
	const uint8_t *native;
	size_t native_len;
};

/* Returns bytes written, 0: no room. */
size_t xpi_key_encode(const struct xpi_key *k, void *buf, size_t len);
/* False: damaged or not a key.  k->native points into buf. */
bool xpi_key_decode(const void *buf, size_t len, struct xpi_key *k);

#endif
