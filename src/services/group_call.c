/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a member calls, compared with what others call. Members that call different operations may wait for messages that
 * nobody sends. So a member that has waited for a while sends its call to the member that it waits for. That one compares:
 * at once if it has made the call of this number, else when it makes it.
 */
#include <stdio.h>

#include "services/group.h"
#include "services/wire.h"

enum { NUMBERS = 0xffffff };

static bool call_same(const struct svc_group_call *a, const struct svc_group_call *b)
{
	return a->kind == b->kind && a->detail == b->detail && a->length == b->length;
}

static void call_text(const struct svc_group_call *c, char *text, size_t size)
{
	unsigned long long length = c->length;

	switch (c->kind) {
	case SVC_GROUP_BARRIER:
		snprintf(text, size, "xport_group_barrier");
		break;
	case SVC_GROUP_BROADCAST:
		snprintf(text, size, "xport_group_broadcast of %llu bytes of rank %u", length, c->detail);
		break;
	case SVC_GROUP_ALLGATHER:
		snprintf(text, size, "xport_group_allgather of %llu bytes", length);
		break;
	case SVC_GROUP_ALLREDUCE:
		snprintf(text, size, "xport_group_allreduce of %llu bytes (type %u, op %u)", length, c->detail >> 8,
		         c->detail & 0xff);
		break;
	case SVC_GROUP_FENCE:
		snprintf(text, size, "xport_group_fence");
		break;
	default:
		snprintf(text, size, "an unknown operation");
	}
}

/* Compares the call of this member with that of another one, which has the same number. */
static void call_compare(struct xport_group *g, const struct svc_group_call *own, int other,
                         const struct svc_group_call *theirs)
{
	char mine[80], that[80];

	if (call_same(own, theirs))
		return;
	call_text(own, mine, sizeof(mine));
	call_text(theirs, that, sizeof(that));
	svc_group_fail(g, other, XPORT_ERR_PROTOCOL, "members made different calls: rank %d %s, and rank %d %s", other,
	               that, g->rank, mine);
}

void svc_call_begin(struct xport_group *g, int kind, uint32_t detail, uint64_t length)
{
	struct svc_group_call *own;

	g->number = g->number % NUMBERS + 1;
	g->kind = kind;
	own = &g->call[g->number % SVC_GROUP_CALLS];
	*own = (struct svc_group_call){.number = g->number, .kind = kind, .detail = detail, .length = length};
	for (int i = 0; g->asked > 0 && i < g->members; i++) {
		struct svc_member *m = &g->member[i];

		if (m->asked.number != g->number)
			continue;
		m->asked.number = 0;
		g->asked--;
		call_compare(g, own, i, &m->asked);
	}
}

bool svc_call_ask(struct xport_group *g, int rank)
{
	const struct svc_group_call *own = &g->call[g->number % SVC_GROUP_CALLS];
	struct svc_member *m = &g->member[rank];
	struct xpi_wr w = xpi_wr(m->call, sizeof(m->call));

	if (m->state != SVC_MEMBER_OPEN)
		return true;
	if (m->call_out.busy)
		return false;
	xpi_wr_u32(&w, own->number);
	xpi_wr_u32(&w, (uint32_t)own->kind);
	xpi_wr_u32(&w, own->detail);
	xpi_wr_u64(&w, own->length);
	return svc_group_post(g, &m->call_out, rank, false, m->call, sizeof(m->call), g->tag | SVC_GROUP_NEWS, 0) !=
	       XPORT_ERR_AGAIN;
}

bool svc_call_asked(struct xport_group *g, int from, const uint8_t *bytes, size_t len)
{
	struct xpi_rd r = xpi_rd(bytes, len);
	struct svc_group_call theirs = {.number = xpi_rd_u32(&r)};
	struct svc_member *m = &g->member[from];
	const struct svc_group_call *own;
	uint32_t ahead;

	theirs.kind = (int)xpi_rd_u32(&r);
	theirs.detail = xpi_rd_u32(&r);
	theirs.length = xpi_rd_u64(&r);
	if (r.bad || r.left != 0 || theirs.number < 1 || theirs.number > NUMBERS)
		return false;
	ahead = (theirs.number + NUMBERS - g->number) % NUMBERS;
	if (ahead > 0 && ahead < NUMBERS / 2) {
		g->asked += m->asked.number == 0;
		m->asked = theirs;
		return true;
	}
	/* An older call was the same, or has failed, or its messages are all sent. */
	own = &g->call[theirs.number % SVC_GROUP_CALLS];
	if (own->number == theirs.number)
		call_compare(g, own, from, &theirs);
	return true;
}
