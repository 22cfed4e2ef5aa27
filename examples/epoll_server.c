/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epoll_server - one thread answers many clients from an epoll loop.
 *
 *   epoll_server         prints its address, and answers until SIGTERM or SIGINT
 *   pingpong HOST:PORT   is a client: as many as wanted, at the same time
 *
 * Each client has one operation at a time, a receive with opt.source or a send, whose context leads to the client.  It
 * fails when the client ends, and an event of the endpoint comes.  Either may be first: a client is freed after both.
 */
#include <err.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <xport.h>

enum { PING = 1, PONG = 2 };
struct client {
	xport_ep *ep;
	int idle, ended; /* no operation is posted, nor will be; the event has come */
	uint64_t request, answer;
};
static xport *x;
static unsigned long clients, requests;

static void check(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status < 0) {
		xport_last_error(x, &e);
		errx(1, "%s: %s", e.operation, e.text);
	}
}

/* Posts the client's next operation: a receive, or the answer. */
static void post(struct client *client, int answer)
{
	struct xport_opt opt = {.size = sizeof(opt), .context = client};

	if (answer) {
		client->answer = client->request + 1;
		client->idle = xport_send(client->ep, &client->answer, sizeof(client->answer), PONG, &opt) < 0;
	} else {
		opt.source = client->ep;
		client->idle = xport_recv(x, &client->request, sizeof(client->request), PING, UINT64_MAX, &opt) < 0;
	}
}

static void welcome(xport_listener *listener)
{
	struct client *client = calloc(1, sizeof(*client));
	struct xport_conn_attr attr = {.size = sizeof(attr), .context = client}; /* for the events of the endpoint */

	if (client == NULL || xport_accept_with(listener, &attr, 0, &client->ep) < 0) {
		free(client); /* the connection is gone already */
		return;
	}
	clients++;
	post(client, 0);
}

static void handle(const struct xport_completion *c)
{
	struct client *client = c->context;

	if (c->type == XPORT_EVENT_INCOMING) {
		welcome(c->context);
		return;
	}
	if (c->type == XPORT_EVENT_CLOSED || c->type == XPORT_EVENT_LOST)
		client->ended = 1;
	else if (c->status < 0)
		client->idle = 1;
	else
		post(client, c->type == XPORT_OP_RECV);
	requests += c->type == XPORT_OP_SEND && c->status == XPORT_OK;
	if (client->idle && client->ended) {
		xport_ep_destroy(client->ep);
		free(client);
	}
}

int main(void)
{
	struct epoll_event event = {.events = EPOLLIN};
	struct xport_completion list[16];
	int epoll = epoll_create1(EPOLL_CLOEXEC), signals, n;
	xport_listener *listener;
	char address[64];
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signals = signalfd(-1, &set, SFD_CLOEXEC);
	check(xport_open(NULL, &x));
	check(xport_listen(x, "127.0.0.1:0", NULL, &listener));
	check(xport_listener_name(listener, address, sizeof(address)));
	printf("%s\n", address);
	fflush(stdout);
	event.data.fd = xport_fd(x);
	epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event);
	event.data.fd = signals;
	epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event);
	for (;;) {
		if (epoll_wait(epoll, &event, 1, -1) == 1 && event.data.fd == signals)
			break;
		check(n = xport_poll(x, list, 16)); /* what is left keeps the descriptor readable */
		for (int i = 0; i < n; i++)
			handle(&list[i]);
	}
	printf("%lu requests of %lu clients\n", requests, clients);
	xport_close(x);
	return 0;
}
