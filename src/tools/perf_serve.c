/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_serve.c - the server: listens, lets a client's lanes connect, and does in each run what the client asks for. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/perf_crew.h"

enum { ACCEPT_MS = 15000, LOOK_MS = 1000 };

static struct session {
	xport_listener *listeners[PERF_THREADS];
	char name[PERF_ADDRESS], host[PERF_ADDRESS];
	uint64_t nonce; /* the same in all of the client's connections; 0: there is none yet */
	struct perf_options theirs;
	uint64_t span;
	bool listens; /* whatever happens then is the client's */
} session;

/* ---- connections ---- */

static bool listen_on(struct perf_lane *l, const char *address)
{
	xport_listener **listener = &session.listeners[l->index];
	int r = xport_listen(l->x, address, NULL, listener);

	return r == XPORT_OK || perf_lane_library(l, r, "listening on %s", address);
}

static int port_of(struct perf_lane *l)
{
	char name[PERF_ADDRESS];

	if (xport_listener_name(session.listeners[l->index], name, sizeof(name)) != XPORT_OK)
		return 0;
	return atoi(strrchr(name, ':') + 1);
}

/* The number of the client's endpoint; -1: this is somebody else. */
static int whose(struct perf_lane *l, xport_ep *ep)
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
static bool accept_one(struct perf_lane *l, bool for_ever)
{
	xport_ep *ep;
	int number, r;

	do {
		do
			r = xport_accept(session.listeners[l->index], for_ever ? LOOK_MS : ACCEPT_MS, &ep);
		while (for_ever && r == XPORT_ERR_TIMEOUT);
		if (r != XPORT_OK)
			return perf_lane_library(l, r, "waiting for the client to connect");
		number = whose(l, ep);
		if (number < 0)
			xport_ep_destroy(ep);
	} while (number < 0);
	l->peers[number].ep = ep;
	return true;
}

static bool accept_all(struct perf_lane *l)
{
	for (int i = l->index == 0 ? 1 : 0; i < l->npeers; i++)
		if (!accept_one(l, false))
			return false;
	xport_listener_close(session.listeners[l->index]);
	session.listeners[l->index] = NULL;
	return l->index == 0 || perf_wire_listen(l);
}

/* ---- the client's wishes ---- */

static bool read_hello(struct perf_lane *l, json_t *message)
{
	struct perf_options *o = &session.theirs;
	int format = 0, registered = 0;
	const char *version = NULL;
	json_int_t span = 0;

	if (json_unpack(message, "{s{si ss si si sI sb}}", "hello", "format", &format, "version", &version, "threads",
	                &o->threads, "endpoints", &o->endpoints, "span", &span, "registered", &registered) != 0)
		return perf_lane_fail(l, "this client does not speak as xport_perf %s does", xport_version());
	if (format != PERF_FORMAT)
		return perf_lane_fail(l, "the client is xport_perf %s, this is %s: use the same on both sides", version,
		                      xport_version());
	if (o->threads < 1 || o->threads > PERF_THREADS || o->endpoints < 1 || o->endpoints > PERF_ENDPOINTS ||
	    span < 1 || span > (INT64_MAX >> 8))
		return perf_lane_fail(l, "the client asks for %d threads, %d endpoints, %lld bytes: that is too much",
		                      o->threads, o->endpoints, (long long)span);
	o->registered = registered;
	session.span = (uint64_t)span;
	return true;
}

static bool open_lane(struct perf_member *m)
{
	const struct perf_options *o = m->crew->options;

	return perf_lane_open(&m->lane, o, (int)(m - m->crew->members), &m->crew->stop);
}

/* Opens what the client will connect to, and tells where that is. */
static bool welcome(struct perf_crew *crew)
{
	struct perf_lane *first = &crew->members[0].lane;
	char address[PERF_ADDRESS + 8];
	json_t *ports = json_array();

	snprintf(address, sizeof(address), "%s:0", session.host);
	for (int i = 0; i < crew->n; i++) {
		struct perf_lane *l = &crew->members[i].lane;

		if (i > 0 && (!open_lane(&crew->members[i]) || !listen_on(l, address))) {
			json_decref(ports);
			return perf_lane_fail(first, "%s", l->text);
		}
		json_array_append_new(ports, json_integer(port_of(l)));
	}
	return perf_wire_send(first, json_pack("{s{so so}}", "welcome", "ports", ports, "setup",
	                                       perf_setup(first->x, crew->options, crew->n)));
}

/* ---- a run ---- */

static bool say(struct perf_lane *l, const char *word)
{
	return perf_wire_send(l, json_pack("{sb}", word, 1));
}

static bool go(struct perf_lane *l)
{
	struct perf_taken t = {.latency = NULL};
	json_t *message = perf_wire_expect(l, "go");

	json_decref(message);
	return message != NULL && perf_initiate(l, &t);
}

/* Does its part until the client says how much it has done. */
static bool take_part(struct perf_lane *l, uint64_t *theirs)
{
	bool pingpong = l->run.latency && l->run.test->timing == PERF_HALF_TRIP;
	uint64_t answered = 0;
	json_t *end;
	bool good;

	if (l->run.both && !go(l))
		return false;
	l->patient = true;
	while (!l->letter_here)
		if (pingpong ? !perf_lane_watch(l) || !perf_respond(l, &answered)
		             : !perf_lane_progress(l) || !perf_lane_replenish(l))
			return false;
	end = perf_wire_expect(l, "end");
	good = end != NULL && perf_wire_read_counts(l, end, "end", theirs);
	json_decref(end);
	return good;
}

static bool all_here(struct perf_lane *l, const uint64_t *theirs)
{
	uint64_t all = 0;

	for (int i = 0; i < l->npeers; i++)
		all += theirs[i];
	return l->run.test->proof != PERF_BY_TARGET || perf_lane_await(l, all);
}

/* What came, and what this side fetched itself. */
static bool check(struct perf_lane *l, const uint64_t *theirs)
{
	if (l->run.seed == 0)
		return true;
	if (!l->run.test->gets && !perf_verify_arrived(l, theirs))
		return false;
	return !l->run.both || perf_verify_fetched(l);
}

static bool one_run(struct perf_lane *l, json_t *message)
{
	uint64_t theirs[PERF_ENDPOINTS];
	struct perf_run run;

	return perf_wire_read_run(l, message, &run) && perf_lane_begin(l, &run) && say(l, "ready") &&
	       take_part(l, theirs) && all_here(l, theirs) &&
	       perf_wire_send(l, json_pack("{so}", "done", perf_wire_counts(l))) && check(l, theirs) &&
	       perf_lane_end(l) && say(l, "checked");
}

/* ---- a thread ---- */

static bool follow(struct perf_lane *l)
{
	bool more = true, good;
	json_t *message;

	if (!accept_all(l) || !perf_lane_memory(l, session.span, session.theirs.registered) || !perf_wire_keys(l))
		return false;
	while (more) {
		message = perf_wire_expect(l, "");
		more = message != NULL && json_object_get(message, "bye") == NULL;
		good = message != NULL && (more ? one_run(l, message) : perf_wire_goodbye(l));
		json_decref(message);
		if (!good)
			return false;
	}
	return true;
}

static bool follow_or_tell(struct perf_member *m)
{
	const struct perf_options *o = m->crew->options;
	int index = m->lane.index, core = perf_core_of(o, true, index);
	bool good;

	if (perf_pin(core))
		good = follow(&m->lane);
	else
		good = perf_lane_fail(&m->lane, "thread %d cannot be bound to core %d", index, core);
	if (!good)
		perf_wire_last_words(&m->lane);
	return good;
}

/* ---- the whole ---- */

static void close_all(struct perf_crew *crew)
{
	for (int i = 0; i < crew->n; i++) {
		xport_listener_close(session.listeners[i]);
		session.listeners[i] = NULL;
		perf_lane_close(&crew->members[i].lane);
	}
	perf_crew_free(crew);
}

static bool tell_name(struct perf_lane *l, int told)
{
	struct xport_info info = {.size = sizeof(info)};

	if (xport_listener_name(session.listeners[0], session.name, sizeof(session.name)) != XPORT_OK ||
	    xport_query(l->x, &info) != XPORT_OK)
		return perf_lane_fail(l, "the listener has no name");
	if (told >= 0)
		return write(told, session.name, sizeof(session.name)) == sizeof(session.name) ||
		       perf_lane_fail(l, "the client is not told where to connect");
	printf("xport_perf: listening on %s, over %s:%s\n", session.name, info.backend, info.provider);
	return fflush(stdout) == 0;
}

/* Until a client is there, with its wishes. */
static bool await_client(struct perf_lane *l, const struct perf_options *o, int told)
{
	json_t *hello;
	bool good;

	session.nonce = 0;
	session.theirs = *o;
	snprintf(session.host, sizeof(session.host), "%s", o->address);
	*strrchr(session.host, ':') = '\0';
	if (!perf_lane_endpoints(l, 1) || !listen_on(l, o->address) || !tell_name(l, told))
		return false;
	session.listens = true;
	if (!accept_one(l, told < 0) || !perf_wire_listen(l))
		return false;
	hello = perf_wire_expect(l, "hello");
	good = hello != NULL && read_hello(l, hello);
	json_decref(hello);
	return good;
}

/* As many lanes and endpoints as the client wants. */
static bool grow(struct perf_crew *crew, int threads, int endpoints)
{
	struct perf_member *members = calloc((size_t)threads, sizeof(*members));

	if (members == NULL)
		return perf_lane_fail(&crew->members[0].lane, "out of memory");
	members[0] = crew->members[0];
	free(crew->members);
	crew->members = members;
	crew->n = threads;
	for (int i = 0; i < threads; i++) {
		members[i].crew = crew;
		if (!perf_lane_endpoints(&members[i].lane, endpoints))
			return perf_lane_fail(&members[0].lane, "%s", members[i].lane.text);
	}
	return true;
}

static bool serve(const struct perf_options *o, int told)
{
	struct perf_crew crew;
	struct perf_lane *l;
	bool good;

	if (!perf_crew_init(&crew, o, 1)) {
		fprintf(stderr, "xport_perf: out of memory\n");
		return false;
	}
	good = open_lane(&crew.members[0]) && await_client(&crew.members[0].lane, o, told) &&
	       grow(&crew, session.theirs.threads, session.theirs.endpoints) && welcome(&crew);
	if (good) {
		good = perf_crew_run(&crew, follow_or_tell);
	} else {
		l = &crew.members[0].lane;
		perf_wire_last_words(l);
		fprintf(stderr, "xport_perf: %s\n", l->text);
	}
	close_all(&crew);
	return good;
}

int perf_server(const struct perf_options *o, int told)
{
	bool good;

	do {
		session.listens = false;
		good = serve(o, told);
	} while (o->keep && session.listens);
	return good ? 0 : 1;
}
