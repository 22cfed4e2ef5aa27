/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * crew.h - the server's workers, and the memory that it lends them.
 *
 * Each worker reaches what it needs and no more: its own slot to write its gradient, the parameters to read, and, where
 * gradients are pushed by fetch-add, the sums to add to.
 *
 * A worker that is lost, by whatever way, has its endpoint destroyed; from then on nothing that it pushed arrives any
 * more (the library has quiesced the endpoint before it tells), but to memory that it has mapped, if it was only stopped and
 * goes on.  That may be its slot, which is nobody's any more.  The sums are nobody's to map: they are the server's own memory, not
 * the library's.  If it had a part in the order under way, `torn` is set: what the others push is not the whole.
 */
#ifndef PS_CREW_H
#define PS_CREW_H

#include <xport_services.h>

#include "net.h"
#include "options.h"

struct ps_member {
	struct ps_crew *crew;
	enum { PS_ABSENT, PS_COMING, PS_HERE } state; /* here: it has said that it is ready */
	bool busy;                                    /* its gradient for the order is not here yet */
	bool pushed;                                  /* it is, and the reply is not */
	unsigned pending;                             /* puts and calls that have not ended */
	char name[128];
	xport_ep *ep;
	struct ps_region slot;
	xport_rkey *parameters; /* at the worker */
	struct ps_welcome welcome;
	struct ps_ready ready;
	struct ps_order order;
};

struct ps_crew {
	const struct ps_options *o;
	xport *x;
	xport_rpcs *rpcs;
	xport_listener *listener;
	struct ps_region weights; /* where steps are made, and what is broadcast */
	struct ps_region object;  /* the same, as workers read it */
	struct ps_region sums;
	struct ps_key object_key, sums_key;
	xport_versioned *versioned;
	uint64_t version, number; /* of what was published last, and of the last order */
	int64_t *added; /* the memory of the sums */
	bool torn, ending;
	const struct ps_member *late; /* it lives, and has not answered its order in time */
	struct ps_member members[PS_WORKERS_MAX];
};

/* Opens the network, and listens.  ps_crew_close also after a failure. */
bool ps_crew_open(struct ps_crew *crew, const struct ps_options *o);
void ps_crew_close(struct ps_crew *crew);

/* Takes what has come, waiting for it so long; false: the instance failed. */
bool ps_crew_poll(struct ps_crew *crew, int timeout_ms);
unsigned ps_crew_here(const struct ps_crew *crew);
/* Whether one is busy, or has operations that are not over. */
bool ps_crew_busy(const struct ps_crew *crew);

/* Lets the workers read the weights as they are now. */
bool ps_crew_publish(struct ps_crew *crew);
/* Clears the sums, and divides the rows of this step among those who are here. */
bool ps_crew_order(struct ps_crew *crew, uint64_t step);
/* The sums of what was pushed for the order. */
const int64_t *ps_crew_sums(struct ps_crew *crew);
/* Tells all that it is over. */
void ps_crew_end(struct ps_crew *crew);

#endif
