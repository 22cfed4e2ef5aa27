/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unmade_test.cc - connections that end before they are made or accepted: what the application is notified of, and what
 * happens to the endpoint. The peer is a socket that the test controls.
 */
#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "inside_fixture.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wextra"
extern "C" {
#include "core/wire/frame.h"
#include "core/wire/hello.h"
}
#pragma GCC diagnostic pop

namespace
{

using std::chrono::steady_clock;

class Unmade : public Inside
{
protected:
	int fd = -1, listening = -1; /* the peer's */
	xpi_hello theirs{};          /* the HELLO of the instance that is tested */
	xport_listener *listener = nullptr;
	uint64_t in = 0;

	/* Both instances; the peer's address over `loop` is the other one's. */
	void SetUp() override
	{
		a = open("loop:message", nullptr);
		b = open("loop:message", nullptr);
	}
	void TearDown() override
	{
		hang_up();
		if (listening >= 0)
			close(listening);
		Inside::TearDown();
	}
	void hang_up()
	{
		if (fd >= 0)
			close(fd);
		fd = -1;
	}
	static sockaddr_in any_port()
	{
		sockaddr_in sa{};

		sa.sin_family = AF_INET;
		sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		return sa;
	}
	void say_hello(xport *as)
	{
		Bytes hello(XPI_HELLO_MAX);
		size_t n = inside_hello(as, hello.data(), hello.size());

		ASSERT_GT(n, 0u);
		ASSERT_EQ((ssize_t)n, send(fd, hello.data(), n, MSG_NOSIGNAL));
	}
	void hear_hello()
	{
		Bytes hello(XPI_HELLO_MAX);

		ASSERT_EQ(8, recv(fd, hello.data(), 8, MSG_WAITALL));
		size_t n = xpi_hello_length(hello.data());
		ASSERT_GT(n, 8u);
		ASSERT_EQ((ssize_t)n - 8, recv(fd, hello.data() + 8, n - 8, MSG_WAITALL));
		ASSERT_TRUE(xpi_hello_decode(hello.data(), n, &theirs));
	}
	/* A client of b's that has exchanged HELLOs. */
	void client()
	{
		char name[64];
		sockaddr_in sa = any_port();

		ASSERT_EQ(XPORT_OK, xport_listen(b, "127.0.0.1:0", nullptr, &listener));
		ASSERT_EQ(XPORT_OK, xport_listener_name(listener, name, sizeof(name)));
		sa.sin_port = htons((uint16_t)atoi(strrchr(name, ':') + 1));
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		ASSERT_EQ(0, ::connect(fd, (sockaddr *)&sa, sizeof(sa)));
		say_hello(a);
		char c;
		for (int i = 0; i < 10000 && recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) != 1; i++)
			EXPECT_TRUE(reap(b, 1).empty());
		hear_hello();
	}
	void say_ready() { ASSERT_EQ(1, send(fd, "R", 1, MSG_NOSIGNAL)); }
	/* A client of b's that is ready; b has not accepted it. */
	void ready_client()
	{
		client();
		say_ready();
		ASSERT_EQ(1u, reap(b, 10000, XPORT_EVENT_INCOMING).size());
	}
	/* Where a server would listen; it goes on when somebody connects. */
	std::string server()
	{
		sockaddr_in sa = any_port();
		socklen_t len = sizeof(sa);

		listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		EXPECT_EQ(0, bind(listening, (sockaddr *)&sa, len));
		EXPECT_EQ(0, listen(listening, 1));
		EXPECT_EQ(0, getsockname(listening, (sockaddr *)&sa, &len));
		return "127.0.0.1:" + std::to_string(ntohs(sa.sin_port));
	}
	/* As that server, exchanges HELLOs with a, and hears that it is ready. */
	void serve()
	{
		char ready = 0;

		fd = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
		ASSERT_GE(fd, 0);
		hear_hello();
		say_hello(b);
		ASSERT_EQ(1, recv(fd, &ready, 1, MSG_WAITALL));
		ASSERT_EQ('R', ready);
	}
	void frame_to(xport *x, uint32_t seq, const Bytes &records)
	{
		inside_frame_to(x, theirs.ep_id, theirs.session, seq, records.data(), records.size());
	}
	static Bytes message()
	{
		xpi_rec_send s{};

		s.r = record(XPI_REC_SEND, 8);
		s.tag = htole64(9);
		return bytes(s, 8);
	}
	void receive(xport *x) { ASSERT_EQ(XPORT_OK, xport_recv(x, &in, sizeof(in), 9, UINT64_MAX, nullptr)); }
	/* What comes out of so many milliseconds of polls, or until `type` does. */
	static std::vector<xport_completion> reap(xport *x, int ms, uint32_t type = 0)
	{
		auto end = steady_clock::now() + std::chrono::milliseconds(ms);
		std::vector<xport_completion> all;

		do {
			xport_completion c; /* one at a time: what follows is for the next call */
			int n = xport_poll(x, &c, 1);
			EXPECT_GE(n, 0);
			if (n == 1)
				all.push_back(c);
			if (n == 1 && c.type == type)
				break;
			std::this_thread::sleep_for(std::chrono::microseconds(100));
		} while (steady_clock::now() < end);
		return all;
	}
	/* Of an endpoint whose name the application has: LOST comes, and the name is good until it is given back. */
	void told_and_given_back(xport *x, xport_ep *named, int status)
	{
		xport_ep_info info{};

		info.size = sizeof(info);
		auto c = reap(x, 10000, XPORT_EVENT_LOST);
		ASSERT_EQ(1u, c.size());
		EXPECT_EQ(uint32_t(XPORT_EVENT_LOST), c[0].type);
		EXPECT_EQ(status, c[0].status);
		EXPECT_EQ(nullptr, c[0].context);
		ASSERT_EQ(named, c[0].ep);
		ASSERT_EQ(XPORT_OK, xport_ep_query(named, &info));
		EXPECT_EQ(status == XPORT_ERR_CLOSED ? XPORT_EP_CLOSED : XPORT_EP_LOST, info.state);
		EXPECT_EQ(nullptr, info.context);
		xport_ep_destroy(named);
		EXPECT_TRUE(reap(x, 20).empty());
		EXPECT_EQ(0u, inside_endpoints(x));
	}
	void wait_for_log(const char *what)
	{
		for (int i = 0; i < 10000 && logged.find(what) == std::string::npos; i++)
			EXPECT_TRUE(reap(b, 1).empty());
		EXPECT_NE(std::string::npos, logged.find(what)) << logged;
	}
};

/* ---- a server ---- */

TEST_F(Unmade, AMessageWaitsUntilItsClientIsReady)
{
	xport_ep_info info{};

	info.size = sizeof(info);
	client();
	receive(b);
	frame_to(b, 1, message());
	EXPECT_TRUE(reap(b, 20).empty());
	say_ready();
	ASSERT_EQ(1u, reap(b, 10000, XPORT_EVENT_INCOMING).size());
	auto c = reap(b, 10000, XPORT_OP_RECV);
	ASSERT_EQ(1u, c.size());
	ASSERT_EQ(XPORT_OK, xport_ep_query(c[0].ep, &info));
	EXPECT_EQ(XPORT_EP_OPEN, info.state);
	EXPECT_EQ(XPORT_OK, xport_send(c[0].ep, &in, sizeof(in), 1, nullptr));
}

/* Whether a receive waits for the message or not. */
TEST_F(Unmade, AMessageOfAClientThatNeverWasReadyIsDropped)
{
	client();
	receive(b);
	frame_to(b, 1, message());
	frame_to(b, 2, message());
	hang_up();
	wait_for_log("went away while the connection was being made");
	EXPECT_TRUE(reap(b, 20).empty());
	EXPECT_EQ(0u, inside_endpoints(b));
}

/* It is ready, so that INCOMING comes, and lost before anybody can accept it. */
TEST_F(Unmade, AClientThatBreaksTheProtocol)
{
	for (int i = 0; i < 2; i++) {
		xport_ep *taken = nullptr;

		client();
		frame_to(b, 7, message());
		say_ready();
		ASSERT_EQ(1u, reap(b, 10000, XPORT_EVENT_INCOMING).size());
		wait_for_log("broke the protocol");
		EXPECT_EQ(XPORT_ERR_TIMEOUT, xport_accept(listener, 0, &taken));
		EXPECT_TRUE(reap(b, 20).empty());
		EXPECT_EQ(0u, inside_endpoints(b));
		hang_up();
		logged.clear();
		xport_listener_close(listener);
	}
}

/* It has so many credits, and the network is prepared for twice as many and eight more. */
TEST_F(Unmade, AClientThatSendsTooMuchBeforeItIsReady)
{
	client();
	for (uint32_t seq = 1; logged.find("broke the protocol") == std::string::npos; seq++) {
		ASSERT_LT(seq, 1000u);
		frame_to(b, seq, message());
		EXPECT_TRUE(reap(b, 0).empty());
	}
	EXPECT_TRUE(reap(b, 20).empty());
	EXPECT_EQ(0u, inside_endpoints(b));
}

/* ---- what is ready, and not accepted ---- */

TEST_F(Unmade, WhatALostClientSentIsNotReceived)
{
	xport_ep *taken = nullptr;

	ready_client();
	frame_to(b, 1, message());
	EXPECT_TRUE(reap(b, 5).empty());
	hang_up();
	wait_for_log("PEER_LOST");
	EXPECT_TRUE(reap(b, 5).empty());
	receive(b);
	EXPECT_TRUE(reap(b, 5).empty());
	EXPECT_EQ(XPORT_ERR_TIMEOUT, xport_accept(listener, 0, &taken));
	EXPECT_TRUE(reap(b, 5).empty());
	EXPECT_EQ(0u, inside_endpoints(b));
}

TEST_F(Unmade, WhatCameOfAnEndpointGivenBackIsNotReceived)
{
	xport_ep *taken = nullptr;

	ready_client();
	ASSERT_EQ(XPORT_OK, xport_accept(listener, 0, &taken));
	frame_to(b, 1, message());
	EXPECT_TRUE(reap(b, 5).empty());
	xport_ep_destroy(taken);
	receive(b);
	EXPECT_TRUE(reap(b, 20).empty());
	EXPECT_EQ(0u, inside_endpoints(b));
}

/* It is failing when it is given back, and LOST would come: who destroys what LOST names would do so twice. */
TEST_F(Unmade, OfAnEndpointGivenBackComesNoEvent)
{
	xport_ep *taken = nullptr;

	ready_client();
	ASSERT_EQ(XPORT_OK, xport_accept(listener, 0, &taken));
	inside_frame(taken, "", 1, 0);
	xport_ep_destroy(taken);
	EXPECT_TRUE(reap(b, 20).empty());
	EXPECT_EQ(0u, inside_endpoints(b));
}

TEST_F(Unmade, AClosedListenersThatAMessageNamed)
{
	ready_client();
	receive(b);
	frame_to(b, 1, message());
	auto c = reap(b, 10000, XPORT_OP_RECV);
	ASSERT_EQ(1u, c.size());
	xport_listener_close(listener);
	told_and_given_back(b, c[0].ep, XPORT_ERR_CLOSED);
}

TEST_F(Unmade, AClosedListenersWhoseEndIsNotReaped)
{
	xport_completion c;
	char name[64];

	ASSERT_EQ(XPORT_OK, xport_listen(b, "127.0.0.1:0", nullptr, &listener));
	ASSERT_EQ(XPORT_OK, xport_listener_name(listener, name, sizeof(name)));
	ASSERT_EQ(XPORT_OK, xport_connect(a, name, nullptr, 0, &ep));
	for (int i = 0; i < 20000 && logged.find("PEER_CLOSED") == std::string::npos; i++) {
		for (auto &d : reap(a, 1))
			if (d.type == XPORT_EVENT_CONNECTED)
				xport_ep_destroy(ep);
		EXPECT_EQ(0, xport_poll(b, nullptr, 0));
	}
	EXPECT_EQ(0, xport_poll(b, nullptr, 0));
	xport_listener_close(listener);
	ASSERT_EQ(1, xport_poll(b, &c, 1));
	ASSERT_EQ(uint32_t(XPORT_EVENT_CLOSED), c.type);
	ASSERT_EQ(1u, inside_endpoints(b));
	xport_ep_destroy(c.ep);
	EXPECT_TRUE(reap(b, 20).empty());
	EXPECT_EQ(0u, inside_endpoints(b));
}

/* ---- a client ---- */

/* Neither its message nor its notification comes, and xport_connect alone reports that it failed. */
TEST_F(Unmade, AServerThatSpeaksAndIsNeverReady)
{
	xpi_rec_notify n{};

	ASSERT_EQ(XPORT_OK, xport_mr_reg(a, memory, sizeof(memory), XPORT_REMOTE_WRITE, &mr));
	n.r = record(XPI_REC_NOTIFY, 8);
	n.region = htole64(inside_region(mr));
	n.length = htole64(8);
	n.op = htole32(XPI_OP_NOBODY);
	std::string name = server();
	receive(a);
	std::thread t([&] {
		serve();
		frame_to(a, 1, bytes(n, 8));
		frame_to(a, 2, message());
		hang_up();
	});
	EXPECT_EQ(XPORT_ERR_REFUSED, xport_connect(a, name.c_str(), nullptr, 20000, &ep));
	t.join();
	EXPECT_TRUE(reap(a, 20).empty());
	EXPECT_EQ(0u, inside_endpoints(a));
}

/* It is ready, so that xport_connect succeeds, and then lost. */
TEST_F(Unmade, AServerThatBreaksTheProtocol)
{
	std::string name = server();
	std::thread t([&] {
		serve();
		frame_to(a, 7, message());
		say_ready();
	});
	ASSERT_EQ(XPORT_OK, xport_connect(a, name.c_str(), nullptr, 20000, &ep));
	t.join();
	auto c = reap(a, 10000, XPORT_EVENT_LOST);
	ASSERT_EQ(1u, c.size());
	EXPECT_EQ(ep, c[0].ep);
	EXPECT_EQ(XPORT_ERR_PROTOCOL, c[0].status);
}

/* Its socket is open and silent, so that only the network can tell. */
TEST_F(Unmade, AServerWhoseNetworkBreaksBeforeItIsReady)
{
	std::string name = server();
	xport_completion c;

	ASSERT_EQ(XPORT_OK, xport_connect(a, name.c_str(), nullptr, 0, &ep));
	std::atomic<bool> served{false};
	std::thread t([&] {
		serve();
		served = true;
	});
	while (!served)
		EXPECT_TRUE(reap(a, 1).empty());
	t.join();
	auto began = steady_clock::now();
	inside_ep_failed(ep);
	ASSERT_EQ(1, xport_wait(a, &c, 1, 10000));
	EXPECT_LT(steady_clock::now() - began, std::chrono::seconds(8));
	EXPECT_EQ(uint32_t(XPORT_EVENT_LOST), c.type);
	EXPECT_EQ(XPORT_ERR_UNREACHABLE, c.status);
}

} // namespace
