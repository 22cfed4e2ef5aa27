/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * monitor.c - the helper: one epoll set with a timer in it, watches, and the thread around them.
 *
 * The thread sleeps in poll(2) on the epoll set and fetches events only under the lock.  So an event in hand always
 * belongs to an object that is still there: removing one takes the lock, and takes its events out of the set.
 */
#include "core/liveness/monitor.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "core/liveness/monitor_impl.h"

enum { BATCH = 64 };

/* Instrumented code needs more stack than it looks. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STACK = 1 << 20 };
#else
enum { STACK = 64 << 10 };
#endif

static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static struct xpi_live *shared;

/* ---- One round ---- */

static void watch_ring(struct xpi_watch *w)
{
	if (!atomic_exchange(&w->rang, true))
		xpi_live_raise(&w->wake_flag);
}

static void handle_event(struct xpi_live *live, uint64_t data, int64_t now)
{
	enum xpi_live_source source = data & 7;
	void *object = (void *)(uintptr_t)(data & ~(uint64_t)7);

	if (object == NULL)
		return; /* the timer: that it woke us is all it is for */
	if (source == XPI_LIVE_WATCH)
		watch_ring(object);
	else
		xpi_chan_event(live, object, source, now);
}

static void handle_chans(struct xpi_live *live, int64_t now, int64_t late)
{
	int64_t due = INT64_MAX, when;

	xpi_list_for(pos, &live->chans) {
		when = xpi_chan_due(live, xpi_container(pos, struct xpi_chan, link), now, late);
		if (when < due)
			due = when;
	}
	live->chans_due_ms = due;
}

static void handle_deadlines(struct xpi_live *live, int64_t now)
{
	int64_t late = now - live->due_ms, due;

	if (late < 0)
		return;
	if (now >= live->chans_due_ms)
		handle_chans(live, now, late);
	due = live->chans_due_ms;
	xpi_list_for(pos, &live->watches) {
		struct xpi_watch *w = xpi_container(pos, struct xpi_watch, link);

		if (w->deadline_ms < 0 || atomic_load(&w->rang))
			continue;
		if (w->deadline_ms <= now)
			watch_ring(w);
		else if (w->deadline_ms < due)
			due = w->deadline_ms;
	}
	live->due_ms = due;
	xpi_live_set_timer(live);
}

/*
 * Reads what has come before it judges who was silent: after this process itself was stopped, the others' beats are
 * waiting.  Each descriptor gets its turn, and none a second one for ever.
 */
static void monitor_step(struct xpi_live *live)
{
	struct epoll_event ev[BATCH];
	unsigned rounds = 2 + 2 * live->nchans / BATCH;
	int64_t now = xpi_now_ms();
	int n;

	do {
		n = epoll_wait(live->epfd, ev, BATCH, 0);
		live->failed = n < 0;
		for (int i = 0; i < n; i++)
			handle_event(live, ev[i].data.u64, now);
	} while (n == BATCH && --rounds > 0);
	handle_deadlines(live, now);
}

/* Whether the epoll set is one still: the application may have closed it, and the number be another file's by now. */
static bool set_is_open(struct xpi_live *live)
{
	struct epoll_event timer = {.events = EPOLLIN};

	return epoll_ctl(live->epfd, EPOLL_CTL_MOD, live->timer, &timer) == 0 ||
	       (errno != EBADF && errno != EINVAL && errno != ENOENT && errno != EPERM);
}

/* Nothing can be heard or said any more: every peer is lost. */
static void lose_all(struct xpi_live *live)
{
	live->closed = true;
	xpi_list_for(pos, &live->chans)
		xpi_chan_closed(xpi_container(pos, struct xpi_chan, link));
	xpi_list_for(pos, &live->watches) {
		struct xpi_watch *w = xpi_container(pos, struct xpi_watch, link);

		atomic_store(&w->rang, true);
		atomic_fetch_or_explicit(w->wake_flag.attention, XPI_ATTEND_ALL, memory_order_release);
	}
}

/*
 * Sleeps for a limited time: a set that was closed meanwhile (close_range(2)) wakes nobody.  Once it is, the thread has nothing
 * to do but to wait for its end, for which nothing wakes it.
 */
static void *thread_main(void *arg)
{
	enum { LOOK_MS = 1000, CLOSED_MS = 50 };
	struct xpi_live *live = arg;
	struct pollfd pfd = {.fd = live->epfd, .events = POLLIN};
	bool stop;
	int n;

	do {
		n = poll(live->closed ? NULL : &pfd, live->closed ? 0 : 1, live->closed ? CLOSED_MS : LOOK_MS);
		pthread_mutex_lock(&live->lock);
		stop = live->stop;
		if (!stop && !live->closed && (n == 0 || (pfd.revents & ~POLLIN) != 0 || live->failed) &&
		    !set_is_open(live))
			lose_all(live);
		if (!stop && !live->closed)
			monitor_step(live);
		pthread_mutex_unlock(&live->lock);
	} while (!stop);
	return NULL;
}

/* ---- Coming and going ---- */

static int start_thread(struct xpi_live *live)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int rc = pthread_attr_init(&attr);

	if (rc != 0)
		return rc;
	/* The application's signals are not for this thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_setstacksize(&attr, (size_t)PTHREAD_STACK_MIN + STACK);
	rc = pthread_create(&live->thread, &attr, thread_main, live);
	/* Another library's thread-local storage may need more than that. */
	if (rc == EINVAL)
		rc = pthread_create(&live->thread, NULL, thread_main, live);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (rc == 0)
		(void)pthread_setname_np(live->thread, "xport-live");
	return rc;
}

static void live_free(struct xpi_live *live)
{
	if (live->timer >= 0)
		close(live->timer);
	if (live->epfd >= 0)
		close(live->epfd);
	pthread_mutex_destroy(&live->lock);
	free(live);
}

static int live_new(bool thread, struct xpi_live **out, struct xport_error *err)
{
	struct xpi_live *live = calloc(1, sizeof(*live));

	if (live == NULL)
		return xpi_fail(err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for the liveness thread");
	pthread_mutex_init(&live->lock, NULL);
	xpi_list_init(&live->watches);
	xpi_list_init(&live->chans);
	live->refs = 1;
	live->pid = getpid();
	live->threaded = thread;
	live->due_ms = live->chans_due_ms = INT64_MAX;
	live->epfd = xpi_fd_up(epoll_create1(EPOLL_CLOEXEC));
	live->timer = xpi_fd_up(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	if (live->epfd < 0 || live->timer < 0 ||
	    xpi_live_ctl(live, EPOLL_CTL_ADD, live->timer, EPOLLIN, NULL, XPI_LIVE_WATCH) != XPORT_OK) {
		xpi_fail_errno(err, XPORT_ERR_SYSTEM, NULL, "cannot create the descriptors of the liveness thread");
		live_free(live);
		return XPORT_ERR_SYSTEM;
	}
	if (thread) {
		errno = start_thread(live);
		if (errno != 0) {
			xpi_fail_errno(err, XPORT_ERR_SYSTEM, "XPORT_LIVENESS=poll needs no such thread",
			               "cannot start the liveness thread");
			live_free(live);
			return XPORT_ERR_SYSTEM;
		}
	}
	*out = live;
	return XPORT_OK;
}

int xpi_live_get(bool thread, struct xpi_live **live, struct xport_error *err)
{
	int rc = XPORT_OK;

	if (!thread)
		return live_new(false, live, err);
	pthread_mutex_lock(&shared_lock);
	/* In a forked child the parent's is only a memory: its thread is not here. */
	if (shared != NULL && shared->pid != getpid())
		shared = NULL;
	if (shared != NULL)
		shared->refs++;
	else
		rc = live_new(true, &shared, err);
	if (rc == XPORT_OK)
		*live = shared;
	pthread_mutex_unlock(&shared_lock);
	return rc;
}

void xpi_live_put(struct xpi_live *live)
{
	/* In a forked child the locks may be held by nobody for ever, and the epoll set is the parent's. */
	if (live == NULL || live->pid != getpid())
		return;
	if (!live->threaded) {
		live_free(live);
		return;
	}
	pthread_mutex_lock(&shared_lock);
	if (--live->refs == 0) {
		pthread_mutex_lock(&live->lock);
		live->stop = true;
		xpi_live_due(live, 0);
		pthread_mutex_unlock(&live->lock);
		pthread_join(live->thread, NULL);
		live_free(live);
		shared = NULL;
	}
	pthread_mutex_unlock(&shared_lock);
}

int xpi_live_step(struct xpi_live *live)
{
	int64_t left;

	pthread_mutex_lock(&live->lock);
	monitor_step(live);
	left = live->due_ms - xpi_now_ms();
	pthread_mutex_unlock(&live->lock);
	if (left < 0)
		return 0;
	return left < INT_MAX ? (int)left : INT_MAX;
}

int xpi_live_fd(struct xpi_live *live)
{
	return live->threaded ? -1 : live->epfd;
}

/* ---- Watches ---- */

/* The caller holds the lock. */
static int watch_set(struct xpi_live *live, struct xpi_watch *w, int op)
{
	atomic_store(&w->rang, false);
	if (w->fd >= 0 && xpi_live_ctl(live, op, w->fd, w->events | EPOLLONESHOT, w, XPI_LIVE_WATCH) != XPORT_OK)
		return XPORT_ERR_SYSTEM;
	if (w->deadline_ms >= 0) {
		int64_t now = xpi_now_ms();

		/* One that has passed already does not mean that this process was late. */
		xpi_live_due(live, w->deadline_ms > now ? w->deadline_ms : now);
	}
	return XPORT_OK;
}

int xpi_watch_add(struct xpi_live *live, struct xpi_watch *w)
{
	int rc;

	pthread_mutex_lock(&live->lock);
	rc = watch_set(live, w, EPOLL_CTL_ADD);
	if (rc == XPORT_OK) {
		xpi_list_push(&live->watches, &w->link);
		w->added = true;
	}
	pthread_mutex_unlock(&live->lock);
	return rc;
}

int xpi_watch_arm(struct xpi_live *live, struct xpi_watch *w, uint32_t events, int64_t deadline_ms)
{
	int rc;

	pthread_mutex_lock(&live->lock);
	w->events = events;
	w->deadline_ms = deadline_ms;
	rc = watch_set(live, w, EPOLL_CTL_MOD);
	pthread_mutex_unlock(&live->lock);
	return rc;
}

void xpi_watch_remove(struct xpi_live *live, struct xpi_watch *w)
{
	if (!w->added || live->pid != getpid())
		return;
	pthread_mutex_lock(&live->lock);
	if (w->fd >= 0)
		(void)xpi_live_ctl(live, EPOLL_CTL_DEL, w->fd, 0, w, XPI_LIVE_WATCH);
	xpi_list_del(&w->link);
	w->added = false;
	pthread_mutex_unlock(&live->lock);
}

void xpi_watch_close(struct xpi_live *live, struct xpi_watch *w)
{
	xpi_watch_remove(live, w);
	pthread_mutex_lock(&live->lock);
	if (w->fd >= 0 && !live->closed)
		close(w->fd);
	w->fd = -1;
	pthread_mutex_unlock(&live->lock);
}
