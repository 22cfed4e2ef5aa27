/* SPDX-License-Identifier: BSD-3-Clause */
/* grid.c - blocks, the five-point stencil, and the sum of the bits. */
#include "grid.h"

#include <string.h>

struct shape shape_of(int width, int height, int processes)
{
	struct shape s = {width, height, 1, processes};

	for (int c = 1; c * c <= processes; c++)
		if (processes % c == 0)
			s.columns = c;
	s.rows = processes / s.columns;
	return s;
}

struct block block_of(const struct shape *s, int rank)
{
	int c = rank % s->columns, r = rank / s->columns;
	struct block b = {.x = (int)((int64_t)s->width * c / s->columns), .y = (int)((int64_t)s->height * r / s->rows)};

	b.nx = (int)((int64_t)s->width * (c + 1) / s->columns) - b.x;
	b.ny = (int)((int64_t)s->height * (r + 1) / s->rows) - b.y;
	return b;
}

int neighbour_of(const struct shape *s, int rank, enum direction d)
{
	int c = rank % s->columns, r = rank / s->columns;

	switch (d) {
	case NORTH:
		return r > 0 ? rank - s->columns : -1;
	case SOUTH:
		return r + 1 < s->rows ? rank + s->columns : -1;
	case WEST:
		return c > 0 ? rank - 1 : -1;
	default:
		return c + 1 < s->columns ? rank + 1 : -1;
	}
}

size_t block_cells(const struct block *b)
{
	return (size_t)(b->nx + 2) * (size_t)(b->ny + 2);
}

size_t block_at(const struct block *b, int x, int y)
{
	return (size_t)y * (size_t)(b->nx + 2) + (size_t)x;
}

static uint64_t mixed(uint64_t z)
{
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

void block_start(const struct block *b, double *layer)
{
	for (int y = 1; y <= b->ny; y++)
		for (int x = 1; x <= b->nx; x++) {
			uint64_t cell = ((uint64_t)(b->y + y) << 32) + (uint64_t)(b->x + x);

			layer[block_at(b, x, y)] = (double)(mixed(cell) >> 11) * 0x1p-53;
		}
}

/* The same operations in the same order for each cell, so the same bits wherever it is computed. */
void block_step(const struct block *b, const double *from, double *to)
{
	size_t line = (size_t)(b->nx + 2);

	for (int y = 1; y <= b->ny; y++) {
		const double *at = from + block_at(b, 0, y);
		double *into = to + block_at(b, 0, y);

		for (size_t x = 1; x <= (size_t)b->nx; x++)
			into[x] = 0.25 * ((at[x - line] + at[x + line]) + (at[x - 1] + at[x + 1]));
	}
}

uint64_t block_bits(const struct block *b, const struct shape *s, const double *layer)
{
	uint64_t sum = 0, bits;

	for (int y = 1; y <= b->ny; y++)
		for (int x = 1; x <= b->nx; x++) {
			memcpy(&bits, &layer[block_at(b, x, y)], sizeof(bits));
			sum += mixed(bits ^
			             mixed((uint64_t)(b->y + y - 1) * (uint64_t)s->width + (uint64_t)(b->x + x)));
		}
	return sum;
}
