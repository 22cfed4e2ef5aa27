/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tax_batch.c - batches of the same work, direct and through libxport in turn. A host may move the cores of a virtual
 * machine; everything that two processes do together then takes several times as long. So the latency of a cache line
 * between them is measured around each batch. A pair counts only if that latency stayed in its class and nobody was
 * preempted.
 */
#include <stdlib.h>
#include <sys/resource.h>

#include "tools/tax/ours.h"
#include "tools/tax/tax.h"

enum { BATCH_NS = 2000000, STEPS = 16, ENOUGH = 5 };

static long preempted(void)
{
	struct rusage u;

	CHECK(getrusage(RUSAGE_SELF, &u) == 0);
	return u.ru_nivcsw;
}

static pair_work work_of(const struct pair *p, const struct tax_kind *k, bool ours)
{
	return ours ? k->ours : k->read != NULL ? k->read : *(const pair_work *)((const char *)p->baseline + k->direct);
}

/*
 * One batch; returns its nanoseconds.  The target of one-sided work makes progress until the initiator says enough.
 * *quiet becomes false at the initiator if either process had to give its core to somebody else meanwhile.
 */
static double batch(struct pair *p, const struct tax_kind *k, bool ours, long n, bool *quiet)
{
	uint64_t from;
	long before;

	pair_barrier(p);
	if (p->id == 0)
		atomic_store(&p->sh->done, false);
	pair_barrier(p);
	before = preempted();
	from = pair_ns();
	work_of(p, k, ours)(p, n);
	from = pair_ns() - from;
	if (p->id == 0)
		atomic_store(&p->sh->done, true);
	while (k->passive && !atomic_load(&p->sh->done)) {
		if (ours)
			tax_reap(p);
		else
			p->baseline->progress(p);
	}
	atomic_store(&p->sh->result[p->id], preempted() != before);
	pair_barrier(p);
	*quiet = *quiet && !atomic_load(&p->sh->result[0]) && !atomic_load(&p->sh->result[1]);
	return (double)from;
}

/* 0: near, one cache shared; 1: apart; 2: far. */
static int regime(struct pair *p)
{
	double ns = pair_probe(p);

	return ns < 90 ? 0 : ns < 400 ? 1 : 2;
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

/* How many steps of one side take long enough without disturbance. */
static long calibrate(struct pair *p, const struct tax_kind *k, bool ours)
{
	for (long n = 1;; n *= 2) {
		double best = 1e12;

		for (int i = 0; i < 6; i++) {
			bool quiet = true;
			double ns = batch(p, k, ours, n, &quiet);

			best = ns < best ? ns : best;
		}
		if (agree(p, best >= BATCH_NS))
			return n;
	}
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

/* The three figures of each pair that counted. */
struct pairs {
	double *direct, *ours, *ratio;
};

/* One pair; whether it counts, and in which regime. */
static bool one_pair(struct pair *p, const struct tax_kind *k, const long n[2], double ns[2], int *where)
{
	int before = regime(p), between, after;
	bool quiet = true;

	ns[0] = batch(p, k, false, n[0], &quiet);
	between = regime(p);
	ns[1] = batch(p, k, true, n[1], &quiet);
	after = regime(p);
	*where = before;
	return quiet && before == between && between == after;
}

static void tax_batch_take(const struct tax_kind *k, const long n[2], const double ns[2], struct pairs *v,
                           struct tax_result *r, int where)
{
	double direct = ns[0] / (double)n[0], ours = ns[1] / (double)n[1];
	long i = r->accepted++;

	v->direct[i] = direct / k->parts;
	v->ours[i] = ours / k->parts;
	v->ratio[i] = k->measure == PERF_LATENCY ? ours / direct : direct / ours;
	r->regimes[where]++;
}

bool tax_batches(struct pair *p, const struct tax_kind *k, long pairs, uint64_t limit_ns, struct tax_result *r)
{
	double *all = calloc((size_t)pairs * 3, sizeof(*all)), ns[2];
	struct pairs v = {all, all + pairs, all + 2 * pairs};
	uint64_t until = pair_ns() + limit_ns;
	long n[2];
	int where;

	CHECK(all != NULL);
	*r = (struct tax_result){.kind = k};
	for (int ours = 0; ours < 2; ours++)
		n[ours] = calibrate(p, k, ours);
	for (; agree(p, r->accepted < pairs && pair_ns() < until); r->pairs++)
		if (agree(p, one_pair(p, k, n, ns, &where)))
			tax_batch_take(k, n, ns, &v, r, where);
	if (r->accepted >= ENOUGH) {
		r->direct = quantile(v.direct, r->accepted, 50);
		r->ours = quantile(v.ours, r->accepted, 50);
		for (int i = 0; i < 3; i++)
			r->ratio[i] = quantile(v.ratio, r->accepted, 25 * (i + 1));
	}
	free(all);
	return r->accepted >= ENOUGH;
}

/* ---- single steps ---- */

/* Appends how long each step of a batch took; the last one's end is not known. */
static long durations(struct pair *p, double *v, long n, double parts)
{
	for (long i = 1; i < p->steps.n; i++)
		v[n++] = (double)(p->steps.at[i] - p->steps.at[i - 1]) / parts;
	p->steps.n = 0;
	return n;
}

void tax_steps(struct pair *p, const struct tax_kind *k, long pairs, double least[2], double median[2])
{
	double *v[2] = {calloc((size_t)pairs * STEPS, sizeof(double)), calloc((size_t)pairs * STEPS, sizeof(double))};
	long n[2] = {0, 0};
	bool quiet = true; /* nobody asks */

	p->steps = (struct pair_steps){.max = STEPS, .at = calloc(STEPS, sizeof(*p->steps.at))};
	CHECK(v[0] != NULL && v[1] != NULL && p->steps.at != NULL);
	for (long i = 0; i < pairs; i++) {
		for (int ours = 0; ours < 2; ours++) {
			batch(p, k, ours, STEPS, &quiet);
			n[ours] = durations(p, v[ours], n[ours], k->parts);
		}
	}
	for (int ours = 0; ours < 2; ours++) {
		/* The target of one-sided work has no steps. */
		least[ours] = n[ours] > 0 ? quantile(v[ours], n[ours], 0) : 0;
		median[ours] = n[ours] > 0 ? quantile(v[ours], n[ours], 50) : 0;
		free(v[ours]);
	}
	free(p->steps.at);
	p->steps = (struct pair_steps){.max = 0};
}
