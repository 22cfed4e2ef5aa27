/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wire.h - the methods of the keeper and of the nodes, and the map.
 *
 * A payload is one of the structs below, as it lies in memory: libxport connects no processes of different byte order, and
 * the structs have no gaps.
 *
 *	at the keeper   called by   payload          reply
 *	store.join      a node      sw_join          empty: it is a part of the store now
 *	store.map       all         an epoch         sw_map, as soon as there is a later epoch than that
 *	store.filled    a primary   sw_filled        empty: the second of this range may become primary
 *
 *	at a node
 *	store.put       a client    a record         enum sw_answer, a byte
 *	store.delete    a client    a key, a record  the same
 *	store.copy      a primary   sw_copy          empty: the record is in the slot
 *	store.die       the keeper  empty            none: the node dies (tests)
 *
 * A record is SR_SLOT bytes (record.h).  XPORT_ERR_INVALID means that the payload makes no sense here, or is outdated.
 */
#ifndef STORAGE_WIRE_H
#define STORAGE_WIRE_H

#include "record.h"

enum { SW_NODES = 8, SW_RKEY = 308, SW_ADDRESS = 64, SW_NONE = 0xffffffff };

enum sw_answer { SW_OK = 0, SW_NOT_FOUND = 1, SW_NOT_PRIMARY = 2, SW_FULL = 3 };

/* How a process is reached. */
struct sw_member {
	uint64_t life; /* number of the process, counted for each node; 0: none */
	uint32_t rkey_len;
	char address[SW_ADDRESS];
	uint8_t rkey[SW_RKEY];
};

struct sw_join {
	uint64_t node;
	struct sw_member member;
};

struct sw_range {
	uint64_t term;            /* changes whenever the primary or the second does */
	uint32_t primary, second; /* nodes, or SW_NONE.  A range without a primary has lost both */
	uint64_t filled;          /* 1: the second has all that was ever acknowledged */
};

struct sw_map {
	uint64_t epoch, nodes;   /* each map has another epoch */
	struct sw_member keeper; /* its region holds the epoch */
	struct sw_member node[SW_NODES];
	struct sw_range range[SR_RANGES];
};

struct sw_filled {
	uint64_t term, range;
};

struct sw_copy {
	uint64_t term;
	uint32_t range, slot;
	uint8_t record[SR_SLOT];
};

/* The longest payload that every network takes. */
_Static_assert(sizeof(struct sw_map) <= 3900, "the map must fit into one reply");
_Static_assert(sizeof(struct sw_member) == 12 + SW_ADDRESS + SW_RKEY, "a struct with gaps");
_Static_assert(sizeof(struct sw_copy) == 16 + SR_SLOT, "a struct with gaps");

#endif
