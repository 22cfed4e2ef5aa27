/* SPDX-License-Identifier: BSD-3-Clause */
/* lists.h - random lists of pieces, and what a transfer with them must do, in plain memory. */
#ifndef CONFORM_LISTS_H
#define CONFORM_LISTS_H

#include "harness.h"

enum { H_PIECES = 64 };

struct h_lists {
	uint64_t seed;
	struct xport_iov local[H_PIECES];
	struct xport_riov remote[H_PIECES];
	size_t nlocal, nremote;
	size_t total; /* bytes of each list */
};

/* The next number of a fixed sequence, below `below`. */
uint64_t h_rnd(uint64_t *seed, uint64_t below);
/* Memory that pieces with this many bytes need: they lie apart from each other. */
size_t h_pieces_room(size_t total);
/*
 * Cuts `total` bytes of the memory into pieces that do not overlap, in a random order, some of them empty. Some name
 * their region themselves; the others rely on opt->mr.
 */
void h_pieces_local(struct h *h, struct h_lists *l, const struct h_mem *m, size_t total);
/* The same of a region of the peer. */
void h_pieces_remote(struct h *h, struct h_lists *l, const struct h_rkey *r, size_t total);
/* Copies the local pieces to `flat`, or back. */
void h_gather(const struct h_lists *l, uint8_t *flat);
void h_scatter(const struct h_lists *l, const uint8_t *flat, size_t len);

struct h_op *h_putv(struct h *h, xport_ep *ep, const struct h_lists *l, const struct h_mem *m, const struct h_rkey *to,
                    uint64_t flags);
struct h_op *h_getv(struct h *h, xport_ep *ep, const struct h_lists *l, const struct h_mem *m,
                    const struct h_rkey *from, uint64_t flags);
struct h_op *h_recvv(struct h *h, xport_ep *source, const struct h_lists *l, const struct h_mem *m, uint64_t tag,
                     uint64_t flags);
struct h_op *h_sendv(struct h *h, xport_ep *ep, const struct h_lists *l, const struct h_mem *m, uint64_t tag);

#endif
