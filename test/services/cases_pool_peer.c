/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_pool_peer.c - blocks of a pool between two processes. */
#include "conform/harness.h"
#include "services/services.h"
#include "services/xport_services.h"

enum { BLOCKS = 200, LEN = 5000 };

/* A region's key, and where the blocks are in it. */
struct told {
	struct h_key key;
	uint64_t offset[BLOCKS];
	uint64_t n;
};

static xport_pool *make(struct h *h, uint32_t rights)
{
	struct xport_pool_attr a = {.size = sizeof(a), .rights = rights};
	xport_pool *p = NULL;

	H_OK(xport_pool_create(h->x, &a, &p));
	return p;
}

static struct h_key pack(struct h *h, xport_mr *mr)
{
	struct h_key k = {.len = sizeof(k.bytes)};

	H_OK(xport_rkey_pack(mr, k.bytes, &k.len));
	return k;
}

/* ---- one key for many blocks ---- */

static void one_key_target(struct h *h)
{
	struct xport_block b[BLOCKS];
	struct told t = {0};
	xport_pool *p;

	h_mesh(h, NULL);
	p = make(h, H_ALL);
	for (int i = 0; i < BLOCKS; i++) {
		H_OK(xport_pool_alloc(p, LEN, 0, &b[i]));
		H_TRUE(b[i].mr == b[0].mr);
		memset(b[i].address, 0, LEN);
		t.offset[t.n++] = b[i].offset;
	}
	t.key = pack(h, b[0].mr);
	h_tell(h, 1, &t, sizeof(t));
	h_sync(h);
	for (int i = 0; i < BLOCKS; i++)
		H_FILLED(b[i].address, LEN, (uint64_t)i);
	h_sync(h);
	for (int i = 0; i < BLOCKS; i++)
		H_OK(xport_pool_free(p, b[i].address));
	H_OK(xport_pool_destroy(p));
	h_sync(h);
}

static void post(struct h *h, xport_rkey *k, const struct xport_block *b, uint64_t offset, struct h_op *op)
{
	struct xport_opt o = {.size = sizeof(o), .context = op, .mr = b->mr};
	int r;

	while ((r = op->type == XPORT_OP_PUT ? xport_put(h->ep[0], b->address, LEN, k, offset, &o)
	                                     : xport_get(h->ep[0], b->address, LEN, k, offset, &o)) == XPORT_ERR_AGAIN)
		h_progress(h);
	H_OK(r);
}

/*
 * Each block is held for its put and freed at once, so that quarantine alone keeps the next one from overwriting
 * it.  On shared memory the pool's slabs are mapped by the peer: put and get are copies.
 */
static void one_key_initiator(struct h *h)
{
	struct xport_rkey_info info = {.size = sizeof(info)};
	struct xport_pool_info pi = {.size = sizeof(pi)};
	struct xport_block b[BLOCKS];
	struct h_op *op[BLOCKS];
	struct told t;
	xport_rkey *k;
	xport_pool *p;

	h_mesh(h, NULL);
	p = make(h, 0);
	h_hear(h, 0, &t, sizeof(t));
	H_OK(xport_rkey_unpack(h->ep[0], t.key.bytes, t.key.len, &k));
	for (int i = 0; i < BLOCKS; i++) {
		H_OK(xport_pool_alloc(p, LEN, 0, &b[i]));
		h_fill(b[i].address, LEN, (uint64_t)i);
		H_OK(xport_pool_hold(p, b[i].address));
		op[i] = h_op(h, XPORT_OP_PUT);
		post(h, k, &b[i], t.offset[i], op[i]);
		H_OK(xport_pool_free(p, b[i].address));
	}
	for (int i = 0; i < BLOCKS; i++) {
		H_DONE(op[i]);
		H_OK(xport_pool_release(p, b[i].address));
	}
	H_OK(xport_pool_query(p, &pi));
	H_EQ(0, pi.quarantined);
	H_EQ(0, pi.in_use);
	h_sync(h);
	H_OK(xport_pool_alloc(p, LEN, 0, &b[0]));
	for (int i = 0; i < BLOCKS; i++) {
		op[0] = h_op(h, XPORT_OP_GET);
		post(h, k, &b[0], t.offset[i], op[0]);
		H_DONE(op[0]);
		H_FILLED(b[0].address, LEN, (uint64_t)i);
	}
	H_OK(xport_rkey_query(k, &info));
	if (strcmp(h->info.backend, "ucx") == 0 && strcmp(h->info.provider, "shm") == 0)
		H_EQ(1, info.direct);
	h_record(h, "direct", (uint64_t)info.direct);
	h_sync(h);
	h_sync(h);
	/* The pool is gone, and its keys with it. */
	op[0] = h_op(h, XPORT_OP_GET);
	{
		struct xport_opt o = {.size = sizeof(o), .context = op[0], .mr = b[0].mr};
		int r = xport_get(h->ep[0], b[0].address, LEN, k, t.offset[0], &o);

		if (r == XPORT_OK) {
			H_DONE_AS(XPORT_ERR_STALE_KEY, op[0]);
		} else {
			H_EQ(XPORT_ERR_STALE_KEY, r);
			h_op_drop(h, op[0]);
		}
	}
	xport_rkey_destroy(k);
	H_OK(xport_pool_destroy(p));
}

/* ---- the peer dies while blocks are in quarantine ---- */

static void death_target(struct h *h)
{
	struct told t = {0};
	struct xport_block b;
	xport_pool *p;

	h_mesh(h, NULL);
	p = make(h, H_ALL);
	H_OK(xport_pool_alloc(p, LEN, 0, &b));
	t.offset[0] = b.offset;
	t.key = pack(h, b.mr);
	h_tell(h, 1, &t, sizeof(t));
	h->idle = true;
	h_hear_u64(h, 1); /* is killed here */
}

static void death_initiator(struct h *h)
{
	struct xport_pool_info pi = {.size = sizeof(pi)};
	struct xport_block b[20];
	struct h_op *op[20];
	struct told t;
	xport_rkey *k;
	xport_pool *p;

	h_mesh(h, NULL);
	p = make(h, 0);
	h_hear(h, 0, &t, sizeof(t));
	H_OK(xport_rkey_unpack(h->ep[0], t.key.bytes, t.key.len, &k));
	h_stop(h, 0);
	for (int i = 0; i < 20; i++) {
		H_OK(xport_pool_alloc(p, LEN, 0, &b[i]));
		H_OK(xport_pool_hold(p, b[i].address));
		op[i] = h_op(h, XPORT_OP_PUT);
		post(h, k, &b[i], t.offset[0], op[i]);
		H_OK(xport_pool_free(p, b[i].address));
	}
	h_kill(h, 0, SIGKILL);
	for (int i = 0; i < 20; i++) {
		H_ENDED(op[i]);
		H_OK(xport_pool_release(p, b[i].address));
	}
	H_OK(xport_pool_query(p, &pi));
	H_EQ(0, pi.quarantined);
	H_EQ(0, pi.in_use);
	xport_rkey_destroy(k);
	H_OK(xport_pool_destroy(p));
}

const struct h_scenario svc_cases_pool_peer[] = {
	{"pool_one_key", {one_key_target, one_key_initiator}, NULL, 0, 0},
	{"pool_peer_dies", {death_target, death_initiator}, NULL, H_KILLS, 0},
	{0},
};
