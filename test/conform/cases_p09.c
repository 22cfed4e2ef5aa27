/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_p09.c - P9, uniform atomics: each kind, each width, against a model, against each other, against the target's CPU. */
#include "harness.h"

enum { LEN = 4096, ROUNDS = 2000 };

static void target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	for (int i = 0; i < LEN / 8; i++)
		((uint64_t *)m.p)[i] = 0xf0e1d2c3b4a59687;
	for (int i = 1; i < h->nroles; i++)
		h_share(h, i, &m);
	h_sync(h);
	H_GUARDS(m);
}

static uint64_t model(int op, int width, uint64_t old, uint64_t operand, uint64_t compare)
{
	uint64_t mask = width == 4 ? UINT32_MAX : UINT64_MAX, now;

	old &= mask;
	operand &= mask;
	switch (op) {
	case XPORT_ATOMIC_ADD:
		now = old + operand;
		break;
	case XPORT_ATOMIC_AND:
		now = old & operand;
		break;
	case XPORT_ATOMIC_OR:
		now = old | operand;
		break;
	case XPORT_ATOMIC_XOR:
		now = old ^ operand;
		break;
	case XPORT_ATOMIC_SWAP:
		now = operand;
		break;
	default:
		now = old == (compare & mask) ? operand : old;
		break;
	}
	return now & mask;
}

/* Reads back the 24 bytes around the word: the word as modelled, its neighbours as they were. */
static void verify(struct h *h, struct h_mem *l, struct h_rkey *r, uint64_t at, int width, uint64_t want)
{
	uint8_t ref[24];
	uint64_t plain = 0xf0e1d2c3b4a59687;

	for (int i = 0; i < 3; i++)
		memcpy(ref + i * 8, &plain, 8);
	memcpy(ref + 8, &want, (size_t)width);
	H_DONE(h_get(h, h->ep[0], H_AT(*l, 0, 24), r, at - 8));
	H_CHECK(!memcmp(ref, l->p, 24), "word or neighbours wrong, want %" PRIx64, want);
}

static void matrix(struct h *h)
{
	static const uint64_t operands[] = {0, 1, 0xffffffff, UINT64_MAX, 0x8000000080000000, 0x0123456789abcdef};
	struct h_mem l;
	struct h_rkey r;
	int width = (int)h->param;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	for (int op = XPORT_ATOMIC_ADD; op <= XPORT_ATOMIC_CAS; op++) {
		uint64_t at = 64 + 32 * (uint64_t)op, word = model(XPORT_ATOMIC_OR, width, 0xf0e1d2c3b4a59687, 0, 0);

		for (size_t i = 0; i < 24; i++) {
			uint64_t operand = operands[i % 6], compare = i % 2 ? word : operand, result[3] = {7, 7, 7};
			bool fetch = i < 12;

			H_DONE(h_atomic(h, h->ep[0], op, width, operand, compare, fetch ? &result[1] : NULL, &r, at));
			if (fetch)
				H_EQ(word, result[1]); /* of four bytes the upper half stays zero */
			H_TRUE(result[0] == 7 && result[2] == 7);
			word = model(op, width, word, operand, compare);
			verify(h, &l, &r, at, width, word);
		}
	}
	h_sync(h);
}

static void misaligned(struct h *h)
{
	struct h_rkey r;
	struct xport_opt o = {.size = sizeof(o)};
	struct xport_atomic_args a = {.size = sizeof(a), .operand = 1};

	h_mesh(h, NULL);
	r = h_import(h, 0);
	for (a.width = 4; a.width <= 8; a.width += 4)
		for (uint64_t i = 0; i < 64; i++)
			if (i % (uint64_t)a.width) {
				H_STATUS(XPORT_ERR_INVALID, xport_atomic(h->ep[0], &a, r.k, r.offset + i, &o));
			} else {
				H_OK(xport_atomic(h->ep[0], &a, r.k, r.offset + i, &o));
				H_EVENT(XPORT_OP_ATOMIC);
			}
	a.width = 8;
	for (int w = -1; w <= 17; w++) {
		a.width = w;
		if (w != 4 && w != 8)
			H_STATUS(XPORT_ERR_INVALID, xport_atomic(h->ep[0], &a, r.k, r.offset, &o));
	}
	a.width = 8;
	for (a.op = -3; a.op < 20; a.op++)
		if (a.op < XPORT_ATOMIC_ADD || a.op > XPORT_ATOMIC_CAS)
			H_STATUS(XPORT_ERR_INVALID, xport_atomic(h->ep[0], &a, r.k, r.offset, &o));
	h_run_for(h, 10);
	H_EQ(0, h->nqueue);
	h_sync(h);
}

/* A region that itself begins at an odd address: what counts is the word's address. */
static void odd_base_target(struct h *h)
{
	struct h_mem m;
	uint64_t word;

	h_mesh(h, NULL);
	m = h_mem_target(h, 64, 1, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
	memcpy(&word, m.p + 7, 8);
	H_EQ(1, word);
	H_GUARDS(m);
}

static void odd_base(struct h *h)
{
	struct h_rkey r;
	struct xport_opt o = {.size = sizeof(o)};
	struct xport_atomic_args a = {.size = sizeof(a), .width = 8, .operand = 1};

	h_mesh(h, NULL);
	r = h_import(h, 0);
	for (uint64_t i = 0; i < 7; i++)
		H_STATUS(XPORT_ERR_INVALID, xport_atomic(h->ep[0], &a, r.k, r.offset + i, &o));
	H_DONE(h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 1, 0, NULL, &r, 7));
	h_sync(h);
}

/*
 * Three initiators and the target's own thread use one word with one kind of atomic, and nothing gets lost: sums are exact;
 * bits are as their owner left them; a count that compare-and-swap moves on shows each success, and beside it the CPU
 * turns a bit; values that are swapped stay the same ones.
 */
enum { WORD_AT = 64, BITS = 8, BATCH = 64, BATCHES = 32, VALUES = (H_ROLES - 1) * BATCH + 2 };

static int kind_of(const struct h *h)
{
	return (int)h->param / 16;
}

static int width_of(const struct h *h)
{
	return (int)h->param % 16;
}

/* Of four bytes: not at the beginning of eight. */
static uint64_t word_at(int width)
{
	return (uint64_t)(WORD_AT + width);
}

/* One of the bits that belong to a role; of eight bytes in the upper half. */
static uint64_t bit_of(int role, int i, int width)
{
	return UINT64_C(1) << (role * BITS + i + (width == 8 ? 32 : 0));
}

static uint64_t top_bit(int width)
{
	return UINT64_C(1) << (8 * width - 1);
}

/* Sets and clears a bit in turn. */
static int bit_turn(int kind, uint64_t bit, uint64_t n, uint64_t *operand)
{
	bool clear = kind == XPORT_ATOMIC_OR && n % 2;

	*operand = clear ? ~bit : bit;
	return clear ? XPORT_ATOMIC_AND : kind;
}

struct cpu {
	void *word;
	int kind, width;
	atomic_bool begun, stop;
	uint64_t n, value, wrong;
};

static uint64_t word_now(struct cpu *c)
{
	return c->width == 4 ? atomic_load((_Atomic uint32_t *)c->word) : atomic_load((_Atomic uint64_t *)c->word);
}

/* What C11 makes of it; returns what was there. */
static uint64_t on_cpu(struct cpu *c, int op, uint64_t operand)
{
	uint32_t half;
	uint64_t old, now;

	for (;;) {
		half = (uint32_t)(old = word_now(c));
		now = model(op, c->width, old, operand, 0);
		if (c->width == 4 ? atomic_compare_exchange_strong((_Atomic uint32_t *)c->word, &half, (uint32_t)now)
		                  : atomic_compare_exchange_strong((_Atomic uint64_t *)c->word, &old, now))
			return old;
	}
}

/* Without a pause until the others are done: an operation that is not atomic meets one of these. */
static void *beside(void *arg)
{
	struct cpu *c = arg;
	uint64_t bit = c->kind == XPORT_ATOMIC_CAS ? top_bit(c->width) : bit_of(0, 0, c->width), operand;
	int op;

	for (; !atomic_load(&c->stop) || c->n % 2; c->n++, atomic_store(&c->begun, true)) {
		if (c->kind == XPORT_ATOMIC_ADD) {
			on_cpu(c, XPORT_ATOMIC_ADD, 1);
		} else if (c->kind == XPORT_ATOMIC_SWAP) {
			c->value = on_cpu(c, XPORT_ATOMIC_SWAP, c->value);
		} else {
			op = bit_turn(c->kind == XPORT_ATOMIC_CAS ? XPORT_ATOMIC_XOR : c->kind, bit, c->n, &operand);
			c->wrong += (on_cpu(c, op, operand) & bit) != (c->n % 2 ? bit : 0);
		}
	}
	return NULL;
}

/* Each value is there once: in the word, with the CPU, or with one of the initiators. */
static void values_are_there(struct h *h, struct cpu *c)
{
	uint64_t value[BATCH];
	uint8_t seen[VALUES] = {0};

	H_TRUE(word_now(c) < VALUES && c->value < VALUES);
	seen[word_now(c)]++;
	seen[c->value]++;
	for (int k = 1; k < h->nroles; k++) {
		H_EQ(sizeof(value), h_hear(h, k, value, sizeof(value)));
		for (int i = 0; i < BATCH; i++) {
			H_TRUE(value[i] < VALUES);
			seen[value[i]]++;
		}
	}
	H_BYTES(seen, VALUES, 1);
}

static void sum_target(struct h *h)
{
	struct h_mem m;
	struct cpu c = {.kind = kind_of(h), .width = width_of(h), .value = 1};
	uint64_t want = 0;
	pthread_t t;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	c.word = m.p + word_at(c.width);
	for (int i = 1; i < h->nroles; i++)
		h_share(h, i, &m);
	pthread_create(&t, NULL, beside, &c);
	while (!atomic_load(&c.begun))
		h_breathe(h);
	h_sync(h);
	h_sync(h);
	atomic_store(&c.stop, true);
	pthread_join(t, NULL);
	H_CHECK(c.wrong == 0, "%" PRIu64 " of %" PRIu64 " times the CPU's bit was not as it had left it", c.wrong, c.n);
	if (c.kind == XPORT_ATOMIC_SWAP) {
		values_are_there(h, &c);
		return;
	}
	for (int k = 1; k < h->nroles; k++)
		want += h_hear_u64(h, k);
	if (c.kind == XPORT_ATOMIC_CAS)
		H_TRUE(want > 0);
	else if (c.kind == XPORT_ATOMIC_ADD)
		want += c.n;
	H_EQ(model(XPORT_ATOMIC_ADD, c.width, want, 0, 0), word_now(&c));
}

static uint64_t add_up(struct h *h, struct h_rkey *r, int width)
{
	for (int i = 1; i <= ROUNDS; i++) {
		h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, width, 1, 0, NULL, r, word_at(width));
		if (i % BITS == 0) /* in many small bursts: the CPU comes between in the first of each */
			h_settle(h);
	}
	h_settle(h);
	return ROUNDS;
}

static uint64_t turn_bits(struct h *h, struct h_rkey *r, int kind, int width)
{
	uint64_t old[BITS] = {0}, bit, operand;
	int op;

	for (unsigned n = 0; n < ROUNDS / BITS; n++) {
		for (int i = 0; i < BITS; i++) {
			op = bit_turn(kind, bit_of(h->role, i, width), n, &operand);
			h_atomic(h, h->ep[0], op, width, operand, 0, &old[i], r, word_at(width));
		}
		h_settle(h);
		for (int i = 0; i < BITS; i++) {
			bit = bit_of(h->role, i, width);
			H_CHECK((old[i] & bit) == (n % 2 ? bit : 0), "bit %d was not as it was left", i);
		}
	}
	return 0; /* of the word */
}

/* As far as nobody else comes first, and the CPU's bit is not set; it may be for as long as that thread does not run. */
static uint64_t count_on(struct h *h, struct h_rkey *r, int width)
{
	uint64_t old[BITS] = {0}, next = 0, from, won = 0;

	for (int n = 0; n < ROUNDS / BITS || won == 0; n++) {
		from = next;
		for (int i = 0; i < BITS; i++)
			h_atomic(h, h->ep[0], XPORT_ATOMIC_CAS, width, from + (uint64_t)i + 1, from + (uint64_t)i,
			         &old[i], r, word_at(width));
		h_settle(h);
		for (int i = 0; i < BITS; i++) {
			bool well = old[i] == from + (uint64_t)i;
			uint64_t seen = (old[i] & ~top_bit(width)) + well;

			won += well;
			next = seen > next ? seen : next;
		}
	}
	return won;
}

static void swap_around(struct h *h, struct h_rkey *r, int width)
{
	uint64_t value[BATCH], old[BATCH] = {0}; /* of which four bytes are written, or eight */

	for (int i = 0; i < BATCH; i++)
		value[i] = (uint64_t)((h->role - 1) * BATCH + i + 2); /* 0: the word, 1: the CPU */
	for (int n = 0; n < BATCHES; n++) {
		for (int i = 0; i < BATCH; i++)
			h_atomic(h, h->ep[0], XPORT_ATOMIC_SWAP, width, value[i], 0, &old[i], r, word_at(width));
		h_settle(h);
		memcpy(value, old, sizeof(value));
	}
	h_sync(h);
	h_tell(h, 0, value, sizeof(value));
}

static void sum(struct h *h)
{
	int kind = kind_of(h), width = width_of(h);
	struct h_rkey r;
	uint64_t n;

	h_mesh(h, NULL);
	r = h_import(h, 0);
	h_sync(h);
	if (kind == XPORT_ATOMIC_SWAP) {
		swap_around(h, &r, width);
		return;
	}
	n = kind == XPORT_ATOMIC_ADD   ? add_up(h, &r, width)
	    : kind == XPORT_ATOMIC_CAS ? count_on(h, &r, width)
	                               : turn_bits(h, &r, kind, width);
	h_sync(h);
	h_tell_u64(h, 0, n);
}

static const struct h_param sums[] = {
	{"add_32", 16 * XPORT_ATOMIC_ADD + 4},
	{"add_64", 16 * XPORT_ATOMIC_ADD + 8},
	{"xor_32", 16 * XPORT_ATOMIC_XOR + 4},
	{"xor_64", 16 * XPORT_ATOMIC_XOR + 8},
	{"or_and_32", 16 * XPORT_ATOMIC_OR + 4},
	{"or_and_64", 16 * XPORT_ATOMIC_OR + 8},
	{"swap_32", 16 * XPORT_ATOMIC_SWAP + 4},
	{"swap_64", 16 * XPORT_ATOMIC_SWAP + 8},
	{"compare_32", 16 * XPORT_ATOMIC_CAS + 4},
	{"compare_64", 16 * XPORT_ATOMIC_CAS + 8},
	{NULL, 0},
};

/* Tickets drawn by fetch-add from three processes and the target's thread: each number once. */
static void tickets_target(struct h *h)
{
	struct h_mem m;
	uint64_t n = (uint64_t)h->nroles * ROUNDS, ticket[ROUNDS];
	uint8_t *seen = h_buf(h, n);

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	for (int i = 1; i < h->nroles; i++)
		h_share(h, i, &m);
	h_sync(h);
	for (int i = 0; i < ROUNDS; i++) {
		seen[atomic_fetch_add((_Atomic uint64_t *)m.p, 1)]++;
		h_progress(h);
	}
	for (int k = 1; k < h->nroles; k++) {
		H_EQ(sizeof(ticket), h_hear(h, k, ticket, sizeof(ticket)));
		for (int i = 0; i < ROUNDS; i++) {
			H_TRUE(ticket[i] < n);
			seen[ticket[i]]++;
		}
	}
	H_BYTES(seen, n, 1);
}

static void tickets(struct h *h)
{
	struct h_rkey r;
	uint64_t ticket[ROUNDS];

	h_mesh(h, NULL);
	r = h_import(h, 0);
	h_sync(h);
	for (int i = 0; i < ROUNDS; i++) {
		h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 1, 0, &ticket[i], &r, 0);
		if (i % 100 == 99)
			h_settle(h);
	}
	h_settle(h);
	h_tell(h, 0, ticket, sizeof(ticket));
}

/* A lock made of compare-and-swap guards a count that is read and written by get and put. */
static void mutex_user(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	uint64_t old, *count;

	h_mesh(h, NULL);
	l = h_mem_local(h, 64, 0);
	count = (uint64_t *)l.p;
	r = h_import(h, 0);
	h_sync(h);
	for (int i = 0; i < 100; i++) {
		do {
			H_DONE(h_atomic(h, h->ep[0], XPORT_ATOMIC_CAS, 8, (uint64_t)h->role, 0, &old, &r, 0));
		} while (old != 0);
		H_DONE(h_get(h, h->ep[0], H_AT(l, 0, 8), &r, 128));
		++*count;
		H_DONE(h_put(h, h->ep[0], H_AT(l, 0, 8), &r, 128, 0));
		H_DONE(h_atomic(h, h->ep[0], XPORT_ATOMIC_SWAP, 8, 0, 0, &old, &r, 0));
		H_EQ(h->role, old);
	}
	h_sync(h);
}

static void mutex_owner(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	for (int i = 1; i < h->nroles; i++)
		h_share(h, i, &m);
	h_sync(h);
	h_sync(h);
	H_EQ(100 * (h->nroles - 1), *(uint64_t *)(m.p + 128));
	H_EQ(0, *(uint64_t *)m.p);
}

/* A flush covers atomics without result, quiet ones too. */
static void flush_atomics(struct h *h)
{
	struct h_rkey r;
	struct xport_opt o = {.size = sizeof(o), .flags = XPORT_QUIET};
	struct xport_atomic_args a = {.size = sizeof(a), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1};
	int s;

	h_mesh(h, NULL);
	r = h_import(h, 0);
	for (int round = 1; round <= 20; round++) {
		for (int i = 0; i < 50; i++)
			while ((s = xport_atomic(h->ep[0], &a, r.k, r.offset, &o)) != XPORT_OK) {
				H_STATUS(XPORT_ERR_AGAIN, s);
				h_breathe(h);
			}
		H_DONE(h_flush(h, h->ep[0]));
		h_tell_u64(h, 0, (uint64_t)round * 50);
		h_hear_u64(h, 0);
	}
	h_tell_u64(h, 0, 0);
}

static void flush_atomics_target(struct h *h)
{
	struct h_mem m;
	uint64_t want;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	while ((want = h_hear_u64(h, 1)) != 0) {
		H_EQ(want, __atomic_load_n((uint64_t *)m.p, __ATOMIC_ACQUIRE));
		h_tell_u64(h, 1, 1);
	}
}

/* A quiet atomic with a result makes no sense. */
static void quiet_fetch(struct h *h)
{
	struct h_rkey r;
	uint64_t old;
	struct xport_opt o = {.size = sizeof(o), .flags = XPORT_QUIET};
	struct xport_atomic_args a = {
		.size = sizeof(a), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1, .result = &old};

	h_mesh(h, NULL);
	r = h_import(h, 0);
	H_STATUS(XPORT_ERR_INVALID, xport_atomic(h->ep[0], &a, r.k, r.offset, &o));
	h_sync(h);
}

static const struct h_param widths[] = {{"32_bit", 4}, {"64_bit", 8}, {NULL, 0}};

const struct h_scenario cases_p09[] = {
	{.name = "P9_every_kind", .role = {target, matrix}, .params = widths, .flags = H_TARGET},
	{.name = "P9_misaligned_and_nonsense", .role = {target, misaligned}, .flags = H_TARGET},
	{.name = "P9_region_at_odd_address", .role = {odd_base_target, odd_base}, .flags = H_TARGET},
	{.name = "P9_exact_sum", .role = {sum_target, sum, sum, sum}, .params = sums, .flags = H_TARGET},
	{.name = "P9_tickets_are_unique", .role = {tickets_target, tickets, tickets, tickets}, .flags = H_TARGET},
	{.name = "P9_mutex_of_compare_and_swap", .role = {mutex_owner, mutex_user, mutex_user}, .flags = H_TARGET},
	{.name = "P9_flush_covers_atomics", .role = {flush_atomics_target, flush_atomics}, .flags = H_TARGET},
	{.name = "P9_quiet_fetch_is_invalid", .role = {target, quiet_fetch}},
	{.name = NULL},
};
