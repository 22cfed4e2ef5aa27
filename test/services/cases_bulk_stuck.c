/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_bulk_stuck.c - an owner that makes no progress, beside one that does. */
#include "services/bulk_user.h"

enum { BUDGET = 65536, TINY_BYTES = 100000 };
enum { PLAIN, TINY, CANCEL, FORGET };

/* Pieces of one byte: many operations with few bytes. */
static void own_tiny(struct bulk_owner *o, struct h *h)
{
	struct xport_bulk_attr a = {.size = sizeof(a), .rights = XPORT_REMOTE_READ};
	struct xport_bulk_run run;

	bulk_own_plain(o, h, XPORT_REMOTE_READ, 0);
	xport_bulk_free(o->bulk);
	run = o->run[0];
	run.length = 1;
	run.stride = 2;
	run.count = TINY_BYTES;
	H_OK(xport_bulk_create(h->x, &run, 1, &a, &o->bulk));
}

/* Role 0 makes no progress, role 1 does. */
static void deaf_or_not(struct h *h)
{
	struct bulk_owner o;

	h_mesh(h, NULL);
	if (h->role == 0 && h->param == TINY)
		own_tiny(&o, h);
	else
		bulk_own_plain(&o, h, XPORT_REMOTE_READ, 0);
	bulk_tell(h, 2, o.bulk);
	h_hear_u64(h, 2);
	h->idle = h->role == 0;
	h_tell_u64(h, 2, 1);
	h_hear_u64(h, 2);
	h->idle = false;
	h_hear_u64(h, 2);
	bulk_disown(&o);
	h_sync(h);
}

/* Hears the descriptors; then role 0 makes no more progress. */
static void both_owners(struct bulk_user *u, xport_bulk *bulk[2], uint8_t *to[2])
{
	struct h *h = u->h;

	for (int i = 0; i < 2; i++) {
		to[i] = h_buf(h, BULK_LARGE);
		bulk[i] = bulk_hear(u, i);
		h_tell_u64(h, i, 1);
		while (!h_heard(h, i))
			bulk_turn(u);
		h_hear_u64(h, i);
	}
}

/* The end of both owners and of the user. */
static void go_on(struct bulk_user *u, xport_bulk *bulk[2])
{
	struct h *h = u->h;

	for (int i = 0; i < 2; i++) {
		xport_bulk_free(bulk[i]);
		h_tell_u64(h, i, 1);
	}
	bulk_end(u);
	h_sync(h);
}

/* What waits for the owner without progress does not hold up the transfers of the other one. */
static void apart(struct h *h)
{
	struct xport_bulks_attr attr = {.size = sizeof(attr), .max_in_flight = 4 * BUDGET};
	struct bulk_user u;
	xport_bulk *bulk[2];
	uint8_t *to[2];
	int other = 0;

	bulk_begin(&u, h, &attr);
	both_owners(&u, bulk, to);
	for (int i = 0; i < 8; i++)
		bulk_pull(&u, bulk[0], 0, to[0], BULK_LARGE);
	bulk_pull(&u, bulk[1], 0, to[1], BULK_LARGE);
	while (BULK_DONE(&u, XPORT_OK).context != to[1])
		other++;
	if (h->config->emulate)
		H_EQ(0, other);
	H_FILLED(to[1], BULK_LARGE, 2);
	for (int i = 0; i < 2; i++)
		h_tell_u64(h, i, 1);
	for (; other < 8; other++)
		BULK_DONE(&u, XPORT_OK);
	go_on(&u, bulk);
}

/* The operations of tiny pieces do not take all places from the other owner. */
static void tiny(struct h *h)
{
	struct bulk_user u;
	xport_bulk *bulk[2];
	uint8_t *to[2];
	bool other;

	bulk_begin(&u, h, NULL);
	both_owners(&u, bulk, to);
	bulk_pull(&u, bulk[0], 0, to[0], TINY_BYTES);
	bulk_pull(&u, bulk[1], 0, to[1], 100);
	other = BULK_DONE(&u, XPORT_OK).context == to[0];
	if (h->config->emulate)
		H_TRUE(!other);
	for (int i = 0; i < 2; i++)
		h_tell_u64(h, i, 1);
	H_TRUE(BULK_DONE(&u, XPORT_OK).context == to[other]);
	H_FILLED(to[1], 100, 2);
	go_on(&u, bulk);
}

/*
 * Most of the budget is in flight. The next transfer does not fit, and holds up a small one. When it is cancelled, or its
 * endpoint is forgotten, the small one is posted at once, and the application is told to take the event.
 */
static void goes_on(struct h *h)
{
	struct xport_bulks_attr attr = {.size = sizeof(attr), .max_in_flight = BUDGET, .max_per_peer = BUDGET};
	const int status = h->param == CANCEL ? XPORT_ERR_CANCELED : XPORT_ERR_CLOSED;
	struct bulk_user u;
	xport_bulk *bulk[2];
	uint8_t *to[2];
	uint64_t id;

	bulk_begin(&u, h, &attr);
	both_owners(&u, bulk, to);
	bulk_pull(&u, bulk[0], 0, to[0], BUDGET / 4 * 3);
	id = bulk_pull(&u, bulk[1], 0, to[1], BUDGET / 2);
	bulk_pull(&u, bulk[0], 0, to[0] + BUDGET, 100);
	H_EQ(BUDGET / 4 * 3, bulks_info(&u).in_flight);
	H_EQ(2, bulks_info(&u).waiting);
	H_TRUE(xport_bulks_timeout(u.b) != 0);
	if (h->param == CANCEL)
		H_OK(xport_bulk_cancel(u.b, id));
	else
		xport_bulks_forget(u.b, h->ep[1]);
	H_EQ(0, bulks_info(&u).waiting);
	H_EQ(BUDGET / 4 * 3 + 100, bulks_info(&u).in_flight);
	H_EQ(0, xport_bulks_timeout(u.b));
	H_TRUE(BULK_DONE(&u, status).context == to[1]);
	H_TRUE(xport_bulks_timeout(u.b) != 0);
	for (int i = 0; i < 2; i++)
		h_tell_u64(h, i, 1);
	BULK_DONE(&u, XPORT_OK);
	BULK_DONE(&u, XPORT_OK);
	H_FILLED(to[0] + BUDGET, 100, 2);
	go_on(&u, bulk);
}

static const struct h_param ends[] = {{"cancel", CANCEL}, {"forget", FORGET}, {NULL, 0}};
static const struct h_param tiny_pieces[] = {{"tiny_pieces", TINY}, {NULL, 0}};

const struct h_scenario svc_cases_bulk_stuck[] = {
	{.name = "bulk_deaf_owner", .role = {deaf_or_not, deaf_or_not, apart}},
	{.name = "bulk_deaf_owner", .role = {deaf_or_not, deaf_or_not, tiny}, .params = tiny_pieces},
	{.name = "bulk_goes_on", .role = {deaf_or_not, deaf_or_not, goes_on}, .params = ends},
	{.name = NULL},
};
