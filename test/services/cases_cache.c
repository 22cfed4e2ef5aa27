/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_cache.c - the cache of registrations. */
#include <sys/mman.h>

#include "conform/harness.h"
#include "services/services.h"
#include "services/wrap.h"
#include "services/xport_services.h"

enum { PAGE = 4096 };

static xport_cache *make(struct h *h, uint32_t rights, uint32_t entries, size_t bytes)
{
	struct xport_cache_attr a = {.size = sizeof(a), .rights = rights, .max_entries = entries, .max_bytes = bytes};
	xport_cache *c = NULL;

	H_OK(xport_cache_create(h->x, &a, &c));
	return c;
}

static struct xport_cache_info ask(struct h *h, xport_cache *c)
{
	struct xport_cache_info i = {.size = sizeof(i)};

	H_OK(xport_cache_query(c, &i));
	return i;
}

static struct xport_cached get(struct h *h, xport_cache *c, uint8_t *address, size_t len)
{
	struct xport_mr_info m = {.size = sizeof(m)};
	struct xport_cached got = {0};

	H_OK(xport_cache_get(c, address, len, &got));
	H_OK(xport_mr_query(got.mr, &m));
	H_TRUE((uint8_t *)m.base + got.offset == address && got.offset + len <= m.length);
	return got;
}

static void touch(struct h *h, xport_cache *c, uint8_t *address, size_t len)
{
	struct xport_cached got = get(h, c, address, len);

	H_OK(xport_cache_put(c, &got));
}

static void hits(struct h *h)
{
	struct xport_cached a, b;
	uint8_t *m = h_buf(h, 64 * PAGE);
	xport_cache *c;

	h_open(h, NULL);
	c = make(h, 0, 0, 0);
	a = get(h, c, m + 100, 5000);
	b = get(h, c, m + 3000, 1000); /* in the same pages */
	H_TRUE(a.mr == b.mr);
	H_EQ(1, ask(h, c).in_use);
	H_OK(xport_cache_put(c, &a));
	H_EQ(1, ask(h, c).in_use);
	H_OK(xport_cache_put(c, &b));
	H_EQ(0, ask(h, c).in_use);
	H_STATUS(XPORT_ERR_INVALID, xport_cache_put(c, &b));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_cache_put", "not in use");
	b = get(h, c, m, 2 * PAGE); /* the whole pages */
	H_TRUE(a.mr == b.mr);
	H_OK(xport_cache_put(c, &b));
	H_EQ(1, ask(h, c).misses);
	H_EQ(2, ask(h, c).hits);
	H_EQ(2 * PAGE, ask(h, c).bytes);
	/* One that overlaps is one of its own; one around both takes their place, but not that of a used one. */
	b = get(h, c, m + PAGE, 3 * PAGE);
	H_TRUE(a.mr != b.mr);
	H_EQ(2, ask(h, c).entries);
	touch(h, c, m, 8 * PAGE);
	H_EQ(2, ask(h, c).entries);
	H_EQ(PAGE * (3 + 8), ask(h, c).bytes);
	H_OK(xport_cache_put(c, &b));
	H_EQ(1, ask(h, c).entries);
	H_EQ(8 * PAGE, ask(h, c).bytes);
	H_OK(xport_cache_destroy(c));
	H_OK(xport_cache_destroy(NULL));
}

/* With rights, what lies beside is not registered. */
static void exact(struct h *h)
{
	struct xport_mr_info m = {.size = sizeof(m)};
	struct xport_cache_attr b = {.size = sizeof(b)};
	struct xport_cached a;
	uint8_t *p = h_buf(h, 4 * PAGE);
	xport_cache *c;

	h_open(h, NULL);
	c = make(h, XPORT_REMOTE_WRITE, 0, 0);
	a = get(h, c, p + 64, 100);
	H_OK(xport_mr_query(a.mr, &m));
	H_TRUE(m.base == p + 64 && m.length == 100 && m.rights == XPORT_REMOTE_WRITE);
	H_OK(xport_cache_put(c, &a));
	H_OK(xport_cache_destroy(c));
	/* Buffers that overlap are registered twice, and no such word may be. */
	b.rights = H_ALL | XPORT_ATOMIC_NIC;
	H_STATUS(XPORT_ERR_INVALID, xport_cache_create(h->x, &b, &c));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_cache_create", "XPORT_ATOMIC_NIC");
	b.rights = 32;
	H_STATUS(XPORT_ERR_INVALID, xport_cache_create(h->x, &b, &c));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_cache_create", "unknown bits");
}

static void bounds(struct h *h)
{
	struct xport_cached a, b, d;
	uint8_t *m = h_buf(h, 64 * PAGE);
	xport_cache *c;

	h_open(h, NULL);
	c = make(h, 0, 3, 0);
	touch(h, c, m, 1);
	touch(h, c, m + 10 * PAGE, 1);
	touch(h, c, m + 20 * PAGE, 1);
	touch(h, c, m, 1); /* now the second one is the oldest */
	touch(h, c, m + 30 * PAGE, 1);
	H_EQ(1, ask(h, c).evictions);
	H_EQ(3, ask(h, c).entries);
	touch(h, c, m, 1);
	touch(h, c, m + 20 * PAGE, 1);
	H_EQ(4, ask(h, c).misses);
	touch(h, c, m + 10 * PAGE, 1);
	H_EQ(5, ask(h, c).misses);
	a = get(h, c, m, 1);
	b = get(h, c, m + 10 * PAGE, 1);
	d = get(h, c, m + 20 * PAGE, 1);
	H_STATUS(XPORT_ERR_AGAIN, xport_cache_get(c, m + 30 * PAGE, 1, &d));
	SVC_ERROR(XPORT_ERR_AGAIN, "xport_cache_get", "3 of them in use");
	H_OK(xport_cache_put(c, &b));
	b = get(h, c, m + 30 * PAGE, 1);
	H_OK(xport_cache_put(c, &a));
	H_OK(xport_cache_put(c, &b));
	H_OK(xport_cache_put(c, &d));
	H_OK(xport_cache_destroy(c));
	c = make(h, 0, 0, 10 * PAGE);
	touch(h, c, m, 5 * PAGE);
	touch(h, c, m + 10 * PAGE, 5 * PAGE);
	H_EQ(0, ask(h, c).evictions);
	touch(h, c, m + 20 * PAGE, PAGE);
	H_EQ(1, ask(h, c).evictions);
	H_EQ(6 * PAGE, ask(h, c).bytes);
	H_STATUS(XPORT_ERR_INVALID, xport_cache_get(c, m, 11 * PAGE, &a));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_cache_get", "above the limit");
	H_OK(xport_cache_destroy(c));
}

/* One that does not come about takes nothing away. */
static void refused(struct h *h)
{
	struct xport_cached a, b;
	uint8_t *m = h_buf(h, 64 * PAGE);
	xport_cache *c;

	h_open(h, NULL);
	c = make(h, 0, 1, 0);
	a = get(h, c, m + PAGE, 10);
	H_STATUS(XPORT_ERR_AGAIN, xport_cache_get(c, m, 3 * PAGE, &b));
	b = get(h, c, m + PAGE, 10);
	H_EQ(1, ask(h, c).hits);
	H_OK(xport_cache_put(c, &a));
	H_OK(xport_cache_put(c, &b));
	touch(h, c, m, 3 * PAGE);
	H_EQ(1, ask(h, c).entries);
	H_OK(xport_cache_destroy(c));
}

/* What the system has no more of is made room for, too. */
static void short_of_memory(struct h *h)
{
	struct xport_cached a, b;
	uint8_t *m = h_buf(h, 64 * PAGE);
	xport_cache *c;

	h_open(h, NULL);
	c = make(h, 0, 0, 0);
	a = get(h, c, m, 1);
	for (int i = 1; i <= 3; i++)
		touch(h, c, m + (size_t)(10 * i) * PAGE, 1);
	svc_wrap_reg(2);
	touch(h, c, m + 50 * PAGE, 1);
	H_EQ(2, ask(h, c).evictions);
	touch(h, c, m + 30 * PAGE, 1); /* the one used last */
	H_EQ(1, ask(h, c).hits);
	svc_wrap_reg(3);
	H_STATUS(XPORT_ERR_NO_MEMORY, xport_cache_get(c, m + 60 * PAGE, 1, &b));
	SVC_ERROR(XPORT_ERR_NO_MEMORY, "xport_cache_get", "");
	H_EQ(1, ask(h, c).entries);
	H_OK(xport_cache_put(c, &a));
	H_OK(xport_cache_destroy(c));
}

static void invalidate(struct h *h)
{
	struct xport_cached a, b;
	uint8_t *m = h_buf(h, 64 * PAGE);
	xport_cache *c;
	xport_mr *old;

	h_open(h, NULL);
	c = make(h, 0, 0, 0);
	touch(h, c, m, PAGE);
	touch(h, c, m + 2 * PAGE, 4 * PAGE);
	touch(h, c, m + 4 * PAGE, 4 * PAGE);
	touch(h, c, m + 10 * PAGE, PAGE);
	H_EQ(0, xport_cache_invalidate(c, m + PAGE, PAGE));
	H_EQ(4, ask(h, c).entries);
	H_EQ(0, xport_cache_invalidate(c, m + 5 * PAGE, 1));
	H_EQ(2, ask(h, c).entries);
	H_EQ(2, ask(h, c).invalidations);
	a = get(h, c, m, 10);
	b = get(h, c, m, 20);
	old = a.mr;
	H_EQ(1, xport_cache_invalidate(c, m, 1));
	H_OK(xport_cache_put(c, &a));
	H_EQ(1, xport_cache_invalidate(c, m, 1)); /* still one user */
	a = get(h, c, m, 10);
	H_TRUE(a.mr != old);
	H_EQ(3, ask(h, c).entries);
	H_OK(xport_cache_put(c, &b));
	H_EQ(2, ask(h, c).entries);
	H_OK(xport_cache_put(c, &a));
	H_EQ(0, xport_cache_invalidate(c, NULL, 0));
	H_EQ(0, xport_cache_invalidate(c, m, 64 * PAGE));
	H_EQ(0, ask(h, c).entries);
	H_EQ(0, ask(h, c).bytes);
	H_STATUS(XPORT_ERR_INVALID, xport_cache_get(c, NULL, 1, &a));
	H_STATUS(XPORT_ERR_INVALID, xport_cache_get(c, m, 0, &a));
	H_STATUS(XPORT_ERR_INVALID, xport_cache_get(c, m, SIZE_MAX, &a));
	H_STATUS(XPORT_ERR_INVALID, xport_cache_invalidate(c, m, SIZE_MAX));
	/* What cannot be read is refused by the library, in its own words.  Not a hole, into which somebody else could map something. */
	m = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	H_STATUS(XPORT_ERR_FAULT, xport_cache_get(c, m, 1, &a));
	SVC_ERROR(XPORT_ERR_FAULT, "xport_cache_get", "xport_mr_reg: ");
	munmap(m, PAGE);
	H_OK(xport_cache_destroy(c));
}

/* A posted receive holds up what was put too early. */
static void busy(struct h *h)
{
	uint8_t *m = h_buf(h, PAGE);
	struct xport_cached a;
	struct h_op *op;
	xport_cache *c;

	h_open(h, NULL);
	c = make(h, 0, 0, 0);
	a = get(h, c, m, PAGE);
	op = h_op(h, XPORT_OP_RECV);
	H_OK(xport_recv(
		h->x, m, PAGE, 1, 1,
		&(struct xport_opt){.size = sizeof(struct xport_opt), .context = op, .mr = a.mr, .id = &op->id}));
	H_OK(xport_cache_put(c, &a));
	H_EQ(XPORT_ERR_BUSY, xport_cache_invalidate(c, m, 1));
	H_STATUS(XPORT_ERR_BUSY, xport_cache_destroy(c));
	H_EQ(1, ask(h, c).entries);
	H_OK(xport_cancel(h->x, op->id));
	H_DONE_AS(XPORT_ERR_CANCELED, op);
	H_EQ(0, xport_cache_invalidate(c, m, 1));
	H_EQ(0, ask(h, c).entries);
	H_OK(xport_cache_destroy(c));
}

/* A put too many, when the registration is gone, and its place was taken by something else. */
static void put_twice(struct h *h)
{
	enum { PIECES = 64 };
	struct xport_cached a, b;
	uint8_t *m = h_buf(h, 64 * PAGE), *p[PIECES];
	xport_cache *c;

	h_open(h, NULL);
	c = make(h, 0, 1, 0);
	a = get(h, c, m, 1);
	H_OK(xport_cache_put(c, &a));
	H_EQ(0, xport_cache_invalidate(c, m, 1));
	/* Whatever was freed is somebody else's now, if it is anybody's. */
	for (size_t i = 0; i < PIECES; i++) {
		p[i] = malloc(16 + i / 4 * 8);
		H_TRUE(p[i] != NULL);
		memset(p[i], 1, 16 + i / 4 * 8);
	}
	H_STATUS(XPORT_ERR_INVALID, xport_cache_put(c, &a));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_cache_put", "not in use");
	for (size_t i = 0; i < PIECES; i++) {
		H_BYTES(p[i], 16 + i / 4 * 8, 1);
		free(p[i]);
	}
	b = get(h, c, m + 10 * PAGE, 1);
	H_STATUS(XPORT_ERR_INVALID, xport_cache_put(c, &a));
	H_EQ(1, ask(h, c).in_use);
	/* Forgotten, and gone with its last user. */
	H_EQ(1, xport_cache_invalidate(c, m + 10 * PAGE, 1));
	H_OK(xport_cache_put(c, &b));
	H_STATUS(XPORT_ERR_INVALID, xport_cache_put(c, &b));
	H_EQ(0, ask(h, c).entries);
	b.entry = m; /* not the cache's at all */
	H_STATUS(XPORT_ERR_INVALID, xport_cache_put(c, &b));
	b.entry = NULL;
	H_STATUS(XPORT_ERR_INVALID, xport_cache_put(c, &b));
	H_OK(xport_cache_destroy(c));
}

/* Against a list that is searched from end to end: whatever covers is found, and nothing is kept that it should not. */
static void at_random(struct h *h)
{
	enum { PAGES = 48, ROUNDS = 4000, HELD = 6 };
	uint8_t *m = h_buf(h, PAGES * PAGE);
	struct xport_cached held[HELD] = {{0}};
	unsigned seed = 7;
	xport_cache *c;

	h_open(h, NULL);
	c = make(h, 0, 12, 0);
	for (int i = 0; i < ROUNDS; i++) {
		int k = rand_r(&seed) % HELD, first = rand_r(&seed) % PAGES, n = 1 + rand_r(&seed) % (PAGES - first);

		if (held[k].mr != NULL)
			H_OK(xport_cache_put(c, &held[k]));
		held[k].mr = NULL;
		if (rand_r(&seed) % 8 == 0) {
			uint64_t misses;

			H_TRUE(xport_cache_invalidate(c, m + first * PAGE, (size_t)n * PAGE) >= 0);
			misses = ask(h, c).misses;
			touch(h, c, m + first * PAGE, 1);
			H_EQ(misses + 1, ask(h, c).misses);
			continue;
		}
		held[k] = get(h, c, m + first * PAGE, (size_t)n * PAGE);
		{
			uint64_t found = ask(h, c).hits;

			touch(h, c, m + (first + n / 2) * PAGE, 1);
			H_EQ(found + 1, ask(h, c).hits);
		}
		H_TRUE(ask(h, c).entries <= 12);
	}
	H_OK(xport_cache_destroy(c));
}

/* A peer's key to what was invalidated is stale. */
static void stale_target(struct h *h)
{
	uint8_t *m = h_buf(h, PAGE);
	struct h_key k = {.len = sizeof(k.bytes)};
	struct xport_cached a;
	xport_cache *c;

	h_mesh(h, NULL);
	c = make(h, H_ALL, 0, 0);
	h_fill(m, PAGE, 1);
	a = get(h, c, m, PAGE);
	H_OK(xport_rkey_pack(a.mr, k.bytes, &k.len));
	h_tell(h, 1, &k, sizeof(k));
	h_sync(h);
	H_EQ(1, xport_cache_invalidate(c, m, 1));
	h_sync(h); /* the user is not done: the key is as good as before */
	h_sync(h);
	H_OK(xport_cache_put(c, &a));
	h_sync(h);
	h_sync(h);
	H_OK(xport_cache_destroy(c));
}

static int read_page(struct h *h, xport_rkey *k, uint8_t *to)
{
	struct h_op *op = h_op(h, XPORT_OP_GET);
	struct xport_opt o = {.size = sizeof(o), .context = op};
	int r = xport_get(h->ep[0], to, PAGE, k, 0, &o);

	if (r != XPORT_OK) {
		h_op_drop(h, op);
		return r;
	}
	H_ENDED(op);
	return op->c.status;
}

static void stale_initiator(struct h *h)
{
	uint8_t *m = h_buf(h, PAGE);
	struct h_key key;
	xport_rkey *k;

	h_mesh(h, NULL);
	h_hear(h, 0, &key, sizeof(key));
	H_OK(xport_rkey_unpack(h->ep[0], key.bytes, key.len, &k));
	H_EQ(XPORT_OK, read_page(h, k, m));
	h_sync(h);
	h_sync(h);
	H_EQ(XPORT_OK, read_page(h, k, m));
	H_FILLED(m, PAGE, 1);
	h_sync(h);
	h_sync(h);
	H_EQ(XPORT_ERR_STALE_KEY, read_page(h, k, m));
	h_sync(h);
	xport_rkey_destroy(k);
}

const struct h_scenario svc_cases_cache[] = {
	{"cache_hits", {hits}, NULL, 0, 0},
	{"cache_exact", {exact}, NULL, 0, 0},
	{"cache_bounds", {bounds}, NULL, 0, 0},
	{"cache_refused", {refused}, NULL, 0, 0},
	{"cache_short_of_memory", {short_of_memory}, NULL, 0, 0},
	{"cache_invalidate", {invalidate}, NULL, 0, 0},
	{"cache_busy", {busy}, NULL, 0, 0},
	{"cache_put_twice", {put_twice}, NULL, 0, 0},
	{"cache_at_random", {at_random}, NULL, 0, 0},
	{"cache_stale", {stale_target, stale_initiator}, NULL, 0, 0},
	{0},
};
