/* SPDX-License-Identifier: BSD-3-Clause */
/* etcd_impl.h - what the files of the etcd client share: etcd_open.c, etcd_client.c (it waits) and etcd_async.c (it does not). */
#ifndef SVC_ETCD_IMPL_H
#define SVC_ETCD_IMPL_H

#include "services/etcd_client.h"
#include "services/http.h"

enum { SVC_ETCD_URLS_MAX = 16, SVC_ETCD_PASSWORD_MAX = 256, SVC_ETCD_URL_BYTES = 1100, SVC_ETCD_LOGIN_BYTES = 1000 };

#define SVC_ETCD_LOGIN "/v3/auth/authenticate"

struct svc_etcd {
	const char *operation;
	const struct svc_etcd_use *use;
	struct svc_http *http;
	char *text; /* the URLs, each with a NUL */
	const char *url[SVC_ETCD_URLS_MAX];
	int urls, now;
	int asked;     /* the member that the answer in hand is of */
	bool too_long; /* it was longer than is allowed */
	char *ca, *certificate, *key, *user, *password;
	struct svc_http_tls tls;            /* of these */
	char token[SVC_HTTP_TOKEN_MAX + 1]; /* "": none yet */
	char why[300];
};

/* Remembers why this member did not answer, and takes the next one. */
void svc_etcd_next(struct svc_etcd *e, const char *why);
/* What a member answered to the request `path`.  Returns as the calls of etcd_client.h; OK: *answer is to be freed. */
int svc_etcd_judge(struct svc_etcd *e, const char *path, const struct svc_http_answer *a, struct svc_json **answer);
/* An answer that was read from a stream: OK if it is no error.  *expired: the token was not valid any more. */
int svc_etcd_error(struct svc_etcd *e, const struct svc_json *answer, bool *expired);
/* The request SVC_ETCD_LOGIN, which has the password: the caller wipes it.  And the token of its answer. */
int svc_etcd_login_body(struct svc_etcd *e, char *body, size_t size);
int svc_etcd_login_take(struct svc_etcd *e, const struct svc_json *answer);

#endif
