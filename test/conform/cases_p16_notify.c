/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_p16_notify.c - P16 and P4: notifications whose data went ahead of them, and whose region ends in between. */
#include "harness.h"

enum { LEN = 65536, MESSAGE = 2048 };

static const size_t lengths[] = {LEN, 8, 0};
enum { PUTS = sizeof(lengths) / sizeof(lengths[0]) };

/* Sends so much that the window is full, and notifications wait; returns how many messages. */
static uint64_t fill_window(struct h *h, const uint8_t *buf)
{
	uint64_t n = h->info.window / MESSAGE + 8;

	for (uint64_t i = 0; i < n; i++)
		h_send(h, h->ep[0], buf, MESSAGE, 1);
	return n;
}

/* Refused at once, or by the target if the news has not come here. */
static void stale(struct h *h, struct h_mem *l, const struct h_rkey *r, size_t len, uint64_t value)
{
	struct h_op *op = h_op(h, XPORT_OP_PUT_NOTIFY);
	struct xport_opt o = {.size = sizeof(o), .context = op, .value = value};
	int s = xport_put_notify(h->ep[0], l->p, len, r->k, r->offset, &o);

	if (s == XPORT_OK) {
		H_DONE_AS(XPORT_ERR_STALE_KEY, op);
		return;
	}
	h_op_drop(h, op);
	H_STATUS(XPORT_ERR_STALE_KEY, s);
}

static void notifies(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	uint64_t n;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	h_fill(l.p, LEN, 6);
	r = h_import(h, 0);
	n = fill_window(h, l.p);
	for (unsigned i = 0; i < PUTS; i++)
		H_DONE(h_notify(h, h->ep[0], H_AT(l, 0, lengths[i]), &r, 0, i, 0));
	h->idle = h->config->emulate; /* the news does not come here before the next ones are posted */
	h_tell_u64(h, 0, n);
	h_hear_u64(h, 0);
	for (unsigned i = 0; i < PUTS; i++)
		stale(h, &l, &r, lengths[i], 100 + i);
	h->idle = false;
	h_tell_u64(h, 0, 1);
	h_settle(h);
	xport_rkey_destroy(r.k);
	h_sync(h);
}

static void notified(struct h *h)
{
	uint8_t *buf = h_buf(h, MESSAGE);
	struct xport_completion c;
	struct h_mem m;
	uint64_t n;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	n = h_hear_u64(h, 1);
	H_FILLED(m.p, LEN, 6);
	H_EQ(0, h->nqueue); /* the notifications have not come */
	h_mem_free(h, &m);
	h_tell_u64(h, 1, 1);
	h_hear_u64(h, 1);
	for (uint64_t i = 0; i < n; i++)
		H_DONE(h_recv(h, NULL, buf, MESSAGE, 1, UINT64_MAX));
	for (unsigned i = 0; i < PUTS; i++) {
		c = H_EVENT(XPORT_EVENT_NOTIFY);
		H_EQ(XPORT_OK, c.status);
		H_EQ(i, c.tag);
		H_EQ(lengths[i], c.length);
		H_TRUE(c.mr == NULL && c.ep == h->ep[1]);
	}
	h_sync(h);
	h_run_for(h, 10);
	H_EQ(0, h->nqueue); /* what was refused is not told */
}

const struct h_scenario cases_p16_notify[] = {
	{.name = "P16_notification_after_its_region", .role = {notified, notifies}, .flags = H_TARGET},
	{.name = NULL},
};
