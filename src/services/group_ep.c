/* SPDX-License-Identifier: BSD-3-Clause */
/* The members of a group as endpoints: connecting, accepting, their end. */
#include <stdio.h>
#include <string.h>

#include "services/clock.h"
#include "services/group.h"
#include "services/last_error.h"
#include "services/wire.h"

static const uint32_t MAGIC = 0x01455058; /* "XPE", 1 */

int svc_group_post(struct xport_group *g, struct svc_group_op *op, int rank, bool recv, void *buf, size_t len,
                   uint64_t tag, uint64_t mask)
{
	struct svc_member *m = &g->member[rank];
	struct xport_opt opt = {.size = sizeof(opt), .context = op};
	int r;

	op->recv = recv;
	op->rank = rank;
	op->status = XPORT_OK;
	op->asked = false;
	op->expected = len;
	op->tag = tag;
	op->busy = true;
	if (recv) {
		opt.source = m->ep;
		opt.id = &op->id;
		r = xport_recv(g->x, buf, len, tag, mask, &opt);
	} else {
		r = xport_send(m->ep, buf, len, tag, &opt);
	}
	if (r != XPORT_OK)
		op->busy = false;
	return r;
}

int svc_member_find(const struct xport_group *g, const xport_ep *ep)
{
	for (int i = 0; ep != NULL && i < g->members; i++)
		if (g->member[i].ep == ep)
			return i;
	return -1;
}

/* The receive for failures and calls of the member. */
static int member_listen(struct xport_group *g, int rank)
{
	struct svc_member *m = &g->member[rank];

	return svc_group_post(g, &m->news, rank, true, m->news_in, sizeof(m->news_in), g->tag | SVC_GROUP_NEWS,
	                      UINT64_MAX);
}

/* The endpoint may be used. */
static void member_open(struct xport_group *g, int rank)
{
	struct svc_member *m = &g->member[rank];
	int r;

	m->state = SVC_MEMBER_OPEN;
	r = xport_ep_set_context(m->ep, NULL); /* from now on it is the application's */
	if (r == XPORT_OK)
		r = member_listen(g, rank);
	if (r != XPORT_OK)
		svc_member_ended(g, rank, r);
}

/* Another connection, or none, takes the place of this one. */
static void member_drop(struct svc_member *m)
{
	xport_ep_destroy(m->ep);
	m->ep = NULL;
	m->state = SVC_MEMBER_ABSENT;
}

static bool on_loopback(const char *address)
{
	return strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]", 5) == 0;
}

int svc_member_connect(struct xport_group *g, int rank, const struct svc_group_card *card, const char *operation)
{
	struct svc_member *m = &g->member[rank];
	uint8_t bytes[SVC_GROUP_PRIVATE_BYTES];
	struct xpi_wr w = xpi_wr(bytes, sizeof(bytes));
	struct xport_conn_attr a = {.size = sizeof(a),
	                            .private_data = bytes,
	                            .private_len = sizeof(bytes),
	                            .connect_ms = SVC_GROUP_CONNECT_MS,
	                            .context = m};
	int r;

	if (on_loopback(card->address) && strcmp(card->host, g->card.host) != 0)
		return svc_fail(
			XPORT_ERR_AUTH, operation,
			"set XPORT_AUTH_KEY_FILE, or XPORT_AUTH=none; or set XPORT_GROUP_ADDRESS at that member",
			"rank %d on %s listens at %s, which %s cannot reach: it has no authentication key", rank,
			card->host, card->address, g->card.host);
	xpi_wr_u32(&w, MAGIC);
	xpi_wr_u32(&w, (uint32_t)g->rank);
	xpi_wr_u64(&w, g->id);
	xpi_wr_u32(&w, (uint32_t)g->members);
	xpi_wr_u32(&w, 0);
	r = xport_connect(g->x, card->address, &a, 0, &m->ep);
	if (r != XPORT_OK)
		return svc_pass(g->x, r, operation);
	m->state = SVC_MEMBER_CONNECTING;
	m->status = XPORT_OK;
	return XPORT_OK;
}

bool svc_group_neighbours(const struct xport_group *g, int rank)
{
	int up = (rank - g->rank + g->members) % g->members, down = g->members - up;

	return up != 0 && ((up & (up - 1)) == 0 || (down & (down - 1)) == 0);
}

void svc_member_connected(struct xport_group *g, int rank)
{
	struct svc_member *m = &g->member[rank];
	int r;

	if (m->state != SVC_MEMBER_CONNECTING)
		return;
	if (g->rank < rank) {
		member_open(g, rank);
		return;
	}
	m->state = SVC_MEMBER_ASKING;
	r = svc_group_post(g, &m->confirm, rank, true, m->word, sizeof(m->word), g->tag | SVC_GROUP_CONFIRM,
	                   UINT64_MAX);
	/* PEER_CLOSED: the member has dropped this connection already, because it connects itself. */
	if (r != XPORT_OK)
		svc_member_ended(g, rank, r);
}

void svc_member_confirm(struct xport_group *g, int rank)
{
	struct svc_member *m = &g->member[rank];
	int r = XPORT_OK;

	if (m->state == SVC_MEMBER_OPEN)
		r = svc_group_post(g, &m->confirm_out, rank, false, m->word, 1, g->tag | SVC_GROUP_CONFIRM, 0);
	g->confirms += (r == XPORT_ERR_AGAIN) - m->confirms;
	m->confirms = r == XPORT_ERR_AGAIN;
}

/* A connection of the member has been accepted. */
static void member_accepted(struct xport_group *g, int rank, xport_ep *ep)
{
	struct svc_member *m = &g->member[rank];
	bool own = m->state == SVC_MEMBER_CONNECTING || m->state == SVC_MEMBER_ASKING;

	if (m->state == SVC_MEMBER_OPEN || m->state == SVC_MEMBER_GONE || (own && g->rank < rank)) {
		xport_ep_destroy(ep);
		return;
	}
	if (own)
		member_drop(m);
	m->ep = ep;
	member_open(g, rank);
	if (g->rank < rank && m->state == SVC_MEMBER_OPEN)
		svc_member_confirm(g, rank);
}

/* The rank of who has connected; -1: no member of this group. */
static int private_rank(const struct xport_group *g, const xport_ep *ep)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	uint32_t magic, rank, members;
	struct xpi_rd r;
	uint64_t id;

	if (xport_ep_query(ep, &info) != XPORT_OK)
		return -1;
	r = xpi_rd(info.private_data, info.private_len);
	magic = xpi_rd_u32(&r);
	rank = xpi_rd_u32(&r);
	id = xpi_rd_u64(&r);
	members = xpi_rd_u32(&r);
	xpi_rd_u32(&r);
	if (r.bad || r.left != 0 || magic != MAGIC || id != g->id || members != (uint32_t)g->members ||
	    rank >= members || rank == (uint32_t)g->rank)
		return -1;
	return (int)rank;
}

void svc_group_accept(struct xport_group *g)
{
	xport_ep *ep;

	/* Before the group's number is known nobody can be told from a stranger. */
	while (g->listener != NULL && g->id != 0 && xport_accept(g->listener, 0, &ep) == XPORT_OK) {
		int rank = private_rank(g, ep);

		if (rank < 0)
			xport_ep_destroy(ep);
		else
			member_accepted(g, rank, ep);
	}
}

void svc_member_ended(struct xport_group *g, int rank, int status)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	struct svc_member *m = &g->member[rank];

	if (m->state == SVC_MEMBER_GONE || m->state == SVC_MEMBER_ABSENT)
		return;
	if (xport_ep_query(m->ep, &info) != XPORT_OK || info.why[0] == '\0')
		snprintf(info.why, sizeof(info.why), "%s", xport_strerror(status));
	if (m->state != SVC_MEMBER_OPEN) {
		/* The member has begun a connection itself, if it dropped this one. */
		m->refused = m->state == SVC_MEMBER_ASKING && status == XPORT_ERR_PEER_CLOSED;
		m->status = m->refused ? XPORT_OK : status;
		if (!m->refused) {
			g->connect_rank = rank;
			snprintf(g->connect_why, sizeof(g->connect_why), "%s", info.why);
		}
		member_drop(m);
		return;
	}
	m->state = SVC_MEMBER_GONE;
	m->status = status;
	/* A member may leave while others still call. Only operations that need it fail. */
	if (status == XPORT_ERR_PEER_CLOSED || status == XPORT_ERR_CLOSED)
		return;
	svc_group_fail(g, rank, status, "rank %d was lost: %s", rank, info.why);
}

/* A member says that the group has failed. */
static void member_news(struct xport_group *g, int from, const struct svc_group_op *op)
{
	struct xpi_rd r =
		xpi_rd(g->member[from].news_in, op->length < SVC_GROUP_NEWS_BYTES ? op->length : SVC_GROUP_NEWS_BYTES);
	uint32_t rank = xpi_rd_u32(&r);
	int32_t status = (int32_t)xpi_rd_u32(&r);
	uint32_t by = xpi_rd_u32(&r);

	if (r.bad || op->length != SVC_GROUP_NEWS_BYTES || rank >= (uint32_t)g->members || by >= (uint32_t)g->members ||
	    !svc_status_valid(status) || !svc_group_status_valid(status))
		svc_group_fail(g, from, XPORT_ERR_PROTOCOL, "rank %d sent a message that is not a group's", from);
	else if (rank == by)
		svc_group_fail(g, (int)rank, status, "rank %u could not go on: %s", rank, xport_strerror(status));
	else if (status == XPORT_ERR_TIMEOUT)
		svc_group_fail(g, (int)rank, status, "rank %u waited for rank %u, and its time limit expired", by,
		               rank);
	else
		svc_group_fail(g, (int)rank, status, "rank %u reports that rank %u failed: %s", by, rank,
		               xport_strerror(status));
}

void svc_member_done(struct xport_group *g, int rank, struct svc_group_op *op)
{
	struct svc_member *m = &g->member[rank];

	if (op == &m->confirm) {
		if (m->state == SVC_MEMBER_ASKING && op->status == XPORT_OK)
			member_open(g, rank);
		else if (m->state == SVC_MEMBER_ASKING)
			svc_member_ended(g, rank, op->status);
	} else if (op == &m->news) {
		if (op->status == XPORT_OK && op->length == sizeof(m->news_in) &&
		    svc_call_asked(g, rank, m->news_in, sizeof(m->news_in))) {
			int r = member_listen(g, rank);

			if (r != XPORT_OK)
				svc_member_ended(g, rank, r);
		} else if (op->status == XPORT_OK || op->status == XPORT_ERR_TRUNCATED)
			member_news(g, rank, op);
		else if (op->status != XPORT_ERR_CANCELED)
			svc_member_ended(g, rank, op->status);
	}
}

/* ---- the public function ---- */

/* Waits until the member's endpoint is open. `begin`: connects if that is needed. */
static int member_wait(struct xport_group *g, int rank, int64_t until, bool begin, const char *op)
{
	struct svc_member *m = &g->member[rank];
	struct svc_group_card card;
	bool begun = false;
	int r;

	m->refused = false;
	for (;;) {
		if (m->state == SVC_MEMBER_OPEN)
			return XPORT_OK;
		if (m->state == SVC_MEMBER_GONE)
			return svc_fail(m->status, op, "make a new group", "rank %d %s", rank,
			                m->status == XPORT_ERR_PEER_CLOSED ? "has left the group" : "was lost");
		if (g->failed >= 0)
			return svc_group_error(g, op);
		if (m->state == SVC_MEMBER_ABSENT && begun && m->status != XPORT_OK)
			return svc_fail(m->status, op, NULL, "rank %d: %s", rank,
			                g->connect_rank == rank ? g->connect_why : xport_strerror(m->status));
		if (m->state == SVC_MEMBER_ABSENT && !m->refused && begin) {
			g->source->operation = op;
			g->source->until = until;
			r = g->source->ops->card(g->source, rank, &card, 1);
			if (r == XPORT_OK)
				r = svc_member_connect(g, rank, &card, op);
			if (r != XPORT_OK && r != XPORT_ERR_AGAIN)
				return r;
			begun = true;
		}
		if (until >= 0 && svc_now_ms() >= until)
			return svc_fail(XPORT_ERR_TIMEOUT, op, "call the group at that member, too",
			                "rank %d did not answer in time", rank);
		r = svc_group_turn(g, svc_group_left(until, SVC_GROUP_SLICE_MS), op);
		if (r != XPORT_OK)
			return r;
	}
}

int xport_group_ep(xport_group *g, int rank, int timeout_ms, xport_ep **ep)
{
	static const char op[] = "xport_group_ep";
	int r = svc_time_valid(timeout_ms, op);

	if (r != XPORT_OK)
		return r;
	if (g == NULL || ep == NULL)
		return svc_fail(XPORT_ERR_INVALID, op, NULL, "%s is NULL", g == NULL ? "group" : "ep");
	if (rank < 0 || rank >= g->members || rank == g->rank)
		return svc_fail(XPORT_ERR_INVALID, op, NULL,
		                rank == g->rank ? "rank %d is this process" : "there is no rank %d", rank);
	pthread_mutex_lock(&g->lock);
	r = svc_group_enter(g, op);
	if (r == XPORT_OK) {
		r = member_wait(g, rank, timeout_ms < 0 ? -1 : svc_now_ms() + timeout_ms, timeout_ms != 0, op);
		svc_group_leave(g);
	}
	if (r == XPORT_OK)
		*ep = g->member[rank].ep;
	pthread_mutex_unlock(&g->lock);
	return r;
}
