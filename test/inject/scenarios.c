/* SPDX-License-Identifier: BSD-3-Clause */
/* scenarios.c - see scenarios.h: scenarios of an instance, its connections and its operations. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "scenarios.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scene.h"

/* In scenarios_services.c and the others. */
void make_sysfs(struct scene *s);
void near_device(struct scene *s);
void pool_blocks(struct scene *s);
void pool_busy(struct scene *s);
void cache(struct scene *s);
void metrics(struct scene *s);
void prepared(struct scene *s);
void versioned(struct scene *s);
void leases(struct scene *s);
void far_memory(struct scene *s);
void directory(struct scene *s);
void link_back(struct scene *s);
void bulk(struct scene *s);
void rpc(struct scene *s);
void group(struct scene *s);
void start_servers(struct scene *s);
void launcher_1(struct scene *s);
void launcher_2(struct scene *s);
void etcd_group(struct scene *s);
void etcd_directory(struct scene *s);
void peers(struct scene *s); /* in scenarios_peer.c */

/* ---- one instance, or two ---- */

static void open_close(struct scene *s)
{
	if (sc_open_both(s)) {
		sc_breathe(s, 3);
		if (xport_fd(s->x[0]) < 0)
			scene_bad(s, "xport_fd has no descriptor");
		sc_breathe(s, 3);
	}
	sc_close_all(s);
}

static void connect_accept(struct scene *s)
{
	if (sc_open_both(s)) {
		sc_connect_both(s);
		for (int side = 0; side < 2; side++)
			if (s->ep[side] != NULL)
				sc_ep_query(s, side);
	}
	sc_close_all(s);
}

static void fill(uint8_t *p, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(i * 7 + seed + (i >> 8));
}

/* Between two instances, if both are open. */
static void use_memory(struct scene *s, bool opened)
{
	struct region r[2] = {{0}, {0}};

	fill(local[1], sizeof(local[1]), 1);
	if (opened)
		sc_connect_both(s);
	for (int i = 0; i < 2 && sc_connected(s); i++) {
		sc_share(s, &r[i], i == 0);
		sc_breathe(s, 20); /* a native key is claimed meanwhile */
		if (r[i].key != NULL && sc_connected(s))
			sc_access(s, &r[i]);
	}
	for (int i = 0; i < 2; i++)
		xport_rkey_destroy(r[i].key);
	sc_close_endpoint(s, 1);
	sc_breathe(s, 4);
	sc_close_endpoint(s, 0);
	sc_unshare(s, &r[0]);
	sc_unshare(s, &r[1]);
	sc_close_all(s);
}

static void memory(struct scene *s)
{
	use_memory(s, sc_open_both(s));
}

/* The server has several transports, and opens the one that the client has when that connects. */
static void several(struct scene *s)
{
	const char *backend = s->backend;
	bool opened;

	s->backend = "loop:rdma+loop:native";
	opened = sc_open_side(s, 0) && sc_query(s, 0);
	s->backend = "loop:native";
	use_memory(s, opened && sc_open_side(s, 1) && sc_query(s, 1));
	s->backend = backend;
}

static void until_done(struct scene *s, const struct scene_op *op, const char *what)
{
	for (int64_t end = sc_now_ms() + OPS_LIMIT_MS; !sc_failing(s) && !op->done && sc_now_ms() < end;)
		sc_step(s);
	if (!sc_failing(s) && !op->done)
		scene_bad(s, "hang: %s was sent and did not arrive", what);
}

/* It takes a short message and a long one, and is used up then. */
static void many_messages(struct scene *s)
{
	struct scene_op *op;

	memset(buffer[0], 0, LONG);
	op = sc_receive_many(s, 0, LONG + 64, LONG, 100);
	if (!op->accepted) /* the long one would wait for it */
		return;
	sc_send_to(s, 1, 16, 100);
	sc_send_to(s, 1, LONG, 100);
	sc_settle(s);
	until_done(s, op, "a message for a receive that takes many");
	if (!sc_failing(s) && memcmp(buffer[0] + 64, local[1], LONG) != 0)
		scene_bad(s, "a message for a receive that takes many arrived wrong");
}

static void messages(struct scene *s)
{
	static const size_t lengths[] = {0, 16, 5000, LONG, LONG};

	for (int side = 0; side < 2; side++)
		fill(local[side], sizeof(local[side]), 3);
	if (sc_open_both(s))
		sc_connect_both(s);
	for (int i = 0; i < 10 && sc_connected(s); i++) {
		int from = i & 1, to = !from;
		size_t len = lengths[i / 2];
		struct scene_op *op = NULL;

		if (i == 8) /* put where it is received, where the network can do that */
			for (int side = 0; side < 2; side++)
				sc_own(s, side);
		memset(buffer[to], 0, len);
		if (i < 4) /* some find their receive, others do not */
			op = sc_receive(s, to, len, (uint64_t)i);
		sc_send_to(s, from, len, (uint64_t)i);
		sc_breathe(s, 5);
		if (i >= 4)
			op = sc_receive(s, to, len, (uint64_t)i);
		sc_settle(s);
		for (int64_t end = sc_now_ms() + OPS_LIMIT_MS; !sc_failing(s) && !op->done && sc_now_ms() < end;)
			sc_step(s);
		if (!sc_failing(s) && !op->done)
			scene_bad(s, "hang: a message of %zu bytes was sent and did not arrive", len);
		if (!sc_failing(s) && memcmp(buffer[to], local[from], len) != 0)
			scene_bad(s, "a message of %zu bytes arrived wrong", len);
	}
	if (sc_connected(s))
		many_messages(s);
	for (int side = 1; side >= 0; side--) {
		sc_close_endpoint(s, side);
		sc_breathe(s, 4);
	}
	for (int side = 0; side < 2; side++)
		sc_disown(s, side);
	sc_close_all(s);
}

/* The pieces of a get must be those of the put before it. */
static void list_access(struct scene *s, struct region *r, size_t len)
{
	memset(local[1] + REGION, 0, PIECES * len);
	sc_putv(s, r->key, len, 0);
	sc_settle(s);
	sc_getv(s, r->key, len);
	sc_settle(s);
	if (!sc_failing(s) && memcmp(local[1] + REGION, local[1], PIECES * len) != 0)
		scene_bad(s, "a get of %d pieces of %zu bytes succeeded, and what it got is wrong", PIECES, len);
	sc_putv(s, r->key, len, XPORT_QUIET);
	sc_putv(s, r->key, len, XPORT_LOCAL);
	sc_flush(s);
	sc_settle(s);
}

static void list_message(struct scene *s, size_t len, bool early)
{
	struct scene_op *op = NULL;

	memset(buffer[0], 0, PIECES * len);
	if (early)
		op = sc_receivev(s, 0, len, len);
	sc_sendv_to(s, 1, len, len);
	sc_breathe(s, 5);
	if (!early)
		op = sc_receivev(s, 0, len, len);
	sc_settle(s);
	for (int64_t end = sc_now_ms() + OPS_LIMIT_MS; !sc_failing(s) && !op->done && sc_now_ms() < end;)
		sc_step(s);
	if (!sc_failing(s) && !op->done)
		scene_bad(s, "hang: %d pieces of %zu bytes were sent and did not arrive", PIECES, len);
	if (!sc_failing(s) && memcmp(buffer[0], local[1], PIECES * len) != 0)
		scene_bad(s, "a message of %d pieces of %zu bytes arrived wrong", PIECES, len);
}

static void lists(struct scene *s)
{
	struct region r = {0};

	fill(local[1], sizeof(local[1]), 5);
	if (sc_open_both(s))
		sc_connect_both(s);
	if (sc_connected(s)) {
		sc_share(s, &r, true);
		sc_breathe(s, 20);
	}
	for (int i = 0; i < 2 && sc_connected(s) && r.key != NULL; i++)
		list_access(s, &r, i == 0 ? 8 : REGION / 2 / PIECES - 32);
	for (int i = 0; i < 4 && sc_connected(s); i++)
		list_message(s, i < 2 ? 10 : LONG / PIECES, i % 2 == 0);
	sc_deadline_ms = 600000;
	for (int i = 0; i < 2 && sc_connected(s); i++)
		list_message(s, i == 0 ? 10 : LONG / PIECES, i == 0);
	sc_deadline_ms = 0;
	if (sc_connected(s)) { /* none of these ends before the endpoint does */
		sc_receivev(s, 0, 100, 1000);
		sc_sendv_to(s, 0, LONG / PIECES, 1001);
	}
	xport_rkey_destroy(r.key);
	for (int side = 1; side >= 0; side--) {
		sc_close_endpoint(s, side);
		sc_breathe(s, 4);
	}
	sc_unshare(s, &r);
	sc_close_all(s);
}

/* Many operations are on their way when one side closes, in the middle of them. */
static void close_loaded(struct scene *s)
{
	struct region r = {0};

	if (sc_open_both(s))
		sc_connect_both(s);
	if (sc_connected(s))
		sc_share(s, &r, false);
	for (int i = 0; i < 8 && sc_connected(s) && r.key != NULL; i++) {
		sc_put(s, r.key, 10000, 0, 0);
		sc_get(s, r.key, 10000, 0);
		sc_atomic(s, r.key, NULL);
		sc_put_notify(s, r.key, 100, 1);
		sc_send_to(s, 1, 100, 5);
		sc_receive(s, 0, 100, 6);
		sc_send_to(s, 0, LONG, 7); /* nobody receives it */
	}
	if (sc_connected(s))
		sc_flush(s);
	sc_step(s);
	sc_close_endpoint(s, 1);
	sc_settle(s);
	sc_close_endpoint(s, 0);
	for (int64_t end = sc_now_ms() + 10000; sc_now_ms() < end;) {
		bool open = false;

		for (int i = 0; i < s->nops; i++)
			open = open || (s->ops[i].accepted && !s->ops[i].done && !s->ops[i].quiet);
		if (!open)
			break;
		sc_step(s);
	}
	for (int i = 0; i < s->nops; i++)
		if (s->ops[i].accepted && !s->ops[i].done && !s->ops[i].quiet)
			scene_bad(s, "operation %d, of type %u, has not completed after its endpoint was closed", i,
			          s->ops[i].type);
	xport_rkey_destroy(NULL);
	sc_unshare(s, &r);
	sc_close_all(s);
}

/* ---- with threads of their own ---- */

/* Here both sides answer by themselves, so that the calls that wait can be made, and a region can end while it is in use. */
static void threads(struct scene *s)
{
	struct region r = {0};
	int rc;

	fill(local[1], sizeof(local[1]), 1);
	if (sc_open_both(s))
		sc_connect_both(s);
	if (sc_connected(s)) {
		sc_share(s, &r, true);
		sc_breathe(s, 20);
		if (r.key != NULL && sc_connected(s))
			sc_access(s, &r);
		for (int side = 0; side < 2 && sc_connected(s); side++)
			sc_own(s, side);
		if (sc_connected(s)) {
			sc_receive(s, 0, LONG, 1);
			sc_send_to(s, 1, LONG, 1);
			sc_settle(s);
		}
		inject_relent(); /* the peer's answer that it no longer uses the region may need memory */
		sc_unshare(s, &r);
		sc_disown(s, 0);
		xport_rkey_destroy(r.key);
		poll(NULL, 0, 50); /* the threads fall asleep */
	}
	rc = s->x[0] != NULL ? xport_wait(s->x[0], NULL, 0, 10) : 0;
	if (rc < 0)
		sc_ok(s, s->x[0], "xport_wait", rc, BIT(XPORT_ERR_SYSTEM));
	sc_unshare(s, &r);
	sc_close_all(s);
}

/* ---- other settings ---- */

static char path[128];

static void set(const char *name, const char *value)
{
	if (setenv(name, value, 1) != 0)
		abort();
}

/* A file of this process's; FORMAT has %d for its number. */
static FILE *make_file(const char *format, const char *variable, const char *value_format)
{
	char value[160];
	FILE *f;

	snprintf(path, sizeof(path), format, (int)getpid());
	f = fopen(path, "w");
	if (f == NULL)
		abort();
	snprintf(value, sizeof(value), value_format, path);
	set(variable, value);
	return f;
}

static void make_key(struct scene *s)
{
	FILE *f;

	(void)s;
	umask(077);
	f = make_file("/tmp/xport-inject-%d", "XPORT_AUTH_KEY_FILE", "%s");
	fputs("a key of the injection tests, forty bytes.\n", f);
	fclose(f);
}

static void with_key(struct scene *s)
{
	connect_accept(s);
	unlink(path);
}

static void change_settings(struct scene *s)
{
	(void)s;
	fclose(make_file("/tmp/xport-inject-%d", "XPORT_LOG", "info,%s"));
	set("XPORT_LIVENESS", "poll");
	set("XPORT_OP_TIMEOUT", "5s"); /* what finds no memory for good ends before */
}

static void with_settings(struct scene *s)
{
	if (sc_open_both(s)) {
		xport_fd(s->x[0]);
		sc_connect_both(s);
	}
	if (sc_connected(s)) {
		sc_send_to(s, 1, 100, 1);
		sc_settle(s);
		if (xport_wait(s->x[0], NULL, 0, 20) < 0 || xport_wait(s->x[1], NULL, 0, 0) < 0)
			sc_step(s);
	}
	sc_close_all(s);
	unlink(path);
}

static void allow_all(struct scene *s)
{
	(void)s;
	set("XPORT_AUTH", "none");
}

/* Both find a socket there whose process is gone. */
static void meet_in_directory(struct scene *s)
{
	struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(path, sizeof(path), "/tmp/xport-inject-%d", (int)getpid());
	snprintf(a.sun_path, sizeof(a.sun_path), "%.60s/xport-%032x", path, 1);
	if (sock < 0 || mkdir(path, 0700) != 0 || bind(sock, (struct sockaddr *)&a, sizeof(a)) != 0 ||
	    utimensat(AT_FDCWD, a.sun_path, old, 0) != 0)
		abort();
	close(sock);
	set("XPORT_SHM_DIR", path);
	s->backend = "shm";
}

static void meets(struct scene *s)
{
	char name[160];
	struct dirent *e;
	DIR *dir;

	memory(s);
	dir = opendir(path);
	while (dir != NULL && (e = readdir(dir)) != NULL) {
		snprintf(name, sizeof(name), "%.60s/%.60s", path, e->d_name);
		unlink(name);
	}
	if (dir != NULL)
		closedir(dir);
	rmdir(path);
}

static void measure(struct scene *s)
{
	(void)s;
	set("XPORT_LATENCY", "1");
	set("XPORT_TRAFFIC_CLASS", "urgent");
}

static void addresses(struct scene *s)
{
	xport_listener *l;
	xport_ep *ep;

	if (!sc_open_both(s)) {
		sc_close_all(s);
		return;
	}
	if (sc_ok(s, s->x[0], "xport_listen", xport_listen(s->x[0], "*:0", NULL, &l), ON_LISTEN))
		xport_listener_close(l);
	/* Nobody listens there. */
	if (xport_connect(s->x[1], "[::1%lo]:1", NULL, 200, &ep) == XPORT_OK)
		scene_bad(s, "a connection to where nobody listens succeeded");
	if (xport_connect(s->x[1], "localhost.:1", NULL, 10000, &ep) == XPORT_OK)
		scene_bad(s, "a connection to where nobody listens succeeded");
	sc_connect_at(s, "[::1]:0");
	sc_close_all(s);
}

/* ---- a peer that dies ---- */

static struct {
	pid_t pid;
	char name[80]; /* where it listens */
} peer;

static void peer_main(const char *backend, int in)
{
	struct xport_attr attr = {.size = sizeof(attr), .backend = backend, .log_level = XPORT_LOG_ERROR};
	struct xport_completion c[8];
	xport_listener *l;
	xport_ep *ep;
	char name[80] = "";
	xport *x;

	if (xport_open(&attr, &x) != XPORT_OK || xport_listen(x, "127.0.0.1:0", NULL, &l) != XPORT_OK ||
	    xport_listener_name(l, name, sizeof(name)) != XPORT_OK || write(in, name, sizeof(name)) != sizeof(name) ||
	    xport_accept(l, 20000, &ep) != XPORT_OK)
		_exit(1);
	while (xport_wait(x, c, 8, 20000) >= 0)
		continue;
	_exit(0);
}

static void start_peer(struct scene *s)
{
	int ends[2];

	if (strncmp(s->backend, "loop", 4) == 0)
		return; /* it reaches its own process alone */
	if (pipe2(ends, O_CLOEXEC) != 0)
		abort();
	peer.pid = fork();
	if (peer.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		peer_main(s->backend, ends[1]);
	}
	close(ends[1]);
	if (read(ends[0], peer.name, sizeof(peer.name)) != sizeof(peer.name))
		scene_bad(s, "the peer has no address");
	close(ends[0]);
}

static void until_lost(struct scene *s)
{
	int64_t end = sc_now_ms() + LOST_LIMIT_MS;

	s->ending = true;
	while (!s->ended[1] && sc_now_ms() < end)
		sc_step(s);
	if (!s->ended[1])
		scene_bad(s, "hang: the peer was killed %d ms ago, and there is no event", LOST_LIMIT_MS);
	sc_settle(s);
}

static void death(struct scene *s)
{
	if (peer.pid == 0)
		return;
	if (sc_open_side(s, 1)) {
		int rc = xport_connect(s->x[1], peer.name, NULL, 10000, &s->ep[1]);

		s->up[1] = sc_ok(s, s->x[1], "xport_connect", rc, ON_CONNECT);
		if (!s->up[1])
			s->ep[1] = NULL;
	}
	if (s->up[1]) {
		sc_send_to(s, 1, 100, 1);
		sc_send_to(s, 1, LONG, 2);
		sc_receive(s, 1, 100, 3);
		sc_flush(s);
		sc_breathe(s, 5);
	}
	kill(peer.pid, SIGKILL);
	waitpid(peer.pid, NULL, 0);
	if (s->up[1])
		until_lost(s);
	sc_close_all(s);
}

/* ---- what there is ---- */

static void list(struct scene *s)
{
	struct xport_candidate c[32];
	struct xport_variable v[32];
	struct xport_error e = {.size = sizeof(e)};
	int n = xport_list(NULL, c, sizeof(c[0]), 32);

	if (n < 0)
		sc_ok(s, NULL, "xport_list", n, ON_OPEN);
	for (int i = 0; i < n && i < 32; i++)
		if (c[i].name[0] == '\0' || (c[i].state != XPORT_READY && c[i].reason[0] == '\0'))
			scene_bad(s, "xport_list has an entry %s without a reason", c[i].name);
	if (xport_variables(v, sizeof(v[0]), 32) < 10)
		scene_bad(s, "xport_variables lists too few");
}

const struct scenario scenarios[] = {
	{.name = "open", .run = open_close},
	{.name = "connect", .run = connect_accept},
	{.name = "memory", .run = memory},
	{.name = "several", .run = several, .once = true},
	{.name = "near", .before = make_sysfs, .run = near_device, .once = true},
	{.name = "messages", .run = messages},
	{.name = "lists", .run = lists},
	{.name = "peers", .run = peers},
	{.name = "meets", .before = meet_in_directory, .run = meets, .once = true},
	{.name = "measured", .before = measure, .run = memory, .once = true},
	{.name = "close", .run = close_loaded},
	{.name = "threads", .run = threads, .threads = true},
	{.name = "key", .before = make_key, .run = with_key},
	{.name = "settings", .before = change_settings, .run = with_settings},
	{.name = "addresses", .before = allow_all, .run = addresses, .once = true},
	{.name = "death", .before = start_peer, .run = death},
	{.name = "list", .run = list, .once = true},
	{.name = "pool", .run = pool_blocks},
	{.name = "pool_busy", .run = pool_busy},
	{.name = "cache", .run = cache},
	{.name = "metrics", .run = metrics},
	{.name = "prepared", .run = prepared},
	{.name = "versioned", .run = versioned},
	{.name = "leases", .run = leases, .threads = true},
	{.name = "far", .run = far_memory, .threads = true},
	{.name = "directory", .run = directory, .threads = true},
	{.name = "link", .run = link_back},
	{.name = "rpc", .run = rpc, .threads = true},
	{.name = "bulk", .run = bulk},
	{.name = "group", .run = group, .once = true},
	{.name = "launcher_1", .before = start_servers, .run = launcher_1, .once = true},
	{.name = "launcher_2", .before = start_servers, .run = launcher_2, .once = true},
	{.name = "etcd_group", .before = start_servers, .run = etcd_group, .once = true},
	{.name = "etcd_directory", .before = start_servers, .run = etcd_directory, .once = true},
	{.name = NULL},
};
