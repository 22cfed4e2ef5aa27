/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_rpc_kept.c - replies that wait for transfers: when the callee destroys its calls, and when the wait ends. */
#include "services/bulk.h"
#include "services/bulk_user.h"
#include "services/rpc_user.h"

enum { LEN = 1 << 20, ROUNDS = 100 };
enum { IDLE, BUSY }; /* when the callee destroys its calls, the descriptor is held by nobody, or by something */

/* ---- the callee destroys its calls ---- */

struct callee {
	struct h *h;
	xport_rpcs *r;
	xport_bulks *b;
	xport_bulk *bulk;
	uint8_t *to;
};

/* Replies while its pull is in flight. */
static void take(void *arg, const struct xport_rpc_event *q)
{
	struct xport_iov iov;
	struct callee *c = arg;
	struct xport_bulk_args a = bulk_args(0, c->to, LEN, &iov);
	struct h *h = c->h;

	H_EQ(1, q->nbulks);
	c->bulk = q->bulks[0];
	svc_bulk_hold(c->bulk); /* until after the last step of the calls: the pull may be over before */
	H_OK(xport_bulk_pull(c->b, c->bulk, &a));
	H_OK(xport_rpc_reply(c->r, q->id, XPORT_OK, "taken", 5));
}

/* Returns whether the pull has ended. */
static bool callee_turn(struct callee *c)
{
	struct xport_bulk_event e = {.size = sizeof(e)};
	struct xport_completion done;
	struct h *h = c->h;
	int n = xport_wait(h->x, &done, 1, 1);

	if (xport_bulks_step(c->b, n > 0 ? &done : NULL) == 0)
		(void)xport_rpcs_step(c->r, n > 0 ? &done : NULL);
	return xport_bulks_next(c->b, &e) == 1 && e.status == XPORT_OK;
}

static void callee(struct h *h)
{
	int64_t until = h_now_us() + (int64_t)h_ms(20000) * 1000;
	struct callee c = {.h = h};

	h_mesh(h, NULL);
	H_OK(xport_rpcs_create(h->x, NULL, &c.r));
	H_OK(xport_bulks_create(h->x, NULL, &c.b));
	c.to = h_buf(h, LEN);
	H_OK(xport_rpc_register(c.r, "take", take, &c));
	h->idle = true;
	h_sync(h);
	while (!callee_turn(&c))
		H_TRUE(h_now_us() < until);
	if (h->param == IDLE)
		xport_bulk_free(c.bulk);
	H_OK(xport_rpcs_destroy(c.r, NULL, NULL, h_ms(10000)));
	if (h->param == BUSY)
		xport_bulk_free(c.bulk);
	H_FILLED(c.to, LEN, 1);
	H_OK(xport_bulks_destroy(c.b, NULL, NULL, h_ms(10000)));
	h->idle = false;
	h_sync(h);
}

static xport_bulk *describe(struct h *h, const struct h_mem *m)
{
	struct xport_bulk_attr a = {.size = sizeof(a), .rights = XPORT_REMOTE_READ};
	struct xport_bulk_run run = {m->mr, m->offset, LEN, 0, 1};
	xport_bulk *bulk;

	H_OK(xport_bulk_create(h->x, &run, 1, &a, &bulk));
	return bulk;
}

/* An accepted reply arrives, unless it could not be sent. */
static void caller(struct h *h)
{
	char said[16] = "";
	struct xport_rpc_args a = rpc_args(NULL, 0, said, sizeof(said));
	struct xport_rpc_event e = {.size = sizeof(e)};
	int status = h->param == IDLE ? XPORT_OK : XPORT_ERR_PEER_CLOSED;
	xport_bulk *bulk;
	struct h_mem m;
	xport_rpcs *r;

	h_mesh(h, NULL);
	H_OK(xport_rpcs_create(h->x, NULL, &r));
	m = h_mem_target(h, LEN, 0, XPORT_REMOTE_READ);
	h_fill(m.p, LEN, 1);
	bulk = describe(h, &m);
	a.bulks = &bulk;
	a.nbulks = 1;
	a.deadline_ms = (uint32_t)h_ms(20000);
	h->idle = true;
	h_sync(h);
	H_OK(xport_rpc_call(r, h->ep[0], "take", &a));
	H_OK(xport_rpcs_wait(r, &e, NULL, NULL, h_ms(30000)));
	H_EQ(XPORT_RPC_DONE, e.type);
	H_STATUS(status, e.status);
	H_EQ(status == XPORT_OK ? XPORT_RPC_RAN_YES : XPORT_RPC_RAN_UNKNOWN, e.ran);
	H_TRUE(strcmp(said, status == XPORT_OK ? "taken" : "") == 0);
	H_OK(xport_rpcs_wait(r, &e, NULL, NULL, h_ms(30000)));
	H_EQ(XPORT_RPC_RELEASED, e.type);
	H_STATUS(status, e.status);
	xport_bulk_free(bulk);
	H_OK(xport_rpcs_destroy(r, NULL, NULL, h_ms(10000)));
	h_mem_free(h, &m);
	h->idle = false;
	h_sync(h);
}

/* ---- two threads ---- */

static void *let(void *arg)
{
	xport_bulk_free(arg);
	return NULL;
}

/* Who sees that nobody holds a descriptor may free it, while the other thread is still in xport_bulk_free. */
static void threads(struct h *h)
{
	unsigned before;
	struct h_mem m;

	h_open(h, NULL);
	m = h_mem_target(h, LEN, 0, XPORT_REMOTE_READ);
	before = atomic_load(&svc_bulk_idles);
	for (int i = 0; i < ROUNDS; i++) {
		xport_bulk *bulk = describe(h, &m);
		pthread_t t;

		svc_bulk_hold(bulk);
		H_EQ(0, pthread_create(&t, NULL, let, bulk));
		while (svc_bulk_held(bulk))
			sched_yield();
		xport_bulk_free(bulk);
		pthread_join(t, NULL);
	}
	H_EQ(ROUNDS, atomic_load(&svc_bulk_idles) - before); /* each is told to those that wait */
	h_mem_free(h, &m);
}

static const struct h_param whens[] = {{"idle", IDLE}, {"busy", BUSY}, {NULL, 0}};

const struct h_scenario svc_cases_rpc_kept[] = {
	{.name = "rpc_kept_destroy", .role = {callee, caller}, .params = whens},
	{.name = "rpc_kept_threads", .role = {threads}, .flags = H_ONCE},
	{.name = NULL},
};
