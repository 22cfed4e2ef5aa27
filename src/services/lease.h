/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lease.h - the leases of an instance.
 *
 * A lease is in the list of its peer until it has ended, and in the list of all leases until it is freed. Each side has
 * its own number for it, which is never used again. A message has both numbers. A peer can reach only the leases in its
 * own list.
 *
 *	ASKING --> HELD --> ENDING --> OVER       (refused, or the endpoint ends: --> OVER from any state)
 *
 * A hand-over is in lease_hand.c. ENDING: a borrower that returns waits for RETURNED. A lender that revokes waits for REVOKED, or until its patience
 * ends, or (`told` is set) for a deregistration that was BUSY.
 */
#ifndef SVC_LEASE_H
#define SVC_LEASE_H

#include <stdbool.h>

#include "services/engine.h"
#include "services/lease_table.h"
#include "services/lease_wire.h"

/* Events that nobody has taken, in the order in which they are reported. */
enum { SVC_LEASE_STARTED = 1, SVC_LEASE_KEPT = 2, SVC_LEASE_ENDED = 4 };

struct xport_lease {
	struct xport_leases *leases;
	struct svc_lease_peer *peer; /* NULL: over */
	struct xport_lease *next, **at;         /* of its peer's list */
	struct xport_lease *all_next, **all_at; /* of the list of all */
	struct xport_lease *number_next; /* in the table of numbers, while it has a peer */
	struct xport_lease *event_next;
	unsigned events;
	bool queued;     /* in the queue of events */
	int started_as;  /* enum xport_lease_event_type */
	uint64_t id, remote;
	bool lender, asked; /* asked: its memory counts against the quota */
	struct svc_lease_peer *maker; /* whose `made` counts it; NULL: this process's */
	int state, status;
	uint32_t rights;
	uint64_t length;
	struct svc_msg *last; /* for the one RETURN or REVOKE, which must not fail; NULL: it was sent */
	bool unwanted; /* returned or revoked here: that it ends is no failure */
	bool handing; /* borrower, ENDING: it waits for HANDED */
	bool handed;  /* lender, OVER: the memory is here until the lease is freed */
	int kept;     /* borrower: why the last hand-over was refused; XPORT_OK: nobody needs to know */
	void *copy;   /* handed: the bytes of a region that is gone */
	bool told;
	int why;       /* told: what its status is going to be */
	int64_t until; /* a lender's, ENDING: when patience ends */
	xport_mr *mr;
	void *block;   /* of the pool */
	void *base;
	xport_rkey *rkey;
	xport_ep *ep;
	void *context;
};

/* What is known of a peer: while its endpoint lives, or a lease of its making is not freed. */
struct svc_lease_peer {
	struct xport_leases *leases;
	struct svc_msgq_peer *msgq; /* NULL: its endpoint ended */
	struct xport_lease *list;
	uint32_t made;  /* leases of its making that are not freed */
	uint32_t asked_back; /* of its making, revoked, and it has not answered that: whether they are over or not */
	uint64_t bytes; /* of the quota */
};

struct xport_leases {
	struct svc_engine engine;
	struct xport_leases_attr a;
	struct xport_lease *all;
	struct svc_lease_table numbers;
	struct xport_lease *first_event, **last_event;
	unsigned ending; /* of lenders, for which somebody must look at the clock, or at BUSY */
	struct xport_leases_info info;
};

/* ---- leases.c ---- */

/* Makes a lease with this peer.  NULL: out of memory. */
struct xport_lease *svc_lease_new(struct xport_leases *l, struct svc_lease_peer *p, bool lender);
/* Undoes it before anybody knows of it. */
void svc_lease_undo(struct xport_lease *lease);
void svc_lease_start(struct xport_lease *lease, int type);
/* It is over; its memory, if it is ours, has been given up. */
void svc_lease_over(struct xport_lease *lease, int status);
/* The peer of an endpoint; NO_MEMORY, or why there is none any more. */
int svc_lease_peer(struct xport_leases *l, xport_ep *ep, const char *operation, struct svc_lease_peer **peer);
/* The peer's lease with this number of ours; NULL: it has none. */
struct xport_lease *svc_lease_find(const struct svc_lease_peer *p, uint64_t id);
/* Sends ASK or GIVE. */
int svc_lease_request(struct xport_lease *lease, int type, const uint8_t *key, size_t key_len);
/* Replies to a request of the peer. */
int svc_lease_reply(struct svc_msgq_peer *to, const struct svc_lease_message *m);
/* Sends RETURN or REVOKE. */
void svc_lease_last(struct xport_lease *lease, int type);

/* ---- lease_events.c ---- */

void svc_lease_event(struct xport_lease *lease, unsigned event);
void svc_lease_drop_events(struct xport_lease *lease);

/* ---- lender.c ---- */

/* Deregisters; a BUSY one stays ENDING, and is tried again by svc_lender_look. */
void svc_lender_end(struct xport_lease *lease, int status);
/* What the clock says. */
void svc_lender_look(struct xport_leases *l);
/* Milliseconds until it should look; -1: never. */
int svc_lender_timeout(const struct xport_leases *l);
/* ASK, TAKEN, RETURN, REVOKED, HAND.  Not XPORT_OK: a peer must not send that.  `answered`: it answers a request. */
int svc_lender_message(struct xport_leases *l, struct svc_msgq_peer *from, const struct svc_lease_message *m,
                       bool answered);

/* ---- lease_hand.c ---- */

/* HAND. */
int svc_lender_hand(struct xport_leases *l, struct svc_msgq_peer *from, const struct svc_lease_message *m);
/* HANDED. */
int svc_borrower_handed(struct svc_msgq_peer *from, const struct svc_lease_message *m);
/* Frees the memory of a lease that was handed over. */
void svc_lender_free_handed(struct xport_lease *lease);

/* ---- borrower.c ---- */

/* GRANT, GIVE, RETURNED, REVOKE, HANDED. */
int svc_borrower_message(struct xport_leases *l, struct svc_msgq_peer *from, const struct svc_lease_message *m);

#endif
