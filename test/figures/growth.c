/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * growth - the cost of an operation when there are many posted receives, unexpected messages, operations in flight, or
 * idle endpoints.
 *
 *   growth [PROVIDER]           prints a table in Markdown; default: ucx:tcp
 *   growth PROVIDER WHAT COUNT  one line of it, for callgrind: the calls are those of figure_growth
 *
 * Two processes for each line. Only calls are timed, never the wait for the other process; the figure is the median of
 * many rounds.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/tax/pair.h"

enum { ROUNDS = 41, BATCH = 64, MANY = 10000, PEERS = 1000, FLIGHT = 65536 };

/* What is looked at: filled in by the process that does it. */
struct figure {
	double ns;  /* an operation */
	double kib; /* of resident memory for each of COUNT; 0: not looked at */
};

static unsigned count;
static struct figure found;

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

/* Reaps up to `n`; returns how many. */
static unsigned reap(xport *x, unsigned n)
{
	struct xport_completion c[BATCH];
	int k = xport_poll(x, c, (int)(n < BATCH ? n : BATCH));

	CHECK(k >= 0);
	for (int i = 0; i < k; i++)
		CHECK(c[i].status == XPORT_OK);
	return (unsigned)k;
}

/* Connects n more endpoints: both processes call it. */
static void connect_more(struct pair *p, xport_ep **eps, unsigned n)
{
	xport_listener *listener = NULL;

	if (p->id == 1) {
		CHECK(xport_listen(p->x, "127.0.0.1:0", NULL, &listener) == XPORT_OK);
		CHECK(xport_listener_name(listener, p->sh->address, sizeof(p->sh->address)) == XPORT_OK);
	}
	pair_barrier(p);
	for (unsigned i = 0; i < n; i++) {
		if (p->id == 1)
			CHECK(xport_accept(listener, 30000, &eps[i]) == XPORT_OK);
		else
			CHECK(xport_connect(p->x, p->sh->address, NULL, 30000, &eps[i]) == XPORT_OK);
	}
	pair_barrier(p);
	xport_listener_close(listener);
}

/* ---- messages: process 0 sends, process 1 is looked at ---- */

enum { SENDERS = 4 }; /* one may have 4096 messages nobody asked for at its peer */
static xport_ep *senders[SENDERS];
static uint64_t sink[MANY];

/* The i-th of all messages: tags in an order that no list has. */
static uint64_t tag_of(unsigned i)
{
	return 1000 + (uint64_t)i * 7919 % count;
}

static void post_receive(xport *x, uint64_t tag, uint64_t *into)
{
	struct xport_opt opt = {.size = sizeof(opt), .context = into};

	CHECK(xport_recv(x, into, sizeof(*into), tag, UINT64_MAX, &opt) == XPORT_OK);
}

static void send_some(struct pair *p, unsigned from, unsigned n)
{
	uint64_t word = 7;
	unsigned open = 0;

	for (unsigned i = 0; i < n; i++, open++) {
		int r;

		while ((r = xport_send(senders[i % SENDERS], &word, sizeof(word), tag_of(from + i), NULL)) ==
		       XPORT_ERR_AGAIN)
			open -= reap(p->x, open);
		CHECK(r == XPORT_OK);
	}
	while (open > 0)
		open -= reap(p->x, open);
}

/* One poll, and the receives that it used up posted again; returns how many. */
static __attribute__((noinline)) int figure_growth_posted(struct pair *p)
{
	struct xport_completion c[BATCH];
	int k = xport_poll(p->x, c, BATCH);

	CHECK(k >= 0);
	for (int i = 0; i < k; i++) {
		CHECK(c[i].status == XPORT_OK && c[i].type == XPORT_OP_RECV);
		post_receive(p->x, c[i].tag, c[i].context);
	}
	return k;
}

/* COUNT receives are posted, and messages come for one after the other. */
static void posted(struct pair *p)
{
	double v[ROUNDS];

	connect_more(p, senders, SENDERS);
	for (unsigned i = 0; p->id == 1 && i < count; i++)
		post_receive(p->x, tag_of(i), &sink[i]);
	pair_barrier(p);
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t ns = 0;

		if (p->id == 0)
			send_some(p, round * BATCH, BATCH);
		for (int got = 0; p->id == 1 && got < BATCH;) {
			uint64_t begun = pair_ns();
			int k = figure_growth_posted(p);

			ns += k > 0 ? pair_ns() - begun : 0;
			got += k;
		}
		v[round] = (double)ns / BATCH;
		pair_barrier(p);
	}
	if (p->id == 1)
		found.ns = median(v, ROUNDS);
}

/* The same with few tags, while COUNT receives with a mask wait for others. */
static void masked(struct pair *p)
{
	const uint64_t mask = UINT64_MAX << 32;
	unsigned waiting = count;

	for (unsigned i = 0; p->id == 1 && i < waiting; i++)
		CHECK(xport_recv(p->x, &sink[MANY - 1], sizeof(sink[0]), (uint64_t)(i + 1) << 32, mask, NULL) ==
		      XPORT_OK);
	count = BATCH;
	posted(p);
	count = waiting;
}

static __attribute__((noinline)) void figure_growth_unexpected(struct pair *p, unsigned from)
{
	for (unsigned i = 0; i < BATCH; i++)
		post_receive(p->x, tag_of(from + i), &sink[i]);
	for (unsigned got = 0; got < BATCH;)
		got += reap(p->x, BATCH);
}

static void await_unexpected(struct pair *p)
{
	struct xport_counters n = {.size = sizeof(n)};

	do {
		CHECK(xport_poll(p->x, NULL, 0) >= 0);
		CHECK(xport_stats(p->x, NULL, &n) == XPORT_OK);
	} while (n.unmatched < count);
}

/* COUNT messages wait, and receives are posted for one after the other. */
static void unexpected(struct pair *p)
{
	double v[ROUNDS];

	connect_more(p, senders, SENDERS);
	if (p->id == 0)
		send_some(p, 0, count);
	for (unsigned round = 0; round < ROUNDS; round++) {
		if (p->id == 1) {
			uint64_t begun;

			await_unexpected(p);
			begun = pair_ns();
			figure_growth_unexpected(p, round * BATCH);
			v[round] = (double)(pair_ns() - begun) / BATCH;
		}
		pair_barrier(p);
		if (p->id == 0)
			send_some(p, round * BATCH, BATCH);
	}
	if (p->id == 1)
		found.ns = median(v, ROUNDS);
	else
		for (int i = 0; i < 1000; i++)
			CHECK(xport_poll(p->x, NULL, 0) >= 0);
}

/* ---- operations in flight ---- */

static __attribute__((noinline)) void figure_growth_flight(struct pair *p)
{
	static const struct xport_opt local = {.size = sizeof(local), .flags = XPORT_LOCAL};
	unsigned open = 0;

	for (unsigned i = 0; i < count; i++)
		CHECK(xport_put(p->ep, p->mem[0], 8, p->rkey[0], 64 + i % 1024 * 8, &local) == XPORT_OK);
	for (open = count; open > 0;)
		open -= reap(p->x, open);
}

/* COUNT puts are posted, and then reaped. */
static void flight(struct pair *p)
{
	double v[ROUNDS];

	if (p->id == 0) {
		for (int round = 0; round < ROUNDS; round++) {
			uint64_t ns = 0;
			unsigned n = 0;

			/* About as long, however many. */
			for (; n < FLIGHT / 4 || n < count; n += count) {
				uint64_t begun = pair_ns();

				figure_growth_flight(p);
				ns += pair_ns() - begun;
			}
			v[round] = (double)ns / n;
		}
		found.ns = median(v, ROUNDS);
	}
	pair_barrier(p);
}

/* ---- idle endpoints ---- */

static double resident_kib(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long pages = 0;

	CHECK(f != NULL && fscanf(f, "%*d %ld", &pages) == 1);
	fclose(f);
	return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1024;
}

static __attribute__((noinline)) void figure_growth_idle(struct pair *p)
{
	for (int i = 0; i < 1000; i++)
		CHECK(xport_poll(p->x, NULL, 0) == 0);
}

/* Process 0 has COUNT endpoints besides the one, and polls. */
static void idle(struct pair *p)
{
	xport_ep **eps = calloc(count, sizeof(*eps));
	double v[ROUNDS], before = resident_kib();

	CHECK(eps != NULL);
	connect_more(p, eps, count);
	found.kib = (resident_kib() - before) / count;
	for (int round = 0; p->id == 0 && round < ROUNDS; round++) {
		uint64_t begun = pair_ns();

		figure_growth_idle(p);
		v[round] = (double)(pair_ns() - begun) / 1000;
	}
	found.ns = p->id == 0 ? median(v, ROUNDS) : 0;
	pair_barrier(p);
	/* Each is told by the other, which it must be polled for. */
	for (unsigned i = 0; i < count; i++)
		xport_ep_destroy(eps[i]);
	free(eps);
}

/* ---- the table ---- */

struct line {
	const char *name, *what;
	void (*work)(struct pair *p);
	int judge; /* the process that found it */
	unsigned counts[5];
};

static const struct line lines[] = {
	{"posted", "message matched, receives posted", posted, 1, {64, 1000, MANY}},
	{"masked", "message matched, receives with a mask beside it", masked, 1, {1, 64, 4096}},
	{"unexpected", "receive matched, messages waiting", unexpected, 1, {64, 1000, MANY}},
	{"flight", "put `XPORT_LOCAL` and poll, in flight", flight, 0, {64, 1024, 8192, FLIGHT}},
	{"idle", "poll that finds nothing, endpoints", idle, 0, {1, 10, 100, PEERS}},
};
static const struct line *line;

static void work(struct pair *p)
{
	line->work(p);
	if (p->id == line->judge) {
		p->sh->result[0] = (unsigned long long)(found.ns * 1000);
		p->sh->result[1] = (unsigned long long)(found.kib * 1000);
	}
	pair_barrier(p);
	found = (struct figure){(double)p->sh->result[0] / 1000, (double)p->sh->result[1] / 1000};
}

static int measure(const char *provider)
{
	static double first;

	if (pair_run(provider, NULL, NULL, work) != 0)
		return 1;
	first = count == line->counts[0] ? found.ns : first;
	printf("| %s: %s | %u | %.1f ns | %.2f |", provider, line->what, count, found.ns, found.ns / first);
	if (found.kib > 0)
		printf(" %.1f KiB resident each, the stack's included |", found.kib);
	printf("\n");
	found = (struct figure){0};
	return 0;
}

int main(int argc, char **argv)
{
	const char *provider = argc > 1 ? argv[1] : "ucx:tcp";

	setvbuf(stdout, NULL, _IOLBF, 0);
	setenv("XPORT_QUEUE_DEPTH", "131072", 1);
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		line = &lines[i];
		if (argc > 2 && strcmp(argv[2], line->name) != 0)
			continue;
		for (size_t k = 0; k < 5 && line->counts[k] != 0; k++) {
			count = line->counts[k];
			if ((argc <= 3 || (unsigned)atoi(argv[3]) == count) && measure(provider) != 0)
				return 1;
		}
	}
	return 0;
}
