/* SPDX-License-Identifier: BSD-3-Clause */
/* What the application asks a directory in etcd. */
#include <stdlib.h>
#include <string.h>

#include "services/clock.h"
#include "services/directory_etcd.h"
#include "services/last_error.h"

enum {
	ASK_MS = 10000, /* the longest time without an answer to the queue */
	QUEUED = 8192
};

static const char etcd_op[] = "xport_directory";

/* Ends a request. */
static void queue_end(struct xport_directory *d, struct svc_dir_request **at, int status,
                      const struct svc_dir_message *m)
{
	struct svc_dir_etcd *s = d->etcd;
	struct svc_dir_request *q = *at;

	*at = (struct svc_dir_request *)q->request.next;
	if (*at == NULL)
		s->queue_end = at;
	s->queued--;
	free(q->own);
	q->own = NULL;
	if (status != XPORT_OK && q->done != NULL)
		q->done->why = svc_error_copy(status);
	svc_dir_user_done(d, q, status, m);
}

void svc_dir_etcd_pop(struct xport_directory *d, int status, const struct svc_dir_message *m)
{
	queue_end(d, &d->etcd->queue, status, m);
}

static int64_t front_until(const struct svc_dir_etcd *s)
{
	return (s->queue->asked > s->popped_at ? s->queue->asked : s->popped_at) + ASK_MS;
}

/* The front ones may be in flight: then their request has the same limit. */
void svc_dir_etcd_expire(struct xport_directory *d)
{
	struct svc_dir_etcd *s = d->etcd;
	int64_t now = svc_now_ms();
	const char *why;

	while (s->queue != NULL && now >= front_until(s) &&
	       !(svc_etcd_in_flight(s->async) && s->call == SVC_DIR_CALL_FRONT)) {
		why = s->why[0] != '\0' ? s->why : svc_etcd_why(s->etcd);
		svc_dir_etcd_pop(
			d,
			svc_fail(XPORT_ERR_TIMEOUT, etcd_op,
		                 "check that etcd runs, and the URLs in xport_directory_attr.source or XPORT_DIRECTORY",
		                 "etcd did not answer within %d s: %.300s", ASK_MS / 1000,
		                 why[0] == '\0' ? "it is slow" : why),
			NULL);
	}
}

int svc_dir_etcd_ask(struct xport_directory *d, struct svc_dir_request *q, const struct svc_dir_message *m,
                     const char *operation)
{
	struct svc_dir_etcd *s = d->etcd;
	struct svc_dir_message kept = *m;

	if (s->queued >= QUEUED)
		return svc_fail(XPORT_ERR_AGAIN, operation, "take events first", "%d requests wait for etcd", QUEUED);
	if (q->type == SVC_DIR_PUT) {
		q->own = calloc(1, sizeof(*q->own));
		if (q->own == NULL)
			return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
		kept.type = SVC_DIR_CHANGED;
		kept.request = 0;
		q->own->len = svc_dir_encode(&kept, q->own->value);
		q->own->name.len = m->name_len;
		memcpy(q->own->name.bytes, m->name, m->name_len);
	}
	q->asked = svc_now_ms();
	q->request.next = NULL;
	*s->queue_end = q;
	s->queue_end = (struct svc_dir_request **)&q->request.next;
	s->queued++;
	return XPORT_OK;
}

/* ---- puts ---- */

/* A new one takes the place of the one before. */
static void own_put(struct svc_dir_etcd *s, struct svc_dir_request *q)
{
	struct svc_dir_own *old = svc_name_index_find(&s->own, q->name, q->name_len);

	if (old != NULL)
		svc_dir_etcd_own_drop(s, old);
	q->own->put = true;
	q->own->mod = q->mod;
	svc_dir_etcd_wrote(s, q->mod);
	svc_name_index_enter(&s->own, &q->own->name, q->name, q->name_len);
	q->own = NULL;
}

/* False: it is to be sent again. */
static bool put_ended(struct xport_directory *d, struct svc_dir_request **at, int r)
{
	struct svc_dir_etcd *s = d->etcd;
	struct svc_dir_request *q = *at;
	struct svc_dir_message m;

	if (r == XPORT_ERR_AGAIN) {
		if (++q->tries < SVC_DIR_ETCD_TRIES)
			return false;
		r = svc_fail(XPORT_ERR_BUSY, etcd_op, "put it again", "the name changes all the time");
	}
	if (r == XPORT_OK && svc_name_index_find(&s->own, q->name, q->name_len) == NULL && s->own.n >= d->peer_names)
		r = svc_fail(XPORT_ERR_NO_MEMORY, etcd_op, NULL, "this process has too many names");
	if (r != XPORT_OK) {
		queue_end(d, at, r, NULL);
		return true;
	}
	if (!svc_dir_decode(q->own->value, q->own->len, &m))
		memset(&m, 0, sizeof(m));
	m.version = (uint64_t)q->mod;
	m.key_len = 0;
	own_put(s, q);
	queue_end(d, at, XPORT_OK, &m);
	return true;
}

static void puts_lease_gone(struct xport_directory *d, unsigned n)
{
	struct svc_dir_etcd *s = d->etcd;
	struct svc_dir_request **at = &s->queue;

	svc_dir_etcd_lease_gone(s);
	for (unsigned i = 0; i < n; i++) {
		(*at)->mod = 0;
		if (++(*at)->tries >= SVC_DIR_ETCD_TRIES)
			queue_end(d, at,
			          svc_fail(XPORT_ERR_SYSTEM, etcd_op, "look at the log of etcd",
			                   "etcd forgets the lease of this process at once"),
			          NULL);
		else
			at = (struct svc_dir_request **)&(*at)->request.next;
	}
}

static void puts_done(struct xport_directory *d, int r, const struct svc_json *answer)
{
	struct svc_dir_etcd *s = d->etcd;
	struct svc_dir_request **at = &s->queue;
	unsigned n = s->sent;

	r = svc_dir_etcd_txn(s, r, answer, n);
	if (r == XPORT_ERR_UNREACHABLE) {
		puts_lease_gone(d, n);
		return;
	}
	if (r != XPORT_OK && r != XPORT_ERR_AGAIN && n > 1) {
		s->batch_max = 1; /* which one is the cause is seen by sending them one by one */
		return;
	}
	for (unsigned i = 0; i < n; i++) {
		int one = r == XPORT_OK ? svc_dir_etcd_put_outcome(s, answer, i, (*at)->own, &(*at)->mod) : r;

		if (!put_ended(d, at, one))
			at = (struct svc_dir_request **)&(*at)->request.next;
	}
	if (r == XPORT_OK)
		s->batch_max = s->batch_max < SVC_DIR_ETCD_BATCH / 2 ? 2 * s->batch_max : SVC_DIR_ETCD_BATCH;
}

/* ---- other requests ---- */

static int front_remove(struct xport_directory *d, const struct svc_json *answer)
{
	struct svc_dir_etcd *s = d->etcd;
	struct svc_dir_request *q = s->queue;
	struct svc_dir_own *own = svc_name_index_find(&s->own, q->name, q->name_len);
	const struct svc_json *response = svc_json_at(svc_json_member(answer, "responses"), 0);
	struct svc_dir_found f;
	int r = XPORT_OK;

	if (svc_json_member(response, "response_delete_range") != NULL) {
		svc_dir_etcd_wrote(s, svc_dir_etcd_revision(answer));
	} else {
		if (svc_json_member(response, "response_range") == NULL)
			return svc_fail(XPORT_ERR_PROTOCOL, etcd_op, NULL,
			                "etcd answered a removal with something else");
		r = svc_dir_etcd_refused(s->names, response, &f);
		if (r != XPORT_OK)
			return r;
		if (f.lease != 0 && f.lease == s->lease) { /* a put whose answer was lost */
			q->mod = (int64_t)f.m.version;
			return ++q->tries < SVC_DIR_ETCD_TRIES ? XPORT_ERR_AGAIN
			                                       : svc_fail(XPORT_ERR_BUSY, etcd_op, "remove it again",
			                                                  "the name changes all the time");
		}
		/* An own entry that is not there was removed by this request, whose first answer was lost, or by its lease. */
		if (f.lease != 0)
			r = svc_fail(XPORT_ERR_ACCESS, etcd_op, NULL, "the name belongs to another process");
		else if (own == NULL)
			r = svc_fail(XPORT_ERR_UNREACHABLE, etcd_op, NULL, "there is no such name");
	}
	if (own != NULL)
		svc_dir_etcd_own_drop(s, own);
	if (r == XPORT_OK)
		svc_dir_etcd_pop(d, XPORT_OK, NULL);
	return r;
}

static int front_find(struct xport_directory *d, const struct svc_json *answer)
{
	const struct svc_json *kvs = svc_json_member(answer, "kvs");
	struct svc_dir_found f;

	if (svc_dir_etcd_revision(answer) == 0)
		return svc_fail(XPORT_ERR_PROTOCOL, etcd_op, NULL, "etcd answered a range with something else");
	if (svc_json_size(kvs) == 0)
		return svc_fail(XPORT_ERR_UNREACHABLE, etcd_op, NULL, "there is no such name");
	if (!svc_dir_etcd_read(d->etcd->names, svc_json_at(kvs, 0), &f))
		return svc_fail(XPORT_ERR_PROTOCOL, etcd_op, svc_dir_etcd_use.stranger,
		                "an entry below %.100s in etcd is not one of a directory", d->etcd->names);
	svc_dir_etcd_wrote(d->etcd, (int64_t)f.m.version);
	svc_dir_etcd_pop(d, XPORT_OK, &f.m);
	return XPORT_OK;
}

/* The first page has come. Until then the watch of all/ goes on. */
static int front_watch(struct xport_directory *d, const struct svc_json *answer)
{
	struct svc_dir_etcd *s = d->etcd;
	int r;

	if (svc_dir_etcd_revision(answer) == 0)
		return svc_fail(XPORT_ERR_PROTOCOL, etcd_op, NULL, "etcd's list of entries has no revision");
	/* An entry for all that has gone since is in no page, and no change of it follows. */
	if (s->heard && svc_dir_event(d, XPORT_DIRECTORY_MISSED, XPORT_OK, NULL, 1) == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, etcd_op, NULL, "out of memory");
	svc_dir_etcd_pop(d, XPORT_OK, NULL); /* now d->watching is set */
	svc_dir_etcd_list(s);
	r = svc_dir_etcd_page(d, answer);
	if (r != XPORT_OK)
		svc_dir_etcd_failed(s, SVC_DIR_CALL_PAGE, r); /* which is no failure of another request */
	return XPORT_OK;
}

void svc_dir_etcd_front_done(struct xport_directory *d, int r, const struct svc_json *answer)
{
	struct svc_dir_etcd *s = d->etcd;
	unsigned before = s->queued;
	int type = s->queue->type;

	if (type == SVC_DIR_PUT) {
		puts_done(d, r, answer);
	} else {
		if (r == XPORT_OK)
			r = type == SVC_DIR_REMOVE ? front_remove(d, answer)
			    : type == SVC_DIR_FIND ? front_find(d, answer)
			                           : front_watch(d, answer);
		else if (type == SVC_DIR_WATCH && svc_dir_etcd_page_less(s))
			r = XPORT_ERR_AGAIN;
		if (r != XPORT_OK && r != XPORT_ERR_AGAIN)
			svc_dir_etcd_pop(d, r, NULL);
	}
	if (s->queued < before)
		s->popped_at = svc_now_ms();
}

/* ---- sending ---- */

/* Whether one of the first n has this name. */
static bool names_have(struct svc_dir_own *const *own, unsigned n, const struct svc_dir_request *q)
{
	for (unsigned i = 0; i < n; i++)
		if (own[i]->name.len == q->name_len && memcmp(own[i]->name.bytes, q->name, q->name_len) == 0)
			return true;
	return false;
}

static int puts_start(struct xport_directory *d)
{
	struct svc_dir_etcd *s = d->etcd;
	struct svc_dir_own *own[SVC_DIR_ETCD_BATCH], *old;
	int64_t mod[SVC_DIR_ETCD_BATCH];
	struct svc_dir_request *q = s->queue;
	unsigned n = 0;
	size_t more = 0;

	for (; q != NULL && n < s->batch_max && q->type == SVC_DIR_PUT; q = (struct svc_dir_request *)q->request.next) {
		old = svc_name_index_find(&s->own, q->name, q->name_len);
		more += old == NULL;
		if (names_have(own, n, q) || s->own.n + more > d->peer_names)
			break;
		if (q->tries == 0)
			q->mod = old != NULL && old->put ? old->mod : 0;
		own[n] = q->own;
		mod[n++] = q->mod;
	}
	if (n == 0) {
		svc_dir_etcd_pop(d,
		                 svc_fail(XPORT_ERR_NO_MEMORY, etcd_op, "raise xport_directory_attr.peer_names",
		                          "this process has %u names already", d->peer_names),
		                 NULL);
		return XPORT_OK;
	}
	s->sent = n;
	return svc_dir_etcd_start(s, SVC_DIR_CALL_FRONT, "/v3/kv/txn", svc_dir_etcd_put_body(s, own, mod, n),
	                          front_until(s));
}

int svc_dir_etcd_front(struct xport_directory *d)
{
	struct svc_dir_etcd *s = d->etcd;
	struct svc_dir_request *q = s->queue;
	struct svc_dir_own *own;

	s->sent = 1;
	switch (q->type) {
	case SVC_DIR_PUT:
		return puts_start(d);
	case SVC_DIR_REMOVE:
		own = svc_name_index_find(&s->own, q->name, q->name_len);
		if (q->tries == 0)
			q->mod = own != NULL && own->mod != 0 ? own->mod : -1; /* -1: first it is looked up */
		return svc_dir_etcd_start(s, SVC_DIR_CALL_FRONT, "/v3/kv/txn",
		                          svc_dir_etcd_remove_body(s, q->name, q->name_len, q->mod), front_until(s));
	case SVC_DIR_FIND:
		return svc_dir_etcd_start(s, SVC_DIR_CALL_FRONT, "/v3/kv/range",
		                          svc_dir_etcd_find_body(s, q->name, q->name_len), front_until(s));
	default:
		if (d->watching) {
			svc_dir_etcd_pop(d, XPORT_OK, NULL);
			return XPORT_OK;
		}
		svc_dir_etcd_list_from(s);
		return svc_dir_etcd_start(s, SVC_DIR_CALL_FRONT, "/v3/kv/range", svc_dir_etcd_page_body(s),
		                          front_until(s));
	}
}
