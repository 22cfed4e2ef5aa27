/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wire.h - what server and workers send each other.  The structs travel as they are: libxport connects no processes of
 * different byte order, and the fields leave no gaps.  The server calls its workers (xport_rpc.h):
 *
 *   worker                                     server
 *   connects, with PS_HELLO               -->
 *                                         <--  calls worker.welcome: the plan, and the keys
 *   replies: a key to its parameters      -->
 *                                         <--  (the parameters: put and notification, value = number of the order)
 *                                         <--  calls worker.order: which rows, of which step
 *   (the parameters: versioned get)
 *   its gradient, and a notification      -->  value = number of the order
 *   replies                               -->
 *                                         <--  the next order, ... or the end
 */
#ifndef PS_WIRE_H
#define PS_WIRE_H

#include <stdint.h>

#include "model.h"

#define PS_HELLO "parameter_server 2"

#define PS_METHOD_WELCOME "worker.welcome"
#define PS_METHOD_ORDER "worker.order"

enum { PS_KEY_MAX = 1024, PS_WORKERS_MAX = 64 };

struct ps_key {
	uint32_t len;
	uint8_t bytes[PS_KEY_MAX];
};

struct ps_welcome {
	struct ps_plan plan;
	struct ps_key slot;       /* this worker's alone, for its gradient; to be written */
	struct ps_key parameters; /* a versioned object, to be read */
	struct ps_key sums;       /* all workers', to be added to */
	uint32_t rank;
};

struct ps_ready {
	struct ps_key parameters; /* to be written by the broadcast */
};

enum ps_what { PS_WORK = 1, PS_END = 2 };

struct ps_order {
	uint64_t number;   /* from 1; a step that is repeated has another one */
	uint64_t step;
	uint64_t from, to; /* rows */
	uint64_t version;  /* of the parameters, which are to be read; 0: they were broadcast */
	uint64_t what;     /* enum ps_what */
};

/* 3900 bytes: the longest payload that every network takes. */
_Static_assert(sizeof(struct ps_welcome) <= 3900, "it must fit into one call");
_Static_assert(sizeof(struct ps_welcome) == 48 + 3 * (PS_KEY_MAX + 4) + 4, "a struct with gaps");
_Static_assert(sizeof(struct ps_order) == 48, "a struct with gaps");

#endif
