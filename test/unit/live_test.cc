/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "live_pair.h"
#include "live_shim.h"

namespace
{

/* What this test machine may be late by, a busy one included. */
const int SLACK = 1500;

class Live : public testing::TestWithParam<bool>
{
protected:
	shim *s = nullptr;

	void SetUp() override { s = shim_new(GetParam()); }
	void TearDown() override { shim_free(s); }
	/* Waits until something is found at the channel. */
	bool find(shim_chan *c, unsigned what, int ms)
	{
		int64_t end = shim_now() + ms;

		while (!(shim_chan_found(c) & what)) {
			int64_t left = end - shim_now();

			if (left <= 0)
				return false;
			(void)shim_wait(s, int(left));
		}
		return true;
	}
	void run(int ms)
	{
		for (int64_t end = shim_now() + ms, left; (left = end - shim_now()) > 0;)
			(void)shim_wait(s, int(left));
	}
};

} // namespace

INSTANTIATE_TEST_SUITE_P(, Live, testing::Bool(),
                         [](const testing::TestParamInfo<bool> &i) { return i.param ? "Thread" : "Poll"; });

TEST_P(Live, BeatsAtOnceAndFourTimesATimeout)
{
	Pair p;
	shim_chan *c = shim_chan_start(s, p.a, 400, 0, 0);
	int64_t began = shim_now(), last = began, longest = 0, now;
	int n = 0;

	ASSERT_NE(nullptr, c);
	/* So that it is not lost meanwhile, unless nothing runs here for so long. */
	for (int i = 0; i < 20; i++, last = now) {
		p.beat();
		run(50);
		now = shim_now();
		longest = now - last > longest ? now - last : longest;
	}
	if (longest < 350) {
		EXPECT_EQ(0u, shim_chan_found(c));
	}
	n = p.count(1, 1);
	for (int more; (more = p.count(1, 1)) > 0;)
		n += more;
	EXPECT_GE(n, longest < 350 ? 8 : 1);
	EXPECT_LE(n, (shim_now() - began) / 100 + 3);
	shim_chan_stop(c);
}

TEST_P(Live, SilenceIsLoss)
{
	Pair p;
	int64_t began = shim_now();
	shim_chan *c = shim_chan_start(s, p.a, 300, 0, 0);

	ASSERT_TRUE(find(c, SHIM_LOST, 300 + SLACK));
	EXPECT_GE(shim_now() - began, 300);
	EXPECT_STREQ("no sign of life for 300 ms", shim_chan_why(c));
	shim_chan_stop(c);
}

TEST_P(Live, EndWithoutByeIsLossAtOnce)
{
	Pair p;
	shim_chan *c = shim_chan_start(s, p.a, 10000, 0, 0);

	/* Closing with something unread would be a reset. */
	EXPECT_EQ(1, p.count(1, 20));
	p.closeB();
	ASSERT_TRUE(find(c, SHIM_LOST, SLACK));
	EXPECT_NE(nullptr, strstr(shim_chan_why(c), "without a goodbye")) << shim_chan_why(c);
	shim_chan_stop(c);
}

TEST_P(Live, ResetIsLossAtOnce)
{
	Pair p;
	linger hard{1, 0};
	shim_chan *c = shim_chan_start(s, p.a, 10000, 0, 0);

	setsockopt(p.b, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	p.closeB();
	ASSERT_TRUE(find(c, SHIM_LOST, SLACK));
	EXPECT_NE(nullptr, strstr(shim_chan_why(c), "broke")) << shim_chan_why(c);
	shim_chan_stop(c);
}

TEST_P(Live, ByeThenEndIsOnlyBye)
{
	Pair p;
	shim_chan *c = shim_chan_start(s, p.a, 200, 0, 0);

	p.put({2, 0, 0, 0, 0, 0, 0, 0});
	p.closeB();
	ASSERT_TRUE(find(c, SHIM_BYE, SLACK));
	run(600);
	EXPECT_EQ(unsigned(SHIM_BYE), shim_chan_found(c));
	shim_chan_stop(c);
}

TEST_P(Live, ByeTellsWhatThePeerHadTaken)
{
	Pair p;
	shim_chan *c = shim_chan_start(s, p.a, 10000, 0, 0);

	p.put({2, 5, 0, 0x80, 0, 0, 0, 0, 2, 9, 9, 9, 0, 0, 0, 0}); /* the first counts */
	ASSERT_TRUE(find(c, SHIM_BYE, SLACK));
	EXPECT_EQ(0x800005u, shim_chan_bye_ack(c, 0));
	EXPECT_EQ(0x800005u, shim_chan_bye_ack(c, 0x800005));
	EXPECT_EQ(0x1800005u, shim_chan_bye_ack(c, 0x800006)) << "more than was ever sent: nothing is known";
	EXPECT_EQ(0x77800005u, shim_chan_bye_ack(c, 0x77800000));
	EXPECT_EQ(0x00800005u, shim_chan_bye_ack(c, 0xfffffff0));
	shim_chan_stop(c);
}

TEST_P(Live, ByeThenSilenceIsLoss)
{
	Pair p;
	shim_chan *c = shim_chan_start(s, p.a, 200, 0, 0);

	p.put({2, 0, 0, 0, 0, 0, 0, 0});
	ASSERT_TRUE(find(c, SHIM_BYE, SLACK));
	EXPECT_TRUE(find(c, SHIM_LOST, 200 + SLACK));
	shim_chan_stop(c);
}

TEST_P(Live, GoneIsLoss)
{
	Pair p;
	shim_chan *c = shim_chan_start(s, p.a, 10000, 0, 0);

	p.put({3, 0, 0, 0, 0, 0, 0, 0});
	ASSERT_TRUE(find(c, SHIM_LOST, SLACK));
	EXPECT_NE(nullptr, strstr(shim_chan_why(c), "aborted")) << shim_chan_why(c);
	shim_chan_stop(c);
}

/* It had not heard yet that the connection was ready: "F", a status, and why. */
TEST_P(Live, APeerThatGaveUpIsLossWithoutDamage)
{
	Pair p;
	shim_chan *c = shim_chan_start(s, p.a, 10000, 0, 0);

	p.put({'F', 255, 255, 255, 248, 0, 4, 'g', 'o', 'n', 'e'});
	ASSERT_TRUE(find(c, SHIM_LOST, SLACK));
	EXPECT_STREQ("the peer gave up before the connection was ready", shim_chan_why(c));
	shim_chan_stop(c);
}

TEST_P(Live, DamageIsLoss)
{
	for (std::vector<uint8_t> bytes :
	     std::vector<std::vector<uint8_t>>{{0, 0, 0, 0, 0, 0, 0, 0},
	                                       {4, 0, 0, 0, 0, 0, 0, 0},
	                                       {1, 0, 0, 0, 0, 0, 0, 2},
	                                       {2, 0, 0, 0, 1, 0, 0, 0},
	                                       {2, 0, 0, 0, 0, 0, 0, 1},
	                                       {3, 2, 0, 0, 0, 0, 0, 0},
	                                       {3, 0, 0, 128, 0, 0, 0, 0},
	                                       {3, 0, 0, 0, 0, 1, 0, 0},
	                                       {1, 0, 0, 0, 0, 0, 0, 0, 'G', 'E', 'T', ' ', '/', ' ', 'H', 'T'}}) {
		Pair p;
		shim_chan *c = shim_chan_start(s, p.a, 10000, 0, 0);

		p.put(bytes);
		ASSERT_TRUE(find(c, SHIM_LOST, SLACK));
		EXPECT_EQ(unsigned(SHIM_LOST), shim_chan_found(c));
		EXPECT_EQ(0, strncmp("damaged", shim_chan_why(c), 7)) << shim_chan_why(c);
		shim_chan_stop(c);
	}
}

TEST_P(Live, FramesMayComeInPieces)
{
	Pair p;
	shim_chan *c = shim_chan_start(s, p.a, 10000, 0, 0);
	int one = 1;

	setsockopt(p.b, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (uint8_t byte : {1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0}) {
		p.put({byte});
		run(5);
	}
	EXPECT_EQ(0u, shim_chan_found(c));
	p.put({0});
	EXPECT_TRUE(find(c, SHIM_BYE, SLACK));
	EXPECT_EQ(unsigned(SHIM_BYE), shim_chan_found(c));
	shim_chan_stop(c);
}

TEST_P(Live, TellsThePeer)
{
	for (bool proper : {true, false}) {
		Pair p;
		shim_chan *c = shim_chan_start(s, p.a, 10000, 0, 0);
		uint8_t f[8];

		ASSERT_EQ(8, recv(p.b, f, 8, MSG_WAITALL));
		EXPECT_EQ(1, f[0]);
		/* With something unread, closing must not take the goodbye back. */
		p.beat();
		usleep(1000);
		shim_chan_bye(c, proper);
		shim_chan_stop(c);
		ASSERT_EQ(8, recv(p.b, f, 8, MSG_WAITALL));
		EXPECT_EQ(0, memcmp(f, proper ? "\x02\x98\xba\xdc\0\0\0" : "\x03\0\0\0\0\0\0", 8));
		EXPECT_EQ(0, recv(p.b, f, 8, 0));
	}
}

/* Kernels before 5.3 and valgrind 3.19 do not have it. */
#define NEED_PIDFD() \
	do { \
		int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0); \
		if (pidfd < 0) \
			GTEST_SKIP() << "capability 'pidfd' is absent: pidfd_open: " << strerror(errno); \
		close(pidfd); \
	} while (0)

TEST_P(Live, EndOfProcessIsSeenThoughItsSocketLivesOn)
{
	NEED_PIDFD();
	Pair p; /* the test keeps p.b open: no end of file */
	pid_t child = fork();

	if (child == 0) {
		pause();
		_exit(0);
	}
	shim_chan *c = shim_chan_start(s, p.a, 10000, child, shim_process_start(child));
	ASSERT_TRUE(shim_chan_has_pidfd(c));
	run(50);
	EXPECT_EQ(0u, shim_chan_found(c));
	int64_t began = shim_now();
	kill(child, SIGKILL);
	EXPECT_TRUE(find(c, SHIM_LOST, SLACK));
	EXPECT_LT(shim_now() - began, SLACK);
	EXPECT_NE(nullptr, strstr(shim_chan_why(c), "process")) << shim_chan_why(c);
	shim_chan_stop(c);
	waitpid(child, nullptr, 0);
}

TEST_P(Live, EndOfProcessAfterByeIsOnlyBye)
{
	NEED_PIDFD();
	Pair p;
	pid_t child = fork();

	if (child == 0) {
		pause();
		_exit(0);
	}
	shim_chan *c = shim_chan_start(s, p.a, 2000, child, shim_process_start(child));
	/* Both at once: what it said counts, whichever descriptor is looked at first. */
	p.put({2, 0, 0, 0, 0, 0, 0, 0});
	kill(child, SIGKILL);
	EXPECT_TRUE(find(c, SHIM_BYE, SLACK));
	run(2200);
	EXPECT_EQ(unsigned(SHIM_BYE), shim_chan_found(c));
	shim_chan_stop(c);
	waitpid(child, nullptr, 0);
}

/* The number of a process that has ended, and when it had begun. */
static pid_t dead_child(uint64_t *start)
{
	pid_t child = fork();

	if (child == 0) {
		pause();
		_exit(0);
	}
	*start = shim_process_start(child);
	kill(child, SIGKILL);
	waitpid(child, nullptr, 0);
	return child;
}

/* It died just before; what holds its end of the connection open is a child of it, say. */
TEST_P(Live, ProcessThatEndedBeforeIsSeenThoughItsSocketLivesOn)
{
	Pair p;
	uint64_t start;
	pid_t child = dead_child(&start);

	shim_chan *c = shim_chan_start(s, p.a, 10000, child, start);
	EXPECT_TRUE(find(c, SHIM_LOST, SLACK));
	EXPECT_NE(nullptr, strstr(shim_chan_why(c), "process")) << shim_chan_why(c);
	shim_chan_stop(c);
}

TEST_P(Live, ProcessThatSaidByeAndEndedBeforeIsOnlyBye)
{
	Pair p;
	uint64_t start;
	pid_t child = dead_child(&start);

	p.put({2, 0, 0, 0, 0, 0, 0, 0});
	shim_chan *c = shim_chan_start(s, p.a, 300, child, start);
	EXPECT_TRUE(find(c, SHIM_BYE, SLACK));
	run(500);
	EXPECT_EQ(unsigned(SHIM_BYE), shim_chan_found(c));
	shim_chan_stop(c);
}

TEST_P(Live, AnotherProcessOfThatNumberIsNotMeant)
{
	Pair p;
	shim_chan *c = shim_chan_start(s, p.a, 10000, getpid(), shim_process_start(0) + 1);

	EXPECT_FALSE(shim_chan_has_pidfd(c));
	shim_chan_stop(c);
}

TEST_P(Live, WatchRingsOnce)
{
	Pair p;
	shim_watch *w = shim_watch_add(s, p.a, EPOLLIN, -1);

	EXPECT_FALSE(shim_wait(s, 30));
	p.beat();
	EXPECT_TRUE(shim_wait(s, SLACK));
	EXPECT_TRUE(shim_watch_rang(w));
	p.beat();
	EXPECT_FALSE(shim_wait(s, 30));
	shim_watch_arm(w, EPOLLIN, -1);
	EXPECT_TRUE(shim_wait(s, SLACK));
	shim_watch_remove(w);
	close(p.a);
}

TEST_P(Live, DeadlineRingsOnceAndInTime)
{
	Pair p;
	int64_t began = shim_now();
	shim_watch *w = shim_watch_add(s, p.a, EPOLLIN, began + 100);

	EXPECT_TRUE(shim_wait(s, 100 + SLACK));
	EXPECT_GE(shim_now(), began + 100);
	EXPECT_FALSE(shim_wait(s, 50));
	/* Passed already: at once. */
	shim_watch_arm(w, EPOLLIN, began);
	EXPECT_TRUE(shim_wait(s, SLACK));
	shim_watch_arm(w, 0, -1);
	p.beat();
	EXPECT_FALSE(shim_wait(s, 50));
	shim_watch_remove(w);
	close(p.a);
}

TEST_P(Live, NothingComesFromWhatWasRemoved)
{
	Pair p, q;
	shim_watch *w = shim_watch_add(s, p.a, EPOLLIN, shim_now() + 500);
	shim_chan *c = shim_chan_start(s, q.a, 600, 0, 0);

	shim_watch_remove(w);
	shim_chan_stop(c);
	p.beat();
	EXPECT_FALSE(shim_wait(s, 800));
	close(p.a);
}

TEST_P(Live, APeerThatDoesNotReadIsNoReasonToBlock)
{
	Pair p;
	int small = 1, n = 0;
	uint8_t f[8];

	setsockopt(p.a, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	setsockopt(p.b, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	shim_chan *c = shim_chan_start(s, p.a, 3600000, 0, 0);
	int64_t began = shim_now();
	/* GONE is the frame that can be sent as often as one likes. */
	for (int i = 0; i < 100000; i++)
		shim_chan_bye(c, false);
	EXPECT_LT(shim_now() - began, 5000);
	shim_chan_stop(c);
	/* What arrived is whole frames. */
	while (recv(p.b, f, 8, MSG_WAITALL) == 8) {
		EXPECT_TRUE((f[0] == 1 || f[0] == 3) && (f[1] | f[2] | f[3] | f[4] | f[5] | f[6] | f[7]) == 0);
		n++;
	}
	EXPECT_GT(n, 1);
	EXPECT_LT(n, 100000);
}

TEST_P(Live, ComingAndGoingUnderFire)
{
	bool stop = false;
	Pair steady;
	shim_chan *keep = shim_chan_start(s, steady.a, 3600000, 0, 0);

	for (int i = 0; i < 200 && !stop; i++) {
		Pair p, q;
		shim_chan *c = shim_chan_start(s, p.a, 200 + i, 0, 0);
		shim_watch *w = shim_watch_add(s, q.a, EPOLLIN, i % 3 ? -1 : shim_now());

		p.beat();
		q.beat();
		steady.beat();
		if (i % 2)
			p.put({2, 0, 0, 0, 0, 0, 0, 0});
		if (i % 5 == 0)
			p.closeB();
		if (i % 7 == 0)
			(void)shim_wait(s, 1);
		shim_watch_remove(w);
		shim_chan_stop(c);
		close(q.a);
	}
	run(20);
	EXPECT_EQ(0u, shim_chan_found(keep));
	shim_chan_stop(keep);
}

/* The application did not call for long: who sent beats meanwhile lives, who did not is given some more time. */
TEST(LivePoll, LateIsNotLost)
{
	shim *s = shim_new(false);
	Pair p, q;
	shim_chan *alive = shim_chan_start(s, p.a, 200, 0, 0), *silent = shim_chan_start(s, q.a, 200, 0, 0);

	usleep(400000);
	p.beat();
	int64_t began = shim_now();
	(void)shim_step(s);
	EXPECT_EQ(0u, shim_chan_found(alive));
	EXPECT_EQ(0u, shim_chan_found(silent));
	while (!shim_chan_found(silent) && shim_now() - began < 200 + SLACK) {
		p.beat();
		(void)shim_wait(s, 20);
	}
	EXPECT_EQ(unsigned(SHIM_LOST), shim_chan_found(silent));
	EXPECT_GE(shim_now() - began, 90);
	EXPECT_LT(shim_now() - began, 200 + SLACK);
	EXPECT_EQ(0u, shim_chan_found(alive));
	shim_chan_stop(alive);
	shim_chan_stop(silent);
	shim_free(s);
}

/* Late every time, the library still comes to an end with a peer that is silent. */
TEST(LivePoll, LateEveryTimeIsNotForEver)
{
	shim *s = shim_new(false);
	Pair p;
	shim_chan *c = shim_chan_start(s, p.a, 200, 0, 0);
	int rounds = 0;

	for (; !shim_chan_found(c) && rounds < 10; rounds++) {
		usleep(250000);
		(void)shim_step(s);
	}
	EXPECT_EQ(unsigned(SHIM_LOST), shim_chan_found(c));
	EXPECT_GE(rounds, 2);
	shim_chan_stop(c);
	shim_free(s);
}

TEST(LivePoll, DescriptorIsReadableWhenDue)
{
	shim *s = shim_new(false);
	Pair p;
	int64_t began = shim_now();
	shim_chan *c = shim_chan_start(s, p.a, 400, 0, 0);
	pollfd pfd{shim_fd(s), POLLIN, 0};

	ASSERT_GE(pfd.fd, 0);
	EXPECT_LE(shim_step(s), 100);
	EXPECT_EQ(1, poll(&pfd, 1, 1000));
	EXPECT_GE(shim_now() - began, 99);
	(void)shim_step(s);
	EXPECT_EQ(0, poll(&pfd, 1, 0));
	p.beat();
	EXPECT_EQ(1, poll(&pfd, 1, SLACK));
	(void)shim_step(s);
	EXPECT_EQ(0, poll(&pfd, 1, 0));
	shim_chan_stop(c);
	shim_free(s);
}
