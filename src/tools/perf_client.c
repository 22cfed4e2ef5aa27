/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_client.c - the client: connects the streams, takes each case through its runs, and adds up the threads. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "tools/perf_threads.h"

enum { CONNECT_MS = 15000 };

/* What the threads share. */
static struct session {
	const struct perf_plan *plan;
	struct perf_outcome *out;
	char address[PERF_ADDRESS], host[PERF_ADDRESS];
	uint64_t nonce;
	int ports[PERF_THREADS];
} session;

/* ---- connecting ---- */

static bool connect_one(struct perf_stream *l, int number)
{
	char address[PERF_ADDRESS + 16], hello[64];
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = hello};
	int n, r;

	n = snprintf(hello, sizeof(hello), "xport_perf %016llx %d", (unsigned long long)session.nonce, number);
	attr.private_len = (size_t)n;
	if (session.ports[l->index] == 0)
		snprintf(address, sizeof(address), "%s", session.address);
	else
		snprintf(address, sizeof(address), "%s:%d", session.host, session.ports[l->index]);
	r = xport_connect(l->x, address, &attr, CONNECT_MS, &l->peers[number].ep);
	return r == XPORT_OK || perf_stream_library(l, r, "connecting to %s", address);
}

static bool connect_all(struct perf_stream *l, const struct perf_options *o)
{
	for (int i = 0; i < o->endpoints; i++)
		if (l->peers[i].ep == NULL && !connect_one(l, i))
			return false;
	return perf_stream_memory(l, session.plan->span, o->memory) && perf_wire_keys(l);
}

static bool read_welcome(struct perf_stream *l, json_t *message, const struct perf_options *o)
{
	json_t *ports = NULL, *setup = NULL;

	if (json_unpack(message, "{s{so sO}}", "welcome", "ports", &ports, "setup", &setup) != 0 ||
	    !json_is_object(setup) || json_array_size(ports) != (size_t)o->threads) {
		json_decref(setup);
		return perf_stream_fail(l, "the other side did not answer as xport_perf %s does", xport_version());
	}
	session.out->about.server = setup;
	for (int i = 0; i < o->threads; i++)
		session.ports[i] = (int)json_integer_value(json_array_get(ports, (size_t)i));
	return true;
}

/* The first stream tells what there will be, and hears where the others connect to. */
static bool perf_client_introduce(struct perf_stream *l, const struct perf_options *o)
{
	json_t *hello, *welcome;
	bool good;

	if (!connect_one(l, 0) || !perf_wire_listen(l))
		return false;
	hello = json_pack("{s{si ss si si sI sb}}", "hello", "format", PERF_FORMAT, "version", xport_version(),
	                  "threads", o->threads, "endpoints", o->endpoints, "span", (json_int_t)session.plan->span,
	                  "registered", o->memory != PERF_ALLOCATED);
	if (!perf_wire_send(l, hello))
		return false;
	welcome = perf_wire_expect(l, "welcome");
	good = welcome != NULL && read_welcome(l, welcome, o);
	json_decref(welcome);
	return good;
}

/* ---- a run ---- */

static bool perf_client_say(struct perf_stream *l, const char *word)
{
	return perf_wire_send(l, json_pack("{sb}", word, 1));
}

static bool hear(struct perf_stream *l, const char *word)
{
	json_t *message = perf_wire_expect(l, word);

	json_decref(message);
	return message != NULL;
}

/* The server has all; what it did itself in the other direction is on its way, or here. */
static bool hear_done(struct perf_stream *l, uint64_t *theirs)
{
	json_t *done = perf_wire_expect(l, "done");
	uint64_t all = 0;
	bool good = done != NULL && perf_wire_read_counts(l, done, "done", theirs);

	json_decref(done);
	for (int i = 0; good && l->run.both && i < l->npeers; i++)
		all += theirs[i];
	return good && (l->run.test->proof != PERF_BY_TARGET || l->run.latency || perf_stream_await(l, all));
}

static bool perf_client_check(struct perf_stream *l, const uint64_t *theirs)
{
	bool pingpong = l->run.latency && l->run.test->timing == PERF_HALF_TRIP;

	if (l->run.seed == 0)
		return true;
	if ((l->run.both || pingpong) && !l->run.test->gets && !perf_verify_arrived(l, theirs))
		return false;
	return perf_verify_fetched(l);
}

static uint64_t sum(const uint64_t *v, int n)
{
	uint64_t all = 0;

	for (int i = 0; i < n; i++)
		all += v[i];
	return all;
}

/* Initiates; *t has what it took until the data were certainly there. */
static bool timed_part(struct perf_stream *l, struct perf_taken *t, uint64_t *theirs)
{
	if (l->run.both && !perf_client_say(l, "go"))
		return false;
	if (!perf_initiate(l, t) || !perf_wire_send(l, json_pack("{so}", "end", perf_wire_counts(l))) ||
	    !hear_done(l, theirs))
		return false;
	if (!l->run.latency && (l->run.both || l->run.test->proof == PERF_BY_TARGET))
		t->to = perf_now();
	t->operations += l->run.both ? sum(theirs, l->npeers) : 0;
	return true;
}

static bool perf_client_one_run(struct perf_member *m, const struct perf_run *run, struct perf_taken *t)
{
	struct perf_stream *l = &m->stream;
	uint64_t theirs[PERF_ENDPOINTS];

	return perf_stream_begin(l, run) && perf_wire_send(l, perf_wire_run(run)) && hear(l, "ready") &&
	       perf_threads_meet(m->threads) && timed_part(l, t, theirs) && perf_client_check(l, theirs) &&
	       hear(l, "checked") && perf_stream_end(l);
}

/* ---- a case ---- */

static struct perf_run run_of(const struct perf_threads *threads, const struct perf_case *c)
{
	static atomic_ullong seeds;
	const struct perf_options *o = threads->options;
	bool latency = c->measure == PERF_LATENCY;
	/* So many quiet operations share a flush that a window has two. */
	uint32_t chunk = latency || o->window < 2 ? 1 : o->window / 2;

	return (struct perf_run){.test = c->test,
	                         .size = c->size,
	                         .stride = c->stride,
	                         .slots = c->slots,
	                         .window = o->window,
	                         .chunk = chunk,
	                         .per_sample = c->test->before != NULL ? 1 : o->per_sample,
	                         .latency = latency,
	                         .both = o->both,
	                         .seed = o->verify ? atomic_fetch_add(&seeds, 1) + 1 : 0};
}

/* So few operations that no slot is used twice: each one's data are checked. */
static bool first_run(struct perf_member *m, const struct perf_case *c)
{
	struct perf_run run = run_of(m->threads, c);
	struct perf_taken t = {.latency = NULL};

	run.count = c->slots;
	run.per_sample = 1;
	run.reuse = c->test->local;
	run.plant = m->threads->options->plant == PERF_PLANT_FIRST;
	return perf_client_one_run(m, &run, &t);
}

static bool warm_run(struct perf_member *m, const struct perf_case *c)
{
	struct perf_run run = run_of(m->threads, c);
	struct perf_taken t = {.latency = NULL};

	run.seed = 0;
	run.count = m->threads->options->warm_count;
	run.ns = m->threads->options->warm_ns;
	return perf_client_one_run(m, &run, &t);
}

static bool timed_run(struct perf_member *m, const struct perf_case *c)
{
	struct perf_run run = run_of(m->threads, c);
	struct perf_taken t = {.latency = c->measure == PERF_LATENCY ? &m->part.latency : NULL};

	run.count = m->threads->options->count;
	run.ns = m->threads->options->duration_ns;
	run.plant = m->threads->options->plant == PERF_PLANT_TIMED;
	/* What is only registered moves no data. */
	run.seed = c->test->local ? 0 : run.seed;
	perf_histogram_clear(&m->part.latency);
	if (!perf_client_one_run(m, &run, &t))
		return false;
	m->part.operations = t.operations;
	m->part.peak = t.peak;
	m->from = t.from;
	m->to = t.to;
	return true;
}

/* The threads together, from the first that began to the last that ended. */
static void perf_client_add_up(const struct perf_threads *threads, const struct perf_case *c, struct perf_result *r)
{
	uint64_t from = UINT64_MAX, to = 0;
	double average;

	memset(r, 0, sizeof(*r));
	r->is = c;
	r->verified = threads->options->verify;
	perf_histogram_clear(&r->latency);
	for (int i = 0; i < threads->n; i++) {
		const struct perf_member *m = &threads->members[i];

		r->operations += m->part.operations;
		from = m->from < from ? m->from : from;
		to = m->to > to ? m->to : to;
		perf_histogram_merge(&r->latency, &m->part.latency);
	}
	r->bytes = r->operations * c->size;
	r->seconds = (double)(to - from) / 1e9;
	/* The slices of several threads, or of both sides, are not of the same time: there is no best one of all. */
	if (threads->n > 1 || threads->options->both)
		return;
	average = r->seconds > 0 ? (double)r->operations / r->seconds : 0;
	r->peak = threads->members[0].part.peak > average ? threads->members[0].part.peak : average;
}

static bool one_case(struct perf_member *m, const struct perf_case *c)
{
	static struct perf_result result;
	const struct perf_options *o = m->threads->options;

	if ((o->verify && !first_run(m, c)) || ((o->warm_count > 0 || o->warm_ns > 0) && !warm_run(m, c)) ||
	    !timed_run(m, c) || !perf_threads_meet(m->threads))
		return false;
	if (m->stream.index == 0) {
		perf_client_add_up(m->threads, c, &result);
		perf_out_row(session.out, &result);
	}
	return perf_threads_meet(m->threads);
}

/* ---- a thread ---- */

static bool perf_client_open_stream(struct perf_member *m)
{
	const struct perf_options *o = m->threads->options;
	int index = (int)(m - m->threads->members), core = perf_core_of(o, false, index);

	if (!perf_pin(core))
		return perf_stream_fail(&m->stream, "cannot bind thread %d to core %d", index, core);
	return perf_stream_open(&m->stream, o, index, &m->threads->stop) &&
	       perf_stream_endpoints(&m->stream, o->endpoints);
}

static bool perf_client_lead(struct perf_member *m)
{
	const struct perf_options *o = m->threads->options;
	struct perf_stream *l = &m->stream;

	/* The first stream is there: it has set out. */
	if (l->x == NULL && (!perf_client_open_stream(m) || !connect_one(l, 0) || !perf_wire_listen(l)))
		return false;
	if (!connect_all(l, o))
		return false;
	for (int i = 0; i < session.plan->ncases; i++)
		if (!one_case(m, &session.plan->cases[i]))
			return false;
	return perf_wire_goodbye(l);
}

static bool lead_or_tell(struct perf_member *m)
{
	bool good = perf_client_lead(m);

	if (!good)
		perf_wire_last_words(&m->stream);
	return good;
}

static bool set_out(struct perf_threads *threads)
{
	struct perf_stream *l = &threads->members[0].stream;

	if (perf_client_open_stream(&threads->members[0]) && perf_client_introduce(l, threads->options)) {
		session.out->about.client = perf_setup(l->x, l->peers[0].ep, threads->options, threads->n);
		perf_out_begin(session.out);
		return true;
	}
	perf_wire_last_words(l);
	perf_stream_complain(l);
	return false;
}

int perf_client(const struct perf_options *o, const struct perf_plan *plan, const char *address,
                struct perf_outcome *out)
{
	struct perf_threads threads;
	bool good;

	session.plan = plan;
	session.out = out;
	snprintf(session.address, sizeof(session.address), "%s", address);
	snprintf(session.host, sizeof(session.host), "%s", address);
	*strrchr(session.host, ':') = '\0';
	if (getrandom(&session.nonce, sizeof(session.nonce), 0) != sizeof(session.nonce) ||
	    !perf_threads_init(&threads, o, o->threads)) {
		fprintf(stderr, "xport_perf: out of memory\n");
		return 1;
	}
	session.nonce |= 1; /* 0 is none */
	good = set_out(&threads) && perf_threads_run(&threads, lead_or_tell) && perf_out_end(out);
	for (int i = 0; i < threads.n; i++)
		perf_stream_close(&threads.members[i].stream);
	perf_threads_free(&threads);
	return good ? 0 : 1;
}
