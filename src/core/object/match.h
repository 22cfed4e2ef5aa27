/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * match.h - tag matching: posted receives in the order posted, unexpected messages in the order arrived.
 *
 * Receives and unexpected messages are in hash tables, by tag, and by tag and peer. The tables grow, so the cost of a
 * match does not depend on their number. Each mask of posted receives has a table, by the bits of the tag that it leaves.
 * Receives with a ninth mask at the same time are in a list, and it is searched linearly. So are the unexpected messages
 * when a receive with a mask is posted. If several candidates match, the oldest wins.
 */
#ifndef XPI_CORE_OBJECT_MATCH_H
#define XPI_CORE_OBJECT_MATCH_H

#include "core/object/instance.h"
#include "core/wire/frame.h"

/* An unexpected message: no receive was posted for it when it arrived. */
struct xpi_unexpected {
	struct xpi_list tagged, arrival;
	struct xport_ep *ep;
	uint64_t tag, length;
	uint32_t rts; /* the sender's operation of a rendezvous, 0: the data is here */
	uint32_t charge;
	/* a cache line up to here */
	struct xpi_list sent;
	struct xpi_pool *pool;
	uint8_t data[];
};

/* xpi_match_new - create empty matching lists. Returns NULL if out of memory. */
struct xpi_match *xpi_match_new(void);
void xpi_match_free(struct xpi_match *m);

/* xpi_match_post - add a receive: buf, len, tag, mask, ep (NULL: any). */
void xpi_match_post(struct xpi_match *m, struct xpi_op *op);
/*
 * xpi_match_receive - return the oldest posted receive for this message. NULL: no match.
 *
 * The receive is removed, unless it takes many messages (XPI_OP_MULTI).
 */
struct xpi_op *xpi_match_receive(struct xpi_match *m, struct xport_ep *ep, uint64_t tag);
/* xpi_match_remove - remove a posted receive. */
void xpi_match_remove(struct xpi_match *m, struct xpi_op *op);
/*
 * xpi_match_post_peer - add a receive for messages of any endpoint to the peer of this one: buf, len, tag, mask; ep is NULL.
 *
 * Returns false if out of memory.
 */
bool xpi_match_post_peer(struct xpi_match *m, struct xpi_op *op, const struct xport_ep *ep);
/* xpi_match_message_peer - xpi_match_message for such a receive. */
struct xpi_unexpected *xpi_match_message_peer(struct xpi_match *m, const struct xport_ep *ep, uint64_t tag,
                                              uint64_t mask);
/* xpi_match_peers - the peers that such receives wait for: match_peer.h. */
struct xpi_peers *xpi_match_peers(struct xpi_match *m);
/* xpi_match_close - free the lists of the receives that are posted, when the instance ends. */
void xpi_match_close(struct xpi_match *m);
/* xpi_match_add - add an unexpected message. */
void xpi_match_add(struct xpi_match *m, struct xpi_unexpected *u);
/* xpi_match_message - remove and return the oldest unexpected message for this receive. NULL: no match. */
struct xpi_unexpected *xpi_match_message(struct xpi_match *m, struct xport_ep *ep, uint64_t tag, uint64_t mask);
/*
 * xpi_match_message_from - the same for a receive that takes many messages: the search goes on from the last one.
 *
 * peer  an endpoint to the peer whose messages it takes; NULL: those of op->ep, or of any if that is NULL
 * at    points to NULL at first; no other message may be removed between two calls
 */
struct xpi_unexpected *xpi_match_message_from(struct xpi_match *m, const struct xpi_op *op, const struct xport_ep *peer,
                                              struct xpi_list **at);
/* xpi_match_withdrawn - remove and return the rendezvous message `rts` of a sender. NULL: no match. */
struct xpi_unexpected *xpi_match_withdrawn(struct xpi_match *m, struct xport_ep *ep, uint64_t tag, uint32_t rts);
/*
 * xpi_match_forget - remove all unexpected messages of an endpoint and call `drop` for each.
 *
 * rts_only  only rendezvous messages, whose body is still at the sender
 */
void xpi_match_forget(struct xpi_match *m, struct xport_ep *ep, bool rts_only,
                      void (*drop)(struct xport *x, struct xpi_unexpected *u));

/* xpi_msg_drop - free an unexpected message that was removed. */
void xpi_msg_drop(struct xport *x, struct xpi_unexpected *u);

/* xpi_match_longest - the length of the longest list that an arriving message or an exact receive may search. */
size_t xpi_match_longest(const struct xpi_match *m);

/* xpi_match_waiting - the number of messages of the endpoint (NULL: of all endpoints) that wait for a receive. */
uint64_t xpi_match_waiting(const struct xpi_match *m, const struct xport_ep *ep);

/*
 * xpi_unexpected_room - the longest unexpected message of a class. Each class has a pool.
 *
 * A tiny message takes two cache lines in all, since thousands may wait. From XPI_SMALL_MESSAGE on each class is twice
 * as long as the one before. So the memory that a message takes here is within a factor of two of what the peer charges
 * for it. Messages longer than all classes take the space of a frame.
 */
static inline uint32_t xpi_unexpected_room(unsigned class)
{
	enum { TINY_MESSAGE = 24 };

	return class == 0 ? TINY_MESSAGE : ((XPI_SMALL_MESSAGE + 64) << (class - 1)) - 64;
}

#endif
