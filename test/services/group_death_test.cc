/* SPDX-License-Identifier: BSD-3-Clause */
/* group_death_test.cc - members that die, are suspended, leave, or do something else: all others end, and know who. */
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>

#include "services/group_world.h"

using namespace group_world;

namespace
{

constexpr int PEER_TIMEOUT_MS = 1000, LIMIT = 20000;

/* What xport_group.h promises, and a moment for a busy machine. */
int bound_ms()
{
	return PEER_TIMEOUT_MS * 3 / 2 + 1000 + scaled(500);
}

/* Calls all collective operations until one fails; then says with what, and who is to blame. */
std::string until_it_fails(const member &m, size_t count)
{
	std::vector<double> a(count), all(count * static_cast<size_t>(m.n));
	int r = XPORT_OK;

	for (int i = 0; r == XPORT_OK; i++) {
		switch (i % 4) {
		case 0:
			r = xport_group_barrier(m.g, -1);
			break;
		case 1:
			r = xport_group_allreduce(m.g, a.data(), a.data(), count, XPORT_GROUP_DOUBLE, XPORT_GROUP_MAX,
			                          -1);
			break;
		case 2:
			r = xport_group_broadcast(m.g, a.data(), count * sizeof(double), i % m.n, -1);
			break;
		default:
			r = xport_group_allgather(m.g, a.data(), count * sizeof(double), all.data(), -1);
		}
	}
	/* It stays so. */
	if (xport_group_barrier(m.g, -1) != r || xport_group_fence(m.g, -1) != r)
		return "another status the second time";
	return std::string(xport_status_name(r)) + " by " + std::to_string(xport_group_failed(m.g)) + " " + error_of(r);
}

/* Sends `signal` to the victim while all are busy. */
void victim_gets(int n, int victim, int signal, size_t count)
{
	int64_t when = 0;
	std::vector<outcome> all = run(
		n, root_source(),
		[&](int) {
			member m;
			std::string wrong;

			setenv("XPORT_PEER_TIMEOUT", (std::to_string(PEER_TIMEOUT_MS) + "ms").c_str(), 1);
			wrong = m.join();
			say_busy();
			return wrong.empty() ? until_it_fails(m, count) : wrong;
		},
		[&](const std::vector<pid_t> &pids) {
			wait_busy(n);
			sleep_ms(rand() % 100);
			when = now_ms();
			kill(pids[static_cast<size_t>(victim)], signal);
			if (signal == SIGSTOP) {
				sleep_ms(PEER_TIMEOUT_MS * 5 / 2);
				kill(pids[static_cast<size_t>(victim)], SIGCONT);
			}
		});

	for (int i = 0; i < n; i++) {
		const outcome &o = all[static_cast<size_t>(i)];

		EXPECT_FALSE(o.hung) << "rank " << i;
		if (i == victim) {
			EXPECT_TRUE(o.killed || o.said.find("XPORT_ERR_") == 0) << o.said;
			continue;
		}
		EXPECT_EQ(0u, o.said.find("XPORT_ERR_PEER_LOST by " + std::to_string(victim) + " "))
			<< i << ": " << o.said;
		EXPECT_LE(o.at - when, bound_ms()) << "rank " << i;
		EXPECT_GE(o.at - when, 0) << "rank " << i << " failed before";
	}
}

TEST(Death, OfEachRank)
{
	for (int victim = 0; victim < 5; victim++) {
		SCOPED_TRACE(victim);
		victim_gets(5, victim, SIGKILL, victim % 2 != 0 ? 1 : 50000);
	}
}

TEST(Death, OfASuspendedMember)
{
	victim_gets(5, rand() % 5, SIGSTOP, rand() % 2 != 0 ? 1 : 50000);
}

/* ---- without a death ---- */

TEST(Failure, AMemberDoesNotCall)
{
	std::vector<outcome> all = run(5, root_source(), [](int rank) {
		xport_group_info info = {};
		std::string wrong;
		member m;
		int r;

		wrong = m.join();
		if (!wrong.empty())
			return wrong;
		if (rank == 2)
			sleep_ms(scaled(2000)); /* the others have left by then */
		r = xport_group_barrier(m.g, scaled(400));
		wrong = std::to_string(xport_group_failed(m.g)) + " " + error_of(r);
		info.size = sizeof(info);
		sleep_ms(rank == 2 ? 0 : scaled(400));
		if (rank != 2 && (xport_group_query(m.g, &info) != XPORT_OK || info.endpoints != 4))
			wrong += " and " + std::to_string(info.endpoints) + " endpoints";
		return wrong;
	});

	for (const outcome &o : all) {
		EXPECT_EQ(0u, o.said.find("2 XPORT_ERR_TIMEOUT: ")) << o.said;
		EXPECT_EQ(std::string::npos, o.said.find(" endpoints")) << o.said;
	}
}

TEST(Failure, AMemberHasLeft)
{
	std::vector<outcome> all = run(4, root_source(), [](int rank) {
		member m;
		std::string wrong = m.join();
		int r;

		if (!wrong.empty() || rank == 1)
			return wrong.empty() ? "left" : wrong;
		r = xport_group_barrier(m.g, scaled(LIMIT));
		return std::to_string(xport_group_failed(m.g)) + " " + error_of(r);
	});

	for (int i = 0; i < 4; i++)
		/* The news may reach a member that is still in xport_group_create. */
		EXPECT_NE(std::string::npos,
		          all[static_cast<size_t>(i)].said.find(i == 1 ? "left" : "XPORT_ERR_PEER_CLOSED: "))
			<< all[static_cast<size_t>(i)].said;
	for (int i = 0; i < 4; i++)
		EXPECT_NE(std::string::npos, all[static_cast<size_t>(i)].said.find(i == 1 ? "left" : "rank 1 "))
			<< all[static_cast<size_t>(i)].said;
}

/* The members leave one after the other, right after their last operation. */
TEST(Failure, NotByLeavingAfterTheLastOperation)
{
	for (int i = 0; i < 6; i++)
		for (const outcome &o : run(5, root_source(), [](int) {
			     member m;
			     std::string wrong = m.join();

			     return wrong.empty() ? m.leave() : wrong;
		     }))
			EXPECT_EQ("", o.said);
}

TEST(Failure, MembersCallDifferentOperations)
{
	for (const outcome &o : run(3, root_source(), [](int rank) {
		     member m;
		     std::string wrong = m.join();
		     double d = 0;
		     int r;

		     if (!wrong.empty())
			     return wrong;
		     r = rank == 1 ? xport_group_barrier(m.g, scaled(LIMIT))
		                   : xport_group_allreduce(m.g, &d, &d, 1, XPORT_GROUP_DOUBLE, XPORT_GROUP_SUM,
		                                           scaled(LIMIT));
		     return error_of(r);
	     }))
		EXPECT_EQ(0u, o.said.find("XPORT_ERR_PROTOCOL: ")) << o.said;
	for (const outcome &o : run(2, root_source(), [](int rank) {
		     member m;
		     std::string wrong = m.join();

		     if (!wrong.empty())
			     return wrong;
		     return error_of(rank == 1 ? xport_group_barrier(m.g, scaled(LIMIT)) /* of the same length */
		                               : xport_group_broadcast(m.g, nullptr, 0, 1, scaled(LIMIT)));
	     }))
		EXPECT_TRUE(o.said.find("XPORT_ERR_PROTOCOL: ") == 0 || o.said.find("XPORT_OK") == 0) << o.said;
	for (const outcome &o : run(2, root_source(), [](int rank) {
		     char buf[64] = "";
		     member m;
		     std::string wrong = m.join();

		     return wrong.empty()
		                    ? error_of(xport_group_broadcast(m.g, buf, rank == 0 ? 8 : 64, 0, scaled(500)))
		                    : wrong;
	     }))
		EXPECT_TRUE(o.said.find("XPORT_ERR_PROTOCOL: ") == 0 || o.said.find("XPORT_OK") == 0) << o.said;
}

} // namespace
