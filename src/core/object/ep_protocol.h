/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ep_protocol.h - the parts of an endpoint that belong to core/protocol.
 *
 * Only protocol assigns these members; object initialises them, and post/fastpath.h and post/fastpath.c do what
 * protocol would do for a small operation. Of struct xpi_ep_rma, all of post assigns what it counts. Everybody may read.
 * contrib/check-rooms checks this.
 */
#ifndef XPI_CORE_OBJECT_EP_PROTOCOL_H
#define XPI_CORE_OBJECT_EP_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "core/object/op.h"
#include "core/wire/frame.h"

struct xpi_inbox;
struct xpi_tx;

/* Frames from the peer. */
struct xpi_ep_rx {
	struct xpi_seen state; /* the last frame received; message bytes of the peer's consumed, ever */
	struct xpi_seen acked; /* the part of `state` that the peer knows */
	bool ack_now;          /* the peer asked for an acknowledgement */
	bool nak_hold;         /* acknowledgements stay at reply.nak_seq until reply.q_nak is empty */
	bool discard;          /* memory that the peer had us read is gone: ignore all later frames */
	bool bye;              /* the peer's BYE has arrived */
	uint32_t credits;      /* frames that the peer may send unacknowledged */
};

/* Frames to the peer. The members of the fast path come first. */
struct xpi_ep_tx {
	struct xpi_tx *lone;        /* the frame for a single record that is sent at once; NULL: not allocated yet */
	uint32_t seq;               /* of the last frame sent */
	uint32_t epoch;             /* the poll during which something was last sent; ahead: a burst is expected */
	uint32_t change_seq;        /* the last frame that changes the peer's memory, or one acknowledged */
	uint32_t acked;             /* the last frame that the peer acknowledged */
	uint32_t burst_seq;         /* the last frame of the last burst */
	uint32_t credits;           /* frames the peer takes unacknowledged */
	struct xpi_tx *open;        /* the frame being packed, or NULL */
	size_t frame_max, pack_max; /* longest frame, and longest packed one */
	bool blocked;               /* something was not sent: no credit, or no queue space in the back end */
	bool bye_sent;
	uint32_t bye_seq;     /* the frame that carries our BYE */
	struct xpi_list held; /* frames that the back end holds */
	struct xpi_tx *nak;   /* a control frame with failures that the back end did not take yet, or NULL */
	struct {
		uint32_t times; /* the back end was out of memory, since a frame was last sent */
		int64_t since_ms;
		uint64_t moved; /* what had been sent then */
	} nomem;
};

/* Puts, gets, atomics, fences and flushes. */
struct xpi_ep_rma {
	struct xpi_list q; /* put, get, atomic, fence, flush, in order */
	/* operations of q posted and handed over, ever, and fences behind a get. Operations on the fast path are
	 * both at once, and are not counted. */
	uint64_t q_posted, q_sent;
	/* native puts posted and flushed, ever. A message that must follow some waits until the second counter reaches
	 * the value that the first had; the same holds for q_posted and q_sent. */
	uint64_t native_posted, native_flushed;
	uint64_t drain_to; /* the value of native_posted that the flush in progress covers */
	struct xpi_wait drain;
	bool drain_running;
	bool busy;        /* something waits in q: a new operation queues behind it */
	bool flush_waits; /* a flush waits only for quiet operations whose buffer is in use */
	uint16_t ahead;   /* the number of the last put whose notification follows, see XPI_AHEAD_MAX */
	uint32_t ntold;   /* notifications that wait behind their data */
	uint64_t fence;   /* the value of q_sent that a send must wait for */
	uint32_t nrequests, requests_max;
	uint32_t ngets;          /* not done yet */
	uint32_t quiet_pending;  /* quiet operations whose buffer is in use */
	uint32_t nflushes;       /* in flight */
	int32_t quiet_error;     /* first failure of a quiet or local operation, for the next flush */
	uint64_t quiet_error_at; /* the value of n_posted at the last one: all later flushes know of it */
	uint64_t n_placed;       /* the remote changes that the last successful flush confirmed */
	uint64_t n_posted;       /* remote changes posted, ever. Last: see the assertions in ep.h */
};

/* Messages. */
struct xpi_ep_msg {
	uint32_t used;     /* message bytes sent, ever (modulo 2^32) */
	uint32_t freed;    /* the part of `used` that the peer has consumed */
	uint32_t window;   /* the largest difference between the two */
	uint32_t charged;  /* message bytes of the peer's received, ever */
	struct xpi_list q; /* send, notify, in order */
};

/* What the peer asked for, and what it must still be told. */
struct xpi_ep_reply {
	struct xpi_list q;
	struct xpi_list q_nak;  /* failures to report before their frame is acknowledged */
	uint32_t nak_seq;       /* the last frame without failures, see rx.nak_hold */
	uint32_t nserving;      /* gets of the peer that are being answered */
	uint32_t owed;          /* other answers that were not sent yet, see xpi_op_owed */
	uint8_t turn;           /* the queue that xpi_ep_pump serves first */
	bool wrote;             /* the peer has written to a region of ours, or may have */
	uint8_t *ahead_refused; /* a bit for each number of rma.ahead: its data were refused; NULL: none ever were */
};

/* Cross memory attach: long data that the receiver reads out of the sender's memory, see protocol/cma.c. */
struct xpi_ep_cma {
	uint8_t state;           /* whether the peer reads long data out of our memory */
	bool asked;              /* the peer has asked us the same */
	uint32_t offers;         /* of ours to the peer */
	uint32_t seq;            /* the last frame that made the peer read something */
	uint32_t epoch;          /* the poll during which we last read out of its memory */
	uint64_t bytes;          /* that the peer was asked to read since it was last known to have read all */
	uint64_t read;           /* we have read during that poll */
	struct xpi_inbox *inbox; /* the peer's offers, if we read out of its memory; or NULL */
};

/* Private data of xport_accept_with: of the accepting side until they have left, of the connecting side once they came. */
struct xpi_ep_accept {
	uint8_t *data; /* NULL: none */
	uint32_t len;
	bool came; /* the peer has said that it accepted */
};

/* Keys of both sides. */
struct xpi_ep_keys {
	struct xpi_list rkeys;
	struct xpi_list holds;     /* native keys of our regions that the peer may use */
	uint32_t nlent, nborrowed; /* keys by which messages are put: of ours, of the peer's */
	bool direct;               /* has keys of memory that is mapped here, or native ones */
};

#endif
