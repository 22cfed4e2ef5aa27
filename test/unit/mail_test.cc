/* SPDX-License-Identifier: BSD-3-Clause */
#include <gtest/gtest.h>

#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

extern "C" {
#include "base/mail.h"
}

namespace
{

enum { MOST = 40 };

/* A stranger's datagram of 8 bytes with `n` descriptors of `fd`. */
void send_fds(int sock, int fd, int n)
{
	alignas(cmsghdr) char control[CMSG_SPACE(MOST * sizeof(int))] = {};
	char body[] = "stranger";
	iovec iov = {body, 8};
	msghdr m = {};

	m.msg_iov = &iov;
	m.msg_iovlen = 1;
	m.msg_control = control;
	m.msg_controllen = CMSG_SPACE(static_cast<size_t>(n) * sizeof(int));
	cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(static_cast<size_t>(n) * sizeof(int));
	for (int i = 0; i < n; i++)
		memcpy(CMSG_DATA(c) + i * sizeof(int), &fd, sizeof(fd));
	ASSERT_EQ(8, sendmsg(sock, &m, 0));
}

/* The lowest descriptor that is free. */
int lowest_free()
{
	int fd = dup(0);

	close(fd);
	return fd;
}

void takes(bool user)
{
	int pair[2], zero = open("/dev/zero", O_RDONLY | O_CLOEXEC), on = user;

	ASSERT_GE(zero, 0);
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair));
	ASSERT_EQ(0, setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)));
	for (int n = 1; n <= MOST; n++) {
		struct {
			xpi_mail mail;
			unsigned char behind[64];
		} at;
		int before = lowest_free();

		SCOPED_TRACE(n);
		memset(at.behind, 0xa5, sizeof(at.behind));
		send_fds(pair[0], zero, n);
		ASSERT_TRUE(xpi_mail_take(pair[1], &at.mail));
		EXPECT_EQ(n < XPI_MAIL_FDS ? n : XPI_MAIL_FDS, at.mail.nfds);
		EXPECT_EQ(n > XPI_MAIL_FDS, at.mail.cut);
		EXPECT_EQ(8, at.mail.len);
		EXPECT_EQ(user, at.mail.has_user);
		EXPECT_EQ(user ? getuid() : 0, at.mail.user);
		for (int i = 0; i < at.mail.nfds; i++) {
			struct stat s;
			EXPECT_EQ(0, fstat(at.mail.fds[i], &s));
		}
		xpi_mail_drop(&at.mail);
		EXPECT_EQ(before, lowest_free()) << "a descriptor is left open";
		for (unsigned char b : at.behind)
			ASSERT_EQ(0xa5, b) << "written behind the mail";
	}
	close(pair[0]);
	close(pair[1]);
	close(zero);
}

TEST(Mail, TakesNoMoreDescriptorsThanItHasRoomFor)
{
	takes(false);
}

TEST(Mail, TakesThemBesideTheUser)
{
	takes(true);
}

} // namespace
