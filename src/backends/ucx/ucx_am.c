/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_am.c - frames.
 *
 * A frame is one UCX active message, always eager.  One piece travels as UCX payload without a UCX header; of two
 * pieces the first is the UCX header, so that nothing is copied here and the receiver sees them cut in the same place.
 *
 * UCX does not say who sent it: one worker serves all peers.  UCP_AM_SEND_FLAG_REPLY would name an endpoint, but by a number in
 * the message that its sender writes; so a hostile peer could name another's.  It costs 8 bytes a frame besides.
 */
#include <stdlib.h>
#include <string.h>

#include "ucx.h"

static const ucp_request_param_t am_param = {
	.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
	.flags = UCP_AM_SEND_FLAG_EAGER,
	.cb.send = ucx_ended,
	.memory_type = UCS_MEMORY_TYPE_HOST,
};

static ucs_status_t am_arrived(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
	struct xpi_be *be = arg;

	if (ucx_unlikely(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
		/* libxport never starts a rendezvous: this is a foreign sender. */
		xpi_log(be->log, XPORT_LOG_WARN, "1010", "ucx: dropped a rendezvous message of %zu bytes", length);
		return UCS_OK;
	}
	if (header_length == 0)
		be->up->am_recv(be->core, NULL, data, length, NULL, 0);
	else
		be->up->am_recv(be->core, NULL, header, header_length, data, length);
	return UCS_OK;
}

static ucs_status_t am_set_handler(struct xpi_be *be, unsigned id, ucp_am_recv_callback_t cb)
{
	ucp_am_handler_param_t param = {
		.field_mask =
			UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
		.id = id,
		.cb = cb,
		.arg = be,
	};

	return ucp_worker_set_am_recv_handler(be->worker, &param);
}

int ucx_am_open(struct xpi_be *be)
{
	ucs_status_t status = am_set_handler(be, UCX_AM_ID, am_arrived);

	if (status == UCS_OK)
		status = am_set_handler(be, UCX_WATCHDOG_ID, ucx_watchdog_arrived);
	if (status == UCS_OK)
		status = am_set_handler(be, UCX_GREETING_ID, ucx_match_greeted);
	return status == UCS_OK ? XPORT_OK : ucx_fail(be, status, NULL, "setting the handlers of active messages");
}

/* ---- frames that UCX must copy ---- */

/*
 * For an adapter UCX registers long data, with write access. That fails for read-only memory, and at the limit of locked memory,
 * and the failure ends the endpoint. Data of a generic datatype is copied instead.
 */
struct ucx_piece {
	struct xpi_be *be;
	const uint8_t *data;
	size_t len;
};

static void *pack_begin(void *be_, const void *data, size_t len)
{
	struct xpi_be *be = be_;
	struct ucx_piece *piece = be->piece;

	be->piece = NULL;
	*piece = (struct ucx_piece){.be = be, .data = data, .len = len};
	return piece;
}

static size_t pack_size(void *piece)
{
	return ((const struct ucx_piece *)piece)->len;
}

static size_t pack(void *piece_, size_t offset, void *to, size_t max)
{
	const struct ucx_piece *piece = piece_;
	size_t n = piece->len - offset < max ? piece->len - offset : max;

	memcpy(to, piece->data + offset, n);
	return n;
}

static void *unpack_begin(void *be, void *data, size_t len)
{
	(void)be;
	(void)data;
	(void)len;
	return NULL; /* this datatype is never used to receive */
}

static ucs_status_t unpack_refuse(void *piece, size_t offset, const void *from, size_t len)
{
	(void)piece;
	(void)offset;
	(void)from;
	(void)len;
	return UCS_ERR_UNSUPPORTED;
}

static void pack_end(void *piece_)
{
	struct ucx_piece *piece = piece_;

	if (piece != NULL)
		xpi_pool_put(&piece->be->pieces, piece);
}

int ucx_am_pack(struct xpi_be *be)
{
	static const ucp_generic_dt_ops_t ops = {.start_pack = pack_begin,
	                                         .start_unpack = unpack_begin,
	                                         .packed_size = pack_size,
	                                         .pack = pack,
	                                         .unpack = unpack_refuse,
	                                         .finish = pack_end};
	ucs_status_t status = ucp_dt_create_generic(&ops, be, &be->packed);

	xpi_pool_init(&be->pieces, sizeof(struct ucx_piece), 64);
	if (status == UCS_OK)
		return XPORT_OK;
	be->packed = 0;
	return ucx_fail(be, status, NULL, "creating the UCX datatype for frames");
}

void ucx_am_close(struct xpi_be *be)
{
	if (be->packed != 0)
		ucp_dt_destroy(be->packed);
	xpi_pool_fini(&be->pieces);
}

static int am_send_packed(struct xpi_be *be, struct ucx_ep *ep, const void *hdr, size_t hlen, const void *data,
                          size_t dlen, struct xpi_req *req)
{
	ucp_request_param_t param = am_param;
	ucs_status_ptr_t result;

	be->piece = xpi_pool_get(&be->pieces);
	if (be->piece == NULL)
		return XPORT_ERR_AGAIN;
	param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
	param.datatype = be->packed;
	result = ucp_am_send_nbx(ep->ucp, UCX_AM_ID, hdr, hlen, data, dlen, &param);
	if (be->piece != NULL)
		xpi_pool_put(&be->pieces, be->piece);
	be->piece = NULL;
	return result == NULL ? XPORT_OK : ucx_posted(ep, result, req, NULL, "sending a frame");
}

/* ---- sending ---- */

/* The rare case: no free request, or a failed endpoint. */
static __attribute__((cold)) int am_send_not(const struct ucx_ep *ep)
{
	return ep->why != UCS_OK || ep->state >= UCX_EP_CLOSING ? XPORT_ERR_PEER_LOST : XPORT_ERR_AGAIN;
}

int ucx_am_send(struct xpi_be *be, void *ep_, const void *buf, size_t len, struct xpi_req *req)
{
	struct ucx_ep *ep = ep_;
	ucs_status_ptr_t result;

	if (ucx_unlikely(ep->room == 0))
		return am_send_not(ep);
	if (ucx_unlikely(len > UCX_UNREGISTERED_MAX) && be->packed != 0)
		return am_send_packed(be, ep, NULL, 0, buf, len, req);
	ep->sending = req; /* kept in memory: a register would have to be saved */
	result = ucp_am_send_nbx(ep->ucp, UCX_AM_ID, NULL, 0, buf, len, &am_param);
	if (ucx_likely(result == NULL))
		return XPORT_OK;
	return ucx_posted(ep, result, ep->sending, NULL, "sending a frame");
}

/* For a first piece that is too long for a header. */
static __attribute__((cold)) int am_send_copy(struct ucx_ep *ep, const void *hdr, size_t hlen, const void *data,
                                              size_t dlen, struct xpi_req *req)
{
	char *copy = malloc(hlen + dlen);

	if (copy == NULL)
		return XPORT_ERR_AGAIN;
	memcpy(copy, hdr, hlen);
	memcpy(copy + hlen, data, dlen);
	return ucx_posted(ep, ucp_am_send_nbx(ep->ucp, UCX_AM_ID, NULL, 0, copy, hlen + dlen, &am_param), req, copy,
	                  "sending a frame");
}

int ucx_am_send_two(struct xpi_be *be, void *ep_, const void *hdr, size_t hlen, const void *data, size_t dlen,
                    struct xpi_req *req)
{
	struct ucx_ep *ep = ep_;
	ucs_status_ptr_t result;

	if (ucx_unlikely(ep->room == 0))
		return am_send_not(ep);
	if (ucx_unlikely(hlen > be->hdr_max))
		return am_send_copy(ep, hdr, hlen, data, dlen, req);
	if (be->packed != 0 && dlen > UCX_UNREGISTERED_MAX)
		return am_send_packed(be, ep, hdr, hlen, data, dlen, req);
	result = ucp_am_send_nbx(ep->ucp, UCX_AM_ID, hdr, hlen, data, dlen, &am_param);
	return ucx_likely(result == NULL) ? XPORT_OK : ucx_posted(ep, result, req, NULL, "sending a frame");
}
