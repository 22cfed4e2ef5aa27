/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "core/cma.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/shm.h"
#include "core/opq.h"
#include "core/serve.h"
#include "core/tx.h"

/* A piece is read at a time; about a round a peer is told to read before it has said that it has, since it has others to look
 * after.  The introduction is one of the offers; what finds no place among them goes in frames. */
enum { CMA_PIECE = 1 << 20, CMA_ROUND = 4 << 20, CMA_OFFERS = 4096 };

/* xport_ep.cma: whether the peer reads our memory. */
enum { CMA_UNKNOWN, CMA_ASKED, CMA_MAY, CMA_NEVER };

/* One place of an outbox; the first is the introduction, which offers nothing. */
struct offer {
	uint64_t name[2]; /* of the outbox: no other process has these here */
	uint64_t self;    /* where this is in its owner's memory */
	uint64_t turn;    /* which of all offers this is; 0: none */
	uint64_t data, length;
	uint32_t ep, session; /* the reader's: for no other */
	uint64_t zero;
};

struct xpi_outbox {
	struct xpi_shm shm;
	struct offer *offers;
	uint64_t turn;
	uint32_t nfree;
	uint16_t free[CMA_OFFERS];
};

struct xpi_inbox {
	const struct offer *offers; /* NULL: we may not read */
	pid_t pid;
};

static bool wanted(const struct xport *x)
{
	return x->caps.cma_min != 0 && (x->settings.emulate & XPI_EMULATE_CMA) == 0;
}

/* ---- offering ---- */

static struct xpi_outbox *outbox_new(struct xport *x)
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

static void ask(struct xport_ep *ep)
{
	struct xpi_rec rec = {.type = XPI_REC_CMA_ASK, .len = htole32(XPI_SHM_KEY)};
	uint8_t key[XPI_SHM_KEY];
	struct xport *x = ep->x;

	if (!wanted(x)) {
		ep->cma = CMA_NEVER;
		return;
	}
	if (x->outbox == NULL && outbox_new(x) == NULL) {
		xpi_log(x->log, XPORT_LOG_INFO, "0016", "%s: long data goes in frames: no memory to offer it in",
		        ep->peer);
		ep->cma = CMA_NEVER;
		return;
	}
	xpi_cma_key(x, key);
	if (xpi_tx_record(ep, NULL, &rec, sizeof(rec), key, 0) >= 0)
		ep->cma = CMA_ASKED;
}

bool xpi_cma_answered(struct xport_ep *ep, bool may)
{
	if (ep->cma != CMA_ASKED)
		return false;
	ep->cma = may ? CMA_MAY : CMA_NEVER;
	xpi_log(ep->x->log, XPORT_LOG_INFO, "0017", "%s: long data to it %s", ep->peer,
	        may ? "is read out of our memory" : "goes in frames: it may not read our memory");
	return true;
}

/* Whether the kernel reads it for others: a device's memory, for one, it does not.  Looks at the first byte and the last; nobody
 * else can say so in time. */
static bool readable(const struct xport *x, uint8_t *buf, uint64_t len)
{
	uint8_t edges[2];
	const struct iovec to = {edges, 2}, from[2] = {{buf, 1}, {buf + len - 1, 1}};

	return process_vm_readv(x->pid, &to, 1, from, 2, 0) == 2;
}

/* The peer has been told enough, and has not read all of it: what else there is waits, and has its turn then. */
static bool round_is_over(struct xport_ep *ep)
{
	if (ep->cma_bytes < CMA_ROUND)
		return false;
	if (xpi_seq_reached(ep->tx_acked, ep->cma_seq)) {
		ep->cma_bytes = 0;
		return false;
	}
	ep->short_of_room = true;
	return true;
}

static bool put_out(struct xport_ep *ep, struct xpi_op *op, uint64_t len)
{
	struct xpi_outbox *box = ep->x->outbox;
	struct offer *o;

	if (box->nfree == 0 || !readable(ep->x, op->buf, len))
		return false;
	op->offer = box->free[--box->nfree];
	o = &box->offers[op->offer];
	o->data = (uintptr_t)op->buf;
	o->length = len;
	o->ep = ep->peer_id;
	o->session = ep->peer_session;
	__atomic_store_n(&o->turn, ++box->turn, __ATOMIC_RELEASE);
	if (ep->offers++ == 0)
		ep->cma_bytes = 0;
	return true;
}

void xpi_cma_withdraw(struct xpi_op *op)
{
	struct xpi_outbox *box = op->ep->x->outbox;

	/* Before whatever the application writes there next. */
	__atomic_store_n(&box->offers[op->offer].turn, 0, __ATOMIC_SEQ_CST);
	atomic_thread_fence(memory_order_seq_cst);
	box->free[box->nfree++] = (uint16_t)op->offer;
	op->ep->offers--;
	op->offer = 0;
}

int xpi_cma_offer(struct xport_ep *ep, struct xpi_op *op, uint64_t len)
{
	if (ep->cma == CMA_UNKNOWN)
		ask(ep);
	if (ep->cma != CMA_MAY)
		return XPORT_ERR_NOT_SUPPORTED;
	if (ep->offers > 0 && round_is_over(ep))
		return XPORT_ERR_BUSY;
	return put_out(ep, op, len) ? XPORT_OK : XPORT_ERR_NOT_SUPPORTED;
}

int xpi_cma_step(struct xport_ep *ep, struct xpi_op *op, struct xpi_rec_cma *rec, uint64_t len)
{
	rec->r.type = XPI_REC_CMA;
	rec->offer = htole32(op->offer);
	while (op->done < len) {
		uint64_t n = len - op->done < CMA_PIECE ? len - op->done : CMA_PIECE;
		bool last = n == len - op->done || ep->cma_bytes + n >= CMA_ROUND;

		if (round_is_over(ep))
			return XPORT_ERR_BUSY;
		rec->offset = htole64(op->offset + op->done);
		rec->at = htole64(op->done);
		rec->length = htole64(n);
		if (xpi_tx_record(ep, NULL, &rec->r, sizeof(*rec), NULL, last ? XPI_FRAME_ACK_NOW : 0) < 0)
			return XPORT_ERR_AGAIN;
		ep->cma_bytes += n;
		ep->cma_seq = xpi_tx_seq(ep);
		op->done += n;
	}
	op->waits = XPI_WAIT_ACK;
	op->seq = ep->cma_seq;
	return XPORT_OK;
}

/* ---- reading ---- */

/* Maps the peer's outbox, and reads its introduction the way that data will be read.  errno tells why not. */
static bool look_in(struct xpi_inbox *box, const uint8_t *key, int64_t pid)
{
	struct offer first;
	const struct offer *offers;
	struct iovec to = {&first, sizeof(first)}, from = {NULL, sizeof(first)};
	ssize_t n;
	int e;

	offers = xpi_shm_map_own(key, CMA_OFFERS * sizeof(struct offer), &box->pid);
	if (offers == NULL)
		return false;
	from.iov_base = (void *)(uintptr_t)offers->self;
	n = process_vm_readv(box->pid, &to, 1, &from, 1, 0);
	if (n == sizeof(first) && box->pid == pid && memcmp(&first, offers, sizeof(first)) == 0) {
		box->offers = offers;
		return true;
	}
	e = n < 0 ? errno : ESRCH;
	xpi_shm_unmap((void *)(uintptr_t)offers, CMA_OFFERS * sizeof(struct offer));
	errno = e;
	return false;
}

bool xpi_cma_asked(struct xport_ep *ep, const uint8_t *key, uint32_t len)
{
	struct xport *x = ep->x;
	bool may = false;

	if (len != XPI_SHM_KEY || ep->cma_asked)
		return false;
	ep->cma_asked = true;
	if (wanted(x))
		ep->inbox = calloc(1, sizeof(*ep->inbox));
	if (ep->inbox != NULL) {
		may = look_in(ep->inbox, key, ep->peer_pid);
		xpi_log(x->log, XPORT_LOG_INFO, "0018", "%s: long data of it %s%s", ep->peer,
		        may ? "is read out of its memory" : "comes in frames: its memory cannot be read: ",
		        may ? "" : strerror(errno));
	}
	xpi_tell_key(ep, XPI_OP_CMA_ANSWER, may);
	return true;
}

void xpi_cma_forget(struct xport_ep *ep)
{
	if (ep->inbox == NULL)
		return;
	if (ep->inbox->offers != NULL)
		xpi_shm_unmap((void *)(uintptr_t)ep->inbox->offers, CMA_OFFERS * sizeof(struct offer));
	free(ep->inbox);
	ep->inbox = NULL;
}

/*
 * The peer has withdrawn the offer, since its endpoint ended, or it is gone: which, the control channel has a moment to say.
 * What follows this record must not count, nor be acknowledged.
 */
static void lost(struct xport_ep *ep, int e)
{
	if (e == ENOMEM) {
		xpi_ep_fail(ep, XPORT_ERR_NO_MEMORY, XPORT_EVENT_LOST);
		return;
	}
	if (ep->native_why[0] == '\0')
		snprintf(ep->native_why, sizeof(ep->native_why), "its memory cannot be read any more: %s",
		         e != 0 ? strerror(e) : "what it offered is gone");
	ep->deaf = true;
	ep->session = ~ep->session; /* no frame of it finds its way any more */
	xpi_ep_broken(ep);
}

/* No peer that keeps to its rounds has us read so much in one poll. */
static bool too_much(struct xport_ep *ep, uint64_t n)
{
	if (ep->cma_epoch != ep->x->epoch) {
		ep->cma_epoch = ep->x->epoch;
		ep->cma_read = 0;
	}
	ep->cma_read += n;
	return ep->cma_read > CMA_ROUND + CMA_PIECE;
}

bool xpi_cma_read(struct xport_ep *ep, const struct xpi_rec_cma *rec, void *to)
{
	uint64_t at = le64toh(rec->at), n = le64toh(rec->length);
	uint32_t which = le32toh(rec->offer);
	struct offer was, before, behind;
	struct iovec here[3], there[3];
	ssize_t got, all;

	if (ep->inbox == NULL || ep->inbox->offers == NULL || which == 0 || which >= CMA_OFFERS || n > CMA_PIECE ||
	    too_much(ep, n))
		return false;
	memcpy(&was, &ep->inbox->offers[which], sizeof(was));
	if (was.turn == 0 || was.ep != ep->id || was.session != ep->session) {
		lost(ep, 0);
		return false;
	}
	if (at > was.length || n > was.length - at)
		return false;
	/* Before: if its owner is another process by now, that is most likely where the reading ends. */
	here[0] = (struct iovec){&before, sizeof(before)};
	here[1] = (struct iovec){to, n};
	here[2] = (struct iovec){&behind, sizeof(behind)};
	there[0] = there[2] = (struct iovec){(void *)(uintptr_t)was.self, sizeof(was)};
	there[1] = (struct iovec){(void *)(uintptr_t)(was.data + at), n};
	all = (ssize_t)(n + 2 * sizeof(was));
	got = process_vm_readv(ep->inbox->pid, here, 3, there, 3, 0);
	if (got == all && memcmp(&before, &was, sizeof(was)) == 0 && memcmp(&behind, &was, sizeof(was)) == 0)
		return true;
	lost(ep, got < 0 ? errno : got < all ? EFAULT : 0);
	return false;
}
