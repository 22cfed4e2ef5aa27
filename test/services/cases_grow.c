/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_grow.c - structs of older and newer programs, as doc/abi.md has it. */
#include "conform/harness.h"
#include "services/grow.h"
#include "services/services.h"
#include "services/xport_services.h"

enum { ROOM = 8192, MORE = 16 };

/* ---- what the library reads ---- */

struct maker {
	const char *operation;
	size_t size, first;
	int (*make)(struct h *h, const void *attr); /* and unmake */
};

static int make_pool(struct h *h, const void *attr)
{
	xport_pool *p;
	int r = xport_pool_create(h->x, attr, &p);

	if (r == XPORT_OK)
		H_OK(xport_pool_destroy(p));
	return r;
}

static int make_cache(struct h *h, const void *attr)
{
	xport_cache *c;
	int r = xport_cache_create(h->x, attr, &c);

	if (r == XPORT_OK)
		H_OK(xport_cache_destroy(c));
	return r;
}

static int make_leases(struct h *h, const void *attr)
{
	xport_leases *l;
	int r = xport_leases_create(h->x, attr, &l);

	if (r == XPORT_OK)
		H_OK(xport_leases_destroy(l, NULL, NULL, h_ms(h->limit_ms)));
	return r;
}

static int make_far(struct h *h, const void *attr)
{
	xport_far *f;
	int r = xport_far_create(h->x, attr, &f);

	if (r == XPORT_OK)
		H_OK(xport_far_destroy(f, NULL, NULL, h_ms(h->limit_ms)));
	return r;
}

static int make_directory(struct h *h, const void *attr)
{
	xport_directory *d;
	int r = xport_directory_create(h->x, attr, &d);

	if (r == XPORT_OK)
		H_OK(xport_directory_destroy(d, NULL, NULL, h_ms(h->limit_ms)));
	return r;
}

static int make_rpcs(struct h *h, const void *attr)
{
	xport_rpcs *r;
	int status = xport_rpcs_create(h->x, attr, &r);

	if (status == XPORT_OK)
		H_OK(xport_rpcs_destroy(r, NULL, NULL, h_ms(h->limit_ms)));
	return status;
}

static int make_bulks(struct h *h, const void *attr)
{
	xport_bulks *b;
	int status = xport_bulks_create(h->x, attr, &b);

	if (status == XPORT_OK)
		H_OK(xport_bulks_destroy(b, NULL, NULL, h_ms(h->limit_ms)));
	return status;
}

static int make_link(struct h *h, const void *attr)
{
	const char *address = "127.0.0.1:1";
	xport_links *l;
	xport_link *link;
	int status;

	H_OK(xport_links_create(h->x, &l));
	status = xport_link_open(l, &address, 1, attr, &link);
	H_OK(xport_links_destroy(l, NULL, NULL, h_ms(h->limit_ms)));
	return status;
}

static int make_versioned(struct h *h, const void *attr)
{
	struct xport_versioned_attr *a = h_buf(h, ROOM);
	xport_versioned *v;
	xport_mr *mr;
	size_t need;
	int r;

	memcpy(a, attr, ROOM);
	a->form = XPORT_VERSIONED_SUMMED;
	a->length = 8;
	H_OK(xport_mr_alloc(h->x, 4096, H_ALL, &mr));
	need = xport_versioned_size(a);
	r = xport_versioned_create(mr, 0, a, &v);
	H_EQ(r == XPORT_OK, need != 0);
	if (r == XPORT_OK)
		xport_versioned_destroy(v);
	H_OK(xport_mr_dereg(mr));
	h_buf_free(h, a);
	return r;
}

static const struct maker makers[] = {
	{"xport_pool_create", sizeof(struct xport_pool_attr), SVC_FIRST_POOL_ATTR, make_pool},
	{"xport_cache_create", sizeof(struct xport_cache_attr), SVC_FIRST_CACHE_ATTR, make_cache},
	{"xport_leases_create", sizeof(struct xport_leases_attr), SVC_FIRST_LEASES_ATTR, make_leases},
	{"xport_far_create", sizeof(struct xport_far_attr), SVC_FIRST_FAR_ATTR, make_far},
	{"xport_directory_create", sizeof(struct xport_directory_attr), SVC_FIRST_DIRECTORY_ATTR, make_directory},
	{"xport_link_open", sizeof(struct xport_link_attr), SVC_FIRST_LINK_ATTR, make_link},
	{"xport_rpcs_create", sizeof(struct xport_rpcs_attr), SVC_FIRST_RPCS_ATTR, make_rpcs},
	{"xport_bulks_create", sizeof(struct xport_bulks_attr), SVC_FIRST_BULKS_ATTR, make_bulks},
	{"xport_versioned_create", sizeof(struct xport_versioned_attr), SVC_FIRST_VERSIONED_ATTR, make_versioned},
};

static int made(struct h *h, const struct maker *m, uint8_t *bytes, size_t size)
{
	memcpy(bytes, &size, sizeof(size));
	return m->make(h, bytes);
}

static void read_in(struct h *h)
{
	uint8_t *bytes = h_buf(h, ROOM);

	h_open(h, NULL);
	for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++) {
		const struct maker *m = &makers[i];

		memset(bytes, 0, ROOM);
		H_OK(made(h, m, bytes, m->size));
		H_OK(made(h, m, bytes, m->size + MORE));
		H_OK(made(h, m, bytes, 4096));
		H_STATUS(XPORT_ERR_INVALID, made(h, m, bytes, 4097));
		H_STATUS(XPORT_ERR_INVALID, made(h, m, bytes, m->first - 1));
		SVC_ERROR(XPORT_ERR_INVALID, m->operation, "sizeof");
		bytes[m->size + MORE - 1] = 1;
		H_STATUS(XPORT_ERR_NOT_SUPPORTED, made(h, m, bytes, m->size + MORE));
		SVC_ERROR(XPORT_ERR_NOT_SUPPORTED, m->operation, "unknown to this library");
		/* What is behind an older program's struct is none of it. */
		memset(bytes + m->first, 0xee, ROOM - m->first);
		H_OK(made(h, m, bytes, m->first));
	}
}

/* ---- what it writes ---- */

struct asked {
	xport_pool *pool;
	xport_cache *cache;
	xport_leases *leases;
	xport_directory *directory;
	xport_link *link;
	xport_rpcs *rpcs;
	xport_bulks *bulks;
};

static int ask_pool(struct asked *a, void *info)
{
	return xport_pool_query(a->pool, info);
}

static int ask_cache(struct asked *a, void *info)
{
	return xport_cache_query(a->cache, info);
}

static int ask_leases(struct asked *a, void *info)
{
	return xport_leases_query(a->leases, info);
}

static int ask_directory(struct asked *a, void *info)
{
	return xport_directory_query(a->directory, info);
}

static int ask_link(struct asked *a, void *info)
{
	return xport_link_query(a->link, info);
}

static int ask_rpcs(struct asked *a, void *info)
{
	return xport_rpcs_query(a->rpcs, info);
}

static int ask_bulks(struct asked *a, void *info)
{
	return xport_bulks_query(a->bulks, info);
}

static const struct {
	size_t size, first;
	int (*ask)(struct asked *a, void *info);
} queries[] = {
	{sizeof(struct xport_pool_info), SVC_FIRST_POOL_INFO, ask_pool},
	{sizeof(struct xport_cache_info), SVC_FIRST_CACHE_INFO, ask_cache},
	{sizeof(struct xport_leases_info), SVC_FIRST_LEASES_INFO, ask_leases},
	{sizeof(struct xport_directory_info), SVC_FIRST_DIRECTORY_INFO, ask_directory},
	{sizeof(struct xport_link_info), SVC_FIRST_LINK_INFO, ask_link},
	{sizeof(struct xport_rpcs_info), SVC_FIRST_RPCS_INFO, ask_rpcs},
	{sizeof(struct xport_bulks_info), SVC_FIRST_BULKS_INFO, ask_bulks},
};

static void write_out(struct h *h)
{
	const char *address = "127.0.0.1:1";
	uint8_t *bytes = h_buf(h, ROOM);
	xport_links *links;
	struct asked a;

	h_open(h, NULL);
	H_OK(xport_pool_create(h->x, NULL, &a.pool));
	H_OK(xport_cache_create(h->x, NULL, &a.cache));
	H_OK(xport_leases_create(h->x, NULL, &a.leases));
	H_OK(xport_directory_create(h->x, NULL, &a.directory));
	H_OK(xport_rpcs_create(h->x, NULL, &a.rpcs));
	H_OK(xport_bulks_create(h->x, NULL, &a.bulks));
	H_OK(xport_links_create(h->x, &links));
	H_OK(xport_link_open(links, &address, 1, NULL, &a.link));
	for (size_t i = 0; i < sizeof(queries) / sizeof(queries[0]); i++) {
		size_t size = queries[i].size + MORE, first = queries[i].first;

		memset(bytes, 0xee, ROOM);
		memcpy(bytes, &size, sizeof(size));
		H_OK(queries[i].ask(&a, bytes));
		H_TRUE(memcmp(bytes, &size, sizeof(size)) == 0);
		H_BYTES(bytes + queries[i].size, MORE, 0);
		H_BYTES(bytes + size, ROOM - size, 0xee);
		memset(bytes, 0xee, ROOM);
		memcpy(bytes, &first, sizeof(first));
		H_OK(queries[i].ask(&a, bytes));
		H_BYTES(bytes + first, ROOM - first, 0xee);
		size = first - 1;
		memcpy(bytes, &size, sizeof(size));
		H_STATUS(XPORT_ERR_INVALID, queries[i].ask(&a, bytes));
	}
	H_OK(xport_links_destroy(links, NULL, NULL, h_ms(h->limit_ms)));
	H_OK(xport_bulks_destroy(a.bulks, NULL, NULL, h_ms(h->limit_ms)));
	H_OK(xport_rpcs_destroy(a.rpcs, NULL, NULL, h_ms(h->limit_ms)));
	H_OK(xport_directory_destroy(a.directory, NULL, NULL, h_ms(h->limit_ms)));
	H_OK(xport_leases_destroy(a.leases, NULL, NULL, h_ms(h->limit_ms)));
	H_OK(xport_cache_destroy(a.cache));
	H_OK(xport_pool_destroy(a.pool));
}

/* Events and what is known of a lease: a newer program's. */
static void event_server(struct h *h)
{
	struct {
		struct xport_lease_event known;
		uint8_t more[MORE];
	} e;
	struct {
		struct xport_lease_info known;
		uint8_t more[MORE];
	} i;
	struct {
		struct xport_directory_event known;
		uint8_t more[MORE];
	} found;
	struct xport_directory_attr da = {.size = sizeof(da), .serve = 1};
	xport_directory *d;
	xport_leases *l;
	xport_lease *lease;

	h_mesh(h, NULL);
	H_OK(xport_leases_create(h->x, NULL, &l));
	h->idle = true;
	h_sync(h);
	H_OK(xport_lease_ask(l, h->ep[1], 8, XPORT_REMOTE_READ, l, &lease));
	memset(&e, 0xee, sizeof(e));
	e.known.size = sizeof(e);
	H_OK(xport_leases_wait(l, &e.known, NULL, NULL, h_ms(h->limit_ms)));
	H_EQ(sizeof(e), e.known.size);
	H_EQ(XPORT_LEASE_ENDED, e.known.type); /* it serves nobody */
	H_TRUE(e.known.lease == lease && e.known.context == l);
	H_BYTES(e.more, MORE, 0);
	memset(&i, 0xee, sizeof(i));
	i.known.size = sizeof(i);
	H_OK(xport_lease_query(lease, &i.known));
	H_EQ(XPORT_LEASE_OVER, i.known.state);
	H_BYTES(i.more, MORE, 0);
	H_OK(xport_lease_free(lease));
	h_tell_u64(h, 1, 1);
	H_OK(xport_directory_create(h->x, &da, &d));
	H_OK(xport_directory_find(d, "x", 1, d));
	memset(&found, 0xee, sizeof(found));
	found.known.size = sizeof(found);
	H_OK(xport_directory_wait(d, &found.known, NULL, NULL, h_ms(h->limit_ms)));
	H_EQ(sizeof(found), found.known.size);
	H_STATUS(XPORT_ERR_UNREACHABLE, found.known.status);
	H_BYTES(found.more, MORE, 0);
	H_OK(xport_directory_destroy(d, NULL, NULL, h_ms(h->limit_ms)));
	H_OK(xport_leases_destroy(l, NULL, NULL, h_ms(h->limit_ms)));
	h->idle = false;
	h_sync(h);
}

static void event_peer(struct h *h)
{
	struct xport_lease_event e = {.size = sizeof(e)};
	xport_leases *l;
	int r = 0;

	h_mesh(h, NULL);
	H_OK(xport_leases_create(h->x, NULL, &l));
	h->idle = true;
	h_sync(h);
	while (!h_heard(h, 0)) {
		r = xport_leases_wait(l, &e, NULL, NULL, 5);
		H_STATUS(XPORT_ERR_TIMEOUT, r);
	}
	h_hear_u64(h, 0);
	H_OK(xport_leases_destroy(l, NULL, NULL, h_ms(h->limit_ms)));
	h->idle = false;
	h_sync(h);
}

const struct h_scenario svc_cases_grow[] = {
	{"grow_in", {read_in}, NULL, H_ONCE, 0},
	{"grow_out", {write_out}, NULL, H_ONCE, 0},
	{"grow_events", {event_server, event_peer}, NULL, H_ONCE, 0},
	{0},
};
