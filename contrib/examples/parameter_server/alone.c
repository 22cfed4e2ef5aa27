/* SPDX-License-Identifier: BSD-3-Clause */
/* alone.c - the same run in one process: what the others must come to. */
#include <stdio.h>
#include <stdlib.h>

#include "net.h"
#include "parameter_server.h"

static void run(const struct ps_options *o, const struct ps_rows *all, double *weights, void *sums)
{
	for (uint64_t step = 0; step < o->plan.steps; step++)
		if (o->fixed) {
			ps_gradient(all, weights, sums);
			ps_step(&o->plan, sums, weights);
		} else {
			ps_gradient_double(all, weights, sums);
			ps_step_double(&o->plan, sums, weights);
		}
}

int ps_alone(const struct ps_options *o)
{
	double *weights = calloc(o->plan.parameters, sizeof(*weights));
	void *sums = calloc(o->plan.parameters, 8); /* of either kind */
	struct ps_rows all = {.x = NULL};
	bool ok = weights != NULL && sums != NULL && ps_rows_make(&all, &o->plan, 0, o->plan.rows);

	if (!ok) {
		fprintf(stderr, "parameter_server: out of memory for the data set: take fewer --rows\n");
	} else {
		run(o, &all, weights, sums);
		ok = ps_report(&o->plan, weights) && fflush(stdout) == 0;
	}
	ps_rows_free(&all);
	free(weights);
	free(sums);
	return ok ? PS_EXIT_DONE : PS_EXIT_FAILED;
}
