/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * group_http.h - HTTP requests, by libcurl.so.4, which is loaded when it is used. libcurl may have sockets that a program
 * inherits which another thread starts meanwhile: a handle is to be closed soon.
 */
#ifndef SVC_GROUP_HTTP_H
#define SVC_GROUP_HTTP_H

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

#endif
