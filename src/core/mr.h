/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mr.h - registered local memory, and what peers may do with it.
 *
 * A region id is a table index and random bits; it is never reused by this instance.  What peers reach by message is
 * checked here at each access; what they reach by the network's or the host's own means is revoked by asking them.
 */
#ifndef XPI_CORE_MR_H
#define XPI_CORE_MR_H

#include "core/instance.h"

struct xport_mr {
	struct xport *x;
	uint8_t *base;
	uint64_t length;
	uint64_t id;
	uint32_t rights;
	bool allocated;         /* by xport_mr_alloc */
	bool mapped;            /* of that, by ourselves */
	bool native;            /* the back end knows it; its state follows */
	bool by_adapter;        /* its atomics are the adapter's alone */
	bool packed;            /* somebody may have its key */
	uint32_t busy;          /* the application's operations that use it */
	uint32_t serving;       /* replies to peers that read it */
	uint32_t posted;        /* receives into it that wait for a message */
	uint32_t revoking;      /* holders of the native key that have not answered yet */
	bool dying;
};

/* Packed keys are at most this long. */
enum { XPI_RKEY_FIXED = 96, XPI_RKEY_MAX = XPI_RKEY_FIXED + 1024 };

static inline void *xpi_mr_be(const struct xport_mr *mr)
{
	return (char *)mr + ((sizeof(*mr) + 15) & ~(size_t)15);
}

static inline void xpi_mr_idle(struct xport_mr *mr)
{
	mr->busy--;
}

int xpi_mr_new(struct xport *x, void *base, uint64_t length, uint32_t rights, bool alloc, struct xport_mr **mr);
int xpi_mr_dereg(struct xport_mr *mr);
/* At the end of the instance: no peers left to ask. */
void xpi_mr_drop(struct xport_mr *mr);
int xpi_mr_pack(const struct xport_mr *mr, void *buf, size_t *len);

/*
 * The target's check of an access by message: XPORT_OK and *at set, or STALE_KEY, ACCESS, BOUNDS.  Sets *mr (NULL with
 * STALE_KEY).
 */
int xpi_mr_check(struct xport *x, uint64_t id, uint64_t offset, uint64_t len, uint32_t right, struct xport_mr **mr,
                 uint8_t **at);

/* The peer of the endpoint wants to use the native key: remembered; false: it cannot. */
bool xpi_mr_claim(struct xport_ep *ep, uint64_t region);
/* Sees to it that the peer may put what is received into the region: it is told the native key before whatever is queued for it
 * after this.  False: it cannot. */
bool xpi_mr_lend(struct xport_ep *ep, struct xport_mr *mr);
/* It has stopped using it. */
void xpi_mr_revoked(struct xport_ep *ep, uint64_t region);
/* The endpoint ended: it will not answer any more. */
void xpi_mr_peer_gone(struct xport_ep *ep);

#endif
