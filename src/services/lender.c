/* SPDX-License-Identifier: BSD-3-Clause */
/* The lender's side: lends memory within the quota, and deregisters it before it reports the end of the lease. */
#include <string.h>

#include "services/last_error.h"
#include "services/lease.h"
#include "services/wire.h"

/* ---- memory ---- */

static void lender_give_back(struct xport_lease *lease)
{
	struct xport_leases *l = lease->leases;

	if (lease->block != NULL)
		(void)xport_pool_free(l->a.pool, lease->block);
	if (lease->asked) {
		l->info.lent_bytes -= lease->length;
		lease->peer->bytes -= lease->length;
	}
	lease->block = NULL;
	lease->base = NULL;
}

static int memory_of_pool(struct xport_lease *lease)
{
	struct xport_leases *l = lease->leases;
	struct xport_block b;
	int r = xport_pool_alloc(l->a.pool, lease->length, 4096, &b);

	if (r != XPORT_OK)
		return r;
	memset(b.address, 0, lease->length); /* what was there before is none of the borrower's business */
	r = xport_mr_reg(l->engine.x, b.address, lease->length, lease->rights, &lease->mr);
	if (r != XPORT_OK) {
		(void)xport_pool_free(l->a.pool, b.address);
		return r;
	}
	lease->block = lease->base = b.address;
	return XPORT_OK;
}

static int memory(struct xport_lease *lease)
{
	struct xport_mr_info info = {.size = sizeof(info)};
	struct xport_leases *l = lease->leases;
	int r;

	if (l->a.pool != NULL) {
		r = memory_of_pool(lease);
	} else {
		r = xport_mr_alloc(l->engine.x, lease->length, lease->rights, &lease->mr);
		if (r == XPORT_OK && (r = xport_mr_query(lease->mr, &info)) == XPORT_OK)
			lease->base = info.base;
	}
	if (r == XPORT_OK) {
		lease->asked = true;
		l->info.lent_bytes += lease->length;
		lease->peer->bytes += lease->length;
	}
	return r;
}

/* ---- the end ---- */

static void begin_ending(struct xport_lease *lease)
{
	lease->leases->ending += lease->state != XPORT_LEASE_ENDING;
	lease->state = XPORT_LEASE_ENDING;
}

void svc_lender_end(struct xport_lease *lease, int status)
{
	if (lease->mr != NULL && xport_mr_dereg(lease->mr) == XPORT_ERR_BUSY) {
		begin_ending(lease);
		lease->told = true;
		lease->why = status;
		return;
	}
	lease->mr = NULL;
	lender_give_back(lease);
	lease->leases->ending -= lease->state == XPORT_LEASE_ENDING;
	svc_lease_over(lease, status);
}

void svc_lender_look(struct xport_leases *l)
{
	int64_t now = svc_now_ms();
	struct xport_lease *next;

	if (l->ending == 0)
		return;
	for (struct xport_lease *lease = l->all; lease != NULL; lease = next) {
		next = lease->all_next;
		if (!lease->lender || lease->state != XPORT_LEASE_ENDING)
			continue;
		if (lease->told)
			svc_lender_end(lease, lease->why);
		else if (now >= lease->until)
			svc_lender_end(lease, XPORT_ERR_STALE_KEY);
	}
}

int svc_lender_timeout(const struct xport_leases *l)
{
	int64_t now = svc_now_ms(), least = INT32_MAX, left;

	if (l->ending == 0)
		return -1;
	for (const struct xport_lease *lease = l->all; lease != NULL; lease = lease->all_next) {
		if (!lease->lender || lease->state != XPORT_LEASE_ENDING)
			continue;
		left = lease->told ? 10 : lease->until - now;
		if (left < least)
			least = left < 0 ? 0 : left;
	}
	return (int)least;
}

/* ---- messages ---- */

/* XPORT_OK: the peer may have it. */
static int lender_judge(const struct xport_leases *l, const struct svc_lease_peer *p, xport_ep *ep,
                        const struct svc_lease_message *m)
{
	uint64_t most = l->a.peer_quota == 0 ? l->a.quota : l->a.peer_quota;

	if (l->a.quota == 0)
		return XPORT_ERR_NOT_SUPPORTED;
	/* Patience ends a lease, but not the message that tells of it: else one that never answers makes us keep more and more. */
	if (p->made >= l->a.max_leases || p->asked_back >= l->a.max_leases)
		return XPORT_ERR_BUSY;
	if (m->length > most || p->bytes > most - m->length || m->length > l->a.quota ||
	    l->info.lent_bytes > l->a.quota - m->length)
		return XPORT_ERR_NO_MEMORY;
	return l->a.allow == NULL ? XPORT_OK : l->a.allow(l->a.arg, ep, m->length, m->rights);
}

static int grant(struct xport_lease *lease, uint64_t to)
{
	uint8_t key[SVC_LEASE_KEY_MAX];
	struct svc_lease_message g = {.type = SVC_LEASE_GRANT,
	                              .to = to,
	                              .from = lease->id,
	                              .rights = lease->rights,
	                              .length = lease->length,
	                              .key = key,
	                              .key_len = sizeof(key)};
	int r = xport_rkey_pack(lease->mr, key, &g.key_len);

	return r != XPORT_OK ? r : svc_lease_reply(lease->peer->msgq, &g);
}

static int lender_refuse(struct xport_leases *l, struct svc_msgq_peer *from, uint64_t to, int status)
{
	struct svc_lease_message g = {.type = SVC_LEASE_GRANT, .to = to, .status = status};

	l->info.refused++;
	return svc_lease_reply(from, &g);
}

static int asked(struct xport_leases *l, struct svc_msgq_peer *from, const struct svc_lease_message *m)
{
	struct svc_lease_peer *p = from->user;
	struct xport_lease *lease;
	int r;

	if (m->length == 0 || m->rights == 0)
		return XPORT_ERR_PROTOCOL;
	r = lender_judge(l, p, from->ep, m);
	if (r != XPORT_OK)
		return lender_refuse(l, from, m->from, r < 0 && r >= XPORT_ERR_BUSY ? r : XPORT_ERR_ACCESS);
	lease = svc_lease_new(l, p, true);
	if (lease == NULL)
		return lender_refuse(l, from, m->from, XPORT_ERR_NO_MEMORY);
	lease->maker = p;
	p->made++;
	lease->remote = m->from;
	lease->length = m->length;
	lease->rights = m->rights;
	r = memory(lease);
	if (r == XPORT_OK)
		r = grant(lease, m->from);
	if (r == XPORT_OK) {
		svc_lease_start(lease, XPORT_LEASE_LENT);
		return XPORT_OK;
	}
	if (lease->mr != NULL)
		(void)xport_mr_dereg(lease->mr);
	lender_give_back(lease);
	svc_lease_undo(lease);
	return from->ended == XPORT_OK ? lender_refuse(l, from, m->from, r) : XPORT_OK;
}

static int lender_taken(struct svc_msgq_peer *from, const struct svc_lease_message *m)
{
	struct xport_lease *lease = svc_lease_find(from->user, m->to);

	if (lease == NULL || !lease->lender || lease->state != XPORT_LEASE_ASKING)
		return XPORT_OK; /* revoked meanwhile */
	lease->remote = m->from;
	if (m->status == XPORT_OK)
		svc_lease_start(lease, XPORT_LEASE_TAKEN);
	else
		svc_lender_end(lease, m->status);
	return XPORT_OK;
}

/* The answer leaves when the memory is out of reach. */
static int lender_returned(struct svc_msgq_peer *from, const struct svc_lease_message *m)
{
	struct svc_lease_message g = {.type = SVC_LEASE_RETURNED, .to = m->from, .status = XPORT_ERR_STALE_KEY};
	struct xport_lease *lease = svc_lease_find(from->user, m->to);

	if (lease != NULL && lease->lender) {
		svc_lender_end(lease, XPORT_OK);
		g.status = XPORT_OK;
	}
	return svc_lease_reply(from, &g);
}

static int lender_revoked(struct svc_msgq_peer *from, const struct svc_lease_message *m, bool answered)
{
	struct svc_lease_peer *p = from->user;
	struct xport_lease *lease = svc_lease_find(p, m->to);

	if (answered && p->asked_back > 0)
		p->asked_back--;
	if (lease != NULL && lease->lender && lease->state == XPORT_LEASE_ENDING && !lease->told)
		svc_lender_end(lease, XPORT_ERR_STALE_KEY);
	return XPORT_OK;
}

int svc_lender_message(struct xport_leases *l, struct svc_msgq_peer *from, const struct svc_lease_message *m,
                       bool answered)
{
	switch (m->type) {
	case SVC_LEASE_ASK:
		return asked(l, from, m);
	case SVC_LEASE_TAKEN:
		return lender_taken(from, m);
	case SVC_LEASE_RETURN:
		return lender_returned(from, m);
	case SVC_LEASE_HAND:
		return svc_lender_hand(l, from, m);
	default:
		return lender_revoked(from, m, answered);
	}
}

/* ---- public ---- */

static int lender_give(struct xport_leases *l, struct svc_lease_peer *p, xport_mr *mr, void *context,
                       struct xport_lease **lease)
{
	struct xport_mr_info info = {.size = sizeof(info)};
	uint8_t key[SVC_LEASE_KEY_MAX];
	size_t len = sizeof(key);
	struct xport_lease *n;
	int r = xport_mr_query(mr, &info);

	if (r == XPORT_OK)
		r = xport_rkey_pack(mr, key, &len);
	if (r != XPORT_OK)
		return svc_pass(l->engine.x, r, "xport_lease_give");
	if ((info.rights & SVC_RIGHTS) == 0)
		return svc_fail(XPORT_ERR_INVALID, "xport_lease_give", "register it with rights from enum xport_rights",
		                "the region was registered without rights for peers");
	n = svc_lease_new(l, p, true);
	if (n == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_lease_give", NULL, "out of memory");
	n->length = info.length;
	n->rights = info.rights & SVC_RIGHTS;
	n->context = context;
	n->mr = mr; /* before it is sent: an endpoint that ends by that ends the lease */
	n->base = info.base;
	r = svc_lease_request(n, SVC_LEASE_GIVE, key, len);
	if (r != XPORT_OK) {
		svc_lease_undo(n);
		return svc_fail(r, "xport_lease_give", NULL, "cannot notify the peer: %s", xport_strerror(r));
	}
	*lease = n;
	return XPORT_OK;
}

int xport_lease_give(xport_leases *l, xport_ep *ep, xport_mr *mr, void *context, xport_lease **lease)
{
	struct svc_lease_peer *p;
	int r;

	if (l == NULL || ep == NULL || mr == NULL || lease == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_lease_give", NULL, "an argument is NULL");
	pthread_mutex_lock(&l->engine.lock);
	r = svc_lease_peer(l, ep, "xport_lease_give", &p);
	if (r == XPORT_OK)
		r = lender_give(l, p, mr, context, lease);
	pthread_mutex_unlock(&l->engine.lock);
	return r;
}

static int ask_back(struct xport_lease *lease)
{
	int patience = lease->leases->a.patience_ms;

	if (!lease->lender)
		return svc_fail(XPORT_ERR_INVALID, "xport_lease_revoke", "xport_lease_return",
		                "this process is the borrower: it cannot revoke the lease");
	if (lease->state >= XPORT_LEASE_ENDING)
		return svc_fail(XPORT_ERR_CLOSED, "xport_lease_revoke", NULL, "the lease %s",
		                lease->state == XPORT_LEASE_OVER ? "has ended" : "is ending");
	begin_ending(lease);
	lease->unwanted = true;
	lease->until = svc_now_ms() + patience;
	if (lease->maker != NULL)
		lease->maker->asked_back++;
	svc_lease_last(lease, SVC_LEASE_REVOKE);
	if (patience < 0 && lease->state != XPORT_LEASE_OVER)
		svc_lender_end(lease, XPORT_ERR_STALE_KEY);
	return XPORT_OK;
}

int xport_lease_revoke(xport_lease *lease)
{
	int r;

	if (lease == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_lease_revoke", NULL, "lease is NULL");
	pthread_mutex_lock(&lease->leases->engine.lock);
	r = ask_back(lease);
	pthread_mutex_unlock(&lease->leases->engine.lock);
	return r;
}
