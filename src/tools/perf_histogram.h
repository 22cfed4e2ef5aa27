/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_histogram.h - counts values in little memory: exactly below PERF_HALF * 2, and above it in classes whose width
 * is at most 1/PERF_HALF of their values. So a percentile is never below the true value, and above it by less than 0.8
 * %. Minimum, maximum, sum and number are exact.
 */
#ifndef XPORT_TOOLS_PERF_HISTOGRAM_H
#define XPORT_TOOLS_PERF_HISTOGRAM_H

#include <stdint.h>

enum { PERF_HALF_BITS = 7, PERF_HALF = 1 << PERF_HALF_BITS, PERF_CLASSES = (64 - PERF_HALF_BITS + 1) * PERF_HALF };

struct perf_histogram {
	uint64_t n, least, greatest;
	double sum, squares;
	uint64_t seen[PERF_CLASSES];
};

void perf_histogram_clear(struct perf_histogram *h);
void perf_histogram_add(struct perf_histogram *h, uint64_t value);
/* Adds all of another's. */
void perf_histogram_merge(struct perf_histogram *h, const struct perf_histogram *other);
/* The least value that at least `share` (0 to 1) of all do not exceed; 0 of an empty one. */
uint64_t perf_histogram_quantile(const struct perf_histogram *h, double share);
double perf_histogram_mean(const struct perf_histogram *h);
double perf_histogram_deviation(const struct perf_histogram *h);

#endif
