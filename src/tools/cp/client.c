/* SPDX-License-Identifier: BSD-3-Clause */
/* client.c - the side whose user says what to copy, there or back. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cp/cp.h"
#include "tools/cp/plant.h"
#include "tools/cp/progress.h"
#include "tools/cp/safe_path.h"
#include "tools/cp/source.h"
#include "tools/cp/worker.h"

enum { CONNECT_MS = 15000, WAIT_MS = 1000, END_MS = 5000 };

struct client {
	const struct cp_options *options;
	struct cp_hub hub;
	struct cp_link *link;
	struct cp_progress progress;
	bool ready; /* READY came */
	uint32_t there;
	enum { ASKING, SENDING, TAKING } role;
	struct cp_source source;
	struct cp_worker worker;
	struct cp_tally tally;
	void *names;        /* that sources had so far, as tsearch has them */
	char text[CP_PATH]; /* why READY refused, or "" */
};

static bool client_say(struct client *c, const char *name, const char *text)
{
	char shown[CP_PATH];

	cp_progress_clear(&c->progress);
	fprintf(stderr, "xport_cp: %s%s%s\n", name != NULL ? cp_show(name, shown, sizeof(shown)) : "",
	        name != NULL ? ": " : "", text);
	return false;
}

/* A name that is not copied. */
static void not_copied(struct client *c, const char *name, const char *text)
{
	c->tally.failed++;
	client_say(c, name, text);
}

static int client_by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Whether no source before had the name that this one is to get; "" is none.  False: that was said. */
static bool is_new(struct client *c, const char *source, const char *as)
{
	char *name = *as != '\0' ? strdup(as) : NULL;
	char **at = name != NULL ? tsearch(name, &c->names, client_by_name) : NULL;
	bool is = *as == '\0' || (at != NULL && *at == name);

	if (is)
		return true;
	not_copied(c, source,
	           at != NULL ? "another source has the same name; copy this one separately, to another directory"
	                      : "out of memory");
	free(name);
	return false;
}

/* ---- the connection ---- */

static void client_ready(struct client *c, const struct cp_msg *m)
{
	char text[CP_PATH];

	if (m->kind != CP_READY) {
		cp_link_fail(c->link, "the server's answer is not that of xport_cp");
		return;
	}
	c->ready = true;
	c->there = m->mode;
	c->text[0] = '\0';
	if (m->status != 0 && cp_msg_string(&m->text, text, sizeof(text)))
		cp_show(*text != '\0' ? text : strerror((int)m->status), c->text, sizeof(c->text));
	else if (c->role == SENDING)
		cp_link_key(c->link, &m->key);
}

static void client_message(void *arg, const struct cp_msg *m)
{
	struct client *c = arg;

	if (!c->ready)
		client_ready(c, m);
	else if (c->role == SENDING && c->source.link == NULL) /* it came together with READY */
		cp_link_fail(c->link, "the server sent a message that was not expected");
	else if (c->role == SENDING)
		cp_source_message(&c->source, m);
	else
		cp_worker_message(&c->worker, m);
}

static void client_block(void *arg, unsigned slot)
{
	struct client *c = arg;

	if (c->role == TAKING)
		cp_worker_block(&c->worker, slot);
}

static void client_sent(void *arg, unsigned slot)
{
	struct client *c = arg;

	if (c->role == SENDING)
		cp_source_sent(&c->source, slot);
}

static const struct cp_links_calls calls = {client_message, client_block, client_sent};

static bool client_connect_to(struct client *c, const char *address)
{
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = CP_HELLO, .private_len = sizeof(CP_HELLO)};
	struct xport_ep_info info = {.size = sizeof(info)};
	struct xport_error e = {.size = sizeof(e)};
	xport_ep *ep;

	c->ready = false;
	if (xport_connect(c->hub.x, address, &attr, CONNECT_MS, &ep) != XPORT_OK) {
		(void)xport_last_error(c->hub.x, &e);
		cp_progress_clear(&c->progress);
		cp_complain(&e);
		return false;
	}
	if (xport_ep_query(ep, &info) != XPORT_OK || info.private_len != sizeof(CP_HELLO) ||
	    memcmp(info.private_data, CP_HELLO, sizeof(CP_HELLO)) != 0) {
		xport_ep_destroy(ep);
		return client_say(c, address, "the program that listens there is not xport_cp --serve of this version");
	}
	c->link = cp_link_new(&c->hub, ep, &calls, c);
	return c->link != NULL || client_say(c, NULL, "out of memory");
}

/* Waits a turn; false: it is over. */
static bool turn(struct client *c, int timeout_ms)
{
	if (!cp_hub_poll(&c->hub, timeout_ms))
		return client_say(c, NULL, "the library failed");
	return !c->link->failed && !cp_interrupted;
}

/* Sends START and waits for READY; false: with a reason. */
static bool client_ask(struct client *c, const struct cp_msg *start)
{
	if (!cp_link_send(c->link, start))
		return false;
	while (!c->ready)
		if (!turn(c, WAIT_MS))
			return false;
	return !c->link->failed;
}

/*
 * How an interrupted copy is continued.  The part of a file that is at the target is used in any case; files that are complete
 * are copied again unless --update leaves them alone.
 */
static const char *how_to_continue(const struct client *c)
{
	bool one = c->options->nsources == 1 && (c->options->flags & CP_RECURSIVE) == 0;

	return one || (c->options->flags & CP_UPDATE) != 0 ? "repeat the command to continue"
	                                                   : "repeat the command with --update to continue; without "
	                                                     "--update it copies finished files again";
}

/* Says why it ended, if it was not in order, and closes. */
static bool client_leave(struct client *c, bool good)
{
	char text[200];

	snprintf(text, sizeof(text), "interrupted; %s", how_to_continue(c));
	if (cp_interrupted)
		client_say(c, NULL, text);
	else if (c->link->failed)
		client_say(c, c->link->peer, c->link->text);
	if (!cp_interrupted && c->link->failed && c->link->hint[0] != '\0')
		client_say(c, "hint", c->link->hint);
	if (c->link->failed && c->link->status != XPORT_OK)
		client_say(c, NULL, text);
	cp_link_end(c->link, good ? END_MS : 0);
	c->link = NULL;
	return good;
}

/* ---- there ---- */

/* A source here: the directory it lies in, its name in it, and what it is to be called; the last is "" where what is
 * in it is meant, as by "dir/." */
struct local {
	int root;
	char path[PATH_MAX], as[NAME_MAX + 1];
};

static bool client_locate(struct client *c, const char *name, struct local *l)
{
	char copy[PATH_MAX], real[PATH_MAX], *last;

	if (strlen(name) >= sizeof(copy) || realpath(name, real) == NULL) {
		not_copied(c, name, strerror(strlen(name) >= sizeof(copy) ? ENAMETOOLONG : errno));
		return false;
	}
	strcpy(copy, name);
	last = basename(copy);
	if (strcmp(last, ".") == 0 || strcmp(last, "..") == 0 || strcmp(last, "/") == 0)
		last[0] = '\0';
	snprintf(l->as, sizeof(l->as), "%s", last);
	snprintf(l->path, sizeof(l->path), "%s", strrchr(real, '/') + 1);
	*(strrchr(real, '/') + 1) = '\0';
	l->root = open(real, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (l->root < 0)
		not_copied(c, name, strerror(errno));
	return l->root >= 0;
}

/* What the sizes of everything come to, for the time that is left. */
static void client_add_up(struct client *c, const struct local *l)
{
	struct cp_item item;
	struct cp_walk w;

	if (cp_plant == CP_PLANT_WALK)
		sleep(6);
	if (!cp_walk_begin(&w, l->root, l->path, "", (c->options->flags & CP_RECURSIVE) != 0))
		return;
	while (cp_walk_next(&w, &item) && !cp_interrupted)
		c->progress.total += item.kind == CP_ITEM_FILE ? (uint64_t)item.st.st_size : 0;
	cp_walk_end(&w);
}

static void add_all_up(struct client *c)
{
	const struct cp_options *o = c->options;
	struct local l;

	for (int i = 0; i < o->nsources; i++) {
		uint64_t failed = c->tally.failed;

		if (access(o->sources[i], F_OK) == 0 && client_locate(c, o->sources[i], &l)) {
			client_add_up(c, &l);
			close(l.root);
		}
		c->tally.failed = failed;
	}
}

/* The name at the server: below `path` if that is a directory there. */
static bool target_name(const struct client *c, const char *path, const char *as, char to[CP_PATH])
{
	bool below = c->there == CP_IS_DIR && *as != '\0';
	int n = snprintf(to, CP_PATH, "%s%s%s", path, below && *path != '\0' ? "/" : "", below ? as : "");

	return n >= 0 && n < CP_PATH;
}

static bool send_one(struct client *c, const char *name, const char *path)
{
	struct local l;
	char as[CP_PATH];
	bool good = true;

	if (!client_locate(c, name, &l))
		return true;
	if (!target_name(c, path, l.as, as)) {
		not_copied(c, name, "its path at the target is longer than 4095 bytes");
	} else if (is_new(c, name, l.as) && cp_source_begin(&c->source, l.root, l.path, as)) {
		while (good && !cp_source_resting(&c->source))
			good = turn(c, cp_source_step(&c->source)          ? 0
			               : c->source.state == CP_SOURCE_BUSY ? 50
			                                                   : WAIT_MS);
	}
	close(l.root);
	return good;
}

static bool send_them(struct client *c, const char *path)
{
	const struct cp_options *o = c->options;

	for (int i = 0; i < o->nsources; i++)
		if (!send_one(c, o->sources[i], path))
			return false;
	cp_source_bye(&c->source);
	while (c->source.state != CP_SOURCE_ENDED)
		if (!turn(c, WAIT_MS))
			return false;
	return true;
}

static void add_tally(struct cp_tally *to, const struct cp_tally *t)
{
	to->files += t->files;
	to->bytes += t->bytes;
	to->same += t->same;
	to->resumed_bytes += t->resumed_bytes;
	to->failed += t->failed;
}

/* A slash at the end says that it is a directory.  One that is not there can become one, if the source is. */
static bool ends_in_slash(const char *path)
{
	return *path != '\0' && path[strlen(path) - 1] == '/';
}

static bool is_dir(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static void trim(char *path)
{
	for (size_t n = strlen(path); n > 0 && path[n - 1] == '/'; n--)
		path[n - 1] = '\0';
}

static bool send_all(struct client *c)
{
	const struct cp_options *o = c->options;
	char address[256], path[CP_PATH];
	struct cp_msg m = {.kind = CP_START, .flags = CP_PUT | o->flags, .path = {path, 0}};
	const char *given;
	bool good;

	(void)cp_remote(o->target, address, &given);
	if ((size_t)snprintf(path, sizeof(path), "%s", given) >= sizeof(path))
		return client_say(c, o->target, "the path is longer than 4095 bytes");
	trim(path);
	m.path.n = strlen(path);
	c->role = SENDING;
	/* Before the server waits for anything: a large tree may take longer than it has patience. */
	if (c->progress.shown)
		add_all_up(c);
	if (!client_connect_to(c, address))
		return false;
	good = client_ask(c, &m);
	if (good && c->text[0] != '\0') {
		not_copied(c, o->target, c->text);
		return client_leave(c, true);
	}
	if (good && c->there != CP_IS_DIR && o->nsources > 1) {
		not_copied(c, o->target, "it is not a directory there, and there are several sources; create it first");
		return client_leave(c, true);
	}
	if (good && c->there != CP_IS_DIR && ends_in_slash(given) && !is_dir(o->sources[0])) {
		not_copied(c, o->target, "it is not a directory there; create it first, or omit the slash at the end");
		return client_leave(c, true);
	}
	good = good && cp_source_init(&c->source, c->link, o->flags, &c->progress.see);
	if (good) {
		good = send_them(c, path);
		add_tally(&c->tally, &c->source.tally);
		cp_source_fini(&c->source);
	}
	return client_leave(c, good);
}

/* ---- back ---- */

/* The directory that it goes to here, and the name that it gets; "": the one that it has. */
static int target_here(struct client *c, char as[NAME_MAX + 1])
{
	const char *target = c->options->target;
	char copy[PATH_MAX], name[PATH_MAX], *last;
	int fd = open(target, O_PATH | O_DIRECTORY | O_CLOEXEC);

	as[0] = '\0';
	if (fd >= 0)
		return fd;
	if (c->options->nsources > 1) {
		client_say(c, target, "it is not a directory, and there are several sources; create it first");
		return -1;
	}
	if (ends_in_slash(target) && (c->options->flags & CP_RECURSIVE) == 0) {
		client_say(c, target, "it is not a directory; create it first, or omit the slash at the end");
		return -1;
	}
	snprintf(copy, sizeof(copy), "%s", target);
	snprintf(name, sizeof(name), "%s", target);
	last = basename(name);
	if (strlen(target) >= sizeof(name) || strlen(last) > NAME_MAX) { /* cut off, it might be another file's */
		client_say(c, target, strerror(ENAMETOOLONG));
		return -1;
	}
	strcpy(as, last);
	fd = open(dirname(copy), O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		client_say(c, target, strerror(errno));
	return fd;
}

/* How the name ends, by which it is called here; "" for all that is in it. */
static const char *last_part(char *path)
{
	char *slash;

	trim(path);
	slash = strrchr(path, '/');
	if (strcmp(slash != NULL ? slash + 1 : path, ".") != 0)
		return slash != NULL ? slash + 1 : path;
	*(slash != NULL ? slash : path) = '\0';
	return "";
}

static bool client_take(struct client *c)
{
	bool good = true;

	while (good && !c->worker.ended) {
		good = turn(c, WAIT_MS);
		cp_worker_answer(&c->worker);
	}
	return good;
}

static bool is_nothing(const struct cp_tally *t)
{
	return t->files + t->same + t->failed == 0;
}

static bool fetch_one(struct client *c, const char *source, int root, const char *as)
{
	char address[256], path[CP_PATH];
	uint8_t key[CP_KEY];
	size_t len = sizeof(key);
	struct cp_msg m = {.kind = CP_START, .flags = CP_GET | c->options->flags};
	const char *given, *last;
	bool good;

	(void)cp_remote(source, address, &given);
	if ((size_t)snprintf(path, sizeof(path), "%s", given) >= sizeof(path))
		return client_say(c, source, "the path is longer than 4095 bytes");
	last = last_part(path);
	if (!is_new(c, source, last))
		return true;
	m.path = (struct cp_bytes){path, strlen(path)};
	m.text = *as != '\0' ? (struct cp_bytes){as, strlen(as)} : (struct cp_bytes){last, strlen(last)};
	c->role = TAKING;
	if (!client_connect_to(c, address))
		return false;
	good = cp_link_slots(c->link, XPORT_REMOTE_WRITE, key, &len);
	m.key = (struct cp_bytes){key, len};
	good = good && cp_worker_start(&c->worker, c->link, root, (c->options->flags & CP_SYNC) != 0, &c->progress.see);
	if (good) {
		cp_sink_expect(&c->worker.sink, *as != '\0' ? as : last, (c->options->flags & CP_RECURSIVE) != 0);
		good = client_ask(c, &m);
		if (good && c->text[0] != '\0')
			not_copied(c, source, c->text);
		else if (good)
			good = client_take(c);
		(void)cp_worker_stop(&c->worker);
		if (good && c->text[0] == '\0' && (c->options->flags & CP_RECURSIVE) == 0 &&
		    is_nothing(&c->worker.sink.tally))
			not_copied(c, source, "the server sent nothing of what was requested");
		add_tally(&c->tally, &c->worker.sink.tally);
	}
	return client_leave(c, good);
}

static bool fetch_all(struct client *c)
{
	const struct cp_options *o = c->options;
	char as[NAME_MAX + 1];
	int root = target_here(c, as);
	bool good = true;

	if (root < 0) {
		c->tally.failed++;
		return true;
	}
	for (int i = 0; good && i < o->nsources; i++)
		good = fetch_one(c, o->sources[i], root, as);
	close(root);
	return good;
}

/* ---- the whole ---- */

static void summary(struct client *c)
{
	const struct cp_tally *t = &c->tally;
	double s = cp_progress_seconds(&c->progress);
	char a[32], b[32];

	cp_progress_clear(&c->progress);
	if (c->options->json)
		printf("{\"files\": %llu, \"bytes\": %llu, \"resumed_bytes\": %llu, \"same\": %llu, \"failed\": %llu, "
		       "\"seconds\": %.3f}\n",
		       (unsigned long long)t->files, (unsigned long long)t->bytes, (unsigned long long)t->resumed_bytes,
		       (unsigned long long)t->same, (unsigned long long)t->failed, s);
	else if (!c->options->quiet)
		printf("%llu files, %s in %.1f s, %s/s%s\n", (unsigned long long)t->files, cp_size(t->bytes, a), s,
		       cp_size((uint64_t)((double)t->bytes / (s > 0 ? s : 1)), b),
		       t->failed > 0 ? "; not everything was copied" : "");
}

int cp_client(const struct cp_options *o)
{
	static struct client c;
	bool good;

	c.options = o;
	cp_progress_init(&c.progress, !o->quiet && (o->progress || isatty(STDERR_FILENO)));
	if (!cp_hub_open(&c.hub, o->backend))
		return CP_EXIT_LOST;
	good = o->fetch ? fetch_all(&c) : send_all(&c);
	cp_hub_close(&c.hub);
	tdestroy(c.names, free);
	summary(&c);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		perror("xport_cp: standard output");
		return CP_EXIT_SOME_FAILED;
	}
	return !good ? CP_EXIT_LOST : c.tally.failed > 0 ? CP_EXIT_SOME_FAILED : CP_EXIT_DONE;
}
