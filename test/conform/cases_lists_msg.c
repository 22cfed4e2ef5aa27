/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_lists_msg.c - the promises for messages with lists of pieces: each is compared with the call for one buffer. */
#include "lists.h"

enum { ROUNDS = 24, LEN = 4096, MANY = 1200 };

/* Accepted by the other side in turns of this many. */
static size_t total_of(struct h *h, unsigned i)
{
	size_t most = h_size(h);

	return i % 4 == 3 ? most / 2 : most;
}

/* ---- sends ---- */

/* Plain receives: they must not be able to tell. Every other message waits for its receive. */
static void receiver(struct h *h)
{
	uint8_t *buf;

	h_mesh(h, NULL);
	buf = h_buf(h, h_size(h) + 1);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct h_op *op;

		if (i % 2 != 0)
			h_run_for(h, 1);
		memset(buf, 0, h_size(h));
		op = h_recv(h, NULL, buf, h_size(h), i, UINT64_MAX);
		h_tell_u64(h, 1, i);
		H_DONE(op);
		H_EQ(total_of(h, i), op->c.length);
		H_EQ(i, op->c.tag);
		H_FILLED(buf, total_of(h, i), i);
	}
	h_sync(h);
}

static void sendv(struct h *h)
{
	struct h_lists lists = {.seed = 99 + h->param};
	uint8_t *flat;
	struct h_mem l;

	h_mesh(h, NULL);
	l = h_mem_local(h, h_pieces_room(h_size(h)), 0);
	flat = h_buf(h, h_size(h));
	for (unsigned i = 0; i < ROUNDS; i++) {
		size_t total = total_of(h, i);
		struct h_op *op;

		memset(l.p, 0x11, l.len);
		h_fill(flat, total, i);
		h_pieces_local(h, &lists, &l, total);
		h_scatter(&lists, flat, total);
		if (i % 2 == 0)
			h_hear_u64(h, 0);
		op = h_sendv(h, h->ep[0], &lists, &l, i);
		if (i % 2 != 0)
			h_hear_u64(h, 0);
		H_DONE(op);
		H_EQ(total, op->c.length);
		memset(l.p, 0xee, l.len); /* it is free */
	}
	H_EQ(0, h->nqueue);
	h_sync(h);
	H_GUARDS(l);
	h_mem_free(h, &l);
}

/* The length of message i: short ones, long ones, and many that fill the window. */
static size_t order_len(struct h *h, unsigned i)
{
	return i % 5 == 4 ? h->info.eager_max + 100 : i % 5 >= 2 ? h->info.eager_max : 1 + i;
}

/* So many that they fill the window twice. */
static unsigned order_count(struct h *h)
{
	uint64_t n = 50 + 2 * h->info.window / h->info.eager_max * 5 / 2;

	return n < MANY ? (unsigned)n : MANY;
}

/* Of lists and of one buffer. Most wait at the sender, since nobody receives yet: they match in the order posted. */
static void order_receiver(struct h *h)
{
	uint8_t *buf;

	h_mesh(h, NULL);
	buf = h_buf(h, h->info.eager_max + 100);
	h_hear_u64(h, 1);
	for (unsigned i = 0; i < order_count(h); i++) {
		struct h_op *op = h_recv(h, NULL, buf, h->info.eager_max + 100, 7, UINT64_MAX);

		H_DONE(op);
		H_EQ(order_len(h, i), op->c.length);
		H_FILLED(buf, op->c.length, i);
	}
	h_sync(h);
}

static void order_sender(struct h *h)
{
	struct h_lists lists = {.seed = 5};
	uint8_t *flat[MANY];
	struct h_mem l[MANY / 2];

	h_mesh(h, NULL);
	for (unsigned i = 0; i < order_count(h); i++) {
		size_t total = order_len(h, i);

		flat[i] = h_buf(h, total);
		h_fill(flat[i], total, i);
		if (i % 2 != 0) {
			h_send(h, h->ep[0], flat[i], total, 7);
			continue;
		}
		l[i / 2] = (struct h_mem){.p = h_buf(h, h_pieces_room(total)), .len = h_pieces_room(total)};
		h_pieces_local(h, &lists, &l[i / 2], total);
		h_scatter(&lists, flat[i], total);
		h_sendv(h, h->ep[0], &lists, &l[i / 2], 7);
	}
	h_tell_u64(h, 0, 1);
	h_settle(h);
	h_sync(h);
}

/* A message that is longer than its receive fails that one only. */
static void short_receiver(struct h *h)
{
	uint8_t *buf;
	size_t len;

	h_mesh(h, NULL);
	len = h_size(h);
	buf = h_buf(h, len);
	for (unsigned i = 0; i < 4; i++) {
		struct h_op *op;

		memset(buf, 0x22, len);
		op = h_recv(h, NULL, buf, len / 2, 1, UINT64_MAX);
		H_DONE_AS(XPORT_ERR_TRUNCATED, op);
		H_EQ(len, op->c.length);
		H_FILLED(buf, len / 2 & ~(size_t)7, i);
		H_BYTES(buf + len / 2, len - len / 2, 0x22);
	}
	h_sync(h);
}

static void short_sender(struct h *h)
{
	struct h_lists lists = {.seed = 8};
	struct h_mem l;
	uint8_t *flat;

	h_mesh(h, NULL);
	l = h_mem_local(h, h_pieces_room(h_size(h)), 0);
	flat = h_buf(h, h_size(h));
	for (unsigned i = 0; i < 4; i++) {
		h_fill(flat, h_size(h), i);
		h_pieces_local(h, &lists, &l, h_size(h));
		h_scatter(&lists, flat, h_size(h));
		H_DONE(h_sendv(h, h->ep[0], &lists, &l, 1));
	}
	h_sync(h);
}

/* The window is full, and the peer is killed: each send that was accepted completes once, and its regions are free. */
static void kill_sender(struct h *h)
{
	enum { FEW = 40 };
	struct h_lists lists = {.seed = 3};
	struct h_op *op[FEW];
	struct h_mem l;

	h_mesh(h, NULL);
	l = h_mem_local(h, h_pieces_room(1 << 20), 0);
	for (int i = 0; i < FEW; i++) {
		h_pieces_local(h, &lists, &l, i % 2 != 0 ? 1 << 20 : h->info.eager_max);
		op[i] = h_sendv(h, h->ep[0], &lists, &l, 1);
	}
	h_run_for(h, 10);
	h_tell_u64(h, 0, 1);
	H_EVENT(XPORT_EVENT_LOST);
	for (int i = 0; i < FEW; i++) {
		H_ENDED(op[i]);
		H_CHECK(op[i]->c.status == XPORT_OK || op[i]->c.status == XPORT_ERR_PEER_LOST, "status %d",
		        op[i]->c.status);
	}
	H_EQ(0, h->pending);
	h_mem_free(h, &l);
}

static void kill_receiver(struct h *h)
{
	uint8_t *buf = h_buf(h, 1 << 20);

	h_mesh(h, NULL);
	h_recv(h, NULL, buf, 1 << 20, 1, UINT64_MAX);
	h_hear_u64(h, 1);
	h_exit(h, true);
}

/* ---- receives ---- */

/* Where a plain receive of these bytes would have left something else than `l`, or bytes outside of the pieces changed. */
static void same_here(struct h *h, const struct h_lists *lists, const struct h_mem *l, const uint8_t *flat, size_t len)
{
	uint8_t *got = h_buf(h, l->len);

	memcpy(got, l->p, l->len);
	memset(l->p, 0x11, l->len);
	h_scatter(lists, flat, len);
	H_CHECK(memcmp(got, l->p, l->len) == 0, "local memory is not what a single receive leaves");
	h_buf_free(h, got);
}

static void recvv(struct h *h)
{
	struct h_lists lists = {.seed = 12 + h->param};
	struct h_mem l;
	uint8_t *flat;

	h_mesh(h, NULL);
	l = h_mem_local(h, h_pieces_room(h_size(h)), 0);
	flat = h_buf(h, h_size(h));
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct h_op *op;

		if (i % 2 != 0) /* it waits here without a receive */
			h_run_for(h, 1);
		memset(l.p, 0x11, l.len);
		h_pieces_local(h, &lists, &l, h_size(h));
		op = h_recvv(h, i % 3 != 0 ? h->ep[1] : NULL, &lists, &l, i, 0);
		h_tell_u64(h, 1, i);
		H_DONE(op);
		H_EQ(total_of(h, i), op->c.length);
		H_EQ(i, op->c.tag);
		H_TRUE(op->c.ep == h->ep[1]);
		h_fill(flat, total_of(h, i), i);
		same_here(h, &lists, &l, flat, total_of(h, i));
	}
	H_EQ(0, h->nqueue);
	h_sync(h);
	H_GUARDS(l);
	h_mem_free(h, &l);
}

/* One buffer, or a list: the receiver must not be able to tell. */
static void sender(struct h *h)
{
	struct h_lists lists = {.seed = 77};
	struct h_mem l;
	uint8_t *flat;

	h_mesh(h, NULL);
	flat = h_buf(h, h_size(h));
	l = h_mem_local(h, h_pieces_room(h_size(h)), 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct h_op *op;

		if (i % 2 == 0)
			h_hear_u64(h, 0);
		h_fill(flat, total_of(h, i), i);
		if (i % 4 < 2) {
			op = h_send(h, h->ep[0], flat, total_of(h, i), i);
		} else {
			h_pieces_local(h, &lists, &l, total_of(h, i));
			h_scatter(&lists, flat, total_of(h, i));
			op = h_sendv(h, h->ep[0], &lists, &l, i);
		}
		if (i % 2 != 0)
			h_hear_u64(h, 0);
		H_DONE(op);
	}
	h_sync(h);
}

/* A message longer than all pieces fills them, and fails this receive only; a short receive takes no long message. */
static void cut_receiver(struct h *h)
{
	struct h_lists lists = {.seed = 31};
	struct h_mem l;
	uint8_t *flat;
	size_t len;

	h_mesh(h, NULL);
	len = h_size(h);
	l = h_mem_local(h, h_pieces_room(len), 0);
	flat = h_buf(h, len);
	for (unsigned i = 0; i < 8; i++) {
		size_t room = i % 4 == 3 ? 0 : len / (2 + i);
		uint64_t flags = i % 2 != 0 ? XPORT_EAGER : 0;
		struct h_op *op;

		memset(l.p, 0x11, l.len);
		h_pieces_local(h, &lists, &l, room);
		op = h_recvv(h, NULL, &lists, &l, 1, flags);
		H_DONE_AS(XPORT_ERR_TRUNCATED, op);
		H_EQ(len, op->c.length);
		h_fill(flat, len, i % 4);
		same_here(h, &lists, &l, flat, flags != 0 && len > h->info.eager_max ? 0 : room);
	}
	h_sync(h);
}

static void cut_sender(struct h *h)
{
	uint8_t *flat;

	h_mesh(h, NULL);
	flat = h_buf(h, h_size(h));
	for (unsigned i = 0; i < 8; i++) {
		h_fill(flat, h_size(h), i % 4);
		H_DONE(h_send(h, h->ep[0], flat, h_size(h), 1));
	}
	h_sync(h);
}

/* While it is posted, its regions cannot be deregistered. Cancelled, it completes once and touches nothing. */
static void cancel(struct h *h)
{
	struct h_lists lists = {.seed = 41};
	struct h_op *op, *other;
	struct h_mem l, second, plain = {0};

	h_mesh(h, NULL);
	l = h_mem_local(h, h_pieces_room(LEN), 0);
	second = h_mem_local(h, 64, 0);
	for (unsigned i = 0; i < 8; i++) {
		memset(l.p, 0x11, l.len);
		h_pieces_local(h, &lists, &l, LEN);
		for (size_t k = 0, named = 0; k < lists.nlocal; k++) { /* one piece has the region, or all by opt->mr */
			lists.local[k].mr = named == 0 && lists.local[k].len > 0 ? l.mr : NULL;
			named += lists.local[k].mr != NULL;
		}
		op = h_recvv(h, i % 2 != 0 ? h->ep[1 - h->role] : NULL, &lists, i % 4 < 2 ? &l : &plain, 9, 0);
		H_STATUS(XPORT_ERR_BUSY, xport_mr_dereg(l.mr));
		other = h_recv(h, NULL, second.p, 8, 10, UINT64_MAX);
		H_OK(xport_cancel(h->x, op->id));
		H_STATUS(XPORT_ERR_BUSY, xport_cancel(h->x, op->id));
		H_DONE_AS(XPORT_ERR_CANCELED, op);
		H_STATUS(XPORT_ERR_INVALID, xport_cancel(h->x, op->id));
		H_OK(xport_cancel(h->x, other->id));
		H_DONE_AS(XPORT_ERR_CANCELED, other);
		h_sync(h);
		H_DONE(h_send(h, h->ep[1 - h->role], second.p, 8, 9)); /* it comes to the next receive, not to this */
		H_DONE(h_recv(h, NULL, second.p, 8, 9, UINT64_MAX));
		H_BYTES(l.p, l.len, 0x11);
	}
	H_EQ(0, h->pending);
	h_mem_free(h, &l); /* does not wait, and is not refused */
	h_sync(h);
}

/* Receives posted for a peer that is killed, and one whose long message had begun: each completes once. */
static void lost_receiver(struct h *h)
{
	enum { FEW = 20 };
	struct h_lists lists = {.seed = 51};
	struct h_op *op[FEW];
	struct h_mem l;

	h_mesh(h, NULL);
	l = h_mem_local(h, h_pieces_room(8 << 20), 0);
	for (int i = 0; i < FEW; i++) {
		h_pieces_local(h, &lists, &l, i == 0 ? 8 << 20 : 100);
		op[i] = h_recvv(h, h->ep[1], &lists, &l, (uint64_t)i, 0);
	}
	h_tell_u64(h, 1, 1);
	h_run_for(h, 3);
	h_kill(h, 1, SIGKILL);
	H_EVENT(XPORT_EVENT_LOST);
	for (int i = 0; i < FEW; i++) {
		H_ENDED(op[i]);
		H_CHECK(op[i]->c.status == XPORT_ERR_PEER_LOST || (i == 0 && op[i]->c.status == XPORT_OK),
		        "%d: status %d", i, op[i]->c.status);
	}
	H_EQ(0, h->pending);
	h_mem_free(h, &l);
}

static void lost_sender(struct h *h)
{
	uint8_t *big = h_buf(h, 8 << 20);

	h_mesh(h, NULL);
	h_hear_u64(h, 0);
	h_send(h, h->ep[0], big, 8 << 20, 0);
	h_run_for(h, 10000);
}

/* ---- refused ---- */

/* Both calls refuse this list with this status and a text that has `why`. */
static void refused_as(struct h *h, const struct h_lists *l, int status, const char *why)
{
	for (int i = 0; i < 2; i++) {
		struct xport_error e = {.size = sizeof(e)};

		H_STATUS(status, i == 0 ? xport_sendv(h->ep[1 - h->role], l->local, l->nlocal, 1, NULL)
		                        : xport_recvv(h->x, l->local, l->nlocal, 1, UINT64_MAX, NULL));
		H_OK(xport_last_error(h->x, &e));
		H_CHECK(strstr(e.text, why) != NULL, "says \"%s\", not \"%s\"", e.text, why);
		H_CHECK(strcmp(e.operation, i == 0 ? "xport_sendv" : "xport_recvv") == 0, "is of %s", e.operation);
	}
}

static void refused(struct h *h)
{
	struct h_lists good = {.nlocal = 3}, l;
	struct xport_opt o = {.size = sizeof(o), .flags = XPORT_QUIET};
	struct xport_iov *none = NULL;
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_local(h, LEN, 0);
	for (int i = 0; i < 3; i++)
		good.local[i] = (struct xport_iov){.addr = m.p + 64 * i, .len = 32, .mr = m.mr};
	l = good;
	l.nlocal = 0;
	refused_as(h, &l, XPORT_ERR_INVALID, "list has no pieces");
	l.nlocal = H_PIECES + 1;
	refused_as(h, &l, XPORT_ERR_INVALID, "list has 65 pieces");
	l = good;
	l.local[1].addr = NULL;
	refused_as(h, &l, XPORT_ERR_INVALID, "piece 1");
	l = good;
	l.local[2].addr = m.p + LEN + 3 * H_GUARD;
	refused_as(h, &l, XPORT_ERR_INVALID, "piece 2");
	l = good;
	l.local[0].len = l.local[1].len = (size_t)1 << 62;
	l.local[0].mr = l.local[1].mr = NULL;
	refused_as(h, &l, XPORT_ERR_INVALID, "piece 1");
	H_STATUS(XPORT_ERR_INVALID, xport_sendv(h->ep[1 - h->role], none, 1, 1, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_sendv(NULL, good.local, 3, 1, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_recvv(h->x, none, 1, 1, 0, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_recvv(NULL, good.local, 3, 1, 0, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_recvv(h->x, good.local, 3, 1, 0, &o));
	H_STATUS(XPORT_ERR_INVALID, xport_sendv(h->ep[1 - h->role], good.local, 3, 1, &o));
	/* Only the message of no bytes arrives. */
	h_sync(h);
	for (int i = 0; i < 3; i++)
		good.local[i] = (struct xport_iov){0};
	h_sendv(h, h->ep[1 - h->role], &good, &m, 1);
	H_DONE(h_recvv(h, NULL, &good, &m, 1, 0));
	h_run_for(h, 20);
	h_settle(h);
	H_EQ(0, h->nqueue);
	h_sync(h);
}

static const struct h_param totals[] = {{"0", 0},
                                        {"1", 1},
                                        {"100", 100},
                                        {"2000", 2000},
                                        {"at_eager", H_NEAR_EAGER},
                                        {"above_eager", H_NEAR_EAGER + 1},
                                        {"300k", 300000},
                                        {"9m", (9 << 20) + 5},
                                        {NULL, 0}};
static const struct h_param cut_totals[] = {{"100", 100}, {"at_eager", H_NEAR_EAGER}, {"3m", 3 << 20}, {NULL, 0}};

/* ---- a body that is read by the peer at its beginning, and comes in many frames behind that ---- */

enum { READ_LEN = 128 << 10, TAIL_LEN = 60 << 10, TAILS = 6 };

/* The receiver sends nothing of its own, and does not close: only its acknowledgements complete the sends. */
static void mixed_receiver(struct h *h)
{
	uint8_t *buf;

	h_mesh(h, NULL);
	buf = h_buf(h, READ_LEN + 63 * TAIL_LEN);
	for (uint64_t tail = 1; tail <= TAILS; tail++) {
		struct h_op *op = h_recv(h, NULL, buf, READ_LEN + 63 * TAIL_LEN, tail, UINT64_MAX);

		H_DONE(op);
		H_FILLED(buf, op->c.length, tail);
	}
	h_sync(h);
}

static void mixed_sender(struct h *h)
{
	uint8_t *buf = h_buf(h, READ_LEN + 63 * TAIL_LEN);

	h_mesh(h, NULL);
	for (uint64_t tail = 1; tail <= TAILS; tail++) {
		struct xport_iov list[64] = {{.addr = buf, .len = READ_LEN}};
		struct xport_opt o = {.size = sizeof(o)};
		struct h_op *op = h_op(h, XPORT_OP_SEND);
		size_t n = tail == TAILS ? 63 : (size_t)tail * 2, rest = TAIL_LEN - (size_t)tail * 777;

		for (size_t i = 1; i <= n; i++)
			list[i] = (struct xport_iov){.addr = buf + READ_LEN + (i - 1) * rest, .len = rest};
		h_fill(buf, READ_LEN + n * rest, tail);
		o.context = op;
		H_OK(xport_sendv(h->ep[0], list, n + 1, tail, &o));
		H_DONE(op);
	}
	h_sync(h);
}

/* ---- receives that are posted when the instance ends ---- */

static void leaves_receives(struct h *h)
{
	uint8_t *buf = h_buf(h, 4096);
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_local(h, 4096, 0);
	for (uint64_t i = 0; i < 100; i++) {
		struct xport_iov list[2] = {{.addr = buf, .len = 8}, {.addr = m.p, .len = 8, .mr = m.mr}};

		H_OK(xport_recvv(h->x, list, 2, i, i % 2 ? UINT64_MAX : 0xff, NULL));
	}
	xport_close(h->x);
	h_forget(h);
}

static void sees_the_end(struct h *h)
{
	h_mesh(h, NULL);
	H_EQ(XPORT_ERR_PEER_CLOSED, H_EVENT(XPORT_EVENT_CLOSED).status);
}

const struct h_scenario cases_lists_msg[] = {
	{.name = "P2_sendv", .role = {receiver, sendv}, .params = totals, .flags = H_KINDS},
	{.name = "P4_sendv_in_order", .role = {order_receiver, order_sender}},
	{.name = "P15_sendv_too_long", .role = {short_receiver, short_sender}, .params = cut_totals},
	{.name = "P1_sendv_to_a_killed_peer", .role = {kill_receiver, kill_sender}, .flags = H_KILLS},
	{.name = "P2_recvv", .role = {recvv, sender}, .params = totals, .flags = H_KINDS},
	{.name = "P15_recvv_too_short", .role = {cut_receiver, cut_sender}, .params = cut_totals},
	{.name = "P3_recvv_cancelled", .role = {cancel, cancel}},
	{.name = "P1_recvv_from_a_killed_peer", .role = {lost_receiver, lost_sender}, .flags = H_KILLS},
	{.name = "P1_sendv_read_and_copied", .role = {mixed_receiver, mixed_sender}},
	{.name = "P12_recvv_at_the_end", .role = {sees_the_end, leaves_receives}},
	{.name = "P6_sendv_and_recvv_refused", .role = {refused, refused}},
	{.name = NULL},
};
