/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kill.cc - the kill and stop matrix as a program:
 *
 *     kill_check [--kills N] [--seed N] [--measure N] [--window MS] [--table FILE] [GoogleTest's flags]
 *                [BACKEND[:PROVIDER] ...]
 *
 * Each cell, an end of the victim in a step of a connection, is a test "ucx_tcp/killed.put_target".  --kills: how many
 * ends in all, at least one a cell that is run.  --measure N: at one end in N the third peer's rate is measured (0: never), for MS
 * milliseconds before and after.  --seed: another sequence of random moments.  Without names: shm, UCX and libfabric as far as they
 * are ready.  Of "ucx:shm+ofi:tcp" the survivor has both transports, and each victim has the one whose turn it is.
 */
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "conform/gtest_cases.h"
#include "crew.h"
#include "table.h"

namespace
{

struct Crew {
	std::string backend;
	bool silent;
	kl_board *board;
	kl_cell *cells;
	int ncells;
	pid_t conductor;
	bool started;
};

struct Options {
	long kills = 0;
	unsigned long long seed = 1;
	int measure = 8, window = 20;
	const char *table = nullptr;
	std::vector<std::string> names;
};

std::vector<Crew *> crews;

std::string suite_name(const Crew *crew, const kl_cell *cell)
{
	std::string name = gtest_cases::suite_of(crew->backend);

	if (cell->step == KL_AFTER)
		return name + (crew->silent ? "/after_silence" : "/after_ends");
	return name + "/" + kl_way_names[cell->way];
}

std::string test_name(const kl_cell *cell)
{
	if (cell->step == KL_AFTER)
		return kl_step_names[KL_AFTER];
	return std::string(kl_step_names[cell->step]) + "_" + kl_part_names[cell->part];
}

/* The crews of a provider work side by side: one of them mostly waits. */
void start(const std::string &backend)
{
	for (Crew *crew : crews)
		if (crew->backend == backend && !crew->started) {
			crew->started = true;
			crew->conductor = crew_start(crew->board);
		}
}

/*
 * A leak of a hundred bytes an end would be more than this where there are thousands.  What pools keep is not: UCX's grow by
 * chunks whenever a moment has more in flight than any before, up to 0.9 MiB in small blocks over 750 ends, less over 3,000.
 */
void expect_nothing_left(const crew_left &left)
{
	EXPECT_GE(0, left.fds);
	EXPECT_EQ(0u, left.late_ways);
	EXPECT_GT(left.third_rate, 0.33) << "the third peer was slowed down when another ended";
	if (left.own_files) {
		EXPECT_EQ(0, left.files);
	}
	if (left.ends >= 50) {
		EXPECT_LT(left.heap, (2 << 20) + 64 * static_cast<long>(left.ends)) << "in " << left.ends << " ends";
		EXPECT_LT(left.large, 4 << 20) << "in " << left.ends << " ends";
	}
}

class Kill : public testing::Test
{
public:
	Kill(Crew *crew, kl_cell *cell) : crew_(crew), cell_(cell) {}

	void TestBody() override
	{
		kl_state state;

		start(crew_->backend);
		state = crew_wait(cell_, crew_->conductor);
		RecordProperty("ends", cell_->rounds);
		if (state == KL_SKIPPED)
			GTEST_SKIP() << cell_->text;
		if (state == KL_FAILED)
			FAIL() << cell_->text;
		if (cell_->step == KL_AFTER)
			expect_nothing_left(crew_what_is_left(crew_->board));
	}

private:
	Crew *crew_;
	kl_cell *cell_;
};

void add(Crew *crew, kl_cell *cell)
{
	gtest_cases::add(suite_name(crew, cell), test_name(cell), [=]() -> Kill * { return new Kill(crew, cell); });
}

void add_backend(const std::string &backend, const Options &options)
{
	for (int silent = 0; silent < 2; silent++) {
		Crew *crew = new Crew{backend, silent != 0, nullptr, nullptr, 0, -1, false};

		crew->board = crew_board(strdup(backend.c_str()), silent);
		if (!crew->board) {
			perror("kill_check: no memory for a board");
			exit(2);
		}
		crew->cells = crew_cells(crew->board, &crew->ncells);
		crew_set(crew->board, options.seed * 1000 + crews.size(), options.measure, options.window);
		for (int i = 0; i < crew->ncells; i++)
			add(crew, &crew->cells[i]);
		crews.push_back(crew);
	}
}

bool is_asked_for(const Crew *crew, const kl_cell *cell)
{
	const testing::UnitTest *all = testing::UnitTest::GetInstance();
	std::string suite = suite_name(crew, cell), test = test_name(cell);

	for (int i = 0; i < all->total_test_suite_count(); i++) {
		const testing::TestSuite *s = all->GetTestSuite(i);

		if (suite != s->name())
			continue;
		for (int k = 0; k < s->total_test_count(); k++)
			if (test == s->GetTestInfo(k)->name())
				return s->GetTestInfo(k)->should_run();
	}
	return false;
}

/* Silence takes time: of what is more than one a cell, it gets a tenth. */
void share_out(long kills)
{
	long cells[2] = {0, 0}, each[2], rest;

	for (Crew *crew : crews)
		for (int i = 0; i < crew->ncells; i++)
			if (is_asked_for(crew, &crew->cells[i])) {
				crew->cells[i].rounds = 1;
				cells[crew->silent] += crew->cells[i].step != KL_AFTER;
			}
	rest = kills - cells[0] - cells[1];
	if (rest < 0)
		rest = 0;
	each[1] = cells[1] == 0 ? 0 : cells[0] == 0 ? (rest + cells[1] - 1) / cells[1] : rest / 10 / cells[1];
	rest -= each[1] * cells[1];
	each[0] = cells[0] ? (rest + cells[0] - 1) / cells[0] : 0;
	for (Crew *crew : crews)
		for (int i = 0; i < crew->ncells; i++)
			if (crew->cells[i].rounds && crew->cells[i].step != KL_AFTER)
				crew->cells[i].rounds += static_cast<int>(each[crew->silent]);
}

/* Shares out when GoogleTest has chosen, and ends with the table. */
class Frame : public testing::EmptyTestEventListener
{
public:
	explicit Frame(const Options &options) : options_(options) {}

	void OnTestIterationStart(const testing::UnitTest &, int) override { share_out(options_.kills); }

	void OnTestIterationEnd(const testing::UnitTest &, int) override
	{
		std::vector<kl_board *> boards;
		FILE *f;

		for (Crew *crew : crews)
			if (crew->started)
				boards.push_back(crew->board);
		table_write(stdout, boards.data(), static_cast<int>(boards.size()));
		if (!options_.table)
			return;
		f = fopen(options_.table, "w");
		if (!f) {
			fprintf(stderr, "kill_check: cannot write %s: %s\n", options_.table, strerror(errno));
			exit(2);
		}
		table_write(f, boards.data(), static_cast<int>(boards.size()));
		fclose(f);
	}

private:
	Options options_;
};

std::vector<std::string> ready_ones()
{
	static const char *const wanted[] = {"shm:ring",    "ucx:tcp", "ucx:shm", "ofi:tcp",
	                                     "ofi:sockets", "ofi:shm", "ofi:net"};
	static const char *const several = "ucx:shm+ofi:tcp";
	static xport_candidate list[64];
	int n = h_list_candidates(list, 64);
	std::vector<std::string> names;

	for (const char *want : wanted)
		for (int i = 0; i < n; i++)
			if (!strcmp(list[i].name, want)) {
				if (list[i].state == XPORT_READY)
					names.push_back(want);
				else
					printf("not tested: %s: %s. %s\n", want, list[i].reason, list[i].hint);
			}
	if (std::count(names.begin(), names.end(), "ucx:shm") && std::count(names.begin(), names.end(), "ofi:tcp"))
		names.push_back(several);
	else
		printf("not tested: %s: one of them is not usable\n", several);
	return names;
}

[[noreturn]] void usage()
{
	fprintf(stderr,
	        "usage: kill_check [--kills N] [--seed N] [--measure N] [--window MS] [--table FILE] [--gtest_...] "
	        "[BACKEND[:PROVIDER] ...]\n");
	exit(2);
}

Options parse(int argc, char **argv)
{
	Options o;

	for (int i = 1; i < argc; i++) {
		if (argv[i][0] != '-') {
			o.names.push_back(argv[i]);
			continue;
		}
		if (i + 1 >= argc)
			usage();
		if (!strcmp(argv[i], "--kills"))
			o.kills = static_cast<long>(h_read_number("--kills", argv[++i]));
		else if (!strcmp(argv[i], "--seed"))
			o.seed = h_read_number("--seed", argv[++i]);
		else if (!strcmp(argv[i], "--measure"))
			o.measure = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--window"))
			o.window = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--table"))
			o.table = argv[++i];
		else
			usage();
	}
	return o;
}

} // namespace

int main(int argc, char **argv)
{
	Options options;
	int failed;

	testing::InitGoogleTest(&argc, argv);
	options = parse(argc, argv);
	if (options.names.empty())
		options.names = ready_ones();
	if (options.names.empty()) {
		fprintf(stderr, "kill_check: no provider is usable here\n");
		return 2;
	}
	for (const std::string &name : options.names)
		add_backend(name, options);
	testing::UnitTest::GetInstance()->listeners().Append(new Frame(options));
	failed = RUN_ALL_TESTS();
	for (Crew *crew : crews)
		if (crew->started && !crew_end(crew->conductor)) {
			fprintf(stderr, "kill_check: %s failed when its crew ended\n", crew->backend.c_str());
			failed = 1;
		}
	return failed;
}
