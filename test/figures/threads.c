/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * threads - the cost of threads: the lock of XPORT_THREAD_MULTIPLE without contention, and four threads with an
 * instance each beside four processes.
 *
 *   threads [PROVIDER...]   prints a table in Markdown; default: ucx:tcp, ucx:shm and ofi:tcp
 *
 * Both ends of a connection are in one thread here, so nobody waits for another. The compared variants take turns.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tools/tax/pair.h"

enum { CREW = 4, ROUNDS = 21, BATCH_OPS = 4096, TURN_MS = 100, BURST = 64 };

/* ---- both ends of one connection ---- */

struct both {
	xport *x[2];
	xport_ep *ep[2];
	xport_rkey *key;
};

static unsigned reap(xport *x)
{
	struct xport_completion c[BURST];
	int n = xport_poll(x, c, BURST);

	CHECK(n >= 0);
	for (int i = 0; i < n; i++)
		CHECK(c[i].status == XPORT_OK);
	return (unsigned)n;
}

static void join(struct both *b)
{
	xport_listener *listener;
	struct xport_completion c = {0};
	char name[64];

	CHECK(xport_listen(b->x[1], "127.0.0.1:0", NULL, &listener) == XPORT_OK);
	CHECK(xport_listener_name(listener, name, sizeof(name)) == XPORT_OK);
	CHECK(xport_connect(b->x[0], name, NULL, 0, &b->ep[0]) == XPORT_OK);
	while (c.type != XPORT_EVENT_CONNECTED) {
		CHECK(xport_poll(b->x[1], NULL, 0) >= 0);
		CHECK(xport_poll(b->x[0], &c, 1) >= 0);
	}
	CHECK(xport_accept(listener, 30000, &b->ep[1]) == XPORT_OK);
	xport_listener_close(listener);
}

static void both_open(struct both *b, const char *provider, int thread_mode)
{
	struct xport_attr attr = {
		.size = sizeof(attr), .backend = provider, .thread_mode = thread_mode, .queue_depth = DEPTH};
	xport_mr *mr; /* goes with its instance, as the key does */
	char packed[2048];
	size_t len = sizeof(packed);

	CHECK(xport_open(&attr, &b->x[0]) == XPORT_OK);
	CHECK(xport_open(&attr, &b->x[1]) == XPORT_OK);
	join(b);
	CHECK(xport_mr_alloc(b->x[1], 4096, XPORT_REMOTE_WRITE, &mr) == XPORT_OK);
	CHECK(xport_rkey_pack(mr, packed, &len) == XPORT_OK);
	CHECK(xport_rkey_unpack(b->ep[0], packed, len, &b->key) == XPORT_OK);
}

static void both_close(struct both *b)
{
	for (int i = 0; i < 2; i++)
		xport_close(b->x[i]);
}

/* ---- the lock ---- */

/* Puts, reaped `window` at a time; ns each. */
static double puts_of(struct both *b, unsigned window)
{
	static const struct xport_opt local = {.size = sizeof(local), .flags = XPORT_LOCAL};
	uint64_t word = 7, begun = pair_ns();

	for (unsigned i = 0; i < BATCH_OPS; i += window) {
		for (unsigned k = 0; k < window; k++)
			CHECK(xport_put(b->ep[0], &word, 8, b->key, k * 8, &local) == XPORT_OK);
		for (unsigned open = window; open > 0;)
			open -= reap(b->x[0]);
	}
	return (double)(pair_ns() - begun) / BATCH_OPS;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), by_value);
	return v[n / 2];
}

static void lock_line(const char *provider, struct both *one, struct both *many, unsigned window)
{
	double alone[ROUNDS], locked[ROUNDS], more[ROUNDS];

	for (int i = 0; i < ROUNDS; i++) {
		puts_of(one, window);
		alone[i] = puts_of(one, window);
		locked[i] = puts_of(many, window);
		more[i] = locked[i] - alone[i];
	}
	printf("| %s: put `XPORT_LOCAL` 8 B, %s | %.1f ns | %.1f ns | %.1f ns more |\n", provider,
	       window == 1 ? "a poll for each" : "a poll for 64", median(alone, ROUNDS), median(locked, ROUNDS),
	       median(more, ROUNDS));
}

/* The key is asked for at its owner, who is in this thread, too. */
static void await_mapped(struct both *b)
{
	struct xport_rkey_info info = {.size = sizeof(info)};

	for (uint64_t end = pair_ns() + 5000000000; info.direct == 0;) {
		CHECK(pair_ns() < end);
		CHECK(xport_poll(b->x[0], NULL, 0) >= 0 && xport_poll(b->x[1], NULL, 0) >= 0);
		CHECK(xport_rkey_query(b->key, &info) == XPORT_OK);
	}
}

/* Where a put is a copy: nothing else would be seen beside a system call. */
static void lock(const char *provider)
{
	struct both one = {0}, many = {0};

	both_open(&one, provider, XPORT_THREAD_SERIALIZED);
	both_open(&many, provider, XPORT_THREAD_MULTIPLE);
	await_mapped(&one);
	await_mapped(&many);
	lock_line(provider, &one, &many, 1);
	lock_line(provider, &one, &many, BURST);
	both_close(&one);
	both_close(&many);
}

/* ---- threads beside processes ---- */

enum turn { NOBODY, THREADS, PROCESSES, END };

struct shared {
	atomic_uint turn, ready, busy;
	atomic_ullong done[END]; /* messages, by whose turn it was */
};

struct worker {
	struct shared *sh;
	const char *provider;
	enum turn mine;
};

/* A burst of messages, received and completed. */
static void messages(struct both *b)
{
	uint64_t word = 7;
	static _Thread_local uint64_t inbox[BURST];
	unsigned open = BURST, missing = BURST;

	for (int i = 0; i < BURST; i++)
		CHECK(xport_recv(b->x[1], &inbox[i], sizeof(inbox[i]), 5, UINT64_MAX, NULL) == XPORT_OK);
	for (int i = 0; i < BURST; i++)
		CHECK(xport_send(b->ep[0], &word, sizeof(word), 5, NULL) == XPORT_OK);
	while (open > 0 || missing > 0) {
		open -= reap(b->x[0]);
		missing -= reap(b->x[1]);
	}
}

static void *worker(void *arg)
{
	const struct worker *w = arg;
	struct both b = {0};
	unsigned turn;

	both_open(&b, w->provider, XPORT_THREAD_SERIALIZED);
	messages(&b);
	atomic_fetch_add(&w->sh->ready, 1);
	while ((turn = atomic_load(&w->sh->turn)) != END) {
		if (turn != (unsigned)w->mine) {
			usleep(1000);
			continue;
		}
		atomic_fetch_add(&w->sh->busy, 1);
		for (; atomic_load(&w->sh->turn) == (unsigned)w->mine; atomic_fetch_add(&w->sh->done[w->mine], BURST))
			messages(&b);
		atomic_fetch_sub(&w->sh->busy, 1);
	}
	both_close(&b);
	return NULL;
}

static _Noreturn void crew_of_threads(struct worker w)
{
	pthread_t t[CREW];

	w.mine = THREADS;
	for (int i = 0; i < CREW; i++)
		CHECK(pthread_create(&t[i], NULL, worker, &w) == 0);
	for (int i = 0; i < CREW; i++)
		pthread_join(t[i], NULL);
	_exit(0);
}

static void await(const atomic_uint *word, unsigned value)
{
	for (int ms = 0; atomic_load(word) != value; ms++) {
		CHECK(ms < 60000);
		usleep(1000);
	}
}

/* One turn; returns messages a second. */
static double turn_of(struct shared *sh, enum turn t)
{
	uint64_t begun, before;

	atomic_store(&sh->turn, t);
	await(&sh->busy, CREW);
	begun = pair_ns();
	before = atomic_load(&sh->done[t]);
	usleep(TURN_MS * 1000);
	before = atomic_load(&sh->done[t]) - before;
	begun = pair_ns() - begun;
	atomic_store(&sh->turn, NOBODY);
	await(&sh->busy, 0);
	return (double)before * 1e9 / (double)begun;
}

static void crews(const char *provider)
{
	struct shared *sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct worker w = {sh, provider, PROCESSES};
	double threads[ROUNDS], processes[ROUNDS], ratio[ROUNDS];
	int status;

	CHECK(sh != MAP_FAILED);
	for (int i = 0; i <= CREW; i++) {
		if (fork() != 0)
			continue;
		if (i == CREW)
			crew_of_threads(w);
		worker(&w);
		_exit(0);
	}
	await(&sh->ready, 2 * CREW);
	for (int i = 0; i < ROUNDS; i++) {
		threads[i] = turn_of(sh, THREADS);
		processes[i] = turn_of(sh, PROCESSES);
		ratio[i] = threads[i] / processes[i];
	}
	atomic_store(&sh->turn, END);
	for (int i = 0; i <= CREW; i++)
		CHECK(wait(&status) > 0 && status == 0);
	printf("| %s: send 8 B, four at once, an instance each | threads: %.2f M/s | processes: %.2f M/s | %.2f |\n",
	       provider, median(threads, ROUNDS) / 1e6, median(processes, ROUNDS) / 1e6, median(ratio, ROUNDS));
	munmap(sh, sizeof(*sh));
}

/* In a process of its own: one that has opened a stack must not fork. */
static bool apart(void (*work)(const char *provider), const char *provider)
{
	int status = 1;

	fflush(stdout);
	if (fork() == 0) {
		work(provider);
		fflush(stdout);
		_exit(0);
	}
	return wait(&status) > 0 && status == 0;
}

int main(int argc, char **argv)
{
	static char *usual[] = {"", "ucx:tcp", "ucx:shm", "ofi:tcp", NULL};
	char **provider = argc > 1 ? argv : usual;
	bool good = true;

	for (provider++; *provider != NULL; provider++) {
		good = apart(crews, *provider) && good;
		if (strstr(*provider, "shm") != NULL)
			good = apart(lock, *provider) && good;
	}
	return good ? 0 : 1;
}
