/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "services/directory.h"
#include "services/directory_etcd.h"
#include "services/last_error.h"

/* What a watcher knows of an entry. */
struct known {
	struct svc_name name; /* first */
	struct xport_directory_entry e;
};

/* ---- what is known ---- */

static void forget_one(struct xport_directory *d, const void *name, size_t len)
{
	struct known *k = svc_name_index_find(&d->names, name, len);

	if (k == NULL)
		return;
	svc_name_index_remove(&d->names, &k->name);
	free(k);
}

void svc_dir_user_forget_all(struct xport_directory *d)
{
	for (size_t i = 0; i < d->names.buckets && d->names.n > 0; i++) {
		while (d->names.bucket[i] != NULL) {
			struct svc_name *n = d->names.bucket[i];

			svc_name_index_remove(&d->names, n);
			free(n);
		}
	}
}

/* Without memory it is not known, and is asked for. */
static void learn(struct xport_directory *d, const struct svc_dir_message *m)
{
	struct known *k = svc_name_index_find(&d->names, m->name, m->name_len);

	if (k == NULL) {
		k = d->names.n < d->max_names ? calloc(1, sizeof(*k)) : NULL;
		if (k == NULL)
			return;
		svc_name_index_enter(&d->names, &k->name, m->name, m->name_len);
	}
	svc_dir_to_entry(m, &k->e);
	k->e.version = m->version;
}

/* ---- asking ---- */

static int found_here(struct xport_directory *d, const struct svc_dir_message *m, void *context)
{
	struct known *k = svc_name_index_find(&d->names, m->name, m->name_len);
	struct xport_directory_event *e;

	if (!d->watching || k == NULL || (d->etcd != NULL && !svc_dir_etcd_fresh(d)))
		return 0;
	e = svc_dir_event(d, XPORT_DIRECTORY_DONE, XPORT_OK, context, 0);
	if (e == NULL)
		return XPORT_ERR_NO_MEMORY;
	svc_dir_event_name(e, m->name, m->name_len);
	e->entry = k->e;
	d->info.hits++;
	return 1;
}

static void request_free(struct svc_dir_request *q)
{
	free(q->done);
	free(q);
}

static struct svc_dir_request *request_new(const struct svc_dir_message *m)
{
	struct svc_dir_request *q = calloc(1, sizeof(*q));

	if (q == NULL)
		return NULL;
	q->type = m->type;
	q->name_len = m->name_len;
	if (m->name_len > 0)
		memcpy(q->name, m->name, m->name_len);
	if (q->type == SVC_DIR_JOIN || (q->done = calloc(1, sizeof(*q->done))) != NULL)
		return q;
	request_free(q);
	return NULL;
}

int svc_dir_ask(struct xport_directory *d, struct svc_dir_message *m, void *context, const char *operation)
{
	uint8_t bytes[SVC_DIR_MAX];
	struct svc_dir_request *q;
	int r = m->type == SVC_DIR_FIND ? found_here(d, m, context) : 0;

	if (r == 1)
		return XPORT_OK;
	if (d->server == NULL && d->etcd == NULL)
		return svc_fail(XPORT_ERR_CLOSED, operation, "xport_directory_join",
		                "no directory was joined, or its server was lost");
	q = r < 0 ? NULL : request_new(m);
	if (q == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	q->context = context;
	if (d->etcd != NULL) {
		r = svc_dir_etcd_ask(d, q, m, operation);
		if (r != XPORT_OK)
			request_free(q);
		return r;
	}
	q->request.id = m->request = svc_engine_id(&d->engine);
	q->request.reply = SVC_DIR_ANSWER;
	r = svc_engine_ask(&d->engine, d->server, &q->request, bytes, svc_dir_encode(m, bytes));
	if (r == XPORT_OK)
		return r;
	request_free(q);
	return svc_fail(r, operation, NULL, "cannot send the request to the directory: %s", xport_strerror(r));
}

void svc_dir_user_done(struct xport_directory *d, struct svc_dir_request *q, int status,
                       const struct svc_dir_message *m)
{
	struct xport_directory_event *e;

	if (q->type == SVC_DIR_WATCH && status == XPORT_OK)
		d->watching = true;
	if (q->done != NULL) {
		e = svc_dir_push(d, q->done, XPORT_DIRECTORY_DONE, status, q->context, 0);
		q->done = NULL;
		svc_dir_event_name(e, q->name, q->name_len);
		if (m != NULL && status == XPORT_OK) {
			svc_dir_to_entry(m, &e->entry);
			e->entry.version = m->version;
		}
	}
	request_free(q);
}

void svc_dir_user_unanswered(void *directory, struct svc_request *request, int status)
{
	svc_dir_user_done(directory, (struct svc_dir_request *)request, status, NULL);
}

static int user_answered(struct xport_directory *d, struct svc_request *request, const struct svc_dir_message *m)
{
	struct svc_dir_request *q = (struct svc_dir_request *)request;

	if (q == NULL)
		return XPORT_OK;
	/* What was looked for comes with a key. */
	svc_dir_user_done(d, q,
	                  m->status == XPORT_OK && q->type == SVC_DIR_FIND && m->key_len == 0 ? XPORT_ERR_PROTOCOL
	                                                                                      : m->status,
	                  m);
	return XPORT_OK;
}

/* ---- being told ---- */

int svc_dir_user_notice(struct xport_directory *d, const struct svc_dir_message *m)
{
	static const int types[] = {[SVC_DIR_CHANGED] = XPORT_DIRECTORY_CHANGED,
	                            [SVC_DIR_GONE] = XPORT_DIRECTORY_GONE,
	                            [SVC_DIR_MISSED] = XPORT_DIRECTORY_MISSED};
	struct xport_directory_event *e;

	if (m->type == SVC_DIR_CHANGED && d->watching)
		learn(d, m);
	else if (m->type == SVC_DIR_GONE)
		forget_one(d, m->name, m->name_len);
	else if (m->type == SVC_DIR_MISSED)
		svc_dir_user_forget_all(d);
	e = svc_dir_event(d, types[m->type], XPORT_OK, NULL, m->request);
	if (e == NULL)
		return XPORT_ERR_NO_MEMORY; /* better not to hear of this directory any more than to miss something */
	svc_dir_event_name(e, m->name, m->name_len);
	if (m->type == SVC_DIR_CHANGED) {
		svc_dir_to_entry(m, &e->entry);
		e->entry.version = m->version;
	}
	return XPORT_OK;
}

static int user_told(struct xport_directory *d, const struct svc_dir_message *m)
{
	return m->request == 0 || d->notices > SVC_MSGQ_REPLIES ? XPORT_ERR_PROTOCOL : svc_dir_user_notice(d, m);
}

int svc_dir_user_message(struct xport_directory *d, struct svc_msgq_peer *from, const struct svc_dir_message *m,
                         struct svc_request *request)
{
	if (from != d->server)
		return XPORT_ERR_PROTOCOL; /* nobody else has anything to say to a user */
	if (m->type == SVC_DIR_ANSWER)
		return user_answered(d, request, m);
	if (m->type == SVC_DIR_CHANGED || m->type == SVC_DIR_GONE || m->type == SVC_DIR_MISSED)
		return user_told(d, m);
	return XPORT_ERR_PROTOCOL;
}

/* ---- the end ---- */

void svc_dir_user_ended(struct xport_directory *d, int status)
{
	svc_dir_user_forget_all(d);
	d->watching = false;
	d->server = NULL;
	for (struct svc_dir_event *e = d->first_event; e != NULL; e = e->next)
		e->heard = 0; /* nobody is to be told any more */
	d->notices = d->unsaid = 0;
	svc_dir_push(d, d->lost, XPORT_DIRECTORY_LOST, status, NULL, 0);
	d->lost = NULL;
}

void svc_dir_user_free(struct xport_directory *d)
{
	svc_dir_user_forget_all(d);
}
