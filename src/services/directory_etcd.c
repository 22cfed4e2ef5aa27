/* SPDX-License-Identifier: BSD-3-Clause */
/* A directory in etcd: its requests, their order, and their outcome. */
#include "services/directory_etcd.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "services/clock.h"
#include "services/group_source.h"
#include "services/last_error.h"

enum {
	TTL_S = 10,
	REQUEST_MS = 3000, /* that a member of etcd has for one of ours */
	PROBE_MS = 3000,
	PAUSE_MS = 50,
	PAUSE_MAX_MS = 1000,
	BUSY_US = 200,
	IDLE_US = 10000
};

static const char etcd_op[] = "xport_directory";
const struct svc_etcd_use svc_dir_etcd_use = {.name = "directory",
                                              .variable = "XPORT_DIRECTORY",
                                              .prefix = "xport/directory/",
                                              .stranger = "remove it, or set another XPORT_DIRECTORY_NAME"};

static int64_t etcd_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ---- errors ---- */

void svc_dir_etcd_keep_why(char why[300], int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (xport_services_last_error(&e) == XPORT_OK && e.status == status)
		snprintf(why, 300, "%.290s", e.text);
}

/* What failed is kept: the request that it ends gets it, and xport_directory_query. */
void svc_dir_etcd_failed(struct svc_dir_etcd *s, enum svc_dir_call call, int status)
{
	svc_dir_etcd_keep_why(s->why, status);
	s->try_at[call] = svc_now_ms() + PAUSE_MAX_MS;
}

const char *svc_dir_etcd_why(const struct xport_directory *d)
{
	const struct svc_dir_etcd *s = d->etcd;

	return s->why[0] != '\0' ? s->why : svc_etcd_why(s->etcd)[0] != '\0' ? svc_etcd_why(s->etcd) : s->watch_why;
}

/* How long to wait after so many failures: the next request follows at once until all members were asked. */
static int64_t etcd_pause(int fails)
{
	int64_t pause = fails < 3 ? 0 : (int64_t)PAUSE_MS << (fails - 3 > 5 ? 5 : fails - 3);

	return pause > PAUSE_MAX_MS ? PAUSE_MAX_MS : pause;
}

/* No member has answered, or each says that it cannot do this now. */
static void etcd_away(struct svc_dir_etcd *s)
{
	int64_t now = svc_now_ms();

	s->start_at = now + etcd_pause(s->silent++);
	s->try_at[s->call] = now + etcd_pause(s->fails[s->call]++);
}

/* ---- another etcd ---- */

void svc_dir_etcd_anew(struct xport_directory *d)
{
	struct svc_dir_etcd *s = d->etcd;

	svc_dir_etcd_watch_end(s);
	svc_dir_etcd_miss(d);
	s->revision = -1;
	s->seen = s->written = 0;
	if (d->watching)
		svc_dir_etcd_list(s);
}

/*
 * True: this is another etcd than before, or it was restored from a copy.  Only a member's own words about a lease may be behind
 * what another one has said.
 */
static bool etcd_changed(struct xport_directory *d, const struct svc_json *answer)
{
	struct svc_dir_etcd *s = d->etcd;
	const char *cluster = svc_json_text(svc_json_member(svc_json_member(answer, "header"), "cluster_id"));
	int64_t revision = svc_dir_etcd_revision(answer);
	bool lease = s->call == SVC_DIR_CALL_GRANT || s->call == SVC_DIR_CALL_KEEP;
	bool changed = (cluster != NULL && s->cluster[0] != '\0' &&
	                strncmp(cluster, s->cluster, sizeof(s->cluster) - 1) != 0) ||
	               (!lease && revision > 0 && revision < s->seen);

	if (changed) {
		svc_dir_etcd_own_doubt(s);
		svc_dir_etcd_anew(d);
	}
	if (cluster != NULL)
		snprintf(s->cluster, sizeof(s->cluster), "%.23s", cluster);
	if (!lease && revision > s->seen)
		s->seen = revision;
	return changed;
}

/* ---- one request after the other ---- */

static int page_done(struct xport_directory *d, int r, const struct svc_json *answer)
{
	if (r == XPORT_OK)
		r = svc_dir_etcd_page(d, answer);
	else if (svc_dir_etcd_page_less(d->etcd))
		r = XPORT_OK;
	if (r != XPORT_ERR_STALE_KEY)
		return r;
	svc_dir_etcd_miss(d);
	svc_dir_etcd_list(d->etcd);
	return XPORT_OK;
}

static int revision_done(struct svc_dir_etcd *s, int r, const struct svc_json *answer)
{
	if (r == XPORT_OK && svc_dir_etcd_revision(answer) == 0)
		r = svc_fail(XPORT_ERR_PROTOCOL, etcd_op, "name the client URLs of an etcd of version 3.4 or later",
		             "etcd gave no revision");
	if (r == XPORT_OK && s->call == SVC_DIR_CALL_REVISION)
		s->revision = svc_dir_etcd_revision(answer);
	return r;
}

static void call_done(struct xport_directory *d, int r, const struct svc_json *answer)
{
	struct svc_dir_etcd *s = d->etcd;
	int64_t now = svc_now_ms();

	if (r == XPORT_ERR_AGAIN) {
		etcd_away(s);
		return;
	}
	s->silent = s->fails[s->call] = 0;
	s->probe_at = now + PROBE_MS;
	if (r == XPORT_OK) {
		s->why[0] = '\0';
		s->answered_at = now;
		if (etcd_changed(d, answer) && s->call == SVC_DIR_CALL_PAGE)
			return;
	}
	switch (s->call) {
	case SVC_DIR_CALL_KEEP:
		svc_dir_etcd_lease_kept(s, r, answer);
		r = r == XPORT_ERR_UNREACHABLE ? XPORT_OK : r;
		break;
	case SVC_DIR_CALL_AGAIN:
		svc_dir_etcd_again_done(d, r, answer);
		return;
	case SVC_DIR_CALL_PAGE:
		r = page_done(d, r, answer);
		break;
	case SVC_DIR_CALL_FRONT:
		svc_dir_etcd_front_done(d, r, answer);
		return;
	case SVC_DIR_CALL_GRANT:
		if (r == XPORT_OK)
			r = svc_dir_etcd_lease_granted(s, answer);
		/* Only puts need it. Without a lease for entries that were lost, the others go on. */
		if (r != XPORT_OK && s->queue != NULL && s->queue->type == SVC_DIR_PUT)
			svc_dir_etcd_pop(d, r, NULL);
		break;
	default:
		r = revision_done(s, r, answer);
		break;
	}
	if (r != XPORT_OK)
		svc_dir_etcd_failed(s, s->call, r);
}

static char *revision_body(const struct svc_dir_etcd *s)
{
	char key[SVC_DIR_ETCD_KEY_TEXT];

	svc_dir_etcd_key(s->names, NULL, 0, key);
	return svc_dir_etcd_body("{\"key\":\"%s\",\"count_only\":true}", key);
}

/* A member that is suspended must not take the time of the lease. */
static int request_ms(const struct svc_dir_etcd *s)
{
	int quarter = (s->lease != 0 ? s->ttl_s : s->asked_ttl_s) * 250;

	return quarter < REQUEST_MS ? quarter : REQUEST_MS;
}

int svc_dir_etcd_start(struct svc_dir_etcd *s, enum svc_dir_call call, const char *path, char *body, int64_t until)
{
	int64_t left = until - svc_now_ms();
	int most = request_ms(s), ms = left > most ? most : left < 1 ? 1 : (int)left;

	s->call = call;
	return svc_etcd_start(s->async, path, body, ms);
}

static int grant_start(struct svc_dir_etcd *s)
{
	return svc_dir_etcd_start(s, SVC_DIR_CALL_GRANT, "/v3/lease/grant",
	                          svc_dir_etcd_body("{\"TTL\":%d}", s->asked_ttl_s), INT64_MAX);
}

static bool call_due(const struct svc_dir_etcd *s, enum svc_dir_call call)
{
	return svc_now_ms() >= s->try_at[call];
}

/* What goes on by itself.  *begun is false: nothing is to be done. */
static int own_start(struct xport_directory *d, bool *begun)
{
	struct svc_dir_etcd *s = d->etcd;
	int64_t mod[SVC_DIR_ETCD_BATCH] = {0};

	*begun = true;
	if (s->lease == 0 && s->away > 0 && call_due(s, SVC_DIR_CALL_GRANT))
		return grant_start(s);
	if (s->lease != 0 && s->away > 0 && call_due(s, SVC_DIR_CALL_AGAIN) && svc_dir_etcd_own_away(s)) {
		for (unsigned i = 0; i < s->nagain; i++)
			mod[i] = s->again[i]->mod;
		return svc_dir_etcd_start(s, SVC_DIR_CALL_AGAIN, "/v3/kv/txn",
		                          svc_dir_etcd_put_body(s, s->again, mod, s->nagain), INT64_MAX);
	}
	if (d->watching && s->listing && !svc_dir_etcd_crowded(d) && !s->missed && call_due(s, SVC_DIR_CALL_PAGE))
		return svc_dir_etcd_start(s, SVC_DIR_CALL_PAGE, "/v3/kv/range", svc_dir_etcd_page_body(s), INT64_MAX);
	*begun = false;
	return XPORT_OK;
}

/* A put without a lease gets one first; its failure ends the put. */
static int queue_start(struct xport_directory *d, bool *begun)
{
	struct svc_dir_etcd *s = d->etcd;

	*begun = s->queue != NULL;
	if (s->queue == NULL)
		return XPORT_OK;
	return s->queue->type == SVC_DIR_PUT && s->lease == 0 ? grant_start(s) : svc_dir_etcd_front(d);
}

/* Starts what is needed most. OK: it was started, or nothing is needed. */
static int call_next(struct xport_directory *d)
{
	struct svc_dir_etcd *s = d->etcd;
	int64_t now = svc_now_ms();
	bool begun;
	int r;

	if (s->revision < 0 && call_due(s, SVC_DIR_CALL_REVISION))
		return svc_dir_etcd_start(s, SVC_DIR_CALL_REVISION, "/v3/kv/range", revision_body(s), INT64_MAX);
	if (s->lease != 0 && now >= s->renew_at && call_due(s, SVC_DIR_CALL_KEEP))
		return svc_dir_etcd_start(s, SVC_DIR_CALL_KEEP, "/v3/lease/keepalive",
		                          svc_dir_etcd_body("{\"ID\":\"%" PRId64 "\"}", s->lease), INT64_MAX);
	s->queue_turn = !s->queue_turn;
	r = s->queue_turn ? queue_start(d, &begun) : own_start(d, &begun);
	if (!begun)
		r = s->queue_turn ? own_start(d, &begun) : queue_start(d, &begun);
	if (begun || (now < s->probe_at && !svc_etcd_login_needed(s->etcd)) || !call_due(s, SVC_DIR_CALL_PROBE))
		return r;
	return svc_dir_etcd_start(s, SVC_DIR_CALL_PROBE, "/v3/kv/range", revision_body(s), INT64_MAX);
}

/* Whether changes may be reported: not between a request and its answer, which comes first. */
static bool watch_turn(const struct svc_dir_etcd *s)
{
	return !svc_etcd_in_flight(s->async) || s->call != SVC_DIR_CALL_FRONT || s->queue->type == SVC_DIR_FIND;
}

static void etcd_turn(struct xport_directory *d)
{
	struct svc_dir_etcd *s = d->etcd;
	struct svc_json *answer;
	int r;

	svc_etcd_async_run(s->async);
	if (svc_etcd_in_flight(s->async)) {
		r = svc_etcd_outcome(s->async, &answer);
		if (r != SVC_ETCD_WAIT) {
			call_done(d, r, answer);
			svc_json_free(answer);
		}
	}
	svc_dir_etcd_expire(d);
	if (watch_turn(s))
		svc_dir_etcd_watch(d);
	if (svc_etcd_in_flight(s->async) || svc_now_ms() < s->start_at)
		return;
	r = call_next(d);
	if (r == XPORT_OK)
		return;
	svc_dir_etcd_failed(s, s->call, r); /* no memory: nothing was started */
	if (s->queue != NULL && s->call == SVC_DIR_CALL_FRONT)
		svc_dir_etcd_pop(d, r, NULL);
}

static bool etcd_busy(const struct svc_dir_etcd *s)
{
	return s->queue != NULL || svc_etcd_in_flight(s->async) || s->missed || s->message != NULL ||
	       (s->listing && call_due(s, SVC_DIR_CALL_PAGE)) || (s->away > 0 && call_due(s, SVC_DIR_CALL_AGAIN));
}

bool svc_dir_etcd_fresh(const struct xport_directory *d)
{
	const struct svc_dir_etcd *s = d->etcd;

	if (s->message != NULL || s->missed || s->behind || svc_dir_etcd_crowded(d))
		return false; /* the watch is, or was, held back until events are taken */
	return s->watch_up && !s->listing && s->revision >= s->written && svc_etcd_watching(s->async) &&
	       !svc_etcd_watch_astray(s->async) && svc_now_ms() < s->answered_at + PROBE_MS + REQUEST_MS;
}

void svc_dir_etcd_work(struct xport_directory *d)
{
	struct svc_dir_etcd *s = d->etcd;
	struct xport_error before = {.size = sizeof(before)};
	int64_t now = etcd_now_us();

	if (now < s->run_at_us && !(s->queue != NULL && !svc_etcd_in_flight(s->async)))
		return;
	(void)xport_services_last_error(&before);
	etcd_turn(d);
	svc_error_set(&before); /* what failed here is not the calling thread's failure */
	s->run_at_us = now + (etcd_busy(s) ? BUSY_US : IDLE_US);
}

int svc_dir_etcd_timeout(const struct xport_directory *d)
{
	const struct svc_dir_etcd *s = d->etcd;
	bool waits = !svc_etcd_in_flight(s->async) && svc_now_ms() < s->start_at;

	return etcd_busy(s) && !waits ? 1 : IDLE_US / 1000;
}

/* ---- life ---- */

void svc_dir_etcd_free(struct xport_directory *d)
{
	struct svc_dir_etcd *s = d->etcd;

	if (s == NULL)
		return;
	if (s->async != NULL)
		svc_dir_etcd_watch_end(s);
	free(s->list_from);
	svc_etcd_async_close(s->async);
	if (s->lease != 0)
		(void)svc_etcd_lease_end(s->etcd, s->lease, svc_now_ms() + 1000);
	while (s->queue != NULL)
		svc_dir_etcd_pop(d, XPORT_ERR_CLOSED, NULL);
	for (size_t i = 0; i < s->own.buckets && s->own.n > 0; i++)
		while (s->own.bucket[i] != NULL)
			svc_dir_etcd_own_drop(s, (struct svc_dir_own *)s->own.bucket[i]);
	if (s->own.bucket != NULL)
		svc_name_index_fini(&s->own);
	if (s->etcd != NULL)
		svc_etcd_close(s->etcd);
	free(s);
	d->etcd = NULL;
}

int svc_dir_etcd_open(struct xport_directory *d, const char *argument, const char *name, int ttl_s)
{
	struct svc_dir_etcd *s = calloc(1, sizeof(*s));
	int r;

	if (s == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_directory_create", NULL, "out of memory");
	d->etcd = s;
	s->queue_end = &s->queue;
	s->revision = -1;
	s->batch_max = SVC_DIR_ETCD_BATCH;
	svc_dir_etcd_list_from(s);
	s->asked_ttl_s = ttl_s == 0 ? TTL_S : ttl_s;
	snprintf(s->names, sizeof(s->names), "xport/directory/%s/name/", name);
	snprintf(s->all, sizeof(s->all), "xport/directory/%s/all/", name);
	r = svc_etcd_open(argument, &svc_dir_etcd_use, &s->etcd, "xport_directory_create");
	if (r == XPORT_OK)
		r = svc_etcd_async_open(s->etcd, &s->async, "xport_directory_create");
	if (r == XPORT_OK && svc_name_index_init(&s->own) != XPORT_OK)
		r = svc_fail(XPORT_ERR_NO_MEMORY, "xport_directory_create", NULL, "out of memory");
	if (r != XPORT_OK)
		svc_dir_etcd_free(d);
	return r;
}
