/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_pool.c - the pool in one process. */
#include <stdlib.h>
#include <sys/resource.h>

#include "conform/harness.h"
#include "services/services.h"
#include "services/wrap.h"
#include "services/xport_services.h"

enum { KIB = 1024, MIB = 1024 * KIB };

void svc_expect_error(struct h *h, const char *file, int line, int status, const char *operation, const char *words)
{
	struct xport_error e = {.size = sizeof(e)};

	H_OK(xport_services_last_error(&e));
	if (e.status != status || strcmp(e.operation, operation) != 0 ||
	    (strstr(e.text, words) == NULL && strstr(e.hint, words) == NULL))
		h_fail(h, file, line, "last error", "%s: %s: %s (%s), not %s: %s: %s", xport_status_name(e.status),
		       e.operation, e.text, e.hint, xport_status_name(status), operation, words);
}

xport_pool *svc_pool_make(struct h *h, uint32_t flags, size_t max_bytes)
{
	struct xport_pool_attr a = {.size = sizeof(a),
	                            .flags = flags,
	                            .max_bytes = max_bytes,
	                            .slab_bytes = MIB,
	                            .rights = XPORT_REMOTE_READ};
	xport_pool *p = NULL;

	H_OK(xport_pool_create(h->x, &a, &p));
	return p;
}

struct xport_pool_info svc_pool_ask(struct h *h, xport_pool *p)
{
	struct xport_pool_info i = {.size = sizeof(i)};

	H_OK(xport_pool_query(p, &i));
	return i;
}

static struct xport_block take(struct h *h, xport_pool *p, size_t len, size_t align)
{
	struct xport_block b = {0};

	H_OK(xport_pool_alloc(p, len, align, &b));
	return b;
}

/* ---- blocks ---- */

static void check_block(struct h *h, const struct xport_block *b, size_t len, size_t align)
{
	struct xport_mr_info m = {.size = sizeof(m)};

	H_OK(xport_mr_query(b->mr, &m));
	H_TRUE((char *)m.base + b->offset == b->address);
	H_TRUE(b->length >= len && b->offset + b->length <= m.length);
	H_EQ(XPORT_REMOTE_READ, m.rights);
	H_EQ(0, (uintptr_t)b->address % (align < 64 ? 64 : align));
}

/* Sizes around each power of two, and of several spans; none touches another. */
static void blocks(struct h *h)
{
	static const size_t aligns[] = {0, 1, 64, 128, 4096, 65536};
	struct xport_block b[400];
	xport_pool *p;
	int n = 0;

	h_open(h, NULL);
	p = svc_pool_make(h, (uint32_t)h->param, 0);
	for (size_t size = 1; size <= 512 * KIB; size *= 2) {
		for (size_t d = 0; d < 3; d++) {
			size_t len = size + d - 1, align = aligns[n % 6];

			if (len == 0)
				continue;
			b[n] = take(h, p, len, align);
			check_block(h, &b[n], len, align);
			b[n].length = len;
			h_fill(b[n].address, len, (uint64_t)n);
			n++;
		}
	}
	H_TRUE(svc_pool_ask(h, p).in_use > 3 * 1000 * KIB);
	for (int i = 0; i < n; i++) {
		H_FILLED(b[i].address, b[i].length, (uint64_t)i);
		H_OK(xport_pool_free(p, b[i].address));
	}
	H_EQ(0, svc_pool_ask(h, p).in_use);
	H_EQ(n, svc_pool_ask(h, p).allocations);
	H_EQ(n, svc_pool_ask(h, p).frees);
	H_OK(xport_pool_destroy(p));
}

/* What was given back is handed out again, and nothing is registered for it. */
static void steady(struct h *h)
{
	struct xport_pool_info before, after;
	struct xport_block b[64];
	xport_pool *p;

	h_open(h, NULL);
	p = svc_pool_make(h, 0, 0);
	for (int round = 0; round < 2000; round++) {
		size_t len = (size_t)(round % 20 == 19 ? 100000 : 64 << round % 10);

		if (round == 20)
			before = svc_pool_ask(h, p);
		for (int i = 0; i < 16; i++)
			b[i] = take(h, p, len, 0);
		for (int i = 0; i < 16; i++)
			H_OK(xport_pool_free(p, b[i].address));
	}
	after = svc_pool_ask(h, p);
	H_EQ(before.registrations, after.registrations);
	H_EQ(before.registered, after.registered);
	H_TRUE(after.refills - before.refills < (after.allocations - before.allocations) / 4);
	H_OK(xport_pool_destroy(p));
}

static void wrong(struct h *h)
{
	struct xport_pool_attr a = {.size = offsetof(struct xport_pool_attr, node)};
	struct xport_pool_info i = {.size = 8};
	struct xport_mr_info m = {.size = sizeof(m)};
	struct xport_block b, c, large;
	xport_pool *p = NULL;

	h_open(h, NULL);
	H_STATUS(XPORT_ERR_INVALID, xport_pool_create(h->x, &a, &p));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_pool_create", "size");
	a = (struct xport_pool_attr){.size = sizeof(a), .flags = 64};
	H_STATUS(XPORT_ERR_INVALID, xport_pool_create(h->x, &a, &p));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_pool_create", "flags");
	a = (struct xport_pool_attr){.size = sizeof(a), .rights = 32};
	H_STATUS(XPORT_ERR_INVALID, xport_pool_create(h->x, &a, &p));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_pool_create", "rights");
	a = (struct xport_pool_attr){.size = sizeof(a), .slab_bytes = 1000};
	H_STATUS(XPORT_ERR_INVALID, xport_pool_create(h->x, &a, &p));
	a = (struct xport_pool_attr){.size = sizeof(a), .node = -3};
	H_STATUS(XPORT_ERR_INVALID, xport_pool_create(h->x, &a, &p));
	H_STATUS(XPORT_ERR_INVALID, xport_pool_create(NULL, NULL, &p));
	H_TRUE(p == NULL);
	/* What goes together is for libxport to say. */
	a = (struct xport_pool_attr){.size = sizeof(a), .rights = XPORT_ATOMIC_NIC};
	H_OK(xport_pool_create(h->x, &a, &p));
	H_STATUS(XPORT_ERR_INVALID, xport_pool_alloc(p, 10, 0, &b));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_pool_alloc", "XPORT_REMOTE_ATOMIC");
	H_OK(xport_pool_destroy(p));
	a.rights |= H_ALL;
	H_OK(xport_pool_create(h->x, &a, &p));
	b = take(h, p, 10, 0);
	H_OK(xport_mr_query(b.mr, &m));
	H_EQ(H_ALL | XPORT_ATOMIC_NIC, m.rights);
	H_OK(xport_pool_destroy(p));
	p = svc_pool_make(h, 0, 0);
	H_STATUS(XPORT_ERR_INVALID, xport_pool_query(p, &i));
	H_STATUS(XPORT_ERR_INVALID, xport_pool_alloc(p, 0, 0, &b));
	H_STATUS(XPORT_ERR_INVALID, xport_pool_alloc(p, 10, 48, &b));
	H_STATUS(XPORT_ERR_INVALID, xport_pool_alloc(p, 10, 3, &b));
	H_STATUS(XPORT_ERR_INVALID, xport_pool_alloc(p, 10, 131072, &b));
	H_STATUS(XPORT_ERR_INVALID, xport_pool_alloc(p, SIZE_MAX, 0, &b));
	H_STATUS(XPORT_ERR_INVALID, xport_pool_alloc(p, 10, 0, NULL));
	H_OK(xport_pool_free(p, NULL));
	b = take(h, p, 100, 0);
	c = take(h, p, 100, 0);
	large = take(h, p, 200 * KIB, 0);
	H_STATUS(XPORT_ERR_INVALID, xport_pool_free(p, &b));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_pool_free", "not in a block in use");
	H_STATUS(XPORT_ERR_INVALID, xport_pool_free(p, (char *)b.address + 1));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_pool_free", "is inside the block");
	H_STATUS(XPORT_ERR_INVALID, xport_pool_free(p, (char *)large.address + 128 * KIB));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_pool_free", "is inside the block");
	H_OK(xport_pool_free(p, b.address));
	H_STATUS(XPORT_ERR_INVALID, xport_pool_free(p, b.address));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_pool_free", "was already freed");
	H_OK(xport_pool_free(p, large.address));
	H_STATUS(XPORT_ERR_INVALID, xport_pool_free(p, large.address));
	H_STATUS(XPORT_ERR_INVALID, xport_pool_hold(p, b.address));
	H_STATUS(XPORT_ERR_INVALID, xport_pool_release(p, c.address));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_pool_release", "not held");
	H_STATUS(XPORT_ERR_INVALID, xport_pool_find(p, b.address, &large));
	H_OK(xport_pool_find(p, (char *)c.address + 99, &large));
	H_TRUE(large.address == c.address && large.offset == c.offset && large.mr == c.mr);
	H_EQ(64 * 2, c.length);
	H_OK(xport_pool_free(p, c.address));
	H_OK(xport_pool_destroy(p));
	H_OK(xport_pool_destroy(NULL));
}

static void limit(struct h *h)
{
	struct xport_block b[64], more;
	xport_pool *p;
	int n = 0, r;

	h_open(h, NULL);
	p = svc_pool_make(h, 0, 2 * MIB);
	while ((r = xport_pool_alloc(p, 64 * KIB, 0, &b[n])) == XPORT_OK)
		H_TRUE(++n < 64);
	H_EQ(XPORT_ERR_NO_MEMORY, r);
	SVC_ERROR(XPORT_ERR_NO_MEMORY, "xport_pool_alloc", "max_bytes is 2048 KiB");
	H_TRUE(n >= 28 && n <= 32);
	H_TRUE(svc_pool_ask(h, p).registered <= 2 * MIB);
	H_STATUS(XPORT_ERR_NO_MEMORY, xport_pool_reserve(p, MIB));
	H_OK(xport_pool_free(p, b[0].address));
	H_OK(xport_pool_alloc(p, 64 * KIB, 0, &more));
	H_STATUS(XPORT_ERR_NO_MEMORY, xport_pool_alloc(p, 4 * MIB, 0, &b[0]));
	H_OK(xport_pool_destroy(p));
}

/* ---- quarantine ---- */

static void quarantine(struct h *h)
{
	struct xport_block b, other[20];
	xport_pool *p;

	h_open(h, NULL);
	p = svc_pool_make(h, (uint32_t)h->param, 0);
	b = take(h, p, 1000, 0);
	H_OK(xport_pool_hold(p, b.address));
	H_OK(xport_pool_hold(p, (char *)b.address + 500));
	H_OK(xport_pool_free(p, b.address));
	H_EQ(1, svc_pool_ask(h, p).quarantined);
	H_STATUS(XPORT_ERR_INVALID, xport_pool_free(p, b.address));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_pool_free", "was already freed");
	for (int i = 0; i < 20; i++) {
		other[i] = take(h, p, 1000, 0);
		H_TRUE(other[i].address != b.address);
	}
	H_OK(xport_pool_release(p, b.address));
	H_EQ(1, svc_pool_ask(h, p).quarantined);
	H_OK(xport_pool_hold(p, b.address)); /* an operation that the one held for begins */
	H_OK(xport_pool_release(p, b.address));
	H_TRUE(take(h, p, 1000, 0).address != b.address);
	H_OK(xport_pool_release(p, b.address));
	H_EQ(0, svc_pool_ask(h, p).quarantined);
	H_STATUS(XPORT_ERR_INVALID, xport_pool_release(p, b.address));
	if (h->param == 0)
		H_TRUE(take(h, p, 1000, 0).address == b.address);
	for (int i = 0; i < 20; i++)
		H_OK(xport_pool_free(p, other[i].address));
	/* One that is held and released is freed as any other. */
	b = take(h, p, 3000, 0);
	H_OK(xport_pool_hold(p, b.address));
	H_OK(xport_pool_release(p, b.address));
	H_OK(xport_pool_free(p, b.address));
	H_OK(xport_pool_destroy(p));
}

/* ---- slabs ---- */

static void trim(struct h *h)
{
	struct xport_block b[200];
	xport_pool *p;

	h_open(h, NULL);
	p = svc_pool_make(h, (uint32_t)h->param, 0);
	H_OK(xport_pool_reserve(p, 3 * MIB));
	H_TRUE(svc_pool_ask(h, p).registered >= 3 * MIB);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 200; i++)
			b[i] = take(h, p, 40000, 0);
		H_TRUE(svc_pool_ask(h, p).slabs >= 9);
		for (int i = 1; i < 200; i++)
			H_OK(xport_pool_free(p, b[i].address));
		H_TRUE(xport_pool_trim(p) >= 8);
		H_EQ(1, svc_pool_ask(h, p).slabs);
		h_fill(b[0].address, 40000, 1); /* still there */
		H_OK(xport_pool_free(p, b[0].address));
	}
	H_EQ(1, xport_pool_trim(p));
	H_EQ(0, svc_pool_ask(h, p).registered);
	H_EQ(0, xport_pool_trim(p));
	b[0] = take(h, p, 10, 0);
	H_OK(xport_pool_destroy(p));
}

/* A posted receive holds up the end of a slab, which the pool survives. */
static void busy(struct h *h)
{
	struct xport_block b;
	xport_pool *p;
	struct h_op *op;

	h_open(h, NULL);
	p = svc_pool_make(h, 0, 0);
	b = take(h, p, 5000, 0);
	op = h_op(h, XPORT_OP_RECV);
	H_OK(xport_recv(
		h->x, b.address, 5000, 1, 1,
		&(struct xport_opt){.size = sizeof(struct xport_opt), .context = op, .mr = b.mr, .id = &op->id}));
	H_OK(xport_pool_free(p, b.address)); /* too early */
	H_EQ(XPORT_ERR_BUSY, xport_pool_trim(p));
	H_EQ(1, svc_pool_ask(h, p).slabs);
	b = take(h, p, 5000, 0);
	H_OK(xport_pool_free(p, b.address));
	H_STATUS(XPORT_ERR_BUSY, xport_pool_destroy(p));
	H_OK(xport_cancel(h->x, op->id));
	H_DONE_AS(XPORT_ERR_CANCELED, op);
	H_OK(xport_pool_destroy(p));
}

static void foreign(struct h *h)
{
	struct xport_mr_info m = {.size = sizeof(m)};
	struct xport_block b;
	xport_mr *mr, *small, *other;
	xport_pool *p;
	int n = 0;

	h_open(h, NULL);
	p = svc_pool_make(h, 0, MIB / 2);
	H_OK(xport_mr_alloc(h->x, MIB, XPORT_REMOTE_READ, &mr));
	H_OK(xport_mr_alloc(h->x, 64 * KIB, XPORT_REMOTE_READ, &small));
	H_OK(xport_mr_alloc(h->x, MIB, XPORT_REMOTE_WRITE, &other));
	H_OK(xport_mr_query(mr, &m));
	H_STATUS(XPORT_ERR_INVALID, xport_pool_add(p, small));
	H_STATUS(XPORT_ERR_INVALID, xport_pool_add(p, other));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_pool_add", "rights");
	H_STATUS(XPORT_ERR_INVALID, xport_pool_add(p, NULL));
	H_OK(xport_pool_add(p, mr));
	H_STATUS(XPORT_ERR_INVALID, xport_pool_add(p, mr));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_pool_add", "already in the pool");
	H_EQ(1, svc_pool_ask(h, p).slabs);
	H_EQ(0, svc_pool_ask(h, p).registrations);
	for (; xport_pool_alloc(p, 32 * KIB, 0, &b) == XPORT_OK; n++)
		H_TRUE(b.mr == mr && (char *)b.address >= (char *)m.base &&
		       (char *)b.address + 32 * KIB <= (char *)m.base + MIB);
	H_TRUE(n >= 30 && n <= 32);
	H_OK(xport_pool_destroy(p));
	h_fill(m.base, MIB, 1); /* it is still the user's */
	H_OK(xport_mr_dereg(mr));
}

/* ---- where the memory is ---- */

static void huge(struct h *h)
{
	bool slower = false;
	struct xport_pool_info i;
	struct xport_block b;
	xport_pool *p;

	h_open(h, NULL);
	slower = h->info.put > h->info.put_reg || h->info.get > h->info.get_reg;
	p = svc_pool_make(h, XPORT_POOL_HUGE, 0);
	b = take(h, p, 300 * KIB, 0);
	h_fill(b.address, 300 * KIB, 1);
	i = svc_pool_ask(h, p);
	if (slower)
		H_CHECK(strncmp(i.huge, "no: ", 4) == 0 && i.huge_bytes == 0, "says \"%s\"", i.huge);
	else
		H_CHECK(strncmp(i.huge, "reserved", 8) == 0
		                ? i.huge_bytes == i.registered
		                : strstr(i.huge, "vm.nr_hugepages") != NULL && i.huge_bytes == 0,
		        "says \"%s\"", i.huge);
	H_OK(xport_pool_destroy(p));
	H_OK(xport_pool_create(h->x,
	                       &(struct xport_pool_attr){.size = sizeof(struct xport_pool_attr),
	                                                 .flags = XPORT_POOL_HUGE,
	                                                 .slab_bytes = 8 * MIB,
	                                                 .max_bytes = 3 * MIB},
	                       &p));
	for (int n = 0; xport_pool_alloc(p, 64 * KIB, 0, &b) == XPORT_OK;)
		H_TRUE(++n <= 48);
	SVC_ERROR(XPORT_ERR_NO_MEMORY, "xport_pool_alloc", "max_bytes is 3072 KiB");
	H_TRUE(svc_pool_ask(h, p).registered >= 2 * MIB && svc_pool_ask(h, p).registered <= 3 * MIB);
	H_OK(xport_pool_destroy(p));
	p = svc_pool_make(h, 0, 0);
	H_TRUE(strcmp(svc_pool_ask(h, p).huge, "not requested") == 0);
	H_OK(xport_pool_destroy(p));
}

/* Huge pages that are there, but not to be had: mapped, and refused when they are touched. */
static void huge_refused(struct h *h)
{
	static const int errors[] = {0, EINVAL, EFAULT, ENOMEM};

	h_open(h, NULL);
	if (h->info.put > h->info.put_reg || h->info.get > h->info.get_reg)
		h_skip(h, "the pool maps no memory of its own here");
	for (size_t n = 0; n < sizeof(errors) / sizeof(errors[0]); n++) {
		bool had = errors[n] == 0 || errors[n] == EINVAL;
		struct xport_pool_info i;
		struct xport_block b;
		xport_pool *p;

		svc_wrap_huge(errors[n]);
		p = svc_pool_make(h, XPORT_POOL_HUGE, 0);
		b = take(h, p, 300 * KIB, 0);
		h_fill(b.address, 300 * KIB, 1);
		i = svc_pool_ask(h, p);
		H_CHECK(strncmp(i.huge, had ? "reserved" : "no reserved", 8) == 0, "says \"%s\"", i.huge);
		H_CHECK(errors[n] != EFAULT || strstr(i.huge, "control group") != NULL, "says \"%s\"", i.huge);
		H_EQ(had ? i.registered : 0, i.huge_bytes);
		H_EQ(i.huge_bytes, svc_wrap_huge_mapped());
		H_OK(xport_pool_destroy(p));
		H_EQ(0, svc_wrap_huge_mapped());
	}
	svc_wrap_huge(-1);
}

static void node(struct h *h)
{
	struct xport_pool_attr a = {.size = sizeof(a), .rights = XPORT_REMOTE_READ, .node = 1};
	struct xport_block b;
	xport_pool *p;
	int r;

	h_open(h, NULL);
	r = xport_pool_create(h->x, &a, &p);
	if (r != XPORT_OK) {
		struct xport_error e = {.size = sizeof(e)};

		H_EQ(XPORT_ERR_NOT_SUPPORTED, r);
		H_OK(xport_services_last_error(&e));
		h_skip(h, "memory is not placed here: %s", e.text);
	}
	b = take(h, p, 5 * MIB, 0);
	h_fill(b.address, 5 * MIB, 1);
	H_CHECK(strstr(svc_pool_ask(h, p).placement, "are on node 0") != NULL ||
	                strstr(svc_pool_ask(h, p).placement, "unknown") != NULL,
	        "says \"%s\"", svc_pool_ask(h, p).placement);
	H_OK(xport_pool_destroy(p));
	a.node = XPORT_POOL_NODE_LOCAL;
	H_OK(xport_pool_create(h->x, &a, &p));
	b = take(h, p, 5, 0);
	H_OK(xport_pool_destroy(p));
	a.node = 901;
	H_STATUS(XPORT_ERR_NOT_SUPPORTED, xport_pool_create(h->x, &a, &p));
	SVC_ERROR(XPORT_ERR_NOT_SUPPORTED, "xport_pool_create", "no NUMA node 900");
	a.node = 1;
	svc_wrap_nodes_empty(true);
	r = xport_pool_create(h->x, &a, &p);
	svc_wrap_nodes_empty(false);
	H_STATUS(XPORT_ERR_NOT_SUPPORTED, r);
	SVC_ERROR(XPORT_ERR_NOT_SUPPORTED, "xport_pool_create", "no NUMA node 0 with memory");
}

/* Who may not lock is told so before it is tried. */
static void memlock(struct h *h)
{
	struct rlimit r = {64 * KIB, 64 * KIB};
	struct xport_block b;
	xport_pool *p;

	if (h->config->threads)
		h_skip(h, "the role is no process, whose limit could be lowered");
	/* Once it is loaded the module need not be readable to the other user. */
	h_open(h, NULL);
	xport_close(h->x);
	if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
		h_skip(h, "root cannot become another user here");
	H_EQ(0, setrlimit(RLIMIT_MEMLOCK, &r));
	h_open(h, NULL);
	p = svc_pool_make(h, XPORT_POOL_LOCK, 0);
	H_STATUS(XPORT_ERR_NO_MEMORY, xport_pool_alloc(p, 100, 0, &b));
	SVC_ERROR(XPORT_ERR_NO_MEMORY, "xport_pool_alloc", "the limit of locked memory is 64 KiB");
	SVC_ERROR(XPORT_ERR_NO_MEMORY, "xport_pool_alloc", "ulimit -l unlimited");
	H_EQ(0, svc_pool_ask(h, p).registrations);
	H_OK(xport_pool_destroy(p));
	p = svc_pool_make(h, 0, 0);
	b = take(h, p, 100, 0);
	H_OK(xport_pool_destroy(p));
}

static const struct h_param modes[] = {{"", 0}, {"debug", XPORT_POOL_DEBUG}, {NULL, 0}};

const struct h_scenario svc_cases_pool[] = {
	{"pool_blocks", {blocks}, modes, 0, 0},
	{"pool_steady", {steady}, NULL, 0, 0},
	{"pool_wrong", {wrong}, NULL, 0, 0},
	{"pool_limit", {limit}, NULL, 0, 0},
	{"pool_quarantine", {quarantine}, modes, 0, 0},
	{"pool_trim", {trim}, modes, 0, 0},
	{"pool_busy", {busy}, NULL, 0, 0},
	{"pool_foreign", {foreign}, NULL, 0, 0},
	{"pool_huge", {huge}, NULL, 0, 0},
	{"pool_huge_refused", {huge_refused}, NULL, 0, 0},
	{"pool_node", {node}, NULL, 0, 0},
	{"pool_memlock", {memlock}, NULL, 0, 0},
	{0},
};
