/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shm_mr.c - memory that peers map. The keys are those of base/shm.h, and the core copies. Registered memory has no
 * native key: the core's own protocol carries its puts and gets.
 */
#include "shm.h"

int shm_mr_alloc(struct xpi_be *be, void *mr_, size_t length, uint32_t rights, void **base)
{
	struct shm_mr *mr = mr_;
	int rc = xpi_shm_alloc(&mr->shm, length, be->err);

	mr->writable = (rights & XPI_RIGHTS_TO_CHANGE) != 0;
	*base = mr->shm.base;
	return rc;
}

void shm_mr_dereg(struct xpi_be *be, void *mr_)
{
	struct shm_mr *mr = mr_;

	(void)be;
	xpi_shm_free(&mr->shm);
}

int shm_rkey_pack(struct xpi_be *be, const void *mr_, void *buf, size_t *len)
{
	const struct shm_mr *mr = mr_;

	if (*len < XPI_SHM_KEY)
		return xpi_fail(be->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "a key needs %d bytes", XPI_SHM_KEY);
	xpi_shm_pack(&mr->shm, mr->writable, buf);
	*len = XPI_SHM_KEY;
	return XPORT_OK;
}

/* NOT_SUPPORTED: the memory cannot be mapped. The core then reaches it by messages. */
int shm_rkey_unpack(struct xpi_be *be, void *ep, void *rkey_, const void *buf, size_t len, uint64_t start,
                    uint64_t length, uint32_t rights, void **direct)
{
	struct shm_rkey *rkey = rkey_;

	(void)ep;
	if (len != XPI_SHM_KEY)
		return xpi_fail(be->err, XPORT_ERR_BAD_KEY, 0, NULL, NULL, "a native key of %zu bytes is malformed",
		                len);
	rkey->map = xpi_shm_map(buf, start + length, (rights & XPI_RIGHTS_TO_CHANGE) != 0);
	rkey->length = start + length;
	*direct = rkey->map != NULL ? (uint8_t *)rkey->map + start : NULL;
	return rkey->map != NULL ? XPORT_OK : XPORT_ERR_NOT_SUPPORTED;
}

void shm_rkey_destroy(struct xpi_be *be, void *rkey_)
{
	struct shm_rkey *rkey = rkey_;

	(void)be;
	xpi_shm_unmap(rkey->map, rkey->length);
}
