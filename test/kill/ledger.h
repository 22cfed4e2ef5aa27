/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ledger.h - the operations of one life of the victim: each accepted operation must complete exactly once.
 *
 * The context of an operation is its number in the ledger and the number of the life. So a completion that comes after
 * the end of its life is found, too.
 */
#ifndef TEST_KILL_LEDGER_H
#define TEST_KILL_LEDGER_H

#include "conform/harness.h"

enum { LEDGER_ROOM = 1 << 16 };

struct ledger_entry {
	uint8_t type, done;
	int8_t slot;    /* of the buffers, -1: none */
	int8_t side;    /* the owner's */
	int32_t status; /* once it is done */
	uint32_t len;
};

struct ledger {
	uint32_t life;
	uint32_t used, pending;
	uint32_t lost; /* completed as lost */
	struct ledger_entry entry[LEDGER_ROOM];
};

/* Empties it; what belongs to an earlier life is from now on an error. */
void ledger_begin(struct h *h, struct ledger *l);
/* Whether there is room for another one of that side: the first of a life may not take what the one after it needs. */
bool ledger_has_room(const struct ledger *l, int side);
/* An entry to be posted, and its context. */
struct ledger_entry *ledger_new(struct ledger *l, int type, int slot, void **context);
/* The newest was not accepted. */
void ledger_drop(struct ledger *l);
/* Takes a completion; fails the test if it is a second one, of another type, or of an earlier life. */
struct ledger_entry *ledger_take(struct h *h, struct ledger *l, const struct xport_completion *c);

#endif
