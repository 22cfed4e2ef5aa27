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
#include <xport.h>

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
	uint64_t id; /* out: of a receive */
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
	struct xport_opt opt = {.size = sizeof(opt), .context = (void *)(uintptr_t)o->number, .mr = o->mr};
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
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = len > 0 ? bytes : NULL, .private_len = len};

	return xpg_failed(g, xport_listen(g->x, address, &attr, out));
}

static inline int xpg_connect(struct xpg *g, const char *address, const void *bytes, size_t len, xport_ep **out)
{
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = len > 0 ? bytes : NULL, .private_len = len};

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

/* Whether the descriptor is readable within so many milliseconds. */
static inline int xpg_readable(int fd, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, timeout_ms) > 0;
}

#endif
