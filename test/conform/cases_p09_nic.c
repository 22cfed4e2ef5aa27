/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cases_p09_nic.c - P9 on regions with XPORT_ATOMIC_NIC: the same few atomics on every network, atomic among themselves,
 * whether an adapter carries them or messages do.
 */
#include "harness.h"

enum { LEN = 4096, ROUNDS = 1000, LOCK = 64, COUNT = 128, SUM = 192, NIC = H_ALL | XPORT_ATOMIC_NIC };

static struct h_mem share_with_all(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, NIC);
	for (int i = 1; i < h->nroles; i++)
		h_share(h, i, &m);
	return m;
}

/* The region is touched where it should be and nowhere else. */
static void target(struct h *h)
{
	struct h_mem m = share_with_all(h);

	h_sync(h);
	H_BYTES(m.p, LEN, 0);
	H_GUARDS(m);
}

/* ---- what there is, and what not ---- */

static void few(struct h *h)
{
	struct xport_atomic_args a = {.size = sizeof(a)};
	struct xport_rkey_info key = {.size = sizeof(key)};
	struct h_rkey r;

	h_mesh(h, NULL);
	r = h_import(h, 0);
	for (a.width = 4; a.width <= 8; a.width += 4)
		for (a.op = XPORT_ATOMIC_ADD; a.op <= XPORT_ATOMIC_CAS; a.op++)
			if (a.width == 4 || (a.op != XPORT_ATOMIC_ADD && a.op != XPORT_ATOMIC_CAS))
				H_STATUS(XPORT_ERR_NOT_SUPPORTED, xport_atomic(h->ep[0], &a, r.k, r.offset, NULL));
	a.op = XPORT_ATOMIC_ADD;
	a.width = 8;
	for (uint64_t i = 1; i < 8; i++)
		H_STATUS(XPORT_ERR_INVALID, xport_atomic(h->ep[0], &a, r.k, r.offset + i, NULL));
	H_STATUS(XPORT_ERR_BOUNDS, xport_atomic(h->ep[0], &a, r.k, UINT64_MAX - 7, NULL));
	h_run_for(h, 10);
	H_EQ(0, h->nqueue);
	H_OK(xport_rkey_query(r.k, &key));
	H_EQ(NIC, key.rights);
	H_EQ(h->info.nic_atomic, key.atomic);
	h_sync(h);
}

/* Not without the right to do atomics at all; and without it only, puts are refused as ever. */
static void rights(struct h *h)
{
	xport_mr *mr;

	h_open(h, NULL);
	H_STATUS(XPORT_ERR_INVALID, xport_mr_alloc(h->x, LEN, XPORT_ATOMIC_NIC, &mr));
	H_STATUS(XPORT_ERR_INVALID, xport_mr_alloc(h->x, LEN, XPORT_ATOMIC_NIC | XPORT_REMOTE_WRITE, &mr));
	H_OK(xport_mr_alloc(h->x, LEN, XPORT_ATOMIC_NIC | XPORT_REMOTE_ATOMIC, &mr));
	xport_mr_dereg(mr);
}

/* ---- atomic among themselves ---- */

static void summed_target(struct h *h)
{
	struct h_mem m = share_with_all(h);
	uint64_t n = (uint64_t)(h->nroles - 1) * ROUNDS, ticket[ROUNDS];
	uint8_t *seen = h_buf(h, n);

	h_sync(h);
	for (int k = 1; k < h->nroles; k++) {
		H_EQ(sizeof(ticket), h_hear(h, k, ticket, sizeof(ticket)));
		for (int i = 0; i < ROUNDS; i++) {
			H_TRUE(ticket[i] < n);
			seen[ticket[i]]++;
		}
	}
	H_BYTES(seen, n, 1);
	H_EQ(n, *(uint64_t *)m.p);
	H_EQ(2 * n, *(uint64_t *)(m.p + SUM));
	H_GUARDS(m);
	h_sync(h);
}

/* Tickets from one word, and sums in another: with a completion, and quietly. */
static void summed(struct h *h)
{
	struct xport_opt quiet = {.size = sizeof(quiet), .flags = XPORT_QUIET};
	struct xport_atomic_args one = {.size = sizeof(one), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1};
	uint64_t ticket[ROUNDS];
	struct h_rkey r;
	int s;

	h_mesh(h, NULL);
	r = h_import(h, 0);
	h_sync(h);
	for (int i = 0; i < ROUNDS; i++) {
		h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 1, 0, &ticket[i], &r, 0);
		h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 1, 0, NULL, &r, SUM);
		while ((s = xport_atomic(h->ep[0], &one, r.k, r.offset + SUM, &quiet)) != XPORT_OK) {
			H_STATUS(XPORT_ERR_AGAIN, s);
			h_breathe(h);
		}
		if (i % 50 == 49)
			h_settle(h);
	}
	H_DONE(h_flush(h, h->ep[0]));
	h_settle(h);
	h_tell(h, 0, ticket, sizeof(ticket));
	h_sync(h);
}

/* A lock of compare-and-swap, given back by it as well, guards a count that is read and written by get and put. */
static void locker(struct h *h)
{
	uint64_t me = (uint64_t)h->role, old, *count;
	struct h_rkey r;
	struct h_mem l;

	h_mesh(h, NULL);
	l = h_mem_local(h, 64, 0);
	count = (uint64_t *)l.p;
	r = h_import(h, 0);
	h_sync(h);
	for (int i = 0; i < 100; i++) {
		do
			H_DONE(h_atomic(h, h->ep[0], XPORT_ATOMIC_CAS, 8, me, 0, &old, &r, LOCK));
		while (old != 0);
		H_DONE(h_get(h, h->ep[0], H_AT(l, 0, 8), &r, COUNT));
		++*count;
		H_DONE(h_put(h, h->ep[0], H_AT(l, 0, 8), &r, COUNT, 0));
		H_DONE(h_atomic(h, h->ep[0], XPORT_ATOMIC_CAS, 8, 0, me, &old, &r, LOCK));
		H_EQ(me, old);
	}
	h_sync(h);
}

static void locked(struct h *h)
{
	struct h_mem m = share_with_all(h);

	h_sync(h);
	h_sync(h);
	H_EQ(100 * (h->nroles - 1), *(uint64_t *)(m.p + COUNT));
	H_EQ(0, *(uint64_t *)(m.p + LOCK));
	H_GUARDS(m);
}

/* ---- order ---- */

static void flushed_target(struct h *h)
{
	struct h_mem m = share_with_all(h);
	uint64_t want;

	while ((want = h_hear_u64(h, 1)) != 0) {
		H_EQ(want, __atomic_load_n((uint64_t *)m.p, __ATOMIC_ACQUIRE));
		h_tell_u64(h, 1, 1);
	}
}

/* A flush covers quiet ones; a fence holds what follows back until they are done, and them until what was before is. */
static void flushed(struct h *h)
{
	struct xport_opt quiet = {.size = sizeof(quiet), .flags = XPORT_QUIET};
	struct xport_atomic_args one = {.size = sizeof(one), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1};
	uint64_t sum = 0, old;
	struct h_rkey r;
	struct h_mem l;
	int s;

	h_mesh(h, NULL);
	l = h_mem_local(h, 64, 0);
	r = h_import(h, 0);
	for (int round = 1; round <= 20; round++) {
		for (int i = 0; i < 40; i++, sum++)
			while ((s = xport_atomic(h->ep[0], &one, r.k, r.offset, &quiet)) != XPORT_OK) {
				H_STATUS(XPORT_ERR_AGAIN, s);
				h_breathe(h);
			}
		H_DONE(h_flush(h, h->ep[0]));
		h_tell_u64(h, 0, sum);
		h_hear_u64(h, 0);
		H_OK(xport_atomic(h->ep[0], &one, r.k, r.offset, &quiet));
		sum++;
		H_OK(xport_fence(h->ep[0]));
		H_DONE(h_get(h, h->ep[0], H_AT(l, 0, 8), &r, 0));
		H_CHECK(!memcmp(l.p, &sum, 8), "the get behind a fence does not see the atomic before it");
		h_put(h, h->ep[0], H_AT(l, 0, 8), &r, 8, 0);
		H_OK(xport_fence(h->ep[0]));
		H_DONE(h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 7, 0, &old, &r, 8));
		H_EQ(sum, old);
	}
	h_tell_u64(h, 0, 0);
}

/* ---- keys that come and go ---- */

static void fleeting_target(struct h *h)
{
	h_mesh(h, NULL);
	for (int i = 0; i < 20; i++) {
		struct h_mem m = h_mem_target(h, LEN, 0, NIC);

		h_share(h, 1, &m);
		h_hear_u64(h, 1);
		H_EQ(3, *(uint64_t *)m.p);
		h_mem_free(h, &m);
		h_tell_u64(h, 1, 1);
	}
}

/* The first that is asked of a key, before anything else, is an atomic; and when the region is gone no atomic hangs. */
static void fleeting(struct h *h)
{
	uint64_t old[3];

	h_mesh(h, NULL);
	for (int i = 0; i < 20; i++) {
		struct h_rkey r = h_import(h, 0);
		struct xport_atomic_args a = {.size = sizeof(a), .width = 8};
		int s;

		for (uint64_t k = 0; k < 3; k++)
			h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 1, 0, &old[k], &r, 0);
		h_settle(h);
		H_EQ(3, old[0] + old[1] + old[2]);
		h_tell_u64(h, 0, 1);
		h_hear_u64(h, 0);
		s = xport_atomic(h->ep[0], &a, r.k, r.offset, NULL);
		if (s == XPORT_OK)
			s = H_EVENT(XPORT_OP_ATOMIC).status;
		H_EQ(XPORT_ERR_STALE_KEY, s);
		xport_rkey_destroy(r.k);
	}
}

static void late_target(struct h *h)
{
	struct h_mem m;
	struct h_key key;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, NIC);
	key = h_key_pack(h, &m);
	h_mem_free(h, &m);
	h_tell(h, 1, &key, sizeof(key));
	h_sync(h);
}

/* A key whose region ended before it was unpacked: its owner is asked, and says so. */
static void late(struct h *h)
{
	struct h_key key;
	struct h_rkey r;
	uint64_t old = 7;

	h_mesh(h, NULL);
	H_EQ(sizeof(key), h_hear(h, 0, &key, sizeof(key)));
	r = h_unpack(h, h->ep[0], &key);
	H_DONE_AS(XPORT_ERR_STALE_KEY, h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 1, 0, &old, &r, 0));
	H_EQ(7, old);
	h_sync(h);
}

/* ---- the target, motionless or dead ---- */

static void motionless(struct h *h)
{
	struct h_mem m = share_with_all(h);

	h_hear_u64(h, 1);
	h->idle = true;
	h_tell_u64(h, 1, 1);
	h_hear_u64(h, 1);
	h->idle = false;
	H_EQ(101, *(uint64_t *)m.p);
	h_sync(h);
}

/* Where an adapter carries them, the target need not call anything. */
static void mover(struct h *h)
{
	struct h_rkey r;
	uint64_t old;

	h_mesh(h, NULL);
	if (h->info.nic_atomic != XPORT_NATIVE)
		h_skip(h, "nic_atomic is absent: the core carries atomics");
	r = h_import(h, 0);
	H_DONE(h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 1, 0, &old, &r, 0));
	h_tell_u64(h, 0, 1);
	h_hear_u64(h, 0);
	usleep(20000); /* the target has stopped */
	for (uint64_t i = 1; i <= 100; i++) {
		H_DONE(h_atomic(h, h->ep[0], XPORT_ATOMIC_CAS, 8, i + 1, i, &old, &r, 0));
		H_EQ(i, old);
	}
	h_tell_u64(h, 0, 1);
	h_sync(h);
}

static void victim(struct h *h)
{
	share_with_all(h);
	h_sync(h);
	for (;;)
		h_breathe(h);
}

/* Each ends once, and what is not known to be done is not reported as done. */
static void survivor(struct h *h)
{
	uint64_t old[64], done = 0;
	struct h_op *op[64];
	struct h_rkey r;

	h_mesh(h, NULL);
	r = h_import(h, 0);
	h_sync(h);
	for (int i = 0; i < 64; i++) {
		old[i] = UINT64_MAX;
		if (i == 32)
			h_kill(h, 0, SIGKILL);
		op[i] = h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 1, 0, &old[i], &r, 0);
	}
	h_settle(h);
	for (int i = 0; i < 64; i++) {
		H_EQ(1, op[i]->done);
		if (op[i]->c.status == XPORT_OK)
			done++;
		else
			H_EQ(XPORT_ERR_PEER_LOST, op[i]->c.status);
		H_TRUE((old[i] == UINT64_MAX) == (op[i]->c.status != XPORT_OK));
	}
	H_EVENT(XPORT_EVENT_LOST);
	h_record(h, "done", done);
}

const struct h_scenario cases_p09_nic[] = {
	{.name = "P9_nic_adds_and_compares_alone", .role = {target, few}, .flags = H_TARGET},
	{.name = "P9_nic_goes_with_the_right", .role = {rights}},
	{.name = "P9_nic_exact_sum_and_tickets", .role = {summed_target, summed, summed, summed}, .flags = H_TARGET},
	{.name = "P9_nic_lock", .role = {locked, locker, locker}, .flags = H_TARGET},
	{.name = "P9_nic_flush_and_fence", .role = {flushed_target, flushed}, .flags = H_TARGET},
	{.name = "P9_nic_keys_come_and_go", .role = {fleeting_target, fleeting}, .flags = H_TARGET},
	{.name = "P9_nic_key_came_late", .role = {late_target, late}, .flags = H_TARGET},
	{.name = "P9_nic_passive_target", .role = {motionless, mover}, .flags = H_TARGET},
	{.name = "P9_nic_peer_dies", .role = {victim, survivor}, .flags = H_KILLS},
	{.name = NULL},
};
