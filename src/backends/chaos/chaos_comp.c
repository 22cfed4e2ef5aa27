/* SPDX-License-Identifier: BSD-3-Clause */
/* chaos_comp.c - items on their way, what comes back from the wrapped back end, and polling. */
#include <stdlib.h>
#include <string.h>

#include "chaos.h"

enum { POLL_MAX = 64, NAPS_MAX = 3 };

/* ---- items ---- */

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

static uint64_t later(struct xpi_be *be, struct chaos_dice *d)
{
	return be->now + chaos_upto(d, be->words.span);
}

void chaos_hold(struct xpi_be *be, struct chaos_item *it)
{
	it->due = chaos_chance(be, &it->ep->dice, CHAOS_DELAY) ? later(be, &it->ep->dice) : be->now + 1;
	it->ep->waiting[chaos_lane(be, it->kind)]++;
	xpi_list_push(&be->held, &it->link);
}

/* ---- the core is told ---- */

static void tell(struct xpi_be *be, struct chaos_item *it)
{
	be->calling++;
	switch (it->kind) {
	case CHAOS_FAILED:
		be->up->ep_failed(be->core, it->ep->core_ep, it->code, (const char *)it->copy);
		break;
	case CHAOS_FRAME:
		be->up->am_recv(be->core, it->copy, it->hlen, it->dlen > 0 ? it->copy + it->hlen : NULL, it->dlen);
		memset(it->copy, 0xdb, it->hlen + it->dlen); /* it is read during the call only */
		break;
	default:
		be->up->done(be->core, it->up, it->status);
	}
	be->calling--;
	free(it);
}

/* The core took it for done: that it failed is told by the next drain, and by the loss of the endpoint. */
static void failed_unseen(struct xpi_be *be, struct chaos_item *it, int status)
{
	if (status != XPORT_OK) {
		if (it->ep->put_status == XPORT_OK)
			it->ep->put_status = status;
		chaos_fail(be, it->ep, status, "what was posted earlier failed");
	}
	free(it);
}

void chaos_end_late(struct xpi_be *be, struct chaos_item *it, int status)
{
	it->status = status;
	it->due = later(be, &it->ep->dice);
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
		tell(be, it);
	}
}

void chaos_fail(struct xpi_be *be, struct chaos_ep *ep, int64_t code, const char *why)
{
	size_t len = strlen(why) + 1;
	struct chaos_item *it;

	if (be->words.manner->silent)
		return;
	it = chaos_item_new(CHAOS_FAILED, ep, NULL, len);
	if (it == NULL)
		return; /* a hint, and no more */
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
	if (ep == NULL)
		forget_in(&be->frames, NULL);
}

/* ---- what comes back ---- */

static struct xpi_be *of(struct xpi_core *core)
{
	return (struct xpi_be *)core;
}

static int deliver(struct xpi_be *be, bool all)
{
	int n = 0;

	while (!xpi_list_empty(&be->frames) && (all || n < POLL_MAX)) {
		struct chaos_item *it = xpi_container(be->frames.next, struct chaos_item, link);

		if (!all && it->due > be->now)
			break;
		xpi_list_del(&it->link);
		tell(be, it);
		n++;
	}
	return n;
}

/* Frames keep their order, whoever sent them. */
static void on_frame(struct xpi_core *core, const void *hdr, size_t hlen, const void *data, size_t dlen)
{
	struct xpi_be *be = of(core);
	bool off = chaos_chance(be, &be->dice, CHAOS_LATE);
	struct chaos_item *it;

	chaos_count(be);
	it = off || !xpi_list_empty(&be->frames) ? chaos_item_new(CHAOS_FRAME, NULL, NULL, hlen + dlen) : NULL;
	if (it == NULL) {
		deliver(be, true);
		be->calling++;
		be->up->am_recv(be->core, hdr, hlen, data, dlen);
		be->calling--;
		return;
	}
	memcpy(it->copy, hdr, hlen);
	if (dlen > 0)
		memcpy(it->copy + hlen, data, dlen);
	/* It may come in one piece, too. */
	it->hlen = chaos_hit(&be->dice, 50) ? hlen : hlen + dlen;
	it->dlen = hlen + dlen - it->hlen;
	it->due = off ? later(be, &be->dice) : be->now + 1;
	xpi_list_push(&be->frames, &it->link);
}

static void on_done(struct xpi_core *core, struct xpi_req *req, int status)
{
	struct xpi_be *be = of(core);
	struct chaos_item *it = xpi_container(req, struct chaos_item, req);

	if (status != XPORT_OK && be->words.manner->silent)
		return; /* it hangs, in be->out */
	xpi_list_del(&it->link);
	chaos_end(be, it, status);
}

static void on_failed(struct xpi_core *core, struct xpi_core_ep *ep, int64_t code, const char *why)
{
	chaos_fail(of(core), (struct chaos_ep *)ep, code, why);
}

const struct xpi_core_ops chaos_up = {.am_recv = on_frame, .done = on_done, .ep_failed = on_failed};

/* ---- polling ---- */

/* What it is told now: XPORT_ERR_AGAIN, it stays. */
static int try_held(struct xpi_be *be, struct chaos_item *it)
{
	int r;

	if (it->ep->dropped)
		return be->words.manner->silent ? XPORT_ERR_AGAIN : XPORT_ERR_PEER_LOST;
	if (it->due > be->now)
		return XPORT_ERR_AGAIN;
	if (it->up != NULL && it->kind <= CHAOS_AM_TWO && it->sum != chaos_law_sum(it->hdr, it->hlen))
		chaos_law_broken(be, "a frame changed while it was lent");
	r = chaos_forward(be, it);
	if (r < 0 && be->words.manner->silent)
		r = XPORT_ERR_AGAIN;
	return r == XPORT_ERR_NO_MEMORY ? XPORT_ERR_AGAIN : r;
}

static int release(struct xpi_be *be)
{
	int n = 0;

	xpi_list_for_safe(l, &be->held) {
		struct chaos_item *it = xpi_container(l, struct chaos_item, link);
		struct chaos_ep *ep = it->ep;
		int lane = chaos_lane(be, it->kind), r;

		/* A drain waits for what stands before it, puts and gets among themselves for nothing. */
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

/* In the order of their polls, and so not in that of their ends. */
static int tell_late(struct xpi_be *be)
{
	int n = 0;

	xpi_list_for_safe(l, &be->late) {
		struct chaos_item *it = xpi_container(l, struct chaos_item, link);

		if (it->due > be->now || n >= POLL_MAX)
			continue;
		xpi_list_del(l);
		tell(be, it);
		n++;
	}
	return n;
}

int chaos_poll(struct xpi_be *be)
{
	int n;

	chaos_law_outside(be, "poll");
	be->now++;
	be->naps = 0;
	n = be->ops->poll(be->be);
	if (n < 0)
		return n;
	return n + deliver(be, false) + release(be) + tell_late(be);
}

int chaos_fds(struct xpi_be *be, int *fds, int max)
{
	return be->words.manner->clock ? 0 : be->ops->fds(be->be, fds, max);
}

int chaos_arm(struct xpi_be *be)
{
	if (!xpi_list_empty(&be->held) || !xpi_list_empty(&be->late) || !xpi_list_empty(&be->frames))
		return XPORT_ERR_AGAIN;
	return be->ops->arm(be->be);
}
