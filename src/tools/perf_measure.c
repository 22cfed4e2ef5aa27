/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_measure.c - the loops of the initiator: one operation after another for latency, windows for bandwidth and rate. */
#include "tools/perf_stream.h"

/* The best of slices of this length is the peak. */
#define SLICE_NS UINT64_C(10000000)

/* How many operations this run may still post to a peer. */
static uint64_t measure_left(const struct perf_stream *l, const struct perf_peer *p)
{
	return l->run.count > 0 ? l->run.count - p->posted : UINT64_MAX;
}

static uint64_t measure_completed(const struct perf_stream *l)
{
	uint64_t n = 0;

	for (int i = 0; i < l->npeers; i++)
		n += l->peers[i].posted - (l->run.test->local ? 0 : l->peers[i].open);
	return n;
}

/* Until what was posted to the peer has completed.  A flush that found the queue full is tried again. */
static bool settle(struct perf_stream *l, struct perf_peer *p)
{
	bool quiet = (l->run.test->flags & XPORT_QUIET) != 0;

	while (p->open > 0) {
		if (!perf_stream_progress(l))
			return false;
		if (quiet && p->unflushed == l->run.chunk && l->run.test->post(l, p, 0) < 0)
			return false;
	}
	return true;
}

/* ---- latency ---- */

static bool post_one(struct perf_stream *l, struct perf_peer *p)
{
	int n;

	while ((n = l->run.test->post(l, p, 1)) == 0)
		if (!perf_stream_poll(l))
			return false;
	return n == 1;
}

/* Whether the other side's n-th operation of a ping-pong, on this endpoint, has come. */
static bool has_come(const struct perf_stream *l, const struct perf_peer *p, uint64_t n, uint64_t n_of_all)
{
	const struct perf_run *run = &l->run;
	uint64_t at = (p->first + n % run->slots) * run->stride;
	volatile const uint8_t *last;

	if (run->test->messages || run->test->notifies)
		return l->arrived > n_of_all;
	last = l->in + at + run->size - 1;
	return *last == perf_stamp(n, run->slots);
}

/* There and back. */
static bool trip(struct perf_stream *l, struct perf_peer *p, uint64_t n)
{
	uint64_t back = p->posted;

	if (!post_one(l, p))
		return false;
	while (!has_come(l, p, back, n))
		if (!perf_stream_watch(l))
			return false;
	return true;
}

bool perf_respond(struct perf_stream *l, uint64_t *answered)
{
	struct perf_peer *p;

	/* The next one may have come while the answer to the last one was settled: whoever then slept would sleep in vain. */
	while (p = &l->peers[*answered % (uint64_t)l->npeers], has_come(l, p, p->posted, *answered)) {
		/* What the last answer needs must be there again. */
		if (!settle(l, p) || !post_one(l, p))
			return false;
		++*answered;
		if (!settle(l, p) || !perf_stream_replenish(l))
			return false;
	}
	return true;
}

/* One sample; what is done after the clock was read is no part of it. */
static bool sample(struct perf_stream *l, uint64_t *n, uint64_t *ns)
{
	bool trips = l->run.test->timing == PERF_HALF_TRIP;
	struct perf_peer *p = &l->peers[*n % (uint64_t)l->npeers];
	uint64_t from;

	if (l->run.test->before != NULL && !l->run.test->before(l, p))
		return false;
	from = perf_now();
	for (uint32_t k = 0; k < l->run.per_sample; k++, ++*n) {
		p = &l->peers[*n % (uint64_t)l->npeers];
		if (trips ? !trip(l, p, *n) : !post_one(l, p) || !settle(l, p))
			return false;
		if (trips && k + 1 < l->run.per_sample && (!settle(l, p) || !perf_stream_replenish(l)))
			return false;
	}
	*ns = perf_now() - from;
	return settle(l, p) && perf_stream_replenish(l);
}

static bool one_by_one(struct perf_stream *l, struct perf_taken *t)
{
	uint64_t parts = (uint64_t)l->run.per_sample * (l->run.test->timing == PERF_HALF_TRIP ? 2 : 1);
	uint64_t until = t->from + l->run.ns, ns, n = 0;

	do {
		if (!sample(l, &n, &ns))
			return false;
		if (t->latency != NULL)
			perf_histogram_add(t->latency, ns * PERF_UNITS / parts);
		t->to = perf_now();
		if (perf_stream_stopped(l))
			return false;
	} while (l->run.count > 0 ? n < l->run.count * (uint64_t)l->npeers : t->to < until);
	t->operations = n;
	return true;
}

/* ---- windows ---- */

/* Fills the windows of all endpoints; *more: whether there is anything left to post. */
static bool fill_windows(struct perf_stream *l, bool *more)
{
	const struct perf_run *run = &l->run;

	*more = false;
	for (int i = 0; i < l->npeers; i++) {
		struct perf_peer *p = &l->peers[i];
		uint32_t room = run->window - p->open;
		uint64_t rest = measure_left(l, p);

		room = rest < room ? (uint32_t)rest : room;
		/* With no room there may be a flush that is due. */
		if ((room > 0 || p->unflushed == run->chunk) && run->test->post(l, p, room) < 0)
			return false;
		*more = *more || measure_left(l, p) > 0;
	}
	return true;
}

/* What is in flight at the end completes; and what that does not prove to be placed a flush does. */
static bool finish_windows(struct perf_stream *l)
{
	bool quiet = (l->run.test->flags & XPORT_QUIET) != 0;

	if ((quiet || l->run.test->proof == PERF_BY_FLUSH) && !perf_stream_flush(l))
		return false;
	for (int i = 0; i < l->npeers; i++)
		if (!perf_stream_drain(l, &l->peers[i].open, quiet ? l->peers[i].unflushed : 0))
			return false;
	return true;
}

struct slice {
	uint64_t began, operations;
};

static void look_at_slice(struct slice *s, uint64_t now, uint64_t operations, double *peak)
{
	double rate;

	if (now - s->began < SLICE_NS)
		return;
	rate = (double)(operations - s->operations) * 1e9 / (double)(now - s->began);
	*peak = rate > *peak ? rate : *peak;
	*s = (struct slice){now, operations};
}

static bool windows(struct perf_stream *l, struct perf_taken *t)
{
	struct slice slice = {t->from, 0};
	uint64_t now = t->from;
	bool more = true;

	while (more && (l->run.ns == 0 || now < t->from + l->run.ns)) {
		if (!fill_windows(l, &more) || !perf_stream_progress(l) || !perf_stream_replenish(l))
			return false;
		now = perf_now();
		look_at_slice(&slice, now, measure_completed(l), &t->peak);
		if (perf_stream_stopped(l))
			return false;
	}
	if (!finish_windows(l))
		return false;
	t->to = perf_now();
	for (int i = 0; i < l->npeers; i++)
		t->operations += l->peers[i].posted;
	return true;
}

bool perf_initiate(struct perf_stream *l, struct perf_taken *t)
{
	t->operations = 0;
	t->peak = 0;
	t->from = perf_now();
	return l->run.latency ? one_by_one(l, t) : windows(l, t);
}
