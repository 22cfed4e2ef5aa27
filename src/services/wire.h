/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wire.h - messages of the services as bytes, all numbers little-endian.  The reader never leaves its bytes: past their
 * end, and from then on, everything reads as 0 and `bad` is set.  Not the library's base/bytes.h: the services stand on
 * xport.h alone, as an application does.
 */
#ifndef SVC_WIRE_H
#define SVC_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <xport.h>

/* Those of enum xport_rights that a key can have; which of them go together libxport says where they are used. */
enum { SVC_RIGHTS = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC | XPORT_ATOMIC_NIC };

struct svc_reader {
	const uint8_t *at;
	size_t left;
	bool bad;
};

static inline struct svc_reader svc_reader(const void *bytes, size_t len)
{
	return (struct svc_reader){.at = bytes, .left = len};
}

/* The next `len` bytes; NULL: they are not there. */
static inline const uint8_t *svc_read(struct svc_reader *r, size_t len)
{
	const uint8_t *at = r->at;

	if (r->bad || len > r->left) {
		r->bad = true;
		return NULL;
	}
	r->at += len;
	r->left -= len;
	return at;
}

/* A number of `bytes` bytes, 1 to 8. */
static inline uint64_t svc_read_number(struct svc_reader *r, size_t bytes)
{
	const uint8_t *p = svc_read(r, bytes);
	uint64_t value = 0;

	for (size_t i = 0; p != NULL && i < bytes; i++)
		value |= (uint64_t)p[i] << (8 * i);
	return value;
}

/* Everything was there, and nothing is left. */
static inline bool svc_read_all(const struct svc_reader *r)
{
	return !r->bad && r->left == 0;
}

/* Returns where the next one goes; there is room. */
static inline uint8_t *svc_write_number(uint8_t *at, uint64_t value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		*at++ = (uint8_t)(value >> (8 * i));
	return at;
}

static inline uint8_t *svc_write(uint8_t *at, const void *bytes, size_t len)
{
	if (len > 0)
		memcpy(at, bytes, len);
	return at + len;
}

#endif
