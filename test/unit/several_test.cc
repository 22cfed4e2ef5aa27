/* SPDX-License-Identifier: BSD-3-Clause */
/* several_test.cc - instances with several transports: what is agreed, and what a region, a poll and a wait do about all of them. */
#include <algorithm>
#include <atomic>

#include "several_fixture.h"

namespace
{

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
		EXPECT_NE(nullptr,
		          strstr(err.text, "not in this instance, or is there twice; it has loop:native, loop:message"))
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

/* What an instance says of eager messages holds on each of its transports, also on one whose frames are shorter. */
TEST_F(Several, EagerReceivesTakeEagerMaxFromEveryTransport)
{
	loop_manners.brief = "message";
	serve("loop:native+loop:message");
	xport *x = open("loop:native+loop:message");
	for (const char *transport : {"loop:native", "loop:message"}) {
		Pair p = connect(x, 20000, transport);
		ASSERT_NE(nullptr, p.client) << err.text;
		ASSERT_EQ(transport, over(p.client));
		xport_info info{}, theirs{};
		info.size = theirs.size = sizeof(info);
		ASSERT_EQ(XPORT_OK, xport_query(server, &info));
		ASSERT_EQ(XPORT_OK, xport_query(x, &theirs));
		std::vector<uint8_t> out(std::min(info.eager_max, theirs.eager_max), 7), in(out.size());
		xport_opt eager{};
		eager.size = sizeof(eager);
		eager.flags = XPORT_EAGER;
		ASSERT_EQ(XPORT_OK, xport_recv(server, in.data(), in.size(), 7, ~UINT64_C(0), &eager));
		ASSERT_EQ(XPORT_OK, xport_send(p.client, out.data(), out.size(), 7, nullptr));
		EXPECT_EQ(XPORT_OK, wait(server, XPORT_OP_RECV).status) << transport << ", " << out.size();
		EXPECT_EQ(out, in) << transport;
		wait(x, XPORT_OP_SEND);
	}
}

/* ---- sleeping ---- */

/* A thread that sleeps is woken by each transport. */
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
