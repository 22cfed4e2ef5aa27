/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport_far.h - memory of many processes as one.  Included by xport_services.h.
 *
 * Each process that takes part makes one xport_far for its instance.  A lender lets others have up to
 * xport_far_attr.lend bytes.  A user allocates blocks.  A block consists of pieces of equal length, each a lease of one
 * lender.  So a block can be longer than what any single process lends.  One process can be lender and user.
 *
 * Lenders are found by a directory, or by any other means: a lender describes itself by an entry (xport_far_entry), and
 * puts it under a name.  A user that has the entry connects to the lender, and calls xport_far_add.
 *
 * Loss.  If a lender is lost, its pieces are lost.  XPORT_FAR_LOST names each range.  The rest of the block stays usable.
 * xport_far_resize replaces lost pieces by zeroed ones of other lenders.  Nothing is kept twice: a program that must
 * not lose bytes writes them to two blocks.
 *
 * The application drives it as it drives xport_leases: by step, timeout and next.  Nothing waits, except
 * xport_far_wait, xport_far_destroy, and deregistrations (see xport_leases.h).  An operation on a block ends with exactly
 * one XPORT_FAR_DONE.  A lender that does not answer ends it when the lender is reported lost (XPORT_PEER_TIMEOUT).
 *
 * Trust.  What a lender says about its size is a claim.  A lender that claims more than it grants is asked once, and left
 * out until the next look.  A lender whose claim is impossible, or that grants something else than was asked for,
 * is never asked again.  A lender can read and change what is stored in its memory.
 *
 * Thread rule.  One thread at a time, for an xport_far and all its blocks, whatever the thread mode of the instance is.
 */
#ifndef XPORT_FAR_H
#define XPORT_FAR_H

#ifndef XPORT_SERVICES_H
#error include xport_services.h
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The far memory of an instance, as its lender and as its user. */
typedef struct xport_far xport_far;
/* Memory in pieces at lenders. */
typedef struct xport_far_block xport_far_block;

enum {
	XPORT_FAR_PIECE_MIN = 4096,  /* bytes */
	XPORT_FAR_PIECES_MAX = 65536 /* of a block */
};

/* Where pieces go: always to lenders that have enough free memory, as far as is known. */
typedef enum xport_far_policy {
	XPORT_FAR_MOST_FREE = 0, /* to the lender with the most free memory */
	XPORT_FAR_NEAREST = 1,   /* to the lender with the shortest round trip */
	XPORT_FAR_SPREAD = 2     /* to the lender with the fewest pieces of this process */
} xport_far_policy;

/* Options of xport_far_create.  NULL instead of the struct: a user that lends nothing. */
struct xport_far_attr {
	size_t size;
	uint64_t tag;        /* of the messages, the same at all processes; default 0x78706f7266617200 */
	uint64_t lend;       /* bytes that others may have at a time; 0: none */
	uint64_t lend_peer;  /* of these, to one peer; 0: all */
	uint64_t piece;      /* bytes of a piece of this process's blocks, a power of 2; default 4 MiB */
	uint32_t max_pieces; /* that one peer may have here; default 65536 */
	xport_pool *pool;    /* source of the memory to lend; NULL: xport_mr_alloc */
};

/*
 * xport_far_create - make the far memory of an instance.
 *
 * It posts receives as xport_leases_create does.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID        x or far is NULL; piece is not a power of 2, or below XPORT_FAR_PIECE_MIN; attr->size is wrong
 *   XPORT_ERR_NO_MEMORY      out of memory
 *   XPORT_ERR_NOT_SUPPORTED  *attr sets an unknown field
 *   another error of xport_leases_create or xport_mr_alloc
 */
int xport_far_create(xport *x, const struct xport_far_attr *attr, xport_far **far) XPORT_CHECK;

/*
 * xport_far_destroy - give up all memory, end what is lent, and free all, the blocks included.
 *
 * It polls until its own operations have ended.  Other completions go to `other`; NULL drops them.  `far` may be NULL.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_TIMEOUT    `timeout_ms` passed: close the endpoints that do not answer, or call again; no other call is
 *                        allowed
 *   another error of xport_leases_destroy
 */
int xport_far_destroy(xport_far *far, xport_completion_fn other, void *arg, int timeout_ms);

/*
 * xport_far_step - take a completion, and continue.
 *
 * Call it with each polled completion, and with NULL when the time of xport_far_timeout has passed.
 *
 * Returns 1 if the completion belongs to the far memory, 0 if it belongs to the application (XPORT_EVENT_LOST and
 * XPORT_EVENT_CLOSED always do), or
 *   XPORT_ERR_INVALID    far is NULL
 */
int xport_far_step(xport_far *far, const struct xport_completion *completion);

/*
 * xport_far_timeout - get the time until xport_far_step must be called with NULL.
 *
 * Returns milliseconds, or -1 if no call is needed before the next completion.
 */
int xport_far_timeout(xport_far *far);

/*
 * xport_far_forget - end what is with an endpoint whose end was not reported by an event.
 *
 * Call it as xport_leases_forget.
 */
void xport_far_forget(xport_far *far, xport_ep *ep);

/*
 * xport_far_entry - describe this process as a lender, for xport_directory_put.
 *
 * The entry stays valid while the lender lives.  Users read the lender's free memory by its key.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; this process lends nothing
 */
int xport_far_entry(xport_far *far, struct xport_directory_entry *entry) XPORT_CHECK;

/*
 * xport_far_add - use the peer of an endpoint as a lender.
 *
 * `entry` comes from the lender's xport_far_entry.  XPORT_FAR_JOINED with `context` follows.  Its status is
 *   XPORT_OK             blocks may be allocated there
 *   XPORT_ERR_PROTOCOL   what the lender claims about its size is impossible
 *   or, if the lender ended, the reason
 *
 * After XPORT_FAR_GONE with XPORT_ERR_STALE_KEY the peer has destroyed its far memory.  Add its next entry on the same endpoint,
 * and otherwise on another one.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BUSY       the peer is a lender already
 *   XPORT_ERR_INVALID    an argument is NULL; the entry is not that of a lender
 *   XPORT_ERR_NO_MEMORY  out of memory
 *   another error of xport_rkey_unpack or xport_get
 */
int xport_far_add(xport_far *far, xport_ep *ep, const struct xport_directory_entry *entry, void *context) XPORT_CHECK;

/* The type of an event. */
typedef enum xport_far_event_type {
	XPORT_FAR_JOINED = 1, /* a lender was added, or could not be, for the reason `status` */
	XPORT_FAR_GONE = 2,   /* a lender has ended, for the reason `status`: see xport_far_add */
	XPORT_FAR_DONE = 3,   /* xport_far_alloc, xport_far_resize or xport_far_move has ended */
	XPORT_FAR_LOST = 4    /* the bytes of a range of a block are lost, for the reason `status` */
} xport_far_event_type;

/* An event. */
struct xport_far_event {
	size_t size;
	int type;                /* enum xport_far_event_type */
	int status;              /* enum xport_status */
	xport_ep *ep;            /* JOINED, GONE: the lender; GONE: only to compare it */
	xport_far_block *block;  /* DONE, LOST */
	uint64_t offset, length; /* LOST: the range; DONE of a move: what was moved */
	void *context;           /* of the lender, or of the block */
};

/*
 * xport_far_next - get the next event.
 *
 * Set event->size before the call.
 *
 * Returns 1, 0 if there is no event, or
 *   XPORT_ERR_INVALID    an argument is NULL; event->size is wrong
 */
int xport_far_next(xport_far *far, struct xport_far_event *event) XPORT_CHECK;

/*
 * xport_far_wait - poll until there is an event, and get it.
 *
 * Other completions go to `other`; NULL drops them.  Set event->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; event->size is wrong; timeout_ms is below -1
 *   XPORT_ERR_TIMEOUT    `timeout_ms` passed
 *   an error of xport_wait
 */
int xport_far_wait(xport_far *far, struct xport_far_event *event, xport_completion_fn other, void *arg,
                   int timeout_ms) XPORT_CHECK;

/* What to allocate.  Fields that are 0 have their default. */
struct xport_far_args {
	size_t size;
	uint64_t length; /* bytes; rounded up to whole pieces */
	uint64_t piece;  /* bytes of a piece, a power of 2; default xport_far_attr.piece, or less for a short block */
	int policy;      /* enum xport_far_policy; also of later calls on the block */
	uint32_t rights; /* enum xport_rights; default XPORT_REMOTE_READ and XPORT_REMOTE_WRITE */
	void *context;
};

/*
 * xport_far_alloc - allocate a block.
 *
 * First it asks all lenders how much is free.  After 200 ms it goes on without those that have not answered, unless the
 * others have too little.  XPORT_FAR_DONE follows.  Its status is
 *   XPORT_OK             the block has zeroed memory
 *   XPORT_ERR_NO_MEMORY  the lenders that answer do not have so much; out of memory
 * After an error the block has length 0.  In any case xport_far_free frees it.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; length is 0, or needs more than XPORT_FAR_PIECES_MAX pieces; another field
 *                        of *args is not allowed
 *   XPORT_ERR_NO_MEMORY  out of memory
 */
int xport_far_alloc(xport_far *far, const struct xport_far_args *args, xport_far_block **block) XPORT_CHECK;

/*
 * xport_far_free - free a block.
 *
 * Operations that use it should have completed.  `block` may be NULL.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BUSY       an operation on the block has not ended: take its XPORT_FAR_DONE first
 */
int xport_far_free(xport_far_block *block);

/*
 * xport_far_resize - make a block longer or shorter, and replace what it has lost.
 *
 * New and replaced pieces are zeroed.  XPORT_FAR_DONE follows, with a status as that of xport_far_alloc.  After an error
 * the block is as before.  Offsets of bytes do not change.  Bytes beyond `length` cannot be accessed meanwhile.  Their
 * pieces are returned at the end, so they are no room for replaced ones, and XPORT_FAR_LOST may name them meanwhile.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BUSY       an operation on the block has not ended
 *   XPORT_ERR_INVALID    block is NULL; length is 0, or needs too many pieces
 *   XPORT_ERR_NO_MEMORY  out of memory
 */
int xport_far_resize(xport_far_block *block, uint64_t length) XPORT_CHECK;

/*
 * xport_far_move - move the pieces of a range to another lender.
 *
 * `ep` is the lender; NULL: others than now, by the policy of the block.  The pieces that have bytes of the range are moved
 * whole, one after another.  Do not access them until XPORT_FAR_DONE.  Its `length` tells how many bytes from the first
 * piece on were moved.  If a lender ends underway, its status is the reason: pieces that were not moved stay where they
 * were.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BOUNDS     the range is not inside the block
 *   XPORT_ERR_BUSY       an operation on the block has not ended
 *   XPORT_ERR_INVALID    block is NULL; length is 0; ep is not a lender
 *   XPORT_ERR_NO_MEMORY  out of memory
 */
int xport_far_move(xport_far_block *block, uint64_t offset, uint64_t length, xport_ep *ep) XPORT_CHECK;

/*
 * xport_far_get, xport_far_put - read or write a range of a block, as xport_get and xport_put.
 *
 * The range must lie in one piece.  Objects whose length is a power of 2 and divides their offset always do.  Use
 * xport_far_locate to divide other ranges.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BOUNDS     the range is not inside the block, or not inside one piece
 *   XPORT_ERR_INVALID    block is NULL
 *   XPORT_ERR_PEER_LOST  the piece was lost
 *   an error of xport_get or xport_put
 */
int xport_far_get(xport_far_block *block, uint64_t offset, void *buf, size_t len,
                  const struct xport_opt *opt) XPORT_CHECK;
int xport_far_put(xport_far_block *block, uint64_t offset, const void *buf, size_t len,
                  const struct xport_opt *opt) XPORT_CHECK;

/* Where a byte of a block is. */
struct xport_far_place {
	size_t size;
	xport_ep *ep;     /* of the lender */
	xport_rkey *rkey; /* for any operation on `ep`, until the next event of the block */
	uint64_t offset;  /* of the byte in the key */
	uint64_t length;  /* bytes from there to the end of the piece, or of the block */
};

/*
 * xport_far_locate - find out where a byte of a block is.
 *
 * Set place->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BOUNDS     the offset is not inside the block
 *   XPORT_ERR_INVALID    an argument is NULL; place->size is wrong
 *   XPORT_ERR_PEER_LOST  the piece was lost
 */
int xport_far_locate(const xport_far_block *block, uint64_t offset, struct xport_far_place *place) XPORT_CHECK;

/*
 * xport_far_look - ask all lenders how much is free.
 *
 * xport_far_info.looking gets 0 when all have answered.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    far is NULL
 */
int xport_far_look(xport_far *far) XPORT_CHECK;

/* The far memory that this process knows, as of the last look. */
struct xport_far_info {
	size_t size;
	uint64_t lenders;  /* that may be used */
	uint64_t looking;  /* lenders that have not answered yet */
	uint64_t capacity; /* bytes that they lend */
	uint64_t free;     /* of these */
	uint64_t blocks;   /* of this process */
	uint64_t bytes;    /* of its pieces */
	uint64_t lost;     /* bytes of its pieces that were lost and not replaced */
	uint64_t lent;     /* bytes that this process lends to others now */
};

/*
 * xport_far_query - get what is known of the far memory.
 *
 * Set info->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; info->size is wrong
 */
int xport_far_query(xport_far *far, struct xport_far_info *info) XPORT_CHECK;

/* A lender, as of the last look. */
struct xport_far_lender_info {
	size_t size;
	int status;             /* XPORT_OK: it is used; otherwise why not */
	uint64_t capacity;      /* bytes that it lends */
	uint64_t free;          /* of these */
	uint64_t bytes;         /* of this process's pieces there */
	uint64_t round_trip_ns; /* the shortest look */
	void *context;
};

/*
 * xport_far_lender - get what is known of the lender at the other end of an endpoint.
 *
 * Set info->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; info->size is wrong; the peer is not a lender
 */
int xport_far_lender(xport_far *far, const xport_ep *ep, struct xport_far_lender_info *info) XPORT_CHECK;

/* A block. */
struct xport_far_block_info {
	size_t size;
	uint64_t length; /* bytes that may be used */
	uint64_t piece;  /* bytes of a piece */
	uint64_t lost;   /* bytes that were lost and not replaced */
	int busy;        /* 1: an operation on the block has not ended */
	int policy;      /* enum xport_far_policy */
	void *context;
};

/*
 * xport_far_block_query - get what is known of a block.
 *
 * Set info->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; info->size is wrong
 */
int xport_far_block_query(const xport_far_block *block, struct xport_far_block_info *info) XPORT_CHECK;

#ifdef __cplusplus
}
#endif

#endif
