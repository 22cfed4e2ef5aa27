/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * flow.h - whether the data path of an endpoint moves, although the peer's heartbeat says nothing about it.
 *
 * Each beat of the control channel carries two counters: the frames that its sender has handed to the back end, and
 * those that it has received.  The sender of a frame judges.  The path is stuck if, for the peer timeout, the peer
 * receives none of the frames that were sent, while both owners poll and their polls find nothing to do.  A process that
 * does not poll is busy, not stuck: then no time is counted.  The same holds while the network works on a put or get,
 * which frames may wait behind.
 *
 * The owner of the endpoint counts frames and answers questions; all else belongs to the helper thread (monitor.h), under
 * its lock.
 */
#ifndef XPI_CORE_LIVENESS_FLOW_H
#define XPI_CORE_LIVENESS_FLOW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { XPI_FLOW_LEN = 7 };

/* The answer of the owner: one bit for each that takes it. */
enum { XPI_FLOW_FOR_PEER = 1, XPI_FLOW_FOR_US = 2 };

/* Counters of the owner's, which only grow; written by xpi_flow_count. */
struct xpi_flow_counters {
	const uint32_t *sent, *received;           /* sequenced frames; NULL: nothing is judged */
	const uint64_t *control_out, *control_in; /* control frames */
};

struct xpi_flow {
	struct xpi_flow_counters n;
	atomic_bool asked;  /* the owner is to answer */
	atomic_uint idle;   /* its answer: a poll found nothing to do */
	uint32_t told;      /* what the peer said in its last beat that it had sent */
	uint32_t arrived;   /* ... had received */
	bool waits;         /* frames sent before `since_ms` have not been received */
	int64_t since_ms;   /* since then nothing more has arrived at the peer */
	int64_t idle_ms;    /* since then all answers are that polls find nothing; 0: the last one was not */
};

/* Sets a counter that the helper thread reads. */
static inline void xpi_flow_count(uint32_t *counter, uint32_t value)
{
	__atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

static inline void xpi_flow_count_control(uint64_t *counter)
{
	__atomic_store_n(counter, *counter + 1, __ATOMIC_RELAXED);
}

void xpi_flow_start(struct xpi_flow *p);

/* Owner: whether xpi_flow_answer is due. */
static inline bool xpi_flow_asked(const struct xpi_flow *p)
{
	return atomic_load_explicit(&p->asked, memory_order_relaxed);
}

/* Owner: a poll has found something to do, or nothing. */
void xpi_flow_answer(struct xpi_flow *p, bool idle);

/* Helper: writes XPI_FLOW_LEN bytes for a beat that leaves now. */
void xpi_flow_say(struct xpi_flow *p, uint8_t *bytes, int64_t now);

enum xpi_flow_verdict {
	XPI_FLOW_DAMAGED, /* not what xpi_flow_say writes */
	XPI_FLOW_MOVES,
	XPI_FLOW_ASK,     /* the owner is asked: wake it */
	XPI_FLOW_STANDS
};

/* Helper: a beat of the peer's came.  `timeout_ms`: how long a path may be stuck. */
enum xpi_flow_verdict xpi_flow_heard(struct xpi_flow *p, const uint8_t *bytes, int64_t now, int timeout_ms);

#endif
