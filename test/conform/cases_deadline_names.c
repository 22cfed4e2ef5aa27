/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_deadline_names.c - P3 for what an operation leaves behind that was withdrawn: its name, its place, its failure. */
#include <malloc.h>
#include <unistd.h>

#include "cases_deadline.h"

enum { HUGE_LEN = 48 << 20, SMALL = 2000 };

/* Whether puts are carried out by this library, so that a part of one can be left over. */
static bool by_frames(const struct h *h)
{
	return h->config->emulate || (h->info.deadline_ends & 1u << XPORT_OP_PUT) == 0;
}

/* ---- a put of which a part has left ---- */

static struct xport_opt untimed(struct h_op *op)
{
	struct xport_opt o = timed(op, 0);

	o.id = NULL;
	return o;
}

/* Puts to another region take its name again. The failure of the first part is not theirs, and not a damaged frame. */
static void part_fails(struct h *h)
{
	struct h_op *op, *next[4];
	struct h_rkey gone, stays;
	uint8_t *buf = h_buf(h, HUGE_LEN);
	struct xport_opt o;

	h_mesh(h, NULL);
	gone = h_import(h, 0);
	stays = h_import(h, 0);
	h_run_for(h, 20);
	h_hear_u64(h, 0);
	if (by_frames(h)) {
		o = timed(op = h_op(h, XPORT_OP_PUT), SHORT_MS);
		H_OK(xport_put(h->ep[0], buf, HUGE_LEN, gone.k, gone.offset, &o));
		H_DONE_AS(XPORT_ERR_TIMEOUT, op);
		h_run_for(h, 5);
		for (int i = 0; h->param != 0 && i < 4; i++) {
			o = untimed(next[i] = h_op(h, XPORT_OP_PUT));
			H_OK(xport_put(h->ep[0], buf, SMALL, stays.k, stays.offset, &o));
		}
		h_tell_u64(h, 0, 0);
		for (int i = 0; h->param != 0 && i < 4; i++)
			H_DONE(next[i]);
	} else {
		h_tell_u64(h, 0, 0);
	}
	alive(h);
}

static void part_target(struct h *h)
{
	struct h_mem gone, stays;

	h_mesh(h, NULL);
	gone = h_mem_target(h, HUGE_LEN, 0, H_ALL);
	stays = h_mem_target(h, SMALL, 0, H_ALL);
	h_share(h, 1, &gone);
	h_share(h, 1, &stays);
	h_run_for(h, 30);
	h->idle = true;
	h_tell_u64(h, 1, 1);
	h_hear_u64(h, 1);
	h->idle = false;
	h_mem_free(h, &gone);
	alive(h);
	h_mem_free(h, &stays);
}

static const struct h_param parts[] = {{"alone", 0}, {"followed", 1}, {NULL, 0}};

/* ---- a flush that expires ---- */

/* It has learned of a quiet put that expired. The next one tells of it again: the data has not arrived. */
static void flush_swallows(struct h *h)
{
	struct xport_opt o = {.size = sizeof(o), .flags = XPORT_QUIET, .deadline_ms = SHORT_MS};
	struct h_op *first, *second;
	struct h_rkey r;
	uint8_t *buf = h_buf(h, HUGE_LEN);

	h_mesh(h, NULL);
	r = h_import(h, 0);
	h_run_for(h, 20);
	h_hear_u64(h, 0);
	if (by_frames(h)) {
		H_OK(xport_put(h->ep[0], buf, HUGE_LEN, r.k, r.offset, &o));
		o = timed(first = h_op(h, XPORT_OP_FLUSH), 3 * SHORT_MS);
		H_OK(xport_flush(h->ep[0], &o));
		H_DONE_AS(XPORT_ERR_TIMEOUT, first);
		h_tell_u64(h, 0, 0);
		o = untimed(second = h_op(h, XPORT_OP_FLUSH));
		H_OK(xport_flush(h->ep[0], &o));
		H_DONE_AS(XPORT_ERR_TIMEOUT, second);
	} else {
		h_tell_u64(h, 0, 0);
	}
	H_DONE(h_flush(h, h->ep[0]));
	h_sync(h);
}

static void flush_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, HUGE_LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_run_for(h, 30);
	h->idle = true;
	h_tell_u64(h, 1, 1);
	h_hear_u64(h, 1);
	h->idle = false;
	h_sync(h);
	h_mem_free(h, &m);
}

/* ---- the name of a send ---- */

static void goes_on(struct h *h, int steps)
{
	h_tell_u64(h, 0, 1);
	h_hear_u64(h, 0);
	for (int i = 0; i < steps; i++)
		h_progress(h);
}

/* The answer to a cancelled send comes while its XPI_REC_WITHDRAW has no credit to leave. The next send takes its name and tag. */
static void name_again(struct h *h)
{
	uint8_t *buf = h_buf(h, HUGE_LEN), *one = h_buf(h, LONG), *two = h_buf(h, LONG);
	struct h_op *cancelled, *other, *next, *put;
	struct xport_opt o;
	struct h_rkey r;
	struct h_mem m;

	h_mesh(h, NULL);
	r = h_import(h, 0);
	m = h_mem_target(h, 4096, 0, H_ALL);
	h_share(h, 0, &m);
	memset(one, 1, LONG);
	memset(two, 2, LONG);
	h_run_for(h, 20);
	cancelled = send_timed(h, one, LONG, 7, 0, XPORT_CANCELABLE);
	h_run_for(h, 20);
	h->idle = true;
	goes_on(h, 0); /* it does not poll any more */
	o = untimed(put = h_op(h, XPORT_OP_PUT));
	H_OK(xport_put(h->ep[0], buf, HUGE_LEN, r.k, r.offset, &o));
	for (int i = 0; i < 50; i++)
		h_progress(h);
	goes_on(h, 200); /* it has asked for bytes of ours: the turn of answers is over */
	H_OK(xport_cancel(h->x, cancelled->id));
	goes_on(h, 50); /* it has received the message */
	H_DONE_AS(XPORT_ERR_CANCELED, cancelled);
	other = h_send(h, h->ep[0], two, LONG, 99);
	next = h_send(h, h->ep[0], two, LONG, 7);
	h->idle = false;
	h_tell_u64(h, 0, 1);
	H_DONE(put);
	H_DONE(next);
	H_DONE(other);
	h_sync(h);
	h_mem_free(h, &m);
}

/* Polls for a moment. */
static void answers(struct h *h)
{
	h->idle = false;
	h_run_for(h, 3);
	h->idle = true;
	h_tell_u64(h, 1, 1);
	h_hear_u64(h, 1);
}

static void name_target(struct h *h)
{
	uint8_t *buf = h_buf(h, LONG), *small = h_buf(h, 4096);
	struct h_op *get, *first, *next;
	struct xport_opt o;
	struct h_rkey r;
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, HUGE_LEN, 0, H_ALL);
	h_share(h, 1, &m);
	r = h_import(h, 1);
	h_hear_u64(h, 1);
	h_run_for(h, 20);
	h->idle = true;
	h_tell_u64(h, 1, 1);
	h_hear_u64(h, 1);
	o = untimed(get = h_op(h, XPORT_OP_GET));
	H_OK(xport_get(h->ep[1], small, 3000, r.k, r.offset, &o));
	answers(h);
	first = h_recv(h, NULL, buf, LONG, 7, UINT64_MAX);
	answers(h);
	h->idle = false;
	H_DONE_AS(XPORT_ERR_CANCELED, first);
	H_DONE(get);
	h_run_for(h, 300); /* what the cancelled one has left behind has come */
	next = h_recv(h, NULL, buf, LONG, 7, UINT64_MAX);
	H_DONE(next);
	H_BYTES(buf, LONG, 2);
	H_DONE(h_recv(h, NULL, buf, LONG, 99, UINT64_MAX));
	h_sync(h);
	h_mem_free(h, &m);
}

/* ---- what is left over is bounded ---- */

static size_t in_use(void)
{
	return mallinfo2().uordblks + mallinfo2().hblkhd;
}

/* Puts that expire behind one that the peer does not take: their places are one. */
static void many_expire(struct h *h)
{
	enum { MANY = 200000 };
	struct xport_opt o = {.size = sizeof(o)};
	struct xport_completion c[64];
	uint8_t *buf = h_buf(h, HUGE_LEN);
	int64_t since;
	struct h_rkey r;
	long n = 0;
	size_t before;

	h_mesh(h, NULL);
	r = h_import(h, 0);
	h_run_for(h, 20);
	h_hear_u64(h, 0);
	if (by_frames(h)) {
		H_OK(xport_put(h->ep[0], buf, HUGE_LEN, r.k, r.offset, &o));
		o.deadline_ms = 1;
		before = in_use();
		since = h_now_us();
		while (n < MANY && h_now_us() - since < 3000000) {
			while (n < MANY && xport_put(h->ep[0], buf, 8, r.k, r.offset, &o) == XPORT_OK)
				n++;
			(void)!xport_poll(h->x, c, 64);
		}
		H_CHECK(in_use() < before + (16u << 20), "%ld puts: %zu bytes more", n, in_use() - before);
	}
	h_tell_u64(h, 0, 1);
	h_run_for(h, 100);
	h_sync(h);
}

/* ---- names for the application, and the clock ---- */

static void cancel_again(struct h *h)
{
	uint8_t *buf = h_buf(h, LONG);
	struct h_op *op;

	h_mesh(h, NULL);
	op = send_timed(h, buf, LONG, 7, 0, XPORT_CANCELABLE);
	h_run_for(h, 20);
	H_OK(xport_cancel(h->x, op->id));
	H_STATUS(XPORT_ERR_BUSY, xport_cancel(h->x, op->id)); /* it is not reaped */
	H_DONE_AS(XPORT_ERR_CANCELED, op);
	H_STATUS(XPORT_ERR_INVALID, xport_cancel(h->x, op->id));
	h_sync(h);
}

static void never_early(struct h *h)
{
	struct xport_completion c[4];
	uint8_t buf[8];

	h_mesh(h, NULL);
	for (int i = 0; i < 100; i++) {
		struct xport_opt o = {.size = sizeof(o), .deadline_ms = 1};
		int64_t since = h_now_us();

		H_OK(xport_recv(h->x, buf, 8, 1, UINT64_MAX, &o));
		while (xport_poll(h->x, c, 4) == 0)
			;
		since = h_now_us() - since;
		H_CHECK(since >= 1000, "ended after %" PRId64 " us, deadline 1000", since);
		usleep(137);
	}
	h_sync(h);
}

static void only_meets(struct h *h)
{
	h_mesh(h, NULL);
	h_sync(h);
}

const struct h_scenario cases_deadline_names[] = {
	{"P3_deadline_part_fails", {part_target, part_fails}, parts, 0, 60},
	{"P3_deadline_flush_tells", {flush_target, flush_swallows}, NULL, 0, 60},
	{"P3_deadline_name_again", {name_target, name_again}, NULL, 0, 60},
	{"P3_deadline_many", {flush_target, many_expire}, NULL, 0, 60},
	{"P3_deadline_cancel_again", {only_meets, cancel_again}, NULL, 0, 0},
	{"P3_deadline_never_early", {only_meets, never_early}, NULL, H_ONCE, 0},
	{NULL, {NULL}, NULL, 0, 0},
};
