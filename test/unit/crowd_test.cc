// SPDX-License-Identifier: BSD-3-Clause
/*
 * crowd_test.cc - who sleeps, and who sleeps beside it: no wake-up is lost by a call that waits on the descriptor's behalf,
 * nor by one thread to another.
 */
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xport.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <thread>
#include <vector>

extern "C" {
#include "loop/loop.h"
}

namespace
{

using Clock = std::chrono::steady_clock;

long since(Clock::time_point t)
{
	return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - t).count();
}

/* H_TIMEOUT_SCALE, as in the conformance suite: valgrind and a busy machine take longer. */
long scaled(long ms)
{
	const char *s = getenv("H_TIMEOUT_SCALE");
	return s != nullptr ? ms * atol(s) : ms;
}

void nap(long ms)
{
	std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

/* Side 0 is looked at; side 1 polls in a thread of its own, once it is asked to. */
class Crowd : public testing::Test
{
protected:
	xport *x[2] = {};
	xport_ep *ep[2] = {};
	xport_mr *mr = nullptr;
	xport_rkey *key = nullptr;
	xport_listener *listener = nullptr;
	std::vector<uint8_t> bytes = std::vector<uint8_t>(4096);
	std::thread other;
	std::atomic<bool> stop{false};

	static xport_attr attr()
	{
		xport_attr a{};
		a.size = sizeof(a);
		a.backend = "loop:message";
		a.peer_timeout_ms = 60000;
		return a;
	}

	void connect(const xport_attr &first)
	{
		xport_attr second = attr();
		xport_completion c{};
		char name[64];

		ASSERT_EQ(XPORT_OK, xport_open(&first, &x[0]));
		ASSERT_EQ(XPORT_OK, xport_open(&second, &x[1]));
		ASSERT_EQ(XPORT_OK, xport_listen(x[1], "127.0.0.1:0", nullptr, &listener));
		ASSERT_EQ(XPORT_OK, xport_listener_name(listener, name, sizeof(name)));
		ASSERT_EQ(XPORT_OK, xport_connect(x[0], name, nullptr, 0, &ep[0]));
		for (auto start = Clock::now(); c.type != XPORT_EVENT_CONNECTED && since(start) < 30000;) {
			xport_poll(x[1], nullptr, 0);
			xport_wait(x[0], &c, 1, 1);
		}
		ASSERT_EQ(static_cast<uint32_t>(XPORT_EVENT_CONNECTED), c.type);
		ASSERT_EQ(XPORT_OK, xport_accept(listener, 30000, &ep[1]));

		uint8_t packed[2048];
		size_t len = sizeof(packed);
		ASSERT_EQ(XPORT_OK, xport_mr_reg(x[1], bytes.data(), bytes.size(), XPORT_REMOTE_WRITE, &mr));
		ASSERT_EQ(XPORT_OK, xport_rkey_pack(mr, packed, &len));
		ASSERT_EQ(XPORT_OK, xport_rkey_unpack(ep[0], packed, len, &key));
	}

	void poll_other()
	{
		other = std::thread([this] {
			xport_completion c[8];
			while (!stop)
				xport_wait(x[1], c, 8, 20);
		});
	}

	int put() { return xport_put(ep[0], "x", 1, key, 0, nullptr); }

	/* Completes as it is posted. */
	int put_nothing() { return xport_put(ep[0], nullptr, 0, key, 0, nullptr); }

	void TearDown() override
	{
		stop = true;
		if (other.joinable())
			other.join();
		xport_close(x[0]);
		xport_close(x[1]);
	}
};

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

/* As many quiet gets as may be, whose peer does not answer yet; one more was answered AGAIN, and a thread waits for room. */
class Room : public Crowd
{
protected:
	std::vector<uint8_t> into = std::vector<uint8_t>(8);
	xport_rkey *source = nullptr;

	int get()
	{
		xport_opt o{};
		o.size = sizeof(o);
		o.flags = XPORT_QUIET;
		return xport_get(ep[0], into.data(), 8, source, 0, &o);
	}

	void fill(xport_attr a)
	{
		xport_mr *readable = nullptr;
		uint8_t packed[2048];
		size_t len = sizeof(packed);

		a.thread_mode = XPORT_THREAD_MULTIPLE;
		a.queue_depth = 4;
		connect(a);
		ASSERT_EQ(XPORT_OK, xport_mr_reg(x[1], bytes.data(), bytes.size(), XPORT_REMOTE_READ, &readable));
		ASSERT_EQ(XPORT_OK, xport_rkey_pack(readable, packed, &len));
		ASSERT_EQ(XPORT_OK, xport_rkey_unpack(ep[0], packed, len, &source));
		for (int i = 0; i < 4; i++)
			ASSERT_EQ(XPORT_OK, get());
		ASSERT_EQ(XPORT_ERR_AGAIN, get());
	}

	/* How long one waits for room that another thread looks for, too, before there is any. */
	long waited(const std::function<void()> &meanwhile)
	{
		std::atomic<long> ms{-1};
		std::thread waiter([this, &ms] {
			xport_completion c{};
			auto start = Clock::now();
			EXPECT_EQ(0, xport_wait(x[0], &c, 1, static_cast<int>(scaled(10000))));
			ms = since(start);
		});
		nap(400 + scaled(100)); /* it sleeps by then */
		meanwhile();
		nap(scaled(50));
		EXPECT_LT(ms, 0) << "there is no room yet";
		poll_other();
		waiter.join();
		EXPECT_EQ(XPORT_OK, get());
		return ms;
	}
};

TEST_F(Room, IsToldToWhoWaitsThoughAnotherWaitedMeanwhile)
{
	xport_completion c{};
	fill(attr());
	EXPECT_LT(waited([&] { EXPECT_EQ(0, xport_wait(x[0], &c, 1, 0)); }), scaled(3000));
}

TEST_F(Room, IsToldToWhoWaitsThoughAnotherPolledMeanwhile)
{
	xport_attr a = attr();
	xport_completion c{};
	a.progress = "thread";
	fill(a);
	EXPECT_LT(waited([&] { EXPECT_EQ(0, xport_poll(x[0], &c, 1)); }), scaled(3000));
}

TEST_F(Room, IsToldToEachWhoWaits)
{
	fill(attr());
	std::atomic<int> told{0}, begun{0};
	auto start = Clock::now();
	std::vector<std::thread> waiters;
	for (int i = 0; i < 3; i++)
		waiters.emplace_back([this, &told, &begun] {
			xport_completion mine{};
			begun++;
			told += xport_wait(x[0], &mine, 1, static_cast<int>(scaled(10000))) == 0;
		});
	while (begun < 3)
		nap(1);
	nap(400 + scaled(100)); /* it sleeps by then */
	poll_other();
	for (auto &w : waiters)
		w.join();
	EXPECT_EQ(3, told);
	EXPECT_LT(since(start), scaled(4000));
}

/* What took the room were completions, and another thread reaps them: sometimes all at once, before the one that waits runs. */
TEST_F(Room, IsToldToWhoWaitsWhenAnotherReaps)
{
	xport_attr a = attr();
	xport_completion c[8];
	a.thread_mode = XPORT_THREAD_MULTIPLE;
	a.queue_depth = 4;
	connect(a);
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 4; i++)
			ASSERT_EQ(XPORT_OK, put());
		ASSERT_EQ(XPORT_ERR_AGAIN, put());
		std::atomic<long> ms{-1};
		std::atomic<int> mine{0};
		std::thread waiter([this, &ms, &mine] {
			xport_completion one{};
			auto start = Clock::now();
			mine = xport_wait(x[0], &one, 1, static_cast<int>(scaled(10000)));
			ms = since(start);
		});
		nap(scaled(20));
		int n = 0;
		for (auto start = Clock::now(); n == 0 && ms < 0 && since(start) < scaled(10000);) {
			xport_poll(x[1], nullptr, 0);
			n = xport_poll(x[0], c, 8);
		}
		waiter.join();
		EXPECT_LT(ms, scaled(4000)) << "round " << round;
		n += mine;
		for (auto start = Clock::now(); n < 4 && since(start) < scaled(10000);) {
			xport_poll(x[1], nullptr, 0);
			n += xport_poll(x[0], c, 8);
		}
		ASSERT_EQ(4, n);
	}
}

/* The room came before this thread waits, and another was told. */
TEST_F(Room, IsToldToWhoWaitsAfterAnotherWasTold)
{
	fill(attr());
	poll_other();
	std::thread another([this] {
		xport_completion c{};
		EXPECT_EQ(0, xport_wait(x[0], &c, 1, static_cast<int>(scaled(10000))));
		EXPECT_EQ(0, xport_wait(x[0], &c, 1, static_cast<int>(scaled(100)))); /* all four are done */
	});
	another.join();
	xport_completion c{};
	auto start = Clock::now();
	EXPECT_EQ(0, xport_wait(x[0], &c, 1, static_cast<int>(scaled(10000))));
	EXPECT_LT(since(start), scaled(3000)) << "there was room before it slept";
	EXPECT_EQ(XPORT_OK, get());
	start = Clock::now(); /* once is enough */
	xport_wait(x[0], &c, 1, static_cast<int>(scaled(200)));
	while (since(start) < scaled(150))
		ASSERT_EQ(0, xport_wait(x[0], &c, 1, static_cast<int>(scaled(200))));
}

/* Each poll finds something, of which nothing is to be reaped. */
class Busy : public Crowd
{
protected:
	static void set(bool busy) { __atomic_store_n(&loop_manners.busy, busy, __ATOMIC_RELAXED); }

	void begin(int mode)
	{
		xport_attr a = attr();
		a.thread_mode = static_cast<uint32_t>(mode);
		connect(a);
		set(true);
	}

	/* If it does not end, the test shall. */
	std::thread rescue(std::atomic<bool> &ended)
	{
		return std::thread([&ended] {
			for (auto start = Clock::now(); !ended && since(start) < scaled(5000);)
				nap(1);
			set(false);
		});
	}

	void TearDown() override
	{
		set(false);
		Crowd::TearDown();
	}
};

TEST_F(Busy, AWaitEndsAfterItsTimeLimit)
{
	std::atomic<bool> ended{false};
	xport_completion c{};
	begin(XPORT_THREAD_SERIALIZED);
	auto ends = rescue(ended);
	auto start = Clock::now();
	EXPECT_EQ(0, xport_wait(x[0], &c, 1, 100));
	EXPECT_LT(since(start), scaled(3000));
	EXPECT_GE(since(start), 99);
	ended = true;
	ends.join();
}

TEST_F(Busy, ASignalEndsAWait)
{
	struct sigaction act = {}, old;
	std::atomic<bool> ended{false};
	xport_completion c{};
	begin(XPORT_THREAD_SERIALIZED);
	auto ends = rescue(ended);
	act.sa_handler = [](int) {};
	sigaction(SIGUSR1, &act, &old);
	pthread_t self = pthread_self();
	std::thread alarm([self] {
		nap(100);
		pthread_kill(self, SIGUSR1);
	});
	auto start = Clock::now();
	EXPECT_EQ(0, xport_wait(x[0], &c, 1, static_cast<int>(scaled(10000))));
	EXPECT_LT(since(start), scaled(3000));
	alarm.join();
	sigaction(SIGUSR1, &old, nullptr);
	ended = true;
	ends.join();
}

/* Calls of this thread while another stays in one. */
TEST_F(Busy, WhoWaitsLetsOthersIn)
{
	std::atomic<bool> ended{false};
	begin(XPORT_THREAD_MULTIPLE);
	auto ends = rescue(ended);
	std::thread waiter([this, &ended] {
		xport_completion c{};
		while (!ended)
			xport_wait(x[0], &c, 1, static_cast<int>(scaled(10000)));
	});
	nap(20);
	auto start = Clock::now();
	for (int i = 0; i < 20; i++)
		EXPECT_EQ(XPORT_OK, put_nothing());
	EXPECT_LT(since(start), scaled(2000));
	ended = true;
	put_nothing();
	ends.join();
	waiter.join();
}

TEST_F(Busy, WhoAcceptsLetsOthersIn)
{
	std::atomic<bool> ended{false};
	xport_listener *mine = nullptr;
	begin(XPORT_THREAD_MULTIPLE);
	ASSERT_EQ(XPORT_OK, xport_listen(x[0], "127.0.0.1:0", nullptr, &mine));
	auto ends = rescue(ended);
	std::thread accepts([this, mine] {
		xport_ep *none = nullptr;
		EXPECT_EQ(XPORT_ERR_TIMEOUT, xport_accept(mine, static_cast<int>(scaled(3000)), &none));
	});
	nap(20);
	auto start = Clock::now();
	for (int i = 0; i < 20; i++)
		EXPECT_EQ(XPORT_OK, put_nothing());
	EXPECT_LT(since(start), scaled(1500));
	accepts.join();
	ended = true;
	ends.join();
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
