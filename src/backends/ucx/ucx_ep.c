/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_ep.c - endpoints: UCX worker addresses, exchanged by the core's control channel.
 *
 *   address: u16 length, the bytes of the worker address; u64 token for the greeting, if the provider has `pairs`
 */
#include <string.h>

#include "base/bytes.h"
#include "base/status.h"
#include "ucx.h"

enum { GIVE_UP_MS = 1000, EMPTY_MS = 50 };

int ucx_address(struct xpi_be *be, void *ep_, struct xpi_core_ep *core_ep, void *buf, size_t *len)
{
	struct ucx_ep *ep = ep_;
	struct xpi_wr w = xpi_wr(buf, *len);
	int rc = ucx_descriptors(be->err, "a connection"); /* now, before the peer is involved */

	if (rc == XPORT_OK && be->watchdog.stands)
		rc = ucx_watchdog_fail(be);
	if (rc != XPORT_OK)
		return rc;
	memset(ep, 0, sizeof(*ep));
	ep->be = be;
	ep->core_ep = core_ep;
	xpi_list_init(&ep->pending);
	xpi_wr_u16(&w, (uint16_t)be->address_len);
	xpi_wr_bytes(&w, be->address, be->address_len);
	if (be->provider->pairs) {
		rc = ucx_match_expect(ep);
		if (rc != XPORT_OK)
			return rc;
		xpi_wr_u64(&w, ep->token);
	}
	if (w.bad) {
		ucx_match_forget(ep);
		return xpi_fail(be->err, XPORT_ERR_NO_MEMORY, 0, NULL, "name fewer devices in UCX_NET_DEVICES",
		                "the UCX worker address of %zu bytes is too long", be->address_len);
	}
	*len -= w.left;
	return XPORT_OK;
}

static void ep_failed(void *be, ucp_ep_h ucp, ucs_status_t status)
{
	struct ucx_ep *ep = ucx_ep_of(be, ucp);

	if (ep != NULL) /* a stray endpoint needs no report */
		ucx_ep_lost(ep, status, ucs_status_string(status));
}

/* Most failures to connect mean that the peer is unreachable, whatever UCX calls them. */
static int ucx_connect_fail(struct xpi_be *be, ucs_status_t status)
{
	static const char todo[] =
		"check that both ends share a network, or /dev/shm on one host, and that no firewall is between them; "
		"on RoCE with several subnets try UCX_IB_ROCE_LOCAL_SUBNET=y";
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
 * The first flush completes when the connection works in both directions. If it cannot begin, it is tried again at the next
 * poll, until the connection times out: closing an endpoint before its peer has answered is dangerous with UCX (see
 * give_up_time). A failed endpoint is reported by ep_failed.
 */
static void ep_flush(struct ucx_ep *ep)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.send = ucx_ended};
	ucs_status_ptr_t result = ucp_ep_flush_nbx(ep->ucp, &param);

	ep->flushing = !UCS_PTR_IS_ERR(result);
	if (ep->flushing)
		ep->settled = ucx_posted(ep, result, NULL, NULL, "a flush") == XPORT_OK;
}

/*
 * Makes UCX exchange its wireup messages now, by sending a message that needs them. Otherwise UCX would do so at the first long
 * frame. UCX 1.13 aborts by a failed assertion if the peer dies while a wireup message waits: for the socket to be
 * acknowledged, or behind other data. At this moment the socket is acknowledged and neither side has data to send, so nothing
 * waits.
 *
 * With `pairs` it also names the peer's endpoint.
 */
static void ep_greet(struct ucx_ep *ep)
{
	static char byte = 'g';
	static const ucp_dt_iov_t iov = {.buffer = &byte, .length = 1}; /* an IOV is never sent as a short message */
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
		ep->settled = ucx_posted(ep, result, NULL, NULL, "sending a greeting") == XPORT_OK;
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
	rc = ucx_may_map(ep, bytes, n);
	if (rc != XPORT_OK)
		return rc;
	memcpy(blob, bytes, n);
	ucx_sink_probe(&be->sink, true); /* UCX's log lines from here on are the reason of a failure */
	status = be->provider->pairs ? ucx_match_create(ep, &params) : ucp_ep_create(be->worker, &params, &ep->ucp);
	if (status != UCS_OK) {
		ep->ucp = NULL;
		rc = ucx_connect_fail(be, status);
	}
	ucx_sink_probe(&be->sink, false);
	if (status != UCS_OK)
		return rc;
	xpi_list_push(&be->eps, &ep->link);
	ucx_match_forget(ep); /* the active side, whose greeting carries the peer's token */
	ep->token = token;
	ep->state = UCX_EP_CONNECTING;
	ep->room = UCX_PENDING_MAX;
	return XPORT_OK;
}

/* Whether the flush and the greeting are done, or the endpoint has failed. Starts each when it is due. */
static bool ep_settled(struct ucx_ep *ep)
{
	if (ep->why != UCS_OK)
		return true;
	if (!ep->flushing)
		ep_flush(ep);
	if (ep->settled && ep->greets && !ep->greeted)
		ep_greet(ep);
	return ep->settled && ep->greeted == ep->greets;
}

int ucx_ep_connect(struct xpi_be *be, void *ep_, enum xpi_role role, const void *addr, size_t len)
{
	struct ucx_ep *ep = ep_;
	int rc;

	if (ep->state == UCX_EP_NEW) {
		if (ucx_match_waits(ep, role))
			return XPORT_ERR_AGAIN;
		ep->greets = be->provider->sockets || (be->provider->pairs && role == XPI_ACTIVE);
		rc = ep_create(ep, addr, len);
		if (rc != XPORT_OK)
			return rc;
	}
	if (!ep_settled(ep))
		return XPORT_ERR_AGAIN;
	if (ep->why != UCS_OK)
		return ucx_connect_fail(be, ep->why);
	ep->state = UCX_EP_UP;
	return XPORT_OK;
}

/*
 * Whether to stop waiting for a connection that is no longer wanted. UCX 1.13's tcp pairs the sockets of two workers by
 * counting. If a socket closes before the peer has answered on it, the PEER later takes it for the next endpoint's socket, and
 * aborts by a failed assertion. So an endpoint is closed only once the peer has answered, or has had time to. Over sockets the
 * first flush waits for that answer. Elsewhere RESOLVE_REMOTE_EP_ID makes UCX ask the peer, and the flush follows on the same
 * path.
 */
static bool give_up_time(struct ucx_ep *ep, unsigned after_ms)
{
	int64_t ms = xpi_now_ms();

	if (ep->give_up_ms == 0)
		ep->give_up_ms = ms + after_ms;
	return ms >= ep->give_up_ms;
}

/*
 * Whether no data waits for the socket, or it has waited long enough. If an endpoint is closed before the peer's, UCX's tcp keeps
 * its socket until it reads that the peer has closed too. Then it frees the socket's state. If the same epoll event says that
 * the socket is writable, it uses the freed state (uct_tcp_iface_handle_events, in 1.13.1 and later). It waits for that event
 * while data is queued. The peer's UCX must answer the flush. A peer that does not is not about to close either. If it lets the
 * socket fill up, UCX cannot send that it closes, and then keeps nothing.
 */
static bool emptied(struct ucx_ep *ep)
{
	if (!ep->be->provider->sockets || ep->why != UCS_OK)
		return true;
	if (!ep->emptying)
		ep_flush(ep);
	if (!ep->emptying || ep->npending < ep->left)
		ep->give_up_ms = 0; /* the peer is reading: wait on */
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

	ucx_match_forget(ep);
	if (ep->state < UCX_EP_UP || ep->why != UCS_OK)
		be->ended_early_ms = xpi_now_ms();
	if (ep->state == UCX_EP_CONNECTING && !ep_settled(ep) && !give_up_time(ep, GIVE_UP_MS))
		return XPORT_ERR_AGAIN;
	if (ep->state == UCX_EP_UP && !emptied(ep))
		return XPORT_ERR_AGAIN;
	if (ep->state == UCX_EP_CONNECTING || ep->state == UCX_EP_UP) {
		ep->state = UCX_EP_CLOSING;
		ep->room = 0;
		rc = ucx_posted(ep, ucp_ep_close_nbx(ep->ucp, &force), NULL, NULL, "closing an endpoint");
		ep->ucp = NULL;
		xpi_list_del(&ep->link);
		ucx_watchdog_ask(be);
		if (rc < 0)
			xpi_log(be->log, XPORT_LOG_WARN, "1012", "ucx: closing an endpoint failed: %s",
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
	(void)ep; /* quiesce has freed everything */
}
