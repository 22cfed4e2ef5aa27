/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a group: joining, leaving, and what it is. */
#include "services/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "services/clock.h"
#include "services/grow.h"
#include "services/last_error.h"

static const uint64_t TAG = UINT64_C(0x7870677200000000); /* "xpgr" */
static const char create_op[] = "xport_group_create";

/* ---- the end ---- */

static bool group_busy(const struct xport_group *g)
{
	for (int i = 0; i < SVC_GROUP_OPS; i++)
		if (g->op[i].busy)
			return true;
	for (int i = 0; i < g->members; i++) {
		const struct svc_member *m = &g->member[i];

		if (m->news.busy || m->confirm.busy || m->news_out.busy || m->confirm_out.busy || m->call_out.busy)
			return true;
	}
	return false;
}

/* Frees all. No completion with a context of the group may be left: the application would get it. */
static void group_free(struct xport_group *g)
{
	xport_listener_close(g->listener);
	g->listener = NULL;
	for (int i = 0; g->member != NULL && i < g->members; i++) {
		xport_ep_destroy(g->member[i].ep);
		g->member[i].ep = NULL;
		g->member[i].state = SVC_MEMBER_GONE;
	}
	while (g->member != NULL && group_busy(g))
		if (svc_group_turn(g, SVC_GROUP_SLICE_MS, "xport_group_destroy") != XPORT_OK)
			break;
	if (g->source != NULL)
		g->source->ops->close(g->source);
	svc_values_free(g);
	free(g->scratch);
	free(g->member);
	pthread_mutex_unlock(&g->lock);
	pthread_mutex_destroy(&g->lock);
	free(g);
}

/* Frees all. The failure, if there is one, stays described. */
static int group_end(struct xport_group *g, int status, const char *op)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status == XPORT_OK) {
		group_free(g);
		return XPORT_OK;
	}
	(void)xport_services_last_error(&e);
	group_free(g);
	return svc_fail(status, op, e.hint, "%s", e.text);
}

static bool group_closing(const struct xport_group *g)
{
	for (int i = 0; i < g->members; i++)
		if (g->member[i].closing)
			return true;
	return false;
}

/* Closes the open endpoints. Each close has the limit itself: more is needed only if its event does not come. */
static int group_close(struct xport_group *g, int timeout_ms, const char *op)
{
	int64_t until = timeout_ms < 0 ? -1 : svc_now_ms() + timeout_ms + SVC_GROUP_GRACE_MS;
	int r = XPORT_OK;

	for (int i = 0; i < g->members; i++) {
		struct svc_member *m = &g->member[i];

		m->closing = m->state == SVC_MEMBER_OPEN && xport_ep_close_start(m->ep, timeout_ms) == XPORT_OK;
	}
	while (r == XPORT_OK && group_closing(g) && (until < 0 || svc_now_ms() < until))
		r = svc_group_turn(g, svc_group_left(until, SVC_GROUP_SLICE_MS), op);
	return r;
}

int xport_group_destroy(xport_group *g, int timeout_ms)
{
	static const char op[] = "xport_group_destroy";
	int r = svc_time_valid(timeout_ms, op);

	if (r != XPORT_OK || g == NULL)
		return r;
	pthread_mutex_lock(&g->lock);
	r = svc_group_enter(g, op);
	if (r != XPORT_OK) {
		pthread_mutex_unlock(&g->lock);
		return r;
	}
	r = group_close(g, timeout_ms, op);
	if (r == XPORT_OK && (g->late || group_closing(g)))
		r = svc_fail(XPORT_ERR_TIMEOUT, op, "call xport_group_barrier before it",
		             "a member did not take what was sent within %d ms", timeout_ms);
	return group_end(g, r, op);
}

/* ---- joining ---- */

static int group_listen(struct xport_group *g, const char *wanted)
{
	const char *variable = secure_getenv("XPORT_GROUP_ADDRESS");
	struct xport_conn_attr a = {.size = sizeof(a), .backlog = 128, .context = g->member};
	int r;

	if (wanted == NULL && variable != NULL && variable[0] != '\0')
		wanted = variable;
	if (wanted != NULL) {
		r = xport_listen(g->x, wanted, &a, &g->listener);
	} else {
		r = g->source->local ? XPORT_ERR_AUTH : xport_listen(g->x, "*:0", &a, &g->listener);
		/* Others may not connect: then all members are on this host, or xport_group_create says so. */
		if (r == XPORT_ERR_AUTH)
			r = xport_listen(g->x, "127.0.0.1:0", &a, &g->listener);
	}
	if (r == XPORT_OK)
		r = xport_listener_name(g->listener, g->card.address, sizeof(g->card.address));
	return r == XPORT_OK ? r : svc_pass(g->x, r, create_op);
}

enum step { OFFER, READY, FIRST, CARD };

static int source_step(struct xport_group *g, enum step step, int rank, struct svc_group_card *card, int slice_ms)
{
	const struct svc_group_source_ops *ops = g->source->ops;

	switch (step) {
	case OFFER:
		return ops->offer(g->source, &g->card, slice_ms);
	case READY:
		return ops->ready(g->source, slice_ms);
	default:
		return ops->card(g->source, rank, card, slice_ms);
	}
}

/* Waits until the source has done this. */
static int source_wait(struct xport_group *g, enum step step, int rank, struct svc_group_card *card, int64_t until)
{
	int slice = 0, r;
	char text[256];

	for (;;) {
		g->source->until = until;
		r = source_step(g, step, rank, card, slice);
		if (r != XPORT_ERR_AGAIN)
			return r;
		if (until >= 0 && svc_now_ms() >= until) {
			g->source->ops->missing(g->source, text, sizeof(text));
			return svc_fail(XPORT_ERR_TIMEOUT, create_op, "start these processes, or wait longer",
			                "the group is not complete: waited for %s",
			                text[0] == '\0' ? "the root" : text);
		}
		r = svc_group_turn(g, 0, create_op); /* those that are ready connect */
		if (r == XPORT_OK && g->failed >= 0)
			r = svc_group_error(g, create_op);
		if (r != XPORT_OK)
			return r;
		slice = slice < 5 ? slice + 1 : slice;
	}
}

/*
 * A member of lower rank connects to this one. If it has not, it may have died after it gave its card away: this member
 * connects, too. That fails if the other one has died, and is answered otherwise.
 */
static int group_probe(struct xport_group *g, int rank, int64_t until)
{
	struct svc_group_card card;
	int r = source_wait(g, CARD, rank, &card, until);

	g->member[rank].refused = false;
	if (r == XPORT_OK && g->member[rank].state == SVC_MEMBER_ABSENT)
		r = svc_member_connect(g, rank, &card, create_op);
	return r;
}

/* Why a neighbour's endpoint will not be made; OK: it may. */
static int group_lost(struct xport_group *g, int rank)
{
	const struct svc_member *m = &g->member[rank];

	if (m->state == SVC_MEMBER_GONE) {
		svc_group_hear(g, create_op);
		if (g->failed >= 0)
			return svc_group_error(g, create_op);
		return svc_fail(m->status, create_op, "see the error of this member", "rank %d %s", rank,
		                m->status == XPORT_ERR_PEER_CLOSED ? "has left the group" : "was lost");
	}
	if (m->state == SVC_MEMBER_ABSENT && !m->refused && m->status != XPORT_OK)
		return svc_fail(m->status, create_op, "see the error of this member", "rank %d: %s", rank,
		                g->connect_rank == rank ? g->connect_why : xport_strerror(m->status));
	return XPORT_OK;
}

/* Connects with those that collective operations need, and waits until they are there. */
static int group_connect(struct xport_group *g, int64_t until)
{
	int64_t probe = svc_now_ms() + SVC_GROUP_PROBE_MS;
	uint8_t *there = g->scratch;
	struct svc_group_card card;
	int missing = 1, first, r;
	char text[256];

	for (int i = g->rank + 1; i < g->members; i++) {
		if (!svc_group_neighbours(g, i))
			continue;
		r = source_wait(g, CARD, i, &card, until);
		/* One that waited for long has connected itself, and that is taken. */
		if (r == XPORT_OK && g->member[i].state == SVC_MEMBER_ABSENT)
			r = svc_member_connect(g, i, &card, create_op);
		if (r != XPORT_OK)
			return r;
	}
	for (;;) {
		bool late = svc_now_ms() >= probe;

		missing = 0;
		first = -1;
		for (int i = 0; i < g->members; i++) {
			there[i] = !svc_group_neighbours(g, i) || g->member[i].state == SVC_MEMBER_OPEN;
			if (there[i])
				continue;
			missing++;
			first = first < 0 ? i : first;
			r = group_lost(g, i);
			if (r == XPORT_OK && late && i < g->rank && g->member[i].state == SVC_MEMBER_ABSENT)
				r = group_probe(g, i, until);
			if (r != XPORT_OK)
				return r;
		}
		if (late)
			probe = svc_now_ms() + SVC_GROUP_PROBE_MS;
		if (g->failed >= 0)
			return svc_group_error(g, create_op);
		if (missing == 0)
			return XPORT_OK;
		if (until >= 0 && svc_now_ms() >= until) {
			svc_group_list_ranks(there, g->members, text, sizeof(text));
			svc_group_fail(g, first, XPORT_ERR_TIMEOUT, "rank %d did not connect in time", first);
			return svc_fail(XPORT_ERR_TIMEOUT, create_op, "see the errors of these members",
			                "the group is not complete: no connection with %s", text);
		}
		r = svc_group_turn(g, svc_group_left(until, SVC_GROUP_SLICE_MS), create_op);
		if (r != XPORT_OK)
			return r;
	}
}

static int group_join(struct xport_group *g, const char *address, int timeout_ms)
{
	int64_t until = timeout_ms < 0 ? -1 : svc_now_ms() + timeout_ms;
	struct svc_group_card first;
	int r = group_listen(g, address);

	if (r == XPORT_OK)
		r = source_wait(g, OFFER, 0, NULL, until);
	if (r == XPORT_OK)
		r = source_wait(g, READY, 0, NULL, until);
	if (r == XPORT_OK)
		r = source_wait(g, FIRST, 0, &first, until);
	if (r != XPORT_OK)
		return r;
	g->id = first.own;
	svc_group_accept(g);
	g->joining = true;
	r = group_connect(g, until);
	if (r == XPORT_OK) {
		/* A member that is through may leave, and with it what the source has of it. */
		r = svc_coll_begin(g, SVC_GROUP_BARRIER, 0, 0);
		r = svc_coll_end(g, r == XPORT_OK ? svc_coll_barrier(g, until, create_op) : r, create_op);
	}
	g->joining = false;
	if (r == XPORT_OK && g->source->ops->joined != NULL)
		g->source->ops->joined(g->source);
	return r;
}

static struct xport_group *group_new(xport *x, const struct xport_group_attr *a, struct svc_group_source *source)
{
	struct xport_group *g = calloc(1, sizeof(*g));

	if (g == NULL)
		return NULL;
	g->x = x;
	g->source = source;
	g->rank = source->rank;
	g->members = source->members;
	g->spins = g->members <= sysconf(_SC_NPROCESSORS_ONLN) ? SVC_GROUP_SPINS : 0;
	g->failed = -1;
	g->tag = a->tag == 0 ? TAG : a->tag;
	g->other = a->other;
	g->arg = a->arg;
	g->put_end = &g->put;
	g->scratch_size = (size_t)g->members;
	g->scratch = malloc(g->scratch_size);
	g->member = calloc((size_t)g->members, sizeof(*g->member));
	svc_card_begin(&g->card);
	g->card.rank = g->rank;
	g->card.members = g->members;
	if (g->scratch == NULL || g->member == NULL) {
		free(g->scratch);
		free(g->member);
		free(g);
		return NULL;
	}
	pthread_mutex_init(&g->lock, NULL);
	return g;
}

int xport_group_create(xport *x, const struct xport_group_attr *attr, int timeout_ms, xport_group **group)
{
	struct svc_group_source *source;
	struct svc_group_choice choice;
	struct xport_group_attr a;
	struct xport_group *g;
	int r;

	if (x == NULL || group == NULL)
		return svc_fail(XPORT_ERR_INVALID, create_op, NULL, "%s is NULL", x == NULL ? "the instance" : "group");
	r = svc_grow_in(&a, sizeof(a), SVC_FIRST_GROUP_ATTR, attr, create_op, "xport_group_attr");
	if (r == XPORT_OK)
		r = svc_time_valid(timeout_ms, create_op);
	if (r == XPORT_OK && (uint32_t)a.tag != 0)
		r = svc_fail(XPORT_ERR_INVALID, create_op, "the lower 32 bits of the tag are the group's own",
		             "attr.tag is %#llx", (unsigned long long)a.tag);
	if (r == XPORT_OK)
		r = svc_group_choose(&a, &choice, create_op);
	if (r == XPORT_OK)
		r = svc_group_source_open(&choice, &source, create_op);
	if (r != XPORT_OK)
		return r;
	g = group_new(x, &a, source);
	if (g == NULL) {
		source->ops->close(source);
		return svc_fail(XPORT_ERR_NO_MEMORY, create_op, NULL, "out of memory");
	}
	pthread_mutex_lock(&g->lock);
	g->calling = true;
	r = group_join(g, a.address, timeout_ms);
	if (r != XPORT_OK) {
		struct xport_error e = {.size = sizeof(e)};

		/* What ends the group must not replace why it ends. */
		if (xport_services_last_error(&e) != XPORT_OK)
			e.status = r;
		/* Those that are connected would wait for this member. */
		svc_group_fail(g, g->rank, r, "rank %d could not join: %s", g->rank, xport_strerror(r));
		(void)group_close(g, SVC_GROUP_GRACE_MS, create_op);
		group_free(g);
		return svc_fail(r, create_op, e.hint, "%s", e.text);
	}
	svc_group_leave(g);
	pthread_mutex_unlock(&g->lock);
	*group = g;
	return XPORT_OK;
}

/* ---- what it is ---- */

int xport_group_step(xport_group *g, const struct xport_completion *c)
{
	int own = 0;

	if (g == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_group_step", NULL, "group is NULL");
	pthread_mutex_lock(&g->lock);
	if (c != NULL)
		own = svc_group_take(g, c);
	svc_group_accept(g);
	svc_group_spread(g);
	pthread_mutex_unlock(&g->lock);
	return own;
}

int xport_group_failed(xport_group *g)
{
	int rank;

	if (g == NULL)
		return -1;
	pthread_mutex_lock(&g->lock);
	rank = g->failed;
	pthread_mutex_unlock(&g->lock);
	return rank;
}

int xport_group_query(xport_group *g, struct xport_group_info *info)
{
	struct xport_group_info own = {.size = sizeof(own)};

	if (g == NULL || info == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_group_query", NULL, "%s is NULL",
		                g == NULL ? "group" : "info");
	if (!svc_grow_size(info->size, SVC_FIRST_GROUP_INFO))
		return svc_fail(XPORT_ERR_INVALID, "xport_group_query", "set it to sizeof(struct xport_group_info)",
		                "info.size is %zu", info->size);
	pthread_mutex_lock(&g->lock);
	own.rank = g->rank;
	own.members = g->members;
	own.failed = g->failed;
	own.status = g->status;
	for (int i = 0; i < g->members; i++)
		own.endpoints += g->member[i].state == SVC_MEMBER_OPEN;
	snprintf(own.source, sizeof(own.source), "%s", g->source->ops->name);
	memcpy(own.address, g->card.address, sizeof(own.address));
	memcpy(own.why, g->why, sizeof(own.why));
	pthread_mutex_unlock(&g->lock);
	svc_grow_out(info, &own, sizeof(own));
	return XPORT_OK;
}
