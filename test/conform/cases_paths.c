/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_paths.c - xport_stats counts each operation once, by the path that its data took (P1). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sys/uio.h>

#include "harness.h"

enum { LEN = 1 << 20, LONG = 4 << 20, MANY = 40, TAG = 5 };

/* Small and large: alone in a frame, packed with others, in pieces, read out of the sender's memory. */
static const size_t lengths[] = {8, 64, 1000, 20000, LEN};
enum { LENGTHS = sizeof(lengths) / sizeof(lengths[0]), FEW = 4 };
enum { ALL = (LENGTHS - 1) * MANY + FEW };

/* So many of a length: some networks move 20 MB a second. */
static int times(size_t len)
{
	return len == LEN ? FEW : MANY;
}

static const uint64_t ways[] = {0, XPORT_LOCAL, XPORT_QUIET};

/* The counters that tell of paths. */
struct paths {
	uint64_t copy, network, message, cma, coalesced;
};

static struct paths ask(struct h *h, xport_ep *ep)
{
	struct xport_counters c = {.size = sizeof(c)};

	H_OK(xport_stats(h->x, ep, &c));
	return (struct paths){c.by_copy, c.by_network, c.by_message, c.by_cma, c.coalesced};
}

/* What has been counted since, of the endpoint and of the instance alike. */
static struct paths since(struct h *h, const struct paths *before)
{
	struct paths is = ask(h, h->ep[0]), all = ask(h, NULL);

	H_TRUE(memcmp(&is, &all, sizeof(is)) == 0);
	is.copy -= before->copy;
	is.network -= before->network;
	is.message -= before->message;
	is.cma -= before->cma;
	is.coalesced -= before->coalesced;
	return is;
}

/* All `n` of them took the path that the key allows; what goes by message may be long enough to be read. */
static void took(struct h *h, const struct paths *before, uint64_t n, bool direct, bool native, size_t len)
{
	struct paths p = since(h, before);

	H_EQ(direct && native ? n : 0, p.copy);
	H_EQ(n, p.copy + p.network + p.message + p.cma);
	H_TRUE(native || p.network == 0);
	H_TRUE(!native || !direct || p.message + p.cma == 0);
	/* An adapter takes all of a kind or none: it may want memory that is registered, for a get even for writing. */
	H_TRUE(p.network == 0 || p.network == n);
	H_TRUE(p.cma == 0 || (!native && !h->config->emulate && len >= 20000) || (native && !direct));
	if (strcmp(h->info.backend, "shm") == 0 && len < LONG)
		H_EQ(0, p.cma);
}

static struct xport_rkey_info about(struct h *h, const struct h_rkey *r)
{
	struct xport_rkey_info info = {.size = sizeof(info)};

	H_OK(xport_rkey_query(r->k, &info));
	return info;
}

/* The peer answers everything that came before: so has it what the key needs. */
static void settle_key(struct h *h, struct h_mem *l, struct h_rkey *r)
{
	static uint64_t old;

	H_DONE(h_get(h, h->ep[0], H_AT(*l, 0, 8), r, 0));
	h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 0, 0, &old, r, 0);
	H_DONE(h_flush(h, h->ep[0]));
	h_settle(h);
	h_run_for(h, 20);
}

/* Of memory that is registered, and of some that is not: only that goes the short way. */
static void put_one(struct h *h, struct h_mem *l, struct h_rkey *r, size_t len, uint64_t flags, bool plain)
{
	struct xport_opt o = {.size = sizeof(o), .flags = flags};
	int status;

	if (!plain) {
		h_put(h, h->ep[0], H_AT(*l, 0, len), r, 0, flags);
		return;
	}
	for (;;) {
		struct h_op *op = flags == XPORT_QUIET ? NULL : h_op(h, XPORT_OP_PUT);

		o.context = op;
		status = xport_put(h->ep[0], l->p, len, r->k, r->offset, &o);
		if (status != XPORT_ERR_AGAIN)
			break;
		if (op != NULL)
			h_op_drop(h, op);
		h_progress(h);
	}
	H_OK(status);
}

static void puts_by(struct h *h, struct h_mem *l, struct h_rkey *r, bool alone, bool plain)
{
	for (unsigned k = 0; k < LENGTHS; k++)
		for (unsigned w = 0; w < 3; w++) {
			struct xport_rkey_info info = about(h, r);
			struct paths before = ask(h, h->ep[0]);

			for (int i = 0; i < times(lengths[k]); i++) {
				put_one(h, l, r, lengths[k], ways[w], plain);
				if (alone)
					h_settle(h);
			}
			H_DONE(h_flush(h, h->ep[0]));
			h_settle(h);
			took(h, &before, (uint64_t)times(lengths[k]), info.direct, info.put == XPORT_NATIVE,
			     lengths[k]);
		}
}

static void gets_by(struct h *h, struct h_mem *l, struct h_rkey *r)
{
	for (unsigned k = 0; k < LENGTHS; k++) {
		struct xport_rkey_info info = about(h, r);
		struct paths before = ask(h, h->ep[0]);

		for (int i = 0; i < times(lengths[k]); i++)
			h_get(h, h->ep[0], H_AT(*l, 0, lengths[k]), r, 0);
		H_CHECK(about(h, r).in_flight <= (uint64_t)times(lengths[k]), "%" PRIu64 " in flight",
		        about(h, r).in_flight);
		h_settle(h);
		H_EQ(0, about(h, r).in_flight);
		took(h, &before, (uint64_t)times(lengths[k]), info.direct, info.get == XPORT_NATIVE, lengths[k]);
	}
}

/* The notification itself is no operation. */
static void notified_puts_by(struct h *h, struct h_mem *l, struct h_rkey *r)
{
	for (unsigned k = 0; k < LENGTHS; k++) {
		struct xport_rkey_info info = about(h, r);
		struct paths before = ask(h, h->ep[0]);

		for (int i = 0; i < times(lengths[k]); i++)
			h_notify(h, h->ep[0], H_AT(*l, 0, lengths[k]), r, 0, 1, 0);
		h_settle(h);
		took(h, &before, (uint64_t)times(lengths[k]), info.direct, info.put == XPORT_NATIVE, lengths[k]);
	}
}

/* By the CPU where the memory is mapped and its place allows; no key of this test has XPORT_ATOMIC_NIC. */
static void atomics_by(struct h *h, struct h_rkey *r)
{
	struct paths before = ask(h, h->ep[0]), p;
	bool direct = about(h, r).direct;
	static uint64_t old;

	for (int i = 0; i < MANY; i++)
		h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 1, 0, i % 2 ? &old : NULL, r, 0);
	h_settle(h);
	p = since(h, &before);
	H_EQ(0, p.network + p.cma);
	H_EQ(MANY, p.copy + p.message);
	H_TRUE(p.copy == 0 || (direct && p.message == 0));
}

static void sends_by(struct h *h, struct h_mem *l, bool alone)
{
	for (unsigned k = 0; k < LENGTHS; k++) {
		struct paths before = ask(h, h->ep[0]);

		for (int i = 0; i < times(lengths[k]); i++) {
			h_send(h, h->ep[0], l->p, lengths[k], TAG);
			if (alone)
				h_settle(h);
		}
		h_settle(h);
		took(h, &before, (uint64_t)times(lengths[k]), false, false, lengths[k]);
	}
}

/* Posted together, they share frames; an operation that is alone shares none. A frame counts when it is sent: the peer
 * synchronises when it has received all messages. */
static void shared_frames(struct h *h, struct h_mem *l)
{
	struct paths before, p;

	h_sync(h);
	before = ask(h, h->ep[0]);
	H_CHECK(before.coalesced <= before.message + before.cma, "%" PRIu64, before.coalesced);
	h_send(h, h->ep[0], l->p, 8, TAG);
	h_settle(h);
	h_sync(h);
	p = since(h, &before);
	H_EQ(1, p.message);
	H_EQ(0, p.coalesced);
	for (int i = 0; i < MANY; i++)
		h_send(h, h->ep[0], l->p, 8, TAG);
	h_settle(h);
	h_sync(h);
	p = since(h, &before);
	H_EQ(1 + MANY, p.message);
	H_CHECK(p.coalesced >= 2 && p.coalesced <= MANY, "%" PRIu64, p.coalesced);
}

/* shm reads data of 4 MiB out of the sender's memory. */
static void send_long(struct h *h)
{
	struct paths before;
	uint8_t *buf;

	if (strcmp(h->info.backend, "shm") != 0)
		return;
	before = ask(h, h->ep[0]);
	buf = h_buf(h, LONG);
	h_send(h, h->ep[0], buf, LONG, TAG);
	h_settle(h);
	took(h, &before, 1, false, false, LONG);
	H_EQ(h->config->emulate ? 0 : 1, since(h, &before).cma);
}

static void by_all_paths(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	settle_key(h, &l, &r);
	for (int i = 0; i < 4; i++)
		puts_by(h, &l, &r, i % 2, i / 2);
	gets_by(h, &l, &r);
	notified_puts_by(h, &l, &r);
	atomics_by(h, &r);
	sends_by(h, &l, true);
	sends_by(h, &l, false);
	shared_frames(h, &l);
	send_long(h);
	h_sync(h);
}

static void receive(struct h *h, int n)
{
	uint8_t *buf = h_buf(h, LEN);

	while (n-- > 0)
		H_DONE(h_recv(h, NULL, buf, LEN, TAG, UINT64_MAX));
}

static void for_all_paths(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	receive(h, 2 * ALL);
	for (int i = 0; i < ALL; i++)
		H_EVENT(XPORT_EVENT_NOTIFY);
	h_sync(h);
	receive(h, 1);
	h_sync(h);
	receive(h, MANY);
	h_sync(h);
	if (strcmp(h->info.backend, "shm") == 0)
		H_DONE(h_recv(h, NULL, h_buf(h, LONG), LONG, TAG, UINT64_MAX));
	h_sync(h);
}

/* Only puts are emulated: they go by message, also to memory that is mapped. */
static void by_message(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct paths before, p;
	struct h_mem l;
	struct h_rkey r;

	a.emulate = "put";
	h_mesh(h, &a);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	settle_key(h, &l, &r);
	before = ask(h, h->ep[0]);
	for (int i = 0; i < MANY; i++) {
		put_one(h, &l, &r, 8, ways[i % 3], i % 2);
		h_notify(h, h->ep[0], H_AT(l, 0, 8), &r, 0, 1, 0);
	}
	H_DONE(h_flush(h, h->ep[0]));
	h_settle(h);
	p = since(h, &before);
	H_EQ(0, p.copy + p.network + p.cma);
	H_EQ(2 * MANY, p.message);
	gets_by(h, &l, &r);
	h_sync(h);
}

static void for_messages(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	for (int i = 0; i < MANY; i++)
		H_EVENT(XPORT_EVENT_NOTIFY);
	h_sync(h);
}

const struct h_scenario cases_paths[] = {
	{.name = "P1_paths", .role = {for_all_paths, by_all_paths}, .flags = H_KINDS, .timeout_s = 60},
	{.name = "P1_paths_of_emulated_puts", .role = {for_messages, by_message}, .flags = H_KINDS},
	{.name = NULL},
};
