/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cma.h - long data between two processes of one host: instead of travelling in frames it stays where it lies, and the
 * receiver has the kernel copy it, once, to where it belongs (cross memory attach, process_vm_readv(2)).
 *
 * The sender offers the memory of an operation in its outbox, which the peer has mapped (base/shm.h), and sends, in place
 * of data, an XPI_REC_CMA for each piece, which the receiver has read when it acknowledges the frame.  The operation waits for
 * that; then, or when the endpoint ends, the offer is withdrawn before the application has the memory again.  The receiver
 * reads the offer in the same call before and behind the data: if it still stands there, the data was the operation's.  If not,
 * the endpoint ends; the bytes are where they were to be all the same, as with any operation that ends in error.
 *
 * So a peer can name an offer, but no address: what is read is what its process offers to this very endpoint, nobody
 * else's memory.  And it is only read from a process of the same user, as another's memory may be such that reading it
 * never ends (userfaultfd, FUSE).  It is asked for with the first long operation; until the peer has said that it can, and
 * where it cannot, data goes in frames.  Once it could, it has to go on: who takes away the right to read later (setuid(2),
 * prctl(PR_SET_DUMPABLE)) loses the endpoint, and is to set XPORT_EMULATE=cma.
 */
#ifndef XPI_CORE_CMA_H
#define XPI_CORE_CMA_H

#include "base/shm.h"
#include "core/ep.h"
#include "core/instance.h"
#include "core/op.h"
#include "core/wire.h"

/* Offers it; the first time asks the peer. */
int xpi_cma_offer(struct xport_ep *ep, struct xpi_op *op, uint64_t len);

/* Whether the rest of the operation's data, of `len` bytes at op->buf in all, travels so: XPORT_OK.  NOT_SUPPORTED: it goes in
 * frames.  BUSY: that shows when the peer has read what it was told; the endpoint's work goes on by itself. */
static inline int xpi_cma_may(struct xport_ep *ep, struct xpi_op *op, uint64_t len)
{
	size_t min = ep->x->caps.cma_min;

	if (op->offer != 0)
		return XPORT_OK;
	return min != 0 && len - op->done >= min ? xpi_cma_offer(ep, op, len) : XPORT_ERR_NOT_SUPPORTED;
}

/* Hands over what follows op->done, up to `len`: records like `rec`, whose place and length are filled in.  XPORT_OK: all,
 * and op->seq is the frame whose acknowledgement the operation waits for.  AGAIN, BUSY: not all yet. */
int xpi_cma_step(struct xport_ep *ep, struct xpi_op *op, struct xpi_rec_cma *rec, uint64_t len);

/* The operation's memory is to be the application's again. */
void xpi_cma_withdraw(struct xpi_op *op);

/* Reads what a record names.  False: the peer broke the protocol; or it cannot be read, and the endpoint is ending, or deaf. */
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
