/* SPDX-License-Identifier: BSD-3-Clause */
/* loop_mr.c - regions of loop:native and loop:rdma, and puts and gets to them. */
#include <stdlib.h>
#include <string.h>

#include "loop.h"

static uint64_t last_serial;

static int add(struct xpi_be *be, struct loop_mr *m, uint8_t *base, size_t length)
{
	m->base = base;
	m->length = length;
	pthread_mutex_lock(&loop_lock);
	m->serial = ++last_serial;
	xpi_list_push(&be->regions, &m->link);
	pthread_mutex_unlock(&loop_lock);
	return XPORT_OK;
}

int loop_mr_reg(struct xpi_be *be, void *mr, void *base, size_t length, uint32_t rights)
{
	(void)rights; /* the core checks them at the initiator; the target checks existence and bounds here */
	return be->native ? add(be, mr, base, length) : XPORT_ERR_NOT_SUPPORTED;
}

void loop_mr_dereg(struct xpi_be *be, void *mr)
{
	struct loop_mr *m = mr;

	(void)be;
	pthread_mutex_lock(&loop_lock);
	xpi_list_del(&m->link);
	pthread_mutex_unlock(&loop_lock);
}

int loop_rkey_pack(struct xpi_be *be, void *ep, const void *mr, void *buf, size_t *len)
{
	const struct loop_mr *m = mr;
	struct loop_rkey k = {be->id, m->serial};

	(void)ep;
	if (loop_manners.keys < 0)
		return loop_manners.keys;
	if (loop_manners.keys > 0) {
		*len = (size_t)loop_manners.keys - 1;
		memset(buf, 0xee, *len);
		return XPORT_OK;
	}
	if (*len < sizeof(k))
		return xpi_fail(be->err, XPORT_ERR_BOUNDS, 0, NULL, NULL, "a key of loop has %zu bytes", sizeof(k));
	memcpy(buf, &k, sizeof(k));
	*len = sizeof(k);
	return XPORT_OK;
}

int loop_rkey_unpack(struct xpi_be *be, void *ep, void *rkey, const void *buf, size_t len, uint64_t start,
                     uint64_t length, uint32_t rights, void **direct)
{
	struct loop_rkey_state *state = rkey;

	(void)ep;
	(void)length;
	(void)rights;
	if (len != sizeof(struct loop_rkey))
		return xpi_fail(be->err, XPORT_ERR_BAD_KEY, 0, NULL, NULL, "a key of loop has %zu bytes, not %zu",
		                sizeof(struct loop_rkey), len);
	memcpy(&state->key, buf, len);
	state->start = start;
	if (loop_manners.mapped != NULL) /* all of them could be mapped, but then nothing would test put and get */
		*direct = loop_manners.mapped;
	return XPORT_OK;
}

void loop_rkey_destroy(struct xpi_be *be, void *rkey)
{
	(void)be;
	(void)rkey;
}

static int queue(struct xpi_be *be, const struct loop_item *what)
{
	struct loop_item *it = calloc(1, sizeof(*it));

	if (it == NULL)
		return XPORT_ERR_NO_MEMORY;
	*it = *what;
	if (be->ordered && (it->kind == LOOP_PUT || it->kind == LOOP_ATOMIC))
		it->ep->before++;
	xpi_list_push(&be->own, &it->link);
	return XPI_PENDING;
}

/* As an adapter does it: atomic to what else it does, since the lock is held, and not to the CPU. */
static void change(const struct xport_atomic_args *a, uint64_t *word)
{
	uint64_t old = *word;

	if (a->op == XPORT_ATOMIC_ADD)
		*word = old + a->operand;
	else if (old == a->compare)
		*word = a->operand;
	if (a->result != NULL)
		memcpy(a->result, &old, sizeof(old));
}

static bool reaches(const struct xpi_be *peer, const struct loop_ep *ep)
{
	xpi_list_for(l, &peer->eps)
		if (xpi_container(l, struct loop_ep, link)->serial == ep->peer_ep)
			return true;
	return false;
}

/* Copies to or from the other instance's region, or changes a word of it, if it is (still) there. */
static int carry_out(struct xpi_be *be, struct loop_item *it)
{
	struct loop_item *room = it->room;
	struct xpi_be *peer;
	int r = XPORT_ERR_STALE_KEY;

	if (it->kind == LOOP_DRAIN)
		return loop_manners.drained;
	if (it->kind == LOOP_KEPT && loop_manners.kept != 0)
		return loop_manners.kept;
	if (it->kind == LOOP_KEPT) {
		it->room = NULL;
		return loop_deliver(be, it->ep, room, it->buf, it->len, it->rest, it->rest_len);
	}
	pthread_mutex_lock(&loop_lock);
	peer = loop_find(it->peer);
	if (peer != NULL && !reaches(peer, it->ep)) {
		r = XPORT_ERR_PEER_LOST;
	} else if (peer != NULL) {
		xpi_list_for(l, &peer->regions) {
			struct loop_mr *m = xpi_container(l, struct loop_mr, link);

			if (m->serial != it->region)
				continue;
			r = it->offset <= m->length && it->len <= m->length - it->offset ? XPORT_OK : XPORT_ERR_BOUNDS;
			if (r == XPORT_OK && it->kind == LOOP_PUT)
				memcpy(m->base + it->offset, it->buf, it->len);
			else if (r == XPORT_OK && it->kind == LOOP_ATOMIC)
				change(&it->args, (uint64_t *)(void *)(m->base + it->offset));
			else if (r == XPORT_OK)
				memcpy(it->buf, m->base + it->offset, it->len);
			break;
		}
	}
	pthread_mutex_unlock(&loop_lock);
	return r;
}

int loop_put(struct xpi_be *be, void *ep, const void *buf, size_t len, void *mr, void *rkey, uint64_t offset,
             struct xpi_req *req)
{
	const struct loop_rkey_state *k = rkey;
	struct loop_item put = {.kind = LOOP_PUT,
	                        .ep = ep,
	                        .req = req,
	                        .buf = (void *)(uintptr_t)buf,
	                        .len = len,
	                        .peer = k->key.peer,
	                        .region = k->key.region,
	                        .offset = k->start + offset};

	(void)mr;
	if (!be->ordered || len > LOOP_PUT_SHORT)
		return queue(be, &put);
	return put.ep->before == 0 ? carry_out(be, &put) : XPORT_ERR_AGAIN;
}

int loop_get(struct xpi_be *be, void *ep, void *buf, size_t len, void *mr, void *rkey, uint64_t offset,
             struct xpi_req *req)
{
	const struct loop_rkey_state *k = rkey;
	struct loop_item get = {.kind = LOOP_GET,
	                        .ep = ep,
	                        .req = req,
	                        .buf = buf,
	                        .len = len,
	                        .peer = k->key.peer,
	                        .region = k->key.region,
	                        .offset = k->start + offset};

	(void)mr;
	return queue(be, &get);
}

int loop_atomic(struct xpi_be *be, void *ep, const struct xport_atomic_args *args, void *rkey, uint64_t offset,
                struct xpi_req *req)
{
	const struct loop_rkey_state *k = rkey;
	struct loop_item atomic = {.kind = LOOP_ATOMIC,
	                           .ep = ep,
	                           .req = req,
	                           .args = *args,
	                           .len = sizeof(uint64_t),
	                           .peer = k->key.peer,
	                           .region = k->key.region,
	                           .offset = k->start + offset};

	return queue(be, &atomic);
}

int loop_drain(struct xpi_be *be, void *ep, struct xpi_req *req)
{
	struct loop_item drain = {.kind = LOOP_DRAIN, .ep = ep, .req = req};

	if (loop_manners.drain != 0)
		return loop_manners.drain;
	return queue(be, &drain);
}

int loop_rma_poll(struct xpi_be *be)
{
	struct xpi_list *l;
	int n = 0, most = loop_manners.most > 0 ? (int)loop_manners.most : 32;

	if (__atomic_load_n(&loop_manners.stall, __ATOMIC_RELAXED))
		return 0;
	while (n < most && (l = xpi_list_pop(&be->own)) != NULL) {
		struct loop_item *it = xpi_container(l, struct loop_item, link);
		struct xpi_req *req = it->req;
		int r = carry_out(be, it);

		if (it->kind == LOOP_KEPT && r == XPORT_ERR_AGAIN) { /* it was taken: it may not end so */
			xpi_list_push_front(&be->own, l);
			break;
		}
		if (it->kind == LOOP_KEPT || (be->ordered && (it->kind == LOOP_PUT || it->kind == LOOP_ATOMIC)))
			it->ep->before--;
		loop_item_free(it);
		be->up->done(be->core, req, r);
		n++;
	}
	return n;
}
