/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rpc.h - the remote procedure calls of an instance.
 *
 * A call (caller) is in the list of open calls until its DONE, and in a list of its peer: in `queue` until it is sent, then in
 * `sent`. A call with XPORT_RPC_LENT stays in `sent` after DONE until the callee has answered.
 *
 *	QUEUED --> SENT --> over        (over from QUEUED: deadline, cancel, endpoint's end: it did not run)
 *
 * A request (callee) is in the list of its peer, and in `ready` (handlers) or `events` (no handler) until the application
 * has it. It ends by xport_rpc_reply, whatever happened to its caller.
 *
 *	WAITING --> TAKEN --> over
 *
 * Before the first call the caller sends HELLO. Its calls wait for WELCOME, which has the limits of the peer.
 */
#ifndef SVC_RPC_H
#define SVC_RPC_H

#include <stdatomic.h>
#include <stdbool.h>

#include "services/bulk.h"
#include "services/engine.h"
#include "services/ring.h"
#include "services/rpc_wire.h"
#include "services/slots.h"

enum { SVC_RPC_BUCKETS = 64, SVC_RPC_ALIGN = 16 };

struct svc_rpc_method {
	struct svc_rpc_method *next; /* of its bucket */
	uint64_t hash;
	xport_rpc_fn fn;
	void *arg;
	uint64_t calls, errors;
	char name[XPORT_RPC_NAME_MAX + 1];
};

/* The methods, found by hash, and in the order of their registration. */
struct svc_rpc_methods {
	struct svc_rpc_method *bucket[SVC_RPC_BUCKETS];
	struct svc_rpc_method **list;
	size_t n;
};

enum svc_rpc_greeting { SVC_RPC_STRANGER = 0, SVC_RPC_ASKED = 1, SVC_RPC_MET = 2 };

struct svc_rpc_peer {
	struct svc_msgq_peer *msgq;
	/* as its caller */
	int greeting;    /* enum svc_rpc_greeting */
	int refused;     /* MET: XPORT_OK, or why it takes no calls */
	uint8_t version; /* MET: of its messages */
	uint32_t max_payload, credits;
	unsigned in_flight; /* calls that it has not answered */
	struct svc_link queue, sent;
	struct svc_link stalled; /* in rpcs.stalled, while calls wait for space in the queue of the endpoint */
	/* as its callee */
	bool greeted;   /* HELLO came */
	uint32_t takes; /* bytes of the longest reply that it takes */
	unsigned active;
	struct svc_link requests;
};

/* What an event is about: the first member of a call and of a request. */
struct svc_rpc_node {
	struct svc_link link; /* in rpcs.events or rpcs.ready */
	bool call;
};

/* The descriptors of a call. */
struct svc_rpc_bulks {
	xport_bulk **bulk; /* held by the caller, the callee's own */
	uint32_t n;
	uint32_t bytes; /* in front of the payload */
};

struct svc_rpc_call {
	struct svc_rpc_node node;  /* first */
	struct svc_link open;      /* in rpcs.open, until DONE */
	struct svc_link of_peer;   /* in queue or sent */
	struct svc_rpc_peer *peer; /* NULL: it has nothing with the peer any more */
	xport_ep *ep;
	uint64_t id, method;
	int64_t until;
	uint32_t deadline_ms;
	uint32_t flags;
	bool sent;
	bool posting;        /* in xport_send: if its peer ends meanwhile, it has not left */
	bool lent;           /* counted in rpcs.lent */
	bool done, released; /* events that were not taken, or never come */
	int status, ran, release_status;
	uint32_t retry_after_ms;
	const char *why;
	void *context;
	void *reply;
	size_t reply_max, reply_len;
	uint8_t trace[SVC_RPC_TRACE];
	uint8_t *payload; /* QUEUED: a copy */
	size_t len;
	struct svc_rpc_bulks bulks; /* until it is released */
};

struct svc_rpc_request {
	struct svc_rpc_node
		node; /* first; once TAKEN: in rpcs.events if abandoned, in rpcs.kept once it was replied to */
	struct svc_link of_peer;
	struct svc_rpc_peer *peer; /* NULL: its endpoint has ended */
	xport_ep *ep;
	struct svc_rpc_method *method;
	uint64_t id, call; /* ours, the caller's */
	int64_t until;     /* by the coarse clock */
	uint32_t flags;
	bool taken;    /* by the application */
	bool answered; /* the caller has its answer */
	bool cancelled;
	int ended; /* peer NULL: why */
	uint32_t nbulks;
	struct svc_rpc_bulks bulks; /* TAKEN: unpacked */
	uint8_t *reply;             /* waits for transfers; NULL: the handler has not replied */
	size_t reply_len;
	int reply_status;
	uint8_t trace[SVC_RPC_TRACE];
	size_t len;
	uint8_t *bytes; /* of the message: descriptors, and the payload at a multiple of SVC_RPC_ALIGN */
	uint8_t memory[];
};

struct xport_rpcs {
	struct svc_engine engine;
	struct xport_rpcs_attr a;
	struct svc_rpc_methods methods;
	struct svc_slots calls, requests;
	struct svc_rpc_call *call; /* one for each slot of `calls` */
	uint8_t *scratch;          /* of max_payload bytes */
	struct svc_link open, stalled, events, ready;
	struct svc_link kept;  /* requests whose reply waits for transfers with their descriptors */
	unsigned kept_idles;   /* svc_bulk_idles when they were last looked at */
	bool kept_again;       /* look in any case: one is new, there was no memory to send one, or a peer has ended */
	int64_t next_deadline; /* no open call has an earlier one */
	struct {
		xport_ep *ep; /* for XPORT_RPC_PEER_ENDED; NULL: none has ended since the last one */
		int status;
	} ended;
	/* Without the lock: false if `events`, or `ready`, is empty. */
	_Atomic bool any_event, any_ready;
	unsigned peers;
	unsigned lent; /* calls that are done, and wait for the callee to release memory */
	uint64_t request_bytes;
	struct xport_rpcs_info info;
};

/* ---- rpc_methods.c ---- */

/* Returns the hash of a name, and 0 if the name is malformed. */
uint64_t svc_rpc_hash(const char *name);
/* Enters a method, which is the table's then. Returns XPORT_OK, BUSY if the hash is taken, or NO_MEMORY. */
int svc_rpc_methods_add(struct svc_rpc_methods *t, struct svc_rpc_method *m);
struct svc_rpc_method *svc_rpc_methods_find(const struct svc_rpc_methods *t, uint64_t hash);
void svc_rpc_methods_fini(struct svc_rpc_methods *t);
/* Registers the methods of the library. Returns XPORT_OK or NO_MEMORY. */
int svc_rpc_builtins_add(struct svc_rpc_methods *t);
/* Answers a method of the library: writes at most `max` bytes to `out`, and returns how many. */
size_t svc_rpc_builtin(const struct xport_rpcs *r, const struct svc_rpc_method *method, const uint8_t *payload,
                       size_t len, uint8_t *out, size_t max);

/* ---- rpc.c ---- */

/* The peer's state, made if it is not there; NULL: out of memory. */
struct svc_rpc_peer *svc_rpc_peer_of(struct xport_rpcs *r, struct svc_msgq_peer *msgq);
/* Sends a message with its payload. Returns XPORT_OK, NO_MEMORY, or the status by which the peer ended. */
int svc_rpc_send(struct svc_msgq_peer *to, const struct svc_rpc_message *m, bool reply);
/* Sends a request now or not at all. Returns as svc_msgq_request_now. */
int svc_rpc_post(struct svc_msgq_peer *to, const struct svc_rpc_message *m);
/* Registers a method like this one. Returns as xport_rpc_register. */
int svc_rpc_register(struct xport_rpcs *r, const struct svc_rpc_method *like);
/* Limit of what peers' requests occupy. */
uint64_t svc_rpc_memory_max(const struct xport_rpcs *r);

/* ---- rpc_bulk.c ---- */

/*
 * Puts the descriptors of a call in front of its payload: *bytes, which the caller of this frees in any case, if not NULL.
 * Holds them. Returns XPORT_OK, or an error that is described; then *b is as before.
 */
int svc_rpc_bulks_pack(const struct xport_rpcs *r, struct svc_rpc_bulks *b, struct xport_rpc_args *a, uint8_t **bytes);
void svc_rpc_bulks_end(struct svc_rpc_bulks *b);
/* Unpacks `n` descriptors in front of a payload. Returns as svc_bulk_unpack_for; svc_rpc_bulks_end frees them in any case. */
int svc_rpc_bulks_unpack(struct svc_rpc_bulks *b, xport_ep *ep, uint32_t n, const uint8_t *payload);
/* Marks them: a peer that they were passed to has not confirmed that it no longer accesses the memory. */
void svc_rpc_bulks_doubt(const struct svc_rpc_bulks *b);
bool svc_rpc_bulks_doubtful(const struct svc_rpc_bulks *b);
/* Whether something of this process may still access the memory by them. */
bool svc_rpc_bulks_busy(const struct svc_rpc_bulks *b);
/* Keeps a reply until the transfers have ended. Returns XPORT_OK or NO_MEMORY. */
int svc_rpc_reply_keep(struct xport_rpcs *r, struct svc_rpc_request *q, const struct svc_rpc_message *m);
/* Sends the replies that need not wait any more. */
void svc_rpc_kept_work(struct xport_rpcs *r);
/* svc_engine_ops.closing: sends those of the peer that need not wait any more. The others end with BYE. */
void svc_rpc_kept_end(void *service, struct svc_msgq_peer *peer);
/* Milliseconds until svc_rpc_kept_work must run; -1: no need. */
int svc_rpc_kept_timeout(const struct xport_rpcs *r);

/* ---- rpc_caller.c ---- */

/* WELCOME and REPLY. Returns as svc_engine_ops.message. */
int svc_rpc_welcome(struct xport_rpcs *r, struct svc_msgq_peer *from, const struct svc_rpc_message *m);
int svc_rpc_answer(struct xport_rpcs *r, struct svc_msgq_peer *from, const struct svc_rpc_message *m, bool answered);
/* Ends all calls to the peer. */
void svc_rpc_calls_end(struct xport_rpcs *r, struct svc_rpc_peer *p, int status);
/* Sends calls that wait for the message queue, and ends those whose deadline has passed. */
void svc_rpc_calls_work(struct xport_rpcs *r);
/* Milliseconds until svc_rpc_calls_work must run; -1: no need. */
int svc_rpc_calls_timeout(const struct xport_rpcs *r);
/* Writes the next event of a call, and takes it out of the list when that was its last. */
void svc_rpc_call_event(struct xport_rpcs *r, struct svc_rpc_call *call, struct xport_rpc_event *event);

/* ---- rpc_callee.c ---- */

/* HELLO, CALL and CANCEL. Returns as svc_engine_ops.message. */
int svc_rpc_hello(struct xport_rpcs *r, struct svc_msgq_peer *from, const struct svc_rpc_message *m);
int svc_rpc_request(struct xport_rpcs *r, struct svc_msgq_peer *from, const struct svc_rpc_message *m);
int svc_rpc_cancelled(struct xport_rpcs *r, struct svc_msgq_peer *from, const struct svc_rpc_message *m);
/* The peer is gone: requests that nobody has taken end, the others are detached from it. */
void svc_rpc_requests_end(struct xport_rpcs *r, struct svc_rpc_peer *p, int status);
/* Writes XPORT_RPC_ABANDONED of a request that the application has, and takes it out of the list. */
void svc_rpc_abandoned_event(struct svc_rpc_request *q, struct xport_rpc_event *event);
/* Takes a request out of its list for the application. Returns false if it is over instead. */
bool svc_rpc_request_take(struct xport_rpcs *r, struct svc_rpc_request *q, struct xport_rpc_event *event);
/* Runs the handlers of the requests that wait. Takes the lock. */
void svc_rpc_dispatch(struct xport_rpcs *r);
void svc_rpc_request_free(struct xport_rpcs *r, struct svc_rpc_request *q);

#endif
