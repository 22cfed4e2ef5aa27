/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * chaos.cc - connections that break, are cut off while they are made, or lose their peer at some step.
 *
 *     chaos_check [--seeds N | --seed S] [GoogleTest's flags] BACKEND[:PROVIDER] ...
 *
 * Each seed is a few tests over each provider, wrapped into `chaos`: sweep.h says what must hold.  Default: 10 seeds.
 * What failed runs again with --seed S and --gtest_filter.
 */
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "chaos/sweep.h"
#include "conform/gtest_cases.h"

namespace
{

/* One way to fail; the words are those of both sides, and of the one that dies in addition. */
struct Way {
	const char *name, *words, *mortal;
	const h_scenario *scenario = &sweep_scenario;
};

/* Steps that a connection of the sweep has in all, about, so that each is hit now and then. */
const unsigned steps = 150;

const Way ways[] = {
	{"drop", ",drop=150", nullptr},
	{"drop_wild", ",delay=40,late=40,again=30,span=50,drop=600", nullptr},
	{"truncate", ",truncate=30", nullptr},
	{"keyfail", ",keyfail=50", nullptr},
	{"ib", ",profile=ib,drop=300", nullptr},
	{"iwarp", ",profile=iwarp,drop=300", nullptr},
	{"ucx_sw", ",profile=ucx-sw,drop=300", nullptr},
	{"ofi_tcp", ",profile=ofi-tcp,drop=300", nullptr},
	{"shm_wedge", ",profile=shm-wedge", nullptr},
	{"kill", "", ",kill="},
	{"kill_iwarp", ",profile=iwarp", ",profile=iwarp,kill="},
	{"kill_shm_wedge", ",profile=shm-wedge", ",profile=shm-wedge,kill="},
	{"bulks_drop", ",drop=150", nullptr, &bulks_scenario},
	{"bulks_iwarp", ",profile=iwarp,drop=300", nullptr, &bulks_scenario},
	{"bulks_kill", "", ",kill=", &bulks_scenario},
	{"stands_still", ",delay=0,late=0,again=0", nullptr, &still_scenario},
};

class Chaos : public testing::Test
{
public:
	Chaos(const std::string *backend, const Way *way, uint64_t seed) : backend_(backend), way_(way), seed_(seed) {}

	void TestBody() override
	{
		static h_result result;
		std::string words = "seed=" + std::to_string(seed_) + way_->words;
		h_config config = {};

		config.backend = backend_->c_str();
		config.threads = backend_->compare(0, 11, "chaos:loop:") == 0 || *backend_ == "chaos:loop";
		config.param = way_->mortal ? SWEEP_MAY_DIE : SWEEP_BOTH_LIVE;
		if (way_->mortal) {
			mortal_ = "seed=" + std::to_string(seed_) + way_->mortal + std::to_string(step());
			sweep_mortal = mortal_.c_str();
		}
		setenv("XPORT_CHAOS", words.c_str(), 1);
		h_run(way_->scenario, &config, &result);
		unsetenv("XPORT_CHAOS");
		if (result.outcome != H_PASSED)
			FAIL() << result.text << "XPORT_CHAOS=" << words << "; of the second side: " << mortal_
			       << "\nagain: chaos_check --seed " << seed_ << " " << backend_->substr(6);
	}

private:
	/* Low ones one by one, the others as the seed has it; three connections, each end of a frame. */
	uint64_t step() const
	{
		return seed_ <= 20 ? seed_ : 1 + (seed_ * UINT64_C(0x9e3779b97f4a7c15) >> 32) % (4 * steps);
	}

	const std::string *backend_;
	const Way *way_;
	uint64_t seed_;
	std::string mortal_;
};

void add(const std::string *backend, uint64_t seed)
{
	std::string suite = gtest_cases::suite_of(*backend);
	bool processes = !gtest_cases::within_process(*backend);

	for (const Way &way : ways) {
		if ((way.mortal || way.scenario == &still_scenario) && !processes)
			continue; /* it would take the whole process, or its environment */
		gtest_cases::add(suite, std::string(way.name) + "_seed_" + std::to_string(seed),
		                 [=]() -> Chaos * { return new Chaos(backend, &way, seed); });
	}
}

} // namespace

int main(int argc, char **argv)
{
	static std::vector<std::string> backends;
	uint64_t first = 1, seeds = 10;

	testing::InitGoogleTest(&argc, argv);
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--seeds"))
			seeds = h_read_number("--seeds", argv[++i]);
		else if (!strcmp(argv[i], "--seed"))
			first = h_read_number("--seed", argv[++i]), seeds = 1;
		else if (argv[i][0] != '-')
			backends.push_back(std::string("chaos:") + argv[i]);
		else {
			backends.clear();
			break;
		}
	}
	if (backends.empty()) {
		fprintf(stderr, "usage: chaos_check [--seeds N | --seed S] [--gtest_...] BACKEND[:PROVIDER] ...\n");
		return 2;
	}
	for (uint64_t seed = first; seed < first + seeds; seed++)
		for (const std::string &b : backends)
			add(&b, seed);
	return RUN_ALL_TESTS();
}
