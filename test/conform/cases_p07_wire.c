/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_p07_wire.c - P7, untrusted input: strangers, liars and other versions on the listening port. */
#include <sys/socket.h>

#include "harness_net.h"

enum { STRANGERS = 100, FORGED = 2 };

/* A server that must go on serving: accepts a true client and answers it, again and again. */
static void serve_one(struct h *h, xport_ep *ep)
{
	struct h_op *op = h_op(h, XPORT_OP_RECV);
	struct xport_opt o = {.size = sizeof(o), .context = op, .source = ep};
	struct xport_ep_info info = {.size = sizeof(info)};
	uint64_t n = 0;
	int s = xport_recv(h->x, &n, sizeof(n), 1, UINT64_MAX, &o);

	if (s != XPORT_OK) { /* it has left already */
		H_CHECK(s == XPORT_ERR_PEER_CLOSED || s == XPORT_ERR_PEER_LOST, "%s", xport_status_name(s));
		h_op_drop(h, op);
	} else {
		H_ENDED(op); /* in error for those who leave without a word */
		n++;
		if (op->c.status == XPORT_OK)
			H_DONE(h_send(h, ep, &n, sizeof(n), 2));
	}
	do
		h_breathe(h);
	while (xport_ep_query(ep, &info) == XPORT_OK && info.state == XPORT_EP_OPEN);
	xport_ep_destroy(ep);
	h->nqueue = 0; /* the news of its end, and of the end of those that wait to be accepted */
}

static void serve(struct h *h)
{
	xport_ep *ep;

	h_expect_log(h, "refused");
	h_expect_log(h, "handshake");
	h_open(h, NULL);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	for (;;) {
		if (h_heard(h, 1) && h_hear_u64(h, 1) == 0)
			break;
		if (xport_accept(h->listener, 10, &ep) == XPORT_OK)
			serve_one(h, ep);
	}
}

static void true_client(struct h *h, const char *address)
{
	uint64_t a = 41, b = 0;

	h->ep[0] = h_connect(h, address);
	H_DONE(h_send(h, h->ep[0], &a, sizeof(a), 1));
	H_DONE(h_recv(h, h->ep[0], &b, sizeof(b), 2, UINT64_MAX));
	H_EQ(42, b);
	xport_ep_close(h->ep[0], h_ms(1000));
	xport_ep_destroy(h->ep[0]);
	h->ep[0] = NULL;
	h->nqueue = 0;
}

static void begin(struct h *h, char *address)
{
	h_open(h, NULL);
	h_hear(h, 0, address, 80);
	true_client(h, address);
}

static void end(struct h *h, const char *address)
{
	true_client(h, address);
	h_tell_u64(h, 0, 0);
}

/* Random bytes of random lengths. */
static void noise(struct h *h)
{
	char address[80];
	uint8_t bytes[5000];
	unsigned seed = 99;

	begin(h, address);
	for (int i = 0; i < STRANGERS; i++) {
		size_t n = (size_t)rand_r(&seed) % sizeof(bytes);
		int fd = h_raw_connect(h, address);

		for (size_t k = 0; k < n; k++)
			bytes[k] = (uint8_t)rand_r(&seed);
		if (i % 3 == 0 && n > 8)
			memcpy(bytes, "XPRT", 4);
		if (i % 7 == 0)
			n = (size_t)snprintf((char *)bytes, sizeof(bytes), "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
		h_raw_write(fd, bytes, n);
		close(fd);
	}
	end(h, address);
}

/* Connections that say nothing, or half a word, and stay: a true client still gets in. */
static void half_open(struct h *h)
{
	char address[80];
	int fd[STRANGERS];

	begin(h, address);
	for (int i = 0; i < STRANGERS; i++) {
		fd[i] = h_raw_connect(h, address);
		h_raw_write(fd[i], "XPRT\1", (size_t)i % 6);
		if (i == 40)
			true_client(h, address);
	}
	for (int i = 0; i < STRANGERS; i++)
		if (i % 2)
			close(fd[i]);
	h_run_for(h, 100);
	end(h, address);
	for (int i = 0; i < STRANGERS; i += 2)
		close(fd[i]);
}

/* More strangers than may wait at a time, none of whom says anything; a client gets in when their time is over. */
static void crowd(struct h *h)
{
	char address[80];
	int fd[STRANGERS];

	begin(h, address);
	for (int i = 0; i < STRANGERS; i++)
		fd[i] = h_raw_connect(h, address);
	end(h, address);
	for (int i = 0; i < STRANGERS; i++)
		close(fd[i]);
}

/* What a true client sends first, as the proxy saw it pass: how long the two first messages are. */
static void lengths(struct h *h, struct h_proxy *p, long *up, long *down)
{
	xport_ep *ep;

	ep = h_connect(h, p->address);
	*up = atomic_load(&p->passed[0]);
	*down = atomic_load(&p->passed[1]);
	xport_ep_destroy(ep);
	H_CHECK(*up > 16 && *down > 16, "handshake of %ld and %ld bytes", *up, *down);
}

/* Each byte of the first message (or of the answer) spoiled in turn: refused on both sides, or harmless; the server lives. */
static void spoiled(struct h *h)
{
	char address[80];
	struct h_proxy p;
	long up, down, n;
	int refused = 0;
	xport_ep *ep;

	h_expect_log(h, "refused");
	h_expect_log(h, "handshake");
	begin(h, address);
	h_proxy_start(h, &p, address);
	lengths(h, &p, &up, &down);
	n = h->param & 1 ? down : up;
	/* With a good checksum only who and what the peer is: what follows may hold what its stack alone understands. */
	if (h->param & FORGED) {
		n = 48;
		atomic_store(&p.mend_sum, 1);
	}
	/* the whole of the fixed part, then every so many bytes of the rest */
	for (long i = 0; i < n; i += h->param & FORGED ? 1 : i < 256 ? 3 : n / 60 + 1) {
		int s;

		atomic_store(&p.flip_direction, (int)h->param & 1);
		atomic_store(&p.flip_mask, 1 << i % 8);
		atomic_store(&p.flip_at, i);
		ep = NULL;
		s = xport_connect(h->x, p.address, NULL, h_ms(300), &ep);
		H_CHECK(s <= 0, "byte %ld: %d", i, s);
		refused += s != XPORT_OK;
		if (s != XPORT_OK)
			H_CHECK(s == XPORT_ERR_PROTOCOL || s == XPORT_ERR_INCOMPATIBLE || s == XPORT_ERR_TIMEOUT ||
			                s == XPORT_ERR_REFUSED || s == XPORT_ERR_AUTH || s == XPORT_ERR_PEER_LOST,
			        "byte %ld: %s", i, xport_status_name(s));
		xport_ep_destroy(ep);
		h->nqueue = 0;
	}
	atomic_store(&p.flip_at, -1);
	H_CHECK(refused > 20, "only %d of the spoiled connections were refused", refused);
	end(h, address);
	h_proxy_stop(&p);
}

/* A peer that says the next wire version is refused at once, with a sentence that names both. */
enum { FLIPPED = 64 };

/* Whether it has "wire N)" twice, and the numbers differ by the flipped bit. */
static bool names_both(const char *text)
{
	const char *first = strstr(text, "wire "), *second = first != NULL ? strstr(first + 1, "wire ") : NULL;

	return second != NULL && (strtoul(first + 5, NULL, 10) ^ strtoul(second + 5, NULL, 10)) == FLIPPED;
}

static void other_version(struct h *h)
{
	char address[80];
	struct h_proxy p;
	struct xport_error e = {.size = sizeof(e)};
	xport_ep *ep = NULL;

	h_expect_log(h, "refused");
	h_expect_log(h, "handshake");
	begin(h, address);
	h_proxy_start(h, &p, address);
	atomic_store(&p.flip_direction, (int)h->param);
	atomic_store(&p.flip_mask, FLIPPED);
	atomic_store(&p.mend_sum, 1);
	atomic_store(&p.flip_at, 7); /* the low byte of the version, which stands in bytes 6 and 7 of every version */
	H_STATUS(XPORT_ERR_INCOMPATIBLE, xport_connect(h->x, p.address, NULL, h_ms(5000), &ep));
	H_OK(xport_last_error(h->x, &e));
	H_CHECK(strstr(e.text, "version") || strstr(e.text, "wire"), "says: %s", e.text);
	H_CHECK(names_both(e.text), "does not name both versions: %s", e.text);
	atomic_store(&p.flip_at, -1);
	end(h, address);
	h_proxy_stop(&p);
}

/* After the connection stands, garbage on its control channel ends that endpoint at most; another one goes on. */
static void garbage_later(struct h *h)
{
	char address[80];
	struct h_proxy p;
	xport_ep *good, *bad;
	struct xport_completion c;
	uint64_t word = 5;

	h_expect_log(h, "");
	h_open(h, NULL);
	h_hear(h, 0, address, 80);
	h_proxy_start(h, &p, address);
	good = h_connect(h, address);
	bad = h_connect(h, p.address);
	h_sync(h);
	/* every byte from here on is spoiled somewhere: the next heartbeat is a lie */
	atomic_store(&p.flip_direction, (int)h->param);
	atomic_store(&p.flip_mask, 0xff);
	atomic_store(&p.flip_at, atomic_load(&p.passed[h->param]));
	for (int i = 0; i < h_ms(300) && !h_event_now(h, XPORT_EVENT_LOST, &c); i++)
		h_run_for(h, 10);
	H_DONE(h_send(h, good, &word, sizeof(word), 3));
	H_DONE(h_flush(h, good));
	xport_ep_destroy(bad);
	h_sync(h);
	h_proxy_stop(&p);
}

static void garbage_server(struct h *h)
{
	struct xport_attr a = h_attr(h);
	uint64_t word = 0;

	h_expect_log(h, "");
	a.peer_timeout_ms = h_ms(1000);
	h_open(h, &a);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	h_accept(h);
	h_accept(h);
	h_sync(h);
	H_DONE(h_recv(h, NULL, &word, sizeof(word), 3, UINT64_MAX));
	H_EQ(5, word);
	h_sync(h);
}

/* A server of another kind: speaks first, speaks nonsense, hangs up. */
static void odd_server(struct h *h)
{
	static const char *const words[] = {"", "220 mail ready\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", "XPRT",
	                                    "XPRT\377\377\377\377"};
	char address[80];
	xport_ep *ep = NULL;
	int fd;

	h_open(h, NULL);
	fd = h_raw_listen(h, address, sizeof(address));
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		int s, client;

		H_OK(xport_connect(h->x, address, NULL, 0, &ep));
		h_run_for(h, 10);
		client = accept(fd, NULL, NULL);
		h_raw_write(client, words[i], strlen(words[i]));
		h_run_for(h, 10);
		shutdown(client, SHUT_RDWR);
		s = H_EVENT(XPORT_EVENT_LOST).status;
		H_CHECK(s == XPORT_ERR_PROTOCOL || s == XPORT_ERR_REFUSED || s == XPORT_ERR_INCOMPATIBLE ||
		                s == XPORT_ERR_PEER_LOST,
		        "'%s': %s", words[i], xport_status_name(s));
		close(client);
		xport_ep_destroy(ep);
	}
	close(fd);
}

static const struct h_param directions[] = {{"request", 0}, {"answer", 1}, {NULL, 0}};
static const struct h_param spoilings[] = {
	{"request", 0}, {"answer", 1}, {"request_forged", FORGED}, {"answer_forged", FORGED + 1}, {NULL, 0}};

const struct h_scenario cases_p07_wire[] = {
	{.name = "P7_noise_on_the_port", .role = {serve, noise}},
	{.name = "P7_half_open_connections", .role = {serve, half_open}},
	{.name = "P7_crowd_of_silent_strangers", .role = {serve, crowd}, .timeout_s = 60},
	{.name = "P7_handshake_byte_spoiled", .role = {serve, spoiled}, .params = spoilings, .timeout_s = 90},
	{.name = "P7_other_version_refused", .role = {serve, other_version}, .params = directions},
	{.name = "P7_garbage_on_the_control_channel", .role = {garbage_server, garbage_later}, .params = directions},
	{.name = "P7_server_of_another_kind", .role = {odd_server}},
	{.name = NULL},
};
