/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/etcd_async.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/clock.h"
#include "services/etcd_impl.h"
#include "services/last_error.h"

/* A request in flight, or a watch. */
struct slot {
	struct svc_http *http;
	const char *path;
	char *body; /* NULL: none */
	int64_t until;
	int member; /* that it went to */
	char url[SVC_ETCD_URL_BYTES];
};

struct svc_etcd_async {
	struct svc_etcd *etcd;
	struct svc_http_set *set;
	struct slot call, watch;
	bool login; /* the request in flight is the one for a token; `call` follows it */
	char secret[SVC_ETCD_LOGIN_BYTES];
};

static int async_memory(const struct svc_etcd_async *a)
{
	return svc_fail(XPORT_ERR_NO_MEMORY, a->etcd->operation, NULL, "out of memory");
}

int svc_etcd_async_open(struct svc_etcd *e, struct svc_etcd_async **async, const char *operation)
{
	struct svc_etcd_async *a = calloc(1, sizeof(*a));
	int r;

	if (a == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	a->etcd = e;
	r = svc_http_set_open(&a->set, operation);
	if (r == XPORT_OK)
		r = svc_http_open(&e->tls, "etcd", &a->call.http, operation);
	if (r == XPORT_OK)
		r = svc_http_open(&e->tls, "etcd", &a->watch.http, operation);
	if (r != XPORT_OK) {
		svc_etcd_async_close(a);
		return r;
	}
	*async = a;
	return XPORT_OK;
}

static void slot_clear(struct svc_etcd_async *a, struct slot *s)
{
	if (s->body == NULL)
		return;
	svc_http_cancel(a->set, s->http);
	free(s->body);
	s->body = NULL;
}

void svc_etcd_async_close(struct svc_etcd_async *a)
{
	if (a == NULL)
		return;
	slot_clear(a, &a->call);
	slot_clear(a, &a->watch);
	if (a->call.http != NULL)
		svc_http_close(a->call.http);
	if (a->watch.http != NULL)
		svc_http_close(a->watch.http);
	svc_http_set_close(a->set);
	explicit_bzero(a->secret, sizeof(a->secret));
	free(a);
}

void svc_etcd_async_run(struct svc_etcd_async *a)
{
	svc_http_run(a->set);
}

/* Sends the request of a slot, or a login for it, within the time limit of the slot. */
static int slot_send(struct svc_etcd_async *a, struct slot *s, const char *path, const char *body, bool stream)
{
	struct svc_etcd *e = a->etcd;
	int64_t left = s->until - svc_now_ms();

	s->member = e->now;
	snprintf(s->url, sizeof(s->url), "%s%s", e->url[e->now], path);
	if (svc_http_start(a->set, s->http, s->url, body, e->token, left < 1 ? 1 : (int)left, stream))
		return XPORT_OK;
	slot_clear(a, s);
	return async_memory(a);
}

/* ---- requests ---- */

static int call_send(struct svc_etcd_async *a)
{
	struct svc_etcd *e = a->etcd;
	int r = XPORT_OK;

	a->login = svc_etcd_login_needed(e);
	if (!a->login)
		return slot_send(a, &a->call, a->call.path, a->call.body, false);
	r = svc_etcd_login_body(e, a->secret, sizeof(a->secret));
	if (r == XPORT_OK)
		return slot_send(a, &a->call, SVC_ETCD_LOGIN, a->secret, false);
	slot_clear(a, &a->call);
	return r;
}

int svc_etcd_start(struct svc_etcd_async *a, const char *path, char *body, int timeout_ms)
{
	if (body == NULL)
		return async_memory(a);
	a->call.path = path;
	a->call.body = body;
	a->call.until = svc_now_ms() + timeout_ms; /* with the login */
	return call_send(a);
}

bool svc_etcd_in_flight(const struct svc_etcd_async *a)
{
	return a->call.body != NULL;
}

int svc_etcd_outcome(struct svc_etcd_async *a, struct svc_json **answer)
{
	struct svc_http_answer said;
	int r;

	*answer = NULL;
	if (!svc_http_ended(a->call.http, &said))
		return SVC_ETCD_WAIT;
	a->etcd->asked = a->call.member;
	r = svc_etcd_judge(a->etcd, a->login ? SVC_ETCD_LOGIN : a->call.path, &said, answer);
	if (a->login) {
		explicit_bzero(a->secret, sizeof(a->secret));
		if (r == XPORT_OK) {
			r = svc_etcd_login_take(a->etcd, *answer);
			svc_json_free(*answer);
			*answer = NULL;
		}
		if (r == XPORT_OK) {
			r = call_send(a);
			if (r == XPORT_OK)
				return SVC_ETCD_WAIT;
		}
	}
	slot_clear(a, &a->call);
	return r;
}

void svc_etcd_cancel(struct svc_etcd_async *a)
{
	slot_clear(a, &a->call);
}

/* ---- the watch ---- */

int svc_etcd_watch(struct svc_etcd_async *a, char *body, int timeout_ms)
{
	if (body == NULL)
		return async_memory(a);
	a->watch.path = "/v3/watch";
	a->watch.body = body;
	a->watch.until = svc_now_ms() + timeout_ms;
	return slot_send(a, &a->watch, a->watch.path, body, true);
}

/* What a stream ends with is an error without a newline, or not one line of etcd. */
static int watch_ended(struct svc_etcd_async *a, const struct svc_http_answer *said)
{
	struct svc_json *answer = NULL;
	int r;

	if (said->end == SVC_HTTP_ANSWERED && said->len == 0 && said->status == 200) {
		svc_etcd_next(a->etcd, "it has ended the watch");
		r = XPORT_ERR_AGAIN;
	} else {
		r = svc_etcd_judge(a->etcd, a->watch.path, said, &answer);
		svc_json_free(answer);
		r = r == XPORT_OK ? XPORT_ERR_AGAIN : r;
	}
	return r;
}

int svc_etcd_watch_next(struct svc_etcd_async *a, struct svc_json **answer)
{
	struct svc_http_answer said;
	const char *line;
	bool expired = false;
	size_t len;
	int r;

	*answer = NULL;
	a->etcd->asked = a->watch.member;
	a->etcd->too_long = false;
	line = svc_http_line(a->watch.http, &len);
	if (line != NULL) {
		*answer = svc_json_parse(line, len);
		if (*answer == NULL)
			r = svc_fail(XPORT_ERR_PROTOCOL, a->etcd->operation,
			             "name the client URLs of an etcd of version 3.4 or later",
			             "%.100s sent something that is no message of a watch",
			             a->etcd->url[a->watch.member]);
		else
			r = svc_etcd_error(a->etcd, *answer, &expired);
		if (r == XPORT_OK)
			return r;
		svc_json_free(*answer);
		*answer = NULL;
	} else if (svc_http_ended(a->watch.http, &said)) {
		r = watch_ended(a, &said);
	} else {
		return SVC_ETCD_WAIT;
	}
	slot_clear(a, &a->watch);
	return r;
}

bool svc_etcd_watching(const struct svc_etcd_async *a)
{
	return a->watch.body != NULL;
}

bool svc_etcd_watch_astray(const struct svc_etcd_async *a)
{
	return a->watch.member != a->etcd->now;
}

bool svc_etcd_watch_held(const struct svc_etcd_async *a)
{
	return svc_http_held(a->watch.http);
}

void svc_etcd_watch_hold(struct svc_etcd_async *a, bool hold)
{
	svc_http_hold(a->watch.http, hold);
}

void svc_etcd_watch_end(struct svc_etcd_async *a)
{
	slot_clear(a, &a->watch);
}
