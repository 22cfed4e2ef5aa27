/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peer - the target of the scenarios of bindings, in C.
 *
 * Prints its address, and serves one connection after the other until it is killed.  The private data is the key of a
 * region of 1 MiB.  A message with tag 1 is answered by one with tag 2: its bytes in reverse; to "N" the value of the
 * next notification.
 */
#include <err.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <xport.h>

enum { REGION = 1 << 20, MESSAGE = 1 << 18, REQUEST = 1, ANSWER = 2, SECOND = 1000 };
static xport *x;
static unsigned char request[MESSAGE], answer[MESSAGE];

static int check(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status < 0) {
		xport_last_error(x, &e);
		errx(1, "%s: %s", e.operation, e.text);
	}
	return status;
}

/* Failures are those of an endpoint that has ended: its event follows. */
static void post_receive(xport_ep *ep)
{
	struct xport_opt opt = {.size = sizeof(opt), .source = ep};

	(void)!xport_recv(x, request, sizeof(request), REQUEST, UINT64_MAX, &opt);
}

static void reply(xport_ep *ep, const void *bytes, size_t n)
{
	memcpy(answer, bytes, n);
	(void)!xport_send(ep, answer, n, ANSWER, NULL);
}

static void reply_reversed(xport_ep *ep, size_t n)
{
	for (size_t i = 0; i < n; i++)
		answer[i] = request[n - 1 - i];
	(void)!xport_send(ep, answer, n, ANSWER, NULL);
}

static void serve(xport_ep *ep)
{
	bool wanted = false, come = false, ended = false;
	struct xport_completion c;
	uint64_t value = 0;

	post_receive(ep);
	while (!ended) {
		if (check(xport_wait(x, &c, 1, 120 * SECOND)) == 0)
			continue;
		switch (c.type) {
		case XPORT_OP_RECV:
			if (c.status < 0)
				break;
			wanted = c.length == 1 && request[0] == 'N';
			if (!wanted)
				reply_reversed(ep, c.length);
			break;
		case XPORT_OP_SEND:
			post_receive(ep);
			break;
		case XPORT_EVENT_NOTIFY:
			value = c.tag;
			come = true;
			break;
		case XPORT_EVENT_CLOSED:
		case XPORT_EVENT_LOST:
			ended = c.ep == ep;
			break;
		}
		if (wanted && come) {
			reply(ep, &value, sizeof(value));
			wanted = come = false;
		}
	}
	xport_ep_destroy(ep);
}

int main(void)
{
	struct xport_conn_attr attr = {.size = sizeof(attr)};
	char key[1024], address[64];
	size_t key_len = sizeof(key);
	xport_listener *listener;
	xport_ep *ep;
	xport_mr *mr;

	check(xport_open(NULL, &x));
	check(xport_mr_alloc(x, REGION, XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC, &mr));
	check(xport_rkey_pack(mr, key, &key_len));
	attr.private_data = key;
	attr.private_len = key_len;
	check(xport_listen(x, "127.0.0.1:0", &attr, &listener));
	check(xport_listener_name(listener, address, sizeof(address)));
	printf("%s\n", address);
	fflush(stdout);
	for (;;) {
		check(xport_accept(listener, -1, &ep));
		serve(ep);
	}
}
