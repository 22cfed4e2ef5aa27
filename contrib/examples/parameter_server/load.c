/* SPDX-License-Identifier: BSD-3-Clause */
/* load.c - gradients and parameters of the load mode. */
#include "load.h"

/* Differs from one parameter to the next, so that one in the wrong place is seen. */
static int64_t part(uint64_t rows, uint64_t i)
{
	return (int64_t)(rows * (i % 1009 + 1));
}

void ps_load_gradient(const struct ps_plan *p, uint64_t rows, int64_t *sums)
{
	for (uint64_t i = 0; i < p->parameters; i++)
		sums[i] = part(rows, i);
}

void ps_load_weights(const struct ps_plan *p, uint64_t step, double *weights)
{
	for (uint64_t i = 0; i < p->parameters; i++)
		weights[i] = (double)step;
}

bool ps_load_sums_right(const struct ps_plan *p, const int64_t *sums)
{
	for (uint64_t i = 0; i < p->parameters; i++)
		if (sums[i] != part(p->rows, i))
			return false;
	return true;
}

bool ps_load_weights_right(const struct ps_plan *p, uint64_t step, const double *weights)
{
	for (uint64_t i = 0; i < p->parameters; i++)
		if (weights[i] != (double)step)
			return false;
	return true;
}
