/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_watchdog.c - detecting that this instance's queue in shared memory is blocked.
 *
 * All peers write into one queue of UCX's worker. A peer that is killed between taking an entry and filling it
 * leaves an entry that never becomes valid. UCX 1.13 then reads nothing behind it, from any peer, for ever, while
 * their heartbeats continue. This cannot be repaired, but nobody should wait for it. Whenever an endpoint was
 * closed, this instance writes a message into its own queue. If the message does not arrive although UCX finds
 * nothing to read, the queue is blocked. After a second all endpoints are failed, and no new one is made.
 *
 * This is done only if UCX has no other transport (ucx:shm). With several, which UCX_TLS may ask for, the message
 * may use another one. There the core detects such peers one by one (core/liveness/keepalive.c).
 */
#include "base/status.h"
#include "ucx.h"

enum { STANDS_MS = 1000, STANDS_POLLS = 100 };

static const char why[] =
	"UCX's queue in shared memory is stuck: a peer was killed or stopped while it wrote to the queue";

ucs_status_t ucx_watchdog_arrived(void *arg, const void *header, size_t header_length, void *data, size_t length,
                                  const ucp_am_recv_param_t *param)
{
	struct xpi_be *be = arg;

	(void)header;
	(void)header_length;
	(void)data;
	(void)length;
	(void)param;
	be->aside &= (uint8_t)~UCX_ASIDE_ASKED;
	if (be->watchdog.again)
		ucx_watchdog_ask(be);
	return UCS_OK;
}

static void ask_sent(void *request, ucs_status_t status, void *arg)
{
	(void)status;
	(void)arg;
	ucp_request_free(request);
}

void ucx_watchdog_ask(struct xpi_be *be)
{
	static const ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_FLAGS,
		.flags = UCP_AM_SEND_FLAG_EAGER,
		.cb.send = ask_sent,
	};
	static const char byte = 'q';

	if (!be->provider->shm || be->watchdog.stands)
		return;
	/* A message in flight may be ahead of the entry that this peer left. */
	be->watchdog.again = (be->aside & UCX_ASIDE_ASKED) != 0;
	if (be->watchdog.again || UCS_PTR_IS_ERR(ucp_am_send_nbx(be->self, UCX_WATCHDOG_ID, NULL, 0, &byte, 1, &param)))
		return;
	be->watchdog.since_ms = xpi_now_ms();
	be->watchdog.polls = 0;
	be->aside |= UCX_ASIDE_ASKED;
}

int ucx_watchdog_fail(struct xpi_be *be)
{
	return xpi_fail(be->err, XPORT_ERR_SYSTEM, 0, NULL, "close this instance and open another one, or use ucx:tcp",
	                "%s", why);
}

static void stand(struct xpi_be *be)
{
	be->watchdog.stands = true;
	be->aside &= (uint8_t)~UCX_ASIDE_ASKED;
	xpi_log(be->log, XPORT_LOG_ERROR, "1015", "ucx: %s; all endpoints over ucx:shm are lost", why);
	xpi_list_for(link, &be->eps)
		ucx_ep_lost(xpi_container(link, struct ucx_ep, link), UCS_ERR_ENDPOINT_TIMEOUT, why);
}

void ucx_watchdog_look(struct xpi_be *be, int n)
{
	be->watchdog.polls = n == 0 ? be->watchdog.polls + 1 : 0;
	if (be->watchdog.polls < STANDS_POLLS || xpi_now_ms() - be->watchdog.since_ms < STANDS_MS)
		return;
	stand(be);
}
