/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_guard.c - surviving the death of a peer inside libfabric's shared memory.
 *
 * The shm provider guards the queues of an endpoint by a spin lock that the peer takes too.  One that is killed with it
 * leaves it taken, and whoever reads the queue then spins in libfabric for ever.  So each endpoint has a page of ours
 * with a lock around libfabric's: who would have to wait does not enter.  What a dead peer left locked is not read any
 * more (closing an endpoint does not take libfabric's lock), until the core finds the peer dead and closes it.
 *
 * The same word counts what was sent, so that a poll that finds nothing new only reads it: to enter each time would take
 * the word's cache line from the peer, and make it wait at the door.
 */
#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "ofi.h"

struct ofi_page {
	_Atomic uint32_t word; /* odd: somebody is inside; above that bit what was sent */
};

bool ofi_guard_enter(struct ofi_page *page)
{
	uint32_t out = atomic_load_explicit(&page->word, memory_order_relaxed);

	return (out & 1) == 0 && atomic_compare_exchange_strong_explicit(&page->word, &out, out + 1,
	                                                                 memory_order_acquire, memory_order_relaxed);
}

void ofi_guard_leave(struct ofi_page *page, bool sent)
{
	uint32_t in = atomic_load_explicit(&page->word, memory_order_relaxed);

	atomic_store_explicit(&page->word, sent ? in + 1 : in - 1, memory_order_release);
}

uint32_t ofi_guard_sent(const struct ofi_page *page)
{
	return atomic_load_explicit(&page->word, memory_order_acquire) >> 1;
}

int ofi_guard_open(struct ofi_ep *ep)
{
	if (xpi_shm_alloc(&ep->page, (size_t)sysconf(_SC_PAGESIZE), NULL) != XPORT_OK)
		return errno == EMFILE || errno == ENFILE ? -errno : -FI_ENOMEM;
	ep->ours = ep->page.base;
	return 0;
}

/* From the peer's key. */
int ofi_guard_map(struct ofi_ep *ep, const uint8_t *key)
{
	errno = 0;
	ep->theirs = xpi_shm_map(key, sizeof(*ep->theirs), true);
	ep->beside = ep->theirs != NULL && xpi_shm_maker(key) == getpid();
	if (ep->theirs != NULL)
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
		xpi_shm_unmap(ep->theirs, sizeof(*ep->theirs));
	if (ep->ours != NULL)
		xpi_shm_free(&ep->page);
	ep->ours = ep->theirs = NULL;
}
