/* SPDX-License-Identifier: BSD-3-Clause */
/* sum.c - checksums, by xxHash. */
#include "tools/cp/sum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

struct cp_sum *cp_sum_new(void)
{
	return (struct cp_sum *)XXH3_createState();
}

void cp_sum_free(struct cp_sum *s)
{
	XXH3_freeState((XXH3_state_t *)s);
}

void cp_sum_begin(struct cp_sum *s, uint64_t offset)
{
	XXH3_128bits_reset_withSeed((XXH3_state_t *)s, offset);
}

void cp_sum_more(struct cp_sum *s, const void *data, size_t len)
{
	XXH3_128bits_update((XXH3_state_t *)s, data, len);
}

void cp_sum_end(struct cp_sum *s, uint64_t sum[2])
{
	XXH128_hash_t h = XXH3_128bits_digest((XXH3_state_t *)s);

	sum[0] = h.low64;
	sum[1] = h.high64;
}

void cp_sum_block(const void *data, size_t len, uint64_t offset, uint64_t sum[2])
{
	XXH128_hash_t h = XXH3_128bits_withSeed(data, len, offset);

	sum[0] = h.low64;
	sum[1] = h.high64;
}

void cp_sum_hole(uint64_t offset, uint64_t length, uint64_t sum[2])
{
	uint64_t place[2] = {offset, length};

	cp_sum_block(place, sizeof(place), ~offset, sum);
}

void cp_sum_add(uint64_t all[2], const uint64_t sum[2])
{
	all[0] += sum[0];
	all[1] += sum[1];
}
