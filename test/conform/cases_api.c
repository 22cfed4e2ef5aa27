/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_api.c - what every function promises of its arguments, texts and errors; regions good and bad. */
#include <sys/mman.h>

#include "harness.h"

enum { LEN = 65536 };

/* Every status has a name and a text of its own, and numbers that are none have one too. */
static void texts(struct h *h)
{
	int major, minor, patch;

	for (int s = 0; s >= XPORT_ERR_BUSY; s--) {
		const char *name = xport_status_name(s), *text = xport_strerror(s);

		H_CHECK(name && !strncmp(name, s ? "XPORT_ERR_" : "XPORT_OK", s ? 10 : 9), "%d: %s", s, name);
		H_CHECK(text && strlen(text) > 3, "%d: no text", s);
		for (int k = 0; k > s; k--) {
			H_CHECK(strcmp(name, xport_status_name(k)), "%d and %d are both %s", s, k, name);
			H_CHECK(strcmp(text, xport_strerror(k)), "%d and %d are both '%s'", s, k, text);
		}
	}
	H_TRUE(!strcmp(xport_status_name(XPORT_ERR_BOUNDS), "XPORT_ERR_BOUNDS"));
	H_TRUE(!strcmp(xport_status_name(XPORT_ERR_BUSY), "XPORT_ERR_BUSY"));
	for (int i = 0; i < 4; i++) {
		static const int none[] = {1, -27, INT32_MAX, INT32_MIN};

		H_TRUE(xport_strerror(none[i]) && xport_strerror(none[i])[0]);
		H_TRUE(xport_status_name(none[i]) && xport_status_name(none[i])[0]);
	}
	H_CHECK(sscanf(xport_version(), "%d.%d.%d", &major, &minor, &patch) == 3, "%s", xport_version());
}

/* The last error: filled, of the failure just seen, of this instance only, per thread without one. */
static void *other_thread(void *arg)
{
	struct xport_error e = {.size = sizeof(e)};

	*(int *)arg = xport_last_error(NULL, &e) == XPORT_OK ? e.status : 77;
	return NULL;
}

static void last_error(struct h *h)
{
	struct xport_error e = {.size = sizeof(e)}, f;
	struct xport_attr a = h_attr(h);
	xport *y = NULL;
	xport_mr *mr = NULL;
	pthread_t t;
	int seen = 99;

	h_open(h, NULL);
	H_STATUS(XPORT_ERR_INVALID, xport_mr_reg(h->x, NULL, 8, 0, &mr));
	H_OK(xport_last_error(h->x, &e));
	H_EQ(XPORT_ERR_INVALID, e.status);
	H_CHECK(!strcmp(e.operation, "xport_mr_reg"), "%s", e.operation);
	H_TRUE(e.text[0] != 0 && e.hint[0] != 0);
	H_STATUS(XPORT_ERR_INVALID, xport_last_error(h->x, NULL));
	f = e;
	f.size--;
	H_STATUS(XPORT_ERR_INVALID, xport_last_error(h->x, &f));
	a.backend = "nosuchthing";
	H_STATUS(XPORT_ERR_NO_BACKEND, xport_open(&a, &y));
	memset(&f, 0, sizeof(f));
	f.size = sizeof(f);
	H_OK(xport_last_error(NULL, &f));
	H_EQ(XPORT_ERR_NO_BACKEND, f.status);
	H_OK(xport_last_error(h->x, &f)); /* the instance's own is as it was */
	H_EQ(XPORT_ERR_INVALID, f.status);
	H_TRUE(pthread_create(&t, NULL, other_thread, &seen) == 0);
	pthread_join(t, NULL);
	H_CHECK(seen == XPORT_OK, "another thread sees %s", xport_status_name(seen));
}

/* Every struct that begins with its size is refused with another one. */
static void sizes(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct xport_info info = {0};
	struct xport_conn_attr ca = {0};
	struct xport_ep_info ei = {0};
	struct xport_mr_info mi = {0};
	struct xport_rkey_info ri = {0};
	struct xport_opt o = {0};
	struct xport_atomic_args aa = {.width = 8};
	struct xport_error e = {.size = sizeof(e)};
	struct h_mem m;
	struct h_key key;
	struct h_rkey r;
	xport *y = NULL;
	xport_listener *l = NULL;
	xport_ep *ep;
	int s;

	a.size = 4;
	s = xport_open(&a, &y);
	H_CHECK(s == XPORT_ERR_INVALID || s == XPORT_ERR_CONFIG, "%s", xport_status_name(s));
	h_open(h, NULL);
	h_listen(h);
	H_OK(xport_connect(h->x, h->address, NULL, 0, &ep));
	h_accept(h);
	H_EVENT(XPORT_EVENT_CONNECTED);
	m = h_mem_target(h, LEN, 0, H_ALL);
	key = h_key_pack(h, &m);
	r = h_unpack(h, ep, &key);
	H_STATUS(XPORT_ERR_INVALID, xport_query(h->x, &info));
	H_STATUS(XPORT_ERR_INVALID, xport_ep_query(ep, &ei));
	H_STATUS(XPORT_ERR_INVALID, xport_mr_query(m.mr, &mi));
	H_STATUS(XPORT_ERR_INVALID, xport_rkey_query(r.k, &ri));
	H_STATUS(XPORT_ERR_INVALID, xport_listen(h->x, "127.0.0.1:0", &ca, &l));
	H_STATUS(XPORT_ERR_INVALID, xport_put(ep, m.p, 8, r.k, r.offset, &o));
	H_STATUS(XPORT_ERR_INVALID, xport_send(ep, m.p, 8, 1, &o));
	H_STATUS(XPORT_ERR_INVALID, xport_recv(h->x, m.p, 8, 1, 1, &o));
	H_STATUS(XPORT_ERR_INVALID, xport_atomic(ep, &aa, r.k, r.offset, NULL));
	/* of each of them the last error says whose it was */
	H_OK(xport_last_error(h->x, &e));
	ei.size = sizeof(ei);
	H_OK(xport_ep_query(ep, &ei));
	H_CHECK(!strcmp(e.peer, ei.peer) && !strcmp(e.operation, "xport_atomic"), "%s %s", e.operation, e.peer);
	H_STATUS(XPORT_ERR_BOUNDS, xport_put(ep, m.p, 8, r.k, UINT64_MAX - 8, NULL));
	H_OK(xport_last_error(h->x, &e));
	H_CHECK(!strcmp(e.peer, ei.peer) && !strcmp(e.operation, "xport_put") && e.text[0] && e.hint[0], "%s %s: %s",
	        e.operation, e.peer, e.text);
	H_STATUS(XPORT_ERR_INVALID, xport_recv(h->x, m.p, 8, 1, 1, &o));
	H_OK(xport_last_error(h->x, &e));
	H_CHECK(e.peer[0] == 0, "a receive from any has no peer, %s", e.peer);
	/* without options all is default */
	H_OK(xport_put(ep, m.p, 8, r.k, r.offset, NULL));
	H_TRUE(H_EVENT(XPORT_OP_PUT).context == NULL);
}

/* Flags that do not exist or do not belong to the operation. */
static void flags(struct h *h)
{
	struct xport_opt o = {.size = sizeof(o), .flags = UINT32_C(1) << 31};
	struct h_mem m;
	struct h_key key;
	struct h_rkey r;
	xport_ep *ep;

	h_open(h, NULL);
	h_listen(h);
	H_OK(xport_connect(h->x, h->address, NULL, 0, &ep));
	h_accept(h);
	H_EVENT(XPORT_EVENT_CONNECTED);
	m = h_mem_target(h, LEN, 0, H_ALL);
	key = h_key_pack(h, &m);
	r = h_unpack(h, ep, &key);
	H_STATUS(XPORT_ERR_INVALID, xport_put(ep, m.p, 8, r.k, r.offset, &o));
	H_STATUS(XPORT_ERR_INVALID, xport_get(ep, m.p, 8, r.k, r.offset, &o));
	o.flags = XPORT_LOCAL;
	H_STATUS(XPORT_ERR_INVALID, xport_get(ep, m.p, 8, r.k, r.offset, &o));
	o.flags = XPORT_QUIET;
	H_STATUS(XPORT_ERR_INVALID, xport_recv(h->x, m.p, 8, 1, 1, &o));
	o.flags = XPORT_EAGER;
	H_STATUS(XPORT_ERR_INVALID, xport_put(ep, m.p, 8, r.k, r.offset, &o));
	H_STATUS(XPORT_ERR_INVALID, xport_send(ep, m.p, 8, 1, &o));
	h_run_for(h, 10);
	H_EQ(0, h->nqueue);
}

/* ---- regions ---- */

/* What cannot be a region is refused by its kind of fault, and nothing is made. */
static void bad_regions(struct h *h)
{
	xport_mr *mr = (xport_mr *)&mr;
	uint8_t *p = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *rw;

	h_open(h, NULL);
	rw = h_buf(h, 4096);
	H_TRUE(p != MAP_FAILED);
	H_STATUS(XPORT_ERR_INVALID, xport_mr_reg(h->x, NULL, 4096, H_ALL, &mr));
	H_STATUS(XPORT_ERR_INVALID, xport_mr_reg(h->x, rw, 0, H_ALL, &mr));
	H_STATUS(XPORT_ERR_INVALID, xport_mr_reg(h->x, rw, SIZE_MAX, H_ALL, &mr));
	H_STATUS(XPORT_ERR_INVALID, xport_mr_reg(h->x, rw, SIZE_MAX - (uintptr_t)rw + 2, H_ALL, &mr));
	H_STATUS(XPORT_ERR_INVALID, xport_mr_reg(h->x, (void *)(UINTPTR_MAX - 100), 4096, H_ALL, &mr));
	H_STATUS(XPORT_ERR_INVALID, xport_mr_reg(h->x, rw, 4096, 8, &mr));
	H_STATUS(XPORT_ERR_INVALID, xport_mr_reg(h->x, rw, 4096, 0xffffffff, &mr));
	H_STATUS(XPORT_ERR_INVALID, xport_mr_alloc(h->x, 4096, 8, &mr));
	H_STATUS(XPORT_ERR_FAULT, xport_mr_reg(h->x, (void *)16, 4096, H_ALL, &mr));
	H_STATUS(XPORT_ERR_FAULT, xport_mr_reg(h->x, (void *)((uintptr_t)1 << 46), 4096, 0, &mr));
	/* A hole in the middle; not a real one, into which somebody else could map something. */
	mprotect(p + 4 * 4096, 4096, PROT_NONE);
	H_STATUS(XPORT_ERR_FAULT, xport_mr_reg(h->x, p, 8 * 4096, H_ALL, &mr));
	H_STATUS(XPORT_ERR_FAULT, xport_mr_reg(h->x, p, 4 * 4096 + 1, XPORT_REMOTE_READ, &mr));
	H_TRUE(mr == (xport_mr *)&mr);
	H_OK(xport_mr_reg(h->x, p, 4 * 4096, H_ALL, &mr));
	H_OK(xport_mr_dereg(mr));
	H_OK(xport_mr_dereg(NULL));
	mprotect(p, 4096, PROT_READ);
	H_STATUS(XPORT_ERR_FAULT, xport_mr_reg(h->x, p, 2 * 4096, XPORT_REMOTE_WRITE, &mr));
	H_STATUS(XPORT_ERR_FAULT, xport_mr_reg(h->x, p, 2 * 4096, XPORT_REMOTE_ATOMIC, &mr));
	mprotect(p + 4096, 4096, PROT_NONE);
	H_STATUS(XPORT_ERR_FAULT, xport_mr_reg(h->x, p, 2 * 4096, XPORT_REMOTE_READ, &mr));
	munmap(p, 8 * 4096);
}

/* Read-only memory can be read by peers. */
static const char constant[] = "this lies in memory that nobody may write, and is longer than a word";

static void read_only(struct h *h)
{
	struct h_mem m = {.p = (uint8_t *)(uintptr_t)constant, .len = sizeof(constant)};

	h_mesh(h, NULL);
	H_OK(xport_mr_reg(h->x, m.p, m.len, XPORT_REMOTE_READ, &m.mr));
	h_share(h, 1, &m);
	h_sync(h);
	H_OK(xport_mr_dereg(m.mr));
}

static void reader(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;

	h_mesh(h, NULL);
	l = h_mem_local(h, sizeof(constant), 0);
	r = h_import(h, 0);
	H_DONE(h_get(h, h->ep[0], H_AT(l, 0, sizeof(constant)), &r, 0));
	H_TRUE(!memcmp(l.p, constant, sizeof(constant)));
	H_STATUS(XPORT_ERR_ACCESS, xport_put(h->ep[0], l.p, 1, r.k, 0, NULL));
	h_sync(h);
}

/*
 * What is to write into a read-only part of a region is refused when it is posted, whatever would carry it; the writable
 * part of the same region takes it.
 */
static void no_writing_target(struct h *h)
{
	struct h_mem m;
	uint64_t word = 7;

	h_mesh(h, NULL);
	m = h_mem_target(h, 4096, 0, H_ALL);
	h_fill(m.p, 4096, 3);
	h_share(h, 1, &m);
	h_sync(h);
	H_DONE(h_send(h, h->ep[1], &word, 8, 1));
	h_sync(h);
}

static void refused_writes(struct h *h, struct h_mem *m, uint8_t *at, const struct h_rkey *r)
{
	struct xport_atomic_args a = {.size = sizeof(a), .op = XPORT_ATOMIC_ADD, .width = 8, .result = at + 28};
	struct xport_opt o = {.size = sizeof(o), .mr = m->mr};
	struct xport_error e = {.size = sizeof(e)};

	H_STATUS(XPORT_ERR_FAULT, xport_get(h->ep[0], at, 64, r->k, r->offset, &o));
	H_OK(xport_last_error(h->x, &e));
	H_CHECK(e.status == XPORT_ERR_FAULT && strstr(e.text, "read-only") != NULL, "says \"%s\"", e.text);
	H_STATUS(XPORT_ERR_FAULT, xport_recv(h->x, at, 64, 1, UINT64_MAX, &o));
	H_STATUS(XPORT_ERR_FAULT, xport_atomic(h->ep[0], &a, r->k, r->offset, &o));
	o.flags = XPORT_QUIET;
	H_STATUS(XPORT_ERR_FAULT, xport_get(h->ep[0], at, 64, r->k, r->offset, &o));
	H_EQ(0x11, at[0]);
}

static void no_writing(struct h *h)
{
	struct h_mem m = {.len = 3 * 4096};
	struct h_rkey r;
	struct h_op *op;

	h_mesh(h, NULL);
	m.p = mmap(NULL, m.len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	H_TRUE(m.p != MAP_FAILED);
	memset(m.p, 0x11, m.len);
	H_EQ(0, mprotect(m.p + 4096, 4096, PROT_READ));
	H_OK(xport_mr_reg(h->x, m.p, m.len, 0, &m.mr));
	r = h_import(h, 0);
	refused_writes(h, &m, m.p + 4096, &r);
	refused_writes(h, &m, m.p + 4096 - 32, &r); /* it ends there */
	H_DONE(h_get(h, h->ep[0], H_AT(m, 2 * 4096, 4096), &r, 0));
	H_FILLED(m.p + 2 * 4096, 4096, 3);
	H_DONE(h_put(h, h->ep[0], H_AT(m, 4096, 64), &r, 0, 0));
	op = h_recv_at(h, H_AT(m, 0, 64), 1);
	h_sync(h);
	H_DONE(op);
	H_EQ(0, mprotect(m.p + 4096, 4096, PROT_READ | PROT_WRITE));
	H_DONE(h_get(h, h->ep[0], H_AT(m, 4096, 4096), &r, 0));
	h_sync(h);
	H_OK(xport_mr_dereg(m.mr));
	munmap(m.p, m.len);
}

/* What nobody may write is sent and put from, registered or not.  The first bytes differ, so that it is no page of zeros. */
static const uint8_t constants[100000] = {1, 2, 3, 4, 5, 6, 7, 8};
static const size_t constant_sizes[] = {8, 2000, 7000, sizeof(constants)};

enum { CONSTANTS = sizeof(constant_sizes) / sizeof(constant_sizes[0]) };

static void constants_target(struct h *h)
{
	struct h_mem m;
	uint8_t *buf;

	h_mesh(h, NULL);
	m = h_mem_target(h, sizeof(constants), 0, H_ALL);
	h_share(h, 1, &m);
	buf = h_buf(h, sizeof(constants));
	for (int i = 0; i < CONSTANTS; i++) {
		size_t len = constant_sizes[i];

		H_DONE(h_recv(h, NULL, buf, sizeof(constants), 5, UINT64_MAX));
		H_TRUE(!memcmp(buf, constants, len));
		H_TRUE(!memcmp(m.p, constants, len)); /* put before it */
	}
	h_sync(h);
}

static void constants_source(struct h *h)
{
	struct h_mem m = {.p = (uint8_t *)(uintptr_t)constants, .len = sizeof(constants)};
	struct h_rkey r;

	h_mesh(h, NULL);
	r = h_import(h, 0);
	for (int i = 0; i < CONSTANTS; i++) {
		H_DONE(h_put(h, h->ep[0], H_AT(m, 0, constant_sizes[i]), &r, 0, 0));
		H_DONE(h_send(h, h->ep[0], constants, constant_sizes[i], 5));
	}
	h_sync(h);
}

/* The same memory twice, and regions that overlap: keys of their own, lives of their own. */
static void overlap_target(struct h *h)
{
	struct h_mem a, b = {.len = 4096}, c = {.len = 8192};
	uint8_t *p;

	h_mesh(h, NULL);
	p = h_buf(h, 8192);
	a = b;
	a.p = b.p = p;
	c.p = p + 100;
	c.len = 8000;
	H_OK(xport_mr_reg(h->x, a.p, a.len, H_ALL, &a.mr));
	H_OK(xport_mr_reg(h->x, b.p, b.len, XPORT_REMOTE_READ, &b.mr));
	H_OK(xport_mr_reg(h->x, c.p, c.len, H_ALL, &c.mr));
	h_share(h, 1, &a);
	h_share(h, 1, &b);
	h_share(h, 1, &c);
	h_sync(h);
	H_FILLED(p, 100, 1);
	H_FILLED(p + 100, 8000, 2);
	H_OK(xport_mr_dereg(a.mr));
	h_sync(h);
	h_sync(h);
	H_FILLED(p, 100, 1);
	H_FILLED(p + 100, 8000, 3);
}

static void overlap(struct h *h)
{
	struct h_mem l;
	struct h_rkey a, b, c;
	struct xport_opt o = {.size = sizeof(o)};
	struct h_op *op;
	int s;

	h_mesh(h, NULL);
	l = h_mem_local(h, 8192, 0);
	a = h_import(h, 0);
	b = h_import(h, 0);
	c = h_import(h, 0);
	h_fill(l.p, 4096, 1);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, 4096), &a, 0, 0));
	H_STATUS(XPORT_ERR_ACCESS, xport_put(h->ep[0], l.p, 8, b.k, 0, NULL));
	h_fill(l.p, 8000, 2);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, 8000), &c, 0, 0));
	h_sync(h);
	h_sync(h);
	op = h_op(h, XPORT_OP_PUT);
	o.context = op;
	memset(l.p, 0x5a, 8);
	s = xport_put(h->ep[0], l.p, 8, a.k, 0, &o);
	if (s == XPORT_OK) /* the news had not come here yet: the target refuses */
		H_DONE_AS(XPORT_ERR_STALE_KEY, op);
	else
		H_STATUS(XPORT_ERR_STALE_KEY, s);
	if (s != XPORT_OK)
		h_op_drop(h, op);
	h_fill(l.p, 8000, 3);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, 8000), &c, 0, 0));
	H_DONE(h_get(h, h->ep[0], H_AT(l, 0, 8), &b, 100));
	h_sync(h);
}

/* The bytes of a key are good on every endpoint to the instance that packed them, also on a later one. */
static void key_owner(struct h *h)
{
	struct h_mem t;
	struct h_key key;

	h_open(h, NULL);
	t = h_mem_target(h, 4096, 0, H_ALL);
	key = h_key_pack(h, &t);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	h_tell(h, 1, &key, sizeof(key));
	for (uint64_t i = 1; i <= 2; i++) {
		xport_ep *ep = h_accept(h);

		h_sync(h);
		H_FILLED(t.p, 4096, i);
		H_EVENT(XPORT_EVENT_CLOSED);
		xport_ep_destroy(ep);
	}
	h_mem_free(h, &t);
}

static void key_twice(struct h *h)
{
	struct h_mem l;
	struct h_key key;
	char address[80];

	h_open(h, NULL);
	l = h_mem_local(h, 4096, 0);
	h_hear(h, 0, address, sizeof(address));
	h_hear(h, 0, &key, sizeof(key));
	for (uint64_t i = 1; i <= 2; i++) {
		xport_ep *ep = h_connect(h, address);
		struct h_rkey r = h_unpack(h, ep, &key);

		h_fill(l.p, 4096, i);
		H_DONE(h_put(h, ep, H_AT(l, 0, 4096), &r, 0, 0));
		h_sync(h);
		xport_rkey_destroy(r.k);
		H_OK(xport_ep_close(ep, h_ms(20000)));
		xport_ep_destroy(ep);
	}
	h_mem_free(h, &l);
}

/* What is said of a region is so; allocated memory is zeroed and begins a page. */
static void region_facts(struct h *h)
{
	struct xport_mr_info info = {.size = sizeof(info)};
	static const size_t lens[] = {1, 7, 4096, 4097, 1 << 20};
	uint8_t *buf;
	xport_mr *mr;

	h_open(h, NULL);
	buf = h_buf(h, 4096);
	H_OK(xport_mr_reg(h->x, buf + 3, 77, XPORT_REMOTE_READ, &mr));
	H_OK(xport_mr_query(mr, &info));
	H_TRUE(info.base == buf + 3 && info.length == 77 && info.rights == XPORT_REMOTE_READ && !info.allocated);
	H_OK(xport_mr_dereg(mr));
	for (int i = 0; i < 5; i++) {
		H_OK(xport_mr_alloc(h->x, lens[i], H_ALL, &mr));
		H_OK(xport_mr_query(mr, &info));
		H_TRUE(info.length == lens[i] && info.rights == H_ALL && info.allocated);
		H_TRUE((uintptr_t)info.base % 4096 == 0);
		H_BYTES(info.base, lens[i], 0);
		memset(info.base, 0xff, lens[i]);
		H_OK(xport_mr_dereg(mr));
	}
	for (int i = 0; i < 3000; i++) {
		H_OK(xport_mr_reg(h->x, buf, 4096, H_ALL, &mr));
		H_OK(xport_mr_dereg(mr));
	}
}

/* Very many regions alive at once. */
static void many_regions(struct h *h)
{
	xport_mr **mr;
	uint8_t *buf;

	h_open(h, NULL);
	mr = h_buf(h, 5000 * sizeof(*mr));
	buf = h_buf(h, 5000 * 64);
	for (int i = 0; i < 5000; i++)
		H_OK(xport_mr_reg(h->x, buf + i * 64, 64, H_ALL, &mr[i]));
	for (int i = 0; i < 5000; i += 2)
		H_OK(xport_mr_dereg(mr[i]));
	/* the rest goes with the instance */
}

/* A local region that does not hold the buffer is refused. */
static void wrong_local_region(struct h *h)
{
	struct xport_opt o = {.size = sizeof(o)};
	struct h_mem a, b;
	struct h_key key;
	struct h_rkey r;
	xport_ep *ep;

	h_open(h, NULL);
	h_listen(h);
	H_OK(xport_connect(h->x, h->address, NULL, 0, &ep));
	h_accept(h);
	H_EVENT(XPORT_EVENT_CONNECTED);
	a = h_mem_target(h, 4096, 0, H_ALL);
	b = h_mem_target(h, 4096, 0, H_ALL);
	key = h_key_pack(h, &a);
	r = h_unpack(h, ep, &key);
	o.mr = b.mr;
	H_STATUS(XPORT_ERR_INVALID, xport_put(ep, a.p, 8, r.k, r.offset, &o));
	H_STATUS(XPORT_ERR_INVALID, xport_get(ep, a.p, 8, r.k, r.offset, &o));
	H_STATUS(XPORT_ERR_INVALID, xport_put(ep, b.p + 4090, 4096, r.k, r.offset, &o));
	H_STATUS(XPORT_ERR_INVALID, xport_send(ep, a.p, 8, 1, &o));
	h_run_for(h, 10);
	H_EQ(0, h->nqueue);
}

const struct h_scenario cases_api[] = {
	{.name = "P11_texts_of_all_statuses", .role = {texts}, .flags = H_ONCE},
	{.name = "P11_last_error", .role = {last_error}},
	{.name = "P7_sizes_of_structs", .role = {sizes}},
	{.name = "P7_flags", .role = {flags}},
	{.name = "P7_regions_that_are_none", .role = {bad_regions}},
	{.name = "P6_read_only_memory", .role = {read_only, reader}},
	{.name = "P6_into_read_only_memory", .role = {no_writing_target, no_writing}, .flags = H_TARGET},
	{.name = "P6_from_read_only_memory", .role = {constants_target, constants_source}},
	{.name = "P16_regions_that_overlap", .role = {overlap_target, overlap}},
	{.name = "P16_key_bytes_on_a_later_endpoint", .role = {key_owner, key_twice}},
	{.name = "P12_region_facts", .role = {region_facts}},
	{.name = "P8_five_thousand_regions", .role = {many_regions}},
	{.name = "P6_buffer_outside_its_local_region", .role = {wrong_local_region}, .flags = H_TARGET},
	{.name = NULL},
};
