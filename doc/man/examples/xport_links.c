/* SPDX-License-Identifier: BSD-3-Clause */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xport_services.h>

static void must(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_services_last_error(&e);
	fprintf(stderr, "%s: %s\n", e.operation, e.text);
	exit(1);
}

/* The next event of the link, in an event loop. */
static void next(xport *x, xport_links *links, struct xport_link_event *e)
{
	struct pollfd p = {.fd = xport_fd(x), .events = POLLIN};
	struct xport_completion c;

	while (xport_links_next(links, e) == 0) {
		poll(&p, 1, xport_links_timeout(links));
		if (xport_poll(x, &c, 1) < 1)
			must(xport_links_step(links, NULL));
		else
			must(xport_links_step(links, &c));
	}
}

int main(void)
{
	struct xport_directory_entry entry;
	struct xport_link_event e = {.size = sizeof(e)};
	struct xport_link_info info = {.size = sizeof(info)};
	struct xport_link_attr attr = {
		.size = sizeof(attr), .first_ms = 10, .label = "the store"};
	char memory[64] = "", word[8], name[64];
	const char *addresses[] = {"127.0.0.1:1", name};
	xport_listener *listener;
	xport_link_rkey *key;
	xport_links *links;
	xport_link *link;
	xport_rkey *rkey;
	xport_ep *peer;
	xport_mr *mr;
	xport *x;

	/* Both ends are here. Nobody listens at the first address. */
	if (xport_open(NULL, &x) ||
	    xport_mr_reg(x, memory, sizeof(memory), 3, &mr) ||
	    xport_listen(x, "127.0.0.1:0", NULL, &listener) ||
	    xport_listener_name(listener, name, sizeof(name)))
		return 1;
	must(xport_directory_region(mr, 0, sizeof(memory), &entry));
	must(xport_links_create(x, &links));
	must(xport_link_open(links, addresses, 2, &attr, &link));
	must(xport_link_rkey_add(link, "words", 5, NULL, 0, &key));
	must(xport_link_retry(link)); /* no effect: it does not wait */
	do
		next(x, links, &e);
	while (e.type != XPORT_LINK_UP);
	printf("up, %u void keys\n", (unsigned)e.void_keys);

	/* The key comes by name, or directly. */
	if (xport_links_entry(links, "words", 5, &entry) != 1)
		return 1;
	must(xport_link_rkey_set(key, entry.key, entry.key_len));
	must(xport_link_rkey_get(key, &rkey));

	/* Operations: these may be posted twice. */
	must(xport_link_put(link, "hello", 6, key, 0, NULL,
	                    XPORT_LINK_REPEATABLE));
	must(xport_links_wait(links, &e, NULL, NULL, 5000));
	must(e.status);
	must(xport_link_get(link, word, 6, key, 0, NULL,
	                    XPORT_LINK_REPEATABLE));
	must(xport_links_wait(links, &e, NULL, NULL, 5000));
	must(e.status);
	printf("%s\n", word);
	must(xport_link_put_notify(link, "again", 6, key, 8, NULL, 0));
	must(xport_links_wait(links, &e, NULL, NULL, 5000));
	must(xport_link_send(link, "bye", 4, 1, NULL, 0));
	must(xport_links_wait(links, &e, NULL, NULL, 5000));

	/* The other end closes: the link is down, and up again. */
	if (xport_accept(listener, -1, &peer))
		return 1;
	xport_ep_destroy(peer);
	do
		must(xport_links_wait(links, &e, NULL, NULL, 5000));
	while (e.type != XPORT_LINK_UP);
	must(xport_link_query(link, &info));
	printf("up %d times, at %s: %s\n", (int)info.ups, info.address,
	       xport_link_ep(link) == e.ep ? "open" : "not open");

	must(xport_link_rkey_remove(key));
	must(xport_link_close(link, 0));
	do
		must(xport_links_wait(links, &e, NULL, NULL, 5000));
	while (e.type != XPORT_LINK_CLOSED);
	must(xport_link_free(link));
	must(xport_links_destroy(links, NULL, NULL, 1000));
	xport_close(x);
	return 0;
}
