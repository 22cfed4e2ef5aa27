/* SPDX-License-Identifier: BSD-3-Clause */
/* cma_window.h - the outbox of an instance: memory that peers on this host may read, see protocol/cma.h. */
#ifndef XPI_CORE_OBJECT_CMA_WINDOW_H
#define XPI_CORE_OBJECT_CMA_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/shm.h"
#include "core/object/ep.h"
#include "core/object/op.h"

/*
 * CMA_PIECE   bytes that a peer reads at a time
 * CMA_ROUND   about so many bytes a peer is asked to read before it acknowledges them: it has other peers to serve
 * CMA_OFFERS  entries of an outbox, with the introduction; operations that find no free entry go in frames
 */
enum { CMA_PIECE = 1 << 20, CMA_ROUND = 4 << 20, CMA_OFFERS = 4096 };

/* One entry of an outbox. The first entry is the introduction and offers nothing. */
struct offer {
	uint64_t name[2]; /* of the outbox: no other process has these here */
	uint64_t self;    /* where this is in its owner's memory */
	uint64_t turn;    /* which of all offers this is; 0: none */
	uint64_t data, length;
	uint64_t session; /* the reader's endpoint's, and */
	uint32_t ep;      /* its number: for no other */
	uint32_t zero;
};

struct xpi_outbox {
	struct xpi_shm shm;
	struct offer *offers;
	uint64_t turn;
	uint32_t nfree;
	uint16_t free[CMA_OFFERS];
};

/* xpi_cma_withdraw - end the offer of an operation, before the application gets the memory back. */
void xpi_cma_withdraw(struct xpi_op *op);

/* xpi_outbox_new - create x->outbox. Returns NULL if out of memory. */
struct xpi_outbox *xpi_outbox_new(struct xport *x);
/*
 * xpi_outbox_put - offer the `len` bytes at `from` to the peer: bytes `at` and following of an operation.
 *
 * Returns false if there is no free entry, or if the kernel cannot read the memory.
 */
bool xpi_outbox_put(struct xport_ep *ep, struct xpi_op *op, uint8_t *from, uint64_t at, uint64_t len);

/* xpi_cma_key - write the key with which a peer maps our outbox. */
void xpi_cma_key(const struct xport *x, uint8_t key[XPI_SHM_KEY]);

/* xpi_cma_close - free the outbox when the instance ends. */
void xpi_cma_close(struct xport *x);

#endif
