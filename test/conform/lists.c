/* SPDX-License-Identifier: BSD-3-Clause */
#include "lists.h"

uint64_t h_rnd(uint64_t *seed, uint64_t below)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return below > 0 ? (*seed >> 11) % below : 0;
}

size_t h_pieces_room(size_t total)
{
	return 2 * total + 4 * H_PIECES;
}

/* Where each piece begins and how long it is. Returns their number. */
static size_t pieces(struct h *h, uint64_t *seed, size_t room, size_t total, struct xport_riov *out)
{
	size_t n = 1 + (size_t)h_rnd(seed, H_PIECES), left = total, at = 0, gap = (room - total) / n;

	H_TRUE(room >= total);
	for (size_t i = 0; i < n; i++) {
		size_t len = i + 1 == n ? left : (size_t)h_rnd(seed, 2 * total / n + 2);

		len = len < left ? len : left;
		at += (size_t)h_rnd(seed, 3) > 0 ? (size_t)h_rnd(seed, gap + 1) : 0; /* some are neighbours */
		out[i] = (struct xport_riov){.offset = at, .len = len};
		at += len;
		left -= len;
	}
	for (size_t i = n - 1; i > 0 && h_rnd(seed, 4) > 0; i--) {
		size_t other = (size_t)h_rnd(seed, i + 1);
		struct xport_riov was = out[i];

		out[i] = out[other];
		out[other] = was;
	}
	return n;
}

void h_pieces_local(struct h *h, struct h_lists *l, const struct h_mem *m, size_t total)
{
	struct xport_riov at[H_PIECES];

	l->total = total;
	l->nlocal = pieces(h, &l->seed, m->len, total, at);
	for (size_t i = 0; i < l->nlocal; i++)
		l->local[i] = (struct xport_iov){.addr = at[i].len > 0 ? m->p + at[i].offset : NULL,
		                                 .len = (size_t)at[i].len,
		                                 .mr = h_rnd(&l->seed, 2) > 0 ? m->mr : NULL};
}

void h_pieces_remote(struct h *h, struct h_lists *l, const struct h_rkey *r, size_t total)
{
	l->nremote = pieces(h, &l->seed, h_pieces_room(total), total, l->remote); /* the region may be longer */
	for (size_t i = 0; i < l->nremote; i++)
		l->remote[i].offset += r->offset;
}

void h_gather(const struct h_lists *l, uint8_t *flat)
{
	for (size_t i = 0; i < l->nlocal; i++) {
		if (l->local[i].len > 0)
			memcpy(flat, l->local[i].addr, l->local[i].len);
		flat += l->local[i].len;
	}
}

void h_scatter(const struct h_lists *l, const uint8_t *flat, size_t len)
{
	for (size_t i = 0; i < l->nlocal; i++) {
		size_t n = l->local[i].len < len ? l->local[i].len : len;

		if (n > 0)
			memcpy(l->local[i].addr, flat, n);
		flat += n;
		len -= n;
	}
}

struct h_op *h_putv(struct h *h, xport_ep *ep, const struct h_lists *l, const struct h_mem *m, const struct h_rkey *to,
                    uint64_t flags)
{
	struct h_op *op = h_op(h, XPORT_OP_PUT);
	struct xport_opt o = {.size = sizeof(o), .flags = flags, .context = op, .mr = m->mr};
	int s;

	while ((s = xport_putv(ep, l->local, l->nlocal, to->k, l->remote, l->nremote, &o)) == XPORT_ERR_AGAIN)
		h_breathe(h);
	H_OK(s);
	if (flags & XPORT_QUIET)
		h_op_drop(h, op);
	return op;
}

struct h_op *h_getv(struct h *h, xport_ep *ep, const struct h_lists *l, const struct h_mem *m,
                    const struct h_rkey *from, uint64_t flags)
{
	struct h_op *op = h_op(h, XPORT_OP_GET);
	struct xport_opt o = {.size = sizeof(o), .flags = flags, .context = op, .mr = m->mr};
	int s;

	while ((s = xport_getv(ep, l->local, l->nlocal, from->k, l->remote, l->nremote, &o)) == XPORT_ERR_AGAIN)
		h_breathe(h);
	H_OK(s);
	if (flags & XPORT_QUIET)
		h_op_drop(h, op);
	return op;
}

struct h_op *h_sendv(struct h *h, xport_ep *ep, const struct h_lists *l, const struct h_mem *m, uint64_t tag)
{
	struct h_op *op = h_op(h, XPORT_OP_SEND);
	struct xport_opt o = {.size = sizeof(o), .context = op, .mr = m->mr};
	int s;

	while ((s = xport_sendv(ep, l->local, l->nlocal, tag, &o)) == XPORT_ERR_AGAIN)
		h_breathe(h);
	H_OK(s);
	return op;
}

struct h_op *h_recvv(struct h *h, xport_ep *source, const struct h_lists *l, const struct h_mem *m, uint64_t tag,
                     uint64_t flags)
{
	struct h_op *op = h_op(h, XPORT_OP_RECV);
	struct xport_opt o = {
		.size = sizeof(o), .flags = flags, .context = op, .mr = m->mr, .source = source, .id = &op->id};
	int s;

	while ((s = xport_recvv(h->x, l->local, l->nlocal, tag, UINT64_MAX, &o)) == XPORT_ERR_AGAIN)
		h_breathe(h);
	H_OK(s);
	return op;
}
