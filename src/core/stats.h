/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stats.h - what xport_stats tells.
 *
 * Operations on the short way (quick.h) are not counted one by one where another number says how many they were: a
 * frame that emit() did not send was one of them, and so was each remote change that no operation was made for.
 */
#ifndef XPI_CORE_STATS_H
#define XPI_CORE_STATS_H

#include <stdint.h>

#include "xport.h"

struct xport_ep;

enum { XPI_STATUSES = 1 - XPORT_ERR_BUSY };

/* Of an endpoint, ever. */
struct xpi_counts {
	uint64_t bytes_out;
	uint64_t quick_puts; /* by message */
	uint64_t emitted;    /* frames by emit(), control frames as well */
	uint64_t bytes_in;
	uint64_t received;  /* frames, without control frames */
	uint64_t acked;     /* frames */
	uint64_t repacked;  /* operations of the short way that left in a packed frame */
	uint64_t changes;   /* of xport_ep.touched, by operations that are in `posted` */
	uint64_t posted[XPORT_OP_FLUSH + 1]; /* by enum xport_type, but for the short way; RECV: matched */
	uint64_t notified;
	uint64_t again;
	uint64_t control_out, control_in; /* control frames */
	uint64_t high;                    /* the most that were in flight */
	uint64_t errors[XPI_STATUSES];    /* by negated status */
};

/* An operation of this endpoint is about to complete with an error. */
void xpi_stats_error(struct xport_ep *ep, int status) __attribute__((cold));

/* So many were in flight. */
void xpi_stats_high(struct xport_ep *ep, uint32_t in_flight);

/* The endpoint's operations and events that were not reaped. */
uint64_t xpi_stats_in_flight(const struct xport_ep *ep);

/* Adds the endpoint's numbers; in_flight_max becomes the larger one. */
void xpi_stats_add(struct xport_counters *to, const struct xport_ep *ep);

/* Of one endpoint; NULL: of the instance, with the endpoints that are gone. */
void xpi_stats(const struct xport *x, const struct xport_ep *ep, struct xport_counters *out);

/* Writes a line with the endpoint's numbers. */
void xpi_stats_log(const struct xport_ep *ep, int level, const char *id);

#endif
