/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/far_user.h"

#include <poll.h>

void far_turn(struct far *u)
{
	struct pollfd p = {.fd = xport_fd(u->h->x), .events = POLLIN};
	int ms = xport_far_timeout(u->f), n;
	struct xport_completion c[8];

	poll(&p, 1, ms < 0 || ms > 2 ? 2 : ms);
	n = xport_poll(u->h->x, c, 8);
	for (int i = 0; i < n; i++) {
		if (xport_far_step(u->f, &c[i]) != 0)
			continue;
		u->gone += c[i].type == XPORT_EVENT_LOST || c[i].type == XPORT_EVENT_CLOSED;
		u->op = c[i].context;
		u->status = c[i].status;
	}
	if (n <= 0)
		(void)xport_far_step(u->f, NULL);
}

struct xport_far_event far_event(struct far *u, const char *file, int line, int type, int status)
{
	int64_t end = h_now_us() + (int64_t)h_ms(20000) * 1000;
	struct xport_far_event e = {.size = sizeof(e)};
	struct h *h = u->h;

	while (xport_far_next(u->f, &e) == 0) {
		if (h_now_us() > end)
			h_fail(h, file, line, "far event", "none of type %d came", type);
		far_turn(u);
	}
	if (e.type != type || e.status != status)
		h_fail(h, file, line, "far event", "type %d with %s, not type %d with %s", e.type,
		       xport_status_name(e.status), type, xport_status_name(status));
	return e;
}

void far_begin(struct far *u, struct h *h, const struct xport_far_attr *attr)
{
	struct xport_attr a = h_attr(h);

	*u = (struct far){.h = h};
	a.peer_timeout_ms = h_ms(5000);
	h_mesh(h, &a);
	H_OK(xport_far_create(h->x, attr, &u->f));
	h->idle = true;
}

void far_end(struct far *u)
{
	struct h *h = u->h;

	H_OK(xport_far_destroy(u->f, NULL, NULL, h_ms(10000)));
	h->idle = false;
}

void far_await(struct far *u, int role)
{
	while (!h_heard(u->h, role))
		far_turn(u);
	h_hear_u64(u->h, role);
}

void far_add(struct far *u, int role, int status)
{
	struct xport_directory_entry entry;
	struct h *h = u->h;
	struct xport_far_event e;

	while (!h_heard(h, role))
		far_turn(u);
	h_hear(h, role, &entry, sizeof(entry));
	H_OK(xport_far_add(u->f, h->ep[role], &entry, u));
	e = FAR_EVENT(u, XPORT_FAR_JOINED, status);
	H_TRUE(e.ep == h->ep[role] && e.context == u);
}

struct xport_far_info far_info(struct far *u)
{
	struct xport_far_info i = {.size = sizeof(i)};
	struct h *h = u->h;

	H_OK(xport_far_query(u->f, &i));
	return i;
}

struct xport_far_lender_info far_lender(struct far *u, int role)
{
	struct xport_far_lender_info i = {.size = sizeof(i)};
	struct h *h = u->h;

	H_OK(xport_far_lender(u->f, h->ep[role], &i));
	return i;
}

struct xport_far_block_info far_block(struct far *u, const xport_far_block *b)
{
	struct xport_far_block_info i = {.size = sizeof(i)};
	struct h *h = u->h;

	H_OK(xport_far_block_query(b, &i));
	return i;
}

struct xport_far_args far_args(uint64_t pieces, int policy)
{
	return (struct xport_far_args){
		.size = sizeof(struct xport_far_args), .length = pieces * PIECE, .piece = PIECE, .policy = policy};
}

int far_access(struct far *u, xport_far_block *b, uint64_t offset, void *buf, size_t len, bool put)
{
	struct xport_opt o = {.size = sizeof(o), .context = buf};
	struct h *h = u->h;
	int r;

	u->op = NULL;
	do {
		r = put ? xport_far_put(b, offset, buf, len, &o) : xport_far_get(b, offset, buf, len, &o);
		if (r == XPORT_ERR_AGAIN)
			far_turn(u);
	} while (r == XPORT_ERR_AGAIN);
	if (r != XPORT_OK)
		return r;
	for (int64_t end = h_now_us() + (int64_t)h_ms(10000) * 1000; u->op != buf;) {
		H_CHECK(h_now_us() < end, "an access did not end");
		far_turn(u);
	}
	return u->status;
}

void far_fill(struct far *u, xport_far_block *b, size_t from, size_t to)
{
	uint8_t *buf = h_buf(u->h, PIECE);
	struct h *h = u->h;

	for (size_t i = from; i < to; i++) {
		h_fill(buf, PIECE, i);
		H_OK(far_access(u, b, i * PIECE, buf, PIECE, true));
	}
}

void far_check(struct far *u, xport_far_block *b, size_t from, size_t to)
{
	uint8_t *buf = h_buf(u->h, PIECE);
	struct h *h = u->h;

	for (size_t i = from; i < to; i++) {
		H_OK(far_access(u, b, i * PIECE, buf, PIECE, false));
		H_FILLED(buf, PIECE, i);
	}
}

void lend_begin(struct far *u, struct h *h)
{
	struct xport_far_attr a = {.size = sizeof(a), .lend = LEND};
	struct xport_directory_entry entry = {.size = sizeof(entry)};

	far_begin(u, h, &a);
	H_OK(xport_far_entry(u->f, &entry));
	h_tell(h, 0, &entry, sizeof(entry));
}

void far_lender_role(struct h *h)
{
	struct far u;

	lend_begin(&u, h);
	far_await(&u, 0);
	far_end(&u);
	h_sync(h);
}

void far_dying_lender(struct h *h)
{
	struct far u;

	lend_begin(&u, h);
	for (;;)
		far_turn(&u);
}
