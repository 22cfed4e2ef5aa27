/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport_versioned.h - objects that peers read without tearing.  Included by xport_services.h.
 *
 * A versioned object is a block of bytes in registered memory of its owner.  One writer changes it, peers read it by get,
 * and no reader gets a mix of two versions.  libxport does not promise in which order a get reads bytes, nor that it
 * reads any two of them at once.  So a reader accepts what it has read only if the version says that it is whole.
 *
 * There are three forms:
 *
 *   CHECKED  The version is read, then the bytes, then the version again.  Each is a get that completes before the next
 *            one is posted.  Three round trips, and no computation.
 *   SUMMED   One get reads the version, a checksum and the bytes.  One round trip, and a checksum (XXH3, 64 bits) at both
 *            sides.
 *   COPIES   The writer fills a copy that nobody reads, then publishes it.  Replaced copies stay for a grace period.  Two
 *            round trips and a checksum.  Readers get the bytes even if the writer never pauses.
 *
 * The writer numbers the versions, and each has a check of its own: half of a version is not accepted.  A torn read is not
 * detected with a probability of 2^-64.  The checksums do not protect against a peer that forges them.
 */
#ifndef XPORT_VERSIONED_H
#define XPORT_VERSIONED_H

#ifndef XPORT_SERVICES_H
#error include xport_services.h
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* An object, at its owner. */
typedef struct xport_versioned xport_versioned;
/* An object of a peer. */
typedef struct xport_versioned_peer xport_versioned_peer;

/* The form of an object. */
typedef enum xport_versioned_form {
	XPORT_VERSIONED_CHECKED = 1,
	XPORT_VERSIONED_SUMMED = 2,
	XPORT_VERSIONED_COPIES = 3
} xport_versioned_form;

/* An object.  The owner and its peers set the same form, length and copies. */
struct xport_versioned_attr {
	size_t size;
	int form;        /* enum xport_versioned_form */
	size_t length;   /* of the bytes, at least 1 */
	uint32_t copies; /* COPIES: number of copies, at least 2; default 4 */
	int grace_ms;    /* COPIES, owner: how long a replaced copy stays; default 100, -1: not at all */
	int tries;       /* peer: number of reads until XPORT_ERR_AGAIN; default 100 */
};

/*
 * xport_versioned_size - get the size of an object in its region.
 *
 * Any thread may call it at any time.
 *
 * Returns the size, or 0 if *attr is not allowed.
 */
size_t xport_versioned_size(const struct xport_versioned_attr *attr);

/*
 * xport_versioned_create - make an object in a region.
 *
 * The object begins `offset` bytes into the region, a multiple of 64.  Its bytes are zero.  If there was a CHECKED object
 * at the same place, its versions continue: peers that still read the old object get no mix of both.
 *
 * Rights of the region: XPORT_REMOTE_READ if peers read; XPORT_REMOTE_READ, _WRITE and _ATOMIC if peers write.  The owner
 * locks by its CPU, so XPORT_ATOMIC_NIC is not allowed.
 *
 * Thread rule.  Calls on one object must not be concurrent.  They do not call the instance.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BOUNDS         the object does not fit into the region
 *   XPORT_ERR_INVALID        mr is not a region; object is NULL; *attr or offset is not allowed; the region does not begin at
 *                            a multiple of 8, or has XPORT_ATOMIC_NIC
 *   XPORT_ERR_NO_MEMORY      out of memory
 *   XPORT_ERR_NOT_SUPPORTED  *attr sets an unknown field
 */
int xport_versioned_create(xport_mr *mr, uint64_t offset, const struct xport_versioned_attr *attr,
                           xport_versioned **object) XPORT_CHECK;

/*
 * xport_versioned_destroy - free the handle of an object.
 *
 * The memory of the object stays as it is.  `object` may be NULL.
 */
void xport_versioned_destroy(xport_versioned *object);

/*
 * xport_versioned_write - replace all bytes of an object.
 *
 * Readers get the old bytes or the new ones.  The call does not wait.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_AGAIN      a peer is writing; COPIES: the grace period of the oldest copy has not passed
 *   XPORT_ERR_INVALID    an argument is NULL
 */
int xport_versioned_write(xport_versioned *object, const void *data) XPORT_CHECK;

/*
 * xport_versioned_recover - release the lock of a peer that was lost while it wrote.
 *
 * Call it only if no other peer can be writing.  Otherwise that peer's bytes mix with those of the next writer; its own
 * write ends with XPORT_ERR_AGAIN, and must be repeated.  If the lost peer stopped in the middle of a write, readers get
 * XPORT_ERR_AGAIN until the next write.
 *
 * If peers map the memory (xport_rkey_info.direct, as with ucx:shm), a peer that was suspended and reported lost can
 * still write after it resumes.  Then call it only if the process is known to be dead.  Otherwise make the object again
 * in another region, and deregister this one.
 *
 * Returns 1 if there was a lock, otherwise 0.
 */
int xport_versioned_recover(xport_versioned *object);

/*
 * xport_versioned_peer_create - make a handle for an object of a peer.
 *
 * The object begins `offset` bytes into the region of the key.  Keep endpoint and key until xport_versioned_peer_destroy.
 *
 * Thread rule.  That of the instance.  If the instance locks, any thread may poll and call xport_versioned_peer_step.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID        an argument is NULL; *attr is not allowed
 *   XPORT_ERR_NO_MEMORY      out of memory; over the limit of locked memory
 *   XPORT_ERR_NOT_SUPPORTED  *attr sets an unknown field
 *   another error of xport_mr_alloc
 */
int xport_versioned_peer_create(xport *x, xport_ep *ep, xport_rkey *rkey, uint64_t offset,
                                const struct xport_versioned_attr *attr, xport_versioned_peer **peer) XPORT_CHECK;

/*
 * xport_versioned_peer_destroy - free the handle for an object of a peer.
 *
 * No read or write may be in progress.  `peer` may be NULL.
 */
void xport_versioned_peer_destroy(xport_versioned_peer *peer);

/*
 * xport_versioned_peer_read - start to read all bytes of an object into `data`.
 *
 * Only one read or write may be in progress.  Its operations have `peer` as xport_completion.context.  Call
 * xport_versioned_peer_step until it returns a result.  `data` belongs to the library until then.  A full queue is no
 * error: the read waits for space.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BUSY       a read or write is in progress
 *   XPORT_ERR_INVALID    an argument is NULL
 *   another error of xport_get
 */
int xport_versioned_peer_read(xport_versioned_peer *peer, void *data) XPORT_CHECK;

/*
 * xport_versioned_peer_write - start to replace all bytes of an object by `data`.
 *
 * As xport_versioned_peer_read.  Only its owner may write an object of the form COPIES.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BUSY           a read or write is in progress
 *   XPORT_ERR_INVALID        an argument is NULL
 *   XPORT_ERR_NOT_SUPPORTED  the object has the form COPIES
 *   another error of xport_atomic
 */
int xport_versioned_peer_write(xport_versioned_peer *peer, const void *data) XPORT_CHECK;

/*
 * xport_versioned_peer_step - continue a read or write.
 *
 * Call it with each completion whose context is `peer`.  While a read or write is in progress, also call it with NULL
 * whenever xport_poll or xport_wait has returned, before other operations use the space in the queue.  A queue was full
 * then, and no operation is posted whose completion would come; xport_wait returns, and xport_fd is readable, when there
 * is space.  If an operation is posted, a call with NULL does nothing.
 *
 * After an error of a write the lock may still be held: see xport_versioned_recover.
 *
 * Returns 1 if the read or write is in progress, XPORT_OK if it succeeded, or
 *   XPORT_ERR_AGAIN      the bytes changed during each try; others held the lock; the lock was taken from this write,
 *                        which must be repeated
 *   XPORT_ERR_INVALID    peer is NULL; the completion has another context; no read or write is in progress
 *   the status of the operation that failed
 */
int xport_versioned_peer_step(xport_versioned_peer *peer, const struct xport_completion *completion) XPORT_CHECK;

/*
 * xport_versioned_peer_wait - poll until a read or write has ended.
 *
 * Completions of others go to `other`; NULL drops them.  Call it only if no other thread polls.  Another thread's
 * xport_versioned_peer_step may return the result; then this call sleeps on, and returns XPORT_ERR_INVALID.
 *
 * Returns what xport_versioned_peer_step returns at the end, or
 *   XPORT_ERR_INVALID    no read or write is in progress
 *   XPORT_ERR_TIMEOUT    `timeout_ms` passed; the read or write is still in progress
 *   an error of xport_wait
 */
int xport_versioned_peer_wait(xport_versioned_peer *peer, xport_completion_fn other, void *arg,
                              int timeout_ms) XPORT_CHECK;

/*
 * xport_versioned_peer_version - get the version of the last read or write that succeeded.
 *
 * Each write adds 2.
 *
 * Returns the version; 0 before the first one.
 */
uint64_t xport_versioned_peer_version(const xport_versioned_peer *peer);

/*
 * xport_versioned_peer_retries - get the number of reads that were repeated.
 *
 * Returns the number since the handle was made.
 */
uint64_t xport_versioned_peer_retries(const xport_versioned_peer *peer);

#ifdef __cplusplus
}
#endif

#endif
