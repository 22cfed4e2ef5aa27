/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/etcd_client.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "services/clock.h"
#include "services/etcd_impl.h"
#include "services/last_error.h"

enum {
	REQUEST_MS = 3000,
	SHORT_MS = 250,
	PAGE = 500,
	WORDS = 200,
	BODY_BYTES = 4096,
	KEY_TEXT = 4 * (SVC_ETCD_KEY_MAX / 3 + 2)
};

/* Statuses of gRPC. */
enum {
	RPC_CANCELLED = 1,
	RPC_UNKNOWN = 2,
	RPC_INVALID = 3,
	RPC_LATE = 4,
	RPC_NOT_FOUND = 5,
	RPC_DENIED = 7,
	RPC_EXHAUSTED = 8,
	RPC_PRECONDITION = 9,
	RPC_RANGE = 11,
	RPC_INTERNAL = 13,
	RPC_UNAVAILABLE = 14,
	RPC_UNAUTHENTICATED = 16
};

/* ---- requests ---- */

/* Copies the beginning of a server's text. Bytes that cannot be printed become question marks. */
static void etcd_words(const char *text, size_t len, char *words, size_t size)
{
	size_t i;

	for (i = 0; i < size - 1 && i < len; i++)
		words[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
	words[i] = '\0';
}

void svc_etcd_next(struct svc_etcd *e, const char *why)
{
	snprintf(e->why, sizeof(e->why), "%.90s: %.190s", e->url[e->asked], why);
	if (e->asked == e->now) /* or another request has taken the next one already */
		e->now = (e->now + 1) % e->urls;
}

/* An answer that is not etcd's. AGAIN: another member may do better. */
static int etcd_wrong(struct svc_etcd *e, const char *path, const struct svc_http_answer *a)
{
	char text[81];

	etcd_words(a->body == NULL ? "" : a->body, a->len, text, sizeof(text));
	/* A member that ends, or what stands before it. */
	if (a->status == 408 || (a->status >= 502 && a->status <= 504)) {
		char why[120];

		snprintf(why, sizeof(why), "HTTP status %d, \"%s\"", a->status, text);
		svc_etcd_next(e, why);
		return XPORT_ERR_AGAIN;
	}
	/* etcd with users would take the common name for one, but its gateway cannot: no JSON. */
	if (strncmp(text, "CommonName", 10) == 0)
		return svc_fail(XPORT_ERR_AUTH, e->operation, "use a client certificate without a common name",
		                "etcd at %.100s refused: %s", e->url[e->asked], text);
	return svc_fail(XPORT_ERR_PROTOCOL, e->operation, "name the client URLs of an etcd of version 3.4 or later",
	                "%.100s%s answered with HTTP status %d and \"%s\": that is no answer of etcd", e->url[e->asked],
	                path, a->status, text);
}

/* An error that a member reports, and another one may not. */
static bool etcd_passes(int code, const char *text)
{
	return code == RPC_CANCELLED || code == RPC_UNKNOWN || code == RPC_LATE || code == RPC_INTERNAL ||
	       code == RPC_UNAVAILABLE || strstr(text, "too many requests") != NULL;
}

/* An error that etcd reports. AGAIN: another member may do better. UNREACHABLE (no lease) and STALE_KEY (compacted) are not described. */
static int etcd_refused(struct svc_etcd *e, int code, const char *text)
{
	if (etcd_passes(code, text)) {
		svc_etcd_next(e, text);
		return XPORT_ERR_AGAIN;
	}
	if (code == RPC_NOT_FOUND)
		return XPORT_ERR_UNREACHABLE;
	if (code == RPC_RANGE && strstr(text, "compacted") != NULL)
		return XPORT_ERR_STALE_KEY;
	if (code == RPC_EXHAUSTED)
		return svc_fail(XPORT_ERR_SYSTEM, e->operation,
		                "look at etcdctl alarm list; compact and defragment the cluster, or raise its quota",
		                "etcd takes no more entries: %.200s", text);
	if (code == RPC_UNAUTHENTICATED || code == RPC_DENIED || code == RPC_INVALID) {
		char hint[160];

		snprintf(hint, sizeof(hint),
		         "set XPORT_ETCD_USER and XPORT_ETCD_PASSWORD_FILE to a user whose role may read and write "
		         "keys that begin "
		         "with %s",
		         e->use->prefix);
		return svc_fail(XPORT_ERR_AUTH, e->operation, hint, "etcd at %.100s refused: %.200s", e->url[e->asked],
		                text);
	}
	if (code == RPC_PRECONDITION)
		return svc_fail(XPORT_ERR_CONFIG, e->operation,
		                "unset XPORT_ETCD_USER, or enable authentication in etcd", "etcd at %.100s: %.200s",
		                e->url[e->asked], text);
	return svc_fail(XPORT_ERR_SYSTEM, e->operation, "look at the log of etcd", "etcd at %.100s: %.200s (%d)",
	                e->url[e->asked], text, code);
}

int svc_etcd_error(struct svc_etcd *e, const struct svc_json *answer, bool *expired)
{
	char words[WORDS + 1];
	const char *text;
	int code;

	if (!svc_etcd_error_read(answer, &code, &text))
		return XPORT_OK;
	etcd_words(text, strlen(text), words, sizeof(words));
	/* The second: users or rights have changed since the login. */
	*expired = e->token[0] != '\0' &&
	           (code == RPC_UNAUTHENTICATED || strstr(words, "revision of auth store is old") != NULL);
	if (!*expired)
		return etcd_refused(e, code, words);
	e->token[0] = '\0';
	return XPORT_ERR_AGAIN;
}

int svc_etcd_judge(struct svc_etcd *e, const char *path, const struct svc_http_answer *a, struct svc_json **answer)
{
	bool expired = false;
	int r;

	e->too_long = a->end == SVC_HTTP_TOO_LONG;
	switch (a->end) {
	case SVC_HTTP_ANSWERED:
		break;
	case SVC_HTTP_AWAY:
		svc_etcd_next(e, a->why);
		return XPORT_ERR_AGAIN;
	case SVC_HTTP_REFUSED:
		return svc_fail(XPORT_ERR_AUTH, e->operation,
		                "set XPORT_ETCD_CACERT to the certificate that signed the server's, and, if the "
		                "server wants one, XPORT_ETCD_CERT and XPORT_ETCD_KEY",
		                "%.100s: %.190s", e->url[e->asked], a->why);
	case SVC_HTTP_TOO_LONG:
		return svc_fail(XPORT_ERR_PROTOCOL, e->operation, NULL, "%.100s sent more than 2 MiB",
		                e->url[e->asked]);
	default:
		return svc_fail(XPORT_ERR_NO_MEMORY, e->operation, NULL, "out of memory");
	}
	*answer = svc_json_parse(a->len > 0 ? a->body : "", a->len);
	if (*answer == NULL)
		return etcd_wrong(e, path, a);
	e->why[0] = '\0';
	r = svc_etcd_error(e, *answer, &expired);
	if (r == XPORT_OK && a->status != 200)
		r = etcd_wrong(e, path, a);
	if (r != XPORT_OK) {
		svc_json_free(*answer);
		*answer = NULL;
	}
	return r;
}

void svc_etcd_logout(struct svc_etcd *e)
{
	e->token[0] = '\0';
}

bool svc_etcd_login_needed(const struct svc_etcd *e)
{
	return e->user != NULL && e->token[0] == '\0';
}

bool svc_etcd_too_long(const struct svc_etcd *e)
{
	return e->too_long;
}

int svc_etcd_login_body(struct svc_etcd *e, char *body, size_t size)
{
	char name[300], password[2 * SVC_ETCD_PASSWORD_MAX + 40];
	int n;

	if (!svc_json_quote(e->user, name, sizeof(name)) || !svc_json_quote(e->password, password, sizeof(password)))
		return svc_fail(XPORT_ERR_CONFIG, e->operation, NULL, "the user or the password of etcd is too long");
	n = snprintf(body, size, "{\"name\":%s,\"password\":%s}", name, password);
	explicit_bzero(password, sizeof(password));
	return n < (int)size ? XPORT_OK
	                     : svc_fail(XPORT_ERR_CONFIG, e->operation, NULL, "the user of etcd is too long");
}

int svc_etcd_login_take(struct svc_etcd *e, const struct svc_json *answer)
{
	const char *token = svc_json_text(svc_json_member(answer, "token"));

	if (token == NULL || strlen(token) >= sizeof(e->token) || strpbrk(token, "\r\n") != NULL)
		return svc_fail(XPORT_ERR_PROTOCOL, e->operation, NULL, "etcd at %.100s gave no token",
		                e->url[e->asked]);
	snprintf(e->token, sizeof(e->token), "%s", token);
	return XPORT_OK;
}

/* One request to one member. */
static int etcd_request(struct svc_etcd *e, const char *path, const char *body, int ms, struct svc_json **answer)
{
	struct svc_http_answer a;
	char url[SVC_ETCD_URL_BYTES];

	e->asked = e->now;
	snprintf(url, sizeof(url), "%s%s", e->url[e->asked], path);
	svc_http_post(e->http, url, body, e->token, ms, &a);
	return svc_etcd_judge(e, path, &a, answer);
}

static int etcd_login(struct svc_etcd *e, int ms)
{
	char body[SVC_ETCD_LOGIN_BYTES];
	struct svc_json *answer;
	int r = svc_etcd_login_body(e, body, sizeof(body));

	if (r == XPORT_OK)
		r = etcd_request(e, SVC_ETCD_LOGIN, body, ms, &answer);
	explicit_bzero(body, sizeof(body));
	if (r != XPORT_OK)
		return r;
	r = svc_etcd_login_take(e, answer);
	svc_json_free(answer);
	return r;
}

/* A request to the first member that answers. */
static int etcd_call(struct svc_etcd *e, const char *path, const char *body, struct svc_json **answer, int64_t until)
{
	int64_t end = until < 0 ? INT64_MAX : until;
	bool answered = e->why[0] == '\0';
	int r = XPORT_ERR_AGAIN;

	for (int i = 0; i < e->urls + 1 && r == XPORT_ERR_AGAIN; i++) {
		int64_t left = end - svc_now_ms();
		int ms = left > REQUEST_MS ? REQUEST_MS : left < 1 ? 1 : (int)left;

		/* A member that is suspended must not take all the time. */
		if (e->urls > 1 && left < 2 * REQUEST_MS && left > 2)
			ms = (int)(left < REQUEST_MS ? left / 2 : REQUEST_MS / 2);
		if (i > 0 && left <= 0)
			break;
		r = svc_etcd_login_needed(e) ? etcd_login(e, ms) : XPORT_OK;
		if (r == XPORT_OK)
			r = etcd_request(e, path, body, ms, answer);
		/* That etcd does not answer within the rest of the caller's time says nothing about etcd. */
		if (r == XPORT_ERR_AGAIN && ms < SHORT_MS && answered)
			e->why[0] = '\0';
	}
	return r;
}

/* ---- leases ---- */

int svc_etcd_lease_new(struct svc_etcd *e, int64_t *lease, int *seconds, int64_t until)
{
	struct svc_json *answer;
	char body[64];
	int64_t ttl;
	int r;

	snprintf(body, sizeof(body), "{\"TTL\":%d}", *seconds);
	r = etcd_call(e, "/v3/lease/grant", body, &answer, until);
	if (r != XPORT_OK)
		return r == XPORT_ERR_UNREACHABLE ? XPORT_ERR_AGAIN : r;
	if (!svc_json_number(svc_json_member(answer, "ID"), lease) || *lease <= 0 ||
	    !svc_json_number(svc_json_member(answer, "TTL"), &ttl) || ttl < 1 || ttl > 86400)
		r = svc_fail(XPORT_ERR_PROTOCOL, e->operation, NULL, "etcd at %.100s granted no lease",
		             e->url[e->asked]);
	else
		*seconds = (int)ttl;
	svc_json_free(answer);
	return r;
}

int svc_etcd_lease_keep(struct svc_etcd *e, int64_t lease, bool *alive, int64_t until)
{
	struct svc_json *answer;
	int64_t ttl = 0;
	char body[64];
	int r;

	snprintf(body, sizeof(body), "{\"ID\":\"%" PRId64 "\"}", lease);
	r = etcd_call(e, "/v3/lease/keepalive", body, &answer, until);
	*alive = false;
	if (r == XPORT_ERR_UNREACHABLE)
		return XPORT_OK;
	if (r != XPORT_OK)
		return r;
	svc_json_number(svc_json_member(svc_json_member(answer, "result"), "TTL"), &ttl);
	*alive = ttl > 0;
	svc_json_free(answer);
	return XPORT_OK;
}

int svc_etcd_lease_end(struct svc_etcd *e, int64_t lease, int64_t until)
{
	struct svc_json *answer;
	char body[64];
	int r;

	snprintf(body, sizeof(body), "{\"ID\":\"%" PRId64 "\"}", lease);
	r = etcd_call(e, "/v3/lease/revoke", body, &answer, until);
	if (r == XPORT_OK)
		svc_json_free(answer);
	return r;
}

/* ---- entries ---- */

static int entry_wrong(struct svc_etcd *e)
{
	return svc_fail(XPORT_ERR_PROTOCOL, e->operation, e->use->stranger,
	                "an entry below %s in etcd is not one of a %s", e->use->prefix, e->use->name);
}

/* The entry of a range response; revision 0: none. */
static int entry_first(struct svc_etcd *e, const struct svc_json *range, struct svc_etcd_entry *entry)
{
	const struct svc_json *kv = svc_json_at(svc_json_member(range, "kvs"), 0);

	entry->revision = 0;
	return kv == NULL || svc_etcd_entry_read(kv, entry) ? XPORT_OK : entry_wrong(e);
}

int svc_etcd_put(struct svc_etcd *e, struct svc_etcd_entry *entry, int64_t lease, bool *put, int64_t until)
{
	char key[KEY_TEXT], value[4 * (SVC_ETCD_VALUE_MAX / 3 + 2)], body[BODY_BYTES];
	struct svc_json *answer, *response;
	int r;

	svc_base64_encode(entry->key, strlen(entry->key), key);
	svc_base64_encode(entry->value, entry->len, value);
	snprintf(body, sizeof(body),
	         "{\"compare\":[{\"key\":\"%s\",\"target\":\"MOD\",\"result\":\"EQUAL\",\"mod_revision\":\"%" PRId64
	         "\"}],"
	         "\"success\":[{\"request_put\":{\"key\":\"%s\",\"value\":\"%s\",\"lease\":\"%" PRId64 "\"}}],"
	         "\"failure\":[{\"request_range\":{\"key\":\"%s\"}}]}",
	         key, entry->revision, key, value, lease, key);
	r = etcd_call(e, "/v3/kv/txn", body, &answer, until);
	*put = false;
	if (r != XPORT_OK)
		return r;
	response = svc_json_at(svc_json_member(answer, "responses"), 0);
	*put = svc_json_member(response, "response_put") != NULL;
	if (!*put)
		r = entry_first(e, svc_json_member(response, "response_range"), entry);
	svc_json_free(answer);
	return r;
}

int svc_etcd_get_two(struct svc_etcd *e, struct svc_etcd_entry *first, struct svc_etcd_entry *second, int64_t until)
{
	char one[KEY_TEXT], two[KEY_TEXT], body[BODY_BYTES];
	struct svc_json *answer, *list;
	int r;

	svc_base64_encode(first->key, strlen(first->key), one);
	svc_base64_encode(second->key, strlen(second->key), two);
	snprintf(body, sizeof(body),
	         "{\"success\":[{\"request_range\":{\"key\":\"%s\"}},{\"request_range\":{\"key\":\"%s\"}}]}", one, two);
	r = etcd_call(e, "/v3/kv/txn", body, &answer, until);
	if (r != XPORT_OK)
		return r == XPORT_ERR_UNREACHABLE ? XPORT_ERR_AGAIN : r;
	list = svc_json_member(answer, "responses");
	if (svc_json_size(list) != 2)
		r = entry_wrong(e);
	else
		r = entry_first(e, svc_json_member(svc_json_at(list, 0), "response_range"), first);
	if (r == XPORT_OK)
		r = entry_first(e, svc_json_member(svc_json_at(list, 1), "response_range"), second);
	svc_json_free(answer);
	return r;
}

/* A request for the keys from `from` to the end of those with the prefix, which ends with a slash. */
static int etcd_range(struct svc_etcd *e, const char *prefix, const char *from, size_t from_len, const char *more,
                      struct svc_json **answer, int64_t until)
{
	char last[SVC_ETCD_KEY_MAX + 1], begin[KEY_TEXT], end[KEY_TEXT], body[BODY_BYTES];
	int r;

	snprintf(last, sizeof(last), "%s", prefix);
	last[strlen(last) - 1]++;
	svc_base64_encode(from, from_len, begin);
	svc_base64_encode(last, strlen(last), end);
	snprintf(body, sizeof(body), "{\"key\":\"%s\",\"range_end\":\"%s\",%s}", begin, end, more);
	r = etcd_call(e, "/v3/kv/range", body, answer, until);
	return r == XPORT_ERR_UNREACHABLE ? XPORT_ERR_AGAIN : r;
}

int svc_etcd_count(struct svc_etcd *e, const char *prefix, int64_t *n, int64_t until)
{
	struct svc_json *answer;
	int r = etcd_range(e, prefix, prefix, strlen(prefix), "\"count_only\":true", &answer, until);

	if (r != XPORT_OK)
		return r;
	*n = 0; /* left out if it is 0 */
	svc_json_number(svc_json_member(answer, "count"), n);
	svc_json_free(answer);
	return XPORT_OK;
}

int svc_etcd_list(struct svc_etcd *e, const char *prefix, int most,
                  int (*take)(void *arg, const struct svc_etcd_entry *entry), void *arg, int64_t until)
{
	char from[SVC_ETCD_KEY_MAX + 2], before[SVC_ETCD_KEY_MAX + 1] = "", more[32];
	struct svc_etcd_entry entry = {.revision = 0};
	size_t prefix_len = strlen(prefix), len = prefix_len, n = PAGE;

	memcpy(from, prefix, len + 1);
	snprintf(more, sizeof(more), "\"limit\":%d", PAGE);
	for (int pages = 0; n == PAGE; pages++) {
		struct svc_json *answer, *kvs;
		int r = etcd_range(e, prefix, from, len, more, &answer, until);

		if (r == XPORT_OK && pages > most / PAGE) {
			svc_json_free(answer);
			r = XPORT_ERR_AGAIN;
		}
		if (r != XPORT_OK)
			return r;
		kvs = svc_json_member(answer, "kvs");
		n = svc_json_size(kvs);
		for (size_t i = 0; i < n && r == XPORT_OK; i++) {
			bool good = svc_etcd_entry_read(svc_json_at(kvs, i), &entry) &&
			            strncmp(entry.key, prefix, prefix_len) == 0 && strcmp(entry.key, before) > 0;

			r = good ? take(arg, &entry) : entry_wrong(e);
			memcpy(before, entry.key, sizeof(before));
		}
		svc_json_free(answer);
		if (r != XPORT_OK)
			return r;
		if (n > 0) {
			/* The next key is this one and a NUL. */
			len = strlen(entry.key) + 1;
			memcpy(from, entry.key, len);
		}
	}
	return XPORT_OK;
}
