/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_key.c - packed keys: what decodes, encodes to the same bytes.  Each input is tried as it is, and again with the
 * beginning and the checksum made right, and then with the length of the native key, too: nobody guesses those.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/mr.h"
#include "core/rkey.h"
#include "fuzz/fuzz.h"

enum { HEAD = 8, SUM = 8 };

static void put_le(uint8_t *p, uint64_t v, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static bool try_one(const uint8_t *block, size_t len)
{
	uint8_t again[XPI_RKEY_MAX];
	struct xpi_key k;

	if (!xpi_key_decode(block, len, &k))
		return false;
	FUZZ_CHECK(strnlen(k.backend, sizeof(k.backend)) < sizeof(k.backend));
	FUZZ_CHECK(k.native_len == 0 || (k.native >= block && k.native + k.native_len <= block + len));
	FUZZ_CHECK(xpi_key_encode(&k, again, sizeof(again)) == len);
	FUZZ_CHECK(memcmp(again, block, len) == 0);
	return true;
}

/* Magic, length, version and checksum as xpi_key_encode would write them. */
static void mend(uint8_t *block, size_t len)
{
	const struct xpi_key any = {.backend = "loop"};
	uint8_t good[XPI_RKEY_MAX];
	uint32_t magic;

	FUZZ_CHECK(xpi_key_encode(&any, good, sizeof(good)) > 0);
	memcpy(block, good, HEAD);
	put_le(block + 4, len, 2);
	magic = (uint32_t)good[0] | (uint32_t)good[1] << 8 | (uint32_t)good[2] << 16 | (uint32_t)good[3] << 24;
	put_le(block + len - SUM, XXH64(block, len - SUM, magic), SUM);
}

/* The native key as long as there is room for. */
static void fit_native(uint8_t *block, size_t len)
{
	const size_t name = HEAD + 4 * 8 + 4;
	size_t at;

	if (len < name + 2)
		return;
	at = name + 2 + ((size_t)block[name] | (size_t)block[name + 1] << 8);
	if (at + 2 + SUM <= len)
		put_le(block + at, len - SUM - at - 2, 2);
}

int FUZZ_ENTRY(key)(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	size_t len;
	uint8_t *block = fuzz_block(&in, size, &len);

	try_one(block, len);
	if (len >= HEAD + SUM && len <= UINT16_MAX) {
		mend(block, len);
		try_one(block, len);
		fit_native(block, len);
		mend(block, len);
		try_one(block, len);
	}
	free(block);
	return 0;
}
