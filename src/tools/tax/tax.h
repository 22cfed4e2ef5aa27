/* SPDX-License-Identifier: BSD-3-Clause */
/* tax.h - the parts of xport_perf --tax, see tax.c. */
#ifndef XPORT_TOOLS_TAX_TAX_H
#define XPORT_TOOLS_TAX_TAX_H

#include "tools/perf.h"
#include "tools/tax/pair.h"

/* One kind of work, done both ways. */
struct tax_kind {
	const char *test;
	enum perf_measure measure;
	uint64_t size;
	size_t direct;  /* which pair_work of struct pair_baseline, unless there is `read` */
	pair_work ours;
	unsigned parts; /* what a step's time is divided by */
	bool passive;   /* the target only makes progress */
	const char *in; /* what sleeps, where somebody does */
	const char *than; /* what the direct side calls, if not the stack's usual */
	pair_work read;   /* of no stack */
	bool sliding;     /* WINDOW in flight all the time, not one window after the other */
};

/* What came out for one kind, in ns. */
struct tax_result {
	const struct tax_kind *kind;
	double direct, ours, ratio[3]; /* medians; of the ratios of pairs the quartiles */
	long accepted, pairs;
	long regimes[3];               /* accepted pairs with the cores near, apart, far */
};

/* ---- tax_batch.c: how one kind is measured ---- */

/* Pairs of batches in turn, until so many have counted or the time is over; false if there are too few for a figure. */
bool tax_batches(struct pair *p, const struct tax_kind *k, long pairs, uint64_t limit_ns, struct tax_result *r);
/* Short batches, of which each step is looked at: direct and ours are minima and medians. */
void tax_steps(struct pair *p, const struct tax_kind *k, long pairs, double least[2], double median[2]);

/* ---- instructions.c: for callgrind ---- */

extern long tax_calls;
void tax_count(struct pair *p);

#endif
