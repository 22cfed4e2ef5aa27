/* SPDX-License-Identifier: BSD-3-Clause */
/* nearest.h - finds the known name that is nearest to an unknown one. */
#ifndef XPI_BASE_NEAREST_H
#define XPI_BASE_NEAREST_H

struct xpi_nearest {
	const char *wanted;
	const char *name; /* the nearest so far; NULL: none near enough to be meant */
	unsigned distance;
};

static inline struct xpi_nearest xpi_nearest(const char *wanted)
{
	struct xpi_nearest n = {wanted, (const char *)0, 0};

	return n;
}

/* Considers `name`.  Near enough is at most three changed letters, and not most of the word.  Case does not count. */
void xpi_nearest_look(struct xpi_nearest *n, const char *name);

#endif
