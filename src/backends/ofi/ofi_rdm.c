/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_rdm.c - unconnected endpoints (FI_EP_RDM), for providers without connected ones.
 *
 * Such an endpoint can talk to many peers, and does not report that a peer has ended. Some providers keep what was
 * posted for a dead peer, or block behind it: closing the endpoint is the only remedy. So there is one endpoint for
 * each peer, with an address vector of one entry. It is created by `address`, which returns its name.
 *
 * An endpoint is connected once it has received a greeting: each side sends the cookie from the other's address as
 * its first frame, and everything before that is dropped. So both directions are known to work, and foreign data is
 * ignored until then. Later the core's session number rejects it.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ofi.h"

static const uint8_t magic[4] = {'X', 'P', 'O', '2'};

/* ---- opening ---- */

/* *step: the step that failed. */
static int open_endpoint(struct ofi_ep *ep, const char **step)
{
	struct xpi_be *be = ep->be;
	bool map = be->info->domain_attr->av_type == FI_AV_MAP; /* it supports no other type */
	struct fi_av_attr attr = {.type = map ? FI_AV_MAP : FI_AV_TABLE, .count = 1};
	int rc = fi_av_open(be->domain, &attr, &ep->av, NULL);

	*step = "opening an address vector of libfabric";
	if (rc != 0) {
		ep->av = NULL;
		return rc;
	}
	if (be->quirk->shm_prefix != NULL) {
		*step = "creating a shared page for peers";
		rc = ofi_lock_open(ep);
		if (rc != 0)
			return rc;
		*step = "opening a completion queue of libfabric";
		rc = ofi_cq_new(be, &ep->cq);
		if (rc != 0)
			return rc;
	}
	if (be->quirk->tells) {
		struct fi_eq_attr eq = {.wait_obj = FI_WAIT_NONE};

		*step = "opening an event queue of libfabric";
		rc = fi_eq_open(be->fabric, &eq, &ep->eq, NULL);
		if (rc != 0) {
			ep->eq = NULL;
			return rc;
		}
	}
	*step = "opening an endpoint of libfabric";
	rc = ofi_ep_open(ep, NULL);
	if (rc != 0)
		return rc;
	ep->name.len = sizeof(ep->name.bytes);
	rc = fi_getname(&ep->fid->fid, ep->name.bytes, &ep->name.len);
	return rc == 0 && be->quirk->filtered ? ofi_filter_build(ep) : rc;
}

int ofi_rdm_prepare(struct ofi_ep *ep)
{
	const char *step = "";
	sigset_t all, mask;
	int rc = ofi_limits_check(ep->be->quirk, ep->be->err);

	if (rc != XPORT_OK)
		return rc;
	sigfillset(&all); /* see ofi_status.c */
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	rc = open_endpoint(ep, &step);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	return rc == 0 ? XPORT_OK : ofi_fail(ep->be->err, rc, ofi_lack(rc), step);
}

/*
 * Opens an endpoint once as a test: fi_getinfo may offer providers that do not work, and some leave signal handlers
 * behind.
 */
int ofi_rdm_open(struct xpi_be *be)
{
	struct ofi_ep ep = {.be = be};
	int rc;

	if (be->quirk->shm_prefix != NULL)
		ofi_shm_sweep(be);
	xpi_list_init(&ep.posted);
	xpi_list_init(&ep.idle);
	xpi_list_init(&ep.early);
	xpi_list_init(&ep.bounces);
	rc = ofi_rdm_prepare(&ep);
	ofi_ep_shut(&ep);
	return rc;
}

void ofi_rdm_poll(struct xpi_be *be)
{
	xpi_list_for_safe(link, &be->eps) {
		struct ofi_ep *ep = xpi_container(link, struct ofi_ep, link);
		struct fi_eq_err_entry e = {0};
		uint32_t event;
		char entry[64];

		if (ep->eq != NULL && ep->why == 0 &&
		    fi_eq_read(ep->eq, &event, entry, sizeof(entry), 0) == -FI_EAVAIL &&
		    fi_eq_readerr(ep->eq, &e, 0) > 0)
			ofi_ep_lost(ep, e.err > 0 ? -e.err : e.err < 0 ? e.err : -FI_EIO);
	}
}

/* ---- connecting ---- */

/* False: try again, the peer holds its page's lock. Otherwise `to` or `why` is set. */
static bool rdm_insert_peer(struct ofi_ep *ep)
{
	int rc = ofi_shm_mappable(ep);

	if (rc == 0) {
		/* A peer in this process must not end while libfabric accesses its memory. */
		if (ep->theirs != NULL && !ofi_lock_try(ep->theirs))
			return false;
		rc = fi_av_insert(ep->av, ep->peer[0].bytes, 1, &ep->to, 0, NULL);
		rc = rc == 1 ? ofi_shm_mappable(ep) : rc < 0 ? rc : -FI_EADDRNOTAVAIL;
		if (ep->theirs != NULL)
			ofi_lock_release(ep->theirs, false);
	}
	if (rc != 0) {
		ep->why = rc;
		ep->to = FI_ADDR_UNSPEC;
	}
	return true;
}

static int resolve(struct ofi_ep *ep, const void *addr, size_t len)
{
	int rc = ofi_addr_unpack(ep, addr, len);

	if (rc != XPORT_OK)
		return rc;
	if (ofi_shm_mappable(ep) == -FI_EACCES)
		return xpi_fail(ep->be->err, XPORT_ERR_AUTH, FI_EACCES, "FI_EACCES",
		                "use ofi:tcp between processes of different users",
		                "the peer's shared memory belongs to another user, or others can write to it");
	ep->state = OFI_EP_CONNECTING;
	if (ep->be->quirk->filtered)
		ep->why = ofi_filter_open(ep);
	return XPORT_OK;
}

static void rdm_greet(struct ofi_ep *ep)
{
	ssize_t rc;

	memcpy(ep->hello, magic, sizeof(magic));
	memcpy(ep->hello + sizeof(magic), ep->peer_cookie, OFI_COOKIE);
	if (ep->theirs != NULL && !ofi_lock_try(ep->theirs))
		return;
	rc = ofi_am_greet(ep);
	if (ep->theirs != NULL)
		ofi_lock_release(ep->theirs, rc == 0);
	if (rc == 0)
		ep->greeting = true;
	else if (rc != -FI_EAGAIN)
		ep->why = (int)rc;
}

void ofi_rdm_greeted(struct ofi_ep *ep, const void *buf, size_t len)
{
	if (len == OFI_GREETING && memcmp(buf, magic, sizeof(magic)) == 0 &&
	    memcmp((const uint8_t *)buf + sizeof(magic), ep->cookie, OFI_COOKIE) == 0)
		ep->greeted = true;
	else
		xpi_log(ep->be->log, XPORT_LOG_INFO, "3011", "ofi: dropped %zu bytes from an unknown sender", len);
}

int ofi_rdm_connect(struct ofi_ep *ep, const void *addr, size_t len)
{
	int rc = ep->state == OFI_EP_NEW ? resolve(ep, addr, len) : XPORT_OK;

	if (rc != XPORT_OK)
		return rc;
	if (ep->why == 0 && ep->to == FI_ADDR_UNSPEC && !rdm_insert_peer(ep))
		return XPORT_ERR_AGAIN;
	if (ep->why == 0 && !ep->greeting)
		rdm_greet(ep);
	if (ep->why != 0 || !ep->greeting || !ep->greeted || ofi_am_greeting(ep))
		return XPORT_ERR_AGAIN;
	ofi_ep_connected(ep);
	ofi_shm_forget_name(ep);
	return XPORT_OK;
}
