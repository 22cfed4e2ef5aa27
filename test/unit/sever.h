/* SPDX-License-Identifier: BSD-3-Clause */
/* sever.h - a peer that is lost in the same process. */
#ifndef TEST_UNIT_SEVER_H
#define TEST_UNIT_SEVER_H

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>

#include "xport.h"

/* Ends the control channels of what a listener has accepted.  Returns how many. */
inline int sever(xport_listener *listener)
{
	char name[64];
	int severed = 0;

	EXPECT_EQ(XPORT_OK, xport_listener_name(listener, name, sizeof(name)));
	int port = atoi(strrchr(name, ':') + 1);
	for (int fd = 0; fd < 1024; fd++) {
		sockaddr_in own{}, other{};
		socklen_t len = sizeof(own), other_len = sizeof(other);
		if (getsockname(fd, reinterpret_cast<sockaddr *>(&own), &len) != 0 || own.sin_family != AF_INET ||
		    ntohs(own.sin_port) != port)
			continue;
		if (getpeername(fd, reinterpret_cast<sockaddr *>(&other), &other_len) != 0)
			continue;
		severed += shutdown(fd, SHUT_RDWR) == 0;
	}
	return severed;
}

#endif
