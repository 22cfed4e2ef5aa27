/* SPDX-License-Identifier: BSD-3-Clause */
/* cma_window.c - the outbox: memory that peers of this host may read, see protocol/cma.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "core/object/cma_window.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/shm.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/op.h"

struct xpi_outbox *xpi_outbox_new(struct xport *x)
{
	struct xpi_outbox *box = calloc(1, sizeof(*box));

	if (box == NULL)
		return NULL;
	if (xpi_shm_alloc(&box->shm, CMA_OFFERS * sizeof(struct offer), NULL) != XPORT_OK) {
		free(box);
		return NULL;
	}
	box->offers = box->shm.base;
	for (unsigned i = 0; i < CMA_OFFERS; i++) {
		memcpy(box->offers[i].name, box->shm.name, sizeof(box->shm.name));
		box->offers[i].self = (uintptr_t)&box->offers[i];
	}
	while (box->nfree < CMA_OFFERS - 1) {
		box->free[box->nfree] = (uint16_t)(CMA_OFFERS - 1 - box->nfree);
		box->nfree++;
	}
	x->outbox = box;
	return box;
}

void xpi_cma_close(struct xport *x)
{
	if (x->outbox == NULL)
		return;
	xpi_shm_free(&x->outbox->shm);
	free(x->outbox);
	x->outbox = NULL;
}

void xpi_cma_key(const struct xport *x, uint8_t key[XPI_SHM_KEY])
{
	xpi_shm_pack(&x->outbox->shm, false, key);
}

/* Whether the kernel reads it for others: a device's memory, for one, it does not.  Looks at the first byte and the last; nobody
 * else can say so in time. */
static bool readable(const struct xport *x, uint8_t *buf, uint64_t len)
{
	uint8_t edges[2];
	const struct iovec to = {edges, 2}, from[2] = {{buf, 1}, {buf + len - 1, 1}};

	return process_vm_readv(x->pid, &to, 1, from, 2, 0) == 2;
}

bool xpi_outbox_put(struct xport_ep *ep, struct xpi_op *op, uint8_t *from, uint64_t at, uint64_t len)
{
	struct xpi_outbox *box = ep->x->outbox;
	struct offer *o;

	if (box->nfree == 0 || !readable(ep->x, from, len))
		return false;
	op->offer = box->free[--box->nfree];
	o = &box->offers[op->offer];
	o->data = (uintptr_t)from - at; /* records count from the first byte of the operation */
	o->length = at + len;
	o->ep = ep->peer.id;
	o->session = ep->peer.session;
	__atomic_store_n(&o->turn, ++box->turn, __ATOMIC_RELEASE);
	if (ep->cma.offers++ == 0)
		ep->cma.bytes = 0;
	return true;
}

void xpi_cma_withdraw(struct xpi_op *op)
{
	struct xpi_outbox *box = op->ep->x->outbox;

	if (op->offer == XPI_OFFER_NEVER) {
		op->offer = 0;
		return;
	}
	/* Before whatever the application writes there next. */
	__atomic_store_n(&box->offers[op->offer].turn, 0, __ATOMIC_SEQ_CST);
	atomic_thread_fence(memory_order_seq_cst);
	box->free[box->nfree++] = (uint16_t)op->offer;
	op->ep->cma.offers--;
	op->offer = 0;
}
