/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_lease_slow.c - leases whose completions another thread has reaped, and passes on late. */
#include "services/drive.h"

enum { SLOW_ROUNDS = 60 };

static void slow_lender(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	struct xport_lease_event e = {.size = sizeof(e)};
	struct xport_completion c[8], held[4 * SLOW_ROUNDS];
	int64_t moved = h_now_us();
	unsigned nheld = 0;
	struct d d;

	d_begin(&d, h, D_LOOP, &a);
	while (!h_heard(h, 1)) {
		int n = xport_poll(h->x, c, 8);

		if (n > 0)
			moved = h_now_us();
		for (int i = 0; i < n; i++) {
			if (c[i].type == XPORT_OP_SEND && nheld < 4 * SLOW_ROUNDS)
				held[nheld++] = c[i];
			else
				(void)xport_leases_step(d.l, &c[i]);
		}
		while (h_now_us() - moved > 20000 && nheld > 0)
			(void)xport_leases_step(d.l, &held[--nheld]);
		while (xport_leases_next(d.l, &e) == 1) {
			if (e.type == XPORT_LEASE_ENDED)
				H_OK(xport_lease_free(e.lease));
		}
	}
	h_hear_u64(h, 1);
	H_EQ(0, d_all(&d).muted);
	while (nheld > 0)
		(void)xport_leases_step(d.l, &held[--nheld]);
	d_end(&d);
	h_sync(h);
}

/* It keeps to the rules, and so it must have all its answers. */
static void slow_borrower(struct h *h)
{
	xport_lease *lease;
	struct d d;

	d_begin(&d, h, D_LOOP, NULL);
	for (int i = 0; i < SLOW_ROUNDS; i++) {
		H_OK(xport_lease_ask(d.l, h->ep[0], 10, D_RW, NULL, &lease));
		H_OK(d_settled(&d, lease));
		H_OK(xport_lease_return(lease));
		H_OK(d_settled(&d, lease));
		H_OK(xport_lease_free(lease));
	}
	h_tell_u64(h, 0, 1);
	d_end(&d);
	h_sync(h);
}

/* ---- a lender revokes what it gave before it has heard the borrower's number ---- */

enum { GIVEN = 4096 };

static void early_lender(struct h *h)
{
	uint8_t *buf = h_buf(h, GIVEN);
	struct xport_lease_event e;
	xport_lease *lease;
	xport_mr *mr;
	struct d d;

	d_begin(&d, h, D_LOOP, NULL);
	H_OK(xport_mr_reg(h->x, buf, GIVEN, D_RW, &mr));
	H_OK(xport_lease_give(d.l, h->ep[1], mr, NULL, &lease));
	H_OK(xport_lease_revoke(lease));
	e = D_EVENT(&d, XPORT_LEASE_ENDED);
	H_TRUE(e.lease == lease);
	H_OK(xport_lease_free(lease));
	d_sync(&d, 1);
	d_end(&d);
	h_sync(h);
}

static void early_borrower(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	struct xport_lease_event e;
	struct d d;

	a.flags |= XPORT_LEASES_TAKE;
	d_begin(&d, h, D_LOOP, &a);
	D_EVENT(&d, XPORT_LEASE_GIVEN);
	e = D_EVENT(&d, XPORT_LEASE_ENDED);
	H_STATUS(XPORT_ERR_STALE_KEY, e.status);
	H_OK(xport_lease_free(e.lease));
	H_EQ(0, d_all(&d).borrowed);
	d_sync(&d, 0);
	d_end(&d);
	h_sync(h);
}

const struct h_scenario svc_cases_lease_slow[] = {
	{"lease_slow", {slow_lender, slow_borrower}, NULL, H_ONCE, 0},
	{"lease_revoked_early", {early_lender, early_borrower}, NULL, H_ONCE, 0},
	{0},
};
