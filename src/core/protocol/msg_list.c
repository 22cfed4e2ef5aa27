/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * msg_list.c - sends whose data is a list of pieces.
 *
 * A short message is copied from its pieces into the frame that it leaves in, and is complete then. A long one is a
 * rendezvous like any other. Its body goes piece by piece: pieces of length cma_min are offered to the peer, one after the
 * other (cma.h); of the others short ones are copied into long frames, long ones are sent from where they lie.
 */
#include <string.h>

#include "core/config/settings.h"
#include "core/object/cma_window.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/object/pieces.h"
#include "core/protocol/cma.h"
#include "core/protocol/msg.h"
#include "core/protocol/msg_step.h"
#include "core/protocol/tx.h"
#include "core/wire/frame.h"

/* ---- short messages ---- */

static void gather_all(const struct xport_iov *list, size_t count, uint8_t *to)
{
	for (size_t i = 0; i < count; i++) {
		if (list[i].len > 0)
			memcpy(to, list[i].addr, list[i].len);
		to += list[i].len;
	}
}

/* Space for a record of `n` bytes, in a frame with others if it is short. */
static bool room_for_record(struct xport_ep *ep, size_t n)
{
	if (n <= XPI_PACK_MAX && ep->tx.open != NULL && !xpi_tx_fits(ep, n) && xpi_tx_flush(ep) != XPORT_OK)
		return false;
	return xpi_tx_open_long(ep, n);
}

int xpi_msg_send_gathered(struct xport_ep *ep, struct xpi_op *op, const struct xport_iov *list, size_t count)
{
	uint32_t charge = xpi_charge(op->len);
	bool alone = xpi_tx_alone(ep);
	struct xpi_rec_send *rec;

	xpi_assert_locked(ep->x);
	if (!xpi_msg_predecessors_gone(ep, op) || !xpi_msg_window_takes(ep, charge) ||
	    !room_for_record(ep, sizeof(*rec) + op->len))
		return XPORT_ERR_AGAIN;
	if (ep->keys.direct) /* as xpi_msg_step_inline */
		atomic_thread_fence(memory_order_release);
	rec = xpi_tx_next(ep->tx.open);
	*rec = (struct xpi_rec_send){.r = {.type = XPI_REC_SEND, .len = htole32((uint32_t)op->len)},
	                             .tag = htole64(op->tag)};
	gather_all(list, count, (uint8_t *)rec + sizeof(*rec));
	ep->tx.open->len += (uint32_t)(sizeof(*rec) + op->len);
	ep->msg.used += charge;
	ep->n.slow_messages++;
	if (alone) {
		(void)xpi_tx_flush(ep); /* if it fails, the pump sends it */
		ep->tx.epoch = ep->x->epoch;
	} else {
		xpi_tx_gathered(ep);
	}
	op->waits = 0;
	xpi_op_settle(op);
	return XPORT_OK;
}

int xpi_msg_list_step(struct xport_ep *ep, struct xpi_op *op)
{
	const struct xpi_pieces *p = xpi_pieces_of(op);

	if (op->len <= xpi_msg_eager_max(ep))
		return xpi_msg_send_gathered(ep, op, p->piece, p->n);
	if (!xpi_msg_predecessors_gone(ep, op))
		return XPORT_ERR_AGAIN;
	if (ep->keys.direct)
		atomic_thread_fence(memory_order_release);
	return xpi_msg_rts_step(ep, op);
}

/* ---- the bodies of long messages ---- */

/* The part of the body from op->done on that is in one place. */
struct part {
	uint8_t *at;
	uint64_t len; /* to the end of the piece, or of what the peer accepts */
};

static struct part part_of(struct xpi_op *op)
{
	struct part part;

	part.at = xpi_pieces_at(xpi_pieces_of(op), op->done, &part.len);
	if (part.len > op->mask - op->done)
		part.len = op->mask - op->done;
	return part;
}

static bool peer_reads(const struct xport_ep *ep, const struct xpi_op *op, const struct part *part)
{
	size_t min = ep->tp->caps.cma_min;

	return !xpi_pieces_of(op)->copied && min != 0 && part->len >= min &&
	       (ep->x->settings.emulate & XPI_EMULATE_CMA) == 0;
}

/* The peer reads the part. An operation has one offer: the next one has to wait until the peer has read the last one. */
static int part_offer(struct xport_ep *ep, struct xpi_op *op, const struct part *part)
{
	struct xpi_rec_cma rec = {.r = {.a = XPI_REC_DATA}, .op = htole32((uint32_t)op->region)};
	int r;

	if (op->offer != 0 && op->done >= op->after) {
		if (!xpi_seq_reached(ep->tx.acked, op->seq)) {
			ep->tx.blocked = true;
			return XPORT_ERR_BUSY;
		}
		xpi_cma_withdraw(op);
	}
	if (op->offer == 0) {
		r = xpi_cma_offer_at(ep, op, part->at, op->done, part->len);
		if (r != XPORT_OK)
			return r;
		op->after = op->done + part->len; /* where the offer ends: nothing goes before a body */
	}
	r = xpi_cma_step(ep, op, &rec, op->after);
	if (r == XPORT_OK)
		op->waits = XPI_WAIT_SENT;
	return r;
}

static int part_send(struct xport_ep *ep, struct xpi_op *op, const struct part *part, uint64_t n)
{
	struct xpi_rec_data rec = {.r = {.type = XPI_REC_DATA, .len = htole32((uint32_t)n)},
	                           .at = htole64(op->done),
	                           .into = htole32((uint32_t)op->region)};

	if (xpi_tx_record(ep, op, &rec.r, sizeof(rec), part->at, 0) < 0)
		return XPORT_ERR_AGAIN;
	op->done += n;
	return XPORT_OK;
}

/* Bytes from op->done on that a frame takes, up to a part that the peer reads. */
static uint64_t gather_len(struct xport_ep *ep, struct xpi_op *op, uint64_t room)
{
	uint64_t done = op->done;
	struct part part;

	while (op->done < op->mask && op->done - done < room) {
		part = part_of(op);
		if (op->done > done && peer_reads(ep, op, &part))
			break;
		op->done += part.len;
	}
	part.len = op->done - done < room ? op->done - done : room;
	op->done = done;
	return part.len;
}

static int parts_gather(struct xport_ep *ep, struct xpi_op *op, uint64_t room)
{
	uint64_t n = gather_len(ep, op, room);
	struct xpi_rec_data *rec;

	if (!xpi_tx_open_long(ep, sizeof(*rec) + n))
		return XPORT_ERR_AGAIN;
	rec = xpi_tx_next(ep->tx.open);
	*rec = (struct xpi_rec_data){.r = {.type = XPI_REC_DATA, .len = htole32((uint32_t)n)},
	                             .at = htole64(op->done),
	                             .into = htole32((uint32_t)op->region)};
	xpi_pieces_out(xpi_pieces_of(op), op->done, (uint8_t *)rec + sizeof(*rec), n);
	ep->tx.open->len += (uint32_t)(sizeof(*rec) + n);
	op->done += n;
	return XPORT_OK;
}

static int body_part(struct xport_ep *ep, struct xpi_op *op)
{
	uint64_t room = xpi_tx_room(ep, sizeof(struct xpi_rec_data));
	struct part part = part_of(op);
	int r = XPORT_ERR_NOT_SUPPORTED;

	if (peer_reads(ep, op, &part) || (op->offer != 0 && op->done < op->after))
		r = part_offer(ep, op, &part);
	if (r != XPORT_ERR_NOT_SUPPORTED)
		return r;
	return part.len >= room && !xpi_pieces_of(op)->copied ? part_send(ep, op, &part, room)
	                                                      : parts_gather(ep, op, room);
}

int xpi_msg_list_body_step(struct xport_ep *ep, struct xpi_op *op)
{
	if (op->done < op->mask) {
		int r = body_part(ep, op);

		if (r != XPORT_OK)
			return r;
	}
	if (op->done < op->mask)
		return XPORT_OK;
	if (op->offer != 0) {
		ep->n.cma++;
		/* Of op->seq, which carried the last record of the offer; frames may have followed it. */
		op->waits = xpi_seq_reached(ep->tx.acked, op->seq) ? 0 : XPI_WAIT_ACK;
	} else {
		ep->n.slow_messages++;
		op->waits = 0;
	}
	xpi_op_settle(op);
	return XPORT_OK;
}
