/* SPDX-License-Identifier: BSD-3-Clause */
/* loop_fence_test.cc - like loop_test.cc: what a fence orders, and what it does not delay. */
#include <gtest/gtest.h>

#include <climits>
#include <cstring>
#include <string>
#include <vector>

#include "loop_fixture.h"

namespace
{

class LoopFence : public Loop
{
};

TEST_P(LoopFence, OrdersPutsAndGets)
{
	Remote r;
	share(r, 1 << 16);
	auto one = pattern(1 << 16, 1), two = pattern(1 << 16, 2);
	std::vector<uint8_t> in(1 << 16);
	for (int i = 0; i < 10; i++) {
		ASSERT_EQ(xport_put(a.ep, one.data(), one.size(), r.key, 0, nullptr), XPORT_OK);
		ASSERT_EQ(xport_fence(a.ep), XPORT_OK);
		ASSERT_EQ(xport_get(a.ep, in.data(), in.size(), r.key, 0, nullptr), XPORT_OK);
		ASSERT_EQ(xport_fence(a.ep), XPORT_OK);
		ASSERT_EQ(xport_put(a.ep, two.data(), two.size(), r.key, 0, nullptr), XPORT_OK);
		wait(a, XPORT_OP_PUT);
		wait(a, XPORT_OP_GET);
		wait(a, XPORT_OP_PUT);
		EXPECT_EQ(in, one);
		EXPECT_EQ(r.bytes, two);
	}
}

/* A fence orders what changes memory or reads it: messages that leave without a pause do not hold it up. */
TEST_P(LoopFence, AmongMessages)
{
	const uint64_t at_once = 8;
	std::vector<uint8_t> out(4096, 'x'), got(4096);
	uint64_t word = 0, sent = 0, gone = 0;
	bool read = false;
	Remote r;
	share(r, 4096);
	both(20); /* a native key is in use */
	loop_manners.keep_two = UINT_MAX;
	loop_manners.most = 1;
	for (int i = 0; i < 1000 && !read; i++) {
		for (; sent < gone + at_once && xport_send(a.ep, out.data(), out.size(), 7, nullptr) == XPORT_OK;
		     sent++)
			ASSERT_EQ(xport_recv(b.x, got.data(), got.size(), 7, UINT64_MAX, nullptr), XPORT_OK);
		if (i == 20) {
			ASSERT_EQ(xport_fence(a.ep), XPORT_OK);
			ASSERT_EQ(xport_get(a.ep, &word, 8, r.key, 0, nullptr), XPORT_OK);
		}
		both();
		for (auto &c : a.done) {
			gone += c.type == XPORT_OP_SEND;
			read = read || c.type == XPORT_OP_GET;
		}
		a.done.clear();
	}
	EXPECT_TRUE(read);
	EXPECT_GT(gone, 20u);
	loop_manners = {};
	for (; gone < sent; gone++)
		wait(a, XPORT_OP_SEND);
}

/* Who is told behind a fence may write where the gets before it have read. */
TEST_P(LoopFence, OrdersGetsAndMessages)
{
	Remote r;
	share(r, 3 << 20);
	auto out = pattern(3 << 20, 1);
	std::vector<uint8_t> in(3 << 20);
	uint64_t word = 0, got = 0;
	both(20); /* a native key is in use */
	for (uint32_t type : {XPORT_OP_SEND, XPORT_OP_PUT_NOTIFY}) {
		memcpy(r.bytes.data(), out.data(), out.size());
		if (type == XPORT_OP_SEND) {
			ASSERT_EQ(xport_recv(b.x, &got, 8, 7, UINT64_MAX, nullptr), XPORT_OK);
		}
		ASSERT_EQ(xport_get(a.ep, in.data(), in.size(), r.key, 0, nullptr), XPORT_OK);
		ASSERT_EQ(xport_fence(a.ep), XPORT_OK);
		if (type == XPORT_OP_SEND) {
			ASSERT_EQ(xport_send(a.ep, &word, 8, 7, nullptr), XPORT_OK);
		} else {
			ASSERT_EQ(xport_put_notify(a.ep, nullptr, 0, r.key, 0, nullptr), XPORT_OK);
		}
		for (int i = 0; i < 10000 && b.done.empty(); i++) {
			a.poll();
			b.poll();
		}
		ASSERT_EQ(b.done.size(), 1u);
		b.done.clear();
		memset(r.bytes.data(), 0xee, r.bytes.size());
		EXPECT_EQ(wait(a, XPORT_OP_GET).status, XPORT_OK);
		EXPECT_EQ(wait(a, type).status, XPORT_OK);
		EXPECT_TRUE(in == out) << "type " << type;
	}
}

INSTANTIATE_TEST_SUITE_P(Ways, LoopFence, testing::Values("native_none", "native_all", "rdma_none", "message_none"),
                         [](const auto &i) { return std::string(i.param); });

} // namespace
