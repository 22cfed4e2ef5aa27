/* SPDX-License-Identifier: BSD-3-Clause */
/* harness_mem.c - memory with guards and patterns, and the exchange of keys. */
#include "harness.h"

enum { GUARD_BYTE = 0xa7 };

const struct h_param h_sizes[] = {
	{"0", 0},
	{"1", 1},
	{"7", 7},
	{"8", 8},
	{"9", 9},
	{"4095", 4095},
	{"4096", 4096},
	{"below_eager", H_NEAR_EAGER - 1},
	{"at_eager", H_NEAR_EAGER},
	{"above_eager", H_NEAR_EAGER + 1},
	{"below_frame", H_NEAR_FRAME - 1},
	{"at_frame", H_NEAR_FRAME},
	{"above_frame", H_NEAR_FRAME + 1},
	{"64k", 65536},
	{"1m", 1 << 20},
	{"16m3", (16 << 20) + 3},
	{NULL, 0},
};

const struct h_param h_small_sizes[] = {
	{"0", 0}, {"8", 8}, {"above_eager", H_NEAR_EAGER + 1}, {"1m", 1 << 20}, {NULL, 0},
};

size_t h_size(struct h *h)
{
	uint64_t near = (h->param + (UINT64_C(1) << 61)) >> 62;
	int64_t d = (int64_t)(h->param - (near << 62));

	if (near == 1)
		return (size_t)((int64_t)h->info.eager_max + d);
	if (near == 2)
		return (size_t)((int64_t)h->info.frame_max + d);
	return (size_t)h->param;
}

/* The pattern is a hash of place and seed, eight bytes at a time. */
static uint64_t word_of(uint64_t i, uint64_t seed)
{
	uint64_t z = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ seed * UINT64_C(0xd1342543de82ef95);

	z = (z ^ (z >> 31)) * UINT64_C(0xbf58476d1ce4e5b9);
	return z ^ (z >> 29);
}

void h_fill(void *buf, size_t len, uint64_t seed)
{
	uint8_t *p = buf;
	uint64_t w;

	for (size_t i = 0; i < len; i += 8) {
		w = word_of(i / 8, seed);
		memcpy(p + i, &w, len - i < 8 ? len - i : 8);
	}
}

void h_check_fill(struct h *h, const char *file, int line, const void *buf, size_t len, uint64_t seed)
{
	const uint8_t *p = buf;
	uint64_t w;

	for (size_t i = 0; i < len; i += 8) {
		w = word_of(i / 8, seed);
		if (memcmp(p + i, &w, len - i < 8 ? len - i : 8))
			h_fail(h, file, line, "content", "wrong within 8 bytes at %zu of %zu (seed %" PRIu64 ")", i,
			       len, seed);
	}
}

void h_check_byte(struct h *h, const char *file, int line, const void *buf, size_t len, uint8_t byte)
{
	const uint8_t *p = buf;

	for (size_t i = 0; i < len; i++)
		if (p[i] != byte)
			h_fail(h, file, line, "content", "byte %zu of %zu is 0x%02x, should be 0x%02x", i, len, p[i],
			       byte);
}

struct h_kept {
	struct h_kept *next;
	void *buf;
};

void *h_buf(struct h *h, size_t len)
{
	struct h_kept *k = malloc(sizeof(*k));

	H_TRUE(k && posix_memalign(&k->buf, 4096, len ? len : 1) == 0);
	memset(k->buf, 0, len);
	k->next = h->kept;
	h->kept = k;
	return k->buf;
}

void h_buf_free(struct h *h, void *buf)
{
	for (struct h_kept **p = &h->kept, *k; (k = *p) != NULL; p = &k->next)
		if (!buf || k->buf == buf) {
			*p = k->next;
			free(k->buf);
			free(k);
			return;
		}
}

static struct h_mem mem_new(struct h *h, size_t len, size_t skew, uint32_t rights, enum h_kind kind, bool plain)
{
	struct h_mem m = {.len = len, .allocated = kind == H_ALLOC};
	struct xport_mr_info info = {.size = sizeof(info)};

	m.raw_len = len + skew + 2 * H_GUARD;
	if (m.allocated) {
		H_OK(xport_mr_alloc(h->x, m.raw_len, rights, &m.mr));
		H_OK(xport_mr_query(m.mr, &info));
		m.raw = info.base;
		m.offset = H_GUARD + skew;
	} else {
		m.raw = h_buf(h, m.raw_len);
	}
	memset(m.raw, GUARD_BYTE, m.raw_len);
	m.p = m.raw + H_GUARD + skew;
	memset(m.p, 0, len);
	if (!m.allocated && !plain)
		H_OK(xport_mr_reg(h->x, m.p, len ? len : 1, rights, &m.mr));
	return m;
}

struct h_mem h_mem_target(struct h *h, size_t len, size_t skew, uint32_t rights)
{
	return mem_new(h, len, skew, rights, h->kind, false);
}

struct h_mem h_mem_local(struct h *h, size_t len, size_t skew)
{
	return mem_new(h, len, skew, 0, h->kind, h->kind == H_PLAIN);
}

void h_mem_guards(struct h *h, const struct h_mem *m, const char *file, int line)
{
	uint8_t *end = m->p + m->len;

	h_check_byte(h, file, line, m->raw, (size_t)(m->p - m->raw), GUARD_BYTE);
	h_check_byte(h, file, line, end, (size_t)(m->raw + m->raw_len - end), GUARD_BYTE);
}

void h_mem_free(struct h *h, struct h_mem *m)
{
	h_mem_guards(h, m, __FILE__, __LINE__);
	if (m->mr)
		H_OK(xport_mr_dereg(m->mr));
	if (!m->allocated)
		h_buf_free(h, m->raw);
	memset(m, 0, sizeof(*m));
}

struct h_key h_key_pack(struct h *h, const struct h_mem *m)
{
	struct h_key key = {.offset = m->offset, .len = sizeof(key.bytes)};
	struct xport_mr_info info = {.size = sizeof(info)};

	H_OK(xport_mr_query(m->mr, &info));
	key.length = info.length;
	H_OK(xport_rkey_pack(m->mr, key.bytes, &key.len));
	H_TRUE(key.len <= h->info.rkey_max);
	return key;
}

void h_share(struct h *h, int role, const struct h_mem *m)
{
	struct h_key key = h_key_pack(h, m);

	h_tell(h, role, &key, sizeof(key));
}

struct h_rkey h_unpack(struct h *h, xport_ep *ep, const struct h_key *key)
{
	struct h_rkey r = {.offset = key->offset, .length = key->length};

	H_OK(xport_rkey_unpack(ep, key->bytes, key->len, &r.k));
	return r;
}

struct h_rkey h_import(struct h *h, int role)
{
	struct h_key key;

	H_EQ(sizeof(key), h_hear(h, role, &key, sizeof(key)));
	return h_unpack(h, h->ep[role], &key);
}
