/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rma_list.c - puts with lists by message: many short runs share long frames.
 *
 * A frame costs more than to copy the data into it, up to some length. So short runs are copied into frames as long as
 * the peer takes, a record each.
 */
#include <string.h>

#include "core/config/settings.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/protocol/rma.h"
#include "core/protocol/tx.h"
#include "core/wire/frame.h"

/* A longer run is sent from where it lies. The rest of a frame below ROOM_MIN is not used for a part of a run. */
enum { GATHER_MAX = 128 << 10, ROOM_MIN = 512 };

static bool gathers(const struct xport_ep *ep, const struct xpi_run *run)
{
	size_t cma_min = ep->tp->caps.cma_min;

	/* Data of this length is read by the peer. */
	if (cma_min != 0 && run->len >= cma_min && (ep->x->settings.emulate & XPI_EMULATE_CMA) == 0)
		return false;
	return run->len <= GATHER_MAX;
}

bool xpi_runs_gather_any(const struct xport_ep *ep, const struct xpi_run *run, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (gathers(ep, &run[i]))
			return true;
	return false;
}

bool xpi_runs_fit(struct xport_ep *ep, const struct xpi_run *run, unsigned n)
{
	uint64_t need = 0;

	xpi_assert_locked(ep->x);
	for (unsigned i = 0; i < n; i++) {
		if (!gathers(ep, &run[i]))
			return false;
		need += sizeof(struct xpi_rec_put) + run[i].len;
	}
	return need <= ep->tx.frame_max - sizeof(struct xpi_frame_head) && xpi_tx_open_long(ep, need);
}

/* As much of a run as fits into one frame; 0: nothing can be sent now. */
static uint32_t gather_step(struct xport_ep *ep, const struct xpi_op *op, const struct xpi_run *run, uint16_t ahead,
                            uint32_t name)
{
	const size_t head = sizeof(struct xpi_rec_put);
	size_t least = run->len < ROOM_MIN ? (size_t)run->len : ROOM_MIN, room;
	struct xpi_rec_put *rec;
	uint32_t n;

	if (!xpi_tx_open_long(ep, head + least))
		return 0;
	room = ep->tx.frame_max - ep->tx.open->len - head;
	n = (uint32_t)(run->len < room ? run->len : room);
	rec = xpi_tx_next(ep->tx.open);
	*rec = (struct xpi_rec_put){
		.r = {.type = ahead != 0 ? XPI_REC_PUT_AHEAD : XPI_REC_PUT, .b = htole16(ahead), .len = htole32(n)},
		.region = htole64(op->region),
		.offset = htole64(run->offset),
		.op = htole32(name),
	};
	memcpy((uint8_t *)rec + head, run->addr, n);
	ep->tx.open->len += (uint32_t)head + n;
	return n;
}

/* All that could be gathered is in frames: the last one leaves as the record of a single operation would. */
static void gathered(struct xport_ep *ep, struct xpi_op *op, bool tracked, bool alone)
{
	op->seq = ep->tx.change_seq = xpi_tx_seq(ep);
	ep->n.slow_messages++;
	if (tracked && ep->tx.open != NULL)
		ep->tx.open->flags |= XPI_FRAME_ACK_NOW;
	if (alone) {
		(void)xpi_tx_flush(ep); /* if it fails, the pump sends it */
		ep->tx.epoch = ep->x->epoch;
	} else {
		xpi_tx_gathered(ep);
	}
	op->waits = tracked ? XPI_WAIT_ACK : 0;
	xpi_op_settle(op);
}

int xpi_put_copy_step(struct xport_ep *ep, struct xpi_op *op, uint16_t ahead, bool tracked)
{
	uint32_t name = tracked ? xpi_op_name(ep->x, op) : 0;
	bool alone = xpi_tx_alone(ep);

	xpi_assert_locked(ep->x);
	while (op->done < op->len) {
		struct xpi_run rest = {
			.addr = op->buf + op->done, .len = op->len - op->done, .offset = op->offset + op->done};
		uint32_t n = gather_step(ep, op, &rest, ahead, name);

		if (n == 0)
			return XPORT_ERR_AGAIN;
		op->done += n;
	}
	ep->rma.q_sent++;
	gathered(ep, op, tracked, alone);
	return XPORT_OK;
}

unsigned xpi_runs_gather(struct xport_ep *ep, struct xpi_op *op, struct xpi_run *run, unsigned n)
{
	bool tracked = (op->flags & XPORT_QUIET) == 0, alone = xpi_tx_alone(ep);
	uint32_t name = tracked ? xpi_op_name(ep->x, op) : 0;
	unsigned left = 0, i = 0;

	xpi_assert_locked(ep->x);
	for (; i < n; i++) {
		uint32_t sent = 1;

		if (!gathers(ep, &run[i])) {
			run[left++] = run[i];
			continue;
		}
		while (run[i].len > 0 && (sent = gather_step(ep, op, &run[i], 0, name)) > 0) {
			run[i].addr += sent;
			run[i].offset += sent;
			run[i].len -= sent;
		}
		if (sent == 0)
			break;
	}
	gathered(ep, op, tracked, alone);
	memmove(&run[left], &run[i], (n - i) * sizeof(*run));
	return left + n - i;
}
