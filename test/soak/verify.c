/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verify.c - checks byte by byte whether what came is what the plan says.
 *
 * Checked bytes are cleared. At the end of the round all bytes that were used must be clear: another byte was written
 * where nobody may write, or after its operation was complete.
 */
#include <inttypes.h>
#include <string.h>

#include "soak/side.h"

enum { WHOLE_EVERY = 32 };

void soak_blank(uint8_t *at, size_t len)
{
	memset(at, SOAK_BLANK, len);
}

/* Compares, and blanks. */
static void compare(struct soak_side *s, const struct soak_step *t, uint32_t step, const char *of, uint8_t *at,
                    size_t len)
{
	const uint8_t *want = s->region[SOAK_SOURCE].p + t->slice;
	char text[160];
	size_t i = 0;

	if (memcmp(at, want, len) != 0) {
		while (at[i] == want[i])
			i++;
		soak_fail(s, "MISMATCH: %s step %" PRIu32 ", %s: byte %zu of %zu is %#x, must be %#x", of, step,
		          soak_describe(t, text, sizeof(text)), i, len, at[i], want[i]);
	}
	soak_blank(at, len);
}

void soak_verify_puts(struct soak_side *s, uint32_t below)
{
	uint8_t *area = s->region[s->round & 1].p;

	for (; s->now.verified < below; s->now.verified++) {
		const struct soak_step *t = &s->peer.step[s->now.verified];

		if (t->kind == SOAK_PUT || t->kind == SOAK_NOTIFY)
			compare(s, t, s->now.verified, "the peer's", area + t->at, t->len);
	}
}

void soak_verify_received(struct soak_side *s, const struct xport_completion *c)
{
	uint32_t step = (uint32_t)(uintptr_t)c->context - 1;
	const struct soak_step *t = &s->peer.step[step];
	int status = t->room < t->len ? XPORT_ERR_TRUNCATED : XPORT_OK;
	char text[160];

	if (c->tag != soak_tag(s->round, step) || c->length != t->len || c->status != status)
		soak_fail(s, "MISMATCH: the receive of step %" PRIu32 ", %s: tag %#" PRIx64 ", %" PRIu64 " bytes, %s",
		          step, soak_describe(t, text, sizeof(text)), c->tag, c->length, xport_status_name(c->status));
	compare(s, t, step, "the peer's", s->region[s->round & 1].p + t->at, t->room);
	s->now.received++;
	s->count.receives++;
}

static void verify_fetched(struct soak_side *s, const struct soak_step *t, uint32_t step)
{
	uint64_t have = 0, must = s->now.fetched[step], after;
	uint32_t half;
	char text[160];
	bool right;

	if (t->width == 8) {
		memcpy(&have, s->out + t->at, sizeof(have));
	} else {
		memcpy(&half, s->out + t->at, sizeof(half));
		have = half;
	}
	right = have == must;
	if (t->word >=
	    SOAK_STEPS) { /* others add at the same time: between what it was before the round and is after */
		must = s->hot[t->word - SOAK_STEPS];
		after = s->mirror[(s->round & 1) * SOAK_WORDS + t->word];
		right = have - must <= after - must;
	}
	if (!right)
		soak_fail(s, "MISMATCH: step %" PRIu32 ", %s, fetched %#" PRIx64 " instead of %#" PRIx64, step,
		          soak_describe(t, text, sizeof(text)), have, must);
}

void soak_verify_own(struct soak_side *s, const struct xport_completion *c)
{
	uint32_t step = (uint32_t)(uintptr_t)c->context - 1;
	const struct soak_step *t = &s->own.step[step];
	static const uint8_t type[] = {XPORT_OP_PUT,  XPORT_OP_PUT_NOTIFY, XPORT_OP_GET,
	                               XPORT_OP_SEND, XPORT_OP_ATOMIC,     XPORT_OP_FLUSH};

	if (step >= s->own.n || c->type != type[t->kind] || (t->kind <= SOAK_SEND && c->length != t->len))
		soak_fail(s, "MISMATCH: a completion of type %" PRIu32 ", %" PRIu64 " bytes, for step %" PRIu32,
		          c->type, c->length, step);
	if (t->kind == SOAK_GET)
		compare(s, t, step, "our", s->out + t->at, t->len);
	else if (t->fetch)
		verify_fetched(s, t, step);
	/* The buffer is ours again: nobody looks at it any more. */
	soak_blank(s->out + t->at, t->len);
}

static void verify_words(struct soak_side *s)
{
	uint64_t *words = s->words + (s->round & 1) * SOAK_WORDS, *model = s->model + (s->round & 1) * SOAK_WORDS;
	int i = 0;

	if (memcmp(words, model, SOAK_WORDS * sizeof(*words)) == 0)
		return;
	while (words[i] == model[i])
		i++;
	soak_fail(s, "MISMATCH: word %d is %#" PRIx64 ", must be %#" PRIx64, i, words[i], model[i]);
}

static void verify_blank(struct soak_side *s, const char *what, const uint8_t *at, size_t len)
{
	size_t i = 0;

	if (at[0] == SOAK_BLANK && memcmp(at, at + 1, len - 1) == 0)
		return;
	while (at[i] == SOAK_BLANK)
		i++;
	soak_fail(s, "MISMATCH: in %s byte %zu is %#x: nobody may write there", what, i, at[i]);
}

/* The buffers of quiet operations are ours since the flush. */
static void blank_quiet(struct soak_side *s)
{
	for (uint32_t i = 0; i < s->own.n; i++)
		if (s->own.step[i].flags & XPORT_QUIET)
			soak_blank(s->out + s->own.step[i].at, s->own.step[i].len);
}

void soak_verify_round(struct soak_side *s)
{
	bool whole = s->round % (2 * WHOLE_EVERY) < 2;

	soak_verify_puts(s, s->peer.n);
	verify_words(s);
	blank_quiet(s);
	verify_blank(s, "the memory that the peer puts into", s->region[s->round & 1].p,
	             whole ? SOAK_AREA : s->peer.used);
	verify_blank(s, "our own buffers", s->out, whole ? SOAK_AREA : s->own.used);
}
