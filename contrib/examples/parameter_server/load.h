/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * load.h - the load mode: as many parameters as asked for, which all hold the number of the step, and gradients that
 * can be checked without being computed.  So that what is measured is the network, and what it carries is looked at.
 */
#ifndef PS_LOAD_H
#define PS_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "model.h"

void ps_load_gradient(const struct ps_plan *p, uint64_t rows, int64_t *sums);
void ps_load_weights(const struct ps_plan *p, uint64_t step, double *weights);
/* Whether the sums are those of all rows; whether the weights are those of the step. */
bool ps_load_sums_right(const struct ps_plan *p, const int64_t *sums);
bool ps_load_weights_right(const struct ps_plan *p, uint64_t step, const double *weights);

#endif
