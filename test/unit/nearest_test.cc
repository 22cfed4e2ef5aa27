/* SPDX-License-Identifier: BSD-3-Clause */
#include <gtest/gtest.h>

#include <string>

/* In C a function and a struct may share a name. */
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "base/nearest.h"
}

namespace
{

const char *nearest(const char *wanted, std::initializer_list<const char *> names)
{
	struct xpi_nearest n = xpi_nearest(wanted);

	for (const char *name : names)
		xpi_nearest_look(&n, name);
	return n.name;
}

TEST(Nearest, FindsSlips)
{
	EXPECT_STREQ("ucx", nearest("ucxx", {"verbs", "ucx", "ofi"}));
	EXPECT_STREQ("ucx", nearest("uxc", {"verbs", "ucx", "ofi"}));
	EXPECT_STREQ("verbs", nearest("verb", {"verbs", "ucx", "ofi"}));
	EXPECT_STREQ("ucx", nearest("UCX", {"verbs", "ucx", "ofi"}));
	EXPECT_STREQ("XPORT_BACKEND", nearest("XPORT_BAKCEND", {"XPORT_AUTH", "XPORT_BACKEND"}));
}

TEST(Nearest, TakesTheNearerOne)
{
	EXPECT_STREQ("sockets", nearest("socket", {"rockets", "sockets"}));
	EXPECT_STREQ("first", nearest("firs", {"first", "firs_"})) << "of equals the first";
}

TEST(Nearest, DoesNotGuessWildly)
{
	EXPECT_EQ(nullptr, nearest("quantum", {"verbs", "ucx", "ofi"}));
	EXPECT_EQ(nullptr, nearest("foo", {"ofi"}));
	EXPECT_EQ(nullptr, nearest("", {"ucx"}));
	EXPECT_EQ(nullptr, nearest("ucx", {}));
	EXPECT_EQ(nullptr, nearest(std::string(1000, 'u').c_str(), {"ucx"}));
	EXPECT_EQ(nullptr, nearest("ucx", {std::string(1000, 'u').c_str()}));
}

} // namespace
