/* SPDX-License-Identifier: BSD-3-Clause */
/* chaos_mr.c - memory that cannot be registered, and keys that cannot be used. */
#include "chaos.h"

int chaos_mr_reg(struct xpi_be *be, void *mr, void *base, size_t length, uint32_t rights)
{
	if (chaos_chance(be, &be->dice, CHAOS_REGFAIL))
		return xpi_fail(be->err, XPORT_ERR_NO_MEMORY, 0, NULL, "XPORT_CHAOS=regfail=0",
		                "chaos refused to register %zu bytes", length);
	return be->ops->mr_reg(be->be, mr, base, length, rights);
}

/* NOT_SUPPORTED: the core then allocates the memory itself. */
int chaos_mr_alloc(struct xpi_be *be, void *mr, size_t length, uint32_t rights, void **base)
{
	if (be->caps.rma_reg && chaos_chance(be, &be->dice, CHAOS_KEYFAIL))
		return XPORT_ERR_NOT_SUPPORTED;
	return be->ops->mr_alloc(be->be, mr, length, rights, base);
}

void chaos_mr_dereg(struct xpi_be *be, void *mr)
{
	be->ops->mr_dereg(be->be, mr);
}

int chaos_rkey_pack(struct xpi_be *be, void *ep_state, const void *mr, void *buf, size_t *len)
{
	return be->ops->rkey_pack(be->be, ep_state != NULL ? ((struct chaos_ep *)ep_state)->inner : NULL, mr, buf, len);
}

/* Hides a mapping from the core, which would need no network otherwise. */
int chaos_rkey_unpack(struct xpi_be *be, void *ep_state, void *rkey, const void *buf, size_t len, uint64_t start,
                      uint64_t length, uint32_t rights, void **direct)
{
	struct chaos_ep *ep = ep_state;
	struct chaos_rkey *k = rkey;
	void *mapped = NULL;
	int r;

	(void)direct;
	if (chaos_chance(be, &ep->dice, CHAOS_KEYFAIL))
		return xpi_fail(be->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "chaos refused to unpack the key");
	r = be->ops->rkey_unpack(be->be, ep->inner, k->inner, buf, len, start, length, rights, &mapped);
	if (r == XPORT_OK)
		k->direct = mapped;
	return r;
}

void chaos_rkey_destroy(struct xpi_be *be, void *rkey)
{
	be->ops->rkey_destroy(be->be, ((struct chaos_rkey *)rkey)->inner);
}
