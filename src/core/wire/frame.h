/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * frame.h - what the core's protocol looks like on a back end's ordered channel.
 *
 * A frame is a frame header and records; a record is a fixed header and `len` bytes of data.  All fields are
 * little-endian.  One cumulative counter carries most of the protocol: `ack`, the last frame processed in order.  It
 * gives credits back, completes puts (of those that failed, the failure came before), and ends flushes.
 *
 * ASSUMPTIONS: a record's header and its data each lie in one of the two pieces in which a frame may arrive.
 */
#ifndef XPI_CORE_WIRE_FRAME_H
#define XPI_CORE_WIRE_FRAME_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

enum {
	XPI_FRAME_CTRL = 1,   /* not sequenced, costs no credit: acknowledgement and failures only */
	XPI_FRAME_ACK_NOW = 2 /* acknowledge before sleeping */
};

/* What the sender of a frame has had from the other side. */
struct xpi_seen {
	uint32_t ack;   /* last frame received in order */
	uint32_t freed; /* message bytes consumed, ever */
};

struct xpi_frame_head {
	uint64_t session; /* of the endpoint at the receiver: random, and known to its peer alone */
	uint32_t seq;
	struct xpi_seen seen;
	uint16_t flags; /* XPI_FRAME_* */
	uint16_t slot;  /* of that endpoint in the receiver's table: where to look for the session */
};

/* clang-format off */
enum xpi_record {
	XPI_REC_PUT = 1, XPI_REC_GET, XPI_REC_GETDATA, XPI_REC_ATOMIC, XPI_REC_VALUE, XPI_REC_FAILED, XPI_REC_SEND,
	XPI_REC_RTS, XPI_REC_CTS, XPI_REC_DATA, XPI_REC_NOTIFY, XPI_REC_FLUSH, XPI_REC_BYE,
	/* native keys: may I have that of this region?  here it is / stop using it / I have stopped */
	XPI_REC_CLAIM, XPI_REC_GRANT, XPI_REC_REVOKE, XPI_REC_REVOKED,
	/* data that lies in the sender's memory, cma.h: here is my outbox, can you read it? / yes, no / read it */
	XPI_REC_CMA_ASK, XPI_REC_CMA_ANSWER, XPI_REC_CMA,
	/* long messages, put into the receive by the network: the native key of a region that I receive into / it is there */
	XPI_REC_LEND, XPI_REC_PLACED,
	/* a PUT whose notification follows in a NOTIFY of its own */
	XPI_REC_PUT_AHEAD,
	/* an RTS that waits for its receive is void; or the receive that it matched gets no more */
	XPI_REC_WITHDRAW,
	/* the application has accepted the connection: `len` bytes of private data follow.  Once, to the connecting side */
	XPI_REC_ACCEPTED
};
/* clang-format on */

/* They follow each other in a frame without gaps, so that nothing in them is aligned. */
#pragma pack(push, 1)

/* Every record begins so. */
struct xpi_rec {
	uint8_t type;
	uint8_t a; /* atomic: enum xport_atomic_op */
	uint16_t
		b; /* atomic: width; 0x100: the old value is wanted; PUT_AHEAD, NOTIFY, CMA of a put: see XPI_AHEAD_MAX */
	uint32_t len; /* of the data that follows the record's header */
};

/* `op` names the sender's operation, for VALUE, FAILED, GETDATA, CTS; 0: none.  XPI_OP_NOBODY: nobody wants to know. */
#define XPI_OP_NOBODY UINT32_MAX
#define XPI_ATOMIC_FETCH 0x100

/* clang-format off */
struct xpi_rec_put { struct xpi_rec r; uint64_t region, offset; uint32_t op, zero; };
struct xpi_rec_get { struct xpi_rec r; uint64_t region, offset, length; uint32_t op, zero; };
struct xpi_rec_getdata { struct xpi_rec r; uint64_t at; uint32_t op, zero; };
struct xpi_rec_atomic { struct xpi_rec r; uint64_t region, offset, operand, compare; uint32_t op, zero; };
struct xpi_rec_value { struct xpi_rec r; uint64_t value; uint32_t op, zero; };
struct xpi_rec_failed { struct xpi_rec r; uint32_t op, status; }; /* status: negated */
struct xpi_rec_send { struct xpi_rec r; uint64_t tag; };
struct xpi_rec_rts { struct xpi_rec r; uint64_t tag, length; uint32_t op, zero; };
struct xpi_rec_cts { struct xpi_rec r; uint64_t accept; uint32_t op, into; }; /* its data, if any: */
struct xpi_cts_place { uint64_t region, offset; }; /* in a region that was lent */
/* `into` 0: the RTS of the operation `op`, with this tag; else the receive of that name. */
struct xpi_rec_withdraw { struct xpi_rec r; uint64_t tag; uint32_t op, into; };
struct xpi_rec_data { struct xpi_rec r; uint64_t at; uint32_t into, zero; };
struct xpi_rec_notify { struct xpi_rec r; uint64_t region, offset, length, value; uint32_t op, zero; };
/* CLAIM, GRANT, REVOKE, REVOKED; CMA_ANSWER: 1 or 0. The data of a GRANT are the native key; none: there is none. */
struct xpi_rec_key { struct xpi_rec r; uint64_t region; };
/* In place of a PUT, GETDATA or DATA (r.a) of `length` bytes, which lie `at` so many behind the beginning of the offer.  PUT:
 * `offset` is where they belong in the region; otherwise that is `at`, too. */
struct xpi_rec_cma { struct xpi_rec r; uint64_t region, offset, at, length; uint32_t op, offer; };
struct xpi_rec_lend { struct xpi_rec r; uint64_t region, length; };
struct xpi_rec_placed { struct xpi_rec r; uint64_t length; uint32_t into, zero; };
/* clang-format on */
#pragma pack(pop)

/*
 * A notified put whose data go ahead of its notification has a number that is not 0, in both.  So the receiver knows whether
 * the data of a notification were placed, though their region may have been deregistered since.  At most so many
 * notifications are outstanding, half of what the number can tell apart.
 */
enum { XPI_AHEAD_MAX = 32768 };

/* At most so many regions are lent to a peer at a time. */
enum { XPI_LENT_MAX = 256 };

/* Writes it into a frame, and to where the sender notes what it told. */
static inline void xpi_seen_tell(struct xpi_seen *frame, struct xpi_seen *told, const struct xpi_seen *seen)
{
#if __BYTE_ORDER == __LITTLE_ENDIAN
	uint64_t both;

	memcpy(&both, seen, sizeof(both));
	memcpy(frame, &both, sizeof(both));
	memcpy(told, &both, sizeof(both));
#else
	*told = *seen;
	frame->ack = htole32(seen->ack);
	frame->freed = htole32(seen->freed);
#endif
}

/* Window bytes that a message costs until it is consumed: what it takes in the receiver's memory, about. */
enum { XPI_SMALL_MESSAGE = 192, XPI_CHARGE_SMALL = 64 + XPI_SMALL_MESSAGE };
static inline uint32_t xpi_charge(uint64_t len)
{
	return len <= XPI_SMALL_MESSAGE ? XPI_CHARGE_SMALL : (uint32_t)(64 + ((len + 63) & ~(uint64_t)63));
}

/* a is at or after b, both modulo 2^32. */
static inline int xpi_seq_reached(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) >= 0;
}

#endif
