/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/bulk_user.h"

#include <poll.h>

/* ---- the owner ---- */

enum { SMALL = 0, LARGE = 1 };

/* Runs as they are without a region: `mr` is SMALL or LARGE. */
struct shape {
	int region;
	uint64_t offset, length, stride, count;
};

static const struct shape pieces[] = {{SMALL, 100, 50, 0, 1},           {SMALL, 4096, 64, 128, 100},
                                      {LARGE, 7, 1500000, 0, 1},        {SMALL, 30000, 1, 3, 50},
                                      {LARGE, 1600000, 1024, 4096, 64}, {SMALL, 0, 100, 0, 1}};
static const struct shape plain_piece[] = {{LARGE, 0, BULK_LARGE, 0, 1}};

static void own(struct bulk_owner *o, const struct shape *s, size_t n, uint32_t rights, uint32_t flags)
{
	struct xport_bulk_attr a = {.size = sizeof(a), .rights = rights, .flags = flags, .owner = o->h->address};
	struct h *h = o->h;

	o->small = h_mem_target(h, BULK_SMALL, 0, H_ALL);
	o->large = h_mem_target(h, BULK_LARGE, 0, H_ALL);
	h_fill(o->small.p, BULK_SMALL, 1);
	h_fill(o->large.p, BULK_LARGE, 2);
	o->nruns = n;
	for (size_t i = 0; i < n; i++) {
		const struct h_mem *m = s[i].region == SMALL ? &o->small : &o->large;

		o->run[i] = (struct xport_bulk_run){.mr = m->mr,
		                                    .offset = m->offset + s[i].offset,
		                                    .length = s[i].length,
		                                    .stride = s[i].stride,
		                                    .count = s[i].count};
	}
	H_OK(xport_bulk_create(h->x, o->run, n, &a, &o->bulk));
}

void bulk_own(struct bulk_owner *o, struct h *h, uint32_t rights, uint32_t flags)
{
	o->h = h;
	own(o, pieces, sizeof(pieces) / sizeof(*pieces), rights, flags);
}

void bulk_own_plain(struct bulk_owner *o, struct h *h, uint32_t rights, uint32_t flags)
{
	o->h = h;
	own(o, plain_piece, 1, rights, flags);
}

void bulk_tell(struct h *h, int role, const xport_bulk *bulk)
{
	uint8_t bytes[BULK_BYTES];
	size_t len = sizeof(bytes);

	H_OK(xport_bulk_pack(bulk, bytes, &len));
	h_tell(h, role, bytes, len);
}

void bulk_disown(struct bulk_owner *o)
{
	xport_bulk_free(o->bulk);
	h_mem_free(o->h, &o->small);
	h_mem_free(o->h, &o->large);
}

size_t bulk_expected(struct h *h, bool plain, uint8_t **bytes)
{
	const struct shape *s = plain ? plain_piece : pieces;
	size_t n = 0, count = plain ? 1 : sizeof(pieces) / sizeof(*pieces);
	uint8_t *region[2] = {h_buf(h, BULK_SMALL), h_buf(h, BULK_LARGE)};

	h_fill(region[SMALL], BULK_SMALL, 1);
	h_fill(region[LARGE], BULK_LARGE, 2);
	*bytes = h_buf(h, BULK_SMALL + BULK_LARGE);
	for (size_t i = 0; i < count; i++) {
		for (uint64_t k = 0; k < s[i].count; k++) {
			memcpy(*bytes + n, region[s[i].region] + s[i].offset + k * s[i].stride, s[i].length);
			n += s[i].length;
		}
	}
	h_buf_free(h, region[SMALL]);
	h_buf_free(h, region[LARGE]);
	return n;
}

/* ---- the user ---- */

void bulk_begin(struct bulk_user *u, struct h *h, const struct xport_bulks_attr *attr)
{
	struct xport_attr a = h_attr(h);

	memset(u, 0, sizeof(*u));
	u->h = h;
	a.peer_timeout_ms = h_ms(2000);
	h_mesh(h, &a);
	H_OK(xport_bulks_create(h->x, attr, &u->b));
	h->idle = true;
}

void bulk_end(struct bulk_user *u)
{
	struct h *h = u->h;

	H_OK(xport_bulks_destroy(u->b, bulk_other, u, h_ms(10000)));
	h->idle = false;
}

void bulk_other(void *arg, const struct xport_completion *c)
{
	struct bulk_user *u = arg;

	if (c->type == XPORT_EVENT_LOST || c->type == XPORT_EVENT_CLOSED)
		u->gone++;
}

void bulk_turn(struct bulk_user *u)
{
	struct pollfd p = {.fd = xport_fd(u->h->x), .events = POLLIN};
	struct xport_completion c[8];
	int ms = xport_bulks_timeout(u->b), n;

	poll(&p, 1, ms < 0 || ms > 2 ? 2 : ms);
	n = xport_poll(u->h->x, c, 8);
	for (int i = 0; i < n; i++) {
		if (xport_bulks_step(u->b, &c[i]) == 0)
			bulk_other(u, &c[i]);
	}
	if (n <= 0)
		(void)xport_bulks_step(u->b, NULL);
}

void bulk_turn_for(struct bulk_user *u, int ms)
{
	int64_t end = h_now_us() + (int64_t)ms * 1000;

	while (h_now_us() < end)
		bulk_turn(u);
}

xport_bulk *bulk_hear(struct bulk_user *u, int role)
{
	struct h *h = u->h;
	xport_bulk *bulk;

	while (!h_heard(h, role))
		bulk_turn(u);
	u->len = h_hear(h, role, u->bytes, sizeof(u->bytes));
	H_OK(xport_bulk_unpack(h->ep[role], u->bytes, u->len, &bulk));
	return bulk;
}

struct xport_bulk_info bulk_info(struct h *h, const xport_bulk *bulk)
{
	struct xport_bulk_info i = {.size = sizeof(i)};

	H_OK(xport_bulk_query(bulk, &i));
	return i;
}

struct xport_bulks_info bulks_info(struct bulk_user *u)
{
	struct xport_bulks_info i = {.size = sizeof(i)};
	struct h *h = u->h;

	H_OK(xport_bulks_query(u->b, &i));
	return i;
}

struct xport_bulk_args bulk_args(uint64_t offset, void *buf, size_t len, struct xport_iov *iov)
{
	*iov = (struct xport_iov){.addr = buf, .len = len};
	return (struct xport_bulk_args){.size = sizeof(struct xport_bulk_args),
	                                .offset = offset,
	                                .local = iov,
	                                .nlocal = 1,
	                                .deadline_ms = (uint32_t)h_ms(20000)};
}

uint64_t bulk_pull(struct bulk_user *u, xport_bulk *bulk, uint64_t offset, void *buf, size_t len)
{
	struct xport_iov iov;
	struct xport_bulk_args a = bulk_args(offset, buf, len, &iov);
	struct h *h = u->h;
	uint64_t id = 0;

	a.context = buf;
	a.id = &id;
	H_OK(xport_bulk_pull(u->b, bulk, &a));
	H_TRUE(id != 0);
	return id;
}

struct xport_bulk_event bulk_next(struct bulk_user *u, const char *file, int line, int type)
{
	int64_t until = h_now_us() + (int64_t)h_ms(20000) * 1000;
	struct xport_bulk_event e = {.size = sizeof(e)};

	while (xport_bulks_next(u->b, &e) == 0) {
		if (h_now_us() > until)
			h_fail(u->h, file, line, "bulk event", "none of type %d came", type);
		bulk_turn(u);
	}
	if (e.type != type)
		h_fail(u->h, file, line, "bulk event", "of type %d (%s, %s), not %d", e.type,
		       xport_status_name(e.status), e.why, type);
	return e;
}

struct xport_bulk_event bulk_done(struct bulk_user *u, const char *file, int line, int status)
{
	struct xport_bulk_event e = bulk_next(u, file, line, XPORT_BULK_DONE);

	h_check_status(u->h, file, line, e.why, status, e.status);
	h_check_equal(u->h, file, line, "released", 1, (uint64_t)e.released);
	return e;
}
