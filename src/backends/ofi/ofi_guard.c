/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_guard.c - surviving the death of a peer inside libfabric's shared memory.
 *
 * The shm provider guards the queues of an endpoint by a spin lock that the peer takes too.  One that is killed with it
 * leaves it taken, and whoever reads the queue then spins in libfabric for ever.  So each endpoint has a page of ours
 * with a lock around libfabric's: who would have to wait does not enter.  What a dead peer left locked is not read any
 * more (closing an endpoint does not take libfabric's lock), until the core finds the peer dead and closes it.
 */
#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "ofi.h"

struct ofi_page {
	_Atomic uint32_t entered;
};

bool ofi_guard_enter(struct ofi_page *page)
{
	uint32_t out = 0;

	return atomic_compare_exchange_strong_explicit(&page->entered, &out, 1, memory_order_acquire,
	                                               memory_order_relaxed);
}

void ofi_guard_leave(struct ofi_page *page)
{
	atomic_store_explicit(&page->entered, 0, memory_order_release);
}

int ofi_guard_open(struct ofi_ep *ep)
{
	if (xpi_shm_alloc(&ep->page, (size_t)sysconf(_SC_PAGESIZE), NULL) != XPORT_OK)
		return -errno;
	ep->ours = ep->page.base;
	return 0;
}

/* From the peer's key. */
int ofi_guard_map(struct ofi_ep *ep, const uint8_t *key)
{
	errno = 0;
	ep->theirs = xpi_shm_map(key, &ep->theirs_len);
	if (ep->theirs != NULL && ep->theirs_len >= sizeof(*ep->theirs))
		return XPORT_OK;
	if (errno == EMFILE || errno == ENFILE)
		return xpi_fail_errno(ep->be->err, XPORT_ERR_SYSTEM, "raise `ulimit -n`",
		                      "memory of the peer cannot be mapped");
	return xpi_fail(ep->be->err, XPORT_ERR_UNREACHABLE, 0, NULL,
	                "have both processes the same user, and see each other in /proc? use ofi:tcp",
	                "memory of the peer cannot be mapped");
}

void ofi_guard_close(struct ofi_ep *ep)
{
	if (ep->theirs != NULL)
		xpi_shm_unmap(ep->theirs, ep->theirs_len);
	if (ep->ours != NULL)
		xpi_shm_free(&ep->page);
	ep->ours = ep->theirs = NULL;
}
