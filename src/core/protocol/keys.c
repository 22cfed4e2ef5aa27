/* SPDX-License-Identifier: BSD-3-Clause */
/* keys.c - the use of native keys: claim, grant, lend, revoke, on both sides. */
#include "core/protocol/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/status.h"
#include "core/config/settings.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/locked.h"
#include "core/object/mr.h"
#include "core/object/mr_part.h"
#include "core/object/op.h"
#include "core/object/rkey.h"
#include "core/protocol/reply_queue.h"
#include "core/protocol/rma.h"
#include "core/wire/frame.h"
#include "core/wire/rkey_format.h"

/* A live peer that leaves more keys of parts unanswered is lost: it holds 300 bytes of ours for each. */
enum { UNANSWERED_MAX = 65536 };

/* A peer that may use the native key of a region, or of a part. */
struct holder {
	struct xpi_list link;    /* in ep->keys.holds or ep->part_holds */
	struct xpi_list of_part; /* in xpi_part_holders; in no list if it is a region's, or the part has been freed */
	struct xport_ep *ep;
	uint64_t region;
	bool lent;    /* it has the key from us, see xpi_mr_lend */
	bool revoked; /* counted in ep->unanswered */
};

/* The part with this id, also if it is ending. NULL: not found. */
static struct xport_mr *part_at(struct xport *x, uint64_t id)
{
	struct xport_mr *mr = xpi_mr_at(x, id);

	return mr != NULL && mr->whole != NULL ? mr : NULL;
}

/* A part has few holders, and a peer holds few regions; but it may hold many parts. */
static struct holder *hold_find(struct xport_ep *ep, uint64_t region)
{
	struct xport_mr *part = part_at(ep->x, region);

	if (part != NULL) {
		xpi_list_for(l, xpi_part_holders(part))
			if (xpi_container(l, struct holder, of_part)->ep == ep)
				return xpi_container(l, struct holder, of_part);
		return NULL;
	}
	xpi_list_for(l, &ep->keys.holds)
		if (xpi_container(l, struct holder, link)->region == region)
			return xpi_container(l, struct holder, link);
	return NULL;
}

/* That of the region, if need be a new one; NULL: out of memory. */
static struct holder *hold(struct xport_ep *ep, uint64_t region)
{
	struct holder *h = hold_find(ep, region);
	struct xport_mr *part = part_at(ep->x, region);

	if (h != NULL)
		return h;
	h = calloc(1, sizeof(*h));
	if (h == NULL)
		return NULL;
	h->ep = ep;
	h->region = region;
	xpi_list_push(part != NULL ? &ep->part_holds : &ep->keys.holds, &h->link);
	if (part != NULL)
		xpi_list_push(xpi_part_holders(part), &h->of_part);
	return h;
}

bool xpi_mr_claim(struct xport_ep *ep, uint64_t region)
{
	struct xport_mr *mr;
	uint8_t *at;

	xpi_assert_locked(ep->x);
	xpi_mr_check(ep->x, region, 0, 0, UINT32_MAX, &mr, &at);
	if (mr == NULL || xpi_mr_on(mr, ep->tp) == NULL || hold(ep, region) == NULL)
		return false;
	ep->reply.wrote = ep->reply.wrote || (mr->rights & XPORT_REMOTE_WRITE) != 0;
	return true;
}

bool xpi_mr_lend(struct xport_ep *ep, struct xport_mr *mr)
{
	struct holder *h = hold_find(ep, mr->id);

	xpi_assert_locked(ep->x);
	if (h != NULL && h->lent)
		return true;
	if (ep->keys.nlent >= XPI_LENT_MAX || mr->dying)
		return false;
	h = hold(ep, mr->id);
	if (h == NULL || !xpi_lend_key(ep, mr->id))
		return false;
	h->lent = true;
	ep->keys.nlent++;
	return true;
}

static void hold_end(struct xport_ep *ep, struct holder *h)
{
	struct xport *x = ep->x;
	struct xport_mr *mr = xpi_mr_find(x, h->region);

	if (mr != NULL && mr->revoking > 0)
		mr->revoking--;
	ep->keys.nlent -= h->lent;
	ep->unanswered -= h->revoked;
	xpi_list_del(&h->link);
	if (xpi_list_linked(&h->of_part))
		xpi_list_del(&h->of_part);
	xpi_part_answered(x, h->region);
	free(h);
}

void xpi_mr_revoked(struct xport_ep *ep, uint64_t region)
{
	struct holder *h = hold_find(ep, region);

	xpi_assert_locked(ep->x);
	if (h != NULL)
		hold_end(ep, h);
}

void xpi_mr_peer_gone(struct xport_ep *ep)
{
	xpi_assert_locked(ep->x);
	while (!xpi_list_empty(&ep->keys.holds))
		hold_end(ep, xpi_container(ep->keys.holds.next, struct holder, link));
	while (!xpi_list_empty(&ep->part_holds))
		hold_end(ep, xpi_container(ep->part_holds.next, struct holder, link));
}

/*
 * Asks for the keys to parts of the region that this peer holds. It is not told of the others, whose use is refused: a region
 * may have so many parts that looking for each of them would take long.
 */
static void revoke_parts(struct xport_mr *mr, struct xport_ep *ep)
{
	xpi_list_for(l, &ep->part_holds) {
		uint64_t id = xpi_container(l, struct holder, link)->region;

		if (xpi_mr_find(mr->x, id) != mr)
			continue;
		mr->revoking++;
		if (ep->state < XPI_EP_FAILING)
			xpi_tell_key(ep, XPI_OP_REVOKE, id);
	}
}

/*
 * Asks those that may reach it without us to stop; tells the others, whose use would be refused anyway.  One that fails
 * holds its key until it is quiesced; one that has not heard yet that its peer is ready may have granted some.
 */
void xpi_mr_revoke_all(struct xport_mr *mr)
{
	xpi_assert_locked(mr->x);
	xpi_list_for_safe(l, &mr->x->eps) {
		struct xport_ep *ep = xpi_container(l, struct xport_ep, link);
		bool held = hold_find(ep, mr->id) != NULL;

		mr->revoking += held;
		if (ep->state < XPI_EP_FAILING && (held || (mr->packed && ep->state != XPI_EP_CONNECTING)))
			xpi_tell_key(ep, XPI_OP_REVOKE, mr->id);
		if (!xpi_list_empty(&mr->parts))
			revoke_parts(mr, ep);
	}
}

/* Asks one peer for the key of a part. */
static void hold_revoke(struct holder *h)
{
	struct xport_ep *ep = h->ep;

	h->revoked = true;
	ep->unanswered++;
	if (ep->state >= XPI_EP_FAILING)
		return;
	if (ep->unanswered <= UNANSWERED_MAX) {
		xpi_tell_key(ep, XPI_OP_REVOKE, h->region);
		return;
	}
	snprintf(ep->end.why, sizeof(ep->end.why), "the peer has not answered the end of %u keys",
	         (unsigned)UNANSWERED_MAX);
	xpi_ep_fail(ep, XPORT_ERR_PROTOCOL, XPORT_EVENT_LOST);
}

/* As xpi_mr_revoke_all, for one part. Accesses by message are refused from now on. The last answer frees it. */
static void revoke_part(struct xport_mr *part)
{
	struct xport *x = part->x;
	uint64_t id = part->id;

	part->dying = true;
	part->revoking = 1; /* ours, until all are asked */
	xpi_list_for_safe(l, xpi_part_holders(part)) {
		part->revoking++;
		hold_revoke(xpi_container(l, struct holder, of_part));
	}
	xpi_part_answered(x, id);
}

int xpi_key_revoke(struct xport *x, const void *buf, size_t len)
{
	static const char name[] = "xport_rkey_revoke";
	struct xport_mr *part;
	struct xpi_key key;

	xpi_assert_locked(x);
	if (buf == NULL || !xpi_key_decode(buf, len, &key))
		return xpi_refuse(x, XPORT_ERR_BAD_KEY, name, "the %zu bytes are not a key, or are damaged", len);
	if ((key.rights & XPI_KEY_PART) == 0)
		return xpi_refuse(x, XPORT_ERR_INVALID, name,
		                  "the key is to a whole region, which xport_mr_dereg ends");
	part = key.incarnation == x->incarnation ? xpi_part_find(x, key.region) : NULL;
	if (part == NULL)
		return xpi_refuse(x, XPORT_ERR_STALE_KEY, name,
		                  "the key is another instance's, or was revoked, or its region has ended");
	revoke_part(part);
	return XPORT_OK;
}

/*
 * The owner sends the native key of the endpoint's transport (CLAIM, GRANT), and waits for an answer before the region
 * ends (REVOKE). Until the GRANT the region is reached by message; atomics that the adapter carries wait.
 */
static int claim(struct xport_rkey *k, bool has_native)
{
	struct xport *x = k->ep->x;
	size_t max = k->ep->tp->caps.rkey_native_max;
	const uint32_t both = XPI_EMULATE_PUT | XPI_EMULATE_GET;

	if (!has_native || max == 0 || ((x->settings.emulate & both) == both && k->atomic != XPI_ROUTE_NATIVE)) {
		k->settled = true;
		return XPORT_OK;
	}
	k->native_key = malloc(max);
	if (k->native_key == NULL)
		return xpi_refuse(x, XPORT_ERR_NO_MEMORY, "xport_rkey_unpack", "no memory for the key");
	xpi_tell_key(k->ep, XPI_OP_CLAIM, k->region);
	return XPORT_OK;
}

/* From the first native key on, operations may overtake messages.  The application's fences until then had nothing to
 * do, since messages keep their order among themselves; this one makes up for them.  False: out of memory. */
static bool leave_messages(struct xport_ep *ep)
{
	if (ep->keys.direct)
		return true;
	ep->keys.direct = true;
	ep->keys.direct = xpi_fence(ep) == XPORT_OK;
	return ep->keys.direct;
}

/* Whether what is aligned there is aligned here, too. */
static bool mapped_alike(const struct xport_rkey *k)
{
	return k->direct != NULL && (((uintptr_t)k->direct ^ k->base_low) & 7) == 0;
}

static void settle(struct xport_rkey *k)
{
	free(k->native_key);
	k->native_key = NULL;
	k->settled = true;
}

static void adopt(struct xport_rkey *k)
{
	struct xport *x = k->ep->x;
	bool put = !(x->settings.emulate & XPI_EMULATE_PUT), get = !(x->settings.emulate & XPI_EMULATE_GET);
	void *direct = NULL;
	struct xpi_transport *tp = k->ep->tp;
	int r = tp->ops->rkey_unpack(tp->be, xpi_ep_be(k->ep), xpi_rkey_be(k), k->native_key, k->native_len, k->start,
	                             k->length, k->rights, &direct);

	settle(k);
	k->native = r == XPORT_OK;
	if (k->native && !k->lent && !leave_messages(k->ep)) {
		xpi_rkey_native_end(k);
		r = XPORT_ERR_NO_MEMORY;
	}
	if (r != XPORT_OK) {
		xpi_log(x->log, XPORT_LOG_INFO, "0014",
		        "%s: cannot use a native key (%s): access to its region is emulated", k->ep->peer.name,
		        xpi_status_name(r));
		return;
	}
	k->direct = direct;
	k->put = !put ? XPI_ROUTE_AM : direct != NULL ? XPI_ROUTE_MAPPED : XPI_ROUTE_NATIVE;
	k->get = !get ? XPI_ROUTE_AM : direct != NULL ? XPI_ROUTE_MAPPED : XPI_ROUTE_NATIVE;
	if (k->atomic == XPI_ROUTE_AM && mapped_alike(k) && !(x->settings.emulate & XPI_EMULATE_ATOMIC))
		k->atomic = XPI_ROUTE_MAPPED;
}

void xpi_rkey_adopt(struct xport_ep *ep, uint64_t region)
{
	xpi_assert_locked(ep->x);
	xpi_list_for(l, &ep->keys.rkeys) {
		struct xport_rkey *k = xpi_container(l, struct xport_rkey, link);

		if (k->region == region && k->native_key != NULL && k->native_len > 0 && !k->stale)
			adopt(k);
	}
	if (ep->rma.busy) /* an atomic may have waited for it */
		xpi_work(ep);
}

int xpi_rkey_unpack(struct xport_ep *ep, const void *buf, size_t len, struct xport_rkey **out)
{
	struct xport *x = ep->x;
	struct xport_rkey *k;
	struct xpi_key key;
	int r;

	xpi_assert_locked(ep->x);
	if (buf == NULL || !xpi_key_decode(buf, len, &key) || key.length > UINT64_MAX - (key.base >> XPI_KEY_BASE_BITS))
		return xpi_refuse(x, XPORT_ERR_BAD_KEY, "xport_rkey_unpack",
		                  "the %zu bytes are not a key, or are damaged", len);
	if (key.incarnation != ep->peer.incarnation)
		return xpi_refuse(x, XPORT_ERR_STALE_KEY, "xport_rkey_unpack",
		                  "the key belongs to another process, or to an earlier run of this peer");
	k = xpi_rkey_new(ep);
	if (k == NULL)
		return xpi_refuse(x, XPORT_ERR_NO_MEMORY, "xport_rkey_unpack", "no memory for the key");
	k->length = key.length;
	k->region = key.region;
	k->base_low = key.base;
	k->start = key.base >> XPI_KEY_BASE_BITS;
	k->inexact = (key.rights & (XPI_KEY_PART | XPI_KEY_BY_MESSAGES)) == XPI_KEY_PART;
	k->rights = key.rights & ~(XPI_KEY_BY_ADAPTER | XPI_KEY_BY_MESSAGES | XPI_KEY_PART);
	k->atomic = (key.rights & XPI_KEY_BY_ADAPTER) != 0 ? XPI_ROUTE_NATIVE : XPI_ROUTE_AM;
	r = claim(k, (key.rights & XPI_KEY_BY_MESSAGES) == 0);
	if (r != XPORT_OK) {
		free(k);
		return r;
	}
	xpi_list_push(&ep->keys.rkeys, &k->link);
	*out = k;
	return XPORT_OK;
}

bool xpi_rkey_lent(struct xport_ep *ep, uint64_t region, uint64_t length, const uint8_t *native, size_t len)
{
	const struct xpi_be_caps *caps = &ep->tp->caps;
	struct xport_rkey *k;

	xpi_assert_locked(ep->x);
	if (!caps->lends || len == 0 || len > caps->rkey_native_max || ep->keys.nborrowed >= XPI_LENT_MAX ||
	    xpi_rkey_find_lent(ep, region) != NULL)
		return false;
	k = xpi_rkey_new(ep);
	if (k == NULL)
		return true;
	k->native_key = malloc(len);
	if (k->native_key == NULL) {
		free(k);
		return true;
	}
	memcpy(k->native_key, native, len);
	k->native_len = len;
	k->region = region;
	k->length = length;
	k->rights = XPORT_REMOTE_WRITE;
	k->lent = true;
	ep->keys.nborrowed++;
	xpi_list_push(&ep->keys.rkeys, &k->link);
	xpi_tell_key(ep, XPI_OP_ADOPT, region); /* the back end is not to be called from here */
	return true;
}

bool xpi_rkey_revoke(struct xport_ep *ep, uint64_t region)
{
	bool idle = true;

	xpi_assert_locked(ep->x);
	xpi_list_for_safe(l, &ep->keys.rkeys) {
		struct xport_rkey *k = xpi_container(l, struct xport_rkey, link);

		if (k->region != region)
			continue;
		k->stale = true;
		if (k->busy > 0)
			idle = false;
		else if (k->lent)
			xpi_rkey_free(k);
	}
	return idle;
}

/* A region without a native key goes on by message, which is checked each time. */
static void on_claim(struct xport_ep *ep, uint64_t region)
{
	struct xport_mr *mr;
	uint8_t *at;

	if (xpi_mr_claim(ep, region)) {
		xpi_tell_key(ep, XPI_OP_GRANT, region);
		return;
	}
	xpi_mr_check(ep->x, region, 0, 0, UINT32_MAX, &mr, &at);
	if (mr != NULL && mr->by_adapter && xpi_mr_on(mr, ep->tp) != NULL) /* out of memory, and its atomics wait */
		xpi_ep_fail(ep, XPORT_ERR_NO_MEMORY, XPORT_EVENT_LOST);
	else
		xpi_tell_key(ep, mr != NULL ? XPI_OP_GRANT : XPI_OP_GONE, region);
}

int xpi_mr_granted(struct xport_ep *ep, uint64_t region, uint8_t *native, size_t *len)
{
	const struct xport_mr *entry = xpi_mr_at(ep->x, region);
	struct xport_mr *mr = xpi_mr_find(ep->x, region);
	int rc = XPORT_ERR_NOT_SUPPORTED;

	xpi_assert_locked(ep->x);
	if (entry != NULL && !entry->dying && mr != NULL && hold_find(ep, region) != NULL) /* else REVOKE follows */
		rc = xpi_mr_native_key(mr, ep->tp, ep, native, len);
	if (rc == XPORT_ERR_AGAIN)
		return rc;
	if (rc != XPORT_OK)
		*len = 0;
	return XPORT_OK;
}

bool xpi_rkey_granted(struct xport_ep *ep, uint64_t region, const uint8_t *native, size_t len)
{
	xpi_assert_locked(ep->x);
	if (len > ep->tp->caps.rkey_native_max)
		return false;
	xpi_list_for(l, &ep->keys.rkeys) {
		struct xport_rkey *k = xpi_container(l, struct xport_rkey, link);

		if (k->region != region || k->native_key == NULL || k->native_len > 0 || k->lent)
			continue;
		if (len == 0) {
			settle(k);
			break;
		}
		memcpy(k->native_key, native, len);
		k->native_len = len;
		break; /* each has asked for one */
	}
	xpi_tell_key(ep, XPI_OP_ADOPT, region); /* the back end is not to be called from here */
	return true;
}

void xpi_serve_key(struct xport_ep *ep, unsigned record, uint64_t region)
{
	xpi_assert_locked(ep->x);
	switch (record) {
	case XPI_REC_CLAIM:
		on_claim(ep, region);
		break;
	case XPI_REC_REVOKE:
		xpi_rkey_revoke(ep, region);
		xpi_tell_key(ep, XPI_OP_REVOKED, region);
		break;
	default:
		xpi_mr_revoked(ep, region);
	}
}
