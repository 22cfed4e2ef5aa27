/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_mr.c - memory that peers map, for a provider that is shared memory of this host.
 *
 * Registered memory, and any region with another provider, has an empty key: the core's own protocol carries its puts
 * and gets.
 */
#include "ofi.h"

int ofi_mr_alloc(struct xpi_be *be, void *mr, size_t length, uint32_t rights, void **base)
{
	if (be->quirk->shm_prefix == NULL)
		return XPORT_ERR_NOT_SUPPORTED;
	return xpi_shm_mr_alloc(mr, length, (rights & XPI_RIGHTS_TO_CHANGE) != 0, base, be->err);
}

void ofi_mr_dereg(struct xpi_be *be, void *mr)
{
	(void)be;
	xpi_shm_free(&((struct xpi_shm_mr *)mr)->shm);
}

int ofi_rkey_pack(struct xpi_be *be, void *ep, const void *mr, void *buf, size_t *len)
{
	(void)ep;
	return xpi_shm_mr_pack(mr, buf, len, be->err);
}

int ofi_rkey_unpack(struct xpi_be *be, void *ep, void *rkey, const void *buf, size_t len, uint64_t start,
                    uint64_t length, uint32_t rights, void **direct)
{
	int rc = xpi_shm_rkey_check(len, be->err);

	(void)ep;
	if (rc != XPORT_OK)
		return rc;
	return xpi_shm_rkey_map(rkey, buf, -1, start, length, (rights & XPI_RIGHTS_TO_CHANGE) != 0, direct);
}

void ofi_rkey_destroy(struct xpi_be *be, void *rkey)
{
	(void)be;
	xpi_shm_rkey_unmap(rkey);
}
