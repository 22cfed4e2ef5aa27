/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "core/protocol/cma.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/shm.h"
#include "core/config/settings.h"
#include "core/object/cma_window.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/op.h"
#include "core/protocol/reply_queue.h"
#include "core/protocol/tx.h"
#include "core/wire/frame.h"

/* xport_ep.cma: whether the peer reads our memory. */
enum { CMA_UNKNOWN, CMA_ASKED, CMA_MAY, CMA_NEVER };

struct xpi_inbox {
	const struct offer *offers; /* NULL: we may not read */
	pid_t pid;
};

static bool cma_wanted(const struct xport_ep *ep)
{
	return ep->tp->caps.cma_min != 0 && (ep->x->settings.emulate & XPI_EMULATE_CMA) == 0;
}

/* ---- offering ---- */

static void cma_ask(struct xport_ep *ep)
{
	struct xpi_rec rec = {.type = XPI_REC_CMA_ASK, .len = htole32(XPI_SHM_KEY)};
	uint8_t key[XPI_SHM_KEY];
	struct xport *x = ep->x;

	if (!cma_wanted(ep)) {
		ep->cma.state = CMA_NEVER;
		return;
	}
	if (x->outbox == NULL && xpi_outbox_new(x) == NULL) {
		xpi_log(x->log, XPORT_LOG_INFO, "0016", "%s: sends long data in frames: no memory for an offer",
		        ep->peer.name);
		ep->cma.state = CMA_NEVER;
		return;
	}
	xpi_cma_key(x, key);
	if (xpi_tx_record(ep, NULL, &rec, sizeof(rec), key, 0) >= 0)
		ep->cma.state = CMA_ASKED;
}

bool xpi_cma_answered(struct xport_ep *ep, bool may)
{
	if (ep->cma.state != CMA_ASKED)
		return false;
	ep->cma.state = may ? CMA_MAY : CMA_NEVER;
	xpi_work(ep);
	xpi_log(ep->x->log, XPORT_LOG_INFO, "0017", "%s: long data to this peer %s", ep->peer.name,
	        may ? "is read by the peer from our memory (CMA)"
	            : "is sent in frames: the peer cannot read our memory");
	return true;
}

/* The peer has been told enough, and has not read all of it: what else there is waits, and has its turn then. */
static bool round_is_over(struct xport_ep *ep)
{
	if (ep->cma.bytes < CMA_ROUND)
		return false;
	if (xpi_seq_reached(ep->tx.acked, ep->cma.seq)) {
		ep->cma.bytes = 0;
		return false;
	}
	ep->tx.blocked = true;
	return true;
}

int xpi_cma_offer_at(struct xport_ep *ep, struct xpi_op *op, uint8_t *from, uint64_t at, uint64_t len)
{
	xpi_assert_locked(ep->x);
	if (ep->cma.state == CMA_UNKNOWN)
		cma_ask(ep);
	if (ep->cma.state == CMA_NEVER)
		return XPORT_ERR_NOT_SUPPORTED;
	if (ep->cma.state != CMA_MAY) {
		ep->tx.blocked = true;
		return XPORT_ERR_BUSY;
	}
	if (ep->cma.offers > 0 && round_is_over(ep))
		return XPORT_ERR_BUSY;
	return xpi_outbox_put(ep, op, from, at, len) ? XPORT_OK : XPORT_ERR_NOT_SUPPORTED;
}

int xpi_cma_offer(struct xport_ep *ep, struct xpi_op *op, uint64_t len)
{
	return xpi_cma_offer_at(ep, op, op->buf, 0, len);
}

int xpi_cma_step(struct xport_ep *ep, struct xpi_op *op, struct xpi_rec_cma *rec, uint64_t len)
{
	rec->r.type = XPI_REC_CMA;
	rec->offer = htole32(op->offer);
	while (op->done < len) {
		uint64_t n = len - op->done < CMA_PIECE ? len - op->done : CMA_PIECE;
		bool last = n == len - op->done || ep->cma.bytes + n >= CMA_ROUND;

		if (round_is_over(ep))
			return XPORT_ERR_BUSY;
		rec->offset = htole64(op->offset + op->done);
		rec->at = htole64(op->done);
		rec->length = htole64(n);
		if (xpi_tx_record(ep, NULL, &rec->r, sizeof(*rec), NULL, last ? XPI_FRAME_ACK_NOW : 0) < 0)
			return XPORT_ERR_AGAIN;
		ep->cma.bytes += n;
		ep->cma.seq = xpi_tx_seq(ep);
		op->done += n;
	}
	op->waits = XPI_WAIT_ACK;
	op->seq = ep->cma.seq;
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

	offers = xpi_shm_map(key, CMA_OFFERS * sizeof(struct offer), false);
	if (offers == NULL)
		return false;
	box->pid = xpi_shm_maker(key);
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

	xpi_assert_locked(ep->x);
	if (len != XPI_SHM_KEY || ep->cma.asked)
		return false;
	ep->cma.asked = true;
	if (cma_wanted(ep))
		ep->cma.inbox = calloc(1, sizeof(*ep->cma.inbox));
	if (ep->cma.inbox != NULL) {
		may = look_in(ep->cma.inbox, key, ep->peer.pid);
		xpi_log(x->log, XPORT_LOG_INFO, "0018", "%s: long data from this peer %s%s", ep->peer.name,
		        may ? "is read from its memory (CMA)" : "is received in frames: cannot read its memory: ",
		        may ? "" : strerror(errno));
	}
	xpi_tell_key(ep, XPI_OP_CMA_ANSWER, may);
	return true;
}

void xpi_cma_forget(struct xport_ep *ep)
{
	if (ep->cma.inbox == NULL)
		return;
	if (ep->cma.inbox->offers != NULL)
		xpi_shm_unmap((void *)(uintptr_t)ep->cma.inbox->offers, CMA_OFFERS * sizeof(struct offer));
	free(ep->cma.inbox);
	ep->cma.inbox = NULL;
}

/*
 * The peer has withdrawn the offer, since its endpoint ended, or it is gone: which, the control channel has a moment to say.
 * What follows this record must not count, nor be acknowledged.
 */
static void cma_lost(struct xport_ep *ep, int e)
{
	if (e == ENOMEM) {
		xpi_ep_fail(ep, XPORT_ERR_NO_MEMORY, XPORT_EVENT_LOST);
		return;
	}
	if (ep->end.native_why[0] == '\0')
		snprintf(ep->end.native_why, sizeof(ep->end.native_why), "can no longer read the peer's memory: %s",
		         e != 0 ? strerror(e) : "the offered memory no longer exists");
	ep->rx.discard = true;
	ep->session = ~ep->session; /* no frame of it finds its way any more */
	xpi_ep_broken(ep);
}

/* No peer that keeps to its rounds has us read so much in one poll. */
static bool too_much(struct xport_ep *ep, uint64_t n)
{
	if (ep->cma.epoch != ep->x->epoch) {
		ep->cma.epoch = ep->x->epoch;
		ep->cma.read = 0;
	}
	ep->cma.read += n;
	return ep->cma.read > CMA_ROUND + CMA_PIECE;
}

bool xpi_cma_read_list(struct xport_ep *ep, const struct xpi_rec_cma *rec, const struct iovec *to, unsigned nto)
{
	uint64_t at = le64toh(rec->at), n = le64toh(rec->length);
	uint32_t which = le32toh(rec->offer);
	struct offer was, before, behind;
	struct iovec here[XPI_IOV_MAX + 2], there[3];
	ssize_t got, all;

	if (ep->cma.inbox == NULL || ep->cma.inbox->offers == NULL || which == 0 || which >= CMA_OFFERS ||
	    n > CMA_PIECE || too_much(ep, n))
		return false;
	memcpy(&was, &ep->cma.inbox->offers[which], sizeof(was));
	if (was.turn == 0 || was.ep != ep->id || was.session != ep->session) {
		cma_lost(ep, 0);
		return false;
	}
	if (at > was.length || n > was.length - at)
		return false;
	/* Before: if its owner is another process by now, that is most likely where the reading ends. */
	here[0] = (struct iovec){&before, sizeof(before)};
	memcpy(&here[1], to, nto * sizeof(*to));
	here[nto + 1] = (struct iovec){&behind, sizeof(behind)};
	there[0] = there[2] = (struct iovec){(void *)(uintptr_t)was.self, sizeof(was)};
	there[1] = (struct iovec){(void *)(uintptr_t)(was.data + at), n};
	all = (ssize_t)(n + 2 * sizeof(was));
	got = process_vm_readv(ep->cma.inbox->pid, here, nto + 2, there, 3, 0);
	if (got == all && memcmp(&before, &was, sizeof(was)) == 0 && memcmp(&behind, &was, sizeof(was)) == 0)
		return true;
	cma_lost(ep, got < 0 ? errno : got < all ? EFAULT : 0);
	return false;
}

bool xpi_cma_read(struct xport_ep *ep, const struct xpi_rec_cma *rec, void *to)
{
	const struct iovec one = {to, le64toh(rec->length)};

	return xpi_cma_read_list(ep, rec, &one, 1);
}
