/* SPDX-License-Identifier: BSD-3-Clause */
/* burst_test.cc - in how many frames operations leave that are posted between two polls, and when the first of them does. */
#include <gtest/gtest.h>

#include <poll.h>

#include "inside_fixture.h"

namespace
{

constexpr unsigned WINDOW = 64;

class Burst : public Inside
{
protected:
	uint64_t word = 1, in[WINDOW] = {};
	xport_rkey *key = nullptr;
	unsigned open = 0;

	void begin()
	{
		Bytes packed(512);
		size_t len = packed.size();

		connect();
		ASSERT_EQ(XPORT_OK,
		          xport_mr_reg(b, memory, sizeof(memory), XPORT_REMOTE_READ | XPORT_REMOTE_WRITE, &there));
		ASSERT_EQ(XPORT_OK, xport_rkey_pack(there, packed.data(), &len));
		ASSERT_EQ(XPORT_OK, xport_rkey_unpack(ep, packed.data(), len, &key));
	}
	void TearDown() override
	{
		if (key != nullptr)
			xport_rkey_destroy(key);
		Inside::TearDown();
	}
	static uint64_t frames(xport *x, xport_ep *of)
	{
		xport_counters c{};

		c.size = sizeof(c);
		EXPECT_EQ(XPORT_OK, xport_stats(x, of, &c));
		return c.frames_out;
	}
	void put()
	{
		xport_opt o{};

		o.size = sizeof(o);
		o.flags = XPORT_LOCAL;
		ASSERT_EQ(XPORT_OK, xport_put(ep, &word, sizeof(word), key, 0, &o));
		open++;
	}
	void get(unsigned i)
	{
		ASSERT_EQ(XPORT_OK, xport_get(ep, &in[i], sizeof(in[i]), key, 0, nullptr));
		open++;
	}
	void reap(xport *x, unsigned *of)
	{
		xport_completion c[WINDOW];
		int n = xport_poll(x, c, WINDOW);

		ASSERT_GE(n, 0);
		for (int i = 0; i < n; i++)
			ASSERT_EQ(XPORT_OK, c[i].status);
		if (of != nullptr)
			*of -= static_cast<unsigned>(n);
	}
	void settle()
	{
		for (int i = 0; i < 100 || (open > 0 && i < 100000); i++) {
			reap(b, nullptr);
			reap(a, &open);
		}
		ASSERT_EQ(0u, open);
	}
};

TEST_F(Burst, TheFirstWaitsForTheOthers)
{
	uint64_t before;

	begin();
	for (int round = 0; round < 3; round++) {
		before = frames(a, ep);
		for (unsigned i = 0; i < WINDOW; i++)
			put();
		EXPECT_EQ(round == 0 ? 1u : 0u, frames(a, ep) - before) << "before the poll, in round " << round;
		settle();
		EXPECT_EQ(round == 0 ? 2u : 1u, frames(a, ep) - before) << "round " << round;
	}
}

TEST_F(Burst, WhatComesAloneAfterOneLeavesAtOnceAgain)
{
	uint64_t before;

	begin();
	for (unsigned i = 0; i < WINDOW; i++)
		put();
	settle();
	before = frames(a, ep);
	put();
	EXPECT_EQ(0u, frames(a, ep) - before) << "the burst is not known to be over";
	reap(a, &open);
	EXPECT_EQ(1u, frames(a, ep) - before);
	for (unsigned i = 2; i < 10; i++) {
		put();
		EXPECT_EQ(i, frames(a, ep) - before) << "waits for a poll";
		settle();
	}
}

/* Who sleeps on the descriptor is not told by anybody else that something is to be sent. */
TEST_F(Burst, TheDescriptorTellsOfWhatWaits)
{
	struct pollfd fd = {-1, POLLIN, 0};

	begin();
	for (unsigned i = 0; i < WINDOW; i++)
		put();
	settle();
	fd.fd = xport_fd(a);
	for (int i = 0; i < 10 && ::poll(&fd, 1, 0) > 0; i++)
		reap(a, &open);
	ASSERT_EQ(0, ::poll(&fd, 1, 0)) << "nothing is to be done";
	put();
	EXPECT_EQ(1, ::poll(&fd, 1, 1000));
}

TEST_F(Burst, AFewAreNone)
{
	uint64_t before;

	begin();
	for (int round = 0; round < 3; round++) {
		before = frames(a, ep);
		for (unsigned i = 0; i < 4; i++)
			put();
		EXPECT_EQ(1u, frames(a, ep) - before) << "round " << round;
		settle();
	}
}

TEST_F(Burst, AnswersShareAFrame)
{
	begin();
	for (int round = 0; round < 3; round++) {
		uint64_t before = frames(b, peer);

		for (unsigned i = 0; i < WINDOW; i++)
			get(i);
		settle();
		/* Of the first round's first get the answer may leave before the others have come. */
		EXPECT_EQ(round == 0 ? 2u : 1u, frames(b, peer) - before) << "round " << round;
	}
}

} /* namespace */
