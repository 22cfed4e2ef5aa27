/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fastpath.h - the fast path: small operations that are complete when the call returns.
 *
 * What a post has to look at - is the endpoint open and whole, does anything stand before this operation, are there
 * credits, window and room to complete - changes seldom in a way that matters to the next post.  So it is looked at
 * once for many: xpi_fast_renew says in ep->fast_left how many operations may go without looking, each takes one, and
 * whatever changes the answer sets it to 0.  The short way is taken by the first operation of an endpoint after a poll:
 * its record is written into the frame that lies ready, its completion to where it will be reaped.
 *
 * Each operation has two functions: whether it may go so, and the going, which returns what the public function does.
 */
#ifndef XPI_CORE_POST_FASTPATH_H
#define XPI_CORE_POST_FASTPATH_H

#include "base/copy.h"
#include "core/object/op_life.h"
#include "core/object/rkey.h"
#include "core/object/usdt.h"
#include "core/protocol/tx.h"

#define xpi_rarely(c) __builtin_expect(!!(c), 0)

/* Counts afresh how many operations may take the fast path; false: none. */
bool xpi_fast_renew(struct xport_ep *ep);

/* An operation did not find the fast path: whether it is worth to look for it again. */
static inline bool xpi_fast_again(struct xport_ep *ep)
{
	const struct xport *x = ep->x;
	const struct xpi_cq *q = &x->cq;

	if (ep->tx.open != NULL || x->slow != 0)
		return false;
	if (q->next != q->end)
		return ep->fast_left != 0 || xpi_fast_renew(ep);
	/* Behind completions of the slow path there is none of the short. */
	return xpi_cq_empty(q) && xpi_fast_renew(ep);
}

/* The same of one that is packed behind others, `n` bytes with its data. */
bool xpi_fast_pack_again(struct xport_ep *ep, size_t n);

static inline bool xpi_fast_packs(struct xport_ep *ep, size_t n)
{
	const struct xpi_cq *q = &ep->x->cq;

	return (ep->fast_left != 0 && q->next != q->end && xpi_tx_fits(ep, n)) || xpi_fast_pack_again(ep, n);
}

/* The back end goes on using the lone frame, or did not take it: then its record is packed and leaves later. */
int xpi_fast_unusual(struct xport_ep *ep, int status) __attribute__((cold));

/* Whether an operation may take the fast path, as far as the endpoint and the buffer are concerned. */
static inline bool xpi_fast_may(const struct xport_ep *ep, const void *buf, size_t len)
{
	const struct xport *x = ep->x;

	return x->cq.next != x->cq.end && ep->fast_left != 0 && len <= XPI_COPY_MAX && buf != NULL;
}

/* Writes the completion; it counts once cq.next moves on. */
static inline void xpi_fast_completion(struct xport_ep *ep, unsigned type, void *context, uint64_t tag, uint64_t len)
{
	struct xport_completion *c = ep->x->cq.next;

	c->status = XPORT_OK;
	c->type = type;
	c->context = context;
	c->ep = ep;
	c->tag = tag;
	c->length = len;
}

/* The lone frame, which has a record of `rlen` bytes already, leaves with a copy of the data.  Type and context are for
 * tracers. */
static inline __attribute__((always_inline)) int xpi_fast_leave(struct xport_ep *ep, struct xpi_tx *tx, size_t rlen,
                                                                const void *buf, size_t len, unsigned type,
                                                                void *context)
{
	int r;

	atomic_thread_fence(memory_order_release); /* copies into the peer's memory come before the frame */
	xpi_copy_few((uint8_t *)xpi_tx_first(tx) + rlen, buf, len);
	xpi_tx_head(tx)->seq = htole32(ep->tx.seq + 1);
	ep->n.bytes_out += len;
	/* If this frame cannot leave, the frame that takes its record carries the state, or one of its own does. */
	xpi_seen_tell(&xpi_tx_head(tx)->seen, &ep->rx.acked, &ep->rx.state);
	/* Here, where whatever a probe makes the compiler forget is not needed any more. */
	XPI_PROBE_OP_POSTED(ep, type, len, context);
	xpi_transport_used(ep->tp);
	r = ep->tp->am_send(ep->tp->be, xpi_ep_be(ep), tx->buf, sizeof(struct xpi_frame_head) + rlen + len,
	                    &tx->wait.req);
	if (xpi_rarely(r != XPORT_OK))
		return xpi_fast_unusual(ep, r);
	xpi_flow_count(&ep->tx.seq, ep->tx.seq + 1);
	ep->fast_left--;
	return XPORT_OK;
}

/* The record that was written there joins the frame being packed, with a copy of the data. */
static inline __attribute__((always_inline)) void xpi_fast_coalesce(struct xport_ep *ep, size_t rlen, const void *buf,
                                                                    size_t len, unsigned type, void *context)
{
	atomic_thread_fence(memory_order_release); /* as in xpi_fast_leave */
	xpi_tx_append(ep->tx.open, rlen, buf, len, 0);
	ep->n.joined++;
	ep->n.bytes_out += len;
	ep->fast_left--;
	XPI_PROBE_OP_POSTED(ep, type, len, context);
}

static inline bool xpi_fast_send_opt(const struct xport_opt *opt)
{
	return __builtin_expect(opt == NULL, 1) ||
	       (opt->size == sizeof(*opt) && xpi_opt_bits(opt) == 0 && opt->mr == NULL);
}

static inline bool xpi_fast_send_may(const struct xport_ep *ep, const void *buf, size_t len,
                                     const struct xport_opt *opt)
{
	return xpi_fast_may(ep, buf, len) && xpi_tx_alone(ep) && xpi_fast_send_opt(opt);
}

static inline int xpi_fast_send(struct xport_ep *ep, const void *buf, size_t len, uint64_t tag,
                                const struct xport_opt *opt)
{
	struct xpi_rec_send *rec = xpi_tx_first(ep->tx.lone);
	void *context = xpi_rarely(opt != NULL) ? opt->context : NULL;
	int r;

	ep->tx.epoch = ep->x->epoch;
	xpi_fast_completion(ep, XPORT_OP_SEND, context, tag, len);
	rec->r = (struct xpi_rec){.type = XPI_REC_SEND, .len = htole32((uint32_t)len)};
	rec->tag = htole64(tag);
	r = xpi_fast_leave(ep, ep->tx.lone, sizeof(*rec), buf, len, XPORT_OP_SEND, context);
	if (xpi_rarely(r != XPORT_OK))
		return r;
	ep->msg.used += XPI_CHARGE_SMALL;
	ep->x->cq.next++;
	return XPORT_OK;
}

static inline bool xpi_fast_send_may_coalesce(struct xport_ep *ep, const void *buf, size_t len,
                                              const struct xport_opt *opt)
{
	return len <= XPI_COPY_MAX && xpi_fast_send_opt(opt) && xpi_fast_packs(ep, sizeof(struct xpi_rec_send) + len) &&
	       xpi_fast_may(ep, buf, len);
}

static inline int xpi_fast_send_coalesce(struct xport_ep *ep, const void *buf, size_t len, uint64_t tag,
                                         const struct xport_opt *opt)
{
	struct xpi_rec_send *rec = xpi_tx_next(ep->tx.open);
	void *context = xpi_rarely(opt != NULL) ? opt->context : NULL;

	xpi_fast_completion(ep, XPORT_OP_SEND, context, tag, len);
	rec->r = (struct xpi_rec){.type = XPI_REC_SEND, .len = htole32((uint32_t)len)};
	rec->tag = htole64(tag);
	xpi_fast_coalesce(ep, sizeof(*rec), buf, len, XPORT_OP_SEND, context);
	ep->n.joined_sends++;
	ep->msg.used += XPI_CHARGE_SMALL;
	ep->x->cq.next++;
	return XPORT_OK;
}

/* A put that is checked at the target and that nobody waits for. */
static inline __attribute__((always_inline)) int xpi_fast_put_message(struct xport_ep *ep, const void *buf, size_t len,
                                                                      uint64_t region, uint64_t offset, void *context)
{
	struct xpi_rec_put *rec = xpi_tx_first(ep->tx.lone);
	int r;

	ep->tx.epoch = ep->x->epoch;
	rec->r = (struct xpi_rec){.type = XPI_REC_PUT, .len = htole32((uint32_t)len)};
	rec->region = htole64(region);
	rec->offset = htole64(offset);
	rec->op = rec->zero = 0;
	ep->tx.change_seq = ep->tx.seq + 1; /* this frame, or the packed one that takes its place */
	r = xpi_fast_leave(ep, ep->tx.lone, sizeof(*rec), buf, len, XPORT_OP_PUT, context);
	if (xpi_rarely(r != XPORT_OK))
		return r;
	ep->rma.n_posted++;
	ep->n.fast_puts++;
	return XPORT_OK;
}

/* The network carries it, and is done with the buffer when it returns.  If it does not take it now, the slow path does. */
int xpi_fast_put_network(struct xport_ep *ep, const void *buf, size_t len, struct xport_rkey *k, uint64_t offset,
                         const struct xport_opt *opt);

/* By a copy; or by a message or the network, if nobody waits for it. */
static inline bool xpi_fast_put_may(const struct xport_ep *ep, const void *buf, size_t len, const struct xport_rkey *k,
                                    uint64_t offset, const struct xport_opt *opt)
{
	if (!xpi_fast_may(ep, buf, len) || k == NULL || !xpi_rkey_fits(k, ep, offset, len, XPORT_REMOTE_WRITE) ||
	    opt == NULL || opt->size != sizeof(*opt) || opt->mr != NULL ||
	    (xpi_opt_bits(opt) & ~(uint64_t)(XPORT_LOCAL | XPORT_QUIET)) != 0)
		return false;
	if (k->put == XPI_ROUTE_MAPPED)
		return true;
	if (opt->flags == 0 || len == 0)
		return false;
	return k->put == XPI_ROUTE_AM ? xpi_tx_alone(ep) : len <= ep->tp->caps.put_short;
}

/* The key and its bounds were looked at. */
static inline bool xpi_fast_put_may_coalesce(struct xport_ep *ep, const void *buf, size_t len,
                                             const struct xport_rkey *k, const struct xport_opt *opt)
{
	return k->put == XPI_ROUTE_AM && len > 0 && len <= XPI_COPY_MAX && opt != NULL && opt->mr == NULL &&
	       (opt->flags & (XPORT_LOCAL | XPORT_QUIET)) != 0 &&
	       xpi_fast_packs(ep, sizeof(struct xpi_rec_put) + len) && xpi_fast_may(ep, buf, len);
}

static inline int xpi_fast_put_coalesce(struct xport_ep *ep, const void *buf, size_t len, const struct xport_rkey *k,
                                        uint64_t offset, const struct xport_opt *opt)
{
	struct xpi_rec_put *rec = xpi_tx_next(ep->tx.open);

	rec->r = (struct xpi_rec){.type = XPI_REC_PUT, .len = htole32((uint32_t)len)};
	rec->region = htole64(k->region);
	rec->offset = htole64(offset);
	rec->op = rec->zero = 0;
	xpi_fast_coalesce(ep, sizeof(*rec), buf, len, XPORT_OP_PUT, opt->context);
	ep->tx.change_seq = xpi_tx_seq(ep);
	ep->rma.n_posted++;
	if ((opt->flags & XPORT_QUIET) != 0)
		return XPORT_OK;
	xpi_fast_completion(ep, XPORT_OP_PUT, opt->context, 0, len);
	ep->x->cq.next++;
	return XPORT_OK;
}

static inline int xpi_fast_put(struct xport_ep *ep, const void *buf, size_t len, struct xport_rkey *k, uint64_t offset,
                               const struct xport_opt *opt)
{
	bool quiet = (opt->flags & XPORT_QUIET) != 0;
	int r;

	if (k->put == XPI_ROUTE_MAPPED) {
		XPI_PROBE_OP_POSTED(ep, XPORT_OP_PUT, len, opt->context);
		atomic_thread_fence(memory_order_release); /* as xpi_copy_out */
		xpi_copy_few(k->direct + offset, buf, len);
		ep->rma.n_posted++;
		ep->n.bytes_out += len;
		if (quiet)
			return XPORT_OK;
		xpi_fast_completion(ep, XPORT_OP_PUT, opt->context, 0, len);
		ep->x->cq.next++;
		return XPORT_OK;
	}
	if (xpi_rarely(k->put == XPI_ROUTE_NATIVE))
		return xpi_fast_put_network(ep, buf, len, k, offset, opt);
	if (quiet)
		return xpi_fast_put_message(ep, buf, len, k->region, offset, opt->context);
	xpi_fast_completion(ep, XPORT_OP_PUT, opt->context, 0, len);
	r = xpi_fast_put_message(ep, buf, len, k->region, offset, opt->context);
	if (xpi_rarely(r != XPORT_OK))
		return r;
	ep->x->cq.next++;
	return XPORT_OK;
}

#endif
