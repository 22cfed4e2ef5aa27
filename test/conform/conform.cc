/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conform.cc - the conformance suite as a program:
 *
 *     xport_conform [--slow] [--threads] [--report FILE] [GoogleTest's flags] [BACKEND[:PROVIDER] ...]
 *     xport_conform ... --apart NETNS,ADDRESS,BACKEND[:PROVIDER] NETNS,ADDRESS,BACKEND[:PROVIDER]
 *
 * Without names: XPORT_BACKEND, else every candidate that the library lists as ready.  Each scenario becomes a test
 * "ucx_tcp/native.P1_..." and, with XPORT_EMULATE=all, "ucx_tcp/emulated.P1_...".  --report writes the conformance
 * matrix, promises and providers, as a table in Markdown.  --apart puts every other role into a network namespace of its
 * own, for those scenarios that do not ask for loopback themselves; XPORT_AUTH and XPORT_AUTH_KEY_FILE are kept then.  H_TIMEOUT_SCALE stretches
 * all time limits (valgrind, sanitizers), H_LOG_LEVEL=4 shows debug lines of failing tests, H_STDERR_OK lets tools write
 * there.
 */
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "gtest_cases.h"
#include "report.h"
#include "scenario.h"

extern char **environ;

namespace
{

const h_scenario *const tables[] = {
	cases_p01,
	cases_p02,
	cases_p03,
	cases_p04,
	cases_p05,
	cases_p05_more,
	cases_p06,
	cases_p07,
	cases_p07_wire,
	cases_p08,
	cases_p09,
	cases_p09_nic,
	cases_p09_mapped,
	cases_p10,
	cases_p11,
	cases_p12,
	cases_p13,
	cases_p14,
	cases_p15,
	cases_p15_more,
	cases_p16,
	cases_connect,
	cases_connect_later,
	cases_listen,
	cases_close,
	cases_close_start,
	cases_api,
	cases_auth,
	cases_auth_strangers,
	cases_thread,
	cases_size,
	cases_stats,
	cases_error,
	cases_p16_notify,
	cases_p07_users,
	cases_p12_more,
	cases_incoming,
	cases_paths,
	cases_lists,
	cases_lists_msg,
	cases_part,
	cases_deadline,
	cases_deadline_load,
	cases_deadline_names,
	cases_deadline_rma,
	cases_accept,
	cases_multi,
	cases_arm,
	cases_identity,
	cases_peer,
	cases_file,
};

/* One scenario, each of its parameters, each kind of memory. */
void add_scenario(const std::string &suite, const h_scenario *s, h_config config)
{
	static const char *const kinds[] = {"_reg", "_alloc", "_plain"};
	int nkinds = s->flags & H_KINDS ? 3 : s->flags & H_TARGET ? 2 : 1;

	if ((s->flags & H_ONCE) && config.emulate)
		return;
	for (const h_param *p = gtest_cases::params_of(s); p->suffix; p++)
		for (int k = 0; k < nkinds; k++) {
			std::string name = gtest_cases::name_of(s, p);

			if (nkinds > 1)
				name += kinds[k];
			config.param = p->value;
			config.kind = static_cast<h_kind>(k);
			gtest_cases::add_scenario(suite, name, s, config);
		}
}

void add_backend(const std::string *backend, const h_place *place, bool slow, bool threads, Report *report)
{
	std::string suite = gtest_cases::suite_of(*backend);

	for (int emulate = 0; report && emulate < 2; emulate++)
		report->add_column(suite + (emulate ? "/emulated" : "/native"),
		                   *backend + (emulate ? ", emulated" : ""));
	for (int emulate = 0; emulate < 2; emulate++)
		for (const h_scenario *table : tables)
			for (const h_scenario *s = table; s->name; s++) {
				h_config config = {};

				config.backend = backend->c_str();
				config.emulate = emulate;
				config.place = place;
				config.threads = threads || gtest_cases::within_process(*backend);
				if (slow || !(s->flags & H_SLOW))
					add_scenario(suite + (emulate ? "/emulated" : "/native"), s, config);
			}
}

void split(const char *list, std::vector<std::string> *out)
{
	std::string one;

	for (const char *p = list;; p++) {
		if (*p && *p != ',') {
			one += *p;
			continue;
		}
		if (!one.empty())
			out->push_back(one);
		one.clear();
		if (!*p)
			return;
	}
}

/* Ends the program if the library cannot open one of them. */
void need_usable(const std::vector<std::string> &names)
{
	static char why[2048];

	for (const std::string &name : names)
		if (h_try_backend(name.c_str(), why, sizeof(why)) != XPORT_OK) {
			fprintf(stderr, "xport_conform: cannot open %s: %s\n", name.c_str(), why);
			exit(2);
		}
}

/* The names to test: from the command line, the environment, or all that are ready.  Ends if one is not usable. */
std::vector<std::string> choose(std::vector<std::string> names)
{
	static xport_candidate list[64];
	int n;

	if (!names.empty()) {
		need_usable(names);
		return names;
	}
	n = h_list_candidates(list, 64);
	if (n < 0) {
		fprintf(stderr, "xport_conform: the library cannot list its back ends: %s\n", xport_strerror(n));
		exit(2);
	}
	for (int i = 0; i < n; i++) {
		if (list[i].state == XPORT_READY)
			names.push_back(list[i].name);
		else
			printf("not tested: %s: %s. %s\n", list[i].name, list[i].reason, list[i].hint);
	}
	if (names.empty()) {
		fprintf(stderr, "xport_conform: no back end is usable here\n");
		exit(2);
	}
	return names;
}

/* Tests set what they need themselves; chaos is the one thing that is done to them. */
void clean_environment(bool apart)
{
	std::vector<std::string> names;

	for (char **e = environ; *e; e++)
		if (!strncmp(*e, "XPORT_", 6) && strncmp(*e, "XPORT_CHAOS=", 12) &&
		    !(apart && !strncmp(*e, "XPORT_AUTH", 10)))
			names.push_back(std::string(*e, strcspn(*e, "=")));
	for (const std::string &name : names)
		unsetenv(name.c_str());
}

const char usage[] = "Usage: xport_conform [OPTION...] [BACKEND[:PROVIDER] ...]\n"
		     "   or: xport_conform [OPTION...] --apart NETNS,ADDRESS,BACKEND NETNS,ADDRESS,BACKEND\n";

const char help[] =
	"Test the promises of libxport over each named provider. Without a name: over those of XPORT_BACKEND, or else\n"
	"over every provider that is usable here (xport_info lists them). See xport_conform(1).\n"
	"\n"
	"  --report FILE         write a table of promises and providers to FILE, in Markdown\n"
	"  --slow                also run the tests that take long\n"
	"  --threads             run the peers of a test as threads of one process where possible\n"
	"  --apart PLACE PLACE   run the peers of a test in two network namespaces; needs root\n"
	"  --gtest_filter=NAMES  run the tests with these names, for example '*P5_*'\n"
	"  --gtest_list_tests    print the names of the tests\n"
	"  --help                print this and GoogleTest's options\n"
	"\n"
	"Exit status: 0 if every test passed or was skipped, 1 if a test failed, 2 for a wrong option or an unusable\n"
	"provider.\n"
	"\n"
	"GoogleTest's options:\n";

/* Prints our help before GoogleTest prints its own.  Returns whether --help was given. */
bool print_help(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			printf("%s\n%s", usage, help);
			fflush(stdout);
			return true;
		}
	return false;
}

} // namespace

int main(int argc, char **argv)
{
	static std::vector<std::string> backends;
	std::vector<std::string> names;
	static h_place place[2];
	bool slow = false, threads = false, apart = false, asked_help;
	Report *report = nullptr;
	const char *env = getenv("XPORT_BACKEND");

	asked_help = print_help(argc, argv);
	testing::InitGoogleTest(&argc, argv);
	if (asked_help)
		return 0;
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--slow"))
			slow = true;
		else if (!strcmp(argv[i], "--threads"))
			threads = true;
		else if (!strcmp(argv[i], "--report") && i + 1 < argc)
			report = new Report(argv[++i]);
		else if (!strcmp(argv[i], "--apart") && i + 2 < argc && h_read_place(argv[i + 1], &place[0]) &&
		         h_read_place(argv[i + 2], &place[1])) {
			apart = true;
			i += 2;
		} else if (argv[i][0] == '-') {
			fprintf(stderr, "xport_conform: wrong option %s\n%sTry 'xport_conform --help'.\n", argv[i],
			        usage);
			return 2;
		} else
			split(argv[i], &names);
	}
	if (names.empty() && !apart && env && strcmp(env, "auto"))
		split(env, &names);
	clean_environment(apart);
	/* What is usable in a namespace shows there. */
	backends = apart ? std::vector<std::string>{place[0].backend} : choose(names);
	for (const std::string &b : backends)
		add_backend(&b, apart ? place : nullptr, slow, threads, report);
	if (report)
		testing::UnitTest::GetInstance()->listeners().Append(report); /* which owns it from here on */
	return RUN_ALL_TESTS();
}
