/* SPDX-License-Identifier: BSD-3-Clause */
/* third.c - the healthy third peer: puts into the survivor's memory, reads it back and compares, all the time. */
#include "actor.h"

enum { LEN = 4096, PAUSE_US = 3000 };

void kl_third(struct h *h)
{
	static struct actor a;
	struct kl_board *b = kl_board;
	struct h_mem out, in;
	struct h_rkey r;
	struct h_key key;

	a.h = h;
	a.board = b;
	actor_open(&a);
	while (atomic_load(&b->third_ready) == 0)
		usleep(1000);
	h->ep[1] = h_connect(h, b->survivor_address);
	memcpy(&key, b->third_key, sizeof(key));
	r = h_unpack(h, h->ep[1], &key);
	out = h_mem_local(h, LEN, 0);
	in = h_mem_local(h, LEN, 0);
	for (uint64_t i = 1; !atomic_load(&b->third_stop); i++) {
		struct h_op *put, *get;

		h_fill(out.p, LEN, i);
		put = h_put(h, h->ep[1], H_AT(out, 0, LEN), &r, 0, 0);
		H_DONE(put);
		get = h_get(h, h->ep[1], H_AT(in, 0, LEN), &r, 0);
		H_DONE(get);
		H_FILLED(in.p, LEN, i);
		atomic_fetch_add(&b->third_done, 1);
		H_CHECK(h->nqueue == 0, "an event of type %u on a healthy connection", h->queue[0].type);
		if (!atomic_load(&b->third_full))
			usleep(PAUSE_US);
	}
	xport_rkey_destroy(r.k);
}
