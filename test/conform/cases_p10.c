/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_p10.c - P10, one descriptor: level-triggered, never asleep when something is to be done, never awake for nothing. */
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>

#include "harness.h"

enum { PINGS = 3000, ROUNDS = 100 };

/* Sleeps on the fd alone, without any time limit but the one that calls it a failure; then one poll. */
static int doze(struct h *h, struct xport_completion *c, int max)
{
	struct pollfd p = {.fd = xport_fd(h->x), .events = POLLIN};
	int n;

	for (;;) {
		n = xport_poll(h->x, c, max);
		H_TRUE(n >= 0);
		if (n)
			return n;
		H_CHECK(poll(&p, 1, h_ms(2000)) == 1, "lost wake-up: nothing on the fd for two seconds");
	}
}

/* Counts what dozing brings until `want` of the type came. */
static void doze_for(struct h *h, uint32_t type, int want, int *spare)
{
	struct xport_completion c[8];
	int n;

	while (*spare < want) {
		n = doze(h, c, 8);
		for (int i = 0; i < n; i++) {
			H_EQ(XPORT_OK, c[i].status);
			*spare += c[i].type == type;
		}
	}
	*spare -= want;
}

/* Ping-pong where both sides sleep in poll(2) between the messages. */
static void ping_pong(struct h *h)
{
	struct xport_opt o = {.size = sizeof(o)};
	uint64_t out, in = 0;
	xport_ep *peer;
	int spare = 0;

	h_mesh(h, NULL);
	peer = h->ep[!h->role];
	h_sync(h);
	for (uint64_t i = 0; i < PINGS; i++) {
		H_OK(xport_recv(h->x, &in, 8, 1, UINT64_MAX, &o));
		if (h->role == 0) {
			out = i;
			H_OK(xport_send(peer, &out, 8, 1, &o));
			doze_for(h, XPORT_OP_RECV, 1, &spare);
			H_EQ(i, in);
		} else {
			doze_for(h, XPORT_OP_RECV, 1, &spare);
			H_EQ(i, in);
			out = i;
			H_OK(xport_send(peer, &out, 8, 1, &o));
		}
	}
	h_run_for(h, 20);
	h->nqueue = 0;
}

/* The same with long messages, and a random delay between looking and sleeping. */
static void slow_ping_pong(struct h *h)
{
	struct xport_opt o = {.size = sizeof(o)};
	size_t len;
	uint8_t *out, *in;
	int spare = 0;
	unsigned seed = (unsigned)h->role;

	h_mesh(h, NULL);
	len = h->info.eager_max + 3000;
	out = h_buf(h, len);
	in = h_buf(h, len);
	h_sync(h);
	for (int i = 0; i < 300; i++) {
		H_OK(xport_recv(h->x, in, len, 1, UINT64_MAX, &o));
		if (h->role == 1)
			doze_for(h, XPORT_OP_RECV, 1, &spare);
		usleep((useconds_t)rand_r(&seed) % 200);
		H_OK(xport_send(h->ep[!h->role], out, len, 1, &o));
		if (h->role == 0)
			doze_for(h, XPORT_OP_RECV, 1, &spare);
	}
	h_run_for(h, 20);
	h->nqueue = 0;
}

/* A target that only ever sleeps on its fd serves puts, gets, atomics and flushes. */
static void dozing_target(struct h *h)
{
	struct h_mem m;
	struct pollfd p = {.events = POLLIN};

	h_mesh(h, NULL);
	m = h_mem_target(h, 65536, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
	p.fd = xport_fd(h->x);
	while (atomic_load(h_word(h, 0)) == 0) {
		H_EQ(0, xport_poll(h->x, NULL, 0));
		poll(&p, 1, 300);
	}
}

static void visitor(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	uint64_t old;
	int64_t t, worst = 0;

	h_mesh(h, NULL);
	l = h_mem_local(h, 65536, 0);
	r = h_import(h, 0);
	h_sync(h);
	for (int i = 0; i < 200; i++) {
		t = h_now_us();
		if (i % 4 == 0)
			H_DONE(h_put(h, h->ep[0], H_AT(l, 0, 65536), &r, 0, 0));
		else if (i % 4 == 1)
			H_DONE(h_get(h, h->ep[0], H_AT(l, 0, 65536), &r, 0));
		else if (i % 4 == 2)
			H_DONE(h_atomic(h, h->ep[0], XPORT_ATOMIC_ADD, 8, 1, 0, &old, &r, 0));
		else
			H_DONE(h_flush(h, h->ep[0]));
		t = h_now_us() - t;
		worst = t > worst ? t : worst;
		usleep(i % 5 ? 0 : 1000);
	}
	h_record(h, "worst_us", (uint64_t)worst);
	H_CHECK(worst < (int64_t)h_ms(250) * 1000, "worst %" PRId64 " us: a wake-up was lost", worst);
	atomic_store(h_word(h, 0), 1);
}

/* An idle connection costs next to nothing, slept on by poll(2) or by xport_wait. */
static void idle(struct h *h)
{
	struct rusage a, b;
	struct xport_completion c;
	struct pollfd p = {.events = POLLIN};
	int64_t us, end;

	h_mesh(h, NULL);
	h_run_for(h, 100);
	p.fd = xport_fd(h->x);
	getrusage(RUSAGE_SELF, &a);
	end = h_now_us() + 2000000;
	if (h->param)
		H_EQ(0, xport_wait(h->x, &c, 1, 2000));
	else
		while (h_now_us() < end)
			if (poll(&p, 1, (int)((end - h_now_us()) / 1000) + 1) > 0)
				H_EQ(0, xport_poll(h->x, &c, 1));
	getrusage(RUSAGE_SELF, &b);
	us = (b.ru_utime.tv_sec + b.ru_stime.tv_sec - a.ru_utime.tv_sec - a.ru_stime.tv_sec) * 1000000 +
	     (b.ru_utime.tv_usec + b.ru_stime.tv_usec - a.ru_utime.tv_usec - a.ru_stime.tv_usec);
	h_record(h, "cpu_us_in_2s", (uint64_t)us);
	H_CHECK(us < h_ms(20000), "%" PRId64 " us of CPU in two idle seconds", us);
	h_sync(h);
}

/* poll(2) on xport_fd(x) in a loop, and figures of the instance between two sleeps, wake nobody. */
static void looks(struct h *h)
{
	struct pollfd p = {.events = POLLIN};
	struct xport_info info = {.size = sizeof(info)};
	struct xport_ep_info ep = {.size = sizeof(ep)};
	struct xport_counters counters = {.size = sizeof(counters)};
	int64_t end;
	bool asleep = false;

	h_mesh(h, NULL);
	h_sync(h);
	p.fd = xport_fd(h->x);
	end = h_now_us() + (int64_t)h_ms(2000) * 1000;
	while (!asleep && h_now_us() < end) {
		H_EQ(0, h_progress(h));
		if (poll(&p, 1, 0) != 0)
			continue;
		H_EQ(p.fd, xport_fd(h->x));
		H_OK(xport_query(h->x, &info));
		H_OK(xport_ep_query(h->ep[!h->role], &ep));
		H_OK(xport_stats(h->x, NULL, &counters));
		asleep = poll(&p, 1, 0) == 0;
	}
	H_CHECK(asleep, "looking at an idle instance made its descriptor readable, each time for two seconds");
	h_sync(h);
}

/* Level-triggered: readable as long as something is there to be reaped, silent afterwards. */
static void level(struct h *h)
{
	struct pollfd p = {.events = POLLIN};
	struct xport_opt o = {.size = sizeof(o)};
	struct xport_completion c;
	uint64_t in[3], word = 3;
	int quiet = 0;

	h_mesh(h, NULL);
	p.fd = xport_fd(h->x);
	if (h->role == 1) {
		h_sync(h);
		for (int i = 0; i < 3; i++)
			H_DONE(h_send(h, h->ep[0], &word, 8, 1));
		h_sync(h);
		h_sync(h);
		return;
	}
	for (int i = 0; i < 3; i++)
		H_OK(xport_recv(h->x, &in[i], 8, 1, UINT64_MAX, &o));
	h->idle = true; /* what comes is for the test alone to reap */
	h_sync(h);
	h_sync(h);
	for (int i = 0; i < 3; i++) {
		for (int k = 0; k < 3; k++)
			H_CHECK(poll(&p, 1, h_ms(2000)) == 1, "silent though %d completions wait", 3 - i);
		while (xport_poll(h->x, &c, 1) == 0)
			;
		H_EQ(XPORT_OP_RECV, c.type);
	}
	for (int i = 0; i < 1000 && quiet < 5; i++) {
		quiet = poll(&p, 1, 5) == 0 ? quiet + 1 : 0;
		H_EQ(0, xport_poll(h->x, &c, 1));
	}
	H_CHECK(quiet == 5, "readable for ever with nothing there");
	h->idle = false;
	h_sync(h);
}

/* Inside an epoll of the application's, as one of many. */
static void nested(struct h *h)
{
	struct epoll_event ev = {.events = EPOLLIN};
	struct xport_opt o = {.size = sizeof(o)};
	struct xport_completion c;
	int ep = epoll_create1(EPOLL_CLOEXEC), n = 0;
	uint64_t in;

	h_mesh(h, NULL);
	H_TRUE(epoll_ctl(ep, EPOLL_CTL_ADD, xport_fd(h->x), &ev) == 0);
	if (h->role == 1) {
		h_sync(h);
		for (uint64_t i = 0; i < 100; i++)
			H_DONE(h_send(h, h->ep[0], &i, 8, 1));
		close(ep);
		return;
	}
	H_OK(xport_recv(h->x, &in, 8, 1, UINT64_MAX, &o));
	h_sync(h);
	for (int i = 0; i < h->nqueue; i++)
		n += h->queue[i].type == XPORT_OP_RECV;
	h->nqueue = 0;
	if (n)
		H_OK(xport_recv(h->x, &in, 8, 1, UINT64_MAX, &o));
	while (n < 100) {
		if (xport_poll(h->x, &c, 1) == 1) {
			H_EQ(XPORT_OP_RECV, c.type);
			H_EQ(n, in);
			if (++n < 100)
				H_OK(xport_recv(h->x, &in, 8, 1, UINT64_MAX, &o));
			continue;
		}
		H_CHECK(epoll_wait(ep, &ev, 1, h_ms(2000)) == 1, "lost wake-up at %d", n);
	}
	close(ep);
}

/* The fd is one and the same for life, closed on exec, and wakes for a connection that comes in. */
static void fd_facts(struct h *h)
{
	struct pollfd p = {.events = POLLIN};
	struct xport_completion c;
	char address[80];
	int fd;

	h->incoming = true;
	h_open(h, NULL);
	fd = xport_fd(h->x);
	H_TRUE(fd >= 0);
	H_TRUE(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	if (h->role == 0) {
		h_listen(h);
		h_tell(h, 1, h->address, sizeof(h->address));
		p.fd = fd;
		while (!h_event_now(h, XPORT_EVENT_INCOMING, &c)) {
			H_CHECK(poll(&p, 1, h_ms(3000)) == 1, "asleep while somebody knocks");
			h_progress(h);
		}
		H_TRUE(c.context == h->listener);
		H_OK(xport_accept(h->listener, 0, &h->ep[1]));
	} else {
		h_hear(h, 0, address, sizeof(address));
		usleep(100000);
		h->ep[0] = h_connect(h, address);
	}
	H_EQ(fd, xport_fd(h->x));
	h_sync(h);
	H_EQ(fd, xport_fd(h->x));
}

/* xport_wait keeps its time limit, ends early for what comes, and for a signal. */
static void on_signal(int sig)
{
	(void)sig;
}

static void wait_times(struct h *h)
{
	struct xport_completion c;
	struct sigaction sa = {.sa_handler = on_signal}, old;
	/* Again every second: the first may come before the wait sleeps. */
	struct itimerval in = {.it_value.tv_usec = 100000, .it_interval.tv_sec = 1}, off = {.it_value.tv_sec = 0};
	int64_t t, starved;

	h_mesh(h, NULL);
	h_run_for(h, 50);
	starved = h_starved_us();
	t = h_now_us();
	H_EQ(0, xport_wait(h->x, &c, 1, 0));
	t = h_now_us() - t;
	H_TRUE(t - (h_starved_us() - starved) < (int64_t)h_ms(100) * 1000);
	starved = h_starved_us();
	t = h_now_us();
	H_EQ(0, xport_wait(h->x, &c, 1, 200));
	t = h_now_us() - t;
	H_CHECK(t >= 199000 && t - (h_starved_us() - starved) < 200000 + (int64_t)h_ms(500) * 1000,
	        "took %" PRId64 " us", t);
	if (!h->config->threads) {
		sigaction(SIGALRM, &sa, &old);
		setitimer(ITIMER_REAL, &in, NULL);
		t = h_now_us();
		H_EQ(0, xport_wait(h->x, &c, 1, -1));
		H_TRUE(h_now_us() - t < (int64_t)h_ms(3000) * 1000);
		setitimer(ITIMER_REAL, &off, NULL);
		sigaction(SIGALRM, &old, NULL);
	}
	H_STATUS(XPORT_ERR_INVALID, xport_poll(h->x, NULL, 1));
	H_STATUS(XPORT_ERR_INVALID, xport_poll(h->x, &c, -1));
	h_sync(h);
}

/* Each signal ends a wait, whatever the wait was doing just then: one that sleeps by the clock wakes often. */
static void wait_interrupted(struct h *h)
{
	struct sigaction sa = {.sa_handler = on_signal}, old;
	struct itimerval in = {.it_interval.tv_sec = 1}, off = {.it_value.tv_sec = 0};
	struct xport_completion c;
	int missed = 0;

	h_mesh(h, NULL);
	h_run_for(h, 50);
	sigaction(SIGALRM, &sa, &old);
	for (int i = 0; i < ROUNDS && missed < 3; i++) {
		int64_t starved = h_starved_us(), t = h_now_us();

		in.it_value.tv_usec = 15000 + i * 37 % 10000;
		setitimer(ITIMER_REAL, &in, NULL);
		H_EQ(0, xport_wait(h->x, &c, 1, -1));
		t = h_now_us() - t;
		missed += t > 900000 && h_starved_us() - starved < 10000; /* or it came before the wait */
	}
	setitimer(ITIMER_REAL, &off, NULL);
	sigaction(SIGALRM, &old, NULL);
	H_CHECK(missed < 3, "%d signals went by unnoticed",
	        missed); /* one may come before the wait, on a busy machine */
	h_sync(h);
}

/* A wait without limit ends when the peer at last says something. */
static void wait_forever(struct h *h)
{
	struct xport_completion c;
	uint64_t word = 1;

	h_mesh(h, NULL);
	if (h->role == 1) {
		h_sync(h);
		usleep(300000);
		H_DONE(h_send(h, h->ep[0], &word, 8, 1));
		return;
	}
	h_recv(h, NULL, &word, 8, 1, UINT64_MAX);
	h_sync(h);
	if (h->pending) {
		H_EQ(1, xport_wait(h->x, &c, 1, -1));
		H_EQ(XPORT_OP_RECV, c.type);
		((struct h_op *)c.context)->done = 1;
	}
}

static const struct h_param ways[] = {{"in_poll", 0}, {"in_xport_wait", 1}, {NULL, 0}};

const struct h_scenario cases_p10[] = {
	{.name = "P10_ping_pong_on_the_fd_alone", .role = {ping_pong, ping_pong}},
	{.name = "P10_long_messages_on_the_fd_alone", .role = {slow_ping_pong, slow_ping_pong}},
	{.name = "P10_target_sleeps_on_the_fd", .role = {dozing_target, visitor}, .flags = H_TARGET},
	{.name = "P10_idle_costs_nothing", .role = {idle, idle}, .params = ways, .flags = H_KILLS},
	{.name = "P10_looking_wakes_nobody", .role = {looks, looks}},
	{.name = "P10_level_triggered", .role = {level, level}},
	{.name = "P10_inside_an_epoll", .role = {nested, nested}},
	{.name = "P10_one_fd_for_life", .role = {fd_facts, fd_facts}},
	{.name = "P10_wait_keeps_time", .role = {wait_times, wait_times}},
	{.name = "P10_wait_ends_by_each_signal", .role = {wait_interrupted, wait_interrupted}, .flags = H_KILLS},
	{.name = "P10_wait_for_ever", .role = {wait_forever, wait_forever}},
	{.name = NULL},
};
