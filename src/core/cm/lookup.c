/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lookup.c - looking up a host name while the instance goes on.
 *
 * A resolver that does not answer cannot be interrupted. A lookup that nobody waits for any more is kept in a list until
 * the C library has let go of it.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "core/cm/lookup.h"

#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/list.h"

struct xpi_lookup {
	struct xpi_list link; /* in `dropped` */
	struct xpi_name name;
	char dotted[XPI_HOST_MAX + 2], service[8];
	struct addrinfo hints;
	int n;
	struct gaicb request[2]; /* in the order of preference */
};

static pthread_mutex_t dropped_lock = PTHREAD_MUTEX_INITIALIZER;
static struct xpi_list dropped = {&dropped, &dropped};

/* Whether the C library is through with all requests. */
static bool is_over(struct xpi_lookup *l)
{
	static const struct timespec none = {0};

	for (int i = 0; i < l->n; i++) {
		const struct gaicb *const one[] = {&l->request[i]};

		if (gai_error(&l->request[i]) == EAI_INPROGRESS)
			return false;
		/* Takes the lock under which the result was written. */
		(void)gai_suspend(one, 1, &none);
	}
	return true;
}

static void lookup_free(struct xpi_lookup *l)
{
	for (int i = 0; i < l->n; i++)
		if (l->request[i].ar_result != NULL)
			freeaddrinfo(l->request[i].ar_result);
	free(l);
}

/* Frees those that were dropped, as far as their end has come. */
static void sweep(void)
{
	pthread_mutex_lock(&dropped_lock);
	xpi_list_for_safe(pos, &dropped) {
		struct xpi_lookup *l = xpi_container(pos, struct xpi_lookup, link);

		if (!is_over(l))
			continue;
		xpi_list_del(&l->link);
		lookup_free(l);
	}
	pthread_mutex_unlock(&dropped_lock);
}

struct xpi_lookup *xpi_lookup_start(const struct xpi_name *name, struct xport_error *err)
{
	struct sigevent silent = {.sigev_notify = SIGEV_NONE};
	struct xpi_lookup *l = calloc(1, sizeof(*l));
	struct gaicb *list[2];
	int code;

	sweep();
	if (l == NULL) {
		xpi_fail(err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory to look up \"%s\"", name->host);
		return NULL;
	}
	l->name = *name;
	l->hints = (struct addrinfo){.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	snprintf(l->service, sizeof(l->service), "%u", name->port);
	snprintf(l->dotted, sizeof(l->dotted), "%s.", name->host);
	if (name->absolute)
		l->request[l->n++].ar_name = l->dotted;
	l->request[l->n++].ar_name = l->name.host;
	for (int i = 0; i < l->n; i++) {
		l->request[i].ar_service = l->service;
		l->request[i].ar_request = &l->hints;
		list[i] = &l->request[i];
	}
	code = getaddrinfo_a(GAI_NOWAIT, list, l->n, &silent);
	if (code == 0)
		return l;
	(void)xpi_addr_take(name, code, NULL, &(struct xpi_addrs){0}, err);
	xpi_lookup_drop(l); /* the first request may be under way */
	return NULL;
}

int xpi_lookup_poll(struct xpi_lookup *l, struct xpi_addrs *out, struct xport_error *err)
{
	int rc = XPORT_ERR_UNREACHABLE;

	if (!is_over(l))
		return 0;
	for (int i = 0; i < l->n && rc != XPORT_OK; i++) {
		rc = xpi_addr_take(&l->name, gai_error(&l->request[i]), l->request[i].ar_result, out, err);
		l->request[i].ar_result = NULL;
	}
	return rc == XPORT_OK ? 1 : rc;
}

void xpi_lookup_drop(struct xpi_lookup *l)
{
	if (l == NULL)
		return;
	for (int i = 0; i < l->n; i++)
		(void)gai_cancel(&l->request[i]);
	if (is_over(l)) {
		lookup_free(l);
		return;
	}
	pthread_mutex_lock(&dropped_lock);
	xpi_list_push(&dropped, &l->link);
	pthread_mutex_unlock(&dropped_lock);
}
