/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/group_etcd_client.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "services/clock.h"
#include "services/group_fd.h"
#include "services/group_http.h"
#include "services/last_error.h"

enum {
	URLS_MAX = 16,
	REQUEST_MS = 3000,
	PAGE = 500,
	WORDS = 200,
	PASSWORD_MAX = 256,
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
	RPC_INTERNAL = 13,
	RPC_UNAVAILABLE = 14,
	RPC_UNAUTHENTICATED = 16
};

struct svc_etcd {
	const char *operation;
	struct svc_http *http;
	char *text; /* the URLs, each with a NUL */
	const char *url[URLS_MAX];
	int urls, now;
	char *ca, *certificate, *key, *user, *password;
	char token[SVC_HTTP_TOKEN_MAX + 1]; /* "": none yet */
	char why[300];
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

/* Remembers why this member did not answer, and takes the next one. */
static void etcd_next(struct svc_etcd *e, const char *why)
{
	snprintf(e->why, sizeof(e->why), "%.90s: %.190s", e->url[e->now], why);
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
		etcd_next(e, why);
		return XPORT_ERR_AGAIN;
	}
	/* etcd with users would take the common name for one, but its gateway cannot: no JSON. */
	if (strncmp(text, "CommonName", 10) == 0)
		return svc_fail(XPORT_ERR_AUTH, e->operation, "use a client certificate without a common name",
		                "etcd at %.100s refused: %s", e->url[e->now], text);
	return svc_fail(XPORT_ERR_PROTOCOL, e->operation, "name the client URLs of an etcd of version 3.4 or later",
	                "%.100s%s answered with HTTP status %d and \"%s\": that is no answer of etcd", e->url[e->now],
	                path, a->status, text);
}

/* An error that a member reports, and another one may not. */
static bool etcd_passes(int code, const char *text)
{
	return code == RPC_CANCELLED || code == RPC_UNKNOWN || code == RPC_LATE || code == RPC_INTERNAL ||
	       code == RPC_UNAVAILABLE || strstr(text, "too many requests") != NULL;
}

/* An error that etcd reports. AGAIN: another member may do better. UNREACHABLE is not described. */
static int etcd_refused(struct svc_etcd *e, int code, const char *text)
{
	if (etcd_passes(code, text)) {
		etcd_next(e, text);
		return XPORT_ERR_AGAIN;
	}
	if (code == RPC_NOT_FOUND)
		return XPORT_ERR_UNREACHABLE;
	if (code == RPC_EXHAUSTED)
		return svc_fail(XPORT_ERR_SYSTEM, e->operation,
		                "look at etcdctl alarm list; compact and defragment the cluster, or raise its quota",
		                "etcd takes no more entries: %.200s", text);
	if (code == RPC_UNAUTHENTICATED || code == RPC_DENIED || code == RPC_INVALID)
		return svc_fail(XPORT_ERR_AUTH, e->operation,
		                "set XPORT_ETCD_USER and XPORT_ETCD_PASSWORD_FILE to a user whose role may read and "
		                "write keys that begin with xport/group/",
		                "etcd at %.100s refused: %.200s", e->url[e->now], text);
	if (code == RPC_PRECONDITION)
		return svc_fail(XPORT_ERR_CONFIG, e->operation,
		                "unset XPORT_ETCD_USER, or enable authentication in etcd", "etcd at %.100s: %.200s",
		                e->url[e->now], text);
	return svc_fail(XPORT_ERR_SYSTEM, e->operation, "look at the log of etcd", "etcd at %.100s: %.200s (%d)",
	                e->url[e->now], text, code);
}

/* One request to one member. *expired: the token is not valid any more. */
static int etcd_request(struct svc_etcd *e, const char *path, const char *body, int ms, struct svc_json **answer,
                        bool *expired)
{
	struct svc_http_answer a;
	char url[1100], words[WORDS + 1];
	const char *text;
	int code, r;

	snprintf(url, sizeof(url), "%s%s", e->url[e->now], path);
	svc_http_post(e->http, url, body, e->token, ms, &a);
	switch (a.end) {
	case SVC_HTTP_ANSWERED:
		break;
	case SVC_HTTP_AWAY:
		etcd_next(e, a.why);
		return XPORT_ERR_AGAIN;
	case SVC_HTTP_REFUSED:
		return svc_fail(XPORT_ERR_AUTH, e->operation,
		                "set XPORT_ETCD_CACERT to the certificate that signed the server's, and, if the "
		                "server wants one, XPORT_ETCD_CERT and XPORT_ETCD_KEY",
		                "%.100s: %.190s", e->url[e->now], a.why);
	case SVC_HTTP_TOO_LONG:
		return svc_fail(XPORT_ERR_PROTOCOL, e->operation, NULL, "%.100s sent more than 2 MiB", e->url[e->now]);
	default:
		return svc_fail(XPORT_ERR_NO_MEMORY, e->operation, NULL, "out of memory");
	}
	*answer = svc_json_parse(a.len > 0 ? a.body : "", a.len);
	if (*answer == NULL)
		return etcd_wrong(e, path, &a);
	e->why[0] = '\0';
	if (svc_etcd_error_read(*answer, &code, &text)) {
		etcd_words(text, strlen(text), words, sizeof(words));
		/* The second: users or rights have changed since the login. */
		*expired = e->token[0] != '\0' &&
		           (code == RPC_UNAUTHENTICATED || strstr(words, "revision of auth store is old") != NULL);
		r = *expired ? XPORT_ERR_AGAIN : etcd_refused(e, code, words);
	} else {
		r = a.status == 200 ? XPORT_OK : etcd_wrong(e, path, &a);
	}
	if (r != XPORT_OK) {
		svc_json_free(*answer);
		*answer = NULL;
	}
	return r;
}

static int etcd_login(struct svc_etcd *e, int ms)
{
	char name[300], password[2 * PASSWORD_MAX + 40], body[1000];
	struct svc_json *answer;
	const char *token;
	bool expired = false;
	int r;

	if (!svc_json_quote(e->user, name, sizeof(name)) || !svc_json_quote(e->password, password, sizeof(password)))
		return svc_fail(XPORT_ERR_CONFIG, e->operation, NULL, "the user or the password of etcd is too long");
	snprintf(body, sizeof(body), "{\"name\":%s,\"password\":%s}", name, password);
	r = etcd_request(e, "/v3/auth/authenticate", body, ms, &answer, &expired);
	explicit_bzero(password, sizeof(password));
	explicit_bzero(body, sizeof(body));
	if (r != XPORT_OK)
		return r;
	token = svc_json_text(svc_json_member(answer, "token"));
	if (token == NULL || strlen(token) >= sizeof(e->token) || strpbrk(token, "\r\n") != NULL)
		r = svc_fail(XPORT_ERR_PROTOCOL, e->operation, NULL, "etcd at %.100s gave no token", e->url[e->now]);
	else
		snprintf(e->token, sizeof(e->token), "%s", token);
	svc_json_free(answer);
	return r;
}

/* A request to the first member that answers. */
static int etcd_call(struct svc_etcd *e, const char *path, const char *body, struct svc_json **answer, int64_t until)
{
	int64_t end = until < 0 ? INT64_MAX : until;
	int r = XPORT_ERR_AGAIN;

	for (int i = 0; i < e->urls + 1 && r == XPORT_ERR_AGAIN; i++) {
		int64_t left = end - svc_now_ms();
		int ms = left > REQUEST_MS ? REQUEST_MS : left < 1 ? 1 : (int)left;
		bool expired = false;

		/* A member that is suspended must not take all the time. */
		if (e->urls > 1 && left < 2 * REQUEST_MS && left > 2)
			ms = (int)(left < REQUEST_MS ? left / 2 : REQUEST_MS / 2);
		if (i > 0 && left <= 0)
			break;
		r = e->user == NULL || e->token[0] != '\0' ? XPORT_OK : etcd_login(e, ms);
		if (r == XPORT_OK)
			r = etcd_request(e, path, body, ms, answer, &expired);
		if (expired)
			e->token[0] = '\0';
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
		r = svc_fail(XPORT_ERR_PROTOCOL, e->operation, NULL, "etcd at %.100s granted no lease", e->url[e->now]);
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
	return svc_fail(XPORT_ERR_PROTOCOL, e->operation, "remove it, or set another XPORT_GROUP_NAME",
	                "an entry below xport/group/ in etcd is not one of a group");
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

/* ---- the beginning and the end ---- */

/* A copy of a variable; NULL: it is not set. */
static bool etcd_variable(const char *name, char **copy)
{
	const char *value = secure_getenv(name);

	if (value == NULL || value[0] == '\0')
		return true;
	*copy = strdup(value);
	return *copy != NULL;
}

static int etcd_password(struct svc_etcd *e)
{
	const char *path = secure_getenv("XPORT_ETCD_PASSWORD_FILE");
	char text[PASSWORD_MAX + 2]; /* with a newline, or one byte too many */
	ssize_t n = -1;
	int fd = -1, r;

	if (path != NULL && path[0] != '\0')
		fd = svc_fd_open(path, O_RDONLY | O_NONBLOCK, 0);
	if (fd >= 0) {
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	if (n > PASSWORD_MAX && memchr(text, '\n', (size_t)n) == NULL)
		r = svc_fail(XPORT_ERR_CONFIG, e->operation, "at most 256 bytes, and a newline",
		             "the password in XPORT_ETCD_PASSWORD_FILE=%.100s is too long", path);
	else
		r = XPORT_OK;
	if (r != XPORT_OK) {
		explicit_bzero(text, sizeof(text));
		return r;
	}
	if (n < 1)
		return svc_fail(XPORT_ERR_CONFIG, e->operation, "write the password into a file that only you may read",
		                "XPORT_ETCD_USER is set, and XPORT_ETCD_PASSWORD_FILE=%.100s cannot be read",
		                path == NULL ? "" : path);
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	e->password = strdup(text);
	explicit_bzero(text, sizeof(text));
	return e->password != NULL ? XPORT_OK : svc_fail(XPORT_ERR_NO_MEMORY, e->operation, NULL, "out of memory");
}

/* Whether a URL's bytes stay on this host. */
static bool url_local(const char *url)
{
	const char *host = strstr(url, "://") + 3;
	size_t len = strncmp(host, "[::1]", 5) == 0       ? 5
	             : strncmp(host, "localhost", 9) == 0 ? 9
	             : strncmp(host, "127.", 4) == 0      ? strspn(host, "0123456789.")
	                                                  : 0;

	return len > 0 && (host[len] == ':' || host[len] == '/' || host[len] == '\0');
}

/* A password is sent over TLS only. */
static int etcd_secret(const struct svc_etcd *e)
{
	for (int i = 0; i < e->urls; i++)
		if (strncmp(e->url[i], "https://", 8) != 0 && !url_local(e->url[i]))
			return svc_fail(XPORT_ERR_CONFIG, e->operation, "use https:// and XPORT_ETCD_CACERT",
			                "XPORT_ETCD_USER is set, and %.100s would get the password in clear",
			                e->url[i]);
	return XPORT_OK;
}

static int etcd_urls(struct svc_etcd *e, const char *argument)
{
	char *at, *save = NULL;

	/* The argument may have a password: it is not repeated. */
	if (strchr(argument, '@') != NULL)
		return svc_fail(XPORT_ERR_CONFIG, e->operation, "set XPORT_ETCD_USER and XPORT_ETCD_PASSWORD_FILE",
		                "a URL of etcd must have no user and no password");
	e->text = strdup(argument);
	if (e->text == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, e->operation, NULL, "out of memory");
	for (at = strtok_r(e->text, ",", &save); at != NULL; at = strtok_r(NULL, ",", &save)) {
		size_t len = strlen(at);

		if ((strncmp(at, "http://", 7) != 0 && strncmp(at, "https://", 8) != 0) || len > 1000 ||
		    strpbrk(at, " \t\r\n\"?#") != NULL || e->urls == URLS_MAX)
			break;
		while (len > 0 && at[len - 1] == '/')
			at[--len] = '\0';
		e->url[e->urls++] = at;
	}
	if (at != NULL || e->urls == 0)
		return svc_fail(XPORT_ERR_CONFIG, e->operation,
		                "1 to 16 client URLs, for example XPORT_GROUP=etcd:https://n1:2379,https://n2:2379",
		                "\"etcd:%.200s\" has something that is no URL", argument);
	return XPORT_OK;
}

int svc_etcd_open(const char *argument, struct svc_etcd **etcd, const char *operation)
{
	struct svc_etcd *e = calloc(1, sizeof(*e));
	struct svc_http_tls tls;
	int r;

	if (e == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	e->operation = operation;
	r = etcd_urls(e, argument);
	if (r == XPORT_OK &&
	    (!etcd_variable("XPORT_ETCD_CACERT", &e->ca) || !etcd_variable("XPORT_ETCD_CERT", &e->certificate) ||
	     !etcd_variable("XPORT_ETCD_KEY", &e->key) || !etcd_variable("XPORT_ETCD_USER", &e->user)))
		r = svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	if (r == XPORT_OK && e->user != NULL)
		r = etcd_secret(e);
	if (r == XPORT_OK && e->user != NULL)
		r = etcd_password(e);
	if (r == XPORT_OK)
		r = svc_json_load("etcd", operation);
	tls = (struct svc_http_tls){.ca = e->ca, .certificate = e->certificate, .key = e->key};
	if (r == XPORT_OK)
		r = svc_http_open(&tls, "etcd", &e->http, operation);
	if (r != XPORT_OK) {
		svc_etcd_close(e);
		return r;
	}
	*etcd = e;
	return XPORT_OK;
}

void svc_etcd_close(struct svc_etcd *e)
{
	if (e->http != NULL)
		svc_http_close(e->http);
	if (e->password != NULL)
		explicit_bzero(e->password, strlen(e->password));
	free(e->text);
	free(e->ca);
	free(e->certificate);
	free(e->key);
	free(e->user);
	free(e->password);
	explicit_bzero(e->token, sizeof(e->token));
	free(e);
}

const char *svc_etcd_why(const struct svc_etcd *e)
{
	return e->why;
}
