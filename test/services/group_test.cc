/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * group_test.cc - groups of processes: their results, their sources, and wrong input.
 *
 *	group_check [GoogleTest's flags] BACKEND[:PROVIDER]...
 */
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "services/group_world.h"

using namespace group_world;

namespace
{

constexpr int LIMIT = 20000;

void expect_well(const std::vector<outcome> &all)
{
	for (size_t i = 0; i < all.size(); i++) {
		EXPECT_FALSE(all[i].hung) << "rank " << i;
		EXPECT_EQ("", all[i].said) << "rank " << i;
	}
}

void expect_says(const outcome &o, const char *words)
{
	EXPECT_FALSE(o.hung);
	EXPECT_NE(std::string::npos, o.said.find(words)) << o.said;
}

/* ---- results ---- */

/* A number of element i of a rank, small enough for sums in float to be exact. */
int64_t element(int rank, size_t i)
{
	return static_cast<int64_t>((static_cast<size_t>(rank) * 7919 + i * 31) % 1009) - 500;
}

template <typename T> std::string reduces(const member &m, size_t count, int type, int op)
{
	std::vector<T> mine(count), wanted(count), got(count);
	int r;

	for (size_t i = 0; i < count; i++) {
		for (int k = 0; k < m.n; k++) {
			T v = static_cast<T>(element(k, i));

			if (k == 0)
				wanted[i] = v;
			else if (op == XPORT_GROUP_SUM)
				wanted[i] = static_cast<T>(wanted[i] + v);
			else if (op == XPORT_GROUP_MIN ? v < wanted[i] : v > wanted[i])
				wanted[i] = v;
		}
		mine[i] = static_cast<T>(element(m.rank, i));
	}
	r = xport_group_allreduce(m.g, mine.data(), got.data(), count, type, op, scaled(LIMIT));
	if (r == XPORT_OK && got == wanted)
		r = xport_group_allreduce(m.g, mine.data(), mine.data(), count, type, op, scaled(LIMIT));
	if (r != XPORT_OK)
		return error_of(r);
	return got == wanted && mine == wanted ? "" : "allreduce of " + std::to_string(count) + " elements is wrong";
}

std::string reduces_all(const member &m)
{
	for (size_t count : {0, 1, 3, 100, 2047, 2049, 5000, 40000}) {
		for (int op = XPORT_GROUP_SUM; op <= XPORT_GROUP_MAX; op++) {
			std::string wrong = reduces<int64_t>(m, count, XPORT_GROUP_INT64, op);

			if (wrong.empty())
				wrong = reduces<double>(m, count, XPORT_GROUP_DOUBLE, op);
			if (wrong.empty())
				wrong = reduces<float>(m, count, XPORT_GROUP_FLOAT, op);
			if (wrong.empty())
				wrong = reduces<int32_t>(m, count, XPORT_GROUP_INT32, op);
			if (wrong.empty())
				wrong = reduces<uint64_t>(m, count, XPORT_GROUP_UINT64, op);
			if (!wrong.empty())
				return wrong;
		}
	}
	return "";
}

std::string gathers(const member &m, size_t len)
{
	std::vector<uint8_t> mine(len), all(len * static_cast<size_t>(m.n), 0xee);
	int r;

	for (size_t i = 0; i < len; i++)
		mine[i] = static_cast<uint8_t>(element(m.rank, i));
	r = xport_group_allgather(m.g, mine.data(), len, all.data(), scaled(LIMIT));
	if (r != XPORT_OK)
		return error_of(r);
	for (size_t i = 0; i < all.size(); i++)
		if (all[i] != static_cast<uint8_t>(element(static_cast<int>(i / len), i % len)))
			return "allgather of " + std::to_string(len) + " bytes is wrong";
	return "";
}

std::string broadcasts(const member &m, size_t len, int root)
{
	std::vector<uint8_t> buf(len, 0xee);
	int r;

	for (size_t i = 0; i < len && m.rank == root; i++)
		buf[i] = static_cast<uint8_t>(element(root, i));
	r = xport_group_broadcast(m.g, buf.data(), len, root, scaled(LIMIT));
	if (r != XPORT_OK)
		return error_of(r);
	for (size_t i = 0; i < len; i++)
		if (buf[i] != static_cast<uint8_t>(element(root, i)))
			return "broadcast of " + std::to_string(len) + " bytes by " + std::to_string(root) +
			       " is wrong";
	return "";
}

std::string values(const member &m)
{
	for (int round = 0; round < 3; round++) {
		std::string own = "round " + std::to_string(round) + " of " + std::to_string(m.rank);
		std::string value(static_cast<size_t>(m.rank * 1000 + round), static_cast<char>('a' + m.rank));
		std::string common = std::to_string(m.rank);
		char buf[20000];

		if (xport_group_put(m.g, own.c_str(), value.data(), value.size()) != XPORT_OK ||
		    xport_group_put(m.g, "common", common.data(), common.size()) != XPORT_OK)
			return "put";
		if (int r = xport_group_fence(m.g, scaled(LIMIT)); r != XPORT_OK)
			return error_of(r);
		for (int k = 0; k < m.n; k++) {
			std::string key = "round " + std::to_string(round) + " of " + std::to_string(k);
			size_t len = sizeof(buf);

			if (xport_group_get(m.g, key.c_str(), buf, &len) != XPORT_OK ||
			    std::string(buf, len) !=
			            std::string(static_cast<size_t>(k * 1000 + round), static_cast<char>('a' + k)))
				return "the value of " + key + " is wrong";
		}
		size_t len = sizeof(buf);
		if (xport_group_get(m.g, "common", buf, &len) != XPORT_OK ||
		    std::string(buf, len) != std::to_string(m.n - 1))
			return "the value of the highest rank must count";
		len = 0;
		if (m.n > 1 && (xport_group_get(m.g, "common", nullptr, &len) != XPORT_ERR_BOUNDS || len == 0))
			return "a buffer that is too small";
		if (xport_group_get(m.g, "nobody's", buf, &len) != XPORT_ERR_UNREACHABLE)
			return "a key that nobody put";
	}
	return expect(XPORT_OK, xport_group_fence(m.g, scaled(LIMIT)), "a fence without values");
}

/* Everything that a group does. */
std::string all_of_it(member &m)
{
	std::string wrong;

	for (int i = 0; i < 5 && wrong.empty(); i++)
		wrong = expect(XPORT_OK, xport_group_barrier(m.g, scaled(LIMIT)), "barrier");
	for (size_t len : {0, 1, 8, 1000, 9000, 100000}) {
		if (wrong.empty())
			wrong = gathers(m, len);
		for (int root = 0; root < m.n && wrong.empty(); root += m.n > 4 ? 3 : 1)
			wrong = broadcasts(m, len, root);
	}
	if (wrong.empty())
		wrong = values(m);
	return wrong.empty() ? reduces_all(m) : wrong;
}

std::string whole_life(int)
{
	member m;
	std::string wrong = m.join();

	if (wrong.empty())
		wrong = all_of_it(m);
	return wrong.empty() ? m.leave() : wrong;
}

TEST(Results, AreThoseOfALocalComputation)
{
	std::string dir = make_directory();

	for (int n : {1, 2, 3, 4, 6, 8}) {
		SCOPED_TRACE(n);
		expect_well(run(n, n % 2 != 0 ? dir : root_source(), whole_life));
	}
	EXPECT_EQ(0, rmdir(dir.c_str() + 4)) << "files are left";
}

TEST(Results, OfSixteenMembers)
{
	expect_well(run(
		16, root_source(),
		[](int) {
			member m;
			std::string wrong = m.join();

			for (int i = 0; i < 3 && wrong.empty(); i++) {
				wrong = reduces<int64_t>(m, 1, XPORT_GROUP_INT64, XPORT_GROUP_SUM);
				if (wrong.empty())
					wrong = reduces<double>(m, 20000, XPORT_GROUP_DOUBLE, XPORT_GROUP_SUM);
				if (wrong.empty())
					wrong = broadcasts(m, 5000, 15 - i);
			}
			if (wrong.empty())
				wrong = values(m);
			return wrong.empty() ? m.leave() : wrong;
		},
		{}, 60000));
}

/* One message over the endpoint of each pair, and the same connection at both ends. */
std::string pairs(const member &m, int first, int last)
{
	std::string wrong;

	for (int k = first; k <= last && wrong.empty(); k++) {
		xport_ep_info info = {};
		xport_opt opt = {};
		uint64_t in = 0, out = static_cast<uint64_t>(m.rank);
		xport_ep *ep, *again;
		int r, left = 2;

		if (k == m.rank)
			continue;
		r = xport_group_ep(m.g, k, scaled(LIMIT), &ep);
		if (r != XPORT_OK)
			return "to " + std::to_string(k) + ": " + error_of(r);
		info.size = sizeof(info);
		opt.size = sizeof(opt);
		opt.source = ep;
		if (xport_group_ep(m.g, k, 0, &again) != XPORT_OK || again != ep)
			wrong += "another endpoint the second time\n";
		if (xport_recv(m.x, &in, sizeof(in), 1, UINT64_MAX, &opt) != XPORT_OK ||
		    xport_send(ep, &out, sizeof(out), 1, nullptr) != XPORT_OK)
			return "post";
		for (int64_t until = now_ms() + scaled(LIMIT); left > 0 && now_ms() < until;) {
			xport_completion c;

			if (xport_wait(m.x, &c, 1, 100) == 1 && xport_group_step(m.g, &c) == 0)
				left -= c.status == XPORT_OK && c.type != XPORT_EVENT_LOST;
		}
		if (left > 0 || in != static_cast<uint64_t>(k))
			wrong += "no message of " + std::to_string(k) + "\n";
	}
	return wrong;
}

/* At distances 3 and 5 of eight members nobody is connected before. All connect at once, from both sides. */
TEST(Endpoints, AreMadeWhenFirstUsed)
{
	expect_well(run(8, root_source(), [](int) {
		member m;
		std::string wrong = m.join();
		xport_group_info info = {};
		xport_ep *ep;

		info.size = sizeof(info);
		if (!wrong.empty())
			return wrong;
		if (xport_group_query(m.g, &info) != XPORT_OK || info.endpoints != 5)
			wrong += std::to_string(info.endpoints) + " endpoints, not 5\n";
		wrong += expect(XPORT_OK, xport_group_barrier(m.g, scaled(LIMIT)), "barrier");
		if (int r = xport_group_ep(m.g, (m.rank + 3) % 8, 0, &ep); r != XPORT_OK) /* somebody has come */
			wrong += expect(XPORT_ERR_TIMEOUT, r, "without waiting");
		wrong += pairs(m, 0, 7);
		if (xport_group_query(m.g, &info) != XPORT_OK || info.endpoints != 7)
			wrong += std::to_string(info.endpoints) + " endpoints, not 7\n";
		wrong += expect(XPORT_ERR_INVALID, xport_group_ep(m.g, m.rank, 0, &ep), "to itself");
		wrong += expect(XPORT_ERR_INVALID, xport_group_ep(m.g, 8, 0, &ep), "to nobody");
		return wrong + m.leave();
	}));
}

/* Opposite members of six connect to each other at the same moment, while the others sleep. */
TEST(Endpoints, FromBothSidesAtOnce)
{
	for (int i = 0; i < 8; i++)
		expect_well(run(6, root_source(), [](int) {
			member m;
			std::string wrong = m.join();

			if (!wrong.empty())
				return wrong;
			wrong += expect(XPORT_OK, xport_group_barrier(m.g, scaled(LIMIT)), "barrier");
			for (int low = 0; low < 3; low++) {
				int64_t when = now_ms() + 20;

				wrong += expect(XPORT_OK,
				                xport_group_broadcast(m.g, &when, sizeof(when), 0, scaled(LIMIT)),
				                "when");
				while (m.rank % 3 == low && now_ms() < when)
					;
				if (m.rank % 3 == low)
					wrong += pairs(m, (m.rank + 3) % 6, (m.rank + 3) % 6);
				wrong += expect(XPORT_OK, xport_group_barrier(m.g, scaled(LIMIT)), "barrier");
			}
			return wrong + m.leave();
		}));
}

/* ---- sources ---- */

TEST(Source, RootOfAnotherProcess)
{
	std::string source = root_source();

	expect_well(run(5, source, [&](int rank) -> std::string {
		member m;
		std::string wrong;

		if (rank == 4) /* is no member */
			return expect(XPORT_OK, xport_group_serve(source.c_str() + 5, 4, "1", scaled(LIMIT)), "serve");
		setenv("XPORT_GROUP_SIZE", "4", 1);
		setenv("XPORT_GROUP_NAME", "1", 1);
		sleep_ms(rank == 0 ? 300 : 0); /* the address is taken by then */
		wrong = m.join();
		return wrong.empty() ? m.leave() : wrong;
	}));
}

TEST(Source, SeveralGroupsInOneDirectory)
{
	std::string dir = make_directory();

	expect_well(run(4, dir, [](int rank) {
		member m;
		std::string wrong;

		setenv("XPORT_GROUP_SIZE", "2", 1);
		setenv("XPORT_GROUP_RANK", std::to_string(rank / 2).c_str(), 1);
		setenv("XPORT_GROUP_NAME", rank % 2 ? "odd" : "even", 1);
		wrong = m.join();
		return wrong.empty() ? m.leave() : wrong;
	}));
	EXPECT_EQ(0, rmdir(dir.c_str() + 4));
}

TEST(Source, FunctionsOfTheApplication)
{
	board *shared = board_new();

	expect_well(run(3, "", [&](int rank) {
		xport_group_exchange e = {shared, rank, 3, board_put, nullptr, board_get};
		xport_group_attr a = {};
		member m;
		std::string wrong;

		a.size = sizeof(a);
		a.exchange = &e;
		sleep_ms(rank * 50);
		wrong = m.join(&a);
		if (wrong.empty())
			wrong = values(m);
		return wrong.empty() ? m.leave() : wrong;
	}));
	board_free(shared);
}

/* ---- wrong input ---- */

std::string joins(const char *name = nullptr, const char *value = nullptr, int timeout_ms = 600)
{
	member m;

	if (name != nullptr)
		setenv(name, value, 1);
	return m.join(nullptr, timeout_ms);
}

TEST(Wrong, ARankThatNeverComes)
{
	std::string dir = make_directory();

	for (const std::string &source : {root_source(), dir}) {
		SCOPED_TRACE(source);
		for (const outcome &o : run(5, source, [](int rank) {
			     /* The root is the first to give up: one that gave up before is missing, too. */
			     return rank == 1 || rank == 3 ? "" : joins(nullptr, nullptr, rank == 0 ? 600 : 1200);
		     }))
			if (!o.said.empty())
				expect_says(o,
				            "XPORT_ERR_TIMEOUT: the group is not complete: waited for ranks 1 and 3|");
		for (const outcome &o : run(3, source, [](int rank) { return rank == 0 ? "" : joins(); }))
			if (!o.said.empty())
				expect_says(o,
				            source == dir ? "waited for rank 0|" : "waited for the root at 127.0.0.1:");
	}
	EXPECT_EQ(0, rmdir(dir.c_str() + 4)) << "files are left";
}

TEST(Wrong, TwoProcessesWithOneRank)
{
	std::string dir = make_directory();

	for (const std::string &source : {root_source(), dir}) {
		int refused = 0;

		for (const outcome &o : run(4, source, [](int rank) {
			     return joins("XPORT_GROUP_RANK", rank == 3 ? "2" : std::to_string(rank).c_str());
		     })) {
			EXPECT_FALSE(o.hung);
			refused += o.said.find("XPORT_ERR_BUSY: two processes have rank 2: ") != std::string::npos;
		}
		EXPECT_EQ(1, refused) << source;
	}
	EXPECT_EQ(0, rmdir(dir.c_str() + 4)) << "files are left";
}

TEST(Wrong, MembersDoNotAgree)
{
	std::string dir = make_directory();

	for (const std::string &source : {root_source(), dir}) {
		std::vector<outcome> all =
			run(2, source, [](int rank) { return joins("XPORT_GROUP_SIZE", rank == 0 ? "2" : "3"); });

		expect_says(all[1], "XPORT_ERR_CONFIG: ");
		expect_says(all[1], "has 2 members, and rank 1 says 3|");
		expect_says(all[0], "waited for rank 1|");
	}
	expect_says(run(2, root_source(), [](int rank) { return joins("XPORT_GROUP_NAME", rank == 0 ? "a" : "b"); })[1],
	            "the root serves the group \"a\", not \"b\"");
	rmdir(dir.c_str() + 4);
}

TEST(Wrong, FilesOfAnEarlierJob)
{
	std::string dir = make_directory(), stale;

	/* All are killed when they have joined. */
	run(3, dir, [](int) {
		member m;
		std::string wrong = m.join();

		sleep_ms(scaled(300)); /* all have */
		if (wrong.empty())
			kill(getpid(), SIGKILL);
		return wrong;
	});
	for (const outcome &o : run(3, dir, [](int) { return joins(); })) {
		expect_says(o, "XPORT_ERR_BUSY: ");
		expect_says(o, "is a file of an earlier job, by process ");
		expect_says(o, "|rm ");
	}
	/* The file of one rank alone: it is not taken for a member of this job. */
	unlink((dir.substr(4) + "/group.0").c_str());
	unlink((dir.substr(4) + "/group.1").c_str());
	expect_says(run(3, dir, [](int) { return joins(); })[0], "group.2 is a file of an earlier job");
	unlink((dir.substr(4) + "/group.2").c_str());
	expect_well(run(3, dir, whole_life));
	std::ofstream(dir.substr(4) + "/group.1") << "rubbish";
	expect_says(run(2, dir, [](int) { return joins(); })[0], "group.1 is not a file of a group");
	unlink((dir.substr(4) + "/group.1").c_str());
	EXPECT_EQ(0, rmdir(dir.c_str() + 4)) << "files are left";
}

TEST(Wrong, Variables)
{
	static const struct {
		const char *name, *value, *says;
	} wrong[] = {
		{"XPORT_GROUP", "none:http://localhost:1",
	         "there is no such source|there are root:HOST:PORT, dir:PATH, etcd:URL"},
		{"XPORT_GROUP", "pmix", "needs PMIX_NAMESPACE, which is not set"},
		{"XPORT_GROUP", "etcd:localhost:1", "has something that is no URL"},
		{"XPORT_GROUP", "etcd:http://job:word@localhost:1", "a URL of etcd must have no user and no password"},
		{"XPORT_GROUP", "", "no launcher was found: looked at XPORT_GROUP, PMI_FD and PMIX_NAMESPACE"},
		{"XPORT_GROUP", "dir:/nonexistent", "is not a directory|make the directory"},
		{"XPORT_GROUP", "dir:", "is empty"},
		{"XPORT_GROUP", "root:nothing", "is not HOST:PORT"},
		{"XPORT_GROUP", "root:localhost:", "is not HOST:PORT"},
		{"XPORT_GROUP", "root:192.0.2.1:99999999", "XPORT_ERR_ADDRESS"},
		{"XPORT_GROUP", "pmi1", "needs PMI_FD, PMI_RANK and PMI_SIZE: PMI_FD is \"\""},
		{"XPORT_GROUP_RANK", "1", "rank 1 is not below the number of members, 1"},
		{"XPORT_GROUP_RANK", "-1", "XPORT_GROUP_RANK=-1 is not a number"},
		{"XPORT_GROUP_RANK", "0x0", "XPORT_GROUP_RANK=0x0 is not a number"},
		{"XPORT_GROUP_RANK", "", "XPORT_GROUP_SIZE is set, but not XPORT_GROUP_RANK"},
		{"XPORT_GROUP_SIZE", "0", "XPORT_GROUP_SIZE=0"},
		{"XPORT_GROUP_SIZE", "1048577", "is not a number that is allowed"},
		{"XPORT_GROUP_NAME", "../x", "the name \"../x\" is not allowed"},
		{"XPORT_GROUP_ADDRESS", "no-port", "XPORT_ERR_ADDRESS"},
	};

	for (const auto &w : wrong)
		expect_says(run(1, root_source(), [&](int) { return joins(w.name, w.value); })[0], w.says);
	expect_says(run(1, "",
	                [](int) {
				unsetenv("XPORT_GROUP_RANK");
				unsetenv("XPORT_GROUP_SIZE");
				return joins("XPORT_GROUP", "root:127.0.0.1:1");
			})[0],
	            "the rank of this process is unknown: looked at XPORT_GROUP_RANK, PMI_RANK, SLURM_PROCID, ");
	expect_well(run(2, "", [source = root_source()](int rank) {
		unsetenv("XPORT_GROUP_RANK");
		unsetenv("XPORT_GROUP_SIZE");
		setenv("SLURM_PROCID", std::to_string(rank).c_str(), 1);
		setenv("SLURM_NTASKS", "2", 1);
		return joins("XPORT_GROUP", source.c_str(), LIMIT);
	}));
}

TEST(Wrong, Arguments)
{
	expect_well(run(1, root_source(), [](int) {
		xport_group_attr a = {};
		xport_group_info info = {};
		xport_group *g = nullptr;
		double d[4] = {};
		std::string wrong;
		member m;

		wrong += expect(XPORT_OK, xport_open(nullptr, &m.x), "open");
		wrong += expect(XPORT_ERR_INVALID, xport_group_create(nullptr, nullptr, 0, &g), "no instance");
		wrong += expect(XPORT_ERR_INVALID, xport_group_create(m.x, nullptr, 0, nullptr), "no result");
		wrong += expect(XPORT_ERR_INVALID, xport_group_create(m.x, nullptr, -2, &g), "a wrong limit");
		wrong += expect(XPORT_ERR_INVALID, xport_group_create(m.x, &a, 0, &g), "no size");
		a.size = sizeof(a);
		a.tag = 1;
		wrong += expect(XPORT_ERR_INVALID, xport_group_create(m.x, &a, 0, &g), "a wrong tag");
		a.tag = 0;
		a.members = 2;
		a.rank = 2;
		wrong += expect(XPORT_ERR_INVALID, xport_group_create(m.x, &a, 0, &g), "a wrong rank");
		a.members = 1;
		a.rank = 0;
		wrong += expect(XPORT_OK, xport_group_create(m.x, &a, LIMIT, &m.g), "create");
		wrong += expect(XPORT_ERR_INVALID, xport_group_query(m.g, &info), "no size");
		wrong += expect(XPORT_ERR_INVALID, xport_group_query(nullptr, &info), "no group");
		wrong += expect(XPORT_ERR_INVALID, xport_group_step(nullptr, nullptr), "no group");
		wrong += expect(XPORT_ERR_INVALID, xport_group_barrier(nullptr, 0), "no group");
		wrong += expect(XPORT_ERR_INVALID, xport_group_barrier(m.g, -2), "a wrong limit");
		wrong += expect(XPORT_ERR_INVALID, xport_group_broadcast(m.g, nullptr, 1, 0, 0), "no buffer");
		wrong += expect(XPORT_ERR_INVALID, xport_group_broadcast(m.g, d, 1, 1, 0), "a wrong root");
		wrong += expect(XPORT_ERR_INVALID, xport_group_allgather(m.g, d, SIZE_MAX, d, 0), "too long");
		wrong += expect(XPORT_ERR_INVALID, xport_group_allreduce(m.g, d, d, 1, 0, 1, 0), "a wrong type");
		wrong += expect(XPORT_ERR_INVALID, xport_group_allreduce(m.g, d, d, 1, 1, 4, 0), "a wrong operation");
		wrong += expect(
			XPORT_ERR_INVALID,
			xport_group_allreduce(m.g, reinterpret_cast<char *>(d) + 1, d, 1, XPORT_GROUP_DOUBLE, 1, 0),
			"not aligned");
		wrong += expect(XPORT_ERR_INVALID, xport_group_put(m.g, "", d, 1), "no key");
		wrong += expect(XPORT_ERR_INVALID, xport_group_put(m.g, std::string(256, 'k').c_str(), d, 1),
		                "a long key");
		wrong += expect(XPORT_ERR_INVALID, xport_group_put(m.g, "k", d, XPORT_GROUP_VALUE_MAX + 1),
		                "a long value");
		wrong += expect(XPORT_ERR_INVALID, xport_group_get(m.g, "k", d, nullptr), "no length");
		wrong += expect(XPORT_ERR_INVALID, xport_group_serve("127.0.0.1:0", 0, nullptr, 0), "nobody");
		wrong += expect(XPORT_ERR_TIMEOUT, xport_group_serve("127.0.0.1:0", 1, nullptr, 0), "nobody comes");
		if (xport_group_failed(m.g) != -1 || xport_group_failed(nullptr) != -1)
			wrong += "it has not failed";
		return wrong + m.leave();
	}));
}

} // namespace

int main(int argc, char **argv)
{
	int rc = 0;

	srand(static_cast<unsigned>(getpid()));
	testing::InitGoogleTest(&argc, argv);
	for (const char *v : {"PMI_FD", "PMI_RANK", "PMI_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "XPORT_GROUP"})
		unsetenv(v);
	for (int i = 1; i < argc; i++) {
		printf("---- %s\n", argv[i]);
		setenv("XPORT_BACKEND", argv[i], 1);
		rc |= RUN_ALL_TESTS();
	}
	return argc < 2 ? RUN_ALL_TESTS() : rc;
}
