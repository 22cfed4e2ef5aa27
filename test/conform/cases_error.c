/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_error.c - P11: xport_last_error describes the call that just failed, whichever it was, and not an older failure. */
#include "harness.h"

/* What a failing call may use. */
struct thing {
	xport *x;
	xport_listener *listener;
	xport_ep *ep;
	xport_mr *mr;
	xport_rkey *rkey;
	uint8_t *buf;
};

static int query(struct thing *t)
{
	struct xport_info i = {.size = 1};

	return xport_query(t->x, &i);
}

static int listen_at(struct thing *t)
{
	return xport_listen(t->x, "127.0.0.1:99999", NULL, &t->listener);
}

static int listen_attr(struct thing *t)
{
	struct xport_conn_attr a = {.size = 1};

	return xport_listen(t->x, "127.0.0.1:0", &a, &t->listener);
}

static int name_short(struct thing *t)
{
	char buf[4];

	return xport_listener_name(t->listener, buf, sizeof(buf));
}

static int name_null(struct thing *t)
{
	return xport_listener_name(t->listener, NULL, 80);
}

static int accept_nobody(struct thing *t)
{
	xport_ep *ep;

	return xport_accept(t->listener, 0, &ep);
}

static int accept_null(struct thing *t)
{
	return xport_accept(t->listener, 0, NULL);
}

static int accept_time(struct thing *t)
{
	xport_ep *ep;

	return xport_accept(t->listener, -2, &ep);
}

static int connect_to(struct thing *t)
{
	xport_ep *ep;

	return xport_connect(t->x, "no port", NULL, 0, &ep);
}

static int connect_time(struct thing *t)
{
	xport_ep *ep;

	return xport_connect(t->x, "127.0.0.1:1", NULL, -2, &ep);
}

static int close_time(struct thing *t)
{
	return xport_ep_close(t->ep, -2);
}

static int ep_query(struct thing *t)
{
	return xport_ep_query(t->ep, NULL);
}

static int ep_query_size(struct thing *t)
{
	struct xport_ep_info i = {.size = 3};

	return xport_ep_query(t->ep, &i);
}

static int stats(struct thing *t)
{
	return xport_stats(t->x, NULL, NULL);
}

static int mr_reg(struct thing *t)
{
	xport_mr *mr;

	return xport_mr_reg(t->x, (void *)16, 4096, 0, &mr);
}

static int mr_alloc(struct thing *t)
{
	xport_mr *mr;

	return xport_mr_alloc(t->x, 0, 0, &mr);
}

static int mr_query(struct thing *t)
{
	return xport_mr_query(t->mr, NULL);
}

static int rkey_pack(struct thing *t)
{
	size_t len = 1;

	return xport_rkey_pack(t->mr, t->buf, &len);
}

static int rkey_unpack(struct thing *t)
{
	xport_rkey *k;

	return xport_rkey_unpack(t->ep, "no key", 6, &k);
}

static int rkey_query(struct thing *t)
{
	return xport_rkey_query(t->rkey, NULL);
}

static int put(struct thing *t)
{
	return xport_put(t->ep, t->buf, 8, t->rkey, 1 << 20, NULL);
}

static int get(struct thing *t)
{
	return xport_get(t->ep, t->buf, 8, t->rkey, 1 << 20, NULL);
}

static int put_notify(struct thing *t)
{
	return xport_put_notify(t->ep, t->buf, 8, t->rkey, 1 << 20, NULL);
}

static int atomic(struct thing *t)
{
	return xport_atomic(t->ep, NULL, t->rkey, 0, NULL);
}

static int send_null(struct thing *t)
{
	return xport_send(t->ep, NULL, 8, 1, NULL);
}

static int send_size(struct thing *t)
{
	struct xport_opt o = {.size = 1};

	return xport_send(t->ep, t->buf, 8, 1, &o);
}

static int recv_null(struct thing *t)
{
	return xport_recv(t->x, NULL, 8, 1, 1, NULL);
}

static int flush(struct thing *t)
{
	struct xport_opt o = {.size = sizeof(o), .flags = XPORT_QUIET};

	return xport_flush(t->ep, &o);
}

static int poll_null(struct thing *t)
{
	return xport_poll(t->x, NULL, 1);
}

static int poll_negative(struct thing *t)
{
	struct xport_completion c;

	return xport_poll(t->x, &c, -1);
}

static int wait_null(struct thing *t)
{
	return xport_wait(t->x, NULL, 1, 0);
}

static int wait_time(struct thing *t)
{
	struct xport_completion c;

	return xport_wait(t->x, &c, 1, -2);
}

static int wait_least(struct thing *t)
{
	struct xport_completion c;

	return xport_wait(t->x, &c, 1, INT32_MIN);
}

/* These end what the others use. */
static int close_again(struct thing *t)
{
	(void)!xport_ep_close(t->ep, 0);
	return xport_ep_close(t->ep, 0);
}

static int fence_closed(struct thing *t)
{
	return xport_fence(t->ep);
}

static const struct {
	const char *name;
	int status;
	int (*call)(struct thing *t);
} calls[] = {
	{"xport_query", XPORT_ERR_INVALID, query},
	{"xport_listen", XPORT_ERR_ADDRESS, listen_at},
	{"xport_listen", XPORT_ERR_INVALID, listen_attr},
	{"xport_listener_name", XPORT_ERR_BOUNDS, name_short},
	{"xport_listener_name", XPORT_ERR_INVALID, name_null},
	{"xport_accept", XPORT_ERR_TIMEOUT, accept_nobody},
	{"xport_accept", XPORT_ERR_INVALID, accept_null},
	{"xport_accept", XPORT_ERR_INVALID, accept_time},
	{"xport_connect", XPORT_ERR_ADDRESS, connect_to},
	{"xport_connect", XPORT_ERR_INVALID, connect_time},
	{"xport_ep_close", XPORT_ERR_INVALID, close_time},
	{"xport_ep_query", XPORT_ERR_INVALID, ep_query},
	{"xport_ep_query", XPORT_ERR_INVALID, ep_query_size},
	{"xport_stats", XPORT_ERR_INVALID, stats},
	{"xport_mr_reg", XPORT_ERR_FAULT, mr_reg},
	{"xport_mr_alloc", XPORT_ERR_INVALID, mr_alloc},
	{"xport_mr_query", XPORT_ERR_INVALID, mr_query},
	{"xport_rkey_pack", XPORT_ERR_BOUNDS, rkey_pack},
	{"xport_rkey_unpack", XPORT_ERR_BAD_KEY, rkey_unpack},
	{"xport_rkey_query", XPORT_ERR_INVALID, rkey_query},
	{"xport_put", XPORT_ERR_BOUNDS, put},
	{"xport_get", XPORT_ERR_BOUNDS, get},
	{"xport_put_notify", XPORT_ERR_BOUNDS, put_notify},
	{"xport_atomic", XPORT_ERR_INVALID, atomic},
	{"xport_send", XPORT_ERR_INVALID, send_null},
	{"xport_send", XPORT_ERR_INVALID, send_size},
	{"xport_recv", XPORT_ERR_INVALID, recv_null},
	{"xport_flush", XPORT_ERR_INVALID, flush},
	{"xport_poll", XPORT_ERR_INVALID, poll_null},
	{"xport_poll", XPORT_ERR_INVALID, poll_negative},
	{"xport_wait", XPORT_ERR_INVALID, wait_null},
	{"xport_wait", XPORT_ERR_INVALID, wait_time},
	{"xport_wait", XPORT_ERR_INVALID, wait_least},
	{"xport_ep_close", XPORT_ERR_CLOSED, close_again},
	{"xport_fence", XPORT_ERR_CLOSED, fence_closed},
};

/* Each call fails behind another one that did, and what is said is about it. */
static void each_call(struct h *h)
{
	struct h_mem m;
	struct h_key key;
	struct thing t;
	xport_ep *other;

	h_open(h, NULL);
	h_listen(h);
	H_OK(xport_connect(h->x, h->address, NULL, 0, &t.ep));
	other = h_accept(h);
	H_EVENT(XPORT_EVENT_CONNECTED);
	m = h_mem_target(h, 4096, 0, H_ALL);
	key = h_key_pack(h, &m);
	t.x = h->x;
	t.listener = h->listener;
	t.mr = m.mr;
	t.buf = m.p;
	t.rkey = h_unpack(h, t.ep, &key).k;
	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct xport_error before = {.size = sizeof(before)}, e = {.size = sizeof(e)};
		int r;

		H_STATUS(XPORT_ERR_INVALID, xport_cancel(h->x, 77));
		H_OK(xport_last_error(h->x, &before));
		H_TRUE(!strcmp(before.operation, "xport_cancel"));
		r = calls[i].call(&t);
		H_OK(xport_last_error(h->x, &e));
		H_CHECK(r == calls[i].status && e.status == r, "%s (the %uth) returned %s, the error is %s: %s",
		        calls[i].name, i, xport_status_name(r), xport_status_name(e.status), e.text);
		H_CHECK(!strcmp(e.operation, calls[i].name), "%s (the %uth): the error is of %s: %s", calls[i].name, i,
		        e.operation, e.text);
		H_CHECK(e.text[0] != '\0' && strcmp(e.text, before.text) != 0, "%s (the %uth) says \"%s\"",
		        calls[i].name, i, e.text);
	}
	xport_rkey_destroy(t.rkey);
	xport_ep_destroy(t.ep);
	xport_ep_destroy(other);
	h_run_for(h, 10);
}

/* Why an endpoint ended is asked of it, whatever failed since. */
static void survivor(struct h *h)
{
	struct xport_ep_info i = {.size = sizeof(i)};

	h_mesh(h, NULL);
	H_OK(xport_ep_query(h->ep[1], &i));
	H_EQ(XPORT_OK, i.reason);
	H_EQ(0, i.why[0]);
	h_sync(h);
	if (h->param != 0)
		h_kill(h, 1, SIGKILL);
	H_EVENT(h->param != 0 ? XPORT_EVENT_LOST : XPORT_EVENT_CLOSED);
	H_STATUS(XPORT_ERR_INVALID, xport_cancel(h->x, 77));
	H_STATUS(XPORT_ERR_INVALID, xport_poll(h->x, NULL, 1));
	for (int n = 0; n < 2; n++) {
		memset(&i, 0xee, sizeof(i));
		i.size = sizeof(i);
		H_OK(xport_ep_query(h->ep[1], &i));
		H_EQ(h->param != 0 ? XPORT_ERR_PEER_LOST : XPORT_ERR_PEER_CLOSED, i.reason);
		H_TRUE(memchr(i.why, 0, sizeof(i.why)) != NULL && i.why[0] != '\0');
		H_CHECK(h->param != 0 || strcmp(i.why, "the peer closed the endpoint") == 0, "says \"%s\"", i.why);
		H_CHECK(strstr(i.why, "receive") == NULL, "says \"%s\", of another failure", i.why);
	}
}

static void victim(struct h *h)
{
	h_mesh(h, NULL);
	h_sync(h);
	if (h->param == 0)
		H_OK(xport_ep_close(h->ep[0], h_ms(5000)));
	else
		h_run_for(h, h_ms(30000));
}

static const struct h_param endings[] = {{"closed", 0}, {"killed", 1}, {NULL, 0}};

const struct h_scenario cases_error[] = {
	{.name = "P5_why_it_ended", .role = {survivor, victim}, .params = endings, .flags = H_KILLS},
	{.name = "P11_last_error_of_each_call", .role = {each_call}},
	{.name = NULL},
};
