/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * far.h - far memory: internals that far.c (the loop, events), far_lender.c (lenders and their state), far_block.c (blocks,
 * placing of pieces, access) and far_move.c share.
 *
 * A piece is a lease, whose context it is. It is in the list of all pieces until its lease has ended, also after its block
 * is gone. A block has an array of its pieces, and one of what an access needs of each.
 *
 * An operation on a block: CLEARING, until returned pieces are free at their lenders; then LOOKING, until all lenders have
 * answered or the time is over; then PLACING, with at most SVC_FAR_ASKS leases asked for at a time. A move asks for one,
 * copies, and goes on to the next. If it fails, pieces of the operation are returned, and it ends when no lease is asked for
 * and no copy is in flight.
 *
 * The state of a lender is read by get: four words, little-endian: magic, bytes that it lends, bytes that are free, and
 * a check of the three, since a get may read some of them before a change and some after it.
 */
#ifndef SVC_FAR_H
#define SVC_FAR_H

#include <stdbool.h>

#include "services/xport_services.h"

enum {
	SVC_FAR_STATE = 32,
	SVC_FAR_ASKS = 16,
	SVC_FAR_LOOK_MS = 200,
	SVC_FAR_TRIES = 100,
	SVC_FAR_CHUNK = 65536,
	SVC_FAR_AGAIN = 3
};

/* A get or put of the library's own, which is its context. */
struct svc_far_own {
	struct svc_far_own *next; /* of those in flight */
	void (*done)(struct svc_far_own *own, int status);
};

struct svc_far_lender {
	struct svc_far_own look; /* first */
	struct svc_far_lender *next;
	struct xport_far *far;
	xport_ep *ep;
	xport_rkey *rkey;
	bool looking, due; /* due: the look is to be posted */
	unsigned tries;    /* of the look: its state was torn */
	int64_t since;     /* of the look, in ns */
	bool known;        /* its state was read once */
	bool joined_event, gone, gone_event;
	int status;
	uint64_t capacity, free, bytes, trip_ns;
	uint64_t pieces; /* held or asked for */
	unsigned moves;  /* that have it as their target */
	void *context;
	uint8_t state[SVC_FAR_STATE];
};

enum svc_far_piece_state { SVC_FAR_ASKED = 1, SVC_FAR_HELD, SVC_FAR_GONE, SVC_FAR_RETURNED };

struct svc_far_piece {
	struct svc_far_piece *next, **at;
	struct xport_far_block *block; /* NULL: returned */
	struct svc_far_lender *lender; /* NULL: gone */
	xport_lease *lease;            /* NULL: it has ended */
	xport_lease *ended;            /* the lease that has ended: its key stays valid until LOST is taken */
	size_t index;
	uint64_t bytes;
	int state;  /* enum svc_far_piece_state */
	int status; /* GONE: why */
	bool fresh; /* of the operation in progress */
	bool told;  /* GONE: by an event */
};

enum svc_far_op { SVC_FAR_NONE = 0, SVC_FAR_ALLOC, SVC_FAR_RESIZE, SVC_FAR_MOVE };
enum svc_far_phase { SVC_FAR_CLEARING = 1, SVC_FAR_LOOKING, SVC_FAR_PLACING };

struct svc_far_slot {
	xport_ep *ep;
	xport_rkey *rkey; /* NULL: there is no memory */
};

struct svc_far_copy {
	struct svc_far_own own; /* first */
	struct xport_far_block *block;
	struct svc_far_piece *to;      /* NULL: not asked for yet, or lost */
	struct svc_far_lender *target; /* NULL: by policy */
	size_t index, last;
	uint64_t at, moved;
	bool writing, flying;
	uint8_t *bytes;
};

struct xport_far_block {
	struct xport_far_block *next, **link;
	struct xport_far *far;
	unsigned shift;
	uint64_t length;
	size_t n, room; /* pieces */
	struct svc_far_slot *slot;
	struct svc_far_piece **piece; /* NULL: to be placed */
	int op, phase, policy;
	int status;    /* of the operation */
	int64_t until; /* CLEARING, LOOKING */
	size_t asked;  /* leases of the operation without an answer */
	size_t before; /* RESIZE, ALLOC: n before it */
	size_t want;   /* RESIZE, ALLOC: n after it; pieces from there on are returned when all others are placed */
	size_t cursor; /* PLACING: pieces before it are placed */
	bool refused;  /* a lender had less than it said: look again, SVC_FAR_AGAIN times */
	int again;
	bool done_event;
	size_t lost_untold;
	uint32_t rights;
	void *context;
	struct svc_far_copy copy;
};

struct xport_far {
	xport *x;
	xport_leases *leases;
	struct xport_far_attr a;
	struct svc_far_lender *lenders;
	struct svc_far_piece *pieces;
	struct xport_far_block *blocks;
	struct svc_far_own *flying;
	uint64_t nblocks, returning; /* returning: pieces */
	unsigned events; /* that nobody has taken */
	unsigned busy;   /* blocks with an operation */
	unsigned due;    /* looks to be posted */
	unsigned ended;  /* lenders that are gone, and not freed */
	bool destroying;
	xport_mr *mr; /* of the state; NULL: it lends nothing */
	uint8_t *state;
};

/* ---- far.c ---- */

/* Notes that an operation of the library's own was posted. */
void svc_far_flies(struct xport_far *f, struct svc_far_own *own);

/* ---- far_lender.c ---- */

/* Writes the state of a lender: SVC_FAR_STATE bytes. */
void svc_far_state_write(uint8_t *to, uint64_t capacity, uint64_t left);
/* Makes the region for the state that others read. */
int svc_far_state_make(struct xport_far *f);
/* Writes the state. */
void svc_far_state_update(struct xport_far *f);
struct svc_far_lender *svc_far_lender_find(const struct xport_far *f, const xport_ep *ep);
/* Whether pieces may be placed there. */
bool svc_far_usable(const struct svc_far_lender *l, uint64_t bytes);
/* The lender by the policy, without `not`; NULL: none has so much. */
struct svc_far_lender *svc_far_choose(const struct xport_far *f, int policy, uint64_t bytes,
                                      const struct svc_far_lender * not );
/* Begins a look at all. */
void svc_far_look_all(struct xport_far *f);
/* Posts what is due. */
void svc_far_look_due(struct xport_far *f);
bool svc_far_looking(const struct xport_far *f);
void svc_far_lender_ended(struct xport_far *f, const xport_ep *ep, int status);
/* Takes an event of a lender; false: no event waits. */
bool svc_far_lender_event(struct xport_far *f, struct xport_far_event *event);
/* Frees those that are gone and that nothing needs any more. */
void svc_far_lenders_sweep(struct xport_far *f);
void svc_far_lenders_free(struct xport_far *f);

/* ---- far_block.c ---- */

/* Asks the lender for the piece; NULL: it could not be asked, or there is no memory. */
struct svc_far_piece *svc_far_ask(struct xport_far_block *b, struct svc_far_lender *l, size_t index);
/* Returns the lease, and forgets the piece. */
void svc_far_return(struct svc_far_piece *p);
void svc_far_granted(struct svc_far_piece *p);
/* The lease has ended. It stays in the piece. */
void svc_far_piece_ended(struct svc_far_piece *p, int status);
/* Frees a piece whose lease has ended, and the lease. */
void svc_far_piece_free(struct svc_far_piece *p);
/* Begins an operation, which is then LOOKING. */
void svc_far_begin(struct xport_far_block *b, int op);
/* The others have too little: whether it looks on, since lenders have not answered yet. */
bool svc_far_look_on(struct xport_far_block *b);
/* Ends it, and has an event. */
void svc_far_done(struct xport_far_block *b, int status);
/* Goes on with it. */
void svc_far_block_move(struct xport_far_block *b, int64_t now);
bool svc_far_block_event(struct xport_far_block *b, struct xport_far_event *event);
void svc_far_block_release(struct xport_far_block *b);

/* ---- far_move.c ---- */

/* Goes on with a move that has looked. */
void svc_far_move_on(struct xport_far_block *b);
/* The piece that it copies to has ended. */
void svc_far_move_ended(struct xport_far_block *b, int status);

#endif
