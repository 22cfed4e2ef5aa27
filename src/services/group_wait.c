/* SPDX-License-Identifier: BSD-3-Clause */
/* Progress of a group, and its failure. */
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "services/clock.h"
#include "services/group.h"
#include "services/last_error.h"
#include "services/wire.h"

enum { SPINS_ALONE = 40, SPINS_A_YIELD = 20 };

int svc_group_enter(struct xport_group *g, const char *operation)
{
	if (g->calling)
		return svc_fail(XPORT_ERR_BUSY, operation, "wait until it has returned",
		                "another thread is in a call on the group");
	g->calling = true;
	return XPORT_OK;
}

void svc_group_leave(struct xport_group *g)
{
	g->calling = false;
}

int svc_group_left(int64_t until, int most)
{
	int64_t left = until < 0 ? most : until - svc_now_ms();

	return left < 0 ? 0 : left > most ? most : (int)left;
}

/*
 * Polls for a moment before it sleeps: members call at about the same time, and to be woken takes longer than a message. Other
 * processes of this core go first: the member that is waited for may be among them.
 */
static int group_spin(struct xport_group *g, struct xport_completion *list)
{
	for (int i = 0; i < g->spins; i++) {
		int n = xport_poll(g->x, list, SVC_GROUP_BATCH);

		if (n != 0)
			return n;
		if (i >= SPINS_ALONE && i % SPINS_A_YIELD == 0)
			sched_yield();
	}
	return 0;
}

int svc_group_turn(struct xport_group *g, int ms, const char *operation)
{
	struct xport_completion list[SVC_GROUP_BATCH];
	int n;

	pthread_mutex_unlock(&g->lock);
	n = ms > 0 ? group_spin(g, list) : 0;
	if (n == 0)
		n = xport_wait(g->x, list, SVC_GROUP_BATCH, ms);
	pthread_mutex_lock(&g->lock);
	if (g->joining && g->source->ops->keep != NULL)
		g->source->ops->keep(g->source);
	if (n < 0)
		return svc_pass(g->x, n, operation);
	for (int i = 0; i < n; i++) {
		if (svc_group_take(g, &list[i]) || g->other == NULL)
			continue;
		pthread_mutex_unlock(&g->lock);
		g->other(g->arg, &list[i]);
		pthread_mutex_lock(&g->lock);
	}
	/* XPORT_EVENT_INCOMING may have gone to a thread that did not pass it on. */
	if (n == 0)
		svc_group_accept(g);
	svc_group_spread(g);
	return XPORT_OK;
}

void svc_group_hear(struct xport_group *g, const char *operation)
{
	int64_t until = svc_now_ms() + SVC_GROUP_HEAR_MS;

	while (g->failed < 0 && svc_now_ms() < until)
		if (svc_group_turn(g, 1, operation) != XPORT_OK)
			return;
}

/* ---- completions ---- */

static bool within(const void *p, const void *base, size_t bytes)
{
	return (uintptr_t)p >= (uintptr_t)base && (uintptr_t)p < (uintptr_t)base + bytes;
}

static bool take_operation(struct xport_group *g, const struct xport_completion *c)
{
	struct svc_group_op *op = c->context;
	bool own = within(op, g->member, (size_t)g->members * sizeof(*g->member));

	if (!own && !within(op, g->op, sizeof(g->op)))
		return false;
	op->status = c->status;
	op->length = c->length;
	if (op->recv && c->status == XPORT_OK)
		op->tag = c->tag;
	op->busy = false;
	if (own)
		svc_member_done(g, op->rank, op);
	return true;
}

bool svc_group_take(struct xport_group *g, const struct xport_completion *c)
{
	/* A connection that another one has replaced: it had this context until it was open. */
	bool dropped = within(c->context, g->member, (size_t)g->members * sizeof(*g->member));
	int rank, state;

	switch (c->type) {
	case XPORT_OP_SEND:
	case XPORT_OP_RECV:
		return take_operation(g, c);
	case XPORT_EVENT_INCOMING:
		if (c->context != g->listener)
			return false;
		svc_group_accept(g);
		return true;
	case XPORT_EVENT_CONNECTED:
		rank = svc_member_find(g, c->ep);
		if (rank >= 0)
			svc_member_connected(g, rank);
		return rank >= 0 || dropped;
	case XPORT_EVENT_LOST:
	case XPORT_EVENT_CLOSED:
		rank = svc_member_find(g, c->ep);
		if (rank < 0)
			return dropped;
		state = g->member[rank].state;
		g->late |= g->member[rank].closing && c->status == XPORT_ERR_TIMEOUT;
		g->member[rank].closing = false;
		svc_member_ended(g, rank, c->status == XPORT_OK ? XPORT_ERR_CLOSED : c->status);
		/* The application has not seen one that was never open. */
		return state == SVC_MEMBER_CONNECTING || state == SVC_MEMBER_ASKING;
	default:
		return false;
	}
}

/* ---- failure ---- */

int svc_group_error(struct xport_group *g, const char *operation)
{
	return svc_fail(g->status, operation, "destroy the group, and make a new one of the members that are left",
	                "%s", g->why);
}

void svc_group_spread(struct xport_group *g)
{
	for (int i = 0; g->confirms > 0 && i < g->members; i++)
		if (g->member[i].confirms)
			svc_member_confirm(g, i);
	if (g->failed < 0)
		return;
	for (int i = 0; i < g->members; i++) {
		struct svc_member *m = &g->member[i];
		struct xpi_wr w = xpi_wr(m->out, sizeof(m->out));

		if (m->told || m->state != SVC_MEMBER_OPEN || m->news_out.busy)
			continue;
		xpi_wr_u32(&w, (uint32_t)g->failed);
		xpi_wr_u32(&w, (uint32_t)g->status);
		xpi_wr_u32(&w, (uint32_t)g->rank);
		/* AGAIN: the application has filled the queue; the next turn tries again. */
		m->told = svc_group_post(g, &m->news_out, i, false, m->out, sizeof(m->out), g->tag | SVC_GROUP_NEWS,
		                         0) != XPORT_ERR_AGAIN;
	}
}

void svc_group_fail(struct xport_group *g, int rank, int status, const char *fmt, ...)
{
	va_list ap;

	if (g->failed >= 0)
		return;
	g->failed = rank;
	g->status = svc_group_status_valid(status) ? status : XPORT_ERR_SYSTEM;
	va_start(ap, fmt);
	vsnprintf(g->why, sizeof(g->why), fmt, ap);
	va_end(ap);
	svc_group_spread(g);
}
