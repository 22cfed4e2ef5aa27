/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_p08.c - P8, any size: messages of every size, full queues, splitting and back pressure. */
#include <poll.h>

#include "harness.h"

enum { LEN = 65536, REGIONS = 3 };

/* A message of each size both ways, the receive posted before or after it is sent. */
static void exchange(struct h *h, bool first)
{
	struct h_mem out, in;
	struct h_op *recv = NULL, *send;
	int peer = !h->role;
	size_t len;

	h_mesh(h, NULL);
	len = h_size(h);
	out = h_mem_local(h, len, 0);
	in = h_mem_local(h, len, 0);
	h_fill(out.p, len, (uint64_t)h->role + 1);
	if (first)
		recv = h_recv(h, NULL, in.p, len, 1, UINT64_MAX);
	h_sync(h);
	send = h_send_at(h, h->ep[peer], H_AT(out, 0, len), 1, 0);
	if (!first) {
		h_run_for(h, 10);
		/* Of several transports, one may take more than all of them do. */
		if (len > h->info.eager_max && !strchr(h->config->backend, '+') &&
		    strcmp(h->config->backend, "auto") != 0)
			H_CHECK(!send->done, "a long send completed before it was matched");
		h_sync(h);
		recv = h_recv(h, NULL, in.p, len, 1, UINT64_MAX);
	}
	H_DONE(recv);
	H_EQ(len, recv->c.length);
	H_EQ(1, recv->c.tag);
	H_TRUE(recv->c.ep == h->ep[peer]);
	H_FILLED(in.p, len, (uint64_t)peer + 1);
	H_DONE(send);
	h_sync(h);
	h_mem_free(h, &in);
	h_mem_free(h, &out);
}

static void receive_first(struct h *h)
{
	exchange(h, true);
}

static void send_first(struct h *h)
{
	exchange(h, false);
}

static uint64_t region_messages(size_t len)
{
	return len > 1 << 20 ? 1 : 3;
}

/*
 * Messages into a region that the sender's adapter may write, where it can: what is longer than the room is cut off, nothing
 * beside it is touched, and a region that ended is followed by another.
 */
static void region_recv(struct h *h)
{
	size_t len;

	h_mesh(h, NULL);
	len = h_size(h);
	for (int i = 0; i < REGIONS; i++) {
		struct h_mem m =
			h_mem_target(h, len + 300, 0, i % 2 == 0 ? XPORT_REMOTE_RECV : H_ALL | XPORT_REMOTE_RECV);
		size_t room = i < 2 || len < 100 ? len : len - 99;

		for (uint64_t n = 0; n < region_messages(len); n++) {
			struct h_op *op;

			memset(m.p, 0x5a, m.len);
			op = h_recv_at(h, H_AT(m, 100 + n, room), n);
			h_sync(h);
			H_DONE_AS(len > room ? XPORT_ERR_TRUNCATED : XPORT_OK, op);
			H_EQ(len, op->c.length);
			H_FILLED(m.p + 100 + n, room, n + 1);
			H_BYTES(m.p, 100 + n, 0x5a);
			H_BYTES(m.p + 100 + n + room, 200 - n, 0x5a);
			h_sync(h);
		}
		h_mem_free(h, &m);
	}
}

static uint64_t frames_out(struct h *h)
{
	struct xport_counters c = {.size = sizeof(c)};

	H_OK(xport_stats(h->x, h->ep[0], &c));
	return c.frames_out;
}

static void region_send(struct h *h)
{
	uint64_t frames;
	struct h_mem m;
	size_t len;
	bool put;

	h_mesh(h, NULL);
	/* Of verbs it is known that it puts them. */
	put = strcmp(h->info.backend, "verbs") == 0 && h->info.put_reg == XPORT_NATIVE;
	len = h_size(h);
	m = h_mem_local(h, len, 0);
	for (int i = 0; i < REGIONS; i++) {
		for (uint64_t n = 0; n < region_messages(len); n++) {
			h_fill(m.p, len, n + 1);
			h_sync(h);
			frames = frames_out(h);
			H_DONE(h_send_at(h, h->ep[0], H_AT(m, 0, len), n, 0));
			if (put && len >= 1 << 20)
				H_TRUE(frames_out(h) - frames < 20);
			h_sync(h);
		}
	}
	h_mem_free(h, &m);
}

/* Lengths one by one over the thresholds, and the room of the receive at and around the length. */
static void sweep_send(struct h *h)
{
	uint8_t *buf;
	size_t base;

	h_mesh(h, NULL);
	base = h_size(h) - 20;
	buf = h_buf(h, base + 50);
	for (size_t n = 0; n < 50; n++) {
		h_fill(buf, base + n, n);
		H_DONE(h_send(h, h->ep[0], buf, base + n, n));
	}
}

static void sweep_recv(struct h *h)
{
	struct h_mem m;
	struct h_op *op;
	size_t base;

	h_mesh(h, NULL);
	base = h_size(h) - 20;
	for (size_t n = 0; n < 50; n++) {
		m = h_mem_local(h, base + n + n % 3, n);
		op = h_recv(h, NULL, m.p, m.len, n, UINT64_MAX);
		H_DONE(op);
		H_EQ(base + n, op->c.length);
		H_FILLED(m.p, base + n, n);
		H_BYTES(m.p + base + n, n % 3, 0);
		h_mem_free(h, &m);
	}
}

/* A small queue: AGAIN comes, nothing accepted is lost, and the fd tells when it is worth trying again. */
static void full_queue(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct xport_opt o = {.size = sizeof(o)};
	struct pollfd p = {.events = POLLIN};
	struct h_mem l;
	struct h_rkey r;
	int again = 0, done = 0, posted = 0, s;
	struct xport_completion c[16];

	a.queue_depth = 16;
	h_mesh(h, &a);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	o.mr = l.mr;
	p.fd = xport_fd(h->x);
	while (posted < 2000) {
		s = xport_put(h->ep[0], l.p, 4096, r.k, r.offset, &o);
		if (s == XPORT_OK) {
			posted++;
			continue;
		}
		H_STATUS(XPORT_ERR_AGAIN, s);
		again++;
		while (done < posted - 8) {
			H_CHECK(poll(&p, 1, h_ms(5000)) == 1, "the queue is full and the fd stays silent");
			s = xport_poll(h->x, c, 16);
			H_TRUE(s >= 0);
			done += s;
		}
	}
	H_CHECK(again > 0, "a queue of 16 never was full");
	while (done < posted) {
		H_EQ(1, xport_wait(h->x, c, 1, h_ms(h->limit_ms)));
		done++;
	}
	h_run_for(h, 20);
	H_EQ(0, h->nqueue);
	h_sync(h);
}

static void small_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
	H_GUARDS(m);
}

/* Quiet operations have no completion to reap: after AGAIN a wait must end when there is room, with nothing. */
static void quiet_again(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct xport_opt o = {.size = sizeof(o), .flags = XPORT_QUIET};
	struct xport_completion c;
	struct h_rkey r;
	int again = 0, s;
	uint8_t *buf = h_buf(h, LEN);

	a.queue_depth = 16;
	h_mesh(h, &a);
	r = h_import(h, 0);
	h_fill(buf, LEN, 1);
	for (int i = 0; i < 500; i++) {
		while ((s = xport_put(h->ep[0], buf, 8192, r.k, r.offset, &o)) == XPORT_ERR_AGAIN) {
			int64_t t = h_now_us();

			again++;
			H_EQ(0, xport_wait(h->x, &c, 1, h_ms(5000)));
			H_CHECK(h_now_us() - t < (int64_t)h_ms(4000) * 1000,
			        "the wait slept through the room that came");
		}
		H_STATUS(XPORT_OK, s);
	}
	H_DONE(h_flush(h, h->ep[0]));
	h_record(h, "again", (uint64_t)again);
	h_sync(h);
}

/* The shortest queue there is. */
static void shortest(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct h_mem l;
	struct h_rkey r;
	uint64_t word = 1;

	a.queue_depth = 16;
	h_mesh(h, &a);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	for (int i = 0; i < 50; i++) {
		h_put(h, h->ep[0], H_AT(l, 0, LEN), &r, 0, 0);
		h_get(h, h->ep[0], H_AT(l, 0, LEN), &r, 0);
		h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 1, 0, &word, &r, 0);
		h_flush(h, h->ep[0]);
	}
	h_settle(h);
	h_sync(h);
}

/* Very many tiny puts, most of them quiet, to their own places. */
static void swarm(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	h_fill(l.p, LEN, 3);
	for (size_t round = 0; round < 5; round++)
		for (size_t i = 0; i < LEN / 8; i++)
			h_put(h, h->ep[0], H_AT(l, i * 8, 8), &r, i * 8, i % 16 ? XPORT_QUIET : XPORT_LOCAL);
	H_DONE(h_flush(h, h->ep[0]));
	h_settle(h);
	h_sync(h);
}

static void swarm_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
	H_FILLED(m.p, LEN, 3);
	H_GUARDS(m);
}

/* Zero bytes for everything that takes bytes, also with a NULL buffer. */
static void zero(struct h *h)
{
	struct h_rkey r;
	struct xport_opt o = {.size = sizeof(o)};

	h_mesh(h, NULL);
	r = h_import(h, 0);
	H_OK(xport_put(h->ep[0], NULL, 0, r.k, r.offset, &o));
	H_EQ(0, H_EVENT(XPORT_OP_PUT).length);
	H_OK(xport_get(h->ep[0], NULL, 0, r.k, r.offset, &o));
	H_EQ(0, H_EVENT(XPORT_OP_GET).length);
	o.value = 12;
	H_OK(xport_put_notify(h->ep[0], NULL, 0, r.k, r.offset, &o));
	H_EQ(XPORT_OK, H_EVENT(XPORT_OP_PUT_NOTIFY).status);
	H_OK(xport_send(h->ep[0], NULL, 0, 13, &o));
	H_EQ(XPORT_OK, H_EVENT(XPORT_OP_SEND).status);
	h_sync(h);
}

static void zero_target(struct h *h)
{
	struct h_mem m;
	struct h_op *op;
	struct xport_completion c;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	op = h_recv(h, NULL, NULL, 0, 13, UINT64_MAX);
	H_DONE(op);
	H_EQ(0, op->c.length);
	c = H_EVENT(XPORT_EVENT_NOTIFY);
	H_EQ(12, c.tag);
	H_EQ(0, c.length);
	H_TRUE(c.mr == NULL);
	h_sync(h);
	H_BYTES(m.p, LEN, 0);
}

/* What query says of limits hangs together. */
static void limits(struct h *h)
{
	h_open(h, NULL);
	H_TRUE(h->info.eager_max >= 64);
	H_TRUE(h->info.frame_max >= 1024 && h->info.frame_max < (1 << 26));
	H_TRUE(h->info.message_max >= (uint64_t)1 << 40);
	H_TRUE(h->info.window >= h->info.eager_max);
	H_TRUE(h->info.rkey_max >= 16 && h->info.rkey_max <= 2048);
	H_TRUE(h->info.private_max >= 256);
	H_TRUE(h->info.queue_depth >= 1);
	h_record(h, "eager_max", h->info.eager_max);
	h_record(h, "frame_max", h->info.frame_max);
}

static const struct h_param long_ones[] = {
	{"above_eager", H_NEAR_EAGER + 1}, {"64k", 65536}, {"1m", 1 << 20}, {"16m3", (16 << 20) + 3}, {NULL, 0},
};
static const struct h_param around[] = {{"zero", 20}, {"eager", H_NEAR_EAGER}, {"frame", H_NEAR_FRAME}, {NULL, 0}};

const struct h_scenario cases_p08[] = {
	{.name = "P8_received_before_sent",
         .role = {receive_first, receive_first},
         .params = h_sizes,
         .flags = H_KINDS},
	{.name = "P8_sent_before_received", .role = {send_first, send_first}, .params = h_sizes, .flags = H_KINDS},
	{.name = "P8_into_a_region", .role = {region_recv, region_send}, .params = long_ones, .flags = H_TARGET},
	{.name = "P8_every_length_around", .role = {sweep_recv, sweep_send}, .params = around, .flags = H_KINDS},
	{.name = "P8_full_queue", .role = {small_target, full_queue}, .flags = H_KINDS},
	{.name = "P8_full_queue_of_quiet_ones", .role = {small_target, quiet_again}, .flags = H_TARGET},
	{.name = "P8_shortest_queue", .role = {small_target, shortest}, .flags = H_TARGET},
	{.name = "P8_swarm_of_tiny_puts", .role = {swarm_target, swarm}, .flags = H_TARGET},
	{.name = "P8_zero_bytes", .role = {zero_target, zero}},
	{.name = "P8_limits", .role = {limits}},
	{.name = NULL},
};
