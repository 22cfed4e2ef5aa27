/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_out.c - passes each complete result to the output. */
#include "tools/perf.h"

void perf_out_begin(struct perf_outcome *out)
{
	const struct perf_options *o = out->about.options;

	out->results = json_array();
	out->whole = out->results != NULL && out->about.client != NULL;
	if (o->csv)
		perf_csv_begin();
	else if (!o->json)
		perf_table_begin(&out->about);
	/* Who looks on sees that it has begun. */
	fflush(stdout);
}

void perf_out_row(struct perf_outcome *out, const struct perf_result *r)
{
	const struct perf_options *o = out->about.options;

	if (o->csv)
		perf_csv_row(&out->about, r);
	else if (!o->json)
		perf_table_row(&out->about, r);
	fflush(stdout);
	out->whole = json_array_append_new(out->results, perf_json_row(r)) == 0 && out->whole;
}

bool perf_out_end(struct perf_outcome *out)
{
	const struct perf_options *o = out->about.options;
	json_t *whole = out->whole ? perf_json_whole(&out->about, out->results) : NULL;
	char text[PERF_TEXT] = "";
	bool good = whole != NULL;

	if (!good)
		snprintf(text, sizeof(text), "out of memory for the results");
	if (good && o->json && !perf_json_write(whole, stdout)) {
		snprintf(text, sizeof(text), "the JSON cannot be written");
		good = false;
	}
	good = good && (o->plot == NULL || perf_plot_write(o->plot, whole, text, sizeof(text)));
	if (!good)
		fprintf(stderr, "xport_perf: %s\n", text);
	json_decref(whole);
	return good;
}
