/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * several_test.cc - instances with several transports: what is agreed, what happens if it does not connect or breaks, and
 * what a region and a turn do about all of them.
 */
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

extern "C" {
#include "loop/loop.h"
}
#include "xport.h"

namespace
{

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/* A server and any number of clients, all polled by one thread. */
class Several : public testing::Test
{
protected:
	std::vector<xport *> all;
	std::map<xport *, std::vector<xport_completion>> done;
	xport *server = nullptr;
	xport_listener *listener = nullptr;
	char name[64] = "";
	std::string logged;

	void SetUp() override { loop_manners = {}; }
	void TearDown() override
	{
		loop_manners.holds = false;
		for (xport *x : all)
			xport_close(x);
		loop_manners = {};
	}
	static void log(void *arg, int, const char *id, const char *line)
	{
		static_cast<Several *>(arg)->logged += std::string(id) + ": " + line + "\n";
	}
	xport *open(const char *backend, const char *progress = nullptr)
	{
		xport_attr attr{};
		xport *x = nullptr;

		attr.progress = progress;
		attr.size = sizeof(attr);
		attr.backend = backend;
		attr.log_fn = log;
		attr.log_arg = this;
		attr.log_level = XPORT_LOG_INFO;
		attr.peer_timeout_ms = 60000;
		EXPECT_EQ(XPORT_OK, xport_open(&attr, &x)) << logged;
		all.push_back(x);
		return x;
	}
	void serve(const char *backend, const char *progress = nullptr)
	{
		server = open(backend, progress);
		ASSERT_EQ(XPORT_OK, xport_listen(server, "127.0.0.1:0", nullptr, &listener));
		ASSERT_EQ(XPORT_OK, xport_listener_name(listener, name, sizeof(name)));
	}
	void poll(int times = 1)
	{
		for (int i = 0; i < times; i++) {
			for (xport *x : all) {
				xport_completion c[16];
				int n = xport_poll(x, c, 16);

				ASSERT_GE(n, 0);
				done[x].insert(done[x].end(), c, c + n);
			}
		}
	}
	/* Polls until x has reaped one of that type, and takes it. */
	xport_completion wait(xport *x, uint32_t type)
	{
		auto end = steady_clock::now() + std::chrono::seconds(60);

		for (unsigned i = 1; steady_clock::now() < end; i++) {
			std::vector<xport_completion> &d = done[x];

			for (size_t k = 0; k < d.size(); k++) {
				if (d[k].type == type) {
					xport_completion c = d[k];

					d.erase(d.begin() + long(k));
					return c;
				}
			}
			poll();
			if (i % 64 == 0)
				std::this_thread::sleep_for(milliseconds(1));
		}
		ADD_FAILURE() << "no completion of type " << type << "\n" << logged;
		return {};
	}
	/* A connection, and the server's end of it; NULL: it failed, and `err` says why. */
	struct Pair {
		xport_ep *client, *server;
	};
	xport_error err{};
	Pair connect(xport *x, int timeout_ms = 20000, const char *transports = nullptr)
	{
		xport_conn_attr attr{};

		auto end = steady_clock::now() + milliseconds(timeout_ms);
		Pair p{};
		xport_ep_info info{};

		err.size = sizeof(err);
		attr.size = sizeof(attr);
		attr.transports = transports;
		EXPECT_EQ(XPORT_OK, xport_connect(x, name, &attr, 0, &p.client));
		info.size = sizeof(info);
		for (unsigned i = 1; steady_clock::now() < end; i++) {
			poll();
			EXPECT_EQ(XPORT_OK, xport_ep_query(p.client, &info));
			if (info.state != XPORT_EP_CONNECTING)
				break;
			if (i % 16 == 0)
				std::this_thread::sleep_for(milliseconds(1));
		}
		(void)!xport_last_error(x, &err);
		if (info.state != XPORT_EP_OPEN) {
			snprintf(err.text, sizeof(err.text), "%s", info.why);
			err.status = info.reason;
			return {};
		}
		while (xport_accept(listener, 0, &p.server) != XPORT_OK && steady_clock::now() < end)
			poll();
		EXPECT_NE(nullptr, p.server);
		return p;
	}
	static xport_ep_info query(xport_ep *ep)
	{
		xport_ep_info info{};

		info.size = sizeof(info);
		EXPECT_EQ(XPORT_OK, xport_ep_query(ep, &info));
		return info;
	}
	static std::string over(xport_ep *ep)
	{
		xport_ep_info info = query(ep);

		return std::string(info.backend) + ":" + info.provider;
	}
	/* A message each way. */
	void talk(Pair p, xport *x)
	{
		char in[8] = "";

		ASSERT_EQ(XPORT_OK, xport_recv(server, in, sizeof(in), 7, ~UINT64_C(0), nullptr));
		ASSERT_EQ(XPORT_OK, xport_send(p.client, "hello", 6, 7, nullptr));
		EXPECT_EQ(p.server, wait(server, XPORT_OP_RECV).ep);
		EXPECT_STREQ("hello", in);
		wait(x, XPORT_OP_SEND);
		ASSERT_EQ(XPORT_OK, xport_recv(x, in, sizeof(in), 8, ~UINT64_C(0), nullptr));
		ASSERT_EQ(XPORT_OK, xport_send(p.server, "again", 6, 8, nullptr));
		EXPECT_EQ(p.client, wait(x, XPORT_OP_RECV).ep);
		EXPECT_STREQ("again", in);
		wait(server, XPORT_OP_SEND);
	}
	/* A put into `at` of the server's memory, which is registered as mr. */
	void put(Pair p, xport *x, xport_mr *mr, const char *bytes, const char *at)
	{
		uint8_t key[256];
		size_t len = sizeof(key);
		xport_rkey *k;

		ASSERT_EQ(XPORT_OK, xport_rkey_pack(mr, key, &len));
		ASSERT_EQ(XPORT_OK, xport_rkey_unpack(p.client, key, len, &k));
		xport_rkey_info info{};
		info.size = sizeof(info);
		/* The native key comes. A transport that was idle is polled only now and then. */
		for (int i = 0; i < 100000 && over(p.client) != "loop:message" && info.put == 0; i++) {
			poll();
			ASSERT_EQ(XPORT_OK, xport_rkey_query(k, &info));
		}
		ASSERT_EQ(XPORT_OK, xport_put(p.client, bytes, strlen(bytes) + 1, k, 0, nullptr));
		EXPECT_EQ(XPORT_OK, wait(x, XPORT_OP_PUT).status);
		EXPECT_STREQ(bytes, at);
		xport_rkey_destroy(k);
	}
	bool has_logged(const char *what) const { return logged.find(what) != std::string::npos; }
};

/* Every two lists with something in common connect, over the first common transport; the others are refused by name. */
TEST_F(Several, EveryOverlapConnects)
{
	static const char *const lists[] = {"loop:message",
	                                    "loop:native",
	                                    "loop:nosuch,loop:rdma",
	                                    "loop:message+loop:native",
	                                    "loop:native+loop:message",
	                                    "loop:nosuch+loop:rdma+loop:message",
	                                    "loop:native+loop:rdma+loop:message"};
	auto names = [](const std::string &list) {
		std::vector<std::string> v;

		for (const char *one : {"message", "native", "rdma"})
			if (list.find(one) != std::string::npos)
				v.push_back(one);
		return v;
	};

	for (const char *mine : lists) {
		for (const char *theirs : lists) {
			std::vector<std::string> common;

			for (const std::string &n : names(mine))
				for (const std::string &m : names(theirs))
					if (n == m)
						common.push_back("loop:" + n);
			serve(theirs);
			xport *x = open(mine);
			Pair p = connect(x);
			if (common.empty()) {
				EXPECT_EQ(nullptr, p.client) << mine << " with " << theirs;
				EXPECT_EQ(XPORT_ERR_INCOMPATIBLE, err.status) << err.text;
				EXPECT_NE(nullptr, strstr(err.text, "the peer runs")) << err.text;
				TearDown();
				all.clear();
				done.clear();
				continue;
			}
			ASSERT_NE(nullptr, p.client) << mine << " with " << theirs << ": " << err.text << logged;
			EXPECT_EQ(over(p.client), over(p.server));
			EXPECT_NE(common.end(), std::find(common.begin(), common.end(), over(p.client)));
			talk(p, x);
			TearDown();
			all.clear();
			done.clear();
		}
	}
}

TEST_F(Several, TheEndpointSaysWhichAndWhyNotABetterOne)
{
	serve("loop:native+loop:message");
	xport *x = open("loop:nosuch+loop:rdma+loop:message");
	Pair p = connect(x);
	ASSERT_NE(nullptr, p.client) << err.text;
	xport_ep_info info = query(p.client);
	EXPECT_STREQ("loop", info.backend);
	EXPECT_STREQ("message", info.provider);
	EXPECT_STREQ("memory", info.device);
	EXPECT_NE(nullptr, strstr(info.passed_over, "loop:nosuch: not usable here: ")) << info.passed_over;
	EXPECT_NE(nullptr, strstr(info.passed_over, "loop:rdma: the peer does not offer that")) << info.passed_over;
	EXPECT_STREQ("loop:native: the peer does not offer that", query(p.server).passed_over);
	EXPECT_TRUE(has_logged("by loop:message; passed over loop:nosuch: ")) << logged;
}

/* A program may forbid transports for a connection, at either side. */
TEST_F(Several, ConnectionsUseWhatTheProgramAllows)
{
	static const char set[] = "loop:native+loop:rdma+loop:message";
	xport_conn_attr attr{};

	serve(set);
	xport *x = open(set);
	Pair p = connect(x, 20000, "loop:message");
	ASSERT_NE(nullptr, p.client) << err.text;
	EXPECT_EQ("loop:message", over(p.client));
	EXPECT_NE(nullptr,
	          strstr(query(p.client).passed_over, "loop:rdma: not usable here: the program does not allow it"))
		<< query(p.client).passed_over;
	EXPECT_NE(nullptr, strstr(query(p.server).passed_over, "the peer cannot use it: the program does not allow it"))
		<< query(p.server).passed_over;
	talk(p, x);
	EXPECT_EQ("loop:native", over(connect(x, 20000, "loop").client)) << "all of a back end";
	EXPECT_EQ("loop:rdma", over(connect(x, 20000, "loop:message+loop:rdma").client))
		<< "the order is the instance's";

	xport_listener_close(listener);
	attr.size = sizeof(attr);
	attr.transports = "loop:rdma";
	ASSERT_EQ(XPORT_OK, xport_listen(server, "127.0.0.1:0", &attr, &listener));
	ASSERT_EQ(XPORT_OK, xport_listener_name(listener, name, sizeof(name)));
	p = connect(x);
	ASSERT_NE(nullptr, p.client) << err.text;
	EXPECT_EQ("loop:rdma", over(p.client));
	EXPECT_EQ(nullptr, connect(x, 20000, "loop:message").client);
	EXPECT_EQ(XPORT_ERR_INCOMPATIBLE, err.status) << err.text;
}

TEST_F(Several, AnUnknownTransportOfAConnectionIsRefused)
{
	xport_conn_attr attr{};
	xport_ep *ep;

	serve("loop:native+loop:message");
	for (const char *wrong :
	     {"", "loop:rdma", "ucx", "loop:native+", "loop:native+loop:native", "loop:native,loop:message"}) {
		attr.size = sizeof(attr);
		attr.transports = wrong;
		EXPECT_EQ(XPORT_ERR_INVALID, xport_connect(server, name, &attr, 0, &ep)) << wrong;
		err.size = sizeof(err);
		ASSERT_EQ(XPORT_OK, xport_last_error(server, &err));
		EXPECT_NE(
			nullptr,
			strstr(err.text, "none of this instance's, or there twice; they are loop:native, loop:message"))
			<< err.text;
	}
}

/* One with a single transport has nothing to pass over. */
TEST_F(Several, ASingleTransportPassesNothingOver)
{
	serve("loop:native");
	Pair p = connect(open("loop:native"));
	ASSERT_NE(nullptr, p.client) << err.text;
	EXPECT_STREQ("", query(p.client).passed_over);
	EXPECT_EQ("loop:native", over(p.client));
	EXPECT_FALSE(has_logged("passed over"));
}

TEST_F(Several, OpensWhatAPeerNeedsAndNothingElse)
{
	serve("loop:native+loop:message+loop:rdma");
	EXPECT_EQ(1u, loop_manners.opened);
	xport *x = open("loop:native+loop:message+loop:rdma");
	EXPECT_EQ(2u, loop_manners.opened);
	ASSERT_NE(nullptr, connect(x).client) << err.text;
	EXPECT_EQ(2u, loop_manners.opened) << "the first is common";
	xport *y = open("loop:rdma");
	EXPECT_EQ(3u, loop_manners.opened);
	ASSERT_NE(nullptr, connect(y).client) << err.text;
	EXPECT_EQ(4u, loop_manners.opened) << "the server needs it now";
	ASSERT_NE(nullptr, connect(open("loop:rdma")).client) << err.text;
	EXPECT_EQ(5u, loop_manners.opened) << "and has it";
}

/* A hub: each peer over another transport, at the same time, one stream of events. */
TEST_F(Several, PeersOverDifferentTransportsAtTheSameTime)
{
	static const char *const lists[] = {"loop:message", "loop:native", "loop:rdma", "loop:rdma+loop:message"};
	static char memory[64];
	std::vector<Pair> pairs;
	std::vector<xport *> clients;
	xport_mr *mr;

	serve("loop:message+loop:native+loop:rdma");
	ASSERT_EQ(XPORT_OK, xport_mr_reg(server, memory, sizeof(memory), XPORT_REMOTE_WRITE | XPORT_REMOTE_READ, &mr));
	for (const char *list : lists) {
		clients.push_back(open(list));
		pairs.push_back(connect(clients.back()));
		ASSERT_NE(nullptr, pairs.back().client) << err.text;
	}
	EXPECT_EQ("loop:message", over(pairs[0].server));
	EXPECT_EQ("loop:native", over(pairs[1].server));
	EXPECT_EQ("loop:rdma", over(pairs[2].server));
	EXPECT_EQ("loop:message", over(pairs[3].server)) << "the sum of the places is the smallest";
	for (int i = 0; i < 20; i++) {
		for (size_t k = 0; k < pairs.size(); k++) {
			std::string bytes = std::to_string(i) + " from " + std::to_string(k);

			talk(pairs[k], clients[k]);
			put(pairs[k], clients[k], mr, bytes.c_str(), memory);
		}
	}
}

/* The region was registered before the transport of this peer was open; the network carries its puts all the same. */
TEST_F(Several, ARegionIsKnownToATransportThatIsOpenedLater)
{
	static char memory[64];
	xport_counters counters{};
	xport_mr *mr;

	serve("loop:message+loop:native");
	ASSERT_EQ(XPORT_OK, xport_mr_reg(server, memory, sizeof(memory), XPORT_REMOTE_WRITE, &mr));
	xport *x = open("loop:native");
	EXPECT_EQ(2u, loop_manners.opened);
	Pair p = connect(x);
	ASSERT_NE(nullptr, p.client) << err.text;
	EXPECT_EQ(3u, loop_manners.opened);
	put(p, x, mr, "placed", memory);
	counters.size = sizeof(counters);
	ASSERT_EQ(XPORT_OK, xport_stats(x, p.client, &counters));
	EXPECT_EQ(1u, counters.by_network);
	EXPECT_EQ(0u, counters.by_message);
}

/* Deregistering revokes over all of them. */
TEST_F(Several, DeregisteringRevokesOnAll)
{
	static char memory[64];
	uint8_t key[256];
	size_t len = sizeof(key);
	xport_mr *mr;
	std::vector<xport_rkey *> keys;
	std::vector<Pair> pairs;
	std::vector<xport *> clients;

	serve("loop:message+loop:native+loop:rdma");
	ASSERT_EQ(XPORT_OK, xport_mr_reg(server, memory, sizeof(memory), XPORT_REMOTE_WRITE, &mr));
	ASSERT_EQ(XPORT_OK, xport_rkey_pack(mr, key, &len));
	for (const char *list : {"loop:message", "loop:native", "loop:rdma"}) {
		clients.push_back(open(list));
		pairs.push_back(connect(clients.back()));
		ASSERT_NE(nullptr, pairs.back().client) << err.text;
		keys.push_back(nullptr);
		ASSERT_EQ(XPORT_OK, xport_rkey_unpack(pairs.back().client, key, len, &keys.back()));
	}
	poll(50);
	std::atomic<bool> ended{false};
	std::thread others([&] {
		while (!ended) {
			for (xport *x : clients) {
				xport_completion c[4];

				(void)!xport_poll(x, c, 4);
			}
		}
	});
	EXPECT_EQ(XPORT_OK, xport_mr_dereg(mr));
	ended = true;
	others.join();
	/* A peer whose key the server had not heard of yet is refused by the server. */
	for (size_t i = 0; i < keys.size(); i++) {
		int r = xport_put(pairs[i].client, "x", 1, keys[i], 0, nullptr);

		EXPECT_EQ(XPORT_ERR_STALE_KEY, r == XPORT_OK ? wait(clients[i], XPORT_OP_PUT).status : r) << i;
	}
	EXPECT_EQ('\0', memory[0]);
}

/* ---- failover ---- */

TEST_F(Several, IfOneDoesNotConnectTheNextIsTried)
{
	static const char set[] = "loop:rdma+loop:native+loop:message";

	for (int role : {-1, int(XPI_ACTIVE), int(XPI_PASSIVE)}) {
		logged.clear();
		loop_manners = {};
		loop_manners.cut = "rdma";
		loop_manners.cut_role = role;
		serve(set);
		xport *x = open(set);
		Pair p = connect(x);
		ASSERT_NE(nullptr, p.client) << role << ": " << err.text << logged;
		EXPECT_EQ("loop:native", over(p.client));
		EXPECT_EQ("loop:native", over(p.server));
		talk(p, x);
		EXPECT_TRUE(has_logged("XP-0116")) << logged;
		EXPECT_TRUE(has_logged("loop:rdma does not connect, the next transport is tried: ")) << logged;
		EXPECT_NE(nullptr, strstr(query(p.client).passed_over, "cable of loop:rdma"));
		TearDown();
		all.clear();
		done.clear();
	}
}

/* Neither end hears anything: half of the time is for the others. */
TEST_F(Several, OneThatHangsIsGivenUpInTime)
{
	static const char set[] = "loop:rdma+loop:message";

	loop_manners.mute = "rdma";
	serve(set);
	xport *x = open(set);
	auto began = steady_clock::now();
	Pair p = connect(x);
	ASSERT_NE(nullptr, p.client) << err.text << logged;
	EXPECT_EQ("loop:message", over(p.client));
	EXPECT_GE(steady_clock::now() - began, milliseconds(1000)) << "it was given time";
	talk(p, x);
}

TEST_F(Several, AnOfferThatCannotBeOpenedIsPassedOver)
{
	static const char set[] = "loop:message+loop:rdma+loop:native";

	serve("loop:native+loop:rdma");
	xport *x = open(set);
	loop_manners.absent = "rdma"; /* it was to be the first common one */
	Pair p = connect(x);
	ASSERT_NE(nullptr, p.client) << err.text << logged;
	EXPECT_EQ("loop:native", over(p.client));
	talk(p, x);
}

/* A hub that has no descriptor left for a moment does not do without a transport for ever. */
TEST_F(Several, WhatTheSystemRefusedIsTriedAgain)
{
	loop_manners.absent = "rdma";
	loop_manners.absent_status = XPORT_ERR_SYSTEM;
	loop_manners.present = 2; /* for the clients */
	xport *x = open("loop:rdma"), *y = open("loop:rdma+loop:message");
	serve("loop:message+loop:rdma");
	Pair p = connect(x);
	EXPECT_EQ(nullptr, p.client) << "it cannot be opened now";
	loop_manners.absent = nullptr;
	std::this_thread::sleep_for(milliseconds(2100));
	p = connect(x);
	ASSERT_NE(nullptr, p.client) << err.text << logged;
	EXPECT_EQ("loop:rdma", over(p.server));
	p = connect(y);
	ASSERT_NE(nullptr, p.client) << err.text << logged;
}

/* Two connections at a time: the first finds that a transport cannot be opened, the second has offered it already. */
TEST_F(Several, AnOfferThatBecomesWrongIsPassedOver)
{
	xport_ep *ep[2];

	serve("loop:native+loop:rdma");
	xport *x = open("loop:message+loop:rdma+loop:native");
	loop_manners.absent = "rdma";
	loop_manners.present = 1; /* the server has it */
	for (xport_ep *&e : ep)
		ASSERT_EQ(XPORT_OK, xport_connect(x, name, nullptr, 0, &e));
	for (int i = 0; i < 2; i++)
		wait(x, XPORT_EVENT_CONNECTED);
	for (xport_ep *e : ep)
		EXPECT_EQ("loop:native", over(e)) << query(e).why << logged;
}

/* An adapter that was taken out: the server has it open, and gets no address from it. */
TEST_F(Several, IfTheServerHasNoAddressTheNextIsTried)
{
	static const char set[] = "loop:rdma+loop:native";

	loop_manners.lost = "rdma";
	serve(set);
	xport *x = open(set);
	Pair p = connect(x);
	ASSERT_NE(nullptr, p.client) << err.text << logged;
	EXPECT_EQ("loop:native", over(p.client));
	EXPECT_NE(nullptr, strstr(query(p.server).passed_over, "loop:rdma was taken out"))
		<< query(p.server).passed_over;
	talk(p, x);
}

TEST_F(Several, NorIfThatIsNotTheFirst)
{
	static const char set[] = "loop:rdma+loop:native+loop:message";

	loop_manners.cut = "rdma";
	loop_manners.cut_role = -1;
	serve(set);
	xport *x = open(set);
	loop_manners.lost = "native";
	Pair p = connect(x);
	ASSERT_NE(nullptr, p.client) << err.text << logged;
	EXPECT_EQ("loop:message", over(p.client));
	talk(p, x);
}

/* The client says N for each of them. */
TEST_F(Several, IfNoneConnectsTheErrorListsAll)
{
	static const char set[] = "loop:rdma+loop:message";

	loop_manners.cut = "rdma";
	loop_manners.cut_role = -1;
	loop_manners.mute = "message";
	serve(set);
	xport *x = open(set);
	xport_ep *ep;
	ASSERT_EQ(XPORT_OK, xport_connect(x, name, nullptr, 0, &ep));
	xport_completion lost = wait(x, XPORT_EVENT_LOST);
	EXPECT_EQ(ep, lost.ep);
	EXPECT_NE(XPORT_OK, lost.status);
	EXPECT_NE(std::string::npos, logged.find("cable of loop:rdma")) << logged;
}

/* With a key all words of the negotiation are sealed. */
TEST_F(Several, WithAKeyTheNextIsTriedAsWell)
{
	static const char set[] = "loop:rdma+loop:native+loop:message";
	char path[] = "/tmp/several-key-XXXXXX";
	int fd = mkstemp(path);

	ASSERT_GE(fd, 0);
	ASSERT_EQ(24, write(fd, "the key of several_test\n", 24));
	close(fd);
	setenv("XPORT_AUTH_KEY_FILE", path, 1);
	xport_attr attr{};
	xport *probe = nullptr;
	attr.size = sizeof(attr);
	attr.backend = "loop";
	int r = xport_open(&attr, &probe);
	xport_close(probe);
	for (int role : {int(XPI_ACTIVE), int(XPI_PASSIVE)}) {
		if (r == XPORT_ERR_NOT_SUPPORTED)
			break;
		loop_manners = {};
		loop_manners.cut = "rdma";
		loop_manners.cut_role = role;
		serve(set);
		xport *x = open(set);
		Pair p = connect(x);
		EXPECT_NE(nullptr, p.client) << role << ": " << err.text << logged;
		if (p.client != nullptr) {
			EXPECT_EQ("loop:native", over(p.client));
			talk(p, x);
		}
		TearDown();
		all.clear();
		done.clear();
	}
	unsetenv("XPORT_AUTH_KEY_FILE");
	unlink(path);
	if (r == XPORT_ERR_NOT_SUPPORTED)
		GTEST_SKIP() << "this build has no authentication";
}

/* The progress thread opens, polls and sleeps over all of them. */
TEST_F(Several, TheProgressThreadServesAll)
{
	serve("loop:message+loop:native+loop:rdma", "thread");
	for (const char *list : {"loop:message", "loop:native", "loop:rdma"}) {
		xport *x = open(list);
		Pair p = connect(x);
		ASSERT_NE(nullptr, p.client) << list << ": " << err.text << logged;
		EXPECT_EQ(list, over(p.server));
		for (int i = 0; i < 10; i++)
			talk(p, x);
	}
}

/* ---- breaking ---- */

TEST_F(Several, ATransportThatBreaksTakesOnlyItsOwnEndpoints)
{
	serve("loop:message+loop:native");
	xport *x = open("loop:message"), *y = open("loop:native");
	Pair p = connect(x), q = connect(y);
	ASSERT_NE(nullptr, p.client) << err.text;
	ASSERT_NE(nullptr, q.client) << err.text;
	all = {server, x}; /* y would report an error, as it has nothing else */
	loop_manners.breaks = "native";
	xport_completion lost = wait(server, XPORT_EVENT_LOST);
	EXPECT_EQ(q.server, lost.ep);
	EXPECT_EQ(XPORT_ERR_PEER_LOST, lost.status);
	EXPECT_NE(nullptr, strstr(query(q.server).why, "loop:native failed")) << query(q.server).why;
	EXPECT_TRUE(has_logged("XP-0028")) << logged;
	EXPECT_EQ(XPORT_EP_OPEN, query(p.server).state);
	talk(p, x);
	/* Nobody else gets it. */
	loop_manners.breaks = nullptr;
	all = {server, x, y};
	EXPECT_EQ(nullptr, connect(open("loop:native"), 5000).client);
}

/* The only one that is open so far. */
TEST_F(Several, IfTheFirstBreaksTheOthersServe)
{
	serve("loop:native+loop:message");
	loop_manners.breaks = "native";
	poll(10);
	EXPECT_TRUE(has_logged("XP-0028")) << logged;
	xport *x = open("loop:message");
	Pair p = connect(x);
	ASSERT_NE(nullptr, p.client) << err.text;
	EXPECT_EQ("loop:message", over(p.server));
	talk(p, x);
}

TEST_F(Several, IfNoneIsLeftEveryPollSaysSo)
{
	xport *x = open("loop:nosuch+loop:message");
	xport_completion c;

	all.clear();
	EXPECT_EQ(0, xport_poll(x, &c, 1));
	loop_manners.breaks = "message";
	for (int i = 0; i < 3; i++)
		EXPECT_EQ(XPORT_ERR_SYSTEM, xport_poll(x, &c, 1)) << i;
	err.size = sizeof(err);
	EXPECT_EQ(XPORT_OK, xport_last_error(x, &err));
	EXPECT_NE(nullptr, strstr(err.text, "none of 2 transports is left: loop:message failed")) << err.text;
	xport_close(x);
}

/* A handshake does not end with its transport. */
TEST_F(Several, AHandshakeGoesOnWithTheNext)
{
	static const char set[] = "loop:rdma+loop:message";
	auto began = steady_clock::now();
	xport_ep *ep;

	loop_manners.mute = "rdma";
	serve(set);
	xport *x = open(set);
	ASSERT_EQ(XPORT_OK, xport_connect(x, name, nullptr, 0, &ep));
	while (over(ep) != "loop:rdma" && steady_clock::now() - began < std::chrono::seconds(20))
		poll();
	poll(10);
	loop_manners.breaks = "rdma";
	wait(x, XPORT_EVENT_CONNECTED);
	EXPECT_EQ("loop:message", over(ep)) << logged;
	EXPECT_TRUE(has_logged("loop:rdma does not connect, the next transport is tried: ")) << logged;
}

/* ---- sleeping ---- */

/* Whoever sleeps is woken by each of them. */
TEST_F(Several, WaitIsWokenByEveryTransport)
{
	serve("loop:message+loop:native+loop:rdma");
	for (const char *list : {"loop:message", "loop:native", "loop:rdma"}) {
		xport *x = open(list);
		Pair p = connect(x);
		ASSERT_NE(nullptr, p.client) << err.text;
		char in[8] = "";
		ASSERT_EQ(XPORT_OK, xport_recv(server, in, sizeof(in), 7, ~UINT64_C(0), nullptr));
		std::thread other([&] {
			std::this_thread::sleep_for(milliseconds(30));
			EXPECT_EQ(XPORT_OK, xport_send(p.client, "wake", 5, 7, nullptr));
			for (int i = 0; i < 100; i++) {
				xport_completion c;

				(void)!xport_poll(x, &c, 1);
				std::this_thread::sleep_for(milliseconds(1));
			}
		});
		auto began = steady_clock::now();
		xport_completion c{};
		int n = 0;
		while (n == 0 && steady_clock::now() - began < std::chrono::seconds(20)) {
			n = xport_wait(server, &c, 1, 10000);
		}
		EXPECT_EQ(1, n);
		EXPECT_EQ(uint32_t(XPORT_OP_RECV), c.type);
		EXPECT_LT(steady_clock::now() - began, std::chrono::seconds(8)) << "it did not sleep to the end";
		other.join();
	}
}

} // namespace
