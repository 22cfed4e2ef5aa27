/* SPDX-License-Identifier: BSD-3-Clause */
/* xport.c - the public functions beside the hot path (ops.c): arguments, the lock, and down. */
#include "api/enter.h"
#include "base/status.h"
#include "core/conn.h"
#include "core/dump.h"
#include "core/ep.h"
#include "core/mr.h"
#include "core/open.h"
#include "core/registry.h"
#include "core/rkey.h"
#include "core/select.h"
#include "core/stats.h"

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

int xport_last_error(const xport *x, struct xport_error *error)
{
	size_t size = error != NULL ? error->size : 0;

	if (size != sizeof(*error))
		return XPORT_ERR_INVALID;
	if (x == NULL) {
		*error = thread_error;
		advise(error);
		return XPORT_OK;
	}
	if (x->slow & XPI_SLOW_LOCK)
		pthread_mutex_lock(&((struct xport *)(uintptr_t)x)->lock);
	*error = x->err;
	xpi_leave((struct xport *)(uintptr_t)x);
	error->size = size;
	advise(error);
	return XPORT_OK;
}

/* ---- instance ---- */

int xport_open(const struct xport_attr *attr, xport **x)
{
	struct xport_error *err = begin_error(&thread_error, "xport_open");

	if (x == NULL)
		return xpi_fail(err, XPORT_ERR_INVALID, 0, NULL, NULL, "the place for the instance is NULL");
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

int xport_query(xport *x, struct xport_info *info)
{
	size_t size = info != NULL ? info->size : 0;
	const struct xpi_be_caps *c;
	bool native, reg;
	int r;

	if (x == NULL)
		return XPORT_ERR_INVALID;
	r = enter(x, "xport_query");
	if (r != XPORT_OK)
		return r;
	if (size < sizeof(*info))
		return leave(
			x, xpi_refuse(x, XPORT_ERR_INVALID, "xport_query", "info is NULL or info->size is too small"));
	c = &x->caps;
	native = c->rkey_native_max > 0;
	reg = native && c->rma_reg;
	memset(info, 0, sizeof(*info));
	info->size = size;
	snprintf(info->backend, sizeof(info->backend), "%s", x->ops->name);
	memcpy(info->provider, c->provider, sizeof(info->provider));
	memcpy(info->device, c->device, sizeof(info->device));
	memcpy(info->stack, c->stack, sizeof(info->stack));
	info->put = path(native && !(x->settings.emulate & XPI_EMULATE_PUT));
	info->get = path(native && !(x->settings.emulate & XPI_EMULATE_GET));
	info->put_reg = path(reg && info->put);
	info->get_reg = path(reg && info->get);
	info->notify = info->atomic = info->send = info->flush = XPORT_EMULATED;
	info->target_bounds = xpi_choice_target_bounds(&x->settings, c);
	info->passive_target = (c->passive_target && info->put && info->get) || x->thread_running;
	info->stack_threads = (int)c->stack_threads;
	info->thread_mode = x->settings.multiple ? XPORT_THREAD_MULTIPLE : XPORT_THREAD_SERIALIZED;
	info->peer_timeout_ms = x->settings.peer_timeout_ms;
	info->queue_depth = x->settings.queue_depth;
	info->frame_max = c->am_max;
	info->eager_max = c->am_max - sizeof(struct xpi_frame_head) - sizeof(struct xpi_rec_send);
	info->message_max = (uint64_t)INT64_MAX;
	info->window = XPI_WINDOW;
	info->rkey_max = XPI_RKEY_FIXED + c->rkey_native_max;
	info->private_max = XPI_PRIVATE_MAX;
	return leave(x, XPORT_OK);
}

struct collect {
	struct xport_candidate *list;
	int max, n;
};

static void collect(void *arg, const struct xport_candidate *c)
{
	struct collect *to = arg;

	if (to->n < to->max)
		to->list[to->n] = *c;
	to->n++;
}

int xport_list(const struct xport_attr *attr, struct xport_candidate *list, size_t entry_size, int max)
{
	struct xport_error *err = begin_error(&thread_error, "xport_list");
	struct collect to = {list, max, 0};
	struct xpi_settings settings;
	int r;

	if (max < 0 || (max > 0 && list == NULL) || (max > 0 && entry_size != sizeof(*list)))
		return xpi_fail(err, XPORT_ERR_INVALID, 0, NULL, NULL, "list is NULL, or max or entry_size is wrong");
	xpi_registry_enter();
	r = xpi_settings_read(attr, &settings, err);
	if (r == XPORT_OK) {
		r = xpi_select_list(&settings.log, collect, &to);
		xpi_settings_fini(&settings);
	}
	xpi_registry_leave();
	return r < 0 ? r : to.n;
}

int xport_variables(struct xport_variable *list, size_t entry_size, int max)
{
	struct xport_error *err = begin_error(&thread_error, "xport_variables");
	struct xport_variable v;
	int n = 0;

	if (max < 0 || (max > 0 && list == NULL) || (max > 0 && entry_size != sizeof(*list)))
		return xpi_fail(err, XPORT_ERR_INVALID, 0, NULL, NULL, "list is NULL, or max or entry_size is wrong");
	for (; xpi_settings_variable(n, &v); n++)
		if (n < max)
			list[n] = v;
	return n;
}

void xport_dump(xport *x)
{
	if (x != NULL)
		xpi_dump(x);
}

/* ---- connections ---- */

int xport_listen(xport *x, const char *address, const struct xport_conn_attr *attr, xport_listener **listener)
{
	int r;

	if (x == NULL)
		return XPORT_ERR_INVALID;
	r = enter(x, "xport_listen");
	if (r != XPORT_OK)
		return r;
	if (address == NULL || listener == NULL)
		return leave(x, xpi_refuse(x, XPORT_ERR_INVALID, "xport_listen",
		                           "the address or the place for the result is NULL"));
	return leave(x, xpi_listener_open(x, address, attr, listener));
}

int xport_listener_name(const xport_listener *listener, char *buf, size_t len)
{
	if (listener == NULL || buf == NULL)
		return XPORT_ERR_INVALID;
	return xpi_listener_name(listener, buf, len);
}

int xport_accept(xport_listener *listener, int timeout_ms, xport_ep **ep)
{
	struct xport *x = listener != NULL ? xpi_listener_instance(listener) : NULL;
	int r;

	if (x == NULL || ep == NULL)
		return XPORT_ERR_INVALID;
	r = enter(x, "xport_accept");
	if (r != XPORT_OK)
		return r;
	return leave(x, xpi_listener_accept(listener, timeout_ms, ep));
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
	int r;

	if (x == NULL)
		return XPORT_ERR_INVALID;
	r = enter(x, "xport_connect");
	if (r != XPORT_OK)
		return r;
	if (address == NULL || ep == NULL)
		return leave(x, xpi_refuse(x, XPORT_ERR_INVALID, "xport_connect",
		                           "the address or the place for the result is NULL"));
	snprintf(x->err.peer, sizeof(x->err.peer), "%s", address);
	return leave(x, xpi_connect(x, address, attr, timeout_ms, ep));
}

int xport_ep_close(xport_ep *ep, int timeout_ms)
{
	int r;

	if (ep == NULL)
		return XPORT_ERR_INVALID;
	r = enter(ep->x, "xport_ep_close");
	if (r != XPORT_OK)
		return r;
	return leave(ep->x, xpi_ep_close(ep, timeout_ms));
}

void xport_ep_destroy(xport_ep *ep)
{
	struct xport *x = ep != NULL ? ep->x : NULL;

	if (x == NULL || enter(x, "xport_ep_destroy") != XPORT_OK)
		return;
	xpi_ep_destroy(ep);
	leave(x, 0);
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
		return ep->reason == XPORT_ERR_CLOSED || ep->reason == XPORT_ERR_PEER_CLOSED ? XPORT_EP_CLOSED
		                                                                             : XPORT_EP_LOST;
	}
}

int xport_ep_query(const xport_ep *ep, struct xport_ep_info *info)
{
	size_t size = info != NULL ? info->size : 0;
	int r;

	if (ep == NULL || size < sizeof(*info))
		return XPORT_ERR_INVALID;
	r = xpi_enter(ep->x);
	if (r != XPORT_OK)
		return r;
	memset(info, 0, sizeof(*info));
	info->size = size;
	info->state = public_state(ep);
	info->reason = ep->state >= XPI_EP_FAILING ? ep->reason : XPORT_OK;
	memcpy(info->peer, ep->peer, sizeof(info->peer));
	memcpy(info->local, ep->local, sizeof(info->local));
	memcpy(info->peer_host, ep->peer_host, sizeof(info->peer_host));
	info->peer_pid = ep->peer_pid;
	info->private_data = ep->peer_private;
	info->private_len = ep->peer_private_len;
	info->context = ep->context;
	info->in_flight = xpi_stats_in_flight(ep);
	return leave(ep->x, XPORT_OK);
}

/* What the first version of the struct ended with. */
enum { COUNTERS_MIN = offsetof(struct xport_counters, errors) + sizeof(((struct xport_counters *)NULL)->errors) };

int xport_stats(xport *x, const xport_ep *ep, struct xport_counters *counters)
{
	int r;

	if (x == NULL)
		return XPORT_ERR_INVALID;
	r = enter(x, "xport_stats");
	if (r != XPORT_OK)
		return r;
	if (counters == NULL || counters->size < COUNTERS_MIN)
		return leave(x, xpi_refuse(x, XPORT_ERR_INVALID, "xport_stats",
		                           "counters is NULL or counters->size is too small"));
	if (ep != NULL && ep->x != x)
		return leave(
			x, xpi_refuse(x, XPORT_ERR_INVALID, "xport_stats", "the endpoint belongs to another instance"));
	xpi_stats(x, ep, counters);
	return leave(x, XPORT_OK);
}

/* ---- memory ---- */

static int mr_new(xport *x, const char *operation, void *base, size_t length, uint32_t rights, bool alloc,
                  xport_mr **mr)
{
	int r;

	if (x == NULL)
		return XPORT_ERR_INVALID;
	r = enter(x, operation);
	if (r != XPORT_OK)
		return r;
	if (mr == NULL)
		return leave(x, xpi_refuse(x, XPORT_ERR_INVALID, operation, "the place for the region is NULL"));
	return leave(x, xpi_mr_new(x, base, length, rights, alloc, mr));
}

int xport_mr_reg(xport *x, void *base, size_t length, uint32_t rights, xport_mr **mr)
{
	return mr_new(x, "xport_mr_reg", base, length, rights, false, mr);
}

int xport_mr_alloc(xport *x, size_t length, uint32_t rights, xport_mr **mr)
{
	return mr_new(x, "xport_mr_alloc", NULL, length, rights, true, mr);
}

int xport_mr_dereg(xport_mr *mr)
{
	struct xport *x = mr != NULL ? mr->x : NULL;
	int r;

	if (mr == NULL)
		return XPORT_OK;
	r = enter(x, "xport_mr_dereg");
	if (r != XPORT_OK)
		return r;
	return leave(x, xpi_mr_dereg(mr));
}

int xport_mr_query(const xport_mr *mr, struct xport_mr_info *info)
{
	if (mr == NULL || info == NULL || info->size < sizeof(*info))
		return XPORT_ERR_INVALID;
	info->base = mr->base;
	info->length = mr->length;
	info->rights = mr->rights;
	info->allocated = mr->allocated;
	return XPORT_OK;
}

int xport_rkey_pack(const xport_mr *mr, void *buf, size_t *len)
{
	int r;

	if (mr == NULL)
		return XPORT_ERR_INVALID;
	r = enter(mr->x, "xport_rkey_pack");
	if (r != XPORT_OK)
		return r;
	return leave(mr->x, xpi_mr_pack(mr, buf, len));
}

int xport_rkey_unpack(xport_ep *ep, const void *buf, size_t len, xport_rkey **rkey)
{
	int r;

	if (ep == NULL)
		return XPORT_ERR_INVALID;
	r = enter(ep->x, "xport_rkey_unpack");
	if (r != XPORT_OK)
		return r;
	if (rkey == NULL)
		return leave(ep->x, xpi_refuse(ep->x, XPORT_ERR_INVALID, "xport_rkey_unpack",
		                               "the place for the key is NULL"));
	if (ep->state != XPI_EP_OPEN)
		return leave(ep->x, xpi_ep_refuse(ep, "xport_rkey_unpack"));
	return leave(ep->x, xpi_rkey_unpack(ep, buf, len, rkey));
}

void xport_rkey_destroy(xport_rkey *rkey)
{
	struct xport *x = rkey != NULL ? rkey->ep->x : NULL;

	if (x == NULL || enter(x, "xport_rkey_destroy") != XPORT_OK)
		return;
	xpi_rkey_destroy(rkey);
	leave(x, 0);
}

int xport_rkey_query(const xport_rkey *rkey, struct xport_rkey_info *info)
{
	if (rkey == NULL || info == NULL || info->size < sizeof(*info))
		return XPORT_ERR_INVALID;
	info->length = rkey->length;
	info->rights = rkey->rights;
	info->put = path(rkey->put != XPI_BY_MESSAGE);
	info->get = path(rkey->get != XPI_BY_MESSAGE);
	info->direct = rkey->direct != NULL;
	return XPORT_OK;
}
