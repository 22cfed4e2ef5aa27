/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lookup.c - looking up a host name while the instance goes on.
 *
 * A resolver that does not answer cannot be interrupted. So each lookup has a thread of its own, and belongs to both: to
 * that thread, and to the handshake. The one that lets go of it last frees it. A process has few such threads at a time;
 * other lookups wait for them.
 */
#include "core/cm/lookup.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/error.h"

enum { THREADS_MAX = 16, STACK = 256 << 10 };

static atomic_int threads; /* of this process */

struct xpi_lookup {
	struct xpi_name name;
	bool started; /* the handshake's alone */
	atomic_int owners;
	atomic_bool done; /* The thread writes the fields below until it is set. The handshake reads them after that. */
	int status;
	struct xpi_addrs addrs;
	struct xport_error err;
};

void xpi_lookup_drop(struct xpi_lookup *l)
{
	if (l != NULL && atomic_fetch_sub(&l->owners, 1) == 1)
		free(l);
}

static void *lookup_run(void *arg)
{
	struct xpi_lookup *l = arg;

	l->status = xpi_addr_lookup(&l->name, &l->addrs, &l->err);
	atomic_store_explicit(&l->done, true, memory_order_release);
	xpi_lookup_drop(l);
	atomic_fetch_sub(&threads, 1);
	return NULL;
}

/* The signals of the program are not for this thread. Returns an errno. */
static int thread_start(struct xpi_lookup *l)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	int e = pthread_attr_init(&attr);

	if (e != 0)
		return e;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	(void)pthread_attr_setstacksize(&attr, STACK);
	e = pthread_create(&thread, &attr, lookup_run, l);
	/* Another library's thread-local storage may need more than that. */
	if (e == EINVAL)
		e = pthread_create(&thread, NULL, lookup_run, l);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (e == 0)
		pthread_detach(thread);
	return e;
}

/* Starts the thread, if there may be one more now; else a later call does. */
static int start(struct xpi_lookup *l, struct xport_error *err)
{
	int e;

	if (atomic_fetch_add(&threads, 1) >= THREADS_MAX) {
		atomic_fetch_sub(&threads, 1);
		return XPORT_OK;
	}
	atomic_fetch_add(&l->owners, 1);
	e = thread_start(l);
	l->started = e == 0;
	if (e == 0)
		return XPORT_OK;
	atomic_fetch_sub(&threads, 1);
	atomic_fetch_sub(&l->owners, 1);
	errno = e;
	return xpi_fail_errno(err, e == ENOMEM ? XPORT_ERR_NO_MEMORY : XPORT_ERR_SYSTEM, "give a numeric address",
	                      "cannot start a thread to look up \"%s\"", l->name.host);
}

struct xpi_lookup *xpi_lookup_start(const struct xpi_name *name, struct xport_error *err)
{
	struct xpi_lookup *l = calloc(1, sizeof(*l));

	if (l == NULL) {
		xpi_fail(err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory to look up \"%s\"", name->host);
		return NULL;
	}
	l->name = *name;
	atomic_init(&l->owners, 1);
	if (start(l, err) == XPORT_OK)
		return l;
	free(l);
	return NULL;
}

int xpi_lookup_poll(struct xpi_lookup *l, struct xpi_addrs *out, struct xport_error *err)
{
	if (!l->started)
		return start(l, err);
	if (!atomic_load_explicit(&l->done, memory_order_acquire))
		return 0;
	if (l->status == XPORT_OK) {
		*out = l->addrs;
		return 1;
	}
	xpi_fail(err, l->status, l->err.native_code, l->err.native[0] != '\0' ? l->err.native : NULL,
	         l->err.hint[0] != '\0' ? l->err.hint : NULL, "%s", l->err.text);
	return l->status;
}
