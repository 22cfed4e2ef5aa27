/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * match.h - tag matching: posted receives in the order posted, unexpected messages in the order arrived.
 *
 * Receives for one exact tag, and all unexpected messages, stand in hash tables by tag, and by tag and peer; the tables
 * grow with them, so that a match costs as much however many there are.  Receives with a mask stand in a list of their
 * own, which is walked.  The older of the candidates wins.
 */
#ifndef XPI_CORE_MATCH_H
#define XPI_CORE_MATCH_H

#include "core/instance.h"

/* A message that nobody waited for. */
struct xpi_unexpected {
	struct xpi_list tagged, arrival;
	struct xport_ep *ep;
	uint64_t tag, length;
	uint32_t rts;    /* the sender's operation of a rendezvous, 0: the data is here */
	uint32_t charge;
	/* a cache line up to here */
	struct xpi_list sent;
	struct xpi_pool *pool;
	uint8_t data[];
};

struct xpi_match *xpi_match_new(void);
void xpi_match_free(struct xpi_match *m);

/* A receive: buf, len, tag, mask, ep (NULL: any). */
void xpi_match_post(struct xpi_match *m, struct xpi_op *op);
/* The oldest posted receive for this message, taken out; or NULL. */
struct xpi_op *xpi_match_receive(struct xpi_match *m, struct xport_ep *ep, uint64_t tag);
/* Takes a posted receive out. */
void xpi_match_remove(struct xpi_match *m, struct xpi_op *op);
void xpi_match_add(struct xpi_match *m, struct xpi_unexpected *u);
/* The oldest unexpected message for this receive, taken out; or NULL. */
struct xpi_unexpected *xpi_match_message(struct xpi_match *m, struct xport_ep *ep, uint64_t tag, uint64_t mask);
/* Takes out and calls `drop` for each unexpected message of the endpoint (`rts_only`: whose body is still there). */
void xpi_match_forget(struct xpi_match *m, struct xport_ep *ep, bool rts_only,
                      void (*drop)(struct xport *x, struct xpi_unexpected *u));

/* How many messages of the endpoint wait for a receive; NULL: of any. */
uint64_t xpi_match_waiting(const struct xpi_match *m, const struct xport_ep *ep);

#endif
