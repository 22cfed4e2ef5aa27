/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * waiting_test.cc - time limits and polling: XPORT_OP_TIMEOUT, XPORT_LIVENESS=poll, a pinned progress thread; and what
 * xport_dump reports of waiting operations. Two instances over loop, in one thread or in two.
 */
#include <gtest/gtest.h>

#include <dirent.h>
#include <poll.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "xport.h"

namespace
{

using Clock = std::chrono::steady_clock;

long since(Clock::time_point start)
{
	return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
}

/* How much longer everything may take here, as in the suite. */
long scaled(long ms)
{
	const char *scale = getenv("H_TIMEOUT_SCALE");
	return ms * (scale ? std::max(1, atoi(scale)) : 1);
}

/* Valgrind and the sanitizers run many instructions for one, and times say nothing. */
bool slowed()
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return true;
#else
	return scaled(1) > 1;
#endif
}

class Waiting : public testing::Test
{
protected:
	xport *x[2] = {};
	xport_ep *ep[2] = {};
	xport_mr *mr = nullptr;
	xport_rkey *key = nullptr;
	std::vector<uint8_t> bytes = std::vector<uint8_t>(4096);
	std::mutex lock;
	std::vector<std::string> logged;
	std::thread other;
	std::atomic<bool> stop{false};
	bool first_alone = false; /* XPORT_LIVENESS is not for side 1 */

	static void log(void *arg, int, const char *id, const char *line)
	{
		auto self = static_cast<Waiting *>(arg);
		std::lock_guard<std::mutex> guard(self->lock);
		self->logged.push_back(std::string(id) + " " + line);
	}

	size_t times(const char *id)
	{
		std::lock_guard<std::mutex> guard(lock);
		size_t n = 0;
		for (auto &l : logged)
			n += l.compare(0, strlen(id), id) == 0;
		return n;
	}

	xport_attr attr()
	{
		xport_attr a{};
		a.size = sizeof(a);
		a.backend = "loop:message";
		a.log_fn = log;
		a.log_arg = this;
		a.peer_timeout_ms = static_cast<int>(scaled(500));
		return a;
	}

	/* Sleeps: a valgrind without --fair-sched lets no other thread run beside one that only polls. */
	void wait_a_moment(xport_completion &c)
	{
		xport_poll(x[1], nullptr, 0);
		xport_wait(x[0], &c, 1, 1);
	}

	void reap(int n)
	{
		xport_completion c{};
		for (auto start = Clock::now(); n > 0 && since(start) < 30000; n -= c.type != 0) {
			c = {};
			wait_a_moment(c);
			ASSERT_EQ(XPORT_OK, c.status);
		}
		ASSERT_EQ(0, n);
	}

	/* Side 0 as asked; side 1 the same, but for its progress thread and time limits. */
	void connect(const xport_attr &first)
	{
		xport_attr second = attr();
		xport_listener *listener = nullptr;
		xport_completion c{};
		char name[64];

		ASSERT_EQ(XPORT_OK, xport_open(&first, &x[0]));
		if (first_alone)
			unsetenv("XPORT_LIVENESS");
		ASSERT_EQ(XPORT_OK, xport_open(&second, &x[1]));
		ASSERT_EQ(XPORT_OK, xport_listen(x[1], "127.0.0.1:0", nullptr, &listener));
		ASSERT_EQ(XPORT_OK, xport_listener_name(listener, name, sizeof(name)));
		ASSERT_EQ(XPORT_OK, xport_connect(x[0], name, nullptr, 0, &ep[0]));
		for (auto start = Clock::now(); c.type != XPORT_EVENT_CONNECTED && since(start) < 30000;)
			wait_a_moment(c);
		ASSERT_EQ(static_cast<uint32_t>(XPORT_EVENT_CONNECTED), c.type);
		ASSERT_EQ(XPORT_OK, xport_accept(listener, 30000, &ep[1]));

		uint8_t packed[2048];
		size_t len = sizeof(packed);
		ASSERT_EQ(XPORT_OK, xport_mr_reg(x[1], bytes.data(), bytes.size(), XPORT_REMOTE_WRITE, &mr));
		ASSERT_EQ(XPORT_OK, xport_rkey_pack(mr, packed, &len));
		ASSERT_EQ(XPORT_OK, xport_rkey_unpack(ep[0], packed, len, &key));
	}

	/* From now on side 1 polls in a thread of its own. */
	void poll_other()
	{
		other = std::thread([this] {
			xport_completion c[8];
			while (!stop)
				xport_wait(x[1], c, 8, 20);
		});
	}

	xport_completion next(int timeout_ms)
	{
		xport_completion c{};
		auto start = Clock::now();
		while (since(start) < timeout_ms && c.type == 0)
			xport_wait(x[0], &c, 1, timeout_ms);
		return c;
	}

	int put(uint64_t flags = 0)
	{
		static const char byte = 'x';
		xport_opt o{};
		o.size = sizeof(o);
		o.flags = flags;
		return xport_put(ep[0], &byte, 1, key, 0, &o);
	}

	void TearDown() override
	{
		stop = true;
		if (other.joinable())
			other.join();
		xport_close(x[0]);
		xport_close(x[1]);
	}
};

TEST_F(Waiting, AnOperationThatTakesTooLongFailsItsEndpoint)
{
	xport_attr a = attr();
	a.peer_timeout_ms = 60000;
	a.op_timeout_ms = 200;
	connect(a);

	/* As long as the other side answers, nothing is too old, and neither is an endpoint on which nothing is posted. */
	auto start = Clock::now();
	while (since(start) < 600) {
		ASSERT_EQ(XPORT_OK, put());
		xport_completion c{};
		while (c.type == 0 && since(start) < 30000)
			wait_a_moment(c);
		ASSERT_EQ(XPORT_OK, c.status);
	}
	EXPECT_EQ(0u, next(600).type);

	/* It does not poll any more, though its heart goes on beating. */
	start = Clock::now();
	ASSERT_EQ(XPORT_OK, put());
	xport_completion c[2] = {next(10000), next(10000)};
	EXPECT_GE(since(start), 200);
	EXPECT_LE(since(start), scaled(5000));
	EXPECT_EQ(static_cast<uint32_t>(XPORT_OP_PUT), c[0].type);
	EXPECT_EQ(XPORT_ERR_TIMEOUT, c[0].status);
	EXPECT_EQ(static_cast<uint32_t>(XPORT_EVENT_LOST), c[1].type);
	EXPECT_EQ(XPORT_ERR_TIMEOUT, c[1].status);
	EXPECT_EQ(XPORT_ERR_TIMEOUT, put());
}

/* Each kind has its time from its own beginning, also where it takes the place of an old one in memory. */
TEST_F(Waiting, AnOperationIsAsOldAsItIs)
{
	xport_attr a = attr();
	a.peer_timeout_ms = 60000;
	a.op_timeout_ms = static_cast<int>(scaled(400));
	connect(a);
	poll_other();
	std::vector<uint8_t> sink(64);
	for (auto start = Clock::now(); since(start) < scaled(1200);
	     std::this_thread::sleep_for(std::chrono::milliseconds(50))) {
		xport_opt notify{};
		notify.size = sizeof(notify);
		ASSERT_EQ(XPORT_OK, put());
		ASSERT_EQ(XPORT_OK, xport_put_notify(ep[0], "y", 1, key, 1, &notify));
		ASSERT_EQ(XPORT_OK, xport_put_notify(ep[0], nullptr, 0, key, 1, &notify));
		ASSERT_EQ(XPORT_OK, xport_send(ep[0], "z", 1, 1, nullptr));
		ASSERT_EQ(XPORT_OK, xport_flush(ep[0], nullptr));
		for (int i = 0; i < 5; i++) {
			xport_completion c = next(10000);
			ASSERT_EQ(XPORT_OK, c.status) << c.type;
		}
	}
}

/* A receive is as old as its match: one that waited long, and then takes its time, is not too old. */
TEST_F(Waiting, ALongMessageIsAsOldAsItsMatch)
{
	xport_attr a = attr();
	a.peer_timeout_ms = 60000;
	a.op_timeout_ms = static_cast<int>(scaled(400));
	connect(a);
	std::vector<uint8_t> from(8 << 20), to(from.size());
	ASSERT_EQ(XPORT_OK, xport_recv(x[0], to.data(), to.size(), 1, UINT64_MAX, nullptr));
	xport_completion c{};
	for (auto start = Clock::now(); since(start) < scaled(1000);) { /* many looks */
		ASSERT_EQ(0, xport_wait(x[0], &c, 1, 10)) << c.type;
		xport_poll(x[1], nullptr, 0);
	}
	ASSERT_EQ(XPORT_OK, xport_send(ep[1], from.data(), from.size(), 1, nullptr));
	auto start = Clock::now();
	while (c.type == 0 && since(start) < 30000) {
		xport_poll(x[1], nullptr, 0);
		xport_wait(x[0], &c, 1, 1);
		if (since(start) < scaled(130)) /* a look falls into it */
			std::this_thread::sleep_for(std::chrono::milliseconds(scaled(20)));
	}
	EXPECT_EQ(static_cast<uint32_t>(XPORT_OP_RECV), c.type);
	EXPECT_EQ(XPORT_OK, c.status);
	EXPECT_GT(since(start), scaled(110)) << "no look fell into it";
}

/* A limit of a few milliseconds is not over after so many looks. */
TEST_F(Waiting, AShortLimitIsNotOverAtOnce)
{
	xport_attr a = attr();
	a.peer_timeout_ms = 60000;
	a.op_timeout_ms = 3;
	connect(a);
	auto start = Clock::now();
	ASSERT_EQ(XPORT_OK, put());
	xport_completion c{};
	while (c.type == 0 && since(start) < 10000)
		xport_poll(x[0], &c, 1);
	EXPECT_EQ(XPORT_ERR_TIMEOUT, c.status);
	EXPECT_GE(since(start), 3);
}

/* Who sleeps in poll(2) and calls xport_poll once a wake-up learns of it as soon. */
TEST_F(Waiting, AnOperationThatTakesTooLongWakesTheDescriptor)
{
	xport_attr a = attr();
	a.peer_timeout_ms = 60000;
	a.op_timeout_ms = 200;
	connect(a);
	pollfd p{xport_fd(x[0]), POLLIN, 0};
	ASSERT_EQ(XPORT_OK, put());
	auto start = Clock::now();
	xport_completion c{};
	while (c.type != XPORT_EVENT_LOST && since(start) < 10000) {
		::poll(&p, 1, 10000);
		ASSERT_LE(0, xport_poll(x[0], &c, 1));
	}
	EXPECT_EQ(XPORT_ERR_TIMEOUT, c.status);
	EXPECT_GE(since(start), 200);
	EXPECT_LE(since(start), scaled(5000));
}

/* Without the helper thread the beats are sent, and missed, by whoever polls. */
TEST_F(Waiting, WithoutAThreadWhoPollsIsAlive)
{
	setenv("XPORT_LIVENESS", "poll", 1);
	connect(attr());
	unsetenv("XPORT_LIVENESS");
	long longest = 0;
	for (auto start = Clock::now(), last = start; since(start) < scaled(1500); last = Clock::now()) {
		xport_completion c{};
		int n = xport_wait(x[0], &c, 1, 20) + xport_wait(x[1], &c, 1, 20);
		longest = std::max(longest, since(last));
		if (n != 0 && longest > scaled(250))
			GTEST_SKIP() << "needs a machine that does not keep a process waiting for " << longest << " ms";
		ASSERT_EQ(0, n) << c.type;
	}

	/* Side 1 does not poll any more: it is as dead as a process that was stopped. */
	auto start = Clock::now();
	xport_completion c = next(static_cast<int>(scaled(5000)));
	EXPECT_EQ(static_cast<uint32_t>(XPORT_EVENT_LOST), c.type);
	EXPECT_EQ(XPORT_ERR_PEER_LOST, c.status);
	EXPECT_GE(since(start), scaled(300)); /* since its last beat, which was before */
	EXPECT_LE(since(start), scaled(4500));
}

/* One that polls now and then only, as from the loop of a game, has its beats sent in time. */
TEST_F(Waiting, WithoutAThreadWhoPollsNowAndThenIsAlive)
{
	setenv("XPORT_LIVENESS", "poll", 1);
	first_alone = true;
	connect(attr());
	long longest = 0;
	for (auto start = Clock::now(), last = start; since(start) < scaled(1200); last = Clock::now()) {
		xport_completion c{};
		std::this_thread::sleep_for(std::chrono::milliseconds(20));
		int n = xport_poll(x[0], &c, 1) + xport_poll(x[1], &c, 1);
		longest = std::max(longest, since(last));
		if (n != 0 && longest > scaled(250))
			GTEST_SKIP() << "needs a machine that does not keep a process waiting for " << longest << " ms";
		ASSERT_EQ(0, n) << c.type;
	}
}

/* Who sleeps, in a call or on the descriptor, wakes for what the helper thread would have woken it for. */
TEST_F(Waiting, WithoutAThreadSleepersWakeToConnect)
{
	xport_listener *listener = nullptr;
	xport_ep *taken = nullptr;
	char name[64];

	setenv("XPORT_LIVENESS", "poll", 1);
	xport_attr a = attr();
	ASSERT_EQ(XPORT_OK, xport_open(&a, &x[0]));
	ASSERT_EQ(XPORT_OK, xport_open(&a, &x[1]));
	unsetenv("XPORT_LIVENESS");
	ASSERT_EQ(XPORT_OK, xport_listen(x[1], "127.0.0.1:0", nullptr, &listener));
	ASSERT_EQ(XPORT_OK, xport_listener_name(listener, name, sizeof(name)));
	int fd = xport_fd(x[1]);
	xport_completion c{};
	while (xport_poll(x[1], &c, 1) > 0)
		;
	pollfd p = {fd, POLLIN, 0};
	while (poll(&p, 1, 50) == 1)
		xport_poll(x[1], &c, 1); /* it settles */
	other = std::thread([&] { EXPECT_EQ(XPORT_OK, xport_connect(x[0], name, nullptr, 20000, &ep[0])); });
	auto start = Clock::now();
	EXPECT_EQ(1, poll(&p, 1, 20000));
	EXPECT_EQ(XPORT_OK, xport_accept(listener, 20000, &taken));
	other.join();
	EXPECT_LE(since(start), scaled(2000));
}

/* What the kernel has on this process' progress thread; "": there is no such thread. */
std::string folder_of_the_thread()
{
	std::string folder;
	DIR *d = opendir("/proc/self/task");
	for (dirent *e; d && (e = readdir(d));) {
		std::string task = std::string("/proc/self/task/") + e->d_name, name;
		if (std::ifstream(task + "/comm") >> name && name == "xport-progress")
			folder = task;
	}
	if (d)
		closedir(d);
	return folder;
}

/* The processors that it may run on. */
std::vector<int> cores_of_the_thread()
{
	std::vector<int> cores;
	std::string folder = folder_of_the_thread();
	cpu_set_t set;
	if (folder.empty() || sched_getaffinity(atoi(strrchr(folder.c_str(), '/') + 1), sizeof(set), &set) != 0)
		return cores;
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &set))
			cores.push_back(i);
	return cores;
}

/* How long it has run, in microseconds. */
long run_time(const std::string &folder)
{
	std::ifstream times(folder + "/schedstat");
	long ns = -1;
	times >> ns;
	return ns < 0 ? ns : ns / 1000;
}

TEST_F(Waiting, TheProgressThreadRunsWhereItIsTold)
{
	cpu_set_t mine;
	int core = 0;
	ASSERT_EQ(0, sched_getaffinity(0, sizeof(mine), &mine));
	while (!CPU_ISSET(core, &mine))
		core++;
	std::string word = "thread@" + std::to_string(core);
	xport_attr a = attr();
	a.progress = word.c_str();
	connect(a);
	EXPECT_EQ(std::vector<int>{core}, cores_of_the_thread());
	poll_other();
	for (int i = 0; i < 100; i++) {
		ASSERT_EQ(XPORT_OK, put());
		xport_completion c = next(10000);
		ASSERT_EQ(static_cast<uint32_t>(XPORT_OP_PUT), c.type);
		ASSERT_EQ(XPORT_OK, c.status);
	}
	EXPECT_EQ(0u, times("XP-0006"));
}

/* What it polls for, and nobody else does, lies 60 us apart: soon it runs most of the time, as it does not when it sleeps through
 * them.  Its sleeps are not counted: it waits for the lock once a put.  Seen in one of many short windows: on a busy machine it
 * is stopped, and what it waits for comes late. */
TEST_F(Waiting, TheProgressThreadPollsThroughShortPauses)
{
	if (slowed())
		GTEST_SKIP() << "a tool slows the thread down";
	xport_attr a = attr();
	a.progress = "thread";
	connect(a);
	std::string folder = folder_of_the_thread();
	ASSERT_FALSE(folder.empty());
	if (run_time(folder) < 0)
		GTEST_SKIP() << "this kernel has no /proc/PID/task/TID/schedstat";
	bool seen = false;
	for (auto start = Clock::now(); !seen && since(start) < 60000;) {
		auto before = run_time(folder);
		auto began = Clock::now();
		for (int i = 0; i < 20; i++) {
			ASSERT_EQ(XPORT_OK, put());
			auto until = Clock::now() + std::chrono::microseconds(60);
			while (Clock::now() < until)
				xport_poll(x[1], nullptr, 0);
		}
		auto wall = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - began).count();
		seen = run_time(folder) - before >= wall / 2;
		reap(20);
	}
	double load = 0;
	if (!seen && getloadavg(&load, 1) == 1 && load > std::thread::hardware_concurrency())
		GTEST_SKIP() << "at a load of " << load << " it has had no processor for itself in 60 s";
	EXPECT_TRUE(seen);
}

/* And where they are 5 ms, it is back to sleeping at once. */
TEST_F(Waiting, TheProgressThreadSleepsInLongPauses)
{
	if (slowed())
		GTEST_SKIP() << "a tool slows the thread down";
	xport_attr a = attr();
	a.progress = "thread";
	connect(a);
	std::string folder = folder_of_the_thread();
	ASSERT_FALSE(folder.empty());
	if (run_time(folder) < 0)
		GTEST_SKIP() << "this kernel has no /proc/PID/task/TID/schedstat";
	long least = 1000000;
	for (int window = 0; window < 10 && least > 100; window++) {
		long before = 0;
		for (int i = 0; i < 40; i++) {
			if (i == 20) /* those before are for it to learn from */
				before = run_time(folder);
			ASSERT_EQ(XPORT_OK, put());
			for (int k = 0; k < 20; k++)
				xport_poll(x[1], nullptr, 0);
			std::this_thread::sleep_for(std::chrono::milliseconds(5));
		}
		least = std::min(least, (run_time(folder) - before) / 20);
		reap(40);
	}
	EXPECT_GE(100, least);
}

TEST_F(Waiting, AProcessorThatIsNotThereIsToldAndLeftAlone)
{
	xport_attr a = attr();
	a.progress = "thread@1023";
	if (std::thread::hardware_concurrency() > 1023)
		GTEST_SKIP() << "there is a processor 1023";
	connect(a);
	EXPECT_LT(0u, cores_of_the_thread().size());
	EXPECT_EQ(1u, times("XP-0006"));
}

TEST_F(Waiting, DumpNamesWhatIsInFlight)
{
	static const char text[] = "somebody should receive this";
	connect(attr());
	for (int i = 0; i < 20; i++)
		ASSERT_EQ(XPORT_OK, put());
	ASSERT_EQ(XPORT_OK, xport_send(ep[0], text, sizeof(text), 1, nullptr));
	ASSERT_EQ(XPORT_OK, xport_flush(ep[0], nullptr));
	xport_poll(x[0], nullptr, 0); /* they are on their way; the other side does not look */
	xport_dump(x[0]);
	EXPECT_EQ(1u, times("XP-0023"));
	EXPECT_EQ(1u, times("XP-0020"));
	EXPECT_LE(1u, times("XP-0024"));
	EXPECT_LE(16u, times("XP-0021"));
	EXPECT_LE(1u, times("XP-0022"));
	std::string all;
	for (auto &l : logged)
		all += l + "\n";
	EXPECT_NE(std::string::npos, all.find("instance of loop:message")) << all;
	EXPECT_NE(std::string::npos, all.find(": open; frames sent")) << all;
	EXPECT_NE(std::string::npos, all.find("  put (1) of 1 bytes, by message, ")) << all;
	EXPECT_NE(std::string::npos, all.find(" more: ")) << all;
}

} // namespace
