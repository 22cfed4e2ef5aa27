/* SPDX-License-Identifier: BSD-3-Clause */
/* The entries of this process in etcd, and their lease. */
#include <stdlib.h>
#include <string.h>

#include "services/clock.h"
#include "services/directory_etcd.h"
#include "services/last_error.h"

enum { AGAIN_MS = 500, AGAIN_DOUBLED = 4 };

/* ---- the lease ---- */

void svc_dir_etcd_own_doubt(struct svc_dir_etcd *s)
{
	s->away = 0;
	for (size_t i = 0; i < s->own.buckets; i++) {
		for (struct svc_name *n = s->own.bucket[i]; n != NULL; n = n->next) {
			struct svc_dir_own *o = (struct svc_dir_own *)n;

			o->put = false;
			o->mod = o->again_at = 0;
			o->refusals = 0;
			s->away++;
		}
	}
}

void svc_dir_etcd_lease_gone(struct svc_dir_etcd *s)
{
	s->lease = 0;
	svc_dir_etcd_own_doubt(s);
}

int svc_dir_etcd_lease_granted(struct svc_dir_etcd *s, const struct svc_json *answer)
{
	int64_t lease = 0, ttl = 0;

	svc_json_number(svc_json_member(answer, "ID"), &lease);
	svc_json_number(svc_json_member(answer, "TTL"), &ttl);
	if (lease <= 0 || ttl < 1 || ttl > 86400)
		return svc_fail(XPORT_ERR_PROTOCOL, "xport_directory", NULL, "etcd granted no lease");
	s->lease = lease;
	s->seq = 0;
	s->ttl_s = (int)ttl;
	s->renew_at = svc_now_ms() + s->ttl_s * 1000 / 3;
	return XPORT_OK;
}

void svc_dir_etcd_lease_kept(struct svc_dir_etcd *s, int r, const struct svc_json *answer)
{
	int64_t ttl = 0;

	if (r == XPORT_OK)
		svc_json_number(svc_json_member(svc_json_member(answer, "result"), "TTL"), &ttl);
	if (ttl > 0)
		s->renew_at = svc_now_ms() + s->ttl_s * 1000 / 3;
	else if (r == XPORT_OK || r == XPORT_ERR_UNREACHABLE)
		svc_dir_etcd_lease_gone(s);
}

/* ---- what a transaction answers ---- */

int svc_dir_etcd_refused(const char *prefix, const struct svc_json *response, struct svc_dir_found *f)
{
	const struct svc_json *kvs = svc_json_member(svc_json_member(response, "response_range"), "kvs");

	f->lease = 0;
	if (svc_json_size(kvs) == 0)
		return XPORT_OK;
	if (!svc_dir_etcd_read(prefix, svc_json_at(kvs, 0), f))
		return svc_fail(XPORT_ERR_PROTOCOL, "xport_directory", svc_dir_etcd_use.stranger,
		                "an entry below %.100s in etcd is not one of a directory", prefix);
	if (f->lease == 0)
		f->lease = -1;
	return XPORT_OK;
}

int svc_dir_etcd_txn(struct svc_dir_etcd *s, int r, const struct svc_json *answer, unsigned n)
{
	const struct svc_json *responses = svc_json_member(answer, "responses"), *first = svc_json_at(responses, 0);
	const struct svc_json *range = svc_json_member(first, "response_range");

	if (r != XPORT_OK)
		return r;
	if (svc_json_member(first, "response_put") != NULL && svc_json_size(responses) == n + 1) {
		s->seq++;
		return XPORT_OK;
	}
	if (range == NULL)
		return svc_fail(XPORT_ERR_PROTOCOL, "xport_directory", NULL, "etcd answered a put with something else");
	/* Its first answer was lost, or etcd is another one. */
	s->seq = 0;
	svc_json_number(svc_json_member(svc_json_at(svc_json_member(range, "kvs"), 0), "version"), &s->seq);
	return XPORT_ERR_AGAIN;
}

int svc_dir_etcd_put_outcome(const struct svc_dir_etcd *s, const struct svc_json *answer, unsigned i,
                             const struct svc_dir_own *own, int64_t *mod)
{
	const struct svc_json *txn = svc_json_at(svc_json_member(answer, "responses"), i + 1);
	const struct svc_json *response =
		svc_json_at(svc_json_member(svc_json_member(txn, "response_txn"), "responses"), 0);
	struct svc_dir_found f;
	int r;

	if (svc_json_member(response, "response_put") != NULL) {
		*mod = svc_dir_etcd_revision(answer);
		return XPORT_OK;
	}
	if (svc_json_member(response, "response_range") == NULL)
		return svc_fail(XPORT_ERR_PROTOCOL, "xport_directory", NULL, "etcd answered a put with something else");
	r = svc_dir_etcd_refused(s->names, response, &f);
	if (r != XPORT_OK)
		return r;
	if (f.lease != 0 && f.lease != s->lease)
		return svc_fail(XPORT_ERR_BUSY, "xport_directory",
		                "use another name; that of a process that has died is free when its lease has expired",
		                "the name belongs to another process");
	*mod = f.lease == 0 ? 0 : (int64_t)f.m.version;
	/* An earlier try has put it. */
	if (f.lease != 0 && f.value_len == own->len && memcmp(f.value, own->value, own->len) == 0)
		return XPORT_OK;
	return XPORT_ERR_AGAIN;
}

/* ---- own entries ---- */

void svc_dir_etcd_own_drop(struct svc_dir_etcd *s, struct svc_dir_own *o)
{
	if (!o->put)
		s->away--;
	svc_name_index_remove(&s->own, &o->name);
	free(o);
}

/* Takes an entry among the earliest. */
static void away_take(struct svc_dir_etcd *s, struct svc_dir_own *o, unsigned most)
{
	unsigned i = s->nagain;

	if (i == most && s->again[i - 1]->again_at <= o->again_at)
		return;
	if (i == most)
		i--;
	else
		s->nagain++;
	for (; i > 0 && s->again[i - 1]->again_at > o->again_at; i--)
		s->again[i] = s->again[i - 1];
	s->again[i] = o;
}

bool svc_dir_etcd_own_away(struct svc_dir_etcd *s)
{
	int64_t now = svc_now_ms();

	s->nagain = 0;
	for (size_t i = 0; i < s->own.buckets && s->away > 0; i++) {
		for (struct svc_name *n = s->own.bucket[i]; n != NULL; n = n->next) {
			struct svc_dir_own *o = (struct svc_dir_own *)n;

			if (!o->put && now >= o->again_at)
				away_take(s, o, s->batch_max);
		}
	}
	return s->nagain > 0;
}

/* It stays away for a while: from 0.5 to 8 s. */
static void away_refused(struct svc_dir_own *o)
{
	o->again_at = svc_now_ms() + ((int64_t)AGAIN_MS << (o->refusals < AGAIN_DOUBLED ? o->refusals : AGAIN_DOUBLED));
	o->refusals++;
}

static void again_one(struct xport_directory *d, struct svc_dir_own *o, int r)
{
	struct svc_dir_etcd *s = d->etcd;
	struct xport_directory_event *e;

	if (r == XPORT_OK) {
		o->put = true;
		o->refusals = 0;
		s->away--;
		svc_dir_etcd_wrote(s, o->mod);
	} else if (r == XPORT_ERR_BUSY) { /* somebody else has taken the name meanwhile */
		e = svc_dir_event(d, XPORT_DIRECTORY_GONE, XPORT_ERR_BUSY, NULL, 1);
		if (e == NULL)
			return;
		svc_dir_event_name(e, o->name.bytes, o->name.len);
		svc_dir_etcd_own_drop(s, o);
	} else {
		away_refused(o);
		if (r != XPORT_ERR_AGAIN)
			svc_dir_etcd_keep_why(s->why, r);
	}
}

void svc_dir_etcd_again_done(struct xport_directory *d, int r, const struct svc_json *answer)
{
	struct svc_dir_etcd *s = d->etcd;

	r = svc_dir_etcd_txn(s, r, answer, s->nagain);
	if (r == XPORT_ERR_UNREACHABLE) {
		svc_dir_etcd_lease_gone(s);
		return;
	}
	for (unsigned i = 0; i < s->nagain && r == XPORT_OK; i++) {
		struct svc_dir_own *o = s->again[i];

		again_one(d, o, svc_dir_etcd_put_outcome(s, answer, i, o, &o->mod));
	}
	if (r == XPORT_OK || r == XPORT_ERR_AGAIN)
		return;
	for (unsigned i = 0; i < s->nagain; i++)
		away_refused(s->again[i]);
	s->batch_max = 1;
	svc_dir_etcd_failed(s, SVC_DIR_CALL_AGAIN, r);
}
