/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The directory of an instance: its life, its events, and the loop that moves it.
 *
 * Locks: `lock` guards all of it.  A wait does not hold it.
 */
#include "services/directory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "services/fault.h"
#include "services/grow.h"
#include "services/wire.h"

static const uint64_t TAG = UINT64_C(0x78706f7274647200);
enum { NAMES = 65536, PEER_NAMES = 4096, SLICE_MS = 20 };

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

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

int svc_dir_reply(struct svc_mail_peer *to, const struct svc_dir_message *m)
{
	uint8_t bytes[SVC_DIR_MAX];

	return svc_mail_reply(to, bytes, svc_dir_encode(m, bytes));
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

static int next_event(struct xport_directory *d, struct xport_directory_event *event)
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
		d->unsaid++;
		say_heard(d);
	}
	free(e);
	return 1;
}

int xport_directory_next(xport_directory *d, struct xport_directory_event *event)
{
	struct xport_directory_event e = {.size = sizeof(e)};
	int r;

	if (d == NULL || event == NULL || !svc_grow_size(event->size, SVC_FIRST_DIRECTORY_EVENT))
		return svc_fail(XPORT_ERR_INVALID, "xport_directory_next", NULL,
		                "an argument is NULL, or xport_directory_event.size is not that of the struct");
	pthread_mutex_lock(&d->lock);
	r = next_event(d, &e);
	pthread_mutex_unlock(&d->lock);
	if (r == 1)
		svc_grow_out(event, &e, sizeof(e));
	return r;
}

/* ---- what comes by mail ---- */

static void mail_ended(void *arg, struct svc_mail_peer *from, int status)
{
	struct xport_directory *d = arg;

	if (d->serve)
		svc_dir_serve_ended(d, from);
	else if (from == d->server)
		svc_dir_user_ended(d, status);
}

static void mail_anew(void *arg, struct svc_mail_peer *from)
{
	mail_ended(arg, from, XPORT_ERR_PEER_CLOSED);
}

static int mail_message(void *arg, struct svc_mail_peer *from, const uint8_t *bytes, size_t len)
{
	struct xport_directory *d = arg;
	struct svc_dir_message m;

	if (!svc_dir_decode(bytes, len, &m))
		return XPORT_ERR_PROTOCOL;
	if (m.type == SVC_DIR_BYE) {
		svc_mail_anew(from);
		mail_anew(d, from);
		return XPORT_OK;
	}
	return d->serve ? svc_dir_serve_message(d, from, &m) : svc_dir_user_message(d, from, &m);
}

static size_t encode_bye(uint8_t *bytes)
{
	struct svc_dir_message m = {.type = SVC_DIR_BYE};

	return svc_dir_encode(&m, bytes);
}

static void mail_over(void *arg, struct svc_mail_peer *from)
{
	uint8_t bytes[SVC_DIR_MAX];

	mail_ended(arg, from, XPORT_ERR_NO_MEMORY);
	svc_mail_over(from, bytes, encode_bye(bytes));
}

static const struct svc_mail_fns fns = {
	.message = mail_message, .anew = mail_anew, .over = mail_over, .ended = mail_ended};

/* ---- the loop ---- */

int xport_directory_step(xport_directory *d, const struct xport_completion *c)
{
	bool own;

	if (d == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_directory_step", NULL, "directory is NULL");
	pthread_mutex_lock(&d->lock);
	own = svc_mail_step(&d->mail, c);
	say_heard(d);
	if (d->serve && !d->destroying)
		svc_dir_serve_tell(d);
	pthread_mutex_unlock(&d->lock);
	return own;
}

int xport_directory_timeout(xport_directory *d)
{
	int ms;

	pthread_mutex_lock(&d->lock);
	ms = svc_mail_waits(&d->mail) || d->unsaid > 0 || d->untold ? 1 : -1;
	pthread_mutex_unlock(&d->lock);
	return ms;
}

/* One look, or a sleep no longer than `until`, or than another thread may take to do what is waited for. */
static int reap(struct xport_directory *d, int64_t until, xport_completion_fn other, void *arg)
{
	int64_t left = until < 0 ? SLICE_MS : until - now_ms();
	int most = xport_directory_timeout(d) > 0 ? 1 : SLICE_MS, n;
	struct xport_completion c;

	n = xport_wait(d->x, &c, 1, left > most ? most : left < 0 ? 0 : (int)left);
	if (n < 0)
		return n;
	if (xport_directory_step(d, n > 0 ? &c : NULL) == 0 && n > 0 && other != NULL)
		other(arg, &c);
	return XPORT_OK;
}

/* Asked behind a look, not before it: calls that may not wait go on, too, if they are repeated. */
static bool passed(int64_t until)
{
	return until >= 0 && now_ms() >= until;
}

int xport_directory_wait(xport_directory *d, struct xport_directory_event *event, xport_completion_fn other, void *arg,
                         int timeout_ms)
{
	int64_t until = timeout_ms < 0 ? -1 : now_ms() + timeout_ms;
	int r = xport_directory_next(d, event);

	for (bool late = false; r == 0; late = passed(until)) {
		if (late)
			return svc_fail(XPORT_ERR_TIMEOUT, "xport_directory_wait", NULL, "%d ms passed", timeout_ms);
		r = reap(d, until, other, arg);
		if (r != XPORT_OK)
			return svc_pass(d->x, r, "xport_directory_wait");
		r = xport_directory_next(d, event);
	}
	return r < 0 ? r : XPORT_OK;
}

/* ---- what is asked ---- */

static int ask(xport_directory *d, struct svc_dir_message *m, void *context, const char *operation)
{
	int r;

	if (d == NULL || (m->type != SVC_DIR_WATCH && (m->name == NULL || m->name_len == 0 || m->name_len > 255)))
		return svc_fail(XPORT_ERR_INVALID, operation, NULL,
		                d == NULL ? "directory is NULL" : "a name of %zu bytes: it has 1 to 255", m->name_len);
	pthread_mutex_lock(&d->lock);
	if (m->type == SVC_DIR_PUT) {
		m->node = (const uint8_t *)d->node;
		m->node_len = strlen(d->node);
	}
	if (d->destroying)
		r = svc_fail(XPORT_ERR_INVALID, operation, NULL, "the directory is being destroyed");
	else if (!d->serve)
		r = svc_dir_ask(d, m, context, operation);
	else if ((r = svc_dir_serve_self(d, m, context)) == XPORT_OK)
		svc_dir_serve_tell(d);
	else
		r = svc_fail(r, operation, NULL, "out of memory");
	pthread_mutex_unlock(&d->lock);
	return r;
}

int xport_directory_put(xport_directory *d, const void *name, size_t len, const struct xport_directory_entry *entry,
                        uint32_t flags, void *context)
{
	struct svc_dir_message m = {.type = SVC_DIR_PUT, .name = name, .name_len = len, .flags = flags};

	if (entry == NULL || entry->size != sizeof(*entry) || entry->key_len == 0 ||
	    entry->key_len > XPORT_DIRECTORY_KEY_MAX || entry->rights > SVC_RIGHTS ||
	    (flags & ~(uint32_t)XPORT_DIRECTORY_BROADCAST) != 0)
		return svc_fail(
			XPORT_ERR_INVALID, "xport_directory_put", "xport_directory_region fills in an entry",
			"the entry is NULL, of another size, or without a key; or there are unknown rights or flags");
	m.key = entry->key;
	m.key_len = entry->key_len;
	m.length = entry->length;
	m.offset = entry->offset;
	m.rights = entry->rights;
	return ask(d, &m, context, "xport_directory_put");
}

int xport_directory_find(xport_directory *d, const void *name, size_t len, void *context)
{
	struct svc_dir_message m = {.type = SVC_DIR_FIND, .name = name, .name_len = len};

	return ask(d, &m, context, "xport_directory_find");
}

int xport_directory_remove(xport_directory *d, const void *name, size_t len, void *context)
{
	struct svc_dir_message m = {.type = SVC_DIR_REMOVE, .name = name, .name_len = len};

	return ask(d, &m, context, "xport_directory_remove");
}

int xport_directory_watch(xport_directory *d, void *context)
{
	struct svc_dir_message m = {.type = SVC_DIR_WATCH};

	return ask(d, &m, context, "xport_directory_watch");
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
		                "the region has %zu bytes, not %" PRIu64 " at %" PRIu64, info.length, length, offset);
	memset(entry, 0, sizeof(*entry));
	entry->size = sizeof(*entry);
	if (xport_rkey_pack(mr, entry->key, &len) != XPORT_OK)
		return svc_fail(XPORT_ERR_INVALID, "xport_directory_region", NULL, "the region's key cannot be packed");
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
	struct xport_ep_info info = {.size = sizeof(info)};
	struct svc_mail_peer *p;
	int r;

	if (d->serve || xport_ep_query(ep, &info) != XPORT_OK)
		return svc_fail(XPORT_ERR_INVALID, "xport_directory_join", NULL,
		                d->serve ? "this process serves the directory" : "ep is no endpoint");
	if (d->server != NULL)
		return svc_fail(XPORT_ERR_BUSY, "xport_directory_join", "xport_directory_forget the endpoint before",
		                "another directory was joined");
	if (info.state != XPORT_EP_OPEN)
		return svc_fail(info.reason != XPORT_OK ? info.reason : XPORT_ERR_CLOSED, "xport_directory_join", NULL,
		                "the endpoint is not open");
	p = svc_mail_peer(&d->mail, ep);
	if (p == NULL || p->ended != XPORT_OK)
		return svc_fail(p == NULL ? XPORT_ERR_NO_MEMORY : p->ended, "xport_directory_join", "connect anew",
		                "%s", p == NULL ? "out of memory" : xport_strerror(p->ended));
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
	pthread_mutex_lock(&d->lock);
	r = join(d, ep);
	pthread_mutex_unlock(&d->lock);
	return r;
}

void xport_directory_forget(xport_directory *d, xport_ep *ep)
{
	if (d == NULL || ep == NULL)
		return;
	pthread_mutex_lock(&d->lock);
	svc_mail_end(&d->mail, ep, XPORT_ERR_CLOSED);
	if (d->serve && !d->destroying)
		svc_dir_serve_tell(d); /* now: no completion comes of what was closed here */
	pthread_mutex_unlock(&d->lock);
}

int xport_directory_query(xport_directory *d, struct xport_directory_info *info)
{
	struct xport_directory_info i;

	if (d == NULL || info == NULL || !svc_grow_size(info->size, SVC_FIRST_DIRECTORY_INFO))
		return svc_fail(XPORT_ERR_INVALID, "xport_directory_query", NULL,
		                "an argument is NULL, or xport_directory_info.size is not that of the struct");
	pthread_mutex_lock(&d->lock);
	i = d->info;
	i.names = d->names.n;
	i.muted = d->mail.muted;
	pthread_mutex_unlock(&d->lock);
	svc_grow_out(info, &i, sizeof(i));
	return XPORT_OK;
}

static int make(xport *x, const struct xport_directory_attr *a, struct xport_directory **directory)
{
	struct xport_directory *d = calloc(1, sizeof(*d));
	int r;

	if (d == NULL || svc_names_init(&d->names) != XPORT_OK) {
		free(d);
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_directory_create", NULL, "out of memory");
	}
	d->x = x;
	d->serve = a->serve != 0;
	d->max_names = a->max_names == 0 ? NAMES : a->max_names;
	d->peer_names = a->peer_names == 0 ? PEER_NAMES : a->peer_names;
	if (a->node != NULL)
		memcpy(d->node, a->node, strlen(a->node));
	d->last_event = &d->first_event;
	if (d->serve)
		svc_dir_serve_begin(d);
	r = svc_mail_open(&d->mail, x, a->tag == 0 ? TAG : a->tag, SVC_DIR_MAX, &fns, d, "xport_directory_create");
	if (r != XPORT_OK) {
		svc_names_fini(&d->names);
		free(d);
		return r;
	}
	pthread_mutex_init(&d->lock, NULL);
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
	if (x == NULL || directory == NULL || (a->node != NULL && strlen(a->node) > SVC_DIR_NODE_MAX))
		return svc_fail(XPORT_ERR_INVALID, "xport_directory_create", NULL, "%s",
		                x == NULL || directory == NULL ? "an argument is NULL"
		                                               : "xport_directory_attr.node is longer than 63 bytes");
	return make(x, a, directory);
}

static void say_bye(void *arg, struct svc_mail_peer *p)
{
	uint8_t bytes[SVC_DIR_MAX];
	size_t len = encode_bye(bytes);

	(void)arg;
	svc_mail_drop(p);
	svc_mail_bye(p, bytes, len);
}

static void begin_destroy(struct xport_directory *d)
{
	pthread_mutex_lock(&d->lock);
	if (!d->destroying) {
		d->destroying = true;
		svc_mail_each(&d->mail, say_bye);
		svc_mail_stop(&d->mail);
	}
	pthread_mutex_unlock(&d->lock);
}

static void end_peer(void *arg, struct svc_mail_peer *p)
{
	mail_ended(arg, p, XPORT_ERR_CLOSED);
}

int xport_directory_destroy(xport_directory *d, xport_completion_fn other, void *arg, int timeout_ms)
{
	int64_t until = timeout_ms < 0 ? -1 : now_ms() + timeout_ms;
	struct svc_dir_event *e;
	int r;

	if (d == NULL)
		return XPORT_OK;
	begin_destroy(d);
	for (bool late = false; !svc_mail_idle(&d->mail); late = passed(until)) {
		if (late)
			return svc_fail(XPORT_ERR_TIMEOUT, "xport_directory_destroy", NULL, "%d ms passed", timeout_ms);
		r = reap(d, until, other, arg);
		if (r != XPORT_OK)
			return svc_pass(d->x, r, "xport_directory_destroy");
	}
	svc_mail_each(&d->mail, end_peer);
	if (d->serve)
		svc_dir_serve_free(d);
	else
		svc_dir_user_free(d);
	while ((e = d->first_event) != NULL) {
		d->first_event = e->next;
		free(e);
	}
	free(d->lost);
	svc_names_fini(&d->names);
	svc_mail_close(&d->mail);
	pthread_mutex_destroy(&d->lock);
	free(d);
	return XPORT_OK;
}
