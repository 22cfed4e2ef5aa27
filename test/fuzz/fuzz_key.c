/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_key.c - packed keys: a key that decodes encodes to the same bytes. Each input is tried as it is, and then with a
 * correct beginning and checksum, because no input would guess these.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/object/mr.h"
#include "core/object/rkey.h"
#include "core/wire/rkey_format.h"
#include "fuzz/fuzz.h"

enum { HEAD = 8, SUM = 8 };

static void put_le(uint8_t *p, uint64_t v, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static bool try_one(const uint8_t *block, size_t len)
{
	uint8_t again[XPI_RKEY_LEN];
	struct xpi_key k;

	if (!xpi_key_decode(block, len, &k))
		return false;
	FUZZ_CHECK(xpi_key_encode(&k, again, sizeof(again)) == len);
	FUZZ_CHECK(memcmp(again, block, len) == 0);
	return true;
}

/* Magic, length, version and checksum as xpi_key_encode writes them. */
static void mend(uint8_t *block, size_t len)
{
	const struct xpi_key any = {.length = 1};
	uint8_t good[XPI_RKEY_LEN];
	uint32_t magic;

	FUZZ_CHECK(xpi_key_encode(&any, good, sizeof(good)) > 0);
	memcpy(block, good, HEAD);
	magic = (uint32_t)good[0] | (uint32_t)good[1] << 8 | (uint32_t)good[2] << 16 | (uint32_t)good[3] << 24;
	put_le(block + len - SUM, XXH64(block, len - SUM, magic), SUM);
}

int FUZZ_ENTRY(key)(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	size_t len;
	uint8_t *block = fuzz_block(&in, size, &len);

	try_one(block, len);
	if (len >= HEAD + SUM) {
		mend(block, len);
		try_one(block, len);
	}
	free(block);
	return 0;
}
