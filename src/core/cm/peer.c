/* SPDX-License-Identifier: BSD-3-Clause */
/* peer.c - what each side says of itself, and what an endpoint takes over from the peer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/traffic.h"
#include "core/cm/addr.h"
#include "core/cm/handshake.h"
#include "core/cm/negotiate.h"
#include "core/liveness/flow.h"
#include "core/liveness/monitor.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/match.h"
#include "core/object/match_peer.h"
#include "core/object/op_life.h"
#include "core/object/set.h"
#include "core/object/usdt.h"
#include "core/wire/hello.h"

static bool big_endian(void)
{
	const uint16_t one = 1;

	return *(const uint8_t *)&one == 0;
}

void xpi_conn_identity(struct xport *x, const struct xpi_transport *tp, uint32_t forbidden, struct xpi_hello *h)
{
	memset(h, 0, sizeof(*h));
	h->offer = tp != NULL ? (uint8_t)tp->index : XPI_OFFER_NONE;
	h->theirs = XPI_OFFER_NONE;
	tp = tp != NULL ? tp : x->tp;
	h->wire_version = XPI_WIRE_VERSION;
	snprintf(h->library, sizeof(h->library), "%s", PACKAGE_VERSION);
	snprintf(h->backend, sizeof(h->backend), "%s", tp->ops->name);
	snprintf(h->provider, sizeof(h->provider), "%s", tp->caps.provider);
	snprintf(h->stack, sizeof(h->stack), "%s", tp->caps.stack);
	h->pointer_size = sizeof(void *);
	h->big_endian = big_endian();
	xpi_hello_process(h, &x->self);
	xpi_offers_fill(x, forbidden, h);
	h->incarnation = x->incarnation;
	h->frame_max = (uint32_t)tp->caps.am_max;
	h->credits = tp->caps.am_credits;
	h->window = xpi_window(x);
	h->requests = XPI_REQUESTS;
	h->peer_timeout_ms = (uint32_t)x->settings.peer_timeout_ms;
}

const char xpi_auth_hint[] =
	"give both sides the same XPORT_AUTH_KEY_FILE; in a trusted network XPORT_AUTH=none will do";

int xpi_conn_attr_check(struct xport *x, const struct xport_conn_attr *attr, uint32_t *forbidden)
{
	*forbidden = 0;
	if (attr == NULL)
		return XPORT_OK;
	if (attr->private_len > XPI_PRIVATE_MAX || (attr->private_len > 0 && attr->private_data == NULL))
		return xpi_fail(&x->err, XPORT_ERR_INVALID, 0, NULL, NULL,
		                "private data of %zu bytes: it must be given, and be %d at most", attr->private_len,
		                XPI_PRIVATE_MAX);
	if (attr->backlog < 0)
		return xpi_fail(&x->err, XPORT_ERR_INVALID, 0, NULL, NULL, "backlog is %d", attr->backlog);
	if (attr->connect_ms < 0)
		return xpi_fail(&x->err, XPORT_ERR_INVALID, 0, NULL, "0 means 30 s", "connect_ms is %d",
		                attr->connect_ms);
	if (!xpi_traffic_valid(attr->traffic_class))
		return xpi_fail(&x->err, XPORT_ERR_INVALID, 0, NULL, "use one of enum xport_traffic",
		                "traffic_class is %lld", (long long)attr->traffic_class);
	if (attr->transports != NULL)
		return xpi_candidates_forbid(&x->set->candidates, attr->transports, forbidden, &x->err);
	return XPORT_OK;
}

int xpi_conn_resolve(struct xport *x, const char *address, struct xpi_addrs *addrs)
{
	struct xport_error err = x->err;
	int rc, r = XPORT_OK;

	xpi_fd_fill(); /* the resolver opens descriptors, too */
	if ((x->slow & (XPI_SLOW_LOCK | XPI_SLOW_WATCH)) != XPI_SLOW_LOCK)
		return xpi_addr_resolve(address, true, addrs, &x->err);
	pthread_mutex_unlock(&x->lock);
	rc = xpi_addr_resolve(address, true, addrs, &err);
	r = xpi_enter_slowly(x);
	if (r != XPORT_OK)
		return r;
	x->err = err;
	return rc;
}

bool xpi_ep_set_peer(struct xport_ep *ep, const struct xpi_hello *h)
{
	if (h->private_len > 0) {
		ep->peer.private_data = malloc(h->private_len);
		if (ep->peer.private_data == NULL)
			return false;
		memcpy(ep->peer.private_data, h->private_data, h->private_len);
		ep->peer.private_len = h->private_len;
	}
	ep->peer.id = h->ep_id;
	ep->peer.session = h->session;
	ep->peer.incarnation = h->incarnation;
	ep->peer.pid = h->pid;
	memcpy(ep->peer.host, h->host, sizeof(ep->peer.host));
	xpi_ep_set_limits(ep, h);
	return true;
}

int xpi_ep_established(struct xport_ep *ep, int fd, bool same_host, const struct xpi_hello *peer)
{
	struct xport *x = ep->x;
	uint32_t theirs = xpi_clamp(peer->peer_timeout_ms, 200, 3600000);
	uint32_t ours = (uint32_t)x->settings.peer_timeout_ms;
	int r;

	ep->chan.wake_flag = x->wake_flag;
	ep->chan.fd = fd;
	ep->chan.flow.n =
		(struct xpi_flow_counters){&ep->tx.seq, &ep->rx.state.ack, &ep->n.control_out, &ep->n.control_in};
	ep->chan.timeout_ms = (int)ours;
	ep->chan.beat_ms = (int)(theirs < ours ? theirs : ours) / 4;
	r = xpi_chan_start(x->live, &ep->chan, same_host ? peer->pid : 0, peer->start_time);
	if (r != XPORT_OK) { /* LCOV_EXCL_BR_LINE: by fault alone, as a watch */
		ep->chan.fd = -1;
		return xpi_fail_errno(&x->err, r, NULL, "cannot watch the control socket");
	}
	ep->state = XPI_EP_OPEN;
	xpi_peers_reached(xpi_match_peers(x->match), ep);
	XPI_PROBE_CONNECT(ep, ep->peer.name, ep->peer.pid);
	xpi_log(x->log, XPORT_LOG_INFO, "0001", "%s: connected to process %lld on %s by %s:%s%s%s", ep->peer.name,
	        (long long)ep->peer.pid, ep->peer.host, ep->tp->ops->name, ep->tp->caps.provider,
	        ep->passed_over != NULL ? "; passed over " : "", ep->passed_over != NULL ? ep->passed_over : "");
	if (ep->announce)
		xpi_event(x, &ep->up_room, XPORT_EVENT_CONNECTED, XPORT_OK, ep, ep->context);
	return XPORT_OK;
}
