/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_mr.c - memory and keys.
 *
 * A native key is written only for memory that a peer reaches without UCX's own emulation: memory that UCX allocated
 * in a shared segment, or memory registered with an adapter.  All other regions have a native key of no bytes, and the
 * core carries their puts and gets.
 *
 *   key: u8 kind, u64 base, u16 length, the bytes of ucp_rkey_pack
 */
#include <string.h>

#include "base/bytes.h"
#include "ucx.h"

enum { KEY_SHM = 1, KEY_RDMA = 2, KEY_HEAD = 11 };

/* ucp_mem_map, described if it fails. */
static int mem_map(struct xpi_be *be, const ucp_mem_map_params_t *params, ucp_mem_h *mem, const char *hint,
                   const char *what)
{
	int rc = XPORT_OK;
	ucs_status_t status;

	ucx_sink_probe(&be->sink, true);
	status = ucp_mem_map(be->context, params, mem);
	if (status != UCS_OK) {
		*mem = NULL;
		rc = ucx_fail(be, status, hint, what);
	} else if (be->sink.last[0] != '\0') {
		xpi_log(be->log, XPORT_LOG_INFO, "1003", "ucx: %zu bytes are not where they should be: %s",
		        params->length, be->sink.last);
	}
	ucx_sink_probe(&be->sink, false);
	return rc;
}

int ucx_mr_reg(struct xpi_be *be, void *mr_, void *base, size_t length, uint32_t rights)
{
	struct ucx_mr *mr = mr_;
	ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
		.address = base,
		.length = length,
	};

	(void)rights; /* the core checks them; this UCX cannot narrow what an adapter grants */
	mr->base = base;
	mr->mem = NULL;
	if (!be->rdma)
		return XPORT_OK;
	return mem_map(be, &params, &mr->mem, "raise the limit of locked memory: ulimit -l", "registering memory");
}

/*
 * Zeroed, as all that ALLOC_PRIO lets UCX take is fresh from the kernel.  UCX writes a shared segment once before it
 * maps it, so that a full /dev/shm is an error here and not a SIGBUS later.
 */
int ucx_mr_alloc(struct xpi_be *be, void *mr_, size_t length, uint32_t rights, void **base)
{
	struct ucx_mr *mr = mr_;
	ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
	                      UCP_MEM_MAP_PARAM_FIELD_FLAGS,
		.length = length,
		.flags = UCP_MEM_MAP_ALLOCATE,
	};
	ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH};
	const char *hint =
		be->shm ? "make /dev/shm larger: mount -o remount,size=...; docker run --shm-size=..." : NULL;
	ucs_status_t status;
	int rc;

	(void)rights;
	memset(mr, 0, sizeof(*mr));
	rc = mem_map(be, &params, &mr->mem, hint, "allocating memory");
	if (rc != XPORT_OK)
		return rc;
	status = ucp_mem_query(mr->mem, &attr);
	if (status != UCS_OK) {
		(void)ucp_mem_unmap(be->context, mr->mem);
		mr->mem = NULL;
		return ucx_fail(be, status, hint, "allocating memory");
	}
	mr->base = attr.address;
	*base = mr->base;
	return XPORT_OK;
}

void ucx_mr_dereg(struct xpi_be *be, void *mr_)
{
	struct ucx_mr *mr = mr_;
	ucs_status_t status;

	if (mr->mem == NULL)
		return;
	status = ucp_mem_unmap(be->context, mr->mem);
	if (status != UCS_OK)
		xpi_log(be->log, XPORT_LOG_WARN, "1011", "ucx: memory at %p could not be given back: %s", mr->base,
		        ucs_status_string(status));
	mr->mem = NULL;
}

int ucx_rkey_pack(struct xpi_be *be, const void *mr_, void *buf, size_t *len)
{
	const struct ucx_mr *mr = mr_;
	struct xpi_wr w = xpi_wr(buf, *len);
	ucs_status_t status;
	void *blob;
	size_t n;

	*len = 0;
	if (mr->mem == NULL || (!be->shm && !be->rdma))
		return XPORT_OK;
	status = ucp_rkey_pack(be->context, mr->mem, &blob, &n);
	if (status != UCS_OK)
		return ucx_fail(be, status, NULL, "packing a key");
	xpi_wr_u8(&w, be->rdma ? KEY_RDMA : KEY_SHM);
	xpi_wr_u64(&w, (uint64_t)(uintptr_t)mr->base);
	xpi_wr_u16(&w, (uint16_t)n);
	xpi_wr_bytes(&w, blob, n);
	ucp_rkey_buffer_release(blob);
	if (w.bad || n > UCX_KEY_MAX - KEY_HEAD)
		return xpi_fail(be->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "a UCX key of %zu bytes is too long", n);
	*len = KEY_HEAD + n;
	return XPORT_OK;
}

/*
 * NOT_SUPPORTED: this endpoint has no native way to that memory (say, shared memory of another host); the core then
 * carries its puts and gets.  UCX's decoder takes no length: it works on a copy with zeros behind, so that what runs
 * off the end stays in our memory.
 */
int ucx_rkey_unpack(struct xpi_be *be, void *ep_, void *rkey, const void *buf, size_t len, void **direct)
{
	struct ucx_ep *ep = ep_;
	struct ucx_rkey *key = rkey;
	struct xpi_rd r = xpi_rd(buf, len);
	unsigned kind = xpi_rd_u8(&r);
	uint64_t base = xpi_rd_u64(&r);
	size_t n = xpi_rd_u16(&r);
	const uint8_t *bytes = xpi_rd_bytes(&r, n);
	char blob[4 * UCX_KEY_MAX] = {0};
	ucs_status_t status;

	*direct = NULL;
	memset(key, 0, sizeof(*key));
	if (r.bad || r.left != 0 || n == 0 || n > UCX_KEY_MAX || (kind != KEY_SHM && kind != KEY_RDMA))
		return xpi_fail(be->err, XPORT_ERR_BAD_KEY, 0, NULL, NULL, "a native key of %zu bytes is malformed",
		                len);
	if (ep->state != UCX_EP_UP || ep->why != UCS_OK)
		return xpi_fail(be->err, XPORT_ERR_PEER_LOST, 0, NULL, NULL, "the endpoint is not connected");
	memcpy(blob, bytes, n);
	status = ucp_ep_rkey_unpack(ep->ucp, blob, &key->rkey);
	if (status == UCS_ERR_UNREACHABLE || status == UCS_ERR_UNSUPPORTED)
		return XPORT_ERR_NOT_SUPPORTED;
	if (status != UCS_OK)
		return ucx_fail(be, status, NULL, "unpacking a key");
	key->base = base;
	if (ucp_rkey_ptr(key->rkey, base, direct) == UCS_OK)
		return XPORT_OK;
	*direct = NULL;
	key->rdma = be->rdma && kind == KEY_RDMA;
	if (key->rdma)
		return XPORT_OK;
	ucx_rkey_destroy(be, key);
	return XPORT_ERR_NOT_SUPPORTED;
}

void ucx_rkey_destroy(struct xpi_be *be, void *rkey)
{
	struct ucx_rkey *key = rkey;

	(void)be;
	if (key->rkey != NULL)
		ucp_rkey_destroy(key->rkey);
	key->rkey = NULL;
}
