/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/match.h"

#include <stdlib.h>

#include "core/ep.h"
#include "core/mr.h"

enum { FIRST_BITS = 8 };

/*
 * Lists by hash, as many as there are entries, or as many as there is memory for.  Entries of the same hash stay in the
 * order in which they came.
 */
struct table {
	struct xpi_list *lists;
	unsigned bits; /* 2^bits lists */
	size_t n;
	uint64_t (*hash)(const struct xpi_list *link);
};

struct xpi_match {
	uint64_t posted;         /* receives, ever: their order */
	size_t sourced;          /* of those in `exact`, how many name their source */
	struct xpi_list masked;  /* receives with a mask */
	struct table exact;      /* receives, by tag and source */
	struct xpi_list arrival; /* unexpected messages, */
	struct table tagged;     /* the same by tag, */
	struct table sent;       /* and by tag and sender, once a receive has named its source */
	bool by_sender;
};

static inline uint64_t hash_of(uint64_t tag, const struct xport_ep *ep)
{
	return (tag ^ (uintptr_t)ep * UINT64_C(0xff51afd7ed558ccd)) * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t hash_receive(const struct xpi_list *link)
{
	const struct xpi_op *op = xpi_container(link, struct xpi_op, link);

	return hash_of(op->tag, op->ep);
}

static uint64_t hash_tagged(const struct xpi_list *link)
{
	return hash_of(xpi_container(link, struct xpi_unexpected, tagged)->tag, NULL);
}

static uint64_t hash_sent(const struct xpi_list *link)
{
	const struct xpi_unexpected *u = xpi_container(link, struct xpi_unexpected, sent);

	return hash_of(u->tag, u->ep);
}

/* ---- the tables ---- */

static inline struct xpi_list *list_of(const struct table *t, uint64_t h)
{
	return &t->lists[h >> (64 - t->bits)];
}

static struct xpi_list *new_lists(unsigned bits)
{
	struct xpi_list *lists = malloc(sizeof(*lists) << bits);

	for (size_t i = 0; lists != NULL && i < (size_t)1 << bits; i++)
		xpi_list_init(&lists[i]);
	return lists;
}

static bool table_init(struct table *t, uint64_t (*hash)(const struct xpi_list *link))
{
	*t = (struct table){.lists = new_lists(FIRST_BITS), .bits = FIRST_BITS, .hash = hash};
	return t->lists != NULL;
}

/* Twice as many lists; without memory it goes on with those there are. */
static __attribute__((cold, noinline)) void grow(struct table *t)
{
	struct table old = *t;
	struct xpi_list *link;

	t->lists = new_lists(old.bits + 1);
	if (t->lists == NULL) {
		t->lists = old.lists;
		return;
	}
	t->bits++;
	for (size_t i = 0; i < (size_t)1 << old.bits; i++)
		while ((link = xpi_list_pop(&old.lists[i])) != NULL)
			xpi_list_push(list_of(t, t->hash(link)), link);
	free(old.lists);
}

static inline void add(struct table *t, struct xpi_list *link, uint64_t h)
{
	if (t->n >> t->bits != 0)
		grow(t);
	t->n++;
	xpi_list_push(list_of(t, h), link);
}

struct xpi_match *xpi_match_new(void)
{
	struct xpi_match *m = calloc(1, sizeof(*m));

	if (m == NULL)
		return NULL;
	xpi_list_init(&m->masked);
	xpi_list_init(&m->arrival);
	if (!table_init(&m->exact, hash_receive) || !table_init(&m->tagged, hash_tagged) ||
	    !table_init(&m->sent, hash_sent)) {
		xpi_match_free(m);
		return NULL;
	}
	return m;
}

void xpi_match_free(struct xpi_match *m)
{
	if (m == NULL)
		return;
	free(m->exact.lists);
	free(m->tagged.lists);
	free(m->sent.lists);
	free(m);
}

/* ---- receives ---- */

void xpi_match_post(struct xpi_match *m, struct xpi_op *op)
{
	op->posted_as = m->posted++;
	op->posted = true;
	if (op->mr != NULL)
		op->mr->posted++;
	if (op->ep != NULL)
		xpi_list_push(&op->ep->receives, &op->all);
	if (op->mask != UINT64_MAX) {
		xpi_list_push(&m->masked, &op->link);
		return;
	}
	m->sourced += op->ep != NULL;
	add(&m->exact, &op->link, hash_of(op->tag, op->ep));
}

static inline bool fits(const struct xpi_op *op, const struct xport_ep *ep, uint64_t tag)
{
	return (op->ep == NULL || op->ep == ep) && ((tag ^ op->tag) & op->mask) == 0;
}

static inline struct xpi_op *first(struct xpi_list *list, struct xport_ep *ep, uint64_t tag)
{
	xpi_list_for(l, list) {
		struct xpi_op *op = xpi_container(l, struct xpi_op, link);

		if (fits(op, ep, tag))
			return op;
	}
	return NULL;
}

static inline struct xpi_op *older(struct xpi_op *a, struct xpi_op *b)
{
	return a == NULL || (b != NULL && b->posted_as < a->posted_as) ? b : a;
}

static inline void remove_receive(struct xpi_match *m, struct xpi_op *op)
{
	op->posted = false;
	if (op->mr != NULL)
		op->mr->posted--;
	xpi_list_del(&op->link);
	if (op->ep != NULL)
		xpi_list_del(&op->all);
	if (op->mask == UINT64_MAX) {
		m->sourced -= op->ep != NULL;
		m->exact.n--;
	}
}

struct xpi_op *xpi_match_receive(struct xpi_match *m, struct xport_ep *ep, uint64_t tag)
{
	struct xpi_op *op = first(list_of(&m->exact, hash_of(tag, NULL)), ep, tag);

	if (m->sourced > 0)
		op = older(op, first(list_of(&m->exact, hash_of(tag, ep)), ep, tag));
	if (!xpi_list_empty(&m->masked))
		op = older(op, first(&m->masked, ep, tag));
	if (op != NULL)
		remove_receive(m, op);
	return op;
}

void xpi_match_remove(struct xpi_match *m, struct xpi_op *op)
{
	remove_receive(m, op);
}

/* ---- unexpected messages ---- */

void xpi_match_add(struct xpi_match *m, struct xpi_unexpected *u)
{
	add(&m->tagged, &u->tagged, hash_of(u->tag, NULL));
	if (m->by_sender)
		add(&m->sent, &u->sent, hash_of(u->tag, u->ep));
	xpi_list_push(&m->arrival, &u->arrival);
}

static struct xpi_unexpected *take(struct xpi_match *m, struct xpi_unexpected *u)
{
	xpi_list_del(&u->tagged);
	xpi_list_del(&u->arrival);
	m->tagged.n--;
	if (m->by_sender) {
		xpi_list_del(&u->sent);
		m->sent.n--;
	}
	return u;
}

/* Most never name a source, and each table that many messages stand in costs each of them misses of the cache. */
static __attribute__((cold, noinline)) void sort_by_sender(struct xpi_match *m)
{
	m->by_sender = true;
	xpi_list_for(l, &m->arrival) {
		struct xpi_unexpected *u = xpi_container(l, struct xpi_unexpected, arrival);

		add(&m->sent, &u->sent, hash_of(u->tag, u->ep));
	}
}

struct xpi_unexpected *xpi_match_message(struct xpi_match *m, struct xport_ep *ep, uint64_t tag, uint64_t mask)
{
	if (mask != UINT64_MAX) {
		xpi_list_for(l, &m->arrival) {
			struct xpi_unexpected *u = xpi_container(l, struct xpi_unexpected, arrival);

			if (((u->tag ^ tag) & mask) == 0 && (ep == NULL || ep == u->ep))
				return take(m, u);
		}
	} else if (ep == NULL) {
		xpi_list_for(l, list_of(&m->tagged, hash_of(tag, NULL))) {
			struct xpi_unexpected *u = xpi_container(l, struct xpi_unexpected, tagged);

			if (u->tag == tag)
				return take(m, u);
		}
	} else {
		if (!m->by_sender)
			sort_by_sender(m);
		xpi_list_for(l, list_of(&m->sent, hash_of(tag, ep))) {
			struct xpi_unexpected *u = xpi_container(l, struct xpi_unexpected, sent);

			if (u->tag == tag && u->ep == ep)
				return take(m, u);
		}
	}
	return NULL;
}

void xpi_match_forget(struct xpi_match *m, struct xport_ep *ep, bool rts_only,
                      void (*drop)(struct xport *x, struct xpi_unexpected *u))
{
	xpi_list_for_safe(l, &m->arrival) {
		struct xpi_unexpected *u = xpi_container(l, struct xpi_unexpected, arrival);

		if (u->ep == ep && (!rts_only || u->rts != 0))
			drop(ep->x, take(m, u));
	}
}

uint64_t xpi_match_waiting(const struct xpi_match *m, const struct xport_ep *ep)
{
	uint64_t n = 0;

	if (ep == NULL)
		return m->tagged.n;
	xpi_list_for(l, &m->arrival)
		n += xpi_container(l, struct xpi_unexpected, arrival)->ep == ep;
	return n;
}
