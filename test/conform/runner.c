/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * runner.c - runs one scenario: starts its roles, restarts them on request, watches the time, collects their output.
 *
 * The runner's process never opens an instance, so each role begins in a process that no network library has touched.
 */
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "harness.h"
#include "shared.h"

void __lsan_do_leak_check(void) __attribute__((weak));

/* What one run needs. */
struct run {
	const struct h_scenario *s;
	const struct h_config *config;
	struct h_result *result;
	struct h_shared *sh;
	int nroles;
	int nproc; /* processes: nroles, or 1 with threads */
	int channel[H_ROLES][H_ROLES];
	int command[2];
	int pidfd[H_ROLES];
	bool look;           /* there are no pidfds */
	struct h h[H_ROLES]; /* roles as threads */
};

static void say(struct h_result *r, const char *fmt, ...)
{
	size_t used = strlen(r->text);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->text + used, sizeof(r->text) - used, fmt, ap);
	va_end(ap);
}

/* ---- in the role's process ---- */

static void trace(int sig)
{
	void *at[40];

	(void)sig;
	backtrace_symbols_fd(at, backtrace(at, 40), 2);
}

/* Waits for the runner's signal that time is up, then shows what the role is doing. */
static void *watch(void *arg)
{
	struct h *h = arg;
	struct sigaction sa = {.sa_handler = trace};
	sigset_t set;
	int sig;

	sigfillset(&set); /* those of the roles are not for this thread */
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigwait(&set, &sig);
	sigaction(SIGUSR2, &sa, NULL);
	for (int i = 0; i < (h->config->threads ? h->nroles : 1); i++) {
		pthread_kill(h[i].thread, SIGUSR2);
		usleep(100000);
		xport_dump(h[i].x);
	}
	return NULL;
}

static void block_watch_signal(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void prepare(struct run *r, struct h *h, int role)
{
	memset(h, 0, sizeof(*h));
	h->role = role;
	h->nroles = r->nroles;
	h->incarnation = r->sh->role[role].incarnation;
	h->config = r->config;
	h->param = r->config->param;
	h->kind = r->config->kind;
	h->limit_ms = 10000;
	h->shared = r->sh;
	h->command = r->command[1];
	for (int i = 0; i < r->nroles; i++)
		h->channel[i] = r->channel[role][i];
	h->thread = pthread_self();
}

static void *role_thread(void *arg)
{
	struct h *h = arg;
	h_role_fn fn = *(h_role_fn *)h->queue;

	h->queue = NULL;
	h->thread = pthread_self();
	fn(h);
	h_finish(h);
	return NULL;
}

static void run_threads(struct run *r)
{
	pthread_t t[H_ROLES], watcher;

	for (int i = 0; i < r->nroles; i++) {
		prepare(r, &r->h[i], i);
		r->h[i].queue = (void *)&r->s->role[i];
	}
	pthread_create(&watcher, NULL, watch, r->h);
	for (int i = 0; i < r->nroles; i++)
		pthread_create(&t[i], NULL, role_thread, &r->h[i]);
	for (int i = 0; i < r->nroles; i++)
		pthread_join(t[i], NULL);
}

static void run_role(struct run *r, int role)
{
	static struct h h;
	pthread_t watcher;

	prepare(r, &h, role);
	pthread_create(&watcher, NULL, watch, &h);
	r->s->role[role](&h);
	h_finish(&h);
}

static void close_others(struct run *r, int role)
{
	for (int i = 0; i < r->nroles; i++) {
		for (int j = 0; j < r->nroles; j++)
			if (i != role && i != j)
				close(r->channel[i][j]);
		if (i != role && r->sh->role[i].out_fd >= 0) {
			close(r->sh->role[i].out_fd);
			close(r->sh->role[i].err_fd);
		}
		if (r->pidfd[i] >= 0)
			close(r->pidfd[i]);
	}
	close(r->command[0]);
}

/* Roles with networks of their own are told apart by namespaces; all else they share. */
static void take_place(const struct h_place *place)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "/run/netns/%s", place->netns);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) {
		fprintf(stderr, "cannot enter the network namespace %s: %s\n", path, strerror(errno));
		_exit(1);
	}
	close(fd);
}

static int start(struct run *r, int role)
{
	struct h_role_shared *rs = &r->sh->role[role];
	pid_t pid, parent = getpid();

	fflush(NULL);
	atomic_store(&rs->gone, 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		atomic_store(&rs->pid, getpid());
		dup2(rs->out_fd, 1);
		dup2(rs->err_fd, 2);
		block_watch_signal();
		if (r->config->place)
			take_place(&r->config->place[role & 1]);
		if (!r->config->threads) {
			close_others(r, role);
			run_role(r, role);
		} else {
			run_threads(r);
		}
		fflush(NULL);
		if (__lsan_do_leak_check)
			__lsan_do_leak_check();
		_exit(0);
	}
	if (pid < 0)
		return -1;
	atomic_store(&rs->pid, pid);
	atomic_store(&rs->state, H_RUNNING);
	r->pidfd[role] = pidfd_open(pid, 0);
	if (r->pidfd[role] < 0 && errno == ENOSYS) { /* valgrind 3.19: we look ourselves */
		r->look = true;
		r->pidfd[role] = eventfd(0, EFD_CLOEXEC);
	}
	return r->pidfd[role] < 0 ? -1 : 0;
}

/* ---- in the runner ---- */

static void drain(int fd)
{
	char buf[4096];

	while (recv(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
}

static bool all_ended(const struct run *r)
{
	for (int i = 0; i < r->nproc; i++)
		if (r->pidfd[i] >= 0)
			return false;
	return true;
}

/* Takes the end of a role's process; a death nobody asked for is a failure. */
static void reap(struct run *r, int role)
{
	struct h_role_shared *rs = &r->sh->role[role];
	int status = 0;

	waitpid(atomic_load(&rs->pid), &status, 0);
	close(r->pidfd[role]);
	r->pidfd[role] = -1;
	atomic_store(&rs->state, H_ENDED);
	if (atomic_load(&r->sh->verdict) || atomic_load(&rs->gone) == H_IS_GONE ||
	    (atomic_load(&rs->gone) == H_MAY_GO && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
		return;
	if (WIFSIGNALED(status))
		say(r->result, "role %d died of signal %d (%s)\n", role, WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status))
		say(r->result, "role %d ended with status %d\n", role, WEXITSTATUS(status));
	else
		return;
	atomic_store(&r->sh->verdict, H_FAILED);
}

static void kill_all(struct run *r, int sig)
{
	for (int i = 0; i < r->nproc; i++)
		if (r->pidfd[i] >= 0)
			kill(atomic_load(&r->sh->role[i].pid), sig);
}

static void obey(struct run *r)
{
	struct h_command c;

	if (recv(r->command[0], &c, sizeof(c), MSG_DONTWAIT) != sizeof(c) || c.kind != H_DO_RESTART)
		return;
	if (r->pidfd[c.role] >= 0)
		reap(r, c.role);
	for (int i = 0; i < r->nroles; i++)
		if (i != c.role) {
			drain(r->channel[c.role][i]);
			drain(r->channel[i][c.role]);
		}
	r->sh->role[c.role].incarnation++;
	if (start(r, c.role) < 0) {
		say(r->result, "cannot restart role %d\n", c.role);
		atomic_store(&r->sh->verdict, H_FAILED);
	}
	atomic_fetch_add(&r->sh->restarts, 1);
}

/* Whether the process of a role has ended; leaves it to be waited for. */
static bool has_ended(struct run *r, int role)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)atomic_load(&r->sh->role[role].pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       info.si_pid != 0;
}

enum { TICK_MS = 100 };

/* Waits for roles and orders until the deadline; true when all roles ended. */
static bool attend(struct run *r, int64_t deadline_us)
{
	struct pollfd p[H_ROLES + 1];
	int64_t left;

	while (!all_ended(r)) {
		h_tick(r->sh);
		left = (deadline_us - h_now_us()) / 1000;
		if (left <= 0)
			return false;
		for (int i = 0; i < r->nproc; i++)
			p[i] = (struct pollfd){.fd = r->pidfd[i], .events = POLLIN};
		p[r->nproc] = (struct pollfd){.fd = r->command[0], .events = POLLIN};
		poll(p, (nfds_t)r->nproc + 1, r->look ? 5 : left > TICK_MS ? TICK_MS : (int)left);
		if (p[r->nproc].revents)
			obey(r);
		else
			for (int i = 0; i < r->nproc; i++)
				if (r->pidfd[i] >= 0 && (r->look ? has_ended(r, i) : p[i].revents != 0))
					reap(r, i);
		if (atomic_load(&r->sh->verdict))
			return true;
	}
	return true;
}

/* The text that a role wrote to stdout or stderr. */
static size_t read_back(int fd, char *buf, size_t room)
{
	ssize_t n = pread(fd, buf, room - 1, 0);

	buf[n > 0 ? n : 0] = 0;
	return n > 0 ? (size_t)n : 0;
}

static bool expected(const struct h_role_shared *rs, const char *line, size_t len)
{
	char text[1024];

	snprintf(text, sizeof(text), "%.*s", (int)(len < 1000 ? len : 1000), line);
	for (unsigned i = 0; i < atomic_load(&rs->nexpect); i++)
		if (strstr(text, rs->expect[i]))
			return true;
	return false;
}

static void check_lines(struct run *r, int role, char *log)
{
	struct h_role_shared *rs = &r->sh->role[role];

	for (char *p = log, *e; (e = strchr(p, '\n')) != NULL; p = e + 1)
		if ((!strncmp(p, "WARN", 4) || !strncmp(p, "ERROR", 5)) && !expected(rs, p, (size_t)(e - p))) {
			say(r->result, "role %d logged: %.*s\n", role, (int)(e - p), p);
			r->result->outcome = H_FAILED;
		}
}

static void check_log(struct run *r, int role)
{
	struct h_role_shared *rs = &r->sh->role[role];

	check_lines(r, role, rs->log);
	check_lines(r, role, rs->late);
	if (atomic_load(&rs->nlate) >= sizeof(rs->late)) {
		say(r->result, "role %d logged more warnings than are kept\n", role);
		r->result->outcome = H_FAILED;
	}
}

static void check_output(struct run *r, int role)
{
	static char buf[16 * 1024];
	struct h_role_shared *rs = &r->sh->role[role];

	if (read_back(rs->out_fd, buf, sizeof(buf))) {
		say(r->result, "role %d wrote to standard output: %s\n", role, buf);
		r->result->outcome = H_FAILED;
	}
	if (read_back(rs->err_fd, buf, sizeof(buf))) {
		say(r->result, "role %d wrote to standard error: %s\n", role, buf);
		if (!getenv("H_STDERR_OK"))
			r->result->outcome = H_FAILED;
	}
}

static void collect(struct run *r, bool hang)
{
	struct h_shared *sh = r->sh;
	struct h_result *res = r->result;

	res->outcome = hang ? H_FAILED : (enum h_outcome)atomic_load(&sh->verdict);
	if (hang)
		say(res, "hang: the time limit of the scenario passed\n");
	if (sh->text[0])
		say(res, "%s\n", sh->text);
	if (res->outcome == H_SKIPPED)
		return;
	for (int i = 0; i < r->nroles; i++) {
		check_log(r, i);
		if (i < r->nproc)
			check_output(r, i);
	}
	for (int i = 0; res->outcome == H_FAILED && i < r->nroles; i++)
		say(res, "-- log of role %d:\n%.6000s", i, sh->role[i].log);
	res->nfigures = (int)atomic_load(&sh->nfigures);
	if (res->nfigures > 32)
		res->nfigures = 32;
	memcpy(res->figures, sh->figures, sizeof(res->figures));
}

static bool set_up(struct run *r)
{
	r->sh = mmap(NULL, sizeof(*r->sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (r->sh == MAP_FAILED)
		return false;
	h_clock_of(r->sh);
	while (r->nroles < H_ROLES && r->s->role[r->nroles])
		r->nroles++;
	r->nproc = r->config->threads ? 1 : r->nroles;
	for (int i = 0; i < H_ROLES; i++) {
		r->pidfd[i] = -1;
		r->sh->role[i].out_fd = r->sh->role[i].err_fd = -1;
	}
	for (int i = 0; i < r->nroles; i++) {
		for (int j = i + 1, pair[2]; j < r->nroles; j++) {
			if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
				return false;
			r->channel[i][j] = pair[0];
			r->channel[j][i] = pair[1];
		}
		r->sh->role[i].out_fd = memfd_create("stdout", 0);
		r->sh->role[i].err_fd = memfd_create("stderr", 0);
	}
	return socketpair(AF_UNIX, SOCK_SEQPACKET, 0, r->command) == 0;
}

static void tear_down(struct run *r)
{
	for (int i = 0; i < r->nroles; i++) {
		for (int j = 0; j < r->nroles; j++)
			if (i != j)
				close(r->channel[i][j]);
		close(r->sh->role[i].out_fd);
		close(r->sh->role[i].err_fd);
	}
	close(r->command[0]);
	close(r->command[1]);
	h_clock_of(NULL);
	munmap(r->sh, sizeof(*r->sh));
}

enum h_outcome h_run(const struct h_scenario *s, const struct h_config *config, struct h_result *result)
{
	struct run r = {.s = s, .config = config, .result = result};
	int64_t limit = (int64_t)(s->timeout_s ? s->timeout_s : 30) * h_scale() * 1000000;
	bool done = true;

	memset(result, 0, sizeof(*result));
	if (config->threads && (s->flags & H_KILLS)) {
		say(result, "capability 'processes' is absent: the scenario kills, stops or forks one\n");
		return result->outcome = H_SKIPPED;
	}
	if (!set_up(&r)) {
		say(result, "cannot set up: %s\n", strerror(errno));
		return result->outcome = H_FAILED;
	}
	for (int i = 0; i < r.nproc && done; i++)
		done = start(&r, i) == 0;
	done = done && attend(&r, h_now_us() + limit);
	if (!done) {
		kill_all(&r, SIGCONT);
		kill_all(&r, SIGUSR1);
		attend(&r, h_now_us() + 1500000);
	} else if (!all_ended(&r)) {
		usleep(50000); /* let the others log what they see */
	}
	kill_all(&r, SIGKILL);
	for (int i = 0; i < r.nproc; i++)
		if (r.pidfd[i] >= 0) {
			atomic_store(&r.sh->role[i].gone, 1);
			reap(&r, i);
		}
	collect(&r, !done);
	tear_down(&r);
	return result->outcome;
}

uint64_t h_read_number(const char *option, const char *text)
{
	char *end = NULL;
	uint64_t n = text ? strtoull(text, &end, 0) : 0;

	if (n > 0 && *end == 0 && *text != '-')
		return n;
	fprintf(stderr, "%s: %s needs a number, at least 1\n", program_invocation_short_name, option);
	exit(2);
}

bool h_read_place(char *text, struct h_place *place)
{
	char *address = strchr(text, ','), *backend = address ? strchr(address + 1, ',') : NULL;

	if (!backend)
		return false;
	*address = *backend = 0;
	*place = (struct h_place){text, address + 1, backend + 1};
	return true;
}

const char *h_name_places(const struct h_place *place, char *buf, size_t len)
{
	snprintf(buf, len, "--apart %s,%s,%s %s,%s,%s", place[0].netns, place[0].address, place[0].backend,
	         place[1].netns, place[1].address, place[1].backend);
	return buf;
}

int h_list_candidates(struct xport_candidate *list, int max)
{
	int fd[2], n = -1;
	size_t got = 0, bytes = (size_t)max * sizeof(*list);
	pid_t pid;

	if (pipe(fd) < 0)
		return -1;
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		n = xport_list(NULL, list, sizeof(*list), max);
		if (write(fd[1], &n, sizeof(n)) == sizeof(n) && n > 0)
			for (size_t at = 0; at < bytes;)
				at += (size_t)write(fd[1], (char *)list + at, bytes - at);
		_exit(0);
	}
	close(fd[1]);
	if (read(fd[0], &n, sizeof(n)) != sizeof(n))
		n = -1;
	while (n > 0 && got < bytes) {
		ssize_t k = read(fd[0], (char *)list + got, bytes - got);

		if (k <= 0)
			break;
		got += (size_t)k;
	}
	close(fd[0]);
	waitpid(pid, NULL, 0);
	return n > max ? max : n;
}

static void ignore_line(void *arg, int level, const char *id, const char *line)
{
	(void)arg;
	(void)level;
	(void)id;
	(void)line;
}

static int open_and_close(const char *backend, char *why, size_t len)
{
	struct xport_attr a = {.size = sizeof(a), .backend = backend, .log_fn = ignore_line};
	struct xport_error e = {.size = sizeof(e)};
	xport *x = NULL;
	int s = xport_open(&a, &x);

	if (s != XPORT_OK && xport_last_error(NULL, &e) == XPORT_OK)
		snprintf(why, len, "%s%s%s", e.text, e.hint[0] ? ". " : "", e.hint);
	xport_close(x);
	return s;
}

int h_try_backend(const char *backend, char *why, size_t len)
{
	int fd[2], s = XPORT_ERR_NO_MEMORY;
	ssize_t n;
	pid_t pid;

	snprintf(why, len, "the process that opens it failed");
	if (pipe(fd) < 0)
		return s;
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		why[0] = 0;
		s = open_and_close(backend, why, len);
		if (write(fd[1], &s, sizeof(s)) == sizeof(s))
			(void)!write(fd[1], why, strlen(why) + 1);
		_exit(0);
	}
	close(fd[1]);
	if (pid > 0 && read(fd[0], &s, sizeof(s)) == sizeof(s)) {
		n = read(fd[0], why, len - 1);
		why[n > 0 ? n : 0] = 0;
	}
	close(fd[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return s;
}
