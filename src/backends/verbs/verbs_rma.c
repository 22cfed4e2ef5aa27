/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs_rma.c - put and get: RDMA WRITE and READ.
 *
 * A frame sent after a WRITE on the same queue pair arrives after the WRITE's bytes are visible. InfiniBand, RoCE
 * and iWARP all guarantee this, and nothing else is relied on. The completion of a WRITE proves nothing: on iWARP it
 * means "handed to TCP", and it reports success even where the peer refuses the access.
 *
 * On InfiniBand and RoCE a READ is executed after the WRITEs before it, and what the adapter reads from memory
 * cannot overtake what it wrote there (no region is registered for relaxed ordering). So a READ of a page of the
 * peer, whatever it contains, proves that earlier WRITEs are visible, and the peer's program takes no part. On iWARP
 * a frame must do that. A ConnectX adapter with adaptive routing guarantees neither this nor that WRITEs become
 * visible in posted order: see doc/records/conformance.md.
 *
 * Short gets are not posted on siw. While the target posts a request of its own, siw's thread copies a short answer
 * from the target's address in whichever process ran there last (siw_try_1seg, in_syscall). That returned foreign
 * bytes with success, or ended the connection silently.
 *
 * Short puts are inline in the work request or copied, so they need no registered source and no completion.
 */
#include <string.h>

#include "verbs.h"

/* XPORT_OK: the operation may be posted. */
static inline int vrb_rma_ready(const struct vrb_ep *ep)
{
	if (vrb_likely(ep->room > VRB_RESERVE))
		return XPORT_OK;
	return ep->broken || ep->state > VRB_UP ? XPORT_ERR_PEER_LOST : XPORT_ERR_AGAIN;
}

/* Sets only the fields that a WRITE or READ uses. To clear all 128 bytes would take longer than the rest. */
static inline void wr_fill(struct ibv_send_wr *wr, struct ibv_sge *sge, enum ibv_wr_opcode opcode,
                           const struct vrb_rkey *key, uint64_t offset)
{
	wr->next = NULL;
	wr->sg_list = sge;
	wr->num_sge = 1;
	wr->opcode = opcode;
	wr->send_flags = 0;
	wr->wr.rdma.remote_addr = key->base + offset;
	wr->wr.rdma.rkey = key->rkey;
}

/* The first put since a poll is posted at once, later ones share a doorbell. */
static inline int put_post(struct vrb_ep *ep, struct ibv_send_wr *wr, bool first)
{
	if (vrb_signal_due(ep))
		wr->send_flags |= IBV_SEND_SIGNALED;
	return first ? vrb_post(ep, wr, NULL) : vrb_batch_add(ep, wr);
}

/* Copies the source, so that the put is complete when this returns. */
static int put_copied(struct vrb_ep *ep, struct ibv_send_wr *wr, bool first)
{
	struct ibv_sge *sge = wr->sg_list;
	uint32_t head = ep->ring_head;
	uint8_t *p = vrb_ring_take(ep, sge->length);
	int rc;

	if (p == NULL)
		return XPORT_ERR_AGAIN;
	memcpy(p, (const void *)(uintptr_t)sge->addr, sge->length);
	sge->addr = (uintptr_t)p;
	sge->lkey = ep->lkey;
	rc = put_post(ep, wr, first);
	if (vrb_unlikely(rc != XPORT_OK))
		ep->ring_head = head;
	return rc;
}

int vrb_put(struct xpi_be *be, void *ep_, const void *buf, size_t len, void *mr_, void *rkey, uint64_t offset,
            struct xpi_req *req)
{
	struct vrb_ep *ep = ep_;
	const struct vrb_mr *mr = mr_;
	struct ibv_sge sge = {.addr = (uintptr_t)buf, .length = (uint32_t)len};
	struct ibv_send_wr wr;
	int rc = vrb_rma_ready(ep);
	bool first;

	if (vrb_unlikely(rc != XPORT_OK))
		return rc;
	wr_fill(&wr, &sge, IBV_WR_RDMA_WRITE, rkey, offset);
	if (len <= VRB_COPY_MAX) {
		first = ep->put_at != be->polls;
		ep->put_at = be->polls;
		if (len > (first ? be->inline_max : be->inline_batched))
			return put_copied(ep, &wr, first);
		wr.send_flags = IBV_SEND_INLINE;
		return put_post(ep, &wr, first);
	}
	if (mr == NULL || mr->mr == NULL)
		return XPORT_ERR_NOT_SUPPORTED;
	sge.lkey = mr->mr->lkey;
	wr.send_flags = IBV_SEND_SIGNALED;
	rc = vrb_post(ep, &wr, req);
	return rc == XPORT_OK ? XPI_PENDING : rc;
}

/* Posts a READ, up to the limit of outstanding ones: more would wait in the send queue, with frames behind them. */
static int read_post(struct vrb_ep *ep, struct ibv_sge *sge, const struct vrb_rkey *key, uint64_t offset,
                     struct xpi_req *req)
{
	struct ibv_send_wr wr;
	int rc = vrb_rma_ready(ep);

	if (vrb_unlikely(rc != XPORT_OK))
		return rc;
	if (vrb_unlikely(ep->gets >= ep->gets_max))
		return XPORT_ERR_AGAIN;
	wr_fill(&wr, sge, IBV_WR_RDMA_READ, key, offset);
	wr.send_flags = IBV_SEND_SIGNALED;
	rc = vrb_post(ep, &wr, req);
	if (vrb_unlikely(rc != XPORT_OK))
		return rc;
	ep->gets++;
	return XPI_PENDING;
}

int vrb_get(struct xpi_be *be, void *ep, void *buf, size_t len, void *mr_, void *rkey, uint64_t offset,
            struct xpi_req *req)
{
	const struct vrb_mr *mr = mr_;
	struct ibv_sge sge = {.addr = (uintptr_t)buf, .length = (uint32_t)len};

	/* gets_max is 0 if a device allows none. */
	if (vrb_unlikely(mr == NULL || mr->mr == NULL || !mr->sink || len < be->get_min ||
	                 ((const struct vrb_ep *)ep)->gets_max == 0))
		return XPORT_ERR_NOT_SUPPORTED;
	sge.lkey = mr->mr->lkey;
	return read_post(ep, &sge, rkey, offset, req);
}

/*
 * The old value arrives in the ring, since the caller's buffer need not be registered. An atomic counts as a READ:
 * the target can remember only a few of them, to answer again if an answer is lost.
 */
int vrb_atomic(struct xpi_be *be, void *ep_, const struct xport_atomic_args *args, void *rkey_, uint64_t offset,
               struct xpi_req *req)
{
	const struct vrb_rkey *key = rkey_;
	struct vrb_ep *ep = ep_;
	struct ibv_sge sge = {.length = sizeof(uint64_t), .lkey = ep->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
	uint32_t head = ep->ring_head, at = ep->sq_tail;
	int rc = vrb_rma_ready(ep);

	if (vrb_unlikely(rc != XPORT_OK))
		return rc;
	if (!be->nic_atomic || ep->gets_max == 0) /* this side's adapter, or the connection, does not support it */
		return XPORT_ERR_NOT_SUPPORTED;
	sge.addr = (uintptr_t)(ep->gets < ep->gets_max ? vrb_ring_take(ep, sge.length) : NULL);
	if (sge.addr == 0)
		return XPORT_ERR_AGAIN;
	wr.opcode = args->op == XPORT_ATOMIC_ADD ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.remote_addr = key->base + offset;
	wr.wr.atomic.rkey = key->rkey;
	wr.wr.atomic.compare_add = args->op == XPORT_ATOMIC_ADD ? args->operand : args->compare;
	wr.wr.atomic.swap = args->operand;
	rc = vrb_post(ep, &wr, req);
	if (vrb_unlikely(rc != XPORT_OK)) {
		ep->ring_head = head;
		return rc;
	}
	req->priv = args->result;
	ep->q->sent[at & (VRB_SQ - 1)].get = ep->q->sent[at & (VRB_SQ - 1)].atomic = true;
	ep->gets++;
	return XPI_PENDING;
}

const void *vrb_atomic_old(const struct vrb_ep *ep, const struct vrb_sent *s)
{
	return ep->ring + ((s->ring_end - VRB_RING_ALIGN) & (VRB_RING - 1));
}

/* The READ goes into the page that peers may read: its contents are not used. */
int vrb_drain(struct xpi_be *be, void *ep_, struct xpi_req *req)
{
	struct vrb_ep *ep = ep_;
	struct ibv_sge sge = {.addr = (uintptr_t)be->proof, .length = VRB_PROOF, .lkey = be->proof_mr->lkey};

	return read_post(ep, &sge, &ep->proof, 0, req);
}
