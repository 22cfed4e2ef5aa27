/* SPDX-License-Identifier: BSD-3-Clause */
#include "record.h"

#include <endian.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

void sr_place(const void *key, size_t len, uint32_t *range, uint32_t *home)
{
	uint64_t h = XXH3_64bits(key, len);

	*range = (uint32_t)(h % SR_RANGES);
	*home = (uint32_t)((h >> 32) % SR_SLOTS);
}

uint32_t sr_probe(uint32_t home, uint32_t tries)
{
	return (home + tries) % SR_SLOTS;
}

uint64_t sr_offset(uint32_t range, uint32_t slot)
{
	return ((uint64_t)range * SR_SLOTS + slot) * SR_SLOT;
}

bool sr_has_key(const struct sr_record *r, const void *key, size_t len)
{
	return r->state != SR_NEVER && r->key_len == len && memcmp(r->key, key, len) == 0;
}

static void write_u32(uint8_t *at, uint32_t v)
{
	v = htole32(v);
	memcpy(at, &v, sizeof(v));
}

static void write_u64(uint8_t *at, uint64_t v)
{
	v = htole64(v);
	memcpy(at, &v, sizeof(v));
}

static uint32_t read_u32(const uint8_t *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof(v));
	return le32toh(v);
}

static uint64_t read_u64(const uint8_t *at)
{
	uint64_t v;

	memcpy(&v, at, sizeof(v));
	return le64toh(v);
}

static uint64_t sum(const uint8_t *slot, uint32_t value_len)
{
	return XXH3_64bits(slot + 8, SR_HEAD + SR_KEY - 8 + value_len);
}

void sr_write(const struct sr_record *r, uint8_t *slot)
{
	memset(slot, 0, SR_HEAD + SR_KEY);
	write_u64(slot + 8, r->version);
	write_u32(slot + 16, r->state);
	write_u32(slot + 20, r->key_len);
	write_u32(slot + 24, r->value_len);
	memcpy(slot + SR_HEAD, r->key, r->key_len);
	memcpy(slot + SR_HEAD + SR_KEY, r->value, r->value_len);
	write_u64(slot, sum(slot, r->value_len));
}

bool sr_read_torn(struct sr_record *r, const uint8_t *slot)
{
	r->version = read_u64(slot + 8);
	r->state = read_u32(slot + 16);
	r->key_len = read_u32(slot + 20);
	r->value_len = read_u32(slot + 24);
	if (r->state > SR_DELETED || r->key_len > SR_KEY || r->value_len > SR_VALUE)
		return false;
	memcpy(r->key, slot + SR_HEAD, r->key_len);
	memcpy(r->value, slot + SR_HEAD + SR_KEY, r->value_len);
	return true;
}

bool sr_read(struct sr_record *r, const uint8_t *slot)
{
	return sr_read_torn(r, slot) && read_u64(slot) == sum(slot, r->value_len);
}
