/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topology.c - sixteen processes as a star, a ring, a mesh, a tree:
 *
 *     topology_check [-n PROCESSES] [-t TOPOLOGY]... BACKEND[:PROVIDER]...
 *
 * Everybody sends to everybody and puts to its neighbours, all of it verified; then some are killed in the middle of
 * it, twice.  See node.h.  A line for each; exit status 1 if one fails.  A provider that is not usable here is skipped, with
 * the reason.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <xport.h>

#include "node.h"

/* LOST_S: one and a half times the peer timeout. */
enum { LIMIT_S = 90, LOST_S = 15, END_S = 10 };

struct run {
	struct graph g;
	struct board *board;
	pid_t pid[G_MAX];
	bool gone[G_MAX]; /* reaped */
	uint64_t until;
	char fault[600];
};

static void sleep_ms(long ms)
{
	nanosleep(&(struct timespec){0, ms * 1000000}, NULL);
}

static bool failed(struct run *r)
{
	return r->fault[0] != 0;
}

/* Somebody ended who should not have. */
static void look(struct run *r)
{
	int status;

	for (int i = 0; i < r->g.n && !failed(r); i++) {
		if (r->gone[i] || waitpid(r->pid[i], &status, WNOHANG) != r->pid[i])
			continue;
		r->gone[i] = true;
		snprintf(r->fault, sizeof(r->fault), "process %d ended, status %#x: %s", i, (unsigned)status,
		         r->board->fault[i]);
	}
}

/* Until so many are there. */
static void await(struct run *r, _Atomic int *count, int want, const char *what)
{
	while (!failed(r) && atomic_load(count) < want) {
		look(r);
		if (now_us() > r->until && !failed(r))
			snprintf(r->fault, sizeof(r->fault), "%d of %d %s after %d s", atomic_load(count), want, what,
			         LIMIT_S);
		sleep_ms(2);
	}
}

static int living(const struct run *r)
{
	int n = 0;

	for (int i = 0; i < r->g.n; i++)
		n += !r->gone[i];
	return n;
}

/* In the middle of their traffic. */
static void kill_some(struct run *r, int stage)
{
	int victim[2], n = graph_victims(&r->g, stage - 1, victim);

	atomic_store(&r->board->go[stage], 1);
	await(r, &r->board->running[stage], living(r), "have puts under way");
	if (failed(r))
		return;
	for (int i = 0; i < n; i++)
		atomic_store(&r->board->dead[victim[i]], stage);
	atomic_store(&r->board->killed_at[stage], now_us());
	for (int i = 0; i < n; i++) {
		kill(r->pid[victim[i]], SIGKILL);
		waitpid(r->pid[victim[i]], NULL, 0);
		r->gone[victim[i]] = true;
	}
	await(r, &r->board->arrived[stage], living(r), "saw who died, and went on");
}

static void reap(struct run *r, int i)
{
	uint64_t until = now_us() + (uint64_t)END_S * 1000000;
	int status = 0;
	pid_t pid;

	if (failed(r))
		kill(r->pid[i], SIGKILL);
	while ((pid = waitpid(r->pid[i], &status, WNOHANG)) == 0 && now_us() < until)
		sleep_ms(2);
	if (pid == 0) {
		kill(r->pid[i], SIGKILL);
		waitpid(r->pid[i], NULL, 0);
	}
	r->gone[i] = true;
	if (!failed(r) && (pid == 0 || status != 0))
		snprintf(r->fault, sizeof(r->fault), "process %d %s, status %#x: %s", i,
		         pid == 0 ? "did not end" : "ended", (unsigned)status, r->board->fault[i]);
}

/* Those that are left end when all have said that they look no more; in vain after a failure. */
static void finish(struct run *r)
{
	uint64_t slowest = atomic_load(&r->board->slowest_us);

	if (!failed(r) && slowest > (uint64_t)LOST_S * 1000000)
		snprintf(r->fault, sizeof(r->fault), "a death was seen after %llu ms",
		         (unsigned long long)slowest / 1000);
	atomic_store(&r->board->go[0], 1);
	await(r, &r->board->through, living(r), "are through");
	atomic_store(&r->board->end, 1);
	for (int i = 0; i < r->g.n; i++)
		if (!r->gone[i])
			reap(r, i);
}

static void start(struct run *r, const char *backend)
{
	for (int i = 0; i < r->g.n; i++) {
		r->pid[i] = fork();
		if (r->pid[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			node_run(&r->g, i, backend, r->board);
		}
	}
}

/* The one exception that P14 has: who dies over ucx:shm in the middle of writing into another's queue of UCX stops it. */
static bool excused(const struct run *r, const char *backend)
{
	return strcmp(backend, "ucx:shm") == 0 && atomic_load(&r->board->stands) != 0;
}

static bool run(const char *backend, const char *topology, int n)
{
	struct run r = {.until = now_us() + (uint64_t)LIMIT_S * 1000000};
	uint64_t begun = now_us();
	bool good;

	if (!graph_make(&r.g, topology, n))
		return false;
	r.board = mmap(NULL, sizeof(*r.board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (r.board == MAP_FAILED)
		return false;
	fflush(stdout);
	start(&r, backend);
	await(&r, &r.board->arrived[0], n, "have every message and put");
	for (int stage = 1; stage < STAGES && !failed(&r); stage++)
		kill_some(&r, stage);
	finish(&r);
	for (int i = 0; i < n && !failed(&r); i++)
		if (r.board->fault[i][0] != 0)
			snprintf(r.fault, sizeof(r.fault), "process %d: %s", i, r.board->fault[i]);
	good = !failed(&r) || excused(&r, backend);
	printf("%s: %s %s of %d: %llu messages, %llu puts, the dead known after %llu ms at most, %llu connections "
	       "tried again, %llu ms%s%s%s\n",
	       good ? "ok" : "FAILED", backend, topology, n, (unsigned long long)r.board->messages,
	       (unsigned long long)r.board->puts, (unsigned long long)r.board->slowest_us / 1000,
	       (unsigned long long)r.board->again, (unsigned long long)(now_us() - begun) / 1000,
	       failed(&r) ? "\n  " : "", failed(&r) && good ? "ended early, as P14's exception says: " : "", r.fault);
	munmap(r.board, sizeof(*r.board));
	return good;
}

/* In a process of its own: what a stack leaves behind is not for those that are forked here. */
static bool usable(const char *backend)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		struct xport_attr a = {.size = sizeof(a), .backend = backend, .log_level = XPORT_LOG_ERROR};
		struct xport_error e = {.size = sizeof(e)};
		xport *x;

		if (xport_open(&a, &x) == XPORT_OK) {
			xport_close(x);
			_exit(0);
		}
		(void)xport_last_error(NULL, &e);
		printf("skipped: %s: %s\n", backend, e.text);
		fflush(stdout);
		_exit(1);
	}
	waitpid(pid, &status, 0);
	return status == 0;
}

int main(int argc, char **argv)
{
	static const char *const all[] = {"star", "ring", "mesh", "tree"};
	const char *wanted[8];
	int n = 16, nwanted = 0, opt, rc = 0;

	while ((opt = getopt(argc, argv, "n:t:")) != -1) {
		if (opt == 'n')
			n = atoi(optarg);
		else if (opt == 't' && nwanted < 8)
			wanted[nwanted++] = optarg;
		else
			return 2;
	}
	if (n < 8 || n > G_MAX || optind == argc) {
		fprintf(stderr, "usage: topology_check [-n 8..%d] [-t star|ring|mesh|tree]... BACKEND[:PROVIDER]...\n",
		        G_MAX);
		return 2;
	}
	for (int i = 0; nwanted == 0 && i < 4; i++)
		wanted[i] = all[i];
	for (; optind < argc; optind++) {
		if (!usable(argv[optind]))
			continue;
		for (int i = 0; i < (nwanted == 0 ? 4 : nwanted); i++)
			rc |= !run(argv[optind], wanted[i], n);
	}
	return rc;
}
