/* SPDX-License-Identifier: BSD-3-Clause */
/* loop_chaos_test.cc - as loop_test.cc, with chaos around the back end: what the manners of others ask of the core. */
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <string>
#include <thread>
#include <vector>

#include "loop_fixture.h"

namespace
{

class LoopChaos : public Loop
{
protected:
	void SetUp() override {}
	void TearDown() override
	{
		Loop::TearDown();
		loop_manners = {};
	}
	void begin(const char *words)
	{
		setenv("XPORT_CHAOS", words, 1);
		around = "chaos:";
		Loop::SetUp();
		unsetenv("XPORT_CHAOS");
	}
	/* Memory of `n` words, whose native key is granted. */
	void share_words(Remote &r, unsigned n)
	{
		xport_rkey_info info{};

		info.size = sizeof(info);
		share(r, n * sizeof(uint64_t));
		for (int i = 0; i < 1000 && info.put != XPORT_NATIVE; i++) {
			both();
			ASSERT_EQ(xport_rkey_query(r.key, &info), XPORT_OK);
		}
		ASSERT_EQ(info.put, XPORT_NATIVE);
	}
	static void put_words(Side &s, Remote &r, const std::vector<uint64_t> &words, uint64_t flags)
	{
		xport_opt o{};

		o.size = sizeof(o);
		o.flags = flags;
		for (unsigned i = 0; i < words.size(); i++)
			ASSERT_EQ(xport_put(s.ep, &words[i], 8, r.key, 8 * i, &o), XPORT_OK) << i;
	}
	static unsigned there(const Remote &r, const std::vector<uint64_t> &words)
	{
		unsigned n = 0;

		for (unsigned i = 0; i < words.size(); i++)
			n += memcmp(&r.bytes[8 * i], &words[i], 8) == 0;
		return n;
	}
};

/* A network that has a put done long before it is there. */
const char early[] = "manner=ucx-sw,delay=0,late=0,again=0";

std::vector<uint64_t> some_words(unsigned n)
{
	std::vector<uint64_t> words(n);

	for (unsigned i = 0; i < n; i++)
		words[i] = ~(uint64_t)i;
	return words;
}

/* The owner takes a region back, and hears of its end only behind what was put there before this side knew. */
TEST_P(LoopChaos, WhatWasPutIsThereBeforeItsRegionGoes)
{
	auto words = some_words(64);
	std::atomic<bool> gone{false};
	Remote r;

	begin(early);
	share_words(r, 64);
	struct pollfd p = {xport_fd(a.x), POLLIN, 0};
	for (int i = 0; i < 1000 && ::poll(&p, 1, 0) > 0; i++)
		a.poll();
	std::thread owner([&] {
		EXPECT_EQ(xport_mr_dereg(r.mr), XPORT_OK);
		gone = true;
	});
	EXPECT_EQ(::poll(&p, 1, 60000), 1); /* it is told, and not read yet */
	put_words(a, r, words, XPORT_LOCAL);
	a.poll(); /* half of the puts, and the news */
	for (int i = 0; i < 300 && !gone; i++)
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	while (!gone)
		a.poll();
	owner.join();
	both(100);
	EXPECT_EQ(there(r, words), words.size());
	EXPECT_EQ(a.done.size(), words.size());
	for (auto &c : a.done)
		EXPECT_EQ(c.type, (uint32_t)XPORT_OP_PUT);
	EXPECT_EQ(xport_put(a.ep, words.data(), 8, r.key, 0, nullptr), XPORT_ERR_STALE_KEY);
}

/* For a while nothing leaves but frames. */
TEST_P(LoopChaos, WhatWasPutIsThereAfterClosing)
{
	auto words = some_words(64);
	std::atomic<bool> stop{false};
	Remote r;

	begin(early);
	share_words(r, 64);
	auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
	__atomic_store_n(&loop_manners.stall, true, __ATOMIC_RELAXED);
	std::thread peer([&] {
		while (!stop) {
			(void)!xport_poll(b.x, nullptr, 0);
			if (std::chrono::steady_clock::now() >= until)
				__atomic_store_n(&loop_manners.stall, false, __ATOMIC_RELAXED);
		}
	});
	put_words(a, r, words, XPORT_QUIET);
	EXPECT_EQ(xport_ep_close(a.ep, -1), XPORT_OK);
	stop = true;
	peer.join();
	EXPECT_EQ(there(r, words), words.size());
}

/* What quiesces takes its time, and gets it: chaos says in the log if it does not. */
TEST_P(LoopChaos, ABackEndThatBreaks)
{
	uint8_t in[8];
	xport_opt o{};
	xport_completion c[16];
	int n = 0, error = 0;

	begin("delay=100,late=0,again=0");
	o.size = sizeof(o);
	o.source = a.ep;
	ASSERT_EQ(xport_recv(a.x, in, sizeof(in), 5, UINT64_MAX, &o), XPORT_OK);
	both(5);
	loop_manners.broken = true;
	for (int i = 0; i < 1000 && error == 0; i++) {
		int r = xport_poll(a.x, c + n, 16 - n);
		(r < 0 ? error : n) += r;
	}
	EXPECT_EQ(error, XPORT_ERR_SYSTEM) << "once all has ended";
	ASSERT_EQ(n, 2);
	EXPECT_EQ(c[0].type, (uint32_t)XPORT_OP_RECV);
	EXPECT_EQ(c[0].status, XPORT_ERR_PEER_LOST);
	EXPECT_EQ(c[1].type, (uint32_t)XPORT_EVENT_LOST);
	EXPECT_EQ(xport_poll(a.x, c, 16), XPORT_ERR_SYSTEM);
}

/* Closing ends all the same, and in the same order. */
TEST_P(LoopChaos, ABackEndThatIsBrokenWhenItIsClosed)
{
	begin("delay=100,late=0,again=0");
	loop_manners.broken = true;
}

INSTANTIATE_TEST_SUITE_P(Ways, LoopChaos, testing::Values("native_none"),
                         [](const auto &i) { return std::string(i.param); });

} // namespace
