/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx_comp.c - UCX requests: turning the result of a post into the contract's, and completing requests. */
#include <stdlib.h>

#include "ucx.h"

/*
 * Turns the result of a UCX call that may return a request into the contract's. `copy` is freed when the request completes, or
 * now. Never calls back into the core: the return value is the report.
 */
int ucx_posted(struct ucx_ep *ep, ucs_status_ptr_t result, struct xpi_req *req, void *copy, const char *what)
{
	struct ucx_rec *rec = result;
	ucs_status_t status;

	if (UCS_PTR_IS_PTR(result)) {
		rec->ep = ep;
		rec->req = req;
		rec->copy = copy;
		xpi_list_push(&ep->pending, &rec->link);
		ep->npending++;
		ep->be->npending++;
		ep->room -= ep->room > 0;
		return XPI_PENDING;
	}
	free(copy);
	status = UCS_PTR_RAW_STATUS(result);
	if (status == UCS_OK)
		return XPORT_OK;
	if (status == UCS_ERR_NO_RESOURCE)
		return XPORT_ERR_AGAIN;
	if (status != UCS_ERR_NO_MEMORY) {
		ep->room = 0;
		if (ep->why == UCS_OK)
			ep->why = status;
	}
	return ucx_fail(ep->be, status, NULL, what);
}

/* UCX's callback for completed requests. */
void ucx_ended(void *request, ucs_status_t status, void *arg)
{
	struct ucx_rec *rec = request;
	struct ucx_ep *ep = rec->ep;
	struct xpi_req *req = rec->req;
	struct xpi_be *be = ep->be;

	(void)arg;
	xpi_list_del(&rec->link);
	ep->npending--;
	be->npending--;
	if (ep->state <= UCX_EP_UP && ep->why == UCS_OK)
		ep->room++;
	free(rec->copy);
	ucp_request_free(request);
	if (req != NULL) {
		be->up->done(be->core, req, ucx_status(status));
		return;
	}
	ep->settled = true; /* a flush or a greeting that ep_connect or ep_quiesce waits for */
	if (status != UCS_OK && ep->why == UCS_OK)
		ep->why = status;
}
