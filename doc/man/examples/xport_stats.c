/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
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
	struct xport_counters n = {.size = sizeof(n)};
	struct xport_completion c = {0};
	xport_listener *listener;
	char name[64], text[16];
	xport_ep *ep;

	/* Both ends are here: the instance connects to its own listener. */
	must(xport_open(NULL, &x));
	must(xport_listen(x, "127.0.0.1:0", NULL, &listener));
	must(xport_listener_name(listener, name, sizeof(name)));
	must(xport_connect(x, name, NULL, 0, &ep));
	while (c.type != XPORT_EVENT_CONNECTED)
		must(xport_wait(x, &c, 1, -1));
	must(xport_recv(x, text, sizeof(text), 1, UINT64_MAX, NULL));
	must(xport_send(ep, "hello", 6, 1, NULL));
	while (c.type != XPORT_OP_RECV)
		must(xport_wait(x, &c, 1, -1));

	must(xport_stats(x, ep, &n));
	printf("%" PRIu64 " sends, %" PRIu64 " bytes, in %" PRIu64 " frames\n",
	       n.sends, n.bytes_out, n.frames_out);
	must(xport_stats(x, NULL, &n));
	printf("of the instance: %" PRIu64 " receives, at most %" PRIu64
	       " in flight, %" PRIu64 " times AGAIN, %" PRIu64 " lost\n",
	       n.receives, n.in_flight_max, n.again,
	       n.errors[-XPORT_ERR_PEER_LOST]);
	if (n.sends != 1 || n.receives != 1 || n.bytes_in != 6)
		return 1;
	xport_close(x);
	return 0;
}
