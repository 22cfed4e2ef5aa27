/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs_qp.c - queue pairs, and the completion queues that they share.
 *
 * The queue pairs are created here and not by librdmacm. So they belong to the instance's own context, and
 * attributes that rdma_cm leaves at their defaults can be set: the timeouts for a lost packet and for a receiver
 * that is not ready. On iWARP the kernel changes the state of queue pairs by itself.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs.h"

enum { RNR_TIMER = 12 /* 0.64 ms; 0 means 655 ms */ };

/* ---- completion queues ---- */

static struct vrb_cq *cq_new(struct xpi_be *be)
{
	unsigned entries = be->cq_entries;
	struct vrb_cq *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	xpi_list_for(l, &be->cqs)
		if (entries < (unsigned)be->attr.max_cqe)
			entries *= 2;
	if (entries > (unsigned)be->attr.max_cqe)
		entries = (unsigned)be->attr.max_cqe;
	c->cq = ibv_create_cq(be->ctx, (int)entries, be, be->comp, be->comp_vector);
	for (; c->cq == NULL && entries / 2 >= VRB_CQ_SHARE;
	     c->cq = ibv_create_cq(be->ctx, (int)entries, be, be->comp, be->comp_vector))
		entries /= 2; /* limited by lockable memory before the number of entries */
	if (c->cq == NULL) {
		free(c);
		return NULL;
	}
	c->entries = c->room = entries;
	xpi_list_push(&be->cqs, &c->link);
	return c;
}

static struct vrb_cq *cq_take(struct xpi_be *be)
{
	struct vrb_cq *c = NULL;

	xpi_list_for(l, &be->cqs)
		if (!xpi_container(l, struct vrb_cq, link)->broken &&
		    xpi_container(l, struct vrb_cq, link)->room >= VRB_CQ_SHARE)
			c = xpi_container(l, struct vrb_cq, link);
	if (c == NULL)
		c = cq_new(be);
	if (c != NULL)
		c->room -= VRB_CQ_SHARE;
	return c;
}

void vrb_cqs_free(struct xpi_be *be)
{
	while (!xpi_list_empty(&be->cqs)) {
		struct vrb_cq *c = xpi_container(xpi_list_pop(&be->cqs), struct vrb_cq, link);

		if (ibv_destroy_cq(c->cq) != 0)
			xpi_log(be->log, XPORT_LOG_WARN, "2010",
			        "verbs: %s: ibv_destroy_cq failed, completion queue leaked: %m", be->name);
		free(c);
	}
}

/* ---- making ---- */

static struct ibv_qp *create(struct xpi_be *be, struct ibv_cq *cq, uint32_t inline_max, void *context,
                             uint32_t *inline_got)
{
	struct ibv_qp_init_attr attr = {
		.qp_context = context,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = VRB_SQ + 1, /* and the sentinel */
	                .max_recv_wr = VRB_RQ,
	                .max_send_sge = 2,
	                .max_recv_sge = 1,
	                .max_inline_data = inline_max},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(be->pd, &attr);

	if (inline_got != NULL)
		*inline_got = attr.cap.max_inline_data;
	return qp;
}

/* Short operations are inline in the work request. The longest inline length is found by requesting less and less. */
int vrb_qp_probe(struct xpi_be *be)
{
	static const uint32_t wanted[] = {256, 128, 96, 80, 64, 48, 0};
	struct vrb_cq *c = cq_take(be);
	struct ibv_qp *qp = NULL;
	uint32_t got = 0;

	if (c == NULL)
		return vrb_fail(be, XPORT_ERR_NO_BACKEND, errno, NULL, "creating a completion queue");
	for (size_t i = 0; qp == NULL && i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		be->inline_max = wanted[i];
		qp = create(be, c->cq, wanted[i], NULL, &got);
	}
	c->room += VRB_CQ_SHARE;
	if (qp == NULL)
		return vrb_fail(be, XPORT_ERR_NO_BACKEND, errno, NULL, "creating a queue pair");
	if (got < be->inline_max)
		be->inline_max = got;
	be->inline_batched = be->inline_max < VRB_BATCH_SHORT ? be->inline_max : VRB_BATCH_SHORT;
	ibv_destroy_qp(qp);
	return XPORT_OK;
}

int vrb_qp_new(struct vrb_ep *ep)
{
	struct xpi_be *be = ep->be;

	ep->cq = cq_take(be);
	if (ep->cq == NULL)
		return vrb_fail(be, XPORT_ERR_NO_MEMORY, errno, NULL, "creating a completion queue");
	ep->qp = create(be, ep->cq->cq, be->inline_max, ep, NULL);
	if (ep->qp == NULL)
		return vrb_fail(be, XPORT_ERR_NO_MEMORY, errno, NULL, "creating a queue pair");
	return XPORT_OK;
}

/* ---- moving ---- */

static int to(struct vrb_ep *ep, enum ibv_qp_state state)
{
	struct xpi_be *be = ep->be;
	struct ibv_qp_attr attr = {.qp_state = state};
	int mask, rc;

	if (rdma_init_qp_attr(ep->id, &attr, &mask) != 0)
		return vrb_fail(be, XPORT_ERR_UNREACHABLE, errno, NULL, "querying rdma_cm about the connection");
	/* Before the peer is known it allows no access. */
	if (mask & IBV_QP_ACCESS_FLAGS)
		attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		                       (be->nic_atomic ? IBV_ACCESS_REMOTE_ATOMIC : 0);
	if (mask & IBV_QP_MIN_RNR_TIMER)
		attr.min_rnr_timer = RNR_TIMER;
	if (mask & IBV_QP_TIMEOUT)
		attr.timeout = be->ack_timeout;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		attr.max_dest_rd_atomic = (uint8_t)be->reads_max;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		attr.max_rd_atomic = (uint8_t)ep->gets_max;
	/* The passive side's, too: its rdma_cm takes over the service level of the request, but not always this. */
	if (ep->marked && (mask & IBV_QP_AV) && attr.ah_attr.is_global)
		attr.ah_attr.grh.traffic_class = ep->tos;
	if (be->kind == VRB_IB)
		mask &= (1 << 21) - 1; /* kernels set bits there that are not for InfiniBand */
	rc = ibv_modify_qp(ep->qp, &attr, mask);
	if (rc != 0)
		return vrb_fail(be, XPORT_ERR_UNREACHABLE, rc, NULL, "setting up a queue pair");
	return XPORT_OK;
}

int vrb_repost(struct vrb_ep *ep)
{
	struct ibv_recv_wr *first = ep->repost, *bad = first;
	int rc;

	if (first == NULL || ep->qp == NULL || ep->state >= VRB_CLOSING)
		return XPORT_OK;
	*ep->repost_end = NULL;
	rc = ibv_post_recv(ep->qp, first, &bad);
	if (vrb_unlikely(rc != 0)) {
		for (; ep->repost != bad; ep->repost = ep->repost->next) { /* the accepted ones */
			ep->rx_posted++;
			ep->nrepost--;
		}
		return vrb_fail(ep->be, XPORT_ERR_SYSTEM, rc, NULL, "posting receives");
	}
	ep->rx_posted += ep->nrepost;
	ep->repost = NULL;
	ep->repost_end = &ep->repost;
	ep->nrepost = 0;
	return XPORT_OK;
}

static void prepare_receives(struct vrb_ep *ep)
{
	struct vrb_queues *q = ep->q;

	for (uint32_t i = 0; i < VRB_RX; i++) {
		q->rx_sge[i] = (struct ibv_sge){
			.addr = (uintptr_t)ep->rx + (size_t)i * VRB_FRAME_MAX,
			.length = VRB_FRAME_MAX,
			.lkey = ep->lkey,
		};
		q->rx_wr[i] = (struct ibv_recv_wr){
			.wr_id = ep->key | VRB_ID_RX | i,
			.sg_list = &q->rx_sge[i],
			.num_sge = 1,
			.next = i + 1 < VRB_RX ? &q->rx_wr[i + 1] : NULL,
		};
	}
	ep->repost = &q->rx_wr[0];
	ep->repost_end = &q->rx_wr[VRB_RX - 1].next;
	ep->nrepost = VRB_RX;
}

int vrb_qp_init(struct vrb_ep *ep)
{
	int rc = to(ep, IBV_QPS_INIT);

	if (rc != XPORT_OK)
		return rc;
	prepare_receives(ep);
	return vrb_repost(ep);
}

int vrb_qp_connect(struct vrb_ep *ep)
{
	int rc = to(ep, IBV_QPS_RTR);

	return rc != XPORT_OK ? rc : to(ep, IBV_QPS_RTS);
}

/* ---- ending ---- */

void vrb_qp_stop(struct vrb_ep *ep)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_send_wr wr = {.wr_id = ep->key | VRB_ID_SENTINEL,
	                         .opcode = IBV_WR_SEND,
	                         .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	if (ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE) != 0)
		xpi_log(ep->be->log, XPORT_LOG_DEBUG, "2011", "verbs: %s: cannot stop a queue pair: %m", ep->be->name);
	ep->drained = ep->sq_head == ep->sq_tail || ep->be->no_sentinel || ibv_post_send(ep->qp, &wr, &bad) != 0;
}

void vrb_qp_free(struct vrb_ep *ep)
{
	if (ep->qp != NULL) {
		ep->qp->qp_context = NULL; /* if destroying fails, the device's events for it are ignored */
		if (ibv_destroy_qp(ep->qp) != 0)
			xpi_log(ep->be->log, XPORT_LOG_WARN, "2012",
			        "verbs: %s: ibv_destroy_qp failed, queue pair leaked: %m", ep->be->name);
	}
	ep->qp = NULL;
	ep->rx_posted = 0;
	if (ep->cq != NULL)
		ep->cq->room += VRB_CQ_SHARE;
	ep->cq = NULL;
}
