/* SPDX-License-Identifier: BSD-3-Clause */
/* key_flips.c - a packed key with one bit flipped, or any two, is refused: all of them are tried. */
#include "core/mr.h"
#include "core/rkey.h"
#include "fuzz/fuzz.h"

struct flips {
	uint8_t *key; /* in a block of exactly its size */
	size_t len;
	unsigned tried, taken;
};

/* A key of a region with a native key of so many bytes. */
static struct flips packed(size_t native_len)
{
	uint8_t native[1024], buf[XPI_RKEY_MAX];
	struct xpi_key k = {.incarnation = 0x1122334455667788,
	                    .region = 0xfedcba9800000003,
	                    .base = 0x240,
	                    .length = 1 << 20,
	                    .rights = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE,
	                    .backend = "ucx",
	                    .native = native,
	                    .native_len = native_len};
	struct flips f = {0};

	for (size_t i = 0; i < sizeof(native); i++)
		native[i] = (uint8_t)(i * 37 + 11);
	f.len = xpi_key_encode(&k, buf, sizeof(buf));
	FUZZ_CHECK(f.len > 0);
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

static void flip_all(struct flips *f, int two)
{
	size_t bits = f->len * 8;

	for (size_t a = 0; a < bits; a++) {
		flip(f, a);
		try_it(f);
		for (size_t b = a + 1; two && b < bits; b++) {
			flip(f, b);
			try_it(f);
			flip(f, b);
		}
		flip(f, a);
	}
}

unsigned key_flips(unsigned *tried)
{
	static const struct {
		size_t native_len;
		int two;
	} keys[] = {{0, 1}, {16, 1}, {57, 1}, {1000, 0}};
	unsigned taken = 0;

	*tried = 0;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		struct flips f = packed(keys[i].native_len);

		flip_all(&f, keys[i].two);
		*tried += f.tried;
		taken += f.taken;
		free(f.key);
	}
	return taken;
}
