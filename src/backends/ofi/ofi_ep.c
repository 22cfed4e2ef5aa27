/* SPDX-License-Identifier: BSD-3-Clause */
/* ofi_ep.c - endpoints, from their address to their end. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/status.h"
#include "base/traffic.h"
#include "ofi.h"

enum {
	DOUBT_MS = 300, /* how long to wait before checking whether the address answers, if there are other addresses */
	LINGER_MS = 900, /* less than the second during which the core calls at every poll */
	BAR_MS = 50      /* for a process that holds the lock; a living one takes microseconds */
};

static const char spent[] =
	"libfabric has no send entries left: connections that ended while their peers did not read still hold them";

static int refuse_spent(struct xpi_be *be)
{
	return xpi_fail(be->err, XPORT_ERR_SYSTEM, FI_ENOSPC, "FI_ENOSPC",
	                "close this instance and open another one, or use ofi:tcp", "%s", spent);
}

int ofi_address(struct xpi_be *be, void *ep_, struct xpi_core_ep *core_ep, void *buf, size_t *len)
{
	struct ofi_ep *ep = ep_;
	int rc;

	memset(ep, 0, sizeof(*ep));
	ep->be = be;
	ep->core_ep = core_ep;
	ep->from = be->rdm ? NULL : core_ep;
	ep->to = FI_ADDR_UNSPEC;
	xpi_list_init(&ep->posted);
	xpi_list_init(&ep->idle);
	xpi_list_init(&ep->early);
	xpi_list_init(&ep->bounces);
	if (be->spent)
		return refuse_spent(be);
	if (getrandom(ep->cookie, sizeof(ep->cookie), 0) != sizeof(ep->cookie))
		return xpi_fail_errno(be->err, XPORT_ERR_SYSTEM, NULL, "getrandom failed");
	rc = be->rdm ? ofi_rdm_prepare(ep) : XPORT_OK;
	if (rc == XPORT_OK)
		rc = ofi_addr_pack(be, ep, buf, len);
	if (rc != XPORT_OK) {
		ofi_ep_shut(ep);
		return rc;
	}
	xpi_list_push(&be->eps, &ep->link);
	be->neps++;
	be->nconnecting++;
	be->calm = 0;
	return XPORT_OK;
}

/* ---- connecting ---- */

/* A peer that cannot be connected to is unreachable, whatever libfabric calls it. Running out of descriptors is not. */
static int ofi_connect_fail(struct ofi_ep *ep)
{
	struct xport_error *err = ep->be->err;
	const char *lack = ofi_lack(ep->why);
	char to[64] = "this side", what[96];
	int rc = ofi_status(ep->why);

	if (ep->npeer > 0)
		ofi_addr_text(&ep->peer[ep->tried < ep->npeer ? ep->tried : ep->npeer - 1], to, sizeof(to));
	snprintf(what, sizeof(what), "connecting with libfabric to %s", to);
	ofi_fail(err, ep->why,
	         lack != NULL ? lack : "check that both ends share a network, and that no firewall is between them",
	         what);
	ofi_explain(ep->be->quirk, err);
	if (rc == XPORT_ERR_PEER_LOST || rc == XPORT_ERR_INVALID || rc == XPORT_ERR_AGAIN)
		rc = XPORT_ERR_UNREACHABLE;
	if (err != NULL)
		err->status = rc;
	return rc;
}

static void attempt(struct ofi_ep *ep)
{
	int rc;

	ep->why = 0;
	ep->state = OFI_EP_CONNECTING;
	ep->give_up_ms = xpi_now_ms() + DOUBT_MS;
	rc = ofi_cm_connect(ep);
	if (rc != 0)
		ep->why = rc;
}

/*
 * Whether to keep waiting for this address. An address that answers is not given up for the next one: its program is
 * not polling yet, and will accept the first attempt. An adapter reports by itself that nobody answers.
 */
static bool patient(struct ofi_ep *ep)
{
	if (ep->tried + 1 >= ep->npeer || ep->be->info->nic != NULL || xpi_now_ms() < ep->give_up_ms)
		return true;
	return !ep->probing && ofi_cm_probe_begin(ep) == 0;
}

/* Tries one address after the other, until one answers or none is left. */
static int connect_active(struct ofi_ep *ep, const void *addr, size_t len)
{
	int rc;

	if (ep->state == OFI_EP_NEW) {
		rc = ofi_addr_unpack(ep, addr, len);
		if (rc != XPORT_OK)
			return rc;
		attempt(ep);
	}
	while (ep->state == OFI_EP_CONNECTING) {
		ofi_cm_probe(ep);
		if (ep->why == 0 && patient(ep))
			return XPORT_ERR_AGAIN;
		if (ep->tried + 1 >= ep->npeer)
			return ofi_connect_fail(ep);
		ofi_ep_shut(ep);
		ep->tried++;
		attempt(ep);
	}
	return ep->why == 0 ? XPORT_OK : ofi_connect_fail(ep);
}

int ofi_ep_connect(struct xpi_be *be, void *ep_, enum xpi_role role, const void *addr, size_t len)
{
	struct ofi_ep *ep = ep_;

	if (be->rdm) {
		int rc = ep->why == 0 ? ofi_rdm_connect(ep, addr, len) : XPORT_OK;

		return ep->why != 0 ? ofi_connect_fail(ep) : rc;
	}
	if (role == XPI_ACTIVE)
		return connect_active(ep, addr, len);
	if (ep->why != 0)
		return ofi_connect_fail(ep);
	return ep->state == OFI_EP_UP ? XPORT_OK : XPORT_ERR_AGAIN;
}

/*
 * fi_tx_attr.tclass is no help: verbs (1.17) ignores it, and tcp and net only derive TCP_NODELAY from it. So their socket
 * is marked itself, which exists once they are connected.
 */
int ofi_ep_mark(struct xpi_be *be, void *ep_, int traffic_class)
{
	struct ofi_ep *ep = ep_;
	int fd;

	if (!be->rdm && ep->state != OFI_EP_UP)
		return XPORT_ERR_AGAIN;
	fd = be->rdm ? ep->socket : ofi_filter_connected(ep);
	return fd >= 0 && xpi_traffic_mark(fd, traffic_class) ? XPORT_OK : XPORT_ERR_SYSTEM;
}

/* ---- ending ---- */

/*
 * Whether to delay closing. A provider with manual progress may not even have started the last frames. If frames are
 * in progress when an endpoint of the sockets provider (1.17) is closed, it loses one of its 128 entries for good. So
 * it gets some polls to finish, while the core calls at each poll. A peer that does not read ends this as well.
 */
static bool lingers(struct ofi_ep *ep)
{
	unsigned limit = ep->room < ep->be->nsend ? 2000 : 16;

	if (ep->lingered == 0)
		ep->linger_until_ms = xpi_now_ms() + LINGER_MS;
	return ep->state == OFI_EP_UP && ep->why == 0 && ep->lingered++ < limit && xpi_now_ms() < ep->linger_until_ms;
}

/*
 * Locks the endpoint's page for good. A peer in this process sends by a pointer to our queue, with the shm provider
 * (1.17), even after the queue is gone: from now on it cannot enter. False: the peer holds the lock, which is short
 * unless it died. A thread of this process did not die, however long it is not scheduled: the memory must stay.
 */
static bool bar(struct ofi_ep *ep)
{
	if (ep->ours == NULL || ofi_lock_try(ep->ours))
		return true;
	if (ep->bar_until_ms == 0)
		ep->bar_until_ms = xpi_now_ms() + BAR_MS;
	return !ep->beside && xpi_now_ms() >= ep->bar_until_ms;
}

/*
 * Whether only a quarter of the send entries is left. From here on a few peers that do not read would block all
 * others for ever.
 */
static bool is_spent(const struct xpi_be *be)
{
	return be->nentries_lost >= be->quirk->entries / 4 * 3;
}

/* Counts the entries lost with the endpoint. Fails all endpoints before nothing can be sent any more. */
static void count_entries(struct xpi_be *be, const struct ofi_ep *ep)
{
	xpi_list_for(link, &ep->posted)
		be->nentries_lost += !xpi_container(link, struct ofi_rec, link)->recv;
	if (be->spent || !is_spent(be))
		return;
	be->spent = true;
	xpi_log(be->log, XPORT_LOG_ERROR, "3017", "ofi: %s; all endpoints over ofi:sockets are lost", spent);
	xpi_list_for(other, &be->eps)
		ofi_ep_lost_with(xpi_container(other, struct ofi_ep, link), -FI_ENOSPC, spent);
}

int ofi_ep_quiesce(struct xpi_be *be, void *ep_)
{
	struct ofi_ep *ep = ep_;

	if (ep->state == OFI_EP_CLOSED)
		return XPORT_OK;
	if (be->quirk->manual && lingers(ep))
		return XPORT_ERR_AGAIN;
	if (!bar(ep))
		return XPORT_ERR_AGAIN;
	if (ep->state != OFI_EP_UP)
		be->nconnecting--;
	ep->state = OFI_EP_CLOSED;
	ofi_ep_not_gone(ep);
	if (be->quirk->entries > 0)
		count_entries(be, ep);
	ofi_ep_shut(ep);
	xpi_list_del(&ep->link);
	be->neps--;
	for (int i = 0; i < OFI_HOT && ep->hot; i++)
		if (be->hot[i] == ep)
			be->hot[i] = NULL;
	return XPORT_OK;
}

void ofi_ep_destroy(struct xpi_be *be, void *ep)
{
	(void)be;
	(void)ep; /* quiesce has freed everything */
}
