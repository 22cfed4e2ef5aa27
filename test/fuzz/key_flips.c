/* SPDX-License-Identifier: BSD-3-Clause */
/* key_flips.c - a packed key with any one or any two bits flipped is refused: all are tried. */
#include "core/object/mr.h"
#include "core/object/rkey.h"
#include "core/wire/rkey_format.h"
#include "fuzz/fuzz.h"

struct flips {
	uint8_t *key; /* in a block of exactly its size */
	size_t len;
	unsigned tried, taken;
};

static struct flips packed(void)
{
	uint8_t buf[XPI_RKEY_LEN];
	struct xpi_key k = {.incarnation = 0x1122334455667788,
	                    .region = 0xfedcba9800000003,
	                    .base = 0x240,
	                    .length = 1 << 20,
	                    .rights = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE};
	struct flips f = {0};

	f.len = xpi_key_encode(&k, buf, sizeof(buf));
	FUZZ_CHECK(f.len == XPI_RKEY_LEN);
	f.key = malloc(f.len);
	FUZZ_CHECK(f.key != NULL);
	memcpy(f.key, buf, f.len);
	FUZZ_CHECK(xpi_key_decode(f.key, f.len, &k));
	return f;
}

static void flip(struct flips *f, size_t bit)
{
	f->key[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

static void try_it(struct flips *f)
{
	struct xpi_key k;

	f->tried++;
	f->taken += xpi_key_decode(f->key, f->len, &k);
}

static void flip_all(struct flips *f)
{
	size_t bits = f->len * 8;

	for (size_t a = 0; a < bits; a++) {
		flip(f, a);
		try_it(f);
		for (size_t b = a + 1; b < bits; b++) {
			flip(f, b);
			try_it(f);
			flip(f, b);
		}
		flip(f, a);
	}
}

unsigned key_flips(unsigned *tried)
{
	struct flips f = packed();

	flip_all(&f);
	free(f.key);
	*tried = f.tried;
	return f.taken;
}
