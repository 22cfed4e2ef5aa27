/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * op.h - one operation, from its posting to the reaping of its completion.
 *
 * One object is the operation, its entry in the queues of its endpoint, and its completion. Nothing is copied between
 * them. Events and the core's own replies to peers are operations too.
 */
#ifndef XPI_CORE_OBJECT_OP_H
#define XPI_CORE_OBJECT_OP_H

#include <stddef.h>

#include "backends/backend.h"
#include "base/list.h"
#include "base/pool.h"

struct xpi_multi;
struct xpi_peer;

/* Kinds beyond enum xport_type: the core's own, never completed to the application. */
enum {
	XPI_OP_FENCE = 64, /* in rma.q: holds back what follows */
	XPI_OP_REPLY,      /* get data to the peer */
	XPI_OP_VALUE,      /* the old value of an atomic to the peer */
	XPI_OP_CTS,        /* rendezvous: clear to send */
	XPI_OP_NAK,        /* this operation of yours failed */
	XPI_OP_TOLD,       /* the notification of a put that went ahead of it */
	XPI_OP_CLAIM,      /* may I have the native key of this region of yours? */
	XPI_OP_GRANT,      /* here it is */
	XPI_OP_ADOPT,      /* not sent: the peer granted it, so unpack it */
	XPI_OP_REVOKE,     /* this key of mine ends */
	XPI_OP_GONE,       /* the key you claim has ended: sent as REVOKE */
	XPI_OP_REVOKED,    /* I have stopped using it */
	XPI_OP_CMA_ANSWER, /* I can read your memory, or cannot */
	XPI_OP_LEND,       /* the native key of a region that I receive into */
	XPI_OP_BYE,        /* nothing comes after this */
	XPI_OP_ACCEPTED,   /* in msg.q: my application has accepted this connection */
	XPI_OP_WITHDRAW,   /* forget this message of mine; or this receive of yours gets no more of its message */
	XPI_OP_GHOST       /* an operation that was withdrawn: takes what the peer still sends for it */
};

/* In xpi_op.flags, beside enum xport flags: of a receive with a deadline, whose memory is not lent to the peer. */
enum { XPI_OP_TIMED = 128 };
/* The same, of a message that is fetched into the buffer of a receive with XPORT_MULTI: see multi.h. */
enum { XPI_OP_PART = 64 };
/* In xpi_op.offer: the memory is neither offered to the peer nor lent to the network. It is copied into frames. */
#define XPI_OFFER_NEVER UINT32_MAX
/* In xpi_op.done of an XPI_OP_FENCE: it orders nothing, and stands for a withdrawn operation in the queue. */
#define XPI_FENCE_NOTHING UINT64_MAX
/* The same, of a put whose first records have left with its name: it is a ghost once the last of them is acknowledged. */
#define XPI_FENCE_PARTLY (UINT64_MAX - 1)

/*
 * Added to a kind of the application's. The low byte is that kind (xpi_op_what).
 *   put, get   one run of a list. `context` is the operation that the application posted, whose `pending` counts the
 *              runs that have not ended. It does not count in ep->refs.
 *   send, recv the operation itself, whose buffer is a list: `buf` is its struct xpi_pieces.
 */
enum { XPI_OP_LIST = 256 };
/* The same, of a receive with XPORT_MULTI: `buf` is its struct xpi_multi. */
enum { XPI_OP_MULTI = 512 };
enum { XPI_IOV_MAX = 64 }; /* pieces of a list: xport_info.iov_max */

/* What an operation still waits for before it is complete. */
enum {
	XPI_WAIT_SENT = 1,  /* pieces to be handed to the back end */
	XPI_WAIT_ACK = 2,   /* the peer's acknowledgement of frame `seq` */
	XPI_WAIT_REPLY = 4, /* data or value from the peer */
	XPI_WAIT_PROOF = 8, /* native puts to be proven placed */
	XPI_WAIT_QUIET = 16 /* flushes, with nothing else: the buffers of quiet operations */
};

/* A request of the back end, which ends with done(): an operation, a frame or a drain. */
enum xpi_wait_kind { XPI_WAIT_OP, XPI_WAIT_TX, XPI_WAIT_DRAIN };
struct xpi_wait {
	struct xpi_req req; /* first */
	uint8_t kind;       /* enum xpi_wait_kind */
};

/* With its head in the pool it fills three cache lines: its state in the core, its completion, and the rest. */
struct xpi_op {
	union {
		struct xpi_wait wait; /* for native put and get; first */
		struct {              /* what that leaves free */
			uint8_t wait_takes[offsetof(struct xpi_wait, kind) + 1];
			uint8_t flags;      /* XPORT_LOCAL, XPORT_QUIET, XPORT_EAGER */
			uint8_t waits;      /* XPI_WAIT_* */
			uint8_t width, aop; /* atomics */
			uint8_t posted;     /* receives: where one waits in the matching lists (match.c); 0: nowhere */
			bool alive;         /* taken from the pool (ids from peers may name free ones) */
		};
	};
	struct xpi_list link; /* in the one queue it stands in */
	union {
		uint32_t charge; /* notifications: window bytes it cost, until it is reaped */
		uint32_t offer;  /* others: of its memory to the peer, see cma.h; 0: none */
	};
	uint32_t pending;        /* pieces that the back end still holds; of a list: its runs that have not ended */
	struct xport_rkey *rkey; /* native operations hold it busy */
	/* what the application will see, laid out as struct xport_completion */
	int32_t status;
	uint32_t kind; /* enum xport_type or XPI_OP_* */
	void *context;
	struct xport_ep *ep;
	uint64_t tag;        /* or notify value, operand */
	uint64_t len;        /* of the operation */
	uint64_t offset;     /* remote */
	struct xport_mr *mr; /* local region it holds busy, or NULL; notify: the region */
	union {
		uint64_t
			peer; /* events, and receives with a sender or source: the incarnation of the peer; others: 0 */
		struct xpi_peer *from; /* a posted receive with XPORT_PEER: what it waits for, see match_peer.h */
		struct xpi_multi
			*multi; /* of a message that is fetched for a receive with XPORT_MULTI: where it goes */
		uint64_t order; /* quiet ones, which are not told of: rma.n_posted with it; 0 again when they end */
	};
	/* beyond here only operations that do not complete at once have anything valid */
	uint64_t done; /* bytes handed over, or arrived */
	uint8_t *buf;
	uint64_t mask; /* or compare, or bytes accepted by the receiver */
	union {
		uint64_t region;    /* remote region id; or the peer's id of its operation */
		uint64_t posted_as; /* receives: the number of posts before it */
	};
	union {
		struct {
			uint64_t after;        /* messages: the puts that go before; then where the body goes */
			uint64_t after_native; /* and its own put */
		};
		struct xpi_list all; /* receives with a source, while they are posted: in ep->receives */
	};
	uint32_t gen;   /* of this object; survives its reuse */
	uint32_t seq;   /* frame to be acknowledged */
	uint32_t stamp; /* tick of posting, for XPORT_OP_TIMEOUT */
};
_Static_assert(sizeof(void *) != 8 || sizeof(struct xpi_op) + sizeof(struct xpi_pool_head) == 192, "three cache lines");

/* xpi_op_what - the kind of an operation, also of a run or of a list. */
static inline unsigned xpi_op_what(const struct xpi_op *op)
{
	return (uint8_t)op->kind;
}

#endif
