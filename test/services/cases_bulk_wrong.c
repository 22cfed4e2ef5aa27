/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_bulk_wrong.c - descriptors that cannot be made, and bytes that are not one. */
#include <malloc.h>

#include "services/bulk.h"
#include "services/bulk_user.h"

/* ---- the owner ---- */

struct making {
	struct h *h;
	struct h_mem m;
	struct xport_bulk_attr a;
	xport_bulk *bulk;
};

static void refused(struct making *k, const struct xport_bulk_run *runs, size_t n, int status, const char *words)
{
	struct h *h = k->h;

	H_STATUS(status, xport_bulk_create(h->x, runs, n, &k->a, &k->bulk));
	SVC_ERROR(status, "xport_bulk_create", words);
	H_TRUE(k->bulk == NULL);
}

static void one_refused(struct making *k, struct xport_bulk_run run, int status, const char *words)
{
	run.mr = k->m.mr;
	refused(k, &run, 1, status, words);
}

static void wrong_runs(struct making *k)
{
	const uint64_t end = k->m.offset + BULK_SMALL + H_GUARD;
	struct h *h = k->h;
	struct xport_bulk_run two[2] = {{k->m.mr, 100, 10, 20, 5}, {k->m.mr, 109, 2, 0, 1}};

	one_refused(k, (struct xport_bulk_run){.length = 0, .count = 1}, XPORT_ERR_INVALID, "is 0");
	one_refused(k, (struct xport_bulk_run){.length = 1, .count = 0}, XPORT_ERR_INVALID, "is 0");
	one_refused(k, (struct xport_bulk_run){.length = 1, .count = UINT64_C(1) << 32}, XPORT_ERR_INVALID, "2^32");
	one_refused(k, (struct xport_bulk_run){.length = end * 2, .count = 1}, XPORT_ERR_BOUNDS, "inside its region");
	one_refused(k, (struct xport_bulk_run){.offset = end * 2, .length = 1, .count = 1}, XPORT_ERR_BOUNDS, "inside");
	one_refused(k, (struct xport_bulk_run){.length = 8, .stride = UINT64_MAX, .count = 3}, XPORT_ERR_BOUNDS,
	            "inside");
	one_refused(k, (struct xport_bulk_run){.offset = UINT64_MAX, .length = 8, .count = 1}, XPORT_ERR_BOUNDS,
	            "inside");
	one_refused(k, (struct xport_bulk_run){.length = 8, .stride = 8192, .count = 1000}, XPORT_ERR_BOUNDS, "inside");
	one_refused(k, (struct xport_bulk_run){.length = 8, .stride = 7, .count = 2}, XPORT_ERR_INVALID, "overlap");
	refused(k, two, 2, XPORT_ERR_INVALID, "overlap");
	two[1].offset = 110; /* between two pieces of the other one */
	two[1].length = 10;
	H_OK(xport_bulk_create(h->x, two, 2, &k->a, &k->bulk));
	H_EQ(60, bulk_info(h, k->bulk).length);
	xport_bulk_free(k->bulk);
	k->bulk = NULL;
}

/* Bytes that overlap may be read. So many bytes that their number overflows may not. */
static void wrong_reads(struct making *k)
{
	struct xport_bulk_run runs[2] = {{k->m.mr, 0, 100, 0, 1}, {k->m.mr, 50, 100, 0, 1}};
	struct h *h = k->h;

	k->a.rights = XPORT_REMOTE_READ;
	H_OK(xport_bulk_create(h->x, runs, 2, &k->a, &k->bulk));
	H_EQ(200, bulk_info(h, k->bulk).length);
	xport_bulk_free(k->bulk);
	k->bulk = NULL;
	runs[1] = (struct xport_bulk_run){k->m.mr, 0, BULK_SMALL, 0, UINT32_MAX};
	H_OK(xport_bulk_create(h->x, runs, 2, &k->a, &k->bulk)); /* the same bytes 2^32 - 1 times: 2^48 */
	xport_bulk_free(k->bulk);
	k->bulk = NULL;
	k->a.rights = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE;
}

static void wrong_attrs(struct making *k)
{
	struct xport_bulk_run run = {k->m.mr, 0, 8, 0, 1}, none = {NULL, 0, 8, 0, 1};
	const struct xport_bulk_attr good = k->a;
	struct h_mem readable;
	struct h *h = k->h;

	H_STATUS(XPORT_ERR_INVALID, xport_bulk_create(NULL, &run, 1, &k->a, &k->bulk));
	H_STATUS(XPORT_ERR_INVALID, xport_bulk_create(h->x, &run, 1, NULL, &k->bulk));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_bulk_create", "NULL");
	refused(k, &run, 0, XPORT_ERR_INVALID, "1 to 4096");
	refused(k, &run, XPORT_BULK_RUNS_MAX + 1, XPORT_ERR_INVALID, "1 to 4096");
	refused(k, &none, 1, XPORT_ERR_INVALID, "no region");
	k->a.rights = 0;
	refused(k, &run, 1, XPORT_ERR_INVALID, "rights");
	k->a.rights = XPORT_REMOTE_ATOMIC | XPORT_REMOTE_READ;
	refused(k, &run, 1, XPORT_ERR_INVALID, "rights");
	k->a = good;
	k->a.flags = XPORT_BULK_CHECKED;
	refused(k, &run, 1, XPORT_ERR_INVALID, "exclude each other");
	k->a.flags = 2;
	refused(k, &run, 1, XPORT_ERR_INVALID, "unknown bits");
	k->a = good;
	k->a.owner = "a b";
	refused(k, &run, 1, XPORT_ERR_INVALID, "printable");
	k->a.owner = "0123456789012345678901234567890123456789012345678901234567890123";
	refused(k, &run, 1, XPORT_ERR_INVALID, "63");
	k->a = good;
	k->a.size = 4;
	refused(k, &run, 1, XPORT_ERR_INVALID, "size");
	k->a = good;
	readable = h_mem_target(h, 64, 0, XPORT_REMOTE_READ);
	run.mr = readable.mr;
	refused(k, &run, 1, XPORT_ERR_ACCESS, "XPORT_REMOTE_WRITE");
	h_mem_free(h, &readable);
}

/* Regions without end. */
static void wrong_regions(struct making *k)
{
	struct xport_bulk_run runs[XPORT_BULK_REGIONS_MAX + 1];
	uint8_t *buf = h_buf(k->h, sizeof(runs));
	struct h *h = k->h;

	for (int i = 0; i <= XPORT_BULK_REGIONS_MAX; i++) {
		xport_mr *mr;

		H_OK(xport_mr_reg(h->x, buf + i, 1, k->a.rights, &mr));
		runs[i] = (struct xport_bulk_run){mr, 0, 1, 0, 1};
	}
	refused(k, runs, XPORT_BULK_REGIONS_MAX + 1, XPORT_ERR_INVALID, "more than 64 regions");
	H_OK(xport_bulk_create(h->x, runs, XPORT_BULK_REGIONS_MAX, &k->a, &k->bulk));
	H_EQ(XPORT_BULK_REGIONS_MAX, bulk_info(h, k->bulk).regions);
	xport_bulk_free(k->bulk);
	k->bulk = NULL;
	for (int i = 0; i <= XPORT_BULK_REGIONS_MAX; i++)
		H_OK(xport_mr_dereg(runs[i].mr));
}

/* A region of another instance. */
static void wrong_instance(struct making *k)
{
	struct xport_bulk_run run = {.length = 1, .count = 1};
	struct h *h = k->h;
	struct xport_attr a = h_attr(h);
	uint8_t *buf = h_buf(h, 64);
	xport *x;

	H_OK(xport_open(&a, &x));
	H_OK(xport_mr_reg(x, buf, 64, k->a.rights, &run.mr));
	refused(k, &run, 1, XPORT_ERR_INVALID, "of another instance");
	H_OK(xport_mr_dereg(run.mr));
	xport_close(x);
}

static void make_wrong(struct h *h)
{
	struct making k = {
		.h = h, .a = {.size = sizeof(k.a), .rights = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE, .owner = "h:1"}};
	struct xport_bulk_info info = {.size = 3};
	size_t len = 10;

	h_open(h, NULL);
	k.m = h_mem_target(h, BULK_SMALL, 0, H_ALL);
	wrong_runs(&k);
	wrong_reads(&k);
	wrong_attrs(&k);
	wrong_regions(&k);
	wrong_instance(&k);
	H_STATUS(XPORT_ERR_INVALID, xport_bulk_query(NULL, &info));
	H_STATUS(XPORT_ERR_INVALID, xport_bulk_pack(NULL, NULL, &len));
	H_STATUS(XPORT_ERR_INVALID, xport_bulk_sum(NULL, 0, 0, NULL));
	xport_bulk_free(NULL);
	h_mem_free(h, &k.m);
}

/* ---- what the keys open, and for how long ---- */

enum { PART_AT = 1000, PART_LEN = 1100 };

/* Two pieces of 100 bytes: the key opens what lies between them, too. */
static void part_owner(struct h *h)
{
	struct xport_bulk_attr a = {.size = sizeof(a), .rights = XPORT_REMOTE_READ};
	struct h_mem m;
	struct xport_bulk_run run = {.offset = PART_AT, .length = 100, .stride = 1000, .count = 2};
	struct xport_mr_info info = {.size = sizeof(info)};
	xport_bulk *bulk, *same;
	size_t before;

	h_mesh(h, NULL);
	m = h_mem_target(h, BULK_SMALL, 0, H_ALL);
	h_fill(m.p, BULK_SMALL, 1);
	run.mr = m.mr;
	run.offset += m.offset;
	H_OK(xport_bulk_create(h->x, &run, 1, &a, &bulk));
	H_OK(xport_bulk_create(h->x, &run, 1, &a, &same));
	H_EQ(bulk->d.key[0].len, same->d.key[0].len);
	H_TRUE(memcmp(bulk->d.key[0].bytes, same->d.key[0].bytes, same->d.key[0].len) != 0);
	H_OK(xport_mr_query(m.mr, &info));
	H_EQ(info.exact_parts, bulk_info(h, bulk).exact);
	bulk_tell(h, 1, bulk);
	xport_bulk_free(same); /* of the same pieces: its key is another one */
	h_hear_u64(h, 1);
	before = mallinfo2().uordblks;
	for (int i = 0; i < 1000; i++) {
		run.offset = m.offset + (uint64_t)i;
		H_OK(xport_bulk_create(h->x, &run, 1, &a, &same));
		xport_bulk_free(same);
	}
	H_TRUE(mallinfo2().uordblks < before + 100000);
	xport_bulk_free(bulk);
	h_tell_u64(h, 1, 1);
	h_hear_u64(h, 1);
	h_mem_free(h, &m);
	h_sync(h);
}

static void key_opens(struct bulk_user *u)
{
	struct xport_rkey_info info = {.size = sizeof(info)};
	struct h *h = u->h;
	struct svc_bulk_desc d;
	uint8_t to[64];
	xport_rkey *key;
	const char *why;

	H_OK(svc_bulk_decode(u->bytes, u->len, &d, &why));
	H_EQ(PART_LEN, d.key[0].length);
	H_EQ(0, d.run[0].offset);
	H_OK(xport_rkey_unpack(h->ep[0], d.key[0].bytes, d.key[0].len, &key));
	H_OK(xport_rkey_query(key, &info));
	H_EQ(PART_LEN, info.length);
	H_EQ(XPORT_REMOTE_READ, info.rights);
	H_STATUS(XPORT_ERR_BOUNDS, xport_get(h->ep[0], to, 2, key, PART_LEN - 1, NULL));
	H_STATUS(XPORT_ERR_ACCESS, xport_put(h->ep[0], to, 1, key, 0, NULL));
	xport_rkey_destroy(key);
	svc_bulk_desc_fini(&d);
}

/* After the end of the descriptor at its owner. A read that an adapter has begun may still succeed. */
static void pull_until_stale(struct bulk_user *u, xport_bulk *bulk, uint8_t *to)
{
	int64_t until = h_now_us() + (int64_t)h_ms(10000) * 1000;
	struct h *h = u->h;
	int status = XPORT_OK;

	while (status == XPORT_OK) {
		H_TRUE(h_now_us() < until);
		bulk_pull(u, bulk, 0, to, 200);
		status = BULK_NEXT(u, XPORT_BULK_DONE).status;
	}
	H_STATUS(XPORT_ERR_STALE_KEY, status);
}

static void part_user(struct h *h)
{
	struct bulk_user u;
	uint8_t *to;
	xport_bulk *bulk;

	bulk_begin(&u, h, NULL);
	to = h_buf(h, 200);
	bulk = bulk_hear(&u, 0);
	key_opens(&u);
	bulk_pull(&u, bulk, 0, to, 200);
	BULK_DONE(&u, XPORT_OK);
	h_tell_u64(h, 0, 1);
	while (!h_heard(h, 0))
		bulk_turn(&u);
	h_hear_u64(h, 0);
	pull_until_stale(&u, bulk, to);
	xport_bulk_free(bulk);
	h_tell_u64(h, 0, 1);
	bulk_end(&u);
	h_sync(h);
}

/* ---- hostile bytes ---- */

static void victim(struct h *h)
{
	struct xport_bulk_attr a = {.size = sizeof(a), .rights = XPORT_REMOTE_READ, .owner = h->address};
	struct bulk_owner o;

	h_mesh(h, NULL);
	bulk_own(&o, h, a.rights | XPORT_REMOTE_WRITE, 0);
	bulk_tell(h, 1, o.bulk);
	h_hear_u64(h, 1);
	H_FILLED(o.small.p, BULK_SMALL, 1);
	H_FILLED(o.large.p, BULK_LARGE, 2);
	bulk_disown(&o);
	h_sync(h);
}

struct forger {
	struct bulk_user *u;
	struct svc_bulk_desc d; /* a good one */
	struct svc_bulk_key key[XPORT_BULK_REGIONS_MAX + 1];
	struct svc_bulk_run run[XPORT_BULK_RUNS_MAX + 1];
	uint8_t bytes[256 * 1024];
};

static void forged(struct forger *f, const struct svc_bulk_desc *d, int status, const char *words)
{
	struct h *h = f->u->h;
	xport_bulk *bulk = NULL;
	size_t len = svc_bulk_packed(d);

	H_TRUE(len <= sizeof(f->bytes));
	svc_bulk_encode(d, f->bytes);
	H_STATUS(status, xport_bulk_unpack(h->ep[0], f->bytes, len, &bulk));
	SVC_ERROR(status, "xport_bulk_unpack", words);
	H_TRUE(bulk == NULL);
}

static struct svc_bulk_desc copy_of(struct forger *f)
{
	struct svc_bulk_desc d = f->d;

	memcpy(f->key, f->d.key, f->d.nkeys * sizeof(*f->key));
	memcpy(f->run, f->d.run, f->d.nruns * sizeof(*f->run));
	d.key = f->key;
	d.run = f->run;
	return d;
}

static void forge_runs(struct forger *f)
{
	struct svc_bulk_desc d = copy_of(f);

	d.run[0] = d.run[1]; /* the same bytes twice */
	forged(f, &d, XPORT_ERR_BAD_KEY, "overlap");
	d = copy_of(f);
	d.run[1].stride = d.run[1].length - 1;
	forged(f, &d, XPORT_ERR_BAD_KEY, "overlap");
	d = copy_of(f);
	d.run[0].offset = d.key[d.run[0].key].length - 1;
	forged(f, &d, XPORT_ERR_BAD_KEY, "inside its region");
	d = copy_of(f);
	d.run[0].count = 0;
	forged(f, &d, XPORT_ERR_BAD_KEY, "is 0");
	d = copy_of(f);
	d.run[0].key = d.nkeys;
	forged(f, &d, XPORT_ERR_BAD_KEY, "inside its region");
	d = copy_of(f);
	d.rights = XPORT_REMOTE_READ;
	d.key[0].length = UINT64_MAX;
	d.run[0] = (struct svc_bulk_run){.length = INT64_MAX, .count = 2};
	forged(f, &d, XPORT_ERR_BAD_KEY, "2^63");
	d.run[0] = (struct svc_bulk_run){.length = UINT64_MAX, .count = UINT32_MAX};
	forged(f, &d, XPORT_ERR_BAD_KEY, "2^63");
	d = copy_of(f);
	d.nruns = XPORT_BULK_RUNS_MAX + 1;
	memset(f->run, 0, sizeof(f->run));
	forged(f, &d, XPORT_ERR_BAD_KEY, "too many");
	/* So many pieces that lie across each other that nobody compares them. */
	d = copy_of(f);
	d.key[0].length = UINT64_C(1) << 40;
	d.nruns = 2;
	d.run[0] = (struct svc_bulk_run){.length = 1, .stride = 4, .count = 1 << 20};
	d.run[1] = (struct svc_bulk_run){.offset = 2, .length = 1, .stride = 4, .count = 1 << 20};
	forged(f, &d, XPORT_ERR_BAD_KEY, "too many pieces");
}

static void forge_heads(struct forger *f)
{
	struct svc_bulk_desc d = copy_of(f);

	d.incarnation++;
	forged(f, &d, XPORT_ERR_STALE_KEY, "is not this peer");
	d = copy_of(f);
	d.rights = 0;
	forged(f, &d, XPORT_ERR_BAD_KEY, "rights");
	d.rights = 64;
	forged(f, &d, XPORT_ERR_BAD_KEY, "rights");
	d = copy_of(f);
	d.flags = 2;
	forged(f, &d, XPORT_ERR_BAD_KEY, "flags");
	d.flags = XPORT_BULK_CHECKED;
	forged(f, &d, XPORT_ERR_BAD_KEY, "has a checksum");
	d = copy_of(f);
	d.nkeys = 0;
	forged(f, &d, XPORT_ERR_BAD_KEY, "no runs, or too many");
	d = copy_of(f);
	d.owner[0] = '\n';
	forged(f, &d, XPORT_ERR_BAD_KEY, "printable");
}

static void forge_keys(struct forger *f)
{
	struct svc_bulk_desc d = copy_of(f);

	d.key[1] = d.key[0];
	d.key[1].length = d.key[0].length = BULK_LARGE * 2;
	forged(f, &d, XPORT_ERR_BAD_KEY, "two keys are the same");
	d = copy_of(f);
	d.key[0].length += 1 << 20; /* more than the region has */
	forged(f, &d, XPORT_ERR_BAD_KEY, "allows less");
	d = copy_of(f);
	d.key[1].bytes[20] ^= 4;
	forged(f, &d, XPORT_ERR_BAD_KEY, "key 1 of 2");
	d = copy_of(f);
	d.key[0].len = 1;
	forged(f, &d, XPORT_ERR_BAD_KEY, "key 0 of 2");
	d.key[0].len = 0;
	forged(f, &d, XPORT_ERR_BAD_KEY, "too short or too long");
}

/* Each bit that is changed, and each length, is found. */
static void damaged(struct bulk_user *u)
{
	struct h *h = u->h;
	xport_bulk *bulk;

	for (size_t i = 0; i < u->len * 8; i++) {
		u->bytes[i / 8] ^= (uint8_t)(1 << i % 8);
		H_STATUS(XPORT_ERR_BAD_KEY, xport_bulk_unpack(h->ep[0], u->bytes, u->len, &bulk));
		u->bytes[i / 8] ^= (uint8_t)(1 << i % 8);
	}
	for (size_t len = 0; len < u->len; len++) {
		uint8_t *exact = malloc(len + 1); /* valgrind sees what is read behind it */

		memcpy(exact, u->bytes, len);
		H_STATUS(XPORT_ERR_BAD_KEY, xport_bulk_unpack(h->ep[0], exact, len, &bulk));
		free(exact);
	}
	H_STATUS(XPORT_ERR_BAD_KEY, xport_bulk_unpack(h->ep[0], u->bytes, u->len + 1, &bulk));
	SVC_ERROR(XPORT_ERR_BAD_KEY, "xport_bulk_unpack", "damaged");
	H_STATUS(XPORT_ERR_INVALID, xport_bulk_unpack(h->ep[0], NULL, 0, &bulk));
	H_STATUS(XPORT_ERR_INVALID, xport_bulk_unpack(h->ep[0], u->bytes, u->len, NULL));
}

static void hostile(struct h *h)
{
	struct forger *f = calloc(1, sizeof(*f));
	struct bulk_user u;
	const char *why;
	xport_bulk *bulk;
	uint8_t to[64];

	bulk_begin(&u, h, NULL);
	bulk = bulk_hear(&u, 0);
	f->u = &u;
	H_OK(svc_bulk_decode(u.bytes, u.len, &f->d, &why));
	forge_runs(f);
	forge_heads(f);
	forge_keys(f);
	damaged(&u);
	/* The good one is good still. */
	bulk_pull(&u, bulk, 0, to, sizeof(to));
	BULK_DONE(&u, XPORT_OK);
	svc_bulk_desc_fini(&f->d);
	free(f);
	xport_bulk_free(bulk);
	h_tell_u64(h, 0, 1);
	bulk_end(&u);
	h_sync(h);
}

const struct h_scenario svc_cases_bulk_wrong[] = {
	{.name = "bulk_make_wrong", .role = {make_wrong}, .flags = H_ONCE},
	{.name = "bulk_part", .role = {part_owner, part_user}, .flags = H_TARGET},
	{.name = "bulk_hostile_bytes", .role = {victim, hostile}, .flags = H_ONCE},
	{.name = NULL},
};
