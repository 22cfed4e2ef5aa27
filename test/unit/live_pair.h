/* SPDX-License-Identifier: BSD-3-Clause */
/* live_pair.h - a connection for the tests of liveness; the test plays its other end. */
#ifndef UNIT_LIVE_PAIR_H
#define UNIT_LIVE_PAIR_H

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "live_shim.h"

/* A connected pair over loopback TCP: [0] for the library, non-blocking, [1] for the test. */
struct Pair {
	int a = -1, b = -1;

	Pair()
	{
		sockaddr_in sin{};
		socklen_t len = sizeof(sin);
		int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		sin.sin_family = AF_INET;
		sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		EXPECT_EQ(0, bind(l, reinterpret_cast<sockaddr *>(&sin), len));
		EXPECT_EQ(0, listen(l, 1));
		EXPECT_EQ(0, getsockname(l, reinterpret_cast<sockaddr *>(&sin), &len));
		b = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		EXPECT_EQ(0, connect(b, reinterpret_cast<sockaddr *>(&sin), len));
		a = accept4(l, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
		EXPECT_GE(a, 0);
		close(l);
	}
	~Pair() { closeB(); }
	void closeB()
	{
		if (b >= 0)
			close(b);
		b = -1;
	}
	void put(const std::vector<uint8_t> &bytes)
	{
		EXPECT_EQ(ssize_t(bytes.size()), send(b, bytes.data(), bytes.size(), MSG_NOSIGNAL));
	}
	void beat() { put({1, 0, 0, 0, 0, 0, 0, 0}); }
	/* Reads frames of one type until `ms` have passed; how many. */
	int count(uint8_t type, int ms)
	{
		int64_t end = shim_now() + ms;
		int n = 0;

		for (int64_t left; (left = end - shim_now()) > 0;) {
			pollfd pfd{b, POLLIN, 0};
			uint8_t f[8];

			if (poll(&pfd, 1, int(left)) <= 0)
				break;
			if (recv(b, f, 8, MSG_WAITALL) != 8)
				break;
			EXPECT_EQ(0, f[1] | f[2] | f[3] | f[4] | f[5] | f[6] | f[7]);
			n += f[0] == type;
		}
		return n;
	}
};

#endif
