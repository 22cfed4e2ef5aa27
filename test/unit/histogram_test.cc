/* SPDX-License-Identifier: BSD-3-Clause */
/* The histogram of xport_perf, beside all values sorted. */
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <vector>

extern "C" {
#include "tools/perf_histogram.h"
}

namespace
{

/* Both hold the same values. */
class Histogram : public ::testing::Test
{
protected:
	Histogram() : h(new perf_histogram) { perf_histogram_clear(h.get()); }

	void add(uint64_t v)
	{
		perf_histogram_add(h.get(), v);
		all.push_back(v);
	}

	/* Never below the value of that rank, and above it by less than 1/128 of it. */
	void compare()
	{
		std::sort(all.begin(), all.end());
		for (double share : {0.0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0}) {
			size_t rank = (size_t)std::ceil(share * (double)all.size());
			uint64_t want = all[rank > 0 ? rank - 1 : 0], have = perf_histogram_quantile(h.get(), share);

			EXPECT_GE(have, want) << share;
			EXPECT_LE(have - want, want / PERF_HALF) << share << " of " << want;
		}
		EXPECT_EQ(h->n, all.size());
		EXPECT_EQ(h->least, all.front());
		EXPECT_EQ(h->greatest, all.back());
	}

	std::unique_ptr<perf_histogram> h;
	std::vector<uint64_t> all;
};

TEST_F(Histogram, is_exact_for_small_values)
{
	for (uint64_t v = 0; v < 256; v++)
		add(v);
	EXPECT_EQ(perf_histogram_quantile(h.get(), 0.5), 127u);
	EXPECT_EQ(perf_histogram_quantile(h.get(), 1.0), 255u);
	compare();
}

TEST_F(Histogram, keeps_its_bound_everywhere)
{
	std::mt19937_64 random(7);

	for (int i = 0; i < 200000; i++)
		add(random() >> (random() % 64));
	compare();
}

TEST_F(Histogram, keeps_its_bound_at_each_power_of_two)
{
	for (int bit = 0; bit < 64; bit++) {
		add(UINT64_C(1) << bit);
		add((UINT64_C(1) << bit) - 1);
		add((UINT64_C(1) << bit) | 1);
	}
	add(UINT64_MAX);
	compare();
}

TEST_F(Histogram, has_mean_and_deviation)
{
	for (uint64_t v : {2, 4, 4, 4, 5, 5, 7, 9})
		add(v);
	EXPECT_DOUBLE_EQ(perf_histogram_mean(h.get()), 5);
	EXPECT_DOUBLE_EQ(perf_histogram_deviation(h.get()), 2);
}

TEST_F(Histogram, is_nothing_when_empty)
{
	EXPECT_EQ(perf_histogram_quantile(h.get(), 0.5), 0u);
	EXPECT_EQ(perf_histogram_mean(h.get()), 0);
	EXPECT_EQ(perf_histogram_deviation(h.get()), 0);
}

TEST_F(Histogram, merges)
{
	std::unique_ptr<perf_histogram> other(new perf_histogram);

	perf_histogram_clear(other.get());
	for (uint64_t v = 1; v < 100000; v *= 3) {
		perf_histogram_add(other.get(), v);
		all.push_back(v);
	}
	for (uint64_t v = 5; v < 100000; v *= 2)
		add(v);
	perf_histogram_merge(h.get(), other.get());
	compare();
}

} // namespace
