/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mail.h - what a service says to its like at other peers: short messages under one tag, which the application leaves
 * alone.  It never waits; the application's own loop moves it by svc_mail_step.
 *
 * Each message is a request, which the peer answers once, or a reply, which needs no answer (what is told without being
 * asked goes as a reply, too).  A peer has at most SVC_MAIL_WINDOW requests unanswered, the others wait at their
 * sender, and replies never wait for requests.  At most SVC_MAIL_REPLIES replies are under way: as many as have not come back
 * through svc_mail_step, which may take long where threads reap side by side.  So a peer that keeps to it never makes more
 * than SVC_MAIL_REPLIES others wait; one that does not is muted: nothing of it is read any more, nothing is sent to it.
 * Replies leave in order, requests leave in order; a request leaves after every reply that was there before it.
 *
 * Where there is no memory to keep or to answer what a peer said, the talk ends for both sides, lest it waits for ever: it is
 * told by a letter whose memory is there from the beginning, and both may begin anew.  Where there is none for the peer itself,
 * its message stays in its receive until there is, or its endpoint ends.
 *
 * Threads that reap side by side may bring what they reaped in another order than that in which it came.  So each
 * message begins with a number (4 bytes, little-endian), before it an epoch (4 bytes, too): messages are handed on in the
 * order in which they were sent.  A sender's other epoch means that it was made anew, and knows of nothing before.
 *
 * An endpoint outlives what is made on it, so that a message may come to one that was made anew, and was meant for the one
 * before.  So each has the receiver's epoch, too, as its sender has heard it (4 bytes; 0: not yet), and is dropped by
 * whoever never had that.  Whoever hears of another epoch begins one of its own, unless its own is known there already:
 * else each would answer the other's for ever.
 *
 * Locks: none; its owner's.
 */
#ifndef SVC_MAIL_H
#define SVC_MAIL_H

#include <stdbool.h>

#include "services/xport_services.h"

enum {
	SVC_MAIL_HEAD = 12,
	SVC_MAIL_WINDOW = 32,
	SVC_MAIL_REPLIES = 2 * SVC_MAIL_WINDOW,
	SVC_MAIL_EARLY = SVC_MAIL_WINDOW + SVC_MAIL_REPLIES, /* what a peer may have sent behind one that is late */
	SVC_MAIL_RECEIVES = 32, /* at most: of XPORT_QUEUE_DEPTH, which bounds an instance's, it takes a quarter */
	SVC_MAIL_WORD = 128,
	SVC_MAIL_BUCKETS = 64
};

struct svc_mail;
struct svc_letter;

struct svc_letters {
	struct svc_letter *first, **end;
};

struct svc_mail_peer {
	struct svc_mail_peer *next; /* of its bucket */
	struct svc_mail *mail;
	xport_ep *ep;
	int ended;           /* a status: muted, or about to be forgotten */
	bool forgotten;      /* stays until its letters are ours again */
	unsigned unanswered; /* requests */
	unsigned replies;    /* that wait */
	unsigned under_way;  /* replies */
	struct svc_letters requests, answers, flight;
	uint32_t epoch, number;     /* of the next message to it */
	uint32_t epoch_before;      /* ours, that is over */
	uint32_t from, from_number; /* of the next message of it; 0: no epoch yet */
	uint32_t from_before;       /* an epoch that is over */
	struct svc_letters early;   /* messages that came before those that were sent before them */
	unsigned nearly;
	struct svc_letter *spare; /* for the word that all is over; NULL: it is on its way */
	void *user;
};

struct svc_mail_fns {
	/* A message of the peer's.  NO_MEMORY: it could not be answered.  Another error: it must not send that, and is muted. */
	int (*message)(void *arg, struct svc_mail_peer *peer, const uint8_t *bytes, size_t len);
	/* The peer was made anew; svc_mail_anew was called. */
	void (*anew)(void *arg, struct svc_mail_peer *peer);
	/* All that was said to the peer and by it is void, for lack of memory.  It is told by svc_mail_over. */
	void (*over)(void *arg, struct svc_mail_peer *peer);
	/* The peer's endpoint ended, or it was muted.  Unless it was only muted, `peer` goes away after this. */
	void (*ended)(void *arg, struct svc_mail_peer *peer, int status);
};

struct svc_mail_receive {
	bool posted;
	xport_ep *from; /* of a message that waits for memory for its peer; NULL: none does */
	int status;     /* that it came with */
	size_t len;
	uint64_t id;
	uint8_t *bytes;
};

struct svc_mail {
	xport *x;
	uint64_t tag;
	size_t max; /* bytes of a message */
	const struct svc_mail_fns *fns;
	void *arg;
	bool stopping;
	bool stuck;        /* a full queue refused one */
	unsigned receives; /* that it has */
	unsigned unposted; /* of them, those that are to be posted, or have what waits */
	unsigned waiting;  /* letters that wait */
	unsigned flying;   /* that are under way */
	uint64_t muted;    /* peers, ever */
	struct svc_mail_receive receive[SVC_MAIL_RECEIVES];
	struct svc_mail_peer *bucket[SVC_MAIL_BUCKETS];
	uint8_t *buffers;
};

/* Begins to receive messages of at most `max` bytes.  Nothing is left after an error, which `operation` has been told of. */
int svc_mail_open(struct svc_mail *m, xport *x, uint64_t tag, size_t max, const struct svc_mail_fns *fns, void *arg,
                  const char *operation);
/* Looks at a completion, or with NULL only moves what waits.  Returns whether it was one of its own. */
bool svc_mail_step(struct svc_mail *m, const struct xport_completion *c);
/* True if something waits that no completion will move. */
static inline bool svc_mail_waits(const struct svc_mail *m)
{
	return m->stuck || (m->unposted > 0 && !m->stopping);
}

/* The peer of an endpoint, made if it is not there; NULL: out of memory. */
struct svc_mail_peer *svc_mail_peer(struct svc_mail *m, xport_ep *ep);
struct svc_mail_peer *svc_mail_find(const struct svc_mail *m, const xport_ep *ep);
/* Sends: the bytes are copied.  NO_MEMORY; or the status by which the peer ended. */
int svc_mail_request(struct svc_mail_peer *p, const void *bytes, size_t len);
int svc_mail_reply(struct svc_mail_peer *p, const void *bytes, size_t len);
/* A request that cannot fail for want of memory: its letter is made before, with room for `len` bytes, and is the mail's when
 * it is sent, or else to be freed.  NULL: out of memory. */
struct svc_letter *svc_mail_reserve(size_t len);
void svc_mail_request_in(struct svc_mail_peer *p, struct svc_letter *letter, const void *bytes, size_t len);
/* As svc_mail_reply, in `over`: the word that a service says at its end, of at most SVC_MAIL_WORD bytes. */
void svc_mail_over(struct svc_mail_peer *p, const void *bytes, size_t len);
/* The last reply.  Not to one that nothing was said to, or heard of, since it was made anew: another one would hear it. */
void svc_mail_bye(struct svc_mail_peer *p, const void *bytes, size_t len);
/* Drops what waits for this peer. */
void svc_mail_drop(struct svc_mail_peer *p);
/* An answer came.  False: to nothing that was asked. */
bool svc_mail_answered(struct svc_mail_peer *p);
/* The peer said that it ends, another one may follow: what waits for it is dropped, what it was asked is not answered. */
void svc_mail_anew(struct svc_mail_peer *p);
/* Ends a peer, as its endpoint's end does. */
void svc_mail_end(struct svc_mail *m, const xport_ep *ep, int status);
/* Calls `f` for each peer that is there. */
void svc_mail_each(struct svc_mail *m, void (*f)(void *arg, struct svc_mail_peer *peer));

/* Receives nothing any more. */
void svc_mail_stop(struct svc_mail *m);
/* After svc_mail_stop: no operation of its own is under way, and nothing waits. */
bool svc_mail_idle(const struct svc_mail *m);
/* When it is idle. */
void svc_mail_close(struct svc_mail *m);

#endif
