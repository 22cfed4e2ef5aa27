/* SPDX-License-Identifier: BSD-3-Clause */
/* Attempts to connect, the waits between them, and the end of endpoints. */
#include "services/link.h"

#include <stdio.h>
#include <string.h>

#include "services/clock.h"
#include "services/last_error.h"

/* ---- errors ---- */

/* Whether an error does not pass by waiting. */
static bool is_permanent(int status)
{
	return status == XPORT_ERR_ADDRESS || status == XPORT_ERR_AUTH || status == XPORT_ERR_INCOMPATIBLE ||
	       status == XPORT_ERR_INVALID || status == XPORT_ERR_NOT_SUPPORTED;
}

static void address_failed(struct xport_link *link, int status, const char *why)
{
	struct svc_link_address *a = &link->addresses[link->at_address];

	a->status = status;
	snprintf(a->why, sizeof(a->why), "%s", why);
	link->status = status;
	snprintf(link->why, sizeof(link->why), "%s", why);
}

/* The errors of all addresses that have failed, one after the other. */
static void describe_round(struct xport_link *link)
{
	size_t n = 0;

	for (unsigned i = 0; i < link->naddresses && n < link->round_len; i++) {
		const struct svc_link_address *a = &link->addresses[i];

		if (a->status != XPORT_OK)
			n += (size_t)snprintf(link->round_text + n, link->round_len - n, "%s%s: %s: %s",
			                      n == 0 ? "" : "; ", a->name, xport_status_name(a->status), a->why);
	}
}

int svc_link_not_up(const struct xport_link *link, const char *operation)
{
	if (link->state == XPORT_LINK_ENDING || link->state == XPORT_LINK_OVER)
		return svc_fail(XPORT_ERR_CLOSED, operation, NULL, "the link was closed here");
	if (link->state == XPORT_LINK_STOPPED)
		return svc_fail(link->status, operation, "call xport_link_retry to begin again",
		                "the link has given up: %s", link->why);
	if (link->state == XPORT_LINK_OPEN)
		return svc_fail(link->renewed ? XPORT_ERR_PEER_LOST : XPORT_ERR_INVALID, operation,
		                "take it by xport_links_next first",
		                "the link is up again, and its event was not taken");
	if (link->status == XPORT_OK)
		return svc_fail(XPORT_ERR_INVALID, operation, "wait for XPORT_LINK_UP", "the link has not been up yet");
	return svc_fail(link->ups == 0 ? XPORT_ERR_INVALID : link->status, operation,
	                "wait for XPORT_LINK_UP, or mark the operation XPORT_LINK_REPEATABLE", "the link is not up: %s",
	                link->why);
}

/* ---- waits ---- */

/* A random number below `n`. */
static uint64_t random_below(uint64_t *random, uint64_t n)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return n == 0 ? 0 : (*random * UINT64_C(0x2545f4914f6cdd1d) >> 11) % n;
}

int svc_link_wait_ms(uint64_t *random, int first_ms, int max_ms, uint32_t failures)
{
	int64_t ms = first_ms;

	for (uint32_t i = 0; i < failures && ms < max_ms; i++)
		ms *= 2;
	if (ms > max_ms)
		ms = max_ms;
	return (int)(ms - (int64_t)random_below(random, (uint64_t)ms / 2 + 1));
}

static void wait_longer(struct xport_link *link, int64_t now)
{
	link->delay_ms = svc_link_wait_ms(&link->random, link->first_ms, link->max_ms, link->failures++);
	link->due = now + link->delay_ms;
	if (link->deadline >= 0 && link->due > link->deadline)
		link->due = link->deadline;
}

bool svc_link_stays(const struct xport_link *link, int64_t now)
{
	int ms = link->delay_ms > link->first_ms ? link->delay_ms : link->first_ms;

	return now - link->since >= ms;
}

/* ---- attempts ---- */

static void give_up(struct xport_link *link)
{
	link->state = XPORT_LINK_STOPPED;
	describe_round(link);
	svc_link_ops_end(link, link->status);
	svc_link_event(link, &link->given_up, XPORT_LINK_GIVEN_UP);
}

static bool limit_reached(const struct xport_link *link, int64_t now)
{
	return link->rounds > 0 && ((link->rounds_max != 0 && link->rounds >= link->rounds_max) ||
	                            (link->deadline >= 0 && now >= link->deadline));
}

static void round_over(struct xport_link *link, int64_t now)
{
	bool permanent = (link->flags & XPORT_LINK_ALL_ERRORS) == 0;

	for (unsigned i = 0; i < link->naddresses; i++)
		permanent = permanent && is_permanent(link->addresses[i].status);
	link->rounds++;
	link->tried = 0;
	link->state = XPORT_LINK_WAITING;
	if (permanent || limit_reached(link, now))
		give_up(link);
	else
		wait_longer(link, now);
}

/* The time limit of an attempt: it does not go beyond the limit of the link. */
static int attempt_ms(const struct xport_link *link, int64_t now)
{
	int64_t left = link->deadline - now;

	if (link->deadline < 0 || left >= link->conn.connect_ms)
		return link->conn.connect_ms;
	return left < 1 ? 1 : (int)left;
}

/* Tries the next address. Returns false if it failed at once. */
static bool try_address(struct xport_link *link, int64_t now)
{
	struct xport_conn_attr conn = link->conn;
	struct xport_error e = {.size = sizeof(e)};
	struct svc_link_ep *to = &link->eps[link->old == &link->eps[0]];
	int r;

	link->at_address = (link->first + link->tried) % link->naddresses;
	link->tried++;
	conn.connect_ms = attempt_ms(link, now);
	r = xport_connect(link->links->x, link->addresses[link->at_address].name, &conn, 0, &to->ep);
	if (r != XPORT_OK) {
		bool known = xport_last_error(link->links->x, &e) == XPORT_OK && e.status == r;

		to->ep = NULL;
		address_failed(link, r, known ? e.text : xport_strerror(r));
		return false;
	}
	to->ops = 0;
	to->taken = false;
	link->ep = to;
	svc_link_index(to);
	link->state = XPORT_LINK_CONNECTING;
	return true;
}

static void try_next(struct xport_link *link, int64_t now)
{
	while (link->tried < link->naddresses)
		if (try_address(link, now))
			return;
	round_over(link, now);
}

int64_t svc_link_move(struct xport_link *link, int64_t now)
{
	bool gone = svc_link_reap(link);

	if (link->state == XPORT_LINK_OPEN && link->kept != NULL) {
		svc_link_ops_post(link);
		return link->kept != NULL ? now + 1 : -1;
	}
	if (link->state != XPORT_LINK_WAITING || link->down)
		return -1;
	if (now < link->due && !limit_reached(link, now))
		return link->due;
	if (!gone)
		return now + 1;
	if (limit_reached(link, now))
		give_up(link);
	else
		try_next(link, now);
	return link->state == XPORT_LINK_WAITING ? link->due : -1;
}

/* A link that has given up begins again. */
static void begin_again(struct xport_link *link, int64_t now)
{
	link->again = false;
	link->state = XPORT_LINK_WAITING;
	link->rounds = 0;
	link->failures = 0;
	link->deadline = link->give_up_ms > 0 ? now + link->give_up_ms : -1;
	link->due = now;
	link->links->stirred = true;
}

void svc_link_given_up_taken(struct xport_link *link)
{
	if (link->state == XPORT_LINK_STOPPED && link->again)
		begin_again(link, svc_now_ms());
}

int svc_link_retry_now(struct xport_link *link)
{
	int64_t now = svc_now_ms();

	if (link->state == XPORT_LINK_ENDING || link->state == XPORT_LINK_OVER)
		return svc_link_not_up(link, "xport_link_retry");
	if (link->state != XPORT_LINK_STOPPED) {
		link->due = now;
		link->links->stirred = true;
	} else if (link->given_up.type != 0) {
		link->again = true; /* the event was not taken, and a second one has no node */
	} else {
		begin_again(link, now);
	}
	return XPORT_OK;
}

/* ---- up ---- */

static void link_up(struct xport_link *link, const struct xport_ep_info *info)
{
	link->renewed = link->incarnation != 0 && link->incarnation != info->peer_incarnation;
	link->state = XPORT_LINK_OPEN;
	link->announced = false;
	link->first = link->at_address;
	link->tried = 0;
	link->incarnation = info->peer_incarnation;
	link->ups++;
	link->since = svc_now_ms();
	snprintf(link->transport, sizeof(link->transport), "%s%s%s", info->backend,
	         info->provider[0] != '\0' ? ":" : "", info->provider);
	svc_link_keys_unpack(link);
	if (link->renewed)
		svc_link_ops_end(link, XPORT_ERR_STALE_KEY);
	svc_link_event(link, &link->up, link->renewed ? XPORT_LINK_PEER_NEW : XPORT_LINK_UP);
	svc_link_ops_post(link);
}

/* ---- the end of endpoints ---- */

bool svc_link_reap(struct xport_link *link)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	struct svc_link_ep *old = link->old;

	if (old == NULL)
		return true;
	if (!old->taken || old->ops > 0 || (xport_ep_query(old->ep, &info) == XPORT_OK && info.in_flight > 0))
		return false;
	svc_link_keys_forget(link);
	svc_link_unindex(old);
	xport_ep_destroy(old->ep);
	old->ep = NULL;
	link->old = NULL;
	return true;
}

/* Nobody has seen an endpoint that did not connect. */
static void ep_discard(struct xport_link *link)
{
	svc_link_unindex(link->ep);
	xport_ep_destroy(link->ep->ep);
	link->ep->ep = NULL;
	link->ep = NULL;
}

static void link_closed(struct xport_link *link, int status)
{
	link->state = XPORT_LINK_OVER;
	link->closed_status = status;
	if (link->ep != NULL)
		link->old = link->ep;
	link->ep = NULL;
	svc_link_event(link, &link->closed, XPORT_LINK_CLOSED);
}

/* `own`: the application has closed the endpoint, to have another one. That is no failure. */
static void link_down(struct xport_link *link, int status, const char *why, bool own)
{
	int64_t now = svc_now_ms();

	link->old = link->ep;
	link->ep = NULL;
	link->state = XPORT_LINK_WAITING;
	link->down = true;
	link->down_status = status;
	snprintf(link->down_why, sizeof(link->down_why), "%s", why);
	address_failed(link, status, why);
	link->lost = now;
	link->stayed = own || svc_link_stays(link, now);
	if (!link->stayed) {
		link->rounds++; /* it goes up and down */
		wait_longer(link, now);
	} else {
		link->rounds = 0;
		link->failures = 0;
		link->delay_ms = 0;
		link->due = now + (int64_t)random_below(&link->random, (uint64_t)link->first_ms);
	}
	svc_link_event(link, &link->ended, XPORT_LINK_DOWN);
}

void svc_link_down_taken(struct xport_link *link)
{
	int64_t now = svc_now_ms();

	if (link->down && link->give_up_ms > 0) /* the time until the application took the event does not count */
		link->deadline = link->stayed ? now + link->give_up_ms : link->deadline + (now - link->lost);
	link->down = false;
	link->links->stirred = true;
}

void svc_link_ep_event(struct svc_link_ep *e, const struct xport_completion *c)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	struct xport_link *link = e->link;
	int status = c->status == XPORT_OK ? XPORT_ERR_CLOSED : c->status;

	link->links->stirred = true;
	if (e != link->ep || xport_ep_query(e->ep, &info) != XPORT_OK)
		return;
	if (c->type == XPORT_EVENT_CONNECTED) {
		if (link->state == XPORT_LINK_CONNECTING)
			link_up(link, &info);
	} else if (link->state == XPORT_LINK_ENDING) {
		link_closed(link, c->status);
	} else if (link->state == XPORT_LINK_OPEN) {
		link_down(link, status, info.why, info.reason == XPORT_ERR_CLOSED);
	} else {
		address_failed(link, status, info.why);
		ep_discard(link);
		try_next(link, svc_now_ms());
	}
}

/* ---- close ---- */

void svc_link_close_cut(struct xport_link *link)
{
	struct xport_ep_info info = {.size = sizeof(info)};

	if (link->state != XPORT_LINK_ENDING || link->ep == NULL ||
	    (xport_ep_query(link->ep->ep, &info) == XPORT_OK && info.reason != XPORT_OK))
		return; /* it has ended, and its event will come */
	svc_link_keys_forget(link);
	ep_discard(link);
	link->cut = true;
	link->links->cut++;
	link_closed(link, XPORT_ERR_TIMEOUT);
}

int svc_link_close_start(struct xport_link *link, int timeout_ms)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	int state = link->state;

	if (state == XPORT_LINK_ENDING && timeout_ms == 0) {
		svc_link_close_cut(link);
		return XPORT_OK;
	}
	if (state == XPORT_LINK_ENDING || state == XPORT_LINK_OVER)
		return svc_link_not_up(link, "xport_link_close");
	link->state = XPORT_LINK_ENDING;
	link->down = false;
	svc_link_ops_end(link, XPORT_ERR_CLOSED);
	if (state == XPORT_LINK_CONNECTING && xport_ep_query(link->ep->ep, &info) == XPORT_OK &&
	    info.state == XPORT_EP_CONNECTING)
		ep_discard(link);
	else if (link->ep != NULL && xport_ep_close_start(link->ep->ep, timeout_ms) != XPORT_OK)
		link->links->stirred = true; /* it has ended, and its event will come */
	if (link->ep == NULL)
		link_closed(link, XPORT_OK);
	return XPORT_OK;
}
