/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_p04.c - P4, order: messages and notifications as posted, notifications after the data, fences. */
#include "harness.h"

enum { MANY = 20000, TURNS = 1500, ROOM = 1 << 20, LONG = 4 << 20 };

/* The length of message i: mostly small, now and then around a threshold or far beyond. */
static size_t length_of(struct h *h, uint64_t i)
{
	if (i % 97 == 13)
		return h->info.eager_max + 1;
	if (i % 101 == 17)
		return h->info.eager_max;
	if (i % 499 == 3)
		return 200000;
	return 8 + i % 57;
}

static void order_send(struct h *h)
{
	uint8_t *buf[16];
	struct h_op *op[16] = {NULL};

	h_mesh(h, NULL);
	for (int i = 0; i < 16; i++)
		buf[i] = h_buf(h, ROOM);
	h_sync(h);
	for (uint64_t i = 0; i < h->param; i++) {
		if (op[i % 16])
			H_DONE(op[i % 16]);
		memcpy(buf[i % 16], &i, sizeof(i));
		op[i % 16] = h_send(h, h->ep[0], buf[i % 16], length_of(h, i), 5);
	}
	h_settle(h);
}

static void order_recv(struct h *h)
{
	uint8_t *buf[16];
	struct h_op *op[16];
	uint64_t seen;

	h_mesh(h, NULL);
	for (int i = 0; i < 16; i++)
		buf[i] = h_buf(h, ROOM);
	h_sync(h);
	for (uint64_t i = 0; i < h->param + 16; i++) {
		if (i >= 16) {
			H_DONE(op[i % 16]);
			memcpy(&seen, buf[i % 16], sizeof(seen));
			H_EQ(i - 16, seen);
			H_EQ(length_of(h, i - 16), op[i % 16]->c.length);
		}
		if (i < h->param)
			op[i % 16] = h_recv(h, NULL, buf[i % 16], ROOM, 5, UINT64_MAX);
	}
}

/* Notifications alone, more than any window holds: none lost, none twice, none out of order. */
static void flood_notify(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;

	h_mesh(h, NULL);
	l = h_mem_local(h, 8, 0);
	r = h_import(h, 0);
	for (uint64_t i = 0; i < MANY; i++)
		h_notify(h, h->ep[0], H_AT(l, 0, 0), &r, 0, i << 40 | i, XPORT_QUIET);
	H_DONE(h_flush(h, h->ep[0]));
}

static void flood_notify_target(struct h *h)
{
	struct xport_completion c[64];
	struct h_mem m;
	uint64_t next = 0;
	int n;

	h_mesh(h, NULL);
	m = h_mem_target(h, 8, 0, H_ALL);
	h_share(h, 1, &m);
	while (next < MANY) {
		n = xport_wait(h->x, c, 64, h_ms(10000));
		H_TRUE(n > 0);
		for (int i = 0; i < n; i++) {
			H_EQ(XPORT_EVENT_NOTIFY, c[i].type);
			H_EQ(next << 40 | next, c[i].tag);
			H_EQ(0, c[i].length);
			next++;
		}
	}
	h_run_for(h, 20);
	H_EQ(0, h->nqueue);
}

/* Puts of many lengths, then one notification: when it comes all of them are there, and its own data as well. */
static void puts_then_notify(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	size_t len = 1000;

	h_mesh(h, NULL);
	l = h_mem_local(h, ROOM, 0);
	r = h_import(h, 0);
	for (uint64_t round = 1; round <= 30; round++) {
		h_fill(l.p, ROOM, round);
		for (size_t at = 0; at + len <= ROOM / 2; at += len) {
			len = 1 + (at * 31 + round * 977) % 20000;
			h_put(h, h->ep[0], H_AT(l, at, len), &r, at, at & 1 ? XPORT_LOCAL : 0);
		}
		h_put(h, h->ep[0], H_AT(l, 0, ROOM / 2), &r, 0, 0);
		h_notify(h, h->ep[0], H_AT(l, ROOM / 2, h->param), &r, ROOM / 2, round, 0);
		h_settle(h);
		h_hear_u64(h, 0);
	}
}

static void puts_then_notify_target(struct h *h)
{
	struct h_mem m;
	struct xport_completion c;
	uint8_t *want = h_buf(h, ROOM);

	h_mesh(h, NULL);
	m = h_mem_target(h, ROOM, 0, H_ALL);
	h_share(h, 1, &m);
	for (uint64_t round = 1; round <= 30; round++) {
		c = H_EVENT(XPORT_EVENT_NOTIFY);
		h_fill(want, ROOM, round);
		H_EQ(round, c.tag);
		H_EQ(h->param, c.length);
		H_CHECK(!memcmp(m.p, want, ROOM / 2), "round %" PRIu64 ": an earlier put is not there", round);
		H_CHECK(!memcmp(m.p + ROOM / 2, want + ROOM / 2, h->param), "round %" PRIu64 ": its own data is not",
		        round);
		h_tell_u64(h, 1, 1);
	}
	H_GUARDS(m);
}

/* Sends and notifications take turns and arrive in turn. */
static void interleave(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	uint64_t word;

	h_mesh(h, NULL);
	l = h_mem_local(h, 8, 0);
	r = h_import(h, 0);
	h_sync(h);
	for (uint64_t i = 0; i < TURNS; i++) {
		word = i;
		h_notify(h, h->ep[0], H_AT(l, 0, 8), &r, 0, i, 0);
		H_DONE(h_send(h, h->ep[0], &word, sizeof(word), 1));
	}
	h_settle(h);
}

static void interleave_target(struct h *h)
{
	struct h_mem m;
	struct xport_completion c;
	struct xport_opt o = {.size = sizeof(o)};
	uint64_t *words = h_buf(h, TURNS * 8), sends = 0, notes = 0;
	struct xport_attr a = h_attr(h);

	a.queue_depth = TURNS;
	h_mesh(h, &a);
	m = h_mem_target(h, 8, 0, H_ALL);
	h_share(h, 1, &m);
	for (uint64_t i = 0; i < TURNS; i++) /* all of them before: one that is unexpected completes later */
		H_OK(xport_recv(h->x, &words[i], 8, 1, UINT64_MAX, &o));
	h_sync(h);
	while (sends < TURNS) {
		if (h->nqueue) { /* what h_sync reaped comes first */
			c = h->queue[0];
			memmove(h->queue, h->queue + 1, (size_t)--h->nqueue * sizeof(c));
		} else {
			H_EQ(1, xport_wait(h->x, &c, 1, h_ms(10000)));
		}
		if (c.type == XPORT_EVENT_NOTIFY) {
			H_EQ(notes, c.tag);
			H_EQ(sends, notes);
			notes++;
		} else {
			H_EQ(XPORT_OP_RECV, c.type);
			H_EQ(sends, words[sends]);
			sends++;
			H_EQ(sends, notes);
		}
	}
	H_EQ(TURNS, notes);
}

/* Put data, fence, put flag: who sees the flag sees the data.  Two regions, mixed lengths, without waiting. */
static void fence_writer(struct h *h)
{
	struct h_mem l;
	struct h_rkey data, flag;
	uint64_t *flags;

	h_mesh(h, NULL);
	l = h_mem_local(h, 2 * 65536 + 8 * 256, 0);
	data = h_import(h, 0);
	flag = h_import(h, 0);
	flags = (uint64_t *)(l.p + 2 * 65536);
	for (uint64_t i = 1; i <= 400; i++) {
		size_t len = i % 7 == 0 ? 65536 : 8 + (i * 37) % 4000;
		uint8_t *half = l.p + (i & 1) * 65536;

		memset(half, (int)(i & 0xff), len);
		flags[i % 256] = i << 32 | len;
		h_put(h, h->ep[0], H_AT(l, (i & 1) * 65536, len), &data, 0, XPORT_LOCAL);
		H_OK(xport_fence(h->ep[0]));
		h_put(h, h->ep[0], H_AT(l, 2 * 65536 + (i % 256) * 8, 8), &flag, 0, 0);
		while (atomic_load(h_word(h, 0)) < i)
			h_breathe(h);
	}
	h_settle(h);
}

static void fence_reader(struct h *h)
{
	struct h_mem data, flag;
	uint64_t f;

	h_mesh(h, NULL);
	data = h_mem_target(h, 65536, 0, H_ALL);
	flag = h_mem_target(h, 8, 0, H_ALL);
	h_share(h, 1, &data);
	h_share(h, 1, &flag);
	for (uint64_t i = 1; i <= 400; i++) {
		while ((f = __atomic_load_n((uint64_t *)flag.p, __ATOMIC_ACQUIRE)) >> 32 != i)
			h_progress(h);
		H_BYTES(data.p, (size_t)(f & 0xffffffff), (uint8_t)i);
		atomic_store(h_word(h, 0), i);
	}
}

static void plain_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, 65536, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
	H_GUARDS(m);
}

/* put, fence, get; get, fence, put; put, fence, atomic: each pair in order, without a wait between. */
static void fence_pairs(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	uint64_t old = 0, *w;

	h_mesh(h, NULL);
	l = h_mem_local(h, 65536, 0);
	w = (uint64_t *)l.p;
	r = h_import(h, 0);
	for (uint64_t i = 1; i <= 200; i++) {
		w[0] = i;
		h_put(h, h->ep[0], H_AT(l, 0, 4096), &r, 0, 0);
		H_OK(xport_fence(h->ep[0]));
		h_get(h, h->ep[0], H_AT(l, 8192, 4096), &r, 0);
		h_settle(h);
		H_EQ(i, w[1024]);
		w[0] = i + 1000;
		h_get(h, h->ep[0], H_AT(l, 8192, 4096), &r, 0);
		H_OK(xport_fence(h->ep[0]));
		h_put(h, h->ep[0], H_AT(l, 0, 4096), &r, 0, 0);
		h_settle(h);
		H_EQ(i, w[1024]);
		w[0] = i + 2000;
		h_put(h, h->ep[0], H_AT(l, 0, 8), &r, 0, 0);
		H_OK(xport_fence(h->ep[0]));
		h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 5, 0, &old, &r, 0);
		H_OK(xport_fence(h->ep[0]));
		h_get(h, h->ep[0], H_AT(l, 8192, 8), &r, 0);
		h_settle(h);
		H_EQ(i + 2000, old);
		H_EQ(i + 2005, w[1024]);
	}
	h_sync(h);
}

/* put, fence, send: who receives the message sees the bytes. */
static void fence_send(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	uint64_t i;

	h_mesh(h, NULL);
	l = h_mem_local(h, 65536, 0);
	r = h_import(h, 0);
	for (i = 1; i <= 100; i++) {
		h_fill(l.p, 65536, i);
		h_put(h, h->ep[0], H_AT(l, 0, 65536), &r, 0, 0);
		H_OK(xport_fence(h->ep[0]));
		h_send(h, h->ep[0], &i, sizeof(i), 2);
		h_settle(h);
		h_hear_u64(h, 0);
	}
}

static void fence_send_target(struct h *h)
{
	struct h_mem m;
	uint64_t got;

	h_mesh(h, NULL);
	m = h_mem_target(h, 65536, 0, H_ALL);
	h_share(h, 1, &m);
	for (uint64_t i = 1; i <= 100; i++) {
		H_DONE(h_recv(h, NULL, &got, sizeof(got), 2, UINT64_MAX));
		H_EQ(i, got);
		H_FILLED(m.p, 65536, i);
		h_tell_u64(h, 1, 1);
	}
}

/* get, fence, message or notification: who receives it may write where the get has read. */
static void fence_get_send(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;

	h_mesh(h, NULL);
	l = h_mem_local(h, LONG, 0);
	r = h_import(h, 0);
	for (uint64_t i = 1; i <= 8; i++) {
		h_hear_u64(h, 0);
		h_get(h, h->ep[0], H_AT(l, 0, LONG), &r, 0);
		H_OK(xport_fence(h->ep[0]));
		if (i % 2 == 1)
			h_send(h, h->ep[0], &i, sizeof(i), 2);
		else
			h_notify(h, h->ep[0], H_AT(l, 0, 0), &r, 0, i, 0);
		h_settle(h);
		H_FILLED(l.p, LONG, i);
	}
	h_sync(h);
}

static void fence_get_send_target(struct h *h)
{
	struct h_mem m;
	struct h_op *op;
	uint64_t got;

	h_mesh(h, NULL);
	m = h_mem_target(h, LONG, 0, H_ALL);
	h_share(h, 1, &m);
	for (uint64_t i = 1; i <= 8; i++) {
		h_fill(m.p, LONG, i);
		op = i % 2 == 1 ? h_recv(h, NULL, &got, sizeof(got), 2, UINT64_MAX) : NULL;
		h_tell_u64(h, 1, 1);
		if (op != NULL)
			H_DONE(op);
		else
			H_EQ(i, H_EVENT(XPORT_EVENT_NOTIFY).tag);
		memset(m.p, 0, LONG);
	}
	h_sync(h);
	H_GUARDS(m);
}

/* A get that completed saw the old bytes, whatever is put there afterwards. */
static void get_then_put(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	struct h_op *get;

	h_mesh(h, NULL);
	l = h_mem_local(h, 65536, 0);
	r = h_import(h, 0);
	for (uint64_t i = 0; i < 100; i++) {
		get = h_get(h, h->ep[0], H_AT(l, 0, 16384), &r, 0);
		H_DONE(get);
		H_BYTES(l.p, 16384, (uint8_t)i);
		memset(l.p + 32768, (int)i + 1, 16384);
		H_DONE(h_put(h, h->ep[0], H_AT(l, 32768, 16384), &r, 0, 0));
		H_BYTES(l.p, 16384, (uint8_t)i);
	}
	h_sync(h);
}

/* The target has answered what the library asks about a new key, and looks at nothing more. */
static void deaf_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, 64, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
	h_run_for(h, 50);
	h->idle = true;
	h_sync(h);
	h_sync(h);
	h->idle = false;
	h_sync(h);
	H_GUARDS(m);
}

/* The way to a region may change between a fence's two sides: what came before it must not be overtaken. */
static void fence_new_key(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	struct h_op *get;

	h_mesh(h, NULL);
	l = h_mem_local(h, 64, 0);
	memset(l.p, 7, 8);
	r = h_import(h, 0);
	h_progress(h);
	h->idle = true; /* the answer is on its way, and not seen */
	h_sync(h);
	h_sync(h);
	if (h->param == XPORT_OP_PUT)
		h_put(h, h->ep[0], H_AT(l, 0, 8), &r, 0, XPORT_LOCAL);
	else if (h->param == XPORT_OP_PUT_NOTIFY)
		h_notify(h, h->ep[0], H_AT(l, 0, 8), &r, 0, 1, XPORT_LOCAL);
	else
		h_atomic(h, h->ep[0], XPORT_ATOMIC_SWAP, 8, UINT64_C(0x0707070707070707), 0, NULL, &r, 0);
	H_OK(xport_fence(h->ep[0]));
	h_run_for(h, 50);
	get = h_get(h, h->ep[0], H_AT(l, 8, 8), &r, 0);
	h_run_for(h, 50);
	h_sync(h);
	h->idle = false;
	H_DONE(get);
	H_BYTES(l.p + 8, 8, 7);
	h_settle(h);
	h_sync(h);
}

static void fences_only(struct h *h)
{
	h_mesh(h, NULL);
	h_import(h, 0);
	for (int i = 0; i < 10000; i++)
		H_OK(xport_fence(h->ep[0]));
	H_DONE(h_flush(h, h->ep[0]));
	h_run_for(h, 20);
	H_EQ(0, h->nqueue);
	h_sync(h);
}

static const struct h_param counts[] = {{"10k", 10000}, {"100", 100}, {NULL, 0}};
static const struct h_param before[] = {
	{"put", XPORT_OP_PUT}, {"notify", XPORT_OP_PUT_NOTIFY}, {"atomic", XPORT_OP_ATOMIC}, {NULL, 0}};
static const struct h_param lengths[] = {{"0", 0}, {"8", 8}, {"5000", 5000}, {"300k", 300000}, {NULL, 0}};

const struct h_scenario cases_p04[] = {
	{.name = "P4_messages_in_order", .role = {order_recv, order_send}, .params = counts, .timeout_s = 60},
	{.name = "P4_notifications_in_order_none_lost", .role = {flood_notify_target, flood_notify}},
	{.name = "P4_notify_after_all_puts",
         .role = {puts_then_notify_target, puts_then_notify},
         .params = lengths,
         .flags = H_TARGET},
	{.name = "P4_sends_and_notifications_in_turn", .role = {interleave_target, interleave}},
	{.name = "P4_fence_litmus", .role = {fence_reader, fence_writer}, .flags = H_TARGET},
	{.name = "P4_fence_orders_pairs", .role = {plain_target, fence_pairs}, .flags = H_TARGET},
	{.name = "P4_fence_before_send", .role = {fence_send_target, fence_send}, .flags = H_TARGET},
	{.name = "P4_fence_get_send", .role = {fence_get_send_target, fence_get_send}, .flags = H_TARGET},
	{.name = "P4_fence_while_a_key_is_new",
         .role = {deaf_target, fence_new_key},
         .params = before,
         .flags = H_TARGET},
	{.name = "P4_get_before_later_put", .role = {plain_target, get_then_put}, .flags = H_TARGET},
	{.name = "P4_fence_has_no_completion", .role = {plain_target, fences_only}},
	{.name = NULL},
};
