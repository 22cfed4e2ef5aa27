/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plan.h - what one side does in one round, made only from the seed, the round and the side.
 *
 * Both sides make both plans, so each knows what must arrive. A round does not depend on earlier rounds: it can be run
 * again alone. Each step has its own bytes, with a gap on either side, at the same offset in the source and in the
 * destination. Its data is a slice of one pattern, which both sides have.
 */
#ifndef SOAK_PLAN_H
#define SOAK_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SOAK_STEPS = 4096,      /* at most, of one side in one round */
	SOAK_LARGEST = 1 << 24, /* bytes of a step */
	SOAK_PATTERN = SOAK_LARGEST + (1 << 16),
	SOAK_AREA = SOAK_LARGEST + (4 << 20),
	SOAK_HOT = 8, /* words that everybody adds to */
	SOAK_WORDS = SOAK_STEPS + SOAK_HOT,
	SOAK_GAP = 16,  /* at least */
	SOAK_BLANK = 0xa5 /* what lies where nothing was written; the pattern does not have it */
};

enum soak_kind { SOAK_PUT, SOAK_NOTIFY, SOAK_GET, SOAK_SEND, SOAK_ATOMIC, SOAK_FLUSH };

struct soak_step {
	uint8_t kind, flags, op, width;
	bool fetch, registered; /* atomic: the old value is wanted; the buffer's region is named */
	bool exact, any;        /* send: its receive has the whole tag; is for any source */
	uint32_t at, len, slice;
	uint32_t room; /* send: of its receive */
	uint32_t word;
	uint64_t operand, compare;
};

struct soak_plan {
	uint64_t round;
	uint32_t n, notifications, receives;
	size_t used; /* bytes of the area */
	bool late;   /* half of the receives are posted behind all else */
	bool renew_in, renew_out; /* after the round, this side's memory is registered anew */
	struct soak_step step[SOAK_STEPS];
};

void soak_plan(struct soak_plan *p, uint64_t seed, uint64_t round, int side, uint32_t window);
/* The pattern, SOAK_PATTERN bytes. */
void soak_pattern(uint8_t *at, uint64_t seed);
/* Does the step's atomic to a word in plain memory; returns the old value. */
uint64_t soak_apply(const struct soak_step *s, uint64_t *word);
const char *soak_describe(const struct soak_step *s, char *buf, size_t len);

#endif
