/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_rma.c - put and get by a network adapter.
 *
 * These are only for keys that an RDMA transport made. On tcp and on ordinary memory UCX would send a message whose
 * handler copies to any address it names, unchecked, so the core's own checked protocol is used. It is also used for
 * long data outside a region: UCX would register the memory, which may fail and then ends the endpoint.
 */
#include "ucx.h"

static const ucp_request_param_t rma_param = {
	.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
	.cb.send = ucx_ended,
	.memory_type = UCS_MEMORY_TYPE_HOST,
};

/* XPORT_OK: the operation may be posted. */
static inline int ucx_rma_ready(const struct ucx_ep *ep, const struct ucx_rkey *key, const struct ucx_mr *mr,
                                size_t len)
{
	if (ucx_unlikely(key->rkey == NULL) || (len > UCX_UNREGISTERED_MAX && (mr == NULL || mr->mem == NULL)))
		return XPORT_ERR_NOT_SUPPORTED;
	if (ucx_unlikely(ep->room == 0))
		return ep->why != UCS_OK || ep->state >= UCX_EP_CLOSING ? XPORT_ERR_PEER_LOST : XPORT_ERR_AGAIN;
	return XPORT_OK;
}

int ucx_put(struct xpi_be *be, void *ep_, const void *buf, size_t len, void *mr, void *rkey, uint64_t offset,
            struct xpi_req *req)
{
	struct ucx_ep *ep = ep_;
	struct ucx_rkey *key = rkey;
	int rc = ucx_rma_ready(ep, key, mr, len);

	(void)be;
	if (rc != XPORT_OK)
		return rc;
	return ucx_posted(ep, ucp_put_nbx(ep->ucp, buf, len, key->base + offset, key->rkey, &rma_param), req, NULL,
	                  "a put");
}

int ucx_get(struct xpi_be *be, void *ep_, void *buf, size_t len, void *mr, void *rkey, uint64_t offset,
            struct xpi_req *req)
{
	struct ucx_ep *ep = ep_;
	struct ucx_rkey *key = rkey;
	int rc = ucx_rma_ready(ep, key, mr, len);

	(void)be;
	if (rc != XPORT_OK)
		return rc;
	return ucx_posted(ep, ucp_get_nbx(ep->ucp, buf, len, key->base + offset, key->rkey, &rma_param), req, NULL,
	                  "a get");
}

/* Flushes the endpoint: the worker's flush reports success although an endpoint failed. */
int ucx_drain(struct xpi_be *be, void *ep_, struct xpi_req *req)
{
	struct ucx_ep *ep = ep_;

	(void)be;
	if (ucx_unlikely(ep->room == 0))
		return ep->why != UCS_OK || ep->state >= UCX_EP_CLOSING ? XPORT_ERR_PEER_LOST : XPORT_ERR_AGAIN;
	return ucx_posted(ep, ucp_ep_flush_nbx(ep->ucp, &rma_param), req, NULL, "a flush");
}
