/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_batch.c - many operations, one completion. */
#include "conform/harness.h"
#include "services/services.h"
#include "services/xport_services.h"

enum { OPS = 64, PIECE = 96, LEN = 1 << 16, GOT = LEN / 2, COUNTER = LEN - 8, MANY = 1000 };

static const size_t ENTRY = sizeof(struct xport_batch_op);

/* ---- the target ---- */

static void target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_fill(m.p + GOT, LEN / 4, 7);
	h_share(h, 1, &m);
	h_hear_u64(h, 1);
	H_FILLED(m.p, h_hear_u64(h, 1), 3);
	H_EQ(h_hear_u64(h, 1), *(uint64_t *)(void *)(m.p + COUNTER));
	for (uint64_t i = 0, n = h_hear_u64(h, 1); i < n; i++)
		H_EQ(i, H_EVENT(XPORT_EVENT_NOTIFY).tag);
	h_sync(h);
	h_mem_free(h, &m);
	H_EQ(0, h->nqueue);
}

/* What the target has to find: so many bytes put, additions made, notifications sent. */
static void tell(struct h *h, uint64_t bytes, uint64_t added, uint64_t notified)
{
	h_tell_u64(h, 0, 1);
	h_tell_u64(h, 0, bytes);
	h_tell_u64(h, 0, added);
	h_tell_u64(h, 0, notified);
	h_sync(h);
}

/* ---- the user ---- */

struct user {
	struct h_mem from, to;
	struct h_rkey r;
	struct xport_atomic_args add;
	struct xport_batch_op ops[MANY];
	size_t n;
	unsigned again; /* how often it was told so */
};

static struct user *begin(struct h *h, const struct xport_attr *attr)
{
	struct user *u = h_buf(h, sizeof(*u));

	h_mesh(h, attr);
	u->from = h_mem_local(h, LEN, 0);
	u->to = h_mem_local(h, LEN, 0);
	h_fill(u->from.p, LEN, 3);
	memset(u->to.p, 0x11, LEN);
	u->r = h_import(h, 0);
	u->add = (struct xport_atomic_args){.size = sizeof(u->add), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 2};
	return u;
}

static struct xport_batch_op *more(struct user *u, int type, size_t at, size_t len)
{
	struct xport_batch_op *op = &u->ops[u->n++];

	*op = (struct xport_batch_op){.type = type,
	                              .buf = u->from.p + at,
	                              .length = len,
	                              .rkey = u->r.k,
	                              .offset = u->r.offset + at,
	                              .mr = u->from.mr};
	return op;
}

static void more_get(struct user *u, size_t at, size_t len)
{
	struct xport_batch_op *op = more(u, XPORT_OP_GET, GOT + at, len);

	op->buf = u->to.p + at;
	op->mr = u->to.mr;
}

static void more_add(struct user *u)
{
	struct xport_batch_op *op = more(u, XPORT_OP_ATOMIC, COUNTER, 0);

	op->buf = NULL;
	op->mr = NULL;
	op->atomic = &u->add;
}

/* Gives it what is left until all of it was taken. */
static int give(struct h *h, struct user *u, size_t n, void *context)
{
	size_t done = 0, posted;
	int r;

	do {
		r = xport_batch(h->ep[0], u->ops + done, ENTRY, n - done, context, &posted);
		done += posted;
		H_TRUE(done <= n);
		if (r == XPORT_ERR_AGAIN) {
			u->again++;
			SVC_ERROR(XPORT_ERR_AGAIN, "xport_batch", done < n ? "operation" : "the flush after");
			h_breathe(h);
		}
	} while (r == XPORT_ERR_AGAIN);
	return r;
}

/* One completion, and nothing beside. */
static void completes(struct h *h, void *context, int status)
{
	struct xport_completion c = H_EVENT(XPORT_OP_FLUSH);

	H_STATUS(status, c.status);
	H_TRUE(c.context == context);
	h_run_for(h, 20);
	H_EQ(0, h->nqueue);
}

static void all_kinds(struct h *h)
{
	struct user *u = begin(h, NULL);

	for (size_t i = 0; i < OPS; i++) {
		more(u, XPORT_OP_PUT, 2 * i * PIECE, PIECE);
		more(u, XPORT_OP_PUT_NOTIFY, (2 * i + 1) * PIECE, PIECE)->value = i;
		more_get(u, i * PIECE, PIECE);
		more_add(u);
	}
	H_OK(give(h, u, u->n, u));
	completes(h, u, XPORT_OK);
	H_FILLED(u->to.p, OPS * PIECE, 7);
	H_BYTES(u->to.p + OPS * PIECE, LEN - OPS * PIECE, 0x11);
	tell(h, 2 * OPS * PIECE, 2 * OPS, OPS);
}

static void none_at_all(struct h *h)
{
	struct user *u = begin(h, NULL);
	size_t posted = 99;

	H_OK(xport_batch(h->ep[0], NULL, ENTRY, 0, u, &posted));
	H_EQ(0, posted);
	completes(h, u, XPORT_OK);
	tell(h, 0, 0, 0);
}

/* More than the queue takes: what is left is given again, and there is one completion all the same. */
static void full(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct user *u;

	a.queue_depth = 64;
	u = begin(h, &a);
	for (size_t i = 0; i < MANY; i++) {
		if (i % 4 == 3)
			more_get(u, i / 4 * 32, 32);
		else
			more(u, XPORT_OP_PUT, (i - i / 4) * 32, 32);
	}
	H_OK(give(h, u, MANY, u));
	H_TRUE(u->again > 0 || h->info.put == XPORT_NATIVE); /* copies take no place in the queue */
	completes(h, u, XPORT_OK);
	H_FILLED(u->to.p, MANY / 4 * 32, 7);
	tell(h, (MANY - MANY / 4) * 32, 0, 0);
}

static void refused(struct h *h)
{
	struct user *u = begin(h, NULL);
	uint64_t old;
	size_t posted = 99;

	for (size_t i = 0; i < 8; i++)
		more(u, XPORT_OP_PUT, i * PIECE, PIECE);
	H_STATUS(XPORT_ERR_INVALID, xport_batch(NULL, u->ops, ENTRY, 8, u, &posted));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_batch", "ep is NULL");
	H_EQ(0, posted);
	posted = 99;
	H_STATUS(XPORT_ERR_INVALID, xport_batch(h->ep[0], NULL, ENTRY, 8, u, &posted));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_batch", "ops is NULL");
	H_EQ(0, posted);
	posted = 99;
	H_STATUS(XPORT_ERR_INVALID, xport_batch(h->ep[0], u->ops, ENTRY, 8, u, NULL));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_batch", "posted is NULL");

	/* Nothing is posted of what can be seen to be wrong. */
	u->ops[7].type = XPORT_OP_SEND;
	H_STATUS(XPORT_ERR_INVALID, xport_batch(h->ep[0], u->ops, ENTRY, 8, u, &posted));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_batch", "operation 7 of 8 has a type that a batch does not support");
	H_EQ(0, posted);
	u->ops[7].type = XPORT_OP_ATOMIC;
	H_STATUS(XPORT_ERR_INVALID, xport_batch(h->ep[0], u->ops, ENTRY, 8, u, &posted));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_batch", "`atomic` is NULL");
	u->add.result = &old;
	u->ops[7].atomic = &u->add;
	H_STATUS(XPORT_ERR_INVALID, xport_batch(h->ep[0], u->ops, ENTRY, 8, u, &posted));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_batch", "with a result");
	u->add.result = NULL;
	u->add.width = 5;
	H_STATUS(XPORT_ERR_INVALID, xport_batch(h->ep[0], u->ops, ENTRY, 8, u, &posted));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_batch", "an invalid op or width");
	H_EQ(0, posted);
	u->add.width = 4;
	u->add.op = XPORT_ATOMIC_CAS + 1;
	H_STATUS(XPORT_ERR_INVALID, xport_batch(h->ep[0], u->ops, ENTRY, 8, u, &posted));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_batch", "an invalid op or width");
	u->add.op = -1;
	H_STATUS(XPORT_ERR_INVALID, xport_batch(h->ep[0], u->ops, ENTRY, 8, u, &posted));
	H_EQ(0, posted);
	u->ops[7].type = XPORT_OP_GET;
	H_STATUS(XPORT_ERR_INVALID, xport_batch(h->ep[0], u->ops, ENTRY, 8, u, &posted));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_batch", "its type is not XPORT_OP_ATOMIC");
	H_EQ(0, posted);
	posted = 99;
	H_STATUS(XPORT_ERR_INVALID, xport_batch(h->ep[0], u->ops, ENTRY - 1, 8, u, &posted));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_batch", "entry_size");
	H_EQ(0, posted);

	/* What is refused when it comes to it: what was before it is quiet. */
	u->n = 7;
	more(u, XPORT_OP_PUT, LEN, 1)->buf = u->from.p;
	u->ops[7].offset = u->r.offset + u->r.length + H_GUARD;
	H_STATUS(XPORT_ERR_BOUNDS, xport_batch(h->ep[0], u->ops, ENTRY, 8, u, &posted));
	SVC_ERROR(XPORT_ERR_BOUNDS, "xport_batch", "posting operation 7 of 8 failed");
	H_EQ(7, posted);
	h_run_for(h, 20);
	H_EQ(0, h->nqueue);
	u->ops[3].buf = NULL;
	H_STATUS(XPORT_ERR_INVALID, xport_batch(h->ep[0], u->ops, ENTRY, 7, u, &posted));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_batch", "posting operation 3 of 7 failed");
	H_EQ(3, posted);
	H_OK(xport_batch(h->ep[0], NULL, ENTRY, 0, u, &posted));
	completes(h, u, XPORT_OK);
	tell(h, 7 * PIECE, 0, 0);
}

/* Entries of a newer program: taken if what is not known here is zero. */
static void longer(struct h *h)
{
	struct newer {
		struct xport_batch_op op;
		uint64_t more;
	} ops[8];
	struct user *u = begin(h, NULL);
	size_t posted = 99;

	for (size_t i = 0; i < 8; i++)
		ops[i] = (struct newer){.op = *more(u, XPORT_OP_PUT, i * PIECE, PIECE)};
	ops[7].more = 1;
	H_STATUS(XPORT_ERR_NOT_SUPPORTED, xport_batch(h->ep[0], &ops[0].op, sizeof(ops[0]), 8, u, &posted));
	SVC_ERROR(XPORT_ERR_NOT_SUPPORTED, "xport_batch", "operation 7 of 8 sets a field");
	H_EQ(0, posted);
	ops[7].more = 0;
	H_OK(xport_batch(h->ep[0], &ops[0].op, sizeof(ops[0]), 8, u, &posted));
	H_EQ(8, posted);
	completes(h, u, XPORT_OK);
	tell(h, 8 * PIECE, 0, 0);
}

/* A region that goes while the batch is under way, or before: the one completion says so, or the call. */
static void stale_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_hear_u64(h, 1);
	h_mem_free(h, &m);
	h_tell_u64(h, 1, 1);
	h_sync(h);
}

static void stale(struct h *h)
{
	struct user *u = begin(h, NULL);
	size_t posted;
	int r;

	h_tell_u64(h, 0, 1);
	h->idle = h->config->emulate; /* the news does not come here before the post */
	h_hear_u64(h, 0);
	for (size_t i = 0; i < OPS; i++) {
		more(u, XPORT_OP_PUT, i * PIECE, PIECE);
		more_get(u, i * PIECE, PIECE);
	}
	r = xport_batch(h->ep[0], u->ops, ENTRY, u->n, u, &posted);
	H_TRUE(r == XPORT_OK || !h->idle);
	h->idle = false;
	h_record(h, "told_by_the_completion", r == XPORT_OK);
	if (r != XPORT_OK) {
		H_STATUS(XPORT_ERR_STALE_KEY, r);
		SVC_ERROR(XPORT_ERR_STALE_KEY, "xport_batch", "operation 0 of");
	} else {
		completes(h, u, XPORT_ERR_STALE_KEY);
	}
	h_sync(h);
}

static void dying(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_hear_u64(h, 1);
	h_exit(h, true);
}

static void death(struct h *h)
{
	struct user *u = begin(h, NULL);

	for (size_t i = 0; i < MANY; i++) {
		if (i % 2)
			more_get(u, i * 16, 16);
		else
			more(u, XPORT_OP_PUT, i * 16, 16);
	}
	h_tell_u64(h, 0, 1);
	for (;;) {
		int r = give(h, u, MANY, u);
		struct xport_completion c;

		if (r != XPORT_OK) {
			H_STATUS(XPORT_ERR_PEER_LOST, r);
			break;
		}
		c = H_EVENT(XPORT_OP_FLUSH);
		H_TRUE(c.context == u);
		if (c.status != XPORT_OK) {
			H_STATUS(XPORT_ERR_PEER_LOST, c.status);
			break;
		}
	}
	H_EVENT(XPORT_EVENT_LOST);
	H_EQ(0, h->nqueue);
}

const struct h_scenario svc_cases_batch[] = {
	{.name = "batch_all_kinds", .role = {target, all_kinds}},
	{.name = "batch_of_none", .role = {target, none_at_all}},
	{.name = "batch_longer_than_the_queue", .role = {target, full}},
	{.name = "batch_refused", .role = {target, refused}},
	{.name = "batch_of_longer_entries", .role = {target, longer}},
	{.name = "batch_to_a_region_that_is_gone", .role = {stale_target, stale}},
	{.name = "batch_death", .role = {dying, death}, .flags = H_KILLS},
	{.name = NULL},
};
