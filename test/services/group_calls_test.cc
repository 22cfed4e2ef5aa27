/* SPDX-License-Identifier: BSD-3-Clause */
/* group_calls_test.cc - members that make different calls: all get XPORT_ERR_PROTOCOL, without a time limit. */
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "services/group_world.h"

using namespace group_world;

namespace
{

/* Several worlds at once: most of the time all wait. */
constexpr int LIMIT = 20000, MEMBERS = 4, WORLDS = 4;

/* Each kind, and both ways of those that have two. */
constexpr int CALLS = 10;

int make_call(const member &m, int which)
{
	static uint8_t all[MEMBERS * 100000];
	static double d[20000];

	switch (which) {
	case 0:
		return xport_group_barrier(m.g, -1);
	case 1:
		return xport_group_fence(m.g, -1);
	case 2:
		return xport_group_broadcast(m.g, all, 100, 0, -1);
	case 3:
		return xport_group_broadcast(m.g, all, 100000, 0, -1);
	case 4:
		return xport_group_broadcast(m.g, all, 100000, 2, -1);
	case 5:
		return xport_group_allgather(m.g, d, 100, all, -1);
	case 6:
		return xport_group_allgather(m.g, d, 65536, all, -1);
	case 7:
		return xport_group_allreduce(m.g, d, d, 10, XPORT_GROUP_DOUBLE, XPORT_GROUP_SUM, -1);
	case 8:
		return xport_group_allreduce(m.g, d, d, 10, XPORT_GROUP_DOUBLE, XPORT_GROUP_MAX, -1);
	default:
		return xport_group_allreduce(m.g, d, d, 65536 / sizeof(double), XPORT_GROUP_DOUBLE, XPORT_GROUP_SUM,
		                             -1);
	}
}

/* Whether both can end at all members without a message that shows the difference. */
bool silent(int a, int b)
{
	return ((a == 2 || a == 3) && b == 4) || /* both roots send, and are done */
	       (a == 7 && b == 8);               /* the lengths are the same */
}

/* One member calls `a`, the others `b`. What has ended by itself is followed by a barrier. */
std::string differ(xport *x, const std::string &source, int rank, int a, int b, int odd)
{
	std::string name = "p" + std::to_string(a) + "." + std::to_string(b), wrong;
	xport_group_attr attr = {};
	member m;
	int r;

	attr.size = sizeof(attr);
	attr.source = source.c_str();
	attr.name = name.c_str();
	attr.members = MEMBERS;
	attr.rank = rank;
	r = xport_group_create(x, &attr, scaled(LIMIT), &m.g);
	if (r != XPORT_OK) /* the news may reach a member that is still in xport_group_create */
		return r == XPORT_ERR_PROTOCOL ? "" : name + ": create: " + error_of(r) + "\n";
	r = make_call(m, rank == odd ? a : b);
	if (r == XPORT_OK)
		r = xport_group_barrier(m.g, -1);
	if (r != XPORT_ERR_PROTOCOL && !(r == XPORT_OK && silent(a, b)))
		wrong = name + ", odd " + std::to_string(odd) + ": " + error_of(r) + "\n";
	xport_group_destroy(m.g, scaled(1000));
	m.g = nullptr;
	return wrong;
}

TEST(Calls, OfEachPairThatDiffer)
{
	std::string dir = make_directory();

	for (const outcome &o : run(
		     MEMBERS * WORLDS, dir,
		     [&](int rank) {
			     int pair = 0;
			     std::string wrong;
			     xport *x;

			     if (xport_open(nullptr, &x) != XPORT_OK)
				     return std::string("open");
			     for (int a = 0; a < CALLS; a++)
				     for (int b = a + 1; b < CALLS; b++)
					     if (pair++ % WORLDS == rank / MEMBERS)
						     wrong += differ(x, dir, rank % MEMBERS, a, b, (a + b) % MEMBERS);
			     xport_close(x);
			     return wrong;
		     },
		     {}, 60000)) {
		EXPECT_FALSE(o.hung || o.killed);
		EXPECT_EQ("", o.said);
	}
	EXPECT_EQ(0, rmdir(dir.c_str() + 4)) << "files are left";
}

/* The text has both calls. A member that comes later compares when it comes. */
TEST(Calls, AreNamed)
{
	for (const outcome &o : run(3, root_source(), [](int rank) {
		     member m;
		     std::string wrong = m.join();
		     char buf[8] = "";
		     int r;

		     if (!wrong.empty())
			     return wrong;
		     sleep_ms(rank == 0 ? 400 : 0);
		     r = xport_group_broadcast(m.g, buf, 7, rank == 0 ? 1 : 0, -1);
		     return expect(XPORT_ERR_PROTOCOL, r, "broadcast") + error_of(r);
	     })) {
		EXPECT_FALSE(o.hung || o.killed);
		EXPECT_EQ(0u, o.said.find("XPORT_ERR_PROTOCOL: ")) << o.said;
		if (o.said.find("members made different calls") != std::string::npos) {
			EXPECT_NE(std::string::npos, o.said.find("xport_group_broadcast of 7 bytes of rank 0"));
			EXPECT_NE(std::string::npos, o.said.find("xport_group_broadcast of 7 bytes of rank 1"));
		}
	}
}

/* ---- put during a fence ---- */

/* A member puts while its fence waits for the other one: the value goes with the next fence. */
TEST(Values, PutDuringAFence)
{
	for (const outcome &o : run(2, root_source(), [](int rank) {
		     member m;
		     std::string wrong = m.join();
		     std::thread late;
		     char buf[8];
		     size_t len = sizeof(buf);

		     if (!wrong.empty())
			     return wrong;
		     if (rank == 0)
			     late = std::thread([&] {
				     sleep_ms(100);
				     if (xport_group_put(m.g, "late", "1234", 4) != XPORT_OK)
					     abort();
			     });
		     else
			     sleep_ms(300);
		     wrong += expect(XPORT_OK, xport_group_put(m.g, "soon", "12", 2), "put");
		     wrong += expect(XPORT_OK, xport_group_fence(m.g, scaled(LIMIT)), "fence");
		     wrong += expect(XPORT_OK, xport_group_get(m.g, "soon", buf, &len), "get");
		     if (rank == 0)
			     late.join();
		     wrong += expect(XPORT_OK, xport_group_fence(m.g, scaled(LIMIT)), "fence");
		     len = sizeof(buf);
		     wrong += expect(XPORT_OK, xport_group_get(m.g, "late", buf, &len), "the value put meanwhile");
		     return wrong + m.leave();
	     })) {
		EXPECT_FALSE(o.hung || o.killed);
		EXPECT_EQ("", o.said);
	}
}

} // namespace
