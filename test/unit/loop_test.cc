/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * loop_test.cc - the core over `loop`, both ends in one thread, so that the test can inspect each step. It tests mainly
 * what the conformance suite cannot see from outside.
 */
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loop_fixture.h"

namespace
{

const size_t sizes[] = {1, 8, 100, 1024, 1025, 4096, 8000, 8192, 70000, 3 << 20};

TEST_P(Loop, SendsOfEachSizeArriveInOrder)
{
	for (size_t n : sizes) {
		auto out = pattern(n, 3);
		std::vector<uint8_t> in(n);
		ASSERT_EQ(xport_send(a.ep, out.data(), n, 7, nullptr), XPORT_OK);
		both(3); /* so that it is unexpected */
		ASSERT_EQ(xport_recv(b.x, in.data(), n, 7, UINT64_MAX, nullptr), XPORT_OK);
		auto c = wait(b, XPORT_OP_RECV);
		EXPECT_EQ(c.status, XPORT_OK);
		EXPECT_EQ(c.length, n);
		EXPECT_EQ(c.ep, b.ep);
		EXPECT_EQ(in, out);
		EXPECT_EQ(wait(a, XPORT_OP_SEND).status, XPORT_OK);
	}
}

TEST_P(Loop, PutGetAndNotifyOfEachSize)
{
	Remote r;
	share(r, 4 << 20);
	for (size_t n : sizes) {
		auto out = pattern(n, 5);
		std::vector<uint8_t> in(n);
		ASSERT_EQ(xport_put(a.ep, out.data(), n, r.key, 13, nullptr), XPORT_OK);
		EXPECT_EQ(wait(a, XPORT_OP_PUT).status, XPORT_OK);
		EXPECT_EQ(memcmp(r.bytes.data() + 13, out.data(), n), 0);
		ASSERT_EQ(xport_get(a.ep, in.data(), n, r.key, 13, nullptr), XPORT_OK);
		EXPECT_EQ(wait(a, XPORT_OP_GET).status, XPORT_OK);
		EXPECT_EQ(in, out);
		memset(r.bytes.data(), 0, r.bytes.size());
		xport_opt opt{};
		opt.size = sizeof(opt);
		opt.value = 0xfeedfacecafebeefULL;
		ASSERT_EQ(xport_put_notify(a.ep, out.data(), n, r.key, 1, &opt), XPORT_OK);
		auto c = wait(b, XPORT_EVENT_NOTIFY);
		EXPECT_EQ(c.tag, opt.value);
		EXPECT_EQ(c.length, n);
		EXPECT_EQ(c.offset, 1u);
		EXPECT_EQ(c.mr, r.mr);
		EXPECT_EQ(memcmp(r.bytes.data() + 1, out.data(), n), 0);
		EXPECT_EQ(wait(a, XPORT_OP_PUT_NOTIFY).status, XPORT_OK);
	}
}

TEST_P(Loop, QuietPutsArePlacedAfterFlush)
{
	Remote r;
	share(r, 1 << 20);
	auto out = pattern(1 << 20, 9);
	xport_opt quiet{};
	quiet.size = sizeof(quiet);
	quiet.flags = XPORT_QUIET;
	for (size_t i = 0; i < out.size(); i += 4096)
		while (xport_put(a.ep, out.data() + i, 4096, r.key, i, &quiet) == XPORT_ERR_AGAIN)
			both();
	while (xport_flush(a.ep, nullptr) == XPORT_ERR_AGAIN)
		both();
	EXPECT_EQ(wait(a, XPORT_OP_FLUSH).status, XPORT_OK);
	EXPECT_EQ(r.bytes, out);
	EXPECT_TRUE(a.done.empty());
}

TEST_P(Loop, AtomicsApplyOnce)
{
	Remote r;
	share(r, 64);
	for (uint64_t i = 0; i < 500; i++) {
		uint64_t old = 0;
		xport_atomic_args args{};
		args.size = sizeof(args);
		args.op = XPORT_ATOMIC_ADD;
		args.width = 8;
		args.operand = 3;
		args.result = &old;
		ASSERT_EQ(xport_atomic(a.ep, &args, r.key, 8, nullptr), XPORT_OK);
		EXPECT_EQ(wait(a, XPORT_OP_ATOMIC).status, XPORT_OK);
		EXPECT_EQ(old, 3 * i);
	}
}

TEST_P(Loop, DeregisteredKeysAreStale)
{
	Remote r;
	share(r, 4096);
	auto out = pattern(4096, 9);
	ASSERT_EQ(xport_put(a.ep, out.data(), 4096, r.key, 0, nullptr), XPORT_OK);
	EXPECT_EQ(wait(a, XPORT_OP_PUT).status, XPORT_OK);
	if (std::string p = GetParam(); p == "native_none" || p == "rdma_none" || p == "set_none") {
		/* A native key has to be revoked: the peer must poll meanwhile, and knows it afterwards. */
		std::atomic<bool> stop{false};
		std::thread peer([&] {
			while (!stop)
				xport_poll(a.x, nullptr, 0);
		});
		int st = xport_mr_dereg(r.mr);
		stop = true;
		peer.join();
		ASSERT_EQ(st, XPORT_OK);
		EXPECT_EQ(xport_put(a.ep, out.data(), 8, r.key, 0, nullptr), XPORT_ERR_STALE_KEY);
		return;
	}
	/* The peer has not polled since: the target refuses, quiet ones show in the flush, once. */
	ASSERT_EQ(xport_mr_dereg(r.mr), XPORT_OK);
	memset(r.bytes.data(), 0, 4096);
	xport_opt quiet{};
	quiet.size = sizeof(quiet);
	quiet.flags = XPORT_QUIET;
	ASSERT_EQ(xport_put(a.ep, out.data(), 8, r.key, 0, &quiet), XPORT_OK);
	ASSERT_EQ(xport_put(a.ep, out.data(), 4096, r.key, 0, nullptr), XPORT_OK);
	ASSERT_EQ(xport_get(a.ep, out.data(), 4096, r.key, 0, nullptr), XPORT_OK);
	ASSERT_EQ(xport_put_notify(a.ep, out.data(), 4, r.key, 0, nullptr), XPORT_OK);
	ASSERT_EQ(xport_flush(a.ep, nullptr), XPORT_OK);
	EXPECT_EQ(wait(a, XPORT_OP_PUT).status, XPORT_ERR_STALE_KEY);
	EXPECT_EQ(wait(a, XPORT_OP_GET).status, XPORT_ERR_STALE_KEY);
	EXPECT_EQ(wait(a, XPORT_OP_PUT_NOTIFY).status, XPORT_ERR_STALE_KEY);
	EXPECT_EQ(wait(a, XPORT_OP_FLUSH).status, XPORT_ERR_STALE_KEY);
	ASSERT_EQ(xport_flush(a.ep, nullptr), XPORT_OK);
	EXPECT_EQ(wait(a, XPORT_OP_FLUSH).status, XPORT_OK);
	EXPECT_EQ(r.bytes, std::vector<uint8_t>(4096, 0));
	EXPECT_TRUE(b.done.empty());
}

/* A put that can be proven no more, at once or later, ends the endpoint and all that waits for it. */
TEST_P(Loop, ADrainThatFails)
{
	if (std::string p = GetParam(); p != "native_none" && p != "rdma_none" && p != "set_none")
		GTEST_SKIP() << "drains are absent";
	for (int later = 0; later < 2; later++) {
		Remote r;
		uint64_t word = 1;
		share(r, 4096);
		ASSERT_EQ(xport_put(a.ep, &word, 8, r.key, 0, nullptr), XPORT_OK);
		EXPECT_EQ(wait(a, XPORT_OP_PUT).status, XPORT_OK);
		(later ? loop_manners.drained : loop_manners.drain) = XPORT_ERR_SYSTEM;
		ASSERT_EQ(xport_put(a.ep, &word, 8, r.key, 0, nullptr), XPORT_OK);
		ASSERT_EQ(xport_flush(a.ep, nullptr), XPORT_OK);
		EXPECT_EQ(wait(a, XPORT_OP_PUT).status, XPORT_ERR_PEER_LOST);
		EXPECT_EQ(wait(a, XPORT_OP_FLUSH).status, XPORT_ERR_PEER_LOST);
		EXPECT_EQ(wait(a, XPORT_EVENT_LOST).ep, a.ep);
		loop_manners = {};
		if (!later) {
			TearDown();
			SetUp();
		}
	}
}

/* A frame that was taken and did not leave ends the endpoint, whatever it ends with: nothing sends it again. */
TEST_P(Loop, AKeptFrameThatFails)
{
	if (std::string p = GetParam(); p == "native_none" || p == "rdma_none" || p == "set_none")
		GTEST_SKIP() << "puts by message are absent";
	Remote r;
	uint64_t word = 1;
	share(r, 4096);
	loop_manners.keep = 1;
	loop_manners.kept = XPORT_ERR_AGAIN; /* which the back end has to see to */
	ASSERT_EQ(xport_put(a.ep, &word, 8, r.key, 0, nullptr), XPORT_OK);
	both(10);
	EXPECT_TRUE(a.done.empty());
	loop_manners.kept = 0;
	EXPECT_EQ(wait(a, XPORT_OP_PUT).status, XPORT_OK);
	loop_manners.keep = 1;
	loop_manners.kept = XPORT_ERR_NO_MEMORY;
	ASSERT_EQ(xport_put(a.ep, &word, 8, r.key, 0, nullptr), XPORT_OK);
	EXPECT_EQ(wait(a, XPORT_OP_PUT).status, XPORT_ERR_PEER_LOST);
	EXPECT_EQ(wait(a, XPORT_EVENT_LOST).ep, a.ep);
	loop_manners = {};
}

TEST_P(Loop, ABackEndThatContradictsTheContractIsNotOpened)
{
	xport_attr attr{};
	xport_error err{};
	xport *x = nullptr;

	attr.size = sizeof(attr);
	attr.backend = "loop";
	err.size = sizeof(err);
	loop_manners.wrong_caps = true;
	EXPECT_EQ(xport_open(&attr, &x), XPORT_ERR_INCOMPATIBLE);
	loop_manners = {};
	ASSERT_EQ(xport_last_error(nullptr, &err), XPORT_OK);
	EXPECT_NE(strstr(err.text, "cannot be used: fewer than 4 frames may be in flight"), nullptr) << err.text;
	EXPECT_EQ(xport_open(&attr, &x), XPORT_OK);
	xport_close(x);
}

TEST_P(Loop, ManyOperationsMixed)
{
	Remote r;
	share(r, 1 << 16);
	unsigned seed = 1, posted = 0, done = 0, arrived = 0;
	std::vector<uint8_t> buf(1 << 16), in(1 << 16);
	while (done < 3000) {
		seed = seed * 1103515245 + 12345;
		size_t n = (seed >> 8) % 9000;
		int st = XPORT_OK;
		switch ((seed >> 24) % 5) {
		case 0:
			st = xport_put(a.ep, buf.data(), n, r.key, (seed >> 4) % 1000, nullptr);
			break;
		case 1:
			st = xport_get(a.ep, in.data(), n, r.key, 0, nullptr);
			break;
		case 2:
			st = xport_send(a.ep, buf.data(), n, 1, nullptr);
			break;
		case 3:
			st = xport_put_notify(a.ep, buf.data(), n, r.key, 0, nullptr);
			break;
		default:
			st = xport_flush(a.ep, nullptr);
			break;
		}
		if (st == XPORT_OK)
			posted++;
		else
			ASSERT_EQ(st, XPORT_ERR_AGAIN);
		if ((seed >> 16) % 8 == 0 || st != XPORT_OK)
			both();
		if (xport_recv(b.x, in.data(), in.size(), 1, UINT64_MAX, nullptr) == XPORT_ERR_AGAIN)
			both();
		for (auto &c : a.done)
			EXPECT_EQ(c.status, XPORT_OK) << c.type;
		done += (unsigned)a.done.size();
		arrived += (unsigned)b.done.size();
		a.done.clear();
		b.done.clear();
	}
	for (int i = 0; i < 1000; i++)
		both();
	done += (unsigned)a.done.size();
	EXPECT_EQ(done, posted);
	EXPECT_GT(arrived, 100u);
}

/* A peer that reads without end leaves room for what this side has to say. */
TEST_P(Loop, RepliesLeaveRoomForOwnOperations)
{
	const size_t n = 8 << 20;
	std::vector<std::vector<uint8_t>> in(3, std::vector<uint8_t>(n));
	uint64_t word = 1, got = 0;
	Remote r, other;
	xport_opt o{};
	o.size = sizeof(o);
	share(r, n);
	std::swap(a, b);
	share(other, 64); /* a's memory, and the key at b */
	std::swap(a, b);
	auto read = [&](void *into) {
		o.context = into;
		ASSERT_EQ(xport_get(a.ep, into, n, r.key, 0, &o), XPORT_OK);
	};
	auto go_on = [&] {
		both();
		for (auto &c : std::exchange(a.done, {}))
			if (c.type == XPORT_OP_GET)
				read(c.context);
	};
	both(20);
	for (auto &buf : in) {
		read(buf.data());
		for (int i = 0; i < 15; i++)
			go_on();
	}
	for (int round = 0; round < 10; round++) {
		ASSERT_EQ(xport_recv(a.x, &got, 8, 3, UINT64_MAX, nullptr), XPORT_OK);
		ASSERT_EQ(xport_put(b.ep, &word, 8, other.key, 0, nullptr), XPORT_OK);
		ASSERT_EQ(xport_send(b.ep, &word, 8, 3, nullptr), XPORT_OK);
		for (int i = 0; i < 100 && b.done.size() < 2; i++)
			go_on();
		EXPECT_EQ(b.done.size(), 2u) << "round " << round;
		b.done.clear();
	}
	for (size_t i = 0; i < in.size(); i++)
		EXPECT_EQ(wait(a, XPORT_OP_GET).status, XPORT_OK);
	both(100); /* what had no room */
}

/* And so do puts without end for a message. */
TEST_P(Loop, PutsLeaveRoomForMessages)
{
	const size_t n = 64 << 10;
	std::vector<uint8_t> out(n);
	uint64_t got = 0;
	bool sent = false;
	int under_way = 0;
	Remote r;
	share(r, n);
	both(20);
	auto go_on = [&] {
		for (int s = XPORT_OK; s == XPORT_OK; under_way += s == XPORT_OK) {
			s = xport_put(a.ep, out.data(), n, r.key, 0, nullptr);
			ASSERT_TRUE(s == XPORT_OK || s == XPORT_ERR_AGAIN);
		}
		both();
		for (auto &c : std::exchange(a.done, {})) {
			sent = sent || c.type == XPORT_OP_SEND;
			under_way -= c.type == XPORT_OP_PUT;
		}
	};
	for (int i = 0; i < 20; i++)
		go_on();
	ASSERT_EQ(xport_recv(b.x, &got, 8, 3, UINT64_MAX, nullptr), XPORT_OK);
	for (int s = XPORT_ERR_AGAIN; s != XPORT_OK; both()) {
		s = xport_send(a.ep, out.data(), 8, 3, nullptr);
		ASSERT_TRUE(s == XPORT_OK || s == XPORT_ERR_AGAIN);
	}
	for (int i = 0; i < 100 && !sent; i++)
		go_on();
	EXPECT_TRUE(sent);
	for (; under_way > 0; under_way--)
		EXPECT_EQ(wait(a, XPORT_OP_PUT).status, XPORT_OK);
	both(100);
}

/* Small sends and puts, one a poll: the fast path.  Now and then the back end refuses a frame, or keeps it. */
void one_a_poll(Side &a, Side &b, xport_rkey *key, std::vector<uint64_t> &words, std::vector<uint64_t> &got)
{
	xport_opt o{};
	o.size = sizeof(o);
	for (unsigned i = 0; i < got.size(); i++) {
		words[i] = i;
		loop_manners.refuse += i % 7 == 3 ? 1 + i % 3 : 0;
		loop_manners.keep += i % 5 == 2 ? 1 + i % 2 : 0;
		o.context = (void *)(uintptr_t)(i + 1);
		o.flags = i % 4 == 1 ? XPORT_LOCAL : XPORT_QUIET;
		if (i % 2 == 1) {
			ASSERT_EQ(xport_put(a.ep, &words[i], 8, key, 8 * i, &o), XPORT_OK);
		} else {
			ASSERT_EQ(xport_recv(b.x, &got[i], 8, 100 + i, UINT64_MAX, nullptr), XPORT_OK);
			ASSERT_EQ(xport_send(a.ep, &words[i], 1 + i % 8, 100 + i, nullptr), XPORT_OK);
		}
		a.poll();
		b.poll();
	}
}

TEST_P(Loop, OneAPollWhileTheBackEndRefusesAndKeeps)
{
	const unsigned n = 1000;
	std::vector<uint64_t> words(n), got(n);
	Remote r;
	share(r, 8 * n);
	one_a_poll(a, b, r.key, words, got);
	ASSERT_EQ(xport_flush(a.ep, nullptr), XPORT_OK);
	ASSERT_EQ(wait(a, XPORT_OP_FLUSH).status, XPORT_OK);
	loop_manners = {};
	for (unsigned i = 0; i < n; i++) {
		uint64_t word;
		if (i % 2 == 0) {
			ASSERT_EQ(wait(b, XPORT_OP_RECV).tag, 100 + i);
			ASSERT_EQ(wait(a, XPORT_OP_SEND).tag, 100 + i);
			ASSERT_EQ(got[i], i % 8 == 7 ? i : i & ((UINT64_C(1) << 8 * (1 + i % 8)) - 1));
			continue;
		}
		memcpy(&word, &r.bytes[8 * i], sizeof(word));
		ASSERT_EQ(word, i);
		if (i % 4 == 1) {
			ASSERT_EQ(wait(a, XPORT_OP_PUT).context, (void *)(uintptr_t)(i + 1));
		}
	}
	EXPECT_TRUE(a.done.empty());
}

/* Each length that the frame of one record may hold, beside the longest record header, and some that it may not. */
TEST_P(Loop, NotifiedPutsUpToWhatALoneFrameHolds)
{
	Remote r;
	share(r, 256);
	for (size_t len = 1; len <= 208; len++) {
		std::vector<uint8_t> data = pattern(len, (unsigned)len);
		ASSERT_EQ(xport_put_notify(a.ep, data.data(), len, r.key, 0, nullptr), XPORT_OK);
		ASSERT_EQ(wait(b, XPORT_EVENT_NOTIFY).length, len);
		ASSERT_EQ(wait(a, XPORT_OP_PUT_NOTIFY).status, XPORT_OK);
		ASSERT_EQ(memcmp(r.bytes.data(), data.data(), len), 0);
	}
}

/* What completes at once and what completes later is reaped in that order, and all of it counts against the depth. */
TEST_P(Loop, CompletionsInOrderUpToTheDepth)
{
	uint64_t word = 0, sent = 0, got = 0;
	xport_completion c[80];
	for (int round = 0; round < 3; round++) {
		sent = 0;
		for (;;) {
			int r = xport_send(a.ep, &word, 8, sent, nullptr);
			if (r != XPORT_OK) {
				ASSERT_EQ(r, XPORT_ERR_AGAIN);
				break;
			}
			sent++;
			xport_poll(a.x, nullptr, 0);
		}
		EXPECT_EQ(sent, 64u);
		xport_ep_info info{};
		info.size = sizeof(info);
		ASSERT_EQ(xport_ep_query(a.ep, &info), XPORT_OK);
		EXPECT_EQ(info.in_flight, 64u);
		got = 0;
		for (int max = 1; got < 64; max = max * 2 + 1) {
			int n = xport_poll(a.x, c, max < 80 ? max : 80);
			for (int i = 0; i < n; i++, got++) {
				ASSERT_EQ(c[i].type, (uint32_t)XPORT_OP_SEND);
				ASSERT_EQ(c[i].tag, got);
			}
			b.poll();
		}
		EXPECT_EQ(got, sent);
	}
}

void note(void *arg, int, const char *id, const char *)
{
	static std::mutex lock; /* who is refused is told without the instance's */
	std::lock_guard<std::mutex> guard(lock);

	static_cast<std::vector<std::string> *>(arg)->push_back(id);
}

/* A call beside a wait, with and without XPORT_STRICT: without, it is a race, and nobody looks. */
TEST(LoopStrict, ACallBesideAnotherThreadsIsRefused)
{
	std::vector<std::string> logged;
	xport_completion c;
	xport_attr attr{};
	xport *x;

	attr.size = sizeof(attr);
	attr.backend = "loop:native";
	attr.log_fn = note;
	attr.log_arg = &logged;
	setenv("XPORT_STRICT", "1", 1);
	ASSERT_EQ(xport_open(&attr, &x), XPORT_OK);
	unsetenv("XPORT_STRICT");
	EXPECT_EQ(xport_poll(x, &c, 1), 0);
	std::atomic<bool> ended{false};
	std::thread other([&] {
		xport_completion d;
		while (xport_wait(x, &d, 1, 1000) == XPORT_ERR_INVALID) /* it was the second for once */
			;
		ended = true;
	});
	int refused = 0, told = 0;
	while (!ended) {
		std::this_thread::sleep_for(std::chrono::milliseconds(10));
		refused += xport_poll(x, &c, 1) == XPORT_ERR_INVALID;
		xport_error e{};
		e.size = sizeof(e);
		EXPECT_EQ(xport_last_error(x, &e), XPORT_OK); /* and does not wait until the other has ended */
		told += e.status == XPORT_ERR_INVALID && strstr(e.text, "another thread") != nullptr;
	}
	other.join();
	EXPECT_GT(told, 0);
	EXPECT_GT(refused, 0);
	EXPECT_EQ(xport_poll(x, &c, 1), 0);
	EXPECT_GE(logged.size(), static_cast<size_t>(refused > 0));
	EXPECT_TRUE(std::all_of(logged.begin(), logged.end(), [](auto &id) { return id == "XP-0008"; }));
	xport_close(x);
}

/* Where the library locks, there is no rule to break. */
TEST(LoopStrict, ThreadMultipleIsNotWatched)
{
	std::vector<std::string> logged;
	xport_completion c;
	xport_attr attr{};
	xport *x;

	attr.size = sizeof(attr);
	attr.backend = "loop:native";
	attr.thread_mode = XPORT_THREAD_MULTIPLE;
	attr.log_fn = note;
	attr.log_arg = &logged;
	setenv("XPORT_STRICT", "1", 1);
	ASSERT_EQ(xport_open(&attr, &x), XPORT_OK);
	unsetenv("XPORT_STRICT");
	std::thread other([&] {
		xport_completion d;
		EXPECT_EQ(xport_wait(x, &d, 1, 300), 0);
	});
	std::this_thread::sleep_for(std::chrono::milliseconds(100));
	EXPECT_EQ(xport_poll(x, &c, 1), 0);
	other.join();
	EXPECT_TRUE(logged.empty());
	xport_close(x);
}

INSTANTIATE_TEST_SUITE_P(Ways, Loop,
                         testing::Values("native_none", "native_all", "rdma_none", "message_none", "set_none"),
                         [](const auto &i) { return std::string(i.param); });

} // namespace
