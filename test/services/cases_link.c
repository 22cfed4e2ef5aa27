/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_link.c - a link whose endpoint ends while its peer lives: it comes back, and repeats only what it may. */
#include "services/link_user.h"

enum { LONG = 100 * 1024 };

/* ---- up, down, up ---- */

static void comes_back(struct h *h)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	struct xport_link_event e;
	uint64_t incarnation;
	struct link_user u;
	xport_rkey *rkey;
	xport_ep *ep;

	link_begin(&u, h);
	link_open(&u, NULL);
	H_TRUE(xport_link_ep(u.link) == NULL);
	H_STATUS(XPORT_ERR_INVALID, xport_link_send(u.link, "x", 1, 1, NULL, 0));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_link_send", "wait for XPORT_LINK_UP");
	e = LINK_NEXT(&u, XPORT_LINK_UP);
	H_OK(e.status);
	H_TRUE(e.context == &u && e.ep == xport_link_ep(u.link) && strcmp(e.address, u.address[0]) == 0);
	H_TRUE(strncmp(e.transport, h->info.backend, strlen(h->info.backend)) == 0);
	H_OK(xport_ep_query(e.ep, &info));
	H_EQ(info.peer_incarnation, e.incarnation);
	incarnation = e.incarnation;
	link_key(&u);
	for (uint64_t i = 1; i < 4; i++) {
		link_works(&u, i);
		H_EQ(i, link_ask(&u, LINK_READ));
		ep = xport_link_ep(u.link);
		link_ask(&u, LINK_CLOSE);
		e = LINK_NEXT(&u, XPORT_LINK_DOWN);
		H_TRUE(e.status == XPORT_ERR_PEER_CLOSED || e.status == XPORT_ERR_PEER_LOST);
		H_TRUE(e.ep == ep && e.text[0] != '\0');
		/* The old endpoint is still there, and its keys. */
		H_OK(xport_ep_query(ep, &info));
		H_EQ(e.status, info.reason);
		H_TRUE(xport_link_ep(u.link) == NULL);
		H_TRUE(xport_link_rkey_get(u.key, &rkey) == e.status);
		SVC_ERROR(e.status, "xport_link_rkey_get", "the link is not up");
		link_turn_for(&u, 20); /* it waits for the application */
		H_OK(xport_ep_query(ep, &info));
		e = LINK_NEXT(&u, XPORT_LINK_UP);
		H_EQ(incarnation, e.incarnation);
		H_EQ(0, e.void_keys);
		H_OK(xport_link_rkey_get(u.key, &rkey));
	}
	H_EQ(4, link_info(&u).ups);
	/* The application wants another endpoint. */
	H_OK(xport_ep_close_start(xport_link_ep(u.link), h_ms(1000)));
	H_STATUS(XPORT_ERR_CLOSED, LINK_NEXT(&u, XPORT_LINK_DOWN).status);
	LINK_NEXT(&u, XPORT_LINK_UP);
	link_works(&u, 9);
	H_EQ(0, u.dropped);
	H_OK(xport_link_close(u.link, h_ms(10000)));
	H_STATUS(XPORT_ERR_CLOSED, xport_link_close(u.link, 1));
	H_STATUS(XPORT_ERR_CLOSED, xport_link_send(u.link, "x", 1, 1, NULL, XPORT_LINK_REPEATABLE));
	H_STATUS(XPORT_ERR_BUSY, xport_link_free(u.link));
	H_OK(LINK_NEXT(&u, XPORT_LINK_CLOSED).status);
	H_OK(xport_link_free(u.link));
	link_end(&u);
}

/* ---- what is repeated ---- */

/* Messages that are not received yet are in flight until their endpoint ends. */
static void repeats(struct h *h)
{
	uint8_t *buf = h_buf(h, 3 * LONG);
	struct xport_link_event e;
	struct link_user u;

	link_begin(&u, h);
	if (h->info.eager_max >= LONG)
		h_skip(h, "messages of 100 KiB are eager");
	h_fill(buf, LONG, 1);
	h_fill(buf + LONG, LONG, 2);
	link_open(&u, NULL);
	LINK_NEXT(&u, XPORT_LINK_UP);
	H_OK(xport_link_send(u.link, buf, LONG, 5, NULL, XPORT_LINK_REPEATABLE));
	H_OK(xport_link_send(u.link, buf + 2 * LONG, LONG, 6, NULL, 0));
	H_OK(xport_link_send(u.link, buf + LONG, LONG, 5, NULL, XPORT_LINK_REPEATABLE));
	link_quiet(&u, 20);
	H_EQ(3, link_info(&u).ops);
	link_ask(&u, LINK_CLOSE);
	e = LINK_NEXT(&u, XPORT_LINK_DONE); /* it is not repeated */
	H_TRUE(e.status == XPORT_ERR_PEER_CLOSED || e.status == XPORT_ERR_PEER_LOST);
	H_EQ(1, e.attempts);
	H_EQ(XPORT_OP_SEND, e.operation);
	LINK_NEXT(&u, XPORT_LINK_DOWN);
	H_EQ(2, link_info(&u).kept);
	LINK_NEXT(&u, XPORT_LINK_UP);
	h_tell_u64(h, 0, LINK_RECEIVE);
	LINK_DONE(&u, XPORT_OK, 2);
	LINK_DONE(&u, XPORT_OK, 2);
	while (!h_heard(h, 0))
		link_turn(&u);
	h_hear_u64(h, 0);
	H_EQ(0, link_info(&u).ops);
	H_EQ(0, link_info(&u).kept);
	link_quiet(&u, 20);
	link_end(&u);
}

/* The application closes the endpoint. What is in flight then, or is posted meanwhile, goes to the next endpoint. */
static void repeats_after_close(struct h *h)
{
	uint8_t *buf = h_buf(h, 2 * LONG);
	struct link_user u;

	link_begin(&u, h);
	if (h->info.eager_max >= LONG)
		h_skip(h, "messages of 100 KiB are eager");
	h_fill(buf, LONG, 1);
	h_fill(buf + LONG, LONG, 2);
	link_open(&u, NULL);
	LINK_NEXT(&u, XPORT_LINK_UP);
	H_OK(xport_link_send(u.link, buf, LONG, 5, NULL, XPORT_LINK_REPEATABLE));
	H_OK(xport_ep_close_start(xport_link_ep(u.link), h_ms(100)));
	H_STATUS(XPORT_ERR_CLOSED, xport_link_send(u.link, buf, 8, 6, NULL, 0));
	H_OK(xport_link_send(u.link, buf + LONG, LONG, 5, NULL, XPORT_LINK_REPEATABLE));
	link_turn_for(&u, 20);
	H_EQ(1, link_info(&u).kept);
	LINK_NEXT(&u, XPORT_LINK_DOWN);
	H_EQ(2, link_info(&u).kept);
	LINK_NEXT(&u, XPORT_LINK_UP);
	h_tell_u64(h, 0, LINK_RECEIVE);
	LINK_DONE(&u, XPORT_OK, 2);
	LINK_DONE(&u, XPORT_OK, 1);
	while (!h_heard(h, 0))
		link_turn(&u);
	h_hear_u64(h, 0);
	link_end(&u);
}

/* Posts a put, and closes the endpoint while the server is not polled. Returns whether the link keeps the put. */
static bool put_and_close(struct link_user *u, const uint64_t *word)
{
	struct h *h = u->h;

	link_ask(u, LINK_STOP);
	H_OK(xport_link_put(u->link, word, 8, u->key, 8, NULL, XPORT_LINK_REPEATABLE));
	H_OK(xport_ep_close_start(xport_link_ep(u->link), 0));
	while (link_info(u).state == XPORT_LINK_OPEN)
		link_turn(u);
	link_ask(u, LINK_READ);
	return link_info(u).kept == 1;
}

/* A put that may have had its effect is not posted with other bytes of its key. One that was not posted is. */
static void key_changes(struct h *h)
{
	uint8_t before[XPORT_LINK_KEY_MAX], other[XPORT_LINK_KEY_MAX] = {1};
	struct xport_ep_info info = {.size = sizeof(info)};
	const struct h_key *k;
	struct link_user u;
	uint64_t word = 5;
	size_t len;

	link_begin(&u, h);
	link_open(&u, NULL);
	LINK_NEXT(&u, XPORT_LINK_UP);
	link_key(&u);
	H_OK(xport_ep_query(xport_link_ep(u.link), &info));
	k = info.private_data;
	len = k->len;
	memcpy(before, k->bytes, len);
	if (!put_and_close(&u, &word))
		h_skip(h, "puts complete at once");
	LINK_NEXT(&u, XPORT_LINK_DOWN);
	H_OK(xport_link_rkey_set(u.key, before, len)); /* the same bytes */
	LINK_NEXT(&u, XPORT_LINK_UP);
	LINK_DONE(&u, XPORT_OK, 2);
	H_TRUE(put_and_close(&u, &word));
	LINK_NEXT(&u, XPORT_LINK_DOWN);
	H_OK(xport_link_put(u.link, &word, 8, u.key, 0, NULL, XPORT_LINK_REPEATABLE));
	H_OK(xport_link_rkey_set(u.key, other, 8));
	H_OK(xport_link_rkey_set(u.key, before, len));
	LINK_NEXT(&u, XPORT_LINK_UP);
	LINK_DONE(&u, XPORT_ERR_STALE_KEY, 1);
	LINK_DONE(&u, XPORT_OK, 1);
	H_EQ(5, link_ask(&u, LINK_READ));
	link_end(&u);
}

static void repeats_no_more(struct h *h)
{
	uint8_t *buf = h_buf(h, LONG);
	struct xport_link_event e;
	struct xport_link_attr a;
	struct link_user u;

	link_begin(&u, h);
	if (h->info.eager_max >= LONG)
		h_skip(h, "messages of 100 KiB are eager");
	a = link_attr(&u);
	a.repeats = 2;
	link_open(&u, &a);
	LINK_NEXT(&u, XPORT_LINK_UP);
	H_OK(xport_link_send(u.link, buf, LONG, 5, NULL, XPORT_LINK_REPEATABLE));
	for (int i = 0; i < 3; i++) {
		link_quiet(&u, 20);
		link_ask(&u, LINK_CLOSE);
		if (i == 2) {
			e = LINK_NEXT(&u, XPORT_LINK_DONE);
			H_TRUE(e.status == XPORT_ERR_PEER_CLOSED || e.status == XPORT_ERR_PEER_LOST);
			H_EQ(3, e.attempts);
		}
		LINK_NEXT(&u, XPORT_LINK_DOWN);
		LINK_NEXT(&u, XPORT_LINK_UP);
	}
	link_end(&u);
}

/* Posted while nobody listens. */
static void keeps(struct h *h)
{
	struct xport_link_attr a;
	struct link_user u;
	uint64_t word = 77;

	link_begin(&u, h);
	a = link_attr(&u);
	a.max_ops = 3;
	link_open(&u, &a);
	LINK_NEXT(&u, XPORT_LINK_UP);
	link_key(&u);
	link_ask(&u, LINK_SHUT);
	LINK_NEXT(&u, XPORT_LINK_DOWN);
	H_TRUE(xport_link_put(u.link, &word, 8, u.key, 0, NULL, 0) == link_info(&u).status);
	SVC_ERROR(link_info(&u).status, "xport_link_put", "XPORT_LINK_REPEATABLE");
	H_OK(xport_link_put(u.link, &word, 8, u.key, 0, NULL, XPORT_LINK_REPEATABLE));
	H_OK(xport_link_put(u.link, &word, 8, u.key, L_LEN, NULL, XPORT_LINK_REPEATABLE)); /* out of bounds */
	H_OK(xport_link_put_notify(u.link, &word, 8, u.key, 8, NULL, XPORT_LINK_REPEATABLE));
	H_STATUS(XPORT_ERR_AGAIN, xport_link_put(u.link, &word, 8, u.key, 0, NULL, XPORT_LINK_REPEATABLE));
	SVC_ERROR(XPORT_ERR_AGAIN, "xport_link_put", "the link has 3 operations that have not ended");
	H_STATUS(XPORT_ERR_BUSY, xport_link_rkey_remove(u.key));
	link_quiet(&u, 200);
	H_TRUE(link_info(&u).rounds > 0);
	H_EQ(3, link_info(&u).kept);
	link_ask(&u, LINK_LISTEN);
	LINK_NEXT(&u, XPORT_LINK_UP);
	LINK_DONE(&u, XPORT_ERR_BOUNDS, 0);
	LINK_DONE(&u, XPORT_OK, 1);
	LINK_DONE(&u, XPORT_OK, 1);
	H_EQ(77, link_ask(&u, LINK_READ));
	H_OK(xport_link_rkey_remove(u.key));
	link_end(&u);
}

/* Kept operations end when the link is closed. */
static void closes(struct h *h)
{
	struct xport_link_event e = {.size = sizeof(e)};
	struct link_user u;
	uint64_t word = 1;

	link_begin(&u, h);
	link_open(&u, NULL);
	LINK_NEXT(&u, XPORT_LINK_UP);
	link_key(&u);
	link_ask(&u, LINK_SHUT);
	if (h->param == 1) { /* DOWN was not taken */
		while (link_info(&u).state == XPORT_LINK_OPEN)
			link_turn(&u);
		H_EQ(-1, link_info(&u).wait_ms);
	} else {
		LINK_NEXT(&u, XPORT_LINK_DOWN);
	}
	H_OK(xport_link_put(u.link, &word, 8, u.key, 0, NULL, XPORT_LINK_REPEATABLE));
	H_OK(xport_link_close(u.link, 0));
	if (h->param == 1)
		LINK_NEXT(&u, XPORT_LINK_DOWN);
	LINK_DONE(&u, XPORT_ERR_CLOSED, 0);
	H_STATUS(XPORT_ERR_CLOSED, xport_link_retry(u.link));
	H_OK(LINK_NEXT(&u, XPORT_LINK_CLOSED).status);
	H_OK(xport_link_free(u.link));
	/* One that nobody took an event of is destroyed with the links. */
	u.link = NULL;
	link_open(&u, NULL);
	link_turn_for(&u, h->param == 1 ? 0 : 20);
	link_end(&u);
}

/* The peer receives nothing, so the close would never end. It is cut short: by the application, or with the links. */
static void closes_without_limit(struct h *h)
{
	struct link_user u;
	int64_t began;
	uint8_t *buf;

	link_begin(&u, h);
	if (h->info.eager_max >= LONG)
		h_skip(h, "messages of 100 KiB are eager");
	buf = h_buf(h, LONG);
	for (int i = 0; i < 3; i++) {
		link_open(&u, NULL);
		while (link_info(&u).state != XPORT_LINK_OPEN)
			link_turn(&u);
		if (i != 1)
			LINK_NEXT(&u, XPORT_LINK_UP);
		H_OK(xport_link_send(u.link, buf, LONG, 6, NULL, XPORT_LINK_REPEATABLE));
		link_turn(&u); /* posts it */
		H_OK(xport_link_close(u.link, -1));
		link_turn_for(&u, 50);
		H_EQ(XPORT_LINK_ENDING, link_info(&u).state);
		if (i == 2)
			break;
		H_OK(xport_link_close(u.link, 0));
		if (i == 1) /* it was not taken */
			H_TRUE(LINK_NEXT(&u, XPORT_LINK_UP).ep == NULL);
		H_STATUS(XPORT_ERR_TIMEOUT, LINK_NEXT(&u, XPORT_LINK_CLOSED).status);
		H_STATUS(XPORT_ERR_BUSY, xport_link_free(u.link));
		LINK_DONE(&u, XPORT_ERR_CLOSED, 1);
		H_OK(xport_link_free(u.link));
	}
	began = h_now_us();
	H_OK(xport_links_destroy(u.l, NULL, NULL, 100));
	H_TRUE(h_now_us() - began < (int64_t)h_ms(5000) * 1000);
	h_tell_u64(h, 0, LINK_END);
	h->idle = false;
	h_sync(h);
}

/* ---- addresses ---- */

static void second_address(struct h *h)
{
	const char *list[] = {NULL, "no.such.host.invalid:7000", NULL};
	struct xport_link_event e;
	struct xport_link_attr a;
	xport_listener *l;
	struct link_user u;

	link_begin(&u, h);
	a = link_attr(&u);
	list[0] = u.address[1];
	list[2] = u.address[0];
	H_OK(xport_link_open(u.l, list, 3, &a, &u.link));
	e = LINK_NEXT(&u, XPORT_LINK_UP);
	H_TRUE(strcmp(e.address, u.address[0]) == 0);
	H_EQ(0, link_info(&u).rounds);
	/* Now somebody listens at the first one, and it is not tried: the other one answered last. */
	H_OK(xport_listen(h->x, u.address[1], NULL, &l));
	link_ask(&u, LINK_CLOSE);
	LINK_NEXT(&u, XPORT_LINK_DOWN);
	e = LINK_NEXT(&u, XPORT_LINK_UP);
	H_TRUE(strcmp(e.address, u.address[0]) == 0);
	xport_listener_close(l);
	link_end(&u);
}

static void gives_up(struct h *h)
{
	const char *list[] = {NULL, "no.such.host.invalid:7000"}, *malformed = "nonsense";
	struct xport_link_event e;
	struct xport_link_attr a;
	struct link_user u;
	uint64_t word = 1;
	int64_t began;

	link_begin(&u, h);
	a = link_attr(&u);
	a.rounds = 2;
	list[0] = u.address[1];
	H_OK(xport_link_open(u.l, list, 2, &a, &u.link));
	H_OK(xport_link_send(u.link, &word, 8, 1, NULL, XPORT_LINK_REPEATABLE));
	LINK_DONE(&u, XPORT_ERR_UNREACHABLE, 0);
	for (int i = 0; i < 2; i++) {
		e = LINK_NEXT(&u, XPORT_LINK_GIVEN_UP);
		H_STATUS(XPORT_ERR_UNREACHABLE, e.status);
		H_CHECK(strstr(e.text, u.address[1]) && strstr(e.text, "XPORT_ERR_REFUSED: ") &&
		                strstr(e.text, "; no.such.host.invalid:7000: XPORT_ERR_UNREACHABLE: "),
		        "%s", e.text);
		H_EQ(2, link_info(&u).rounds);
		H_STATUS(XPORT_ERR_UNREACHABLE, xport_link_send(u.link, &word, 8, 1, NULL, XPORT_LINK_REPEATABLE));
		SVC_ERROR(XPORT_ERR_UNREACHABLE, "xport_link_send", "xport_link_retry");
		link_quiet(&u, 20);
		H_OK(xport_link_retry(u.link));
	}
	LINK_NEXT(&u, XPORT_LINK_GIVEN_UP);
	/* Before the event was taken: the link begins again when it is. */
	H_OK(xport_link_retry(u.link));
	while (link_info(&u).state != XPORT_LINK_STOPPED)
		link_turn(&u);
	H_OK(xport_link_retry(u.link));
	LINK_NEXT(&u, XPORT_LINK_GIVEN_UP);
	LINK_NEXT(&u, XPORT_LINK_GIVEN_UP);
	link_quiet(&u, 20);
	/* By time: 300 ms, with attempts until then. */
	a.rounds = 0;
	a.give_up_ms = h_ms(300);
	began = h_now_us();
	H_OK(xport_link_open(u.l, list, 1, &a, &u.link));
	LINK_NEXT(&u, XPORT_LINK_GIVEN_UP);
	H_TRUE(h_now_us() - began >= (int64_t)h_ms(300) * 1000 - 2000);
	H_TRUE(link_info(&u).rounds > 2);
	/* An error that does not pass. */
	a.give_up_ms = 0;
	H_OK(xport_link_open(u.l, &malformed, 1, &a, &u.link));
	H_STATUS(XPORT_ERR_ADDRESS, LINK_NEXT(&u, XPORT_LINK_GIVEN_UP).status);
	H_EQ(1, link_info(&u).rounds);
	a.flags = XPORT_LINK_ALL_ERRORS;
	H_OK(xport_link_open(u.l, &malformed, 1, &a, &u.link));
	link_quiet(&u, 300);
	H_TRUE(link_info(&u).rounds > 2);
	H_EQ(XPORT_LINK_WAITING, link_info(&u).state);
	link_end(&u);
}

/* Counts how often the link comes up until it gives up. */
static unsigned ups_until_given_up(struct link_user *u, const struct xport_link_attr *a)
{
	struct xport_link_event e = {.size = sizeof(e)};
	unsigned ups = 0;
	struct h *h = u->h;

	link_open(u, a);
	while (ups < 20) {
		H_OK(xport_links_wait(u->l, &e, NULL, NULL, h_ms(L_BACK_MS)));
		if (e.type == XPORT_LINK_GIVEN_UP)
			break;
		ups += e.type == XPORT_LINK_UP;
	}
	H_EQ(ups, link_info(u).ups);
	return ups;
}

/* A server that accepts, and drops the connection: the waits get longer all the same, and the limits count that. */
static void is_dropped(struct h *h)
{
	struct xport_link_attr a;
	struct link_user u;
	int64_t began;

	link_begin(&u, h);
	link_ask(&u, LINK_REJECT);
	a = link_attr(&u);
	a.first_ms = h_ms(100);
	a.max_ms = h_ms(1000);
	a.rounds = 3;
	began = h_now_us();
	/* More if the end of one is noticed so late that the link takes it for one that stayed, and begins to count anew. */
	H_TRUE(ups_until_given_up(&u, &a) >= 3);
	H_TRUE(h_now_us() - began >= (int64_t)h_ms(150) * 1000 - 2000); /* at least half of 100 ms and of 200 ms */
	H_EQ(3, link_info(&u).rounds);
	H_TRUE(link_info(&u).status == XPORT_ERR_PEER_CLOSED || link_info(&u).status == XPORT_ERR_PEER_LOST);
	a.rounds = 0;
	a.give_up_ms = h_ms(300);
	began = h_now_us();
	H_TRUE(ups_until_given_up(&u, &a) <= 4);
	H_TRUE(h_now_us() - began >= (int64_t)h_ms(300) * 1000 - 2000);
	link_end(&u);
}

/* The wait is cut short. */
static void retried(struct h *h)
{
	struct xport_link_attr a;
	const char *address;
	struct link_user u;

	link_begin(&u, h);
	link_ask(&u, LINK_SHUT);
	a = link_attr(&u);
	a.first_ms = a.max_ms = 3600 * 1000;
	address = u.address[0];
	H_OK(xport_link_open(u.l, &address, 1, &a, &u.link));
	while (link_info(&u).rounds == 0)
		link_turn(&u);
	H_TRUE(link_info(&u).wait_ms > 1000 * 1000);
	H_TRUE(xport_links_timeout(u.l) > 1000 * 1000);
	H_STATUS(XPORT_ERR_REFUSED, link_info(&u).status);
	link_ask(&u, LINK_LISTEN);
	H_OK(xport_link_retry(u.link));
	LINK_NEXT(&u, XPORT_LINK_UP);
	link_end(&u);
}

static const struct h_param close_params[] = {{"", 0}, {"down_not_taken", 1}, {NULL, 0}};

const struct h_scenario svc_cases_link[] = {
	{.name = "link_comes_back", .role = {link_server, comes_back}, .timeout_s = 60},
	{.name = "link_repeats", .role = {link_server, repeats}, .timeout_s = 60},
	{.name = "link_repeats_after_close", .role = {link_server, repeats_after_close}, .timeout_s = 60},
	{.name = "link_key_changes", .role = {link_server, key_changes}, .timeout_s = 60},
	{.name = "link_repeats_no_more", .role = {link_server, repeats_no_more}, .timeout_s = 60},
	{.name = "link_keeps", .role = {link_server, keeps}, .timeout_s = 60},
	{.name = "link_closes", .role = {link_server, closes}, .params = close_params, .timeout_s = 60},
	{.name = "link_closes_without_limit", .role = {link_server, closes_without_limit}, .timeout_s = 60},
	{.name = "link_second_address", .role = {link_server, second_address}, .flags = H_ONCE, .timeout_s = 60},
	{.name = "link_gives_up", .role = {link_server, gives_up}, .flags = H_ONCE, .timeout_s = 60},
	{.name = "link_is_dropped", .role = {link_server, is_dropped}, .flags = H_ONCE, .timeout_s = 60},
	{.name = "link_retried", .role = {link_server, retried}, .flags = H_ONCE, .timeout_s = 60},
	{.name = NULL},
};
