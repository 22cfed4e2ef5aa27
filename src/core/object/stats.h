/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stats.h - the counters that xport_stats reports.
 *
 * Operations on the fast path (fastpath.h) are not counted one by one if their number follows from other counters:
 *   - Each frame that emit() did not send was a put or send alone in its frame.
 *   - Each operation of a packed frame that has no operation object was a put or send that joined the frame.
 *   - Each native change without an operation object was a put by the network.
 *   - Each other remote change without an operation object was a put by a copy.
 */
#ifndef XPI_CORE_OBJECT_STATS_H
#define XPI_CORE_OBJECT_STATS_H

#include <stdint.h>

#include "xport.h"

struct xport_ep;

enum { XPI_STATUSES = 1 - XPORT_ERR_BUSY };

/* Of an endpoint, ever. */
struct xpi_counts {
	uint64_t bytes_out;
	uint64_t fast_puts; /* by message */
	uint64_t emitted;   /* frames by emit(), control frames as well */
	uint64_t bytes_in;
	uint64_t received;                   /* frames, without control frames */
	uint64_t acked;                      /* frames */
	uint64_t repacked;                   /* operations of the fast path that left in a packed frame */
	uint64_t changes;                    /* of rma.n_posted, by operations that are in `posted` */
	uint64_t posted[XPORT_OP_FLUSH + 1]; /* by enum xport_type, but for the fast path; RECV: matched */
	uint64_t fast_gets, fast_atomics;    /* done by a copy, without an operation object */
	/* records of the application's operations in packed frames */
	uint64_t joined;                             /* puts and sends of the fast path */
	uint64_t joined_sends;                       /* of those, sends */
	uint64_t packed;                             /* others, by xpi_tx_own */
	uint64_t packed_extra;                       /* of those: flushes, and notifications whose data went ahead */
	uint64_t packed_before, packed_extra_before; /* what these were when the last packed frame had left */
	uint64_t coalesced;                          /* operations in packed frames with several */
	/* operations with an operation object, by the path that they took */
	uint64_t slow_copies, slow_messages, native_gets, cma;
	uint64_t slow_native; /* increments of xport_ep.rma.native_posted */
	uint64_t notified;
	uint64_t again;
	uint64_t control_out, control_in; /* control frames */
	uint64_t high;                    /* the most that were in flight */
	uint64_t errors[XPI_STATUSES];    /* by negated status */
};

/* xpi_stats_error - count an operation of this endpoint that is about to complete with an error. */
void xpi_stats_error(struct xport_ep *ep, int status) __attribute__((cold));

/* xpi_stats_high - record the number of operations in flight; the maximum is kept. */
void xpi_stats_high(struct xport_ep *ep, uint32_t in_flight);

/* xpi_stats_in_flight - the number of the endpoint's operations and events that are not reaped. */
uint64_t xpi_stats_in_flight(const struct xport_ep *ep);

/* xpi_stats_add - add the endpoint's counters to *to. in_flight_max becomes the larger of the two. */
void xpi_stats_add(struct xport_counters *to, const struct xport_ep *ep);

/* xpi_stats - the counters of one endpoint; NULL: of the instance, including endpoints that are freed. */
void xpi_stats(const struct xport *x, const struct xport_ep *ep, struct xport_counters *out);

/* xpi_stats_log - log the endpoint's counters. */
void xpi_stats_log(const struct xport_ep *ep, int level, const char *id);

#endif
