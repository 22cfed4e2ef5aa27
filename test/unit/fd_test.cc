/* SPDX-License-Identifier: BSD-3-Clause */
#include <gtest/gtest.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include "base/fd.h"
}

namespace
{

/* Runs `f` in a child, which may close its standard streams. */
template <typename F> int in_child(F f)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0)
		_exit(f());
	EXPECT_EQ(pid, waitpid(pid, &status, 0));
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void close_low()
{
	for (int fd = 0; fd <= 2; fd++)
		close(fd);
}

TEST(Fd, NewDescriptorMovesAboveTwo)
{
	EXPECT_EQ(0, in_child([] {
			  close_low();
			  int fd = xpi_fd_up(socket(AF_UNIX, SOCK_STREAM, 0));

			  if (fd <= 2 || (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0)
				  return 1;
			  for (int low = 0; low <= 2; low++)
				  if (fcntl(low, F_GETFD) >= 0)
					  return 2;
			  return 0;
		  }));
}

TEST(Fd, HigherOneStaysAsItIs)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	ASSERT_GT(fd, 2);
	EXPECT_EQ(fd, xpi_fd_up(fd));
	close(fd);
	errno = EMFILE;
	EXPECT_EQ(-1, xpi_fd_up(-1));
	EXPECT_EQ(EMFILE, errno);
}

TEST(Fd, StreamsAndDirectoriesAreAboveTwo)
{
	EXPECT_EQ(0, in_child([] {
			  close_low();
			  FILE *f = xpi_fd_stream("/proc/self/status");
			  DIR *d = xpi_fd_dir("/proc");

			  if (f == nullptr || d == nullptr)
				  return 1;
			  bool above = fileno(f) > 2 && dirfd(d) > 2;
			  fclose(f);
			  closedir(d);
			  return above ? 0 : 2;
		  }));
	EXPECT_EQ(nullptr, xpi_fd_stream("/nonexistent"));
	EXPECT_EQ(ENOENT, errno);
	EXPECT_EQ(nullptr, xpi_fd_dir("/nonexistent"));
	EXPECT_EQ(ENOENT, errno);
}

TEST(Fd, PlaceholderFailsToReadAndWrite)
{
	EXPECT_EQ(0, in_child([] {
			  char byte;

			  close(0);
			  close(2);
			  errno = ENOSPC;
			  xpi_fd_fill();
			  if (errno != ENOSPC)
				  return 1;
			  for (int low = 0; low <= 2; low += 2)
				  if ((fcntl(low, F_GETFD) & FD_CLOEXEC) == 0 || read(low, &byte, 1) >= 0 ||
			              errno != EBADF || write(low, "x", 1) >= 0 || errno != EBADF)
					  return 2;
			  int next = open("/dev/null", O_RDONLY);

			  return next > 2 && (fcntl(1, F_GETFD) & FD_CLOEXEC) == 0 ? 0 : 3;
		  }));
}

TEST(Fd, IdentityIsThatOfTheFile)
{
	int p[2], q[2];

	ASSERT_EQ(0, pipe(p));
	ASSERT_EQ(0, pipe(q));
	struct xpi_fd_id id = xpi_fd_identify(p[1]);

	EXPECT_TRUE(xpi_fd_is(p[1], &id));
	ASSERT_EQ(p[1], dup2(q[1], p[1]));
	EXPECT_FALSE(xpi_fd_is(p[1], &id));
	close(p[1]);
	errno = ENOSPC;
	EXPECT_FALSE(xpi_fd_is(p[1], &id));
	id = xpi_fd_identify(p[1]);
	EXPECT_EQ(ENOSPC, errno);
	EXPECT_FALSE(xpi_fd_is(q[1], &id));
	for (int fd : {p[0], q[0], q[1]})
		close(fd);
}

} // namespace
