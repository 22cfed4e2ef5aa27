/* SPDX-License-Identifier: BSD-3-Clause */
/* open.c - opening and closing an instance. */
#include "core/progress/open.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/meet.h"
#include "base/signals.h"
#include "core/cm/cm.h"
#include "core/config/registry.h"
#include "core/config/settings.h"
#include "core/liveness/monitor.h"
#include "core/object/accept_queue.h"
#include "core/object/cma_window.h"
#include "core/object/completion.h"
#include "core/object/deadline.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/latency.h"
#include "core/object/match.h"
#include "core/object/mr.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/object/rkey.h"
#include "core/object/transport.h"
#include "core/object/wakeup.h"
#include "core/progress/progress.h"
#include "core/protocol/tx.h"

static int instance_parts_open(struct xport *x)
{
	struct xport_error *err = &x->err;
	int r = xpi_transport_open(x, &xpi_up, sizeof(struct xpi_tx) + sizeof(struct xpi_unexpected));

	if (r != XPORT_OK)
		return r;
	xpi_pool_init(&x->op_pool, sizeof(struct xpi_op), 16);
	xpi_pool_init(&x->lone_pool, sizeof(struct xpi_tx) + XPI_LONE_ROOM, 64);
	for (unsigned i = 0; i < XPI_UNEXPECTED_CLASSES; i++)
		xpi_pool_init(&x->unexpected_pools[i], sizeof(struct xpi_unexpected) + xpi_unexpected_room(i),
		              i == 0 ? 64 : 16);
	x->match = xpi_match_new();
	if (x->match == NULL)
		return xpi_fail(err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for an instance");
	r = xpi_fd_open(x);
	if (r != XPORT_OK)
		return r;
	x->wake_flag = (struct xpi_wake_flag){.attention = &x->attention, .wake_fd = x->fd.wake};
	x->ending.again.wake_flag = x->ending.late.wake_flag = x->wake_flag;
	x->deadlines.watch.wake_flag = x->wake_flag;
	r = xpi_live_get(x->settings.liveness_thread, &x->live, err);
	if (r == XPORT_OK)
		r = xpi_fd_watch_live(x);
	if (r != XPORT_OK)
		return r;
	return xpi_thread_start(x);
}

static void instance_parts_close(struct xport *x)
{
	xpi_thread_stop(x);
	if (x->live != NULL) {
		xpi_watch_remove(x->live, &x->ending.again);
		xpi_watch_remove(x->live, &x->ending.late);
		xpi_watch_remove(x->live, &x->deadlines.watch);
		xpi_deadline_close(x);
		xpi_live_put(x->live);
	}
	xpi_fd_close(x);
	xpi_list_for_safe(l, &x->transports)
		xpi_transport_close(xpi_container(l, struct xpi_transport, link));
	free(x->set);
	xpi_cma_close(x);
	xpi_match_free(x->match);
	xpi_latency_close(x);
	xpi_pool_fini(&x->op_pool);
	xpi_pool_fini(&x->lone_pool);
	for (unsigned i = 0; i < XPI_UNEXPECTED_CLASSES; i++)
		xpi_pool_fini(&x->unexpected_pools[i]);
	xpi_ep_retired_free(x);
	free(x->slots);
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
	xpi_fd_init(x);
	x->settings.log.fd = -1;
	pthread_mutex_init(&x->lock, NULL);
	pthread_mutex_init(&x->turn, NULL);
	xpi_list_init(&x->cq.overflow);
	x->cq.first = x->cq.next = x->cq.end = x->cq.ring;
	xpi_list_init(&x->work);
	xpi_list_init(&x->sleepers.crowd);
	xpi_list_init(&x->transports);
	xpi_list_init(&x->eps);
	xpi_list_init(&x->cm.listeners);
	xpi_list_init(&x->cm.conns);
	xpi_list_init(&x->ending.eps);
	xpi_list_init(&x->ending.closing);
	x->ending.again.fd = x->ending.late.fd = x->deadlines.watch.fd = -1;
	if (getrandom(&x->incarnation, sizeof(x->incarnation), 0) != sizeof(x->incarnation)) {
		xpi_fail_errno(err, XPORT_ERR_SYSTEM, NULL, "getrandom failed");
		free(x);
		return NULL;
	}
	return x;
}

/* Applies the settings. The fast path is used only without a lock (fastpath.h). */
static void instance_apply_settings(struct xport *x)
{
	if (x->settings.progress_thread)
		x->settings.multiple = true;
	if (x->settings.multiple)
		x->slow |= XPI_SLOW_LOCK;
	else if (x->settings.strict)
		x->slow |= XPI_SLOW_LOCK | XPI_SLOW_WATCH;
	if (!x->settings.liveness_thread || x->settings.op_timeout_ms > 0)
		x->todo |= XPI_TODO_CLOCK;
	x->cq.size = x->settings.queue_depth < XPI_CQ_RING ? x->settings.queue_depth : XPI_CQ_RING;
	if (x->slow == 0)
		xpi_cq_open(&x->cq);
}

static int read_and_open(struct xport *x, const struct xport_attr *attr, struct xport_error *err)
{
	int r = xpi_settings_read(attr, &x->settings, err);

	if (r == XPORT_OK) /* also if another transport could be used */
		r = xpi_meet_check(x->settings.shm_dir, err);
	if (r == XPORT_OK && x->settings.latency) {
		r = xpi_latency_open(x);
		if (r != XPORT_OK)
			xpi_fail(err, r, 0, NULL, NULL, "out of memory");
	}
	if (r == XPORT_OK) {
		instance_apply_settings(x); /* first of all: a progress thread looks at them as soon as it runs */
		memcpy(x->err.operation, err->operation, sizeof(x->err.operation));
		r = instance_parts_open(x);
		if (r != XPORT_OK)
			*err = x->err;
	}
	return r;
}

int xpi_open(const struct xport_attr *attr, struct xport_error *err, struct xport **out)
{
	struct xport *x;
	sigset_t mask;
	int r;

	if (xpi_is_forked())
		return xpi_fail(err, XPORT_ERR_FORK, 0, NULL, NULL,
		                "the parent of this forked process had an instance open");
	x = instance_new(err);
	if (x == NULL)
		return err->status;
	xpi_fd_fill();
	xpi_registry_enter();
	xpi_signals_hold(&mask);
	r = read_and_open(x, attr, err);
	xpi_signals_release(&mask);
	xpi_registry_leave();
	if (r != XPORT_OK) {
		instance_parts_close(x);
		return r;
	}
	xpi_fork_watch(x);
	xpi_log(x->log, XPORT_LOG_INFO, "0005", "opened %s:%s (%s, %s)", x->tp->ops->name, x->tp->caps.provider,
	        x->tp->caps.stack, x->tp->caps.device);
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
	while (!xpi_list_empty(&x->ending.eps))
		xpi_progress(x);
}

static void free_all(struct xport *x)
{
	/* What nobody has reaped is dropped; while it stood there it kept its endpoints. */
	x->cq.first = x->cq.next;
	xpi_list_for(at, &x->eps) {
		struct xport_ep *ep = xpi_container(at, struct xport_ep, link);

		while (!xpi_list_empty(&ep->keys.rkeys)) {
			xpi_list_for_safe(l, &ep->keys.rkeys) {
				free(xpi_container(l, struct xport_rkey, link)->native_key);
				xpi_list_del(l);
				free(xpi_container(l, struct xport_rkey, link));
			}
		}
		xpi_event_unroom(x, &ep->gone_room);
		ep->refs = 0;
		ep->destroyed = true;
	}
	xpi_ep_release_all(x);
	xpi_match_close(x->match);
	for (uint32_t i = 0; i < x->mr_table_size; i++)
		if (x->mr_table[i] != NULL && x->mr_table[i]->whole == NULL)
			xpi_mr_drop(x->mr_table[i]);
}

void xpi_close(struct xport *x)
{
	if (x->slow & XPI_SLOW_FORK)
		return; /* it is the parent's */
	xpi_thread_stop(x);
	x->slow &= ~(unsigned)XPI_SLOW_LOCK; /* no other thread may use the instance any more */
	while (!xpi_list_empty(&x->cm.listeners))
		xpi_listener_close(xpi_container(x->cm.listeners.next, struct xport_listener, link));
	end_endpoints(x);
	free_all(x);
	xpi_fork_unwatch(x);
	instance_parts_close(x);
}
