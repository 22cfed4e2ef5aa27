/* SPDX-License-Identifier: BSD-3-Clause */
/* loop_room_test.cc - like loop_test.cc: a caller that got AGAIN is notified when the queue has space. */
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "inside.h"
#include "loop_fixture.h"

namespace
{

class LoopRoom : public Loop
{
protected:
	enum { DEPTH = 64, LONG = 100000 };
	uint64_t word = 0;
	std::vector<uint8_t> out = std::vector<uint8_t>(LONG), in = std::vector<uint8_t>(LONG);

	/* b may post no more receives, and sleeps; a long message takes one of them, and its sender polls no more. */
	void take_one()
	{
		for (int i = 0; i < DEPTH; i++)
			ASSERT_EQ(xport_recv(b.x, in.data(), in.size(), 5, UINT64_MAX, nullptr), XPORT_OK);
		ASSERT_EQ(xport_recv(b.x, &word, sizeof(word), 6, UINT64_MAX, nullptr), XPORT_ERR_AGAIN);
		ASSERT_EQ(xport_send(a.ep, out.data(), out.size(), 5, nullptr), XPORT_OK);
		for (int i = 0; i < 20; i++)
			a.poll();
	}
};

TEST_P(LoopRoom, OfReceivesThatLongMessagesTakeIsToldToWhoWaits)
{
	xport_completion c;
	take_one();
	auto start = std::chrono::steady_clock::now();
	EXPECT_EQ(xport_wait(b.x, &c, 1, 20000), 0);
	EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
	EXPECT_EQ(xport_recv(b.x, &word, sizeof(word), 6, UINT64_MAX, nullptr), XPORT_OK);
	wait(a, XPORT_OP_SEND);
	wait(b, XPORT_OP_RECV);
}

/* Of whatever length: what is told the application as the bound is the bound, but for what lies between two sizes of rooms. */
TEST_P(LoopRoom, ForWhatNobodyReceivesIsBounded)
{
	xport_info info{};
	info.size = sizeof(info);
	ASSERT_EQ(xport_query(b.x, &info), XPORT_OK);
	for (size_t len : {0, 24, 25, 193, 449, 1000, 4001, 20000, 40000}) {
		if (len > info.eager_max)
			continue;
		xport_completion c[16];
		size_t sent = 0, before = inside_unexpected_bytes(b.x);
		for (int idle = 0; idle < 50;) {
			int r = xport_send(a.ep, out.data(), len, 5, nullptr);
			sent += r == XPORT_OK;
			idle = r == XPORT_OK || xport_poll(a.x, c, 16) > 0 ? 0 : idle + 1;
			ASSERT_GE(xport_poll(b.x, c, 16), 0);
		}
		EXPECT_GT(sent * (len + 320), info.window / 2) << len;
		EXPECT_LT(inside_unexpected_bytes(b.x) - before, 5 * info.window / 2 + (1 << 20))
			<< sent << " of " << len;
		for (size_t i = 0; i < sent; i++) {
			ASSERT_EQ(xport_recv(b.x, in.data(), in.size(), 5, UINT64_MAX, nullptr), XPORT_OK);
			both();
		}
		both(100);
		a.done.clear();
		b.done.clear();
	}
}

/* The options of a flush are its context, whatever else they hold: a region that is ending is not held by it. */
TEST_P(LoopRoom, AFlushHoldsNoRegion)
{
	xport_mr *mr = nullptr;
	xport_opt o{};
	Remote r;
	share(r, 64);
	o.size = sizeof(o);
	ASSERT_EQ(xport_mr_reg(a.x, out.data(), out.size(), 0, &mr), XPORT_OK);
	ASSERT_EQ(xport_put(a.ep, out.data(), 8, r.key, 0, nullptr), XPORT_OK);
	o.mr = mr;
	o.context = &word;
	ASSERT_EQ(xport_flush(a.ep, &o), XPORT_OK);
	auto start = std::chrono::steady_clock::now();
	std::thread polls([this] {
		std::this_thread::sleep_for(std::chrono::seconds(2));
		for (int i = 0; i < 1000; i++)
			b.poll();
	});
	EXPECT_EQ(xport_mr_dereg(mr), XPORT_OK);
	EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(1500));
	polls.join();
	EXPECT_EQ(wait(a, XPORT_OP_FLUSH).context, &word);
}

/* Completions of one endpoint that nobody has reaped take no room of another's. */
TEST_P(LoopRoom, OfOneEndpointIsItsOwn)
{
	char name[64];
	xport_ep *second = nullptr, *taken = nullptr;
	xport_completion c[16];
	ASSERT_EQ(xport_listener_name(listener, name, sizeof(name)), XPORT_OK);
	ASSERT_EQ(xport_connect(a.x, name, nullptr, 0, &second), XPORT_OK);
	wait(a, XPORT_EVENT_CONNECTED);
	while (taken == nullptr) {
		both();
		(void)!xport_accept(listener, 1, &taken);
	}
	/* The first after a poll is complete at once. */
	for (int i = 0; i < DEPTH; i++) {
		ASSERT_EQ(xport_send(a.ep, &word, 8, 5, nullptr), XPORT_OK) << i;
		ASSERT_EQ(xport_poll(a.x, nullptr, 0), 0);
		ASSERT_GE(xport_poll(b.x, c, 16), 0);
	}
	EXPECT_EQ(xport_send(a.ep, &word, 8, 5, nullptr), XPORT_ERR_AGAIN);
	EXPECT_EQ(xport_send(second, &word, 8, 5, nullptr), XPORT_OK);
	while (xport_poll(a.x, c, 16) > 0)
		;
}

INSTANTIATE_TEST_SUITE_P(Ways, LoopRoom, testing::Values("native_none", "message_none"),
                         [](const auto &i) { return std::string(i.param); });

} // namespace
