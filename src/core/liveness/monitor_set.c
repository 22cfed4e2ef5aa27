/* SPDX-License-Identifier: BSD-3-Clause */
/* monitor_set.c - the epoll set with its timer, and the wake-up of an owner: what monitor.c and keepalive.c both call. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "core/liveness/monitor_impl.h"

int xpi_live_ctl(struct xpi_live *live, int op, int fd, uint32_t events, void *object, enum xpi_live_source source)
{
	struct epoll_event ev = {.events = events};

	ev.data.u64 = (uintptr_t)object | source;
	/* The number may be another file's by now. */
	if (live->closed) {
		errno = EBADF;
		return XPORT_ERR_SYSTEM;
	}
	return epoll_ctl(live->epfd, op, fd, &ev) == 0 ? XPORT_OK : XPORT_ERR_SYSTEM;
}

void xpi_live_set_timer(struct xpi_live *live)
{
	struct itimerspec its = {0};
	int64_t ms = live->due_ms;

	/* Zero would switch it off. */
	if (ms < 1)
		ms = 1;
	if (ms != INT64_MAX) {
		its.it_value.tv_sec = (time_t)(ms / 1000);
		its.it_value.tv_nsec = (long)(ms % 1000) * 1000000;
	}
	(void)timerfd_settime(live->timer, TFD_TIMER_ABSTIME, &its, NULL);
}

void xpi_live_due(struct xpi_live *live, int64_t when_ms)
{
	if (when_ms >= live->due_ms)
		return;
	live->due_ms = when_ms;
	xpi_live_set_timer(live);
}

void xpi_live_raise(struct xpi_wake_flag *flag)
{
	unsigned what = flag->conns ? XPI_ATTEND_CONNS : XPI_ATTEND_ALL;
	uint64_t one = 1;
	ssize_t n;

	atomic_fetch_or_explicit(flag->attention, what, memory_order_release);
	do
		n = write(flag->wake_fd, &one, sizeof(one));
	while (n < 0 && errno == EINTR);
	/* Again: who finds it set empties the descriptor, and may have done so before that was written. */
	atomic_fetch_or_explicit(flag->attention, what, memory_order_release);
}
