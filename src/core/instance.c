/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/open.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/cma.h"
#include "core/conn_impl.h"
#include "core/match.h"
#include "core/msg.h"
#include "core/opq.h"
#include "core/registry.h"
#include "core/rkey.h"
#include "core/rma.h"
#include "core/rx.h"
#include "core/select.h"
#include "core/serve.h"
#include "core/tx.h"

/* ---- the fork rule ---- */

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct xpi_list all = {&all, &all};
static pthread_once_t all_once = PTHREAD_ONCE_INIT;

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

		x->slow |= XPI_SLOW_FORK;
		xpi_cq_close(&x->cq);
	}
	pthread_mutex_unlock(&all_lock);
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

/* The error that xport_last_error gives is the other thread's, so that only the log can tell. */
static bool locked_alone(struct xport *x)
{
	if (pthread_mutex_trylock(&x->lock) == 0)
		return true;
	xpi_log(x->log, XPORT_LOG_ERROR, "0008",
	        "a thread called while another one was in a call of the same instance, and was refused: let in one at "
	        "a "
	        "time, or open it with XPORT_THREAD_MULTIPLE");
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

int xpi_enter_asleep(struct xport *x)
{
	if (x->slow & XPI_SLOW_FORK)
		return XPORT_ERR_FORK;
	if (x->slow & XPI_SLOW_WATCH) {
		if (!locked_alone(x))
			return XPORT_ERR_INVALID;
	} else if (x->slow & XPI_SLOW_LOCK) {
		xpi_lock(x);
	}
	return XPORT_OK;
}

int xpi_enter_slowly(struct xport *x)
{
	int r = xpi_enter_asleep(x);

	if (r != XPORT_OK)
		return r;
	if (x->fd_state == XPI_FD_ARMED)
		xpi_wake(x);
	if (x->space_freed)
		xpi_came_back(x);
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

/* ---- what the back end calls ---- */

static void on_done(struct xpi_core *core, struct xpi_req *req, int status)
{
	struct xpi_wait *w = (struct xpi_wait *)req;

	switch (w->kind) {
	case XPI_WAIT_TX:
		xpi_tx_done(xpi_of(core), (struct xpi_tx *)w, status);
		break;
	case XPI_WAIT_OP: {
		struct xpi_op *op = (struct xpi_op *)w;

		if (status == XPORT_OK)
			xpi_op_done(op);
		else /* it completes as its endpoint ends: why, the control channel knows better */
			xpi_ep_broken(op->ep);
		break;
	}
	default:
		xpi_drained(xpi_container(w, struct xport_ep, drain), status);
	}
}

static void on_ep_failed(struct xpi_core *core, struct xpi_core_ep *core_ep, int64_t code, const char *why)
{
	struct xport_ep *ep = (struct xport_ep *)core_ep;

	if (ep->broken || ep->state >= XPI_EP_FAILING)
		return;
	snprintf(ep->native_why, sizeof(ep->native_why), "the network reports: %s (%lld)", why, (long long)code);
	xpi_log(xpi_of(core)->log, XPORT_LOG_DEBUG, "0003", "%s: %s", ep->peer, ep->native_why);
	xpi_ep_broken(ep);
}

static const struct xpi_core_ops up = {
	.am_recv = xpi_rx_frame, .done = on_done, .ep_failed = on_ep_failed, .back_end = xpi_select_back_end};

/* ---- progress ---- */

struct xpi_op *xpi_event_room(struct xport *x)
{
	return xpi_op_get(x, NULL, 0);
}

void xpi_event_unroom(struct xport *x, struct xpi_op **room)
{
	if (*room != NULL)
		xpi_op_put(x, *room);
	*room = NULL;
}

void xpi_event(struct xport *x, struct xpi_op **room, int type, int status, struct xport_ep *ep, void *context)
{
	struct xpi_op *op = *room;

	*room = NULL;
	op->kind = (uint32_t)type;
	op->ep = ep;
	op->status = status;
	op->context = context;
	op->tag = op->len = op->offset = 0;
	if (ep != NULL)
		ep->refs++;
	xpi_cq_push(&x->cq, op);
}

bool xpi_event_forget(struct xport *x, int type, const void *context, unsigned keep)
{
	struct xpi_op *oldest = NULL;
	unsigned n = 0;

	xpi_list_for(l, &x->cq.later) {
		struct xpi_op *op = xpi_container(l, struct xpi_op, link);

		if (op->kind != (uint32_t)type || op->ep != NULL || op->context != context)
			continue;
		oldest = oldest != NULL ? oldest : op;
		n++;
	}
	if (n <= keep)
		return false;
	xpi_list_del(&oldest->link);
	xpi_op_put(x, oldest);
	return true;
}

/*
 * A network that ends by being polled is asked at every poll.  A queue pair may take many seconds to let go of its buffers: who
 * waits for that looks again by the clock.
 */
static bool rings_at(struct xport *x, int64_t ms)
{
	struct xpi_watch *w = &x->fail_again;

	if (w->added)
		return !atomic_load(&w->rang) || xpi_watch_arm(x->live, w, 0, ms) == XPORT_OK;
	w->deadline_ms = ms;
	return xpi_watch_add(x->live, w) == XPORT_OK;
}

static void fail_again(struct xport *x)
{
	enum { AT_ONCE_MS = 1000, LATER_MS = 20 };
	int64_t now = xpi_now_ms();

	if (now - x->failing_ms < AT_ONCE_MS || !rings_at(x, now + LATER_MS))
		xpi_bell_ring(x);
}

static void fail_steps(struct xport *x)
{
	xpi_list_for_safe(l, &x->failing) {
		struct xport_ep *ep = xpi_container(l, struct xport_ep, work);

		if (xpi_ep_fail_step(ep))
			xpi_ep_release(ep);
	}
	if (!xpi_list_empty(&x->failing))
		fail_again(x);
}

static __attribute__((cold)) void attend(struct xport *x)
{
	atomic_exchange_explicit(&x->attention, 0, memory_order_acquire);
	x->stirred = true;
	xpi_list_for_safe(l, &x->eps)
		xpi_ep_attend(xpi_container(l, struct xport_ep, link));
	if (!xpi_list_empty(&x->conns) || !xpi_list_empty(&x->listeners))
		xpi_conn_progress(x);
	fail_steps(x);
}

/* Whether the coarse clock has moved since it was looked at: who polls seldom has no 256 polls to a heartbeat. */
static bool clock_moved(struct xport *x)
{
	struct timespec t;
	bool moved;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	moved = t.tv_nsec != x->polled_ns || t.tv_sec != x->polled_s;
	x->polled_ns = t.tv_nsec;
	x->polled_s = t.tv_sec;
	return moved;
}

/* What needs a clock: old operations every 256th poll, and when the timer has expired; heartbeats without a thread as soon as
 * the clock has moved. */
static __attribute__((noinline)) void occasional(struct xport *x)
{
	bool tick = (x->epoch & 255) == 0 || (x->todo & XPI_TODO_TICK) != 0;

	if (!x->settings.liveness_thread && (tick || clock_moved(x)))
		xpi_live_step(x->live);
	if (!tick)
		return;
	x->todo &= ~(unsigned)XPI_TODO_TICK;
	if (x->settings.op_timeout_ms > 0)
		xpi_op_timeouts(x);
}

/* Those that are there now; who has work again afterwards waits for the next poll. */
static void pump(struct xport *x)
{
	struct xpi_list now = x->work;

	x->todo &= ~(unsigned)XPI_TODO_WORK;
	if (xpi_list_empty(&x->work)) /* who had it failed meanwhile */
		return;
	now.next->prev = now.prev->next = &now;
	xpi_list_init(&x->work);
	while (!xpi_list_empty(&now))
		xpi_ep_pump(xpi_container(xpi_list_pop(&now), struct xport_ep, work));
}

/* Nothing comes from below any more: every endpoint ends, and with it what was posted on it.  That comes first, the error
 * once none is left. */
static __attribute__((cold)) int broke(struct xport *x, int n)
{
	char why[sizeof(((struct xport_ep *)NULL)->why)];

	snprintf(why, sizeof(why), "the back end broke%s%.120s", x->err.status == n ? ": " : "",
	         x->err.status == n ? x->err.text : "");
	xpi_list_for_safe(l, &x->eps) {
		struct xport_ep *ep = xpi_container(l, struct xport_ep, link);

		if (ep->state >= XPI_EP_FAILING)
			continue;
		memcpy(ep->why, why, sizeof(why));
		xpi_ep_fail(ep, XPORT_ERR_PEER_LOST, XPORT_EVENT_LOST);
	}
	fail_steps(x);
	return xpi_list_empty(&x->failing) ? xpi_refuse(x, n, "xport_poll", "%s", why) : 0;
}

int xpi_progress_rest(struct xport *x, int n)
{
	if (n < 0)
		return broke(x, n);
	if (__builtin_expect(atomic_load_explicit(&x->attention, memory_order_acquire) != 0, 0))
		attend(x);
	if (__builtin_expect((x->todo & XPI_TODO_CLOCK) != 0, 0))
		occasional(x);
	if (x->todo & XPI_TODO_WORK) {
		pump(x);
		x->stirred = true;
	}
	return n;
}

int xpi_progress(struct xport *x)
{
	int n = xpi_progress_be(x);

	x->stirred = x->stirred || n != 0;
	return xpi_progress_more(x, n) ? xpi_progress_rest(x, n) : n;
}

/* ---- opening and closing ---- */

static int open_parts(struct xport *x)
{
	struct xport_error *err = &x->err; /* where the back end goes on to describe its failures */
	struct xpi_be_open_args args = {
		.core = (struct xpi_core *)x,
		.up = &up,
		.log = x->log,
		.err = err,
		.peer_timeout_ms = x->settings.peer_timeout_ms,
		.options = x->settings.chaos,
	};
	struct xpi_choice choice;
	const char *contradiction;
	int r = xpi_select(&x->settings, &args, &choice);

	if (r != XPORT_OK)
		return r;
	x->ops = choice.ops;
	x->poll = choice.ops->poll;
	x->am_send = choice.ops->am_send;
	x->be = choice.be;
	x->caps = choice.caps;
	contradiction = xpi_registry_contradiction(x->ops, &x->caps);
	if (contradiction != NULL)
		return xpi_fail(err, XPORT_ERR_INCOMPATIBLE, 0, NULL,
		                "this is a mistake of the back end, see backend.h", "%s:%s cannot be used: %s",
		                x->ops->name, x->caps.provider, contradiction);
	xpi_pool_init(&x->op_pool, sizeof(struct xpi_op), 16);
	xpi_pool_init(&x->lone_pool, sizeof(struct xpi_tx) + XPI_LONE_ROOM, 64);
	xpi_pool_init(&x->frame_pool, sizeof(struct xpi_tx) + sizeof(struct xpi_unexpected) + x->caps.am_max, 64);
	for (unsigned i = 0; i < XPI_UNEXPECTED_CLASSES; i++)
		xpi_pool_init(&x->unexpected_pools[i], sizeof(struct xpi_unexpected) + xpi_unexpected_room(i),
		              i == 0 ? 64 : 16);
	x->match = xpi_match_new();
	if (x->match == NULL)
		return xpi_fail(err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for an instance");
	r = xpi_fd_open(x);
	if (r != XPORT_OK)
		return r;
	x->bell = (struct xpi_bell){&x->attention, x->wake};
	x->fail_again.bell = x->bell;
	r = xpi_live_get(x->settings.liveness_thread, &x->live, err);
	if (r == XPORT_OK)
		r = xpi_fd_watch_live(x);
	if (r != XPORT_OK)
		return r;
	return xpi_thread_start(x);
}

static void close_parts(struct xport *x)
{
	xpi_thread_stop(x);
	if (x->live != NULL) {
		xpi_watch_remove(x->live, &x->fail_again);
		xpi_live_put(x->live);
	}
	xpi_fd_close(x);
	if (x->be != NULL)
		x->ops->close(x->be);
	xpi_cma_close(x);
	xpi_match_free(x->match);
	xpi_pool_fini(&x->op_pool);
	xpi_pool_fini(&x->lone_pool);
	xpi_pool_fini(&x->frame_pool);
	for (unsigned i = 0; i < XPI_UNEXPECTED_CLASSES; i++)
		xpi_pool_fini(&x->unexpected_pools[i]);
	free(x->ep_table);
	free(x->mr_table);
	pthread_mutex_destroy(&x->lock);
	pthread_mutex_destroy(&x->turn);
	xpi_settings_fini(&x->settings);
	free(x);
}

static struct xport *instance_new(struct xport_error *err)
{
	struct xport *x = aligned_alloc(64, (sizeof(*x) + 63) & ~(size_t)63);

	if (x == NULL) {
		xpi_fail(err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for an instance");
		return NULL;
	}
	memset(x, 0, sizeof(*x));
	x->err.size = sizeof(x->err);
	x->log = &x->settings.log;
	x->pid = getpid();
	x->epfd = x->wake = x->timer = x->user_fd = -1;
	x->settings.log.fd = -1;
	pthread_mutex_init(&x->lock, NULL);
	pthread_mutex_init(&x->turn, NULL);
	xpi_list_init(&x->cq.later);
	x->cq.first = x->cq.next = x->cq.end = x->cq.now;
	xpi_list_init(&x->work);
	xpi_list_init(&x->crowd);
	xpi_list_init(&x->eps);
	xpi_list_init(&x->listeners);
	xpi_list_init(&x->conns);
	xpi_list_init(&x->failing);
	x->fail_again.fd = -1;
	if (getrandom(&x->incarnation, sizeof(x->incarnation), 0) != sizeof(x->incarnation)) {
		xpi_fail_errno(err, XPORT_ERR_SYSTEM, NULL, "getrandom failed");
		free(x);
		return NULL;
	}
	return x;
}

/* Which ways the settings leave open: the short one only where there is no lock (quick.h). */
static void choose_ways(struct xport *x)
{
	if (x->settings.progress_thread)
		x->settings.multiple = true;
	if (x->settings.multiple)
		x->slow = XPI_SLOW_LOCK;
	else if (x->settings.strict)
		x->slow = XPI_SLOW_LOCK | XPI_SLOW_WATCH;
	if (!x->settings.liveness_thread || x->settings.op_timeout_ms > 0)
		x->todo |= XPI_TODO_CLOCK;
	x->cq.size = x->settings.queue_depth < XPI_CQ_NOW ? x->settings.queue_depth : XPI_CQ_NOW;
	if (x->slow == 0)
		xpi_cq_open(&x->cq);
}

static int read_and_open(struct xport *x, const struct xport_attr *attr, struct xport_error *err)
{
	int r = xpi_settings_read(attr, &x->settings, err);

	if (r == XPORT_OK) {
		choose_ways(x); /* first of all: a progress thread looks at them as soon as it runs */
		memcpy(x->err.operation, err->operation, sizeof(x->err.operation));
		r = open_parts(x);
		if (r != XPORT_OK)
			*err = x->err;
	}
	return r;
}

int xpi_open(const struct xport_attr *attr, struct xport_error *err, struct xport **out)
{
	struct xport *x = instance_new(err);
	int r;

	if (x == NULL)
		return err->status;
	xpi_registry_enter();
	r = read_and_open(x, attr, err);
	xpi_registry_leave();
	if (r != XPORT_OK) {
		close_parts(x);
		return r;
	}
	pthread_once(&all_once, watch_forks);
	pthread_mutex_lock(&all_lock);
	xpi_list_push(&all, &x->all);
	pthread_mutex_unlock(&all_lock);
	xpi_log(x->log, XPORT_LOG_INFO, "0005", "opened %s:%s (%s, %s)", x->ops->name, x->caps.provider, x->caps.stack,
	        x->caps.device);
	*out = x;
	return XPORT_OK;
}

static void end_endpoints(struct xport *x)
{
	xpi_list_for_safe(l, &x->eps) {
		struct xport_ep *ep = xpi_container(l, struct xport_ep, link);

		if (ep->state < XPI_EP_FAILING)
			xpi_ep_fail(ep, XPORT_ERR_CLOSED, 0);
	}
	while (!xpi_list_empty(&x->failing))
		xpi_progress(x);
}

static void free_all(struct xport *x)
{
	/* What nobody has reaped is dropped; while it stood there it kept its endpoints. */
	x->cq.first = x->cq.next;
	xpi_list_for(at, &x->eps) {
		struct xport_ep *ep = xpi_container(at, struct xport_ep, link);

		while (!xpi_list_empty(&ep->rkeys)) {
			xpi_list_for_safe(l, &ep->rkeys) {
				free(xpi_container(l, struct xport_rkey, link)->native_key);
				xpi_list_del(l);
				free(xpi_container(l, struct xport_rkey, link));
			}
		}
		ep->refs = 0;
		ep->destroyed = true;
	}
	xpi_ep_release_all(x);
	for (uint32_t i = 0; i < x->mr_table_size; i++)
		if (x->mr_table[i] != NULL)
			xpi_mr_drop(x->mr_table[i]);
}

void xpi_close(struct xport *x)
{
	if (x->slow & XPI_SLOW_FORK)
		return; /* it is the parent's */
	xpi_thread_stop(x);
	while (!xpi_list_empty(&x->listeners))
		xpi_listener_close(xpi_container(x->listeners.next, struct xport_listener, link));
	end_endpoints(x);
	free_all(x);
	pthread_mutex_lock(&all_lock);
	xpi_list_del(&x->all);
	pthread_mutex_unlock(&all_lock);
	close_parts(x);
}
