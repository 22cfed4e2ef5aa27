/* SPDX-License-Identifier: BSD-3-Clause */
/* rates.h - what topology_rates measures, and the picture of it. */
#ifndef TOPOLOGY_RATES_H
#define TOPOLOGY_RATES_H

#include <stdint.h>

#include "graph.h"

/* All members as they are: one put after the other, then as many as possible; then with one slow, then with it dead. */
enum rates_phase { RATES_LATENCY, RATES_ALL, RATES_SLOW, RATES_DEAD, RATES_PHASES };

/* From each member to each of its neighbours. */
struct rates {
	double mb_per_s[RATES_PHASES][G_MAX][G_MAX];
	double us[G_MAX][G_MAX]; /* the median */
};

/* Bandwidth of all edges, in both directions; `without` -1: of all, else of those that do not end at this member. */
double rates_sum(const struct rates *r, const struct graph *g, enum rates_phase phase, int without);
void rates_print(const struct rates *r, const struct graph *g, const char *backend, int victim);
/* An SVG; false: it cannot be written, errno has the reason. */
bool rates_draw(const struct rates *r, const struct graph *g, const char *backend, const char *file);

#endif
