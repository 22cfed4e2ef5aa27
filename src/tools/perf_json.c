/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_json.c - prints results and settings as JSON. doc/xport_perf.schema.json describes it; PERF_FORMAT counts versions. */
#include <string.h>
#include <time.h>

#include "tools/perf.h"

static double ns_of(uint64_t units)
{
	return (double)units / PERF_UNITS;
}

static json_t *perf_json_latency(const struct perf_result *r)
{
	const struct perf_histogram *h = &r->latency;

	return json_pack("{ss sI sf sf sf sf sf sf sf sf sf}", "of", perf_timing_text(r->is->test), "samples",
	                 (json_int_t)h->n, "least", ns_of(h->least), "average", perf_histogram_mean(h) / PERF_UNITS,
	                 "deviation", perf_histogram_deviation(h) / PERF_UNITS, "p50",
	                 ns_of(perf_histogram_quantile(h, 0.5)), "p90", ns_of(perf_histogram_quantile(h, 0.9)), "p99",
	                 ns_of(perf_histogram_quantile(h, 0.99)), "p99_9", ns_of(perf_histogram_quantile(h, 0.999)),
	                 "greatest", ns_of(h->greatest), "error_at_most", 1.0 / PERF_HALF);
}

static json_t *peak(const struct perf_result *r, double by)
{
	return r->peak > 0 ? json_real(r->peak * by) : json_null();
}

static json_t *perf_json_rate(const struct perf_result *r)
{
	double per_second = (double)r->operations / r->seconds, size = (double)r->is->size;

	return json_pack("{sf so sf so}", "operations_per_second", per_second, "operations_per_second_peak", peak(r, 1),
	                 "bytes_per_second", per_second * size, "bytes_per_second_peak", peak(r, size));
}

json_t *perf_json_row(const struct perf_result *r)
{
	bool is_latency = r->is->measure == PERF_LATENCY;

	return json_pack("{ss ss sI sI sI sf sb so}", "test", r->is->test->name, "measure",
	                 perf_measure_names[r->is->measure], "size", (json_int_t)r->is->size, "operations",
	                 (json_int_t)r->operations, "bytes", (json_int_t)r->bytes, "seconds", r->seconds, "verified",
	                 r->verified, is_latency ? "latency_ns" : "throughput",
	                 is_latency ? perf_json_latency(r) : perf_json_rate(r));
}

static json_t *command(char **argv)
{
	json_t *list = json_array();

	for (; *argv != NULL; argv++) {
		json_t *arg = json_string(*argv);

		json_array_append_new(list, arg != NULL ? arg : json_string("?"));
	}
	return list;
}

static json_t *options(const struct perf_options *o)
{
	return json_pack("{si si si sb sI sI sI sI si ss sb sb sb}", "threads", o->threads, "endpoints", o->endpoints,
	                 "window", (int)o->window, "both", o->both, "count", (json_int_t)o->count, "duration_ns",
	                 (json_int_t)o->duration_ns, "warm_up_count", (json_int_t)o->warm_count, "warm_up_ns",
	                 (json_int_t)o->warm_ns, "per_sample", (int)o->per_sample, "memory",
	                 perf_memory_names[o->memory], "verify", o->verify, "wait", o->wait, "self", o->self);
}

static json_t *date(void)
{
	time_t now = time(NULL);
	struct tm tm;
	char text[32] = "?";

	if (gmtime_r(&now, &tm) != NULL)
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
	return json_string(text);
}

json_t *perf_json_whole(const struct perf_about *about, json_t *results)
{
	return json_pack("{si ss so so so sO sO sO}", "format", PERF_FORMAT, "version", xport_version(), "date", date(),
	                 "command", command(about->options->argv), "options", options(about->options), "client",
	                 about->client, "server", about->server, "results", results);
}

json_t *perf_json_tax(const struct perf_options *o, json_t *setup, json_t *rows)
{
	return json_pack("{si ss so so sO sO}", "format", PERF_FORMAT, "version", xport_version(), "date", date(),
	                 "command", command(o->argv), "client", setup, "tax", rows);
}

bool perf_json_write(const json_t *whole, FILE *to)
{
	return json_dumpf(whole, to, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0 && putc('\n', to) != EOF &&
	       fflush(to) == 0;
}
