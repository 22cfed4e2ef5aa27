/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_stream.c - see perf_stream.h. */
#include "tools/perf_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/hint.h"

enum { IDLE_YIELD = 256, IDLE_LOOK = 4096, WAIT_MS = 100, CLOSE_MS = 2000 };

/* ---- failing ---- */

bool perf_stream_fail(struct perf_stream *l, const char *fmt, ...)
{
	va_list args;

	if (l->failed)
		return false;
	l->failed = true;
	va_start(args, fmt);
	vsnprintf(l->text, sizeof(l->text), fmt, args);
	va_end(args);
	return false;
}

void perf_stream_complain(const struct perf_stream *l)
{
	fprintf(stderr, "xport_perf: %s%s%s\n", l->text, l->hint[0] != '\0' ? "\nxport_perf: hint: " : "", l->hint);
}

bool perf_stream_stopped(struct perf_stream *l)
{
	if (!atomic_load_explicit(l->stop, memory_order_relaxed))
		return false;
	l->stopped = !l->failed;
	perf_stream_fail(l, "another thread has failed");
	return true;
}

bool perf_stream_library(struct perf_stream *l, int status, const char *fmt, ...)
{
	struct xport_error e = {.size = sizeof(e)};
	char what[160];
	va_list args;

	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	if (xport_last_error(l->x, &e) != XPORT_OK || e.status != status)
		return perf_stream_fail(l, "%s: %s", what, xport_strerror(status));
	if (status == XPORT_ERR_PEER_LOST || status == XPORT_ERR_PEER_CLOSED)
		return perf_stream_fail(l, "the other side is lost, so there is no result: %s (%s)", e.text, what);
	if (!l->failed)
		snprintf(l->hint, sizeof(l->hint), "%s", tool_hint(&e));
	return perf_stream_fail(l, "%s: %s", what, e.text);
}

/* ---- life ---- */

bool perf_stream_open(struct perf_stream *l, const struct perf_options *o, int index, atomic_bool *stop)
{
	struct xport_attr attr = {.size = sizeof(attr), .backend = o->backend};
	struct xport_info info = {.size = sizeof(info)};
	int r;

	l->index = index;
	l->stop = stop;
	l->initiator = !o->server;
	r = xport_open(&attr, &l->x);
	if (r != XPORT_OK)
		return perf_stream_library(l, r, "opening");
	r = xport_query(l->x, &info);
	if (r != XPORT_OK)
		return perf_stream_library(l, r, "querying the instance");
	/* Beside a stack that makes progress by threads of its own, polling takes their core away. */
	l->wait = o->wait || info.stack_threads > 0;
	l->room = info.queue_depth - 1; /* beside the letter's */
	l->letter = malloc(PERF_MESSAGE);
	l->reply = malloc(PERF_MESSAGE);
	return (l->letter != NULL && l->reply != NULL) || perf_stream_fail(l, "out of memory");
}

bool perf_stream_endpoints(struct perf_stream *l, int n)
{
	struct perf_peer *peers = calloc((size_t)n, sizeof(*peers));

	if (peers == NULL)
		return perf_stream_fail(l, "out of memory");
	if (l->npeers > 0)
		peers[0] = l->peers[0];
	free(l->peers);
	l->peers = peers;
	l->npeers = n;
	return true;
}

static const uint32_t perf_rights = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC | XPORT_REMOTE_RECV;

/* A file without a name, all of it in the page cache. */
static bool stream_map_file(struct perf_stream *l, uint64_t len)
{
	const char *dir = getenv("TMPDIR");
	char name[PATH_MAX];
	void *p = MAP_FAILED;
	int fd;

	if (dir == NULL || dir[0] == '\0')
		dir = "/tmp";
	snprintf(name, sizeof(name), "%s/xport_perf-XXXXXX", dir);
	fd = mkstemp(name);
	if (fd < 0)
		return perf_stream_fail(l, "no file %s: %s", name, strerror(errno));
	unlink(name);
	errno = posix_fallocate(fd, 0, (off_t)len);
	if (errno == 0)
		p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return perf_stream_fail(l, "no file of %llu bytes in %s: %s", (unsigned long long)len, dir,
		                        strerror(errno));
	l->mine = p;
	l->mapped = len;
	return true;
}

static int stream_get_region(struct perf_stream *l, uint64_t span, enum perf_memory memory, uint32_t rights)
{
	if (memory == PERF_ALLOCATED)
		return xport_mr_alloc(l->x, 2 * span, rights, &l->mr);
	if (memory == PERF_REGISTERED)
		l->mine = aligned_alloc(4096, 2 * span);
	if (l->mine == NULL)
		return XPORT_ERR_NO_MEMORY;
	memset(l->mine, 0, 2 * span);
	return xport_mr_reg(l->x, l->mine, 2 * span, rights, &l->mr);
}

bool perf_stream_memory(struct perf_stream *l, uint64_t span, enum perf_memory memory)
{
	struct xport_mr_info info = {.size = sizeof(info)};
	int r;

	span = (span + 4095) & ~UINT64_C(4095);
	if (memory == PERF_MAPPED && !stream_map_file(l, 2 * span))
		return false;
	r = stream_get_region(l, span, memory, perf_rights);
	if (r == XPORT_OK)
		r = xport_mr_query(l->mr, &info);
	if (r != XPORT_OK)
		return perf_stream_library(l, r, "%llu bytes of memory", (unsigned long long)(2 * span));
	l->span = span;
	l->out = info.base;
	l->in = l->out + span;
	l->scratch = aligned_alloc(4096, span);
	return l->scratch != NULL || perf_stream_fail(l, "out of memory");
}

void perf_stream_close(struct perf_stream *l)
{
	/* The client goes first, so that the server hears a goodbye instead of a loss. */
	for (int i = 0; i < l->npeers; i++)
		if (l->peers[i].ep != NULL)
			(void)xport_ep_close(l->peers[i].ep, l->failed ? 0 : CLOSE_MS);
	xport_close(l->x);
	free(l->peers);
	free(l->receives);
	free(l->used);
	if (l->mapped > 0)
		munmap(l->mine, l->mapped);
	else
		free(l->mine);
	free(l->scratch);
	free(l->letter);
	free(l->reply);
	*l = (struct perf_stream){.failed = l->failed};
}

/* ---- progress ---- */

static void use_again(struct perf_stream *l, struct perf_posted *p)
{
	uint32_t at = l->first_used + l->nused++;

	l->used[at < l->nreceives ? at : at - l->nreceives] = p;
}

static bool took_message(struct perf_stream *l, const struct xport_completion *c)
{
	struct perf_posted *p = c->context;

	if (p == NULL) {
		/* Nothing follows the client's goodbye, and it may close before the answer to it has completed here. */
		if (l->ending && !l->initiator && c->status == XPORT_ERR_PEER_CLOSED)
			return true;
		l->letter_here = true;
		l->letter_len = c->length;
		return c->status == XPORT_OK || perf_stream_library(l, c->status, "a message from the other side");
	}
	l->receiving--;
	if (c->status == XPORT_ERR_CANCELED)
		return true;
	if (c->status != XPORT_OK)
		return perf_stream_library(l, c->status, "receiving");
	if (c->length != l->run.size)
		return perf_stream_fail(l, "a message has %llu bytes instead of %llu", (unsigned long long)c->length,
		                        (unsigned long long)l->run.size);
	p->from = c->tag;
	p->filled = true;
	use_again(l, p);
	l->arrived++;
	return true;
}

/* The value that comes with a put is the number of its slot. */
static bool took_notification(struct perf_stream *l, const struct xport_completion *c)
{
	l->arrived++;
	if (c->length == l->run.size && (c->length == 0 || c->offset == l->span + c->tag * l->run.stride))
		return true;
	return perf_stream_fail(l, "a notification reports %llu bytes at %llu instead of %llu at %llu",
	                        (unsigned long long)c->length, (unsigned long long)c->offset,
	                        (unsigned long long)l->run.size,
	                        (unsigned long long)(l->span + c->tag * l->run.stride));
}

/* All but operations of this side that went well. */
static bool stream_take(struct perf_stream *l, const struct xport_completion *c)
{
	switch (c->type) {
	case XPORT_OP_RECV:
		return took_message(l, c);
	case XPORT_EVENT_NOTIFY:
		return took_notification(l, c);
	case XPORT_EVENT_LOST:
	case XPORT_EVENT_CLOSED:
		if (l->ending && c->type == XPORT_EVENT_CLOSED)
			return true;
		return perf_stream_library(l, c->status != XPORT_OK ? c->status : XPORT_ERR_PEER_CLOSED,
		                           "between operations");
	case XPORT_EVENT_INCOMING:
	case XPORT_EVENT_CONNECTED:
		return true;
	default:
		return perf_stream_library(l, c->status, "an operation failed");
	}
}

/* Nothing came: yield the core, and do not wait for ever. */
static bool stream_idle(struct perf_stream *l, int n)
{
	if (n < 0)
		return perf_stream_library(l, n, "polling");
	l->idle++;
	if (l->idle == 1)
		l->idle_since = 0;
	if (l->idle % IDLE_YIELD == 0)
		sched_yield();
	if (l->idle % IDLE_LOOK != 0 && !l->wait)
		return true;
	if (perf_stream_stopped(l))
		return false;
	if (l->idle_since == 0 || l->patient)
		l->idle_since = perf_now();
	if (perf_now() - l->idle_since > PERF_PATIENCE_S * UINT64_C(1000000000))
		return perf_stream_fail(l, "the other side is connected, but nothing arrived from it for %d s",
		                        PERF_PATIENCE_S);
	return true;
}

static bool stream_reap(struct perf_stream *l, bool wait)
{
	struct xport_completion c[PERF_REAP];
	int n = wait ? xport_wait(l->x, c, PERF_REAP, WAIT_MS) : xport_poll(l->x, c, PERF_REAP);

	if (n <= 0)
		return stream_idle(l, n);
	l->idle = 0;
	for (int i = 0; i < n; i++) {
		if (c[i].type <= XPORT_OP_FLUSH && c[i].type != XPORT_OP_RECV && c[i].status == XPORT_OK) {
			const struct perf_token *token = c[i].context;

			*token->open -= token->amount;
		} else if (!stream_take(l, &c[i])) {
			return false;
		}
	}
	return true;
}

bool perf_stream_progress(struct perf_stream *l)
{
	return stream_reap(l, l->wait);
}

bool perf_stream_poll(struct perf_stream *l)
{
	return stream_reap(l, false);
}

bool perf_stream_watch(struct perf_stream *l)
{
	bool sleeps = l->wait && (l->run.test->messages || l->run.test->notifies), good = stream_reap(l, sleeps);

	if (l->wait && !sleeps)
		sched_yield();
	return good;
}

bool perf_stream_drain(struct perf_stream *l, const uint32_t *open, uint32_t most)
{
	/* The other side may need receives before it gets as far. */
	while (*open > most)
		if (!perf_stream_progress(l) || !perf_stream_replenish(l))
			return false;
	return true;
}

bool perf_stream_await(struct perf_stream *l, uint64_t arrivals)
{
	while (l->arrived < arrivals)
		if (!perf_stream_progress(l) || !perf_stream_replenish(l))
			return false;
	return true;
}

/* ---- runs ---- */

static bool stream_post_receive(struct perf_stream *l, struct perf_posted *p)
{
	struct xport_opt opt = {.size = sizeof(opt), .context = p, .mr = l->mr, .id = &p->id};
	int r;

	while ((r = xport_recv(l->x, l->in + (uint64_t)p->buffer * l->run.stride, l->run.size, 0, PERF_CONTROL,
	                       &opt)) == XPORT_ERR_AGAIN)
		if (!perf_stream_poll(l))
			return false;
	l->receiving += r == XPORT_OK;
	return r == XPORT_OK || perf_stream_library(l, r, "posting a receive");
}

bool perf_stream_replenish(struct perf_stream *l)
{
	while (l->nused > 0 && l->receiving < l->room) {
		struct perf_posted *p = l->used[l->first_used++];

		l->first_used = l->first_used < l->nreceives ? l->first_used : 0;
		l->nused--;
		if (!stream_post_receive(l, p))
			return false;
	}
	return true;
}

static bool post_receives(struct perf_stream *l)
{
	l->nreceives = l->run.slots * (uint32_t)l->npeers;
	l->receives = calloc(l->nreceives, sizeof(*l->receives));
	l->used = calloc(l->nreceives, sizeof(*l->used));
	if (l->receives == NULL || l->used == NULL)
		return perf_stream_fail(l, "out of memory");
	if (l->room == 0)
		return perf_stream_fail(l, "XPORT_QUEUE_DEPTH=1 leaves no receive for messages: set it to 2 or more");
	for (uint32_t i = 0; i < l->nreceives; i++) {
		l->receives[i].buffer = i;
		use_again(l, &l->receives[i]);
	}
	return perf_stream_replenish(l);
}

static void begin_peer(struct perf_stream *l, struct perf_peer *p, uint32_t number)
{
	const struct perf_run *run = &l->run;
	bool by_flush = (run->test->flags & XPORT_QUIET) != 0;

	p->slot = p->unflushed = p->open = 0;
	p->posted = 0;
	p->first = number * run->slots;
	p->done = (struct perf_token){&p->open, 1};
	p->flushed = (struct perf_token){&p->open, by_flush ? run->chunk : 1};
	p->opt =
		(struct xport_opt){.size = sizeof(p->opt), .flags = run->test->flags, .context = &p->done, .mr = l->mr};
	p->flush = (struct xport_opt){.size = sizeof(p->flush), .context = &p->flushed};
}

bool perf_stream_begin(struct perf_stream *l, const struct perf_run *run)
{
	l->run = *run;
	l->arrived = 0;
	l->nused = l->first_used = l->receiving = l->nreceives = 0;
	for (int i = 0; i < l->npeers; i++)
		begin_peer(l, &l->peers[i], (uint32_t)i);
	/* A ping-pong by memory and a compare-and-swap begin with what is there. */
	if (run->seed != 0 || run->test->atomic || (run->latency && run->test->timing == PERF_HALF_TRIP))
		perf_verify_fill(l);
	return !run->test->messages || post_receives(l);
}

bool perf_stream_end(struct perf_stream *l)
{
	if (l->run.test == NULL || !l->run.test->messages)
		return true;
	for (uint32_t i = 0; i < l->nreceives; i++)
		(void)xport_cancel(l->x, l->receives[i].id);
	/* One that was matched already is not canceled, and completes when its message is here. */
	while (l->receiving > 0)
		if (!perf_stream_poll(l))
			return false;
	free(l->receives);
	free(l->used);
	l->receives = NULL;
	l->used = NULL;
	l->nused = 0;
	return true;
}

bool perf_stream_flush(struct perf_stream *l)
{
	uint32_t open = 0;
	struct perf_token token = {&open, 1};
	struct xport_opt opt = {.size = sizeof(opt), .context = &token};

	for (int i = 0; i < l->npeers; i++) {
		int r;

		while ((r = xport_flush(l->peers[i].ep, &opt)) == XPORT_ERR_AGAIN)
			if (!perf_stream_poll(l))
				return false;
		if (r != XPORT_OK)
			return perf_stream_library(l, r, "flush");
		open++;
	}
	return perf_stream_drain(l, &open, 0);
}
