/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_accept.c - P4 and P7: what xport_accept_with sends to the connecting side, and when it arrives. */
#include "harness.h"

enum { TAG = 3, ROUNDS = 6, VALUE = 9 };

/* Lengths that go by different ways: none, with the record, beside it, the longest. */
static size_t answer_len(struct h *h, int i)
{
	const size_t len[ROUNDS] = {0, 1, 192, 193, 1000, h->info.private_max};

	return len[i];
}

static struct xport_conn_attr answer(void *data, size_t len, void *context)
{
	return (struct xport_conn_attr){
		.size = sizeof(struct xport_conn_attr), .private_data = data, .private_len = len, .context = context};
}

static xport_ep *accept_with(struct h *h, const struct xport_conn_attr *attr)
{
	xport_ep *ep = NULL;

	H_OK(xport_accept_with(h->listener, attr, h_ms(h->limit_ms), &ep));
	return ep;
}

/* ---- in order ---- */

/* The message leaves right after the answer. One connection gets no answer, only the message. */
static void answers(struct h *h)
{
	uint8_t data[4096], *word = h_buf(h, 8);
	struct xport_ep_info info = {.size = sizeof(info)};
	struct xport_conn_attr a;
	xport_ep *ep[ROUNDS + 1];

	h_open(h, NULL);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	for (int i = 0; i < ROUNDS; i++) {
		h_fill(data, answer_len(h, i), (uint64_t)i);
		a = answer(data, answer_len(h, i), &ep[i]);
		ep[i] = accept_with(h, &a);
		memset(data, 0xee, sizeof(data)); /* it was copied */
		H_DONE(h_send(h, ep[i], word, 8, TAG));
		H_OK(xport_ep_query(ep[i], &info));
		H_TRUE(info.context == &ep[i] && info.accept_data == NULL && info.accept_len == 0);
	}
	ep[ROUNDS] = accept_with(h, NULL);
	H_DONE(h_send(h, ep[ROUNDS], word, 8, TAG));
	h_sync(h);
}

static void is_answered(struct h *h)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	struct xport_completion c;
	char address[80];
	uint64_t word;

	h_open(h, NULL);
	h_hear(h, 0, address, sizeof(address));
	for (int i = 0; i <= ROUNDS; i++) {
		xport_ep *ep = NULL;
		struct h_op *op;

		if (i % 2 == 0) {
			H_OK(xport_connect(h->x, address, NULL, 0, &ep));
			H_TRUE(H_EVENT(XPORT_EVENT_CONNECTED).ep == ep);
		} else {
			ep = h_connect(h, address);
		}
		op = h_recv(h, ep, &word, 8, TAG, UINT64_MAX);
		H_DONE(op);
		if (i == ROUNDS) {
			H_CHECK(!h_event_now(h, XPORT_EVENT_ACCEPTED, &c), "an event without an answer");
			break;
		}
		H_CHECK(h_event_now(h, XPORT_EVENT_ACCEPTED, &c), "the message came before the answer %d", i);
		H_TRUE(c.ep == ep && c.status == XPORT_OK);
		H_OK(xport_ep_query(ep, &info));
		H_EQ(answer_len(h, i), info.accept_len);
		H_FILLED(info.accept_data, info.accept_len, (uint64_t)i);
		H_EQ(0, info.private_len);
	}
	h_sync(h);
}

/* ---- before it ---- */

/* The connecting side need not wait for the answer. It has sent, put what fills the window, and asked, before it comes. */
static void answers_late(struct h *h)
{
	uint8_t data[] = "late", *buf = h_buf(h, 64);
	struct xport_conn_attr a = answer(data, sizeof(data), NULL);
	struct h_op *op;
	xport_ep *ep;

	h_open(h, NULL);
	h_listen(h);
	op = h_recv(h, NULL, buf, 64, TAG, UINT64_MAX);
	h_tell(h, 1, h->address, sizeof(h->address));
	H_DONE(op);
	H_DONE(h_send(h, op->c.ep, buf, 64, VALUE)); /* not accepted yet */
	h_hear_u64(h, 1);
	ep = accept_with(h, &a);
	H_TRUE(ep == op->c.ep);
	h_sync(h);
}

static void is_answered_late(struct h *h)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	uint8_t *buf = h_buf(h, 64);
	struct xport_completion c;
	char address[80];

	h_open(h, NULL);
	h_hear(h, 0, address, sizeof(address));
	h->ep[0] = h_connect(h, address);
	h_send(h, h->ep[0], buf, 64, TAG);
	H_DONE(h_recv(h, h->ep[0], buf, 64, VALUE, UINT64_MAX));
	H_CHECK(!h_event_now(h, XPORT_EVENT_ACCEPTED, &c), "an answer before the connection was accepted");
	H_OK(xport_ep_query(h->ep[0], &info));
	H_TRUE(info.accept_data == NULL && info.accept_len == 0);
	h_tell_u64(h, 0, 1);
	H_TRUE(H_EVENT(XPORT_EVENT_ACCEPTED).ep == h->ep[0]);
	H_OK(xport_ep_query(h->ep[0], &info));
	H_TRUE(info.accept_len == 5 && !strcmp(info.accept_data, "late"));
	h_sync(h);
}

/* ---- in vain ---- */

static void refuses_answers(struct h *h)
{
	uint8_t *data = h_buf(h, 4096), *buf = h_buf(h, 8);
	struct xport_conn_attr good = answer(data, 8, NULL), bad;
	struct xport_error e = {.size = sizeof(e)};
	xport_ep *ep = NULL;

	h_open(h, NULL);
	h_listen(h);
	H_STATUS(XPORT_ERR_INVALID, xport_accept_with(NULL, &good, 0, &ep));
	H_STATUS(XPORT_ERR_INVALID, xport_accept_with(h->listener, &good, 0, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_accept_with(h->listener, &good, -2, &ep));
	bad = answer(data, h->info.private_max + 1, NULL);
	H_STATUS(XPORT_ERR_INVALID, xport_accept_with(h->listener, &bad, 0, &ep));
	bad = answer(NULL, 1, NULL);
	H_STATUS(XPORT_ERR_INVALID, xport_accept_with(h->listener, &bad, 0, &ep));
	bad = good;
	bad.size = 1;
	H_STATUS(XPORT_ERR_INVALID, xport_accept_with(h->listener, &bad, 0, &ep));
	bad = good;
	bad.transports = h->config->backend;
	H_STATUS(XPORT_ERR_INVALID, xport_accept_with(h->listener, &bad, 0, &ep));
	H_OK(xport_last_error(h->x, &e));
	H_CHECK(!strcmp(e.operation, "xport_accept_with") && strstr(e.text, "transports") && e.hint[0], "text '%s'",
	        e.text);
	bad = good;
	bad.backlog = bad.connect_ms = 1;
	H_STATUS(XPORT_ERR_INVALID, xport_accept_with(h->listener, &bad, 0, &ep));
	H_STATUS(XPORT_ERR_TIMEOUT, xport_accept_with(h->listener, &good, 20, &ep));
	H_TRUE(ep == NULL);
	/* A peer that has closed gets none; its message is still there. */
	h_tell(h, 1, h->address, sizeof(h->address));
	h_hear_u64(h, 1);
	ep = accept_with(h, &good);
	H_DONE(h_recv(h, NULL, buf, 8, TAG, UINT64_MAX));
	H_EQ(XPORT_ERR_PEER_CLOSED, H_EVENT(XPORT_EVENT_CLOSED).status);
	xport_ep_destroy(ep);
	h_sync(h);
}

static void is_gone(struct h *h)
{
	uint8_t *buf = h_buf(h, 8);
	char address[80];

	h_open(h, NULL);
	h_hear(h, 0, address, sizeof(address));
	h->ep[0] = h_connect(h, address);
	H_DONE(h_send(h, h->ep[0], buf, 8, TAG));
	H_OK(xport_ep_close(h->ep[0], h_ms(h->limit_ms)));
	h_tell_u64(h, 0, 1);
	h_sync(h);
}

const struct h_scenario cases_accept[] = {
	{.name = "P4_answers_of_accept", .role = {answers, is_answered}},
	{.name = "P4_answer_after_first_messages", .role = {answers_late, is_answered_late}, .flags = H_ONCE},
	{.name = "P7_answers_refused_or_in_vain", .role = {refuses_answers, is_gone}, .flags = H_ONCE},
	{.name = NULL},
};
