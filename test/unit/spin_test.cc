/* SPDX-License-Identifier: BSD-3-Clause */
#include <gtest/gtest.h>

extern "C" {
#include "core/spin.h"
}

namespace
{

const int64_t US = 1000;

xpi_spin fresh(bool is_woken = true)
{
	xpi_spin s;
	xpi_spin_init(&s, is_woken);
	return s;
}

/* Polls from `last` on until it sleeps, or something happens `apart` later; returns how long it polled. */
int64_t between(xpi_spin &s, int64_t apart)
{
	int64_t begin = s.last;

	for (int64_t t = begin; t < begin + apart; t += US)
		if (xpi_spin_over(&s, t)) {
			xpi_spin_woke(&s, begin + apart);
			return t - begin;
		}
	xpi_spin_done(&s, begin + apart);
	return apart;
}

TEST(Spin, HardlyPollsAtFirst)
{
	xpi_spin s = fresh();
	xpi_spin_done(&s, 77 * US);
	EXPECT_FALSE(xpi_spin_over(&s, 77 * US + XPI_SPIN_LEAST - 1));
	EXPECT_TRUE(xpi_spin_over(&s, 77 * US + XPI_SPIN_LEAST));
}

TEST(Spin, PollsThroughShortPausesAfterOneSleep)
{
	for (int64_t apart : {10 * US, 50 * US, 90 * US}) {
		xpi_spin s = fresh();
		EXPECT_GT(apart, between(s, apart));
		for (int i = 0; i < 100; i++)
			EXPECT_EQ(apart, between(s, apart));
	}
}

TEST(Spin, ComesBackToTheLeastWherePausesAreLong)
{
	xpi_spin s = fresh();
	int64_t last = 0;

	between(s, 100 * US);
	between(s, 100 * US);
	for (int i = 0; i < 10; i++)
		last = between(s, 20000 * US);
	EXPECT_EQ(XPI_SPIN_LEAST, last);
}

TEST(Spin, NeverPollsLongerThanTheMost)
{
	xpi_spin s = fresh();
	for (int64_t apart = US; apart < 2000 * US; apart += 7 * US)
		EXPECT_GE(XPI_SPIN_MOST, between(s, apart));
}

/* Every sleep ends with the clock's tick, so that each looks long. */
TEST(Spin, PollsOnWhereNothingButTheClockWakes)
{
	xpi_spin s = fresh(false);
	for (int i = 0; i < 10; i++)
		EXPECT_EQ(XPI_SPIN_MOST, between(s, 1000 * US));
	EXPECT_EQ(100 * US, between(s, 100 * US));
}

} // namespace
