/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_wire.c - the control messages of the two sides: JSON with the tag PERF_CONTROL, on a stream's first endpoint.
 * jansson parses them, and each member is checked for type and range before anything else uses it.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/perf_stream.h"
#include "tools/show.h"

/* ---- messages ---- */

static bool post_letter(struct perf_stream *l)
{
	struct xport_opt opt = {.size = sizeof(opt), .source = l->peers[0].ep};
	int r = xport_recv(l->x, l->letter, PERF_MESSAGE, PERF_CONTROL, PERF_CONTROL, &opt);

	l->letter_here = false;
	return r == XPORT_OK || perf_stream_library(l, r, "posting a receive");
}

bool perf_wire_listen(struct perf_stream *l)
{
	return post_letter(l);
}

static size_t write_reply(struct perf_stream *l, json_t *message)
{
	size_t n = message != NULL ? json_dumpb(message, l->reply, PERF_MESSAGE, JSON_COMPACT) : 0;

	json_decref(message);
	return n <= PERF_MESSAGE ? n : 0;
}

bool perf_wire_send(struct perf_stream *l, json_t *message)
{
	struct perf_token token = {&l->reply_open, 1};
	struct xport_opt opt = {.size = sizeof(opt), .context = &token};
	size_t n = write_reply(l, message);
	int r;

	if (n == 0)
		return perf_stream_fail(l, "out of memory for a message");
	while ((r = xport_send(l->peers[0].ep, l->reply, n, PERF_CONTROL, &opt)) == XPORT_ERR_AGAIN)
		if (!perf_stream_poll(l))
			return false;
	if (r != XPORT_OK)
		return perf_stream_library(l, r, "a message to the other side");
	l->reply_open = 1;
	return perf_stream_drain(l, &l->reply_open, 0);
}

/* What the other side says after a run of its own, or after it has looked at all data: that may last. */
static bool may_last(const char *member)
{
	static const char *const late[] = {"", "end", "done", "checked"};

	for (size_t i = 0; i < sizeof(late) / sizeof(late[0]); i++)
		if (strcmp(member, late[i]) == 0)
			return true;
	return false;
}

/* Texts of the other side's come to a terminal. */
static void clean(json_t *j)
{
	const char *name;
	json_t *member;
	char *text;
	size_t i;

	json_object_foreach(j, name, member) clean(member);
	json_array_foreach(j, i, member) clean(member);
	text = json_is_string(j) ? strdup(json_string_value(j)) : NULL;
	if (text == NULL)
		return;
	tool_clean(text);
	json_string_set(j, text);
	free(text);
}

json_t *perf_wire_expect(struct perf_stream *l, const char *member)
{
	const char *words;
	json_t *message;

	l->patient = may_last(member);
	l->idle = 0;
	while (!l->letter_here)
		if (!perf_stream_progress(l) || !perf_stream_replenish(l))
			return NULL;
	l->patient = false;
	message = json_loadb(l->letter, l->letter_len, JSON_REJECT_DUPLICATES, NULL);
	clean(message);
	words = json_string_value(json_object_get(message, "error"));
	if (words != NULL)
		perf_stream_fail(l, "the other side: %s", words);
	else if (!json_is_object(message) || (*member != '\0' && json_object_get(message, member) == NULL))
		perf_stream_fail(l, "the other side sent no \"%s\": check that it is xport_perf %s", member,
		                 xport_version());
	else if (l->ending || post_letter(l))
		return message;
	json_decref(message);
	return NULL;
}

/* ---- parting ---- */

bool perf_wire_goodbye(struct perf_stream *l)
{
	json_t *message;

	l->ending = true;
	if (!perf_wire_send(l, json_pack("{sb}", "bye", 1)))
		return false;
	if (!l->initiator)
		return true;
	message = perf_wire_expect(l, "bye");
	json_decref(message);
	return message != NULL;
}

/* The completions that come now are nobody's any more. */
void perf_wire_last_words(struct perf_stream *l)
{
	enum { LAST_MS = 200 };
	uint64_t until = perf_now() + LAST_MS * UINT64_C(1000000);
	size_t n;

	if (l->x == NULL || l->npeers == 0 || l->peers[0].ep == NULL || l->reply == NULL || l->reply_open > 0)
		return;
	n = write_reply(l, json_pack("{ss}", "error", l->text));
	if (n == 0 || xport_send(l->peers[0].ep, l->reply, n, PERF_CONTROL, NULL) != XPORT_OK)
		return;
	while (perf_now() < until)
		if (xport_wait(l->x, NULL, 0, LAST_MS / 4) < 0)
			return;
}

/* ---- parts of messages ---- */

json_t *perf_wire_counts(const struct perf_stream *l)
{
	json_t *list = json_array();

	for (int i = 0; i < l->npeers; i++)
		json_array_append_new(list, json_integer((json_int_t)l->peers[i].posted));
	return list;
}

bool perf_wire_read_counts(struct perf_stream *l, json_t *message, const char *member, uint64_t *counts)
{
	json_t *list = json_object_get(message, member);

	if (!json_is_array(list) || json_array_size(list) != (size_t)l->npeers)
		return perf_stream_fail(l, "the other side sent no list of %d numbers as \"%s\"", l->npeers, member);
	for (int i = 0; i < l->npeers; i++) {
		json_int_t n = json_integer_value(json_array_get(list, (size_t)i));

		if (n < 0)
			return perf_stream_fail(l, "the other side sent a negative number in \"%s\"", member);
		counts[i] = (uint64_t)n;
	}
	return true;
}

static json_t *key_in_hex(struct perf_stream *l)
{
	char key[PERF_KEY], hex[2 * PERF_KEY + 1];
	size_t len = sizeof(key);
	int r = xport_rkey_pack(l->mr, key, &len);

	if (r != XPORT_OK) {
		perf_stream_library(l, r, "the memory's key");
		return NULL;
	}
	for (size_t i = 0; i < len; i++)
		snprintf(hex + 2 * i, 3, "%02x", (unsigned char)key[i]);
	return json_pack("{ss%}", "key", hex, 2 * len);
}

static bool unpack_key(struct perf_stream *l, const char *hex)
{
	size_t len = hex != NULL ? strlen(hex) / 2 : 0;
	uint8_t key[PERF_KEY];

	if (len == 0 || len > sizeof(key) || strspn(hex, "0123456789abcdef") != 2 * len)
		return perf_stream_fail(l, "the other side sent no key to its memory");
	for (size_t i = 0; i < len; i++) {
		char digits[3] = {hex[2 * i], hex[2 * i + 1]};

		key[i] = (uint8_t)strtoul(digits, NULL, 16);
	}
	for (int i = 0; i < l->npeers; i++) {
		int r = xport_rkey_unpack(l->peers[i].ep, key, len, &l->peers[i].rkey);

		if (r != XPORT_OK)
			return perf_stream_library(l, r, "the key to the other side's memory");
	}
	return true;
}

/* Each tells the other its key. */
bool perf_wire_keys(struct perf_stream *l)
{
	json_t *mine = key_in_hex(l), *theirs;
	bool good;

	if (mine == NULL)
		return perf_stream_fail(l, "out of memory");
	if (!perf_wire_send(l, mine))
		return false;
	theirs = perf_wire_expect(l, "key");
	good = theirs != NULL && unpack_key(l, json_string_value(json_object_get(theirs, "key")));
	json_decref(theirs);
	return good;
}

/* ---- a run ---- */

json_t *perf_wire_run(const struct perf_run *run)
{
	return json_pack("{s{ss sI sI sI sI sI sI sI sI sI sb sb sb}}", "run", "test", run->test->name, "size",
	                 (json_int_t)run->size, "stride", (json_int_t)run->stride, "slots", (json_int_t)run->slots,
	                 "window", (json_int_t)run->window, "chunk", (json_int_t)run->chunk, "seed",
	                 (json_int_t)run->seed, "count", (json_int_t)run->count, "ns", (json_int_t)run->ns,
	                 "per_sample", (json_int_t)run->per_sample, "latency", run->latency, "both", run->both, "plant",
	                 run->plant);
}

/* What a run of the client's may ask of this side: its memory, and no more. */
static bool perf_wire_fits(const struct perf_stream *l, const json_int_t v[9])
{
	json_int_t size = v[0], stride = v[1], slots = v[2], window = v[3], chunk = v[4];

	for (int i = 0; i < 9; i++)
		if (v[i] < 0)
			return false;
	return slots > 0 && stride > 0 && size <= stride && window > 0 && window <= PERF_WINDOW && chunk > 0 &&
	       chunk <= window && slots <= PERF_WINDOW && (uint64_t)stride <= l->span &&
	       (uint64_t)slots * (uint64_t)l->npeers <= l->span / (uint64_t)stride;
}

/* And that the client's own options can say it, so that it ends. */
static bool sane(const struct perf_test *test, const json_int_t v[9], bool latency, bool both)
{
	uint64_t count = (uint64_t)v[6], ns = (uint64_t)v[7], per_sample = (uint64_t)v[8];

	return test != NULL && perf_test_takes(test, latency ? PERF_LATENCY : PERF_RATE, (uint64_t)v[0]) &&
	       !(latency && both) && per_sample > 0 && per_sample <= PERF_PER_SAMPLE && (count > 0) != (ns > 0) &&
	       count <= PERF_RUN_COUNT && ns <= PERF_RUN_NS;
}

bool perf_wire_read_run(struct perf_stream *l, json_t *message, struct perf_run *run)
{
	int latency = 0, both = 0, plant = 0;
	const char *name = NULL;
	json_int_t v[9];

	memset(run, 0, sizeof(*run));
	if (json_unpack(message, "{s{ss sI sI sI sI sI sI sI sI sI sb sb sb}}", "run", "test", &name, "size", &v[0],
	                "stride", &v[1], "slots", &v[2], "window", &v[3], "chunk", &v[4], "seed", &v[5], "count", &v[6],
	                "ns", &v[7], "per_sample", &v[8], "latency", &latency, "both", &both, "plant", &plant) != 0 ||
	    !perf_wire_fits(l, v) || !sane(perf_test_of(name), v, latency, both))
		return perf_stream_fail(l, "the other side asked for a run that this version does not support");
	*run = (struct perf_run){.test = perf_test_of(name),
	                         .size = (uint64_t)v[0],
	                         .stride = (uint64_t)v[1],
	                         .slots = (uint32_t)v[2],
	                         .window = (uint32_t)v[3],
	                         .chunk = (uint32_t)v[4],
	                         .seed = (uint64_t)v[5],
	                         .count = (uint64_t)v[6],
	                         .ns = (uint64_t)v[7],
	                         .per_sample = (uint32_t)v[8],
	                         .latency = latency,
	                         .both = both,
	                         .plant = plant};
	return true;
}
