/* SPDX-License-Identifier: BSD-3-Clause */
/* graph.h - the neighbours of each process, and which neighbour leads to which process. */
#ifndef TOPOLOGY_GRAPH_H
#define TOPOLOGY_GRAPH_H

#include <stdbool.h>

enum { G_MAX = 32 };

struct graph {
	const char *name;
	int n;
	bool edge[G_MAX][G_MAX];
	int next[G_MAX][G_MAX]; /* the neighbour of the first on a shortest way to the second; -1: there is none */
};

/* "star", "ring", "mesh" or "tree" of `n`; false: there is no such one. */
bool graph_make(struct graph *g, const char *name, int n);
/* Those who are killed, in two stages: how many, and who. */
int graph_victims(const struct graph *g, int stage, int victim[2]);

#endif
