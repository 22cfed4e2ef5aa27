/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rpc_endless.c - a server for the tests of xport_rpc: its method "long" replies with 7000 bytes, and its xport.stats with one
 * line more for ever. It prints its address, and serves one client.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/rpc.h"

enum { LENGTH = 7000 };

static void must(int status, const char *what)
{
	if (status >= 0)
		return;
	fprintf(stderr, "rpc_endless: %s: %s\n", what, xport_strerror(status));
	exit(1);
}

static void reply_long(void *arg, const struct xport_rpc_event *request)
{
	static char bytes[LENGTH];

	memset(bytes, 'a', sizeof(bytes));
	(void)xport_rpc_reply(arg, request->id, XPORT_OK, bytes, sizeof(bytes));
}

static void reply_line(void *arg, const struct xport_rpc_event *request)
{
	(void)xport_rpc_reply(arg, request->id, XPORT_OK, "again 0 0\n", 10);
}

/* The name is reserved: the library's own method is replaced behind its back. */
static void take_over_stats(xport_rpcs *rpcs)
{
	struct svc_rpc_method *m = svc_rpc_methods_find(&rpcs->methods, svc_rpc_hash("xport.stats"));

	snprintf(m->name, sizeof(m->name), "endless");
	m->fn = reply_line;
	m->arg = rpcs;
}

static void other(void *arg, const struct xport_completion *c)
{
	if (c->type == XPORT_EVENT_CLOSED || c->type == XPORT_EVENT_LOST)
		*(int *)arg = 1;
}

int main(void)
{
	struct xport_rpcs_attr attr = {.size = sizeof(attr), .max_payload = LENGTH};
	struct xport_rpc_event e = {.size = sizeof(e)};
	xport_listener *listener;
	xport_rpcs *rpcs;
	char address[64];
	xport_ep *ep;
	int gone = 0;
	xport *x;

	must(xport_open(NULL, &x), "xport_open");
	must(xport_listen(x, "127.0.0.1:0", NULL, &listener), "xport_listen");
	must(xport_listener_name(listener, address, sizeof(address)), "xport_listener_name");
	printf("%s\n", address);
	fflush(stdout);
	must(xport_accept(listener, -1, &ep), "xport_accept");
	must(xport_rpcs_create(x, &attr, &rpcs), "xport_rpcs_create");
	must(xport_rpc_register(rpcs, "long", reply_long, rpcs), "xport_rpc_register");
	take_over_stats(rpcs);
	while (!gone) {
		int status = xport_rpcs_wait(rpcs, &e, other, &gone, 100);

		must(status == XPORT_ERR_TIMEOUT ? XPORT_OK : status, "xport_rpcs_wait");
	}
	must(xport_rpcs_destroy(rpcs, NULL, NULL, 1000), "xport_rpcs_destroy");
	xport_close(x);
	return 0;
}
