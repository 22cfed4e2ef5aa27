/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cases_p09_mapped.c - P9 where the peer's memory is mapped here: the initiator carries an atomic out, in the order
 * that a fence requires, and the target need not call the library.
 */
#include "harness.h"

enum { LEN = 4096, MANY = 200, ATOMIC_ONLY = XPORT_REMOTE_ATOMIC | XPORT_REMOTE_READ, FENCED = 256, COUNT = 512 };

/* One region that is mapped, whose right to atomics is all that lets it be changed, and one that is not. */
static void motionless(struct h *h)
{
	struct h_mem words, other;
	uint64_t *word;

	h_mesh(h, NULL);
	h->kind = H_ALLOC;
	words = h_mem_target(h, LEN, 0, ATOMIC_ONLY);
	h->kind = H_REG;
	other = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &words);
	h_share(h, 1, &other);
	h_sync(h);
	h_hear_u64(h, 1);
	h->idle = true;
	h_tell_u64(h, 1, 1);
	h_hear_u64(h, 1);
	h->idle = false;
	h_tell_u64(h, 1, 1);
	h_sync(h);
	word = (uint64_t *)words.p;
	H_EQ(MANY + 7, word[COUNT / 8]);
	H_EQ(3, word[FENCED / 8]);
	H_GUARDS(words);
	H_GUARDS(other);
}

/* Each kind on each width, and what was there before. */
static void each_kind(struct h *h, const struct h_rkey *r)
{
	static const uint64_t after[] = {7, 5, 13, 8, 6, 9};
	static const struct {
		int op;
		uint64_t operand, compare;
	} step[] = {
		{XPORT_ATOMIC_ADD, 7, 0}, {XPORT_ATOMIC_AND, 13, 0}, {XPORT_ATOMIC_OR, 8, 0},
		{XPORT_ATOMIC_XOR, 5, 0}, {XPORT_ATOMIC_SWAP, 6, 0}, {XPORT_ATOMIC_CAS, 9, 6},
	};

	for (int width = 4; width <= 8; width += 4) {
		uint64_t at = (uint64_t)(16 * width + 4 * (width == 4)), before = 0, old;

		for (size_t i = 0; i < sizeof(step) / sizeof(step[0]); i++) {
			old = 0;
			H_DONE(h_atomic(h, h->ep[0], step[i].op, width, step[i].operand, step[i].compare, &old, r, at));
			H_EQ(before, old);
			before = after[i];
		}
		old = 0; /* one that compares and fails changes nothing, and says what is there */
		H_DONE(h_atomic(h, h->ep[0], XPORT_ATOMIC_CAS, width, 1, 2, &old, r, at));
		H_EQ(9, old);
		H_DONE(h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, width, 0, 0, &old, r, at));
		H_EQ(9, old);
	}
}

/* More than there is room for where completions of short operations stand; and some for which none comes. */
static void many(struct h *h, const struct h_rkey *r)
{
	struct xport_opt quiet = {.size = sizeof(quiet), .flags = XPORT_QUIET};
	struct xport_atomic_args one = {.size = sizeof(one), .width = 8, .operand = 1};
	static uint64_t old[MANY];
	struct h_op *op[MANY];

	for (int i = 0; i < MANY; i++)
		op[i] = h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 1, 0, &old[i], r, COUNT);
	for (uint64_t i = 0; i < MANY; i++)
		H_EQ(i, old[i]);
	h_settle(h);
	for (int i = 0; i < MANY; i++)
		H_TRUE(op[i]->done == 1 && op[i]->c.status == XPORT_OK && op[i]->c.length == 8);
	for (int i = 0; i < 7; i++)
		H_OK(xport_atomic(h->ep[0], &one, r->k, r->offset + COUNT, &quiet));
	H_DONE(h_flush(h, h->ep[0]));
	H_EQ(0, h->nqueue);
}

static void mover(struct h *h)
{
	struct xport_rkey_info key = {.size = sizeof(key)};
	uint64_t old = UINT64_MAX;
	struct h_rkey words, other;
	struct h_op *put, *add;
	struct h_mem l;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	words = h_import(h, 0);
	other = h_import(h, 0);
	H_DONE(h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 1, 0, NULL, &words, FENCED));
	h_sync(h);
	h_run_for(h, 50);
	H_OK(xport_rkey_query(words.k, &key));
	if (!key.direct)
		h_skip(h, "mapped memory is absent: the target carries atomics out");
	H_EQ(ATOMIC_ONLY, key.rights);
	h_tell_u64(h, 0, 1);
	h_hear_u64(h, 0);
	usleep(20000); /* the target has stopped */
	H_STATUS(XPORT_ERR_ACCESS, xport_put(h->ep[0], l.p, 8, words.k, words.offset, NULL));
	each_kind(h, &words);
	many(h, &words);

	/* Behind a fence that waits for the target. */
	put = h_put(h, h->ep[0], H_AT(l, 0, 64), &other, 0, 0);
	H_OK(xport_fence(h->ep[0]));
	add = h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 2, 0, &old, &words, FENCED);
	h_run_for(h, 20);
	H_TRUE(put->done == 0 && add->done == 0 && old == UINT64_MAX);
	h_tell_u64(h, 0, 1);
	H_DONE(put);
	H_DONE(add);
	H_EQ(1, old);
	h_hear_u64(h, 0);
	h_sync(h);
}

const struct h_scenario cases_p09_mapped[] = {
	{.name = "P9_mapped_words", .role = {motionless, mover}},
	{.name = NULL},
};
