/* SPDX-License-Identifier: BSD-3-Clause */
#include <gtest/gtest.h>

extern "C" {
#include "core/object/poll_budget.h"
}

namespace
{

const int64_t US = 1000;

struct Poller {
	xpi_spin s;
	int64_t last = 77 * US;

	explicit Poller(bool by_clock = false) { xpi_spin_init(&s, by_clock); }
	/* Something happens `apart` after the last time; how long it polled in vain until then, or until it slept. */
	int64_t between(int64_t apart);
	/* The same, of something that takes `work` of the core that this thread polls on. */
	int64_t behind(int64_t work);
};

int64_t Poller::between(int64_t apart)
{
	int64_t begin = last;

	last = begin + apart;
	for (int64_t t = begin; t < begin + apart; t += US)
		if (xpi_spin_over(&s, begin, t)) {
			xpi_spin_woke(&s, begin, begin + apart);
			return t - begin;
		}
	xpi_spin_found(&s);
	return apart;
}

int64_t Poller::behind(int64_t work)
{
	int64_t begin = last, t = begin;

	while (!xpi_spin_over(&s, begin, t))
		t += US;
	last = xpi_spin_woke(&s, begin, t + work);
	return t - begin;
}

TEST(Spin, HardlyPollsAtFirst)
{
	Poller p;
	EXPECT_FALSE(xpi_spin_over(&p.s, p.last, p.last + XPI_SPIN_LEAST - 1));
	EXPECT_TRUE(xpi_spin_over(&p.s, p.last, p.last + XPI_SPIN_LEAST));
}

TEST(Spin, PollsThroughShortPausesAfterOneSleep)
{
	for (int64_t apart : {10 * US, 50 * US, 90 * US}) {
		Poller p;
		EXPECT_GT(apart, p.between(apart));
		for (int i = 0; i < 100; i++)
			EXPECT_EQ(apart, p.between(apart));
	}
}

TEST(Spin, ComesBackToTheLeastWherePausesAreLong)
{
	Poller p;
	int64_t polled = 0;

	p.between(100 * US);
	p.between(100 * US);
	for (int i = 0; i < 10; i++)
		polled = p.between(20000 * US);
	EXPECT_EQ(XPI_SPIN_LEAST, polled);
}

TEST(Spin, NeverPollsLongerThanTheMost)
{
	Poller p;
	for (int64_t apart = US; apart < 2000 * US; apart += 7 * US)
		EXPECT_GE(XPI_SPIN_MOST, p.between(apart));
}

/* A peer on the same core gets no further while this thread polls. */
TEST(Spin, PollsLittleOnTheCoreThatThePeerNeeds)
{
	Poller p;
	int64_t polled = 0;

	for (int i = 0; i < 640; i++)
		polled += p.behind(20 * US);
	EXPECT_GT(640 * (XPI_SPIN_LEAST + 3 * US), polled);
}

TEST(Spin, PollsAgainOnceThePeerHasACoreOfItsOwn)
{
	Poller p;
	int64_t slept = 0;

	for (int i = 0; i < 100; i++)
		p.behind(20 * US);
	for (int i = 0; i < 1000; i++)
		slept += p.between(50 * US) < 50 * US;
	EXPECT_GE(XPI_SPIN_TRUST, slept);
}

/* Where nothing but the clock wakes, every sleep looks long, and says nothing. */
TEST(Spin, PollsAsLongAsItMayWhereTheClockWakes)
{
	Poller p(true);
	for (int i = 0; i < 10; i++)
		EXPECT_EQ(XPI_SPIN_MOST, p.between(1000 * US));
	EXPECT_EQ(100 * US, p.between(100 * US));
}

/* But only once: when the clock has woken it in vain, it goes to sleep again. */
TEST(Spin, SleepsOnWhereTheClockWokeItInVain)
{
	Poller clock(true), other;
	int64_t tick = 2000 * US;
	EXPECT_TRUE(xpi_spin_over(&clock.s, xpi_spin_woke(&clock.s, 0, tick), tick + US));
	EXPECT_FALSE(xpi_spin_over(&other.s, xpi_spin_woke(&other.s, 0, tick), tick + US));
}

} // namespace
