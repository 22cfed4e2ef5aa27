/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * msg.h - messages: sends, receives, notifications; tag matching, eager and rendezvous.
 *
 * The window limits how much an endpoint may have sent that its peer has not consumed. Messages that must wait are in
 * msg.q. They delay later messages only.
 */
#ifndef XPI_CORE_PROTOCOL_MSG_H
#define XPI_CORE_PROTOCOL_MSG_H

#include "core/object/op_life.h"
#include "core/wire/frame.h"

struct xpi_unexpected;

/* xpi_recv, xpi_recvv - the bodies of xport_recv and xport_recvv. */
int xpi_recv(struct xport *x, void *buf, size_t len, uint64_t tag, uint64_t mask, const struct xport_opt *opt);
int xpi_recvv(struct xport *x, const struct xport_iov *list, size_t count, uint64_t tag, uint64_t mask,
              const struct xport_opt *opt);
/* xpi_msg_receive_may - check that one more receive may be posted. Returns XPORT_OK, or a status that it described. */
int xpi_msg_receive_may(struct xport *x, const char *operation, const struct xport_opt *opt);
/* xpi_msg_recv_multi - the body of xport_recv with XPORT_MULTI, also with XPORT_PEER. */
int xpi_msg_recv_multi(struct xport *x, void *buf, size_t len, uint64_t tag, uint64_t mask,
                       const struct xport_opt *opt);
/* xpi_msg_recv_peer, xpi_msg_recvv_peer - the bodies of xport_recv and xport_recvv with XPORT_PEER. */
int xpi_msg_recv_peer(struct xport *x, void *buf, size_t len, uint64_t tag, uint64_t mask, const struct xport_opt *opt);
int xpi_msg_recvv_peer(struct xport *x, const struct xport_iov *list, size_t count, uint64_t tag, uint64_t mask,
                       const struct xport_opt *opt);
/* xpi_msg_source_refuse - describe that XPORT_PEER has no opt->source. Returns XPORT_ERR_INVALID. */
int xpi_msg_source_refuse(struct xport *x, const char *operation) __attribute__((cold));
/* xpi_msg_peers_gone - end the receives for peers that are gone. */
void xpi_msg_peers_gone(struct xport *x);
/* xpi_msg_take_waiting - complete a receive by a message that was removed from the matching lists. */
void xpi_msg_take_waiting(struct xport *x, struct xpi_op *op, struct xpi_unexpected *u);
/* xpi_msg_multi_eager, xpi_msg_multi_long - a message for such a receive, which was removed from the matching lists. */
void xpi_msg_multi_eager(struct xpi_op *op, struct xport_ep *ep, uint64_t tag, const uint8_t *data, uint64_t length);
void xpi_msg_multi_long(struct xpi_op *op, struct xpi_op *cts, struct xport_ep *ep, uint64_t tag, uint64_t length,
                        uint32_t rts);
/* xpi_msg_accept_body - answer a rendezvous that has matched a receive. */
void xpi_msg_accept_body(struct xpi_op *op, struct xpi_op *cts, struct xport_ep *ep, uint64_t tag, uint64_t length,
                         uint32_t rts);
/* xpi_recv_end - complete a receive that was removed from the matching lists without a message. */
void xpi_recv_end(struct xport *x, struct xpi_op *op, int status);

/* xpi_msg_notify_max, xpi_msg_eager_max - the longest data that fits a notification or an eager send. */
size_t xpi_msg_notify_max(const struct xport_ep *ep);
size_t xpi_msg_eager_max(const struct xport_ep *ep);
/* xpi_msg_open - true if msg.q is empty and the window has space for a notification. */
bool xpi_msg_open(const struct xport_ep *ep);
/* xpi_msg_step - hand over a send or notification. XPORT_ERR_AGAIN: not possible now. */
int xpi_msg_step(struct xport_ep *ep, struct xpi_op *op);
/* xpi_msg_start - hand over a send or notification, or queue it in msg.q. */
void xpi_msg_start(struct xport_ep *ep, struct xpi_op *op);
/* xpi_msg_pump - hand over the operations of msg.q, from its head, as far as possible. */
void xpi_msg_pump(struct xport_ep *ep);
/* xpi_msg_body_step - hand over the body of a rendezvous send, which is in reply.q. */
int xpi_msg_body_step(struct xport_ep *ep, struct xpi_op *op);

/*
 * xpi_msg_send_gathered - hand over a send that fits eager_max, by copying the pieces into the frame.
 *
 * XPORT_OK: the operation is complete. XPORT_ERR_AGAIN: not possible now, nothing was changed.
 */
int xpi_msg_send_gathered(struct xport_ep *ep, struct xpi_op *op, const struct xport_iov *list, size_t count);
/* xpi_msg_list_step, xpi_msg_list_body_step - xpi_msg_step and xpi_msg_body_step for a send of kind XPI_OP_LIST. */
int xpi_msg_list_step(struct xport_ep *ep, struct xpi_op *op);
int xpi_msg_list_body_step(struct xport_ep *ep, struct xpi_op *op);

/* Handlers of received records. False: the peer broke the protocol. Out of memory: the handler fails the endpoint. */
bool xpi_msg_arrived(struct xport_ep *ep, uint64_t tag, const uint8_t *data, uint32_t len);
bool xpi_msg_rts(struct xport_ep *ep, uint64_t tag, uint64_t length, uint32_t op);
bool xpi_msg_cts(struct xport_ep *ep, const struct xpi_rec_cts *rec, const struct xpi_cts_place *place);
bool xpi_msg_body(struct xport_ep *ep, uint32_t into, uint64_t at, const uint8_t *data, uint32_t len);
bool xpi_msg_body_cma(struct xport_ep *ep, const struct xpi_rec_cma *rec);
bool xpi_msg_placed(struct xport_ep *ep, uint32_t into, uint64_t len);

/* xpi_msg_consumed - count consumed message bytes of the peer. The peer is notified when they justify a frame. */
void xpi_msg_consumed(struct xport_ep *ep, uint32_t charge);

/* xpi_msg_step for notifications and for long sends (rendezvous); in msg_tx.c. */
int xpi_msg_notify_step(struct xport_ep *ep, struct xpi_op *op) __attribute__((noinline));
int xpi_msg_rts_step(struct xport_ep *ep, struct xpi_op *op) __attribute__((noinline));

#endif
