/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_csv.c - prints results as comma-separated values; a field that a row does not have is empty. */
#include "tools/perf.h"

void perf_csv_begin(void)
{
	printf("backend,test,measure,size,threads,endpoints,window,both,operations,seconds,verified,"
	       "least_ns,p50_ns,p90_ns,p99_ns,p99_9_ns,greatest_ns,average_ns,deviation_ns,"
	       "bytes_per_second,bytes_per_second_peak,operations_per_second\n");
}

static void csv_latency(const struct perf_histogram *h)
{
	static const double shares[] = {0.5, 0.9, 0.99, 0.999};

	printf(",%.1f", (double)h->least / PERF_UNITS);
	for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++)
		printf(",%.1f", (double)perf_histogram_quantile(h, shares[i]) / PERF_UNITS);
	printf(",%.1f,%.1f,%.1f,,,\n", (double)h->greatest / PERF_UNITS, perf_histogram_mean(h) / PERF_UNITS,
	       perf_histogram_deviation(h) / PERF_UNITS);
}

static void csv_rate(const struct perf_result *r, double per_second, double size)
{
	printf(",,,,,,,,,%.0f,", per_second * size);
	if (r->peak > 0)
		printf("%.0f", r->peak * size);
	printf(",%.1f\n", per_second);
}

void perf_csv_row(const struct perf_about *about, const struct perf_result *r)
{
	const struct perf_options *o = about->options;
	const char *backend = json_string_value(json_object_get(about->client, "backend"));
	double per_second = (double)r->operations / r->seconds, size = (double)r->is->size;

	printf("%s,%s,%s,%llu,%d,%d,%u,%d,%llu,%.6f,%d", backend != NULL ? backend : "?", r->is->test->name,
	       perf_measure_names[r->is->measure], (unsigned long long)r->is->size, o->threads, o->endpoints,
	       (unsigned)o->window, o->both, (unsigned long long)r->operations, r->seconds, r->verified);
	if (r->is->measure == PERF_LATENCY)
		csv_latency(&r->latency);
	else
		csv_rate(r, per_second, size);
}
