/* SPDX-License-Identifier: BSD-3-Clause */
/* chaos_comp.c - callbacks of the wrapped back end, and polling. */
#include <string.h>

#include "chaos.h"

enum { POLL_MAX = 64, NAPS_MAX = 3 };

/* ---- callbacks of the wrapped back end ---- */

static struct xpi_be *of(struct xpi_core *core)
{
	return (struct xpi_be *)core;
}

static int frames_deliver(struct xpi_be *be, bool all)
{
	int n = 0;

	while (!xpi_list_empty(&be->frames) && (all || n < POLL_MAX)) {
		struct chaos_item *it = xpi_container(be->frames.next, struct chaos_item, link);

		if (!all && it->due > be->now)
			break;
		xpi_list_del(&it->link);
		chaos_tell(be, it);
		n++;
	}
	return n;
}

/* Frames keep their order, across all senders. */
static void on_frame(struct xpi_core *core, struct xpi_core_ep *from, const void *hdr, size_t hlen, const void *data,
                     size_t dlen)
{
	struct chaos_ep *ep = (struct chaos_ep *)from;
	struct xpi_be *be = of(core);
	bool off = chaos_chance(be, &be->dice, CHAOS_LATE);
	struct chaos_item *it;

	chaos_count(be);
	if (be->config.still != 0 && be->arrived++ >= be->config.still) {
		be->arrived = be->config.still;
		return;
	}
	it = off || !xpi_list_empty(&be->frames) ? chaos_item_new(CHAOS_FRAME, ep, NULL, hlen + dlen) : NULL;
	if (it == NULL) {
		frames_deliver(be, true);
		be->calling++;
		be->up->am_recv(be->core, ep != NULL ? ep->core_ep : NULL, hdr, hlen, data, dlen);
		be->calling--;
		return;
	}
	memcpy(it->copy, hdr, hlen);
	if (dlen > 0)
		memcpy(it->copy + hlen, data, dlen);
	/* It may also be delivered in one piece. */
	it->hlen = chaos_hit(&be->dice, 50) ? hlen : hlen + dlen;
	it->dlen = hlen + dlen - it->hlen;
	it->due = off ? chaos_later(be, &be->dice) : be->now + 1;
	xpi_list_push(&be->frames, &it->link);
}

static void inner_done(struct xpi_core *core, struct xpi_req *req, int status)
{
	struct xpi_be *be = of(core);
	struct chaos_item *it = xpi_container(req, struct chaos_item, req);

	if (status != XPORT_OK && be->config.profile->silent)
		return; /* it stays in be->out for ever */
	xpi_list_del(&it->link);
	chaos_end(be, it, status);
}

static void inner_failed(struct xpi_core *core, struct xpi_core_ep *ep, int64_t code, const char *why)
{
	chaos_fail(of(core), (struct chaos_ep *)ep, code, why);
}

static int same_user(struct xpi_core *core, struct xpi_core_ep *ep)
{
	struct xpi_be *be = of(core);

	return be->up->same_user(be->core, ((struct chaos_ep *)ep)->core_ep);
}

const struct xpi_core_ops chaos_up = {
	.am_recv = on_frame, .done = inner_done, .ep_failed = inner_failed, .same_user = same_user};

/* ---- polling ---- */

/* Posts a held item. XPORT_ERR_AGAIN: it stays held. */
static int try_held(struct xpi_be *be, struct chaos_item *it)
{
	int r;

	if (it->ep->dropped)
		return be->config.profile->silent ? XPORT_ERR_AGAIN : XPORT_ERR_PEER_LOST;
	if (it->due > be->now)
		return XPORT_ERR_AGAIN;
	if (it->up != NULL && it->kind <= CHAOS_AM_TWO && it->sum != chaos_contract_sum(it->hdr, it->hlen))
		chaos_contract_broken(be, "a frame was changed while it was in flight");
	r = chaos_forward(be, it);
	if (r < 0 && be->config.profile->silent)
		r = XPORT_ERR_AGAIN;
	return r == XPORT_ERR_NO_MEMORY ? XPORT_ERR_AGAIN : r;
}

static int held_release(struct xpi_be *be)
{
	int n = 0;

	xpi_list_for_safe(l, &be->held) {
		struct chaos_item *it = xpi_container(l, struct chaos_item, link);
		struct chaos_ep *ep = it->ep;
		int lane = chaos_lane(be, it->kind), r;

		/* A drain waits for earlier items. Puts and gets do not wait for each other. */
		if (ep->stuck[lane] == be->now && (lane == CHAOS_LANE_AM || it->kind == CHAOS_DRAIN))
			continue;
		r = n < POLL_MAX ? try_held(be, it) : XPORT_ERR_AGAIN;
		if (r == XPORT_ERR_AGAIN) {
			ep->stuck[lane] = be->now;
			continue;
		}
		xpi_list_del(l);
		ep->waiting[lane]--;
		n++;
		if (r == XPI_PENDING)
			xpi_list_push(&be->out, &it->link);
		else
			chaos_end(be, it, r);
	}
	return n;
}

/* In the order of their due polls, not of their completion. */
static int tell_late(struct xpi_be *be)
{
	int n = 0;

	xpi_list_for_safe(l, &be->late) {
		struct chaos_item *it = xpi_container(l, struct chaos_item, link);

		if (it->due > be->now || n >= POLL_MAX)
			continue;
		xpi_list_del(l);
		chaos_tell(be, it);
		n++;
	}
	return n;
}

int chaos_poll(struct xpi_be *be)
{
	int n;

	chaos_contract_outside(be, "poll");
	be->now++;
	be->naps = 0;
	n = be->ops->poll(be->be);
	if (n < 0)
		return n;
	return n + frames_deliver(be, false) + held_release(be) + tell_late(be);
}

int chaos_fds(struct xpi_be *be, int *fds, int max)
{
	return be->config.profile->clock ? 0 : be->ops->fds(be->be, fds, max);
}

int chaos_arm(struct xpi_be *be)
{
	if (!xpi_list_empty(&be->held) || !xpi_list_empty(&be->late) || !xpi_list_empty(&be->frames))
		return XPORT_ERR_AGAIN;
	return be->ops->arm(be->be);
}
