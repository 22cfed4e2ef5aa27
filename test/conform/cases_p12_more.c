/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_p12_more.c - P12, no side effects, in an unusual process: closed standard streams, tight limits, signals. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "harness.h"

enum { LEN = 65536 };

/* Put, get, send and a fresh connection, each once in a round. */
static void traffic(struct h *h, int rounds)
{
	struct h_mem m, l;
	struct h_rkey r;
	uint64_t word = 0;

	if (h->role == 0) {
		m = h_mem_target(h, LEN, 0, H_ALL);
		h_share(h, 1, &m);
		for (int i = 0; i < rounds; i++) {
			H_DONE(h_recv(h, NULL, &word, 8, 1, UINT64_MAX));
			H_EQ(i, word);
			H_DONE(h_send(h, h->ep[1], &word, 8, 2));
		}
		h_sync(h);
		H_FILLED(m.p, LEN, 7);
		h_mem_free(h, &m);
	} else {
		l = h_mem_local(h, LEN, 0);
		h_fill(l.p, LEN, 7);
		r = h_import(h, 0);
		for (int i = 0; i < rounds; i++) {
			word = (uint64_t)i;
			H_DONE(h_put(h, h->ep[0], H_AT(l, 0, LEN), &r, 0, 0));
			H_DONE(h_get(h, h->ep[0], H_AT(l, 0, LEN), &r, 0));
			H_DONE(h_send(h, h->ep[0], &word, 8, 1));
			H_DONE(h_recv(h, NULL, &word, 8, 2, UINT64_MAX));
		}
		h_sync(h);
		xport_rkey_destroy(r.k);
		h_mem_free(h, &l);
	}
	h_sync(h);
}

/* ---- closed standard streams ---- */

enum { BEFORE_OPEN, AFTER_OPEN };

static const struct h_param when_closed[] = {{"_before_open", BEFORE_OPEN}, {"_after_open", AFTER_OPEN}, {NULL, 0}};

static void close_low(void)
{
	for (int fd = 0; fd <= 2; fd++)
		close(fd);
}

/* Each of 0, 1 and 2 is closed or stands for /dev/null. */
static void check_low(struct h *h, const char *when)
{
	char path[32], is[128];

	for (int fd = 0; fd <= 2; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, is, sizeof(is) - 1);
		is[n > 0 ? n : 0] = '\0';
		H_CHECK(n < 0 || strcmp(is, "/dev/null") == 0, "%s: descriptor %d is %s", when, fd, is);
	}
}

/* The log goes to standard error, as by default, and says all it can. */
static void low_descriptors(struct h *h)
{
	struct xport_attr a = h_attr(h);
	char byte;

	a.log_fn = NULL;
	a.log_level = XPORT_LOG_DEBUG;
	if (h->param == BEFORE_OPEN) {
		close_low();
		h_open(h, &a);
	} else {
		/* What the log says until then is not for the runner to see. */
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

		H_TRUE(null >= 0 && dup2(null, 2) == 2);
		close(null);
		h_open(h, &a);
		close_low();
	}
	h_pair(h, !h->role);
	check_low(h, "connected");
	traffic(h, 2);
	for (int i = 0; i < 3; i++) {
		ssize_t n = write(1, "a line on standard output\n", 26);

		n += write(2, "a line on standard error\n", 25) + read(0, &byte, 1);
		(void)n;
	}
	traffic(h, 2);
	check_low(h, "after traffic");
	h_sync(h);
}

/* The number of the standard error that was found at opening passes to a file of the application. */
static void log_keeps_away(struct h *h)
{
	struct xport_attr a = h_attr(h);
	char name[] = "/tmp/xport_conform_XXXXXX";
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC), file = mkstemp(name);
	struct stat st;

	H_TRUE(null >= 0 && file >= 0 && dup2(null, 2) == 2);
	unlink(name);
	close(null);
	a.log_fn = NULL;
	a.log_level = XPORT_LOG_DEBUG;
	h_open(h, &a);
	H_TRUE(dup2(file, 2) == 2);
	h_pair(h, !h->role);
	traffic(h, 2);
	xport_close(h->x);
	h_forget(h);
	H_TRUE(fstat(2, &st) == 0);
	H_EQ(0, st.st_size);
	close(file);
}

/* ---- limits and signals ---- */

/* `ulimit -f`: what cannot be opened is refused with its reason, and nothing ends the process. */
static void file_size(struct h *h)
{
	struct xport_candidate list[64];
	struct rlimit limit = {.rlim_cur = h->param, .rlim_max = h->param};
	struct xport_error e = {.size = sizeof(e)};
	struct xport_attr a = h_attr(h);
	int status;

	H_TRUE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	H_TRUE(xport_list(&a, list, sizeof(list[0]), 64) > 0);
	status = xport_open(&a, &h->x);
	if (status == XPORT_OK)
		return;
	h->x = NULL;
	H_OK(xport_last_error(NULL, &e));
	H_CHECK(strstr(e.text, "file sizes") != NULL, "the text is: %s", e.text);
	H_CHECK(strstr(e.hint, "ulimit -f") != NULL, "the hint is: %s", e.hint);
}

static const struct h_param file_sizes[] = {{"4K", 4096}, {"1M", 1 << 20}, {NULL, 0}};

static void tick(int signal)
{
	(void)signal;
}

/* Handlers without SA_RESTART, five thousand a second, while it opens, connects and talks to itself. */
static void interrupted(struct h *h)
{
	struct sigaction action = {.sa_handler = tick}, before;
	struct itimerval storm = {{0, 200}, {0, 200}}, none = {{0, 0}, {0, 0}};
	struct xport_completion c[8];
	xport_ep *to, *from;
	uint64_t word = 0, got = 0;

	H_TRUE(sigaction(SIGALRM, &action, &before) == 0);
	H_TRUE(setitimer(ITIMER_REAL, &storm, NULL) == 0);
	h_open(h, NULL);
	h_listen(h);
	for (int i = 0; i < 60; i++) {
		word = (uint64_t)i;
		H_OK(xport_connect(h->x, h->address, NULL, h_ms(10000), &to));
		from = h_accept(h);
		H_DONE(h_send(h, to, &word, 8, 1));
		H_DONE(h_recv(h, NULL, &got, 8, 1, UINT64_MAX));
		H_EQ(word, got);
		xport_ep_destroy(to);
		xport_ep_destroy(from);
		while (xport_poll(h->x, c, 8) > 0)
			;
	}
	xport_close(h->x);
	h_forget(h);
	H_TRUE(setitimer(ITIMER_REAL, &none, NULL) == 0);
	H_TRUE(sigaction(SIGALRM, &before, NULL) == 0);
}

/* ---- threads that are cancelled ---- */

static void *waits_for_ever(void *arg)
{
	struct xport_completion c;
	xport *x = arg;

	for (;;) {
		if (xport_wait(x, &c, 1, 50) < 0)
			break;
		pthread_testcancel();
	}
	return NULL;
}

/* The lock is free afterwards. */
static void cancelled(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct xport_completion c;
	pthread_t thread;
	void *ended;

	a.thread_mode = XPORT_THREAD_MULTIPLE;
	h_open(h, &a);
	for (int i = 0; i < 10; i++) {
		H_TRUE(pthread_create(&thread, NULL, waits_for_ever, h->x) == 0);
		usleep(20000);
		H_TRUE(pthread_cancel(thread) == 0);
		H_TRUE(pthread_join(thread, &ended) == 0);
		H_TRUE(ended == PTHREAD_CANCELED);
		H_EQ(0, xport_poll(h->x, &c, 1));
	}
}

/* ---- descriptors closed by the application ---- */

static int64_t cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/*
 * As before exec: all above 2.  A child holds the same files, so that the helper's epoll set goes on to report events.  The peer
 * hears nothing of it but the end.
 */
static void closes_all(struct h *h)
{
	struct xport_attr a = h_attr(h);
	int64_t cpu;
	pid_t child;

	a.peer_timeout_ms = 1000;
	h_open(h, &a);
	if (h->info.stack_threads > 0 || strcmp(h->info.backend, "ucx") == 0)
		h_skip(h, "threads of the stack do not bear closed descriptors");
	h_pair(h, 1);
	h_sync(h);
	child = fork();
	if (child == 0) {
		usleep(4000000);
		_exit(0);
	}
	H_TRUE(close_range(3, ~0U, 0) == 0);
	cpu = cpu_ms();
	usleep(3000000);
	H_CHECK(cpu_ms() - cpu < h_ms(300), "%d ms of CPU in 3 s", (int)(cpu_ms() - cpu));
	H_TRUE(kill(child, SIGKILL) == 0);
	h_exit(h, false);
}

static void sees_it_end(struct h *h)
{
	struct xport_attr a = h_attr(h);

	a.peer_timeout_ms = 1000;
	h_open(h, &a);
	if (h->info.stack_threads > 0 || strcmp(h->info.backend, "ucx") == 0)
		h_skip(h, "threads of the stack do not bear closed descriptors");
	h_pair(h, 0);
	h_sync(h);
	H_EVENT(XPORT_EVENT_LOST);
}

/* ---- a child of a process that has an instance ---- */

static void child_is_refused(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct xport_error e = {.size = sizeof(e)};
	xport *y = NULL;
	int status;
	pid_t pid;

	h_open(h, NULL);
	pid = fork();
	if (pid == 0)
		_exit(xport_open(&a, &y) != XPORT_ERR_FORK || xport_last_error(NULL, &e) != XPORT_OK ||
		      e.status != XPORT_ERR_FORK || e.text[0] == '\0');
	H_TRUE(waitpid(pid, &status, 0) == pid);
	H_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %x", status);
}

const struct h_scenario cases_p12_more[] = {
	{.name = "P12_file_size_limit", .role = {file_size}, .params = file_sizes, .flags = H_KILLS | H_ONCE},
	{.name = "P12_interrupted_by_handlers", .role = {interrupted}, .flags = H_KILLS, .timeout_s = 60},
	{.name = "P12_thread_cancelled_in_wait", .role = {cancelled}, .flags = H_KILLS | H_ONCE},
	{.name = "P12_descriptors_closed", .role = {closes_all, sees_it_end}, .flags = H_KILLS | H_ONCE},
	{.name = "P12_child_may_not_open", .role = {child_is_refused}, .flags = H_KILLS | H_ONCE},
	{.name = "P12_low_descriptors",
         .role = {low_descriptors, low_descriptors},
         .params = when_closed,
         .flags = H_TARGET | H_KILLS},
	{.name = "P12_log_keeps_to_its_file", .role = {log_keeps_away, log_keeps_away}, .flags = H_KILLS | H_ONCE},
	{.name = NULL},
};
