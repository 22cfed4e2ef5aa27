// SPDX-License-Identifier: BSD-3-Clause
/*
 * crowd_test.cc - several threads that sleep: no wake-up is lost by a call that waits on the descriptor's behalf, nor
 * by one thread to another.
 */
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iostream>
#include <string>

#include "crowd_fixture.h"
#include "unit/inside.h"
#include "unit/sever.h"

namespace
{

bool readable(int fd)
{
	pollfd p{};
	p.fd = fd;
	p.events = POLLIN;
	return poll(&p, 1, 0) == 1;
}

/* A thread that waits for one completion; how long it took. */
struct Waiter {
	std::atomic<long> ms{-1};
	std::thread thread;

	explicit Waiter(xport *x, long limit_ms = scaled(10000))
	    : thread([this, x, limit_ms] {
		      xport_completion c{};
		      auto start = Clock::now();
		      while (c.type == 0 && since(start) < limit_ms)
			      xport_wait(x, &c, 1, static_cast<int>(limit_ms));
		      ms = since(start);
	      })
	{
	}
	~Waiter()
	{
		if (thread.joinable())
			thread.join();
	}
	long join()
	{
		thread.join();
		return ms;
	}
};

/* The timer's tick that ends the operation comes as xport_wait looks whether it may sleep. */
TEST_F(Crowd, TheDescriptorIsReadableAfterAWaitThatLeftSomething)
{
	xport_attr a = attr();
	a.op_timeout_ms = static_cast<int>(scaled(200));
	connect(a);
	int fd = xport_fd(x[0]);
	xport_completion c{};
	ASSERT_GE(fd, 0);
	while (xport_poll(x[0], &c, 1) > 0)
		;
	ASSERT_EQ(XPORT_OK, put()); /* nobody answers */
	ASSERT_EQ(1, xport_wait(x[0], &c, 1, static_cast<int>(scaled(10000))));
	EXPECT_EQ(XPORT_ERR_TIMEOUT, c.status);
	EXPECT_TRUE(readable(fd)) << "that the endpoint is lost is still to be reaped";
	ASSERT_EQ(1, xport_poll(x[0], &c, 1));
	EXPECT_EQ(static_cast<uint32_t>(XPORT_EVENT_LOST), c.type);
}

TEST_F(Crowd, WhoSleepsIsNotForgottenByWhoLeaves)
{
	xport_attr a = attr();
	xport_completion c{};
	a.thread_mode = XPORT_THREAD_MULTIPLE;
	connect(a);
	Waiter waiter(x[0]);
	nap(scaled(100));
	ASSERT_EQ(0, xport_wait(x[0], &c, 1, 20));
	nap(scaled(50));
	ASSERT_EQ(XPORT_OK, put_nothing());
	nap(scaled(500));
	EXPECT_GE(waiter.ms, 0) << "it sleeps on";
	ASSERT_EQ(XPORT_OK, put_nothing());
	waiter.join();
	xport_poll(x[0], &c, 1);
}

/* The one that led leaves, and the other sleeps on what comes from below. */
TEST_F(Crowd, WhoSleepsBesideAnotherTakesItsPlace)
{
	xport_attr a = attr();
	xport_completion c{};
	a.thread_mode = XPORT_THREAD_MULTIPLE;
	connect(a);
	uint64_t word = 1, in = 0;
	ASSERT_EQ(XPORT_OK, xport_recv(x[0], &in, sizeof(in), 3, UINT64_MAX, nullptr));
	std::thread first([this] {
		xport_completion mine{};
		EXPECT_EQ(0, xport_wait(x[0], &mine, 1, static_cast<int>(scaled(150))));
	});
	nap(scaled(30));
	Waiter waiter(x[0]);
	first.join();
	nap(scaled(50));
	ASSERT_EQ(XPORT_OK, xport_send(ep[1], &word, sizeof(word), 3, nullptr));
	for (auto start = Clock::now(); waiter.ms < 0 && since(start) < scaled(2000);)
		xport_wait(x[1], &c, 1, 1);
	EXPECT_GE(waiter.ms, 0) << "it sleeps on";
	put_nothing();
	waiter.join();
	EXPECT_EQ(1u, in);
}

/* Both in one poll of the one of them that makes progress, which takes its own and leaves. */
TEST_F(Crowd, EachOfTwoWhoWaitGetsOne)
{
	xport_attr a = attr();
	xport_completion c{};
	a.thread_mode = XPORT_THREAD_MULTIPLE;
	connect(a);
	for (int round = 0; round < 20; round++) {
		uint64_t word = 1, in[2] = {};
		for (auto &i : in)
			ASSERT_EQ(XPORT_OK, xport_recv(x[0], &i, sizeof(i), 3, UINT64_MAX, nullptr));
		Waiter one(x[0]), two(x[0]);
		nap(scaled(round < 3 ? 50 : 5));
		for (int i = 0; i < 2; i++)
			ASSERT_EQ(XPORT_OK, xport_send(ep[1], &word, sizeof(word), 3, nullptr));
		for (auto start = Clock::now(); (one.ms < 0 || two.ms < 0) && since(start) < scaled(2000);)
			xport_wait(x[1], &c, 1, 1);
		EXPECT_TRUE(one.ms >= 0 && two.ms >= 0) << "in round " << round;
		for (int i = 0; i < 2 && HasFailure(); i++)
			put_nothing();
		one.join();
		two.join();
		if (HasFailure())
			return;
	}
}

/* One thread accepts while another waits: whoever makes progress, both are told. */
TEST_F(Crowd, WhoAcceptsBesideWhoWaits)
{
	xport_attr a = attr();
	xport_listener *mine = nullptr;
	xport_ep *in = nullptr, *out = nullptr;
	xport_completion c{};
	char name[64];
	a.thread_mode = XPORT_THREAD_MULTIPLE;
	connect(a);
	ASSERT_EQ(XPORT_OK, xport_listen(x[0], "127.0.0.1:0", nullptr, &mine));
	ASSERT_EQ(XPORT_OK, xport_listener_name(mine, name, sizeof(name)));
	std::atomic<bool> enough{false};
	std::thread waits([&] {
		xport_completion some[4];
		while (!enough)
			xport_wait(x[0], some, 4, 100);
	});
	std::atomic<long> took{-1};
	std::thread accepts([&] {
		auto start = Clock::now();
		EXPECT_EQ(XPORT_OK, xport_accept(mine, static_cast<int>(scaled(10000)), &in));
		took = since(start);
	});
	nap(scaled(50));
	auto start = Clock::now();
	EXPECT_EQ(XPORT_OK, xport_connect(x[1], name, nullptr, 0, &out));
	while (took < 0 && since(start) < scaled(10000))
		xport_wait(x[1], &c, 1, 5);
	EXPECT_LT(since(start), scaled(2000));
	accepts.join();
	enough = true;
	waits.join();
}

/* How long a thread was ready to run and did not: a busy machine's part in its lateness. */
long ready_ms(long tid)
{
	std::ifstream f("/proc/self/task/" + std::to_string(tid) + "/schedstat");
	long long ran = 0, waited = -1;

	f >> ran >> waited;
	return waited < 0 ? -1 : static_cast<long>(waited / 1000000);
}

/* Makes this thread one that never runs while another on its processor can. */
bool stand_back(int processor)
{
	sched_param p{};
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(processor, &set);
	return sched_setaffinity(0, sizeof(set), &set) == 0 && sched_setscheduler(0, SCHED_IDLE, &p) == 0;
}

/*
 * An event loop is told that a connection has ended, and destroys its endpoint, while the thread that makes the connection has
 * not had the lock yet since it was made: that one must not be given what is gone.
 */
TEST_F(Crowd, WhoConnectsBesideAnEventLoopThatDestroys)
{
	xport_attr a = attr();
	std::atomic<bool> enough{false};
	char name[64];

	a.thread_mode = XPORT_THREAD_MULTIPLE;
	connect(a);
	ASSERT_EQ(XPORT_OK, xport_listener_name(listener, name, sizeof(name)));
	std::thread connects([&] {
		xport_ep *out = nullptr;
		int r = xport_connect(x[0], name, nullptr, static_cast<int>(scaled(30000)), &out);
		EXPECT_EQ(XPORT_ERR_PEER_CLOSED, r);
		EXPECT_EQ(nullptr, out);
	});
	nap(scaled(100)); /* nobody answers yet, and it sleeps */
	inside_alone(x[0], true);
	std::thread closes([&] {
		xport_ep *in = nullptr;
		EXPECT_EQ(XPORT_OK, xport_accept(listener, static_cast<int>(scaled(30000)), &in));
		xport_ep_destroy(in);
		while (!enough)
			xport_poll(x[1], nullptr, 0);
	});
	xport_completion c{};
	for (auto start = Clock::now(); c.type != XPORT_EVENT_CLOSED && since(start) < scaled(30000);)
		xport_poll(x[0], &c, 1);
	EXPECT_EQ(static_cast<uint32_t>(XPORT_EVENT_CLOSED), c.type);
	xport_ep_destroy(c.ep);
	for (int i = 0; i < 100; i++)
		xport_poll(x[0], nullptr, 0);
	inside_alone(x[0], false);
	connects.join();
	enough = true;
	closes.join();
	xport_poll(x[0], nullptr, 0);
	EXPECT_EQ(1u, inside_endpoints(x[0])) << "nothing is left of it";
}

/* An event loop reaps the loss of a peer, and destroys the endpoint, while another thread closes it, and has not had the lock since. */
TEST_F(Crowd, WhoClosesBesideAnEventLoopThatDestroys)
{
	xport_attr a = attr();

	a.thread_mode = XPORT_THREAD_MULTIPLE;
	connect(a);
	xport_rkey_destroy(key);
	key = nullptr;
	std::thread closes(
		[&] { EXPECT_EQ(XPORT_ERR_PEER_LOST, xport_ep_close(ep[0], static_cast<int>(scaled(30000)))); });
	nap(scaled(100)); /* nobody answers, and it sleeps */
	inside_alone(x[0], true);
	EXPECT_EQ(1, sever(listener));
	xport_completion c{};
	for (auto start = Clock::now(); c.type != XPORT_EVENT_LOST && since(start) < scaled(30000);)
		xport_poll(x[0], &c, 1);
	EXPECT_EQ(static_cast<uint32_t>(XPORT_EVENT_LOST), c.type);
	xport_ep_destroy(ep[0]);
	for (int i = 0; i < 100; i++)
		xport_poll(x[0], nullptr, 0);
	EXPECT_EQ(1u, inside_endpoints(x[0])) << "who closes looks at it still";
	inside_alone(x[0], false);
	closes.join();
	for (int i = 0; i < 3; i++)
		xport_poll(x[0], nullptr, 0);
	EXPECT_EQ(0u, inside_endpoints(x[0])) << "nothing is left of it";
	ep[0] = nullptr;
}

/*
 * An event loop takes what comes off the descriptor while another thread accepts, and has not had the processor yet since that
 * woke it: it is told all the same.
 */
TEST_F(Crowd, WhoAcceptsBesideAnEventLoop)
{
	xport_attr a = attr();
	xport_listener *mine = nullptr;
	std::atomic<long> tid{0}, heard_ready{0}, rounds{0};
	std::atomic<Clock::time_point> heard{Clock::time_point::max()};
	std::atomic<bool> enough{false}, fit{true};
	const int processor = sched_getcpu();
	constexpr long ROUNDS = 30;
	long late = 0, told = 0;
	char name[64];

	a.thread_mode = XPORT_THREAD_MULTIPLE;
	connect(a);
	ASSERT_EQ(XPORT_OK, xport_listen(x[0], "127.0.0.1:0", nullptr, &mine));
	ASSERT_EQ(XPORT_OK, xport_listener_name(mine, name, sizeof(name)));
	std::thread loop([&] {
		pollfd p{};
		p.fd = xport_fd(x[0]);
		p.events = POLLIN;
		cpu_set_t set;
		CPU_ZERO(&set);
		CPU_SET(processor, &set);
		fit = fit && sched_setaffinity(0, sizeof(set), &set) == 0;
		while (!enough) {
			xport_completion c[4];
			if (poll(&p, 1, 100) != 1)
				continue;
			for (int i = 0, n = xport_poll(x[0], c, 4); i < n; i++) {
				if (c[i].type != XPORT_EVENT_INCOMING)
					continue;
				heard_ready = ready_ms(tid);
				heard = Clock::now();
			}
		}
	});
	std::thread accepts([&] {
		fit = fit && stand_back(processor);
		tid = syscall(SYS_gettid);
		while (rounds < ROUNDS) {
			xport_ep *in = nullptr;
			if (xport_accept(mine, static_cast<int>(scaled(60000)), &in) != XPORT_OK)
				break;
			auto from = heard.exchange(Clock::time_point::max());
			if (from != Clock::time_point::max()) {
				told++;
				late += since(from) - (ready_ms(tid) - heard_ready) > 400;
			}
			xport_ep_destroy(in);
			rounds++;
		}
		enough = true;
	});
	for (long n = 0; n < ROUNDS && !enough; n++) {
		xport_ep *out = nullptr;
		xport_completion c{};
		nap(20); /* so that it sleeps */
		heard = Clock::time_point::max();
		int r = xport_connect(x[1], name, nullptr, 0, &out);
		EXPECT_EQ(XPORT_OK, r);
		if (r != XPORT_OK)
			break;
		for (auto start = Clock::now(); rounds == n && since(start) < scaled(60000) && !enough;)
			xport_wait(x[1], &c, 1, 5);
		EXPECT_EQ(n + 1, rounds);
		xport_ep_destroy(out);
	}
	enough = true;
	accepts.join();
	loop.join();
	std::cout << told << " accepted after the event loop had heard of it, " << late << " late\n";
	if (!fit || ready_ms(syscall(SYS_gettid)) < 0)
		GTEST_SKIP() << "needs SCHED_IDLE, a processor to stay on, and schedstat";
	EXPECT_EQ(0, late);
}

/* With the progress thread a call that waits costs next to no processor. */
TEST_F(Crowd, WhoWaitsBesideTheProgressThreadSleeps)
{
	xport_attr a = attr();
	xport_listener *mine = nullptr;
	xport_ep *in = nullptr;
	rusage from{}, to{};
	a.progress = "thread";
	connect(a);
	ASSERT_EQ(XPORT_OK, xport_listen(x[0], "127.0.0.1:0", nullptr, &mine));
	nap(50);
	getrusage(RUSAGE_SELF, &from);
	EXPECT_EQ(XPORT_ERR_TIMEOUT, xport_accept(mine, 1000, &in));
	getrusage(RUSAGE_SELF, &to);
	EXPECT_LT(to.ru_nvcsw - from.ru_nvcsw, 200) << "times that somebody went to sleep in an idle second";
}

/* Its thread may be about to sleep as it is told to end. */
TEST_F(Crowd, ClosingDoesNotWaitForTheProgressThreadsSleep)
{
	for (int i = 0; i < 300; i++) {
		xport_attr a = attr();
		xport *one = nullptr;
		a.progress = "thread";
		ASSERT_EQ(XPORT_OK, xport_open(&a, &one));
		if (i % 3 > 0)
			std::this_thread::sleep_for(std::chrono::microseconds(i % 40));
		auto start = Clock::now();
		xport_close(one);
		ASSERT_LT(since(start), scaled(700)) << "in round " << i;
	}
}

} // namespace
