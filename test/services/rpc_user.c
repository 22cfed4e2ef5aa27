/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/rpc_user.h"

#include <poll.h>
#include <time.h>

void rpc_other(void *arg, const struct xport_completion *c)
{
	struct rpc_user *u = arg;

	if (c->type == XPORT_EVENT_LOST || c->type == XPORT_EVENT_CLOSED)
		atomic_fetch_add(&u->gone, 1);
}

static void rpc_loop_turn(struct rpc_user *u)
{
	struct pollfd p = {.fd = xport_fd(u->h->x), .events = POLLIN};
	struct xport_completion c[8];
	int ms = xport_rpcs_timeout(u->r), n;

	poll(&p, 1, ms < 0 || ms > 2 ? 2 : ms);
	n = xport_poll(u->h->x, c, 8);
	for (int i = 0; i < n; i++) {
		if (xport_rpcs_step(u->r, &c[i]) == 0)
			rpc_other(u, &c[i]);
	}
	if (n <= 0)
		(void)xport_rpcs_step(u->r, NULL);
}

static void *rpc_thread(void *arg)
{
	struct rpc_user *u = arg;

	while (!atomic_load(&u->stop))
		rpc_loop_turn(u);
	return NULL;
}

void rpc_turn(struct rpc_user *u)
{
	if (u->driver == RPC_THREAD)
		nanosleep(&(struct timespec){0, 500000}, NULL);
	else
		rpc_loop_turn(u);
}

void rpc_turn_for(struct rpc_user *u, int ms)
{
	int64_t end = h_now_us() + (int64_t)ms * 1000;

	while (h_now_us() < end)
		rpc_turn(u);
}

/* ---- methods ---- */

static void echo(void *arg, const struct xport_rpc_event *q)
{
	struct rpc_user *u = arg;
	struct h *h = u->h;

	H_EQ(XPORT_RPC_REQUEST, q->type);
	H_EQ(0, (uintptr_t)q->payload % 16);
	H_OK(xport_rpc_reply(u->r, q->id, XPORT_OK, q->payload, q->len));
}

static void hold(void *arg, const struct xport_rpc_event *q)
{
	struct rpc_user *u = arg;

	u->hold[atomic_load(&u->held) % RPC_HELD] = q->id;
	atomic_fetch_add(&u->held, 1);
}

static void note(void *arg, const struct xport_rpc_event *q)
{
	struct rpc_user *u = arg;
	struct h *h = u->h;

	H_EQ(XPORT_RPC_ONE_WAY, q->flags);
	H_OK(xport_rpc_reply(u->r, q->id, XPORT_OK, "dropped", 7));
	atomic_fetch_add(&u->oneway, 1);
}

void rpc_again(struct rpc_user *u, const struct xport_rpcs_attr *attr)
{
	struct h *h = u->h;

	H_OK(xport_rpcs_create(h->x, attr, &u->r));
	H_OK(xport_rpc_register(u->r, "echo", echo, u));
	H_OK(xport_rpc_register(u->r, "hold", hold, u));
	H_OK(xport_rpc_register(u->r, "note", note, u));
	H_OK(xport_rpc_register(u->r, "take", NULL, u));
}

void rpc_begin(struct rpc_user *u, struct h *h, int driver, const struct xport_rpcs_attr *attr)
{
	rpc_begin_depth(u, h, driver, attr, 0);
}

void rpc_begin_depth(struct rpc_user *u, struct h *h, int driver, const struct xport_rpcs_attr *attr, uint32_t depth)
{
	struct xport_attr a = h_attr(h);

	memset(u, 0, sizeof(*u));
	u->h = h;
	u->driver = driver;
	a.peer_timeout_ms = h_ms(5000);
	a.queue_depth = depth;
	if (driver == RPC_THREAD)
		a.thread_mode = XPORT_THREAD_MULTIPLE;
	h_mesh(h, &a);
	rpc_again(u, attr);
	h->idle = true;
	h_sync(h);
	if (driver == RPC_THREAD)
		H_EQ(0, pthread_create(&u->thread, NULL, rpc_thread, u));
}

void rpc_end(struct rpc_user *u)
{
	struct h *h = u->h;

	if (u->driver == RPC_THREAD) {
		atomic_store(&u->stop, 1);
		pthread_join(u->thread, NULL);
	}
	H_OK(xport_rpcs_destroy(u->r, rpc_other, u, h_ms(10000)));
	h->idle = false;
}

void rpc_meet(struct rpc_user *u, int role)
{
	struct h *h = u->h;

	h_tell_u64(h, role, 1);
	while (!h_heard(h, role))
		rpc_turn(u);
	h_hear_u64(h, role);
}

/* ---- calls ---- */

struct xport_rpc_args rpc_args(const void *payload, size_t len, void *reply, size_t reply_max)
{
	return (struct xport_rpc_args){.size = sizeof(struct xport_rpc_args),
	                               .payload = payload,
	                               .len = len,
	                               .reply = reply,
	                               .reply_max = reply_max,
	                               .deadline_ms = (uint32_t)h_ms(10000)};
}

struct xport_rpc_event rpc_next(struct rpc_user *u, const char *file, int line, int type)
{
	int64_t until = h_now_us() + (int64_t)h_ms(20000) * 1000;
	struct xport_rpc_event e = {.size = sizeof(e)};
	struct h *h = u->h;

	if (u->driver == RPC_LOOP) {
		while (xport_rpcs_next(u->r, &e) == 0) {
			if (h_now_us() > until)
				h_fail(h, file, line, "rpc event", "none of type %d came", type);
			rpc_turn(u);
		}
	} else {
		h_check_status(h, file, line, "xport_rpcs_wait", XPORT_OK,
		               xport_rpcs_wait(u->r, &e, rpc_other, u, h_ms(20000)));
	}
	if (e.type != type)
		h_fail(h, file, line, "rpc event", "of type %d (%s, %s), not %d", e.type, xport_status_name(e.status),
		       e.why, type);
	return e;
}

void rpc_quiet(struct rpc_user *u, int ms)
{
	struct xport_rpc_event e = {.size = sizeof(e)};
	struct h *h = u->h;

	rpc_turn_for(u, ms);
	H_EQ(0, xport_rpcs_next(u->r, &e));
}

void rpc_done_as(struct rpc_user *u, const char *file, int line, int status, int ran)
{
	struct xport_rpc_event e = rpc_next(u, file, line, XPORT_RPC_DONE);

	h_check_status(u->h, file, line, e.why, status, e.status);
	h_check_equal(u->h, file, line, "ran", (uint64_t)ran, (uint64_t)e.ran);
}

uint64_t rpc_start(struct rpc_user *u, const char *method, int deadline_ms, uint32_t flags)
{
	struct h *h = u->h;
	struct xport_rpc_args a = rpc_args("abc", 3, NULL, 0);
	uint64_t id = 0;

	a.deadline_ms = (uint32_t)deadline_ms;
	a.flags = flags;
	a.id = &id;
	a.context = u;
	H_OK(xport_rpc_call(u->r, h->ep[0], method, &a));
	H_TRUE(id != 0);
	return id;
}

struct xport_rpcs_info rpc_info(struct rpc_user *u)
{
	struct xport_rpcs_info i = {.size = sizeof(i)};
	struct h *h = u->h;

	H_OK(xport_rpcs_query(u->r, &i));
	return i;
}

void rpc_wait_idle(struct rpc_user *u)
{
	int64_t until = h_now_us() + (int64_t)h_ms(20000) * 1000;
	struct h *h = u->h;

	while (rpc_info(u).memory > 0) {
		H_CHECK(h_now_us() < until, "%" PRIu64 " bytes are occupied", rpc_info(u).memory);
		rpc_turn(u);
	}
}

void rpc_wait_held(struct rpc_user *u, int n)
{
	int64_t until = h_now_us() + (int64_t)h_ms(20000) * 1000;
	struct h *h = u->h;

	while (atomic_load(&u->held) < n) {
		H_CHECK(h_now_us() < until, "%d requests came, not %d", atomic_load(&u->held), n);
		rpc_turn(u);
	}
}
