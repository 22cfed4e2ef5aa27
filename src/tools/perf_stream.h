/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_stream.h - a thread's instance, its endpoints to its counterpart in the other process, and memory for the
 * operations.
 *
 * The memory is one region of two halves. Outgoing data is in the first, `out`, and incoming data in the second, `in`,
 * so either side can be initiator and target at once. A half has a number of slots for each endpoint. The n-th
 * operation on an endpoint uses slot n modulo that number, on both sides.
 *
 * ERRORS: false, or a negative number, and `text`. The stream is then unusable.
 */
#ifndef XPORT_TOOLS_PERF_STREAM_H
#define XPORT_TOOLS_PERF_STREAM_H

#include <stdatomic.h>

#include "tools/perf.h"

enum {
	PERF_REAP = 64,
	PERF_MESSAGE = 256 << 10, /* longest of perf_wire.c's */
	PERF_KEY = 4096
};

/* Seconds without anything, while something is due.  The tests have less of them. */
#ifndef PERF_PATIENCE_S
#define PERF_PATIENCE_S 60
#endif

/* Tags: the highest bit tells perf_wire.c's messages from data; of those the rest is the slot. */
#define PERF_CONTROL (UINT64_C(1) << 63)

/* What the completion of an operation counts down. */
struct perf_token {
	uint32_t *open;
	uint32_t amount;
};

struct perf_peer {
	xport_ep *ep;
	xport_rkey *rkey;
	uint32_t open;      /* operations in flight; of quiet ones those that no flush has covered */
	uint32_t slot;      /* of the next operation, among the peer's own */
	uint32_t unflushed; /* quiet operations since the last flush was posted */
	uint64_t posted;    /* in this run */
	uint32_t first;     /* the first of its slots among the stream's */
	struct xport_opt opt, flush;
	struct perf_token done, flushed;
};

/* One run of a case: with data checked, to warm up, or timed. */
struct perf_run {
	const struct perf_test *test;
	uint64_t size, stride;
	uint32_t slots, window, chunk; /* chunk: quiet operations that share a flush */
	uint64_t seed;                 /* of the data; 0: they stay as they are */
	uint64_t count, ns;            /* how long, one of them 0; counted an endpoint */
	uint32_t per_sample;
	bool latency, both, plant;
	bool reuse; /* what a registration is good for is tried out */
};

struct perf_posted; /* a receive */

struct perf_stream {
	xport *x;
	int index;
	bool initiator;    /* the client's; the server's is not */
	bool wait;         /* sleeps where there is nothing to do */
	uint64_t limit_ms; /* of xport_wait */
	atomic_bool *stop; /* of all streams: one has failed */
	struct perf_peer *peers;
	int npeers;
	xport_mr *mr;
	uint8_t *out, *in, *mine; /* mine: what xport_mr_reg got */
	uint64_t mapped;          /* bytes of a file at `mine`; 0: it is of the heap */
	uint64_t span;            /* of a half */
	uint8_t *scratch;         /* what is registered in a run of that */

	struct perf_run run;
	uint64_t arrived; /* messages or notifications of this run */
	struct perf_posted *receives,
		**used; /* used: a ring of those that are to be posted, the longest unused first */
	uint32_t nreceives, nused, first_used;
	uint32_t receiving, room; /* posted and not completed; at most so many */
	unsigned idle;            /* polls without anything, in a row */
	uint64_t idle_since;

	/* perf_wire.c */
	char *letter, *reply;
	bool letter_here;
	uint64_t letter_len;
	uint32_t reply_open;

	bool patient;         /* what is due may take as long as it likes: a run of the other side's */
	bool ending;          /* goodbye has been said */
	bool failed, stopped; /* stopped: since another stream has failed */
	char text[PERF_TEXT];
	char hint[256]; /* what its user can do about it, or "" */
};

/* ---- perf_stream.c ---- */

bool perf_stream_open(struct perf_stream *l, const struct perf_options *o, int index, atomic_bool *stop);
/* Room for so many endpoints; the first one stays, if it is there, also where there is no memory. */
bool perf_stream_endpoints(struct perf_stream *l, int n);
/* The memory, of two halves of `span`. */
bool perf_stream_memory(struct perf_stream *l, uint64_t span, enum perf_memory memory);
/* In order of undoing; says goodbye to peers that are still there. */
void perf_stream_close(struct perf_stream *l);

/* Says on standard error why it failed, and what its user can do about it. */
void perf_stream_complain(const struct perf_stream *l);
/* Keeps the text of the first failure; returns false.  _library: with what the library knows about it. */
bool perf_stream_fail(struct perf_stream *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same, if another stream has failed: then this one has no text of its own. */
bool perf_stream_stopped(struct perf_stream *l);
bool perf_stream_library(struct perf_stream *l, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Takes what there is; sleeps a moment where the stream may, and there is nothing. */
bool perf_stream_progress(struct perf_stream *l);
/* The same in a ping-pong: a put wakes nobody at its target, so who watches memory lets others run instead. */
bool perf_stream_watch(struct perf_stream *l);
/* Takes what there is, never sleeps. */
bool perf_stream_poll(struct perf_stream *l);
/* Until *open is at most `most`. */
bool perf_stream_drain(struct perf_stream *l, const uint32_t *open, uint32_t most);
/* Until so many messages or notifications have arrived. */
bool perf_stream_await(struct perf_stream *l, uint64_t arrivals);

/* Readies memory and receives for a run; and takes the receives back after it. */
bool perf_stream_begin(struct perf_stream *l, const struct perf_run *run);
bool perf_stream_end(struct perf_stream *l);
/* Posts receives, those again that messages have been taken from, as far as there is room. */
bool perf_stream_replenish(struct perf_stream *l);
/* Posts a flush to each peer and waits for all. */
bool perf_stream_flush(struct perf_stream *l);

/* ---- perf_verify.c ---- */

/* Fills the half `out` for this run, wipes `in`; atomics find words of the pattern there. */
void perf_verify_fill(struct perf_stream *l);
/* One slot's worth of the pattern that this stream sends. */
void perf_verify_slot(const struct perf_stream *l, uint8_t *at, uint32_t slot);
/*
 * Whether `in` has what the other side sent or was asked for, which posted `theirs[i]` operations on the i-th endpoint;
 * false with the place of the first byte that is wrong.
 */
bool perf_verify_arrived(struct perf_stream *l, const uint64_t *theirs);
/* The same of what this stream fetched. */
bool perf_verify_fetched(struct perf_stream *l);
/* The word that an atomic puts into a slot; and the place of the slot's last byte, which a ping-pong counts with. */
uint64_t perf_verify_operand(const struct perf_stream *l, uint32_t slot);
static inline uint8_t perf_stamp(uint64_t n, uint32_t slots)
{
	return (uint8_t)(1 + n / slots % 255);
}
/* A receive: which buffer, and the slot that its last message came from. */
struct perf_posted {
	uint32_t buffer;
	uint64_t from, id;
	bool filled;
};

/* ---- perf_wire.c ---- */

/* Sends a message; takes the reference.  NULL is out of memory. */
bool perf_wire_send(struct perf_stream *l, json_t *message);
/* The next one, which must have this member ("": any); NULL: failed.  What the other side says of a failure is one. */
json_t *perf_wire_expect(struct perf_stream *l, const char *member);
/* Readies the stream to hear, once endpoint 0 is there. */
bool perf_wire_listen(struct perf_stream *l);
/* The client's says it first, and hears it. */
bool perf_wire_goodbye(struct perf_stream *l);
/* Tells the other side why this stream gives up, if it still can. */
void perf_wire_last_words(struct perf_stream *l);
json_t *perf_wire_counts(const struct perf_stream *l);
bool perf_wire_read_counts(struct perf_stream *l, json_t *message, const char *member, uint64_t *counts);
bool perf_wire_keys(struct perf_stream *l);
json_t *perf_wire_run(const struct perf_run *run);
bool perf_wire_read_run(struct perf_stream *l, json_t *message, struct perf_run *run);

/* ---- perf_measure.c: the initiator's loops ---- */

struct perf_taken {
	uint64_t from, to; /* perf_now */
	uint64_t operations;
	double peak;                    /* operations a second in the best slice; 0: none was whole */
	struct perf_histogram *latency; /* NULL: not wanted */
};

bool perf_initiate(struct perf_stream *l, struct perf_taken *t);
/* Answers the ping-pong operations that have come; *answered counts them. */
bool perf_respond(struct perf_stream *l, uint64_t *answered);

#endif
