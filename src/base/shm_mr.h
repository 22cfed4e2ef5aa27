/* SPDX-License-Identifier: BSD-3-Clause */
/* shm_mr.h - regions of base/shm.h and keys to them, as the slots of a back end need them. The core copies. */
#ifndef XPI_BASE_SHM_MR_H
#define XPI_BASE_SHM_MR_H

#include "base/shm.h"

struct xpi_shm_mr {
	struct xpi_shm shm;
	bool writable; /* by peers */
};

struct xpi_shm_rkey {
	void *map;
	size_t length;
};

/* xpi_shm_mr_alloc - as mr_alloc of a back end. */
int xpi_shm_mr_alloc(struct xpi_shm_mr *mr, size_t length, bool writable, void **base, struct xport_error *err);
/* xpi_shm_mr_pack - as rkey_pack. */
int xpi_shm_mr_pack(const struct xpi_shm_mr *mr, void *buf, size_t *len, struct xport_error *err);

/* xpi_shm_rkey_check - find out whether a native key has the right length. If not, BAD_KEY is described. */
int xpi_shm_rkey_check(size_t len, struct xport_error *err);
/*
 * xpi_shm_rkey_map - as rkey_unpack, after xpi_shm_rkey_check.
 *
 * fd       a descriptor of the region that its owner has passed; the caller closes it. -1: open it by /proc
 * writing  whether the rights of the key let peers change the region
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_NOT_SUPPORTED  the memory is gone, its owner may not be accessed, or it is shorter than stated
 */
int xpi_shm_rkey_map(struct xpi_shm_rkey *rkey, const uint8_t *key, int fd, uint64_t start, uint64_t length,
                     bool writing, void **direct);
void xpi_shm_rkey_unmap(struct xpi_shm_rkey *rkey);

#endif
