/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * post_list.c - the beginning of puts and gets with lists of pieces.
 *
 * The two lists are cut into runs: each run is one piece of memory at both ends. A run is an ordinary put or get in the
 * protocol. Only its end differs: it is counted in the operation that the application posted (op.h, XPI_OP_LIST).
 */
#include <stdatomic.h>
#include <string.h>

#include "core/object/completion.h"
#include "core/object/deadline.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/mr.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/object/pieces.h"
#include "core/object/rkey.h"
#include "core/object/usdt.h"
#include "core/post/fastpath.h"
#include "core/post/launch.h"
#include "core/post/post.h"
#include "core/protocol/rma.h"

#define unlikely(c) __builtin_expect(!!(c), 0)

/* A put or a get with lists. */
struct transfer {
	struct xport_ep *ep;
	const char *operation;
	unsigned kind; /* XPORT_OP_PUT or XPORT_OP_GET */
	uint32_t right;
	struct xport_rkey *k;
	const struct xport_opt *opt;
	const struct xport_iov *local;
	const struct xport_riov *remote;
	uint64_t total; /* bytes of each list */
	unsigned nruns;
	struct xpi_run run[2 * XPI_IOV_MAX];
};

/* ---- checks ---- */

static __attribute__((cold)) int remote_refuse(const struct transfer *t, size_t i)
{
	const struct xport_riov *piece = &t->remote[i];

	if (piece->len <= t->k->length && piece->offset <= t->k->length - piece->len)
		return xpi_refuse(t->ep->x, XPORT_ERR_INVALID, t->operation,
		                  "the lengths of the remote list add up to 2^64 or more");
	return xpi_refuse(t->ep->x, XPORT_ERR_BOUNDS, t->operation,
	                  "remote piece %zu: %llu bytes at offset %llu of a region of %llu bytes", i,
	                  (unsigned long long)piece->len, (unsigned long long)piece->offset,
	                  (unsigned long long)t->k->length);
}

static inline __attribute__((always_inline)) int remote_valid(struct transfer *t, size_t count)
{
	const struct xport_riov *list = t->remote;
	const uint64_t length = t->k->length;
	int r = xpi_pieces_count_valid(t->ep->x, t->operation, "remote ", list, count);
	uint64_t total = 0;

	if (r != XPORT_OK)
		return r;
	for (size_t i = 0; i < count; i++) {
		if (unlikely(list[i].len > length || list[i].offset > length - list[i].len ||
		             list[i].len > UINT64_MAX - total))
			return remote_refuse(t, i);
		total += list[i].len;
	}
	if (total != t->total)
		return xpi_refuse(t->ep->x, XPORT_ERR_INVALID, t->operation,
		                  "the local list has %llu bytes, and the remote list %llu: they must be equal",
		                  (unsigned long long)t->total, (unsigned long long)total);
	return XPORT_OK;
}

/* A place in two lists of the same total. */
struct place {
	const struct xport_iov *local;
	const struct xport_riov *remote;
	uint64_t local_at, remote_at;
};

/* The bytes up to where a piece of either list ends, of what is left. */
static inline struct xpi_run next_run(struct place *p, const struct xport_opt *opt)
{
	struct xpi_run run;

	for (; p->local_at == p->local->len; p->local_at = 0)
		p->local++;
	for (; p->remote_at == p->remote->len; p->remote_at = 0)
		p->remote++;
	run.len = p->local->len - p->local_at;
	if (run.len > p->remote->len - p->remote_at)
		run.len = p->remote->len - p->remote_at;
	run.addr = (uint8_t *)p->local->addr + p->local_at;
	run.offset = p->remote->offset + p->remote_at;
	run.mr = xpi_piece_mr(p->local, opt);
	p->local_at += run.len;
	p->remote_at += run.len;
	return run;
}

/* Adds a run, or makes the last one longer. */
static inline __attribute__((always_inline)) void run_add(struct transfer *t, const struct xpi_run *run)
{
	struct xpi_run *last = t->nruns > 0 ? &t->run[t->nruns - 1] : NULL;

	if (last != NULL && last->addr + last->len == run->addr && last->offset + last->len == run->offset &&
	    last->mr == run->mr)
		last->len += run->len;
	else
		t->run[t->nruns++] = *run;
}

/* Cuts the lists into runs: fewer than the pieces of both. */
static inline __attribute__((always_inline)) void cut(struct transfer *t)
{
	struct place place = {.local = t->local, .remote = t->remote};
	struct xpi_run run;

	t->nruns = 0;
	for (uint64_t left = t->total; left > 0; left -= run.len) {
		run = next_run(&place, t->opt);
		run_add(t, &run);
	}
}

/* All checks: XPORT_OK, or the refusal. */
static inline __attribute__((always_inline)) int admit_lists(struct transfer *t, size_t nlocal, size_t nremote)
{
	uint64_t flags = t->kind == XPORT_OP_GET ? XPORT_QUIET : XPORT_LOCAL | XPORT_QUIET;
	struct xport *x = t->ep->x;
	int r;

	if (t->k == NULL || !xpi_rkey_fits(t->k, t->ep, 0, 0, t->right))
		return xpi_key_refuse(t->ep, t->operation, t->k, 0, 0, t->right);
	r = xpi_pieces_valid(x, t->operation, t->local, nlocal, t->opt, flags, t->kind == XPORT_OP_GET, &t->total);
	if (r == XPORT_OK)
		r = remote_valid(t, nremote);
	return r == XPORT_OK || r == XPI_PIECES_TIMED ? r : xpi_ep_refused(t->ep, r);
}

/* ---- posting ---- */

static uint64_t flags_of(const struct transfer *t)
{
	return t->opt != NULL ? t->opt->flags : 0;
}

/* The operation that the application gets the completion of. It counts, and is not in a queue. NULL: no memory. */
static struct xpi_op *parent_new(struct transfer *t)
{
	struct xport_ep *ep = t->ep;
	struct xpi_op *op = xpi_op_get(ep->x, ep, t->kind);

	if (op == NULL)
		return NULL;
	op->len = t->total;
	op->tag = op->offset = 0;
	op->stamp = ep->x->tick;
	op->flags = (uint8_t)flags_of(t);
	op->context = t->opt != NULL ? t->opt->context : NULL;
	return op;
}

/* One put or get of an accepted operation. */
static inline __attribute__((always_inline)) void run_set(struct transfer *t, struct xpi_op *op, struct xpi_op *run,
                                                          const struct xpi_run *from, bool timed)
{
	struct xport_ep *ep = t->ep;

	run->buf = from->addr;
	run->len = from->len;
	run->offset = from->offset;
	run->tag = 0;
	run->stamp = op->stamp;
	run->context = op;
	run->mr = from->mr;
	if (run->mr != NULL)
		run->mr->busy++;
	if (timed && t->kind == XPORT_OP_PUT)
		run->offer = XPI_OFFER_NEVER;
	if (t->kind == XPORT_OP_PUT && op->flags == 0)
		return;
	/* It ends by xpi_op_complete in any case. Flushes wait for its buffer if the application said so. */
	run->flags = XPORT_QUIET;
	run->order = (op->flags & XPORT_QUIET) != 0 ? ep->rma.n_posted + 1 : UINT64_MAX;
}

/* Memory for all runs first: the call is accepted as a whole or not at all. */
static inline __attribute__((always_inline)) bool runs_new(struct transfer *t, struct xpi_op **run, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		run[i] = xpi_op_get(t->ep->x, t->ep, XPI_OP_LIST | t->kind);
		if (run[i] != NULL)
			continue;
		while (i > 0)
			xpi_op_free(t->ep, run[--i]);
		return false;
	}
	return true;
}

/* Counts an accepted operation. */
static inline __attribute__((always_inline)) void accept_lists(struct transfer *t, struct xpi_op *op)
{
	struct xport_ep *ep = t->ep;
	bool get = t->kind == XPORT_OP_GET;

	ep->refs++;
	ep->fast_left = 0; /* it counts in the depth, and may take of the window */
	ep->n.posted[t->kind]++;
	*(get ? &ep->n.bytes_in : &ep->n.bytes_out) += op->len;
	ep->rma.ngets += get && op->len > 0;
	if ((op->flags & XPORT_QUIET) != 0) {
		ep->rma.quiet_pending++;
		op->order = ep->rma.n_posted + 1;
	}
	XPI_PROBE_OP_POSTED(ep, t->kind, op->len, op->context);
}

/* Sends what can share frames at once; the runs that are left are the first. `all` stands for those that went. */
static inline __attribute__((always_inline)) void gather_runs(struct transfer *t, struct xpi_op *op, struct xpi_op *all)
{
	struct xport_ep *ep = t->ep;

	run_set(t, op, all, &(struct xpi_run){.len = t->total}, false); /* they are copied in any case */
	all->region = t->k->region;
	ep->rma.q_posted++;
	ep->rma.q_sent++;
	xpi_touch(ep);
	t->nruns = xpi_runs_gather(ep, all, t->run, t->nruns);
}

/* Each run by itself, but for those that can share frames. */
static inline __attribute__((always_inline)) int launch_runs(struct transfer *t, unsigned path, int64_t at_ms)
{
	struct xpi_op *run[2 * XPI_IOV_MAX + 1], *op;
	struct xport_ep *ep = t->ep;
	bool gathers = t->kind == XPORT_OP_PUT && path == XPI_ROUTE_AM && !ep->rma.busy;
	unsigned n, used = 0;
	uint64_t id;

	cut(t);
	gathers = gathers && t->nruns > 1 && xpi_runs_gather_any(ep, t->run, t->nruns);
	n = gathers && xpi_runs_fit(ep, t->run, t->nruns) ? 1 : t->nruns + gathers;
	op = parent_new(t);
	if (op == NULL)
		return xpi_op_no_memory(ep, t->operation);
	if (!runs_new(t, run, n)) {
		xpi_op_free(ep, op);
		return xpi_op_no_memory(ep, t->operation);
	}
	accept_lists(t, op);
	op->pending = n + 1; /* one for this function: runs may end as they are launched */
	if (gathers)
		gather_runs(t, op, run[used++]);
	for (unsigned i = 0; i < t->nruns; i++) {
		run_set(t, op, run[used], &t->run[i], at_ms != 0);
		ep->rma.ngets += t->kind == XPORT_OP_GET;
		xpi_launch(ep, run[used++], t->k, path);
	}
	for (; used < n; used++) {
		xpi_op_free(ep, run[used]);
		op->pending--;
	}
	id = at_ms != 0 ? xpi_op_id(ep->x, op) : 0;
	xpi_run_ended(op, XPORT_OK);
	if (at_ms != 0)
		xpi_deadline_add(ep->x, id, at_ms);
	return XPORT_OK;
}

static void copy_all(struct transfer *t)
{
	struct place place = {.local = t->local, .remote = t->remote};
	uint8_t *direct = t->k->direct;
	struct xpi_run run;

	if (t->kind == XPORT_OP_PUT) {
		atomic_thread_fence(memory_order_release); /* as xpi_copy_out */
		for (uint64_t left = t->total; left > 0; left -= run.len) {
			run = next_run(&place, NULL);
			memcpy(direct + run.offset, run.addr, run.len);
		}
		t->ep->rma.n_posted++;
		t->ep->n.bytes_out += t->total;
	} else {
		for (uint64_t left = t->total; left > 0; left -= run.len) {
			run = next_run(&place, NULL);
			memcpy(run.addr, direct + run.offset, run.len);
		}
		atomic_thread_fence(memory_order_acquire); /* as xpi_copy_in */
		t->ep->n.fast_gets++;
		t->ep->n.bytes_in += t->total;
	}
}

/* The memory is mapped here, and nothing is before the operation: all that is left of it is its completion. */
static int copy_runs(struct transfer *t)
{
	void *context = t->opt != NULL ? t->opt->context : NULL;
	struct xport_ep *ep = t->ep;
	struct xpi_cq *q = &ep->x->cq;
	struct xpi_op *op;

	XPI_PROBE_OP_POSTED(ep, t->kind, t->total, context);
	if ((flags_of(t) & XPORT_QUIET) != 0) {
		copy_all(t);
		return XPORT_OK;
	}
	if (q->next == q->end && ep->x->slow == 0)
		xpi_cq_open(q);
	if (q->next != q->end) {
		copy_all(t);
		xpi_fast_completion(ep, t->kind, context, 0, t->total);
		q->next++;
		return XPORT_OK;
	}
	op = parent_new(t);
	if (op == NULL)
		return xpi_op_no_memory(ep, t->operation);
	copy_all(t);
	ep->refs++;
	xpi_cq_push(q, op);
	return XPORT_OK;
}

static __attribute__((noinline)) int launch_plain(struct transfer *t, unsigned path)
{
	return launch_runs(t, path, 0);
}

static int transfer_post(struct transfer *t, size_t nlocal, size_t nremote);

static __attribute__((noinline, cold)) int transfer_timed(struct transfer *t, size_t nlocal, size_t nremote)
{
	const struct xport_opt *opt = t->opt, plain = xpi_opt_plain(opt, 0);
	uint64_t flags = t->kind == XPORT_OP_GET ? XPORT_QUIET : XPORT_LOCAL | XPORT_QUIET;
	unsigned path;
	int64_t at_ms;
	int r;

	t->opt = &plain;
	r = admit_lists(t, nlocal, nremote);
	if (r == XPI_PIECES_TIMED)
		r = xpi_ep_refused(t->ep, xpi_opt_refuse(t->ep->x, t->operation, NULL, 0, &plain, flags));
	if (r != XPORT_OK)
		return r;
	r = xpi_deadline_begin(t->ep->x, t->operation, opt, &at_ms);
	if (r != XPORT_OK)
		return xpi_ep_refused(t->ep, r);
	path = t->kind == XPORT_OP_GET ? t->k->get : t->k->put;
	if (path == XPI_ROUTE_MAPPED && !t->ep->rma.busy) /* it is complete when the call returns */
		return transfer_post(t, nlocal, nremote);
	return xpi_full(t->ep) ? xpi_full_refuse(t->ep, t->operation) : launch_runs(t, path, at_ms);
}

static int transfer_post(struct transfer *t, size_t nlocal, size_t nremote)
{
	unsigned path;
	int r = admit_lists(t, nlocal, nremote);

	xpi_assert_locked(t->ep->x);
	if (unlikely(r != XPORT_OK))
		return r == XPI_PIECES_TIMED ? transfer_timed(t, nlocal, nremote) : r;
	if (unlikely(xpi_full(t->ep)))
		return xpi_full_refuse(t->ep, t->operation);
	path = t->kind == XPORT_OP_GET ? t->k->get : t->k->put;
	return path == XPI_ROUTE_MAPPED && !t->ep->rma.busy ? copy_runs(t) : launch_plain(t, path);
}

int xpi_putv(struct xport_ep *ep, const struct xport_iov *local, size_t nlocal, struct xport_rkey *k,
             const struct xport_riov *remote, size_t nremote, const struct xport_opt *opt)
{
	struct transfer t;

	t.ep = ep;
	t.operation = "xport_putv";
	t.kind = XPORT_OP_PUT;
	t.right = XPORT_REMOTE_WRITE;
	t.k = k;
	t.opt = opt;
	t.local = local;
	t.remote = remote;
	return transfer_post(&t, nlocal, nremote);
}

int xpi_getv(struct xport_ep *ep, const struct xport_iov *local, size_t nlocal, struct xport_rkey *k,
             const struct xport_riov *remote, size_t nremote, const struct xport_opt *opt)
{
	struct transfer t;

	t.ep = ep;
	t.operation = "xport_getv";
	t.kind = XPORT_OP_GET;
	t.right = XPORT_REMOTE_READ;
	t.k = k;
	t.opt = opt;
	t.local = local;
	t.remote = remote;
	return transfer_post(&t, nlocal, nremote);
}
