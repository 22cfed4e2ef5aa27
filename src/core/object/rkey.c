/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/object/rkey.h"

#include <stdlib.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/object/ep.h"
#include "core/object/instance.h"

#define XXH_INLINE_ALL

void xpi_rkey_native_end(struct xport_rkey *k)
{
	struct xpi_transport *tp = k->ep->tp;

	if (k->native)
		tp->ops->rkey_destroy(tp->be, xpi_rkey_be(k));
	k->native = false;
	k->direct = NULL;
}

/* Without what it is a key of; NULL: out of memory. */
struct xport_rkey *xpi_rkey_new(struct xport_ep *ep)
{
	size_t fixed = (sizeof(struct xport_rkey) + 15) & ~(size_t)15;
	size_t size = (fixed + ep->tp->caps.rkey_size + 15) & ~(size_t)15;
	struct xport_rkey *k = aligned_alloc(16, size);

	if (k == NULL)
		return NULL;
	memset(k, 0, size);
	k->ep = ep;
	return k;
}

void xpi_rkey_free(struct xport_rkey *k)
{
	struct xport_ep *ep = k->ep;

	xpi_rkey_native_end(k);
	ep->keys.nborrowed -= k->lent;
	xpi_list_del(&k->link);
	free(k->native_key);
	free(k);
	if (ep->destroyed)
		ep->x->todo |= XPI_TODO_RELEASE;
}

void xpi_rkey_destroy(struct xport_rkey *k)
{
	k->destroyed = true;
	if (k->busy == 0)
		xpi_rkey_free(k);
}

static bool waits_with_key(const struct xpi_op *op, const struct xport_rkey *k)
{
	unsigned what = xpi_op_what(op);

	if (what != XPORT_OP_PUT && what != XPORT_OP_GET && what != XPORT_OP_PUT_NOTIFY && what != XPORT_OP_ATOMIC)
		return false;
	return op->ep == k->ep && op->waits != 0 && op->rkey == NULL && op->region == k->region;
}

uint64_t xpi_rkey_in_flight(const struct xport_rkey *k)
{
	const struct xpi_pool *pool = &k->ep->x->op_pool;
	uint32_t n = pool->nslabs << pool->shift;
	uint64_t count = k->busy;

	for (uint32_t i = 0; i < n; i++) {
		const struct xpi_op *op = xpi_pool_at(pool, i);

		count += op != NULL && waits_with_key(op, k);
	}
	return count;
}

void xpi_rkey_idle(struct xport_rkey *k)
{
	k->busy--;
	if (k->busy > 0)
		return;
	if (k->stale)
		xpi_work(k->ep);
	if (k->destroyed || (k->lent && k->stale))
		xpi_rkey_free(k);
}

struct xport_rkey *xpi_rkey_find_lent(struct xport_ep *ep, uint64_t region)
{
	xpi_list_for(l, &ep->keys.rkeys) {
		struct xport_rkey *k = xpi_container(l, struct xport_rkey, link);

		if (k->lent && k->region == region)
			return k;
	}
	return NULL;
}

struct xport_rkey *xpi_rkey_borrow(struct xport_ep *ep, uint64_t region, uint64_t offset, uint64_t len)
{
	struct xport_rkey *k = xpi_rkey_find_lent(ep, region);

	if (k == NULL || !xpi_rkey_fits(k, ep, offset, len, XPORT_REMOTE_WRITE))
		return NULL;
	k->busy++;
	return k;
}

void xpi_rkey_orphan(struct xport_ep *ep)
{
	xpi_list_for_safe(l, &ep->keys.rkeys) {
		struct xport_rkey *k = xpi_container(l, struct xport_rkey, link);

		k->stale = true;
		k->put = k->get = k->atomic = XPI_ROUTE_AM;
		xpi_rkey_native_end(k);
		if (k->lent && k->busy == 0)
			xpi_rkey_free(k);
	}
}
