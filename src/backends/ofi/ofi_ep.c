/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_ep.c - endpoints, from their address to their end.
 *
 * Closing libfabric's endpoint is the only way to get its buffers back; what is still in the completion queue by then
 * is recognised and dropped (ofi_comp.c).
 */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/status.h"
#include "ofi.h"

enum {
	DOUBT_MS = 300, /* for so long it is not asked whether the address answers at all, where there are others */
	LINGER_MS = 900, /* of the second in which the core calls at every poll */
	BAR_MS = 50     /* another process that is inside the page; a living one takes microseconds */
};

static const char spent[] =
	"libfabric has no entries left for what is sent: connections kept them that ended while their peers did "
	"not read";

static int refuse_spent(struct xpi_be *be)
{
	return xpi_fail(be->err, XPORT_ERR_SYSTEM, FI_ENOSPC, "FI_ENOSPC",
	                "close this instance and open another; or use ofi:tcp", "%s", spent);
}

int ofi_address(struct xpi_be *be, void *ep_, struct xpi_core_ep *core_ep, void *buf, size_t *len)
{
	struct ofi_ep *ep = ep_;
	int rc;

	memset(ep, 0, sizeof(*ep));
	ep->be = be;
	ep->core_ep = core_ep;
	ep->to = FI_ADDR_UNSPEC;
	xpi_list_init(&ep->posted);
	xpi_list_init(&ep->idle);
	xpi_list_init(&ep->early);
	xpi_list_init(&ep->bounces);
	if (be->spent)
		return refuse_spent(be);
	if (getrandom(ep->cookie, sizeof(ep->cookie), 0) != sizeof(ep->cookie))
		return xpi_fail_errno(be->err, XPORT_ERR_SYSTEM, NULL, "no random numbers");
	rc = be->rdm ? ofi_rdm_prepare(ep) : XPORT_OK;
	if (rc == XPORT_OK)
		rc = ofi_addr_pack(be, ep, buf, len);
	if (rc != XPORT_OK) {
		ofi_ep_shut(ep);
		return rc;
	}
	xpi_list_push(&be->eps, &ep->link);
	be->nconnecting++;
	be->calm = 0;
	return XPORT_OK;
}

int ofi_ep_open(struct ofi_ep *ep, struct fi_info *info)
{
	struct xpi_be *be = ep->be;
	int rc = fi_endpoint(be->domain, info != NULL ? info : be->info, &ep->fid, ep);

	ep->info = info;
	if (rc != 0) {
		ep->fid = NULL;
		return rc;
	}
	if (!be->rdm)
		ep->state = OFI_EP_CONNECTING;
	rc = fi_ep_bind(ep->fid, be->rdm ? &ep->av->fid : &be->eq->fid, 0);
	if (rc == 0 && ep->eq != NULL)
		rc = fi_ep_bind(ep->fid, &ep->eq->fid, 0);
	if (rc == 0)
		rc = fi_ep_bind(ep->fid, ep->cq != NULL ? &ep->cq->fid : &be->cq->fid, FI_TRANSMIT | FI_RECV);
	if (rc == 0)
		rc = ofi_am_open(ep);
	if (rc == 0)
		rc = fi_enable(ep->fid);
	if (rc == 0)
		rc = ofi_am_feed(ep);
	return rc;
}

/* Undoes ofi_ep_open, whatever came of it. */
void ofi_ep_shut(struct ofi_ep *ep)
{
	int rc;

	ofi_am_room(ep, 0);
	ofi_cm_probe_end(ep);
	if (ep->fid != NULL) {
		rc = fi_close(&ep->fid->fid);
		if (rc != 0)
			xpi_log(ep->be->log, XPORT_LOG_WARN, "3012", "ofi: an endpoint did not close: %s",
			        fi_strerror(-rc));
		ep->fid = NULL;
	}
	ofi_am_close(ep);
	ofi_rdm_close(ep);
	fi_freeinfo(ep->info);
	ep->info = NULL;
}

void ofi_ep_connected(struct ofi_ep *ep)
{
	struct xpi_be *be = ep->be;

	if (ep->state != OFI_EP_CONNECTING || ep->why != 0)
		return;
	ofi_cm_probe_end(ep);
	ep->state = OFI_EP_UP;
	ofi_am_room(ep, be->nsend);
	be->nconnecting--;
}

static void not_gone(struct ofi_ep *ep)
{
	ep->be->ngone -= ep->gone;
	ep->gone = false;
}

static void lost(struct ofi_ep *ep, int why, const char *text)
{
	not_gone(ep);
	ofi_am_room(ep, 0);
	if (ep->why == 0)
		ep->why = why;
	if (ep->state != OFI_EP_UP || ep->told)
		return; /* ep_connect returns it, or the core asked for it */
	ep->told = true;
	ep->be->up->ep_failed(ep->be->core, ep->core_ep, -why, text);
}

void ofi_ep_lost(struct ofi_ep *ep, int why)
{
	lost(ep, why, fi_strerror(-why));
}

void ofi_ep_gone(struct ofi_ep *ep, int why)
{
	if (ep->state != OFI_EP_UP || ep->told) {
		ofi_ep_lost(ep, why);
		return;
	}
	ofi_am_room(ep, 0);
	if (ep->why == 0)
		ep->why = why;
	ep->be->ngone += !ep->gone;
	ep->be->calm = 0;
	ep->gone = true;
}

void ofi_ep_tell_gone(struct xpi_be *be)
{
	be->gone_polls = 0;
	xpi_list_for(link, &be->eps) {
		struct ofi_ep *ep = xpi_container(link, struct ofi_ep, link);

		if (ep->gone)
			ofi_ep_lost(ep, ep->why);
	}
}

/* ---- connecting ---- */

/* Whatever libfabric calls it, a peer that cannot be connected to is unreachable; having no descriptors is not. */
static int connect_fail(struct ofi_ep *ep)
{
	struct xport_error *err = ep->be->err;
	const char *lack = ofi_lack(ep->why);
	char to[64] = "this side", what[96];
	int rc = ofi_status(ep->why);

	if (ep->npeer > 0)
		ofi_addr_text(&ep->peer[ep->tried < ep->npeer ? ep->tried : ep->npeer - 1], to, sizeof(to));
	snprintf(what, sizeof(what), "connecting by libfabric to %s", to);
	ofi_fail(err, ep->why, lack != NULL ? lack : "have both ends a network in common? a firewall?", what);
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
	ep->give_up_ms = ofi_now_ms() + DOUBT_MS;
	rc = ofi_cm_connect(ep);
	if (rc != 0)
		ep->why = rc;
}

/*
 * Whether to wait on for this address.  One that answers is not given up for the next: its program only does not poll
 * yet, and will take the attempt that came first.  An adapter says by itself that nobody answers.
 */
static bool patient(struct ofi_ep *ep)
{
	if (ep->tried + 1 >= ep->npeer || ep->be->info->nic != NULL || ofi_now_ms() < ep->give_up_ms)
		return true;
	return !ep->probing && ofi_cm_probe_begin(ep) == 0;
}

/* One attempt after the other, until an address answers or none is left. */
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
			return connect_fail(ep);
		ofi_ep_shut(ep);
		ep->tried++;
		attempt(ep);
	}
	return ep->why == 0 ? XPORT_OK : connect_fail(ep);
}

int ofi_ep_connect(struct xpi_be *be, void *ep_, enum xpi_role role, const void *addr, size_t len)
{
	struct ofi_ep *ep = ep_;

	if (be->rdm) {
		int rc = ep->why == 0 ? ofi_rdm_connect(ep, addr, len) : XPORT_OK;

		return ep->why != 0 ? connect_fail(ep) : rc;
	}
	if (role == XPI_ACTIVE)
		return connect_active(ep, addr, len);
	if (ep->why != 0)
		return connect_fail(ep);
	return ep->state == OFI_EP_UP ? XPORT_OK : XPORT_ERR_AGAIN;
}

/* ---- ending ---- */

/*
 * A provider that moves only when it is polled: what was accepted last has not even been begun with, and what the
 * sockets provider (1.17) has begun and not ended when its endpoint is closed takes one of its 128 entries away for
 * good.  So it gets some polls to end it, for as long as the core comes at each; a peer that does not read ends that as well.
 */
static bool lingers(struct ofi_ep *ep)
{
	unsigned limit = ep->room < ep->be->nsend ? 2000 : 16;

	if (ep->lingered == 0)
		ep->linger_until_ms = ofi_now_ms() + LINGER_MS;
	return ep->state == OFI_EP_UP && ep->why == 0 && ep->lingered++ < limit && ofi_now_ms() < ep->linger_until_ms;
}

/*
 * A peer in this process sends to the shm provider (1.17) by a pointer to our queue, also when that is gone: so it finds
 * the door shut from now on.  False: it is inside; not for long, unless it died there.  A thread of ours did not, however long
 * it gets no processor: what it writes to must stay.
 */
static bool bar(struct ofi_ep *ep)
{
	if (ep->ours == NULL || ofi_guard_enter(ep->ours))
		return true;
	if (ep->bar_until_ms == 0)
		ep->bar_until_ms = ofi_now_ms() + BAR_MS;
	return !ep->beside && ofi_now_ms() >= ep->bar_until_ms;
}

/* Of what it has for sends a quarter is left: from here on a few peers that do not read would hold up everybody, for ever. */
static bool is_spent(const struct xpi_be *be)
{
	return be->nentries_lost >= be->quirk->entries / 4 * 3;
}

/* Counts what goes with the endpoint; before nothing at all leaves any more, all others are told that it is over. */
static void count_entries(struct xpi_be *be, const struct ofi_ep *ep)
{
	xpi_list_for(link, &ep->posted)
		be->nentries_lost += !xpi_container(link, struct ofi_rec, link)->recv;
	if (be->spent || !is_spent(be))
		return;
	be->spent = true;
	xpi_log(be->log, XPORT_LOG_ERROR, "3017", "ofi: %s; all endpoints of this instance are failed", spent);
	xpi_list_for(other, &be->eps)
		lost(xpi_container(other, struct ofi_ep, link), -FI_ENOSPC, spent);
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
	not_gone(ep);
	if (be->quirk->entries > 0)
		count_entries(be, ep);
	ofi_ep_shut(ep);
	xpi_list_del(&ep->link);
	return XPORT_OK;
}

void ofi_ep_destroy(struct xpi_be *be, void *ep)
{
	(void)be;
	(void)ep; /* nothing is left of it after quiesce */
}
