/* SPDX-License-Identifier: BSD-3-Clause */
/* scene.c - see scene.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "scene.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "services/xport_services.h"

uint8_t buffer[2][LONG + 64], local[2][LONG + 64];

int64_t sc_now_ms(void)
{
	static _Thread_local int64_t last, missed;
	struct timespec t;
	int64_t now;

	clock_gettime(CLOCK_MONOTONIC, &t);
	now = (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
	/* Who waits looks all the time: what it did not see pass, others had the processor. */
	if (last != 0 && now - last > UNSEEN_MS)
		missed += now - last - UNSEEN_MS;
	last = now;
	return now - missed;
}

void scene_bad(struct scene *s, const char *fmt, ...)
{
	va_list args;

	if (s->text[0] != '\0')
		return;
	va_start(args, fmt);
	vsnprintf(s->text, SCENE_TEXT, fmt, args);
	va_end(args);
}

/* A step did not succeed: as it may, after a call has failed, or while all ends. */
static void failed(struct scene *s)
{
	s->unexpected += !s->ending;
}

bool sc_failing(const struct scene *s)
{
	return s->unexpected > 0 || s->ending;
}

/* ---- statuses ---- */

/* Whether it succeeded; a failure must be one of `allowed` and told by xport_last_error. */
bool sc_ok(struct scene *s, const xport *x, const char *what, int status, unsigned allowed)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status == XPORT_OK)
		return true;
	failed(s);
	if (status > 0 || status < -31 || !(allowed & BIT(status))) {
		xport_last_error(x, &e);
		scene_bad(s, "%s returned %s, which is not among what it may: %s", what, xport_status_name(status),
		          e.text);
		return false;
	}
	if (status == XPORT_ERR_AGAIN)
		return false;
	if (xport_last_error(x, &e) != XPORT_OK || e.status != status || e.text[0] == '\0')
		scene_bad(s, "%s returned %s, and xport_last_error says %s of %s: \"%s\"", what,
		          xport_status_name(status), xport_status_name(e.status), e.operation, e.text);
	return false;
}

void sc_note(struct scene *s, int status, unsigned allowed)
{
	failed(s);
	if (!(allowed & BIT(status)))
		scene_bad(s, "%s was told, which is not among what may be", xport_status_name(status));
}

bool sc_served(struct scene *s, const char *what, int status, unsigned allowed)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return true;
	failed(s);
	if (xport_services_last_error(&e) != XPORT_OK || e.status != status || e.text[0] == '\0')
		scene_bad(s, "%s returned %s, and xport_services_last_error says %s: \"%s\"", what,
		          xport_status_name(status), xport_status_name(e.status), e.text);
	else if (!(allowed & BIT(status)))
		scene_bad(s, "%s returned %s, which is not among what it may: %s", what, xport_status_name(status),
		          e.text);
	return false;
}

/* ---- progress ---- */

static bool is_receive(uint32_t type)
{
	return type == XPORT_OP_RECV || type == XPORT_OP_RECV_END;
}

static void on_operation(struct scene *s, int side, const struct xport_completion *c)
{
	struct scene_op *op = c->context;

	if (op < s->ops || op >= s->ops + s->nops) {
		scene_bad(s, "a completion of type %u that nothing was posted for, status %s", c->type,
		          xport_status_name(c->status));
		return;
	}
	/* A message of a receive that takes many: its end follows. */
	if (op->type == XPORT_OP_RECV_END && c->type == XPORT_OP_RECV && !op->done) {
		if (c->status != XPORT_OK)
			failed(s);
		return;
	}
	if (++op->done > 1)
		scene_bad(s, "operation %d of type %u completed twice", (int)(op - s->ops), op->type);
	if (op->type != c->type || op->side != side)
		scene_bad(s, "an operation of type %u completed as %u", op->type, c->type);
	if (!op->accepted)
		scene_bad(s, "an operation of type %u completed that was refused", op->type);
	if (op->quiet)
		scene_bad(s, "a quiet operation of type %u completed: %s", op->type, xport_status_name(c->status));
	op->status = c->status;
	if (c->status != XPORT_OK) {
		failed(s);
		if (c->status > 0 || !(ON_DONE & BIT(c->status)))
			scene_bad(s, "an operation of type %u ended with %s, which is not among what it may", op->type,
			          xport_status_name(c->status));
	}
}

static void on_event(struct scene *s, int side, const struct xport_completion *c)
{
	switch (c->type) {
	case XPORT_EVENT_CONNECTED:
		s->up[side] = true;
		break;
	case XPORT_EVENT_ACCEPTED:
		s->told = true;
		break;
	case XPORT_EVENT_LOST:
	case XPORT_EVENT_CLOSED:
		if (s->ended[side])
			scene_bad(s, "two events of the end of an endpoint");
		s->ended[side] = true;
		failed(s);
		break;
	case XPORT_EVENT_NOTIFY:
		s->notified = c->tag;
		break;
	default:
		break;
	}
}

void sc_step(struct scene *s)
{
	struct xport_completion c[16];

	for (int side = 0; side < 2; side++) {
		int n = s->x[side] != NULL ? xport_poll(s->x[side], c, 16) : 0;

		if (n < 0)
			sc_ok(s, s->x[side], "xport_poll", n, BIT(XPORT_ERR_SYSTEM) | BIT(XPORT_ERR_NO_MEMORY));
		for (int i = 0; i < n; i++) {
			if (s->own != NULL && s->own(s, side, &c[i]))
				continue;
			if (c[i].type < XPORT_EVENT_NOTIFY)
				on_operation(s, side, &c[i]);
			else
				on_event(s, side, &c[i]);
		}
	}
	if (s->threads)
		usleep(200);
}

static bool all_done(const struct scene *s)
{
	for (int i = 0; i < s->nops; i++)
		if (s->ops[i].accepted && !s->ops[i].done && !s->ops[i].quiet && !is_receive(s->ops[i].type))
			return false;
	return true;
}

/* Polls until all but the receives have completed.  Without memory for good some wait for it; they go on once there is. */
void sc_settle(struct scene *s)
{
	int64_t end = sc_now_ms() + MEMORY_LIMIT_MS;

	while (!all_done(s) && sc_now_ms() < end)
		sc_step(s);
	if (!all_done(s))
		inject_relent();
	for (end = sc_now_ms() + OPS_LIMIT_MS; !all_done(s) && sc_now_ms() < end;)
		sc_step(s);
	for (int i = 0; i < s->nops; i++)
		if (s->ops[i].accepted && !s->ops[i].done && !s->ops[i].quiet && !is_receive(s->ops[i].type)) {
			for (int side = 0; side < 2; side++)
				if (s->x[side] != NULL)
					xport_dump(s->x[side]);
			scene_bad(s, "hang: operation %d, of type %u, did not complete within %d ms", i, s->ops[i].type,
			          OPS_LIMIT_MS);
			return;
		}
}

void sc_breathe(struct scene *s, int polls)
{
	for (int i = 0; i < polls; i++)
		sc_step(s);
}

/* ---- close ---- */

/* What is left of receives ends here. */
void sc_close_endpoint(struct scene *s, int side)
{
	s->ending = true;
	if (s->ep[side] == NULL)
		return;
	sc_ok(s, s->x[side], "xport_ep_close", xport_ep_close(s->ep[side], s->threads ? 100 : 0),
	      s->up[side] ? ON_CLOSE : ON_CLOSE | ON_CONNECT);
	sc_breathe(s, 4);
	xport_ep_destroy(s->ep[side]);
	s->ep[side] = NULL;
}

void sc_close_all(struct scene *s)
{
	for (int side = 1; side >= 0; side--) {
		sc_close_endpoint(s, side);
		sc_breathe(s, 4);
	}
	xport_listener_close(s->listener);
	s->listener = NULL;
	for (int side = 0; side < 2; side++) {
		xport *x = s->x[side];

		s->x[side] = NULL;
		xport_close(x);
	}
}

/* ---- operations ---- */

uint32_t sc_deadline_ms;

static struct xport_opt opt_for(struct scene *s, int side, uint32_t type, uint64_t flags)
{
	struct scene_op *op = &s->ops[s->nops++];

	if (s->nops > SCENE_OPS)
		abort();
	*op = (struct scene_op){.type = type, .side = side, .quiet = (flags & XPORT_QUIET) != 0};
	op->accepted = 1; /* a progress thread may be faster than the return of the call */
	return (struct xport_opt){.size = sizeof(struct xport_opt),
	                          .context = op,
	                          .flags = (uint32_t)flags,
	                          .deadline_ms = sc_deadline_ms};
}

static bool posted(struct scene *s, const struct xport_opt *opt, const char *what, int status)
{
	struct scene_op *op = opt->context;

	if (sc_ok(s, s->x[op->side], what, status, ON_POST))
		return true;
	op->accepted = 0;
	if (op->done)
		scene_bad(s, "%s was refused, and completed", what);
	return false;
}

void sc_put(struct scene *s, xport_rkey *k, size_t len, uint64_t offset, uint64_t flags)
{
	struct xport_opt o = opt_for(s, 1, XPORT_OP_PUT, flags);

	posted(s, &o, "xport_put", xport_put(s->ep[1], local[1], len, k, offset, &o));
}

void sc_get(struct scene *s, xport_rkey *k, size_t len, uint64_t offset)
{
	struct xport_opt o = opt_for(s, 1, XPORT_OP_GET, 0);

	posted(s, &o, "xport_get", xport_get(s->ep[1], local[1] + REGION, len, k, offset, &o));
}

void sc_put_notify(struct scene *s, xport_rkey *k, size_t len, uint64_t value)
{
	struct xport_opt o = opt_for(s, 1, XPORT_OP_PUT_NOTIFY, 0);

	o.value = value;
	posted(s, &o, "xport_put_notify", xport_put_notify(s->ep[1], local[1], len, k, 0, &o));
}

void sc_atomic(struct scene *s, xport_rkey *k, void *result)
{
	struct xport_atomic_args a = {
		.size = sizeof(a), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1, .result = result};
	struct xport_opt o = opt_for(s, 1, XPORT_OP_ATOMIC, 0);

	posted(s, &o, "xport_atomic", xport_atomic(s->ep[1], &a, k, REGION - 64, &o));
}

void sc_flush(struct scene *s)
{
	struct xport_opt o = opt_for(s, 1, XPORT_OP_FLUSH, 0);

	posted(s, &o, "xport_flush", xport_flush(s->ep[1], &o));
}

void sc_send_to(struct scene *s, int side, size_t len, uint64_t tag)
{
	struct xport_opt o = opt_for(s, side, XPORT_OP_SEND, 0);

	o.mr = s->source[side];
	posted(s, &o, "xport_send", xport_send(s->ep[side], local[side], len, tag, &o));
}

struct scene_op *sc_receive_many(struct scene *s, int side, size_t len, size_t longest, uint64_t tag)
{
	struct xport_opt o = opt_for(s, side, XPORT_OP_RECV_END, XPORT_MULTI);

	o.source = s->ep[side];
	o.value = longest;
	posted(s, &o, "xport_recv", xport_recv(s->x[side], buffer[side], len, tag, UINT64_MAX, &o));
	return o.context;
}

/* Into buffer[side]; from that side's peer. */
struct scene_op *sc_receive(struct scene *s, int side, size_t len, uint64_t tag)
{
	struct xport_opt o = opt_for(s, side, XPORT_OP_RECV, 0);
	uint64_t id = 0;

	o.source = s->ep[side];
	o.mr = s->sink[side];
	o.id = &id;
	posted(s, &o, "xport_recv", xport_recv(s->x[side], buffer[side], len, tag, ~(uint64_t)0, &o));
	return o.context;
}

static void pieces(struct xport_iov *list, uint8_t *from, size_t len)
{
	for (int i = 0; i < PIECES; i++)
		list[i] = (struct xport_iov){.addr = from + (size_t)i * len, .len = len};
}

static void holes(struct xport_riov *list, size_t len)
{
	for (int i = 0; i < PIECES; i++)
		list[i] = (struct xport_riov){.offset = 2 * (uint64_t)(PIECES - 1 - i) * len, .len = len};
}

void sc_putv(struct scene *s, xport_rkey *k, size_t len, uint64_t flags)
{
	struct xport_opt o = opt_for(s, 1, XPORT_OP_PUT, flags);
	struct xport_iov from[PIECES];
	struct xport_riov to[PIECES];

	pieces(from, local[1], len);
	holes(to, len);
	posted(s, &o, "xport_putv", xport_putv(s->ep[1], from, PIECES, k, to, PIECES, &o));
}

void sc_getv(struct scene *s, xport_rkey *k, size_t len)
{
	struct xport_opt o = opt_for(s, 1, XPORT_OP_GET, 0);
	struct xport_iov to[PIECES];
	struct xport_riov from[PIECES];

	pieces(to, local[1] + REGION, len);
	holes(from, len);
	posted(s, &o, "xport_getv", xport_getv(s->ep[1], to, PIECES, k, from, PIECES, &o));
}

void sc_sendv_to(struct scene *s, int side, size_t len, uint64_t tag)
{
	struct xport_opt o = opt_for(s, side, XPORT_OP_SEND, 0);
	struct xport_iov from[PIECES];

	o.mr = s->source[side];
	pieces(from, local[side], len);
	posted(s, &o, "xport_sendv", xport_sendv(s->ep[side], from, PIECES, tag, &o));
}

struct scene_op *sc_receivev(struct scene *s, int side, size_t len, uint64_t tag)
{
	struct xport_opt o = opt_for(s, side, XPORT_OP_RECV, 0);
	struct xport_iov to[PIECES];

	o.source = s->ep[side];
	o.mr = s->sink[side];
	pieces(to, buffer[side], len);
	posted(s, &o, "xport_recvv", xport_recvv(s->x[side], to, PIECES, tag, ~(uint64_t)0, &o));
	return o.context;
}

/* ---- memory ---- */

static xport_mr *own(struct scene *s, int side, uint8_t *base, uint32_t rights)
{
	xport_mr *mr;
	int rc = xport_mr_reg(s->x[side], base, LONG + 64, rights, &mr);

	return sc_ok(s, s->x[side], "xport_mr_reg", rc, ON_REG) ? mr : NULL;
}

void sc_own(struct scene *s, int side)
{
	s->source[side] = own(s, side, local[side], 0);
	s->sink[side] = own(s, side, buffer[side], XPORT_REMOTE_RECV);
}

void sc_disown(struct scene *s, int side)
{
	if (s->x[side] == NULL)
		return;
	sc_ok(s, s->x[side], "xport_mr_dereg", xport_mr_dereg(s->source[side]), 0);
	sc_ok(s, s->x[side], "xport_mr_dereg", xport_mr_dereg(s->sink[side]), 0);
	s->source[side] = s->sink[side] = NULL;
}

void sc_share(struct scene *s, struct region *r, bool alloc)
{
	struct xport_mr_info info = {.size = sizeof(info)};
	uint8_t key[1024];
	size_t len = sizeof(key);
	int rc;

	*r = (struct region){0};
	rc = alloc ? xport_mr_alloc(s->x[0], REGION, RIGHTS, &r->mr)
	           : xport_mr_reg(s->x[0], buffer[0], REGION, RIGHTS, &r->mr);
	if (!sc_ok(s, s->x[0], alloc ? "xport_mr_alloc" : "xport_mr_reg", rc, ON_REG)) {
		r->mr = NULL;
		return;
	}
	if (sc_ok(s, s->x[0], "xport_mr_query", xport_mr_query(r->mr, &info), 0))
		r->base = info.base;
	if (sc_ok(s, s->x[0], "xport_rkey_pack_range", xport_rkey_pack_range(r->mr, 64, 64, 0, key, &len),
	          BIT(XPORT_ERR_NO_MEMORY) | BIT(XPORT_ERR_SYSTEM)))
		sc_ok(s, s->x[0], "xport_rkey_revoke", xport_rkey_revoke(s->x[0], key, len), 0);
	len = sizeof(key);
	if (!sc_ok(s, s->x[0], "xport_rkey_pack", xport_rkey_pack(r->mr, key, &len), BIT(XPORT_ERR_NO_MEMORY)) ||
	    s->ep[1] == NULL)
		return;
	if (!sc_ok(s, s->x[1], "xport_rkey_unpack", xport_rkey_unpack(s->ep[1], key, len, &r->key), ON_UNPACK))
		r->key = NULL;
}

/* After the endpoints have ended: nobody need answer then. */
void sc_unshare(struct scene *s, struct region *r)
{
	if (r->mr != NULL)
		sc_ok(s, s->x[0], "xport_mr_dereg", xport_mr_dereg(r->mr), 0);
	r->mr = NULL;
}

static void check_put(struct scene *s, const struct region *r, size_t len)
{
	if (!sc_failing(s) && memcmp(r->base, local[1], len) != 0)
		scene_bad(s, "a put of %zu bytes succeeded, and they are not there", len);
}

void sc_access(struct scene *s, struct region *r)
{
	uint64_t old = 0;

	sc_put(s, r->key, 8, 0, 0);
	sc_put(s, r->key, REGION - 128, 0, 0);
	sc_settle(s);
	check_put(s, r, REGION - 128);
	sc_put(s, r->key, 100, 0, XPORT_LOCAL);
	sc_put(s, r->key, 200, 0, XPORT_QUIET);
	sc_get(s, r->key, 8, 0);
	sc_get(s, r->key, REGION - 128, 0);
	sc_put_notify(s, r->key, 3000, 77);
	sc_atomic(s, r->key, &old);
	sc_atomic(s, r->key, NULL);
	sc_ok(s, s->x[1], "xport_fence", xport_fence(s->ep[1]), ON_POST);
	sc_put(s, r->key, 20, 0, 0);
	sc_flush(s);
	sc_settle(s);
	if (!sc_failing(s) && memcmp(local[1] + REGION, local[1], REGION - 128) != 0)
		scene_bad(s, "a get succeeded, and what it got is wrong");
}
