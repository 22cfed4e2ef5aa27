/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c - the public functions for regions and their keys. */
#include "api/enter.h"
#include "base/grow.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/mr.h"
#include "core/object/mr_part.h"
#include "core/object/rkey.h"
#include "core/progress/blocking.h"
#include "core/protocol/keys.h"

static int path(bool native)
{
	return native ? XPORT_NATIVE : XPORT_EMULATED;
}

static int mr_new(xport *x, const char *operation, void *base, size_t length, uint32_t rights, bool alloc,
                  xport_mr **mr)
{
	int r;

	if (x == NULL)
		return XPORT_ERR_INVALID;
	r = enter(x, operation);
	if (r != XPORT_OK)
		return r;
	if (mr == NULL)
		return leave(x, xpi_refuse(x, XPORT_ERR_INVALID, operation, "the result pointer is NULL"));
	return leave(x, xpi_mr_new(x, base, length, rights, alloc, mr));
}

int xport_mr_reg(xport *x, void *base, size_t length, uint32_t rights, xport_mr **mr)
{
	return mr_new(x, "xport_mr_reg", base, length, rights, false, mr);
}

int xport_mr_alloc(xport *x, size_t length, uint32_t rights, xport_mr **mr)
{
	return mr_new(x, "xport_mr_alloc", NULL, length, rights, true, mr);
}

int xport_mr_dereg(xport_mr *mr)
{
	struct xport *x = mr != NULL ? mr->x : NULL;
	int r;

	if (mr == NULL)
		return XPORT_OK;
	r = enter(x, "xport_mr_dereg");
	if (r != XPORT_OK)
		return r;
	return leave(x, xpi_mr_dereg(mr));
}

int xport_mr_query(const xport_mr *mr, struct xport_mr_info *info)
{
	struct xport_mr_info all = {.size = info != NULL ? info->size : 0};
	int r;

	if (mr == NULL)
		return XPORT_ERR_INVALID;
	r = xpi_enter_to_look(mr->x);
	if (r != XPORT_OK)
		return r;
	if (!xpi_grow_size(all.size, XPI_FIRST_MR_INFO))
		return leave(mr->x, xpi_refuse(mr->x, XPORT_ERR_INVALID, "xport_mr_query",
		                               "info is NULL or info->size is wrong"));
	all.base = mr->base;
	all.length = mr->length;
	all.rights = mr->rights;
	all.allocated = mr->allocated;
	all.incarnation = mr->x->incarnation;
	all.exact_parts = xpi_mr_by_messages(mr);
	xpi_grow_out(info, all.size, &all, sizeof(all));
	return leave(mr->x, XPORT_OK);
}

int xport_rkey_pack(const xport_mr *mr, void *buf, size_t *len)
{
	int r;

	if (mr == NULL)
		return XPORT_ERR_INVALID;
	r = enter(mr->x, "xport_rkey_pack");
	if (r != XPORT_OK)
		return r;
	return leave(mr->x, xpi_mr_pack(mr, buf, len));
}

int xport_rkey_pack_range(xport_mr *mr, uint64_t offset, uint64_t length, uint32_t rights, void *buf, size_t *len)
{
	int r;

	if (mr == NULL)
		return XPORT_ERR_INVALID;
	r = enter(mr->x, "xport_rkey_pack_range");
	if (r != XPORT_OK)
		return r;
	return leave(mr->x, xpi_part_pack(mr, offset, length, rights, buf, len));
}

int xport_rkey_revoke(xport *x, const void *buf, size_t len)
{
	int r;

	if (x == NULL)
		return XPORT_ERR_INVALID;
	r = enter(x, "xport_rkey_revoke");
	if (r != XPORT_OK)
		return r;
	return leave(x, xpi_key_revoke(x, buf, len));
}

int xport_rkey_unpack(xport_ep *ep, const void *buf, size_t len, xport_rkey **rkey)
{
	int r;

	if (ep == NULL)
		return XPORT_ERR_INVALID;
	r = enter(ep->x, "xport_rkey_unpack");
	if (r != XPORT_OK)
		return r;
	if (rkey == NULL)
		return leave(ep->x,
		             xpi_refuse(ep->x, XPORT_ERR_INVALID, "xport_rkey_unpack", "the result pointer is NULL"));
	if (ep->state != XPI_EP_OPEN)
		return leave(ep->x, xpi_ep_refuse(ep, "xport_rkey_unpack"));
	r = xpi_rkey_unpack(ep, buf, len, rkey);
	return leave(ep->x, r == XPORT_OK ? r : xpi_ep_refused(ep, r));
}

void xport_rkey_destroy(xport_rkey *rkey)
{
	struct xport *x = rkey != NULL ? rkey->ep->x : NULL;

	if (x == NULL || enter(x, "xport_rkey_destroy") != XPORT_OK)
		return;
	xpi_rkey_destroy(rkey);
	leave(x, 0);
}

int xport_rkey_query(const xport_rkey *rkey, struct xport_rkey_info *info)
{
	struct xport_rkey_info all = {.size = info != NULL ? info->size : 0};
	int r;

	if (rkey == NULL)
		return XPORT_ERR_INVALID;
	r = xpi_enter_to_look(rkey->ep->x); /* the owner's word on the key may come in another thread's poll */
	if (r != XPORT_OK)
		return r;
	if (!xpi_grow_size(all.size, XPI_FIRST_RKEY_INFO)) {
		r = xpi_refuse(rkey->ep->x, XPORT_ERR_INVALID, "xport_rkey_query",
		               "info is NULL or info->size is wrong");
		return leave(rkey->ep->x, xpi_ep_refused(rkey->ep, r));
	}
	all.length = rkey->length;
	all.rights = rkey->rights;
	all.put = path(rkey->put != XPI_ROUTE_AM);
	all.get = path(rkey->get != XPI_ROUTE_AM);
	all.direct = rkey->direct != NULL;
	all.atomic = path(rkey->atomic == XPI_ROUTE_NATIVE);
	all.exact = !rkey->inexact;
	all.in_flight = xpi_rkey_in_flight(rkey);
	xpi_grow_out(info, all.size, &all, sizeof(all));
	return leave(rkey->ep->x, XPORT_OK);
}
