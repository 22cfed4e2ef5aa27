/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tx.h - sending: records into frames, frames to the back end, within the credits that the peer gave.
 *
 * The first record after a poll leaves at once.  What follows before the next poll and is small is packed into one
 * frame, which leaves when it is full, at the next poll, or before anything that must follow.  Where others followed the last
 * times the first waits for them: a frame less, which over TCP is a system call at either end.
 *
 * ERRORS: XPORT_ERR_AGAIN means that nothing was taken: no credit, or the back end is full; the endpoint's work goes
 * on by itself.  Other errors of the back end mark the endpoint broken and read as AGAIN.
 */
#ifndef XPI_CORE_TX_H
#define XPI_CORE_TX_H

#include "base/copy.h"
#include "core/ep.h"
#include "core/instance.h"
#include "core/wire.h"

/* A frame, or the head of one, while the core or the back end holds it. */
struct xpi_tx {
	struct xpi_wait wait; /* first */
	bool packed;
	uint16_t own;         /* records of operations, not answers */
	struct xpi_list link; /* in ep->txs while the back end holds it */
	struct xport_ep *ep;
	struct xpi_op *op;    /* whose data the back end holds beside the head; or NULL */
	uint32_t len;         /* bytes in buf */
	uint32_t flags;       /* XPI_FRAME_* */
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

/* Where its first record is. */
static inline void *xpi_tx_first(struct xpi_tx *tx)
{
	return tx->buf + sizeof(struct xpi_frame_head);
}

/*
 * Hands over one record with its data.  XPORT_OK: the data is the caller's again.  XPI_PENDING: op->pending was
 * counted; xpi_op_sent(op) will be called.  `flags`: XPI_FRAME_ACK_NOW.
 */
int xpi_tx_record(struct xport_ep *ep, struct xpi_op *op, const struct xpi_rec *rec, size_t rlen, const void *data,
                  unsigned flags);

/* Whether a record leaves at once: it is the first after a poll, and no burst is expected. */
static inline bool xpi_tx_alone(const struct xport_ep *ep)
{
	return (int32_t)(ep->epoch - ep->x->epoch) < 0;
}

/* The frame that carries what was handed over last. */
static inline uint32_t xpi_tx_seq(const struct xport_ep *ep)
{
	return ep->open != NULL ? ep->tx_seq + 1 : ep->tx_seq;
}

/* What to acknowledge to the peer; that must not run ahead of the failures that belong to its frames. */
static inline uint32_t xpi_tx_ack(const struct xport_ep *ep)
{
	return ep->nak_hold ? ep->nak_seq : ep->seen.ack;
}

/* Whether the peer has processed, and said so, what was handed over and changes its memory, or asks for some. */
static inline bool xpi_tx_changed(const struct xport_ep *ep)
{
	return xpi_seq_reached(ep->tx_acked, ep->change_seq);
}

/* Data bytes that fit beside a record header of `rlen` in one frame. */
static inline size_t xpi_tx_room(const struct xport_ep *ep, size_t rlen)
{
	return ep->frame_max - sizeof(struct xpi_frame_head) - rlen;
}

/* Where the next record of a packed frame goes. */
static inline void *xpi_tx_next(struct xpi_tx *tx)
{
	return tx->buf + tx->len;
}

/* A record was written there, of `rlen` bytes: its data follow, and it is part of the frame. */
static inline __attribute__((always_inline)) void xpi_tx_append(struct xpi_tx *tx, size_t rlen, const void *data,
                                                                size_t dlen, unsigned flags)
{
	xpi_copy(tx->buf + tx->len + rlen, data, dlen);
	tx->len += (uint32_t)(rlen + dlen);
	tx->flags |= flags;
}

/* Whether the frame being packed has room for `n` bytes more. */
static inline bool xpi_tx_fits(const struct xport_ep *ep, size_t n)
{
	return ep->open != NULL && ep->open->len + n <= ep->pack_max;
}

/* Sees to it that it has.  False: out of credits, of the back end's room, or of memory. */
bool xpi_tx_open(struct xport_ep *ep, size_t n);

/*
 * xpi_tx_record in two steps, for what is sent often: the record is written where it leaves from.  Copying what was written a
 * moment ago in narrower stores takes the processor longer than all the rest.  The first says where, with so much data; NULL:
 * XPORT_ERR_AGAIN.  Else the second must follow.
 */
void *xpi_tx_place(struct xport_ep *ep, size_t rlen, size_t dlen);
int xpi_tx_leave(struct xport_ep *ep, struct xpi_op *op, size_t rlen, const void *data, size_t dlen, unsigned flags);

static inline void *xpi_tx_begin(struct xport_ep *ep, size_t rlen, size_t dlen)
{
	if (__builtin_expect(dlen <= XPI_PACK_MAX && xpi_tx_fits(ep, rlen + dlen), 1))
		return xpi_tx_next(ep->open);
	return xpi_tx_place(ep, rlen, dlen);
}

static inline int xpi_tx_end(struct xport_ep *ep, struct xpi_op *op, size_t rlen, const void *data, size_t dlen,
                             unsigned flags)
{
	if (__builtin_expect(ep->open == NULL, 0))
		return xpi_tx_leave(ep, op, rlen, data, dlen, flags);
	xpi_tx_append(ep->open, rlen, data, dlen, flags);
	return XPORT_OK;
}

/* What was handed over last is an operation of the application's: they come in bursts, answers when the peer asks. */
static inline void xpi_tx_own(struct xport_ep *ep)
{
	if (ep->open != NULL)
		ep->open->own++;
}

/* Where a record goes that is written from within a callback, and leaves later.  NULL: there is no room without calling the back
 * end, which may not be called there, or others wait for it.  xpi_tx_append must follow. */
static inline void *xpi_tx_aside(struct xport_ep *ep, size_t n)
{
	if (xpi_tx_fits(ep, n))
		return xpi_tx_next(ep->open);
	return ep->open == NULL && !ep->short_of_room && xpi_tx_open(ep, n) ? xpi_tx_next(ep->open) : NULL;
}

/* Takes the endpoint into the instance's list of those with work. */
static inline void xpi_work(struct xport_ep *ep)
{
	if (xpi_list_linked(&ep->work))
		return;
	xpi_list_push(&ep->x->work, &ep->work);
	ep->x->todo |= XPI_TODO_WORK;
}

/* Sends the frame being packed, if any. */
int xpi_tx_flush(struct xport_ep *ep);

/* Tells the peer what it waits for: failures, then the acknowledgement. */
int xpi_tx_control(struct xport_ep *ep);

/* The back end did not take something: work goes on later, or never. */
void xpi_refused(struct xport_ep *ep, int status) __attribute__((cold));
/* The same of a frame.  Returns XPORT_ERR_AGAIN. */
int xpi_tx_refused(struct xport_ep *ep, int status) __attribute__((cold));

/* Sees to it that there is a lone frame.  False: out of memory. */
bool xpi_tx_lone(struct xport_ep *ep);
/* The record in the lone frame, `rlen` bytes with its data, leaves later in a packed one.  False: out of memory. */
bool xpi_tx_repack(struct xport_ep *ep, size_t rlen);
/* The back end goes on using the lone frame: another takes its place. */
void xpi_tx_lone_kept(struct xport_ep *ep);

/* The back end is done with a frame. */
void xpi_tx_done(struct xport *x, struct xpi_tx *tx, int status);

/* Drops all frames; the endpoint is quiesced. */
void xpi_tx_drop(struct xport_ep *ep);

#endif
