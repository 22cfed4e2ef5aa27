/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * measure ADDRESS ROUNDS [epoll] - the program of bindings/measure/run in C; its target is test/bindings/peer.c.
 * With epoll it sleeps in epoll_wait, as an event loop does, and does not poll.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <xport.h>

enum { DEPTH = 64, MIB = 1 << 20, REQUEST = 1, ANSWER = 2 };
static xport *x;
static xport_ep *ep;
static xport_rkey *key;
static char small[8];
static int loop = -1;

static int check(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status < 0) {
		xport_last_error(x, &e);
		errx(1, "%s: %s", e.operation, e.text);
	}
	return status;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int reap(void)
{
	struct xport_completion c[DEPTH];
	struct epoll_event event;
	int n;

	if (loop >= 0 && epoll_wait(loop, &event, 1, -1) < 0)
		err(1, "epoll_wait");
	n = check(xport_poll(x, c, DEPTH));
	if (n == 0 && loop < 0) /* xport_wait costs more */
		n = check(xport_wait(x, c, DEPTH, -1));
	for (int i = 0; i < n; i++)
		if (c[i].status < 0)
			errx(1, "%s", xport_strerror(c[i].status));
	return n;
}

static void put(void)
{
	check(xport_put(ep, small, sizeof(small), key, 0, NULL));
	while (reap() < 1)
		;
}

static void echo(void)
{
	struct xport_opt opt = {.size = sizeof(opt), .source = ep};

	check(xport_recv(x, small, sizeof(small), ANSWER, UINT64_MAX, &opt));
	check(xport_send(ep, small, sizeof(small), REQUEST, NULL));
	for (int n = 0; n < 2; n += reap())
		;
}

static void deep(void)
{
	for (int i = 0; i < DEPTH; i++)
		check(xport_put(ep, small, sizeof(small), key, 0, NULL));
	for (int n = 0; n < DEPTH; n += reap())
		;
}

static void big(void)
{
	static xport_mr *mr;
	struct xport_mr_info info = {.size = sizeof(info)};
	struct xport_opt opt = {.size = sizeof(opt)};

	if (mr == NULL)
		check(xport_mr_alloc(x, MIB, 0, &mr));
	check(xport_mr_query(mr, &info));
	opt.mr = mr;
	check(xport_get(ep, info.base, MIB, key, 0, &opt));
	while (reap() < 1)
		;
}

static double seconds(void (*step)(void), int rounds)
{
	double begin;

	for (int i = 0; i < rounds / 10 + 1; i++)
		step();
	begin = now();
	for (int i = 0; i < rounds; i++)
		step();
	return (now() - begin) / rounds;
}

static void make_loop(void)
{
	struct epoll_event event = {.events = EPOLLIN};

	loop = epoll_create1(EPOLL_CLOEXEC);
	if (loop < 0 || epoll_ctl(loop, EPOLL_CTL_ADD, xport_fd(x), &event) < 0)
		err(1, "epoll");
}

int main(int argc, char **argv)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	int rounds = argc > 2 ? atoi(argv[2]) : 1000;
	struct rusage usage;

	check(xport_open(NULL, &x));
	check(xport_connect(x, argv[1], NULL, -1, &ep));
	if (argc > 3)
		make_loop();
	check(xport_ep_query(ep, &info));
	check(xport_rkey_unpack(ep, info.private_data, info.private_len, &key));
	printf("%.3f ", seconds(put, rounds) * 1e6);
	printf("%.2f ", seconds(echo, rounds) * 1e6);
	printf("%.0f ", DEPTH / seconds(deep, rounds / DEPTH + 1) / 1e3);
	printf("%.2f ", 1 / seconds(big, rounds / 50 + 1) / 1024);
	getrusage(RUSAGE_SELF, &usage);
	printf("%.1f\n", (double)usage.ru_maxrss / 1024);
	check(xport_ep_close(ep, 5000));
	xport_close(x);
	return 0;
}
