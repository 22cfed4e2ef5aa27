/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx_ep_state.c - the state of an endpoint, for the files below ucx_ep.c. It calls none of them. */
#include "ucx.h"

/* Does not close the UCX endpoint, which is not allowed in a callback: the core closes it. */
void ucx_ep_lost(struct ucx_ep *ep, ucs_status_t status, const char *why)
{
	ep->room = 0;
	if (ep->why == UCS_OK)
		ep->why = status;
	if (ep->state != UCX_EP_UP || ep->told)
		return; /* ep_connect returns it, or the core asked for it */
	ep->told = true;
	ep->be->up->ep_failed(ep->be->core, ep->core_ep, status, why);
}

struct ucx_ep *ucx_ep_of(struct xpi_be *be, ucp_ep_h ucp)
{
	xpi_list_for(link, &be->eps) {
		struct ucx_ep *ep = xpi_container(link, struct ucx_ep, link);

		if (ep->ucp == ucp)
			return ep;
	}
	return NULL;
}

void ucx_ep_drop(ucp_ep_h ucp)
{
	static const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
	                                          .flags = UCP_EP_CLOSE_FLAG_FORCE};
	ucs_status_ptr_t closing = ucp_ep_close_nbx(ucp, &force);

	if (UCS_PTR_IS_PTR(closing))
		ucp_request_free(closing);
}
