/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
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

static void client(const char *address)
{
	struct xport_ep_info server = {.size = sizeof(server)};
	struct xport_completion c = {0};
	xport_ep *ep;

	must(xport_open(NULL, &x));
	must(xport_connect(x, address, NULL, 10000, &ep));
	while (c.type != XPORT_EVENT_ACCEPTED && c.type != XPORT_EVENT_LOST)
		must(xport_wait(x, &c, 1, 10000));
	must(xport_ep_query(ep, &server));
	if (server.accept_data == NULL)
		exit(1);
	printf("the server, process %lld, says %s; you are %s\n",
	       (long long)server.peer_pid, (const char *)server.private_data,
	       (const char *)server.accept_data);
	xport_close(x);
	exit(0);
}

int main(void)
{
	struct xport_conn_attr answer = {.size = sizeof(answer),
	                                 .private_data = "the first client",
	                                 .private_len = 17};
	struct xport_completion c = {0};
	char address[64] = "", welcome[80];
	int status = 1, told[2];
	xport_listener *listener;
	xport_ep *ep;

	if (pipe(told) != 0)
		return 1;
	/* Before an instance is opened: a child could not use it. */
	if (fork() == 0) {
		if (read(told[0], address, sizeof(address)) > 0)
			client(address);
		_exit(1);
	}
	must(xport_open(NULL, &x));
	must(xport_listen(x, "127.0.0.1:0", NULL, &listener));
	must(xport_listener_name(listener, address, sizeof(address)));
	snprintf(welcome, sizeof(welcome), "welcome to %s", address);
	must(xport_listener_set_private_data(listener, welcome,
	                                     sizeof(welcome)));
	if (write(told[1], address, sizeof(address)) < 0)
		return 1;
	must(xport_accept_with(listener, &answer, 10000, &ep));
	xport_listener_close(listener); /* one client is enough */
	while (c.type != XPORT_EVENT_CLOSED && c.type != XPORT_EVENT_LOST)
		must(xport_wait(x, &c, 1, -1));
	xport_close(x);
	return wait(&status) < 0 || status != 0;
}
