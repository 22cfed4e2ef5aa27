/* SPDX-License-Identifier: BSD-3-Clause */
/* wire.c - messages and heads as bytes. */
#include "tools/cp/wire.h"

#include "base/bytes.h"

static void write_bytes(struct xpi_wr *w, const struct cp_bytes *s)
{
	xpi_wr_u16(w, (uint16_t)s->n);
	xpi_wr_bytes(w, s->p, s->n);
}

static void read_bytes(struct xpi_rd *r, struct cp_bytes *s, size_t most)
{
	s->n = xpi_rd_u16(r);
	s->p = xpi_rd_bytes(r, s->n);
	if (s->p == NULL || s->n > most) {
		r->bad = true;
		s->n = 0;
	}
}

size_t cp_msg_write(const struct cp_msg *m, uint8_t *buf)
{
	struct xpi_wr w = xpi_wr(buf, CP_MESSAGE);

	xpi_wr_u32(&w, m->kind);
	xpi_wr_u32(&w, m->status);
	xpi_wr_u32(&w, m->slot);
	xpi_wr_u32(&w, m->flags);
	xpi_wr_u32(&w, m->mode);
	xpi_wr_u64(&w, m->offset);
	xpi_wr_u64(&w, m->length);
	xpi_wr_u64(&w, m->hash[0]);
	xpi_wr_u64(&w, m->hash[1]);
	xpi_wr_u64(&w, (uint64_t)m->mtime_s);
	xpi_wr_u64(&w, (uint64_t)m->atime_s);
	xpi_wr_u32(&w, m->mtime_ns);
	xpi_wr_u32(&w, m->atime_ns);
	write_bytes(&w, &m->path);
	write_bytes(&w, &m->text);
	write_bytes(&w, &m->key);
	return (size_t)(w.p - buf);
}

bool cp_msg_read(struct cp_msg *m, const uint8_t *buf, size_t len)
{
	struct xpi_rd r = xpi_rd(buf, len);

	m->kind = xpi_rd_u32(&r);
	m->status = xpi_rd_u32(&r);
	m->slot = xpi_rd_u32(&r);
	m->flags = xpi_rd_u32(&r);
	m->mode = xpi_rd_u32(&r);
	m->offset = xpi_rd_u64(&r);
	m->length = xpi_rd_u64(&r);
	m->hash[0] = xpi_rd_u64(&r);
	m->hash[1] = xpi_rd_u64(&r);
	m->mtime_s = (int64_t)xpi_rd_u64(&r);
	m->atime_s = (int64_t)xpi_rd_u64(&r);
	m->mtime_ns = xpi_rd_u32(&r);
	m->atime_ns = xpi_rd_u32(&r);
	read_bytes(&r, &m->path, CP_PATH - 1);
	read_bytes(&r, &m->text, CP_PATH - 1);
	read_bytes(&r, &m->key, CP_KEY);
	return !r.bad && r.left == 0 && m->kind >= CP_START && m->kind < CP_KINDS && m->mtime_ns < 1000000000 &&
	       m->atime_ns < 1000000000;
}

bool cp_msg_string(const struct cp_bytes *s, char *to, size_t room)
{
	if (s->n >= room || (s->n > 0 && memchr(s->p, '\0', s->n) != NULL))
		return false;
	if (s->n > 0)
		memcpy(to, s->p, s->n);
	to[s->n] = '\0';
	return true;
}

void cp_head_write(const struct cp_head *h, uint8_t *buf)
{
	struct xpi_wr w = xpi_wr(buf, CP_HEAD);

	memset(buf, 0, CP_HEAD);
	xpi_wr_u64(&w, h->offset);
	xpi_wr_u64(&w, h->length);
	xpi_wr_u64(&w, h->hash[0]);
	xpi_wr_u64(&w, h->hash[1]);
}

void cp_head_read(struct cp_head *h, const uint8_t *buf)
{
	struct xpi_rd r = xpi_rd(buf, CP_HEAD);

	h->offset = xpi_rd_u64(&r);
	h->length = xpi_rd_u64(&r);
	h->hash[0] = xpi_rd_u64(&r);
	h->hash[1] = xpi_rd_u64(&r);
}
