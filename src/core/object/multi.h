/* SPDX-License-Identifier: BSD-3-Clause */
/* multi.h - receives with XPORT_MULTI: one buffer that takes many messages. */
#ifndef XPI_CORE_OBJECT_MULTI_H
#define XPI_CORE_OBJECT_MULTI_H

#include <stdbool.h>
#include <stdint.h>

#include "core/object/instance.h"
#include "core/object/op.h"

/*
 * What a receive of kind XPI_OP_MULTI has in xpi_op.buf. Each message is an operation of its own, of kind XPORT_OP_RECV: one
 * that has come completes at once. A long one is fetched first, with XPI_OP_PART and this struct in `multi`. The receive
 * completes last, with XPORT_OP_RECV_END.
 */
struct xpi_multi {
	struct xpi_op *op; /* the receive */
	uint8_t *buf;
	uint64_t len, used;
	uint64_t least;    /* with less free than this it ends */
	int64_t at_ms;     /* its deadline; INT64_MAX: none */
	uint32_t fetching; /* long messages that are being fetched */
	bool ended;        /* it takes no more messages, and completes when those are here */
};

/* A message takes whole lines: so each begins at one, and those that are not reaped are bounded by the buffer. */
enum { XPI_MULTI_LINE = 64 };

static inline struct xpi_multi *xpi_multi_of(const struct xpi_op *op)
{
	return (struct xpi_multi *)(void *)op->buf;
}

/* xpi_multi_end - end a receive that is in no matching list: it completes once nothing is being fetched into its buffer. */
void xpi_multi_end(struct xport *x, struct xpi_op *op, int status);
/* xpi_multi_fetched - complete a message with XPI_OP_PART. */
void xpi_multi_fetched(struct xpi_op *part);

#endif
