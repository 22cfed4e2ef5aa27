/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * services.cc - the services over real networks, and their parts alone:
 *
 *     services_check [--slow] [GoogleTest's flags] [BACKEND[:PROVIDER] ...]
 *
 * The scenarios run over each back end that is named, the parts without any.
 */
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "services/services.h"

namespace
{

const h_scenario *const tables[] = {svc_cases_pool,      svc_cases_pool_peer,      svc_cases_cache,
                                    svc_cases_versioned, svc_cases_versioned_cost, svc_cases_versioned_torn,
                                    svc_cases_grow,      svc_cases_limits,         svc_cases_pool_debug};
/* These are run with the operations carried by the library, too, unless they are H_ONCE. */
const h_scenario *const both[] = {
	svc_cases_batch,      svc_cases_lease,       svc_cases_lease_end, svc_cases_lease_hostile,
	svc_cases_lease_slow, svc_cases_lease_wrong, svc_cases_directory, svc_cases_directory_hostile};

class Services : public testing::Test
{
public:
	Services(const h_scenario *scenario, const h_config &config) : scenario_(scenario), config_(config) {}

	void TestBody() override
	{
		static h_result result;

		h_run(scenario_, &config_, &result);
		for (int i = 0; i < result.nfigures; i++)
			printf("             %s = %llu\n", result.figures[i].name,
			       static_cast<unsigned long long>(result.figures[i].value));
		if (result.outcome == H_SKIPPED)
			GTEST_SKIP() << result.text;
		if (result.outcome == H_FAILED)
			FAIL() << result.text;
	}

private:
	const h_scenario *scenario_;
	h_config config_;
};

void add(const h_scenario *s, const char *backend, bool emulate)
{
	static const h_param none[] = {{"", 0}, {nullptr, 0}};
	std::string suite = backend;

	for (char &c : suite)
		if (!isalnum(static_cast<unsigned char>(c)))
			c = '_';
	if (emulate)
		suite += "_emulate";
	for (const h_param *p = s->params ? s->params : none; p->suffix; p++) {
		h_config config = {};
		std::string name = s->name;

		if (*p->suffix)
			name += std::string("_") + p->suffix;
		config.backend = backend;
		config.emulate = emulate;
		config.threads = strncmp(backend, "loop", 4) == 0;
		config.param = p->value;
		testing::RegisterTest(suite.c_str(), name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
		                      [=]() -> Services * { return new Services(s, config); });
	}
}

void add_all(const h_scenario *table, const char *backend, bool emulate, bool slow)
{
	for (const h_scenario *s = table; s->name; s++)
		if ((slow || !(s->flags & H_SLOW)) && !(emulate && (s->flags & H_ONCE)))
			add(s, backend, emulate);
}

} // namespace

int main(int argc, char **argv)
{
	std::vector<const char *> backends;
	bool slow = false;

	testing::InitGoogleTest(&argc, argv);
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--slow"))
			slow = true;
		else if (argv[i][0] != '-')
			backends.push_back(argv[i]);
		else {
			fprintf(stderr, "usage: services_check [--slow] [--gtest_...] [BACKEND[:PROVIDER] ...]\n");
			return 2;
		}
	}
	for (const char *backend : backends) {
		for (const h_scenario *table : tables)
			add_all(table, backend, false, slow);
		for (const h_scenario *table : both) {
			add_all(table, backend, false, slow);
			if (strncmp(backend, "loop", 4) != 0)
				add_all(table, backend, true, slow);
		}
	}
	return RUN_ALL_TESTS();
}
