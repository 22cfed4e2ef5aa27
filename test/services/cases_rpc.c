/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_rpc.c - calls: what they carry, their deadlines, cancelling, lent memory, and an overloaded callee. */
#include "services/rpc_user.h"

enum { LONG = 60000, SHORT = 30, MANY = 1000 };

/* A callee that only runs its handlers until the caller has what it wants. */
static void callee(struct h *h)
{
	struct rpc_user u;

	rpc_begin(&u, h, (int)h->param, NULL);
	rpc_meet(&u, 1);
	rpc_end(&u);
	h_sync(h);
}

/* ---- what a call carries ---- */

static void echo_one(struct rpc_user *u, size_t len)
{
	struct h *h = u->h;
	uint8_t *out = h_buf(h, len + 1), *in = h_buf(h, len + 1);
	struct xport_rpc_args a = rpc_args(out, len, in, len);
	struct xport_rpc_event e;
	uint64_t id;

	h_fill(out, len, len);
	a.context = out;
	a.id = &id;
	H_OK(xport_rpc_call(u->r, h->ep[0], "echo", &a));
	e = RPC_DONE(u);
	H_OK(e.status);
	H_EQ(XPORT_RPC_RAN_YES, e.ran);
	H_EQ(len, e.len);
	H_EQ(id, e.id);
	H_TRUE(e.context == out && e.ep == h->ep[0]);
	H_TRUE(strcmp(e.why, "") == 0);
	H_FILLED(in, len, len);
	h_buf_free(h, out);
	h_buf_free(h, in);
}

static void echo_caller(struct h *h)
{
	struct rpc_user u;

	rpc_begin(&u, h, (int)h->param, NULL);
	echo_one(&u, 0);
	echo_one(&u, 1);
	echo_one(&u, 8);
	echo_one(&u, 1000);
	echo_one(&u, rpc_info(&u).max_payload);
	H_EQ(0, rpc_info(&u).calls);
	rpc_meet(&u, 0);
	rpc_end(&u);
	h_sync(h);
}

/* Requests without a handler are events; each is answered later. */
static void take_callee(struct h *h)
{
	struct xport_rpc_event e, last;
	struct rpc_user u;

	rpc_begin(&u, h, (int)h->param, NULL);
	last = RPC_NEXT(&u, XPORT_RPC_REQUEST);
	H_TRUE(strcmp(last.method, "take") == 0 && last.context == &u && last.ep == h->ep[1]);
	H_EQ(5, last.len);
	H_TRUE(memcmp(last.payload, "first", 5) == 0);
	for (int i = 0; i < 24; i++)
		H_EQ(i + 1, last.trace[i]);
	H_TRUE(last.left_ms > 0 && last.left_ms <= (uint32_t)h_ms(10000));
	H_TRUE(xport_rpc_left(u.r, last.id) > 0);
	e = RPC_NEXT(&u, XPORT_RPC_REQUEST);
	H_EQ(2, rpc_info(&u).active);
	H_TRUE(rpc_info(&u).memory > 0);
	/* The second one first, with a status of the application's. */
	H_OK(xport_rpc_reply(u.r, e.id, XPORT_ERR_ACCESS, "no", 2));
	H_TRUE(memcmp(last.payload, "first", 5) == 0);
	H_OK(xport_rpc_reply(u.r, last.id, XPORT_OK, NULL, 0));
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_reply(u.r, last.id, XPORT_OK, NULL, 0));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_rpc_reply", "replied to already");
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_left(u.r, last.id));
	H_EQ(0, rpc_info(&u).active);
	rpc_meet(&u, 1);
	rpc_end(&u);
	h_sync(h);
}

static void take_caller(struct h *h)
{
	uint8_t reply[8];
	struct xport_rpc_args a = rpc_args("first", 5, reply, sizeof(reply));
	struct xport_rpc_event e;
	struct rpc_user u;
	int n;

	rpc_begin(&u, h, (int)h->param, NULL);
	for (int i = 0; i < 24; i++)
		a.trace[i] = (uint8_t)(i + 1);
	a.context = &n;
	H_OK(xport_rpc_call(u.r, h->ep[0], "take", &a));
	a.payload = NULL;
	a.len = 0;
	a.context = reply;
	H_OK(xport_rpc_call(u.r, h->ep[0], "take", &a));
	e = RPC_DONE(&u);
	H_TRUE(e.context == reply);
	H_STATUS(XPORT_ERR_ACCESS, e.status);
	H_EQ(XPORT_RPC_RAN_YES, e.ran);
	H_EQ(2, e.len);
	H_TRUE(memcmp(reply, "no", 2) == 0);
	e = RPC_DONE(&u);
	H_TRUE(e.context == &n);
	H_OK(e.status);
	rpc_meet(&u, 0);
	rpc_end(&u);
	h_sync(h);
}

static void oneway_callee(struct h *h)
{
	struct xport_rpc_event e;
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	e = RPC_NEXT(&u, XPORT_RPC_REQUEST); /* its caller has DONE before it is replied to */
	rpc_meet(&u, 1);
	H_EQ(1, atomic_load(&u.oneway));
	H_EQ(1, rpc_info(&u).active);
	H_OK(xport_rpc_reply(u.r, e.id, XPORT_OK, NULL, 0));
	H_EQ(0, rpc_info(&u).active);
	rpc_meet(&u, 1);
	rpc_end(&u);
	h_sync(h);
}

static void oneway_caller(struct h *h)
{
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	rpc_start(&u, "note", h_ms(10000), XPORT_RPC_ONE_WAY);
	RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	rpc_start(&u, "take", h_ms(10000), XPORT_RPC_ONE_WAY);
	RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	rpc_meet(&u, 0);
	rpc_meet(&u, 0);
	rpc_quiet(&u, 20);
	rpc_end(&u);
	h_sync(h);
}

static void builtin_caller(struct h *h)
{
	char reply[4000], *stats;
	struct xport_rpc_args a = rpc_args(NULL, 0, reply, sizeof(reply) - 1);
	struct xport_rpc_event e;
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	echo_one(&u, 8);
	H_OK(xport_rpc_call(u.r, h->ep[0], "xport.methods", &a));
	e = RPC_DONE(&u);
	H_OK(e.status);
	reply[e.len] = '\0';
	H_CHECK(strcmp(reply, "xport.methods\nxport.ping\nxport.stats\necho\nhold\nnote\ntake\n") == 0, "%s", reply);
	a.payload = "5";
	a.len = 1;
	H_OK(xport_rpc_call(u.r, h->ep[0], "xport.methods", &a));
	e = RPC_DONE(&u);
	reply[e.len] = '\0';
	H_CHECK(strcmp(reply, "note\ntake\n") == 0, "%s", reply);
	H_OK(xport_rpc_call(u.r, h->ep[0], "xport.ping", &a));
	H_EQ(1, RPC_DONE(&u).len);
	H_EQ('5', reply[0]);
	a.len = 0;
	H_OK(xport_rpc_call(u.r, h->ep[0], "xport.stats", &a));
	e = RPC_DONE(&u);
	reply[e.len] = '\0';
	stats = strchr(reply, '\n');
	H_TRUE(strncmp(reply, "requests=1 busy=0 dropped=0 active=0 memory=", 44) == 0 &&
	       strstr(reply, " memory_max=") != NULL);
	H_CHECK(stats != NULL && strcmp(stats + 1, "xport.methods 2 0\nxport.ping 1 0\nxport.stats 1 0\necho 1 0\n"
	                                           "hold 0 0\nnote 0 0\ntake 0 0\n") == 0,
	        "%s", reply);
	rpc_meet(&u, 0);
	rpc_end(&u);
	h_sync(h);
}

/* Many at a time: each has its own reply, and exactly one DONE. */
static void many_caller(struct h *h)
{
	uint64_t *out = h_buf(h, MANY * 8), *in = h_buf(h, MANY * 8);
	uint8_t *done = h_buf(h, MANY);
	struct rpc_user u;

	rpc_begin(&u, h, (int)h->param, NULL);
	for (size_t i = 0; i < MANY; i++) {
		struct xport_rpc_args a = rpc_args(&out[i], 8, &in[i], 8);

		out[i] = i * 77 + 1;
		a.deadline_ms = (uint32_t)h_ms(LONG);
		a.context = &done[i];
		H_OK(xport_rpc_call(u.r, h->ep[0], "echo", &a));
	}
	for (size_t i = 0; i < MANY; i++) {
		struct xport_rpc_event e = RPC_DONE(&u);

		H_OK(e.status);
		H_EQ(0, (*(uint8_t *)e.context)++);
	}
	H_TRUE(memcmp(out, in, MANY * 8) == 0);
	H_EQ(0, rpc_info(&u).calls);
	H_EQ(0, rpc_info(&u).queued);
	rpc_quiet(&u, 10);
	rpc_meet(&u, 0);
	rpc_end(&u);
	h_sync(h);
}

/* ---- deadlines ---- */

/* Takes one call at a time, and never replies to the first one. */
static void deadline_callee(struct h *h)
{
	struct xport_rpcs_attr a = {.size = sizeof(a), .credits = 1};
	struct rpc_user u;

	rpc_begin(&u, h, 0, &a);
	rpc_wait_held(&u, 1);
	rpc_meet(&u, 1);
	H_EQ(1, atomic_load(&u.held));
	H_STATUS(XPORT_ERR_CANCELED, xport_rpc_left(u.r, u.hold[0]));
	H_STATUS(XPORT_ERR_CANCELED, xport_rpc_reply(u.r, u.hold[0], XPORT_OK, "late", 4));
	SVC_ERROR(XPORT_ERR_CANCELED, "xport_rpc_reply", "no longer wants");
	rpc_meet(&u, 1);
	rpc_meet(&u, 1);
	rpc_end(&u);
	h_sync(h);
}

static void deadline_caller(struct h *h)
{
	char late[8] = "";
	struct xport_rpc_args a = rpc_args(NULL, 0, late, sizeof(late));
	struct rpc_user u;
	int64_t begun;

	rpc_begin(&u, h, 0, NULL);
	begun = h_now_us();
	a.deadline_ms = (uint32_t)h_ms(1000);
	H_OK(xport_rpc_call(u.r, h->ep[0], "hold", &a));
	rpc_start(&u, "echo", h_ms(500), 0); /* waits for the credit of the first one */
	H_EQ(2, rpc_info(&u).queued);        /* WELCOME has not come */
	RPC_DONE_AS(&u, XPORT_ERR_TIMEOUT, XPORT_RPC_RAN_NO);
	H_TRUE(h_now_us() - begun >= (int64_t)h_ms(499) * 1000);
	RPC_DONE_AS(&u, XPORT_ERR_TIMEOUT, XPORT_RPC_RAN_UNKNOWN);
	H_EQ(2, rpc_info(&u).timeouts);
	H_EQ(0, rpc_info(&u).calls);
	/* The credit came back, though nobody has replied. But the callee holds the request still. */
	rpc_turn_for(&u, h_ms(50));
	rpc_start(&u, "echo", h_ms(10000), 0);
	RPC_DONE_AS(&u, XPORT_ERR_BUSY, XPORT_RPC_RAN_NO);
	rpc_meet(&u, 0);
	rpc_meet(&u, 0);
	rpc_start(&u, "echo", h_ms(10000), 0);
	RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	H_BYTES(late, sizeof(late), 0);
	rpc_quiet(&u, 10);
	rpc_meet(&u, 0);
	rpc_end(&u);
	h_sync(h);
}

/* The callee is busy otherwise while the deadline passes: the handler does not run. */
static void expired_callee(struct h *h)
{
	struct xport_rpc_event e = {.size = sizeof(e)};
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	while (rpc_info(&u).active == 0)
		rpc_turn(&u);
	h_tell_u64(h, 1, 1);
	while (rpc_info(&u).dropped == 0)
		rpc_turn(&u);
	H_EQ(0, xport_rpcs_next(u.r, &e));
	H_EQ(0, rpc_info(&u).active);
	rpc_meet(&u, 1);
	rpc_end(&u);
	h_sync(h);
}

static void expired_caller(struct h *h)
{
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	rpc_start(&u, "echo", h_ms(10000), 0);
	RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	rpc_start(&u, "take", h_ms(SHORT * 10), 0);
	while (!h_heard(h, 0))
		rpc_turn(&u);
	h_hear_u64(h, 0);
	RPC_DONE_AS(&u, XPORT_ERR_TIMEOUT, XPORT_RPC_RAN_UNKNOWN);
	rpc_meet(&u, 0);
	rpc_end(&u);
	h_sync(h);
}

/* A peer without xport_rpcs: the call never left. */
static void no_callee(struct h *h)
{
	h_mesh(h, NULL);
	h_sync(h);
	h_hear_u64(h, 1);
	h_sync(h);
}

static void lonely_caller(struct h *h)
{
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	rpc_start(&u, "echo", h_ms(SHORT), XPORT_RPC_LENT);
	RPC_DONE_AS(&u, XPORT_ERR_TIMEOUT, XPORT_RPC_RAN_NO);
	H_OK(RPC_NEXT(&u, XPORT_RPC_RELEASED).status);
	h_tell_u64(h, 0, 1);
	rpc_end(&u);
	h_sync(h);
}

/* ---- cancelling, and lent memory ---- */

static void cancel_callee(struct h *h)
{
	struct rpc_user u;

	rpc_begin(&u, h, (int)h->param, NULL);
	rpc_wait_held(&u, 2);
	rpc_meet(&u, 1);
	while (xport_rpc_left(u.r, u.hold[0]) >= 0 || xport_rpc_left(u.r, u.hold[1]) >= 0)
		rpc_turn(&u);
	rpc_meet(&u, 1); /* meanwhile the lent one stays lent */
	for (int i = 0; i < 2; i++) {
		H_STATUS(XPORT_ERR_CANCELED, xport_rpc_left(u.r, u.hold[i]));
		H_STATUS(XPORT_ERR_CANCELED, xport_rpc_reply(u.r, u.hold[i], XPORT_OK, NULL, 0));
	}
	rpc_wait_held(&u, 3);
	H_OK(xport_rpc_reply(u.r, u.hold[2], XPORT_OK, NULL, 0));
	rpc_meet(&u, 1);
	H_EQ(0, rpc_info(&u).active);
	rpc_end(&u);
	h_sync(h);
}

static void cancel_caller(struct h *h)
{
	struct xport_rpc_event e;
	uint64_t plain, lent;
	struct rpc_user u;

	rpc_begin(&u, h, (int)h->param, NULL);
	plain = rpc_start(&u, "hold", h_ms(LONG), 0);
	H_OK(xport_rpc_cancel(u.r, plain)); /* WELCOME has not come */
	RPC_DONE_AS(&u, XPORT_ERR_CANCELED, XPORT_RPC_RAN_NO);
	plain = rpc_start(&u, "hold", h_ms(LONG), 0);
	lent = rpc_start(&u, "hold", h_ms(LONG), XPORT_RPC_LENT);
	rpc_meet(&u, 0);
	H_OK(xport_rpc_cancel(u.r, plain));
	H_OK(xport_rpc_cancel(u.r, lent));
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_cancel(u.r, lent));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_rpc_cancel", "no call with this id is in progress");
	for (int i = 0; i < 2; i++)
		RPC_DONE_AS(&u, XPORT_ERR_CANCELED, XPORT_RPC_RAN_UNKNOWN);
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_cancel(u.r, lent));
	rpc_quiet(&u, 20);
	H_EQ(1, rpc_info(&u).calls);
	rpc_meet(&u, 0);
	e = RPC_NEXT(&u, XPORT_RPC_RELEASED);
	H_OK(e.status);
	H_EQ(lent, e.id);
	H_TRUE(e.context == &u);
	/* One that is replied to has both events. */
	rpc_start(&u, "hold", h_ms(LONG), XPORT_RPC_LENT);
	RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	H_OK(RPC_NEXT(&u, XPORT_RPC_RELEASED).status);
	H_EQ(0, rpc_info(&u).calls);
	rpc_meet(&u, 0);
	rpc_end(&u);
	h_sync(h);
}

/* The handler goes on writing after the deadline, and after RELEASED nothing arrives. */
static void lent_callee(struct h *h)
{
	struct xport_opt o = {.size = sizeof(o), .flags = XPORT_QUIET};
	uint8_t ones[64];
	struct xport_rpc_event e;
	struct rpc_user u;
	xport_rkey *k;

	memset(ones, 1, sizeof(ones));
	rpc_begin(&u, h, 0, NULL);
	e = RPC_NEXT(&u, XPORT_RPC_REQUEST);
	H_EQ(XPORT_RPC_LENT, e.flags);
	H_OK(xport_rkey_unpack(e.ep, e.payload, e.len, &k));
	while (xport_rpc_left(u.r, e.id) >= 0)
		rpc_turn(&u);
	H_STATUS(XPORT_ERR_CANCELED, xport_rpc_left(u.r, e.id));
	H_OK(xport_put(e.ep, ones, sizeof(ones), k, 0, &o));
	H_OK(xport_flush(e.ep, NULL));
	rpc_turn_for(&u, h_ms(50));
	H_STATUS(XPORT_ERR_CANCELED, xport_rpc_reply(u.r, e.id, XPORT_OK, NULL, 0));
	rpc_meet(&u, 1);
	xport_rkey_destroy(k);
	rpc_end(&u);
	h_sync(h);
}

static void lent_caller(struct h *h)
{
	struct h_key key;
	struct h_mem m;
	struct rpc_user u;
	struct xport_rpc_args a;

	rpc_begin(&u, h, 0, NULL);
	m = h_mem_target(h, 64, 0, XPORT_REMOTE_WRITE);
	key = h_key_pack(h, &m);
	a = rpc_args(key.bytes, key.len, NULL, 0);
	a.deadline_ms = (uint32_t)h_ms(SHORT * 10);
	a.flags = XPORT_RPC_LENT;
	H_OK(xport_rpc_call(u.r, h->ep[0], "take", &a));
	RPC_DONE_AS(&u, XPORT_ERR_TIMEOUT, XPORT_RPC_RAN_UNKNOWN);
	H_OK(RPC_NEXT(&u, XPORT_RPC_RELEASED).status);
	memset(m.p, 2, m.len);
	rpc_meet(&u, 0);
	rpc_turn_for(&u, 20);
	H_BYTES(m.p, m.len, 2);
	rpc_end(&u);
	h_mem_free(h, &m);
	h_sync(h);
}

/* ---- an overloaded callee ---- */

enum { ACTIVE = 4, CALLS = 20 };

static void busy_callee(struct h *h)
{
	struct xport_rpcs_attr a = {.size = sizeof(a), .max_active = ACTIVE, .retry_after_ms = 77};
	struct rpc_user u;

	rpc_begin(&u, h, 0, &a);
	while (rpc_info(&u).busy < CALLS - ACTIVE) {
		rpc_turn(&u);
		H_TRUE(rpc_info(&u).active <= ACTIVE);
		H_TRUE(rpc_info(&u).memory <= rpc_info(&u).memory_max);
	}
	rpc_meet(&u, 1);
	for (int i = 0; i < ACTIVE; i++)
		H_OK(xport_rpc_reply(u.r, u.hold[i], XPORT_OK, NULL, 0));
	rpc_meet(&u, 1);
	rpc_wait_idle(&u);
	rpc_end(&u);
	h_sync(h);
}

static void busy_caller(struct h *h)
{
	uint8_t *payload = h_buf(h, 4000);
	struct xport_rpc_args a;
	struct xport_rpc_event e;
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	a = rpc_args(payload, rpc_info(&u).max_payload, NULL, 0);
	a.deadline_ms = (uint32_t)h_ms(LONG);
	for (int i = 0; i < CALLS; i++)
		H_OK(xport_rpc_call(u.r, h->ep[0], "hold", &a));
	for (int i = ACTIVE; i < CALLS; i++) {
		e = RPC_DONE(&u);
		H_STATUS(XPORT_ERR_BUSY, e.status);
		H_EQ(XPORT_RPC_RAN_NO, e.ran);
		H_EQ(77, e.retry_after_ms);
		H_TRUE(strstr(e.why, "too many") != NULL);
	}
	rpc_meet(&u, 0);
	for (int i = 0; i < ACTIVE; i++)
		RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	rpc_meet(&u, 0);
	rpc_end(&u);
	h_sync(h);
}

static const struct h_param drivers[] = {{"loop", RPC_LOOP}, {"wait", RPC_WAIT}, {"thread", RPC_THREAD}, {0}};
static const struct h_param alone[] = {{"loop", RPC_LOOP}, {"wait", RPC_WAIT}, {0}};

const struct h_scenario svc_cases_rpc[] = {
	{"rpc_echo", {callee, echo_caller}, drivers, 0, 0},
	{"rpc_events", {take_callee, take_caller}, drivers, 0, 0},
	{"rpc_many", {callee, many_caller}, drivers, 0, 0},
	{"rpc_oneway", {oneway_callee, oneway_caller}, NULL, 0, 0},
	{"rpc_builtin", {callee, builtin_caller}, NULL, 0, 0},
	{"rpc_deadline", {deadline_callee, deadline_caller}, NULL, 0, 0},
	{"rpc_expired", {expired_callee, expired_caller}, NULL, 0, 0},
	{"rpc_nobody", {no_callee, lonely_caller}, NULL, 0, 0},
	{"rpc_cancel", {cancel_callee, cancel_caller}, alone, 0, 0},
	{"rpc_lent", {lent_callee, lent_caller}, NULL, 0, 0},
	{"rpc_busy", {busy_callee, busy_caller}, NULL, 0, 0},
	{0},
};
