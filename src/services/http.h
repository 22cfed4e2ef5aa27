/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * http.h - HTTP requests, by libcurl.so.4, which is loaded when it is used. libcurl may have sockets that a program
 * inherits which another thread starts meanwhile: a handle is to be closed soon.
 */
#ifndef SVC_HTTP_H
#define SVC_HTTP_H

#include <stdbool.h>
#include <stddef.h>

struct svc_http;

enum { SVC_HTTP_TOKEN_MAX = 4096 };

/* Files of certificates and of a key; NULL: those of the system, or none. The strings must last as long as the handle. */
struct svc_http_tls {
	const char *ca, *certificate, *key;
};

enum svc_http_end {
	SVC_HTTP_ANSWERED, /* status and body are set */
	SVC_HTTP_AWAY,     /* no answer within the time, or no connection */
	SVC_HTTP_REFUSED,  /* TLS: a certificate of either side is wrong */
	SVC_HTTP_TOO_LONG, /* the body is longer than is allowed */
	SVC_HTTP_NO_MEMORY
};

struct svc_http_answer {
	enum svc_http_end end;
	int status;
	char *body; /* valid until the next request */
	size_t len;
	char why[200]; /* if it was not answered */
};

int svc_http_open(const struct svc_http_tls *tls, const char *source, struct svc_http **http, const char *operation);
/* POSTs JSON. `token`, if not "", goes into the header Authorization. */
void svc_http_post(struct svc_http *http, const char *url, const char *body, const char *token, int timeout_ms,
                   struct svc_http_answer *answer);
void svc_http_close(struct svc_http *http);

/* ---- requests that do not wait ---- */

/* Requests that libcurl moves. Each handle has at most one. */
struct svc_http_set;

int svc_http_set_open(struct svc_http_set **set, const char *operation);
/* No request may be in flight. NULL: nothing. */
void svc_http_set_close(struct svc_http_set *set);
/*
 * Starts a request, as svc_http_post does. The URL and the body must last until it has ended. `stream`: the time limit is that of
 * the connection only, and lines are taken from the answer while it comes. False: out of memory.
 */
bool svc_http_start(struct svc_http_set *set, struct svc_http *http, const char *url, const char *body,
                    const char *token, int timeout_ms, bool stream);
/* Moves all requests, and does not wait. */
void svc_http_run(struct svc_http_set *set);
/* Whether the request of this handle has ended; then *answer is set. Returns true once for each. */
bool svc_http_ended(struct svc_http *http, struct svc_http_answer *answer);
/* Ends the request of this handle, if there is one. */
void svc_http_cancel(struct svc_http_set *set, struct svc_http *http);
/* The next line of a stream, without its newline. It is valid until svc_http_run. NULL: none has come. */
const char *svc_http_line(struct svc_http *http, size_t *len);
/* Whether a whole line waits. Then the stream takes no more bytes: the server has to wait. */
bool svc_http_waits(const struct svc_http *http);
/* Whether a stream takes no more bytes for now. */
void svc_http_hold(struct svc_http *http, bool hold);
/* Whether bytes of a stream have come that were not taken. */
bool svc_http_held(const struct svc_http *http);

#endif
