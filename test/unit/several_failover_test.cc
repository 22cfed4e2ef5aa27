/* SPDX-License-Identifier: BSD-3-Clause */
/* several_failover_test.cc - instances with several transports, one of which does not open, does not connect or breaks. */
#include <unistd.h>

#include <fstream>

#include "several_fixture.h"

namespace
{

class SeveralFailover : public Several
{
};

/* ---- failover ---- */

TEST_F(SeveralFailover, IfOneDoesNotConnectTheNextIsTried)
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
TEST_F(SeveralFailover, OneThatHangsIsGivenUpInTime)
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

TEST_F(SeveralFailover, AnOfferThatCannotBeOpenedIsPassedOver)
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
TEST_F(SeveralFailover, WhatTheSystemRefusedIsTriedAgain)
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
TEST_F(SeveralFailover, AnOfferThatBecomesWrongIsPassedOver)
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
TEST_F(SeveralFailover, IfTheServerHasNoAddressTheNextIsTried)
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

TEST_F(SeveralFailover, IfTheSecondHasNoAddressTheThirdIsTried)
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
TEST_F(SeveralFailover, IfNoneConnectsTheErrorListsAll)
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
TEST_F(SeveralFailover, WithAKeyTheNextIsTriedAsWell)
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

/* ---- breaking ---- */

/* How many descriptors the epoll set of xport_fd watches. */
static int watched(xport *x)
{
	std::ifstream f("/proc/self/fdinfo/" + std::to_string(xport_fd(x)));
	std::string line;
	int n = 0;

	while (std::getline(f, line))
		n += line.rfind("tfd:", 0) == 0;
	return n;
}

TEST_F(SeveralFailover, ATransportThatBreaksTakesOnlyItsOwnEndpoints)
{
	serve("loop:message+loop:native");
	xport *x = open("loop:message"), *y = open("loop:native");
	Pair p = connect(x), q = connect(y);
	ASSERT_NE(nullptr, p.client) << err.text;
	ASSERT_NE(nullptr, q.client) << err.text;
	all = {server, x}; /* y would report an error, as it has nothing else */
	int before = watched(server);
	loop_manners.breaks = "native";
	xport_completion lost = wait(server, XPORT_EVENT_LOST);
	EXPECT_EQ(q.server, lost.ep);
	EXPECT_EQ(XPORT_ERR_PEER_LOST, lost.status);
	EXPECT_NE(nullptr, strstr(query(q.server).why, "loop:native failed")) << query(q.server).why;
	EXPECT_TRUE(has_logged("XP-0028")) << logged;
	EXPECT_EQ(XPORT_EP_OPEN, query(p.server).state);
	talk(p, x);
	/* Its descriptor wakes nobody any more. */
	xport_ep_destroy(q.server);
	poll();
	EXPECT_GT(before, watched(server));
	/* Nobody else gets it. */
	loop_manners.breaks = nullptr;
	all = {server, x, y};
	EXPECT_EQ(nullptr, connect(open("loop:native"), 5000).client);
}

/* The only one that is open so far. */
TEST_F(SeveralFailover, IfTheFirstBreaksTheOthersServe)
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

TEST_F(SeveralFailover, IfNoneIsLeftEveryPollSaysSo)
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
TEST_F(SeveralFailover, AHandshakeGoesOnWithTheNext)
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

} // namespace
