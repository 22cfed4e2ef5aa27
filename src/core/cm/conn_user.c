/* SPDX-License-Identifier: BSD-3-Clause */
/* conn_user.c - whether the process at the other end of a handshake is one of our user. */
#include <unistd.h>

#include "base/clock.h"
#include "base/user.h"
#include "core/cm/cm.h"
#include "core/cm/handshake.h"
#include "core/object/ep.h"
#include "core/object/instance.h"

/* A peer that has refused and closed has no user any more. Its reason, which says more, comes within this time. */
enum { REASON_MS = 100 };

int xpi_conn_same_user(struct xpi_core *core, struct xpi_core_ep *core_ep)
{
	static const char hint[] =
		"run both programs as the same user, or use a provider of the network on both sides: "
		"XPORT_BACKEND=ucx:tcp or ofi:tcp";
	const struct xport_ep *ep = (const struct xport_ep *)core_ep;
	struct xport *x = ep->x;
	uid_t uid = 0;

	(void)core;
	if (ep->conn == NULL || ep->conn->fd < 0)
		return xpi_fail(&x->err, XPORT_ERR_SYSTEM, 0, NULL, NULL,
		                "no handshake is in progress on the endpoint");
	switch (xpi_peer_user(ep->conn->fd, &uid)) {
	case XPI_PEER_OURS:
		return XPORT_OK;
	case XPI_PEER_OTHERS:
		return xpi_fail(
			&x->err, XPORT_ERR_AUTH, 0, NULL, hint,
			"the two processes run as different users (%u and %u), and %s:%s shares memory only between "
			"processes of one user",
			(unsigned)geteuid(), (unsigned)uid, ep->tp->ops->name, ep->tp->caps.provider);
	default:
		if (xpi_now_ms() - ep->conn->native_ms < REASON_MS)
			return XPORT_ERR_AGAIN;
		return xpi_fail(
			&x->err, XPORT_ERR_AUTH, 0, NULL, hint,
			"the kernel does not say as which user the peer runs (is it in another network namespace, or "
			"has it ended?), and %s:%s shares memory only between processes of one user",
			ep->tp->ops->name, ep->tp->caps.provider);
	}
}
