/* SPDX-License-Identifier: BSD-3-Clause */
/* twin.h - the parts of twin, see twin.c. */
#ifndef FIGURES_TWIN_H
#define FIGURES_TWIN_H

#include "pair.h"

/* The number on the command line. */
extern long twin_argument;

/* The work of `twin count`. */
void twin_count(struct pair *p);

#endif
