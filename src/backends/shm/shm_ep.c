/* SPDX-License-Identifier: BSD-3-Clause */
/* shm_ep.c - endpoints: the file of the own ring, and the exchange with the peer. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "shm.h"

enum { EPS_MIN = 16 };

/* ---- the own file ---- */

static void file_close(struct xpi_shm *file)
{
	if (file->fd >= 0)
		close(file->fd);
	file->fd = -1;
}

static void file_free(struct xpi_shm *file)
{
	file_close(file);
	xpi_shm_unmap(file->base, file->length);
}

static int file_new(struct xpi_shm *file, size_t length, int *seals, struct xport_error *err)
{
	struct shm_file *f;
	int rc = xpi_shm_alloc(file, length, err);

	if (rc == XPORT_ERR_NOT_SUPPORTED)
		return xpi_fail_errno(err, XPORT_ERR_NO_BACKEND, "allow memfd_create(2)",
		                      "this system has no anonymous shared memory");
	if (rc != XPORT_OK)
		return rc;
	f = file->base;
	f->slots = SHM_SLOTS;
	f->magic = SHM_MAGIC;
	*seals = xpi_shm_fix(file);
	if (*seals >= 0)
		return XPORT_OK;
	(void)xpi_fail_errno(err, XPORT_ERR_NO_MEMORY, NULL, "cannot allocate %zu bytes of shared memory",
	                     file->length);
	file_free(file);
	return XPORT_ERR_NO_MEMORY;
}

static int ep_open(struct xpi_be *be, struct shm_ep *ep, size_t length)
{
	int rc = file_new(&ep->file, length, &ep->seals, be->err);

	if (rc != XPORT_OK)
		return rc;
	rc = shm_link_open(be, ep);
	if (rc != XPORT_OK)
		file_free(&ep->file);
	return rc;
}

int shm_address(struct xpi_be *be, void *ep_, struct xpi_core_ep *core_ep, void *buf, size_t *len)
{
	struct shm_ep *ep = ep_;
	struct shm_address address = {.magic = SHM_MAGIC};
	int rc;

	ep->core_ep = core_ep;
	ep->index = UINT32_MAX;
	if (*len < sizeof(address))
		return xpi_fail(be->err, XPORT_ERR_BOUNDS, 0, NULL, NULL, "an address of shm has %zu bytes",
		                sizeof(address));
	rc = ep_open(be, ep, sizeof(struct shm_file));
	if (rc != XPORT_OK)
		return rc;
	memcpy(address.name, ep->file.name, sizeof(address.name));
	memcpy(buf, &address, sizeof(address));
	*len = sizeof(address);
	return XPORT_OK;
}

/* ---- the peer's ---- */

static int link_begin(struct xpi_be *be, struct shm_ep *ep)
{
	struct epoll_event readable = {.events = EPOLLIN, .data.ptr = ep};
	/* With a directory, the kernel names the user of the socket: the peer may be in another network namespace. */
	int rc = shm_lends(be) ? XPORT_OK : be->up->same_user(be->core, ep->core_ep);

	if (rc == XPORT_OK)
		rc = shm_link_connect(be, ep);
	if (rc != XPORT_OK)
		return rc;
	if (epoll_ctl(be->epoll, EPOLL_CTL_ADD, ep->sock, &readable) != 0)
		return xpi_fail_errno(be->err, XPORT_ERR_SYSTEM, NULL, "cannot watch the socket of an endpoint");
	ep->watched = true;
	return XPORT_OK;
}

static int eps_reserve(struct xpi_be *be)
{
	uint32_t more = be->capacity > 0 ? 2 * be->capacity : EPS_MIN;
	struct shm_ep **eps;

	if (be->neps < be->capacity)
		return XPORT_OK;
	eps = realloc(be->eps, more * sizeof(struct shm_ep *));
	if (eps == NULL)
		return xpi_fail(be->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for %u endpoints",
		                (unsigned)more);
	be->eps = eps;
	be->capacity = more;
	return XPORT_OK;
}

static int peer_map(struct xpi_be *be, struct shm_ep *ep, int fd)
{
	size_t length = ep->file.length;
	const struct shm_file *f =
		xpi_shm_is_fixed(fd, length, ep->seals) ? xpi_shm_map_file(fd, length, length, false) : NULL;
	int e = errno;

	close(fd);
	errno = e;
	if (f == NULL && e == EACCES)
		return xpi_fail_errno(be->err, XPORT_ERR_AUTH, "run both programs as the same user",
		                      "cannot map the peer's shared memory");
	if (f == NULL)
		return xpi_fail_errno(be->err, XPORT_ERR_PROTOCOL, NULL, "cannot map the peer's shared memory");
	if (f->magic != SHM_MAGIC || f->slots != SHM_SLOTS) {
		xpi_shm_unmap((void *)(uintptr_t)f, ep->file.length);
		return xpi_fail(be->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL,
		                "the peer's shared memory has another layout");
	}
	ep->peer = f;
	return XPORT_OK;
}

int shm_ep_connect(struct xpi_be *be, void *ep_, enum xpi_role role, const void *addr, size_t len)
{
	struct shm_ep *ep = ep_;
	int rc = XPORT_OK, fd;

	(void)role;
	if (len == sizeof(ep->to))
		memcpy(&ep->to, addr, sizeof(ep->to));
	if (len != sizeof(ep->to) || ep->to.magic != SHM_MAGIC)
		return xpi_fail(be->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL, "an address of %zu bytes is malformed",
		                len);
	if (!ep->watched)
		rc = link_begin(be, ep);
	if (rc == XPORT_OK && !ep->sent) {
		rc = shm_link_send(be, ep);
		ep->sent = rc == XPORT_OK;
		if (ep->sent)
			file_close(&ep->file);
	}
	if (rc == XPORT_OK)
		rc = eps_reserve(be);
	if (rc == XPORT_OK)
		rc = shm_link_recv(be, ep, &fd);
	if (rc == XPORT_OK)
		rc = peer_map(be, ep, fd);
	if (rc != XPORT_OK)
		return rc;
	xpi_meet_remove(&be->meet, ep->file.name);
	shm_ring_init(&ep->tx, &ep->rx, ep->file.base, ep->peer);
	ep->ready = true;
	shm_poll_add(be, ep);
	return XPORT_OK;
}

/* ---- the end ---- */

int shm_ep_quiesce(struct xpi_be *be, void *ep_)
{
	struct shm_ep *ep = ep_;

	shm_poll_remove(be, ep);
	if (ep->watched)
		(void)epoll_ctl(be->epoll, EPOLL_CTL_DEL, ep->sock, NULL);
	ep->watched = false;
	return XPORT_OK;
}

void shm_ep_destroy(struct xpi_be *be, void *ep_)
{
	struct shm_ep *ep = ep_;

	if (!ep->ready)
		xpi_meet_remove(&be->meet, ep->file.name);
	xpi_lent_free(ep->lent);
	if (ep->peer != NULL)
		xpi_shm_unmap((void *)(uintptr_t)ep->peer, ep->file.length);
	file_free(&ep->file);
	close(ep->sock);
}

/* ---- whether all of this works here ---- */

int shm_probe(struct xport_error *err)
{
	struct xpi_be be = {.err = err};
	struct shm_ep ep = {.core_ep = NULL};
	int rc = ep_open(&be, &ep, offsetof(struct shm_file, ring)); /* a page: nothing is sent */

	if (rc == XPORT_OK)
		shm_ep_destroy(&be, &ep);
	return rc;
}
