/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_p07.c - P7, untrusted input: keys that are damaged, cut, foreign or no keys at all. */
#include "harness.h"

#include <endian.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { LEN = 4096 };

/* Refused with one of the two errors that a key can meet, and nothing is made. */
static void refuse(struct h *h, const void *bytes, size_t len, const char *what, size_t i)
{
	xport_rkey *k = (xport_rkey *)&k;
	int s = xport_rkey_unpack(h->ep[0], bytes, len, &k);

	H_CHECK(s == XPORT_ERR_BAD_KEY || s == XPORT_ERR_STALE_KEY, "%s %zu: %s", what, i, xport_status_name(s));
	H_CHECK(k == (xport_rkey *)&k, "%s %zu: something was made", what, i);
}

/* The bytes go through memory of exactly their length, so that a checker sees each byte read too far. */
static void refuse_exact(struct h *h, const void *bytes, size_t len, const char *what, size_t i)
{
	void *copy = malloc(len ? len : 1);

	H_TRUE(copy != NULL);
	memcpy(copy, bytes, len);
	refuse(h, copy, len, what, i);
	free(copy);
}

static void key_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
	H_FILLED(m.p, 64, 1);
}

static struct h_key begin(struct h *h)
{
	struct h_key key;

	h_mesh(h, NULL);
	H_EQ(sizeof(key), h_hear(h, 0, &key, sizeof(key)));
	return key;
}

/* The good key still works after all the bad ones. */
static void end(struct h *h, const struct h_key *key)
{
	struct h_rkey r = h_unpack(h, h->ep[0], key);
	struct h_mem l = h_mem_local(h, 64, 0);

	h_fill(l.p, 64, 1);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, 64), &r, 0, 0));
	h_sync(h);
}

static void every_bit(struct h *h)
{
	struct h_key key = begin(h);

	for (size_t i = 0; i < key.len * 8; i++) {
		key.bytes[i / 8] ^= (uint8_t)(1 << i % 8);
		refuse_exact(h, key.bytes, key.len, "bit", i);
		key.bytes[i / 8] ^= (uint8_t)(1 << i % 8);
	}
	end(h, &key);
}

static void every_length(struct h *h)
{
	struct h_key key = begin(h);

	for (size_t n = 0; n < key.len; n++)
		refuse_exact(h, key.bytes, n, "length", n);
	for (size_t n = key.len + 1; n < key.len + 70; n++)
		refuse_exact(h, key.bytes, n, "length", n);
	refuse(h, key.bytes, sizeof(key.bytes), "length", sizeof(key.bytes));
	end(h, &key);
}

static void noise(struct h *h)
{
	struct h_key key = begin(h);
	uint8_t bytes[1024];
	unsigned seed = 4711;

	for (size_t i = 0; i < 20000; i++) {
		size_t n = (size_t)rand_r(&seed) % sizeof(bytes), at = 0;

		if (i & 1) { /* a good key with a few bytes changed */
			memcpy(bytes, key.bytes, n = key.len);
			at = (size_t)rand_r(&seed) % n;
			bytes[at] ^= (uint8_t)(1 + rand_r(&seed) % 255);
			bytes[(size_t)rand_r(&seed) % n] ^= (uint8_t)rand_r(&seed);
			if (!memcmp(bytes, key.bytes, n))
				continue;
		} else {
			for (; at < n; at++)
				bytes[at] = (uint8_t)rand_r(&seed);
		}
		refuse(h, bytes, n, "noise", i);
	}
	end(h, &key);
}

/* All zero, all ones, text. */
static void no_key(struct h *h)
{
	struct h_key key = begin(h);
	uint8_t bytes[512];

	for (int fill = 0; fill < 256; fill += 51) {
		memset(bytes, fill, sizeof(bytes));
		for (size_t n = 0; n < sizeof(bytes); n += 7)
			refuse_exact(h, bytes, n, "fill", n);
	}
	end(h, &key);
}

/* A key of a third process is not accepted on an endpoint that leads elsewhere; nor one's own. */
static void foreign(struct h *h)
{
	struct h_key key, other, own;
	struct h_mem m;

	key = begin(h);
	H_EQ(sizeof(other), h_hear(h, 2, &other, sizeof(other)));
	m = h_mem_target(h, LEN, 0, H_ALL);
	own = h_key_pack(h, &m);
	refuse_exact(h, other.bytes, other.len, "foreign", 0);
	H_STATUS(XPORT_ERR_STALE_KEY, xport_rkey_unpack(h->ep[0], other.bytes, other.len, &(xport_rkey *){NULL}));
	refuse_exact(h, own.bytes, own.len, "own", 0);
	end(h, &key);
}

static void foreign_owner(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
	H_BYTES(m.p, LEN, 0);
}

/* What a key says of its region, and where that stands in it; at its end is a checksum of all before. */
enum { KEY_LENGTH = 32, KEY_RIGHTS = 40, MORE_BYTES = 0, MORE_RIGHTS = 1 };

/* A good key, but that it grants more than there is. */
static void boast(struct h_key *key, uint64_t what)
{
	uint64_t length = htole64(key->length + (1 << 20)), sum;
	uint32_t magic, rights = htole32(H_ALL);

	memcpy(&magic, key->bytes, sizeof(magic));
	if (what == MORE_BYTES)
		memcpy(key->bytes + KEY_LENGTH, &length, sizeof(length));
	else
		memcpy(key->bytes + KEY_RIGHTS, &rights, sizeof(rights));
	sum = htole64(XXH64(key->bytes, key->len - sizeof(sum), le32toh(magic)));
	memcpy(key->bytes + key->len - sizeof(sum), &sum, sizeof(sum));
}

static void less_than_said(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, h->param == MORE_BYTES ? H_ALL : XPORT_REMOTE_READ);
	h_share(h, 1, &m);
	h_sync(h);
	H_BYTES(m.p, LEN, 0);
	h_mem_free(h, &m);
}

/* Its memory is not mapped: the owner sees what is asked, and refuses it. */
static void more_than_there_is(struct h *h)
{
	struct xport_rkey_info info = {.size = sizeof(info)};
	struct h_key key = begin(h);
	struct h_mem l = h_mem_local(h, 64, 0);
	struct h_rkey r;

	boast(&key, h->param);
	r = h_unpack(h, h->ep[0], &key);
	h_run_for(h, 100); /* the owner grants its use */
	H_OK(xport_rkey_query(r.k, &info));
	H_EQ(0, info.direct);
	if (info.put == XPORT_NATIVE)
		h_skip(h, "mapped memory is absent: the network carries puts, and checks them itself");
	if (h->param == MORE_BYTES)
		H_DONE_AS(XPORT_ERR_BOUNDS, h_put(h, h->ep[0], H_AT(l, 0, 8), &r, key.length + (1 << 19), 0));
	else
		H_DONE_AS(XPORT_ERR_ACCESS, h_put(h, h->ep[0], H_AT(l, 0, 8), &r, 0, 0));
	h_sync(h);
}

/* Packing: room is respected to the byte, the length needed is told. */
static void pack_room(struct h *h)
{
	struct h_mem m;
	uint8_t buf[2048];
	size_t need = 0, len;

	h_open(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	H_STATUS(XPORT_ERR_BOUNDS, xport_rkey_pack(m.mr, NULL, &need));
	H_TRUE(need > 0 && need <= h->info.rkey_max);
	for (size_t room = 0; room < need; room++) {
		memset(buf, 0x99, sizeof(buf));
		len = room;
		H_STATUS(XPORT_ERR_BOUNDS, xport_rkey_pack(m.mr, buf, &len));
		H_EQ(need, len);
		H_BYTES(buf + room, sizeof(buf) - room, 0x99);
	}
	len = need;
	H_OK(xport_rkey_pack(m.mr, buf, &len));
	H_EQ(need, len);
	H_BYTES(buf + need, sizeof(buf) - need, 0x99);
	h_mem_free(h, &m);
}

/* Many keys at once, each to its own place. */
static void many_keys_target(struct h *h)
{
	struct h_mem m[200];

	h_mesh(h, NULL);
	for (int i = 0; i < 200; i++) {
		m[i] = h_mem_target(h, 64, 0, H_ALL);
		h_share(h, 1, &m[i]);
	}
	h_sync(h);
	for (int i = 0; i < 200; i++) {
		H_FILLED(m[i].p, 64, (uint64_t)i);
		h_mem_free(h, &m[i]);
	}
}

static void many_keys(struct h *h)
{
	struct h_rkey r[200];
	struct h_mem l;

	h_mesh(h, NULL);
	l = h_mem_local(h, 200 * 64, 0);
	for (int i = 0; i < 200; i++)
		r[i] = h_import(h, 0);
	for (int i = 199; i >= 0; i--) {
		h_fill(l.p + i * 64, 64, (uint64_t)i);
		h_put(h, h->ep[0], H_AT(l, (size_t)i * 64, 64), &r[i], 0, 0);
		xport_rkey_destroy(r[i].k); /* while in use */
	}
	h_settle(h);
	h_sync(h);
}

static const struct h_param boasts[] = {{"bytes", MORE_BYTES}, {"rights", MORE_RIGHTS}, {NULL, 0}};

const struct h_scenario cases_p07[] = {
	{.name = "P7_every_bit_of_a_key", .role = {key_target, every_bit}, .flags = H_TARGET},
	{.name = "P7_every_length_of_a_key", .role = {key_target, every_length}, .flags = H_TARGET},
	{.name = "P7_noise_as_key", .role = {key_target, noise}, .flags = H_TARGET},
	{.name = "P7_no_key_at_all", .role = {key_target, no_key}},
	{.name = "P7_foreign_key", .role = {key_target, foreign, foreign_owner}, .flags = H_TARGET | H_KILLS},
	{.name = "P7_key_to_more_than_there_is",
         .role = {less_than_said, more_than_there_is},
         .params = boasts,
         .flags = H_TARGET},
	{.name = "P7_pack_respects_room", .role = {pack_room}, .flags = H_TARGET},
	{.name = "P7_many_keys_destroyed_in_use", .role = {many_keys_target, many_keys}, .flags = H_TARGET},
	{.name = NULL},
};
