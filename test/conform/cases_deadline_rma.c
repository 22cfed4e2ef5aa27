/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_deadline_rma.c - P3 for deadlines of puts, gets, atomics and flushes, and while the peer is stopped. */
#include "cases_deadline.h"

/* ---- puts, gets, atomics, flushes ---- */

enum { PIECE = 5000, WORD_AT = 0 };

/* Posts one of each kind at a target that does not poll. */
static unsigned post_all(struct h *h, struct h_op **op, const struct h_mem *l, const struct h_rkey *r, uint64_t *old,
                         uint32_t ms)
{
	struct xport_atomic_args a = {.size = sizeof(a), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1};
	const struct xport_riov remote[2] = {{r->offset + PIECE, 100}, {r->offset + 3 * PIECE, 200}};
	const struct xport_iov local[2] = {{l->p, 150, l->mr}, {l->p + 1000, 150, l->mr}};
	struct xport_opt o;
	unsigned n = 0;

	/* First, as later ones of some kinds may end the endpoint: those that never do. */
	o = timed(op[n] = h_op(h, XPORT_OP_ATOMIC), ms);
	H_OK(xport_atomic(h->ep[0], &a, r->k, r->offset + WORD_AT, &o));
	a.result = old;
	n++;
	o = timed(op[n] = h_op(h, XPORT_OP_ATOMIC), ms);
	H_OK(xport_atomic(h->ep[0], &a, r->k, r->offset + WORD_AT, &o));
	n++;
	o = timed(op[n] = h_op(h, XPORT_OP_PUT), ms);
	o.mr = l->mr;
	H_OK(xport_put(h->ep[0], l->p, PIECE, r->k, r->offset + PIECE, &o));
	n++;
	o = timed(op[n] = h_op(h, XPORT_OP_PUT_NOTIFY), ms);
	o.mr = l->mr;
	o.value = 5;
	H_OK(xport_put_notify(h->ep[0], l->p, PIECE, r->k, r->offset + PIECE, &o));
	n++;
	o = timed(op[n] = h_op(h, XPORT_OP_PUT_NOTIFY), ms);
	o.value = 6;
	H_OK(xport_put_notify(h->ep[0], l->p, 16, r->k, r->offset + PIECE, &o));
	n++;
	o = timed(op[n] = h_op(h, XPORT_OP_GET), ms);
	o.mr = l->mr;
	H_OK(xport_get(h->ep[0], l->p + 2 * PIECE, PIECE, r->k, r->offset + PIECE, &o));
	n++;
	o = timed(op[n] = h_op(h, XPORT_OP_PUT), ms);
	H_OK(xport_putv(h->ep[0], local, 2, r->k, remote, 2, &o));
	n++;
	o = timed(op[n] = h_op(h, XPORT_OP_GET), ms);
	H_OK(xport_getv(h->ep[0], &(struct xport_iov){l->p + 3 * PIECE, 300, l->mr}, 1, r->k, remote, 2, &o));
	n++;
	H_OK(xport_fence(h->ep[0]));
	o = timed(op[n] = h_op(h, XPORT_OP_PUT), ms);
	H_OK(xport_put(h->ep[0], l->p, LONG / 2, r->k, r->offset + PIECE, &o)); /* behind the fence */
	n++;
	o = timed(op[n] = h_op(h, XPORT_OP_FLUSH), ms);
	H_OK(xport_flush(h->ep[0], &o));
	return n + 1;
}

/* Bytes that are neither what was there nor what was posted: the buffers were overwritten once they were free. */
static void undamaged(struct h *h, const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		H_CHECK(p[i] == 0 || p[i] == 0x11, "byte %zu is 0x%02x", i, p[i]);
}

static void rma_in_vain(struct h *h)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	uint64_t old[1] = {0};
	struct h_op *op[16];
	struct h_rkey r;
	struct h_mem l;
	int64_t since;
	unsigned n;
	bool lost;

	h_mesh(h, NULL);
	l = h_mem_local(h, LONG, 0);
	memset(l.p, 0x11, l.len);
	r = h_import(h, 0);
	h_run_for(h, 20); /* a native key has come, if there is one */
	h_hear_u64(h, 0); /* it does not poll any more */
	since = h_now_us();
	n = post_all(h, op, &l, &r, old, SHORT_MS);
	for (unsigned i = 0; i < n; i++) {
		H_ENDED(op[i]);
		H_CHECK(op[i]->c.status == XPORT_OK || op[i]->c.status == XPORT_ERR_TIMEOUT, "operation %u: %s", i,
		        xport_status_name(op[i]->c.status));
	}
	memset(l.p, 0xee, l.len);
	old[0] = 77;
	H_TRUE((h_now_us() - since) / 1000 <= h_ms(SHORT_MS + SLACK_MS));
	H_OK(xport_ep_query(h->ep[0], &info));
	lost = info.state != XPORT_EP_OPEN;
	H_CHECK(!lost || h->info.deadline_ends != 0, "the endpoint ended: %s", info.why);
	if (lost)
		H_EQ(XPORT_ERR_TIMEOUT, info.reason);
	if (h->config->emulate)
		H_EQ(XPORT_ERR_TIMEOUT, op[0]->c.status); /* nothing can have been answered */
	h_tell_u64(h, 0, lost);
	if (lost)
		return;
	h_hear_u64(h, 0);
	H_BYTES(l.p, l.len, 0xee); /* late answers are dropped */
	H_EQ(77, old[0]);
	memset(l.p, 0x11, 64);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, 64), &r, PIECE, 0));
	H_DONE(h_flush(h, h->ep[0]));
	alive(h);
	h_mem_free(h, &l);
}

static void target_sleeps(struct h *h)
{
	struct xport_completion c;
	struct h_mem m;
	bool lost;

	h_mesh(h, NULL);
	m = h_mem_target(h, LONG, 0, H_ALL);
	h_share(h, 1, &m);
	h_run_for(h, 30);
	h->idle = true;
	h_tell_u64(h, 1, 1);
	lost = h_hear_u64(h, 1) != 0;
	h->idle = false;
	if (lost)
		return;
	h_run_for(h, 50);
	h_tell_u64(h, 1, 1);
	alive(h);
	undamaged(h, m.p + 8, m.len - 8);
	while (h_event_now(h, XPORT_EVENT_NOTIFY, &c))
		;
	h_mem_free(h, &m);
}

/* ---- a peer that is stopped ---- */

static void stop_and_go(struct h *h)
{
	enum { EACH = 20 };
	uint8_t *buf = h_buf(h, LONG), *in = h_buf(h, LONG);
	struct h_op *op[2 * EACH + 16];
	uint64_t old[1] = {0};
	struct h_rkey r;
	struct h_mem l;
	int64_t since;
	unsigned n = 0;

	h_mesh(h, NULL);
	memset(buf, 0x11, LONG);
	l = h_mem_local(h, LONG, 0);
	memset(l.p, 0x11, l.len);
	r = h_import(h, 0);
	h_run_for(h, 20);
	h_sync(h);
	h_stop(h, 0);
	since = h_now_us();
	for (int i = 0; i < EACH; i++) {
		op[n++] = send_timed(h, buf, i % 2 == 0 ? LONG : h->info.eager_max, 1, SHORT_MS + (uint32_t)i, 0);
		op[n++] = recv_timed(h, h->ep[0], in, LONG, 2, UINT64_MAX, SHORT_MS + (uint32_t)i);
	}
	if (h->info.deadline_ends == 0)
		n += post_all(h, &op[n], &l, &r, old, SHORT_MS);
	for (unsigned i = 0; i < n; i++) {
		H_ENDED(op[i]);
		H_CHECK(op[i]->c.status == XPORT_OK || op[i]->c.status == XPORT_ERR_TIMEOUT, "operation %u: %s", i,
		        xport_status_name(op[i]->c.status));
	}
	H_TRUE((h_now_us() - since) / 1000 <= h_ms(SHORT_MS + EACH + SLACK_MS));
	memset(buf, 0xee, LONG);
	memset(l.p, 0xee, l.len);
	h_cont(h, 0);
	h_tell_u64(h, 0, 1);
	alive(h);
	h_mem_free(h, &l);
}

static void is_stopped(struct h *h)
{
	uint8_t *buf = h_buf(h, LONG);
	struct xport_completion c;
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LONG, 0, H_ALL);
	h_share(h, 1, &m);
	h_run_for(h, 20);
	h_sync(h);
	h_hear_u64(h, 1);
	h_run_for(h, 50);
	while (true) { /* what had left before it was stopped is whole */
		struct h_op *op = recv_timed(h, h->ep[1], buf, LONG, 1, UINT64_MAX, SHORT_MS);

		H_ENDED(op);
		if (op->c.status == XPORT_ERR_TIMEOUT)
			break;
		H_EQ(XPORT_OK, op->c.status);
		H_BYTES(buf, op->c.length, 0x11);
	}
	alive(h);
	undamaged(h, m.p + 8, m.len - 8);
	while (h_event_now(h, XPORT_EVENT_NOTIFY, &c))
		;
	h_mem_free(h, &m);
}

const struct h_scenario cases_deadline_rma[] = {
	{"P3_deadline_rma", {target_sleeps, rma_in_vain}, NULL, H_KINDS, 0},
	{"P3_deadline_stopped", {is_stopped, stop_and_go}, NULL, H_KILLS, 0},
	{NULL, {NULL}, NULL, 0, 0},
};
