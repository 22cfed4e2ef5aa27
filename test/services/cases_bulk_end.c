/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_bulk_end.c - transfers that wait their turn, that are cancelled or expire, and whose endpoint or peer ends. */
#include <time.h>

#include "services/bulk_user.h"
#include "services/clock.h"

enum how { USER_CLOSES, OWNER_CLOSES, OWNER_DIES, OWNER_STOPS, OWNER_DEREGISTERS };
enum { MANY = 40, BUDGET = 65536, PULLS = 200, THREADS = 3 };

/* ---- the budget, and turns ---- */

static void owner(struct h *h)
{
	int last = h->nroles == 2 ? 1 : 2;
	struct bulk_owner o;

	h_mesh(h, NULL);
	if (h->role == 1) { /* of three: the last one pulls from both */
		bulk_own(&o, h, XPORT_REMOTE_READ, 0);
	} else {
		bulk_own_plain(&o, h, XPORT_REMOTE_READ | XPORT_REMOTE_WRITE, 0);
	}
	bulk_tell(h, last, o.bulk);
	h_hear_u64(h, last);
	bulk_disown(&o);
	h_sync(h);
}

/* The transfers of a peer end in their order, and never more than the budget is in flight. */
static void in_order(struct h *h)
{
	struct xport_bulks_attr attr = {.size = sizeof(attr), .max_in_flight = BUDGET};
	struct bulk_user u;
	xport_bulk *bulk;
	uint8_t *to;

	bulk_begin(&u, h, &attr);
	to = h_buf(h, BULK_LARGE);
	bulk = bulk_hear(&u, 0);
	for (int i = 0; i < 8; i++)
		bulk_pull(&u, bulk, 0, to + i, BULK_LARGE / 8);
	H_EQ(8, bulks_info(&u).transfers);
	H_TRUE(bulks_info(&u).waiting >= 7 || h->info.get == XPORT_NATIVE);
	for (int i = 0; i < 8; i++)
		H_TRUE(BULK_DONE(&u, XPORT_OK).context == to + i);
	H_EQ(BUDGET, bulks_info(&u).in_flight_max);
	H_EQ(8, bulks_info(&u).done);
	xport_bulk_free(bulk);
	h_tell_u64(h, 0, 1);
	bulk_end(&u);
	h_sync(h);
}

/* A few bytes of one peer do not wait for all of another one. */
static void turns(struct h *h)
{
	struct xport_bulks_attr attr = {.size = sizeof(attr), .max_in_flight = BUDGET};
	struct bulk_user u;
	xport_bulk *bulk[2];
	uint8_t *to;
	int before = 0;

	bulk_begin(&u, h, &attr);
	to = h_buf(h, BULK_LARGE);
	bulk[0] = bulk_hear(&u, 0);
	bulk[1] = bulk_hear(&u, 1);
	for (int i = 0; i < MANY; i++)
		bulk_pull(&u, bulk[0], 0, to, BULK_LARGE);
	bulk_pull(&u, bulk[1], 0, to + 1, 100);
	while (BULK_DONE(&u, XPORT_OK).context != to + 1)
		before++;
	H_CHECK(before <= MANY / 2, "%d of %d transfers came first", before, MANY);
	h_record(h, "came_first", (uint64_t)before);
	for (int i = before; i < MANY; i++)
		BULK_DONE(&u, XPORT_OK);
	for (int i = 0; i < 2; i++) {
		xport_bulk_free(bulk[i]);
		h_tell_u64(h, i, 1);
	}
	bulk_end(&u);
	h_sync(h);
}

/* ---- more than there are places ---- */

static void too_many(struct h *h)
{
	struct xport_bulks_attr attr = {.size = sizeof(attr), .max_transfers = 2};
	struct xport_bulk_args a;
	struct xport_iov iov;
	struct bulk_user u;
	xport_bulk *bulk;
	uint8_t to[16];

	bulk_begin(&u, h, &attr);
	bulk = bulk_hear(&u, 0);
	bulk_pull(&u, bulk, 0, to, 8);
	bulk_pull(&u, bulk, 8, to + 8, 8);
	a = bulk_args(0, to, 8, &iov);
	H_STATUS(XPORT_ERR_AGAIN, xport_bulk_pull(u.b, bulk, &a));
	SVC_ERROR(XPORT_ERR_AGAIN, "xport_bulk_pull", "take events");
	BULK_DONE(&u, XPORT_OK);
	H_OK(xport_bulk_pull(u.b, bulk, &a));
	BULK_DONE(&u, XPORT_OK);
	BULK_DONE(&u, XPORT_OK);
	xport_bulk_free(bulk);
	h_tell_u64(h, 0, 1);
	bulk_end(&u);
	h_sync(h);
}

/* ---- cancel, and the deadline ---- */

static void cancel(struct h *h)
{
	struct xport_bulks_attr attr = {.size = sizeof(attr), .max_in_flight = BUDGET};
	int canceled = 0, released = 0, done = 0;
	uint64_t id[MANY];
	struct bulk_user u;
	xport_bulk *bulk;
	uint8_t *to;

	bulk_begin(&u, h, &attr);
	to = h_buf(h, BULK_LARGE);
	bulk = bulk_hear(&u, 0);
	for (int i = 0; i < MANY; i++)
		id[i] = bulk_pull(&u, bulk, 0, to, BULK_LARGE);
	H_OK(xport_bulk_cancel(u.b, id[MANY - 1])); /* waits, unless all bytes were copied at once */
	H_OK(xport_bulk_cancel(u.b, id[0]));
	H_STATUS(XPORT_ERR_INVALID, xport_bulk_cancel(u.b, id[0]));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_bulk_cancel", "no transfer with this id");
	while (done < MANY || released > 0) {
		struct xport_bulk_event e = {.size = sizeof(e)};

		if (xport_bulks_next(u.b, &e) == 0) {
			bulk_turn(&u);
			continue;
		}
		if (e.type == XPORT_BULK_RELEASED) {
			H_TRUE(e.id == id[0]);
			released--;
			continue;
		}
		done++;
		H_TRUE(e.status == XPORT_OK || e.id == id[0] || e.id == id[MANY - 1]);
		canceled += e.status == XPORT_ERR_CANCELED;
		released += !e.released;
	}
	H_EQ(2, canceled);
	H_EQ(0, bulks_info(&u).in_flight);
	xport_bulk_free(bulk);
	h_tell_u64(h, 0, 1);
	bulk_end(&u);
	h_sync(h);
}

/* Makes no progress until role 1 asks for it. */
static void deaf_owner(struct h *h)
{
	struct bulk_owner o;

	h_mesh(h, NULL);
	bulk_own(&o, h, XPORT_REMOTE_READ, 0);
	bulk_tell(h, 1, o.bulk);
	h_hear_u64(h, 1);
	h->idle = true;
	h_tell_u64(h, 1, 1);
	h_hear_u64(h, 1);
	h->idle = false;
	h_hear_u64(h, 1);
	bulk_disown(&o);
	h_sync(h);
}

/*
 * The owner makes no progress. If it must, the deadline expires while bytes are in flight. What libxport carries is
 * withdrawn: the memory is free soon. What the network carries is free after the owner has gone on.
 */
static void deadline(struct h *h)
{
	uint8_t *expected, *to;
	struct xport_bulk_event e;
	struct xport_bulk_args a;
	struct xport_iov iov;
	struct bulk_user u;
	xport_bulk *bulk;
	bool withdrawn;
	int64_t began;
	size_t n;

	bulk_begin(&u, h, NULL);
	n = bulk_expected(h, false, &expected);
	to = h_buf(h, n);
	withdrawn = (h->info.deadline_ends & 1u << XPORT_OP_GET) == 0;
	bulk = bulk_hear(&u, 0);
	h_tell_u64(h, 0, 1);
	while (!h_heard(h, 0))
		bulk_turn(&u);
	h_hear_u64(h, 0);
	a = bulk_args(0, to, n, &iov);
	a.deadline_ms = 300;
	began = svc_now_ms();
	H_OK(xport_bulk_pull(u.b, bulk, &a));
	xport_bulk_free(bulk);
	e = BULK_NEXT(&u, XPORT_BULK_DONE);
	if (h->config->emulate)
		H_STATUS(XPORT_ERR_TIMEOUT, e.status);
	h_record(h, "expired", e.status == XPORT_ERR_TIMEOUT);
	if (e.status != XPORT_OK) {
		H_STATUS(XPORT_ERR_TIMEOUT, e.status);
		H_TRUE(svc_now_ms() - began >= 300);
		H_CHECK(strstr(e.why, "deadline") != NULL, "%s", e.why);
		if (!withdrawn) {
			H_EQ(0, e.released);
			H_EQ(1, bulks_info(&u).transfers);
			bulk_turn_for(&u, 50);
			h_tell_u64(h, 0, 1);
		}
		if (!e.released)
			BULK_NEXT(&u, XPORT_BULK_RELEASED);
		H_EQ(0, bulks_info(&u).in_flight);
		if (withdrawn)
			h_tell_u64(h, 0, 1);
	} else {
		H_TRUE(memcmp(to, expected, n) == 0);
		h_tell_u64(h, 0, 1);
	}
	H_EQ(0, bulks_info(&u).transfers);
	h_tell_u64(h, 0, 1);
	bulk_end(&u);
	h_sync(h);
}

/* ---- the end of an endpoint ---- */

static void ending_owner(struct h *h)
{
	struct bulk_owner o;

	h_mesh(h, NULL);
	bulk_own_plain(&o, h, XPORT_REMOTE_READ | XPORT_REMOTE_WRITE, 0);
	bulk_tell(h, 1, o.bulk);
	h_hear_u64(h, 1);
	switch (h->param) {
	case OWNER_CLOSES:
		(void)xport_ep_close(h->ep[1], 0);
		break;
	case OWNER_DEREGISTERS:
		H_OK(xport_mr_dereg(o.large.mr));
		o.large.mr = NULL;
		break;
	case OWNER_DIES:
	case OWNER_STOPS:
		h_run_for(h, h_ms(60000));
		break;
	default:
		break;
	}
	h_hear_u64(h, 1);
	xport_bulk_free(o.bulk);
	h_sync(h);
}

static bool ended_as(enum how how, int status)
{
	switch (how) {
	case USER_CLOSES:
		return status == XPORT_ERR_CLOSED;
	case OWNER_CLOSES:
		return status == XPORT_ERR_PEER_CLOSED;
	case OWNER_DEREGISTERS:
		return status == XPORT_ERR_STALE_KEY;
	default:
		return status == XPORT_ERR_PEER_LOST || status == XPORT_ERR_PEER_CLOSED;
	}
}

static void end_now(struct bulk_user *u)
{
	struct h *h = u->h;

	if (h->param == USER_CLOSES) {
		(void)xport_ep_close(h->ep[0], 0);
		xport_bulks_forget(u->b, h->ep[0]);
	} else if (h->param == OWNER_DIES) {
		h_kill(h, 0, SIGKILL);
	} else if (h->param == OWNER_STOPS) {
		h_stop(h, 0);
	} else {
		h_tell_u64(h, 0, 1);
	}
}

/* Pulls and pushes without a pause, and more of them than fit, until one fails; then each has its one DONE. */
static void ending(struct h *h)
{
	struct xport_bulks_attr attr = {.size = sizeof(attr), .max_in_flight = BUDGET};
	enum how how = (enum how)h->param;
	struct xport_bulk_event e = {.size = sizeof(e)};
	int open = 0, failed = 0, ok = 0;
	struct xport_bulk_args a;
	struct xport_iov iov;
	struct bulk_user u;
	xport_bulk *bulk;
	uint8_t *to;

	bulk_begin(&u, h, &attr);
	to = h_buf(h, BULK_LARGE);
	bulk = bulk_hear(&u, 0);
	a = bulk_args(0, to, BULK_LARGE / 2, &iov);
	for (int64_t until = h_now_us() + (int64_t)h_ms(20000) * 1000; failed == 0;) {
		for (; open < 8; open++)
			H_OK(open % 2 == 0 ? xport_bulk_pull(u.b, bulk, &a) : xport_bulk_push(u.b, bulk, &a));
		bulk_turn(&u);
		if (ok == 0)
			end_now(&u);
		H_TRUE(h_now_us() < until);
		ok++;
		while (xport_bulks_next(u.b, &e) == 1) {
			H_CHECK(e.status == XPORT_OK || ended_as(how, e.status), "%s", xport_status_name(e.status));
			H_EQ(1, e.released);
			failed += e.status != XPORT_OK;
			open--;
		}
	}
	for (; open > 0; open--) {
		e = BULK_NEXT(&u, XPORT_BULK_DONE);
		H_CHECK(e.status == XPORT_OK || ended_as(how, e.status), "%s", xport_status_name(e.status));
	}
	H_EQ(0, bulks_info(&u).transfers);
	H_EQ(0, bulks_info(&u).in_flight);
	H_EQ(0, bulks_info(&u).waiting);
	/* What is started now fails, too, and says why. */
	H_OK(xport_bulk_pull(u.b, bulk, &a));
	e = BULK_NEXT(&u, XPORT_BULK_DONE);
	H_CHECK(ended_as(how, e.status), "%s", xport_status_name(e.status));
	H_TRUE(e.why[0] != '\0');
	xport_bulk_free(bulk);
	if (how == OWNER_STOPS)
		h_kill(h, 0, SIGKILL);
	else if (how != OWNER_DIES)
		h_tell_u64(h, 0, 1);
	if (how == USER_CLOSES)
		h_tell_u64(h, 0, 1);
	bulk_end(&u);
	h_sync(h);
}

static const struct h_param closes[] = {
	{"user_closes", USER_CLOSES}, {"owner_closes", OWNER_CLOSES}, {"deregistered", OWNER_DEREGISTERS}, {NULL, 0}};
static const struct h_param dies[] = {{"killed", OWNER_DIES}, {"stopped", OWNER_STOPS}, {NULL, 0}};

/* ---- another run of the owner ---- */

static void restarting_owner(struct h *h)
{
	struct bulk_owner o;

	h_open(h, NULL);
	h_listen(h);
	bulk_own_plain(&o, h, XPORT_REMOTE_READ, 0);
	h_tell(h, 1, h->address, sizeof(h->address));
	bulk_tell(h, 1, o.bulk);
	h->ep[1] = h_accept(h);
	h_hear_u64(h, 1);
	bulk_disown(&o);
	h_sync(h);
}

/* The descriptor of the first run is refused in the second, by name of the reason, and nothing is sent. */
static void restarted(struct h *h)
{
	struct bulk_user u = {.h = h};
	char address[80];
	xport_bulk *bulk, *old;

	h_open(h, NULL);
	H_OK(xport_bulks_create(h->x, NULL, &u.b));
	h_hear(h, 0, address, sizeof(address));
	u.len = h_hear(h, 0, u.bytes, sizeof(u.bytes));
	h->ep[0] = h_connect(h, address);
	H_OK(xport_bulk_unpack(h->ep[0], u.bytes, u.len, &old));
	h->idle = true;
	h_kill(h, 0, SIGKILL);
	h_restart(h, 0);
	while (u.gone == 0)
		bulk_turn(&u);
	h_hear(h, 0, address, sizeof(address));
	xport_ep_destroy(h->ep[0]);
	h->ep[0] = h_connect(h, address);
	H_STATUS(XPORT_ERR_STALE_KEY, xport_bulk_unpack(h->ep[0], u.bytes, u.len, &bulk));
	SVC_ERROR(XPORT_ERR_STALE_KEY, "xport_bulk_unpack", "was started again");
	bulk = bulk_hear(&u, 0);
	{
		uint8_t *to = h_buf(h, BULK_LARGE);

		bulk_pull(&u, bulk, 0, to, BULK_LARGE);
		BULK_DONE(&u, XPORT_OK);
		H_FILLED(to, BULK_LARGE, 2);
	}
	xport_bulk_free(old);
	xport_bulk_free(bulk);
	h_tell_u64(h, 0, 1);
	bulk_end(&u);
	h_sync(h);
}

/* ---- destroyed under way, and several threads ---- */

static void destroyed(struct h *h)
{
	struct xport_bulks_attr attr = {.size = sizeof(attr), .max_in_flight = BUDGET};
	struct bulk_user u;
	xport_bulk *bulk;
	uint8_t *to;

	bulk_begin(&u, h, &attr);
	to = h_buf(h, BULK_LARGE);
	bulk = bulk_hear(&u, 0);
	for (int i = 0; i < 8; i++)
		bulk_pull(&u, bulk, 0, to, BULK_LARGE);
	H_STATUS(XPORT_ERR_INVALID, xport_bulks_destroy(u.b, NULL, NULL, -2));
	H_OK(xport_bulks_destroy(u.b, bulk_other, &u, h_ms(10000)));
	H_OK(xport_bulks_create(h->x, NULL, &u.b));
	bulk_pull(&u, bulk, 0, to, BULK_LARGE);
	BULK_DONE(&u, XPORT_OK);
	H_FILLED(to, BULK_LARGE, 2);
	xport_bulk_free(bulk);
	h_tell_u64(h, 0, 1);
	bulk_end(&u);
	h_sync(h);
}

struct puller {
	struct bulk_user *u;
	xport_bulk *bulk;
	pthread_t thread;
	uint8_t to[1000];
	_Atomic int *done;
};

static void *pull_on(void *arg)
{
	struct puller *p = arg;
	struct xport_bulk_event e = {.size = sizeof(e)};
	struct h *h = p->u->h;

	for (int i = 0; i < PULLS; i++)
		bulk_pull(p->u, p->bulk, (uint64_t)i * 1000, p->to, sizeof(p->to));
	while (atomic_load(p->done) < THREADS * PULLS) {
		bulk_turn(p->u);
		while (xport_bulks_next(p->u->b, &e) == 1) {
			H_EQ(XPORT_BULK_DONE, e.type);
			H_OK(e.status);
			atomic_fetch_add(p->done, 1);
		}
	}
	return NULL;
}

static void threads(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct bulk_user u = {.h = h};
	struct puller p[THREADS];
	_Atomic int done = 0;
	xport_bulk *bulk;

	a.thread_mode = XPORT_THREAD_MULTIPLE;
	h_mesh(h, &a);
	H_OK(xport_bulks_create(h->x, NULL, &u.b));
	h->idle = true;
	bulk = bulk_hear(&u, 0);
	for (int i = 0; i < THREADS; i++) {
		p[i] = (struct puller){.u = &u, .bulk = bulk, .done = &done};
		H_EQ(0, pthread_create(&p[i].thread, NULL, pull_on, &p[i]));
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(p[i].thread, NULL);
	H_EQ(THREADS * PULLS, bulks_info(&u).done);
	H_EQ(0, bulks_info(&u).transfers);
	xport_bulk_free(bulk);
	h_tell_u64(h, 0, 1);
	bulk_end(&u);
	h_sync(h);
}

const struct h_scenario svc_cases_bulk_end[] = {
	{.name = "bulk_in_order", .role = {owner, in_order}},
	{.name = "bulk_turns", .role = {owner, owner, turns}},
	{.name = "bulk_too_many", .role = {owner, too_many}},
	{.name = "bulk_cancel", .role = {owner, cancel}},
	{.name = "bulk_deadline", .role = {deaf_owner, deadline}},
	{.name = "bulk_end", .role = {ending_owner, ending}, .params = closes},
	{.name = "bulk_end", .role = {ending_owner, ending}, .params = dies, .flags = H_KILLS},
	{.name = "bulk_restarted_owner", .role = {restarting_owner, restarted}, .flags = H_KILLS},
	{.name = "bulk_destroyed", .role = {owner, destroyed}},
	{.name = "bulk_threads", .role = {owner, threads}},
	{.name = NULL},
};
