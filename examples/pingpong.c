/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pingpong - two processes exchange messages, and the client measures the round trip.
 *
 *   pingpong             the server: prints its address, then answers one client
 *   pingpong HOST:PORT   the client: 1000 round trips; each answer is verified
 */
#include <err.h>
#include <stdio.h>
#include <time.h>
#include <xport.h>

enum { SECOND = 1000, ROUNDS = 1000, PING = 1, PONG = 2 };
static xport *x;

static void check(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status < 0) {
		xport_last_error(x, &e);
		errx(1, "%s: %s", e.operation, e.text);
	}
}

/* Reaps until `count` operations have completed.  Returns XPORT_OK, or the first error among them. */
static int complete(int count)
{
	struct xport_completion c;
	int first = XPORT_OK;

	while (count > 0) {
		int n = xport_wait(x, &c, 1, -1);

		check(n);
		if (n == 0 || c.type >= XPORT_EVENT_NOTIFY)
			continue; /* nothing yet, or an event instead of an operation */
		count--;
		if (first == XPORT_OK)
			first = c.status;
	}
	return first;
}

/* Fails with the text of a status that the program did not expect. */
static void expect_ok(const char *what, int status)
{
	if (status < 0)
		errx(1, "%s: %s", what, xport_strerror(status));
}

static void serve(void)
{
	struct xport_opt opt = {.size = sizeof(opt)};
	uint64_t request, answer; /* two buffers: the library owns each until its operation completes */
	xport_listener *listener;
	char address[64];
	xport_ep *ep;
	int status;

	check(xport_listen(x, "127.0.0.1:0", NULL, &listener));
	check(xport_listener_name(listener, address, sizeof(address)));
	printf("%s\n", address);
	fflush(stdout);
	check(xport_accept(listener, 60 * SECOND, &ep));
	opt.source = ep; /* a receive from this peer ends when the peer does */
	for (;;) {
		status = xport_recv(x, &request, sizeof(request), PING, UINT64_MAX, &opt);
		if (status == XPORT_OK)
			status = complete(1);
		if (status == XPORT_ERR_PEER_CLOSED)
			return; /* the client is done: before the receive was posted, or after */
		expect_ok("receive", status);
		answer = request + 1;
		check(xport_send(ep, &answer, sizeof(answer), PONG, NULL));
		expect_ok("send", complete(1));
	}
}

static void measure(const char *address)
{
	struct timespec start, end;
	uint64_t request, answer;
	double seconds;
	xport_ep *ep;

	check(xport_connect(x, address, NULL, 10 * SECOND, &ep));
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (request = 0; request < ROUNDS; request++) {
		check(xport_recv(x, &answer, sizeof(answer), PONG, UINT64_MAX, NULL));
		check(xport_send(ep, &request, sizeof(request), PING, NULL));
		expect_ok("round trip", complete(2)); /* the send and the receive, in any order */
		if (answer != request + 1)
			errx(1, "round %d: wrong answer", (int)request);
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
	printf("%d round trips, %.1f us each\n", ROUNDS, 1e6 * seconds / ROUNDS);
	check(xport_ep_close(ep, 5 * SECOND));
}

int main(int argc, char **argv)
{
	check(xport_open(NULL, &x));
	if (argc < 2)
		serve();
	else
		measure(argv[1]);
	xport_close(x);
	return 0;
}
