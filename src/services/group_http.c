/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/group_http.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "services/group_fd.h"
#include "services/group_load.h"
#include "services/last_error.h"

/* The part of curl.h that is used; test/cluster/abi.c compares it. */
enum {
	OPT_WRITEDATA = 10001,
	OPT_URL = 10002,
	OPT_PROXY = 10004,
	OPT_ERRORBUFFER = 10010,
	OPT_POSTFIELDS = 10015,
	OPT_HTTPHEADER = 10023,
	OPT_SSLCERT = 10025,
	OPT_CAINFO = 10065,
	OPT_SSLKEY = 10087,
	OPT_CAPATH = 10097,
	OPT_SSL_VERIFYPEER = 64,
	OPT_SSL_VERIFYHOST = 81,
	OPT_NOSIGNAL = 99,
	OPT_TIMEOUT_MS = 155,
	OPT_CONNECTTIMEOUT_MS = 156,
	OPT_WRITEFUNCTION = 20011,
	OPT_OPENSOCKETFUNCTION = 20163,
	OPT_QUICK_EXIT = 322,
	INFO_RESPONSE_CODE = 0x200002,
	CODE_NOT_BUILT_IN = 4,
	CODE_WRITE_ERROR = 23,
	CODE_OUT_OF_MEMORY = 27,
	CODE_SSL_CONNECT_ERROR = 35,
	CODE_RECV_ERROR = 56,
	CODE_SSL_CERTPROBLEM = 58,
	CODE_PEER_FAILED_VERIFICATION = 60,
	CODE_SSL_CACERT_BADFILE = 77,
	GLOBAL_ALL = 3,
	ERROR_BYTES = 256,
	BODY_MAX = 2 << 20, /* a page of entries has less than half; parsed, it takes up to 80 times as much */
	LINE_BYTES = SVC_HTTP_TOKEN_MAX + 32
};

/* struct curl_sockaddr. */
struct socket_address {
	int family, type, protocol;
	unsigned len;
	struct sockaddr address;
};

static struct {
	int (*global_init)(long flags);
	void *(*init)(void);
	int (*set)(void *handle, int option, ...);
	int (*perform)(void *handle);
	int (*info)(void *handle, int info, ...);
	void (*cleanup)(void *handle);
	const char *(*text)(int code);
	void *(*list_append)(void *list, const char *text);
	void (*list_free)(void *list);
} curl;

struct svc_http {
	void *handle;
	char *body;
	size_t len, size;
	bool too_long;
	char error[ERROR_BYTES];
};

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;

static int http_load(const char *source, const char *operation)
{
	static bool loaded;
	const struct svc_symbol symbols[] = {
		{"curl_global_init", &curl.global_init},  {"curl_easy_init", &curl.init},
		{"curl_easy_setopt", &curl.set},          {"curl_easy_perform", &curl.perform},
		{"curl_easy_getinfo", &curl.info},        {"curl_easy_cleanup", &curl.cleanup},
		{"curl_easy_strerror", &curl.text},       {"curl_slist_append", &curl.list_append},
		{"curl_slist_free_all", &curl.list_free},
	};
	int r = XPORT_OK;

	pthread_mutex_lock(&load_lock);
	if (!loaded) {
		r = svc_group_load("libcurl.so.4", "libcurl4", symbols, sizeof(symbols) / sizeof(symbols[0]), source,
		                   operation);
		if (r == XPORT_OK && curl.global_init(GLOBAL_ALL) != 0)
			r = svc_fail(XPORT_ERR_SYSTEM, operation, NULL, "libcurl cannot be initialised");
		loaded = r == XPORT_OK;
	}
	pthread_mutex_unlock(&load_lock);
	return r;
}

static size_t http_take(const char *bytes, size_t one, size_t n, void *arg)
{
	struct svc_http *h = arg;

	(void)one;
	if (h->len + n + 1 > BODY_MAX) {
		h->too_long = true;
		return 0;
	}
	if (h->len + n + 1 > h->size) {
		size_t size = 2 * (h->len + n + 1);
		char *body = realloc(h->body, size);

		if (body == NULL)
			return 0;
		h->body = body;
		h->size = size;
	}
	memcpy(h->body + h->len, bytes, n);
	h->len += n;
	h->body[h->len] = '\0';
	return n;
}

/* A socket of libcurl. */
static int http_socket(void *arg, int purpose, struct socket_address *a)
{
	(void)arg, (void)purpose;
	return svc_fd_up(socket(a->family, a->type | SOCK_CLOEXEC, a->protocol));
}

/* Returns a code of libcurl. */
static int http_options(struct svc_http *h, const struct svc_http_tls *tls)
{
	int code = curl.set(h->handle, OPT_NOSIGNAL, 1L);

	if (code == 0)
		code = curl.set(h->handle, OPT_PROXY, "");
	if (code == 0)
		code = curl.set(h->handle, OPT_WRITEFUNCTION, http_take);
	if (code == 0)
		code = curl.set(h->handle, OPT_WRITEDATA, h);
	if (code == 0)
		code = curl.set(h->handle, OPT_OPENSOCKETFUNCTION, http_socket);
	if (code == 0)
		code = curl.set(h->handle, OPT_ERRORBUFFER, h->error);
	if (code == 0)
		code = curl.set(h->handle, OPT_SSL_VERIFYPEER, 1L);
	if (code == 0)
		code = curl.set(h->handle, OPT_SSL_VERIFYHOST, 2L);
	if (code == 0 && tls->ca != NULL)
		code = curl.set(h->handle, OPT_CAINFO, tls->ca);
	/* Without it the authorities of the system would be trusted, too. */
	if (code == 0 && tls->ca != NULL)
		code = curl.set(h->handle, OPT_CAPATH, NULL);
	if (code == CODE_NOT_BUILT_IN)
		code = 0; /* this build knows no directory of authorities */
	if (code == 0 && tls->certificate != NULL)
		code = curl.set(h->handle, OPT_SSLCERT, tls->certificate);
	if (code == 0 && tls->key != NULL)
		code = curl.set(h->handle, OPT_SSLKEY, tls->key);
	/* A name server that does not answer must not hold a request beyond its limit. Before 7.87 there is no such option. */
	(void)curl.set(h->handle, OPT_QUICK_EXIT, 1L);
	return code;
}

int svc_http_open(const struct svc_http_tls *tls, const char *source, struct svc_http **http, const char *operation)
{
	int r = http_load(source, operation), code;
	struct svc_http *h;

	if (r != XPORT_OK)
		return r;
	h = calloc(1, sizeof(*h));
	if (h != NULL)
		h->handle = curl.init();
	if (h == NULL || h->handle == NULL) {
		free(h);
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	}
	code = http_options(h, tls);
	if (code != 0) {
		r = svc_fail(code == CODE_OUT_OF_MEMORY ? XPORT_ERR_NO_MEMORY : XPORT_ERR_NOT_SUPPORTED, operation,
		             "a libcurl with TLS, of version 7.32 or later", "libcurl refuses an option: %s",
		             curl.text(code));
		svc_http_close(h);
		return r;
	}
	*http = h;
	return XPORT_OK;
}

/* Performs the request without a SIGPIPE for the application: not each build of libcurl prevents it. */
static int http_perform(struct svc_http *h)
{
	const struct timespec now = {0, 0};
	sigset_t pipe, before, pending;
	int code;

	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &pipe, &before);
	code = curl.perform(h->handle);
	if (!sigismember(&pending, SIGPIPE))
		(void)sigtimedwait(&pipe, NULL, &now);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return code;
}

static enum svc_http_end http_end(const struct svc_http *h, int code)
{
	switch (code) {
	case 0:
		return SVC_HTTP_ANSWERED;
	case CODE_WRITE_ERROR:
		return h->too_long ? SVC_HTTP_TOO_LONG : SVC_HTTP_NO_MEMORY;
	case CODE_OUT_OF_MEMORY:
		return SVC_HTTP_NO_MEMORY;
	case CODE_SSL_CERTPROBLEM:
	case CODE_PEER_FAILED_VERIFICATION:
	case CODE_SSL_CACERT_BADFILE:
		return SVC_HTTP_REFUSED;
	case CODE_SSL_CONNECT_ERROR:
	case CODE_RECV_ERROR:
		/* The server wants another certificate of this side. */
		return strstr(h->error, "alert") != NULL ? SVC_HTTP_REFUSED : SVC_HTTP_AWAY;
	default:
		return SVC_HTTP_AWAY;
	}
}

void svc_http_post(struct svc_http *h, const char *url, const char *body, const char *token, int timeout_ms,
                   struct svc_http_answer *answer)
{
	char line[LINE_BYTES];
	void *list, *longer;
	long status = 0;
	int code;

	memset(answer, 0, sizeof(*answer));
	answer->end = SVC_HTTP_NO_MEMORY;
	if (strlen(token) > SVC_HTTP_TOKEN_MAX)
		return;
	list = curl.list_append(NULL, "Content-Type: application/json");
	snprintf(line, sizeof(line), "Authorization: %s", token);
	longer = list == NULL || token[0] == '\0' ? list : curl.list_append(list, line);
	explicit_bzero(line, sizeof(line));
	if (longer == NULL) {
		curl.list_free(list);
		return;
	}
	h->len = 0;
	h->too_long = false;
	h->error[0] = '\0';
	curl.set(h->handle, OPT_URL, url);
	curl.set(h->handle, OPT_POSTFIELDS, body);
	curl.set(h->handle, OPT_HTTPHEADER, longer);
	curl.set(h->handle, OPT_TIMEOUT_MS, (long)timeout_ms);
	curl.set(h->handle, OPT_CONNECTTIMEOUT_MS, (long)timeout_ms);
	code = http_perform(h);
	curl.list_free(longer);
	answer->end = http_end(h, code);
	if (answer->end == SVC_HTTP_ANSWERED) {
		curl.info(h->handle, INFO_RESPONSE_CODE, &status);
		answer->status = (int)status;
		answer->body = h->body;
		answer->len = h->len;
	} else {
		snprintf(answer->why, sizeof(answer->why), "%.199s", h->error[0] != '\0' ? h->error : curl.text(code));
	}
}

void svc_http_close(struct svc_http *h)
{
	curl.cleanup(h->handle);
	if (h->body != NULL)
		explicit_bzero(h->body, h->size); /* it may have had a token */
	free(h->body);
	free(h);
}
