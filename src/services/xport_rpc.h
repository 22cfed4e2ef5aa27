/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport_rpc.h - remote procedure calls.  Included by xport_services.h.
 *
 * The callee registers methods by name (xport_rpc_register).  The caller calls a method of a peer with some bytes, and
 * gets bytes back (xport_rpc_call, xport_rpc_reply).  How the bytes are encoded is up to the application.  Long data does
 * not go into a call: pass descriptors of memory (xport_rpc_args.bulks), and the callee reads or writes the memory.
 *
 * An instance has one xport_rpcs, for both roles and all peers.  The event loop of the application moves it: pass each
 * polled completion to xport_rpcs_step, and take events from xport_rpcs_next.  It has no thread of its own.  Only
 * xport_rpcs_wait and xport_rpcs_destroy wait.
 *
 * Outcome.  Each call that xport_rpc_call accepted has exactly one XPORT_RPC_DONE, even if the peer dies.  Its field
 * `ran` says whether the handler of the callee ran: XPORT_RPC_RAN_NO means that the call may be repeated safely.
 *
 * Deadline.  Each call has one.  The caller counts from xport_rpc_call on, and includes the time in its queues.  When the
 * deadline expires, the call is done with XPORT_ERR_TIMEOUT.  The request carries the time that is left.  The callee counts
 * from the moment when xport_rpcs_step takes the request.  It drops a request whose time has passed before it was handed to
 * the application.
 *
 * Lent memory.  A call may pass descriptors of memory (xport_bulk.h) that the callee pulls from or pushes to.  The handler
 * gets them unpacked.  Its reply is sent when its transfers with them have ended.  After a deadline, or after
 * xport_rpc_cancel, the handler may still be at work.  So a call that lends memory has a second event: XPORT_RPC_RELEASED
 * follows XPORT_RPC_DONE when the callee has confirmed that it no longer accesses the memory, or cannot be heard.  The
 * call keeps its descriptors until then: xport_bulk_free may be called at once, and ends the rights of the callee then.
 *
 * A payload may also have keys, or descriptors that the application packs itself.  Then set XPORT_RPC_LENT, and the handler
 * must not reply before its accesses have ended.
 *
 * Third party.  A handler may pass a descriptor on in a call of its own.  Its reply waits until that call has released it.
 * If that call was released without a confirmation, the first caller's XPORT_RPC_RELEASED says so, too: XPORT_ERR_UNREACHABLE.
 * If the process in the middle dies, its caller does not learn whether it has passed descriptors on: the third process may
 * still access the memory.  Free the descriptors, or deregister the memory, as for XPORT_RPC_RELEASED without XPORT_OK.
 * A descriptor of another process than the caller comes without an endpoint: it can be queried, packed and passed on.  To
 * transfer, pack it, and unpack it on an endpoint to its owner; end that before the reply.
 *
 * Flow control.  At most `credits` calls of this process are unanswered at a peer, as the peer chose.  Further calls
 * wait here.  A callee that holds too many requests answers XPORT_ERR_BUSY, and says when to try again.
 *
 * Messages.  The peers send each other messages with the tag xport_rpcs_attr.tag, which is the same at all peers.  The
 * application must not use this tag (see xport_leases.h).
 *
 * Trust.  Every peer with an endpoint may call.  max_active and credits limit the memory that peers can occupy.  A peer
 * that violates the protocol is muted: its calls end with XPORT_ERR_PROTOCOL, and its messages are ignored until its
 * endpoint ends.
 *
 * Thread rule.  That of the instance.  If the instance locks, any thread may call, and handlers may run in several threads
 * at a time.
 */
#ifndef XPORT_RPC_H
#define XPORT_RPC_H

#ifndef XPORT_SERVICES_H
#error include xport_services.h
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The calls of an instance. */
typedef struct xport_rpcs xport_rpcs;

enum {
	XPORT_RPC_NAME_MAX = 63,           /* length of a method's name */
	XPORT_RPC_DEADLINE_MAX = 86400000, /* the longest deadline in milliseconds: one day */
	XPORT_RPC_CREDITS_MAX = 32,        /* limit of xport_rpcs_attr.credits */
	XPORT_RPC_BULKS_MAX = 16           /* descriptors of a call */
};

/* Flags of a call. */
enum {
	XPORT_RPC_ONE_WAY = 1, /* no reply: the call is done when the callee has handed it to its application */
	XPORT_RPC_LENT = 2     /* the payload has keys: XPORT_RPC_RELEASED follows; a call with bulks always has it */
};

/* Flags of xport_rpcs_attr. */
enum {
	XPORT_RPCS_TELL_ABANDONED = 1, /* callee: there are events of type XPORT_RPC_ABANDONED */
	XPORT_RPCS_TELL_ENDED = 2      /* xport_rpcs_wait has events of type XPORT_RPC_PEER_ENDED */
};

/* Whether the handler of the callee ran. */
typedef enum xport_rpc_ran {
	XPORT_RPC_RAN_NO = 0,     /* it did not, and will not */
	XPORT_RPC_RAN_YES = 1,    /* it did */
	XPORT_RPC_RAN_UNKNOWN = 2 /* the callee did not say */
} xport_rpc_ran;

/* Options of xport_rpcs_create.  NULL instead of the struct: all defaults. */
struct xport_rpcs_attr {
	size_t size;
	uint64_t tag; /* of the messages; default 0x78706f7272706300 */
	/* Bytes of the longest payload of a call with its descriptors, or of a reply: at most xport_info.eager_max - 76.
	   Between two peers the smaller value applies.  Default: 3900, which every transport takes.  A peer is muted if it sends more than its transport
	   takes. */
	uint32_t max_payload;
	uint32_t max_calls;      /* caller: calls in progress; 1 to 65535, default 1024 */
	uint32_t max_active;     /* callee: requests and replies that are held at a time; 1 to 65535, default 1024 */
	uint32_t credits;        /* callee: requests of one peer at a time; 1 to XPORT_RPC_CREDITS_MAX, the default */
	uint32_t retry_after_ms; /* callee: the time that XPORT_ERR_BUSY tells the caller to wait; default 10 */
	uint64_t flags;          /* XPORT_RPCS_TELL_*; default 0 */
};

/*
 * xport_rpcs_create - make the calls of an instance.
 *
 * It posts receives as xport_leases_create does.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_AGAIN          no receive could be posted: too many are posted already
 *   XPORT_ERR_INVALID        x or rpcs is NULL; a field of *attr is not allowed
 *   XPORT_ERR_NO_MEMORY      out of memory
 *   XPORT_ERR_NOT_SUPPORTED  *attr sets an unknown field
 */
int xport_rpcs_create(xport *x, const struct xport_rpcs_attr *attr, xport_rpcs **rpcs) XPORT_CHECK;

/*
 * xport_rpcs_destroy - end all calls, notify the peers, and free all.
 *
 * Calls in progress end without an event.  Replies that wait are sent.  Requests without a reply end at their callers with
 * XPORT_ERR_PEER_CLOSED; the application must have ended its accesses to lent memory.  So do those whose reply still waits
 * for a transfer with their descriptors, or for a call that passes these on.  It polls until its own operations have ended.
 * Other completions go to `other`; NULL drops them.  `rpcs` may be NULL.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    timeout_ms is below -1
 *   XPORT_ERR_TIMEOUT    `timeout_ms` passed; a message to a peer is still in flight: close that endpoint or call again;
 *                        no other call is allowed
 *   an error of xport_wait
 */
int xport_rpcs_destroy(xport_rpcs *rpcs, xport_completion_fn other, void *arg, int timeout_ms);

/*
 * xport_rpcs_step - take a completion, continue, and run handlers.
 *
 * Call it with each polled completion, and with NULL when the time of xport_rpcs_timeout has passed.
 *
 * Returns 1 if the completion belongs to the calls, 0 if it belongs to the application (XPORT_EVENT_LOST and
 * XPORT_EVENT_CLOSED always do), or
 *   XPORT_ERR_INVALID    rpcs is NULL
 */
int xport_rpcs_step(xport_rpcs *rpcs, const struct xport_completion *completion);

/*
 * xport_rpcs_timeout - get the time until xport_rpcs_step must be called with NULL.
 *
 * Returns milliseconds, or -1 if no call is needed before the next completion.
 */
int xport_rpcs_timeout(xport_rpcs *rpcs);

/*
 * xport_rpcs_forget - end the calls to and of an endpoint.
 *
 * Call it as xport_leases_forget.
 */
void xport_rpcs_forget(xport_rpcs *rpcs, xport_ep *ep);

/* The type of an event. */
typedef enum xport_rpc_event_type {
	XPORT_RPC_DONE = 1,     /* caller: the call has ended */
	XPORT_RPC_RELEASED = 2, /* caller: after XPORT_RPC_DONE, the end of the loan of XPORT_RPC_LENT, see `status` */
	XPORT_RPC_REQUEST = 3,  /* callee: a peer calls a method that was registered without a handler */
	XPORT_RPC_ABANDONED = 4, /* callee: nobody waits for the reply of a request; see XPORT_RPCS_TELL_ABANDONED */
	XPORT_RPC_PEER_ENDED = 5 /* of xport_rpcs_wait alone: an endpoint has ended; see XPORT_RPCS_TELL_ENDED */
} xport_rpc_event_type;

/*
 * An event, or the request that a handler gets.
 *
 * XPORT_RPC_DONE has id, context, ep, status, ran, why, retry_after_ms, and len: the length of the reply.  It is above reply_max
 * only with XPORT_ERR_TRUNCATED, or if `reply` is NULL.  `status`:
 *
 *   the status that the handler replied with; ran is XPORT_RPC_RAN_YES.  With an error, a longer reply is cut
 *   XPORT_ERR_TRUNCATED      the handler replied with XPORT_OK and more than reply_max; the first bytes are in `reply`
 *   XPORT_ERR_BUSY           the callee is overloaded: call again after retry_after_ms, which is at most
 *                            XPORT_RPC_DEADLINE_MAX; xport_rpcs_wait with this time limit goes on with other calls meanwhile
 *   XPORT_ERR_BAD_KEY        a descriptor is damaged or not allowed: the handler did not run
 *   XPORT_ERR_BOUNDS         the payload is longer than the callee takes
 *   XPORT_ERR_CANCELED       xport_rpc_cancel
 *   XPORT_ERR_INCOMPATIBLE   the peer speaks another version
 *   XPORT_ERR_NOT_SUPPORTED  the peer has no such method
 *   XPORT_ERR_NO_MEMORY      the callee or this process is out of memory
 *   XPORT_ERR_STALE_KEY      a descriptor's key has ended: the handler did not run
 *   XPORT_ERR_TIMEOUT        the deadline expired; or the endpoint ended, because of XPORT_OP_TIMEOUT
 *   XPORT_ERR_PEER_CLOSED    the endpoint ended; or the peer destroyed its calls, or had no memory for a message
 *   XPORT_ERR_PEER_LOST, XPORT_ERR_CLOSED
 *                            the endpoint ended
 *   XPORT_ERR_PROTOCOL       the peer was muted
 *
 * XPORT_RPC_RELEASED has id, context, ep, and `status`: XPORT_OK if the callee has confirmed that it no longer accesses the
 * memory, nor does a process that it has passed descriptors to.  Descriptors that were freed meanwhile end before this event.
 * Otherwise nobody has confirmed that.  Then free the descriptors if they are exact (xport_bulk_info.exact), or else
 * deregister the memory, before it is used again.  `status` is the reason:
 *
 *   XPORT_ERR_UNREACHABLE    the callee has ended its accesses.  It has passed a descriptor on, and that process cannot be
 *                            heard
 *   XPORT_ERR_PROTOCOL, XPORT_ERR_NO_MEMORY, XPORT_ERR_PEER_CLOSED
 *                            the callee cannot be heard.  The endpoint may be open still, and a handler may still access
 *                            the memory
 *   another status           the endpoint has ended, and the callee cannot reach the memory by it; see xport_mr_alloc for an
 *                            exception.  A process that it has passed descriptors to can
 *
 * XPORT_RPC_REQUEST has id, context (of xport_rpc_register), ep, method, payload, len, flags, left_ms, trace, bulks and
 * nbulks.  payload and bulks are valid until xport_rpc_reply, which frees the descriptors.  The address of the payload is a
 * multiple of 16, so it may be read as a struct.
 *
 * XPORT_RPC_ABANDONED has id, context (of xport_rpc_register), ep, method, and `status`: XPORT_ERR_CANCELED if the caller has
 * cancelled the call or its deadline expired there, or the reason why the endpoint has ended.  It comes once, if the
 * application has not replied, whether the method has a handler or not.  The application may stop its work, and still calls
 * xport_rpc_reply.  It does not come for XPORT_RPC_ONE_WAY.  xport_rpc_left reports the same at any time.
 *
 * XPORT_RPC_PEER_ENDED has ep and status, those of the XPORT_EVENT_CLOSED or XPORT_EVENT_LOST that went to `other`.  It comes
 * after the events of calls.  If several endpoints end before it is taken, it has the last of them.  `other` may have destroyed
 * ep: only compare the handle.
 */
struct xport_rpc_event {
	size_t size;
	int type;   /* enum xport_rpc_event_type */
	int status; /* enum xport_status */
	int ran;    /* enum xport_rpc_ran */
	uint32_t retry_after_ms;
	uint64_t id;     /* of the call at its caller, or of the request at its callee */
	void *context;   /* of the call; of the method */
	xport_ep *ep;    /* the peer */
	const char *why; /* why the library ended the call, a static sentence; "" if it did not */
	const char *method;
	const void *payload;
	size_t len;
	uint32_t flags;    /* of the call */
	uint32_t left_ms;  /* until the deadline */
	uint8_t trace[24]; /* trace context of the caller */
	xport_bulk *const *bulks; /* the descriptors of the call, unpacked; NULL: there are none */
	size_t nbulks;
};

/*
 * xport_rpcs_next - get the next event.
 *
 * Set event->size before the call.
 *
 * Returns 1, 0 if there is no event, or
 *   XPORT_ERR_INVALID    an argument is NULL; event->size is wrong
 */
int xport_rpcs_next(xport_rpcs *rpcs, struct xport_rpc_event *event) XPORT_CHECK;

/*
 * xport_rpcs_wait - poll and run handlers until there is an event.
 *
 * Other completions go to `other`; NULL drops them.  Set event->size before the call.  With XPORT_RPCS_TELL_ENDED the end of
 * any endpoint of the instance is an event, too, of type XPORT_RPC_PEER_ENDED.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; event->size is wrong; timeout_ms is below -1
 *   XPORT_ERR_TIMEOUT    `timeout_ms` passed
 *   an error of xport_wait
 */
int xport_rpcs_wait(xport_rpcs *rpcs, struct xport_rpc_event *event, xport_completion_fn other, void *arg,
                    int timeout_ms) XPORT_CHECK;

/*
 * Handles a request.  `arg` is that of xport_rpc_register.  xport_rpcs_step and xport_rpcs_wait call it.  It must not wait.
 * *request is valid during the call; what its pointers point to, until xport_rpc_reply.  It calls xport_rpc_reply, or lets
 * the application call it later.  It may call any other function on rpcs except _step, _wait and _destroy.
 */
typedef void (*xport_rpc_fn)(void *arg, const struct xport_rpc_event *request);

/*
 * xport_rpc_register - register a method.
 *
 * A name has 1 to XPORT_RPC_NAME_MAX characters from [A-Za-z0-9._/-].  Names that begin with "xport." are reserved.  A
 * method stays until xport_rpcs_destroy.  With `fn` NULL requests are events (XPORT_RPC_REQUEST), and `arg` is their context.
 *
 * Each instance of xport_rpcs has the methods "xport.ping", which replies with its payload; "xport.methods", a line with
 * each method's name; and "xport.stats", a line with the counters of this process, and a line "NAME CALLS ERRORS" for
 * each method.  A payload of decimal digits is the number of methods to skip: one reply may not have all.  These methods do
 * not look at descriptors.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BUSY       the name is registered already, or has the same hash as another one: choose another name
 *   XPORT_ERR_INVALID    rpcs or name is NULL; the name is malformed or reserved; the calls are being destroyed
 *   XPORT_ERR_NO_MEMORY  out of memory
 */
int xport_rpc_register(xport_rpcs *rpcs, const char *name, xport_rpc_fn fn, void *arg) XPORT_CHECK;

/* Arguments of xport_rpc_call.  The struct and the payload are read during the call only. */
struct xport_rpc_args {
	size_t size;
	const void *payload; /* bytes for the handler; NULL: none */
	size_t len;
	void *reply; /* receives the reply; belongs to the library until XPORT_RPC_DONE; NULL: the reply is dropped */
	size_t reply_max;
	uint32_t deadline_ms; /* 1 to XPORT_RPC_DEADLINE_MAX; there is no default */
	uint32_t flags;       /* 0, XPORT_RPC_ONE_WAY or XPORT_RPC_LENT */
	void *context;        /* of the events */
	uint8_t trace[24];    /* trace context that the handler gets, such as a trace id and a span id */
	uint64_t *id;         /* where the id of the call is stored on success, for xport_rpc_cancel; NULL: it is not */
	/* Descriptors of memory for the handler, from xport_bulk_create or xport_bulk_unpack; NULL: none.  The list is read
	   during the call only.  They take space of the payload: see xport_bulk_pack. */
	xport_bulk *const *bulks;
	size_t nbulks; /* at most XPORT_RPC_BULKS_MAX */
};

/*
 * xport_rpc_call - call a method of a peer.
 *
 * XPORT_RPC_DONE follows.  An endpoint that was closed here without xport_rpcs_forget is noticed by its status.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_AGAIN         max_calls calls are in progress, or are done and still lend memory: take events, then call again
 *   XPORT_ERR_BOUNDS        payload and descriptors are longer than max_payload, or than the peer takes; before the peer has said how much it
 *                           takes, XPORT_RPC_DONE reports that
 *   XPORT_ERR_INCOMPATIBLE  the peer speaks another version; before the peer has said so, XPORT_RPC_DONE reports that
 *   XPORT_ERR_INVALID       an argument is NULL; args->size is wrong; ep is not an endpoint, or is not connected yet; the
 *                           method's name is malformed; the
 *                           deadline or a flag is not allowed; payload is NULL and len is not 0; reply is NULL and reply_max
 *                           is not 0; nbulks is above XPORT_RPC_BULKS_MAX, or is not 0 and bulks or a descriptor is NULL,
 *                           or a descriptor is of another instance, or flags has XPORT_RPC_ONE_WAY; the calls are being destroyed
 *   XPORT_ERR_NO_MEMORY     out of memory
 *   XPORT_ERR_NOT_SUPPORTED *args sets an unknown field
 *   XPORT_ERR_PROTOCOL      the peer was muted
 *   the reason why the endpoint is not open
 */
int xport_rpc_call(xport_rpcs *rpcs, xport_ep *ep, const char *method, const struct xport_rpc_args *args) XPORT_CHECK;

/*
 * xport_rpc_cancel - cancel a call, as its caller.
 *
 * XPORT_RPC_DONE with XPORT_ERR_CANCELED follows at once.  A call that has not been sent does not run.  Otherwise the callee is
 * notified, unless this process is out of memory.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    rpcs is NULL; no call with this id is in progress: its XPORT_RPC_DONE is there already
 */
int xport_rpc_cancel(xport_rpcs *rpcs, uint64_t id);

/*
 * xport_rpc_reply - end a request, as its callee.
 *
 * Call it exactly once for each request, also for XPORT_RPC_ONE_WAY, where nothing is sent.  `id` is that of the event.
 * `status` is XPORT_OK or a negative xport_status.  The payload is copied.  The application starts no further transfer
 * with a descriptor of the request.  As long as one is in flight, or a call that passes a descriptor on, the reply
 * waits in this process.  Accesses to memory by other keys must have ended.
 *
 * Returns XPORT_OK: the reply is sent, unless the endpoint ends first; or
 *   XPORT_ERR_CANCELED   the caller no longer wants the reply
 *   XPORT_ERR_BOUNDS     the payload is longer than max_payload, or than the caller takes
 *   XPORT_ERR_INVALID    rpcs is NULL; no request has this id: it was replied to already; payload is NULL and len is not 0;
 *                        status is not allowed
 *   XPORT_ERR_NO_MEMORY  out of memory
 *   the reason why the endpoint has ended
 * After XPORT_ERR_BOUNDS, XPORT_ERR_INVALID and XPORT_ERR_NO_MEMORY the request is unchanged.  After all others it has ended.
 */
int xport_rpc_reply(xport_rpcs *rpcs, uint64_t id, int status, const void *payload, size_t len);

/*
 * xport_rpc_left - get the time that a request has left, as its callee.
 *
 * Returns milliseconds, 0 if the deadline has passed, or
 *   XPORT_ERR_CANCELED   the caller no longer wants the reply
 *   XPORT_ERR_INVALID    rpcs is NULL; no request has this id
 *   the reason why the endpoint has ended
 */
int xport_rpc_left(xport_rpcs *rpcs, uint64_t id) XPORT_CHECK;

/* The state of the calls of an instance. */
struct xport_rpcs_info {
	size_t size;
	uint32_t max_payload; /* in force */
	uint32_t calls;       /* caller: calls in progress; with XPORT_RPC_LENT until XPORT_RPC_RELEASED is taken */
	uint32_t queued;      /* of these, calls that have not been sent */
	uint32_t active;      /* callee: requests without a reply */
	uint64_t requests;    /* callee: requests that were handed to the application, since it was made */
	uint64_t busy;        /* callee: requests answered with XPORT_ERR_BUSY, since it was made */
	uint64_t dropped;     /* callee: requests that expired, were cancelled or lost their endpoint before they ran */
	uint64_t timeouts; /* caller: calls that ended with XPORT_ERR_TIMEOUT and without a reply, since it was made */
	uint64_t muted;    /* peers that were muted, since it was made */
	uint64_t memory;   /* callee: bytes that requests and replies occupy, without unpacked descriptors */
	/* callee: limit of `memory` with the present number of peers.  In addition, up to 128 messages of a peer are kept if
	   several threads hand over completions out of order. */
	uint64_t memory_max;
};

/*
 * xport_rpcs_query - get the state of the calls of an instance.
 *
 * Set info->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; info->size is wrong
 */
int xport_rpcs_query(xport_rpcs *rpcs, struct xport_rpcs_info *info) XPORT_CHECK;

#ifdef __cplusplus
}
#endif

#endif
