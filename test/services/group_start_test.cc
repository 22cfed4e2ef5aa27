/* SPDX-License-Identifier: BSD-3-Clause */
/* group_start_test.cc - members that die or give up while others are in xport_group_create. */
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "services/group_world.h"

using namespace group_world;

namespace
{

constexpr int LIMIT = 20000;

/* A member that has put its card, and ends when it gets one. */
int get_and_exit(void *, const char *, void *, size_t *)
{
	_exit(0);
}

/* As that, but it fails, and does not end. */
int get_and_fail(void *, const char *, void *, size_t *)
{
	return XPORT_ERR_NO_MEMORY;
}

std::string joins_by(board *b, int rank, int members, decltype(board_get) *get)
{
	xport_group_exchange e = {b, rank, members, board_put, nullptr, get};
	xport_group_attr a = {};
	member m;
	int r;

	a.size = sizeof(a);
	a.exchange = &e;
	if (xport_open(nullptr, &m.x) != XPORT_OK)
		return "open";
	r = xport_group_create(m.x, &a, -1, &m.g);
	return error_of(r);
}

/* All others end without a time limit. */
void one_of(int members, int victim, decltype(board_get) *get)
{
	SCOPED_TRACE("rank " + std::to_string(victim) + " of " + std::to_string(members));
	board *b = board_new();
	int64_t began = now_ms();
	std::vector<outcome> all = run(
		members, "", [&](int rank) { return joins_by(b, rank, members, rank == victim ? get : board_get); });

	for (int i = 0; i < members; i++) {
		const outcome &o = all[static_cast<size_t>(i)];

		EXPECT_FALSE(o.hung || o.killed) << "rank " << i;
		if (i == victim && get == get_and_exit)
			continue;
		EXPECT_EQ(0u, o.said.find("XPORT_ERR_")) << "rank " << i << ": " << o.said;
		EXPECT_LE(o.at - began, scaled(6000)) << "rank " << i << ": " << o.said;
	}
	board_free(b);
}

TEST(Start, AMemberDiesAfterItsCardIsOut)
{
	one_of(6, 2, get_and_exit);
	one_of(2, 0, get_and_exit);
	one_of(5, 4, get_and_exit);
}

TEST(Start, AMemberFails)
{
	one_of(6, 2, get_and_fail);
	one_of(2, 0, get_and_fail);
}

/* The rank that others wait for is slow: the connections of both sides meet, and all is well. */
int slow_get(void *arg, const char *key, void *value, size_t *len)
{
	sleep_ms(900);
	return board_get(arg, key, value, len);
}

TEST(Start, AMemberIsSlow)
{
	board *b = board_new();

	for (const outcome &o :
	     run(4, "", [&](int rank) { return joins_by(b, rank, 4, rank == 0 ? slow_get : board_get); })) {
		EXPECT_FALSE(o.hung || o.killed);
		EXPECT_EQ(0u, o.said.find("XPORT_OK: ")) << o.said;
	}
	board_free(b);
}

/* A second group at the same root, while the first one lives. */
TEST(Source, RootIsFreeForTheNextGroup)
{
	for (const outcome &o : run(3, root_source(), [](int) {
		     xport_group_attr a = {};
		     member first;
		     std::string wrong = first.join();
		     xport_group *second;

		     if (!wrong.empty())
			     return wrong;
		     a.size = sizeof(a);
		     a.tag = uint64_t{77} << 32;
		     wrong += expect(XPORT_OK, xport_group_create(first.x, &a, scaled(5000), &second), "second");
		     if (!wrong.empty())
			     return wrong;
		     wrong += expect(XPORT_OK, xport_group_barrier(second, scaled(LIMIT)), "barrier");
		     wrong += expect(XPORT_OK, xport_group_destroy(second, scaled(LIMIT)), "destroy");
		     return wrong + first.leave();
	     })) {
		EXPECT_FALSE(o.hung || o.killed);
		EXPECT_EQ("", o.said);
	}
}

/* A FIFO in the place of a card is refused, and does not block. */
TEST(Source, AFifoIsNoCard)
{
	std::string dir = make_directory(), fifo = dir.substr(4) + "/group.0";

	ASSERT_EQ(0, mkfifo(fifo.c_str(), 0600));
	for (const outcome &o : run(
		     2, dir,
		     [](int rank) { return rank == 0 ? std::string("not a file of a group") : member().join(); }, {},
		     5000)) {
		EXPECT_FALSE(o.hung);
		EXPECT_NE(std::string::npos, o.said.find("not a file of a group")) << o.said;
	}
	unlink(fifo.c_str());
	rmdir(dir.c_str() + 4);
}

/* In a new namespace: the loopback interface, and six ports that the kernel may choose. */
bool network_of_six_ports()
{
	std::ofstream range("/proc/sys/net/ipv4/ip_local_port_range");
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	ifreq lo = {};
	bool up;

	strcpy(lo.ifr_name, "lo");
	lo.ifr_flags = IFF_UP;
	up = ioctl(fd, SIOCSIFFLAGS, &lo) == 0;
	close(fd);
	range << "45678 45683" << std::endl;
	return up && range.good();
}

/* A member that retries at a port of the range that the kernel chooses from must not connect to itself. */
TEST(Source, ARootThatIsNotThereIsNotOneself)
{
	const outcome o = run(1, "", [](int) {
		std::string said;
		xport_group_attr a = {};
		member m;

		a.size = sizeof(a);
		a.members = 2;
		a.rank = 1;
		a.source = "root:127.0.0.1:45678";
		a.address = "127.0.0.1:40000";
		if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
			return std::string("skip");
		if (!network_of_six_ports())
			return std::string("skip");
		return m.join(&a, 1500);
	})[0];

	if (o.said == "skip")
		GTEST_SKIP() << "no namespace can be made";
	EXPECT_FALSE(o.hung || o.killed);
	EXPECT_NE(std::string::npos, o.said.find("waited for the root at 127.0.0.1:45678 (")) << o.said;
}

/* Zero means that nobody is asked: an answer of the source would be missed. */
TEST(Endpoints, WithoutWaitingAskNobody)
{
	board *b = board_new();

	for (const outcome &o : run(6, "", [&](int rank) {
		     xport_group_exchange e = {b, rank, 6, board_put, nullptr, board_get};
		     xport_group_attr a = {};
		     std::string wrong;
		     xport_ep *ep;
		     member m;
		     size_t had;

		     a.size = sizeof(a);
		     a.exchange = &e;
		     wrong = m.join(&a);
		     if (!wrong.empty())
			     return wrong;
		     wrong += expect(XPORT_OK, xport_group_barrier(m.g, scaled(LIMIT)), "barrier");
		     had = b->of[(rank + 3) % 6].len;
		     b->of[rank].len = 511; /* whoever looks at the card finds rubbish */
		     wrong += expect(XPORT_OK, xport_group_barrier(m.g, scaled(LIMIT)), "barrier");
		     wrong += expect(XPORT_ERR_TIMEOUT, xport_group_ep(m.g, (rank + 3) % 6, 0, &ep), "without waiting");
		     wrong += expect(XPORT_OK, xport_group_barrier(m.g, scaled(LIMIT)), "barrier");
		     return wrong + (had == 0 ? "no card" : "") + m.leave();
	     })) {
		EXPECT_FALSE(o.hung || o.killed);
		EXPECT_EQ("", o.said);
	}
	board_free(b);
}

/* A failed group makes no endpoints. */
TEST(Endpoints, NotAfterAFailure)
{
	for (const outcome &o : run(6, root_source(), [](int rank) {
		     member m;
		     std::string wrong = m.join();
		     xport_ep *ep;

		     if (!wrong.empty())
			     return wrong;
		     wrong += expect(XPORT_ERR_TIMEOUT, rank == 0 ? XPORT_ERR_TIMEOUT : xport_group_barrier(m.g, 300),
		                     "barrier");
		     sleep_ms(scaled(300));
		     if (rank != 0)
			     wrong += expect(XPORT_ERR_TIMEOUT, xport_group_ep(m.g, (rank + 3) % 6, -1, &ep),
			                     "endpoint");
		     /* Whoever left now would be another failure to members that are late. */
		     sleep_ms(scaled(rank == 0 ? 1800 : 1500));
		     return wrong;
	     })) {
		EXPECT_FALSE(o.hung || o.killed);
		EXPECT_EQ("", o.said);
	}
}

} // namespace
