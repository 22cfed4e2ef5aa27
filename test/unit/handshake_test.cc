/* SPDX-License-Identifier: BSD-3-Clause */
/* handshake_test.cc - the bytes of a handshake, as sockets deliver them when they are full, late, or gone. */
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "inside_fixture.h"

namespace
{

class Handshake : public Inside
{
protected:
	int fd[2] = {-1, -1};
	inside_conn *conn = nullptr;

	void begin(inside_step step)
	{
		if (a == nullptr)
			a = open("loop:message", nullptr);
		ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd));
		conn = inside_conn_new(a, fd[0], step);
	}
	void end()
	{
		inside_conn_free(conn); /* with its socket */
		if (fd[1] >= 0)
			close(fd[1]);
		fd[1] = -1;
	}
	void hang_up()
	{
		close(fd[1]);
		fd[1] = -1;
	}
	std::string why()
	{
		xport_error e{};

		e.size = sizeof(e);
		EXPECT_EQ(XPORT_OK, xport_last_error(a, &e));
		return e.text;
	}
	size_t fill_up()
	{
		char block[4096] = {};
		size_t n = 0;
		ssize_t r;

		while ((r = send(fd[0], block, sizeof(block), MSG_DONTWAIT)) > 0)
			n += (size_t)r;
		return n;
	}
	void drain(size_t n)
	{
		char block[4096];

		while (n > 0) {
			ssize_t r = recv(fd[1], block, n < sizeof(block) ? n : sizeof(block), 0);
			ASSERT_GT(r, 0);
			n -= (size_t)r;
		}
	}
};

TEST_F(Handshake, AFullSocketIsTriedAgain)
{
	begin(INSIDE_HELLO);
	size_t n = fill_up();
	EXPECT_EQ(0, inside_flush(conn, 10, 20)) << "not even the word";
	drain(n);
	EXPECT_EQ(1, inside_flush(conn, 10, 20));
	char got[64];
	EXPECT_EQ(30, recv(fd[1], got, sizeof(got), 0));
	end();
}

TEST_F(Handshake, BeforeItsStepNoHelloIsSent)
{
	begin(INSIDE_TCP);
	char got[64];
	EXPECT_EQ(1, inside_flush(conn, 10, 20));
	EXPECT_EQ(10, recv(fd[1], got, sizeof(got), 0));
	end();
}

TEST_F(Handshake, WhyASocketBrokeIsForReadingToTell)
{
	begin(INSIDE_HELLO);
	hang_up();
	EXPECT_EQ(1, inside_flush(conn, 10, 20));
	EXPECT_EQ(XPORT_ERR_REFUSED, inside_fill(conn, 8));
	EXPECT_NE(std::string::npos, why().find("somebody went away without an answer")) << why();
	end();
}

/* Else the kernel's ignorance would be the reason, and not what the peer says as it goes. */
TEST_F(Handshake, AUserThatTheKernelDoesNotKnowIsAskedForAgainForAMoment)
{
	begin(INSIDE_NATIVE_STEP);
	EXPECT_EQ(XPORT_ERR_AGAIN, inside_same_user(conn, 0));
	EXPECT_EQ(XPORT_ERR_AUTH, inside_same_user(conn, 1000));
	EXPECT_NE(std::string::npos, why().find("the kernel does not say")) << why();
	end();
}

TEST_F(Handshake, APeerThatGoesLater)
{
	begin(INSIDE_NATIVE_STEP);
	EXPECT_EQ(0, inside_fill(conn, 8));
	ASSERT_EQ(1, send(fd[0], "x", 1, 0)); /* unread there, so that it ends in an error here */
	hang_up();
	EXPECT_EQ(XPORT_ERR_REFUSED, inside_fill(conn, 8));
	EXPECT_NE(std::string::npos, why().find("while the connection was being made")) << why();
	EXPECT_NE(std::string::npos, why().find(strerror(ECONNRESET))) << why();
	end();
}

TEST_F(Handshake, NeverOneByteTooMany)
{
	begin(INSIDE_HELLO);
	ASSERT_EQ(5, send(fd[1], "12345", 5, 0));
	EXPECT_EQ(0, inside_fill(conn, 8));
	ASSERT_EQ(5, send(fd[1], "67890", 5, 0));
	EXPECT_EQ(1, inside_fill(conn, 8));
	char rest[8];
	EXPECT_EQ(2, recv(fd[0], rest, sizeof(rest), 0));
	end();
}

TEST_F(Handshake, WhatIsWaitedForAndUntilWhen)
{
	uint32_t events;
	int64_t until;

	begin(INSIDE_TCP);
	ASSERT_EQ(XPORT_OK, inside_watch(conn, 5000, 700, &events, &until));
	EXPECT_EQ(uint32_t(EPOLLOUT), events);
	EXPECT_EQ(700, until) << "this address";
	end();
	begin(INSIDE_TCP);
	ASSERT_EQ(XPORT_OK, inside_watch(conn, 5000, 7000, &events, &until));
	EXPECT_EQ(5000, until) << "all of it";
	end();
	begin(INSIDE_REFUSING);
	ASSERT_EQ(XPORT_OK, inside_watch(conn, 5000, 0, &events, &until));
	EXPECT_EQ(uint32_t(EPOLLOUT), events);
	EXPECT_EQ(5000, until);
	end();
	begin(INSIDE_HELLO);
	ASSERT_EQ(XPORT_OK, inside_watch(conn, 5000, 0, &events, &until));
	EXPECT_EQ(uint32_t(EPOLLIN), events);
	end();
	begin(INSIDE_NATIVE_STEP);
	ASSERT_EQ(XPORT_OK, inside_watch(conn, 5000, 0, &events, &until));
	EXPECT_GE(until, 1) << "the back end is asked again soon";
	EXPECT_LE(until, 1000);
	end();
	begin(INSIDE_NATIVE_STEP);
	ASSERT_EQ(XPORT_OK, inside_watch(conn, 2, 0, &events, &until));
	EXPECT_EQ(2, until) << "but no later than the end";
	end();
	begin(INSIDE_HELLO);
	fill_up();
	EXPECT_EQ(0, inside_flush(conn, 10, 0));
	ASSERT_EQ(XPORT_OK, inside_watch(conn, 5000, 0, &events, &until));
	EXPECT_EQ(uint32_t(EPOLLIN | EPOLLOUT), events) << "a word that is not out";
	end();
}

} // namespace
