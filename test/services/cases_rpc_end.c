/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_rpc_end.c - calls whose endpoint, process or service ends: one that is queued, one that runs, and one that lends. */
#include "services/rpc_user.h"

enum how { CALLER_CLOSES, CALLEE_CLOSES, CALLEE_DESTROYS, CALLEE_DIES, CALLEE_STOPS };
enum { LONG = 60000 };

/* Why calls end at their caller, and requests at their callee. */
static bool ended_as(enum how how, bool at_caller, int status)
{
	switch (how) {
	case CALLER_CLOSES:
		return status == (at_caller ? XPORT_ERR_CLOSED : XPORT_ERR_PEER_CLOSED);
	case CALLEE_CLOSES:
		return status == (at_caller ? XPORT_ERR_PEER_CLOSED : XPORT_ERR_CLOSED);
	case CALLEE_DESTROYS:
		return status == XPORT_ERR_PEER_CLOSED;
	default:
		return status == XPORT_ERR_PEER_LOST || status == XPORT_ERR_PEER_CLOSED;
	}
}

/* Two requests run, and the third one waits at the caller. */
static void end_callee(struct h *h)
{
	struct xport_rpcs_attr a = {.size = sizeof(a), .credits = 2, .flags = XPORT_RPCS_TELL_ABANDONED};
	struct xport_rpc_event e;
	struct rpc_user u;

	rpc_begin(&u, h, 0, &a);
	rpc_wait_held(&u, 2);
	rpc_meet(&u, 1);
	rpc_meet(&u, 1);
	switch (h->param) {
	case CALLEE_DIES:
	case CALLEE_STOPS:
		for (;;)
			rpc_turn(&u);
	case CALLEE_DESTROYS:
		H_OK(xport_rpcs_destroy(u.r, rpc_other, &u, h_ms(10000)));
		atomic_store(&u.held, 0);
		rpc_again(&u, &a);
		break;
	case CALLEE_CLOSES:
		(void)xport_ep_close(h->ep[1], h_ms(1000));
		xport_rpcs_forget(u.r, h->ep[1]);
		/* fall through */
	default:
		/* The second event is void once its request was replied to. */
		e = RPC_NEXT(&u, XPORT_RPC_ABANDONED);
		H_EQ(u.hold[0], e.id);
		H_TRUE(e.context == &u && e.ep == h->ep[1] && strcmp(e.method, "hold") == 0);
		H_TRUE(ended_as((enum how)h->param, false, e.status));
		/* A reply after the endpoint has ended. */
		for (int i = 0; i < 2; i++) {
			H_TRUE(ended_as((enum how)h->param, false, xport_rpc_left(u.r, u.hold[i])));
			H_TRUE(ended_as((enum how)h->param, false,
			                xport_rpc_reply(u.r, u.hold[i], XPORT_OK, "late", 4)));
			H_STATUS(XPORT_ERR_INVALID, xport_rpc_reply(u.r, u.hold[i], XPORT_OK, "late", 4));
		}
		H_EQ(0, rpc_info(&u).active);
		rpc_quiet(&u, 10);
		rpc_wait_idle(&u);
	}
	rpc_meet(&u, 1);
	rpc_end(&u);
	h_sync(h);
}

static void end_now(struct rpc_user *u)
{
	struct h *h = u->h;

	if (h->param == CALLER_CLOSES) {
		(void)xport_ep_close(h->ep[0], h_ms(1000));
		xport_rpcs_forget(u->r, h->ep[0]);
	} else if (h->param == CALLEE_DIES) {
		h_kill(h, 0, SIGKILL);
	} else if (h->param == CALLEE_STOPS) {
		h_stop(h, 0);
	}
}

static void end_caller(struct h *h)
{
	struct xport_rpc_args a = rpc_args(NULL, 0, NULL, 0);
	enum how how = (enum how)h->param;
	int ran[4] = {0}, released = 0;
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	rpc_start(&u, "hold", h_ms(LONG), 0);
	rpc_start(&u, "hold", h_ms(LONG), XPORT_RPC_LENT);
	rpc_start(&u, "hold", h_ms(LONG), XPORT_RPC_LENT);
	rpc_meet(&u, 0);
	H_EQ(1, rpc_info(&u).queued);
	rpc_meet(&u, 0);
	end_now(&u);
	for (int i = 0; i < 5; i++) { /* three DONE, two RELEASED */
		struct xport_rpc_event e = {.size = sizeof(e)};

		H_OK(xport_rpcs_wait(u.r, &e, rpc_other, &u, h_ms(30000)));
		H_CHECK(ended_as(how, true, e.status), "%s", xport_status_name(e.status));
		if (e.type == XPORT_RPC_RELEASED)
			released++;
		else
			ran[e.ran]++;
	}
	H_EQ(2, released);
	H_EQ(1, ran[XPORT_RPC_RAN_NO]);
	H_EQ(2, ran[XPORT_RPC_RAN_UNKNOWN]);
	H_EQ(0, rpc_info(&u).calls);
	rpc_quiet(&u, 10);
	if (how == CALLEE_DESTROYS) { /* and another one follows, on the same endpoint */
		rpc_start(&u, "echo", h_ms(LONG), 0);
		RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	} else {
		H_TRUE(ended_as(how, true, xport_rpc_call(u.r, h->ep[0], "echo", &a)));
		SVC_ERROR(xport_rpc_call(u.r, h->ep[0], "echo", &a), "xport_rpc_call", "not open");
	}
	if (how == CALLEE_STOPS)
		h_kill(h, 0, SIGKILL);
	if (how != CALLEE_DIES && how != CALLEE_STOPS)
		rpc_meet(&u, 0);
	rpc_end(&u);
	if (how != CALLEE_DIES && how != CALLEE_STOPS)
		h_sync(h);
}

/* The caller's own service is destroyed while calls are under way. */
static void leave_callee(struct h *h)
{
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	rpc_wait_held(&u, 2);
	rpc_meet(&u, 1);
	while (xport_rpc_left(u.r, u.hold[0]) >= 0)
		rpc_turn(&u);
	for (int i = 0; i < 2; i++)
		H_STATUS(XPORT_ERR_PEER_CLOSED, xport_rpc_reply(u.r, u.hold[i], XPORT_OK, NULL, 0));
	rpc_meet(&u, 1);
	rpc_end(&u);
	h_sync(h);
}

static void leave_caller(struct h *h)
{
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	for (int i = 0; i < 100; i++)
		rpc_start(&u, i < 2 ? "hold" : "echo", h_ms(LONG), i % 2 == 0 ? XPORT_RPC_LENT : 0);
	rpc_meet(&u, 0);
	H_OK(xport_rpcs_destroy(u.r, rpc_other, &u, h_ms(10000)));
	rpc_again(&u, NULL);
	rpc_start(&u, "echo", h_ms(LONG), 0);
	RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	rpc_meet(&u, 0);
	rpc_end(&u);
	h_sync(h);
}

/* A call on an endpoint that the application has closed, and that the service has not heard of: it did not leave. */
static void closed_callee(struct h *h)
{
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	while (atomic_load(&u.gone) == 0)
		rpc_turn(&u);
	rpc_end(&u);
	h_sync(h);
}

static void closed_caller(struct h *h)
{
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	rpc_start(&u, "echo", h_ms(LONG), 0);
	RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	(void)xport_ep_close(h->ep[0], h_ms(1000));
	rpc_start(&u, "echo", h_ms(LONG), XPORT_RPC_LENT);
	RPC_DONE_AS(&u, XPORT_ERR_CLOSED, XPORT_RPC_RAN_NO);
	H_STATUS(XPORT_ERR_CLOSED, RPC_NEXT(&u, XPORT_RPC_RELEASED).status);
	H_EQ(0, rpc_info(&u).calls);
	rpc_end(&u);
	h_sync(h);
}

/* The peer ends, and that is all that happens: who waits for requests learns it, once. */
static void alone_callee(struct h *h)
{
	struct xport_rpcs_attr a = {.size = sizeof(a), .flags = XPORT_RPCS_TELL_ENDED};
	struct xport_rpc_event e = {.size = sizeof(e)};
	struct rpc_user u;

	rpc_begin(&u, h, RPC_WAIT, &a);
	if (h->param == 1) /* else nothing was ever called */
		rpc_wait_held(&u, 1);
	if (h->param == 1)
		H_OK(xport_rpc_reply(u.r, u.hold[0], XPORT_OK, NULL, 0));
	h_tell_u64(h, 1, 1);
	e = RPC_NEXT(&u, XPORT_RPC_PEER_ENDED);
	H_TRUE(e.ep == h->ep[1]);
	H_STATUS(XPORT_ERR_PEER_CLOSED, e.status);
	H_EQ(1, atomic_load(&u.gone));
	H_STATUS(XPORT_ERR_TIMEOUT, xport_rpcs_wait(u.r, &e, rpc_other, &u, 10));
	rpc_end(&u);
	h_sync(h);
}

static void alone_caller(struct h *h)
{
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	if (h->param == 1) {
		rpc_start(&u, "hold", h_ms(LONG), 0);
		RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	}
	h_hear_u64(h, 0);
	H_OK(xport_ep_close(h->ep[0], h_ms(10000)));
	xport_rpcs_forget(u.r, h->ep[0]);
	rpc_end(&u);
	h_sync(h);
}

static const struct h_param alones[] = {{"silent", 0}, {"called", 1}, {0}};
static const struct h_param hows[] = {
	{"caller_closes", CALLER_CLOSES}, {"callee_closes", CALLEE_CLOSES}, {"callee_destroys", CALLEE_DESTROYS}, {0}};
static const struct h_param deaths[] = {{"dies", CALLEE_DIES}, {"stops", CALLEE_STOPS}, {0}};

const struct h_scenario svc_cases_rpc_end[] = {
	{"rpc_end", {end_callee, end_caller}, hows, 0, 0},
	{"rpc_death", {end_callee, end_caller}, deaths, H_KILLS, 0},
	{"rpc_closed", {closed_callee, closed_caller}, NULL, 0, 0},
	{"rpc_peer_ended", {alone_callee, alone_caller}, alones, H_ONCE, 0},
	{"rpc_leave", {leave_callee, leave_caller}, NULL, 0, 0},
	{0},
};
