/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cma.h - long data between two processes of one host (cross memory attach, process_vm_readv(2)).
 *
 * Long data does not travel in frames. The receiver has the kernel copy it once, from the sender's memory to its
 * destination.
 *
 * Sender:
 *   - It offers the memory of an operation in its outbox, which the peer has mapped (base/shm.h).
 *   - For each piece it sends an XPI_REC_CMA in place of the data. When the receiver acknowledges the frame, it has
 *     read the piece.
 *   - The operation waits for that. Then, or when the endpoint ends, the offer is withdrawn. Only after that does the
 *     application get the memory back.
 * Receiver:
 *   - One call reads the offer, the data, and the offer again. If the offer is the same both times, the data was the
 *     operation's.
 *   - If not, the endpoint ends. The bytes may have been written to their destination, as with any operation that
 *     fails.
 *
 * Security:
 *   - A peer can name an offer, but not an address. Only memory that its process offers to this endpoint is read.
 *   - Memory is read only from a process of the same user. Reading another user's memory might never return
 *     (userfaultfd, FUSE).
 *
 * The first long operation asks the peer whether it can read, and waits for the answer: one round trip. If the peer cannot
 * read, long data goes in frames. After it has agreed, it must stay able to read. A process that gives up that right later (setuid(2),
 * prctl(PR_SET_DUMPABLE)) loses the endpoint; it should set XPORT_EMULATE=cma.
 */
#ifndef XPI_CORE_PROTOCOL_CMA_H
#define XPI_CORE_PROTOCOL_CMA_H

#include <sys/uio.h>

#include "base/shm.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/op.h"
#include "core/wire/frame.h"

/*
 * xpi_cma_offer - offer an operation's memory to the peer. The first call asks the peer whether it can read.
 *
 * Returns as xpi_cma_may.
 */
int xpi_cma_offer(struct xport_ep *ep, struct xpi_op *op, uint64_t len);
/* xpi_cma_offer_at - the same for bytes `at` and following of an operation, which are at `from`. */
int xpi_cma_offer_at(struct xport_ep *ep, struct xpi_op *op, uint8_t *from, uint64_t at, uint64_t len);

/*
 * xpi_cma_may - decide whether the rest of an operation's data is read by the peer.
 *
 * len  all of the data, at op->buf
 *
 * Returns XPORT_OK, also if op->offer is XPI_OFFER_NEVER: the caller then copies the data into frames. Or
 *   XPORT_ERR_NOT_SUPPORTED  the data goes in frames
 *   XPORT_ERR_BUSY           undecided until the peer has answered, or has read its round; the endpoint's work then
 *                            continues by itself
 */
static inline int xpi_cma_may(struct xport_ep *ep, struct xpi_op *op, uint64_t len)
{
	size_t min = ep->tp->caps.cma_min;

	if (op->offer != 0)
		return XPORT_OK;
	return min != 0 && len - op->done >= min ? xpi_cma_offer(ep, op, len) : XPORT_ERR_NOT_SUPPORTED;
}

/*
 * xpi_cma_step - send the records for the data from op->done to `len`.
 *
 * rec  the template of each record; its place and length are filled in
 *
 * Returns XPORT_OK if all are sent; op->seq is then the frame whose acknowledgement the operation waits for. Or
 *   XPORT_ERR_AGAIN, XPORT_ERR_BUSY  not all are sent yet
 */
int xpi_cma_step(struct xport_ep *ep, struct xpi_op *op, struct xpi_rec_cma *rec, uint64_t len);

/*
 * xpi_cma_read - read the data that a record names.
 *
 * Returns false if the peer broke the protocol. Also false if the data cannot be read; the endpoint is then ending, or
 * rx.discard is set.
 */
bool xpi_cma_read(struct xport_ep *ep, const struct xpi_rec_cma *rec, void *to);
/* xpi_cma_read_list - the same, to `nto` places, at most XPI_IOV_MAX, that have the record's length together. */
bool xpi_cma_read_list(struct xport_ep *ep, const struct xpi_rec_cma *rec, const struct iovec *to, unsigned nto);

/* xpi_cma_asked - answer the peer, which sends the key of its outbox. False: it broke the protocol. */
bool xpi_cma_asked(struct xport_ep *ep, const uint8_t *key, uint32_t len);
/* xpi_cma_answered - take the peer's answer to our question. False: it broke the protocol. */
bool xpi_cma_answered(struct xport_ep *ep, bool may);

/* xpi_cma_forget - unmap the peer's outbox when the endpoint ends. */
void xpi_cma_forget(struct xport_ep *ep);

#endif
