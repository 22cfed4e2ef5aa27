/* SPDX-License-Identifier: BSD-3-Clause */
#include "soak/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "xport.h"

/* The finalizer of SplitMix64. */
static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static uint64_t draw(uint64_t *random)
{
	return mix(*random += UINT64_C(0x9e3779b97f4a7c15));
}

static uint32_t below(uint64_t *random, uint32_t n)
{
	return (uint32_t)((draw(random) >> 32) * n >> 32);
}

void soak_pattern(uint8_t *at, uint64_t seed)
{
	uint64_t random = ~seed, w;

	for (size_t i = 0; i < SOAK_PATTERN; i += sizeof(w)) {
		w = draw(&random);
		memcpy(at + i, &w, sizeof(w));
	}
	for (size_t i = 0; i < SOAK_PATTERN; i++)
		at[i] += at[i] == SOAK_BLANK;
}

/* Each power of two up to 2^bits is as likely as the next, and so is 0. */
static uint32_t size_up_to(uint64_t *random, uint32_t bits)
{
	uint32_t b = below(random, bits + 2);

	return b == 0 ? 0 : b == bits + 1 ? 1U << bits : (1U << (b - 1)) + below(random, 1U << (b - 1));
}

/* Mostly small, so that there are many: some 230 bytes on average. */
static uint32_t size_of(uint64_t *random)
{
	uint32_t r = below(random, 16384);

	return size_up_to(random, r == 0 ? 24 : r < 17 ? 20 : r < 145 ? 16 : 8);
}

static uint8_t kind_of(uint64_t *random)
{
	static const uint16_t share[] = {[SOAK_PUT] = 420,  [SOAK_NOTIFY] = 80,  [SOAK_GET] = 180,
	                                 [SOAK_SEND] = 170, [SOAK_ATOMIC] = 140, [SOAK_FLUSH] = 10};
	uint32_t r = below(random, 1000);
	uint8_t kind = 0;

	while (r >= share[kind])
		r -= share[kind++];
	return kind;
}

/* A word of its own, or one of those that everybody adds to. */
static void make_atomic(struct soak_step *s, uint64_t *random, uint32_t own_word)
{
	uint32_t r = below(random, 256);
	bool hot = r < 32;

	s->width = hot || (r & 1) ? 8 : 4;
	s->op = hot ? XPORT_ATOMIC_ADD : (uint8_t)below(random, XPORT_ATOMIC_CAS + 1);
	s->word = hot ? SOAK_STEPS + below(random, SOAK_HOT) : own_word;
	s->operand = hot ? below(random, 1 << 20) : draw(random);
	s->compare = (r & 2) ? 0 : draw(random);
	if (s->width == 4) {
		s->operand &= UINT32_MAX;
		s->compare &= UINT32_MAX;
	}
	s->fetch = (r & 4) != 0;
	s->len = s->fetch ? s->width : 0;
	s->flags = !s->fetch && (r & 8) ? XPORT_QUIET : 0;
}

static void make_step(struct soak_plan *p, struct soak_step *s, uint64_t *random)
{
	uint32_t r = below(random, 1 << 16);

	memset(s, 0, sizeof(*s));
	s->kind = kind_of(random);
	s->registered = r & 1;
	if (s->kind == SOAK_ATOMIC)
		make_atomic(s, random, p->n);
	else if (s->kind != SOAK_FLUSH)
		s->len = size_of(random);
	if (p->used + s->len > SOAK_AREA - SOAK_STEPS * 3 * SOAK_GAP && s->len > 8)
		s->len = 8;
	s->at = (uint32_t)p->used + SOAK_GAP + (r >> 1 & 15);
	p->used = s->at + s->len;
	s->slice = below(random, SOAK_PATTERN - s->len);
	if (s->kind == SOAK_PUT)
		s->flags = (r >> 5 & 3) == 0 ? XPORT_QUIET : (r >> 5 & 3) == 1 ? XPORT_LOCAL : 0;
	if (s->kind == SOAK_NOTIFY) {
		s->flags = (r >> 5 & 3) == 0 ? XPORT_QUIET : 0;
		p->notifications++;
	}
	if (s->kind == SOAK_SEND) {
		s->exact = r >> 5 & 1;
		s->any = r >> 6 & 1;
		s->room = (r >> 7 & 15) == 0 ? below(random, s->len + 1) : s->len;
		p->receives++;
	}
}

void soak_plan(struct soak_plan *p, uint64_t seed, uint64_t round, int side, uint32_t window)
{
	uint64_t random = mix(seed) ^ mix(round * 2 + (uint64_t)side + 1);
	uint32_t r = below(&random, 1 << 16), n;

	p->round = round;
	p->used = 0;
	p->notifications = p->receives = 0;
	p->late = (r & 3) == 0;
	p->renew_in = (r >> 2 & 31) == 0;
	p->renew_out = (r >> 7 & 31) == 0;
	/* Some rounds are short. */
	n = (r >> 12 & 7) == 0 ? 1 + below(&random, window / 16 + 1) : window;
	for (p->n = 0; p->n < n; p->n++)
		make_step(p, &p->step[p->n], &random);
	p->used += SOAK_GAP;
}

static uint64_t changed(const struct soak_step *s, uint64_t old)
{
	switch (s->op) {
	case XPORT_ATOMIC_ADD:
		return old + s->operand;
	case XPORT_ATOMIC_AND:
		return old & s->operand;
	case XPORT_ATOMIC_OR:
		return old | s->operand;
	case XPORT_ATOMIC_XOR:
		return old ^ s->operand;
	case XPORT_ATOMIC_SWAP:
		return s->operand;
	default:
		return old == s->compare ? s->operand : old;
	}
}

uint64_t soak_apply(const struct soak_step *s, uint64_t *word)
{
	uint64_t old = *word;
	uint32_t half;

	if (s->width == 8) {
		*word = changed(s, old);
		return old;
	}
	memcpy(&half, word, sizeof(half)); /* at the word's address, whatever the order of bytes */
	old = half;
	half = (uint32_t)changed(s, old);
	memcpy(word, &half, sizeof(half));
	return old;
}

const char *soak_describe(const struct soak_step *s, char *buf, size_t len)
{
	static const char *const name[] = {"put", "put_notify", "get", "send", "atomic", "flush"};

	snprintf(buf, len, "%s of %" PRIu32 " bytes at %" PRIu32 ", flags %d%s, op %d, width %d, word %" PRIu32,
	         name[s->kind], s->len, s->at, s->flags, s->registered ? ", registered" : "", s->op, s->width, s->word);
	return buf;
}
