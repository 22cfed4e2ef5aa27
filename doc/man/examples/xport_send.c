/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
	enum { HELLO = 1, NEVER = 2 };
	uint64_t id;
	struct xport_opt opt = {
		.size = sizeof(opt), .context = "never", .id = &id};
	struct xport_completion c;
	char text[16] = "", unused[16], name[64];
	xport_listener *listener;
	xport_ep *ep, *peer;

	/* Both ends are here: the instance connects to its own listener. */
	must(xport_open(NULL, &x));
	must(xport_listen(x, "127.0.0.1:0", NULL, &listener));
	must(xport_listener_name(listener, name, sizeof(name)));
	must(xport_connect(x, name, NULL, -1, &ep));
	must(xport_accept(listener, -1, &peer));
	must(xport_recv(x, unused, sizeof(unused), NEVER, UINT64_MAX, &opt));
	must(xport_recv(x, text, sizeof(text), HELLO, UINT64_MAX, NULL));
	must(xport_send(ep, "hello", 6, HELLO, NULL));
	for (int n = 0; n < 2;
	     n++) { /* one completion of the send, one of the receive */
		must(xport_wait(x, &c, 1, -1));
		must(c.status);
		if (c.type == XPORT_OP_RECV)
			printf("%s: %llu bytes, tag %llu\n", text,
			       (unsigned long long)c.length,
			       (unsigned long long)c.tag);
	}
	must(xport_cancel(x, id));
	must(xport_wait(x, &c, 1, -1));
	printf("%s: %s\n", (const char *)c.context, xport_strerror(c.status));
	xport_close(x);
	return c.status != XPORT_ERR_CANCELED || strcmp(text, "hello") != 0;
}
