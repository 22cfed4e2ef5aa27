/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_p15.c - P15, tags: matching, its order, sources, truncation, cancel. */
#include "harness.h"

enum { BIG = 300000 };

/* Sends messages whose content is their number, tags as given, then waits for the other side. */
static void send_tags(struct h *h, const uint64_t *tags, int n)
{
	h_mesh(h, NULL);
	h_sync(h);
	for (uint64_t i = 0; i < (uint64_t)n; i++)
		h_send(h, h->ep[0], memcpy(h_buf(h, 8), &i, 8), 8, tags[i]);
	h_sync(h);
	h_settle(h);
}

static const uint64_t bits[] = {0, 1, 1ULL << 31, 1ULL << 32, 1ULL << 63, UINT64_MAX, 0x0123456789abcdef};

static void send_bits(struct h *h)
{
	send_tags(h, bits, 7);
}

/* All 64 bits of the tag count; messages are picked in any order. */
static void full_tags(struct h *h)
{
	uint64_t got;
	struct h_op *op;

	h_mesh(h, NULL);
	h_sync(h);
	h_sync(h);
	for (int i = 6; i >= 0; i--) {
		op = h_recv(h, NULL, &got, 8, bits[i], UINT64_MAX);
		H_DONE(op);
		H_EQ(i, got);
		H_EQ(bits[i], op->c.tag);
	}
}

static const uint64_t masked[] = {0x11, 0x21, 0x12, 0x22, 0x13, 0x31};

static void send_masked(struct h *h)
{
	send_tags(h, masked, 6);
}

/* A mask picks by some bits: among several that fit, the first that arrived. */
static void masks(struct h *h)
{
	static const struct {
		uint64_t tag, mask, want;
	} picks[] = {{0xff02, 0x0f, 2}, {0x20, 0xf0, 1}, {1, 1, 0}, {0, 0, 3}, {0, 0, 4}, {0x31, UINT64_MAX, 5}};
	uint64_t got;
	struct h_op *op;

	h_mesh(h, NULL);
	h_sync(h);
	h_sync(h);
	for (int i = 0; i < 6; i++) {
		op = h_recv(h, NULL, &got, 8, picks[i].tag, picks[i].mask);
		H_DONE(op);
		H_EQ(picks[i].want, got);
		H_EQ(masked[got], op->c.tag);
	}
}

static const uint64_t posted_tags[] = {5, 6, 5, 7, 5, 9};

static void send_posted(struct h *h)
{
	send_tags(h, posted_tags, 6);
}

/* Posted receives match in the order posted, whether they name the tag, a part of it, or nothing. */
static void post_order(struct h *h)
{
	static const struct {
		uint64_t tag, mask, want;
	} posts[] = {{7, UINT64_MAX, 3}, {5, UINT64_MAX, 0}, {0, 0, 1}, {5, UINT64_MAX, 2}, {4, 4, 4}, {0, 0, 5}};
	uint64_t got[6];
	struct h_op *op[6];

	h_mesh(h, NULL);
	for (int i = 0; i < 6; i++)
		op[i] = h_recv(h, NULL, &got[i], 8, posts[i].tag, posts[i].mask);
	h_sync(h);
	h_sync(h);
	for (int i = 0; i < 6; i++) {
		H_DONE(op[i]);
		H_EQ(posts[i].want, got[i]);
	}
}

/* Receives from one source take only what that one sent, from any what came first. */
static void sources(struct h *h)
{
	uint64_t a = 0, b = 0, c = 0;
	struct h_op *one, *two, *any;

	h_mesh(h, NULL);
	two = h_recv(h, h->ep[2], &b, 8, 1, UINT64_MAX);
	h_sync(h);
	h_hear_u64(h, 1);
	h_run_for(h, 20);
	H_TRUE(!two->done);
	any = h_recv(h, NULL, &c, 8, 1, UINT64_MAX);
	H_DONE(any);
	H_TRUE(any->c.ep == h->ep[1]);
	H_EQ(100, c);
	one = h_recv(h, h->ep[1], &a, 8, 1, UINT64_MAX);
	h_tell_u64(h, 2, 1);
	H_DONE(two);
	H_EQ(200, b);
	H_TRUE(two->c.ep == h->ep[2]);
	h_run_for(h, 20);
	H_TRUE(!one->done);
	h_tell_u64(h, 1, 1);
	H_DONE(one);
	H_EQ(101, a);
}

static void source_one(struct h *h)
{
	uint64_t v = 100;

	h_mesh(h, NULL);
	h_sync(h);
	H_DONE(h_send(h, h->ep[0], &v, 8, 1));
	h_tell_u64(h, 0, 1);
	h_hear_u64(h, 0);
	v = 101;
	H_DONE(h_send(h, h->ep[0], &v, 8, 1));
}

static void source_two(struct h *h)
{
	uint64_t v = 200;

	h_mesh(h, NULL);
	h_sync(h);
	h_hear_u64(h, 0);
	H_DONE(h_send(h, h->ep[0], &v, 8, 1));
}

/* Any source, three senders at once: all arrive, those of each in order. */
static void any_source(struct h *h)
{
	uint64_t next[H_ROLES] = {0}, got;
	struct h_op *op;

	h_mesh(h, NULL);
	h_sync(h);
	for (int i = 0; i < 3 * 500; i++) {
		op = h_recv(h, NULL, &got, 8, 1, UINT64_MAX);
		H_DONE(op);
		H_TRUE(got >> 32 < (uint64_t)h->nroles);
		H_TRUE(op->c.ep == h->ep[got >> 32]);
		H_EQ(next[got >> 32], got & UINT32_MAX);
		next[got >> 32]++;
	}
}

static void one_of_three(struct h *h)
{
	uint64_t v[500];

	h_mesh(h, NULL);
	h_sync(h);
	for (uint64_t i = 0; i < 500; i++) {
		v[i] = (uint64_t)h->role << 32 | i;
		h_send(h, h->ep[0], &v[i], 8, 1);
	}
	h_settle(h);
}

/* A message longer than its receive, posted before or after it came: truncated, the next hundred are fine. */
static void truncate_recv(struct h *h)
{
	struct h_mem l;
	struct h_op *op;
	size_t len;
	uint64_t got;

	h_mesh(h, NULL);
	len = h_size(h);
	for (int late = 0; late < 2; late++) {
		size_t rooms[] = {0, 1, len / 2, len - 1};

		for (int i = 0; i < 4; i++) {
			l = h_mem_local(h, rooms[i], 0);
			op = late ? NULL : h_recv(h, NULL, l.p, rooms[i], 1, UINT64_MAX);
			h_sync(h);
			if (late) {
				h_run_for(h, 5);
				op = h_recv(h, NULL, l.p, rooms[i], 1, UINT64_MAX);
			}
			H_DONE_AS(XPORT_ERR_TRUNCATED, op);
			H_EQ(len, op->c.length);
			H_EQ(1, op->c.tag);
			H_FILLED(l.p, rooms[i], 6);
			h_mem_free(h, &l);
		}
	}
	for (uint64_t i = 0; i < 100; i++) {
		H_DONE(h_recv(h, NULL, &got, 8, 2, UINT64_MAX));
		H_EQ(i, got);
	}
}

static void truncate_send(struct h *h)
{
	uint8_t *buf;
	struct h_op *op;

	h_mesh(h, NULL);
	buf = h_buf(h, h_size(h));
	h_fill(buf, h_size(h), 6);
	for (int i = 0; i < 8; i++) {
		h_sync(h);
		op = h_send(h, h->ep[0], buf, h_size(h), 1);
		H_DONE(op); /* the sender is told nothing of it */
		H_EQ(h_size(h), op->c.length);
	}
	for (uint64_t i = 0; i < 100; i++)
		H_DONE(h_send(h, h->ep[0], &i, 8, 2));
}

/* Cancel: a posted one; twice; one that never was; one that has completed. */
static void cancel(struct h *h)
{
	uint64_t a = 0, b = 0;
	struct h_op *one, *two, *done;

	h_mesh(h, NULL);
	one = h_recv(h, NULL, &a, 8, 1, UINT64_MAX);
	two = h_recv(h, h->ep[1], &b, 8, 1, UINT64_MAX);
	H_TRUE(one->id != two->id);
	H_OK(xport_cancel(h->x, one->id));
	H_DONE_AS(XPORT_ERR_CANCELED, one);
	H_STATUS(XPORT_ERR_INVALID, xport_cancel(h->x, one->id));
	H_STATUS(XPORT_ERR_INVALID, xport_cancel(h->x, 0xdeadbeefdeadbeef));
	h_sync(h);
	H_DONE(two);
	H_EQ(1, b);
	H_STATUS(XPORT_ERR_INVALID, xport_cancel(h->x, two->id));
	done = h_recv(h, NULL, &a, 8, 3, UINT64_MAX);
	H_OK(xport_cancel(h->x, done->id));
	H_DONE_AS(XPORT_ERR_CANCELED, done);
	H_EQ(0, a);
	for (int i = 0; i < 1000; i++) {
		one = h_recv(h, NULL, &a, 8, 4, UINT64_MAX);
		H_OK(xport_cancel(h->x, one->id));
		H_DONE_AS(XPORT_ERR_CANCELED, one);
	}
}

static void cancel_sender(struct h *h)
{
	uint64_t v = 1;

	h_mesh(h, NULL);
	h_sync(h);
	H_DONE(h_send(h, h->ep[0], &v, 8, 1));
}

/* A receive that is matched and under way cannot be cancelled; it completes by itself.  More than arrives in one poll; 64 MiB took
 * ofi:sockets, which has 32 KiB under way at a time, over ten seconds beside other work: 3 ms for each time that the peer
 * had to be scheduled. */
enum { UNDER_WAY = 16 << 20 };

static void cancel_matched(struct h *h)
{
	uint8_t *buf = h_buf(h, UNDER_WAY);
	struct h_op *op;

	h_mesh(h, NULL);
	op = h_recv(h, NULL, buf, UNDER_WAY, 1, UINT64_MAX);
	h_sync(h);
	while (buf[0] != 1 && !op->done)
		h_progress(h);
	H_CHECK(!op->done, "all of it arrived at once");
	H_STATUS(XPORT_ERR_BUSY, xport_cancel(h->x, op->id));
	H_DONE(op);
	H_BYTES(buf, UNDER_WAY, 1);
}

static void cancel_matched_sender(struct h *h)
{
	uint8_t *buf = h_buf(h, UNDER_WAY);

	memset(buf, 1, UNDER_WAY);
	h_mesh(h, NULL);
	h_sync(h);
	H_DONE(h_send(h, h->ep[0], buf, UNDER_WAY, 1));
}

static const struct h_param lengths[] = {
	{"8", 8}, {"at_eager", H_NEAR_EAGER}, {"above_eager", H_NEAR_EAGER + 1}, {"300k", BIG}, {NULL, 0}};

const struct h_scenario cases_p15[] = {
	{.name = "P15_all_bits_of_a_tag", .role = {full_tags, send_bits}},
	{.name = "P15_masks", .role = {masks, send_masked}},
	{.name = "P15_match_in_post_order", .role = {post_order, send_posted}},
	{.name = "P15_from_one_or_any", .role = {sources, source_one, source_two}},
	{.name = "P15_any_of_three_senders", .role = {any_source, one_of_three, one_of_three, one_of_three}},
	{.name = "P15_truncated_then_fine",
         .role = {truncate_recv, truncate_send},
         .params = lengths,
         .flags = H_TARGET},
	{.name = "P15_cancel", .role = {cancel, cancel_sender}},
	{.name = "P15_cancel_too_late", .role = {cancel_matched, cancel_matched_sender}},
	{.name = NULL},
};
