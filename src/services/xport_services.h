/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport_services.h - what programs need around put, get and send: a pool of registered memory, a cache of
 * registrations, batches of operations, objects that are read without tearing, and memory that is lent between processes.
 * A library of its own, libxport_services, on xport.h alone.
 *
 * This header is its whole interface and its manual.  Sizes and offsets are in bytes.  Parameter structs begin with
 * `size`, as those of xport.h do: set it to sizeof the struct and zero the rest; a zero field means the default.  They may
 * grow at the end (doc/abi.md), but for struct xport_directory_entry.
 *
 * Error rule.  Functions that can fail return a negative xport_status; xport_services_last_error tells what, why, and
 * what to do.  What libxport itself refused is passed on with its own text.
 *
 * Life rule.  An object made for an instance is destroyed before that is closed.
 *
 * Fork rule.  As xport.h: a forked child calls nothing of it.
 */
#ifndef XPORT_SERVICES_H
#define XPORT_SERVICES_H

#include <xport.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Copies the calling thread's last failure in this library.  `operation` names the function, `text` and `hint` say what
 * went wrong and what to do about it.  Returns XPORT_OK; INVALID if `error` is NULL or of a wrong size.
 */
int xport_services_last_error(struct xport_error *error);

/* ---- Pool --------------------------------------------------------------------------------------------------- */

/*
 * Registered memory in pieces.  Registering costs microseconds to milliseconds; the pool registers large slabs, and
 * hands out blocks of them in some tens of instructions.  A slab has one key for all its blocks: pack it once
 * (xport_rkey_pack of xport_block.mr), and tell the peer an offset for each block.  So a peer with that key reaches all
 * blocks of the slab: peers that trust each other less get pools of their own.
 *
 * Thread rule.  Any thread may allocate and free, also a block of another thread's, and threads may come and go.  The
 * pool calls the instance to register and deregister alone: in xport_pool_create, _reserve, _trim and _destroy, and in
 * xport_pool_alloc when it grows.  The first four follow the thread rule of the instance.  On an instance that locks
 * (XPORT_THREAD_MULTIPLE, or the progress thread) every thread's allocation lets it grow; on any other those of the
 * thread that created it, while the others live on what is reserved.
 *
 * Operations in flight.  Memory that an operation uses must not be handed out again before its completion.  Either free
 * a block when its last operation has completed; or hold it once for each operation (xport_pool_hold before the post,
 * xport_pool_release at the completion), and free it at any time: it then waits in quarantine for the last
 * release.  Every accepted operation completes, whatever happens to the peer, so quarantine always ends.  An
 * XPORT_QUIET operation's release is at the completion of the next xport_flush.  What peers do to a block by its key
 * the pool cannot see.
 */
typedef struct xport_pool xport_pool;

typedef enum xport_pool_flags {
	XPORT_POOL_HUGE =
		1, /* slabs on huge pages, where the system has them and peers' access does not get slower by it;
	                        xport_pool_info.huge tells */
	XPORT_POOL_LOCK = 2, /* lock the slabs in memory also where the network does not */
	XPORT_POOL_DEBUG =
		4 /* find mistakes, slowly: freed memory is filled and looked at before it is handed out again, and
	                        so are the bytes past the end of a block when it is freed */
} xport_pool_flags;

enum {
	XPORT_POOL_NODE_ANY = 0,   /* xport_pool_attr.node: left to the system; n + 1 means node n */
	XPORT_POOL_NODE_LOCAL = -1 /* the node of the processor that the creating thread runs on */
};

/* How to make a pool.  NULL instead of it: all defaults. */
struct xport_pool_attr {
	size_t size;
	uint32_t rights;    /* of the slabs: enum xport_rights; 0: buffers of this process only */
	uint32_t flags;     /* enum xport_pool_flags */
	size_t slab_bytes;  /* registered at a time; default 4 MiB, at least 1 MiB, a multiple of 2 MiB if huge */
	size_t max_bytes;   /* most that is registered; 0: no limit */
	size_t cache_bytes; /* most that a thread keeps of each size, but 4 blocks in any case; default 256 KiB */
	int node;           /* NUMA node plus 1, or XPORT_POOL_NODE_ANY, XPORT_POOL_NODE_LOCAL */
};

/* A piece of registered memory: `address` is `offset` bytes into the region `mr`. */
struct xport_block {
	void *address;
	xport_mr *mr;
	uint64_t offset;
	uint64_t length; /* what may be used: at least what was asked for */
};

/*
 * Makes a pool, without memory yet.  *pool is set on success only.  Errors: INVALID, NO_MEMORY, NOT_SUPPORTED (a NUMA
 * node that is not there, or a build without libnuma).
 */
int xport_pool_create(xport *x, const struct xport_pool_attr *attr, xport_pool **pool) XPORT_CHECK;

/*
 * Deregisters and frees all memory, also blocks that are not freed, and their threads' caches.  No thread may be in a
 * call on the pool, or be ending if it used it.  BUSY: a posted receive uses a slab: cancel it, then call again, and
 * nothing but this.  NULL is allowed.
 */
int xport_pool_destroy(xport_pool *pool);

/* Registers slabs until at least `bytes` are free in them.  Errors as xport_pool_alloc. */
int xport_pool_reserve(xport_pool *pool, size_t bytes) XPORT_CHECK;

/* Deregisters the slabs none of whose blocks is in use or in a thread's cache, the calling thread's given back first.
 * Returns how many, or BUSY as xport_pool_destroy. */
int xport_pool_trim(xport_pool *pool);

/*
 * Hands a region of the caller's to the pool as a slab, whole.  The pool hands it out in pieces, and never deregisters
 * it; it must stay registered until xport_pool_destroy.  Errors: INVALID (less than 128 KiB, rights that are not the
 * pool's, or memory that is in it already), NO_MEMORY.
 */
int xport_pool_add(xport_pool *pool, xport_mr *mr) XPORT_CHECK;

/*
 * Takes a block of at least `length` bytes (1 or more), aligned to 64 bytes, or to `align` if that is more, a power of
 * 2 up to 64 KiB.  Its content is undefined.  Errors: INVALID; NO_MEMORY (the limit max_bytes, the system's, that of
 * locked memory, or a thread that may not let the pool grow: the text says which), and those of xport_mr_alloc.
 */
int xport_pool_alloc(xport_pool *pool, size_t length, size_t align, struct xport_block *block) XPORT_CHECK;

/*
 * Gives a block back, by its address.  While it is held it goes into quarantine, and is handed out after the last
 * xport_pool_release.  NULL is allowed.  INVALID, and nothing is done: not the beginning of a block of this pool, freed
 * already, or, with XPORT_POOL_DEBUG, written past its end (this one is given back).  Two threads that free the same
 * block at the same moment are seen with XPORT_POOL_DEBUG only.
 */
int xport_pool_free(xport_pool *pool, void *address);

/*
 * Counts an operation that uses the block, and ends it.  xport_pool_hold is called while the block is in use by the
 * caller, or held.  `address` is anywhere in the block.  INVALID: no block in use; or released more often than held.
 */
int xport_pool_hold(xport_pool *pool, const void *address) XPORT_CHECK;
int xport_pool_release(xport_pool *pool, const void *address);

/* What holds for this address, anywhere in a block that is in use: the whole block.  INVALID: none is there. */
int xport_pool_find(xport_pool *pool, const void *address, struct xport_block *block) XPORT_CHECK;

/* How a pool stands.  Numbers of other threads' caches may be a moment old.  Later versions add to the end. */
struct xport_pool_info {
	size_t size;
	uint64_t slabs;
	uint64_t registered;  /* bytes of the slabs */
	uint64_t in_use;      /* bytes of blocks handed out, quarantine included */
	uint64_t cached;      /* bytes of blocks that wait in threads' caches */
	uint64_t quarantined; /* blocks freed while held */
	uint64_t allocations; /* ever */
	uint64_t frees;
	uint64_t refills;       /* allocations and frees that a thread's cache could not serve */
	uint64_t registrations; /* slabs registered by the pool, ever */
	uint64_t threads;       /* threads that have a cache now */
	uint64_t huge_bytes;    /* of the slabs, on huge pages */
	char huge[160];         /* XPORT_POOL_HUGE: why not, or how */
	char placement[160];    /* where the memory lies, if a node was asked for */
};

int xport_pool_query(xport_pool *pool, struct xport_pool_info *info) XPORT_CHECK;

/* ---- Registration cache ------------------------------------------------------------------------------------- */

/*
 * Keeps registrations of buffers that are the application's, so that a buffer used again is not registered
 * again.  Nothing is watched: before memory is unmapped or freed to the system, the application calls
 * xport_cache_invalidate.
 *
 * Thread rule: that of the instance; on one that locks, any thread.
 */
typedef struct xport_cache xport_cache;

struct xport_cache_attr {
	size_t size;
	uint32_t rights;      /* of what it registers: enum xport_rights, but for XPORT_ATOMIC_NIC: what overlaps is
	                         registered twice */
	uint32_t max_entries; /* registrations kept; default 1024 */
	size_t max_bytes;     /* bytes kept registered; 0: no limit */
};

/* A registration that is in use: the buffer begins at `offset` of `mr`. */
struct xport_cached {
	xport_mr *mr;
	uint64_t offset;
	void *entry; /* the cache's own */
};

/* Makes an empty cache.  `attr` NULL: all defaults.  Errors: INVALID, NO_MEMORY. */
int xport_cache_create(xport *x, const struct xport_cache_attr *attr, xport_cache **cache) XPORT_CHECK;

/*
 * Deregisters everything, also what is in use.  BUSY: a posted receive uses one: cancel it, then call again, and
 * nothing but this.  NULL is allowed.
 */
int xport_cache_destroy(xport_cache *cache);

/*
 * Finds or makes a registration that covers `length` bytes (1 or more) at `address`, and counts the caller as a user of
 * it, until xport_cache_put, which comes after the completion of the operations that use it.  With rights 0 whole pages
 * are registered, else these bytes alone.  Registrations without users make room, those least recently used first.
 * Errors: INVALID, also for more than max_bytes; those of xport_mr_reg; AGAIN: the bounds are reached by registrations
 * that are in use; put some.
 */
int xport_cache_get(xport_cache *cache, void *address, size_t length, struct xport_cached *cached) XPORT_CHECK;

/* The caller does not use it any more.  INVALID: it has no users. */
int xport_cache_put(xport_cache *cache, const struct xport_cached *cached);

/*
 * Forgets every registration that has a byte of these: no xport_cache_get finds it any more.  Those without users are
 * deregistered now, the others by their last xport_cache_put; the memory must stay mapped until then.  Returns how many
 * of them still have users, or BUSY: a posted receive uses one, whose user put it too early; cancel that, then call
 * again.
 */
int xport_cache_invalidate(xport_cache *cache, const void *address, size_t length);

struct xport_cache_info {
	size_t size;
	uint64_t entries;       /* registrations, forgotten ones with users included */
	uint64_t bytes;         /* of them */
	uint64_t in_use;        /* of entries, those with users */
	uint64_t hits, misses;  /* of xport_cache_get */
	uint64_t evictions;     /* deregistered to make room */
	uint64_t invalidations; /* forgotten by xport_cache_invalidate */
};

int xport_cache_query(xport_cache *cache, struct xport_cache_info *info) XPORT_CHECK;

/* ---- Batches ------------------------------------------------------------------------------------------------ */

/* One operation of a batch: the function of xport.h that its type names, with the same rules.  What does not apply is 0. */
struct xport_batch_op {
	int type;  /* XPORT_OP_PUT, XPORT_OP_GET, XPORT_OP_PUT_NOTIFY or XPORT_OP_ATOMIC */
	void *buf; /* the source, which is only read; get: the destination */
	size_t length;
	xport_rkey *rkey;
	uint64_t offset;                        /* in the remote region */
	xport_mr *mr;                           /* the local region that holds buf; NULL: not registered */
	uint64_t value;                         /* put_notify: the value that arrives */
	const struct xport_atomic_args *atomic; /* atomic: what, without a result */
};

/*
 * Posts `count` operations of `entry_size` = sizeof(struct xport_batch_op) bytes each in their order, and one completion
 * for all of them: of type XPORT_OP_FLUSH, with `context`.  In XPORT_OK all puts and atomics are placed and all gets'
 * bytes are there; else an operation of this batch, or a quiet one before it, failed.  The buffers belong to libxport
 * until then.  The order among them is that of single operations.
 *
 * Without anything between them the operations share frames, where they travel by message, or one doorbell (verbs).
 *
 * *posted says how many were accepted, also if the call fails.  AGAIN: the queue is full; reap, then give it what is left,
 * ops + *posted and count - *posted, which may be none.  After another error no completion comes, the rest was not
 * posted, and those that were are quiet: the next flush completes behind them.  What can be seen in `type` and `atomic`
 * alone is looked at before anything is posted: INVALID, or NOT_SUPPORTED for a longer entry whose further bytes are not zero.
 * Otherwise those of xport_put and its like, for operation *posted.  Thread rule: that of the instance.
 */
int xport_batch(xport_ep *ep, const struct xport_batch_op *ops, size_t entry_size, size_t count, void *context,
                size_t *posted) XPORT_CHECK;

/* ---- Versioned objects -------------------------------------------------------------------------------------- */

/*
 * Bytes that one writer changes while peers read them by get, and never see a mix of two versions.  They lie in
 * registered memory of their owner.  Nothing is taken for granted about the order in which a get reads bytes, nor that
 * it reads any two of them at once, since libxport promises neither: what was read is accepted if its version says
 * so.  Three forms:
 *
 *   CHECKED  the version is read, then the bytes, then the version again, each by a get that has completed before the next
 *            one is posted.  Three round trips; no work for the bytes.
 *   SUMMED   version, checksum and bytes are read by one get.  One round trip; a checksum (XXH3, 64 bits) at both ends.
 *   COPIES   the writer fills a copy that nobody reads, then publishes it; the ones before stay as they are for a grace
 *            period.  Two round trips and a checksum; also a writer that never pauses does not keep readers from their bytes.
 *
 * Versions are numbered by their writer and carry a check of their own, so that half of one is no version.  A torn read
 * goes unseen with a chance of 2^-64; the sums are no protection against a peer that forges them.
 */
typedef struct xport_versioned xport_versioned;           /* the owner's side */
typedef struct xport_versioned_peer xport_versioned_peer; /* a peer's */

typedef enum xport_versioned_form {
	XPORT_VERSIONED_CHECKED = 1,
	XPORT_VERSIONED_SUMMED = 2,
	XPORT_VERSIONED_COPIES = 3
} xport_versioned_form;

/* What an object is; owner and peers give the same. */
struct xport_versioned_attr {
	size_t size;
	int form;        /* enum xport_versioned_form */
	size_t length;   /* of the bytes, 1 or more */
	uint32_t copies; /* COPIES: how many, 2 or more; default 4 */
	int grace_ms;    /* COPIES, owner: how long a copy that was replaced stays; default 100, -1: not at all */
	int tries;       /* peer: reads until XPORT_ERR_AGAIN; default 100 */
};

/* How much memory the object takes; 0: the attributes are wrong. */
size_t xport_versioned_size(const struct xport_versioned_attr *attr);

/*
 * Makes the object in the region, `offset` bytes into it, a multiple of 64; its bytes are zero.  Peers need
 * XPORT_REMOTE_READ to read; READ, WRITE and ATOMIC to write; not XPORT_ATOMIC_NIC, since the owner locks by its
 * CPU.  Calls on the object follow no thread rule but one thread at a time; they do not call the instance.  Where there was a
 * CHECKED object its versions go on, so that peers that still read it get no mix of both.  Errors: INVALID, also for a region
 * with XPORT_ATOMIC_NIC; BOUNDS (it does not fit in), NO_MEMORY.
 */
int xport_versioned_create(xport_mr *mr, uint64_t offset, const struct xport_versioned_attr *attr,
                           xport_versioned **object) XPORT_CHECK;
/* Forgets the object; its memory stays as it is.  NULL is allowed. */
void xport_versioned_destroy(xport_versioned *object);

/*
 * Changes all its bytes to `data`, at once for whoever reads.  Does not wait.  Errors: AGAIN: a peer is writing; or
 * (COPIES) the grace period of the copy to be overwritten has not passed.
 */
int xport_versioned_write(xport_versioned *object, const void *data) XPORT_CHECK;

/*
 * After a peer was lost that may have been writing: takes the lock away, whoever holds it.  Only when no other peer can be
 * writing: that one's bytes would mix with the next writer's; its write ends in AGAIN, so that it is repeated.  If the
 * lost one was in the middle, readers get XPORT_ERR_AGAIN until the next write.  Returns 1 if there was a lock, else 0.
 *
 * Where peers map the memory (xport_rkey_info.direct, as with ucx:shm) nothing keeps one that was only stopped, and so was
 * lost, from writing on when it wakes.  There its process must be known to be dead; else make the object anew in another
 * region, and deregister this one.
 */
int xport_versioned_recover(xport_versioned *object);

/*
 * Reaches an object of the peer's, `offset` bytes into the region of the key.  Endpoint and key must stay until
 * xport_versioned_peer_destroy.  Thread rule: that of the instance; on one that locks, any thread reaps and steps.
 * Errors: INVALID, and those of xport_mr_alloc.
 */
int xport_versioned_peer_create(xport *x, xport_ep *ep, xport_rkey *rkey, uint64_t offset,
                                const struct xport_versioned_attr *attr, xport_versioned_peer **peer) XPORT_CHECK;
/* Nothing may be under way.  NULL is allowed. */
void xport_versioned_peer_destroy(xport_versioned_peer *peer);

/*
 * Begins to read all bytes into `data`, or to write them (not COPIES: its owner alone writes), one thing at a
 * time.  The operations that this takes have `peer` as xport_completion.context: give each such completion to
 * xport_versioned_peer_step, and NULL when there may be room in a queue, until that says that it has ended.  `data` belongs
 * to it until then.  Errors: those of xport_get and its like, but for AGAIN: it waits for room then, under way; BUSY:
 * something is under way; NOT_SUPPORTED.
 */
int xport_versioned_peer_read(xport_versioned_peer *peer, void *data) XPORT_CHECK;
int xport_versioned_peer_write(xport_versioned_peer *peer, const void *data) XPORT_CHECK;

/*
 * Goes on.  Returns 1: it is under way.  XPORT_OK: it has ended well.  An error: it has ended so; AGAIN: the bytes
 * changed during each try, or others held the lock, or took it away from this write, which is to be repeated.  After an
 * error of a write the lock may be held: xport_versioned_recover.
 *
 * Where an endpoint's queue was full it is under way without an operation, so that no completion of its own comes: a call with
 * `completion` NULL tries again, and does nothing if an operation is posted.  So while it is under way call it with NULL,
 * too, whenever xport_poll or xport_wait has returned, with completions or without (xport_wait returns, and xport_fd is
 * readable, when there is room); before other operations take that.
 */
int xport_versioned_peer_step(xport_versioned_peer *peer, const struct xport_completion *completion) XPORT_CHECK;

/* Takes completions that belong to somebody else. */
typedef void (*xport_completion_fn)(void *arg, const struct xport_completion *completion);

/*
 * Reaps until what is under way has ended, up to `timeout_ms` (-1: for ever), and gives other completions to `other`.
 * Returns as xport_versioned_peer_step does; TIMEOUT: it is under way still.  For who reaps alone: where another thread reaps
 * beside it, that one's xport_versioned_peer_step may be told of the end, while this sleeps on and then is INVALID.
 */
int xport_versioned_peer_wait(xport_versioned_peer *peer, xport_completion_fn other, void *arg,
                              int timeout_ms) XPORT_CHECK;

/* The version that was read or written well last, 0 before; each write adds 2.  And reads that were tried in vain, ever. */
uint64_t xport_versioned_peer_version(const xport_versioned_peer *peer);
uint64_t xport_versioned_peer_retries(const xport_versioned_peer *peer);

/* ---- Leases of memory --------------------------------------------------------------------------------------- */

/*
 * Memory of one process that another one uses for a while.  A borrower asks a peer for so many bytes, which that one
 * serves from its quota; or a lender gives a region of its own to a peer.  A lease ends when the borrower returns it, the
 * lender revokes it, or the endpoint between them ends.  Then the memory is deregistered, so that the borrower's key is
 * XPORT_ERR_STALE_KEY, whatever the borrower does: when XPORT_LEASE_ENDED comes at the lender, no access of the borrower's
 * lands any more (xport_mr_dereg's promise).
 *
 * An instance has one xport_leases, for both roles and all peers.  It is driven by the application's own loop: each
 * completion that was reaped goes to xport_leases_step, and what came of it out of xport_leases_next.  Nothing waits but
 * the functions called _wait, xport_leases_destroy, and a deregistration, which waits as xport_mr_dereg does: in
 * xport_leases_step, xport_leases_forget, and xport_lease_revoke if patience_ms is -1 or the borrower cannot be told.
 *
 * Messages.  It talks to its like by messages under one tag, xport_leases_attr.tag, the same at all peers.  The
 * application leaves that tag alone: it sends nothing under it, and posts no receive that would match it (one with mask 0
 * does).  Messages under other tags are never touched.
 *
 * Trust.  Whoever has an endpoint may ask: xport_leases_attr.quota, peer_quota, max_leases bound what is served, and
 * `allow` can refuse.  Memory is zeroed before it is lent, a key reaches one lease alone, and a peer can end only leases
 * between it and this process.  A peer that sends what it must not send is muted: its leases end with
 * XPORT_ERR_PROTOCOL, and nothing of it is read until its endpoint ends.
 *
 * Thread rule: that of the instance; on one that locks, any thread.
 */
typedef struct xport_leases xport_leases;
typedef struct xport_lease xport_lease;

enum { XPORT_LEASES_TAKE = 1 /* peers may give regions */ };

/* Whether a peer may have that many bytes with these rights: XPORT_OK, or the status that it is refused with.  Is called in
 * xport_leases_step, and calls no function on leases. */
typedef int (*xport_lease_allow_fn)(void *arg, xport_ep *ep, uint64_t length, uint32_t rights);

struct xport_leases_attr {
	size_t size;
	uint64_t tag;        /* of its messages; default 0x78706f72746c7300 */
	uint64_t quota;      /* bytes that are lent at a time to those who ask; 0: nobody may ask */
	uint64_t peer_quota; /* of these, to one peer; 0: all */
	uint32_t max_leases; /* leases of one peer's making, ended ones that were not freed included, and revocations of
	                        them that it has not answered; default 64 */
	uint32_t flags;      /* XPORT_LEASES_TAKE */
	int patience_ms;     /* what a revoked borrower has to answer in; default 1000, -1: nothing */
	xport_pool *pool;    /* what is lent comes from it; NULL: from xport_mr_alloc, which peers on one host map */
	xport_lease_allow_fn allow; /* NULL: the quota alone decides */
	void *arg;                  /* of `allow` */
};

/* `attr` NULL: nobody may ask or give, but this process may.  Of the receives that an instance may have posted
 * (XPORT_QUEUE_DEPTH) it takes a quarter, 32 at most.  Errors: INVALID, NO_MEMORY, AGAIN (there are none left). */
int xport_leases_create(xport *x, const struct xport_leases_attr *attr, xport_leases **leases) XPORT_CHECK;

/*
 * Ends all leases, tells the peers, and frees it and all leases.  Reaps until its own operations have ended, up to
 * `timeout_ms` (-1: for ever), and gives other completions to `other`.  TIMEOUT: a message to a peer that takes none is
 * under way still; close that endpoint, or call again, and nothing but this.  BUSY: a posted receive uses memory that is
 * lent: cancel it, then call again.  NULL is allowed.
 */
int xport_leases_destroy(xport_leases *leases, xport_completion_fn other, void *arg, int timeout_ms);

/*
 * Goes on: call it with each completion that is reaped, and with NULL when xport_leases_timeout has passed.  Returns 1 if
 * the completion was its own; 0: it is the application's (XPORT_EVENT_LOST and XPORT_EVENT_CLOSED always are).
 */
int xport_leases_step(xport_leases *leases, const struct xport_completion *completion);
/* Milliseconds until xport_leases_step should be called with NULL; -1: not before there is a completion. */
int xport_leases_timeout(xport_leases *leases);

/*
 * The endpoint's leases end.  To be called of an endpoint of whose end no event has told, between xport_ep_close and
 * xport_ep_destroy: what comes of one that is still open begins it anew.  Before xport_ep_destroy, of any endpoint, what
 * other threads have reaped has gone to xport_leases_step.  Memory that is lent by it is deregistered, which waits as in
 * xport_lease_revoke.
 */
void xport_leases_forget(xport_leases *leases, xport_ep *ep);

typedef enum xport_lease_event_type {
	XPORT_LEASE_GRANTED = 1, /* at a borrower: what it asked for is there */
	XPORT_LEASE_GIVEN = 2,   /* at a borrower: a peer gave a region */
	XPORT_LEASE_LENT = 3,    /* at a lender: a peer asked, and was served */
	XPORT_LEASE_TAKEN = 4,   /* at a lender: the peer has the region that was given */
	XPORT_LEASE_ENDED = 5    /* the last event of a lease: xport_lease_free */
} xport_lease_event_type;

/*
 * `status` of XPORT_LEASE_ENDED: XPORT_OK: the borrower returned it.  XPORT_ERR_STALE_KEY: the lender revoked
 * it.  XPORT_ERR_PEER_LOST, PEER_CLOSED, CLOSED: the endpoint ended, or the peer's leases did.  XPORT_ERR_PROTOCOL: the
 * peer was muted.  XPORT_ERR_NO_MEMORY: there was none left to answer the peer, all leases with which end; it sees
 * PEER_CLOSED, and both may go on with new ones.  Without an event before it, it is why an ask or a gift was refused:
 * NO_MEMORY (the peer's quota, or its memory), ACCESS (rights that it does not lend, or its `allow`), INVALID (rights that
 * do not go together), NOT_SUPPORTED (it serves nobody, or takes nothing), BUSY (too many leases).
 */
struct xport_lease_event {
	size_t size;
	int type;   /* enum xport_lease_event_type */
	int status; /* xport_status */
	xport_lease *lease;
	xport_ep *ep;
	void *context; /* of xport_lease_ask or _give */
};

/* The next thing that happened.  Returns 1, or 0: there is none. */
int xport_leases_next(xport_leases *leases, struct xport_lease_event *event) XPORT_CHECK;
/* Reaps until there is one, as xport_lease_wait.  Returns XPORT_OK, or TIMEOUT. */
int xport_leases_wait(xport_leases *leases, struct xport_lease_event *event, xport_completion_fn other, void *arg,
                      int timeout_ms) XPORT_CHECK;

/*
 * Asks the peer for `length` bytes with these rights (enum xport_rights).  XPORT_LEASE_GRANTED follows, or ENDED.  The
 * lease is the caller's until xport_lease_free.  Errors: INVALID, NO_MEMORY, those of the endpoint.
 */
int xport_lease_ask(xport_leases *leases, xport_ep *ep, uint64_t length, uint32_t rights, void *context,
                    xport_lease **lease) XPORT_CHECK;

/*
 * Gives the peer a region, whole, with its rights.  XPORT_LEASE_TAKEN follows, or ENDED.  The region is the lease's from
 * now on, which deregisters it before ENDED; memory that was registered by xport_mr_reg is the application's again
 * then.  Errors: INVALID (no rights), NO_MEMORY, those of the endpoint: the region stays the caller's.
 */
int xport_lease_give(xport_leases *leases, xport_ep *ep, xport_mr *mr, void *context, xport_lease **lease) XPORT_CHECK;

/*
 * A borrower does not need it any more.  Operations that use it should have completed; those that have not may end with
 * XPORT_ERR_STALE_KEY.  XPORT_LEASE_ENDED follows.  Errors: INVALID (the lender's, or not granted yet), CLOSED (it has
 * ended, or is ending).
 */
int xport_lease_return(xport_lease *lease);

/*
 * A lender wants its memory back.  The borrower is told, and has patience_ms to answer, which its xport_leases does by
 * itself; then the memory is deregistered, and XPORT_LEASE_ENDED follows.  With patience_ms -1, and where the borrower cannot
 * be told, it is deregistered at once, in this call.  Where the network itself carries puts and gets, deregistering waits
 * for the borrower's library to answer: for a moment if it lives, and at the most until a silent peer is lost.  Errors:
 * INVALID (the borrower's), CLOSED.
 */
int xport_lease_revoke(xport_lease *lease);

/*
 * Reaps until nothing is under way on the lease: until it was granted, taken, or has ended.  Gives other completions to
 * `other` (NULL: they are dropped), and up to `timeout_ms` (-1: for ever).  The events of this lease that it waited for
 * do not come out of xport_leases_next any more.  Returns XPORT_OK: granted or taken; or returned or revoked as asked
 * for.  An error: refused, with xport_lease_event.status.  TIMEOUT: it is under way still.
 */
int xport_lease_wait(xport_lease *lease, xport_completion_fn other, void *arg, int timeout_ms) XPORT_CHECK;

/* Gives the handle back, and the borrower's rkey.  BUSY: it has not ended.  NULL is allowed. */
int xport_lease_free(xport_lease *lease);

typedef enum xport_lease_state {
	XPORT_LEASE_ASKING = 0, /* or giving */
	XPORT_LEASE_HELD = 1,
	XPORT_LEASE_ENDING = 2,
	XPORT_LEASE_OVER = 3
} xport_lease_state;

struct xport_lease_info {
	size_t size;
	int state;  /* enum xport_lease_state */
	int status; /* OVER: as in XPORT_LEASE_ENDED */
	int lender; /* 1: it is this process's memory */
	uint32_t rights;
	uint64_t length;
	xport_ep *ep; /* NULL: it has ended */
	xport_rkey *
		rkey; /* a borrower's, valid until xport_lease_free; the lease begins at offset 0.  NULL: not granted */
	void *base;   /* a lender's: where the memory is; NULL: it has ended */
	void *context;
};

int xport_lease_query(const xport_lease *lease, struct xport_lease_info *info) XPORT_CHECK;
/* Changes xport_lease_event.context, for leases of a peer's making. */
void xport_lease_set_context(xport_lease *lease, void *context);

/* How all of them stand.  Later versions add to the end. */
struct xport_leases_info {
	size_t size;
	uint64_t lent;       /* leases of this process's memory that have not ended */
	uint64_t lent_bytes; /* of the quota, in use */
	uint64_t borrowed;   /* leases of peers' memory that have not ended */
	uint64_t refused;    /* of peers' asks and gifts, ever */
	uint64_t muted;      /* peers that sent what they must not, ever */
};

int xport_leases_query(xport_leases *leases, struct xport_leases_info *info) XPORT_CHECK;

/* ---- Directory ---------------------------------------------------------------------------------------------- */

/*
 * Names of regions on many machines, so that their memory is found by name.  One process serves the directory, the others
 * have an endpoint to it.  An entry says on which node the region is, and has its key: with an endpoint to that node,
 * xport_rkey_unpack and then put and get need neither the directory nor anybody else.
 *
 * What it is not: there is one copy, at the process that serves, and no consensus.  If that process dies, entries are
 * gone; everybody who had joined is told (XPORT_DIRECTORY_LOST), what they have in hand goes on working, and they may join
 * another directory and put their entries there.  Entries of a process that dies or leaves are removed.  Whether a key still
 * is good the directory does not know: XPORT_ERR_STALE_KEY at its use means to look again.
 *
 * It is driven as xport_leases is, by step, timeout and next, and has a tag of its own that the application leaves alone.  A
 * process has one for an instance; that which serves may use it, too.  A user that sends what it must not is muted, as there.
 *
 * Thread rule: that of the instance; on one that locks, any thread.
 */
typedef struct xport_directory xport_directory;

enum {
	XPORT_DIRECTORY_NAME_MAX = 255, /* bytes of a name, any bytes */
	XPORT_DIRECTORY_KEY_MAX = 2048,
	XPORT_DIRECTORY_BROADCAST =
		1 /* xport_directory_put: everybody is told who has joined, also who does not watch */
};

struct xport_directory_attr {
	size_t size;
	uint64_t tag;        /* of its messages; default 0x78706f7274647200 */
	int serve;           /* 1: this process serves */
	const char *node;    /* what others find with this process's entries, as where it listens; at most 63 bytes */
	uint32_t max_names;  /* serving: names in all; default 65536 */
	uint32_t peer_names; /* serving: of one peer; default 4096 */
};

/* A region, or a part of one.  To put: xport_directory_region fills it in.  It does not grow. */
struct xport_directory_entry {
	size_t size;
	char node[64];    /* of its owner; put: ignored */
	uint64_t version; /* each put of any name has a higher one, while the same process serves; put: ignored */
	uint64_t length;
	uint64_t offset; /* in the region of the key */
	uint32_t rights;
	uint32_t key_len;
	uint8_t key[2048]; /* for xport_rkey_unpack */
};

/* Describes `length` bytes, `offset` bytes into the region.  Errors: INVALID, BOUNDS. */
int xport_directory_region(const xport_mr *mr, uint64_t offset, uint64_t length,
                           struct xport_directory_entry *entry) XPORT_CHECK;

/* `attr` NULL: a user without a node.  It takes receives as xport_leases_create does.  Errors: INVALID, NO_MEMORY, AGAIN. */
int xport_directory_create(xport *x, const struct xport_directory_attr *attr, xport_directory **directory) XPORT_CHECK;
/* As xport_leases_destroy.  Its entries are removed; if it serves, all are. */
int xport_directory_destroy(xport_directory *directory, xport_completion_fn other, void *arg, int timeout_ms);

/* This endpoint leads to the process that serves.  Errors: INVALID (it serves itself), BUSY (it has joined one). */
int xport_directory_join(xport_directory *directory, xport_ep *ep) XPORT_CHECK;

/* As those of xport_leases. */
int xport_directory_step(xport_directory *directory, const struct xport_completion *completion);
int xport_directory_timeout(xport_directory *directory);
void xport_directory_forget(xport_directory *directory, xport_ep *ep);

/*
 * Each of these asks, and XPORT_DIRECTORY_DONE with this context follows.  A name is 1 to 255 bytes.  Errors: INVALID,
 * NO_MEMORY, CLOSED (no directory was joined, or it is lost), and those of the endpoint.
 *
 * put     enters, or replaces an entry of this process's own.  DONE: the version; BUSY: another process has that name;
 *         NO_MEMORY: max_names or peer_names.
 * find    DONE: the entry; UNREACHABLE: there is none.  Who watches finds what it has heard of without asking.
 * remove  DONE; UNREACHABLE: there is none; ACCESS: it is another process's.
 * watch   from DONE on XPORT_DIRECTORY_CHANGED and _GONE tell of every entry, first of all that are there.
 */
int xport_directory_put(xport_directory *directory, const void *name, size_t len,
                        const struct xport_directory_entry *entry, uint32_t flags, void *context) XPORT_CHECK;
int xport_directory_find(xport_directory *directory, const void *name, size_t len, void *context) XPORT_CHECK;
int xport_directory_remove(xport_directory *directory, const void *name, size_t len, void *context) XPORT_CHECK;
int xport_directory_watch(xport_directory *directory, void *context) XPORT_CHECK;

typedef enum xport_directory_event_type {
	XPORT_DIRECTORY_DONE = 1,
	XPORT_DIRECTORY_CHANGED = 2, /* entered or replaced; of several changes of a name the last may stand for all */
	XPORT_DIRECTORY_GONE = 3,    /* removed, or its owner is gone */
	XPORT_DIRECTORY_MISSED =
		4,               /* not all changes could be kept for this process: what is wanted is to be looked up */
	XPORT_DIRECTORY_LOST = 5 /* the process that serves is gone: `status` */
} xport_directory_event_type;

struct xport_directory_event {
	size_t size;
	int type;   /* enum xport_directory_event_type */
	int status; /* xport_status */
	void *context;
	size_t name_len;
	uint8_t name[256];
	struct xport_directory_entry entry; /* DONE of find and put, CHANGED; its key_len is 0 if there is none */
};

/* The next thing that happened: 1, or 0: there is none.  And waiting for it: XPORT_OK or TIMEOUT. */
int xport_directory_next(xport_directory *directory, struct xport_directory_event *event) XPORT_CHECK;
int xport_directory_wait(xport_directory *directory, struct xport_directory_event *event, xport_completion_fn other,
                         void *arg, int timeout_ms) XPORT_CHECK;

struct xport_directory_info {
	size_t size;
	uint64_t names;   /* serving: entries; else those that a watcher has heard of */
	uint64_t peers;   /* serving: who has joined */
	uint64_t refused; /* serving: requests that were answered with an error, ever */
	uint64_t muted;   /* peers that sent what they must not, ever */
	uint64_t hits;    /* finds that needed no message */
};

int xport_directory_query(xport_directory *directory, struct xport_directory_info *info) XPORT_CHECK;

#ifdef __cplusplus
}
#endif

#endif
