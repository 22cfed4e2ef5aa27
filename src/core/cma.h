/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cma.h - long data between two processes of one host: instead of travelling in frames it stays where it lies, and the
 * receiver has the kernel copy it, once, to where it belongs (cross memory attach, process_vm_readv(2)).
 *
 * The sender offers the memory of an operation in its outbox, which the peer has mapped (base/shm.h), and sends, in place
 * of each frame's worth of data, an XPI_REC_CMA, which the receiver has read when it acknowledges the frame.  The operation
 * waits for that; then, or when the endpoint ends, the offer is withdrawn before the application has the memory again.
 * The receiver reads the offer in the same call behind the data: if it still stands there, the data was the operation's.
 *
 * So a peer can name an offer, but no address: what is read is what its process offers to this very endpoint, nobody
 * else's memory.  And it is only read from a process of the same user, as another's memory may be such that reading it
 * never ends (userfaultfd, FUSE).  It is asked for with the first long operation; until the peer has said that it can, and
 * where it cannot, data goes in frames.
 */
#ifndef XPI_CORE_CMA_H
#define XPI_CORE_CMA_H

#include "base/shm.h"
#include "core/ep.h"
#include "core/op.h"
#include "core/wire.h"

enum { XPI_CMA_MIN = 16 << 10 }; /* below that frames are as fast */

/* Offers it; the first time asks the peer.  False: it goes in frames. */
bool xpi_cma_offer(struct xport_ep *ep, struct xpi_op *op, uint64_t len);

/* Whether the rest of the operation's data, of `len` bytes at op->buf in all, travels so. */
static inline bool xpi_cma_may(struct xport_ep *ep, struct xpi_op *op, uint64_t len)
{
	return op->offer != 0 || (len - op->done >= XPI_CMA_MIN && xpi_cma_offer(ep, op, len));
}

/* Hands over what follows op->done, up to `len`: records like `rec`, whose place and length are filled in.  XPORT_OK: all,
 * and op->seq is the frame whose acknowledgement the operation waits for.  XPORT_ERR_AGAIN: not all yet. */
int xpi_cma_step(struct xport_ep *ep, struct xpi_op *op, struct xpi_rec_cma *rec, uint64_t len);

/* The operation's memory is to be the application's again. */
void xpi_cma_withdraw(struct xpi_op *op);

/* Reads what a record names.  False: it cannot be read any more, and the endpoint has been ended. */
bool xpi_cma_read(struct xport_ep *ep, const struct xpi_rec_cma *rec, void *to);

/* What tells a peer where our outbox is, once it has been asked. */
void xpi_cma_key(const struct xport *x, uint8_t key[XPI_SHM_KEY]);

/* The peer tells where its outbox is: answered.  And its answer to ours.  False: it broke the protocol. */
bool xpi_cma_asked(struct xport_ep *ep, const uint8_t *key, uint32_t len);
bool xpi_cma_answered(struct xport_ep *ep, bool may);

/* The endpoint ends, the instance ends. */
void xpi_cma_forget(struct xport_ep *ep);
void xpi_cma_close(struct xport *x);

#endif
