/* SPDX-License-Identifier: BSD-3-Clause */
/* transport.c - opening and closing one back end of an instance. */
#include "core/object/transport.h"

#include <stdlib.h>

#include "base/status.h"
#include "core/config/registry.h"
#include "core/config/select.h"

static int fits(struct xpi_transport *tp)
{
	const char *contradiction = xpi_registry_contradiction(tp->ops, &tp->caps);

	if (contradiction == NULL)
		return XPORT_OK;
	return xpi_fail(&tp->x->err, XPORT_ERR_INCOMPATIBLE, 0, NULL,
	                "this is a mistake of the back end, see backend.h", "%s:%s cannot be used: %s", tp->ops->name,
	                tp->caps.provider, contradiction);
}

int xpi_transport_open(struct xport *x, const struct xpi_core_ops *up, size_t frame_head)
{
	struct xpi_transport *tp = calloc(1, sizeof(*tp));
	struct xpi_be_open_args args = {
		.core = (struct xpi_core *)tp,
		.up = up,
		.log = x->log,
		.err = &x->err, /* where the back end goes on to describe its failures */
		.peer_timeout_ms = x->settings.peer_timeout_ms,
		.options = x->settings.chaos,
	};
	struct xpi_choice choice;
	int r;

	if (tp == NULL)
		return xpi_fail(&x->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for an instance");
	r = xpi_select(&x->settings, &args, &choice);
	if (r != XPORT_OK) {
		free(tp);
		return r;
	}
	tp->x = x;
	tp->ops = choice.ops;
	tp->am_send = choice.ops->am_send;
	tp->be = choice.be;
	tp->caps = choice.caps;
	xpi_pool_init(&tp->frame_pool, frame_head + tp->caps.am_max, 64);
	xpi_list_push(&x->transports, &tp->link);
	r = fits(tp);
	if (r != XPORT_OK) {
		xpi_transport_close(tp);
		return r;
	}
	x->tp = tp;
	x->be = tp->be;
	x->poll = tp->ops->poll;
	return XPORT_OK;
}

void xpi_transport_close(struct xpi_transport *tp)
{
	tp->ops->close(tp->be);
	xpi_list_del(&tp->link);
	xpi_pool_fini(&tp->frame_pool);
	free(tp);
}
