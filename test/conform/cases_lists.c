/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_lists.c - the promises for puts and gets with lists of pieces: each is compared with the call for one buffer. */
#include "lists.h"

enum { ROUNDS = 24, LEN = 4096 };

/* ---- the same as single puts and gets ---- */

static void target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, h_pieces_room(h_size(h)), 0, H_ALL);
	h_fill(m.p, m.len, 1000);
	h_share(h, 1, &m);
	h_sync(h);
	H_GUARDS(m);
}

/* Three memories of the same size: one with pieces, one to look at the peer's with, and what should be there. */
struct scene {
	struct h_mem l, look;
	struct h_rkey r;
	uint8_t *model, *flat;
	struct h_lists lists;
};

static void scene_begin(struct h *h, struct scene *s)
{
	size_t room;

	h_mesh(h, NULL);
	room = h_pieces_room(h_size(h));
	s->l = h_mem_local(h, room, 0);
	s->look = h_mem_local(h, room, 0);
	s->r = h_import(h, 0);
	s->model = h_buf(h, room);
	s->flat = h_buf(h, room);
	h_fill(s->model, room, 1000);
	s->lists = (struct h_lists){.seed = 4711 + h->param};
}

static void same_there(struct h *h, struct scene *s)
{
	memset(s->look.p, 0, s->look.len);
	H_DONE(h_get(h, h->ep[0], H_AT(s->look, 0, s->look.len), &s->r, 0));
	H_CHECK(memcmp(s->look.p, s->model, s->look.len) == 0, "the target's memory is not what single puts leave");
}

static void putv(struct h *h)
{
	static const uint64_t flags[] = {0, XPORT_LOCAL, XPORT_QUIET};
	struct scene s;
	struct h_op *op;

	scene_begin(h, &s);
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t f = flags[i % 3];

		h_fill(s.l.p, s.l.len, i);
		h_pieces_local(h, &s.lists, &s.l, h_size(h));
		h_pieces_remote(h, &s.lists, &s.r, h_size(h));
		op = h_putv(h, h->ep[0], &s.lists, &s.l, &s.r, f);
		h_gather(&s.lists, s.flat);
		for (size_t k = 0, at = 0; k < s.lists.nremote; at += s.lists.remote[k++].len)
			memcpy(s.model + (s.lists.remote[k].offset - s.r.offset), s.flat + at, s.lists.remote[k].len);
		if (f != XPORT_QUIET) {
			H_DONE(op);
			H_EQ(s.lists.total, op->c.length);
			H_EQ(0, op->c.tag);
			H_TRUE(op->c.ep == h->ep[0]);
		}
		if (f == XPORT_LOCAL)
			memset(s.l.p, 0xee, s.l.len);
		if (f != 0)
			H_DONE(h_flush(h, h->ep[0]));
		same_there(h, &s);
	}
	H_EQ(0, h->nqueue);
	h_sync(h);
	H_GUARDS(s.l);
	h_mem_free(h, &s.l);
}

static void getv(struct h *h)
{
	struct scene s;
	struct h_op *op;
	uint8_t *expected;

	scene_begin(h, &s);
	expected = h_buf(h, s.l.len);
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t f = i % 2 != 0 ? XPORT_QUIET : 0;

		memset(s.l.p, 0x11, s.l.len);
		h_pieces_local(h, &s.lists, &s.l, h_size(h));
		h_pieces_remote(h, &s.lists, &s.r, h_size(h));
		op = h_getv(h, h->ep[0], &s.lists, &s.l, &s.r, f);
		if (f == XPORT_QUIET) {
			H_DONE(h_flush(h, h->ep[0]));
		} else {
			H_DONE(op);
			H_EQ(s.lists.total, op->c.length);
		}
		for (size_t k = 0, at = 0; k < s.lists.nremote; at += s.lists.remote[k++].len)
			memcpy(s.flat + at, s.model + (s.lists.remote[k].offset - s.r.offset), s.lists.remote[k].len);
		memcpy(expected, s.l.p, s.l.len);
		memset(s.l.p, 0x11, s.l.len);
		h_scatter(&s.lists, s.flat, s.lists.total);
		H_CHECK(memcmp(expected, s.l.p, s.l.len) == 0, "round %u: local memory is not what single gets leave",
		        i);
	}
	H_EQ(0, h->nqueue);
	h_sync(h);
	H_GUARDS(s.l);
	h_mem_free(h, &s.l);
}

/* ---- exactly once, bounded, in order ---- */

static void small_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
	H_GUARDS(m);
}

/* `n` pieces of `len` bytes, with a hole of the same length behind each. */
static void even(struct h_lists *l, const struct h_mem *m, const struct h_rkey *r, size_t n, size_t len)
{
	l->nlocal = l->nremote = n;
	l->total = n * len;
	for (size_t i = 0; i < n; i++) {
		l->local[i] = (struct xport_iov){.addr = m->p + 2 * i * len, .len = len, .mr = m->mr};
		l->remote[i] = (struct xport_riov){.offset = r->offset + 2 * i * len, .len = len};
	}
}

/* A full queue refuses the whole call; what was accepted completes once. */
static void again(struct h *h)
{
	enum { DEPTH = 8, MANY = 200 };
	struct xport_attr a = h_attr(h);
	struct h_lists lists = {0};
	struct h_mem l;
	struct h_rkey r;
	unsigned accepted = 0, refused = 0;

	a.queue_depth = DEPTH;
	h_mesh(h, &a);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	even(&lists, &l, &r, H_PIECES, 16);
	while (accepted < MANY) {
		bool get = accepted % 2 != 0;
		struct h_op *op = h_op(h, get ? XPORT_OP_GET : XPORT_OP_PUT);
		struct xport_opt o = {.size = sizeof(o), .context = op};
		int s = get ? xport_getv(h->ep[0], lists.local, lists.nlocal, r.k, lists.remote, lists.nremote, &o)
		            : xport_putv(h->ep[0], lists.local, lists.nlocal, r.k, lists.remote, lists.nremote, &o);

		if (s == XPORT_OK) {
			accepted++;
			continue;
		}
		h_op_drop(h, op);
		H_STATUS(XPORT_ERR_AGAIN, s);
		refused++;
		H_TRUE(h->pending <= DEPTH);
		h_breathe(h);
	}
	h_settle(h);
	H_TRUE(refused > 0);
	h_run_for(h, 20);
	H_EQ(0, h->nqueue);
	h_sync(h);
}

static void notify_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct xport_completion c = H_EVENT(XPORT_EVENT_NOTIFY);

		H_EQ(i, c.tag);
		for (size_t k = 0; k < 16; k++)
			H_BYTES(m.p + 64 * k, 32, (uint8_t)(i + 1));
		h_sync(h);
	}
}

static void notify_after(struct h *h)
{
	struct h_lists lists = {0};
	struct h_mem l;
	struct h_rkey r;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		memset(l.p, (int)i + 1, LEN);
		even(&lists, &l, &r, 16, 32);
		h_putv(h, h->ep[0], &lists, &l, &r, i % 2 != 0 ? XPORT_QUIET : 0);
		h_notify(h, h->ep[0], H_AT(l, 0, 0), &r, 0, i, 0);
		h_settle(h);
		h_sync(h);
	}
}

/* A get with lists behind a fence reads what a put with lists before it wrote. */
static void fenced(struct h *h)
{
	struct h_lists lists = {0};
	struct h_mem l, back;
	struct h_rkey r;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	back = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct h_op *got;

		h_fill(l.p, LEN, i);
		memset(back.p, 0, LEN);
		even(&lists, &l, &r, 32, 64);
		h_putv(h, h->ep[0], &lists, &l, &r, XPORT_LOCAL);
		H_OK(xport_fence(h->ep[0]));
		even(&lists, &back, &r, 32, 64);
		got = h_getv(h, h->ep[0], &lists, &back, &r, 0);
		H_DONE(got);
		for (size_t k = 0; k < 32; k++)
			H_TRUE(memcmp(l.p + 128 * k, back.p + 128 * k, 64) == 0);
		h_settle(h);
	}
	h_sync(h);
}

/* The peer is killed: each operation that was accepted completes once, and the memory of its pieces is free then. */
static void killed(struct h *h)
{
	enum { MANY = 50 };
	struct h_lists lists = {0};
	struct h_op *op[MANY];
	struct h_mem l;
	struct h_rkey r;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	even(&lists, &l, &r, H_PIECES, 32);
	h_stop(h, 0);
	for (int i = 0; i < MANY; i++)
		op[i] = i % 2 != 0 ? h_getv(h, h->ep[0], &lists, &l, &r, 0) : h_putv(h, h->ep[0], &lists, &l, &r, 0);
	h_kill(h, 0, SIGKILL);
	H_EVENT(XPORT_EVENT_LOST);
	for (int i = 0; i < MANY; i++) {
		H_ENDED(op[i]);
		H_CHECK(op[i]->c.status == XPORT_OK || op[i]->c.status == XPORT_ERR_PEER_LOST, "status %d",
		        op[i]->c.status);
		H_EQ(lists.total, op[i]->c.length);
	}
	H_EQ(0, h->pending);
	H_OK(xport_mr_dereg(l.mr)); /* would wait for ever if a run still used it */
	l.mr = NULL;
}

static void killed_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
}

/* ---- refused ---- */

struct bad {
	struct h *h;
	struct h_mem l;
	struct h_rkey r;
	struct h_lists good;
};

/* Both calls refuse these lists with this status and a text that has `why`. */
static void refused_as(struct bad *b, const struct h_lists *l, int status, const char *why)
{
	struct h *h = b->h;
	struct xport_opt o = {.size = sizeof(o), .mr = NULL};

	for (int i = 0; i < 2; i++) {
		struct xport_error e = {.size = sizeof(e)};

		H_STATUS(status, i == 0 ? xport_putv(h->ep[0], l->local, l->nlocal, b->r.k, l->remote, l->nremote, &o)
		                        : xport_getv(h->ep[0], l->local, l->nlocal, b->r.k, l->remote, l->nremote, &o));
		H_OK(xport_last_error(h->x, &e));
		H_EQ(status, e.status);
		H_CHECK(strstr(e.text, why) != NULL, "says \"%s\", not \"%s\"", e.text, why);
		H_CHECK(strcmp(e.operation, i == 0 ? "xport_putv" : "xport_getv") == 0, "is of %s", e.operation);
	}
}

static void refuse_counts(struct bad *b)
{
	struct h *h = b->h;
	struct xport_iov *none = NULL;
	struct xport_riov *nowhere = NULL;
	struct h_lists l = b->good;

	H_EQ(H_PIECES, h->info.iov_max);
	l.nlocal = 0;
	refused_as(b, &l, XPORT_ERR_INVALID, "local list has no pieces");
	l = b->good;
	l.nremote = 0;
	refused_as(b, &l, XPORT_ERR_INVALID, "remote list has no pieces");
	l.nremote = H_PIECES + 1;
	refused_as(b, &l, XPORT_ERR_INVALID, "remote list has 65 pieces");
	l = b->good;
	l.nlocal = H_PIECES + 1;
	refused_as(b, &l, XPORT_ERR_INVALID, "local list has 65 pieces");
	H_STATUS(XPORT_ERR_INVALID, xport_putv(h->ep[0], none, 1, b->r.k, b->good.remote, 4, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_getv(h->ep[0], b->good.local, 4, b->r.k, nowhere, 1, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_putv(NULL, b->good.local, 4, b->r.k, b->good.remote, 4, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_getv(h->ep[0], b->good.local, 4, NULL, b->good.remote, 4, NULL));
}

static void refuse_pieces(struct bad *b)
{
	struct h *h = b->h;
	struct h_lists l = b->good;

	l.local[2].addr = NULL;
	refused_as(b, &l, XPORT_ERR_INVALID, "local piece 2");
	if (b->l.mr != NULL) {
		l = b->good;
		l.local[1].addr = b->l.p + b->l.len - 8;
		l.local[1].mr = b->l.mr;
		if (!b->l.allocated)
			refused_as(b, &l, XPORT_ERR_INVALID, "local piece 1");
	}
	l = b->good;
	l.remote[3].offset = b->r.offset + b->r.length + 4096 * 1024;
	refused_as(b, &l, XPORT_ERR_BOUNDS, "remote piece 3");
	l.remote[3].offset = UINT64_MAX;
	refused_as(b, &l, XPORT_ERR_BOUNDS, "remote piece 3");
	l.remote[3].len = 0;
	refused_as(b, &l, XPORT_ERR_BOUNDS, "remote piece 3");
	l = b->good;
	l.remote[0].len--;
	refused_as(b, &l, XPORT_ERR_INVALID, "must be equal");
	l = b->good;
	l.local[3].len--;
	refused_as(b, &l, XPORT_ERR_INVALID, "must be equal");
	l = b->good;
	l.local[0].len = l.local[1].len = (size_t)1 << 62;
	l.local[0].mr = l.local[1].mr = NULL;
	refused_as(b, &l, XPORT_ERR_INVALID, "local piece 1");
	H_TRUE(h->pending == 0);
}

static void refused(struct h *h)
{
	struct bad b = {.h = h};
	struct xport_opt o = {.size = sizeof(o), .flags = XPORT_EAGER};

	h_mesh(h, NULL);
	b.l = h_mem_local(h, LEN, 0);
	b.r = h_import(h, 0);
	even(&b.good, &b.l, &b.r, 4, 16);
	memset(b.l.p, 0x77, LEN);
	refuse_counts(&b);
	refuse_pieces(&b);
	H_STATUS(XPORT_ERR_INVALID, xport_putv(h->ep[0], b.good.local, 4, b.r.k, b.good.remote, 4, &o));
	o.flags = XPORT_LOCAL;
	H_STATUS(XPORT_ERR_INVALID, xport_getv(h->ep[0], b.good.local, 4, b.r.k, b.good.remote, 4, &o));
	h_run_for(h, 20);
	H_EQ(0, h->nqueue);
	/* No byte was written, and the endpoint goes on. */
	H_DONE(h_get(h, h->ep[0], H_AT(b.l, 0, LEN), &b.r, 0));
	H_BYTES(b.l.p, LEN, 0);
	memset(b.l.p, 0x55, LEN);
	H_DONE(h_putv(h, h->ep[0], &b.good, &b.l, &b.r, 0));
	/* Lists of no bytes are allowed. */
	for (int i = 0; i < 4; i++)
		b.good.local[i].len = b.good.remote[i].len = 0;
	b.good.local[0].addr = NULL;
	H_DONE(h_putv(h, h->ep[0], &b.good, &b.l, &b.r, 0));
	H_DONE(h_getv(h, h->ep[0], &b.good, &b.l, &b.r, 0));
	h_putv(h, h->ep[0], &b.good, &b.l, &b.r, XPORT_QUIET);
	H_DONE(h_flush(h, h->ep[0]));
	h_sync(h);
}

static void rights_target(struct h *h)
{
	struct h_mem write_only, read_only;

	h_mesh(h, NULL);
	write_only = h_mem_target(h, LEN, 0, XPORT_REMOTE_WRITE);
	read_only = h_mem_target(h, LEN, 0, XPORT_REMOTE_READ);
	h_share(h, 1, &write_only);
	h_share(h, 1, &read_only);
	h_sync(h);
}

static void rights(struct h *h)
{
	struct h_lists lists = {0};
	struct h_mem l;
	struct h_rkey w, r;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	w = h_import(h, 0);
	r = h_import(h, 0);
	even(&lists, &l, &w, 4, 16);
	H_STATUS(XPORT_ERR_ACCESS, xport_getv(h->ep[0], lists.local, 4, w.k, lists.remote, 4, NULL));
	H_DONE(h_putv(h, h->ep[0], &lists, &l, &w, 0));
	even(&lists, &l, &r, 4, 16);
	H_STATUS(XPORT_ERR_ACCESS, xport_putv(h->ep[0], lists.local, 4, r.k, lists.remote, 4, NULL));
	H_DONE(h_getv(h, h->ep[0], &lists, &l, &r, 0));
	h_sync(h);
}

/* After the region has ended, a call with lists fails as a whole, and once. */
static void stale_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_hear_u64(h, 1);
	h_mem_free(h, &m);
	h_tell_u64(h, 1, 1);
	h_sync(h);
}

static void stale(struct h *h)
{
	struct h_lists lists = {0};
	struct h_mem l;
	struct h_rkey r;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	even(&lists, &l, &r, 32, 32);
	H_DONE(h_putv(h, h->ep[0], &lists, &l, &r, 0));
	h_tell_u64(h, 0, 1);
	h_hear_u64(h, 0);
	for (int i = 0; i < 4; i++) {
		int type = i % 2 != 0 ? XPORT_OP_GET : XPORT_OP_PUT;
		struct h_op *op = h_op(h, type);
		struct xport_opt o = {.size = sizeof(o), .context = op};
		int s = type == XPORT_OP_GET ? xport_getv(h->ep[0], lists.local, 32, r.k, lists.remote, 32, &o)
		                             : xport_putv(h->ep[0], lists.local, 32, r.k, lists.remote, 32, &o);

		if (s == XPORT_OK) {
			H_DONE_AS(XPORT_ERR_STALE_KEY, op);
		} else {
			h_op_drop(h, op);
			H_STATUS(XPORT_ERR_STALE_KEY, s);
		}
	}
	h_run_for(h, 20);
	H_EQ(0, h->nqueue);
	h_sync(h);
}

static const struct h_param totals[] = {
	{"1", 1},         {"100", 100},          {"9000", 9000}, {"at_eager", H_NEAR_EAGER},
	{"300k", 300000}, {"3m", (3 << 20) + 5}, {NULL, 0}};

const struct h_scenario cases_lists[] = {
	{.name = "P2_putv", .role = {target, putv}, .params = totals, .flags = H_KINDS},
	{.name = "P2_getv", .role = {target, getv}, .params = totals, .flags = H_KINDS},
	{.name = "P8_lists_in_a_short_queue", .role = {small_target, again}, .flags = H_TARGET},
	{.name = "P4_notify_after_putv", .role = {notify_target, notify_after}, .flags = H_TARGET},
	{.name = "P4_fence_between_lists", .role = {small_target, fenced}, .flags = H_TARGET},
	{.name = "P1_lists_to_a_killed_peer", .role = {killed_target, killed}, .flags = H_KILLS | H_TARGET},
	{.name = "P6_lists_refused", .role = {small_target, refused}, .flags = H_TARGET},
	{.name = "P6_lists_rights", .role = {rights_target, rights}, .flags = H_TARGET},
	{.name = "P16_lists_stale", .role = {stale_target, stale}, .flags = H_TARGET},
	{.name = NULL},
};
