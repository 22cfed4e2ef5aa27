/* SPDX-License-Identifier: BSD-3-Clause */
/* chaos_item.c - items: held, completed, reported to the core, dropped. */
#include <stdlib.h>
#include <string.h>

#include "chaos.h"

struct chaos_item *chaos_item_new(enum chaos_kind kind, struct chaos_ep *ep, struct xpi_req *up, size_t room)
{
	struct chaos_item *it = malloc(sizeof(*it) + room);

	if (it == NULL)
		return NULL;
	memset(it, 0, sizeof(*it));
	it->kind = kind;
	it->ep = ep;
	it->up = up;
	return it;
}

int chaos_lane(const struct xpi_be *be, enum chaos_kind kind)
{
	return be->ordered || kind <= CHAOS_AM_TWO ? CHAOS_LANE_AM : CHAOS_LANE_RMA;
}

uint64_t chaos_later(struct xpi_be *be, struct chaos_dice *d)
{
	return be->now + chaos_upto(d, be->config.span);
}

void chaos_hold(struct xpi_be *be, struct chaos_item *it)
{
	it->due = chaos_chance(be, &it->ep->dice, CHAOS_DELAY) ? chaos_later(be, &it->ep->dice) : be->now + 1;
	it->ep->waiting[chaos_lane(be, it->kind)]++;
	xpi_list_push(&be->held, &it->link);
}

/* ---- reports to the core ---- */

void chaos_tell(struct xpi_be *be, struct chaos_item *it)
{
	be->calling++;
	switch (it->kind) {
	case CHAOS_FAILED:
		be->up->ep_failed(be->core, it->ep->core_ep, it->code, (const char *)it->copy);
		break;
	case CHAOS_FRAME:
		be->up->am_recv(be->core, it->ep != NULL ? it->ep->core_ep : NULL, it->copy, it->hlen,
		                it->dlen > 0 ? it->copy + it->hlen : NULL, it->dlen);
		memset(it->copy, 0xdb, it->hlen + it->dlen); /* the core may read it during the call only */
		break;
	default:
		be->up->done(be->core, it->up, it->status);
	}
	be->calling--;
	free(it);
}

/* The item is already complete for the core: the next drain and the loss of the endpoint report the failure. */
static void failed_unseen(struct xpi_be *be, struct chaos_item *it, int status)
{
	if (status != XPORT_OK) {
		if (it->ep->put_status == XPORT_OK)
			it->ep->put_status = status;
		chaos_fail(be, it->ep, status, "an earlier operation failed");
	}
	free(it);
}

void chaos_end_late(struct xpi_be *be, struct chaos_item *it, int status)
{
	it->status = status;
	it->due = chaos_later(be, &it->ep->dice);
	xpi_list_push(&be->late, &it->link);
}

void chaos_end(struct xpi_be *be, struct chaos_item *it, int status)
{
	if (it->up == NULL) {
		failed_unseen(be, it, status);
	} else if (chaos_chance(be, &it->ep->dice, CHAOS_LATE)) {
		chaos_end_late(be, it, status);
	} else {
		it->status = status;
		chaos_tell(be, it);
	}
}

void chaos_fail(struct xpi_be *be, struct chaos_ep *ep, int64_t code, const char *why)
{
	size_t len = strlen(why) + 1;
	struct chaos_item *it;

	if (be->config.profile->silent)
		return;
	it = chaos_item_new(CHAOS_FAILED, ep, NULL, len);
	if (it == NULL)
		return; /* it is only a hint */
	memcpy(it->copy, why, len);
	it->code = code;
	chaos_end_late(be, it, XPORT_OK);
}

static void forget_in(struct xpi_list *list, const struct chaos_ep *ep)
{
	xpi_list_for_safe(l, list) {
		struct chaos_item *it = xpi_container(l, struct chaos_item, link);

		if (ep != NULL && it->ep != ep)
			continue;
		xpi_list_del(l);
		free(it);
	}
}

void chaos_forget(struct xpi_be *be, const struct chaos_ep *ep)
{
	forget_in(&be->held, ep);
	forget_in(&be->out, ep);
	forget_in(&be->late, ep);
	forget_in(&be->frames, ep);
}
