/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_limits.c - time limits: calls that do not wait still make progress, and other activity does not prolong a wait. */
#include "conform/harness.h"
#include "services/drive.h"
#include "services/user.h"
#include "services/versioned.h"

enum { OFTEN = 1000, DEPTH = 8, LIMIT_MS = 20, LEN = 1000 };

static int64_t soon(const struct h *h)
{
	return h_now_us() + (int64_t)h_ms(h->limit_ms) * 1000;
}

/* ---- what waits for its own receives ---- */

static void leases_destroyed(struct h *h)
{
	int r = XPORT_ERR_TIMEOUT;
	xport_leases *l;

	h_open(h, NULL);
	H_OK(xport_leases_create(h->x, NULL, &l));
	for (int i = 0; r == XPORT_ERR_TIMEOUT && i < OFTEN; i++)
		r = xport_leases_destroy(l, NULL, NULL, 0);
	H_OK(r);
}

static void directory_destroyed(struct h *h)
{
	int r = XPORT_ERR_TIMEOUT;
	xport_directory *d;

	h_open(h, NULL);
	H_OK(xport_directory_create(h->x, NULL, &d));
	for (int i = 0; r == XPORT_ERR_TIMEOUT && i < OFTEN; i++)
		r = xport_directory_destroy(d, NULL, NULL, 0);
	H_OK(r);
}

static void rpcs_destroyed(struct h *h)
{
	int status = XPORT_ERR_TIMEOUT;
	xport_rpcs *r;

	h_open(h, NULL);
	H_OK(xport_rpcs_create(h->x, NULL, &r));
	for (int i = 0; status == XPORT_ERR_TIMEOUT && i < OFTEN; i++)
		status = xport_rpcs_destroy(r, NULL, NULL, 0);
	H_OK(status);
}

/* ---- what waits for a peer ---- */

static void lender(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	struct d d;

	d_begin(&d, h, D_LOOP, &a);
	d_sync(&d, 1);
	d_end(&d);
	h_sync(h);
}

static void borrower(struct h *h)
{
	struct xport_lease_event e = {.size = sizeof(e)};
	int r = XPORT_ERR_TIMEOUT;
	xport_lease *lease;
	struct d d;

	d_begin(&d, h, D_LOOP, NULL);
	H_OK(xport_lease_ask(d.l, h->ep[0], LEN, D_RW, NULL, &lease));
	for (int64_t end = soon(h); r == XPORT_ERR_TIMEOUT && h_now_us() < end;)
		r = xport_lease_wait(lease, NULL, NULL, 0);
	H_OK(r);
	H_OK(xport_lease_return(lease));
	r = XPORT_ERR_TIMEOUT;
	for (int64_t end = soon(h); r == XPORT_ERR_TIMEOUT && h_now_us() < end;)
		r = xport_leases_wait(d.l, &e, NULL, NULL, 0);
	H_OK(r);
	H_EQ(XPORT_LEASE_ENDED, e.type);
	d_sync(&d, 0);
	d_end(&d);
	h_sync(h);
}

static void server(struct h *h)
{
	struct xport_directory_attr a = {.size = sizeof(a), .serve = 1};
	struct u u;

	u_begin(&u, h, 0, &a);
	u_meet(&u, 1);
	u_end(&u);
	h_sync(h);
}

static void user(struct h *h)
{
	struct xport_directory_event e = {.size = sizeof(e)};
	int r = XPORT_ERR_TIMEOUT;
	struct u u;

	u_begin(&u, h, 0, NULL);
	H_OK(xport_directory_find(u.d, "x", 1, NULL));
	for (int64_t end = soon(h); r == XPORT_ERR_TIMEOUT && h_now_us() < end;)
		r = xport_directory_wait(u.d, &e, NULL, NULL, 0);
	H_OK(r);
	H_STATUS(XPORT_ERR_UNREACHABLE, e.status);
	u_meet(&u, 0);
	u_end(&u);
	h_sync(h);
}

/* ---- versioned objects ---- */

static void owner(struct h *h)
{
	v_serve(h, XPORT_VERSIONED_CHECKED);
}

/* Gets of somebody else; unless they end, others for those that have ended. */
struct traffic {
	struct h *h;
	struct h_mem m;
	struct h_rkey k;
	bool ends;
	int under_way;
};

static void post_traffic(struct traffic *t)
{
	struct xport_opt o = {.size = sizeof(o), .context = t, .mr = t->m.mr};

	while (!t->ends && xport_get(t->h->ep[0], t->m.p, 8, t->k.k, 0, &o) == XPORT_OK)
		t->under_way++;
}

static void traffic_ended(void *arg, const struct xport_completion *c)
{
	struct traffic *t = arg;

	t->under_way -= c->context == t;
	post_traffic(t);
}

static xport_versioned_peer *reach(struct traffic *t)
{
	struct xport_versioned_attr a = v_attr(XPORT_VERSIONED_CHECKED);
	struct h *h = t->h;
	xport_versioned_peer *p;

	a.tries = 10000000;
	H_OK(xport_versioned_peer_create(h->x, h->ep[0], t->k.k, 0, &a, &p));
	return p;
}

static void begin_peer(struct h *h, struct traffic *t)
{
	struct xport_attr a = h_attr(h);

	a.queue_depth = DEPTH;
	h_mesh(h, &a);
	*t = (struct traffic){.h = h, .m = h_mem_local(h, 8, 0), .k = h_import(h, 0)};
}

static void end_peer(struct h *h, struct traffic *t)
{
	struct xport_completion c;

	t->ends = true;
	for (int64_t end = soon(h); t->under_way > 0;) {
		H_CHECK(h_now_us() < end, "%d gets have not ended", t->under_way);
		if (xport_wait(h->x, &c, 1, h_ms(1000)) == 1)
			traffic_ended(t, &c);
	}
}

/* The queue was full when it began, and nothing else completes any more. */
static void queue_peer(struct h *h)
{
	int r = XPORT_ERR_TIMEOUT;
	uint64_t data[V_WORDS];
	xport_versioned_peer *p;
	struct traffic t;

	begin_peer(h, &t);
	p = reach(&t);
	post_traffic(&t);
	v_fill(data, 1);
	H_OK(xport_versioned_peer_write(p, data));
	end_peer(h, &t);
	for (int64_t end = soon(h); r == XPORT_ERR_TIMEOUT && h_now_us() < end;)
		r = xport_versioned_peer_wait(p, NULL, NULL, 0);
	H_OK(r);
	h_sync(h);
	xport_versioned_peer_destroy(p);
	xport_rkey_destroy(t.k.k);
	h_mem_free(h, &t.m);
}

/* It tries for a lock that is held, by nobody. */
static void traffic_peer(struct h *h)
{
	struct xport_atomic_args free_lock = {
		.size = sizeof(free_lock), .op = XPORT_ATOMIC_CAS, .width = 8, .compare = 1};
	struct xport_opt o = {.size = sizeof(o)};
	uint64_t data[V_WORDS], old;
	xport_versioned_peer *p;
	struct traffic t;
	int64_t begun;

	begin_peer(h, &t);
	p = reach(&t);
	H_DONE(h_atomic(h, h->ep[0], XPORT_ATOMIC_CAS, 8, 1, 0, &old, &t.k, 0));
	v_fill(data, 1);
	H_OK(xport_versioned_peer_write(p, data));
	post_traffic(&t);
	begun = h_now_us();
	H_STATUS(XPORT_ERR_TIMEOUT, xport_versioned_peer_wait(p, traffic_ended, &t, LIMIT_MS));
	H_TRUE(h_now_us() - begun < (int64_t)h_ms(2000) * 1000);
	t.ends = true;
	for (int64_t end = soon(h); t.under_way > 0 && h_now_us() < end;)
		H_STATUS(XPORT_ERR_TIMEOUT, xport_versioned_peer_wait(p, traffic_ended, &t, LIMIT_MS));
	o.context = &t;
	H_OK(xport_atomic(h->ep[0], &free_lock, t.k.k, 0, &o));
	t.under_way++;
	H_OK(xport_versioned_peer_wait(p, traffic_ended, &t, h_ms(h->limit_ms)));
	end_peer(h, &t);
	h_sync(h);
	xport_versioned_peer_destroy(p);
	xport_rkey_destroy(t.k.k);
	h_mem_free(h, &t.m);
}

const struct h_scenario svc_cases_limits[] = {
	{"limit_leases_destroy", {leases_destroyed}, NULL, 0, 0},
	{"limit_directory_destroy", {directory_destroyed}, NULL, 0, 0},
	{"limit_rpcs_destroy", {rpcs_destroyed}, NULL, 0, 0},
	{"limit_lease", {lender, borrower}, NULL, 0, 0},
	{"limit_directory", {server, user}, NULL, 0, 0},
	{"limit_queue", {owner, queue_peer}, NULL, 0, 0},
	{"limit_traffic", {owner, traffic_peer}, NULL, 0, 0},
	{0},
};
