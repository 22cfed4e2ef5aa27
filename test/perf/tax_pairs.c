/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tax_pairs.c - the two processes of xport_perf --tax, as threads here, must count the same pairs of batches, although
 * each measures the distance of the cores itself. Exits with 1 if they do not.
 */
#include <pthread.h>
#include <sched.h>
#include <stddef.h>

#include "tools/tax/ours.h"
#include "tools/tax/tax.h"

enum { PAIRS = 5, MOVED = 10 };

static struct pair_shared shared;

void pair_barrier(struct pair *p)
{
	unsigned mine = atomic_fetch_add(&p->sh->at[p->id], 1) + 1;

	while (atomic_load(&p->sh->at[!p->id]) < mine)
		sched_yield();
}

/* The initiator finds its core moved in the middle of each of the first pairs, the target never. */
double pair_probe(struct pair *p)
{
	static int probes;

	return p->id == 0 && probes++ < 3 * MOVED && probes % 3 == 2 ? 500 : 50;
}

void tax_reap(struct pair *p)
{
	(void)p;
}

static void work(struct pair *p, long n)
{
	(void)p;
	usleep((useconds_t)n * 1000);
}

static const struct pair_baseline baseline = {.size = sizeof(struct pair), .pingpong = work};
static const struct tax_kind kind = {.test = "send",
                                     .measure = PERF_LATENCY,
                                     .size = 8,
                                     .direct = offsetof(struct pair_baseline, pingpong),
                                     .ours = work,
                                     .parts = 1};

struct side {
	struct pair pair;
	struct tax_result result;
};

static void *count(void *arg)
{
	struct side *s = arg;

	(void)tax_batches(&s->pair, &kind, PAIRS, UINT64_C(20000000000), &s->result);
	return NULL;
}

int main(void)
{
	struct side sides[2] = {{.pair = {.sh = &shared, .id = 0, .baseline = &baseline}},
	                        {.pair = {.sh = &shared, .id = 1, .baseline = &baseline}}};
	pthread_t target;

	if (pthread_create(&target, NULL, count, &sides[1]) != 0)
		return 1;
	count(&sides[0]);
	pthread_join(target, NULL);
	printf("of %ld pairs %ld count here, %ld there\n", sides[0].result.pairs, sides[0].result.accepted,
	       sides[1].result.accepted);
	return sides[0].result.accepted != sides[1].result.accepted || sides[0].result.pairs <= MOVED;
}
