/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exchange.h - brings the edge cells of each block into the halos of its neighbours.
 *
 * Both layers of a block are one region, to which the neighbours have the key.  In each step a process writes the cells of
 * its edges, then notifies.  A neighbour is at most one step ahead, since it waits for this process's notification, so
 * two layers suffice: nobody writes into a layer that is still read.
 */
#ifndef HALO_EXCHANGE_H
#define HALO_EXCHANGE_H

#include <xport_services.h>

#include "grid.h"

/* How columns, whose cells do not lie together, are moved. */
enum way {
	BY_PUTV, /* lists of pieces, straight from the block into the halo */
	BY_GETV, /* the same, and the neighbour reads */
	BY_PUT,  /* a put for each cell */
	BY_PACK, /* packed, one put, unpacked by the neighbour */
	WAYS
};
extern const char *const way_names[WAYS];

struct side {
	int rank; /* -1: none */
	struct block block;
	xport_ep *ep;
	xport_rkey *rkey;
	uint64_t told, flushes; /* notifications that came; flushes under way */
};

struct exchange {
	xport *x;
	xport_group *group;
	struct shape shape;
	int rank;
	struct block block;
	xport_mr *mr;
	double *layer[2], *staging[2]; /* staging: columns of the neighbours, packed, for each layer: west, then east */
	double *packed[2][2];          /* mine, for each layer */
	struct side side[DIRECTIONS];
	uint64_t step;
	uint64_t gets; /* under way */
	int over;      /* peers may leave */
};

/* For the group: what its functions poll, and is not theirs, goes to `e`. */
struct xport_group_attr exchange_attr(struct exchange *e);
/* Takes part in the group; ends the program after an error, with its reason. */
void exchange_open(struct exchange *e, xport *x, xport_group *group, int width, int height);
/* The halo of layer `step` % 2 gets what the neighbours have in theirs. */
void exchange_halo(struct exchange *e, enum way way);
/* Waits until nothing is under way. */
void exchange_settle(struct exchange *e);
/* After the group's end: nobody reads or writes the block any more. */
void exchange_close(struct exchange *e);
void halo_check(int status);

#endif
