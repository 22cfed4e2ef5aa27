// SPDX-License-Identifier: BSD-3-Clause
// Structs of other sizes, read and written.
extern "C" {
#include "base/grow.h"
}
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace
{

struct First {
	size_t size;
	uint64_t a;
};
struct Now {
	size_t size;
	uint64_t a, b;
};
struct Later {
	size_t size;
	uint64_t a, b, c;
};

constexpr size_t first = sizeof(First), known = sizeof(Now);

Now rubbish()
{
	Now n;

	memset(static_cast<void *>(&n), 0xa5, sizeof(n));
	return n;
}

TEST(Grow, WhatIsMissingIsZero)
{
	struct {
		First s;
		uint64_t behind;
	} from = {{sizeof(First), 7}, 8};
	Now to = rubbish();

	ASSERT_EQ(XPORT_OK, xpi_grow_in(&to, known, first, &from));
	EXPECT_EQ(known, to.size);
	EXPECT_EQ(7u, to.a);
	EXPECT_EQ(0u, to.b) << "not what lies behind the program's struct";
}

TEST(Grow, WhatIsNotKnownMustBeZero)
{
	Later from = {sizeof(Later), 7, 8, 0};
	Now to = rubbish();

	ASSERT_EQ(XPORT_OK, xpi_grow_in(&to, known, first, &from));
	EXPECT_EQ(8u, to.b);
	from.c = uint64_t{1} << 56;
	EXPECT_EQ(XPORT_ERR_NOT_SUPPORTED, xpi_grow_in(&to, known, first, &from));
}

TEST(Grow, WhatIsNoSizeIsRefused)
{
	First from = {0, 0};
	Now to;

	for (size_t size : {size_t{0}, first - 1, size_t{XPI_GROW_MAX} + 1, SIZE_MAX}) {
		from.size = size;
		EXPECT_EQ(XPORT_ERR_INVALID, xpi_grow_in(&to, known, first, &from)) << size;
		EXPECT_FALSE(xpi_grow_size(size, first)) << size;
	}
	EXPECT_TRUE(xpi_grow_size(first, first));
	EXPECT_TRUE(xpi_grow_size(XPI_GROW_MAX, first));
}

TEST(Grow, NoMoreIsWrittenThanThereIs)
{
	const Now from = {sizeof(First), 7, 8};
	struct {
		First s;
		uint64_t behind;
	} to = {{0, 0}, 9};

	xpi_grow_out(&to, sizeof(First), &from, known);
	EXPECT_EQ(7u, to.s.a);
	EXPECT_EQ(9u, to.behind);
}

TEST(Grow, WhatNobodyFillsIsZeroed)
{
	const Now from = {sizeof(Later), 7, 8};
	Later to = {0, 1, 1, 1};

	xpi_grow_out(&to, sizeof(Later), &from, known);
	EXPECT_EQ(sizeof(Later), to.size);
	EXPECT_EQ(8u, to.b);
	EXPECT_EQ(0u, to.c);
}

} // namespace
