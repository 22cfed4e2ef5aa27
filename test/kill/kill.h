/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kill.h - a cell of the kill and stop matrix.
 *
 * For each provider there are two crews (crew.h): a survivor, a healthy third peer, and a victim that is started again
 * after each death. The survivor lives through all cells of its crew, so leftovers of a death add up.
 */
#ifndef TEST_KILL_H
#define TEST_KILL_H

#include <stdbool.h>
#include <stdint.h>

#include "conform/scenario.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the victim goes. */
enum kl_way {
	KL_KILLED,    /* SIGKILL, by the survivor or by itself */
	KL_EXITED,    /* exit or _exit without closing anything */
	KL_ABORTED,   /* SIGABRT */
	KL_FORKED,    /* SIGKILL, and a forked child lives on with all its sockets */
	KL_RESTARTED, /* SIGKILL, and at once there is another one at its address */
	KL_SHUT,      /* it lives; its control socket is shut */
	KL_STOPPED,   /* SIGSTOP, for longer than the peer timeout */
	KL_CUT,       /* it lives; nothing passes from or to its ports any more */
	KL_WAYS
};

/* What is under way then. */
enum kl_step {
	KL_IDLE,
	KL_CONNECTING,
	KL_ACCEPTING,
	KL_PUT,
	KL_GET,
	KL_NOTIFY,
	KL_EAGER,
	KL_RENDEZVOUS,
	KL_RECEIVE,
	KL_FLUSH,
	KL_ATOMIC,
	KL_KEY,
	KL_DEREG,
	KL_STEPS,
	KL_AFTER = KL_STEPS /* not a step: what is left once the crew has been through all of its cells */
};

/* What the victim is: the one that serves, to which the survivor connected and posts, or the one that posts. */
enum kl_part { KL_TARGET, KL_ORIGIN, KL_PARTS };

extern const char *const kl_way_names[KL_WAYS], *const kl_step_names[KL_STEPS + 1], *const kl_part_names[KL_PARTS];

/* Whether the peer's end shows only by silence. */
bool kl_is_silent(enum kl_way way);
/* Whether the victim's process lives on, and must itself find its peer lost. */
bool kl_lives_on(enum kl_way way);

enum kl_state { KL_WAITING, KL_PASSED, KL_FAILED, KL_SKIPPED };

struct kl_cell {
	enum kl_way way;
	enum kl_step step;
	enum kl_part part;
	int rounds;       /* 0: not asked for */
	int state;        /* enum kl_state; only by the two functions below */
	char text[8 * 1024];
};

enum kl_state kl_cell_state(const struct kl_cell *cell);
/* `text`: why it failed or was skipped. */
void kl_cell_judge(struct kl_cell *cell, enum kl_state state, const char *text);

struct kl_board;

#ifdef __cplusplus
}
#endif

#endif
