/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rates.c - bandwidth and latency of each edge of a star, a ring, a mesh, a tree of processes on this machine:
 *
 *     topology_rates [-n PROCESSES] [-t TOPOLOGY] [-d MILLISECONDS] [-v MEMBER] [-o FILE.svg] BACKEND[:PROVIDER]
 *
 * The processes are a group.  Each puts to its neighbours.  Then one member is slow: it sleeps for 10 ms between turns.  Then
 * it is killed.  The edges that do not end at it show what that costs the others.  Exit status 1 if a put failed, bytes were
 * wrong, or a living member did not come to the end.
 */
#include "rates.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <xport_services.h>

enum { PIECE = 65536, WINDOW = 8, LIMIT_MS = 60000, SLOW_US = 10000, SAMPLES = 4096, MARGIN_S = 60, MOST_MS = 3600000 };

/* What all processes share. */
struct board {
	struct rates rates;
	_Atomic int phase; /* the one that has begun; -1: none, RATES_PHASES: the end */
	_Atomic int ready, done[RATES_PHASES];
};

struct settings {
	struct graph g;
	const char *backend, *file;
	int ms, victim;
	struct board *board;
};

struct link {
	xport_ep *ep;
	xport_rkey *rkey;
	bool lost;
	int open;
	uint64_t bytes;
};

struct member {
	const struct settings *s;
	int rank;
	xport *x;
	xport_group *group;
	xport_mr *mr;
	uint8_t *slots; /* one for each rank, then what is put from */
	struct link link[G_MAX];
	bool slow;
};

static double rates_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void check(const struct member *m, int status, const char *what)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	(void)xport_services_last_error(&e);
	if (e.status != status)
		(void)xport_last_error(m->x, &e);
	fprintf(stderr, "topology_rates: member %d: %s: %s: %s\n", m->rank, what, xport_strerror(status),
	        e.status == status ? e.text : "");
	_exit(1);
}

/* ---- a member ---- */

static void rates_take(struct member *m, const struct xport_completion *c)
{
	if (xport_group_step(m->group, c) == 1)
		return;
	for (int i = 0; i < m->s->g.n; i++) {
		struct link *l = &m->link[i];

		if (l->ep == NULL || l->ep != c->ep)
			continue;
		if (c->type == XPORT_EVENT_LOST || c->type == XPORT_EVENT_CLOSED) {
			l->lost = true;
			/* At the end each leaves when it likes. */
			if (i != m->s->victim && atomic_load(&m->s->board->phase) < RATES_PHASES)
				check(m, c->status < 0 ? c->status : XPORT_ERR_PEER_CLOSED, "a living member was lost");
		} else if (c->type == XPORT_OP_PUT) {
			l->open--;
			l->bytes += c->status == XPORT_OK ? c->length : 0;
			if (c->status < 0 && i != m->s->victim)
				check(m, c->status, "a put");
		}
	}
}

static void on_other(void *arg, const struct xport_completion *c)
{
	rates_take(arg, c);
}

static void rates_turn(struct member *m)
{
	struct xport_completion c[32];
	int n = xport_wait(m->x, c, 32, 1);

	if (n != XPORT_ERR_TIMEOUT)
		check(m, n, "xport_wait");
	for (int i = 0; i < n; i++)
		rates_take(m, &c[i]);
	(void)xport_group_step(m->group, NULL);
	if (m->slow)
		usleep(SLOW_US);
}

/* Whether the put was accepted. */
static bool rates_put(struct member *m, struct link *l, size_t len)
{
	struct xport_opt o = {.size = sizeof(o), .mr = m->mr};
	int r = xport_put(l->ep, m->slots + (size_t)m->s->g.n * PIECE, len, l->rkey, (uint64_t)m->rank * PIECE, &o);

	if (r == XPORT_OK)
		l->open++;
	else if (r != XPORT_ERR_AGAIN && l != &m->link[m->s->victim])
		check(m, r, "xport_put");
	return r == XPORT_OK;
}

static bool usable(const struct link *l)
{
	return l->ep != NULL && !l->lost;
}

static void drain(struct member *m)
{
	for (int i = 0; i < m->s->g.n; i++)
		while (m->link[i].open > 0)
			rates_turn(m);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Of its own time: on a busy machine a member may begin late. */
static double until_us(const struct member *m)
{
	return rates_now_us() + 1e3 * m->s->ms;
}

/* On a busy machine the time may be over before a put has completed. */
static bool all_had(const struct member *m)
{
	for (int i = 0; i < m->s->g.n; i++)
		if (usable(&m->link[i]) && m->link[i].bytes == 0)
			return false;
	return true;
}

static void latencies(struct member *m)
{
	double until = until_us(m);
	static double us[G_MAX][SAMPLES];
	int n = m->s->g.n, count[G_MAX] = {0};

	while (rates_now_us() < until || !all_had(m))
		for (int i = 0; i < n; i++) {
			double from = rates_now_us();

			if (!usable(&m->link[i]) || !rates_put(m, &m->link[i], 8))
				continue;
			while (m->link[i].open > 0)
				rates_turn(m);
			us[i][count[i]++ % SAMPLES] = rates_now_us() - from;
		}
	for (int i = 0; i < n; i++) {
		int kept = count[i] < SAMPLES ? count[i] : SAMPLES;

		qsort(us[i], (size_t)kept, sizeof(double), by_value);
		m->s->board->rates.us[m->rank][i] = kept > 0 ? us[i][kept / 2] : 0;
	}
}

static void bandwidths(struct member *m, enum rates_phase phase)
{
	double from = rates_now_us(), to, until = until_us(m);
	int n = m->s->g.n;

	for (int i = 0; i < n; i++)
		m->link[i].bytes = 0;
	do {
		for (int i = 0; i < n; i++)
			while (usable(&m->link[i]) && m->link[i].open < WINDOW && rates_put(m, &m->link[i], PIECE))
				;
		rates_turn(m);
		to = rates_now_us();
	} while (to < until || !all_had(m));
	for (int i = 0; i < n; i++)
		m->s->board->rates.mb_per_s[phase][m->rank][i] = (double)m->link[i].bytes / (to - from);
	drain(m);
}

static void meet(struct member *m)
{
	struct xport_group_attr attr = {.size = sizeof(attr), .other = on_other, .arg = m};
	struct xport_attr open = {.size = sizeof(open), .backend = m->s->backend};
	struct xport_mr_info info = {.size = sizeof(info)};
	const struct graph *g = &m->s->g;
	char name[32], key[1024];
	size_t len = sizeof(key);

	check(m, xport_open(&open, &m->x), "xport_open");
	check(m, xport_group_create(m->x, &attr, LIMIT_MS, &m->group), "xport_group_create");
	check(m, xport_mr_alloc(m->x, (size_t)(g->n + 1) * PIECE, XPORT_REMOTE_WRITE, &m->mr), "xport_mr_alloc");
	check(m, xport_mr_query(m->mr, &info), "xport_mr_query");
	m->slots = info.base;
	memset(m->slots + (size_t)g->n * PIECE, m->rank + 1, PIECE);
	check(m, xport_rkey_pack(m->mr, key, &len), "xport_rkey_pack");
	snprintf(name, sizeof(name), "key of %d", m->rank);
	check(m, xport_group_put(m->group, name, key, len), "xport_group_put");
	check(m, xport_group_fence(m->group, LIMIT_MS), "xport_group_fence");
	for (int i = 0; i < g->n; i++) {
		if (!g->edge[m->rank][i])
			continue;
		len = sizeof(key);
		snprintf(name, sizeof(name), "key of %d", i);
		check(m, xport_group_get(m->group, name, key, &len), "xport_group_get");
		check(m, xport_group_ep(m->group, i, LIMIT_MS, &m->link[i].ep), "xport_group_ep");
		check(m, xport_rkey_unpack(m->link[i].ep, key, len, &m->link[i].rkey), "xport_rkey_unpack");
	}
	check(m, xport_group_barrier(m->group, LIMIT_MS), "xport_group_barrier");
}

/* Each neighbour has put its own number. */
static void verify(const struct member *m)
{
	for (int i = 0; i < m->s->g.n; i++)
		for (size_t k = 0; m->s->g.edge[m->rank][i] && k < PIECE; k++)
			if (m->slots[(size_t)i * PIECE + k] != i + 1) {
				fprintf(stderr, "topology_rates: member %d: byte %zu of member %d is wrong\n", m->rank,
				        k, i);
				_exit(1);
			}
}

static void be_member(const struct settings *s, int rank)
{
	static struct member m;
	struct board *b = s->board;

	m.s = s;
	m.rank = rank;
	meet(&m);
	atomic_fetch_add(&b->ready, 1);
	for (int phase = 0; phase < RATES_PHASES; phase++) {
		while (atomic_load(&b->phase) < phase)
			rates_turn(&m);
		m.slow = phase == RATES_SLOW && rank == s->victim;
		if (phase == RATES_LATENCY)
			latencies(&m);
		else
			bandwidths(&m, (enum rates_phase)phase);
		m.slow = false;
		atomic_fetch_add(&b->done[phase], 1);
	}
	while (atomic_load(&b->phase) < RATES_PHASES)
		rates_turn(&m);
	verify(&m);
	(void)xport_group_destroy(m.group, 2000);
	xport_close(m.x);
	_exit(0);
}

/* ---- all of them ---- */

static void start(const struct settings *s, int rank, const char *dir)
{
	char text[80];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(text, sizeof(text), "dir:%s", dir);
	setenv("XPORT_GROUP", text, 1);
	snprintf(text, sizeof(text), "%d", rank);
	setenv("XPORT_GROUP_RANK", text, 1);
	snprintf(text, sizeof(text), "%d", s->g.n);
	setenv("XPORT_GROUP_SIZE", text, 1);
	be_member(s, rank);
}

/* Until so many are there; false: one ended, or the time is over. */
static bool await(const struct settings *s, const _Atomic int *count, int want, pid_t *pids)
{
	double until = rates_now_us() + 1e3 * s->ms + 1e6 * MARGIN_S;
	int status, n = s->g.n;

	while (atomic_load(count) < want) {
		for (int i = 0; i < n; i++)
			if (pids[i] > 0 && waitpid(pids[i], &status, WNOHANG) == pids[i]) {
				fprintf(stderr, "topology_rates: member %d ended\n", i);
				pids[i] = 0;
				return false;
			}
		if (rates_now_us() > until) {
			fprintf(stderr, "topology_rates: %d of %d members came within %d ms\n", atomic_load(count),
			        want, s->ms + 1000 * MARGIN_S);
			return false;
		}
		usleep(1000);
	}
	return true;
}

static bool lead(const struct settings *s, pid_t *pids)
{
	struct board *b = s->board;
	int n = s->g.n;

	if (!await(s, &b->ready, n, pids))
		return false;
	for (int phase = 0; phase < RATES_PHASES; phase++) {
		if (phase == RATES_DEAD) {
			kill(pids[s->victim], SIGKILL);
			waitpid(pids[s->victim], NULL, 0);
			pids[s->victim] = 0;
		}
		atomic_store(&b->phase, phase);
		if (!await(s, &b->done[phase], n - (phase == RATES_DEAD), pids))
			return false;
	}
	return true;
}

static bool run(struct settings *s)
{
	char dir[] = "/tmp/topology-XXXXXX", command[64];
	pid_t pids[G_MAX] = {0};
	bool good = true;
	int status;

	s->board = mmap(NULL, sizeof(*s->board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s->board == MAP_FAILED || mkdtemp(dir) == NULL) {
		perror("topology_rates");
		return false;
	}
	atomic_store(&s->board->phase, -1);
	for (int i = 0; i < s->g.n && good; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			start(s, i, dir);
		good = pids[i] > 0;
	}
	if (!good)
		perror("topology_rates: fork");
	good = good && lead(s, pids);
	atomic_store(&s->board->phase, RATES_PHASES);
	for (int i = 0; i < s->g.n; i++) {
		if (pids[i] <= 0)
			continue;
		if (!good)
			kill(pids[i], SIGKILL);
		good = waitpid(pids[i], &status, 0) == pids[i] && status == 0 && good;
	}
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command) == 0 && good;
}

/* -1: it is no number from 0 to `most`. */
static int rates_number(const char *text, int most)
{
	char *end;
	long v = strtol(text, &end, 10);

	return *text < '0' || *text > '9' || *end != '\0' || v > most ? -1 : (int)v;
}

static int usage(void)
{
	fprintf(stderr,
	        "usage: topology_rates [-n 2..%d] [-t star|ring|mesh|tree] [-d MILLISECONDS] [-v MEMBER] [-o FILE.svg] "
	        "BACKEND[:PROVIDER]\n",
	        G_MAX);
	return 2;
}

int main(int argc, char **argv)
{
	struct settings s = {.ms = 500, .victim = 1};
	const char *topology = "ring";
	int n = 8, opt;

	while ((opt = getopt(argc, argv, "n:t:d:v:o:")) != -1) {
		if (opt == 'n')
			n = rates_number(optarg, G_MAX);
		else if (opt == 't')
			topology = optarg;
		else if (opt == 'd')
			s.ms = rates_number(optarg, MOST_MS);
		else if (opt == 'v')
			s.victim = rates_number(optarg, G_MAX);
		else if (opt == 'o')
			s.file = optarg;
		else
			return usage();
	}
	if (n < 2 || n > G_MAX || s.ms < 1 || s.victim < 0 || s.victim >= n || optind != argc - 1 ||
	    !graph_make(&s.g, topology, n))
		return usage();
	s.backend = argv[optind];
	if (!run(&s))
		return 1;
	rates_print(&s.board->rates, &s.g, s.backend, s.victim);
	if (s.file != NULL && !rates_draw(&s.board->rates, &s.g, s.backend, s.file)) {
		fprintf(stderr, "topology_rates: %s: %s\n", s.file, strerror(errno));
		return 1;
	}
	return 0;
}
