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

/* A handler that replies at once. */
static void greet(void *arg, const struct xport_rpc_event *request)
{
	char reply[100];
	int n = snprintf(reply, sizeof(reply), "hello, %.*s", (int)request->len,
	                 (const char *)request->payload);

	must(xport_rpc_reply(arg, request->id, XPORT_OK, reply, (size_t)n));
}

/* One turn of an event loop. */
static void turn(xport *x, xport_rpcs *rpcs)
{
	struct pollfd p = {.fd = xport_fd(x), .events = POLLIN};
	struct xport_completion c;

	poll(&p, 1, xport_rpcs_timeout(rpcs));
	if (xport_poll(x, &c, 1) < 1)
		must(xport_rpcs_step(rpcs, NULL));
	else
		must(xport_rpcs_step(rpcs, &c)); /* 0: not of a call */
}

int main(void)
{
	struct xport_rpcs_attr attr = {.size = sizeof(attr),
	                               .max_active = 100,
	                               .flags = XPORT_RPCS_TELL_ABANDONED};
	struct xport_rpcs_info info = {.size = sizeof(info)};
	struct xport_rpc_event e = {.size = sizeof(e)};
	struct xport_rpc_args args = {.size = sizeof(args),
	                              .deadline_ms = 5000};
	char reply[100] = "", name[64];
	xport_listener *listener;
	xport_ep *ep, *peer;
	xport_rpcs *rpcs;
	uint64_t id;
	xport *x;

	/* Both ends are here: the instance connects to its own listener. */
	if (xport_open(NULL, &x) ||
	    xport_listen(x, "127.0.0.1:0", NULL, &listener) ||
	    xport_listener_name(listener, name, sizeof(name)) ||
	    xport_connect(x, name, NULL, -1, &ep) ||
	    xport_accept(listener, -1, &peer))
		return 1;
	must(xport_rpcs_create(x, &attr, &rpcs));
	must(xport_rpc_register(rpcs, "greet", greet, rpcs));
	must(xport_rpc_register(rpcs, "sleep", NULL, NULL));

	/* A call, in an event loop. */
	args.payload = "world";
	args.len = 5;
	args.reply = reply;
	args.reply_max = sizeof(reply) - 1;
	must(xport_rpc_call(rpcs, ep, "greet", &args));
	while (xport_rpcs_next(rpcs, &e) == 0)
		turn(x, rpcs);
	printf("%s: %s\n", xport_status_name(e.status), reply);

	/* A request without a handler is an event. It is cancelled. */
	args.id = &id;
	must(xport_rpc_call(rpcs, ep, "sleep", &args));
	do
		must(xport_rpcs_wait(rpcs, &e, NULL, NULL, 5000));
	while (e.type != XPORT_RPC_REQUEST);
	printf("%s: %d ms are left\n", e.method, xport_rpc_left(rpcs, e.id));
	must(xport_rpc_cancel(rpcs, id));
	id = e.id;
	do
		must(xport_rpcs_wait(rpcs, &e, NULL, NULL, 5000));
	while (e.type != XPORT_RPC_DONE);
	printf("%s, ran: %s\n", xport_status_name(e.status),
	       e.ran == XPORT_RPC_RAN_UNKNOWN ? "unknown" : "no");
	do /* the other side notices it */
		must(xport_rpcs_wait(rpcs, &e, NULL, NULL, 5000));
	while (e.type != XPORT_RPC_ABANDONED);
	if (xport_rpc_reply(rpcs, id, XPORT_OK, NULL, 0) != XPORT_ERR_CANCELED)
		return 1;

	must(xport_rpcs_query(rpcs, &info));
	printf("%llu requests\n", (unsigned long long)info.requests);

	/* An endpoint is closed, forgotten, destroyed. */
	must(xport_ep_close(ep, 1000));
	xport_rpcs_forget(rpcs, ep);
	xport_ep_destroy(ep);
	must(xport_rpcs_destroy(rpcs, NULL, NULL, 1000));
	xport_close(x);
	return 0;
}
