/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_shm_lock.c - surviving the death of a peer inside libfabric's shared memory.
 *
 * The shm provider protects the queues of an endpoint with a spin lock that the peer takes as well. A peer that is
 * killed while it holds the lock leaves it taken, and a reader of the queue then spins in libfabric for ever. So
 * each endpoint has a shared page with a try-lock around libfabric's lock: a side that would have to wait does not
 * enter. If a dead peer left the page locked, the queue is not read any more until the core finds the peer dead and
 * closes the endpoint. Closing does not take libfabric's lock.
 *
 * The same word counts the messages sent, so a poll that finds nothing new only reads it. To take the lock each time
 * would take the cache line from the peer.
 */
#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "ofi.h"

struct ofi_page {
	_Atomic uint32_t word; /* bit 0: locked; the other bits count messages sent */
};

bool ofi_lock_try(struct ofi_page *page)
{
	uint32_t out = atomic_load_explicit(&page->word, memory_order_relaxed);

	return (out & 1) == 0 && atomic_compare_exchange_strong_explicit(&page->word, &out, out + 1,
	                                                                 memory_order_acquire, memory_order_relaxed);
}

void ofi_lock_release(struct ofi_page *page, bool sent)
{
	uint32_t in = atomic_load_explicit(&page->word, memory_order_relaxed);

	atomic_store_explicit(&page->word, sent ? in + 1 : in - 1, memory_order_release);
}

uint32_t ofi_lock_sent(const struct ofi_page *page)
{
	return atomic_load_explicit(&page->word, memory_order_acquire) >> 1;
}

int ofi_lock_open(struct ofi_ep *ep)
{
	int rc = xpi_shm_alloc(&ep->page, (size_t)sysconf(_SC_PAGESIZE), NULL);

	if (rc != XPORT_OK)
		return rc == XPORT_ERR_NOT_SUPPORTED || errno == EMFILE || errno == ENFILE ? -errno : -FI_ENOMEM;
	ep->ours = ep->page.base;
	return 0;
}

/* From the peer's key. */
int ofi_lock_map(struct ofi_ep *ep, const uint8_t *key)
{
	errno = 0;
	ep->theirs = xpi_shm_map(key, sizeof(*ep->theirs), true);
	ep->beside = ep->theirs != NULL && xpi_shm_maker(key) == getpid();
	if (ep->theirs != NULL)
		return XPORT_OK;
	if (errno == EMFILE || errno == ENFILE)
		return xpi_fail_errno(ep->be->err, XPORT_ERR_SYSTEM, NULL, "cannot map the peer's memory");
	if (errno == EACCES)
		return xpi_fail(ep->be->err, XPORT_ERR_AUTH, EACCES, "EACCES",
		                "run both processes as the same user, dumpable (prctl PR_SET_DUMPABLE), or use ofi:tcp",
		                "the peer's memory belongs to another user, or access to it is denied");
	return xpi_fail(ep->be->err, XPORT_ERR_UNREACHABLE, 0, NULL,
	                "check that the processes see each other in /proc, or use ofi:tcp",
	                "cannot map the peer's memory");
}

void ofi_lock_close(struct ofi_ep *ep)
{
	if (ep->theirs != NULL)
		xpi_shm_unmap(ep->theirs, sizeof(*ep->theirs));
	if (ep->ours != NULL)
		xpi_shm_free(&ep->page);
	ep->ours = ep->theirs = NULL;
}
