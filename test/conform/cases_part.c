/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_part.c - keys to parts of regions (xport_rkey_pack_range): the promises of a region of their length. */
#include "harness.h"

#include <endian.h>
#include <malloc.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { LEN = 64 << 10, AT = 4104, PART = 9000, MANY = 2000 };

/* A key to a part of what m has: `at` counts from m->p. */
static struct h_key pack_part(struct h *h, const struct h_mem *m, uint64_t at, uint64_t length, uint32_t rights)
{
	struct h_key key = {.length = length, .len = sizeof(key.bytes)};

	H_OK(xport_rkey_pack_range(m->mr, m->offset + at, length, rights, key.bytes, &key.len));
	H_TRUE(key.len <= h->info.rkey_max);
	return key;
}

static void share_part(struct h *h, const struct h_mem *m, uint64_t at, uint64_t length, uint32_t rights)
{
	struct h_key key = pack_part(h, m, at, length, rights);

	h_tell(h, 1, &key, sizeof(key));
}

static struct h_mem share_one(struct h *h, uint32_t rights)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	share_part(h, &m, AT, PART, rights);
	return m;
}

/* ---- data ---- */

static void data_target(struct h *h)
{
	struct h_mem m = share_one(h, 0);
	struct xport_completion c = H_EVENT(XPORT_EVENT_NOTIFY);
	uint64_t word;

	H_EQ(77, c.tag);
	H_EQ(100, c.length);
	H_TRUE(c.mr == m.mr);
	H_EQ(m.offset + AT + 200, c.offset);
	c = H_EVENT(XPORT_EVENT_NOTIFY); /* of no bytes: its offset counts from the same place */
	H_EQ(78, c.tag);
	H_EQ(0, c.length);
	H_EQ(m.offset + AT + PART, c.offset);
	h_sync(h);
	H_BYTES(m.p, AT, 0);
	H_FILLED(m.p + AT, 200, 1);
	H_FILLED(m.p + AT + 200, 100, 3);
	memcpy(&word, m.p + AT + 304, sizeof(word));
	H_EQ(5, word);
	H_FILLED(m.p + AT + PART - 4000, 4000, 2);
	H_BYTES(m.p + AT + PART, LEN - AT - PART, 0);
	h_mem_free(h, &m);
}

/* Whether its puts are native makes no difference; once with what goes by message, once after the key was confirmed. */
static void data(struct h *h)
{
	struct xport_rkey_info info = {.size = sizeof(info)};
	struct h_rkey r;
	struct h_mem l;

	h_mesh(h, NULL);
	r = h_import(h, 0);
	l = h_mem_local(h, LEN, 0);
	h_fill(l.p, 200, 1);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, 200), &r, 0, 0));
	h_run_for(h, 50);
	h_fill(l.p + 4000, 4000, 2);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 4000, 4000), &r, PART - 4000, 0));
	H_DONE(h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 5, 0, NULL, &r, 304));
	memset(l.p, 0, LEN);
	H_DONE(h_get(h, h->ep[0], H_AT(l, 100, 200), &r, 0));
	H_FILLED(l.p + 100, 200, 1);
	H_DONE(h_get(h, h->ep[0], H_AT(l, 1000, 4000), &r, PART - 4000));
	H_FILLED(l.p + 1000, 4000, 2);
	H_OK(xport_rkey_query(r.k, &info));
	H_EQ(PART, info.length);
	H_EQ(H_ALL, info.rights);
	h_fill(l.p, 100, 3);
	H_DONE(h_notify(h, h->ep[0], H_AT(l, 0, 100), &r, 200, 77, 0));
	H_DONE(h_notify(h, h->ep[0], H_AT(l, 0, 0), &r, PART, 78, 0));
	h_sync(h);
}

/* ---- bounds and rights ---- */

static void rights_target(struct h *h)
{
	struct h_mem m = share_one(h, XPORT_REMOTE_READ);

	h_fill(m.p + AT, PART, 1);
	h_sync(h);
	h_sync(h);
	H_BYTES(m.p, AT, 0);
	H_FILLED(m.p + AT, PART, 1);
	H_BYTES(m.p + AT + PART, LEN - AT - PART, 0);
	h_mem_free(h, &m);
}

static void rights(struct h *h)
{
	struct h_op *op = NULL;
	struct xport_opt o = {.size = sizeof(o)};
	struct h_rkey r;
	struct h_mem l;

	h_mesh(h, NULL);
	r = h_import(h, 0);
	l = h_mem_local(h, PART, 0);
	op = h_op(h, XPORT_OP_GET);
	o.context = op;
	h_sync(h);
	H_STATUS(XPORT_ERR_ACCESS, xport_put(h->ep[0], l.p, 8, r.k, 0, &o));
	H_STATUS(XPORT_ERR_BOUNDS, xport_get(h->ep[0], l.p, 8, r.k, PART - 7, &o));
	H_STATUS(XPORT_ERR_BOUNDS, xport_get(h->ep[0], l.p, 0, r.k, PART + 1, &o));
	H_STATUS(XPORT_ERR_BOUNDS, xport_get(h->ep[0], l.p, 8, r.k, UINT64_MAX - 3, &o));
	h_op_drop(h, op);
	H_DONE(h_get(h, h->ep[0], H_AT(l, 0, PART), &r, 0));
	H_FILLED(l.p, PART, 1);
	h_sync(h);
}

/* What a packed key says of its region, and where that stands in it; at its end is a checksum of all before. */
enum { KEY_BASE = 24, KEY_LENGTH = 32, KEY_RIGHTS = 40, MORE_BYTES = 0, MORE_RIGHTS = 1, MOVED = 2 };

/* The key of somebody who changed it: the whole rest of the region, all rights, or from the start of the region on. */
static void boast(struct h_key *key, uint64_t what)
{
	uint64_t length = htole64(LEN - AT), base, sum;
	uint32_t magic, all;

	memcpy(&magic, key->bytes, sizeof(magic));
	memcpy(&all, key->bytes + KEY_RIGHTS, sizeof(all));
	all = htole32(le32toh(all) | H_ALL);
	memcpy(&base, key->bytes + KEY_BASE, sizeof(base));
	base = htole64(le64toh(base) & 4095); /* above these bits is where the part begins */
	if (what == MORE_BYTES)
		memcpy(key->bytes + KEY_LENGTH, &length, sizeof(length));
	else if (what == MOVED)
		memcpy(key->bytes + KEY_BASE, &base, sizeof(base));
	else
		memcpy(key->bytes + KEY_RIGHTS, &all, sizeof(all));
	sum = htole64(XXH64(key->bytes, key->len - sizeof(sum), le32toh(magic)));
	memcpy(key->bytes + key->len - sizeof(sum), &sum, sizeof(sum));
}

static void exact_target(struct h *h)
{
	struct xport_mr_info info = {.size = sizeof(info)};
	struct h_mem m = share_one(h, h->param == MORE_RIGHTS ? XPORT_REMOTE_READ : H_ALL);

	H_OK(xport_mr_query(m.mr, &info));
	h_tell_u64(h, 1, (uint64_t)info.exact_parts);
	h_sync(h);
	if (info.exact_parts && h->param == MOVED) {
		H_FILLED(m.p + AT, 8, 1);
		memset(m.p + AT, 0, 8);
	}
	if (info.exact_parts)
		H_BYTES(m.p, LEN, 0);
	h_mem_free(h, &m);
}

/* Where the owner says that parts are exact, it refuses what is outside, although it is inside the region. */
static void exact(struct h *h)
{
	struct xport_rkey_info info = {.size = sizeof(info)};
	struct h_key key;
	struct h_rkey r;
	struct h_mem l;
	bool is_exact;

	h_mesh(h, NULL);
	H_EQ(sizeof(key), h_hear(h, 0, &key, sizeof(key)));
	is_exact = h_hear_u64(h, 0) != 0;
	l = h_mem_local(h, 64, 0);
	h_fill(l.p, 64, 1);
	boast(&key, h->param);
	r = h_unpack(h, h->ep[0], &key);
	h_run_for(h, 50);
	H_OK(xport_rkey_query(r.k, &info));
	H_EQ(is_exact, info.exact);
	if (is_exact && h->param == MORE_BYTES) {
		H_EQ(XPORT_EMULATED, info.put);
		H_DONE_AS(XPORT_ERR_BOUNDS, h_put(h, h->ep[0], H_AT(l, 0, 8), &r, PART - 7, 0));
		H_DONE_AS(XPORT_ERR_BOUNDS, h_get(h, h->ep[0], H_AT(l, 0, 8), &r, PART));
		H_DONE_AS(XPORT_ERR_BOUNDS, h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 1, 0, NULL, &r, PART));
	} else if (is_exact && h->param == MOVED) {
		H_DONE(h_put(h, h->ep[0], H_AT(l, 0, 8), &r, 0, 0));
	} else if (is_exact) {
		H_DONE_AS(XPORT_ERR_ACCESS, h_put(h, h->ep[0], H_AT(l, 0, 8), &r, 0, 0));
		H_DONE(h_get(h, h->ep[0], H_AT(l, 0, 8), &r, 0));
	}
	h_record(h, "exact", is_exact);
	h_sync(h);
}

/* ---- the end of a region ---- */

static void stale_target(struct h *h)
{
	struct h_mem m = share_one(h, 0);

	h_sync(h);
	h_mem_free(h, &m); /* while puts are under way, it may be by a native key */
	h_tell_u64(h, 1, 0);
	h_sync(h);
}

static void stale(struct h *h)
{
	struct h_rkey r;
	struct h_mem l;
	int s = XPORT_OK;

	h_mesh(h, NULL);
	r = h_import(h, 0);
	l = h_mem_local(h, PART, 0);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, PART), &r, 0, 0));
	h_run_for(h, 50); /* the owner grants its use */
	h_sync(h);
	while (!h_heard(h, 0) && s == XPORT_OK) {
		struct h_op *op = h_op(h, XPORT_OP_PUT);
		struct xport_opt o = {.size = sizeof(o), .context = op};

		s = xport_put(h->ep[0], l.p, 64, r.k, 0, &o);
		if (s != XPORT_OK) {
			h_op_drop(h, op);
			break;
		}
		H_ENDED(op);
		s = op->c.status;
	}
	H_TRUE(s == XPORT_OK || s == XPORT_ERR_STALE_KEY);
	h_hear_u64(h, 0);
	if (s == XPORT_OK) {
		struct h_op *op = h_op(h, XPORT_OP_PUT);
		struct xport_opt o = {.size = sizeof(o), .context = op};

		s = xport_put(h->ep[0], l.p, 64, r.k, 0, &o);
		if (s == XPORT_OK)
			H_DONE_AS(XPORT_ERR_STALE_KEY, op);
		else
			h_op_drop(h, op);
		H_TRUE(s == XPORT_OK || s == XPORT_ERR_STALE_KEY);
	}
	xport_rkey_destroy(r.k);
	h_sync(h);
}

/* ---- a key that is revoked ---- */

static int end_key(struct h *h, const struct h_key *key)
{
	return xport_rkey_revoke(h->x, key->bytes, key->len);
}

static void revoked_target(struct h *h)
{
	struct h_key key, other, whole = {.len = sizeof(whole.bytes)}, again;
	struct h_mem m;
	size_t before;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	key = pack_part(h, &m, AT, PART, 0);
	other = pack_part(h, &m, AT, PART + 1, 0);
	again = pack_part(h, &m, AT, PART, 0);
	h_tell(h, 1, &key, sizeof(key));
	h_tell(h, 1, &other, sizeof(other));
	H_OK(xport_rkey_pack(m.mr, whole.bytes, &whole.len));
	H_STATUS(XPORT_ERR_INVALID, end_key(h, &whole));
	H_STATUS(XPORT_ERR_BAD_KEY, xport_rkey_revoke(h->x, NULL, 0));
	H_STATUS(XPORT_ERR_BAD_KEY, xport_rkey_revoke(h->x, key.bytes, key.len - 1));
	H_STATUS(XPORT_ERR_INVALID, xport_rkey_revoke(NULL, key.bytes, key.len));
	H_TRUE(memcmp(again.bytes, key.bytes, key.len) != 0);
	H_OK(end_key(h, &again)); /* of the same part: the other key does not end, */
	H_STATUS(XPORT_ERR_STALE_KEY, end_key(h, &again)); /* also if this is revoked twice */
	h_sync(h);
	h_sync(h);
	H_OK(end_key(h, &key));
	H_STATUS(XPORT_ERR_STALE_KEY, end_key(h, &key));
	again = pack_part(h, &m, AT, PART, 0);
	H_TRUE(memcmp(again.bytes, key.bytes, key.len) != 0);
	h_tell(h, 1, &again, sizeof(again));
	h_sync(h);
	before = mallinfo2().uordblks;
	for (int i = 0; i < MANY; i++) {
		struct h_key one = pack_part(h, &m, (uint64_t)i, 64, 0);

		H_OK(end_key(h, &one));
	}
	H_TRUE(mallinfo2().uordblks < before + (size_t)MANY * 100); /* a part that stays takes 300 */
	h_mem_free(h, &m);
	H_STATUS(XPORT_ERR_STALE_KEY, end_key(h, &again));
	h_sync(h);
}

/* Puts until the peer's library knows of the end: an adapter may take one that is posted before. */
static void put_until_stale(struct h *h, const struct h_mem *l, const struct h_rkey *r)
{
	int64_t until = h_now_us() + (int64_t)h_ms(10000) * 1000;
	int s = XPORT_OK;

	while (s == XPORT_OK) {
		struct h_op *op = h_op(h, XPORT_OP_PUT);
		struct xport_opt o = {.size = sizeof(o), .context = op};

		H_TRUE(h_now_us() < until);
		s = xport_put(h->ep[0], l->p, 64, r->k, 0, &o);
		if (s != XPORT_OK) {
			h_op_drop(h, op);
			break;
		}
		H_ENDED(op);
		s = op->c.status;
	}
	H_STATUS(XPORT_ERR_STALE_KEY, s);
}

static void revoked(struct h *h)
{
	struct h_rkey r, other, again;
	struct h_mem l;

	h_mesh(h, NULL);
	r = h_import(h, 0);
	other = h_import(h, 0);
	l = h_mem_local(h, PART, 0);
	h_run_for(h, 50); /* the owner grants their use */
	h_sync(h);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, PART), &r, 0, 0));
	h_sync(h);
	again = h_import(h, 0);
	put_until_stale(h, &l, &r);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, PART), &other, 1, 0));
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, PART), &again, 0, 0));
	xport_rkey_destroy(r.k);
	xport_rkey_destroy(other.k);
	xport_rkey_destroy(again.k);
	h_sync(h);
	h_sync(h);
}

/* ---- many, and wrong arguments ---- */

static void many_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	for (uint64_t i = 0; i < MANY; i++) {
		uint64_t at = (i * 7919 % MANY) * 32; /* in no order */
		struct h_key key = pack_part(h, &m, at, 32, 0), again = pack_part(h, &m, at, 32, 0);

		H_OK(xport_rkey_revoke(h->x, again.bytes, again.len));
		if (i % 20 == 0)
			h_tell(h, 1, &key, sizeof(key));
	}
	h_sync(h);
	for (uint64_t i = 0; i < MANY; i += 20)
		H_FILLED(m.p + (i * 7919 % MANY) * 32, 32, i);
	h_mem_free(h, &m);
	h_sync(h);
}

static void many(struct h *h)
{
	struct h_rkey r[MANY / 20];
	struct h_mem l;

	h_mesh(h, NULL);
	l = h_mem_local(h, MANY * 32, 0);
	for (size_t i = 0; i < MANY / 20; i++) {
		r[i] = h_import(h, 0);
		h_fill(l.p + i * 32, 32, i * 20);
	}
	h_run_for(h, 20);
	for (size_t i = 0; i < MANY / 20; i++)
		h_put(h, h->ep[0], H_AT(l, i * 32, 32), &r[i], 0, 0);
	h_settle(h);
	h_sync(h);
	h_sync(h);
	for (size_t i = 0; i < MANY / 20; i++)
		xport_rkey_destroy(r[i].k);
}

static void wrong(struct h *h)
{
	struct h_mem m;
	uint8_t buf[2048], copy[sizeof(buf)];
	size_t len = sizeof(buf), need;

	h_open(h, NULL);
	m = h_mem_target(h, LEN, 0, XPORT_REMOTE_READ);
	memset(buf, 0x99, sizeof(buf));
#define REFUSED(status, ...) \
	(len = sizeof(buf), H_STATUS(status, xport_rkey_pack_range(__VA_ARGS__, buf, &len)), \
	 (void)H_BYTES(buf, sizeof(buf), 0x99))
	REFUSED(XPORT_ERR_INVALID, NULL, 0, 1, 0);
	REFUSED(XPORT_ERR_INVALID, m.mr, 0, 0, 0);
	REFUSED(XPORT_ERR_BOUNDS, m.mr, 1, UINT64_MAX, 0);
	REFUSED(XPORT_ERR_BOUNDS, m.mr, UINT64_MAX, 1, 0);
	REFUSED(XPORT_ERR_BOUNDS, m.mr, m.raw_len + 4096, 1, 0);
	REFUSED(XPORT_ERR_INVALID, m.mr, 0, 1, XPORT_REMOTE_WRITE);
	REFUSED(XPORT_ERR_INVALID, m.mr, 0, 1, 1u << 30);
	H_STATUS(XPORT_ERR_INVALID, xport_rkey_pack_range(m.mr, 0, 1, 0, buf, NULL));
	need = 0;
	H_STATUS(XPORT_ERR_BOUNDS, xport_rkey_pack_range(m.mr, 0, 1, 0, NULL, &need));
	H_TRUE(need > 0 && need <= h->info.rkey_max);
	len = need - 1;
	H_STATUS(XPORT_ERR_BOUNDS, xport_rkey_pack_range(m.mr, 0, 1, 0, buf, &len));
	H_EQ(need, len);
	H_BYTES(buf, sizeof(buf), 0x99);
	H_OK(xport_rkey_pack_range(m.mr, 0, 1, XPORT_REMOTE_READ, buf, &len));
	memcpy(copy, buf, need);
	H_OK(xport_rkey_pack_range(m.mr, 0, 1, 0, buf, &len));
	H_TRUE(memcmp(copy, buf, need) != 0); /* a key of its own */
	h_mem_free(h, &m);
}

static const struct h_param boasts[] = {{"bytes", MORE_BYTES}, {"rights", MORE_RIGHTS}, {"start", MOVED}, {NULL, 0}};

const struct h_scenario cases_part[] = {
	{.name = "P2_part_of_a_region", .role = {data_target, data}, .flags = H_KINDS},
	{.name = "P6_part_bounds_and_rights", .role = {rights_target, rights}, .flags = H_TARGET},
	{.name = "P7_part_is_exact", .role = {exact_target, exact}, .params = boasts, .flags = H_TARGET},
	{.name = "P16_part_is_revoked", .role = {revoked_target, revoked}, .flags = H_TARGET},
	{.name = "P16_part_ends_with_its_region", .role = {stale_target, stale}, .flags = H_TARGET},
	{.name = "P7_many_parts", .role = {many_target, many}, .flags = H_TARGET},
	{.name = "P6_part_refused", .role = {wrong}, .flags = H_TARGET},
	{.name = NULL},
};
