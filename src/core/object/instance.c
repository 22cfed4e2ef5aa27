/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/object/instance.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/object/completion.h"
#include "core/object/latency.h"
#include "core/object/wakeup.h"

/* ---- the fork rule ---- */

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct xpi_list all = {&all, &all};
static pthread_once_t all_once = PTHREAD_ONCE_INIT;
/* This process was forked from one that had an instance open: the stacks' memory is a copy, their threads are not here. */
static bool forked;

static void before_fork(void)
{
	pthread_mutex_lock(&all_lock);
}

static void after_fork_parent(void)
{
	pthread_mutex_unlock(&all_lock);
}

static void after_fork_child(void)
{
	xpi_list_for(l, &all) {
		struct xport *x = xpi_container(l, struct xport, all);

		forked = true;
		x->slow |= XPI_SLOW_FORK;
		xpi_cq_close(&x->cq);
	}
	pthread_mutex_unlock(&all_lock);
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

bool xpi_is_forked(void)
{
	return forked;
}

void xpi_fork_watch(struct xport *x)
{
	pthread_once(&all_once, watch_forks);
	pthread_mutex_lock(&all_lock);
	xpi_list_push(&all, &x->all);
	pthread_mutex_unlock(&all_lock);
}

void xpi_fork_unwatch(struct xport *x)
{
	pthread_mutex_lock(&all_lock);
	xpi_list_del(&x->all);
	pthread_mutex_unlock(&all_lock);
}

/* The error that xport_last_error gives is the other thread's, so that only the log can tell. */
static bool locked_alone(struct xport *x)
{
	if (pthread_mutex_trylock(&x->lock) == 0)
		return true;
	xpi_log(x->log, XPORT_LOG_ERROR, "0008",
	        "refused a call while another thread was in a call of the same instance: call from one thread at a "
	        "time, or open with XPORT_THREAD_MULTIPLE");
	return false;
}

void xpi_lock(struct xport *x)
{
	if (pthread_mutex_trylock(&x->lock) == 0)
		return;
	atomic_fetch_add_explicit(&x->callers, 1, memory_order_relaxed);
	pthread_mutex_lock(&x->turn);
	pthread_mutex_lock(&x->lock);
	pthread_mutex_unlock(&x->turn);
	atomic_fetch_sub_explicit(&x->callers, 1, memory_order_relaxed);
}

/* A mutex alone would nearly always be ours again before those that sleep on it have woken. */
void xpi_let_callers_in(struct xport *x)
{
	pthread_mutex_unlock(&x->lock);
	pthread_mutex_lock(&x->turn);
	pthread_mutex_lock(&x->lock);
	pthread_mutex_unlock(&x->turn);
}

/* A thread that was cancelled while it holds the lock would never give it back (pthread_cancel(3)). */
static _Thread_local struct {
	bool held_off;
	int before;
} cancelling;

static void cancel_hold_off(void)
{
	/* A call that lets go of the lock in between enters twice. */
	if (!cancelling.held_off)
		cancelling.held_off = pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling.before) == 0;
}

void xpi_cancel_allow(void)
{
	if (!cancelling.held_off)
		return;
	cancelling.held_off = false;
	pthread_setcancelstate(cancelling.before, NULL);
}

/* With XPORT_STRICT, or where operations are measured. */
static int enter_watched(struct xport *x)
{
	if (x->slow & XPI_SLOW_WATCH) {
		if (!locked_alone(x)) {
			xpi_cancel_allow();
			return XPORT_ERR_INVALID;
		}
	} else if (x->slow & XPI_SLOW_LOCK) {
		xpi_lock(x);
	}
	if (x->slow & XPI_SLOW_TIMED)
		xpi_latency_entered(x);
	return XPORT_OK;
}

int xpi_enter_asleep(struct xport *x)
{
	if (x->slow & XPI_SLOW_FORK)
		return XPORT_ERR_FORK;
	if (x->slow & XPI_SLOW_LOCK)
		cancel_hold_off();
	if (x->slow & (XPI_SLOW_WATCH | XPI_SLOW_TIMED))
		return enter_watched(x);
	if (x->slow & XPI_SLOW_LOCK)
		xpi_lock(x);
	return XPORT_OK;
}

int xpi_enter_slowly(struct xport *x)
{
	int r = xpi_enter_asleep(x);

	if (r != XPORT_OK)
		return r;
	if (x->fd_state == XPI_FD_ARMED)
		xpi_wake(x);
	if (x->backpressure.freed)
		xpi_again_retry(x);
	return XPORT_OK;
}

int xpi_refuse(struct xport *x, int status, const char *operation, const char *fmt, ...)
{
	char text[sizeof(x->err.text)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(x->err.operation, sizeof(x->err.operation), "%s", operation);
	x->err.peer[0] = '\0'; /* of an earlier one */
	return xpi_fail(&x->err, status, 0, NULL, NULL, "%s", text);
}

int xpi_time_refuse(struct xport *x, const char *operation, int timeout_ms)
{
	return xpi_refuse(x, XPORT_ERR_INVALID, operation, "a time limit of %d ms is invalid: use -1 for no limit",
	                  timeout_ms);
}
