/* SPDX-License-Identifier: BSD-3-Clause */
/* place_test.cc - the progress thread near the device (XPORT_PROGRESS=thread@device), with a sysfs of the test's own. */
#include <gtest/gtest.h>

#include <dirent.h>
#include <sched.h>

#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

extern "C" {
#include "core/object/place.h"
}
#include "xport.h"

namespace
{

class Place : public testing::Test
{
protected:
	std::string root;
	std::mutex logging; /* the progress thread logs, too */
	std::vector<std::string> logged;

	void SetUp() override
	{
		char dir[] = "/tmp/xport-place-XXXXXX";
		ASSERT_NE(nullptr, mkdtemp(dir));
		root = dir;
		xpi_place_sysfs = root.c_str();
	}

	void TearDown() override
	{
		xpi_place_sysfs = "/sys";
		EXPECT_EQ(0, system(("rm -r " + root).c_str()));
	}

	void file(const std::string &folder, const std::string &name, const std::string &text)
	{
		ASSERT_EQ(0, system(("mkdir -p " + root + "/" + folder).c_str()));
		std::ofstream(root + "/" + folder + "/" + name) << text << "\n";
	}

	void device(const std::string &name, const std::string &node)
	{
		file("class/" + name + "/device", "numa_node", node);
	}

	void node(int number, const std::string &cores)
	{
		file("devices/system/node/node" + std::to_string(number), "cpulist", cores);
	}

	/* "NODE: the processors", or why there are none. */
	static std::string find(const char *devices)
	{
		char line[XPI_PLACE_ROOM];
		int n = xpi_place_find(devices, line);
		return (n >= 0 ? std::to_string(n) + ": " : "") + line;
	}

	static void log(void *arg, int level, const char *id, const char *line)
	{
		Place *place = static_cast<Place *>(arg);
		std::lock_guard<std::mutex> lock(place->logging);

		place->logged.push_back(std::to_string(level) + " " + id + " " + line);
	}

	std::vector<std::string> lines()
	{
		std::lock_guard<std::mutex> lock(logging);

		return logged;
	}

	void forget()
	{
		std::lock_guard<std::mutex> lock(logging);

		logged.clear();
	}

	/* An instance over loop, whose device is named "memory". */
	xport *open(const char *progress, const char *backend = "loop:native")
	{
		xport_attr a{};
		xport *x = nullptr;
		a.size = sizeof(a);
		a.backend = backend;
		a.progress = progress;
		a.log_level = XPORT_LOG_INFO;
		a.log_fn = log;
		a.log_arg = this;
		forget();
		EXPECT_EQ(XPORT_OK, xport_open(&a, &x));
		return x;
	}

	/* The number of the one progress thread. */
	static int thread()
	{
		int found = -1;
		DIR *d = opendir("/proc/self/task");
		for (struct dirent *e; d != nullptr && (e = readdir(d)) != nullptr;) {
			std::string name;
			std::getline(std::ifstream(std::string("/proc/self/task/") + e->d_name + "/comm"), name);
			found = name == "xport-progress" ? atoi(e->d_name) : found;
		}
		closedir(d);
		EXPECT_LT(0, found);
		return found;
	}

	/* Its processors. */
	static std::vector<int> where()
	{
		std::vector<int> found;
		cpu_set_t set;
		EXPECT_EQ(0, sched_getaffinity(thread(), sizeof(set), &set));
		for (int i = 0; i < CPU_SETSIZE; i++)
			if (CPU_ISSET(i, &set))
				found.push_back(i);
		return found;
	}

	static void put(int processor)
	{
		cpu_set_t set;
		CPU_ZERO(&set);
		CPU_SET(size_t(processor), &set);
		EXPECT_EQ(0, sched_setaffinity(thread(), sizeof(set), &set));
	}

	std::vector<int> thread_of(const char *progress)
	{
		xport *x = open(progress);
		std::vector<int> found = where();
		xport_close(x);
		return found;
	}

	/* Has an instance of which loop:native is open open loop:message as well, for a peer that has no other. */
	void open_second(xport *server)
	{
		std::vector<std::string> before = lines();
		xport *client = open("poll", "loop:message");
		xport_listener *listener = nullptr;
		xport_ep *ep = nullptr, *accepted = nullptr;
		char name[64];
		ASSERT_EQ(XPORT_OK, xport_listen(server, "127.0.0.1:0", nullptr, &listener));
		ASSERT_EQ(XPORT_OK, xport_listener_name(listener, name, sizeof(name)));
		ASSERT_EQ(XPORT_OK, xport_connect(client, name, nullptr, 60000, &ep));
		ASSERT_EQ(XPORT_OK, xport_accept(listener, 60000, &accepted));
		xport_close(client);
		std::lock_guard<std::mutex> lock(logging);
		logged.insert(logged.begin(), before.begin(), before.end());
	}

	/* The lines with this number. */
	std::string told(const std::string &id)
	{
		std::string all;
		for (auto &l : lines())
			if (l.find(" " + id + " ") != std::string::npos)
				all += l + "\n";
		return all;
	}
};

TEST_F(Place, ProcessorsNearADevice)
{
	device("infiniband/mlx5_9", "3");
	device("net/eth9", "2");
	device("net/none9", "-1");
	node(3, "0-1,7");
	node(2, "");
	EXPECT_EQ("3: 0-1,7", find("mlx5_9:1"));
	for (const char *names :
	     {"lo,mlx5_9", "lo, mlx5_9:1", "mlx5_9 port 1", "mlx5_9 port 1,lo, none9", "none9, mlx5_9"})
		EXPECT_EQ("3: 0-1,7", find(names)) << names;
	EXPECT_EQ("NUMA node 2 of eth9 has no processors", find("eth9"));
	EXPECT_EQ("the device none9 has no NUMA node", find("none9")); /* sysfs says -1 */
	EXPECT_EQ("the device gone9 has no NUMA node", find("gone9"));
	EXPECT_EQ("the device (not named by its stack) has no NUMA node", find(""));
	EXPECT_EQ("the device ../infiniband/mlx5_9 has no NUMA node", find("../infiniband/mlx5_9"));
	EXPECT_EQ("the devices eth9, mlx5_9:1 are on several NUMA nodes", find("eth9, mlx5_9:1"));
	EXPECT_EQ("the devices eth9,mlx5_9 are on several NUMA nodes", find("eth9,mlx5_9"));
	/* virtio: the node is that of the device on the bus; rxe names its network device. */
	file("bus/virtio0", "here", "");
	file("bus", "numa_node", "3");
	file("class/net/near9", "here", "");
	ASSERT_EQ(0, system(("ln -s ../../../bus/virtio0 " + root + "/class/net/near9/device").c_str()));
	file("class/infiniband/rxe9", "parent", "near9");
	file("class/infiniband/bad9", "parent", "../infiniband/mlx5_9");
	for (const char *name : {"near9", "rxe9", "rxe9 port 1"})
		EXPECT_EQ("3: 0-1,7", find(name)) << name;
	EXPECT_EQ("the device bad9 has no NUMA node", find("bad9"));
	for (const char *bad : {"none", "0-", "3-1", "0-4096", "0,"}) {
		node(3, bad);
		EXPECT_EQ("NUMA node 3 of mlx5_9 has no processors", find("mlx5_9")) << bad;
	}
}

TEST_F(Place, TheThreadRunsNearTheDevice)
{
	std::vector<int> anywhere = thread_of("thread");
	ASSERT_FALSE(anywhere.empty());
	device("net/memory", "1");
	node(1, std::to_string(anywhere.back()));
	EXPECT_EQ(std::vector<int>{anywhere.back()}, thread_of("thread@device"));
	EXPECT_NE(std::string::npos, told("XP-0031").find("NUMA node 1, near memory")) << told("XP-0031");
	EXPECT_EQ("", told("XP-0030"));
	EXPECT_EQ(anywhere, thread_of("thread")) << "what was near is that of one instance";
	std::string both = std::to_string(anywhere.front()) + "," + std::to_string(anywhere.back());
	EXPECT_EQ(anywhere.front() == anywhere.back() ? 1u : 2u, thread_of(("thread@" + both).c_str()).size());
}

TEST_F(Place, ADeviceWithoutANodeLeavesTheThreadAnywhere)
{
	std::vector<int> anywhere = thread_of("thread");
	EXPECT_EQ(anywhere, thread_of("thread@device"));
	EXPECT_EQ(0u, told("XP-0030").find(std::to_string(XPORT_LOG_WARN) + " ")) << told("XP-0030");
	EXPECT_NE(std::string::npos, told("XP-0030").find("the device memory has no NUMA node")) << told("XP-0030");
	EXPECT_NE(std::string::npos, told("XP-0030").find("set thread@CORES")) << told("XP-0030");
	EXPECT_EQ("", told("XP-0031"));
}

/* The devices of all open transports count: of both here, as each is named "memory". */
TEST_F(Place, AnotherTransportMovesTheThreadOnce)
{
	std::vector<int> anywhere = thread_of("thread");
	device("net/memory", "1");
	node(1, std::to_string(anywhere.back()));
	node(2, std::to_string(anywhere.front()));
	xport *x = open("thread@device", "loop:native+loop:message");
	EXPECT_EQ(std::vector<int>{anywhere.back()}, where());
	device("net/memory", "2");
	open_second(x);
	EXPECT_EQ(std::vector<int>{anywhere.front()}, where());
	EXPECT_NE(std::string::npos, told("XP-0031").find("NUMA node 2, near memory, memory")) << told("XP-0031");
	xport_close(x);
}

TEST_F(Place, WithoutANodeTheThreadGoesBack)
{
	std::vector<int> anywhere = thread_of("thread");
	device("net/memory", "1");
	node(1, std::to_string(anywhere.back()));
	xport *x = open("thread@device", "loop:native+loop:message");
	EXPECT_EQ(std::vector<int>{anywhere.back()}, where());
	device("net/memory", "-1");
	open_second(x);
	EXPECT_EQ(anywhere, where());
	EXPECT_NE(std::string::npos, told("XP-0030").find("runs on any processor")) << told("XP-0030");
	xport_close(x);
}

/* What somebody did with taskset stays, if the node is the same, or the list of processors came from the user. */
TEST_F(Place, AnotherTransportLeavesTheThreadWhereItIs)
{
	std::vector<int> anywhere = thread_of("thread");
	if (anywhere.size() < 2)
		GTEST_SKIP() << "one processor";
	device("net/memory", "1");
	node(1, std::to_string(anywhere.back()));
	for (const std::string &progress : {std::string("device"), std::to_string(anywhere.back())}) {
		xport *x = open(("thread@" + progress).c_str(), "loop:native+loop:message");
		EXPECT_EQ(std::vector<int>{anywhere.back()}, where()) << progress;
		put(anywhere.front());
		open_second(x);
		EXPECT_EQ(std::vector<int>{anywhere.front()}, where()) << progress;
		xport_close(x);
	}
}

TEST_F(Place, ABindingThatFailsIsNotAnnounced)
{
	std::vector<int> anywhere = thread_of("thread");
	if (anywhere.back() == CPU_SETSIZE - 1)
		GTEST_SKIP() << "the last processor exists";
	device("net/memory", "1");
	node(1, std::to_string(CPU_SETSIZE - 1));
	EXPECT_EQ(anywhere, thread_of("thread@device"));
	EXPECT_NE(std::string::npos, told("XP-0006").find("to processors 1023")) << told("XP-0006");
	EXPECT_EQ("", told("XP-0031"));
}

} /* namespace */
