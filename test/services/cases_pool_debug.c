/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_pool_debug.c - mistakes that XPORT_POOL_DEBUG finds. */
#include "conform/harness.h"
#include "services/services.h"
#include "services/xport_services.h"

static xport_pool *make(struct h *h)
{
	struct xport_pool_attr a = {.size = sizeof(a), .flags = XPORT_POOL_DEBUG, .slab_bytes = 1 << 20};
	xport_pool *p = NULL;

	H_OK(xport_pool_create(h->x, &a, &p));
	return p;
}

static struct xport_block take(struct h *h, xport_pool *p, size_t len)
{
	struct xport_block b = {0};

	H_OK(xport_pool_alloc(p, len, 0, &b));
	return b;
}

/* The block, to whose byte 777 somebody wrote, comes round again, and is told. */
static void told_at_last(struct h *h, xport_pool *p, const struct xport_block *b)
{
	struct xport_block c;
	int r, tries = 0;

	while ((r = xport_pool_alloc(p, b->length, 0, &c)) == XPORT_OK)
		H_TRUE(c.address != b->address && ++tries < 100);
	H_EQ(XPORT_ERR_INVALID, r);
	SVC_ERROR(XPORT_ERR_INVALID, "xport_pool_alloc", "byte 777 of the block");
}

static void debug(struct h *h)
{
	struct xport_block b, c;
	xport_pool *p;

	h_open(h, NULL);
	p = make(h);
	b = take(h, p, 100);
	H_EQ(100, b.length);
	((char *)b.address)[100] = 0;
	H_STATUS(XPORT_ERR_INVALID, xport_pool_free(p, b.address));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_pool_free", "at byte 100, past its end");
	H_STATUS(XPORT_ERR_INVALID, xport_pool_free(p, b.address)); /* it was freed all the same */
	SVC_ERROR(XPORT_ERR_INVALID, "xport_pool_free", "was already freed");
	b = take(h, p, 60000);
	H_OK(xport_pool_free(p, b.address));
	H_BYTES(b.address, 60000, 0xdb);
	((char *)b.address)[777] = 1;
	told_at_last(h, p, &b);
	H_OK(xport_pool_alloc(p, 60000, 0, &c));
	H_TRUE(c.address != b.address);
	H_OK(xport_pool_destroy(p));
}

/* A block of several spans comes round again as such a one, a smaller one, or in pieces. */
static void debug_large(struct h *h)
{
	struct xport_block b, c;
	xport_pool *p;

	h_open(h, NULL);
	p = make(h);
	b = take(h, p, 200 << 10);
	H_OK(xport_pool_free(p, b.address));
	((char *)b.address)[777] = 1;
	H_STATUS(XPORT_ERR_INVALID, xport_pool_alloc(p, h->param, 0, &c));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_pool_alloc", "byte 777 of the block");
	H_OK(xport_pool_alloc(p, h->param, 0, &c));
	H_OK(xport_pool_destroy(p));
}

/* What stays in a slab that is in use is looked at after xport_pool_trim, too. */
static void debug_trimmed(struct h *h)
{
	struct xport_block b;
	xport_pool *p;

	h_open(h, NULL);
	p = make(h);
	take(h, p, 100);
	b = take(h, p, 10000);
	H_OK(xport_pool_free(p, b.address));
	((char *)b.address)[777] = 1;
	H_EQ(0, xport_pool_trim(p));
	told_at_last(h, p, &b);
	H_OK(xport_pool_destroy(p));
}

static const struct h_param pieces[] = {{"same", 200 << 10}, {"smaller", 100 << 10}, {"pieces", 30000}, {NULL, 0}};

const struct h_scenario svc_cases_pool_debug[] = {
	{"pool_debug", {debug}, NULL, 0, 0},
	{"pool_debug_large", {debug_large}, pieces, 0, 0},
	{"pool_debug_trimmed", {debug_trimmed}, NULL, 0, 0},
	{0},
};
