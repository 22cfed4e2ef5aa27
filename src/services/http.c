/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/http.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "services/group_fd.h"
#include "services/last_error.h"
#include "services/load.h"

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
	PAUSE_CONTINUE = 0,
	MESSAGE_DONE = 1,
	GLOBAL_ALL = 3,
	ERROR_BYTES = 256,
	ALIVE_IDLE_S = 4, /* a connection without a peer ends within 10 s */
	ALIVE_EACH_S = 2,
	ALIVE_TRIES = 3,
	BODY_MAX = 2 << 20, /* a page of entries has less than half; parsed, it takes up to 80 times as much */
	LINE_MAX = 4 << 20, /* a line of a stream */
	LINE_BYTES = SVC_HTTP_TOKEN_MAX + 32
};

/* What a function that takes bytes returns, to be called again later. */
static const size_t WRITE_PAUSE = 0x10000001;

/* struct CURLMsg. */
struct message {
	int message;
	void *handle;
	union {
		void *pointer;
		int code;
	} data;
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
	int (*pause)(void *handle, int what);
	void *(*set_init)(void);
	int (*set_add)(void *set, void *handle);
	int (*set_remove)(void *set, void *handle);
	int (*set_perform)(void *set, int *running);
	struct message *(*set_read)(void *set, int *left);
	int (*set_cleanup)(void *set);
} curl;

struct svc_http {
	void *handle;
	char *body;
	size_t len, size;
	size_t taken; /* of a stream: bytes at the beginning that svc_http_line has returned */
	size_t lines; /* of a stream: the end of the last whole line */
	bool too_long, stream;
	bool hold, held; /* of a stream: no more bytes are taken; libcurl knows it */
	void *headers;   /* of a request that was started */
	bool started, ended;
	int code;              /* of the one that has ended */
	struct svc_http *next; /* of those started in a set */
	char error[ERROR_BYTES];
};

struct svc_http_set {
	void *handle;
	struct svc_http *first;
};

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;

static int http_load(const char *source, const char *operation)
{
	static bool loaded;
	const struct svc_symbol symbols[] = {
		{"curl_global_init", &curl.global_init},
		{"curl_easy_init", &curl.init},
		{"curl_easy_setopt", &curl.set},
		{"curl_easy_perform", &curl.perform},
		{"curl_easy_getinfo", &curl.info},
		{"curl_easy_cleanup", &curl.cleanup},
		{"curl_easy_strerror", &curl.text},
		{"curl_slist_append", &curl.list_append},
		{"curl_slist_free_all", &curl.list_free},
		{"curl_easy_pause", &curl.pause},
		{"curl_multi_init", &curl.set_init},
		{"curl_multi_add_handle", &curl.set_add},
		{"curl_multi_remove_handle", &curl.set_remove},
		{"curl_multi_perform", &curl.set_perform},
		{"curl_multi_info_read", &curl.set_read},
		{"curl_multi_cleanup", &curl.set_cleanup},
	};
	int r = XPORT_OK;

	pthread_mutex_lock(&load_lock);
	if (!loaded) {
		r = svc_load("libcurl.so.4", "libcurl4", symbols, sizeof(symbols) / sizeof(symbols[0]), source,
		             operation);
		if (r == XPORT_OK && curl.global_init(GLOBAL_ALL) != 0)
			r = svc_fail(XPORT_ERR_SYSTEM, operation, NULL, "libcurl cannot be initialised");
		loaded = r == XPORT_OK;
	}
	pthread_mutex_unlock(&load_lock);
	return r;
}

bool svc_http_waits(const struct svc_http *h)
{
	return h->lines > h->taken;
}

/* Moves what is left of a stream to the beginning. */
static void http_compact(struct svc_http *h)
{
	if (h->taken == 0)
		return;
	memmove(h->body, h->body + h->taken, h->len - h->taken);
	h->len -= h->taken;
	h->lines = 0; /* no whole line waits, or no bytes would be taken */
	h->taken = 0;
}

static size_t http_take(const char *bytes, size_t one, size_t n, void *arg)
{
	struct svc_http *h = arg;
	const char *newline;

	(void)one;
	if (h->hold || svc_http_waits(h)) {
		h->held = true;
		return WRITE_PAUSE;
	}
	http_compact(h);
	if (h->len + n + 1 > (h->stream ? LINE_MAX : BODY_MAX)) {
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
	newline = h->stream ? memrchr(bytes, '\n', n) : NULL;
	if (newline != NULL)
		h->lines = h->len - n + (size_t)(newline - bytes) + 1;
	return n;
}

static void tcp_set(int fd, int option, int value)
{
	(void)setsockopt(fd, IPPROTO_TCP, option, &value, sizeof(value));
}

/* A socket of libcurl.  A stream has no time limit: that its connection is dead, though nobody has ended it, the kernel finds. */
static int http_socket(void *arg, int purpose, struct socket_address *a)
{
	int fd = svc_fd_up(socket(a->family, a->type | SOCK_CLOEXEC, a->protocol)), on = 1;

	(void)arg, (void)purpose;
	if (fd < 0 || a->type != SOCK_STREAM)
		return fd;
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	tcp_set(fd, TCP_KEEPIDLE, ALIVE_IDLE_S);
	tcp_set(fd, TCP_KEEPINTVL, ALIVE_EACH_S);
	tcp_set(fd, TCP_KEEPCNT, ALIVE_TRIES);
	return fd;
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

/* Calls libcurl without a SIGPIPE for the application: not each build of libcurl prevents it. */
static int http_guarded(int (*call)(void *arg), void *arg)
{
	const struct timespec now = {0, 0};
	sigset_t pipe, before, pending;
	int code;

	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &pipe, &before);
	code = call(arg);
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

/* The headers of a request; NULL: out of memory. */
static void *http_headers(const char *token)
{
	char line[LINE_BYTES];
	void *list, *longer;

	if (strlen(token) > SVC_HTTP_TOKEN_MAX)
		return NULL;
	list = curl.list_append(NULL, "Content-Type: application/json");
	snprintf(line, sizeof(line), "Authorization: %s", token);
	longer = list == NULL || token[0] == '\0' ? list : curl.list_append(list, line);
	explicit_bzero(line, sizeof(line));
	if (longer == NULL)
		curl.list_free(list);
	return longer;
}

static void http_prepare(struct svc_http *h, const char *url, const char *body, void *headers, int timeout_ms)
{
	h->len = h->taken = h->lines = 0;
	h->too_long = h->hold = h->held = false;
	h->error[0] = '\0';
	curl.set(h->handle, OPT_URL, url);
	curl.set(h->handle, OPT_POSTFIELDS, body);
	curl.set(h->handle, OPT_HTTPHEADER, headers);
	curl.set(h->handle, OPT_TIMEOUT_MS, h->stream ? 0L : (long)timeout_ms);
	curl.set(h->handle, OPT_CONNECTTIMEOUT_MS, (long)timeout_ms);
}

static void http_answer(struct svc_http *h, int code, struct svc_http_answer *answer)
{
	long status = 0;

	memset(answer, 0, sizeof(*answer));
	answer->end = http_end(h, code);
	if (answer->end == SVC_HTTP_ANSWERED) {
		curl.info(h->handle, INFO_RESPONSE_CODE, &status);
		answer->status = (int)status;
		answer->body = h->len > h->taken ? h->body + h->taken : NULL;
		answer->len = h->len - h->taken;
	} else {
		snprintf(answer->why, sizeof(answer->why), "%.199s", h->error[0] != '\0' ? h->error : curl.text(code));
	}
}

static int http_perform(void *arg)
{
	struct svc_http *h = arg;

	return curl.perform(h->handle);
}

void svc_http_post(struct svc_http *h, const char *url, const char *body, const char *token, int timeout_ms,
                   struct svc_http_answer *answer)
{
	void *headers = http_headers(token);

	memset(answer, 0, sizeof(*answer));
	answer->end = SVC_HTTP_NO_MEMORY;
	if (headers == NULL)
		return;
	h->stream = false;
	http_prepare(h, url, body, headers, timeout_ms);
	http_answer(h, http_guarded(http_perform, h), answer);
	curl.list_free(headers);
}

/* ---- requests that do not wait ---- */

int svc_http_set_open(struct svc_http_set **set, const char *operation)
{
	struct svc_http_set *s = calloc(1, sizeof(*s));

	if (s != NULL)
		s->handle = curl.set_init();
	if (s == NULL || s->handle == NULL) {
		free(s);
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	}
	*set = s;
	return XPORT_OK;
}

void svc_http_set_close(struct svc_http_set *s)
{
	if (s == NULL)
		return;
	curl.set_cleanup(s->handle);
	free(s);
}

bool svc_http_start(struct svc_http_set *set, struct svc_http *h, const char *url, const char *body, const char *token,
                    int timeout_ms, bool stream)
{
	h->headers = http_headers(token);
	if (h->headers == NULL)
		return false;
	h->stream = stream;
	http_prepare(h, url, body, h->headers, timeout_ms);
	h->ended = false;
	if (curl.set_add(set->handle, h->handle) != 0) {
		curl.list_free(h->headers);
		return false;
	}
	h->started = true;
	h->next = set->first;
	set->first = h;
	return true;
}

/* Takes a request out of the set. */
static void http_out(struct svc_http_set *set, struct svc_http *h)
{
	struct svc_http **at = &set->first;

	while (*at != NULL && *at != h)
		at = &(*at)->next;
	if (*at == NULL)
		return;
	*at = h->next;
	curl.set_remove(set->handle, h->handle);
	curl.list_free(h->headers);
	h->started = false;
}

/* A request has ended with this code of libcurl. */
static void http_over(struct svc_http_set *set, struct svc_http *h, int code)
{
	http_out(set, h);
	h->ended = true;
	h->code = code;
}

/* libcurl hands over what it has kept, so this fails as a request does. */
static int http_resume(void *arg)
{
	struct svc_http *h = arg;

	return curl.pause(h->handle, PAUSE_CONTINUE);
}

static int set_perform(void *arg)
{
	struct svc_http_set *set = arg;
	int running;

	return curl.set_perform(set->handle, &running);
}

void svc_http_run(struct svc_http_set *set)
{
	struct message *m;
	int left;

	if (set->first == NULL)
		return;
	for (struct svc_http *h = set->first, *next; h != NULL; h = next) {
		next = h->next;
		if (h->held && !h->hold && !svc_http_waits(h)) {
			int code;

			h->held = false;
			code = http_guarded(http_resume, h);
			if (code != 0)
				http_over(set, h, code);
		}
	}
	(void)http_guarded(set_perform, set);
	while ((m = curl.set_read(set->handle, &left)) != NULL) {
		void *handle = m->handle;
		int code = m->data.code;
		struct svc_http *h = set->first;

		while (h != NULL && h->handle != handle)
			h = h->next;
		if (h == NULL || m->message != MESSAGE_DONE)
			continue;
		http_over(set, h, code); /* which frees the message */
	}
}

bool svc_http_ended(struct svc_http *h, struct svc_http_answer *answer)
{
	if (!h->ended)
		return false;
	h->ended = false;
	http_answer(h, h->code, answer);
	return true;
}

void svc_http_cancel(struct svc_http_set *set, struct svc_http *h)
{
	http_out(set, h);
	h->ended = false;
}

void svc_http_hold(struct svc_http *h, bool hold)
{
	h->hold = hold;
}

bool svc_http_held(const struct svc_http *h)
{
	return h->held;
}

const char *svc_http_line(struct svc_http *h, size_t *len)
{
	const char *line, *end;

	if (!svc_http_waits(h))
		return NULL;
	line = h->body + h->taken;
	end = memchr(line, '\n', h->lines - h->taken);
	if (end == NULL)
		return NULL;
	*len = (size_t)(end - line);
	h->taken += *len + 1;
	return line;
}

void svc_http_close(struct svc_http *h)
{
	curl.cleanup(h->handle);
	if (h->body != NULL)
		explicit_bzero(h->body, h->size); /* it may have had a token */
	free(h->body);
	free(h);
}
