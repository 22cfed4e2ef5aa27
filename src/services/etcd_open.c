/* SPDX-License-Identifier: BSD-3-Clause */
/* How a client of etcd begins and ends: its URLs, the variables XPORT_ETCD_*, and the password. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "services/etcd_client.h"
#include "services/etcd_impl.h"
#include "services/group_fd.h"
#include "services/last_error.h"

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
	char text[SVC_ETCD_PASSWORD_MAX + 2]; /* with a newline, or one byte too many */
	ssize_t n = -1;
	int fd = -1, r;

	if (path != NULL && path[0] != '\0')
		fd = svc_fd_open(path, O_RDONLY | O_NONBLOCK, 0);
	if (fd >= 0) {
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	if (n > SVC_ETCD_PASSWORD_MAX && memchr(text, '\n', (size_t)n) == NULL)
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
		    strpbrk(at, " \t\r\n\"?#") != NULL || e->urls == SVC_ETCD_URLS_MAX)
			break;
		while (len > 0 && at[len - 1] == '/')
			at[--len] = '\0';
		e->url[e->urls++] = at;
	}
	if (at != NULL || e->urls == 0) {
		char hint[120];

		snprintf(hint, sizeof(hint), "1 to 16 client URLs, for example %s=etcd:https://n1:2379,https://n2:2379",
		         e->use->variable);
		return svc_fail(XPORT_ERR_CONFIG, e->operation, hint, "\"etcd:%.200s\" has something that is no URL",
		                argument);
	}
	return XPORT_OK;
}

int svc_etcd_open(const char *argument, const struct svc_etcd_use *use, struct svc_etcd **etcd, const char *operation)
{
	struct svc_etcd *e = calloc(1, sizeof(*e));
	int r;

	if (e == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	e->operation = operation;
	e->use = use;
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
	e->tls = (struct svc_http_tls){.ca = e->ca, .certificate = e->certificate, .key = e->key};
	if (r == XPORT_OK)
		r = svc_http_open(&e->tls, "etcd", &e->http, operation);
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
