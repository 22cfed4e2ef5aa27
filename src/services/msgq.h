/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * msgq.h - short messages between a service and the same service at its peers, under one tag that the application leaves
 * alone. It never waits: svc_msgq_step moves it.
 *
 * Requests and replies: the peer answers each request once. A reply needs no answer; a notice goes as a reply, too.
 * - A peer has at most SVC_MSGQ_WINDOW requests unanswered. Further ones wait at their sender, behind all replies queued before.
 * - At most SVC_MSGQ_REPLIES replies are in flight. A reply is in flight until svc_msgq_step got its completion, which may
 *   take long if several threads poll. A peer that keeps more replies waiting breaks the protocol.
 * - A peer that breaks the protocol is muted: nothing of it is read any more, and nothing is sent to it.
 *
 * Order: several threads that poll may hand completions over in another order than they came. Each message has a number,
 * and messages are handed on in the order of these numbers. Early ones are kept.
 *
 * Epochs: an endpoint outlives the service that uses it. Each message has the sender's epoch, and the receiver's as the sender
 * knows it (0: unknown).
 * - Another epoch of the sender means that its service was made again, and knows nothing from before.
 * - A message for an epoch that the receiver never had was meant for the service before it, and is dropped.
 * - A side that sees another epoch begins one of its own, unless the peer knows its present one. Otherwise both would
 *   answer each other's epochs without end.
 *
 * Memory: without memory to keep or answer a message, the talk ends for both sides, and may begin again. The message that says
 * so is allocated with the peer. Without memory for the peer itself, its message stays in its receive buffer until there
 * is some, or the endpoint ends.
 *
 * On the wire, before the service's bytes, little-endian: epoch, 4 bytes; number, 4; the receiver's epoch, 4.
 *
 * End: an endpoint that refuses a post has ended. Messages of the peer that have arrived may still be in the application's
 * hands, and its event comes behind them. So only sending stops; the event ends the peer. An endpoint that was closed here
 * has no event, and ends the peer at once.
 *
 * Locks: the service's, held by each caller.
 */
#ifndef SVC_MSGQ_H
#define SVC_MSGQ_H

#include <stdbool.h>

#include "base/bytes.h"
#include "services/xport_services.h"

enum {
	SVC_MSGQ_HEAD = 12,
	SVC_MSGQ_WINDOW = 32,
	SVC_MSGQ_REPLIES = 2 * SVC_MSGQ_WINDOW,
	/* What a peer may have sent behind one that is late: requests, replies, and two notices for each of its requests. */
	SVC_MSGQ_EARLY = 2 * SVC_MSGQ_WINDOW + SVC_MSGQ_REPLIES,
	SVC_MSGQ_RECEIVES = 32, /* at most: of XPORT_QUEUE_DEPTH, which bounds an instance's, it takes a quarter */
	SVC_MSGQ_WORD = 128,
	SVC_MSGQ_BUCKETS = 64
};

struct svc_msgq;
struct svc_msg;

struct svc_msg_list {
	struct svc_msg *first, **end;
};

struct svc_msgq_peer {
	struct svc_msgq_peer *next; /* of its bucket */
	struct svc_msgq *msgq;
	xport_ep *ep;
	int ended;           /* a status: muted, or about to be forgotten */
	int refused;         /* a status: the endpoint takes no posts any more, and its event is still to come */
	bool forgotten;      /* stays until its messages are ours again */
	unsigned unanswered; /* requests */
	unsigned replies;    /* that wait */
	unsigned under_way;  /* replies */
	struct svc_msg_list requests, answers, flight;
	uint32_t epoch, number;     /* of the next message to it */
	uint32_t epoch_before;      /* ours, that is over */
	uint32_t from, from_number; /* of the next message of it; 0: no epoch yet */
	uint32_t from_before;       /* an epoch that is over */
	struct svc_msg_list early;  /* messages that came before those that were sent before them */
	unsigned nearly;
	struct svc_msg *spare; /* for the word that all is over; NULL: it is on its way */
	void *user;
};

struct svc_msgq_fns {
	/* A message of the peer's.  NO_MEMORY: it could not be answered.  Another error: it must not send that, and is muted. */
	int (*message)(void *arg, struct svc_msgq_peer *peer, const uint8_t *bytes, size_t len);
	/* The peer was made anew; svc_msgq_anew was called. */
	void (*anew)(void *arg, struct svc_msgq_peer *peer);
	/* All that was said to the peer and by it is void, for lack of memory.  svc_msgq_over reports it. */
	void (*over)(void *arg, struct svc_msgq_peer *peer);
	/* The peer's endpoint ended, or it was muted.  Unless it was only muted, `peer` goes away after this. */
	void (*ended)(void *arg, struct svc_msgq_peer *peer, int status);
};

struct svc_msgq_receive {
	bool posted;
	xport_ep *from; /* of a message that waits for memory for its peer; NULL: none does */
	int status;     /* that it came with */
	size_t len;
	uint64_t id;
	uint8_t *bytes;
};

struct svc_msgq {
	xport *x;
	uint64_t tag;
	size_t max; /* bytes of a message */
	const struct svc_msgq_fns *fns;
	void *arg;
	bool stopping;
	bool stuck;             /* a full queue refused one */
	unsigned receives;      /* that it has */
	unsigned unposted;      /* of them, those that are to be posted, or have what waits */
	unsigned waiting;       /* messages that wait */
	unsigned flying;        /* that are under way */
	unsigned replies;       /* that wait or are under way */
	uint64_t replies_bytes; /* of these, with what keeps them */
	uint64_t muted;         /* peers, ever */
	struct svc_msgq_receive receive[SVC_MSGQ_RECEIVES];
	struct svc_msgq_peer *bucket[SVC_MSGQ_BUCKETS];
	uint8_t *buffers;
};

/* Begins to receive messages of at most `max` bytes.  Nothing is left after an error, which `operation` has been told of. */
int svc_msgq_open(struct svc_msgq *m, xport *x, uint64_t tag, size_t max, const struct svc_msgq_fns *fns, void *arg,
                  const char *operation);
/* Looks at a completion, or with NULL only moves what waits.  Returns whether it was one of its own. */
bool svc_msgq_step(struct svc_msgq *m, const struct xport_completion *c);
/* True if something waits that no completion will move. */
static inline bool svc_msgq_waits(const struct svc_msgq *m)
{
	return m->stuck || (m->unposted > 0 && !m->stopping);
}

/* Writes the head of a message: SVC_MSGQ_HEAD bytes. `to` is the receiver's epoch, 0 if unknown. */
static inline void svc_msgq_head(uint8_t *bytes, uint32_t epoch, uint32_t number, uint32_t to)
{
	struct xpi_wr w = xpi_wr(bytes, SVC_MSGQ_HEAD);

	xpi_wr_u32(&w, epoch);
	xpi_wr_u32(&w, number);
	xpi_wr_u32(&w, to);
}

/* The peer of an endpoint, made if it is not there; NULL: out of memory. */
struct svc_msgq_peer *svc_msgq_peer(struct svc_msgq *m, xport_ep *ep);
struct svc_msgq_peer *svc_msgq_find(const struct svc_msgq *m, const xport_ep *ep);
/* Sends: the bytes are copied.  NO_MEMORY; or the status by which the peer ended. */
int svc_msgq_request(struct svc_msgq_peer *p, const void *bytes, size_t len);
int svc_msgq_reply(struct svc_msgq_peer *p, const void *bytes, size_t len);
/* Sends a request or a reply that consists of two parts. */
int svc_msgq_send(struct svc_msgq_peer *p, const void *head, size_t head_len, const void *body, size_t body_len,
                  bool reply);
/*
 * Sends a request now or not at all. Returns XPORT_OK, AGAIN (it must wait), NO_MEMORY, or the status by which the peer ended
 * or its endpoint refuses.
 */
int svc_msgq_request_now(struct svc_msgq_peer *p, const void *head, size_t head_len, const void *body, size_t body_len);
/* Bytes that a message of `len` bytes occupies until it is sent. */
size_t svc_msgq_cost(size_t len);
/* A request that cannot fail because memory is out: its message is made before, with room for `len` bytes, and is the queue's when
 * it is sent, or else to be freed.  NULL: out of memory. */
struct svc_msg *svc_msgq_reserve(size_t len);
void svc_msgq_request_in(struct svc_msgq_peer *p, struct svc_msg *msg, const void *bytes, size_t len);
/* Ends the talk with the peer, for lack of memory to answer it. The epoch is over when that message is sent. */
void svc_msgq_talk_over(struct svc_msgq_peer *p);
/* As svc_msgq_reply, in `over`: the word that a service says at its end, of at most SVC_MSGQ_WORD bytes. */
void svc_msgq_over(struct svc_msgq_peer *p, const void *bytes, size_t len);
/* The last reply.  Not to one that nothing was said to, or heard of, since it was made anew: another one would hear it. */
void svc_msgq_bye(struct svc_msgq_peer *p, const void *bytes, size_t len);
/* Drops the requests that wait for this peer. */
void svc_msgq_drop_requests(struct svc_msgq_peer *p);
/* An answer came.  False: to nothing that was asked. */
bool svc_msgq_answered(struct svc_msgq_peer *p);
/* The peer said that it ends, another one may follow: what waits for it is dropped, what it was asked is not answered. */
void svc_msgq_anew(struct svc_msgq_peer *p);
/* Ends a peer, as its endpoint's end does. */
void svc_msgq_end(struct svc_msgq *m, const xport_ep *ep, int status);
/* Calls `f` for each peer that is there. */
void svc_msgq_each(struct svc_msgq *m, void (*f)(void *arg, struct svc_msgq_peer *peer));

/* Receives nothing any more. */
void svc_msgq_stop(struct svc_msgq *m);
/* After svc_msgq_stop: no operation of its own is under way, and nothing waits. */
bool svc_msgq_idle(const struct svc_msgq *m);
/* When it is idle. */
void svc_msgq_close(struct svc_msgq *m);

#endif
