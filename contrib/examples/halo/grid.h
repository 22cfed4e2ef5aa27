/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * grid.h - a part of a 2-D grid, and one step of the computation.
 *
 * The grid is cut into columns and rows of blocks, one for each rank.  A block has a frame of one cell: the halo, which
 * holds the neighbours' cells.  At the edge of the whole grid it stays 0.  There are two layers; a step reads one and
 * writes the other.
 */
#ifndef HALO_GRID_H
#define HALO_GRID_H

#include <stddef.h>
#include <stdint.h>

enum direction { NORTH, SOUTH, WEST, EAST, DIRECTIONS };

struct shape {
	int width, height; /* cells of the whole grid */
	int columns, rows; /* of blocks */
};

struct block {
	int x, y; /* of the first cell in the whole grid */
	int nx, ny;
};

/* Blocks for so many processes, as square as their number allows. */
struct shape shape_of(int width, int height, int processes);
struct block block_of(const struct shape *s, int rank);
/* -1: the grid ends there. */
int neighbour_of(const struct shape *s, int rank, enum direction d);

/* Cells of a layer, with the halo, and where a cell is: 0 and nx + 1, or ny + 1, are the halo. */
size_t block_cells(const struct block *b);
size_t block_at(const struct block *b, int x, int y);

void block_start(const struct block *b, double *layer);
void block_step(const struct block *b, const double *from, double *to);
/* A sum over the cells that does not depend on how the grid is cut, and differs if one bit of one cell does. */
uint64_t block_bits(const struct block *b, const struct shape *s, const double *layer);

#endif
