/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inject_check.c - lets the calls of the library fail, one after the other, in each scenario over each back end.
 *
 *   inject_check [--once] [--jobs N] [--limit SECONDS] [--time SECONDS] [--sites FILE] [--scenario NAME] [BACKEND...]
 *   inject_check --case 'SCENARIO BACKEND STEP [STEP]'     one of them again, as a failure names it
 *
 * Without a BACKEND: loop, and the usual ones that are usable here.
 *
 * Each run is a process of its own.  A first one without failures counts: then the nth allocation fails, for each n, once and
 * from then on; and each place from which a call that can fail is made gets each of its errors, at the first time that
 * the scenario comes by there, at some later times, and from then on.  Where a failure leads the library to places
 * that it did not see before, the calls there fail behind it.  --once: each place once, by its first error.
 *
 * --limit: of a run; --time: of all, after which none begins.
 *
 * A STEP is KIND:N, or @SITE:N:ERROR, with a + behind it if all that follow fail as well.  FILE gets a line for each place:
 * its address, the call, how often it was made and how often it failed.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/env.h"
#include "plan.h"

enum { JOBS_MAX = 16, NAME = 96, SAID = 6000 };

static bool alone;
static int limit_s = 60, failures;
static int64_t time_ms; /* no case begins later; 0: each does */
static size_t nruns, nstruck;

/* ---- in the process of a run ---- */

static int count_entries(const char *folder, const char *prefix)
{
	DIR *d = opendir(folder);
	int n = 0;

	if (d == NULL)
		return 0;
	for (struct dirent *e; (e = readdir(d)) != NULL;)
		n += e->d_name[0] != '.' && strncmp(e->d_name, prefix, strlen(prefix)) == 0;
	closedir(d);
	return n;
}

static void trace(int sig)
{
	static const char text[] = "where it stands:\n";
	void *at[40];
	ssize_t n = write(2, text, sizeof(text) - 1);

	(void)n;
	backtrace_symbols_fd(at, backtrace(at, 40), 2);
	if (sig == SIGUSR2)
		return;
	signal(sig, SIG_DFL);
	raise(sig);
}

static void catch_signals(void)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGUSR2};
	struct sigaction sa = {.sa_handler = trace};
	void *at[1];

	backtrace(at, 1); /* loads what it needs */
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &sa, NULL);
}

/* What ofi:sockets wants to find stays for ever (base/env.c), and is no leak. */
static void keep_environment(void)
{
	struct xpi_env env;

	xpi_env_set(&env, "FI_SOCKETS_MAX_BUF_SZ=1048576");
	xpi_env_restore(&env);
}

static void run_case(const struct one_case *c, struct left *l)
{
	static struct scene s;
	int fds;

	s.backend = backends[c->backend];
	s.threads = c->scenario->threads;
	s.progress = s.threads ? "thread@0" : NULL;
	s.text = l->text;
	catch_signals();
	memcpy(l->run.steps, c->steps, sizeof(c->steps));
	if (c->scenario->before != NULL)
		c->scenario->before(&s);
	if (strncmp(s.backend, "verbs", 5) == 0 && inject_keep_devices != NULL)
		inject_keep_devices();
	keep_environment();
	fds = count_entries("/proc/self/fd", "");
	inject_arm(&l->run);
	c->scenario->run(&s);
	inject_disarm();
	for (int i = 0; i < 10000 && count_entries("/proc/self/task", "") > 1; i++)
		usleep(1000); /* a thread that was joined may still be listed */
	l->unexpected = s.unexpected;
	l->fds = count_entries("/proc/self/fd", "") - fds;
	l->threads = count_entries("/proc/self/task", "");
	l->ended = true;
}

/* ---- judging ---- */

static void say(char *to, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(char *to, const char *fmt, ...)
{
	size_t used = strlen(to);
	va_list args;

	va_start(args, fmt);
	vsnprintf(to + used, SAID - used, fmt, args);
	va_end(args);
}

static void judge_rest(const struct one_case *c, const struct left *l, char *why)
{
	if (l->text[0] != '\0')
		say(why, "  %s\n", l->text);
	if (c->baseline && l->unexpected > 0)
		say(why, "  without a failure %d steps did not succeed\n", l->unexpected);
	for (int i = 0; i < l->run.nblocks && i < INJECT_BLOCKS; i++)
		say(why, "  leak: %zu bytes, allocated by @%lx@\n", l->run.blocks[i].size,
		    (unsigned long)l->run.blocks[i].site);
	if (l->fds != 0)
		say(why, "  leak: %d descriptors\n", l->fds);
	if (l->threads != 1)
		say(why, "  leak: %d threads\n", l->threads - 1);
}

static bool judge(const struct one_case *c, const struct left *l, int status, bool late, const char *said)
{
	char name[NAME * 2], why[SAID] = "";

	if (late)
		say(why, "  hang: it did not end within %d s\n", limit_s);
	else if (WIFSIGNALED(status))
		say(why, "  crash: signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (!l->ended)
		say(why, "  the process ended with status %d\n", WEXITSTATUS(status));
	else
		judge_rest(c, l, why);
	if (why[0] == '\0')
		return true;
	if (!l->ended && l->text[0] != '\0')
		say(why, "  %s\n", l->text);
	name_case(c, name, sizeof(name));
	printf("FAILED: %s\n", name);
	for (int i = 0; i < INJECT_STEPS; i++)
		if (c->steps[i].active && !l->run.struck[i])
			printf("  (step %d did not take place)\n", i + 1);
	for (int i = 0; i < INJECT_SITES; i++)
		if (l->run.sites[i].failed > 0)
			printf("  failed %u times: %s at @%lx@\n", l->run.sites[i].failed,
			       inject_calls[l->run.sites[i].call].name, (unsigned long)l->run.sites[i].at);
	printf("%s", why);
	if (l->text[0] != '\0' || !l->ended)
		printf("%s", said);
	fflush(stdout);
	failures++;
	return false;
}

/* ---- running ---- */

struct job {
	pid_t pid;
	int pidfd, said;
	struct one_case c;
	struct left *left;
	int64_t deadline_ms;
	bool late;
};

static struct job jobs[JOBS_MAX];
static int njobs = 4; /* most of them sleep */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void start(struct job *j, const struct one_case *c)
{
	pid_t parent = getpid();

	j->c = *c;
	j->late = false;
	memset(j->left, 0, sizeof(*j->left));
	j->said = memfd_create("said", MFD_CLOEXEC);
	j->deadline_ms = now_ms() + limit_s * 1000;
	fflush(NULL);
	j->pid = fork();
	if (j->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		dup2(j->said, 2);
		dup2(j->said, 1);
		run_case(c, j->left);
		_exit(0);
	}
	j->pidfd = j->pid > 0 ? pidfd_open(j->pid, 0) : -1;
	if (j->said < 0 || j->pidfd < 0) {
		perror("inject_check: cannot start a process");
		exit(2);
	}
}

static void finish(struct job *j)
{
	char said[3000] = "";
	struct left *l = j->left;
	int status = 0;
	ssize_t n;

	waitpid(j->pid, &status, 0);
	n = pread(j->said, said, sizeof(said) - 1, 0);
	said[n > 0 ? n : 0] = '\0';
	close(j->said);
	close(j->pidfd);
	j->pid = 0;
	nruns++;
	nstruck += l->run.struck[0];
	judge(&j->c, l, status, j->late, said);
	if (j->c.baseline && !alone)
		plan(&j->c, l);
	if (!alone)
		learn(&j->c, l);
}

static bool has_ended(pid_t pid)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

/* It says where it stands, and is ended. */
static void end_late(struct job *j)
{
	j->late = true;
	kill(j->pid, SIGUSR2);
	usleep(200000);
	kill(j->pid, SIGKILL);
}

/* Sleeps until one has ended, or a moment. */
static void reap_some(void)
{
	struct pollfd p[JOBS_MAX];
	int n = 0;

	for (int i = 0; i < njobs; i++)
		if (jobs[i].pid != 0)
			p[n++] = (struct pollfd){.fd = jobs[i].pidfd, .events = POLLIN};
	poll(p, (nfds_t)n, 200);
	for (int i = 0; i < njobs; i++) {
		struct job *j = &jobs[i];

		if (j->pid == 0)
			continue;
		if (has_ended(j->pid))
			finish(j);
		else if (now_ms() > j->deadline_ms && !j->late)
			end_late(j);
	}
}

static struct job *idle_job(void)
{
	for (int i = 0; i < njobs; i++)
		if (jobs[i].pid == 0)
			return &jobs[i];
	return NULL;
}

static bool running(void)
{
	for (int i = 0; i < njobs; i++)
		if (jobs[i].pid != 0)
			return true;
	return false;
}

static void run_all(void)
{
	size_t next = 0;

	while (next < ncases || running()) {
		struct job *j = next < ncases ? idle_job() : NULL;

		if (j != NULL && time_ms > 0 && now_ms() > time_ms) {
			printf("inject_check: the time is over: %zu cases are left out\n", ncases - next);
			ncases = next;
			continue;
		}

		if (j != NULL) {
			struct one_case c = cases[next++]; /* the table may move */

			start(j, &c);
		} else {
			reap_some();
		}
	}
}

static void write_sites(const char *path)
{
	FILE *f = fopen(path, "w");

	if (f == NULL) {
		perror(path);
		exit(2);
	}
	for (int i = 0; i < nplaces; i++)
		fprintf(f, "%lx %s %u %u\n", (unsigned long)places[i].at, inject_calls[places[i].call].name,
		        places[i].made, places[i].failed);
	fclose(f);
}

static const struct scenario *find_scenario(const char *name)
{
	for (const struct scenario *s = scenarios; s->name != NULL; s++)
		if (strcmp(s->name, name) == 0)
			return s;
	fprintf(stderr, "inject_check: there is no scenario %s\n", name);
	exit(2);
}

/* SCENARIO BACKEND STEP [STEP], or without a step: the run that only counts. */
static void add_named(char *text)
{
	char *name = strtok(text, " "), *backend = strtok(NULL, " "), *word;
	struct one_case c = {.baseline = true};
	int n = 0;

	if (backend == NULL) {
		fprintf(stderr, "inject_check: --case 'SCENARIO BACKEND STEP'\n");
		exit(2);
	}
	c.scenario = find_scenario(name);
	backends[nbackends++] = backend;
	alone = true;
	add_case(&c);
	while ((word = strtok(NULL, " ")) != NULL) {
		if (n == INJECT_STEPS || !read_step(word, &c.steps[n++])) {
			fprintf(stderr, "inject_check: %s is no step\n", word);
			exit(2);
		}
		c.baseline = false;
	}
	njobs = 1; /* in this order */
	if (!c.baseline)
		add_case(&c);
}

/* Whether it can be opened here, which a process of its own finds out. */
static bool usable(const char *backend)
{
	int status = 1;
	pid_t pid = fork();

	if (pid == 0) {
		struct xport_attr attr = {.size = sizeof(attr), .backend = backend, .log_level = XPORT_LOG_ERROR};
		xport *x;

		_exit(xport_open(&attr, &x) != XPORT_OK);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		abort();
	return status == 0;
}

static void take_usable(void)
{
	static const char *const all[] = {"loop:native", "loop:rdma", "ucx:tcp", "ucx:shm",
	                                  "ofi:tcp",     "ofi:shm",   "shm:ring"};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (usable(all[i]))
			backends[nbackends++] = all[i];
		else
			printf("skipped: %s, which is not usable here\n", all[i]);
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"once", no_argument, NULL, 'o'},        {"jobs", required_argument, NULL, 'j'},
		{"limit", required_argument, NULL, 'l'}, {"sites", required_argument, NULL, 's'},
		{"case", required_argument, NULL, 'c'},  {"scenario", required_argument, NULL, 'n'},
		{"time", required_argument, NULL, 't'},  {NULL, 0, NULL, 0},
	};
	const char *sites = NULL, *only = NULL;
	char *one = NULL;

	for (int o; (o = getopt_long(argc, argv, "", options, NULL)) >= 0;) {
		switch (o) {
		case 'o':
			once = true;
			break;
		case 'j':
			njobs = atoi(optarg) < JOBS_MAX ? atoi(optarg) : JOBS_MAX;
			break;
		case 'l':
			limit_s = atoi(optarg);
			break;
		case 's':
			sites = optarg;
			break;
		case 'c':
			one = optarg;
			break;
		case 'n':
			only = optarg;
			break;
		case 't':
			time_ms = now_ms() + 1000 * (int64_t)atoi(optarg);
			break;
		default:
			return 2;
		}
	}
	for (int i = optind; i < argc && nbackends < BACKENDS_MAX; i++)
		backends[nbackends++] = argv[i];
	for (int i = 0; i < JOBS_MAX; i++)
		jobs[i].left =
			mmap(NULL, sizeof(struct left), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (one != NULL) {
		add_named(one);
	} else {
		if (nbackends == 0)
			take_usable();
		for (const struct scenario *s = scenarios; s->name != NULL; s++)
			for (int b = 0; b < nbackends && (b == 0 || !s->once); b++)
				if (only == NULL || strcmp(only, s->name) == 0)
					add_case(&(struct one_case){.scenario = s, .backend = b, .baseline = true});
	}
	run_all();
	if (sites != NULL)
		write_sites(sites);
	printf("inject_check: %zu runs, in %zu of which a call failed; %d went wrong\n", nruns, nstruck, failures);
	return failures > 0;
}
