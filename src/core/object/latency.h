/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * latency.h - how long operations take, from their posting until progress finds them complete: XPORT_LATENCY=1.
 *
 * All calls then take the slow path (XPI_SLOW_TIMED), so each operation has an operation object. The hot path has no instruction for
 * this. A call that is entered notes the time, and which objects the pool will give out next. The next call finds the
 * operations that were posted in between among these, and keeps their time in a table by pool index. Progress looks at the
 * operations that have completed before they are reaped.
 *
 * Not measured: receives, quiet operations, failed ones, and an operation whose object came from a new slab of the pool.
 */
#ifndef XPI_CORE_OBJECT_LATENCY_H
#define XPI_CORE_OBJECT_LATENCY_H

#include <stdint.h>

#include "xport.h"

struct xport;
struct xport_ep;
struct xpi_latency;

enum { XPI_LATENCY_KINDS = 8, XPI_LATENCY_BUCKETS = 24 };

/* Of an endpoint, ever. */
struct xpi_latency_counts {
	uint64_t bucket[XPI_LATENCY_KINDS][XPI_LATENCY_BUCKETS], sum_ns[XPI_LATENCY_KINDS];
};

/* xpi_latency_open - begin to measure. Returns XPORT_OK, or XPORT_ERR_NO_MEMORY. */
int xpi_latency_open(struct xport *x);

/* xpi_latency_close - free what it needs. */
void xpi_latency_close(struct xport *x);

/* xpi_latency_entered - a call has been entered, and may post. */
void xpi_latency_entered(struct xport *x);

/* xpi_latency_look - measure the operations that are complete, and not reaped. */
void xpi_latency_look(struct xport *x);

/* xpi_latency_add - add those of the endpoint to *to. */
void xpi_latency_add(struct xport_counters *to, const struct xport_ep *ep);

#endif
