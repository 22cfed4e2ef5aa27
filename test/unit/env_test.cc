/* SPDX-License-Identifier: BSD-3-Clause */
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

extern "C" {
#include "base/env.h"
}

namespace
{

std::string value(const char *name)
{
	const char *v = getenv(name);

	return v != nullptr ? v : "(none)";
}

/* `environ` is the C library's own to move: it has set something. */
class Env : public testing::Test
{
protected:
	void SetUp() override
	{
		setenv("ENV_TEST_MINE", "mine", 1);
		unsetenv("ENV_TEST_A");
		unsetenv("ENV_TEST_B");
	}

	void TearDown() override
	{
		unsetenv("ENV_TEST_MINE");
		unsetenv("ENV_TEST_A");
		unsetenv("ENV_TEST_B");
		unsetenv("ENV_TEST_OTHER");
	}

	static std::vector<char *> entries(char **all)
	{
		std::vector<char *> v;

		for (; *all != nullptr; all++)
			v.push_back(*all);
		return v;
	}
};

TEST_F(Env, IsSetAndTakenBack)
{
	char **before = environ;
	xpi_env env;

	xpi_env_set(&env, "ENV_TEST_A=1 ENV_TEST_B=two");
	EXPECT_EQ("1", value("ENV_TEST_A"));
	EXPECT_EQ("two", value("ENV_TEST_B"));
	EXPECT_EQ("mine", value("ENV_TEST_MINE"));
	xpi_env_restore(&env);
	EXPECT_EQ(before, environ);
	EXPECT_EQ("(none)", value("ENV_TEST_A"));
	EXPECT_EQ("(none)", value("ENV_TEST_B"));
}

TEST_F(Env, WhatTheUserSaidStands)
{
	char **before = environ;
	xpi_env env;

	xpi_env_set(&env, "ENV_TEST_MINE=ours ENV_TEST_A=1");
	EXPECT_EQ("mine", value("ENV_TEST_MINE"));
	EXPECT_EQ("1", value("ENV_TEST_A"));
	xpi_env_restore(&env);
	EXPECT_EQ("mine", value("ENV_TEST_MINE"));
	xpi_env_set(&env, "ENV_TEST_MINE=ours");
	EXPECT_EQ(before, environ) << "nothing was to be set";
	xpi_env_restore(&env);
	xpi_env_set(&env, "");
	EXPECT_EQ(before, environ);
	xpi_env_restore(&env);
	EXPECT_EQ("mine", value("ENV_TEST_MINE"));
}

/* A getenv(3) that began before is at some entry of what was `environ` then. */
TEST_F(Env, WhatAReaderHasInHandStaysAsItIs)
{
	char **before = environ;
	std::vector<char *> then = entries(before);
	xpi_env env;

	for (int i = 0; i < 3; i++) {
		xpi_env_set(&env, "ENV_TEST_A=1 ENV_TEST_B=2");
		std::vector<char *> within = entries(environ);
		char **during = environ;

		EXPECT_EQ(then, entries(before));
		xpi_env_restore(&env);
		EXPECT_EQ(then, entries(before));
		EXPECT_EQ(within, entries(during));
	}
}

TEST_F(Env, ReadersGoOn)
{
	std::atomic<bool> stop{false};
	std::atomic<long> read{0}, wrong{0};
	std::thread reader([&] {
		while (!stop) {
			const char *v = getenv("ENV_TEST_MINE");

			wrong += v == nullptr || strcmp(v, "mine") != 0;
			read++;
		}
	});
	auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);

	while (std::chrono::steady_clock::now() < end || read < 10000) {
		xpi_env env;

		xpi_env_set(&env, "ENV_TEST_A=1 ENV_TEST_B=2");
		xpi_env_restore(&env);
	}
	stop = true;
	reader.join();
	EXPECT_EQ(0, wrong);
}

TEST_F(Env, TheSameAgainTakesNoMemory)
{
	char **during = nullptr;

	for (int i = 0; i < 100; i++) {
		xpi_env env;

		xpi_env_set(&env, "ENV_TEST_A=1");
		if (during != nullptr) {
			ASSERT_EQ(during, environ);
		}
		during = environ;
		xpi_env_restore(&env);
	}
}

TEST_F(Env, WhatTheStackSetsStays)
{
	xpi_env env;

	xpi_env_set(&env, "ENV_TEST_A=1 ENV_TEST_B=2");
	setenv("ENV_TEST_OTHER", "new", 1);
	setenv("ENV_TEST_B", "changed", 1);
	xpi_env_restore(&env);
	EXPECT_EQ("new", value("ENV_TEST_OTHER"));
	EXPECT_EQ("changed", value("ENV_TEST_B"));
	EXPECT_EQ("(none)", value("ENV_TEST_A"));
	EXPECT_EQ("mine", value("ENV_TEST_MINE"));
}

/* The C library does so where the entry is, and `environ` is the same. */
TEST_F(Env, WhatIsChangedInPlaceStays)
{
	xpi_env env;

	for (const char *to : {"once", "twice"}) {
		xpi_env_set(&env, "ENV_TEST_A=1");
		EXPECT_EQ("1", value("ENV_TEST_A"));
		setenv("ENV_TEST_MINE", to, 1);
		xpi_env_restore(&env);
		EXPECT_EQ(to, value("ENV_TEST_MINE"));
		EXPECT_EQ("(none)", value("ENV_TEST_A"));
	}
	xpi_env_set(&env, "ENV_TEST_A=1");
	unsetenv("ENV_TEST_MINE");
	xpi_env_restore(&env);
	EXPECT_EQ("(none)", value("ENV_TEST_MINE"));
	EXPECT_EQ("(none)", value("ENV_TEST_A"));
	xpi_env_set(&env, "ENV_TEST_A=1");
	EXPECT_EQ("1", value("ENV_TEST_A"));
	xpi_env_restore(&env);
	EXPECT_EQ("(none)", value("ENV_TEST_A"));
}

TEST_F(Env, NoEnvironmentAtAll)
{
	char **before = environ;
	xpi_env env;

	environ = nullptr;
	xpi_env_set(&env, "ENV_TEST_A=1");
	EXPECT_EQ("1", value("ENV_TEST_A"));
	xpi_env_restore(&env);
	EXPECT_EQ(nullptr, environ);
	environ = before;
}

} // namespace
