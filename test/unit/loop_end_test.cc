/* SPDX-License-Identifier: BSD-3-Clause */
/* loop_end_test.cc - like loop_test.cc: how connections begin at a listener and end, and what is reaped afterwards. */
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "loop_fixture.h"
#include "unit/sever.h"

namespace
{

class LoopEnd : public Loop
{
protected:
	/* After what has broken the back end. */
	void begin_again()
	{
		xport_close(a.x);
		xport_close(b.x);
		a = b = {};
		loop_manners = {};
		SetUp();
	}
};

/* A queue pair may hold its buffers for seconds. */
TEST_P(LoopEnd, WhoWaitsForAnEndpointToLetGoSleeps)
{
	xport_completion c[16];
	auto cpu_ms = [] {
		timespec t{};
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
		return t.tv_sec * 1000 + t.tv_nsec / 1000000;
	};
	xport_ep_destroy(b.ep);
	for (int i = 0; i < 100; i++)
		xport_poll(b.x, c, 16);
	loop_manners.holds = true;
	EXPECT_EQ(xport_wait(a.x, c, 16, 1200), 0); /* so long it is asked at every poll */
	auto used = cpu_ms();
	EXPECT_EQ(xport_wait(a.x, c, 16, 500), 0);
	EXPECT_LT(cpu_ms() - used, 150) << "of half a second";
	loop_manners.holds = false;
	ASSERT_EQ(xport_wait(a.x, c, 16, 10000), 1) << "it looks again by itself";
	EXPECT_EQ(c[0].type, (uint32_t)XPORT_EVENT_CLOSED);
}

/* What was posted ends with LOST, and closing ends. */
TEST_P(LoopEnd, ABackEndThatBreaks)
{
	uint8_t in[8];
	xport_opt opt{};
	xport_mr *mr = nullptr;
	int n = 0;

	opt.size = sizeof(opt);
	opt.source = a.ep;
	ASSERT_EQ(xport_mr_alloc(a.x, 4096, XPORT_REMOTE_WRITE, &mr), XPORT_OK);
	ASSERT_EQ(xport_recv(a.x, in, sizeof(in), 5, UINT64_MAX, &opt), XPORT_OK);
	both(5);
	loop_manners.broken = true;
	xport_completion c[16];
	for (int i = 0; i < 100 && n < 2; i++) {
		int r = xport_poll(a.x, c + n, 16 - n);
		n += r > 0 ? r : 0;
	}
	ASSERT_EQ(n, 2);
	EXPECT_EQ(c[0].status, XPORT_ERR_PEER_LOST);
	EXPECT_EQ(c[0].type, (uint32_t)XPORT_OP_RECV);
	EXPECT_EQ(c[1].type, (uint32_t)XPORT_EVENT_LOST);
	EXPECT_EQ(xport_poll(a.x, c, 16), XPORT_ERR_SYSTEM);
	EXPECT_EQ(xport_wait(a.x, c, 16, 1000), XPORT_ERR_SYSTEM);
	EXPECT_EQ(xport_mr_dereg(mr), XPORT_OK);
	EXPECT_EQ(xport_ep_close(a.ep, 1000), XPORT_ERR_PEER_LOST);
	begin_again();
}

/* The peer's goodbye comes together with its answer to all that was posted: nothing was cut off. */
TEST_P(LoopEnd, ClosingAsThePeerDoesAfterAllWasAnswered)
{
	Remote r;
	share(r, 64);
	uint64_t word = 1;
	ASSERT_EQ(xport_put(a.ep, &word, 8, r.key, 0, nullptr), XPORT_OK);
	ASSERT_EQ(xport_poll(a.x, nullptr, 0), 0); /* it leaves */
	const char *scale =
		getenv("H_TIMEOUT_SCALE"); /* under valgrind beside other programs 50 ms are too short to answer */
	int ms = 50 * (scale != nullptr ? atoi(scale) : 1);
	EXPECT_EQ(xport_ep_close(b.ep, ms), XPORT_ERR_TIMEOUT); /* answers, and is not heard */
	EXPECT_EQ(xport_ep_close(a.ep, 10000), XPORT_OK);
	EXPECT_EQ(wait(a, XPORT_OP_PUT).status, XPORT_OK);
}

/* The peer closed at once: whether it had taken a message, which was complete long ago, is what closing says. */
TEST_P(LoopEnd, ClosingAfterThePeerClosedAtOnce)
{
	for (bool taken : {false, true}) {
		int word = 1;
		for (int i = 0; i < 3; i++)
			ASSERT_EQ(xport_send(a.ep, &word, sizeof(word), 5, nullptr), XPORT_OK);
		a.poll();
		ASSERT_EQ(a.done.size(), 3u);
		if (taken)
			b.poll();
		EXPECT_EQ(xport_ep_close(b.ep, 0), XPORT_OK);
		std::this_thread::sleep_for(std::chrono::milliseconds(200)); /* its goodbye is here */
		EXPECT_EQ(xport_ep_close(a.ep, 10000), taken ? XPORT_OK : XPORT_ERR_PEER_CLOSED);
		begin_again();
	}
}

/* The peer has said goodbye when something is posted that only the peer could answer. */
TEST_P(LoopEnd, ClosingAfterThePeerDidTellsOfWhatItCutOff)
{
	Remote r;
	share(r, 64);
	uint64_t word = 1;
	EXPECT_EQ(xport_ep_close(b.ep, 50), XPORT_ERR_TIMEOUT); /* a does not answer */
	ASSERT_EQ(xport_get(a.ep, &word, 8, r.key, 0, nullptr), XPORT_OK);
	int closed = xport_ep_close(a.ep, 10000);
	auto done = wait(a, XPORT_OP_GET);
	EXPECT_EQ(closed, done.status);
	std::string way = GetParam();
	if (way == "message_none" || way == "native_all") {
		EXPECT_EQ(closed, XPORT_ERR_PEER_CLOSED);
	}
}

/* What is reaped after the end gives room to nobody, and leaves nothing behind of an endpoint that is destroyed then. */
TEST_P(LoopEnd, NotificationsReapedAfterTheEnd)
{
	Remote r;
	share(r, 64);
	uint64_t word = 1;
	int posted = 0, told = 0;
	bool closed = false;

	while (posted < 2000) {
		int s = xport_put_notify(a.ep, &word, 8, r.key, 0, nullptr);
		posted += s == XPORT_OK;
		ASSERT_TRUE(s == XPORT_OK || s == XPORT_ERR_AGAIN);
		a.poll();
		ASSERT_EQ(xport_poll(b.x, nullptr, 0), 0);
	}
	for (int i = 0; i < 200; i++) { /* destroying does not wait */
		a.poll();
		ASSERT_EQ(xport_poll(b.x, nullptr, 0), 0);
	}
	xport_rkey_destroy(r.key);
	xport_ep_destroy(a.ep);
	a.ep = nullptr;
	for (int i = 0; i < 1000; i++) {
		a.poll();
		ASSERT_EQ(xport_poll(b.x, nullptr, 0), 0);
		std::this_thread::sleep_for(std::chrono::microseconds(100));
	}
	for (int i = 0; !closed && i < 100000; i++) {
		xport_completion c[15]; /* so that the last of them come with CLOSED */
		int n = xport_poll(b.x, c, 15);
		for (int k = 0; k < n; k++) {
			told += c[k].type == XPORT_EVENT_NOTIFY;
			closed = closed || c[k].type == XPORT_EVENT_CLOSED;
			if (c[k].type == XPORT_EVENT_CLOSED)
				xport_ep_destroy(c[k].ep);
		}
	}
	EXPECT_EQ(told, posted);
	both(10);
	ASSERT_EQ(xport_mr_dereg(r.mr), XPORT_OK);
}

/* An event stands for one connection: to accept one leaves the other's event. */
TEST_P(LoopEnd, AcceptLeavesTheEventsOfOthers)
{
	xport_ep *more[2], *taken[2] = {nullptr, nullptr};
	xport_completion c;
	char name[64];

	ASSERT_EQ(xport_listener_name(listener, name, sizeof(name)), XPORT_OK);
	for (auto &ep : more)
		ASSERT_EQ(xport_connect(a.x, name, nullptr, 0, &ep), XPORT_OK);
	for (int connected = 0; connected < 2;) {
		a.poll();
		ASSERT_EQ(xport_poll(b.x, nullptr, 0), 0);
		for (auto &d : a.done)
			connected += d.type == XPORT_EVENT_CONNECTED;
		a.done.clear();
		std::this_thread::sleep_for(std::chrono::microseconds(100));
	}
	for (int i = 0; i < 2; i++) {
		auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
		int n = 0;
		while (n == 0 && std::chrono::steady_clock::now() < end) {
			a.poll();
			n = xport_poll(b.x, &c, 1);
			std::this_thread::sleep_for(std::chrono::microseconds(100));
		}
		ASSERT_EQ(n, 1) << "connection " << i;
		EXPECT_EQ(c.type, (uint32_t)XPORT_EVENT_INCOMING);
		ASSERT_EQ(xport_accept(listener, 0, &taken[i]), XPORT_OK);
	}
}

/* An endpoint that was lost before it was accepted is the application's once a message has named it, and else nobody's. */
TEST_P(LoopEnd, LostBeforeItWasAccepted)
{
	xport_ep *more[2], *taken = nullptr, *named = nullptr;
	xport_completion c[32];
	uint64_t in = 0, word = 7;
	char name[64];
	int n, lost = 0;

	ASSERT_EQ(xport_listener_name(listener, name, sizeof(name)), XPORT_OK);
	ASSERT_EQ(xport_recv(b.x, &in, sizeof(in), 9, UINT64_MAX, nullptr), XPORT_OK);
	for (auto &ep : more) {
		ASSERT_EQ(xport_connect(a.x, name, nullptr, 0, &ep), XPORT_OK);
		for (bool connected = false; !connected;) {
			a.poll();
			ASSERT_EQ(xport_poll(b.x, nullptr, 0), 0);
			for (auto &d : a.done)
				connected = connected || d.type == XPORT_EVENT_CONNECTED;
			a.done.clear();
			std::this_thread::sleep_for(std::chrono::microseconds(100));
		}
	}
	ASSERT_EQ(xport_send(more[1], &word, sizeof(word), 9, nullptr), XPORT_OK);
	/* Until the message is here: before its endpoint is open on this side it is kept. */
	for (int i = 0; i < 100 || in != word; i++) {
		ASSERT_LT(i, 100000);
		a.poll();
		ASSERT_EQ(xport_poll(b.x, nullptr, 0), 0);
		if (i >= 100)
			std::this_thread::sleep_for(std::chrono::microseconds(100));
	}
	loop_manners.broken = true;
	xport_poll(b.x, nullptr, 0);
	n = xport_poll(b.x, c, 32);
	EXPECT_NE(xport_accept(listener, 0, &taken), XPORT_OK);
	EXPECT_EQ(taken, nullptr);
	for (int i = 0; i < n; i++) {
		xport_ep_info info{};
		info.size = sizeof(info);
		if (c[i].type == XPORT_OP_RECV)
			named = c[i].ep;
		if (c[i].type != XPORT_EVENT_LOST)
			continue;
		lost++;
		EXPECT_TRUE(c[i].ep == b.ep || c[i].ep == named);
		EXPECT_EQ(xport_ep_query(c[i].ep, &info), XPORT_OK);
		xport_ep_destroy(c[i].ep);
	}
	EXPECT_EQ(lost, 2);
	EXPECT_NE(named, nullptr);
	begin_again();
}

/* Nobody hears of an endpoint whose xport_connect failed. */
TEST_P(LoopEnd, BreaksWhileItConnects)
{
	xport_ep *ep = nullptr;
	xport_completion c[16];
	char name[64];

	ASSERT_EQ(xport_listener_name(listener, name, sizeof(name)), XPORT_OK);
	loop_manners.broken = true;
	EXPECT_LT(xport_connect(a.x, name, nullptr, 5000, &ep), 0);
	int n = xport_poll(a.x, c, 16);
	ASSERT_EQ(n, 1);
	EXPECT_EQ(c[0].type, (uint32_t)XPORT_EVENT_LOST);
	EXPECT_EQ(c[0].ep, a.ep);
	begin_again();
}

/* A listener that was closed has no connections any more. */
TEST_P(LoopEnd, NoIncomingOfAClosedListener)
{
	xport_ep *more[3], *taken = nullptr;
	xport_completion c[16];
	char name[64];

	ASSERT_EQ(xport_listener_name(listener, name, sizeof(name)), XPORT_OK);
	for (auto &ep : more)
		ASSERT_EQ(xport_connect(a.x, name, nullptr, 0, &ep), XPORT_OK);
	for (int connected = 0; connected < 3;) {
		a.poll();
		ASSERT_EQ(xport_poll(b.x, nullptr, 0), 0);
		for (auto &d : a.done)
			connected += d.type == XPORT_EVENT_CONNECTED;
		a.done.clear();
		std::this_thread::sleep_for(std::chrono::microseconds(100));
	}
	ASSERT_EQ(xport_accept(listener, 5000, &taken), XPORT_OK);
	xport_listener_close(listener);
	for (int i = 0; i < 10; i++) {
		int n = xport_poll(b.x, c, 16);
		for (int k = 0; k < n; k++)
			EXPECT_NE(c[k].type, (uint32_t)XPORT_EVENT_INCOMING);
	}
}

/* An endpoint that is destroyed lives on for the completions that name it. */
TEST_P(LoopEnd, DestroyedWithCompletionsNotReaped)
{
	uint64_t word = 1;
	ASSERT_EQ(xport_send(a.ep, &word, 8, 1, nullptr), XPORT_OK);
	both(4);
	a.done.clear();
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(xport_send(a.ep, &word, 8, 1, nullptr), XPORT_OK);
		xport_poll(a.x, nullptr, 0);
	}
	xport_ep_destroy(a.ep);
	for (int i = 0; i < 10; i++)
		xport_poll(a.x, nullptr, 0);
	a.poll();
	EXPECT_EQ(a.done.size(), 3u);
	for (auto &c : a.done)
		EXPECT_EQ(c.status, XPORT_OK);
	both(10);
}

/* What the network cancels tells why the endpoint ended, and not what the network makes of that. */
TEST_P(LoopEnd, OperationsOfTheNetworkEndAsTheirEndpoint)
{
	if (std::string p = GetParam(); p != "native_none" && p != "rdma_none" && p != "set_none")
		GTEST_SKIP() << "there are none";
	std::vector<uint8_t> in(4096);
	Remote r;
	share(r, in.size());
	both(20);
	for (int i = 0; i < 40; i++) /* more than are done in the poll that closes */
		ASSERT_EQ(xport_get(a.ep, in.data(), 8, r.key, 0, nullptr), XPORT_OK);
	ASSERT_EQ(xport_ep_close(a.ep, 0), XPORT_OK);
	for (int i = 0; i < 3; i++)
		a.poll();
	ASSERT_EQ(a.done.size(), 40u);
	EXPECT_EQ(a.done[0].status, XPORT_OK);
	EXPECT_EQ(a.done[39].status, XPORT_ERR_CLOSED);

	begin_again();
	share(r, in.size());
	both(20);
	ASSERT_EQ(xport_get(a.ep, in.data(), in.size(), r.key, 0, nullptr), XPORT_OK);
	xport_close(b.x);
	b.x = nullptr;
	std::this_thread::sleep_for(std::chrono::milliseconds(200)); /* its goodbye is here */
	a.done.clear();
	for (int i = 0; i < 1000 && a.done.size() < 2; i++) {
		a.poll();
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	}
	ASSERT_EQ(a.done.size(), 2u);
	EXPECT_EQ(a.done[0].type, (uint32_t)XPORT_OP_GET);
	EXPECT_EQ(a.done[0].status, XPORT_ERR_PEER_CLOSED);
	EXPECT_EQ(a.done[1].type, (uint32_t)XPORT_EVENT_CLOSED);
}

/* A region ends once none of those that hold its native key uses it any more, though the endpoint of one ends meanwhile. */
TEST_P(LoopEnd, ARegionOutlivesAllWhoHoldItsKey)
{
	if (std::string p = GetParam(); p != "native_none" && p != "rdma_none" && p != "set_none")
		GTEST_SKIP() << "there are no native keys";
	uint8_t key[2048];
	size_t len = sizeof(key);
	xport_ep *taken = nullptr;
	xport_rkey_info info{};
	xport_rkey *second;
	char name[64];
	Side c;
	Remote r;
	share(r, 64);
	open(c);
	ASSERT_EQ(xport_listener_name(listener, name, sizeof(name)), XPORT_OK);
	ASSERT_EQ(xport_connect(c.x, name, nullptr, 0, &c.ep), XPORT_OK);
	for (int i = 0; i < 60000 && (taken == nullptr || c.done.empty()); i++) {
		both();
		c.poll();
		if (taken == nullptr)
			(void)!xport_accept(listener, 1, &taken);
		else
			std::this_thread::sleep_for(std::chrono::microseconds(100));
	}
	ASSERT_EQ(c.done.size(), 1u);
	ASSERT_EQ(xport_rkey_pack(r.mr, key, &len), XPORT_OK);
	ASSERT_EQ(xport_rkey_unpack(c.ep, key, len, &second), XPORT_OK);
	for (int i = 0; i < 10; i++) {
		both();
		c.poll();
	}
	info.size = sizeof(info);
	for (xport_rkey *k : {r.key, second}) {
		ASSERT_EQ(xport_rkey_query(k, &info), XPORT_OK);
		ASSERT_EQ(info.put, XPORT_NATIVE);
	}
	xport_ep_destroy(b.ep);
	std::atomic<bool> over{false};
	std::thread owner([&] {
		EXPECT_EQ(xport_mr_dereg(r.mr), XPORT_OK);
		over = true;
	});
	std::this_thread::sleep_for(std::chrono::milliseconds(200));
	EXPECT_FALSE(over) << "the other one may still use it";
	while (!over)
		c.poll();
	owner.join();
	EXPECT_EQ(xport_put(c.ep, key, 8, second, 0, nullptr), XPORT_ERR_STALE_KEY);
	xport_close(c.x);
}

/* Messages that are reaped after their endpoint was given back do not name it; those reaped before name it until the next
 * poll. */
TEST_P(LoopEnd, MessagesOfADestroyedEndpoint)
{
	uint64_t word = 1, in[4];
	xport_completion c[16];
	xport_ep_info info{};

	info.size = sizeof(info);
	for (auto &i : in)
		ASSERT_EQ(xport_recv(b.x, &i, sizeof(i), 5, UINT64_MAX, nullptr), XPORT_OK);
	for (int i = 0; i < 4; i++) {
		ASSERT_EQ(xport_send(a.ep, &word, sizeof(word), 5, nullptr), XPORT_OK);
		a.poll();
		ASSERT_EQ(xport_poll(b.x, nullptr, 0), 0);
	}
	ASSERT_EQ(xport_poll(b.x, c, 2), 2);
	EXPECT_EQ(c[1].ep, b.ep);
	xport_ep_destroy(b.ep);
	EXPECT_EQ(xport_ep_query(c[1].ep, &info), XPORT_OK);
	EXPECT_EQ(info.state, XPORT_EP_CLOSED);
	ASSERT_EQ(xport_poll(b.x, c, 16), 2);
	for (int i = 0; i < 2; i++) {
		EXPECT_EQ(c[i].type, (uint32_t)XPORT_OP_RECV);
		EXPECT_EQ(c[i].status, XPORT_OK);
		EXPECT_EQ(c[i].ep, nullptr);
	}
	b.ep = nullptr;
}

/* Nothing of it is to be reaped: it can be asked all the same for as long. */
TEST_P(LoopEnd, ReapedAndThenDestroyed)
{
	uint64_t word = 1, in = 0;
	xport_completion c[16];
	xport_ep_info info{};

	info.size = sizeof(info);
	ASSERT_EQ(xport_recv(b.x, &in, sizeof(in), 5, UINT64_MAX, nullptr), XPORT_OK);
	ASSERT_EQ(xport_send(a.ep, &word, sizeof(word), 5, nullptr), XPORT_OK);
	auto got = wait(b, XPORT_OP_RECV);
	EXPECT_EQ(xport_ep_close(b.ep, 0), XPORT_OK);
	xport_ep_destroy(b.ep);
	b.ep = nullptr;
	EXPECT_EQ(xport_ep_query(got.ep, &info), XPORT_OK);
	EXPECT_EQ(info.state, XPORT_EP_CLOSED);
	EXPECT_EQ(xport_poll(b.x, c, 16), 0);
}

/* Several completions of one poll name an endpoint, and at the first of them it is given back. */
TEST_P(LoopEnd, CompletionsReapedAndThenDestroyed)
{
	xport_completion c[16];
	xport_ep_info info{};
	Remote r;
	xport_opt opt{};
	uint64_t word = 1;

	info.size = sizeof(info);
	opt.size = sizeof(opt);
	opt.flags = XPORT_LOCAL;
	share(r, 64);
	ASSERT_EQ(xport_put(a.ep, &word, 8, r.key, 0, &opt), XPORT_OK);
	auto done = wait(a, XPORT_OP_PUT);
	EXPECT_EQ(xport_ep_close(a.ep, 0), XPORT_OK);
	xport_rkey_destroy(r.key);
	xport_ep_destroy(a.ep);
	a.ep = nullptr;
	EXPECT_EQ(xport_ep_query(done.ep, &info), XPORT_OK);
	EXPECT_EQ(info.state, XPORT_EP_CLOSED);
	EXPECT_EQ(xport_poll(a.x, c, 16), 0);
}

/* The key outlives the endpoint. */
TEST_P(LoopEnd, CompletionsReapedAndThenDestroyedBeforeTheKey)
{
	xport_ep_info info{};
	Remote r;
	uint64_t word = 1;

	info.size = sizeof(info);
	share(r, 64);
	ASSERT_EQ(xport_put(a.ep, &word, 8, r.key, 0, nullptr), XPORT_OK);
	auto done = wait(a, XPORT_OP_PUT);
	EXPECT_EQ(xport_ep_close(a.ep, 0), XPORT_OK);
	xport_ep_destroy(a.ep);
	a.ep = nullptr;
	xport_rkey_destroy(r.key);
	EXPECT_EQ(xport_ep_query(done.ep, &info), XPORT_OK);
	EXPECT_EQ(info.state, XPORT_EP_CLOSED);
}

TEST_P(LoopEnd, PeerThatClosesIsSeenAfterItsMessages)
{
	for (int i = 0; i < 40; i++)
		ASSERT_EQ(xport_send(b.ep, &i, sizeof(i), 5, nullptr), XPORT_OK);
	xport_ep_destroy(b.ep);
	b.ep = nullptr;
	auto c = wait(a, XPORT_EVENT_CLOSED);
	EXPECT_EQ(c.status, XPORT_ERR_PEER_CLOSED);
	EXPECT_EQ(c.ep, a.ep);
	int v;
	EXPECT_EQ(xport_send(a.ep, &v, sizeof(v), 5, nullptr), XPORT_ERR_PEER_CLOSED);
	EXPECT_EQ(xport_ep_close(a.ep, 0), XPORT_ERR_PEER_CLOSED);
	EXPECT_EQ(xport_ep_close(a.ep, 0), XPORT_ERR_CLOSED);
}

/* That messages came is known by closing well alone: not if the peer was lost, though nobody has polled since. */
TEST_P(LoopEnd, ClosingAfterTheLossOfThePeer)
{
	int word = 1;

	ASSERT_EQ(xport_send(a.ep, &word, sizeof(word), 5, nullptr), XPORT_OK);
	both();
	ASSERT_EQ(sever(listener), 1);
	std::this_thread::sleep_for(std::chrono::milliseconds(200)); /* the thread that reads it sees that */
	EXPECT_EQ(xport_ep_close(a.ep, 10000), XPORT_ERR_PEER_LOST);
	begin_again();
}

INSTANTIATE_TEST_SUITE_P(Ways, LoopEnd,
                         testing::Values("native_none", "native_all", "rdma_none", "message_none", "set_none"),
                         [](const auto &i) { return std::string(i.param); });

} // namespace
