/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * target.h - execute the requests that a peer sends by message, send replies, and take the peer's replies.
 *
 * Each request is checked against the region. No peer is trusted. A function that returns bool returns false if the
 * peer broke the protocol.
 */
#ifndef XPI_CORE_PROTOCOL_TARGET_H
#define XPI_CORE_PROTOCOL_TARGET_H

#include "core/object/ep.h"
#include "core/object/instance.h"

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
	uint16_t ahead;    /* ... as the put of this number; 0: it had none */
};

void xpi_serve_put(struct xport_ep *ep, uint64_t region, uint64_t offset, const uint8_t *data, uint32_t len,
                   uint32_t op);
/* xpi_serve_put_ahead - execute a put whose notification follows. */
void xpi_serve_put_ahead(struct xport_ep *ep, const struct xpi_rec_put *rec, const uint8_t *data, uint32_t len,
                         uint16_t number);
bool xpi_serve_put_cma(struct xport_ep *ep, const struct xpi_rec_cma *rec);
bool xpi_serve_get(struct xport_ep *ep, uint64_t region, uint64_t offset, uint64_t length, uint32_t op);
bool xpi_serve_atomic(struct xport_ep *ep, const struct xpi_atomic_request *a);
bool xpi_serve_notify(struct xport_ep *ep, const struct xpi_notify_request *n);

bool xpi_answer_data(struct xport_ep *ep, uint32_t op, uint64_t at, const uint8_t *data, uint32_t len);
bool xpi_answer_data_cma(struct xport_ep *ep, const struct xpi_rec_cma *rec);
bool xpi_answer_value(struct xport_ep *ep, uint32_t op, uint64_t value);
bool xpi_answer_failed(struct xport_ep *ep, uint32_t op, uint32_t status);

/* xpi_value_write - write the reply to an atomic. */
static inline void xpi_value_write(struct xpi_rec_value *rec, uint32_t name, uint64_t value)
{
	*rec = (struct xpi_rec_value){.r = {.type = XPI_REC_VALUE}, .value = htole64(value), .op = htole32(name)};
}

/* xpi_unexpected_max - the longest eager message that the peer may send. */
uint32_t xpi_unexpected_max(const struct xport_ep *ep);

#endif
