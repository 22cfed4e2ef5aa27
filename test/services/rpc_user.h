/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rpc_user.h - a role that calls and is called, and the ways to drive it: an event loop on xport_fd, the functions that
 * wait, or a thread beside. The harness makes no progress meanwhile (h->idle).
 */
#ifndef TEST_RPC_USER_H
#define TEST_RPC_USER_H

#include "conform/harness.h"
#include "services/services.h"
#include "services/xport_services.h"

enum { RPC_LOOP = 0, RPC_WAIT = 1, RPC_THREAD = 2, RPC_HELD = 64 };

struct rpc_user {
	struct h *h;
	xport_rpcs *r;
	int driver;
	pthread_t thread;
	_Atomic int stop, gone; /* gone: LOST and CLOSED events */
	/* Requests of the method "hold", which has a handler that does not reply. */
	_Atomic int held;
	uint64_t hold[RPC_HELD];
	_Atomic int oneway; /* requests of "note" */
};

/* Opens, connects to all other roles, and makes calls, with the methods "echo", "hold", "note" and "take" (events). */
void rpc_begin(struct rpc_user *u, struct h *h, int driver, const struct xport_rpcs_attr *attr);
/* The same with a limit of the operations of an endpoint; 0: the default. */
void rpc_begin_depth(struct rpc_user *u, struct h *h, int driver, const struct xport_rpcs_attr *attr, uint32_t depth);
void rpc_end(struct rpc_user *u);
/* Makes calls again, after xport_rpcs_destroy. */
void rpc_again(struct rpc_user *u, const struct xport_rpcs_attr *attr);
void rpc_other(void *arg, const struct xport_completion *c);
void rpc_turn(struct rpc_user *u);
void rpc_turn_for(struct rpc_user *u, int ms);
/* Meets the role, which does the same. */
void rpc_meet(struct rpc_user *u, int role);

/* Arguments with a deadline of 10 s. */
struct xport_rpc_args rpc_args(const void *payload, size_t len, void *reply, size_t reply_max);
/* The next event, which must be of this type. */
struct xport_rpc_event rpc_next(struct rpc_user *u, const char *file, int line, int type);
#define RPC_NEXT(u, type) rpc_next(u, __FILE__, __LINE__, type)
#define RPC_DONE(u) rpc_next(u, __FILE__, __LINE__, XPORT_RPC_DONE)
/* No event comes for a while. */
void rpc_quiet(struct rpc_user *u, int ms);
/* DONE with this status and `ran`. */
void rpc_done_as(struct rpc_user *u, const char *file, int line, int status, int ran);
#define RPC_DONE_AS(u, status, ran) rpc_done_as(u, __FILE__, __LINE__, status, ran)
/* Calls the method of role 0 without a reply buffer, and returns the call's id. */
uint64_t rpc_start(struct rpc_user *u, const char *method, int deadline_ms, uint32_t flags);
struct xport_rpcs_info rpc_info(struct rpc_user *u);
/* Waits until no request and no reply occupies memory: a reply does until its completion is reaped. */
void rpc_wait_idle(struct rpc_user *u);
/* Waits until the handler of "hold" has so many requests. */
void rpc_wait_held(struct rpc_user *u, int n);

#endif
