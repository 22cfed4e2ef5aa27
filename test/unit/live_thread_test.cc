/* SPDX-License-Identifier: BSD-3-Clause */
/* The helper thread of liveness, one a process, and what it knows of processes. */
#include <csignal>
#include <dirent.h>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "live_pair.h"
#include "live_shim.h"

namespace
{

int helpers()
{
	DIR *d = opendir("/proc/self/task");
	int n = 0;

	for (dirent *e; (e = readdir(d)) != nullptr;) {
		std::string name;

		std::getline(std::ifstream(std::string("/proc/self/task/") + e->d_name + "/comm"), name);
		n += name == "xport-live";
	}
	closedir(d);
	return n;
}

/* A thread that was joined, by the test before as well, is there for a moment more. */
int helpers_left()
{
	for (int64_t end = shim_now() + 10000; helpers() > 0 && shim_now() < end;)
		usleep(1000);
	return helpers();
}

} // namespace

TEST(LiveThread, OneForAllAndGoneWithTheLast)
{
	ASSERT_EQ(0, helpers_left());
	shim *a = shim_new(true), *b = shim_new(true);
	EXPECT_EQ(-1, shim_fd(a));
	EXPECT_EQ(1, helpers());
	shim_free(a);
	EXPECT_EQ(1, helpers());
	shim_free(b);
	EXPECT_EQ(0, helpers_left());
	a = shim_new(true);
	EXPECT_EQ(1, helpers());
	shim_free(a);
}

TEST(LiveThread, TakesNoSignals)
{
	shim *s = shim_new(true);
	DIR *d = opendir("/proc/self/task");
	bool seen = false;

	for (dirent *e; (e = readdir(d)) != nullptr;) {
		std::string dir = std::string("/proc/self/task/") + e->d_name, name, line;

		std::getline(std::ifstream(dir + "/comm"), name);
		std::ifstream status(dir + "/status");
		while (name == "xport-live" && std::getline(status, line))
			if (line.rfind("SigBlk:", 0) == 0) {
				seen = true;
				/* All but SIGKILL, SIGSTOP and the two of the C library. */
				unsigned long long blocked = std::stoull(line.substr(8), nullptr, 16);
				EXPECT_EQ(0u, (0x7fffffffULL & ~(1ULL << 8) & ~(1ULL << 18)) & ~blocked) << line;
			}
	}
	closedir(d);
	EXPECT_TRUE(seen);
	shim_free(s);
}

TEST(LiveThread, AForkedChildMayPutItAndTheParentGoesOn)
{
	shim *s = shim_new(true);
	Pair p;
	shim_chan *c = shim_chan_start(s, p.a, 400, 0, 0);
	pid_t child = fork();
	int status = -1;

	if (child == 0) {
		alarm(5);
		shim_put(s);
		_exit(0);
	}
	waitpid(child, &status, 0);
	EXPECT_EQ(0, status);
	EXPECT_GE(p.count(1, 300), 2);
	shim_chan_stop(c);
	shim_free(s);
}

/* This process is stopped for longer than the timeout; the peers that sent beats meanwhile are not lost. */
std::vector<int> epoll_sets()
{
	std::vector<int> found;
	char to[64];

	for (int fd = 3; fd < 200; fd++) {
		ssize_t n = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), to, sizeof(to));

		if (n > 0 && std::string(to, size_t(n)) == "anon_inode:[eventpoll]")
			found.push_back(fd);
	}
	return found;
}

/* The program closed the helper's epoll set, and its number is one of the program's now: nothing is added there. */
TEST(LiveThread, NothingIsAddedToASetOfTheProgram)
{
	pid_t child = fork();
	int status = -1;

	if (child == 0) {
		shim *s = shim_new(true);
		std::vector<int> sets = epoll_sets();
		Pair p, q;
		shim_watch *w = shim_watch_add(s, p.a, EPOLLIN, -1);

		alarm(20);
		if (sets.size() != 1 || w == nullptr)
			_exit(2);
		int mine = epoll_create1(0);
		dup2(mine, sets[0]);
		while (!shim_watch_rang(w)) /* the helper looks once a second */
			usleep(1000);
		_exit(shim_watch_add(s, q.a, EPOLLIN, -1) == nullptr ? 0 : 1);
	}
	waitpid(child, &status, 0);
	EXPECT_EQ(0, status);
}

TEST(LiveThread, StoppedIsNotLost)
{
	pid_t child = fork();
	int status = -1;

	if (child == 0) {
		shim *s = shim_new(true);
		Pair p;
		shim_chan *c = shim_chan_start(s, p.a, 400, 0, 0);

		/* The other end's beats came from a process that was not stopped. */
		for (int i = 0; i < 10; i++)
			p.beat();
		int64_t stopped = shim_now();
		raise(SIGSTOP);
		/* Nothing was heard for 700 ms, but now it is not judged at once. */
		usleep(20000);
		if (shim_chan_found(c) != 0)
			_exit(shim_now() - stopped < 850 ? 1 : 0);
		int64_t beaten = shim_now();
		p.beat();
		usleep(250000);
		if (shim_chan_found(c) != 0 && shim_now() - beaten < 400)
			_exit(2);
		for (int i = 0; i < 2000 && shim_chan_found(c) == 0; i++)
			usleep(10000);
		_exit(shim_chan_found(c) == SHIM_LOST ? 0 : 3);
	}
	ASSERT_EQ(child, waitpid(child, &status, WUNTRACED));
	ASSERT_TRUE(WIFSTOPPED(status));
	usleep(700000);
	kill(child, SIGCONT);
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status) << "exit status " << WEXITSTATUS(status);
}

TEST(Process, Start)
{
	pid_t child = fork();

	if (child == 0) {
		pause();
		_exit(0);
	}
	EXPECT_NE(0u, shim_process_start(0));
	EXPECT_EQ(shim_process_start(0), shim_process_start(getpid()));
	EXPECT_GE(shim_process_start(child), shim_process_start(0));
	kill(child, SIGKILL);
	waitpid(child, nullptr, 0);
	EXPECT_EQ(0u, shim_process_start(child));
}
