/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_lease_hand.c - memory that a borrower has filled becomes the lender's. */
#include "services/drive.h"

enum { LEN = 300000 };

/* ---- handed over, by each way to get the memory ---- */

enum { ASKED = 0, FROM_POOL = 16, GIVEN = 32, GIVEN_ALLOCATED = 48, SOURCE = 48 };

static xport_lease *make_lease(struct d *d, uint8_t *own)
{
	struct h *h = d->h;
	xport_lease *lease;
	xport_mr *mr;

	if ((h->param & SOURCE) < GIVEN)
		return D_EVENT(d, XPORT_LEASE_LENT).lease;
	if ((h->param & SOURCE) == GIVEN)
		H_OK(xport_mr_reg(h->x, own, LEN, D_RW, &mr));
	else
		H_OK(xport_mr_alloc(h->x, LEN, D_RW, &mr));
	H_OK(xport_lease_give(d->l, h->ep[1], mr, own, &lease));
	H_OK(d_settled(d, lease));
	return lease;
}

static void hand_lender(struct h *h)
{
	bool asked = (h->param & SOURCE) < GIVEN;
	struct xport_leases_attr a = d_attr();
	uint8_t *own = h_buf(h, LEN);
	struct xport_lease_event e;
	xport_pool *pool = NULL;
	xport_lease *lease;
	uint8_t *base;
	struct d d;

	a.flags = XPORT_LEASES_HAND_OVER;
	d_begin(&d, h, (int)(h->param & 3), &a);
	if ((h->param & SOURCE) == FROM_POOL) {
		H_OK(xport_leases_destroy(d.l, NULL, NULL, h_ms(h->limit_ms)));
		H_OK(xport_pool_create(h->x, NULL, &pool));
		a.pool = pool;
		H_OK(xport_leases_create(h->x, &a, &d.l));
	}
	d_sync(&d, 1);
	for (int i = 0; i < 3; i++) {
		lease = make_lease(&d, own);
		e = D_EVENT(&d, XPORT_LEASE_HANDED);
		H_STATUS(XPORT_OK, e.status);
		H_TRUE(e.lease == lease && e.ep == h->ep[1]);
		H_EQ(XPORT_LEASE_OVER, d_info(&d, lease).state);
		base = d_info(&d, lease).base;
		H_TRUE(base != NULL);
		H_EQ((h->param & SOURCE) == GIVEN, base == own);
		H_FILLED(base, LEN, (uint64_t)i);
		d_sync(&d, 1); /* its key has been tried meanwhile */
		d_sync(&d, 1);
		H_FILLED(base, LEN, (uint64_t)i);
		H_STATUS(XPORT_ERR_CLOSED, xport_lease_revoke(lease));
		H_EQ(0, d_all(&d).lent);
		H_EQ(asked ? LEN : 0, d_all(&d).lent_bytes);
		if (i < 2)
			H_OK(xport_lease_free(lease)); /* the last one is left to the end */
		H_EQ(asked && i == 2 ? LEN : 0, d_all(&d).lent_bytes);
		d_sync(&d, 1);
	}
	d_end(&d);
	H_OK(xport_pool_destroy(pool));
	h_sync(h);
}

static void hand_borrower(struct h *h)
{
	struct xport_leases_attr a = {.size = sizeof(a), .flags = XPORT_LEASES_TAKE};
	uint8_t *buf = h_buf(h, LEN);
	xport_lease *lease;
	struct d d;

	d_begin(&d, h, (int)(h->param & 3), &a);
	d_sync(&d, 0);
	for (int i = 0; i < 3; i++) {
		if ((h->param & SOURCE) < GIVEN) {
			H_OK(xport_lease_ask(d.l, h->ep[0], LEN, D_RW, NULL, &lease));
			H_OK(d_settled(&d, lease));
		} else {
			lease = D_EVENT(&d, XPORT_LEASE_GIVEN).lease;
		}
		h_fill(buf, LEN, (uint64_t)i);
		H_OK(d_put(&d, lease, buf, LEN, 0));
		H_OK(xport_lease_hand_over(lease));
		H_OK(d_settled(&d, lease));
		H_EQ(XPORT_LEASE_OVER, d_info(&d, lease).state);
		d_sync(&d, 0);
		memset(buf, 0xee, LEN);
		H_STATUS(XPORT_ERR_STALE_KEY, d_put(&d, lease, buf, LEN, 0));
		H_STATUS(XPORT_ERR_CLOSED, xport_lease_hand_over(lease));
		SVC_ERROR(XPORT_ERR_CLOSED, "xport_lease_hand_over", "has ended");
		H_STATUS(XPORT_ERR_CLOSED, xport_lease_return(lease));
		H_OK(xport_lease_free(lease));
		d_sync(&d, 0);
		d_sync(&d, 0);
	}
	H_EQ(0, d_all(&d).borrowed);
	d_end(&d);
	h_sync(h);
}

/* ---- refused: the lease is as before ---- */

enum { UNWILLING = 0, RECEIVES = 1 };

static void refuse_lender(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	struct xport_lease_event e;
	xport_lease *lease;
	xport_mr *mr;
	struct d d;

	a.flags = h->param == UNWILLING ? 0 : XPORT_LEASES_HAND_OVER;
	d_begin(&d, h, D_LOOP, &a);
	H_OK(xport_mr_alloc(h->x, LEN, D_RW, &mr));
	if (h->param == RECEIVES) {
		struct xport_mr_info info = {.size = sizeof(info)};
		struct xport_opt o = {.size = sizeof(o), .mr = mr};

		H_OK(xport_mr_query(mr, &info));
		H_OK(xport_recv(h->x, info.base, 64, 77, UINT64_MAX, &o));
	}
	H_OK(xport_lease_give(d.l, h->ep[1], mr, NULL, &lease));
	H_OK(d_settled(&d, lease));
	d_sync(&d, 1);
	H_EQ(XPORT_LEASE_HELD, d_info(&d, lease).state);
	H_FILLED(d_info(&d, lease).base, LEN, 5);
	H_EQ(2, d_all(&d).refused);
	d_sync(&d, 1);
	if (h->param == UNWILLING) {
		e = D_EVENT(&d, XPORT_LEASE_ENDED);
	} else {
		e = D_EVENT(&d, XPORT_LEASE_HANDED);
	}
	H_STATUS(XPORT_OK, e.status);
	H_OK(xport_lease_free(lease));
	d_sync(&d, 1);
	d_end(&d);
	h_sync(h);
}

static void refuse_borrower(struct h *h)
{
	int why = h->param == UNWILLING ? XPORT_ERR_NOT_SUPPORTED : XPORT_ERR_BUSY;
	struct xport_leases_attr a = {.size = sizeof(a), .flags = XPORT_LEASES_TAKE};
	uint8_t *buf = h_buf(h, LEN), *back = h_buf(h, 64);
	struct xport_lease_event e;
	xport_lease *lease;
	struct d d;

	d_begin(&d, h, D_LOOP, &a);
	lease = D_EVENT(&d, XPORT_LEASE_GIVEN).lease;
	h_fill(buf, LEN, 5);
	H_OK(d_put(&d, lease, buf, LEN, 0));
	H_OK(xport_lease_hand_over(lease));
	e = D_EVENT(&d, XPORT_LEASE_KEPT);
	H_TRUE(e.lease == lease);
	H_STATUS(why, e.status);
	H_EQ(XPORT_LEASE_HELD, d_info(&d, lease).state);
	H_OK(xport_lease_hand_over(lease));
	H_STATUS(why, xport_lease_wait(lease, NULL, NULL, h_ms(h->limit_ms)));
	H_OK(xport_lease_wait(lease, NULL, NULL, 0)); /* it is held, and that was reported */
	H_OK(d_get(&d, lease, back, 64, 0));
	d_sync(&d, 0);
	d_sync(&d, 0);
	if (h->param == UNWILLING) {
		H_OK(xport_lease_return(lease));
	} else {
		H_OK(xport_send(h->ep[0], "y", 1, 77, NULL)); /* ends the receive, and comes before the request */
		H_OK(xport_lease_hand_over(lease));
	}
	H_OK(d_settled(&d, lease));
	H_OK(xport_lease_free(lease));
	d_sync(&d, 0);
	d_end(&d);
	h_sync(h);
}

/* ---- operations in flight; wrong arguments ---- */

static void flight_lender(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	xport_lease *lease;
	struct d d;

	a.flags = XPORT_LEASES_HAND_OVER;
	d_begin(&d, h, D_LOOP, &a);
	lease = D_EVENT(&d, XPORT_LEASE_LENT).lease;
	H_STATUS(XPORT_ERR_INVALID, xport_lease_hand_over(lease));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_lease_hand_over", "this process is the lender");
	H_TRUE(D_EVENT(&d, XPORT_LEASE_HANDED).lease == lease);
	d_sync(&d, 1);
	d_end(&d);
	h_sync(h);
}

static void flight_borrower(struct h *h)
{
	struct xport_rkey_info info = {.size = sizeof(info)};
	struct d_op op = {0};
	struct xport_opt o = {.size = sizeof(o), .context = &op};
	uint8_t *buf = h_buf(h, LEN);
	xport_lease *lease;
	struct d d;

	H_STATUS(XPORT_ERR_INVALID, xport_lease_hand_over(NULL));
	d_begin(&d, h, D_LOOP, NULL);
	H_OK(xport_lease_ask(d.l, h->ep[0], LEN, D_RW, NULL, &lease));
	H_STATUS(XPORT_ERR_INVALID, xport_lease_hand_over(lease));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_lease_hand_over", "not granted");
	H_OK(d_settled(&d, lease));
	H_OK(xport_get(h->ep[0], buf, LEN, d_info(&d, lease).rkey, 0, &o));
	H_OK(xport_rkey_query(d_info(&d, lease).rkey, &info));
	H_CHECK(info.in_flight > 0 || info.direct || info.get == XPORT_NATIVE, "a get by message is not in flight");
	if (info.in_flight > 0) {
		H_STATUS(XPORT_ERR_BUSY, xport_lease_hand_over(lease));
		SVC_ERROR(XPORT_ERR_BUSY, "xport_lease_hand_over", "in flight");
	}
	H_OK(d_ended(&d, &op));
	H_OK(xport_rkey_query(d_info(&d, lease).rkey, &info));
	H_EQ(0, info.in_flight);
	H_OK(xport_lease_hand_over(lease));
	if (d_info(&d, lease).state == XPORT_LEASE_ENDING) {
		H_STATUS(XPORT_ERR_CLOSED, xport_lease_hand_over(lease));
		SVC_ERROR(XPORT_ERR_CLOSED, "xport_lease_hand_over", "is ending");
	}
	H_OK(d_settled(&d, lease));
	d_sync(&d, 0);
	d_end(&d);
	h_sync(h);
}

/* ---- a revocation meets it ---- */

static void cross_lender(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	xport_lease *lease;
	struct d d;

	a.flags = XPORT_LEASES_HAND_OVER;
	d_begin(&d, h, D_LOOP, &a);
	lease = D_EVENT(&d, XPORT_LEASE_LENT).lease;
	d_sync(&d, 1);
	h_tell_u64(h, 1, 1); /* nobody polls here from now on */
	h_hear_u64(h, 1);    /* it is on its way */
	H_OK(xport_lease_revoke(lease));
	H_STATUS(XPORT_ERR_STALE_KEY, D_EVENT(&d, XPORT_LEASE_ENDED).status);
	H_TRUE(d_info(&d, lease).base == NULL);
	H_EQ(0, d_all(&d).lent_bytes);
	d_sync(&d, 1);
	H_EQ(0, d_all(&d).muted);
	d_end(&d);
	h_sync(h);
}

static void cross_borrower(struct h *h)
{
	xport_lease *lease;
	struct d d;

	d_begin(&d, h, D_LOOP, NULL);
	H_OK(xport_lease_ask(d.l, h->ep[0], LEN, D_RW, NULL, &lease));
	H_OK(d_settled(&d, lease));
	d_sync(&d, 0);
	h_hear_u64(h, 0);
	H_OK(xport_lease_hand_over(lease));
	h_tell_u64(h, 0, 1);
	H_STATUS(XPORT_ERR_STALE_KEY, D_EVENT(&d, XPORT_LEASE_ENDED).status);
	H_OK(xport_lease_free(lease));
	d_sync(&d, 0);
	H_EQ(0, d_all(&d).muted);
	d_end(&d);
	h_sync(h);
}

/* ---- death in the middle ---- */

/* The lender is stopped before it has heard of it, and killed. */
static void dying_lender(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	struct d d;

	a.flags = XPORT_LEASES_HAND_OVER;
	d_begin(&d, h, D_LOOP, &a);
	for (;;)
		d_turn(&d);
}

static void left_borrower(struct h *h)
{
	uint8_t *buf = h_buf(h, LEN);
	struct xport_lease_event e;
	xport_lease *lease;
	struct d d;

	d_begin(&d, h, D_LOOP, NULL);
	H_OK(xport_lease_ask(d.l, h->ep[0], LEN, D_RW, NULL, &lease));
	H_OK(d_settled(&d, lease));
	H_OK(d_put(&d, lease, buf, LEN, 0));
	h_stop(h, 0);
	H_OK(xport_lease_hand_over(lease));
	d_turn_for(&d, 20);
	H_EQ(XPORT_LEASE_ENDING, d_info(&d, lease).state);
	h_kill(h, 0, SIGKILL);
	e = D_EVENT(&d, XPORT_LEASE_ENDED);
	H_TRUE(e.lease == lease);
	H_STATUS(XPORT_ERR_PEER_LOST, e.status);
	H_OK(xport_lease_free(lease));
	d_end(&d);
}

/* The borrower is killed after it has handed over: all of it is there, or the lease is lost. */
static void dying_borrower(struct h *h)
{
	uint8_t *buf = h_buf(h, LEN);
	xport_lease *lease;
	struct d d;

	d_begin(&d, h, D_LOOP, NULL);
	H_OK(xport_lease_ask(d.l, h->ep[1], LEN, D_RW, NULL, &lease));
	H_OK(d_settled(&d, lease));
	h_fill(buf, LEN, 6);
	H_OK(d_put(&d, lease, buf, LEN, 0));
	d_sync(&d, 1);
	H_OK(xport_lease_hand_over(lease));
	h_tell_u64(h, 1, 1);
	for (;;)
		d_turn(&d);
}

static void left_lender(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	int64_t end = h_now_us() + (int64_t)h_ms(10000) * 1000;
	struct xport_lease_event e = {.size = sizeof(e)};
	struct xport_lease_info info;
	struct d d;

	a.flags = XPORT_LEASES_HAND_OVER;
	d_begin(&d, h, D_LOOP, &a);
	D_EVENT(&d, XPORT_LEASE_LENT);
	d_sync(&d, 0);
	h_hear_u64(h, 0); /* nobody polls here meanwhile */
	h_kill(h, 0, SIGKILL);
	while (xport_leases_next(d.l, &e) == 0) {
		H_CHECK(h_now_us() < end, "no event");
		d_turn(&d);
	}
	info = d_info(&d, e.lease);
	if (e.type == XPORT_LEASE_HANDED) {
		H_FILLED(info.base, LEN, 6);
	} else {
		H_EQ(XPORT_LEASE_ENDED, e.type);
		H_STATUS(XPORT_ERR_PEER_LOST, e.status);
		H_TRUE(info.base == NULL);
	}
	while (atomic_load(&d.gone) == 0)
		d_turn(&d);
	if (e.type == XPORT_LEASE_HANDED)
		H_FILLED(d_info(&d, e.lease).base, LEN, 6); /* it outlives its endpoint */
	H_OK(xport_lease_free(e.lease));
	H_EQ(0, d_all(&d).lent_bytes);
	d_end(&d);
}

static const struct h_param hands[] = {{"loop", ASKED | D_LOOP},
                                       {"wait", ASKED | D_WAIT},
                                       {"thread", ASKED | D_THREAD},
                                       {"pool", FROM_POOL | D_LOOP},
                                       {"given", GIVEN | D_LOOP},
                                       {"given_allocated", GIVEN_ALLOCATED | D_LOOP},
                                       {NULL, 0}};
static const struct h_param refusals[] = {{"unwilling", UNWILLING}, {"receives", RECEIVES}, {NULL, 0}};

const struct h_scenario svc_cases_lease_hand[] = {
	{"lease_hand", {hand_lender, hand_borrower}, hands, 0, 0},
	{"lease_hand_refused", {refuse_lender, refuse_borrower}, refusals, H_ONCE, 0},
	{"lease_hand_flight", {flight_lender, flight_borrower}, NULL, 0, 0},
	{"lease_hand_revoked", {cross_lender, cross_borrower}, NULL, H_ONCE, 0},
	{"lease_hand_lender_dies", {dying_lender, left_borrower}, NULL, H_KILLS | H_ONCE, 0},
	{"lease_hand_borrower_dies", {dying_borrower, left_lender}, NULL, H_KILLS | H_ONCE, 0},
	{0},
};
