/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The directory of an instance: its life, its events, and the loop that drives it.
 *
 * Locks: `lock` protects all of it. A wait does not hold it.
 */
#include "services/directory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/directory_etcd.h"
#include "services/group_source.h"
#include "services/grow.h"
#include "services/last_error.h"
#include "services/wire.h"

static const uint64_t TAG = UINT64_C(0x78706f7274647200);
enum { NAMES = 65536, PEER_NAMES = 4096 };

/* ---- entries and messages ---- */

void svc_dir_to_entry(const struct svc_dir_message *m, struct xport_directory_entry *e)
{
	memset(e, 0, sizeof(*e));
	e->size = sizeof(*e);
	if (m->node_len > 0)
		memcpy(e->node, m->node, m->node_len);
	e->version = m->version;
	e->length = m->length;
	e->offset = m->offset;
	e->rights = m->rights;
	e->key_len = (uint32_t)m->key_len;
	if (m->key_len > 0)
		memcpy(e->key, m->key, m->key_len);
}

void svc_dir_from_entry(const struct xport_directory_entry *e, struct svc_dir_message *m)
{
	m->node = (const uint8_t *)e->node;
	m->node_len = strlen(e->node);
	m->version = e->version;
	m->length = e->length;
	m->offset = e->offset;
	m->rights = e->rights;
	m->key = e->key;
	m->key_len = e->key_len;
}

int svc_dir_reply(struct svc_msgq_peer *to, const struct svc_dir_message *m)
{
	uint8_t bytes[SVC_DIR_MAX];

	return svc_msgq_reply(to, bytes, svc_dir_encode(m, bytes));
}

/* ---- events ---- */

struct xport_directory_event *svc_dir_push(struct xport_directory *d, struct svc_dir_event *e, int type, int status,
                                           void *context, uint64_t heard)
{
	e->heard = heard;
	e->e.size = sizeof(e->e);
	e->e.type = type;
	e->e.status = status;
	e->e.context = context;
	e->e.entry.size = sizeof(e->e.entry);
	*d->last_event = e;
	d->last_event = &e->next;
	d->notices += heard != 0;
	return &e->e;
}

struct xport_directory_event *svc_dir_event(struct xport_directory *d, int type, int status, void *context,
                                            uint64_t heard)
{
	struct svc_dir_event *e = calloc(1, sizeof(*e));

	return e != NULL ? svc_dir_push(d, e, type, status, context, heard) : NULL;
}

void svc_dir_event_name(struct xport_directory_event *e, const void *name, size_t len)
{
	e->name_len = len;
	if (len > 0)
		memcpy(e->name, name, len);
}

/*
 * The directory counts them: one that was never said would be missing for ever, so what finds no memory is said later.  It is
 * counted before, since saying it may find that the directory has ended, and then nothing is unsaid.
 */
static void say_heard(struct xport_directory *d)
{
	struct svc_dir_message m = {.type = SVC_DIR_HEARD, .request = 1};

	while (d->server != NULL && d->unsaid > 0) {
		d->unsaid--;
		if (svc_dir_reply(d->server, &m) != XPORT_OK) {
			d->unsaid++;
			return;
		}
	}
}

static int directory_next_event(struct xport_directory *d, struct xport_directory_event *event)
{
	struct svc_dir_event *e = d->first_event;

	if (e == NULL && d->serve) {
		memset(event, 0, sizeof(*event));
		event->size = sizeof(*event);
		event->entry.size = sizeof(event->entry);
		return svc_dir_serve_next(d, event);
	}
	if (e == NULL)
		return 0;
	d->first_event = e->next;
	if (d->first_event == NULL)
		d->last_event = &d->first_event;
	*event = e->e;
	if (e->heard != 0) {
		d->notices--;
		d->unsaid += d->etcd == NULL;
		say_heard(d);
	}
	if (e->why != NULL)
		svc_error_set(e->why);
	free(e->why);
	free(e);
	return 1;
}

int xport_directory_next(xport_directory *d, struct xport_directory_event *event)
{
	struct xport_directory_event e = {.size = sizeof(e)};
	int r;

	if (d == NULL || event == NULL || !svc_grow_size(event->size, SVC_FIRST_DIRECTORY_EVENT))
		return svc_fail(XPORT_ERR_INVALID, "xport_directory_next", NULL,
		                "an argument is NULL, or xport_directory_event.size is not the size of the struct");
	pthread_mutex_lock(&d->engine.lock);
	r = directory_next_event(d, &e);
	pthread_mutex_unlock(&d->engine.lock);
	if (r == 1)
		svc_grow_out(event, &e, sizeof(e));
	return r;
}

/* ---- what peers send ---- */

static void directory_ended(void *service, struct svc_msgq_peer *from, int status)
{
	struct xport_directory *d = service;

	if (d->serve)
		svc_dir_serve_ended(d, from);
	else if (from == d->server)
		svc_dir_user_ended(d, status);
}

static int directory_message(void *service, struct svc_msgq_peer *from, const uint8_t *bytes, size_t len)
{
	struct xport_directory *d = service;
	struct svc_dir_message m;
	struct svc_received in;

	if (!svc_dir_decode(bytes, len, &m))
		return XPORT_ERR_PROTOCOL;
	in = svc_engine_receive(&d->engine, from, m.type, m.request);
	if (in.kind == SVC_BYE)
		return XPORT_OK;
	return d->serve ? svc_dir_serve_message(d, from, &m) : svc_dir_user_message(d, from, &m, in.request);
}

static size_t directory_bye(uint8_t *bytes)
{
	struct svc_dir_message m = {.type = SVC_DIR_BYE};

	return svc_dir_encode(&m, bytes);
}

static void directory_work(void *service)
{
	struct xport_directory *d = service;

	say_heard(d);
	if (d->serve && !d->engine.destroying)
		svc_dir_serve_tell(d);
	if (d->etcd != NULL && !d->engine.destroying)
		svc_dir_etcd_work(d);
}

static int directory_work_timeout(void *service)
{
	struct xport_directory *d = service;

	if (d->etcd != NULL)
		return svc_dir_etcd_timeout(d);
	return d->unsaid > 0 || d->untold ? 1 : -1;
}

static const uint8_t directory_kinds[] = {
	[SVC_DIR_PUT] = SVC_REQUEST,     [SVC_DIR_FIND] = SVC_REQUEST, [SVC_DIR_REMOVE] = SVC_REQUEST,
	[SVC_DIR_WATCH] = SVC_REQUEST,   [SVC_DIR_JOIN] = SVC_REQUEST, [SVC_DIR_ANSWER] = SVC_REPLY,
	[SVC_DIR_CHANGED] = SVC_REQUEST, [SVC_DIR_GONE] = SVC_REQUEST, [SVC_DIR_MISSED] = SVC_REQUEST,
	[SVC_DIR_HEARD] = SVC_REPLY,     [SVC_DIR_BYE] = SVC_BYE};
static const struct svc_engine_ops directory_ops = {.kinds = directory_kinds,
                                                    .message = directory_message,
                                                    .bye = directory_bye,
                                                    .unanswered = svc_dir_user_unanswered,
                                                    .ended = directory_ended,
                                                    .work = directory_work,
                                                    .work_timeout = directory_work_timeout};

/* ---- the loop ---- */

int xport_directory_step(xport_directory *d, const struct xport_completion *c)
{
	if (d == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_directory_step", NULL, "directory is NULL");
	return svc_engine_step(&d->engine, c);
}

int xport_directory_timeout(xport_directory *d)
{
	return svc_engine_timeout(&d->engine);
}

struct next_directory_event {
	struct xport_directory *directory;
	struct xport_directory_event *event;
};

static int next_directory_event(void *arg)
{
	struct next_directory_event *next = arg;

	return xport_directory_next(next->directory, next->event);
}

int xport_directory_wait(xport_directory *d, struct xport_directory_event *event, xport_completion_fn other, void *arg,
                         int timeout_ms)
{
	struct next_directory_event next = {d, event};

	if (d == NULL)
		return xport_directory_next(d, event); /* which describes it */
	return svc_engine_wait(&d->engine, next_directory_event, &next, other, arg, timeout_ms, "xport_directory_wait");
}

/* ---- what is asked ---- */

static int directory_ask(xport_directory *d, struct svc_dir_message *m, void *context, const char *operation)
{
	int r;

	if (d == NULL || (m->type != SVC_DIR_WATCH && (m->name == NULL || m->name_len == 0 || m->name_len > 255)))
		return svc_fail(XPORT_ERR_INVALID, operation, NULL,
		                d == NULL ? "directory is NULL" : "a name must have 1 to 255 bytes, not %zu",
		                m->name_len);
	pthread_mutex_lock(&d->engine.lock);
	if (m->type == SVC_DIR_PUT) {
		m->node = (const uint8_t *)d->node;
		m->node_len = strlen(d->node);
	}
	if (d->engine.destroying)
		r = svc_fail(XPORT_ERR_INVALID, operation, NULL, "the directory is being destroyed");
	else if (!d->serve)
		r = svc_dir_ask(d, m, context, operation);
	else if ((r = svc_dir_serve_self(d, m, context)) == XPORT_OK)
		svc_dir_serve_tell(d);
	else
		r = svc_fail(r, operation, NULL, "out of memory");
	pthread_mutex_unlock(&d->engine.lock);
	return r;
}

int xport_directory_put(xport_directory *d, const void *name, size_t len, const struct xport_directory_entry *entry,
                        uint32_t flags, void *context)
{
	struct svc_dir_message m = {.type = SVC_DIR_PUT, .name = name, .name_len = len, .flags = flags};

	if (entry == NULL || entry->size != sizeof(*entry) || entry->key_len == 0 ||
	    entry->key_len > XPORT_DIRECTORY_KEY_MAX || entry->rights > SVC_RIGHTS ||
	    (flags & ~(uint32_t)XPORT_DIRECTORY_BROADCAST) != 0)
		return svc_fail(XPORT_ERR_INVALID, "xport_directory_put", "fill in the entry by xport_directory_region",
		                "the entry is NULL, has a wrong size, no key, or unknown rights, or a flag is unknown");
	m.key = entry->key;
	m.key_len = entry->key_len;
	m.length = entry->length;
	m.offset = entry->offset;
	m.rights = entry->rights;
	return directory_ask(d, &m, context, "xport_directory_put");
}

int xport_directory_find(xport_directory *d, const void *name, size_t len, void *context)
{
	struct svc_dir_message m = {.type = SVC_DIR_FIND, .name = name, .name_len = len};

	return directory_ask(d, &m, context, "xport_directory_find");
}

int xport_directory_remove(xport_directory *d, const void *name, size_t len, void *context)
{
	struct svc_dir_message m = {.type = SVC_DIR_REMOVE, .name = name, .name_len = len};

	return directory_ask(d, &m, context, "xport_directory_remove");
}

int xport_directory_watch(xport_directory *d, void *context)
{
	struct svc_dir_message m = {.type = SVC_DIR_WATCH};

	return directory_ask(d, &m, context, "xport_directory_watch");
}

int xport_directory_region(const xport_mr *mr, uint64_t offset, uint64_t length, struct xport_directory_entry *entry)
{
	struct xport_mr_info info = {.size = sizeof(info)};
	size_t len = sizeof(entry->key);

	if (mr == NULL || entry == NULL || xport_mr_query(mr, &info) != XPORT_OK || (info.rights & SVC_RIGHTS) == 0)
		return svc_fail(XPORT_ERR_INVALID, "xport_directory_region", NULL,
		                "an argument is NULL, or the region grants peers no rights");
	if (offset > info.length || length > info.length - offset)
		return svc_fail(XPORT_ERR_BOUNDS, "xport_directory_region", NULL,
		                "the region has %zu bytes: %" PRIu64 " bytes at %" PRIu64 " do not fit", info.length,
		                length, offset);
	memset(entry, 0, sizeof(*entry));
	entry->size = sizeof(*entry);
	if (xport_rkey_pack(mr, entry->key, &len) != XPORT_OK)
		return svc_fail(XPORT_ERR_INVALID, "xport_directory_region", NULL, "cannot pack the region's key");
	entry->key_len = (uint32_t)len;
	entry->length = length;
	entry->offset = offset;
	entry->rights = info.rights & SVC_RIGHTS;
	return XPORT_OK;
}

/* ---- life ---- */

static int join(struct xport_directory *d, xport_ep *ep)
{
	struct svc_dir_message m = {.type = SVC_DIR_JOIN};
	struct svc_msgq_peer *p;
	int r;

	if (d->etcd != NULL)
		return XPORT_OK;
	if (d->serve)
		return svc_fail(XPORT_ERR_INVALID, "xport_directory_join", NULL,
		                "this process is the directory's server");
	if (d->server != NULL)
		return svc_fail(XPORT_ERR_BUSY, "xport_directory_join",
		                "call xport_directory_forget for the endpoint first",
		                "the instance has already joined a directory");
	r = svc_engine_peer(&d->engine, ep, "xport_directory_join", &p);
	if (r != XPORT_OK)
		return r;
	if (d->lost == NULL && (d->lost = calloc(1, sizeof(*d->lost))) == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_directory_join", NULL, "out of memory");
	d->server = p;
	r = svc_dir_ask(d, &m, NULL, "xport_directory_join");
	if (r != XPORT_OK && d->server == p)
		d->server = NULL;
	return r;
}

int xport_directory_join(xport_directory *d, xport_ep *ep)
{
	int r;

	if (d == NULL || ep == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_directory_join", NULL, "an argument is NULL");
	pthread_mutex_lock(&d->engine.lock);
	r = join(d, ep);
	pthread_mutex_unlock(&d->engine.lock);
	return r;
}

void xport_directory_forget(xport_directory *d, xport_ep *ep)
{
	if (d == NULL || ep == NULL)
		return;
	svc_engine_forget(&d->engine, ep);
}

int xport_directory_query(xport_directory *d, struct xport_directory_info *info)
{
	struct xport_directory_info i;

	if (d == NULL || info == NULL || !svc_grow_size(info->size, SVC_FIRST_DIRECTORY_INFO))
		return svc_fail(XPORT_ERR_INVALID, "xport_directory_query", NULL,
		                "an argument is NULL, or xport_directory_info.size is not the size of the struct");
	pthread_mutex_lock(&d->engine.lock);
	i = d->info;
	i.names = d->names.n;
	i.muted = d->engine.msgq.muted;
	if (d->etcd != NULL) {
		i.refused = d->etcd->strange;
		snprintf(i.why, sizeof(i.why), "%.250s", svc_dir_etcd_why(d));
	}
	pthread_mutex_unlock(&d->engine.lock);
	svc_grow_out(info, &i, sizeof(i));
	return XPORT_OK;
}

/* A variable that is set and not empty. None in a set-user-ID program. */
static const char *directory_variable(const char *name)
{
	const char *value = secure_getenv(name);

	return value == NULL || value[0] == '\0' ? NULL : value;
}

/* Where the entries are, if not at the process that serves. */
static int directory_source(struct xport_directory *d, const struct xport_directory_attr *a)
{
	const char *source = a->source != NULL ? a->source : directory_variable("XPORT_DIRECTORY");
	const char *name = a->name != NULL ? a->name : directory_variable("XPORT_DIRECTORY_NAME");

	if (source == NULL || strcmp(source, "embedded") == 0)
		return XPORT_OK;
	if (strncmp(source, "etcd:", 5) != 0)
		return svc_fail(XPORT_ERR_NOT_SUPPORTED, "xport_directory_create",
		                "there are embedded and etcd:URL,URL...",
		                "XPORT_DIRECTORY=%.200s: there is no such source", source);
	if (name != NULL && !svc_group_name_valid(name))
		return svc_fail(a->name != NULL ? XPORT_ERR_INVALID : XPORT_ERR_CONFIG, "xport_directory_create",
		                "1 to 63 of A-Z a-z 0-9 . _ -, not beginning with a dot",
		                "the name \"%.100s\" is not allowed", name);
	d->serve = false;
	return svc_dir_etcd_open(d, source + 5, name != NULL ? name : "directory", a->ttl_s);
}

static void directory_free(struct xport_directory *d)
{
	svc_name_index_fini(&d->names);
	free(d->lost);
	free(d);
}

static int directory_make(xport *x, const struct xport_directory_attr *a, struct xport_directory **directory)
{
	struct xport_directory *d = calloc(1, sizeof(*d));
	int r;

	if (d == NULL || svc_name_index_init(&d->names) != XPORT_OK) {
		free(d);
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_directory_create", NULL, "out of memory");
	}
	d->serve = a->serve != 0;
	d->max_names = a->max_names == 0 ? NAMES : a->max_names;
	d->peer_names = a->peer_names == 0 ? PEER_NAMES : a->peer_names;
	if (a->node != NULL)
		memcpy(d->node, a->node, strlen(a->node));
	d->last_event = &d->first_event;
	r = directory_source(d, a);
	if (r != XPORT_OK) {
		directory_free(d);
		return r;
	}
	if (d->serve)
		svc_dir_serve_begin(d);
	r = svc_engine_open(&d->engine, x, a->tag == 0 ? TAG : a->tag, SVC_DIR_MAX, &directory_ops, d,
	                    "xport_directory_create");
	if (r != XPORT_OK) {
		svc_dir_etcd_free(d);
		directory_free(d);
		return r;
	}
	*directory = d;
	return XPORT_OK;
}

int xport_directory_create(xport *x, const struct xport_directory_attr *attr, xport_directory **directory)
{
	struct xport_directory_attr own;
	const struct xport_directory_attr *a = &own;
	int r = svc_grow_in(&own, sizeof(own), SVC_FIRST_DIRECTORY_ATTR, attr, "xport_directory_create",
	                    "xport_directory_attr");

	if (r != XPORT_OK)
		return r;
	if (x == NULL || directory == NULL || (a->node != NULL && strlen(a->node) > SVC_DIR_NODE_MAX) || a->ttl_s < 0 ||
	    a->ttl_s > 86400)
		return svc_fail(XPORT_ERR_INVALID, "xport_directory_create", NULL, "%s",
		                x == NULL || directory == NULL ? "an argument is NULL"
		                : a->ttl_s < 0 || a->ttl_s > 86400
		                        ? "xport_directory_attr.ttl_s is not 0 to 86400"
		                        : "xport_directory_attr.node is longer than 63 bytes");
	return directory_make(x, a, directory);
}

int xport_directory_destroy(xport_directory *d, xport_completion_fn other, void *arg, int timeout_ms)
{
	struct svc_dir_event *e;
	int r;

	if (d == NULL)
		return XPORT_OK;
	r = svc_engine_shut(&d->engine, other, arg, timeout_ms, "xport_directory_destroy");
	if (r != XPORT_OK)
		return r;
	svc_engine_close(&d->engine);
	svc_dir_etcd_free(d);
	if (d->serve)
		svc_dir_serve_free(d);
	else
		svc_dir_user_free(d);
	while ((e = d->first_event) != NULL) {
		d->first_event = e->next;
		free(e->why);
		free(e);
	}
	directory_free(d);
	return XPORT_OK;
}
