/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cases_connect_later.c - P5 and P11: names that are not resolved in time, time limits of connections that nobody waits for, and
 * what an application attaches to an endpoint or listener.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>

#include "harness_net.h"

/* ---- a name server that does not answer ---- */

static bool own_file(const char *name, const char *words)
{
	char path[] = "/tmp/xport-own-XXXXXX";
	int fd = mkstemp(path);
	bool ok = fd >= 0 && write(fd, words, strlen(words)) > 0 && mount(path, name, NULL, MS_BIND, NULL) == 0;

	if (fd >= 0) {
		unlink(path);
		close(fd);
	}
	return ok;
}

/* Names come from files and DNS alone, and DNS is asked at `address`. */
static bool own_resolver(const char *address)
{
	char words[64];

	snprintf(words, sizeof(words), "nameserver %s\n", address);
	return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && own_file("/etc/resolv.conf", words) &&
	       (access("/etc/nsswitch.conf", F_OK) != 0 || own_file("/etc/nsswitch.conf", "hosts: files dns\n"));
}

/* In a mount namespace of its own, all names are asked of a socket that nobody reads, at a loopback address of its own. */
static int deaf_name_server(struct h *h)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(53)};
	char address[INET_ADDRSTRLEN];
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	a.sin_addr.s_addr = htonl(0x7f010001 + ((uint32_t)getpid() & 0xffff));
	inet_ntop(AF_INET, &a.sin_addr, address, sizeof(address));
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) != 0 || unshare(CLONE_NEWNS) != 0 ||
	    !own_resolver(address))
		h_skip(h, "capability 'port 53 and a mount namespace' is absent: %m");
	return fd;
}

/* getaddrinfo would wait 10 s or more. The call that waits keeps to its time limit; the other does not wait at all. */
static void unresolved(struct h *h)
{
	struct xport_conn_attr a = {.size = sizeof(a), .connect_ms = 300};
	struct xport_error e = {.size = sizeof(e)};
	struct xport_ep_info info = {.size = sizeof(info)};
	struct xport_completion c;
	xport_ep *ep[8], *none = NULL;
	int fd = deaf_name_server(h);
	int64_t t, starved;

	h_open(h, NULL);
	starved = h_starved_us();
	t = h_now_us();
	H_STATUS(XPORT_ERR_TIMEOUT, xport_connect(h->x, "name.example:7000", NULL, 300, &none));
	t = h_now_us() - t;
	starved = h_starved_us() - starved;
	H_CHECK(t > 290000 && t - starved < 300000 + (int64_t)h_ms(700) * 1000, "took %" PRId64 " us", t);
	H_OK(xport_last_error(h->x, &e));
	H_CHECK(strstr(e.text, "name is not looked up yet") && e.hint[0], "text '%s', hint '%s'", e.text, e.hint);

	starved = h_starved_us();
	t = h_now_us();
	for (int i = 0; i < 8; i++)
		H_OK(xport_connect(h->x, i % 2 ? "name.example:7000" : "other.example.:7000", &a, 0, &ep[i]));
	t = h_now_us() - t;
	starved = h_starved_us() - starved;
	H_CHECK(t - starved < (int64_t)h_ms(200) * 1000, "8 calls that do not wait took %" PRId64 " us", t);
	xport_ep_destroy(ep[7]); /* given up at once */
	for (int i = 0; i < 7; i++) {
		c = H_EVENT(XPORT_EVENT_LOST);
		H_EQ(XPORT_ERR_TIMEOUT, c.status);
		H_OK(xport_ep_query(c.ep, &info));
		H_CHECK(strstr(info.why, "name is not looked up yet"), "why '%s'", info.why);
		H_EQ(0, info.peer_incarnation);
		xport_ep_destroy(c.ep);
	}
	h_run_for(h, 20);
	H_EQ(0, h->nqueue);
	close(fd);
}

/* ---- a server that says nothing ---- */

static void late_by_attr(struct h *h)
{
	struct xport_conn_attr a = {.size = sizeof(a), .connect_ms = 300},
			       bad = {.size = sizeof(bad), .connect_ms = -1};
	char address[80];
	xport_ep *ep = NULL;
	int64_t t;
	int fd;

	h_open(h, NULL);
	fd = h_raw_listen(h, address, sizeof(address));
	H_STATUS(XPORT_ERR_INVALID, xport_connect(h->x, address, &bad, 0, &ep));
	t = h_now_us();
	H_OK(xport_connect(h->x, address, &a, 0, &ep));
	H_EQ(XPORT_ERR_TIMEOUT, H_EVENT(XPORT_EVENT_LOST).status);
	t = h_now_us() - t;
	H_CHECK(t > 290000 && t < 30000000, "took %" PRId64 " us", t);
	xport_ep_destroy(ep);
	close(fd);
}

/* ---- what an application attaches ---- */

/* The private data has the port, which is known once the listener is there; each accepted endpoint gets its own pointer. */
static void attaches(struct h *h)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	struct xport_completion c;
	char text[100], longer[4096];
	int mine[2];
	xport_ep *ep[2];

	h_open(h, NULL);
	h_listen(h);
	snprintf(text, sizeof(text), "listening at %s", h->address);
	memset(longer, 1, sizeof(longer));
	H_STATUS(XPORT_ERR_INVALID, xport_listener_set_private_data(NULL, text, 1));
	H_STATUS(XPORT_ERR_INVALID, xport_listener_set_private_data(h->listener, NULL, 1));
	H_STATUS(XPORT_ERR_INVALID, xport_listener_set_private_data(h->listener, longer, h->info.private_max + 1));
	H_OK(xport_listener_set_private_data(h->listener, text, strlen(text)));
	h_tell(h, 1, h->address, sizeof(h->address));
	ep[0] = h_accept(h);
	H_OK(xport_listener_set_private_data(h->listener, NULL, 0));
	h_tell_u64(h, 1, 1);
	ep[1] = h_accept(h);
	H_STATUS(XPORT_ERR_INVALID, xport_ep_set_context(NULL, mine));
	for (int i = 0; i < 2; i++) {
		H_OK(xport_ep_set_context(ep[i], &mine[i]));
		H_OK(xport_ep_query(ep[i], &info));
		H_TRUE(info.context == &mine[i]);
	}
	h_sync(h);
	for (int i = 0; i < 2; i++) {
		c = H_EVENT(XPORT_EVENT_CLOSED);
		H_TRUE((c.ep == ep[0] && c.context == &mine[0]) || (c.ep == ep[1] && c.context == &mine[1]));
	}
	h_sync(h);
}

/* Both connections lead to one instance; so they have the same incarnation, and the private data of their time. */
static void is_attached(struct h *h)
{
	struct xport_ep_info one = {.size = sizeof(one)}, two = {.size = sizeof(two)};
	char address[80], text[100];

	h_open(h, NULL);
	h_hear(h, 0, address, sizeof(address));
	h->ep[0] = h_connect(h, address);
	h_hear_u64(h, 0);
	h->ep[1] = h_connect(h, address);
	H_OK(xport_ep_query(h->ep[0], &one));
	H_OK(xport_ep_query(h->ep[1], &two));
	snprintf(text, sizeof(text), "listening at %s", address);
	H_TRUE(one.private_len == strlen(text) && !memcmp(one.private_data, text, strlen(text)));
	H_EQ(0, two.private_len);
	H_TRUE(one.peer_incarnation != 0 && one.peer_incarnation == two.peer_incarnation);
	h_sync(h);
	H_OK(xport_ep_close(h->ep[0], h_ms(h->limit_ms)));
	H_OK(xport_ep_close(h->ep[1], h_ms(h->limit_ms)));
	h_sync(h);
}

/* ---- the incarnation ---- */

static void starts_again(struct h *h)
{
	h_open(h, NULL);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	h_accept(h);
	h_sync_with(h, 1);
	for (;;)
		h_breathe(h);
}

static void meets_it_again(struct h *h)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	uint64_t before;
	char address[80];

	h_open(h, NULL);
	h_hear(h, 0, address, sizeof(address));
	h->ep[0] = h_connect(h, address);
	H_OK(xport_ep_query(h->ep[0], &info));
	before = info.peer_incarnation;
	h_sync_with(h, 0);
	h_kill(h, 0, SIGKILL);
	H_TRUE(H_EVENT(XPORT_EVENT_LOST).ep == h->ep[0]);
	xport_ep_destroy(h->ep[0]);
	h_restart(h, 0);
	h_hear(h, 0, address, sizeof(address));
	h->ep[0] = h_connect(h, address);
	H_OK(xport_ep_query(h->ep[0], &info));
	H_CHECK(info.peer_incarnation != before, "after the restart the peer has the same incarnation");
	h_sync_with(h, 0);
	h_kill(h, 0, SIGKILL);
}

const struct h_scenario cases_connect_later[] = {
	{.name = "P5_name_server_that_is_deaf", .role = {unresolved}, .flags = H_KILLS | H_ONCE},
	{.name = "P5_connect_later_in_time", .role = {late_by_attr}, .flags = H_ONCE},
	{.name = "P11_what_is_attached", .role = {attaches, is_attached}, .flags = H_ONCE},
	{.name = "P16_incarnation_of_a_restarted_peer",
         .role = {starts_again, meets_it_again},
         .flags = H_KILLS | H_ONCE},
	{.name = NULL},
};
