/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/object/early.h"

#include <stdlib.h>
#include <string.h>

#include "core/object/ep.h"
#include "core/object/instance.h"

int xpi_early_keep(struct xport_ep *ep, const void *p, size_t len, const void *rest, size_t rlen)
{
	struct xpi_early *f;

	/* A peer may send its credits, and frames that need none: back ends are prepared for so many (xpi_be_caps.am_credits). */
	if (ep->nearly >= ep->rx.credits + ep->tp->credits + 8)
		return XPORT_ERR_PROTOCOL;
	f = malloc(sizeof(*f) + len + rlen);
	if (f == NULL)
		return XPORT_ERR_NO_MEMORY;
	f->len = len + rlen;
	memcpy(f->bytes, p, len);
	if (rlen > 0)
		memcpy(f->bytes + len, rest, rlen);
	xpi_list_push(&ep->early, &f->link);
	ep->nearly++;
	ep->x->nearly++;
	return XPORT_OK;
}

struct xpi_early *xpi_early_take(struct xport_ep *ep)
{
	struct xpi_early *f;

	if (xpi_list_empty(&ep->early))
		return NULL;
	f = xpi_container(ep->early.next, struct xpi_early, link);
	xpi_list_del(&f->link);
	ep->nearly--;
	ep->x->nearly--;
	return f;
}
