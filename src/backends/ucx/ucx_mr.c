/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_mr.c - memory and keys.
 *
 * A native key is written only for memory that a peer reaches without UCX's own emulation: memory of mr_alloc, which
 * peers of the same host map (base/shm.h), or memory registered with an adapter.  All other regions have a native key
 * of no bytes, and the core carries their puts and gets.
 *
 * UCX has shared memory of its own (ucp_mem_map with ALLOCATE, ucp_rkey_ptr), which is not used: when the owner of a
 * segment has just ended, ucp_ep_rkey_unpack of 1.13.1 crashes in its own clean-up; it maps whatever has the segment's
 * descriptor number by then; and an allocation that is too large fills /dev/shm before it fails.
 *
 *   key: u8 kind; the shm key (XPI_SHM_KEY bytes) if kind has KEY_SHM; u64 base, u16 length and the bytes of
 *        ucp_rkey_pack if it has KEY_RDMA
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/bytes.h"
#include "ucx.h"

enum { KEY_SHM = 1, KEY_RDMA = 2 };

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
		xpi_log(be->log, XPORT_LOG_INFO, "1003", "ucx: could not place %zu bytes as asked: %s", params->length,
		        be->sink.last);
	}
	ucx_sink_probe(&be->sink, false);
	return rc;
}

/* Only where there is a limit it may have been what was in the way. */
static const char *lock_hint(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY
	               ? "the limit of locked memory may be too low: check ulimit -l"
	               : NULL;
}

int ucx_mr_reg(struct xpi_be *be, void *mr_, void *base, size_t length, uint32_t rights)
{
	struct ucx_mr *mr = mr_;
	ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
		.address = base,
		.length = length,
	};

	int rc;

	mr->base = base;
	mr->mem = NULL;
	if (!be->rdma)
		return XPORT_OK;
	rc = mem_map(be, &params, &mr->mem, lock_hint(), "registering memory");
	/* UCX has an adapter grant all there is, which memory that nobody may write does not have: then the core carries it. */
	if (rc != XPORT_OK && (rights & (XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC | XPORT_REMOTE_RECV)) == 0)
		return XPORT_OK;
	return rc != XPORT_ERR_PEER_LOST ? rc : (be->err->status = XPORT_ERR_NO_MEMORY);
}

int ucx_mr_alloc(struct xpi_be *be, void *mr_, size_t length, uint32_t rights, void **base)
{
	struct ucx_mr *mr = mr_;
	int rc;

	if (!be->maps)
		return XPORT_ERR_NOT_SUPPORTED;
	rc = xpi_shm_alloc(&mr->shm, length, be->err);
	if (rc != XPORT_OK)
		return rc;
	mr->writable = (rights & XPI_RIGHTS_TO_CHANGE) != 0;
	rc = ucx_mr_reg(be, mr, mr->shm.base, length, rights);
	if (rc != XPORT_OK) {
		xpi_shm_free(&mr->shm);
		return rc;
	}
	*base = mr->base;
	return XPORT_OK;
}

void ucx_mr_dereg(struct xpi_be *be, void *mr_)
{
	struct ucx_mr *mr = mr_;
	ucs_status_t status = mr->mem != NULL ? ucp_mem_unmap(be->context, mr->mem) : UCS_OK;

	if (status != UCS_OK)
		xpi_log(be->log, XPORT_LOG_WARN, "1011", "ucx: cannot deregister the memory at %p: %s", mr->base,
		        ucs_status_string(status));
	mr->mem = NULL;
	xpi_shm_free(&mr->shm);
}

int ucx_rkey_pack(struct xpi_be *be, void *ep, const void *mr_, void *buf, size_t *len)
{
	const struct ucx_mr *mr = mr_;
	struct xpi_wr w = xpi_wr(buf, *len);
	unsigned kind = (mr->shm.base != NULL ? KEY_SHM : 0) | (mr->mem != NULL ? KEY_RDMA : 0);
	uint8_t shm[XPI_SHM_KEY];
	ucs_status_t status;
	size_t room = *len, n;
	void *blob;

	(void)ep;
	*len = 0;
	if (kind == 0)
		return XPORT_OK;
	xpi_wr_u8(&w, (uint8_t)kind);
	if (kind & KEY_SHM) {
		xpi_shm_pack(&mr->shm, mr->writable, shm);
		xpi_wr_bytes(&w, shm, sizeof(shm));
	}
	if (kind & KEY_RDMA) {
		status = ucp_rkey_pack(be->context, mr->mem, &blob, &n);
		if (status != UCS_OK)
			return ucx_fail(be, status, NULL, "packing a key");
		xpi_wr_u64(&w, (uint64_t)(uintptr_t)mr->base);
		xpi_wr_u16(&w, (uint16_t)n);
		xpi_wr_bytes(&w, blob, n);
		ucp_rkey_buffer_release(blob);
	}
	if (w.bad)
		return xpi_fail(be->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "a UCX key is longer than %zu bytes",
		                room);
	*len = room - w.left;
	return XPORT_OK;
}

/*
 * Whether this peer is reached by one connection of an adapter, frames and all: what comes behind a put on another way may be
 * there before it.  Without an adapter UCX unpacks the key all the same, and carries what it is used for by messages,
 * unchecked.  It tells only people, in lines "... lane[0]:  2:rc_mlx5/mlx5_0:1.0 md[1] -> ... am am_bw#0".
 */
static bool has_adapter(ucp_ep_h ep)
{
	char *text = NULL, *line, *save = NULL, tl[8];
	int adapters = 0, frames = 0;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (f == NULL)
		return false;
	ucp_ep_print_info(ep, f);
	fclose(f);
	for (line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
		const char *at = strstr(line, "lane["), *am = strstr(line, " am");

		if (at == NULL || sscanf(at, "lane[%*d]: %*d:%7[^/]", tl) != 1 || !ucx_is_adapter(tl))
			continue;
		adapters++;
		while (am != NULL && am[3] != ' ' && am[3] != '\0')
			am = strstr(am + 1, " am");
		frames += am != NULL;
	}
	free(text);
	return adapters == 1 && frames == 1;
}

/*
 * UCX's decoder takes no length: it works on a copy with zeros behind, so that what runs off the end stays in our
 * memory.
 */
static int unpack_rdma(struct xpi_be *be, struct ucx_ep *ep, struct ucx_rkey *key, struct xpi_rd *r, uint64_t start)
{
	uint64_t base = xpi_rd_u64(r) + start;
	size_t n = xpi_rd_u16(r);
	const uint8_t *bytes = xpi_rd_bytes(r, n);
	char blob[4 * UCX_KEY_MAX] = {0};
	ucs_status_t status;

	if (r->bad || r->left != 0 || n == 0 || n > UCX_KEY_MAX)
		return xpi_fail(be->err, XPORT_ERR_BAD_KEY, 0, NULL, NULL, "a native key is malformed");
	if (ep->state != UCX_EP_UP || ep->why != UCS_OK)
		return xpi_fail(be->err, XPORT_ERR_PEER_LOST, 0, NULL, NULL, "the endpoint is not connected");
	if (!has_adapter(ep->ucp))
		return XPORT_ERR_NOT_SUPPORTED;
	memcpy(blob, bytes, n);
	status = ucp_ep_rkey_unpack(ep->ucp, blob, &key->rkey);
	if (status == UCS_ERR_UNREACHABLE || status == UCS_ERR_UNSUPPORTED)
		return XPORT_ERR_NOT_SUPPORTED;
	if (status != UCS_OK)
		return ucx_fail(be, status, NULL, "unpacking a key");
	key->base = base;
	return XPORT_OK;
}

/* NOT_SUPPORTED: this endpoint has no native way to that memory (say, of another host); the core then carries it. */
int ucx_rkey_unpack(struct xpi_be *be, void *ep, void *rkey, const void *buf, size_t len, uint64_t start,
                    uint64_t length, uint32_t rights, void **direct)
{
	struct ucx_rkey *key = rkey;
	struct xpi_rd r = xpi_rd(buf, len);
	unsigned kind = xpi_rd_u8(&r);
	const uint8_t *shm = kind & KEY_SHM ? xpi_rd_bytes(&r, XPI_SHM_KEY) : NULL;

	*direct = NULL;
	memset(key, 0, sizeof(*key));
	if (r.bad || kind == 0 || kind > (KEY_SHM | KEY_RDMA))
		return xpi_fail(be->err, XPORT_ERR_BAD_KEY, 0, NULL, NULL, "a native key of %zu bytes is malformed",
		                len);
	if (shm != NULL && be->maps)
		key->map = xpi_shm_map(shm, start + length, (rights & XPI_RIGHTS_TO_CHANGE) != 0);
	if (key->map != NULL) {
		key->map_len = start + length;
		*direct = (uint8_t *)key->map + start;
		return XPORT_OK;
	}
	if ((kind & KEY_RDMA) && be->rdma)
		return unpack_rdma(be, ep, key, &r, start);
	return XPORT_ERR_NOT_SUPPORTED;
}

void ucx_rkey_destroy(struct xpi_be *be, void *rkey)
{
	struct ucx_rkey *key = rkey;

	(void)be;
	if (key->map != NULL)
		xpi_shm_unmap(key->map, key->map_len);
	if (key->rkey != NULL)
		ucp_rkey_destroy(key->rkey);
	memset(key, 0, sizeof(*key));
}
