/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rpc_speed.c - calls and plain messages side by side, between two processes:
 *
 *	rpc_speed [BACKEND[:PROVIDER]] [SECONDS]
 *
 * Batches of both alternate. The best batch of each counts, since others use the processors, too. It prints the round trip of
 * 8 bytes, by messages and by a call, and the rate, of messages in one direction and of calls with 64 in flight.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/wait.h>

#include "services/xport_services.h"

enum { TRIPS = 20, MESSAGES = 400, WINDOW = 64, PING = 1, STREAM = 2, LAST = 3 };

static xport *x;
static xport_ep *ep;
static xport_rpcs *rpcs;
static uint64_t in[WINDOW], out[WINDOW];

static void must(int status, const char *what)
{
	if (status >= 0)
		return;
	fprintf(stderr, "rpc_speed: %s: %s\n", what, xport_strerror(status));
	exit(1);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void post_recv(int slot)
{
	struct xport_opt o = {.size = sizeof(o), .flags = XPORT_EAGER, .context = &in[slot]};

	must(xport_recv(x, &in[slot], 8, PING, 0xff, &o), "xport_recv");
}

/* Reaps once. Returns how many messages came; *sent counts sends. */
static int reap(int *sent, int *last)
{
	struct xport_completion c[16];
	int n = xport_poll(x, c, 16), came = 0;

	must(n, "xport_poll");
	for (int i = 0; i < n; i++) {
		if (xport_rpcs_step(rpcs, &c[i]) == 1 || c[i].type >= XPORT_EVENT_NOTIFY)
			continue;
		must(c[i].status, "a message");
		if (c[i].type == XPORT_OP_SEND)
			++*sent;
		if (c[i].type != XPORT_OP_RECV)
			continue;
		came++;
		*last = (int)(*(uint64_t *)c[i].context);
		post_recv((int)((uint64_t *)c[i].context - in));
	}
	return came;
}

/* ---- the server ---- */

static void echo(void *arg, const struct xport_rpc_event *q)
{
	(void)arg;
	must(xport_rpc_reply(rpcs, q->id, XPORT_OK, q->payload, q->len), "xport_rpc_reply");
}

/* Answers each PING, and the last message of a stream. */
static void serve(void)
{
	int sent = 0, last = PING;
	uint64_t pong = PING;

	while (last != 0) {
		if (reap(&sent, &last) > 0 && (last == PING || last == LAST))
			must(xport_send(ep, &pong, 8, PING, NULL), "xport_send");
	}
}

/* ---- the client ---- */

static double messages_trip(void)
{
	uint64_t ping = PING;
	int sent = 0, last;
	double begun = now_us();

	for (int i = 0; i < TRIPS; i++) {
		int came = 0;

		must(xport_send(ep, &ping, 8, PING, NULL), "xport_send");
		while (came == 0)
			came = reap(&sent, &last);
	}
	while (sent < TRIPS)
		(void)reap(&sent, &last);
	return (now_us() - begun) / TRIPS;
}

static double calls_trip(void)
{
	struct xport_rpc_args a = {.size = sizeof(a), .payload = out, .len = 8, .reply_max = 8, .deadline_ms = 60000};
	struct xport_rpc_event e = {.size = sizeof(e)};
	uint64_t reply;
	int sent = 0, last;
	double begun = now_us();

	a.reply = &reply;
	for (int i = 0; i < TRIPS; i++) {
		must(xport_rpc_call(rpcs, ep, "echo", &a), "xport_rpc_call");
		while (xport_rpcs_next(rpcs, &e) == 0)
			(void)reap(&sent, &last);
		must(e.status, "a call");
	}
	return (now_us() - begun) / TRIPS;
}

static double messages_rate(void)
{
	uint64_t some = STREAM, end = LAST;
	int sent = 0, posted = 0, last = 0;
	double begun = now_us();

	while (sent < MESSAGES) {
		while (posted < MESSAGES && posted - sent < WINDOW) {
			posted++;
			must(xport_send(ep, posted == MESSAGES ? &end : &some, 8, PING, NULL), "xport_send");
		}
		(void)reap(&sent, &last);
	}
	while (last != PING)
		(void)reap(&sent, &last);
	return MESSAGES / (now_us() - begun);
}

static double calls_rate(void)
{
	struct xport_rpc_args a = {.size = sizeof(a), .payload = out, .len = 8, .deadline_ms = 60000};
	struct xport_rpc_event e = {.size = sizeof(e)};
	int begun_calls = 0, done = 0, sent = 0, last;
	static uint64_t reply[WINDOW];
	double begun = now_us();

	while (done < MESSAGES) {
		while (begun_calls < MESSAGES && begun_calls - done < WINDOW) {
			a.reply = &reply[begun_calls++ % WINDOW];
			a.reply_max = 8;
			must(xport_rpc_call(rpcs, ep, "echo", &a), "xport_rpc_call");
		}
		(void)reap(&sent, &last);
		while (xport_rpcs_next(rpcs, &e) == 1) {
			must(e.status, "a call");
			done++;
		}
	}
	return MESSAGES / (now_us() - begun);
}

static void better(double *best, double value, int larger)
{
	if (*best == 0 || (larger ? value > *best : value < *best))
		*best = value;
}

static void measure(const char *backend, double seconds)
{
	double until = now_us() + seconds * 1e6, trip = 0, call = 0, rate = 0, calls = 0;
	uint64_t bye = 0;

	(void)messages_trip();
	(void)calls_trip();
	do {
		better(&trip, messages_trip(), 0);
		better(&call, calls_trip(), 0);
		better(&rate, messages_rate(), 1);
		better(&calls, calls_rate(), 1);
	} while (now_us() < until);
	printf("%s: 8 bytes there and back: messages %.2f us, a call %.2f us, ratio %.2f; "
	       "messages %.3f M/s, calls with 64 in flight %.3f M/s, ratio %.2f\n",
	       backend, trip, call, call / trip, rate, calls, calls / rate);
	must(xport_send(ep, &bye, 8, PING, NULL), "xport_send");
	must(xport_ep_close(ep, 5000), "xport_ep_close");
}

static void begin(void)
{
	must(xport_rpcs_create(x, NULL, &rpcs), "xport_rpcs_create");
	must(xport_rpc_register(rpcs, "echo", echo, NULL), "xport_rpc_register");
	for (int i = 0; i < WINDOW; i++)
		post_recv(i);
}

int main(int argc, char **argv)
{
	const char *backend = argc > 1 ? argv[1] : "ucx:tcp";
	struct xport_attr attr = {.size = sizeof(attr), .backend = backend};
	xport_listener *listener;
	char name[64] = "";
	int pipes[2], status = 0;
	pid_t child;

	if (pipe(pipes) != 0 || (child = fork()) < 0)
		return 1;
	must(xport_open(&attr, &x), "xport_open");
	if (child == 0) {
		must(xport_listen(x, "127.0.0.1:0", NULL, &listener), "xport_listen");
		must(xport_listener_name(listener, name, sizeof(name)), "xport_listener_name");
		if (write(pipes[1], name, sizeof(name)) != sizeof(name))
			return 1;
		must(xport_accept(listener, 30000, &ep), "xport_accept");
		begin();
		serve();
	} else {
		if (read(pipes[0], name, sizeof(name)) != sizeof(name))
			return 1;
		must(xport_connect(x, name, NULL, 30000, &ep), "xport_connect");
		begin();
		measure(backend, argc > 2 ? atof(argv[2]) : 5);
	}
	xport_close(x);
	if (child != 0 && (waitpid(child, &status, 0) != child || status != 0))
		return 1;
	return 0;
}
