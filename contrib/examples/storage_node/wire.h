/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wire.h - the messages between nodes, clients and the keeper, and the map that the keeper broadcasts.
 *
 * A message is a head of 40 bytes, little-endian, and a body: a record (record.h), a map, or a node's hello.
 */
#ifndef STORAGE_WIRE_H
#define STORAGE_WIRE_H

#include "record.h"

enum { SW_NODES = 8, SW_RKEY = 512, SW_ADDRESS = 64, SW_BODY = 8192, SW_HEAD = 40, SW_MESSAGE = SW_HEAD + SW_BODY };

enum sw_type {
	SW_HELLO = 1,  /* node to keeper: number = its id, body = a member */
	SW_WATCH,      /* client to keeper: send me the map, now and whenever it changes */
	SW_MAP,        /* keeper to all */
	SW_PUT,        /* client to primary: body = a record with key and value */
	SW_DELETE,     /* the same, with a key alone */
	SW_ANSWER,     /* to the client: its number, and a status */
	SW_COPY,       /* primary to second: body = the record for this slot; status 1: one of those that fill it */
	SW_COPIED,     /* second to primary: the same head */
	SW_DIE,        /* keeper to node, planned: die now, between two messages */
	SW_FILLED,     /* primary to keeper: the second of this range has it all */
	SW_TYPES
};

enum sw_status { SW_OK = 0, SW_FILLING = 1, SW_NOT_FOUND = 2, SW_NOT_PRIMARY = 3, SW_FULL = 4 };

struct sw_message {
	uint32_t type, status, range, slot, body_len;
	uint64_t term, number; /* of a COPY: the record's version */
	uint8_t body[SW_BODY];
};

/* How a process is reached. */
struct sw_member {
	uint64_t life; /* of how many with this id it is; 0: there is none */
	uint32_t rkey_len;
	char address[SW_ADDRESS];
	uint8_t rkey[SW_RKEY];
};

enum { SW_NONE = 0xffffffff };

struct sw_range {
	uint64_t term;             /* changes whenever one of the others does, but for `filled` */
	uint32_t primary, second;  /* nodes, or SW_NONE.  A range without a primary has lost both */
	uint32_t filled;           /* 1: the second has all that was ever acknowledged */
};

struct sw_map {
	uint64_t epoch; /* changes with every map */
	uint32_t nodes;
	struct sw_member keeper; /* whose region holds the epoch */
	struct sw_member node[SW_NODES];
	struct sw_range range[SR_RANGES];
};

/* Returns how many bytes it takes; `to` has SW_MESSAGE. */
size_t sw_write(const struct sw_message *m, uint8_t *to);
/* False: it is no message. */
bool sw_read(struct sw_message *m, const uint8_t *from, size_t len);

/* Fills in the body. */
void sw_put_member(struct sw_message *m, const struct sw_member *member);
bool sw_get_member(const struct sw_message *m, struct sw_member *member);
void sw_put_map(struct sw_message *m, const struct sw_map *map);
bool sw_get_map(const struct sw_message *m, struct sw_map *map);

#endif
