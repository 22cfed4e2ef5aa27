/* SPDX-License-Identifier: BSD-3-Clause */
/* report.h - the conformance matrix: a table of promises and providers, built while the tests run. */
#ifndef CONFORM_REPORT_H
#define CONFORM_REPORT_H

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

class Report : public testing::EmptyTestEventListener
{
public:
	explicit Report(std::string file) : file_(std::move(file)) {}

	/* A column: the tests of `suite` are of this provider. */
	void add_column(const std::string &suite, const std::string &title);

	void OnTestPartResult(const testing::TestPartResult &result) override;
	void OnTestEnd(const testing::TestInfo &info) override;
	/* Writes the file. */
	void OnTestProgramEnd(const testing::UnitTest &unit) override;

private:
	struct Cell {
		int passed = 0, failed = 0, absent = 0;
	};

	std::string cell(const std::string &suite, const std::string &promise) const;

	std::string file_, skipped_;
	std::vector<std::pair<std::string, std::string>> columns_;
	std::vector<std::string> promises_;
	std::map<std::pair<std::string, std::string>, Cell> cells_;
	std::map<std::string, std::vector<std::string>> absent_; /* by reason: the tests */
	std::vector<std::string> failed_;
};

#endif
