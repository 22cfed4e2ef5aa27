/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "services/directory.h"

/* ---- the log ---- */

static void log_push(struct xport_directory *d, struct svc_dir_entry *e)
{
	e->e.version = ++d->version;
	e->newer = NULL;
	e->older = d->newest;
	*(d->newest != NULL ? &d->newest->newer : &d->oldest) = e;
	d->newest = e;
	for (struct svc_dir_peer *p = d->peers; p != NULL; p = p->next) {
		if (p->cursor == NULL)
			p->cursor = e;
	}
}

static void log_take(struct xport_directory *d, struct svc_dir_entry *e)
{
	for (struct svc_dir_peer *p = d->peers; p != NULL; p = p->next) {
		if (p->cursor == e)
			p->cursor = e->newer;
	}
	*(e->older != NULL ? &e->older->newer : &d->oldest) = e->newer;
	*(e->newer != NULL ? &e->newer->older : &d->newest) = e->older;
}

/* ---- owners ---- */

static void own_in(struct svc_dir_peer *p, struct svc_dir_entry *e)
{
	e->owner = p;
	e->own_next = p->own;
	e->own_at = &p->own;
	if (p->own != NULL)
		p->own->own_at = &e->own_next;
	p->own = e;
	p->nown++;
}

static void own_out(struct svc_dir_entry *e)
{
	*e->own_at = e->own_next;
	if (e->own_next != NULL)
		e->own_next->own_at = e->own_at;
	e->owner->nown--;
	e->own_next = NULL;
	e->owner = NULL;
}

static void bury_oldest(struct xport_directory *d)
{
	struct svc_dir_entry *e = d->tomb;

	d->tomb = e->own_next;
	if (d->tomb == NULL)
		d->tomb_end = &d->tomb;
	d->tombs--;
	for (struct svc_dir_peer *p = d->peers; p != NULL; p = p->next)
		p->missed |= p->cursor != NULL && p->cursor->e.version <= e->e.version && e->e.version > p->since;
	log_take(d, e);
	free(e);
}

static void entry_remove(struct xport_directory *d, struct svc_dir_entry *e)
{
	svc_name_index_remove(&d->names, &e->name);
	own_out(e);
	log_take(d, e);
	e->gone = true;
	log_push(d, e);
	*d->tomb_end = e;
	d->tomb_end = &e->own_next;
	if (++d->tombs > SVC_DIR_TOMBS)
		bury_oldest(d);
}

/* ---- peers ---- */

static void peer_in(struct xport_directory *d, struct svc_dir_peer *p)
{
	p->next = d->peers;
	p->at = &d->peers;
	if (p->next != NULL)
		p->next->at = &p->next;
	d->peers = p;
}

static struct svc_dir_peer *peer_of(struct xport_directory *d, struct svc_msgq_peer *from)
{
	struct svc_dir_peer *p = from->user;

	if (p != NULL || (p = calloc(1, sizeof(*p))) == NULL)
		return p;
	p->msgq = from;
	from->user = p;
	d->info.peers++;
	peer_in(d, p);
	return p;
}

void svc_dir_serve_begin(struct xport_directory *d)
{
	d->tomb_end = &d->tomb;
	peer_in(d, &d->self);
}

void svc_dir_serve_ended(struct xport_directory *d, struct svc_msgq_peer *from)
{
	struct svc_dir_peer *p = from->user;

	if (p == NULL)
		return;
	while (p->own != NULL)
		entry_remove(d, p->own);
	*p->at = p->next;
	if (p->next != NULL)
		p->next->at = p->at;
	from->user = NULL;
	d->info.peers--;
	free(p);
}

/* ---- telling ---- */

/* The next entry that the peer is to be told of. */
static struct svc_dir_entry *next_for(struct svc_dir_peer *p)
{
	struct svc_dir_entry *e;

	while ((e = p->cursor) != NULL) {
		p->cursor = e->newer;
		if (!p->watching && (e->flags & XPORT_DIRECTORY_BROADCAST) == 0)
			continue;
		if (!e->gone || e->e.version > p->since)
			return e;
	}
	return NULL;
}

static bool room(const struct svc_msgq_peer *m)
{
	return m->ended == XPORT_OK && m->requests.first == NULL && m->unanswered < SVC_MSGQ_WINDOW;
}

static void server_tell(struct xport_directory *d, struct svc_dir_peer *p)
{
	struct svc_msgq_peer *msgq = p->msgq;
	uint8_t bytes[SVC_DIR_MAX];

	while (room(msgq)) { /* first: `p` is gone when its endpoint has ended */
		struct svc_dir_message m = {.type = SVC_DIR_MISSED, .request = 1};
		struct svc_dir_entry *e = NULL;

		if (!p->missed && (e = next_for(p)) == NULL)
			return;
		p->missed = false;
		if (e != NULL) {
			m.type = e->gone ? SVC_DIR_GONE : SVC_DIR_CHANGED;
			m.version = e->e.version;
			m.name = e->name.bytes;
			m.name_len = e->name.len;
			if (!e->gone)
				svc_dir_from_entry(&e->e, &m);
		}
		if (svc_msgq_request(msgq, bytes, svc_dir_encode(&m, bytes)) != XPORT_OK) {
			p->missed = d->untold = true; /* out of memory */
			return;
		}
	}
}

/* A peer that ends while we send to it is freed in svc_dir_serve_ended. Its `next` must outlive that. */
void svc_dir_serve_tell(struct xport_directory *d)
{
	struct svc_dir_peer *next;

	d->untold = false;
	for (struct svc_dir_peer *p = d->peers; p != NULL; p = next) {
		next = p->next;
		if (p->msgq != NULL)
			server_tell(d, p);
	}
}

int svc_dir_serve_next(struct xport_directory *d, struct xport_directory_event *event)
{
	struct svc_dir_peer *p = &d->self;
	struct svc_dir_entry *e;

	if (!p->missed && (e = next_for(p)) != NULL) {
		event->type = e->gone ? XPORT_DIRECTORY_GONE : XPORT_DIRECTORY_CHANGED;
		svc_dir_event_name(event, e->name.bytes, e->name.len);
		event->entry = e->e;
		event->entry.key_len = e->gone ? 0 : e->e.key_len;
		return 1;
	}
	if (!p->missed)
		return 0;
	p->missed = false;
	event->type = XPORT_DIRECTORY_MISSED;
	return 1;
}

/* ---- requests ---- */

static int put_new(struct xport_directory *d, struct svc_dir_peer *p, const struct svc_dir_message *m,
                   struct svc_dir_entry **entry)
{
	struct svc_dir_entry *e;

	if (d->names.n >= d->max_names || (p->msgq != NULL && p->nown >= d->peer_names) ||
	    (e = calloc(1, sizeof(*e))) == NULL)
		return XPORT_ERR_NO_MEMORY;
	svc_name_index_enter(&d->names, &e->name, m->name, m->name_len);
	own_in(p, e);
	*entry = e;
	return XPORT_OK;
}

static int server_put(struct xport_directory *d, struct svc_dir_peer *p, const struct svc_dir_message *m,
                      struct svc_dir_entry **entry)
{
	struct svc_dir_entry *e = svc_name_index_find(&d->names, m->name, m->name_len);
	int r = XPORT_OK;

	if (e != NULL && e->owner != p)
		return XPORT_ERR_BUSY;
	if (e != NULL)
		log_take(d, e);
	else
		r = put_new(d, p, m, &e);
	if (r != XPORT_OK)
		return r;
	svc_dir_to_entry(m, &e->e);
	e->flags = m->flags;
	log_push(d, e);
	*entry = e;
	return XPORT_OK;
}

static int server_find(struct xport_directory *d, const struct svc_dir_message *m, struct svc_dir_entry **entry)
{
	*entry = svc_name_index_find(&d->names, m->name, m->name_len);
	return *entry != NULL ? XPORT_OK : XPORT_ERR_UNREACHABLE;
}

static int server_take_out(struct xport_directory *d, struct svc_dir_peer *p, const struct svc_dir_message *m)
{
	struct svc_dir_entry *e = svc_name_index_find(&d->names, m->name, m->name_len);

	if (e == NULL)
		return XPORT_ERR_UNREACHABLE;
	if (e->owner != p)
		return XPORT_ERR_ACCESS;
	entry_remove(d, e);
	return XPORT_OK;
}

static int watch(struct xport_directory *d, struct svc_dir_peer *p)
{
	if (p->watching)
		return XPORT_OK;
	p->watching = true;
	p->missed = false;
	p->since = d->version;
	p->cursor = d->oldest;
	return XPORT_OK;
}

/* *entry is what the answer shows of. */
static int server_serve(struct xport_directory *d, struct svc_dir_peer *p, const struct svc_dir_message *m,
                        struct svc_dir_entry **entry)
{
	int r = XPORT_OK;

	*entry = NULL;
	if (m->type == SVC_DIR_PUT)
		r = server_put(d, p, m, entry);
	else if (m->type == SVC_DIR_FIND)
		r = server_find(d, m, entry);
	else if (m->type == SVC_DIR_REMOVE)
		r = server_take_out(d, p, m);
	else if (m->type == SVC_DIR_WATCH)
		r = watch(d, p);
	d->info.refused += r != XPORT_OK;
	return r;
}

int svc_dir_serve_message(struct xport_directory *d, struct svc_msgq_peer *from, const struct svc_dir_message *m)
{
	struct svc_dir_message a = {.type = SVC_DIR_ANSWER, .request = m->request};
	struct svc_dir_peer *p = peer_of(d, from);
	struct svc_dir_message named;
	struct svc_dir_entry *e = NULL;

	if (m->type == SVC_DIR_HEARD)
		return XPORT_OK;
	if (m->type > SVC_DIR_JOIN)
		return XPORT_ERR_PROTOCOL;
	if (p == NULL) /* a user without a place would miss the news without knowing it */
		return XPORT_ERR_NO_MEMORY;
	named = *m;
	a.status = server_serve(d, p, &named, &e);
	if (e != NULL && a.status == XPORT_OK)
		svc_dir_from_entry(&e->e, &a);
	if (m->type == SVC_DIR_PUT)
		a.key_len = 0;
	return svc_dir_reply(from, &a);
}

int svc_dir_serve_self(struct xport_directory *d, const struct svc_dir_message *m, void *context)
{
	struct svc_dir_entry *e;
	struct xport_directory_event *event = svc_dir_event(d, XPORT_DIRECTORY_DONE, XPORT_OK, context, 0);

	if (event == NULL)
		return XPORT_ERR_NO_MEMORY;
	event->status = server_serve(d, &d->self, m, &e);
	svc_dir_event_name(event, m->name, m->name_len);
	if (e != NULL && event->status == XPORT_OK) {
		event->entry = e->e;
		if (m->type == SVC_DIR_PUT)
			event->entry.key_len = 0;
	}
	return XPORT_OK;
}

void svc_dir_serve_free(struct xport_directory *d)
{
	struct svc_dir_entry *newer;

	for (struct svc_dir_entry *e = d->oldest; e != NULL; e = newer) {
		newer = e->newer;
		free(e);
	}
}
