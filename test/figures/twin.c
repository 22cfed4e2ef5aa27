/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * twin - the same work by direct calls of UCX or libfabric and through libxport, between the same two processes.
 *
 *   twin time PROVIDER [PAIRS]     batches of 1 to 2 ms in turn, direct and ours; prints medians, and of the ratios of
 *                                  neighbouring batches the median and the quartiles
 *   twin count PROVIDER [N]        for callgrind: calls each function named figure_* N times, and does all waiting
 *                                  outside of them
 */
#include <sched.h>
#include <string.h>
#include <sys/resource.h>

#include "pair.h"

static const struct xport_opt local = {.size = sizeof(local), .flags = XPORT_LOCAL};
static long argument;

/* ---- through libxport ---- */

static uint64_t inbox[WINDOW];
static unsigned sends_open, received;
static uint64_t *used[2 * WINDOW]; /* receives to be posted again, once there is time */
static unsigned nused;

static void post_receive(struct pair *p, uint64_t *into)
{
	struct xport_opt opt = {.size = sizeof(opt), .context = into};

	CHECK(xport_recv(p->x, into, sizeof(*into), 5, UINT64_MAX, &opt) == XPORT_OK);
}

static void reap(struct pair *p)
{
	struct xport_completion c[16];
	int n = xport_poll(p->x, c, 16);

	CHECK(n >= 0);
	for (int i = 0; i < n; i++) {
		CHECK(c[i].status == XPORT_OK);
		if (c[i].type == XPORT_OP_RECV) {
			received++;
			used[nused++] = c[i].context;
		} else {
			sends_open--;
		}
	}
}

static void replenish(struct pair *p)
{
	while (nused > 0)
		post_receive(p, used[--nused]);
}

static void post_send(struct pair *p, const uint64_t *word)
{
	int r;

	while ((r = xport_send(p->ep, word, sizeof(*word), 5, NULL)) == XPORT_ERR_AGAIN)
		reap(p);
	CHECK(r == XPORT_OK);
	sends_open++;
}

static void post_put(struct pair *p, const uint64_t *word, uint64_t offset)
{
	int r;

	while ((r = xport_put(p->ep, word, sizeof(*word), p->rkey[0], offset, &local)) == XPORT_ERR_AGAIN)
		reap(p);
	CHECK(r == XPORT_OK);
	sends_open++;
}

/* ---- count ---- */

#define FIGURE __attribute__((noinline, noclone, used))

FIGURE static int figure_put(struct pair *p, const uint64_t *word, struct xport_completion *c)
{
	(void)c;
	return xport_put(p->ep, word, sizeof(*word), p->rkey[0], 64, &local);
}

FIGURE static int figure_poll(struct pair *p, const uint64_t *word, struct xport_completion *c)
{
	(void)word;
	return xport_poll(p->x, c, 1);
}

FIGURE static int figure_send(struct pair *p, const uint64_t *word, struct xport_completion *c)
{
	int r = xport_send(p->ep, word, sizeof(*word), 5, NULL);

	return r < 0 ? r : xport_poll(p->x, c, 1);
}

FIGURE static int figure_window(struct pair *p, const uint64_t *word, struct xport_completion *c)
{
	for (int i = 0; i < WINDOW; i++) {
		int r = xport_send(p->ep, word, sizeof(*word), 5, NULL);

		if (r < 0)
			return r;
	}
	return xport_poll(p->x, c, WINDOW);
}

FIGURE static int figure_recv(struct pair *p, uint64_t *word, struct xport_completion *c)
{
	int r = xport_recv(p->x, word, sizeof(*word), 5, UINT64_MAX, NULL);

	return r < 0 ? r : xport_poll(p->x, c, 1);
}

typedef int (*figure_fn)(struct pair *p, const uint64_t *word, struct xport_completion *c);

static void wait_ours(struct pair *p, unsigned want)
{
	struct xport_completion c[WINDOW];

	while (want > 0) {
		int n = xport_poll(p->x, c, WINDOW);

		CHECK(n >= 0);
		want -= (unsigned)n;
		sched_yield();
	}
}

static void repeat(struct pair *p, figure_fn fn, unsigned each)
{
	struct xport_completion c[WINDOW];
	uint64_t word = 1;

	for (long i = 0; i < argument; i++) {
		int n = fn(p, &word, c);

		CHECK(n >= 0);
		if (fn == figure_put)
			n = figure_poll(p, &word, c);
		CHECK(n >= 0);
		wait_ours(p, each - (unsigned)n);
		/* What the peer acknowledges meanwhile is part of a call, too; only idle waiting is not. */
		sched_yield();
	}
}

/* Lets every pool grow to what the figures use. */
enum { WARM = 20 };

static void warm(struct pair *p)
{
	uint64_t word = 1;

	for (int i = 0; i < WARM; i++) {
		for (int k = 0; k < WINDOW; k++)
			CHECK(xport_send(p->ep, &word, sizeof(word), 5, NULL) == XPORT_OK);
		wait_ours(p, WINDOW);
		CHECK(xport_put(p->ep, &word, sizeof(word), p->rkey[0], 64, &local) == XPORT_OK);
		wait_ours(p, 1);
	}
}

static void take_in(struct pair *p, long n)
{
	for (long i = 0; i < n; i++) {
		CHECK(xport_recv(p->x, inbox, sizeof(*inbox), 5, UINT64_MAX, NULL) == XPORT_OK);
		wait_ours(p, 1);
	}
}

/* The initiator calls the figures; the target takes in what comes, and its own figure is the receive. */
static void count(struct pair *p)
{
	struct xport_completion c[WINDOW];
	long n = argument * (1 + WINDOW);

	if (p->id == 0)
		warm(p);
	else
		take_in(p, WARM * WINDOW);
	pair_barrier(p);
	if (p->id == 0) {
		repeat(p, figure_put, 1);
		repeat(p, figure_send, 1);
		repeat(p, figure_window, WINDOW);
		return;
	}
	for (long i = 0; i < n; i++) {
		int r = figure_recv(p, inbox, c);

		CHECK(r >= 0);
		wait_ours(p, r == 1 ? 0 : 1);
	}
}

/* ---- time ---- */

/* Half of a round trip of an 8-byte message. */
static void direct_pingpong(struct pair *p, long n)
{
	uint64_t word = 1, want = p->arrived;

	for (long i = 0; i < n; i++) {
		want++;
		if (p->id == 0)
			direct_send(p, &word, sizeof(word));
		while (p->arrived < want)
			direct_progress(p);
		if (p->id == 1)
			direct_send(p, &word, sizeof(word));
	}
	direct_wait(p);
}

static void our_pingpong(struct pair *p, long n)
{
	uint64_t word = 1;
	unsigned want = received;

	for (long i = 0; i < n; i++) {
		want++;
		if (p->id == 0)
			post_send(p, &word);
		while ((int)(received - want) < 0)
			reap(p);
		if (p->id == 1)
			post_send(p, &word);
		replenish(p);
	}
	while (sends_open > 0)
		reap(p);
}

/* Windows of 64 messages, each answered by one. */
static void direct_rate(struct pair *p, long n)
{
	uint64_t word = 1, want = p->arrived;

	for (long i = 0; i < n; i++) {
		want += p->id == 0 ? 1 : WINDOW;
		for (int k = 0; p->id == 0 && k < WINDOW; k++)
			direct_send(p, &word, sizeof(word));
		while (p->arrived < want)
			direct_progress(p);
		if (p->id == 1)
			direct_send(p, &word, sizeof(word));
	}
	direct_wait(p);
}

static void our_rate(struct pair *p, long n)
{
	uint64_t word = 1;
	unsigned want = received;

	for (long i = 0; i < n; i++) {
		want += p->id == 0 ? 1 : WINDOW;
		for (int k = 0; p->id == 0 && k < WINDOW; k++)
			post_send(p, &word);
		while ((int)(received - want) < 0)
			reap(p);
		if (p->id == 1)
			post_send(p, &word);
		replenish(p);
	}
	while (sends_open > 0)
		reap(p);
}

/* Half of a round trip of an 8-byte put into memory that the other watches. */
static uint64_t turn_direct, turn_ours;

static void direct_putpong(struct pair *p, long n)
{
	volatile uint64_t *in = (volatile uint64_t *)(p->direct_mem + 64);

	for (long i = 0; i < n; i++) {
		turn_direct++;
		if (p->id == 0)
			direct_put(p, &turn_direct, 8, 64);
		while (*in != turn_direct)
			direct_progress(p);
		if (p->id == 1)
			direct_put(p, &turn_direct, 8, 64);
		direct_wait(p);
	}
}

static void our_putpong(struct pair *p, long n)
{
	volatile uint64_t *in = (volatile uint64_t *)(p->mem[0] + 64);

	for (long i = 0; i < n; i++) {
		turn_ours++;
		if (p->id == 0)
			post_put(p, &turn_ours, 64);
		while (*in != turn_ours)
			reap(p);
		if (p->id == 1)
			post_put(p, &turn_ours, 64);
		while (sends_open > 0)
			reap(p);
	}
}

/* Windows of 64 puts, each followed by a flush. */
static void direct_putrate(struct pair *p, long n)
{
	uint64_t word = 1;

	for (long i = 0; p->id == 0 && i < n; i++) {
		for (int k = 0; k < WINDOW; k++)
			direct_put(p, &word, 8, 4096 + (uint64_t)k * 8);
		direct_flush(p);
	}
}

static void put_windows(struct pair *p, long n, bool silent)
{
	static const struct xport_opt quiet = {.size = sizeof(quiet), .flags = XPORT_QUIET};
	uint64_t word = 1;

	for (long i = 0; p->id == 0 && i < n; i++) {
		for (int k = 0; k < WINDOW; k++) {
			uint64_t at = 4096 + (uint64_t)k * 8;

			if (!silent)
				post_put(p, &word, at);
			else
				CHECK(xport_put(p->ep, &word, 8, p->rkey[0], at, &quiet) == XPORT_OK);
		}
		CHECK(xport_flush(p->ep, NULL) == XPORT_OK);
		sends_open++;
		while (sends_open > 0)
			reap(p);
	}
}

static void our_putrate(struct pair *p, long n)
{
	put_windows(p, n, false);
}

static void our_quietrate(struct pair *p, long n)
{
	put_windows(p, n, true);
}

/* Windows of 16 puts of 1 MiB, each followed by a flush. */
enum { LARGE = 1 << 20, LARGE_WINDOW = 16 };

static void direct_bandwidth(struct pair *p, long n)
{
	for (long i = 0; p->id == 0 && i < n; i++) {
		for (int k = 0; k < LARGE_WINDOW; k++)
			direct_copy(p, LARGE, (uint64_t)k * LARGE % MEM);
		direct_flush(p);
	}
}

static void our_bandwidth(struct pair *p, long n)
{
	struct xport_opt quiet = {.size = sizeof(quiet), .flags = XPORT_QUIET, .mr = p->mr[0]};

	for (long i = 0; p->id == 0 && i < n; i++) {
		for (int k = 0; k < LARGE_WINDOW; k++) {
			uint64_t at = (uint64_t)k * LARGE % MEM;

			CHECK(xport_put(p->ep, p->mem[0] + at, LARGE, p->rkey[0], at, &quiet) == XPORT_OK);
		}
		CHECK(xport_flush(p->ep, NULL) == XPORT_OK);
		sends_open++;
		while (sends_open > 0)
			reap(p);
	}
}

static const struct kind {
	const char *name;
	void (*direct)(struct pair *p, long n), (*ours)(struct pair *p, long n);
	unsigned per; /* messages a step; 0: a latency, half of a step */
	bool passive; /* the target only makes progress */
} kinds[] = {
	{"latency, send 8 B", direct_pingpong, our_pingpong, 0, false},
	{"latency, put 8 B", direct_putpong, our_putpong, 0, false},
	{"rate, send 8 B", direct_rate, our_rate, WINDOW, false},
	{"rate, put LOCAL, flush", direct_putrate, our_putrate, WINDOW, true},
	{"rate, put QUIET, flush", direct_putrate, our_quietrate, WINDOW, true},
	{"bandwidth, put 1 MiB", direct_bandwidth, our_bandwidth, LARGE_WINDOW, true},
};

static long preempted(void)
{
	struct rusage u;

	CHECK(getrusage(RUSAGE_SELF, &u) == 0);
	return u.ru_nivcsw;
}

/*
 * One batch; returns its nanoseconds.  The target of one-sided work makes progress until the initiator says enough.
 * *quiet becomes false at the initiator if either process had to give its core to somebody else meanwhile.
 */
static double batch(struct pair *p, const struct kind *k, bool ours, long n, bool *quiet)
{
	uint64_t from;
	long before;

	pair_barrier(p);
	if (p->id == 0)
		atomic_store(&p->sh->done, false);
	pair_barrier(p);
	before = preempted();
	from = pair_ns();
	(ours ? k->ours : k->direct)(p, n);
	from = pair_ns() - from;
	if (p->id == 0)
		atomic_store(&p->sh->done, true);
	while (k->passive && !atomic_load(&p->sh->done)) {
		if (ours)
			reap(p);
		else
			direct_progress(p);
	}
	atomic_store(&p->sh->result[p->id], preempted() != before);
	pair_barrier(p);
	*quiet = *quiet && !atomic_load(&p->sh->result[0]) && !atomic_load(&p->sh->result[1]);
	return (double)from;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double quantile(double *v, long n, int percent)
{
	qsort(v, (size_t)n, sizeof(*v), compare);
	return v[(n - 1) * percent / 100];
}

/* What the initiator decides for both. */
static bool agree(struct pair *p, bool yes)
{
	if (p->id == 0)
		atomic_store(&p->sh->result[2], yes);
	pair_barrier(p);
	yes = atomic_load(&p->sh->result[2]);
	pair_barrier(p);
	return yes;
}

/* How many steps take about 1 ms without disturbance. */
static long calibrate(struct pair *p, const struct kind *k)
{
	for (long n = 1;; n *= 2) {
		double best = 1e12;

		for (int i = 0; i < 6; i++) {
			bool quiet = true;
			double ns = batch(p, k, false, n, &quiet);

			best = ns < best ? ns : best;
		}
		if (agree(p, best >= 1e6))
			return n;
	}
}

/* Only pairs of batches that nobody disturbed count; after SECONDS there are as many as there are. */
enum { SECONDS = 25, ENOUGH = 5 };

static void measure(struct pair *p, const struct kind *k)
{
	double *v = calloc((size_t)argument * 3, sizeof(*v)), *direct = v, *ours = v + argument,
	       *ratio = ours + argument;
	uint64_t until = pair_ns() + SECONDS * UINT64_C(1000000000);
	long n = calibrate(p, k), good = 0, all = 0;
	double scale, q[3];

	CHECK(v != NULL);
	for (; agree(p, good < argument && pair_ns() < until); all++) {
		bool quiet = true;

		direct[good] = batch(p, k, false, n, &quiet);
		ours[good] = batch(p, k, true, n, &quiet);
		ratio[good] = k->per == 0 ? ours[good] / direct[good] : direct[good] / ours[good];
		good += quiet ? 1 : 0;
	}
	scale = k->per == 0 ? 2.0 * (double)n : (double)n * k->per;
	if (p->id == 0 && good < ENOUGH) {
		printf("%-8s %-22s only %ld of %ld pairs of batches were undisturbed: no figure\n", p->provider,
		       k->name, good, all);
	} else if (p->id == 0) {
		for (int i = 0; i < 3; i++)
			q[i] = quantile(ratio, good, 25 * (i + 1));
		printf("%-8s %-22s direct %8.1f ns  ours %8.1f ns  ratio %.3f (%.3f to %.3f) of %ld/%ld pairs  %s\n",
		       p->provider, k->name, quantile(direct, good, 50) / scale, quantile(ours, good, 50) / scale, q[1],
		       q[0], q[2], good, all,
		       k->per == 0 ? (q[1] <= 1.10 ? "within 1.10" : "ABOVE 1.10")
		                   : (q[1] >= 0.90 ? "within 0.90" : "BELOW 0.90"));
	}
	free(v);
}

static void timing(struct pair *p)
{
	pair_pin(p);
	for (int i = 0; i < WINDOW * 2; i++)
		post_receive(p, &inbox[i % WINDOW]);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		measure(p, &kinds[i]);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc >= 3 && strcmp(argv[1], "time") == 0) {
		argument = argc > 3 ? atol(argv[3]) : 200;
		return pair_run(argv[2], timing);
	}
	if (argc >= 3 && strcmp(argv[1], "count") == 0) {
		argument = argc > 3 ? atol(argv[3]) : 200;
		return pair_run(argv[2], count);
	}
	fprintf(stderr, "usage: twin time|count PROVIDER [N]\n");
	return 2;
}
