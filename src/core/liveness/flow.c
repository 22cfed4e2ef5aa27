/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/liveness/flow.h"

#include <stddef.h>

/* In a beat: 24 bits of either counter, little-endian, and a byte that says whether the owner's polls find nothing. */
enum { MASK = 0xffffff, HALF = 0x800000 };

static void put24(uint8_t *b, uint32_t v)
{
	b[0] = (uint8_t)v;
	b[1] = (uint8_t)(v >> 8);
	b[2] = (uint8_t)(v >> 16);
}

static uint32_t get24(const uint8_t *b)
{
	return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16;
}

/* Whether a is ahead of b, both modulo 2^24. */
static bool flow_ahead(uint32_t a, uint32_t b)
{
	uint32_t d = (a - b) & MASK;

	return d != 0 && d < HALF;
}

static uint32_t total(const uint32_t *frames, const uint64_t *control)
{
	return (__atomic_load_n(frames, __ATOMIC_RELAXED) + (uint32_t)__atomic_load_n(control, __ATOMIC_RELAXED)) &
	       MASK;
}

void xpi_flow_start(struct xpi_flow *p)
{
	atomic_store(&p->asked, false);
	atomic_store(&p->idle, 0);
	p->told = p->arrived = 0;
	p->waits = false;
	p->since_ms = p->idle_ms = 0;
}

void xpi_flow_answer(struct xpi_flow *p, bool idle)
{
	atomic_store_explicit(&p->asked, false, memory_order_relaxed);
	if (idle)
		atomic_store_explicit(&p->idle, XPI_FLOW_FOR_PEER | XPI_FLOW_FOR_US, memory_order_release);
}

/* The owner's answer since the last time; it is taken once. */
static bool take_answer(struct xpi_flow *p, unsigned whose)
{
	return (atomic_fetch_and_explicit(&p->idle, ~whose, memory_order_acquire) & whose) != 0;
}

void xpi_flow_say(struct xpi_flow *p, uint8_t *bytes, int64_t now)
{
	uint32_t sent = 0, received = 0;

	if (p->n.sent != NULL) {
		sent = total(p->n.sent, p->n.control_out);
		received = total(p->n.received, p->n.control_in);
	}
	if (!p->waits && flow_ahead(sent, p->arrived)) {
		p->waits = true;
		p->since_ms = now;
		p->idle_ms = 0;
	}
	put24(bytes, sent);
	put24(bytes + 3, received);
	bytes[6] = take_answer(p, XPI_FLOW_FOR_PEER);
}

/* Whether what the peer said a beat ago that it had sent is still missing. */
static bool misses(struct xpi_flow *p, uint32_t sent)
{
	uint32_t before = p->told;

	p->told = sent;
	return flow_ahead(before, total(p->n.received, p->n.control_in));
}

/*
 * The first beats after a frame bring no answer, because nobody was asked: time is counted from the frame.  Half of it must
 * be answered without a break, which three beats do.
 */
static enum xpi_flow_verdict judge(struct xpi_flow *p, uint32_t arrived, bool idle, int64_t now, int timeout_ms)
{
	if (arrived != p->arrived) {
		p->arrived = arrived;
		p->waits = false;
	}
	if (!p->waits)
		return XPI_FLOW_MOVES;
	/* Both, since the last beat: an answer that is older says nothing about now. */
	if (!take_answer(p, XPI_FLOW_FOR_US) || !idle)
		p->idle_ms = 0;
	else if (p->idle_ms == 0)
		p->idle_ms = now;
	else if (now - p->idle_ms >= timeout_ms * 7 / 16 && now - p->since_ms >= timeout_ms * 7 / 8)
		return XPI_FLOW_STANDS;
	return XPI_FLOW_ASK;
}

enum xpi_flow_verdict xpi_flow_heard(struct xpi_flow *p, const uint8_t *bytes, int64_t now, int timeout_ms)
{
	enum xpi_flow_verdict v;

	if (bytes[6] > 1)
		return XPI_FLOW_DAMAGED;
	if (p->n.sent == NULL)
		return XPI_FLOW_MOVES;
	v = judge(p, get24(bytes + 3), bytes[6] != 0, now, timeout_ms);
	if (misses(p, get24(bytes)) && v == XPI_FLOW_MOVES)
		v = XPI_FLOW_ASK;
	if (v == XPI_FLOW_ASK)
		atomic_store_explicit(&p->asked, true, memory_order_relaxed);
	return v;
}
