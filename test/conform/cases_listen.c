/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_listen.c - listeners, and whom they take (P5, P7, P11, P12, P14). */
#include "harness_net.h"

/* ---- listening ---- */

static void listener_facts(struct h *h)
{
	xport_listener *l = NULL, *second = NULL;
	xport_ep *ep = (xport_ep *)&l;
	char name[80], small[80];
	int64_t t, starved;
	int s;

	h_open(h, NULL);
	H_OK(xport_listen(h->x, "127.0.0.1:0", NULL, &l));
	H_OK(xport_listener_name(l, name, sizeof(name)));
	H_TRUE(!strncmp(name, "127.0.0.1:", 10));
	for (size_t room = 0; room <= strlen(name); room++) {
		memset(small, 0x66, sizeof(small));
		H_STATUS(XPORT_ERR_BOUNDS, xport_listener_name(l, small, room));
		H_BYTES(small + room, sizeof(small) - room, 0x66);
	}
	H_OK(xport_listener_name(l, small, strlen(name) + 1));
	H_TRUE(!strcmp(small, name));
	H_STATUS(XPORT_ERR_ADDRESS, xport_listen(h->x, name, NULL, &second)); /* taken */
	H_STATUS(XPORT_ERR_TIMEOUT, xport_accept(l, 0, &ep));
	starved = h_starved_us();
	t = h_now_us();
	H_STATUS(XPORT_ERR_TIMEOUT, xport_accept(l, 200, &ep));
	t = h_now_us() - t;
	starved = h_starved_us() - starved;
	H_CHECK(t >= 199000 && t - starved < 200000 + (int64_t)h_ms(500) * 1000, "took %" PRId64 " us", t);
	H_TRUE(ep == NULL || ep == (xport_ep *)&l);
	xport_listener_close(l);
	xport_listener_close(NULL);
	s = xport_listen(h->x, name, NULL, &l); /* free again */
	H_STATUS(XPORT_OK, s);
	xport_listener_close(l);
}

/* The events of a connection may come before it is accepted; who gives it back then is not handed it again. */
static void ended_before_accept(struct h *h)
{
	struct xport_completion c;
	char address[80];
	xport_ep *ep = NULL;
	uint64_t word = 7;

	h_open(h, NULL);
	if (h->role == 1) {
		h_hear(h, 0, address, sizeof(address));
		ep = h_connect(h, address);
		H_DONE(h_send(h, ep, &word, 8, 1));
		H_OK(xport_ep_close(ep, h_ms(h->limit_ms)));
		xport_ep_destroy(ep);
		h_sync(h);
		return;
	}
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	c = H_EVENT(XPORT_EVENT_CLOSED);
	xport_ep_destroy(c.ep);
	H_STATUS(XPORT_ERR_TIMEOUT, xport_accept(h->listener, 0, &ep));
	h_sync(h);
}

/* Off loopback nobody listens without a word on authentication. */
static void off_loopback(struct h *h)
{
	xport_listener *l = NULL;
	struct xport_error e = {.size = sizeof(e)};

	h_open(h, NULL);
	H_STATUS(XPORT_ERR_AUTH, xport_listen(h->x, "*:0", NULL, &l));
	H_OK(xport_last_error(h->x, &e));
	H_CHECK(strstr(e.text, "XPORT_AUTH") || strstr(e.hint, "XPORT_AUTH"), "%s / %s", e.text, e.hint);
	H_STATUS(XPORT_ERR_AUTH, xport_listen(h->x, "0.0.0.0:0", NULL, &l));
	H_STATUS(XPORT_ERR_AUTH, xport_listen(h->x, "[::]:0", NULL, &l));
	H_TRUE(!l);
}

/* Connections that nobody accepted are closed with their listener: the other side hears of it. */
static void close_listener(struct h *h)
{
	h->incoming = true;
	h_open(h, NULL);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	h_sync(h); /* progress: the connection gets ready */
	H_EVENT(XPORT_EVENT_INCOMING);
	xport_listener_close(h->listener);
	h->listener = NULL;
	h_sync(h);
}

static void not_accepted(struct h *h)
{
	char address[80];
	struct xport_completion c = {0};
	xport_ep *ep;

	h_open(h, NULL);
	h_hear(h, 0, address, sizeof(address));
	ep = h_connect(h, address);
	h_sync(h);
	h_sync(h);
	for (int i = 0;
	     i < h_ms(300) && !h_event_now(h, XPORT_EVENT_CLOSED, &c) && !h_event_now(h, XPORT_EVENT_LOST, &c); i++)
		h_run_for(h, 10);
	H_TRUE(c.ep == ep);
	H_TRUE(c.status < 0);
	H_STATUS(XPORT_ERR_REFUSED, xport_connect(h->x, address, NULL, h_ms(2000), &ep));
}

/* Who has heard of one of them by a message hears of its end, and gives it back. */
static void close_listener_named(struct h *h)
{
	struct xport_completion c;
	struct xport_ep_info info = {.size = sizeof(info)};
	uint64_t word = 0;
	struct h_op *op;

	h->incoming = true;
	h_open(h, NULL);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	op = h_recv(h, NULL, &word, 8, 1, UINT64_MAX);
	H_DONE(op);
	H_EVENT(XPORT_EVENT_INCOMING); /* before that the handshake ends it, as refused */
	xport_listener_close(h->listener);
	h->listener = NULL;
	c = H_EVENT(XPORT_EVENT_LOST);
	H_STATUS(XPORT_ERR_CLOSED, c.status);
	H_TRUE(c.ep == op->c.ep);
	H_OK(xport_ep_query(c.ep, &info));
	H_EQ(XPORT_EP_CLOSED, info.state);
	xport_ep_destroy(c.ep);
	h_sync(h);
}

static void named(struct h *h)
{
	uint64_t word = 7;
	char address[80];
	xport_ep *ep;

	h_open(h, NULL);
	h_hear(h, 0, address, sizeof(address));
	ep = h_connect(h, address);
	H_DONE(h_send(h, ep, &word, 8, 1));
	H_STATUS(XPORT_ERR_PEER_CLOSED, H_EVENT(XPORT_EVENT_CLOSED).status);
	h_sync(h);
}

/* ---- who fits ---- */

/* One address may take so many places and no more; what it gives back it may take again; another address has its own. */
static void stingy_server(struct h *h)
{
	xport_listener *l = NULL;
	char address[80];
	xport_ep *ep;

	h_expect_log(h, "refused");
	setenv("XPORT_PEER_CONNECTIONS", "3", 1);
	h_open(h, NULL);
	unsetenv("XPORT_PEER_CONNECTIONS");
	h_listen(h);
	H_OK(xport_listen(h->x, "[::1]:0", NULL, &l));
	H_OK(xport_listener_name(l, address, sizeof(address)));
	h_tell(h, 1, h->address, sizeof(h->address));
	h_tell(h, 1, address, sizeof(address));
	for (int i = 0; i < 3; i++)
		h_accept(h);
	h_sync(h);
	H_EVENT(XPORT_EVENT_CLOSED);
	h_sync(h);
	h_accept(h);
	H_OK(xport_accept(l, h_ms(h->limit_ms), &ep));
	h_sync(h);
}

static void greedy_client(struct h *h)
{
	struct xport_error e = {.size = sizeof(e)};
	char address[80], other[80];
	xport_ep *first, *ep = NULL;

	h_open(h, NULL);
	h_hear(h, 0, address, sizeof(address));
	h_hear(h, 0, other, sizeof(other));
	first = h_connect(h, address);
	h_connect(h, address);
	h_connect(h, address);
	h_sync(h);
	for (int i = 0; i < 5; i++) {
		H_STATUS(XPORT_ERR_REFUSED, xport_connect(h->x, address, NULL, h_ms(5000), &ep));
		H_OK(xport_last_error(h->x, &e));
		H_CHECK(strstr(e.text, "3 connections already") && strstr(e.text, "XPORT_PEER_CONNECTIONS"), "%s",
		        e.text);
	}
	H_OK(xport_ep_close(first, h_ms(h->limit_ms)));
	xport_ep_destroy(first);
	h_sync(h);
	h_connect(h, address);
	h_connect(h, other);
	h_sync(h);
}

/* Another provider at the other end: refused on both sides with a sentence that names both. */
static void other_provider(struct h *h)
{
	struct xport_candidate *c = h_buf(h, 64 * sizeof(*c));
	struct xport_attr a = h_attr(h);
	struct xport_error e = {.size = sizeof(e)};
	char address[80];
	const char *own;
	xport_ep *ep = NULL;
	int n = xport_list(&a, c, sizeof(*c), 64), i = 0;

	h_expect_log(h, "refused");
	while (i < n && (c[i].state != XPORT_READY || h_asked_for(h, c[i].name) || !strchr(c[i].name, ':')))
		i++;
	if (i >= n || !strcmp(h->config->backend, "auto"))
		h_skip(h, "a second usable provider is absent");
	a.backend = c[i].name;
	h_open(h, &a);
	h_hear(h, 0, address, sizeof(address));
	H_STATUS(XPORT_ERR_INCOMPATIBLE, xport_connect(h->x, address, NULL, h_ms(5000), &ep));
	H_OK(xport_last_error(h->x, &e));
	H_CHECK(strstr(e.text, c[i].name), "'%s' does not name %s", e.text, c[i].name);
	own = strchr(h->config->backend, '+');
	snprintf(address, sizeof(address), "%.*s", own ? (int)(own - h->config->backend) : 79, h->config->backend);
	H_CHECK(strstr(e.text, address), "'%s' does not name %s", e.text, address);
	h_tell_u64(h, 0, 1);
}

static void particular(struct h *h)
{
	struct xport_error e = {.size = sizeof(e)};
	xport_ep *ep = NULL;
	bool told = false;

	h_expect_log(h, "refused");
	h_open(h, NULL);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	while (!h_heard(h, 1)) {
		H_STATUS(XPORT_ERR_TIMEOUT, xport_accept(h->listener, 20, &ep));
		H_OK(xport_last_error(h->x, &e));
		told = told || (strstr(e.text, "1 failed") && strstr(e.text, "the peer runs"));
	}
	h_hear_u64(h, 1);
	H_CHECK(told, "xport_accept never said that a client was refused, and why; last: %s", e.text);
	H_CHECK(h_count_log(h, "the peer runs") > 0, "the server does not log what the client runs");
	H_CHECK(h_count_log(h, "INFO") + h_count_log(h, "WARN") > 0, "the server says nothing of the refusal");
	H_EQ(0, h->nqueue);
}

/* ---- names ---- */

/* A listener at all addresses has a name that a peer can connect to. */
static void everywhere(struct h *h)
{
	char name[80];

	setenv("XPORT_AUTH", "none", 1);
	h_open(h, NULL);
	for (int i = 0; i < 3; i++) {
		static const char *const all[] = {"*:0", "0.0.0.0:0", "[::]:0"};
		xport_listener *l = NULL;

		if (xport_listen(h->x, all[i], NULL, &l) == XPORT_ERR_ADDRESS)
			continue; /* no IPv6 */
		H_OK(xport_listener_name(l, name, sizeof(name)));
		H_CHECK(strncmp(name, "0.", 2) && strncmp(name, "[::]", 4) && strncmp(name, "*", 1), "%s", name);
		h_tell(h, 1, name, sizeof(name));
		h->listener = l;
		h_accept(h);
		h_sync(h);
	}
	h_tell(h, 1, "", 1);
	h_sync(h);
}

static void calls_everywhere(struct h *h)
{
	char name[80];

	setenv("XPORT_AUTH", "none", 1);
	h_open(h, NULL);
	for (;;) {
		h_hear(h, 0, name, sizeof(name));
		if (name[0] == '\0')
			break;
		h_connect(h, name);
		h_sync(h);
	}
	h_sync(h);
}

static void trailing_dot(struct h *h)
{
	xport_listener *l = NULL;

	h_open(h, NULL);
	if (xport_listen(h->x, "localhost:0", NULL, &l) != XPORT_OK)
		h_skip(h, "the name localhost is absent");
	xport_listener_close(l);
	H_OK(xport_listen(h->x, "localhost.:0", NULL, &l));
	xport_listener_close(l);
}

const struct h_scenario cases_listen[] = {
	{.name = "P11_listener", .role = {listener_facts}},
	{.name = "P12_ended_before_accept", .role = {ended_before_accept, ended_before_accept}},
	{.name = "P7_off_loopback_needs_authentication", .role = {off_loopback}},
	{.name = "P14_one_address_takes_its_share", .role = {stingy_server, greedy_client}, .flags = H_ONCE},
	{.name = "P5_listener_closed", .role = {close_listener, not_accepted}},
	{.name = "P5_listener_closed_after_a_message", .role = {close_listener_named, named}},
	{.name = "P11_other_provider_refused", .role = {particular, other_provider}},
	{.name = "P11_all_addresses_have_a_name", .role = {everywhere, calls_everywhere}, .flags = H_ONCE},
	{.name = "P11_trailing_dot", .role = {trailing_dot}, .flags = H_ONCE},
	{.name = NULL},
};
