/* SPDX-License-Identifier: BSD-3-Clause */
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

/* In C a function and a struct may share a name. */
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "xport.h"
}

namespace
{

/* What the words come to, seen from outside: whether an instance opens, or why not. */
class Chaos : public testing::Test
{
protected:
	void TearDown() override
	{
		unsetenv("XPORT_CHAOS");
		xport_close(x);
	}

	int open(const char *backend, const char *words)
	{
		xport_attr a = {};

		a.size = sizeof(a);
		a.backend = backend;
		setenv("XPORT_CHAOS", words, 1);
		xport_close(x);
		x = nullptr;
		return xport_open(&a, &x);
	}

	void expect_bad(const char *words, const char *part)
	{
		xport_error e = {};

		e.size = sizeof(e);
		EXPECT_NE(XPORT_OK, open("chaos:loop", words)) << words;
		EXPECT_EQ(XPORT_OK, xport_last_error(nullptr, &e));
		EXPECT_NE(nullptr, strstr(e.text, part)) << words << ": " << e.text;
		EXPECT_NE(nullptr, strstr(e.text, "XPORT_CHAOS")) << words << ": " << e.text;
	}

	xport *x = nullptr;
};

TEST_F(Chaos, opens_around_another)
{
	xport_info info = {};

	ASSERT_EQ(XPORT_OK, open("chaos:loop:rdma", ""));
	info.size = sizeof(info);
	ASSERT_EQ(XPORT_OK, xport_query(x, &info));
	EXPECT_STREQ("chaos", info.backend);
	EXPECT_STREQ("loop:rdma", info.provider);
}

TEST_F(Chaos, takes_every_word)
{
	EXPECT_EQ(XPORT_OK,
	          open("chaos:loop", "seed=7,delay=100,late=100,span=3,again=90,regfail=1,keyfail=2,truncate=3,drop=4,"
	                             "kill=4000000000,still=5,profile=ib"));
	for (const char *m : {"any", "ib", "iwarp", "ucx-sw", "ofi-tcp", "shm-wedge"})
		EXPECT_EQ(XPORT_OK, open("chaos:loop", (std::string("profile=") + m).c_str())) << m;
}

TEST_F(Chaos, says_which_word_is_wrong)
{
	expect_bad("dellay=3", "did you mean delay?");
	expect_bad("profile=iwrap", "did you mean iwarp?");
	expect_bad("profil=ib", "did you mean profile?");
	expect_bad("zzzzzzz=3", "known: profile, seed, delay");
	expect_bad("seed", "not NAME=VALUE");
	expect_bad("seed=", "no number");
	expect_bad("seed=x", "not a number");
	expect_bad("seed=-1", "not a number");
	expect_bad("delay=101", "above 100");
	expect_bad("again=91", "above 90");
	expect_bad("seed=1,,delay=2", "not NAME=VALUE");
	expect_bad(std::string(300, 'x').c_str(), "longer than 255");
}

TEST_F(Chaos, wraps_what_is_there_alone)
{
	xport_error e = {};

	e.size = sizeof(e);
	for (const char *b : {"chaos", "chaos:chaos:loop", "chaos:nonesuch", "chaos:loop:nonesuch"}) {
		EXPECT_EQ(XPORT_ERR_NO_BACKEND, open(b, "")) << b;
		EXPECT_EQ(XPORT_OK, xport_last_error(nullptr, &e));
		EXPECT_NE('\0', e.text[0]);
	}
	EXPECT_EQ(XPORT_ERR_NO_BACKEND, open("chaos:loo", ""));
	EXPECT_EQ(XPORT_OK, xport_last_error(nullptr, &e));
	EXPECT_NE(nullptr, strstr(e.text, "did you mean loop")) << e.text;
}

TEST_F(Chaos, is_not_chosen_by_itself)
{
	xport_candidate list[64];
	int n = xport_list(nullptr, list, sizeof(list[0]), 64), seen = 0;

	for (int i = 0; i < n && i < 64; i++) {
		if (strncmp(list[i].name, "chaos", 5) != 0)
			continue;
		EXPECT_NE(XPORT_READY, list[i].state);
		EXPECT_NE(nullptr, strstr(list[i].hint, "xport_chaos(7)"));
		seen++;
	}
	EXPECT_EQ(1, seen);
}

/* The application sees it, and nothing is left behind. */
TEST_F(Chaos, memory_that_is_not_registered_is_an_error)
{
	static char memory[4096];
	xport_mr *mr = nullptr;
	xport_error e = {};

	ASSERT_EQ(XPORT_OK, open("chaos:loop:native", "regfail=100"));
	EXPECT_EQ(XPORT_ERR_NO_MEMORY, xport_mr_reg(x, memory, sizeof(memory), XPORT_REMOTE_WRITE, &mr));
	e.size = sizeof(e);
	EXPECT_EQ(XPORT_OK, xport_last_error(x, &e));
	EXPECT_NE(nullptr, strstr(e.hint, "regfail=0")) << e.hint;
	ASSERT_EQ(XPORT_OK, open("chaos:loop:native", "regfail=50"));
	for (int i = 0, ok = 0; ok < 20; i++) {
		int r = xport_mr_reg(x, memory, sizeof(memory), XPORT_REMOTE_WRITE, &mr);

		ASSERT_LT(i, 200);
		ASSERT_TRUE(r == XPORT_OK || r == XPORT_ERR_NO_MEMORY);
		if (r != XPORT_OK)
			continue;
		ok++;
		EXPECT_EQ(XPORT_OK, xport_mr_dereg(mr));
	}
}

} // namespace
