/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_comp.c - progress and completions.
 *
 * An instance has one completion queue and one event queue. Reading the event queue costs a system call. For an
 * established connection it reports only the end, which the completions of its receives report as well. So it is
 * read while something connects, after sleeping, and now and then.
 *
 * Buffers that the provider holds when an endpoint is closed are kept in be->zombies: their completions may already
 * be in the queue. Once the queue was seen empty, none can follow.
 */
#include <errno.h>

#include "ofi.h"

enum { ROUNDS = 3, LOOK_AFTER = 64, ERRORS = 64, MANUAL_READS = 8, GONE_AFTER = 256, WARY_LOOKS = 8 };

/* ---- completions ---- */

/*
 * Ignores messages that are too long. With rxm anyone can send to an unconnected endpoint, and a peer never sends
 * more than a receive holds. So such a message is foreign, and the connection continues.
 */
static __attribute__((noinline, cold)) int excused(const struct ofi_ep *ep, int err)
{
	if (!ep->be->rdm || err != -FI_ETRUNC)
		return err;
	xpi_log(ep->be->log, XPORT_LOG_INFO, "3016", "ofi: dropped a message above %zu bytes from an unknown sender",
	        ep->be->frame_max);
	return 0;
}

/* Returns why the endpoint ends with it, or 0. */
static int rec_received(struct ofi_ep *ep, struct ofi_rec *rec, size_t len, int err)
{
	struct xpi_be *be = ep->be;
	int rc;

	if (ofi_unlikely(err != 0))
		err = excused(ep, err);
	else if (ofi_unlikely(be->rdm && !ep->greeted))
		ofi_rdm_greeted(ep, rec->buf, len);
	else
		be->up->am_recv(be->core, ep->from, rec->buf, len, NULL, 0);
	xpi_list_push(&ep->idle, &rec->link);
	rc = err == 0 && ep->why == 0 ? ofi_am_feed(ep) : err;
	if (ofi_unlikely(rc != 0))
		ofi_ep_lost(ep, rc);
	return rc;
}

static struct ofi_rec *next_of(const struct ofi_ep *ep)
{
	xpi_list_for(link, &ep->early) {
		struct ofi_rec *rec = xpi_container(link, struct ofi_rec, link);

		if (rec->nth == ep->ndone)
			return rec;
	}
	return NULL;
}

/*
 * Messages fill the receives in posted order, since an endpoint has one peer. But a message of several packets may
 * complete later than short ones behind it. A receive that completes too early waits here. After a failed one nothing
 * is delivered.
 */
static __attribute__((noinline)) void received_in_turn(struct ofi_ep *ep, struct ofi_rec *rec, size_t len, int err)
{
	rec->len = len;
	rec->err = err;
	xpi_list_push(&ep->early, &rec->link);
	while ((rec = next_of(ep)) != NULL) {
		xpi_list_del(&rec->link);
		if (rec_received(ep, rec, rec->len, rec->err) != 0)
			return;
		ep->ndone++;
	}
}

/* The provider has returned a record. err: 0, or negative. */
static inline void rec_ended(struct xpi_be *be, struct ofi_rec *rec, size_t len, int err)
{
	struct ofi_ep *ep = rec->ep;
	struct xpi_req *req = rec->req;

	xpi_list_del(&rec->link);
	if (ofi_unlikely(ep == NULL)) {
		xpi_pool_put(&be->recs, rec);
		return;
	}
	if (rec->recv) {
		if (ofi_likely(!be->mixes))
			(void)rec_received(ep, rec, len, err);
		else
			received_in_turn(ep, rec, len, err);
		return;
	}
	if (be->copies)
		xpi_list_push(&ep->bounces, &rec->link);
	else
		xpi_pool_put(&be->recs, rec);
	if (ofi_likely(err == 0 && ep->why == 0))
		ofi_am_room(ep, ep->room + 1);
	if (req != NULL)
		be->up->done(be->core, req, ofi_status(err));
	if (ofi_unlikely(err != 0))
		ofi_ep_lost(ep, err);
}

static __attribute__((noinline, cold)) int errors(struct xpi_be *be, struct fid_cq *cq)
{
	int n = 0;

	while (n < ERRORS) {
		struct fi_cq_err_entry e = {0};

		if (fi_cq_readerr(cq, &e, 0) <= 0)
			break;
		n++;
		if (e.op_context != NULL)
			rec_ended(be, e.op_context, 0, e.err > 0 ? -e.err : e.err < 0 ? e.err : -FI_EIO);
	}
	return n;
}

static __attribute__((noinline, cold)) void bury(struct xpi_be *be)
{
	while (!xpi_list_empty(&be->zombies))
		xpi_pool_put(&be->recs, xpi_container(xpi_list_pop(&be->zombies), struct ofi_rec, link));
}

static __attribute__((noinline, cold)) void feed_hungry(struct xpi_be *be)
{
	xpi_list_for_safe(link, &be->hungry) {
		struct ofi_ep *ep = xpi_container(link, struct ofi_ep, hungry);
		int rc;

		if (ep->ours != NULL && !ofi_lock_try(ep->ours))
			continue;
		rc = ofi_am_feed(ep);
		if (ep->ours != NULL)
			ofi_lock_release(ep->ours, false);
		if (rc != 0) {
			xpi_list_del(link);
			ofi_ep_lost(ep, rc);
		}
	}
}

/* Returns the number of completions, or a status. */
static int read_queue(struct xpi_be *be, struct fid_cq *cq)
{
	struct fi_cq_msg_entry e[OFI_BATCH];
	int did = 0, spare = be->quirk->manual ? MANUAL_READS : 0; /* such a provider makes one step at a time */
	ssize_t n = 0;

	for (int round = 0; round < ROUNDS; round++) {
		do {
			errno = 0; /* see ofi_cm.c */
			n = fi_cq_read(cq, e, OFI_BATCH);
		} while (n == -FI_EAGAIN && did == 0 && spare-- > 0);
		if (n <= 0)
			break;
		for (ssize_t i = 0; i < n; i++)
			rec_ended(be, e[i].op_context, e[i].len, 0);
		did += (int)n;
		if (n < OFI_BATCH)
			break;
	}
	if (ofi_unlikely(n == -FI_EAVAIL))
		return did > 0 ? did
		               : errors(be,
		                        cq); /* earlier completions are reported first; the error in the next poll */
	if (ofi_unlikely(n < 0 && n != -FI_EAGAIN))
		/* Not about a peer, whatever the code means for an operation. */
		return xpi_fail(be->err, XPORT_ERR_SYSTEM, -n, NULL, NULL, "reading libfabric's completions failed: %s",
		                fi_strerror((int)-n));
	if (ofi_unlikely(n <= 0 && !xpi_list_empty(&be->zombies)))
		bury(be);
	return did;
}

/*
 * Locks the page of the endpoint's queue. A peer that sends before its greeting makes shm (1.17) write to the peer's
 * memory. Within one process this is the peer's own mapping, which ends with the peer. So the peer's page is locked
 * as well, which keeps the peer from ending.
 */
static bool page_enter(struct ofi_ep *ep, bool *theirs)
{
	*theirs = !ep->greeted;
	if (!ofi_lock_try(ep->ours))
		return false;
	if (!*theirs || ofi_lock_try(ep->theirs))
		return true;
	ofi_lock_release(ep->ours, false);
	return false;
}

/*
 * Reads the queue of one endpoint, if its peer has sent something, or always (`all`). Returns the number of
 * completions.
 */
static inline int read_one(struct xpi_be *be, struct ofi_ep *ep, bool all)
{
	uint32_t sent;
	bool theirs;
	int n;

	if (ep->to == FI_ADDR_UNSPEC)
		return 0;
	sent = ofi_lock_sent(ep->ours);
	if ((sent == ep->taken && ep->greeted && !all) || !page_enter(ep, &theirs))
		return 0;
	n = read_queue(be, ep->cq);
	ofi_lock_release(ep->ours, false);
	if (theirs)
		ofi_lock_release(ep->theirs, false);
	ep->taken = n > 0 ? (ep->taken + (uint32_t)n) & INT32_MAX : sent;
	if (n >= 0)
		return n;
	ofi_ep_lost(ep, -FI_EIO);
	return 0;
}

/* Makes the next poll begin at `link`: moves the head of the list, which is a ring, in front of it. */
static void first_next(struct xpi_be *be, struct xpi_list *link)
{
	if (link == &be->eps)
		return;
	xpi_list_del(&be->eps);
	xpi_list_push(link, &be->eps);
}

/* Reads up to `max` endpoints from the head of the list. The next call continues behind them. */
static int read_some(struct xpi_be *be, unsigned max, bool all)
{
	struct xpi_list *link = be->eps.next;
	int did = 0;

	for (; max > 0 && did < ROUNDS * OFI_BATCH; max--) {
		struct ofi_ep *ep = xpi_container(link, struct ofi_ep, link);
		int n = read_one(be, ep, all);

		link = link->next != &be->eps ? link->next : be->eps.next;
		if (n > 0 && !ep->hot) {
			struct ofi_ep **place = &be->hot[be->hot_next++ % OFI_HOT];

			if (*place != NULL)
				(*place)->hot = false;
			*place = ep;
			ep->hot = true;
		}
		did += n;
	}
	first_next(be, link);
	return did;
}

/*
 * With many endpoints most are idle, and checking each costs a cache line. So a poll checks a few in turn, and those
 * with the latest messages. Before and after sleeping it checks all.
 */
static int read_many(struct xpi_be *be, bool all)
{
	int did = read_some(be, be->look || be->nconnecting > 0 ? be->neps : OFI_IN_TURN, all);

	for (unsigned i = 0; i < OFI_HOT && did < ROUNDS * OFI_BATCH; i++) {
		struct ofi_ep *ep = be->hot[(be->hot_first + i) % OFI_HOT];

		if (ep != NULL)
			did += read_one(be, ep, all);
	}
	be->hot_first++; /* so that none of them is always last */
	return did;
}

/* Reads endpoints from time to time even if nothing was sent: libfabric may have work to do. */
static int read_guarded(struct xpi_be *be)
{
	bool all = be->guarded_polls++ % LOOK_AFTER == 0;
	int did = 0;

	if (ofi_unlikely(be->neps > OFI_HOT + OFI_IN_TURN))
		return read_many(be, all);
	all = all || be->look;
	xpi_list_for_safe(link, &be->eps) {
		did += read_one(be, xpi_container(link, struct ofi_ep, link), all);
		if (did >= ROUNDS * OFI_BATCH) {
			first_next(be, link->next);
			break;
		}
	}
	return did;
}

/* Checks everything besides the queue. `did` is the number of completions so far. */
static int look_around(struct xpi_be *be, int did)
{
	be->look = false;
	be->calm = 0;
	errno = 0;
	if (be->eq != NULL)
		did += ofi_cm_poll(be);
	if (be->quirk->tells)
		ofi_rdm_poll(be);
	if (be->ngone > 0 && (did > 0 ? (be->gone_polls = 0) : ++be->gone_polls) >= GONE_AFTER)
		ofi_ep_tell_gone(be);
	if (!xpi_list_empty(&be->hungry))
		feed_hungry(be);
	if (be->nconnecting == 0 && be->ngone == 0 && xpi_list_empty(&be->hungry) && xpi_list_empty(&be->zombies)) {
		/* Not at once: a connection that was given up here may still arrive late from the peer. */
		be->one_read = be->calm_looks++ >= WARY_LOOKS && be->may_one_read;
		be->calm = LOOK_AFTER;
	} else {
		be->one_read = false;
		be->calm_looks = 0;
	}
	return did;
}

/* Handles the result of reading the queue: n entries, or the reason why there are none. */
static __attribute__((noinline)) int took(struct xpi_be *be, ssize_t n)
{
	int did;

	for (ssize_t i = 0; i < n; i++)
		rec_ended(be, be->batch[i].op_context, be->batch[i].len, 0);
	if (n > 0)
		did = (int)n;
	else
		did = be->quirk->shm_prefix != NULL ? read_guarded(be) : read_queue(be, be->cq);
	if (did > 0)
		be->idle = false;
	return did >= 0 && be->calm <= 0 ? look_around(be, did) : did;
}

int ofi_poll(struct xpi_be *be)
{
	ssize_t n = 0;

	if (ofi_likely(be->one_read))
		n = fi_cq_read(be->cq, be->batch, OFI_BATCH);
	return ofi_likely(--be->calm >= 0 && n == -FI_EAGAIN) ? 0 : took(be, n);
}
