/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * record.h - a key with its value, as it lies in a slot of registered memory and travels in messages.
 *
 * All of it is little-endian, SR_SLOT bytes, of which a reader takes the whole by one get:
 *
 *	0   sum of what follows, as far as the value goes
 *	8   version of the slot: each write to it has a higher one
 *	16  state, length of the key, length of the value
 *	32  key
 *	96  value
 *
 * A get promises no order of bytes, so that the sum alone says whether what was read was ever there at once.
 */
#ifndef STORAGE_RECORD_H
#define STORAGE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SR_KEY = 64, SR_VALUE = 928, SR_HEAD = 32, SR_SLOT = SR_HEAD + SR_KEY + SR_VALUE };

/* A table: the ranges are what is given to nodes; a key lies in one of SR_PROBE slots of its range. */
enum { SR_RANGES = 16, SR_SLOTS = 128, SR_PROBE = 16, SR_TABLE = SR_RANGES * SR_SLOTS * SR_SLOT };

enum sr_state { SR_NEVER = 0, SR_HELD = 1, SR_DELETED = 2 };

struct sr_record {
	uint64_t version;
	uint32_t state; /* enum sr_state */
	uint32_t key_len, value_len;
	uint8_t key[SR_KEY], value[SR_VALUE];
};

/* Where a key belongs: its range, and the first slot to look at. */
void sr_place(const void *key, size_t len, uint32_t *range, uint32_t *home);
/* The slot that is looked at after `tries` others. */
uint32_t sr_probe(uint32_t home, uint32_t tries);
/* Where a slot lies in the region. */
uint64_t sr_offset(uint32_t range, uint32_t slot);

bool sr_has_key(const struct sr_record *r, const void *key, size_t len);

void sr_write(const struct sr_record *r, uint8_t *slot);
/* False: it is no record, as when it was read while it was written. */
bool sr_read(struct sr_record *r, const uint8_t *slot);
/* The same without looking at the sum, for a test that shows what that is for. */
bool sr_read_torn(struct sr_record *r, const uint8_t *slot);

#endif
