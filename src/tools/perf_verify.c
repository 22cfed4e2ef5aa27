/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_verify.c - test data with a pattern: each word of a slot depends on the run, the sending side, the slot and the
 * position in it. So missing, old or shifted bytes are detected, and those of another slot.
 */
#include <string.h>

#include "tools/perf_stream.h"

/* The finalizer of SplitMix64: neighbouring numbers become unlike ones. */
static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static uint64_t origin(const struct perf_stream *l, bool of_initiator, uint32_t slot)
{
	return mix(mix(l->run.seed * 2 + of_initiator) + slot + ((uint64_t)l->index << 32));
}

static uint64_t word_of(uint64_t origin, uint64_t n)
{
	return mix(origin + n * UINT64_C(0x9e3779b97f4a7c15));
}

static void verify_fill(uint8_t *at, uint64_t size, uint64_t from)
{
	uint64_t words = size / 8, tail;

	for (uint64_t i = 0; i < words; i++) {
		uint64_t w = word_of(from, i);

		memcpy(at + i * 8, &w, 8);
	}
	tail = word_of(from, words);
	memcpy(at + words * 8, &tail, size % 8);
}

/* Where the first wrong byte is; `size`: nowhere. */
static uint64_t first_wrong(const uint8_t *at, uint64_t size, uint64_t from)
{
	uint8_t want[8];

	for (uint64_t i = 0; i < size; i += 8) {
		uint64_t w = word_of(from, i / 8), n = size - i < 8 ? size - i : 8;

		memcpy(want, &w, sizeof(want));
		for (uint64_t k = 0; memcmp(at + i, want, n) != 0 && k < n; k++)
			if (at[i + k] != want[k])
				return i + k;
	}
	return size;
}

uint64_t perf_verify_operand(const struct perf_stream *l, uint32_t slot)
{
	uint64_t w = l->run.test->op == XPORT_ATOMIC_SWAP ? word_of(origin(l, true, slot), 1) : slot + 1;

	return l->run.size == 4 ? (uint32_t)w : w;
}

/* What the target of an atomic has at first. */
static uint64_t first_word(const struct perf_stream *l, uint32_t slot)
{
	/* A compare-and-swap counts up from nothing. */
	uint64_t w = l->run.test->op == XPORT_ATOMIC_CAS ? 0 : word_of(origin(l, false, slot), 0);

	return l->run.size == 4 ? (uint32_t)w : w;
}

void perf_verify_slot(const struct perf_stream *l, uint8_t *at, uint32_t slot)
{
	verify_fill(at, l->run.size, origin(l, l->initiator, slot));
}

void perf_verify_fill(struct perf_stream *l)
{
	uint32_t slots = l->run.slots * (uint32_t)l->npeers;

	memset(l->in, 0, slots * l->run.stride);
	for (uint32_t i = 0; i < slots; i++) {
		uint8_t *out = l->out + i * l->run.stride, *in = l->in + i * l->run.stride;
		uint64_t w = l->run.test->atomic ? first_word(l, i) : 0;

		perf_verify_slot(l, out, i);
		if (l->run.test->atomic)
			memcpy(in, &w, l->run.size);
	}
	/* For tests: what a broken network would do. */
	if (l->run.plant && l->initiator != l->run.test->gets)
		l->out[l->run.size / 2] ^= 0x40;
}

/* ---- checking ---- */

static uint64_t verify_load(const uint8_t *at, uint64_t size)
{
	uint64_t w = 0;

	memcpy(&w, at, size);
	return w;
}

/* After n operations on it. */
static bool word_right(const struct perf_stream *l, uint32_t slot, uint64_t n, uint64_t have)
{
	uint64_t was = first_word(l, slot), by = perf_verify_operand(l, slot);
	uint64_t mask = l->run.size == 4 ? UINT32_MAX : UINT64_MAX;

	switch (l->run.test->op) {
	case XPORT_ATOMIC_ADD:
		return have == ((was + n * by) & mask);
	case XPORT_ATOMIC_SWAP:
		return have == (n > 0 ? by : was);
	default:
		/* One counts from i to i + 1 where it is the i-th that arrives; later ones may overtake. */
		return n <= 1 ? have == n : have >= 1 && have <= n;
	}
}

static bool slot_right(struct perf_stream *l, const uint8_t *at, uint32_t from, uint64_t n)
{
	/* The last byte of a ping-pong by memory has been seen already: it counts. */
	bool counts =
		l->run.latency && l->run.test->puts && l->run.test->timing == PERF_HALF_TRIP && !l->run.test->notifies;
	uint64_t size = counts ? l->run.size - 1 : l->run.size, wrong, have;

	if (l->run.test->atomic) {
		have = verify_load(at, l->run.size);
		return word_right(l, from, n, have) ||
		       perf_stream_fail(l,
		                        "WRONG DATA: after %llu times %s of %#llx the word of slot %u, %#llx at first, "
		                        "is %#llx",
		                        (unsigned long long)n, l->run.test->name,
		                        (unsigned long long)perf_verify_operand(l, from), from,
		                        (unsigned long long)first_word(l, from), (unsigned long long)have);
	}
	wrong = first_wrong(at, size, origin(l, !l->initiator, from));
	return wrong == size || perf_stream_fail(l,
	                                         "WRONG DATA: %s of %llu bytes, thread %d, slot %u: the byte at %llu "
	                                         "is %#x, and that was not sent",
	                                         l->run.test->name, (unsigned long long)l->run.size, l->index, from,
	                                         (unsigned long long)wrong, at[wrong]);
}

/* Messages lie where a receive was posted, not where they came from. */
static bool messages_right(struct perf_stream *l)
{
	uint32_t slots = l->run.slots * (uint32_t)l->npeers;

	for (uint32_t i = 0; i < l->nreceives; i++) {
		const struct perf_posted *p = &l->receives[i];

		if (!p->filled)
			continue;
		if (p->from >= slots)
			return perf_stream_fail(
				l, "WRONG DATA: a message has the tag %#llx, and no message with it was sent",
				(unsigned long long)p->from);
		if (!slot_right(l, l->in + (uint64_t)p->buffer * l->run.stride, (uint32_t)p->from, 1))
			return false;
	}
	return true;
}

/* How often the s-th of an endpoint's slots was used by n operations. */
static uint64_t uses(const struct perf_stream *l, uint64_t n, uint32_t s)
{
	return n / l->run.slots + (s < n % l->run.slots);
}

bool perf_verify_arrived(struct perf_stream *l, const uint64_t *theirs)
{
	if (l->run.test->messages)
		return messages_right(l);
	for (int i = 0; i < l->npeers; i++) {
		for (uint32_t s = 0; s < l->run.slots; s++) {
			uint32_t slot = l->peers[i].first + s;
			uint64_t n = uses(l, theirs[i], s);

			if (n > 0 && !slot_right(l, l->in + slot * l->run.stride, slot, n))
				return false;
		}
	}
	return true;
}

/* Where a slot was used once, an atomic must have fetched what was there at first. */
static bool fetched_right(struct perf_stream *l, uint32_t slot)
{
	uint64_t have = verify_load(l->out + slot * l->run.stride, l->run.size), want = first_word(l, slot);

	return have == want ||
	       perf_stream_fail(l, "WRONG DATA: %s of slot %u fetched %#llx instead of %#llx", l->run.test->name, slot,
	                        (unsigned long long)have, (unsigned long long)want);
}

bool perf_verify_fetched(struct perf_stream *l)
{
	uint64_t mine[PERF_ENDPOINTS];

	for (int i = 0; i < l->npeers; i++)
		mine[i] = l->peers[i].posted;
	if (l->run.test->gets)
		return perf_verify_arrived(l, mine);
	for (int i = 0; l->run.test->fetches && i < l->npeers; i++)
		for (uint32_t s = 0; s < l->run.slots; s++)
			if (uses(l, mine[i], s) == 1 && !fetched_right(l, l->peers[i].first + s))
				return false;
	return true;
}
