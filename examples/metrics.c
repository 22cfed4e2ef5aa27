/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * metrics.c - an exporter in a program's own event loop: Prometheus reads what libxport counts.
 *
 *	metrics PORT &
 *	curl http://127.0.0.1:PORT/metrics
 *
 * The instance sends a message to itself every 10 ms.  HTTP is on loopback only.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <xport_services.h>

static xport *x;

static void must(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_last_error(x, &e);
	fprintf(stderr, "metrics: %s: %s\n", e.operation, e.text);
	exit(1);
}

/* The same for a function of libxport_services, which describes its failures itself. */
static void must_service(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_services_last_error(&e);
	fprintf(stderr, "metrics: %s: %s\n", e.operation, e.text);
	exit(1);
}

static int http_listen(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
	    bind(fd, (struct sockaddr *)&a, sizeof(a)) != 0 || listen(fd, 16) != 0) {
		fprintf(stderr, "metrics: 127.0.0.1:%d: %s\n", port, strerror(errno));
		exit(1);
	}
	return fd;
}

/* Answers one request: any gets the same answer. */
static void http_answer(int listener, xport_ep *ep)
{
	static char page[65536]; /* the text of one endpoint has a fifth of that */
	struct timeval second = {.tv_sec = 1};
	int fd = accept(listener, NULL, NULL);
	size_t len = sizeof(page);
	char request[1024], head[200];

	if (fd < 0)
		return;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof(second));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof(second));
	if (recv(fd, request, sizeof(request), 0) > 0) {
		must_service(xport_stats_text(x, &ep, 1, page, &len));
		snprintf(head, sizeof(head),
		         "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; "
		         "charset=utf-8\r\n"
		         "Content-Length: %zu\r\nConnection: close\r\n\r\n",
		         len);
		/* Sends all of it within a second, or gives up. */
		if (send(fd, head, strlen(head), MSG_NOSIGNAL | MSG_MORE) > 0)
			(void)send(fd, page, len, MSG_NOSIGNAL);
	}
	close(fd);
}

int main(int argc, char **argv)
{
	struct xport_completion c = {0};
	xport_listener *listener;
	char name[64], text[16];
	struct pollfd p;
	xport_ep *ep;

	if (argc != 2) {
		fprintf(stderr, "usage: metrics PORT\n");
		return 2;
	}
	must(xport_open(NULL, &x));
	must(xport_listen(x, "127.0.0.1:0", NULL, &listener));
	must(xport_listener_name(listener, name, sizeof(name)));
	must(xport_connect(x, name, NULL, 0, &ep));
	while (c.type != XPORT_EVENT_CONNECTED)
		must(xport_wait(x, &c, 1, -1));
	p.fd = http_listen(atoi(argv[1]));
	p.events = POLLIN;
	printf("metrics at http://127.0.0.1:%s/metrics\n", argv[1]);
	fflush(stdout);
	for (;;) {
		must(xport_recv(x, text, sizeof(text), 1, UINT64_MAX, NULL));
		must(xport_send(ep, "hello", 6, 1, NULL));
		for (int due = 2; due > 0; due--)
			must(xport_wait(x, &c, 1, -1));
		if (poll(&p, 1, 10) == 1)
			http_answer(p.fd, ep);
	}
}
