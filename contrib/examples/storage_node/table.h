/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * table.h - a node's slots, in registered memory that anybody may read.  One thread writes them.
 */
#ifndef STORAGE_TABLE_H
#define STORAGE_TABLE_H

#include "hub.h"

struct st_table {
	xport_mr *mr;
	uint8_t *slots;
	bool slow; /* planted: it takes its time in the middle of each write */
};

bool st_table_open(struct st_table *t, struct sh_hub *hub);
void st_table_close(struct st_table *t);

void st_table_read(const struct st_table *t, uint32_t range, uint32_t slot, struct sr_record *r);
/* From here on readers see it. */
void st_table_write(struct st_table *t, uint32_t range, uint32_t slot, const struct sr_record *r);

/* The key's slot, with what is in it; without one, if `room`, the one that it may have.  False: there is none. */
bool st_table_find(const struct st_table *t, const struct sr_record *key, bool room, uint32_t *slot,
                   struct sr_record *now);

#endif
