/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collective operations. They use endpoints between members whose distance is a power of two, around the ring of ranks:
 *
 *	barrier      dissemination
 *	broadcast    a binomial tree
 *	allgather    short: Bruck's; long: around the ring
 *	allreduce    short: recursive doubling; long: recursive halving and doubling if the number is a power of two, else the
 *	             ring
 *
 * A member's call returns after all messages to this member have arrived. So a member that leaves after an operation does not
 * break it for the others.
 */
#include <stdlib.h>
#include <string.h>

#include "services/clock.h"
#include "services/group.h"
#include "services/last_error.h"

/* Up to these lengths, of all blocks and of the array, the way with fewer messages is faster. */
enum { SHORT_ALL = 32768, SHORT_ARRAY = 16384, KIND_MASK = 0xff, ASK_MS = 100 };

/* ---- posting and waiting ---- */

static uint64_t coll_tag(const struct xport_group *g)
{
	return g->tag | (uint64_t)g->number << 8 | (uint64_t)g->kind;
}

static int coll_post(struct xport_group *g, int rank, bool recv, void *buf, size_t len, int64_t until, const char *op)
{
	struct svc_group_op *o = g->op;
	int r;

	while ((o->busy || o->rank >= 0) && o < g->op + SVC_GROUP_OPS - 1)
		o++;
	for (;;) {
		if (g->failed >= 0)
			return g->status;
		/* Another kind of operation at the other member is noticed, not waited for. */
		r = svc_group_post(g, o, rank, recv, buf, len, coll_tag(g), ~(uint64_t)KIND_MASK);
		if (r != XPORT_ERR_AGAIN)
			break;
		if (until >= 0 && svc_now_ms() >= until)
			break;
		r = svc_group_turn(g, svc_group_left(until, 1), op);
		if (r != XPORT_OK)
			break;
	}
	if (r == XPORT_OK)
		return r;
	svc_group_hear(g, op);
	if (g->failed >= 0)
		return g->status;
	if (r == XPORT_ERR_PEER_CLOSED)
		svc_group_fail(g, rank, r, "rank %d has left the group", rank);
	else
		svc_group_fail(g, rank, r == XPORT_ERR_AGAIN ? XPORT_ERR_TIMEOUT : r, "rank %d cannot be reached: %s",
		               rank, xport_strerror(r));
	return r;
}

/* Looks at an operation that has ended. */
static void coll_check(struct xport_group *g, struct svc_group_op *o)
{
	if (o->status == XPORT_ERR_PEER_CLOSED)
		svc_group_fail(g, o->rank, o->status, "rank %d has left the group", o->rank);
	else if (o->status != XPORT_OK && o->status != XPORT_ERR_TRUNCATED)
		svc_group_fail(g, o->rank, o->status, "rank %d was lost: %s", o->rank, xport_strerror(o->status));
	else if (o->recv && o->tag != coll_tag(g) && o->status == XPORT_OK)
		svc_group_fail(g, o->rank, XPORT_ERR_PROTOCOL,
		               "rank %d called another collective operation than rank %d", o->rank, g->rank);
	else if (o->recv && o->length != o->expected)
		svc_group_fail(g, o->rank, XPORT_ERR_PROTOCOL,
		               "rank %d and rank %d called the same operation with different lengths", o->rank,
		               g->rank);
	o->rank = -1;
}

static int coll_busy(const struct xport_group *g)
{
	int busy = -1;

	for (int i = 0; i < SVC_GROUP_OPS; i++)
		if (g->op[i].busy && (busy < 0 || g->op[i].recv))
			busy = i;
	return busy;
}

static bool news_busy(const struct xport_group *g)
{
	for (int i = 0; i < g->members; i++)
		if (g->member[i].news_out.busy || (g->member[i].state == SVC_MEMBER_OPEN && !g->member[i].told))
			return true;
	return false;
}

/* Ends all operations in progress: their buffers belong to the application again. Bounded, whatever the others do. */
static void coll_abandon(struct xport_group *g, const char *op)
{
	int64_t until = svc_now_ms() + SVC_GROUP_GRACE_MS;

	for (int i = 0; i < SVC_GROUP_OPS; i++)
		if (g->op[i].busy && g->op[i].recv)
			(void)xport_cancel(g->x, g->op[i].id);
	while ((coll_busy(g) >= 0 || news_busy(g)) && svc_now_ms() < until)
		if (svc_group_turn(g, svc_group_left(until, 10), op) != XPORT_OK)
			return;
	for (int i = 0; i < SVC_GROUP_OPS; i++)
		if (g->op[i].busy)
			(void)xport_ep_close(g->member[g->op[i].rank].ep, 0);
	while (coll_busy(g) >= 0)
		if (svc_group_turn(g, SVC_GROUP_SLICE_MS, op) != XPORT_OK)
			return;
}

/* Sends what this member calls to those that it waits for. Returns whether there are any that had not been sent it. */
static bool coll_ask(struct xport_group *g)
{
	bool new = false;

	for (int i = 0; i < SVC_GROUP_OPS; i++) {
		struct svc_group_op *o = &g->op[i];

		if (!o->busy || o->asked)
			continue;
		o->asked = svc_call_ask(g, o->rank);
		new = true;
	}
	return new;
}

/* The time is over. Others may know better who is missing: they are heard for a moment. */
static void coll_late(struct xport_group *g, const char *op)
{
	int64_t until = svc_now_ms() + (coll_ask(g) || !g->certain ? SVC_GROUP_SLICE_MS : 0);
	int i;

	while ((i = coll_busy(g)) >= 0 && g->failed < 0) {
		if (svc_now_ms() >= until) {
			int rank = g->op[i].rank;

			svc_group_fail(g, rank, XPORT_ERR_TIMEOUT,
			               g->certain ? "the time limit expired: rank %d did not call %s"
			                          : "the time limit expired: rank %d sent nothing in %s",
			               rank, op);
			return;
		}
		if (svc_group_turn(g, svc_group_left(until, 10), op) != XPORT_OK)
			return;
	}
}

/* Waits until all that was posted has ended. */
static int coll_wait(struct xport_group *g, int64_t until, const char *op)
{
	int64_t since = -1;

	for (;;) {
		bool busy = false;
		int r;

		for (int i = 0; i < SVC_GROUP_OPS; i++) {
			if (g->op[i].busy)
				busy = true;
			else if (g->op[i].rank >= 0)
				coll_check(g, &g->op[i]);
		}
		if (g->failed >= 0)
			return g->status;
		if (!busy)
			return XPORT_OK;
		if (until >= 0 && svc_now_ms() >= until) {
			coll_late(g, op);
			continue;
		}
		if (since < 0)
			since = svc_now_ms();
		r = svc_group_turn(g, svc_group_left(until, SVC_GROUP_SLICE_MS), op);
		if (r != XPORT_OK) {
			svc_group_fail(g, g->rank, r, "rank %d: the network failed: %s", g->rank, xport_strerror(r));
			return r;
		}
		if (svc_now_ms() - since >= ASK_MS)
			(void)coll_ask(g);
	}
}

/* Sends to one member and receives from another one. */
static int coll_exchange(struct xport_group *g, int to, const void *out, size_t out_len, int from, void *in,
                         size_t in_len, int64_t until, const char *op)
{
	int r = coll_post(g, from, true, in, in_len, until, op);

	if (r == XPORT_OK)
		r = coll_post(g, to, false, (void *)(uintptr_t)out, out_len, until, op);
	return r == XPORT_OK ? coll_wait(g, until, op) : r;
}

int svc_coll_begin(struct xport_group *g, int kind, uint32_t detail, uint64_t length)
{
	g->certain = false;
	for (int i = 0; i < SVC_GROUP_OPS; i++)
		g->op[i].rank = -1;
	svc_call_begin(g, kind, detail, length);
	return g->failed >= 0 ? g->status : XPORT_OK;
}

int svc_coll_end(struct xport_group *g, int status, const char *operation)
{
	if (status != XPORT_OK) {
		coll_abandon(g, operation);
		status = g->failed >= 0 ? svc_group_error(g, operation) : status;
	}
	return status;
}

uint8_t *svc_coll_scratch(struct xport_group *g, size_t len)
{
	uint8_t *p;

	if (len <= g->scratch_size)
		return g->scratch;
	p = realloc(g->scratch, len);
	if (p == NULL) {
		svc_group_fail(g, g->rank, XPORT_ERR_NO_MEMORY, "rank %d is out of memory", g->rank);
		return NULL;
	}
	g->scratch = p;
	g->scratch_size = len;
	return p;
}

/* The rank at this distance around the ring. */
static int around(const struct xport_group *g, int rank, int distance)
{
	return ((rank + distance) % g->members + g->members) % g->members;
}

/* ---- barrier, broadcast ---- */

int svc_coll_barrier(struct xport_group *g, int64_t until, const char *op)
{
	int r = XPORT_OK;

	for (int d = 1; d < g->members && r == XPORT_OK; d *= 2) {
		g->certain = d == 1;
		r = coll_exchange(g, around(g, g->rank, d), NULL, 0, around(g, g->rank, -d), NULL, 0, until, op);
	}
	return r;
}

static int coll_broadcast(struct xport_group *g, uint8_t *buf, size_t len, int root, int64_t until, const char *op)
{
	int own = around(g, g->rank, -root), bit = 1, r = XPORT_OK;

	while (bit < g->members && (own & bit) == 0)
		bit *= 2;
	if (own != 0) {
		g->certain = own == bit; /* the root */
		r = coll_post(g, around(g, g->rank, -bit), true, buf, len, until, op);
		if (r == XPORT_OK)
			r = coll_wait(g, until, op);
	}
	for (bit /= 2; bit >= 1 && r == XPORT_OK; bit /= 2)
		if (own + bit < g->members)
			r = coll_post(g, around(g, g->rank, bit), false, buf, len, until, op);
	return r == XPORT_OK ? coll_wait(g, until, op) : r;
}

/* ---- allgather ---- */

/* `first` is the block that this member has at the beginning. */
static int ring_blocks(struct xport_group *g, uint8_t *all, const size_t *offset, int first, int64_t until,
                       const char *op)
{
	int to = around(g, g->rank, 1), from = around(g, g->rank, -1), r = XPORT_OK;

	for (int i = 0; i < g->members - 1 && r == XPORT_OK; i++) {
		int out = around(g, first, -i), in = around(g, first, -i - 1);

		g->certain = i == 0;
		r = coll_exchange(g, to, all + offset[out], offset[out + 1] - offset[out], from, all + offset[in],
		                  offset[in + 1] - offset[in], until, op);
	}
	return r;
}

int svc_coll_ring(struct xport_group *g, uint8_t *all, const size_t *offset, int64_t until, const char *op)
{
	return ring_blocks(g, all, offset, g->rank, until, op);
}

static int gather_ring(struct xport_group *g, size_t len, uint8_t *all, int64_t until, const char *op)
{
	size_t *offset = (size_t *)(void *)svc_coll_scratch(g, ((size_t)g->members + 1) * sizeof(size_t));

	if (offset == NULL)
		return XPORT_ERR_NO_MEMORY;
	for (int i = 0; i <= g->members; i++)
		offset[i] = (size_t)i * len;
	return svc_coll_ring(g, all, offset, until, op);
}

/* Each step doubles the blocks, which begin with the member's own; they are turned into their order at the end. */
static int gather_bruck(struct xport_group *g, size_t len, uint8_t *all, int64_t until, const char *op)
{
	uint8_t *blocks = svc_coll_scratch(g, (size_t)g->members * len);
	size_t wrap = (size_t)(g->members - g->rank) * len;
	int r = XPORT_OK;

	if (blocks == NULL)
		return XPORT_ERR_NO_MEMORY;
	memcpy(blocks, all + (size_t)g->rank * len, len);
	for (int d = 1; d < g->members && r == XPORT_OK; d *= 2) {
		size_t n = (size_t)(d < g->members - d ? d : g->members - d) * len;

		g->certain = d == 1;
		r = coll_exchange(g, around(g, g->rank, -d), blocks, n, around(g, g->rank, d), blocks + (size_t)d * len,
		                  n, until, op);
	}
	memcpy(all + (size_t)g->rank * len, blocks, wrap);
	memcpy(all, blocks + wrap, (size_t)g->rank * len);
	return r;
}

int svc_coll_allgather(struct xport_group *g, size_t len, uint8_t *all, int64_t until, const char *op)
{
	if (len == 0)
		return svc_coll_barrier(g, until, op);
	return len * (size_t)g->members <= SHORT_ALL ? gather_bruck(g, len, all, until, op)
	                                             : gather_ring(g, len, all, until, op);
}

/* ---- allreduce ---- */

struct reduction {
	uint8_t *to;
	size_t count, size; /* elements; bytes of one */
	int type, op;
};

/* Combines what another member sent with `count` elements of this one, the lower rank's first. */
static void reduce_with(struct xport_group *g, const struct reduction *a, size_t from, size_t count, const uint8_t *in,
                        int other)
{
	uint8_t *own = a->to + from * a->size;

	if (other < g->rank)
		svc_reduce(a->type, a->op, own, in, own, count);
	else
		svc_reduce(a->type, a->op, own, own, in, count);
}

/* Recursive doubling. Those beyond the largest power of two give their array to another member, and get the result. */
static int reduce_short(struct xport_group *g, const struct reduction *a, int64_t until, const char *op)
{
	size_t len = a->count * a->size;
	uint8_t *in = svc_coll_scratch(g, len);
	int core = 1, extra, r = XPORT_OK;

	if (in == NULL)
		return XPORT_ERR_NO_MEMORY;
	while (core * 2 <= g->members)
		core *= 2;
	extra = g->members - core;
	if (g->rank >= core) {
		/* The result may come only after what was sent. */
		r = coll_post(g, g->rank - core, false, a->to, len, until, op);
		if (r == XPORT_OK)
			r = coll_wait(g, until, op);
		if (r == XPORT_OK)
			r = coll_post(g, g->rank - core, true, a->to, len, until, op);
		return r == XPORT_OK ? coll_wait(g, until, op) : r;
	}
	if (g->rank < extra) {
		g->certain = true;
		r = coll_post(g, g->rank + core, true, in, len, until, op);
		if (r == XPORT_OK)
			r = coll_wait(g, until, op);
		if (r == XPORT_OK)
			reduce_with(g, a, 0, a->count, in, g->rank + core);
	}
	for (int bit = 1; bit < core && r == XPORT_OK; bit *= 2) {
		int other = g->rank ^ bit;

		g->certain = bit == 1 && other >= extra;
		r = coll_exchange(g, other, a->to, len, other, in, len, until, op);
		if (r == XPORT_OK)
			reduce_with(g, a, 0, a->count, in, other);
	}
	if (g->rank < extra && r == XPORT_OK) {
		r = coll_post(g, g->rank + core, false, a->to, len, until, op);
		if (r == XPORT_OK)
			r = coll_wait(g, until, op);
	}
	return r;
}

/* The first element of a block: there is one block a member. */
static size_t block_begin(const struct xport_group *g, const struct reduction *a, int block)
{
	return a->count / (size_t)g->members * (size_t)block +
	       (a->count % (size_t)g->members < (size_t)block ? a->count % (size_t)g->members : (size_t)block);
}

/* Halves: each step keeps half of the blocks, until one is left. Doubles: the same way back, with results. */
static int reduce_halves(struct xport_group *g, const struct reduction *a, int64_t until, const char *op)
{
	uint8_t *in = svc_coll_scratch(g, (a->count / 2 + (size_t)g->members) * a->size);
	int begin = 0, r = XPORT_OK;

	if (in == NULL)
		return XPORT_ERR_NO_MEMORY;
	for (int bit = g->members / 2; bit >= 1 && r == XPORT_OK; bit /= 2) {
		int other = g->rank ^ bit, keep = begin + (g->rank & bit ? bit : 0),
		    give = begin + (g->rank & bit ? 0 : bit);
		size_t k = block_begin(g, a, keep), kn = block_begin(g, a, keep + bit) - k;
		size_t f = block_begin(g, a, give), fn = block_begin(g, a, give + bit) - f;

		g->certain = bit == g->members / 2;
		r = coll_exchange(g, other, a->to + f * a->size, fn * a->size, other, in, kn * a->size, until, op);
		if (r == XPORT_OK)
			reduce_with(g, a, k, kn, in, other);
		begin = keep;
	}
	g->certain = false;
	for (int bit = 1; bit < g->members && r == XPORT_OK; bit *= 2) {
		int other = g->rank ^ bit, mine = g->rank & ~(bit - 1), theirs = mine ^ bit;
		size_t m = block_begin(g, a, mine), mn = block_begin(g, a, mine + bit) - m;
		size_t t = block_begin(g, a, theirs), tn = block_begin(g, a, theirs + bit) - t;

		r = coll_exchange(g, other, a->to + m * a->size, mn * a->size, other, a->to + t * a->size, tn * a->size,
		                  until, op);
	}
	return r;
}

/* Around the ring: first sums of blocks, then the blocks themselves. */
static int reduce_ring(struct xport_group *g, const struct reduction *a, int64_t until, const char *op)
{
	size_t most = (a->count / (size_t)g->members + 1) * a->size, head = ((size_t)g->members + 1) * sizeof(size_t);
	uint8_t *scratch = svc_coll_scratch(g, head + most);
	size_t *offset = (size_t *)(void *)scratch;
	int r = XPORT_OK;

	if (scratch == NULL)
		return XPORT_ERR_NO_MEMORY;
	for (int i = 0; i <= g->members; i++)
		offset[i] = block_begin(g, a, i) * a->size;
	for (int i = 0; i < g->members - 1 && r == XPORT_OK; i++) {
		int out = around(g, g->rank, -i), in = around(g, g->rank, -i - 1);
		size_t len = offset[in + 1] - offset[in];

		g->certain = i == 0;
		r = coll_exchange(g, around(g, g->rank, 1), a->to + offset[out], offset[out + 1] - offset[out],
		                  around(g, g->rank, -1), scratch + head, len, until, op);
		if (r == XPORT_OK)
			svc_reduce(a->type, a->op, a->to + offset[in], scratch + head, a->to + offset[in],
			           len / a->size);
	}
	g->certain = false;
	return r == XPORT_OK ? ring_blocks(g, a->to, offset, around(g, g->rank, 1), until, op) : r;
}

static int coll_allreduce(struct xport_group *g, const struct reduction *a, int64_t until, const char *op)
{
	if (g->members == 1 || a->count == 0)
		return svc_coll_barrier(g, until, op);
	if (a->count * a->size <= SHORT_ARRAY || a->count < (size_t)g->members)
		return reduce_short(g, a, until, op);
	return (g->members & (g->members - 1)) == 0 ? reduce_halves(g, a, until, op) : reduce_ring(g, a, until, op);
}

/* ---- the public functions ---- */

static int coll_args(struct xport_group *g, int timeout_ms, bool arrays, const char *op)
{
	if (g == NULL)
		return svc_fail(XPORT_ERR_INVALID, op, NULL, "group is NULL");
	if (!arrays)
		return svc_fail(XPORT_ERR_INVALID, op, NULL, "a buffer is NULL, or longer than the address space");
	return svc_time_valid(timeout_ms, op);
}

/* Begins the call of the application, with the lock held; if it fails, without the lock. */
static int coll_enter(struct xport_group *g, int timeout_ms, int64_t *until, const char *op)
{
	int r;

	pthread_mutex_lock(&g->lock);
	r = svc_group_enter(g, op);
	if (r != XPORT_OK)
		pthread_mutex_unlock(&g->lock);
	*until = timeout_ms < 0 ? -1 : svc_now_ms() + timeout_ms;
	return r;
}

static int coll_leave(struct xport_group *g, int status, const char *op)
{
	status = svc_coll_end(g, status, op);
	svc_group_leave(g);
	pthread_mutex_unlock(&g->lock);
	return status;
}

int xport_group_barrier(xport_group *g, int timeout_ms)
{
	static const char op[] = "xport_group_barrier";
	int r = coll_args(g, timeout_ms, true, op);
	int64_t until;

	if (r == XPORT_OK)
		r = coll_enter(g, timeout_ms, &until, op);
	if (r != XPORT_OK)
		return r;
	r = svc_coll_begin(g, SVC_GROUP_BARRIER, 0, 0);
	if (r == XPORT_OK)
		r = svc_coll_barrier(g, until, op);
	return coll_leave(g, r, op);
}

int xport_group_broadcast(xport_group *g, void *buf, size_t len, int root, int timeout_ms)
{
	static const char op[] = "xport_group_broadcast";
	int r = coll_args(g, timeout_ms, buf != NULL || len == 0, op);
	int64_t until;

	if (r != XPORT_OK)
		return r;
	if (root < 0 || root >= g->members)
		return svc_fail(XPORT_ERR_INVALID, op, NULL, "there is no rank %d", root);
	r = coll_enter(g, timeout_ms, &until, op);
	if (r != XPORT_OK)
		return r;
	r = svc_coll_begin(g, SVC_GROUP_BROADCAST, (uint32_t)root, len);
	if (r == XPORT_OK)
		r = coll_broadcast(g, buf, len, root, until, op);
	return coll_leave(g, r, op);
}

int xport_group_allgather(xport_group *g, const void *mine, size_t len, void *all, int timeout_ms)
{
	static const char op[] = "xport_group_allgather";
	int r = coll_args(
		g, timeout_ms,
		len == 0 || (mine != NULL && all != NULL && g != NULL && len <= PTRDIFF_MAX / (size_t)g->members), op);
	int64_t until;

	if (r == XPORT_OK)
		r = coll_enter(g, timeout_ms, &until, op);
	if (r != XPORT_OK)
		return r;
	r = svc_coll_begin(g, SVC_GROUP_ALLGATHER, 0, len);
	if (r == XPORT_OK && len > 0)
		memmove((uint8_t *)all + (size_t)g->rank * len, mine, len);
	if (r == XPORT_OK)
		r = svc_coll_allgather(g, len, all, until, op);
	return coll_leave(g, r, op);
}

int xport_group_allreduce(xport_group *g, const void *mine, void *result, size_t count, int type, int op,
                          int timeout_ms)
{
	static const char operation[] = "xport_group_allreduce";
	struct reduction a = {.to = result, .count = count, .size = svc_reduce_size(type), .type = type, .op = op};
	int64_t until;
	int r;

	if (a.size == 0 || op < XPORT_GROUP_SUM || op > XPORT_GROUP_MAX)
		return svc_fail(XPORT_ERR_INVALID, operation, "see enum xport_group_type and enum xport_group_op",
		                "type %d or op %d is unknown", type, op);
	r = coll_args(g, timeout_ms, count == 0 || (mine != NULL && result != NULL && count <= PTRDIFF_MAX / a.size),
	              operation);
	if (r != XPORT_OK)
		return r;
	if (((uintptr_t)mine | (uintptr_t)result) % a.size != 0)
		return svc_fail(XPORT_ERR_INVALID, operation, NULL, "an array is not aligned to its elements");
	r = coll_enter(g, timeout_ms, &until, operation);
	if (r != XPORT_OK)
		return r;
	r = svc_coll_begin(g, SVC_GROUP_ALLREDUCE, (uint32_t)(type << 8 | op), count * a.size);
	if (r == XPORT_OK && count > 0 && mine != result)
		memcpy(result, mine, count * a.size);
	if (r == XPORT_OK)
		r = coll_allreduce(g, &a, until, operation);
	return coll_leave(g, r, operation);
}
