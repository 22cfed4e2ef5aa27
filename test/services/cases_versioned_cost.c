/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_versioned_cost.c - what a read of a versioned object costs beside a get of the same size. */
#include "conform/harness.h"
#include "services/services.h"
#include "services/xport_services.h"

enum { BODY = 64 };

static void cost_owner(struct h *h)
{
	struct xport_versioned_attr a = {.size = sizeof(a), .form = XPORT_VERSIONED_SUMMED, .length = h->param};
	xport_versioned *object;
	struct h_mem m;

	h_mesh(h, NULL);
	m = svc_object_memory(h, &a);
	H_OK(xport_versioned_create(m.mr, 0, &a, &object));
	h_share(h, 1, &m);
	h_sync(h);
	xport_versioned_destroy(object);
	H_OK(xport_mr_dereg(m.mr));
}

static int64_t time_gets(struct h *h, const struct h_rkey *k, xport_mr *mr, uint8_t *to, size_t len, int n)
{
	struct xport_opt o = {.size = sizeof(o), .mr = mr};
	struct xport_completion c;
	int64_t begun = h_now_us();

	for (int i = 0; i < n; i++) {
		H_OK(xport_get(h->ep[0], to, len, k->k, BODY, &o));
		do {
			int got = xport_poll(h->x, &c, 1);

			H_TRUE(got >= 0);
			if (got > 0)
				break;
		} while (xport_wait(h->x, &c, 1, h_ms(1000)) <= 0);
		H_OK(c.status);
	}
	return h_now_us() - begun;
}

static int64_t time_reads(struct h *h, xport_versioned_peer *p, void *to, int n)
{
	int64_t begun = h_now_us();

	for (int i = 0; i < n; i++) {
		H_OK(xport_versioned_peer_read(p, to));
		H_OK(xport_versioned_peer_wait(p, NULL, NULL, -1));
	}
	return h_now_us() - begun;
}

/* Batches in turn, the best of each. */
static void cost_reader(struct h *h)
{
	struct xport_versioned_attr a = {.size = sizeof(a), .form = XPORT_VERSIONED_SUMMED, .length = h->param};
	int64_t best_get = INT64_MAX, best_read = INT64_MAX, t;
	struct xport_mr_info info = {.size = sizeof(info)};
	xport_versioned_peer *p;
	struct h_rkey k;
	xport_mr *mr;

	h_mesh(h, NULL);
	k = h_import(h, 0);
	H_OK(xport_versioned_peer_create(h->x, h->ep[0], k.k, 0, &a, &p));
	H_OK(xport_mr_alloc(h->x, a.length, 0, &mr));
	H_OK(xport_mr_query(mr, &info));
	for (int i = 0; i < 20; i++) {
		t = time_gets(h, &k, mr, info.base, a.length, 1000);
		best_get = t < best_get ? t : best_get;
		t = time_reads(h, p, info.base, 1000);
		best_read = t < best_read ? t : best_read;
	}
	h_record(h, "get_ns", (uint64_t)best_get);
	h_record(h, "read_ns", (uint64_t)best_read);
	h_sync(h);
	xport_versioned_peer_destroy(p);
	xport_rkey_destroy(k.k);
	H_OK(xport_mr_dereg(mr));
}

static const struct h_param sizes[] = {{"64", 64}, {"1k", 1024}, {"16k", 16384}, {NULL, 0}};

const struct h_scenario svc_cases_versioned_cost[] = {
	{"versioned_cost", {cost_owner, cost_reader}, sizes, H_SLOW, 60},
	{0},
};
