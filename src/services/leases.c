/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The leases of an instance: their life, their events, and the loop that moves them.
 *
 * Locks: `lock` guards all of it, also while memory is registered and deregistered.  A wait does not hold it.
 */
#include "services/grow.h"
#include "services/lease.h"

#include <stdlib.h>
#include <time.h>

#include "services/fault.h"

static const uint64_t TAG = UINT64_C(0x78706f72746c7300);
enum { MADE_MAX = 64, PATIENCE_MS = 1000, SLICE_MS = 20 };

int64_t svc_lease_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- peers ---- */

static void peer_free_unused(struct svc_lease_peer *p)
{
	if (p->mail == NULL && p->list == NULL && p->made == 0)
		free(p);
}

static int peer_of_mail(struct svc_mail_peer *mail)
{
	struct svc_lease_peer *p;

	if (mail->ended != XPORT_OK)
		return mail->ended;
	if (mail->user != NULL)
		return XPORT_OK;
	p = calloc(1, sizeof(*p));
	if (p == NULL)
		return XPORT_ERR_NO_MEMORY;
	p->mail = mail;
	mail->user = p;
	return XPORT_OK;
}

int svc_lease_peer(struct xport_leases *l, xport_ep *ep, const char *operation, struct svc_lease_peer **peer)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	struct svc_mail_peer *mail;
	int r = xport_ep_query(ep, &info);

	if (l->destroying || r != XPORT_OK)
		return svc_fail(XPORT_ERR_INVALID, operation, NULL, "%s",
		                r == XPORT_OK ? "the leases are being destroyed" : "ep is no endpoint");
	if (info.state != XPORT_EP_OPEN) {
		r = info.reason != XPORT_OK ? info.reason : XPORT_ERR_CLOSED;
		return svc_fail(r, operation, NULL, "the endpoint is not open: %s", xport_strerror(r));
	}
	mail = svc_mail_peer(&l->mail, ep);
	r = mail == NULL ? XPORT_ERR_NO_MEMORY : peer_of_mail(mail);
	if (r != XPORT_OK)
		return svc_fail(r, operation, r == XPORT_ERR_PROTOCOL ? "connect to it anew" : NULL, "%s",
		                r == XPORT_ERR_PROTOCOL ? "the peer sent what it must not, and was muted"
		                                        : xport_strerror(r));
	*peer = mail->user;
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

	if (lease == NULL || (lease->last = svc_mail_reserve(SVC_LEASE_HEAD)) == NULL) {
		free(lease);
		return NULL;
	}
	lease->leases = l;
	lease->peer = p;
	lease->lender = lender;
	lease->id = ++l->next_id;
	lease->ep = p->mail->ep;
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
	lease->peer = NULL;
	--*count_of(lease);
	peer_free_unused(p);
}

static void lease_free(struct xport_lease *lease)
{
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
	struct xport_lease *lease = p->list;

	while (lease != NULL && lease->id != id)
		lease = lease->next;
	return lease;
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

	return svc_mail_request(lease->peer->mail, bytes, encode(lease, type, key, key_len, bytes));
}

void svc_lease_last(struct xport_lease *lease, int type)
{
	struct svc_letter *letter = lease->last;
	uint8_t bytes[SVC_LEASE_MAX];

	lease->last = NULL;
	svc_mail_request_in(lease->peer->mail, letter, bytes, encode(lease, type, NULL, 0, bytes));
}

/* ---- what comes by mail ---- */

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

	p->asked_back = 0; /* what it was told is dropped with the rest */
	p->made++;         /* keeps it */
	for (struct xport_lease *lease = p->list; lease != NULL; lease = next) {
		next = lease->next;
		end_lease(lease, status);
	}
	p->made--;
}

static void mail_ended(void *arg, struct svc_mail_peer *from, int status)
{
	struct svc_lease_peer *p = from->user;

	(void)arg;
	if (p == NULL)
		return;
	from->user = NULL;
	end_all(p, status);
	p->mail = NULL;
	peer_free_unused(p);
}

static void mail_anew(void *arg, struct svc_mail_peer *from)
{
	(void)arg;
	if (from->user != NULL)
		end_all(from->user, XPORT_ERR_PEER_CLOSED);
}

static int bye(struct svc_mail_peer *from)
{
	svc_mail_anew(from);
	end_all(from->user, XPORT_ERR_PEER_CLOSED);
	return XPORT_OK;
}

static int mail_message(void *arg, struct svc_mail_peer *from, const uint8_t *bytes, size_t len)
{
	struct xport_leases *l = arg;
	struct svc_lease_message m;

	if (!svc_lease_decode(bytes, len, &m))
		return XPORT_ERR_PROTOCOL;
	if (peer_of_mail(from) != XPORT_OK)
		return XPORT_ERR_NO_MEMORY;
	switch (m.type) {
	case SVC_LEASE_BYE:
		return bye(from);
	case SVC_LEASE_GRANT:
	case SVC_LEASE_GIVE:
	case SVC_LEASE_RETURNED:
	case SVC_LEASE_REVOKE:
		return svc_borrower_message(l, from, &m);
	default:
		return svc_lender_message(l, from, &m);
	}
}

static size_t encode_bye(uint8_t *bytes)
{
	struct svc_lease_message m = {.type = SVC_LEASE_BYE};

	return svc_lease_encode(&m, bytes);
}

static void mail_over(void *arg, struct svc_mail_peer *from)
{
	uint8_t bytes[SVC_LEASE_MAX];

	(void)arg;
	if (from->user != NULL)
		end_all(from->user, XPORT_ERR_NO_MEMORY);
	svc_mail_over(from, bytes, encode_bye(bytes));
}

static const struct svc_mail_fns fns = {
	.message = mail_message, .anew = mail_anew, .over = mail_over, .ended = mail_ended};

/* ---- the loop ---- */

int xport_leases_step(xport_leases *l, const struct xport_completion *c)
{
	bool own;

	if (l == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_leases_step", NULL, "leases is NULL");
	pthread_mutex_lock(&l->lock);
	own = svc_mail_step(&l->mail, c);
	svc_lender_look(l);
	pthread_mutex_unlock(&l->lock);
	return own;
}

int xport_leases_timeout(xport_leases *l)
{
	int ms;

	pthread_mutex_lock(&l->lock);
	ms = svc_lender_timeout(l);
	if (svc_mail_waits(&l->mail) && (ms < 0 || ms > 1))
		ms = 1;
	pthread_mutex_unlock(&l->lock);
	return ms;
}

/* One look, or a sleep no longer than `until`, or than another thread may take to do what is waited for. */
static int reap(struct xport_leases *l, int64_t until, xport_completion_fn other, void *arg)
{
	int64_t left = until < 0 ? SLICE_MS : until - svc_lease_now();
	struct xport_completion c;
	int ms = xport_leases_timeout(l), n;

	left = left > SLICE_MS ? SLICE_MS : left < 0 ? 0 : left;
	if (ms >= 0 && ms < left)
		left = ms;
	n = xport_wait(l->x, &c, 1, (int)left);
	if (n < 0)
		return n;
	if (xport_leases_step(l, n > 0 ? &c : NULL) == 0 && n > 0 && other != NULL)
		other(arg, &c);
	return XPORT_OK;
}

/* Asked behind a look, not before it: calls that may not wait go on, too, if they are repeated. */
static bool passed(int64_t until)
{
	return until >= 0 && svc_lease_now() >= until;
}

static int timed_out(const char *operation, int timeout_ms)
{
	return svc_fail(XPORT_ERR_TIMEOUT, operation, NULL, "%d ms passed", timeout_ms);
}

int xport_leases_wait(xport_leases *l, struct xport_lease_event *event, xport_completion_fn other, void *arg,
                      int timeout_ms)
{
	int64_t until = timeout_ms < 0 ? -1 : svc_lease_now() + timeout_ms;
	int r = xport_leases_next(l, event);

	for (bool late = false; r == 0; late = passed(until)) {
		if (late)
			return timed_out("xport_leases_wait", timeout_ms);
		r = reap(l, until, other, arg);
		if (r != XPORT_OK)
			return svc_pass(l->x, r, "xport_leases_wait");
		r = xport_leases_next(l, event);
	}
	return r < 0 ? r : XPORT_OK;
}

/* 1: something is under way; else how it ended, whose event nobody else is told of. */
static int outcome(struct xport_lease *lease)
{
	struct xport_leases *l = lease->leases;
	int r = 1;

	pthread_mutex_lock(&l->lock);
	if (lease->state == XPORT_LEASE_HELD || lease->state == XPORT_LEASE_OVER) {
		r = lease->state == XPORT_LEASE_HELD || lease->unwanted ? XPORT_OK : lease->status;
		svc_lease_drop_events(lease);
	}
	pthread_mutex_unlock(&l->lock);
	return r;
}

int xport_lease_wait(xport_lease *lease, xport_completion_fn other, void *arg, int timeout_ms)
{
	int64_t until = timeout_ms < 0 ? -1 : svc_lease_now() + timeout_ms;
	struct xport_leases *l;
	int r;

	if (lease == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_lease_wait", NULL, "lease is NULL");
	l = lease->leases;
	for (bool late = false; (r = outcome(lease)) == 1; late = passed(until)) {
		if (late)
			return timed_out("xport_lease_wait", timeout_ms);
		r = reap(l, until, other, arg);
		if (r != XPORT_OK)
			return svc_pass(l->x, r, "xport_lease_wait");
	}
	return r == XPORT_OK
	               ? r
	               : svc_fail(r, "xport_lease_wait", NULL, "the peer refused, or is gone: %s", xport_strerror(r));
}

/* ---- public ---- */

int xport_lease_free(xport_lease *lease)
{
	struct xport_leases *l;

	if (lease == NULL)
		return XPORT_OK;
	l = lease->leases;
	pthread_mutex_lock(&l->lock);
	if (lease->state != XPORT_LEASE_OVER) {
		pthread_mutex_unlock(&l->lock);
		return svc_fail(XPORT_ERR_BUSY, "xport_lease_free",
		                "xport_lease_return or xport_lease_revoke, and wait for XPORT_LEASE_ENDED",
		                "the lease has not ended");
	}
	svc_lease_drop_events(lease);
	lease_free(lease);
	pthread_mutex_unlock(&l->lock);
	return XPORT_OK;
}

int xport_lease_query(const xport_lease *lease, struct xport_lease_info *info)
{
	struct xport_lease_info i = {.size = sizeof(i)};

	if (lease == NULL || info == NULL || !svc_grow_size(info->size, SVC_FIRST_LEASE_INFO))
		return svc_fail(XPORT_ERR_INVALID, "xport_lease_query", NULL,
		                "an argument is NULL, or xport_lease_info.size is not that of the struct");
	pthread_mutex_lock(&lease->leases->lock);
	i.state = lease->state;
	i.status = lease->status;
	i.lender = lease->lender;
	i.rights = lease->rights;
	i.length = lease->length;
	i.ep = lease->state == XPORT_LEASE_OVER ? NULL : lease->ep;
	i.rkey = lease->rkey;
	i.base = lease->base;
	i.context = lease->context;
	pthread_mutex_unlock(&lease->leases->lock);
	svc_grow_out(info, &i, sizeof(i));
	return XPORT_OK;
}

void xport_lease_set_context(xport_lease *lease, void *context)
{
	pthread_mutex_lock(&lease->leases->lock);
	lease->context = context;
	pthread_mutex_unlock(&lease->leases->lock);
}

int xport_leases_query(xport_leases *l, struct xport_leases_info *info)
{
	struct xport_leases_info i;

	if (l == NULL || info == NULL || !svc_grow_size(info->size, SVC_FIRST_LEASES_INFO))
		return svc_fail(XPORT_ERR_INVALID, "xport_leases_query", NULL,
		                "an argument is NULL, or xport_leases_info.size is not that of the struct");
	pthread_mutex_lock(&l->lock);
	i = l->info;
	i.muted = l->mail.muted;
	pthread_mutex_unlock(&l->lock);
	svc_grow_out(info, &i, sizeof(i));
	return XPORT_OK;
}

void xport_leases_forget(xport_leases *l, xport_ep *ep)
{
	if (l == NULL || ep == NULL)
		return;
	pthread_mutex_lock(&l->lock);
	svc_mail_end(&l->mail, ep, XPORT_ERR_CLOSED);
	pthread_mutex_unlock(&l->lock);
}

static const char *attr_wrong(const struct xport_leases_attr *a)
{
	if ((a->flags & ~(uint32_t)XPORT_LEASES_TAKE) != 0)
		return "xport_leases_attr.flags has unknown bits";
	if (a->patience_ms < -1)
		return "xport_leases_attr.patience_ms is less than -1";
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
	l->x = x;
	l->a = *a;
	l->a.tag = a->tag == 0 ? TAG : a->tag;
	l->a.max_leases = a->max_leases == 0 ? MADE_MAX : a->max_leases;
	l->a.patience_ms = a->patience_ms == 0 ? PATIENCE_MS : a->patience_ms;
	l->last_event = &l->first_event;
	r = svc_mail_open(&l->mail, x, l->a.tag, SVC_LEASE_MAX, &fns, l, "xport_leases_create");
	if (r != XPORT_OK) {
		free(l);
		return r;
	}
	pthread_mutex_init(&l->lock, NULL);
	*leases = l;
	return XPORT_OK;
}

static void say_bye(void *arg, struct svc_mail_peer *p)
{
	uint8_t bytes[SVC_LEASE_MAX];
	size_t len = encode_bye(bytes);

	(void)arg;
	if (p->user == NULL)
		return;
	svc_mail_drop(p);
	end_all(p->user, XPORT_ERR_CLOSED);
	svc_mail_bye(p, bytes, len);
}

/* Of an endpoint that lives on; its leases are freed. */
static void peer_forget(void *arg, struct svc_mail_peer *p)
{
	(void)arg;
	free(p->user);
	p->user = NULL;
}

static void begin_destroy(struct xport_leases *l)
{
	pthread_mutex_lock(&l->lock);
	if (!l->destroying) {
		l->destroying = true;
		svc_mail_each(&l->mail, say_bye);
		svc_mail_stop(&l->mail);
	}
	pthread_mutex_unlock(&l->lock);
}

int xport_leases_destroy(xport_leases *l, xport_completion_fn other, void *arg, int timeout_ms)
{
	int64_t until = timeout_ms < 0 ? -1 : svc_lease_now() + timeout_ms;
	int r;

	if (l == NULL)
		return XPORT_OK;
	begin_destroy(l);
	for (bool late = false; !svc_mail_idle(&l->mail); late = passed(until)) {
		if (late)
			return timed_out("xport_leases_destroy", timeout_ms);
		r = reap(l, until, other, arg);
		if (r != XPORT_OK)
			return svc_pass(l->x, r, "xport_leases_destroy");
	}
	if (l->ending > 0) {
		svc_lender_look(l);
		if (l->ending > 0)
			return svc_fail(XPORT_ERR_BUSY, "xport_leases_destroy", "cancel it, then call again",
			                "a posted receive uses memory that is lent");
	}
	while (l->all != NULL) {
		svc_lease_drop_events(l->all);
		lease_free(l->all);
	}
	svc_mail_each(&l->mail, peer_forget);
	svc_mail_close(&l->mail);
	pthread_mutex_destroy(&l->lock);
	free(l);
	return XPORT_OK;
}
