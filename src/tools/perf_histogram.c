/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_histogram.c - see perf_histogram.h.
 *
 * The class of a value consists of the position of its highest bit and the PERF_HALF_BITS bits after it. The first two
 * powers of two share the classes 0 to 2 * PERF_HALF - 1, one value each.
 */
#include "tools/perf_histogram.h"

#include <math.h>
#include <string.h>

static unsigned class_of(uint64_t value)
{
	unsigned above;

	if (value < 2 * PERF_HALF)
		return (unsigned)value;
	above = 63 - (unsigned)__builtin_clzll(value) - PERF_HALF_BITS;
	return above * PERF_HALF + (unsigned)(value >> above);
}

/* The greatest value of a class. */
static uint64_t top_of(unsigned class)
{
	unsigned above;

	if (class < 2 * PERF_HALF)
		return class;
	above = class / PERF_HALF - 1;
	return (((uint64_t)(class - above * PERF_HALF) + 1) << above) - 1;
}

void perf_histogram_clear(struct perf_histogram *h)
{
	memset(h, 0, sizeof(*h));
	h->least = UINT64_MAX;
}

void perf_histogram_add(struct perf_histogram *h, uint64_t value)
{
	h->n++;
	h->sum += (double)value;
	h->squares += (double)value * (double)value;
	h->least = value < h->least ? value : h->least;
	h->greatest = value > h->greatest ? value : h->greatest;
	h->seen[class_of(value)]++;
}

void perf_histogram_merge(struct perf_histogram *h, const struct perf_histogram *other)
{
	h->n += other->n;
	h->sum += other->sum;
	h->squares += other->squares;
	h->least = other->least < h->least ? other->least : h->least;
	h->greatest = other->greatest > h->greatest ? other->greatest : h->greatest;
	for (unsigned i = 0; i < PERF_CLASSES; i++)
		h->seen[i] += other->seen[i];
}

uint64_t perf_histogram_quantile(const struct perf_histogram *h, double share)
{
	uint64_t rank = (uint64_t)ceil(share * (double)h->n), below = 0;

	if (h->n == 0)
		return 0;
	for (unsigned i = 0; i < PERF_CLASSES; i++) {
		below += h->seen[i];
		if (below > 0 && below >= rank)
			return top_of(i) < h->greatest ? top_of(i) : h->greatest;
	}
	return h->greatest;
}

double perf_histogram_mean(const struct perf_histogram *h)
{
	return h->n > 0 ? h->sum / (double)h->n : 0;
}

double perf_histogram_deviation(const struct perf_histogram *h)
{
	double mean = perf_histogram_mean(h), variance = h->n > 1 ? h->squares / (double)h->n - mean * mean : 0;

	return variance > 0 ? sqrt(variance) : 0;
}
