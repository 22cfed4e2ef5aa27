/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx_poll.c - progress and waiting. */
#include <sys/timerfd.h>

#include "ucx.h"

enum { NAP_AFTER = 200, NAP_NS = 1000000 };

/*
 * Sets a timer to sleep while requests wait. False: keep polling. UCX's shared memory does not report when a peer's queue has
 * space again. If asked for that event, it refuses to be armed while a request waits, and for ever if the peer is stopped. So
 * it is not asked (worker_open). While requests wait the core polls, and after many polls without an event it sleeps until the
 * timer expires.
 */
static bool poll_nap(struct xpi_be *be)
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
		(void)timerfd_settime(be->timer, 0, &off, NULL); /* also clears an expiry that was not read */
	}
	if (be->aside & UCX_ASIDE_ASKED)
		ucx_watchdog_look(be, n);
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
 * Checks for completions after arming as well. An armed adapter need not report completions that are already there
 * (ibv_req_notify_cq(3)), and UCX, which polls before it arms, does not check again (uct_ib_iface_arm_cq, in 1.13 and later).
 * The wake-up would be lost.
 */
int ucx_arm(struct xpi_be *be)
{
	ucs_status_t status = ucp_worker_arm(be->worker);

	if (status == UCS_ERR_BUSY || (status == UCS_OK && be->rdma && ucx_poll(be) != 0))
		return XPORT_ERR_AGAIN;
	if (status != UCS_OK)
		return ucx_fail(be, status, NULL, "arming UCX's event descriptor");
	if (be->timer >= 0 && (be->npending > 0 || (be->aside & UCX_ASIDE_ASKED)))
		return poll_nap(be) ? XPORT_OK : XPORT_ERR_AGAIN;
	return XPORT_OK;
}
