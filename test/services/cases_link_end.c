/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_link_end.c - a link whose peer dies and is started again, is suspended, has another key of authentication. */
#include <sys/stat.h>

#include "services/link_user.h"

enum { LONG = 100 * 1024 };

/* Kills the server, and starts it again at the same address. */
static void restart(struct link_user *u)
{
	struct h *h = u->h;

	h_kill(h, 0, SIGKILL);
	h_restart(h, 0);
	h_tell(h, 0, u->address[0], sizeof(u->address[0]));
}

/* It has told its address: it listens. */
static void restarted(struct link_user *u)
{
	struct h *h = u->h;
	char address[80];

	while (!h_heard(h, 0))
		link_turn(u);
	h_hear(h, 0, address, sizeof(address));
	H_TRUE(strcmp(address, u->address[0]) == 0);
}

static struct xport_directory_entry entry_of(struct link_user *u)
{
	struct xport_directory_entry entry = {.size = sizeof(entry)};
	struct xport_ep_info info = {.size = sizeof(info)};
	const struct h_key *k;
	struct h *h = u->h;

	H_OK(xport_ep_query(xport_link_ep(u->link), &info));
	k = info.private_data;
	memcpy(entry.key, k->bytes, k->len);
	entry.key_len = (uint32_t)k->len;
	return entry;
}

/* A put on its way, one that is kept, and a key that is void until it has new bytes. */
static void another_instance(struct h *h)
{
	struct xport_directory_entry before, now;
	uint8_t *buf = h_buf(h, LONG);
	struct xport_link_event e;
	struct link_user u;
	uint64_t first;
	xport_rkey *rkey;
	int n;

	link_begin(&u, h);
	link_open(&u, NULL);
	first = LINK_NEXT(&u, XPORT_LINK_UP).incarnation;
	link_key(&u);
	before = entry_of(&u);
	link_works(&u, 5);
	H_EQ(1, xport_links_entry(u.l, "region", 6, &before));
	H_EQ(0, xport_links_entry(u.l, "regions", 7, &before));
	H_OK(xport_link_send(u.link, buf, h->info.eager_max < LONG ? LONG : 1, 6, NULL, XPORT_LINK_REPEATABLE));
	n = link_info(&u).ops;
	restart(&u);
	if (h->info.eager_max >= LONG)
		LINK_DONE(&u, XPORT_OK, 1);
	e = LINK_NEXT(&u, XPORT_LINK_DOWN);
	H_TRUE(e.status == XPORT_ERR_PEER_LOST);
	H_OK(xport_link_put(u.link, buf, 8, u.key, 0, NULL, XPORT_LINK_REPEATABLE));
	H_OK(xport_link_send(u.link, buf, 8, 6, NULL, XPORT_LINK_REPEATABLE));
	if (h->info.eager_max < LONG)
		H_EQ(n + 2, link_info(&u).kept);
	link_quiet(&u, 0); /* nothing more of DOWN */
	restarted(&u);
	/* Nothing is posted to an instance that the application does not know yet. */
	while (link_info(&u).state != XPORT_LINK_OPEN)
		link_turn(&u);
	H_TRUE(xport_link_ep(u.link) == NULL);
	H_STATUS(XPORT_ERR_PEER_LOST, xport_link_send(u.link, buf, 8, 6, NULL, XPORT_LINK_REPEATABLE));
	SVC_ERROR(XPORT_ERR_PEER_LOST, "xport_link_send", "its event was not taken");
	if (h->info.eager_max < LONG)
		LINK_DONE(&u, XPORT_ERR_PEER_LOST, 1);
	LINK_DONE(&u, XPORT_ERR_STALE_KEY, 0);
	LINK_DONE(&u, XPORT_ERR_PEER_LOST, 0);
	e = LINK_NEXT(&u, XPORT_LINK_PEER_NEW);
	H_TRUE(e.incarnation != first && e.ep == xport_link_ep(u.link));
	H_EQ(1, e.void_keys);
	H_STATUS(XPORT_ERR_STALE_KEY, xport_link_put(u.link, buf, 8, u.key, 0, NULL, XPORT_LINK_REPEATABLE));
	SVC_ERROR(XPORT_ERR_STALE_KEY, "xport_link_put", "give it the new bytes by xport_link_rkey_set");
	H_STATUS(XPORT_ERR_STALE_KEY, xport_link_rkey_get(u.key, &rkey));
	H_STATUS(XPORT_ERR_STALE_KEY, xport_link_rkey_set(u.key, before.key, before.key_len));
	H_EQ(0, xport_links_entry(u.l, "region", 6, &before)); /* the directory does not know yet */
	now = entry_of(&u);
	H_EQ(1, xport_links_entry(u.l, "region", 6, &now));
	H_EQ(0, link_info(&u).void_keys);
	H_EQ(0, link_ask(&u, LINK_READ));
	link_works(&u, 6);
	H_EQ(6, link_ask(&u, LINK_READ));
	/* Again, and the application gives the bytes. */
	restart(&u);
	LINK_NEXT(&u, XPORT_LINK_DOWN);
	restarted(&u);
	H_EQ(1, LINK_NEXT(&u, XPORT_LINK_PEER_NEW).void_keys);
	link_key(&u);
	link_works(&u, 7);
	link_end(&u);
}

/* The new instance is lost before the application has taken PEER_NEW. What is posted then is not for that instance. */
static void new_one_is_lost(struct h *h)
{
	struct link_user u;
	uint64_t word = 9;

	link_begin(&u, h);
	link_open(&u, NULL);
	LINK_NEXT(&u, XPORT_LINK_UP);
	link_key(&u);
	restart(&u);
	LINK_NEXT(&u, XPORT_LINK_DOWN);
	link_quiet(&u, 0);
	restarted(&u);
	while (link_info(&u).state != XPORT_LINK_OPEN)
		link_turn(&u);
	link_ask(&u, LINK_CLOSE);
	while (link_info(&u).state == XPORT_LINK_OPEN)
		link_turn(&u);
	H_OK(xport_link_send(u.link, &word, 8, 6, NULL, XPORT_LINK_REPEATABLE));
	H_OK(xport_link_put(u.link, &word, 8, u.key, 0, NULL, XPORT_LINK_REPEATABLE));
	H_EQ(1, LINK_NEXT(&u, XPORT_LINK_PEER_NEW).void_keys);
	H_OK(xport_link_send(u.link, &word, 8, 6, NULL, XPORT_LINK_REPEATABLE)); /* this one is */
	LINK_NEXT(&u, XPORT_LINK_DOWN);
	LINK_DONE(&u, XPORT_ERR_PEER_LOST, 0);
	LINK_DONE(&u, XPORT_ERR_STALE_KEY, 0);
	H_EQ(1, LINK_NEXT(&u, XPORT_LINK_UP).void_keys);
	LINK_DONE(&u, XPORT_OK, 1);
	H_EQ(0, link_ask(&u, LINK_READ));
	H_EQ(0, link_info(&u).kept);
	link_end(&u);
}

/* The directory has the new bytes before the link is up. */
static void entry_comes_first(struct h *h)
{
	struct xport_conn_attr conn = {.size = sizeof(conn)};
	struct xport_directory_entry now = {.size = sizeof(now)};
	struct xport_ep_info info = {.size = sizeof(info)};
	struct xport_link_attr a;
	struct link_user u;
	xport_ep *other;

	link_begin(&u, h);
	a = link_attr(&u);
	a.conn = &conn;
	link_open(&u, &a);
	LINK_NEXT(&u, XPORT_LINK_UP);
	link_key(&u);
	restart(&u);
	LINK_NEXT(&u, XPORT_LINK_DOWN);
	restarted(&u);
	/* By an endpoint of its own: while xport_connect waits, no event is taken. */
	H_OK(xport_connect(h->x, u.address[0], NULL, h_ms(10000), &other));
	H_OK(xport_ep_query(other, &info));
	memcpy(now.key, ((const struct h_key *)info.private_data)->bytes,
	       ((const struct h_key *)info.private_data)->len);
	now.key_len = (uint32_t)((const struct h_key *)info.private_data)->len;
	H_TRUE(link_info(&u).state != XPORT_LINK_OPEN);
	H_EQ(1, xport_links_entry(u.l, "region", 6, &now));
	H_EQ(0, LINK_NEXT(&u, XPORT_LINK_PEER_NEW).void_keys);
	link_works(&u, 3);
	(void)xport_ep_close(other, 0);
	xport_ep_destroy(other);
	link_end(&u);
}

/* Silent for longer than the peer timeout, then there again: the same instance, and what was kept is posted. */
static void suspended(struct h *h)
{
	struct link_user u;
	uint64_t word = 8;

	link_begin(&u, h);
	link_open(&u, NULL);
	LINK_NEXT(&u, XPORT_LINK_UP);
	link_key(&u);
	h_stop(h, 0);
	H_STATUS(XPORT_ERR_PEER_LOST, LINK_NEXT(&u, XPORT_LINK_DOWN).status);
	H_OK(xport_link_put(u.link, &word, 8, u.key, 0, NULL, XPORT_LINK_REPEATABLE));
	link_quiet(&u, 200);
	h_cont(h, 0);
	LINK_NEXT(&u, XPORT_LINK_UP);
	LINK_DONE(&u, XPORT_OK, 1);
	H_EQ(8, link_ask(&u, LINK_READ));
	link_end(&u);
}

/* ---- authentication ---- */

/* Opens with a key of authentication; the role is a process of its own. */
static bool open_with_key(struct h *h, const char *key)
{
	char path[] = "/tmp/xport-link-key.XXXXXX";
	int fd = mkstemp(path), r;
	struct xport_attr a = h_attr(h);

	H_TRUE(fd >= 0 && write(fd, key, strlen(key)) == (ssize_t)strlen(key) && fchmod(fd, 0600) == 0);
	close(fd);
	setenv("XPORT_AUTH_KEY_FILE", path, 1);
	r = xport_open(&a, &h->x);
	unlink(path);
	if (r == XPORT_ERR_NOT_SUPPORTED)
		h_skip(h, "authentication by a key is absent from this build (libsodium)");
	H_OK(r);
	return true;
}

static void strange_server(struct h *h)
{
	char address[80];
	xport_listener *l;

	h->limit_ms = 60000;
	open_with_key(h, "0123456789abcdef0123456789abcdef\n");
	H_OK(xport_listen(h->x, "127.0.0.1:0", NULL, &l));
	H_OK(xport_listener_name(l, address, sizeof(address)));
	h_tell(h, 1, address, sizeof(address));
	while (!h_heard(h, 1))
		h_breathe(h);
	h_hear_u64(h, 1);
	xport_listener_close(l);
	h_sync(h);
}

static void is_refused(struct h *h)
{
	struct xport_link_attr a;
	struct link_user u = {.h = h};

	open_with_key(h, "fedcba9876543210fedcba9876543210\n");
	h_hear(h, 0, u.address[0], sizeof(u.address[0]));
	h->idle = true;
	H_OK(xport_links_create(h->x, &u.l));
	a = link_attr(&u);
	link_open(&u, &a);
	H_STATUS(XPORT_ERR_AUTH, LINK_NEXT(&u, XPORT_LINK_GIVEN_UP).status);
	H_EQ(1, link_info(&u).rounds);
	/* Unless the application wants that: the server may get the right key. */
	a.flags = XPORT_LINK_ALL_ERRORS;
	a.rounds = 3;
	link_open(&u, &a);
	H_STATUS(XPORT_ERR_AUTH, LINK_NEXT(&u, XPORT_LINK_GIVEN_UP).status);
	H_EQ(3, link_info(&u).rounds);
	link_end(&u);
}

const struct h_scenario svc_cases_link_end[] = {
	{.name = "link_another_instance", .role = {link_server, another_instance}, .flags = H_KILLS, .timeout_s = 60},
	{.name = "link_new_one_is_lost", .role = {link_server, new_one_is_lost}, .flags = H_KILLS, .timeout_s = 60},
	{.name = "link_entry_comes_first",
         .role = {link_server, entry_comes_first},
         .flags = H_KILLS | H_ONCE,
         .timeout_s = 60},
	{.name = "link_suspended", .role = {link_server, suspended}, .flags = H_KILLS | H_ONCE, .timeout_s = 60},
	{.name = "link_is_refused", .role = {strange_server, is_refused}, .flags = H_KILLS | H_ONCE, .timeout_s = 60},
	{.name = NULL},
};
