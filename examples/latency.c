/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * latency - what to set for short round trips, and what each setting gains, to the 99.99th percentile.
 *   latency                      the server: prints its address, then answers one client
 *   latency HOST:PORT [ROUNDS]   the client: 20000 round trips with each setting; each answer is verified
 */
#define _GNU_SOURCE 1 /* sched_getaffinity */
#include <xport_services.h>

#include "latency.h"

enum { LENGTH = 64, PING = 1, PONG = 2, HUGE_PAGES = 1, PIN = 2, BUSY = 4 };
typedef void (*callback)(const struct xport_completion *c);
static xport_ep *ep;
static struct xport_block block;
static uint64_t ordinary[2 * LENGTH / 8], settings, *in = ordinary, *out = ordinary + LENGTH / 8;
static int pending, status;
static double ended_us;

static void on_done(const struct xport_completion *c)
{
	status = status == XPORT_OK ? c->status : status;
	ended_us = now_us();
	pending--;
}

static void use(uint64_t wanted, bool last)
{
	settings = wanted;
	in = settings & HUGE_PAGES ? block.address : ordinary;
	out = in + LENGTH / 8;
	if (settings & PIN)
		pin(last);
}

/* Sends `out` with a tag, 0: not at first, and polls until this and the next receive have ended. */
static int turn(uint64_t send, uint64_t receive)
{
	static const callback call = on_done;
	xport_mr *mr = settings & HUGE_PAGES ? block.mr : NULL;
	struct xport_opt opt = {.size = sizeof(opt), .context = (void *)(uintptr_t)&call, .mr = mr}, from = opt;
	struct xport_completion c;

	from.source = ep; /* it ends when the peer does */
	check(xport_recv(x, in, LENGTH, receive, UINT64_MAX, &from));
	if (send != 0)
		check(xport_send(ep, out, LENGTH, send, &opt));
	for (pending = send != 0 ? 2 : 1; pending > 0 && status == XPORT_OK;) {
		int n = settings & BUSY ? xport_poll(x, &c, 1) : xport_wait(x, &c, 1, -1);

		check(n);
		if (n == 1 && c.type < XPORT_EVENT_NOTIFY) /* an operation, not an event */
			(*(const callback *)c.context)(&c);
	}
	return status;
}

static void serve(void)
{
	xport_listener *listener;
	char address[64];

	check(xport_listen(x, "127.0.0.1:0", NULL, &listener));
	check(xport_listener_name(listener, address, sizeof(address)));
	printf("%s\n", address);
	fflush(stdout);
	check(xport_accept(listener, 60000, &ep));
	for (uint64_t tag = 0; turn(tag, PING) == XPORT_OK; tag = PONG) {
		uint64_t ping = in[0];

		if (ping % 8 != settings)
			use(ping % 8, true);
		out[0] = ping;
	}
	if (status != XPORT_ERR_PEER_CLOSED)
		errx(1, "%s", xport_strerror(status));
}

static void measure(const char *address, size_t rounds, const char *huge)
{
	double *us = samples(rounds);

	printf("huge pages: %s\n", huge);
	check(xport_connect(x, address, NULL, 10000, &ep));
	for (uint64_t s = 0, steps = processors() > 1 ? 4 : 2; s < steps; s++) {
		use((UINT64_C(1) << s) - 1, false);
		for (size_t i = 0; i < rounds; i++) {
			double start = now_us();

			out[0] = settings + 8 * i;
			if (turn(PING, PONG) != XPORT_OK || in[0] != out[0])
				errx(1, "round %zu: %s", i, xport_strerror(status));
			us[i] = ended_us - start;
		}
		print_line(s, us, rounds);
	}
	check(xport_ep_close(ep, 5000));
	free(us);
}

int main(int argc, char **argv)
{
	struct xport_pool_attr a = {.size = sizeof(a), .flags = XPORT_POOL_HUGE};
	struct xport_pool_info i = {.size = sizeof(i)};
	size_t rounds = argc > 2 ? number(argv[2]) : 20000;
	xport_pool *pool;

	check(xport_open(NULL, &x));
	check_service(xport_pool_create(x, &a, &pool));
	check_service(xport_pool_alloc(pool, 2 * LENGTH, LENGTH, &block));
	check_service(xport_pool_query(pool, &i));
	if (argc > 1)
		measure(argv[1], rounds, i.huge);
	else
		serve();
	check_service(xport_pool_destroy(pool));
	xport_close(x);
	return 0;
}
