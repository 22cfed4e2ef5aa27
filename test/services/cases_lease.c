/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_lease.c - memory that is asked for, given, returned, revoked; by each way to drive it. */
#include "services/drive.h"

enum { LEN = 300000, MIB = 1 << 20 };

/* ---- ask, use, return ---- */

enum { LEASES = 3, FROM_POOL = 16 };

static void ask_lender(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	struct xport_lease_event e[LEASES];
	struct xport_leases_info all;
	xport_pool *pool = NULL;
	struct d d;

	/* The pool is made when there is an instance; nobody asks before. */
	d_begin(&d, h, (int)(h->param & 3), &a);
	if (h->param & FROM_POOL) {
		H_OK(xport_leases_destroy(d.l, NULL, NULL, h_ms(h->limit_ms)));
		H_OK(xport_pool_create(h->x, NULL, &pool));
		a.pool = pool;
		H_OK(xport_leases_create(h->x, &a, &d.l));
	}
	d_sync(&d, 1);
	for (int i = 0; i < LEASES; i++) {
		e[i] = D_EVENT(&d, XPORT_LEASE_LENT);
		H_TRUE(e[i].ep == h->ep[1]);
	}
	d_sync(&d, 1); /* it has put */
	all = d_all(&d);
	H_EQ(LEASES, all.lent);
	H_EQ(LEASES * LEN, all.lent_bytes);
	for (int i = 0; i < LEASES; i++) {
		struct xport_lease_info info = d_info(&d, e[i].lease);

		H_EQ(1, info.lender);
		H_EQ(LEN, info.length);
		H_FILLED(info.base, LEN, (uint64_t)i);
		H_STATUS(XPORT_ERR_BUSY, xport_lease_free(e[i].lease));
		SVC_ERROR(XPORT_ERR_BUSY, "xport_lease_free", "has not ended");
		H_STATUS(XPORT_ERR_INVALID, xport_lease_return(e[i].lease));
		SVC_ERROR(XPORT_ERR_INVALID, "xport_lease_return", "xport_lease_revoke");
	}
	d_sync(&d, 1);
	for (int i = 0; i < LEASES; i++) {
		struct xport_lease_event end = D_EVENT(&d, XPORT_LEASE_ENDED);

		H_STATUS(XPORT_OK, end.status);
		H_STATUS(XPORT_ERR_CLOSED, xport_lease_revoke(end.lease));
		H_OK(xport_lease_free(end.lease));
	}
	all = d_all(&d);
	H_EQ(0, all.lent);
	H_EQ(0, all.lent_bytes);
	d_sync(&d, 1);
	/* The last one: zeroes, although the memory was used before. */
	e[0] = D_EVENT(&d, XPORT_LEASE_LENT);
	d_sync(&d, 1);
	d_end(&d); /* ends it */
	H_OK(xport_pool_destroy(pool));
	h_sync(h);
}

static void ask_borrower(struct h *h)
{
	uint8_t *buf = h_buf(h, LEN), *back = h_buf(h, LEN);
	struct xport_lease_event e;
	xport_lease *lease[LEASES];
	struct d d;

	d_begin(&d, h, (int)(h->param & 3), NULL);
	d_sync(&d, 0);
	for (int i = 0; i < LEASES; i++)
		H_OK(xport_lease_ask(d.l, h->ep[0], LEN, D_RW, &lease[i], &lease[i]));
	for (int i = 0; i < LEASES; i++) {
		e = D_EVENT(&d, XPORT_LEASE_GRANTED);
		H_TRUE(e.lease == lease[i]);
		H_TRUE(e.context == &lease[i]);
		H_EQ(LEN, d_info(&d, lease[i]).length);
		H_TRUE(d_info(&d, lease[i]).ep == h->ep[0]);
		h_fill(buf, LEN, (uint64_t)i);
		H_OK(d_put(&d, lease[i], buf, LEN, 0));
		H_OK(d_get(&d, lease[i], back, LEN, 0));
		H_FILLED(back, LEN, (uint64_t)i);
		/* Its key reaches it, and nothing beside. */
		H_STATUS(XPORT_ERR_BOUNDS, d_put(&d, lease[i], buf, 2, LEN - 1));
	}
	H_EQ(LEASES, d_all(&d).borrowed);
	d_sync(&d, 0);
	d_sync(&d, 0);
	for (int i = 0; i < LEASES; i++) {
		H_STATUS(XPORT_ERR_INVALID, xport_lease_revoke(lease[i]));
		SVC_ERROR(XPORT_ERR_INVALID, "xport_lease_revoke", "xport_lease_return");
		H_OK(xport_lease_return(lease[i]));
		H_OK(d_settled(&d, lease[i]));
		H_STATUS(XPORT_ERR_STALE_KEY, d_put(&d, lease[i], buf, LEN, 0));
		H_STATUS(XPORT_ERR_CLOSED, xport_lease_return(lease[i]));
		H_OK(xport_lease_free(lease[i]));
	}
	H_EQ(0, d_all(&d).borrowed);
	d_sync(&d, 0);
	H_OK(xport_lease_ask(d.l, h->ep[0], LEN, D_RW, NULL, &lease[0]));
	H_OK(d_settled(&d, lease[0]));
	H_OK(d_get(&d, lease[0], back, LEN, 0));
	H_BYTES(back, LEN, 0);
	d_sync(&d, 0);
	/* The lender destroys its leases: ours end by that. */
	e = D_EVENT(&d, XPORT_LEASE_ENDED);
	H_STATUS(XPORT_ERR_PEER_CLOSED, e.status);
	H_STATUS(XPORT_ERR_STALE_KEY, d_get(&d, lease[0], back, LEN, 0));
	H_OK(xport_lease_free(lease[0]));
	d_end(&d);
	h_sync(h);
}

/* ---- what is refused ---- */

static int forbid(void *arg, xport_ep *ep, uint64_t length, uint32_t rights)
{
	(void)arg;
	(void)ep;
	return length == 4242 ? XPORT_ERR_AUTH : (rights & XPORT_REMOTE_ATOMIC) ? XPORT_ERR_ACCESS : XPORT_OK;
}

static void quota_lender(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	struct d d;

	a.quota = 3 * MIB;
	a.peer_quota = 2 * MIB;
	a.max_leases = 5;
	a.allow = forbid;
	d_begin(&d, h, D_LOOP, &a);
	for (int i = 0; i < 2; i++)
		D_EVENT(&d, XPORT_LEASE_LENT);
	d_sync(&d, 1);
	d_sync(&d, 2);
	D_EVENT(&d, XPORT_LEASE_LENT); /* the other peer's */
	d_sync(&d, 2);
	H_EQ(3 * MIB, d_all(&d).lent_bytes);
	d_sync(&d, 1);
	for (int i = 0; i < 2; i++)
		H_OK(xport_lease_free(D_EVENT(&d, XPORT_LEASE_ENDED).lease));
	d_sync(&d, 1);
	for (int i = 0; i < 5; i++)
		D_EVENT(&d, XPORT_LEASE_LENT);
	d_sync(&d, 1);
	H_EQ(9, d_all(&d).refused);
	d_sync(&d, 2);
	d_end(&d);
	h_sync(h);
}

static void quota_borrower(struct h *h)
{
	xport_lease *lease[5];
	struct d d;

	d_begin(&d, h, D_WAIT, NULL);
	H_STATUS(XPORT_ERR_NO_MEMORY, d_refused(&d, 2 * MIB + 1, D_RW));
	H_STATUS(XPORT_ERR_NO_MEMORY, d_refused(&d, UINT64_MAX, D_RW));
	H_STATUS(XPORT_ERR_ACCESS, d_refused(&d, 100, D_RW | XPORT_REMOTE_ATOMIC));
	H_STATUS(XPORT_ERR_AUTH, d_refused(&d, 4242, D_RW));
	for (int i = 0; i < 2; i++) {
		H_OK(xport_lease_ask(d.l, h->ep[0], MIB, D_RW, NULL, &lease[i]));
		H_OK(d_settled(&d, lease[i]));
	}
	H_STATUS(XPORT_ERR_NO_MEMORY, d_refused(&d, 1, D_RW));
	d_sync(&d, 0);
	d_sync(&d, 0);
	for (int i = 0; i < 2; i++) {
		H_OK(xport_lease_return(lease[i]));
		H_OK(d_settled(&d, lease[i]));
		H_OK(xport_lease_free(lease[i]));
	}
	d_sync(&d, 0);
	/* What was returned may be asked for again, once the lender has freed the handles. */
	for (int i = 0; i < 5; i++) {
		H_OK(xport_lease_ask(d.l, h->ep[0], 1, XPORT_REMOTE_READ, NULL, &lease[i]));
		H_OK(d_settled(&d, lease[i]));
	}
	H_STATUS(XPORT_ERR_BUSY, d_refused(&d, 1, D_RW));
	H_STATUS(XPORT_ERR_ACCESS, d_put(&d, lease[0], "x", 1, 0));
	d_sync(&d, 0);
	d_end(&d);
	h_sync(h);
}

static void quota_other(struct h *h)
{
	xport_lease *lease;
	struct d d;

	d_begin(&d, h, D_WAIT, NULL);
	d_sync(&d, 0);
	H_STATUS(XPORT_ERR_NO_MEMORY, d_refused(&d, MIB + 1, D_RW)); /* the quota of all */
	H_OK(xport_lease_ask(d.l, h->ep[0], MIB, D_RW, NULL, &lease));
	H_OK(d_settled(&d, lease));
	H_STATUS(XPORT_ERR_NO_MEMORY, d_refused(&d, 1, D_RW));
	{ /* nobody may ask this one */
		xport_lease *none;

		H_OK(xport_lease_ask(d.l, h->ep[0], MIB, D_RW, NULL, &none));
		H_STATUS(XPORT_ERR_NO_MEMORY, xport_lease_wait(none, NULL, NULL, h_ms(h->limit_ms)));
		SVC_ERROR(XPORT_ERR_NO_MEMORY, "xport_lease_wait", "refused");
		H_OK(xport_lease_free(none));
	}
	d_sync(&d, 0);
	d_sync(&d, 0);
	d_end(&d);
	h_sync(h);
}

/* ---- give, take, return ---- */

static void give_lender(struct h *h)
{
	struct xport_mr_info mi = {.size = sizeof(mi)};
	struct xport_lease_event e;
	xport_lease *lease;
	xport_mr *mr;
	uint8_t *buf = h_buf(h, LEN);
	struct d d;

	d_begin(&d, h, (int)h->param, NULL);
	/* Its own buffer, which is its own again at the end. */
	H_OK(xport_mr_reg(h->x, buf, LEN, D_RW, &mr));
	H_OK(xport_lease_give(d.l, h->ep[1], mr, &mr, &lease));
	e = D_EVENT(&d, XPORT_LEASE_TAKEN);
	H_TRUE(e.lease == lease);
	H_TRUE(e.context == &mr);
	H_TRUE(d_info(&d, lease).base == buf);
	d_sync(&d, 1);
	e = D_EVENT(&d, XPORT_LEASE_ENDED);
	H_STATUS(XPORT_OK, e.status);
	H_FILLED(buf, LEN, 1);
	memset(buf, 0, LEN);
	H_OK(xport_lease_free(lease));
	d_sync(&d, 1);
	/* One that the library has allocated, and that peers may map. */
	H_OK(xport_mr_alloc(h->x, LEN, D_RW, &mr));
	H_OK(xport_mr_query(mr, &mi));
	H_OK(xport_lease_give(d.l, h->ep[1], mr, NULL, &lease));
	H_OK(d_settled(&d, lease));
	d_sync(&d, 1);
	H_FILLED(mi.base, LEN, 2);
	H_OK(xport_lease_revoke(lease));
	H_STATUS(XPORT_ERR_CLOSED, xport_lease_revoke(lease));
	if (d.driver == D_LOOP)
		H_STATUS(XPORT_ERR_STALE_KEY, d_settled(&d, lease));
	else
		H_OK(d_settled(&d, lease));
	H_OK(xport_lease_free(lease));
	d_sync(&d, 1);
	/* A region without rights cannot be given; this side takes nothing. */
	for (uint32_t rights = 0; rights <= XPORT_REMOTE_RECV; rights += XPORT_REMOTE_RECV) {
		H_OK(xport_mr_reg(h->x, buf, LEN, rights, &mr));
		H_STATUS(XPORT_ERR_INVALID, xport_lease_give(d.l, h->ep[1], mr, NULL, &lease));
		SVC_ERROR(XPORT_ERR_INVALID, "xport_lease_give", "without rights");
		H_OK(xport_mr_dereg(mr));
	}
	d_sync(&d, 1);
	H_EQ(1, d_all(&d).refused);
	/* BUSY, until the receive is cancelled. */
	{
		struct d_op op = {0};
		uint64_t id;
		struct xport_opt o = {.size = sizeof(o), .context = &op, .id = &id};

		H_OK(xport_mr_reg(h->x, buf, LEN, D_RW | XPORT_REMOTE_RECV, &mr));
		o.mr = mr;
		H_OK(xport_recv(h->x, buf, 100, 7, UINT64_MAX, &o));
		H_OK(xport_lease_give(d.l, h->ep[1], mr, NULL, &lease));
		H_OK(d_settled(&d, lease));
		H_OK(xport_lease_revoke(lease));
		d_turn_for(&d, 100);
		H_EQ(XPORT_LEASE_ENDING, d_info(&d, lease).state);
		H_OK(xport_cancel(h->x, id));
		H_STATUS(XPORT_ERR_CANCELED, d_ended(&d, &op));
		e = D_EVENT(&d, XPORT_LEASE_ENDED);
		H_STATUS(XPORT_ERR_STALE_KEY, e.status);
		H_OK(xport_lease_free(lease));
	}
	d_sync(&d, 1);
	d_end(&d);
	h_sync(h);
}

static void give_borrower(struct h *h)
{
	struct xport_leases_attr a = {.size = sizeof(a), .flags = XPORT_LEASES_TAKE};
	uint8_t *buf = h_buf(h, LEN);
	struct xport_lease_event e;
	xport_lease *lease;
	xport_mr *mr;
	struct d d;

	d_begin(&d, h, (int)h->param, &a);
	e = D_EVENT(&d, XPORT_LEASE_GIVEN);
	H_TRUE(e.context == NULL);
	xport_lease_set_context(e.lease, &d);
	H_TRUE(d_info(&d, e.lease).context == &d);
	H_EQ(LEN, d_info(&d, e.lease).length);
	H_EQ(D_RW, d_info(&d, e.lease).rights);
	h_fill(buf, LEN, 1);
	H_OK(d_put(&d, e.lease, buf, LEN, 0));
	d_sync(&d, 0);
	H_OK(xport_lease_return(e.lease));
	H_OK(d_settled(&d, e.lease));
	H_OK(xport_lease_free(e.lease));
	d_sync(&d, 0);
	e = D_EVENT(&d, XPORT_LEASE_GIVEN);
	lease = e.lease;
	h_fill(buf, LEN, 2);
	H_OK(d_put(&d, lease, buf, LEN, 0));
	d_sync(&d, 0);
	e = D_EVENT(&d, XPORT_LEASE_ENDED);
	H_TRUE(e.lease == lease);
	H_STATUS(XPORT_ERR_STALE_KEY, e.status);
	d_sync(&d, 0);
	H_STATUS(XPORT_ERR_STALE_KEY, d_put(&d, lease, buf, LEN, 0));
	H_OK(xport_lease_free(lease));
	/* The other side takes nothing. */
	H_OK(xport_mr_reg(h->x, buf, LEN, D_RW, &mr));
	H_OK(xport_lease_give(d.l, h->ep[0], mr, NULL, &lease));
	H_STATUS(XPORT_ERR_NOT_SUPPORTED, d_settled(&d, lease));
	H_OK(xport_lease_free(lease));
	d_sync(&d, 0);
	D_EVENT(&d, XPORT_LEASE_GIVEN);
	D_EVENT(&d, XPORT_LEASE_ENDED);
	d_sync(&d, 0);
	d_end(&d);
	h_sync(h);
}

/* ---- regions whose atomics an adapter may carry ---- */

enum { NIC = D_RW | XPORT_REMOTE_ATOMIC | XPORT_ATOMIC_NIC };

static void nic_lender(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	xport_lease *lease;
	xport_mr *mr;
	struct d d;

	d_begin(&d, h, D_LOOP, &a);
	H_OK(xport_mr_alloc(h->x, LEN, NIC, &mr));
	H_OK(xport_lease_give(d.l, h->ep[1], mr, NULL, &lease));
	H_OK(d_settled(&d, lease));
	d_sync(&d, 1);
	H_EQ(NIC, d_info(&d, D_EVENT(&d, XPORT_LEASE_LENT).lease).rights);
	d_sync(&d, 1);
	H_EQ(0, d_all(&d).muted);
	d_end(&d);
	h_sync(h);
}

static void nic_add(struct d *d, xport_lease *lease)
{
	struct d_op op = {0};
	struct xport_opt o = {.size = sizeof(o), .context = &op};
	uint64_t was = 1;
	struct xport_atomic_args add = {
		.size = sizeof(add), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1, .result = &was};
	struct h *h = d->h;

	H_EQ(NIC, d_info(d, lease).rights);
	H_OK(xport_atomic(h->ep[0], &add, d_info(d, lease).rkey, 64, &o));
	H_OK(d_ended(d, &op));
	H_EQ(0, was);
}

static void nic_borrower(struct h *h)
{
	struct xport_leases_attr a = {.size = sizeof(a), .flags = XPORT_LEASES_TAKE};
	xport_lease *lease;
	struct d d;

	d_begin(&d, h, D_LOOP, &a);
	nic_add(&d, D_EVENT(&d, XPORT_LEASE_GIVEN).lease);
	d_sync(&d, 0);
	/* Without XPORT_REMOTE_ATOMIC there is no such region. */
	H_STATUS(XPORT_ERR_INVALID, d_refused(&d, LEN, XPORT_REMOTE_READ | XPORT_ATOMIC_NIC));
	H_OK(xport_lease_ask(d.l, h->ep[0], LEN, NIC, NULL, &lease));
	H_OK(d_settled(&d, lease));
	nic_add(&d, lease);
	d_sync(&d, 0);
	H_EQ(0, d_all(&d).muted);
	d_end(&d);
	h_sync(h);
}

/* ---- revoked under traffic ---- */

enum { OPS = 16, PIECE = 20000, FORCED = 1 };

static void traffic_lender(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	uint8_t *buf = h_buf(h, LEN);
	xport_lease *lease;
	xport_mr *mr;
	struct d d;

	a.patience_ms = h->param & FORCED ? -1 : 5000;
	d_begin(&d, h, D_LOOP, &a);
	for (int round = 0; round < 5; round++) {
		int64_t end = h_now_us() + (int64_t)h_ms(10000) * 1000;

		memset(buf, 0, LEN);
		H_OK(xport_mr_reg(h->x, buf, LEN, D_RW, &mr));
		H_OK(xport_lease_give(d.l, h->ep[1], mr, NULL, &lease));
		H_OK(d_settled(&d, lease));
		/* Until puts land, for certain. */
		while (((volatile uint8_t *)buf)[PIECE - 1] == 0) {
			H_CHECK(h_now_us() < end, "no put landed");
			d_turn(&d);
		}
		d_turn_for(&d, 5 * round);
		H_OK(xport_lease_revoke(lease));
		H_STATUS(XPORT_ERR_STALE_KEY, d_settled(&d, lease));
		/* Revoked: from now on these bytes are ours alone. */
		memset(buf, 0xee, LEN);
		d_turn_for(&d, 60);
		H_BYTES(buf, LEN, 0xee);
		d_sync(&d, 1);
		H_BYTES(buf, LEN, 0xee);
		H_OK(xport_lease_free(lease));
	}
	d_end(&d);
	h_sync(h);
}

/* Puts without pause, some of them under way at all times, until they fail: in no other way than by a stale key. */
static void traffic_borrower(struct h *h)
{
	struct xport_leases_attr a = {.size = sizeof(a), .flags = XPORT_LEASES_TAKE};
	uint8_t *buf = h_buf(h, PIECE);
	struct d_op op[OPS];
	struct d d;

	d_begin(&d, h, D_LOOP, &a);
	memset(buf, 0x77, PIECE);
	for (int round = 0; round < 5; round++) {
		xport_lease *lease = D_EVENT(&d, XPORT_LEASE_GIVEN).lease;
		xport_rkey *rkey = d_info(&d, lease).rkey;
		int r = XPORT_OK, flying = 0;
		uint64_t n = 0, stale = 0;

		memset(op, 0, sizeof(op));
		for (int i = 0; i < OPS; i++)
			op[i].done = 1;
		for (bool over = false; !over || flying > 0; n++) {
			struct d_op *o = &op[n % OPS];
			struct xport_opt opt = {.size = sizeof(opt), .context = o};

			if (n >= OPS && o->c.type != 0) {
				r = d_ended(&d, o);
				flying--;
				o->c.type = 0;
				H_CHECK(r == XPORT_OK || r == XPORT_ERR_STALE_KEY, "%s", xport_status_name(r));
				stale += r == XPORT_ERR_STALE_KEY;
				over |= r != XPORT_OK;
			}
			if (over)
				continue;
			atomic_store(&o->done, 0);
			r = xport_put(h->ep[0], buf, PIECE, rkey, n % (LEN / PIECE) * PIECE, &opt);
			if (r == XPORT_OK) {
				o->c.type = XPORT_OP_PUT;
				flying++;
			} else {
				atomic_store(&o->done, 1);
				H_CHECK(r == XPORT_ERR_STALE_KEY || r == XPORT_ERR_AGAIN, "%s", xport_status_name(r));
				stale += r == XPORT_ERR_STALE_KEY;
				over |= r == XPORT_ERR_STALE_KEY;
			}
			d_turn(&d);
		}
		H_TRUE(stale > 0);
		H_STATUS(XPORT_ERR_STALE_KEY, D_EVENT(&d, XPORT_LEASE_ENDED).status);
		d_sync(&d, 0);
		H_OK(xport_lease_free(lease));
	}
	d_end(&d);
	h_sync(h);
}

/* ---- made anew on an endpoint that lives on ---- */

enum { ONE_ANEW = 0, BOTH_ANEW = 1 };

static void make_anew(struct d *d, const struct xport_leases_attr *a)
{
	struct h *h = d->h;

	H_OK(xport_leases_destroy(d->l, NULL, NULL, h_ms(h->limit_ms)));
	H_OK(xport_leases_create(h->x, a, &d->l));
}

static void anew_lender(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	struct d d;

	d_begin(&d, h, D_LOOP, &a);
	D_EVENT(&d, XPORT_LEASE_LENT);
	D_EVENT(&d, XPORT_LEASE_ENDED);
	d_sync(&d, 1);
	h_sync(h);
	h_sync(h); /* the other side has destroyed its own meanwhile, and nobody has polled here */
	if (h->param == BOTH_ANEW)
		make_anew(&d, &a);
	h_sync(h);
	d_sync(&d, 1);
	H_EQ(1, d_all(&d).lent);
	H_EQ(LEN, d_all(&d).lent_bytes);
	H_EQ(0, d_all(&d).muted);
	d_sync(&d, 1);
	d_end(&d);
	h_sync(h);
}

/* What was said to the leases that were there before means nothing to the new ones. */
static void anew_borrower(struct h *h)
{
	uint8_t *buf = h_buf(h, LEN), *back = h_buf(h, LEN);
	xport_lease *lease, *last = NULL;
	struct d d;

	d_begin(&d, h, D_LOOP, NULL);
	H_OK(xport_lease_ask(d.l, h->ep[0], LEN, D_RW, NULL, &lease));
	H_OK(d_settled(&d, lease));
	H_OK(xport_lease_return(lease));
	H_OK(d_settled(&d, lease));
	d_sync(&d, 0);
	h_sync(h);
	if (h->param == ONE_ANEW) /* never answered here */
		H_OK(xport_lease_ask(d.l, h->ep[0], LEN, D_RW, NULL, &lease));
	make_anew(&d, NULL);
	h_sync(h);
	h_sync(h);
	for (int i = 0; i < 3; i++) {
		H_OK(xport_lease_ask(d.l, h->ep[0], LEN, D_RW, NULL, &lease));
		H_OK(d_settled(&d, lease));
		h_fill(buf, LEN, (uint64_t)i);
		H_OK(d_put(&d, lease, buf, LEN, 0));
		H_OK(d_get(&d, lease, back, LEN, 0));
		H_FILLED(back, LEN, (uint64_t)i);
		if (last != NULL) {
			H_OK(xport_lease_return(last));
			H_OK(d_settled(&d, last));
		}
		last = lease;
	}
	H_EQ(1, d_all(&d).borrowed);
	d_sync(&d, 0);
	d_sync(&d, 0);
	d_end(&d);
	h_sync(h);
}

static const struct h_param drivers[] = {{"loop", D_LOOP}, {"wait", D_WAIT}, {"thread", D_THREAD}, {NULL, 0}};
static const struct h_param asks[] = {
	{"loop", D_LOOP}, {"wait", D_WAIT}, {"thread", D_THREAD}, {"pool", D_LOOP | FROM_POOL}, {NULL, 0}};
static const struct h_param anews[] = {{"one", ONE_ANEW}, {"both", BOTH_ANEW}, {NULL, 0}};
static const struct h_param revokes[] = {{"polite", 0}, {"forced", FORCED}, {NULL, 0}};

const struct h_scenario svc_cases_lease[] = {
	{"lease_ask", {ask_lender, ask_borrower}, asks, 0, 0},
	{"lease_quota", {quota_lender, quota_borrower, quota_other}, NULL, H_ONCE, 0},
	{"lease_give", {give_lender, give_borrower}, drivers, 0, 0},
	{"lease_anew", {anew_lender, anew_borrower}, anews, H_ONCE, 0},
	{"lease_nic", {nic_lender, nic_borrower}, NULL, 0, 0},
	{"lease_revoke", {traffic_lender, traffic_borrower}, revokes, 0, 0},
	{0},
};
