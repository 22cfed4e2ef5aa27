/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ep.h - an endpoint: the connection to one peer, its queues and its counters.
 *
 * Life: new (CONNECTING) -> established (OPEN) -> failed or closed -> destroyed.  Failing stops the native endpoint
 * first (ep_quiesce) and only then completes the operations, so that no buffer is touched after its completion.
 */
#ifndef XPI_CORE_EP_H
#define XPI_CORE_EP_H

#include "backends/backend.h"
#include "base/list.h"
#include "core/hello.h"
#include "core/live.h"
#include "core/op.h"
#include "core/stats.h"
#include "core/wire.h"

struct xpi_conn;
struct xpi_inbox;
struct xpi_ready;
struct xpi_tx;

/* Where an endpoint stands; more detailed than enum xport_ep_state. */
enum xpi_ep_state {
	XPI_EP_CONNECTING,
	XPI_EP_OPEN,
	XPI_EP_CLOSING, /* xport_ep_close waits for what was posted, then for the peer's BYE */
	XPI_EP_FAILING, /* being quiesced */
	XPI_EP_DEAD     /* quiesced; every operation is complete */
};

/* Packed frames: what fits the small buffers of every stack. */
enum { XPI_PACKED_MAX = 8192 };

/* How long the control channel has to explain what the network reported. */
enum { XPI_BROKEN_MS = 50 };

struct xport_ep {
	/* the data path */
	struct xport *x;
	uint8_t state;        /* enum xpi_ep_state: first thing every operation looks at */
	bool q_busy;          /* something waits in q_rma: a new operation queues behind it */
	bool ack_now;         /* the peer asked for an acknowledgement */
	bool short_of_room;   /* for want of credits or of the back end's, something was not sent */
	uint32_t quick;       /* operations that may go the short way, see quick.h */
	uint32_t refs;        /* operations and completions not reaped yet */
	uint32_t epoch;       /* the poll during which something was last sent; ahead: a burst is expected */
	struct xpi_seen seen; /* the last frame received; message bytes of the peer's consumed, ever */
	struct xpi_seen told; /* of those, what the peer knows */
	struct xpi_tx *lone;  /* the frame for a record that leaves alone; NULL: to be made */
	uint32_t tx_seq;      /* of the last frame sent */
	uint32_t win_used;    /* message bytes sent, ever (modulo 2^32) */
	struct xpi_counts n;  /* what happened, ever */
	uint64_t touched;     /* remote changes posted, ever */
	uint64_t proven;      /* of those, the ones before the last successful flush */
	uint32_t limit;       /* so many in flight are a new high, or too many */
	uint32_t peer_id, peer_session; /* into each frame sent */
	uint32_t tx_acked;    /* the last one the peer acknowledged */
	uint32_t burst_seq;   /* the last one of the last burst */
	uint32_t change_seq;  /* the last one that changes the peer's memory, or one acknowledged */
	uint32_t credits;     /* frames the peer takes unacknowledged */
	uint32_t win_freed;   /* of win_used, consumed by the peer */
	uint32_t window;      /* how far they may be apart */
	struct xpi_tx *open;  /* the frame being packed, or NULL */
	struct xpi_tx *nak_tx; /* a control frame with failures that the back end would not take yet, or NULL */
	size_t frame_max, pack_max; /* longest frame, and longest packed one */
	/* operations of q_rma posted and handed over, ever, and fences behind a get; what goes the short way is both at once,
	 * and not counted */
	uint64_t rma_posted, rma_sent;
	/* queues */
	struct xpi_list q_rma;     /* put, get, atomic, fence, flush, in order */
	struct xpi_list q_msg;     /* send, notify, in order */
	struct xpi_list q_reply;   /* what the peer asked for */
	struct xpi_list q_nak;     /* failures to be told before their frame is acknowledged */
	struct xpi_list unacked;   /* sent, waiting for the acknowledgement of op->seq, in order */
	struct xpi_list proving;   /* native puts waiting for the proof */
	struct xpi_list requests;  /* get, fetching atomics, rendezvous sends: waiting for the peer's answer */
	struct xpi_list native;    /* in the back end's hands */
	struct xpi_list receives;  /* posted receives with this source */
	struct xpi_list rkeys;
	struct xpi_list holds;     /* native keys of ours that the peer may use */
	uint32_t nlent, nborrowed; /* those that messages are put by: of ours, of the peer's */
	struct xpi_list txs;       /* frames in the back end's hands */
	uint32_t nrequests, requests_max;
	uint32_t ngets;       /* that are not done */
	uint32_t nserving;    /* gets of the peer's being answered */
	uint32_t owed;        /* other answers to the peer that have not left, see xpi_op_owed */
	uint32_t rx_credits;  /* frames that the peer may send unacknowledged */
	/* native puts posted and proven, ever: as with rma_posted and rma_sent, a message that must follow them waits until
	 * the second reaches what the first was */
	uint64_t native_handed, native_drained, drain_to;
	uint64_t fence_rma;     /* what a send must follow */
	uint32_t quiet_pending; /* quiet operations whose buffer is in use */
	uint32_t nflushes;      /* in flight */
	bool flush_waits;       /* a flush waits only for such */
	uint32_t ntold;       /* notifications that wait behind their data */
	bool nak_hold;        /* acknowledgements stay at nak_seq until q_nak is empty */
	uint8_t turn;         /* who is the first to be sent of what waits, see xpi_ep_pump */
	bool drain_running;
	bool direct;          /* has keys of memory that is mapped here, or native ones */
	uint8_t cma;          /* whether the peer reads long data out of our memory, see cma.c */
	bool cma_asked;       /* the peer has asked us that */
	bool deaf;            /* what the peer had us read is gone: nothing that follows it counts */
	uint32_t offers;      /* of ours to it */
	uint32_t cma_seq;     /* the last frame that had it read something */
	uint32_t cma_epoch;   /* the poll during which we last read out of its memory */
	uint64_t cma_bytes;   /* it was told to read, since it was last known to have read all */
	uint64_t cma_read;    /* we have read during that poll */
	struct xpi_inbox *inbox; /* the peer's offers, if we read out of its memory; or NULL */
	uint32_t rx_charged;  /* message bytes of the peer's received, ever */
	uint32_t nak_seq;
	int32_t quiet_error;  /* first failure of a quiet or local operation, for the next flush */
	uint64_t quiet_error_at; /* what `touched` was at the last one: all later flushes know of it */
	struct xpi_wait drain;
	struct xpi_list work; /* in x->work: has something to send or acknowledge */
	/* life */
	struct xpi_list link; /* in x->eps */
	uint32_t id, session; /* ours, in each frame received */
	int32_t reason;       /* why it ended */
	uint8_t end_event;    /* XPORT_EVENT_CLOSED or LOST to be delivered after the last completion; 0: none */
	struct xpi_op *up_room, *end_room; /* for XPORT_EVENT_CONNECTED, and for that one */
	bool bye_sent, bye_received;
	uint32_t bye_seq;
	uint32_t last_seq;    /* while closing: the last frame before our bye */
	uint8_t bye_patience; /* polls left for what may still be under way */
	bool closed;          /* by xport_ep_close or _destroy */
	bool destroyed;       /* the application gave it back */
	bool held;            /* xport_connect or _close looks at it still, whatever other threads do */
	bool accepted;        /* a listener made it */
	bool announce;        /* XPORT_EVENT_CONNECTED is wanted */
	bool prepared;        /* ops->address was called: there is something to quiesce */
	bool broken;          /* the network says so; the control channel has until broken_ms to say why */
	int64_t broken_ms;
	int32_t broken_by;    /* what it ends with, unless the control channel knows better; 0: PEER_LOST */
	struct {
		uint32_t times;   /* refused for want of memory since something was sent */
		int64_t since_ms;
		uint64_t moved;   /* what had been sent then */
	} hunger;
	struct xpi_conn *conn; /* while connecting */
	struct xpi_ready *ready; /* while it waits for xport_accept */
	struct xpi_chan chan;
	char local[64], peer[64];
	char why[160];        /* why it ended, for people */
	char native_why[96];  /* what the network said */
	uint8_t *peer_private;
	size_t peer_private_len;
	char peer_host[64];
	int64_t peer_pid;
	uint64_t peer_incarnation;
	void *context;
	/* the back end's state follows, see xpi_ep_be() */
};

/* An endpoint in state CONNECTING with an id and a session, and room for the back end's state.  NULL: out of memory. */
struct xport_ep *xpi_ep_new(struct xport *x, void *context);

/* The back end's part of it. */
static inline void *xpi_ep_be(struct xport_ep *ep)
{
	return (char *)ep + ((sizeof(*ep) + 15) & ~(size_t)15);
}

/* Takes over from the peer's HELLO what the protocol needs.  False: out of memory. */
bool xpi_ep_set_peer(struct xport_ep *ep, const struct xpi_hello *h);

/*
 * The handshake succeeded on both sides: the endpoint is OPEN and takes over the socket (liveness starts).  With
 * ep->announce XPORT_EVENT_CONNECTED is queued.  On failure the endpoint is unchanged, and the caller fails it.
 */
int xpi_ep_established(struct xport_ep *ep, int fd, bool same_host, const struct xpi_hello *peer);

/*
 * Ends the endpoint with `reason` (a status): stops posting, quiesces, completes everything with `reason`, then queues
 * the event (XPORT_EVENT_CLOSED, XPORT_EVENT_LOST, 0: none).  Continues in the polls that follow until DEAD.
 * One that was CONNECTING, and of which the application knows nothing, has no event; a listener's is destroyed as well,
 * a client's is left to xport_connect.
 */
void xpi_ep_fail(struct xport_ep *ep, int reason, int event);

/* Goes on with failing; true once DEAD. */
bool xpi_ep_fail_step(struct xport_ep *ep);

/* Acts on what the helper thread found, and on a peer that closes. */
void xpi_ep_attend(struct xport_ep *ep);

/* The endpoint of that id, if it is one of this instance's and its session is right; else NULL. */
struct xport_ep *xpi_ep_find(struct xport *x, uint32_t id, uint32_t session);

/* The network says that it is unusable: nothing more is sent, and the control channel has a moment to say why. */
void xpi_ep_broken(struct xport_ep *ep);

/* XPORT_OK if operations may be posted, else why not (with xport_last_error filled). */
int xpi_ep_refuse(struct xport_ep *ep, const char *operation) __attribute__((cold));
/* Adds the peer to what was said of an error of the endpoint's (xpi_refuse).  Returns `status`. */
int xpi_ep_refused(struct xport_ep *ep, int status) __attribute__((cold));

int xpi_ep_close(struct xport_ep *ep, int timeout_ms);
void xpi_ep_destroy(struct xport_ep *ep);
/* Of an xport_connect that failed, though a message or notification has named the endpoint: instead of destroying it, the
 * application is told that it is lost, and has it.  The context is forgotten: the caller of xport_connect may free it. */
void xpi_ep_hand_over(struct xport_ep *ep, int reason);
/* Whether a message or notification has told the application of it. */
bool xpi_ep_named(const struct xport_ep *ep);
/* Frees it if it was destroyed, is DEAD, and nothing refers to it any more; one of which a message or notification has
 * told at the end of the next poll, since the application may hold others that it has reaped. */
void xpi_ep_release(struct xport_ep *ep);
/* Frees all that can be, at the end of a poll. */
void xpi_ep_release_all(struct xport *x);

#endif
