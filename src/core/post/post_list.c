/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * post_list.c - the beginning of puts and gets with lists of pieces.
 *
 * The two lists are cut into runs: each run is one piece of memory at both ends. A run is an ordinary put or get in the
 * protocol. Only its end differs: it is counted in the operation that the application posted (op.h, XPI_OP_LIST).
 */
#include "base/copy.h"
#include "core/object/completion.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/mr.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/object/pieces.h"
#include "core/object/rkey.h"
#include "core/object/usdt.h"
#include "core/post/launch.h"
#include "core/post/post.h"

#define unlikely(c) __builtin_expect(!!(c), 0)

struct run {
	uint8_t *addr;
	uint64_t len, offset;
	struct xport_mr *mr;
};

struct runs {
	unsigned n;
	uint64_t total;
	struct run run[2 * XPI_IOV_MAX];
};

/* A put or a get with lists. */
struct transfer {
	struct xport_ep *ep;
	const char *operation;
	unsigned kind; /* XPORT_OP_PUT or XPORT_OP_GET */
	uint32_t right;
	struct xport_rkey *k;
	const struct xport_opt *opt;
	struct runs runs;
};

/* ---- checks ---- */

static int remote_valid(struct transfer *t, const struct xport_riov *list, size_t count, uint64_t *total)
{
	struct xport *x = t->ep->x;
	const struct xport_rkey *k = t->k;
	int r = xpi_pieces_count_valid(x, t->operation, "remote ", list, count);

	*total = 0;
	for (size_t i = 0; i < count && r == XPORT_OK; i++) {
		if (list[i].len > k->length || list[i].offset > k->length - list[i].len)
			return xpi_refuse(x, XPORT_ERR_BOUNDS, t->operation,
			                  "remote piece %zu: %llu bytes at offset %llu of a region of %llu bytes", i,
			                  (unsigned long long)list[i].len, (unsigned long long)list[i].offset,
			                  (unsigned long long)k->length);
		if (list[i].len > UINT64_MAX - *total)
			return xpi_refuse(x, XPORT_ERR_INVALID, t->operation,
			                  "the lengths of the remote list add up to 2^64 or more");
		*total += list[i].len;
	}
	return r;
}

/* Adds a run, or makes the last one longer. */
static void run_add(struct runs *runs, const struct run *run)
{
	struct run *last = runs->n > 0 ? &runs->run[runs->n - 1] : NULL;

	if (last != NULL && last->addr + last->len == run->addr && last->offset + last->len == run->offset &&
	    last->mr == run->mr)
		last->len += run->len;
	else
		runs->run[runs->n++] = *run;
}

/* Cuts two lists of the same total. Each run ends where a piece of either ends: fewer than the pieces of both. */
static void cut(struct runs *runs, const struct xport_iov *local, const struct xport_riov *remote,
                const struct xport_opt *opt)
{
	uint64_t local_at = 0, remote_at = 0, n;

	runs->n = 0;
	for (uint64_t left = runs->total; left > 0; left -= n) {
		while (local_at == local->len) {
			local++;
			local_at = 0;
		}
		while (remote_at == remote->len) {
			remote++;
			remote_at = 0;
		}
		n = local->len - local_at < remote->len - remote_at ? local->len - local_at : remote->len - remote_at;
		run_add(runs, &(struct run){.addr = (uint8_t *)local->addr + local_at,
		                            .len = n,
		                            .offset = remote->offset + remote_at,
		                            .mr = xpi_piece_mr(local, opt)});
		local_at += n;
		remote_at += n;
	}
}

/* All checks, and the runs: XPORT_OK, or the refusal. */
static int admit_lists(struct transfer *t, const struct xport_iov *local, size_t nlocal,
                       const struct xport_riov *remote, size_t nremote)
{
	uint64_t flags = t->kind == XPORT_OP_GET ? XPORT_QUIET : XPORT_LOCAL | XPORT_QUIET, there = 0;
	struct xport *x = t->ep->x;
	int r;

	if (t->k == NULL || !xpi_rkey_fits(t->k, t->ep, 0, 0, t->right))
		return xpi_key_refuse(t->ep, t->operation, t->k, 0, 0, t->right);
	r = xpi_pieces_valid(x, t->operation, local, nlocal, t->opt, flags, t->kind == XPORT_OP_GET, &t->runs.total);
	if (r == XPORT_OK)
		r = remote_valid(t, remote, nremote, &there);
	if (r == XPORT_OK && there != t->runs.total)
		r = xpi_refuse(x, XPORT_ERR_INVALID, t->operation,
		               "the local list has %llu bytes, and the remote list %llu: they must be equal",
		               (unsigned long long)t->runs.total, (unsigned long long)there);
	if (r != XPORT_OK)
		return xpi_ep_refused(t->ep, r);
	cut(&t->runs, local, remote, t->opt);
	return XPORT_OK;
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
	op->len = t->runs.total;
	op->tag = op->offset = 0;
	op->stamp = ep->x->tick;
	op->flags = (uint8_t)flags_of(t);
	op->context = t->opt != NULL ? t->opt->context : NULL;
	return op;
}

/* One put or get of an accepted operation. */
static void run_set(struct transfer *t, struct xpi_op *op, struct xpi_op *run, const struct run *from)
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
	if (t->kind == XPORT_OP_PUT && op->flags == 0)
		return;
	/* It ends by xpi_op_complete in any case. Flushes wait for its buffer if the application said so. */
	run->flags = XPORT_QUIET;
	run->order = (op->flags & XPORT_QUIET) != 0 ? ep->rma.n_posted + 1 : UINT64_MAX;
}

/* Memory for all runs first: the call is accepted as a whole or not at all. */
static bool runs_new(struct transfer *t, struct xpi_op **run)
{
	for (unsigned i = 0; i < t->runs.n; i++) {
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
static void accept_lists(struct transfer *t, struct xpi_op *op)
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

static int launch_runs(struct transfer *t, unsigned path)
{
	struct xpi_op *run[2 * XPI_IOV_MAX], *op;
	struct xport_ep *ep = t->ep;

	op = parent_new(t);
	if (op == NULL)
		return xpi_op_no_memory(ep, t->operation);
	if (!runs_new(t, run)) {
		xpi_op_free(ep, op);
		return xpi_op_no_memory(ep, t->operation);
	}
	accept_lists(t, op);
	op->pending = t->runs.n + 1; /* one for this function: runs may end as they are launched */
	for (unsigned i = 0; i < t->runs.n; i++) {
		run_set(t, op, run[i], &t->runs.run[i]);
		ep->rma.ngets += t->kind == XPORT_OP_GET;
		xpi_launch(ep, run[i], t->k, path);
	}
	xpi_run_ended(op, XPORT_OK);
	return XPORT_OK;
}

/* The memory is mapped here, and nothing is before the operation. */
static int copy_runs(struct transfer *t)
{
	struct xport_ep *ep = t->ep;
	struct xpi_op *op = NULL;
	bool get = t->kind == XPORT_OP_GET;

	if ((flags_of(t) & XPORT_QUIET) == 0) {
		op = parent_new(t);
		if (op == NULL)
			return xpi_op_no_memory(ep, t->operation);
	}
	for (unsigned i = 0; i < t->runs.n; i++) {
		const struct run *run = &t->runs.run[i];

		if (get)
			xpi_copy_in(run->addr, t->k->direct + run->offset, run->len);
		else
			xpi_copy_out(t->k->direct + run->offset, run->addr, run->len);
	}
	if (get)
		ep->n.fast_gets++;
	else
		ep->rma.n_posted++;
	*(get ? &ep->n.bytes_in : &ep->n.bytes_out) += t->runs.total;
	XPI_PROBE_OP_POSTED(ep, t->kind, t->runs.total, t->opt != NULL ? t->opt->context : NULL);
	if (op == NULL)
		return XPORT_OK;
	ep->refs++;
	ep->fast_left = 0;
	xpi_cq_push(&ep->x->cq, op);
	return XPORT_OK;
}

static int transfer_post(struct transfer *t, const struct xport_iov *local, size_t nlocal,
                         const struct xport_riov *remote, size_t nremote)
{
	unsigned path;
	int r = admit_lists(t, local, nlocal, remote, nremote);

	xpi_assert_locked(t->ep->x);
	if (unlikely(r != XPORT_OK))
		return r;
	if (unlikely(xpi_full(t->ep)))
		return xpi_full_refuse(t->ep, t->operation);
	path = t->kind == XPORT_OP_GET ? t->k->get : t->k->put;
	return path == XPI_ROUTE_MAPPED && !t->ep->rma.busy ? copy_runs(t) : launch_runs(t, path);
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
	return transfer_post(&t, local, nlocal, remote, nremote);
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
	return transfer_post(&t, local, nlocal, remote, nremote);
}
