// SPDX-License-Identifier: BSD-3-Clause
#include "report.h"

#include <algorithm>
#include <cstdio>

namespace
{

// P7 of "P7_garbage", connect of "connect_twice".
std::string promise_of(const char *test)
{
	return std::string(test).substr(0, std::string(test).find('_'));
}

// P2 before P10, and the promises before the rest.
bool before(const std::string &a, const std::string &b)
{
	bool pa = a[0] == 'P' && isdigit(a[1]), pb = b[0] == 'P' && isdigit(b[1]);

	if (pa != pb)
		return pa;
	if (pa)
		return std::stoi(a.substr(1)) < std::stoi(b.substr(1));
	return a < b;
}

} // namespace

void Report::add_column(const std::string &suite, const std::string &title)
{
	columns_.emplace_back(suite, title);
}

void Report::OnTestPartResult(const testing::TestPartResult &result)
{
	if (result.skipped())
		skipped_ = result.message();
}

void Report::OnTestEnd(const testing::TestInfo &info)
{
	std::string promise = promise_of(info.name());
	Cell &c = cells_[{info.test_suite_name(), promise}];
	std::string full = std::string(info.test_suite_name()) + "." + info.name();

	if (std::find(promises_.begin(), promises_.end(), promise) == promises_.end())
		promises_.push_back(promise);
	if (info.result()->Skipped()) {
		c.absent++;
		skipped_.erase(skipped_.find_last_not_of("\n") + 1);
		absent_[skipped_].push_back(full);
	} else if (info.result()->Failed()) {
		c.failed++;
		failed_.push_back(full);
	} else {
		c.passed++;
	}
	skipped_.clear();
}

std::string Report::cell(const std::string &suite, const std::string &promise) const
{
	auto it = cells_.find({suite, promise});
	std::string text;

	if (it == cells_.end())
		return "not run";
	if (it->second.failed > 0)
		text = "**" + std::to_string(it->second.failed) + " fail**, ";
	text += std::to_string(it->second.passed) + " pass";
	if (it->second.absent > 0)
		text += ", " + std::to_string(it->second.absent) + " absent";
	return text;
}

void Report::OnTestProgramEnd(const testing::UnitTest &)
{
	FILE *f = fopen(file_.c_str(), "w");

	if (f == nullptr) {
		fprintf(stderr, "xport_conform: cannot write %s\n", file_.c_str());
		return;
	}
	std::sort(promises_.begin(), promises_.end(), before);
	fprintf(f, "| promise |");
	for (const auto &c : columns_)
		fprintf(f, " %s |", c.second.c_str());
	fprintf(f, "\n|---|");
	for (size_t i = 0; i < columns_.size(); i++)
		fprintf(f, "---|");
	for (const std::string &p : promises_) {
		fprintf(f, "\n| %s |", p.c_str());
		for (const auto &c : columns_)
			fprintf(f, " %s |", cell(c.first, p).c_str());
	}
	fprintf(f, "\n");
	for (const auto &a : absent_) {
		fprintf(f, "\nAbsent: %s:\n\n", a.first.c_str());
		for (const std::string &t : a.second)
			fprintf(f, "- `%s`\n", t.c_str());
	}
	if (!failed_.empty())
		fprintf(f, "\nFailed:\n\n");
	for (const std::string &t : failed_)
		fprintf(f, "- `%s`\n", t.c_str());
	fclose(f);
}
