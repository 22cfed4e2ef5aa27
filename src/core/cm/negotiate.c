/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/cm/negotiate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "core/cm/agree.h"
#include "core/object/early.h"
#include "core/object/set.h"

/* ---- Offers ---- */

void xpi_offers_fill(const struct xport *x, uint32_t forbidden, struct xpi_hello *h)
{
	const struct xpi_set *set = x->set;

	h->noffers = (uint8_t)set->candidates.n;
	for (unsigned i = 0; i < h->noffers; i++) {
		const struct xpi_candidate *c = &set->candidates.list[i];
		const struct xpi_transport *tp = set->of[i];
		struct xpi_offer *o = &h->offers[i];

		memset(o, 0, sizeof(*o));
		memcpy(o->backend, c->backend, sizeof(o->backend));
		memcpy(o->provider, c->provider, sizeof(o->provider));
		o->flags = (uint8_t)((c->any_provider ? XPI_OFFER_ANY : 0) | (c->shares_memory ? XPI_OFFER_SHARED : 0));
		if (strcmp(c->backend, "shm") == 0 && x->settings.shm_dir[0] != '\0')
			o->flags |= XPI_OFFER_PASSED;
		if ((forbidden & 1u << i) != 0) {
			o->flags |= XPI_OFFER_FAILED;
			snprintf(o->device, sizeof(o->device), "the program does not allow it");
		} else if (c->state == XPI_CANDIDATE_FAILED) {
			o->flags |= XPI_OFFER_FAILED;
			snprintf(o->device, sizeof(o->device), "%.*s", (int)sizeof(o->device) - 1, c->reason);
		} else if (tp != NULL) {
			o->flags |= XPI_OFFER_OPEN;
			memcpy(o->protocol, tp->caps.protocol, sizeof(o->protocol));
			snprintf(o->device, sizeof(o->device), "%.*s", (int)sizeof(o->device) - 1, tp->caps.device);
		}
	}
}

/* Ours, as they are now. A transport that was opened since our HELLO, or could not be, differs from what the peer knows. */
static void negotiate_ours(const struct xpi_conn *conn, struct xpi_hello *ours)
{
	xpi_conn_identity(conn->x, conn->ep != NULL ? conn->ep->tp : NULL, conn->forbidden, ours);
}

/* Ours, as the client's HELLO has said them. */
static void negotiate_said(const struct xpi_conn *conn, struct xpi_hello *ours)
{
	negotiate_ours(conn, ours);
	memcpy(ours->offers, conn->said, sizeof(ours->offers));
	ours->noffers = conn->nsaid;
}

static bool negotiate_at_server(const struct xpi_conn *conn)
{
	return conn->listener != NULL;
}

/* ---- Attempts ---- */

static void attempt_note(struct xpi_conn *conn, unsigned offer, const char *why)
{
	size_t n = strlen(conn->tried);

	conn->tried_offers |= 1u << offer;
	snprintf(conn->why, sizeof(conn->why), "%.*s", (int)sizeof(conn->why) - 1, why);
	if (n + 8 < sizeof(conn->tried))
		snprintf(conn->tried + n, sizeof(conn->tried) - n, "%s%s: %.120s", n > 0 ? "; " : "",
		         conn->x->set->candidates.list[offer].name, why);
}

static void attempt_next(struct xpi_conn *conn, const char *why)
{
	struct xport *x = conn->x;

	attempt_note(conn, conn->mine, why);
	xpi_log(x->log, XPORT_LOG_INFO, "0116", "%s: %s does not connect, the next transport is tried: %s",
	        conn->remote, x->set->candidates.list[conn->mine].name, why);
}

/* Whether there is another pair to try. The client cannot know which of them the server has tried without it. */
static bool attempt_more(const struct xpi_conn *conn)
{
	return (negotiate_at_server(conn) ? conn->at : conn->attempt) + 1 < conn->agreement.n;
}

/*
 * Server, after an attempt that failed: the client has proved to be one. It gets as much time as a client has until it takes
 * the next pair, since its stack may be slow to let go of the last one, or to open the next.
 */
static void attempt_extend(struct xpi_conn *conn)
{
	if (negotiate_at_server(conn))
		conn->deadline_ms = conn->began_ms + XPI_CONNECT_MS;
}

/* Half of the time that is left, so that there is some for the others. */
static void attempt_begin(struct xpi_conn *conn)
{
	int64_t now = xpi_now_ms();

	if (negotiate_at_server(conn) && conn->attempt > 0 && conn->deadline_ms > now + XPI_HALF_OPEN_MS)
		conn->deadline_ms = now + XPI_HALF_OPEN_MS;
	conn->attempt_ms = attempt_more(conn) ? now + (conn->deadline_ms - now) / 2 : INT64_MAX;
}

bool xpi_negotiate_late(const struct xpi_conn *conn)
{
	/* While the peer's word is awaited nothing has failed: its program may be busy. */
	return conn->step == XPI_CONN_NATIVE && xpi_now_ms() >= conn->attempt_ms && attempt_more(conn);
}

int xpi_negotiate_agree(struct xpi_conn *conn, char *text, size_t len)
{
	struct xpi_hello ours;
	const char *hint;

	negotiate_ours(conn, &ours);
	xpi_agree(&conn->peer, &ours, &conn->agreement);
	conn->at = 0;
	return conn->agreement.n > 0 ? XPORT_OK : xpi_agree_none(&ours, &conn->peer, text, len, &hint);
}

/* Whether the pair fits, now that both transports may be open and known better. */
static int pair_fits_still(struct xpi_conn *conn)
{
	struct xpi_hello ours;
	char why[256];

	negotiate_ours(conn, &ours);
	if (xpi_agree_fits(&ours, conn->mine, &conn->peer, conn->theirs, why, sizeof(why)) == XPORT_OK)
		return XPORT_OK;
	return xpi_fail(&conn->x->err, XPORT_ERR_INCOMPATIBLE, 0, NULL, NULL, "%s", why);
}

struct xpi_transport *xpi_negotiate_choose(struct xpi_conn *conn)
{
	struct xport *x = conn->x;

	for (; conn->at < conn->agreement.n; conn->at++) {
		struct xpi_transport *tp;

		conn->mine = conn->agreement.pairs[conn->at].server;
		conn->theirs = conn->agreement.pairs[conn->at].client;
		tp = xpi_transport_get(x, conn->mine);
		if (tp != NULL && pair_fits_still(conn) == XPORT_OK) {
			attempt_begin(conn);
			return tp;
		}
		conn->status = x->err.status;
		attempt_note(conn, conn->mine, x->err.text);
	}
	xpi_fail(&x->err, conn->status, 0, NULL, NULL, "none of %d common transports connects: %.200s",
	         conn->agreement.n, conn->tried);
	return NULL;
}

int xpi_negotiate_other(struct xpi_conn *conn, int status)
{
	struct xpi_transport *tp;

	if (conn->ep->prepared || conn->at + 1 >= conn->agreement.n)
		return status;
	attempt_note(conn, conn->mine, conn->x->err.text);
	conn->status = status;
	conn->at++;
	xpi_ep_unuse(conn->ep);
	tp = xpi_negotiate_choose(conn);
	if (tp == NULL)
		return conn->x->err.status;
	xpi_ep_use(conn->ep, tp);
	return 1;
}

/* ---- Words ---- */

static int word_wrong(struct xpi_conn *conn)
{
	return xpi_fail(&conn->x->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL,
	                "%s broke the protocol while a transport was agreed", conn->remote);
}

static int word_say(struct xpi_conn *conn, const struct xpi_word *w)
{
	uint8_t buf[XPI_WORD_HEAD + XPI_WORD_BODY_MAX];
	size_t len = xpi_word_encode(w, buf, sizeof(buf));

	return len > 0 ? xpi_conn_say(conn, buf, len)
	               : xpi_fail(&conn->x->err, XPORT_ERR_SYSTEM, 0, NULL, NULL,
	                          "a word does not fit its longest form");
}

/* Our side of the attempt: the transport is open. */
static int take_say(struct xpi_conn *conn, struct xpi_transport *tp)
{
	struct xpi_word w = {
		.kind = 'T',
		.attempt = conn->attempt,
		.offer = conn->mine,
		.theirs = conn->theirs,
		.frame_max = (uint32_t)tp->caps.am_max,
		.credits = tp->caps.am_credits,
	};
	size_t len = sizeof(w.address);
	int rc;

	xpi_ep_use(conn->ep, tp);
	rc = xpi_conn_address(conn, w.address, &len);
	if (rc != XPORT_OK)
		return rc;
	w.address_len = (uint16_t)len;
	memcpy(w.protocol, tp->caps.protocol, sizeof(w.protocol));
	memcpy(w.text, conn->why, sizeof(w.text));
	return word_say(conn, &w);
}

static int next_say(struct xpi_conn *conn, int status, const char *text)
{
	struct xpi_word w = {.kind = 'N', .attempt = conn->attempt, .status = status};

	snprintf(w.text, sizeof(w.text), "%.*s", (int)sizeof(w.text) - 1, text);
	return word_say(conn, &w);
}

/* The peer's limits and address of this attempt. */
static void take_hear(struct xpi_conn *conn, const struct xpi_word *w)
{
	struct xpi_offer *o = &conn->peer.offers[w->offer];

	conn->peer.frame_max = w->frame_max;
	conn->peer.credits = w->credits;
	conn->peer.address_len = w->address_len;
	memcpy(conn->peer.address, w->address, w->address_len);
	memcpy(o->protocol, w->protocol, sizeof(o->protocol));
	o->flags |= XPI_OFFER_OPEN;
}

/* ---- Going on ---- */

static int attempt_abandon(struct xpi_conn *conn)
{
	attempt_extend(conn);
	conn->peer_ready = false;
	conn->step = XPI_CONN_LEAVING;
	return 1;
}

int xpi_negotiate_failed(struct xpi_conn *conn, int status)
{
	struct xport *x = conn->x;
	char text[200];
	int rc;

	if (!attempt_more(conn)) {
		if (conn->tried[0] == '\0' || status == XPORT_ERR_NO_MEMORY)
			return status;
		attempt_note(conn, conn->mine, x->err.text);
		return xpi_fail(&x->err, status, 0, NULL, NULL, "no common transport connects: %.220s", conn->tried);
	}
	conn->status = status;
	snprintf(text, sizeof(text), "%.199s", x->err.text);
	attempt_next(conn, text);
	if (!negotiate_at_server(conn)) {
		conn->pending = false;
		rc = next_say(conn, status, text);
		if (rc != XPORT_OK)
			return rc;
	}
	return attempt_abandon(conn);
}

/* Server: offers the next pair. */
static int pair_next(struct xpi_conn *conn)
{
	struct xpi_transport *tp;
	int rc;

	conn->at++;
	tp = xpi_negotiate_choose(conn);
	if (tp == NULL)
		return conn->x->err.status;
	conn->attempt++;
	rc = take_say(conn, tp);
	if (conn->dead)
		return 0;
	if (rc != XPORT_OK) {
		conn->attempt--; /* the client has not heard of it */
		return xpi_negotiate_failed(conn, rc);
	}
	attempt_extend(conn);
	conn->step = XPI_CONN_TAKE;
	return 1;
}

/* Client: the server's choice is in conn->peer, conn->mine and conn->theirs. */
static int choice_take(struct xpi_conn *conn)
{
	struct xpi_transport *tp;
	int rc;

	attempt_begin(conn);
	if (conn->ep->tp == NULL) {
		tp = xpi_transport_get(conn->x, conn->mine);
		if (tp == NULL)
			return xpi_negotiate_failed(conn, conn->x->err.status);
		rc = pair_fits_still(conn);
		if (rc == XPORT_OK)
			rc = take_say(conn, tp);
		if (conn->dead)
			return 0;
		if (rc != XPORT_OK)
			return xpi_negotiate_failed(conn, rc);
	}
	rc = xpi_conn_take_peer(conn);
	return rc == XPORT_OK ? 1 : rc;
}

/* Client: whether the server may choose this, as far as it knows us. If it cannot be used any more, choice_take says so. */
static int choice_check(struct xpi_conn *conn, unsigned mine, unsigned theirs)
{
	struct xpi_hello ours;
	char why[256] = "there is no such transport";

	negotiate_said(conn, &ours);
	if (mine < ours.noffers && theirs < conn->peer.noffers &&
	    xpi_agree_fits(&ours, mine, &conn->peer, theirs, why, sizeof(why)) == XPORT_OK) {
		conn->mine = (uint8_t)mine;
		conn->theirs = (uint8_t)theirs;
		return XPORT_OK;
	}
	return xpi_fail(&conn->x->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL,
	                "%s chose a transport that cannot be used: %s", conn->remote, why);
}

int xpi_negotiate_chosen(struct xpi_conn *conn)
{
	struct xpi_hello ours;
	int rc = choice_check(conn, conn->peer.theirs, conn->peer.offer);

	if (rc != XPORT_OK)
		return rc;
	negotiate_said(conn, &ours);
	xpi_agree(&ours, &conn->peer, &conn->agreement);
	return choice_take(conn);
}

static int word_at_server(struct xpi_conn *conn, const struct xpi_word *w)
{
	int rc;

	if (w->attempt != conn->attempt)
		return ++conn->stale <= XPI_PAIRS_MAX ? 1 : word_wrong(conn);
	if (w->kind == 'N') {
		xpi_fail(&conn->x->err, xpi_conn_peer_status(w->status), 0, NULL, NULL, "the client says: %s", w->text);
		return xpi_negotiate_failed(conn, conn->x->err.status);
	}
	if (conn->step != XPI_CONN_TAKE || w->offer != conn->theirs || w->theirs != conn->mine)
		return word_wrong(conn);
	take_hear(conn, w);
	rc = pair_fits_still(conn);
	if (rc != XPORT_OK)
		return xpi_negotiate_failed(conn, rc);
	attempt_begin(conn);
	rc = xpi_conn_take_peer(conn);
	return rc == XPORT_OK ? 1 : rc;
}

static int word_at_client(struct xpi_conn *conn, const struct xpi_word *w)
{
	int rc;

	if (w->kind != 'T' || w->attempt != (uint8_t)(conn->attempt + 1) || conn->attempt >= XPI_PAIRS_MAX ||
	    w->offer >= conn->peer.noffers)
		return word_wrong(conn);
	if (conn->step != XPI_CONN_TAKE) /* else we have noted it ourselves */
		attempt_next(conn, w->text);
	take_hear(conn, w);
	rc = choice_check(conn, w->theirs, w->offer);
	if (rc != XPORT_OK)
		return rc;
	conn->attempt = w->attempt;
	conn->pending = true;
	return attempt_abandon(conn);
}

int xpi_negotiate_word(struct xpi_conn *conn)
{
	size_t len, seal = conn->session != NULL ? XPI_SEAL_LEN : 0;
	struct xpi_word w;
	int rc = xpi_conn_fill(conn, XPI_WORD_HEAD);

	if (rc != 1)
		return rc;
	len = xpi_word_length(conn->in);
	rc = len > 0 ? xpi_conn_fill(conn, len + seal) : word_wrong(conn);
	if (rc != 1)
		return rc;
	rc = xpi_conn_check_seal(conn, XPI_SEAL_HANDSHAKE, len);
	if (rc != XPORT_OK)
		return rc;
	if (!xpi_word_decode(conn->in, len, &w))
		return word_wrong(conn);
	conn->in_len = 0;
	return negotiate_at_server(conn) ? word_at_server(conn, &w) : word_at_client(conn, &w);
}

int xpi_negotiate_leave(struct xpi_conn *conn)
{
	struct xport_ep *ep = conn->ep;
	struct xpi_early *f;

	if (ep->prepared) {
		if (ep->tp->ops->ep_quiesce(ep->tp->be, xpi_ep_be(ep)) != XPORT_OK)
			return 0;
		ep->tp->ops->ep_destroy(ep->tp->be, xpi_ep_be(ep));
		ep->prepared = false;
	}
	while ((f = xpi_early_take(ep)) != NULL)
		free(f);
	xpi_ep_unuse(ep);
	if (negotiate_at_server(conn))
		return pair_next(conn);
	if (conn->pending) {
		conn->pending = false;
		return choice_take(conn);
	}
	conn->step = XPI_CONN_TAKE;
	return 1;
}

/* ---- The outcome ---- */

/* Adds to a text of parts. Returns its length, at most size - 1. */
static size_t passed_add(char *text, size_t size, size_t n, const char *name, const char *why)
{
	int more = snprintf(text + n, size - n, "%s%s: %s", n > 0 ? "; " : "", name, why);

	return n + (size_t)more < size ? n + (size_t)more : size - 1;
}

void xpi_negotiate_passed(struct xpi_conn *conn)
{
	struct xpi_hello ours;
	char text[256] = "", names[160] = "", why[200];
	size_t n = 0, len = 0;

	if (!xpi_several(conn->x))
		return;
	negotiate_ours(conn, &ours);
	if (conn->tried[0] != '\0')
		n = (size_t)snprintf(text, sizeof(text), "%.250s", conn->tried);
	for (unsigned i = 0; i < conn->mine; i++) {
		const char *name = conn->x->set->candidates.list[i].name;

		if ((conn->tried_offers & 1u << i) != 0)
			continue;
		if (xpi_agree_passed(&ours, i, &conn->peer, conn->mine, why, sizeof(why)))
			n = passed_add(text, sizeof(text), n, name, why);
		else if (len < sizeof(names))
			len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", len > 0 ? ", " : "", name);
	}
	if (names[0] != '\0')
		passed_add(text, sizeof(text), n, names, "the peer does not offer that");
	if (text[0] != '\0')
		conn->ep->passed_over = strdup(text);
}
