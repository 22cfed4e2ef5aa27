/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * calls.c - the public functions outside of the hot path (ops.c): they check arguments, take the lock, and call the
 * core.
 */
#include "api/enter.h"
#include "base/fd.h"
#include "base/grow.h"
#include "base/meet.h"
#include "base/signals.h"
#include "base/status.h"
#include "core/cm/cm.h"
#include "core/config/registry.h"
#include "core/config/select.h"
#include "core/config/settings.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/set.h"
#include "core/object/stats.h"
#include "core/progress/blocking.h"
#include "core/progress/close.h"
#include "core/progress/dump.h"
#include "core/progress/open.h"
#include "core/wire/frame.h"
#include "core/wire/hello.h"
#include "core/wire/rkey_format.h"

/* Of the calling thread's last failed call that had no instance. */
static _Thread_local struct xport_error thread_error = {.size = sizeof(struct xport_error)};

const char *xport_strerror(int status)
{
	return xpi_status_text(status);
}

const char *xport_status_name(int status)
{
	return xpi_status_name(status);
}

const char *xport_version(void)
{
	return PACKAGE_VERSION;
}

/* Where nobody said what to do, what helps with this status in general. */
static void advise(struct xport_error *error)
{
	if (error->hint[0] == '\0')
		snprintf(error->hint, sizeof(error->hint), "%s", xpi_status_hint(error->status));
}

/* The instance's; where XPORT_STRICT lets nobody in because of another thread's call, says that. */
static int copy_error(struct xport *x, struct xport_error *all)
{
	int r = xpi_enter_to_look(x);

	if (r == XPORT_ERR_FORK)
		return r; /* another thread may have held the lock when this process began */
	if (r == XPORT_OK) {
		*all = x->err;
		return leave(x, r);
	}
	begin_error(all, "");
	xpi_fail(all, r, 0, NULL, "call from one thread at a time, or open with XPORT_THREAD_MULTIPLE",
	         "another thread is in a call of the instance (XPORT_STRICT)");
	return XPORT_OK;
}

int xport_last_error(const xport *x, struct xport_error *error)
{
	size_t size = error != NULL ? error->size : 0;
	struct xport_error all = thread_error;
	int r = XPORT_OK;

	if (!xpi_grow_size(size, XPI_FIRST_ERROR))
		return XPORT_ERR_INVALID;
	if (x != NULL)
		r = copy_error((struct xport *)(uintptr_t)x, &all);
	if (r != XPORT_OK)
		return r;
	all.size = size;
	advise(&all);
	xpi_grow_out(error, size, &all, sizeof(all));
	return XPORT_OK;
}

/* ---- instance ---- */

int xport_open(const struct xport_attr *attr, xport **x)
{
	struct xport_error *err = begin_error(&thread_error, "xport_open");

	if (x == NULL)
		return xpi_fail(err, XPORT_ERR_INVALID, 0, NULL, NULL, "the result pointer is NULL");
	return xpi_open(attr, err, x);
}

void xport_close(xport *x)
{
	if (x != NULL)
		xpi_close(x);
}

static int path(bool native)
{
	return native ? XPORT_NATIVE : XPORT_EMULATED;
}

/* Operations that a network may carry out: of several transports, any may be chosen for a connection. */
static uint32_t deadline_ends(const struct xport *x, const struct xport_info *info)
{
	uint32_t may = xpi_several(x) ? ~x->settings.emulate : 0;
	bool put = info->put || info->put_reg || (may & XPI_EMULATE_PUT) != 0;
	bool get = info->get || info->get_reg || (may & XPI_EMULATE_GET) != 0;
	bool atomic = info->nic_atomic || (may & XPI_EMULATE_ATOMIC) != 0;

	return (put ? 1u << XPORT_OP_PUT | 1u << XPORT_OP_PUT_NOTIFY : 0) | (get ? 1u << XPORT_OP_GET : 0) |
	       (atomic ? 1u << XPORT_OP_ATOMIC : 0);
}

/* Sets the members that are not zero. */
static void info_describe(const xport *x, struct xport_info *info)
{
	const struct xpi_be_caps *c = &x->tp->caps;
	bool native = c->rkey_native_max > 0, reg = native && c->rma_reg;

	snprintf(info->backend, sizeof(info->backend), "%s", x->tp->ops->name);
	memcpy(info->provider, c->provider, sizeof(info->provider));
	memcpy(info->device, c->device, sizeof(info->device));
	memcpy(info->stack, c->stack, sizeof(info->stack));
	info->put = path(native && !(x->settings.emulate & XPI_EMULATE_PUT));
	info->get = path(native && !(x->settings.emulate & XPI_EMULATE_GET));
	info->put_reg = path(reg && info->put);
	info->get_reg = path(reg && info->get);
	info->notify = info->atomic = info->send = info->flush = XPORT_EMULATED;
	info->target_bounds = xpi_choice_target_bounds(&x->settings, c);
	info->passive_target = xpi_choice_passive_target(&x->settings, c);
	info->stack_threads = (int)c->stack_threads;
	info->thread_mode = x->settings.multiple ? XPORT_THREAD_MULTIPLE : XPORT_THREAD_SERIALIZED;
	info->peer_timeout_ms = x->settings.peer_timeout_ms;
	info->queue_depth = x->settings.queue_depth;
	info->frame_max = c->am_max;
	info->eager_max = (xpi_several(x) ? XPI_FRAME_LEAST : c->am_max) - sizeof(struct xpi_frame_head) -
	                  sizeof(struct xpi_rec_send);
	info->message_max = (uint64_t)INT64_MAX;
	info->window = xpi_window(x);
	info->rkey_max = XPI_RKEY_LEN;
	info->private_max = XPI_PRIVATE_MAX;
	info->iov_max = XPI_IOV_MAX;
	info->nic_atomic = path(!xpi_several(x) && xpi_choice_nic_atomic(&x->settings, c));
	info->deadline_ends = deadline_ends(x, info);
	info->incarnation = x->incarnation;
	info->traffic_class = x->settings.traffic_class;
	info->traffic_marked = c->traffic != XPI_TRAFFIC_NONE;
}

int xport_query(xport *x, struct xport_info *info)
{
	struct xport_info all = {.size = info != NULL ? info->size : 0};
	int r;

	if (x == NULL)
		return XPORT_ERR_INVALID;
	r = enter_to_look(x, "xport_query");
	if (r != XPORT_OK)
		return r;
	if (!xpi_grow_size(all.size, XPI_FIRST_INFO))
		return leave(x, xpi_refuse(x, XPORT_ERR_INVALID, "xport_query", "info is NULL or info->size is wrong"));
	info_describe(x, &all);
	xpi_grow_out(info, all.size, &all, sizeof(all));
	return leave(x, XPORT_OK);
}

/* An array of the program's, whose entries may be shorter or longer than this library's. */
struct array {
	void *at;
	size_t entry_size;
	int max, n;
};

static bool array_good(const struct array *a, size_t first)
{
	return a->max == 0 || (a->max > 0 && a->at != NULL && xpi_grow_size(a->entry_size, first));
}

static void array_add(struct array *a, const void *entry, size_t known)
{
	if (a->n < a->max)
		xpi_grow_out((char *)a->at + (size_t)a->n * a->entry_size, a->entry_size, entry, known);
	a->n++;
}

static void info_collect(void *arg, const struct xport_candidate *c)
{
	array_add(arg, c, sizeof(*c));
}

int xport_list(const struct xport_attr *attr, struct xport_candidate *list, size_t entry_size, int max)
{
	struct xport_error *err = begin_error(&thread_error, "xport_list");
	struct array to = {list, entry_size, max, 0};
	struct xpi_settings settings;
	sigset_t mask;
	int r;

	if (!array_good(&to, XPI_FIRST_CANDIDATE))
		return xpi_fail(err, XPORT_ERR_INVALID, 0, NULL, NULL, "list is NULL, or max or entry_size is wrong");
	xpi_fd_fill();
	xpi_registry_enter();
	r = xpi_settings_read(attr, &settings, err);
	if (r == XPORT_OK) {
		xpi_signals_hold(&mask);
		r = xpi_meet_check(settings.shm_dir, err);
		if (r == XPORT_OK)
			r = xpi_select_list(&settings.log, info_collect, &to);
		if (r == XPORT_ERR_NO_MEMORY)
			(void)xpi_fail(err, r, 0, NULL, NULL, "no memory to look at the back ends");
		xpi_signals_release(&mask);
		xpi_settings_fini(&settings);
	}
	xpi_registry_leave();
	return r < 0 ? r : to.n;
}

int xport_variables(struct xport_variable *list, size_t entry_size, int max)
{
	struct xport_error *err = begin_error(&thread_error, "xport_variables");
	struct array to = {list, entry_size, max, 0};
	struct xport_variable v;

	if (!array_good(&to, XPI_FIRST_VARIABLE))
		return xpi_fail(err, XPORT_ERR_INVALID, 0, NULL, NULL, "list is NULL, or max or entry_size is wrong");
	while (xpi_settings_variable(to.n, &v))
		array_add(&to, &v, sizeof(v));
	return to.n;
}

void xport_dump(xport *x)
{
	if (x == NULL || xpi_enter_to_look(x) != XPORT_OK)
		return;
	xpi_dump(x);
	xpi_leave(x);
}

/* ---- connections ---- */

/* Makes *attr, where there is one, point to it as this library has it. */
static int conn_attr(xport *x, const struct xport_conn_attr **attr, struct xport_conn_attr *own)
{
	int r = *attr != NULL ? xpi_grow_in(own, sizeof(*own), XPI_FIRST_CONN_ATTR, *attr) : XPORT_OK;

	if (r == XPORT_ERR_INVALID)
		return xpi_fail(&x->err, r, 0, NULL, "set it to sizeof(struct xport_conn_attr)",
		                "xport_conn_attr.size is %zu", (*attr)->size);
	if (r != XPORT_OK)
		return xpi_fail(&x->err, r, 0, NULL, "use a library as new as the header",
		                "xport_conn_attr sets a field unknown to this version of the library");
	if (*attr != NULL)
		*attr = own;
	return XPORT_OK;
}

int xport_listen(xport *x, const char *address, const struct xport_conn_attr *attr, xport_listener **listener)
{
	struct xport_conn_attr own;
	int r;

	if (x == NULL)
		return XPORT_ERR_INVALID;
	r = enter(x, "xport_listen");
	if (r != XPORT_OK)
		return r;
	if (address == NULL || listener == NULL)
		return leave(x, xpi_refuse(x, XPORT_ERR_INVALID, "xport_listen",
		                           "the address or the result pointer is NULL"));
	r = conn_attr(x, &attr, &own);
	return leave(x, r == XPORT_OK ? xpi_listener_open(x, address, attr, listener) : r);
}

int xport_listener_name(const xport_listener *listener, char *buf, size_t len)
{
	struct xport *x = listener != NULL ? xpi_listener_instance(listener) : NULL;
	int r;

	if (x == NULL)
		return XPORT_ERR_INVALID;
	r = enter_to_look(x, "xport_listener_name");
	if (r != XPORT_OK)
		return r;
	if (buf == NULL)
		return leave(
			x, xpi_refuse(x, XPORT_ERR_INVALID, "xport_listener_name", "the buffer for the name is NULL"));
	return leave(x, xpi_listener_name(listener, buf, len));
}

int xport_listener_set_private_data(xport_listener *listener, const void *data, size_t len)
{
	struct xport *x = listener != NULL ? xpi_listener_instance(listener) : NULL;
	int r;

	if (x == NULL)
		return XPORT_ERR_INVALID;
	r = enter(x, "xport_listener_set_private_data");
	return r == XPORT_OK ? leave(x, xpi_listener_set_private(listener, data, len)) : r;
}

static int accept_by(const char *operation, xport_listener *listener, const struct xport_conn_attr *attr,
                     int timeout_ms, xport_ep **ep)
{
	struct xport *x = listener != NULL ? xpi_listener_instance(listener) : NULL;
	struct xport_conn_attr own;
	int r;

	if (x == NULL)
		return XPORT_ERR_INVALID;
	r = enter(x, operation);
	if (r != XPORT_OK)
		return r;
	if (ep == NULL)
		return leave(x, xpi_refuse(x, XPORT_ERR_INVALID, operation, "the result pointer is NULL"));
	if (timeout_ms < -1)
		return leave(x, xpi_time_refuse(x, operation, timeout_ms));
	r = conn_attr(x, &attr, &own);
	return leave(x, r == XPORT_OK ? xpi_listener_accept(listener, attr, timeout_ms, ep) : r);
}

int xport_accept(xport_listener *listener, int timeout_ms, xport_ep **ep)
{
	return accept_by("xport_accept", listener, NULL, timeout_ms, ep);
}

int xport_accept_with(xport_listener *listener, const struct xport_conn_attr *attr, int timeout_ms, xport_ep **ep)
{
	return accept_by("xport_accept_with", listener, attr, timeout_ms, ep);
}

void xport_listener_close(xport_listener *listener)
{
	struct xport *x = listener != NULL ? xpi_listener_instance(listener) : NULL;

	if (x == NULL || enter(x, "xport_listener_close") != XPORT_OK)
		return;
	xpi_listener_close(listener);
	leave(x, 0);
}

int xport_connect(xport *x, const char *address, const struct xport_conn_attr *attr, int timeout_ms, xport_ep **ep)
{
	struct xport_conn_attr own;
	int r;

	if (x == NULL)
		return XPORT_ERR_INVALID;
	r = enter(x, "xport_connect");
	if (r != XPORT_OK)
		return r;
	if (address == NULL || ep == NULL)
		return leave(x, xpi_refuse(x, XPORT_ERR_INVALID, "xport_connect",
		                           "the address or the result pointer is NULL"));
	snprintf(x->err.peer, sizeof(x->err.peer), "%s", address);
	r = conn_attr(x, &attr, &own);
	return leave(x, r == XPORT_OK ? xpi_connect(x, address, attr, timeout_ms, ep) : r);
}

int xport_ep_close(xport_ep *ep, int timeout_ms)
{
	int r;

	if (ep == NULL)
		return XPORT_ERR_INVALID;
	r = enter(ep->x, "xport_ep_close");
	if (r != XPORT_OK)
		return r;
	if (timeout_ms < -1)
		return leave(ep->x, xpi_ep_refused(ep, xpi_time_refuse(ep->x, "xport_ep_close", timeout_ms)));
	return leave(ep->x, xpi_ep_close(ep, timeout_ms));
}

int xport_ep_close_start(xport_ep *ep, int timeout_ms)
{
	int r;

	if (ep == NULL)
		return XPORT_ERR_INVALID;
	r = enter(ep->x, "xport_ep_close_start");
	if (r != XPORT_OK)
		return r;
	if (timeout_ms < -1)
		return leave(ep->x, xpi_ep_refused(ep, xpi_time_refuse(ep->x, "xport_ep_close_start", timeout_ms)));
	return leave(ep->x, xpi_ep_close_start(ep, timeout_ms));
}

void xport_ep_destroy(xport_ep *ep)
{
	struct xport *x = ep != NULL ? ep->x : NULL;

	if (x == NULL || enter(x, "xport_ep_destroy") != XPORT_OK)
		return;
	xpi_ep_destroy(ep);
	leave(x, 0);
}

int xport_ep_destroy_start(xport_ep *ep)
{
	int r;

	if (ep == NULL)
		return XPORT_ERR_INVALID;
	r = enter(ep->x, "xport_ep_destroy_start");
	if (r != XPORT_OK)
		return r;
	return leave(ep->x, xpi_ep_destroy_start(ep));
}

static int public_state(const struct xport_ep *ep)
{
	switch (ep->state) {
	case XPI_EP_CONNECTING:
		return XPORT_EP_CONNECTING;
	case XPI_EP_OPEN:
		return XPORT_EP_OPEN;
	case XPI_EP_CLOSING:
		return XPORT_EP_CLOSED;
	default:
		return ep->end.reason == XPORT_ERR_CLOSED || ep->end.reason == XPORT_ERR_PEER_CLOSED ? XPORT_EP_CLOSED
		                                                                                     : XPORT_EP_LOST;
	}
}

static void ep_transport(const xport_ep *ep, struct xport_ep_info *info)
{
	if (ep->tp != NULL) {
		snprintf(info->backend, sizeof(info->backend), "%s", ep->tp->ops->name);
		memcpy(info->provider, ep->tp->caps.provider, sizeof(info->provider));
		memcpy(info->device, ep->tp->caps.device, sizeof(info->device));
	}
	if (ep->passed_over != NULL)
		snprintf(info->passed_over, sizeof(info->passed_over), "%s", ep->passed_over);
}

int xport_ep_query(const xport_ep *ep, struct xport_ep_info *info)
{
	struct xport_ep_info all = {.size = info != NULL ? info->size : 0};
	int r;

	if (ep == NULL)
		return XPORT_ERR_INVALID;
	r = xpi_enter_to_look(ep->x);
	if (r != XPORT_OK)
		return r;
	if (!xpi_grow_size(all.size, XPI_FIRST_EP_INFO)) {
		r = xpi_refuse(ep->x, XPORT_ERR_INVALID, "xport_ep_query", "info is NULL or info->size is wrong");
		return leave(ep->x, xpi_ep_refused((struct xport_ep *)(uintptr_t)ep, r));
	}
	all.state = public_state(ep);
	all.reason = ep->state >= XPI_EP_FAILING ? ep->end.reason : XPORT_OK;
	if (ep->state >= XPI_EP_FAILING)
		snprintf(all.why, sizeof(all.why), "%s", ep->end.why);
	memcpy(all.peer, ep->peer.name, sizeof(all.peer));
	memcpy(all.local, ep->local, sizeof(all.local));
	memcpy(all.peer_host, ep->peer.host, sizeof(all.peer_host));
	all.peer_pid = ep->peer.pid;
	all.private_data = ep->peer.private_data;
	all.private_len = ep->peer.private_len;
	all.context = ep->context;
	all.in_flight = xpi_stats_in_flight(ep);
	all.peer_incarnation = ep->peer.incarnation;
	if (!ep->accepted) {
		all.accept_data = ep->accept.data;
		all.accept_len = ep->accept.len;
	}
	ep_transport(ep, &all);
	all.traffic_class = ep->traffic;
	all.traffic_marked = ep->traffic_marked;
	xpi_grow_out(info, all.size, &all, sizeof(all));
	return leave(ep->x, XPORT_OK);
}

uint64_t xport_ep_peer(const xport_ep *ep)
{
	return ep != NULL ? ep->peer.incarnation : 0;
}

int xport_ep_set_context(xport_ep *ep, void *context)
{
	int r;

	if (ep == NULL)
		return XPORT_ERR_INVALID;
	r = enter(ep->x, "xport_ep_set_context");
	if (r != XPORT_OK)
		return r;
	ep->context = context;
	return leave(ep->x, XPORT_OK);
}

int xport_stats(xport *x, const xport_ep *ep, struct xport_counters *counters)
{
	int r;

	if (x == NULL)
		return XPORT_ERR_INVALID;
	r = enter_to_look(x, "xport_stats");
	if (r != XPORT_OK)
		return r;
	if (counters == NULL || !xpi_grow_size(counters->size, XPI_FIRST_COUNTERS))
		return leave(x, xpi_refuse(x, XPORT_ERR_INVALID, "xport_stats",
		                           "counters is NULL or counters->size is wrong"));
	if (ep != NULL && ep->x != x)
		return leave(
			x, xpi_refuse(x, XPORT_ERR_INVALID, "xport_stats", "the endpoint belongs to another instance"));
	xpi_stats(x, ep, counters);
	return leave(x, XPORT_OK);
}
