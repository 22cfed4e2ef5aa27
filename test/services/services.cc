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

#include "conform/gtest_cases.h"
#include "services/services.h"

namespace
{

const h_scenario *const tables[] = {svc_cases_pool,           svc_cases_pool_threads,   svc_cases_pool_peer,
                                    svc_cases_cache,          svc_cases_versioned,      svc_cases_versioned_alone,
                                    svc_cases_versioned_cost, svc_cases_versioned_torn, svc_cases_grow,
                                    svc_cases_limits,         svc_cases_pool_debug,     svc_cases_rpc_wrong,
                                    svc_cases_link_wrong,     svc_cases_bulk_wrong,     svc_cases_far,
                                    svc_cases_far_end,        svc_cases_far_wrong,      svc_cases_pool_node,
                                    svc_cases_rpc_bulk_wrong, svc_cases_bulk_refused};
/* These are run with the operations carried by the library, too, unless they are H_ONCE. */
const h_scenario *const both[] = {svc_cases_batch,       svc_cases_lease,         svc_cases_lease_end,
                                  svc_cases_lease_hand,  svc_cases_lease_hostile, svc_cases_lease_slow,
                                  svc_cases_lease_wrong, svc_cases_directory,     svc_cases_directory_hostile,
                                  svc_cases_rpc,         svc_cases_rpc_end,       svc_cases_rpc_hostile,
                                  svc_cases_rpc_queue,   svc_cases_link,          svc_cases_link_end,
                                  svc_cases_bulk,        svc_cases_bulk_end,      svc_cases_bulk_stuck,
                                  svc_cases_rpc_bulk,    svc_cases_prepared,      svc_cases_metrics,
                                  svc_cases_rpc_kept};

void add(const h_scenario *s, const char *backend, bool emulate)
{
	std::string suite = gtest_cases::suite_of(backend) + (emulate ? "_emulate" : "");

	for (const h_param *p = gtest_cases::params_of(s); p->suffix; p++) {
		h_config config = {};

		config.backend = backend;
		config.emulate = emulate;
		config.threads = gtest_cases::within_process(backend);
		config.param = p->value;
		gtest_cases::add_scenario(suite, gtest_cases::name_of(s, p), s, config);
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
