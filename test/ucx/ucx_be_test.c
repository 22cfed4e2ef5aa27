/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_be_test.c - the UCX back end alone: its ops between two real processes, with a core of a few lines on top.
 *
 *   ucx_be_test MODULE.so [PROVIDER]...
 *
 * The main process never touches UCX: it forks two processes for every test, A and B, joined by a socket pair that
 * stands for the control channel.  A test passes if both exit with 0 (B may have been killed, where that is the test).
 */
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#include "side.h"

/* ---- tests: each is what one of the two processes does ---- */

static const size_t sizes[] = {1,    7,    8,    9,    16,   17,   64,   92,   93,   94,    100,   128,
                               1000, 2048, 4095, 4096, 4097, 7990, 8000, 8001, 8200, 16384, 63999, 64000};

/* How many of them this provider takes. */
static size_t nsizes(const struct side *s)
{
	size_t n = sizeof(sizes) / sizeof(sizes[0]);

	while (sizes[n - 1] > s->caps.am_max)
		n--;
	return n;
}

/* Every size, uncut and cut in several places, answered by a frame of the same size. */
static void test_pingpong(struct side *s, const char *provider, bool a)
{
	struct conn *c;
	uint64_t seq = 0;

	open_side(s, provider);
	s->core.on_frame = frame_check;
	c = conn_new(s);
	for (size_t i = 0; i < nsizes(s); i++) {
		size_t cuts[] = {sizes[i], 1, 8, 24, sizes[i] / 2, sizes[i] - 1};

		for (int k = 0; k < 6; k++, seq++) {
			if (cuts[k] == 0 || cuts[k] > sizes[i])
				cuts[k] = sizes[i];
			if (!a)
				await_frames(s, seq + 1);
			CHECK(frame_send(s, c, seq, sizes[i], cuts[k], true) >= 0);
			await_frames(s, seq + 1);
			CHECK(s->core.last_len == sizes[i], "%zu instead of %zu", s->core.last_len, sizes[i]);
		}
	}
	barrier(s);
	conn_free(s, c);
	close_side(s);
}

/* As fast as it goes, into a peer that sleeps first: every frame once, in order, intact. */
static void test_flood(struct side *s, const char *provider, bool a)
{
	const unsigned long n = 30000;
	struct conn *c;

	open_side(s, provider);
	s->core.on_frame = frame_check;
	c = conn_new(s);
	if (a) {
		for (unsigned long i = 0; i < n; i++) {
			size_t len = sizes[(i * 7) % nsizes(s)];

			CHECK(frame_send(s, c, i, len, i % 3 == 0 ? len : len / 2 + 1, true) >= 0);
		}
		CHECK(s->core.pendings > 0 && s->core.agains > 0, "the queue was never full");
		while (s->core.done < s->core.pendings)
			poll_be(s);
		CHECK(s->core.done == s->core.pendings && s->core.done_bad == 0);
	} else {
		usleep(300000);
		await_frames(s, n);
	}
	barrier(s);
	CHECK(a || s->core.frames == n);
	conn_free(s, c);
	close_side(s);
}

/* Sleeping in poll(2) between: a lost wake-up is a poll that times out. */
static void test_wakeup(struct side *s, const char *provider, bool a)
{
	const unsigned long n = 20000;
	struct pollfd p = {.events = POLLIN};
	struct conn *c;
	double start, idle;

	open_side(s, provider);
	s->core.on_frame = frame_check;
	c = conn_new(s);
	CHECK(s->ops->fds(s->be, &p.fd, 1) >= 1 && p.fd >= 0); /* the first alone must do here */
	for (unsigned long i = 0; i < n; i++) {
		if (a)
			CHECK(frame_send(s, c, i, 16, 8, true) >= 0);
		while (s->core.frames <= i) {
			int rc = s->ops->arm(s->be);

			CHECK(rc == XPORT_OK || rc == XPORT_ERR_AGAIN);
			if (rc == XPORT_OK)
				CHECK(poll(&p, 1, 5000) == 1, "no wake-up in round %lu", i);
			poll_be(s);
		}
		if (!a)
			CHECK(frame_send(s, c, i, 16, 8, true) >= 0);
	}
	barrier(s);
	start = now();
	idle = cpu();
	while (now() - start < 1.0) {
		if (s->ops->arm(s->be) == XPORT_OK)
			poll(&p, 1, 100);
		poll_be(s);
	}
	CHECK(cpu() - idle < 0.05, "%.0f ms of CPU in an idle second", (cpu() - idle) * 1e3);
	barrier(s);
	conn_free(s, c);
	close_side(s);
}

/* The core lets one thread in at a time, and now this one, now that: on some adapters UCX has to know. */
static void test_thread_mode(struct side *s, const char *provider, bool a)
{
	ucp_worker_attr_t attr = {.field_mask = UCP_WORKER_ATTR_FIELD_THREAD_MODE};

	if (!a)
		return;
	open_side(s, provider);
	CHECK(UCP(ucp_worker_query)(s->be->worker, &attr) == UCS_OK);
	CHECK(attr.thread_mode == UCS_THREAD_MODE_SERIALIZED, "%d", (int)attr.thread_mode);
	close_side(s);
}

/*
 * Two endpoints between the same two instances, which the two ends make in opposite order; one is closed by one end.
 * The other must not notice.
 */
static void test_two_endpoints(struct side *s, const char *provider, bool a)
{
	struct conn *c[2] = {malloc(sizeof(*c[0])), malloc(sizeof(*c[1]))};
	double end;
	int gone;

	open_side(s, provider);
	s->core.on_frame = frame_check;
	conn_prepare(s, c[0]);
	barrier(s);
	conn_prepare(s, c[1]);
	barrier(s);
	conn_finish(s, c[a ? 0 : 1]);
	conn_finish(s, c[a ? 1 : 0]);
	barrier(s);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 2; i++) { /* one at a time: two endpoints are not ordered among themselves */
			CHECK(frame_send(s, c[i], (uint64_t)(2 * round + i), 100, 8, true) >= 0);
			await_frames(s, (unsigned long)(2 * round + i + 1));
			barrier(s);
		}
	}
	gone = 0;
	if (a)
		conn_free(s, c[gone]);
	for (end = now() + 0.5; now() < end;)
		poll_be(s);
	CHECK(c[1]->core_ep.failed == 0, "the other endpoint failed too");
	CHECK(frame_send(s, c[1], 4, 100, 8, true) >= 0);
	await_frames(s, 5);
	barrier(s);
	conn_free(s, c[1]);
	if (!a)
		conn_free(s, c[gone]);
	close_side(s);
}

static unsigned shm_files(void)
{
	DIR *d = opendir("/dev/shm");
	unsigned n = 0;

	struct dirent *e;

	while (d != NULL && (e = readdir(d)) != NULL)
		n += strstr(e->d_name, "ucx") != NULL;
	if (d != NULL)
		closedir(d);
	return n;
}

static int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (d != NULL && readdir(d) != NULL)
		n++;
	if (d != NULL)
		closedir(d);
	return n;
}

/* Begins to connect once more to where `c` leads, and gives up at once. */
static void give_up(struct side *s, const struct conn *c)
{
	struct conn half = *c;
	size_t len = sizeof(half.addr);
	int rc;

	half.ep = calloc(1, s->caps.ep_size);
	CHECK(half.ep != NULL);
	CHECK(s->ops->address(s->be, half.ep, &half.core_ep, half.addr, &len) == XPORT_OK);
	rc = s->ops->ep_connect(s->be, half.ep, XPI_ACTIVE, c->addr, c->len);
	CHECK(rc == XPORT_OK || rc == XPORT_ERR_AGAIN, "%d", rc);
	conn_quiesce(s, &half);
	s->ops->ep_destroy(s->be, half.ep);
	memset(half.ep, 0xee, s->caps.ep_size);
	free(half.ep);
	CHECK(c->core_ep.failed == 0);
}

/*
 * Connecting and closing again and again leaves nothing behind.  Giving up half-way now and then does no harm, but UCX
 * keeps one socket for each of these until the instance is closed.
 */
static void test_cycles(struct side *s, const char *provider, bool a)
{
	int before = 0, after, given_up = 0;

	open_side(s, provider);
	s->core.on_frame = frame_check;
	for (int i = 0; i < 60; i++) {
		struct conn *c = conn_new(s);

		if (a && i % 3 == 0)
			give_up(s, c);
		CHECK(frame_send(s, c, (uint64_t)i, 64, 64, true) >= 0);
		await_frames(s, (unsigned long)i + 1);
		barrier(s);
		conn_free(s, c);
		barrier(s);
		if (i == 9)
			before = open_fds();
		given_up += i > 9 && i % 3 == 0;
	}
	for (double end = now() + 0.3; now() < end;)
		poll_be(s);
	after = open_fds();
	CHECK(after <= before + given_up + 4, "%d descriptors became %d", before, after);
	barrier(s);
	close_side(s);
}

static void on_any_frame(struct xpi_core *c, const void *hdr, size_t hlen, const void *data, size_t dlen)
{
	(void)c, (void)hdr, (void)hlen, (void)data, (void)dlen;
}

/* A barrier without progress. */
static void barrier_asleep(struct side *s)
{
	char c = 's';

	put_msg(s, &c, 1);
	CHECK(recv(s->sock, &c, 1, 0) == 1);
}

/*
 * Both close while what A has sent still stands in the way, and B first: its end and room in the socket come to A at once.
 * UCX, asked to close before it has handled that, crashes there sooner or later (ucx_ep.c says how).
 */
static void test_close_in_the_middle(struct side *s, const char *provider, bool a)
{
	open_side(s, provider);
	s->core.on_frame = on_any_frame;
	for (int round = 0; round < 20; round++) {
		struct conn *c = conn_new(s);

		for (uint64_t i = 0; a && frame_send(s, c, i, s->caps.am_max, 8, false) != XPORT_ERR_AGAIN; i++)
			;
		barrier_asleep(s);
		for (int i = 0; !a && i < round % 20; i++)
			poll_be(s);
		if (!a)
			conn_quiesce(s, c);
		barrier_asleep(s);
		conn_free(s, c);
		barrier(s);
	}
	close_side(s);
}

static void on_candidate(void *arg, const struct xport_candidate *c)
{
	struct side *s = arg;

	say("    %-8s %d  %s | %s\n", c->name, c->state, c->reason, c->hint);
	CHECK(c->reason[0] != '\0');
	CHECK(c->state == XPORT_READY || c->hint[0] != '\0', "no hint");
	s->core.frames++;
}

/* Loading leaves the signal handlers alone; list really probes; an unknown provider is refused with the nearest. */
static void test_load_list(struct side *s, const char *provider, bool a)
{
	struct xpi_be_open_args args = {.provider = "tpc",
	                                .core = &s->core,
	                                .up = &core_ops,
	                                .log = &s->log,
	                                .err = &s->err,
	                                .peer_timeout_ms = PEER_TIMEOUT_MS};
	struct sigaction before[65], after;

	(void)provider;
	if (!a)
		return;
	for (int i = 1; i < 65; i++)
		sigaction(i, NULL, &before[i]);
	load(s);
	CHECK(s->ops->list(&s->log, on_candidate, s) == XPORT_OK && s->core.frames == 4);
	CHECK(s->ops->open(&args, &s->be) == XPORT_ERR_NO_BACKEND && s->be == NULL);
	CHECK(strstr(s->err.text, "ucx:tcp") != NULL, "%s", s->err.text);
	for (int i = 1; i < 65; i++) {
		CHECK(sigaction(i, NULL, &after) != 0 || before[i].sa_handler == after.sa_handler, "signal %d", i);
	}
	CHECK(s->warnings == 0);
}

/* Transports of UCX whose queue in shared memory all peers write into. */
static bool has_queue(const char *transports)
{
	return strstr(transports, "posix") != NULL || strstr(transports, "sysv") != NULL ||
	       strstr(transports, "xpmem") != NULL;
}

static void on_default(void *arg, const struct xport_candidate *c)
{
	struct side *s = arg;

	if (strcmp(c->name, "ucx") != 0)
		return;
	CHECK(c->state == XPORT_READY, "%s", c->reason);
	CHECK(has_queue(c->reason) == (getenv("UCX_TLS") != NULL), "%s", c->reason);
	s->core.frames++;
}

/* One killed peer can silence such a queue for all others, so plain ucx goes without, unless UCX_TLS asks for it. */
static void test_default_without_queues(struct side *s, const char *provider, bool a)
{
	(void)provider;
	if (!a)
		return;
	load(s);
	unsetenv("UCX_TLS");
	CHECK(s->ops->list(&s->log, on_default, s) == XPORT_OK && s->core.frames == 1);
	setenv("UCX_TLS", "tcp,sysv,self", 1);
	CHECK(s->ops->list(&s->log, on_default, s) == XPORT_OK && s->core.frames == 2);
}

/* ---- a loaded machine ---- */

/* UCX's own thread has to wait for its turn, and the clock runs on: 20 s a second. */
static atomic_bool loaded;

#define STANDS_IN __attribute__((visibility("default")))

STANDS_IN int epoll_wait(int fd, struct epoll_event *events, int max, int timeout_ms)
{
	int n = (int)syscall(SYS_epoll_pwait, fd, events, max, timeout_ms, NULL, 0);

	if (atomic_load(&loaded) && syscall(SYS_gettid) != getpid())
		usleep(300000);
	return n;
}

STANDS_IN int clock_gettime(clockid_t id, struct timespec *t)
{
	int rc = (int)syscall(SYS_clock_gettime, id, t);
	int64_t ns = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;

	if (rc != 0 || id != CLOCK_MONOTONIC || !atomic_load(&loaded))
		return rc;
	ns *= 20;
	t->tv_sec = (time_t)(ns / 1000000000);
	t->tv_nsec = (long)(ns % 1000000000);
	return 0;
}

/* Opening waits for UCX's own thread by turns, not by the clock alone. */
static void test_open_under_load(struct side *s, const char *provider, bool a)
{
	(void)provider;
	if (!a)
		return;
	atomic_store(&loaded, true);
	open_side(s, "tcp");
	atomic_store(&loaded, false);
	CHECK(s->warnings == 0);
}

/* What the user leaves UCX of its transports, without a word about settings of those that are not there. */
static void test_some_transports(struct side *s, const char *provider, bool a)
{
	static const char *const left[] = {"tcp", "posix,self", "all"};

	(void)provider;
	if (!a)
		return;
	unsetenv("UCX_NET_DEVICES");
	for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
		setenv("UCX_TLS", left[i], 1);
		open_side(s, "default");
		CHECK(s->warnings == 0, "UCX_TLS=%s", left[i]);
		s->ops->close(s->be);
		s->be = NULL;
		unsetenv("UCX_TLS");
	}
}

/* ---- running ---- */

struct test {
	const char *name;
	void (*fn)(struct side *s, const char *provider, bool a);
	bool b_dies;
	bool once;
};

static const struct test tests[] = {
	{.name = "load_list", .fn = test_load_list, .once = true},
	{.name = "default_without_queues", .fn = test_default_without_queues, .once = true},
	{.name = "open_under_load", .fn = test_open_under_load, .once = true},
	{.name = "some_transports", .fn = test_some_transports, .once = true},
	{.name = "thread_mode", .fn = test_thread_mode},
	{.name = "pingpong", .fn = test_pingpong},
	{.name = "flood", .fn = test_flood},
	{.name = "wakeup", .fn = test_wakeup},
	{.name = "memory", .fn = test_memory},
	{.name = "native_rma", .fn = test_native_rma},
	{.name = "two_endpoints", .fn = test_two_endpoints},
	{.name = "cycles", .fn = test_cycles},
	{.name = "close_in_the_middle", .fn = test_close_in_the_middle},
	{.name = "kill_seen", .fn = test_kill_seen, .b_dies = true},
	{.name = "kill_unseen", .fn = test_kill_unseen, .b_dies = true},
	{.name = "kill_idle", .fn = test_kill_idle, .b_dies = true},
	{.name = "stopped", .fn = test_stopped, .b_dies = true},
	{.name = "dead_on_arrival", .fn = test_dead_on_arrival, .b_dies = true},
	{.name = "gone_when_acknowledged", .fn = test_gone_when_acknowledged, .b_dies = true},
	{.name = "queue_stands", .fn = test_queue_stands, .b_dies = true},
	{.name = "bad_address", .fn = test_bad_address, .b_dies = true},
};

static pid_t start(const struct test *t, const char *provider, bool a, int sock, pid_t peer)
{
	static struct side s;
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	alarm(60);
	s.role = a ? XPI_ACTIVE : XPI_PASSIVE;
	s.sock = sock;
	s.peer = peer;
	t->fn(&s, provider, a);
	_exit(0);
}

static bool run(const struct test *t, const char *provider)
{
	unsigned files = shm_files();
	int sv[2], a_status = -1, b_status = -1;
	double from = now();
	pid_t a, b;
	bool ok;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) != 0)
		return false;
	b = start(t, provider, false, sv[1], 0);
	a = start(t, provider, true, sv[0], b);
	close(sv[0]);
	close(sv[1]);
	for (int left = 2; left > 0; left--) {
		int status;
		pid_t pid = wait(&status); /* B at once: while it is a zombie, UCX takes it for alive */

		if (pid == a)
			a_status = status;
		else
			b_status = status;
		if (pid == a && (t->b_dies || status != 0) && left == 2)
			kill(b, SIGKILL);
	}
	ok = a_status == 0 && (t->b_dies || b_status == 0);
	if (shm_files() != files) {
		say("  /dev/shm had %u entries and has %u\n", files, shm_files());
		ok = false;
	}
	say("%s %s %s (%.1f s)\n", ok ? "ok" : "FAILED", provider, t->name, now() - from);
	if (!ok)
		say("  A: %s %d, B: %s %d\n", WIFSIGNALED(a_status) ? "signal" : "exit",
		    WIFSIGNALED(a_status) ? WTERMSIG(a_status) : WEXITSTATUS(a_status),
		    WIFSIGNALED(b_status) ? "signal" : "exit",
		    WIFSIGNALED(b_status) ? WTERMSIG(b_status) : WEXITSTATUS(b_status));
	return ok;
}

int main(int argc, char **argv)
{
	static const char *const all[] = {"tcp", "shm", "default"};
	const char *only = getenv("BE_TEST_ONLY");
	FILE *quiet = tmpfile();
	unsigned bad = 0;
	struct stat st;

	if (argc < 2 || quiet == NULL) {
		fprintf(stderr, "usage: ucx_be_test MODULE.so [PROVIDER]...\n");
		return 2;
	}
	module_path = argv[1];
	report_fd = dup(1);
	dup2(fileno(quiet), 1);
	/* As the library does before it loads the module. */
	setenv("UCX_HANDLE_ERRORS", "none", 0);
	setenv("UCX_DEBUG_SIGNO", "0", 0);
	for (int p = 0; p < (argc > 2 ? argc - 2 : 3); p++) {
		const char *provider = argc > 2 ? argv[2 + p] : all[p];

		for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
			if ((only == NULL || strcmp(only, tests[i].name) == 0) && !(tests[i].once && p > 0))
				bad += !run(&tests[i], provider);
	}
	if (fstat(1, &st) != 0 || st.st_size != 0) {
		say("FAILED: %lld bytes were written to the standard output\n", (long long)st.st_size);
		bad++;
	}
	say("%s: %u failed\n", bad == 0 ? "ok" : "FAILED", bad);
	return bad != 0;
}
