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
 * A new second is sent every slot of the range, one at a time, and from the same moment on every write.  Of two records for a slot it
 * keeps the one with the higher version, so that it does not matter which of them comes first.  When it has answered for
 * all slots, it has all that was ever acknowledged, and the keeper is told.
 */
#ifndef STORAGE_PRIMARY_H
#define STORAGE_PRIMARY_H

#include "table.h"
#include "watch.h"

struct sp_write {
	struct sp_write *next;
	uint64_t request; /* of the client */
	bool removes;
	struct sr_record record; /* key, value */
};

/* The work on one range.  At most one call of each kind is out; 0: none. */
struct sp_range {
	uint64_t term;                 /* of the map that this work is for */
	struct sp_write *first, **last; /* the first is in progress, if `busy` */
	bool busy;
	uint32_t slot;           /* where it is going to be */
	struct sr_record record; /* what */
	uint64_t copy;           /* the call that copies it to the second */
	uint32_t next;           /* filling the second: the slot that is next; SR_SLOTS: the keeper is next; above: all is done */
	uint64_t fill;           /* the call for that */
	int64_t again_ms;        /* a call has failed: none is made until then */
	bool is_late;            /* planted: what was acknowledged before it was copied, */
	struct sw_copy late;     /* and is, when the next write comes */
};

struct sp_primary {
	uint32_t id;
	struct st_table *table;
	struct sm_watch watch;
	xport_ep *to[SW_NODES]; /* the nodes to which it copies */
	uint64_t to_life[SW_NODES];
	struct sp_range range[SR_RANGES];
	unsigned writes; /* of clients, that wait */
	bool early; /* planted: acknowledges before it copies */
};

void sp_open(struct sp_primary *p, uint32_t id, struct st_table *table, struct sh_hub *hub);

/* A client's store.put or store.delete. */
void sp_write(struct sp_primary *p, const struct xport_rpc_event *request, bool removes);
/* A call that has ended. */
void sp_done(struct sp_primary *p, const struct xport_rpc_event *e);
/* There is another map. */
void sp_map(struct sp_primary *p);
/* An endpoint has ended. */
void sp_lost(struct sp_primary *p, const xport_ep *ep);
/* Connects to the seconds, and repeats what has failed.  Returns true if it must be called again in a moment. */
bool sp_continue(struct sp_primary *p);

#endif
