/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node.h - one process of a topology.  It has an endpoint to each of its neighbours.
 *
 * Stage 0: it sends messages to everybody, by way of its neighbours, who pass them on; and puts with a notification to
 * each neighbour, who looks whether the bytes are there and says so.  Stages 1 and 2: the puts go on, while some processes
 * are killed; it must hear of the death of its dead neighbours, of nobody else's, and go on with the others.
 */
#ifndef TOPOLOGY_NODE_H
#define TOPOLOGY_NODE_H

#include <stdatomic.h>
#include <stdint.h>

#include "graph.h"

enum { MESSAGES = 3, ROUNDS = 10, STAGES = 3 };

/* What all processes share. */
struct board {
	char address[G_MAX][64];
	_Atomic int listening, connected;
	_Atomic int arrived[STAGES]; /* stage 0: who has all its messages; then: who saw what it should, and went on */
	_Atomic int go[STAGES];
	_Atomic int running[STAGES]; /* who has puts under way in this stage */
	_Atomic int through, end;    /* who looks at its peers no more; nobody does */
	_Atomic int dead[G_MAX];     /* the stage in which it is killed; 0: it lives */
	_Atomic uint64_t killed_at[STAGES];
	_Atomic uint64_t slowest_us; /* from a kill to the last LOST */
	_Atomic uint64_t messages, puts, again; /* again: connections that had to be tried again */
	_Atomic int stands; /* the log of one said that UCX's queue stands still */
	char fault[G_MAX][400];
};

/* Runs it, and ends the process: exit status 1, and the reason in board->fault, if something is wrong. */
void node_run(const struct graph *g, int rank, const char *backend, struct board *board);
uint64_t now_us(void);

#endif
