/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * link_restarts - a link under load, whose server is killed and started again at the same address, with other memory.
 *
 *	link_restarts BACKEND RESTARTS [OTHER-BACKEND]
 *
 * Each of 32 workers puts a number through the link and gets it back. Each posted operation must have exactly one DONE, and
 * a get must read what its worker's put wrote, unless another instance came up in between. The first address is dead. With
 * OTHER-BACKEND every second server opens that one.
 *
 * With LINK_FORGET in the environment it forgets one DONE, and must find that.
 *
 * With LINK_VERBOSE it prints the times of each restart.
 *
 * A server of ucx:shm that is killed while it writes into this process's queue leaves the queue stuck: that is UCX's
 * (src/backends/ucx/ucx_watchdog.c). Then this program does what the error says: it opens another instance.
 *
 * Prints how often it was up, how the operations ended, and how long it took to come back beside a plain xport_connect.
 */
#include <err.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "services/xport_services.h"

enum { WORKERS = 32, MAX_MS = 20, LOAD = 100, LIMIT_MS = 120000 };

struct worker {
	int n;
	int step;         /* 0: idle; 1: its put is posted; 2: put; 3: its get is posted */
	uint64_t out, in; /* buffers of the two */
	uint64_t value;   /* put with success */
	unsigned epoch;   /* when it was */
};

static struct worker workers[WORKERS];
static const char *backend, *self;
static char address[80], dead[80];
static xport *x;
static xport_links *links;
static xport_link *the_link;
static xport_link_rkey *key;
static unsigned epoch, ups, downs, news; /* epoch: instances of the server */
static unsigned long posted, done, failed, repeated, read_back, load;
static const char *transport = "";
static uint64_t serial;
static int forget, verbose;
static int64_t down_at;
static int stuck;              /* UCX's queue of this instance is */
static int again;              /* another instance is open, and its link was not up yet */
static unsigned expected;      /* news will be this then */
static unsigned opened;        /* instances, without the first one */

static int64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void check(int status, const char *what)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	if (xport_services_last_error(&e) != XPORT_OK || e.status != status)
		(void)!xport_last_error(x, &e);
	errx(1, "%s: %s: %s", what, xport_status_name(status), e.text);
}

/* ---- the server ---- */

static _Noreturn void serve(const char *where)
{
	struct xport_conn_attr attr = {.size = sizeof(attr)};
	struct xport_attr open = {.size = sizeof(open), .backend = backend};
	size_t skip = (size_t)(getpid() % 61) * 64;
	uint8_t bytes[2048], *memory = calloc(1, 65536);
	xport_listener *listener;
	xport_mr *mr;
	xport_ep *ep;

	check(xport_open(&open, &x), "xport_open");
	check(xport_mr_reg(x, memory + skip, WORKERS * 8, XPORT_REMOTE_READ | XPORT_REMOTE_WRITE, &mr), "xport_mr_reg");
	attr.private_data = bytes;
	attr.private_len = sizeof(bytes);
	check(xport_rkey_pack(mr, bytes, &attr.private_len), "xport_rkey_pack");
	check(xport_listen(x, where, &attr, &listener), "xport_listen");
	check(xport_listener_name(listener, address, sizeof(address)), "xport_listener_name");
	printf("%s\n", address);
	fflush(stdout);
	for (;;) {
		struct xport_completion c;
		int n = xport_wait(x, &c, 1, 1000);

		check(n, "xport_wait");
		if (n == 1 && c.type == XPORT_EVENT_INCOMING)
			while (xport_accept(listener, 0, &ep) == XPORT_OK)
				;
		else if (n == 1 && (c.type == XPORT_EVENT_LOST || c.type == XPORT_EVENT_CLOSED))
			xport_ep_destroy(c.ep);
	}
}

/* Starts a server; *fd reads its address. */
static pid_t start(const char *with, const char *where, int *fd)
{
	int p[2];
	pid_t pid;

	if (pipe(p) != 0 || (pid = fork()) < 0)
		err(1, "pipe, fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(p[1], 1);
		close(p[0]);
		close(p[1]);
		execl("/proc/self/exe", self, "--serve", with, where, (char *)NULL);
		_exit(127);
	}
	close(p[1]);
	*fd = p[0];
	fcntl(*fd, F_SETFL, O_NONBLOCK);
	fcntl(*fd, F_SETFD, FD_CLOEXEC);
	return pid;
}

/* ---- the client ---- */

static void learn_key(xport_ep *ep)
{
	struct xport_ep_info info = {.size = sizeof(info)};

	check(xport_ep_query(ep, &info), "xport_ep_query");
	if (key == NULL)
		check(xport_link_rkey_add(the_link, NULL, 0, info.private_data, info.private_len, &key), "rkey_add");
	else
		check(xport_link_rkey_set(key, info.private_data, info.private_len), "rkey_set");
}

/* Lets a worker post, if it may. */
static void work(struct worker *w)
{
	struct xport_opt opt = {.size = sizeof(opt), .context = w};
	uint32_t flags = w->n % 2 == 0 ? XPORT_LINK_REPEATABLE : 0;
	uint64_t at = (uint64_t)w->n * 8;
	int r;

	if (key == NULL || w->step == 1 || w->step == 3)
		return;
	if (w->step == 0) {
		w->out = ++serial;
		r = w->n % 3 == 0 ? xport_link_put_notify(the_link, &w->out, 8, key, at, &opt, flags)
		                  : xport_link_put(the_link, &w->out, 8, key, at, &opt, flags);
	} else {
		w->in = 0;
		r = xport_link_get(the_link, &w->in, 8, key, at, &opt, flags);
	}
	if (r != XPORT_OK)
		return; /* not accepted: no DONE follows */
	w->step++;
	posted++;
}

static void worked(const struct xport_link_event *e)
{
	struct worker *w = e->context;

	if (w < workers || w >= workers + WORKERS || (w->step != 1 && w->step != 3))
		errx(1, "a second DONE, or one of nobody");
	if (forget) {
		forget = 0;
		return;
	}
	done++;
	load++;
	failed += e->status != XPORT_OK;
	repeated += e->attempts > 1;
	if (e->status == XPORT_OK && w->step == 1) {
		w->step = 2;
		w->value = w->out;
		w->epoch = epoch;
		return;
	}
	if (e->status == XPORT_OK && w->epoch == epoch) {
		if (w->in != w->value)
			errx(1, "worker %d put %llu and got %llu", w->n, (unsigned long long)w->value,
			     (unsigned long long)w->in);
		read_back++;
	}
	w->step = 0;
}

static void take_events(void)
{
	struct xport_link_event e = {.size = sizeof(e)};

	while (xport_links_next(links, &e) == 1) {
		switch (e.type) {
		case XPORT_LINK_DONE:
			worked(&e);
			break;
		case XPORT_LINK_PEER_NEW:
			epoch++;
			news++;
			/* fall through */
		case XPORT_LINK_UP:
			if (again) {
				again = 0;
				epoch++;
				news = expected;
			}
			ups++;
			load = 0;
			transport = e.transport;
			learn_key(e.ep);
			break;
		case XPORT_LINK_DOWN:
			downs++;
			down_at = now_us();
			break;
		default:
			errx(1, "event %d: %s", e.type, e.text);
		}
	}
}

static void turn(void)
{
	struct xport_completion c[16];
	int ms = xport_links_timeout(links), n;

	n = xport_wait(x, c, 16, ms < 0 || ms > 5 ? 5 : ms);
	check(n, "xport_wait");
	for (int i = 0; i < n; i++)
		if (xport_links_step(links, &c[i]) == 0 && c[i].type < XPORT_EVENT_NOTIFY)
			errx(1, "a completion of nobody");
	if (n == 0)
		(void)xport_links_step(links, NULL);
	take_events();
	for (int i = 0; i < WORKERS; i++)
		work(&workers[i]);
}

/* Turns until the server has told its address. */
static void await(int fd)
{
	int64_t end = now_us() + LIMIT_MS * 1000LL;
	ssize_t n;

	while ((n = read(fd, address, sizeof(address) - 1)) < 0) {
		if (now_us() > end)
			errx(1, "the server does not start");
		if (links != NULL)
			turn();
		else
			usleep(1000);
	}
	if (n == 0)
		errx(1, "the server has ended");
	address[strcspn(address, "\n")] = '\0';
	close(fd);
}

/* The time of a plain connection, which goes on while the workers wait. */
static int64_t plain(void)
{
	int64_t began = now_us(), took;
	xport_ep *ep;
	int r = xport_connect(x, address, NULL, 20000, &ep);

	took = now_us() - began;
	if (r != XPORT_OK)
		return -1; /* chaos may cut it */
	(void)xport_ep_close(ep, 0);
	xport_ep_destroy(ep);
	return took;
}

static int by_size(const void *a, const void *b)
{
	int64_t m = *(const int64_t *)a, n = *(const int64_t *)b;

	return (m > n) - (m < n);
}

static void write_log(void *arg, int level, const char *id, const char *line)
{
	(void)arg;
	(void)level;
	if (strcmp(id, "XP-1015") == 0 && strcmp(backend, "ucx:shm") == 0)
		stuck = 1;
	fprintf(stderr, "%s\n", line);
}

static void open_all(void)
{
	struct xport_link_attr a = {.size = sizeof(a), .first_ms = 5, .max_ms = MAX_MS, .max_ops = WORKERS};
	const char *list[] = {dead, address};
	struct xport_attr open = {
		.size = sizeof(open), .backend = backend, .log_fn = write_log, .log_level = XPORT_LOG_WARN};
	xport_listener *l;

	check(xport_open(&open, &x), "xport_open");
	check(xport_listen(x, "127.0.0.1:0", NULL, &l), "xport_listen");
	check(xport_listener_name(l, dead, sizeof(dead)), "xport_listener_name");
	xport_listener_close(l);
	check(xport_links_create(x, &links), "xport_links_create");
	check(xport_link_open(links, list, 2, &a, &the_link), "xport_link_open");
	for (int i = 0; i < WORKERS; i++)
		workers[i].n = i;
}

static void close_all(void)
{
	struct xport_link_event e = {.size = sizeof(e)};

	check(xport_link_close(the_link, 1000), "xport_link_close");
	do {
		check(xport_links_wait(links, &e, NULL, NULL, LIMIT_MS), "xport_links_wait");
		if (e.type == XPORT_LINK_DONE)
			worked(&e);
	} while (e.type != XPORT_LINK_CLOSED);
	check(xport_link_free(the_link), "xport_link_free");
	key = NULL;
	check(xport_links_destroy(links, NULL, NULL, 10000), "xport_links_destroy");
	xport_close(x);
	if (posted != done)
		errx(1, "%lu operations were posted, and %lu have ended", posted, done);
}

static void open_another(void)
{
	close_all();
	open_all();
	stuck = 0;
	again = 1;
	opened++;
}

static void until(unsigned want_news, unsigned long want_load, const char *what)
{
	int64_t end = now_us() + LIMIT_MS * 1000LL;
	struct xport_link_info i = {.size = sizeof(i)};

	expected = want_news;
	while (news < want_news || ups == 0 || again || load < want_load) {
		if (stuck)
			open_another();
		if (now_us() > end) {
			check(xport_link_query(the_link, &i), "xport_link_query");
			errx(1, "%s: state %d, %s; %u operations, %u kept", what, i.state, i.text, i.ops, i.kept);
		}
		turn();
	}
}

/* The times are those of the restarts, in microseconds. */
static void report(int restarts, int n, int64_t *back, int64_t *connect)
{
	int64_t most;
	int within = 0;

	qsort(back, (size_t)n, sizeof(*back), by_size);
	qsort(connect, (size_t)n, sizeof(*connect), by_size);
	most = connect[n / 2] * 3 / 2 + MAX_MS * 1000;
	while (within < n && back[within] <= most)
		within++;
	printf("%s: %d restarts, %u times up, %u down; %lu operations, each with one outcome: %lu failed, %lu "
	       "repeated; "
	       "%lu read back\n",
	       backend, restarts, ups, downs, posted, failed, repeated, read_back);
	if (opened > 0)
		printf("%s: UCX's queue was stuck %u times, and another instance was opened\n", backend, opened);
	printf("%s: back after %.1f ms (median; worst %.1f); a plain connection takes %.1f ms (median); %d of %d "
	       "within "
	       "1.5 times that and the wait of %d ms\n",
	       backend, (double)back[n / 2] / 1000, (double)back[n > 0 ? n - 1 : 0] / 1000,
	       (double)connect[n / 2] / 1000, within, n, MAX_MS);
}

int main(int argc, char **argv)
{
	int restarts = argc > 2 ? atoi(argv[2]) : 0, n = 0, fd;
	int64_t *back, *connect;
	const char *other;
	pid_t pid;

	self = argv[0];
	forget = getenv("LINK_FORGET") != NULL;
	verbose = getenv("LINK_VERBOSE") != NULL;
	if (argc == 4 && strcmp(argv[1], "--serve") == 0) {
		backend = argv[2];
		serve(argv[3]);
	}
	if (restarts < 1)
		errx(2, "usage: link_restarts BACKEND RESTARTS [OTHER-BACKEND]");
	backend = argv[1];
	other = argc > 3 ? argv[3] : backend;
	back = calloc((size_t)restarts, sizeof(*back));
	connect = calloc((size_t)restarts, sizeof(*connect));
	pid = start(backend, "127.0.0.1:0", &fd);
	await(fd);
	open_all();
	for (int i = 0; i < restarts; i++) {
		const char *with = i % 2 == 0 ? other : backend;
		unsigned opened_before = opened;
		int64_t killed, listens;

		until((unsigned)i, LOAD, "under load");
		killed = now_us();
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		pid = start(with, address, &fd);
		await(fd);
		listens = now_us();
		until((unsigned)i + 1, 0, "to come back");
		back[n] = now_us() - listens;
		if (opened != opened_before)
			continue;
		connect[n] = plain();
		if (verbose)
			printf("%d: down %.1f ms after the kill, server there after %.1f, back %.1f later, connect "
			       "%.1f\n",
			       i, (double)(down_at - killed) / 1000, (double)(listens - killed) / 1000,
			       (double)back[n] / 1000, (double)connect[n] / 1000);
		n += connect[n] >= 0;
		if (other != backend && strstr(other, transport) == NULL && with == other)
			errx(1, "up over %s, with a server of %s", transport, with);
	}
	until(news, LOAD, "after the last one");
	close_all();
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	report(restarts, n, back, connect);
	free(back);
	free(connect);
	return 0;
}
