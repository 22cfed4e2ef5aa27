/* SPDX-License-Identifier: BSD-3-Clause */
/* How a directory hears of changes in etcd: first the entries that are there, a page at a time, then the watch. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/clock.h"
#include "services/directory_etcd.h"
#include "services/last_error.h"

enum {
	PAGE_ENTRIES = 100,
	CROWD = 1024,
	WATCH_PAUSE_MS = 200,
	WATCH_DOUBLED = 5,
	WATCH_GOOD_MS = 10000,
	CONNECT_MS = 3000,
	SILENT_MS = 5000 /* that a watch may say nothing while it owes something */
};

bool svc_dir_etcd_crowded(const struct xport_directory *d)
{
	return d->notices >= CROWD;
}

void svc_dir_etcd_miss(struct xport_directory *d)
{
	svc_dir_user_forget_all(d);
	d->etcd->missed = true;
}

/* An entry was entered, replaced or removed. */
static void changed(struct xport_directory *d, struct svc_dir_message *m)
{
	m->request = 1; /* it counts until the application takes it */
	if (svc_dir_user_notice(d, m) != XPORT_OK)
		svc_dir_etcd_miss(d);
}

/* ---- what is there already ---- */

void svc_dir_etcd_list_from(struct svc_dir_etcd *s)
{
	free(s->list_from);
	s->list_from = NULL;
	s->list_len = 0;
	s->list_revision = 0;
	if (s->page_entries == 0)
		s->page_entries = PAGE_ENTRIES;
}

void svc_dir_etcd_list(struct svc_dir_etcd *s)
{
	svc_dir_etcd_watch_end(s);
	svc_dir_etcd_list_from(s);
	s->listing = true;
}

char *svc_dir_etcd_page_body(const struct svc_dir_etcd *s)
{
	const void *from = s->list_from != NULL ? (const void *)s->list_from : s->names;
	size_t len = s->list_from != NULL ? s->list_len : strlen(s->names);
	char *key = malloc(4 * (len / 3 + 2)), *body = NULL, end[SVC_DIR_ETCD_KEY_TEXT];

	if (key == NULL)
		return NULL;
	svc_base64_encode(from, len, key);
	svc_dir_etcd_end(s->names, end);
	body = svc_dir_etcd_body("{\"key\":\"%s\",\"range_end\":\"%s\",\"limit\":%u,%s\"revision\":\"%" PRId64 "\"}",
	                         key, end, s->page_entries, s->page_keys ? "\"keys_only\":true," : "",
	                         s->list_revision);
	free(key);
	return body;
}

bool svc_dir_etcd_page_less(struct svc_dir_etcd *s)
{
	if (!svc_etcd_too_long(s->etcd) || s->page_keys)
		return false;
	s->page_keys = s->page_entries == 1;
	s->page_entries = s->page_entries / 4 + (s->page_entries < 4);
	return true;
}

/* The next page begins behind this key. Any process may have put it. */
static int list_goes_on(struct svc_dir_etcd *s, const struct svc_json *kv)
{
	const char *text = svc_json_text(svc_json_member(kv, "key"));
	size_t size = text == NULL ? 0 : strlen(text), prefix_len = strlen(s->names), less;
	uint8_t *key = malloc(size + 1);
	long n = key == NULL || text == NULL ? -1 : svc_base64_decode(text, key, size);
	int order = 1;

	if (key == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_directory_watch", NULL, "out of memory");
	if (n >= 0 && s->list_from != NULL) {
		less = (size_t)n < s->list_len ? (size_t)n : s->list_len;
		order = memcmp(key, s->list_from, less);
		order = order == 0 ? (size_t)n >= s->list_len : order;
	}
	if (n < (long)prefix_len || memcmp(key, s->names, prefix_len) != 0 || order <= 0) {
		free(key);
		return svc_fail(XPORT_ERR_PROTOCOL, "xport_directory_watch", NULL,
		                "etcd's list of entries is not in order");
	}
	free(s->list_from);
	s->list_from = key;
	key[n] = 0; /* the least key behind it */
	s->list_len = (size_t)n + 1;
	return XPORT_OK;
}

int svc_dir_etcd_page(struct xport_directory *d, const struct svc_json *answer)
{
	struct svc_dir_etcd *s = d->etcd;
	const struct svc_json *kvs = svc_json_member(answer, "kvs");
	size_t n = svc_json_size(kvs);
	bool last = n < s->page_entries;
	struct svc_dir_found f;
	int r;

	if (s->list_revision == 0)
		s->list_revision = svc_dir_etcd_revision(answer);
	if (s->list_revision == 0)
		return svc_fail(XPORT_ERR_PROTOCOL, "xport_directory_watch", NULL,
		                "etcd's list of entries has no revision");
	r = n == 0 ? XPORT_OK : list_goes_on(s, svc_json_at(kvs, n - 1));
	if (r != XPORT_OK)
		return r;
	for (size_t i = 0; i < n; i++) {
		if (svc_dir_etcd_read(s->names, svc_json_at(kvs, i), &f))
			changed(d, &f.m);
		else
			s->strange++;
	}
	s->page_keys = false;
	s->page_entries = 2 * s->page_entries < PAGE_ENTRIES ? 2 * s->page_entries : PAGE_ENTRIES;
	if (last) {
		s->listing = false;
		s->revision = s->list_revision;
		s->watch_at = 0;
		svc_dir_etcd_list_from(s);
	}
	return XPORT_OK;
}

/* ---- the watch ---- */

static void watch_event(struct xport_directory *d, const char *prefix, const struct svc_json *event)
{
	const struct svc_json *kv = svc_json_member(event, "kv");
	const char *type = svc_json_text(svc_json_member(event, "type"));
	struct svc_dir_found f;

	if (type == NULL || strcmp(type, "DELETE") != 0) { /* PUT is left out */
		if (!svc_dir_etcd_read(prefix, kv, &f)) {
			d->etcd->strange++;
			return;
		}
		d->etcd->heard = true;
		changed(d, &f.m);
		return;
	}
	memset(&f.m, 0, sizeof(f.m));
	f.m.type = SVC_DIR_GONE;
	f.m.name = f.name;
	f.m.name_len = svc_dir_etcd_read_key(prefix, kv, f.name);
	if (f.m.name_len > 0)
		changed(d, &f.m);
}

/* OK: it is a message, whose events are to be handed over. */
static int watch_message(struct xport_directory *d, const struct svc_json *answer)
{
	struct svc_dir_etcd *s = d->etcd;
	const struct svc_json *result = svc_json_member(answer, "result");
	const char *reason = svc_json_text(svc_json_member(result, "cancel_reason"));
	int64_t compacted = 0;

	if (result == NULL)
		return svc_fail(XPORT_ERR_PROTOCOL, "xport_directory",
		                "name the client URLs of an etcd of version 3.4 or later",
		                "etcd sent something that is no message of a watch");
	svc_json_number(svc_json_member(result, "compact_revision"), &compacted);
	if (compacted > 0) {
		svc_dir_etcd_miss(d);
		s->revision = -1;
		return XPORT_ERR_AGAIN;
	}
	if (svc_json_member(result, "canceled") != NULL) {
		/* A simple token ends with the member that gave it, and a watch does not say so. */
		svc_etcd_logout(s->etcd);
		return svc_fail(XPORT_ERR_AUTH, "xport_directory",
		                "a user whose role may read keys that begin with xport/directory/",
		                "etcd has ended the watch: %.100s", reason == NULL ? "no reason is given" : reason);
	}
	s->watch_up = true;
	s->watch_why[0] = '\0';
	if (svc_json_member(result, "created") == NULL)
		s->watch_fails = 0;
	return XPORT_OK;
}

/* Hands over what the application has room for. */
static void watch_events(struct xport_directory *d)
{
	struct svc_dir_etcd *s = d->etcd;
	const struct svc_json *result = svc_json_member(s->message, "result"),
			      *events = svc_json_member(result, "events");
	size_t n = svc_json_size(events);
	int64_t revision = 0;

	for (; s->message_at < n && !svc_dir_etcd_crowded(d) && !s->missed; s->message_at++) {
		const struct svc_json *event = svc_json_at(events, s->message_at);

		watch_event(d, d->watching ? s->names : s->all, event);
		revision = svc_dir_etcd_mod(svc_json_member(event, "kv"));
		/* More of this revision may follow: here, or in the next fragment. */
		if (revision - 1 > s->revision)
			s->revision = revision - 1;
	}
	if (s->message_at < n)
		return;
	if (n == 0 && svc_json_member(result, "created") == NULL)
		revision = svc_dir_etcd_revision(result); /* it says how far the watch has come */
	if (revision > s->revision && svc_json_member(result, "fragment") == NULL)
		s->revision = revision;
	svc_json_free(s->message);
	s->message = NULL;
}

void svc_dir_etcd_watch_end(struct svc_dir_etcd *s)
{
	svc_etcd_watch_end(s->async);
	svc_json_free(s->message);
	s->message = NULL;
	s->watch_up = false;
}

static int watch_begin(struct xport_directory *d)
{
	struct svc_dir_etcd *s = d->etcd;
	const char *prefix = d->watching ? s->names : s->all;
	char key[SVC_DIR_ETCD_KEY_TEXT], end[SVC_DIR_ETCD_KEY_TEXT];

	s->watch_up = false;
	s->watch_began = s->heard_at = svc_now_ms();
	s->owed_at = 0; /* what the one before owed is not its own debt */
	svc_dir_etcd_key(prefix, NULL, 0, key);
	svc_dir_etcd_end(prefix, end);
	return svc_etcd_watch(
		s->async,
		svc_dir_etcd_body(
			"{\"create_request\":{\"key\":\"%s\",\"range_end\":\"%s\",\"start_revision\":\"%" PRId64
			"\",\"progress_notify\":true,\"fragment\":true}}",
			key, end, s->revision + 1),
		CONNECT_MS);
}

static void missed_event(struct xport_directory *d)
{
	struct svc_dir_etcd *s = d->etcd;

	if (s->missed && svc_dir_event(d, XPORT_DIRECTORY_MISSED, XPORT_OK, NULL, 1) != NULL)
		s->missed = false;
}

/* The watch has a pause of its own: requests go on. */
static void watch_failed(struct xport_directory *d, int r)
{
	struct svc_dir_etcd *s = d->etcd;
	int64_t now = svc_now_ms();

	svc_dir_etcd_watch_end(s);
	if (r == XPORT_ERR_PROTOCOL && svc_etcd_too_long(s->etcd))
		svc_dir_etcd_anew(d); /* what is there now has shorter answers */
	if (now - s->watch_began > WATCH_GOOD_MS)
		s->watch_fails = 0;
	s->watch_at =
		now + ((int64_t)WATCH_PAUSE_MS << (s->watch_fails < WATCH_DOUBLED ? s->watch_fails : WATCH_DOUBLED));
	if (r == XPORT_ERR_AGAIN) /* the next one is at another member, or with another token */
		return;
	s->watch_fails++;
	svc_dir_etcd_keep_why(s->watch_why, r);
}

/*
 * Whether the watch is silent, though etcd was to begin it, or has shown a change that it owes.  A proxy between may keep the
 * connection when it has lost etcd.  That etcd has a higher revision tells nothing: it counts changes of other keys, too.
 */
static bool watch_silent(const struct xport_directory *d)
{
	struct svc_dir_etcd *s = d->etcd;
	int64_t now = svc_now_ms();
	bool owes = !s->watch_up || (d->watching && s->written > s->revision);

	if (!owes || s->behind || s->missed || !svc_etcd_watching(s->async)) {
		s->owed_at = 0;
		return false;
	}
	/* Between two calls that are long apart nobody read what it said. */
	if (s->owed_at == 0 || now > s->looked_at + SILENT_MS)
		s->owed_at = now;
	s->looked_at = now;
	return now > s->owed_at + SILENT_MS && now > s->heard_at + SILENT_MS;
}

void svc_dir_etcd_watch(struct xport_directory *d)
{
	struct svc_dir_etcd *s = d->etcd;
	int r = XPORT_OK;
	bool hold;

	missed_event(d);
	if (svc_etcd_watching(s->async) && svc_etcd_watch_astray(s->async))
		svc_dir_etcd_watch_end(s);
	while (r == XPORT_OK && (s->message != NULL || svc_etcd_watching(s->async)) && !svc_dir_etcd_crowded(d) &&
	       !s->missed) {
		if (s->message == NULL) {
			r = svc_etcd_watch_next(s->async, &s->message);
			s->message_at = 0;
			s->heard_at = r == XPORT_OK ? svc_now_ms() : s->heard_at;
			if (r == XPORT_OK)
				r = watch_message(d, s->message);
		}
		if (r == XPORT_OK)
			watch_events(d);
	}
	if (r == XPORT_OK && s->message == NULL && s->revision >= 0 && !s->listing && !svc_etcd_watching(s->async) &&
	    !svc_etcd_login_needed(s->etcd) && svc_now_ms() >= s->watch_at)
		r = watch_begin(d);
	hold = s->message != NULL || svc_dir_etcd_crowded(d);
	s->behind = hold || (s->behind && (r != SVC_ETCD_WAIT || svc_etcd_watch_held(s->async)));
	svc_etcd_watch_hold(s->async, hold);
	if (watch_silent(d))
		r = svc_fail(XPORT_ERR_TIMEOUT, "xport_directory",
		             "look for a proxy before etcd that cuts long answers",
		             "etcd's watch brings nothing, and begins again");
	if (r != XPORT_OK && r != SVC_ETCD_WAIT)
		watch_failed(d, r);
}
