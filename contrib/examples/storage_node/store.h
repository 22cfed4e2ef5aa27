/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store.h - the client's side: put, get and delete by key.
 *
 * A get is one-sided.  The key's hash says which slots of which range, the map which node; the slots are read there by
 * xport_get, and the sum of each says whether it was read whole.  Then the epoch is read in the keeper's memory: if it is
 * still that of the map, the node was the range's primary after the slots had been read, and the value was the latest that
 * anybody had been told of.  If not, all of it is done again by the new map.
 *
 * Writes are calls to the primary.  One that was not answered, since its node died, is made again to the next
 * primary: it may take effect twice, which shows if somebody else has written the same key in between.
 */
#ifndef STORAGE_STORE_H
#define STORAGE_STORE_H

#include "watch.h"

enum ss_status {
	SS_OK = 0,
	SS_NOT_FOUND = 1,
	SS_FULL = 2,     /* no slot is left for such a key */
	SS_LOST = 3,     /* both nodes of its range have died */
	SS_TIMEOUT = 4,  /* the store did not answer */
	SS_INVALID = 5,  /* a key or value that is too long, or empty */
	SS_STATUSES
};

struct ss_node {
	xport_ep *ep;
	uint64_t life;
	xport_rkey *rkey;
};

struct ss_store {
	struct sh_hub *hub;
	xport_rkey *keeper_rkey;
	xport_versioned_peer *epoch;
	struct sm_watch watch;
	struct ss_node node[SW_NODES];
	xport_mr *mr; /* where slots are read to */
	uint8_t *slot;
	uint64_t write; /* the call of the write in progress; 0: it has ended */
	bool answered;
	uint8_t answer; /* enum sw_answer */
	bool plain;      /* planted: takes whatever it reads */
	uint64_t again, torn; /* things done again for another map, slots read while they were written */
};

struct ss_store *ss_open(const char *name, const char *keeper);
void ss_close(struct ss_store *s);

const char *ss_text(enum ss_status status);

enum ss_status ss_put(struct ss_store *s, const void *key, size_t key_len, const void *value, size_t value_len);
enum ss_status ss_delete(struct ss_store *s, const void *key, size_t key_len);
/* The value goes to record->value. */
enum ss_status ss_get(struct ss_store *s, const void *key, size_t key_len, struct sr_record *record);
/* Calls back for each key that there is, in no order, and not all at one moment. */
enum ss_status ss_list(struct ss_store *s, void (*each)(void *arg, const struct sr_record *record), void *arg);

#endif
