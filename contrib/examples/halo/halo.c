/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * halo.c - a computation on a 2-D grid by a group of processes, which exchange the edges of their blocks in each step.
 *
 *	halo alone [OPTION...]              one process
 *	halo run -n PROCESSES [OPTION...]   processes on this machine
 *	halo member [OPTION...]             one process of a job: a launcher starts all
 *	halo ways -n PROCESSES [OPTION...]  each way of moving columns, in turn
 *	halo scaling -n MOST [OPTION...]    1, 2, 4, ... processes: the same grid (strong), and a grid that grows (weak)
 *
 *	-g WIDTHxHEIGHT  the grid (512x512)
 *	-s STEPS         steps (100)
 *	-b WAY           putv (default), getv, put or pack
 *
 * The last line of alone, run and member has the sum of the bits of all cells: it is the same for any number of processes.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "exchange.h"

enum { LIMIT_MS = 60000, MOST = 64, ROUNDS = 9 };

struct options {
	const char *mode;
	int width, height, steps, processes;
	enum way way;
};

struct result {
	double seconds, halo; /* of the slowest process */
	uint64_t bits;
};

static double seconds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- options ---- */

static void usage(void)
{
	fprintf(stderr, "usage: halo alone|run|member|ways|scaling [-n PROCESSES] [-g WIDTHxHEIGHT] [-s STEPS] "
	                "[-b putv|getv|put|pack]\n");
	exit(2);
}

static int positive(const char *text, char stop, const char **rest, int most)
{
	char *end;
	long v = strtol(text, &end, 10);

	if (end == text || *end != stop || v < 1 || v > most)
		usage();
	if (rest != NULL)
		*rest = end + 1;
	return (int)v;
}

static struct options options_of(int argc, char **argv)
{
	struct options o = {.width = 512, .height = 512, .steps = 100, .processes = 4};
	const char *rest;
	int flag, way;

	while ((flag = getopt(argc, argv, "n:g:s:b:")) != -1) {
		switch (flag) {
		case 'n':
			o.processes = positive(optarg, '\0', NULL, MOST);
			break;
		case 'g':
			o.width = positive(optarg, 'x', &rest, 1 << 15);
			o.height = positive(rest, '\0', NULL, 1 << 20);
			break;
		case 's':
			o.steps = positive(optarg, '\0', NULL, 1 << 30);
			break;
		case 'b':
			for (way = 0; way < WAYS && strcmp(optarg, way_names[way]) != 0; way++)
				;
			if (way == WAYS)
				usage();
			o.way = (enum way)way;
			break;
		default:
			usage();
		}
	}
	if (argc - optind != 1)
		usage();
	o.mode = argv[optind];
	return o;
}

/* Each process needs a cell. */
static void judge(const struct options *o, int processes)
{
	struct shape s = shape_of(o->width, o->height, processes);

	if (s.width >= s.columns && s.height >= s.rows)
		return;
	fprintf(stderr, "halo: a grid of %dx%d has no block for each of %dx%d processes\n", o->width, o->height,
	        s.columns, s.rows);
	exit(2);
}

/* ---- one process ---- */

static struct result alone(const struct options *o)
{
	struct shape s = shape_of(o->width, o->height, 1);
	struct block b = block_of(&s, 0);
	double *layer[2] = {calloc(block_cells(&b), sizeof(double)), calloc(block_cells(&b), sizeof(double))}, from;
	struct result r = {0};

	if (layer[0] == NULL || layer[1] == NULL)
		halo_check(XPORT_ERR_NO_MEMORY);
	block_start(&b, layer[0]);
	from = seconds_now();
	for (int k = 0; k < o->steps; k++)
		block_step(&b, layer[k % 2], layer[(k + 1) % 2]);
	r.seconds = seconds_now() - from;
	r.bits = block_bits(&b, &s, layer[o->steps % 2]);
	free(layer[0]);
	free(layer[1]);
	return r;
}

static void show(const struct options *o, const struct result *r, int n)
{
	struct shape s = shape_of(o->width, o->height, n);

	printf("grid %dx%d steps %d processes %d (%dx%d) seconds %.3f halo %.3f bits %016llx\n", o->width, o->height,
	       o->steps, n, s.columns, s.rows, r->seconds, r->halo, (unsigned long long)r->bits);
}

/* ---- a member of a group ---- */

static void steps(struct exchange *e, int n, enum way way, struct result *r)
{
	double from = seconds_now(), at;

	for (int k = 0; k < n; k++) {
		at = seconds_now();
		exchange_halo(e, way);
		r->halo += seconds_now() - at;
		block_step(&e->block, e->layer[(e->step - 1) % 2], e->layer[e->step % 2]);
	}
	exchange_settle(e);
	r->seconds += seconds_now() - from;
}

static void reduce(struct exchange *e, struct result *r)
{
	double times[2] = {r->seconds, r->halo};

	r->bits = block_bits(&e->block, &e->shape, e->layer[e->step % 2]);
	halo_check(
		xport_group_allreduce(e->group, &r->bits, &r->bits, 1, XPORT_GROUP_UINT64, XPORT_GROUP_SUM, LIMIT_MS));
	halo_check(xport_group_allreduce(e->group, times, times, 2, XPORT_GROUP_DOUBLE, XPORT_GROUP_MAX, LIMIT_MS));
	r->seconds = times[0];
	r->halo = times[1];
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* In turn, so that all ways meet the same machine. */
static void compare_ways(struct exchange *e, const struct options *o)
{
	double us[WAYS][ROUNDS];

	for (int round = 0; round < ROUNDS; round++)
		for (int way = 0; way < WAYS; way++) {
			struct result r = {0};

			halo_check(xport_group_barrier(e->group, LIMIT_MS));
			steps(e, o->steps, (enum way)way, &r);
			reduce(e, &r);
			us[way][round] = 1e6 * r.halo / o->steps;
		}
	for (int way = 0; way < WAYS; way++)
		qsort(us[way], ROUNDS, sizeof(double), by_value);
	for (int way = 0; e->rank == 0 && way < WAYS; way++)
		printf("%-4s %.1f us a halo, median of %d rounds; rate beside put: %.2f\n", way_names[way],
		       us[way][ROUNDS / 2], ROUNDS, us[BY_PUT][ROUNDS / 2] / us[way][ROUNDS / 2]);
}

/* Rank 0 writes the result to `told`; -1: prints it. */
static void be_member(const struct options *o, int told)
{
	struct exchange e = {0};
	struct xport_group_attr attr = exchange_attr(&e);
	struct xport_group_info info = {.size = sizeof(info)};
	struct result r = {0};
	xport_group *group;
	xport *x;

	halo_check(xport_open(NULL, &x));
	halo_check(xport_group_create(x, &attr, LIMIT_MS, &group));
	halo_check(xport_group_query(group, &info));
	judge(o, info.members);
	exchange_open(&e, x, group, o->width, o->height);
	block_start(&e.block, e.layer[0]);
	halo_check(xport_group_barrier(group, LIMIT_MS));
	if (strcmp(o->mode, "ways") == 0) {
		compare_ways(&e, o);
	} else {
		steps(&e, o->steps, o->way, &r);
		reduce(&e, &r);
	}
	if (e.rank == 0 && told < 0)
		show(o, &r, e.shape.columns * e.shape.rows);
	else if (e.rank == 0 && write(told, &r, sizeof(r)) != sizeof(r))
		perror("halo: write");
	e.over = 1;
	halo_check(xport_group_barrier(group, LIMIT_MS));
	halo_check(xport_group_destroy(group, LIMIT_MS));
	exchange_close(&e);
	xport_close(x);
	fflush(stdout);
}

/* ---- processes on this machine ---- */

static void start_member(const struct options *o, const char *source, int rank, int n, int told)
{
	char number[16];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setenv("XPORT_GROUP", source, 1);
	snprintf(number, sizeof(number), "%d", rank);
	setenv("XPORT_GROUP_RANK", number, 1);
	snprintf(number, sizeof(number), "%d", n);
	setenv("XPORT_GROUP_SIZE", number, 1);
	be_member(o, told);
	_exit(0);
}

/* The first that fails ends all. */
static bool await_members(pid_t *pids, int n, bool good)
{
	int status = 0;

	for (;;) {
		pid_t ended = good ? wait(&status) : -1;

		if (ended < 0)
			break;
		for (int i = 0; i < n; i++)
			pids[i] = pids[i] == ended ? 0 : pids[i];
		good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
	}
	/* Only those that were started and have not been waited for: the number of another may be that of a stranger. */
	for (int i = 0; i < n; i++)
		if (pids[i] > 0) {
			kill(pids[i], SIGKILL);
			waitpid(pids[i], NULL, 0);
		}
	return good;
}

static struct result run(const struct options *o, int n)
{
	const char *tmp = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
	char dir[200], source[210], command[220];
	struct result r = {0};
	pid_t pids[MOST] = {0};
	bool started = true;
	int told[2];

	judge(o, n);
	fflush(NULL);
	if (snprintf(dir, sizeof(dir), "%s/halo-XXXXXX", tmp) >= (int)sizeof(dir)) {
		fprintf(stderr, "halo: TMPDIR is too long\n");
		exit(1);
	}
	if (mkdtemp(dir) == NULL || pipe(told) != 0) {
		perror("halo");
		exit(1);
	}
	snprintf(source, sizeof(source), "dir:%s", dir);
	for (int i = 0; i < n && started; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			start_member(o, source, i, n, told[1]);
		started = pids[i] > 0;
	}
	if (!started)
		perror("halo: fork");
	close(told[1]);
	if (!await_members(pids, n, started) || read(told[0], &r, sizeof(r)) != sizeof(r)) {
		fprintf(stderr, "halo: a member failed\n");
		r.seconds = -1;
	}
	close(told[0]);
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	if (system(command) != 0)
		fprintf(stderr, "halo: %s stays\n", dir);
	if (r.seconds < 0)
		exit(1);
	return r;
}

/* Efficiency: of strong scaling time(1) / (n time(n)), of weak scaling time(1) / time(n). */
static void scaling(const struct options *o)
{
	for (int weak = 0; weak < 2; weak++) {
		double first = 0;

		printf("%s scaling\n%10s %12s %10s %10s %11s\n", weak ? "weak" : "strong", "processes", "grid",
		       "seconds", "halo", "efficiency");
		for (int n = 1; n <= o->processes; n *= 2) {
			struct options mine = *o;
			struct result r;
			char grid[32];

			mine.height *= weak ? n : 1;
			r = run(&mine, n);
			first = n == 1 ? r.seconds : first;
			snprintf(grid, sizeof(grid), "%dx%d", mine.width, mine.height);
			printf("%10d %12s %10.3f %10.3f %11.2f\n", n, grid, r.seconds, r.halo,
			       first / r.seconds / (weak ? 1 : n));
			fflush(stdout);
		}
	}
}

int main(int argc, char **argv)
{
	struct options o = options_of(argc, argv);
	struct result r;

	if (strcmp(o.mode, "alone") == 0) {
		r = alone(&o);
		show(&o, &r, 1);
	} else if (strcmp(o.mode, "run") == 0) {
		r = run(&o, o.processes);
		show(&o, &r, o.processes);
	} else if (strcmp(o.mode, "member") == 0) {
		be_member(&o, -1);
	} else if (strcmp(o.mode, "ways") == 0) {
		(void)run(&o, o.processes);
	} else if (strcmp(o.mode, "scaling") == 0) {
		scaling(&o);
	} else {
		usage();
	}
	return 0;
}
