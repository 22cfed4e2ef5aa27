/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport_leases.h - memory that one process lends to another.  Included by xport_services.h.
 *
 * There are two ways to start a lease:
 * - A borrower asks a peer for memory (xport_lease_ask).  The peer serves it from its quota.
 * - A lender gives a region of its own to a peer (xport_lease_give).
 *
 * A lease ends when the borrower returns it or hands the memory over (xport_lease_hand_over), the lender revokes it, or the endpoint between them ends.  Then the memory is
 * deregistered: the borrower's key is XPORT_ERR_STALE_KEY from then on.  Once the lender has XPORT_LEASE_ENDED, no access
 * of the borrower reaches the memory (see xport_mr_dereg).
 *
 * An instance has one xport_leases, for both roles and all peers.  The event loop of the application moves it: pass
 * each polled completion to xport_leases_step, and take events from xport_leases_next.  These calls do not wait,
 * with two exceptions: functions named _wait and xport_leases_destroy wait, and a deregistration waits as xport_mr_dereg
 * does.  xport_leases_step and xport_leases_forget deregister; so does xport_lease_revoke if patience_ms is -1, or if the
 * borrower cannot be notified.
 *
 * Messages.  The leases of two peers send each other messages with the tag xport_leases_attr.tag, which is the same at all
 * peers.  The application must not send with this tag, nor post a receive that matches it (one with mask 0 does).  Messages
 * with other tags are not touched.
 *
 * Trust.  Every peer with an endpoint may ask.  quota, peer_quota and max_leases limit what it gets, and `allow` can refuse.
 * Memory is zeroed before it is lent.  A key reaches the memory of one lease only.  A peer can end only leases between it
 * and this process.  A peer that breaks the protocol is muted: its leases end with XPORT_ERR_PROTOCOL, and its messages are
 * ignored until its endpoint ends.
 *
 * Thread rule.  That of the instance.  If the instance locks, any thread may call.
 */
#ifndef XPORT_LEASES_H
#define XPORT_LEASES_H

#ifndef XPORT_SERVICES_H
#error include xport_services.h
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The leases of an instance. */
typedef struct xport_leases xport_leases;
/* One lease. */
typedef struct xport_lease xport_lease;

/* Flags of xport_leases_attr. */
enum {
	XPORT_LEASES_TAKE = 1,     /* peers may give regions */
	XPORT_LEASES_HAND_OVER = 2 /* borrowers may hand memory over (xport_lease_hand_over) */
};

/*
 * Decides whether a peer may have `length` bytes with these rights.  Returns XPORT_OK, or the status to refuse with.
 * xport_leases_step calls it.  It must not call a function on leases.
 */
typedef int (*xport_lease_allow_fn)(void *arg, xport_ep *ep, uint64_t length, uint32_t rights);

/* Options of xport_leases_create.  NULL instead of the struct: peers may neither ask nor give; this process may. */
struct xport_leases_attr {
	size_t size;
	uint64_t tag;        /* of the messages; default 0x78706f72746c7300 */
	uint64_t quota;      /* bytes lent at a time to peers that ask; 0: peers may not ask */
	uint64_t peer_quota; /* of these, to one peer; 0: all */
	/* Leases started by one peer: all that are not freed, and all revoked ones without an answer.  Default 64. */
	uint32_t max_leases;
	uint32_t flags;             /* XPORT_LEASES_TAKE, XPORT_LEASES_HAND_OVER */
	int patience_ms;            /* time for a borrower to answer xport_lease_revoke; default 1000, -1: none */
	xport_pool *pool;           /* source of the memory; NULL: xport_mr_alloc, which peers on one host map */
	xport_lease_allow_fn allow; /* NULL: the quota alone decides */
	void *arg;                  /* for `allow` */
};

/*
 * xport_leases_create - make the leases of an instance.
 *
 * It posts a quarter of the receives that the instance may have (XPORT_QUEUE_DEPTH), at most 32.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_AGAIN          no receive could be posted: too many are posted already
 *   XPORT_ERR_INVALID        x or leases is NULL; a field of *attr is not allowed
 *   XPORT_ERR_NO_MEMORY      out of memory
 *   XPORT_ERR_NOT_SUPPORTED  *attr sets an unknown field
 */
int xport_leases_create(xport *x, const struct xport_leases_attr *attr, xport_leases **leases) XPORT_CHECK;

/*
 * xport_leases_destroy - end all leases, tell the peers, and free all.
 *
 * It polls until its own operations have ended.  Other completions go to `other`; NULL drops them.  `leases` may be NULL.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BUSY       a posted receive uses lent memory: cancel it, then call again
 *   XPORT_ERR_INVALID    timeout_ms is below -1
 *   XPORT_ERR_TIMEOUT    `timeout_ms` passed; a message to a peer is still in flight: close that endpoint or call again;
 *                        no other call is allowed
 *   an error of xport_wait
 */
int xport_leases_destroy(xport_leases *leases, xport_completion_fn other, void *arg, int timeout_ms);

/*
 * xport_leases_step - take a completion, and continue.
 *
 * Call it with each polled completion, and with NULL when the time of xport_leases_timeout has passed.
 *
 * Returns 1 if the completion belongs to the leases, 0 if it belongs to the application (XPORT_EVENT_LOST and
 * XPORT_EVENT_CLOSED always do), or
 *   XPORT_ERR_INVALID    leases is NULL
 */
int xport_leases_step(xport_leases *leases, const struct xport_completion *completion);

/*
 * xport_leases_timeout - get the time until xport_leases_step must be called with NULL.
 *
 * Returns milliseconds, or -1 if no call is needed before the next completion.
 */
int xport_leases_timeout(xport_leases *leases);

/*
 * xport_leases_forget - end the leases of an endpoint.
 *
 * Call it for an endpoint whose end was not reported by an event, between xport_ep_close and xport_ep_destroy.  Messages of
 * an endpoint that is still open would start its leases again.  Before xport_ep_destroy of any endpoint, all completions
 * that other threads have polled must have gone to xport_leases_step.  Lent memory is deregistered, which waits as in
 * xport_lease_revoke.
 */
void xport_leases_forget(xport_leases *leases, xport_ep *ep);

/* The type of an event. */
typedef enum xport_lease_event_type {
	XPORT_LEASE_GRANTED = 1, /* borrower: the peer granted what was asked for */
	XPORT_LEASE_GIVEN = 2,   /* borrower: a peer gave a region */
	XPORT_LEASE_LENT = 3,    /* lender: a peer asked, and was served */
	XPORT_LEASE_TAKEN = 4,   /* lender: the peer has the region that was given */
	XPORT_LEASE_ENDED = 5,   /* the last event of a lease: call xport_lease_free */
	XPORT_LEASE_HANDED = 6,  /* lender, instead of ENDED: the memory is this process's, until xport_lease_free */
	XPORT_LEASE_KEPT = 7     /* borrower: the hand-over was refused, and the lease is as before */
} xport_lease_event_type;

/*
 * An event.  `status` of XPORT_LEASE_ENDED:
 *
 *   XPORT_OK                the borrower returned it
 *   XPORT_ERR_STALE_KEY     the lender revoked it
 *   XPORT_ERR_PEER_LOST, XPORT_ERR_PEER_CLOSED, XPORT_ERR_CLOSED
 *                           the endpoint ended, or the peer's leases were destroyed
 *   XPORT_ERR_PROTOCOL      the peer was muted
 *   XPORT_ERR_NO_MEMORY     no memory to answer the peer: all leases with it end; the peer sees XPORT_ERR_PEER_CLOSED, and
 *                           both may start new leases
 *
 * `status` of XPORT_LEASE_HANDED is XPORT_OK.  That of XPORT_LEASE_KEPT:
 *
 *   XPORT_ERR_BUSY          a posted receive of the lender uses the memory
 *   XPORT_ERR_NO_MEMORY     the lender has no memory for a copy
 *   XPORT_ERR_NOT_SUPPORTED the lender does not set XPORT_LEASES_HAND_OVER
 *
 * If no event of the lease came before, the peer refused it:
 *
 *   XPORT_ERR_ACCESS        the peer does not lend these rights, or its `allow` refused
 *   XPORT_ERR_BUSY          too many leases
 *   XPORT_ERR_INVALID       rights that cannot be combined
 *   XPORT_ERR_NO_MEMORY     over the peer's quota, or the peer is out of memory
 *   XPORT_ERR_NOT_SUPPORTED the peer serves nobody, or takes nothing
 */
struct xport_lease_event {
	size_t size;
	int type;   /* enum xport_lease_event_type */
	int status; /* enum xport_status */
	xport_lease *lease;
	xport_ep *ep;
	void *context; /* of xport_lease_ask or xport_lease_give */
};

/*
 * xport_leases_next - get the next event.
 *
 * Set event->size before the call.
 *
 * Returns 1, 0 if there is no event, or
 *   XPORT_ERR_INVALID    an argument is NULL; event->size is wrong
 */
int xport_leases_next(xport_leases *leases, struct xport_lease_event *event) XPORT_CHECK;

/*
 * xport_leases_wait - poll until there is an event, and get it.
 *
 * Other completions go to `other`; NULL drops them.  Set event->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; event->size is wrong; timeout_ms is below -1
 *   XPORT_ERR_TIMEOUT    `timeout_ms` passed
 *   an error of xport_wait
 */
int xport_leases_wait(xport_leases *leases, struct xport_lease_event *event, xport_completion_fn other, void *arg,
                      int timeout_ms) XPORT_CHECK;

/*
 * xport_lease_ask - ask a peer for memory.
 *
 * `rights` is enum xport_rights.  XPORT_LEASE_GRANTED or XPORT_LEASE_ENDED follows.  The caller owns the lease until
 * xport_lease_free.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; ep is not a connected endpoint; length or rights is 0; unknown rights; the leases are being
 *                        destroyed
 *   XPORT_ERR_NO_MEMORY  out of memory
 *   XPORT_ERR_PROTOCOL   the peer was muted
 *   the reason why the endpoint is not open
 */
int xport_lease_ask(xport_leases *leases, xport_ep *ep, uint64_t length, uint32_t rights, void *context,
                    xport_lease **lease) XPORT_CHECK;

/*
 * xport_lease_give - give a whole region, with its rights, to a peer.
 *
 * XPORT_LEASE_TAKEN or XPORT_LEASE_ENDED follows.  From now on the lease owns the region, and deregisters it before
 * XPORT_LEASE_ENDED.  Memory of xport_mr_reg belongs to the application again then.  After an error the region belongs to
 * the caller.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; ep is not a connected endpoint; the region grants peers no rights; the leases are being
 *                        destroyed
 *   XPORT_ERR_NO_MEMORY  out of memory
 *   XPORT_ERR_PROTOCOL   the peer was muted
 *   the reason why the endpoint is not open
 */
int xport_lease_give(xport_leases *leases, xport_ep *ep, xport_mr *mr, void *context, xport_lease **lease) XPORT_CHECK;

/*
 * xport_lease_return - return a lease, as its borrower.
 *
 * Operations that use the memory should have completed.  Those in flight may end with XPORT_ERR_STALE_KEY.
 * XPORT_LEASE_ENDED follows.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_CLOSED     the lease has ended, or is ending
 *   XPORT_ERR_INVALID    lease is NULL; this process is the lender; the lease is not granted yet
 */
int xport_lease_return(xport_lease *lease);

/*
 * xport_lease_hand_over - make borrowed memory the lender's, as its borrower.
 *
 * The lender gets one event, XPORT_LEASE_HANDED, and xport_lease_info.base.  All bytes are there that were put before
 * this call on the endpoint of the lease.  From then on no access of the borrower reaches them.  They stay until the
 * lender calls xport_lease_free.  Until then memory that was asked for counts in the quota.
 *
 * The borrower gets XPORT_LEASE_ENDED with XPORT_OK, or XPORT_LEASE_KEPT: then the lease is as before.  If the lender
 * revokes at the same time, the revocation wins: XPORT_LEASE_ENDED with XPORT_ERR_STALE_KEY.  If the endpoint ends
 * first, the borrower does not know whether the lender has the memory.
 *
 * Nothing is copied if the lender serves from a pool, or gave a region of xport_mr_reg.  Other memory is freed with its
 * registration: the lender copies it first.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BUSY       operations with the key of the lease are in flight: reap their completions first
 *   XPORT_ERR_CLOSED     the lease has ended, or is ending
 *   XPORT_ERR_INVALID    lease is NULL; this process is the lender; the lease is not granted yet
 *   XPORT_ERR_NO_MEMORY  out of memory
 */
int xport_lease_hand_over(xport_lease *lease) XPORT_CHECK;

/*
 * xport_lease_revoke - take memory back, as its lender.
 *
 * The borrower is notified, and has patience_ms to answer; its xport_leases answers by itself.  Then the memory is deregistered,
 * and XPORT_LEASE_ENDED follows.  If patience_ms is -1, or the borrower cannot be notified, this call deregisters it.
 *
 * If the network carries puts and gets, a deregistration waits for an answer of the borrower's library.  That is short if
 * the borrower lives.  Otherwise it takes until the silent peer is reported lost.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_CLOSED     the lease has ended, or is ending
 *   XPORT_ERR_INVALID    lease is NULL; this process is the borrower
 */
int xport_lease_revoke(xport_lease *lease);

/*
 * xport_lease_wait - poll until nothing is in progress on a lease.
 *
 * That is: until it was granted or taken, or has ended.  xport_leases_next does not return the events that were waited for.
 * Other completions go to `other`; NULL drops them.
 *
 * Returns XPORT_OK if it was granted or taken, or was returned, handed over or revoked as requested, or
 *   XPORT_ERR_INVALID    lease is NULL; timeout_ms is below -1
 *   XPORT_ERR_TIMEOUT    `timeout_ms` passed; it is still in progress
 *   an error of xport_wait
 *   another status of xport_lease_event: the peer refused, or the lease ended or was kept
 */
int xport_lease_wait(xport_lease *lease, xport_completion_fn other, void *arg, int timeout_ms) XPORT_CHECK;

/*
 * xport_lease_free - free a lease that has ended, and the borrower's key.
 *
 * `lease` may be NULL.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BUSY    the lease has not ended
 */
int xport_lease_free(xport_lease *lease);

/* The state of a lease. */
typedef enum xport_lease_state {
	XPORT_LEASE_ASKING = 0, /* asked for or given, without an answer of the peer */
	XPORT_LEASE_HELD = 1,
	XPORT_LEASE_ENDING = 2,
	XPORT_LEASE_OVER = 3
} xport_lease_state;

/* A lease. */
struct xport_lease_info {
	size_t size;
	int state;  /* enum xport_lease_state */
	int status; /* OVER: as in XPORT_LEASE_ENDED */
	int lender; /* 1: the memory belongs to this process */
	uint32_t rights;
	uint64_t length;
	xport_ep *ep; /* NULL: it has ended */
	/* Borrower: the key, valid until xport_lease_free.  The lease begins at offset 0.  NULL: not granted. */
	xport_rkey *rkey;
	void *base; /* lender: the memory, also after XPORT_LEASE_HANDED; NULL: it has ended */
	void *context;
};

/*
 * xport_lease_query - get the state of a lease.
 *
 * Set info->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; info->size is wrong
 */
int xport_lease_query(const xport_lease *lease, struct xport_lease_info *info) XPORT_CHECK;

/*
 * xport_lease_set_context - set the context of a lease.
 *
 * It replaces that of xport_lease_ask or xport_lease_give.  A lease that a peer started has none before.
 */
void xport_lease_set_context(xport_lease *lease, void *context);

/* The state of all leases of an instance. */
struct xport_leases_info {
	size_t size;
	uint64_t lent;       /* leases of this process's memory that have not ended */
	uint64_t lent_bytes; /* of the quota, in use; also memory that was handed over and not freed */
	uint64_t borrowed;   /* leases of peers' memory that have not ended */
	uint64_t refused;    /* requests of peers that were refused, since it was made */
	uint64_t muted;      /* peers that were muted, since it was made */
};

/*
 * xport_leases_query - get the state of all leases of an instance.
 *
 * Set info->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; info->size is wrong
 */
int xport_leases_query(xport_leases *leases, struct xport_leases_info *info) XPORT_CHECK;

#ifdef __cplusplus
}
#endif

#endif
