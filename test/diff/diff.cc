/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * diff.cc - differential runs: the same random program over several networks.
 *
 *     diff_check [--seeds N | --seed S] [--ops N] [--emulate] [GoogleTest's flags] BACKEND[:PROVIDER] ...
 *     diff_check ... --apart NETNS,ADDRESS,BACKEND[:PROVIDER] NETNS,ADDRESS,BACKEND[:PROVIDER]
 *
 * Each test is one seed over one provider, which must end as the model says (model.h), and so as over every other
 * provider: memories, completions, messages and notifications.  Default: 20 seeds of 10000 operations.  What failed runs
 * again with --seed S.  --apart puts each side into a network namespace of its own, where it listens at that address.
 */
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "conform/gtest_cases.h"
#include "diff/program.h"
#include "diff/run.h"

namespace
{

class Differential : public testing::Test
{
public:
	explicit Differential(const h_config &config) : config_(config) {}

	void TestBody() override
	{
		static h_result result;

		h_run(&diff_scenario, &config_, &result);
		if (result.outcome != H_PASSED)
			FAIL() << result.text << "again: diff_check --seed " << config_.param << " --ops "
			       << diff_phases * 2 * DIFF_STEPS << (config_.emulate ? " --emulate " : " ") << where();
	}

private:
	std::string where() const
	{
		char text[512];

		return config_.place ? h_name_places(config_.place, text, sizeof(text)) : config_.backend;
	}

	h_config config_;
};

void add(const std::string *backend, const h_place *place, bool emulate, uint64_t seed)
{
	h_config config = {};

	config.backend = backend->c_str();
	config.place = place;
	config.emulate = emulate;
	config.threads = gtest_cases::within_process(*backend);
	config.param = seed;
	gtest_cases::add(gtest_cases::suite_of(*backend) + (emulate ? "/emulated" : "/native"),
	                 "seed_" + std::to_string(seed), [=]() -> Differential * { return new Differential(config); });
}

} // namespace

int main(int argc, char **argv)
{
	static std::vector<std::string> backends;
	static h_place place[2];
	uint64_t first = 1, seeds = 20;
	bool emulate = false, apart = false;

	testing::InitGoogleTest(&argc, argv);
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--seeds"))
			seeds = h_read_number("--seeds", argv[++i]);
		else if (!strcmp(argv[i], "--seed"))
			first = h_read_number("--seed", argv[++i]), seeds = 1;
		else if (!strcmp(argv[i], "--ops"))
			diff_phases = static_cast<int>((h_read_number("--ops", argv[++i]) - 1) / (2 * DIFF_STEPS) + 1);
		else if (!strcmp(argv[i], "--emulate"))
			emulate = true;
		else if (!strcmp(argv[i], "--apart") && i + 2 < argc && backends.empty() &&
		         h_read_place(argv[i + 1], &place[0]) && h_read_place(argv[i + 2], &place[1])) {
			backends.push_back(place[0].backend);
			apart = true;
			i += 2;
		} else if (argv[i][0] == '-' || apart) {
			backends.clear();
			break;
		} else
			backends.push_back(argv[i]);
	}
	if (backends.empty()) {
		fprintf(stderr,
		        "usage: diff_check [--seeds N | --seed S] [--ops N] [--emulate] BACKEND[:PROVIDER] ...\n"
		        "       diff_check ... --apart NETNS,ADDRESS,BACKEND NETNS,ADDRESS,BACKEND\n");
		return 2;
	}
	for (uint64_t seed = first; seed < first + seeds; seed++)
		for (const std::string &b : backends)
			add(&b, apart ? place : nullptr, emulate, seed);
	return RUN_ALL_TESTS();
}
