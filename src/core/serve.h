/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * serve.h - doing what a peer asks for by message, taking its answers, and sending ours.
 *
 * Requests are checked against the region like any stranger's.  A function that returns bool returns false if the peer
 * broke the protocol.
 */
#ifndef XPI_CORE_SERVE_H
#define XPI_CORE_SERVE_H

#include "core/ep.h"
#include "core/instance.h"

struct xpi_atomic_request {
	uint64_t region, offset, operand, compare;
	uint32_t op;
	unsigned code, width;
	bool fetch;
};

struct xpi_notify_request {
	uint64_t region, offset, length, value;
	uint32_t op;
	const uint8_t *data;
	uint32_t data_len; /* 0: the data went before */
};

void xpi_serve_put(struct xport_ep *ep, uint64_t region, uint64_t offset, const uint8_t *data, uint32_t len,
                   uint32_t op);
bool xpi_serve_put_cma(struct xport_ep *ep, const struct xpi_rec_cma *rec);
bool xpi_serve_get(struct xport_ep *ep, uint64_t region, uint64_t offset, uint64_t length, uint32_t op);
bool xpi_serve_atomic(struct xport_ep *ep, const struct xpi_atomic_request *a);
bool xpi_serve_notify(struct xport_ep *ep, const struct xpi_notify_request *n);
/* CLAIM, GRANT, REVOKE, REVOKED: who may use whose native key. */
void xpi_serve_key(struct xport_ep *ep, unsigned record, uint64_t region);

bool xpi_answer_data(struct xport_ep *ep, uint32_t op, uint64_t at, const uint8_t *data, uint32_t len);
bool xpi_answer_data_cma(struct xport_ep *ep, const struct xpi_rec_cma *rec);
bool xpi_answer_value(struct xport_ep *ep, uint32_t op, uint64_t value);
bool xpi_answer_failed(struct xport_ep *ep, uint32_t op, uint32_t status);

/* Queues XPI_OP_CLAIM, GRANT, ADOPT, REVOKE, REVOKED or CMA_ANSWER. */
void xpi_tell_key(struct xport_ep *ep, unsigned kind, uint64_t region);

/* Queues the native key of a region of ours.  False: out of memory. */
bool xpi_lend_key(struct xport_ep *ep, uint64_t region);

/* The answer to an atomic. */
static inline void xpi_value_write(struct xpi_rec_value *rec, uint32_t name, uint64_t value)
{
	*rec = (struct xpi_rec_value){.r = {.type = XPI_REC_VALUE}, .value = htole64(value), .op = htole32(name)};
}

/* reply.c: works off q_reply; q_rma, q_msg and what is owed to the peer after it. */
void xpi_ep_pump(struct xport_ep *ep);

/* Longest eager message the peer may send. */
uint32_t xpi_unexpected_max(const struct xport_ep *ep);

#endif
