/* SPDX-License-Identifier: BSD-3-Clause */
#include "match_shim.h"

#include <stdlib.h>

#include "core/object/ep.h"
#include "core/object/match.h"
#include "core/object/op.h"

enum { IDS = 1 << 18 };

struct match_shim {
	struct xport x;
	struct xport_ep *eps;
	struct xpi_op *receives[IDS];
	int peers, dropped;
};

/* A message has its number in `length`. */
static void drop(struct xport *x, struct xpi_unexpected *u)
{
	((struct match_shim *)x)->dropped++; /* x is its first member */
	free(u);
}

struct match_shim *match_shim_new(int peers)
{
	struct match_shim *s = calloc(1, sizeof(*s));

	if (s == NULL)
		abort();
	s->x.match = xpi_match_new();
	s->eps = calloc((size_t)peers, sizeof(*s->eps));
	s->peers = peers;
	if (s->x.match == NULL || s->eps == NULL)
		abort();
	for (int i = 0; i < peers; i++) {
		s->eps[i].x = &s->x;
		xpi_list_init(&s->eps[i].receives);
	}
	return s;
}

void match_shim_free(struct match_shim *s)
{
	for (int i = 0; i < s->peers; i++)
		match_shim_forget(s, i);
	for (int i = 0; i < IDS; i++)
		match_shim_cancel(s, i);
	xpi_match_free(s->x.match);
	free(s->eps);
	free(s);
}

static struct xport_ep *ep_of(const struct match_shim *s, int peer)
{
	return peer == SHIM_ANY ? NULL : &s->eps[peer];
}

int match_shim_receive(struct match_shim *s, int id, int peer, uint64_t tag, uint64_t mask)
{
	struct xpi_unexpected *u = xpi_match_message(s->x.match, ep_of(s, peer), tag, mask);
	struct xpi_op *op;

	if (u != NULL) {
		int found = (int)u->length;

		free(u);
		return found;
	}
	op = calloc(1, sizeof(*op));
	if (op == NULL || id >= IDS)
		abort();
	op->ep = ep_of(s, peer);
	op->tag = tag;
	op->mask = mask;
	op->len = (uint64_t)id;
	s->receives[id] = op;
	xpi_match_post(s->x.match, op);
	return SHIM_NONE;
}

int match_shim_message(struct match_shim *s, int id, int peer, uint64_t tag)
{
	struct xpi_op *op = xpi_match_receive(s->x.match, ep_of(s, peer), tag);
	struct xpi_unexpected *u;

	if (op != NULL) {
		int found = (int)op->len;

		s->receives[found] = NULL;
		free(op);
		return found;
	}
	u = calloc(1, sizeof(*u));
	if (u == NULL)
		abort();
	u->ep = ep_of(s, peer);
	u->tag = tag;
	u->length = (uint64_t)id;
	xpi_match_add(s->x.match, u);
	return SHIM_NONE;
}

void match_shim_cancel(struct match_shim *s, int id)
{
	if (s->receives[id] == NULL)
		return;
	xpi_match_remove(s->x.match, s->receives[id]);
	free(s->receives[id]);
	s->receives[id] = NULL;
}

int match_shim_forget(struct match_shim *s, int peer)
{
	s->dropped = 0;
	xpi_match_forget(s->x.match, &s->eps[peer], false, drop);
	return s->dropped;
}

uint64_t match_shim_waiting(const struct match_shim *s, int peer)
{
	return xpi_match_waiting(s->x.match, ep_of(s, peer));
}

uint64_t match_shim_longest(const struct match_shim *s)
{
	return xpi_match_longest(s->x.match);
}
