/* SPDX-License-Identifier: BSD-3-Clause */
/* wait.c - sleeping: the one descriptor, and the progress thread. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "core/ep.h"
#include "core/instance.h"

/* ---- the descriptor ---- */

static int add(struct xport *x, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};

	if (epoll_ctl(x->epfd, EPOLL_CTL_ADD, fd, &ev) != 0)
		return xpi_fail_errno(&x->err, XPORT_ERR_SYSTEM, NULL, "cannot watch descriptor %d", fd);
	return XPORT_OK;
}

/* Ticks for what has no descriptor of its own. */
static int timer_open(struct xport *x)
{
	long ms = (long)x->caps.poll_ms;
	struct itimerspec t = {0};

	if (x->settings.op_timeout_ms > 0 && (ms == 0 || ms > x->settings.op_timeout_ms / 4 + 1))
		ms = x->settings.op_timeout_ms / 4 + 1;
	if (ms == 0)
		return XPORT_OK;
	x->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (x->timer < 0)
		return xpi_fail_errno(&x->err, XPORT_ERR_SYSTEM, "raise `ulimit -n`", "no timer descriptor");
	t.it_value.tv_sec = t.it_interval.tv_sec = ms / 1000;
	t.it_value.tv_nsec = t.it_interval.tv_nsec = ms % 1000 * 1000000;
	timerfd_settime(x->timer, 0, &t, NULL);
	return add(x, x->timer);
}

int xpi_fd_open(struct xport *x)
{
	int fds[8], n, r;

	xpi_spin_init(&x->spin, x->caps.poll_ms != 0 || x->caps.by_clock);
	x->epfd = epoll_create1(EPOLL_CLOEXEC);
	x->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (x->epfd < 0 || x->wake < 0)
		return xpi_fail_errno(&x->err, XPORT_ERR_SYSTEM, "raise `ulimit -n`", "no descriptor for the instance");
	if (x->settings.progress_thread) {
		x->user_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (x->user_fd < 0)
			return xpi_fail_errno(&x->err, XPORT_ERR_SYSTEM, "raise `ulimit -n`",
			                      "no descriptor for the instance");
	}
	r = add(x, x->wake);
	n = x->ops->fds(x->be, fds, 8);
	for (int i = 0; i < n && r == XPORT_OK; i++)
		r = add(x, fds[i]);
	return r == XPORT_OK ? timer_open(x) : r;
}

int xpi_fd_watch_live(struct xport *x)
{
	int fd = xpi_live_fd(x->live);

	return fd >= 0 ? add(x, fd) : XPORT_OK;
}

void xpi_fd_close(struct xport *x)
{
	int fds[] = {x->epfd, x->wake, x->timer, x->user_fd};

	for (unsigned i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	x->epfd = x->wake = x->timer = x->user_fd = -1;
}

static void write_event(int fd)
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

/* Where there is a lock, every call goes the slow way already, and looks at the state once it has it. */
static void set_state(struct xport *x, enum xpi_fd_state state)
{
	x->fd_state = state;
	if (x->slow & XPI_SLOW_LOCK)
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
	set_state(x, XPI_FD_SIGNALLED);
	write_event(x->wake);
}

void xpi_signal(struct xport *x)
{
	if (x->want_space) {
		x->space_freed = true;
		x->space_told_ms = 0;
		x->space_freed_times++;
	}
	x->want_space = false;
	x->stirred = true;
	xpi_wake(x);
}

/* From awake to ARMED; false: there is something to do first. */
static bool arm(struct xport *x)
{
	if (x->fd_state != XPI_FD_ARMED)
		drain_event(x->wake);
	if (!x->settings.liveness_thread)
		xpi_live_step(x->live); /* or what it watches keeps the descriptor readable */
	if (drain_event(x->timer) && (x->todo & XPI_TODO_CLOCK) != 0) {
		x->todo |= XPI_TODO_TICK; /* who sleeps on the descriptor polls once a wake-up */
		return false;
	}
	if (atomic_load_explicit(&x->attention, memory_order_acquire) != 0 || !xpi_list_empty(&x->work) ||
	    x->ops->arm(x->be) != XPORT_OK)
		return false;
	set_state(x, XPI_FD_ARMED);
	return true;
}

static void stay_readable(struct xport *x)
{
	write_event(x->wake);
	set_state(x, XPI_FD_SIGNALLED);
}

/* What this thread was last answered AGAIN by, how often room had become free by then, and whether it was told since. */
static _Thread_local struct {
	const struct xport *x;
	const struct xport_ep *ep; /* NULL: a receive */
	uint32_t freed_times;
	bool told;
} refused;

/* This thread is not one of those that are still to be told. */
static void told(struct xport *x)
{
	refused.told = true;
	if (x->refused > 0)
		x->refused--;
	if (x->refused == 0)
		x->space_freed = false;
}

void xpi_want_space(struct xport *x, const struct xport_ep *ep)
{
	x->want_space = true;
	if (refused.x != x || refused.told)
		x->refused++;
	refused.x = x;
	refused.ep = ep;
	refused.freed_times = x->space_freed_times;
	refused.told = false;
}

void xpi_found_space(struct xport *x, const struct xport_ep *ep)
{
	if (refused.x != x || refused.ep != ep)
		return;
	if (!refused.told)
		told(x);
	refused.x = NULL;
}

void xpi_came_back(struct xport *x)
{
	if (x->space_told_ms != 0 && refused.x == x && !refused.told)
		told(x);
}

/*
 * Whether the descriptor is to say that there is room: until each thread that was refused has come back.  One that sleeps on it
 * and does not run before another has polled would find it unreadable, and sleep on.  Whoever is away for so long does not mean
 * to come.
 */
static bool room_to_tell(struct xport *x)
{
	enum { TIME_TO_COME_MS = 1000 };

	if (!x->space_freed)
		return false;
	if (x->space_told_ms == 0) {
		x->space_told_ms = xpi_now_ms();
		return true;
	}
	xpi_came_back(x);
	if ((x->slow & XPI_SLOW_LOCK) == 0 || xpi_now_ms() - x->space_told_ms >= TIME_TO_COME_MS)
		x->refused = 0;
	if (x->refused == 0)
		x->space_freed = false;
	return x->space_freed;
}

/* With the progress thread the application's descriptor only says that something waits to be reaped. */
static void user_fd_settle(struct xport *x)
{
	bool waiting = !xpi_cq_empty(&x->cq) || x->space_freed;

	if (!x->fd_asked)
		return;
	if (waiting && !x->user_signalled)
		write_event(x->user_fd);
	else if (!waiting && x->user_signalled)
		drain_event(x->user_fd);
	x->user_signalled = waiting;
}

void xpi_fd_settle(struct xport *x)
{
	bool room = room_to_tell(x);

	if (x->thread_running) {
		user_fd_settle(x);
		return;
	}
	if (!x->fd_asked)
		return;
	if (!xpi_cq_empty(&x->cq) || room || x->reaped) {
		if (x->fd_state != XPI_FD_SIGNALLED)
			stay_readable(x);
		return;
	}
	/* Who sleeps on the same descriptor wakes for what happened; quiet before it has seen that, it would sleep on. */
	x->lead_told = x->led && (x->lead_told || x->stirred);
	if (x->lead_told ? x->fd_state != XPI_FD_SIGNALLED : !arm(x))
		stay_readable(x);
}

/* ---- many who sleep ---- */

/*
 * One sleeps on what the back end has, and makes progress when that wakes it: the first to come, or the progress thread.
 * The others of the crowd sleep each on a descriptor of its own, and are told whenever something has happened, by whoever it
 * happened to, and whenever somebody leaves, who may have been the first.
 */
struct sleeper {
	struct xpi_list link; /* xport.crowd */
	int fd;
};

enum { DOZE_MS = 1000, NAP_MS = 10, WITHOUT_MS = 1 };
enum { AWAKE = 1024 }; /* polls without sleep, before a wait does what it does when it sleeps */

/* Beside other threads nobody sleeps for longer: they may take what was to wake it off its descriptor. */
static int at_most(int timeout_ms, int ms)
{
	return timeout_ms < 0 || timeout_ms > ms ? ms : timeout_ms;
}

void xpi_tell_crowd(struct xport *x)
{
	x->lead_told = x->led && (x->lead_told || x->stirred);
	x->stirred = false;
	xpi_list_for(l, &x->crowd)
		write_event(xpi_container(l, struct sleeper, link)->fd);
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

static bool doze(struct xport *x, int timeout_ms, const sigset_t *mask)
{
	struct sleeper me = {.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	int most = me.fd >= 0 ? DOZE_MS : WITHOUT_MS;
	bool more;

	xpi_list_push(&x->crowd, &me.link);
	more = sleep_on(x, me.fd, at_most(timeout_ms, most), mask);
	xpi_list_del(&me.link);
	if (me.fd >= 0)
		close(me.fd);
	return more;
}

/* Sleeps with the signals of `mask` blocked; NULL: those that are.  *slept: whether it did, or there is something to do. */
static bool idle(struct xport *x, int timeout_ms, const sigset_t *mask, bool *slept)
{
	/* Who calls meanwhile is welcome, or else is to be found out. */
	bool others = (x->slow & (XPI_SLOW_LOCK | XPI_SLOW_WATCH)) == XPI_SLOW_LOCK;
	struct epoll_event ev;
	int n;

	if (x->stirred)
		xpi_tell_crowd(x);
	*slept = true;
	if (x->thread_running || (others && x->led))
		return doze(x, timeout_ms, mask);
	if (others && x->fd_asked && (!xpi_cq_empty(&x->cq) || room_to_tell(x))) {
		/* It is for who sleeps on the descriptor; that is awake now, but may take its time. */
		stay_readable(x);
		return doze(x, at_most(timeout_ms, NAP_MS), mask);
	}
	*slept = arm(x);
	if (!*slept) {
		if (x->fd_asked)
			stay_readable(x); /* or who goes on to sleep on it does so for ever */
		xpi_let_in(x);
		return true;
	}
	x->led = others;
	if (others)
		pthread_mutex_unlock(&x->lock);
	n = epoll_pwait(x->epfd, &ev, 1, others ? at_most(timeout_ms, DOZE_MS) : timeout_ms, mask);
	if (n < 0)
		n = -errno;
	if (others)
		xpi_lock(x);
	x->led = x->lead_told = false;
	if (x->fd_asked)
		stay_readable(x);
	else
		set_state(x, XPI_FD_UNUSED);
	return n != -EINTR;
}

bool xpi_idle(struct xport *x, int timeout_ms)
{
	bool slept;

	return idle(x, timeout_ms, NULL, &slept);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Nothing to be reaped yet, nor worth trying again since space was freed so many times: each thread that waits is told. */
static bool nothing(struct xport *x, uint32_t freed_times)
{
	if (x->space_freed_times == freed_times)
		return xpi_cq_empty(&x->cq);
	if (x->fd_asked)
		room_to_tell(x);
	else
		x->space_freed = false;
	return false;
}

/*
 * From the first sleep to the end of a wait signals come while we sleep and at no other time: a handler that ran between
 * two sleeps would go unnoticed, and a back end that sleeps by the clock has many.  What a fault raises is not held back.
 */
static void hush(sigset_t *old)
{
	static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
	sigset_t set;

	sigfillset(&set);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigdelset(&set, faults[i]);
	pthread_sigmask(SIG_BLOCK, &set, old);
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

/* Since how many times trying again is worth it for this thread: what others were told meanwhile, it was not. */
static uint32_t tried_at(struct xport *x)
{
	if (refused.x != x)
		return x->space_freed_times - (x->space_freed && x->space_told_ms == 0);
	if (!refused.told)
		told(x);
	refused.x = NULL;
	return refused.freed_times;
}

/* A wait, from its first poll to its end. */
struct waiting {
	int64_t deadline; /* INT64_MAX: none */
	sigset_t mask;    /* of the signals that were blocked when it began; with hushed */
	bool hushed;
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

	if (!w->hushed)
		hush(&w->mask);
	w->hushed = true;
	if (timeout_ms == 0)
		return ppoll(NULL, 0, &none, &w->mask) == 0;
	return idle(x, timeout_ms, &w->mask, slept);
}

int xpi_wait(struct xport *x, int timeout_ms)
{
	struct waiting w = {.deadline = timeout_ms < 0 ? INT64_MAX : xpi_now_ms() + timeout_ms};
	uint32_t freed_times = tried_at(x);
	bool more = true, slept = true;
	unsigned vain = 0, awake = 0;
	int64_t last = 0;
	int r = 0, left;

	while (more && nothing(x, freed_times)) {
		r = xpi_progress(x);
		if (r < 0) {
			r = xpi_cq_empty(&x->cq) ? r : 0; /* what ended by it comes first */
			break;
		}
		vain = r > 0 ? 0 : vain + 1;
		if (!xpi_cq_empty(&x->cq))
			continue;
		awake++;
		if (timeout_ms != 0 && spins(&x->spin, &last, vain)) {
			xpi_let_in(x);
		} else {
			left = left_of(&w);
			if (left == 0)
				break;
			more = sleeps(x, &w, left, &slept);
			if (slept) {
				last = xpi_spin_woke(&x->spin, last, now_ns());
				awake = 0;
			}
		}
		/* There may be something to do, and nothing to reap, for ever. */
		if (more && awake >= AWAKE) {
			more = left_of(&w) != 0 && sleeps(x, &w, 0, &slept);
			awake = 0;
		}
	}
	if (w.hushed)
		pthread_sigmask(SIG_SETMASK, &w.mask, NULL);
	return r < 0 ? r : 0;
}

int xpi_fd_ask(struct xport *x)
{
	if (!x->fd_asked) {
		x->fd_asked = true;
		x->todo |= XPI_TODO_SETTLE;
		if (!x->thread_running)
			stay_readable(x); /* the first poll settles it */
	}
	if (!x->thread_running)
		return x->epfd;
	user_fd_settle(x);
	return x->user_fd;
}

/* ---- the progress thread ---- */

static void *progress_thread(void *arg)
{
	struct xport *x = arg;
	struct xpi_spin spin = x->spin;
	struct epoll_event ev;
	unsigned vain = 0;
	int64_t last = 0;

	while (!atomic_load_explicit(&x->thread_stop, memory_order_acquire)) {
		bool sleep = false;

		xpi_lock(x);
		vain = xpi_progress(x) > 0 ? 0 : vain + 1;
		user_fd_settle(x);
		if (x->stirred)
			xpi_tell_crowd(x);
		if (!spins(&spin, &last, vain))
			sleep = arm(x) && !atomic_load_explicit(&x->thread_stop, memory_order_acquire);
		xpi_let_in(x);
		pthread_mutex_unlock(&x->lock);
		if (!sleep) {
			if (vain > 20)
				sched_yield();
			continue;
		}
		epoll_wait(x->epfd, &ev, 1, 1000);
		xpi_lock(x);
		set_state(x, XPI_FD_UNUSED);
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
	if (x->settings.progress_core >= 0) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(x->settings.progress_core, &set);
		e = pthread_setaffinity_np(x->thread, sizeof(set), &set);
		if (e != 0)
			xpi_log(x->log, XPORT_LOG_WARN, "0006", "cannot pin the progress thread to core %d: error %d",
			        x->settings.progress_core, e);
	}
	return XPORT_OK;
}

void xpi_thread_stop(struct xport *x)
{
	if (!x->thread_running)
		return;
	atomic_store_explicit(&x->thread_stop, true, memory_order_release);
	write_event(x->wake);
	pthread_join(x->thread, NULL);
	x->thread_running = false;
}
