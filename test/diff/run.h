/* SPDX-License-Identifier: BSD-3-Clause */
/* run.h - the program of a seed (the scenario's parameter) as a scenario of the conformance suite's harness. */
#ifndef DIFF_RUN_H
#define DIFF_RUN_H

#include "conform/scenario.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct h_scenario diff_scenario;
/* How many phases a program has; a step is an operation, receives come on top. */
extern int diff_phases;

#ifdef __cplusplus
}
#endif

#endif
