/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_rpc_bulk.c - calls that pass descriptors of memory: transfers, the end of the loan, and what is refused. */
#include "services/bulk.h"
#include "services/bulk_user.h"
#include "services/msgq.h"
#include "services/rpc.h"
#include "services/rpc_user.h"

enum { LEN = 3 << 20, ROOM = 1024 };
enum {
	SOON,
	LATER,
	EARLY
}; /* the callee pulls at once, or when the caller has given up; or replies before it has pulled */

/* ---- both sides ---- */

struct party {
	struct h *h;
	xport_rpcs *r;
	xport_bulks *b;
	uint8_t *to;
	int when;
	uint64_t request; /* 0: none came */
	xport_bulk *const *bulks;
	xport_ep *next;       /* to pass descriptors on to */
	uint8_t packed[ROOM]; /* what it keeps of the last descriptor */
	size_t packed_len;
	int moves;                   /* transfers in progress */
	int replied;                 /* what xport_rpc_reply returned; 1: it was not called */
	int status;                  /* of the last transfer */
	struct xport_rpc_event call; /* the last event of a call; its type is 0 when it was looked at */
};

static void party_turn(struct party *p)
{
	struct xport_bulk_event e = {.size = sizeof(e)};
	struct xport_completion c[4];
	struct h *h = p->h;
	int n = xport_wait(h->x, c, 4, 1);

	for (int i = 0; i < n; i++) {
		if (xport_rpcs_step(p->r, &c[i]) == 0)
			(void)xport_bulks_step(p->b, &c[i]);
	}
	if (n <= 0 && xport_rpcs_step(p->r, NULL) == 0)
		(void)xport_bulks_step(p->b, NULL);
	while (xport_bulks_next(p->b, &e) == 1) {
		p->moves--;
		p->status = e.status;
	}
	p->call.size = sizeof(p->call);
	if (p->call.type == 0)
		H_TRUE(xport_rpcs_next(p->r, &p->call) >= 0);
}

static void party_wait(struct party *p, int type, int status)
{
	int64_t until = h_now_us() + (int64_t)h_ms(20000) * 1000;
	struct h *h = p->h;

	while (p->call.type == 0) {
		H_TRUE(h_now_us() < until);
		party_turn(p);
	}
	H_EQ(type, p->call.type);
	H_STATUS(status, p->call.status);
	p->call.type = 0;
}

static void party_meet(struct party *p, int role)
{
	struct h *h = p->h;

	h_tell_u64(h, role, 1);
	while (!h_heard(h, role))
		party_turn(p);
	h_hear_u64(h, role);
}

static void party_settle(struct party *p)
{
	int64_t until = h_now_us() + (int64_t)h_ms(20000) * 1000;
	struct h *h = p->h;

	while (p->moves > 0) {
		H_TRUE(h_now_us() < until);
		party_turn(p);
	}
}

static void party_begin(struct party *p, struct h *h)
{
	*p = (struct party){.h = h, .when = h->param, .replied = 1};
	h_mesh(h, NULL);
	H_OK(xport_rpcs_create(h->x, NULL, &p->r));
	H_OK(xport_bulks_create(h->x, NULL, &p->b));
	p->to = h_buf(h, LEN);
	h->idle = true;
	h_sync(h);
}

static void party_end(struct party *p)
{
	struct h *h = p->h;

	H_OK(xport_bulks_destroy(p->b, NULL, NULL, h_ms(10000)));
	H_OK(xport_rpcs_destroy(p->r, NULL, NULL, h_ms(10000)));
	h->idle = false;
	h_sync(h);
}

static void move(struct party *p, xport_bulk *bulk, bool push, uint32_t deadline_ms)
{
	struct xport_iov iov;
	struct xport_bulk_args a = bulk_args(0, p->to, LEN, &iov);
	struct h *h = p->h;

	a.deadline_ms = deadline_ms;
	H_OK(push ? xport_bulk_push(p->b, bulk, &a) : xport_bulk_pull(p->b, bulk, &a));
	p->moves++;
}

static void reply(struct party *p)
{
	p->replied = xport_rpc_reply(p->r, p->request, XPORT_OK, "bye", 3);
}

/* ---- the callee ---- */

/* Takes the request: a descriptor to read from and one to write to. */
static void copy(void *arg, const struct xport_rpc_event *q)
{
	struct party *p = arg;
	struct h *h = p->h;

	H_EQ(2, q->nbulks);
	H_EQ(5, q->len);
	H_TRUE(memcmp(q->payload, "hello", 5) == 0);
	H_EQ(0, (uintptr_t)q->payload % 16);
	H_EQ(XPORT_RPC_LENT, q->flags);
	H_EQ(LEN, bulk_info(h, q->bulks[0]).length);
	H_EQ(XPORT_REMOTE_READ, bulk_info(h, q->bulks[0]).rights);
	H_EQ(XPORT_REMOTE_WRITE, bulk_info(h, q->bulks[1]).rights);
	p->packed_len = sizeof(p->packed);
	H_OK(xport_bulk_pack(q->bulks[1], p->packed, &p->packed_len));
	p->request = q->id;
	p->bulks = q->bulks;
}

static void copier(struct h *h)
{
	struct xport_rpcs_info info = {.size = sizeof(info)};
	struct party p;
	xport_bulk *kept;

	party_begin(&p, h);
	H_OK(xport_rpc_register(p.r, "copy", copy, &p));
	party_meet(&p, 1);
	while (p.request == 0)
		party_turn(&p);
	if (p.when == LATER) {
		while (xport_rpc_left(p.r, p.request) != XPORT_ERR_CANCELED)
			party_turn(&p);
	}
	move(&p, p.bulks[0], false, (uint32_t)h_ms(20000));
	if (p.when != EARLY)
		party_settle(&p);
	move(&p, p.bulks[1], true,
	     (uint32_t)h_ms(20000)); /* EARLY: whatever has come, since the caller does not look */
	reply(&p);                   /* while the push is in flight */
	H_STATUS(p.when == LATER ? XPORT_ERR_CANCELED : XPORT_OK, p.replied);
	reply(&p);
	H_STATUS(XPORT_ERR_INVALID, p.replied); /* once */
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_left(p.r, p.request));
	party_settle(&p);
	H_OK(p.status);
	party_meet(&p, 1); /* the caller's memory is released, and its descriptors have ended */
	H_OK(xport_rpcs_query(p.r, &info));
	H_EQ(0, info.active);
	if (xport_bulk_unpack(h->ep[1], p.packed, p.packed_len, &kept) == XPORT_OK) {
		move(&p, kept, true, (uint32_t)h_ms(20000));
		party_settle(&p);
		H_STATUS(XPORT_ERR_STALE_KEY, p.status);
		xport_bulk_free(kept);
	}
	party_meet(&p, 1);
	party_end(&p);
}

/* ---- the caller ---- */

static xport_bulk *describe(struct h *h, const struct h_mem *m, uint64_t at, uint32_t rights)
{
	struct xport_bulk_attr a = {.size = sizeof(a), .rights = rights};
	struct xport_bulk_run run = {m->mr, m->offset + at, LEN, 0, 1};
	xport_bulk *bulk;

	H_OK(xport_bulk_create(h->x, &run, 1, &a, &bulk));
	return bulk;
}

/* Its memory: LEN bytes to read, LEN bytes to write to, and some that no descriptor is for. */
static void caller(struct h *h)
{
	struct xport_rpc_args a = rpc_args("hello", 5, NULL, 0);
	xport_bulk *bulks[2];
	struct party p;
	struct h_mem m;

	party_begin(&p, h);
	m = h_mem_target(h, 2 * LEN + 64, 0, XPORT_REMOTE_READ | XPORT_REMOTE_WRITE);
	h_fill(m.p, LEN, 1);
	bulks[0] = describe(h, &m, 0, XPORT_REMOTE_READ);
	bulks[1] = describe(h, &m, LEN, XPORT_REMOTE_WRITE);
	a.bulks = bulks;
	a.nbulks = 2;
	if (p.when == LATER)
		a.deadline_ms = (uint32_t)h_ms(500);
	party_meet(&p, 0);
	H_OK(xport_rpc_call(p.r, h->ep[0], "copy", &a));
	xport_bulk_free(bulks[0]); /* the call keeps them */
	xport_bulk_free(bulks[1]);
	bulks[0] = bulks[1] = NULL;
	party_wait(&p, XPORT_RPC_DONE, p.when == LATER ? XPORT_ERR_TIMEOUT : XPORT_OK);
	party_wait(&p, XPORT_RPC_RELEASED, XPORT_OK);
	if (p.when != EARLY)
		H_FILLED(m.p + LEN, LEN, 1); /* the push had ended before the reply */
	memset(m.p + LEN, 0, LEN);
	party_meet(&p, 0);
	party_meet(&p, 0);
	H_BYTES(m.p + LEN, LEN, 0);
	h_mem_free(h, &m);
	party_end(&p);
}

/* ---- passing descriptors on ---- */

/* Passes the descriptors on, and replies at once: the reply waits for the end of that call. */
static void pass(void *arg, const struct xport_rpc_event *q)
{
	struct xport_rpc_args a = rpc_args(NULL, 0, NULL, 0);
	struct party *p = arg;
	struct h *h = p->h;

	H_EQ(1, q->nbulks);
	a.bulks = q->bulks;
	a.nbulks = q->nbulks;
	H_OK(xport_rpc_call(p->r, p->next, "fetch", &a));
	p->request = q->id;
	reply(p);
	H_OK(p->replied);
}

static void fetch(void *arg, const struct xport_rpc_event *q)
{
	struct party *p = arg;
	struct h *h = p->h;

	p->packed_len = sizeof(p->packed);
	H_OK(xport_bulk_pack(q->bulks[0], p->packed, &p->packed_len));
	p->bulks = q->bulks;
	p->request = q->id;
}

static void first(struct h *h)
{
	struct xport_rpc_args a = rpc_args(NULL, 0, NULL, 0);
	xport_bulk *bulk;
	struct party p;
	struct h_mem m;

	party_begin(&p, h);
	m = h_mem_target(h, LEN, 0, XPORT_REMOTE_READ);
	h_fill(m.p, LEN, 1);
	bulk = describe(h, &m, 0, XPORT_REMOTE_READ);
	a.bulks = &bulk;
	a.nbulks = 1;
	party_meet(&p, 1);
	party_meet(&p, 2);
	H_OK(xport_rpc_call(p.r, h->ep[1], "pass", &a));
	party_wait(&p, XPORT_RPC_DONE, XPORT_OK);
	party_wait(&p, XPORT_RPC_RELEASED, XPORT_OK);
	memset(m.p, 0, LEN); /* the third one has read it */
	party_meet(&p, 1);
	party_meet(&p, 2);
	xport_bulk_free(bulk);
	h_mem_free(h, &m);
	party_end(&p);
}

static void second(struct h *h)
{
	struct party p;

	party_begin(&p, h);
	p.next = h->ep[2];
	H_OK(xport_rpc_register(p.r, "pass", pass, &p));
	party_meet(&p, 2);
	party_meet(&p, 0);
	party_wait(&p, XPORT_RPC_DONE, XPORT_OK);
	party_wait(&p, XPORT_RPC_RELEASED, XPORT_OK);
	party_meet(&p, 0);
	party_end(&p);
}

static void third(struct h *h)
{
	struct party p;
	struct xport_iov iov;
	struct xport_bulk_args a;
	xport_bulk *own;

	party_begin(&p, h);
	H_OK(xport_rpc_register(p.r, "fetch", fetch, &p));
	party_meet(&p, 1);
	party_meet(&p, 0);
	while (p.request == 0)
		party_turn(&p);
	for (int64_t until = h_now_us() + 100000; h_now_us() < until;)
		party_turn(&p); /* the caller must not have its memory back meanwhile */
	a = bulk_args(0, p.to, LEN, &iov);
	H_STATUS(XPORT_ERR_INVALID, xport_bulk_pull(p.b, p.bulks[0], &a));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_bulk_pull", "not unpacked on an endpoint");
	H_EQ(0, bulk_info(h, p.bulks[0]).exact);
	H_OK(xport_bulk_unpack(h->ep[0], p.packed, p.packed_len, &own));
	move(&p, own, false, (uint32_t)h_ms(20000));
	party_settle(&p);
	H_OK(p.status);
	H_FILLED(p.to, LEN, 1);
	xport_bulk_free(own);
	reply(&p);
	H_OK(p.replied);
	party_meet(&p, 0);
	party_end(&p);
}

/* ---- when the third one cannot be heard ---- */

static void first_unsure(struct h *h)
{
	struct xport_rpc_args a = rpc_args(NULL, 0, NULL, 0);
	xport_bulk *bulk;
	struct party p;
	struct h_mem m;

	party_begin(&p, h);
	m = h_mem_target(h, LEN, 0, XPORT_REMOTE_READ);
	bulk = describe(h, &m, 0, XPORT_REMOTE_READ);
	a.bulks = &bulk;
	a.nbulks = 1;
	party_meet(&p, 1);
	H_OK(xport_rpc_call(p.r, h->ep[1], "pass", &a));
	party_wait(&p, XPORT_RPC_DONE, XPORT_OK);
	party_wait(&p, XPORT_RPC_RELEASED, XPORT_ERR_UNREACHABLE);
	xport_bulk_free(bulk);
	party_meet(&p, 1);
	h_mem_free(h, &m);
	party_end(&p);
}

/* It passes the descriptor on, and no longer listens to the third one. */
static void second_unsure(struct h *h)
{
	struct party p;

	party_begin(&p, h);
	p.next = h->ep[2];
	H_OK(xport_rpc_register(p.r, "pass", pass, &p));
	party_meet(&p, 2);
	party_meet(&p, 0);
	party_meet(&p, 2); /* which has the descriptor */
	xport_rpcs_forget(p.r, h->ep[2]);
	party_wait(&p, XPORT_RPC_DONE, XPORT_ERR_CLOSED);
	party_wait(&p, XPORT_RPC_RELEASED, XPORT_ERR_CLOSED);
	party_meet(&p, 0);
	party_meet(&p, 2);
	party_end(&p);
}

static void third_unsure(struct h *h)
{
	struct party p;

	party_begin(&p, h);
	H_OK(xport_rpc_register(p.r, "fetch", fetch, &p));
	party_meet(&p, 1);
	while (p.request == 0)
		party_turn(&p);
	party_meet(&p, 1);
	party_meet(&p, 1);
	party_end(&p);
}

/* ---- what is refused ---- */

static void refuse(struct party *p, struct xport_rpc_args *a, int status, const char *words)
{
	struct h *h = p->h;

	H_STATUS(status, xport_rpc_call(p->r, h->ep[0], "copy", a));
	SVC_ERROR(status, "xport_rpc_call", words);
}

/* Descriptors of another instance of this process: made there, and unpacked there. */
static void refuse_others(struct party *p, struct xport_rpc_args *a)
{
	struct xport_bulk_attr read = {.size = sizeof(read), .rights = XPORT_REMOTE_READ};
	struct xport_bulk_run run = {.length = LEN, .count = 1};
	struct h *h = p->h;
	struct xport_attr attr = h_attr(h);
	struct xport_bulk unpacked = {.ep = h->ep[0]};
	xport_bulk *bulk, *list[1];
	xport_rpcs *r;
	xport *other;

	H_OK(xport_open(&attr, &other));
	H_OK(xport_mr_alloc(other, LEN, XPORT_REMOTE_READ, &run.mr));
	H_OK(xport_bulk_create(other, &run, 1, &read, &bulk));
	H_OK(xport_rpcs_create(other, NULL, &r));
	a->payload = NULL;
	a->len = 0;
	a->bulks = list;
	list[0] = bulk;
	refuse(p, a, XPORT_ERR_INVALID, "descriptor 0 is of another instance");
	list[0] = &unpacked;
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_call(r, h->ep[0], "copy", a));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_rpc_call", "descriptor 0 is of another instance");
	xport_bulk_free(bulk);
	H_OK(xport_rpcs_destroy(r, NULL, NULL, h_ms(10000)));
	H_OK(xport_mr_dereg(run.mr));
	xport_close(other);
}

/* The methods of the library get the payload without the descriptors. */
static void ping(struct party *p, struct xport_rpc_args *a, xport_bulk **at)
{
	struct h *h = p->h;
	char said[16] = "";

	a->bulks = at;
	a->payload = "hello";
	a->len = 5;
	a->reply = said;
	a->reply_max = sizeof(said);
	H_OK(xport_rpc_call(p->r, h->ep[0], "xport.ping", a));
	party_wait(p, XPORT_RPC_DONE, XPORT_OK);
	H_TRUE(strcmp(said, "hello") == 0);
	party_wait(p, XPORT_RPC_RELEASED, XPORT_OK);
}

static void wrong(struct h *h)
{
	xport_bulk *many[XPORT_RPC_BULKS_MAX + 1];
	struct xport_rpc_args a = rpc_args(NULL, 0, NULL, 0);
	struct xport_rpcs_info info = {.size = sizeof(info)};
	uint8_t *payload = h_buf(h, 3900);
	struct party p;
	struct h_mem m;

	party_begin(&p, h);
	m = h_mem_target(h, LEN, 0, XPORT_REMOTE_READ);
	for (int i = 0; i <= XPORT_RPC_BULKS_MAX; i++)
		many[i] = describe(h, &m, 0, XPORT_REMOTE_READ);
	a.nbulks = 1;
	refuse(&p, &a, XPORT_ERR_INVALID, "bulks is NULL");
	a.bulks = many;
	a.nbulks = XPORT_RPC_BULKS_MAX + 1;
	refuse(&p, &a, XPORT_ERR_INVALID, "16 are allowed");
	a.nbulks = 2;
	a.flags = XPORT_RPC_ONE_WAY;
	refuse(&p, &a, XPORT_ERR_INVALID, "exclude each other");
	a.flags = 0;
	a.payload = payload;
	a.len = 3900 - 100;
	refuse(&p, &a, XPORT_ERR_BOUNDS, "the descriptors");
	a.nbulks = 1;
	xport_bulk_free(many[0]);
	many[0] = NULL;
	refuse(&p, &a, XPORT_ERR_INVALID, "descriptor 0 is NULL");
	refuse_others(&p, &a);
	H_OK(xport_rpcs_query(p.r, &info));
	H_EQ(0, info.calls);
	ping(&p, &a, many + 1);
	party_meet(&p, 0);
	for (int i = 1; i <= XPORT_RPC_BULKS_MAX; i++)
		xport_bulk_free(many[i]);
	h_mem_free(h, &m);
	party_end(&p);
}

static void nobody(struct h *h)
{
	struct party p;

	party_begin(&p, h);
	party_meet(&p, 1);
	party_end(&p);
}

const struct h_scenario svc_cases_rpc_bulk_wrong[] = {
	{.name = "rpc_bulk_wrong", .role = {nobody, wrong}, .flags = H_ONCE},
	{.name = NULL},
};

static const struct h_param whens[] = {{"soon", SOON}, {"later", LATER}, {"early", EARLY}, {NULL, 0}};

const struct h_scenario svc_cases_rpc_bulk[] = {
	{.name = "rpc_bulk_lent", .role = {copier, caller}, .params = whens},
	{.name = "rpc_bulk_passed_on", .role = {first, second, third}},
	{.name = "rpc_bulk_not_confirmed", .role = {first_unsure, second_unsure, third_unsure}},
	{.name = NULL},
};
