/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_ep.c - endpoints: UCX worker addresses, exchanged by the core's control channel.
 *
 *   address: u16 length, the bytes of the worker address; among pairs u64 what the greeting is to say
 */
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/status.h"
#include "ucx.h"

enum { GIVE_UP_MS = 1000, EMPTY_MS = 50 };

int ucx_address(struct xpi_be *be, void *ep_, struct xpi_core_ep *core_ep, void *buf, size_t *len)
{
	struct ucx_ep *ep = ep_;
	struct xpi_wr w = xpi_wr(buf, *len);
	int rc = ucx_descriptors(be->err, "a connection"); /* now, while the peer need not hear of it */

	if (rc == XPORT_OK && be->queue.stands)
		rc = ucx_queue_fail(be);
	if (rc != XPORT_OK)
		return rc;
	memset(ep, 0, sizeof(*ep));
	ep->be = be;
	ep->core_ep = core_ep;
	xpi_list_init(&ep->pending);
	xpi_wr_u16(&w, (uint16_t)be->address_len);
	xpi_wr_bytes(&w, be->address, be->address_len);
	if (be->provider->pairs) {
		rc = ucx_pair_expect(ep);
		if (rc != XPORT_OK)
			return rc;
		xpi_wr_u64(&w, ep->token);
	}
	if (w.bad) {
		ucx_pair_forget(ep);
		return xpi_fail(be->err, XPORT_ERR_NO_MEMORY, 0, NULL, "name fewer devices in UCX_NET_DEVICES",
		                "the UCX worker address of %zu bytes is too long", be->address_len);
	}
	*len -= w.left;
	return XPORT_OK;
}

/* It may not be closed from here; the core will. */
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

static void ep_failed(void *be, ucp_ep_h ucp, ucs_status_t status)
{
	struct ucx_ep *ep = ucx_ep_of(be, ucp);

	if (ep != NULL) /* of a stray nobody needs to hear */
		ucx_ep_lost(ep, status, ucs_status_string(status));
}

void ucx_ep_drop(ucp_ep_h ucp)
{
	static const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
	                                          .flags = UCP_EP_CLOSE_FLAG_FORCE};
	ucs_status_ptr_t closing = ucp_ep_close_nbx(ucp, &force);

	if (UCS_PTR_IS_PTR(closing))
		ucp_request_free(closing);
}

/* Whatever UCX calls it, a peer that cannot be connected to is unreachable. */
static int connect_fail(struct xpi_be *be, ucs_status_t status)
{
	static const char todo[] =
		"have both ends a network in common, or on one host shared memory? a firewall? on RoCE of "
		"several networks: UCX_IB_ROCE_LOCAL_SUBNET=y";
	int rc = ucx_fail(be, status, todo, "connecting to the peer's UCX address");

	if ((rc != XPORT_ERR_NO_MEMORY && rc != XPORT_ERR_PROTOCOL && rc != XPORT_ERR_SYSTEM &&
	     rc != XPORT_ERR_AGAIN) ||
	    status == UCS_ERR_SHMEM_SEGMENT)
		rc = XPORT_ERR_UNREACHABLE;
	if (be->err != NULL)
		be->err->status = rc;
	return rc;
}

/*
 * The first flush ends when the way there and back is known to work.  One that cannot even begin is tried again at the next
 * poll, until the connection's time is over: an endpoint that is closed before its peer has answered is what UCX bears
 * least (see give_up_time).  One that has failed tells ep_failed.
 */
static void flush(struct ucx_ep *ep)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.send = ucx_ended};
	ucs_status_ptr_t result = ucp_ep_flush_nbx(ep->ucp, &param);

	ep->flushing = !UCS_PTR_IS_ERR(result);
	if (ep->flushing)
		ep->settled = ucx_posted(ep, result, NULL, NULL, "a flush") == XPORT_OK;
}

/*
 * Has UCX exchange what it calls the wireup, by a message too unusual to go without: UCX would do so at the first long
 * frame otherwise.  Over sockets this is the moment for it.  A word of the wireup that waits for a socket to be acknowledged,
 * or for data before it to leave, is a failed assertion of UCX 1.13, an abort, if the peer dies meanwhile: in the one case
 * when sending it finds that out, in the other when what waits is thrown away.  Now the socket is acknowledged, and
 * neither end has anything to send: nothing waits.
 *
 * Among pairs it says which endpoint of the peer is meant.
 */
static void greet(struct ucx_ep *ep)
{
	static char byte = 'g';
	static const ucp_dt_iov_t iov = {.buffer = &byte, .length = 1}; /* a list is never short */
	bool pairs = ep->be->provider->pairs;
	const ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_DATATYPE,
		.flags = UCP_AM_SEND_FLAG_EAGER | (pairs ? UCP_AM_SEND_FLAG_REPLY : 0),
		.cb.send = ucx_ended,
		.datatype = ucp_dt_make_iov(),
	};
	ucs_status_ptr_t result = ucp_am_send_nbx(ep->ucp, UCX_GREETING_ID, pairs ? &ep->token : NULL,
	                                          pairs ? sizeof(ep->token) : 0, &iov, 1, &param);

	ep->greeted = !UCS_PTR_IS_ERR(result);
	if (ep->greeted)
		ep->settled = ucx_posted(ep, result, NULL, NULL, "a greeting") == XPORT_OK;
}

/* Creates UCX's endpoint. */
static int ep_create(struct ucx_ep *ep, const void *addr, size_t len)
{
	struct xpi_be *be = ep->be;
	struct xpi_rd r = xpi_rd(addr, len);
	size_t n = xpi_rd_u16(&r);
	const uint8_t *bytes = xpi_rd_bytes(&r, n);
	uint64_t token = be->provider->pairs ? xpi_rd_u64(&r) : 0;
	char blob[2 * UCX_ADDRESS_MAX] = {0}; /* UCX's decoder takes no length: zeros behind the copy stop it */
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
	                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.address = (const ucp_address_t *)blob,
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = {.cb = ep_failed, .arg = be},
	};
	ucs_status_t status;
	int rc;

	if (r.bad || r.left != 0 || n < 16 || n > UCX_ADDRESS_MAX)
		return xpi_fail(be->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL,
		                "the peer's UCX address of %zu bytes is malformed", len);
	memcpy(blob, bytes, n);
	ucx_sink_probe(&be->sink, true); /* what UCX logs now is the reason of the failure */
	status = be->provider->pairs ? ucx_pair_create(ep, &params) : ucp_ep_create(be->worker, &params, &ep->ucp);
	if (status != UCS_OK) {
		ep->ucp = NULL;
		rc = connect_fail(be, status);
	}
	ucx_sink_probe(&be->sink, false);
	if (status != UCS_OK)
		return rc;
	xpi_list_push(&be->eps, &ep->link);
	ucx_pair_forget(ep); /* the active side; and it says the peer's */
	ep->token = token;
	ep->state = UCX_EP_CONNECTING;
	ep->room = UCX_PENDING_MAX;
	return XPORT_OK;
}

/* Whether all is said that has to be, each in its time. */
static bool settled(struct ucx_ep *ep)
{
	if (ep->why != UCS_OK)
		return true;
	if (!ep->flushing)
		flush(ep);
	if (ep->settled && ep->greets && !ep->greeted)
		greet(ep);
	return ep->settled && ep->greeted == ep->greets;
}

int ucx_ep_connect(struct xpi_be *be, void *ep_, enum xpi_role role, const void *addr, size_t len)
{
	struct ucx_ep *ep = ep_;
	int rc;

	if (ep->state == UCX_EP_NEW) {
		if (ucx_pair_waits(ep, role))
			return XPORT_ERR_AGAIN;
		ep->greets = be->provider->sockets || (be->provider->pairs && role == XPI_ACTIVE);
		rc = ep_create(ep, addr, len);
		if (rc != XPORT_OK)
			return rc;
	}
	if (!settled(ep))
		return XPORT_ERR_AGAIN;
	if (ep->why != UCS_OK)
		return connect_fail(be, ep->why);
	ep->state = UCX_EP_UP;
	return XPORT_OK;
}

/*
 * Whether to stop waiting for a connection that is no longer wanted.  UCX 1.13's tcp pairs the sockets of two workers
 * by counting; a socket that closes before the peer has answered on it is later taken for the next endpoint's, and
 * that ends in a failed assertion, an abort, in the PEER.  So an endpoint is closed only once the peer has answered,
 * or has had the time to.  Over sockets that is what the first flush waits for; elsewhere RESOLVE_REMOTE_EP_ID makes UCX
 * ask, and the flush comes behind that on the same way.
 */
static bool give_up_time(struct ucx_ep *ep, unsigned after_ms)
{
	uint64_t ms = ucx_now_ms();

	if (ep->give_up_ms == 0)
		ep->give_up_ms = ms + after_ms;
	return ms >= ep->give_up_ms;
}

/*
 * Whether nothing waits for the socket to take it, or it has waited long enough.  UCX's tcp keeps the socket of an endpoint
 * that is closed before the peer's, until it reads that the peer has closed, too: then it frees what it knows of the
 * socket, and if the same event of epoll says that the socket takes more, looks into that memory for what to call
 * (uct_tcp_iface_handle_events, in 1.13.1 and in what came after).  It asks for that event while something waits.  The peer's
 * UCX must answer the flush; a peer that does not is not about to close either, and a socket that it lets fill up takes no
 * word of closing from UCX, which then keeps nothing.
 */
static bool emptied(struct ucx_ep *ep)
{
	if (!ep->be->provider->sockets || ep->why != UCS_OK)
		return true;
	if (!ep->emptying)
		flush(ep);
	if (!ep->emptying || ep->npending < ep->left)
		ep->give_up_ms = 0; /* who takes some takes more */
	ep->emptying = true;
	ep->left = ep->npending;
	return ep->settled || give_up_time(ep, EMPTY_MS);
}

int ucx_ep_quiesce(struct xpi_be *be, void *ep_)
{
	ucp_request_param_t force = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK,
		.flags = UCP_EP_CLOSE_FLAG_FORCE,
		.cb.send = ucx_ended,
	};
	struct ucx_ep *ep = ep_;
	int rc;

	ucx_pair_forget(ep);
	if (ep->state == UCX_EP_CONNECTING && !settled(ep) && !give_up_time(ep, GIVE_UP_MS))
		return XPORT_ERR_AGAIN;
	if (ep->state == UCX_EP_UP && !emptied(ep))
		return XPORT_ERR_AGAIN;
	if (ep->state == UCX_EP_CONNECTING || ep->state == UCX_EP_UP) {
		ep->state = UCX_EP_CLOSING;
		ep->room = 0;
		rc = ucx_posted(ep, ucp_ep_close_nbx(ep->ucp, &force), NULL, NULL, "closing an endpoint");
		ep->ucp = NULL;
		xpi_list_del(&ep->link);
		ucx_queue_ask(be);
		if (rc < 0)
			xpi_log(be->log, XPORT_LOG_WARN, "1012", "ucx: an endpoint did not close: %s",
			        xpi_status_name(rc));
	}
	if (ep->npending > 0)
		return XPORT_ERR_AGAIN;
	ep->state = UCX_EP_CLOSED;
	return XPORT_OK;
}

void ucx_ep_destroy(struct xpi_be *be, void *ep)
{
	(void)be;
	(void)ep; /* nothing is left of it after quiesce */
}
