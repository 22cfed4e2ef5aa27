/* SPDX-License-Identifier: BSD-3-Clause */
/* far_move.c - moves the pieces of a range of a block to other lenders, one after another, in chunks. */
#include <inttypes.h>
#include <stdlib.h>

#include "services/far.h"
#include "services/last_error.h"

static uint64_t chunk_of(const struct xport_far_block *b)
{
	uint64_t piece = UINT64_C(1) << b->shift;

	return piece < SVC_FAR_CHUNK ? piece : SVC_FAR_CHUNK;
}

static void move_fail(struct xport_far_block *b, int status)
{
	if (b->status == XPORT_OK)
		b->status = status;
}

static void move_end(struct xport_far_block *b)
{
	struct svc_far_piece *to = b->copy.to;

	b->copy.to = NULL;
	if (to != NULL)
		svc_far_return(to);
	if (b->copy.target != NULL)
		b->copy.target->moves--;
	b->copy.target = NULL;
	free(b->copy.bytes);
	b->copy.bytes = NULL;
	svc_far_done(b, b->status);
}

/* The copy takes the place of the piece. */
static void move_swap(struct xport_far_block *b)
{
	struct xport_lease_info info = {.size = sizeof(info)};
	struct svc_far_copy *c = &b->copy;
	struct svc_far_piece *old = b->piece[c->index], *to = c->to;

	if (xport_lease_query(to->lease, &info) != XPORT_OK)
		return;
	to->fresh = false;
	b->piece[c->index] = to;
	b->slot[c->index] = (struct svc_far_slot){to->lender->ep, info.rkey};
	c->to = NULL;
	svc_far_return(old);
	c->moved += UINT64_C(1) << b->shift;
	c->index++;
	c->at = 0;
}

static void chunk_done(struct svc_far_own *own, int status)
{
	struct svc_far_copy *c = (struct svc_far_copy *)own;
	struct xport_far_block *b = c->block;

	c->flying = false;
	if (status != XPORT_OK) {
		move_fail(b, status);
		return;
	}
	c->writing = !c->writing;
	if (c->writing)
		return;
	c->at += chunk_of(b);
	if (c->at == UINT64_C(1) << b->shift && c->to != NULL && !b->far->destroying)
		move_swap(b);
}

/* Asks for memory for the next piece. */
static void move_ask(struct xport_far_block *b)
{
	const struct svc_far_piece *p = b->piece[b->copy.index];
	struct svc_far_lender *l = b->copy.target;

	if (p == NULL || p->state != SVC_FAR_HELD) {
		move_fail(b, p != NULL && p->status != XPORT_OK ? p->status : XPORT_ERR_PEER_LOST);
		return;
	}
	if (l == p->lender) { /* it is there */
		b->copy.moved += p->bytes;
		b->copy.index++;
		return;
	}
	if (l == NULL)
		l = svc_far_choose(b->far, b->policy, p->bytes, p->lender);
	else if (!svc_far_usable(l, p->bytes)) {
		if (l->gone || !svc_far_look_on(b))
			move_fail(b, l->status != XPORT_OK ? l->status : XPORT_ERR_NO_MEMORY);
		return;
	}
	if (l == NULL) {
		if (!svc_far_look_on(b))
			move_fail(b, XPORT_ERR_NO_MEMORY);
		return;
	}
	b->copy.to = svc_far_ask(b, l, b->copy.index);
	if (b->copy.to == NULL)
		l->free = 0;
}

/* Posts the next get or put. False: the queue is full, or it failed. */
static bool move_post(struct xport_far_block *b)
{
	struct xport_lease_info info = {.size = sizeof(info)};
	struct svc_far_copy *c = &b->copy;
	struct svc_far_slot *from = &b->slot[c->index];
	struct xport_opt opt = {.size = sizeof(opt), .context = &c->own};
	int r = XPORT_ERR_PEER_LOST;

	if (c->writing) {
		r = xport_lease_query(c->to->lease, &info);
		if (r == XPORT_OK)
			r = xport_put(c->to->lender->ep, c->bytes, chunk_of(b), info.rkey, c->at, &opt);
	} else if (from->rkey != NULL) {
		r = xport_get(from->ep, c->bytes, chunk_of(b), from->rkey, c->at, &opt);
	}
	if (r == XPORT_OK) {
		c->flying = true;
		svc_far_flies(b->far, &c->own);
	} else if (r != XPORT_ERR_AGAIN) {
		move_fail(b, r);
	}
	return r == XPORT_OK;
}

void svc_far_move_on(struct xport_far_block *b)
{
	struct svc_far_copy *c = &b->copy;

	while (!c->flying && b->phase == SVC_FAR_PLACING) {
		if (b->status != XPORT_OK || c->index > c->last) {
			if (b->asked == 0)
				move_end(b);
			return;
		}
		if (c->to == NULL)
			move_ask(b);
		else if (c->to->state != SVC_FAR_HELD || !move_post(b))
			break;
	}
	if (b->status != XPORT_OK && !c->flying && b->asked == 0)
		move_end(b);
}

void svc_far_move_ended(struct xport_far_block *b, int status)
{
	b->copy.to = NULL;
	move_fail(b, status);
}

int xport_far_move(xport_far_block *b, uint64_t offset, uint64_t length, xport_ep *ep)
{
	struct svc_far_lender *target = NULL;

	if (b == NULL || length == 0)
		return svc_fail(XPORT_ERR_INVALID, "xport_far_move", NULL,
		                b == NULL ? "block is NULL" : "the length is 0");
	if (b->op != SVC_FAR_NONE || b->done_event)
		return svc_fail(XPORT_ERR_BUSY, "xport_far_move", "take the events of xport_far_next first",
		                "an operation on the block has not ended");
	if (offset >= b->length || length > b->length - offset)
		return svc_fail(XPORT_ERR_BOUNDS, "xport_far_move", NULL,
		                "%" PRIu64 " bytes at offset %" PRIu64 " of a block of %" PRIu64 " bytes", length,
		                offset, b->length);
	if (ep != NULL && (target = svc_far_lender_find(b->far, ep)) == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_far_move", "call xport_far_add", "ep is not a lender");
	b->copy = (struct svc_far_copy){.own = {.done = chunk_done},
	                                .block = b,
	                                .target = target,
	                                .index = (size_t)(offset >> b->shift),
	                                .last = (size_t)((offset + length - 1) >> b->shift),
	                                .bytes = malloc(SVC_FAR_CHUNK)};
	if (b->copy.bytes == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_far_move", NULL, "out of memory");
	if (target != NULL)
		target->moves++;
	svc_far_begin(b, SVC_FAR_MOVE);
	return XPORT_OK;
}
