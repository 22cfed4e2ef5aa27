/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The source pmix: libpmix.so.2, which speaks to the PMIx server of the launcher, such as srun --mpi=pmix. The library has a
 * thread of its own. It calls back there, also after this source has given up: a call in progress has a block of its own.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/clock.h"
#include "services/group_pmix_abi.h"
#include "services/group_source.h"
#include "services/last_error.h"
#include "services/load.h"

enum { REPLY_MS = 10000 };

/* A call in progress. Two own it: the source, and PMIx until it has called back. */
struct pmix_call {
	atomic_int owners;
	atomic_bool done;
	int status;
	struct svc_pmix_proc own; /* of PMIx_Init */
	uint16_t type;
	uint32_t number;
	size_t len;
	uint8_t bytes[SVC_CARD_MAX];
};

struct pmix_source {
	struct svc_group_source head;
	struct svc_pmix_proc own;
	char key[32];
	struct pmix_call *call; /* in progress; NULL: none */
	int rank;               /* whose card the call gets */
};

static struct svc_pmix_calls pmix;
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
/* A PMIx_Init that did not return within its limit: there must be no other one. */
static atomic_bool stuck;
/* A process can join once: after it has left, the fences of the others do not wait for it any more. */
static bool used, left;

static int pmix_load(const char *operation)
{
	static bool loaded;
	struct svc_pmix_calls calls;
	const struct svc_symbol symbols[] = {
		{"PMIx_Init", &calls.init},         {"PMIx_Finalize", &calls.finalize}, {"PMIx_Put", &calls.put},
		{"PMIx_Commit", &calls.commit},     {"PMIx_Fence_nb", &calls.fence},    {"PMIx_Get_nb", &calls.get},
		{"PMIx_Error_string", &calls.text},
	};
	int r = XPORT_OK;

	pthread_mutex_lock(&load_lock);
	if (!loaded)
		r = svc_load("libpmix.so.2", "libpmix2", symbols, sizeof(symbols) / sizeof(symbols[0]), "pmix",
		             operation);
	if (!loaded && r == XPORT_OK) {
		pmix = calls;
		loaded = true;
	}
	pthread_mutex_unlock(&load_lock);
	return r;
}

static int pmix_failed(int status, const char *function, const char *operation)
{
	return svc_fail(XPORT_ERR_SYSTEM, operation,
	                "start by srun --mpi=pmix or another launcher with PMIx, and look for its own error",
	                "%s failed: %s", function, pmix.text(status));
}

/* ---- calls in progress ---- */

static struct pmix_call *call_new(const char *operation)
{
	struct pmix_call *c = calloc(1, sizeof(*c));

	if (c == NULL)
		svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	else
		atomic_store(&c->owners, 2);
	return c;
}

static void call_leave(struct pmix_call *c)
{
	if (c != NULL && atomic_fetch_sub(&c->owners, 1) == 1)
		free(c);
}

static void call_done(int status, void *arg)
{
	struct pmix_call *c = arg;

	c->status = status;
	atomic_store(&c->done, true);
	call_leave(c);
}

static void call_value(int status, struct svc_pmix_value *value, void *arg)
{
	struct pmix_call *c = arg;

	if (status == SVC_PMIX_OK && value != NULL) {
		c->type = value->type;
		if (value->type == SVC_PMIX_UINT32)
			c->number = value->data.number;
		if (value->type == SVC_PMIX_BYTES && value->data.block.size <= sizeof(c->bytes)) {
			c->len = value->data.block.size;
			memcpy(c->bytes, value->data.block.bytes, c->len);
		}
	}
	call_done(status, c);
}

/* Waits until the call is done. False: `ms` passed. */
static bool call_wait(struct pmix_call *c, int ms)
{
	int64_t until = svc_now_ms() + ms;

	while (!atomic_load(&c->done)) {
		if (svc_now_ms() >= until)
			return false;
		poll(NULL, 0, 1);
	}
	return true;
}

/* ---- the life of a source ---- */

static int pmix_join(const char *operation)
{
	bool busy, gone;

	pthread_mutex_lock(&load_lock);
	busy = used;
	gone = left;
	used = true;
	pthread_mutex_unlock(&load_lock);
	return !busy ? XPORT_OK
	             : svc_fail(XPORT_ERR_NOT_SUPPORTED, operation,
	                        "keep the first group, or use XPORT_GROUP=root:HOST:PORT",
	                        "this process %s the launcher's PMIx: that can be joined only once",
	                        gone ? "has left" : "has a group that uses");
}

/* `initialised`: PMIx_Init has succeeded. */
static void pmix_leave(bool initialised)
{
	pthread_mutex_lock(&load_lock);
	left = left || initialised;
	used = left;
	pthread_mutex_unlock(&load_lock);
	if (initialised)
		(void)pmix.finalize(NULL, 0);
}

static void *init_thread(void *arg)
{
	struct pmix_call *c = arg;

	call_done(pmix.init(&c->own, NULL, 0), c);
	return NULL;
}

static int pmix_late(const char *what, const char *operation)
{
	return svc_fail(XPORT_ERR_TIMEOUT, operation, "look for the launcher's own error",
	                "the PMIx server did not answer %s within %d ms", what, REPLY_MS);
}

/* PMIx_Init has no limit of its own: a thread waits for it. */
static int pmix_init(struct svc_pmix_proc *own, const char *operation)
{
	pthread_attr_t attr;
	struct pmix_call *c;
	pthread_t thread;
	int e, r;

	if (atomic_load(&stuck))
		return pmix_late("PMIx_Init", operation);
	c = call_new(operation);
	if (c == NULL)
		return XPORT_ERR_NO_MEMORY;
	e = pthread_attr_init(&attr);
	if (e == 0) {
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
		e = pthread_create(&thread, &attr, init_thread, c);
		pthread_attr_destroy(&attr);
	}
	if (e != 0) {
		free(c);
		return svc_fail(XPORT_ERR_SYSTEM, operation, NULL, "cannot start a thread for PMIx_Init: %s",
		                strerror(e));
	}
	if (!call_wait(c, REPLY_MS)) {
		atomic_store(&stuck, true);
		r = pmix_late("PMIx_Init", operation);
	} else {
		*own = c->own;
		r = c->status == SVC_PMIX_OK ? XPORT_OK : pmix_failed(c->status, "PMIx_Init", operation);
	}
	call_leave(c);
	return r;
}

static int pmix_members(const struct svc_pmix_proc *own, int *members, const char *operation)
{
	struct svc_pmix_proc any = *own;
	struct pmix_call *c = call_new(operation);
	int status, r;

	if (c == NULL)
		return XPORT_ERR_NO_MEMORY;
	any.rank = SVC_PMIX_ANY_RANK;
	status = pmix.get(&any, SVC_PMIX_JOB_SIZE, NULL, 0, call_value, c);
	if (status != SVC_PMIX_OK) {
		free(c);
		return pmix_failed(status, "PMIx_Get of the number of processes", operation);
	}
	if (!call_wait(c, REPLY_MS))
		r = pmix_late("PMIx_Get", operation);
	else if (c->status != SVC_PMIX_OK)
		r = pmix_failed(c->status, "PMIx_Get of the number of processes", operation);
	else if (c->type != SVC_PMIX_UINT32 || c->number <= own->rank || c->number > SVC_GROUP_MEMBERS_MAX)
		r = svc_fail(XPORT_ERR_PROTOCOL, operation, "at most 1048576 processes",
		             "PMIx says that the job has %u processes, and that this is rank %u", c->number, own->rank);
	else
		r = XPORT_OK;
	*members = (int)c->number;
	call_leave(c);
	return r;
}

static int pmix_offer(struct svc_group_source *s, const struct svc_group_card *card, int slice_ms)
{
	struct pmix_source *p = (struct pmix_source *)s;
	struct svc_pmix_value value = {.type = SVC_PMIX_BYTES};
	uint8_t bytes[SVC_CARD_MAX];
	int status;

	(void)slice_ms;
	value.data.block.bytes = (char *)bytes;
	value.data.block.size = svc_card_encode(card, bytes);
	status = pmix.put(SVC_PMIX_GLOBAL, p->key, &value);
	if (status != SVC_PMIX_OK)
		return pmix_failed(status, "PMIx_Put", s->operation);
	status = pmix.commit();
	return status == SVC_PMIX_OK ? XPORT_OK : pmix_failed(status, "PMIx_Commit", s->operation);
}

/* Waits for the call in progress. OK: it has succeeded, and is the caller's to leave. */
static int pmix_end(struct pmix_source *p, const char *function, int slice_ms, struct pmix_call **c)
{
	*c = p->call;
	if (!call_wait(*c, slice_ms))
		return XPORT_ERR_AGAIN;
	p->call = NULL;
	if ((*c)->status == SVC_PMIX_OK)
		return XPORT_OK;
	pmix_failed((*c)->status, function, p->head.operation);
	call_leave(*c);
	return XPORT_ERR_SYSTEM;
}

static int pmix_ready(struct svc_group_source *s, int slice_ms)
{
	struct pmix_source *p = (struct pmix_source *)s;
	struct svc_pmix_info collect = {.key = SVC_PMIX_COLLECT, .value.type = SVC_PMIX_BOOL, .value.data.flag = true};
	struct pmix_call *c;
	int status, r;

	if (p->call == NULL) {
		p->call = call_new(s->operation);
		if (p->call == NULL)
			return XPORT_ERR_NO_MEMORY;
		status = pmix.fence(NULL, 0, &collect, 1, call_done, p->call);
		if (status != SVC_PMIX_OK) {
			free(p->call);
			p->call = NULL;
			return pmix_failed(status, "PMIx_Fence", s->operation);
		}
	}
	r = pmix_end(p, "PMIx_Fence", slice_ms, &c);
	if (r == XPORT_OK)
		call_leave(c);
	return r;
}

static int pmix_card(struct svc_group_source *s, int rank, struct svc_group_card *card, int slice_ms)
{
	struct pmix_source *p = (struct pmix_source *)s;
	struct svc_pmix_proc of = p->own;
	struct pmix_call *c;
	int status, r;

	of.rank = (uint32_t)rank;
	if (p->call != NULL && p->rank != rank) {
		/* Its caller has given up. */
		call_leave(p->call);
		p->call = NULL;
	}
	if (p->call == NULL) {
		p->rank = rank;
		p->call = call_new(s->operation);
		if (p->call == NULL)
			return XPORT_ERR_NO_MEMORY;
		status = pmix.get(&of, p->key, NULL, 0, call_value, p->call);
		if (status != SVC_PMIX_OK) {
			free(p->call);
			p->call = NULL;
			return pmix_failed(status, "PMIx_Get", s->operation);
		}
	}
	r = pmix_end(p, "PMIx_Get", slice_ms, &c);
	if (r != XPORT_OK)
		return r;
	if (c->type != SVC_PMIX_BYTES || !svc_card_decode(card, c->bytes, c->len) || card->rank != rank ||
	    card->members != s->members)
		r = svc_fail(XPORT_ERR_PROTOCOL, s->operation, "all members need the same version of libxport_services",
		             "what PMIx has of rank %d is not the card of a member", rank);
	call_leave(c);
	return r;
}

static void pmix_missing(struct svc_group_source *s, char *text, size_t size)
{
	(void)s;
	snprintf(text, size, "a process that has not called xport_group_create; PMIx does not say which");
}

static void pmix_close(struct svc_group_source *s)
{
	struct pmix_source *p = (struct pmix_source *)s;

	call_leave(p->call);
	pmix_leave(true);
	free(p);
}

static const struct svc_group_source_ops pmix_ops = {
	.name = "pmix",
	.offer = pmix_offer,
	.ready = pmix_ready,
	.card = pmix_card,
	.missing = pmix_missing,
	.close = pmix_close,
};

int svc_group_pmix_open(struct svc_group_source **source, const char *operation)
{
	struct svc_pmix_proc own;
	struct pmix_source *p;
	int members = 0, r;

	/* Without it PMIx_Init makes a server-less job of one process. */
	if (secure_getenv("PMIX_NAMESPACE") == NULL)
		return svc_fail(XPORT_ERR_CONFIG, operation, "start by srun --mpi=pmix, or set XPORT_GROUP",
		                "the source pmix needs PMIX_NAMESPACE, which is not set");
	r = pmix_load(operation);
	if (r == XPORT_OK)
		r = pmix_join(operation);
	if (r != XPORT_OK)
		return r;
	r = pmix_init(&own, operation);
	if (r != XPORT_OK) {
		pmix_leave(false);
		return r;
	}
	r = pmix_members(&own, &members, operation);
	p = r == XPORT_OK ? calloc(1, sizeof(*p)) : NULL;
	if (p == NULL) {
		pmix_leave(true);
		return r != XPORT_OK ? r : svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	}
	p->own = own;
	snprintf(p->key, sizeof(p->key), "xport.group");
	p->head.ops = &pmix_ops;
	p->head.rank = (int)own.rank;
	p->head.members = members;
	*source = &p->head;
	return XPORT_OK;
}
