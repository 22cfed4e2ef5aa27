/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * msg.h - messages: sends, receives, notifications; tag matching, eager and rendezvous.
 *
 * What an endpoint has sent and its peer has not consumed is bounded by the window; what must wait stands in q_msg and
 * holds up nothing but later messages.
 */
#ifndef XPI_CORE_MSG_H
#define XPI_CORE_MSG_H

#include "core/opq.h"
#include "core/wire.h"

struct xpi_unexpected;

int xpi_send(struct xport_ep *ep, const void *buf, size_t len, uint64_t tag, const struct xport_opt *opt);
int xpi_recv(struct xport *x, void *buf, size_t len, uint64_t tag, uint64_t mask, const struct xport_opt *opt);
int xpi_cancel(struct xport *x, uint64_t id);
/* Completes a receive that was taken out of the matching lists without a message. */
void xpi_recv_end(struct xport *x, struct xpi_op *op, int status);
/* Drops an unexpected message. */
void xpi_msg_drop(struct xport *x, struct xpi_unexpected *u);

/*
 * The longest unexpected message of a class, which has a pool: tiny ones take two cache lines with all that belongs to them,
 * since thousands may wait; from XPI_SMALL_MESSAGE on the next is twice as long, so that what the peer charges itself for one
 * is what it takes here, within a factor of two.  Those that are longer than all take a frame's room.
 */
static inline uint32_t xpi_unexpected_room(unsigned class)
{
	enum { TINY_MESSAGE = 24 };

	return class == 0 ? TINY_MESSAGE : ((XPI_SMALL_MESSAGE + 64) << (class - 1)) - 64;
}

/* Longest data that travels with its notification, or as an eager send. */
size_t xpi_msg_notify_max(const struct xport_ep *ep);
size_t xpi_msg_eager_max(const struct xport_ep *ep);
/* Nothing waits in q_msg, and the window takes a notification. */
bool xpi_msg_open(const struct xport_ep *ep);
/* Hands over a send or notification; XPORT_ERR_AGAIN: not now. */
int xpi_msg_step(struct xport_ep *ep, struct xpi_op *op);
/* Hands it over, or queues it. */
void xpi_msg_start(struct xport_ep *ep, struct xpi_op *op);
/* Works off q_msg from its head. */
void xpi_msg_pump(struct xport_ep *ep);
/* The body of a rendezvous send, from q_reply. */
int xpi_msg_body_step(struct xport_ep *ep, struct xpi_op *op);

/* Records that arrived; false: the peer broke the protocol.  XPORT_ERR_NO_MEMORY ends the endpoint by itself. */
bool xpi_msg_arrived(struct xport_ep *ep, uint64_t tag, const uint8_t *data, uint32_t len);
bool xpi_msg_rts(struct xport_ep *ep, uint64_t tag, uint64_t length, uint32_t op);
bool xpi_msg_cts(struct xport_ep *ep, const struct xpi_rec_cts *rec, const struct xpi_cts_place *place);
bool xpi_msg_body(struct xport_ep *ep, uint32_t into, uint64_t at, const uint8_t *data, uint32_t len);
bool xpi_msg_body_cma(struct xport_ep *ep, const struct xpi_rec_cma *rec);
bool xpi_msg_placed(struct xport_ep *ep, uint32_t into, uint64_t len);

/* Message bytes of the peer's were consumed: tells it once that is worth a frame. */
void xpi_msg_consumed(struct xport_ep *ep, uint32_t charge);

#endif
