/* SPDX-License-Identifier: BSD-3-Clause */
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" {
#include "base/pool.h"
}

extern "C" void *__real_aligned_alloc(size_t align, size_t size);

static thread_local size_t slabs_left = SIZE_MAX;

/* The linker calls it in place of aligned_alloc (sources.am).  A limit on the address space would also bite valgrind, which
 * then ends the program. */
extern "C" void *__wrap_aligned_alloc(size_t align, size_t size)
{
	if (slabs_left == 0) {
		errno = ENOMEM;
		return nullptr;
	}
	if (slabs_left != SIZE_MAX)
		slabs_left--;
	return __real_aligned_alloc(align, size);
}

namespace
{

class Pool : public testing::TestWithParam<std::tuple<size_t, size_t>>
{
protected:
	void SetUp() override
	{
		size = std::get<0>(GetParam());
		align = std::get<1>(GetParam());
		xpi_pool_init(&p, size, align);
	}
	void TearDown() override { xpi_pool_fini(&p); }

	/* Takes `n` objects and fills each with a byte of its own. */
	std::vector<unsigned char *> take(size_t n)
	{
		std::vector<unsigned char *> v;

		for (size_t i = 0; i < n; i++) {
			auto *obj = static_cast<unsigned char *>(xpi_pool_get(&p));
			memset(obj, static_cast<int>(i % 251 + 1), size);
			v.push_back(obj);
		}
		return v;
	}

	struct xpi_pool p;
	size_t size, align;
};

TEST_P(Pool, AllocatesNothingBeforeItsFirstUse)
{
	EXPECT_EQ(nullptr, p.free);
	EXPECT_EQ(nullptr, p.slabs);
	EXPECT_EQ(nullptr, xpi_pool_at(&p, 0));
}

TEST_P(Pool, ObjectsAreAlignedZeroedAndDoNotOverlap)
{
	size_t n = 3 * (size_t{1} << p.shift) + 1;
	std::vector<unsigned char *> objects;

	for (size_t i = 0; i < n; i++) {
		auto *obj = static_cast<unsigned char *>(xpi_pool_get(&p));
		ASSERT_NE(nullptr, obj);
		EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(obj) % align);
		for (size_t k = 0; k < size; k++)
			ASSERT_EQ(0, obj[k]);
		memset(obj, static_cast<int>(i % 251 + 1), size);
		objects.push_back(obj);
	}
	EXPECT_EQ(4u, p.nslabs);
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < size; k++)
			ASSERT_EQ(i % 251 + 1, objects[i][k]) << i;
}

TEST_P(Pool, IndexLeadsToTheObjectAndBack)
{
	size_t per_slab = size_t{1} << p.shift;
	auto objects = take(2 * per_slab);
	std::vector<bool> seen(objects.size());

	for (void *obj : objects) {
		uint32_t index = xpi_pool_index(&p, obj);
		ASSERT_LT(index, objects.size());
		EXPECT_FALSE(seen[index]);
		seen[index] = true;
		EXPECT_EQ(obj, xpi_pool_at(&p, index));
	}
}

TEST_P(Pool, AnyIndexFromOutsideIsSafe)
{
	auto objects = take(1);
	uint32_t mine = xpi_pool_index(&p, objects[0]), n = 1u << p.shift;

	for (uint32_t i = 0; i < n; i++)
		EXPECT_EQ(i == mine ? objects[0] : nullptr, xpi_pool_at(&p, i)) << i;
	for (uint32_t i : {n, n + 1, 0x7fffffffu, 0x80000000u, 0xfffffffeu, 0xffffffffu})
		EXPECT_EQ(nullptr, xpi_pool_at(&p, i)) << i;
	for (unsigned bit = 0; bit < 32; bit++)
		EXPECT_EQ(nullptr, xpi_pool_at(&p, mine ^ 1u << bit)) << bit;
}

TEST_P(Pool, LastPutIsFirstTakenAndComesBackAsItWas)
{
	auto objects = take(3);
	uint32_t index = xpi_pool_index(&p, objects[1]);

	xpi_pool_put(&p, objects[1]);
	EXPECT_EQ(nullptr, xpi_pool_at(&p, index)) << "free: nobody's";
	xpi_pool_put(&p, objects[0]);
	EXPECT_EQ(objects[0], xpi_pool_get(&p));
	EXPECT_EQ(objects[1], xpi_pool_get(&p));
	EXPECT_EQ(index, xpi_pool_index(&p, objects[1]));
	EXPECT_EQ(objects[1], xpi_pool_at(&p, index));
	for (size_t k = 0; k < size; k++)
		ASSERT_EQ(2, objects[1][k]);
}

TEST_P(Pool, DoesNotGrowInSteadyState)
{
	auto objects = take(100);
	uint32_t slabs = p.nslabs;

	for (int round = 0; round < 1000; round++) {
		xpi_pool_put(&p, objects[round % 100]);
		objects[round % 100] = static_cast<unsigned char *>(xpi_pool_get(&p));
	}
	for (void *obj : objects)
		xpi_pool_put(&p, obj);
	take(100);
	EXPECT_EQ(slabs, p.nslabs);
}

TEST_P(Pool, FiniTakesAllAndMayBeRepeated)
{
	take(50);
	xpi_pool_fini(&p);
	EXPECT_EQ(nullptr, xpi_pool_at(&p, 0));
	xpi_pool_fini(&p);
	xpi_pool_init(&p, size, align);
	EXPECT_NE(nullptr, xpi_pool_get(&p));
}

INSTANTIATE_TEST_SUITE_P(Sizes, Pool,
                         testing::Combine(testing::Values(1, 15, 16, 17, 48, 200, 4096, 8192 + 40, 70000),
                                          testing::Values(16, 64)));

TEST(PoolMemory, OutOfMemoryIsNullAndHarmless)
{
	struct xpi_pool p;
	std::vector<void *> objects;

	xpi_pool_init(&p, 1 << 20, 64);
	slabs_left = 3;
	for (void *obj; objects.size() < 1024 && (obj = xpi_pool_get(&p)) != nullptr;)
		objects.push_back(obj);
	void *again = xpi_pool_get(&p);
	slabs_left = SIZE_MAX;
	EXPECT_EQ(nullptr, again);
	ASSERT_EQ(size_t{3} << p.shift, objects.size());
	for (void *obj : objects)
		EXPECT_EQ(obj, xpi_pool_at(&p, xpi_pool_index(&p, obj)));
	EXPECT_NE(nullptr, xpi_pool_get(&p)) << "once there is memory again";
	xpi_pool_fini(&p);
}

#if defined(__SANITIZE_ADDRESS__)
TEST(PoolDeathTest, AFreeObjectIsPoisoned)
{
	struct xpi_pool p;

	xpi_pool_init(&p, 64, 16);
	auto *obj = static_cast<volatile char *>(xpi_pool_get(&p));
	obj[0] = 1;
	xpi_pool_put(&p, const_cast<char *>(obj));
	EXPECT_DEATH(obj[0] = 2, "use-after-poison");
	EXPECT_DEATH(xpi_pool_put(&p, const_cast<char *>(obj)), "used") << "put back twice";
	xpi_pool_fini(&p);
}
#endif

} // namespace
