/* SPDX-License-Identifier: BSD-3-Clause */
/* model.c - logistic regression. */
#define XXH_INLINE_ALL
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* RATE is below 2 / L for features between -1 and 1, and few of them. */
#define RATE 1.0
#define UNIT 4294967296.0 /* 2^32; a part is at most 1, and there are at most PS_ROWS_MAX */

/* Where the true weights are found: no row has that number. */
enum { TRUTH = PS_ROWS_MAX };

bool ps_plan_sound(const struct ps_plan *p)
{
	bool sizes = p->parameters >= 1 && p->parameters <= PS_PARAMETERS_MAX && p->rows >= 1 &&
	             p->rows <= PS_ROWS_MAX && p->steps >= 1 && p->steps <= PS_STEPS_MAX;

	return sizes && p->load <= 1 && p->add <= 1 && p->features <= PS_FEATURES_MAX &&
	       (p->load == 1 || p->parameters == p->features + 1);
}

/* ---- data ---- */

/* Between -1 and 1, from nothing but its place (the mixing of SplitMix64). */
static double number(const struct ps_plan *p, uint64_t row, uint64_t column)
{
	uint64_t z = p->seed + (row * (PS_FEATURES_MAX + 2) + column + 1) * 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	z ^= z >> 31;
	return (double)(z >> 11) / 4503599627370496.0 - 1.0;
}

static double likely(const double *x, const double *weights, uint64_t n)
{
	double sum = 0;

	for (uint64_t i = 0; i < n; i++)
		sum += x[i] * weights[i];
	return 1.0 / (1.0 + exp(-sum));
}

static void make_row(const struct ps_plan *p, const double *truth, uint64_t row, double *x, double *y)
{
	for (uint64_t i = 0; i < p->features; i++)
		x[i] = number(p, row, i);
	x[p->features] = 1.0;
	*y = (number(p, row, p->features) + 1) / 2 < likely(x, truth, p->features + 1);
}

bool ps_rows_make(struct ps_rows *r, const struct ps_plan *p, uint64_t from, uint64_t to)
{
	uint64_t width = p->features + 1, n = to - from;
	double *truth = malloc(width * sizeof(*truth));

	ps_rows_free(r);
	*r = (struct ps_rows){from, to, width, calloc(n * width + 1, sizeof(double)), calloc(n + 1, sizeof(double))};
	if (truth == NULL || r->x == NULL || r->y == NULL) {
		free(truth);
		ps_rows_free(r);
		return false;
	}
	for (uint64_t i = 0; i < width; i++)
		truth[i] = 3 * number(p, TRUTH, i);
	for (uint64_t i = 0; i < n; i++)
		make_row(p, truth, from + i, r->x + i * width, &r->y[i]);
	free(truth);
	return true;
}

void ps_rows_free(struct ps_rows *r)
{
	free(r->x);
	free(r->y);
	*r = (struct ps_rows){.x = NULL};
}

/* ---- learning ---- */

void ps_gradient(const struct ps_rows *r, const double *weights, int64_t *sums)
{
	memset(sums, 0, r->width * sizeof(*sums));
	for (uint64_t i = 0; i < r->to - r->from; i++) {
		const double *x = r->x + i * r->width;
		double error = likely(x, weights, r->width) - r->y[i];

		for (uint64_t j = 0; j < r->width; j++)
			sums[j] += llrint(error * x[j] * UNIT);
	}
}

void ps_gradient_double(const struct ps_rows *r, const double *weights, double *sums)
{
	memset(sums, 0, r->width * sizeof(*sums));
	for (uint64_t i = 0; i < r->to - r->from; i++) {
		const double *x = r->x + i * r->width;
		double error = likely(x, weights, r->width) - r->y[i];

		for (uint64_t j = 0; j < r->width; j++)
			sums[j] += error * x[j];
	}
}

void ps_step(const struct ps_plan *p, const int64_t *sums, double *weights)
{
	for (uint64_t i = 0; i < p->parameters; i++)
		weights[i] -= RATE * ((double)sums[i] / UNIT / (double)p->rows);
}

void ps_step_double(const struct ps_plan *p, const double *sums, double *weights)
{
	for (uint64_t i = 0; i < p->parameters; i++)
		weights[i] -= RATE * (sums[i] / (double)p->rows);
}

/* ---- the result ---- */

static double loss(const struct ps_rows *r, const double *weights)
{
	double sum = 0;

	for (uint64_t i = 0; i < r->to - r->from; i++) {
		double likelihood = likely(r->x + i * r->width, weights, r->width);

		sum -= log(r->y[i] != 0 ? likelihood : 1 - likelihood);
	}
	return sum / (double)(r->to - r->from);
}

bool ps_report(const struct ps_plan *p, const double *weights)
{
	size_t bytes = p->parameters * sizeof(double);
	double squares = 0, *zero = calloc(1, bytes);
	struct ps_rows all = {.x = NULL};

	if (zero == NULL || !ps_rows_make(&all, p, 0, p->rows)) {
		free(zero);
		fprintf(stderr, "parameter_server: out of memory for the data set: take fewer --rows\n");
		return false;
	}
	for (uint64_t i = 0; i < p->parameters; i++)
		squares += weights[i] * weights[i];
	printf("steps %llu before %.9f loss %.9f norm %.9f bits %016llx\n", (unsigned long long)p->steps,
	       loss(&all, zero), loss(&all, weights), sqrt(squares), (unsigned long long)XXH3_64bits(weights, bytes));
	ps_rows_free(&all);
	free(zero);
	return true;
}
