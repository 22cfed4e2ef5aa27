/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_rpc_queue.c - calls and replies that wait: for credits, and for the queue of an endpoint, which is short here. */
#include <time.h>

#include "services/rpc_user.h"

enum { LONG = 60000, DEPTH = 4, CREDITS = XPORT_RPC_CREDITS_MAX };

static void reply_to_held(struct rpc_user *u, int n, int status)
{
	struct h *h = u->h;

	for (int i = 0; i < n; i++)
		H_STATUS(status, xport_rpc_reply(u->r, u->hold[i], XPORT_OK, NULL, 0));
}

/* ---- all credits are taken, and the callers want nothing any more ---- */

enum { BY_CANCEL, BY_DEADLINE };

static void all_credits_callee(struct h *h)
{
	struct xport_rpcs_attr a = {.size = sizeof(a), .flags = XPORT_RPCS_TELL_ABANDONED};
	struct rpc_user u;

	rpc_begin(&u, h, 0, &a);
	rpc_wait_held(&u, CREDITS);
	rpc_meet(&u, 1);
	for (int i = 0; i < CREDITS; i++) {
		struct xport_rpc_event e = RPC_NEXT(&u, XPORT_RPC_ABANDONED);

		H_STATUS(XPORT_ERR_CANCELED, e.status);
		H_STATUS(XPORT_ERR_CANCELED, xport_rpc_left(u.r, e.id));
	}
	reply_to_held(&u, CREDITS, XPORT_ERR_CANCELED);
	rpc_meet(&u, 1);
	rpc_meet(&u, 1);
	H_EQ(0, rpc_info(&u).muted);
	rpc_end(&u);
	h_sync(h);
}

static void all_credits_caller(struct h *h)
{
	bool cancel = h->param == BY_CANCEL;
	uint64_t id[CREDITS];
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	for (int i = 0; i < CREDITS; i++)
		id[i] = rpc_start(&u, "hold", h_ms(cancel ? LONG : 1000), 0);
	rpc_meet(&u, 0);
	for (int i = 0; cancel && i < CREDITS; i++)
		H_OK(xport_rpc_cancel(u.r, id[i]));
	for (int i = 0; i < CREDITS; i++)
		RPC_DONE_AS(&u, cancel ? XPORT_ERR_CANCELED : XPORT_ERR_TIMEOUT, XPORT_RPC_RAN_UNKNOWN);
	rpc_meet(&u, 0);
	rpc_start(&u, "echo", h_ms(10000), 0);
	RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	rpc_meet(&u, 0);
	H_EQ(0, rpc_info(&u).muted);
	rpc_end(&u);
	h_sync(h);
}

/* Both cancel all they asked, and reply to all they were asked, before anything can leave: nobody is muted for that. */
static void crossing(struct h *h)
{
	int other = 1 - h->role;
	struct xport_rpc_args a = rpc_args(NULL, 0, NULL, 0);
	uint64_t id[CREDITS];
	struct rpc_user u;

	rpc_begin_depth(&u, h, 0, NULL, DEPTH);
	a.deadline_ms = (uint32_t)h_ms(LONG);
	for (int i = 0; i < CREDITS; i++) {
		a.id = &id[i];
		H_OK(xport_rpc_call(u.r, h->ep[other], "hold", &a));
	}
	rpc_wait_held(&u, CREDITS);
	rpc_meet(&u, other);
	h_tell_u64(h, other, 1); /* from here on neither side receives */
	h_hear_u64(h, other);
	for (int i = 0; i < CREDITS; i++)
		H_OK(xport_rpc_cancel(u.r, id[i]));
	reply_to_held(&u, CREDITS, XPORT_OK);
	for (int i = 0; i < CREDITS; i++)
		RPC_DONE_AS(&u, XPORT_ERR_CANCELED, XPORT_RPC_RAN_UNKNOWN);
	a.id = NULL;
	H_OK(xport_rpc_call(u.r, h->ep[other], "echo", &a));
	RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	H_EQ(0, rpc_info(&u).muted);
	rpc_meet(&u, other);
	rpc_end(&u);
	h_sync(h);
}

/* ---- the queue of the endpoint is full ---- */

enum { CALLS = 10 };

static void backlog_callee(struct h *h)
{
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	rpc_wait_held(&u, CALLS - 1);
	rpc_meet(&u, 1);
	H_EQ(CALLS - 1, atomic_load(&u.held)); /* without the one that was cancelled */
	reply_to_held(&u, CALLS - 1, XPORT_OK);
	rpc_meet(&u, 1);
	rpc_end(&u);
	h_sync(h);
}

/* What waits goes on without a reply to something else. What is cancelled meanwhile does not run. */
static void backlog_caller(struct h *h)
{
	uint64_t id[CALLS];
	struct rpc_user u;

	rpc_begin_depth(&u, h, 0, NULL, DEPTH);
	rpc_start(&u, "echo", h_ms(LONG), 0);
	RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	for (int i = 0; i < CALLS; i++)
		id[i] = rpc_start(&u, "hold", h_ms(LONG), 0);
	H_TRUE(rpc_info(&u).queued > 0);
	H_OK(xport_rpc_cancel(u.r, id[DEPTH]));
	RPC_DONE_AS(&u, XPORT_ERR_CANCELED, XPORT_RPC_RAN_NO);
	rpc_meet(&u, 0);
	for (int i = 0; i < CALLS - 1; i++)
		RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	H_EQ(0, rpc_info(&u).queued);
	rpc_meet(&u, 0);
	rpc_end(&u);
	h_sync(h);
}

static void stalled_callee(struct h *h)
{
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	rpc_meet(&u, 1);
	reply_to_held(&u, atomic_load(&u.held), XPORT_OK);
	rpc_meet(&u, 1);
	rpc_end(&u);
	h_sync(h);
}

/* When all that waits is cancelled, nothing is left to be woken for. */
static void stalled_caller(struct h *h)
{
	uint64_t id[CALLS];
	struct rpc_user u;
	int sent = CALLS;

	rpc_begin_depth(&u, h, 0, NULL, DEPTH);
	for (int i = 0; i < CALLS; i++)
		id[i] = rpc_start(&u, "hold", h_ms(LONG), 0);
	while (rpc_info(&u).queued == CALLS)
		rpc_turn(&u);
	while (rpc_info(&u).queued > 0) {
		H_OK(xport_rpc_cancel(u.r, id[--sent]));
		RPC_DONE_AS(&u, XPORT_ERR_CANCELED, XPORT_RPC_RAN_NO);
	}
	H_TRUE(sent < CALLS);
	rpc_turn_for(&u, 50);
	H_TRUE(xport_rpcs_timeout(u.r) > 1);
	rpc_meet(&u, 0);
	for (int i = 0; i < sent; i++)
		RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	rpc_meet(&u, 0);
	rpc_end(&u);
	h_sync(h);
}

/* Replies that wait are sent before the callee's calls are destroyed. */
static void parting_callee(struct h *h)
{
	struct rpc_user u;

	rpc_begin_depth(&u, h, 0, NULL, DEPTH);
	rpc_wait_held(&u, CALLS);
	rpc_meet(&u, 1);
	reply_to_held(&u, CALLS, XPORT_OK);
	rpc_end(&u);
	h_tell_u64(h, 1, 1);
	h_sync(h);
}

static void parting_caller(struct h *h)
{
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	for (int i = 0; i < CALLS; i++)
		rpc_start(&u, "hold", h_ms(LONG), 0);
	rpc_meet(&u, 0);
	for (int i = 0; i < CALLS; i++)
		RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	while (!h_heard(h, 0))
		rpc_turn(&u);
	h_hear_u64(h, 0);
	rpc_end(&u);
	h_sync(h);
}

/* ---- the end of an endpoint ---- */

enum { REPLIES = 5, MOST = 100 };

static void arrived_callee(struct h *h)
{
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	rpc_wait_held(&u, REPLIES);
	reply_to_held(&u, REPLIES, XPORT_OK);
	H_OK(xport_ep_close(h->ep[1], h_ms(10000)));
	xport_rpcs_forget(u.r, h->ep[1]);
	rpc_meet(&u, 1);
	rpc_end(&u);
	h_sync(h);
}

/* A call finds that the peer has closed, while completions of replies were polled, and not passed on yet. */
static void arrived_caller(struct h *h)
{
	struct xport_rpc_args a = rpc_args(NULL, 0, NULL, 0);
	struct xport_completion c[MOST];
	uint64_t id = 4711;
	struct rpc_user u;
	int n = 0, status;

	rpc_begin(&u, h, 0, NULL);
	for (int i = 0; i < REPLIES; i++)
		rpc_start(&u, "hold", h_ms(LONG), 0);
	while (rpc_info(&u).queued > 0)
		rpc_turn(&u);
	while (n == 0 || (c[n - 1].type != XPORT_EVENT_CLOSED && c[n - 1].type != XPORT_EVENT_LOST)) {
		H_TRUE(n < MOST);
		n += xport_wait(h->x, &c[n], 1, h_ms(100));
	}
	a.id = &id;
	status = xport_rpc_call(u.r, h->ep[0], "echo", &a);
	H_TRUE(status == XPORT_ERR_PEER_CLOSED || status == XPORT_ERR_PEER_LOST);
	SVC_ERROR(status, "xport_rpc_call", "not open");
	H_EQ(4711, id);
	for (int i = 0; i < n; i++)
		(void)xport_rpcs_step(u.r, &c[i]);
	for (int i = 0; i < REPLIES; i++)
		RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	H_EQ(0, rpc_info(&u).calls);
	rpc_meet(&u, 0);
	rpc_end(&u);
	h_sync(h);
}

static void silent_callee(struct h *h)
{
	h_mesh(h, NULL);
	h_sync(h);
	h_hear_u64(h, 1);
	h_sync(h);
}

/* A deadline that passes meanwhile does not make xport_rpcs_destroy spin. */
static void shut_caller(struct h *h)
{
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	rpc_start(&u, "echo", 1, 0);
	nanosleep(&(struct timespec){0, 5000000}, NULL);
	H_STATUS(XPORT_ERR_TIMEOUT, xport_rpcs_destroy(u.r, rpc_other, &u, 0));
	H_EQ(-1, xport_rpcs_timeout(u.r));
	rpc_end(&u);
	h_tell_u64(h, 0, 1);
	h_sync(h);
}

/* ---- what an error says ---- */

static void lender_callee(struct h *h)
{
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	rpc_wait_held(&u, 1);
	rpc_meet(&u, 1);
	while (xport_rpc_left(u.r, u.hold[0]) >= 0)
		rpc_turn(&u);
	rpc_meet(&u, 1);
	reply_to_held(&u, 1, XPORT_ERR_CANCELED);
	rpc_meet(&u, 1);
	rpc_end(&u);
	h_sync(h);
}

static void lender_caller(struct h *h)
{
	struct xport_rpcs_attr one = {.size = sizeof(one), .max_calls = 1};
	struct xport_rpc_args a = rpc_args(NULL, 0, NULL, 0);
	struct rpc_user u;
	uint64_t id, none = 4711;

	rpc_begin(&u, h, 0, &one);
	id = rpc_start(&u, "hold", h_ms(LONG), XPORT_RPC_LENT);
	rpc_meet(&u, 0);
	H_OK(xport_rpc_cancel(u.r, id));
	RPC_DONE_AS(&u, XPORT_ERR_CANCELED, XPORT_RPC_RAN_UNKNOWN);
	a.id = &none;
	H_STATUS(XPORT_ERR_AGAIN, xport_rpc_call(u.r, h->ep[0], "echo", &a));
	SVC_ERROR(XPORT_ERR_AGAIN, "xport_rpc_call", "1 of them are done, but still lend memory");
	H_EQ(4711, none);
	rpc_meet(&u, 0);
	H_OK(RPC_NEXT(&u, XPORT_RPC_RELEASED).status);
	H_OK(xport_rpc_call(u.r, h->ep[0], "echo", &a));
	RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	rpc_meet(&u, 0);
	rpc_end(&u);
	h_sync(h);
}

static const struct h_param ways[] = {{"cancel", BY_CANCEL}, {"deadline", BY_DEADLINE}, {0}};

const struct h_scenario svc_cases_rpc_queue[] = {
	{"rpc_credits", {all_credits_callee, all_credits_caller}, ways, 0, 0},
	{"rpc_crossing", {crossing, crossing}, NULL, 0, 0},
	{"rpc_backlog", {backlog_callee, backlog_caller}, NULL, 0, 0},
	{"rpc_stalled", {stalled_callee, stalled_caller}, NULL, 0, 0},
	{"rpc_parting", {parting_callee, parting_caller}, NULL, 0, 0},
	{"rpc_arrived", {arrived_callee, arrived_caller}, NULL, 0, 0},
	{"rpc_shut", {silent_callee, shut_caller}, NULL, H_ONCE, 0},
	{"rpc_lender", {lender_callee, lender_caller}, NULL, H_ONCE, 0},
	{0},
};
