/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs_batch.c - batching of short puts: one doorbell for many work requests.
 *
 * To post a work request costs more than a short put itself: an uncached write, or a system call with a kernel
 * device. So the first short put between two polls is posted at once. The others are chained and wait until
 * something else is sent to that peer, or until the next poll. Then one call posts them all. A program that puts
 * once and polls is not delayed.
 *
 * Waiting puts are counted in sent[], in order, as if they had been posted.
 */
#include <errno.h>
#include <string.h>

#include "verbs.h"

void vrb_batch_forget(struct vrb_ep *ep)
{
	ep->sq_tail -= ep->waiting;
	ep->waiting = 0;
	if (xpi_list_linked(&ep->batched))
		xpi_list_del(&ep->batched);
}

bool vrb_post_again(const struct vrb_ep *ep, int error)
{
	return (error == ENOMEM || error == -ENOMEM) && ep->sq_tail - ep->sq_head != ep->waiting;
}

/* The stack refused it, or the connection is lost. */
int vrb_post_failed(struct vrb_ep *ep, int error)
{
	if (vrb_post_again(ep, error))
		return XPORT_ERR_AGAIN;
	ep->room = 0;
	ep->broken = ep->told = true; /* by the return value */
	return vrb_fail(ep->be, XPORT_ERR_PEER_LOST, error < 0 ? -error : error, NULL, "posting a request");
}

int vrb_batch_post(struct vrb_ep *ep, struct ibv_send_wr *last)
{
	struct vrb_batch *c = &ep->q->batch;
	struct ibv_send_wr *bad;
	int rc;

	c->wr[c->end - 1].next = last;
	rc = vrb_hand_over(ep, &c->wr[c->end - ep->waiting], &bad);
	/* siw may return 0 and still set `bad`. */
	if (rc == 0 && bad != NULL)
		rc = ENOMEM;
	if (rc == 0 || bad == NULL || bad == last) {
		ep->waiting = 0;
		xpi_list_del(&ep->batched);
		return rc;
	}
	ep->waiting = c->end - (unsigned)(bad - c->wr);
	c->wr[c->end - 1].next = NULL;
	return rc;
}

int vrb_batch_add(struct vrb_ep *ep, const struct ibv_send_wr *wr)
{
	struct vrb_batch *c = &ep->q->batch;
	unsigned i;
	int rc;

	if (ep->waiting == 0) {
		c->end = 0;
	} else if (c->end == VRB_BATCH) {
		rc = vrb_batch_post(ep, NULL);
		if (vrb_unlikely(rc != 0))
			return vrb_post_failed(ep, rc);
		c->end = 0;
	}
	i = c->end++;
	c->sge[i] = wr->sg_list[0];
	if (wr->send_flags & IBV_SEND_INLINE) {
		memcpy(c->data[i], (const void *)(uintptr_t)wr->sg_list[0].addr, wr->sg_list[0].length);
		c->sge[i].addr = (uintptr_t)c->data[i];
	}
	c->wr[i].wr_id = ep->key | (ep->sq_tail & 0xffff);
	c->wr[i].next = NULL;
	c->wr[i].sg_list = &c->sge[i];
	c->wr[i].num_sge = 1;
	c->wr[i].opcode = wr->opcode;
	c->wr[i].send_flags = wr->send_flags;
	c->wr[i].wr.rdma = wr->wr.rdma;
	if (ep->waiting++ > 0)
		c->wr[i - 1].next = &c->wr[i];
	else
		xpi_list_push(&ep->be->batched, &ep->batched);
	vrb_note(ep, wr, NULL);
	return XPORT_OK;
}

void vrb_batch_post_all(struct xpi_be *be)
{
	xpi_list_for_safe(l, &be->batched) {
		struct vrb_ep *ep = xpi_container(l, struct vrb_ep, batched);
		int rc = vrb_batch_post(ep, NULL);

		if (vrb_likely(rc == 0) || vrb_post_again(ep, rc))
			continue;
		vrb_batch_forget(ep);
		vrb_broke(ep, rc < 0 ? -rc : rc, "cannot post requests");
	}
}
