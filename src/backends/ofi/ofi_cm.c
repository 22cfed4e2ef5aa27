/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_cm.c - connecting: one listening endpoint for each instance, and the queue of connection events.
 *
 * The active side connects to the passive side's address. It sends the cookie from that address, 128 random bits
 * that only readers of the control channel know. A request without the cookie of a waiting endpoint is rejected.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "ofi.h"

enum { REQUEST = 4 + OFI_COOKIE, EVENTS = 32, CM_DATA = 512, PROBE_MS = 1200 /* TCP repeats its SYN after a second */ };

static const uint8_t magic[4] = {'X', 'P', 'O', '1'};

int ofi_cm_open(struct xpi_be *be)
{
	struct fi_eq_attr attr = {.wait_obj = !be->quirk->no_fd ? FI_WAIT_FD : FI_WAIT_NONE};
	int rc = fi_eq_open(be->fabric, &attr, &be->eq, NULL);

	if (rc != 0) {
		be->eq = NULL;
		return ofi_fail(be->err, rc, NULL, "opening an event queue of libfabric");
	}
	be->pep_info = fi_dupinfo(be->info);
	if (be->pep_info == NULL)
		return ofi_fail(be->err, -FI_ENOMEM, NULL, "listening");
	ofi_addr_bind(be, be->pep_info);
	rc = fi_passive_ep(be->fabric, be->pep_info, &be->pep, NULL);
	if (rc != 0)
		be->pep = NULL;
	if (rc == 0)
		rc = fi_pep_bind(be->pep, &be->eq->fid, 0);
	if (rc == 0)
		rc = fi_listen(be->pep);
	if (rc != 0)
		return ofi_fail(be->err, rc, ofi_lack(rc), "listening with libfabric");
	if (be->quirk->waits)
		ofi_filter_listener(be);
	return ofi_addr_listening(be, &be->pep->fid);
}

void ofi_cm_close(struct xpi_be *be)
{
	if (be->pep != NULL)
		fi_close(&be->pep->fid);
	if (be->eq != NULL)
		fi_close(&be->eq->fid);
	fi_freeinfo(be->pep_info);
}

/* ---- active ---- */

/* Sets *bytes to a copy of the address. Returns as libfabric does. */
static int addr_replace(void **bytes, size_t *len, const struct ofi_addr *a)
{
	void *copy = malloc(a->len);

	if (copy == NULL)
		return -FI_ENOMEM;
	memcpy(copy, a->bytes, a->len);
	free(*bytes);
	*bytes = copy;
	*len = a->len;
	return 0;
}

/* Creates the info that fi_endpoint needs for a connection to this address. */
static int info_to(const struct xpi_be *be, const struct ofi_addr *to, struct fi_info **out)
{
	struct fi_info *info = fi_dupinfo(be->info);
	struct ofi_addr from;
	int rc;

	if (info == NULL)
		return -FI_ENOMEM;
	rc = addr_replace(&info->dest_addr, &info->dest_addrlen, to);
	if (rc == 0 && be->info->nic == NULL) {
		rc = ofi_addr_source(to, &from);
		if (rc == 0)
			rc = addr_replace(&info->src_addr, &info->src_addrlen, &from);
		/* The family of the socket. The addresses of this side may be of the other family. */
		info->addr_format = to->sa.sa_family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
	}
	if (rc != 0) {
		fi_freeinfo(info);
		return rc;
	}
	*out = info;
	return 0;
}

static int conn_request(struct ofi_ep *ep)
{
	const struct ofi_addr *to = &ep->peer[ep->tried];
	uint8_t request[REQUEST];
	struct fi_info *info;
	int rc = info_to(ep->be, to, &info);

	if (rc != 0)
		return rc;
	memcpy(request, magic, sizeof(magic));
	memcpy(request + sizeof(magic), ep->peer_cookie, OFI_COOKIE);
	rc = ofi_ep_open(ep, info);
	return rc == 0 ? fi_connect(ep->fid, to->bytes, request, sizeof(request)) : rc;
}

/*
 * sockets (1.17) calls connect() in fi_connect, which blocks the instance for minutes if nobody answers. So a
 * non-blocking TCP connection comes first: an address that accepts it will soon accept the next one. It costs the
 * peer about 600 bytes that its sockets provider never frees, so it is left out if only this host is asked.
 */
static bool to_be_probed(const struct ofi_ep *ep)
{
	return ep->be->quirk->blocks && (ep->npeer > 1 || !ofi_addr_loopback(&ep->peer[0]));
}

int ofi_cm_probe_begin(struct ofi_ep *ep)
{
	const struct ofi_addr *to = &ep->peer[ep->tried];

	ep->give_up_ms = xpi_now_ms() + PROBE_MS;
	ep->probe = xpi_fd_up(socket(to->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	if (ep->probe < 0)
		return -errno;
	ep->probing = true;
	if (connect(ep->probe, &to->sa, (socklen_t)to->len) == 0 || errno == EINPROGRESS)
		return 0;
	return -errno;
}

void ofi_cm_probe(struct ofi_ep *ep)
{
	struct pollfd p = {.fd = ep->probe, .events = POLLOUT};
	socklen_t len = sizeof(int);
	int code = 0;

	if (!ep->probing || ep->why != 0 || poll(&p, 1, 0) <= 0)
		return;
	if (getsockopt(ep->probe, SOL_SOCKET, SO_ERROR, &code, &len) != 0)
		code = errno;
	ofi_ep_probe_end(ep);
	ep->give_up_ms = INT64_MAX;
	if (code != 0)
		ep->why = -code;
	else if (ep->fid == NULL)
		ep->why = conn_request(ep);
}

/* Begins to connect to ep->peer[ep->tried]. */
int ofi_cm_connect(struct ofi_ep *ep)
{
	return to_be_probed(ep) ? ofi_cm_probe_begin(ep) : conn_request(ep);
}

/* ---- events ---- */

/* The endpoint that waits for this request, or NULL. */
static struct ofi_ep *ep_of_request(struct xpi_be *be, const void *data, size_t len)
{
	if (len < REQUEST || memcmp(data, magic, sizeof(magic)) != 0)
		return NULL;
	xpi_list_for(link, &be->eps) {
		struct ofi_ep *ep = xpi_container(link, struct ofi_ep, link);

		if (ep->state == OFI_EP_NEW && ep->why == 0 &&
		    memcmp(ep->cookie, (const uint8_t *)data + sizeof(magic), OFI_COOKIE) == 0)
			return ep;
	}
	return NULL;
}

static void conn_requested(struct xpi_be *be, struct fi_info *info, const void *data, size_t len)
{
	struct ofi_ep *ep = ep_of_request(be, data, len);
	fid_t handle = info->handle;
	sigset_t mask;
	int rc;

	if (ep == NULL) {
		xpi_log(be->log, XPORT_LOG_INFO, "3010", "ofi: rejected a connection that no endpoint expects");
		(void)fi_reject(be->pep, handle, NULL, 0);
		fi_freeinfo(info);
		return;
	}
	xpi_signals_hold(&mask);
	rc = ofi_ep_open(ep, info);
	if (rc != 0) {
		bool ended = be->quirk->ends_request && ep->fid != NULL;

		/*
		 * Before fi_reject: tcp (1.17) uses the handle when its endpoint is closed, and frees it here.
		 * sockets frees it in fi_reject.
		 */
		ofi_ep_shut(ep);
		if (!ended)
			(void)fi_reject(be->pep, handle, NULL, 0);
	} else {
		rc = fi_accept(ep->fid, NULL, 0);
	}
	xpi_signals_release(&mask);
	if (rc != 0)
		ofi_ep_lost(ep, rc);
}

/* The endpoint of an event; NULL if it was closed meanwhile. */
static struct ofi_ep *endpoint_of(struct xpi_be *be, const struct fid *fid)
{
	xpi_list_for(link, &be->eps) {
		struct ofi_ep *ep = xpi_container(link, struct ofi_ep, link);

		if (ep->fid != NULL && &ep->fid->fid == fid)
			return ep;
	}
	return NULL;
}

static void happened(struct xpi_be *be, uint32_t event, const struct fi_eq_cm_entry *entry, size_t len)
{
	struct ofi_ep *ep;

	if (event == FI_CONNREQ) {
		conn_requested(be, entry->info, entry->data, len - sizeof(*entry));
		return;
	}
	ep = endpoint_of(be, entry->fid);
	if (ep == NULL)
		return;
	if (event == FI_CONNECTED)
		ofi_ep_connected(ep);
	else if (event == FI_SHUTDOWN)
		ofi_ep_gone(ep, -FI_ESHUTDOWN);
}

static void conn_failed(struct xpi_be *be)
{
	struct fi_eq_err_entry e = {0};
	struct ofi_ep *ep;

	if (fi_eq_readerr(be->eq, &e, 0) <= 0)
		return;
	ep = endpoint_of(be, e.fid);
	if (ep != NULL)
		ofi_ep_gone(ep, e.err > 0 ? -e.err : e.err < 0 ? e.err : -FI_ECONNABORTED);
}

/* Returns the number of events. */
int ofi_cm_poll(struct xpi_be *be)
{
	union {
		struct fi_eq_cm_entry entry;
		uint8_t bytes[sizeof(struct fi_eq_cm_entry) + CM_DATA];
	} buf;
	int did = 0;

	be->look = false;
	while (did < EVENTS) {
		uint32_t event;
		ssize_t n;

		errno = 0;
		n = fi_eq_read(be->eq, &event, &buf, sizeof(buf), 0);

		if (n == -FI_EAVAIL)
			conn_failed(be);
		else if (n < (ssize_t)sizeof(buf.entry))
			break;
		else
			happened(be, event, &buf.entry, (size_t)n);
		did++;
	}
	return did;
}
