/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lease_hand.c - memory that the borrower has filled becomes the lender's.
 *
 *	borrower: HELD --HAND--> ENDING --HANDED--> OVER, or back to HELD if the lender refuses
 *	lender:   HELD --HAND--> OVER
 *
 * HAND follows all puts that the borrower posted before it on this endpoint (P4), so their bytes are there. The lender
 * answers when the memory is out of the borrower's reach. A revocation that is in progress wins.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "services/last_error.h"
#include "services/lease.h"

/* ---- the lender ---- */

/* Memory of xport_mr_alloc ends with its registration: its bytes are copied before that. */
static int copy_bytes(struct xport_lease *lease)
{
	struct xport_mr_info info = {.size = sizeof(info)};

	if (xport_mr_query(lease->mr, &info) != XPORT_OK || !info.allocated)
		return XPORT_OK;
	lease->copy = malloc(lease->length);
	if (lease->copy == NULL)
		return XPORT_ERR_NO_MEMORY;
	memcpy(lease->copy, info.base, lease->length);
	return XPORT_OK;
}

/* XPORT_OK: it is ours alone. Otherwise nothing has changed. */
static int take_over(struct xport_lease *lease)
{
	int r;

	if ((lease->leases->a.flags & XPORT_LEASES_HAND_OVER) == 0)
		return XPORT_ERR_NOT_SUPPORTED;
	r = copy_bytes(lease);
	if (r == XPORT_OK && xport_mr_dereg(lease->mr) == XPORT_ERR_BUSY)
		r = XPORT_ERR_BUSY;
	if (r != XPORT_OK) {
		free(lease->copy);
		lease->copy = NULL;
		return r;
	}
	lease->mr = NULL;
	if (lease->copy != NULL)
		lease->base = lease->copy;
	lease->handed = true;
	svc_lease_over(lease, XPORT_OK);
	return XPORT_OK;
}

int svc_lender_hand(struct xport_leases *l, struct svc_msgq_peer *from, const struct svc_lease_message *m)
{
	struct svc_lease_message g = {.type = SVC_LEASE_HANDED, .to = m->from, .status = XPORT_ERR_STALE_KEY};
	struct xport_lease *lease = svc_lease_find(from->user, m->to);

	if (lease != NULL && lease->lender && lease->state == XPORT_LEASE_HELD) {
		g.status = take_over(lease);
		l->info.refused += g.status != XPORT_OK;
	}
	return svc_lease_reply(from, &g);
}

void svc_lender_free_handed(struct xport_lease *lease)
{
	if (!lease->handed)
		return;
	if (lease->block != NULL)
		(void)xport_pool_free(lease->leases->a.pool, lease->block);
	free(lease->copy);
	if (lease->asked) {
		lease->leases->info.lent_bytes -= lease->length;
		lease->maker->bytes -= lease->length;
	}
}

/* ---- the borrower ---- */

int svc_borrower_handed(struct svc_msgq_peer *from, const struct svc_lease_message *m)
{
	struct xport_lease *lease = svc_lease_find(from->user, m->to);

	if (lease == NULL || lease->lender || !lease->handing)
		return XPORT_OK; /* revoked meanwhile */
	if (m->status == XPORT_OK) {
		svc_lease_over(lease, XPORT_OK);
		return XPORT_OK;
	}
	lease->handing = false;
	if (m->status == XPORT_ERR_STALE_KEY) { /* its revocation is on the way, or the lender lost the lease */
		svc_lease_over(lease, XPORT_ERR_STALE_KEY);
		return XPORT_OK;
	}
	lease->state = XPORT_LEASE_HELD;
	lease->kept = m->status;
	svc_lease_event(lease, SVC_LEASE_KEPT);
	return XPORT_OK;
}

static int hand_over(struct xport_lease *lease)
{
	struct xport_rkey_info info = {.size = sizeof(info)};
	int r;

	if (lease->lender || lease->state == XPORT_LEASE_ASKING)
		return svc_fail(XPORT_ERR_INVALID, "xport_lease_hand_over",
		                lease->lender ? "call xport_lease_revoke to end the lease"
		                              : "wait for XPORT_LEASE_GRANTED first",
		                lease->lender ? "this process is the lender: the memory is its own already"
		                              : "the peer has not granted it yet");
	if (lease->state != XPORT_LEASE_HELD)
		return svc_fail(XPORT_ERR_CLOSED, "xport_lease_hand_over", NULL, "the lease %s",
		                lease->state == XPORT_LEASE_OVER ? "has ended" : "is ending");
	r = xport_rkey_query(lease->rkey, &info);
	if (r != XPORT_OK)
		return svc_pass(lease->leases->engine.x, r, "xport_lease_hand_over");
	if (info.in_flight > 0)
		return svc_fail(XPORT_ERR_BUSY, "xport_lease_hand_over",
		                "wait for their completions, then call it again",
		                "%" PRIu64 " operations on the memory are in flight", info.in_flight);
	r = svc_lease_request(lease, SVC_LEASE_HAND, NULL, 0);
	if (r != XPORT_OK)
		return svc_fail(r, "xport_lease_hand_over", NULL, "cannot notify the lender: %s", xport_strerror(r));
	if (lease->state == XPORT_LEASE_HELD) { /* sending may have found that the endpoint has ended */
		lease->handing = true;
		lease->state = XPORT_LEASE_ENDING;
	}
	return XPORT_OK;
}

int xport_lease_hand_over(xport_lease *lease)
{
	int r;

	if (lease == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_lease_hand_over", NULL, "lease is NULL");
	pthread_mutex_lock(&lease->leases->engine.lock);
	r = hand_over(lease);
	pthread_mutex_unlock(&lease->leases->engine.lock);
	return r;
}
