/* SPDX-License-Identifier: BSD-3-Clause */
#include "graph.h"

#include <string.h>

static bool joined(const char *name, int a, int b, int n)
{
	if (strcmp(name, "star") == 0)
		return a == 0;
	if (strcmp(name, "ring") == 0)
		return b - a == 1 || (a == 0 && b == n - 1);
	if (strcmp(name, "tree") == 0)
		return a == (b - 1) / 2;
	return true;
}

/* Outwards from each target. */
static void route(struct graph *g, int to)
{
	int queue[G_MAX], head = 0, tail = 0;

	for (int i = 0; i < g->n; i++)
		g->next[i][to] = -1;
	g->next[to][to] = to;
	queue[tail++] = to;
	while (head < tail) {
		int at = queue[head++];

		for (int i = 0; i < g->n; i++) {
			if (!g->edge[i][at] || g->next[i][to] >= 0)
				continue;
			g->next[i][to] = at;
			queue[tail++] = i;
		}
	}
}

bool graph_make(struct graph *g, const char *name, int n)
{
	if (strcmp(name, "star") != 0 && strcmp(name, "ring") != 0 && strcmp(name, "mesh") != 0 &&
	    strcmp(name, "tree") != 0)
		return false;
	memset(g, 0, sizeof(*g));
	g->name = name;
	g->n = n;
	for (int a = 0; a < n; a++) {
		for (int b = a + 1; b < n; b++)
			g->edge[a][b] = g->edge[b][a] = joined(name, a, b, n);
	}
	for (int to = 0; to < n; to++)
		route(g, to);
	return true;
}

int graph_victims(const struct graph *g, int stage, int victim[2])
{
	bool tree = strcmp(g->name, "tree") == 0;

	if (stage == 0) { /* two who are no neighbours, or leaves; in the tree one with children, and a leaf */
		victim[0] = tree ? 2 : 3;
		victim[1] = tree ? g->n - 1 : g->n / 2 + 1;
		return 2;
	}
	victim[0] = 0; /* the centre of the star, the root of the tree, anybody in a ring or a mesh */
	return 1;
}
