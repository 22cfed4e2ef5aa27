/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs_chain.c - one doorbell for many.
 *
 * To hand requests to a device costs more than a short put itself: a write that goes past the processor's caches, or, with a
 * device of the kernel, a system call.  So of the short puts between two polls the first one leaves at once, and the others
 * wait, linked to one another, until something else is sent to that peer, or until the next poll: then all leave by one call.
 * Who puts once and polls sees nothing of it.
 *
 * What waits is counted in sent[] as if it had left, in its order.
 */
#include <errno.h>
#include <string.h>

#include "verbs.h"

void vrb_chain_forget(struct vrb_ep *ep)
{
	ep->sq_tail -= ep->waiting;
	ep->waiting = 0;
	if (xpi_list_linked(&ep->chained))
		xpi_list_del(&ep->chained);
}

bool vrb_post_again(const struct vrb_ep *ep, int error)
{
	return (error == ENOMEM || error == -ENOMEM) && ep->sq_tail - ep->sq_head != ep->waiting;
}

int vrb_chain_leave(struct vrb_ep *ep, struct ibv_send_wr *last)
{
	struct vrb_chain *c = &ep->q->chain;
	struct ibv_send_wr *bad;
	int rc;

	c->wr[c->end - 1].next = last;
	rc = vrb_hand_over(ep, &c->wr[c->end - ep->waiting], &bad);
	/* siw may answer 0 and name one. */
	if (rc == 0 && bad != NULL)
		rc = ENOMEM;
	if (rc == 0 || bad == NULL || bad == last) {
		ep->waiting = 0;
		xpi_list_del(&ep->chained);
		return rc;
	}
	ep->waiting = c->end - (unsigned)(bad - c->wr);
	c->wr[c->end - 1].next = NULL;
	return rc;
}

int vrb_chain_add(struct vrb_ep *ep, const struct ibv_send_wr *wr)
{
	struct vrb_chain *c = &ep->q->chain;
	unsigned i;
	int rc;

	if (ep->waiting == 0) {
		c->end = 0;
	} else if (c->end == VRB_CHAIN) {
		rc = vrb_chain_leave(ep, NULL);
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
		xpi_list_push(&ep->be->chained, &ep->chained);
	vrb_note(ep, wr, NULL);
	return XPORT_OK;
}

void vrb_chains_leave(struct xpi_be *be)
{
	xpi_list_for_safe(l, &be->chained) {
		struct vrb_ep *ep = xpi_container(l, struct vrb_ep, chained);
		int rc = vrb_chain_leave(ep, NULL);

		if (vrb_likely(rc == 0) || vrb_post_again(ep, rc))
			continue;
		vrb_chain_forget(ep);
		vrb_broke(ep, rc < 0 ? -rc : rc, "posting requests failed");
	}
}
