/* SPDX-License-Identifier: BSD-3-Clause */
/* actor.h - a process of a crew that has sides: it makes progress for them and passes completions on. */
#ifndef TEST_KILL_ACTOR_H
#define TEST_KILL_ACTOR_H

#include "side.h"

struct actor {
	struct h *h;
	struct kl_board *board;
	struct ledger *ledger;
	struct h_mem local[2]; /* of each side */
	struct side side[2];
	int nsides;
	bool patient;    /* sleeps while it waits for the loss */
	bool restless;   /* never sleeps: others are measured */
	uint64_t strays; /* events of endpoints that no side has */
};

extern struct kl_board *kl_board; /* of the crew that this process belongs to */

void actor_begin(struct actor *a, struct h *h);
/* The next side, for what is ordered now. */
struct side *actor_side(struct actor *a, bool survivor);
/* Works, makes progress, hands out.  `patient`: sleeps on the fd if there was nothing to do. */
void actor_turn(struct actor *a, bool patient);
/* Turns until then. */
void actor_run(struct actor *a, int64_t us);
/* Turns until each side that had an endpoint is lost and every operation has completed; fails at `limit_us`. */
void actor_settle(struct actor *a, int64_t limit_us, const char *what);
/* Opens with the crew's timeout. */
void actor_open(struct actor *a);

/* The roles of a crew, in the order of crew.c. */
enum kl_role { KL_VICTIM, KL_SURVIVOR, KL_THIRD };
void kl_victim(struct h *h);
void kl_survivor(struct h *h);
void kl_third(struct h *h);

/* The peer timeout of a crew; within how many microseconds a way should be noticed, and must be on a busy machine. */
int kl_timeout_ms(const struct kl_board *b);
int64_t kl_promised_us(const struct kl_board *b, enum kl_way way);
int64_t kl_limit_us(const struct kl_board *b, enum kl_way way);

#endif
