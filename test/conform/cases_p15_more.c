/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_p15_more.c - P15, back pressure: messages that nobody receives are bounded and hold up nothing else. */
#include "harness.h"

enum { FLOOD = 100000, BIG = 1 << 20, STILL_MS = 200 };

/* Nothing was accepted and nothing completed for so long: by the clock, for a starved peer takes its time to begin. */
static bool stands_still(int64_t moved_us)
{
	return h_now_us() - moved_us > (int64_t)h_ms(STILL_MS) * 1000;
}

static long rss_kb(void)
{
	char line[256];
	long kb = 0;
	FILE *f = fopen("/proc/self/status", "r");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmRSS: %ld", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return kb;
}

/* Very many messages before the first receive: memory stays bounded at both ends, AGAIN comes, all arrive in order. */
static void flood(struct h *h)
{
	uint64_t *word = h_buf(h, FLOOD * 8);
	struct xport_opt o = {.size = sizeof(o)};
	struct xport_completion c[64];
	uint64_t posted = 0, done = 0;
	int64_t moved;
	long before;
	bool told = false;
	int s, n;

	h_mesh(h, NULL);
	for (uint64_t i = 0; i < FLOOD; i++)
		word[i] = i;
	before = rss_kb();
	h_sync(h);
	moved = h_now_us();
	while (done < FLOOD) {
		s = posted < FLOOD ? xport_send(h->ep[0], &word[posted], 8, 1, &o) : XPORT_ERR_AGAIN;
		if (s == XPORT_OK) {
			posted++;
			moved = h_now_us();
			continue;
		}
		H_STATUS(XPORT_ERR_AGAIN, s);
		n = xport_poll(h->x, c, 64);
		for (int i = 0; i < n; i++)
			H_EQ(XPORT_OK, c[i].status);
		done += (uint64_t)n;
		moved = n ? h_now_us() : moved;
		if (!told && stands_still(moved)) {
			h_record(h, "accepted_unreceived", posted);
			h_record(h, "sender_grew_kb", (uint64_t)(rss_kb() - before));
			H_CHECK(h_instrumented() || rss_kb() - before < 65536, "the sender grew by %ld kB",
			        rss_kb() - before);
			h_tell_u64(h, 0, posted);
			told = true;
		}
	}
	H_CHECK(told, "%d messages without a receive were accepted and never AGAIN", FLOOD);
}

static void flood_target(struct h *h)
{
	uint64_t got, accepted;
	struct h_op *op;
	long before;

	h_mesh(h, NULL);
	before = rss_kb();
	h_sync(h);
	accepted = h_hear_u64(h, 1); /* makes progress meanwhile */
	h_run_for(h, 50);
	h_record(h, "receiver_grew_kb", (uint64_t)(rss_kb() - before));
	H_CHECK(h_instrumented() || rss_kb() - before < 65536, "the receiver grew by %ld kB", rss_kb() - before);
	H_TRUE(accepted < FLOOD);
	for (uint64_t i = 0; i < FLOOD; i++) {
		op = h_recv(h, NULL, &got, 8, 1, UINT64_MAX);
		H_DONE(op);
		H_EQ(i, got);
	}
}

/* While sends are stuck for want of receives, everything else goes on, both ways. */
static void stuck(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	uint8_t *big = h_buf(h, BIG);
	uint64_t old;
	struct h_op *op;
	int s, n = 0, large = 0;
	int64_t t, moved;

	h_mesh(h, NULL);
	l = h_mem_local(h, BIG, 0);
	r = h_import(h, 0);
	h_fill(l.p, BIG, 2);
	for (moved = h_now_us(); !stands_still(moved);) {
		size_t len = n < 2000 && n % 50 == 0 ? BIG : 64;

		op = NULL;
		/* leaves room in the queue for what must go on */
		if (n < 20000 && (h->info.queue_depth <= 64 || h->pending <= (int)h->info.queue_depth - 32)) {
			op = h_try_send(h, h->ep[0], len == BIG ? big : l.p, len, 1, &s);
			H_TRUE(op || s == XPORT_ERR_AGAIN);
			large += op && len == BIG;
			n += op != NULL;
		}
		if (op || h_progress(h))
			moved = h_now_us();
	}
	h_record(h, "stuck_sends", (uint64_t)h->pending);
	/* Short ones, too: the window is full. */
	H_CHECK(h->pending > large, "of %d sends %d are stuck, and %d are long", n, h->pending, large);
	t = h_now_us();
	/* The peer receives only once it is told to: were these held up, none would end. */
	for (int i = 0; i < 20; i++) {
		H_DONE(h_put(h, h->ep[0], H_AT(l, 0, 65536), &r, 0, 0));
		H_DONE(h_get(h, h->ep[0], H_AT(l, 65536, 65536), &r, 0));
		H_DONE(h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 1, 0, &old, &r, 131072));
		H_DONE(h_flush(h, h->ep[0]));
	}
	h_record(h, "others_us", (uint64_t)(h_now_us() - t));
	H_FILLED(l.p + 65536, 65536, 2);
	h_tell_u64(h, 0, (uint64_t)n);
	h_settle(h);
}

static void stuck_target(struct h *h)
{
	struct h_mem m;
	uint8_t *buf = h_buf(h, BIG);
	uint64_t n;

	h_mesh(h, NULL);
	m = h_mem_target(h, BIG, 0, H_ALL);
	h_share(h, 1, &m);
	n = h_hear_u64(h, 1);
	for (uint64_t i = 0; i < n; i++)
		H_DONE(h_recv(h, NULL, buf, BIG, 1, UINT64_MAX));
}

/* Both sides flood each other without receiving, then both receive: no deadlock, all there. */
static void both_flood(struct h *h)
{
	xport_ep *peer;
	uint64_t got, theirs;
	uint8_t *buf = h_buf(h, 70000);
	struct h_op *op;
	int64_t moved;
	int s, n = 0;

	h_mesh(h, NULL);
	peer = h->ep[!h->role];
	h_sync(h);
	for (moved = h_now_us(); !stands_still(moved) && n < 30000;) {
		op = h_try_send(h, peer, buf, n % 100 == 99 ? 70000 : 256, 1, &s);
		if (!op)
			H_STATUS(XPORT_ERR_AGAIN, s);
		n += op != NULL;
		if (op || h_progress(h))
			moved = h_now_us();
	}
	got = (uint64_t)n;
	h_tell(h, !h->role, &got, 8);
	h_hear(h, !h->role, &theirs, 8);
	h_record(h, "flooded", got);
	buf = h_buf(h, 70000);
	for (uint64_t i = 0; i < theirs; i++) {
		op = h_recv(h, NULL, buf, 70000, 1, UINT64_MAX);
		H_DONE(op);
		H_EQ(i % 100 == 99 ? 70000 : 256, op->c.length);
	}
	h_settle(h);
}

/* Unmatched notifications are bounded as well: a target that does not reap holds up the sender, not itself. */
static void notify_flood(struct h *h)
{
	struct h_rkey r;
	struct xport_opt o = {.size = sizeof(o), .flags = XPORT_QUIET};
	uint64_t posted = 0;
	bool told = false;
	int64_t moved;
	int s;

	h_mesh(h, NULL);
	r = h_import(h, 0);
	h_sync(h);
	moved = h_now_us();
	while (posted < FLOOD) {
		o.value = posted;
		s = xport_put_notify(h->ep[0], NULL, 0, r.k, r.offset, &o);
		if (s == XPORT_OK) {
			posted++;
			moved = h_now_us();
			continue;
		}
		H_STATUS(XPORT_ERR_AGAIN, s);
		h_progress(h);
		if (!told && stands_still(moved)) {
			h_record(h, "accepted_unreaped", posted);
			h_tell_u64(h, 0, 1);
			told = true;
		}
	}
	H_CHECK(told, "%d notifications accepted and never AGAIN though nobody reaps", FLOOD);
	H_DONE(h_flush(h, h->ep[0]));
}

static void notify_hoarder(struct h *h)
{
	struct h_mem m;
	struct xport_completion c[64];
	uint64_t next = 0;
	int n;

	h_mesh(h, NULL);
	m = h_mem_target(h, 64, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
	while (!h_heard(h, 1))
		H_EQ(0, xport_poll(h->x, NULL, 0)); /* progress, but reaps nothing */
	for (int i = 0; i < h->nqueue; i++)
		next += h->queue[i].type == XPORT_EVENT_NOTIFY;
	h->nqueue = 0;
	while (next < FLOOD) {
		n = xport_wait(h->x, c, 64, h_ms(h->limit_ms));
		H_TRUE(n > 0);
		for (int i = 0; i < n; i++) {
			H_EQ(XPORT_EVENT_NOTIFY, c[i].type);
			H_EQ(next, c[i].tag);
			next++;
		}
	}
	h_hear_u64(h, 1);
}

/* Many receives posted: the queue has an end that says AGAIN, and deep matching is still right. */
static void deep_recv(struct h *h)
{
	uint64_t *got = h_buf(h, 1 << 20);
	struct xport_opt o = {.size = sizeof(o)};
	struct xport_attr a = h_attr(h);
	struct h_op *op[1000];
	int s, n;

	a.queue_depth = 1000;
	h_mesh(h, &a);
	for (n = 0; n < 1000; n++)
		op[n] = h_recv(h, NULL, &got[n], 8, (uint64_t)n, UINT64_MAX);
	s = xport_recv(h->x, &got[n], 8, 5000, UINT64_MAX, &o);
	H_STATUS(XPORT_ERR_AGAIN, s);
	h_sync(h);
	for (int i = 999; i >= 0; i--) {
		H_DONE(op[i]);
		H_EQ(i, got[i]);
	}
}

static void deep_send(struct h *h)
{
	uint64_t v[1000];

	h_mesh(h, NULL);
	h_sync(h);
	for (uint64_t i = 0; i < 1000; i++) {
		v[i] = 999 - i;
		h_send(h, h->ep[0], &v[i], 8, 999 - i);
	}
	h_settle(h);
}

/* What arrived before its sender closed can still be received, whole, also when it is long. */
static void after_close(struct h *h)
{
	uint8_t *buf = h_buf(h, BIG);
	struct h_op *op;
	struct xport_completion c;

	h_mesh(h, NULL);
	h_hear_u64(h, 1);
	h_run_for(h, 50);
	for (uint64_t i = 0; i < 20; i++) {
		op = h_recv(h, NULL, buf, BIG, i, UINT64_MAX);
		H_DONE(op);
		H_EQ(h_size(h), op->c.length);
		H_FILLED(buf, h_size(h), i);
	}
	c = H_EVENT(XPORT_EVENT_CLOSED);
	H_TRUE(c.ep == h->ep[1]);
}

static void send_and_close(struct h *h)
{
	uint8_t *buf;
	int s;

	h_mesh(h, NULL);
	for (uint64_t i = 0; i < 20; i++) {
		buf = h_buf(h, BIG);
		h_fill(buf, h_size(h), i);
		h_send(h, h->ep[0], buf, h_size(h), i);
	}
	h_tell_u64(h, 0, 1);
	s = xport_ep_close(h->ep[0], h_ms(10000));
	H_STATUS(XPORT_OK, s);
	h_settle(h);
}

/* A receive for short messages alone is free at once of a long one, whose sender does nothing more for it. */
static void eager_recv(struct h *h)
{
	uint8_t *buf = h_buf(h, BIG), *other = h_buf(h, BIG);
	struct xport_opt o = {.size = sizeof(o), .flags = XPORT_EAGER};
	struct h_op *op;

	h_mesh(h, NULL);
	memset(buf, 0xaa, BIG);
	H_DONE(h_recv(h, h->ep[1], other, 8, 9, UINT64_MAX)); /* the network is ready */
	o.context = op = h_op(h, XPORT_OP_RECV);
	if (h->param == 0) { /* posted before it comes */
		H_OK(xport_recv(h->x, buf, BIG, 1, UINT64_MAX, &o));
		h_sync(h);
	} else {
		h_sync(h);
		h_hear_u64(h, 1);
		h_run_for(h, 20);
		H_OK(xport_recv(h->x, buf, BIG, 1, UINT64_MAX, &o));
	}
	H_DONE_AS(XPORT_ERR_TRUNCATED, op);
	H_EQ(BIG, op->c.length);
	H_TRUE(op->c.ep == h->ep[1]);
	H_BYTES(buf, BIG, 0xaa);
	h_tell_u64(h, 1, 1);
	/* As long as it may be, and one for a receive that fetches. */
	o.context = op = h_op(h, XPORT_OP_RECV);
	H_OK(xport_recv(h->x, buf, BIG, 2, UINT64_MAX, &o));
	H_DONE(op);
	H_EQ(h->info.eager_max, op->c.length);
	H_FILLED(buf, h->info.eager_max, 2);
	H_DONE(h_recv(h, h->ep[1], other, BIG, 3, UINT64_MAX));
	H_FILLED(other, BIG, 3);
	h_sync(h);
}

static uint64_t frames_out(struct h *h, xport_ep *ep)
{
	struct xport_counters c = {.size = sizeof(c)};

	H_OK(xport_stats(h->x, ep, &c));
	return c.frames_out;
}

static void eager_send(struct h *h)
{
	uint8_t *buf = h_buf(h, BIG), *last = h_buf(h, BIG);
	struct h_op *op;
	uint64_t before;

	h_mesh(h, NULL);
	H_DONE(h_send(h, h->ep[0], last, 8, 9));
	h_sync(h);
	before = frames_out(h, h->ep[0]);
	op = h_send(h, h->ep[0], buf, BIG, 1);
	while (frames_out(h, h->ep[0]) == before)
		h_progress(h);
	for (int i = 0; i < 30; i++) /* a network may hold it back */
		h_progress(h);
	if (h->param != 0)
		h_tell_u64(h, 0, 1);
	h->idle = true;
	h_hear_u64(h, 0); /* it is free, before this side takes its answer */
	h->idle = false;
	H_DONE(op);
	h_fill(buf, h->info.eager_max, 2);
	H_DONE(h_send(h, h->ep[0], buf, h->info.eager_max, 2));
	h_fill(last, BIG, 3);
	H_DONE(h_send(h, h->ep[0], last, BIG, 3));
	h_sync(h);
}

static const struct h_param befores[] = {{"posted", 0}, {"unexpected", 1}, {NULL, 0}};
static const struct h_param lengths[] = {
	{"8", 8}, {"at_eager", H_NEAR_EAGER}, {"above_eager", H_NEAR_EAGER + 1}, {"300k", 300000}, {NULL, 0}};

const struct h_scenario cases_p15_more[] = {
	{.name = "P15_unexpected_are_bounded", .role = {flood_target, flood}},
	{.name = "P15_stuck_sends_hold_up_nothing", .role = {stuck_target, stuck}, .flags = H_TARGET},
	{.name = "P15_both_sides_flood", .role = {both_flood, both_flood}},
	{.name = "P15_notifications_are_bounded", .role = {notify_hoarder, notify_flood}},
	{.name = "P15_thousand_receives", .role = {deep_recv, deep_send}},
	{.name = "P15_short_messages_alone", .role = {eager_recv, eager_send}, .params = befores},
	{.name = "P15_received_after_close", .role = {after_close, send_and_close}, .params = lengths},
	{.name = NULL},
};
