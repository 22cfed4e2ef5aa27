/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * deadline.h - the deadlines of operations (xport_opt.deadline_ms), in a heap of the instance.
 *
 * Only operations that do not complete at once have an entry. An operation that completes does not know of its entry:
 * that stays until it is the first, or until the heap is full. An entry names its operation by index and generation, so
 * one that is left over is recognised.
 */
#ifndef XPI_CORE_OBJECT_DEADLINE_H
#define XPI_CORE_OBJECT_DEADLINE_H

#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/op.h"

/*
 * xpi_deadline_begin - prepare a deadline before its operation is posted: check it, and make space for its entry.
 *
 * *at_ms  set to when the time is over; INT64_MAX: deadline_ms is 0
 *
 * Returns XPORT_OK, or, described,
 *   XPORT_ERR_INVALID    deadline_ms is above 2147483647
 *   XPORT_ERR_NO_MEMORY  out of memory
 */
int xpi_deadline_begin(struct xport *x, const char *operation, const struct xport_opt *opt, int64_t *at_ms);

/* xpi_deadline_space - make space for one entry. False: out of memory. */
bool xpi_deadline_space(struct xport *x);

/*
 * xpi_deadline_add - give a posted operation its deadline, if it is not complete already. xpi_deadline_begin has made
 * space.
 *
 * id     xpi_op_id, from before the operation took its first step: it may be freed since
 * at_ms  INT64_MAX: no deadline
 */
void xpi_deadline_add(struct xport *x, uint64_t id, int64_t at_ms);

/* xpi_deadline_next - remove and return an operation whose time was over at `now`. NULL: no more. */
struct xpi_op *xpi_deadline_next(struct xport *x, int64_t now);

/* xpi_deadline_ring - have the helper thread raise the wake flag when the first deadline is over, if there is one. */
void xpi_deadline_ring(struct xport *x);

/* xpi_deadline_close - free the heap when the instance ends. */
void xpi_deadline_close(struct xport *x);

/* xpi_op_ended - true if an operation of the application is complete. Its endpoint, if any, is open or closing. */
bool xpi_op_ended(const struct xpi_op *op);

#endif
