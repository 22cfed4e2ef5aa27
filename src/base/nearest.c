/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/nearest.h"

#include <string.h>

enum { LONGEST = 64, FARTHEST = 3 };

static unsigned char lower(char c)
{
	return (unsigned char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
	unsigned m = a < b ? a : b;

	return m < c ? m : c;
}

/* How many letters must be inserted, left out or changed: one row of the usual table at a time. */
static unsigned distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
	unsigned row[LONGEST + 1];

	for (size_t j = 0; j <= b_len; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; i <= a_len; i++) {
		unsigned diagonal = row[0];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= b_len; j++) {
			unsigned above = row[j];

			row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (lower(a[i - 1]) != lower(b[j - 1])));
			diagonal = above;
		}
	}
	return row[b_len];
}

void xpi_nearest_look(struct xpi_nearest *n, const char *name)
{
	size_t wanted_len = strlen(n->wanted), len = strlen(name);
	unsigned d;

	if (wanted_len > LONGEST || len > LONGEST)
		return;
	d = distance(n->wanted, wanted_len, name, len);
	if (d > FARTHEST || 2 * d > wanted_len + 1)
		return;
	if (n->name == NULL || d < n->distance) {
		n->name = name;
		n->distance = d;
	}
}
