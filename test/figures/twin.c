/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * twin - the same work by direct calls of UCX, libfabric or libibverbs and through libxport, between the same two processes.
 *
 *   twin time PROVIDER [PAIRS [PART]]   batches of 1 to 2 ms in turn, direct and ours; prints medians, and of the ratios
 *                                  of neighbouring batches the median and the quartiles; only of what has PART in its
 *                                  name
 *   twin steps PROVIDER [PAIRS [PART]]  the same in batches of 16 steps; prints the minimum and the median of all steps,
 *                                  for where single steps take long and batches are never left alone
 *   twin count PROVIDER [N]        for callgrind: calls each function named figure_* N times, and does all waiting
 *                                  outside of them
 */
#include <sched.h>
#include <string.h>
#include <sys/resource.h>

#include "twin.h"

static const struct xport_opt local = {.size = sizeof(local), .flags = XPORT_LOCAL};
long twin_argument;
static const char *part = "";

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

/* ---- time ---- */

/* Messages that have arrived or are still to come, over all batches: the other's first may come before ours has begun. */
static uint64_t due_direct;
static unsigned due_ours;

/* When each step began, where single steps are looked at. */
struct steps {
	long n, max;
	uint64_t *at;
};
static struct steps steps;

static inline void tick(void)
{
	if (steps.n < steps.max)
		steps.at[steps.n++] = pair_ns();
}

/* Half of a round trip of an 8-byte message. */
static void direct_pingpong(struct pair *p, long n)
{
	uint64_t word = 1;

	for (long i = 0; i < n; i++) {
		tick();
		due_direct++;
		if (p->id == 0)
			direct_send(p, &word, sizeof(word));
		while (p->arrived < due_direct)
			direct_progress(p);
		if (p->id == 1)
			direct_send(p, &word, sizeof(word));
	}
	direct_wait(p);
}

static void our_pingpong(struct pair *p, long n)
{
	uint64_t word = 1;

	for (long i = 0; i < n; i++) {
		tick();
		due_ours++;
		if (p->id == 0)
			post_send(p, &word);
		while ((int)(received - due_ours) < 0)
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
	uint64_t word = 1;

	for (long i = 0; i < n; i++) {
		tick();
		due_direct += p->id == 0 ? 1 : WINDOW;
		for (int k = 0; p->id == 0 && k < WINDOW; k++)
			direct_send(p, &word, sizeof(word));
		while (p->arrived < due_direct)
			direct_progress(p);
		if (p->id == 1)
			direct_send(p, &word, sizeof(word));
	}
	direct_wait(p);
}

static void our_rate(struct pair *p, long n)
{
	uint64_t word = 1;

	for (long i = 0; i < n; i++) {
		tick();
		due_ours += p->id == 0 ? 1 : WINDOW;
		for (int k = 0; p->id == 0 && k < WINDOW; k++)
			post_send(p, &word);
		while ((int)(received - due_ours) < 0)
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
		tick();
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
		tick();
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

enum { LONG_WINDOW = 16 };

/* Windows of 64 puts, each followed by a flush. */
static void direct_putrate(struct pair *p, long n)
{
	uint64_t word = 1;

	for (long i = 0; p->id == 0 && i < n; i++) {
		tick();
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
		tick();
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

/* Gets of 8 bytes, one at a time. */
static void direct_getone(struct pair *p, long n)
{
	for (long i = 0; p->id == 0 && i < n; i++) {
		tick();
		direct_get(p, p->direct_mem + 1024, 8, 1024);
		direct_wait(p);
	}
}

static void our_getone(struct pair *p, long n)
{
	const struct xport_opt opt = {.size = sizeof(opt), .mr = p->mr[0]};

	for (long i = 0; p->id == 0 && i < n; i++) {
		tick();
		CHECK(xport_get(p->ep, p->mem[0] + 1024, 8, p->rkey[0], 1024, &opt) == XPORT_OK);
		sends_open++;
		while (sends_open > 0)
			reap(p);
	}
}

/* Windows of long puts, until the network is done with each. */
static void direct_bandwidth(struct pair *p, long n)
{
	for (long i = 0; p->id == 0 && i < n; i++) {
		tick();
		for (int k = 0; k < LONG_WINDOW; k++)
			direct_put(p, p->direct_mem + LARGE, LARGE, LARGE);
		direct_wait(p);
	}
}

static void our_bandwidth(struct pair *p, long n)
{
	const struct xport_opt opt = {.size = sizeof(opt), .flags = XPORT_LOCAL, .mr = p->mr[0]};

	for (long i = 0; p->id == 0 && i < n; i++) {
		tick();
		for (int k = 0; k < LONG_WINDOW; k++)
			CHECK(xport_put(p->ep, p->mem[0] + LARGE, LARGE, p->rkey[0], LARGE, &opt) == XPORT_OK);
		sends_open += LONG_WINDOW;
		while (sends_open > 0)
			reap(p);
	}
}

/* Windows of puts of 1 MiB, until all are placed. */
static void direct_placed(struct pair *p, long n)
{
	for (long i = 0; p->id == 0 && i < n; i++) {
		tick();
		for (uint64_t k = 0; k < LONG_WINDOW; k++)
			direct_put(p, p->direct_mem + k * HUGE % MEM, HUGE, k * HUGE % MEM);
		direct_flush(p);
	}
}

static void our_placed(struct pair *p, long n)
{
	const struct xport_opt opt = {.size = sizeof(opt), .flags = XPORT_QUIET, .mr = p->mr[0]};

	for (long i = 0; p->id == 0 && i < n; i++) {
		tick();
		for (uint64_t k = 0; k < LONG_WINDOW; k++) {
			uint64_t at = k * HUGE % MEM;

			CHECK(xport_put(p->ep, p->mem[0] + at, HUGE, p->rkey[0], at, &opt) == XPORT_OK);
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
	unsigned per; /* messages a step; 0: a latency, half of a step; 1: a latency, a whole one */
	bool passive; /* the target only makes progress */
} kinds[] = {
	{"latency, send 8 B", direct_pingpong, our_pingpong, 0, false},
	{"latency, put 8 B", direct_putpong, our_putpong, 0, false},
	{"rate, send 8 B", direct_rate, our_rate, WINDOW, false},
	{"rate, put LOCAL, flush", direct_putrate, our_putrate, WINDOW, true},
	{"rate, put QUIET, flush", direct_putrate, our_quietrate, WINDOW, true},
	{"latency, get 8 B", direct_getone, our_getone, 1, true},
	{"rate, put LOCAL 64 KiB", direct_bandwidth, our_bandwidth, LONG_WINDOW, true},
	{"rate, put 1 MiB, flush", direct_placed, our_placed, LONG_WINDOW, true},
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
	double *v = calloc((size_t)twin_argument * 3, sizeof(*v)), *direct = v, *ours = v + twin_argument,
	       *ratio = ours + twin_argument;
	uint64_t until = pair_ns() + SECONDS * UINT64_C(1000000000);
	long n = calibrate(p, k), good = 0, all = 0;
	bool latency = k->per <= 1;
	double scale, q[3];

	CHECK(v != NULL);
	for (; agree(p, good < twin_argument && pair_ns() < until); all++) {
		bool quiet = true;

		direct[good] = batch(p, k, false, n, &quiet);
		ours[good] = batch(p, k, true, n, &quiet);
		ratio[good] = latency ? ours[good] / direct[good] : direct[good] / ours[good];
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
		       latency ? (q[1] <= 1.10 ? "within 1.10" : "ABOVE 1.10")
		               : (q[1] >= 0.90 ? "within 0.90" : "BELOW 0.90"));
	}
	free(v);
}

enum { STEPS = 16 };

/* Appends how long each step of a batch took; the last one's end is not known. */
static long durations(double *v, long n, double scale)
{
	for (long i = 1; i < steps.n; i++)
		v[n++] = (double)(steps.at[i] - steps.at[i - 1]) / scale;
	steps.n = 0;
	return n;
}

static void look_at_steps(struct pair *p, const struct kind *k)
{
	double *v = calloc((size_t)twin_argument * STEPS * 2, sizeof(*v)), *direct = v,
	       *ours = v + twin_argument * STEPS;
	double scale = k->per == 0 ? 2.0 : k->per, d[2], o[2];
	bool quiet, latency = k->per <= 1;
	long ndirect = 0, nours = 0;

	steps.at = calloc(STEPS, sizeof(*steps.at));
	CHECK(v != NULL && steps.at != NULL);
	steps.max = STEPS;
	for (long i = 0; i < twin_argument; i++) {
		batch(p, k, false, STEPS, &quiet);
		ndirect = durations(direct, ndirect, scale);
		batch(p, k, true, STEPS, &quiet);
		nours = durations(ours, nours, scale);
	}
	for (int i = 0; p->id == 0 && i < 2; i++) {
		d[i] = quantile(direct, ndirect, 50 * i);
		o[i] = quantile(ours, nours, 50 * i);
	}
	if (p->id == 0)
		printf("%-10s %-23s least: direct %9.1f ns  ours %9.1f ns  ratio %.3f  median: direct %9.1f ns  ours "
		       "%9.1f ns  ratio %.3f\n",
		       p->provider, k->name, d[0], o[0], latency ? o[0] / d[0] : d[0] / o[0], d[1], o[1],
		       latency ? o[1] / d[1] : d[1] / o[1]);
	steps.max = 0;
	free(steps.at);
	free(v);
}

static void each(struct pair *p, void (*look)(struct pair *p, const struct kind *k))
{
	pair_pin(p);
	for (int i = 0; i < WINDOW * 2; i++)
		post_receive(p, &inbox[i % WINDOW]);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strstr(kinds[i].name, part) != NULL)
			look(p, &kinds[i]);
}

static void timing(struct pair *p)
{
	each(p, measure);
}

static void stepping(struct pair *p)
{
	each(p, look_at_steps);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*work)(struct pair *p);
	} commands[] = {{"time", timing}, {"steps", stepping}, {"count", twin_count}};

	setvbuf(stdout, NULL, _IOLBF, 0);
	twin_argument = argc > 3 ? atol(argv[3]) : 200;
	part = argc > 4 ? argv[4] : "";
	for (size_t i = 0; argc > 2 && i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			return pair_run(argv[2], commands[i].work);
	fprintf(stderr, "usage: twin time|steps PROVIDER [PAIRS [PART]]\n       twin count PROVIDER [N]\n");
	return 2;
}
