/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx_comp.c - progress, the end of requests, and waiting. */
#include <stdlib.h>
#include <sys/timerfd.h>

#include "ucx.h"

enum { NAP_AFTER = 200, NAP_NS = 1000000 };

/*
 * What follows every call that may give a request: turns its result into the contract's.  `copy` is freed when the
 * request ends, or now.  No callback of the core is called here: the return value says it all.
 */
int ucx_posted(struct ucx_ep *ep, ucs_status_ptr_t result, struct xpi_req *req, void *copy, const char *what)
{
	struct ucx_rec *rec = result;
	ucs_status_t status;

	if (UCS_PTR_IS_PTR(result)) {
		rec->ep = ep;
		rec->req = req;
		rec->copy = copy;
		xpi_list_push(&ep->pending, &rec->link);
		ep->npending++;
		ep->be->npending++;
		ep->room -= ep->room > 0;
		return XPI_PENDING;
	}
	free(copy);
	status = UCS_PTR_RAW_STATUS(result);
	if (status == UCS_OK)
		return XPORT_OK;
	if (status == UCS_ERR_NO_RESOURCE)
		return XPORT_ERR_AGAIN;
	if (status != UCS_ERR_NO_MEMORY) {
		ep->room = 0;
		if (ep->why == UCS_OK)
			ep->why = status;
	}
	return ucx_fail(ep->be, status, NULL, what);
}

/* UCX's callback for all of them. */
void ucx_ended(void *request, ucs_status_t status, void *arg)
{
	struct ucx_rec *rec = request;
	struct ucx_ep *ep = rec->ep;
	struct xpi_req *req = rec->req;
	struct xpi_be *be = ep->be;

	(void)arg;
	xpi_list_del(&rec->link);
	ep->npending--;
	be->npending--;
	if (ep->state <= UCX_EP_UP && ep->why == UCS_OK)
		ep->room++;
	free(rec->copy);
	ucp_request_free(request);
	if (req != NULL) {
		be->up->done(be->core, req, ucx_status(status));
		return;
	}
	ep->settled = true; /* a flush, or the greeting, for which ep_connect or ep_quiesce waits */
	if (status != UCS_OK && ep->why == UCS_OK)
		ep->why = status;
}

/*
 * UCX's shared memory does not tell when there is room in a peer's queue again: asked for that event, it refuses to be
 * armed while anything waits, and for ever if that peer has stopped.  So it is not asked (open_worker), and while
 * requests wait we poll, and after many polls without an event sleep by the clock.  False: keep polling.
 */
static bool nap(struct xpi_be *be)
{
	const struct itimerspec in = {.it_value.tv_nsec = NAP_NS};

	if (be->quiet < NAP_AFTER)
		return false;
	if (timerfd_settime(be->timer, 0, &in, NULL) != 0)
		return false;
	be->aside |= UCX_ASIDE_NAPPING;
	return true;
}

static __attribute__((noinline, cold)) int poll_aside(struct xpi_be *be, int n)
{
	const struct itimerspec off = {0};

	if (be->aside & UCX_ASIDE_NAPPING) {
		be->aside &= (uint8_t)~UCX_ASIDE_NAPPING;
		(void)timerfd_settime(be->timer, 0, &off, NULL); /* takes back an expiry that was not read, too */
	}
	if (be->aside & UCX_ASIDE_ASKED)
		ucx_queue_look(be, n);
	return n;
}

static __attribute__((noinline)) int poll_more(struct xpi_be *be, int n)
{
	be->quiet = n == 0 ? be->quiet + 1 : 0;
	return be->aside != 0 ? poll_aside(be, n) : n;
}

int ucx_poll(struct xpi_be *be)
{
	int n = (int)ucp_worker_progress(be->worker);

	if (n != 0 || ucx_unlikely(be->aside != 0))
		return poll_more(be, n);
	be->quiet++;
	return 0;
}

int ucx_fds(struct xpi_be *be, int *fds, int max)
{
	if (max > 0)
		fds[0] = be->fd;
	if (max > 1 && be->timer >= 0)
		fds[1] = be->timer;
	return be->timer >= 0 ? 2 : 1;
}

/*
 * Asked for the next completion, an adapter need not tell of those that are there already (ibv_req_notify_cq(3)), and UCX,
 * which polled before it asked, does not look again (uct_ib_iface_arm_cq, in 1.13 and since): the wake-up is lost.  So
 * it is made to.
 */
int ucx_arm(struct xpi_be *be)
{
	ucs_status_t status = ucp_worker_arm(be->worker);

	if (status == UCS_ERR_BUSY || (status == UCS_OK && be->rdma && ucx_poll(be) != 0))
		return XPORT_ERR_AGAIN;
	if (status != UCS_OK)
		return ucx_fail(be, status, NULL, "arming UCX's event descriptor");
	if (be->timer >= 0 && (be->npending > 0 || (be->aside & UCX_ASIDE_ASKED)))
		return nap(be) ? XPORT_OK : XPORT_ERR_AGAIN;
	return XPORT_OK;
}
