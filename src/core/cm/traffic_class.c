/* SPDX-License-Identifier: BSD-3-Clause */
/* traffic_class.c - the traffic class of a connection: which one, and who marks its packets. */
#include "base/traffic.h"

#include "core/cm/handshake.h"

int xpi_conn_traffic_wish(const struct xport *x, const struct xport_conn_attr *attr)
{
	if (attr != NULL && attr->traffic_class != XPORT_TRAFFIC_DEFAULT)
		return (int)attr->traffic_class;
	return x->settings.traffic_class;
}

/* Heartbeats must not starve behind everything else: the class below best effort is for data alone. */
void xpi_conn_traffic_socket(const struct xport *x, int fd, int traffic_class)
{
	if (traffic_class == XPORT_TRAFFIC_DEFAULT)
		return;
	if (!xpi_traffic_mark(fd, traffic_class == XPORT_TRAFFIC_BULK ? XPORT_TRAFFIC_NORMAL : traffic_class))
		xpi_log(x->log, XPORT_LOG_WARN, "0117", "the control channel cannot be marked %s: %m",
		        xpi_traffic_name(traffic_class));
}

/* Whether the connection may go on with data that is not marked. */
static int unmarked(struct xpi_conn *conn)
{
	struct xport_ep *ep = conn->ep;
	struct xport *x = conn->x;

	xpi_log(x->log, XPORT_LOG_INFO, "0118", "%s: %s:%s does not mark the data of this connection as %s",
	        conn->remote, ep->tp->ops->name, ep->tp->caps.provider, xpi_traffic_name(ep->traffic));
	if ((x->settings.require & XPI_REQUIRE_TRAFFIC_CLASS) == 0)
		return XPORT_OK;
	return xpi_fail(&x->err, XPORT_ERR_NOT_SUPPORTED, 0, NULL,
	                "XPORT_TRAFFIC_CLASS may help, which is for all connections; or do not require traffic_class",
	                "%s:%s cannot mark this connection as %s, and XPORT_REQUIRE asks for that", ep->tp->ops->name,
	                ep->tp->caps.provider, xpi_traffic_name(ep->traffic));
}

static int mark(struct xpi_conn *conn)
{
	const struct xpi_transport *tp = conn->ep->tp;

	switch (tp->caps.traffic) {
	case XPI_TRAFFIC_EACH:
		return tp->ops->ep_mark(tp->be, xpi_ep_be(conn->ep), conn->ep->traffic);
	case XPI_TRAFFIC_OPEN:
		return conn->ep->traffic == conn->x->settings.traffic_class ? XPORT_OK : XPORT_ERR_NOT_SUPPORTED;
	case XPI_TRAFFIC_LOCAL:
		return XPORT_OK;
	default:
		return XPORT_ERR_NOT_SUPPORTED;
	}
}

/* Marks it, or puts that off until it is connected. */
static int mark_now(struct xpi_conn *conn, bool connected)
{
	int rc = mark(conn);

	conn->mark = rc == XPORT_ERR_AGAIN && !connected ? XPI_MARK_LAST : XPI_MARK_DONE;
	conn->ep->traffic_marked = rc == XPORT_OK;
	return rc == XPORT_OK || conn->mark == XPI_MARK_LAST ? XPORT_OK : unmarked(conn);
}

int xpi_conn_traffic_begin(struct xpi_conn *conn)
{
	bool client = conn->listener == NULL;
	uint8_t first = client ? conn->traffic : conn->peer.traffic_class;
	uint8_t second = client ? conn->peer.traffic_class : conn->traffic;

	if (conn->mark != XPI_MARK_FIRST)
		return XPORT_OK;
	conn->mark = XPI_MARK_DONE;
	conn->ep->traffic = first != XPORT_TRAFFIC_DEFAULT ? first : second;
	conn->ep->traffic_marked = false;
	if (conn->ep->traffic != conn->traffic)
		xpi_conn_traffic_socket(conn->x, conn->fd, conn->ep->traffic);
	return conn->ep->traffic != XPORT_TRAFFIC_DEFAULT ? mark_now(conn, false) : XPORT_OK;
}

int xpi_conn_traffic_end(struct xpi_conn *conn)
{
	return conn->mark == XPI_MARK_LAST ? mark_now(conn, true) : XPORT_OK;
}
