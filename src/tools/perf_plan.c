/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_plan.c - makes cases from options: each test, measured in each way, with each size that it supports. */
#include <stdio.h>

#include "tools/perf.h"

enum { CACHE_LINE = 64 };

/* What is measured where nobody says a size. */
static const uint64_t standard[PERF_MEASURES] = {8, 65536, 8};

static uint64_t stride_of(uint64_t size)
{
	uint64_t n = size > 0 ? size : 1;

	return (n + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

/* As many as are in flight at a time, as long as they fit into PERF_MEMORY; but one. */
static uint32_t slots_of(const struct perf_options *o, const struct perf_test *test, uint64_t stride)
{
	uint64_t fit = PERF_MEMORY / stride / (uint64_t)o->endpoints;

	if (test->local || fit == 0)
		return 1;
	return fit < o->window ? (uint32_t)fit : o->window;
}

/* A rate and a bandwidth are the same run, once. */
static bool already(const struct perf_plan *plan, const struct perf_test *test, enum perf_measure measure,
                    uint64_t size)
{
	for (int i = 0; i < plan->ncases; i++) {
		const struct perf_case *c = &plan->cases[i];

		if (c->test == test && c->size == size && (c->measure == PERF_LATENCY) == (measure == PERF_LATENCY))
			return true;
	}
	return false;
}

static bool plan_add(struct perf_plan *plan, const struct perf_options *o, const struct perf_test *test,
                     enum perf_measure measure, uint64_t size)
{
	struct perf_case *c = &plan->cases[plan->ncases];
	uint64_t span;

	if (!perf_test_takes(test, measure, size) || already(plan, test, measure, size))
		return false;
	if (plan->ncases == PERF_CASES)
		return false;
	*c = (struct perf_case){test, measure, size, stride_of(size), 0};
	c->slots = slots_of(o, test, c->stride);
	span = c->stride * c->slots * (uint64_t)o->endpoints;
	plan->span = span > plan->span ? span : plan->span;
	plan->ncases++;
	return true;
}

/* Whether the test has at least one case. */
static bool add_test(struct perf_plan *plan, const struct perf_options *o, const struct perf_test *test)
{
	int before = plan->ncases;

	for (int m = 0; m < PERF_MEASURES; m++) {
		/* Of atomics there is one, under its better name. */
		if (test->atomic && m == PERF_BANDWIDTH && o->measures[PERF_RATE])
			continue;
		for (int i = 0; o->measures[m] && i < o->nsizes; i++)
			plan_add(plan, o, test, m, o->sizes[i]);
		if (o->measures[m] && o->nsizes == 0)
			plan_add(plan, o, test, m, test->atomic ? 8 : standard[m]);
	}
	return plan->ncases > before;
}

bool perf_plan_make(struct perf_plan *plan, const struct perf_options *o, char *text, size_t len)
{
	plan->ncases = 0;
	plan->span = 1;
	for (int t = 0; t < PERF_TESTS; t++) {
		if (!o->tests[t] || add_test(plan, o, &perf_tests[t]))
			continue;
		snprintf(text, len, "cannot measure %s: %s", perf_tests[t].name,
		         perf_tests[t].atomic  ? "an atomic has 4 or 8 bytes"
		         : perf_tests[t].local ? "only its latency (-m latency) can be measured, with 1 byte or more"
		                               : "its size must be at least 1 byte");
		return false;
	}
	return true;
}
