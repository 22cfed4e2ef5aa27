/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model.h - what is learned: logistic regression by gradient descent, over rows that a seed makes.
 *
 * Any row can be made by itself, so each process makes those that it is given and no data travel.
 *
 * What workers add up are integers: the part of each row, in units of 2^-32.  Sums of integers are the same in whatever
 * order and groups they are made, so a run gives the same bits with any number of workers, over any network, by either
 * way of pushing, and also if a worker dies and others take over its rows.  The rounding of a row is at most 2^-33, that of
 * the mean over all rows no more, so the result is that of sums in double precision to much better than 1e-6.
 */
#ifndef PS_MODEL_H
#define PS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

/* What all processes of a run agree upon; it travels as it is. */
struct ps_plan {
	uint64_t seed, rows, features;
	uint64_t parameters; /* features and one more; with load any number */
	uint64_t steps;
	uint32_t load;       /* 1: nothing is learned, see load.h */
	uint32_t add;        /* 1: gradients are pushed by fetch-add; 0: by put and notification */
};

enum { PS_ROWS_MAX = 1000000, PS_FEATURES_MAX = 1000, PS_PARAMETERS_MAX = 1 << 26, PS_STEPS_MAX = 100000000 };

/* A plan that came from outside; false: not one that this program makes. */
bool ps_plan_sound(const struct ps_plan *p);

/* Rows of the data set, `from` to `to` - 1: features and a 1 each, and the label, 0 or 1. */
struct ps_rows {
	uint64_t from, to, width;
	double *x, *y;
};

/* Makes these rows, and frees those that were there; false: out of memory.  Zeroed memory is no rows. */
bool ps_rows_make(struct ps_rows *r, const struct ps_plan *p, uint64_t from, uint64_t to);
void ps_rows_free(struct ps_rows *r);

/* The sum of the rows' gradients, in units of 2^-32, and in double precision, one row after the other. */
void ps_gradient(const struct ps_rows *r, const double *weights, int64_t *sums);
void ps_gradient_double(const struct ps_rows *r, const double *weights, double *sums);
/* A step down the mean gradient. */
void ps_step(const struct ps_plan *p, const int64_t *sums, double *weights);
void ps_step_double(const struct ps_plan *p, const double *sums, double *weights);

/* The line that is compared: the loss over all rows, the norm of the parameters, and a sum of their bits. */
bool ps_report(const struct ps_plan *p, const double *weights);

#endif
