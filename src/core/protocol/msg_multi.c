/* SPDX-License-Identifier: BSD-3-Clause */
/* msg_multi.c - receives that take many messages: posting them, and what they take. */
#include <stdlib.h>

#include "base/copy.h"
#include "core/object/completion.h"
#include "core/object/deadline.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/match.h"
#include "core/object/mr.h"
#include "core/object/multi.h"
#include "core/object/op_life.h"
#include "core/object/stats.h"
#include "core/protocol/msg.h"

static uint64_t multi_room(const struct xpi_multi *m)
{
	return m->len - m->used;
}

/* An operation for the next message, without its place: no memory ends the endpoint, as for a message without a receive. */
static struct xpi_op *part_new(struct xpi_op *op, struct xport_ep *ep)
{
	struct xpi_multi *m = xpi_multi_of(op);
	struct xpi_op *part = xpi_op_get(ep->x, NULL, XPORT_OP_RECV);

	if (part == NULL)
		return NULL;
	part->context = op->context;
	part->buf = m->buf + m->used;
	part->offset = m->used;
	part->flags = op->flags & (XPORT_EAGER | XPI_OP_TIMED);
	part->stamp = 0;
	return part;
}

/* A message of `stored` bytes takes its lines. */
static void part_took(struct xpi_multi *m, uint64_t stored)
{
	uint64_t lines = (stored > 0 ? stored + XPI_MULTI_LINE - 1 : XPI_MULTI_LINE) & ~(uint64_t)(XPI_MULTI_LINE - 1);

	m->used = lines < multi_room(m) ? m->used + lines : m->len;
}

/* The peer's window gets its `charge` back when the message is reaped, so that it bounds those that are not. */
static bool take_eager(struct xpi_op *op, struct xport_ep *ep, uint64_t tag, const uint8_t *data, uint64_t length,
                       uint32_t charge)
{
	struct xpi_multi *m = xpi_multi_of(op);
	uint64_t n = length < multi_room(m) ? length : multi_room(m);
	struct xpi_op *part = part_new(op, ep);

	if (part == NULL)
		return false;
	part->ep = ep;
	part->peer = ep->peer.incarnation;
	ep->refs++;
	ep->n.posted[XPORT_OP_RECV]++;
	ep->n.bytes_in += n;
	part->flags = 0;
	part->charge = charge;
	part->tag = tag;
	part->len = length;
	xpi_copy(part->buf, data, n);
	part_took(m, n);
	if (length > n) {
		part->status = XPORT_ERR_TRUNCATED;
		xpi_stats_error(ep, part->status);
	}
	xpi_cq_push(&ep->x->cq, part);
	return true;
}

/* Its body follows, into the place that it takes now. `cts` belongs to the endpoint if this succeeds. */
static bool take_long(struct xpi_op *op, struct xpi_op *cts, struct xport_ep *ep, uint64_t tag, uint64_t length,
                      uint32_t rts)
{
	struct xpi_multi *m = xpi_multi_of(op);
	uint64_t room = multi_room(m), n = (op->flags & XPORT_EAGER) != 0 ? 0 : length < room ? length : room;
	struct xport *x = ep->x;
	struct xpi_op *part;
	uint64_t id;

	if (m->at_ms != INT64_MAX && !xpi_deadline_space(x))
		return false;
	part = part_new(op, ep);
	if (part == NULL)
		return false;
	part->len = room;
	part->flags |= XPI_OP_PART;
	part->multi = m;
	part->mr = op->mr;
	if (part->mr != NULL)
		part->mr->busy++;
	m->fetching++;
	part_took(m, n);
	id = xpi_op_id(x, part);
	x->nreceives++; /* until it is bound to the endpoint, which is at once */
	xpi_msg_accept_body(part, cts, ep, tag, length, rts);
	xpi_deadline_add(x, id, m->at_ms);
	return true;
}

static bool used_up(const struct xpi_op *op)
{
	const struct xpi_multi *m = xpi_multi_of(op);

	return multi_room(m) < m->least;
}

/* It stands in its list, and takes no more. */
static void multi_ends(struct xport *x, struct xpi_op *op, int status)
{
	xpi_match_remove(x->match, op);
	xpi_multi_end(x, op, status);
}

void xpi_msg_multi_eager(struct xpi_op *op, struct xport_ep *ep, uint64_t tag, const uint8_t *data, uint64_t length)
{
	uint32_t charge = xpi_charge(length);

	ep->rx.state.freed -= charge; /* it was counted as consumed, and has not been told yet */
	if (!take_eager(op, ep, tag, data, length, charge))
		xpi_ep_fail(ep, XPORT_ERR_NO_MEMORY, XPORT_EVENT_LOST);
	else if (used_up(op))
		multi_ends(ep->x, op, XPORT_OK);
}

void xpi_msg_multi_long(struct xpi_op *op, struct xpi_op *cts, struct xport_ep *ep, uint64_t tag, uint64_t length,
                        uint32_t rts)
{
	if (!take_long(op, cts, ep, tag, length, rts)) {
		xpi_op_put(ep->x, cts);
		xpi_ep_fail(ep, XPORT_ERR_NO_MEMORY, XPORT_EVENT_LOST);
	} else if (used_up(op)) {
		multi_ends(ep->x, op, XPORT_OK);
	}
}

/* ---- posting ---- */

/* A message that had come before. */
static bool take_waiting(struct xpi_op *op, const struct xpi_unexpected *u)
{
	struct xpi_op *cts;

	if (u->rts == 0)
		return take_eager(op, u->ep, u->tag, u->data, u->length, u->charge);
	cts = xpi_op_get(u->ep->x, u->ep, XPI_OP_CTS);
	if (cts == NULL)
		return false;
	if (take_long(op, cts, u->ep, u->tag, u->length, u->rts))
		return true;
	xpi_op_put(u->ep->x, cts);
	return false;
}

/* A message without memory is lost, and its endpoint with it; those of other peers go on. */
static void take_all_waiting(struct xport *x, struct xpi_op *op, const struct xport_ep *peer, struct xpi_unexpected *u,
                             struct xpi_list *at)
{
	for (; u != NULL; u = used_up(op) ? NULL : xpi_match_message_from(x->match, op, peer, &at)) {
		if (!take_waiting(op, u)) {
			xpi_ep_fail(u->ep, XPORT_ERR_NO_MEMORY, XPORT_EVENT_LOST);
			at = NULL; /* that may drop messages of it */
		}
		xpi_msg_drop(x, u);
	}
}

static int multi_valid(struct xport *x, void *buf, size_t len, const struct xport_opt *opt)
{
	const struct xport_opt plain = xpi_opt_plain(opt, XPORT_MULTI | XPORT_PEER);

	if ((opt->flags & XPORT_PEER) != 0 && opt->source == NULL)
		return xpi_msg_source_refuse(x, "xport_recv");
	if (!xpi_opt_fits(x, buf, len, &plain, XPORT_EAGER, true))
		return xpi_opt_refuse(x, "xport_recv", buf, len, &plain, XPORT_EAGER);
	if (opt->value == 0 || opt->value > len)
		return xpi_refuse(
			x, XPORT_ERR_INVALID, "xport_recv",
			"opt->value is %llu: with XPORT_MULTI it is the longest message that must fit, 1 to %zu",
			(unsigned long long)opt->value, len);
	return xpi_msg_receive_may(x, "xport_recv", opt);
}

static struct xpi_op *multi_new(struct xport *x, void *buf, size_t len, const struct xport_opt *opt, int64_t at_ms)
{
	struct xpi_multi *m = malloc(sizeof(*m));
	struct xport_ep *source = (opt->flags & XPORT_PEER) != 0 ? NULL : opt->source;
	struct xpi_op *op = m != NULL ? xpi_op_get(x, source, XPI_OP_MULTI | XPORT_OP_RECV) : NULL;

	if (op == NULL) {
		free(m);
		return NULL;
	}
	*m = (struct xpi_multi){.op = op, .buf = buf, .len = len, .least = opt->value, .at_ms = at_ms};
	op->buf = (uint8_t *)m;
	op->len = UINT64_MAX; /* so that deliver finds it, as a list */
	op->offset = 0;
	op->flags = (uint8_t)((opt->flags & XPORT_EAGER) | (at_ms != INT64_MAX ? XPI_OP_TIMED : 0));
	op->context = opt->context;
	op->stamp = 0;
	return op;
}

/*
 * Posts one for a peer. The source must be open even if messages have come: without an endpoint nothing would say when the peer
 * is gone.
 */
static int multi_post_peer(struct xport *x, struct xpi_op *op, struct xport_ep *source)
{
	if (source->state != XPI_EP_OPEN)
		return xpi_ep_refuse(source, "xport_recv");
	if (!xpi_match_post_peer(x->match, op, source))
		return xpi_refuse(x, XPORT_ERR_NO_MEMORY, "xport_recv", "no memory to wait for the peer");
	return XPORT_OK;
}

/* Posts it. *u: the first message that it takes. */
static int multi_post(struct xport *x, struct xpi_op *op, const struct xport_opt *opt, struct xpi_unexpected **u,
                      struct xpi_list **at)
{
	struct xport_ep *source = opt->source;

	if ((opt->flags & XPORT_PEER) != 0) {
		int r = multi_post_peer(x, op, source);

		if (r == XPORT_OK)
			*u = xpi_match_message_from(x->match, op, source, at);
		return r;
	}
	*u = xpi_match_message_from(x->match, op, NULL, at);
	if (*u == NULL && source != NULL && source->state != XPI_EP_OPEN)
		return xpi_ep_refuse(source, "xport_recv");
	xpi_match_post(x->match, op);
	return XPORT_OK;
}

int xpi_msg_recv_multi(struct xport *x, void *buf, size_t len, uint64_t tag, uint64_t mask, const struct xport_opt *opt)
{
	const struct xport_ep *peer = (opt->flags & XPORT_PEER) != 0 ? opt->source : NULL;
	struct xpi_list *at = NULL;
	struct xpi_unexpected *u;
	struct xpi_op *op;
	int64_t at_ms;
	uint64_t id;
	int r = multi_valid(x, buf, len, opt);

	xpi_assert_locked(x);
	if (r == XPORT_OK)
		r = xpi_deadline_begin(x, "xport_recv", opt, &at_ms);
	if (r != XPORT_OK)
		return r;
	op = multi_new(x, buf, len, opt, at_ms);
	if (op == NULL)
		return xpi_refuse(x, XPORT_ERR_NO_MEMORY, "xport_recv", "no memory for another operation");
	op->tag = tag;
	op->mask = mask;
	op->mr = opt->mr;
	/* First: the messages that it takes add deadlines, too. */
	r = multi_post(x, op, opt, &u, &at);
	if (r != XPORT_OK) {
		free(xpi_multi_of(op));
		xpi_op_put(x, op);
		return r;
	}
	if (op->mr != NULL)
		op->mr->busy++;
	x->nreceives++;
	id = xpi_op_id(x, op);
	if (opt->id != NULL)
		*opt->id = id;
	xpi_deadline_add(x, id, at_ms);
	take_all_waiting(x, op, peer, u, at);
	if (used_up(op))
		multi_ends(x, op, XPORT_OK);
	else if (op->ep != NULL && op->ep->state != XPI_EP_OPEN)
		multi_ends(x, op, op->ep->end.reason != XPORT_OK ? op->ep->end.reason : XPORT_ERR_CLOSED);
	return XPORT_OK;
}
