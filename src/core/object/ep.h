/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ep.h - an endpoint: the connection to one peer, its queues and its counters.
 *
 * Life: new (CONNECTING) -> established (OPEN) -> failed or closed -> destroyed. An endpoint that fails is first
 * stopped in the back end (ep_quiesce). Only then its operations complete, so no buffer is touched after its
 * completion.
 */
#ifndef XPI_CORE_OBJECT_EP_H
#define XPI_CORE_OBJECT_EP_H

#include <stddef.h>

#include "backends/backend.h"
#include "base/list.h"
#include "core/liveness/monitor.h"
#include "core/object/ep_protocol.h"
#include "core/object/instance.h"
#include "core/object/op.h"
#include "core/object/stats.h"
#include "core/object/transport.h"
#include "core/wire/frame.h"
#include "core/wire/hello.h"

struct xpi_conn;
struct xpi_ready;

/* The state of an endpoint; more detailed than enum xport_ep_state. */
enum xpi_ep_state {
	XPI_EP_OPEN,
	XPI_EP_CLOSING,    /* until what was posted has ended, and the peer has acknowledged our BYE (close.c) */
	XPI_EP_CONNECTING, /* from here on frames are not processed on arrival: rx.c tests this by one compare */
	XPI_EP_FAILING,    /* being quiesced */
	XPI_EP_DRAINED     /* quiesced; every operation is complete */
};

/* The longest packed frame: it fits the small buffers of every stack. */
enum { XPI_PACKED_MAX = 8192 };

/* How long the core waits for the control channel to explain a failure that the network reported. */
enum { XPI_BROKEN_MS = 50 };

/* Who the peer is. Only core/cm assigns these members. */
struct xpi_ep_peer {
	uint64_t session; /* in each frame sent, */
	uint32_t id;      /* and the low 16 bits of this, the slot */
	int64_t pid;
	uint64_t incarnation;
	uint8_t *private_data;
	size_t private_len;
	char host[64];
	char name[64]; /* its address, in messages */
};

enum xpi_close { XPI_CLOSE_NONE, XPI_CLOSE_SETTLING, XPI_CLOSE_BYE, XPI_CLOSE_OVER, XPI_CLOSE_CUT };

/* Why and how the endpoint ends. Only core/object and core/progress assign these members. */
struct xpi_ep_end {
	int32_t reason;        /* a status */
	uint8_t event;         /* XPORT_EVENT_CLOSED or LOST to be delivered after the last completion; 0: none */
	uint8_t bye_patience;  /* polls left for frames that may still be in flight */
	bool broken;           /* the network says so; the control channel has until broken_ms to say why */
	uint8_t close;         /* enum xpi_close: how far xport_ep_close or xport_ep_close_start came */
	struct xpi_op *buffer; /* for the event */
	uint32_t last_seq;     /* while closing: the last frame before our BYE */
	int32_t broken_by;     /* the reason, unless the control channel knows better; 0: PEER_LOST */
	int32_t told;          /* the status of XPORT_EVENT_CLOSED of our own close */
	int64_t broken_ms;
	int64_t deadline_ms; /* of xport_ep_close_start; -1: none */
	char why[160];       /* the reason, for people */
	char native_why[96]; /* what the network said */
};

/* The order keeps what the fast path touches in two cache lines, see the assertions below. */
struct xport_ep {
	/* the data path */
	struct xport *x;
	struct xpi_transport *tp; /* what it goes over; NULL: not agreed yet */
	uint8_t state;            /* enum xpi_ep_state: first thing every operation looks at */
	bool closed;              /* by xport_ep_close or _destroy */
	bool destroyed;           /* the application gave it back */
	bool held;                /* xport_connect or _close looks at it still, whatever other threads do */
	uint32_t fast_left;       /* operations that may take the fast path, see fastpath.h */
	struct xpi_ep_rx rx;
	struct xpi_ep_tx tx;
	struct xpi_ep_peer peer;
	struct xpi_ep_keys keys;
	struct xpi_ep_rma rma;
	struct xpi_ep_msg msg;
	struct xpi_counts n; /* what happened, ever */
	/* operations, in lists by what they wait for */
	uint32_t refs;            /* operations and completions not reaped yet */
	uint32_t limit;           /* so many in flight are a new high, or too many */
	struct xpi_list unacked;  /* sent, waiting for the acknowledgement of op->seq, in order */
	struct xpi_list placing;  /* native puts waiting for the proof */
	struct xpi_list requests; /* get, fetching atomics, rendezvous sends: waiting for the peer's answer */
	struct xpi_list native;   /* in the back end's hands */
	struct xpi_list receives; /* posted receives with this source */
	struct xpi_list work;     /* in x->work: has something to send or acknowledge */
	struct xpi_ep_reply reply;
	struct xpi_latency_counts *latency; /* NULL: none yet */
	struct xpi_ep_cma cma;
	struct xpi_ep_accept accept;
	struct xpi_list part_holds; /* as keys.holds, of parts of regions */
	uint32_t unanswered;        /* of these, revoked ones */
	/* life */
	struct xpi_list link;     /* in x->eps */
	struct xpi_list closing;  /* in x->ending.closing: after xport_ep_close_start, until that is over */
	uint64_t session;         /* in each frame received, */
	uint32_t id;              /* and the low 16 bits of this, the slot */
	bool accepted;            /* a listener made it */
	bool announce;            /* XPORT_EVENT_CONNECTED is wanted */
	bool prepared;            /* ops->address was called: there is something to quiesce */
	bool retires;             /* the application had the handle, and destroyed it */
	bool traffic_marked;      /* its data has the class, or does not leave the host */
	uint8_t traffic;          /* enum xport_traffic that the two sides agreed on */
	struct xpi_op *up_room;   /* for XPORT_EVENT_CONNECTED */
	struct xpi_op *gone_room; /* for XPORT_EVENT_DESTROYED, if that is wanted and has not been queued */
	struct xpi_ep_end end;
	struct xpi_list early;   /* frames that arrived while it was CONNECTING (early.h), */
	uint32_t nearly;         /* so many */
	struct xpi_conn *conn;   /* while connecting */
	struct xpi_ready *ready; /* while it waits for xport_accept */
	struct xpi_chan chan;
	struct xpi_peer *waited; /* while it is connected: the peer, for receives with XPORT_PEER; NULL: none came */
	char local[64];
	char *passed_over; /* why no better transport is used, a text; NULL: this is the best one, or out of memory */
	void *context;
	/* the back end's state follows, see xpi_ep_be() */
};

/* Endpoints are aligned to a cache line. A put by copy touches two, as does a send. */
#define XPI_EP_LINE(member) (offsetof(struct xport_ep, member) / 64)
_Static_assert(XPI_EP_LINE(rx.acked) == 0 && XPI_EP_LINE(tx.lone) == 0 && XPI_EP_LINE(tx.epoch) == 0,
               "the first line has what every frame needs");
_Static_assert(XPI_EP_LINE(tx.change_seq) == XPI_EP_LINE(tx.pack_max), "the second line has what packing needs");
_Static_assert(XPI_EP_LINE(rma.n_posted) == XPI_EP_LINE(n.bytes_out) &&
                       XPI_EP_LINE(msg.used) == XPI_EP_LINE(n.bytes_out),
               "one more line has the counters of puts and messages");

/*
 * xpi_ep_new - create an endpoint in state CONNECTING, with an id, a session, and memory for the back end's state.
 *
 * tp  the transport; NULL: it is not agreed yet, and xpi_ep_use follows
 *
 * Returns NULL if out of memory.
 */
struct xport_ep *xpi_ep_new(struct xport *x, struct xpi_transport *tp, void *context);

/* xpi_ep_use - have an endpoint that is CONNECTING go over this transport. The back end's state is zeroed. */
void xpi_ep_use(struct xport_ep *ep, struct xpi_transport *tp);
/*
 * xpi_ep_unuse - the opposite, if the transport did not connect. The back end knows nothing of the endpoint any more; what
 * it reported is forgotten.
 */
void xpi_ep_unuse(struct xport_ep *ep);

/* xpi_ep_be - the back end's state of the endpoint. */
static inline void *xpi_ep_be(struct xport_ep *ep)
{
	return (char *)ep + ((sizeof(*ep) + 15) & ~(size_t)15);
}

/*
 * xpi_ep_fail - end an endpoint.
 *
 * Stops posting, quiesces, completes everything with `reason`, then queues the event. The polls that follow continue
 * this until the endpoint is DEAD. Does nothing if the endpoint is ending already.
 *
 * An endpoint that was CONNECTING, and that the application does not know, has no event. A listener's endpoint is then
 * destroyed as well; a client's is left to xport_connect.
 *
 * reason  a status
 * event   XPORT_EVENT_CLOSED, XPORT_EVENT_LOST, or 0: none
 */
void xpi_ep_fail(struct xport_ep *ep, int reason, int event);

/* xpi_ep_tell_end - queue the event of the endpoint's end. Its memory was allocated with the endpoint. */
void xpi_ep_tell_end(struct xport_ep *ep);

/*
 * xpi_ep_answer - answer the helper thread, if it asks whether a poll finds nothing to do (flow.h).
 *
 * idle  the last poll found nothing to do
 *
 * Returns false if the poll found something: call again after the next poll.
 */
bool xpi_ep_answer(struct xport_ep *ep, bool idle);

/* xpi_ep_unindex - free the slot of an endpoint. Frames for it that are still in flight are recognised as such. */
void xpi_ep_unindex(struct xport_ep *ep);

/*
 * xpi_ep_broken - mark an endpoint that the network reports as unusable.
 *
 * Nothing more is sent. The control channel has XPI_BROKEN_MS to report the cause before the endpoint fails.
 */
void xpi_ep_broken(struct xport_ep *ep);
/* xpi_ep_broken_by - the same; the endpoint fails with `reason` unless the control channel reports another. */
void xpi_ep_broken_by(struct xport_ep *ep, int reason);

/*
 * xpi_ep_refuse - describe in xport_last_error why no operation may be posted. For an endpoint that is not open.
 *
 * Returns
 *   XPORT_ERR_CLOSED   the endpoint was closed here
 *   XPORT_ERR_INVALID  it is not connected yet
 *   any other error    why the endpoint ended
 */
int xpi_ep_refuse(struct xport_ep *ep, const char *operation) __attribute__((cold));
/* xpi_ep_refused - add the peer's name to an error that xpi_refuse described. Returns `status`. */
int xpi_ep_refused(struct xport_ep *ep, int status) __attribute__((cold));

/* xpi_ep_destroy - the body of xport_ep_destroy. */
void xpi_ep_destroy(struct xport_ep *ep);
/* xpi_ep_discard - the same, of an endpoint whose handle the application never had. */
void xpi_ep_discard(struct xport_ep *ep);
/* xpi_ep_retired_free - free the memory of the endpoints that were destroyed last, when the instance ends. */
void xpi_ep_retired_free(struct xport *x);
/* xpi_ep_destroy_start - the body of xport_ep_destroy_start. */
int xpi_ep_destroy_start(struct xport_ep *ep);
/* xpi_ep_tell_destroyed - queue XPORT_EVENT_DESTROYED for each endpoint that wants it and has nothing left to deliver. */
void xpi_ep_tell_destroyed(struct xport *x);
/* xpi_ep_named - true if a completed receive or a notification has named the endpoint to the application. */
bool xpi_ep_named(const struct xport_ep *ep);
/*
 * xpi_ep_release - free an endpoint that was destroyed, is DEAD, and is not referenced any more.
 *
 * An endpoint that xpi_ep_named is freed at the end of the next poll: the application may still hold completions that
 * name it.
 */
void xpi_ep_release(struct xport_ep *ep);
/* xpi_ep_release_all - free all endpoints that can be freed, at the end of a poll. */
void xpi_ep_release_all(struct xport *x);

/* xpi_work - add the endpoint to the instance's list of endpoints with work. */
static inline void xpi_work(struct xport_ep *ep)
{
	if (xpi_list_linked(&ep->work))
		return;
	xpi_list_push(&ep->x->work, &ep->work);
	ep->x->todo |= XPI_TODO_WORK;
}

/* xpi_tx_ack - the last frame to acknowledge. Frames with failures that were not sent yet are not acknowledged. */
static inline uint32_t xpi_tx_ack(const struct xport_ep *ep)
{
	return ep->rx.nak_hold ? ep->reply.nak_seq : ep->rx.state.ack;
}

/* xpi_ep_is_proper - true if the endpoint ended because one side closed it, not because of an error. */
static inline bool xpi_ep_is_proper(const struct xport_ep *ep)
{
	return ep->end.reason == XPORT_ERR_CLOSED || ep->end.reason == XPORT_ERR_PEER_CLOSED;
}

/* xpi_ep_found - what the control channel has found so far: XPI_CHAN_*. */
static inline unsigned xpi_ep_found(const struct xport_ep *ep)
{
	return ep->chan.started ? atomic_load_explicit(&ep->chan.found, memory_order_acquire) : 0;
}

/* Limits in the HELLO: unmatched message bytes that a peer may have sent, and its requests served at a time. */
enum { XPI_WINDOW = 1 << 20, XPI_REQUESTS = 256 };
/* xpi_window - that of this instance: XPI_WINDOW, or with XPORT_FLIGHT more. */
uint32_t xpi_window(const struct xport *x);

/* xpi_ep_set_limits - take the limits of the peer from its HELLO. */
void xpi_ep_set_limits(struct xport_ep *ep, const struct xpi_hello *h);

/* xpi_clamp - v, or the nearest value from lo to hi. */
static inline uint32_t xpi_clamp(uint32_t v, uint32_t lo, uint32_t hi)
{
	return v < lo ? lo : v > hi ? hi : v;
}

#endif
