/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_lease_end.c - leases that end with their endpoint, with a process, or with its silence. */
#include "services/drive.h"

enum { LEN = 300000 };

/* ---- a lease ends with the endpoint ---- */

static void close_lender(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	xport_lease *lease;
	struct d d;

	d_begin(&d, h, D_LOOP, &a);
	lease = D_EVENT(&d, XPORT_LEASE_LENT).lease;
	D_EVENT(&d, XPORT_LEASE_LENT);
	if (h->param) { /* this side closes */
		d_sync(&d, 1);
		(void)xport_ep_close(h->ep[1], h_ms(1000));
		xport_leases_forget(d.l, h->ep[1]);
	}
	for (int i = 0; i < 2; i++) {
		struct xport_lease_event e = D_EVENT(&d, XPORT_LEASE_ENDED);

		H_STATUS(h->param ? XPORT_ERR_CLOSED : XPORT_ERR_PEER_CLOSED, e.status);
	}
	H_EQ(0, d_all(&d).lent_bytes);
	H_TRUE(d_info(&d, lease).base == NULL);
	H_STATUS(h->param ? XPORT_ERR_CLOSED : XPORT_ERR_PEER_CLOSED,
	         xport_lease_ask(d.l, h->ep[1], 1, D_RW, NULL, &lease));
	SVC_ERROR(h->param ? XPORT_ERR_CLOSED : XPORT_ERR_PEER_CLOSED, "xport_lease_ask", "not open");
	d_end(&d);
	h_sync(h);
}

static void close_borrower(struct h *h)
{
	xport_lease *lease[2];
	struct d d;

	d_begin(&d, h, D_LOOP, NULL);
	for (int i = 0; i < 2; i++) {
		H_OK(xport_lease_ask(d.l, h->ep[0], LEN, D_RW, NULL, &lease[i]));
		H_OK(d_settled(&d, lease[i]));
	}
	if (h->param) {
		d_sync(&d, 0);
	} else {
		(void)xport_ep_close(h->ep[0], h_ms(1000));
		xport_leases_forget(d.l, h->ep[0]);
	}
	for (int i = 0; i < 2; i++) {
		struct xport_lease_event e = D_EVENT(&d, XPORT_LEASE_ENDED);

		H_STATUS(h->param ? XPORT_ERR_PEER_CLOSED : XPORT_ERR_CLOSED, e.status);
		H_CHECK(d_put(&d, e.lease, "x", 1, 0) < 0, "a put through a closed endpoint");
		H_OK(xport_lease_free(e.lease));
	}
	d_end(&d);
	h_sync(h);
}

/* ---- asked while the endpoint is given back ---- */

/* As if another thread had reaped the first message, and brought it late. */
static void late_lender(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	struct xport_completion c, more;
	struct d d;

	d_begin(&d, h, D_LOOP, &a);
	h_tell_u64(h, 1, 1);
	h_hear_u64(h, 1);
	while (xport_poll(h->x, &c, 1) == 0 || c.type != XPORT_OP_RECV)
		continue;
	(void)xport_ep_close(h->ep[1], 0);
	xport_leases_forget(d.l, h->ep[1]);
	H_EQ(1, xport_leases_step(d.l, &c));
	for (int i = 0; i < 10; i++) {
		if (xport_poll(h->x, &more, 1) == 1)
			(void)xport_leases_step(d.l, &more);
	}
	xport_ep_destroy(h->ep[1]);
	h->ep[1] = NULL;
	d_turn_for(&d, 20);
	H_EQ(0, d_all(&d).lent);
	d_end(&d);
	h_sync(h);
}

static void late_borrower(struct h *h)
{
	xport_lease *lease[3];
	struct d d;

	d_begin(&d, h, D_LOOP, NULL);
	h_hear_u64(h, 0);
	for (int i = 0; i < 3; i++)
		H_OK(xport_lease_ask(d.l, h->ep[0], LEN, D_RW, NULL, &lease[i]));
	d_turn_for(&d, 20);
	h_tell_u64(h, 0, 1);
	for (int i = 0; i < 3; i++)
		H_STATUS(XPORT_ERR_PEER_CLOSED, D_EVENT(&d, XPORT_LEASE_ENDED).status);
	d_end(&d);
	h_sync(h);
}

/* The same at a borrower: all that the peer may send behind it comes before it. */
enum { ASKS = 32 };

static void first_lender(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	xport_lease *given;
	xport_mr *mr;
	struct d d;

	a.max_leases = 2 * ASKS;
	d_begin(&d, h, D_LOOP, &a);
	H_OK(xport_mr_reg(h->x, h_buf(h, 64), 64, D_RW, &mr));
	H_OK(xport_lease_give(d.l, h->ep[1], mr, NULL, &given));
	for (int i = 0; i < ASKS; i++)
		D_EVENT(&d, XPORT_LEASE_LENT);
	d_turn_for(&d, 20);
	h_tell_u64(h, 1, 1);
	H_TRUE(D_EVENT(&d, XPORT_LEASE_TAKEN).lease == given);
	d_sync(&d, 1);
	d_end(&d);
	h_sync(h);
}

static void first_borrower(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	struct xport_completion c;
	xport_lease *lease[ASKS];
	struct d d;

	a.max_leases = 2 * ASKS;
	a.flags = XPORT_LEASES_TAKE;
	d_begin(&d, h, D_LOOP, &a);
	while (xport_poll(h->x, &c, 1) == 0 || c.type != XPORT_OP_RECV)
		continue;
	for (int i = 0; i < ASKS; i++)
		H_OK(xport_lease_ask(d.l, h->ep[0], 64, D_RW, NULL, &lease[i]));
	while (!h_heard(h, 0))
		d_turn(&d);
	h_hear_u64(h, 0);
	d_turn_for(&d, 50);
	H_EQ(1, xport_leases_step(d.l, &c));
	D_EVENT(&d, XPORT_LEASE_GIVEN);
	for (int i = 0; i < ASKS; i++)
		H_TRUE(D_EVENT(&d, XPORT_LEASE_GRANTED).lease == lease[i]);
	H_EQ(0, d_all(&d).muted);
	d_sync(&d, 0);
	d_end(&d);
	h_sync(h);
}

/* ---- a lease of an endpoint that was never accepted ---- */

static void begin_alone(struct d *d, struct h *h, const struct xport_leases_attr *a)
{
	*d = (struct d){.h = h, .driver = D_LOOP};
	h_open(h, NULL);
	H_OK(xport_leases_create(h->x, a, &d->l));
	h->idle = true;
}

static void unaccepted_lender(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	struct xport_lease_event e;
	struct d d;

	begin_alone(&d, h, &a);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	D_EVENT(&d, XPORT_LEASE_LENT);
	d_sync(&d, 1);
	xport_listener_close(h->listener);
	h->listener = NULL;
	e = D_EVENT(&d, XPORT_LEASE_ENDED);
	H_STATUS(XPORT_ERR_CLOSED, e.status);
	H_EQ(0, d_all(&d).lent);
	xport_ep_destroy(e.ep);
	d_turn_for(&d, 20);
	d_end(&d);
	h_sync(h);
}

static void unaccepted_borrower(struct h *h)
{
	char address[80];
	xport_lease *lease;
	struct d d;

	begin_alone(&d, h, NULL);
	h_hear(h, 0, address, sizeof(address));
	h->ep[0] = h_connect(h, address);
	H_OK(xport_lease_ask(d.l, h->ep[0], LEN, D_RW, NULL, &lease));
	H_OK(d_settled(&d, lease));
	d_sync(&d, 0);
	H_STATUS(XPORT_ERR_PEER_CLOSED, D_EVENT(&d, XPORT_LEASE_ENDED).status);
	d_end(&d);
	h_sync(h);
}

/* ---- death ---- */

enum { BORROWER_DIES = 16, ASKED = 0, HELD = 1, ENDING = 2 };

static void settle_dead(struct d *d, xport_lease *lease)
{
	struct h *h = d->h;
	struct xport_lease_event e = D_EVENT(d, XPORT_LEASE_ENDED);

	H_TRUE(e.lease == lease);
	H_STATUS(XPORT_ERR_PEER_LOST, e.status);
	H_OK(xport_lease_free(lease));
	H_EQ(0, d_all(d).borrowed);
	H_EQ(0, d_all(d).lent);
	H_EQ(0, d_all(d).lent_bytes);
	H_EQ(1, atomic_load(&d->gone));
}

/* Role 0 dies at a step that role 1 has begun: it is stopped first, so that it is in the middle of it for certain. */
static void death_victim(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	struct d d;

	a.flags = XPORT_LEASES_TAKE;
	d_begin(&d, h, D_LOOP, &a);
	for (;;)
		d_turn(&d);
}

static void death_survivor(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	bool lender = (h->param & BORROWER_DIES) != 0;
	int step = (int)(h->param & 15);
	uint8_t *buf = h_buf(h, LEN);
	xport_lease *lease;
	xport_mr *mr;
	struct d d;

	d_begin(&d, h, D_LOOP, &a);
	if (step == ASKED)
		h_stop(h, 0);
	if (lender) {
		H_OK(xport_mr_reg(h->x, buf, LEN, D_RW, &mr));
		H_OK(xport_lease_give(d.l, h->ep[0], mr, NULL, &lease));
	} else {
		H_OK(xport_lease_ask(d.l, h->ep[0], LEN, D_RW, NULL, &lease));
	}
	if (step != ASKED)
		H_OK(d_settled(&d, lease));
	else if (!lender)
		H_STATUS(XPORT_ERR_INVALID, xport_lease_return(lease)); /* not granted yet */
	if (step == ENDING) {
		h_stop(h, 0);
		H_OK(lender ? xport_lease_revoke(lease) : xport_lease_return(lease));
		d_turn_for(&d, 50);
	}
	h_kill(h, 0, SIGKILL);
	settle_dead(&d, lease);
	d_end(&d);
}

/* A borrower that does not answer is waited for no longer than patience, and libxport's own limit. */
static void silent_borrower(struct h *h)
{
	struct xport_leases_attr a = {.size = sizeof(a), .flags = XPORT_LEASES_TAKE};
	struct d d;

	d_begin_for(&d, h, D_LOOP, &a, h_ms(1500));
	for (;;)
		d_turn(&d);
}

static void silent_lender(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	uint8_t *buf = h_buf(h, LEN);
	int64_t begun;
	xport_lease *lease;
	xport_mr *mr;
	struct d d;

	a.patience_ms = 100;
	d_begin_for(&d, h, D_LOOP, &a, h_ms(1500));
	H_OK(xport_mr_reg(h->x, buf, LEN, D_RW, &mr));
	H_OK(xport_lease_give(d.l, h->ep[0], mr, NULL, &lease));
	H_OK(d_settled(&d, lease));
	h_stop(h, 0);
	begun = h_now_us();
	H_OK(xport_lease_revoke(lease));
	H_STATUS(XPORT_ERR_STALE_KEY, D_EVENT(&d, XPORT_LEASE_ENDED).status);
	H_TRUE(h_now_us() - begun >= 95000);
	H_TRUE(h_now_us() - begun < (int64_t)h_ms(4000) * 1000);
	H_OK(xport_lease_free(lease));
	h_kill(h, 0, SIGKILL);
	while (atomic_load(&d.gone) == 0)
		d_turn(&d);
	d_end(&d);
}

static const struct h_param closes[] = {{"borrower", 0}, {"lender", 1}, {NULL, 0}};
static const struct h_param deaths[] = {{"lender_asked", ASKED},
                                        {"lender_held", HELD},
                                        {"lender_returned", ENDING},
                                        {"borrower_given", BORROWER_DIES | ASKED},
                                        {"borrower_held", BORROWER_DIES | HELD},
                                        {"borrower_revoked", BORROWER_DIES | ENDING},
                                        {NULL, 0}};

const struct h_scenario svc_cases_lease_end[] = {
	{"lease_close", {close_lender, close_borrower}, closes, H_ONCE, 0},
	{"lease_asked_late", {late_lender, late_borrower}, NULL, H_ONCE, 0},
	{"lease_first_late", {first_lender, first_borrower}, NULL, H_ONCE, 0},
	{"lease_not_accepted", {unaccepted_lender, unaccepted_borrower}, NULL, H_ONCE, 0},
	{"lease_death", {death_victim, death_survivor}, deaths, H_KILLS | H_ONCE, 0},
	{"lease_silent", {silent_borrower, silent_lender}, NULL, H_KILLS | H_ONCE, 0},
	{0},
};
