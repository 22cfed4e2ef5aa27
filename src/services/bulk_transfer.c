/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers: their queue, their operations, and their ends. */
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "services/bulk.h"
#include "services/clock.h"
#include "services/last_error.h"

static const char EXPIRED[] = "the deadline expired";

/* ---- peers ---- */

static struct svc_bulk_peer **peer_at(struct xport_bulks *b, const xport_ep *ep)
{
	struct svc_bulk_peer **at =
		&b->bucket[((uint64_t)(uintptr_t)ep * 0x9e3779b97f4a7c15u >> 32) % SVC_BULK_BUCKETS];

	while (*at != NULL && (*at)->ep != ep)
		at = &(*at)->next;
	return at;
}

/* NULL: out of memory. */
static struct svc_bulk_peer *bulk_peer(struct xport_bulks *b, xport_ep *ep)
{
	struct svc_bulk_peer **at = peer_at(b, ep), *p = *at;

	if (p != NULL || (p = calloc(1, sizeof(*p))) == NULL)
		return p;
	p->ep = ep;
	svc_ring_init(&p->turn);
	svc_ring_init(&p->queue);
	*at = p;
	return p;
}

static void peer_let(struct xport_bulks *b, struct svc_bulk_peer *p)
{
	if (--p->transfers > 0)
		return;
	*peer_at(b, p->ep) = p->next;
	svc_ring_remove(&p->turn);
	free(p);
}

/* ---- the end of a transfer ---- */

static void transfer_event(struct xport_bulks *b, struct svc_bulk_transfer *t)
{
	if (svc_ring_empty(&t->event))
		svc_ring_push(&b->events, &t->event);
	atomic_store_explicit(&b->any_event, true, memory_order_relaxed);
}

void svc_bulk_transfer_fini(struct xport_bulks *b, struct svc_bulk_transfer *t)
{
	if (t->id == 0)
		return;
	svc_ring_remove(&t->event);
	svc_ring_remove(&t->open);
	svc_ring_remove(&t->of_peer);
	if (t->bulk != NULL)
		peer_let(b, t->peer);
	xport_bulk_free(t->bulk);
	if (t->local != t->few)
		free(t->local);
	svc_slot_give(&b->slots, t->id);
	t->id = 0;
}

static void queue_leave(struct xport_bulks *b, struct svc_bulk_transfer *t)
{
	if (svc_ring_empty(&t->of_peer))
		return;
	svc_ring_remove(&t->of_peer);
	b->info.waiting--;
	if (svc_ring_empty(&t->peer->queue))
		svc_ring_remove(&t->peer->turn);
}

static void transfer_done(struct xport_bulks *b, struct svc_bulk_transfer *t)
{
	svc_ring_remove(&t->open);
	t->done = true;
	b->info.done++;
	b->info.failed += t->status != XPORT_OK;
	transfer_event(b, t);
}

uint64_t svc_bulk_sum(const struct xport_iov *local, size_t nlocal)
{
	XXH3_state_t state;

	XXH3_64bits_reset(&state);
	for (size_t i = 0; i < nlocal; i++)
		XXH3_64bits_update(&state, local[i].addr, local[i].len);
	return XXH3_64bits_digest(&state);
}

/* All bytes of a pull are here, and have this checksum. */
static void pull_verify(struct svc_bulk_transfer *t, uint64_t sum)
{
	t->sum = sum;
	t->checked = t->whole && t->sum == t->bulk->d.sum;
	if (!t->whole || t->checked)
		return;
	t->status = XPORT_ERR_PROTOCOL;
	t->why = "the bytes do not have the owner's checksum: they were changed or damaged";
}

/* Nothing of it is in flight, nor will be: the descriptor is no longer needed. */
static void transfer_idle(struct xport_bulks *b, struct svc_bulk_transfer *t)
{
	struct svc_bulk_peer *p = t->peer;

	if (t->in_flight > 0 || t->bulk == NULL || (t->left > 0 && t->status == XPORT_OK))
		return;
	xport_bulk_free(t->bulk);
	t->bulk = NULL;
	t->peer = NULL;
	if (!svc_ring_empty(&t->open)) {
		transfer_done(b, t);
	} else if (!t->done) { /* DONE was taken while something was in flight */
		t->released = true;
		transfer_event(b, t);
	}
	peer_let(b, p);
}

/* Posts nothing more of it. DONE follows when its operations have completed. */
static void transfer_fail(struct xport_bulks *b, struct svc_bulk_transfer *t, int status, const char *why)
{
	if (t->status != XPORT_OK)
		return;
	queue_leave(b, t);
	t->status = status;
	t->why = why;
	transfer_idle(b, t);
}

void svc_bulk_end(struct xport_bulks *b, struct svc_bulk_transfer *t, int status, const char *why)
{
	transfer_fail(b, t, status, why);
	if (!svc_ring_empty(&t->open))
		transfer_done(b, t);
}

void svc_bulk_peer_ended(struct xport_bulks *b, const xport_ep *ep, int status)
{
	struct svc_bulk_peer *p = *peer_at(b, ep);

	if (p == NULL)
		return;
	p->transfers++; /* it stays meanwhile */
	while (!svc_ring_empty(&p->queue))
		transfer_fail(b, SVC_OF(p->queue.next, struct svc_bulk_transfer, of_peer), status,
		              xport_strerror(status));
	peer_let(b, p);
}

bool svc_bulk_event(struct xport_bulks *b, struct xport_bulk_event *event)
{
	struct svc_bulk_transfer *t;

	if (svc_ring_empty(&b->events))
		return false;
	t = SVC_OF(b->events.next, struct svc_bulk_transfer, event);
	event->type = t->done ? XPORT_BULK_DONE : XPORT_BULK_RELEASED;
	event->id = t->id;
	event->context = t->context;
	event->ep = t->ep;
	event->moved = t->moved;
	if (t->done) {
		event->status = t->status;
		event->why = t->why;
		event->released = t->bulk == NULL;
		event->checked = t->checked;
		event->sum = t->status == XPORT_OK && (t->flags & XPORT_BULK_SUM) != 0 ? t->sum : 0;
	}
	t->done = t->released = false;
	svc_ring_remove(&t->event);
	if (t->bulk == NULL)
		svc_bulk_transfer_fini(b, t);
	return true;
}

/* ---- operations ---- */

struct svc_bulk_op *svc_bulk_op_of(const struct xport_bulks *b, const struct xport_completion *c)
{
	uintptr_t at = (uintptr_t)c->context, begin = (uintptr_t)b->op;
	struct svc_bulk_op *op;

	if (at < begin || at >= (uintptr_t)(b->op + SVC_BULK_OPS))
		return NULL;
	op = &b->op[(at - begin) / sizeof(*op)];
	return op->transfer != NULL ? op : NULL;
}

static void op_give(struct xport_bulks *b, struct svc_bulk_op *op)
{
	op->transfer = NULL;
	op->next = b->free_ops;
	b->free_ops = op;
	b->used_ops--;
}

/* A peer with a queue gets its turn again. */
static void peer_ready(struct xport_bulks *b, struct svc_bulk_peer *p)
{
	if (!svc_ring_empty(&p->queue) && svc_ring_empty(&p->turn))
		svc_ring_push(&b->ready, &p->turn);
}

struct svc_bulk_transfer *svc_bulk_op_sums(const struct svc_bulk_op *op, int status)
{
	struct svc_bulk_transfer *t = op->transfer;
	bool last = t->in_flight == 1 && t->left == 0 && t->status == XPORT_OK && status == XPORT_OK;

	return last && !t->push && (t->whole || (t->flags & XPORT_BULK_SUM) != 0) ? t : NULL;
}

void svc_bulk_op_done(struct xport_bulks *b, struct svc_bulk_op *op, int status, const uint64_t *sum)
{
	struct svc_bulk_transfer *t = op->transfer;

	b->info.in_flight -= op->bytes;
	t->peer->in_flight -= op->bytes;
	t->peer->ops--;
	t->in_flight--;
	if (status == XPORT_OK) {
		t->moved += op->bytes;
		*(t->push ? &b->info.pushed : &b->info.pulled) += op->bytes;
	}
	if (sum != NULL && t->status == XPORT_OK)
		pull_verify(t, *sum);
	op_give(b, op);
	peer_ready(b, t->peer);
	if (status != XPORT_OK)
		transfer_fail(b, t, status,
		              status == XPORT_ERR_TIMEOUT && svc_now_ms() >= t->until ? EXPIRED
		                                                                      : xport_strerror(status));
	transfer_idle(b, t);
}

/* What one operation moves. */
struct svc_bulk_chunk {
	uint64_t bytes;
	size_t nlocal, nremote;
	uint16_t key;
	struct svc_bulk_at at; /* behind it */
	size_t piece, byte;
	struct xport_iov local[SVC_BULK_IOV_MAX];
	struct xport_riov remote[SVC_BULK_IOV_MAX];
};

/* Adds local pieces of at most `max` bytes. */
static void chunk_local(const struct svc_bulk_transfer *t, struct svc_bulk_chunk *c, uint64_t max)
{
	while (c->bytes < max && c->nlocal < SVC_BULK_IOV_MAX) {
		const struct xport_iov *piece = &t->local[c->piece];
		size_t n = piece->len - c->byte;

		n = n < max - c->bytes ? n : (size_t)(max - c->bytes);
		if (n > 0)
			c->local[c->nlocal++] = (struct xport_iov){(uint8_t *)piece->addr + c->byte, n, piece->mr};
		c->bytes += n;
		c->byte += n;
		if (c->byte == piece->len) {
			c->piece++;
			c->byte = 0;
		}
	}
}

/* Adds remote pieces of at most `max` bytes of one region. */
static void chunk_remote(const struct svc_bulk_desc *d, struct svc_bulk_chunk *c, uint64_t max)
{
	c->key = d->run[c->at.run].key;
	c->bytes = 0;
	while (c->bytes < max && c->nremote < SVC_BULK_IOV_MAX && d->run[c->at.run].key == c->key) {
		struct xport_riov *piece = &c->remote[c->nremote++];

		piece->len = svc_bulk_go(d, &c->at, max - c->bytes, &piece->offset);
		c->bytes += piece->len;
	}
}

static void chunk_make(const struct svc_bulk_transfer *t, uint64_t max, struct svc_bulk_chunk *c)
{
	uint64_t bytes;

	max = t->left < max ? t->left : max;
	for (;;) {
		c->bytes = 0;
		c->nlocal = c->nremote = 0;
		c->at = t->at;
		c->piece = t->piece;
		c->byte = t->byte;
		chunk_local(t, c, max);
		bytes = c->bytes;
		chunk_remote(&t->bulk->d, c, bytes);
		if (c->bytes == bytes)
			return;
		max = c->bytes; /* the remote side ends first: both sides again, with less */
	}
}

/*
 * Milliseconds that an operation has. libxport withdraws an operation that it carries itself: so the memory and the budget
 * come back. One that the network carries has no limit, since its end would end the endpoint.
 */
static uint32_t chunk_deadline(const struct xport_bulks *b, const struct svc_bulk_transfer *t)
{
	int64_t left;

	if ((b->deadline_ends & 1u << (t->push ? XPORT_OP_PUT : XPORT_OP_GET)) != 0)
		return 0;
	left = t->until - svc_now_ms();
	return left > 0 ? (uint32_t)left : 1;
}

static int chunk_post(const struct xport_bulks *b, const struct svc_bulk_transfer *t, const struct svc_bulk_chunk *c)
{
	struct xport_opt o = {.size = sizeof(o), .context = b->free_ops, .deadline_ms = chunk_deadline(b, t)};
	xport_rkey *rkey = t->bulk->rkey[c->key];

	if (c->nlocal > 1 || c->nremote > 1)
		return t->push ? xport_putv(t->ep, c->local, c->nlocal, rkey, c->remote, c->nremote, &o)
		               : xport_getv(t->ep, c->local, c->nlocal, rkey, c->remote, c->nremote, &o);
	o.mr = c->local[0].mr;
	return t->push ? xport_put(t->ep, c->local[0].addr, (size_t)c->bytes, rkey, c->remote[0].offset, &o)
	               : xport_get(t->ep, c->local[0].addr, (size_t)c->bytes, rkey, c->remote[0].offset, &o);
}

static void chunk_posted(struct xport_bulks *b, struct svc_bulk_transfer *t, const struct svc_bulk_chunk *c)
{
	struct svc_bulk_op *op = b->free_ops;

	b->free_ops = op->next;
	b->used_ops++;
	*op = (struct svc_bulk_op){.transfer = t, .bytes = c->bytes};
	t->in_flight++;
	t->left -= c->bytes;
	t->at = c->at;
	t->piece = c->piece;
	t->byte = c->byte;
	t->peer->in_flight += c->bytes;
	t->peer->ops++;
	b->info.in_flight += c->bytes;
	if (b->info.in_flight > b->info.in_flight_max)
		b->info.in_flight_max = b->info.in_flight;
}

static bool too_much(uint64_t in_flight, uint64_t more, uint64_t max)
{
	return in_flight > 0 && more > max - in_flight;
}

/* Posts a chunk for the peer whose turn it is. Returns false if all must wait. */
static bool turn_take(struct xport_bulks *b, struct svc_bulk_peer *p)
{
	struct svc_bulk_transfer *t = SVC_OF(p->queue.next, struct svc_bulk_transfer, of_peer);
	struct svc_bulk_chunk c;
	bool full;
	int status;

	chunk_make(t, b->a.max_per_peer < SVC_BULK_CHUNK ? b->a.max_per_peer : SVC_BULK_CHUNK, &c);
	full = too_much(p->in_flight, c.bytes, b->a.max_per_peer) || p->ops == SVC_BULK_PEER_OPS;
	if (!full && (too_much(b->info.in_flight, c.bytes, b->a.max_in_flight) || b->free_ops == NULL))
		return false; /* a smaller one of another peer does not overtake it */
	svc_ring_remove(&p->turn);
	if (full)
		return true; /* one of its own completions goes on */
	status = chunk_post(b, t, &c);
	if (status == XPORT_ERR_AGAIN) {
		svc_ring_push(&b->stalled, &p->turn);
		return true;
	}
	svc_ring_push(&b->ready, &p->turn); /* at the end of the turns */
	if (status != XPORT_OK) {
		transfer_fail(b, t, status, xport_strerror(status)); /* it may free the peer */
		return true;
	}
	chunk_posted(b, t, &c);
	if (t->left == 0)
		queue_leave(b, t);
	return true;
}

/* ---- work ---- */

static void transfers_expire(struct xport_bulks *b, int64_t now)
{
	struct svc_link expired, *l = b->open.next;

	b->next_deadline = INT64_MAX;
	svc_ring_init(&expired);
	while (l != &b->open) {
		struct svc_bulk_transfer *t = SVC_OF(l, struct svc_bulk_transfer, open);

		l = l->next;
		if (t->until <= now) {
			svc_ring_remove(&t->open);
			svc_ring_push(&expired, &t->open);
		} else if (t->until < b->next_deadline) {
			b->next_deadline = t->until;
		}
	}
	while (!svc_ring_empty(&expired))
		svc_bulk_end(b, SVC_OF(expired.next, struct svc_bulk_transfer, open), XPORT_ERR_TIMEOUT, EXPIRED);
}

void svc_bulk_work(struct xport_bulks *b)
{
	if (b->next_deadline != INT64_MAX && svc_coarse_ms() + SVC_COARSE_MS >= b->next_deadline) {
		int64_t now = svc_now_ms();

		if (now >= b->next_deadline)
			transfers_expire(b, now);
	}
	while (!svc_ring_empty(&b->stalled)) {
		struct svc_link *l = b->stalled.next;

		svc_ring_remove(l);
		svc_ring_push(&b->ready, l);
	}
	while (!svc_ring_empty(&b->ready) && turn_take(b, SVC_OF(b->ready.next, struct svc_bulk_peer, turn)))
		;
}

int svc_bulk_work_timeout(const struct xport_bulks *b)
{
	int64_t left;

	if (!svc_ring_empty(&b->events))
		return 0; /* a call made it: no completion wakes the application */
	if (!svc_ring_empty(&b->stalled))
		return 1;
	if (b->next_deadline == INT64_MAX)
		return -1;
	left = b->next_deadline - svc_now_ms();
	return left < 0 ? 0 : (int)left;
}

/* ---- the beginning ---- */

static int local_copy(struct svc_bulk_transfer *t, const struct xport_bulk_args *a)
{
	t->local = t->few;
	if (a->nlocal > SVC_BULK_INLINE)
		t->local = malloc(a->nlocal * sizeof(*t->local));
	if (t->local == NULL)
		return XPORT_ERR_NO_MEMORY;
	memcpy(t->local, a->local, a->nlocal * sizeof(*t->local));
	t->nlocal = a->nlocal;
	return XPORT_OK;
}

/* A transfer that is in no list. NULL: all are taken. */
static struct svc_bulk_transfer *transfer_new(struct xport_bulks *b, struct xport_bulk *bulk,
                                              const struct xport_bulk_args *a, uint64_t length, bool push)
{
	uint64_t id = svc_slot_take(&b->slots, NULL);
	struct svc_bulk_transfer *t;

	if (id == 0)
		return NULL;
	t = &b->transfer[id & 0xffff];
	b->slots.slot[id & 0xffff].thing = t;
	*t = (struct svc_bulk_transfer){.ep = bulk->ep,
	                                .id = id,
	                                .until = svc_now_ms() + a->deadline_ms,
	                                .context = a->context,
	                                .flags = a->flags,
	                                .push = push,
	                                .whole = !push && length == bulk->d.length &&
	                                         (bulk->d.flags & XPORT_BULK_CHECKED) != 0,
	                                .why = "",
	                                .left = length};
	svc_ring_init(&t->event);
	svc_ring_init(&t->open);
	svc_ring_init(&t->of_peer);
	return t;
}

int svc_bulk_begin(struct xport_bulks *b, struct xport_bulk *bulk, const struct xport_bulk_args *a, uint64_t length,
                   bool push, uint64_t sum, const char *operation)
{
	struct svc_bulk_transfer *t = transfer_new(b, bulk, a, length, push);
	struct svc_bulk_peer *p = NULL;

	if (t == NULL)
		return svc_fail(XPORT_ERR_AGAIN, operation,
		                "take events; if none comes, close endpoints whose memory is not released: see "
		                "xport_bulk_event",
		                "%u transfers are in progress, or not released", (unsigned)b->slots.size);
	if (local_copy(t, a) == XPORT_OK)
		p = bulk_peer(b, bulk->ep);
	if (p == NULL) {
		svc_bulk_transfer_fini(b, t);
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	}
	if (length > 0)
		t->at = svc_bulk_seek(&bulk->d, a->offset);
	p->transfers++;
	t->peer = p;
	t->bulk = bulk;
	svc_bulk_hold(bulk);
	t->sum = sum;
	svc_ring_push(&b->open, &t->open);
	if (a->id != NULL)
		*a->id = t->id;
	if (length == 0) {
		transfer_idle(b, t);
		return XPORT_OK;
	}
	if (t->until < b->next_deadline)
		b->next_deadline = t->until;
	svc_ring_push(&p->queue, &t->of_peer);
	b->info.waiting++;
	peer_ready(b, p);
	svc_bulk_work(b);
	return XPORT_OK;
}
