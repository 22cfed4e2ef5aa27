/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epoll_server - one thread answers many clients from an epoll loop.
 *
 *   epoll_server         prints its address, and answers until SIGTERM or SIGINT
 *   pingpong HOST:PORT   is a client: as many as wanted, at the same time
 *
 * The server posts one receive for each client, with opt.source, so that the completion's context leads to the client.
 * That receive also completes, with an error, when the client ends.
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

/* Posts the client's next operation: a receive, or the answer.  A client whose endpoint has ended is forgotten. */
static void post(struct client *client, int answer)
{
	struct xport_opt opt = {.size = sizeof(opt), .context = client};
	int status;

	if (answer) {
		client->answer = client->request + 1;
		status = xport_send(client->ep, &client->answer, sizeof(client->answer), PONG, &opt);
	} else {
		opt.source = client->ep;
		status = xport_recv(x, &client->request, sizeof(client->request), PING, UINT64_MAX, &opt);
	}
	if (status < 0)
		free(client);
}

static void handle(const struct xport_completion *c)
{
	struct client *client;

	switch (c->type) {
	case XPORT_EVENT_INCOMING:
		client = calloc(1, sizeof(*client));
		if (client == NULL || xport_accept(c->context, 0, &client->ep) < 0) {
			free(client); /* the connection is gone already */
			break;
		}
		clients++;
		post(client, 0);
		break;
	case XPORT_OP_RECV:
	case XPORT_OP_SEND:
		if (c->status < 0) {
			free(c->context); /* it was the client's only operation; an event of the endpoint follows */
			break;
		}
		requests += c->type == XPORT_OP_SEND;
		post(c->context, c->type == XPORT_OP_RECV);
		break;
	case XPORT_EVENT_CLOSED:
	case XPORT_EVENT_LOST:
		xport_ep_destroy(c->ep);
		break;
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
