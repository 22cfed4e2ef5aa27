/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_p02.c - P2, success means placed: what a completion promises about the bytes, for each kind of operation. */
#include "harness.h"

enum { WINDOW = 8192 };

/* The target: shows its memory, and when told a length and a seed, looks at it without asking the library first. */
static void target(struct h *h)
{
	struct h_mem m;
	size_t len;
	uint64_t seed;

	h_mesh(h, NULL);
	len = h_size(h) > WINDOW ? h_size(h) : WINDOW;
	m = h_mem_target(h, len, 0, H_ALL);
	h_fill(m.p, len, 1000);
	h_share(h, 1, &m);
	while ((seed = h_hear_u64(h, 1)) != 0) {
		size_t at = h_hear_u64(h, 1), n = h_hear_u64(h, 1);

		H_FILLED(m.p + at, n, seed);
		h_tell_u64(h, 1, 1);
	}
	H_GUARDS(m);
	h_mem_free(h, &m);
}

static void look(struct h *h, uint64_t seed, size_t at, size_t len)
{
	h_tell_u64(h, 0, seed);
	h_tell_u64(h, 0, at);
	h_tell_u64(h, 0, len);
	h_hear_u64(h, 0);
}

static void begin(struct h *h, struct h_mem *l, struct h_rkey *r)
{
	h_mesh(h, NULL);
	*l = h_mem_local(h, h_size(h) > WINDOW ? h_size(h) : WINDOW, 0);
	*r = h_import(h, 0);
}

static void end(struct h *h, struct h_mem *l, struct h_rkey *r)
{
	h_tell_u64(h, 0, 0);
	xport_rkey_destroy(r->k);
	h_mem_free(h, l);
	H_EQ(0, h->nqueue);
}

static void put(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	size_t len;

	begin(h, &l, &r);
	len = h_size(h);
	h_fill(l.p, len, 1);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, len), &r, 0, 0));
	look(h, 1, 0, len);
	end(h, &l, &r);
}

static void get(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	struct h_op *op;
	size_t len;

	begin(h, &l, &r);
	len = h_size(h);
	memset(l.p, 0x11, l.len);
	op = h_get(h, h->ep[0], H_AT(l, 0, len), &r, 0);
	H_DONE(op);
	H_EQ(len, op->c.length);
	H_FILLED(l.p, len, 1000);
	H_BYTES(l.p + len, l.len - len, 0x11);
	end(h, &l, &r);
}

/* A local or quiet put promises nothing until the flush; the buffer of a local one may be reused at once. */
static void put_flush(struct h *h, uint64_t flags)
{
	struct h_mem l;
	struct h_rkey r;
	struct h_op *op;
	size_t len;

	begin(h, &l, &r);
	len = h_size(h);
	h_fill(l.p, len, 3);
	op = h_put(h, h->ep[0], H_AT(l, 0, len), &r, 0, flags);
	if (flags & XPORT_LOCAL) {
		H_DONE(op);
		memset(l.p, 0xee, len);
	}
	H_DONE(h_flush(h, h->ep[0]));
	memset(l.p, 0xdd, len);
	look(h, 3, 0, len);
	end(h, &l, &r);
}

static void put_local(struct h *h)
{
	put_flush(h, XPORT_LOCAL);
}

static void put_quiet(struct h *h)
{
	put_flush(h, XPORT_QUIET);
}

static void get_quiet(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	size_t len;

	begin(h, &l, &r);
	len = h_size(h);
	memset(l.p, 0x11, l.len);
	h_get_quiet(h, h->ep[0], H_AT(l, 0, len), &r, 0);
	H_DONE(h_flush(h, h->ep[0]));
	H_FILLED(l.p, len, 1000);
	H_BYTES(l.p + len, l.len - len, 0x11);
	end(h, &l, &r);
}

/* One completion for all of them; and each flush is behind the gets before it, whatever comes after. */
static void gets_then_flush(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	struct h_op *first;

	begin(h, &l, &r);
	for (int round = 0; round < 10; round++) {
		memset(l.p, 0x11, WINDOW);
		for (size_t at = 0; at < WINDOW / 2; at += 128)
			h_get_quiet(h, h->ep[0], H_AT(l, at, 128), &r, at);
		first = h_flush(h, h->ep[0]);
		for (size_t at = WINDOW / 2; at < WINDOW; at += 4096)
			h_get_quiet(h, h->ep[0], H_AT(l, at, 4096), &r, at);
		H_DONE(first);
		H_FILLED(l.p, WINDOW / 2, 1000);
		H_DONE(h_flush(h, h->ep[0]));
		H_FILLED(l.p, WINDOW, 1000);
	}
	end(h, &l, &r);
}

/* The source is overwritten at once after each local completion; the target must have got each value once. */
static void local_reuse(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;

	begin(h, &l, &r);
	for (int i = 0; i < 64; i++) {
		h_fill(l.p, 128, 1);
		H_DONE(h_put(h, h->ep[0], H_AT(l, 0, 128), &r, (uint64_t)i * 128, XPORT_LOCAL));
		memset(l.p, 0xff, 128);
	}
	H_DONE(h_flush(h, h->ep[0]));
	for (int i = 0; i < 64; i++)
		look(h, 1, (size_t)i * 128, 128);
	end(h, &l, &r);
}

/* Each alignment of source and destination, lengths around a word and a cache line. */
static void alignments(struct h *h)
{
	static const size_t lens[] = {1, 8, 9, 63, 64, 200};
	struct h_mem l;
	struct h_rkey r;

	begin(h, &l, &r);
	for (size_t a = 0; a < 64; a++)
		for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
			size_t b = (a * 7 + i) % 64;

			h_fill(l.p + a, lens[i], a + 1);
			H_DONE(h_put(h, h->ep[0], H_AT(l, a, lens[i]), &r, b, 0));
			memset(l.p, 0x33, 512);
			H_DONE(h_get(h, h->ep[0], H_AT(l, b, lens[i]), &r, b));
			H_FILLED(l.p + b, lens[i], a + 1);
			H_BYTES(l.p, b, 0x33);
			H_BYTES(l.p + b + lens[i], 512 - b - lens[i], 0x33);
		}
	look(h, 64, (63 * 7 + 5) % 64, 200);
	end(h, &l, &r);
}

/* What lies beside the destination is not touched: only one byte of a whole region at a time. */
static void neighbours(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	uint8_t all[256];

	begin(h, &l, &r);
	h_fill(all, 256, 1000);
	for (size_t i = 0; i < 256; i += 37) {
		l.p[0] = all[i] = (uint8_t)~all[i];
		H_DONE(h_put(h, h->ep[0], H_AT(l, 0, 1), &r, i, 0));
	}
	H_DONE(h_get(h, h->ep[0], H_AT(l, 0, 256), &r, 0));
	H_CHECK(!memcmp(all, l.p, 256), "a neighbour of a one-byte put changed");
	end(h, &l, &r);
}

static void flush_idle(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;

	begin(h, &l, &r);
	for (int i = 0; i < 100; i++)
		H_DONE(h_flush(h, h->ep[0]));
	end(h, &l, &r);
}

/* Many flushes at once, each after a put of its own; all end, and the data is there. */
static void flush_many(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	struct h_op *last = NULL;

	begin(h, &l, &r);
	h_fill(l.p, WINDOW, 9);
	for (size_t i = 0; i < WINDOW / 64; i++) {
		h_put(h, h->ep[0], H_AT(l, i * 64, 64), &r, i * 64, XPORT_QUIET);
		last = h_flush(h, h->ep[0]);
	}
	H_DONE(last);
	look(h, 9, 0, WINDOW);
	h_settle(h);
	end(h, &l, &r);
}

/* A flush waits for the quiet puts before it and not for those after it, which wait behind a fence, which waits for what
 * is before it. */
static void flush_between(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;

	begin(h, &l, &r);
	for (int i = 0; i < 20; i++) {
		h_put(h, h->ep[0], H_AT(l, 0, 4096), &r, 0, XPORT_QUIET);
		h_flush(h, h->ep[0]);
		h_get(h, h->ep[0], H_AT(l, 4096, 64), &r, 4096);
		H_OK(xport_fence(h->ep[0]));
		h_put(h, h->ep[0], H_AT(l, 0, 4096), &r, 0, XPORT_QUIET);
	}
	h_settle(h);
	end(h, &l, &r);
}

/* Sends that nobody receives do not hold up a flush. */
static void flush_without_receive(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	size_t len;
	uint8_t *big;

	begin(h, &l, &r);
	len = h->info.eager_max + 5000;
	big = h_buf(h, len);
	for (int i = 0; i < 20; i++)
		h_send(h, h->ep[0], big, i & 1 ? len : 8, 1);
	h_fill(l.p, 4096, 4);
	h_put(h, h->ep[0], H_AT(l, 0, 4096), &r, 0, 0);
	H_DONE(h_flush(h, h->ep[0]));
	look(h, 4, 0, 4096);
	end(h, &l, &r);
}

/* While the target makes no progress, success may only come where the network itself places the bytes. */
static void idle_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, WINDOW, 0, H_ALL);
	h_share(h, 1, &m);
	h->idle = true;
	h_sync(h);
	h_hear_u64(h, 1);
	H_FILLED(m.p + 4096, h_hear_u64(h, 1), 5);
	h_tell_u64(h, 1, 1);
	h->idle = false;
	h_hear_u64(h, 1);
	H_FILLED(m.p, 4096, 5);
	H_FILLED(m.p + 4096, 4096, 5);
}

/* Success of the second put is looked at while the target sleeps: if it came, the bytes are there. */
static void impatient(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	struct h_op *put, *flush;
	struct xport_rkey_info info = {.size = sizeof(info)};

	h_mesh(h, NULL);
	l = h_mem_local(h, WINDOW, 0);
	h_fill(l.p, 4096, 5);
	r = h_import(h, 0);
	H_OK(xport_rkey_query(r.k, &info));
	h_sync(h);
	h_put(h, h->ep[0], H_AT(l, 0, 4096), &r, 0, XPORT_LOCAL);
	put = h_put(h, h->ep[0], H_AT(l, 0, 4096), &r, 4096, 0);
	flush = h_flush(h, h->ep[0]);
	h_run_for(h, 200);
	if (info.put == XPORT_EMULATED)
		H_CHECK(!put->done && !flush->done, "put %d, flush %d done though the target sleeps", put->done,
		        flush->done);
	h_tell_u64(h, 0, 1);
	h_tell_u64(h, 0, put->done ? 4096 : 0);
	h_hear_u64(h, 0);
	H_DONE(put);
	H_DONE(flush);
	h_settle(h);
	h_tell_u64(h, 0, 1);
}

/* The buffer of a completed send is the caller's: it is overwritten at once, the receiver has the old bytes. */
static void send_reuse(struct h *h)
{
	struct h_mem l;
	size_t len;

	h_mesh(h, NULL);
	len = h_size(h);
	l = h_mem_local(h, len, 0);
	for (uint64_t i = 0; i < 20; i++) {
		h_fill(l.p, len, i + 1);
		H_DONE(h_send_at(h, h->ep[0], H_AT(l, 0, len), i, 0));
		memset(l.p, 0xcc, len);
	}
	h_sync(h);
	h_mem_free(h, &l);
}

static void send_reuse_target(struct h *h)
{
	struct h_mem l;
	struct h_op *op;
	size_t len;

	h_mesh(h, NULL);
	len = h_size(h);
	l = h_mem_local(h, len, 0);
	for (uint64_t i = 0; i < 20; i++) {
		op = h_recv(h, NULL, l.p, len, i, UINT64_MAX);
		H_DONE(op);
		H_EQ(len, op->c.length);
		H_FILLED(l.p, len, i + 1);
		H_GUARDS(l);
	}
	h_sync(h);
	h_mem_free(h, &l);
}

/* Messages of more than a page, and behind them so many short puts that whatever the bytes were kept in is used again
 * while a slow network may still be about to send them, or to send them once more. */
enum { BURSTS = 40, BURST = 6, MESSAGE = 7000, PUTS = 260, PUT = 1000 };

static void among_puts(struct h *h)
{
	struct h_mem l, p;
	struct h_rkey r;

	h_mesh(h, NULL);
	l = h_mem_local(h, MESSAGE, 0);
	p = h_mem_local(h, PUT, 0);
	r = h_import(h, 0);
	h_fill(p.p, PUT, 9999); /* each put has the same bytes, since puts have no order */
	for (uint64_t i = 0; i < BURSTS * BURST; i++) {
		h_fill(l.p, MESSAGE, i + 1);
		H_DONE(h_send_at(h, h->ep[0], H_AT(l, 0, MESSAGE), i, 0));
		for (size_t k = 0; i % BURST == BURST - 1 && k < PUTS; k++)
			h_put(h, h->ep[0], H_AT(p, 0, PUT), &r, k * PUT, XPORT_QUIET);
	}
	H_DONE(h_flush(h, h->ep[0]));
	h_sync(h);
	xport_rkey_destroy(r.k);
	h_mem_free(h, &p);
	h_mem_free(h, &l);
}

static void among_puts_target(struct h *h)
{
	struct h_mem l, m;

	h_mesh(h, NULL);
	l = h_mem_local(h, MESSAGE, 0);
	m = h_mem_target(h, PUTS * PUT, 0, H_ALL);
	h_share(h, 1, &m);
	for (uint64_t i = 0; i < BURSTS * BURST; i++) {
		H_DONE(h_recv(h, NULL, l.p, MESSAGE, i, UINT64_MAX));
		H_FILLED(l.p, MESSAGE, i + 1);
	}
	h_sync(h);
	for (size_t k = 0; k < PUTS; k++)
		H_FILLED(m.p + k * PUT, PUT, 9999);
	h_mem_free(h, &m);
	h_mem_free(h, &l);
}

/* Put and get back at random places and lengths, against a copy kept here. */
static void random_places(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	uint8_t *copy;
	unsigned seed = 12345;

	begin(h, &l, &r);
	copy = h_buf(h, WINDOW);
	h_fill(copy, WINDOW, 1000);
	for (int i = 0; i < 500; i++) {
		size_t at = (size_t)rand_r(&seed) % WINDOW, len = (size_t)rand_r(&seed) % (WINDOW - at + 1);

		if (i % 3) {
			h_fill(l.p, len, (uint64_t)i);
			memcpy(copy + at, l.p, len);
			H_DONE(h_put(h, h->ep[0], H_AT(l, 0, len), &r, at, i & 8 ? XPORT_LOCAL : 0));
			if (i & 8)
				H_DONE(h_flush(h, h->ep[0]));
		} else {
			H_DONE(h_get(h, h->ep[0], H_AT(l, 0, len), &r, at));
			H_CHECK(!memcmp(l.p, copy + at, len), "round %d: %zu bytes at %zu differ", i, len, at);
		}
	}
	end(h, &l, &r);
}

/* Many at once of each size between 0 and three frames. */
static void pipelined(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;

	begin(h, &l, &r);
	for (int round = 0; round < 8; round++) {
		h_fill(l.p, WINDOW, (uint64_t)round + 1);
		for (size_t at = 0, i = 0, n; at < WINDOW; at += n, i++) {
			n = (i * i * 13 + (size_t)round) % 700;
			n = n > WINDOW - at ? WINDOW - at : n;
			h_put(h, h->ep[0], H_AT(l, at, n), &r, at, 0);
		}
		h_settle(h);
		look(h, (uint64_t)round + 1, 0, WINDOW);
		memset(l.p, 0, WINDOW);
		for (size_t at = 0; at < WINDOW; at += 512)
			h_get(h, h->ep[0], H_AT(l, at, 512), &r, at);
		h_settle(h);
		H_FILLED(l.p, WINDOW, (uint64_t)round + 1);
	}
	end(h, &l, &r);
}

/* Where the network itself carries puts and gets, they end while the target calls nothing. */
static void motionless_target(struct h *h)
{
	struct h_mem m;
	uint64_t word;

	h_mesh(h, NULL);
	m = h_mem_target(h, WINDOW, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
	h_hear_u64(h, 1);
	H_DONE(h_recv(h, NULL, &word, 8, 1, UINT64_MAX));
	h->idle = true;
	h_tell_u64(h, 1, 1);
	h_hear_u64(h, 1);
	h->idle = false;
	H_FILLED(m.p, WINDOW, 2);
	h_sync(h);
}

static void mover(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	struct xport_rkey_info key = {.size = sizeof(key)};

	h_mesh(h, NULL);
	if (!h->info.passive_target || (h->kind == H_REG && h->info.put_reg != XPORT_NATIVE))
		h_skip(h, "passive_target is absent: the core carries puts and gets%s",
		       h->info.passive_target ? " of memory from xport_mr_reg" : "");
	l = h_mem_local(h, WINDOW, 0);
	r = h_import(h, 0);
	h_fill(l.p, WINDOW, 1);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, WINDOW), &r, 0, 0));
	H_DONE(h_flush(h, h->ep[0]));
	h_sync(h);
	do { /* the native key may come in the same poll as the end of the flush, and is in use after the next one */
		h_breathe(h);
		H_OK(xport_rkey_query(r.k, &key));
	} while (key.put != XPORT_NATIVE);
	H_EQ(XPORT_NATIVE, key.get);
	H_DONE(h_send(h, h->ep[0], &r, 8, 1)); /* no acknowledgement of it need come */
	h_tell_u64(h, 0, 1);
	h_hear_u64(h, 0);
	usleep(20000); /* the target has stopped */
	h_fill(l.p, WINDOW, 2);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, WINDOW), &r, 0, 0));
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, WINDOW), &r, 0, XPORT_LOCAL));
	H_DONE(h_flush(h, h->ep[0]));
	H_OK(xport_fence(h->ep[0]));
	memset(l.p, 0, WINDOW);
	H_DONE(h_get(h, h->ep[0], H_AT(l, 0, WINDOW), &r, 0));
	H_FILLED(l.p, WINDOW, 2);
	h_tell_u64(h, 0, 1);
	h_sync(h);
}

const struct h_scenario cases_p02[] = {
	{.name = "P2_put_success_means_placed", .role = {target, put}, .params = h_sizes, .flags = H_KINDS},
	{.name = "P2_get_success_means_here", .role = {target, get}, .params = h_sizes, .flags = H_KINDS},
	{.name = "P2_quiet_get_then_flush", .role = {target, get_quiet}, .params = h_small_sizes, .flags = H_KINDS},
	{.name = "P2_quiet_gets_then_one_flush", .role = {target, gets_then_flush}, .flags = H_KINDS},
	{.name = "P2_local_put_then_flush", .role = {target, put_local}, .params = h_sizes, .flags = H_KINDS},
	{.name = "P2_quiet_put_then_flush", .role = {target, put_quiet}, .params = h_small_sizes, .flags = H_KINDS},
	{.name = "P2_local_source_reused_at_once", .role = {target, local_reuse}, .flags = H_KINDS},
	{.name = "P2_every_alignment", .role = {target, alignments}, .flags = H_KINDS},
	{.name = "P2_neighbours_untouched", .role = {target, neighbours}, .flags = H_KINDS},
	{.name = "P2_flush_when_nothing_to_flush", .role = {target, flush_idle}},
	{.name = "P2_many_flushes_at_once", .role = {target, flush_many}, .flags = H_TARGET},
	{.name = "P2_flush_between_quiets", .role = {target, flush_between}, .flags = H_TARGET},
	{.name = "P2_flush_needs_no_receive", .role = {target, flush_without_receive}},
	{.name = "P2_no_success_before_placed", .role = {idle_target, impatient}, .flags = H_KINDS},
	{.name = "P2_passive_target", .role = {motionless_target, mover}, .flags = H_TARGET},
	{.name = "P2_send_buffer_reused_at_once",
         .role = {send_reuse_target, send_reuse},
         .params = h_sizes,
         .flags = H_TARGET},
	{.name = "P2_messages_among_short_puts", .role = {among_puts_target, among_puts}, .timeout_s = 60},
	{.name = "P2_random_places_and_lengths", .role = {target, random_places}, .flags = H_KINDS},
	{.name = "P2_pipelined_puts_and_gets", .role = {target, pipelined}, .flags = H_KINDS},
	{.name = NULL},
};
