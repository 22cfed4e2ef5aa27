/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shim.h - what the Go package calls.
 *
 * An operation, or a turn, is one call.  Its arguments and results are in struct xpg, which is C memory: so nothing of Go's
 * memory is passed.  A context is an integer here, and a pointer in C only.
 */
#ifndef XPG_SHIM_H
#define XPG_SHIM_H

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <xport_services.h>

_Static_assert(sizeof(void *) >= 8, "the package xport needs a 64-bit system");

enum { XPG_BATCH = 256, XPG_KEY_MAX = 1024 };

/* One operation: enum xport_type without XPORT_EVENT_. */
struct xpg_operation {
	int kind;
	int atomic, width;
	xport_ep *ep; /* XPORT_OP_RECV: the only sender, or NULL */
	xport_rkey *key;
	xport_mr *mr;
	void *buf; /* XPORT_OP_ATOMIC: receives the old value */
	size_t len;
	uint64_t offset, value, tag, mask, operand, compare;
	uint64_t number;
	uint64_t id; /* out: of a receive, or of a send with XPORT_CANCELABLE */
	uint32_t deadline_ms, flags;
};

/* What belongs to one instance. */
struct xpg {
	xport *x;
	int n; /* completions in list; or a negative status: the back end failed */
	struct xpg_operation op;
	struct xport_error error; /* of the call that failed last */
	struct xport_completion list[XPG_BATCH];
};

static inline int xpg_failed(struct xpg *g, int status)
{
	if (status < 0) {
		g->error.size = sizeof(g->error);
		xport_last_error(g->x, &g->error);
	}
	return status;
}

static inline int xpg_open(struct xpg *g, const struct xport_attr *attr)
{
	return xpg_failed(g, xport_open(attr, &g->x));
}

static inline void xpg_turn(struct xpg *g)
{
	g->n = xpg_failed(g, xport_poll(g->x, g->list, XPG_BATCH));
}

static inline int xpg_post_only(struct xpg *g)
{
	struct xpg_operation *o = &g->op;
	struct xport_opt opt = {.size = sizeof(opt),
	                        .flags = o->flags,
	                        .deadline_ms = o->deadline_ms,
	                        .context = (void *)(uintptr_t)o->number,
	                        .mr = o->mr};
	struct xport_atomic_args args = {.size = sizeof(args)};

	switch (o->kind) {
	case XPORT_OP_PUT:
		return xport_put(o->ep, o->buf, o->len, o->key, o->offset, &opt);
	case XPORT_OP_GET:
		return xport_get(o->ep, o->buf, o->len, o->key, o->offset, &opt);
	case XPORT_OP_PUT_NOTIFY:
		opt.value = o->value;
		return xport_put_notify(o->ep, o->buf, o->len, o->key, o->offset, &opt);
	case XPORT_OP_ATOMIC:
		args.op = o->atomic;
		args.width = o->width;
		args.operand = o->operand;
		args.compare = o->compare;
		args.result = o->buf;
		return xport_atomic(o->ep, &args, o->key, o->offset, &opt);
	case XPORT_OP_SEND:
		opt.id = o->flags != 0 ? &o->id : NULL;
		return xport_send(o->ep, o->buf, o->len, o->tag, &opt);
	case XPORT_OP_RECV:
		opt.source = o->ep;
		opt.id = &o->id;
		return xport_recv(g->x, o->buf, o->len, o->tag, o->mask, &opt);
	default:
		return xport_flush(o->ep, &opt);
	}
}

/*
 * Waits for completions, without the lock of the package: uses g->list and g->n only.  One thread at a time may be in it, and
 * none in xpg_turn.
 */
static inline void xpg_wait(struct xpg *g, int timeout_ms)
{
	g->n = xport_wait(g->x, g->list, XPG_BATCH, timeout_ms);
}

/* Posts g->op, and then makes a turn if `turn` is set. */
static inline int xpg_post(struct xpg *g, int turn)
{
	int status = xpg_post_only(g);

	if (status < 0 && status != XPORT_ERR_AGAIN)
		xpg_failed(g, status);
	if (turn)
		xpg_turn(g);
	return status;
}

/* Private data is read by the call only; `bytes` may be memory of Go's. */
static inline int xpg_listen(struct xpg *g, const char *address, const void *bytes, size_t len, xport_listener **out)
{
	struct xport_conn_attr attr = {
		.size = sizeof(attr), .private_data = len > 0 ? bytes : NULL, .private_len = len};

	return xpg_failed(g, xport_listen(g->x, address, &attr, out));
}

static inline int xpg_connect(struct xpg *g, const char *address, const void *bytes, size_t len, xport_ep **out)
{
	struct xport_conn_attr attr = {
		.size = sizeof(attr), .private_data = len > 0 ? bytes : NULL, .private_len = len};

	return xpg_failed(g, xport_connect(g->x, address, &attr, 0, out));
}

static inline int xpg_accept(struct xpg *g, xport_listener *listener, xport_ep **out)
{
	int status = xport_accept(listener, 0, out);

	return status == XPORT_ERR_TIMEOUT ? status : xpg_failed(g, status);
}

static inline void *xpg_mr_base(xport_mr *mr)
{
	struct xport_mr_info info = {.size = sizeof(info)};

	return xport_mr_query(mr, &info) < 0 ? NULL : info.base;
}

/* ---- remote procedure calls ---- */

struct xpg_rpc {
	struct xpg *g;
	xport_rpcs *rpcs;
	struct xport_rpc_event event;
	uint8_t taken[XPG_BATCH];        /* which completions of g->list belong to the calls */
	struct xport_completion *others; /* those that xport_rpcs_destroy has polled, and that belong to the package */
	size_t n_others, space_of_others;
};

/* Its errors are those of the thread: so they are copied in the same call. */
static inline int xpg_rpc_failed(struct xpg_rpc *r, int status)
{
	if (status < 0) {
		r->g->error.size = sizeof(r->g->error);
		xport_services_last_error(&r->g->error);
	}
	return status;
}

static inline int xpg_rpcs_create(struct xpg_rpc *r, uint32_t max_payload)
{
	struct xport_rpcs_attr attr = {.size = sizeof(attr), .max_payload = max_payload};

	return xpg_rpc_failed(r, xport_rpcs_create(r->g->x, &attr, &r->rpcs));
}

static inline uint32_t xpg_rpcs_max_payload(struct xpg_rpc *r)
{
	struct xport_rpcs_info info = {.size = sizeof(info)};

	return xport_rpcs_query(r->rpcs, &info) < 0 ? 0 : info.max_payload;
}

static inline void xpg_rpcs_step(struct xpg_rpc *r)
{
	for (int i = 0; i < r->g->n; i++)
		r->taken[i] = xport_rpcs_step(r->rpcs, &r->g->list[i]) == 1;
}

static inline int xpg_rpcs_next(struct xpg_rpc *r)
{
	r->event.size = sizeof(r->event);
	return xport_rpcs_next(r->rpcs, &r->event);
}

static inline int xpg_rpc_register(struct xpg_rpc *r, const char *method, uint64_t number)
{
	return xpg_rpc_failed(r, xport_rpc_register(r->rpcs, method, NULL, (void *)(uintptr_t)number));
}

static inline int xpg_rpc_call(struct xpg_rpc *r, xport_ep *ep, const char *method, const void *payload, size_t len,
                               void *reply, size_t reply_max, uint32_t deadline_ms, uint32_t flags,
                               const uint8_t *trace, uint64_t number, uint64_t *id)
{
	struct xport_rpc_args args = {.size = sizeof(args),
	                              .payload = payload,
	                              .len = len,
	                              .reply = reply,
	                              .reply_max = reply_max,
	                              .deadline_ms = deadline_ms,
	                              .flags = flags,
	                              .context = (void *)(uintptr_t)number,
	                              .id = &r->event.id};
	int status;

	memcpy(args.trace, trace, sizeof(args.trace));
	status = xpg_rpc_failed(r, xport_rpc_call(r->rpcs, ep, method, &args));
	*id = r->event.id;
	return status;
}

static inline void xpg_rpc_other(void *arg, const struct xport_completion *c)
{
	struct xpg_rpc *r = arg;

	if (r->n_others == r->space_of_others) {
		size_t space = 2 * r->space_of_others + 64;
		void *more = realloc(r->others, space * sizeof(*c));

		if (more == NULL)
			abort(); /* a completion that is lost would leave its goroutine asleep */
		r->others = more;
		r->space_of_others = space;
	}
	r->others[r->n_others++] = *c;
}

static inline int xpg_rpcs_destroy(struct xpg_rpc *r, int timeout_ms)
{
	return xpg_rpc_failed(r, xport_rpcs_destroy(r->rpcs, xpg_rpc_other, r, timeout_ms));
}

/* Whether the descriptor is readable within so many milliseconds. */
static inline int xpg_readable(int fd, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, timeout_ms) > 0;
}

#endif
