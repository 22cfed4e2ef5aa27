/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs_mr.c - memory regions and keys.
 *
 *   key: u64 address, u32 rkey, u32 zero; empty for a region that the device cannot register as a whole
 */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "verbs.h"

static int access_of(uint32_t rights)
{
	int access = 0;

	if (rights & XPORT_REMOTE_READ)
		access |= IBV_ACCESS_REMOTE_READ;
	if (rights & XPORT_REMOTE_WRITE)
		access |= IBV_ACCESS_REMOTE_WRITE;
	if (rights & XPORT_ATOMIC_NIC)
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	return access;
}

int vrb_mr_reg(struct xpi_be *be, void *mr_, void *base, size_t length, uint32_t rights)
{
	int access = access_of(rights);
	struct vrb_mr *mr = mr_;

	mr->base = base;
	mr->mr = NULL;
	if (length > be->attr.max_mr_size)
		return XPORT_OK;
	mr->mr = ibv_reg_mr(be->pd, base, length, access | IBV_ACCESS_LOCAL_WRITE);
	mr->sink = mr->mr != NULL && (!be->sink_needs_write || (access & IBV_ACCESS_REMOTE_WRITE));
	/* Read-only memory can still be a source. */
	if (mr->mr == NULL && (errno == EFAULT || errno == EACCES) &&
	    !(access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)))
		mr->mr = ibv_reg_mr(be->pd, base, length, access);
	/*
	 * The core has checked that the memory exists and allows this access. Memory that an adapter cannot register,
	 * such as pages of a file, is accessed by messages.
	 */
	if (mr->mr == NULL && (errno == EFAULT || errno == EOPNOTSUPP) && !(access & IBV_ACCESS_REMOTE_ATOMIC)) {
		xpi_log(be->log, XPORT_LOG_INFO, "2031",
		        "verbs: %s: cannot register %zu bytes at %p, access is emulated over messages: %m", be->name,
		        length, base);
		return XPORT_OK;
	}
	if (mr->mr == NULL)
		return vrb_fail_locked(be, errno, length);
	return XPORT_OK;
}

void vrb_mr_dereg(struct xpi_be *be, void *mr_)
{
	struct vrb_mr *mr = mr_;

	if (mr->mr != NULL && ibv_dereg_mr(mr->mr) != 0)
		xpi_log(be->log, XPORT_LOG_WARN, "2030", "verbs: %s: cannot deregister the memory at %p: %m", be->name,
		        mr->base);
	mr->mr = NULL;
}

int vrb_rkey_pack(struct xpi_be *be, void *ep, const void *mr_, void *buf, size_t *len)
{
	const struct vrb_mr *mr = mr_;
	struct xpi_wr w = xpi_wr(buf, *len);

	(void)ep;
	if (mr->mr == NULL) {
		*len = 0;
		return XPORT_OK;
	}
	xpi_wr_u64(&w, (uint64_t)(uintptr_t)mr->base);
	xpi_wr_u32(&w, mr->mr->rkey);
	xpi_wr_u32(&w, 0);
	if (w.bad)
		return xpi_fail(be->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "a key is longer than %zu bytes", *len);
	*len -= w.left;
	return XPORT_OK;
}

int vrb_rkey_unpack(struct xpi_be *be, void *ep, void *rkey, const void *buf, size_t len, uint64_t start,
                    uint64_t length, uint32_t rights, void **direct)
{
	struct xpi_rd r = xpi_rd(buf, len);
	struct vrb_rkey *key = rkey;

	(void)ep;
	(void)length; /* the adapter checks */
	(void)rights;
	*direct = NULL;
	key->base = xpi_rd_u64(&r) + start;
	key->rkey = xpi_rd_u32(&r);
	(void)xpi_rd_u32(&r);
	if (r.bad || r.left != 0)
		return xpi_fail(be->err, XPORT_ERR_BAD_KEY, 0, NULL, NULL, "a native key of %zu bytes is malformed",
		                len);
	return XPORT_OK;
}

/* ---- the page that peers read to prove their puts ---- */

int vrb_proof_new(struct xpi_be *be)
{
	size_t len = (size_t)sysconf(_SC_PAGESIZE);

	if ((be->kind != VRB_IB && be->kind != VRB_ROCE) || be->reads_max == 0)
		return XPORT_OK;
	be->proof = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (be->proof == MAP_FAILED) {
		be->proof = NULL;
		return xpi_fail_errno(be->err, XPORT_ERR_NO_MEMORY, NULL, "no memory for an instance");
	}
	be->proof_mr = ibv_reg_mr(be->pd, be->proof, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	return be->proof_mr != NULL ? XPORT_OK : vrb_fail_locked(be, errno, len);
}

void vrb_proof_free(struct xpi_be *be)
{
	if (be->proof_mr != NULL)
		ibv_dereg_mr(be->proof_mr);
	if (be->proof != NULL)
		munmap(be->proof, (size_t)sysconf(_SC_PAGESIZE));
}
