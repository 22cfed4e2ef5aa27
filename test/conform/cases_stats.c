/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_stats.c - xport_stats counts what was done (P1), also after the peer died (P5). */
#include "harness.h"

enum { LEN = 1 << 18, MANY = 30, TAG = 5 };

static struct xport_counters ask(struct h *h, xport_ep *ep)
{
	struct xport_counters c = {.size = sizeof(c)};

	H_OK(xport_stats(h->x, ep, &c));
	H_EQ(sizeof(c), c.size);
	return c;
}

static uint64_t all_errors(const struct xport_counters *c)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < sizeof(c->errors) / sizeof(c->errors[0]); i++)
		n += c->errors[i];
	return n;
}

/* Short and long, by every way there is: at once, packed, in pieces, none. */
static const size_t lengths[] = {0, 8, 64, 65, 1000, 5000, LEN};
enum { LENGTHS = sizeof(lengths) / sizeof(lengths[0]) };
static const uint64_t ways[] = {0, XPORT_LOCAL, XPORT_QUIET};

/* MANY of each length, one at a time if `alone`; what was done is added to *want. */
static void puts_of_all_kinds(struct h *h, struct h_mem *l, struct h_rkey *r, bool alone, struct xport_counters *want)
{
	for (unsigned k = 0; k < LENGTHS; k++)
		for (unsigned w = 0; w < 3; w++)
			for (int i = 0; i < MANY; i++) {
				h_put(h, h->ep[0], H_AT(*l, 0, lengths[k]), r, 0, ways[w]);
				want->puts++;
				want->bytes_out += lengths[k];
				if (alone)
					h_settle(h);
			}
	H_DONE(h_flush(h, h->ep[0]));
	want->flushes++;
}

/* From memory that is not registered, as nothing else goes the short way. */
static void small_puts(struct h *h, struct h_mem *l, struct h_rkey *r, bool alone, struct xport_counters *want)
{
	for (unsigned w = 0; w < 3; w++)
		for (int i = 0; i < MANY; i++) {
			struct xport_opt o = {.size = sizeof(o), .flags = ways[w]};
			struct h_op *op = ways[w] == XPORT_QUIET ? NULL : h_op(h, XPORT_OP_PUT);

			o.context = op;
			H_OK(xport_put(h->ep[0], l->p, 8, r->k, r->offset, &o));
			want->puts++;
			want->bytes_out += 8;
			if (alone && op != NULL)
				H_DONE(op);
			else if (alone)
				h_progress(h);
		}
	h_settle(h);
	H_DONE(h_flush(h, h->ep[0]));
	want->flushes++;
}

static void other_operations(struct h *h, struct h_mem *l, struct h_rkey *r, struct xport_counters *want)
{
	static uint64_t old;

	for (unsigned k = 0; k < LENGTHS; k++)
		for (int i = 0; i < MANY; i++) {
			h_get(h, h->ep[0], H_AT(*l, 0, lengths[k]), r, 0);
			h_notify(h, h->ep[0], H_AT(*l, 0, lengths[k]), r, 0, 1, 0);
			h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 1, 0, i % 2 ? &old : NULL, r, 0);
			want->gets++;
			want->put_notifies++;
			want->atomics++;
			want->bytes_in += lengths[k];
			want->bytes_out += lengths[k];
		}
	h_settle(h);
}

static void sends(struct h *h, struct h_mem *l, bool alone, struct xport_counters *want)
{
	for (unsigned k = 0; k < LENGTHS; k++)
		for (int i = 0; i < MANY; i++) {
			h_send(h, h->ep[0], l->p, lengths[k], TAG);
			want->sends++;
			want->bytes_out += lengths[k];
			if (alone)
				h_settle(h);
		}
	h_settle(h);
}

static void compare(struct h *h, const struct xport_counters *want, const struct xport_counters *is)
{
	H_EQ(want->puts, is->puts);
	H_EQ(want->gets, is->gets);
	H_EQ(want->put_notifies, is->put_notifies);
	H_EQ(want->atomics, is->atomics);
	H_EQ(want->sends, is->sends);
	H_EQ(want->flushes, is->flushes);
	H_EQ(want->receives, is->receives);
	H_EQ(want->notifications, is->notifications);
	H_EQ(want->bytes_out, is->bytes_out);
	H_EQ(want->bytes_in, is->bytes_in);
	H_EQ(0, is->again);
	H_EQ(0, all_errors(is));
}

static uint64_t swap(struct h *h, int role, uint64_t mine)
{
	h_tell_u64(h, role, mine);
	return h_hear_u64(h, role);
}

/* Both sides agree on the frames between them, once nothing is under way; that may take a moment. */
static void frames_agree(struct h *h, int role)
{
	struct xport_counters c;
	uint64_t frames, acks;
	bool agree;

	for (int round = 0;; round++) {
		h_run_for(h, 100);
		h_sync(h);
		h->idle = true;
		c = ask(h, h->ep[role]);
		frames = swap(h, role, c.frames_out);
		acks = swap(h, role, c.acks_out);
		agree = frames == c.frames_in && acks == c.acks_in;
		agree = swap(h, role, agree) && agree;
		h->idle = false;
		if (agree)
			break;
		H_CHECK(round < 30,
		        "%" PRIu64 " frames and %" PRIu64 " acknowledgements came, %" PRIu64 " and %" PRIu64
		        " were sent",
		        c.frames_in, c.acks_in, frames, acks);
	}
	H_CHECK(c.frames_acked <= c.frames_out, "%" PRIu64 " of %" PRIu64, c.frames_acked, c.frames_out);
	H_TRUE(c.frames_out > 0);
	h_sync(h);
}

static void counting(struct h *h)
{
	struct xport_counters want = {0}, is, all;
	struct h_mem l;
	struct h_rkey r;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	is = ask(h, h->ep[0]);
	compare(h, &want, &is);
	H_EQ(0, is.in_flight_max);
	h_send(h, h->ep[0], l.p, 8, TAG);
	h_settle(h);
	want.sends++;
	want.bytes_out += 8;
	is = ask(h, h->ep[0]);
	compare(h, &want, &is);
	H_EQ(1, is.in_flight_max);
	h_hear_u64(h, 0);
	puts_of_all_kinds(h, &l, &r, true, &want);
	puts_of_all_kinds(h, &l, &r, false, &want);
	small_puts(h, &l, &r, true, &want);
	small_puts(h, &l, &r, false, &want);
	sends(h, &l, true, &want);
	sends(h, &l, false, &want);
	other_operations(h, &l, &r, &want);
	is = ask(h, h->ep[0]);
	compare(h, &want, &is);
	H_EQ(0, is.in_flight);
	H_CHECK(is.in_flight_max >= MANY && is.in_flight_max <= h->info.queue_depth, "%" PRIu64, is.in_flight_max);
	all = ask(h, NULL);
	compare(h, &want, &all);
	H_EQ(is.frames_out, all.frames_out);
	frames_agree(h, 0);
	/* They stay until the endpoint is given back, and then in those of the instance. */
	H_OK(xport_ep_close(h->ep[0], h_ms(h->limit_ms)));
	is = ask(h, h->ep[0]);
	compare(h, &want, &is);
	xport_ep_destroy(h->ep[0]);
	h->ep[0] = NULL;
	h_run_for(h, 10);
	all = ask(h, NULL);
	compare(h, &want, &all);
}

/* All messages, among them those that came before their receive. */
static void counted(struct h *h)
{
	struct xport_counters want = {0}, is;
	uint8_t *buf = h_buf(h, LEN);
	struct xport_completion c;
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	while (ask(h, h->ep[1]).unmatched == 0)
		h_breathe(h);
	is = ask(h, h->ep[1]);
	H_EQ(1, is.unmatched);
	H_EQ(1, ask(h, NULL).unmatched);
	compare(h, &want, &is);
	h_tell_u64(h, 1, 1);
	for (int i = 0; i < 1 + 2 * MANY * LENGTHS; i++) {
		struct h_op *op = h_recv(h, i % 2 ? h->ep[1] : NULL, buf, LEN, TAG, UINT64_MAX);

		H_DONE(op);
		want.receives++;
		want.bytes_in += op->c.length;
	}
	for (int i = 0; i < MANY * LENGTHS; i++)
		H_EVENT(XPORT_EVENT_NOTIFY);
	want.notifications = MANY * LENGTHS;
	is = ask(h, h->ep[1]);
	compare(h, &want, &is);
	H_EQ(0, is.unmatched);
	frames_agree(h, 1);
	c = H_EVENT(XPORT_EVENT_CLOSED);
	H_TRUE(c.ep == h->ep[1]);
}

/* A queue that is full, a receive that is too short, one that is cancelled; arguments. */
static void refused(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct xport_counters c;
	struct h_op *op;
	uint64_t word = 1;
	uint8_t small[4];
	int s, n = 0;

	a.queue_depth = 16;
	h_mesh(h, &a);
	while (h_try_send(h, h->ep[0], &word, 8, TAG, &s) != NULL)
		n++;
	H_EQ(XPORT_ERR_AGAIN, s);
	H_EQ(16, n);
	for (int i = 0; i < 2; i++)
		H_TRUE(h_try_send(h, h->ep[0], &word, 8, TAG, &s) == NULL);
	c = ask(h, h->ep[0]);
	H_EQ(3, c.again);
	H_EQ(16, c.sends);
	H_EQ(16, c.in_flight);
	H_EQ(16, c.in_flight_max);
	h_settle(h);
	H_EQ(0, ask(h, h->ep[0]).in_flight);
	h_tell_u64(h, 0, 1);
	op = h_recv(h, NULL, small, sizeof(small), TAG, UINT64_MAX);
	H_DONE_AS(XPORT_ERR_TRUNCATED, op);
	op = h_recv(h, NULL, small, sizeof(small), TAG + 1, UINT64_MAX);
	H_EQ(1, ask(h, NULL).posted_receives);
	H_EQ(0, ask(h, h->ep[0]).posted_receives);
	H_OK(xport_cancel(h->x, op->id));
	H_DONE_AS(XPORT_ERR_CANCELED, op);
	c = ask(h, h->ep[0]);
	H_EQ(1, c.errors[-XPORT_ERR_TRUNCATED]);
	H_EQ(1, all_errors(&c));
	H_EQ(4, c.bytes_in);
	c = ask(h, NULL);
	H_EQ(1, c.errors[-XPORT_ERR_CANCELED]);
	H_EQ(2, all_errors(&c));
	op = h_recv(h, h->ep[0], small, sizeof(small), TAG + 1, UINT64_MAX);
	H_EQ(1, ask(h, h->ep[0]).posted_receives);
	H_OK(xport_cancel(h->x, op->id));
	H_DONE_AS(XPORT_ERR_CANCELED, op);
	h_sync(h);
}

static void refusing(struct h *h)
{
	uint64_t word;

	h_mesh(h, NULL);
	for (int i = 0; i < 16; i++)
		H_DONE(h_recv(h, NULL, &word, 8, TAG, UINT64_MAX));
	h_hear_u64(h, 1);
	H_DONE(h_send(h, h->ep[1], &word, 8, TAG));
	h_sync(h);
}

/* A program that was built with fewer of them, or with more. The first version ended with `errors`. */
static void sizes(struct h *h)
{
	struct {
		struct xport_counters c;
		uint64_t later[4];
	} more;
	struct xport_counters c = {.size = offsetof(struct xport_counters, by_copy) - 1};
	xport *other = h->x;
	struct xport_attr a;

	h_open(h, NULL);
	other = h->x;
	H_STATUS(XPORT_ERR_INVALID, xport_stats(h->x, NULL, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_stats(h->x, NULL, &c));
	H_STATUS(XPORT_ERR_INVALID, xport_stats(NULL, NULL, &c));
	c.size++;
	c.by_copy = 7;
	H_OK(xport_stats(h->x, NULL, &c));
	H_EQ(7, c.by_copy);
	memset(&more, 0xff, sizeof(more));
	more.c.size = sizeof(more);
	H_OK(xport_stats(h->x, NULL, &more.c));
	H_EQ(sizeof(more), more.c.size);
	H_EQ(0, more.later[0] | more.later[3] | more.c.puts);
	a = h_attr(h);
	h_listen(h);
	H_OK(xport_connect(h->x, h->address, NULL, 0, &h->ep[1]));
	h_accept(h);
	H_EVENT(XPORT_EVENT_CONNECTED);
	H_OK(xport_open(&a, &other));
	c.size = sizeof(c);
	H_STATUS(XPORT_ERR_INVALID, xport_stats(other, h->ep[1], &c));
	xport_close(other);
	H_OK(xport_stats(h->x, h->ep[1], &c));
	h->ep[1] = NULL;
}

/* What was under way when the peer died is counted by what became of it. */
static void bereft(struct h *h)
{
	struct h_op *ops[4 * MANY];
	struct xport_counters c;
	struct h_mem l;
	struct h_rkey r;
	uint64_t lost = 0;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	h_sync(h);
	for (int i = 0; i < MANY; i++) {
		ops[4 * i] = h_put(h, h->ep[0], H_AT(l, 0, LEN), &r, 0, 0);
		ops[4 * i + 1] = h_get(h, h->ep[0], H_AT(l, 0, LEN), &r, 0);
		ops[4 * i + 2] = h_send(h, h->ep[0], l.p, LEN, TAG);
		ops[4 * i + 3] = h_recv(h, h->ep[0], l.p, LEN, TAG, UINT64_MAX);
	}
	h_kill(h, 0, SIGKILL);
	h_settle(h);
	for (int i = 0; i < 4 * MANY; i++)
		lost += ops[i]->c.status == XPORT_ERR_PEER_LOST;
	H_CHECK(lost >= 2 * MANY, "%" PRIu64, lost);
	for (int i = 0; i < 2; i++) {
		c = ask(h, i ? NULL : h->ep[0]);
		H_EQ(lost, c.errors[-XPORT_ERR_PEER_LOST]);
		H_EQ(lost, all_errors(&c));
		H_EQ(MANY, c.puts);
		H_EQ(MANY, c.sends);
		H_EQ(0, c.receives);
		H_EQ(0, c.posted_receives);
	}
	H_EVENT(XPORT_EVENT_LOST);
	H_EQ(0, ask(h, h->ep[0]).in_flight);
}

static void dying(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h->idle = true;
	h_sync(h);
	h_hear_u64(h, 1);
}

const struct h_scenario cases_stats[] = {
	{.name = "P1_counters", .role = {counted, counting}, .flags = H_KINDS, .timeout_s = 60},
	{.name = "P8_counters_of_a_full_queue", .role = {refusing, refused}},
	{.name = "P7_size_of_counters", .role = {sizes}},
	{.name = "P5_counters_of_a_lost_peer", .role = {dying, bereft}, .flags = H_TARGET | H_KILLS},
	{.name = NULL},
};
