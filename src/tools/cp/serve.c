/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * serve.c - xport_cp --serve: one session for each client, all in one thread. A session is a sink or a source, as the
 * client requests.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/cp/cp.h"
#include "tools/cp/plant.h"
#include "tools/cp/safe_path.h"
#include "tools/cp/source.h"
#include "tools/cp/worker.h"

/* FRESH_S: so long a client may take to say what it wants; there are few places.  PLANTED_S: for tests. */
enum { WAIT_MS = 1000, IDLE_S = 300, FRESH_S = 5, PLANTED_S = 3 };

struct session {
	struct cp_link *link; /* NULL: not in use */
	enum { FRESH, SINK, SOURCE } role;
	struct cp_worker worker;
	struct cp_source source;
	struct cp_observer see;
	time_t heard;
};

static struct server {
	const struct cp_options *options;
	struct cp_hub hub;
	xport_listener *listener;
	int root;
	time_t now; /* when what had come until then was heard: who was not heard since has said nothing */
	struct session sessions[CP_LINKS];
} server;

static time_t now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

/* ---- what a client asks for ---- */

static void serve_refuse(struct session *s, int error, const char *what)
{
	struct cp_msg m = {.kind = CP_READY, .status = (uint32_t)error, .text = {what, strlen(what)}};

	cp_link_send(s->link, &m);
}

static uint32_t there(const char *path)
{
	int fd = cp_safe_path_open(server.root, path, O_PATH);
	struct stat st;
	uint32_t kind = CP_ABSENT;

	if (fd < 0)
		return errno == ENOENT ? CP_ABSENT : CP_IS_OTHER;
	if (fstat(fd, &st) == 0)
		kind = S_ISDIR(st.st_mode) ? CP_IS_DIR : CP_IS_OTHER;
	close(fd);
	return kind;
}

static bool is_link(const char *path)
{
	int fd = cp_safe_path_open(server.root, path, O_PATH);
	struct stat st;
	bool link = fd >= 0 && fstat(fd, &st) == 0 && S_ISLNK(st.st_mode);

	if (fd >= 0)
		close(fd);
	return link;
}

/* A link to a directory is meant as that directory, and nothing is to take its place.  Where one leads that leads out of
 * what is served is nobody's business. */
static bool may_be_directory(const char *path)
{
	char to[CP_PATH];

	if (!is_link(path))
		return false;
	strcpy(to, path);
	return cp_safe_path_follow(server.root, to) ? there(to) == CP_IS_DIR : errno != ENOENT;
}

static void become_sink(struct session *s, const char *path, uint32_t flags)
{
	struct cp_msg m = {.kind = CP_READY, .mode = there(path)};
	uint8_t key[CP_KEY];
	size_t len = sizeof(key);

	if (server.options->read_only) {
		serve_refuse(s, EROFS, "the server is read-only (--read-only)");
		return;
	}
	if (m.mode == CP_IS_OTHER && may_be_directory(path)) {
		serve_refuse(s, ELOOP,
		             "it is a symbolic link there, to a directory or to a path outside the served directory; "
		             "name the directory itself, or remove the link");
		return;
	}
	if (!cp_link_slots(s->link, XPORT_REMOTE_WRITE, key, &len) ||
	    !cp_worker_start(&s->worker, s->link, server.root, ((flags | server.options->flags) & CP_SYNC) != 0, NULL))
		return;
	s->role = SINK;
	m.key = (struct cp_bytes){key, len};
	cp_link_send(s->link, &m);
}

/* What this side could not read, for the client to show. */
static void pass_note(void *arg, const char *text)
{
	struct session *s = arg;
	size_t n = strlen(text);
	struct cp_msg m = {.kind = CP_NOTE, .text = {text, n < CP_PATH - 1 ? n : CP_PATH - 1}};

	if (cp_link_send(s->link, &m))
		s->source.notes++;
}

/* A link that is named is followed, but not out of what is served; false: it was refused. */
static bool serve_follow(struct session *s, char path[CP_PATH])
{
	char text[CP_TEXT];
	int error;

	if (cp_safe_path_follow(server.root, path))
		return true;
	error = errno;
	if (!is_link(path))
		return true; /* the walk says what is wrong */
	if (error == EXDEV)
		snprintf(text, sizeof(text), "it is a symbolic link to a path outside the served directory");
	else
		snprintf(text, sizeof(text), "following the symbolic link: %s", strerror(error));
	serve_refuse(s, error, text);
	return false;
}

static void become_source(struct session *s, char path[CP_PATH], const char *as, const struct cp_msg *start)
{
	struct cp_msg m = {.kind = CP_READY};

	if (!serve_follow(s, path))
		return;
	s->see = (struct cp_observer){.note = pass_note, .arg = s};
	if (!cp_link_key(s->link, &start->key) ||
	    !cp_source_init(&s->source, s->link, start->flags & (CP_RECURSIVE | CP_UPDATE), &s->see))
		return;
	s->role = SOURCE;
	cp_link_send(s->link, &m);
	cp_source_begin(&s->source, server.root, path, as);
}

static void serve_start(struct session *s, const struct cp_msg *m)
{
	char path[CP_PATH], as[CP_PATH];
	bool whole = cp_msg_string(&m->path, path, sizeof(path)) && cp_msg_string(&m->text, as, sizeof(as));

	if (m->kind != CP_START || !whole)
		cp_link_fail(s->link, "the client's first message is not that of xport_cp");
	else if (cp_path_fault(path) != NULL || cp_path_fault(as) != NULL)
		serve_refuse(s, EINVAL,
		             "a path must be relative to the served directory, without an empty part, . or ..");
	else if ((m->flags & CP_PUT) != 0)
		become_sink(s, path, m->flags);
	else
		become_source(s, path, as, m);
}

/* ---- sessions ---- */

static void serve_message(void *arg, const struct cp_msg *m)
{
	struct session *s = arg;

	s->heard = now_s();
	if (s->role == FRESH)
		serve_start(s, m);
	else if (s->role == SINK)
		cp_worker_message(&s->worker, m);
	else
		cp_source_message(&s->source, m);
}

static void serve_block(void *arg, unsigned slot)
{
	struct session *s = arg;

	s->heard = now_s();
	if (s->role == SINK)
		cp_worker_block(&s->worker, slot);
	else
		cp_link_fail(s->link, "the client sent blocks that were not requested");
}

static void serve_sent(void *arg, unsigned slot)
{
	struct session *s = arg;

	if (s->role == SOURCE)
		cp_source_sent(&s->source, slot);
}

static const struct cp_links_calls calls = {serve_message, serve_block, serve_sent};

static bool speaks(xport_ep *ep)
{
	struct xport_ep_info info = {.size = sizeof(info)};

	return xport_ep_query(ep, &info) == XPORT_OK && info.private_len == sizeof(CP_HELLO) &&
	       memcmp(info.private_data, CP_HELLO, sizeof(CP_HELLO)) == 0;
}

static struct session *free_session(void)
{
	for (unsigned i = 0; i < CP_LINKS; i++)
		if (server.sessions[i].link == NULL)
			return &server.sessions[i];
	return NULL;
}

static void take_clients(void)
{
	struct session *s;
	xport_ep *ep;

	while (xport_accept(server.listener, 0, &ep) == XPORT_OK) {
		s = free_session();
		if (s == NULL || !speaks(ep)) {
			fprintf(stderr, "xport_cp: closed a connection: %s\n",
			        s == NULL ? "there are already 16" : "the client is not xport_cp of this version");
			xport_ep_destroy(ep);
			continue;
		}
		*s = (struct session){.role = FRESH, .heard = now_s()};
		s->link = cp_link_new(&server.hub, ep, &calls, s);
	}
}

static void end_session(struct session *s)
{
	struct cp_link *l = s->link;
	bool in_order = l->status == XPORT_ERR_PEER_CLOSED && (s->role != SOURCE || s->source.state == CP_SOURCE_ENDED);

	if (s->role == SINK)
		in_order = !cp_worker_stop(&s->worker) && in_order;
	if (s->role == SOURCE)
		cp_source_fini(&s->source);
	if (!in_order && l->failed && !server.options->quiet)
		fprintf(stderr, "xport_cp: %s: %s%s%s\n", l->peer, l->text,
		        l->hint[0] != '\0' ? "\nxport_cp: hint: " : "", l->hint);
	cp_link_end(l, 0);
	s->link = NULL;
}

static time_t patience_with(const struct session *s)
{
	if (s->role == FRESH)
		return FRESH_S;
	return cp_plant == CP_PLANT_IDLE ? PLANTED_S : IDLE_S;
}

/* True: it has more to do at once. */
static bool run_session(struct session *s)
{
	time_t patience = patience_with(s);
	bool more = false;

	if (s->role == SOURCE && !s->link->failed) {
		more = cp_source_step(&s->source);
		if (cp_source_resting(&s->source))
			cp_source_bye(&s->source);
		/* Its file may take long to reach the disk; a client that is gone meanwhile is lost to the library. */
		if (s->source.state == CP_SOURCE_TOLD)
			s->heard = server.now;
	}
	if (s->role == SINK) {
		cp_worker_answer(&s->worker);
		if (cp_worker_busy(&s->worker))
			s->heard = server.now;
	}
	if (server.now - s->heard > patience)
		cp_link_fail(s->link, "no message for %d s", (int)patience);
	/* What its worker is doing may take long, and the others do not wait for it. */
	if (s->link->failed && (s->role != SINK || cp_worker_quit(&s->worker)))
		end_session(s);
	return more;
}

static int loop(void)
{
	int rc = CP_EXIT_DONE;

	server.now = now_s();
	while (!cp_interrupted && rc == CP_EXIT_DONE) {
		bool more = false;

		for (unsigned i = 0; i < CP_LINKS; i++)
			if (server.sessions[i].link != NULL)
				more = run_session(&server.sessions[i]) || more;
		if (!cp_hub_poll(&server.hub, more ? 0 : WAIT_MS))
			rc = CP_EXIT_LOST;
		server.now = now_s();
		if (rc == CP_EXIT_DONE)
			take_clients();
	}
	for (unsigned i = 0; i < CP_LINKS; i++)
		if (server.sessions[i].link != NULL)
			end_session(&server.sessions[i]); /* their workers are done before the memory goes */
	return rc;
}

/* The value of XPORT_BACKEND or -B if it means several transports; else NULL. */
static const char *serve_set(void)
{
	const char *value = server.options->backend != NULL ? server.options->backend : getenv("XPORT_BACKEND");

	if (value == NULL || *value == '\0')
		return "auto";
	return strcmp(value, "auto") == 0 || strchr(value, '+') != NULL ? value : NULL;
}

static bool listen_there(void)
{
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = CP_HELLO, .private_len = sizeof(CP_HELLO)};
	struct xport_info info = {.size = sizeof(info)};
	struct xport_error e = {.size = sizeof(e)};
	char name[256], one[80];

	if (xport_listen(server.hub.x, server.options->listen, &attr, &server.listener) != XPORT_OK ||
	    xport_listener_name(server.listener, name, sizeof(name)) != XPORT_OK ||
	    xport_query(server.hub.x, &info) != XPORT_OK) {
		(void)xport_last_error(server.hub.x, &e);
		cp_complain(&e);
		return false;
	}
	snprintf(one, sizeof(one), "%s:%s", info.backend, info.provider);
	printf("xport_cp: serving %s on %s, over %s\n", server.options->serve, name, serve_set() ? serve_set() : one);
	return fflush(stdout) == 0;
}

int cp_serve(const struct cp_options *o)
{
	int rc = CP_EXIT_LOST;

	server.options = o;
	server.root = open(o->serve, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (server.root < 0) {
		fprintf(stderr, "xport_cp: %s: %s: --serve needs an existing directory\n", o->serve, strerror(errno));
		return CP_EXIT_USAGE;
	}
	if (cp_hub_open(&server.hub, o->backend) && listen_there())
		rc = loop();
	if (server.hub.x != NULL) {
		xport_listener_close(server.listener);
		cp_hub_close(&server.hub);
	}
	close(server.root);
	return rc;
}
