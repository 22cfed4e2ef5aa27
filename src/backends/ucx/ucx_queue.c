/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_queue.c - whether what peers write into this instance's queue in shared memory is still read.
 *
 * All peers write into one queue of UCX's worker.  One that is killed between taking an entry and filling it leaves an
 * entry that never becomes valid, and UCX 1.13 reads nothing behind it any more, from nobody, for ever; their hearts go
 * on beating.  Nothing here can mend that, but nobody shall wait for it: whenever an endpoint was closed, this instance
 * writes a message into the queue itself.  While that does not arrive although UCX finds nothing to read, the queue
 * stands; after a second of it all endpoints are failed, and no new one is made.
 *
 * Only where UCX has that way alone (ucx:shm): among several the message to ourselves may take another one.
 */
#include "base/status.h"
#include "ucx.h"

enum { STANDS_MS = 1000, STANDS_POLLS = 100 };

static const char why[] =
	"UCX's queue in shared memory stands still: a peer was killed, or stopped, while it wrote into it";

ucs_status_t ucx_queue_arrived(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
	struct xpi_be *be = arg;

	(void)header;
	(void)header_length;
	(void)data;
	(void)length;
	(void)param;
	be->aside &= (uint8_t)~UCX_ASIDE_ASKED;
	if (be->queue.again)
		ucx_queue_ask(be);
	return UCS_OK;
}

static void sent(void *request, ucs_status_t status, void *arg)
{
	(void)status;
	(void)arg;
	ucp_request_free(request);
}

void ucx_queue_ask(struct xpi_be *be)
{
	static const ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_FLAGS,
		.flags = UCP_AM_SEND_FLAG_EAGER,
		.cb.send = sent,
	};
	static const char byte = 'q';

	if (!be->provider->shm || be->provider->sockets || be->queue.stands)
		return;
	/* The one under way may be in front of what the peer left that ended now. */
	be->queue.again = (be->aside & UCX_ASIDE_ASKED) != 0;
	if (be->queue.again || UCS_PTR_IS_ERR(ucp_am_send_nbx(be->self, UCX_QUEUE_ID, NULL, 0, &byte, 1, &param)))
		return;
	be->queue.since_ms = ucx_now_ms();
	be->queue.polls = 0;
	be->aside |= UCX_ASIDE_ASKED;
}

int ucx_queue_fail(struct xpi_be *be)
{
	return xpi_fail(be->err, XPORT_ERR_SYSTEM, 0, NULL, "close this instance and open another; or use ucx:tcp",
	                "%s", why);
}

static void stand(struct xpi_be *be)
{
	be->queue.stands = true;
	be->aside &= (uint8_t)~UCX_ASIDE_ASKED;
	xpi_log(be->log, XPORT_LOG_ERROR, "1015", "ucx: %s; all endpoints of this instance are failed", why);
	xpi_list_for(link, &be->eps)
		ucx_ep_lost(xpi_container(link, struct ucx_ep, link), UCS_ERR_ENDPOINT_TIMEOUT, why);
}

void ucx_queue_look(struct xpi_be *be, int n)
{
	be->queue.polls = n == 0 ? be->queue.polls + 1 : 0;
	if (be->queue.polls < STANDS_POLLS || ucx_now_ms() - be->queue.since_ms < STANDS_MS)
		return;
	stand(be);
}
