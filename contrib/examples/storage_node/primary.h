/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * primary.h - what a node does for the ranges that are its own: it carries out writes, one at a time in each range.
 *
 * The order of a write is the whole of the promise:
 *
 *	1. the record, with a version higher than that of its slot, goes to the second node
 *	2. the second has written it, and says so
 *	3. the primary writes it to its own slot, where readers find it
 *	4. the client is told
 *
 * So whatever a client was told, or has read, is in both nodes.  If the second is gone, the write waits at 2 until a map
 * says so: then there is no second, and the primary goes on alone; or a new one, to which the write goes anew.
 *
 * A new second is sent every slot of the range, and from the same moment on every write.  Of two records for a slot it
 * keeps the one with the higher version, so that it does not matter which of them comes first.  When it has answered for
 * all slots, it has all that was ever acknowledged, and the keeper is told.
 */
#ifndef STORAGE_PRIMARY_H
#define STORAGE_PRIMARY_H

#include "table.h"

struct sp_write {
	struct sp_write *next;
	struct sh_peer *client; /* NULL: gone */
	uint64_t number;
	bool removes;
	struct sr_record record; /* key, value */
};

/* The work on one range. */
struct sp_range {
	struct sp_write *first, **last; /* the first is under way, if `busy` */
	bool busy;
	uint32_t slot;           /* where it is going to be */
	struct sr_record record; /* what */
	uint32_t next, sent, answered; /* filling the second: slot to be looked at, records */
	bool told;
	bool is_late;           /* planted: what was acknowledged before it was copied, */
	struct sw_message late; /* and is, when the next write comes */
};

struct sp_primary {
	uint32_t id;
	struct st_table *table;
	struct sw_map map;
	struct sh_peer *to[SW_NODES]; /* the nodes to which it copies */
	uint64_t to_life[SW_NODES];
	struct sh_peer *keeper;
	struct sp_range range[SR_RANGES];
	bool early; /* planted: acknowledges before it copies */
};

void sp_open(struct sp_primary *p, uint32_t id, struct st_table *table);

/* A PUT or DELETE of a client's. */
void sp_write(struct sp_primary *p, struct sh_peer *client, const struct sw_message *m);
/* A second's answer. */
void sp_copied(struct sp_primary *p, const struct sw_message *m);
/* A newer map. */
void sp_map(struct sp_primary *p, const struct sw_map *map);
/* A peer is gone, client or second. */
void sp_lost(struct sp_primary *p, struct sh_peer *peer);
/* Connects to whom it has to copy, and is to be called again in a moment if that was in vain: true. */
bool sp_connect(struct sp_primary *p, struct sh_hub *hub);

#endif
