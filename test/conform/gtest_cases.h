/* SPDX-License-Identifier: BSD-3-Clause */
/* gtest_cases.h - makes tests of GoogleTest from scenarios and other cases that are listed in C. */
#ifndef CONFORM_GTEST_CASES_H
#define CONFORM_GTEST_CASES_H

#include <gtest/gtest.h>

#include <cctype>
#include <cstdio>
#include <string>

#include "scenario.h"

namespace gtest_cases
{

/* The name of a test suite for a back end and provider: "ucx_tcp" for "ucx:tcp". */
inline std::string suite_of(std::string backend)
{
	for (char &c : backend)
		if (!isalnum(static_cast<unsigned char>(c)))
			c = '_';
	return backend;
}

/* Whether the back end connects only instances of one process, as loop does, and what wraps it. */
inline bool within_process(const std::string &backend)
{
	size_t at = backend.compare(0, 6, "chaos:") == 0 ? 6 : 0;

	return backend.compare(at, 4, "loop") == 0;
}

/* Adds the test suite.name; `make` returns a new object of its class. */
template <typename Make> void add(const std::string &suite, const std::string &name, Make make)
{
	testing::RegisterTest(suite.c_str(), name.c_str(), nullptr, nullptr, __FILE__, __LINE__, make);
}

/* The parameters of a scenario; one with an empty name if it has none. */
inline const h_param *params_of(const h_scenario *s)
{
	static const h_param none[] = {{"", 0}, {nullptr, 0}};

	return s->params ? s->params : none;
}

inline std::string name_of(const h_scenario *s, const h_param *p)
{
	return *p->suffix ? std::string(s->name) + "_" + p->suffix : s->name;
}

/* Runs one scenario, and prints and records its figures. */
class Scenario : public testing::Test
{
public:
	Scenario(const h_scenario *scenario, const h_config &config) : scenario_(scenario), config_(config) {}

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

/* `config.backend` must stay valid. */
inline void add_scenario(const std::string &suite, const std::string &name, const h_scenario *s, const h_config &config)
{
	add(suite, name, [=]() -> Scenario * { return new Scenario(s, config); });
}

} // namespace gtest_cases

#endif
