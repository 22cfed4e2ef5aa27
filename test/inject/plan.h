/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plan.h - plans which call fails in which run: from the calls of a run without failures, and from what each failure
 * led to.
 */
#ifndef TEST_INJECT_PLAN_H
#define TEST_INJECT_PLAN_H

#include "scenarios.h"

enum { BACKENDS_MAX = 16 };

/* What a process leaves behind, in memory shared with it. */
struct left {
	struct inject_run run;
	char text[SCENE_TEXT];
	int fds, threads; /* when all is closed: descriptors more than before */
	int unexpected;
	bool ended;
};

struct one_case {
	const struct scenario *scenario;
	int backend;
	struct inject_step steps[INJECT_STEPS];
	bool baseline, chain; /* chain: the next n follows if this one took place */
};

struct place {
	uintptr_t at;
	int call;
	unsigned made, failed;
	bool paired; /* a case in which it fails behind another failure is waiting */
	unsigned missed; /* cases in which it was to fail, and did not come by */
};

extern struct one_case *cases;
extern size_t ncases;
extern struct place places[INJECT_SITES];
extern int nplaces;
extern const char *backends[BACKENDS_MAX];
extern int nbackends;
extern bool once; /* each place once, by its first error */

struct one_case *add_case(const struct one_case *c);
/* "SCENARIO BACKEND STEP [STEP]". */
void name_case(const struct one_case *c, char *buf, size_t len);
/* False: it is none. */
bool read_step(const char *text, struct inject_step *s);

/* From what a run without failures did. */
void plan(const struct one_case *base, const struct left *l);
/* What this run saw, and what follows from it. */
void learn(const struct one_case *c, const struct left *l);

#endif
