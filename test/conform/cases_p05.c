/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_p05.c - P5, bounded loss: a killed, crashed or vanished peer, and the operations that were in flight. */
#include "harness.h"

/* On one host a death must be noticed within 100 ms; the rest is for machines that are busy with something else. */
enum { LEN = 1 << 20, DEATH_MS = 100 + 1000, ROUNDS = 16 };

enum doing { IDLE, PUT, GET, NOTIFY, SEND_EAGER, SEND_LARGE, RECV, FLUSH, ATOMIC };

static const struct h_param doings[] = {
	{"idle", IDLE},
	{"put", PUT},
	{"get", GET},
	{"put_notify", NOTIFY},
	{"recv", RECV},
	{"flush", FLUSH},
	{"send_eager", SEND_EAGER},
	{"send_large", SEND_LARGE},
	{"atomic", ATOMIC},
	{NULL, 0},
};

/* Returns what must be lost: of a quiet put and its flush, the flush; NULL: nothing was posted. */
static struct h_op *post(struct h *h, struct h_mem *l, struct h_rkey *r, uint64_t what)
{
	static uint64_t old;

	switch (what) {
	case PUT:
		return h_put(h, h->ep[0], H_AT(*l, 0, LEN), r, 0, 0);
	case GET:
		return h_get(h, h->ep[0], H_AT(*l, 0, LEN), r, 0);
	case NOTIFY:
		return h_notify(h, h->ep[0], H_AT(*l, 0, 1000), r, 0, 1, 0);
	case SEND_EAGER:
		return h_send(h, h->ep[0], l->p, 100, 1);
	case SEND_LARGE:
		return h_send(h, h->ep[0], l->p, LEN, 1);
	case RECV:
		return h_recv(h, h->ep[0], l->p, LEN, 1, UINT64_MAX);
	case FLUSH:
		h_put(h, h->ep[0], H_AT(*l, 0, 64), r, 0, XPORT_QUIET);
		return h_flush(h, h->ep[0]);
	case ATOMIC:
		return h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 1, 0, &old, r, 0);
	default:
		return NULL;
	}
}

/* True if operations of this kind cannot have completed while the target made no progress. */
static bool must_be_lost(struct h *h, struct h_rkey *r, uint64_t what)
{
	struct xport_rkey_info info = {.size = sizeof(info)};

	H_OK(xport_rkey_query(r->k, &info));
	if (what == SEND_LARGE || what == RECV)
		return true;
	if (what == ATOMIC || what == FLUSH || what == PUT || what == NOTIFY)
		return info.put == XPORT_EMULATED;
	return what == GET && info.get == XPORT_EMULATED;
}

/* After the loss: everything ended once, one event, and the endpoint says so to whoever asks. */
static void aftermath(struct h *h, struct h_mem *l, struct h_rkey *r)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	struct xport_completion c;
	struct xport_opt o = {.size = sizeof(o)};

	h_run_for(h, 50);
	H_EQ(0, h->pending);
	H_CHECK(!h_event_now(h, XPORT_EVENT_LOST, &c), "a second event");
	H_CHECK(!h_event_now(h, XPORT_EVENT_CLOSED, &c), "closed after lost");
	H_OK(xport_ep_query(h->ep[0], &info));
	H_EQ(XPORT_EP_LOST, info.state);
	H_EQ(XPORT_ERR_PEER_LOST, info.reason);
	H_EQ(0, info.in_flight);
	H_STATUS(XPORT_ERR_PEER_LOST, xport_put(h->ep[0], l->p, 8, r->k, r->offset, &o));
	H_STATUS(XPORT_ERR_PEER_LOST, xport_get(h->ep[0], l->p, 8, r->k, r->offset, &o));
	H_STATUS(XPORT_ERR_PEER_LOST, xport_send(h->ep[0], l->p, 8, 1, &o));
	H_STATUS(XPORT_ERR_PEER_LOST, xport_flush(h->ep[0], &o));
	H_STATUS(XPORT_ERR_PEER_LOST, xport_ep_close(h->ep[0], 100));
	H_STATUS(XPORT_ERR_CLOSED, xport_ep_close(h->ep[0], 100));
	xport_ep_destroy(h->ep[0]);
	h->ep[0] = NULL;
}

static void count_statuses(struct h *h, struct h_op *const *ops, int n, bool lost)
{
	for (int i = 0; i < n; i++) {
		int s = ops[i]->c.status;

		H_CHECK(s == XPORT_ERR_PEER_LOST || (!lost && s == XPORT_OK), "operation %d of type %d ended with %s",
		        i, ops[i]->type, xport_status_name(s));
	}
}

/* The victim sleeps, the operations are outstanding, the victim dies. */
static void kill_sleeper(struct h *h)
{
	struct h_op *op[ROUNDS];
	struct h_mem l;
	struct h_rkey r;
	bool lost;
	int64_t t, starved;
	int n = 0;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	h_sync(h);
	for (; n < ROUNDS && h->param != IDLE; n++)
		op[n] = post(h, &l, &r, h->param);
	lost = must_be_lost(h, &r, h->param);
	H_CHECK(!lost || h->pending >= ROUNDS, "completed though the peer sleeps");
	starved = h_starved_us();
	h_kill(h, 0, SIGKILL);
	t = h_now_us();
	h_record(h, "lost_us", (uint64_t)h_lost_within(h, h->ep[0], t, DEATH_MS));
	h_settle(h);
	count_statuses(h, op, n, lost);
	h_record(h, "all_completed_us", (uint64_t)(h_now_us() - t));
	H_TRUE(h_now_us() - t - (h_starved_us() - starved) < (int64_t)h_ms(DEATH_MS + 500) * 1000);
	aftermath(h, &l, &r);
}

static void sleeper(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h->idle = true;
	h_sync(h);
	h_hear_u64(h, 1);
}

/* The victim serves, operations come and go; it dies in the middle. */
static void kill_server(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	int64_t t, end;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	h_sync(h);
	for (end = h_now_us() + 30000; h_now_us() < end;) {
		if (h->pending < ROUNDS)
			post(h, &l, &r, h->param);
		h_progress(h);
	}
	h_kill(h, 0, SIGKILL);
	t = h_now_us();
	h_lost_within(h, h->ep[0], t, DEATH_MS);
	h_settle(h);
	h_record(h, "all_completed_us", (uint64_t)(h_now_us() - t));
	aftermath(h, &l, &r);
}

static void server(struct h *h)
{
	struct h_mem m;
	uint8_t *buf = h_buf(h, LEN);

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
	for (;;) { /* until killed: takes what is sent, sends what is received */
		if (h->pending < 8) {
			if (h->param == RECV)
				h_send(h, h->ep[1], buf, LEN, 1);
			else
				h_recv(h, NULL, buf, LEN, 1, UINT64_MAX);
		}
		h_breathe(h);
		h->nqueue = 0;
	}
}

/* Statuses one by one, for a victim that sleeps: all lost, none closed, cancelled or truncated. */
static void statuses(struct h *h)
{
	static const enum doing what[] = {PUT, GET, SEND_LARGE, RECV, ATOMIC, FLUSH};
	enum { KINDS = sizeof(what) / sizeof(what[0]) };
	struct h_op *op[KINDS][4];
	struct h_mem l;
	struct h_rkey r;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	h_sync(h);
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < KINDS; k++)
			op[k][i] = post(h, &l, &r, what[k]);
	h_kill(h, 0, SIGKILL);
	h_settle(h);
	for (int k = 0; k < KINDS; k++)
		count_statuses(h, op[k], 4, must_be_lost(h, &r, what[k]));
}

/* A receive from any peer outlives the loss of one. */
static void any_source_stays(struct h *h)
{
	uint64_t a = 0;
	struct h_op *any;
	int64_t t;

	h_mesh(h, NULL);
	h_import(h, 0);
	any = h_recv(h, NULL, &a, sizeof(a), 9, UINT64_MAX);
	h_sync(h);
	h_kill(h, 0, SIGKILL);
	t = h_now_us();
	h_lost_within(h, h->ep[0], t, DEATH_MS);
	h_run_for(h, 100);
	H_CHECK(!any->done, "completed with %s", xport_status_name(any->c.status));
	H_OK(xport_cancel(h->x, any->id));
	H_DONE_AS(XPORT_ERR_CANCELED, any);
}

/* A message that is half here when its sender dies completes its receive as lost, from any source or not. */
static void half_message(struct h *h)
{
	struct h_op *op;
	uint8_t *buf = h_buf(h, 64 << 20);
	int64_t end;

	h_mesh(h, NULL);
	op = h_recv(h, h->param ? h->ep[0] : NULL, buf, 64 << 20, 1, UINT64_MAX);
	h_hear_u64(h, 0);
	end = h_now_us() + (int64_t)h_ms(5000) * 1000;
	while (h_now_us() < end && !op->done && buf[0] == 0)
		h_progress(h);
	H_CHECK(buf[0] == 1 && !op->done, "the message did not begin, or ended");
	h_kill(h, 0, SIGKILL);
	H_DONE_AS(XPORT_ERR_PEER_LOST, op);
	h_run_for(h, 50);
}

static void half_sender(struct h *h)
{
	uint8_t *buf = h_buf(h, 64 << 20);

	memset(buf, 1, 64 << 20);
	h_mesh(h, NULL);
	h_send(h, h->ep[1], buf, 64 << 20, 1);
	h_tell_u64(h, 1, 1);
	h_sync(h);
}

static const struct h_param any_or_one[] = {{"from_any", 0}, {"from_one", 1}, {NULL, 0}};

/* The peer ends without closing anything, or aborts. */
static void see_exit(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	int64_t t;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	for (int i = 0; i < 4; i++)
		post(h, &l, &r, RECV);
	h_tell_u64(h, 0, 1);
	t = h_now_us();
	h_lost_within(h, h->ep[0], t, DEATH_MS + 500);
	h_settle(h);
	aftermath(h, &l, &r);
}

static void exiting(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_hear_u64(h, 1);
	h_exit(h, h->param);
}

static const struct h_param exits[] = {{"exit", 0}, {"abort", 1}, {NULL, 0}};

/* A forked child that lives on holds the dead one's sockets open; that must not hide the death. */
static void forker(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h->idle = true;
	h_sync(h);
	if (fork() == 0) {
		sleep((unsigned)h_ms(5));
		_exit(0);
	}
	h_tell_u64(h, 1, 1);
	h_hear_u64(h, 1);
}

static void kill_forker(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct h_mem l;
	struct h_rkey r;
	int64_t t;

	a.peer_timeout_ms = h_ms(5000); /* silence would tell much later */
	h_mesh(h, &a);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	h_sync(h);
	h_hear_u64(h, 0);
	for (int i = 0; i < 4; i++)
		post(h, &l, &r, GET);
	h_kill(h, 0, SIGKILL);
	t = h_now_us();
	h_record(h, "lost_us", (uint64_t)h_lost_within(h, h->ep[0], t, DEATH_MS));
	h_settle(h);
	aftermath(h, &l, &r);
}

/* The peer says goodbye, is not heard, and dies, before it has taken the last that is sent to it. */
static void dies_closing(struct h *h)
{
	h_mesh(h, NULL);
	h_sync(h);
	xport_ep_close(h->ep[1], -1);
	h_fail(h, __FILE__, __LINE__, "closing ended", "the peer took no part");
}

static void lost_behind_goodbye(struct h *h)
{
	uint64_t word = 1;
	int64_t t;

	h_mesh(h, NULL);
	h->idle = true;
	h_sync(h);
	usleep(100000); /* its goodbye is here */
	h_kill(h, 0, SIGKILL);
	H_OK(xport_send(h->ep[0], &word, sizeof(word), 1, NULL));
	t = h_now_us();
	H_STATUS(XPORT_ERR_PEER_LOST, xport_ep_close(h->ep[0], -1));
	t = h_now_us() - t;
	H_CHECK(t < (int64_t)h_ms(DEATH_MS) * 1000, "after %" PRId64 " us", t);
}

const struct h_scenario cases_p05[] = {
	{.name = "P5_killed_while_asleep",
         .role = {sleeper, kill_sleeper},
         .params = doings,
         .flags = H_TARGET | H_KILLS},
	{.name = "P5_killed_while_serving",
         .role = {server, kill_server},
         .params = doings,
         .flags = H_TARGET | H_KILLS},
	{.name = "P5_everything_is_peer_lost", .role = {sleeper, statuses}, .flags = H_TARGET | H_KILLS},
	{.name = "P5_lost_behind_its_goodbye", .role = {dies_closing, lost_behind_goodbye}, .flags = H_KILLS},
	{.name = "P5_receive_from_any_stays", .role = {sleeper, any_source_stays}, .flags = H_KILLS},
	{.name = "P5_half_a_message", .role = {half_sender, half_message}, .params = any_or_one, .flags = H_KILLS},
	{.name = "P5_peer_ends_without_closing", .role = {exiting, see_exit}, .params = exits, .flags = H_KILLS},
	{.name = "P5_killed_but_child_holds_sockets", .role = {forker, kill_forker}, .flags = H_TARGET | H_KILLS},
	{.name = NULL},
};
