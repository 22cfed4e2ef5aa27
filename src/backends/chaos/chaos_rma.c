/* SPDX-License-Identifier: BSD-3-Clause */
/* chaos_rma.c - frames, puts, gets and drains: refused, held, or passed on. */
#include <stdlib.h>
#include <string.h>

#include "chaos.h"

enum { PLAIN_PUT_MAX = 1024, EARLY_MAX = 1 << 20 };

/* ---- handing on ---- */

/* Mapped memory needs no back end. */
static int item_copy(struct chaos_item *it)
{
	if (it->kind == CHAOS_PUT)
		memcpy(it->rkey->direct + it->offset, it->buf, it->dlen);
	else
		memcpy(it->buf, it->rkey->direct + it->offset, it->dlen);
	return XPORT_OK;
}

static void note_taken(struct chaos_range *t, size_t len)
{
	if (t->max == 0 || len < t->min)
		t->min = len;
	if (len > t->max)
		t->max = len;
}

static struct chaos_range *range_of(struct xpi_be *be, const struct chaos_item *it)
{
	return &be->taken[it->kind == CHAOS_GET][it->mr != NULL];
}

static int forward_rma(struct xpi_be *be, struct chaos_item *it)
{
	int r;

	if (it->rkey->direct != NULL)
		return item_copy(it);
	if (it->kind == CHAOS_PUT)
		r = be->ops->put(be->be, it->ep->inner, it->buf, it->dlen, it->mr, it->rkey->inner, it->offset,
		                 &it->req);
	else
		r = be->ops->get(be->be, it->ep->inner, it->buf, it->dlen, it->mr, it->rkey->inner, it->offset,
		                 &it->req);
	if (r >= 0)
		note_taken(range_of(be, it), it->dlen);
	return r;
}

static int forward_drain(struct xpi_be *be, struct chaos_item *it)
{
	if (it->ep->put_status != XPORT_OK)
		return it->ep->put_status;
	return be->caps.am_after_put && !be->caps.drain_places ? XPORT_OK
	                                                       : be->ops->drain(be->be, it->ep->inner, &it->req);
}

int chaos_forward(struct xpi_be *be, struct chaos_item *it)
{
	switch (it->kind) {
	case CHAOS_AM:
		return be->ops->am_send(be->be, it->ep->inner, it->hdr, it->hlen, &it->req);
	case CHAOS_AM_TWO:
		return be->ops->am_send_two(be->be, it->ep->inner, it->hdr, it->hlen, it->data, it->dlen, &it->req);
	case CHAOS_DRAIN:
		return forward_drain(be, it);
	case CHAOS_ATOMIC:
		return be->ops->atomic(be->be, it->ep->inner, &it->args, it->rkey->inner, it->offset, &it->req);
	default:
		return forward_rma(be, it);
	}
}

/* Hands on what need not be held; it is ours no longer. */
static int item_pass(struct xpi_be *be, struct chaos_item *it)
{
	int r = chaos_forward(be, it);

	if (r == XPI_PENDING) {
		xpi_list_push(&be->out, &it->link);
		return it->up != NULL ? XPI_PENDING : XPORT_OK;
	}
	if (r == XPORT_OK && it->up != NULL && chaos_chance(be, &it->ep->dice, CHAOS_LATE)) {
		chaos_end_late(be, it, XPORT_OK);
		return XPI_PENDING;
	}
	free(it);
	if (r < 0 && r != XPORT_ERR_NOT_SUPPORTED && be->config.profile->silent)
		return XPORT_ERR_AGAIN;
	return r;
}

/* ---- frames ---- */

/* Either the core's bytes are used until done(), or a copy. */
static int hold_frame(struct xpi_be *be, struct chaos_item *it, bool copied)
{
	if (copied) {
		memcpy(it->copy, it->hdr, it->hlen);
		it->hdr = it->copy;
		if (it->dlen > 0)
			memcpy(it->copy + it->hlen, it->data, it->dlen);
		it->data = it->copy + it->hlen;
		it->up = NULL;
	} else {
		it->sum = chaos_contract_sum(it->hdr, it->hlen);
	}
	chaos_hold(be, it);
	return copied ? XPORT_OK : XPI_PENDING;
}

static int post_frame(struct xpi_be *be, struct chaos_ep *ep, enum chaos_kind kind, const void *hdr, size_t hlen,
                      const void *data, size_t dlen, struct xpi_req *req)
{
	struct chaos_item *it;
	bool hold, copied;
	int r;

	chaos_contract_post(be, ep, "am_send");
	if (hlen + dlen > be->am_max)
		chaos_contract_broken(be, "a frame of %zu bytes", hlen + dlen);
	r = chaos_step(be, ep);
	if (r != XPORT_OK)
		return r;
	hold = ep->waiting[CHAOS_LANE_AM] > 0 || chaos_chance(be, &ep->dice, CHAOS_DELAY);
	copied = hold && chaos_hit(&ep->dice, 50);
	it = chaos_item_new(kind, ep, req, copied ? hlen + dlen : 0);
	if (it == NULL)
		return XPORT_ERR_AGAIN;
	it->hdr = hdr;
	it->hlen = hlen;
	it->data = data;
	it->dlen = dlen;
	return hold ? hold_frame(be, it, copied) : item_pass(be, it);
}

int chaos_am_send(struct xpi_be *be, void *ep, const void *buf, size_t len, struct xpi_req *req)
{
	return post_frame(be, ep, CHAOS_AM, buf, len, NULL, 0, req);
}

int chaos_am_send_two(struct xpi_be *be, void *ep, const void *hdr, size_t hlen, const void *data, size_t dlen,
                      struct xpi_req *req)
{
	return post_frame(be, ep, CHAOS_AM_TWO, hdr, hlen, data, dlen, req);
}

/* ---- puts and gets ---- */

/* What must be done, or refused, when the call returns. */
static int put_at_once(struct xpi_be *be, struct chaos_ep *ep, const void *buf, size_t len, void *mr,
                       struct chaos_rkey *rkey, uint64_t offset, struct xpi_req *req)
{
	if (ep->waiting[CHAOS_LANE_AM] > 0)
		return XPORT_ERR_AGAIN;
	if (rkey->direct != NULL) {
		memcpy(rkey->direct + offset, buf, len);
		return XPORT_OK;
	}
	return be->ops->put(be->be, ep->inner, buf, len, mr, rkey->inner, offset, req);
}

/* Done for the core once there is a copy; another result than XPORT_OK: it was not taken so. */
static int put_early(struct xpi_be *be, const struct chaos_item *put)
{
	struct chaos_item *it = chaos_item_new(CHAOS_PUT, put->ep, NULL, put->dlen);

	if (it == NULL)
		return XPORT_ERR_AGAIN;
	memcpy(it->copy, put->buf, put->dlen);
	it->buf = it->copy;
	it->dlen = put->dlen;
	it->rkey = put->rkey;
	it->offset = put->offset;
	return item_pass(be, it);
}

static bool taken_before(struct xpi_be *be, const struct chaos_item *it)
{
	const struct chaos_range *t = range_of(be, it);

	return it->rkey->direct != NULL || (it->dlen >= t->min && it->dlen <= t->max);
}

/* Not to be taken, with these profiles. */
static bool profile_refuses(const struct chaos_profile *m, enum chaos_kind kind, size_t len, const void *mr)
{
	if (kind == CHAOS_GET && len < m->get_min)
		return true;
	return m->registered && mr == NULL && (kind == CHAOS_GET || len > PLAIN_PUT_MAX);
}

/* `*post` without its place in memory yet. */
static int post_rma(struct xpi_be *be, const struct chaos_item *post)
{
	struct chaos_ep *ep = post->ep;
	struct chaos_item *it;
	int lane = chaos_lane(be, post->kind);
	bool behind = be->ordered && ep->waiting[lane] > 0;
	bool hold = behind || chaos_chance(be, &ep->dice, CHAOS_DELAY);

	if (hold && !taken_before(be, post)) {
		if (behind)
			return XPORT_ERR_AGAIN;
		hold = false;
	}
	if (!hold && post->kind == CHAOS_PUT && be->config.profile->early && post->dlen <= EARLY_MAX &&
	    put_early(be, post) == XPORT_OK)
		return XPORT_OK;
	it = chaos_item_new(post->kind, ep, post->up, 0);
	if (it == NULL)
		return XPORT_ERR_AGAIN;
	*it = *post;
	if (!hold)
		return item_pass(be, it);
	chaos_hold(be, it);
	return XPI_PENDING;
}

static int check_rma(struct xpi_be *be, struct chaos_ep *ep, const char *what, size_t len)
{
	chaos_contract_post(be, ep, what);
	if (len == 0 || (be->rma_max != 0 && len > be->rma_max))
		chaos_contract_broken(be, "a %s of %zu bytes", what, len);
	return chaos_step(be, ep);
}

int chaos_put(struct xpi_be *be, void *ep, const void *buf, size_t len, void *mr, void *rkey, uint64_t offset,
              struct xpi_req *req)
{
	struct chaos_item put = {.kind = CHAOS_PUT,
	                         .ep = ep,
	                         .up = req,
	                         .buf = (void *)(uintptr_t)buf,
	                         .dlen = len,
	                         .mr = mr,
	                         .rkey = rkey,
	                         .offset = offset};
	int r;

	if (profile_refuses(be->config.profile, CHAOS_PUT, len, mr))
		return XPORT_ERR_NOT_SUPPORTED;
	r = check_rma(be, ep, "put", len);
	if (r != XPORT_OK)
		return r;
	if (len <= be->put_short)
		return put_at_once(be, ep, buf, len, mr, rkey, offset, req);
	if (req == NULL)
		chaos_contract_broken(be, "a put of %zu bytes without a request", len);
	return post_rma(be, &put);
}

int chaos_get(struct xpi_be *be, void *ep, void *buf, size_t len, void *mr, void *rkey, uint64_t offset,
              struct xpi_req *req)
{
	struct chaos_item get = {.kind = CHAOS_GET,
	                         .ep = ep,
	                         .up = req,
	                         .buf = buf,
	                         .dlen = len,
	                         .mr = mr,
	                         .rkey = rkey,
	                         .offset = offset};
	int r;

	if (profile_refuses(be->config.profile, CHAOS_GET, len, mr))
		return XPORT_ERR_NOT_SUPPORTED;
	r = check_rma(be, ep, "get", len);
	return r != XPORT_OK ? r : post_rma(be, &get);
}

int chaos_atomic(struct xpi_be *be, void *ep_state, const struct xport_atomic_args *args, void *rkey, uint64_t offset,
                 struct xpi_req *req)
{
	struct chaos_ep *ep = ep_state;
	int lane = chaos_lane(be, CHAOS_ATOMIC), r;
	struct chaos_item *it;

	chaos_contract_post(be, ep, "atomic");
	if (args->width != 8 || (args->op != XPORT_ATOMIC_ADD && args->op != XPORT_ATOMIC_CAS))
		chaos_contract_broken(be, "an atomic of kind %d on %d bytes", args->op, args->width);
	r = chaos_step(be, ep);
	if (r != XPORT_OK)
		return r;
	it = chaos_item_new(CHAOS_ATOMIC, ep, req, 0);
	if (it == NULL)
		return XPORT_ERR_AGAIN;
	it->args = *args;
	it->rkey = rkey;
	it->offset = offset;
	if ((!be->ordered || ep->waiting[lane] == 0) && !chaos_chance(be, &ep->dice, CHAOS_DELAY))
		return item_pass(be, it);
	chaos_hold(be, it);
	return XPI_PENDING;
}

int chaos_drain(struct xpi_be *be, void *ep_state, struct xpi_req *req)
{
	struct chaos_ep *ep = ep_state;
	struct chaos_item *it;
	int r;

	chaos_contract_post(be, ep, "drain");
	r = chaos_step(be, ep);
	if (r != XPORT_OK)
		return r;
	it = chaos_item_new(CHAOS_DRAIN, ep, req, 0);
	if (it == NULL)
		return XPORT_ERR_AGAIN;
	if (ep->waiting[chaos_lane(be, CHAOS_DRAIN)] == 0 && !chaos_chance(be, &ep->dice, CHAOS_DELAY))
		return item_pass(be, it);
	chaos_hold(be, it);
	return XPI_PENDING;
}
