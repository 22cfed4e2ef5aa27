/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * program.h - a random program for two sides, made from a seed, whose result is the same on every network.
 *
 * It has phases. Before a phase some regions of each side are registered again. In a phase each side posts operations
 * on the regions of the other, sends, and receives; at its end everything is complete. The program avoids what the
 * promises leave open: a fence separates operations of one side on the same bytes, each result has its own place, and
 * the receives are such that every message finds one.
 */
#ifndef DIFF_PROGRAM_H
#define DIFF_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIFF_REGIONS = 4, DIFF_STEPS = 200, DIFF_LOCAL = 1 << 18 };

enum diff_kind { DIFF_PUT, DIFF_NOTIFY, DIFF_GET, DIFF_ATOMIC, DIFF_SEND, DIFF_FENCE, DIFF_FLUSH };

struct diff_step {
	enum diff_kind kind;
	int status;      /* of the call that posts it, or of its completion */
	uint32_t flags;  /* XPORT_LOCAL, XPORT_QUIET */
	int region;      /* of the other side */
	bool old;        /* with the key of the registration before */
	uint64_t offset; /* in the region */
	size_t len;
	size_t at;       /* where its bytes lie: of the local memory (what is sent), of the results (what is got) */
	uint64_t value;  /* notify: value; send: tag; atomic: operand */
	uint64_t compare;
	int op, width;   /* atomic */
	bool fetch;
};

struct diff_receive {
	uint64_t tag, mask;
	size_t at, len; /* of the messages' memory */
	bool any;       /* from any source */
};

struct diff_region {
	size_t len, skew;
	uint32_t rights;
	bool allocated;
	uint64_t content; /* seed of what it is filled with */
	bool renewed;     /* before this phase */
	size_t old_len;   /* of the registration before, whose key is stale; 0: there is none */
	uint32_t old_rights;
};

struct diff_side {
	struct diff_region region[DIFF_REGIONS];
	struct diff_step step[DIFF_STEPS];
	struct diff_receive receive[DIFF_STEPS];
	int nreceives, nnotify; /* what comes from the other side */
	bool late;              /* receives are posted behind all else */
	int local_kind;         /* enum h_kind of its local memory */
	size_t local_skew;
	uint64_t local_content;
	size_t results, messages; /* bytes of memory for them */
};

struct diff_phase {
	int number;
	struct diff_side side[2];
};

/* Where the program stands; `phase` is the one to be run. */
struct diff_program {
	uint64_t random;
	struct diff_phase phase;
};

void diff_begin(struct diff_program *p, uint64_t seed);
/* Makes the next phase, the first included. */
void diff_next(struct diff_program *p);
/* One line about a step; returns buf. */
const char *diff_describe(const struct diff_step *s, char *buf, size_t len);

#endif
