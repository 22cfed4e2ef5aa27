/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_tests.c - the table of tests, and how operations of each kind are posted. */
#include <string.h>

#include "tools/perf_stream.h"

const char *const perf_measure_names[PERF_MEASURES] = {"latency", "bandwidth", "rate"};

/* What stopped a post: 0 if it was the queue. */
static int stopped(struct perf_stream *l, int status, uint32_t posted)
{
	if (status == XPORT_ERR_AGAIN || status == XPORT_OK)
		return (int)posted;
	(void)perf_stream_library(l, status, "%s", l->run.test->name);
	return -1;
}

static inline uint64_t tests_place(const struct perf_stream *l, const struct perf_peer *p)
{
	return (p->first + p->slot) * l->run.stride;
}

static inline void tests_next(const struct perf_stream *l, struct perf_peer *p)
{
	p->posted++;
	p->slot = p->slot + 1 == l->run.slots ? 0 : p->slot + 1;
}

/* ---- puts and gets ---- */

/* Each last byte says how often its slot was used, for who watches it. */
static void stamp(const struct perf_stream *l, const struct perf_peer *p)
{
	l->out[tests_place(l, p) + l->run.size - 1] = perf_stamp(p->posted, l->run.slots);
}

static int tests_post_put(struct perf_stream *l, struct perf_peer *p, uint32_t n)
{
	bool stamps = l->run.latency && (l->run.test->flags & XPORT_LOCAL) != 0;
	int r = XPORT_OK;
	uint32_t i;

	for (i = 0; i < n; i++) {
		uint64_t at = tests_place(l, p);

		if (stamps)
			stamp(l, p);
		r = xport_put(p->ep, l->out + at, l->run.size, p->rkey, l->span + at, &p->opt);
		if (r != XPORT_OK)
			break;
		tests_next(l, p);
	}
	p->open += i;
	return stopped(l, r, i);
}

/* Quiet ones are done when a flush is, which so many share. */
static int post_quiet(struct perf_stream *l, struct perf_peer *p, uint32_t n)
{
	uint32_t i;
	int r = XPORT_OK;

	for (i = 0;; i++) {
		uint64_t at;

		if (p->unflushed == l->run.chunk) {
			r = xport_flush(p->ep, &p->flush);
			if (r != XPORT_OK)
				break;
			p->unflushed = 0;
		}
		if (i == n)
			break;
		at = tests_place(l, p);
		r = xport_put(p->ep, l->out + at, l->run.size, p->rkey, l->span + at, &p->opt);
		if (r != XPORT_OK)
			break;
		p->unflushed++;
		p->open++;
		tests_next(l, p);
	}
	return stopped(l, r, i);
}

static int post_notify(struct perf_stream *l, struct perf_peer *p, uint32_t n)
{
	int r = XPORT_OK;
	uint32_t i;

	for (i = 0; i < n; i++) {
		uint64_t at = tests_place(l, p);

		p->opt.value = p->first + p->slot;
		r = xport_put_notify(p->ep, l->out + at, l->run.size, p->rkey, l->span + at, &p->opt);
		if (r != XPORT_OK)
			break;
		tests_next(l, p);
	}
	p->open += i;
	return stopped(l, r, i);
}

static int post_get(struct perf_stream *l, struct perf_peer *p, uint32_t n)
{
	int r = XPORT_OK;
	uint32_t i;

	for (i = 0; i < n; i++) {
		uint64_t at = tests_place(l, p);

		r = xport_get(p->ep, l->in + at, l->run.size, p->rkey, at, &p->opt);
		if (r != XPORT_OK)
			break;
		tests_next(l, p);
	}
	p->open += i;
	return stopped(l, r, i);
}

/* ---- messages, atomics ---- */

static int tests_post_send(struct perf_stream *l, struct perf_peer *p, uint32_t n)
{
	int r = XPORT_OK;
	uint32_t i;

	for (i = 0; i < n; i++) {
		r = xport_send(p->ep, l->out + tests_place(l, p), l->run.size, p->first + p->slot, &p->opt);
		if (r != XPORT_OK)
			break;
		tests_next(l, p);
	}
	p->open += i;
	return stopped(l, r, i);
}

static int post_atomic(struct perf_stream *l, struct perf_peer *p, uint32_t n)
{
	struct xport_atomic_args a = {.size = sizeof(a), .op = l->run.test->op, .width = (int)l->run.size};
	int r = XPORT_OK;
	uint32_t i;

	for (i = 0; i < n; i++) {
		uint64_t at = tests_place(l, p), round = p->posted / l->run.slots;

		a.operand = a.op == XPORT_ATOMIC_CAS ? round + 1 : perf_verify_operand(l, p->first + p->slot);
		/* For tests: half of what a wrong byte is elsewhere. */
		a.operand ^= l->run.plant ? 0x40 : 0;
		a.compare = round;
		a.result = l->run.test->fetches ? l->out + at : NULL;
		r = xport_atomic(p->ep, &a, p->rkey, l->span + at, &p->opt);
		if (r != XPORT_OK)
			break;
		tests_next(l, p);
	}
	p->open += i;
	return stopped(l, r, i);
}

/* ---- flush ---- */

/* What there is to prove. */
static int post_unproven(struct perf_stream *l, struct perf_peer *p)
{
	static const struct xport_opt quiet = {.size = sizeof(quiet), .flags = XPORT_QUIET};
	uint64_t at = tests_place(l, p);
	int r;

	if (p->unflushed > 0)
		return XPORT_OK;
	r = xport_put(p->ep, l->out + at, l->run.size, p->rkey, l->span + at, &quiet);
	p->unflushed = r == XPORT_OK;
	return r;
}

static bool before_flush(struct perf_stream *l, struct perf_peer *p)
{
	int r;

	while ((r = post_unproven(l, p)) == XPORT_ERR_AGAIN)
		if (!perf_stream_poll(l))
			return false;
	return stopped(l, r, 0) == 0;
}

static int post_flush(struct perf_stream *l, struct perf_peer *p, uint32_t n)
{
	int r = XPORT_OK;
	uint32_t i;

	for (i = 0; i < n; i++) {
		r = post_unproven(l, p);
		if (r == XPORT_OK)
			r = xport_flush(p->ep, &p->flush);
		if (r != XPORT_OK)
			break;
		p->unflushed = 0;
		p->open++;
		tests_next(l, p);
	}
	return stopped(l, r, i);
}

/* ---- registration ---- */

/* What was registered is good for something: a put out of it arrives. */
static bool try_out(struct perf_stream *l, struct perf_peer *p, xport_mr *mr, uint8_t *buf)
{
	struct xport_opt opt = {.size = sizeof(opt), .context = &p->done, .mr = mr};
	uint64_t at = tests_place(l, p);
	int r;

	perf_verify_slot(l, buf, p->first + p->slot);
	buf[l->run.size / 2] ^= l->run.plant ? 0x40 : 0;
	while ((r = xport_put(p->ep, buf, l->run.size, p->rkey, l->span + at, &opt)) == XPORT_ERR_AGAIN)
		if (!perf_stream_poll(l))
			return false;
	if (r != XPORT_OK)
		return perf_stream_library(l, r, "a put outside the registered memory");
	p->open++;
	tests_next(l, p);
	return perf_stream_drain(l, &p->open, 0);
}

static int tests_get_region(struct perf_stream *l, xport_mr **mr)
{
	static const uint32_t rights = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE;

	if (l->run.test->allocates)
		return xport_mr_alloc(l->x, l->run.size, rights, mr);
	return xport_mr_reg(l->x, l->scratch, l->run.size, rights, mr);
}

static int post_registration(struct perf_stream *l, struct perf_peer *p, uint32_t n)
{
	struct xport_mr_info info = {.size = sizeof(info)};
	xport_mr *mr;
	int r;

	for (uint32_t i = 0; i < n; i++) {
		r = tests_get_region(l, &mr);
		if (r != XPORT_OK)
			return stopped(l, r, i);
		if (!l->run.reuse) {
			p->posted++;
		} else {
			r = xport_mr_query(mr, &info);
			if (r != XPORT_OK || !try_out(l, p, mr, info.base))
				return -1;
		}
		r = xport_mr_dereg(mr);
		if (r != XPORT_OK)
			return stopped(l, r, i);
	}
	return (int)n;
}

/* ---- the table ---- */

const struct perf_test perf_tests[PERF_TESTS] = {
	{.name = "put", .what = "puts, until they are placed", .post = tests_post_put, .puts = true},
	{.name = "put_local",
         .what = "puts with XPORT_LOCAL",
         .post = tests_post_put,
         .flags = XPORT_LOCAL,
         .proof = PERF_BY_FLUSH,
         .timing = PERF_HALF_TRIP,
         .puts = true},
	{.name = "put_quiet",
         .what = "puts with XPORT_QUIET, and flushes",
         .post = post_quiet,
         .flags = XPORT_QUIET,
         .puts = true},
	{.name = "put_notify",
         .what = "puts with a notification",
         .post = post_notify,
         .proof = PERF_BY_TARGET,
         .timing = PERF_HALF_TRIP,
         .puts = true,
         .notifies = true},
	{.name = "get", .what = "gets", .post = post_get, .gets = true},
	{.name = "send",
         .what = "sends and receives",
         .post = tests_post_send,
         .proof = PERF_BY_TARGET,
         .timing = PERF_HALF_TRIP,
         .messages = true},
	{.name = "fetch_add",
         .what = "atomics that fetch and add",
         .post = post_atomic,
         .atomic = true,
         .fetches = true,
         .op = XPORT_ATOMIC_ADD},
	{.name = "add", .what = "atomics that add", .post = post_atomic, .atomic = true, .op = XPORT_ATOMIC_ADD},
	{.name = "swap",
         .what = "atomics that swap",
         .post = post_atomic,
         .atomic = true,
         .fetches = true,
         .op = XPORT_ATOMIC_SWAP},
	{.name = "cas",
         .what = "atomics that compare and swap",
         .post = post_atomic,
         .atomic = true,
         .fetches = true,
         .op = XPORT_ATOMIC_CAS},
	{.name = "flush",
         .what = "flushes, each after a quiet put",
         .before = before_flush,
         .post = post_flush,
         .puts = true},
	{.name = "reg",
         .what = "xport_mr_reg and xport_mr_dereg",
         .post = post_registration,
         .local = true,
         .puts = true},
	{.name = "alloc",
         .what = "xport_mr_alloc and xport_mr_dereg",
         .post = post_registration,
         .local = true,
         .puts = true,
         .allocates = true},
};

const struct perf_test *perf_test_of(const char *name)
{
	for (int i = 0; i < PERF_TESTS; i++)
		if (strcmp(perf_tests[i].name, name) == 0)
			return &perf_tests[i];
	return NULL;
}

const char *perf_timing_text(const struct perf_test *test)
{
	if (test->timing == PERF_HALF_TRIP)
		return "half a round trip";
	if (test->local)
		return "both calls";
	if (test->flags & XPORT_QUIET)
		return "from the post until its flush has completed";
	return "from the post until it has completed";
}

bool perf_test_takes(const struct perf_test *test, enum perf_measure measure, uint64_t size)
{
	if (test->atomic)
		return size == 4 || size == 8;
	if (test->local)
		return measure == PERF_LATENCY && size > 0;
	/* Of nothing no last byte can be watched. */
	return size > 0 || measure != PERF_LATENCY || (test->flags & XPORT_LOCAL) == 0;
}
