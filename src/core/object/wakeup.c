/* SPDX-License-Identifier: BSD-3-Clause */
/* wakeup.c - the instance's one descriptor: armed, signalled, settled. */
#include "core/object/wakeup.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "core/liveness/monitor.h"
#include "core/object/completion.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/poll_budget.h"
#include "core/object/set.h"
#include "core/object/transport.h"

enum { TRANSPORT_FDS = 8 };

static int epoll_add(struct xport *x, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};

	if (epoll_ctl(x->fd.set, EPOLL_CTL_ADD, fd, &ev) != 0)
		return xpi_fail_errno(&x->err, XPORT_ERR_SYSTEM, NULL, "cannot watch descriptor %d", fd);
	return XPORT_OK;
}

/* Whether the clock is needed for this transport now: one of several without endpoints waits for nothing. */
static bool is_waited_for(const struct xpi_transport *tp)
{
	return tp->neps > 0 || !xpi_several(tp->x);
}

static long shorter(long ms, long other)
{
	return ms == 0 || (other > 0 && other < ms) ? other : ms;
}

/* Milliseconds between two ticks, for operation timeouts and transports without a descriptor. 0: no tick is needed. */
static long tick_ms(const struct xport *x)
{
	long ms = x->settings.op_timeout_ms > 0 ? x->settings.op_timeout_ms / 4 + 1 : 0;

	xpi_list_for(l, &x->transports) {
		const struct xpi_transport *tp = xpi_container(l, struct xpi_transport, link);

		if (is_waited_for(tp))
			ms = shorter(ms, (long)tp->caps.poll_ms);
	}
	return ms;
}

static bool is_by_clock(const struct xport *x)
{
	xpi_list_for(l, &x->transports) {
		const struct xpi_transport *tp = xpi_container(l, struct xpi_transport, link);

		if (is_waited_for(tp) && (tp->caps.poll_ms != 0 || tp->caps.by_clock))
			return true;
	}
	return false;
}

static int timer_open(struct xport *x)
{
	x->fd.timer = xpi_fd_up(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	if (x->fd.timer < 0)
		return xpi_fail_errno(&x->err, XPORT_ERR_SYSTEM, NULL, "cannot create a timer descriptor");
	return epoll_add(x, x->fd.timer);
}

static void timer_set(struct xport *x, long ms)
{
	struct itimerspec t = {0};

	if (x->fd.timer < 0 || x->fd.tick_ms == ms)
		return;
	x->fd.tick_ms = ms;
	t.it_value.tv_sec = t.it_interval.tv_sec = ms / 1000;
	t.it_value.tv_nsec = t.it_interval.tv_nsec = ms % 1000 * 1000000;
	timerfd_settime(x->fd.timer, 0, &t, NULL);
}

int xpi_fd_add(struct xport *x, struct xpi_transport *tp)
{
	int fds[TRANSPORT_FDS], n = tp->ops->fds(tp->be, fds, TRANSPORT_FDS), r = XPORT_OK;

	for (int i = 0; i < n && r == XPORT_OK; i++)
		r = epoll_add(x, fds[i]);
	/* Where it has no endpoint yet, one that comes sets the timer. */
	if (r == XPORT_OK && x->fd.timer < 0 && (tp->caps.poll_ms != 0 || x->settings.op_timeout_ms > 0))
		r = timer_open(x);
	return r;
}

void xpi_fd_remove(struct xport *x, struct xpi_transport *tp)
{
	int fds[TRANSPORT_FDS], n = tp->ops->fds(tp->be, fds, TRANSPORT_FDS);

	for (int i = 0; i < n; i++)
		epoll_ctl(x->fd.set, EPOLL_CTL_DEL, fds[i], NULL);
}

void xpi_fd_clock(struct xport *x)
{
	bool by_clock = is_by_clock(x);

	if (x->sleepers.spin.by_clock != by_clock)
		xpi_spin_init(&x->sleepers.spin, by_clock);
	timer_set(x, tick_ms(x));
}

int xpi_fd_open(struct xport *x)
{
	int r;

	xpi_spin_init(&x->sleepers.spin, is_by_clock(x));
	x->fd.set = xpi_fd_up(epoll_create1(EPOLL_CLOEXEC));
	x->fd.wake = xpi_fd_up(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (x->fd.set < 0 || x->fd.wake < 0)
		return xpi_fail_errno(&x->err, XPORT_ERR_SYSTEM, NULL, "cannot create a descriptor for the instance");
	if (x->settings.progress_thread) {
		x->fd.user = xpi_fd_up(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
		if (x->fd.user < 0)
			return xpi_fail_errno(&x->err, XPORT_ERR_SYSTEM, NULL,
			                      "cannot create a descriptor for the instance");
	}
	r = epoll_add(x, x->fd.wake);
	xpi_list_for(l, &x->transports)
		if (r == XPORT_OK)
			r = xpi_fd_add(x, xpi_container(l, struct xpi_transport, link));
	timer_set(x, tick_ms(x));
	return r;
}

int xpi_fd_watch_live(struct xport *x)
{
	int fd = xpi_live_fd(x->live);

	return fd >= 0 ? epoll_add(x, fd) : XPORT_OK;
}

void xpi_fd_init(struct xport *x)
{
	x->fd.set = x->fd.wake = x->fd.timer = x->fd.user = -1;
}

void xpi_fd_close(struct xport *x)
{
	int fds[] = {x->fd.set, x->fd.wake, x->fd.timer, x->fd.user};

	for (unsigned i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	xpi_fd_init(x);
}

void xpi_eventfd_write(int fd)
{
	uint64_t one = 1;

	while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* Whether it had been written to, or had expired. */
static bool drain_event(int fd)
{
	uint64_t v;
	ssize_t n;

	if (fd < 0)
		return false;
	do
		n = read(fd, &v, sizeof(v));
	while (n < 0 && errno == EINTR);
	return n > 0;
}

/* With a lock, or where operations are measured, every call goes the slow way already, and looks at the state. */
void xpi_fd_set_state(struct xport *x, enum xpi_fd_state state)
{
	x->fd_state = state;
	if (x->slow & (XPI_SLOW_LOCK | XPI_SLOW_TIMED))
		return;
	x->slow = state == XPI_FD_ARMED ? XPI_SLOW_ARMED : 0;
	if (x->slow != 0)
		xpi_cq_close(&x->cq);
	else
		xpi_cq_open(&x->cq);
}

void xpi_wake(struct xport *x)
{
	if (x->fd_state != XPI_FD_ARMED)
		return; /* unused, or readable already */
	xpi_fd_stay_readable(x);
}

void xpi_fd_rung(struct xport *x)
{
	x->fd.rung = true;
}

void xpi_signal(struct xport *x)
{
	if (x->backpressure.wanted) {
		x->backpressure.freed = true;
		x->backpressure.notified_ms = 0;
		x->backpressure.freed_times++;
	}
	x->backpressure.wanted = false;
	x->sleepers.stirred = true;
	xpi_wake(x);
}

/* Has every transport report its next event by a descriptor; false: one has something to do first. */
static bool arm_all(struct xport *x)
{
	xpi_list_for(l, &x->transports) {
		struct xpi_transport *tp = xpi_container(l, struct xpi_transport, link);

		if (tp->broke == XPORT_OK && tp->ops->arm(tp->be) != XPORT_OK) {
			xpi_transport_used(tp); /* so that it is polled next */
			return false;
		}
	}
	return true;
}

/* From awake to ARMED; false: there is something to do first. */
bool xpi_fd_arm(struct xport *x)
{
	xpi_assert_locked(x);
	if (x->fd.rung) {
		x->fd.rung = false;
		drain_event(x->fd.wake);
	}
	if (!x->settings.liveness_thread)
		xpi_live_step(x->live); /* or what it watches keeps the descriptor readable */
	if (drain_event(x->fd.timer) && (x->todo & XPI_TODO_CLOCK) != 0) {
		x->todo |= XPI_TODO_TICK; /* who sleeps on the descriptor polls once a wake-up */
		return false;
	}
	if (atomic_load_explicit(&x->attention, memory_order_acquire) != 0 || !xpi_list_empty(&x->work) || !arm_all(x))
		return false;
	xpi_set_stir(x->set); /* who wakes up finds what woke it */
	xpi_fd_set_state(x, XPI_FD_ARMED);
	return true;
}

void xpi_fd_stay_readable(struct xport *x)
{
	x->fd.rung = true;
	xpi_eventfd_write(x->fd.wake);
	xpi_fd_set_state(x, XPI_FD_SIGNALLED);
}

/* With the progress thread the application's descriptor only says that something waits to be reaped. */
void xpi_user_fd_settle(struct xport *x)
{
	bool waiting = !xpi_cq_empty(&x->cq) || x->backpressure.freed;

	if (!x->fd.asked)
		return;
	if (waiting && !x->fd.user_signalled)
		xpi_eventfd_write(x->fd.user);
	else if (!waiting && x->fd.user_signalled)
		drain_event(x->fd.user);
	x->fd.user_signalled = waiting;
}

void xpi_fd_settle(struct xport *x)
{
	bool room = xpi_again_to_notify(x);

	if (x->thread_running) {
		xpi_user_fd_settle(x);
		return;
	}
	if (!x->fd.asked)
		return;
	if (!xpi_cq_empty(&x->cq) || room || x->reaped) {
		if (x->fd_state != XPI_FD_SIGNALLED)
			xpi_fd_stay_readable(x);
		return;
	}
	/* Who sleeps on the same descriptor wakes for what happened; quiet before it has seen that, it would sleep on. */
	x->sleepers.lead_told = x->sleepers.led && (x->sleepers.lead_told || x->sleepers.stirred);
	if (x->sleepers.lead_told ? x->fd_state != XPI_FD_SIGNALLED : !xpi_fd_arm(x))
		xpi_fd_stay_readable(x);
}

void xpi_tell_crowd(struct xport *x)
{
	x->sleepers.lead_told = x->sleepers.led && (x->sleepers.lead_told || x->sleepers.stirred);
	x->sleepers.stirred = false;
	xpi_list_for(l, &x->sleepers.crowd)
		xpi_eventfd_write(xpi_container(l, struct sleeper, link)->fd);
}

/* Only with the application's descriptor: it is readable while something waits. */
static int arm_user(struct xport *x)
{
	x->fd.asked = true;
	xpi_user_fd_settle(x);
	return x->fd.user_signalled ? XPORT_ERR_AGAIN : XPORT_OK;
}

/*
 * The next poll need not ask the network, which reports what it has when it is armed. Only every second time: an
 * application that posts for each completion may always find another one here.
 */
static void reap_next(struct xport *x)
{
	x->fd.only_reaped = x->slow == 0 && !x->fd.only_reaped;
	if (x->fd.only_reaped)
		x->slow = XPI_SLOW_REAP;
}

int xpi_fd_arm_now(struct xport *x)
{
	xpi_assert_locked(x);
	if (x->thread_running)
		return arm_user(x);
	if (!x->fd.by_arm) {
		x->fd.by_arm = true;
		x->fd.asked = false;
		x->todo &= ~(unsigned)XPI_TODO_SETTLE;
	}
	/* Another thread may have been told; this thread has not, even if the descriptor is armed already. */
	if (xpi_again_tell(x))
		return XPORT_ERR_AGAIN;
	if (x->fd_state == XPI_FD_ARMED)
		return XPORT_OK;
	/* Another thread sleeps on the descriptor, and has not seen what makes it readable. */
	if (x->sleepers.led)
		return XPORT_ERR_AGAIN;
	if (!xpi_cq_empty(&x->cq)) {
		reap_next(x);
		return XPORT_ERR_AGAIN;
	}
	x->fd.only_reaped = false;
	if (xpi_again_to_notify(x))
		return XPORT_ERR_AGAIN;
	if (xpi_fd_arm(x))
		return XPORT_OK;
	if (x->slow & XPI_SLOW_LOCK)
		xpi_fd_stay_readable(x); /* another thread may sleep, and what was to wake it was read off here */
	return XPORT_ERR_AGAIN;
}

void xpi_fd_disarm(struct xport *x)
{
	xpi_fd_set_state(x, XPI_FD_UNUSED);
}

int xpi_fd_ask(struct xport *x)
{
	if (!x->fd.asked && !x->fd.by_arm) {
		x->fd.asked = true;
		x->todo |= XPI_TODO_SETTLE;
		if (!x->thread_running)
			xpi_fd_stay_readable(x); /* the first poll settles it */
	}
	if (!x->thread_running)
		return x->fd.set;
	xpi_user_fd_settle(x);
	return x->fd.user;
}
