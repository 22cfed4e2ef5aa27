/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * link_put.c - a client whose link comes back after a crash of its server.
 *
 *	link_put -s HOST:PORT		the server: prints its address.  With -c instead of -s it crashes at the 50th put
 *	link_put HOST:PORT...		the client: puts 100 values; if the server is another one, it begins again
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <xport_services.h>

enum { VALUES = 100, CRASH = 50 };
static uint64_t values[VALUES];
static xport *x;

static void check(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_services_last_error(&e);
	fprintf(stderr, "link_put: %s: %s\n", xport_strerror(status), e.status == status ? e.text : "");
	exit(1);
}

static void serve(const char *address, int crash_at)
{
	char key[1024], name[64];
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = key, .private_len = sizeof(key)};
	struct xport_completion c = {0};
	xport_listener *listener;
	xport_mr *mr;
	xport_ep *ep;

	check(xport_mr_reg(x, values, sizeof(values), XPORT_REMOTE_WRITE, &mr));
	check(xport_rkey_pack(mr, key, &attr.private_len));
	check(xport_listen(x, address, &attr, &listener));
	check(xport_listener_name(listener, name, sizeof(name)));
	printf("%s\n", name);
	fflush(stdout);
	check(xport_accept(listener, -1, &ep));
	while (c.type != XPORT_EVENT_CLOSED && c.type != XPORT_EVENT_LOST) {
		c.type = 0;
		check(xport_wait(x, &c, 1, -1));
		if (c.type == XPORT_EVENT_NOTIFY && --crash_at == 0)
			raise(SIGKILL);
	}
	for (uint64_t i = 0; i < VALUES; i++)
		if (values[i] != i + 1)
			exit(1);
}

/* The key comes with the connection: another server has another one. */
static void learn(xport_link *link, xport_ep *ep, xport_link_rkey **key)
{
	struct xport_ep_info server = {.size = sizeof(server)};

	check(xport_ep_query(ep, &server));
	if (*key == NULL)
		check(xport_link_rkey_add(link, NULL, 0, server.private_data, server.private_len, key));
	else
		check(xport_link_rkey_set(*key, server.private_data, server.private_len));
}

static void run(const char *const *addresses, size_t count)
{
	struct xport_link_event e = {.size = sizeof(e)};
	xport_link_rkey *key = NULL;
	uint64_t done = 0, value;
	xport_links *links;
	xport_link *link;
	int in_flight = 0;

	check(xport_links_create(x, &links));
	check(xport_link_open(links, addresses, count, NULL, &link));
	while (done < VALUES || in_flight) {
		if (!in_flight && xport_link_ep(link) != NULL) {
			value = done + 1;
			/* Twice is the same as once: it is put again if the endpoint is lost, and the server is not. */
			in_flight = xport_link_put_notify(link, &value, sizeof(value), key, done * sizeof(value), NULL,
			                                  XPORT_LINK_REPEATABLE) == XPORT_OK;
		}
		check(xport_links_wait(links, &e, NULL, NULL, -1));
		if (e.type == XPORT_LINK_DONE) {
			in_flight = 0;
			done += e.status == XPORT_OK;
		} else if (e.type == XPORT_LINK_UP || e.type == XPORT_LINK_PEER_NEW) {
			printf("up: %s over %s\n", e.address, e.transport);
			learn(link, e.ep, &key);
			done = e.type == XPORT_LINK_PEER_NEW ? 0 : done; /* what the old one had is gone */
		} else if (e.type == XPORT_LINK_DOWN) {
			printf("down: %s\n", e.text);
		} else {
			fprintf(stderr, "link_put: %s\n", e.text);
			exit(1);
		}
	}
	check(xport_links_destroy(links, NULL, NULL, 5000)); /* flushes, and closes */
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	check(xport_open(NULL, &x));
	if (argv[1][0] == '-')
		serve(argc > 2 ? argv[2] : "127.0.0.1:0", argv[1][1] == 'c' ? CRASH : 0);
	else
		run((const char *const *)argv + 1, (size_t)argc - 1);
	xport_close(x);
	return 0;
}
