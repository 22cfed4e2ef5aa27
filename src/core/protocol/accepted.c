/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/protocol/accepted.h"

#include <stdlib.h>
#include <string.h>

#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/op_life.h"
#include "core/protocol/tx.h"
#include "core/wire/frame.h"
#include "core/wire/hello.h"

int xpi_accepted_step(struct xport_ep *ep, struct xpi_op *op)
{
	struct xpi_rec rec = {.type = XPI_REC_ACCEPTED, .len = htole32(ep->accept.len)};

	/* It is packed, or the back end might read the data after this returned. */
	if (ep->accept.len > XPI_LONE_DATA && !xpi_tx_open_packed(ep, sizeof(rec) + ep->accept.len))
		return XPORT_ERR_AGAIN;
	if (xpi_tx_record(ep, NULL, &rec, sizeof(rec), ep->accept.data, 0) < 0)
		return XPORT_ERR_AGAIN;
	free(ep->accept.data);
	ep->accept.data = NULL;
	ep->accept.len = 0;
	xpi_op_complete(op, XPORT_OK);
	return XPORT_OK;
}

void xpi_accepted_tell(struct xport_ep *ep, struct xpi_op *op, uint8_t *data, size_t len)
{
	xpi_assert_locked(ep->x);
	ep->accept.data = data;
	ep->accept.len = (uint32_t)len;
	if (xpi_list_empty(&ep->msg.q) && xpi_accepted_step(ep, op) == XPORT_OK)
		return;
	xpi_list_push(&ep->msg.q, &op->link);
	ep->fast_left = 0;
	xpi_work(ep);
}

bool xpi_accepted_came(struct xport_ep *ep, const uint8_t *data, uint32_t len)
{
	struct xport *x = ep->x;
	struct xpi_op *room;

	xpi_assert_locked(x);
	if (ep->accepted || ep->accept.came || len > XPI_PRIVATE_MAX)
		return false;
	ep->accept.came = true;
	room = xpi_event_room(x);
	ep->accept.data = len > 0 ? malloc(len) : NULL;
	if (room == NULL || (len > 0 && ep->accept.data == NULL)) {
		xpi_event_unroom(x, &room);
		xpi_ep_fail(ep, XPORT_ERR_NO_MEMORY, XPORT_EVENT_LOST);
		return true;
	}
	if (len > 0)
		memcpy(ep->accept.data, data, len);
	ep->accept.len = len;
	xpi_event(x, &room, XPORT_EVENT_ACCEPTED, XPORT_OK, ep, ep->context);
	return true;
}
