/* SPDX-License-Identifier: BSD-3-Clause */
/* wait.c - sleeping: the one descriptor, and the progress thread. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/signals.h"
#include "core/object/completion.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/place.h"
#include "core/object/poll_budget.h"
#include "core/object/wakeup.h"
#include "core/progress/progress.h"

/* ---- many who sleep ---- */

enum { DOZE_MS = 1000, SLICE_MS = 10, WITHOUT_MS = 1 };
enum { BUSY_POLLS = 1024 }; /* polls without sleep, before a wait does what it does when it sleeps */

/* Beside other threads nobody sleeps for longer: they may take what was to wake it off its descriptor. */
static int at_most(int timeout_ms, int ms)
{
	return timeout_ms < 0 || timeout_ms > ms ? ms : timeout_ms;
}

/* ppoll with the lock released.  False: a signal handler ran. */
static bool sleep_on(struct xport *x, int fd, int timeout_ms, const sigset_t *mask)
{
	struct timespec t = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int n;

	pthread_mutex_unlock(&x->lock);
	n = ppoll(&p, 1, timeout_ms < 0 ? NULL : &t, mask);
	if (n < 0)
		n = -errno;
	xpi_lock(x);
	xpi_wake(x); /* we go on to poll, and then what the other sleeps on does not wake it */
	return n != -EINTR;
}

static bool sleep_slice(struct xport *x, int timeout_ms, const sigset_t *mask)
{
	struct sleeper me = {.fd = xpi_fd_up(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))};
	int most = me.fd >= 0 ? DOZE_MS : WITHOUT_MS;
	bool more;

	xpi_list_push(&x->sleepers.crowd, &me.link);
	more = sleep_on(x, me.fd, at_most(timeout_ms, most), mask);
	xpi_list_del(&me.link);
	if (me.fd >= 0)
		close(me.fd);
	return more;
}

/* Where the application has closed the descriptor that is slept on: looks again by the clock, or it would take a CPU. */
static __attribute__((cold)) void pause_closed(int timeout_ms)
{
	(void)poll(NULL, 0, at_most(timeout_ms, SLICE_MS));
}

/* Sleeps with the signals of `mask` blocked; NULL: those that are.  *slept: whether it did, or there is something to do. */
static bool idle(struct xport *x, int timeout_ms, const sigset_t *mask, bool *slept)
{
	/* Who calls meanwhile is welcome, or else is to be found out. */
	bool others = (x->slow & (XPI_SLOW_LOCK | XPI_SLOW_WATCH)) == XPI_SLOW_LOCK;
	struct epoll_event ev;
	int n;

	if (x->sleepers.stirred)
		xpi_tell_crowd(x);
	*slept = true;
	if (x->thread_running || (others && x->sleepers.led))
		return sleep_slice(x, timeout_ms, mask);
	if (others && xpi_fd_shared(x) && (!xpi_cq_empty(&x->cq) || xpi_again_to_notify(x))) {
		/* It is for who sleeps on the descriptor; that is awake now, but may take its time. */
		xpi_fd_stay_readable(x);
		return sleep_slice(x, at_most(timeout_ms, SLICE_MS), mask);
	}
	*slept = xpi_fd_arm(x);
	if (!*slept) {
		if (xpi_fd_shared(x))
			xpi_fd_stay_readable(x); /* or who goes on to sleep on it does so for ever */
		xpi_let_in(x);
		return true;
	}
	x->sleepers.led = others;
	if (others)
		pthread_mutex_unlock(&x->lock);
	n = epoll_pwait(x->fd.set, &ev, 1, others ? at_most(timeout_ms, DOZE_MS) : timeout_ms, mask);
	if (n < 0)
		n = -errno;
	if (n < 0 && n != -EINTR)
		pause_closed(timeout_ms);
	if (others)
		xpi_lock(x);
	x->sleepers.led = x->sleepers.lead_told = false;
	if (xpi_fd_shared(x))
		xpi_fd_stay_readable(x);
	else
		xpi_fd_set_state(x, XPI_FD_UNUSED);
	return n != -EINTR;
}

bool xpi_idle(struct xport *x, int timeout_ms)
{
	bool slept;

	xpi_assert_locked(x);
	return idle(x, timeout_ms, NULL, &slept);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Nothing to be reaped yet, nor worth trying again since space was freed so many times: each thread that waits wakes up. */
static bool nothing(struct xport *x, uint32_t freed_times)
{
	if (x->backpressure.freed_times == freed_times)
		return xpi_cq_empty(&x->cq);
	if (xpi_fd_shared(x))
		xpi_again_to_notify(x);
	else
		xpi_again_notified_all(x);
	return false;
}

/* After so many polls in a row that found nothing: whether to poll on, or sleep.  *last: when something was found. */
static bool spins(const struct xpi_spin *spin, int64_t *last, unsigned vain)
{
	if (vain > 1)
		return !xpi_spin_over(spin, *last, now_ns());
	if (vain == 1) /* the clock is not looked at while there is something to do */
		*last = now_ns();
	return true;
}

/* A wait, from its first poll to its end. */
struct waiting {
	int64_t deadline; /* INT64_MAX: none */
	sigset_t mask;    /* of the signals that were blocked when it began; with signals_blocked */
	bool signals_blocked;
};

/* How long it may yet last: -1 for ever, 0 no longer. */
static int left_of(const struct waiting *w)
{
	int64_t left;

	if (w->deadline == INT64_MAX)
		return -1;
	left = w->deadline - xpi_now_ms();
	return left > 0 ? (int)left : 0;
}

/* Sleeps; or, with timeout_ms 0, only lets signals in, as sleeping would.  False: a signal handler ran. */
static bool sleeps(struct xport *x, struct waiting *w, int timeout_ms, bool *slept)
{
	static const struct timespec none;

	/* From the first sleep to the end of a wait signals come while we sleep and at no other time: a handler that ran between
	 * two sleeps would go unnoticed, and a back end that sleeps by the clock has many. */
	if (!w->signals_blocked)
		xpi_signals_hold(&w->mask);
	w->signals_blocked = true;
	if (timeout_ms == 0)
		return ppoll(NULL, 0, &none, &w->mask) == 0;
	return idle(x, timeout_ms, &w->mask, slept);
}

int xpi_wait(struct xport *x, int timeout_ms)
{
	struct waiting w = {.deadline = timeout_ms < 0 ? INT64_MAX : xpi_now_ms() + timeout_ms};
	uint32_t freed_times = xpi_again_tried_at(x);
	bool more = true, slept = true;
	unsigned vain = 0, awake = 0;
	int64_t last = 0;
	bool polled = false;
	int r = 0, left;

	xpi_assert_locked(x);
	while (more && nothing(x, freed_times)) {
		r = xpi_progress(x);
		if (r < 0) {
			r = xpi_cq_empty(&x->cq) ? r : 0; /* what ended by it comes first */
			break;
		}
		vain = r > 0 ? 0 : vain + 1;
		if (r > 0 && polled)
			xpi_spin_found(&x->sleepers.spin);
		polled = false;
		if (!xpi_cq_empty(&x->cq))
			continue;
		awake++;
		if (timeout_ms != 0 && spins(&x->sleepers.spin, &last, vain)) {
			polled = vain > 1;
			xpi_let_in(x);
		} else {
			left = left_of(&w);
			if (left == 0)
				break;
			more = sleeps(x, &w, left, &slept);
			if (slept) {
				last = xpi_spin_woke(&x->sleepers.spin, last, now_ns());
				awake = 0;
			}
		}
		/* There may be something to do, and nothing to reap, for ever. */
		if (more && awake >= BUSY_POLLS) {
			more = left_of(&w) != 0 && sleeps(x, &w, 0, &slept);
			awake = 0;
		}
	}
	if (w.signals_blocked)
		pthread_sigmask(SIG_SETMASK, &w.mask, NULL);
	return r < 0 ? r : 0;
}

/* ---- the progress thread ---- */

static void *progress_thread(void *arg)
{
	struct xport *x = arg;
	struct xpi_spin spin = x->sleepers.spin;
	struct epoll_event ev;
	unsigned vain = 0;
	int64_t last = 0;

	while (!atomic_load_explicit(&x->thread_stop, memory_order_acquire)) {
		bool sleep = false;

		xpi_lock(x);
		/* Of several transports, one may need the clock and another not. */
		if (spin.by_clock != x->sleepers.spin.by_clock)
			spin = x->sleepers.spin;
		if (xpi_progress(x) <= 0) {
			vain++;
		} else {
			if (vain > 1)
				xpi_spin_found(&spin);
			vain = 0;
		}
		xpi_user_fd_settle(x);
		if (x->sleepers.stirred)
			xpi_tell_crowd(x);
		if (!spins(&spin, &last, vain))
			sleep = xpi_fd_arm(x) && !atomic_load_explicit(&x->thread_stop, memory_order_acquire);
		xpi_let_in(x);
		pthread_mutex_unlock(&x->lock);
		if (!sleep) {
			if (vain > 20)
				sched_yield();
			continue;
		}
		if (epoll_wait(x->fd.set, &ev, 1, 1000) < 0 && errno != EINTR)
			pause_closed(1000);
		xpi_lock(x);
		xpi_fd_set_state(x, XPI_FD_UNUSED);
		pthread_mutex_unlock(&x->lock);
		last = xpi_spin_woke(&spin, last, now_ns());
		vain = 1;
	}
	return NULL;
}

int xpi_thread_start(struct xport *x)
{
	sigset_t all, old;
	int e;

	if (!x->settings.progress_thread)
		return XPORT_OK;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	x->thread_running = true;
	e = pthread_create(&x->thread, NULL, progress_thread, x);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (e != 0) {
		x->thread_running = false;
		errno = e;
		return xpi_fail_errno(&x->err, XPORT_ERR_SYSTEM, NULL, "cannot start the progress thread");
	}
	pthread_setname_np(x->thread, "xport-progress");
	xpi_place_thread(x);
	return XPORT_OK;
}

void xpi_thread_stop(struct xport *x)
{
	if (!x->thread_running)
		return;
	atomic_store_explicit(&x->thread_stop, true, memory_order_release);
	xpi_eventfd_write(x->fd.wake);
	pthread_join(x->thread, NULL);
	x->thread_running = false;
}
