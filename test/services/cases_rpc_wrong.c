/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_rpc_wrong.c - calls that are made or requested with arguments that are refused. */
#include "core/wire/frame.h"
#include "services/rpc.h"
#include "services/rpc_user.h"

static void nothing(void *arg, const struct xport_rpc_event *q)
{
	(void)arg, (void)q;
}

static void create_wrong(struct h *h)
{
	struct xport_rpcs_attr a = {.size = sizeof(a)};
	xport_rpcs *r;

	H_STATUS(XPORT_ERR_INVALID, xport_rpcs_create(NULL, NULL, &r));
	H_STATUS(XPORT_ERR_INVALID, xport_rpcs_create(h->x, NULL, NULL));
	a.max_payload = UINT32_MAX;
	H_STATUS(XPORT_ERR_INVALID, xport_rpcs_create(h->x, &a, &r));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_rpcs_create", "this network allows");
	a.max_payload = 0;
	a.credits = XPORT_RPC_CREDITS_MAX + 1;
	H_STATUS(XPORT_ERR_INVALID, xport_rpcs_create(h->x, &a, &r));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_rpcs_create", "credits is 33, above 32");
	a.credits = 0;
	a.max_calls = 65536;
	H_STATUS(XPORT_ERR_INVALID, xport_rpcs_create(h->x, &a, &r));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_rpcs_create", "above 65535");
	a.max_calls = 0;
	a.max_active = 65536;
	H_STATUS(XPORT_ERR_INVALID, xport_rpcs_create(h->x, &a, &r));
	a.max_active = 0;
	a.flags = 4;
	H_STATUS(XPORT_ERR_INVALID, xport_rpcs_create(h->x, &a, &r));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_rpcs_create", "unknown bits: 0x4");
}

static void names_wrong(struct h *h, xport_rpcs *r)
{
	char name[XPORT_RPC_NAME_MAX + 2];

	memset(name, 'n', sizeof(name));
	name[XPORT_RPC_NAME_MAX + 1] = '\0';
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_register(r, name, nothing, NULL));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_rpc_register", "1 to 63 characters");
	name[XPORT_RPC_NAME_MAX] = '\0';
	H_OK(xport_rpc_register(r, name, nothing, NULL));
	H_STATUS(XPORT_ERR_BUSY, xport_rpc_register(r, name, nothing, NULL));
	SVC_ERROR(XPORT_ERR_BUSY, "xport_rpc_register", "is registered already");
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_register(r, "", nothing, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_register(r, "a b", nothing, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_register(r, "a\n", nothing, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_register(r, "xport.mine", nothing, NULL));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_rpc_register", "reserved");
	H_OK(xport_rpc_register(r, "store.put/2", NULL, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_register(NULL, "a", nothing, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_register(r, NULL, nothing, NULL));
}

static void null_wrong(struct h *h, xport_rpcs *r)
{
	struct xport_rpcs_info info = {.size = 1};
	struct xport_rpc_event e = {.size = 1};

	H_STATUS(XPORT_ERR_INVALID, xport_rpcs_next(r, &e));
	H_STATUS(XPORT_ERR_INVALID, xport_rpcs_query(r, &info));
	e.size = sizeof(e);
	H_EQ(0, xport_rpcs_next(r, &e));
	H_STATUS(XPORT_ERR_TIMEOUT, xport_rpcs_wait(r, &e, NULL, NULL, 20));
	SVC_ERROR(XPORT_ERR_TIMEOUT, "xport_rpcs_wait", "20 ms");
	H_STATUS(XPORT_ERR_INVALID, xport_rpcs_wait(r, &e, NULL, NULL, -2));
	H_STATUS(XPORT_ERR_INVALID, xport_rpcs_wait(NULL, &e, NULL, NULL, 0));
	H_STATUS(XPORT_ERR_INVALID, xport_rpcs_destroy(r, NULL, NULL, -2));
	H_EQ(-1, xport_rpcs_timeout(r));
	H_EQ(0, xport_rpcs_step(r, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_rpcs_step(NULL, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_cancel(NULL, 1));
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_cancel(r, 0));
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_cancel(r, UINT64_MAX));
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_left(NULL, 1));
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_left(r, 1));
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_reply(NULL, 1, 0, NULL, 0));
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_reply(r, 1, 0, NULL, 1));
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_reply(r, 1, 1, NULL, 0));
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_reply(r, 1, XPORT_ERR_BUSY - 1, NULL, 0));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_rpc_reply", "not one of xport_status");
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_reply(r, 1, 0, NULL, 0));
	xport_rpcs_forget(r, NULL);
	xport_rpcs_forget(NULL, NULL);
	H_OK(xport_rpcs_destroy(NULL, NULL, NULL, 0));
}

/* The default fits the shortest frame that a back end may have: xport_info has that of one transport only. */
static void default_payload(struct h *h, xport_rpcs *r)
{
	size_t heads = sizeof(struct xpi_frame_head) + sizeof(struct xpi_rec_send) + SVC_MSGQ_HEAD + SVC_RPC_HEAD;
	struct xport_rpcs_info i = {.size = sizeof(i)};

	H_OK(xport_rpcs_query(r, &i));
	H_TRUE(i.max_payload + heads <= 4096);
}

static void connecting(struct h *h, xport_rpcs *r)
{
	struct xport_rpc_args a = rpc_args(NULL, 0, NULL, 0);
	xport_listener *l;
	char address[64];
	xport_ep *ep;

	H_OK(xport_listen(h->x, "127.0.0.1:0", NULL, &l));
	H_OK(xport_listener_name(l, address, sizeof(address)));
	H_OK(xport_connect(h->x, address, NULL, 0, &ep));
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_call(r, ep, "echo", &a));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_rpc_call", "not connected yet");
	xport_ep_destroy(ep);
	xport_listener_close(l);
}

static void wrong(struct h *h)
{
	xport_rpcs *r;

	h_open(h, NULL);
	create_wrong(h);
	H_OK(xport_rpcs_create(h->x, NULL, &r));
	default_payload(h, r);
	names_wrong(h, r);
	null_wrong(h, r);
	connecting(h, r);
	H_OK(xport_rpcs_destroy(r, NULL, NULL, h_ms(h->limit_ms)));
}

/* Two names with one hash: no such pair is known, so the hash is set here. */
static void collision(struct h *h)
{
	struct svc_rpc_method like = {.name = "other"};
	xport_rpcs *r;

	h_open(h, NULL);
	H_OK(xport_rpcs_create(h->x, NULL, &r));
	H_OK(xport_rpc_register(r, "mine", nothing, NULL));
	like.hash = svc_rpc_hash("mine");
	H_STATUS(XPORT_ERR_BUSY, svc_rpc_register(r, &like));
	SVC_ERROR(XPORT_ERR_BUSY, "xport_rpc_register", "'other' has the same hash as 'mine'");
	like.hash = svc_rpc_hash("other");
	H_OK(svc_rpc_register(r, &like));
	H_OK(xport_rpcs_destroy(r, NULL, NULL, h_ms(h->limit_ms)));
}

/* ---- calls ---- */

static void small_callee(struct h *h)
{
	struct xport_rpcs_attr a = {.size = sizeof(a), .max_payload = 100};
	struct xport_rpc_event e;
	struct rpc_user u;

	rpc_begin(&u, h, 0, &a);
	e = RPC_NEXT(&u, XPORT_RPC_REQUEST);
	H_STATUS(XPORT_ERR_BOUNDS, xport_rpc_reply(u.r, e.id, XPORT_OK, h_buf(h, 101), 101));
	SVC_ERROR(XPORT_ERR_BOUNDS, "xport_rpc_reply", "101 bytes; the caller takes 100");
	H_TRUE(xport_rpc_left(u.r, e.id) > 0);
	H_OK(xport_rpc_reply(u.r, e.id, XPORT_OK, h_buf(h, 100), 100));
	rpc_meet(&u, 1);
	rpc_end(&u);
	h_sync(h);
}

/* The arguments of a newer program. */
static int newer_args(struct rpc_user *u, size_t size, uint8_t value)
{
	struct {
		struct xport_rpc_args known;
		uint8_t more[8];
	} a = {.known = rpc_args(NULL, 0, NULL, 0)};

	a.known.size = size;
	memset(a.more, value, sizeof(a.more));
	return xport_rpc_call(u->r, u->h->ep[0], "echo", &a.known);
}

static void args_wrong(struct rpc_user *u)
{
	struct h *h = u->h;
	struct xport_rpc_args a = rpc_args(NULL, 0, NULL, 0);

	a.deadline_ms = 0;
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_call(u->r, h->ep[0], "echo", &a));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_rpc_call", "the call of 'echo' has no deadline");
	a.deadline_ms = UINT32_C(1) << 31;
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_call(u->r, h->ep[0], "echo", &a));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_rpc_call", "2147483648 ms is above 86400000 ms");
	a.deadline_ms = XPORT_RPC_DEADLINE_MAX + 1;
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_call(u->r, h->ep[0], "echo", &a));
	a.deadline_ms = XPORT_RPC_DEADLINE_MAX;
	a.flags = 4;
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_call(u->r, h->ep[0], "echo", &a));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_rpc_call", "unknown bits");
	a.flags = XPORT_RPC_ONE_WAY | XPORT_RPC_LENT;
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_call(u->r, h->ep[0], "echo", &a));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_rpc_call", "exclude each other");
	a.flags = 0;
	a.len = 1;
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_call(u->r, h->ep[0], "echo", &a));
	a.len = 0;
	a.reply_max = 1;
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_call(u->r, h->ep[0], "echo", &a));
	a.reply_max = 0;
	a.payload = h_buf(h, 5000);
	a.len = rpc_info(u).max_payload + 1;
	H_STATUS(XPORT_ERR_BOUNDS, xport_rpc_call(u->r, h->ep[0], "echo", &a));
	SVC_ERROR(XPORT_ERR_BOUNDS, "xport_rpc_call", "max_payload is");
	a.len = 0;
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_call(u->r, h->ep[0], "no name", &a));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_rpc_call", "'no name' does not");
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_call(NULL, h->ep[0], "echo", &a));
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_call(u->r, NULL, "echo", &a));
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_call(u->r, h->ep[0], NULL, &a));
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_call(u->r, h->ep[0], "echo", NULL));
	a.size = 8;
	H_STATUS(XPORT_ERR_INVALID, xport_rpc_call(u->r, h->ep[0], "echo", &a));
	H_STATUS(XPORT_ERR_INVALID, newer_args(u, 4096 + 1, 0));
	H_STATUS(XPORT_ERR_NOT_SUPPORTED, newer_args(u, sizeof(a) + 8, 1));
	SVC_ERROR(XPORT_ERR_NOT_SUPPORTED, "xport_rpc_call", "unknown to this library");
	H_EQ(0, rpc_info(u).calls);
}

/* The callee takes 100 bytes, and this side learns that with the first call. */
static void small_caller(struct h *h)
{
	struct xport_rpcs_attr few = {.size = sizeof(few), .max_calls = 2};
	uint8_t *long_one = h_buf(h, 101), reply[10];
	struct xport_rpc_args a = rpc_args(long_one, 101, NULL, 0);
	struct xport_rpc_event e;
	struct {
		struct xport_rpc_event known;
		uint8_t more[8];
	} newer;
	struct rpc_user u;

	memset(&newer, 0xee, sizeof(newer));
	newer.known.size = sizeof(newer);
	rpc_begin(&u, h, 0, &few);
	args_wrong(&u);
	H_OK(xport_rpc_call(u.r, h->ep[0], "echo", &a));
	RPC_DONE_AS(&u, XPORT_ERR_BOUNDS, XPORT_RPC_RAN_NO);
	H_STATUS(XPORT_ERR_BOUNDS, xport_rpc_call(u.r, h->ep[0], "echo", &a));
	SVC_ERROR(XPORT_ERR_BOUNDS, "xport_rpc_call", "101 bytes; the peer takes 100");
	a.len = 100;
	a.reply = reply;
	a.reply_max = sizeof(reply);
	H_OK(xport_rpc_call(u.r, h->ep[0], "take", &a));
	e = RPC_DONE(&u);
	H_STATUS(XPORT_ERR_TRUNCATED, e.status);
	H_EQ(XPORT_RPC_RAN_YES, e.ran);
	H_EQ(100, e.len);
	rpc_start(&u, "nobody.has/this", h_ms(10000), 0);
	H_OK(xport_rpcs_wait(u.r, &newer.known, rpc_other, &u, h_ms(20000)));
	H_BYTES(newer.more, sizeof(newer.more), 0);
	e = newer.known;
	H_EQ(sizeof(newer), e.size);
	H_STATUS(XPORT_ERR_NOT_SUPPORTED, e.status);
	H_EQ(XPORT_RPC_RAN_NO, e.ran);
	H_TRUE(strcmp(e.why, "the peer has no such method") == 0);
	rpc_start(&u, "echo", h_ms(10000), 0);
	rpc_start(&u, "echo", h_ms(10000), 0);
	a = rpc_args(NULL, 0, NULL, 0);
	H_STATUS(XPORT_ERR_AGAIN, xport_rpc_call(u.r, h->ep[0], "echo", &a));
	SVC_ERROR(XPORT_ERR_AGAIN, "xport_rpc_call", "2 calls are in progress");
	RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	H_OK(xport_rpc_call(u.r, h->ep[0], "echo", &a));
	RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	rpc_meet(&u, 0);
	rpc_end(&u);
	h_sync(h);
}

const struct h_scenario svc_cases_rpc_wrong[] = {
	{"rpc_wrong", {wrong}, NULL, H_ONCE, 0},
	{"rpc_collision", {collision}, NULL, H_ONCE, 0},
	{"rpc_oversize", {small_callee, small_caller}, NULL, 0, 0},
	{0},
};
