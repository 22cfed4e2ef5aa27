/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The leases of an instance: their life, their events, and the loop that drives them.
 *
 * Locks: `lock` protects all of it, also while memory is registered and deregistered. A wait does not hold it.
 */
#include "services/grow.h"
#include "services/lease.h"

#include <stdlib.h>

#include "services/last_error.h"

static const uint64_t TAG = UINT64_C(0x78706f72746c7300);
enum { MADE_MAX = 64, PATIENCE_MS = 1000 };

/* ---- peers ---- */

static void peer_free_unused(struct svc_lease_peer *p)
{
	if (p->msgq == NULL && p->list == NULL && p->made == 0)
		free(p);
}

static int lease_peer_of(struct xport_leases *l, struct svc_msgq_peer *msgq)
{
	struct svc_lease_peer *p;

	if (msgq->user != NULL)
		return XPORT_OK;
	p = calloc(1, sizeof(*p));
	if (p == NULL)
		return XPORT_ERR_NO_MEMORY;
	p->leases = l;
	p->msgq = msgq;
	msgq->user = p;
	return XPORT_OK;
}

int svc_lease_peer(struct xport_leases *l, xport_ep *ep, const char *operation, struct svc_lease_peer **peer)
{
	struct svc_msgq_peer *p;
	int r = svc_engine_peer(&l->engine, ep, operation, &p);

	if (r != XPORT_OK)
		return r;
	if (lease_peer_of(l, p) != XPORT_OK)
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	*peer = p->user;
	return XPORT_OK;
}

/* ---- leases ---- */

static uint64_t *count_of(struct xport_lease *lease)
{
	return lease->lender ? &lease->leases->info.lent : &lease->leases->info.borrowed;
}

struct xport_lease *svc_lease_new(struct xport_leases *l, struct svc_lease_peer *p, bool lender)
{
	struct xport_lease *lease = calloc(1, sizeof(*lease));

	if (lease == NULL)
		return NULL;
	lease->id = svc_engine_id(&l->engine);
	lease->last = svc_msgq_reserve(SVC_LEASE_HEAD);
	if (lease->last == NULL || !svc_lease_table_add(&l->numbers, lease)) {
		free(lease->last);
		free(lease);
		return NULL;
	}
	lease->leases = l;
	lease->peer = p;
	lease->lender = lender;
	lease->ep = p->msgq->ep;
	lease->next = p->list;
	lease->at = &p->list;
	if (lease->next != NULL)
		lease->next->at = &lease->next;
	p->list = lease;
	lease->all_next = l->all;
	lease->all_at = &l->all;
	if (lease->all_next != NULL)
		lease->all_next->all_at = &lease->all_next;
	l->all = lease;
	++*count_of(lease);
	return lease;
}

static void out_of_peer(struct xport_lease *lease)
{
	struct svc_lease_peer *p = lease->peer;

	*lease->at = lease->next;
	if (lease->next != NULL)
		lease->next->at = lease->at;
	svc_lease_table_remove(&lease->leases->numbers, lease);
	lease->peer = NULL;
	--*count_of(lease);
	peer_free_unused(p);
}

static void lease_free(struct xport_lease *lease)
{
	svc_lender_free_handed(lease);
	*lease->all_at = lease->all_next;
	if (lease->all_next != NULL)
		lease->all_next->all_at = lease->all_at;
	if (lease->maker != NULL) {
		lease->maker->made--;
		peer_free_unused(lease->maker);
	}
	xport_rkey_destroy(lease->rkey);
	free(lease->last);
	free(lease);
}

void svc_lease_undo(struct xport_lease *lease)
{
	out_of_peer(lease);
	lease_free(lease);
}

void svc_lease_start(struct xport_lease *lease, int type)
{
	if (lease->state != XPORT_LEASE_ASKING)
		return; /* the endpoint ended while the answer was sent */
	lease->state = XPORT_LEASE_HELD;
	lease->started_as = type;
	svc_lease_event(lease, SVC_LEASE_STARTED);
}

void svc_lease_over(struct xport_lease *lease, int status)
{
	lease->state = XPORT_LEASE_OVER;
	lease->status = status;
	out_of_peer(lease);
	svc_lease_event(lease, SVC_LEASE_ENDED);
}

struct xport_lease *svc_lease_find(const struct svc_lease_peer *p, uint64_t id)
{
	struct xport_lease *lease = svc_lease_table_find(&p->leases->numbers, id);

	return lease != NULL && lease->peer == p ? lease : NULL;
}

static size_t encode(const struct xport_lease *lease, int type, const uint8_t *key, size_t key_len, uint8_t *bytes)
{
	struct svc_lease_message m = {.type = type,
	                              .to = lease->remote,
	                              .from = lease->id,
	                              .rights = lease->rights,
	                              .length = lease->length,
	                              .key = key,
	                              .key_len = key_len};

	return svc_lease_encode(&m, bytes);
}

int svc_lease_request(struct xport_lease *lease, int type, const uint8_t *key, size_t key_len)
{
	uint8_t bytes[SVC_LEASE_MAX];

	return svc_msgq_request(lease->peer->msgq, bytes, encode(lease, type, key, key_len, bytes));
}

int svc_lease_reply(struct svc_msgq_peer *to, const struct svc_lease_message *m)
{
	uint8_t bytes[SVC_LEASE_MAX];

	return svc_msgq_reply(to, bytes, svc_lease_encode(m, bytes));
}

void svc_lease_last(struct xport_lease *lease, int type)
{
	struct svc_msg *msg = lease->last;
	uint8_t bytes[SVC_LEASE_MAX];

	lease->last = NULL;
	svc_msgq_request_in(lease->peer->msgq, msg, bytes, encode(lease, type, NULL, 0, bytes));
}

/* ---- what peers send ---- */

static void end_lease(struct xport_lease *lease, int status)
{
	if (lease->lender)
		svc_lender_end(lease, status);
	else
		svc_lease_over(lease, status);
}

/* A lease whose memory is BUSY stays in the list. */
static void end_all(struct svc_lease_peer *p, int status)
{
	struct xport_lease *next;

	p->asked_back = 0; /* the request to it is dropped with the rest */
	p->made++;         /* keeps it */
	for (struct xport_lease *lease = p->list; lease != NULL; lease = next) {
		next = lease->next;
		end_lease(lease, status);
	}
	p->made--;
}

static void leases_ended(void *service, struct svc_msgq_peer *from, int status)
{
	struct svc_lease_peer *p = from->user;

	(void)service;
	if (p == NULL)
		return;
	if (from->ended == XPORT_OK) { /* the peer's service is another one from now on */
		end_all(p, status);
		return;
	}
	from->user = NULL;
	end_all(p, status);
	p->msgq = NULL;
	peer_free_unused(p);
}

static void leases_closing(void *service, struct svc_msgq_peer *p)
{
	(void)service;
	if (p->user != NULL)
		end_all(p->user, XPORT_ERR_CLOSED);
}

static int leases_message(void *service, struct svc_msgq_peer *from, const uint8_t *bytes, size_t len)
{
	struct xport_leases *l = service;
	struct svc_lease_message m;
	struct svc_received in;

	if (!svc_lease_decode(bytes, len, &m))
		return XPORT_ERR_PROTOCOL;
	if (lease_peer_of(l, from) != XPORT_OK)
		return XPORT_ERR_NO_MEMORY;
	in = svc_engine_receive(&l->engine, from, m.type, m.to);
	switch (m.type) {
	case SVC_LEASE_BYE:
		return XPORT_OK;
	case SVC_LEASE_GRANT:
	case SVC_LEASE_GIVE:
	case SVC_LEASE_RETURNED:
	case SVC_LEASE_REVOKE:
	case SVC_LEASE_HANDED:
		return svc_borrower_message(l, from, &m);
	default:
		return svc_lender_message(l, from, &m, in.answered);
	}
}

static size_t leases_bye(uint8_t *bytes)
{
	struct svc_lease_message m = {.type = SVC_LEASE_BYE};

	return svc_lease_encode(&m, bytes);
}

static void leases_work(void *service)
{
	svc_lender_look(service);
}

static int leases_work_timeout(void *service)
{
	return svc_lender_timeout(service);
}

static const uint8_t lease_kinds[] = {
	[SVC_LEASE_ASK] = SVC_REQUEST,    [SVC_LEASE_GRANT] = SVC_REPLY,    [SVC_LEASE_GIVE] = SVC_REQUEST,
	[SVC_LEASE_TAKEN] = SVC_REPLY,    [SVC_LEASE_RETURN] = SVC_REQUEST, [SVC_LEASE_RETURNED] = SVC_REPLY,
	[SVC_LEASE_REVOKE] = SVC_REQUEST, [SVC_LEASE_REVOKED] = SVC_REPLY,  [SVC_LEASE_BYE] = SVC_BYE,
	[SVC_LEASE_HAND] = SVC_REQUEST,   [SVC_LEASE_HANDED] = SVC_REPLY};
static const struct svc_engine_ops lease_ops = {.kinds = lease_kinds,
                                                .message = leases_message,
                                                .bye = leases_bye,
                                                .ended = leases_ended,
                                                .closing = leases_closing,
                                                .work = leases_work,
                                                .work_timeout = leases_work_timeout};

/* ---- the loop ---- */

int xport_leases_step(xport_leases *l, const struct xport_completion *c)
{
	if (l == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_leases_step", NULL, "leases is NULL");
	return svc_engine_step(&l->engine, c);
}

int xport_leases_timeout(xport_leases *l)
{
	return svc_engine_timeout(&l->engine);
}

struct next_lease_event {
	struct xport_leases *leases;
	struct xport_lease_event *event;
};

static int next_lease_event(void *arg)
{
	struct next_lease_event *next = arg;

	return xport_leases_next(next->leases, next->event);
}

int xport_leases_wait(xport_leases *l, struct xport_lease_event *event, xport_completion_fn other, void *arg,
                      int timeout_ms)
{
	struct next_lease_event next = {l, event};

	if (l == NULL)
		return xport_leases_next(l, event); /* which describes it */
	return svc_engine_wait(&l->engine, next_lease_event, &next, other, arg, timeout_ms, "xport_leases_wait");
}

struct lease_outcome {
	struct xport_lease *lease;
	int status;
};

/* Returns 0 while the peer has not answered. The events of a lease that is waited for are dropped. */
static int lease_settled(void *arg)
{
	struct lease_outcome *o = arg;
	struct xport_lease *lease = o->lease;
	struct xport_leases *l = lease->leases;
	bool settled;

	pthread_mutex_lock(&l->engine.lock);
	settled = lease->state == XPORT_LEASE_HELD || lease->state == XPORT_LEASE_OVER;
	if (settled) {
		o->status = lease->state == XPORT_LEASE_HELD ? lease->kept : lease->unwanted ? XPORT_OK : lease->status;
		lease->kept = XPORT_OK;
		svc_lease_drop_events(lease);
	}
	pthread_mutex_unlock(&l->engine.lock);
	return settled;
}

int xport_lease_wait(xport_lease *lease, xport_completion_fn other, void *arg, int timeout_ms)
{
	struct lease_outcome o = {.lease = lease};
	int r;

	if (lease == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_lease_wait", NULL, "lease is NULL");
	r = svc_engine_wait(&lease->leases->engine, lease_settled, &o, other, arg, timeout_ms, "xport_lease_wait");
	if (r != XPORT_OK || o.status == XPORT_OK)
		return r;
	return svc_fail(o.status, "xport_lease_wait", NULL, "the peer refused, or the connection ended: %s",
	                xport_strerror(o.status));
}

/* ---- public ---- */

int xport_lease_free(xport_lease *lease)
{
	struct xport_leases *l;

	if (lease == NULL)
		return XPORT_OK;
	l = lease->leases;
	pthread_mutex_lock(&l->engine.lock);
	if (lease->state != XPORT_LEASE_OVER) {
		pthread_mutex_unlock(&l->engine.lock);
		return svc_fail(XPORT_ERR_BUSY, "xport_lease_free",
		                "call xport_lease_return or xport_lease_revoke, and wait for XPORT_LEASE_ENDED",
		                "the lease has not ended");
	}
	svc_lease_drop_events(lease);
	lease_free(lease);
	pthread_mutex_unlock(&l->engine.lock);
	return XPORT_OK;
}

int xport_lease_query(const xport_lease *lease, struct xport_lease_info *info)
{
	struct xport_lease_info i = {.size = sizeof(i)};

	if (lease == NULL || info == NULL || !svc_grow_size(info->size, SVC_FIRST_LEASE_INFO))
		return svc_fail(XPORT_ERR_INVALID, "xport_lease_query", NULL,
		                "an argument is NULL, or xport_lease_info.size is not the size of the struct");
	pthread_mutex_lock(&lease->leases->engine.lock);
	i.state = lease->state;
	i.status = lease->status;
	i.lender = lease->lender;
	i.rights = lease->rights;
	i.length = lease->length;
	i.ep = lease->state == XPORT_LEASE_OVER ? NULL : lease->ep;
	i.rkey = lease->rkey;
	i.base = lease->base;
	i.context = lease->context;
	pthread_mutex_unlock(&lease->leases->engine.lock);
	svc_grow_out(info, &i, sizeof(i));
	return XPORT_OK;
}

void xport_lease_set_context(xport_lease *lease, void *context)
{
	pthread_mutex_lock(&lease->leases->engine.lock);
	lease->context = context;
	pthread_mutex_unlock(&lease->leases->engine.lock);
}

int xport_leases_query(xport_leases *l, struct xport_leases_info *info)
{
	struct xport_leases_info i;

	if (l == NULL || info == NULL || !svc_grow_size(info->size, SVC_FIRST_LEASES_INFO))
		return svc_fail(XPORT_ERR_INVALID, "xport_leases_query", NULL,
		                "an argument is NULL, or xport_leases_info.size is not the size of the struct");
	pthread_mutex_lock(&l->engine.lock);
	i = l->info;
	i.muted = l->engine.msgq.muted;
	pthread_mutex_unlock(&l->engine.lock);
	svc_grow_out(info, &i, sizeof(i));
	return XPORT_OK;
}

void xport_leases_forget(xport_leases *l, xport_ep *ep)
{
	if (l == NULL || ep == NULL)
		return;
	svc_engine_forget(&l->engine, ep);
}

static const char *attr_wrong(const struct xport_leases_attr *a)
{
	if ((a->flags & ~(uint32_t)(XPORT_LEASES_TAKE | XPORT_LEASES_HAND_OVER)) != 0)
		return "xport_leases_attr.flags has unknown bits";
	if (a->patience_ms < -1)
		return "xport_leases_attr.patience_ms is below -1";
	return NULL;
}

int xport_leases_create(xport *x, const struct xport_leases_attr *attr, xport_leases **leases)
{
	struct xport_leases_attr own;
	const struct xport_leases_attr *a = &own;
	struct xport_leases *l;
	int r = svc_grow_in(&own, sizeof(own), SVC_FIRST_LEASES_ATTR, attr, "xport_leases_create", "xport_leases_attr");

	if (r != XPORT_OK)
		return r;
	if (x == NULL || leases == NULL || attr_wrong(a) != NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_leases_create", NULL, "%s",
		                x == NULL || leases == NULL ? "an argument is NULL" : attr_wrong(a));
	l = calloc(1, sizeof(*l));
	if (l == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_leases_create", NULL, "out of memory");
	l->a = *a;
	l->a.tag = a->tag == 0 ? TAG : a->tag;
	l->a.max_leases = a->max_leases == 0 ? MADE_MAX : a->max_leases;
	l->a.patience_ms = a->patience_ms == 0 ? PATIENCE_MS : a->patience_ms;
	l->last_event = &l->first_event;
	r = svc_engine_open(&l->engine, x, l->a.tag, SVC_LEASE_MAX, &lease_ops, l, "xport_leases_create");
	if (r != XPORT_OK) {
		free(l);
		return r;
	}
	*leases = l;
	return XPORT_OK;
}

int xport_leases_destroy(xport_leases *l, xport_completion_fn other, void *arg, int timeout_ms)
{
	int r;

	if (l == NULL)
		return XPORT_OK;
	r = svc_engine_shut(&l->engine, other, arg, timeout_ms, "xport_leases_destroy");
	if (r != XPORT_OK)
		return r;
	if (l->ending > 0) {
		svc_lender_look(l);
		if (l->ending > 0)
			return svc_fail(XPORT_ERR_BUSY, "xport_leases_destroy", "cancel the receive, then call again",
			                "a posted receive uses the lent memory");
	}
	while (l->all != NULL) {
		svc_lease_drop_events(l->all);
		lease_free(l->all);
	}
	svc_engine_close(&l->engine);
	svc_lease_table_free(&l->numbers);
	free(l);
	return XPORT_OK;
}
