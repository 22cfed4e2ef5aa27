/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_connect.c - connecting, refusing, closing: the life of an endpoint, addresses good and bad (P5, P7, P11). */
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "harness_net.h"

/* ---- making ---- */

/* Private data goes both ways, up to its maximum, whole; the facts of the peer are right. */
static void private_data(struct h *h)
{
	struct xport_conn_attr a = {.size = sizeof(a), .context = h};
	struct xport_ep_info info = {.size = sizeof(info)};
	xport_listener *l = NULL;
	xport_ep *ep = NULL;
	uint8_t *mine;
	char address[80];
	size_t len;

	h_open(h, NULL);
	len = h->param ? h->info.private_max : 3;
	mine = h_buf(h, h->info.private_max + 1);
	h_fill(mine, len, (uint64_t)h->role);
	a.private_data = mine;
	a.private_len = h->info.private_max + 1;
	H_STATUS(XPORT_ERR_INVALID, xport_listen(h->x, "127.0.0.1:0", &a, &l));
	a.private_len = len;
	if (h->role == 0) {
		H_OK(xport_listen(h->x, "127.0.0.1:0", &a, &l));
		memset(mine, 0, len); /* it was copied */
		H_OK(xport_listener_name(l, address, sizeof(address)));
		h_tell(h, 1, address, sizeof(address));
		H_OK(xport_accept(l, h_ms(h->limit_ms), &ep));
	} else {
		h_hear(h, 0, address, sizeof(address));
		H_OK(xport_connect(h->x, address, &a, h_ms(h->limit_ms), &ep));
	}
	H_OK(xport_ep_query(ep, &info));
	H_EQ(len, info.private_len);
	H_FILLED(info.private_data, len, !h->role);
	H_TRUE(info.context == h);
	H_EQ(XPORT_EP_OPEN, info.state);
	H_EQ(XPORT_OK, info.reason);
	H_EQ(h_pid(h, h->config->threads ? 0 : !h->role), info.peer_pid);
	H_TRUE(info.peer_host[0] != 0);
	H_EQ(0, info.in_flight);
	if (h->role == 1)
		H_CHECK(!strcmp(info.peer, address), "peer %s, connected to %s", info.peer, address);
	else
		H_CHECK(!strcmp(info.local, address), "local %s, listens on %s", info.local, address);
	h_sync(h);
}

static const struct h_param lengths[] = {{"3", 0}, {"max", 1}, {NULL, 0}};

/* Other ways to say loopback. */
static void other_addresses(struct h *h)
{
	static const char *const names[] = {"127.0.0.1:0", "[::1]:0", "localhost:0", "127.0.0.2:0"};
	xport_listener *l = NULL;
	xport_ep *ep = NULL;
	struct addrinfo *known = NULL;
	char address[80];

	if (h->param == 2) {
		if (getaddrinfo("localhost", NULL, NULL, &known) != 0)
			h_skip(h, "this machine does not know the name localhost (/etc/hosts)");
		freeaddrinfo(known);
	}
	h_open(h, NULL);
	if (h->role == 0) {
		H_OK(xport_listen(h->x, names[h->param], NULL, &l));
		H_OK(xport_listener_name(l, address, sizeof(address)));
		H_CHECK(strtol(strrchr(address, ':') + 1, NULL, 10) > 0, "%s", address);
		h_tell(h, 1, address, sizeof(address));
		H_OK(xport_accept(l, h_ms(h->limit_ms), &ep));
	} else {
		h_hear(h, 0, address, sizeof(address));
		H_OK(xport_connect(h->x, address, NULL, h_ms(h->limit_ms), &ep));
		H_DONE(h_flush(h, ep));
	}
	h_sync(h);
}

static const struct h_param address_kinds[] = {{"ipv4", 0}, {"ipv6", 1}, {"name", 2}, {"ipv4_2", 3}, {NULL, 0}};

/* Without waiting: CONNECTED comes by itself, and then all works. */
static void connect_later(struct h *h)
{
	struct xport_completion c;
	struct xport_ep_info info = {.size = sizeof(info)};
	xport_ep *ep = NULL;
	struct xport_conn_attr a = {.size = sizeof(a), .context = &c};
	char address[80];

	h_open(h, NULL);
	h_hear(h, 0, address, sizeof(address));
	H_OK(xport_connect(h->x, address, &a, 0, &ep));
	H_OK(xport_ep_query(ep, &info));
	c = H_EVENT(XPORT_EVENT_CONNECTED);
	H_TRUE(c.ep == ep && c.context == &c);
	H_EQ(XPORT_OK, c.status);
	H_OK(xport_ep_query(ep, &info));
	H_EQ(XPORT_EP_OPEN, info.state);
	H_DONE(h_flush(h, ep));
	H_TRUE(!h_event_now(h, XPORT_EVENT_CONNECTED, &c));
	h_sync(h);
}

static void accept_one(struct h *h)
{
	h_open(h, NULL);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	h_accept(h);
	h_sync(h);
}

/* Many endpoints between two processes at once, each with its own stream. */
static void many(struct h *h)
{
	enum { N = 40 };
	xport_ep *ep[N];
	uint64_t out[N], in;
	char address[80];
	struct h_op *op;

	h_open(h, NULL);
	if (h->role == 0) {
		h_listen(h);
		h_tell(h, 1, h->address, sizeof(h->address));
	} else {
		h_hear(h, 0, address, sizeof(address));
	}
	for (int i = 0; i < N; i++)
		ep[i] = h->role ? h_connect(h, address) : h_accept(h);
	h_sync(h);
	for (int round = 0; round < 3; round++)
		for (uint64_t i = 0; i < N; i++) {
			if (h->role) {
				out[i] = i;
				H_DONE(h_send(h, ep[i], &out[i], 8, 1));
			} else {
				op = h_recv(h, ep[i], &in, 8, 1, UINT64_MAX);
				H_DONE(op);
				H_EQ(i, in);
				H_TRUE(op->c.ep == ep[i]);
			}
		}
	h_sync(h);
	for (int i = 0; i < N; i++)
		xport_ep_destroy(ep[i]);
	h_run_for(h, 20);
	h_sync(h);
}

static bool take_from(xport_ep **list, int *n, const xport_ep *ep)
{
	for (int i = 0; i < *n; i++) {
		if (list[i] != ep)
			continue;
		list[i] = list[--*n];
		return true;
	}
	return false;
}

enum { AGAIN = 65 }; /* one more than the endpoints that must be freed before a handle comes again */

static void is_new(struct h *h, const uintptr_t *had, int n, const xport_ep *ep)
{
	for (int i = 0; i < n; i++)
		H_CHECK(had[i] != (uintptr_t)ep, "endpoint %d has the handle of endpoint %d", n, i);
}

/* Connect and close again and again. */
static void again_and_again(struct h *h)
{
	char address[80];
	struct xport_completion c;
	uintptr_t had[AGAIN];
	xport_ep *ep, *closed[AGAIN];
	uint64_t word = 0;
	int nclosed = 0;

	h_open(h, NULL);
	if (h->role == 0) {
		h_listen(h);
		h_tell(h, 1, h->address, sizeof(h->address));
	} else {
		h_hear(h, 0, address, sizeof(address));
	}
	for (int i = 0; i < AGAIN; i++) {
		ep = h->role ? h_connect(h, address) : h_accept(h);
		is_new(h, had, i, ep);
		had[i] = (uintptr_t)ep;
		if (h->role == 0) {
			H_DONE(h_recv(h, ep, &word, 8, 1, UINT64_MAX));
			/* The next one's may come first: endpoints take their time to end. */
			while (!take_from(closed, &nclosed, ep)) {
				c = H_EVENT(XPORT_EVENT_CLOSED);
				H_EQ(XPORT_ERR_PEER_CLOSED, c.status);
				H_TRUE(nclosed < AGAIN);
				closed[nclosed++] = c.ep;
			}
		} else {
			H_DONE(h_send(h, ep, &word, 8, 1));
			H_OK(xport_ep_close(ep, h_ms(h->limit_ms)));
		}
		xport_ep_destroy(ep);
	}
	H_EQ(0, h->nqueue);
	h_sync(h);
}

/* A peer that connects, sends and closes before anybody accepts it: nothing is lost. */
static void closed_before_accept(struct h *h)
{
	struct xport_completion c;
	char address[80];
	xport_ep *ep;
	uint64_t word = 42;

	h_open(h, NULL);
	if (h->role == 0) {
		word = 0;
		h_listen(h);
		h_tell(h, 1, h->address, sizeof(h->address));
		c = H_EVENT(XPORT_EVENT_CLOSED);
		ep = h_accept(h);
		H_TRUE(c.ep == ep);
		H_DONE(h_recv(h, ep, &word, 8, 1, UINT64_MAX));
		H_EQ(42, word);
	} else {
		h_hear(h, 0, address, sizeof(address));
		ep = h_connect(h, address);
		H_DONE(h_send(h, ep, &word, 8, 1));
		H_OK(xport_ep_close(ep, h_ms(h->limit_ms)));
	}
	xport_ep_destroy(ep);
	h_sync(h);
}

/* An instance connected to itself. */
static void to_itself(struct h *h)
{
	xport_ep *out = NULL, *in = NULL;
	struct h_mem m, l;
	struct h_key key;
	struct h_rkey r;
	uint64_t a = 5, b = 0;
	struct h_op *op;

	h_open(h, NULL);
	h_listen(h);
	H_OK(xport_connect(h->x, h->address, NULL, 0, &out));
	H_OK(xport_accept(h->listener, h_ms(h->limit_ms), &in));
	H_EVENT(XPORT_EVENT_CONNECTED);
	m = h_mem_target(h, 65536, 0, H_ALL);
	l = h_mem_local(h, 65536, 0);
	key = h_key_pack(h, &m);
	r = h_unpack(h, out, &key);
	h_fill(l.p, 65536, 1);
	H_DONE(h_put(h, out, H_AT(l, 0, 65536), &r, 0, 0));
	H_FILLED(m.p, 65536, 1);
	op = h_recv(h, in, &b, 8, 1, UINT64_MAX);
	H_DONE(h_send(h, out, &a, 8, 1));
	H_DONE(op);
	H_EQ(5, b);
	xport_rkey_destroy(r.k);
	h_mem_free(h, &m);
	h_mem_free(h, &l);
}

/* ---- addresses that are none ---- */

static void bad_addresses(struct h *h)
{
	static const char *const bad[] = {"",
	                                  ":",
	                                  "127.0.0.1",
	                                  "127.0.0.1:",
	                                  ":80",
	                                  "127.0.0.1:http",
	                                  "127.0.0.1:65536",
	                                  "127.0.0.1:-1",
	                                  "127.0.0.1:99999999999999999999",
	                                  "127.0.0.1:7 ",
	                                  "127.0.0.1: 7",
	                                  "::1:80",
	                                  "[::1",
	                                  "[::1]",
	                                  "[::1]80",
	                                  "[]:80",
	                                  "127.0.0.1:80:90",
	                                  "[::g]:1",
	                                  "127.0.0.1:+7",
	                                  "127.0.0.1:0x50"};
	char longer[5000];
	xport_listener *l = NULL;
	xport_ep *ep = NULL;
	struct xport_error e = {.size = sizeof(e)};
	int s;

	setenv("XPORT_AUTH", "none", 1); /* the last address is off loopback */
	h_open(h, NULL);
	unsetenv("XPORT_AUTH");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		s = xport_connect(h->x, bad[i], NULL, 200, &ep);
		H_CHECK(s == XPORT_ERR_ADDRESS, "connect to '%s': %s", bad[i], xport_status_name(s));
		H_OK(xport_last_error(h->x, &e));
		H_CHECK(!strcmp(e.operation, "xport_connect") && e.text[0] && e.status == s, "'%s': %s %s", bad[i],
		        e.operation, e.text);
		s = xport_listen(h->x, bad[i], NULL, &l);
		H_CHECK(s == XPORT_ERR_ADDRESS, "listen on '%s': %s", bad[i], xport_status_name(s));
		H_TRUE(!ep && !l);
	}
	memset(longer, '1', sizeof(longer) - 1);
	longer[4000] = ':';
	longer[sizeof(longer) - 1] = 0;
	H_STATUS(XPORT_ERR_ADDRESS, xport_connect(h->x, longer, NULL, 200, &ep));
	H_STATUS(XPORT_ERR_ADDRESS, xport_listen(h->x, longer, NULL, &l));
	H_STATUS(XPORT_ERR_ADDRESS, xport_connect(h->x, "127.0.0.1:0", NULL, 200, &ep));
	/* a label longer than any name may have: fails without asking anybody */
	snprintf(longer, sizeof(longer), "%070d.invalid:80", 7);
	s = xport_connect(h->x, longer, NULL, h_ms(5000), &ep);
	H_CHECK(s == XPORT_ERR_UNREACHABLE || s == XPORT_ERR_ADDRESS, "%s", xport_status_name(s));
	H_STATUS(XPORT_ERR_UNREACHABLE, xport_connect(h->x, "255.255.255.255:80", NULL, h_ms(1000), &ep));
}

/* A port that is taken, so that nobody else comes to listen there, and where nobody listens. */
static int deaf_port(struct h *h, char *address, size_t len)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t n = sizeof(a);

	H_TRUE(fd >= 0 && bind(fd, (struct sockaddr *)&a, n) == 0 && getsockname(fd, (struct sockaddr *)&a, &n) == 0);
	snprintf(address, len, "127.0.0.1:%u", ntohs(a.sin_port));
	return fd;
}

/* Nobody listens: refused, at once, with the peer's address in the error. */
static void refused(struct h *h)
{
	struct xport_error e = {.size = sizeof(e)};
	struct xport_completion c;
	char address[80];
	xport_ep *ep = NULL;
	int fd, s;

	h_open(h, NULL);
	fd = deaf_port(h, address, sizeof(address));
	H_STATUS(XPORT_ERR_REFUSED, xport_connect(h->x, address, NULL, h_ms(5000), &ep));
	H_TRUE(!ep);
	H_OK(xport_last_error(h->x, &e));
	H_EQ(XPORT_ERR_REFUSED, e.status);
	H_EQ(ECONNREFUSED, e.native_code);
	H_CHECK(!strcmp(e.native, "ECONNREFUSED"), "%s", e.native);
	H_CHECK(!strcmp(e.peer, address) && !strcmp(e.operation, "xport_connect"), "%s %s", e.peer, e.operation);
	H_CHECK(e.text[0] && e.hint[0], "text '%s', hint '%s'", e.text, e.hint);
	/* and the same without waiting: at once, or as an event */
	s = xport_connect(h->x, address, NULL, 0, &ep);
	if (s == XPORT_OK) {
		c = H_EVENT(XPORT_EVENT_LOST);
		H_TRUE(c.ep == ep);
		s = c.status;
	}
	H_STATUS(XPORT_ERR_REFUSED, s);
	xport_ep_destroy(ep);
	h_run_for(h, 20);
	H_EQ(0, h->nqueue);
	close(fd);
}

/* Somebody takes the connection and says nothing. */
static void silent(struct h *h)
{
	struct xport_error e = {.size = sizeof(e)};
	char address[80];
	xport_ep *ep = NULL;
	int64_t t, starved;
	int fd;

	h_open(h, NULL);
	fd = h_raw_listen(h, address, sizeof(address));
	starved = h_starved_us();
	t = h_now_us();
	H_STATUS(XPORT_ERR_TIMEOUT, xport_connect(h->x, address, NULL, 400, &ep));
	t = h_now_us() - t;
	starved = h_starved_us() - starved;
	H_CHECK(t > 390000 && t - starved < 400000 + (int64_t)h_ms(500) * 1000, "took %" PRId64 " us", t);
	H_TRUE(!ep);
	H_OK(xport_last_error(h->x, &e));
	H_EQ(XPORT_ERR_TIMEOUT, e.status);
	H_TRUE(e.text[0] && !strcmp(e.peer, address));
	close(fd);
}

/* A true server that never polls looks the same from outside; when it wakes it goes on. */
static void sleepy_server(struct h *h)
{
	xport_ep *ep = NULL;

	h_expect_log(h, "");
	h_open(h, NULL);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	h->idle = true;
	h_hear_u64(h, 1);
	h->idle = false;
	while (!h->ep[1]) {
		struct xport_ep_info info = {.size = sizeof(info)};

		H_OK(xport_accept(h->listener, h_ms(h->limit_ms), &ep));
		H_OK(xport_ep_query(ep, &info));
		h_run_for(h, 50);
		H_OK(xport_ep_query(ep, &info));
		if (info.state == XPORT_EP_OPEN)
			h->ep[1] = ep;
		else
			xport_ep_destroy(ep);
	}
	h->nqueue = 0;
	h_sync(h);
}

static void impatient(struct h *h)
{
	char address[80];
	xport_ep *ep = NULL;

	h_open(h, NULL);
	h_hear(h, 0, address, sizeof(address));
	H_STATUS(XPORT_ERR_TIMEOUT, xport_connect(h->x, address, NULL, 300, &ep));
	h_tell_u64(h, 0, 1);
	h->ep[0] = h_connect(h, address);
	H_DONE(h_flush(h, h->ep[0]));
	h_sync(h);
}

const struct h_scenario cases_connect[] = {
	{.name = "P7_private_data_both_ways", .role = {private_data, private_data}, .params = lengths},
	{.name = "P11_addresses_of_loopback", .role = {other_addresses, other_addresses}, .params = address_kinds},
	{.name = "P10_connect_without_waiting", .role = {accept_one, connect_later}},
	{.name = "P8_forty_endpoints", .role = {many, many}},
	{.name = "P1_closed_before_accept", .role = {closed_before_accept, closed_before_accept}},
	{.name = "P12_connect_again_and_again", .role = {again_and_again, again_and_again}, .timeout_s = 60},
	{.name = "P2_connected_to_itself", .role = {to_itself}, .flags = H_TARGET},
	{.name = "P7_malformed_addresses", .role = {bad_addresses}},
	{.name = "P11_refused", .role = {refused}},
	{.name = "P5_silent_server", .role = {silent}},
	{.name = "P5_server_that_never_polls", .role = {sleepy_server, impatient}},
	{.name = NULL},
};
