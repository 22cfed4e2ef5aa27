/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_comp.c - progress, completions, and waiting.
 *
 * One completion queue and one event queue an instance.  Looking at the event queue costs a system call, and all it
 * tells of a connection that is up is its end, which the completions of its receives tell as well: so it is looked at
 * while something connects, after sleeping, and now and then.
 *
 * What the provider holds when an endpoint is closed is put aside (be->zombies): its completion may already be in the
 * queue, and finds that out.  Once the queue was seen empty none can come any more.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "ofi.h"

enum { ROUNDS = 3, LOOK_AFTER = 64, ERRORS = 64, MANUAL_READS = 8, GONE_AFTER = 256, WARY_LOOKS = 8 };

/* The queue of unconnected endpoints outlives them, and rxm (1.17) goes on asking those that are closed. */
static bool no_fd(const struct xpi_be *be)
{
	return be->rdm || be->quirk->no_fd || be->no_wait;
}

static int wait_fd(struct fid *fid)
{
	int fd = -1;

	return fi_control(fid, FI_GETWAIT, &fd) == 0 ? fd : -1;
}

static size_t cq_size(const struct xpi_be *be)
{
	return be->quirk->cq > 0 ? be->quirk->cq : OFI_CQ_SIZE;
}

int ofi_comp_queue(struct xpi_be *be, struct fid_cq **cq)
{
	struct fi_cq_attr attr = {
		.size = cq_size(be),
		.format = FI_CQ_FORMAT_MSG,
		.wait_obj = !no_fd(be) ? FI_WAIT_FD : FI_WAIT_NONE,
	};
	int rc = fi_cq_open(be->domain, &attr, cq, NULL);

	if (rc == -FI_ENOSYS && attr.wait_obj == FI_WAIT_FD) {
		be->no_wait = true; /* such a queue is not even to be asked for a descriptor */
		attr.wait_obj = FI_WAIT_NONE;
		rc = fi_cq_open(be->domain, &attr, cq, NULL);
	}
	if (rc != 0)
		*cq = NULL;
	return rc;
}

int ofi_comp_open(struct xpi_be *be)
{
	int rc = ofi_comp_queue(be, &be->cq);

	if (rc != 0)
		return ofi_fail(be->err, rc, NULL, "opening a completion queue of libfabric");
	xpi_pool_init(&be->recs, sizeof(struct ofi_rec), 64);
	be->cq_left = cq_size(be);
	return XPORT_OK;
}

/*
 * For each completion the tcp provider writes a byte to itself, so that who sleeps in another thread wakes, and whoever
 * polls next reads it: two system calls a message, about a fifth of its time.  Nobody needs them: one instance is never
 * polled by two, and ofi_arm asks before anybody sleeps.  The byte is read when epoll shows it, and none is written while
 * one is there: so it need only not be shown.  Its descriptor is the one that a new queue has in its set, which the
 * kernel lists.
 */
static void mute(int epoll)
{
	char path[64], line[256];
	int fd, n = 0, its = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", epoll);
	f = fopen(path, "re");
	if (f == NULL)
		return;
	while (fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "tfd: %d", &fd) != 1)
			continue;
		its = fd;
		n++;
	}
	fclose(f);
	if (n == 1)
		(void)epoll_ctl(epoll, EPOLL_CTL_DEL, its, NULL);
}

/* After the event queue was opened.  What promises descriptors and then has none goes by the clock. */
int ofi_comp_fds(struct xpi_be *be)
{
	if (!no_fd(be)) {
		be->fd[0] = wait_fd(&be->cq->fid);
		be->fd[1] = be->eq != NULL ? wait_fd(&be->eq->fid) : -1;
	}
	if (be->fd[0] >= 0 && be->quirk->wakes_itself && fi_version() < FI_VERSION(1, 18))
		mute(be->fd[0]);
	if (be->fd[0] >= 0 && (be->eq == NULL || be->fd[1] >= 0))
		return XPORT_OK;
	be->fd[0] = be->fd[1] = -1;
	be->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (be->timer >= 0)
		return XPORT_OK;
	return xpi_fail_errno(be->err, XPORT_ERR_SYSTEM, "raise `ulimit -n`", "no timer descriptor");
}

void ofi_comp_close(struct xpi_be *be)
{
	if (be->cq != NULL)
		fi_close(&be->cq->fid);
	if (be->timer >= 0)
		close(be->timer);
	xpi_pool_fini(&be->recs);
}

/* ---- completions ---- */

/*
 * Anybody can send to an unconnected endpoint that rxm makes of connected ones, and a peer never sends more than a receive
 * holds: what was too long is a stranger's, and the end of nobody.
 */
static __attribute__((noinline, cold)) int excused(const struct ofi_ep *ep, int err)
{
	if (!ep->be->rdm || err != -FI_ETRUNC)
		return err;
	xpi_log(ep->be->log, XPORT_LOG_INFO, "3016", "ofi: dropped a message of a stranger, of more than %zu bytes",
	        ep->be->frame_max);
	return 0;
}

/* Returns why the endpoint ends with it, or 0. */
static int received(struct ofi_ep *ep, struct ofi_rec *rec, size_t len, int err)
{
	struct xpi_be *be = ep->be;
	int rc;

	if (ofi_unlikely(err != 0))
		err = excused(ep, err);
	else if (ofi_unlikely(be->rdm && !ep->greeted))
		ofi_rdm_greeted(ep, rec->buf, len);
	else
		be->up->am_recv(be->core, rec->buf, len, NULL, 0);
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
 * Messages fill the receives in the order of both, since an endpoint has one peer, but those of several packets may be
 * complete later than short ones behind them.  One that is too early waits here; past one that failed nothing goes.
 */
static __attribute__((noinline)) void received_in_turn(struct ofi_ep *ep, struct ofi_rec *rec, size_t len, int err)
{
	rec->len = len;
	rec->err = err;
	xpi_list_push(&ep->early, &rec->link);
	while ((rec = next_of(ep)) != NULL) {
		xpi_list_del(&rec->link);
		if (received(ep, rec, rec->len, rec->err) != 0)
			return;
		ep->ndone++;
	}
}

/* The provider lets go of it; err: 0, or negative. */
static inline void ended(struct xpi_be *be, struct ofi_rec *rec, size_t len, int err)
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
			(void)received(ep, rec, len, err);
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
			ended(be, e.op_context, 0, e.err > 0 ? -e.err : e.err < 0 ? e.err : -FI_EIO);
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

		if (ep->ours != NULL && !ofi_guard_enter(ep->ours))
			continue;
		rc = ofi_am_feed(ep);
		if (ep->ours != NULL)
			ofi_guard_leave(ep->ours, false);
		if (rc != 0) {
			xpi_list_del(link);
			ofi_ep_lost(ep, rc);
		}
	}
}

/* Returns how much happened, or a status. */
static int read_queue(struct xpi_be *be, struct fid_cq *cq)
{
	struct fi_cq_msg_entry e[OFI_BATCH];
	int did = 0, spare = be->quirk->manual ? MANUAL_READS : 0; /* such a one moves a step at a time */
	ssize_t n = 0;

	for (int round = 0; round < ROUNDS; round++) {
		do {
			errno = 0; /* see ofi_cm.c */
			n = fi_cq_read(cq, e, OFI_BATCH);
		} while (n == -FI_EAGAIN && did == 0 && spare-- > 0);
		if (n <= 0)
			break;
		for (ssize_t i = 0; i < n; i++)
			ended(be, e[i].op_context, e[i].len, 0);
		did += (int)n;
		if (n < OFI_BATCH)
			break;
	}
	if (ofi_unlikely(n == -FI_EAVAIL))
		return did > 0 ? did : errors(be, cq); /* what came before the end is told in a poll of its own */
	if (ofi_unlikely(n < 0 && n != -FI_EAGAIN))
		/* No peer's, whatever the code means of an operation. */
		return xpi_fail(be->err, XPORT_ERR_SYSTEM, -n, NULL, NULL,
		                "reading completions of libfabric failed: %s", fi_strerror((int)-n));
	if (ofi_unlikely(n <= 0 && !xpi_list_empty(&be->zombies)))
		bury(be);
	return did;
}

/* The next poll begins there. */
static void first_next(struct xpi_be *be, const struct xpi_list *link)
{
	while (link != &be->eps && be->eps.next != link)
		xpi_list_push(&be->eps, xpi_list_pop(&be->eps));
}

/*
 * Into the page behind which its queue is.  What a peer sends before its greeting makes shm (1.17) write to the peer's
 * memory, which within a process is the peer's own mapping and ends with it: so it is kept from ending meanwhile.
 */
static bool enter(struct ofi_ep *ep, bool *theirs)
{
	*theirs = !ep->greeted;
	if (!ofi_guard_enter(ep->ours))
		return false;
	if (!*theirs || ofi_guard_enter(ep->theirs))
		return true;
	ofi_guard_leave(ep->ours, false);
	return false;
}

/* Now and then also if nothing was sent: libfabric may have something to do. */
static int read_guarded(struct xpi_be *be)
{
	bool all = be->look || be->guarded_polls++ % LOOK_AFTER == 0;
	int did = 0;

	xpi_list_for_safe(link, &be->eps) {
		struct ofi_ep *ep = xpi_container(link, struct ofi_ep, link);
		uint32_t sent;
		bool theirs;
		int n;

		if (ep->to == FI_ADDR_UNSPEC)
			continue;
		sent = ofi_guard_sent(ep->ours);
		if ((sent == ep->taken && ep->greeted && !all) || !enter(ep, &theirs))
			continue;
		n = read_queue(be, ep->cq);
		ofi_guard_leave(ep->ours, false);
		if (theirs)
			ofi_guard_leave(ep->theirs, false);
		ep->taken = n > 0 ? (ep->taken + (uint32_t)n) & INT32_MAX : sent;
		if (n < 0)
			ofi_ep_lost(ep, -FI_EIO);
		else
			did += n;
		if (did >= ROUNDS * OFI_BATCH) {
			first_next(be, link->next);
			break;
		}
	}
	return did;
}

/* What a poll has to look at beside the queue; `did` completions came. */
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
		/* Not at once: what a peer began natively and gave up may come after it was given up here. */
		be->one_read = be->calm_looks++ >= WARY_LOOKS && be->may_one_read;
		be->calm = LOOK_AFTER;
	} else {
		be->one_read = false;
		be->calm_looks = 0;
	}
	return did;
}

/* What the queue gave: n entries, or why there is none. */
static __attribute__((noinline)) int took(struct xpi_be *be, ssize_t n)
{
	int did;

	for (ssize_t i = 0; i < n; i++)
		ended(be, be->batch[i].op_context, be->batch[i].len, 0);
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

/* ---- waiting ---- */

int ofi_fds(struct xpi_be *be, int *fds, int max)
{
	const int all[] = {be->fd[0], be->fd[1], be->timer};
	int n = 0;

	for (int i = 0; i < 3; i++)
		if (all[i] >= 0 && n < max)
			fds[n++] = all[i];
	return n;
}

/* Without a descriptor: sleeps by the clock, longer the longer nothing happens, however often it is asked. */
static int nap(struct xpi_be *be)
{
	static const struct {
		int64_t after_ms;
		long ns;
	} steps[] = {{1000, 16000000}, {80, 8000000}, {10, 1000000}, {0, 200000}};
	struct itimerspec in = {{0, 0}, {0, 0}};
	int64_t now = ofi_now_ms();
	int i = 0;

	if (!be->idle) {
		be->idle = true;
		be->idle_ms = now;
		return XPORT_ERR_AGAIN; /* what was taken made room for what waits behind it */
	}
	while (now - be->idle_ms < steps[i].after_ms)
		i++;
	in.it_value.tv_nsec = steps[i].ns;
	return timerfd_settime(be->timer, 0, &in, NULL) == 0 ? XPORT_OK : XPORT_ERR_AGAIN;
}

int ofi_arm(struct xpi_be *be)
{
	struct fid *fids[] = {&be->cq->fid, be->eq != NULL ? &be->eq->fid : NULL};
	int rc;

	be->look = true;
	be->calm = 0;
	if (be->ngone > 0 || !xpi_list_empty(&be->hungry))
		return XPORT_ERR_AGAIN;
	if (be->timer >= 0)
		return nap(be);
	rc = fi_trywait(be->fabric, fids, be->eq != NULL ? 2 : 1);
	if (rc == 0)
		return XPORT_OK;
	if (rc == -FI_EAGAIN)
		return XPORT_ERR_AGAIN;
	return ofi_fail(be->err, rc, NULL, "arming libfabric's descriptors");
}
