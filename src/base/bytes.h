/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bytes.h - the only bounded decoder, and its encoder: fixed-width little-endian fields.
 *
 * A reader or writer that passes its end sets `bad`, yields zeros, and stays bad: check it once, at the end.
 */
#ifndef XPI_BASE_BYTES_H
#define XPI_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct xpi_rd {
	const uint8_t *p;
	size_t left;
	bool bad;
};

struct xpi_wr {
	uint8_t *p;
	size_t left;
	bool bad;
};

static inline struct xpi_rd xpi_rd(const void *p, size_t len)
{
	return (struct xpi_rd){(const uint8_t *)p, len, false};
}

static inline struct xpi_wr xpi_wr(void *p, size_t len)
{
	return (struct xpi_wr){(uint8_t *)p, len, false};
}

/* A view of the next `n` bytes, or NULL. */
static inline const uint8_t *xpi_rd_bytes(struct xpi_rd *r, size_t n)
{
	const uint8_t *p = r->p;

	if (r->bad || n > r->left) {
		r->bad = true;
		return NULL;
	}
	r->p += n;
	r->left -= n;
	return p;
}

static inline uint64_t xpi_rd_le(struct xpi_rd *r, unsigned n)
{
	const uint8_t *p = xpi_rd_bytes(r, n);
	uint64_t v = 0;

	for (unsigned i = 0; p != NULL && i < n; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

/* clang-format off */
static inline uint8_t xpi_rd_u8(struct xpi_rd *r) { return (uint8_t)xpi_rd_le(r, 1); }
static inline uint16_t xpi_rd_u16(struct xpi_rd *r) { return (uint16_t)xpi_rd_le(r, 2); }
static inline uint32_t xpi_rd_u32(struct xpi_rd *r) { return (uint32_t)xpi_rd_le(r, 4); }
static inline uint64_t xpi_rd_u64(struct xpi_rd *r) { return xpi_rd_le(r, 8); }
/* clang-format on */

/* A string of a 16-bit length, copied NUL-terminated into room for `size`; bad if too long or with a NUL inside. */
static inline void xpi_rd_str(struct xpi_rd *r, char *s, size_t size)
{
	size_t n = xpi_rd_u16(r);
	const uint8_t *p = xpi_rd_bytes(r, n);

	s[0] = '\0';
	if (p == NULL)
		return;
	if (n >= size || memchr(p, 0, n) != NULL) {
		r->bad = true;
		return;
	}
	memcpy(s, p, n);
	s[n] = '\0';
}

static inline void xpi_wr_bytes(struct xpi_wr *w, const void *p, size_t n)
{
	if (w->bad || n > w->left) {
		w->bad = true;
		return;
	}
	if (n > 0)
		memcpy(w->p, p, n);
	w->p += n;
	w->left -= n;
}

static inline void xpi_wr_le(struct xpi_wr *w, uint64_t v, unsigned n)
{
	uint8_t b[8];

	for (unsigned i = 0; i < n; i++)
		b[i] = (uint8_t)(v >> (8 * i));
	xpi_wr_bytes(w, b, n);
}

/* clang-format off */
static inline void xpi_wr_u8(struct xpi_wr *w, uint8_t v) { xpi_wr_le(w, v, 1); }
static inline void xpi_wr_u16(struct xpi_wr *w, uint16_t v) { xpi_wr_le(w, v, 2); }
static inline void xpi_wr_u32(struct xpi_wr *w, uint32_t v) { xpi_wr_le(w, v, 4); }
static inline void xpi_wr_u64(struct xpi_wr *w, uint64_t v) { xpi_wr_le(w, v, 8); }
/* clang-format on */

static inline void xpi_wr_str(struct xpi_wr *w, const char *s)
{
	size_t n = strlen(s);

	if (n > UINT16_MAX) {
		w->bad = true;
		return;
	}
	xpi_wr_u16(w, (uint16_t)n);
	xpi_wr_bytes(w, s, n);
}

#endif
