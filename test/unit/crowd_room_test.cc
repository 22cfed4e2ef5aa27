/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * crowd_room_test.cc - a thread that got AGAIN and waits is notified of queue space, even if other threads wait, poll
 * or reap meanwhile.
 */
#include <poll.h>

#include <functional>

#include "crowd_fixture.h"

namespace
{

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

/* Another thread polls as fast as it can: it makes the room, and finds nothing to reap before the one that sleeps runs. */
class RoomBeside : public Room, public testing::WithParamInterface<const char *>
{
protected:
	/* How long it took this thread, which `sleeps`. */
	long told(const std::function<void(long limit_ms)> &sleeps)
	{
		xport_attr a = attr();
		a.progress = GetParam();
		fill(a);
		std::atomic<bool> enough{false};
		std::thread another([this, &enough] {
			xport_completion c{};
			nap(scaled(100));
			poll_other();
			while (!enough)
				xport_poll(x[0], &c, 1);
		});
		auto start = Clock::now();
		sleeps(scaled(5000));
		long ms = since(start);
		enough = true;
		another.join();
		return ms;
	}
};

TEST_P(RoomBeside, IsToldToWhoWaits)
{
	long ms = told([this](long limit_ms) {
		xport_completion c{};
		EXPECT_EQ(0, xport_wait(x[0], &c, 1, static_cast<int>(limit_ms)));
		EXPECT_EQ(XPORT_OK, get());
	});
	EXPECT_LT(ms, scaled(700)) << "nobody woke it";
}

TEST_P(RoomBeside, IsToldToWhoSleepsOnTheDescriptor)
{
	long ms = told([this](long limit_ms) {
		int fd = xport_fd(x[0]);
		xport_completion c{};
		/* Readable as long as there may be something: polled until it says that there is nothing, and room is not there. */
		for (auto start = Clock::now(); since(start) < limit_ms;) {
			pollfd p{};
			p.fd = fd;
			p.events = POLLIN;
			poll(&p, 1, static_cast<int>(limit_ms));
			EXPECT_EQ(0, xport_poll(x[0], &c, 1));
			if (get() == XPORT_OK)
				return;
		}
	});
	EXPECT_LT(ms, scaled(2000)) << "nobody woke it";
}

/* It polls, and the room comes in that poll or before it: the descriptor says so before it sleeps there. */
TEST_P(RoomBeside, IsToldByTheDescriptorAfterAPoll)
{
	xport_attr a = attr();
	a.progress = GetParam();
	fill(a);
	xport_completion c{};
	pollfd p{};
	p.fd = xport_fd(x[0]);
	p.events = POLLIN;
	while (xport_poll(x[0], &c, 1) > 0 || poll(&p, 1, 0) == 1)
		;
	ASSERT_EQ(XPORT_ERR_AGAIN, get());
	for (int i = 0; i < 20; i++)
		xport_poll(x[1], nullptr, 0);
	nap(scaled(50)); /* a progress thread takes what came */
	EXPECT_EQ(0, xport_poll(x[0], &c, 1));
	EXPECT_EQ(1, poll(&p, 1, 0)) << "who polls and then sleeps, sleeps for ever";
	EXPECT_EQ(XPORT_OK, get());
	/* Once is enough. */
	auto start = Clock::now();
	while (poll(&p, 1, 0) == 1 && since(start) < scaled(500))
		xport_poll(x[0], &c, 1);
	EXPECT_EQ(0, poll(&p, 1, 0)) << "it sleeps on the descriptor, which is readable for ever";
}

/* Who was refused does not come back; the thread that sleeps on the descriptor does not go round and round for it. */
TEST_P(RoomBeside, IsNotToldForEver)
{
	xport_attr a = attr();
	a.progress = GetParam();
	fill(a);
	ASSERT_GE(xport_fd(x[0]), 0);
	poll_other();
	std::thread another([this] {
		xport_completion c{};
		pollfd p{};
		p.fd = xport_fd(x[0]);
		p.events = POLLIN;
		long quiet = 0;
		for (auto start = Clock::now(); quiet < 300 && since(start) < scaled(5000);) {
			xport_poll(x[0], &c, 1);
			auto slept = Clock::now();
			poll(&p, 1, 300);
			quiet = since(slept);
		}
		EXPECT_GE(quiet, 300) << "the descriptor is readable for ever";
	});
	another.join();
}

INSTANTIATE_TEST_SUITE_P(Progress, RoomBeside, testing::Values("poll", "thread"),
                         [](const auto &i) { return i.param; });

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

/* One sleeps in a call that has nothing to do with it, and takes what woke it off the descriptor that another is to sleep on. */
TEST_F(Room, IsToldByTheDescriptorThoughAnotherSleeps)
{
	xport_listener *mine = nullptr;
	xport_completion c{};
	pollfd p{};
	fill(attr());
	p.fd = xport_fd(x[0]);
	p.events = POLLIN;
	while (xport_poll(x[0], &c, 1) > 0 || poll(&p, 1, 0) == 1)
		;
	ASSERT_EQ(XPORT_OK, xport_listen(x[0], "127.0.0.1:0", nullptr, &mine));
	std::thread another([&] {
		xport_ep *in = nullptr;
		EXPECT_EQ(XPORT_ERR_TIMEOUT, xport_accept(mine, static_cast<int>(scaled(1000)), &in));
	});
	nap(scaled(100));
	ASSERT_EQ(XPORT_ERR_AGAIN, get());
	poll_other();
	EXPECT_EQ(1, poll(&p, 1, static_cast<int>(scaled(5000))));
	nap(200); /* this one looks and does not come, the other sleeps again; not for a second: so long it is waited for */
	EXPECT_EQ(1, poll(&p, 1, 0)) << "who sleeps now, sleeps for ever";
	EXPECT_EQ(XPORT_OK, get());
	another.join();
}

/* Another thread waits and is told; this one arms the descriptor, and is told, too. */
TEST_F(Room, IsToldByArmThoughAnotherWaited)
{
	xport_completion c{};
	fill(attr());
	while (xport_arm(x[0]) != XPORT_OK)
		xport_poll(x[0], &c, 1);
	ASSERT_EQ(XPORT_ERR_AGAIN, get());
	std::thread another([this] {
		xport_completion one{};
		EXPECT_EQ(0, xport_wait(x[0], &one, 1, static_cast<int>(scaled(10000))));
	});
	nap(scaled(100)); /* it sleeps by then */
	poll_other();
	another.join();
	EXPECT_EQ(XPORT_ERR_AGAIN, xport_arm(x[0])) << "who sleeps now, sleeps for ever";
	EXPECT_EQ(XPORT_OK, get());
}

/* One thread sleeps on the armed descriptor, which is readable now. Another one, whose arming fails, leaves it so. */
TEST_F(Room, ArmInVainLeavesTheDescriptorReadable)
{
	xport_attr a = attr();
	xport_completion c{};
	pollfd p{};
	a.thread_mode = XPORT_THREAD_MULTIPLE;
	connect(a);
	p.fd = xport_fd(x[0]);
	p.events = POLLIN;
	while (xport_arm(x[0]) != XPORT_OK)
		xport_poll(x[0], &c, 1);
	ASSERT_EQ(0, poll(&p, 1, 0));
	for (int i = 0; i < 3; i++)
		ASSERT_EQ(XPORT_OK, put()); /* there is a frame to be sent by a poll */
	ASSERT_EQ(1, poll(&p, 1, 0));
	ASSERT_EQ(XPORT_ERR_AGAIN, xport_arm(x[0]));
	EXPECT_EQ(1, poll(&p, 1, 0)) << "who sleeps there, sleeps on";
}

/* Who was refused, polled, and was accepted, waits for something else then. */
TEST_F(Room, IsNotToldToWhoHasFoundIt)
{
	xport_completion c{};
	xport_opt o{};
	o.size = sizeof(o);
	int r;
	fill(attr());
	poll_other();
	while ((r = get()) == XPORT_ERR_AGAIN)
		xport_poll(x[0], nullptr, 0);
	ASSERT_EQ(XPORT_OK, r);
	while ((r = xport_flush(ep[0], &o)) == XPORT_ERR_AGAIN)
		xport_poll(x[0], nullptr, 0);
	ASSERT_EQ(XPORT_OK, r);
	EXPECT_EQ(1, xport_wait(x[0], &c, 1, static_cast<int>(scaled(10000))));
	EXPECT_EQ(static_cast<uint32_t>(XPORT_OP_FLUSH), c.type);
}

/* The same with receives. */
TEST_F(Room, IsNotToldToWhoHasFoundItForAReceive)
{
	xport_attr a = attr();
	xport_completion c{};
	xport_opt o{};
	uint64_t id = 0, last = 0, word = 0;
	int r;
	a.thread_mode = XPORT_THREAD_MULTIPLE; /* or reaping is no news */
	a.queue_depth = 4;
	connect(a);
	o.size = sizeof(o);
	o.id = &id;
	while ((r = xport_recv(x[0], &word, sizeof(word), 5, UINT64_MAX, &o)) == XPORT_OK)
		last = id;
	ASSERT_EQ(XPORT_ERR_AGAIN, r);
	ASSERT_EQ(XPORT_OK, xport_cancel(x[0], last));
	while (xport_poll(x[0], &c, 1) == 0)
		;
	ASSERT_EQ(XPORT_OK, xport_recv(x[0], &word, sizeof(word), 5, UINT64_MAX, &o));
	auto start = Clock::now();
	EXPECT_EQ(0, xport_wait(x[0], &c, 1, 100));
	EXPECT_GE(since(start), 90);
}

} // namespace
