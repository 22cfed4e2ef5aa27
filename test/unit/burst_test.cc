/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * burst_test.cc - the number of frames in which operations are sent that are posted between two polls, and when the
 * first is sent.
 */
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

/* Two in one poll once do not make the next one wait; twice in a row they do. */
TEST_F(Burst, OfAFewOneIsNoneAndTwoAre)
{
	uint64_t before;

	begin();
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < 2 - round % 2; i++) {
			before = frames(a, ep);
			put();
			EXPECT_EQ(i == 0 ? 1u : 0u, frames(a, ep) - before) << "round " << round;
		}
		settle();
	}
	for (int round = 0; round < 5; round++) {
		before = frames(a, ep);
		put();
		EXPECT_EQ(round < 2 ? 1u : 0u, frames(a, ep) - before) << "round " << round;
		put();
		settle();
		EXPECT_EQ(round < 2 ? 2u : 1u, frames(a, ep) - before) << "round " << round;
	}
}

/* Where a frame costs little, few operations do not wait for each other. */
TEST_F(Burst, WhereFramesAreCheapAFewAreNone)
{
	uint64_t before;

	inside_cheap(true);
	begin();
	inside_cheap(false);
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < 7; i++) {
			before = frames(a, ep);
			put();
			EXPECT_EQ(i == 0 ? 1u : 0u, frames(a, ep) - before) << "round " << round;
		}
		settle();
	}
	for (int round = 0; round < 2; round++) {
		before = frames(a, ep);
		for (int i = 0; i < 9; i++)
			put();
		settle();
		EXPECT_EQ(round == 0 ? 2u : 1u, frames(a, ep) - before) << "round " << round;
	}
}

TEST_F(Burst, WhatJoinsNeedsNoOperation)
{
	xport_opt o{};

	begin();
	o.size = sizeof(o);
	o.flags = XPORT_LOCAL;
	inside_no_operations(a, true);
	for (unsigned i = 0; i < WINDOW; i++)
		open += (i % 2 == 0 ? xport_put(ep, &word, sizeof(word), key, 0, &o)
		                    : xport_send(ep, &word, sizeof(word), 7, nullptr)) == XPORT_OK;
	inside_no_operations(a, false);
	EXPECT_EQ(WINDOW, open);
	settle();
}

TEST_F(Burst, ShortAnswersNeedNoOperation)
{
	begin();
	for (unsigned i = 0; i < WINDOW; i++)
		get(i);
	inside_no_operations(b, true);
	for (int i = 0; i < 100; i++) {
		reap(a, &open);
		reap(b, nullptr);
	}
	inside_no_operations(b, false);
	EXPECT_EQ(0u, open) << logged;
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

/* What joins a frame needs no operation: it is counted all the same, and completes in the order of posting. */
TEST_F(Burst, WhatJoinsAFrameIsCountedAndCompletesInItsTurn)
{
	constexpr uintptr_t ROUNDS = 5;
	xport_counters before{}, after{};
	xport_completion c[WINDOW];
	uint8_t from[64] = {};

	begin();
	before.size = after.size = sizeof(before);
	ASSERT_EQ(XPORT_OK, xport_stats(a, ep, &before));
	for (uintptr_t round = 0; round < ROUNDS; round++) {
		for (uintptr_t i = 0; i < WINDOW; i++) {
			xport_opt o{};

			o.size = sizeof(o);
			o.context = reinterpret_cast<void *>(i + 1);
			o.flags = i % 2 == 0 ? XPORT_LOCAL : 0;
			std::memcpy(from, &i, sizeof(i));
			ASSERT_EQ(XPORT_OK, i % 2 == 0 ? xport_put(ep, from, 1 + i % 8, key, i * 8, &o)
			                               : xport_send(ep, from, i % 65, i, &o));
		}
		for (uintptr_t n = 0; n < WINDOW;) {
			int r = xport_poll(a, c, WINDOW);

			ASSERT_GE(r, 0);
			for (int k = 0; k < r; k++, n++) {
				ASSERT_EQ(XPORT_OK, c[k].status);
				ASSERT_EQ(reinterpret_cast<void *>(n + 1), c[k].context);
				ASSERT_EQ(n % 2 == 0 ? XPORT_OP_PUT : XPORT_OP_SEND, static_cast<int>(c[k].type));
				ASSERT_EQ(n % 2 == 0 ? 1 + n % 8 : n % 65, c[k].length);
			}
		}
		settle();
		for (uintptr_t i = 0; i < WINDOW; i += 2)
			ASSERT_EQ(i & 0xff, memory[i * 8]) << "put " << i << ", round " << round;
		for (uintptr_t i = 1; i < WINDOW; i += 2) {
			uint64_t got[9] = {};

			ASSERT_EQ(XPORT_OK, xport_recv(b, got, sizeof(got), i, UINT64_MAX, nullptr));
			ASSERT_EQ(1, xport_poll(b, c, WINDOW));
			ASSERT_EQ(i % 65, c[0].length);
			ASSERT_EQ(i, c[0].tag);
		}
		std::memset(memory, 0xff, sizeof(memory));
	}
	ASSERT_EQ(XPORT_OK, xport_stats(a, ep, &after));
	EXPECT_EQ(ROUNDS * WINDOW / 2, after.puts - before.puts);
	EXPECT_EQ(ROUNDS * WINDOW / 2, after.sends - before.sends);
	EXPECT_EQ(0u, after.in_flight);
}

/* Frames that are full leave by themselves, and answers that find no room wait. */
TEST_F(Burst, MoreThanAFrameHolds)
{
	constexpr unsigned MANY = 200, BYTES = 64;
	static uint8_t from[MANY][BYTES], to[MANY][BYTES];
	const uint64_t places = sizeof(memory) / BYTES;

	begin();
	for (unsigned round = 0; round < 4; round++) {
		uint64_t before = frames(a, ep);
		xport_opt o{};

		o.size = sizeof(o);
		o.flags = XPORT_QUIET;
		for (unsigned i = 0; i < MANY; i++) {
			std::memset(from[i], static_cast<int>(round * 50 + i % 50 + 1), BYTES);
			ASSERT_EQ(XPORT_OK, xport_put(ep, from[i], BYTES, key, i % places * BYTES, &o));
		}
		ASSERT_EQ(XPORT_OK, xport_flush(ep, nullptr));
		open++;
		settle();
		/* Each takes 96 bytes of at most 8192; each round one may leave alone. */
		EXPECT_GE(frames(a, ep) - before, 3u);
		EXPECT_LE(frames(a, ep) - before, 5u);
		before = frames(b, peer);
		for (unsigned i = 0; i < MANY; i++) {
			std::memset(to[i], 0, BYTES);
			ASSERT_EQ(XPORT_OK, xport_get(ep, to[i], BYTES, key, i % places * BYTES, nullptr));
			open++;
		}
		settle();
		for (unsigned i = 0; i < MANY; i++) {
			unsigned last = i % places + (MANY - 1 - i % places) / places * places;

			ASSERT_EQ(0, std::memcmp(to[i], from[last], BYTES)) << "get " << i << ", round " << round;
		}
		EXPECT_GE(frames(b, peer) - before, 3u);
	}
}

/* What joins a frame was counted once for many: what takes window meanwhile without going so must count as well. */
class OthersInTheWindow : public Burst
{
protected:
	/* Of the window there is room for so many messages left. */
	void leave(unsigned room)
	{
		for (unsigned sent = 0; sent < (1 << 20) / XPI_CHARGE_SMALL - room;) { /* b receives none of them */
			for (unsigned i = 0; i < WINDOW / 2; i++, sent++, open++)
				ASSERT_EQ(XPORT_OK, xport_send(ep, &word, sizeof(word), 7, nullptr));
			settle();
		}
	}
	void more(unsigned n)
	{
		for (unsigned i = 0; i < n; i++)
			ASSERT_EQ(XPORT_OK, xport_send(ep, &word, sizeof(word), 7, nullptr));
	}
	void stays()
	{
		xport_completion c[WINDOW];

		for (int i = 0; i < 100; i++) {
			ASSERT_GE(xport_poll(b, c, WINDOW), 0);
			ASSERT_GE(xport_poll(a, c, WINDOW), 0);
		}
		EXPECT_EQ(XPORT_EP_OPEN, state()) << logged;
	}
};

TEST_F(OthersInTheWindow, ANotifiedPut)
{
	begin();
	leave(32);
	more(1);
	ASSERT_EQ(XPORT_OK, xport_put_notify(ep, &word, sizeof(word), key, 0, nullptr));
	more(31);
	stays();
}

TEST_F(OthersInTheWindow, ALongMessage)
{
	static uint8_t big[1 << 16];

	begin();
	leave(32);
	more(1);
	ASSERT_EQ(XPORT_OK, xport_send(ep, big, sizeof(big), 7, nullptr));
	more(31);
	stays();
}

/* The queue depth holds for gets and what joins their frame together. */
TEST_F(Burst, WhatJoinsCountsInTheDepth)
{
	xport_info info{};
	xport_counters c{};

	setenv("XPORT_QUEUE_DEPTH", "64", 1);
	begin();
	unsetenv("XPORT_QUEUE_DEPTH");
	info.size = sizeof(info);
	c.size = sizeof(c);
	ASSERT_EQ(XPORT_OK, xport_query(a, &info));
	ASSERT_EQ(64u, info.queue_depth);
	for (int round = 0; round < 2; round++) { /* another burst is expected */
		for (unsigned i = 0; i < WINDOW; i++)
			put();
		settle();
	}
	put();
	for (unsigned i = 0; i < 63; i++)
		get(i);
	for (unsigned i = 0; i < 100; i++) {
		xport_opt o{};

		o.size = sizeof(o);
		o.flags = XPORT_LOCAL;
		open += xport_put(ep, &word, sizeof(word), key, 0, &o) == XPORT_OK;
	}
	ASSERT_EQ(XPORT_OK, xport_stats(a, ep, &c));
	EXPECT_LE(c.in_flight, info.queue_depth);
	settle();
}

/* What finds no way to join opens no frame. */
TEST_F(Burst, NoFrameIsEmpty)
{
	constexpr unsigned SENDS = (1 << 20) / XPI_CHARGE_SMALL;
	unsigned sent = 0;
	uint64_t before;
	xport_opt o{};

	begin();
	while (sent < SENDS) {
		for (unsigned i = 0; i < WINDOW; i++, sent++, open++)
			ASSERT_EQ(XPORT_OK, xport_send(ep, &word, sizeof(word), 7, nullptr));
		settle();
	}
	ASSERT_EQ(XPORT_OK, xport_send(ep, &word, sizeof(word), 7, nullptr)); /* waits for the window */
	for (int i = 0; i < 10; i++)
		poll();
	before = frames(a, ep);
	o.size = sizeof(o);
	o.flags = XPORT_QUIET;
	for (int i = 0; i < 8; i++) {
		ASSERT_EQ(XPORT_OK, xport_put(ep, &word, sizeof(word), key, 0, &o)); /* leaves alone */
		ASSERT_EQ(XPORT_OK, xport_send(ep, &word, sizeof(word), 7, nullptr)); /* waits */
		poll();
	}
	for (int i = 0; i < 10; i++)
		poll();
	EXPECT_EQ(8u, frames(a, ep) - before) << "one for each put";
	open = 0;
}

/* Nothing overtakes a frame that the back end would not take. */
TEST_F(Burst, NothingOvertakesAFrameThatStays)
{
	static uint64_t values[1000];
	uint64_t n = 0, want = 0;

	begin();
	for (unsigned round = 0; round < 60; round++) {
		for (unsigned i = 0; i < 1 + round % 7; i++) {
			inside_refuse(round % 5);
			values[n] = n;
			ASSERT_EQ(XPORT_OK, xport_send(ep, &values[n], sizeof(n), 7, nullptr));
			n++;
			if ((round + i) % 3 == 0) {
				static uint8_t big[1000][3000];

				std::memcpy(big[n], &n, sizeof(n));
				ASSERT_EQ(XPORT_OK, xport_send(ep, big[n], sizeof(big[n]), 7, nullptr));
				n++;
			}
		}
		poll(static_cast<int>(round % 3));
	}
	inside_refuse(0);
	for (int i = 0; i < 50; i++)
		poll();
	ASSERT_EQ(XPORT_EP_OPEN, state()) << logged;
	for (; want < n; want++) {
		static uint8_t got[4096];
		uint64_t is;
		xport_completion c[4];

		ASSERT_EQ(XPORT_OK, xport_recv(b, got, sizeof(got), 7, UINT64_MAX, nullptr));
		ASSERT_EQ(1, xport_poll(b, c, 4));
		std::memcpy(&is, got, sizeof(is));
		ASSERT_EQ(want, is);
	}
}

/* One of ours and one of the peer's in each poll are no burst of ours. */
TEST_F(Burst, AnAnswerIsNoOperation)
{
	Bytes packed(512);
	size_t len = packed.size();
	xport_rkey *mine = nullptr;
	static uint64_t to[10];

	begin();
	ASSERT_EQ(XPORT_OK, xport_rkey_pack(mr, packed.data(), &len));
	ASSERT_EQ(XPORT_OK, xport_rkey_unpack(peer, packed.data(), len, &mine));
	settle();
	for (unsigned round = 0; round < 10; round++) {
		uint64_t before = frames(a, ep);

		put();
		EXPECT_EQ(1u, frames(a, ep) - before) << "waits for a poll in round " << round;
		ASSERT_EQ(XPORT_OK, xport_get(peer, &to[round], 8, mine, 0, nullptr));
		settle();
	}
	xport_rkey_destroy(mine);
}

} /* namespace */
