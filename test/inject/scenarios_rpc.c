/* SPDX-License-Identifier: BSD-3-Clause */
/* scenarios_rpc.c - see scenarios.h: calls of libxport_services, with threads that answer for the library. */
#include "scene.h"
#include "services/xport_services.h"

enum {
	RPC_CALLS = 40, /* more than the credits, so that some wait */
	ON_RPC = BIT(XPORT_ERR_NO_MEMORY) | BIT(XPORT_ERR_SYSTEM) | ENDED,
	ON_RPC_DONE = ON_RPC | BIT(XPORT_ERR_TIMEOUT) | BIT(XPORT_ERR_CANCELED) | BIT(XPORT_ERR_BUSY)
};

void rpc(struct scene *s);

static xport_rpcs *rpcs[2];
static int calls_open;     /* accepted, and not DONE */
static int loans_open;     /* of these with XPORT_RPC_LENT, not RELEASED */
static uint64_t held;      /* a request of "hold" that was not replied to */
static xport_bulk *const *held_bulks; /* of it; NULL: it has none */
static xport_mr *lent;      /* the caller's */
static struct scene *scene; /* of the handlers */

static bool to_rpcs(struct scene *s, int side, const struct xport_completion *c)
{
	(void)s;
	return rpcs[side] != NULL && xport_rpcs_step(rpcs[side], c) == 1;
}

/* A reply that finds no memory is given again. */
static void reply(uint64_t id, const void *payload, size_t len)
{
	int status = xport_rpc_reply(rpcs[0], id, XPORT_OK, payload, len);

	if (status == XPORT_ERR_NO_MEMORY) {
		sc_served(scene, "xport_rpc_reply", status, ON_RPC);
		status = xport_rpc_reply(rpcs[0], id, XPORT_OK, payload, len);
	}
	if (status == XPORT_ERR_NO_MEMORY) {
		inject_relent();
		status = xport_rpc_reply(rpcs[0], id, XPORT_OK, payload, len);
	}
	if (status != XPORT_ERR_CANCELED) /* as is meant to be */
		sc_served(scene, "xport_rpc_reply", status, ON_RPC);
}

static void rpc_echo(void *arg, const struct xport_rpc_event *request)
{
	(void)arg;
	reply(request->id, request->payload, request->len);
}

static void rpc_event(struct scene *s, int side, const struct xport_rpc_event *e)
{
	if (e->type == XPORT_RPC_REQUEST) {
		if (held != 0 || side != 0)
			scene_bad(s, "a request of side %d too many", side);
		held = e->id;
		held_bulks = e->bulks;
		return;
	}
	if (e->type == XPORT_RPC_RELEASED)
		loans_open--;
	else
		calls_open--;
	if (calls_open < 0 || loans_open < 0)
		scene_bad(s, "an event of type %d too many", e->type);
	if (e->status != XPORT_OK && e->status != XPORT_ERR_CANCELED && e->status != XPORT_ERR_TIMEOUT)
		sc_note(s, e->status, ON_RPC_DONE);
}

static void rpc_turn(struct scene *s)
{
	struct xport_rpc_event e = {.size = sizeof(e)};

	sc_step(s);
	for (int side = 0; side < 2; side++) {
		if (rpcs[side] == NULL)
			continue;
		if (xport_rpcs_timeout(rpcs[side]) >= 0)
			xport_rpcs_step(rpcs[side], NULL);
		while (xport_rpcs_next(rpcs[side], &e) == 1)
			rpc_event(s, side, &e);
	}
}

/* With a descriptor, if memory is lent. Without memory for it the call goes without. */
static void rpc_start(struct scene *s, const char *method, int deadline_ms, uint32_t flags, uint64_t *id)
{
	struct xport_bulk_run run = {.mr = lent, .length = 64, .count = 1};
	struct xport_bulk_attr attr = {.size = sizeof(attr), .rights = XPORT_REMOTE_READ};
	xport_bulk *bulk = NULL;
	bool accepted;

	static uint64_t payload = 7;
	struct xport_rpc_args a = {.size = sizeof(a),
	                           .payload = &payload,
	                           .len = sizeof(payload),
	                           .deadline_ms = (uint32_t)deadline_ms,
	                           .flags = flags,
	                           .id = id,
	                           .bulks = &bulk};

	if ((flags & XPORT_RPC_LENT) != 0 && lent != NULL &&
	    sc_served(s, "xport_bulk_create", xport_bulk_create(s->x[1], &run, 1, &attr, &bulk), ON_RPC))
		a.nbulks = 1;
	accepted = sc_served(s, "xport_rpc_call", xport_rpc_call(rpcs[1], s->ep[1], method, &a), ON_RPC);
	xport_bulk_free(bulk);
	if (!accepted)
		return;
	calls_open++;
	loans_open += (flags & XPORT_RPC_LENT) != 0;
}

/* Until all calls are done, and `loans` are left. */
static void rpc_finish(struct scene *s, int loans, const char *what)
{
	int64_t began = sc_now_ms();

	while ((calls_open > 0 || loans_open > loans) && sc_now_ms() - began < MEMORY_LIMIT_MS + OPS_LIMIT_MS) {
		rpc_turn(s);
		if (sc_now_ms() - began > MEMORY_LIMIT_MS)
			inject_relent();
	}
	if (calls_open > 0 || loans_open > loans)
		scene_bad(s, "hang: %s: %d calls without DONE, %d without RELEASED", what, calls_open, loans_open);
}

/* The callee has the request, unless something failed. */
static void rpc_hold(struct scene *s, int deadline_ms, uint32_t flags, uint64_t *id)
{
	int64_t end = sc_now_ms() + MEMORY_LIMIT_MS;

	rpc_start(s, "hold", deadline_ms, flags, id);
	while (held == 0 && calls_open > 0 && sc_now_ms() < end)
		rpc_turn(s);
}

/* Replies to the request that is held, while a call of the callee's own passes its descriptor on. */
static void rpc_pass_on(struct scene *s)
{
	struct xport_rpc_args a = {
		.size = sizeof(a), .deadline_ms = OPS_LIMIT_MS, .bulks = held_bulks, .nbulks = held_bulks != NULL};

	if (held_bulks != NULL && sc_connected(s) &&
	    sc_served(s, "xport_rpc_call", xport_rpc_call(rpcs[0], s->ep[0], "xport.ping", &a), ON_RPC)) {
		calls_open++;
		loans_open++;
	}
	reply(held, "kept", 4);
}

static void use_rpcs(struct scene *s)
{
	uint64_t id = 0;

	for (int i = 0; i < RPC_CALLS && sc_connected(s); i++)
		rpc_start(s, "echo", OPS_LIMIT_MS, i == 0 ? XPORT_RPC_LENT : i == 1 ? XPORT_RPC_ONE_WAY : 0, NULL);
	rpc_finish(s, 0, "many calls");
	if (sc_connected(s))
		rpc_start(s, "xport.stats", OPS_LIMIT_MS, 0, NULL);
	rpc_finish(s, 0, "xport.stats");
	/* Cancelled while it runs, and replied to after that. */
	if (sc_connected(s))
		rpc_hold(s, OPS_LIMIT_MS, XPORT_RPC_LENT, &id);
	if (calls_open > 0)
		sc_served(s, "xport_rpc_cancel", xport_rpc_cancel(rpcs[1], id), 0);
	rpc_finish(s, 1, "a call that was cancelled");
	if (held != 0)
		rpc_pass_on(s);
	held = 0;
	rpc_finish(s, 0, "the reply to it");
	/* One whose time passes. */
	if (sc_connected(s))
		rpc_hold(s, 50, 0, NULL);
	rpc_finish(s, 0, "a call without a reply");
	if (held != 0)
		reply(held, NULL, 0);
	held = 0;
}

static void nobody_muted_in_rpcs(struct scene *s)
{
	struct xport_rpcs_info info = {.size = sizeof(info)};

	for (int side = 0; side < 2; side++) {
		if (rpcs[side] != NULL && xport_rpcs_query(rpcs[side], &info) == XPORT_OK && info.muted > 0)
			scene_bad(s, "side %d muted an honest peer of its calls", side);
	}
}

static void rpc_drop(void *arg, const struct xport_completion *c)
{
	(void)arg, (void)c;
}

void rpc(struct scene *s)
{
	scene = s;
	calls_open = loans_open = 0;
	held = 0;
	if (sc_open_both(s))
		sc_connect_both(s);
	if (sc_connected(s) &&
	    !sc_ok(s, s->x[1], "xport_mr_reg", xport_mr_reg(s->x[1], local[1], 4096, XPORT_REMOTE_READ, &lent),
	           ON_RPC | BIT(XPORT_ERR_FAULT)))
		lent = NULL;
	s->own = to_rpcs;
	for (int side = 0; side < 2 && sc_connected(s); side++)
		if (!sc_served(s, "xport_rpcs_create", xport_rpcs_create(s->x[side], NULL, &rpcs[side]), ON_RPC))
			rpcs[side] = NULL;
	if (rpcs[0] != NULL && rpcs[1] != NULL &&
	    sc_served(s, "xport_rpc_register", xport_rpc_register(rpcs[0], "echo", rpc_echo, NULL), ON_RPC) &&
	    sc_served(s, "xport_rpc_register", xport_rpc_register(rpcs[0], "hold", NULL, NULL), ON_RPC)) {
		use_rpcs(s);
		nobody_muted_in_rpcs(s);
	}
	s->ending = true;
	inject_relent();
	for (int side = 0; side < 2; side++) {
		if (rpcs[side] != NULL && s->ep[side] != NULL)
			xport_rpcs_forget(rpcs[side], s->ep[side]);
		sc_served(s, "xport_rpcs_destroy", xport_rpcs_destroy(rpcs[side], rpc_drop, NULL, OPS_LIMIT_MS), 0);
		rpcs[side] = NULL;
	}
	s->own = NULL;
	for (int side = 1; side >= 0; side--)
		sc_close_endpoint(s, side);
	if (lent != NULL)
		sc_ok(s, s->x[1], "xport_mr_dereg", xport_mr_dereg(lent), 0);
	lent = NULL;
	sc_close_all(s);
}
