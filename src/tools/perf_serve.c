/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_serve.c - the server: listens, accepts the streams of a client, and does in each run what the client requests. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/perf_threads.h"

enum { ACCEPT_MS = 15000, LOOK_MS = 1000 };

static struct session {
	xport_listener *listeners[PERF_THREADS];
	char name[PERF_ADDRESS], host[PERF_ADDRESS];
	uint64_t nonce; /* the same in all of the client's connections; 0: not known yet */
	struct perf_options theirs;
	uint64_t span;
	bool listens; /* whatever happens then is the client's */
} session;

/* ---- connections ---- */

static bool listen_on(struct perf_stream *l, const char *address)
{
	xport_listener **listener = &session.listeners[l->index];
	int r = xport_listen(l->x, address, NULL, listener);

	return r == XPORT_OK || perf_stream_library(l, r, "listening on %s", address);
}

static int port_of(struct perf_stream *l)
{
	char name[PERF_ADDRESS];

	if (xport_listener_name(session.listeners[l->index], name, sizeof(name)) != XPORT_OK)
		return 0;
	return atoi(strrchr(name, ':') + 1);
}

/* The number of the client's endpoint; -1: this is somebody else. */
static int whose(struct perf_stream *l, xport_ep *ep)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	char hello[64] = "", again[64];
	unsigned long long nonce;
	int number;

	if (xport_ep_query(ep, &info) != XPORT_OK || info.private_len >= sizeof(hello))
		return -1;
	memcpy(hello, info.private_data, info.private_len);
	if (sscanf(hello, "xport_perf %llx %d", &nonce, &number) != 2 || nonce == 0 || number < 0 ||
	    number >= l->npeers || l->peers[number].ep != NULL)
		return -1;
	/* Nothing but what a client of this kind writes. */
	snprintf(again, sizeof(again), "xport_perf %016llx %d", nonce, number);
	if (strlen(again) != info.private_len || strcmp(again, hello) != 0)
		return -1;
	if (session.nonce == 0)
		session.nonce = nonce;
	return session.nonce == nonce ? number : -1;
}

/* for_ever: a client may come as late as it likes. */
static bool accept_one(struct perf_stream *l, bool for_ever)
{
	xport_ep *ep;
	int number, r;

	do {
		do
			r = xport_accept(session.listeners[l->index], for_ever ? LOOK_MS : ACCEPT_MS, &ep);
		while (for_ever && r == XPORT_ERR_TIMEOUT);
		if (r != XPORT_OK)
			return perf_stream_library(l, r, "waiting for the client to connect");
		number = whose(l, ep);
		if (number < 0)
			xport_ep_destroy(ep);
	} while (number < 0);
	l->peers[number].ep = ep;
	return true;
}

static bool accept_all(struct perf_stream *l)
{
	for (int i = l->index == 0 ? 1 : 0; i < l->npeers; i++)
		if (!accept_one(l, false))
			return false;
	xport_listener_close(session.listeners[l->index]);
	session.listeners[l->index] = NULL;
	return l->index == 0 || perf_wire_listen(l);
}

/* ---- the client's wishes ---- */

static bool read_hello(struct perf_stream *l, json_t *message)
{
	struct perf_options *o = &session.theirs;
	int format = 0, registered = 0;
	const char *version = NULL;
	json_int_t span = 0;

	if (json_unpack(message, "{s{si ss si si sI sb}}", "hello", "format", &format, "version", &version, "threads",
	                &o->threads, "endpoints", &o->endpoints, "span", &span, "registered", &registered) != 0)
		return perf_stream_fail(l, "this client does not use the protocol of xport_perf %s", xport_version());
	if (format != PERF_FORMAT)
		return perf_stream_fail(l, "the client is xport_perf %s, this is %s: use the same on both sides",
		                        version, xport_version());
	if (o->threads < 1 || o->threads > PERF_THREADS || o->endpoints < 1 || o->endpoints > PERF_ENDPOINTS ||
	    span < 1 || span > (INT64_MAX >> 8))
		return perf_stream_fail(l, "the client's request is too large: %d threads, %d endpoints, %lld bytes",
		                        o->threads, o->endpoints, (long long)span);
	o->memory = registered ? PERF_REGISTERED : PERF_ALLOCATED;
	session.span = (uint64_t)span;
	return true;
}

static bool perf_serve_open_stream(struct perf_member *m)
{
	const struct perf_options *o = m->threads->options;

	return perf_stream_open(&m->stream, o, (int)(m - m->threads->members), &m->threads->stop);
}

/* Opens what the client will connect to, and tells where that is. */
static bool welcome(struct perf_threads *threads)
{
	struct perf_stream *first = &threads->members[0].stream;
	char address[PERF_ADDRESS + 8];
	json_t *ports = json_array();

	snprintf(address, sizeof(address), "%s:0", session.host);
	for (int i = 0; i < threads->n; i++) {
		struct perf_stream *l = &threads->members[i].stream;

		if (i > 0 && (!perf_serve_open_stream(&threads->members[i]) || !listen_on(l, address))) {
			json_decref(ports);
			return perf_stream_fail(first, "%s", l->text);
		}
		json_array_append_new(ports, json_integer(port_of(l)));
	}
	return perf_wire_send(first, json_pack("{s{so so}}", "welcome", "ports", ports, "setup",
	                                       perf_setup(first->x, first->peers[0].ep, threads->options, threads->n)));
}

/* ---- a run ---- */

static bool perf_serve_say(struct perf_stream *l, const char *word)
{
	return perf_wire_send(l, json_pack("{sb}", word, 1));
}

static bool perf_serve_go(struct perf_stream *l)
{
	struct perf_taken t = {.latency = NULL};
	json_t *message = perf_wire_expect(l, "go");

	json_decref(message);
	return message != NULL && perf_initiate(l, &t);
}

/* Does its part until the client says how much it has done. */
static bool take_part(struct perf_stream *l, uint64_t *theirs)
{
	bool pingpong = l->run.latency && l->run.test->timing == PERF_HALF_TRIP;
	uint64_t answered = 0;
	json_t *end;
	bool good;

	if (l->run.both && !perf_serve_go(l))
		return false;
	l->patient = true;
	while (!l->letter_here)
		if (pingpong ? !perf_respond(l, &answered) || !perf_stream_watch(l)
		             : !perf_stream_progress(l) || !perf_stream_replenish(l))
			return false;
	end = perf_wire_expect(l, "end");
	good = end != NULL && perf_wire_read_counts(l, end, "end", theirs);
	json_decref(end);
	return good;
}

static bool all_here(struct perf_stream *l, const uint64_t *theirs)
{
	uint64_t all = 0;

	for (int i = 0; i < l->npeers; i++)
		all += theirs[i];
	return l->run.test->proof != PERF_BY_TARGET || perf_stream_await(l, all);
}

/* What came, and what this side fetched itself. */
static bool perf_serve_check(struct perf_stream *l, const uint64_t *theirs)
{
	if (l->run.seed == 0)
		return true;
	if (!l->run.test->gets && !perf_verify_arrived(l, theirs))
		return false;
	return !l->run.both || perf_verify_fetched(l);
}

static bool perf_serve_one_run(struct perf_stream *l, json_t *message)
{
	uint64_t theirs[PERF_ENDPOINTS];
	struct perf_run run;

	return perf_wire_read_run(l, message, &run) && perf_stream_begin(l, &run) && perf_serve_say(l, "ready") &&
	       take_part(l, theirs) && all_here(l, theirs) &&
	       perf_wire_send(l, json_pack("{so}", "done", perf_wire_counts(l))) && perf_serve_check(l, theirs) &&
	       perf_stream_end(l) && perf_serve_say(l, "checked");
}

/* ---- a thread ---- */

static bool perf_serve_follow(struct perf_stream *l)
{
	bool more = true, good;
	json_t *message;

	if (!accept_all(l) || !perf_stream_memory(l, session.span, session.theirs.memory) || !perf_wire_keys(l))
		return false;
	while (more) {
		message = perf_wire_expect(l, "");
		more = message != NULL && json_object_get(message, "bye") == NULL;
		good = message != NULL && (more ? perf_serve_one_run(l, message) : perf_wire_goodbye(l));
		json_decref(message);
		if (!good)
			return false;
	}
	return true;
}

static bool follow_or_tell(struct perf_member *m)
{
	const struct perf_options *o = m->threads->options;
	int index = m->stream.index, core = perf_core_of(o, true, index);
	bool good;

	if (perf_pin(core))
		good = perf_serve_follow(&m->stream);
	else
		good = perf_stream_fail(&m->stream, "cannot bind thread %d to core %d", index, core);
	if (!good)
		perf_wire_last_words(&m->stream);
	return good;
}

/* ---- the whole ---- */

static void close_all(struct perf_threads *threads)
{
	for (int i = 0; i < threads->n; i++) {
		xport_listener_close(session.listeners[i]);
		session.listeners[i] = NULL;
		perf_stream_close(&threads->members[i].stream);
	}
	perf_threads_free(threads);
}

static bool tell_name(struct perf_stream *l, int told)
{
	struct xport_info info = {.size = sizeof(info)};

	if (xport_listener_name(session.listeners[0], session.name, sizeof(session.name)) != XPORT_OK ||
	    xport_query(l->x, &info) != XPORT_OK)
		return perf_stream_fail(l, "the listener has no name");
	if (told >= 0)
		return write(told, session.name, sizeof(session.name)) == sizeof(session.name) ||
		       perf_stream_fail(l, "cannot send the listening address to the client");
	printf("xport_perf: listening on %s, over %s:%s\n", session.name, info.backend, info.provider);
	return fflush(stdout) == 0;
}

/* Until a client is there, with its wishes. */
static bool await_client(struct perf_stream *l, const struct perf_options *o, int told)
{
	json_t *hello;
	bool good;

	session.nonce = 0;
	session.theirs = *o;
	snprintf(session.host, sizeof(session.host), "%s", o->address);
	*strrchr(session.host, ':') = '\0';
	if (!perf_stream_endpoints(l, 1) || !listen_on(l, o->address) || !tell_name(l, told))
		return false;
	session.listens = true;
	if (!accept_one(l, told < 0) || !perf_wire_listen(l))
		return false;
	hello = perf_wire_expect(l, "hello");
	good = hello != NULL && read_hello(l, hello);
	json_decref(hello);
	return good;
}

/* As many streams and endpoints as the client wants. */
static bool perf_serve_grow(struct perf_threads *threads, int n, int endpoints)
{
	struct perf_member *members = calloc((size_t)n, sizeof(*members));

	if (members == NULL)
		return perf_stream_fail(&threads->members[0].stream, "out of memory");
	members[0] = threads->members[0];
	free(threads->members);
	threads->members = members;
	threads->n = n;
	for (int i = 0; i < n; i++) {
		members[i].threads = threads;
		if (!perf_stream_endpoints(&members[i].stream, endpoints))
			return perf_stream_fail(&members[0].stream, "%s", members[i].stream.text);
	}
	return true;
}

static bool perf_serve_serve(const struct perf_options *o, int told)
{
	struct perf_threads threads;
	struct perf_stream *l;
	bool good;

	if (!perf_threads_init(&threads, o, 1)) {
		fprintf(stderr, "xport_perf: out of memory\n");
		return false;
	}
	good = perf_serve_open_stream(&threads.members[0]) && await_client(&threads.members[0].stream, o, told) &&
	       perf_serve_grow(&threads, session.theirs.threads, session.theirs.endpoints) && welcome(&threads);
	if (good) {
		good = perf_threads_run(&threads, follow_or_tell);
	} else {
		l = &threads.members[0].stream;
		perf_wire_last_words(l);
		perf_stream_complain(l);
	}
	close_all(&threads);
	return good;
}

int perf_server(const struct perf_options *o, int told)
{
	bool good;

	do {
		session.listens = false;
		good = perf_serve_serve(o, told);
	} while (o->keep && session.listens);
	return good ? 0 : 1;
}
