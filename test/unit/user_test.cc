/* SPDX-License-Identifier: BSD-3-Clause */
/* base/user.h: the user of the process at the other end of a local connection. */
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <ostream>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include "base/user.h"
}

namespace
{

constexpr uid_t NOBODY = 65534;

/* A loopback connection, made but not accepted yet. */
struct Connection {
	sockaddr_storage at{};
	socklen_t len = sizeof(at);
	int listener, client, server = -1;

	/* `family`: of the listener; `both`: it takes IPv4 as well, and the client comes by that. */
	explicit Connection(int family, bool both = false)
	{
		int v6only = !both;

		listener = socket(family, SOCK_STREAM, 0);
		at.ss_family = static_cast<sa_family_t>(family);
		if (family == AF_INET) {
			reinterpret_cast<sockaddr_in *>(&at)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		} else {
			setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, sizeof(v6only));
			reinterpret_cast<sockaddr_in6 *>(&at)->sin6_addr = both ? in6addr_any : in6addr_loopback;
		}
		len = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
		made = bind(listener, reinterpret_cast<sockaddr *>(&at), len) == 0 && listen(listener, 1) == 0 &&
		       getsockname(listener, reinterpret_cast<sockaddr *>(&at), &len) == 0;
		if (both) {
			sockaddr_in in{};

			in.sin_family = AF_INET;
			in.sin_port = reinterpret_cast<sockaddr_in6 *>(&at)->sin6_port;
			in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
			memcpy(&at, &in, sizeof(in));
			len = sizeof(in);
		}
		client = socket(at.ss_family, SOCK_STREAM, 0);
	}

	~Connection()
	{
		close(listener);
		close(client);
		close(server);
	}

	bool connect_client() { return made && connect(client, reinterpret_cast<sockaddr *>(&at), len) == 0; }

	bool accept_it()
	{
		server = accept(listener, nullptr, nullptr);
		return server >= 0;
	}

	bool made;
};

struct Kind {
	int family;
	bool both;
};

/* Without it GoogleTest prints the bytes, and those between the members have no value. */
void PrintTo(const Kind &kind, std::ostream *to)
{
	*to << (kind.family == AF_INET ? "IPv4" : "IPv6") << (kind.both ? " and IPv4" : "");
}

class User : public testing::TestWithParam<Kind>
{
};

TEST_P(User, OfBothEndsIsOurs)
{
	Connection c(GetParam().family, GetParam().both);
	uid_t uid = NOBODY + 1;

	if (!c.made)
		GTEST_SKIP() << "this machine has no such address";
	ASSERT_TRUE(c.connect_client() && c.accept_it());
	EXPECT_EQ(XPI_PEER_OURS, xpi_peer_user(c.server, &uid));
	EXPECT_EQ(geteuid(), uid);
	EXPECT_EQ(XPI_PEER_OURS, xpi_peer_user(c.client, &uid));
}

TEST_P(User, IsUnknownBeforeTheListenerAcceptsAndAfterTheEndIsClosed)
{
	Connection c(GetParam().family, GetParam().both);
	uid_t uid;

	if (!c.made)
		GTEST_SKIP() << "this machine has no such address";
	ASSERT_TRUE(c.connect_client());
	EXPECT_EQ(XPI_PEER_UNKNOWN, xpi_peer_user(c.client, &uid)) << "the kernel calls it root's";
	ASSERT_TRUE(c.accept_it());
	close(c.client);
	c.client = -1;
	EXPECT_EQ(XPI_PEER_UNKNOWN, xpi_peer_user(c.server, &uid));
}

/* Both ways of asking find the same. */
TEST_P(User, ByProcIsAsByDiag)
{
	Connection c(GetParam().family, GetParam().both);
	sockaddr_storage a{}, b{};
	socklen_t alen = sizeof(a), blen = sizeof(b);
	xpi_socket_owner diag{}, proc{};
	struct stat st;

	if (!c.made)
		GTEST_SKIP() << "this machine has no such address";
	ASSERT_TRUE(c.connect_client() && c.accept_it());
	ASSERT_EQ(0, getsockname(c.client, reinterpret_cast<sockaddr *>(&a), &alen));
	ASSERT_EQ(0, getpeername(c.client, reinterpret_cast<sockaddr *>(&b), &blen));
	ASSERT_EQ(1, xpi_user_by_proc(&a, &b, &proc));
	ASSERT_EQ(0, fstat(c.client, &st));
	EXPECT_EQ(st.st_ino, proc.inode);
	EXPECT_EQ(geteuid(), proc.uid);
	ASSERT_EQ(1, xpi_user_by_proc(&b, &a, &proc));
	ASSERT_EQ(0, fstat(c.server, &st));
	EXPECT_EQ(st.st_ino, proc.inode);
	if (xpi_user_by_diag(&b, &a, &diag) < 0)
		GTEST_SKIP() << "this kernel has no sock_diag for TCP";
	EXPECT_EQ(proc.inode, diag.inode);
	EXPECT_EQ(proc.uid, diag.uid);
	/* A listener there is no end of the connection. */
	close(c.server);
	close(c.client);
	c.client = c.server = -1;
	EXPECT_TRUE(xpi_user_by_diag(&b, &a, &diag) == 0 || diag.inode == 0);
	EXPECT_TRUE(xpi_user_by_proc(&b, &a, &proc) == 0 || proc.inode == 0);
}

TEST_P(User, OfAnotherUsersProcessIsAnothers)
{
	Connection c(GetParam().family, GetParam().both);
	uid_t uid = 0;
	int go[2];
	char byte = 0;

	if (geteuid() != 0)
		GTEST_SKIP() << "needs root, to have a process of another user";
	if (!c.made)
		GTEST_SKIP() << "this machine has no such address";
	ASSERT_EQ(0, pipe(go));
	pid_t pid = fork();
	if (pid == 0) {
		int fd = -1;

		if (setuid(NOBODY) == 0)
			fd = socket(c.at.ss_family, SOCK_STREAM, 0);
		if (fd < 0 || connect(fd, reinterpret_cast<sockaddr *>(&c.at), c.len) != 0)
			_exit(1);
		close(go[1]);
		(void)!read(go[0], &byte, 1);
		_exit(0);
	}
	ASSERT_TRUE(c.accept_it());
	EXPECT_EQ(XPI_PEER_OTHERS, xpi_peer_user(c.server, &uid));
	EXPECT_EQ(NOBODY, uid);
	close(go[0]);
	close(go[1]);
	waitpid(pid, nullptr, 0);
}

INSTANTIATE_TEST_SUITE_P(Over, User,
                         testing::Values(Kind{AF_INET, false}, Kind{AF_INET6, false}, Kind{AF_INET6, true}));

TEST(UserIds, RootIsNotNobody)
{
	EXPECT_TRUE(xpi_user_is_ours(geteuid()));
	EXPECT_FALSE(xpi_user_is_ours(geteuid() + 1));
}

/* In a user namespace without a map all users are the overflow user, ourselves as well: that proves nothing. */
TEST(UserIds, OverflowUserIsNotOursWhereUsersAreNotMapped)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		if (unshare(CLONE_NEWUSER) != 0)
			_exit(2);
		_exit(xpi_user_is_ours(geteuid()) ? 1 : 0);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
		GTEST_SKIP() << "this system makes no user namespaces";
	EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(UserIds, NoSocketIsNobodys)
{
	uid_t uid;
	int pair[2];

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	EXPECT_EQ(XPI_PEER_UNKNOWN, xpi_peer_user(pair[0], &uid));
	EXPECT_EQ(XPI_PEER_UNKNOWN, xpi_peer_user(-1, &uid));
	close(pair[0]);
	close(pair[1]);
}

} // namespace
