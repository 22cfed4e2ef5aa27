/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bulk.h - descriptors of memory in pieces, and the transfer engine of an instance.
 *
 * A transfer is in the list of open ones until DONE, and in the queue of its peer while it has bytes to post. It is
 * posted in chunks: one operation of libxport each, of one region, with at most IOV_MAX pieces.
 *
 *	QUEUED --> IN FLIGHT --> DONE
 *
 * DONE is reached from either state by an error, the deadline or a cancel. Its operations go on then.
 *
 * A peer is in `ready` while it has a queue, unless its own limit is reached. `stalled`: its endpoint took no more
 * operations.
 *
 * Locks: `lock` guards the transfers. A descriptor does not change; its users are counted.
 */
#ifndef SVC_BULK_H
#define SVC_BULK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "services/ring.h"
#include "services/slots.h"
#include "services/xport_services.h"

enum {
	SVC_BULK_KEY_MAX = 118,   /* bytes of a packed key: a region adds less than 128 */
	SVC_BULK_IOV_MAX = 64,    /* pieces of an operation */
	SVC_BULK_CHUNK = 1 << 20, /* bytes of an operation */
	SVC_BULK_INLINE = 4,      /* local pieces that need no memory of their own */
	SVC_BULK_SORT_MAX = 65536 /* pieces that are compared with each other */
};

/* ---- bulk_wire.c ---- */

struct svc_bulk_key {
	uint64_t length; /* of the part that it opens */
	uint16_t len;
	uint8_t bytes[SVC_BULK_KEY_MAX];
};

struct svc_bulk_run {
	uint64_t start; /* in the bytes of the descriptor; set by svc_bulk_check */
	uint64_t offset, length, stride;
	uint32_t count;
	uint16_t key;
};

struct svc_bulk_desc {
	uint64_t incarnation, sum;
	uint64_t length, pieces; /* set by svc_bulk_check */
	uint32_t rights;
	uint16_t flags, nkeys, nruns;
	char owner[XPORT_BULK_OWNER_MAX + 1];
	struct svc_bulk_key *key;
	struct svc_bulk_run *run;
};

/* Whether the owner's address can be one: printable, or "". */
bool svc_bulk_owner_valid(const char *owner);
/*
 * Checks the runs, and sets what follows from them. Returns XPORT_OK, BOUNDS, INVALID or NO_MEMORY; *why says what is
 * wrong, and *at is the run.
 */
int svc_bulk_check(struct svc_bulk_desc *d, const char **why, size_t *at);
size_t svc_bulk_packed(const struct svc_bulk_desc *d);
/* Writes svc_bulk_packed bytes. */
void svc_bulk_encode(const struct svc_bulk_desc *d, void *buf);
/*
 * Reads and checks a descriptor, which svc_bulk_desc_fini frees. Returns XPORT_OK, BAD_KEY or NO_MEMORY; then nothing
 * is left, and *why says what is wrong.
 */
int svc_bulk_decode(const void *buf, size_t len, struct svc_bulk_desc *d, const char **why);
void svc_bulk_desc_fini(struct svc_bulk_desc *d);

/* A place in the bytes of a descriptor. */
struct svc_bulk_at {
	uint32_t run, piece;
	uint64_t byte; /* in the piece */
};

struct svc_bulk_at svc_bulk_seek(const struct svc_bulk_desc *d, uint64_t offset);
/* Goes to the end of the piece, or by `max` bytes. *from is where they are in their region. Returns how many. */
uint64_t svc_bulk_go(const struct svc_bulk_desc *d, struct svc_bulk_at *at, uint64_t max, uint64_t *from);

/* ---- bulk.c ---- */

/* own: the part of a region that a key opens, from the first of its pieces to the end of the last one. */
struct svc_bulk_part {
	xport_mr *mr;
	uint8_t *base;  /* of the region; later of the part */
	uint64_t start; /* of the part, in the region */
	bool packed;
};

struct xport_bulk {
	struct svc_bulk_desc d;
	_Atomic unsigned users; /* references beyond the first */
	_Atomic bool
		doubtful;  /* a peer that it was passed to has not confirmed that it no longer accesses the memory */
	bool own;          /* from xport_bulk_create */
	bool inexact;      /* of some key, as xport_rkey_info.exact tells */
	xport_ep *ep;      /* it was unpacked on it */
	xport *_Atomic x;  /* the instance of ep, once that is known; own: its instance */
	xport_rkey **rkey; /* ep: of each key */
	struct svc_bulk_part *part; /* own: of each key */
};

void svc_bulk_hold(struct xport_bulk *bulk);
/* Whether it is of this instance: own, or unpacked on an endpoint of it, or unpacked on none. */
bool svc_bulk_of(struct xport_bulk *bulk, xport *x);
/* Whether a transfer, or a call that passes it on, holds it. */
static inline bool svc_bulk_held(const struct xport_bulk *bulk)
{
	return atomic_load(&bulk->users) > 0;
}
/* Counts how often a descriptor of this process came to be held by nobody. */
extern _Atomic unsigned svc_bulk_idles;
/*
 * As xport_bulk_unpack, of bytes that came on the endpoint. If the owner is not this peer, the descriptor has no endpoint.
 * The error is not for the application.
 */
int svc_bulk_unpack_for(xport_ep *ep, const void *buf, size_t len, xport_bulk **bulk);

/* ---- transfers ---- */

struct svc_bulk_peer {
	struct svc_bulk_peer *next; /* of its bucket */
	xport_ep *ep;
	struct svc_link turn;  /* in bulks.ready or bulks.stalled */
	struct svc_link queue; /* of transfers */
	uint64_t in_flight;    /* bytes */
	unsigned ops;          /* operations in flight */
	unsigned transfers;    /* that are queued or in flight; it is freed with the last one */
};

struct svc_bulk_transfer {
	struct svc_link event;   /* in bulks.events */
	struct svc_link open;    /* in bulks.open until DONE */
	struct svc_link of_peer; /* in peer->queue while there is something to post */
	struct svc_bulk_peer *peer;
	struct xport_bulk *bulk; /* NULL: nothing more of it is in flight */
	xport_ep *ep;
	uint64_t id;
	int64_t until;
	void *context;
	uint32_t flags;
	bool push;
	bool whole; /* a pull of all bytes of an XPORT_BULK_CHECKED descriptor */
	bool checked;
	bool done, released; /* events that were not taken */
	int status;          /* the first failure */
	const char *why;
	uint64_t left; /* bytes to post */
	uint64_t moved, sum;
	unsigned in_flight; /* operations */
	struct svc_bulk_at at;
	size_t nlocal, piece; /* the next local byte is in this piece, */
	size_t byte;          /* here */
	struct xport_iov *local;
	struct xport_iov few[SVC_BULK_INLINE];
};

/* An operation in flight; its address is the context of the completion. */
struct svc_bulk_op {
	struct svc_bulk_transfer *transfer; /* NULL: free */
	struct svc_bulk_op *next;
	uint64_t bytes;
};

enum { SVC_BULK_OPS = 1024, SVC_BULK_PEER_OPS = SVC_BULK_OPS / 4, SVC_BULK_BUCKETS = 256 };

struct xport_bulks {
	pthread_mutex_t lock;
	xport *x;
	struct xport_bulks_attr a;
	struct svc_slots slots;
	struct svc_bulk_transfer *transfer; /* one for each slot */
	struct svc_bulk_op *op, *free_ops;
	unsigned used_ops;
	struct svc_bulk_peer *bucket[SVC_BULK_BUCKETS];
	struct svc_link ready, stalled, open, events;
	_Atomic bool any_event; /* without the lock: false if `events` is empty */
	int64_t next_deadline;  /* no open transfer has an earlier one */
	uint32_t deadline_ends; /* as of xport_info */
	bool destroying;
	struct xport_bulks_info info;
};

/* ---- bulk_transfer.c ---- */

/* The checksum of these pieces. Needs no lock. */
uint64_t svc_bulk_sum(const struct xport_iov *local, size_t nlocal);

/* All that follow need the lock. */

/*
 * Starts a transfer whose arguments are checked. `sum`: of the bytes of a push, or of no bytes. Returns XPORT_OK, or an
 * error that is described.
 */
int svc_bulk_begin(struct xport_bulks *b, struct xport_bulk *bulk, const struct xport_bulk_args *a, uint64_t length,
                   bool push, uint64_t sum, const char *operation);
/* Ends it now; its operations go on. */
void svc_bulk_end(struct xport_bulks *b, struct svc_bulk_transfer *t, int status, const char *why);
/* Ends those of the endpoint that have something to post. */
void svc_bulk_peer_ended(struct xport_bulks *b, const xport_ep *ep, int status);
/* The operation of this context; NULL: it is not one. */
struct svc_bulk_op *svc_bulk_op_of(const struct xport_bulks *b, const struct xport_completion *c);
/*
 * Returns the transfer if all bytes of a pull are here with this operation, and need their checksum; or NULL. The caller
 * computes it by svc_bulk_sum without the lock, since it takes long. The transfer stays meanwhile: the operation counts
 * as in flight until svc_bulk_op_done.
 */
struct svc_bulk_transfer *svc_bulk_op_sums(const struct svc_bulk_op *op, int status);
/* `sum`: of the transfer that svc_bulk_op_sums returned; NULL: it returned none. */
void svc_bulk_op_done(struct xport_bulks *b, struct svc_bulk_op *op, int status, const uint64_t *sum);
/* Ends what has expired, and posts as much as the limits allow. */
void svc_bulk_work(struct xport_bulks *b);
/* Milliseconds until svc_bulk_work must run, 0 if there is an event; -1: no need. */
int svc_bulk_work_timeout(const struct xport_bulks *b);
/* Takes the next event. Returns whether there was one. */
bool svc_bulk_event(struct xport_bulks *b, struct xport_bulk_event *event);
/* Frees what a transfer has, in whatever state. */
void svc_bulk_transfer_fini(struct xport_bulks *b, struct svc_bulk_transfer *t);

#endif
