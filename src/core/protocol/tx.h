/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tx.h - sending: pack records into frames and hand frames to the back end, within the credits of the peer.
 *
 * The first record after a poll is sent at once. Small records that follow before the next poll are packed into one
 * frame. This frame is sent when it is full, at the next poll, or before anything that must follow it. In a burst the
 * first record waits for the others as well. That saves a frame, which over TCP is a system call at each end.
 *
 * Errors
 *   XPORT_ERR_AGAIN  nothing was accepted: no credit, or the back end has no queue space. The endpoint's work continues
 *                    by itself
 *   Other errors of the back end mark the endpoint broken, and are returned as XPORT_ERR_AGAIN.
 */
#ifndef XPI_CORE_PROTOCOL_TX_H
#define XPI_CORE_PROTOCOL_TX_H

#include "base/copy.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/wire/frame.h"

/* A frame, or the head of one, while the core or the back end holds it. */
struct xpi_tx {
	struct xpi_wait wait; /* first */
	bool packed;
	struct xpi_list link; /* in tx.held while the back end holds it */
	struct xport_ep *ep;
	struct xpi_op *op;         /* whose data the back end holds beside the head; or NULL */
	uint32_t len;              /* bytes in buf */
	uint32_t flags;            /* XPI_FRAME_* */
	_Alignas(8) uint8_t buf[]; /* the frame's head and records */
};

/* The frame of a record that leaves alone has room for the longest record header and this much data; more is gathered
 * from where it lies. */
enum {
	XPI_LONE_DATA = 192,
	XPI_LONE_ROOM = sizeof(struct xpi_frame_head) + sizeof(struct xpi_rec_notify) + XPI_LONE_DATA
};
_Static_assert(sizeof(struct xpi_rec_atomic) <= sizeof(struct xpi_rec_notify) &&
                       sizeof(struct xpi_rec_cma) <= sizeof(struct xpi_rec_notify),
               "the longest record header");
/* Data above this is not copied into a packed frame. */
enum { XPI_PACK_MAX = 1024 };

static inline struct xpi_frame_head *xpi_tx_head(struct xpi_tx *tx)
{
	return (struct xpi_frame_head *)tx->buf;
}

/* xpi_tx_first - the place of the first record. */
static inline void *xpi_tx_first(struct xpi_tx *tx)
{
	return tx->buf + sizeof(struct xpi_frame_head);
}

/*
 * xpi_tx_record - hand over one record with its data.
 *
 * flags  XPI_FRAME_ACK_NOW or 0
 *
 * Returns XPORT_OK     the data belongs to the caller again
 *         XPI_PENDING  op->pending was incremented; xpi_op_sent(op) follows
 * or
 *   XPORT_ERR_AGAIN    nothing was accepted
 */
int xpi_tx_record(struct xport_ep *ep, struct xpi_op *op, const struct xpi_rec *rec, size_t rlen, const void *data,
                  unsigned flags);

/* xpi_tx_alone - true if a record is sent at once: it is the first after a poll, and no burst is expected. */
static inline bool xpi_tx_alone(const struct xport_ep *ep)
{
	return (int32_t)(ep->tx.epoch - ep->x->epoch) < 0;
}

/* xpi_tx_seq - the sequence number of the frame that carries the last record handed over. */
static inline uint32_t xpi_tx_seq(const struct xport_ep *ep)
{
	return ep->tx.open != NULL ? ep->tx.seq + 1 : ep->tx.seq;
}

/* xpi_tx_changed - true if the peer has acknowledged all records that change its memory or request data from it. */
static inline bool xpi_tx_changed(const struct xport_ep *ep)
{
	return xpi_seq_reached(ep->tx.acked, ep->tx.change_seq);
}

/* xpi_tx_room - the number of data bytes that fit into one frame with a record header of `rlen` bytes. */
static inline size_t xpi_tx_room(const struct xport_ep *ep, size_t rlen)
{
	return ep->tx.frame_max - sizeof(struct xpi_frame_head) - rlen;
}

/* xpi_tx_next - the place of the next record in a packed frame. */
static inline void *xpi_tx_next(struct xpi_tx *tx)
{
	return tx->buf + tx->len;
}

/* xpi_tx_append - add the record of `rlen` bytes that was written at xpi_tx_next, and its data, to the frame. */
static inline __attribute__((always_inline)) void xpi_tx_append(struct xpi_tx *tx, size_t rlen, const void *data,
                                                                size_t dlen, unsigned flags)
{
	xpi_copy(tx->buf + tx->len + rlen, data, dlen);
	tx->len += (uint32_t)(rlen + dlen);
	tx->flags |= flags;
}

/* xpi_tx_fits - true if a frame is being packed and `n` more bytes fit. */
static inline bool xpi_tx_fits(const struct xport_ep *ep, size_t n)
{
	return ep->tx.open != NULL && ep->tx.open->len + n <= ep->tx.pack_max;
}

/* xpi_tx_reserve - as xpi_tx_open, but start none: a record of `n` bytes can be sent next. False: no credit or queue space. */
bool xpi_tx_reserve(struct xport_ep *ep, size_t n);
/* xpi_tx_open - make `n` bytes fit: send a full frame, start a new one. False: no credit, queue space or memory. */
bool xpi_tx_open(struct xport_ep *ep, size_t n);

/* xpi_tx_open_packed - the same for a record that must be packed. If it fails, the endpoint tries again by itself. */
bool xpi_tx_open_packed(struct xport_ep *ep, size_t n);

/*
 * xpi_tx_open_long - the same for records that are gathered from many places: the frame is filled up to frame_max.
 *
 * Until it is sent, other records go into a frame of their own if it is longer than pack_max.
 */
bool xpi_tx_open_long(struct xport_ep *ep, size_t n);
/* xpi_tx_gathered - the open frame got the records of a list. A long frame leaves now. */
void xpi_tx_gathered(struct xport_ep *ep);

/*
 * xpi_tx_place, xpi_tx_leave - xpi_tx_record in two steps, for frequent records.
 *
 * The caller writes the record directly into the frame. (Copying a record that was just written in narrower stores
 * costs the processor more than all the rest.) xpi_tx_place returns where to write, for a record with `dlen` bytes of
 * data, or NULL for XPORT_ERR_AGAIN. After a place, xpi_tx_leave must follow. It returns as xpi_tx_record.
 */
void *xpi_tx_place(struct xport_ep *ep, size_t rlen, size_t dlen);
int xpi_tx_leave(struct xport_ep *ep, struct xpi_op *op, size_t rlen, const void *data, size_t dlen, unsigned flags);

/* xpi_tx_begin, xpi_tx_end - the same, inline while a packed frame has space. */
static inline void *xpi_tx_begin(struct xport_ep *ep, size_t rlen, size_t dlen)
{
	if (__builtin_expect(dlen <= XPI_PACK_MAX && xpi_tx_fits(ep, rlen + dlen), 1))
		return xpi_tx_next(ep->tx.open);
	return xpi_tx_place(ep, rlen, dlen);
}

static inline int xpi_tx_end(struct xport_ep *ep, struct xpi_op *op, size_t rlen, const void *data, size_t dlen,
                             unsigned flags)
{
	if (__builtin_expect(ep->tx.open == NULL, 0))
		return xpi_tx_leave(ep, op, rlen, data, dlen, flags);
	xpi_tx_append(ep->tx.open, rlen, data, dlen, flags);
	return XPORT_OK;
}

/* xpi_tx_own - count the last record as an operation of the application. Only these make a burst, not replies. */
static inline void xpi_tx_own(struct xport_ep *ep)
{
	if (ep->tx.open != NULL)
		ep->n.packed++;
}

/* xpi_tx_own_extra - the same for a flush, or for a notification after its data: it is not counted as coalesced. */
static inline void xpi_tx_own_extra(struct xport_ep *ep)
{
	if (ep->tx.open != NULL)
		ep->n.packed_extra++;
	xpi_tx_own(ep);
}

/*
 * xpi_tx_aside - the place for a record that is written within a callback and sent later.
 *
 * Does not call the back end, which is not allowed there. Returns NULL if there is no space without that call, or if
 * others wait for the space. Otherwise xpi_tx_append must follow.
 */
static inline void *xpi_tx_aside(struct xport_ep *ep, size_t n)
{
	if (xpi_tx_fits(ep, n))
		return xpi_tx_next(ep->tx.open);
	return ep->tx.open == NULL && !ep->tx.blocked && xpi_tx_open(ep, n) ? xpi_tx_next(ep->tx.open) : NULL;
}

/* xpi_tx_flush - send the frame that is being packed, if there is one. */
int xpi_tx_flush(struct xport_ep *ep);

/* xpi_tx_control - send a control frame: failures, then the acknowledgement. */
int xpi_tx_control(struct xport_ep *ep);

/* xpi_refused - handle a refusal by the back end: the work continues later, or the endpoint is marked broken. */
void xpi_refused(struct xport_ep *ep, int status) __attribute__((cold));
/* xpi_tx_refused - the same for a frame. Returns XPORT_ERR_AGAIN. */
int xpi_tx_refused(struct xport_ep *ep, int status) __attribute__((cold));

/* xpi_tx_lone - allocate the frame for a single record, if there is none. False: out of memory. */
bool xpi_tx_lone(struct xport_ep *ep);
/*
 * xpi_tx_repack - copy the record in the lone frame into a packed frame, which is sent later.
 *
 * rlen  bytes of the record, with its data
 *
 * Returns false if out of memory.
 */
bool xpi_tx_repack(struct xport_ep *ep, size_t rlen);
/* xpi_tx_lone_kept - replace the lone frame, which the back end still uses. */
void xpi_tx_lone_kept(struct xport_ep *ep);

/* xpi_tx_done - handle the end of a frame that the back end held, with `status`. */
void xpi_tx_done(struct xpi_tx *tx, int status);

/* xpi_tx_drop - drop all frames. The endpoint must be quiesced. */
void xpi_tx_drop(struct xport_ep *ep);

#endif
