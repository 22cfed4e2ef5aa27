/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs_am.c - frames.
 *
 * A frame is one SEND. A short one is inline in the work request. Others are copied into the endpoint's registered
 * ring, which costs less than registering memory. So the back end never holds a frame after am_send has returned.
 * Only some work requests are signalled: the completion frees everything that was sent before.
 *
 * On siw each SEND of a page or more is signalled. For unsignalled ones siw gives TCP the pages instead of a copy,
 * and completes the requests behind them as soon as TCP has taken the data. On a slow or lossy network TCP sends
 * these pages again much later, and the ring would have been reused by then.
 */
#include <errno.h>
#include <string.h>

#include "verbs.h"

uint8_t *vrb_ring_take(struct vrb_ep *ep, size_t len)
{
	uint32_t n = ((uint32_t)len + VRB_RING_ALIGN - 1) & ~(uint32_t)(VRB_RING_ALIGN - 1);
	uint32_t at = ep->ring_head & (VRB_RING - 1), skip = at + n > VRB_RING ? VRB_RING - at : 0;

	if (vrb_unlikely(ep->ring_head + skip + n - ep->ring_tail > VRB_RING))
		return NULL;
	ep->ring_head += skip + n;
	return ep->ring + ((ep->ring_head - n) & (VRB_RING - 1));
}

int vrb_greet(struct vrb_ep *ep)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};

	return vrb_post(ep, &wr, NULL);
}

/* Copies one or two pieces into the ring and sends them. */
static int send_copied(struct vrb_ep *ep, const void *hdr, size_t hlen, const void *data, size_t dlen)
{
	uint32_t head = ep->ring_head;
	uint8_t *p = vrb_ring_take(ep, hlen + dlen);
	struct ibv_sge sge = {.addr = (uintptr_t)p, .length = (uint32_t)(hlen + dlen), .lkey = ep->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	int rc;

	if (vrb_unlikely(p == NULL))
		return XPORT_ERR_AGAIN;
	memcpy(p, hdr, hlen);
	if (dlen > 0)
		memcpy(p + hlen, data, dlen);
	if (vrb_signal_due(ep) || sge.length >= ep->be->lent_min)
		wr.send_flags = IBV_SEND_SIGNALED;
	rc = vrb_post(ep, &wr, NULL);
	if (vrb_unlikely(rc != XPORT_OK))
		ep->ring_head = head;
	return rc;
}

static __attribute__((cold)) int send_not(const struct vrb_ep *ep)
{
	return ep->broken || ep->state > VRB_UP ? XPORT_ERR_PEER_LOST : XPORT_ERR_AGAIN;
}

/* Sets only the fields that a SEND uses: the whole struct has 128 bytes. */
static inline __attribute__((always_inline)) int send_inline(struct vrb_ep *ep, struct ibv_sge *sge, int nsge)
{
	struct ibv_send_wr wr;

	wr.next = NULL;
	wr.sg_list = sge;
	wr.num_sge = nsge;
	wr.opcode = IBV_WR_SEND;
	wr.send_flags = IBV_SEND_INLINE;
	if (vrb_signal_due(ep))
		wr.send_flags |= IBV_SEND_SIGNALED;
	return vrb_post(ep, &wr, NULL);
}

int vrb_am_send(struct xpi_be *be, void *ep_, const void *buf, size_t len, struct xpi_req *req)
{
	struct vrb_ep *ep = ep_;
	struct ibv_sge sge = {.addr = (uintptr_t)buf, .length = (uint32_t)len};

	(void)req; /* never pending */
	if (vrb_unlikely(ep->room == 0))
		return send_not(ep);
	return len <= be->inline_max ? send_inline(ep, &sge, 1) : send_copied(ep, buf, len, NULL, 0);
}

int vrb_am_send_two(struct xpi_be *be, void *ep_, const void *hdr, size_t hlen, const void *data, size_t dlen,
                    struct xpi_req *req)
{
	struct vrb_ep *ep = ep_;
	struct ibv_sge sge[2] = {{.addr = (uintptr_t)hdr, .length = (uint32_t)hlen},
	                         {.addr = (uintptr_t)data, .length = (uint32_t)dlen}};

	(void)req;
	if (vrb_unlikely(ep->room == 0))
		return send_not(ep);
	return hlen + dlen <= be->inline_max ? send_inline(ep, sge, 2) : send_copied(ep, hdr, hlen, data, dlen);
}
