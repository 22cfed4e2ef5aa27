/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * side.h - one end of a connection that is under load when its other end dies. It is the poster, which posts the
 * operations of the step, or the server, which has the memory, the receives or the messages for them.
 */
#ifndef TEST_KILL_SIDE_H
#define TEST_KILL_SIDE_H

#include "conform/harness.h"
#include "kill/board.h"
#include "kill/ledger.h"

enum {
	SIDE_SLOTS = 8,          /* operations in flight at a time */
	SIDE_LEN = 64 << 10,     /* the longest of them: more than any eager one */
	SIDE_MEM = SIDE_SLOTS * SIDE_LEN + 4096, /* of a server; the last page is for atomics */
	SIDE_SEED = 1000         /* of the pattern of slot 0 */
};

struct side {
	struct h *h;
	struct kl_board *board;
	struct ledger *ledger;
	struct kl_order order;
	int number; /* in the ledger's entries */
	bool poster, survivor;
	struct h_mem *local; /* SIDE_SLOTS buffers, the process's */
	struct h_mem mem;    /* the server's */
	struct h_rkey key;   /* the poster's */
	unsigned key_seen;   /* kl_board.keys of it */
	bool key_stale;
	bool busy[SIDE_SLOTS];
	uint64_t old[SIDE_SLOTS]; /* results of atomics */
	unsigned posted, well;    /* operations of this side; ended well */
	unsigned turns, replaced;
	xport_ep *ep;
	bool connected, lost;
	int lost_status;
	int64_t lost_us;
};

void side_begin(struct side *s, struct h *h, struct kl_board *board, struct ledger *l, struct h_mem *local,
                bool survivor);
/* Server: makes the region and publishes its key. */
void side_offer(struct side *s);
/* Poster: takes the key that is published. */
void side_take_key(struct side *s);
/* Posts what there is room for, or serves. */
void side_work(struct side *s);
/* Takes a completion of an entry of this side, or an event of its endpoint. */
void side_ended(struct side *s, const struct ledger_entry *e, const struct xport_completion *c);
void side_event(struct side *s, const struct xport_completion *c);
/* After the loss: the endpoint says what it is, and takes nothing. */
void side_is_lost(struct side *s);
/* Gives back what it has. */
void side_end(struct side *s);

#endif
