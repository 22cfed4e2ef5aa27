/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport_services.h - what programs need around put, get and send: a pool of registered memory, a cache of
 * registrations, and objects that are read without tearing.  A library of its own, libxport_services, on xport.h alone.
 *
 * This header is its whole interface and its manual.  Sizes and offsets are in bytes.  Parameter structs begin with
 * `size`, as those of xport.h do: set it to sizeof the struct and zero the rest; a zero field means the default.
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
	uint32_t rights;   /* of the slabs: enum xport_rights; 0: buffers of this process only */
	uint32_t flags;    /* enum xport_pool_flags */
	size_t slab_bytes; /* registered at a time; default 4 MiB, at least 1 MiB, a multiple of 2 MiB if huge */
	size_t max_bytes;  /* most that is registered; 0: no limit */
	size_t cache_bytes; /* most that a thread keeps of each size; default 256 KiB */
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
 * it; it must stay registered until xport_pool_destroy.  Errors: INVALID (less than 128 KiB, or rights that are not the
 * pool's), NO_MEMORY.
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
	uint32_t rights;      /* of what it registers: enum xport_rights */
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
 * Errors: INVALID, those of xport_mr_reg, and AGAIN: the bounds are reached by registrations that are in use; put some.
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
 * XPORT_REMOTE_READ to read, all three rights to write.  Calls on the object follow no thread rule but one thread at a
 * time; they do not call the instance.  Errors: INVALID, BOUNDS (it does not fit in), NO_MEMORY.
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
 * After a peer was lost that may have been writing: takes its lock away.  If it was in the middle, readers get
 * XPORT_ERR_AGAIN until the next write.  Returns 1 if there was a lock, else 0.
 */
int xport_versioned_recover(xport_versioned *object);

/*
 * Reaches an object of the peer's, `offset` bytes into the region of the key.  Endpoint and key must stay until
 * xport_versioned_peer_destroy.  Thread rule: that of the instance.
 * Errors: INVALID, and those of xport_mr_alloc.
 */
int xport_versioned_peer_create(xport *x, xport_ep *ep, xport_rkey *rkey, uint64_t offset,
                                const struct xport_versioned_attr *attr, xport_versioned_peer **peer) XPORT_CHECK;
/* Nothing may be under way.  NULL is allowed. */
void xport_versioned_peer_destroy(xport_versioned_peer *peer);

/*
 * Begins to read all bytes into `data`, or to write them (not COPIES: its owner alone writes), one thing at a
 * time.  The operations that this takes have `peer` as xport_completion.context: give each such completion to
 * xport_versioned_peer_step, until that says that it has ended.  `data` belongs to it until then. Errors: those of
 * xport_get and its like; BUSY: something is under way; NOT_SUPPORTED.
 */
int xport_versioned_peer_read(xport_versioned_peer *peer, void *data) XPORT_CHECK;
int xport_versioned_peer_write(xport_versioned_peer *peer, const void *data) XPORT_CHECK;

/*
 * Goes on.  Returns 1: it is under way.  XPORT_OK: it has ended well.  An error: it has ended so; AGAIN: the bytes
 * changed during each try, or others held the lock.  After AGAIN of a queue it is under way still, and a call with
 * `completion` NULL tries again.  After an error of a write the lock may be held: xport_versioned_recover.
 */
int xport_versioned_peer_step(xport_versioned_peer *peer, const struct xport_completion *completion) XPORT_CHECK;

/* Takes completions that belong to somebody else. */
typedef void (*xport_completion_fn)(void *arg, const struct xport_completion *completion);

/*
 * Reaps until what is under way has ended, up to `timeout_ms` (-1: for ever), and gives other completions to `other`.
 * Returns as xport_versioned_peer_step does; TIMEOUT: it is under way still.
 */
int xport_versioned_peer_wait(xport_versioned_peer *peer, xport_completion_fn other, void *arg,
                              int timeout_ms) XPORT_CHECK;

/* The version that was read or written last, 0 before; each write adds 2.  And reads that were tried in vain, ever. */
uint64_t xport_versioned_peer_version(const xport_versioned_peer *peer);
uint64_t xport_versioned_peer_retries(const xport_versioned_peer *peer);

#ifdef __cplusplus
}
#endif

#endif
