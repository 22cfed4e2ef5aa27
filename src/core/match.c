/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/match.h"

#include <stdlib.h>

#include "core/ep.h"
#include "core/mr.h"

enum { BUCKETS = 1024 };

struct xpi_match {
	uint64_t posted;              /* receives, ever: their order */
	struct xpi_list masked;       /* receives with a mask */
	struct xpi_list arrival;      /* unexpected messages */
	struct xpi_list exact[BUCKETS];
	struct xpi_list unexpected[BUCKETS];
};

static unsigned bucket(uint64_t tag)
{
	return (unsigned)((tag * UINT64_C(0x9e3779b97f4a7c15)) >> 54) % BUCKETS;
}

struct xpi_match *xpi_match_new(void)
{
	struct xpi_match *m = malloc(sizeof(*m));

	if (m == NULL)
		return NULL;
	m->posted = 0;
	xpi_list_init(&m->masked);
	xpi_list_init(&m->arrival);
	for (unsigned i = 0; i < BUCKETS; i++) {
		xpi_list_init(&m->exact[i]);
		xpi_list_init(&m->unexpected[i]);
	}
	return m;
}

void xpi_match_free(struct xpi_match *m)
{
	free(m);
}

void xpi_match_post(struct xpi_match *m, struct xpi_op *op)
{
	op->order = m->posted++;
	op->posted = true;
	if (op->mr != NULL)
		op->mr->posted++;
	xpi_list_push(op->mask == UINT64_MAX ? &m->exact[bucket(op->tag)] : &m->masked, &op->link);
	if (op->ep != NULL)
		xpi_list_push(&op->ep->receives, &op->all);
}

static bool fits(const struct xpi_op *op, const struct xport_ep *ep, uint64_t tag)
{
	return (op->ep == NULL || op->ep == ep) && ((tag ^ op->tag) & op->mask) == 0;
}

static struct xpi_op *first(struct xpi_list *list, struct xport_ep *ep, uint64_t tag)
{
	xpi_list_for(l, list) {
		struct xpi_op *op = xpi_container(l, struct xpi_op, link);

		if (fits(op, ep, tag))
			return op;
	}
	return NULL;
}

struct xpi_op *xpi_match_receive(struct xpi_match *m, struct xport_ep *ep, uint64_t tag)
{
	struct xpi_op *a = first(&m->exact[bucket(tag)], ep, tag);
	struct xpi_op *b = xpi_list_empty(&m->masked) ? NULL : first(&m->masked, ep, tag);

	if (a == NULL || (b != NULL && b->order < a->order))
		a = b;
	if (a == NULL)
		return NULL;
	xpi_match_remove(a);
	return a;
}

void xpi_match_remove(struct xpi_op *op)
{
	op->posted = false;
	if (op->mr != NULL)
		op->mr->posted--;
	xpi_list_del(&op->link);
	if (op->ep != NULL)
		xpi_list_del(&op->all);
}

void xpi_match_add(struct xpi_match *m, struct xpi_unexpected *u)
{
	xpi_list_push(&m->unexpected[bucket(u->tag)], &u->bucket);
	xpi_list_push(&m->arrival, &u->arrival);
}

static struct xpi_unexpected *take(struct xpi_unexpected *u)
{
	xpi_list_del(&u->bucket);
	xpi_list_del(&u->arrival);
	return u;
}

struct xpi_unexpected *xpi_match_message(struct xpi_match *m, struct xport_ep *ep, uint64_t tag, uint64_t mask)
{
	if (mask == UINT64_MAX) {
		xpi_list_for(l, &m->unexpected[bucket(tag)]) {
			struct xpi_unexpected *u = xpi_container(l, struct xpi_unexpected, bucket);

			if (u->tag == tag && (ep == NULL || ep == u->ep))
				return take(u);
		}
		return NULL;
	}
	xpi_list_for(l, &m->arrival) {
		struct xpi_unexpected *u = xpi_container(l, struct xpi_unexpected, arrival);

		if (((u->tag ^ tag) & mask) == 0 && (ep == NULL || ep == u->ep))
			return take(u);
	}
	return NULL;
}

void xpi_match_forget(struct xpi_match *m, struct xport_ep *ep, bool rts_only,
                      void (*drop)(struct xport *x, struct xpi_unexpected *u))
{
	xpi_list_for_safe(l, &m->arrival) {
		struct xpi_unexpected *u = xpi_container(l, struct xpi_unexpected, arrival);

		if (u->ep == ep && (!rts_only || u->rts != 0))
			drop(ep->x, take(u));
	}
}

uint64_t xpi_match_waiting(const struct xpi_match *m, const struct xport_ep *ep)
{
	uint64_t n = 0;

	xpi_list_for(l, &m->arrival)
		n += ep == NULL || xpi_container(l, struct xpi_unexpected, arrival)->ep == ep;
	return n;
}
