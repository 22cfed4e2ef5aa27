/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport_bulk.h - bulk transfer of non-contiguous registered memory.  Included by xport_services.h.
 *
 * The owner describes memory of its regions by a descriptor (xport_bulk_create).  It packs the descriptor to bytes, and
 * sends the bytes by any means, for example in the payload of a call.  A peer unpacks the bytes on its endpoint to the
 * owner, and then reads (xport_bulk_pull) or writes (xport_bulk_push) any range of the described memory.  Each transfer
 * has one completion, however many pieces there are.
 *
 * Third party.  The bytes are not bound to the process that got them first.  A process that cannot or need not access the
 * memory forwards them as they are.  Any process with an endpoint to the owner may unpack them.  xport_bulk_query tells the
 * owner's address and incarnation.
 *
 * Create one xport_bulks per instance.  The application's event loop drives it: pass each polled completion to
 * xport_bulks_step, and take events from xport_bulks_next.  It has no thread of its own.  Only xport_bulks_wait and
 * xport_bulks_destroy wait.
 *
 * Budget.  At most xport_bulks_attr.max_in_flight bytes are in flight at a time, and at most max_per_peer bytes with
 * each endpoint.  At most 1024 operations, of up to 64 pieces each, are in flight, and at most 256 with each endpoint.
 * Further transfers wait.  The transfers of an endpoint go in their order, and the endpoints take turns.
 *
 * Deadline.  Each transfer has one.  It counts from xport_bulk_pull or xport_bulk_push on, and includes the time in the
 * queue.  When it expires, the transfer is done with XPORT_ERR_TIMEOUT, and nothing more of it is posted.
 * XPORT_BULK_DONE tells whether the local memory is free.  If it is not, XPORT_BULK_RELEASED follows.
 *
 * Release.  libxport withdraws at the deadline what it carries itself: pulls if xport_info.deadline_ends does not have the
 * bit of XPORT_OP_GET, and pushes if it does not have that of XPORT_OP_PUT.  The network cannot withdraw what it carries:
 * it is released when the owner goes on, or when the endpoint ends.  Until then it holds its local memory, its part of the
 * budget and its place of max_transfers.  Close the endpoint to get them back.
 *
 * Calls.  A call passes descriptors by xport_rpc_args.bulks (see xport_rpc.h).  The caller's memory is its own again with
 * XPORT_RPC_RELEASED.
 *
 * Trust.  A descriptor from a peer may be any bytes.  The keys of a descriptor open a part of each region: from the first
 * of its pieces to the end of the last one, with the rights of the descriptor alone.  The library refuses all accesses to
 * other bytes than the pieces.  A malicious peer may use another program.  Then xport_bulk_info.exact tells what it reaches:
 * 1: these parts, with these rights; 0: what the network allows, at least the whole regions with all of their rights.
 *
 * End.  The rights of a descriptor end with xport_bulk_free by its owner, as xport_rkey_revoke describes.  A descriptor that
 * a call passes (xport_rpc_args.bulks) is kept until the call has ended and its memory is released.
 *
 * Thread rule.  That of the instance.  If the instance locks, any thread may call.
 */
#ifndef XPORT_BULK_H
#define XPORT_BULK_H

#ifndef XPORT_SERVICES_H
#error include xport_services.h
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A descriptor of memory in pieces. */
typedef struct xport_bulk xport_bulk;
/* The transfer engine of an instance. */
typedef struct xport_bulks xport_bulks;

enum {
	XPORT_BULK_REGIONS_MAX = 64,      /* regions of a descriptor */
	XPORT_BULK_RUNS_MAX = 4096,       /* runs of a descriptor */
	XPORT_BULK_OWNER_MAX = 63,        /* length of the owner's address */
	XPORT_BULK_DEADLINE_MAX = 86400000 /* the longest deadline in milliseconds: one day */
};

/* ---- Descriptors ---- */

/* A run of pieces of one region, equally long and equally far apart.  Its layout is fixed. */
struct xport_bulk_run {
	xport_mr *mr;    /* the region */
	uint64_t offset; /* where the first piece begins, from the start of the region */
	uint64_t length; /* bytes of a piece, at least 1 */
	uint64_t stride; /* from the start of a piece to the start of the next one; not used with one piece */
	uint64_t count;  /* pieces, 1 to 2^32 - 1 */
};

/* Flags of a descriptor. */
enum {
	/* The descriptor has a checksum of the bytes.  A pull of all of them compares it.  The bytes must not change until
	   the last pull, so this cannot be combined with XPORT_REMOTE_WRITE. */
	XPORT_BULK_CHECKED = 1
};

/* Options of xport_bulk_create. */
struct xport_bulk_attr {
	size_t size;
	uint32_t rights;   /* XPORT_REMOTE_READ for pulls, XPORT_REMOTE_WRITE for pushes, or both; there is no default */
	uint32_t flags;    /* 0 or XPORT_BULK_CHECKED */
	const char *owner; /* address of a listener of this instance, for a third party; copied; NULL: none */
};

/*
 * xport_bulk_create - describe memory of this process.
 *
 * The bytes of the descriptor are those of the pieces, in the order of the runs.  Do not deregister a region before the
 * last transfer with the descriptor has ended, or before the last xport_bulk_sum.
 *
 * Pieces of different regions are not compared, even if the regions have the same memory.  Until xport_bulk_free the
 * descriptor occupies a part of each of its regions, as xport_rkey_pack_range does.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_ACCESS         a region does not grant attr->rights
 *   XPORT_ERR_BOUNDS         a run is not inside its region
 *   XPORT_ERR_INVALID        an argument is NULL; attr->size, rights, flags or owner is not allowed; there are no runs,
 *                            or more than XPORT_BULK_RUNS_MAX, or of more than XPORT_BULK_REGIONS_MAX regions; the
 *                            length or count of a run is 0, or the count is above 2^32 - 1; the pieces have more than
 *                            2^63 - 1 bytes together; a region is of another instance; with XPORT_REMOTE_WRITE:
 *                            pieces of one region overlap, or there are more than 65536 pieces, and strided runs
 *                            interleave
 *   XPORT_ERR_NO_MEMORY      out of memory; or there are 524288 regions and parts with keys
 *   XPORT_ERR_NOT_SUPPORTED  *attr sets an unknown field; a packed key has more than 118 bytes; or a piece begins more than
 *                            2^52 bytes into its region
 */
int xport_bulk_create(xport *x, const struct xport_bulk_run *runs, size_t nruns, const struct xport_bulk_attr *attr,
                      xport_bulk **bulk) XPORT_CHECK;

/*
 * xport_bulk_pack - write a descriptor as bytes.
 *
 * `bulk` may be from xport_bulk_create or from xport_bulk_unpack.  *len is the size of `buf` before the call, and the
 * number of bytes written after it.  A descriptor of one run has less than 300 bytes, each further run 30, and each
 * further region less than 128.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BOUNDS     buf is NULL or too small; *len is set to the number of bytes needed
 *   XPORT_ERR_INVALID    bulk or len is NULL
 */
int xport_bulk_pack(const xport_bulk *bulk, void *buf, size_t *len) XPORT_CHECK;

/*
 * xport_bulk_unpack - make a peer's descriptor usable on an endpoint.
 *
 * `ep` leads to the owner of the memory.  With `ep` NULL the descriptor can only be queried and packed again.  The
 * `len` bytes at `buf` need not be trusted: any bytes are safe to pass.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BAD_KEY    the bytes are damaged, or not a descriptor; or what they describe is not allowed, as
 *                        xport_bulk_create lists; or a key allows less than the descriptor says
 *   XPORT_ERR_INVALID    buf or bulk is NULL; ep is not an endpoint, or is not connected yet
 *   XPORT_ERR_NO_MEMORY  out of memory
 *   XPORT_ERR_STALE_KEY  the owner is another process than this peer, or an earlier run of it
 *   a status of an ended endpoint
 */
int xport_bulk_unpack(xport_ep *ep, const void *buf, size_t len, xport_bulk **bulk) XPORT_CHECK;

/* What a descriptor describes. */
struct xport_bulk_info {
	size_t size;
	uint64_t length;      /* bytes of all pieces */
	uint64_t pieces;      /* number of pieces; adjacent single pieces of one region count once */
	uint64_t incarnation; /* of the owner: xport_ep_info.peer_incarnation of an endpoint to it */
	uint64_t sum;         /* XPORT_BULK_CHECKED: the checksum of all bytes */
	uint32_t rights;
	uint32_t flags;
	uint32_t packed;  /* bytes that xport_bulk_pack writes */
	uint32_t regions; /* different regions */
	char owner[64];   /* address of the owner, as the owner said; "": it said none */
	/* 1: the owner checks each access against the keys; 0: it does not, see Trust, or the descriptor was unpacked without an
	   endpoint */
	int exact;
};

/*
 * xport_bulk_query - get what a descriptor describes.
 *
 * Set info->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; info->size is wrong
 */
int xport_bulk_query(const xport_bulk *bulk, struct xport_bulk_info *info) XPORT_CHECK;

/*
 * xport_bulk_sum - compute the checksum of bytes, as their owner.
 *
 * The checksum is that of XPORT_BULK_SUM: XXH3, 64 bits.  After a push with this flag the peer sends the owner the
 * checksum of what it wrote.  The owner compares it with the result of xport_bulk_sum.  The call reads the memory: the
 * regions must be registered.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BOUNDS     the range is not inside the bytes of the descriptor
 *   XPORT_ERR_INVALID    bulk or sum is NULL; the descriptor is not from xport_bulk_create
 */
int xport_bulk_sum(const xport_bulk *bulk, uint64_t offset, uint64_t length, uint64_t *sum) XPORT_CHECK;

/*
 * xport_bulk_free - free a descriptor.
 *
 * Transfers of this process with it are not affected.  The descriptor of an owner ends for its peers, unless a call that
 * passes it is in progress: then it ends with the call.  Call it before xport_close.  Regions stay registered.  NULL is
 * allowed.
 */
void xport_bulk_free(xport_bulk *bulk);

/* ---- Transfers ---- */

/* Options of xport_bulks_create.  NULL instead of the struct: all defaults. */
struct xport_bulks_attr {
	size_t size;
	uint64_t max_in_flight; /* bytes in flight at a time; at least 65536, default 67108864 */
	/* Limit of bytes in flight per endpoint; 65536 to max_in_flight.  Default: a quarter of it, at least 65536. */
	uint64_t max_per_peer;
	uint32_t max_transfers; /* transfers in progress; 1 to 65535, default 1024 */
};

/*
 * xport_bulks_create - create the transfer engine of an instance.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID        x or bulks is NULL; a field of *attr is not allowed
 *   XPORT_ERR_NO_MEMORY      out of memory
 *   XPORT_ERR_NOT_SUPPORTED  *attr sets an unknown field
 */
int xport_bulks_create(xport *x, const struct xport_bulks_attr *attr, xport_bulks **bulks) XPORT_CHECK;

/*
 * xport_bulks_destroy - end all transfers and free all.
 *
 * Transfers in progress end without an event.  It polls until nothing of them is in flight.  Other completions go to
 * `other`; NULL drops them.  `bulks` may be NULL.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    timeout_ms is below -1
 *   XPORT_ERR_TIMEOUT    `timeout_ms` passed; an operation is still in flight: close its endpoint or call again; no other
 *                        call is allowed
 *   an error of xport_wait
 */
int xport_bulks_destroy(xport_bulks *bulks, xport_completion_fn other, void *arg, int timeout_ms);

/*
 * xport_bulks_step - take a completion, and continue.
 *
 * Call it with each polled completion, and with NULL when the time of xport_bulks_timeout has passed.
 *
 * Returns 1 if the completion belongs to the transfers, 0 if it belongs to the application (XPORT_EVENT_LOST and
 * XPORT_EVENT_CLOSED always do), or
 *   XPORT_ERR_INVALID    bulks is NULL
 */
int xport_bulks_step(xport_bulks *bulks, const struct xport_completion *completion);

/*
 * xport_bulks_timeout - get the time until xport_bulks_step must be called with NULL.
 *
 * Returns milliseconds, 0 while xport_bulks_next has an event, or -1 if no call is needed before the next completion;
 * -1 if bulks is NULL.
 */
int xport_bulks_timeout(xport_bulks *bulks);

/*
 * xport_bulks_forget - end the transfers of an endpoint that wait in the queue.
 *
 * Call it when this side has closed an endpoint, before xport_ep_destroy.
 */
void xport_bulks_forget(xport_bulks *bulks, xport_ep *ep);

/* The type of an event. */
typedef enum xport_bulk_event_type {
	XPORT_BULK_DONE = 1,    /* the transfer has ended */
	XPORT_BULK_RELEASED = 2 /* after an XPORT_BULK_DONE with `released` 0: nothing more is in flight */
} xport_bulk_event_type;

/*
 * An event.
 *
 * XPORT_BULK_DONE has all fields.  `status`:
 *
 *   XPORT_OK                all bytes have arrived; of a push: are placed in the memory of the owner
 *   XPORT_ERR_STALE_KEY     the owner freed the descriptor or deregistered a region meanwhile
 *   XPORT_ERR_PROTOCOL      the bytes do not have the checksum of XPORT_BULK_CHECKED; or the endpoint ended, because
 *                           the peer violated the protocol
 *   XPORT_ERR_TIMEOUT       the deadline expired; or the endpoint ended, because of XPORT_OP_TIMEOUT
 *   XPORT_ERR_CANCELED      xport_bulk_cancel
 *   XPORT_ERR_NO_MEMORY     out of memory
 *   another error of xport_getv or xport_putv: the endpoint ended; or an operation failed, for example with
 *                           XPORT_ERR_FAULT if local memory is not mapped
 *
 * After an error some of the bytes may have moved.
 *
 * XPORT_BULK_RELEASED has id, context, ep and `moved`.  Until then a push may still write to the memory of the owner,
 * and a pull to local memory.  It comes as soon as the operations in flight complete: at the latest when the endpoint
 * ends.  See Release.
 */
struct xport_bulk_event {
	size_t size;
	int type;     /* enum xport_bulk_event_type */
	int status;   /* enum xport_status */
	int released; /* XPORT_BULK_DONE: 1 if nothing of the transfer is in flight; 0: XPORT_BULK_RELEASED follows */
	int checked;  /* 1: the bytes have the checksum of XPORT_BULK_CHECKED; 0: they do not, or were not compared */
	uint64_t id;
	void *context;
	xport_ep *ep;    /* on which the descriptor was unpacked */
	const char *why; /* of an error, a static sentence; "" if there is none */
	uint64_t moved;  /* bytes whose operations have succeeded; with XPORT_OK all of them */
	uint64_t sum;    /* with XPORT_BULK_SUM and XPORT_OK: the checksum of the bytes */
};

/*
 * xport_bulks_next - get the next event.
 *
 * Set event->size before the call.
 *
 * Returns 1, 0 if there is no event, or
 *   XPORT_ERR_INVALID    an argument is NULL; event->size is wrong
 */
int xport_bulks_next(xport_bulks *bulks, struct xport_bulk_event *event) XPORT_CHECK;

/*
 * xport_bulks_wait - poll until there is an event, and get it.
 *
 * Other completions go to `other`; NULL drops them.  Set event->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; event->size is wrong; timeout_ms is below -1
 *   XPORT_ERR_TIMEOUT    `timeout_ms` passed
 *   an error of xport_wait
 */
int xport_bulks_wait(xport_bulks *bulks, struct xport_bulk_event *event, xport_completion_fn other, void *arg,
                     int timeout_ms) XPORT_CHECK;

/* Flags of a transfer. */
enum {
	XPORT_BULK_SUM = 1 /* compute the checksum of the local bytes for XPORT_BULK_DONE */
};

/* Arguments of xport_bulk_pull and xport_bulk_push.  The struct and the list are read during the call only. */
struct xport_bulk_args {
	size_t size;
	uint64_t offset;               /* where the range begins in the bytes of the descriptor */
	const struct xport_iov *local; /* pieces of local memory, the library's until the end of the transfer */
	size_t nlocal;                 /* how many, 1 to XPORT_BULK_RUNS_MAX; all together they have the length of the range */
	uint32_t deadline_ms;          /* 1 to XPORT_BULK_DEADLINE_MAX; there is no default */
	uint32_t flags;                /* 0 or XPORT_BULK_SUM */
	void *context;                 /* of the events */
	uint64_t *id;                  /* receives the transfer id; may be NULL */
};

/*
 * xport_bulk_pull - read a range of the described memory into local memory.
 *
 * The range and the list are checked before anything is sent.  Whether local memory is mapped shows when it is used: a
 * part of the bytes may have moved by then.  XPORT_BULK_DONE follows.
 *
 * XPORT_BULK_SUM, and XPORT_BULK_CHECKED of the descriptor, make xport_bulks_step read the bytes again when they have
 * arrived.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_ACCESS         the descriptor does not have the right
 *   XPORT_ERR_AGAIN          max_transfers transfers are in progress, or not released: take events, then call again;
 *                            if no event comes, close endpoints whose memory is not released
 *   XPORT_ERR_BOUNDS         the range is not inside the bytes of the descriptor
 *   XPORT_ERR_INVALID        an argument is NULL; args->size, nlocal, deadline_ms or flags is not allowed; a local
 *                            piece of more than 0 bytes has the address NULL, or is not inside its region; the local
 *                            pieces of a pull overlap; the descriptor was not unpacked on an endpoint of this
 *                            instance; the transfers are being destroyed
 *   XPORT_ERR_NO_MEMORY      out of memory
 *   XPORT_ERR_NOT_SUPPORTED  *args sets an unknown field
 */
int xport_bulk_pull(xport_bulks *bulks, xport_bulk *bulk, const struct xport_bulk_args *args) XPORT_CHECK;

/*
 * xport_bulk_push - write local memory to a range of the described memory.
 *
 * Like xport_bulk_pull in the other direction.  XPORT_BULK_DONE with XPORT_OK means that the bytes are placed.
 * XPORT_BULK_SUM makes the call read the bytes once more.
 *
 * Returns as xport_bulk_pull.
 */
int xport_bulk_push(xport_bulks *bulks, xport_bulk *bulk, const struct xport_bulk_args *args) XPORT_CHECK;

/*
 * xport_bulk_cancel - cancel a transfer.
 *
 * XPORT_BULK_DONE is there at once: with XPORT_ERR_CANCELED, or with the status of an operation that has failed before.
 * What is in flight is not withdrawn before the deadline: see XPORT_BULK_RELEASED.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    bulks is NULL; no transfer with this id is in progress: its XPORT_BULK_DONE is there already
 */
int xport_bulk_cancel(xport_bulks *bulks, uint64_t id);

/* The state of the transfers of an instance. */
struct xport_bulks_info {
	size_t size;
	uint64_t in_flight;     /* bytes in flight */
	uint64_t in_flight_max; /* the most so far */
	uint64_t pulled;        /* bytes, since it was made */
	uint64_t pushed;
	uint64_t done;      /* transfers that have ended, since it was made */
	uint64_t failed;    /* of these, with an error */
	uint32_t transfers; /* in progress, not released, or with an event that was not taken */
	uint32_t waiting;   /* of these, transfers with bytes that were not posted */
};

/*
 * xport_bulks_query - get the state of the transfers of an instance.
 *
 * Set info->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; info->size is wrong
 */
int xport_bulks_query(xport_bulks *bulks, struct xport_bulks_info *info) XPORT_CHECK;

#ifdef __cplusplus
}
#endif

#endif
