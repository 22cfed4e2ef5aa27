/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shm_mr.c - memory that peers map. The keys are those of base/shm.h, and the core copies. Registered memory has no
 * native key: the core's own protocol carries its puts and gets.
 */
#include <unistd.h>

#include "base/clock.h"
#include "shm.h"

enum { LENDING_MS = 5000 };

int shm_mr_alloc(struct xpi_be *be, void *mr, size_t length, uint32_t rights, void **base)
{
	return xpi_shm_mr_alloc(mr, length, (rights & XPI_RIGHTS_TO_CHANGE) != 0, base, be->err);
}

void shm_mr_dereg(struct xpi_be *be, void *mr)
{
	(void)be;
	xpi_shm_free(&((struct xpi_shm_mr *)mr)->shm);
}

/*
 * Whether one more descriptor may be sent now. It comes before its key, and what is kept for keys that have not come is
 * limited. A frame has been written since: the keys of those that were sent before are in it.
 */
static int lending_may(struct shm_ep *ep)
{
	uint32_t taken = shm_load(&ep->peer->mails);
	int64_t now;

	if (ep->lending.filled != ep->tx.filled)
		ep->lending.ahead = 0;
	ep->lending.filled = ep->tx.filled;
	if (taken != ep->lending.taken) /* it is about to take the others */
		ep->lending.full_ms = 0;
	ep->lending.taken = taken;
	if (ep->lending.ahead < XPI_LENT_AHEAD && ep->lending.sent - taken < XPI_LENT_AHEAD) {
		ep->lending.full_ms = 0;
		return XPORT_OK;
	}
	now = xpi_now_ms();
	if (ep->lending.full_ms == 0)
		ep->lending.full_ms = now;
	return now - ep->lending.full_ms < LENDING_MS ? XPORT_ERR_AGAIN : XPORT_ERR_TIMEOUT;
}

/* A peer that takes none for long gets a key without: that it looks for the descriptor empties its socket. */
static int lend(struct xpi_be *be, struct shm_ep *ep, const struct xpi_shm_mr *mr)
{
	int rc = lending_may(ep);

	if (rc == XPORT_ERR_TIMEOUT) {
		xpi_log(be->log, XPORT_LOG_INFO, "5003",
		        "a peer does not take descriptors: it reaches a region of %zu bytes by messages",
		        mr->shm.length);
		return XPORT_OK;
	}
	if (rc == XPORT_OK)
		rc = xpi_lent_send(ep->sock, &mr->shm);
	if (rc == XPORT_OK) {
		ep->lending.sent++;
		ep->lending.ahead++;
	}
	if (rc != XPORT_OK && rc != XPORT_ERR_AGAIN)
		return xpi_fail_errno(be->err, rc, NULL, "cannot pass a region to the peer");
	return rc;
}

int shm_rkey_pack(struct xpi_be *be, void *ep, const void *mr, void *buf, size_t *len)
{
	int rc = xpi_shm_mr_pack(mr, buf, len, be->err);

	return rc != XPORT_OK || ep == NULL || !shm_lends(be) ? rc : lend(be, ep, mr);
}

/* The descriptor that the owner sent before the key. -1: it has not come. */
static int region_take(struct xpi_be *be, struct shm_ep *ep, const void *key)
{
	int fd = -1;

	shm_poll_wake(ep);
	(void)shm_bell_take(be, ep, key, &fd);
	return fd;
}

/* NOT_SUPPORTED: the memory cannot be mapped. The core then reaches it by messages. */
int shm_rkey_unpack(struct xpi_be *be, void *ep, void *rkey, const void *buf, size_t len, uint64_t start,
                    uint64_t length, uint32_t rights, void **direct)
{
	int rc = xpi_shm_rkey_check(len, be->err), fd = -1;

	if (rc != XPORT_OK)
		return rc;
	if (shm_lends(be) && (fd = region_take(be, ep, buf)) < 0)
		return XPORT_ERR_NOT_SUPPORTED;
	rc = xpi_shm_rkey_map(rkey, buf, fd, start, length, (rights & XPI_RIGHTS_TO_CHANGE) != 0, direct);
	if (fd >= 0)
		close(fd);
	return rc;
}

void shm_rkey_destroy(struct xpi_be *be, void *rkey)
{
	(void)be;
	xpi_shm_rkey_unmap(rkey);
}
