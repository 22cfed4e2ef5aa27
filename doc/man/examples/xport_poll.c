/* SPDX-License-Identifier: BSD-3-Clause */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <xport.h>

enum { MESSAGES = 1000 };
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
	static uint64_t in[MESSAGES], out[MESSAGES];
	struct xport_completion c[16];
	struct pollfd fd = {.events = POLLIN};
	xport_listener *listener;
	xport_ep *ep, *peer;
	int received = 0, n, armed;
	char name[64];

	/* Both ends are here: the instance connects to its own listener. */
	must(xport_open(NULL, &x));
	must(xport_listen(x, "127.0.0.1:0", NULL, &listener));
	must(xport_listener_name(listener, name, sizeof(name)));
	must(xport_connect(x, name, NULL, -1, &ep));
	must(xport_accept(listener, -1, &peer));
	for (int i = 0; i < MESSAGES; i++) {
		out[i] = (uint64_t)i;
		must(xport_recv(x, &in[i], 8, 0, 0, NULL));
		must(xport_send(ep, &out[i], 8, 0, NULL));
	}
	must(fd.fd = xport_fd(x));
	while (received < MESSAGES) {
		must(n = xport_poll(x, c, 16));
		for (int i = 0; i < n; i++) {
			must(c[i].status);
			received += c[i].type == XPORT_OP_RECV;
		}
		armed = n == 0 ? xport_arm(x) : XPORT_ERR_AGAIN;
		if (armed == XPORT_ERR_AGAIN)
			continue; /* there is more to do */
		must(armed);
		/* with the other descriptors of the program */
		if (poll(&fd, 1, -1) < 0)
			return 1;
	}
	printf("%d messages, the last one is %llu\n", received,
	       (unsigned long long)in[MESSAGES - 1]);
	xport_close(x);
	return in[MESSAGES - 1] != MESSAGES - 1;
}
