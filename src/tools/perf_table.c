/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_table.c - prints results as text, in columns like those of perftest. */
#include "tools/perf_like.h"

static const char *perf_table_text(json_t *j, const char *name)
{
	const char *s = json_string_value(json_object_get(j, name));

	return s != NULL ? s : "?";
}

static void perf_table_side(const char *who, json_t *setup)
{
	json_t *machine = json_object_get(setup, "machine");

	printf("# %s: xport_perf %s on %s, %s, kernel %s, pid %lld\n", who, perf_table_text(setup, "version"),
	       perf_table_text(machine, "host"), perf_table_text(machine, "cpu"), perf_table_text(machine, "kernel"),
	       (long long)json_integer_value(json_object_get(setup, "pid")));
}

static void length(const struct perf_options *o)
{
	if (o->count > 0)
		printf("%llu operations an endpoint", (unsigned long long)o->count);
	else
		printf("%g s each", (double)o->duration_ns / 1e9);
}

void perf_table_begin(const struct perf_about *about)
{
	const struct perf_options *o = about->options;
	json_t *c = about->client, *paths = json_object_get(c, "paths");

	perf_table_side("client", c);
	perf_table_side("server", about->server);
	printf("# over %s, %s, device %s; put %s, get %s, atomic %s, send %s\n", perf_table_text(c, "backend"),
	       perf_table_text(c, "stack"), perf_table_text(c, "device"), perf_table_text(paths, "put"),
	       perf_table_text(paths, "get"), perf_table_text(paths, "atomic"), perf_table_text(paths, "send"));
	printf("# %d thread%s, %d endpoint%s each, memory %s, window %u, %s, ", o->threads, o->threads > 1 ? "s" : "",
	       o->endpoints, o->endpoints > 1 ? "s" : "", perf_memory_names[o->memory], (unsigned)o->window,
	       o->both ? "both directions" : "one direction");
	length(o);
	printf("\n# data %s; a look at the clock takes %.0f ns\n",
	       o->verify ? "verified" : "NOT VERIFIED (--no-verify)", json_real_value(json_object_get(c, "clock_ns")));
	if (o->like != NULL)
		perf_like_begin(o);
}

static void latency_row(const struct perf_options *o, const struct perf_result *r, bool head)
{
	const struct perf_histogram *h = &r->latency;
	const double us = PERF_UNITS * 1000.0;

	if (head)
		printf("\n# %s: latency, %s%s\n %-10s %12s %11s %11s %11s %11s %11s %11s %11s %11s\n",
		       r->is->test->what, perf_timing_text(r->is->test), o->verify ? "" : "; data NOT VERIFIED",
		       "#bytes", "#iterations", "t_min[us]", "t_50[us]", "t_90[us]", "t_99[us]", "t_99.9[us]",
		       "t_max[us]", "t_avg[us]", "t_stdev[us]");
	printf(" %-10llu %12llu %11.3f %11.3f %11.3f %11.3f %11.3f %11.3f %11.3f %11.3f\n",
	       (unsigned long long)r->is->size, (unsigned long long)r->operations, (double)h->least / us,
	       (double)perf_histogram_quantile(h, 0.5) / us, (double)perf_histogram_quantile(h, 0.9) / us,
	       (double)perf_histogram_quantile(h, 0.99) / us, (double)perf_histogram_quantile(h, 0.999) / us,
	       (double)h->greatest / us, perf_histogram_mean(h) / us, perf_histogram_deviation(h) / us);
}

static void rate_row(const struct perf_options *o, const struct perf_result *r, bool head)
{
	double per_second = (double)r->operations / r->seconds, size = (double)r->is->size;
	char peak[32] = "-";

	if (r->peak > 0)
		snprintf(peak, sizeof(peak), "%.2f", r->peak * size / 1e6);
	if (head)
		printf("\n# %s: %s%s\n %-10s %12s %16s %19s %16s\n", r->is->test->what,
		       perf_measure_names[r->is->measure], o->verify ? "" : "; data NOT VERIFIED", "#bytes",
		       "#iterations", "BW peak[MB/s]", "BW average[MB/s]", "MsgRate[M/s]");
	printf(" %-10llu %12llu %16s %19.2f %16.6f\n", (unsigned long long)r->is->size,
	       (unsigned long long)r->operations, peak, per_second * size / 1e6, per_second / 1e6);
}

void perf_table_row(const struct perf_about *about, const struct perf_result *r)
{
	static const struct perf_case *last;
	bool head = last == NULL || last->test != r->is->test || last->measure != r->is->measure;

	last = r->is;
	if (about->options->like != NULL)
		perf_like_row(about->options, r);
	else if (r->is->measure == PERF_LATENCY)
		latency_row(about->options, r, head);
	else
		rate_row(about->options, r, head);
}
