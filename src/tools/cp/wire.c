/* SPDX-License-Identifier: BSD-3-Clause */
/* wire.c - messages and heads as bytes. */
#include "tools/cp/wire.h"

#include <string.h>

struct out {
	uint8_t *p;
};

struct in {
	const uint8_t *p;
	size_t left;
	bool bad;
};

static void put(struct out *o, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		*o->p++ = (uint8_t)(v >> (8 * i));
}

static void put_bytes(struct out *o, const struct cp_bytes *s)
{
	put(o, s->n, 2);
	if (s->n > 0)
		memcpy(o->p, s->p, s->n);
	o->p += s->n;
}

static uint64_t get(struct in *in, int bytes)
{
	uint64_t v = 0;

	if (in->left < (size_t)bytes) {
		in->bad = true;
		return 0;
	}
	for (int i = 0; i < bytes; i++)
		v |= (uint64_t)in->p[i] << (8 * i);
	in->p += bytes;
	in->left -= (size_t)bytes;
	return v;
}

static void get_bytes(struct in *in, struct cp_bytes *s, size_t most)
{
	s->n = (size_t)get(in, 2);
	s->p = in->p;
	if (in->left < s->n || s->n > most) {
		in->bad = true;
		s->n = 0;
		return;
	}
	in->p += s->n;
	in->left -= s->n;
}

size_t cp_msg_write(const struct cp_msg *m, uint8_t *buf)
{
	struct out o = {buf};

	put(&o, m->kind, 4);
	put(&o, m->status, 4);
	put(&o, m->slot, 4);
	put(&o, m->flags, 4);
	put(&o, m->mode, 4);
	put(&o, m->offset, 8);
	put(&o, m->length, 8);
	put(&o, m->hash[0], 8);
	put(&o, m->hash[1], 8);
	put(&o, (uint64_t)m->mtime_s, 8);
	put(&o, (uint64_t)m->atime_s, 8);
	put(&o, m->mtime_ns, 4);
	put(&o, m->atime_ns, 4);
	put_bytes(&o, &m->path);
	put_bytes(&o, &m->text);
	put_bytes(&o, &m->key);
	return (size_t)(o.p - buf);
}

bool cp_msg_read(struct cp_msg *m, const uint8_t *buf, size_t len)
{
	struct in in = {buf, len, false};

	m->kind = (uint32_t)get(&in, 4);
	m->status = (uint32_t)get(&in, 4);
	m->slot = (uint32_t)get(&in, 4);
	m->flags = (uint32_t)get(&in, 4);
	m->mode = (uint32_t)get(&in, 4);
	m->offset = get(&in, 8);
	m->length = get(&in, 8);
	m->hash[0] = get(&in, 8);
	m->hash[1] = get(&in, 8);
	m->mtime_s = (int64_t)get(&in, 8);
	m->atime_s = (int64_t)get(&in, 8);
	m->mtime_ns = (uint32_t)get(&in, 4);
	m->atime_ns = (uint32_t)get(&in, 4);
	get_bytes(&in, &m->path, CP_PATH - 1);
	get_bytes(&in, &m->text, CP_PATH - 1);
	get_bytes(&in, &m->key, CP_KEY);
	return !in.bad && in.left == 0 && m->kind >= CP_START && m->kind < CP_KINDS && m->mtime_ns < 1000000000 &&
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
	struct out o = {buf};

	memset(buf, 0, CP_HEAD);
	put(&o, h->offset, 8);
	put(&o, h->length, 8);
	put(&o, h->hash[0], 8);
	put(&o, h->hash[1], 8);
}

void cp_head_read(struct cp_head *h, const uint8_t *buf)
{
	struct in in = {buf, CP_HEAD, false};

	h->offset = get(&in, 8);
	h->length = get(&in, 8);
	h->hash[0] = get(&in, 8);
	h->hash[1] = get(&in, 8);
}
