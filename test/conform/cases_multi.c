/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_multi.c - P1, P3, P4 and P15 for receives with XPORT_MULTI: one buffer that takes many messages. */
#include "harness.h"

enum { TAG = 5, OTHER = 6, ROUNDS = 40, SMALL = 100, LINE = 64 };
/* Longer than eager_max by so much that no transport sends it eagerly: of several, one may take more than all of them do. */
enum { LONGER = 100000 };

/* A receive with XPORT_MULTI, and what came into it. Its context is no h_op: its completions are queued. */
struct many {
	uint8_t *buf;
	size_t len;
	uint64_t id;
	xport_ep *source;
	xport_mr *mr;
	uint32_t flags, deadline_ms;
	uint64_t least, mask;
};

static struct many many_new(struct h *h, size_t len, uint64_t least)
{
	return (struct many){.buf = h_buf(h, len), .len = len, .least = least, .mask = UINT64_MAX};
}

static int post(struct h *h, struct many *m)
{
	struct xport_opt o = {.size = sizeof(o),
	                      .flags = XPORT_MULTI | m->flags,
	                      .value = m->least,
	                      .context = m,
	                      .source = m->source,
	                      .mr = m->mr,
	                      .deadline_ms = m->deadline_ms,
	                      .id = &m->id};

	return xport_recv(h->x, m->buf, m->len, TAG, m->mask, &o);
}

/* The next message of it; with `last`, its end. */
static struct xport_completion next(struct h *h, const struct many *m, bool last)
{
	struct xport_completion c = h_event_at(h, __FILE__, __LINE__, last ? XPORT_OP_RECV_END : XPORT_OP_RECV);

	H_TRUE(c.context == m);
	if (!last) {
		H_EQ(0, c.offset % LINE);
		H_TRUE(c.offset <= m->len);
	}
	return c;
}

static size_t lines(size_t len)
{
	return len > 0 ? (len + LINE - 1) / LINE * LINE : LINE;
}

/* ---- one after the other ---- */

/* Lengths of 0 and more; some are fetched. */
static size_t len_of(struct h *h, unsigned i)
{
	return i % 8 == 7 ? h->info.eager_max + i : i % 8 == 6 ? h->info.eager_max : i * 37 % 1500;
}

static void stream_sender(struct h *h)
{
	uint8_t *buf;

	h_mesh(h, NULL);
	for (unsigned i = 0; i < ROUNDS; i++) {
		buf = h_buf(h, len_of(h, i) + 1);
		h_fill(buf, len_of(h, i), i);
		h_send(h, h->ep[0], buf, len_of(h, i), TAG);
		if (i == ROUNDS / 2)
			h_hear_u64(h, 0); /* the first half waits for a receive */
	}
	h_settle(h);
	h_sync(h);
}

/* Long messages complete when they are here, so completions may come in another order; their places do not. */
static void stream_receiver(struct h *h)
{
	size_t at = 0, total = 0, longest = 0;
	struct xport_completion c;
	bool seen[ROUNDS] = {false};
	struct h_mem mem;
	struct many m;

	h_mesh(h, NULL);
	for (unsigned i = 0; i < ROUNDS; i++) {
		total += lines(len_of(h, i));
		longest = len_of(h, i) > longest ? len_of(h, i) : longest;
	}
	mem = h_mem_local(h, total + longest - 1, 0);
	m = (struct many){.buf = mem.p, .len = mem.len, .least = longest, .mask = UINT64_MAX, .mr = mem.mr};
	h_run_for(h, 20);
	H_OK(post(h, &m));
	h_tell_u64(h, 1, 1);
	for (unsigned n = 0; n < ROUNDS; n++) {
		unsigned i = 0;

		c = next(h, &m, false);
		H_EQ(XPORT_OK, c.status);
		H_EQ(TAG, c.tag);
		H_TRUE(c.ep == h->ep[1]);
		for (at = 0; i < ROUNDS && at != c.offset; i++)
			at += lines(len_of(h, i));
		H_CHECK(i < ROUNDS && !seen[i], "a message at %" PRIu64, c.offset);
		seen[i] = true;
		H_EQ(len_of(h, i), c.length);
		H_FILLED(m.buf + c.offset, c.length, i);
	}
	c = next(h, &m, true);
	H_EQ(XPORT_OK, c.status);
	H_EQ(total, c.length);
	H_TRUE(c.ep == NULL);
	H_STATUS(XPORT_ERR_INVALID, xport_cancel(h->x, m.id));
	H_EQ(0, h->nqueue);
	H_GUARDS(mem);
	h_mem_free(h, &mem);
	h_sync(h);
}

/* ---- its place ---- */

/* A message goes to the oldest receive that matches, although one of them took several before. */
static void place_receiver(struct h *h)
{
	struct many m, masked;
	struct h_op *one, *two;
	uint8_t *buf;
	uint64_t offset = 0;

	h_mesh(h, NULL);
	buf = h_buf(h, 3 * SMALL);
	m = many_new(h, 4 * (size_t)lines(SMALL) + SMALL - 1, SMALL);
	masked = many_new(h, 2 * (size_t)lines(SMALL) + SMALL - 1, SMALL);
	masked.mask = ~(uint64_t)3;
	one = h_recv(h, NULL, buf, SMALL, TAG, UINT64_MAX);
	H_OK(post(h, &m));
	two = h_recv(h, NULL, buf + SMALL, SMALL, TAG, UINT64_MAX);
	H_OK(post(h, &masked));
	h_tell_u64(h, 1, 1);
	H_DONE(one);
	H_FILLED(buf, SMALL, 0);
	for (unsigned i = 1; i <= 4; i++, offset += lines(SMALL)) {
		H_EQ(offset, next(h, &m, false).offset);
		H_FILLED(m.buf + offset, SMALL, i);
	}
	H_EQ(offset, next(h, &m, true).length);
	H_DONE(two); /* posted later */
	H_FILLED(buf + SMALL, SMALL, 5);
	H_EQ(0, next(h, &masked, false).offset);
	H_EQ(OTHER, next(h, &masked, false).tag);
	H_EQ(2 * lines(SMALL), next(h, &masked, true).length);
	H_EQ(0, h->nqueue);
	h_sync(h);
}

static void place_sender(struct h *h)
{
	uint8_t *buf = h_buf(h, SMALL);

	h_mesh(h, NULL);
	h_hear_u64(h, 0);
	for (unsigned i = 0; i < 8; i++) {
		h_fill(buf, SMALL, i);
		H_DONE(h_send(h, h->ep[0], buf, SMALL, i < 7 ? TAG : OTHER));
	}
	h_sync(h);
}

/* ---- too long ---- */

static void short_receiver(struct h *h)
{
	size_t longest;
	struct xport_completion c;
	struct many m;

	h_mesh(h, NULL);
	longest = h->info.eager_max + LONGER;
	/* A short one does not fit into what is left, then a long one. */
	for (int i = 0; i < 2; i++) {
		m = many_new(h, 2 * LINE, 10);
		H_OK(post(h, &m));
		h_tell_u64(h, 1, 1);
		c = next(h, &m, false);
		H_EQ(XPORT_OK, c.status);
		c = next(h, &m, false);
		H_EQ(XPORT_ERR_TRUNCATED, c.status);
		H_EQ(LINE, c.offset);
		H_EQ(i == 0 ? SMALL : longest, c.length);
		H_FILLED(m.buf + LINE, LINE, 1);
		c = next(h, &m, true);
		H_EQ(XPORT_OK, c.status);
		H_EQ(2 * LINE, c.length);
	}
	/* An eager one stores no long message, and so never waits for a sender. */
	m = many_new(h, 3 * LINE, 64);
	m.flags = XPORT_EAGER;
	H_OK(post(h, &m));
	h_tell_u64(h, 1, 1);
	H_EQ(XPORT_OK, next(h, &m, false).status);
	c = next(h, &m, false);
	H_EQ(XPORT_ERR_TRUNCATED, c.status);
	H_EQ(longest, c.length);
	H_BYTES(m.buf + LINE, 2 * LINE, 0);
	H_STATUS(XPORT_OK, xport_cancel(h->x, m.id));
	c = next(h, &m, true);
	H_EQ(XPORT_ERR_CANCELED, c.status);
	H_EQ(2 * LINE, c.length);
	h_sync(h);
}

static void long_sender(struct h *h)
{
	size_t longest;
	uint8_t *buf;

	h_mesh(h, NULL);
	longest = h->info.eager_max + LONGER;
	buf = h_buf(h, longest);
	h_fill(buf, longest, 1);
	for (int i = 0; i < 3; i++) {
		h_hear_u64(h, 0);
		H_DONE(h_send(h, h->ep[0], buf, 1, TAG));
		H_DONE(h_send(h, h->ep[0], buf, i == 0 ? SMALL : longest, TAG));
	}
	h_sync(h);
}

/* ---- ends early ---- */

static void ends_receiver(struct h *h)
{
	struct many m, bad;
	struct xport_completion c;
	struct h_mem mem;
	int64_t t;

	h_mesh(h, NULL);
	bad = many_new(h, 1000, 0);
	H_STATUS(XPORT_ERR_INVALID, post(h, &bad));
	bad.least = 1001;
	H_STATUS(XPORT_ERR_INVALID, post(h, &bad));
	bad.least = 1000;
	bad.flags = XPORT_QUIET;
	H_STATUS(XPORT_ERR_INVALID, post(h, &bad));
	bad.flags = 0;
	bad.deadline_ms = UINT32_MAX;
	H_STATUS(XPORT_ERR_INVALID, post(h, &bad));

	/* cancelled: the region is free with the end, not before */
	mem = h_mem_local(h, 1000, 0);
	m = (struct many){.buf = mem.p, .len = mem.len, .least = 1, .mask = UINT64_MAX, .mr = mem.mr};
	H_OK(post(h, &m));
	if (mem.mr != NULL)
		H_STATUS(XPORT_ERR_BUSY, xport_mr_dereg(mem.mr));
	H_OK(xport_cancel(h->x, m.id));
	c = next(h, &m, true);
	H_EQ(XPORT_ERR_CANCELED, c.status);
	H_EQ(0, c.length);
	h_mem_free(h, &mem);

	/* by its deadline, after a message */
	m = many_new(h, 1000, 100);
	m.deadline_ms = (uint32_t)h_ms(200);
	t = h_now_us();
	H_OK(post(h, &m));
	h_tell_u64(h, 1, 1);
	c = next(h, &m, true);
	H_EQ(XPORT_ERR_TIMEOUT, c.status);
	t = h_now_us() - t;
	H_CHECK(t >= (int64_t)h_ms(200) * 1000, "ended after %" PRId64 " us", t);
	if (c.length > 0) /* on a busy machine it may come later */
		H_EQ(0, next(h, &m, false).offset);
	else
		H_DONE(h_recv(h, NULL, m.buf, 8, TAG, UINT64_MAX));

	/* with its source */
	m = many_new(h, 1000, 100);
	m.source = h->ep[1];
	H_OK(post(h, &m));
	h_tell_u64(h, 1, 1);
	c = next(h, &m, false);
	H_TRUE(c.ep == h->ep[1]);
	c = next(h, &m, true);
	H_EQ(XPORT_ERR_PEER_CLOSED, c.status);
	H_TRUE(c.ep == h->ep[1]);
	H_EQ(LINE, c.length);
	H_STATUS(XPORT_ERR_PEER_CLOSED, post(h, &m));
	/* and one that stays is dropped when the instance closes */
	m = many_new(h, 1000, 100);
	H_OK(post(h, &m));
	h_sync(h);
}

static void ends_sender(struct h *h)
{
	uint8_t *buf = h_buf(h, 8);

	h_mesh(h, NULL);
	h_hear_u64(h, 0);
	H_DONE(h_send(h, h->ep[0], buf, 8, TAG));
	h_hear_u64(h, 0);
	H_DONE(h_send(h, h->ep[0], buf, 8, TAG));
	H_OK(xport_ep_close(h->ep[0], h_ms(h->limit_ms)));
	h_sync(h);
}

/* ---- the sender dies ---- */

/* Long messages are being fetched when their sender stops: they end with it, then the receive, which any peer may fill. */
static void fetches(struct h *h)
{
	struct xport_completion c;
	uint8_t *word = h_buf(h, 8);
	struct many m;
	int lost = 0;

	h_mesh(h, NULL);
	m = many_new(h, 1 << 20, 1 << 20);
	m.deadline_ms = h->param != 0 ? (uint32_t)h_ms(300) : 0;
	h_hear_u64(h, 1);
	h_stop(h, 1);
	H_OK(post(h, &m)); /* it takes the first one, and has no space for another */
	h_run_for(h, 20);
	H_CHECK(!h_event_now(h, XPORT_OP_RECV_END, &c), "the buffer was given back while a message was on its way");
	if (h->param == 0) {
		h_kill(h, 1, SIGKILL);
		c = H_EVENT(XPORT_EVENT_LOST);
		lost = c.status;
	}
	c = next(h, &m, true);
	H_EQ(XPORT_OK, c.status); /* it was used up */
	memset(m.buf, 0x77, m.len);
	c = next(h, &m, false);
	H_CHECK(c.status == (h->param != 0 ? XPORT_ERR_TIMEOUT : lost), "status %s", xport_status_name(c.status));
	H_EQ(1 << 20, c.length);
	if (h->param != 0) {
		h_cont(h, 1);
		H_DONE(h_recv(h, NULL, word, 8, OTHER, UINT64_MAX));
		H_BYTES(m.buf, m.len, 0x77);
		h_sync(h);
	}
}

static void is_fetched(struct h *h)
{
	uint8_t *buf = h_buf(h, 1 << 20);

	h_mesh(h, NULL);
	h_send(h, h->ep[0], buf, 1 << 20, TAG);
	h_run_for(h, 50);
	h_tell_u64(h, 0, 1);
	h_send(h, h->ep[0], buf, 8, OTHER);
	h_settle(h);
	h_sync(h);
}

static const struct h_param ends[] = {{"killed", 0}, {"deadline", 1}, {NULL, 0}};

const struct h_scenario cases_multi[] = {
	{.name = "P4_multi_in_order", .role = {stream_receiver, stream_sender}, .flags = H_KINDS},
	{.name = "P15_multi_keeps_its_place", .role = {place_receiver, place_sender}, .flags = H_ONCE},
	{.name = "P15_multi_too_long", .role = {short_receiver, long_sender}},
	{.name = "P1_multi_ends_early", .role = {ends_receiver, ends_sender}},
	{.name = "P3_multi_sender_ends", .role = {fetches, is_fetched}, .params = ends, .flags = H_KILLS},
	{.name = NULL},
};
