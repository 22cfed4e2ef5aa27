/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_size.c - P8 above 4 GiB, where a length no longer fits into 32 bits.  Slow: only with --slow. */
#include "harness.h"

static const size_t len = ((size_t)4 << 30) + 5;

/* One buffer a side: role 1 puts and sends, then gets into what it sent from. */
static void huge_target(struct h *h)
{
	struct h_mem m;

	h->limit_ms = 120000;
	h_mesh(h, NULL);
	m = h_mem_target(h, len, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
	H_FILLED(m.p, len, 1);
	H_GUARDS(m);
	if (h->param) {
		struct h_op *op = h_recv(h, NULL, m.p, len, 1, UINT64_MAX);

		H_DONE(op);
		H_EQ(len, op->c.length);
		H_FILLED(m.p, len, 2);
	} else {
		h_fill(m.p, len, 2);
	}
	h_sync(h);
	h_sync(h);
}

static void huge(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;

	h->limit_ms = 120000;
	h_mesh(h, NULL);
	l = h_mem_local(h, len, 0);
	h_fill(l.p, len, 1);
	r = h_import(h, 0);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, len), &r, 0, 0));
	h_sync(h);
	if (h->param) {
		h_fill(l.p, len, 2);
		H_DONE(h_send(h, h->ep[0], l.p, len, 1));
	}
	h_sync(h);
	if (!h->param) {
		H_DONE(h_get(h, h->ep[0], H_AT(l, 0, len), &r, 0));
		H_FILLED(l.p, len, 2);
	}
	h_sync(h);
	H_GUARDS(l);
}

static const struct h_param ways[] = {{"put_get", 0}, {"put_send", 1}, {NULL, 0}};

const struct h_scenario cases_size[] = {
	{.name = "P8_above_4_gib",
         .role = {huge_target, huge},
         .params = ways,
         .flags = H_TARGET | H_SLOW,
         .timeout_s = 300},
	{.name = NULL},
};
