/* SPDX-License-Identifier: BSD-3-Clause */
/* The borrower's side. What a lender sends about its memory is compared with the key, which libxport verifies. */
#include "services/last_error.h"
#include "services/lease.h"
#include "services/wire.h"

static int borrower_unpack(struct xport_lease *lease, const struct svc_lease_message *m)
{
	struct xport_rkey_info info = {.size = sizeof(info)};
	int r = xport_rkey_unpack(lease->ep, m->key, m->key_len, &lease->rkey);

	if (r != XPORT_OK)
		return r;
	r = xport_rkey_query(lease->rkey, &info);
	if (r == XPORT_OK && (info.length != m->length || info.rights != m->rights))
		r = XPORT_ERR_BAD_KEY;
	if (r != XPORT_OK) {
		xport_rkey_destroy(lease->rkey);
		lease->rkey = NULL;
	}
	return r;
}

/* Memory that we do not want, or cannot use, goes back; RETURNED is then an answer that nobody waits for. */
static int decline(struct svc_msgq_peer *from, uint64_t lease)
{
	struct svc_lease_message g = {.type = SVC_LEASE_RETURN, .to = lease};

	return svc_lease_reply(from, &g);
}

static int granted(struct svc_msgq_peer *from, const struct svc_lease_message *m)
{
	struct xport_lease *lease = svc_lease_find(from->user, m->to);
	int r = m->status;

	if (lease == NULL || lease->lender || lease->state != XPORT_LEASE_ASKING)
		return m->status == XPORT_OK ? decline(from, m->from) : XPORT_OK;
	lease->remote = m->from;
	if (r == XPORT_OK && (m->length != lease->length || m->rights != lease->rights))
		r = XPORT_ERR_BAD_KEY;
	if (r == XPORT_OK)
		r = borrower_unpack(lease, m);
	if (r == XPORT_OK) {
		svc_lease_start(lease, XPORT_LEASE_GRANTED);
		return XPORT_OK;
	}
	svc_lease_over(lease, r);
	return m->status == XPORT_OK ? decline(from, m->from) : XPORT_OK;
}

static int borrower_take(struct xport_leases *l, struct svc_msgq_peer *from, const struct svc_lease_message *m,
                         uint64_t *id)
{
	struct svc_lease_peer *p = from->user;
	struct xport_lease *lease;
	int r;

	if ((l->a.flags & XPORT_LEASES_TAKE) == 0)
		return XPORT_ERR_NOT_SUPPORTED;
	if (p->made >= l->a.max_leases)
		return XPORT_ERR_BUSY;
	lease = svc_lease_new(l, p, false);
	if (lease == NULL)
		return XPORT_ERR_NO_MEMORY;
	lease->maker = p;
	p->made++;
	lease->remote = m->from;
	lease->length = m->length;
	lease->rights = m->rights;
	r = borrower_unpack(lease, m);
	if (r != XPORT_OK) {
		svc_lease_undo(lease);
		return r;
	}
	*id = lease->id;
	svc_lease_start(lease, XPORT_LEASE_GIVEN);
	return XPORT_OK;
}

static int given(struct xport_leases *l, struct svc_msgq_peer *from, const struct svc_lease_message *m)
{
	struct svc_lease_message g = {.type = SVC_LEASE_TAKEN, .to = m->from};

	g.status = borrower_take(l, from, m, &g.from);
	l->info.refused += g.status != XPORT_OK;
	return svc_lease_reply(from, &g);
}

static int borrower_returned(struct svc_msgq_peer *from, const struct svc_lease_message *m)
{
	struct xport_lease *lease = svc_lease_find(from->user, m->to);

	if (lease != NULL && !lease->lender && lease->state == XPORT_LEASE_ENDING && !lease->handing)
		svc_lease_over(lease, XPORT_OK);
	return XPORT_OK;
}

/* Whether it is a lease of the lender that has this number there. */
static bool is_of_lender(const struct xport_lease *lease, uint64_t remote)
{
	return !lease->lender && lease->remote == remote && lease->state != XPORT_LEASE_ASKING;
}

/* By our number. A lender that has not heard it yet gave us the lease, and names only its own. */
static struct xport_lease *of_lender(const struct svc_lease_peer *p, const struct svc_lease_message *m)
{
	struct xport_lease *lease = svc_lease_find(p, m->to);

	if (m->to != 0)
		return lease != NULL && is_of_lender(lease, m->from) ? lease : NULL;
	lease = (p->leases->a.flags & XPORT_LEASES_TAKE) == 0 ? NULL : p->list;
	while (lease != NULL && !is_of_lender(lease, m->from))
		lease = lease->next;
	return lease;
}

static int borrower_revoked(struct svc_msgq_peer *from, const struct svc_lease_message *m)
{
	struct svc_lease_message g = {.type = SVC_LEASE_REVOKED, .to = m->from};
	struct xport_lease *lease = of_lender(from->user, m);

	if (lease != NULL)
		svc_lease_over(lease,
		               lease->state == XPORT_LEASE_ENDING && !lease->handing ? XPORT_OK : XPORT_ERR_STALE_KEY);
	return svc_lease_reply(from, &g);
}

int svc_borrower_message(struct xport_leases *l, struct svc_msgq_peer *from, const struct svc_lease_message *m)
{
	switch (m->type) {
	case SVC_LEASE_GRANT:
		return granted(from, m);
	case SVC_LEASE_GIVE:
		return given(l, from, m);
	case SVC_LEASE_RETURNED:
		return borrower_returned(from, m);
	case SVC_LEASE_HANDED:
		return svc_borrower_handed(from, m);
	default:
		return borrower_revoked(from, m);
	}
}

/* ---- public ---- */

static int borrower_ask(struct xport_leases *l, struct svc_lease_peer *p, uint64_t length, uint32_t rights,
                        struct xport_lease **lease)
{
	struct xport_lease *n = svc_lease_new(l, p, false);
	int r;

	if (n == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_lease_ask", NULL, "out of memory");
	n->length = length;
	n->rights = rights;
	r = svc_lease_request(n, SVC_LEASE_ASK, NULL, 0);
	if (r != XPORT_OK) {
		svc_lease_undo(n);
		return svc_fail(r, "xport_lease_ask", NULL, "cannot send the request to the peer: %s",
		                xport_strerror(r));
	}
	*lease = n;
	return XPORT_OK;
}

int xport_lease_ask(xport_leases *l, xport_ep *ep, uint64_t length, uint32_t rights, void *context, xport_lease **lease)
{
	struct svc_lease_peer *p;
	int r;

	if (l == NULL || ep == NULL || lease == NULL || length == 0 || rights == 0 || rights > SVC_RIGHTS)
		return svc_fail(XPORT_ERR_INVALID, "xport_lease_ask", NULL, "%s",
		                length == 0                          ? "the length is 0"
		                : rights == 0 || rights > SVC_RIGHTS ? "the rights are 0 or have unknown bits"
		                                                     : "an argument is NULL");
	pthread_mutex_lock(&l->engine.lock);
	r = svc_lease_peer(l, ep, "xport_lease_ask", &p);
	if (r == XPORT_OK)
		r = borrower_ask(l, p, length, rights, lease);
	if (r == XPORT_OK)
		(*lease)->context = context;
	pthread_mutex_unlock(&l->engine.lock);
	return r;
}

static int go_back(struct xport_lease *lease)
{
	if (lease->lender || lease->state == XPORT_LEASE_ASKING)
		return svc_fail(XPORT_ERR_INVALID, "xport_lease_return",
		                lease->lender ? "call xport_lease_revoke" : "wait for XPORT_LEASE_GRANTED first",
		                lease->lender ? "this process is the lender: it cannot return the lease"
		                              : "the peer has not granted it yet");
	if (lease->state != XPORT_LEASE_HELD)
		return svc_fail(XPORT_ERR_CLOSED, "xport_lease_return", NULL, "the lease %s",
		                lease->state == XPORT_LEASE_OVER ? "has ended" : "is ending");
	lease->unwanted = true;
	lease->state = XPORT_LEASE_ENDING;
	svc_lease_last(lease, SVC_LEASE_RETURN);
	return XPORT_OK;
}

int xport_lease_return(xport_lease *lease)
{
	int r;

	if (lease == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_lease_return", NULL, "lease is NULL");
	pthread_mutex_lock(&lease->leases->engine.lock);
	r = go_back(lease);
	pthread_mutex_unlock(&lease->leases->engine.lock);
	return r;
}
