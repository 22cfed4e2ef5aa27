/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_ep_match.c - matching UCX endpoints of two sides, if each is connected to one other (queue pairs).
 *
 * UCX pairs the endpoints of two workers by counting: the n-th that one side creates belongs to the n-th of the
 * other. For an endpoint without a counterpart the other worker creates one itself and keeps it under that number.
 * If no counterpart is ever created, because the creator gives up, the counts differ from then on. A later endpoint
 * is taken from the kept ones: it looks connected, and what is sent over it is lost silently
 * (ucp_ep_create_api_to_worker_addr and ucp_wireup_process_request, in 1.13 and later).
 *
 * So only the active side creates an endpoint, and sends a greeting over it with a token from the passive side's
 * address. UCX reports which endpoint the greeting came over. The passive side then creates endpoints until it gets
 * that one. Other endpoints that it gets may belong to connections whose greeting has not arrived yet, and are kept
 * for a while.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "ucx.h"

enum { APART_MAX = 256, STRAY_MS = 60000 };

struct stray {
	struct xpi_list link; /* xpi_be.strays */
	ucp_ep_h ucp;
	int64_t since_ms; /* CLOCK_MONOTONIC */
};

bool ucx_match_waits(const struct ucx_ep *ep, enum xpi_role role)
{
	return ep->be->provider->pairs && role == XPI_PASSIVE && ep->greeter == NULL;
}

int ucx_match_expect(struct ucx_ep *ep)
{
	if (getrandom(&ep->token, sizeof(ep->token), 0) != sizeof(ep->token))
		return xpi_fail_errno(ep->be->err, XPORT_ERR_SYSTEM, NULL, "getrandom failed");
	xpi_list_push(&ep->be->expected, &ep->expecting);
	return XPORT_OK;
}

void ucx_match_forget(struct ucx_ep *ep)
{
	if (xpi_list_linked(&ep->expecting))
		xpi_list_del(&ep->expecting);
}

ucs_status_t ucx_match_greeted(void *be_, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
	struct xpi_be *be = be_;
	uint64_t token;

	(void)data;
	(void)length;
	if (header_length != sizeof(token) || (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0)
		return UCS_OK;
	memcpy(&token, header, sizeof(token));
	xpi_list_for(link, &be->expected) {
		struct ucx_ep *ep = xpi_container(link, struct ucx_ep, expecting);

		if (ep->token == token) {
			ep->greeter = param->reply_ep;
			ucx_match_forget(ep);
			break;
		}
	}
	return UCS_OK;
}

static void stray_end(struct stray *s, bool close)
{
	if (close)
		ucx_ep_drop(s->ucp);
	xpi_list_del(&s->link);
	free(s);
}

/* Closes strays up to this age. The oldest are first. */
static void strays_end(struct xpi_be *be, int64_t until_ms)
{
	while (!xpi_list_empty(&be->strays)) {
		struct stray *s = xpi_container(be->strays.next, struct stray, link);

		if (s->since_ms > until_ms)
			return;
		stray_end(s, true);
	}
}

void ucx_match_close(struct xpi_be *be)
{
	strays_end(be, INT64_MAX);
}

static bool take_stray(struct xpi_be *be, ucp_ep_h ucp)
{
	xpi_list_for(link, &be->strays) {
		struct stray *s = xpi_container(link, struct stray, link);

		if (s->ucp == ucp) {
			stray_end(s, false);
			return true;
		}
	}
	return false;
}

static ucs_status_t keep_stray(struct xpi_be *be, ucp_ep_h ucp)
{
	struct stray *s = calloc(1, sizeof(*s));

	if (s == NULL) {
		ucx_ep_drop(ucp);
		return UCS_ERR_NO_MEMORY;
	}
	s->ucp = ucp;
	s->since_ms = xpi_now_ms();
	xpi_list_push(&be->strays, &s->link);
	return UCS_OK;
}

ucs_status_t ucx_match_create(struct ucx_ep *ep, const ucp_ep_params_t *params)
{
	struct xpi_be *be = ep->be;
	int64_t now = xpi_now_ms();
	/* If both sides are active at once, UCX has paired their endpoints, and any counterpart will do. */
	bool any = ep->greeter == NULL || ucx_ep_of(be, ep->greeter) != NULL;
	ucs_status_t status;

	strays_end(be, now - STRAY_MS);
	if (!any && take_stray(be, ep->greeter)) {
		ep->ucp = ep->greeter;
		return UCS_OK;
	}
	for (int i = 0; i < APART_MAX; i++) {
		status = ucp_ep_create(be->worker, params, &ep->ucp);
		if (status != UCS_OK || any || ep->ucp == ep->greeter)
			return status;
		status = keep_stray(be, ep->ucp);
		if (status != UCS_OK)
			return status;
	}
	return UCS_ERR_UNREACHABLE;
}
