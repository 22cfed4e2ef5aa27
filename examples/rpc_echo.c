/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rpc_echo.c - remote procedure calls: a server with two methods, and a client that calls them.
 *
 *	rpc_echo			serves one client, and prints its address
 *	rpc_echo HOST:PORT		calls, and prints the replies
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xport_services.h>

static void check(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_services_last_error(&e);
	fprintf(stderr, "rpc_echo: %s: %s\n", xport_strerror(status), e.status == status ? e.text : "");
	exit(1);
}

/* A handler that replies at once. */
static void echo(void *arg, const struct xport_rpc_event *request)
{
	check(xport_rpc_reply(arg, request->id, XPORT_OK, request->payload, request->len));
}

/* Requests of the method "length" are events: they could be replied to later, for example by another thread. */
static void serve(xport *x)
{
	struct xport_rpcs_attr attr = {.size = sizeof(attr), .flags = XPORT_RPCS_TELL_ENDED};
	struct xport_rpc_event e = {.size = sizeof(e)};
	xport_listener *listener;
	char address[64], text[32];
	xport_rpcs *rpcs;
	xport_ep *ep;

	check(xport_listen(x, "127.0.0.1:0", NULL, &listener));
	check(xport_listener_name(listener, address, sizeof(address)));
	printf("%s\n", address);
	fflush(stdout);
	check(xport_accept(listener, -1, &ep));
	check(xport_rpcs_create(x, &attr, &rpcs));
	check(xport_rpc_register(rpcs, "echo", echo, rpcs));
	check(xport_rpc_register(rpcs, "length", NULL, NULL));
	for (;;) {
		check(xport_rpcs_wait(rpcs, &e, NULL, NULL, -1));
		if (e.type == XPORT_RPC_PEER_ENDED)
			break;
		snprintf(text, sizeof(text), "%zu bytes", e.len);
		check(xport_rpc_reply(rpcs, e.id, XPORT_OK, text, strlen(text)));
	}
	check(xport_rpcs_destroy(rpcs, NULL, NULL, 1000));
}

/* Calls, and waits for the outcome. If the server is busy, it calls again: the handler did not run. */
static void call(xport_rpcs *rpcs, xport_ep *ep, const char *method, const char *payload)
{
	char reply[100];
	struct xport_rpc_args args = {.size = sizeof(args),
	                              .payload = payload,
	                              .len = strlen(payload),
	                              .reply = reply,
	                              .reply_max = sizeof(reply),
	                              .deadline_ms = 10000};
	struct xport_rpc_event e = {.size = sizeof(e)};
	int status;

	for (;;) {
		check(xport_rpc_call(rpcs, ep, method, &args));
		do
			check(xport_rpcs_wait(rpcs, &e, NULL, NULL, -1));
		while (e.type != XPORT_RPC_DONE);
		if (e.status != XPORT_ERR_BUSY)
			break;
		/* No event comes, since there is no other call: so this pauses, and connections are served. */
		status = xport_rpcs_wait(rpcs, &e, NULL, NULL, (int)e.retry_after_ms);
		if (status != XPORT_ERR_TIMEOUT)
			check(status);
	}
	if (e.status == XPORT_OK)
		printf("%s: %.*s\n", method, (int)e.len, reply);
	else
		printf("%s: %s: %s\n", method, xport_strerror(e.status), e.why);
}

int main(int argc, char **argv)
{
	xport_rpcs *rpcs;
	xport_ep *ep;
	xport *x;

	check(xport_open(NULL, &x));
	if (argc < 2) {
		serve(x);
		xport_close(x);
		return 0;
	}
	check(xport_connect(x, argv[1], NULL, 10000, &ep));
	check(xport_rpcs_create(x, NULL, &rpcs));
	call(rpcs, ep, "echo", "hello");
	call(rpcs, ep, "length", "hello");
	call(rpcs, ep, "nobody", "hello");
	check(xport_rpcs_destroy(rpcs, NULL, NULL, 1000));
	check(xport_ep_close(ep, 1000));
	xport_close(x);
	return 0;
}
