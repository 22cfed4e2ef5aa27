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

#include "report.h"
#include "scenario.h"

extern char **environ;

namespace
{

const h_scenario *const tables[] = {
	cases_p01,     cases_p02,      cases_p03,   cases_p04, cases_p05,     cases_p05_more,       cases_p06,
	cases_p07,     cases_p07_wire, cases_p08,   cases_p09, cases_p09_nic, cases_p09_mapped,     cases_p10,
	cases_p11,     cases_p12,      cases_p13,   cases_p14, cases_p15,     cases_p15_more,       cases_p16,
	cases_connect, cases_listen,   cases_close, cases_api, cases_auth,    cases_auth_strangers, cases_thread,
	cases_size,    cases_stats,
};

class Conformance : public testing::Test
{
public:
	Conformance(const h_scenario *scenario, const h_config &config, const std::string *backend)
	    : scenario_(scenario), config_(config)
	{
		config_.backend = backend->c_str();
	}

	void TestBody() override
	{
		static h_result result;

		h_run(scenario_, &config_, &result);
		for (int i = 0; i < result.nfigures; i++) {
			RecordProperty(result.figures[i].name, std::to_string(result.figures[i].value));
			printf("             %s = %llu\n", result.figures[i].name,
			       static_cast<unsigned long long>(result.figures[i].value));
		}
		if (result.outcome == H_SKIPPED)
			GTEST_SKIP() << result.text;
		if (result.outcome == H_FAILED)
			FAIL() << result.text;
	}

private:
	const h_scenario *scenario_;
	h_config config_;
};

void add(const std::string &suite, const std::string &name, const h_scenario *s, const h_config &config,
         const std::string *backend)
{
	testing::RegisterTest(suite.c_str(), name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
	                      [=]() -> Conformance * { return new Conformance(s, config, backend); });
}

/* One scenario, each of its parameters, each kind of memory. */
void add_scenario(const std::string &suite, const h_scenario *s, h_config config, const std::string *backend)
{
	static const char *const kinds[] = {"_reg", "_alloc", "_plain"};
	static const h_param none[] = {{"", 0}, {nullptr, 0}};
	int nkinds = s->flags & H_KINDS ? 3 : s->flags & H_TARGET ? 2 : 1;

	if ((s->flags & H_ONCE) && config.emulate)
		return;
	for (const h_param *p = s->params ? s->params : none; p->suffix; p++)
		for (int k = 0; k < nkinds; k++) {
			std::string name = s->name;

			if (*p->suffix)
				name += std::string("_") + p->suffix;
			if (nkinds > 1)
				name += kinds[k];
			config.param = p->value;
			config.kind = static_cast<h_kind>(k);
			add(suite, name, s, config, backend);
		}
}

/* loop is, and so is what wraps it. */
bool within_process(const std::string &backend)
{
	size_t at = backend.compare(0, 6, "chaos:") == 0 ? 6 : 0;

	return backend.compare(at, 4, "loop") == 0;
}

void add_backend(const std::string *backend, const h_place *place, bool slow, bool threads, Report *report)
{
	std::string suite = *backend;

	for (char &c : suite)
		if (!isalnum(static_cast<unsigned char>(c)))
			c = '_';
	for (int emulate = 0; report && emulate < 2; emulate++)
		report->add_column(suite + (emulate ? "/emulated" : "/native"),
		                   *backend + (emulate ? ", emulated" : ""));
	for (int emulate = 0; emulate < 2; emulate++)
		for (const h_scenario *table : tables)
			for (const h_scenario *s = table; s->name; s++) {
				h_config config = {};

				config.emulate = emulate;
				config.place = place;
				config.threads = threads || within_process(*backend);
				if (slow || !(s->flags & H_SLOW))
					add_scenario(suite + (emulate ? "/emulated" : "/native"), s, config, backend);
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

/* The names to test: from the command line, the environment, or all that are ready.  Ends if one is not usable. */
std::vector<std::string> choose(std::vector<std::string> names)
{
	static xport_candidate list[64];
	int n = h_list_candidates(list, 64);

	if (n < 0) {
		fprintf(stderr, "xport_conform: the library cannot list its back ends: %s\n", xport_strerror(n));
		exit(2);
	}
	if (names.empty())
		for (int i = 0; i < n; i++) {
			if (list[i].state == XPORT_READY)
				names.push_back(list[i].name);
			else
				printf("not tested: %s: %s. %s\n", list[i].name, list[i].reason, list[i].hint);
		}
	for (const std::string &name : names)
		for (int i = 0; i < n; i++)
			if (name == list[i].name && list[i].state != XPORT_READY) {
				fprintf(stderr, "xport_conform: %s: %s. %s\n", list[i].name, list[i].reason,
				        list[i].hint);
				exit(2);
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

} // namespace

int main(int argc, char **argv)
{
	static std::vector<std::string> backends;
	std::vector<std::string> names;
	static h_place place[2];
	bool slow = false, threads = false, apart = false;
	Report *report = nullptr;
	const char *env = getenv("XPORT_BACKEND");

	testing::InitGoogleTest(&argc, argv);
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
			fprintf(stderr,
			        "usage: xport_conform [--slow] [--threads] [--report FILE] [--gtest_...] "
			        "[BACKEND[:PROVIDER] ...]\n"
			        "       xport_conform ... --apart NETNS,ADDRESS,BACKEND NETNS,ADDRESS,BACKEND\n");
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
