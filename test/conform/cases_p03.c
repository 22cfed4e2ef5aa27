/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cases_p03.c - P3, buffers are released: after the completion nothing accesses the buffer, whatever the status was.
 *
 * Where possible the buffer is unmapped after the completion. A process that accesses it then dies, and the test fails.
 */
#include <sys/mman.h>

#include "harness.h"

enum { LEN = 1 << 20 };

static uint8_t *map(struct h *h, size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	H_TRUE(p != MAP_FAILED);
	memset(p, 0x77, len);
	return p;
}

/* A cancelled receive: the message that would have matched goes elsewhere. */
static void canceled(struct h *h)
{
	uint8_t *a = map(h, LEN), *b = map(h, LEN);
	struct h_op *op;

	h_mesh(h, NULL);
	op = h_recv(h, NULL, a, LEN, 1, UINT64_MAX);
	H_OK(xport_cancel(h->x, op->id));
	H_DONE_AS(XPORT_ERR_CANCELED, op);
	munmap(a, LEN);
	h_sync(h);
	op = h_recv(h, NULL, b, LEN, 1, UINT64_MAX);
	H_DONE(op);
	H_EQ(h_size(h), op->c.length);
	H_FILLED(b, h_size(h), 8);
	H_BYTES(b + h_size(h), LEN - h_size(h), 0x77);
	munmap(b, LEN);
}

static void send_one(struct h *h)
{
	uint8_t *a = h_buf(h, LEN);

	h_mesh(h, NULL);
	h_sync(h);
	h_fill(a, h_size(h), 8);
	H_DONE(h_send(h, h->ep[0], a, h_size(h), 1));
}

/* A truncated receive writes its own bytes and no more. */
static void truncated(struct h *h)
{
	struct h_mem l;
	struct h_op *op;
	size_t half;

	h_mesh(h, NULL);
	half = h_size(h) / 2;
	l = h_mem_local(h, half, 0);
	op = h_recv(h, NULL, l.p, half, 1, UINT64_MAX);
	h_sync(h);
	H_DONE_AS(XPORT_ERR_TRUNCATED, op);
	H_EQ(h_size(h), op->c.length);
	H_FILLED(l.p, half, 8);
	h_run_for(h, 50);
	H_GUARDS(l);
	memset(l.p, 0x12, half);
	h_run_for(h, 50);
	H_BYTES(l.p, half, 0x12);
}

/* The initiator's side of everything that ends by closing or loss: buffers are unmapped when they complete. */
static void post_and_unmap(struct h *h, struct h_rkey *r, int how)
{
	struct xport_opt o = {.size = sizeof(o)};
	struct xport_completion c[64];
	uint8_t *buf[20];
	int left = 20, n;

	for (int i = 0; i < 20; i++) {
		o.context = buf[i] = map(h, LEN);
		if (i % 4 == 0)
			H_OK(xport_put(h->ep[0], buf[i], LEN, r->k, r->offset, &o));
		else if (i % 4 == 1)
			H_OK(xport_get(h->ep[0], buf[i], LEN, r->k, r->offset, &o));
		else if (i % 4 == 2)
			H_OK(xport_send(h->ep[0], buf[i], LEN, 3, &o));
		else {
			o.source = h->ep[0];
			H_OK(xport_recv(h->x, buf[i], LEN, 4, UINT64_MAX, &o));
			o.source = NULL;
		}
	}
	h_tell_u64(h, 0, 1);
	h_run_for(h, 5);
	if (how == 0)
		xport_ep_close(h->ep[0], 0);
	else
		h_kill(h, 0, SIGKILL);
	for (int i = 0; i < h->nqueue; i++)
		if (h->queue[i].type < XPORT_EVENT_NOTIFY) {
			munmap(h->queue[i].context, LEN);
			left--;
		}
	h->nqueue = 0;
	while (left) {
		n = xport_wait(h->x, c, 64, h_ms(10000));
		H_CHECK(n > 0, "%d operations never completed", left);
		for (int i = 0; i < n; i++)
			if (c[i].type < XPORT_EVENT_NOTIFY) {
				munmap(c[i].context, LEN);
				left--;
			}
	}
	h_run_for(h, 200);
}

static void unmap_after_close(struct h *h)
{
	struct h_rkey r;

	h_mesh(h, NULL);
	r = h_import(h, 0);
	post_and_unmap(h, &r, 0);
	h_tell_u64(h, 0, 1);
}

static void unmap_after_loss(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct h_rkey r;

	a.peer_timeout_ms = h_ms(2000);
	h_mesh(h, &a);
	r = h_import(h, 0);
	post_and_unmap(h, &r, 1);
}

/* Sends a little of what the receives wait for, so that some are in the middle when the end comes. */
static void end_in_the_middle(struct h *h)
{
	struct h_mem m;
	uint8_t *buf = h_buf(h, LEN);

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	for (int i = 0; i < 3; i++)
		h_send(h, h->ep[1], buf, LEN, 4);
	h_hear_u64(h, 1);
	h_run_for(h, 3);
	h->idle = true;
	h_hear_u64(h, 1);
	h->idle = false;
}

/* After the completion of a get the buffer is the caller's, also while later gets into others are under way. */
static void get_reuse(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	struct h_op *op[8];

	h_mesh(h, NULL);
	l = h_mem_local(h, 8 * 65536, 0);
	r = h_import(h, 0);
	for (int round = 0; round < 5; round++) {
		for (size_t i = 0; i < 8; i++)
			op[i] = h_get(h, h->ep[0], H_AT(l, i * 65536, 65536), &r, i * 65536);
		for (size_t i = 0; i < 8; i++) {
			H_DONE(op[i]);
			H_FILLED(l.p + i * 65536, 65536, i);
			memset(l.p + i * 65536, 0x21, 65536);
		}
		h_run_for(h, 10);
		H_BYTES(l.p, 8 * 65536, 0x21);
	}
	h_sync(h);
}

static void get_reuse_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	for (size_t i = 0; i < 8; i++)
		h_fill(m.p + i * 65536, 65536, i);
	h_share(h, 1, &m);
	h_sync(h);
	H_GUARDS(m);
}

/* The result of an atomic is written before its completion and never after, and only its own bytes. */
static void atomic_result(struct h *h)
{
	struct h_rkey r;
	uint32_t result[4] = {1, 2, 3, 4};

	h_mesh(h, NULL);
	r = h_import(h, 0);
	H_DONE(h_atomic(h, h->ep[0], XPORT_ATOMIC_SWAP, 4, 0xabcdef01, 0, &result[1], &r, 0));
	H_EQ(1, result[0]);
	H_EQ(3, result[2]);
	result[1] = 77;
	H_DONE(h_atomic(h, h->ep[0], XPORT_ATOMIC_SWAP, 8, 5, 0, &result[2], &r, 8));
	h_run_for(h, 20);
	H_EQ(77, result[1]);
	h_sync(h);
}

static const struct h_param lengths[] = {
	{"8", 8}, {"at_eager", H_NEAR_EAGER}, {"above_eager", H_NEAR_EAGER + 1}, {"500k", 500000}, {NULL, 0}};

const struct h_scenario cases_p03[] = {
	{.name = "P3_canceled_receive", .role = {canceled, send_one}, .params = lengths},
	{.name = "P3_truncated_receive", .role = {truncated, send_one}, .params = lengths},
	{.name = "P3_unmapped_after_own_close", .role = {end_in_the_middle, unmap_after_close}, .flags = H_TARGET},
	{.name = "P3_unmapped_after_loss", .role = {end_in_the_middle, unmap_after_loss}, .flags = H_TARGET | H_KILLS},
	{.name = "P3_get_buffer_reused_at_once", .role = {get_reuse_target, get_reuse}, .flags = H_KINDS},
	{.name = "P3_atomic_result", .role = {get_reuse_target, atomic_result}},
	{.name = NULL},
};
