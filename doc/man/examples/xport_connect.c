/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <xport.h>

static xport *x;

static void must(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_last_error(x, &e);
	fprintf(stderr, "%s: %s\n", e.operation, e.text);
	exit(1);
}

int main(void)
{
	struct xport_conn_attr attr = {.size = sizeof(attr),
	                               .context = "the one that connects"};
	struct xport_ep_info info = {.size = sizeof(info)};
	struct xport_completion c = {0};
	xport_ep *ep, *accepted = NULL;
	xport_listener *listener;
	char name[64];

	/* Both ends are here: the instance connects to its own listener. */
	must(xport_open(NULL, &x));
	must(xport_listen(x, "127.0.0.1:0", NULL, &listener));
	must(xport_listener_name(listener, name, sizeof(name)));
	must(xport_connect(x, name, &attr, 0, &ep)); /* 0: does not wait */
	for (int n = 0; n < 2; n++) {
		must(xport_wait(x, &c, 1, -1));
		if (c.type == XPORT_EVENT_INCOMING)
			must(xport_accept(listener, 0, &accepted));
		else
			must(c.status); /* CONNECTED, or LOST with the reason */
	}
	must(xport_ep_query(ep, &info));
	printf("%s: %s to %s\n", (const char *)info.context, info.local,
	       info.peer);
	/* Here the peer is this instance itself. */
	printf("the same peer: %d\n",
	       xport_ep_peer(ep) == xport_ep_peer(accepted));
	must(xport_ep_set_context(accepted, "the other one"));
	must(xport_ep_close_start(ep, 1000)); /* does not wait either */
	for (int n = 0; n < 2; n++) {
		must(xport_wait(x, &c, 1, -1));
		printf("closed: %s, %s\n", (const char *)c.context,
		       xport_status_name(c.status));
	}
	must(xport_ep_destroy_start(ep));
	must(xport_wait(x, &c, 1, -1)); /* XPORT_EVENT_DESTROYED */
	must(xport_connect(x, name, &attr, 1000, &ep));
	must(xport_ep_close(ep, 1000)); /* waits */
	xport_ep_destroy(ep);
	xport_ep_destroy(accepted);
	xport_close(x);
	return 0;
}
