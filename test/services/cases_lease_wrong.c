/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_lease_wrong.c - leases that are requested or made with arguments that are refused. */
#include "services/drive.h"

static void wrong(struct h *h)
{
	struct xport_leases_attr a = {.size = sizeof(a)};
	struct xport_lease_event e = {.size = 1};
	struct xport_leases_info info = {.size = 1};
	xport_leases *l;
	xport_lease *lease;

	h_open(h, NULL);
	H_STATUS(XPORT_ERR_INVALID, xport_leases_create(NULL, NULL, &l));
	H_STATUS(XPORT_ERR_INVALID, xport_leases_create(h->x, NULL, NULL));
	a.flags = 4;
	H_STATUS(XPORT_ERR_INVALID, xport_leases_create(h->x, &a, &l));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_leases_create", "unknown bits");
	a.flags = 0;
	a.size = 8;
	H_STATUS(XPORT_ERR_INVALID, xport_leases_create(h->x, &a, &l));
	a.size = sizeof(a);
	a.patience_ms = -2;
	H_STATUS(XPORT_ERR_INVALID, xport_leases_create(h->x, &a, &l));
	H_OK(xport_leases_create(h->x, NULL, &l));
	H_STATUS(XPORT_ERR_INVALID, xport_leases_next(l, &e));
	H_STATUS(XPORT_ERR_INVALID, xport_leases_query(l, &info));
	e.size = sizeof(e);
	H_EQ(0, xport_leases_next(l, &e));
	H_STATUS(XPORT_ERR_TIMEOUT, xport_leases_wait(l, &e, NULL, NULL, 20));
	SVC_ERROR(XPORT_ERR_TIMEOUT, "xport_leases_wait", "20 ms");
	H_STATUS(XPORT_ERR_INVALID, xport_leases_wait(l, &e, NULL, NULL, -2));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_leases_wait", "below -1");
	H_STATUS(XPORT_ERR_INVALID, xport_leases_destroy(l, NULL, NULL, -2));
	H_EQ(-1, xport_leases_timeout(l));
	H_EQ(0, xport_leases_step(l, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_leases_step(NULL, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_lease_ask(l, NULL, 1, D_RW, NULL, &lease));
	H_STATUS(XPORT_ERR_INVALID, xport_lease_give(l, NULL, NULL, NULL, &lease));
	H_STATUS(XPORT_ERR_INVALID, xport_lease_return(NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_lease_revoke(NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_lease_wait(NULL, NULL, NULL, 0));
	H_OK(xport_lease_free(NULL));
	xport_leases_forget(l, NULL);
	H_OK(xport_leases_destroy(NULL, NULL, NULL, 0));
	H_OK(xport_leases_destroy(l, NULL, NULL, h_ms(h->limit_ms)));
}

/* Leases and a directory leave the application half of the receives that an instance may have posted. */
static void few_receives(struct h *h)
{
	enum { DEPTH = 32 };
	struct xport_leases_attr la = {.size = sizeof(la), .tag = 5};
	struct xport_directory_attr da = {.size = sizeof(da), .tag = 6};
	struct xport_attr a = h_attr(h);
	xport_directory *d, *no_directory;
	xport_leases *l, *no_leases;
	uint8_t *buf = h_buf(h, 8);

	a.queue_depth = DEPTH;
	h_open(h, &a);
	H_OK(xport_leases_create(h->x, NULL, &l));
	H_OK(xport_directory_create(h->x, NULL, &d));
	for (int i = 0; i < DEPTH / 2; i++)
		H_OK(xport_recv(h->x, buf, 8, 7, UINT64_MAX, NULL));
	H_STATUS(XPORT_ERR_AGAIN, xport_recv(h->x, buf, 8, 7, UINT64_MAX, NULL));
	H_STATUS(XPORT_ERR_AGAIN, xport_leases_create(h->x, &la, &no_leases));
	SVC_ERROR(XPORT_ERR_AGAIN, "xport_leases_create", "32 receives are posted");
	H_STATUS(XPORT_ERR_AGAIN, xport_directory_create(h->x, &da, &no_directory));
	SVC_ERROR(XPORT_ERR_AGAIN, "xport_directory_create", "32 receives are posted");
	H_OK(xport_leases_destroy(l, NULL, NULL, h_ms(h->limit_ms)));
	H_OK(xport_directory_destroy(d, NULL, NULL, h_ms(h->limit_ms)));
}

static void wrong_ask_other(struct h *h)
{
	struct d d;

	d_begin(&d, h, D_LOOP, NULL);
	d_sync(&d, 1);
	d_end(&d);
	h_sync(h);
}

static void wrong_ask(struct h *h)
{
	xport_lease *lease;
	struct d d;

	d_begin(&d, h, D_LOOP, NULL);
	H_STATUS(XPORT_ERR_INVALID, xport_lease_ask(d.l, h->ep[0], 0, D_RW, NULL, &lease));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_lease_ask", "length is 0");
	H_STATUS(XPORT_ERR_INVALID, xport_lease_ask(d.l, h->ep[0], 1, 0, NULL, &lease));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_lease_ask", "rights");
	H_STATUS(XPORT_ERR_INVALID, xport_lease_ask(d.l, h->ep[0], 1, 16, NULL, &lease));
	/* It serves nobody. */
	H_STATUS(XPORT_ERR_NOT_SUPPORTED, d_refused(&d, 1, D_RW));
	d_sync(&d, 0);
	d_end(&d);
	h_sync(h);
}

const struct h_scenario svc_cases_lease_wrong[] = {
	{"lease_wrong", {wrong}, NULL, H_ONCE, 0},
	{"lease_few_receives", {few_receives}, NULL, H_ONCE, 0},
	{"lease_wrong_ask", {wrong_ask_other, wrong_ask}, NULL, H_ONCE, 0},
	{0},
};
