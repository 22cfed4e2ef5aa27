/* SPDX-License-Identifier: BSD-3-Clause */
/* rates_show.c - a table of the edges, and a picture. */
#include "rates.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double rates_sum(const struct rates *r, const struct graph *g, enum rates_phase phase, int without)
{
	double sum = 0;

	for (int a = 0; a < g->n; a++)
		for (int b = 0; b < g->n; b++)
			if (g->edge[a][b] && a != without && b != without)
				sum += r->mb_per_s[phase][a][b];
	return sum;
}

void rates_print(const struct rates *r, const struct graph *g, const char *backend, int victim)
{
	double all = rates_sum(r, g, RATES_ALL, victim);

	printf("# %s of %d over %s: puts of 64 KiB, all edges at the same time; latency of an 8-byte put, median\n"
	       "%6s %12s %12s %12s %12s\n",
	       g->name, g->n, backend, "edge", "there[MB/s]", "back[MB/s]", "there[us]", "back[us]");
	for (int a = 0; a < g->n; a++)
		for (int b = a + 1; b < g->n; b++)
			if (g->edge[a][b])
				printf("%3d-%-2d %12.3f %12.3f %12.3f %12.3f\n", a, b, r->mb_per_s[RATES_ALL][a][b],
				       r->mb_per_s[RATES_ALL][b][a], r->us[a][b], r->us[b][a]);
	printf("sum of all edges: %.1f MB/s\n", rates_sum(r, g, RATES_ALL, -1));
	if (all > 0)
		printf("edges without member %d: %.1f MB/s; if it is slow %.1f (%.2f), if it is dead %.1f (%.2f)\n",
		       victim, all, rates_sum(r, g, RATES_SLOW, victim), rates_sum(r, g, RATES_SLOW, victim) / all,
		       rates_sum(r, g, RATES_DEAD, victim), rates_sum(r, g, RATES_DEAD, victim) / all);
	else
		printf("every edge ends at member %d\n", victim);
}

enum { SIDE = 640, RADIUS = 250, DOT = 16 };

/* The members stand in a circle; the centre of a star in the middle; those of a tree in rows. */
static void place_of(const struct graph *g, int i, double *x, double *y)
{
	bool star = strcmp(g->name, "star") == 0;
	int on_circle = star ? g->n - 1 : g->n, at = star ? i - 1 : i, row = 0, first = 0;
	double angle = 2 * 3.14159265358979 * at / on_circle;

	*x = *y = SIDE / 2.0;
	if (strcmp(g->name, "tree") == 0) {
		while (i > 2 * first)
			first = 2 * first + 1, row++;
		*x = SIDE * (i - first + 0.5) / (1 << row);
		*y = 80 + 110.0 * row;
	} else if (!star || i > 0) {
		*x += RADIUS * sin(angle);
		*y -= RADIUS * cos(angle);
	}
}

bool rates_draw(const struct rates *r, const struct graph *g, const char *backend, const char *file)
{
	FILE *f = fopen(file, "we");
	double most = 1e-9, x, y, xx, yy, both;

	if (f == NULL)
		return false;
	for (int a = 0; a < g->n; a++)
		for (int b = a + 1; b < g->n; b++)
			if (g->edge[a][b] && r->mb_per_s[RATES_ALL][a][b] + r->mb_per_s[RATES_ALL][b][a] > most)
				most = r->mb_per_s[RATES_ALL][a][b] + r->mb_per_s[RATES_ALL][b][a];
	fprintf(f,
	        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
	        "font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
	        "<text x=\"10\" y=\"20\">%s of %d over %s: MB/s of each edge, both directions; in sum %.0f</text>\n",
	        SIDE, SIDE, g->name, g->n, backend, rates_sum(r, g, RATES_ALL, -1));
	for (int a = 0; a < g->n; a++)
		for (int b = a + 1; b < g->n; b++) {
			if (!g->edge[a][b])
				continue;
			both = r->mb_per_s[RATES_ALL][a][b] + r->mb_per_s[RATES_ALL][b][a];
			place_of(g, a, &x, &y);
			place_of(g, b, &xx, &yy);
			fprintf(f,
			        "<line x1=\"%.0f\" y1=\"%.0f\" x2=\"%.0f\" y2=\"%.0f\" stroke=\"steelblue\" "
			        "stroke-width=\"%.1f\"/>\n<text x=\"%.0f\" y=\"%.0f\">%.0f</text>\n",
			        x, y, xx, yy, 0.5 + 5.5 * both / most, x + 0.6 * (xx - x), y + 0.6 * (yy - y), both);
		}
	for (int i = 0; i < g->n; i++) {
		place_of(g, i, &x, &y);
		fprintf(f,
		        "<circle cx=\"%.0f\" cy=\"%.0f\" r=\"%d\" fill=\"white\" stroke=\"black\"/>\n"
		        "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">%d</text>\n",
		        x, y, DOT, x, y + 4, i);
	}
	fprintf(f, "</svg>\n");
	return fclose(f) == 0;
}
