/* SPDX-License-Identifier: BSD-3-Clause */
/* rkey_format.h - the bytes of a packed key. */
#ifndef XPI_CORE_WIRE_RKEY_FORMAT_H
#define XPI_CORE_WIRE_RKEY_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The length of every packed key. Native keys are not in it: the owner sends them in GRANT records (frame.h). */
enum { XPI_RKEY_LEN = 52 };

/* In the rights of a packed key, beside enum xport_rights. */
#define XPI_KEY_BY_ADAPTER (UINT32_C(1) << 31)  /* atomics are the adapter's alone */
#define XPI_KEY_BY_MESSAGES (UINT32_C(1) << 30) /* the region has no native key */
#define XPI_KEY_PART (UINT32_C(1) << 29)        /* the key is to a part of a region */

/* The base of a packed key: in the low bits those of the address, above them where the part begins in its region. */
enum { XPI_KEY_BASE_BITS = 12 };
#define XPI_KEY_BASE_MASK ((UINT64_C(1) << XPI_KEY_BASE_BITS) - 1)
#define XPI_KEY_START_MAX (UINT64_MAX >> XPI_KEY_BASE_BITS)

/* The decoded form of a packed key. */
struct xpi_key {
	uint64_t incarnation, region, base, length;
	uint32_t rights;
};

/* xpi_key_encode - write XPI_RKEY_LEN bytes. Returns their number, or 0 if they do not fit. */
size_t xpi_key_encode(const struct xpi_key *k, void *buf, size_t len);
/* xpi_key_decode - read a packed key. False: damaged, or not a key. */
bool xpi_key_decode(const void *buf, size_t len, struct xpi_key *k);

#endif
