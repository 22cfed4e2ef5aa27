/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/shm_mr.h"

int xpi_shm_mr_alloc(struct xpi_shm_mr *mr, size_t length, bool writable, void **base, struct xport_error *err)
{
	int rc = xpi_shm_alloc(&mr->shm, length, err);

	if (rc == XPORT_OK && !writable)
		xpi_shm_protect(&mr->shm);
	mr->writable = writable;
	*base = mr->shm.base;
	return rc;
}

int xpi_shm_mr_pack(const struct xpi_shm_mr *mr, void *buf, size_t *len, struct xport_error *err)
{
	if (*len < XPI_SHM_KEY)
		return xpi_fail(err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "a key needs %d bytes", XPI_SHM_KEY);
	xpi_shm_pack(&mr->shm, mr->writable, buf);
	*len = XPI_SHM_KEY;
	return XPORT_OK;
}

int xpi_shm_rkey_check(size_t len, struct xport_error *err)
{
	if (len == XPI_SHM_KEY)
		return XPORT_OK;
	return xpi_fail(err, XPORT_ERR_BAD_KEY, 0, NULL, NULL, "a native key of %zu bytes is malformed", len);
}

int xpi_shm_rkey_map(struct xpi_shm_rkey *rkey, const uint8_t *key, int fd, uint64_t start, uint64_t length,
                     bool writing, void **direct)
{
	rkey->length = start + length;
	rkey->map =
		fd >= 0 ? xpi_shm_map_lent(key, fd, rkey->length, writing) : xpi_shm_map(key, rkey->length, writing);
	*direct = rkey->map != NULL ? (uint8_t *)rkey->map + start : NULL;
	return rkey->map != NULL ? XPORT_OK : XPORT_ERR_NOT_SUPPORTED;
}

void xpi_shm_rkey_unmap(struct xpi_shm_rkey *rkey)
{
	xpi_shm_unmap(rkey->map, rkey->length);
}
