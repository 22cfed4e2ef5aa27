/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scenarios.h - the activity during which a call fails. A scenario does all it can, accepts any documented error, and
 * releases everything at the end. It reports what must not happen.
 */
#ifndef TEST_INJECT_SCENARIOS_H
#define TEST_INJECT_SCENARIOS_H

#include <stdbool.h>
#include <stdint.h>

#include "inject.h"
#include "xport.h"

enum { SCENE_OPS = 128, SCENE_TEXT = 2048 };

/* An operation, and how it ended. */
struct scene_op {
	uint32_t type;
	int side, accepted, done;
	int status;
	bool quiet;
};

/* Two instances in one thread, or with threads of their own, and what is between them. */
struct scene {
	const char *backend;
	bool threads;
	const char *progress; /* XPORT_PROGRESS */
	xport *x[2]; /* 0 listens */
	struct xport_info info[2];
	xport_listener *listener;
	xport_ep *ep[2];
	xport_mr *source[2], *sink[2]; /* what is sent from, and received into; NULL: no regions */
	bool up[2], ended[2]; /* connected; lost or closed */
	bool answered, told;  /* side 0 sent data with its acceptance; side 1 has them */
	struct scene_op ops[SCENE_OPS];
	int nops;
	uint64_t notified;
	bool ending;
	int unexpected; /* steps that did not succeed, before it began to end */
	char *text;     /* what must not be */
	/* Takes what is not the scene's: true if it was. */
	bool (*own)(struct scene *s, int side, const struct xport_completion *c);
};

struct scenario {
	const char *name;
	void (*before)(struct scene *s); /* while nothing fails yet, or NULL */
	void (*run)(struct scene *s);
	bool threads, once;   /* once: does not depend on the back end */
};

/* Ended by a NULL name. */
extern const struct scenario scenarios[];

/* Notes that something is not as it must be; the first one counts. */
void scene_bad(struct scene *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
