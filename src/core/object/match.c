/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/object/match.h"

#include <stdlib.h>
#include <sys/random.h>

#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/match_peer.h"
#include "core/object/mr.h"
#include "core/object/op.h"
#include "core/object/pieces.h"

enum { FIRST_LISTS = 256, FIRST_LISTS_MASKED = 16, MASKS = 8 };

/*
 * Lists by hash, as many as there are entries, or as many as there is memory for.  Entries of the same hash stay in the
 * order in which they came.
 */
struct table {
	struct xpi_list *lists;
	size_t mask; /* one less than the number of lists, a power of two */
	size_t n;
	const uint64_t *key;
	uint64_t (*hash)(const uint64_t *key, const struct xpi_list *link);
};

/* Receives that have one mask, by source and by the bits of the tag that it leaves. */
struct receives {
	struct table table;
	uint64_t mask;
	size_t sourced; /* how many name their source */
};

/* Where a receive stands: xpi_op.posted. */
enum { IN_EXACT = 1, IN_EXACT_MULTI, IN_REST, IN_PEERS, IN_MASKED /* and the index there */ };

struct xpi_match {
	uint64_t key[2];               /* random: peers choose tags, and must not know which of them share a list */
	uint64_t posted;               /* receives, ever: their order */
	size_t nmasked;                /* receives with other masks than all ones, and those for peers */
	struct receives exact;         /* those with all ones */
	struct receives masked[MASKS]; /* one for each other mask.  An empty one may take another mask */
	struct xpi_list rest;          /* receives for whose mask there was no place */
	struct xpi_peers peers;        /* receives for a peer */
	struct xpi_list arrival;       /* unexpected messages, */
	struct table tagged;           /* the same by tag, */
	struct table sent;             /* and by tag and sender, once a receive has named its source */
	bool by_sender;
};

/*
 * A folded multiplication, keyed: both halves of the product of 128 bits.  Whoever does not know the key cannot choose tags
 * that share a list, and tags in sequence spread like any others.
 */
static inline uint64_t hash_of(const uint64_t *key, uint64_t tag, const struct xport_ep *ep)
{
	unsigned __int128 product = (unsigned __int128)(tag ^ key[0]) * (key[1] ^ (uintptr_t)ep);

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_receive(const uint64_t *key, const struct xpi_list *link)
{
	const struct xpi_op *op = xpi_container(link, struct xpi_op, link);

	return hash_of(key, op->tag & op->mask, op->ep);
}

static uint64_t hash_tagged(const uint64_t *key, const struct xpi_list *link)
{
	return hash_of(key, xpi_container(link, struct xpi_unexpected, tagged)->tag, NULL);
}

static uint64_t hash_sent(const uint64_t *key, const struct xpi_list *link)
{
	const struct xpi_unexpected *u = xpi_container(link, struct xpi_unexpected, sent);

	return hash_of(key, u->tag, u->ep);
}

/* ---- the tables ---- */

static inline struct xpi_list *list_of(const struct table *t, uint64_t h)
{
	return &t->lists[h & t->mask];
}

static struct xpi_list *new_lists(size_t n)
{
	struct xpi_list *lists = malloc(n * sizeof(*lists));

	for (size_t i = 0; lists != NULL && i < n; i++)
		xpi_list_init(&lists[i]);
	return lists;
}

static bool table_init(struct table *t, size_t lists, const uint64_t *key,
                       uint64_t (*hash)(const uint64_t *key, const struct xpi_list *link))
{
	*t = (struct table){.lists = new_lists(lists), .mask = lists - 1, .key = key, .hash = hash};
	return t->lists != NULL;
}

/* Twice as many lists; without memory it goes on with those there are. */
static __attribute__((cold, noinline)) void grow(struct table *t)
{
	struct table old = *t;
	struct xpi_list *link;

	t->lists = new_lists(2 * (old.mask + 1));
	if (t->lists == NULL) {
		t->lists = old.lists;
		return;
	}
	t->mask = 2 * old.mask + 1;
	for (size_t i = 0; i <= old.mask; i++)
		while ((link = xpi_list_pop(&old.lists[i])) != NULL)
			xpi_list_push(list_of(t, t->hash(t->key, link)), link);
	free(old.lists);
}

static inline void match_add(struct table *t, struct xpi_list *link, uint64_t h)
{
	if (t->n > t->mask)
		grow(t);
	t->n++;
	xpi_list_push(list_of(t, h), link);
}

struct xpi_match *xpi_match_new(void)
{
	struct xpi_match *m = calloc(1, sizeof(*m));

	if (m == NULL)
		return NULL;
	xpi_list_init(&m->rest);
	xpi_peers_init(&m->peers);
	xpi_list_init(&m->arrival);
	m->exact.mask = UINT64_MAX;
	if (getrandom(m->key, sizeof(m->key), 0) != sizeof(m->key) ||
	    !table_init(&m->exact.table, FIRST_LISTS, m->key, hash_receive) ||
	    !table_init(&m->tagged, FIRST_LISTS, m->key, hash_tagged) ||
	    !table_init(&m->sent, FIRST_LISTS, m->key, hash_sent)) {
		xpi_match_free(m);
		return NULL;
	}
	m->key[1] |= 1; /* not 0 */
	return m;
}

static void close_receives(const struct xpi_list *receives)
{
	xpi_list_for(l, receives) {
		struct xpi_op *op = xpi_container(l, struct xpi_op, link);

		if (op->kind < XPI_OP_LIST)
			continue;
		if (op->kind >= XPI_OP_MULTI)
			free(op->buf);
		else
			xpi_pieces_free(xpi_pieces_of(op));
		op->buf = NULL;
	}
}

static void close_table(const struct table *t)
{
	for (size_t i = 0; t->lists != NULL && i <= t->mask; i++)
		close_receives(&t->lists[i]);
}

void xpi_match_close(struct xpi_match *m)
{
	close_receives(&m->rest);
	xpi_peers_close(&m->peers, close_receives);
	close_table(&m->exact.table);
	for (int i = 0; i < MASKS; i++)
		close_table(&m->masked[i].table);
}

void xpi_match_free(struct xpi_match *m)
{
	if (m == NULL)
		return;
	free(m->exact.table.lists);
	for (int i = 0; i < MASKS; i++)
		free(m->masked[i].table.lists);
	free(m->tagged.lists);
	free(m->sent.lists);
	free(m);
}

/* ---- receives ---- */

/* The receives of this mask.  NULL: no place for it, or no memory. */
static struct receives *of_mask(struct xpi_match *m, uint64_t mask)
{
	struct receives *place = NULL;

	for (int i = 0; i < MASKS; i++) {
		struct receives *r = &m->masked[i];

		if (r->table.n > 0 && r->mask == mask)
			return r;
		/* One that had this mask before is the best place: its table has grown as far as it is needed. */
		if (r->table.n == 0 && (place == NULL || (r->table.lists != NULL && r->mask == mask)))
			place = r;
	}
	if (place == NULL ||
	    (place->table.lists == NULL && !table_init(&place->table, FIRST_LISTS_MASKED, m->key, hash_receive)))
		return NULL;
	place->mask = mask;
	return place;
}

static inline void add_receive(struct xpi_match *m, struct receives *r, struct xpi_op *op)
{
	r->sourced += op->ep != NULL;
	match_add(&r->table, &op->link, hash_of(m->key, op->tag & op->mask, op->ep));
}

static void post_masked(struct xpi_match *m, struct xpi_op *op)
{
	struct receives *r = of_mask(m, op->mask);

	m->nmasked++;
	if (r == NULL) {
		op->posted = IN_REST;
		xpi_list_push(&m->rest, &op->link);
		return;
	}
	op->posted = (uint8_t)(IN_MASKED + (r - m->masked));
	add_receive(m, r, op);
}

void xpi_match_post(struct xpi_match *m, struct xpi_op *op)
{
	op->posted_as = m->posted++;
	if (op->mr != NULL)
		op->mr->posted++;
	if (op->ep != NULL)
		xpi_list_push(&op->ep->receives, &op->all);
	if (op->mask != UINT64_MAX) {
		post_masked(m, op);
		return;
	}
	op->posted = op->kind < XPI_OP_MULTI ? IN_EXACT : IN_EXACT_MULTI;
	add_receive(m, &m->exact, op);
}

bool xpi_match_post_peer(struct xpi_match *m, struct xpi_op *op, const struct xport_ep *ep)
{
	if (!xpi_peers_post(&m->peers, op, ep))
		return false;
	op->posted_as = m->posted++;
	op->posted = IN_PEERS;
	if (op->mr != NULL)
		op->mr->posted++;
	m->nmasked++;
	return true;
}

struct xpi_peers *xpi_match_peers(struct xpi_match *m)
{
	return &m->peers;
}

static inline bool match_fits(const struct xpi_op *op, const struct xport_ep *ep, uint64_t tag)
{
	return (op->ep == NULL || op->ep == ep) && ((tag ^ op->tag) & op->mask) == 0;
}

static inline struct xpi_op *first(struct xpi_list *list, struct xport_ep *ep, uint64_t tag)
{
	xpi_list_for(l, list) {
		struct xpi_op *op = xpi_container(l, struct xpi_op, link);

		if (match_fits(op, ep, tag))
			return op;
	}
	return NULL;
}

static inline struct xpi_op *older(struct xpi_op *a, struct xpi_op *b)
{
	return a == NULL || (b != NULL && b->posted_as < a->posted_as) ? b : a;
}

static void remove_masked(struct xpi_match *m, struct xpi_op *op)
{
	m->nmasked--;
	if (op->posted == IN_PEERS) {
		xpi_peers_remove(op);
	} else if (op->posted >= IN_MASKED) {
		struct receives *r = &m->masked[op->posted - IN_MASKED];

		r->sourced -= op->ep != NULL;
		r->table.n--;
	}
}

static inline void remove_receive(struct xpi_match *m, struct xpi_op *op)
{
	if (op->mr != NULL)
		op->mr->posted--;
	xpi_list_del(&op->link);
	if (op->ep != NULL)
		xpi_list_del(&op->all);
	if (op->posted <= IN_EXACT_MULTI) {
		m->exact.sourced -= op->ep != NULL;
		m->exact.table.n--;
	} else {
		remove_masked(m, op);
	}
	op->posted = 0;
}

/* One that takes many messages stays. */
static __attribute__((noinline)) void matched_other(struct xpi_match *m, struct xpi_op *op)
{
	if (op->kind < XPI_OP_MULTI)
		remove_receive(m, op);
}

/* The oldest one for the message, by any source and by this one. */
static inline struct xpi_op *first_of(const struct xpi_match *m, const struct receives *r, struct xport_ep *ep,
                                      uint64_t tag)
{
	uint64_t bits = tag & r->mask;
	struct xpi_op *op = first(list_of(&r->table, hash_of(m->key, bits, NULL)), ep, tag);

	return r->sourced > 0 ? older(op, first(list_of(&r->table, hash_of(m->key, bits, ep)), ep, tag)) : op;
}

/* The oldest one of those with masks. */
static __attribute__((noinline)) struct xpi_op *first_masked(struct xpi_match *m, struct xport_ep *ep, uint64_t tag)
{
	struct xpi_op *op = first(&m->rest, ep, tag);

	for (int i = 0; i < MASKS; i++)
		if (m->masked[i].table.n > 0)
			op = older(op, first_of(m, &m->masked[i], ep, tag));
	return older(op, xpi_peers_first(ep, tag));
}

struct xpi_op *xpi_match_receive(struct xpi_match *m, struct xport_ep *ep, uint64_t tag)
{
	struct xpi_op *op = first(list_of(&m->exact.table, hash_of(m->key, tag, NULL)), ep, tag);

	if (m->exact.sourced > 0)
		op = older(op, first(list_of(&m->exact.table, hash_of(m->key, tag, ep)), ep, tag));
	if (m->nmasked > 0)
		op = older(op, first_masked(m, ep, tag));
	if (op == NULL)
		return NULL;
	if (__builtin_expect(op->posted == IN_EXACT, 1))
		remove_receive(m, op);
	else
		matched_other(m, op);
	return op;
}

void xpi_match_remove(struct xpi_match *m, struct xpi_op *op)
{
	remove_receive(m, op);
}

/* ---- unexpected messages ---- */

void xpi_match_add(struct xpi_match *m, struct xpi_unexpected *u)
{
	match_add(&m->tagged, &u->tagged, hash_of(m->key, u->tag, NULL));
	if (m->by_sender)
		match_add(&m->sent, &u->sent, hash_of(m->key, u->tag, u->ep));
	xpi_list_push(&m->arrival, &u->arrival);
}

static struct xpi_unexpected *match_take(struct xpi_match *m, struct xpi_unexpected *u)
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

		match_add(&m->sent, &u->sent, hash_of(m->key, u->tag, u->ep));
	}
}

struct xpi_unexpected *xpi_match_message(struct xpi_match *m, struct xport_ep *ep, uint64_t tag, uint64_t mask)
{
	if (mask != UINT64_MAX) {
		xpi_list_for(l, &m->arrival) {
			struct xpi_unexpected *u = xpi_container(l, struct xpi_unexpected, arrival);

			if (((u->tag ^ tag) & mask) == 0 && (ep == NULL || ep == u->ep))
				return match_take(m, u);
		}
	} else if (ep == NULL) {
		xpi_list_for(l, list_of(&m->tagged, hash_of(m->key, tag, NULL))) {
			struct xpi_unexpected *u = xpi_container(l, struct xpi_unexpected, tagged);

			if (u->tag == tag)
				return match_take(m, u);
		}
	} else {
		if (!m->by_sender)
			sort_by_sender(m);
		xpi_list_for(l, list_of(&m->sent, hash_of(m->key, tag, ep))) {
			struct xpi_unexpected *u = xpi_container(l, struct xpi_unexpected, sent);

			if (u->tag == tag && u->ep == ep)
				return match_take(m, u);
		}
	}
	return NULL;
}

struct xpi_unexpected *xpi_match_message_peer(struct xpi_match *m, const struct xport_ep *ep, uint64_t tag,
                                              uint64_t mask)
{
	xpi_list_for(l, &m->arrival) {
		struct xpi_unexpected *u = xpi_container(l, struct xpi_unexpected, arrival);

		if (((u->tag ^ tag) & mask) == 0 && u->ep->peer.incarnation == ep->peer.incarnation)
			return match_take(m, u);
	}
	return NULL;
}

struct xpi_unexpected *xpi_match_message_from(struct xpi_match *m, const struct xpi_op *op, const struct xport_ep *peer,
                                              struct xpi_list **at)
{
	if (op->mask == UINT64_MAX && peer == NULL) /* by hash: those before it are few */
		return xpi_match_message(m, op->ep, op->tag, op->mask);
	for (struct xpi_list *l = *at != NULL ? *at : m->arrival.next; l != &m->arrival; l = l->next) {
		struct xpi_unexpected *u = xpi_container(l, struct xpi_unexpected, arrival);
		bool from = peer != NULL ? u->ep->peer.incarnation == peer->peer.incarnation
		                         : op->ep == NULL || op->ep == u->ep;

		if (from && ((u->tag ^ op->tag) & op->mask) == 0) {
			*at = l->next;
			return match_take(m, u);
		}
	}
	return NULL;
}

struct xpi_unexpected *xpi_match_withdrawn(struct xpi_match *m, struct xport_ep *ep, uint64_t tag, uint32_t rts)
{
	xpi_list_for(l, list_of(&m->tagged, hash_of(m->key, tag, NULL))) {
		struct xpi_unexpected *u = xpi_container(l, struct xpi_unexpected, tagged);

		if (u->ep == ep && u->rts == rts && u->tag == tag)
			return match_take(m, u);
	}
	return NULL;
}

void xpi_match_forget(struct xpi_match *m, struct xport_ep *ep, bool rts_only,
                      void (*drop)(struct xport *x, struct xpi_unexpected *u))
{
	xpi_list_for_safe(l, &m->arrival) {
		struct xpi_unexpected *u = xpi_container(l, struct xpi_unexpected, arrival);

		if (u->ep == ep && (!rts_only || u->rts != 0))
			drop(ep->x, match_take(m, u));
	}
}

/* The length of the list, or `than` if that is more. */
static size_t longer(const struct xpi_list *list, size_t than)
{
	size_t n = 0;

	xpi_list_for(l, list)
		n++;
	return n > than ? n : than;
}

static size_t longest_in(const struct table *t, size_t longest)
{
	for (size_t i = 0; t->lists != NULL && i <= t->mask; i++)
		longest = longer(&t->lists[i], longest);
	return longest;
}

size_t xpi_match_longest(const struct xpi_match *m)
{
	size_t longest = longest_in(&m->tagged, longest_in(&m->exact.table, longer(&m->rest, 0)));

	for (int i = 0; i < MASKS; i++)
		longest = longest_in(&m->masked[i].table, longest);
	return longest;
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

void xpi_msg_drop(struct xport *x, struct xpi_unexpected *u)
{
	(void)x;
	xpi_pool_put(u->pool, u);
}
