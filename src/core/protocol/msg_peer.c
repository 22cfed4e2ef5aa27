/* SPDX-License-Identifier: BSD-3-Clause */
/* msg_peer.c - receives for a peer, over whatever endpoint its messages come. */
#include "core/object/deadline.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/match.h"
#include "core/object/match_peer.h"
#include "core/object/mr.h"
#include "core/object/op_life.h"
#include "core/object/pieces.h"
#include "core/object/usdt.h"
#include "core/protocol/msg.h"

int xpi_msg_source_refuse(struct xport *x, const char *operation)
{
	return xpi_refuse(x, XPORT_ERR_INVALID, operation, "XPORT_PEER needs opt->source");
}

static struct xpi_op *peer_op(struct xport *x, unsigned kind, void *buf, uint64_t len, const struct xport_opt *opt,
                              int64_t at_ms)
{
	struct xpi_op *op = xpi_op_get(x, NULL, kind);

	if (op == NULL)
		return NULL;
	op->buf = buf;
	op->len = kind == XPORT_OP_RECV ? len : UINT64_MAX; /* so that deliver finds a list */
	op->offset = 0;
	op->flags = (uint8_t)((opt->flags & XPORT_EAGER) | (at_ms != INT64_MAX ? XPI_OP_TIMED : 0));
	op->context = opt->context;
	op->mr = kind == XPORT_OP_RECV ? opt->mr : NULL;
	op->stamp = 0;
	return op;
}

/* A receive of `len` bytes for the peer of opt->source, into `buf`: posted, or matched at once. */
static int peer_post(struct xport *x, unsigned kind, const char *operation, void *buf, uint64_t len, uint64_t tag,
                     uint64_t mask, const struct xport_opt *opt)
{
	struct xport_ep *source = opt->source;
	struct xpi_unexpected *u;
	struct xpi_op *op;
	int64_t at_ms;
	int r = xpi_msg_receive_may(x, operation, opt);

	if (r == XPORT_OK)
		r = xpi_deadline_begin(x, operation, opt, &at_ms);
	if (r != XPORT_OK)
		return r;
	op = peer_op(x, kind, buf, len, opt, at_ms);
	if (op == NULL)
		return xpi_refuse(x, XPORT_ERR_NO_MEMORY, operation, "no memory for another operation");
	op->tag = tag;
	op->mask = mask;
	u = xpi_match_message_peer(x->match, source, tag, mask);
	if (u == NULL && source->state != XPI_EP_OPEN)
		r = xpi_ep_refuse(source, operation);
	else if (u == NULL && !xpi_match_post_peer(x->match, op, source))
		r = xpi_refuse(x, XPORT_ERR_NO_MEMORY, operation, "no memory to wait for the peer");
	if (r != XPORT_OK) {
		xpi_op_put(x, op);
		return r;
	}
	if (op->mr != NULL)
		op->mr->busy++;
	x->nreceives++;
	XPI_PROBE_OP_POSTED(source, XPORT_OP_RECV, len, op->context);
	if (opt->id != NULL)
		*opt->id = xpi_op_id(x, op);
	xpi_deadline_add(x, xpi_op_id(x, op), at_ms);
	if (u != NULL)
		xpi_msg_take_waiting(x, op, u);
	else if (kind != XPORT_OP_RECV)
		xpi_pieces_posted(xpi_pieces_of(op));
	return XPORT_OK;
}

int xpi_msg_recv_peer(struct xport *x, void *buf, size_t len, uint64_t tag, uint64_t mask, const struct xport_opt *opt)
{
	const struct xport_opt plain = xpi_opt_plain(opt, XPORT_PEER);

	xpi_assert_locked(x);
	if (opt->source == NULL)
		return xpi_msg_source_refuse(x, "xport_recv");
	if (!xpi_opt_fits(x, buf, len, &plain, XPORT_EAGER, true))
		return xpi_opt_refuse(x, "xport_recv", buf, len, &plain, XPORT_EAGER);
	return peer_post(x, XPORT_OP_RECV, "xport_recv", buf, len, tag, mask, opt);
}

int xpi_msg_recvv_peer(struct xport *x, const struct xport_iov *list, size_t count, uint64_t tag, uint64_t mask,
                       const struct xport_opt *opt)
{
	const struct xport_opt plain = xpi_opt_plain(opt, XPORT_PEER);
	struct xpi_pieces *p;
	uint64_t total;
	int r;

	xpi_assert_locked(x);
	if (opt->source == NULL)
		return xpi_msg_source_refuse(x, "xport_recvv");
	r = xpi_pieces_valid(x, "xport_recvv", list, count, &plain, XPORT_EAGER, true, &total);
	if (r == XPI_PIECES_TIMED)
		r = xpi_opt_refuse(x, "xport_recvv", NULL, 0, &plain, XPORT_EAGER);
	if (r != XPORT_OK)
		return r;
	p = xpi_pieces_new(list, count, opt, total);
	if (p == NULL)
		return xpi_refuse(x, XPORT_ERR_NO_MEMORY, "xport_recvv", "no memory for the list");
	r = peer_post(x, XPI_OP_LIST | XPORT_OP_RECV, "xport_recvv", p, total, tag, mask, opt);
	if (r != XPORT_OK)
		xpi_pieces_free(p);
	return r;
}

void xpi_msg_peers_gone(struct xport *x)
{
	struct xpi_op *op;

	xpi_assert_locked(x);
	while ((op = xpi_peers_gone(xpi_match_peers(x->match))) != NULL) {
		xpi_match_remove(x->match, op);
		xpi_recv_end(x, op, XPORT_ERR_PEER_LOST);
	}
}
