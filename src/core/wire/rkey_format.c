/* SPDX-License-Identifier: BSD-3-Clause */
/* rkey_format.c - packed keys: encoded, and decoded with every bound checked. */
#include "core/wire/rkey_format.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bytes.h"

enum { KEY_MAGIC = 0x314b5058 /* "XPK1" */, KEY_VERSION = 2, KEY_CHECK = 8 };

size_t xpi_key_encode(const struct xpi_key *k, void *buf, size_t len)
{
	struct xpi_wr w = xpi_wr(buf, len);

	xpi_wr_u32(&w, KEY_MAGIC);
	xpi_wr_u16(&w, XPI_RKEY_LEN);
	xpi_wr_u16(&w, KEY_VERSION);
	xpi_wr_u64(&w, k->incarnation);
	xpi_wr_u64(&w, k->region);
	xpi_wr_u64(&w, k->base);
	xpi_wr_u64(&w, k->length);
	xpi_wr_u32(&w, k->rights);
	if (w.bad || w.left < KEY_CHECK)
		return 0;
	xpi_wr_u64(&w, XXH64(buf, XPI_RKEY_LEN - KEY_CHECK, KEY_MAGIC));
	return XPI_RKEY_LEN;
}

bool xpi_key_decode(const void *buf, size_t len, struct xpi_key *k)
{
	struct xpi_rd r = xpi_rd(buf, len);

	memset(k, 0, sizeof(*k));
	if (len != XPI_RKEY_LEN)
		return false;
	if (xpi_rd_u32(&r) != KEY_MAGIC || xpi_rd_u16(&r) != XPI_RKEY_LEN || xpi_rd_u16(&r) != KEY_VERSION)
		return false;
	k->incarnation = xpi_rd_u64(&r);
	k->region = xpi_rd_u64(&r);
	k->base = xpi_rd_u64(&r);
	k->length = xpi_rd_u64(&r);
	k->rights = xpi_rd_u32(&r);
	return xpi_rd_u64(&r) == XXH64(buf, XPI_RKEY_LEN - KEY_CHECK, KEY_MAGIC);
}
