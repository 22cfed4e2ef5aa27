/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz.h - shared by the fuzz targets.
 *
 * A target is one file, fuzz_NAME.c, with one function that takes an input. For libFuzzer (fuzz.mk) it is linked alone
 * and its function has libFuzzer's name. For fuzz_replay, which `make check` runs over the corpus, all targets are
 * linked together.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef FUZZ_ALONE
#define FUZZ_ENTRY(name) LLVMFuzzerTestOneInput
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
#else
#define FUZZ_ENTRY(name) fuzz_##name
int fuzz_key(const uint8_t *data, size_t size);
int fuzz_hello(const uint8_t *data, size_t size);
int fuzz_settings(const uint8_t *data, size_t size);
int fuzz_frame(const uint8_t *data, size_t size);
int fuzz_chan(const uint8_t *data, size_t size);
int fuzz_session(const uint8_t *data, size_t size);
int fuzz_services(const uint8_t *data, size_t size);
int fuzz_ring(const uint8_t *data, size_t size);
int fuzz_cluster(const uint8_t *data, size_t size);
/* How many damaged keys were taken for good ones; must be none. */
unsigned key_flips(unsigned *tried);
/* The most operations that a peer makes an instance hold by asking and taking no answer; UINT32_MAX: without end. */
unsigned frame_floods(void);
#endif

/* Both libFuzzer and the replay show the input when a target aborts. */
#define FUZZ_CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
			abort(); \
		} \
	} while (0)

/* An instance without a thread of its own, whose log nobody reads. */
struct xport *fuzz_open(const char *backend, const char *emulate, uint32_t depth);

/* What is left of an input; past its end come zeros. */
struct fuzz_in {
	const uint8_t *p;
	size_t left;
};

static inline uint64_t fuzz_le(struct fuzz_in *in, unsigned n)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < n && in->left > 0; i++, in->left--)
		v |= (uint64_t)*in->p++ << (8 * i);
	return v;
}

static inline uint8_t fuzz_u8(struct fuzz_in *in)
{
	return (uint8_t)fuzz_le(in, 1);
}

static inline uint16_t fuzz_u16(struct fuzz_in *in)
{
	return (uint16_t)fuzz_le(in, 2);
}

/* At most `n` bytes, in a block of exactly their size, so that a look past its end is seen by a sanitizer. */
static inline uint8_t *fuzz_block(struct fuzz_in *in, size_t n, size_t *len)
{
	uint8_t *block;

	*len = n < in->left ? n : in->left;
	block = calloc(1, *len > 0 ? *len : 1);
	FUZZ_CHECK(block != NULL);
	if (*len > 0)
		memcpy(block, in->p, *len);
	in->p += *len;
	in->left -= *len;
	return block;
}

#endif
