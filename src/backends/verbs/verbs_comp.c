/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs_comp.c - progress, completions, and waiting.
 *
 * Looking for events of rdma_cm and of the device costs a system call. It is done at every poll while an endpoint
 * connects, after sleeping, and otherwise once in a while, so that such an event waits for a moment. It is always
 * done after the completions: what the peer sent before it closed must not be lost.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "verbs.h"

enum { LOOK_EVERY = 64 };

/* ---- completions ---- */

static __attribute__((noinline, cold)) void wc_failed(struct vrb_ep *ep, const struct ibv_wc *wc)
{
	if (ep->state < VRB_CLOSING && !ep->broken)
		vrb_broke(ep, wc->status, ibv_wc_status_str(wc->status));
}

static __attribute__((noinline, cold)) void no_frame(struct vrb_ep *ep)
{
	if (ep->state < VRB_CLOSING && !ep->broken)
		vrb_broke(ep, 0, "the peer sent something that is not a frame");
}

static void wc_received(struct xpi_be *be, struct vrb_ep *ep, const struct ibv_wc *wc)
{
	uint32_t i = wc->wr_id & 0xffff;
	struct ibv_recv_wr *wr = &ep->q->rx_wr[i];

	ep->rx_posted--;
	if (vrb_unlikely(wc->status != IBV_WC_SUCCESS)) {
		wc_failed(ep, wc);
		return;
	}
	/* For a WRITE with immediate data, which also uses a receive, this is the length of other memory. */
	if (vrb_unlikely(wc->opcode != IBV_WC_RECV || wc->byte_len > VRB_FRAME_MAX)) {
		no_frame(ep);
		return;
	}
	if (vrb_likely(wc->byte_len > 0))
		be->up->am_recv(be->core, ep->core_ep, ep->rx + (size_t)i * VRB_FRAME_MAX, wc->byte_len, NULL, 0);
	else
		ep->greeted = true;
	*ep->repost_end = wr;
	ep->repost_end = &wr->next;
	if (++ep->nrepost >= VRB_REPOST && vrb_repost(ep) != XPORT_OK)
		vrb_broke(ep, 0, "cannot post receives");
}

/* Marks sent[at] and everything before it as done. */
static inline void sent_up_to(struct vrb_ep *ep, uint32_t at)
{
	if (vrb_likely(!ep->broken && ep->state <= VRB_UP))
		ep->room += at + 1 - ep->sq_head;
	ep->ring_tail = ep->q->sent[at & (VRB_SQ - 1)].ring_end;
	ep->sq_head = ep->sq_swept = at + 1;
}

/*
 * Earlier unsignalled requests are done as well. A signalled one is done only by its own completion: siw completes a
 * SEND or WRITE before an earlier READ.
 */
static void sent_among_gets(struct vrb_ep *ep, uint32_t at)
{
	struct vrb_sent *s = &ep->q->sent[at & (VRB_SQ - 1)];

	for (; (int32_t)(at - ep->sq_swept) > 0; ep->sq_swept++)
		if (!ep->q->sent[ep->sq_swept & (VRB_SQ - 1)].signalled)
			ep->q->sent[ep->sq_swept & (VRB_SQ - 1)].done = true;
	s->done = true;
	ep->gets -= s->get;
	while (ep->sq_head != ep->sq_tail && ep->q->sent[ep->sq_head & (VRB_SQ - 1)].done) {
		ep->ring_tail = ep->q->sent[ep->sq_head & (VRB_SQ - 1)].ring_end;
		ep->sq_head++;
		if (vrb_likely(!ep->broken && ep->state <= VRB_UP))
			ep->room++;
	}
	if ((int32_t)(ep->sq_head - ep->sq_swept) > 0)
		ep->sq_swept = ep->sq_head;
}

static void wc_sent(struct xpi_be *be, struct vrb_ep *ep, const struct ibv_wc *wc)
{
	uint32_t at = ep->sq_head + (uint16_t)((uint16_t)wc->wr_id - (uint16_t)ep->sq_head);
	struct vrb_sent *s = &ep->q->sent[at & (VRB_SQ - 1)];
	struct xpi_req *req = s->req;

	if (vrb_unlikely(wc->status != IBV_WC_SUCCESS)) {
		wc_failed(ep, wc);
		return; /* waiting requests complete when the endpoint is stopped */
	}
	if (vrb_unlikely(s->atomic) && req->priv != NULL)
		memcpy(req->priv, vrb_atomic_old(ep, s), sizeof(uint64_t));
	if (vrb_likely(ep->gets == 0))
		sent_up_to(ep, at);
	else
		sent_among_gets(ep, at);
	if (req != NULL) {
		s->req = NULL;
		be->up->done(be->core, req, XPORT_OK);
	}
}

static void wc_completed(struct xpi_be *be, const struct ibv_wc *wc)
{
	uint32_t slot = (uint32_t)(wc->wr_id >> 48);
	struct vrb_ep *ep = slot < be->table_size ? be->table[slot] : NULL;

	if (vrb_unlikely(ep == NULL || (wc->wr_id ^ ep->key) >> 32 != 0))
		return; /* for an endpoint that no longer exists */
	if (wc->wr_id & VRB_ID_RX)
		wc_received(be, ep, wc);
	else if (vrb_likely(!(wc->wr_id & VRB_ID_SENTINEL)))
		wc_sent(be, ep, wc);
	else
		ep->drained = true;
}

static void cq_broke(struct xpi_be *be, const struct ibv_cq *cq)
{
	xpi_list_for(l, &be->cqs) {
		struct vrb_cq *c = xpi_container(l, struct vrb_cq, link);

		c->broken = c->broken || c->cq == cq;
	}
	xpi_list_for(l, &be->eps) {
		struct vrb_ep *ep = xpi_container(l, struct vrb_ep, link);

		if (ep->cq != NULL && ep->cq->cq == cq)
			vrb_broke(ep, IBV_EVENT_CQ_ERR, ibv_event_type_str(IBV_EVENT_CQ_ERR));
	}
}

/* Handles the completions of a queue, up to a limit. be->wc already holds the first n. If a queue cannot be read any
 * more, all its endpoints fail, and its remaining completions are lost. Other endpoints continue. */
static int cq_reap(struct xpi_be *be, struct ibv_cq *cq, int n)
{
	int total = 0;

	for (; n > 0; n = ibv_poll_cq(cq, VRB_WC, be->wc)) {
		for (int i = 0; i < n; i++)
			wc_completed(be, &be->wc[i]);
		total += n;
		if (n < VRB_WC || total >= VRB_EVENTS)
			return total;
	}
	if (vrb_unlikely(n < 0) && !be->gone)
		cq_broke(be, cq);
	return total;
}

/* ---- the device's own events ---- */

/*
 * A port may come up again before a silent peer would be lost: a cable is moved, a switch restarts. The adapter
 * retries for that long, and posted requests wait.
 */
static void port_is(struct xpi_be *be, bool up)
{
	int ms = up ? 0 : be->peer_timeout_ms;
	struct itimerspec t = {.it_value = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}};

	timerfd_settime(be->port_timer, 0, &t, NULL);
	xpi_log(be->log, XPORT_LOG_INFO, "2006", "verbs: %s: port %u %s", be->name, be->port,
	        up ? "is up again" : "went down");
}

/* Called when its timer has expired. */
static bool port_stays_down(struct xpi_be *be)
{
	uint64_t n;

	if (read(be->port_timer, &n, sizeof(n)) != (ssize_t)sizeof(n))
		return false;
	vrb_all_broke(be, IBV_EVENT_PORT_ERR, "the port went down");
	return true;
}

/*
 * Reads an event in the kernel's format: ibv_get_async_event of siw's library would print it. It must be acknowledged
 * nevertheless, or destroying the object would wait for it.
 */
static bool async_event(struct xpi_be *be)
{
	struct {
		uint64_t element;
		uint32_t type, zero;
	} raw;
	struct ibv_async_event e;

	if (read(be->ctx->async_fd, &raw, sizeof(raw)) != (ssize_t)sizeof(raw))
		return false;
	e.event_type = (enum ibv_event_type)raw.type;
	e.element.qp = (struct ibv_qp *)(uintptr_t)raw.element;
	switch (e.event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		if (e.element.qp->qp_context != NULL)
			vrb_broke(e.element.qp->qp_context, e.event_type, ibv_event_type_str(e.event_type));
		break;
	case IBV_EVENT_COMM_EST:
		if (e.element.qp->qp_context != NULL)
			vrb_cm_overtaken(e.element.qp->qp_context);
		break;
	case IBV_EVENT_PORT_ERR:
		e.element.port_num = (int)raw.element;
		if (raw.element == be->port)
			port_is(be, false);
		break;
	case IBV_EVENT_PORT_ACTIVE:
		e.element.port_num = (int)raw.element;
		if (raw.element == be->port)
			port_is(be, true);
		break;
	case IBV_EVENT_CQ_ERR:
		cq_broke(be, e.element.cq);
		break;
	case IBV_EVENT_DEVICE_FATAL:
		vrb_all_broke(be, e.event_type, ibv_event_type_str(e.event_type));
		break;
	default:
		break;
	}
	ibv_ack_async_event(&e);
	return true;
}

static int events(struct xpi_be *be)
{
	struct pollfd p[] = {{.fd = be->cm->fd, .events = POLLIN},
	                     {.fd = be->ctx->async_fd, .events = POLLIN},
	                     {.fd = be->port_timer, .events = POLLIN}};
	int n = 0;

	be->look = false;
	be->unlooked = 0;
	if (poll(p, 3, 0) <= 0)
		return 0;
	while (p[1].revents != 0 && n < VRB_EVENTS && async_event(be))
		n++;
	if (p[2].revents != 0)
		n += port_stays_down(be);
	if (p[0].revents != 0)
		n += vrb_cm_poll(be);
	return n;
}

/* ---- progress and waiting ---- */

/* The channel stays readable while it has events. */
static __attribute__((noinline, cold)) void woke(struct xpi_be *be)
{
	struct ibv_cq *cq;
	void *context;

	be->slept = false;
	be->look = true;
	while (ibv_get_cq_event(be->comp, &cq, &context) == 0)
		ibv_ack_cq_events(cq, 1);
}

static int unstash(struct xpi_be *be)
{
	int n = be->nstash;

	be->nstash = 0;
	for (int i = 0; i < n; i++)
		wc_completed(be, &be->stash[i]);
	return n;
}

/*
 * At most once for each tick of the coarse clock, 1 to 10 ms. A program that polls rarely checks in one of LOOK_EVERY
 * polls.
 */
static __attribute__((noinline)) bool look_due(struct xpi_be *be)
{
	struct timespec t;
	bool moved;

	be->unlooked = 0;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	moved = t.tv_nsec != be->looked.tv_nsec || t.tv_sec != be->looked.tv_sec;
	be->looked = t;
	return moved;
}

/*
 * Events of rdma_cm and the device are checked after the completions, so that the end of a connection comes after its
 * data: if the queues were empty, or were emptied just now while something connects, and from time to time in any
 * case. Otherwise a busy server would never accept a connection.
 */
static __attribute__((noinline)) int poll_all(struct xpi_be *be)
{
	bool emptied = true, urgent;
	int n = 0;

	if (!xpi_list_empty(&be->batched))
		vrb_batch_post_all(be);
	if (vrb_unlikely(be->slept))
		woke(be);
	if (vrb_unlikely(be->nstash > 0))
		n = unstash(be);
	xpi_list_for(l, &be->cqs) {
		struct ibv_cq *cq = xpi_container(l, struct vrb_cq, link)->cq;
		int more = cq_reap(be, cq, ibv_poll_cq(cq, VRB_WC, be->wc));

		emptied = emptied && more < VRB_EVENTS;
		n += more;
	}
	urgent = n > 0 ? be->attentive > 0 && emptied : be->attentive > 0 || be->look;
	if (!urgent && (++be->unlooked < LOOK_EVERY || !look_due(be)))
		return n;
	return n + events(be);
}

/* Whether one completion queue is all that must be checked. */
static inline bool only_one_cq(const struct xpi_be *be)
{
	return be->cqs.next == be->cqs.prev && xpi_list_empty(&be->batched) &&
	       (be->slept | be->look | be->nstash | (int)be->attentive) == 0;
}

/* The duration of a poll adds to every latency. */
int vrb_poll(struct xpi_be *be)
{
	struct ibv_cq *cq;
	int n;

	be->polls++;
	if (vrb_unlikely(!only_one_cq(be)))
		return poll_all(be);
	cq = xpi_container(be->cqs.next, struct vrb_cq, link)->cq;
	n = ibv_poll_cq(cq, VRB_WC, be->wc);
	if (n != 0)
		n = cq_reap(be, cq, n);
	if (vrb_likely(++be->unlooked < LOOK_EVERY) || !look_due(be))
		return n;
	return n + events(be);
}

int vrb_fds(struct xpi_be *be, int *fds, int max)
{
	const int all[] = {be->comp->fd, be->cm->fd, be->ctx->async_fd, be->port_timer};
	int n = 0;

	for (; n < 4 && n < max; n++)
		fds[n] = all[n];
	return n;
}

/* Requests the notification first and then checks the queues. In the other order a wake-up would be lost. */
int vrb_arm(struct xpi_be *be)
{
	if (!xpi_list_empty(&be->batched) || be->nstash > 0)
		return XPORT_ERR_AGAIN;
	woke(be);
	xpi_list_for(l, &be->cqs) {
		int rc = ibv_req_notify_cq(xpi_container(l, struct vrb_cq, link)->cq, 0);

		if (rc != 0)
			return be->gone ? XPORT_OK
			                : vrb_fail(be, XPORT_ERR_SYSTEM, rc, NULL, "arming a completion queue");
	}
	be->slept = true;
	xpi_list_for(l, &be->cqs) {
		be->nstash = ibv_poll_cq(xpi_container(l, struct vrb_cq, link)->cq, VRB_WC, be->stash);
		if (be->nstash > 0)
			return XPORT_ERR_AGAIN;
		be->nstash = 0;
	}
	return XPORT_OK;
}
