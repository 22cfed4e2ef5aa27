/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_ep_state.c - the state of an endpoint: opened, connected, lost, shut.
 *
 * The files that move an endpoint from one state to the next call this one, and it calls none of them.
 *
 * Closing libfabric's endpoint is the only way to get its buffers back. Completions that are still in the queue then
 * are recognised and dropped (ofi_comp.c).
 */
#include <unistd.h>

#include "ofi.h"

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
	rc = be->quirk->shm_prefix != NULL ? ofi_shm_name(ep) : 0;
	if (rc == 0)
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
	if (rc == 0 && be->quirk->shm_prefix != NULL)
		rc = ofi_shm_reserve(ep);
	return rc;
}

void ofi_ep_probe_end(struct ofi_ep *ep)
{
	if (ep->probing)
		close(ep->probe);
	ep->probing = false;
}

/* Closes the additional parts of an unconnected endpoint. */
static void ep_close_parts(struct ofi_ep *ep)
{
	if (ep->av != NULL)
		fi_close(&ep->av->fid);
	ep->av = NULL;
	if (ep->eq != NULL)
		fi_close(&ep->eq->fid);
	ep->eq = NULL;
	ofi_lock_close(ep);
}

/* Undoes ofi_ep_open, even if it failed. */
void ofi_ep_shut(struct ofi_ep *ep)
{
	int rc;

	ofi_am_room(ep, 0);
	ofi_ep_probe_end(ep);
	if (ep->fid != NULL) {
		rc = fi_close(&ep->fid->fid);
		if (rc != 0)
			xpi_log(ep->be->log, XPORT_LOG_WARN, "3012", "ofi: closing an endpoint failed: %s",
			        fi_strerror(-rc));
		ep->fid = NULL;
	}
	ofi_am_close(ep);
	ep_close_parts(ep);
	fi_freeinfo(ep->info);
	ep->info = NULL;
}

void ofi_ep_connected(struct ofi_ep *ep)
{
	struct xpi_be *be = ep->be;

	if (ep->state != OFI_EP_CONNECTING || ep->why != 0)
		return;
	ofi_ep_probe_end(ep);
	ep->state = OFI_EP_UP;
	ofi_am_room(ep, be->nsend);
	be->nconnecting--;
}

void ofi_ep_not_gone(struct ofi_ep *ep)
{
	ep->be->ngone -= ep->gone;
	ep->gone = false;
}

void ofi_ep_lost_with(struct ofi_ep *ep, int why, const char *text)
{
	ofi_ep_not_gone(ep);
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
	ofi_ep_lost_with(ep, why, fi_strerror(-why));
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
