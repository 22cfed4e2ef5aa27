/* SPDX-License-Identifier: BSD-3-Clause */
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

extern "C" {
#include "base/status.h"
}

namespace
{

struct Row {
	int status;
	const char *name;
	const char *text;
	const char *hint;
};

const Row rows[] = {
#define ROW(status, text, hint) {status, #status, text, hint},
	XPI_STATUS_LIST(ROW)};

TEST(Status, TableIsInTheOrderOfTheEnumWithoutGaps)
{
	int expected = 0;

	for (const Row &r : rows)
		EXPECT_EQ(expected--, r.status) << r.name;
	EXPECT_EQ(static_cast<int>(XPORT_ERR_BUSY), expected + 1);
}

TEST(Status, EveryOneHasItsNameAndAText)
{
	std::set<std::string> names, texts;

	for (const Row &r : rows) {
		EXPECT_STREQ(r.name, xpi_status_name(r.status));
		EXPECT_STREQ(r.text, xpi_status_text(r.status));
		EXPECT_GT(strlen(r.text), 5u) << r.name;
		EXPECT_STREQ(r.hint, xpi_status_hint(r.status));
		EXPECT_EQ(r.status == XPORT_OK, strlen(r.hint) == 0) << r.name;
		EXPECT_LT(strlen(r.hint), sizeof(xport_error::hint)) << r.name;
		names.insert(r.name);
		texts.insert(r.text);
	}
	EXPECT_EQ(sizeof(rows) / sizeof(rows[0]), names.size());
	EXPECT_EQ(sizeof(rows) / sizeof(rows[0]), texts.size()) << "two statuses share a text";
}

/* What a status says by itself holds whatever the cause was. */
TEST(Status, NoHintNamesACauseThatWasNotLookedAt)
{
	for (const Row &r : rows)
		for (const char *cause : {"ulimit", "listener first", "XPORT_BACKEND", "firewall", "route", " port"})
			EXPECT_EQ(nullptr, strstr(r.hint, cause)) << r.name << ": " << r.hint;
}

TEST(Status, NumbersThatAreNoneHaveNameAndTextToo)
{
	for (int n : {1, 2, 100, static_cast<int>(XPORT_ERR_BUSY) - 1, -1000, INT32_MIN, INT32_MAX}) {
		EXPECT_STREQ("XPORT_ERR_UNKNOWN", xpi_status_name(n)) << n;
		EXPECT_STREQ("unknown status", xpi_status_text(n)) << n;
		EXPECT_STREQ("", xpi_status_hint(n)) << n;
	}
}

} // namespace
