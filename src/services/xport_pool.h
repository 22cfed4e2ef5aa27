/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport_pool.h - blocks of registered memory.  Included by xport_services.h.
 *
 * Registering memory costs microseconds to milliseconds.  A pool registers large slabs, and hands out blocks of them
 * in some tens of instructions.  A slab has one key for all its blocks.  Pack it once (xport_rkey_pack of
 * xport_block.mr), and send the peer the offset of each block.
 *
 * A peer with that key can reach all blocks of the slab.  Use separate pools for peers that do not trust each other.
 *
 * Thread rule.  Any thread may allocate and free, including blocks of another thread.  Threads may start and end at
 * any time.  The pool calls the instance only to register and deregister memory:
 * - xport_pool_create, xport_pool_reserve, xport_pool_trim and xport_pool_destroy follow the thread rule of the instance.
 * - xport_pool_alloc may have to register a slab.  If the instance locks (XPORT_THREAD_MULTIPLE, or the progress
 *   thread), every thread's call may do so.  Otherwise only the thread that created the pool may; the other threads
 *   use what is reserved.
 *
 * Operations in flight.  A block that an operation uses must not be handed out again before the completion.  There are
 * two ways to ensure that:
 * - Free the block after its last completion.
 * - Call xport_pool_hold before each post and xport_pool_release at each completion.  Then the block may be freed at any
 *   time: it stays in quarantine until the last release.  Every accepted operation completes, so quarantine always ends.
 * Release an XPORT_QUIET operation at the completion of the next xport_flush.  The pool does not see what peers do to a
 * block by its key.
 */
#ifndef XPORT_POOL_H
#define XPORT_POOL_H

#ifndef XPORT_SERVICES_H
#error include xport_services.h
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A pool of registered memory. */
typedef struct xport_pool xport_pool;

/* Flags of xport_pool_attr. */
typedef enum xport_pool_flags {
	/* Use huge pages if the system has some and peers' access does not get slower; xport_pool_info.huge says which. */
	XPORT_POOL_HUGE = 1,
	/* Lock the slabs in memory, even if the network does not need it. */
	XPORT_POOL_LOCK = 2,
	/* Find mistakes, slowly.  Freed memory and the bytes past the end of a block are filled, and checked later. */
	XPORT_POOL_DEBUG = 4
} xport_pool_flags;

enum {
	XPORT_POOL_NODE_ANY = 0,   /* xport_pool_attr.node: the system chooses; n + 1 means node n */
	XPORT_POOL_NODE_LOCAL = -1, /* the node of the processor that the creating thread runs on */
	/* The node of the transport's device (xport_info.device).  A device without a node: as XPORT_POOL_NODE_ANY, and
	   xport_pool_info.placement says so. */
	XPORT_POOL_NODE_DEVICE = -2
};

/* Options of xport_pool_create.  NULL instead of the struct: all defaults. */
struct xport_pool_attr {
	size_t size;
	uint32_t rights;    /* of the slabs, enum xport_rights; 0: memory for this process only */
	uint32_t flags;     /* enum xport_pool_flags */
	size_t slab_bytes;  /* size of a slab; default 4 MiB, at least 1 MiB; rounded up to 2 MiB with XPORT_POOL_HUGE */
	size_t max_bytes;   /* limit of registered memory; 0: none */
	size_t cache_bytes; /* limit of what a thread keeps of each block size, at least 4 blocks; default 256 KiB */
	int node;           /* NUMA node plus 1, or one of XPORT_POOL_NODE_ */
};

/* A block: `address` is `offset` bytes into the region `mr`. */
struct xport_block {
	void *address;
	xport_mr *mr;
	uint64_t offset;
	uint64_t length; /* bytes that may be used: at least what was asked for */
};

/*
 * xport_pool_create - make a pool.
 *
 * The pool has no memory yet.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID        x or pool is NULL; a field of *attr is not allowed
 *   XPORT_ERR_NO_MEMORY      out of memory; the process has no thread-specific key left
 *   XPORT_ERR_NOT_SUPPORTED  the NUMA node does not exist; this build has no libnuma; *attr sets an unknown field
 */
int xport_pool_create(xport *x, const struct xport_pool_attr *attr, xport_pool **pool) XPORT_CHECK;

/*
 * xport_pool_destroy - deregister and free all memory of a pool.
 *
 * Blocks that were not freed, and the caches of all threads, are freed too.  No thread may be in a call on the pool.  No
 * thread that used it may be ending.  `pool` may be NULL.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BUSY    a posted receive uses a slab: cancel it, then call only xport_pool_destroy again
 */
int xport_pool_destroy(xport_pool *pool);

/*
 * xport_pool_reserve - register slabs until at least `bytes` are free in them.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_NO_MEMORY  as xport_pool_alloc
 *   another error of xport_mr_alloc
 */
int xport_pool_reserve(xport_pool *pool, size_t bytes) XPORT_CHECK;

/*
 * xport_pool_trim - deregister the slabs that are wholly free.
 *
 * First the blocks in the calling thread's cache are given back.  A slab with a block that is in use, or in another
 * thread's cache, stays.
 *
 * Returns the number of slabs that were deregistered, or
 *   XPORT_ERR_BUSY    a posted receive uses a slab
 */
int xport_pool_trim(xport_pool *pool);

/*
 * xport_pool_add - add a region of the application to a pool, as a slab.
 *
 * The pool hands the region out in blocks, and never deregisters it.  Keep it registered until xport_pool_destroy.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    mr is not a region; it is shorter than 128 KiB; its rights are not those of the pool; its memory
 *                        is in the pool already
 *   XPORT_ERR_NO_MEMORY  out of memory
 */
int xport_pool_add(xport_pool *pool, xport_mr *mr) XPORT_CHECK;

/*
 * xport_pool_alloc - take a block of at least `length` bytes.
 *
 * The block is aligned to 64 bytes, or to `align` if that is more.  Its content is undefined.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    length is 0; align is not a power of 2, or above 64 KiB; with XPORT_POOL_DEBUG: a free block was
 *                        written to (call again for another block)
 *   XPORT_ERR_NO_MEMORY  out of memory; over max_bytes or the limit of locked memory; the calling thread may not register
 *                        (see the thread rule); the text says which
 *   another error of xport_mr_alloc
 */
int xport_pool_alloc(xport_pool *pool, size_t length, size_t align, struct xport_block *block) XPORT_CHECK;

/*
 * xport_pool_free - give a block back.
 *
 * `address` is the beginning of the block, or NULL.  A block that is held stays in quarantine until the last
 * xport_pool_release.  Two threads that free the same block at the same moment are detected with XPORT_POOL_DEBUG only.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    address is not the beginning of a block of this pool; the block was freed before; with
 *                        XPORT_POOL_DEBUG: the block was written past its end (the call frees it nevertheless)
 */
int xport_pool_free(xport_pool *pool, void *address);

/*
 * xport_pool_hold - count an operation that uses a block.
 *
 * `address` is anywhere in the block.  The block must be in use by the caller, or held.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    no block in use is there; the block is held too many times
 */
int xport_pool_hold(xport_pool *pool, const void *address) XPORT_CHECK;

/*
 * xport_pool_release - end the count of xport_pool_hold.
 *
 * `address` is anywhere in the block.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    no block in use is there; the block is not held
 */
int xport_pool_release(xport_pool *pool, const void *address);

/*
 * xport_pool_find - get the block that an address is in.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    block is NULL; no block in use is there
 */
int xport_pool_find(xport_pool *pool, const void *address, struct xport_block *block) XPORT_CHECK;

/* The state of a pool.  Figures of other threads' caches may be slightly out of date. */
struct xport_pool_info {
	size_t size;
	uint64_t slabs;
	uint64_t registered;  /* bytes of the slabs */
	uint64_t in_use;      /* bytes of blocks handed out, including quarantine */
	uint64_t cached;      /* bytes of blocks in threads' caches */
	uint64_t quarantined; /* blocks freed while held */
	uint64_t allocations; /* since the pool was made */
	uint64_t frees;
	uint64_t refills;       /* allocations and frees that a thread's cache could not serve */
	uint64_t registrations; /* slabs registered by the pool since it was made */
	uint64_t threads;       /* threads that have a cache now */
	uint64_t huge_bytes;    /* bytes of the slabs that are on huge pages */
	char huge[160];         /* XPORT_POOL_HUGE: how, or why not */
	char placement[160];    /* where the memory is, if a node was asked for, or why not there */
};

/*
 * xport_pool_query - get the state of a pool.
 *
 * Set info->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    info is NULL; info->size is wrong
 */
int xport_pool_query(xport_pool *pool, struct xport_pool_info *info) XPORT_CHECK;

#ifdef __cplusplus
}
#endif

#endif
