/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lend_test.cc - long messages that the network puts into posted receives: the key for that is sent, and revoked at the
 * end.
 */
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "inside_fixture.h"

namespace
{

constexpr size_t LONG = 3 << 20; /* three pieces of loop's */
constexpr size_t PLACE = 4096;   /* of what is received, in its region */

/* a sends to b, into a region that a may write. */
class Lend : public Inside, public testing::WithParamInterface<const char *>
{
protected:
	Bytes out = Bytes(LONG), in = Bytes(LONG + 2 * PLACE, 0xee), seen; /* as b was last told of something */
	xport_mr *source = nullptr, *sink = nullptr;
	std::vector<xport_completion> sent, got;

	void begin(const char *emulate = nullptr, uint32_t rights = XPORT_REMOTE_RECV, const char *backend = nullptr,
	           const char *theirs = nullptr)
	{
		for (size_t i = 0; i < LONG; i++)
			out[i] = static_cast<uint8_t>(i * 13 + i / 256);
		connect(backend != nullptr ? backend : GetParam(), emulate, theirs);
		ASSERT_EQ(XPORT_OK, xport_mr_reg(a, out.data(), out.size(), 0, &source));
		ASSERT_EQ(XPORT_OK, xport_mr_reg(b, in.data(), in.size(), rights, &sink));
	}
	void poll_a()
	{
		xport_completion c[64];
		int n = xport_poll(a, c, 64);

		sent.insert(sent.end(), c, c + std::max(n, 0));
	}
	void both(int times)
	{
		xport_completion c[64];

		for (int i = 0; i < times; i++) {
			poll_a();
			int n = xport_poll(b, c, 64);
			if (n > 0)
				seen = in;
			got.insert(got.end(), c, c + std::max(n, 0));
		}
	}
	void post(size_t room, bool in_region = true)
	{
		xport_opt o = context(nullptr);

		o.mr = in_region ? sink : nullptr;
		ASSERT_EQ(XPORT_OK, xport_recv(b, in.data() + PLACE, room, 5, UINT64_MAX, &o));
	}
	void send(size_t len)
	{
		xport_opt o = context(this);

		o.mr = source;
		ASSERT_EQ(XPORT_OK, xport_send(ep, out.data(), len, 5, &o));
	}
	/* All of a message of `len` bytes is there, and nothing else was touched. */
	void arrives(size_t len, size_t room, const char *what)
	{
		size_t n = std::min(len, room);

		both(2000);
		ASSERT_EQ(1u, sent.size()) << what << logged;
		EXPECT_EQ(XPORT_OK, sent[0].status) << what;
		EXPECT_EQ(0u, sent[0].offset) << what;
		EXPECT_EQ(this, sent[0].context) << what;
		ASSERT_EQ(1u, got.size()) << what << logged;
		EXPECT_EQ(len > room ? XPORT_ERR_TRUNCATED : XPORT_OK, got[0].status) << what;
		EXPECT_EQ(len, got[0].length) << what;
		EXPECT_TRUE(std::equal(out.begin(), out.begin() + static_cast<long>(n), seen.begin() + PLACE)) << what;
		EXPECT_TRUE(std::all_of(seen.begin(), seen.begin() + PLACE, [](uint8_t v) { return v == 0xee; }))
			<< what;
		EXPECT_TRUE(std::all_of(seen.begin() + static_cast<long>(PLACE + n), seen.end(), [](uint8_t v) {
			return v == 0xee;
		})) << what;
		sent.clear();
		got.clear();
		std::fill(in.begin(), in.end(), uint8_t{0xee});
	}
	void goes(size_t len, size_t room, const char *what)
	{
		post(room);
		send(len);
		arrives(len, room, what);
	}
	uint64_t frames()
	{
		xport_counters c{};

		c.size = sizeof(c);
		EXPECT_EQ(XPORT_OK, xport_stats(a, ep, &c));
		return c.frames_out;
	}
	/* How many frames of a's such a message takes. */
	uint64_t cost(size_t len, size_t room, const char *what)
	{
		uint64_t before = frames();

		goes(len, room, what);
		return frames() - before;
	}
	/* While a polls in a thread of its own, as somebody has to. */
	int dereg(xport_mr *region)
	{
		std::atomic<bool> stop{false};
		std::thread peer_polls([&] {
			while (!stop)
				(void)!xport_poll(a, nullptr, 0);
		});
		int r = xport_mr_dereg(region);

		stop = true;
		peer_polls.join();
		return r;
	}
	Bytes lending(uint64_t region, size_t native, uint64_t length = 1 << 20)
	{
		xpi_rec_lend l{};

		l.r = record(XPI_REC_LEND, static_cast<uint32_t>(native));
		l.region = htole64(region);
		l.length = htole64(length);
		return bytes(l, native);
	}
};

TEST_P(Lend, AMessageTakesAFewFrames)
{
	begin();
	for (size_t len : {LONG, LONG - 1, size_t{1} << 20, size_t{20000}})
		for (int i = 0; i < 2; i++)
			EXPECT_LE(cost(len, LONG, "whole"), 4u) << len;
	EXPECT_LE(cost(LONG, LONG - 12345, "cut off"), 4u);
	EXPECT_LE(cost(LONG, 1, "but for a byte"), 4u);
}

TEST_P(Lend, ManyAtATimeKeepTheirOrder)
{
	constexpr size_t EACH = 65536, N = LONG / EACH;

	begin();
	for (size_t i = 0; i < N; i++) {
		xport_opt o = context(nullptr);

		o.mr = sink;
		ASSERT_EQ(XPORT_OK, xport_recv(b, in.data() + PLACE + i * EACH, EACH, 5, UINT64_MAX, &o));
		o.mr = source;
		ASSERT_EQ(XPORT_OK, xport_send(ep, out.data() + i * EACH, EACH, 5, &o));
	}
	both(2000);
	EXPECT_EQ(N, sent.size());
	EXPECT_EQ(N, got.size());
	EXPECT_TRUE(std::equal(out.begin(), out.end(), in.begin() + PLACE));
	EXPECT_LE(frames(), N + 64);
}

TEST_P(Lend, BesidePutsAndFlushes)
{
	begin();
	xport_rkey *key = remote();
	uint64_t word = 7;

	for (int i = 0; i < 8; i++) {
		ASSERT_EQ(XPORT_OK, xport_put(ep, &word, sizeof(word), key, 0, nullptr));
		ASSERT_EQ(XPORT_OK, xport_fence(ep));
		ASSERT_EQ(XPORT_OK, xport_flush(ep, nullptr));
		both(200);
		ASSERT_EQ(2u, sent.size());
		sent.clear();
		goes(LONG, LONG, "between them");
	}
}

/* What is not asked for is not lent, and comes as it always did. */
TEST_P(Lend, OnlyWhereTheRightIs)
{
	begin(nullptr, XPORT_REMOTE_READ | XPORT_REMOTE_WRITE);
	EXPECT_GT(cost(LONG, LONG, "without the right"), 100u);
	post(LONG, false);
	send(LONG);
	arrives(LONG, LONG, "into memory that is not registered");
}

TEST_P(Lend, NotWhereTheSenderEmulatesPuts)
{
	begin("put");
	EXPECT_GT(cost(LONG, LONG, "by message"), 100u);
}

TEST_P(Lend, NotWhereTheReceiverEmulatesPuts)
{
	begin(nullptr, XPORT_REMOTE_RECV, nullptr, "put");
	EXPECT_GT(cost(LONG, LONG, "by message"), 100u);
}

/* The means to put without the right is not given where each access is to be checked. */
TEST_P(Lend, NotWhereTheBoundsMustBeTheTargets)
{
	setenv("XPORT_REQUIRE", "target_bounds", 1);
	begin();
	unsetenv("XPORT_REQUIRE");
	EXPECT_GT(cost(LONG, LONG, "by message"), 100u);
}

/* Without any key of the application's, so that nothing else is native. */
TEST_P(Lend, AFlushAndAFenceBehindIt)
{
	begin();
	for (int i = 0; i < 3; i++) {
		post(LONG);
		send(LONG);
		both(i);
		ASSERT_EQ(XPORT_OK, xport_fence(ep));
		ASSERT_EQ(XPORT_OK, xport_flush(ep, nullptr));
		both(2000);
		ASSERT_EQ(2u, sent.size()) << logged;
		ASSERT_EQ(XPORT_OK, xport_flush(ep, nullptr));
		both(200);
		ASSERT_EQ(3u, sent.size()) << logged;
		EXPECT_TRUE(std::all_of(sent.begin(), sent.end(), [](auto &c) { return c.status == XPORT_OK; }));
		EXPECT_TRUE(std::equal(out.begin(), out.end(), in.begin() + PLACE));
		sent.clear();
		got.clear();
	}
}

/* The right to receive is none to put. */
TEST_P(Lend, TheKeyOfTheRegionIsNotGoodForPuts)
{
	begin();
	goes(LONG, LONG, "before");
	Bytes k(1024);
	size_t len = k.size();
	xport_rkey *key = nullptr;

	ASSERT_EQ(XPORT_OK, xport_rkey_pack(sink, k.data(), &len));
	ASSERT_EQ(XPORT_OK, xport_rkey_unpack(ep, k.data(), len, &key));
	EXPECT_EQ(XPORT_ERR_ACCESS, xport_put(ep, out.data(), 8, key, 0, nullptr));
	both(50);
	goes(LONG, LONG, "behind");
	xport_rkey_destroy(key);
	EXPECT_LE(cost(LONG, LONG, "and once more"), 4u);
}

TEST_P(Lend, WhoHasItsKeyAlready)
{
	begin(nullptr, XPORT_REMOTE_READ | XPORT_REMOTE_RECV);
	Bytes k(1024), read(8);
	size_t len = k.size();
	xport_rkey *key = nullptr;

	ASSERT_EQ(XPORT_OK, xport_rkey_pack(sink, k.data(), &len));
	ASSERT_EQ(XPORT_OK, xport_rkey_unpack(ep, k.data(), len, &key));
	ASSERT_EQ(XPORT_OK, xport_get(ep, read.data(), read.size(), key, 0, nullptr));
	both(200);
	ASSERT_EQ(1u, sent.size());
	sent.clear();
	EXPECT_LE(cost(LONG, LONG, "lent besides"), 4u);
	ASSERT_EQ(XPORT_OK, dereg(sink));
	EXPECT_EQ(XPORT_ERR_STALE_KEY, xport_get(ep, read.data(), read.size(), key, 0, nullptr));
}

TEST_P(Lend, TheRegionEndsAndAnotherComes)
{
	begin();
	for (int i = 0; i < 5; i++) {
		EXPECT_LE(cost(LONG, LONG, "a region of its own"), 4u);
		ASSERT_EQ(XPORT_OK, dereg(sink));
		ASSERT_EQ(XPORT_OK, xport_mr_reg(b, in.data(), in.size(), XPORT_REMOTE_RECV, &sink));
	}
}

/* It is deregistered while the message is on its way. */
TEST_P(Lend, TheRegionEndsMeanwhile)
{
	begin();
	for (int polls = 0; polls < 12; polls++) {
		post(LONG);
		send(LONG);
		both(polls);
		int r = dereg(sink);
		if (r == XPORT_ERR_BUSY) { /* not matched yet */
			both(2000);
			r = dereg(sink);
		}
		ASSERT_EQ(XPORT_OK, r);
		both(2000);
		ASSERT_EQ(1u, got.size()) << polls << logged;
		EXPECT_EQ(XPORT_OK, got[0].status);
		EXPECT_TRUE(std::equal(out.begin(), out.end(), in.begin() + PLACE)) << polls;
		got.clear();
		sent.clear();
		std::fill(in.begin(), in.end(), uint8_t{0xee});
		ASSERT_EQ(XPORT_OK, xport_mr_reg(b, in.data(), in.size(), XPORT_REMOTE_RECV, &sink));
	}
	EXPECT_EQ(XPORT_EP_OPEN, state());
}

/* What is one too many goes in frames; where one has ended there is room for another. */
TEST_P(Lend, MoreRegionsThanAreLent)
{
	constexpr size_t EACH = 16384, N = XPI_LENT_MAX + 3;
	std::vector<xport_mr *> regions(N);
	Bytes much(N * EACH);

	begin();
	for (size_t i = 0; i < N; i++) {
		xport_opt o = context(this);
		uint64_t before = frames();

		ASSERT_EQ(XPORT_OK, xport_mr_reg(b, much.data() + i * EACH, EACH, XPORT_REMOTE_RECV, &regions[i]));
		o.mr = regions[i];
		ASSERT_EQ(XPORT_OK, xport_recv(b, much.data() + i * EACH, EACH, 5, UINT64_MAX, &o));
		o.mr = source;
		ASSERT_EQ(XPORT_OK, xport_send(ep, out.data() + i, EACH, 5, &o));
		both(50);
		ASSERT_EQ(1u, got.size());
		EXPECT_EQ(i >= XPI_LENT_MAX, frames() - before > 3) << i;
		EXPECT_TRUE(std::equal(out.begin() + static_cast<long>(i), out.begin() + static_cast<long>(i + EACH),
		                       much.begin() + static_cast<long>(i * EACH)));
		got.clear();
		sent.clear();
	}
	ASSERT_EQ(XPORT_OK, dereg(regions[0]));
	goes(LONG, LONG, "in its place");
	EXPECT_LE(cost(LONG, LONG, "that of the last"), 4u);
	for (size_t i = 1; i < N; i++)
		ASSERT_EQ(XPORT_OK, dereg(regions[i]));
}

TEST_P(Lend, ThePeerGoesMeanwhile)
{
	for (int polls = 0; polls < 10; polls++) {
		begin();
		goes(LONG, LONG, "before");
		post(LONG);
		send(LONG);
		both(polls);
		xport_ep_destroy(polls % 2 == 0 ? peer : ep);
		/* b's receive is complete with its endpoint's end: from then on the memory is b's alone. */
		if (polls % 2 == 0) {
			xport_completion c[64];
			int n = 0;

			for (int i = 0; i < 1000 && n == 0; i++)
				n = xport_poll(b, c, 64);
			got.insert(got.end(), c, c + std::max(n, 0));
			std::fill(in.begin(), in.end(), uint8_t{0xcc});
			for (int i = 0; i < 20; i++)
				poll_a();
			EXPECT_TRUE(std::all_of(in.begin(), in.end(), [](uint8_t v) { return v == 0xcc; })) << polls;
		}
		auto ended = [](const xport_completion &c) {
			return c.type == XPORT_EVENT_LOST || c.type == XPORT_EVENT_CLOSED;
		};
		auto &told = polls % 2 == 0 ? sent : got;
		auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
		while (std::none_of(told.begin(), told.end(), ended) && std::chrono::steady_clock::now() < until)
			both(1);
		EXPECT_TRUE(std::any_of(told.begin(), told.end(), ended)) << polls << logged;
		auto count = [](const std::vector<xport_completion> &in_all, uint32_t type) {
			return std::count_if(in_all.begin(), in_all.end(), [&](auto &c) { return c.type == type; });
		};
		if (polls % 2 == 0) {
			EXPECT_EQ(1, count(sent, XPORT_OP_SEND)) << polls;
		}
		EXPECT_LE(count(sent, XPORT_OP_SEND), 1) << polls;
		EXPECT_LE(count(got, XPORT_OP_RECV), 1) << polls;
		/* From here on the memory is b's alone. */
		std::fill(in.begin(), in.end(), uint8_t{0xcc});
		both(50);
		EXPECT_TRUE(std::all_of(in.begin(), in.end(), [](uint8_t v) { return v == 0xcc; })) << polls;
		/* No key that was lent keeps an endpoint. */
		if (polls % 2 == 0)
			xport_ep_destroy(ep);
		both(50);
		EXPECT_EQ(0u, inside_endpoints(a)) << polls;
		drop();
		sent.clear();
		got.clear();
		std::fill(in.begin(), in.end(), uint8_t{0xee});
	}
}

/* What was to be told of the region finds no room, and then there is nothing to tell any more. */
TEST_P(Lend, TheRegionEndsBeforeItIsLent)
{
	begin();
	uint64_t before = frames();

	post(LONG);
	send(LONG);
	poll_a();
	inside_no_frames(b, true);
	inside_refuse(1);
	EXPECT_EQ(0, xport_poll(b, nullptr, 0));
	inside_no_frames(b, false);
	ASSERT_EQ(XPORT_OK, dereg(sink));
	arrives(LONG, LONG, "in frames");
	EXPECT_GT(frames() - before, 100u);
}

TEST_P(Lend, ARegionWithoutANativeKey)
{
	for (int status : {1, static_cast<int>(XPORT_ERR_SYSTEM)}) {
		inside_no_keys(status);
		begin();
		EXPECT_GT(cost(LONG, LONG, "in frames"), 100u) << status;
		EXPECT_EQ(XPORT_OK, dereg(sink));
		inside_no_keys(0);
		drop();
	}
}

/* ---- who means harm ---- */

TEST_P(Lend, AKeyLentTwice)
{
	begin();
	passes(lending(77, sizeof(uint64_t) * 2), "once");
	breaks(lending(77, sizeof(uint64_t) * 2), "twice");
}

TEST_P(Lend, AKeyOfNothing)
{
	begin();
	breaks(lending(77, 0), "no bytes");
}

TEST_P(Lend, AKeyTooLong)
{
	begin();
	breaks(lending(77, 17), "a byte too many");
}

TEST_P(Lend, KeysWithoutEnd)
{
	begin();
	for (uint64_t i = 0; i < XPI_LENT_MAX; i++) {
		passes(lending(i + 1, 16), "so many");
	}
	breaks(lending(1000, 16), "one too many");
}

TEST_F(Lend, AKeyWhereThereAreNone)
{
	begin(nullptr, XPORT_REMOTE_RECV, "loop:message");
	EXPECT_GT(cost(LONG, LONG, "in frames"), 100u);
	breaks(lending(77, 16), "nothing can be put here");
}

/* Of nothing, of less, or where nobody was lent anything. */
TEST_P(Lend, PlacedWithoutAReason)
{
	for (int which = 0; which < 4; which++) {
		xpi_rec_placed p{};
		xport_opt o = context(this);

		begin();
		/* What b sends a: a receives. */
		xport_mr *region;
		Bytes room(1 << 16);
		ASSERT_EQ(XPORT_OK, xport_mr_reg(a, room.data(), room.size(), XPORT_REMOTE_RECV, &region));
		o.mr = which == 3 ? nullptr : region;
		ASSERT_EQ(XPORT_OK, xport_recv(a, room.data(), room.size(), 9, UINT64_MAX, &o));
		xpi_rec_rts r{};
		r.r = record(XPI_REC_RTS);
		r.tag = htole64(9);
		r.length = htole64(room.size());
		r.op = htole32(1);
		if (which > 0)
			passes(bytes(r), "a message");
		p.r = record(XPI_REC_PLACED);
		p.into = htole32(inside_name(ep, this));
		p.length = htole64(which == 1 ? room.size() - 1 : which == 2 ? room.size() + 1 : room.size());
		breaks(bytes(p), "placed");
		drop();
	}
}

/* It says that the message is there before it can know of the receive, and that it no longer uses the region, which ends. */
TEST_P(Lend, PlacedBeforeItWasAskedFor)
{
	begin();
	xport_opt o = context(this);
	xpi_rec_rts r{};
	xpi_rec_placed p{};
	xpi_rec_key k{};
	Bytes room(1 << 16);

	r.r = record(XPI_REC_RTS);
	r.tag = htole64(9);
	r.length = htole64(room.size());
	p.r = record(XPI_REC_PLACED);
	p.length = htole64(room.size());
	k.r = record(XPI_REC_REVOKED);
	ASSERT_EQ(XPORT_OK, xport_mr_reg(a, room.data(), room.size(), XPORT_REMOTE_RECV, &o.mr));
	k.region = htole64(inside_region(o.mr));
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(XPORT_OK, xport_recv(a, room.data(), room.size(), 9, UINT64_MAX, &o));
		p.into = htole32(inside_name(ep, this));
		if (i == 1)
			inside_refuse(1000); /* the answer stays here */
		r.op = htole32(static_cast<uint32_t>(i + 1));
		passes(bytes(r), "a message");
		p.into = htole32(inside_name(ep, this));
		EXPECT_GE(xport_poll(a, nullptr, 0), 0);
		passes(bytes(p), "it is there");
		xport_completion c;
		ASSERT_EQ(1, xport_poll(a, &c, 1));
		EXPECT_EQ(XPORT_OK, c.status);
	}
	passes(bytes(k), "not used any more");
	EXPECT_EQ(XPORT_OK, xport_mr_dereg(o.mr));
	inside_refuse(0);
	EXPECT_EQ(0, xport_poll(a, nullptr, 0)) << "the answer leaves, and looks at nothing that is gone";
	EXPECT_EQ(XPORT_EP_OPEN, state());
}

/* A region that was never lent, a place beyond its end, a key that is none: it goes in frames. */
TEST_P(Lend, ClearToSendToNowhere)
{
	for (int which = 0; which < 4; which++) {
		xpi_rec_cts c{};
		xpi_cts_place place{};

		begin();
		/* b does not poll: it would be told that it sent this. */
		passes(lending(77, which == 3 ? 9 : 16), "a region of a megabyte");
		EXPECT_EQ(0, xport_poll(a, nullptr, 0));
		send(LONG);
		EXPECT_EQ(0, xport_poll(a, nullptr, 0));
		c.r = record(XPI_REC_CTS, sizeof(place));
		c.accept = htole64(1 << 20);
		c.op = htole32(inside_name(ep, this));
		c.into = htole32(1);
		place.region = htole64(which == 0 ? 78 : 77);
		place.offset = htole64(which == 1 ? 1 : which == 2 ? UINT64_MAX : 0);
		ASSERT_NE(0u, inside_name(ep, this));
		Bytes cts = bytes(c), at = bytes(place);
		cts.insert(cts.end(), at.begin(), at.end());
		passes(cts, "clear to send");
		uint64_t before = frames();
		EXPECT_EQ(0, xport_poll(a, nullptr, 0));
		EXPECT_GT(frames(), before + 5) << which;
		EXPECT_EQ(which == 3, logged.find("XP-0014") != std::string::npos) << logged;
		drop();
		sent.clear();
		got.clear();
	}
}

INSTANTIATE_TEST_SUITE_P(, Lend, testing::Values("loop:native", "loop:rdma"),
                         [](const auto &i) { return std::string(i.param).substr(5); });

} // namespace
