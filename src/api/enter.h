/* SPDX-License-Identifier: BSD-3-Clause */
/* enter.h - how a public function is entered and left. */
#ifndef XPI_API_ENTER_H
#define XPI_API_ENTER_H

#include <stdio.h>
#include <string.h>

#include "core/object/instance.h"

#define likely(c) __builtin_expect(!!(c), 1)
#define unlikely(c) __builtin_expect(!!(c), 0)

static inline struct xport_error *begin_error(struct xport_error *err, const char *operation)
{
	memset(err, 0, sizeof(*err));
	err->size = sizeof(*err);
	snprintf(err->operation, sizeof(err->operation), "%s", operation);
	return err;
}

/* Enters for a call without a hot path: also names the operation for xport_last_error. */
static inline int enter(struct xport *x, const char *operation)
{
	int r = xpi_enter(x);

	if (r == XPORT_OK)
		begin_error(&x->err, operation);
	return r;
}

/* The same for a call that only looks, which leaves the descriptor asleep. */
static inline int enter_to_look(struct xport *x, const char *operation)
{
	int r = xpi_enter_to_look(x);

	if (r == XPORT_OK)
		begin_error(&x->err, operation);
	return r;
}

static inline int leave(struct xport *x, int r)
{
	xpi_leave(x);
	return r;
}

#endif
