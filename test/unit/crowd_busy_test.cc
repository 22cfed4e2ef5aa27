/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * crowd_busy_test.cc - a call that continues while each poll finds something: its time limit, signals, and other
 * threads.
 */
#include <pthread.h>
#include <signal.h>

#include "crowd_fixture.h"

extern "C" {
#include "loop/loop.h"
}

namespace
{

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

} // namespace
