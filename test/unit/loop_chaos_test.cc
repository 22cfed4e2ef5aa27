/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * loop_chaos_test.cc - like loop_test.cc, with chaos around the back end: what the profiles of other networks require
 * of the core.
 */
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
const char early[] = "profile=ucx-sw,delay=0,late=0,again=0";

std::vector<uint64_t> some_words(unsigned n)
{
	std::vector<uint64_t> words(n);

	for (unsigned i = 0; i < n; i++)
		words[i] = ~(uint64_t)i;
	return words;
}

/* The owner takes a region back, and hears of its end only behind what was put there before this side knew. */
/* A delay is counted in polls.  Connecting is asked for at every poll for 20 ms, and then every 10 ms. */
TEST_P(LoopChaos, ALongDelayOfConnectingEnds)
{
	begin("delay=100,span=100000");
}

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

/* As if a queue that all peers share stood still: nothing arrives any more, while hearts go on beating. */
class LoopStill : public LoopChaos
{
protected:
	enum { TIMEOUT_MS = 400 };
	using clock = std::chrono::steady_clock;

	/* Until that, b has taken `frames` frames. */
	void begin_still(const char *words)
	{
		setenv("XPORT_PEER_TIMEOUT", "400ms", 1);
		begin(words);
		unsetenv("XPORT_PEER_TIMEOUT");
	}
	/* b gets nothing of these, once enough has arrived. */
	void send_some(int n)
	{
		for (int i = 0; i < n; i++)
			ASSERT_EQ(xport_send(a.ep, &i, sizeof(i), 7, nullptr), XPORT_OK);
	}
	static long ms_since(clock::time_point from)
	{
		return (long)std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - from).count();
	}
	static const xport_completion *event(const Side &s, uint32_t type)
	{
		for (auto &c : s.done)
			if (c.type == type)
				return &c;
		return nullptr;
	}
	static std::string why(const Side &s)
	{
		xport_error e{};

		e.size = sizeof(e);
		EXPECT_EQ(xport_last_error(s.x, &e), XPORT_OK);
		return e.text;
	}
	void lose_both(clock::time_point from)
	{
		while ((event(a, XPORT_EVENT_LOST) == nullptr || event(b, XPORT_EVENT_LOST) == nullptr) &&
		       ms_since(from) < 20000)
			both();
		EXPECT_GE(ms_since(from), TIMEOUT_MS * 3 / 8) << "half of it while both poll";
		for (Side *s : {&a, &b}) {
			const xport_completion *c = event(*s, XPORT_EVENT_LOST);

			ASSERT_NE(c, nullptr);
			EXPECT_EQ(c->status, XPORT_ERR_PEER_LOST);
			EXPECT_NE(why(*s).find("the data path is stuck"), std::string::npos) << why(*s);
		}
	}
};

const char still[] = "still=1,delay=0,late=0,again=0";

TEST_P(LoopStill, BothEndsLearnOfIt)
{
	begin_still(still);
	send_some(3);
	lose_both(clock::now());
}

/* Only acknowledgements are missing here: all that this side sends arrives. */
TEST_P(LoopStill, AnEndThatOnlyWaitsForAnswersLearnsOfIt)
{
	Remote r;
	xport_opt o{};
	uint64_t word = 1;

	begin_still("delay=0,late=0,again=0,still=40");
	share(r, 64);
	for (int i = 0; i < 200 && event(a, XPORT_EVENT_LOST) == nullptr; i++) {
		o.size = sizeof(o);
		if (xport_put(a.ep, &word, sizeof(word), r.key, 0, &o) == XPORT_OK)
			(void)!xport_flush(a.ep, &o);
		both(20);
	}
	lose_both(clock::now() - std::chrono::milliseconds(TIMEOUT_MS));
}

TEST_P(LoopStill, WhoComputesIsNotLost)
{
	begin_still(still);
	send_some(3);
	for (auto from = clock::now(); ms_since(from) < 4 * TIMEOUT_MS;)
		a.poll();
	EXPECT_EQ(event(a, XPORT_EVENT_LOST), nullptr) << "b does not poll";
	b.poll();
	for (auto from = clock::now(); ms_since(from) < 4 * TIMEOUT_MS;)
		std::this_thread::sleep_for(std::chrono::milliseconds(20));
	EXPECT_EQ(event(b, XPORT_EVENT_LOST), nullptr) << "nobody does";
	lose_both(clock::now());
}

TEST_P(LoopStill, WhoSleepsIsWoken)
{
	std::atomic<int> lost{0};
	auto sleep = [&](Side &s) {
		xport_completion c[16];

		for (auto from = clock::now(); ms_since(from) < 20000 && event(s, XPORT_EVENT_LOST) == nullptr;) {
			int n = xport_wait(s.x, c, 16, 5000);

			s.done.insert(s.done.end(), c, c + (n > 0 ? n : 0));
		}
		lost += event(s, XPORT_EVENT_LOST) != nullptr;
	};

	begin_still(still);
	send_some(3);
	std::thread other([&] { sleep(b); });
	sleep(a);
	other.join();
	EXPECT_EQ(2, lost);
}

/* All arrives, however slowly, and however long nobody posts. */
TEST_P(LoopStill, WhatIsSlowIsNotLost)
{
	std::vector<uint8_t> out(100000), in(out.size());
	auto from = clock::now();

	begin_still("delay=100,late=100,again=50,span=400");
	for (int i = 0; ms_since(from) < 6 * TIMEOUT_MS; i++) {
		ASSERT_EQ(xport_recv(b.x, in.data(), in.size(), 7, UINT64_MAX, nullptr), XPORT_OK);
		for (int r = XPORT_ERR_AGAIN; r == XPORT_ERR_AGAIN; both())
			r = xport_send(a.ep, out.data(), out.size(), 7, nullptr);
		EXPECT_EQ(wait(b, XPORT_OP_RECV).status, XPORT_OK);
		if (i % 4 == 0)
			std::this_thread::sleep_for(std::chrono::milliseconds(TIMEOUT_MS / 2));
	}
	EXPECT_EQ(event(a, XPORT_EVENT_LOST), nullptr);
	EXPECT_EQ(event(b, XPORT_EVENT_LOST), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Ways, LoopStill, testing::Values("message_none", "native_none"),
                         [](const auto &i) { return std::string(i.param); });

INSTANTIATE_TEST_SUITE_P(Ways, LoopChaos, testing::Values("native_none"),
                         [](const auto &i) { return std::string(i.param); });

} // namespace
